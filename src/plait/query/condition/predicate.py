"""A join's condition as the query holds it: SQL text, a traced function, an opaque function, or none."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.condition import sql
from plait.query.condition.expression import Expr, Literal, check_size, columns, text
from plait.query.condition.trace import Untraceable, columns_read, trace
from plait.query.condition.types import Names, check_condition, column_type, resolve

_NO_COLUMNS = pa.schema([])


@dataclass(frozen=True)
class Predicate:
    """`kind` says how it was written and is evaluated; `source` is what the user wrote, `expr` its tree.

    An opaque function has no tree: `reads` lists its columns per side, and `why_opaque` the reason it did not trace.
    It is given Python's own values (int, float, bool, str), and is not called if a column it reads is NULL.
    """

    kind: str  # "always" | "sql" | "traced" | "opaque"
    source: str | Callable[..., Any] | None
    names: Names
    expr: Expr | None
    reads: tuple[tuple[str, ...], tuple[str, ...]]
    why_opaque: str = field(default="", compare=False)
    qualifiers: tuple[tuple[str, int], ...] = ()  # what SQL text may call each side

    def bind(self, left: pa.Schema, right: pa.Schema) -> Predicate:
        """The same predicate with its columns resolved and its types checked against the inputs' schemas."""
        sides = (left, right)
        if self.expr is None:
            for side, names in enumerate(self.reads):
                for name in names:
                    self._check_opaque_column(side, name, sides[side])
            return self
        expr = resolve(self.expr, sides, self.names, insensitive=self.kind == "sql")
        check_condition(expr, sides, self.names)
        return dataclasses.replace(self, expr=expr, reads=_reads(expr))

    def bind_value(self, schema: pa.Schema) -> Predicate:
        """The same expression of one row, of any type, with its columns found."""
        if self.expr is None:
            return self.bind(schema, _NO_COLUMNS)
        expr = resolve(self.expr, (schema, _NO_COLUMNS), self.names, insensitive=self.kind == "sql")
        return dataclasses.replace(self, expr=expr, reads=_reads(expr))

    def _check_opaque_column(self, side: int, name: str, schema: pa.Schema) -> None:
        """Refuse a column that an opaque function reads and that is not there, or has a type that has no Python value here."""
        if name not in schema.names:
            raise QueryError(
                f"{self.names.about} reads column {name!r} of {self.names[side]}, which is not there",
                why=f"its columns are {', '.join(schema.names)}",
            )
        if column_type(schema.field(name).type) is None:
            raise QueryError(
                f"{self.names.about} reads {self.names[side]}.{name}, a column of type {schema.field(name).type}",
                why="conditions read numbers, booleans, text, bytes, timestamps, dates and durations",
                do="Cast it before it enters the query (it may still be carried as payload)",
            )

    def describe(self) -> str:
        """The condition in words, as `explain` shows it and as a checkpoint on Spark knows it."""
        if self.kind == "opaque":
            return f"opaque function {_called(self.source)!r} ({self.why_opaque})"
        return text(self.expr, self.names) if self.expr is not None else "true"


def _called(function: Any) -> str:
    """A function's name, of an object its class's: no address, since a checkpoint knows a query by these words."""
    inner = function.func if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def _said(reason: Untraceable) -> str:
    """Why a function did not trace, without the addresses of objects: those differ from run to run."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(reason))


def _reads(expr: Expr, what: str = "") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of the left and of the right row that a tree reads. `what` it is, where nobody has looked at its size yet."""
    if what:
        check_size(expr, what)
    found = columns(expr)
    return tuple(c.name for c in found if c.side == 0), tuple(c.name for c in found if c.side == 1)


def predicate(on: str | Callable[..., Any] | None, inputs: tuple[str, str], sides: dict[str, int]) -> Predicate:
    """Read a join's condition.

    Args:
        on: What the user wrote: SQL text, a function of two rows, or None for every pair.
        inputs: What the inputs are called in messages.
        sides: Which row each qualifier means that SQL text may use.

    Returns:
        The condition: a tree where the text parses or the function traces, else the function as it is.

    Raises:
        QueryError: It is neither text nor a function, does not parse, or takes another number of arguments.
    """
    names = Names(*inputs, "The condition of the join")
    if on is None:
        return Predicate("always", None, names, Literal(True), ((), ()))
    if isinstance(on, str):
        expr = sql.parse(on, sides, names.about)
        return Predicate("sql", on, names, expr, _reads(expr, names.about), qualifiers=tuple(sides.items()))
    if not callable(on):
        raise QueryError(
            f"on={on!r} is no condition",
            do="Pass a function of the two rows, such as `lambda l, r: l.x == r.a`, or SQL text",
        )
    check_arguments(on, "on", 2, "It is called with one row of each input, left first")
    try:
        expr = trace(on, about=names.about)
    except Untraceable as reason:
        return Predicate("opaque", on, names, None, columns_read(on, about=names.about), _said(reason))
    return Predicate("traced", on, names, expr, _reads(expr, names.about))


def condition(where: str | Callable[..., Any], name: str) -> Predicate:
    """Read a condition on one row, as `first_where` and `count_where` take. The row is the left side; the right one is empty.

    Args:
        where: What the user wrote: SQL text, or a function of one row.
        name: What SQL text and messages call the row.
    """
    if not (isinstance(where, str) or callable(where)):
        raise QueryError(f"where={where!r} is no condition", do="Pass a function of one row, or SQL text")
    return _of_row(where, Names(name, "", "The condition of where"), "where", constant=False)


def value(given: str | Callable[..., Any], name: str, column: str | None) -> Predicate:
    """Read an expression of one row, of any type, as `select` takes it.

    Args:
        given: What the user wrote: SQL text, or a function of one row.
        name: What SQL text and messages call the row.
        column: The column that it makes, for messages; None for an expression in the place of a column's name.
    """
    about = "The expression" if column is None else f"The column {column!r}"
    if not (isinstance(given, str) or callable(given)):
        raise QueryError(f"{about} is {given!r}", do="Pass a function of one row, or SQL text")
    return _of_row(given, Names(name, "", about), column or "column", constant=True)


def _of_row(given: Any, names: Names, option: str, *, constant: bool) -> Predicate:
    """Text or a function of one row, which is the left side. `constant`: what it gives need not depend on the row."""
    if isinstance(given, str):
        sides = {names.left: 0, "l": 0, "row": 0}
        expr = sql.parse(given, sides, names.about)
        return Predicate("sql", given, names, expr, _reads(expr, names.about), qualifiers=tuple(sides.items()))
    check_arguments(given, option, 1, "It is called with one row")
    try:
        expr = trace(given, rows=1, constant=constant, about=names.about)
    except Untraceable as reason:
        return Predicate("opaque", given, names, None, columns_read(given, rows=1, about=names.about), _said(reason))
    return Predicate("traced", given, names, expr, _reads(expr, names.about))


def check_arguments(function: Callable[..., Any], option: str, count: int, do: str) -> None:
    """A user's function must take `count` positional arguments."""
    try:
        inspect.signature(function).bind(*(None,) * count)
    except TypeError as error:
        arguments = "one argument" if count == 1 else f"{count} arguments"
        raise QueryError(
            f"{option}={getattr(function, '__name__', function)!r} does not take {arguments} ({error})", do=do
        ) from error
    except ValueError:
        return  # a builtin without a signature: the call itself will tell
