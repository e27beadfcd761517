"""The benchmark's contenders give the right sequence: each run checks count and an order-sensitive checksum itself."""

from __future__ import annotations

import pytest

from plait_bench import gate as bench
from plait_bench.gate_latency import latencies


@pytest.mark.parametrize(
    ("sources", "readers", "batch"),
    [
        pytest.param(1, 1, 7, marks=pytest.mark.slow),
        (2, 1, 64),
        pytest.param(5, 2, 1, marks=pytest.mark.slow),
        (9, 2, 100),
    ],
)
def test_every_contender_sorts(sources, readers, batch):
    rows = bench.measure(sources, readers, batch, 9_000, runs=1)
    assert {row["contender"] for row in rows} == {contender.name for contender in bench.CONTENDERS}
    assert sum(row["best"] for row in rows) == 1


def test_every_contender_passes_what_is_due_at_a_rate():
    rows = latencies(3, 8, 1e6, 0.003, runs=1)
    assert {row["contender"] for row in rows} == {contender.name for contender in bench.CONTENDERS}
    assert all(row["mean_ms"] > 0 for row in rows), "no tuple is read before it is due"


def test_the_ratios_have_their_names():
    rows = [
        {"contender": name, "sources": sources, "readers": 1, "batch": 1024, "tuples_per_s": speed * 1e6}
        for name, sources, speed in (("skiplist", 2, 20.0), ("skiplist", 8, 15.0), ("ring", 2, 80.0))
    ]
    assert bench._ratios(rows) == {
        "ring_vs_skiplist": 4.0,
        "skiplist_mtuples_per_s": 20.0,
        "ring_mtuples_per_s": 80.0,
        "skiplist_8_vs_2_sources": 0.75,
    }
