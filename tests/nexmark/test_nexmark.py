"""NEXMark: each query as SQL is the one in Python, and gives DuckDB's rows on every executor."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.everywhere.executors import EXECUTORS
from tests.nexmark.events import STREAMS, events
from tests.nexmark.queries import CHANNEL_ID, COUNT_C, MISSING, QUERIES, TIME_TYPE

import plait
from plait.query.identical import difference

SEED, COUNT = 17, 2_000
NAMES = list(QUERIES)
#: Those that run on Spark in `make test`: a row by row query, a join of aggregates, sessions of a join.
ON_SPARK = ("q2", "q5", "q9", "q21")
IN_SQL = [name for name, query in QUERIES.items() if query.sql is not None]


@cache
def data() -> dict[str, pa.Table]:
    return events(COUNT, SEED)


def given(query: plait.Query) -> dict[str, pa.Table]:
    return {name: data()[name] for name in query.streams()}


@cache
def reference(name: str) -> pa.Table:
    query = QUERIES[name].python()
    return query.reference(given(query))


def plain(value: object) -> object:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    if isinstance(value, list):
        return tuple(map(plain, value))
    return f"{float(value):.12g}" if isinstance(value, (int, float, Decimal)) else value


def told(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(map(plain, row.values())) for row in table.to_pylist())


@cache
def judge() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, table in data().items():
        plainly = table.set_column(0, "ts", table["ts"].cast(pa.timestamp("us")))
        if "expires" in table.column_names:
            plainly = plainly.set_column(5, "expires", table["expires"].cast(pa.timestamp("us")))
        connection.register("given", plainly)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.unregister("given")
    connection.execute("CREATE TABLE numbered AS SELECT *, row_number() OVER () AS no FROM bid")
    return connection


def query_of(name: str) -> plait.Query:
    words = QUERIES[name].sql
    return QUERIES[name].python() if words is None else plait.sql(words, streams=STREAMS)


@pytest.mark.parametrize("name", IN_SQL)
def test_the_sql_is_the_query_in_python(name: str) -> None:
    assert query_of(name) == QUERIES[name].python()


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_gives_the_same_rows(name: str) -> None:
    found = reference(name)
    assert found.num_rows
    assert told(found) == told(judge().sql(QUERIES[name].duck).to_arrow_table())


@pytest.mark.parametrize("name", NAMES)
def test_threads(name: str) -> None:
    query = query_of(name)
    assert difference(reference(name), query.run(given(query), workers=2)) is None


@pytest.mark.spark
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in ON_SPARK else pytest.mark.slow) for n in NAMES])
def test_spark(name: str, spark: Any, tmp_path: Path) -> None:
    query = query_of(name)
    found = EXECUTORS["spark"].run(query, given(query), (spark, tmp_path))
    # Spark calls what is in a list `element`, Arrow `item`.
    assert difference(reference(name), found.cast(reference(name).schema)) is None


def test_branches_and_parts_differ() -> None:
    """The events have a row for every branch of the queries that have some."""
    assert set(reference("q14")["time_type"].to_pylist()) == {"otherTime", "dayTime"}
    assert set(reference("q21")["channel_id"].to_pylist()) == {"0", "1", "2", "3", "7", "40"}
    assert reference("q21").num_rows < data()["bid"].num_rows
    assert {len(set(reference("q22")[name].to_pylist())) for name in ("dir1", "dir2", "dir3")} == {7, 3} - {0}


def test_functions_give_what_the_text_gives() -> None:
    """Queries 14, 21 and 22 as functions of rows."""

    def channel_id(row: Any) -> Any:
        said = plait.when(row.channel.lower() == "apple", "0").when(row.channel.lower() == "google", "1")
        said = said.when(row.channel.lower() == "facebook", "2").when(row.channel.lower() == "baidu", "3")
        return said.otherwise(row.url.regexp_extract("(&|^)channel_id=([^&]*)", 2))

    def time_type(row: Any) -> Any:
        hour = row.ts.hour()
        return (
            plait.when(hour.between(8, 18), "dayTime")
            .when((hour <= 6) | (hour >= 20), "nightTime")
            .otherwise("otherTime")
        )

    made = STREAMS["bid"].select(
        time_type=time_type,
        c_counts=lambda row: row.url.length() - row.url.replace("c", "").length(),
        channel_id=channel_id,
        dir2=lambda row: row.url.split_part("/", 5),
    )
    text = STREAMS["bid"].select(
        time_type=TIME_TYPE, c_counts=COUNT_C, channel_id=CHANNEL_ID, dir2="split_part(url, '/', 5)"
    )
    expected = text.reference(given(text))
    for found in (made.reference(given(made)), made.run(given(made)), text.run(given(text))):
        assert difference(expected, found) is None


def test_events_are_a_function_of_their_seed() -> None:
    assert events(200, 3) == events(200, 3)
    assert events(200, 3)["bid"] != events(200, 4)["bid"]
    assert [data()[name].num_rows for name in ("person", "auction", "bid")] == [
        COUNT // 50,
        3 * COUNT // 50,
        46 * COUNT // 50,
    ]
    assert len(set(data()["bid"]["ts"].to_pylist())) < data()["bid"].num_rows  # ties


def test_every_query_is_there_or_has_a_reason() -> None:
    asked = [f"q{number}" for number in (*range(10), *range(11, 15), *range(17, 23))]
    assert sorted([*QUERIES, *MISSING], key=lambda name: int(name[1:])) == asked
    text = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    rows = dict(re.findall(r"^\| (q\d+) \| .*? \| (.*?) \|$", text, re.MULTILINE))
    assert rows == {name: query.changed for name, query in QUERIES.items()} | MISSING
