"""What a run tells, as JSON has it: what the page, `plait top` and scripts are given.

Every number comes with its text, in its unit, and `meanings` says what each is: both are `core.metrics`' words. Names that came
with data are spelled such that no terminal and no log stumbles over them (`core.held.printable`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

from plait.core.held import clock, printable, span
from plait.core.metrics import Entry, Mark, Metrics, OperatorStats, PartStats, Quantiles, SourceStats, amount, entries
from plait.order import AFTER_ALL
from plait.watch.history import COLUMNS
from plait.watch.watched import Watched

#: Of sources those that are furthest behind are shown, and of workers or cells the busiest.
MOST_SOURCES: Final = 200
MOST_PARTS: Final = 256
MOST_MARKS: Final = 100

#: Of a run's numbers, those that are no part of what stands elsewhere on the page.
_ELSEWHERE: Final = frozenset(
    {"frontier", "newest", "holder", "phase", "sources", "operators", "marks", "latency_split_ms", "workers", "cells",
     "executors", "changes", "stage_latency_ms", "latency_from_push_ms", "latency_from_ready_ms", "stages", "index", "memory",
     "threads_busy_s", "threads_cpu_s", "copies_by_input"}
)  # fmt: skip


def snapshot(watched: Watched, run: Metrics, at: float) -> dict[str, Any]:
    """All there is to show of one moment."""
    found = watched.reason(run)
    return {
        "title": printable(watched.title),
        "executor": watched.executor,
        "at": round(at, 3),
        "phase": run.phase,
        "reason": {
            "kind": found.kind,
            "words": found.words,
            "remedies": [{"words": each.words, "copy": each.copy} for each in found.remedies],
        },
        "frontier": clock(run.frontier, run.newest),
        "newest": None if run.newest is None else clock(run.newest, run.frontier),
        "numbers": _numbers(run),
        "sources": [_source(each, run) for each in _by_progress(run.sources)[:MOST_SOURCES]],
        "sources_in_all": len(run.sources),
        "operators": [_operator(each, run) for each in run.operators],
        "parts": [_part(each) for each in sorted(run.parts, key=_place)[:MOST_PARTS]],
        "parts_in_all": len(run.parts),
        "latency": {name: _quantiles(each) for name, each in run.latency_split_ms.items()},
        "stages": {name: round(share, 4) for name, share in run.stages.items()},
        "marks": [_mark(each) for each in run.marks[-MOST_MARKS:]],
    }


def meanings(run: Metrics) -> dict[str, dict[str, str]]:
    """By kind of record and name, what each number says: told once, since it never changes."""
    kinds = {"run": type(run), "source": SourceStats, "operator": OperatorStats}
    if run.parts:
        kinds["part"] = type(run.parts[0])
    told = {kind: {name: _said(entry) for name, entry in entries(record).items()} for kind, record in kinds.items()}
    return told | {"history": dict(COLUMNS)}


def _said(entry: Entry) -> str:
    return f"{entry.meaning} ({entry.unit.name})"


def _numbers(run: Metrics) -> list[dict[str, Any]]:
    """Counts and measures of the whole run, as they read; what is 0, or not told, is left out."""
    own, found = vars(run), []
    for name, entry in entries(type(run)).items():
        value = own[name]
        if name in _ELSEWHERE or value is None or not amount(value):
            continue
        text = entry.unit.text(amount(value))
        by = (
            [{"name": printable(key), "text": entry.unit.text(count)} for key, count in value.items()]
            if entry.by_stream
            else []
        )
        found.append({"name": name, "text": text, "by": by})
    return found


def _by_progress(sources: Iterable[SourceStats]) -> list[SourceStats]:
    """Those that hold others back first; those that have ended last."""
    return sorted(sources, key=lambda each: (each.ended, each.idle, not each.holds, each.progress, str(each.source)))


def _source(each: SourceStats, run: Metrics) -> dict[str, Any]:
    return {
        "stream": printable(each.stream),
        "name": None if each.source is None else printable(each.source),
        "progress": "ended" if each.progress >= AFTER_ALL else clock(each.progress, run.newest),
        "newest": None if each.newest is None else clock(each.newest, run.newest),
        "lag_s": None if each.lag_us is None else each.lag_us / 1e6,
        "lag": None if each.lag_us is None else span(each.lag_us / 1e6),
        "heard_at": None if each.heard_at is None else round(each.heard_at, 3),
        "silent_s": round(each.silent_s, 1),
        "silent": span(each.silent_s),
        "rows": each.rows,
        "waiting": each.waiting,
        "late": each.late,
        "behind": each.behind,
        "idle": each.idle,
        "ended": each.ended,
        "holds": each.holds,
    }


def _operator(each: OperatorStats, run: Metrics) -> dict[str, Any]:
    return {
        "operator": each.operator,
        "label": printable(each.label),
        "inputs": [printable(name) for name in each.inputs],
        "frontier": clock(each.frontier, run.newest),
        "rows": each.rows,
        "results": each.results,
    }


def _place(part: PartStats) -> tuple[int, float]:
    return part.operator, -part.busy_s


def _part(each: PartStats) -> dict[str, Any]:
    own = vars(each)
    number = own.get("worker", own.get("cell", 0))
    return {
        "operator": each.operator,
        "part": number,
        "kind": "worker" if "worker" in own else "cell",
        "executor": own.get("executor", ""),
        "rows": own.get("tuples", each.copies),
        "work": each.work,
        "comparisons": each.comparisons,
        "updates": each.updates,
        "calls": each.calls,
        "busy_s": round(each.busy_s, 3),
        "share": round(each.share, 4),
        "held_bytes": each.held_bytes,
        "doing": own.get("waiting_for", ""),
    }


def _quantiles(each: Quantiles) -> dict[str, float | int | None]:
    told = {"p50": each.p50, "p99": each.p99, "max": each.max}
    return {name: None if math.isnan(ms) else round(ms, 3) for name, ms in told.items()} | {"samples": each.samples}


def _mark(each: Mark) -> dict[str, Any]:
    return {"at": round(each.at, 3), "kind": each.kind, "words": printable(each.words, 500)}
