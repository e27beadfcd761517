"""ScaleJoin: every worker sees every ready tuple, each is stored by exactly one.

V. Gulisano, Y. Nikolakopoulos, M. Papatriantafilou, P. Tsigas, «ScaleJoin: a Deterministic, Disjoint-Parallel and
Skew-Resilient Stream Join», IEEE Big Data 2015; algorithm 1.

Invariant: a pair is compared by exactly one worker, the one that stored its earlier tuple (lemma 1: stored by one;
lemma 2: consumed by all). Work is balanced whatever the rates and values, because it depends on tuples' numbers
alone.

Where this departs from the paper: tuples take turns by their number in their own stream, not among all, so that each
window is spread evenly however the streams interleave (with one counter, two workers and strictly alternating streams
one worker would hold all of R); purge comes before the comparisons; the gate that merges inputs is the ring, which
each reader merges for itself, unless `gate="skiplist"` asks for ScaleGate; and there is no second ScaleGate: each worker
has a ring of results, and one thread merges these by (trigger, partner), so that the sequence is exact and not only sorted
by time.
"""

from __future__ import annotations

from plait.threads.join.strategies.plan import Plan, Seat, Wish, refuse_kind


def plan(wish: Wish) -> Plan:
    n = wish.workers
    if n > 1 and wish.kind != "inner":
        raise refuse_kind("scalejoin", wish.kind)
    seats = tuple(Seat((k, k), (n, n), (k, k), (1, 1), (0, 0), (True, True)) for k in range(n))
    return Plan("scalejoin", seats, (n, n), f"{n} workers see every tuple, each stores one in {n} of either stream")
