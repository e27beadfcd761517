"""ASOF JOIN is `plait.asof`, and every left row finds what DuckDB finds for it."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import plait

trades = plait.stream("trades", schema={"ts": "timestamp", "k": "string", "n": "int64"})
quotes = plait.stream("quotes", schema={"ts": "timestamp", "k": "string", "bid": "int64"})
STREAMS = (trades, quotes)


def sql(match: str, on: str = "t.k = q.k", kind: str = "ASOF JOIN", items: str = "*") -> plait.Query:
    return plait.sql(f"SELECT {items} FROM trades t {kind} quotes q MATCH_CONDITION ({match}) ON {on}", streams=STREAMS)


def asof(**options: Any) -> plait.Query:
    return plait.asof(trades, quotes, by="k", **options)


FIVE = "INTERVAL 5 SECONDS"
CASES = {
    "the last before": (lambda: sql("t.ts >= q.ts"), lambda: asof()),
    "turned": (lambda: sql("q.ts <= t.ts"), lambda: asof()),
    "LEFT": (lambda: sql("t.ts >= q.ts", kind="ASOF LEFT JOIN"), lambda: asof()),
    "not at the same time": (lambda: sql("t.ts > q.ts"), lambda: asof(exact=False)),
    "at most so old": (lambda: sql("t.ts >= q.ts", f"t.k = q.k AND t.ts - q.ts <= {FIVE}"), lambda: asof(within="5s")),
    "the first after": (
        lambda: sql("t.ts <= q.ts", f"q.k = t.k AND q.ts <= t.ts + {FIVE}"),
        lambda: asof(within="5s", direction="forward"),
    ),
    "the first after, not at the same time": (
        lambda: sql("t.ts < q.ts", f"t.k = q.k AND q.ts - t.ts < {FIVE}"),
        lambda: asof(within=4_999_999, direction="forward", exact=False),
    ),
    "columns of both": (
        lambda: sql("t.ts >= q.ts", items="t.k, n, bid, q.ts AS quoted"),
        lambda: asof().select(k="trades_k", n="n", bid="bid", quoted="quotes_ts"),
    ),
    "by other columns": (
        lambda: sql("t.ts >= q.ts", "t.n = q.bid AND q.k = t.k"),
        lambda: plait.asof(trades, quotes, by=[("n", "bid"), "k"]),
    ),
}


@pytest.mark.parametrize(("found", "by_hand"), CASES.values(), ids=CASES.keys())
def test_an_asof_join_is_plaits(found: Any, by_hand: Any) -> None:
    assert found() == by_hand()


def test_its_time_is_the_left_rows_own_where_it_looks_back() -> None:
    text = """SELECT t.k, count(bid) AS quoted FROM trades t ASOF JOIN quotes q MATCH_CONDITION (t.ts >= q.ts) ON t.k = q.k
              GROUP BY window(t.ts, '9 s'), t.k"""
    counts = plait.aggregate(asof(), size="9s", by="trades_k", compute={"quoted": plait.count(where="NOT bid IS NULL")})
    assert plait.sql(text, streams=STREAMS) == counts.select(k="trades_k", quoted="quoted")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("match", ["t.ts >= q.ts", "t.ts > q.ts"])
def test_duckdb_finds_the_same(seed: int, match: str) -> None:
    dice = random.Random(seed)
    data = {}
    for stream, value in ((trades, "n"), (quotes, "bid")):
        ts = sorted(dice.sample(range(60), 25))  # of one stream no two at once: DuckDB takes any of them
        columns = {"ts": [s * 1_000_000 for s in ts], "k": [dice.choice("ab") for _ in ts], value: list(range(25))}
        data[stream.name] = pa.table(columns)
    found = sql(match, items="n, bid").reference({s.name: data[s.name].cast(s.schema) for s in STREAMS})
    tables = data
    with duckdb.connect() as duck:
        for name, table in tables.items():
            duck.register(name, table)
        text = f"SELECT n, bid FROM trades t ASOF LEFT JOIN quotes q ON t.k = q.k AND {match} ORDER BY t.ts"
        assert found.drop_columns(["ts"]).to_pylist() == duck.sql(text).to_arrow_table().to_pylist()
