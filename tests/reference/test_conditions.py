"""Conditions against the rules of values: exact integers, floats of two widths, NULL, NaN, three-valued logic."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from tests.reference import expressions
from tests.reference.expressions import SCHEMA, Rows, Tree, case_of, evaluate, read_back
from tests.reference.judge import Execute, judge
from tests.strategies import Case

import plait
from plait import PlaitError, RunError
from plait.query.condition.types import infer
from plait.schema import micros_of


def check_written(case: Case, tree: Tree, left: Rows, right: Rows) -> None:
    """What `plait.query` read has the same type and, on every pair, the same value as what was meant."""
    predicate = case.query.predicate.bind(SCHEMA, SCHEMA)
    again = read_back(predicate.expr)
    assert infer(predicate.expr, (SCHEMA, SCHEMA)) == "bool"
    for l in left:
        for r in right:
            pair = (dict(zip(SCHEMA.names, l, strict=True)), dict(zip(SCHEMA.names, r, strict=True)))
            assert evaluate(again, pair) == evaluate(tree, pair)


@given(tree=expressions.truths("sql"), left=expressions.rows(8), right=expressions.rows(8))
def test_sql(tree: Tree, left: Rows, right: Rows, execute: Execute) -> None:
    case = case_of("sql", tree, left, right)
    judge(case, execute)
    check_written(case, tree, left, right)


@given(tree=expressions.truths("python"), left=expressions.rows(8), right=expressions.rows(8))
def test_traced(tree: Tree, left: Rows, right: Rows, execute: Execute) -> None:
    case = case_of("python", tree, left, right)
    assert case.query.predicate.kind == "traced"
    judge(case, execute)
    check_written(case, tree, left, right)


# --- what can be written in SQL -------------------------------------------------------------------------------

#: Beyond what the random trees are written with: other spellings, precedence, literals, time.
TEXTS = (
    "l.i8 == r.i8", "l.i8 != r.i8", "! (l.i8 = r.i8)", "not l.i8 = r.i8 or l.b", "l.b and r.b or l.i8 < 3",
    "l.b or r.b and l.i8 < 3", "not l.b and r.b", "(l.i8 < 0) = (r.i8 < 0)", "l.b = true", "l.b <> r.b", "l.b",
    "l.i8 in (1, 3, -1)", "l.i8 not in (1, null)", "l.f8 in (0.5, r.f8)", "not l.i8 in (3)",
    "l.i8 between -1 and r.i8", "l.i8 not between r.i8 and 3", "l.i8 between 0 and 3 and r.b",
    "l.i8 is null is null", "l.i8 is not null", "null", "l.b or null", "l.i8 = null", "true", "1 = 1",
    "l.i8 - 1 - 1 < r.i8", "l.i8 / 2 * 2 = r.i8", "l.i8 * 2 % 3 = 2", "-l.i8 % 2 = -1", "- - l.i8 = r.i8",
    "l.i8 - -1 = r.i8", "+l.i8 > 0", "mod(l.i32, r.i8) > 0", "2 - l.i8 - r.i8 <= 0", "abs(-l.i8) >= 3",
    "least(l.i8) = 1", "least(l.i8, null, 1) = 1", "greatest(l.f4, r.f8, 0.1) > 0.1", "L.I8 = R.i8", "`l`.`i8` = 1",
    "a.i8 = b.i8", "A.i8 = B.i8", "left.i8 < right.i8", "l.f8 = .5", "l.f8 = 5e-1", "l.i8 = 1.", "l.i8 = 1L",
    "l.f4 = 0.1", "l.f4 = 0.1D", "l.u64 = 18446744073709551615", "l.i64 > -9223372036854775808",
    "l.i8 + 1 > r.i32 -- the rest", "cast(l.f8 as boolean)", "l.f8::int = 0", "try_cast(l.f8 as tinyint) = 0",
    "double(l.i8) = r.f8", "l.ts + interval 5 minutes > r.ts", "l.ts = timestamp '1970-01-01 01:00:00+01:00'",
    "l.ts = date '1970-01-01'", "r.ts - l.ts < interval '1 day 2 hours'", "interval 1.5 seconds = 1500000",
)  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_query_and_reference_read_sql_alike(text: str, execute: Execute) -> None:
    """The reference interprets the text by itself; executors will run the tree that `plait.query` makes of it."""
    bound = plait.join(plait.stream("a", unit="us"), plait.stream("b", unit="us"), on=text, within=0).predicate
    tree = read_back(bound.bind(SCHEMA, SCHEMA).expr)
    rows = [expressions.fixed_rows(seed, 12) for seed in (1, 2)]
    judge(expressions.case_under(text, lambda l, r: evaluate(tree, (l, r))[1], *rows), execute)


@pytest.mark.parametrize(("text", "truth"), [
    ("l.i8 - 1 - 1 < r.i8", lambda l, r: l - 2 < r),
    ("-l.i8 % 2 = -1", lambda l, r: l > 0 and l % 2 == 1),
    ("l.i8 not between r.i8 and 3", lambda l, r: l < r or l > 3),
    ("l.i8 / 2 * 2 = r.i8", lambda l, r: l == r),
    ("l.i8 in (1, 3, -1)", lambda l, r: l in (1, 3, -1)),
])  # fmt: skip
def test_texts_mean_what_they_say(text: str, truth: Any, execute: Execute) -> None:
    """Lest query and reference misread alike."""
    rows = [[row for row in expressions.fixed_rows(seed, 12) if row[1] is not None] for seed in (1, 2)]
    judge(expressions.case_under(text, lambda l, r: bool(truth(l["i8"], r["i8"])), *rows), execute)


# --- every form sees the same columns -------------------------------------------------------------------------


def matched(on: Any, left: dict[str, list[Any]], right: dict[str, list[Any]], unit: str = "us") -> int:
    """How many pairs a condition holds for, all rows being in the window."""
    a, b = plait.stream("a", unit=unit), plait.stream("b", unit=unit)
    query = plait.join(a, b, on=on, within="100 days")
    return query.reference({"a": pa.table(left), "b": pa.table(right)}).num_rows


def forms(sql: str, traced: Any, opaque: Any) -> list[Any]:
    return [pytest.param(on, id=form) for on, form in ((sql, "sql"), (traced, "traced"), (opaque, "opaque"))]


def ts_is_5(l: Any, r: Any) -> bool:
    return l.ts == 5 and r.ts == 6


@pytest.mark.parametrize("on", forms("l.ts = 5 and r.ts = 6", lambda l, r: (l.ts == 5) & (r.ts == 6), ts_is_5))
def test_ts_is_the_column_of_that_name(on: Any) -> None:
    """In seconds, as the column is; an operator's `t.ts` is another thing, and documented."""
    assert matched(on, {"ts": [5, 7]}, {"ts": [6]}, unit="s") == 1


def same_stream(l: Any, r: Any) -> bool:
    return l.stream == r.stream and True


@pytest.mark.parametrize("on", forms("l.stream = r.stream", lambda l, r: l.stream == r.stream, same_stream))
def test_a_column_called_stream(on: Any) -> None:
    assert matched(on, {"ts": [1], "stream": ["x"]}, {"ts": [1, 1], "stream": ["x", "y"]}) == 1


@pytest.mark.parametrize("column", ["_row", "_schema", "_side", "_stream", "is_null", "values", "key"])
@pytest.mark.parametrize("form", ["sql", "traced", "opaque"])
def test_a_column_may_have_any_name(column: str, form: str) -> None:
    """None of plait's own names may stand before a column's."""
    sql = f"l.{column} = r.{column}"
    scope: dict[str, Any] = {}
    exec(f"def opaque(l, r): return l.{column} == r.{column} and True", scope)
    traced = eval(f"lambda l, r: l.{column} == r.{column}")
    on = {"sql": sql, "traced": traced, "opaque": scope["opaque"]}[form]
    assert matched(on, {"ts": [0], column: [7]}, {"ts": [1, 2], column: [7, 8]}) == 1


# --- opaque functions and NULL ------------------------------------------------------------------------------


def test_an_opaque_function_is_not_called_on_null() -> None:
    seen: list[Any] = []

    def below(l: Any, r: Any) -> bool:
        seen.append((l.x, r.y))
        return l.x < r.y and True

    assert matched(below, {"ts": [1, 1], "x": [1, None]}, {"ts": [1, 1], "y": [2, None]}) == 1
    assert seen[1:] == [(1, 2)]  # the first call was the attempt to trace it


class Limit:
    """A condition that is a method."""

    slack = 1

    def holds(self, left: Any, right: Any) -> bool:
        return left.x <= right.y + self.slack and True


def test_a_method_is_not_called_on_null_either() -> None:
    """Its first argument is no row."""
    assert matched(Limit().holds, {"ts": [1, 1], "x": [1, None]}, {"ts": [1, 1], "y": [0, None]}) == 1


def test_an_opaque_function_that_fails_says_where() -> None:
    def divides(l: Any, r: Any) -> bool:
        return bool(l.x % r.y == 0)

    with pytest.raises(RunError, match=r"'divides' raised ZeroDivisionError.*at ts 1 and 2"):
        matched(divides, {"ts": [1], "x": [1]}, {"ts": [2], "y": [0]})


# --- single rules -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", ["cast(l.x as float) > r.y", lambda l, r: l.x.cast("float32") > r.y])
def test_an_integer_becomes_a_float32_in_one_step(on: Any) -> None:
    """2^60 + 2^36 + 1 is nearer to 2^60 + 2^37; by way of float64 it would be a tie, and round down to 2^60."""
    assert matched(on, {"ts": [1], "x": [2**60 + 2**36 + 1]}, {"ts": [1], "y": pa.array([2.0**60], pa.float32())}) == 1


def test_minimum_and_maximum_say_the_same_of_plain_numbers() -> None:
    """As in a condition: NaN gives way in a minimum and wins in a maximum. An opaque function calls them so."""
    nan = float("nan")
    assert plait.minimum(nan, 1.0) == plait.minimum(1.0, nan) == 1.0
    assert plait.maximum(nan, 1.0) != plait.maximum(nan, 1.0)
    assert plait.maximum(1.0, nan) != plait.maximum(1.0, nan)


@pytest.mark.parametrize("constant", [pd.Timestamp(1_500, unit="ns", tz="UTC"), pd.Timedelta(1_500, unit="ns")])
def test_no_constant_is_rounded_silently(constant: Any) -> None:
    """1.5 us is neither 1 nor 2: it is refused, or equals no whole microsecond."""
    try:
        assert matched(lambda l, r: l.ts == constant, {"ts": [1, 2]}, {"ts": [1]}) == 0
    except PlaitError:
        return


def test_no_moment_of_a_user_is_rounded_silently() -> None:
    with pytest.raises(PlaitError):
        micros_of(pd.Timestamp(1_500, unit="ns", tz="UTC"))
