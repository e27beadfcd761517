"""What each micro-batch did, as Spark's StreamingQueryListener tells it, beside what the cells told of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from plait.order import TS_MAX, TS_MIN
from plait.spark.publish.collect import BatchReport


@dataclass(frozen=True)
class MicroBatch:
    """`rows` are those of the streams; `lag_us` is how far the frontier is behind the newest ts."""

    batch: int
    rows: int
    results: int
    frontier: int
    lag_us: int | None
    buffered: int
    state_bytes: int
    seconds: float


class Watch(StreamingQueryListener):
    """Pass `report` to `write_ordered`; `on_batch` is then called once a batch, when Spark has committed it."""

    def __init__(self, on_batch: Callable[[MicroBatch], None]) -> None:
        self.on_batch = on_batch
        self.reports: dict[int, BatchReport] = {}
        self.ended = threading.Event()

    def report(self, report: BatchReport) -> None:
        self.reports[report.batch] = report

    def onQueryStarted(self, event: Any) -> None:
        self.ended.clear()

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        report = self.reports.pop(progress.batchId, None)
        if report is None:
            return  # another query of this session, or a trigger without a batch
        moving = report.largest is not None and TS_MIN <= report.frontier <= TS_MAX
        self.on_batch(
            MicroBatch(
                batch=progress.batchId,
                rows=sum(s.numInputRows for s in progress.sources if not _is_plaits(s.description)),
                results=report.results,
                frontier=report.frontier,
                lag_us=max(0, report.largest - report.frontier) if moving and report.largest is not None else None,
                buffered=report.pending,
                state_bytes=sum(operator.memoryUsedBytes for operator in progress.stateOperators),
                seconds=progress.batchDuration / 1000,
            )
        )

    def onQueryIdle(self, event: Any) -> None:
        return

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.set()


def _is_plaits(source: str) -> bool:
    """The control source and the clock."""
    return source.endswith("/control]") or source.startswith("RateStream")


@contextmanager
def watching(spark: Any, on_batch: Callable[[MicroBatch], None]) -> Iterator[Watch]:
    """A listener for as long as the block runs."""
    watch = Watch(on_batch)
    spark.streams.addListener(watch)
    try:
        yield watch
    finally:
        spark.streams.removeListener(watch)
