"""The designs for aggregates, and which one fits a query: what a `Plan` is for a join.

| design | who merges sources | who updates windows |
|---|---|---|
| `tuml_sc` | the gate | one update thread (`threads.aggregate.tuml`) |
| `tuml_mc` | the gate | update threads, split by key |
| `wiml` | nobody: windows are merged instead | the threads that push (`threads.aggregate.wiml`) |
| `wiml_shared` | nobody, as with `wiml` | the threads that push, through tables of windows that they share |

All give the same rows in the same order. `wiml_shared` is here to be compared with: the paper's W-Hive has a concurrent hash
table in every winset, in which sources meet at a key's window; with `wiml` a source looks up keys in a table of its own, and the
output thread brings together what is of one key. The multi-queues that the paper starts from register themselves from the
benchmarks (`plait_bench.multi_queues`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import pyarrow as pa

from plait.core.aggregate.functions import unmerged
from plait.core.aggregate.panes import window_record
from plait.core.calibration import Calibration, kept
from plait.core.sources import may_be_behind
from plait.errors import QueryError
from plait.models import aggregation
from plait.query.aggregate import Aggregate
from plait.query.stream import Stream
from plait.threads.gate import Gate

#: With WiML a source has its own part of every window it is in: work that pays while there are cores to share it.
SOURCES_A_CORE = 4

#: With a calibration: how many times more the other design has to let through to be taken.
CLEARLY = 1.2


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A design by its name: all that there is to know of it."""

    name: str
    merges: bool = False  # windows, and not tuples: the threads that push update them, each source its own part
    gate: type[Gate] | None = None  # the class of gate where tuples wait for one another; None: the run's own


_OURS = (
    Kind(name="tuml_sc"),
    Kind(name="tuml_mc"),
    Kind(name="wiml", merges=True),
    Kind(name="wiml_shared", merges=True),
)
_known: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a design known to `on_threads(strategy=...)`, for this process."""
    if _known.get(kind.name, kind) != kind:
        raise QueryError(f"There is a design {kind.name!r} already", do="Choose another name")
    _known[kind.name] = kind


def names() -> tuple[str, ...]:
    return tuple(_known)


for _each in _OURS:
    register(_each)


@dataclass(frozen=True)
class Design:
    """Who updates windows: so many `workers`. `seats` are theirs; where windows are merged only one thread reads the gate."""

    strategy: str
    workers: int
    why: str

    @property
    def merges_windows(self) -> bool:
        """Whether the threads that push update windows, each source its own part."""
        return _known[self.strategy].merges

    @property
    def pool(self) -> int:
        """Threads that update windows for those that push; 0 where these do it themselves, or the gate brings tuples."""
        return self.workers if self.merges_windows and self.workers > 1 else 0

    @property
    def gate(self) -> type[Gate] | None:
        """The class of gate this design wants; None: what `on_threads(gate=...)` says."""
        return _known[self.strategy].gate

    @property
    def seats(self) -> tuple[int, ...]:
        return tuple(range(self.workers))


def design(query: Aggregate, strategy: str, workers: int | None, schema: pa.Schema | None = None) -> Design:
    """The strategy for an aggregate, checked; as far as that goes without the input's columns, if they are not known.

    `workers` and `schema` may be None: not said, not known yet. It is called twice for a run: with the query alone, so
    that mistakes are told at once, and again when the columns are known (`engines`), since whether a function
    merges may depend on a column's type.
    """
    if strategy not in (*names(), "auto"):
        raise QueryError(
            f"strategy={strategy!r} for an aggregate",
            why="it is one for joins",
            do=f"Use one of {', '.join(map(repr, ('auto', *names())))}",
        )
    if strategy == "tuml_mc":
        if not query.by:
            raise QueryError(
                "strategy='tuml_mc' without by=",
                why="update threads share the work by key, and there is none",
                do="Use 'tuml_sc' or 'wiml', or group by a column",
            )
        return Design(strategy, workers or 2, "update threads split by key, as asked for")
    reason = unmerged_in(query, schema)
    merges = strategy != "auto" and _known[strategy].merges
    if merges and reason is not None:
        raise refuse(reason, query, strategy)
    if strategy != "auto":
        if workers is None or workers == 1:
            return Design(strategy, 1, "as asked for")
        apart = unpooled(query) if merges else "it has a single consumer"
        if apart is not None:
            raise QueryError(
                f"workers={workers} with strategy={strategy!r}",
                why=apart,
                do="Leave workers= out"
                + (", or declare the sources with sources=" if merges else ", or use 'tuml_mc'"),
            )
        return Design(strategy, workers, f"as asked for; {workers} threads update windows for all that push")
    if workers is not None and workers > 1 and query.by:
        return Design("tuml_mc", workers, f"{workers} workers were asked for: update threads split by key")
    if reason is not None:
        return Design("tuml_sc", 1, f"{reason}: one thread reads all tuples in total order")
    declared = query.input.declared() if isinstance(query.input, Stream) else None
    sources, cores = 0 if declared is None else len(declared), os.cpu_count() or 1
    usual = "tuml_sc" if sources > SOURCES_A_CORE * cores else "wiml"
    if (found := kept()) is not None and sources:
        name, why = by_model(usual, sources, cores, found)
        return Design(name, 1, f"every function merges; {why}")
    if usual == "tuml_sc":
        why = f"{sources} sources on {cores} cores: their parts of windows would cost more than sorting their tuples"
        return Design("tuml_sc", 1, f"{why}; one thread reads all tuples in total order")
    known = "" if declared is None else f" ({sources} source{'s' if sources != 1 else ''})"
    return Design("wiml", 1, f"every function merges, so threads that push update windows themselves{known}")


def unpooled(query: Aggregate) -> str | None:
    """Why no pool of threads can update windows for those that push; None if one can.

    What is behind depends on how far others are when it comes; who hands rows on does not know how far these will be.
    """
    if not isinstance(query.input, Stream):
        return "it reads another operator's results, which one thread brings and adds"
    if may_be_behind(query.input):
        return "a row may be behind, and whether it is must not depend on how far update threads are"
    return None


def by_model(usual: str, sources: int, cores: int, found: Calibration) -> tuple[str, str]:
    """The design that lets more through by the paper's costs (section 7.3) as measured on this machine, and why.

    Who does which stage is plait's: with TuML on the ring the update thread merges, so the threads that push only add. `usual` is
    kept unless the other one is better by a fifth: figures are of other streams than the user's.
    """
    costs, rates = found.costs, {}
    for name, each in (
        ("tuml_sc", (costs.tuml_input_s, costs.tuml_input_source_s, costs.tuml_output_s, costs.tuml_output_source_s)),
        ("wiml", (costs.wiml_input_s, costs.wiml_input_source_s, costs.wiml_output_s, costs.wiml_output_source_s)),
    ):
        taken = aggregation.Durations(input_s=each[0] + sources * each[1], output_s=each[2] + sources * each[3])
        rates[name] = taken.tuples_per_s(inputs=sources, cores=cores)
    (other,) = rates.keys() - {usual}
    best = other if rates[other] > CLEARLY * rates[usual] else usual
    said = ", ".join(f"{name} {rate / 1e6:.2g} million" for name, rate in rates.items())
    return (
        best,
        f"tuples/s by the model of multiway aggregation, {sources} sources on {cores} cores: {said} ({found.told})",
    )


def unmerged_in(node: Aggregate, schema: pa.Schema | None = None) -> str | None:
    """Why the W-Hive can't serve a query; None if it can. Without a schema: as far as that can be said then."""
    apart = window_record(node).by_source
    if apart is not None:
        return apart
    for name, function in node.compute:
        reason = unmerged(function, schema)
        if reason is not None:
            return f"{name} = {function.describe()} {reason}"
    return None


def refuse(reason: str, query: Aggregate, strategy: str) -> QueryError:
    other = "'tuml_sc'" + (" or 'tuml_mc'" if query.by else "")
    return QueryError(
        f"strategy={strategy!r} for this query: {reason}",
        why="with WiML every source updates windows by itself, and parts are merged when a winset is complete",
        do=f"Use {other}, where tuples come in total order, or 'auto'",
    )
