"""Aggregates, and chains of operators, on Spark, byte for byte against the reference and DuckDB."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected, write_files
from tests.spark.test_joins import SEED, rows

import plait

pytestmark = pytest.mark.spark

#: Functions that travel as partial panes, and some that want all tuples.
PANES = {
    "n": plait.count(), "sum": plait.sum("n"), "mean": plait.mean("v"), "var": plait.var("v"), "low": plait.min("v"),
    "high": plait.max("x"), "first": plait.first("v"), "last": plait.last("n"), "some": plait.first_where("n", "v > 1"),
    "where": plait.count_where(lambda row: row.x > 5), "many": plait.distinct("v"), "kinds": plait.distinct("s"),
    "least": plait.min("s"), "most": plait.max("s"), "std": plait.std("v"), "corr": plait.corr("v", "n"),
    "middle": plait.median("v"), "p90": plait.quantile("s", 0.9), "p10": plait.quantile("v", 0.1),
    "seen": plait.sum("n", where="v > 1"), "seen kinds": plait.distinct("s", where=lambda row: row.x > 5),
}  # fmt: skip
TUPLES = {
    "mode": plait.mode("s"), "best": plait.arg_max("s", "v"), "top": plait.top("n", 3, "v", where="x > 2"),
    "all": plait.collect("n"), "many": plait.distinct("v"), "most": plait.max("s"),
    "own": plait.custom("n", init=lambda: 1, add=lambda state, n: (31 * state + n) % 1_000_003, type="int64"),
}  # fmt: skip


def windows(s: Any, *, size: Any = "30us", advance: Any = "12us", by: Any = "x", compute: Any = PANES) -> Any:
    return plait.aggregate(s, size=size, advance=advance, by=by, compute=compute)


def near_peaks(s: Any) -> Any:
    """Readings near a window of their own key, counted: an aggregate of a join of a stream and an aggregate of it."""
    near = plait.join(s, windows(s, compute={"peak": plait.max("v")}).named("peaks"), on="l.x = r.x", within=10)
    return plait.aggregate(
        near, size="40us", by=f"{s.name}_x", compute={"near": plait.count(), "last": plait.last("peak")}
    )


QUERIES = {
    "panes": lambda s: windows(s),
    "gaps, no key": lambda s: windows(s, size="7us", advance="20us", by=()),
    "two keys": lambda s: windows(s, by=["v", "x"]),
    "tuples": lambda s: windows(s, compute=TUPLES | {"n": plait.count()}),
    "counted": lambda s: windows(s, size=10, advance=3, compute=PANES | TUPLES),
    "sessions": lambda s: plait.aggregate(s, session="6us", by="x", compute=PANES | TUPLES),
    "of an aggregate": lambda s: windows(
        windows(s, compute={"v": plait.mean("n"), "n": plait.count()}),
        size="60us",
        advance="60us",
        compute={"sum": plait.sum("n"), "first": plait.first("v"), "all": plait.collect("v")},
    ),
    "of a join": near_peaks,
    "joined": lambda s: plait.join(
        windows(s).named("a"), windows(s, size="20us", advance="20us").named("b"), on="l.x = r.x", within=5, how="left"
    ),
}


@pytest.fixture
def given(spark: Any, tmp_path: Path) -> tuple[pa.Table, Any]:
    """A stream of three sources with disorder, in four files, and its DataFrames."""
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    chance = random.Random(SEED)
    table = rows(chance, "quotes", count=300)
    table = table.append_column("s", pa.array([chance.choice((None, "", "b", "ab", "Z", "é")) for _ in range(300)]))
    write_files(tmp_path / "in", table, [40, 160])

    def frame(streaming: bool) -> Any:
        return feeds.frame(spark, tmp_path / "in", feeds.spark_schema(table), streaming=streaming, files=1)

    return table, frame


STREAM = plait.stream("quotes", unit="us", source="src", sources=[0, 1, 2], disorder=3)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.again if number % 2 else ()) for number, name in enumerate(QUERIES)]
)
def test_batch(given: Any, name: str) -> None:
    table, frame = given
    query = QUERIES[name](STREAM)
    expected = query.reference({"quotes": table}, keys=True)
    got = collected(query.on_spark({"quotes": frame(False)}, layout=(3, 1)))
    assert_identical(got, expected.drop_columns(["_plait_key"]))
    if name != "counted":  # there a tuple's position is in the key, which in files is another than in a table
        assert got["_plait_key"].to_pylist() == expected["_plait_key"].to_pylist()


LATER = {"counted": pytest.mark.slow, "of a join": pytest.mark.again}


@pytest.mark.parametrize("name", ["panes", *(pytest.param(name, marks=mark) for name, mark in LATER.items())])
def test_streaming(given: Any, tmp_path: Path, name: str) -> None:
    """In micro-batches, with a stop and a restart where the rows end, then drained: the reference's bytes."""
    table, frame = given
    query = QUERIES[name](STREAM)
    got = feeds.run(query.on_spark({"quotes": frame(True)}, layout=(2, 1)), tmp_path)
    assert_identical(got, query.reference({"quotes": table}))


def test_late_rows_of_a_chain_are_set_aside_once(spark: Any, tmp_path: Path) -> None:
    """The stream is read by two operators: one of them shows what was dropped, through the cells of the other."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    times = [max(0, k // 2 + (-9 if k % 17 == 5 else 0)) for k in range(120)]
    table = pa.table({"ts": times, "x": [k % 5 for k in range(120)], "v": [k / 8 for k in range(120)]})
    stream = plait.stream("quotes", unit="us", late="drop")
    query = near_peaks(stream)
    with pytest.warns(UserWarning, match="late"):
        expected = query.reference({"quotes": table})
    late, largest = [], 0
    for ts, v in zip(times, table["v"].to_pylist(), strict=True):
        late += [v] if ts < largest else []
        largest = max(largest, ts)
    write_files(tmp_path / "in", table, [50])
    frame = feeds.frame(spark, tmp_path / "in", feeds.spark_schema(table), streaming=True, files=1)
    reports: list[Any] = []
    got = feeds.run(
        query.on_spark({"quotes": frame}), tmp_path, late=tmp_path / "late", report=reports.append
    )  # fmt: skip
    assert_identical(got, expected)
    assert sorted(feeds.published(tmp_path / "late")["v"].to_pylist()) == late
    assert (reports[-1].late, reports[-1].frontier) == (len(late), 2**63 - 1)


JUDGED = {
    "n": plait.count(), "sum": plait.sum("n"), "mean": plait.mean("n"), "low": plait.min("v"), "high": plait.max("v"),
    "least": plait.min("s"), "most": plait.max("s"), "kinds": plait.distinct("s"), "many": plait.distinct("v"),
    "first": plait.first("v"), "last": plait.last("s"), "some": plait.first_where("s", "v > 1"),
    "where": plait.count_where("n > 500 and s <> 'b'"),
}  # fmt: skip
THEIRS = """
    select w.k * {advance} as window_start, x, count(*) as n, sum(q.n)::bigint as sum, sum(q.n)::double / count(q.n) as mean,
      min(v) as low, max(v) as high, min(s) as least, max(s) as most, count(distinct s) as kinds,
      count(distinct v + 0.0) as many, first(v order by ts, src, rank) as "first", last(s order by ts, src, rank) as "last",
      first(s order by ts, src, rank) filter (where v > 1 and not isnan(v)) as "some",
      count(*) filter (where q.n > 500 and s <> 'b') as "where"
    from quotes q, lateral (
      select unnest(range(floor((q.ts - {size}) / {advance})::bigint + 1, floor(q.ts / {advance})::bigint + 1)) as k) w
    group by all order by window_start, x nulls last
"""


def test_duckdb_finds_the_same_windows(given: Any, tmp_path: Path) -> None:
    """Not the reference's word alone: a judge that shares nothing with plait. Windows that overlap, that do not, with gaps."""
    import duckdb

    table, frame = given
    with duckdb.connect() as base:
        base.register("quotes", table.append_column("rank", pa.array(range(table.num_rows))))
        for size, advance in ((30, 10), (25, 10), (20, 20), (7, 20)):
            query = windows(STREAM, size=f"{size}us", advance=f"{advance}us", compute=JUDGED)
            got = collected(query.on_spark({"quotes": frame(False)}))
            theirs = base.sql(THEIRS.format(size=size, advance=advance)).to_arrow_table()
            ours = got.select(theirs.column_names)
            assert repr(ours.to_pylist()).replace("-0.0", "0.0") == repr(theirs.to_pylist()).replace("-0.0", "0.0")
