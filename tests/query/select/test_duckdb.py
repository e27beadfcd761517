"""Random SELECTs, with DuckDB as the judge: the same rows, whatever the spelling of bounds, conditions and lists.

A case draws a SELECT in Spark's words and the same in DuckDB's, which has no windows: there a row is listed for each window that
it is in. DuckDB knows no order, so rows are compared as a multiset; an inner join's `ts` is compared too. Floats are halves,
so sums of them are exact in any order.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from tests.examples import examples

import plait

SCHEMAS = {
    "quotes": {"ts": "timestamp", "k": "string", "x": "float64", "n": "int64"},
    "trades": {"ts": "timestamp", "k": "string", "price": "float64", "m": "int64"},
}
STREAMS = {name: plait.stream(name, schema=schema) for name, schema in SCHEMAS.items()}
NUMBERS = {"quotes": ("x", "n"), "trades": ("price", "m")}
SECOND = 1_000_000


@dataclass(frozen=True)
class Case:
    """One SELECT twice; `timed` tells whether DuckDB's has a `ts`."""

    spark: str
    duck: str
    timed: bool = False


def rows(dice: random.Random, name: str, count: int) -> pa.Table:
    numbers = NUMBERS[name]
    ts = sorted(dice.randrange(60) * SECOND + dice.choice((0, 0, 1, 500_000)) for _ in range(count))
    columns = {
        "ts": ts,
        "k": [dice.choice(("a", "b", "ab", None)) for _ in ts],
        numbers[0]: [dice.choice((None, dice.randrange(-8, 20) / 2)) for _ in ts],
        numbers[1]: [dice.choice((None, dice.randrange(-3, 9), dice.randrange(-3, 9))) for _ in ts],
    }
    return pa.table(
        columns,
        pa.schema(
            [(c, pa.int64() if c in ("ts", "n", "m") else pa.string() if c == "k" else pa.float64()) for c in columns]
        ),
    )


class Words:
    """Draws parts of a text that mean the same in both dialects."""

    def __init__(self, dice: random.Random, tables: dict[str, str]) -> None:
        self.dice, self.tables = dice, tables  # aliases and what they stand for

    def column(self, kind: int | None = None) -> str:
        alias, table = self.dice.choice(list(self.tables.items()))
        return f"{alias}.{NUMBERS[table][self.dice.randrange(2) if kind is None else kind]}"

    def text(self) -> str:
        return f"{self.dice.choice(list(self.tables))}.k"

    def number(self, depth: int = 0) -> str:
        match self.dice.randrange(7 if depth < 2 else 3):
            case 0:
                return str(self.dice.randrange(-5, 10))
            case 1 | 2:
                return self.column()
            case 3:
                return f"abs({self.number(depth + 1)})"
            case 4:
                return f"({self.number(depth + 1)} * {self.dice.randrange(1, 4)})"
            case _:
                return f"({self.number(depth + 1)} {self.dice.choice('+-')} {self.number(depth + 1)})"

    def condition(self, depth: int = 0) -> str:
        match self.dice.randrange(10 if depth < 2 else 6):
            case 0 | 1 | 2:
                return f"{self.number()} {self.dice.choice(('<', '<=', '>', '>=', '=', '<>'))} {self.number()}"
            case 3:
                return f"{self.column()} IS {self.dice.choice(('', 'NOT '))}NULL"
            case 4:
                return f"{self.text()} {self.dice.choice(('LIKE', 'NOT LIKE'))} '{self.dice.choice(('a%', '%b', '_'))}'"
            case 5:
                return f"{self.column(1)} {self.dice.choice(('', 'NOT '))}IN (1, 2, 5)"
            case 6:
                return f"{self.number()} BETWEEN {self.dice.randrange(-3, 3)} AND {self.dice.randrange(3, 9)}"
            case 7:
                return f"NOT ({self.condition(depth + 1)})"
            case _:
                return f"({self.condition(depth + 1)} {self.dice.choice(('AND', 'OR'))} {self.condition(depth + 1)})"

    def items(self, count: int) -> str:
        return ", ".join(f"{self.dice.choice((self.number, self.text))()} AS c{at}" for at in range(count))

    def bound(self, left: str, right: str) -> str:
        """The same two limits of `right - left`, in one of several spellings; together they leave room for some pairs."""
        low, high = sorted(self.dice.sample(range(-8, 9), 2))
        strict = self.dice.random() < 0.3
        less, more = ("<", ">") if strict else ("<=", ">=")
        lower = self.dice.choice((
            f"{right} {more} {left} + INTERVAL '{low}' SECOND",
            f"{right} - {left} {more} INTERVAL '{low}' SECOND",
            f"{left} {less} {right} - INTERVAL '{low}' SECOND",
            f"{left} - {right} {less} INTERVAL '{-low}' SECOND",
        ))  # fmt: skip
        upper = self.dice.choice((
            f"{right} {less} {left} + INTERVAL '{high}' SECOND",
            f"INTERVAL '{high}' SECOND {more} {right} - {left}",
            f"{right} - INTERVAL '{high}' SECOND {less} {left}",
        ))  # fmt: skip
        if not strict and self.dice.random() < 0.4:
            return self.dice.choice((
                f"{right} BETWEEN {left} + INTERVAL '{low}' SECOND AND {left} + INTERVAL '{high}' SECOND",
                f"{left} BETWEEN {right} - INTERVAL '{high}' SECOND AND {right} - INTERVAL '{low}' SECOND",
                f"({right} - {left}) BETWEEN INTERVAL '{low}' SECOND AND INTERVAL '{high}' SECOND",
            ))  # fmt: skip
        return self.dice.choice((f"{lower} AND {upper}", f"({upper}) AND {lower}"))


def row_by_row(dice: random.Random) -> Case:
    words = Words(dice, {"q": "quotes"})
    text = f"SELECT q.ts, {words.items(dice.randrange(1, 4))} FROM quotes q WHERE {words.condition()}"
    return Case(text, text, timed=True)


def joined(dice: random.Random) -> Case:
    words = Words(dice, {"q": "quotes", "t": "trades"})
    kind = dice.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
    duck = {"LEFT SEMI JOIN": "SEMI JOIN", "LEFT ANTI JOIN": "ANTI JOIN"}.get(kind, kind)
    one = kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN")
    shown = Words(dice, {"q": "quotes"} if one else words.tables)
    parts = [words.bound("q.ts", "t.ts"), *(words.condition() for _ in range(dice.randrange(2)))]
    if kind == "FULL JOIN":  # all that DuckDB's full joins know besides
        parts.append("q.k = t.k")
    dice.shuffle(parts)
    items, on = (
        shown.items(dice.randrange(1, 4)),
        " AND ".join(f"({part})" if " OR " in part else part for part in parts),
    )
    where = f" WHERE {shown.condition()}" if dice.random() < 0.4 else ""
    own = "greatest(q.ts, t.ts) AS ts, " if kind == "JOIN" else ""
    texts = (f"{items} FROM quotes q {word} trades t ON {on}{where}" for word in (kind, duck))
    return Case(f"SELECT {next(texts)}", f"SELECT {own}{next(texts)}", timed=kind == "JOIN")


FUNCTIONS = (
    "count(*)", "count({})", "sum({})", "avg({})", "min({})", "max({})", "count(DISTINCT {})", "median({})", "count_if({} > 2)",
    "sum({}) FILTER (WHERE q.n > 1)", "min(q.k)", "var_samp({})",
)  # fmt: skip


def windows(size: int, advance: int, where: str) -> str:
    """DuckDB's list of rows, each once for every window `[s, s + size)` that it is in; `s` is in seconds."""
    return f"""(SELECT q.*, s FROM quotes q, range(-60, 120, {advance}) w(s)
                WHERE epoch_us(q.ts) >= s * 1000000 AND epoch_us(q.ts) < (s + {size}) * 1000000 AND ({where})) q"""


def aggregated(dice: random.Random) -> Case:
    words = Words(dice, {"q": "quotes"})
    size, advance = dice.choice(((10, 10), (10, 2), (7, 3), (4, 6)))
    calls = [dice.choice(FUNCTIONS).format(words.number()) for _ in range(dice.randrange(1, 4))]
    key = dice.choice(("q.k", "q.n % 2", None))
    where, having = words.condition(), dice.choice(("count(*) > 1", "max(q.x) > min(q.x) OR count(*) = 1"))
    listed = ", ".join([*([f"{key} AS g"] if key else []), *(f"{call} AS f{at}" for at, call in enumerate(calls))])
    judged = re.sub(
        r"count_if\((.*?) > 2\)", r"count(*) FILTER (WHERE \1 > 2)", listed
    )  # DuckDB's is NULL where Spark's is 0
    keys = f", {key}" if key else ""
    spark = f"""SELECT {listed}, window.start AS opened FROM quotes q WHERE {where}
                GROUP BY window(q.ts, '{size} seconds', '{advance} seconds'){keys} HAVING {having}"""
    duck = f"""SELECT to_timestamp(s + {size}) - INTERVAL 1 MICROSECOND AS ts, {judged}, to_timestamp(s) AS opened
               FROM {windows(size, advance, where)} GROUP BY s{keys} HAVING {having}"""
    return Case(spark, duck, timed=True)


def hottest(dice: random.Random) -> Case:
    """The groups of a window whose count is the highest there: an aggregate of an aggregate, joined by the window's edge."""
    size, advance = dice.choice(((10, 10), (10, 2), (7, 3)))
    where = Words(dice, {"q": "quotes"}).condition()
    most = """SELECT c.k, c.c, c.opened FROM counts c JOIN most ON c.opened = most.opened AND c.c >= most.c"""
    spark = f"""WITH counts AS (SELECT k, count(*) AS c, window.start AS opened FROM quotes q WHERE {where}
                                GROUP BY window(ts, '{size} seconds', '{advance} seconds'), k),
                     most AS (SELECT opened, max(c) AS c FROM counts GROUP BY opened) {most}"""
    listed = windows(size, advance, where)
    duck = f"""WITH counts AS (SELECT k, count(*) AS c, to_timestamp(s) AS opened FROM {listed} GROUP BY s, k),
                    most AS (SELECT opened, max(c) AS c FROM counts GROUP BY opened) {most}"""
    return Case(spark, duck)


def chained(dice: random.Random) -> Case:
    """Three streams, the last bound to either of the first two."""
    words = Words(dice, {"q": "quotes", "t": "trades", "p": "quotes"})
    first, second = words.bound("q.ts", "t.ts"), words.bound(dice.choice(("q.ts", "t.ts")), "p.ts")
    text = f"FROM quotes q JOIN trades t ON {first} JOIN quotes p ON {second} AND p.k = t.k WHERE {words.condition()}"
    items = words.items(2)
    return Case(f"SELECT {items} {text}", f"SELECT greatest(q.ts, t.ts, p.ts) AS ts, {items} {text}", timed=True)


def after_outer(dice: random.Random) -> Case:
    """A bound to a time that is NULL in some rows of an outer join, where the window alone would say it of all others."""
    words = Words(dice, {"q": "quotes", "t": "trades", "p": "quotes"})
    kind, ends = dice.choice((("LEFT JOIN", ("q.ts", "t.ts")), ("RIGHT JOIN", ("t.ts", "q.ts"))))
    width = dice.randrange(1, 6)
    first = f"{ends[0]} - {ends[1]} BETWEEN INTERVAL '-{width}' SECOND AND INTERVAL 0 SECONDS AND q.n = t.m"
    text = f"FROM quotes q {kind} trades t ON {first} JOIN quotes p ON {words.bound(ends[1], 'p.ts')}"
    items = f"SELECT q.k AS a, t.k AS b, p.k AS c {text}"
    return Case(items, items)


def united(dice: random.Random) -> Case:
    one, two = Words(dice, {"q": "quotes"}), Words(dice, {"t": "trades"})
    texts = [f"SELECT {name}.ts, {words.column(1)} AS c FROM {table} {name} WHERE {words.condition()}"
             for name, table, words in (("q", "quotes", one), ("t", "trades", two))]  # fmt: skip
    text = " UNION ALL ".join(texts)
    return Case(text, text, timed=True)


def passed_on(dice: random.Random) -> Case:
    """A bound to a time column that a subquery on the right has passed on; the row's own time is another."""
    words = Words(dice, {"q": "quotes", "p": "quotes"})
    inner = f"SELECT q.k, q.n, q.ts AS qts, p.ts AS pts FROM quotes q JOIN quotes p ON {words.bound('q.ts', 'p.ts')}"
    text = f"FROM trades t JOIN ({inner}) AS j ON {words.bound('t.ts', dice.choice(('j.qts', 'j.pts')))} AND t.m <= j.n"
    return Case(
        f"SELECT j.k, t.m, j.n {text}", f"SELECT greatest(t.ts, j.qts, j.pts) AS ts, j.k, t.m, j.n {text}", timed=True
    )


def peaks(dice: random.Random) -> Case:
    """The rows of a window that have its highest value: a bound to both edges of the window."""
    size, advance = dice.choice(((10, 10), (10, 2), (7, 3)))
    top = f"""SELECT q.k, q.x, p.opened FROM quotes q JOIN peaks p
              ON q.x = p.x AND q.ts >= p.opened AND {dice.choice(("q.ts < p.closed", "p.closed - q.ts > INTERVAL 0 SECONDS"))}"""
    spark = f"""WITH peaks AS (SELECT max(x) AS x, window.start AS opened, window.end AS closed FROM quotes
                               GROUP BY window(ts, '{size} seconds', '{advance} seconds')) {top}"""
    edges = f"make_timestamp(s * 1000000) AS opened, make_timestamp((s + {size}) * 1000000) AS closed"
    duck = f"WITH peaks AS (SELECT max(x) AS x, {edges} FROM {windows(size, advance, 'true')} GROUP BY s) {top}"
    return Case(spark, duck)


KINDS = (
    row_by_row,
    joined,
    joined,
    joined,
    aggregated,
    aggregated,
    hottest,
    chained,
    united,
    passed_on,
    peaks,
    after_outer,
)


def told(table: pa.Table) -> Counter[tuple[object, ...]]:
    """Rows as they are compared: times as microseconds, numbers as numbers. DuckDB rounds a variance more than once."""
    return Counter(tuple(map(plain, row.values())) for row in table.to_pylist())


def plain(value: object) -> object:
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1e6)
    return f"{float(value):.12g}" if isinstance(value, (int, float, Decimal)) else value


@pytest.fixture
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


@pytest.mark.parametrize("seed", range(examples(480)))
def test_duckdb_gives_the_same_rows(seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    dice = random.Random(seed)
    case = KINDS[seed % len(KINDS)](dice)
    data = {name: rows(dice, name, dice.choice((0, 12, 30))) for name in STREAMS}
    for name, table in data.items():
        duck.register("given", table)
        duck.execute(f"CREATE TABLE {name} AS SELECT * REPLACE (make_timestamp(ts) AS ts) FROM given")
    query = plait.sql(case.spark, streams=STREAMS.values())
    found = query.reference({name: data[name].cast(STREAMS[name].schema) for name in query.streams()})
    expected = duck.sql(case.duck).to_arrow_table()
    assert told(found if case.timed else found.drop_columns(["ts"])) == told(expected), (
        f"{case.spark}\n{query.explain()}"
    )
