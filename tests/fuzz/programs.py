"""Operators to run: small, and sensitive to the order of their tuples and timers; some that Numba compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import plait


@dataclass(frozen=True)
class Program:
    """The arguments of `plait.operator`, but for the streams; `needs` are the columns it reads."""

    name: str
    needs: str
    buckets: int
    route: Callable[[Any], Any]
    state: Callable[..., Any]
    process: Callable[[Any, Any], Any]
    output: pa.Schema
    on_timer: Callable[[Any, int], Any] | None = None
    endless: bool = False  # its timers set timers

    def query(self, nodes: Any) -> plait.Query:
        return plait.operator(nodes, buckets=self.buckets, route=self.route, state=self.state, process=self.process,
                              output=self.output, on_timer=self.on_timer)  # fmt: skip


def _by_p(t: Any) -> int | None:
    return None if t.p is None else t.p % 2


def _several(t: Any) -> Any:
    """All, some, or no buckets."""
    if t.p is None:
        return plait.ALL
    return ([], [2, 0], {1}, 0)[t.p % 4]


def _count(state: list[Any], t: Any) -> list[tuple[Any, ...]]:
    state.append(t.ts)
    return [(len(state), t.x)]


def _twice(state: list[Any], t: Any) -> Iterator[tuple[Any, ...]]:
    state.append(t.s)
    yield ("".join(s or "-" for s in state[-3:]), t.p)
    if t.p != 2:
        yield (t.s, None)


def _alarm(state: list[Any], t: Any) -> Iterator[Any]:
    state.append(t.p)
    yield plait.timer(t.ts + 2)
    yield (len(state), t.p)
    yield plait.timer(t.ts + 1 + len(state))


def _ring(state: list[Any], at: int) -> list[tuple[Any, ...]]:
    return [(-len(state), at % 1000), (None, at % 7)]


def _session(state: dict[str, Any], t: Any) -> list[Any]:
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


def _chain(state: dict[str, int], t: Any) -> list[Any]:
    state["left"] = 3
    return [(0, t.ts), plait.timer(t.ts + 1)]


def _chain_on(state: dict[str, int], at: int) -> list[Any]:
    """A finite chain of timers."""
    state["left"] -= 1
    return [(state["left"], at), *([plait.timer(at + 1)] if state["left"] > 0 else [])]


def _meet(state: dict[str, Any], t: Any) -> list[tuple[Any, ...]]:
    state[t.stream] = t.p
    return [(",".join(f"{name}={state[name]}" for name in sorted(state)), t.ts)]


def _zeros() -> Any:
    return np.zeros(2, np.int64)


def _summed(state: Any, t: Any) -> Iterator[Any]:
    state[0] += t.p
    state[1] += 1
    if state[1] % 2 == 0:
        yield (state[0], t.ts)
    yield plait.timer(t.ts + 3)


def _summed_end(state: Any, at: int) -> Iterator[Any]:
    yield (-state[0], at)


def _bucket(t: Any) -> int:
    return t.p % 3


def two(a: pa.DataType, b: pa.DataType) -> pa.Schema:
    return pa.schema([("u", a), ("v", b)])


_INTS = two(pa.int64(), pa.int64())

PROGRAMS = (
    Program("count", "px", 2, _by_p, list, _count, two(pa.int64(), pa.float64())),
    Program("several", "ps", 3, _several, list, _twice, two(pa.string(), pa.int64())),
    Program("alarms", "p", 3, _several, list, _alarm, _INTS, _ring),
    Program("sessions", "p", 2, _by_p, dict, _session, _INTS, _session_end),
    Program("meet", "p", 1, lambda t: 0, dict, _meet, two(pa.string(), pa.int64())),
    Program("compiled", "p", 3, _bucket, _zeros, _summed, _INTS, _summed_end),
    Program("ticks", "p", 2, lambda t: plait.ALL, dict, _tick, _INTS, _tick_again, endless=True),
    Program("chain", "p", 2, _by_p, dict, _chain, _INTS, _chain_on, endless=True),
)


def over_join(column: str) -> Program:
    """An operator over a join's results, of which it reads one column."""

    def route(t: Any) -> int | None:
        value = t[column]
        return None if value is None else value % 2

    def process(state: list[Any], t: Any) -> list[Any]:
        state.append(t.ts)
        return [plait.timer(t.ts + 1), (len(state) % 5, t.ts % 1000)]

    def on_timer(state: list[Any], at: int) -> list[Any]:
        return [(len(state), at % 10)]

    return Program("over a join", column, 2, route, list, process, _INTS, on_timer)
