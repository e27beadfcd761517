"""The aggregation paper's studies run, small: what they vary is in their rows, contenders agree, and what is cut is whole."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import LateError
from plait_bench import aggregate_pushes
from plait_bench import aggregate_queries as paper
from plait_bench import aggregate_studies as studies
from plait_bench.aggregate_runs import cut, on_threads


@given(st.lists(st.lists(st.integers(-50, 50), min_size=1, max_size=30), min_size=1, max_size=4), st.integers(1, 12))
def test_pieces_are_all_of_every_source_and_of_one_stretch_of_time(times, piece):
    sources = [pa.record_batch({"ts": np.sort(np.array(each, np.int64))}) for each in times]
    pieces = cut(sources, piece)
    for k, source in enumerate(sources):
        assert pa.Table.from_batches([parts[k] for parts in pieces]) == pa.Table.from_batches([source])
    spans = [[each.column(0).to_pylist() for each in parts if each.num_rows] for parts in pieces]
    last = -100
    for span in filter(None, spans):
        assert min(map(min, span)) > last
        last = max(map(max, span))


def test_a_stream_is_longer_than_its_windows_and_measured_after_two_of_them():
    query = paper.QUERIES["W-OI"]
    data = paper.sources(query.data, 2, 2_000, paper.WINDOWS * query.size_s)
    times = np.concatenate([np.asarray(source.column(0)) for source in data])
    assert np.ptp(times) > 9 * query.size_s * 1_000_000
    whole = paper.once(query, data, "wiml")
    warm = paper.once(query, data, "wiml", warm=paper.WARM)
    assert warm.table == whole.table
    assert 0.7 * whole.tuples < warm.tuples < 0.9 * whole.tuples
    assert warm.push_ms.p50 >= warm.ready_ms.p50


def test_a_rate_is_kept():
    query = paper.QUERIES["k-OI"]
    data = paper.sources(query.data, 2, 2_000, 60)
    made = paper.once(query, data, "wiml", rate=10_000.0, piece=20)
    assert made.seconds > 0.19, "2,000 tuples take a fifth of a second at that rate, less the last push"


def test_latency_by_rate():
    made = studies.rates(quick=True, names=("k-OI",), inputs=2, per_second=20, seconds=0.05, steps=(0.5,))
    assert {row["design"] for row in made["rows"]} == set(paper.QUERIES["k-OI"].designs)
    assert all(row["push_p50_ms"] >= row["ready_p50_ms"] > 0 and row["rate"] > 0 for row in made["rows"])
    assert "tuml_sc, T-Gate" in {row["design"] for row in made["rows"]}


def test_by_update_threads():
    made = studies.workers(names=("k-OS",), inputs=(2,), numbers=(1, 3), tuples=2_000, times=1)
    assert [row["threads"] for row in made["rows"]] == [1, 3]
    assert list(made["ratios"]) == ["tuml_mc_3_vs_1_k_OS_2"]


def test_by_batches():
    made = studies.batches(names=("k-OI",), inputs=2, sizes=(16, 512), tuples=2_000, times=1)
    assert [(row["design"], row["batch"]) for row in made["rows"]] == [
        ("wiml", 16), ("wiml", 512), ("tuml_sc", 16), ("tuml_sc", 512)
    ]  # fmt: skip


def test_a_push_that_fails_is_what_is_told():
    query = paper.QUERIES["k-OI"].query(2)
    good, bad = paper.sources("readings", 2, 200, 60)
    broken = bad.set_column(0, "ts", bad.column(0).take(pa.array(np.arange(bad.num_rows)[::-1])))
    with pytest.raises(LateError):
        on_threads(query, [good, broken], piece=20, strategy="wiml")


def test_what_a_push_costs():
    rows = aggregate_pushes.pushes(quick=True, designs=("wiml",))
    assert [(row["rows_a_push"], row["inputs"]) for row in rows] == [
        (size, sources) for size, _ in aggregate_pushes.ROWS for sources in aggregate_pushes.SOURCES
    ]
    assert all(row["push_us"] > 0 and row["process_us"] > 0 for row in rows)
    assert list(aggregate_pushes.ratios(rows)) == ["wiml_push128_20_sources_vs_1"]


def test_results_that_are_dropped_are_counted():
    query = paper.QUERIES["k-OI"]
    data = paper.sources(query.data, 2, 2_000, 60)
    kept, dropped = (paper.once(query, data, "wiml", keep=keep) for keep in (True, False))
    assert kept.table.num_rows == kept.results == dropped.results
    assert dropped.table.num_rows == 0
