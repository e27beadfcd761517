"""A query meets its columns: what results are called, of which types, and in which order."""

from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import QueryError
from plait.query.bind import bind
from plait.query.condition.expression import Binary, Column, Literal

ZONED = pa.timestamp("ms", "Europe/Rome")
NAIVE = pa.timestamp("s")


def stream(name: str, kind: pa.DataType = ZONED, **options: Any) -> plait.Stream:
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return plait.stream(name, unit=None if zoned else "s", **options)


def output(query: plait.Query, **schemas: dict[str, Any]) -> dict[str, pa.DataType]:
    bound = bind(query, {name: pa.schema(columns) for name, columns in schemas.items()})
    names = bound.schema.names
    assert len(set(names)) == len(names)
    return {field.name: field.type for field in bound.schema}


a, b = stream("a"), stream("b")
A = {"ts": ZONED, "k": pa.string(), "x": pa.int32()}
B = {"ts": ZONED, "k": pa.string(), "y": pa.float32()}
TS = pa.timestamp("us", "UTC")


# --- names --------------------------------------------------------------------------------------------------


def test_a_join_has_ts_then_left_then_right() -> None:
    columns = output(plait.join(a, b, last=1), a=A, b=B)
    assert list(columns) == ["ts", "a_ts", "a_k", "x", "b_ts", "b_k", "y"]
    assert columns["a_ts"] == ZONED
    assert columns["ts"] == TS


def test_columns_of_one_side_keep_their_names() -> None:
    left = {"at": ZONED, "x": pa.int32()}
    right = {"when": ZONED, "y": pa.float32()}
    query = plait.join(plait.stream("a", time="at"), plait.stream("b", time="when"), last=1)
    assert list(output(query, a=left, b=right)) == ["ts", "at", "x", "when", "y"]


def test_a_column_called_ts_gives_way_even_alone() -> None:
    query = plait.join(plait.stream("a", time="at"), b, last=1)
    columns = output(query, a={"at": ZONED, "ts": pa.string()}, b={"ts": ZONED})
    assert list(columns) == ["ts", "at", "a_ts", "b_ts"]
    assert columns["a_ts"] == pa.string()


def test_a_self_join_has_left_and_right() -> None:
    assert list(output(plait.join(a, a, last=1), a=A)) == [
        "ts", "left_ts", "left_k", "left_x", "right_ts", "right_k", "right_x",
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_semi_and_anti_have_the_left_row_alone(how: str) -> None:
    assert list(output(plait.join(a, b, within="1s", how=how), a=A, b=B)) == ["ts", "a_ts", "k", "x"]


def test_as_of_has_both_rows() -> None:
    assert list(output(plait.asof(a, b, by="k"), a=A, b=B)) == ["ts", "a_ts", "a_k", "x", "b_ts", "b_k", "y"]


def test_prefixes_are_the_names_of_queries() -> None:
    near = plait.join(a, b, last=1, name="near")
    assert list(output(plait.join(near, stream("c"), last=1), a=A, b=B, c={"ts": ZONED, "x": pa.int8()})) == [
        "ts", "near_ts", "a_ts", "a_k", "near_x", "b_ts", "b_k", "y", "c_ts", "c_x",
    ]  # fmt: skip


def test_a_name_that_a_prefix_makes_must_be_free() -> None:
    with pytest.raises(QueryError, match="would be called 'a_k'"):
        output(plait.join(a, b, last=1), a=A, b=B | {"a_k": pa.int8()})
    # ... and so must the prefixed ones among themselves.
    with pytest.raises(QueryError, match="would be called 'a_ts'"):
        output(plait.join(a, b, last=1), a=A | {"a_ts": pa.int8()}, b=B)


def test_an_aggregate_has_its_window_its_keys_and_what_it_computes() -> None:
    query = plait.aggregate(a, size="1s", by=["x", "k"], compute={"n": plait.count(), "m": plait.mean("x")})
    assert output(query, a=A) == {
        "ts": TS, "window_start": TS, "window_end": TS, "x": pa.int32(), "k": pa.string(),
        "n": pa.int64(), "m": pa.float64(),
    }  # fmt: skip
    assert list(output(query, a=A))[3:5] == ["x", "k"]


def test_a_window_of_tuples_has_edges_that_count() -> None:
    columns = output(plait.aggregate(a, size=3, compute={"n": plait.count()}), a=A)
    assert columns["window_start"] == columns["window_end"] == pa.int64()
    assert columns["ts"] == TS


def test_an_operator_has_ts_and_what_it_declares() -> None:
    query = plait.operator(
        [a, b], buckets=1, route=hash, state=dict, process=lambda s, t: None, output={"z": "int8", "k": "text"}
    )
    assert output(query, a=A, b=B) == {"ts": TS, "z": pa.int8(), "k": pa.string()}


# --- types --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right", "ts"),
    [
        (ZONED, pa.timestamp("ns", "UTC"), TS),
        (NAIVE, NAIVE, pa.timestamp("us")),
        (pa.int32(), pa.int64(), pa.int64()),
        (ZONED, NAIVE, pa.int64()),
        (ZONED, pa.int64(), pa.int64()),
        (NAIVE, pa.int64(), pa.int64()),
    ],
)
def test_ts_keeps_the_kind_that_all_inputs_share(left: pa.DataType, right: pa.DataType, ts: pa.DataType) -> None:
    query = plait.join(stream("a", left), stream("b", right), last=1)
    assert output(query, a={"ts": left}, b={"ts": right})["ts"] == ts
    over = plait.aggregate(query, size="1s", compute={"n": plait.count()})
    assert output(over, a={"ts": left}, b={"ts": right})["window_end"] == ts


def test_columns_keep_their_types_and_their_nullability() -> None:
    left = pa.schema([pa.field("ts", ZONED, nullable=False), pa.field("x", pa.list_(pa.int8()))])
    right = pa.schema([pa.field("ts", ZONED, nullable=False), pa.field("y", pa.decimal128(5, 2), nullable=False)])
    inner = bind(plait.join(a, b, within=1), {"a": left, "b": right}).schema
    assert inner.field("x").type == pa.list_(pa.int8())
    assert [inner.field(name).nullable for name in ("a_ts", "x", "b_ts", "y")] == [False, True, False, False]
    for query in (plait.join(a, b, within=1, how="left"), plait.asof(a, b)):
        outer = bind(query, {"a": left, "b": right}).schema
        assert [outer.field(name).nullable for name in ("a_ts", "x", "b_ts", "y")] == [False, True, True, True]
    assert not bind(plait.asof(a, b, how="inner"), {"a": left, "b": right}).schema.field("y").nullable


NUMBERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def computed(function: Any, kind: pa.DataType) -> pa.DataType:
    return output(
        plait.aggregate(a, size="1s", compute={"out": function}), a={"ts": ZONED, "v": kind, "w": pa.bool_()}
    )["out"]


@pytest.mark.parametrize("kind", [*NUMBERS, pa.float32(), pa.float64()])
def test_types_of_sums(kind: pa.DataType) -> None:
    assert computed(plait.sum("v"), kind) == (pa.int64() if pa.types.is_integer(kind) else pa.float64())
    assert computed(plait.mean("v"), kind) == computed(plait.var("v"), kind) == pa.float64()
    assert computed(plait.min("v"), kind) == computed(plait.max("v"), kind) == kind


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.bool_(), pa.date32(), ZONED, pa.binary(), pa.decimal128(9, 2),
             pa.duration("s")]
)  # fmt: skip
def test_what_has_an_order_has_a_smallest_value(kind: pa.DataType) -> None:
    assert computed(plait.min("v"), kind) == kind
    with pytest.raises(QueryError, match="It adds integers and floats"):
        computed(plait.sum("v"), kind)


@pytest.mark.parametrize("kind", [*NUMBERS, pa.string(), pa.list_(pa.int8()), pa.struct({"a": pa.int8()}), ZONED])
def test_types_of_what_is_kept(kind: pa.DataType) -> None:
    assert computed(plait.first("v"), kind) == computed(plait.last("v"), kind) == kind
    assert computed(plait.first_where("v", "w"), kind) == kind
    assert computed(plait.collect("v"), kind) == pa.list_(kind)
    assert computed(plait.distinct("v"), kind) == computed(plait.count(), kind) == pa.int64()
    assert computed(plait.count_where(lambda t: t.w), kind) == pa.int64()
    assert computed(plait.custom("v", init=int, add=lambda s, v: s, type="uint8"), kind) == pa.uint8()


# --- columns found ------------------------------------------------------------------------------------------


def condition(on: Any, left: dict[str, Any] = A, right: dict[str, Any] = B) -> Any:
    bound = bind(plait.join(a, b, on=on, within=1), {"a": pa.schema(left), "b": pa.schema(right)})
    assert bound.predicate is not None
    return bound.predicate


def test_sql_finds_columns_without_their_stream() -> None:
    predicate = condition("x = 1")
    assert predicate.expr == Binary("eq", Column(0, "x"), Literal(1))
    assert predicate.reads == (("x",), ())
    assert condition("y > x").reads == (("x",), ("y",))


def test_sql_does_not_mind_case() -> None:
    assert condition("A.X = B.Y").expr == Binary("eq", Column(0, "x"), Column(1, "y"))
    with pytest.raises(QueryError, match="reads column 'X', which is not there"):
        condition(lambda l, r: r.y == l.X)


def test_the_very_spelling_wins_over_another_case() -> None:
    left = A | {"X": pa.int64()}
    assert condition("a.X = 1", left).reads == (("X",), ())
    assert condition("a.x = 1", left).reads == (("x",), ())
    with pytest.raises(QueryError, match=r"could be any of a\.Xx, a\.xX"):
        condition("a.xx = 1", A | {"Xx": pa.int8(), "xX": pa.int8()})


@pytest.mark.parametrize("text", ["a.x = b.y", "l.x = r.y", "left.x = right.y", "L.x = R.y", "LEFT.x = RIGHT.y"])
def test_sides_have_several_names(text: str) -> None:
    assert condition(text).expr == Binary("eq", Column(0, "x"), Column(1, "y"))


def test_sides_of_a_self_join() -> None:
    bound = bind(plait.join(a, a, on="l.x = r.x AND left.k <> right.k", within=1), {"a": pa.schema(A)})
    assert bound.predicate is not None
    assert bound.predicate.reads == (("x", "k"), ("x", "k"))


def test_conditions_may_read_the_results_of_queries() -> None:
    near = plait.join(a, b, last=1, name="near")
    query = plait.join(near, stream("c"), on="near.a_k = c.k AND near.y > 1", within=1)
    schemas = {"a": A, "b": B, "c": {"ts": ZONED, "k": pa.string()}}
    bound = bind(query, {name: pa.schema(columns) for name, columns in schemas.items()})
    assert bound.predicate is not None
    assert bound.predicate.reads == (("a_k", "y"), ("k",))


def test_as_of_columns_may_differ_in_type_if_they_compare() -> None:
    output(plait.asof(a, b, by=[("x", "y")]), a=A, b=B)
    output(plait.asof(a, b, by="k"), a=A, b=B | {"k": pa.dictionary(pa.int8(), pa.large_string())})
    output(plait.asof(a, b, by=[("ts", "ts")]), a=A, b=B | {"ts": pa.timestamp("s", "UTC")})
    for kinds in ((pa.string(), pa.binary()), (pa.bool_(), pa.int8()), (pa.float16(), pa.float16())):
        with pytest.raises(QueryError, match="by= compares"):
            output(plait.asof(a, b, by="k"), a=A | {"k": kinds[0]}, b=B | {"k": kinds[1]})


def test_the_query_itself_is_not_changed() -> None:
    query = plait.join(a, b, on="x = y", within=1)
    before = query.predicate
    bind(query, {"a": pa.schema(A), "b": pa.schema(B)})
    assert query.predicate is before
    assert before.expr == Binary("eq", Column(None, "x"), Column(None, "y"))
