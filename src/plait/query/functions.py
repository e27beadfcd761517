"""Aggregate functions as descriptions: what each computes over a window's tuples, in total order.

Order-insensitive functions give the same for any order of their tuples; `merge` says that two partial states can be
joined. Order-sensitive ones read their tuples in total order. Either way the answer is that of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.predicate import Predicate, check_arguments, condition
from plait.schema import arrow_type, is_text


@dataclass(frozen=True)
class Custom:
    """A user's own function. `merge` None: order-sensitive."""

    init: Callable[[], Any]
    add: Callable[..., Any]
    merge: Callable[[Any, Any], Any] | None
    result: Callable[[Any], Any] | None
    type: pa.DataType


@dataclass(frozen=True)
class Function:
    """`kind` names what is computed; `columns` what it reads, none for `count`."""

    kind: str
    columns: tuple[str, ...]
    where: Predicate | None = None
    custom: Custom | None = field(default=None)

    @property
    def order_sensitive(self) -> bool:
        if self.custom is not None:
            return self.custom.merge is None
        return self.kind in ("first", "last", "first_where", "collect")

    @property
    def merges(self) -> bool:
        """Whether two adjacent partial states make one: first and last do, a custom function says so itself."""
        return self.custom is None or self.custom.merge is not None

    def describe(self) -> str:
        parts = list(self.columns) + ([f"where {self.where.describe()}"] if self.where else [])
        return f"{self.kind}({', '.join(parts)})"

    def result_type(self, schema: pa.Schema, stream: str) -> pa.DataType:
        """The type of the result's column; raises where the function can't read such a column."""
        for column in self.columns:
            if column not in schema.names:
                raise QueryError(
                    f"{self.kind}({column!r}): {stream} has no column {column!r}",
                    why=f"its columns are {', '.join(schema.names)}",
                )
        if self.where is not None:
            self.where.bind(schema, pa.schema([]))
        if self.custom is not None:
            return self.custom.type
        if self.kind in ("count", "count_where", "distinct"):
            return pa.int64()
        kind = schema.field(self.columns[0]).type
        if self.kind == "collect":
            return pa.list_(kind)
        if self.kind in ("first", "last", "first_where"):
            return kind
        return self._numeric_type(kind)

    def _numeric_type(self, kind: pa.DataType) -> pa.DataType:
        number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
        if self.kind in ("min", "max"):
            ordered = number or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
            if ordered or pa.types.is_binary(kind) or pa.types.is_decimal(kind):
                return kind
            raise QueryError(
                f"{self.kind}({self.columns[0]!r}) of a column of type {kind}",
                why="its values have no order",
                do="Cast the column, or write a plait.custom function",
            )
        if not number:
            raise QueryError(
                f"{self.kind}({self.columns[0]!r}) of a column of type {kind}",
                why="it adds integers and floats of 32 or 64 bits",
                do="Cast the column, or write a plait.custom function",
            )
        return pa.int64() if self.kind == "sum" and pa.types.is_integer(kind) else pa.float64()


def _column(kind: str, column: object) -> tuple[str, ...]:
    if isinstance(column, str) and column:
        return (column,)
    raise QueryError(f"{kind}({column!r}) names no column", do=f"Write plait.{kind}('column')")


def count() -> Function:
    """The number of tuples, whatever their columns hold."""
    return Function("count", ())


def count_where(where: str | Callable[..., Any]) -> Function:
    """The number of tuples for which a condition on one row is true."""
    return Function("count_where", (), condition(where, "row"))


def sum(column: str) -> Function:
    """The sum: int64 for integers (an overflow is an error), float64 for floats, exact and rounded once."""
    return Function("sum", _column("sum", column))


def mean(column: str) -> Function:
    """The mean as float64: the exact quotient, rounded once."""
    return Function("mean", _column("mean", column))


def min(column: str) -> Function:
    """The smallest value; NULL is skipped, NaN counts as above all numbers."""
    return Function("min", _column("min", column))


def max(column: str) -> Function:
    """The largest value; NULL is skipped, NaN counts as above all numbers."""
    return Function("max", _column("max", column))


def var(column: str) -> Function:
    """The sample's variance as float64: exact, rounded once; NULL for fewer than two values."""
    return Function("var", _column("var", column))


def first(column: str) -> Function:
    """The column of the first tuple in total order, NULL kept."""
    return Function("first", _column("first", column))


def last(column: str) -> Function:
    """The column of the last tuple in total order, NULL kept."""
    return Function("last", _column("last", column))


def first_where(column: str, where: str | Callable[..., Any]) -> Function:
    """The column of the first tuple for which a condition on one row is true; NULL if there is none."""
    return Function("first_where", _column("first_where", column), condition(where, "row"))


def collect(column: str) -> Function:
    """The column's values as a list, in total order, NULL kept."""
    return Function("collect", _column("collect", column))


def distinct(column: str) -> Function:
    """How many different values the column holds, NULL left out."""
    return Function("distinct", _column("distinct", column))


def custom(
    column: str | list[str] | tuple[str, ...],
    *,
    init: Callable[[], Any],
    add: Callable[..., Any],
    type: Any,
    merge: Callable[[Any, Any], Any] | None = None,
    result: Callable[[Any], Any] | None = None,
) -> Function:
    """A function of your own: `state = init()`, `state = add(state, value, ...)` for each tuple in total order.

    `merge(earlier, later)` joins two states and declares the function order-insensitive: plait may then split the work.
    `result(state)` makes the output, of Arrow type `type`. Values are Python's; NULL is None. `add` may run compiled, with
    the very same result; `explain` of a run says whether it does.
    """
    names = (column,) if isinstance(column, str) else column
    if not (isinstance(names, (list, tuple)) and names and all(isinstance(c, str) and c for c in names)):
        raise QueryError(f"custom({column!r}) names no column", do="Pass a column or a list of columns")
    for option, function, arguments in (
        ("init", init, 0), ("add", add, 1 + len(names)), ("merge", merge, 2), ("result", result, 1)
    ):  # fmt: skip
        if function is None and option in ("merge", "result"):
            continue
        if not callable(function):
            raise QueryError(
                f"custom: {option}={function!r} is no function",
                do="See help(plait.custom) for what each is called with",
            )
        check_arguments(function, f"custom: {option}", arguments, "See help(plait.custom) for what each is called with")
    return Function("custom", tuple(names), None, Custom(init, add, merge, result, arrow_type(type, "custom: type")))
