"""Rows dropped as late or behind, for those who do not publish with `write_ordered`: marked in the result, or counted.

Such users read the DataFrame that `on_spark` returned with a sink of their own. What cells dropped would then be nowhere
to be seen: `Plan.results` passes only results on. So either the user asks for the rows (`late_rows=True`, `unpack_both`),
or they are counted in the query's progress and a warning tells of them (`counted`). Held by tests/spark/test_joins.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa

from plait.connectors.encoding import json_rows
from plait.spark import formats
from plait.spark.cell.results import read, shown

#: Of a dropped row, its stream and the row itself as JSON text; NULL in results. Results' columns are NULL in turn.
STREAM, ROW = "_plait_dropped", "_plait_row"
COLUMNS = (pa.field(STREAM, pa.string()), pa.field(ROW, pa.string()))

#: The name under which a query's progress has what cells count (`core.metrics.Counts`), over all streams.
METRIC = "plait"

#: The listener of each session that still lives.
listening: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def unpack_both(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Results, and beside them what was dropped.

    For `mapInArrow`, in tasks. A row has either the result's columns or the two of COLUMNS, and NULLs in the others.
    Reports of cells are passed over.
    """
    whole = pa.schema([*schema, *COLUMNS])

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for kind, body in zip(batch.column("kind").to_pylist(), batch.column("body"), strict=True):
                if kind == formats.PROGRESS:
                    continue
                if kind == formats.RESULTS:
                    table = shown(read(body.as_buffer()), schema).combine_chunks()
                    n = table.num_rows
                    columns = [*table.columns, *(pa.nulls(n, field.type) for field in COLUMNS)]
                else:
                    head, rest = formats.parse(body.as_buffer())
                    table = formats.table(rest).combine_chunks()
                    n = table.num_rows
                    columns = [pa.nulls(n, field.type) for field in schema]
                    columns += [pa.array([head.stream] * n, pa.string()), pa.array(list(json_rows(table)), pa.string())]
                yield from pa.Table.from_arrays(columns, schema=whole).to_batches()

    return unpacked


def counted(raw: Any, streams: list[str], streaming: bool) -> Any:
    """What cells put out, with their counts in the query's progress, and a warning when more rows were dropped.

    On the driver, when the query is planned. A batch DataFrame has no progress, so there the warning comes at once, and
    once. Of a stream, `observe` adds one aggregate to the plan: the counts are summed by Spark while the rows pass,
    without an action of their own.

    Counts in reports are sums since the checkpoint began, and a cell reports in the batches in which it gets something.
    In a batch that brings nothing for an operator its counts are missing from the sum, so the listener heeds a number
    only if it is larger than the last.
    """
    which = ", ".join(map(repr, streams))
    if not streaming:
        warnings.warn(
            f"Late rows of {which} are dropped and not shown here: on_spark(..., late_rows=True) has them in the result",
            stacklevel=5,
        )
        return raw
    from pyspark.sql import functions as F

    _listen(raw.sparkSession)
    told = raw.kind == formats.PROGRESS
    counts = formats.CellReport.counts_of(raw.body)
    sums = [F.coalesce(F.sum(F.when(told, count)), F.lit(0)).alias(name) for name, count in counts.items()]
    return raw.observe(METRIC, *sums)


def _listen(spark: Any) -> None:
    """One listener a session, which warns of rows that are dropped.

    It runs in a thread of PySpark's, for every query of the session. It warns when the number has grown since it last
    looked, so a restart, which counts on from an old number, warns once more. The session keeps it for good; queries that
    ended are forgotten.
    """
    if spark in listening:
        return
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def __init__(self) -> None:
            self.seen: dict[str, int] = {}

        def onQueryStarted(self, event: Any) -> None:
            return

        def onQueryProgress(self, event: Any) -> None:
            metrics = event.progress.observedMetrics.get(METRIC)
            dropped = 0 if metrics is None else metrics.late + metrics.behind
            if dropped > self.seen.get(str(event.progress.id), 0):
                self.seen[str(event.progress.id)] = dropped
                warnings.warn(
                    f"{dropped} rows dropped as late or behind so far: on_spark(..., late_rows=True) has them in the result",
                    stacklevel=1,
                )

        def onQueryIdle(self, event: Any) -> None:
            return

        def onQueryTerminated(self, event: Any) -> None:
            self.seen.pop(str(event.id), None)

    listening[spark] = Listener()
    spark.streams.addListener(listening[spark])
