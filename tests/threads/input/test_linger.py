"""`linger=`: pushes that wait for others enter in their order, in time, and before what is said of their source."""

from __future__ import annotations

import gc
import random
import threading
import time
import weakref
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.reference.judge import assert_same

import plait
from plait.errors import LateError, QueryError, RunError
from plait.threads.input import linger
from plait.threads.life.pause import Stopped

A, B = (plait.stream(name, unit="us", source="src", sources=("p", "q")) for name in "ab")
JOIN = plait.join(A, B, on="l.k = r.k", within=40)
SUMS = plait.aggregate(A, size="50us", by="k", compute={"n": plait.count(), "first": plait.first("v")})
LAST = plait.asof(A, B, by="k", within=40)


def tables(rows: int, seed: int) -> dict[str, pa.Table]:
    dice = np.random.default_rng(seed)
    return {
        name: pa.table({
            "ts": np.cumsum(dice.integers(0, 3, rows)), "src": dice.choice(["p", "q"], rows), "k": dice.integers(0, 9, rows),
            "v": np.arange(rows),
        })
        for name in "ab"
    }  # fmt: skip


def schemas(query: plait.Query, data: dict[str, pa.Table]) -> dict[str, pa.Schema]:
    return {name: data[name].schema for name in query.streams()}


def deliver(run: Any, data: dict[str, pa.Table], seed: int) -> None:
    """A thread for each stream, in pieces of 1 to 40 rows; now and then a promise behind them."""

    def push(name: str) -> None:
        chance, table, at = random.Random(f"{seed} {name}"), data[name], 0
        while at < table.num_rows:
            piece = table.slice(at, chance.randint(1, 40))
            run.push(name, None, piece)
            at += piece.num_rows
            if chance.random() < 0.1:
                run.heartbeat(name, chance.choice("pq"), piece.column("ts")[-1].as_py())
            if chance.random() < 0.02:
                time.sleep(0.002)
        run.close(name)

    threads = [threading.Thread(target=push, args=(name,)) for name in run.query.streams()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("wait", ["1ms", "1h"])
@pytest.mark.parametrize("query", [JOIN, SUMS, LAST], ids=["join", "aggregate", "as-of"])
def test_results_are_the_same(query: plait.Query, wait: str) -> None:
    for seed in range(3):
        data = {name: table for name, table in tables(3000, seed).items() if name in query.streams()}
        with query.on_threads(schemas=schemas(query, data), linger=wait, workers=2) as run:
            deliver(run, data, seed)
            assert_same(run.table(), query.reference(data))


def test_rows_wait_no_longer_than_said() -> None:
    ones = plait.aggregate(plait.stream("a", unit="us"), size="10us", compute={"n": plait.count()})
    with ones.on_threads(linger="20ms") as run:
        began = time.monotonic()
        run.push("a", None, {"ts": [1, 2, 30]})
        assert run.stats().rows == 0  # it has not entered
        assert len(next(run.results())) == 1  # with no other call
        assert time.monotonic() - began >= 0.02


def test_many_rows_enter_at_once() -> None:
    ones = plait.aggregate(plait.stream("a", unit="us"), size="10us", compute={"n": plait.count()})
    with ones.on_threads(linger="1h") as run:
        for at in range(linger.ENOUGH):
            run.push("a", None, {"ts": [at]})
            assert run.stats().rows == (0 if at < linger.ENOUGH - 1 else linger.ENOUGH)


@pytest.mark.parametrize("call", ["heartbeat", "close", "drain"])
def test_what_is_said_of_a_source_enters_behind_its_rows(call: str) -> None:
    ones = plait.aggregate(plait.stream("a", unit="us"), size="10us", compute={"n": plait.count()})
    with ones.on_threads(linger="1h") as run:
        run.push("a", None, {"ts": [1, 2]})
        {"heartbeat": lambda: run.heartbeat("a", 0, 20), "close": lambda: run.close("a"), "drain": run.drain}[call]()
        assert run.stats().rows == 2
        assert next(run.results()).column("n").to_pylist() == [2]


def test_a_late_row_stops_the_run_with_a_later_call() -> None:
    ones = plait.aggregate(plait.stream("a", unit="us"), size="10us", compute={"n": plait.count()})
    with ones.on_threads(linger="1ms") as run:
        run.push("a", None, {"ts": [9]})
        run.push("a", None, {"ts": [3]})  # taken, and found to be late a moment later
        with pytest.raises(LateError):
            list(run.results())
        with pytest.raises(LateError):
            run.push("a", None, {"ts": [10]})


class Slow:
    """An engine that takes its time, and notes in which order rows came."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.chance = random.Random(4)
        self.error: BaseException | None = None

    def push(self, stream: str, source: Any, batches: list[pa.RecordBatch]) -> None:
        found = [row for batch in batches for row in batch.column(0).to_pylist()]
        time.sleep(self.chance.random() * 0.006)
        self.rows += found

    def fail(self, error: BaseException) -> None:
        self.error = error


def in_turn(turns: bool) -> list[int]:
    """The order in which an engine gets rows that one thread pushes, while the other one enters what has waited."""
    engine: Any = Slow()
    made = linger.Lingering(engine, 500)
    if not turns:
        made._waiting["a", 0] = linger._Waiting()
        made._waiting["a", 0].turn = threading.Semaphore(9)  # type: ignore[assignment]
    for at in range(300):
        made.push("a", None, [pa.record_batch({"n": pa.array([at] * 200)})], alone=True)
        time.sleep(0.0002)
    made.enter_all()
    made.abandon()
    made.stop()
    assert engine.error is None
    return list(engine.rows)


def test_a_source_s_rows_keep_their_order() -> None:
    wanted = [at for at in range(300) for _ in range(200)]
    assert in_turn(True) == wanted
    assert in_turn(False) != wanted  # without turns they would not


def test_a_stream_s_only_source_has_two_names() -> None:
    ones = plait.aggregate(plait.stream("a", unit="us"), size="10us", compute={"n": plait.count()})
    with ones.on_threads(linger="1h") as run:
        for at in range(6):
            run.push("a", (None, 0)[at % 2], {"ts": [at]})
        run.drain()
        assert run.table().column("n").to_pylist() == [6]


def test_two_threads_at_one_source_are_told_so() -> None:
    engine: Any = Slow()
    made = linger.Lingering(engine, 10)
    engine.push = lambda *_: time.sleep(0.3)
    full = [pa.record_batch({"n": pa.array(np.arange(linger.ENOUGH))})]
    first = threading.Thread(target=made.push, args=("a", None, full), kwargs={"alone": True})
    first.start()
    time.sleep(0.1)
    with pytest.raises(RunError, match="One thread at a time"):
        made.push("a", None, full, alone=True)
    first.join()
    made.abandon()
    made.stop()


def test_a_run_that_is_dropped_or_stopped_ends_its_thread() -> None:
    def lingering() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "plait-linger"]

    before = len(lingering())
    run = JOIN.on_threads(schemas=schemas(JOIN, tables(1, 1)), linger="1h")
    run.push("a", None, tables(5, 1)["a"])
    assert len(lingering()) == before + 1
    run.stop()
    assert len(lingering()) == before
    run = JOIN.on_threads(schemas=schemas(JOIN, tables(1, 1)), linger="1h")
    run.push("a", None, tables(5, 1)["a"])
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None
    for _ in range(200):
        if len(lingering()) == before:
            break
        time.sleep(0.01)
    assert len(lingering()) == before


def test_an_interrupt_where_the_thread_starts_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by tests/faults: the run could not be stopped any more, since it waited for a thread that was never started."""
    whole = threading.Thread.start

    def struck(thread: threading.Thread) -> None:
        if thread.name == "plait-linger":
            raise KeyboardInterrupt
        whole(thread)

    query = plait.aggregate(plait.stream("a", unit="us"), size=4, by=[], compute={"n": plait.count()})
    run = query.on_threads(workers=1, plain=True, linger="1ms", schemas={"a": pa.schema([("ts", pa.int64())])})
    monkeypatch.setattr(threading.Thread, "start", struck)
    with pytest.raises(KeyboardInterrupt):
        run.push("a", None, {"ts": [1]})
    monkeypatch.undo()
    run.stop()
    with pytest.raises(plait.RunError):
        run.push("a", None, {"ts": [2]})


def test_an_engine_that_is_stopped_ends_the_thread() -> None:
    engine: Any = Slow()

    def push(*_: Any) -> None:
        raise Stopped

    engine.push = push
    made = linger.Lingering(engine, 10)
    made.push("a", None, [pa.record_batch({"n": [1]})], alone=True)
    assert made._thread is not None
    made._thread.join(timeout=5)
    assert not made._thread.is_alive()
    assert engine.error is None


@pytest.mark.parametrize("value", [0, -1, "soon", True, 1.5])
def test_what_is_refused(value: Any) -> None:
    with pytest.raises(QueryError, match="linger="):
        JOIN.on_threads(schemas=schemas(JOIN, tables(1, 1)), linger=value)
