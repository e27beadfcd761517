"""Joins, as-of joins, aggregates and operators as descriptions: frozen values with every option read."""

import dataclasses
import datetime as dt
import inspect
import pickle
from typing import Any

import pyarrow as pa
import pytest
from tests.query.refusal import quotes, trades

import plait
from plait import QueryError
from plait.query.aggregate import SpanWindow, TupleWindow
from plait.query.base import ORDERS, check_order, has_executor
from plait.query.join import CountWindow, TimeWindow, TumblingCountWindow, TumblingWindow, side_names
from plait.query.operator import Timer

N = {"n": plait.count()}


def an_operator(**options: Any) -> plait.Query:
    given: dict[str, Any] = {"route": hash, "state": dict, "process": lambda s, t: None, "output": {"n": "int64"}}
    return plait.operator(quotes, **({"buckets": 4} | given | options))


QUERIES = {
    "join": lambda **options: plait.join(quotes, trades, last=1, **options),
    "asof": lambda **options: plait.asof(quotes, trades, **options),
    "aggregate": lambda **options: plait.aggregate(quotes, size=1, compute=N, **options),
    "operator": an_operator,
}


#: Queries of the same words that compute other things.
UNLIKE = {
    "keys by expressions": [plait.aggregate(quotes, size=1, by={"o": e}, compute=N) for e in ("bid % 2", "bid % 3")],
    "keys by a column and an expression": [
        plait.aggregate(quotes, size=1, by={"o": e}, compute=N) for e in ("bid", "bid + 0")
    ],
    "opaque functions": [
        plait.aggregate(quotes, size=1, compute={"s": plait.sum((given, "int64"))})
        for given in (lambda row: 1 if row.bid > 2 else 2, lambda row: 3 if row.bid > 2 else 4)
    ],
    "conditions of functions": [
        plait.aggregate(quotes, size=1, compute={"s": plait.sum("bid", where=w)}) for w in ("bid > 1", "bid > 2")
    ],
}


@pytest.mark.parametrize("pair", UNLIKE.values(), ids=UNLIKE)
def test_queries_that_compute_other_things_are_not_equal(pair: list[plait.Query]) -> None:
    assert pair[0] != pair[1]
    assert (pair[0] == pair[1]) is False


def test_queries_by_the_same_expressions_are_equal() -> None:
    one, other = (
        plait.aggregate(quotes, size=1, by={"o": "bid % 2"}, compute={"s": plait.sum("2 * bid")}) for _ in "ab"
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one == pickle.loads(pickle.dumps(one))


# --- what all queries share ---------------------------------------------------------------------------------


@pytest.mark.parametrize("build", QUERIES.values(), ids=QUERIES)
def test_a_query_is_frozen(build: Any) -> None:
    query = build()
    for field in dataclasses.fields(query):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(query, field.name, None)
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError, TypeError)):
        query.new = 1


@pytest.mark.parametrize("build", [QUERIES["join"], QUERIES["asof"], QUERIES["aggregate"]])
def test_a_query_is_a_value(build: Any) -> None:
    assert build() == build()
    assert hash(build()) == hash(build())
    assert build() != build(name="other")


@pytest.mark.parametrize("build", QUERIES.values(), ids=QUERIES)
def test_a_name_is_given_at_once_or_later(build: Any) -> None:
    query = build()
    assert query.name is None
    assert query.named("near").name == build(name="near").name == "near"
    assert query.name is None  # `named` gives another one
    assert dataclasses.replace(query.named("near"), name=None) == query
    for name in ("", None, 5, "left", "R"):
        with pytest.raises(QueryError, match="A query's name is"):
            query.named(name)


@pytest.mark.parametrize("build", QUERIES.values(), ids=QUERIES)
def test_options_go_by_name(build: Any) -> None:
    function = {"join": plait.join, "asof": plait.asof, "aggregate": plait.aggregate, "operator": plait.operator}
    with pytest.raises(TypeError):
        function[next(k for k, v in QUERIES.items() if v is build)](quotes, trades, "1s")


def test_streams_come_in_order_of_first_mention() -> None:
    other = plait.stream("other")
    inner = plait.join(trades, quotes, last=1)
    query = plait.join(plait.aggregate(inner, size=1, compute=N), plait.join(other, quotes, last=1), last=1)
    assert list(query.streams()) == ["trades", "quotes", "other"]
    assert query.streams() == {"trades": trades, "quotes": quotes, "other": other}
    assert query.inputs[1].inputs == (other, quotes)


def test_one_name_is_one_stream() -> None:
    assert list(plait.join(quotes, plait.stream("quotes", unit="us"), last=1).streams()) == ["quotes"]
    for build in (
        lambda: plait.join(quotes, plait.stream("quotes"), last=1),
        lambda: plait.asof(plait.join(quotes, trades, last=1), plait.stream("trades"), within="1s"),
        lambda: plait.operator([quotes, plait.stream("quotes", disorder=1)], **vars_of_operator()),
    ):
        with pytest.raises(QueryError, match="Two different streams are called"):
            build()


def vars_of_operator() -> dict[str, Any]:
    return {"buckets": 1, "route": hash, "state": dict, "process": lambda s, t: None, "output": {"n": "int8"}}


def test_orders() -> None:
    for order in ORDERS:
        check_order(order)
    for order in ("Strict", None, 1, ["strict"]):
        with pytest.raises(QueryError, match="is no order"):
            check_order(order)


def test_the_reference_is_always_there() -> None:
    assert has_executor("reference")


# --- joins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({"within": "5 minutes"}, TimeWindow(300_000_000, 300_000_000)),
        ({"within": dt.timedelta(seconds=1)}, TimeWindow(1_000_000, 1_000_000)),
        ({"within": 0}, TimeWindow(0, 0)),
        ({"within": ("1s", "2s")}, TimeWindow(1_000_000, 2_000_000)),
        ({"within": [0, "1ms"]}, TimeWindow(0, 1_000)),
        ({"last": 100_000}, CountWindow(100_000)),
        ({"tumbling": "1 hour"}, TumblingWindow(3_600_000_000)),
        ({"tumbling": 1}, TumblingWindow(1)),
        ({"tumbling_count": 7}, TumblingCountWindow(7)),
    ],
)
def test_windows_of_a_join(options: dict[str, Any], window: object) -> None:
    assert plait.join(quotes, trades, **options).window == window


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_kinds_of_join(how: str) -> None:
    assert plait.join(quotes, trades, within=1, how=how).how == how


def test_without_a_condition_every_pair_matches() -> None:
    predicate = plait.join(quotes, trades, last=1).predicate
    assert predicate.kind == "always"
    assert predicate.reads == ((), ())


@pytest.mark.parametrize(
    ("left", "right", "names"),
    [
        (quotes, trades, ("quotes", "trades")),
        (quotes, quotes, ("left", "right")),
        (plait.join(quotes, trades, last=1), plait.join(quotes, trades, last=1), ("left", "right")),
        (plait.join(quotes, trades, last=1, name="near"), trades, ("near", "trades")),
        (plait.join(quotes, trades, last=1, name="quotes"), quotes, ("left", "right")),
    ],
)
def test_sides_are_called_by_name_if_names_tell_them_apart(left: Any, right: Any, names: tuple[str, str]) -> None:
    assert side_names(left, right) == names
    assert plait.join(left, right, last=1).predicate.names == (*names, "The condition of the join")


# --- as-of --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "pairs"),
    [
        (None, ()),
        ((), ()),
        ("s", (("s", "s"),)),
        (["s", "x"], (("s", "s"), ("x", "x"))),
        ([("s", "t")], (("s", "t"),)),
        ([("x", "a"), "s"], (("x", "a"), ("s", "s"))),
        (iter(["s"]), (("s", "s"),)),
    ],
)
def test_as_of_by(by: Any, pairs: tuple[tuple[str, str], ...]) -> None:
    assert plait.asof(quotes, trades, by=by).by == pairs


def test_as_of_age_and_kind() -> None:
    assert plait.asof(quotes, trades).within_us is None
    assert plait.asof(quotes, trades, within=0).within_us == 0
    assert plait.asof(quotes, trades, within="1s").within_us == 1_000_000
    assert plait.asof(quotes, trades).how == "left"
    assert plait.asof(quotes, trades, how="inner").how == "inner"
    assert plait.asof(quotes, trades).exact
    assert not plait.asof(quotes, trades, exact=False).exact


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_as_of_direction(direction: str) -> None:
    assert plait.asof(quotes, trades).direction == "backward"
    made = plait.asof(quotes, trades, within=0, direction=direction)
    assert (made.direction, made.waits) == (direction, direction != "backward")


def test_as_of_of_one_stream() -> None:
    """Equal ones are one: `asof(one, one)` and `asof(one, other)` are equal queries, and have one answer."""
    one, other = (plait.aggregate(quotes, size="1s", compute={"n": plait.count()}) for _ in range(2))
    assert plait.asof(quotes, quotes).one_stream
    assert plait.asof(one, one).one_stream
    assert not plait.asof(quotes, trades).one_stream
    assert plait.asof(one, other).one_stream
    assert plait.asof(one, other) == plait.asof(one, one)
    assert plait.asof(one.where("n > 1"), other.where("n > 1")).one_stream
    assert not plait.asof(one, other.where("n > 1")).one_stream
    assert not plait.asof(quotes, one).one_stream


# --- aggregates ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "advance", "window"),
    [
        ("30s", "3s", SpanWindow(30_000_000, 3_000_000)),
        ("30s", None, SpanWindow(30_000_000, 30_000_000)),
        ("1s", dt.timedelta(seconds=2), SpanWindow(1_000_000, 2_000_000)),
        (10, 3, TupleWindow(10, 3)),
        (10, None, TupleWindow(10, 10)),
        (1, 5, TupleWindow(1, 5)),
    ],
)
def test_windows_of_an_aggregate(size: Any, advance: Any, window: object) -> None:
    assert plait.aggregate(quotes, size=size, advance=advance, compute=N).window == window


@pytest.mark.parametrize(("by", "keys"), [("x", ("x",)), (["x", "s"], ("x", "s")), ((), ()), (iter("xs"), ("x", "s"))])
def test_keys_of_an_aggregate(by: Any, keys: tuple[str, ...]) -> None:
    assert plait.aggregate(quotes, size=1, by=by, compute=N).by == keys


def test_what_is_computed_keeps_its_order() -> None:
    query = plait.aggregate(quotes, size=1, compute={"z": plait.count(), "a": plait.max("x"), "m": plait.last("x")})
    assert [name for name, _ in query.compute] == ["z", "a", "m"]


FUNCTIONS = {
    "count()": plait.count(),
    "sum(x)": plait.sum("x"),
    "mean(x)": plait.mean("x"),
    "min(x)": plait.min("x"),
    "max(x)": plait.max("x"),
    "var(x)": plait.var("x"),
    "distinct(x)": plait.distinct("x"),
    "first(x)": plait.first("x"),
    "last(x)": plait.last("x"),
    "collect(x)": plait.collect("x"),
    "first_where(x, where (row.x > 5))": plait.first_where("x", "x > 5"),
    "count_where(where (row.x > 5))": plait.count_where(lambda t: t.x > 5),
    "sum(x, where (row.x > 5))": plait.sum("x", where="x > 5"),
    "quantile(x, q=0.9, interpolate=False)": plait.quantile("x", 0.9),
    "top(x, y, k=3)": plait.top("x", 3, "y"),
    "corr(x, y)": plait.corr("x", "y"),
    "custom(x)": plait.custom("x", init=int, add=lambda s, v: s, type="int8"),
    "custom(x, y)": plait.custom(["x", "y"], init=int, add=lambda s, v, w: s, merge=lambda a, b: a, type="int8"),
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_functions_describe_themselves(text: str) -> None:
    described = FUNCTIONS[text].describe()
    assert described in (text, text.replace("row.x", "x"))


@pytest.mark.parametrize(
    "function", [plait.sum, plait.mean, plait.min, plait.max, plait.var, plait.first, plait.last, plait.collect,
                 plait.distinct, lambda column: plait.first_where(column, "x > 1")]
)  # fmt: skip
@pytest.mark.parametrize("column", [None, "", 3, ["x"]])
def test_functions_want_a_column(function: Any, column: object) -> None:
    with pytest.raises(QueryError, match="names no column"):
        function(column)


# --- operators ----------------------------------------------------------------------------------------------


def test_an_operator_reads_one_stream_or_several() -> None:
    assert an_operator().inputs == (quotes,)
    several = plait.operator([quotes, trades, quotes], **vars_of_operator())
    assert several.inputs == (quotes, trades, quotes)
    over_query = plait.operator(plait.join(quotes, trades, last=1), **vars_of_operator())
    assert list(over_query.streams()) == ["quotes", "trades"]


def test_an_output_is_a_schema_or_names_and_types() -> None:
    expected = pa.schema({"n": pa.int64(), "s": pa.string()})
    assert an_operator(output={"n": "int64", "s": "text"}).output == expected
    assert an_operator(output=expected).output == expected


def test_functions_of_an_operator_may_take_more_if_it_has_a_default() -> None:
    an_operator(route=lambda t, k=3: 0, state=lambda size=3: [], process=lambda s, t, *more: None)
    an_operator(route=len, process=print)  # builtins, with and without a signature
    an_operator(on_timer=lambda state, at: None)


def test_a_timer_is_a_moment() -> None:
    assert plait.timer(5) == Timer(5)
    assert plait.timer(dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)) == Timer(1_000_000)
    assert repr(plait.ALL) == "plait.ALL"


# --- composition --------------------------------------------------------------------------------------------


def test_every_query_is_an_input_of_every_query() -> None:
    for inner in (build() for build in QUERIES.values()):
        for outer in (
            plait.join(inner, quotes, last=1),
            plait.join(quotes, inner, within="1s", how="anti"),
            plait.join(inner, inner, tumbling="1s"),
            plait.asof(inner, trades),
            plait.aggregate(inner, size="1s", compute=N),
            plait.operator([inner, trades], **vars_of_operator()),
        ):
            assert inner in outer.inputs
            assert set(inner.streams()) <= set(outer.streams())


@pytest.mark.parametrize(
    "name", ["stream", "join", "asof", "aggregate", "dedup", "union", "operator", "sql", "sum", "quantile", "top"]
)
def test_a_wrong_keyword_is_told_with_its_neighbour_and_the_signature_stays(name: str) -> None:
    call = getattr(plait, name)
    known = [
        each for each in inspect.signature(call).parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    assert known, "an editor sees no keyword"
    wrong = known[0].name + "e"
    with pytest.raises(QueryError, match=f"plait.{name} has no argument '{wrong}'.*Did you mean {known[0].name}="):
        call(**{wrong: 1})
