"""Skewed values cost what a scan costs: one hot key, one crowded cell, a band wider than the data."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.query.join import CountWindow
from plait.query.predicate import predicate
from plait.windows.segments_join import JoinWindow

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int32()), ("y", pa.float32())])
SIZE, BATCH = 60_000, 256


def rows(random: np.random.Generator, n: int) -> pa.RecordBatch:
    values = np.full(n, 7), 5000 + random.integers(0, 5, n), 5000 + random.random(n)
    return pa.record_batch([pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)], schema=SCHEMA)


class Steady:
    def __init__(self, on: Any, index: str) -> None:
        bound = predicate(on, ("left", "right"), {}).bind(SCHEMA, SCHEMA)
        self.join = JoinWindow(bound, SCHEMA, SCHEMA, CountWindow(SIZE), index=index)
        self.random = np.random.default_rng(1)
        self.enter(SIZE, probe=False)
        for _ in range(4):
            self.enter(BATCH)

    def enter(self, n: int, *, probe: bool = True) -> float:
        batches = rows(self.random, n), rows(self.random, n)
        side, ts = np.tile(np.array([0, 1], np.uint8), n), np.zeros(n, np.int64)
        begin = time.process_time()
        self.join.process(side, batches, (ts, ts), probe=probe)
        return time.process_time() - begin


@pytest.mark.parametrize(
    ("on", "usual"),
    [
        (lambda l, r: (l.k == r.k) & (l.x > r.x + 10), "hash"),
        (lambda l, r: (abs(l.x - r.x) <= 10) & (abs(l.y - r.y) <= 10) & (l.k * r.k == 3), "grid"),
        (lambda l, r: (abs(l.x - r.x) <= 10**6) & (l.k * r.k == 3), "grid"),
        (lambda l, r: (l.x <= r.x + 10) & (l.k * r.k == 3), "sorted"),
    ],
    ids=["hot key", "one cell", "band wider than the data", "inequality that always holds"],
)
def test_skew_costs_no_more_than_a_scan(on: Any, usual: str) -> None:
    scan, auto = Steady(on, "scan"), Steady(on, "auto")
    assert auto.join.choices[0].kind == usual
    # In turns, so that a busy moment hits both; processor time, so that waiting does not count.
    spent = [sum(pair) for pair in zip(*((scan.enter(BATCH), auto.enter(BATCH)) for _ in range(24)), strict=True)]
    assert spent[1] < 1.5 * spent[0], spent
