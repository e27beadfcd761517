"""What a run on Spark tells besides what any run does (`core.metrics`): what each cell of each operator had to do.

Cells report after each batch (`formats.CellReport`). What they count is everything since the checkpoint began; it is stored with
their state. Where their time went is told batch by batch and added up here, since the query was started or taken up again.

Where it runs: on the driver, in the thread that publishes (`collect`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from plait.core.metrics import (
    BYTES,
    EACH,
    NAME,
    RECORDS,
    ROWS,
    SECONDS,
    SHARE,
    SPARK,
    TUPLES,
    Counts,
    Metrics,
    Unit,
    metric,
    missing,
    total,
    variation_percent,
)
from plait.spark import formats


@dataclass(kw_only=True)
class CellStats(Counts):
    """What one cell tells. Its counts are those of its own work; `rows` of a stream are counted by the first cell that gets any.

    Its fields are in docs/metrics.md.

    Example:
        >>> from plait.spark.publish.stats import CellStats
        >>> CellStats(cell=1, comparisons=40, updates=0).work
        40
    """

    operator: int = metric(NAME, "its operator's number in the query, the last one's is 0", filled=(SPARK,), default=0)
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
    held_bytes: int = metric(
        BYTES, "bytes of the state's chunks of rows, as they are stored; those that an earlier plait has stored are not in it",
        filled=(SPARK,), default=0,
    )  # fmt: skip
    busy_s: float = metric(
        SECONDS, "time in its steps: reading, storing, comparing and emitting, with what these wait for in the middle; "
        "waiting for tuples is not in it",
        filled=(SPARK,), default=0.0,
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
    """

    reports: dict[tuple[int, int], formats.CellReport] = field(default_factory=dict)
    spent: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    by_executor: dict[str, tuple[Counts, int]] = field(default_factory=dict)

    def hear(self, report: formats.CellReport) -> None:
        """A cell's report of a batch."""
        at = (report.operator, report.cell)
        self.reports[at] = report
        own = self.spent.setdefault(at, {})
        for stage, ns in report.stages.items():
            own[stage] = own.get(stage, 0) + ns
        if report.executor:
            counts, ns = self.by_executor.get(report.executor, (Counts(), 0))
            self.by_executor[report.executor] = counts + report.batch, ns + sum(report.stages.values())

    def stats(self, seconds: float) -> SparkStats:
        executors = tuple(self._executor(name) for name in sorted(self.by_executor))
        return stats_of(self.reports.values(), self.spent, seconds, executors)

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
    frontier = min(report.frontier for report in reports)
    holders = (r.holder for r in reports if r.frontier == frontier and r.holder[0] is not None)
    cells = sorted((r for r in reports if r.cell >= 0), key=lambda r: (r.operator, r.cell))
    of_cells = {(r.operator, r.cell): dict((spent or {}).get((r.operator, r.cell), {})) for r in cells}
    stages = {stage: sum(own.get(stage, 0) for own in of_cells.values()) for own in of_cells.values() for stage in own}
    operators = {r.operator for r in cells}
    return SparkStats.of(
        total(report.counts for report in reports),
        frontier=frontier,
        newest=max((report.newest for report in reports if report.newest is not None), default=None),
        holder=next(holders, (None, None)),
        pending=sum(report.pending for report in reports),
        seconds=seconds,
        balance_cv_percent=max(
            (variation_percent([r.counts.work for r in cells if r.operator == operator]) for operator in operators),
            default=0.0,
        ),
        stages=_shares(stages),
        executors=executors,
        held=sum(report.held for report in reports),
        cells=tuple(
            CellStats(
                **vars(r.counts), operator=r.operator, cell=r.cell, pending=r.pending, executor=r.executor, held=r.held,
                held_bytes=r.held_bytes,
                busy_s=sum(of_cells[r.operator, r.cell].values()) / 1e9, by_stage=_shares(of_cells[r.operator, r.cell]),
            )
            for r in cells
        ),
    )  # fmt: skip


def _shares(spent: Mapping[str, int]) -> dict[str, float]:
    total_ns = max(sum(spent.values()), 1)
    return {stage: ns / total_ns for stage, ns in spent.items()}
