"""Sessions: against the reference, however the sequence is cut; against DuckDB; and what is held of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.core.aggregate.test_panes import FUNCTIONS, KEYS, STREAM, assert_identical, table

import plait
from plait import DataError
from plait.core.aggregate.panes import pane_windows
from plait.core.aggregate.sessions import SessionPanes
from plait.query.bind import bind
from plait.query.identical import difference

COUNT = {"n": plait.count()}


@pytest.mark.parametrize("seed", range(40))
def test_everything_with_everything(seed: int) -> None:
    chance = random.Random(seed)
    rows = table(chance.choice((1, 5, 60, 300)), seed, chance.choice((50, 2000)))
    compute = {name: FUNCTIONS[name] for name in chance.sample(sorted(FUNCTIONS), chance.choice((1, 3, 8)))}
    gap = chance.choice((1, 2, 5, 20, 100, 5000))
    query = plait.aggregate(STREAM, session=f"{gap}us", by=chance.choice(KEYS), compute=compute)
    assert_identical(query, rows, seed)


@pytest.mark.parametrize("gap", [1, 3, 10])
def test_duckdb_agrees(gap: int) -> None:
    """A session begins where the key's last tuple lies a gap or more back; rows by end, then by key."""
    duckdb = pytest.importorskip("duckdb")
    dice = np.random.default_rng(gap)
    rows = pa.table(
        {"ts": np.sort(dice.integers(0, 900, 400)), "k": dice.integers(0, 9, 400), "x": dice.integers(0, 99, 400)}
    )
    compute = {"n": plait.count(), "total": plait.sum("x"), "first": plait.first("x"), "all": plait.collect("x")}
    query = plait.aggregate(STREAM, session=f"{gap}us", by="k", compute=compute)
    sql = f"""
        with numbered as (select *, row_number() over () as pos from rows),
        begun as (select *, coalesce(ts - lag(ts) over (partition by k order by pos), {gap}) >= {gap} as begins from numbered),
        told as (select *, count(*) filter (begins) over (partition by k order by pos) as session from begun)
        select max(ts) + {gap} - 1 as ts, min(ts) as window_start, max(ts) + {gap} as window_end, k, count(*) as n,
               sum(x)::bigint as total, arg_min(x, pos) as first, list(x order by pos) as all
        from told group by k, session order by window_end, k
    """
    assert query.reference({"s": rows}).to_pylist() == duckdb.sql(sql).to_arrow_table().to_pylist()


def test_a_tuple_at_the_gap_begins_another() -> None:
    query = plait.aggregate(STREAM, session="5us", by="k", compute=COUNT)
    rows = {"ts": [0, 4, 8, 13, 13], "k": [1, 1, 1, 1, 2]}
    expected = [(12, 0, 13, 1, 3), (17, 13, 18, 1, 1), (17, 13, 18, 2, 1)]
    for found in (query.reference({"s": rows}), query.run(rows)):
        assert [tuple(row.values()) for row in found.to_pylist()] == expected


def test_a_session_comes_when_the_frontier_has_passed_its_end_and_not_before() -> None:
    windows = pane_windows(
        bind(plait.aggregate(STREAM, session="5us", compute=COUNT), {"s": pa.schema([("ts", pa.int64())])})
    )
    empty = np.zeros(0, np.int64)
    assert windows.take(np.array([0, 3]), [], None, 3) == []
    assert windows.take(empty, [], None, 7) == []
    (closed,) = windows.take(empty, [], None, 8)
    assert closed.rows.column("window_end").to_pylist() == [8]
    assert windows.end() == []


def test_what_is_held_are_sessions_that_are_not_out() -> None:
    """Slots and groups are used again: of 200,000 sessions a few hundred are open at once."""
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
    compute = {"n": plait.count(), "all": plait.collect("k"), "last": plait.last("ts")}
    windows = pane_windows(bind(plait.aggregate(STREAM, session="3us", by="k", compute=compute), {"s": schema}))
    assert isinstance(windows, SessionPanes)
    found = 0
    for batch in range(200):
        ts = batch * 100 + np.arange(1000) // 10
        keys = batch * 1000 + np.arange(1000)
        for closed in windows.take_rows(pa.table({"ts": ts, "k": keys}), ts, int(ts[-1])):
            found += closed.rows.num_rows
    assert found > 199_000
    assert windows.capacity <= 4096
    assert windows.groups.capacity <= 8192
    assert windows.nbytes < 1 << 20


def test_sessions_at_the_ends_of_time() -> None:
    query = plait.aggregate(STREAM, session=f"{2**62 - 1}us", by="k", compute=COUNT)
    assert_identical(query, pa.table({"ts": [-(2**62), -1, 0, 2**62], "k": [1, 1, 2, 2]}), 1)
    longest = plait.aggregate(STREAM, session=f"{2**62}us", compute=COUNT)
    with pytest.raises(DataError, match="A result's 'window_end' lies beyond 64 bits"):
        longest.run({"ts": [0, 2**62]})
    with pytest.raises(DataError, match="A result's 'window_end' lies beyond 64 bits"):
        longest.reference({"s": {"ts": [0, 2**62]}})


@pytest.mark.parametrize(
    "options", [{}, {"strategy": "tuml_mc", "workers": 2}, {"elastic": 3}, {"gate": "skiplist"}], ids=str
)
def test_on_threads(options: Any) -> None:
    rows = table(4000, 3, 6000)
    compute = {"n": plait.count(), "all": plait.collect("i"), "mean": plait.mean("f"), "most": plait.max("s")}
    query = plait.aggregate(STREAM, session="9us", by="k", compute=compute)
    expected = query.reference({"s": rows}, keys=True)
    assert expected.num_rows > 500
    assert difference(expected, query.run(rows, keys=True, **options)) is None


def test_wiml_says_why_not() -> None:
    query = plait.aggregate(STREAM, session="9us", compute=COUNT)
    with pytest.raises(plait.QueryError, match="a session ends where its key is silent in all sources"):
        query.on_threads(strategy="wiml", schemas={"s": pa.schema([("ts", pa.int64())])})
