"""Types of conditions: NumPy 2's promotion, weak literals, and which types go together."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from plait import QueryError
from plait.query.condition.expression import (
    ARITHMETIC,
    COMPARISON,
    LOGIC,
    Binary,
    Cast,
    Column,
    Expr,
    Literal,
    Unary,
    columns,
    walk,
)
from plait.query.condition.types import check_condition, column_type, infer, promote
from plait.reference.values import common_kind

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
WEAK = ["weakint", "weakfloat"]

EXAMPLES = {
    **{name: getattr(pa, name)() for name in INTS + FLOATS},
    "bool": pa.bool_(), "text": pa.string(), "bytes": pa.binary(), "null": pa.null(),
}  # fmt: skip
SIDES = (pa.schema(EXAMPLES), pa.schema(EXAMPLES))


def leaf(kind: str) -> Expr:
    return {"weakint": Literal(1), "weakfloat": Literal(1.0)}.get(kind, Column(0, kind))


# --- promotion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [*itertools.product(INTS + FLOATS, repeat=2)])
def test_columns_meet_as_numpy_arrays_do(a: str, b: str) -> None:
    joint = (np.ones(1, a) + np.ones(1, b)).dtype.name
    both_integers = a in INTS and b in INTS
    assert promote(a, b) == ("int64" if both_integers and joint == "float64" else joint)


@pytest.mark.parametrize("kind", INTS + FLOATS)
def test_literals_are_weak_as_in_numpy(kind: str) -> None:
    assert promote(kind, "weakint") == promote("weakint", kind) == (np.ones(1, kind) + 1).dtype.name
    # NumPy makes float64 of any integer and a Python float.
    expected = (np.ones(1, kind) + 1.5).dtype.name if kind in FLOATS else "float64"
    assert promote(kind, "weakfloat") == promote("weakfloat", kind) == expected


def test_literals_among_themselves_stay_weak() -> None:
    assert promote("weakint", "weakint") == "weakint"
    assert promote("weakint", "weakfloat") == promote("weakfloat", "weakfloat") == "weakfloat"


@pytest.mark.parametrize("kind", [*INTS, *FLOATS, *WEAK, "null"])
def test_null_takes_the_type_of_what_it_meets(kind: str) -> None:
    assert promote(kind, "null") == promote("null", kind) == kind


@pytest.mark.parametrize(("a", "b"), [*itertools.product([*INTS, *FLOATS, *WEAK, "null"], repeat=2)])
def test_the_reference_promotes_alike(a: str, b: str) -> None:
    assert common_kind(a, b) == promote(a, b) == promote(b, a)


# --- inference ----------------------------------------------------------------------------------------------

NUMBERS = [*INTS, *FLOATS, *WEAK]


@pytest.mark.parametrize(("a", "b"), [*itertools.product([*NUMBERS, "bool", "text", "bytes", "null"], repeat=2)])
def test_what_goes_together(a: str, b: str) -> None:
    numeric = {a, b} <= {*NUMBERS, "null"}
    alike = len({a, b} - {"null"}) <= 1
    for op in ARITHMETIC:
        tree = Binary(op, leaf(a), leaf(b))
        if numeric:
            joint = promote(a, b)
            if op in ("div", "sqldiv") and "int" in joint:
                joint = "weakfloat" if joint == "weakint" else "float64"
            assert infer(tree, SIDES) == joint
        else:
            with pytest.raises(QueryError, match="holds arithmetic on"):
                infer(tree, SIDES)
    for op in COMPARISON:
        tree = Binary(op, leaf(a), leaf(b))
        if numeric or (alike and op in ("eq", "ne")):
            assert infer(tree, SIDES) == "bool"
        else:
            with pytest.raises(QueryError, match="holds a comparison of"):
                infer(tree, SIDES)
    for op in LOGIC:
        tree = Binary(op, leaf(a), leaf(b))
        if {a, b} <= {"bool", "null"}:
            assert infer(tree, SIDES) == "bool"
        else:
            with pytest.raises(QueryError, match=f"holds `{op}` of"):
                infer(tree, SIDES)


@pytest.mark.parametrize("kind", [*NUMBERS, "bool", "text", "bytes", "null"])
def test_unary_operators(kind: str) -> None:
    assert infer(Unary("is_null", leaf(kind)), SIDES) == "bool"
    for op in ("neg", "abs"):
        if kind in (*NUMBERS, "null"):
            assert infer(Unary(op, leaf(kind)), SIDES) == kind
        else:
            with pytest.raises(QueryError, match=f"of {kind}"):
                infer(Unary(op, leaf(kind)), SIDES)
    if kind in ("bool", "null"):
        assert infer(Unary("not", leaf(kind)), SIDES) == "bool"
    else:
        with pytest.raises(QueryError, match="holds `not` of"):
            infer(Unary("not", leaf(kind)), SIDES)


@pytest.mark.parametrize("kind", [*NUMBERS, "bool", "text", "bytes", "null"])
def test_casts(kind: str) -> None:
    if kind in ("text", "bytes"):
        with pytest.raises(QueryError, match=f"a cast of {kind} to int8"):
            infer(Cast(leaf(kind), "int8"), SIDES)
    else:
        assert infer(Cast(leaf(kind), "int8"), SIDES) == "int8"
        assert infer(Cast(leaf(kind), "bool"), SIDES) == "bool"


def test_a_condition_is_a_truth_value() -> None:
    check_condition(Column(0, "bool"), SIDES)
    check_condition(Literal(None), SIDES)
    for kind in (*NUMBERS, "text", "bytes"):
        with pytest.raises(QueryError, match="not a truth value"):
            check_condition(leaf(kind), SIDES)


# --- columns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        *((pa_kind, name) for name, pa_kind in EXAMPLES.items()),
        (pa.large_string(), "text"), (pa.string_view(), "text"), (pa.large_binary(), "bytes"),
        (pa.binary_view(), "bytes"), (pa.timestamp("s"), "int64"), (pa.timestamp("ns", "UTC"), "int64"),
        (pa.date32(), "int64"),
        (pa.date64(), "int64"), (pa.duration("ms"), "int64"), (pa.dictionary(pa.int8(), pa.string()), "text"),
        (pa.dictionary(pa.int8(), pa.float32()), "float32"),
        (pa.float16(), None), (pa.decimal128(5, 2), None), (pa.list_(pa.int8()), None),
        (pa.struct({"a": pa.int8()}), None), (pa.time32("s"), None), (pa.time64("us"), None), (pa.binary(3), None),
        (pa.month_day_nano_interval(), None), (pa.map_(pa.string(), pa.int8()), None),
    ],
)  # fmt: skip
def test_how_conditions_see_columns(kind: pa.DataType, seen: str | None) -> None:
    assert column_type(kind) == seen
    schema = (pa.schema({"c": kind}), pa.schema([]))
    if seen is None:
        with pytest.raises(QueryError, match=r"The condition reads left\.c, a column of type"):
            infer(Column(0, "c"), schema)
    else:
        assert infer(Column(0, "c"), schema) == seen


def test_columns_are_listed_once_in_order() -> None:
    tree = Binary("and", Binary("eq", Column(1, "b"), Column(0, "a")), Unary("not", Cast(Column(1, "b"), "bool")))
    assert columns(tree) == (Column(1, "b"), Column(0, "a"))
    assert [type(node).__name__ for node in walk(tree)] == [
        "Binary",
        "Binary",
        "Column",
        "Column",
        "Unary",
        "Cast",
        "Column",
    ]
