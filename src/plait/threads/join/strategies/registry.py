"""The join strategies by name: all that there is to know of one, beside its plan.

A strategy is added with its own module and a line in `_OURS`. Strategies that are no part of the product, such as the rivals
of the papers (`plait_bench.rivals`), are registered by whoever wants to run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from plait.errors import QueryError
from plait.query.base import Query
from plait.threads.join.strategies import dpjoin, partitioned, scalejoin, sequential, splitjoin
from plait.threads.join.strategies.plan import Plan, Wish


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One way to share a join among workers."""

    name: str
    plan: Callable[[Wish], Plan]
    layouts: bool = False  # takes layout=
    emits: bool = False  # takes emitter=
    punctuates: bool = False  # takes punctuate=, marks=, fan_in= and split_storing=
    #: Raises what keeps it from serving this query with these order= and index=.
    check: Callable[[Query, str, str], None] = lambda query, order, index: None


_OURS = (
    Strategy(name="sequential", plan=sequential.plan),
    Strategy(name="scalejoin", plan=scalejoin.plan),
    Strategy(name="splitjoin", plan=splitjoin.plan, punctuates=True),
    Strategy(name="partitioned", plan=partitioned.plan),
    Strategy(name="dpjoin", plan=dpjoin.plan, layouts=True, emits=True),
)
_known: dict[str, Strategy] = {}


def register(strategy: Strategy) -> None:
    """Make a strategy known to `on_threads(strategy=...)`, for this process."""
    if _known.get(strategy.name, strategy) != strategy:
        raise QueryError(f"There is a strategy {strategy.name!r} already", do="Choose another name")
    _known[strategy.name] = strategy


def names() -> tuple[str, ...]:
    return tuple(_known)


def strategy(name: str) -> Strategy:
    return _known[name]


for _each in _OURS:
    register(_each)
