"""Operators of the user's own: state in buckets, each of which sees its tuples in total order, alone (STRETCH)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from plait.errors import QueryError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.base import Node, Query, check_name, check_node
from plait.query.predicate import check_arguments
from plait.schema import arrow_schema, listed, micros_of


class _All:
    def __repr__(self) -> str:
        return "plait.ALL"


#: What `route` returns for a tuple that every bucket sees.
ALL: Final = _All()


@dataclass(frozen=True, slots=True)
class Timer:
    """Yielded by `process` or `on_timer` among its outputs: call `on_timer(state, at)` once event time reaches `at`."""

    at: int


def timer(at: Any) -> Timer:
    """A timer at an event time: it runs after every tuple with ts < at and before any with ts >= at."""
    moment = micros_of(at)
    if not BEFORE_ALL < moment <= AFTER_ALL:
        raise QueryError(f"A timer at {moment}", why="its outputs' ts would not fit 64 bits", do="Set it within +-2^63")
    return Timer(moment)


@dataclass(frozen=True, kw_only=True)
class Operator(Query):
    """Built by `plait.operator`."""

    nodes: tuple[Node, ...]
    buckets: int
    route: Callable[[Any], Any]
    state: Callable[..., Any]
    process: Callable[[Any, Any], Iterable[Any] | None]
    on_timer: Callable[[Any, int], Iterable[Any] | None] | None
    output: pa.Schema

    def first_state(self, bucket: int) -> Any:
        """What `state` makes for a bucket, which is told its number if it can't be called without."""
        return self.state() if _called_with(self.state, 0) else self.state(bucket)

    @property
    def inputs(self) -> tuple[Node, ...]:
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
    do = "See help(plait.operator) for what each is called with"
    if not callable(function):
        raise QueryError(f"{option}={function!r} is no function", do=do)
    check_arguments(function, option, arguments, do)


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
    """A stateful operator over one or several streams.

    buckets   into how many parts the state is split: part of the query's meaning, not of how it runs
    route     route(t) names the buckets that see the tuple: a number, several, `plait.ALL`, or None for no bucket
    state     state() makes a bucket's first state, a mutable object; one that needs an argument is given the bucket's number
    process   process(state, t) returns or yields outputs (dicts or tuples of `output`'s columns) and timers
    on_timer  on_timer(state, at) likewise, for timers set with `plait.timer(at)`
    output    the output's columns: a schema or a dict of names to types

    `t.column` and `t["column"]` read a tuple; `t.ts` is its event time in microseconds and `t.stream` its input's name.
    An output has its tuple's ts; a timer's has `at - 1`. At the end of input time passes to the last tuple of any
    stream, then pending timers run; one that a timer sets then runs only if it is not later than the last one pending,
    so that a periodic timer ends.
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
