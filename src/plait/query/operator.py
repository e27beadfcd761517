"""Operators of the user's own: state in buckets, each of which sees its tuples in total order, alone (STRETCH)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from plait.errors import QueryError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.arguments import by_name
from plait.query.base import Node, Query, check_name, check_node
from plait.query.condition.predicate import check_arguments
from plait.schema import arrow_schema, listed, micros_of


class _All:
    """The kind of `ALL`, so that it has a name to show."""

    def __repr__(self) -> str:
        return "plait.ALL"


#: What `route` returns for a tuple that every bucket sees.
ALL: Final = _All()


@dataclass(frozen=True, slots=True)
class Timer:
    """A request for `on_timer`, yielded by `process` or `on_timer` among its outputs. It is made by `plait.timer`.

    Attributes:
        at: The event time at which `on_timer(state, at)` is called, in microseconds.

    Example:
        >>> import plait
        >>> plait.timer(5_000_000)
        Timer(at=5000000)
    """

    at: int


def timer(at: Any) -> Timer:
    """Set a timer at an event time, from inside an operator's functions.

    It runs after every tuple with ts < at and before any with ts >= at. A bucket has one timer for each time.

    Args:
        at: Whole microseconds, or a datetime with a zone.

    Returns:
        A `Timer`, to be yielded by `process` or `on_timer`.

    Raises:
        QueryError: `at` is no moment, or its output's ts would not fit 64 bits.

    Example:
        >>> import datetime, plait
        >>> plait.timer(datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC))
        Timer(at=5000000)
    """
    moment = micros_of(at)
    if not BEFORE_ALL < moment <= AFTER_ALL:
        raise QueryError(f"A timer at {moment}", why="its outputs' ts would not fit 64 bits", do="Set it within +-2^63")
    return Timer(moment)


@dataclass(frozen=True, kw_only=True)
class Operator(Query):
    """A stateful operator of the user's own. It is built by `plait.operator`, which says what each function is called with.

    Attributes:
        name: See `Query`.
        nodes: The inputs, streams or queries.
        buckets: Into how many parts the state is split.
        route: Which buckets see a tuple.
        state: Makes a bucket's first state.
        process: Is called with a bucket's state and a tuple.
        on_timer: Is called with a bucket's state and a timer's time, or None.
        output: The output's columns, as an Arrow schema without `ts`.

    Example:
        >>> import plait
        >>> count = plait.operator(plait.stream("clicks"), buckets=4, route=lambda t: 0, state=list,
        ...                        process=lambda state, t: None, output={"n": "int64"})
        >>> count.output.names
        ['n']
    """

    nodes: tuple[Node, ...]
    buckets: int
    route: Callable[[Any], Any]
    state: Callable[..., Any]
    process: Callable[[Any, Any], Iterable[Any] | None]
    on_timer: Callable[[Any, int], Iterable[Any] | None] | None
    output: pa.Schema

    def __post_init__(self) -> None:
        # Found here, by one thread: Python parses the text of a signature, and several threads that do so at once may be told
        # «AST constructor recursion depth mismatch».
        self.__dict__["_numbered"] = callable(self.state) and not _called_with(self.state, 0)

    def first_state(self, bucket: int) -> Any:
        """What `state` makes for a bucket. It is told the bucket's number if it can't be called without.

        Args:
            bucket: The bucket's number, from 0.

        Returns:
            The bucket's first state.

        Raises:
            Exception: Whatever the user's `state` raises.

        Example:
            >>> count.first_state(3)
            []
        """
        return self.state(bucket) if self.__dict__["_numbered"] else self.state()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs, in the order that breaks ties between them."""
        return self.nodes


def _called_with(function: Callable[..., Any], arguments: int) -> bool:
    """Whether it can be called with so many; of what Python can't tell the arguments of (dict, list), yes."""
    try:
        inspect.signature(function).bind(*[0] * arguments)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _check_function(option: str, function: Any, arguments: int) -> None:
    """Refuse an option that is no function, or takes another number of arguments."""
    do = "See help(plait.operator) for what each is called with"
    if not callable(function):
        raise QueryError(f"{option}={function!r} is no function", do=do)
    check_arguments(function, option, arguments, do)


@by_name
def operator(
    streams: Node | Iterable[Node],
    *,
    buckets: int,
    route: Callable[[Any], Any],
    state: Callable[..., Any],
    process: Callable[[Any, Any], Iterable[Any] | None],
    output: Any,
    on_timer: Callable[[Any, int], Iterable[Any] | None] | None = None,
    name: str | None = None,
) -> Operator:
    """Compute anything with state over one or several streams, split into buckets (STRETCH).

    Each bucket sees its tuples in total order, alone. An output has its tuple's ts, a timer's output `at - 1`. In a tuple
    `t.column` and `t["column"]` read a column, `t.ts` is its event time in microseconds and `t.stream` its input's name.
    At the end of input time passes to the last tuple of any stream, then pending timers run. A timer that one of them sets runs
    only if it is not later than the last one pending, so that a periodic timer ends.

    Args:
        streams: A stream or query, or a list of them.
        buckets: Into how many parts the state is split. It is part of the query's meaning, not of how it runs.
        route: `route(t)` names the buckets that see the tuple: a number, several, `plait.ALL`, or None for no bucket. It must
            depend on the tuple alone.
        state: `state()` makes a bucket's first state, a mutable object. One that needs an argument is given the bucket's number.
        process: `process(state, t)` returns or yields outputs (dicts or tuples of `output`'s columns) and timers, or None.
        output: The output's columns: an Arrow schema, or a dict of names to types. `ts` is added in front.
        on_timer: `on_timer(state, at)` does the same as `process`, for timers set with `plait.timer(at)`.
        name: What other queries call this one.

    Returns:
        An `Operator`, which is a `Query`.

    Raises:
        QueryError: An argument has no meaning, a function takes another number of arguments, or `output` has a column `ts`.

    Example:
        >>> import plait
        >>> clicks = plait.stream("clicks", unit="s")
        >>> def process(totals, click):
        ...     totals[click.user] = totals.get(click.user, 0) + click.n
        ...     yield {"user": click.user, "total": totals[click.user]}
        >>> query = plait.operator(clicks, buckets=8, route=lambda click: click.user % 8, state=dict, process=process,
        ...                        output={"user": "int64", "total": "int64"})
        >>> query.reference({"clicks": {"ts": [1, 2, 3], "user": [7, 9, 7], "n": [1, 1, 5]}}).to_pylist()[-1]
        {'ts': 3000000, 'user': 7, 'total': 6}
    """
    nodes = listed(streams)
    if not nodes:
        raise QueryError(f"An operator reads {streams!r}, no stream at all", do="Pass a stream or a list of streams")
    for node in nodes:
        check_node(node, "input of operator")
    if isinstance(buckets, bool) or not isinstance(buckets, int) or buckets < 1:
        raise QueryError(f"buckets={buckets!r} is no number of buckets", do="Pass a whole number of at least 1")
    _check_function("route", route, 1)
    _check_function("state", state, 0 if callable(state) and _called_with(state, 0) else 1)
    _check_function("process", process, 2)
    if on_timer is not None:
        _check_function("on_timer", on_timer, 2)
    schema = arrow_schema(output, "output")
    if "ts" in schema.names:
        raise QueryError(
            "output= has a column 'ts'", why="every output row has its event time under that name", do="Rename it"
        )
    query = Operator(
        name=None if name is None else check_name(name),
        nodes=nodes,
        buckets=buckets,
        route=route,
        state=state,
        process=process,
        on_timer=on_timer,
        output=schema,
    )
    query.streams()
    return query
