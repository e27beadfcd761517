"""What `on_threads` takes, checked when it is given.

Checked here: what can be said without the query, one option at a time or two against each other. What needs the query
(whether a strategy serves it, how many shares it can have) is `plan`'s. Both happen in `on_threads`, before a thread
or an array is made, so a wrong option costs nothing.
"""

from __future__ import annotations

import os
import re
import reprlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait.core.join.choice import KINDS
from plait.core.policy import policy_of
from plait.errors import QueryError
from plait.query.base import check_order, check_rates
from plait.schema import duration_us, is_number
from plait.threads.aggregate import designs
from plait.threads.gate import GATES
from plait.threads.join.loop.gather import NEVER, STRICT, Precision
from plait.threads.join.strategies import registry
from plait.threads.life.affinity import cores_of

#: What is asked for by number is made at once, so there is an end to it.
MOST_THREADS, MOST_TUPLES = 1 << 12, 1 << 31


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `on_threads`, checked. `plait.query.run_options.ThreadsOptions` says what each means.

    None means «not said»: the plan, or the engine, chooses. `order` is what the user asked of results; `punctuate`
    says the same in SplitJoin's words, and "order" means «as order= has it». `plain` runs kernels and operators
    without Numba, for tests.
    """

    workers: int | None = None
    elastic: int | None = None
    policy: Any = None
    strategy: str = "auto"
    order: str = "strict"
    index: str = "auto"
    layout: Any = "auto"
    emitter: bool = False
    affinity: Any = False
    gate: str = "auto"
    punctuate: Any = "order"
    marks: bool = False
    fan_out: int | None = None
    fan_in: int | None = None
    split_storing: bool = False
    rates: tuple[float, float] | None = None
    capacity: int | None = None
    pending: int | None = None
    unread_results: int = 1 << 18
    batch: int | None = None
    linger: Any = None
    max_sources: int | None = None
    keys: bool = False
    schemas: Mapping[str, pa.Schema] | None = None
    stall_after_s: float = 60.0
    cache_dir: str | os.PathLike[str] | None = None
    plain: bool = False

    def __post_init__(self) -> None:
        check_order(self.order)
        for name, (value, counted) in self._counted().items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise QueryError(f"{name}={value!r} is no number of {counted}", do="Pass a whole number, at least 1")
            most = MOST_THREADS if name in ("workers", "elastic") else MOST_TUPLES
            if value is not None and value > most:
                raise QueryError(
                    f"{name}={value!r} is more {counted} than {most:,}",
                    why="there is memory for each of them",
                    do="Pass a smaller number",
                )
        named: dict[str, tuple[Any, tuple[str, ...]]] = {
            "strategy": (self.strategy, ("auto", *registry.names(), *designs.names())),
            "gate": (self.gate, tuple(GATES)),
            "index": (self.index, KINDS),
        }
        for name, (value, known) in named.items():
            if not isinstance(value, str) or value not in known:
                raise QueryError(f"{name}={value!r} is not known", do=f"Use one of {', '.join(map(repr, known))}")
        flags = {
            "keys": self.keys, "plain": self.plain, "marks": self.marks, "split_storing": self.split_storing,
            "emitter": self.emitter,
        }  # fmt: skip
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise QueryError(f"{name}={value!r} is no truth value", do="Pass True or False")
        if not (is_number(self.stall_after_s) and 0 < self.stall_after_s <= threading.TIMEOUT_MAX):
            raise QueryError(
                f"stall_after_s={self.stall_after_s!r}",
                why="it is a number of seconds above zero, and not more than a lock can wait",
                do="Pass one, such as 60",
            )
        object.__setattr__(self, "stall_after_s", float(self.stall_after_s))  # locks take no number of NumPy's
        self._check_given()
        self.linger_us  # noqa: B018 - refused, if it is no duration
        own = registry.strategy(self.strategy) if self.strategy in registry.names() else None
        if self.punctuate != "order" and not (own is not None and own.punctuates):
            raise QueryError(
                f"punctuate={self.punctuate!r} with strategy={self.strategy!r}",
                why="punctuation is how SplitJoin gathers results",
                do="Say strategy='splitjoin', or set the order= you need",
            )
        gathering = {"marks": self.marks, "fan_in": self.fan_in, "split_storing": self.split_storing}
        for name, value in gathering.items():
            if value not in (False, None) and not (own is not None and own.punctuates):
                raise QueryError(
                    f"{name}={value!r} with strategy={self.strategy!r}",
                    why="it is a part of SplitJoin",
                    do="Say strategy='splitjoin', or leave it out",
                )
        if self.fan_in == 1:
            raise QueryError(
                "fan_in=1", why="a merger of one has nothing to merge", do="Pass 2 or more, or leave it out"
            )
        if self.layout != "auto" and self.strategy != "auto" and not (own is not None and own.layouts):
            raise QueryError(
                f"layout={self.layout!r} with strategy={self.strategy!r}",
                why="layouts are DP-Join's",
                do="Say strategy='dpjoin', or leave layout= out",
            )
        if self.emitter and self.strategy != "auto" and not (own is not None and own.emits):
            raise QueryError(
                f"emitter=True with strategy={self.strategy!r}",
                why="rows and columns of workers, to which an Emitter sends tuples, are DP-Join's",
                do="Say strategy='dpjoin', or leave emitter= out",
            )
        cores_of(self.affinity)
        if self.precision().triggers == NEVER and self.marks:
            raise QueryError(
                f"marks=True with punctuate={self.punctuate!r}, order={self.order!r}",
                why="results that come as they like have no marks between them",
                do="Leave marks= out, or say punctuate=1: a mark for each trigger",
            )
        policy_of(self.policy)

    @property
    def linger_us(self) -> int | None:
        """How long a push may wait for others of its source; None: not at all."""
        return None if self.linger is None else duration_us(self.linger, "linger", zero=False)

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
            "fan_out": (self.fan_out, "children"),
            "fan_in": (self.fan_in, "inputs of a merger"),
        }

    def _check_given(self) -> None:
        """Refuse what is of a wrong kind before anything is made of it.

        A wrong one would otherwise fail deep inside, in words that do not name the option.
        """
        check_rates(self.rates)
        if self.schemas is not None and not (
            isinstance(self.schemas, Mapping) and all(isinstance(schema, pa.Schema) for schema in self.schemas.values())
        ):
            raise QueryError(
                f"schemas={reprlib.repr(self.schemas)} gives no columns",
                do="Pass a dict of stream names to Arrow schemas",
            )
        if self.cache_dir is not None and not isinstance(self.cache_dir, (str, os.PathLike)):
            raise QueryError(f"cache_dir={self.cache_dir!r} is no folder", do="Pass a path, or leave it out")

    def precision(self) -> Precision:
        """How exactly results are ordered: `order=`, or what `punctuate=` says instead.

        `order="trigger"` is a cut after every trigger: triggers in order, a trigger's partners as workers come.
        """
        wanted = self.punctuate
        if wanted == "order":
            return Precision({"strict": STRICT, "trigger": 1, "none": NEVER}[self.order])
        if wanted is None or wanted == "never":
            return Precision(NEVER)
        if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 1:
            return Precision(wanted)
        if isinstance(wanted, str) and (told := re.fullmatch(r"(?:([1-9][0-9]{0,9}) )?comparisons?", wanted)):
            comparisons = int(told[1] or 1)
            return Precision(STRICT if comparisons == 1 else 1, comparisons)
        raise QueryError(
            f"punctuate={wanted!r} is no interval",
            do="Pass 'comparison' (exact), '10 comparisons' (of each sub-window), a number of tuples (1: the papers' outer "
            "order), or None (as results come)",
        )
