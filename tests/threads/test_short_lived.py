"""Sources that come and go while a run goes on: the reference's bytes, and no more memory than those at once need."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.errors import DataError, RunError
from plait.query.identical import difference
from plait.threads.engine import Engine
from plait.threads.gate import words
from plait.threads.input import inlets

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64())])
SOURCES = 40
KINDS = ("scalejoin", "splitjoin", "self", "elastic", "tuml_sc", "operator", "dag")
#: No tuple of WiML goes through the gate.
RUNS = [("wiml", "ring"), *((kind, gate) for gate in ("ring", "skiplist") for kind in KINDS)]


def queries(kind: str) -> tuple[plait.Query, dict[str, Any]]:
    """As in `gate.test_carrying`; of stream a nobody knows how many sources it has."""
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us", sources=1)
    near = plait.join(a, b, on=lambda l, r: abs(l.x - r.x) <= 1, within=6)
    # Of tuples of one ts, which is first and which is last goes by their sources' names.
    compute = {"n": plait.count(), "first": plait.first("x"), "last": plait.last("x")}
    sums = plait.aggregate(a, size="20us", advance="10us", compute=compute)
    counted = plait.operator(
        [a, b], buckets=4, route=lambda t: t.x % 4, state=list, output=pa.schema([("n", pa.int64())]),
        process=lambda state, t: [state.append(t.ts), (len(state),)][1:],
    )  # fmt: skip
    return {
        "scalejoin": (near, {"strategy": "scalejoin", "workers": 2}),
        "splitjoin": (near, {"strategy": "splitjoin", "workers": 3}),
        "self": (plait.join(a, a, on=lambda l, r: abs(l.x - r.x) <= 1, within=3), {"workers": 2}),
        "elastic": (near, {"elastic": 3, "workers": 2}),
        "tuml_sc": (sums, {"strategy": "tuml_sc"}),
        "wiml": (sums, {"strategy": "wiml"}),
        "operator": (counted, {"workers": 2}),
        "dag": (plait.join(sums.named("s"), b, within=15), {"workers": 2}),
    }[kind]


def lives(chance: random.Random, names: list[Any]) -> dict[Any, pa.Table]:
    """Source k lives from ts 10k to 10k + 14: two at a time, which share some ts."""
    made = {}
    for k, name in enumerate(names):
        ts = sorted([10 * k, *(10 * k + chance.randrange(15) for _ in range(5))])
        made[name] = pa.table({"ts": ts, "x": [chance.randrange(5) for _ in ts]}, SCHEMA)
    return made


def steps(own: dict[Any, pa.Table], others: pa.Table) -> list[tuple[Any, ...]]:
    """The next source speaks before the last one says the rest and ends; the other stream keeps up."""
    names, done = list(own), []
    for k, name in enumerate(names):
        cut = sum(ts.as_py() < 10 * k + 7 for ts in own[name]["ts"])
        done.append(("push", "a", name, own[name].slice(0, cut)))
        if k > 0:
            before = own[names[k - 1]]
            rest = sum(ts.as_py() < 10 * (k - 1) + 7 for ts in before["ts"])
            done += [("push", "a", names[k - 1], before.slice(rest)), ("close", "a", names[k - 1])]
        done.append(("push", "b", 0, others.slice(k, 1)))
    last = own[names[-1]]
    done.append(("push", "a", names[-1], last.slice(sum(ts.as_py() < 10 * len(names) - 3 for ts in last["ts"]))))
    return done


def ran(query: plait.Query, todo: list[tuple[Any, ...]], **options: Any) -> tuple[pa.Table, list[Any]]:
    streams = query.streams()
    with query.on_threads(keys=True, schemas=dict.fromkeys(streams, SCHEMA), **options) as run:
        got = []
        for call, stream, source, *rows in todo:
            if stream in streams:
                getattr(run, call)(stream, source, *rows)
            got += list(run.results(timeout_s=0))
        for stream, source in (("a", todo[0][2]), ("a", todo[3][2])):
            with pytest.raises(RunError, match=f"source {source!r} has ended"):
                run.push(stream, source, pa.table({"ts": [10**6], "x": [1]}, SCHEMA))
            with pytest.raises(RunError, match="has ended"):
                run.heartbeat(stream, source, 10**6)
            run.close(stream, source)
        engines = [run._engine] if isinstance(run._engine, Engine) else list(run._engine.engines.values())
        run.drain()
        got += list(run.results())
        pushed = sum(rows[0].num_rows for call, stream, _, *rows in todo if call == "push" and stream in streams)
        assert run.stats().rows == pushed, "those of sources that are gone count"
        return pa.Table.from_batches(got, run.schema), engines


def check(kind: str, gate: str, **more: Any) -> None:
    """Forty where eight fit at once; their names are in no order, so that each has a place in ties of its own."""
    query, options = queries(kind)
    chance = random.Random(f"{kind} 7")
    own = lives(chance, [f"s{name:03}" for name in chance.sample(range(1000), SOURCES)])
    others = pa.table({"ts": range(0, 10 * SOURCES, 10), "x": [1] * SOURCES}, SCHEMA)
    got, engines = ran(query, steps(own, others), gate=gate, **options, **more)
    expected = query.reference({name: own if name == "a" else others for name in query.streams()}, keys=True)
    assert len(expected) > 20
    assert difference(expected, got) is None
    for engine in engines:
        if "a" in engine.intakes:
            intake, pusher = engine.intakes["a"], engine.pusher
            assert len(intake.gone) + len(intake.inlets) == SOURCES
            assert len(intake.inlets) * len(engine.ground.inputs["a"]) <= engine.ground.slots < SOURCES
            assert set(pusher._ranked["a"]) == set(intake.inlets.values()), "nothing is kept of those that are gone"
            for inlet in intake.inlets.values() if engine.plan.strategy != "wiml" else ():
                tails = {int(engine.gate.words[words.source_at(slot) + words.TAIL]) for slot in inlet.slots.values()}
                assert tails == {inlet.added}, "its rows go on in the arena where the former's count stood"


@pytest.mark.crossed
@pytest.mark.parametrize(("kind", "gate"), RUNS)
def test_many_sources_one_after_the_other(kind: str, gate: str) -> None:
    check(kind, gate)


def _without(name: str) -> Callable[..., None]:
    """`_forget` leaving out a step."""

    def forget(self: Any, intake: Any, former: Any) -> None:
        if name != "rank":
            self._ranked[intake.stream.name].remove(former)
        if name != "gone":
            intake.forget(former)
        else:
            intake.inlets = {n: each for n, each in intake.inlets.items() if each is not former}
        former.slots = {}
        if name == "count":
            former.added = 0

    return forget


def _last(self: Any, stream: str, new: Any) -> None:
    """Whoever comes last is last in ties."""
    self._ranked[stream].append(new)
    new.place = new.number + 1


FAULTS = {
    "places are given away before all is read": ("_vacated", lambda self, inlet: True),
    "places are never given away": ("_vacated", lambda self, inlet: False),
    "ties follow who came first": ("_rank", _last),
    "a rank stays behind": ("_forget", _without("rank")),
    "who is gone may come again": ("_forget", _without("gone")),
    "the arena begins anew": ("_forget", _without("count")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = FAULTS[fault]
    monkeypatch.setattr(inlets.Inlets, name, wrong)
    with pytest.raises((AssertionError, RunError, pytest.fail.Exception)):
        check("scalejoin", "ring", stall_after_s=2)


@pytest.mark.parametrize(
    ("kind", "gate"), [("scalejoin", "ring"), ("scalejoin", "skiplist"), ("tuml_sc", "skiplist"), ("wiml", "ring")]
)
def test_threads_that_each_have_a_new_source_every_round(kind: str, gate: str) -> None:
    """Three at once, and one that stays and holds the frontier; six fit, so each round takes up the places of the last one."""
    query, options = queries(kind)
    rounds, crew = 25, 3
    chance = random.Random(kind)
    data = {f"{chance.randrange(100):02}-{i}-{r}": table(chance, 100 * r, 100 * r + 99)
            for r in range(rounds) for i in range(crew)}  # fmt: skip
    names = list(data)
    streams = query.streams()
    failed: list[BaseException] = []
    with query.on_threads(keys=True, schemas=dict.fromkeys(streams, SCHEMA), gate=gate, max_sources=6 + len(streams),
                          capacity=64, pending=128, **options) as run:  # fmt: skip
        turn = threading.Barrier(crew + 1, timeout=60)
        run.heartbeat("a", "anchor", 0)

        def push(i: int) -> None:
            try:
                for r in range(rounds):
                    name = names[crew * r + i]
                    for at in range(0, data[name].num_rows, 4):
                        run.push("a", name, data[name].slice(at, 4))
                    run.close("a", name)
                    turn.wait()
                    turn.wait()
            except BaseException as error:
                failed.append(error)
                turn.abort()

        threads = [threading.Thread(target=push, args=(i,)) for i in range(crew)]
        for thread in threads:
            thread.start()
        got = []
        try:
            for r in range(rounds):
                turn.wait()
                run.heartbeat("a", "anchor", 100 * (r + 1))
                if "b" in streams:
                    run.push("b", None, pa.table({"ts": [100 * r], "x": [1]}, SCHEMA))
                    run.heartbeat("b", 0, 100 * (r + 1))
                got += list(run.results(timeout_s=0))
                turn.wait()
        except threading.BrokenBarrierError:
            raise failed[0] from None
        for thread in threads:
            thread.join()
        assert not failed
        run.drain()
        got += list(run.results())
        found = pa.Table.from_batches(got, run.schema)
    given = {"a": data, "b": pa.table({"ts": range(0, 100 * rounds, 100), "x": [1] * rounds}, SCHEMA)}
    expected = query.reference({name: given[name] for name in streams}, keys=True)
    assert len(expected) > 20
    assert difference(expected, found) is None


def table(chance: random.Random, first: int, last: int) -> pa.Table:
    ts = sorted(chance.randint(first, last) for _ in range(12))
    return pa.table({"ts": ts, "x": [chance.randrange(5) for _ in ts]}, SCHEMA)


def test_where_there_is_no_place_between_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of the stream are spread anew while workers stand still."""
    monkeypatch.setattr(inlets, "MOST_PLACES", 12)
    monkeypatch.setattr(inlets, "SPACING", 1)
    query, options = queries("scalejoin")
    chance = random.Random(3)
    own = lives(chance, [f"s{name:03}" for name in chance.sample(range(1000), SOURCES)])
    others = pa.table({"ts": range(0, 10 * SOURCES, 10), "x": [1] * SOURCES}, SCHEMA)
    got, _ = ran(query, steps(own, others), **options)
    assert difference(query.reference({"a": own, "b": others}, keys=True), got) is None


def test_what_is_not_read_keeps_its_place() -> None:
    """A source that has ended while another holds the frontier can't give its place away, and that is said."""
    query, options = queries("scalejoin")
    with query.on_threads(schemas=dict.fromkeys("ab", SCHEMA), **options) as run:
        run.push("b", None, pa.table({"ts": [9], "x": [1]}, SCHEMA))
        run.push("a", "holder", pa.table({"ts": [0], "x": [1]}, SCHEMA))
        with pytest.raises(RunError, match=r"more than 12 sources.*that have ended some rows are not read, .*'holder'"):  # noqa: PT012
            for k in range(20):
                run.push("a", f"s{k}", pa.table({"ts": [5], "x": [1]}, SCHEMA))
                run.close("a", f"s{k}")


def test_names_of_those_that_are_gone_are_of_the_same_kind() -> None:
    query, options = queries("tuml_sc")
    with query.on_threads(schemas={"a": SCHEMA}, max_sources=4, **options) as run:
        for k in range(9):
            run.push("a", f"s{k}", pa.table({"ts": [10 * k], "x": [1]}, SCHEMA))
            if k > 0:
                run.close("a", f"s{k - 1}")
        assert run._engine.intakes["a"].gone
        with pytest.raises(DataError, match="source 7 beside 's"):
            run.push("a", 7, pa.table({"ts": [99], "x": [1]}, SCHEMA))
