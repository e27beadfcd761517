"""What a run on threads tells of its sources, operators and workers, against what was pushed: exactly, on every gate."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plait
from plait.core.metrics import WAITING, WORKING, amount
from plait.order import BEFORE_ALL
from plait.threads.gate.gates import Gate, RingGate, SkipListGate
from plait.threads.input import intake
from plait.threads.input.intake import Steps

A = plait.stream("a", unit="us", source="from", sources=["x", "y"], late="drop")
B = plait.stream("b", unit="us")
COUNTED = plait.aggregate(A, size="10us", compute={"n": plait.count()})
QUERIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "join, rings": (plait.join(A, B, within=5), {"gate": "ring", "workers": 2}),
    "join, skip list": (plait.join(A, B, within=5), {"gate": "skiplist", "workers": 2}),
    "wiml": (COUNTED, {"strategy": "wiml"}),
    "tuml": (COUNTED, {"strategy": "tuml_sc"}),
    "operator": (
        plait.operator(A, buckets=2, route=lambda t: 0, state=list, process=lambda s, t: [], output={"n": "int64"}),
        {"plain": True},
    ),
    "several operators": (plait.join(COUNTED, B, within=5), {}),
}


#: Where no gate has the tuples, up to a push's of those that wait are too many: see `Steps`.
BY_PUSHES = ("wiml", "several operators")


def settled(run: Any) -> Any:
    """What it tells once workers have taken what is ready."""
    until = time.monotonic() + 20
    while (told := run.watched()).unread and time.monotonic() < until:
        list(run.results(timeout_s=0.01))
    return told


@pytest.mark.parametrize("case", QUERIES)
@pytest.mark.parametrize("seed", range(4))
def test_rows_by_source_are_those_that_were_pushed(case: str, seed: int) -> None:
    query, options = QUERIES[case]
    chance = random.Random(seed)
    pushed: dict[tuple[str, Any], list[int]] = {}
    late: dict[tuple[str, Any], int] = {}
    names = [("a", "x"), ("a", "y")] + ([("b", 0)] if "b" in query.streams() else [])
    with query.on_threads(**options) as run:
        for step in range(30):
            stream, source = chance.choice(names)
            own = pushed.setdefault((stream, source), [])
            largest = max(own, default=0)
            ts = sorted(largest + chance.randrange(20) for _ in range(chance.randrange(1, 30)))
            if stream == "a" and largest and chance.random() < 0.3:
                ts = [*ts, ts[-1] - 1]
                late[stream, source] = late.get((stream, source), 0) + 1
            batch = {"ts": ts} | ({"from": [source] * len(ts)} if stream == "a" else {})
            run.push(stream, None, batch)
            own += ts if (stream, source) not in late or ts == sorted(ts) else ts[:-1]
            if step % 5 == 4 and len(pushed) == len(names):
                check(settled(run), pushed, late, run, loose=30 if case in BY_PUSHES else 0)
        run.drain()
        list(run.results())
        told = run.watched()
        assert told.phase == "ended"
        assert all(source.ended and not source.holds for source in told.sources)
        assert amount(told.waiting) == 0


def check(
    told: Any, pushed: dict[tuple[str, Any], list[int]], late: dict[tuple[str, Any], int], run: Any, *, loose: int
) -> None:
    frontier = min(max(ts) for ts in pushed.values())
    assert told.frontier == frontier == run.frontier
    by = {(source.stream, source.source): source for source in told.sources}
    assert by.keys() == pushed.keys()
    for at, ts in pushed.items():
        source = by[at]
        assert source.rows == len(ts) + late.get(at, 0), at
        assert source.late == late.get(at, 0)
        exact = sum(each >= frontier for each in ts)
        assert exact <= source.waiting <= exact + loose, at
        assert (source.newest, source.progress) == (max(ts), max(ts))
        assert source.lag_us == max(map(max, pushed.values())) - max(ts)
        assert source.heard_at is not None
        assert 0 <= source.silent_s < 20
        assert source.holds == (told.holder == at)
    assert sum(source.holds for source in told.sources) == 1
    assert told.waiting.keys() == {name for name, _ in pushed}
    exact = sum(each >= frontier for ts in pushed.values() for each in ts)
    assert exact <= amount(told.waiting) == told.pending <= exact + 2 * loose


@pytest.mark.parametrize("case", QUERIES)
def test_operators_and_workers_add_up(case: str) -> None:
    query, options = QUERIES[case]
    with query.on_threads(**options) as run:
        for feed in "xy":
            run.push("a", None, {"ts": list(range(0, 100, 3)), "from": [feed] * 34})
        if "b" in query.streams():
            run.push("b", None, {"ts": list(range(0, 100, 2))})
        run.drain()
        list(run.results())
        told = run.watched()
    numbers = [each.operator for each in told.operators]
    assert numbers == list(range(len(numbers)))
    assert told.operators[0].results == told.results
    known = {*query.streams(), *(f"#{number}" for number in numbers)}
    assert {name for each in told.operators for name in each.inputs} == known - {"#0"}
    for number in numbers:
        own = [part for part in told.parts if part.operator == number]
        assert own
        assert sum(part.share for part in own) == pytest.approx(1) or sum(part.busy_s for part in own) == 0
    assert told.marks[0].kind == "started"
    if case.startswith("join"):
        assert {WAITING, WORKING} <= told.latency_split_ms.keys()


def test_a_stream_of_which_no_source_is_known_holds_the_frontier() -> None:
    open_ended = plait.stream("c", unit="us", source="from")
    with plait.join(open_ended, B, within=5).on_threads(schemas={"c": _schema(), "b": _ts()}) as run:
        run.push("b", None, {"ts": [1, 2, 3]})
        told = run.watched()
        by = {each.stream: each for each in told.sources}
        assert by["c"].source is None
        assert by["c"].holds
        assert (by["c"].progress, by["c"].heard_at) == (BEFORE_ALL, None)
        assert (by["b"].waiting, told.pending) == (3, 3)


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("ts", pa.int64()), ("from", pa.string())])


def _ts() -> Any:
    import pyarrow as pa

    return pa.schema([("ts", pa.int64())])


def test_an_idle_source_is_told() -> None:
    idle = plait.stream("a", unit="us", source="from", sources=["x", "y"], idle_after="50ms", behind="drop")
    with plait.aggregate(idle, size="10us", compute={"n": plait.count()}).on_threads() as run:
        run.push("a", None, {"ts": [1, 2], "from": ["x", "y"]})
        until = time.monotonic() + 20
        while time.monotonic() < until:
            run.push("a", None, {"ts": [int(time.monotonic() * 1e6)], "from": ["x"]})
            by = {each.source: each for each in run.watched().sources}
            if by["y"].idle:
                break
            time.sleep(0.01)
        assert (by["x"].idle, by["y"].idle, by["y"].holds) == (False, True, False)


def test_what_stopped_a_run_is_told_by_its_kind() -> None:
    with plait.aggregate(B, size="10us", compute={"n": plait.count()}).on_threads() as run:
        assert run.watched().phase == "starting"
        run.push("b", None, {"ts": [9]})
        assert run.watched().phase == "running"
        with pytest.raises(plait.LateError):
            run.push("b", None, {"ts": [2]})
        assert run.watched().phase == "failed: LateError"
    assert run.watched().phase == "failed: LateError"


# --- tuples in the gate ---------------------------------------------------------------------------------------


@given(st.data())
@pytest.mark.parametrize("kind", [RingGate, SkipListGate])
def test_what_lies_ahead_in_a_gate_is_counted(kind: type[Gate], data: st.DataObject) -> None:
    """Against the very list of what was added; the ring goes round many times."""
    gate = kind(slots=2, readers=1, capacity=8, pending=8)
    gate.open(0, "a", origin=0, min_ts=0)
    gate.open(1, "b", origin=1, min_ts=0)
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    out = np.zeros((4, 64), np.int64)
    added: list[list[int]] = [[], []]
    read = [0, 0]
    for _ in range(chance.randrange(1, 40)):
        slot = chance.randrange(2)
        last = added[slot][-1] if added[slot] else 0
        ts = np.array(sorted(last + 1 + chance.randrange(5) for _ in range(chance.randrange(1, 5))), np.int64)
        ts = np.unique(ts)
        seq = np.arange(len(added[slot]), len(added[slot]) + len(ts))
        frontier = gate.frontier()[0]
        room = 8 - sum(each >= frontier for each in added[slot])
        if len(ts) < room and sum(each < frontier for each in added[slot]) - read[slot] < 4:
            done = int(gate.kind.add_waiting(gate.words, slot, ts, seq, seq, 0, len(ts), int(ts[-1]), 0, False))
            added[slot] += ts[: max(done, 0)].tolist()
        if chance.random() < 0.5:
            n = int(gate.kind.read_waiting(gate.words, 0, 1 + chance.randrange(8), *out, 0))
            for place in range(max(n, 0)):
                read[int(out[1][place]) & 1] += 1
        frontier = gate.frontier()[0]
        for each in (0, 1):
            ahead = sum(ts >= frontier for ts in added[each])
            assert gate.ahead(each, frontier) == (ahead, len(added[each]) - ahead - read[each])


def test_the_steps_of_wiml_are_few_and_never_too_low() -> None:
    steps, chance = Steps(), random.Random(7)
    ts: list[int] = []
    for _ in range(3000):
        ts += sorted((ts[-1] if ts else 0) + chance.randrange(3) for _ in range(chance.randrange(1, 4)))
        steps.note(ts[-1], len(ts))
        frontier = ts[-1] - chance.randrange(50)
        exact = sum(each >= frontier for each in ts[-200:])
        assert exact <= steps.ahead(frontier)
    assert len(steps._steps) <= intake.Steps.MOST + 2
    assert steps.ahead(ts[-1] + 1) == 0


RIGHT = Gate.ahead
WRONG = {
    "one ts too low": lambda self, slot, ts: RIGHT(self, slot, ts - 1),
    "one too many": lambda self, slot, ts: (RIGHT(self, slot, ts)[0] + 1, 0),
    "another source's": lambda self, slot, ts: RIGHT(self, 0, ts),
    "none that is ready": lambda self, slot, ts: (RIGHT(self, slot, ts)[0], 0),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_would_notice(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """Mutants of what is counted: each is seen."""
    monkeypatch.setattr(Gate, "ahead", WRONG[wrong])
    with pytest.raises(AssertionError):
        test_what_lies_ahead_in_a_gate_is_counted(kind=RingGate)
