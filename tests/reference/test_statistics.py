"""Deviations, quantiles, modes and what goes with an extreme: the reference against Python, NumPy and the definitions."""

from __future__ import annotations

import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.reference.test_aggregates import bits, computed, finite

import plait
from plait import QueryError

some = st.lists(finite, min_size=2, max_size=9)
parts = st.sampled_from((0, 0.1, 0.25, 1 / 3, 0.5, 0.7, 0.9, 1))


@given(values=some)
@example(values=[1e308, -1e308])
@example(values=[5e-324, 0.0])
@example(values=[5e-324, 0.0, 0.0, 5e-324])
@example(values=[1.0, 1.0 + 2**-52])
@example(values=[1.7976931348623157e308, -1.7976931348623157e308])
def test_a_deviation_is_the_root_of_the_exact_variance(values: list[float]) -> None:
    try:
        expected = statistics.stdev(values)  # rounded once, too
    except OverflowError:
        expected = math.inf
    assert bits(computed(plait.std("x"), values)) == bits(expected)


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=6))
def test_a_deviation_of_integers(values: list[int]) -> None:
    assert bits(computed(plait.std("x"), pa.array(values, pa.int64()))) == bits(statistics.stdev(values))


@given(values=some, q=parts)
def test_a_quantile_is_the_least_value_with_so_many_at_or_below(values: list[float], q: float) -> None:
    found = computed(plait.quantile("x", q), values)
    enough = [v for v in values if sum(w <= v for w in values) >= Fraction(repr(q)) * len(values)]
    assert found == min(enough)


@given(values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), q=parts)
def test_between_two_values_as_numpy_has_it(values: list[float], q: float) -> None:
    found = computed(plait.quantile("x", q, interpolate=True), values)
    assert found == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)
    if q == 0.5:
        assert bits(computed(plait.median("x"), values)) == bits(found)
        ranked = sorted(values)
        low, high = ranked[(len(values) - 1) // 2], ranked[len(values) // 2]
        assert bits(found) == bits(float((Fraction(low) + Fraction(high)) / 2))


def test_a_quantile_is_taken_as_it_is_written() -> None:
    """0.07 of a hundred is seven, though the float 0.07 is a little more."""
    assert computed(plait.quantile("x", 0.07), list(range(1, 101))) == 7


@pytest.mark.parametrize(
    ("values", "median"),
    [
        ([-math.inf, 1.0], -math.inf), ([1.0, math.inf], math.inf), ([-math.inf, math.inf], math.nan),
        ([math.inf, math.inf], math.inf), ([1.0, math.nan], math.nan), ([1.0, 2.0, math.nan], 2.0), ([-0.0], 0.0),
    ],
)  # fmt: skip
def test_a_median_of_what_is_no_number(values: list[float], median: float) -> None:
    assert bits(computed(plait.median("x"), values)) == bits(median)


@given(values=st.lists(st.sampled_from("abc"), min_size=1, max_size=9))
def test_the_most_frequent_value_is_the_first_of_several(values: list[str]) -> None:
    assert computed(plait.mode("x"), values) == statistics.mode(values)


@pytest.mark.parametrize("kind", ["std", "median", "mode"])
def test_null_is_skipped(kind: str) -> None:
    make = getattr(plait, kind)
    assert computed(make("x"), pa.array([None, None], pa.float64())) is None
    assert computed(make("x"), [None, 3.0, 3.0, None]) == {"std": 0.0}.get(kind, 3.0)


def pairs(function: Any, x: list[Any], y: list[Any]) -> Any:
    query = plait.aggregate(plait.stream("s", unit="s"), size="1s", compute={"v": function})
    return query.reference({"s": pa.table({"ts": [0] * len(x), "x": x, "y": y})})["v"].to_pylist()[0]


numbers = st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3)), min_size=2, max_size=8)


@given(values=numbers)
def test_covariance_and_correlation_are_those_of_numpy_up_to_rounding(values: list[tuple[float, float]]) -> None:
    x, y = (list(each) for each in zip(*values, strict=True))
    assert pairs(plait.covar("x", "y"), x, y) == pytest.approx(float(np.cov(x, y)[0, 1]), rel=1e-9, abs=1e-6)
    found = pairs(plait.corr("x", "y"), x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found is None
    else:
        assert -1 <= found <= 1
        assert pairs(plait.corr("y", "x"), y, x) == found


def test_correlations_that_can_be_worked_out() -> None:
    assert pairs(plait.corr("x", "y"), [1, 2, 3], [10, 20, 30]) == 1.0
    assert pairs(plait.corr("x", "y"), [1e300, 2e300, 3e300], [-1e-300, -2e-300, -3e-300]) == pytest.approx(-1.0)
    assert pairs(plait.corr("x", "y"), [1, 2, None, 3], [1, 2, 9, None]) == 1.0
    assert pairs(plait.corr("x", "y"), [1, None], [1, 2]) is None
    assert math.isnan(pairs(plait.covar("x", "y"), [1.0, math.inf], [1.0, 2.0]))


def test_what_goes_with_an_extreme() -> None:
    who, by = ["a", "b", "c", "d", None], [2.0, math.nan, 1.0, None, 1.0]
    assert pairs(plait.arg_min("x", "y"), who, by) == "c", "the first of equals"
    assert pairs(plait.arg_max("x", "y"), who, by) == "b", "NaN is above all numbers"
    assert pairs(plait.top("x", 9, "y"), who, by) == ["b", "a", "c", None]
    assert pairs(plait.top("x", 2, "y"), who, by) == ["b", "a"]
    assert pairs(plait.arg_min("x", "y"), ["a"], pa.array([None], pa.int64())) is None
    assert pairs(plait.top("x", 2, "y"), ["a"], pa.array([None], pa.int64())) == []


def test_a_function_that_sees_nothing() -> None:
    for function, expected in (
        (plait.count(where="x > 9"), 0), (plait.sum("x", where="x > 9"), None), (plait.first("x", where="x > 9"), None),
        (plait.last("x", where="x > 9"), None), (plait.collect("x", where="x > 9"), []), (plait.distinct("x", where="x > 9"), 0),
        (plait.custom("x", init=lambda: 7, add=lambda s, x: s + x, type="int64", where="x > 9"), 7),
    ):  # fmt: skip
        assert computed(function, [1, 2]) == expected


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: plait.quantile("x", 1.5), r"quantile\(q=1.5\) is no number from 0 to 1"),
        (lambda: plait.quantile("x", True), "is no number from 0 to 1"),
        (lambda: plait.quantile("x", math.nan), "is no number from 0 to 1"),
        (lambda: plait.quantile("x", "0.5"), "is no number from 0 to 1"),  # type: ignore[arg-type]
        (lambda: plait.quantile("x", 0.5, interpolate=1), "is neither True nor False"),  # type: ignore[arg-type]
        (lambda: plait.top("x", 0, "y"), r"top\(k=0\) is no number of tuples"),
        (lambda: plait.top("x", 2.0, "y"), "is no number of tuples"),  # type: ignore[arg-type]
        (lambda: plait.corr("x", ""), "names no column"),
        (lambda: plait.arg_min("x", None), "names no column"),  # type: ignore[arg-type]
        (lambda: plait.sum("x", where=3), "is no condition"),  # type: ignore[arg-type]
        (lambda: computed(plait.quantile("x", 0.5, interpolate=True), ["a"]), "of a column of type string"),
        (lambda: computed(plait.mode("y"), ["a"]), "has no column 'y'"),
        (lambda: computed(plait.corr("x", "x"), ["a"]), "column 'x' is of type string"),
        (lambda: computed(plait.arg_min("x", "x"), [[1]]), "Its values have no order"),
    ],
)
def test_what_is_refused(call: Any, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        call()
