"""Rows of results made by several threads beside who reads: the same bytes in the same order, in bounded memory, to any end.

A batch has 65,536 results, and builders are only asked where more wait. Here batches are small, so that every run asks them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples
from tests.threads import test_broken_calls
from tests.threads.test_readers import Reading

import plait
from plait.errors import DataError, PlaitError, RunError
from plait.query.identical import difference
from plait.threads import results
from plait.threads.builders import Builders, Job
from plait.threads.life.pause import Stopped

SEED = 20261118
N = 300  # tuples of a stream
COLUMNS: dict[str, Any] = {
    "k": (pa.int64(), lambda c: c.randrange(3)),
    "yes": (pa.bool_(), lambda c: c.random() < 0.5),
    "small": (pa.int8(), lambda c: c.randrange(-128, 128)),
    "real": (pa.float32(), lambda c: c.choice((0.5, -0.0, float("inf")))),
    "text": (pa.string(), lambda c: "é" * c.randrange(4) + "x" * c.choice((0, 1, 15, 16, 17, 40))),
    "bytes": (pa.large_binary(), lambda c: bytes(c.randrange(20))),
    "codes": (pa.dictionary(pa.int8(), pa.string()), lambda c: c.choice("abc")),
    "moment": (pa.timestamp("ms", tz="UTC"), lambda c: c.randrange(10**9)),
    "list": (pa.list_(pa.int16()), lambda c: [c.randrange(9)] * c.randrange(3)),
    "decimal": (pa.decimal128(9, 2), lambda c: c.randrange(10**6)),
}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Batches of 32 results, of which builders make all that have more than 4; gives how many they made. No thread is left.

    Rows that are let go of are soon written over, so that it shows if they were needed.
    """
    asked = [0]
    do = Builders.do

    def counted(self: Builders, make: Any) -> Any:
        asked[0] += 1
        return do(self, make)

    for home in ("rings", "rows", "aggregate.kept"):
        monkeypatch.setattr(f"plait.core.{home}.CAPACITY", 16)
    monkeypatch.setattr("plait.threads.input.payload.MERGED", 8)
    monkeypatch.setattr(results, "MOST", 32)
    monkeypatch.setattr(results, "FEW", 4)
    monkeypatch.setattr(Builders, "do", counted)
    yield asked
    assert [t.name for t in threading.enumerate() if t.name.startswith("plait-")] == []


def drawn(chance: random.Random, n: int, names: list[str], nulls: float) -> pa.Table:
    ts = sorted(chance.randrange(n) for _ in range(n))
    made: dict[str, Any] = {"ts": pa.array(ts, pa.int64())}
    for name in names:
        kind, make = COLUMNS[name]
        values = [None if name != "k" and chance.random() < nulls else make(chance) for _ in range(n)]
        made[name] = (
            pa.array(values, kind.value_type).dictionary_encode()
            if pa.types.is_dictionary(kind)
            else pa.array(values, kind)
        )
    return pa.table(made)


def query(chance: random.Random, seed: int) -> tuple[plait.Query, dict[str, Any]]:
    """An equality with many results, of some kind, by some strategy."""
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    options: dict[str, Any] = {"workers": chance.choice((1, 2, 3))}
    kind = ("inner", "left", "full", "semi", "anti", "right", "asof", "dag", "counted", "elastic")[seed % 10]
    if kind == "asof":
        return plait.asof(a, b, by="k", within=20, direction=chance.choice(("backward", "nearest"))), options
    if kind == "dag":
        inner = plait.join(a, b, on=lambda l, r: l.k == r.k, within=8)
        return plait.join(a, inner, on=lambda l, r: l.k == r.a_k, within=2), options
    if kind == "counted":
        return plait.join(a, b, on=lambda l, r: l.k == r.k, last=30), options
    if kind == "elastic":
        options["elastic"] = 3
    if kind == "inner":
        options["strategy"] = chance.choice(("auto", "scalejoin", "splitjoin", "dpjoin"))
    how = kind if kind in ("left", "full", "semi", "anti", "right") else "inner"
    return plait.join(a, b, on=lambda l, r: l.k == r.k, within=20, how=how), options


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(examples(48)))
def test_the_reference_gives_the_same_bytes(
    seed: int, small_batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, batch_of = random.Random(SEED + seed), results.Gatherer._batch

    def slow(self: Any, entries: np.ndarray) -> pa.RecordBatch:
        time.sleep(random.Random(int(entries.sum())).choice((0, 0, 0.0003, 0.003)))
        return batch_of(self, entries)

    monkeypatch.setattr(results.Gatherer, "_batch", slow)
    monkeypatch.setattr("plait.threads.engine.TICK_ROWS", chance.choice((0, 1 << 40)))
    names = ["k", *chance.sample(sorted(set(COLUMNS) - {"k"}), chance.choice((1, 4, 9)))]
    data = {name: drawn(chance, N, names, chance.choice((0.0, 0.2))) for name in "ab"}
    made, options = query(chance, seed)
    keys = chance.random() < 0.7
    expected = made.reference(data, keys=keys) if keys else made.reference(data)
    with made.on_threads(plain=True, keys=keys, **options) as run:
        got = Reading(run.results(), random.Random(seed))
        cut = chance.randrange(1, 40)
        for first in range(0, N, cut):
            for name, table in data.items():
                run.push(name, None, table.slice(first, cut))
        run.drain()
        got.join(60)
        assert got.error is None
        table = pa.Table.from_batches(got.batches, run.schema)
    assert difference(expected, table) is None, (seed, made)
    assert run.stats().results == table.num_rows
    if len(expected) > 200:
        assert small_batches[0] > 0, "builders were not asked"


def many(within: int = 30) -> plait.Query:
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    return plait.join(a, b, on=lambda l, r: l.k == r.k, within=within)


def data(n: int, text: str = "some text") -> dict[str, pa.Table]:
    return {name: pa.table({"ts": np.arange(n), "k": np.zeros(n, np.int64), "text": [f"{text} {name} {k}" for k in range(n)]})
            for name in "ab"}  # fmt: skip


def test_several_readers_see_one_sequence(small_batches: list[int]) -> None:
    given = data(200)
    expected = many().reference(given)
    with many().on_threads(workers=2, plain=True) as run:
        readers = [Reading(run.reader(), random.Random(k)) for k in range(3)]
        for name, table in given.items():
            run.push(name, None, table)
        run.drain()
        for each in readers:
            each.join(60)
            assert each.error is None
            assert all(one is other for one, other in zip(each.batches, readers[0].batches, strict=True))
    assert difference(expected, pa.Table.from_batches(readers[0].batches)) is None
    assert small_batches[0] > 0


@pytest.mark.again
def test_who_reads_slowly_holds_all_back_and_memory_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ahead of the reader, and the rows that are kept, do not grow with the data, though there always is more to read."""
    monkeypatch.setattr("plait.threads.engine.TICK_ROWS", 1 << 40)  # none is let go of by who pushes
    monkeypatch.setattr("plait.threads.input.payload.MERGED", 64)
    n = 5_000
    given = {name: pa.table({"ts": np.arange(n), "k": np.zeros(n, np.int64)}) for name in "ab"}
    ahead, kept, rows = [], [], 0
    with many(within=20).on_threads(workers=1, plain=True, unread_results=256, capacity=256, batch=64) as run:

        def push() -> None:
            for first in range(0, n, 50):
                for name, table in given.items():
                    run.push(name, None, table.slice(first, 50))
            run.drain()

        pushing = threading.Thread(target=push)
        pushing.start()
        for batch in run.results():
            rows += batch.num_rows
            engine: Any = run._engine
            ahead.append(len(engine.gatherer._ahead) + len(engine.gatherer._spare))
            kept.append(sum(payload.rows for payload in engine.payloads.values()))
            time.sleep(0.0002)
        pushing.join()
    assert rows == n * 41 - 20 * 21
    assert max(ahead) <= 5
    assert max(kept) < 2_500, "of 10,000: the window, what is at the gate, and what is in rings and ahead"


@pytest.mark.parametrize("after", [0, 1, 5])
def test_who_stops_early_leaves_no_thread_behind(after: int, small_batches: list[int]) -> None:
    with many().on_threads(workers=2, plain=True) as run:
        for name, table in data(300).items():
            run.push(name, None, table)
        for _, batch in zip(range(after), run.results(), strict=False):
            assert batch.num_rows
    with pytest.raises(RunError, match="stopped"):
        next(run.results())
    assert (small_batches[0] > 0) == (after > 0)


def test_a_run_that_is_dropped_ends_its_builders() -> None:
    run = many().on_threads(workers=1, plain=True)
    for name, table in data(300).items():
        run.push(name, None, table)
    next(run.results())
    assert any(t.name.startswith("plait-builds") for t in threading.enumerate())
    del run
    until = time.monotonic() + 20
    while any(t.name.startswith("plait-") for t in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)


def test_an_error_of_making_rows_comes_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results before it are given out; then every call raises it."""
    given = data(100)
    expected = many().reference(given)
    made, batch_of = [0], results.Gatherer._batch
    lock = threading.Lock()

    def failing(self: Any, entries: np.ndarray) -> pa.RecordBatch:
        if entries[results.o.E_TS].max() >= 50:
            raise DataError("No rows of 50 and later")
        with lock:
            made[0] += 1
        return batch_of(self, entries)

    monkeypatch.setattr(results.Gatherer, "_batch", failing)
    got = []
    with many().on_threads(workers=2, plain=True) as run:
        for name, table in given.items():
            run.push(name, None, table)
        run.drain()
        with pytest.raises(DataError, match="50 and later"):  # noqa: PT012
            for batch in run.results():
                got.append(batch)
        for call in (run.table, run.drain, lambda: run.push("a", None, given["a"])):
            with pytest.raises(PlaitError, match="50 and later"):
                call()
    table = pa.Table.from_batches(got)
    assert len(got) == made[0] > 0
    assert difference(expected.slice(0, table.num_rows), table) is None


@pytest.mark.parametrize(
    "name", ["join", "dag", *(pytest.param(name, marks=pytest.mark.slow) for name in ("two readers", "sources"))]
)
def test_struck_while_builders_are_at_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `test_broken_calls`: an interrupt had no effect, or the run stops and what was given out is the beginning."""
    monkeypatch.setattr(results, "MOST", 2)
    monkeypatch.setattr(results, "FEW", 0)
    case, dice = test_broken_calls.CASES[name], random.Random(f"strike {name} {SEED}")
    expected = case[0].reference(case[2])
    for at, step in enumerate(case[3]):
        points = 24 if step in (test_broken_calls.reads, test_broken_calls.reads_all) else 3
        for line in sorted(dice.sample(range(260), points)):
            test_broken_calls.check_struck(case, at, line, KeyboardInterrupt, expected)


# --- builders alone -----------------------------------------------------------------------------------------------


def test_jobs_are_done_and_give_what_they_gave_or_raised() -> None:
    builders = Builders(3)
    jobs = [builders.do(lambda k=k: 10 // (k - 3)) for k in range(30)]
    for k, job in enumerate(jobs):
        if k == 3:
            with pytest.raises(ZeroDivisionError):
                job.result(builders.halted)
        else:
            assert job.result(builders.halted) == 10 // (k - 3)
        assert job.over
    builders.halt()
    assert builders.join(20) is None


def test_who_waits_for_a_job_that_comes_after_the_end_is_told() -> None:
    builders = Builders(2)
    assert builders.do(lambda: 1).result(builders.halted) == 1
    builders.halt()
    assert builders.join(20) is None
    with pytest.raises(Stopped):
        builders.do(lambda: 2).result(builders.halted)


def test_a_job_lets_go_of_what_it_was_made_of() -> None:
    class Big:
        pass

    import weakref

    big = Big()
    gone = weakref.ref(big)
    job = Job(lambda big=big: 1)
    job.do()
    del big
    assert gone() is None
    assert job.result(lambda: False) == 1
