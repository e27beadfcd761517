"""DP-Join: workers in m rows and n columns; left tuples go to a row, right ones to a column.

D. Buono, T. De Matteis, G. Mencagli, «A High-Throughput and Low-Latency Parallelization of Window-based Stream Joins
on Multicores», IEEE ISPA 2014; section 4.

- The left window is partitioned among rows and shared along each; the right one among columns, and shared down each.
  A left tuple is compared by the n workers of its row, each with its column's segment; a right one by the m of its
  column.
- Shared window segments: one copy a row and column. The first worker of a row writes the row's segment; the others
  read what it has published. Each keeps a counter of the first tuple that is still valid for it; memory is used again
  below the least of them.
- Single-scan expiry: expired tuples are found in the opposite window, by the probe that no longer meets them.

Invariant: the pair (x, y) is compared by the one worker at (row of x, column of y), at its later tuple: both tuples
are in that worker's segments, and in no other worker's together.

m x 1 keeps all partners of a left row with one worker, which left, semi and anti joins need; 1 x n those of a right row, for
right joins. A full join has any layout: each worker of a row holds its left tuples until their time is up, each of a column its
right ones, and a tuple is alone if none of them has found a partner (`loop.gather`). `layout="auto"` is
`threads.join.strategies.choice`'s.

Tuples come in one of two ways. With `emitter=True`, the paper's (`loop.grid`): an Emitter sends each to the first worker of its
row or column, and workers hand it on. Else every worker reads all tuples from the gate and knows by their numbers which are its
own.

Where this departs from the paper: the Emitter's marks let workers take both streams in total order, where the paper's take them
as they come. Where all read, those that share a segment wait for its writer. Results are gathered in result order, where the
paper's Collector takes them as they come. Threads are bound to cores only if `affinity=` says so. docs/papers.md has each beside
its section.
"""

from __future__ import annotations

from plait.threads.join.strategies import choice
from plait.threads.join.strategies.plan import Plan, Seat, Wish


def apart(wish: Wish) -> Plan:
    """A line for shares that change hands: nothing is shared, so every worker has one side's window for itself.

    m x 1, with the right window at every worker; for a right join 1 x n, with the left one.
    """
    n = wish.workers
    if choice.whole(wish.kind) == (1,):
        seats = tuple(Seat((k, k), (1, n), (0, k), (1, n), (0, k), (True, True)) for k in range(n))
        return Plan("dpjoin", seats, (1, n), f"1 x {n}: right tuples by turns, the left window at every worker")
    seats = tuple(Seat((k, k), (n, 1), (k, 0), (n, 1), (k, 0), (True, True)) for k in range(n))
    return Plan("dpjoin", seats, (n, 1), f"{n} x 1: left tuples by turns, the right window at every worker")


def plan(wish: Wish) -> Plan:
    """m x n, as the wish has it or as its rates ask for.

    With 2 x 2, worker k sits in row k // 2 and column k % 2. Left tuple number 3 goes to row 1, right tuple number 2
    to column 0: their pair is worker 2's. Worker 0 writes row 0's and column 0's segments, worker 1 column 1's, worker
    2 row 1's, worker 3 none.
    """
    (m, n), why = choice.layout(wish)
    seats = []
    for k in range(m * n):
        row, column = divmod(k, n)
        seats.append(Seat((row, column), (m, n), (row, column), (m, n), (row, column), (column == 0, row == 0)))
    if wish.emitter:
        why += "; an Emitter sends left tuples to the first worker of a row, right ones to a column's, and workers hand them on"
    return Plan("dpjoin", tuple(seats), (m, n), why, emitter=wish.emitter)
