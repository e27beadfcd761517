"""Kang's procedure: one worker, three steps a tuple.

J. Kang, J. Naughton, S. Viglas, «Evaluating window joins over unbounded streams», ICDE 2003, as ScaleJoin (section
II) and DP-Join (section 4) quote it: compare the tuple with the other window, add it to its own, remove what has
expired. Where this departs from it: purge comes first here, so that a pair is a result iff it lies in the window
(ScaleJoin, end of section III).

Invariant: the windows hold what precedes the tuple being processed, and no more than the window says; so each pair is
found once, at its later tuple, and results come out in result order as they are found.
"""

from __future__ import annotations

from plait.errors import QueryError
from plait.threads.join.strategies.plan import Plan, Seat, Wish


def plan(wish: Wish) -> Plan:
    if wish.workers != 1:
        raise QueryError(
            f"strategy='sequential' with {wish.workers} workers",
            why="Kang's procedure has one",
            do="Leave workers= out, or take another strategy",
        )
    seat = Seat((0, 0), (1, 1), (0, 0), (1, 1), (0, 0), (True, True))
    return Plan("sequential", (seat,), (1, 1), "one worker: Kang's procedure")
