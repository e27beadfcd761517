"""What a run on Spark tells besides what any run does (`core.metrics`): what each cell of each operator had to do.

Cells report after each batch (`formats.CellReport`). What they count is everything since the checkpoint began; it is stored with
their state. Where their time went is told batch by batch and added up here, since the query was started or taken up again.

Where it runs: on the driver, in the thread that publishes (`collect`).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from plait.core.metrics import (
    BYTES,
    EACH,
    NAME,
    PUBLISHING,
    RECORDS,
    ROWS,
    SECONDS,
    SHARE,
    SPARK,
    TUPLES,
    WAITING,
    WORKING,
    Counts,
    Mark,
    Metrics,
    OperatorStats,
    PartStats,
    Quantiles,
    SourceStats,
    Unit,
    metric,
    missing,
    shared_out,
    total,
    variation_percent,
)
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.spark import formats


@dataclass(kw_only=True)
class CellStats(PartStats):
    """What one cell tells. Its counts are those of its own work; `rows` of a stream are counted by the first cell that gets any.

    Its fields are in docs/metrics.md.

    Example:
        >>> from plait.spark.publish.stats import CellStats
        >>> CellStats(cell=1, comparisons=40, updates=0).work
        40
    """

    cell: int = metric(NAME, "its number in its operator's grid, row by row from 0 on", filled=(SPARK,))
    pending: int = metric(TUPLES, "tuples, or partial panes, that wait for the frontier", filled=(SPARK,), default=0)
    executor: str = metric(
        NAME,
        "the executor that has worked on it last: its machine, and a mark of its own there",
        filled=(SPARK,),
        default="",
    )
    held: int = metric(
        ROWS, "rows, or partial panes, that the state has: of windows, and those that wait",
        filled=(SPARK,), default=0,
    )  # fmt: skip
    by_stage: dict[str, float] = metric(
        SHARE, "of that time, by stage: see `stages`", filled=(SPARK,), default_factory=dict
    )


@dataclass(kw_only=True)
class ExecutorStats(Counts):
    """What one executor tells: its counts are those of the batches that it has worked on since the query was started or taken up
    again; its cells, and what they hold, are those that it has worked on last.

    Its fields are in docs/metrics.md.

    Example:
        >>> from plait.spark.publish.stats import ExecutorStats
        >>> ExecutorStats(executor="node-1/0", cells=2, copies=40).copies
        40
    """

    executor: str = metric(NAME, "its machine, and what tells it from others there", filled=(SPARK,))
    cells: int = metric(
        Unit("cells"), "cells, of all operators, that it has worked on last", filled=(SPARK,), default=0
    )
    held: int = metric(ROWS, "rows, or partial panes, that the state of these cells has", filled=(SPARK,), default=0)
    held_bytes: int = metric(
        BYTES, "bytes of these cells' chunks of rows, as they are stored", filled=(SPARK,), default=0
    )
    busy_s: float = metric(
        SECONDS, "time in the steps of the cells that it has worked on, added up", filled=(SPARK,), default=0.0
    )


@dataclass(kw_only=True)
class SparkStats(Metrics):
    """What a run on Spark tells: what any run does (`core.metrics`), and what each cell does. `BatchReport.run` is one.

    Example:
        >>> from plait.spark.publish.stats import CellStats, SparkStats
        >>> SparkStats(rows=12, cells=(CellStats(cell=0, copies=7), CellStats(cell=1, copies=5))).cells[1].copies
        5
    """

    copies_per_tuple: float | None = metric(
        EACH, "`copies` over `tuples`: how often a tuple was sent, to cells of all operators; None before there is one",
        filled=(SPARK,), init=False, progress="{} rows",
    )  # fmt: skip
    bytes_per_tuple: float | None = metric(
        EACH, "`shuffled_bytes` over `tuples`", filled=(SPARK,), init=False, progress=" and {} bytes shuffled a tuple",
    )  # fmt: skip
    cells: tuple[CellStats, ...] = metric(RECORDS, "what each cell tells: see below", filled=(SPARK,), default=())
    executors: tuple[ExecutorStats, ...] = metric(
        RECORDS, "what each executor tells: see below", filled=(SPARK,), default=()
    )
    held: int = metric(
        ROWS, "rows, or partial panes, that all cells' state has: of windows, and those that wait; one that is in several cells "
        "is counted in each",
        filled=(SPARK,), default=0,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        self.copies_per_tuple = self.copies / self.tuples if self.tuples else None
        self.bytes_per_tuple = self.shuffled_bytes / self.tuples if self.tuples else None

    @property
    def parts(self) -> tuple[PartStats, ...]:
        """The cells, as what any executor's parts are."""
        return self.cells


for _kind in (CellStats, ExecutorStats, SparkStats):
    for _line in missing(_kind):
        raise ImportError(f"{_line}: see plait.spark.publish.stats")


@dataclass
class Told:
    """What cells have told so far.

    Attributes:
        reports: What each cell of each operator has reported last: one that gets nothing in a batch says nothing.
        spent: Of the same cells the nanoseconds since the start, by stage.
        by_executor: What each has counted since the start, and how many nanoseconds it took.
        query: What the query is called.
        graph: Of each operator its number, what it is, and what it reads.
        marks: Its start, and batches that were done again.
        sources: Of each stream and source what was told of it since the start. Of those that have ended the last ENDED are kept.
        began, started: When this start began, by the clock and by the monotonic one.
    """

    ENDED: ClassVar[int] = 200

    reports: dict[tuple[int, int], formats.CellReport] = field(default_factory=dict)
    spent: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    by_executor: dict[str, tuple[Counts, int]] = field(default_factory=dict)
    graph: Sequence[tuple[int, str, tuple[str, ...]]] = ()
    query: str = ""
    marks: tuple[Mark, ...] = ()
    restarts: int = 0
    replays: int = 0
    caches_missed: int = 0
    sources: dict[tuple[str, Any], SourceStats] = field(default_factory=dict)
    began: float = field(default_factory=time.time)
    started: float = field(default_factory=time.monotonic)
    latency: Latency = field(default_factory=lambda: Latency())
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def batch(self, reports: Iterable[formats.CellReport], began: float, computed: float, done: float) -> None:
        """What cells tell of a batch, which began, had its results and was done then, by the monotonic clock."""
        with self._lock:
            for report in reports:
                self.hear(report)
            frontier, newest = _come_to(self.reports.values())
            self.latency.batch(frontier, newest, began, computed, done)

    def now(self) -> SparkStats | None:
        """What the run tells by now, for any thread; None before the first batch."""
        with self._lock:
            return self.stats(time.monotonic() - self.started) if self.reports else None

    def hear(self, report: formats.CellReport) -> None:
        """A cell's report of a batch."""
        at = (report.operator, report.cell)
        self.reports[at] = report
        self.caches_missed += report.missed
        own = self.spent.setdefault(at, {})
        for stage, ns in report.stages.items():
            own[stage] = own.get(stage, 0) + ns
        if report.executor:
            counts, ns = self.by_executor.get(report.executor, (Counts(), 0))
            self.by_executor[report.executor] = counts + report.batch, ns + sum(report.stages.values())
        for source in report.sources:
            self._hear_source(source)

    def _hear_source(self, told: formats.SourceReport) -> None:
        """A cell other than the first tells of what it has dropped, and nothing else is new in that."""
        at = (told.stream, told.source)
        new = at not in self.sources  # what it has come to by then is the checkpoint's
        own = self.sources.setdefault(at, SourceStats(stream=told.stream, source=told.source))
        if told.rows or (told.progress > own.progress and not new):
            own.heard_at = time.time()
        own.progress, own.newest, own.idle = told.progress, told.newest, told.idle
        own.rows, own.late, own.behind = own.rows + told.rows, own.late + told.late, own.behind + told.behind
        own.ended = told.ended
        if told.ended and sum(each.ended for each in self.sources.values()) > self.ENDED:
            self.sources.pop(next(key for key, each in self.sources.items() if each.ended))

    def stats(self, seconds: float) -> SparkStats:
        executors = tuple(self._executor(name) for name in sorted(self.by_executor))
        found = stats_of(self.reports.values(), self.spent, seconds, executors)
        found.sources = self.sources_now(found)
        found.operators = tuple(self._operator(*node) for node in self.graph)
        found.marks, found.restarts, found.replays = self.marks, self.restarts, self.replays
        found.caches_missed = self.caches_missed
        found.latency_split_ms = self.latency.split()
        return found

    def sources_now(self, run: Metrics) -> tuple[SourceStats, ...]:
        """The sources as they stand at this moment: how long each has been silent follows from the clock.

        An ended stream tells no more of its sources, so those end with it.
        """
        now, only = time.time(), Counter(each.stream for each in self.sources.values() if not each.ended)
        found = []
        for each in list(self.sources.values()):
            alone = only[each.stream] == 1 and not each.ended
            lag = (
                run.newest - each.progress
                if run.newest is not None and BEFORE_ALL < each.progress < AFTER_ALL
                else None
            )
            found.append(
                dataclasses.replace(
                    each, silent_s=max(0.0, now - (each.heard_at or self.began)), holds=run.holder == (each.stream, each.source),
                    waiting=run.waiting.get(each.stream) if alone else None, lag_us=None if lag is None else max(0, lag),
                )
            )  # fmt: skip
        stream, source = run.holder
        if stream is not None and not any(each.holds for each in found):  # one that is not known yet
            silent_s = max(0.0, now - self.began)
            found.append(SourceStats(stream=stream, source=source, silent_s=silent_s, holds=True))
        return tuple(found)

    def _operator(self, number: int, label: str, inputs: tuple[str, ...]) -> OperatorStats:
        own = [report for report in self.reports.values() if report.operator == number]
        return OperatorStats(
            operator=number, label=label, inputs=inputs, frontier=min((r.frontier for r in own), default=BEFORE_ALL),
            rows=sum(r.counts.copies for r in own), results=sum(r.counts.made for r in own),
        )  # fmt: skip

    def _executor(self, name: str) -> ExecutorStats:
        counts, ns = self.by_executor[name]
        own = [report for report in self.reports.values() if report.executor == name]
        return ExecutorStats(
            **vars(counts), executor=name, cells=len(own), held=sum(r.held for r in own),
            held_bytes=sum(r.held_bytes for r in own), busy_s=ns / 1e9,
        )  # fmt: skip


def stats_of(reports: Collection[formats.CellReport], spent: Mapping[tuple[int, int], Mapping[str, int]] | None = None,
             seconds: float = 0.0, executors: tuple[ExecutorStats, ...] = ()) -> SparkStats:  # fmt: skip
    """What cells have reported, as what the run tells.

    The frontier is the least of all operators' cells, and the holder is whoever holds that one. Closings, which have numbers
    below 0, are no cells: their counts are in the sum alone.
    """
    frontier, newest = _come_to(reports)
    holders = (r.holder for r in reports if r.frontier == frontier and r.holder[0] is not None)
    cells = sorted((r for r in reports if r.cell >= 0), key=lambda r: (r.operator, r.cell))
    of_cells = {(r.operator, r.cell): dict((spent or {}).get((r.operator, r.cell), {})) for r in cells}
    stages = {stage: sum(own.get(stage, 0) for own in of_cells.values()) for own in of_cells.values() for stage in own}
    operators = {r.operator for r in cells}
    return SparkStats.of(
        total(report.counts for report in reports),
        frontier=frontier,
        newest=newest,
        holder=next(holders, (None, None)),
        waiting=_added([report.waiting for report in reports]),
        pending=sum(report.pending for report in reports),
        seconds=seconds,
        balance_cv_percent=max(
            (variation_percent([r.counts.work for r in cells if r.operator == operator]) for operator in operators),
            default=0.0,
        ),
        stages=_shares(stages),
        executors=executors,
        held=sum(report.held for report in reports),
        cells=shared_out([
            CellStats(
                **vars(r.counts), operator=r.operator, cell=r.cell, pending=r.pending, executor=r.executor, held=r.held,
                held_bytes=r.held_bytes,
                busy_s=sum(of_cells[r.operator, r.cell].values()) / 1e9, by_stage=_shares(of_cells[r.operator, r.cell]),
            )
            for r in cells
        ]),
    )  # fmt: skip


def _come_to(reports: Collection[formats.CellReport]) -> tuple[int, int | None]:
    """The frontier, which is the least of all operators' cells, and the newest ts."""
    newest = max((report.newest for report in reports if report.newest is not None), default=None)
    return min((report.frontier for report in reports), default=BEFORE_ALL), newest


def _added(found: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Numbers by stream, of all cells."""
    sums: dict[str, int] = {}
    for each in found:
        for stream, count in each.items():
            sums[stream] = sums.get(stream, 0) + count
    return sums


class Latency:
    """Where the time of results goes, by micro-batches: all there is to measure by on the driver.

    A ts waits for the frontier from the batch that brought it, as the newest by then, to the one in which the frontier passed it.
    """

    LATEST: ClassVar[int] = 500

    def __init__(self) -> None:
        self._came: deque[tuple[int, float]] = deque(maxlen=self.LATEST)  # the newest ts, and when its batch began
        self._ms: dict[str, deque[float]] = {name: deque(maxlen=self.LATEST) for name in (WAITING, WORKING, PUBLISHING)}

    def batch(self, frontier: int, newest: int | None, began: float, computed: float, done: float) -> None:
        """A batch began, had its results and had them published at these seconds of one clock."""
        self._ms[WORKING].append((computed - began) * 1e3)
        self._ms[PUBLISHING].append((done - computed) * 1e3)
        if newest is not None and (not self._came or newest > self._came[-1][0]):
            self._came.append((newest, began))
        while self._came and self._came[0][0] < frontier:
            self._ms[WAITING].append((began - self._came.popleft()[1]) * 1e3)

    def split(self) -> dict[str, Quantiles]:
        """As `latency_split_ms` has it."""
        return {name: _quantiles(list(ms)) for name, ms in self._ms.items() if ms}


def _quantiles(ms: list[float]) -> Quantiles:
    p50, p99 = (float(each) for each in np.percentile(ms, (50, 99)))
    return Quantiles(p50, p99, max(ms), len(ms))


def _shares(spent: Mapping[str, int]) -> dict[str, float]:
    total_ns = max(sum(spent.values()), 1)
    return {stage: ns / total_ns for stage, ns in spent.items()}
