"""Seeded rows in blocks: any block of any source by itself, from (seed, stream, source, block) alone.

Every block has a generator of its own, `PCG64` over a `SeedSequence` with that quadruple, so memory is that of a
block and a batch at any size of the workload, and neither the size of batches nor which source is read first can change
a row. NumPy promises the bits of PCG64 for good, and those of `integers` and `random` within a major version.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from plait.connectors.contract import Chunk, Lane
from plait.connectors.synthetic.rates import Ints, Rate, second_of

BLOCK_ROWS: Final = 8_192
#: 2024-01-01T00:00:00Z. Not 0: Spark's watermark starts there and would lose the first tuples.
EPOCH_US: Final = 1_704_067_200_000_000
TS: Final = pa.timestamp("us", tz="UTC")

#: Columns other than `ts` and the source, for the given times.
Make = Callable[[np.random.Generator, Ints], list[pa.Array]]


@dataclass(frozen=True)
class Source:
    """One physical stream: what it sends, how much of it, when, and under which name."""

    stream: str
    name: str
    rate: Rate
    rows: int
    seed: int
    schema: pa.Schema
    make: Make
    #: Whether the name stands in the rows, as the last column.
    named: bool

    def block(self, number: int) -> pa.RecordBatch:
        """Rows `number * BLOCK_ROWS` and on."""
        start = number * BLOCK_ROWS
        count = min(BLOCK_ROWS, self.rows - start)
        key = (zlib.crc32(f"{self.stream}/{self.name}".encode()), number)
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=key)))
        # Always drawn for a whole block: the last rows of a shorter workload are those of a longer one.
        times = self._times(start, random)
        columns = [pa.array(times, pa.int64()).cast(TS), *self.make(random, times)]
        if self.named:
            columns.append(pa.array([self.name], pa.string()).take(pa.array(np.zeros(BLOCK_ROWS, np.int64))))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema).slice(0, count)

    def _times(self, start: int, random: np.random.Generator) -> Ints:
        """Each second is cut into as many slots as it has tuples, and each tuple falls somewhere into its slot."""
        rows = np.arange(start, start + BLOCK_ROWS)
        first = second_of(self.rate, start)
        edges = self.rate.before(np.arange(first, second_of(self.rate, start + BLOCK_ROWS - 1) + 2))
        second = np.searchsorted(edges, rows, side="right") - 1
        slot, slots = rows - edges[second], edges[second + 1] - edges[second]
        low, high = slot * 1_000_000 // slots, (slot + 1) * 1_000_000 // slots
        within = low + (random.random(BLOCK_ROWS) * (high - low)).astype(np.int64)
        times: Ints = EPOCH_US + (first + second) * 1_000_000 + within
        return times

    def lane(self, batch_rows: int) -> Lane:
        def read() -> Iterator[Chunk]:
            row = 0
            blocks = (self.block(number) for number in range(-(-self.rows // BLOCK_ROWS)))
            for batch in recut(blocks, batch_rows):
                yield Chunk(batch, f"source {self.name!r}", row)
                row += batch.num_rows

        return Lane(self.name if self.named else 0, read)


def recut(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of `rows`, the last one shorter; holds no more than one of each kind."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count < rows:
            continue
        whole = _joined(held)
        cut = count - count % rows
        for start in range(0, cut, rows):
            yield whole.slice(start, rows)
        held, count = [whole.slice(cut)], count - cut
    if count:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
