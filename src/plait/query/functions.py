"""Aggregate functions as descriptions: what each computes over a window's tuples, in total order.

Here is what a query has to know of a function: how it is called, what it reads, and the type of its result. How it is
computed is said once more, in `core.aggregate.functions`, a record each; the reference has folds of its own. Whichever way a
function is computed, the answer is that of the sequence: of the window's tuples in total order.

To add one: a function here that is registered with `_registered`, its record in `core.aggregate.functions`, and its fold in
`reference.folds`. Importing `core.aggregate.functions` fails with its name if the record is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from plait.errors import QueryError
from plait.query.predicate import Predicate, check_arguments, condition
from plait.schema import arrow_type, is_text

#: What `plait` exports of this module: checked below against the functions that are registered.
__all__ = [
    "collect", "count", "count_where", "custom", "distinct", "first", "first_where", "last", "max", "mean", "min", "sum",
    "var",
]  # fmt: skip


@dataclass(frozen=True)
class Custom:
    """A user's own function. `merge` is never called: see `custom`."""

    init: Callable[[], Any]
    add: Callable[..., Any]
    merge: Callable[[Any, Any], Any] | None
    result: Callable[[Any], Any] | None
    type: pa.DataType


@dataclass(frozen=True)
class Function:
    """`kind` names what is computed, one of `KINDS`; `columns` what it reads, none for `count`."""

    kind: str
    columns: tuple[str, ...]
    where: Predicate | None = None
    custom: Custom | None = field(default=None)

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
        return KINDS[self.kind].result(self, schema)


# --- the registry -----------------------------------------------------------------------------------------------

Make = TypeVar("Make", bound=Callable[..., Function])
Result = Callable[[Function, pa.Schema], pa.DataType]


@dataclass(frozen=True)
class Kind:
    """A function as queries know it.

    make      what users call; it has the function's name
    result    the type of its result's column, of a function and its input's schema; raises where there is none
    in_files  whether a TOML file can name it: its arguments are text
    """

    make: Callable[..., Function]
    result: Result
    in_files: bool


#: By name, every function that there is.
KINDS: dict[str, Kind] = {}


def _registered(result: Result, *, in_files: bool = True) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        KINDS[make.__name__] = Kind(make, result, in_files)
        return make

    return register


# --- types of results -------------------------------------------------------------------------------------------


def _whole(function: Function, schema: pa.Schema) -> pa.DataType:
    return pa.int64()


def _own(function: Function, schema: pa.Schema) -> pa.DataType:
    return schema.field(function.columns[0]).type


def _listed(function: Function, schema: pa.Schema) -> pa.DataType:
    return pa.list_(_own(function, schema))


def _declared(function: Function, schema: pa.Schema) -> pa.DataType:
    assert function.custom is not None
    return function.custom.type


def _ordered(function: Function, schema: pa.Schema) -> pa.DataType:
    """The column's own, of values that have an order."""
    kind = _own(function, schema)
    ordered = _is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
    if ordered or pa.types.is_binary(kind) or pa.types.is_decimal(kind):
        return kind
    raise QueryError(
        f"{function.kind}({function.columns[0]!r}) of a column of type {kind}",
        why="its values have no order",
        do="Cast the column, or write a plait.custom function",
    )


def _rounded(function: Function, schema: pa.Schema) -> pa.DataType:
    """A float, of values that can be added up."""
    kind = _own(function, schema)
    if _is_number(kind):
        return pa.float64()
    raise QueryError(
        f"{function.kind}({function.columns[0]!r}) of a column of type {kind}",
        why="it adds integers and floats of 32 or 64 bits",
        do="Cast the column, or write a plait.custom function",
    )


def _total(function: Function, schema: pa.Schema) -> pa.DataType:
    rounded = _rounded(function, schema)
    return pa.int64() if pa.types.is_integer(_own(function, schema)) else rounded


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


# --- the functions ----------------------------------------------------------------------------------------------


def _column(kind: str, column: object) -> tuple[str, ...]:
    if isinstance(column, str) and column:
        return (column,)
    raise QueryError(f"{kind}({column!r}) names no column", do=f"Write plait.{kind}('column')")


@_registered(_whole)
def count() -> Function:
    """The number of tuples, whatever their columns hold."""
    return Function("count", ())


@_registered(_whole)
def count_where(where: str | Callable[..., Any]) -> Function:
    """The number of tuples for which a condition on one row is true."""
    return Function("count_where", (), condition(where, "row"))


@_registered(_total)
def sum(column: str) -> Function:
    """The sum: int64 for integers (an overflow is an error), float64 for floats, exact and rounded once."""
    return Function("sum", _column("sum", column))


@_registered(_rounded)
def mean(column: str) -> Function:
    """The mean as float64: the exact quotient, rounded once."""
    return Function("mean", _column("mean", column))


@_registered(_ordered)
def min(column: str) -> Function:
    """The smallest value; NULL is skipped, NaN counts as above all numbers."""
    return Function("min", _column("min", column))


@_registered(_ordered)
def max(column: str) -> Function:
    """The largest value; NULL is skipped, NaN counts as above all numbers."""
    return Function("max", _column("max", column))


@_registered(_rounded)
def var(column: str) -> Function:
    """The sample's variance as float64: exact, rounded once; NULL for fewer than two values."""
    return Function("var", _column("var", column))


@_registered(_own)
def first(column: str) -> Function:
    """The column of the first tuple in total order, NULL kept."""
    return Function("first", _column("first", column))


@_registered(_own)
def last(column: str) -> Function:
    """The column of the last tuple in total order, NULL kept."""
    return Function("last", _column("last", column))


@_registered(_own)
def first_where(column: str, where: str | Callable[..., Any]) -> Function:
    """The column of the first tuple for which a condition on one row is true; NULL if there is none."""
    return Function("first_where", _column("first_where", column), condition(where, "row"))


@_registered(_listed)
def collect(column: str) -> Function:
    """The column's values as a list, in total order, NULL kept."""
    return Function("collect", _column("collect", column))


@_registered(_whole)
def distinct(column: str) -> Function:
    """How many different values the column holds, NULL left out."""
    return Function("distinct", _column("distinct", column))


@_registered(_declared, in_files=False)
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

    `result(state)` makes the output, of Arrow type `type`. Values are Python's; NULL is None. `add` may run compiled, with
    the very same result; `explain` of a run says whether it does.

    `merge` is never called. A window's result is what `add` makes of its tuples in total order, and two states that are joined
    need not come to the same bits: sums of floats do not. It is accepted so that queries written with it still run, and go on
    from their checkpoints, which know a query by its functions.
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


for _name in KINDS.keys() - set(__all__):
    raise ImportError(f"aggregate function {_name!r} is registered, but not in __all__ of plait.query.functions")
for _name in set(__all__) - KINDS.keys():
    raise ImportError(f"aggregate function {_name!r} is in __all__ of plait.query.functions, but not registered")
