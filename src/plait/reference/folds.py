"""Aggregate functions as folds over a window's rows, in total order. Sums of floats are exact and rounded once.

A fold gets the rows of one window and group, in total order, at least one, and gives one value of the output column. NULL
is None. The rules are those of design.md, section 1: `count` counts rows; sum, mean, min, max and var pass over NULL and
give NULL if nothing is left; first and last keep NULL.

Numbers are exact fractions here: slow, and with nothing in common with the limbs of `core.kernels.exact`, which they
judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pyarrow as pa

from plait.errors import DataError, user_raised
from plait.query.functions import Function
from plait.reference.condition import EMPTY, Condition, condition
from plait.reference.intake import sort_value
from plait.reference.rows import Row, seen, stored

Fold = Callable[[Sequence[Row]], Any]
Made = Callable[[Function, pa.Schema, str], Fold]

_EMPTY_SCHEMA = pa.schema([])


def fold(function: Function, schema: pa.Schema, name: str) -> Fold:
    """The function that turns a window's rows into one value of column `name`.

    Raises KeyError for a function that is not in FOLDS; tests/core/aggregate/test_registry.py sees that none is missing.
    """
    return FOLDS[function.kind](function, schema, name)


def _count(function: Function, schema: pa.Schema, name: str) -> Fold:
    """Rows, whatever they hold."""
    return len


def _first(function: Function, schema: pa.Schema, name: str) -> Fold:
    """The value of the first row, NULL or not. Rows are in total order, so ties of ts have one answer."""
    at = schema.get_field_index(function.columns[0])
    return lambda rows: rows[0].values[at]


def _last(function: Function, schema: pa.Schema, name: str) -> Fold:
    at = schema.get_field_index(function.columns[0])
    return lambda rows: rows[-1].values[at]


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


def _holds(function: Function, schema: pa.Schema) -> Condition:
    """A condition on one row, as a function of two of which the second is not looked at."""
    assert function.where is not None
    return condition(function.where.bind(schema, _EMPTY_SCHEMA), schema, _EMPTY_SCHEMA, rows=1)


def _count_where(function: Function, schema: pa.Schema, name: str) -> Fold:
    holds = _holds(function, schema)
    return lambda rows: sum(1 for row in rows if holds(row, EMPTY))


def _first_where(function: Function, schema: pa.Schema, name: str) -> Fold:
    """NULL where no row meets the condition, and where the first that does has NULL."""
    holds, at = _holds(function, schema), schema.get_field_index(function.columns[0])
    return lambda rows: next((row.values[at] for row in rows if holds(row, EMPTY)), None)


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
            why = f"it was called with the {len(rows)} rows of a window, from ts {rows[0].ts} to {rows[-1].ts}"
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


def var(values: Sequence[Any]) -> float | None:
    """The sample's: the squares' distances from the exact mean, over n - 1."""
    if len(values) < 2:
        return None
    total = exact_sum(values)
    if not isinstance(total, Fraction):
        return math.nan
    centre = total / len(values)
    return rounded(sum((Fraction(v) - centre) ** 2 for v in values) / (len(values) - 1))


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
    "count_where": _count_where,
    "sum": lambda function, schema, name: _over_values(function, schema, _sum(name)),
    "mean": _of(mean),
    "min": _of(least),
    "max": _of(greatest),
    "var": _of(var),
    "first": _first,
    "last": _last,
    "first_where": _first_where,
    "collect": _collect,
    "distinct": _distinct,
    "custom": _custom,
}
