"""The systems that the papers measure against, as far as the comparison needs: time windows, scans, inner joins, no order.

celljoin                one coordinator cuts windows anew for every tuple
handshake               two streams flow past each other through a chain of workers
low_latency_handshake   the same chain, with tuples hurried through it and kept at one worker each
moves                   what the three share: windows in shared memory, in which tuples move by their position

Importing this package makes `on_threads(strategy=...)` know `NAMES`.
"""

from __future__ import annotations

from functools import partial

from plait.errors import QueryError
from plait.query.base import Query
from plait.query.join import Join, TimeWindow
from plait.threads.join.strategies.registry import Strategy, register
from plait_bench.rivals import celljoin, handshake, low_latency_handshake

NAMES = ("celljoin", "handshake", "low_latency_handshake")


def _check(strategy: str, query: Query, order: str, index: str) -> None:
    if order != "none" or index not in ("auto", "scan"):
        raise QueryError(
            f"strategy={strategy!r} with order={order!r}, index={index!r}",
            why="it is here to be compared with: it scans, and gives results as they come",
            do="Say order='none', index='scan', or take another strategy",
        )
    if not (isinstance(query, Join) and isinstance(query.window, TimeWindow)):
        raise QueryError(
            f"strategy={strategy!r} without a time window",
            why="it is here to be compared with, on time windows",
            do="Use within=, or take another strategy",
        )


for _name, _module in zip(NAMES, (celljoin, handshake, low_latency_handshake), strict=True):
    register(Strategy(name=_name, plan=_module.plan, check=partial(_check, _name)))
