"""Conditions mean one thing: the reference, called with Python or SQL, agrees with the rules spelled out as a tree."""

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from tests.query import expressions as ex
from tests.query.interpreter import Typed, evaluate

import plait
from plait.query.condition.expression import Expr, Literal, walk
from plait.query.condition.predicate import Predicate, predicate
from plait.query.condition.sql import parse
from plait.query.condition.trace import trace
from plait.query.condition.types import check_condition, infer, resolve
from plait.reference.condition import ValueRow, condition
from plait.reference.values import Value, value_of

NAMES = ("left", "right")
SIDES = {"left": 0, "right": 1, "l": 0, "r": 1}
BOTH = (ex.SCHEMA, ex.SCHEMA)

Case = tuple[Expr, list[tuple[dict[str, Any], dict[str, Any]]]]


def bound(on: Any) -> Predicate:
    return predicate(on, NAMES, SIDES).bind(*BOTH)


def same(value: Value, expected: Typed) -> bool:
    """Type, value and the sign of zeros; any NaN is like another."""
    if value.kind != expected.kind or (value.v is None) != (expected.value is None):
        return False
    if value.v is None or "float" not in expected.kind:
        return bool(value.v == expected.value)
    assert type(value.v) is (np.float32 if expected.kind == "float32" else np.float64)
    if math.isnan(expected.value):
        return bool(np.isnan(value.v))
    return float(value.v) == expected.value and math.copysign(1, value.v) == math.copysign(1, expected.value)


def check_traced(case: Case) -> None:
    tree, rows = case
    function = ex.compiled(tree)
    traced = trace(function)
    assert traced == ex.as_python_sees_it(tree)
    kind = infer(traced, BOTH)
    for left, right in rows:
        expected = evaluate(traced, (ex.as_typed(left), ex.as_typed(right)))
        arguments = [ValueRow(ex.as_row(values), ex.SCHEMA) for values in (left, right)]
        got = value_of(function(*arguments))
        assert same(got, expected), f"{ex.python(tree)} is {got}, and should be {expected}"
        assert kind == expected.kind


@given(ex.cases(ex.numbers("python", 3)))
def test_numbers_in_python(case: Case) -> None:
    check_traced(case)


@given(ex.cases(ex.truths("python", 3)))
def test_truths_in_python(case: Case) -> None:
    check_traced(case)
    tree, rows = case
    on = ex.compiled(tree)
    holds = condition(bound(on), *BOTH)
    check_condition(trace(on), BOTH)
    for left, right in rows:
        expected = evaluate(tree, (ex.as_typed(left), ex.as_typed(right))).value
        assert holds(ex.as_row(left), ex.as_row(right)) is (expected is True)


@given(ex.cases(ex.truths("sql", 3)))
def test_truths_in_sql(case: Case) -> None:
    tree, rows = case
    text = ex.sql(tree)
    assert resolve(parse(text, SIDES), BOTH, NAMES) == tree
    assert infer(tree, BOTH) == "bool"
    holds, fails, unknown = (condition(bound(on), *BOTH) for on in (text, f"NOT {text}", f"{text} IS NULL"))
    for left, right in rows:
        expected = evaluate(tree, (ex.as_typed(left), ex.as_typed(right))).value
        pair = ex.as_row(left), ex.as_row(right)
        assert (holds(*pair), fails(*pair), unknown(*pair)) == (
            expected is True,
            expected is False,
            expected is None,
        ), text


@given(ex.cases(ex.numbers("sql", 3)))
def test_numbers_in_sql(case: Case) -> None:
    tree, rows = case
    text = ex.sql(tree)
    assert resolve(parse(text, SIDES), BOTH, NAMES) == tree
    for left, right in rows[:1]:
        expected = evaluate(tree, (ex.as_typed(left), ex.as_typed(right)))
        assert infer(tree, BOTH) == expected.kind
        claim = f"{text} IS NULL"
        if expected.value is not None:
            claim = f"{text} = {ex.sql(Literal(expected.value))}"
        if isinstance(expected.value, float) and math.isnan(expected.value):
            claim = f"({text} IS NOT NULL) AND (({text} = {text}) IS NULL)"
        assert condition(bound(claim), *BOTH)(ex.as_row(left), ex.as_row(right)), claim


def both_ways(tree: Expr) -> bool:
    """What can be written both ways: no NULL, and no division, which means two things."""
    nodes = list(walk(tree))
    return Literal(None) not in nodes and not any(getattr(node, "op", "") in ("sqldiv", "sqlmod") for node in nodes)


@given(ex.truths("sql", 3).filter(both_ways))
def test_python_and_sql_say_the_same(tree: Expr) -> None:
    traced = trace(ex.compiled(tree))
    assert traced == ex.as_python_sees_it(resolve(parse(ex.sql(tree), SIDES), BOTH, NAMES))


def test_the_columns_of_the_tests_are_all_kinds_that_conditions_read() -> None:
    kinds = {infer(parse(f"l.`{name}`", SIDES), BOTH) for name in ex.SCHEMA.names}
    assert kinds == {*ex.INTS, "float32", "float64", "bool", "text", "bytes", "null"}
    assert pa.types.is_null(ex.SCHEMA.field("z").type)


# --- the rules by example -----------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "int8": -7, "int16": 3, "int32": 2**31 - 1, "int64": 2**63 - 1, "uint8": 250, "uint64": 2**64 - 1, "f": 0.1,
    "g": math.nan, "t": 1_500_000, "d": 1, "w": 2, "b": True, "s": "a", "e": "a", "y": b"a",
}  # fmt: skip


def outcome(on: Any) -> bool | None:
    """What a condition is on a pair of which only the left row holds anything: true, false or unknown."""
    row, empty = ex.as_row(VALUES), ex.as_row({})
    if isinstance(on, str):
        forms = (f"({on})", f"NOT ({on})", f"({on}) IS NULL")
        verdicts = [condition(bound(form), *BOTH)(row, empty) for form in forms]
        assert sum(verdicts) == 1
        return [True, False, None][verdicts.index(True)]
    return value_of(on(ValueRow(row, ex.SCHEMA), ValueRow(empty, ex.SCHEMA))).v  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        # Integers are exact, whatever their width.
        ("l.int64 + 1 > l.int64", True),
        ("l.uint8 + l.uint8 = 500", True),
        (f"l.int64 * l.uint64 = {(2**63 - 1) * (2**64 - 1)}", True),
        ("l.uint64 > l.int8", True),
        ("l.uint64 = -1", False),
        (lambda l, r: l.int64 * l.int64 == (2**63 - 1) ** 2, True),
        # Python's division rounds down, and SQL's remainder has the sign of the dividend.
        (lambda l, r: l.int8 // 2 == -4, True),
        (lambda l, r: l.int8 % 4 == 1, True),
        ("l.int8 % 4 = -3", True),
        ("l.int8 / 2 = -3.5", True),
        # Division by zero: NULL for integers and in SQL, IEEE for floats in Python.
        (lambda l, r: l.int8 // 0 == 0, None),
        (lambda l, r: l.int8 % 0 == 0, None),
        (lambda l, r: l.int8 / 0 == -math.inf, True),
        (lambda l, r: l.f // 0 == math.inf, True),
        ("l.int8 / 0 IS NULL", True),
        ("l.f / 0 IS NULL", True),
        ("l.f % 0 IS NULL", True),
        # Literals take the width of the column, columns meet as in NumPy.
        ("l.f = 0.1", True),
        ("l.f = CAST(0.1 AS DOUBLE)", False),
        (lambda l, r: l.f == np.float64(0.1), False),
        (lambda l, r: l.f == np.float32(0.1), True),
        ("l.f + l.int16 = 3.1", True),
        ("l.f + CAST(0 AS INT) = 0.1", False),
        ("l.int64 = 9223372036854775807", True),
        ("l.int64 = 9223372036854775808", False),
        ("l.int64 = 9223372036854775808.0", True),
        # NULL and NaN are unknown.
        ("l.g = l.g", None),
        ("l.g <> 1", None),
        ("l.g IS NULL", False),
        ("NULL = NULL", None),
        ("r.int8 = 1", None),
        ("r.int8 = 1 AND l.int16 = 4", False),
        ("r.int8 = 1 OR l.int16 = 3", True),
        ("r.int8 = 1 OR l.int16 = 4", None),
        ("NOT (r.b)", None),
        ("l.int16 IN (1, NULL)", None),
        ("l.int16 IN (3, NULL)", True),
        ("l.int16 NOT IN (1, NULL)", None),
        # least and greatest skip NULL; NaN is above all numbers.
        ("least(l.int8, r.int8, 5) = -7", True),
        ("least(r.int8, r.int16) IS NULL", True),
        ("least(l.g, 5) = 5", True),
        ("greatest(l.g, 5) = 5", None),
        (lambda l, r: plait.minimum(l.g, l.f) == l.f, True),
        # A cast drops the fraction, and what does not fit is NULL.
        ("CAST(-3.7 AS INT) = -3", True),
        ("CAST(l.uint8 AS TINYINT) IS NULL", True),
        ("CAST(l.g AS INT) IS NULL", True),
        ("CAST(1e999 AS BIGINT) IS NULL", True),
        ("CAST(l.b AS INT) = 1", True),
        ("CAST(l.int8 AS BOOLEAN)", True),
        ("CAST(0.5 AS BOOLEAN)", True),
        ("CAST(l.g AS BOOLEAN)", None),
        ("CAST(1e300 AS FLOAT) = 1e999", True),
        # Times count microseconds.
        ("l.t = 1500000", True),
        ("l.t = TIMESTAMP '1970-01-01 00:00:01.5'", True),
        ("l.t - INTERVAL 1 SECOND = 500000", True),
        ("l.d = DATE '1970-01-02'", True),
        ("l.w = INTERVAL 2 SECONDS", True),
        (lambda l, r: l.d == dt.date(1970, 1, 2), True),
        (lambda l, r: l.w == dt.timedelta(seconds=2), True),
        # Text, bytes and truths compare by equality.
        ("l.s = l.e", True),
        ("l.s <> 'b'", True),
        (lambda l, r: l.y == b"a", True),
        ("l.b = true", True),
    ],
)  # fmt: skip
def test_rules_by_example(on: Any, expected: bool | None) -> None:
    assert outcome(on) is expected


def test_a_remainder_of_integers_beyond_all_floats() -> None:
    big = " * ".join(["l.int64"] * 20)
    assert outcome(f"{big} % 10 = {(2**63 - 1) ** 20 % 10}") is True


# --- opaque functions ---------------------------------------------------------------------------------------


def judge(function: Any) -> Callable[..., bool]:
    found = bound(function)
    assert found.kind == "opaque"
    holds = condition(found, *BOTH)
    return lambda left, right=None: holds(ex.as_row(left), ex.as_row(right or {}))


def test_opaque_functions_see_python_values() -> None:
    seen: list[Any] = []

    def look(l: Any, r: Any) -> bool:
        seen[:] = [l.int8, l["uint64"], l.f, l.b, l.s, l.e, l.y, l.t, l.d, l.w, l.ns]
        return bool(l.int8)

    assert judge(look)(VALUES | {"ns": 3_000})
    assert seen[:7] == [-7, 2**64 - 1, float(np.float32(0.1)), True, "a", "a", b"a"]
    assert seen[7:] == [1_500_000, 86_400_000_000, 2_000_000, 3]
    assert [type(v) for v in seen] == [int, int, float, bool, str, str, bytes, int, int, int, int]


def test_opaque_functions_are_not_called_on_null() -> None:
    calls = []

    def either(l: Any, r: Any) -> bool:
        calls.append(1)
        return bool(l.int8 or r.int8)

    holds = judge(either)
    calls.clear()  # those of the tracer
    assert holds({"int8": 1}, {"int8": 0}) is True
    assert holds({"int8": 0}, {"int8": 0}) is False
    assert holds({"int8": 1}, {"int8": None}) is False
    assert holds({"int8": None, "int16": 1}, {"int8": 1}) is False
    assert len(calls) == 2


def test_opaque_functions_are_called_on_nan() -> None:
    assert judge(lambda l, r: bool(l.g != l.g))({"g": math.nan})


def test_a_method_is_called_on_its_object() -> None:
    class Above:
        limit = 3

        def judge(self, l: Any, r: Any) -> bool:
            return bool(l.int8 > self.limit or r.int8 > self.limit)

    assert bound(Above().judge).reads == (("int8",), ("int8",))
    assert judge(Above().judge)({"int8": 4}, {"int8": 0})
    assert not judge(Above().judge)({"int8": 3}, {"int8": 3})


@pytest.mark.parametrize("how", ["traced", "opaque"])
def test_columns_called_ts_and_stream_are_columns(how: str) -> None:
    schema = pa.schema({"ts": pa.int64(), "stream": pa.string()})
    stream = plait.stream("s", unit="s")
    on = {
        "traced": lambda l, r: (l.ts == 5) & (r.stream == "x"),
        "opaque": lambda l, r: l.ts == 5 and r.stream == "x",
    }[how]
    query = plait.join(stream, stream, on=on, within=0)
    assert query.predicate.kind == how
    table = pa.Table.from_pylist([{"ts": 5, "stream": "x"}], schema=schema)
    assert len(query.reference({"s": table})) == 1
