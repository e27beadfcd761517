"""Doors for text: durations, words for types and units, conditions, patterns, SQL, paths."""

# Tables of values stand as they are read: many on a line.
# ruff: noqa: E501  # tables of inputs, a line each
# fmt: off

from __future__ import annotations

import functools
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.fuzz.inputs import mutate
from tests.fuzz.inputs.hammer import Kind

import plait
from plait import paths
from plait.query.aggregate import aggregate
from plait.query.join import join
from plait.schema import arrow_type, duration_us
from plait.threads.options import Options

# --- durations ----------------------------------------------------------------------------------------------

DURATIONS = (
    *("5 minutes", "1h 30min", "250ms", "0.5 s", "1 d 2 h 3 m 4 s 5 ms 6 us", "1000 ns", "3 weeks", "10 µs", "7", "0s", "1.5 h", ""),
    *("bigint", "double", "timestamp_ntz", "10 comparisons", "comparison", "3 hrs", "12 days 4 hours"),
)
UNITS = ("us", "µs", "ms", "s", "sec", "min", "h", "hr", "d", "w", "weeks", "ns", "month", "year", " ", "", "-", "+", "e5", "1", "0.1")


def _duration(rng: random.Random) -> Any:
    return rng.choice(mutate.LEAVES) if rng.random() < 0.05 else mutate.text(rng, DURATIONS, UNITS)


def _take_duration(given: Any) -> None:
    errors = []
    for take in (_as_duration, _as_type, _as_unit, _as_punctuation):
        try:
            take(given)
        except plait.PlaitError as error:
            errors.append(error)
    if errors:
        raise max(errors, key=lambda error: len(str(error)))


def _as_duration(given: Any) -> None:
    found = duration_us(given, "within")
    assert 0 <= found <= 1 << 62


def _as_type(given: Any) -> None:
    arrow_type(given, "type")


def _as_unit(given: Any) -> None:
    plait.stream("s", unit=given)


def _as_punctuation(given: Any) -> None:
    Options(strategy="splitjoin", punctuate=given, linger=given)


# --- conditions ---------------------------------------------------------------------------------------------

SCHEMA = pa.schema([
    ("ts", pa.int64()), ("x", pa.int64()), ("y", pa.float64()), ("n", pa.int8()), ("s", pa.string()), ("b", pa.bool_()),
    ("t", pa.timestamp("us", tz="UTC")), ("d", pa.decimal128(10, 2)), ("l", pa.list_(pa.int32())), ("z", pa.binary()),
])  # fmt: skip


@functools.cache
def table() -> pa.Table:
    rows = [
        (1, 5, 0.5, -128, "a", True, 0, "1.50", [1], b"\0"),
        (2, -(2**63), float("nan"), 127, "", None, -(10**15), "-99999999.99", [], b""),
        (3, None, -0.0, None, None, False, None, None, None, None),
        (4, 2**63 - 1, float("inf"), 0, "Ab%_é\\", True, 10**15, "0.00", [None, 7], b"abc"),
    ]
    import decimal

    columns = list(zip(*rows, strict=True))
    columns[7] = tuple(None if each is None else decimal.Decimal(each) for each in columns[7])
    return pa.table([pa.array(values, each.type) for values, each in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


A, B = (plait.stream(name, unit="s", schema=SCHEMA) for name in ("a", "b"))

CONDITIONS = (
    *("abs(a.x - b.x) <= 10", "a.x = b.x AND a.y < b.y", "a.s = b.s OR a.b", "a.y BETWEEN b.y - 1 AND b.y + 1", "a.n % 3 = b.n % 3"),
    *("a.s LIKE 'a%' AND b.s RLIKE '^[a-z]+$'", "CASE WHEN a.x > 1 THEN b.y ELSE a.y END > 0.5", "coalesce(a.x, b.x, 0) IN (1, 2, 5)"),
    *("a.t < TIMESTAMP '2024-01-01 00:00:00' AND hour(b.t) = 3", "CAST(a.y AS BIGINT) = b.x", "least(a.x, b.x) + greatest(a.n, 1) > 0"),
    *("length(a.s) > 1 AND upper(b.s) = 'A' || lower(a.s)", "substring(a.s, 1, 2) = split_part(b.s, ',', 1)", "nullif(a.x, 0) / b.x > 1e3"),
    *("NOT (a.b IS NULL) AND a.d > 1.5", "if(a.b, a.x, b.x) = 5", "trim(a.s) = replace(b.s, 'a', 'b')", "regexp_extract(a.s, '(a)(b)', 1) = 'a'"),
    *("weekday(a.t) = 1 AND year(b.t) >= 2020", "a.x * 2 - b.x * -3 <> 4 AND contains(a.s, 'x')", "contains(s, 'x')", "x > 1", "a.y = b.y"),
)
WORDS = (
    *("a.x", "b.x", "a.s", "b.s", "a.y", "a.t", "a.d", "a.l", "a.z", "a.b", "NULL", "TRUE", "FALSE", "'a'", "''", "1", "0", "-1", "1.5"),
    *(" AND ", " OR ", " NOT ", " = ", " <=> ", " <> ", " < ", " IS NULL ", " IN ", " LIKE ", " RLIKE ", " ILIKE ", " BETWEEN ", " ESCAPE '!'"),
    *("abs(", "coalesce(", "if(", "CASE WHEN ", " THEN ", " ELSE ", " END ", "CAST(", " AS INT)", " AS STRING)", " AS DECIMAL(3,2))", ")", "("),
    *("concat(", "window(", "sum(", "count(*)", "SELECT ", " FROM ", "EXISTS(", "INTERVAL '1' DAY", "DATE '2024-02-30'", "TIMESTAMP 'x'", "X'00'"),
    *("date_trunc('day', ", "current_timestamp()", "rand()", "__import__('os')", "java_method(", "reflect(", "`a`.`x`", "a.*", "*", ":1", "?", "${x}"),
    *("a[0]", "a.l[1]", "a.x::int", "x -> x + 1", "{{ x }}", "@@x", "OVER ()", "TABLESAMPLE", "UNION ALL", ";", "--", "/*", "*/", "/*+ x */"),
)


def _condition(rng: random.Random) -> Any:
    return rng.choice(mutate.LEAVES) if rng.random() < 0.005 else mutate.text(rng, CONDITIONS, WORDS)


def _take_condition(given: Any) -> None:
    """As a join's condition, or as one on rows; what is taken is judged on all pairs of a few rows."""
    try:
        query: plait.Query = join(A, B, on=given, within="10s")
    except plait.PlaitError:
        query = A.where(given)
        query.reference({"a": table()})
        return
    query.explain()
    query.reference({"a": table(), "b": table()})


PATTERNS = (
    *("^[a-z]+$", r"\b\d{3}\b", "(a|b)*c", "a.c", "%a_c%", r"100\%", "", "[^x]", r"(\w+)@(\w+)\.com", "a{2,5}", "(?:x)?", r"\s*\Z", "a,b"),
)
PIECES = (
    *("(", ")", "[", "]", "{", "}", "*", "+", "?", "|", "^", "$", ".", "\\", r"\b", r"\d", r"\Z", r"\1", "(?i)", "(?P<n>", "(?=", "[[:alpha:]]"),
    *("{1000}", "{0}", "{,5}", "{99999}", "a{100}{100}{100}", "%", "_", r"\%", "[z-a]", r"\x{110000}", r"\p{L}", "(?#", "\ud800", "{1001}"),
)


def _pattern(rng: random.Random) -> Any:
    return mutate.text(rng, PATTERNS, PIECES)


def _take_pattern(given: Any) -> None:
    text = plait.text("s")
    errors = []
    for make in (text.matches, text.like, text.contains, lambda p: lambda row: row.s.regexp_extract(p, 1) == "a"):
        try:
            made: Any = make(given)
            where = aggregate(A, size="10s", compute={"n": plait.count_where(made)})
            where.reference({"a": table()})
        except plait.PlaitError as error:
            errors.append(error)
    if errors:
        raise errors[0]


# --- SQL ----------------------------------------------------------------------------------------------------

SELECTS = (
    "SELECT window.start AS opened, s, max(x) AS best FROM a WHERE x > 1 GROUP BY window(ts, '10 seconds'), s HAVING count(*) > 1",
    "SELECT a.x, b.y FROM a JOIN b ON a.x = b.x AND a.ts BETWEEN b.ts - INTERVAL 5 SECONDS AND b.ts + INTERVAL 5 SECONDS",
    "SELECT * FROM a LEFT JOIN b ON a.s = b.s AND abs(a.ts - b.ts) <= INTERVAL '1' MINUTE WHERE a.y > 0",
    "SELECT a.x, b.x AS other FROM a ASOF JOIN b MATCH_CONDITION (a.ts >= b.ts) ON a.s = b.s",
    "WITH big AS (SELECT ts, x, y FROM a WHERE x > 0) SELECT count(*) AS n, avg(y) AS m FROM big GROUP BY window(ts, '30 seconds', '3 seconds')",
    "SELECT ts, x FROM a UNION ALL SELECT ts, x FROM b",
    "SELECT first(x) FILTER (WHERE b) AS f, max_by(x, y) AS g, percentile_approx(y, 0.5) AS p FROM a GROUP BY session_window(ts, '5 seconds'), n",
    "SELECT x + 1 AS y, CASE WHEN s LIKE 'a%' THEN 1 ELSE 0 END AS c, upper(s) AS u FROM a",
    "SELECT q.n FROM (SELECT count(*) AS n FROM a GROUP BY window(ts, INTERVAL 10 SECONDS)) AS q WHERE q.n >= 1",
    "SELECT a.x FROM a LEFT SEMI JOIN b ON a.x = b.x AND b.ts <= a.ts + INTERVAL 3 SECONDS AND b.ts >= a.ts",
    "SELECT a.x, b.x AS bx FROM a FULL OUTER JOIN b ON a.n = b.n AND a.ts - b.ts BETWEEN -3 AND 3",
)
CLAUSES = (
    *WORDS,
    *(" GROUP BY ", " HAVING ", " WHERE ", " JOIN ", " LEFT ANTI JOIN ", " CROSS JOIN ", " ON ", " USING (x)", " ORDER BY x", " LIMIT 5", " DISTINCT "),
    *("window(ts, '10 seconds')", "session_window(ts, '5 s')", "window.end", "window(ts, '0 s')", "INTERVAL 5 SECONDS", "INTERVAL -5 DAYS", "INTERVAL '1-2' YEAR TO MONTH"),
    *("count(*)", "sum(DISTINCT x)", "avg(y)", "min(s)", "stddev(y)", "corr(x, y)", "mode(s)", "collect_list(x)", "approx_count_distinct(x)", "row_number()"),
    *("INSERT INTO a ", "DROP TABLE a", "CREATE TABLE x AS ", "read_csv('/etc/passwd')", "parquet.`/etc/passwd`", "LATERAL VIEW explode(l) t AS e"),
    *("VALUES (1)", "PIVOT (", "WITH RECURSIVE ", " MATCH_CONDITION (", "RECURSIVE", " AS ", "a", "b", "c", "TRANSFORM(x) USING 'cat'", "SELECT 1", "SET x = 1"),
)


def _select(rng: random.Random) -> Any:
    return rng.choice(mutate.LEAVES) if rng.random() < 0.002 else mutate.text(rng, SELECTS, CLAUSES)


def _take_select(given: Any) -> None:
    query = plait.sql(given, streams=[A, B])
    query.explain()
    query.reference({name: table() for name in query.streams()})


# --- paths --------------------------------------------------------------------------------------------------

PATHS = ("out", "/data/out", "file:/data/out", "file:///data/a%20b", "s3a://bucket/x", "hdfs://h/x", "./s3:x", "a/../b", "file://host/x", "C:/x", "~/x")
PATH_WORDS = ("file:", "//", "/", "%00", "%2F", "%zz", "..", "localhost", "S3:", "dbfs:/", "~", "\0", "%", ":", "@", "?", "#", "\udc80", "x" * 5_000)


def _path(rng: random.Random) -> Any:
    return rng.choice(mutate.LEAVES) if rng.random() < 0.05 else mutate.text(rng, PATHS, PATH_WORDS)


def _take_path(given: Any) -> None:
    from plait.connectors import folder, sinks

    where = paths.absolute(given)
    assert where.is_absolute()
    if Path.cwd() not in Path(os.path.realpath(where)).parents:
        return  # the whole disk, perhaps
    paths.may_be_folder(where, "The folder")
    errors = []
    for take in (lambda: folder.feed(A, given), lambda: sinks.check_path(given)):
        try:
            take()
        except plait.PlaitError as error:
            errors.append(error)
    if errors:
        raise errors[0]


KINDS = (
    Kind("durations", _duration, _take_duration),
    Kind("conditions", _condition, _take_condition),
    Kind("patterns", _pattern, _take_pattern),
    Kind("sql", _select, _take_select),
    Kind("paths", _path, _take_path),
)
