"""Window memory is proportional to the window, for any length of run."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from plait.core.join.window import JoinWindow
from plait.core.rows import NumberedRows
from plait.query.condition.predicate import predicate
from plait.query.join import CountWindow, TimeWindow, Window

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int32()), ("s", pa.string())])


def held(window: Window, on: object, *, rows: int, windows: int, index: str = "auto") -> list[int]:
    """Bytes allocated (NumPy's and Python's, as tracemalloc sees them) after each window's worth of rows.

    Text is new in every batch, so an interner that forgets nothing would show; payload is dropped as rows expire.
    """
    bound = predicate(on, ("left", "right"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)  # type: ignore[arg-type]
    join = JoinWindow(bound, SCHEMA, SCHEMA, window, index=index)
    payloads = (NumberedRows(SCHEMA), NumberedRows(SCHEMA))
    random = np.random.default_rng(1)
    batch, sizes, now = rows // 8, [], 0
    try:
        for step in range(8 * windows):
            if step == 8:
                tracemalloc.start()  # not before: compiling under it takes a minute
            tables = []
            for _ in (0, 1):
                text = np.char.add(f"{step}-", random.integers(0, 10**9, batch).astype(str))
                values = random.integers(0, 10 * rows, batch), random.integers(0, 10**6, batch), text
                tables.append(
                    pa.record_batch([pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA)
                )
            ts = now + np.arange(batch)
            now += batch
            side = np.tile(np.array([0, 1], np.uint8), batch)
            pairs = join.process(side, (tables[0], tables[1]), (ts, ts))
            for s, ids in ((0, pairs.left), (1, pairs.right)):
                payloads[s].append(tables[s])
                assert payloads[s].take(ids).num_rows == len(ids)
                payloads[s].expire(join.live_from(s))
            del tables, pairs, side, ts
            if step % 8 == 7 and step > 8:
                gc.collect()
                arrow = sum(payload.nbytes for payload in payloads)
                sizes.append(tracemalloc.get_traced_memory()[0] + arrow)
    finally:
        tracemalloc.stop()
    return sizes


def assert_flat(sizes: list[int]) -> None:
    """From the fourth window on (the first fills it, later ones settle the arrays' sizes) nothing grows."""
    settled = sizes[2:]
    assert max(settled) <= 1.35 * min(settled), sizes
    assert max(sizes[-5:]) <= 1.1 * max(sizes[2:7]), sizes


@pytest.mark.again
def test_twenty_windows_of_time_with_text_keys() -> None:
    assert_flat(held(TimeWindow(1024, 1024), lambda l, r: l.s == r.s, rows=1024, windows=20))


def test_twenty_count_windows_on_a_grid() -> None:
    on = "abs(l.x - r.x) <= 3 AND abs(l.k - r.k) <= 1000"
    assert_flat(held(CountWindow(1024), on, rows=1024, windows=20))


def test_a_window_that_empties_gives_its_memory_back() -> None:
    bound = predicate("l.k = r.k", ("left", "right"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)
    join = JoinWindow(bound, SCHEMA, SCHEMA, TimeWindow(10, 10))
    n = 100_000
    batch = pa.record_batch([pa.array(np.arange(n)), pa.nulls(n, pa.int32()), pa.nulls(n, pa.string())], schema=SCHEMA)
    join.process(np.zeros(n, np.uint8), (batch, batch.slice(0, 0)), (np.zeros(n, np.int64), np.zeros(0, np.int64)))
    full = join.nbytes
    join.advance(1000)
    assert join.segments[0].live == 0
    assert join.nbytes < full / 10
    assert join.live_from(0) == n
