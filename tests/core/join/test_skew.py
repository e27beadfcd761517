"""Skewed values cost what a scan costs: one hot key, one crowded box, a band wider than the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core.join.window import JoinWindow
from plait.query.condition.predicate import predicate
from plait.query.join import CountWindow

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

    def enter(self, n: int, *, probe: bool = True) -> None:
        batches = rows(self.random, n), rows(self.random, n)
        side, ts = np.tile(np.array([0, 1], np.uint8), n), np.zeros(n, np.int64)
        self.join.process(side, batches, (ts, ts), probe=probe)


@pytest.mark.parametrize(
    ("on", "usual"),
    [
        (lambda l, r: (l.k == r.k) & (l.x > r.x + 10), "hash"),
        (lambda l, r: (abs(l.x - r.x) <= 10) & (abs(l.y - r.y) <= 10) & (l.k * r.k == 3), "grid"),
        (lambda l, r: (abs(l.x - r.x) <= 10**6) & (l.k * r.k == 3), "grid"),
        (lambda l, r: (l.x <= r.x + 10) & (l.k * r.k == 3), "sorted"),
    ],
    ids=["hot key", "one box", "band wider than the data", "inequality that always holds"],
)
def test_skew_is_seen_and_the_scan_takes_over(on: Any, usual: str) -> None:
    auto = Steady(on, "auto")
    assert auto.join.choices[0].kind == usual
    served = []
    for _ in range(24):
        auto.enter(BATCH)
        served += auto.join.used
    # Now and then the index is tried again, in case the values have changed.
    assert served.count("scan") >= 0.8 * len(served), served
