"""Rows by number: whatever their columns, however they were pushed, merged, moved and forgotten."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core.rings import KEEP_COLUMN
from plait.threads.input.payload import EXTRA, Payload

KINDS: dict[str, Any] = {
    "bool": (pa.bool_(), lambda c: c.random() < 0.5),
    "int8": (pa.int8(), lambda c: c.randrange(-128, 128)),
    "float": (pa.float32(), lambda c: c.choice((0.5, -0.0, float("inf")))),
    "time": (pa.timestamp("us", tz="UTC"), lambda c: c.randrange(10**15)),
    "text": (pa.string(), lambda c: "é" * c.randrange(4) + str(c.randrange(100))),
    "bytes": (pa.large_binary(), lambda c: bytes(c.randrange(5))),
    "list": (pa.list_(pa.int64()), lambda c: [c.randrange(9)] * c.randrange(3)),
    "decimal": (pa.decimal128(9, 2), lambda c: c.randrange(10**6)),
}


@pytest.mark.crossed
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_come_back_as_they_were(seed: int, sparse: bool) -> None:
    chance = random.Random(seed)
    schema = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])
    nulls = chance.choice((0.0, 0.0, 0.3))
    payload = Payload(schema, sparse=sparse)
    kept: list[pa.Table] = []
    forgotten = rows = 0
    for push in range(40):
        n = chance.choice((1, 3, 700, 5000))
        columns = [
            pa.array([None if push > 5 and chance.random() < nulls else make(chance) for _ in range(n)], kind)
            for kind, make in KINDS.values()
        ]
        cut = chance.randrange(n)  # a slice: its buffers begin elsewhere
        batch = pa.RecordBatch.from_arrays(columns, schema=schema).slice(cut)
        ts = np.full(n - cut, push, np.int64)
        assert payload.append(batch, ts, push % 3, np.arange(n - cut), 10 * push, push) == rows
        rows += n - cut
        extra = [pa.array(ts), pa.array([push % 3] * (n - cut), pa.int32()), pa.array(np.arange(n - cut))]
        kept.append(pa.Table.from_arrays([*batch.columns, *extra], schema=pa.schema([*schema, *EXTRA])))
        if chance.random() < 0.2:
            payload.expire(push - 3)
            forgotten = max(forgotten, push - 3)
        live = sum(t.num_rows for t in kept[: max(0, forgotten)])
        refs = np.array([chance.randrange(live, rows) for _ in range(50)])
        whole = pa.concat_tables(kept)
        expected = whole.take(pa.array(refs))
        assert payload.take(refs).combine_chunks().equals(expected.combine_chunks())
        assert payload.take(refs, extra=False).combine_chunks().equals(expected.select(schema.names).combine_chunks())
        assert payload.take(refs[:0]).num_rows == 0


def test_some_columns_alone():
    """Nothing travels along, and compiled code is told where the columns lie in the batch that it reads."""
    schema = pa.schema([("a", pa.int64()), ("t", pa.string()), ("b", pa.int32())])
    kept = Payload(schema, only=["t"])
    first = kept.append(
        pa.record_batch([[1, 2], ["x", "yz"], [3, 4]], schema=schema), np.array([5, 6]), 0, np.array([1, 2]), 7, 0
    )
    assert kept.take(np.array([first + 1, first]), extra=False).to_pylist() == [{"t": "yz"}, {"t": "x"}]
    assert kept.all_rings
    assert kept.rings().table[:, KEEP_COLUMN].tolist() == [1]
    assert kept.pushed_ns(np.array([first])).tolist() == [7]


def test_few_rows_stay_that_nobody_needs():
    """Rows go in stretches, which grow as small ones are put together, but not without end."""
    payload = Payload(pa.schema([("x", pa.int64())]))
    batch = pa.record_batch([np.arange(100)], names=["x"])
    for push in range(1500):
        payload.append(batch, np.full(100, push), 0, np.arange(100), 0, 0)
        payload.expire(push - 300)
        assert payload.rows <= 301 * 100 + 8192
