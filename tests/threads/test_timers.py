"""Timers that set timers: at the end of input time passes to the last tuple of all, then pending timers run, and a timer
that is set then runs only if it is not later than the last one pending. The rule is `core.operator.buckets`'s; the judge is the
reference, whose bytes every run has to give: plain and compiled, elastic, cut and delivered at random, and as part of a DAG."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.query.identical import difference

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("every", pa.int64()), ("times", pa.int64())])
OUT = {"at": "int64", "n": "int64"}


def process(state: Any, t: Any) -> Any:
    state[1], state[2] = t.every, t.times
    yield plait.timer(t.ts + t.every)


def on_timer(state: Any, at: Any) -> Any:
    state[0] += 1
    yield (at, state[0])
    if state[0] < state[2]:
        yield plait.timer(at + state[1])


def slow_process(state: Any, t: Any) -> Any:
    state["every"], state["times"] = t.every, t.times
    yield plait.timer(t.ts + t.every)


def slow_on_timer(state: Any, at: int) -> Any:
    state["n"] = state.get("n", 0) + 1
    yield {"at": at, "n": state["n"]}
    if state["n"] < state["times"]:
        yield plait.timer(at + state["every"])


def echo(state: dict[str, int], t: Any) -> Any:
    """Of an operator's rows: a timer for each, which sets another."""
    yield (t.at, t.n)
    yield plait.timer(t.ts + 7)


def echo_timer(state: dict[str, int], at: int) -> Any:
    yield (at, -1)
    yield plait.timer(at + 11)


def operator(input: Any, *, compiled: bool) -> Any:
    functions: dict[str, Any] = {"state": dict, "process": slow_process, "on_timer": slow_on_timer}
    if compiled:
        functions = {"state": lambda: np.zeros(3, np.int64), "process": process, "on_timer": on_timer}
    return plait.operator(input, buckets=4, route=lambda t: t.k % 4, output=OUT, **functions)


def rows(dice: random.Random) -> pa.Table:
    """Timers of many tuples, of few, and without end; the last tuple's alone decide where a chain of others stops."""
    n, ts = dice.randint(1, 12), 0
    times = dice.choice(([10**9], [1, 2, 3], [0, 10**9]))
    found = []
    for _ in range(n):
        ts += dice.choice((0, 1, 5, 40))
        found.append((ts, dice.randrange(8), dice.choice((1, 3, 10, 50)), dice.choice(times)))
    return pa.table([list(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def run(query: Any, data: dict[str, pa.Table], dice: random.Random, **options: Any) -> pa.Table:
    schemas = {name: table.schema for name, table in data.items()}
    with query.on_threads(schemas=schemas, keys=True, **options) as made:
        at = dict.fromkeys(data, 0)
        while left := [name for name in data if at[name] < len(data[name])]:
            name = dice.choice(left)
            made.push(name, None, data[name].slice(at[name], size := dice.choice((1, 2, 5, 100))))
            at[name] += size
            if options.get("elastic") and dice.random() < 0.3:
                made.resize(dice.randint(1, 2))
        for name in dice.sample(list(data), len(data)):  # whoever ends first: the rule is about all
            made.close(name)
        return made.table()


def check(query: Any, data: dict[str, pa.Table], dice: random.Random, **options: Any) -> None:
    expected = query.reference(data, keys=True)
    got = run(query, data, dice, **options)
    assert difference(expected, got) is None, (options, {name: table.to_pydict() for name, table in data.items()})
    assert expected.column("_plait_key").combine_chunks().equals(got.column("_plait_key").combine_chunks())


OPTIONS: list[dict[str, Any]] = [
    {"workers": 1},
    {"workers": 2},
    {"workers": 2, "elastic": 2},
    {"workers": 1, "batch": 1},
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_timers_that_set_timers_end_where_the_references_do(seed: int, compiled: bool) -> None:
    dice = random.Random(seed)
    query = operator(plait.stream("a", unit="us"), compiled=compiled)
    check(query, {"a": rows(dice)}, dice, **OPTIONS[seed % len(OPTIONS)])


@pytest.mark.parametrize("seed", [*range(6), 100])
def test_timers_of_an_operator_after_an_operator(seed: int) -> None:
    """The second one's time passes to the last row that the first one's timers give."""
    dice = random.Random(seed)
    inner = operator(plait.stream("a", unit="us"), compiled=False)
    outer = plait.operator(
        inner, buckets=2, route=lambda t: t.n % 2, state=dict, process=echo, on_timer=echo_timer, output=OUT
    )
    check(outer, {"a": rows(dice)}, dice, **OPTIONS[seed % len(OPTIONS)])


@pytest.mark.parametrize("seed", range(6))
def test_a_stream_that_another_operator_reads_has_its_say(seed: int) -> None:
    """Time passes to the last tuple of any stream of the query, whether or not it comes to the operator."""
    dice = random.Random(seed)
    inner = operator(plait.stream("a", unit="us"), compiled=False)
    inputs = [inner, plait.stream("b", unit="us")]
    query = plait.operator(
        inputs, buckets=2, route=lambda t: t.n % 2, state=dict, process=echo, on_timer=echo_timer, output=OUT
    )
    ts = sorted(dice.randrange(200) for _ in range(dice.randint(1, 5)))
    b = pa.table({"ts": ts, "at": ts, "n": [dice.randint(1, 4) for _ in ts]})
    check(query, {"a": rows(dice), "b": b}, dice, workers=1)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("far", ["tuple", "heartbeat"])
def test_stop_ends_a_worker_that_runs_timers(far: str, compiled: bool) -> None:
    """A timer a microsecond, and a tuple (or a promise) that lies centuries ahead: nobody waits for that."""
    query = operator(plait.stream("a", unit="us"), compiled=compiled)
    made = query.on_threads(schemas={"a": SCHEMA}, workers=1, unread_results=1000)
    made.push("a", None, {"ts": [0], "k": [0], "every": [1], "times": [2**60]})
    if far == "tuple":
        made.push("a", None, {"ts": [2**60], "k": [0], "every": [1], "times": [0]})
    made.heartbeat("a", 0, 2**60 + 1)
    if far == "heartbeat":
        assert next(made.results()).num_rows > 0  # while timers run, their rows can be read
    threads = made._engine.threads
    made.stop()
    assert not any(thread.is_alive() for thread in threads)
