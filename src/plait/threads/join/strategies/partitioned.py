"""Partitioned: a tuple goes to the worker of its value, or of its range and to those that its band reaches.

No paper's: what systems with an equality do by hash, with ranges for bands, and ScaleJoin's turns where a value is hot, or the
band's ranges within it where there is a band, too. Each
worker has windows and an index of its own, and sees nothing of other workers' tuples but where they lie. So an index over n
workers is n smaller ones, where ScaleJoin's workers each look up, and lay out, every tuple.

Invariant: a pair is found by the one worker that owns the tuple of the *owned* side (the right one of right joins, else the
left one): `loop.stretches` says why, and how one table of owners follows the other without a word between workers. All partners
of an owned row are found there, which left, semi, anti and right joins need; a full join's rows of the other side are counted
by whoever gathers, as DP-Join's are.

Any window will do: workers number all tuples, their own or not.
"""

from __future__ import annotations

from plait.errors import QueryError
from plait.threads.join.strategies.plan import Parts, Plan, Seat, Wish

TOLD = {
    "hash": "a tuple goes to the worker of its value by the equality, by hash",
    "range": "a tuple goes to the worker of its range, and to those that its band reaches",
}


def plan(wish: Wish) -> Plan:
    if wish.line is None:
        raise QueryError(
            "strategy='partitioned' for a condition without an equality or a band",
            why="tuples go by the value that both sides have to have in common, or nearly",
            do="Use strategy='auto', or write the condition so that plait sees one: SQL text, or a function that traces, with "
            "columns named by their stream",
        )
    n = wish.workers
    seats = tuple(Seat((k, k), (1, 1), (0, 0), (1, 1), (0, 0), (True, True)) for k in range(n))
    why = f"{TOLD[wish.line]}; windows and an index of its own for each; hot ones are shared by turns"
    return Plan("partitioned", seats, (n, n), why, parts=Parts(wish.line))
