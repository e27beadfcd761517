"""Aggregate functions of how values are spread: deviations, quantiles, the most frequent, what goes with an extreme.

As `query.functions` has it: here is how each is called, what it reads and the type of its result. Definitions are those of
docs/semantics.md; whatever is a float is exact and rounded once.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.functions import (
    Function,
    Where,
    check_exports,
    is_number,
    is_ordered,
    listed,
    one_column,
    ordered,
    own,
    registered,
    rounded,
    seen,
)  # fmt: skip
from plait.query.row_calls import Value
from plait.schema import tuple_count

#: What `plait` exports of this module: checked below against the functions that are registered.
__all__ = ["arg_max", "arg_min", "corr", "covar", "median", "mode", "quantile", "std", "top"]


# --- types of results -------------------------------------------------------------------------------------------


def _rounded_both(function: Function, schema: pa.Schema) -> pa.DataType:
    """A float, of two columns that can be multiplied."""
    for column in function.columns:
        kind = schema.field(column).type
        if not is_number(kind):
            raise QueryError(
                f"{function.kind}({', '.join(map(repr, function.columns))}): column {column!r} is of type {kind}",
                why="it multiplies integers and floats of 32 or 64 bits",
                do="Cast the column, or write a plait.custom function",
            )
    return pa.float64()


def _quantile(function: Function, schema: pa.Schema) -> pa.DataType:
    """The column's own, of values that have an order; a float where it lies between two of them."""
    return rounded(function, schema) if function.parameter("interpolate") else ordered(function, schema)


def _beside(function: Function, schema: pa.Schema) -> pa.DataType:
    """The column's own, beside one whose values have an order."""
    by = function.columns[1]
    kind = schema.field(by).type
    if not is_ordered(kind):
        raise QueryError(
            f"{function.kind}(..., by={by!r}): column {by!r} is of type {kind}",
            why="its values have no order",
            do="Cast the column, or write a plait.custom function",
        )
    return own(function, schema)


def _several_beside(function: Function, schema: pa.Schema) -> pa.DataType:
    _beside(function, schema)
    return listed(function, schema)


# --- the functions ----------------------------------------------------------------------------------------------


@registered(rounded)
def std(column: Value, *, where: Where | None = None) -> Function:
    """Compute the standard deviation of a sample: the root of `var`. NULL is skipped; fewer than two values give NULL.

    Args:
        column: A column of integers, or of floats of 32 or 64 bits.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is float64: the root of the exact variance, rounded once.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"std": plait.std("x")})
        >>> query.reference({"s": {"ts": [1, 2, 3, 15], "x": [1, 3, 5, 9]}})["std"].to_pylist()
        [2.0, None]
    """
    return Function("std", one_column("std", column), seen(where))


@registered(_rounded_both)
def covar(x: Value, y: Value, *, where: Where | None = None) -> Function:
    """Compute the covariance of a sample. Tuples in which either is NULL are skipped; fewer than two give NULL.

    Args:
        x: A column of integers, or of floats of 32 or 64 bits.
        y: Another one, or the same.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is float64, exact and rounded once.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"c": plait.covar("x", "y")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [1, 2, 3], "y": [2.0, 4.0, None]}})["c"].to_pylist()
        [1.0]
    """
    return Function("covar", one_column("covar", x) + one_column("covar", y), seen(where))


@registered(_rounded_both)
def corr(x: Value, y: Value, *, where: Where | None = None) -> Function:
    """Compute the correlation of two columns. Tuples in which either is NULL are skipped.

    Fewer than two tuples give NULL, and so does a column whose values are all equal.

    Args:
        x: A column of integers, or of floats of 32 or 64 bits.
        y: Another one, or the same.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is float64: from exact moments, rounded once.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"c": plait.corr("x", "y")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [1, 2, 3], "y": [9.0, 7.0, 5.0]}})["c"].to_pylist()
        [-1.0]
    """
    return Function("corr", one_column("corr", x) + one_column("corr", y), seen(where))


@registered(_quantile)
def quantile(column: Value, q: float, *, interpolate: bool = False, where: Where | None = None) -> Function:
    """Take the least value with at least `q * n` of the window's n values at or below it. NULL is skipped.

    Args:
        column: A column of numbers, decimals, truth values, times, text or bytes. With `interpolate` one of integers, or of
            floats of 32 or 64 bits.
        q: From 0 to 1, taken as the decimal that it is written as: 0.1 of ten values is one value.
        interpolate: Whether the answer may lie between two values: the one at `q * (n - 1)` of the sorted values, counted from 0,
            by a straight line between its neighbours. As NumPy has it by default.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column has the input's type; with `interpolate` it is float64, exact and rounded once.

    Raises:
        QueryError: No column is named, `q` is no number from 0 to 1, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"p90": plait.quantile("x", 0.9)})
        >>> query.reference({"s": {"ts": [0] * 10, "x": [5, 3, 8, 1, 9, 2, 7, 10, 4, 6]}})["p90"].to_pylist()
        [9]
    """
    if isinstance(q, bool) or not isinstance(q, (int, float)) or not 0 <= q <= 1:
        raise QueryError(f"quantile(q={q!r}) is no number from 0 to 1", do="Pass a part of the whole, such as 0.95")
    if not isinstance(interpolate, bool):
        raise QueryError(
            f"quantile(interpolate={interpolate!r}) is neither True nor False",
            do="Pass True to have the value between two, False for one that is there",
        )
    given = (("q", float(q)), ("interpolate", interpolate))
    return Function("quantile", one_column("quantile", column), seen(where), parameters=given)


@registered(rounded)
def median(column: Value, *, where: Where | None = None) -> Function:
    """Take the middle value; of an even number of values the mean of the two in the middle. NULL is skipped.

    Args:
        column: A column of integers, or of floats of 32 or 64 bits.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is float64: as `quantile(column, 0.5, interpolate=True)`.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"m": plait.median("x")})
        >>> query.reference({"s": {"ts": [1, 2, 3, 15, 16], "x": [9, 1, 4, 1, 2]}})["m"].to_pylist()
        [4.0, 1.5]
    """
    return Function("median", one_column("median", column), seen(where))


@registered(own)
def mode(column: Value, *, where: Where | None = None) -> Function:
    """Take the most frequent value; of several the one that is seen first in total order. NULL is skipped.

    Args:
        column: Any column.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column has the input's type.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"m": plait.mode("x")})
        >>> query.reference({"s": {"ts": [1, 2, 3, 4, 5], "x": ["c", "b", "a", "b", "a"]}})["m"].to_pylist()
        ['b']
    """
    return Function("mode", one_column("mode", column), seen(where))


@registered(_beside)
def arg_min(column: Value, by: Value, *, where: Where | None = None) -> Function:
    """Take the column of the tuple whose `by` is least; of several the first in total order.

    Tuples whose `by` is NULL don't count; NaN is above all numbers.

    Args:
        column: Any column. NULL is kept.
        by: A column of numbers, decimals, truth values, times, text or bytes.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column has the input's type.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> cheapest = plait.arg_min("shop", "price")
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"cheapest": cheapest})
        >>> query.reference({"s": {"ts": [1, 2, 3], "shop": ["a", "b", "c"], "price": [3, 1, 1]}})["cheapest"].to_pylist()
        ['b']
    """
    return Function("arg_min", one_column("arg_min", column) + one_column("arg_min", by), seen(where))


@registered(_beside)
def arg_max(column: Value, by: Value, *, where: Where | None = None) -> Function:
    """Take the column of the tuple whose `by` is greatest; of several the first in total order.

    Tuples whose `by` is NULL don't count; NaN is above all numbers.

    Args:
        column: Any column. NULL is kept.
        by: A column of numbers, decimals, truth values, times, text or bytes.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column has the input's type.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"best": plait.arg_max("who", "bid")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "who": ["a", "b", "c"], "bid": [3, 7, None]}})["best"].to_pylist()
        ['b']
    """
    return Function("arg_max", one_column("arg_max", column) + one_column("arg_max", by), seen(where))


@registered(_several_beside)
def top(column: Value, k: int, by: Value, *, where: Where | None = None) -> Function:
    """List the column of the `k` tuples whose `by` is greatest, the greatest first; equal ones in total order.

    Tuples whose `by` is NULL don't count; NaN is above all numbers. A window with fewer has a shorter list.

    Args:
        column: Any column. NULL is kept.
        k: How many, at least 1.
        by: A column of numbers, decimals, truth values, times, text or bytes.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is a list of the input's type.

    Raises:
        QueryError: No column is named, `k` is no whole number above 0, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"best": plait.top("who", 2, by="bid")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "who": ["a", "b", "c"], "bid": [3, 7, 5]}})["best"].to_pylist()
        [['b', 'c']]
    """
    given = (("k", tuple_count(k, f"top(k={k!r})")),)
    return Function("top", one_column("top", column) + one_column("top", by), seen(where), parameters=given)


def exact_part(q: Any) -> Fraction:
    """A quantile's `q` as the decimal that it is written as."""
    return Fraction(repr(float(q)))


check_exports(__name__, __all__)
