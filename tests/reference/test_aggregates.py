"""Aggregates against a list of all windows."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import definitions as define
from tests import strategies
from tests.reference.judge import Execute, judge
from tests.strategies import Case

import plait
from plait import DataError, PlaitError

A = plait.stream("a", unit="us")


@given(case=strategies.span_aggregates())
def test_windows_of_time(case: Case, execute: Execute) -> None:
    judge(case, execute)


@given(case=strategies.count_aggregates())
def test_windows_of_tuples(case: Case, execute: Execute) -> None:
    judge(case, execute)


# --- sums are exact -----------------------------------------------------------------------------------------


def computed(function: Any, values: Any) -> Any:
    """A function over one window of all values."""
    query = plait.aggregate(A, size=len(values), compute={"v": function})
    return query.reference({"a": pa.table({"ts": [0] * len(values), "x": values})})["v"].to_pylist()[0]


def bits(value: float | None) -> str | None:
    return None if value is None else value.hex()


finite = st.floats(allow_nan=False, allow_infinity=False)
floats = st.lists(
    st.one_of(finite, st.sampled_from((1e308, -1e308, 5e-324, 1.0, 2.0**-53, 0.1))), min_size=1, max_size=9
)


@given(values=floats, seed=st.randoms(use_true_random=False))
@example(values=[1e308, 1e308, -1e308], seed=None)
@example(values=[1.0, 2.0**-53, 2.0**-106], seed=None)
@example(values=[5e-324] * 3, seed=None)
@example(values=[1.7976931348623157e308, 9.9792015476736e291], seed=None)
def test_sums_of_floats_are_rounded_once_in_any_order(values: list[float], seed: Any) -> None:
    shuffled = list(values)
    if seed is not None:
        seed.shuffle(shuffled)
    for given_values in (values, shuffled):
        assert bits(computed(plait.sum("x"), given_values)) == bits(define.total(values))
        assert bits(computed(plait.mean("x"), given_values)) == bits(define.mean(values))
        assert bits(computed(plait.var("x"), given_values)) == bits(define.variance(values))


@given(values=st.lists(st.one_of(finite, st.sampled_from((math.inf, -math.inf, math.nan))), min_size=1, max_size=5))
def test_sums_with_what_is_no_number(values: list[float]) -> None:
    assert bits(computed(plait.sum("x"), values)) == bits(define.total(values))
    assert bits(computed(plait.mean("x"), values)) == bits(define.mean(values))
    assert bits(computed(plait.var("x"), values)) == bits(define.variance(values))


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5))
def test_sums_of_integers_are_exact_or_an_error(values: list[int]) -> None:
    column = pa.array(values, pa.int64())
    assert bits(computed(plait.mean("x"), column)) == bits(define.mean(values))
    assert bits(computed(plait.var("x"), column)) == bits(define.variance(values))
    if -(2**63) <= sum(values) < 2**63:
        assert computed(plait.sum("x"), column) == sum(values)
    else:
        with pytest.raises(DataError, match=f"The sum in column 'v' is {sum(values)}, beyond 64 bits"):
            computed(plait.sum("x"), column)


@pytest.mark.parametrize("function", ["sum", "mean", "var", "min", "max"])
def test_null_is_skipped_and_none_at_all_gives_null(function: str) -> None:
    make = getattr(plait, function)
    of_two_threes = {"sum": 6, "var": 0}.get(function, 3)
    for kind in (pa.int32(), pa.float32()):
        assert computed(make("x"), pa.array([None, None], pa.int32()).cast(kind)) is None
        assert computed(make("x"), pa.array([None, 3, 3], pa.int32()).cast(kind)) == of_two_threes


def test_first_and_last_keep_null() -> None:
    assert computed(plait.first("x"), [None, 1, 2]) is None
    assert computed(plait.last("x"), [1, 2, None]) is None


# --- conditions on one row ----------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [
    "x >= 2", "row.x >= 2", "l.x >= 2", "X >= 2", lambda row: row.x >= 2, lambda row: row["x"] > 1 and True,
], ids=["bare", "row", "l", "bare, other case", "traced", "opaque"])  # fmt: skip
def test_where_in_every_form(where: Any) -> None:
    assert computed(plait.first_where("x", where), [None, 1, 3, 2]) == 3
    assert computed(plait.count_where(where), [None, 1, 3, 2]) == 2


# --- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "values", "groups"), [
    (pa.float64(), [math.nan, None, 1.0, -0.0, -math.inf, 0.0, math.inf, math.nan],
     [(-math.inf, 1), (0.0, 2), (1.0, 1), (math.inf, 1), (math.nan, 2), (None, 1)]),
    (pa.string(), ["b", None, "é", "a\x00", "a", "Z", "\U0001f600", "\uffee"],
     [(s, 1) for s in ("Z", "a", "a\x00", "b", "é", "\uffee", "\U0001f600", None)]),
    (pa.int8(), [3, None, -5, 3], [(-5, 1), (3, 2), (None, 1)]),
    (pa.bool_(), [True, None, False, True], [(False, 1), (True, 2), (None, 1)]),
    (pa.binary(), [b"b", b"", b"\xff", None], [(b"", 1), (b"b", 1), (b"\xff", 1), (None, 1)]),
])  # fmt: skip
def test_a_winset_is_ordered_by_key(kind: pa.DataType, values: list[Any], groups: list[tuple[Any, int]]) -> None:
    """NULL is a group and sorts last; NaN is one group after all numbers; -0.0 = 0.0; text by bytes."""
    query = plait.aggregate(A, size="10us", by="k", compute={"n": plait.count()})
    table = query.reference({"a": pa.table({"ts": [0] * len(values), "k": pa.array(values, kind)})})
    got = [
        (bits(k) if isinstance(k, float) else k, n)
        for k, n in zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True)
    ]
    assert got == [(bits(k) if isinstance(k, float) else k, n) for k, n in groups]


# --- windows at the ends of time ----------------------------------------------------------------------------


def windows(query: plait.Query, *times: int) -> list[tuple[int, int, int]]:
    table = query.reference({"a": pa.table({"ts": pa.array(times, pa.int64())})})
    return [(row["ts"], row["window_start"], row["window_end"]) for row in table.to_pylist()]


def test_windows_are_aligned_at_zero_and_half_open() -> None:
    query = plait.aggregate(A, size="3us", advance="2us", compute={"n": plait.count()})
    assert windows(query, -1, 0) == [(0, -2, 1), (-0 + 2, 0, 3)]


def test_the_first_tuple_at_an_end_is_in_the_next_window() -> None:
    query = plait.aggregate(A, size="5us", compute={"n": plait.count()})
    assert windows(query, 4, 5) == [(4, 0, 5), (9, 5, 10)]


@pytest.mark.parametrize("size", [2**62, 2**62 - 1, 2**62 - 2])
def test_no_window_is_lost_at_the_end_of_time(size: int) -> None:
    """A window that ends after 2^63 has no end that fits: an error may say so; silence is no answer."""
    query = plait.aggregate(A, size=f"{size}us", compute={"n": plait.count()})
    start = 2**62 // size * size
    try:
        found = windows(query, 2**62)
    except PlaitError:
        return
    assert found == [(start + size - 1, start, start + size)]


def test_every_window_of_a_tuple_at_the_beginning_of_time() -> None:
    query = plait.aggregate(A, size="4us", advance="2us", compute={"n": plait.count()})
    assert windows(query, -(2**62)) == [(-(2**62) + e - 1, -(2**62) + e - 4, -(2**62) + e) for e in (2, 4)]
