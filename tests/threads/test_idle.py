"""`idle_after=` on threads: a silent source lets go of the frontier. Hours pass here at a word; one test takes real time."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import BehindError
from plait.order import BEFORE_ALL

HOUR_NS = 3_600_000_000_000
SCHEMA = pa.schema({"ts": pa.int64()})
B = plait.stream("b", unit="us")


def silent(**options: Any) -> plait.Stream:
    return plait.stream("a", unit="us", sources=2, **{"idle_after": "1 hour"} | options)


def near(stream: plait.Stream, other: plait.Stream = B) -> plait.Query:
    return plait.join(stream, other, within=1)


def counted(stream: plait.Stream, other: plait.Stream = B) -> plait.Query:
    """The silent source is two operators away from the result, and read by both."""
    windows = plait.aggregate(stream, size="10us", compute={"n": plait.count()}, name="w")
    return plait.join(plait.join(windows, other, within=10, name="j"), stream, within=0)


def start(query: plait.Query) -> Any:
    return query.on_threads(schemas=dict.fromkeys(query.streams(), SCHEMA), plain=True)


def push(run: Any, stream: str, source: int, *ts: int) -> None:
    run.push(stream, source, {"ts": list(ts)})


def pass_hours(run: Any, hours: float = 2) -> None:
    run._engine.let_go(time.monotonic_ns() + int(hours * HOUR_NS))


@pytest.mark.parametrize("shape", [near, counted])
def test_a_silent_source_lets_go_until_it_speaks(shape: Any) -> None:
    with start(shape(silent(behind="drop"), plait.stream("b", unit="us", idle_after="1 hour"))) as run:
        push(run, "a", 0, 1, 12, 30)
        push(run, "b", 0, 2, 20)
        assert run.frontier == BEFORE_ALL
        pass_hours(run, 0.5)
        assert run.frontier == BEFORE_ALL
        # Nobody has spoken for as long: who has come furthest says how far time is.
        pass_hours(run)
        assert run.frontier == 30
        push(run, "a", 1, 29, 31)
        assert run.behind("a").column("ts").to_pylist() == [29]
        push(run, "a", 0, 50)
        push(run, "b", 0, 50)
        assert run.frontier == 31, "it holds the frontier again"
        run.drain()
        got = run.table().num_rows
    with start(shape(plait.stream("a", unit="us", sources=2))) as run:
        push(run, "a", 0, 1, 12, 30, 50)
        push(run, "b", 0, 2, 20, 50)
        push(run, "a", 1, 31)
        run.drain()
        assert run.table().num_rows == got


@pytest.mark.parametrize("shape", [near, counted])
def test_it_does_not_pass_those_that_speak(shape: Any) -> None:
    with start(shape(silent(disorder=5))) as run:
        push(run, "a", 0, 1, 12, 30)
        push(run, "a", 1, 4, 3)
        push(run, "b", 0, 14)  # no idle_after=: it holds the frontier for ever
        pass_hours(run)
        assert run.frontier == 14
        push(run, "a", 1, 16)  # below what 0 has come to, and welcome
        with pytest.raises(BehindError, match=r"ts 13 is behind the frontier 14.*silent for longer than idle_after="):
            push(run, "a", 1, 13)


def test_a_stream_of_which_no_source_is_known() -> None:
    unknown = plait.stream("b", unit="us", source=None, idle_after="1 hour")
    with start(plait.join(plait.stream("a", unit="us"), unknown, within=1, how="left")) as run:
        push(run, "a", 0, 1, 10)
        assert run.holder() == ("b", None)
        pass_hours(run)
        assert next(run.results()).column("a_ts").to_pylist() == [1]
        push(run, "b", 0, 10)
        assert run.frontier == 10
        with pytest.raises(BehindError, match="behind the frontier 10"):
            push(run, "b", 1, 9)


def test_heartbeats_are_speech() -> None:
    with start(near(silent())) as run:
        push(run, "a", 0, 5)
        push(run, "b", 0, 5)
        run.heartbeat("a", 1, 2)
        source = run._engine.intakes["a"].inlets[1]
        source.spoke_ns += 2 * HOUR_NS  # as if it had just come
        pass_hours(run)
        assert run.frontier == 2


def test_by_the_wall_clock() -> None:
    with start(near(silent(idle_after="20ms"))) as run:
        push(run, "a", 0, 1, 12, 30)
        push(run, "b", 0, 2, 20)
        assert next(run.results()).column("ts").to_pylist() == [2]
