"""Aggregate functions as descriptions: what each computes over a window's tuples, in total order.

Here is what a query has to know of a function: how it is called, what it reads, and the type of its result. How it is
computed is said once more, in `core.aggregate.functions`, a record each; the reference has folds of its own. Whichever way a
function is computed, the answer is that of the sequence: of the window's tuples in total order.

To add one: a function here (or in `query.statistics`) that is registered with `registered`, its record in
`core.aggregate.functions`, and its fold in `reference.folds`. Importing `core.aggregate.functions` fails with its name if the
record is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pyarrow as pa

from plait.errors import QueryError
from plait.query.arguments import RowFunction, by_name
from plait.query.condition.predicate import Predicate, check_arguments, condition
from plait.query.row_by_row import Computed, Expressed, expressed
from plait.query.row_calls import Value
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
    """An aggregate function of a query, made by `plait.count()`, `plait.mean("x")` and their like.

    The examples of its methods go on from this one.

    Attributes:
        kind: What is computed, one of `KINDS`.
        columns: The columns it reads. `count` reads none.
        where: The condition that tuples must meet to be seen at all, else None.
        custom: Of `custom` the user's functions, else None.
        parameters: What it is given besides columns, by name: of `quantile` its `q`, of `top` its `k`.

    Example:
        >>> import plait, pyarrow as pa
        >>> mean = plait.mean("cons")
        >>> mean.kind, mean.columns
        ('mean', ('cons',))
    """

    kind: str
    columns: tuple[str, ...]
    where: Predicate | None = None
    custom: Custom | None = field(default=None)
    parameters: tuple[tuple[str, Any], ...] = ()

    def parameter(self, name: str) -> Any:
        """A value that the function was given besides its columns.

        Args:
            name: What it is called.

        Returns:
            The value.

        Raises:
            KeyError: It has no such parameter.

        Example:
            >>> plait.quantile("cons", 0.9).parameter("q")
            0.9
        """
        return dict(self.parameters)[name]

    @property
    def made(self) -> tuple[tuple[str, Computed], ...]:
        """The columns it reads that the input does not have, and how each is made."""
        return tuple((column, column.computed) for column in self.columns if isinstance(column, Expressed))

    def describe(self) -> str:
        """The function in words, as `explain` shows it.

        Returns:
            Its name, columns, parameters and condition. On Spark they are part of what a checkpoint knows a query by.

        Example:
            >>> mean.describe()
            'mean(cons)'
        """
        parts = [*self.columns, *(f"{name}={value}" for name, value in self.parameters)]
        parts += [f"where {self.where.describe()}"] if self.where else []
        return f"{self.kind}({', '.join(parts)})"

    def result_type(self, schema: pa.Schema, stream: str) -> pa.DataType:
        """The type of the result's column.

        Args:
            schema: The input's columns.
            stream: What the input is called in messages.

        Returns:
            An Arrow type.

        Raises:
            QueryError: A column is missing, or has a type that the function can't read.

        Example:
            >>> mean.result_type(pa.schema([("cons", pa.int32())]), "stream 'readings'")
            DataType(double)
        """
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
#: A condition on one row: SQL text, or a function of it.
Where = RowFunction
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


def registered(result: Result, *, in_files: bool = True) -> Callable[[Make], Make]:
    """Enter a function in `KINDS`, with the type of its result."""

    def register(make: Make) -> Make:
        told = cast(Make, by_name(make))
        KINDS[make.__name__] = Kind(told, result, in_files)
        return told

    return register


# --- types of results -------------------------------------------------------------------------------------------


def whole(function: Function, schema: pa.Schema) -> pa.DataType:
    """A whole number."""
    return pa.int64()


def own(function: Function, schema: pa.Schema) -> pa.DataType:
    """The column's own type."""
    return schema.field(function.columns[0]).type


def listed(function: Function, schema: pa.Schema) -> pa.DataType:
    """A list of the column's own type."""
    return pa.list_(own(function, schema))


def _declared(function: Function, schema: pa.Schema) -> pa.DataType:
    """The type that the user has declared."""
    assert function.custom is not None
    return function.custom.type


def ordered(function: Function, schema: pa.Schema) -> pa.DataType:
    """The column's own, of values that have an order."""
    kind = own(function, schema)
    if is_ordered(kind):
        return kind
    raise QueryError(
        f"{function.kind}({function.columns[0]!r}) of a column of type {kind}",
        why="its values have no order",
        do="Cast the column, or write a plait.custom function",
    )


def rounded(function: Function, schema: pa.Schema) -> pa.DataType:
    """A float, of values that can be added up."""
    kind = own(function, schema)
    if is_number(kind):
        return pa.float64()
    raise QueryError(
        f"{function.kind}({function.columns[0]!r}) of a column of type {kind}",
        why="it adds integers and floats of 32 or 64 bits",
        do="Cast the column, or write a plait.custom function",
    )


def _total(function: Function, schema: pa.Schema) -> pa.DataType:
    """A whole number for integers, else a float."""
    added = rounded(function, schema)
    return pa.int64() if pa.types.is_integer(own(function, schema)) else added


def is_ordered(kind: pa.DataType) -> bool:
    ordered = is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)
    return bool(ordered or pa.types.is_binary(kind) or pa.types.is_decimal(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


# --- the functions ----------------------------------------------------------------------------------------------


def one_column(kind: str, column: object) -> tuple[str, ...]:
    """The column that a function reads: its name, or an expression that makes it (`plait.query.row_by_row.Expressed`)."""
    if isinstance(column, str) and column:
        return (column,)
    if callable(column) or isinstance(column, tuple):
        return (expressed(column),)
    raise QueryError(f"{kind}({column!r}) names no column", do=f"Write plait.{kind}('column')")


def seen(where: Where | None) -> Predicate | None:
    """The condition of `where=`: what a function sees of a window."""
    return None if where is None else condition(where, "row")


@registered(whole)
def count(*, where: Where | None = None) -> Function:
    """Count the tuples of a window, whatever their columns hold.

    Args:
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is int64.

    Raises:
        QueryError: `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"n": plait.count()})
        >>> query.reference({"s": {"ts": [1, 2, 15]}})["n"].to_pylist()
        [2, 1]
    """
    return Function("count", (), seen(where))


@registered(whole)
def count_where(where: Where) -> Function:
    """Count the tuples for which a condition is true.

    Args:
        where: A function of one row, SQL text, or a condition that begins with `plait.text`.

    Returns:
        A function for `compute=`. Its column is int64.

    Raises:
        QueryError: The condition is none.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"n": plait.count_where("x > 1")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [1, 2, None]}})["n"].to_pylist()
        [1]
    """
    return Function("count_where", (), condition(where, "row"))


@registered(_total)
def sum(column: Value, *, where: Where | None = None) -> Function:
    """Add up a column. NULL is skipped; a window of NULLs gives NULL.

    Args:
        column: A column of integers, or of floats of 32 or 64 bits.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is int64 for integers, and a sum beyond 64 bits stops the run. For floats it is
        float64, exact and rounded once.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"total": plait.sum("x")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [0.1, 0.2, -0.3]}})["total"].to_pylist()
        [2.7755575615628914e-17]
    """
    return Function("sum", one_column("sum", column), seen(where))


@registered(rounded)
def mean(column: Value, *, where: Where | None = None) -> Function:
    """Average a column. NULL is skipped; a window of NULLs gives NULL.

    Args:
        column: A column of integers, or of floats of 32 or 64 bits.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is float64: the exact quotient, rounded once.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"mean": plait.mean("x")})
        >>> query.reference({"s": {"ts": [1, 2], "x": [1, 2]}})["mean"].to_pylist()
        [1.5]
    """
    return Function("mean", one_column("mean", column), seen(where))


@registered(ordered)
def min(column: Value, *, where: Where | None = None) -> Function:
    """Take the smallest value. NULL is skipped; NaN counts as above all numbers.

    Args:
        column: A column of numbers, decimals, truth values, times, text or bytes.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column has the input's type.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"least": plait.min("x")})
        >>> query.reference({"s": {"ts": [1, 2], "x": ["b", "a"]}})["least"].to_pylist()
        ['a']
    """
    return Function("min", one_column("min", column), seen(where))


@registered(ordered)
def max(column: Value, *, where: Where | None = None) -> Function:
    """Take the largest value. NULL is skipped; NaN counts as above all numbers.

    Args:
        column: A column of numbers, decimals, truth values, times, text or bytes.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column has the input's type.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"most": plait.max("x")})
        >>> query.reference({"s": {"ts": [1, 2], "x": [1.0, float("nan")]}})["most"].to_pylist()
        [nan]
    """
    return Function("max", one_column("max", column), seen(where))


@registered(rounded)
def var(column: Value, *, where: Where | None = None) -> Function:
    """Compute the variance of a sample. NULL is skipped; fewer than two values give NULL.

    Args:
        column: A column of integers, or of floats of 32 or 64 bits.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is float64, exact and rounded once.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"var": plait.var("x")})
        >>> query.reference({"s": {"ts": [1, 2, 15], "x": [1, 2, 3]}})["var"].to_pylist()
        [0.5, None]
    """
    return Function("var", one_column("var", column), seen(where))


@registered(own)
def first(column: Value, *, where: Where | None = None) -> Function:
    """Take the column of the window's first tuple in total order. NULL is kept.

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
        >>> readings = plait.stream("s", unit="s", disorder="5s")
        >>> query = plait.aggregate(readings, size="10s", compute={"first": plait.first("x")})
        >>> query.reference({"s": {"ts": [3, 1], "x": ["later", "earlier"]}})["first"].to_pylist()
        ['earlier']
    """
    return Function("first", one_column("first", column), seen(where))


@registered(own)
def last(column: Value, *, where: Where | None = None) -> Function:
    """Take the column of the window's last tuple in total order. NULL is kept.

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
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"last": plait.last("x")})
        >>> query.reference({"s": {"ts": [1, 2], "x": [5, None]}})["last"].to_pylist()
        [None]
    """
    return Function("last", one_column("last", column), seen(where))


@registered(own)
def first_where(column: Value, where: Where) -> Function:
    """Take the column of the first tuple for which a condition is true. A window without one gives NULL.

    Args:
        column: Any column.
        where: A function of one row, SQL text, or a condition that begins with `plait.text`.

    Returns:
        A function for `compute=`. Its column has the input's type.

    Raises:
        QueryError: No column is named, or the condition is none.

    Example:
        >>> import plait
        >>> big = plait.first_where("x", lambda row: row.x >= 5)
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"big": big})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [4, 5, 6]}})["big"].to_pylist()
        [5]
    """
    return Function("first_where", one_column("first_where", column), condition(where, "row"))


@registered(listed)
def collect(column: Value, *, where: Where | None = None) -> Function:
    """List the column's values in total order. NULL is kept.

    Args:
        column: Any column.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is a list of the input's type.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"all": plait.collect("x")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [4, None, 6]}})["all"].to_pylist()
        [[4, None, 6]]
    """
    return Function("collect", one_column("collect", column), seen(where))


@registered(whole)
def distinct(column: Value, *, where: Where | None = None) -> Function:
    """Count how many different values the column holds. NULL is left out.

    Args:
        column: Any column.
        where: Only tuples for which this condition is true are seen: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`. Its column is int64.

    Raises:
        QueryError: No column is named, or `where` is no condition.

    Example:
        >>> import plait
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"kinds": plait.distinct("x")})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": ["a", "b", "a"]}})["kinds"].to_pylist()
        [2]
    """
    return Function("distinct", one_column("distinct", column), seen(where))


@registered(_declared, in_files=False)
def custom(
    column: str | list[str] | tuple[str, ...],
    *,
    init: Callable[[], Any],
    add: Callable[..., Any],
    type: Any,
    merge: Callable[[Any, Any], Any] | None = None,
    result: Callable[[Any], Any] | None = None,
    where: Where | None = None,
) -> Function:
    """Compute a function of your own: `state = init()`, then `state = add(state, value, ...)` for each tuple in total order.

    Values are Python's own; NULL is None; times are microseconds. On threads `add` is compiled where that can't be seen in the
    result, and `explain()` of the run says whether it is.

    Args:
        column: The column that `add` is given, or a list of columns.
        init: `init()` makes a window's first state.
        add: `add(state, value, ...)` gives the next state; it has a value for each column.
        type: The Arrow type of the result, or its usual word such as "float64".
        merge: Never called. A window's result is what `add` makes of its tuples in total order, and two states that are joined
            need not come to the same bits. It is accepted so that queries written with it still run, and go on from their
            checkpoints, which know a query by its functions.
        result: `result(state)` makes the output. None: the state itself is the output.
        where: Only tuples for which this condition is true are added: a function of one row, SQL text, or a condition that begins
            with `plait.text`. None: all tuples.

    Returns:
        A function for `compute=`.

    Raises:
        QueryError: An argument is no function, takes another number of arguments, `type` is no type, or `where` no condition.

    Example:
        >>> import plait
        >>> span = plait.custom("x", init=lambda: None, add=lambda state, x: (state[0] if state else x, x), type="float64",
        ...                     result=lambda state: state[1] - state[0])
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="10s", compute={"span": span})
        >>> query.reference({"s": {"ts": [1, 2, 3], "x": [1.0, 9.0, 4.5]}})["span"].to_pylist()
        [3.5]
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
    return Function(
        "custom", tuple(names), seen(where), Custom(init, add, merge, result, arrow_type(type, "custom: type"))
    )


def check_exports(module: str, names: list[str]) -> None:
    """What a module registers is what it exports: raises ImportError by name where one is missing."""
    registered = {name for name, kind in KINDS.items() if kind.make.__module__ == module}
    for name in registered - set(names):
        raise ImportError(f"aggregate function {name!r} is registered, but not in __all__ of {module}")
    for name in set(names) - registered:
        raise ImportError(f"aggregate function {name!r} is in __all__ of {module}, but not registered")


check_exports(__name__, __all__)
