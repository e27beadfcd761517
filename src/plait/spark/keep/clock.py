"""`idle_after=`: time as rows. Spark's `rate` source gives a row a second, by offsets: seconds that stand in the offset
log before the batch that has them runs, so a batch that is done again counts the same time. No task reads a clock.

A batch counts at most a quarter of `idle_after=` (`arrive.MOST`), whatever its seconds add up to: after a stop, or
behind a slow batch, a source whose rows wait must not be taken for silent before it had a chance to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.plan.layout import Layout


def ticks(spark: Any, streams: Iterable[Stream]) -> Any | None:
    """A row a second; None where no stream asks for it."""
    if all(stream.idle_after_us is None for stream in streams):
        return None
    rate = spark.readStream.format("rate").option("rowsPerSecond", "1").option("numPartitions", "1").load()
    return rate.select("value")


def packed(ticks: Any, layout: Layout) -> Any:
    """Seconds passed as packed rows, one to every cell.

    Ticks are counted by one task of the `rate` source. The rows themselves, their times among them, are not looked at.
    """
    cells = layout.keys

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seconds = sum(batch.num_rows for batch in batches)
        if seconds:
            body = formats.body(formats.Tick(seconds * 1_000_000))
            yield pa.record_batch([list(cells), [body] * len(cells)], schema=formats.PACKED_ROWS)

    return ticks.mapInArrow(rows, formats.PACKED)
