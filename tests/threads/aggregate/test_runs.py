"""Runs of aggregates on threads: longer streams pushed by several threads, ends, errors, memory, and what is refused."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.reference.judge import assert_same

import plait
from plait import DataError, PendingError, QueryError, RunError
from plait_bench import aggregate as bench
from plait_bench import aggregate_queries as paper
from plait_bench import multi_queues

SOURCES = ("p", "q", "r")
STREAM = plait.stream("s", unit="us", source="src", sources=SOURCES)
COMPUTE = {
    "n": plait.count(), "mean": plait.mean("x"), "var": plait.var("x"), "first": plait.first("t"), "last": plait.last("x"),
    "low": plait.min("x"), "all": plait.collect("k"), "many": plait.distinct("t"),
}  # fmt: skip
DESIGNS: list[dict[str, Any]] = [
    {"strategy": "tuml_sc"}, {"strategy": "tuml_mc", "workers": 2}, *({"strategy": name} for name in multi_queues.NAMES),
]  # fmt: skip
MERGING = {
    "n": plait.count(), "mean": plait.mean("x"), "var": plait.var("x"), "first": plait.first("x"), "last": plait.last("x"),
    "low": plait.min("x"), "where": plait.first_where("k", "row.x > 0"), "many": plait.count_where("t = 'red'"),
}  # fmt: skip


def stream(rows: int, seed: int) -> pa.Table:
    dice = np.random.default_rng(seed)
    return pa.table({
        "ts": np.sort(dice.integers(0, rows * 5, rows)), "src": pa.array([SOURCES[n] for n in dice.integers(0, 3, rows)]),
        "k": dice.integers(0, 9, rows), "x": pa.array(dice.standard_normal(rows) * 1e3, mask=dice.random(rows) < 0.1),
        "t": pa.array([("red", "green", "blue", None)[n] for n in dice.integers(0, 4, rows)]),
    })  # fmt: skip


def outcome(query: plait.Query, table: pa.Table, seed: int, **options: Any) -> pa.Table:
    """Each source by a thread of its own, in pieces of any size."""
    with query.on_threads(schemas={"s": table.schema}, keys=True, **options) as run:

        def push(source: str, chance: random.Random) -> None:
            own = table.filter(pc.equal(table.column("src"), source))
            while own.num_rows:
                size = chance.choice((1, 7, 40, 500))
                run.push("s", None, own.slice(0, size))
                own = own.slice(size)
            run.close("s", source)

        pushing = [
            threading.Thread(target=push, args=(source, random.Random(seed * 10 + k)))
            for k, source in enumerate(SOURCES)
        ]
        for thread in pushing:
            thread.start()
        batches = list(run.results())
        for thread in pushing:
            thread.join()
        return pa.Table.from_batches(batches, run.schema).combine_chunks()


@pytest.mark.crossed
@pytest.mark.parametrize("window", [("300us", "70us"), ("50us", "200us"), (10, 3)])
@pytest.mark.parametrize("by", [["k"], ["t", "k"]])
def test_sources_pushed_by_threads_of_their_own(window: tuple[Any, Any], by: list[str]) -> None:
    table = stream(900, seed=11)
    query = plait.aggregate(STREAM, size=window[0], advance=window[1], by=by, compute=COMPUTE)
    expected = query.reference({"s": table}, keys=True)
    for seed, design in enumerate(DESIGNS):
        assert_same(outcome(query, table, seed, **design, unread_results=64 if seed else 1 << 18), expected)


@pytest.mark.crossed
@pytest.mark.parametrize("window", [("300us", "70us"), ("50us", "200us"), ("64us", "64us")])
@pytest.mark.parametrize("by", [[], ["k"], ["t", "k"], ["x"]])
def test_windows_updated_by_the_threads_that_push(window: tuple[str, str], by: list[str]) -> None:
    table = stream(1500, seed=12)
    query = plait.aggregate(STREAM, size=window[0], advance=window[1], by=by, compute=MERGING)
    expected = query.reference({"s": table}, keys=True)
    for seed, strategy in enumerate(("wiml", "wiml", "wiml_shared", "wiml_shared")):
        assert_same(
            outcome(query, table, seed, strategy=strategy, unread_results=64 if seed % 2 else 1 << 18), expected
        )


@pytest.mark.parametrize("strategy", ["wiml", "wiml_shared"])
def test_a_hive_that_grows_while_sources_push(monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    """From the least memory there can be, with keys that are all new: lists, tables and tallies grow, and are used again."""
    from plait.threads.aggregate.hive import memory as hive_memory
    from plait.threads.aggregate.hive import tallies as hive_tallies

    monkeypatch.setattr(hive_tallies, "FIRST_TALLIES", 4)
    monkeypatch.setattr(hive_tallies, "FIRST_PANES", 1)
    monkeypatch.setattr(hive_memory.Hive.__init__, "__kwdefaults__", {"nodes": 2, "words": 512})
    table = stream(4000, seed=13)
    table = table.set_column(2, "k", pa.array(np.arange(4000) * 7919 % 100_003))
    query = plait.aggregate(STREAM, size="900us", advance="200us", by=["k"], compute=MERGING)
    expected = query.reference({"s": table}, keys=True)
    assert_same(outcome(query, table, 5, strategy=strategy), expected)


def test_what_does_not_merge_is_refused_by_wiml_and_served_by_auto() -> None:
    with_text = pa.schema({"ts": pa.int64(), "t": pa.string()})
    for function, why in ((plait.collect("t"), "in total order"), (plait.first("t"), "holds numbers only")):
        query = plait.aggregate(plait.stream("s", unit="us"), size="1us", compute={"v": function})
        with pytest.raises(QueryError, match=why):
            query.on_threads(strategy="wiml", schemas={"s": with_text})
        with query.on_threads(schemas={"s": with_text}) as run:
            assert "tuml_sc, 1 worker: v = " in run.explain()
    counted = plait.aggregate(plait.stream("s", unit="us"), size=3, compute={"n": plait.count()})
    with pytest.raises(QueryError, match="windows of tuples close at a tuple"):
        counted.on_threads(strategy="wiml")
    merging = plait.aggregate(plait.stream("s", unit="us", sources=2), size="1us", compute={"n": plait.count()})
    with merging.on_threads(schemas={"s": with_text}) as run:
        assert (
            "wiml, 1 worker: every function merges, so threads that push update windows themselves (2 sources)"
            in run.explain()
        )


def test_a_source_too_far_ahead_is_told_so() -> None:
    query = plait.aggregate(plait.stream("s", unit="us", sources=2), size="1us", by="k", compute={"n": plait.count()})
    with query.on_threads(strategy="wiml", pending=4) as run:
        run.push("s", 0, {"ts": [1], "k": [1]})
        run.push("s", 1, {"ts": [1], "k": [1]})
        run.push("s", 0, {"ts": [2] * 8, "k": list(range(8))})
        with pytest.raises(
            PendingError, match="parts in 8 windows that wait for the frontier, which is held by source 1"
        ):
            run.push("s", 0, {"ts": [2], "k": [1]})


def test_winsets_come_as_soon_as_the_frontier_has_passed_them() -> None:
    query = plait.aggregate(
        plait.stream("s", unit="us", sources=2),
        size="10us",
        by="k",
        compute={"n": plait.count(), "c": plait.collect("k")},
    )
    schema = pa.schema({"ts": pa.int64(), "k": pa.int64()})
    with query.on_threads(schemas={"s": schema}) as run:
        run.push("s", 0, {"ts": [1, 25], "k": [1, 1]})
        assert list(run.results(timeout_s=0.05)) == []
        run.push("s", 1, {"ts": [2, 3], "k": [2, 1]})
        assert list(run.results(timeout_s=0.05)) == []
        run.heartbeat("s", 1, 10)
        (first,) = run.results(timeout_s=2)
        assert first.to_pylist() == [
            {"ts": 9, "window_start": 0, "window_end": 10, "k": 1, "n": 2, "c": [1, 1]},
            {"ts": 9, "window_start": 0, "window_end": 10, "k": 2, "n": 1, "c": [2]},
        ]
        run.drain()
        (last,) = run.results()
        assert last.column("ts").to_pylist() == [29]
        stats = run.stats()
        assert (stats.tuples, stats.results, stats.strategy) == (4, 3, "tuml_sc")
        assert "n = count(): compiled" in run.explain()
        with pytest.raises(RunError, match="has ended"):
            run.push("s", 0, {"ts": [30], "k": [1]})


def test_an_error_in_an_update_thread_stops_the_run() -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size="10us", compute={"v": plait.sum("x")})
    with query.on_threads() as run:
        run.push("s", 0, {"ts": [1, 2, 30], "x": [2**63 - 1, 1, 0]})
        with pytest.raises(DataError, match="beyond 64 bits"):
            list(run.results())
        with pytest.raises(DataError, match="beyond 64 bits"):
            run.push("s", 0, {"ts": [40], "x": [1]})


def test_a_run_that_nobody_reads_can_be_stopped() -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size="1us", compute={"n": plait.count()})
    with query.on_threads(unread_results=4) as run:
        for at in range(0, 200, 10):
            run.push("s", 0, {"ts": list(range(at, at + 10))})


def test_text_that_waits_in_memory_is_let_go_of() -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size="10us", compute={"t": plait.last("t")})
    with query.on_threads(schemas={"s": pa.schema({"ts": pa.int64(), "t": pa.string()})}) as run:
        held = []
        for turn in range(160):
            ts = np.arange(turn * 5_000, (turn + 1) * 5_000)
            run.push("s", 0, {"ts": ts, "t": pa.array([f"text {k}" for k in ts])})
            while (
                run.stats().workers[0].tuples < (turn + 1) * 5_000 - 1
            ):  # the last one waits; else it measures the machine
                list(run.results(timeout_s=0.001))
            held.append(run.stats().memory["payload"])
        run.drain()
        assert run.table().num_rows > 0
        assert max(held) <= 1.5 * max(held[:80]), "what is held grows with what was pushed"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"strategy": "wiml", "workers": 2}, "may be behind"),
        ({"strategy": "mq", "workers": 2}, "single consumer"),
        ({"strategy": "scalejoin"}, "'scalejoin' for an aggregate"),
        ({"strategy": "tuml_sc", "workers": 2}, "single consumer"),
        ({"strategy": "tuml_mc"}, "without by="),
        ({"index": "hash"}, "options of joins"),
        ({"strategy": "nothing"}, "is not known"),
    ],
)
def test_refused(options: dict[str, Any], why: str) -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size="1us", compute={"n": plait.count()})
    with pytest.raises(QueryError, match=why):
        query.on_threads(**options)


def test_a_design_for_aggregates_is_refused_for_a_join() -> None:
    both = [plait.stream(name, unit="us") for name in "ab"]
    with pytest.raises(QueryError, match="one for aggregates"):
        plait.join(*both, on="l.x = r.x", within="1us").on_threads(strategy="tuml_sc")


def test_the_benchmark_agrees_with_duckdb() -> None:
    rows = bench._case(20_000, 1)
    assert {row["contender"] for row in rows} >= {"threads wiml", "threads tuml_sc", "duckdb"}
    assert len({row["results"] for row in rows if row["contender"] != "bytewax"}) == 1


@pytest.mark.parametrize("name", ["K-OS", "w-OI", "F-OI"])
def test_designs_agree_on_the_papers_queries(name: str) -> None:
    rows = paper.case(name, 5, times=1, tuples=4_000)
    assert [row["design"] for row in rows] == list(paper.QUERIES[name].designs)
    (measured,) = {row["tuples"] for row in rows}
    assert 3_000 < measured < 3_500, "what comes after two windows of ten"
    assert all(row["input_ns"] > 0 and row["output_ns"] > 0 for row in rows)


def test_tuml_on_the_papers_gate_agrees_and_what_it_moves_is_told() -> None:
    rows = paper.case("k-OS", 5, times=1, tuples=4_000, designs=("tuml_sc", *paper.OPTIONS))
    assert [row["design"] for row in rows] == ["tuml_sc", "tuml_sc, T-Gate"]
    assert set(paper.shift(rows, "k-OS", 5)) == {"input", "output"}


def test_a_mean_too_small_for_a_float_keeps_its_sign() -> None:
    """Exact, then rounded once: a tiny negative mean is -0.0, as IEEE 754 rounds; an exact zero is 0.0, also of -0.0s."""
    tiny = 5e-324
    values = [[-tiny, 0.0], [tiny, 0.0], [-tiny, tiny], [-0.0, -0.0], [-tiny, -0.0, 0.0, 0.0]]
    table = pa.table({
        "ts": [10 * at for at, some in enumerate(values) for _ in some], "x": [x for some in values for x in some],
    })  # fmt: skip
    compute = {"mean": plait.mean("x"), "sum": plait.sum("x"), "var": plait.var("x")}
    query = plait.aggregate(plait.stream("s", unit="us"), size="10us", compute=compute)
    want = query.reference({"s": table})
    assert [str(v) for v in want.column("mean").to_pylist()] == ["-0.0", "0.0", "0.0", "0.0", "-0.0"]
    assert [str(v) for v in want.column("sum").to_pylist()] == ["-5e-324", "5e-324", "0.0", "0.0", "-5e-324"]
    with query.on_threads(schemas={"s": table.schema}) as run:
        run.push("s", 0, table)
        run.drain()
        assert_same(run.table(), want)


@pytest.mark.parametrize("options", [{"disorder": 3}, {"source": "v"}, {}])
def test_text_in_views(options: dict[str, Any]) -> None:
    """Arrow takes no rows of these; they are held back, split by source and by key, and come out as they went in."""
    text = pa.array(["x", "y", None, "z", "x"], pa.string_view())
    table = pa.table({"ts": [5, 6, 7, 8, 30], "n": [1, 2, 3, 4, 5], "t": text, "v": ["a", "b", "a", "b", "a"]})
    compute = {
        "n": plait.count(),
        "first": plait.first("t"),
        "most": plait.max("t"),
        "where": plait.first_where("t", "n > 1"),
    }
    query = plait.aggregate(plait.stream("s", unit="us", **options), size="10us", by="t", compute=compute)
    for strategy in ("tuml_sc", "tuml_mc"):
        with query.on_threads(schemas={"s": table.schema}, strategy=strategy) as run:
            run.push("s", None, table)
            run.drain()
            assert_same(run.table(), query.reference({"s": table}))
