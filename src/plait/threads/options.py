"""What `on_threads` takes, checked when it is given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.base import check_order
from plait.threads.aggregate import designs
from plait.threads.elastic.policy import policy_of
from plait.threads.gate import GATES
from plait.threads.join.loop import gather
from plait.threads.join.strategies import registry


@dataclass(frozen=True, kw_only=True)
class Options:
    """Everything that may be given; see `Run`."""

    workers: int | None = None
    elastic: int | None = (
        None  # shares of the state, and so threads at most: `resize` and `policy` change who serves them
    )
    policy: Any = None
    strategy: str = "auto"
    order: str = "strict"
    index: str = "auto"
    layout: Any = "auto"
    gate: str = "auto"
    punctuate: Any = "order"
    fan_out: int = 2
    rates: tuple[float, float] | None = None
    capacity: int = 1 << 15
    pending: int | None = None
    unread_results: int = 1 << 18
    batch: int | None = None
    max_sources: int | None = None
    keys: bool = False
    schemas: Mapping[str, pa.Schema] | None = None
    stall_after_s: float = 60.0
    cache_dir: str | os.PathLike[str] | None = None
    plain: bool = False  # kernels in Python: for tests

    def __post_init__(self) -> None:
        check_order(self.order)
        for name, (value, counted) in self._counted().items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise QueryError(f"{name}={value!r} is no number of {counted}", do="Pass a whole number, at least 1")
        known = ("auto", *registry.names(), *designs.names())
        if self.strategy not in known:
            raise QueryError(f"strategy={self.strategy!r} is not known", do=f"Use one of {', '.join(map(repr, known))}")
        if self.gate not in GATES:
            raise QueryError(f"gate={self.gate!r} is not known", do=f"Use one of {', '.join(map(repr, GATES))}")
        if not self.stall_after_s > 0:
            raise QueryError(f"stall_after_s={self.stall_after_s!r}", why="it is a number of seconds above zero")
        own = registry.strategy(self.strategy) if self.strategy in registry.names() else None
        if self.punctuate != "order" and not (own is not None and own.punctuates):
            raise QueryError(
                f"punctuate={self.punctuate!r} with strategy={self.strategy!r}",
                why="punctuation is how SplitJoin gathers results",
                do="Say strategy='splitjoin', or set the order= you need",
            )
        if self.layout != "auto" and self.strategy != "auto" and not (own is not None and own.layouts):
            raise QueryError(
                f"layout={self.layout!r} with strategy={self.strategy!r}",
                why="layouts are DP-Join's",
                do="Say strategy='dpjoin', or leave layout= out",
            )
        self.precision()
        policy_of(self.policy)

    def _counted(self) -> dict[str, tuple[Any, str]]:
        """The options that are numbers, and of what."""
        return {
            "capacity": (self.capacity, "tuples"),
            "unread_results": (self.unread_results, "results"),
            "batch": (self.batch, "tuples"),
            "workers": (self.workers, "workers"),
            "pending": (self.pending, "tuples"),
            "max_sources": (self.max_sources, "sources"),
            "elastic": (self.elastic, "shares"),
        }

    def precision(self) -> int:
        """How exactly results are ordered, as `threads.join.loop.gather` takes it."""
        wanted = self.punctuate
        if wanted == "order":
            return {"strict": gather.STRICT, "trigger": 1, "none": gather.NEVER}[self.order]
        if wanted == "comparison":
            return gather.STRICT
        if wanted is None or wanted == "never":
            return gather.NEVER
        if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 1:
            return wanted
        raise QueryError(
            f"punctuate={wanted!r} is no interval",
            do="Pass 'comparison' (exact), a number of tuples (1: the papers' outer order), or None (as results come)",
        )
