"""DuckDB as an outside judge: the same tables, the same question in SQL, whole rows compared in order.

DuckDB knows no total order, so every row is given its place: `pos`, its number among the tuples of both streams by
(ts, input, source, seq). Results are ordered in SQL by explicit keys made of that.

It is no judge of some rows, which are left out here and judged by the definition alone (test_conditions.py): it says
NaN = NaN and sorts NaN highest; it rounds where a cast to an integer drops the fraction; its variance is not exact.
Dividing by zero gives NULL in both once its IEEE division is switched off.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.strategies import batch

import plait

SCHEMA = pa.schema([("ts", pa.int64()), ("src", pa.int32()), ("k", pa.int64()), ("w", pa.int8()), ("x", pa.float64()),
                    ("q", pa.float32()), ("s", pa.string())])  # fmt: skip

# Any order inside a source is allowed, so that ties and disorder come by themselves and nothing is late.
A, B = (plait.stream(name, unit="us", source="src", disorder="1h") for name in "ab")

Row = tuple[Any, ...]
Tables = tuple[list[Row], list[Row]]

_VALUES = ((0, 1, 2, 3, -2, None), (0, 1, -128, 127, None), (0.25, 0.5, 1.0, 1.5, -2.75, None), (0.5, 1.5, None),
           ("a", "b", "", "é", None))  # fmt: skip


def rows(max_size: int = 8) -> st.SearchStrategy[list[Row]]:
    values = (st.sampled_from(column) for column in _VALUES)
    return st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), *values), max_size=max_size)


def seeded(seed: int, count: int, span: int) -> list[Row]:
    """Many rows: in time from -span to span, roughly in order, over five sources."""
    chance = random.Random(seed)
    times = sorted(chance.randint(-span, span) for _ in range(count))
    return [(ts + chance.randint(-3, 3), chance.randint(-2, 2), *(chance.choice(c) for c in _VALUES)) for ts in times]


#: Two tables to be drawn by hypothesis, and two larger ones that are the same in every run.
SMALL = st.tuples(rows(), rows())
LARGE: Tables = (seeded(1, 300, 400), seeded(2, 350, 400))


def tables(given: Tables) -> dict[str, pa.Table]:
    return {name: pa.Table.from_batches([batch(SCHEMA, each)]) for name, each in zip("ab", given, strict=True)}


# --- asking DuckDB ------------------------------------------------------------------------------------------

_PLACES = """
    create or replace view {name} as select t.*, p.pos, p.pos_a, p.pos_b from raw_{name} t join (
        select input, n, row_number() over places as pos,
               count(*) filter (input = 0) over places as pos_a, count(*) filter (input = 1) over places as pos_b
        from (select 0 as input, ts, src, seq, n from raw_a union all select 1, ts, src, seq, n from raw_b)
        window places as (order by ts, input, src, seq)
    ) p on p.n = t.n and p.input = {input}
"""


@pytest.fixture(scope="session")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("set threads = 1; set ieee_floating_point_ops = false")
    with contextlib.suppress(duckdb.CatalogException):  # before 2.0 a division by zero was NULL, and had no setting
        connection.execute("set error_on_division_by_zero = false")
    return connection


def load(duck: duckdb.DuckDBPyConnection, data: dict[str, pa.Table]) -> None:
    """Views a and b with each row's place: `pos` over both; `pos_a` and `pos_b` count one stream's tuples up to it."""
    for name, table in data.items():
        duck.register("incoming", table.append_column("n", pa.array(range(len(table)), pa.int64())))
        duck.execute(f"create or replace table raw_{name} as select *, "
                     "row_number() over (partition by src order by n) as seq from incoming")  # fmt: skip
        duck.unregister("incoming")
    for number, name in enumerate("ab"):
        duck.execute(_PLACES.format(name=name, input=number))


def check(duck: duckdb.DuckDBPyConnection, query: plait.Query, given: Tables, sql: str) -> None:
    data = tables(given)
    load(duck, data)
    result = query.reference({name: data[name] for name in query.streams()})
    answer = duck.sql(sql).to_arrow_table()
    # DuckDB's names and widths are its own; the definition judges those.
    assert_same(result, answer.rename_columns(result.schema.names).cast(result.schema))


LEFT = "l.ts, l.src, l.k, l.w, l.x, l.q, l.s"
RIGHT = "r.ts, r.src, r.k, r.w, r.x, r.q, r.s"

#: Of two tuples the later one is the trigger, and the result has its ts.
TRIGGER, PARTNER = "greatest(l.pos, r.pos)", "least(l.pos, r.pos)"


def inner_sql(fits: str, on: str) -> str:
    return (f"select greatest(l.ts, r.ts), {LEFT}, {RIGHT} from a l join b r on ({fits}) and ({on}) "
            f"order by {TRIGGER}, {PARTNER}")  # fmt: skip


def within(before: int, after: int) -> str:
    return f"r.ts - l.ts between {-before} and {after}"


def join_sql(how: str, before: int, after: int, on: str) -> str:
    """Every kind of join over a time window. Unmatched rows follow the results at their ts, left ones first, by their place."""
    matched = f"({within(before, after)}) and ({on})"
    pairs = (f"select greatest(l.ts, r.ts) as ts, 0 as unmatched, {TRIGGER} as t, {PARTNER} as p, l.pos as lpos, "
             f"r.pos as rpos from a l join b r on {matched}")  # fmt: skip
    lone = (f"select l.ts + {after}, 1, l.pos, 0, l.pos, null from a l "
            f"where not exists (select 1 from b r where {matched})")  # fmt: skip
    other = (f"select r.ts + {before}, 2, r.pos, 0, null, r.pos from b r "
             f"where not exists (select 1 from a l where {matched})")  # fmt: skip
    first = f"select * from ({pairs}) qualify row_number() over (partition by lpos order by t, p) = 1"
    chosen = {"inner": pairs, "left": f"{pairs} union all {lone}", "right": f"{pairs} union all {other}",
              "full": f"{pairs} union all {lone} union all {other}", "semi": first, "anti": lone}[how]  # fmt: skip
    columns = LEFT if how in ("semi", "anti") else f"{LEFT}, {RIGHT}"
    return (f"select c.ts, {columns} from ({chosen}) as c(ts, unmatched, t, p, lpos, rpos) left join a l on l.pos = c.lpos "
            f"left join b r on r.pos = c.rpos order by c.ts, unmatched, t, p")  # fmt: skip


# --- joins --------------------------------------------------------------------------------------------------

HOWS = ("inner", "left", "right", "full", "semi", "anti")
CONDITIONS = ("true", "l.k = r.k", "abs(l.k - r.k) <= 1 and abs(l.x - r.x) <= 1.0", "l.s = r.s or l.w > r.w")


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(25))
@given(data=SMALL, before=st.integers(0, 4), after=st.integers(0, 4), on=st.sampled_from(CONDITIONS))
def test_time_window(duck: Any, how: str, data: Tables, before: int, after: int, on: str) -> None:
    query = plait.join(A, B, on=on, within=(before, after), how=how)
    check(duck, query, data, join_sql(how, before, after, on))


@pytest.mark.crossed
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", CONDITIONS)
def test_time_window_over_many_rows(duck: Any, how: str, on: str) -> None:
    check(duck, plait.join(A, B, on=on, within=(9, 5), how=how), LARGE, join_sql(how, 9, 5, on))


def last_sql(count: int, on: str) -> str:
    """A pair fits if fewer than `count` tuples of the earlier one's stream lie after it and before the later one."""
    fits = f"case when l.pos < r.pos then r.pos_a - l.pos_a < {count} else l.pos_b - r.pos_b < {count} end"
    return inner_sql(fits, on)


@settings(max_examples=examples(25))
@given(data=SMALL, count=st.integers(1, 5), on=st.sampled_from(CONDITIONS))
def test_count_window(duck: Any, data: Tables, count: int, on: str) -> None:
    check(duck, plait.join(A, B, on=on, last=count), data, last_sql(count, on))


def test_count_window_over_many_rows(duck: Any) -> None:
    check(duck, plait.join(A, B, on=CONDITIONS[1], last=40), LARGE, last_sql(40, CONDITIONS[1]))


def tumbling_sql(size: int, on: str) -> str:
    # DuckDB's // truncates, so the division is done on floats that are exact here.
    return inner_sql(f"floor(l.ts / {size}) = floor(r.ts / {size})", on)


@settings(max_examples=examples(25))
@given(data=SMALL, size=st.integers(1, 6), on=st.sampled_from(CONDITIONS))
def test_tumbling_window(duck: Any, data: Tables, size: int, on: str) -> None:
    check(duck, plait.join(A, B, on=on, tumbling=size), data, tumbling_sql(size, on))


def test_tumbling_window_over_many_rows(duck: Any) -> None:
    check(duck, plait.join(A, B, on=CONDITIONS[3], tumbling=11), LARGE, tumbling_sql(11, CONDITIONS[3]))


def tumbling_count_sql(count: int, on: str) -> str:
    """A pair fits if the earlier tuple and the last of its stream before the later one have the same number, by `count`s."""
    fits = (f"case when l.pos < r.pos then (l.pos_a - 1) // {count} = (r.pos_a - 1) // {count} "
            f"else (r.pos_b - 1) // {count} = (l.pos_b - 1) // {count} end")  # fmt: skip
    return inner_sql(fits, on)


@settings(max_examples=examples(25))
@given(data=SMALL, count=st.integers(1, 5), on=st.sampled_from(CONDITIONS))
def test_tumbling_count_window(duck: Any, data: Tables, count: int, on: str) -> None:
    check(duck, plait.join(A, B, on=on, tumbling_count=count), data, tumbling_count_sql(count, on))


def test_tumbling_count_window_over_many_rows(duck: Any) -> None:
    check(duck, plait.join(A, B, on=CONDITIONS[1], tumbling_count=40), LARGE, tumbling_count_sql(40, CONDITIONS[1]))


def test_a_stream_joined_with_itself(duck: Any) -> None:
    """The left copy of a tuple stands before its right copy, so each also meets itself."""
    rows_a = LARGE[0][:150]
    sql = join_sql("left", 3, 2, "l.k = r.k and l.x <= r.x")
    query = plait.join(A, A, on="l.k = r.k and l.x <= r.x", within=(3, 2), how="left")
    check(duck, query, (rows_a, rows_a), sql)


# --- as-of --------------------------------------------------------------------------------------------------


# --- dedup --------------------------------------------------------------------------------------------------

DEDUP_KEYS = (("k",), ("s",), ("k", "s"))


def dedup_sql(by: tuple[str, ...], within: int) -> str:
    """Of each key its first row; then, again and again, its first row that lies further than the span behind the last one."""
    same = " and ".join(f"a.{c} is not distinct from kept.{c}" for c in by)
    keys = ", ".join(by)
    first = f"select {keys}, pos, ts from a qualify row_number() over (partition by {keys} order by pos) = 1"
    own = ", ".join(f"a.{c}" for c in by)
    later = (f"select {own}, a.pos, a.ts, row_number() over (partition by kept.pos order by a.pos) as turn from kept "
             f" join a on {same} and a.ts > kept.ts + {within}")  # fmt: skip
    return (f"with recursive kept as ({first} union all select {keys}, pos, ts from ({later}) where turn = 1) "
            f"select ts, src, k, w, x, q, s from a where pos in (select pos from kept) order by pos")  # fmt: skip


@pytest.mark.parametrize("by", DEDUP_KEYS)
@settings(max_examples=examples(25))
@given(data=SMALL, within=st.sampled_from((0, 1, 2, 5)))
def test_dedup(duck: Any, by: tuple[str, ...], data: Tables, within: int) -> None:
    check(duck, plait.dedup(A, by=by, within=within), data, dedup_sql(by, within))


@pytest.mark.parametrize("by", DEDUP_KEYS)
def test_dedup_over_many_rows(duck: Any, by: tuple[str, ...]) -> None:
    check(duck, plait.dedup(A, by=by, within=7), LARGE, dedup_sql(by, 7))
    first = f"select ts, src, k, w, x, q, s from a qualify row_number() over (partition by {', '.join(by)} order by pos) = 1"
    check(duck, plait.dedup(A, by=by, within=2**61), LARGE, f"{first} order by pos")


def asof_sql(by: Sequence[str], age: int | None, how: str, exact: bool) -> str:
    """`pos` is unique over both streams, so DuckDB's ASOF finds the last tuple before, of whatever ts; or that at the ts, too:
    `edge` is the place of the last tuple of any stream there.
    """
    edge = "(select max(t.pos) from (select pos, ts from a union all select pos, ts from b) t where t.ts <= a.ts)"
    left = f"(select a.*, {edge if exact else 'a.pos'} as edge from a)"
    equal = " and ".join(f"l.{column} = r.{column}" for column in by) or "true"
    young = "true" if age is None else f"l.ts - r.ts <= {age}"
    found = (
        f"select l.pos as lpos, r.pos as rpos from {left} l asof join b r on {equal} and l.edge >= r.pos where {young}"
    )
    kind = "left join" if how == "left" else "join"
    return (f"select l.ts, {LEFT}, {RIGHT} from a l {kind} ({found}) f on f.lpos = l.pos "
            f"left join b r on r.pos = f.rpos order by l.pos")  # fmt: skip


@settings(max_examples=examples(30))
@given(data=SMALL, by=st.sampled_from(((), ("k",), ("s", "w"))), age=st.sampled_from((None, 0, 2, 5)),
       how=st.sampled_from(("left", "inner")), exact=st.booleans())  # fmt: skip
def test_asof(duck: Any, data: Tables, by: tuple[str, ...], age: int | None, how: str, exact: bool) -> None:
    check(duck, plait.asof(A, B, by=list(by), within=age, how=how, exact=exact), data, asof_sql(by, age, how, exact))


@pytest.mark.parametrize("by", [(), ("k",), ("s", "w")])
def test_asof_over_many_rows(duck: Any, by: tuple[str, ...]) -> None:
    for exact in (True, False):
        query = plait.asof(A, B, by=list(by), within=30, exact=exact)
        check(duck, query, LARGE, asof_sql(by, 30, "left", exact))


# --- aggregates ---------------------------------------------------------------------------------------------

COMPUTE = {
    "n": plait.count(), "sum_k": plait.sum("k"), "sum_x": plait.sum("x"), "mean_x": plait.mean("x"),
    "min_x": plait.min("x"), "max_s": plait.max("s"), "first_x": plait.first("x"), "last_s": plait.last("s"),
    "all_k": plait.collect("k"), "kinds": plait.distinct("s"), "some": plait.count_where("row.k > 0"),
    "hit": plait.first_where("s", "row.k > 0"), "low_k": plait.quantile("k", 0.25), "p90_x": plait.quantile("x", 0.9),
    "mid_x": plait.median("x"), "cheap": plait.arg_min("s", "x"), "dear": plait.arg_max("w", "x"),
    "best": plait.top("w", 2, by="x"), "sum_of": plait.sum("x", where="k > 0"), "most_of": plait.max("s", where="x < 1"),
    "kinds_of": plait.distinct("k", where="s = 'a'"),
}  # fmt: skip

# All x are multiples of 1/4, so that DuckDB's sums are exact, and its mean rounded once.
COMPUTE_SQL = """
    count(*), sum(k)::bigint, sum(x), avg(x), min(x), max(s), arg_min_null(x, pos), arg_max_null(s, pos),
    list(k order by pos), count(distinct s), count(*) filter (k > 0), arg_min_null(s, pos) filter (k > 0),
    quantile_disc(k, 0.25), quantile_disc(x, 0.9), quantile_cont(x, 0.5),
    arg_min_null(s, (x, pos)) filter (x is not null), arg_max_null(w, (x, -pos)) filter (x is not null),
    coalesce((list(w order by x desc, pos) filter (x is not null))[:2], []), sum(x) filter (k > 0), max(s) filter (x < 1),
    count(distinct k) filter (s = 'a')
"""


def aggregate_sql(windows: str, by: Sequence[str], order: str) -> str:
    """`windows` are the rows of `a` once for each window they are in, with its start and end."""
    keys = "".join(f"{column}, " for column in by)
    groups = ", ".join(("start", "stop", *by))
    return f"select {order}, start, stop, {keys}{COMPUTE_SQL} from ({windows}) group by {groups}"


def span_sql(size: int, advance: int, by: Sequence[str]) -> str:
    """Every window number k from before the first tuple to after the last one."""
    numbers = (f"select unnest(generate_series(floor((min(ts) - {size}) / {advance})::bigint, "
               f"floor(max(ts) / {advance})::bigint)) as number from a")  # fmt: skip
    spans = f"select number * {advance} as start, number * {advance} + {size} as stop from ({numbers})"
    windows = f"select a.*, start, stop from ({spans}) join a on a.ts >= start and a.ts < stop"
    keys = ", ".join(("stop", *(f"{column} nulls last" for column in by)))
    return aggregate_sql(windows, by, "stop - 1") + f" order by {keys}"


def count_sql(size: int, advance: int, by: Sequence[str]) -> str:
    """Windows of a key's tuples by their number within it; only full ones, ordered by the tuple that closes them."""
    part = f"partition by {', '.join(by)} " if by else ""
    numbered = f"select *, row_number() over ({part}order by pos) - 1 as rank from a"
    numbers = "select unnest(generate_series(0, (select count(*) from a))) as number"
    spans = f"select number * {advance} as start, number * {advance} + {size} as stop from ({numbers})"
    windows = f"select n.*, start, stop from ({numbered}) n join ({spans}) on rank >= start and rank < stop"
    return aggregate_sql(windows, by, "arg_max(ts, pos)") + f" having count(*) = {size} order by max(pos)"


KEYS = st.sampled_from(((), ("k",), ("s",), ("s", "k")))


@settings(max_examples=examples(40))
@given(given_rows=rows(12), size=st.integers(1, 6), advance=st.integers(1, 6), by=KEYS)
def test_windows_of_time(duck: Any, given_rows: list[Row], size: int, advance: int, by: tuple[str, ...]) -> None:
    query = plait.aggregate(A, size=f"{size}us", advance=f"{advance}us", by=by, compute=COMPUTE)
    check(duck, query, (given_rows, []), span_sql(size, advance, by))


@settings(max_examples=examples(40))
@given(given_rows=rows(12), size=st.integers(1, 4), advance=st.integers(1, 4), by=KEYS)
def test_windows_of_tuples(duck: Any, given_rows: list[Row], size: int, advance: int, by: tuple[str, ...]) -> None:
    query = plait.aggregate(A, size=size, advance=advance, by=by, compute=COMPUTE)
    check(duck, query, (given_rows, []), count_sql(size, advance, by))


@pytest.mark.parametrize("by", [(), ("k",), ("s", "k")])
def test_windows_over_many_rows(duck: Any, by: tuple[str, ...]) -> None:
    spans = plait.aggregate(A, size="30us", advance="7us", by=by, compute=COMPUTE)
    check(duck, spans, LARGE, span_sql(30, 7, by))
    counts = plait.aggregate(A, size=10, advance=3, by=by, compute=COMPUTE)
    check(duck, counts, LARGE, count_sql(10, 3, by))


MOMENTS = {
    "var_samp(x)": plait.var("x"), "var_samp(k)": plait.var("k"), "stddev_samp(x)": plait.std("x"),
    "stddev_samp(k) filter (x > 0)": plait.std("k", where="x > 0"), "covar_samp(x, k)": plait.covar("x", "k"),
    # Of a constant DuckDB says NaN.
    "case when var_pop(x) > 0 and var_pop(k) > 0 then corr(x, k) end": plait.corr("x", "k"),
}  # fmt: skip


def test_moments_up_to_rounding(duck: Any) -> None:
    """DuckDB's are not exact: the definition judges the last bits."""
    compute = {f"m{number}": function for number, function in enumerate(MOMENTS.values())}
    query = plait.aggregate(A, size="30us", by="s", compute=compute)
    # Of pairs with a NULL in them DuckDB's deviations are not of the pairs.
    x, k = SCHEMA.get_field_index("x"), SCHEMA.get_field_index("k")
    data = tables(([row for row in LARGE[0] if row[x] is not None and row[k] is not None], []))
    load(duck, data)
    answer = duck.execute(
        f"select {', '.join(MOMENTS)} from a group by floor(ts / 30), s order by floor(ts / 30), s nulls last"
    ).fetchall()
    result = query.reference({"a": data["a"]})
    assert len(answer) == result.num_rows > 20
    for expected, row in zip(answer, result.to_pylist(), strict=True):
        for name, value in zip(compute, expected, strict=True):
            assert row[name] == (None if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), name


# --- queries over queries -----------------------------------------------------------------------------------


def test_an_aggregate_of_a_join(duck: Any) -> None:
    """The windows of a join's results, in their order: by trigger, then partner."""
    join = plait.join(A, B, on="l.k = r.k", within=4)
    query = plait.aggregate(join, size="20us", by="a_s", compute={
        "n": plait.count(), "total": plait.sum("b_w"), "first": plait.first("b_x"), "all": plait.collect("a_w"),
    })  # fmt: skip
    pairs = (f"select greatest(l.ts, r.ts) as ts, l.s as a_s, r.w as b_w, r.x as b_x, l.w as a_w, "
             f"row_number() over (order by {TRIGGER}, {PARTNER}) as pos "
             f"from a l join b r on {within(4, 4)} and l.k = r.k")  # fmt: skip
    sql = f"""
        select (k + 1) * 20 - 1, k * 20, (k + 1) * 20, a_s, count(*), sum(b_w)::bigint, arg_min_null(b_x, pos),
               list(a_w order by pos)
        from (select *, floor(ts / 20)::bigint as k from ({pairs})) group by k, a_s order by k, a_s nulls last
    """
    check(duck, query, LARGE, sql)


def test_a_join_of_an_aggregate(duck: Any) -> None:
    """A window's row stands at its last microsecond, and of equal ts the left input comes first."""
    windows = plait.aggregate(A, size="10us", by="k", compute={"n": plait.count()}, name="w")
    query = plait.join(windows, B, on="w.k = b.k", within=(3, 6))
    sql = f"""
        with w as (select (floor(ts / 10)::bigint + 1) * 10 - 1 as ts, floor(ts / 10)::bigint * 10 as start,
                          floor(ts / 10)::bigint * 10 + 10 as stop, k, count(*) as n from a group by all)
        select greatest(l.ts, r.ts), l.ts, l.start, l.stop, l.k, l.n, {RIGHT}
        from w l join b r on {within(3, 6)} and l.k = r.k
        -- the trigger's (ts, input, own key), then the partner's
        order by greatest(l.ts, r.ts), r.ts >= l.ts, case when r.ts >= l.ts then r.pos end, l.ts, l.k nulls last, r.pos
    """
    check(duck, query, LARGE, sql)


# --- values: the same text on both sides --------------------------------------------------------------------

PREDICATES = (
    # NULL
    "l.k = r.k", "l.k <> r.k", "not (l.k = r.k)", "l.k is null and r.k is not null", "l.k = r.k or l.x > r.x",
    "not (l.k < r.k and l.x < r.x)", "l.k in (1, 2)", "l.k not in (1, 2)", "l.k in (1, null)", "l.k not in (1, null)",
    "l.k = null", "l.k between r.k and r.k + 1", "l.k not between 0 and r.k", "l.s = r.s", "l.s <> 'a'",
    "least(l.k, r.k) = 1", "greatest(l.x, r.x, 1.0) = 1.0", "(l.k = 1) = (r.k = 1)",
    # division and remainder: floats, NULL for zero, the sign of the dividend
    "l.k / r.k > 0.3", "l.x / r.k <= 1", "l.k / 2 = 0.5", "l.k % r.k = 1", "l.k % 2 = r.k % 3", "l.x % r.x = 0.5",
    "l.k % -2 = -0.0", "-l.k % 2 = 0", "r.w % l.k = -1",
    # arithmetic that leaves the column's type
    "l.w::int + r.w > 127", "l.w::int * r.w = 16384", "abs(l.w::int) = 128",
    # widths of floats, and integers that meet them
    "l.x = r.q", "l.q + r.q = 2.0", "l.w + r.x >= 0.5", "l.q < r.k", "l.x * 2 = r.k",
)  # fmt: skip


@pytest.mark.parametrize("on", PREDICATES)
def test_a_predicate(duck: Any, on: str) -> None:
    """plait's integers do not overflow, DuckDB's do: there they are widened first, which changes nothing else."""
    query = plait.join(A, B, on=on.replace("::int", ""), within=6)
    check(duck, query, (LARGE[0][:120], LARGE[1][:120]), inner_sql(within(6, 6), on))


BIG = (0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53, 2**62, None)
_BIG_PREDICATES = {
    "l.i + r.i > 9223372036854775807": "l.i::hugeint + r.i > 9223372036854775807",
    "l.i - r.i < -9223372036854775808": "l.i::hugeint - r.i < -9223372036854775808",
    "l.i * r.i > 85070591730234615847396907784232501248": "l.i::hugeint * r.i > 85070591730234615847396907784232501248",
    "abs(l.i) > 9223372036854775807": "abs(l.i::hugeint) > 9223372036854775807",
    "-l.i > 9223372036854775807": "-(l.i::hugeint) > 9223372036854775807",
    "l.i = r.u": "l.i = r.u",
    "l.i < r.u": "l.i < r.u",
    "l.u - r.u < 0": "l.u::hugeint - r.u < 0",
    # An integer that meets a float64 becomes one: 2^53 + 1 is then 2^53.
    "l.i = r.f": "l.i = r.f",
    "l.u > r.f": "l.u > r.f",
}


@pytest.mark.parametrize("on", _BIG_PREDICATES)
def test_integers_do_not_overflow(duck: Any, on: str) -> None:
    big = pa.table({
        "ts": [0] * len(BIG), "i": pa.array(BIG, pa.int64()),
        "u": pa.array([None if v is None else v % 2**64 for v in BIG], pa.uint64()),
        "f": pa.array([None if v is None else float(v) for v in BIG], pa.float64()),
    })  # fmt: skip
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    result = plait.join(a, b, on=on, within=0).reference({"a": big, "b": big})
    duck.register("big", big.append_column("n", pa.array(range(len(BIG)))))
    answer = duck.sql(
        "select greatest(l.ts, r.ts), l.* exclude n, r.* exclude n "
        f"from big l join big r on {_BIG_PREDICATES[on]} order by r.n, l.n"
    ).to_arrow_table()
    assert_same(result, answer.rename_columns(result.schema.names).cast(result.schema))
