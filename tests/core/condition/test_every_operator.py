"""Every operator between every two types, over the extremes of both: the reference's verdict on each pair.

Random trees seldom put a tie under a negation, or 2**64 - 1 under a modulo; here nothing is left to chance.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.core.condition import trees
from tests.core.condition.trees import SCHEMA

from plait.core.join.window import JoinWindow
from plait.query.condition.expression import CAST_TYPES, Binary, Cast, Column, Expr, Literal, Unary
from plait.query.join import CountWindow
from plait.reference.condition import condition
from plait.reference.rows import Row, values_of

TYPES = ("i8", "i32", "i64", "u64", "f32", "f64")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
PYTHON = ("add", "sub", "mul", "div", "floordiv", "mod", "least", "greatest")
VALUES: dict[str, list[Any]] = {
    "i8": [None, -128, -1, 0, 1, 3, 127], "i32": [None, -(2**31), -2, 0, 1, 3, 2**31 - 1],
    "i64": [None, -(2**63), -1, 0, 1, 7, 2**53 + 1, 2**63 - 1],
    "u64": [None, 2**63, 0, 1, 7, 2**63 - 1, 2**64 - 1],
    "f32": [None, math.nan, -math.inf, -2.5, -0.0, 0.0, 0.1, 3.0, 16777216.0, math.inf],
    "f64": [None, math.nan, -math.inf, -2.5, -0.0, 0.0, 0.1, 3.0, 2.0**53, math.inf],
}  # fmt: skip


def column(name: str) -> pa.RecordBatch:
    n = len(VALUES[name])
    arrays = [pa.array(VALUES[name] if f.name == name else [None] * n, pa.null() if f.name == "n" else f.type)
              for f in SCHEMA]  # fmt: skip
    return pa.record_batch(arrays, schema=SCHEMA)


def check(expr: Expr, left: str, right: str, *, sql: bool = False) -> None:
    """All pairs, left rows first; also with the tame rows alone, which kernels can hold in machine words."""
    predicate = trees.as_predicate(expr, sql=sql)
    matches = condition(predicate, SCHEMA, SCHEMA)
    every = column(left), column(right)
    rows = [[Row(0, (), v) for v in values_of(b)] for b in every]
    truth = [[matches(l, r) for r in rows[1]] for l in rows[0]]
    for low, high in ((0, 99), (2, -2)):  # all; neither NULL nor the extremes
        batches = [b.slice(low, len(range(b.num_rows)[low:high])) for b in every]
        n, m = batches[0].num_rows, batches[1].num_rows
        join = JoinWindow(predicate, SCHEMA, SCHEMA, CountWindow(99), index="scan", plain=True)
        side = np.repeat(np.array([0, 1], np.uint8), [n, m])
        pairs = join.process(side, (batches[0], batches[1]), (np.zeros(n, np.int64), np.zeros(m, np.int64)))
        found = {(int(l), int(r)) for l, r in zip(pairs.left, pairs.right, strict=True)}
        assert found == {(l, r) for l in range(n) for r in range(m) if truth[l + low][r + low]}, trees.sql_text(expr)


UNKNOWN = Unary("is_null", Binary("add", Column(0, "i8"), Column(1, "i8")))


def negated(test: Expr) -> Expr:
    """Under an OR the negation stays where it is, and the other part is false."""
    return Binary("or", Unary("not", test), Binary("and", UNKNOWN, Unary("not", UNKNOWN)))


def ring(at: int, steps: range) -> tuple[str, ...]:
    """The types so many places on: up to half of them every two types meet, the rest is the same two the other way round."""
    return tuple(TYPES[(at + step) % len(TYPES)] for step in steps)


HALF = len(TYPES) // 2 + 1
MEETINGS = [
    *(pytest.param(left, ring(at, range(HALF)), id=left) for at, left in enumerate(TYPES)),
    *(
        pytest.param(left, ring(at, range(HALF, len(TYPES))), id=f"{left}, the rest", marks=pytest.mark.slow)
        for at, left in enumerate(TYPES)
    ),
]


@pytest.mark.parametrize(("left", "rights"), MEETINGS)
def test_comparisons(left: str, rights: tuple[str, ...]) -> None:
    for right in rights:
        for op in COMPARISONS:
            test = Binary(op, Column(0, left), Column(1, right))
            check(test, left, right)
            check(negated(test), left, right)


@pytest.mark.parametrize(("left", "rights"), MEETINGS)
def test_arithmetic(left: str, rights: tuple[str, ...]) -> None:
    for right in rights:
        a, b = Column(0, left), Column(1, right)
        for op in PYTHON:
            check(Binary("le", Binary(op, a, b), Literal(3)), left, right)
            check(Unary("is_null", Binary(op, b, a)), left, right)


@pytest.mark.parametrize("op", ["sqldiv", "sqlmod"])
def test_sqls_own_arithmetic(op: str) -> None:
    for left in TYPES:
        for right in TYPES:
            a, b = Column(0, left), Column(1, right)
            check(Binary("ge", Binary(op, a, b), Literal(1)), left, right, sql=True)
            check(Unary("is_null", Binary(op, b, a)), left, right, sql=True)


@pytest.mark.parametrize("to", CAST_TYPES)
def test_casts(to: str) -> None:
    for left in TYPES:
        # A sum of both sides, so that the cast is made per pair; i8 adds little to it.
        both = Binary("add", Column(0, left), Column(1, "i8"))
        check(Unary("is_null", Cast(both, to)), left, "i8")
        value: Expr = Cast(both, to)
        check(value if to == "bool" else Binary("le", value, Literal(2)), left, "i8")
        check(Binary("eq", Cast(Binary("lt", Column(0, left), Column(1, "i8")), to), Cast(Literal(1), to))
              if to != "bool" else Cast(Binary("lt", Column(0, left), Column(1, "i8")), to), left, "i8")  # fmt: skip


@pytest.mark.parametrize("op", ["neg", "abs"])
def test_signs(op: str) -> None:
    for left in TYPES:
        value = Unary(op, Binary("sub", Column(0, left), Column(1, "i32")))
        check(Binary("le", value, Literal(2)), left, "i32")
        check(Binary("gt", value, Column(1, "i32")), left, "i32")
