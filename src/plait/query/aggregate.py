"""Windowed aggregates: which tuples share a window, and what is computed over them.

A kind of window is a class here, with what a query has to know of it. How it is computed is said in its record in
`core.aggregate.panes`, and the reference has a machine of its own for it; without the record that import fails, with its name.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, overload

import pyarrow as pa

from plait.errors import QueryError
from plait.query.arguments import Duration, RowFunction, by_name
from plait.query.base import Node, Query, check_name, check_node
from plait.query.functions import Function
from plait.query.row_by_row import expressed
from plait.schema import duration_text, duration_us, listed, tuple_count

#: What groups tuples: a column's name, an expression as SQL text, or a function of one row.
Key = RowFunction

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


@dataclass(frozen=True)
class SessionWindow(Window):
    """A key's tuples that follow one another by less than `gap_us`: a session ends when the key has been silent for so long."""

    gap_us: int

    def describe(self) -> str:
        return f"sessions that end after {duration_text(self.gap_us)} of silence"

    def edge_type(self, ts: pa.DataType) -> pa.DataType:
        return ts


@dataclass(frozen=True, kw_only=True)
class Aggregate(Query):
    """An aggregate over windows. It is built by `plait.aggregate`.

    Attributes:
        name: See `Query`.
        input: The stream or query that is aggregated.
        window: A `SpanWindow` of event time, a `TupleWindow` of numbers of tuples, or a `SessionWindow`.
        by: The key's columns.
        compute: Output columns and their functions, in order.

    Example:
        >>> import plait
        >>> plait.aggregate(plait.stream("s"), size="30s", advance="3s", compute={"n": plait.count()}).window
        SpanWindow(size_us=30000000, advance_us=3000000)
    """

    input: Node
    window: Window
    by: tuple[str, ...]
    compute: tuple[tuple[str, Function], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)


@overload
def aggregate(
    input: Node, *, size: Duration, compute: Mapping[str, Function], advance: Duration | None = None,
    by: Key | Iterable[Key] | Mapping[str, Key] = (), name: str | None = None,
) -> Aggregate: ...  # fmt: skip
@overload
def aggregate(
    input: Node, *, session: Duration, compute: Mapping[str, Function], by: Key | Iterable[Key] | Mapping[str, Key] = (),
    name: str | None = None,
) -> Aggregate: ...  # fmt: skip
@by_name
def aggregate(
    input: Node,
    *,
    size: Duration | None = None,
    advance: Duration | None = None,
    session: Duration | None = None,
    by: Key | Iterable[Key] | Mapping[str, Key] = (),
    compute: Mapping[str, Function],
    name: str | None = None,
) -> Aggregate:
    """Aggregate a stream or query over sliding or tumbling windows, or over sessions, per key.

    Windows of time are `[k*advance, k*advance + size)` for every integer k. Windows without tuples give no row. Rows come by
    window, then by key. Windows of tuples count each key's tuples in total order; the first closes at the `size`-th. A session is
    a key's tuples of which each comes less than `session` after the one before it.

    Args:
        input: A stream or a query.
        size: The window's length: a duration as text or timedelta, or a whole number of tuples of a key.
        advance: From one window's beginning to the next one's, of the same kind as `size`. None: `size`, so windows tumble.
        session: Instead of `size`: the silence of a key, a duration, after which its session has ended. `window_start` is then
            the first tuple's ts, and `window_end` the last one's plus that duration.
        by: The key's column, or several: a name, SQL text, or a function of one row. A dict names them: {"day": "ts / 86400"}.
            None given: all tuples are one group.
        compute: Output columns by name, each with a function such as `plait.count()` or `plait.mean("x")`.
        name: What other queries call this one.

    Returns:
        An `Aggregate`, which is a `Query`. Its rows have `ts` (a window's last microsecond, or its closing tuple's),
        `window_start`, `window_end`, the key's columns and the computed ones.

    Raises:
        QueryError: An argument has no meaning, or two columns would have one name.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> query = plait.aggregate(readings, size="10s", by="meter", compute={"n": plait.count(), "mean": plait.mean("cons")})
        >>> rows = {"ts": [1, 2, 13], "meter": ["a", "a", "a"], "cons": [1.0, 2.0, 5.0]}
        >>> query.reference({"readings": rows}).select(["window_start", "meter", "n", "mean"]).to_pylist()
        [{'window_start': 0, 'meter': 'a', 'n': 2, 'mean': 1.5}, {'window_start': 10000000, 'meter': 'a', 'n': 1, 'mean': 5.0}]
    """
    check_node(input, "input of aggregate")
    window = _window(size, advance) if session is None else _session(session, size, advance)
    keys = _keys(by)
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
        window=window,
        by=keys,
        compute=tuple(compute.items()),
    )
    query.streams()
    return query


def _keys(by: Any) -> tuple[str, ...]:
    """The key's columns. What is no column of the input is made from its text when the columns are known (`bind`)."""
    found: list[str] = []
    for key in by.items() if isinstance(by, Mapping) else listed(by):
        name, given = key if isinstance(by, Mapping) else (None, key)
        if (
            name is not None
            and isinstance(name, str)
            and name
            and (callable(given) or (isinstance(given, str) and given))
        ):
            found.append(expressed(given, name))
        elif name is None and callable(given):
            found.append(expressed(given))
        elif name is None and isinstance(given, str) and given:
            found.append(given)
        else:
            raise QueryError(f"by={by!r} names no columns", do="Pass a column's name or a list of them")
    return tuple(found)


def _session(session: Any, size: Any, advance: Any) -> Window:
    """A session has no length of its own."""
    for option, value in (("size", size), ("advance", advance)):
        if value is not None:
            raise QueryError(
                f"session={session!r} with {option}={value!r}",
                why="a session is as long as its key goes on",
                do=f"Leave {option}= out, or session=",
            )
    forms = "Write a duration such as '30 minutes', or a timedelta"
    if not isinstance(session, (str, dt.timedelta)):
        raise QueryError(f"session={session!r} is no duration", do=forms)
    return SessionWindow(duration_us(session, "session", zero=False, forms=forms))


def _window(size: Any, advance: Any) -> Window:
    """Whole numbers are tuples, durations are time; the two are not mixed."""
    if size is None:
        raise QueryError(
            "The aggregate has no window", do="Pass size= for windows of time or tuples, or session= for sessions"
        )
    advance = size if advance is None else advance
    counts = [isinstance(v, int) and not isinstance(v, bool) for v in (size, advance)]
    if all(counts):
        _check_overlap(size, advance, tuple_count(size, f"size={size!r}"), tuple_count(advance, f"advance={advance!r}"))
        return TupleWindow(tuple_count(size, f"size={size!r}"), tuple_count(advance, f"advance={advance!r}"))
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
    _check_overlap(size, advance, size_us, advance_us)
    return SpanWindow(size_us, advance_us)


#: Windows that a tuple lies in, at most: there are rows for each of them.
MOST_WINDOWS = 1 << 20


def _check_overlap(size: Any, advance: Any, length: int, step: int) -> None:
    """Refuse windows of which so many overlap that a tuple alone would take all memory."""
    if length // step > MOST_WINDOWS:
        raise QueryError(
            f"size={size!r} with advance={advance!r} puts a tuple into {length // step:,} windows",
            why=f"each of them is a row of the result, and {MOST_WINDOWS:,} are the most",
            do="Pass a longer advance=, or a shorter size=",
        )
