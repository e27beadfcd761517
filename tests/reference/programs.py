"""Operators to run: what a user would write, small, and sensitive to the order of its tuples and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tests import definitions as define
from tests.definitions import Relation
from tests.strategies import ORIGINS, Case, distinct, streams

import plait
from plait import Query


@dataclass(frozen=True)
class Program:
    """The arguments of `plait.operator`, but for the streams."""

    name: str
    buckets: int
    route: Callable[[Any], Any]
    state: Callable[[], Any]
    process: Callable[[Any, Any], Any]
    output: pa.Schema
    on_timer: Callable[[Any, int], Any] | None = None

    def __repr__(self) -> str:
        return self.name

    def query(self, nodes: Any) -> Query:
        return plait.operator(nodes, buckets=self.buckets, route=self.route, state=self.state, process=self.process,
                              output=self.output, on_timer=self.on_timer)  # fmt: skip

    def expected(self, inputs: list[tuple[str, Relation]]) -> Relation:
        return define.operator(inputs, buckets=self.buckets, route=self.buckets_of, state=self.state,
                               process=self.process, output=self.output, on_timer=self.on_timer)  # fmt: skip

    def buckets_of(self, t: Any) -> Iterable[int]:
        """What a route means, as the buckets it names."""
        routed = self.route(t)
        if routed is None:
            return ()
        if routed is plait.ALL:
            return range(self.buckets)
        return (routed,) if isinstance(routed, int) else tuple(routed)


def _by_k(t: Any) -> int | None:
    return None if t.k is None else t.k % 2


def _count(state: list[Any], t: Any) -> list[tuple[Any, ...]]:
    state.append(t.ts)
    return [(len(state), t.x)]


def _several(t: Any) -> Any:
    """All, some, or no buckets."""
    if t.k is None:
        return plait.ALL
    return {0: [], 1: [2, 0], 2: {1}, -1: 0}[t.k]


def _twice(state: list[Any], t: Any) -> Iterator[tuple[Any, ...]]:
    state.append(t.s)
    yield ("".join(s or "-" for s in state[-3:]), t.k)
    if t.k != 2:
        yield (t.s, None)


def _alarm(state: list[Any], t: Any) -> Iterator[Any]:
    state.append(t.k)
    yield plait.timer(t.ts + 2)
    yield (len(state), t.ts)
    yield plait.timer(t.ts + 1 + len(state))


def _ring(state: list[Any], at: int) -> list[tuple[Any, ...]]:
    return [(-len(state), at), (None, at)]


def _session(state: dict[str, Any], t: Any) -> list[Any]:
    """Sessions: a span of tuples with no pause of 2 us; it ends when a timer finds that nothing has come since."""
    state.setdefault("start", t.ts)
    state["last"] = t.ts
    return [plait.timer(t.ts + 2)]


def _session_end(state: dict[str, Any], at: int) -> Any:
    if not state or state["last"] + 2 != at:
        return None
    closed = (state["start"], state["last"])
    state.clear()
    return [closed]


def _tick(state: dict[str, int], t: Any) -> list[Any]:
    state["seen"] = state.get("seen", 0) + 1
    return [] if state["seen"] > 1 else [plait.timer(t.ts + 1)]


def _tick_again(state: dict[str, int], at: int) -> list[Any]:
    """A periodic timer, which never ends by itself."""
    return [(state["seen"], at), plait.timer(at + 2)]


def _meet(state: dict[str, Any], t: Any) -> list[tuple[Any, ...]]:
    """The last row of every input, whenever one changes."""
    state[t.stream] = t.k
    return [(",".join(f"{name}={state[name]}" for name in sorted(state)), t.ts)]


def _two(a: pa.DataType, b: pa.DataType) -> pa.Schema:
    return pa.schema([("u", a), ("v", b)])


PROGRAMS = (
    Program("count by k", 2, _by_k, list, _count, _two(pa.int64(), pa.float64())),
    Program("several buckets", 3, _several, list, _twice, _two(pa.string(), pa.int64())),
    Program("alarms", 3, _several, list, _alarm, _two(pa.int64(), pa.int64()), _ring),
    Program("sessions", 2, _by_k, dict, _session, _two(pa.int64(), pa.int64()), _session_end),
    Program("ticks", 2, lambda t: plait.ALL, dict, _tick, _two(pa.int64(), pa.int64()), _tick_again),
    Program("meet", 1, lambda t: 0, dict, _meet, _two(pa.string(), pa.int64())),
)


@st.composite
def operators(draw: st.DrawFn, programs: tuple[Program, ...] = PROGRAMS, **options: Any) -> Case:
    """A program over one to three streams, now and then with the same stream twice."""
    origin = draw(st.sampled_from(ORIGINS))
    names = draw(st.sampled_from((("a",), ("a", "b"), ("b", "a", "c"))))
    given = [draw(streams(name, origin=origin, max_rows=6, **options)) for name in names]
    if draw(st.integers(0, 6)) == 6:
        given.append(given[0])
    program = draw(st.sampled_from(programs))
    expected = program.expected([(each.stream.name, each.relation) for each in given])
    return Case(program.query([each.stream for each in given]), distinct(*given), expected)
