"""Windowed aggregates: which tuples share a window, and what is computed over them.

A kind of window is a class here, with what a query has to know of it. How it is computed is said in its record in
`core.aggregate.panes`, and the reference has a machine of its own for it; without the record that import fails, with its name.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.base import Node, Query, check_name, check_node
from plait.query.functions import Function
from plait.schema import duration_text, duration_us, listed

#: Columns every aggregate row has; keys and results can't be called so.
RESERVED = ("ts", "window_start", "window_end")


#: Every kind of window that there is.
WINDOWS: list[type[Window]] = []


class Window(ABC):
    """A kind of window. Classes that derive from it are in `WINDOWS` by that."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        WINDOWS.append(cls)

    @abstractmethod
    def describe(self) -> str:
        """After «windows of», for `explain`. On Spark it is part of what a checkpoint knows a query by."""

    @abstractmethod
    def edge_type(self, ts: pa.DataType) -> pa.DataType:
        """The type of `window_start` and `window_end`, where the input's time is of type `ts`."""


@dataclass(frozen=True)
class SpanWindow(Window):
    """`[k*advance, k*advance + size)` of event time for every integer k."""

    size_us: int
    advance_us: int

    def describe(self) -> str:
        return f"{duration_text(self.size_us)} every {duration_text(self.advance_us)}"

    def edge_type(self, ts: pa.DataType) -> pa.DataType:
        return ts


@dataclass(frozen=True)
class TupleWindow(Window):
    """Tuples `[k*advance, k*advance + size)` of each key, in total order, for k >= 0."""

    size: int
    advance: int

    def describe(self) -> str:
        return f"{self.size} tuples every {self.advance}"

    def edge_type(self, ts: pa.DataType) -> pa.DataType:
        return pa.int64()


@dataclass(frozen=True, kw_only=True)
class Aggregate(Query):
    """Built by `plait.aggregate`."""

    input: Node
    window: Window
    by: tuple[str, ...]
    compute: tuple[tuple[str, Function], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


def aggregate(
    input: Node,
    *,
    size: Any,
    advance: Any = None,
    by: str | Iterable[str] = (),
    compute: Mapping[str, Function],
    name: str | None = None,
) -> Aggregate:
    """Aggregate a stream (or query) over sliding or tumbling windows, per key.

    size, advance  durations ("30s", timedelta) for windows of event time, or whole numbers for windows of that many
                   tuples of a key; `advance` defaults to `size` (tumbling)
    by             the key's columns; none: one group
    compute        output column -> plait.count(), plait.mean("x"), ...

    Rows have `ts`, `window_start`, `window_end`, the key's columns and the computed ones.
    """
    check_node(input, "input of aggregate")
    keys = listed(by)
    for key in keys:
        if not isinstance(key, str) or not key:
            raise QueryError(f"by={by!r} names no columns", do="Pass a column's name or a list of them")
    if not isinstance(compute, Mapping) or not compute:
        raise QueryError(f"compute={compute!r} computes nothing", do="Pass a dict such as {'n': plait.count()}")
    for column, function in compute.items():
        if not isinstance(column, str) or not column:
            raise QueryError(f"compute= names an output column {column!r}", do="Use a non-empty text")
        if not isinstance(function, Function):
            raise QueryError(
                f"compute={{{column!r}: {function!r}}} is no aggregate function",
                do="Use a function of plait's, such as plait.count() or plait.mean('x'), or plait.custom",
            )
    names = [*keys, *compute]
    for column in names:
        if column in RESERVED or names.count(column) > 1:
            raise QueryError(
                f"Two columns of the aggregate would be called {column!r}",
                why=f"its rows hold {', '.join(RESERVED)}, the key's columns and the computed ones",
                do="Rename one",
            )
    query = Aggregate(
        name=None if name is None else check_name(name),
        input=input,
        window=_window(size, advance),
        by=keys,
        compute=tuple(compute.items()),
    )
    query.streams()
    return query


def _window(size: Any, advance: Any) -> Window:
    advance = size if advance is None else advance
    counts = [isinstance(v, int) and not isinstance(v, bool) for v in (size, advance)]
    if all(counts):
        for option, value in (("size", size), ("advance", advance)):
            if value < 1:
                raise QueryError(f"{option}={value!r} is no number of tuples", do="Pass a whole number of at least 1")
        return TupleWindow(size, advance)
    if any(counts):
        raise QueryError(
            f"size={size!r} and advance={advance!r} are of two kinds",
            why="whole numbers count tuples, durations span time",
            do="Write both as durations (such as '30s') or both as numbers of tuples",
        )
    forms = "Write a duration such as '30s' or '1h 30min', a timedelta, or a whole number of tuples"
    for option, value in (("size", size), ("advance", advance)):
        if not isinstance(value, (str, dt.timedelta)):
            raise QueryError(f"{option}={value!r} is neither a duration nor a number of tuples", do=forms)
    size_us, advance_us = (
        duration_us(value, option, zero=False, forms=forms) for option, value in (("size", size), ("advance", advance))
    )
    return SpanWindow(size_us, advance_us)
