"""A SELECT is the query that one would build by hand: the same frozen object, so the same rows, order and fingerprint."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import Query
from plait.query.identical import difference

SCHEMA = {"ts": "timestamp", "k": "string", "x": "float64", "n": "int64"}
quotes = plait.stream("quotes", schema=SCHEMA)
trades = plait.stream("trades", schema=SCHEMA | {"price": "float64"})
ticks = plait.stream("ticks", time="at", unit="s", schema={"at": "int64", "v": "int64"})
STREAMS = [quotes, trades, ticks]


def sql(text: str) -> Query:
    return plait.sql(text, streams=STREAMS)


def near(**options: Any) -> Query:
    return plait.join(quotes, trades, **options)


BOTH = "SELECT * FROM quotes q JOIN trades t ON "

BOUNDS = {
    "between": ("t.ts BETWEEN q.ts - INTERVAL '5' SECOND AND q.ts + INTERVAL '3' SECOND", ("5s", "3s")),
    "two comparisons": ("t.ts >= q.ts - INTERVAL 5 SECONDS AND t.ts <= q.ts + INTERVAL 3 SECONDS", ("5s", "3s")),
    "turned": ("q.ts BETWEEN t.ts - INTERVAL 3 SECONDS AND t.ts + INTERVAL 5 SECONDS", ("5s", "3s")),
    "a difference": ("t.ts - q.ts BETWEEN INTERVAL '-5' SECOND AND INTERVAL 3 SECONDS", ("5s", "3s")),
    "a difference, turned": ("q.ts - t.ts <= INTERVAL 5 SECONDS AND INTERVAL 3 SECONDS >= t.ts - q.ts", ("5s", "3s")),
    "the negative of one": (
        "t.ts - q.ts >= - INTERVAL 5 SECONDS AND -(q.ts - t.ts) <= INTERVAL 3 SECONDS",
        ("5s", "3s"),
    ),
    "strict": ("t.ts > q.ts - INTERVAL 5 SECONDS AND t.ts < q.ts + INTERVAL 3 SECONDS", (4_999_999, 2_999_999)),
    "around": ("abs(t.ts - q.ts) <= INTERVAL 1 MINUTE", "1 min"),
    "around, turned": ("INTERVAL 1 MINUTE > abs(q.ts - t.ts)", 59_999_999),
    "equal times": ("q.ts = t.ts", 0),
    "both on one side": ("q.ts + INTERVAL 1 HOUR >= t.ts + INTERVAL 30 MINUTES AND t.ts >= q.ts", (0, "30 min")),
    "the narrower one": ("abs(t.ts - q.ts) <= INTERVAL 9 SECONDS AND t.ts - q.ts <= INTERVAL 2 SECONDS", ("9s", "2s")),
    "in parentheses": ("((t.ts >= (q.ts)) AND (t.ts <= (q.ts + (INTERVAL 1 DAY))))", (0, "1 day")),
}


@pytest.mark.parametrize(("bound", "within"), BOUNDS.values(), ids=BOUNDS.keys())
def test_a_time_bound_in_any_spelling_is_the_window(bound: str, within: Any) -> None:
    assert sql(BOTH + bound) == near(within=within)
    assert sql(f"{BOTH} q.k = t.k AND {bound}") == near(on="quotes.k = trades.k", within=within)


#: A bound that does not include 0, and so is more than a window: the rest stays in the condition.
def test_a_bound_away_from_zero_keeps_its_near_end_as_a_condition() -> None:
    text = BOTH + "t.ts BETWEEN q.ts + INTERVAL 1 SECOND AND q.ts + INTERVAL 5 SECONDS"
    rest = "trades.ts - quotes.ts >= 1000000 AND trades.ts - quotes.ts <= 5000000"
    assert sql(text) == near(on=rest, within=(0, "5s"))
    assert sql(BOTH + "t.ts < q.ts AND q.ts <= t.ts + INTERVAL 5 SECONDS") == near(
        on="trades.ts - quotes.ts <= -1", within=("5s", 0)
    )


def test_a_rest_counts_as_the_columns_do() -> None:
    text = "SELECT * FROM quotes q JOIN ticks t ON t.at BETWEEN q.ts + INTERVAL 1 SECOND AND q.ts + INTERVAL 5 SECONDS"
    rest = "ticks.at * 1000000 - quotes.ts >= 1000000 AND ticks.at * 1000000 - quotes.ts <= 5000000"
    assert sql(text) == plait.join(quotes, ticks, on=rest, within=(0, "5s"))


WITHIN = "abs(q.ts - t.ts) <= INTERVAL 5 SECONDS"

JOINS = {
    "inner": (f"SELECT * FROM quotes q INNER JOIN trades t ON {WITHIN}", lambda: near(within="5s")),
    "cross": (f"SELECT * FROM quotes q CROSS JOIN trades t WHERE {WITHIN}", lambda: near(within="5s")),
    "comma": (
        f"SELECT * FROM quotes q, trades t WHERE {WITHIN} AND q.n = t.n",
        lambda: near(on="quotes.n = trades.n", within="5s"),
    ),
    "left": (f"SELECT * FROM quotes q LEFT JOIN trades t ON {WITHIN}", lambda: near(within="5s", how="left")),
    "left outer": (f"SELECT * FROM quotes q LEFT OUTER JOIN trades t ON {WITHIN}", lambda: near(within="5s", how="left")),
    "right": (f"SELECT * FROM quotes q RIGHT JOIN trades t ON {WITHIN}", lambda: near(within="5s", how="right")),
    "full": (f"SELECT * FROM quotes q FULL OUTER JOIN trades t ON {WITHIN}", lambda: near(within="5s", how="full")),
    "semi": (f"SELECT * FROM quotes q LEFT SEMI JOIN trades t ON {WITHIN}", lambda: near(within="5s", how="semi")),
    "anti": (f"SELECT * FROM quotes q LEFT ANTI JOIN trades t ON {WITHIN}", lambda: near(within="5s", how="anti")),
    "by any condition": (
        f"SELECT * FROM quotes q JOIN trades t ON {WITHIN} AND (abs(q.x - t.price) <= 1 OR q.k LIKE 'a%')",
        lambda: near(on="ABS(quotes.x - trades.price) <= 1 OR quotes.k LIKE 'a%'", within="5s"),
    ),
    "what reads one side, of WHERE": (
        f"SELECT * FROM quotes q JOIN trades t ON {WITHIN} WHERE price > 3 AND q.k = 'a' AND q.x < price",
        lambda: plait.join(quotes.where("k = 'a'"), trades.where("price > 3"), on="quotes.x < trades.price", within="5s"),
    ),
    "WHERE after an outer join": (
        f"SELECT * FROM quotes q LEFT JOIN trades t ON {WITHIN} WHERE price IS NULL",
        lambda: near(within="5s", how="left").where("price IS NULL"),
    ),
    "the row's own time, in WHERE": (
        f"SELECT price FROM quotes q JOIN trades t ON {WITHIN} WHERE ts > TIMESTAMP '2024-01-31 00:00:00+00:00'",
        lambda: near(within="5s").where("ts > CAST('2024-01-31 00:00:00+00:00' AS TIMESTAMP)").select("price"),
    ),
    "with itself": (
        "SELECT a.x AS ax, b.x AS bx FROM quotes a JOIN quotes b ON a.k = b.k AND abs(a.ts - b.ts) <= INTERVAL 5 SECONDS",
        lambda: plait.join(quotes, quotes, on="l.k = r.k", within="5s").select(ax="left_x", bx="right_x"),
    ),
    "columns of both": (
        "SELECT q.k, t.n AS tn, price * 2 AS twice, q.ts AS quoted, t.* EXCEPT (ts, k, x, n) "
        f"FROM quotes q, trades t WHERE {WITHIN}",
        lambda: near(within="5s").select(k="quotes_k", tn="trades_n", twice="price * 2", quoted="quotes_ts", price="price"),
    ),
    "of a join": (
        "SELECT * FROM quotes q JOIN trades t ON q.ts = t.ts "
        "JOIN ticks ON v = price AND q.ts - at BETWEEN INTERVAL 0 DAYS AND INTERVAL 9 DAYS",
        lambda: plait.join(near(within=0), ticks, on="r.v = l.price", within=("9 days", 0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "build"), JOINS.values(), ids=JOINS.keys())
def test_joins(text: str, build: Any) -> None:
    assert sql(text) == build()


def test_a_bound_to_one_side_of_a_join_is_wider_by_what_the_other_may_be_away() -> None:
    """`b` may be up to 1 s before `a`, so a row's ts up to 1 s after `b`'s: `c` may lie that much before it."""
    text = """SELECT * FROM quotes a JOIN trades b ON abs(a.ts - b.ts) <= INTERVAL 1 SECOND
              JOIN ticks c ON c.at BETWEEN b.ts AND b.ts + INTERVAL 5 SECONDS"""
    rest = "r.at * 1000000 - l.trades_ts >= 0 AND r.at * 1000000 - l.trades_ts <= 5000000"
    assert sql(text) == plait.join(near(within="1s"), ticks, on=rest, within=("1s", "5s"))


COMPUTE = {
    "count(*)": plait.count(),
    "count(1)": plait.count(),
    "count(x)": plait.count(where="NOT x IS NULL"),
    "count(x, n)": plait.count(where="NOT x IS NULL AND NOT n IS NULL"),
    "count(DISTINCT k)": plait.distinct("k"),
    "count_if(x > 1)": plait.count_where("x > 1"),
    "sum(x)": plait.sum("x"),
    "sum(x * n)": plait.sum("x * n"),
    "sum(x) FILTER (WHERE n > 2)": plait.sum("x", where="n > 2"),
    "count(*) FILTER (WHERE n > 2)": plait.count(where="n > 2"),
    "count(x) FILTER (WHERE n > 2 OR x < 1)": plait.count(where="(n > 2 OR x < 1) AND NOT x IS NULL"),
    "avg(x)": plait.mean("x"),
    "mean(x)": plait.mean("x"),
    "min(k)": plait.min("k"),
    "max(x)": plait.max("x"),
    "variance(x)": plait.var("x"),
    "var_samp(x)": plait.var("x"),
    "stddev(x)": plait.std("x"),
    "stddev_samp(x)": plait.std("x"),
    "std(x)": plait.std("x"),
    "covar_samp(x, n)": plait.covar("x", "n"),
    "corr(x, n)": plait.corr("x", "n"),
    "median(x)": plait.median("x"),
    "percentile(x, 0.9)": plait.quantile("x", 0.9, interpolate=True),
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY x)": plait.quantile("x", 0.9, interpolate=True),
    "percentile_disc(0.9) WITHIN GROUP (ORDER BY x)": plait.quantile("x", 0.9),
    "mode(k)": plait.mode("k"),
    "min_by(k, x)": plait.arg_min("k", "x"),
    "max_by(k, x)": plait.arg_max("k", "x"),
    "first(k)": plait.first("k"),
    "first_value(k)": plait.first("k"),
    "first(k) IGNORE NULLS": plait.first("k", where="NOT k IS NULL"),
    "first(k, true)": plait.first("k", where="NOT k IS NULL"),
    "last(k) FILTER (WHERE x > 1)": plait.last("k", where="x > 1"),
    "collect_list(x)": plait.collect("x", where="NOT x IS NULL"),
}


@pytest.mark.parametrize(("call", "function"), COMPUTE.items(), ids=COMPUTE.keys())
def test_aggregate_functions(call: str, function: Any) -> None:
    text = f"SELECT window.start AS window_start, window.end AS window_end, {call} AS f FROM quotes GROUP BY window(ts, '9 s')"
    assert sql(text) == plait.aggregate(quotes, size="9s", compute={"f": function})


def test_a_count_of_a_column_that_is_not_there_counts_nothing() -> None:
    rows = {
        "ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "k": ["a", None, "b"],
        "x": [1.0, 2.0, None],
        "n": [1, 2, 3],
    }
    text = "SELECT count(*) AS a, count(k) AS b, count(k, x) AS c, collect_list(x) AS d FROM quotes GROUP BY window(ts, '1 s')"
    found = sql(text).reference({"quotes": pa.table(rows, SCHEMA_OF_QUOTES)})
    assert found.drop_columns(["ts"]).to_pylist() == [{"a": 3, "b": 2, "c": 1, "d": [1.0, 2.0]}]


SCHEMA_OF_QUOTES = quotes.schema
EDGES = "window.start AS window_start, window.end AS window_end"

GROUPS = {
    "tumbling": (
        f"SELECT {EDGES}, k, count(*) AS n FROM quotes GROUP BY window(ts, '30 seconds'), k",
        lambda: plait.aggregate(quotes, size="30s", by="k", compute={"n": plait.count()}),
    ),
    "sliding": (
        f"SELECT {EDGES}, k, n, count(*) AS c FROM quotes GROUP BY k, window(ts, '30 seconds', '3 seconds'), n",
        lambda: plait.aggregate(quotes, size="30s", advance="3s", by=["k", "n"], compute={"c": plait.count()}),
    ),
    "by INTERVALs": (
        f"SELECT {EDGES}, count(*) AS n FROM quotes GROUP BY window(ts, INTERVAL 30 SECONDS, INTERVAL '3' SECOND, '0 seconds')",
        lambda: plait.aggregate(quotes, size="30s", advance="3s", compute={"n": plait.count()}),
    ),
    "sessions": (
        "SELECT session_window.start AS window_start, session_window(ts, '5 minutes').end AS window_end, k, sum(x) AS total "
        "FROM quotes GROUP BY session_window(ts, '5 minutes'), k",
        lambda: plait.aggregate(quotes, session="5 minutes", by="k", compute={"total": plait.sum("x")}),
    ),
    "of another time column": (
        f"SELECT {EDGES}, sum(v) AS total FROM ticks GROUP BY window(at, '1 minute')",
        lambda: plait.aggregate(ticks, size="1 min", compute={"total": plait.sum("v")}),
    ),
    "WHERE before, HAVING after": (
        "SELECT k, max(x) AS most FROM quotes WHERE x > 1 GROUP BY window(ts, '9 s'), k HAVING most > 2 AND count(*) > 3",
        lambda: plait.aggregate(
            quotes.where("x > 1"), size="9s", by="k", compute={"most": plait.max("x"), "count_1": plait.count()}
        )
        .where("most > 2 AND count_1 > 3")
        .select("k", "most"),
    ),
    "expressions of functions": (
        "SELECT k, sum(x * n) / sum(n) AS vwap, window.end AS closed FROM quotes GROUP BY window(ts, '9 s'), k",
        lambda: plait.aggregate(quotes, size="9s", by="k", compute={"sum_1": plait.sum("x * n"), "sum_2": plait.sum("n")}).select(
            "k", vwap="sum_1 / sum_2", closed="window_end"
        ),
    ),
    "expressions as keys": (
        f"SELECT {EDGES}, n % 2 AS odd, count(*) AS c FROM quotes GROUP BY window(ts, '9 s'), n % 2",
        lambda: plait.aggregate(quotes, size="9s", by={"odd": "n % 2"}, compute={"c": plait.count()}),
    ),
    "an alias as a key": (
        f"SELECT {EDGES}, n % 2 AS odd, count(*) AS c FROM quotes GROUP BY window(ts, '9 s'), odd",
        lambda: plait.aggregate(quotes, size="9s", by={"odd": "n % 2"}, compute={"c": plait.count()}),
    ),
    "a place as a key": (
        f"SELECT {EDGES}, k, count(*) AS c FROM quotes GROUP BY window(ts, '9 s'), 3",
        lambda: plait.aggregate(quotes, size="9s", by="k", compute={"c": plait.count()}),
    ),
    "over a join": (
        "SELECT q.k, count(*) AS c FROM quotes q JOIN trades t ON q.ts = t.ts GROUP BY window(ts, '9 s'), q.k",
        lambda: plait.aggregate(near(within=0), size="9s", by="quotes_k", compute={"c": plait.count()}).select(
            k="quotes_k", c="c"
        ),
    ),
    "by a time that is the row's own": (
        "SELECT count(*) AS c FROM quotes q JOIN trades t ON t.ts BETWEEN q.ts - INTERVAL 5 SECONDS AND q.ts "
        "GROUP BY window(q.ts, '9 s')",
        lambda: plait.aggregate(near(within=("5s", 0)), size="9s", compute={"c": plait.count()}).select("c"),
    ),
    "groups that are only named": (
        "SELECT k FROM quotes GROUP BY window(ts, '9 s'), k",
        lambda: plait.aggregate(quotes, size="9s", by="k", compute={"count_1": plait.count()}).select("k"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "build"), GROUPS.values(), ids=GROUPS.keys())
def test_groups(text: str, build: Any) -> None:
    assert sql(text) == build()


def test_groups_by_an_earlier_windows_edge_share_its_event_time() -> None:
    text = """
        WITH counts AS (SELECT k, count(*) AS n, window.start AS opened FROM quotes GROUP BY window(ts, '10 s', '2 s'), k),
             most AS (SELECT opened, max(n) AS n FROM counts GROUP BY opened)
        SELECT counts.k, counts.n, counts.opened FROM counts JOIN most ON counts.opened = most.opened AND counts.n = most.n
    """
    counts = plait.aggregate(quotes, size="10s", advance="2s", by="k", compute={"n": plait.count()})
    counts = counts.select("k", "n", opened="window_start").named("counts")
    most = (
        plait.aggregate(counts, size="2s", by="opened", compute={"n": plait.max("n")})
        .select("opened", "n")
        .named("most")
    )
    hot = plait.join(counts, most, on="counts.n = most.n", within=0)
    assert sql(text) == hot.select("k", n="counts_n", opened="counts_opened")


def test_a_bound_to_a_windows_end_is_a_microsecond_past_its_rows_ts() -> None:
    text = """SELECT * FROM quotes q JOIN (SELECT count(*) AS c, window.end AS closed FROM trades GROUP BY window(ts, '9 s')) AS w
              ON w.closed - q.ts BETWEEN INTERVAL 0 SECONDS AND INTERVAL 5 SECONDS"""
    counts = (
        plait.aggregate(trades, size="9s", compute={"c": plait.count()}).select("c", closed="window_end").named("w")
    )
    assert sql(text) == plait.join(quotes, counts, within=(1, 4_999_999))


def test_windows_whose_ends_are_no_multiples_of_their_step() -> None:
    """Windows of 10 s every 3 s end at 1 s past a multiple of 3 s: the groups' ts is 2 s later than the rows', all alike."""
    text = """
        WITH counts AS (SELECT k, count(*) AS n, window.start AS opened FROM quotes GROUP BY window(ts, '10 s', '3 s'), k),
             most AS (SELECT opened, max(n) AS most FROM counts GROUP BY opened)
        SELECT k, most FROM counts JOIN most ON counts.opened = most.opened
    """
    found = sql(text)
    assert "right from 0 us before to 2 s after left, on (most.opened = counts.opened)" in found.explain()
    rows = pa.table(
        {"ts": [s * 1_000_000 for s in range(40)], "k": ["a", "b"] * 20, "x": [0.0] * 40, "n": [0] * 40}
    ).cast(SCHEMA_OF_QUOTES)
    windows = {
        (w, k) for s in range(40) for k in ["ab"[s % 2]] for w in range(-9, 40) if w % 3 == 0 and w <= s < w + 10
    }
    assert found.reference({"quotes": rows}).num_rows == len(windows)


SUBQUERIES = {
    "FROM a subquery": (
        "SELECT k, twice FROM (SELECT k, x * 2 AS twice, ts FROM quotes WHERE x > 0) big WHERE twice < 9",
        lambda: quotes.where("x > 0").select("k", twice="x * 2", ts="ts").named("big").where("twice < 9").select("k", "twice"),
    ),
    "WITH": (
        "WITH a AS (SELECT ts, x FROM quotes), b AS (SELECT * FROM a WHERE x > 1) SELECT x AS y FROM b",
        lambda: quotes.select("ts", "x").named("a").where("x > 1").named("b").select(y="x"),
    ),
    "an aggregate of an aggregate": (
        "SELECT max(n) AS peak FROM (SELECT count(*) AS n FROM quotes GROUP BY window(ts, '1 s')) AS c "
        "GROUP BY window(ts, '1 min')",
        lambda: plait.aggregate(
            plait.aggregate(quotes, size="1s", compute={"n": plait.count()}).select("n").named("c"),
            size="1 min",
            compute={"peak": plait.max("n")},
        ).select("peak"),
    ),
    "UNION ALL": (
        "SELECT k, x FROM quotes UNION ALL SELECT k, price FROM trades",
        lambda: plait.union(quotes.select("k", "x"), trades.select("k", "price").rename(x="price")),
    ),
    "a stream as it is": ("SELECT * FROM quotes", lambda: plait.union(quotes)),
    "all columns and more": (
        "SELECT *, x + n AS y FROM quotes",
        lambda: quotes.select("ts", "k", "x", "n", y="x + n"),
    ),
    "the row's own time, once": (
        f"SELECT ts, price FROM (SELECT * FROM quotes q JOIN trades t ON {WITHIN}) AS p",
        lambda: near(within="5s").named("p").select("price"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "build"), SUBQUERIES.values(), ids=SUBQUERIES.keys())
def test_queries_of_queries(text: str, build: Any) -> None:
    assert sql(text) == build()


# --- what a text may name ---


def test_names_know_no_case_and_quotes_are_names() -> None:
    odd = plait.stream("odd", schema={"ts": "timestamp", "a b": "int64", "select": "int64", "X": "int64"})
    found = plait.sql("SELECT `a b` AS c, `select`, x FROM ODD o WHERE o.x > 1 AND O.`a b` < 3", streams=[odd])
    assert found == odd.where("X > 1 AND `a b` < 3").select(c="`a b`", select="`select`", x="X")


def test_streams_by_another_name_and_queries() -> None:
    big = trades.where("price > 100")
    found = plait.sql("SELECT k FROM big WHERE n = 1", streams={"big": big, "q": quotes}, name="found")
    assert found == big.where("n = 1").select("k").named("found")
    assert plait.sql("SELECT k FROM q", streams={"q": quotes}) == plait.sql("SELECT k FROM quotes", streams=quotes)


def test_columns_that_a_stream_does_not_declare() -> None:
    open_ = plait.stream("open")
    assert plait.sql("SELECT a, b * 2 AS c FROM open WHERE d > 1", streams=[open_]) == open_.where("d > 1").select(
        "a", c="b * 2"
    )
    found = plait.sql("SELECT * FROM open JOIN quotes q ON open.a = q.k AND open.ts = q.ts", streams=[open_, quotes])
    assert found == plait.join(open_, quotes, on="open.a = quotes.k", within=0)
    schemas = {"open": pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.string())])}
    known = plait.sql("SELECT o.k FROM open o JOIN quotes q ON o.ts = q.ts", streams=[open_, quotes], schemas=schemas)
    assert known == plait.join(open_, quotes, within=0).select(k="open_k")


def test_columns_that_a_text_names_are_all_that_a_join_of_undeclared_streams_has() -> None:
    one, two = plait.stream("one", unit="s"), plait.stream("two", time="at", unit="s")
    text = """SELECT one.a, count(*) AS n FROM one JOIN two t ON one.k = t.k AND abs(one.ts - t.at) <= INTERVAL 5 SECONDS
              WHERE t.v > 3 GROUP BY window(ts, '9 s'), one.a HAVING n > 1"""
    by_hand = plait.join(
        one.select("ts", "a", "k"), two.select("at", "k", "v").where("v > 3"), on="one.k = two.k", within="5s"
    )
    with pytest.raises(plait.QueryError, match="window is of the rows' event time"):
        plait.sql(text, streams=[one, two])  # `ts` alone is `one`'s, which is not the row's
    text = (
        text.replace("FROM one JOIN two t ON", "FROM (SELECT one.a, t.v FROM one JOIN two t ON")
        .replace(
            "WHERE t.v > 3 GROUP BY window(ts, '9 s'), one.a", ") AS both WHERE v > 3 GROUP BY window(ts, '9 s'), a"
        )
        .replace("SELECT one.a, count", "SELECT a, count")
    )
    pairs = plait.join(one.select("ts", "a", "k"), two.select("at", "v", "k"), on="one.k = two.k", within="5s")
    counts = plait.aggregate(
        pairs.select("a", "v").named("both").where("v > 3"), size="9s", by="a", compute={"n": plait.count()}
    )
    assert plait.sql(text, streams=[one, two]) == counts.where("n > 1").select("a", "n")
    rows = {"one": {"ts": [1, 2], "k": [1, 1], "a": ["x", "x"], "z": [0, 0]}, "two": {"at": [3], "k": [1], "v": [4]}}
    assert plait.sql(text, streams=[one, two]).reference(rows)["n"].to_pylist() == [2]
    assert by_hand.reference(rows).num_rows == 2


def test_a_hand_written_condition_in_python_gives_the_same_rows() -> None:
    rows = {
        "quotes": {"ts": [1, 2, 9], "k": ["a", "b", "a"], "x": [1.0, 2.0, 3.0], "n": [1, 2, 3]},
        "trades": {
            "ts": [2, 3, 8],
            "k": ["a", "b", "a"],
            "x": [1.0, 2.0, 3.0],
            "n": [1, 2, 3],
            "price": [1.0, 2.5, 9.0],
        },
    }
    data = {
        name: pa.table(columns).cast(stream.schema)
        for (name, columns), stream in zip(rows.items(), STREAMS, strict=False)
    }
    near = "abs(q.x - t.price) <= 1 AND abs(q.ts - t.ts) <= INTERVAL 5 MICROSECONDS"
    text = f"SELECT q.k, price FROM quotes q JOIN trades t ON {near}"
    by_hand = plait.join(quotes, trades, on=lambda q, t: abs(q.x - t.price) <= 1, within=5).select(
        "price", k="quotes_k"
    )
    found, expected = sql(text).reference(data), by_hand.reference(data)
    assert expected.num_rows == 3
    assert difference(expected.select(["ts", "k", "price"]), found) is None


ONE = plait.stream("one", unit="us", schema={"ts": "int64", "k": "int64"})
COUNTS = plait.aggregate(ONE, size="1us", compute={"k": plait.max("k")}, name="counts")


@pytest.mark.parametrize("text", [
    "SELECT k FROM counts UNION ALL SELECT k FROM one",
    "SELECT k FROM one UNION ALL SELECT k FROM counts",
    "SELECT ts, k FROM one UNION ALL SELECT k AS other FROM counts",
    "SELECT k FROM one UNION ALL SELECT ts, k FROM one",
])  # fmt: skip
def test_unions_of_streams_and_queries(text: str) -> None:
    """Every row has a ts, whether it is listed or not."""
    query = plait.sql(text, streams=[ONE, COUNTS])
    assert query.reference({"one": {"ts": [1, 2], "k": [1, 2]}}).to_pydict() == {"ts": [1, 1, 2, 2], "k": [1, 1, 2, 2]}


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN", "FULL JOIN"])
def test_a_table_joined_with_itself_any_number_of_times(kind: str) -> None:
    """The names that plait gives to columns which several tables have are not in the text's way."""
    text = f"""
        SELECT a.k AS a, b.k AS b, c.k AS c, d.k AS d FROM one a JOIN one b ON a.ts = b.ts
        {kind} one c ON b.ts = c.ts AND a.k = c.k {kind} (SELECT ts, k + 1 AS k FROM one) d ON d.ts = a.ts
    """
    query = plait.sql(text, streams=[ONE])
    assert query.reference({"one": {"ts": [1, 2], "k": [1, 2]}}).to_pydict() == {
        "ts": [1, 2], "a": [1, 2], "b": [1, 2], "c": [1, 2], "d": [2, 3],
    }  # fmt: skip
