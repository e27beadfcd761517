"""Aggregate functions as folds over a window's rows, in total order. Sums of floats are exact and rounded once.

A fold gets the rows of one window and group, in total order, and gives one value of the output column. There is at least one
row, unless `where=` leaves none. NULL is None. The rules are those of design.md, section 1: `count` counts rows; first, last and
collect keep NULL; the others pass over it, and give NULL if nothing is left.

Numbers are exact fractions here: slow, and with nothing in common with the limbs of `core.kernels.exact`, which they
judge.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from plait.errors import DataError, user_raised
from plait.query.functions import Function
from plait.query.statistics import exact_part
from plait.reference.condition import EMPTY, condition
from plait.reference.intake import sort_value
from plait.reference.rows import Row, seen, stored

Fold = Callable[[Sequence[Row]], Any]
Made = Callable[[Function, pa.Schema, str], Fold]

_EMPTY_SCHEMA = pa.schema([])


def fold(function: Function, schema: pa.Schema, name: str) -> Fold:
    """The function that turns a window's rows into one value of column `name`.

    Raises KeyError for a function that is not in FOLDS; tests/core/aggregate/test_registry.py sees that none is missing.
    """
    made = FOLDS[function.kind](function, schema, name)
    if function.where is None:
        return made
    # A condition on one row, as a function of two of which the second is not looked at.
    holds = condition(function.where.bind(schema, _EMPTY_SCHEMA), schema, _EMPTY_SCHEMA, rows=1)
    return lambda rows: made([row for row in rows if holds(row, EMPTY)])


def _count(function: Function, schema: pa.Schema, name: str) -> Fold:
    """Rows, whatever they hold."""
    return len


def _first(function: Function, schema: pa.Schema, name: str) -> Fold:
    """The value of the first row, NULL or not. Rows are in total order, so ties of ts have one answer."""
    at = schema.get_field_index(function.columns[0])
    return lambda rows: rows[0].values[at] if rows else None


def _last(function: Function, schema: pa.Schema, name: str) -> Fold:
    at = schema.get_field_index(function.columns[0])
    return lambda rows: rows[-1].values[at] if rows else None


def _collect(function: Function, schema: pa.Schema, name: str) -> Fold:
    """All values, NULL among them, in total order."""
    at = schema.get_field_index(function.columns[0])
    return lambda rows: [row.values[at] for row in rows]


def _distinct(function: Function, schema: pa.Schema, name: str) -> Fold:
    """NULL is no value. What `sort_value` makes equal counts once: 0.0 and -0.0, all NaN."""
    at = schema.get_field_index(function.columns[0])
    return lambda rows: len({sort_value(row.values[at]) for row in rows if row.values[at] is not None})


def _over_values(function: Function, schema: pa.Schema, of_values: Callable[[Sequence[Any]], Any]) -> Fold:
    """Of the values that are not NULL, if there are any.

    `of_values` is never called with an empty list.
    """
    at = schema.get_field_index(function.columns[0])

    def over_values(rows: Sequence[Row]) -> Any:
        values = [row.values[at] for row in rows if row.values[at] is not None]
        return of_values(values) if values else None

    return over_values


def _of(of_values: Callable[[Sequence[Any]], Any]) -> Made:
    """For functions that need nothing but the values."""
    return lambda function, schema, name: _over_values(function, schema, of_values)


def _custom(function: Function, schema: pa.Schema, name: str) -> Fold:
    """A user's function. `add` is called once a row, in total order, with Python's values, NULL as None; then `result`,
    if there is one. What comes out must be of the declared type: nothing is converted.
    """
    custom = function.custom
    assert custom is not None
    places = [(schema.get_field_index(c), schema.field(c).type) for c in function.columns]

    def folded(rows: Sequence[Row]) -> Any:
        try:
            state = custom.init()
            for row in rows:
                state = custom.add(state, *(seen(row.values[at], kind) for at, kind in places))
            value = state if custom.result is None else custom.result(state)
        except DataError:
            raise
        except Exception as error:
            span = f", from ts {rows[0].ts} to {rows[-1].ts}" if rows else ""
            why = f"it was called with the {len(rows)} rows of a window{span}"
            raise user_raised(error, f"The custom function in column {name!r}", why) from error
        return stored(value, custom.type, f"The custom function's result in column {name!r}")

    return folded


# --- exact arithmetic ---------------------------------------------------------------------------------------


def exact_sum(values: Sequence[float]) -> Fraction | float:
    """The sum as a fraction; as a float where an infinity or a NaN decides it.

    Of +inf and -inf, or of any NaN, the answer is NaN; of one kind of infinity, that infinity.
    """
    odd = [v for v in values if not math.isfinite(v)]
    if odd:
        return odd[0] if all(v == odd[0] for v in odd) else math.nan
    return sum((Fraction(v) for v in values), Fraction(0))


def rounded(exact: Fraction | float) -> float:
    """To the nearest float, ties to even; beyond the largest one it is infinite. An exact zero has no sign; what is only too
    small for a float keeps its own, as IEEE 754 rounds.
    """
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _sum(name: str) -> Callable[[Sequence[Any]], Any]:
    """A sum in output column `name`. Floats by `exact_sum`, rounded once. Integers as Python's: beyond 64 bits is an
    error, since no float would be exact.
    """

    def total(values: Sequence[Any]) -> Any:
        if isinstance(values[0], float):
            return rounded(exact_sum(values))
        result = sum(values)
        if not -(2**63) <= result < 2**63:
            raise DataError(
                f"The sum in column {name!r} is {result}, beyond 64 bits",
                why="integer sums are exact or an error",
                do="Cast the column to float64 to accept rounding",
            )
        return result

    return total


def mean(values: Sequence[Any]) -> float:
    """The exact sum over the count, rounded once, of integers too. The mean of values near the largest float does not
    overflow on the way.
    """
    total = exact_sum(values)
    return rounded(total / len(values)) if isinstance(total, Fraction) else total


def variance(values: Sequence[Any]) -> Fraction | float | None:
    """The sample's: the squares' distances from the exact mean, over n - 1."""
    if len(values) < 2:
        return None
    total = exact_sum(values)
    if not isinstance(total, Fraction):
        return math.nan
    centre = total / len(values)
    return sum((Fraction(v) - centre) ** 2 for v in values) / (len(values) - 1)


def var(values: Sequence[Any]) -> float | None:
    exact = variance(values)
    return None if exact is None else rounded(exact)


def std(values: Sequence[Any]) -> float | None:
    exact = variance(values)
    return rounded_root(exact) if isinstance(exact, Fraction) else exact


def rounded_root(square: Fraction) -> float:
    """The float nearest to the root of an exact number that is not below zero, ties to even.

    A guess is moved to the neighbour until the root lies between the points half way to both of its neighbours. These are
    compared with the root by their squares, exactly.
    """
    if square == 0:
        return 0.0
    half = (square.numerator.bit_length() - square.denominator.bit_length()) // 2
    guess = _scaled(math.sqrt(square / Fraction(4) ** half), half)
    while True:
        below, above = math.nextafter(guess, -math.inf), math.nextafter(guess, math.inf)
        even = struct.unpack("<q", struct.pack("<d", guess))[0] % 2 == 0
        low, high = (exact_float(guess) + exact_float(below)) / 2, (exact_float(guess) + exact_float(above)) / 2
        if guess > 0 and (low**2 > square or (low**2 == square and not even)):
            guess = below
        elif guess < math.inf and (high**2 < square or (high**2 == square and not even)):
            guess = above
        else:
            return guess


def _scaled(value: float, power: int) -> float:
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.inf


def exact_float(value: float) -> Fraction:
    """As rounding sees it: infinity stands where the next float would be."""
    return Fraction(2) ** 1024 if value == math.inf else Fraction(value)


def _pairs(of_pairs: Callable[[Sequence[Any], Sequence[Any]], float | None]) -> Made:
    """Of two columns, the tuples in which neither is NULL; fewer than two give NULL, and an odd value gives NaN."""

    def made(function: Function, schema: pa.Schema, name: str) -> Fold:
        x, y = (schema.get_field_index(column) for column in function.columns)

        def folded(rows: Sequence[Row]) -> Any:
            both = [(r.values[x], r.values[y]) for r in rows if r.values[x] is not None and r.values[y] is not None]
            if len(both) < 2:
                return None
            if not all(math.isfinite(v) for pair in both for v in pair):
                return math.nan
            left, right = zip(*both, strict=True)
            return of_pairs(left, right)

        return folded

    return made


def _moments(x: Sequence[Any], y: Sequence[Any]) -> Fraction:
    """The sum of products of distances from the exact means."""
    exact_x, exact_y = [Fraction(v) for v in x], [Fraction(v) for v in y]
    centre_x, centre_y = sum(exact_x, Fraction(0)) / len(x), sum(exact_y, Fraction(0)) / len(y)
    return sum(((a - centre_x) * (b - centre_y) for a, b in zip(exact_x, exact_y, strict=True)), Fraction(0))


def covar(x: Sequence[Any], y: Sequence[Any]) -> float:
    return rounded(_moments(x, y) / (len(x) - 1))


def corr(x: Sequence[Any], y: Sequence[Any]) -> float | None:
    """NULL where one of them is constant: there is nothing to go with."""
    both, of_x, of_y = _moments(x, y), _moments(x, x), _moments(y, y)
    if of_x == 0 or of_y == 0:
        return None
    root = rounded_root(both**2 / (of_x * of_y))
    return -root if both < 0 else root


# --- values in their order ------------------------------------------------------------------------------------


def _quantile(function: Function, schema: pa.Schema, name: str) -> Fold:
    part = exact_part(function.parameter("q"))
    between = function.parameter("interpolate")
    return _over_values(function, schema, lambda values: (between_two if between else at_least)(values, part))


def at_least(values: Sequence[Any], part: Fraction) -> Any:
    """The least value with at least `part * n` values at or below it."""
    by_size = sorted(values, key=sort_value)
    needed = max(math.ceil(part * len(values)), 1)
    return one_form(by_size[needed - 1])


def between_two(values: Sequence[Any], part: Fraction) -> float:
    """The value at `part * (n - 1)` of the sorted ones, on the line between its neighbours, rounded once."""
    by_size = sorted(values, key=sort_value)
    place = part * (len(values) - 1)
    low, high = by_size[math.floor(place)], by_size[math.ceil(place)]
    if low == high or place == math.floor(place):
        return one_form(float(low)) if isinstance(low, float) else rounded(Fraction(low))
    if not (math.isfinite(low) and math.isfinite(high)):
        # A line that begins or ends at infinity is there everywhere but at its other end.
        return float(exact_sum([v for v in (low, high) if not math.isfinite(v)]))
    return rounded(Fraction(low) + (place - math.floor(place)) * (Fraction(high) - Fraction(low)))


def mode(values: Sequence[Any]) -> Any:
    """The most frequent value; of several the one that is seen first."""
    times: dict[Any, int] = {}
    for value in values:
        times[sort_value(value)] = times.get(sort_value(value), 0) + 1
    most = max(times.values())
    return one_form(next(value for value in values if times[sort_value(value)] == most))


def _by(function: Function, schema: pa.Schema) -> Callable[[Sequence[Row]], list[tuple[Any, Any]]]:
    """Of the tuples whose `by` is not NULL: how they compare by it, and their value, in total order."""
    at, by = (schema.get_field_index(column) for column in function.columns)
    return lambda rows: [(sort_value(r.values[by]), r.values[at]) for r in rows if r.values[by] is not None]


def _arg(best: Callable[..., Any]) -> Made:
    """The first of those whose `by` is the least, or the greatest: Python's min and max keep the first of equals."""

    def made(function: Function, schema: pa.Schema, name: str) -> Fold:
        of = _by(function, schema)
        return lambda rows: best(of(rows), key=lambda pair: pair[0], default=(None, None))[1]

    return made


def _top(function: Function, schema: pa.Schema, name: str) -> Fold:
    """The greatest first. Sorting backwards keeps the order of equals."""
    of, k = _by(function, schema), function.parameter("k")
    return lambda rows: [value for _, value in sorted(of(rows), key=lambda pair: pair[0], reverse=True)[:k]]


def least(values: Sequence[Any]) -> Any:
    """The least value. By `sort_value`: NaN is above all numbers, so it is the least only if there is nothing else."""
    return one_form(min(values, key=sort_value))


def greatest(values: Sequence[Any]) -> Any:
    return one_form(max(values, key=sort_value))


def one_form(value: Any) -> Any:
    """Of equal values the one that stands for all: 0.0 for -0.0, and one NaN, so that which came first does not show."""
    if not isinstance(value, float):
        return value
    return math.nan if math.isnan(value) else value + 0.0


#: By name, how a function's fold is made: of the function, its input's schema and the output column.
FOLDS: dict[str, Made] = {
    "count": _count,
    "count_where": _count,
    "sum": lambda function, schema, name: _over_values(function, schema, _sum(name)),
    "mean": _of(mean),
    "min": _of(least),
    "max": _of(greatest),
    "var": _of(var),
    "std": _of(std),
    "covar": _pairs(covar),
    "corr": _pairs(corr),
    "quantile": _quantile,
    "median": _of(lambda values: between_two(values, Fraction(1, 2))),
    "mode": _of(mode),
    "arg_min": _arg(min),
    "arg_max": _arg(max),
    "top": _top,
    "first": _first,
    "last": _last,
    "first_where": _first,
    "collect": _collect,
    "distinct": _distinct,
    "custom": _custom,
}
