"""What a bounded run holds does not grow with its data: rows are counted, and the bytes that Arrow has given out."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.connectors.contract import Chunk, Feed, Lane
from plait.threads.bounded import run as bounded

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
CHUNK, SLAB = 2_000, 10_000
NAMES = pa.array([f"a name of some length {k}" for k in range(50)])
QUERIES = {
    "as-of": plait.asof(A, B, by="k", within=500),
    "as-of, nearest": plait.asof(A, B, by="k", within=500, direction="nearest"),
    "band": plait.join(A, B, on=lambda l, r: abs(l.x - r.x) <= 1, within=100),
    "many results": plait.join(A, B, within=3),
}


def feed(rows: int, seed: int) -> Feed:
    """Rows that are made when they are read, a chunk at a time; text is Arrow's own memory."""

    def read() -> Iterator[Chunk]:
        dice = np.random.default_rng(seed)
        for begin in range(0, rows, CHUNK):
            text = NAMES.take(pa.array(dice.integers(0, 50, CHUNK)))
            columns = {"ts": np.arange(begin, begin + CHUNK), "x": dice.integers(0, 100, CHUNK), "k": text}
            yield Chunk(pa.record_batch(columns))

    return Feed(next(read()).batch.schema, (Lane(0, read),))


def peaks(query: plait.Query, rows: int) -> tuple[int, int]:
    """The most rows that were held, and the most bytes, while results were read and thrown away."""
    gc.collect()
    feeds = {name: feed(rows, seed) for seed, name in enumerate("ab")}
    run = bounded.Slabs(query, bounded._bound(query, feeds), feeds, {"workers": 2}, rows=SLAB, few=100)
    before, held, size = pa.total_allocated_bytes(), 0, 0
    for _ in run.batches():
        held = max(held, run.intake.held + run.operator.held)
        size = max(size, pa.total_allocated_bytes() - before)
    return held, size


@pytest.mark.parametrize("name", QUERIES)
def test_it_does_not_grow_with_the_data(name: str) -> None:
    short, long = (peaks(QUERIES[name], rows) for rows in (40_000, 240_000))
    assert long[0] <= SLAB + 4 * CHUNK + 2_000  # a slab, what the last one left, and what is kept from one to the next
    assert long[1] < 2 * short[1]
