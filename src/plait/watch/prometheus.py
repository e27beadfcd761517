"""What a run tells in Prometheus' text format, under the names of `core.metrics`, with units as Prometheus has them.

A name is made of what has it and of the metric's own name, whose unit gives way to Prometheus' base unit: `lag_us` of a source
is `plait_source_lag_seconds`, `held_bytes` of a cell `plait_part_held_bytes`. Counts end with `_total`. Labels: `query`, and
where they apply `stream`, `source`, `operator`, and `worker` or `cell`. So a board is the same for threads and for Spark.

The text is version 0.0.4; names that came with data stand in labels alone, escaped as that has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from plait.core import metrics
from plait.core.held import KINDS, Reason
from plait.core.metrics import COUNTED, Entry, Metrics, OperatorStats, PartStats, SourceStats, Unit, entries
from plait.order import TS_MAX, TS_MIN

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

#: Sources and parts of which there is a line each: more of them would be too many series for anybody.
MOST_SERIES: Final = 1000

#: Of a unit: the ending of names that Prometheus wants, those of ours that it takes the place of, what values are multiplied by.
_UNITS: Final[dict[Unit, tuple[str, tuple[str, ...], float]]] = {
    metrics.MICROSECONDS: ("seconds", ("_us",), 1e-6),
    metrics.MILLISECONDS: ("seconds", ("_ms",), 1e-3),
    metrics.SECONDS: ("seconds", ("_s", "seconds"), 1.0),
    metrics.MOMENT: ("timestamp_seconds", (), 1e-6),
    metrics.CLOCK: ("timestamp_seconds", ("_at",), 1.0),
    metrics.BYTES: ("bytes", ("_bytes",), 1.0),
    metrics.PERCENT: ("ratio", ("_percent",), 0.01),
    metrics.SHARE: ("ratio", (), 1.0),
}
#: Numbers that only rise, beside those that are counted.
_RISING: Final = frozenset(
    {"busy_s", "rows", "results", "late", "behind", "tuples", "restarts", "replays", "caches_missed"}
)
_NUMBERS: Final = frozenset({metrics.NAME, metrics.RECORDS})
#: Fields that label a line, or that follow from others for whoever has these.
_NO_NUMBER: Final = frozenset({"stream", "source", "operator", "worker", "cell", "executor", "tuples_per_s", "comparisons_per_s",
                               "copies_by_input", "strategy", "index", "label", "inputs", "by_stage", "latency_from_push_ms",
                               "latency_from_ready_ms", "stage_latency_ms", "latency_split_ms", "memory", "threads_busy_s",
                               "threads_cpu_s"})  # fmt: skip


@dataclass
class Family:
    """A metric and its lines."""

    name: str
    kind: str  # "counter" or "gauge"
    help: str
    lines: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def text(self) -> Iterator[str]:
        yield f"# HELP {self.name} {_escaped(self.help)}\n"
        yield f"# TYPE {self.name} {self.kind}\n"
        for labels, value in self.lines:
            within = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{within}}} {_number(value)}\n"


def text(run: Metrics, reason: Reason, query: str, executor: str) -> str:
    """All of it."""
    return "".join(line for family in families(run, reason, query, executor) for line in family.text())


def families(run: Metrics, reason: Reason, query: str, executor: str) -> list[Family]:
    """What there is to tell of a run: of what its executor does not fill nothing is said."""
    base = {"query": query}
    found = _Found(executor)
    found.add("plait", run, base)
    for source in _most(run.sources):
        whose = {"stream": source.stream, "source": "" if source.source is None else str(source.source)}
        found.add("plait_source", source, base | whose)
    for operator in run.operators:
        found.add("plait_operator", operator, base | {"operator": str(operator.operator)})
    for part in run.parts[:MOST_SERIES]:
        which = {name: str(vars(part)[name]) for name in ("worker", "cell") if name in vars(part)}
        found.add("plait_part", part, base | {"operator": str(part.operator)} | which)
    latency = Family("plait_latency_seconds", "gauge", entries(Metrics)["latency_split_ms"].meaning)
    for stage, each in run.latency_split_ms.items():
        for quantile, ms in (("0.5", each.p50), ("0.99", each.p99), ("1", each.max)):
            latency.lines.append((base | {"stage": stage, "quantile": quantile}, ms / 1e3))
    why = Family("plait_held", "gauge", "1 for what is said of why results wait, 0 for what is not")
    why.lines += [(base | {"kind": kind}, float(kind == reason.kind)) for kind in KINDS]
    return [*found.families.values(), latency, why]


def names() -> dict[str, str]:
    """Every name that a run of any executor may tell, with its kind: what a board may ask for."""
    found = {"plait_latency_seconds": "gauge", "plait_held": "gauge"}
    for prefix, kinds in (("plait", _runs()), ("plait_source", [SourceStats]), ("plait_operator", [OperatorStats]),
                          ("plait_part", _parts())):  # fmt: skip
        for kind in kinds:
            found |= {
                named(prefix, name, entry): _kind(name) for name, entry in entries(kind).items() if _told(name, entry)
            }
    return found


def _runs() -> list[type]:
    return [Metrics, *_below(Metrics)]


def _parts() -> list[type]:
    return [PartStats, *_below(PartStats)]


def _below(kind: type) -> list[type]:
    own: list[type] = type.__subclasses__(kind)
    return [each for one in own for each in (one, *_below(one))]


def named(prefix: str, name: str, entry: Entry) -> str:
    """A metric's name as Prometheus has it."""
    unit, endings, _ = _UNITS.get(entry.unit, ("", (), 1.0))
    bare = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name).strip("_")
    parts = [prefix, bare or "run", *([unit] if unit else [])]
    return "_".join(parts) + ("_total" if _kind(name) == "counter" else "")


def _kind(name: str) -> str:
    return "counter" if name in COUNTED or name in _RISING else "gauge"


def _told(name: str, entry: Entry) -> bool:
    return entry.unit not in _NUMBERS and name not in _NO_NUMBER


class _Found:
    """The families so far, by name."""

    def __init__(self, executor: str) -> None:
        self._executor = executor
        self.families: dict[str, Family] = {}

    def add(self, prefix: str, record: Any, labels: dict[str, str]) -> None:
        """The numbers of a record."""
        own: dict[str, Any] = vars(record)
        for name, entry in entries(type(record)).items():
            value = own[name]
            if value is None or isinstance(value, str) or not _told(name, entry) or self._executor not in entry.filled:
                continue
            by = "stream" if entry.by_stream else "stage"
            each = [({by: str(key)}, one) for key, one in value.items()] if isinstance(value, dict) else [({}, value)]
            scale = _UNITS.get(entry.unit, ("", (), 1.0))[2]
            lines = [(labels | more, one * scale) for more, one in each if _is_number(entry, one)]
            if lines:
                full = named(prefix, name, entry)
                self.families.setdefault(full, Family(full, _kind(name), entry.meaning)).lines.extend(lines)


def _is_number(entry: Entry, value: Any) -> bool:
    """Before all, and after all, is no moment."""
    return entry.unit is not metrics.MOMENT or TS_MIN <= value <= TS_MAX


def _most(sources: Iterable[SourceStats]) -> list[SourceStats]:
    """Those that have not ended, the furthest behind first."""
    return sorted((each for each in sources if not each.ended), key=lambda each: each.progress)[:MOST_SERIES]


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
