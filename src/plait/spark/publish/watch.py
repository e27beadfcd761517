"""What each micro-batch did, as Spark's StreamingQueryListener tells it, beside what the cells told of it.

Two things are told at different times. `report` is called by the publisher, when a batch's part is written and the batch
is not yet committed. `onQueryProgress` is called by Spark in a thread of its listeners, after the commit. Only the second
knows the size of the state. So reports wait here, by batch number, until Spark tells of the batch. The command uses it
(`cli.spark_engine`).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from plait.core.metrics import Metrics
from plait.spark.publish.collect import BatchReport

#: Called with a batch's number and what the run has told by then.
OnBatch = Callable[[int, Metrics], None]


class Watch(StreamingQueryListener):
    """Pass `report` to `write_ordered`; `on_batch` is then called once a batch, when Spark has committed it.

    Attributes:
        on_batch: What to call, in the listener's thread.
        reports: Reports of batches of which Spark has not told yet.
        ended: Set when a query has terminated. Events come with a delay, so whoever has waited for the query waits for
            this too.
    """

    def __init__(self, on_batch: OnBatch) -> None:
        self.on_batch = on_batch
        self.reports: dict[int, BatchReport] = {}
        self.ended = threading.Event()

    def report(self, report: BatchReport) -> None:
        """Keep a batch's report. Of a batch that is done again the last one counts."""
        self.reports[report.batch] = report

    def onQueryStarted(self, event: Any) -> None:
        self.ended.clear()

    def onQueryProgress(self, event: Any) -> None:
        """A batch is committed: tell of it, with the memory that its state takes."""
        progress = event.progress
        report = self.reports.pop(progress.batchId, None)
        if report is None:
            return  # another query of this session, or a trigger without a batch
        state = sum(operator.memoryUsedBytes for operator in progress.stateOperators)
        self.on_batch(progress.batchId, dataclasses.replace(report.run, state_bytes=state))

    def onQueryIdle(self, event: Any) -> None:
        return

    def onQueryTerminated(self, event: Any) -> None:
        self.ended.set()


@contextmanager
def watching(spark: Any, on_batch: OnBatch) -> Iterator[Watch]:
    """A listener for as long as the block runs."""
    watch = Watch(on_batch)
    spark.streams.addListener(watch)
    try:
        yield watch
    finally:
        spark.streams.removeListener(watch)
