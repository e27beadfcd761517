"""Every operator of a condition on every pair of a few telling values, in Python and in SQL, against the rules."""

import itertools
import math
from typing import Any

import pytest
from tests.query import expressions as ex
from tests.query.condition.test_conditions import BOTH, bound, same
from tests.query.interpreter import evaluate

from plait.query.condition.expression import COMPARISON, Binary, Column, Expr, Literal, Unary
from plait.reference.condition import ValueRow, condition
from plait.reference.values import value_of

TELLING: dict[str, list[Any]] = {
    "int8": [None, -7, -1, 0, 1, 2, 7],
    "uint8": [None, 0, 1, 2, 250],
    "f": [None, -7.5, -0.0, 0.0, 1.0, 2.0, math.inf, math.nan],
    "g": [None, -7.5, -1.0, -0.0, 0.0, 1.0, 7.0, -math.inf, math.nan],
    "b": [None, False, True],
}
NUMERIC = [*itertools.product(["int8", "uint8", "f", "g"], repeat=2)]
LOGIC = ["and", "or", "eq", "ne"]


class Given:
    """A row with one value, as the reference and as the rules see it; made once, since it is used often."""

    def __init__(self, name: str, value: Any) -> None:
        self.row, self.typed, self.name = ex.as_row({name: value}), ex.as_typed({name: value}), f"{name}={value}"
        self.values = ValueRow(self.row, ex.SCHEMA)

    def __repr__(self) -> str:
        return self.name


GIVEN = {name: [Given(name, value) for value in values] for name, values in TELLING.items()}


def check_in_python(tree: Expr, left: str, right: str) -> None:
    function = ex.compiled(tree)
    for l, r in itertools.product(GIVEN[left], GIVEN[right]):
        expected, got = evaluate(tree, (l.typed, r.typed)), value_of(function(l.values, r.values))
        assert same(got, expected), f"{ex.python(tree)} on {l} and {r} is {got}, and should be {expected}"


def check_in_sql(tree: Expr, left: str, right: str) -> None:
    text = ex.sql(tree)
    forms = [condition(bound(form), *BOTH) for form in (text, f"NOT {text}", f"{text} IS NULL")]
    for l, r in itertools.product(GIVEN[left], GIVEN[right]):
        expected = evaluate(tree, (l.typed, r.typed)).value
        verdicts = [holds(l.row, r.row) for holds in forms]
        assert verdicts == [expected is v for v in (True, False, None)], f"{text} on {l} and {r}"


@pytest.mark.parametrize("op", [*ex.ARITHMETIC["python"], *COMPARISON, "least", "greatest"])
def test_two_numbers_in_python(op: str) -> None:
    for left, right in NUMERIC:
        check_in_python(Binary(op, Column(0, left), Column(1, right)), left, right)


@pytest.mark.parametrize("op", [*ex.ARITHMETIC["python"], *COMPARISON, "least", "greatest"])
@pytest.mark.parametrize("literal", [-2, 0, 2, -0.5, 0.0])
def test_a_number_and_a_literal_in_python(op: str, literal: float) -> None:
    for kind in ("int8", "uint8", "f", "g"):
        check_in_python(Binary(op, Column(0, kind), Literal(literal)), kind, kind)
        # On the left, comparisons and picks are turned round by Python: the value is the same.
        if op not in ("least", "greatest"):
            check_in_python(Binary(op, Literal(literal), Column(0, kind)), kind, kind)


@pytest.mark.parametrize("op", COMPARISON)
def test_two_numbers_compared_in_sql(op: str) -> None:
    for left, right in NUMERIC:
        check_in_sql(Binary(op, Column(0, left), Column(1, right)), left, right)


@pytest.mark.parametrize("op", [*ex.ARITHMETIC["sql"], "least", "greatest"])
def test_two_numbers_in_sql(op: str) -> None:
    # A result is compared with every telling value, so each is met exactly by some pairs.
    for left, right in itertools.product(["int8", "f"], repeat=2):
        for value in (-7, -1, 0, 1.0, 2.5):
            check_in_sql(Binary("eq", Binary(op, Column(0, left), Column(1, right)), Literal(value)), left, right)
        check_in_sql(Unary("is_null", Binary(op, Column(0, left), Column(1, right))), left, right)


@pytest.mark.parametrize("op", LOGIC)
def test_two_truths(op: str) -> None:
    tree = Binary(op, Column(0, "b"), Column(1, "b"))
    check_in_python(tree, "b", "b")
    check_in_sql(tree, "b", "b")
    for literal in (True, False):
        check_in_python(Binary(op, Column(0, "b"), Literal(literal)), "b", "b")
        check_in_sql(Binary(op, Literal(literal), Column(0, "b")), "b", "b")
    check_in_sql(Binary(op, Column(0, "b"), Literal(None)), "b", "b")


@pytest.mark.parametrize("op", ["neg", "abs", "is_null"])
def test_one_number(op: str) -> None:
    for kind in ("int8", "uint8", "f", "g"):
        check_in_python(Unary(op, Column(0, kind)), kind, kind)
        tree = Unary(op, Column(0, kind))
        check_in_sql(tree if op == "is_null" else Binary("le", tree, Literal(1)), kind, kind)


def test_not() -> None:
    check_in_python(Unary("not", Column(0, "b")), "b", "b")
    check_in_sql(Unary("not", Column(0, "b")), "b", "b")
