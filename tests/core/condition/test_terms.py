"""Conditions sorted into terms: the same from Python and from SQL, in every spelling of a band."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core.condition.terms import Terms, terms
from plait.query.condition.expression import text
from plait.query.condition.predicate import predicate

SCHEMA = pa.schema(
    [("x", pa.int32()), ("y", pa.float32()), ("k", pa.int64()), ("s", pa.string()), ("b", pa.bool_()),
     ("t", pa.timestamp("ms", tz="UTC"))]
)  # fmt: skip


def of(on: Any) -> Terms:
    bound = predicate(on, ("left", "right"), {"l": 0, "r": 1}).bind(SCHEMA, SCHEMA)
    assert bound.expr is not None
    return terms(bound.expr, (SCHEMA, SCHEMA))


BANDS = [
    (lambda l, r: abs(l.x - r.x) <= 10, -10, 10),
    (lambda l, r: abs(r.x - l.x) <= 10, -10, 10),
    (lambda l, r: abs(l.x - r.x) <= 10, -10, 10),
    (lambda l, r: abs(l.x - r.x + 5) <= 10, -15, 5),
    (lambda l, r: abs(l.x - r.x) < np.int16(10), -10, 10),
    (lambda l, r: (l.x - r.x).between(-1, 2), -1, 2),
    (lambda l, r: (l.x >= r.x - 1) & (l.x <= r.x + 2), -1, 2),
    (lambda l, r: (l.x > r.x - 1) & ~(l.x > r.x + 2), -1, 2),
    (lambda l, r: (r.x <= l.x + 1) & (r.x + 2 >= l.x), -1, 2),
    (lambda l, r: ~((l.x - r.x < -1) | (l.x - r.x > 2)), -1, 2),
    (lambda l, r: l.x - r.x == 3, 3, 3),
    (lambda l, r: -(r.x - l.x) - 3 == 0, 3, 3),
    ("l.x BETWEEN r.x - 1 AND r.x + 2", -1, 2),
    ("abs(l.x - r.x) <= 10", -10, 10),
    ("l.x - r.x >= -1 AND NOT l.x - r.x > 2", -1, 2),
]


@pytest.mark.parametrize(("on", "low", "high"), BANDS)
def test_every_spelling_of_a_band(on: Any, low: float, high: float) -> None:
    found = of(on)
    assert [(text(b.left), text(b.right), b.low, b.high) for b in found.bands] == [("left.x", "right.x", low, high)]
    assert not found.equalities
    assert not found.inequalities
    assert not found.rest


def test_bands_of_moments_count_microseconds() -> None:
    (band,) = of("l.t BETWEEN r.t - INTERVAL 5 SECONDS AND r.t").bands
    assert (band.low, band.high) == (-5e6, 0)


@pytest.mark.parametrize(
    "on",
    [lambda l, r: (l.k == r.k) & (l.s == r.s) & (l.x % 3 == r.x + 1), "l.k = r.k AND r.s = l.s AND l.x % 3 = r.x + 1"],
)
def test_equalities(on: Any) -> None:
    found = of(on)
    assert [(text(e.left), e.kind) for e in found.equalities][:2] == [("left.k", "int64"), ("left.s", "text")]
    assert len(found.equalities) == 3
    assert text(found.equalities[2].right) == "(right.x + 1)"


def test_an_equality_is_compared_in_its_common_type() -> None:
    assert [e.kind for e in of(lambda l, r: (l.y == r.y) & (l.x == r.y) & (l.x == r.k)).equalities] == [
        "float32", "float64", "int64",
    ]  # fmt: skip


def test_inequalities_filters_and_the_rest() -> None:
    found = of(lambda l, r: (l.x < r.x) & (l.b) & (r.y > 0.5) & ((l.x == r.x) | (l.k == r.k)) & (l.x * r.x > 3))
    assert [(b.low, b.high) for b in found.inequalities] == [(-math.inf, 0.0)]
    assert [len(f) for f in found.filters] == [1, 1]
    assert len(found.rest) == 2
    assert len(found.pair) == 3
    assert any("filter on left" in line for line in found.describe())


@pytest.mark.parametrize(
    "on",
    [
        lambda l, r: abs(l.x - r.x) >= 10,
        lambda l, r: abs(l.x - 2 * r.x + l.k) <= 10,  # two parts of one side: rounding could cancel
        lambda l, r: abs(l.x + r.x) <= 10,
        lambda l, r: abs(l.x * r.x) <= 10,
        lambda l, r: abs(l.y - r.y) <= 1e35,  # sums with it may overflow float32
        lambda l, r: abs(l.y - r.y) <= math.nan,
        lambda l, r: abs(l.y - r.y) <= math.inf,
        lambda l, r: l.x != r.x,
    ],
)
def test_what_is_no_band_is_left_to_the_kernel(on: Any) -> None:
    found = of(on)
    assert not found.bands
    assert not found.inequalities
    assert len(found.rest) == 1


def test_two_narrow_bands_come_before_a_wide_one() -> None:
    found = of(lambda l, r: (abs(l.k - r.k) <= 1000) & (abs(l.x - r.x) <= 1) & (abs(l.y - r.y) <= 2))
    assert [b.high for b in found.bands] == [1, 2, 1000]


def test_constants() -> None:
    assert of("1 = 0").never
    assert of("NULL").never
    assert not of("1 = 1 AND 'a' <> 'b'").never
    assert not of(None).never
