"""Sources pushed side by side, by threads of their own: no lock is common to all pushes, and columns are rewritten in between."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.examples import examples

import plait
from plait.query.identical import difference
from plait.threads.input import push
from plait.threads.life.pause import Pauser

NAMES = ("a", "b")
SOURCES = ("p", "q", "r")


def streams() -> list[plait.Stream]:
    return [plait.stream(name, unit="us", source="src", sources=list(SOURCES)) for name in NAMES]


def rows(dice: np.random.Generator, source: str, n: int) -> pa.Table:
    """Numbers that at some row begin to need more room, the first NULL at another one, and text that comes and goes."""
    wide, null = dice.integers(0, n, 2)
    at = np.arange(n)
    x = dice.integers(0, 9, n) + np.where((at > wide) & (dice.random(n) < 0.3), 1 << int(dice.integers(7, 62)), 0)
    return pa.table({
        "ts": np.sort(dice.integers(0, 4 * n, n)), "src": [source] * n,
        "x": pa.array(x, mask=(at > null) & (dice.random(n) < 0.1)),
        "t": [f"{source}{k // 40}" if dice.random() < 0.1 else f"t{k // 50}" for k in range(n)],
    })  # fmt: skip


@pytest.mark.parametrize("on", ["abs(l.x - r.x) <= 1", "l.t = r.t", "l.x = r.x and l.t <> r.t"])
@pytest.mark.sampled
def test_any_number_of_threads_may_push(on: str) -> None:
    query = plait.join(*streams(), on=on, within="30us")
    for seed in range(examples(2)):
        dice = np.random.default_rng(seed)
        data = {(name, source): rows(dice, source, 80) for name in NAMES for source in SOURCES}
        whole = {name: pa.concat_tables([data[name, source] for source in SOURCES]) for name in NAMES}
        expected = query.reference(whole, keys=True)
        with query.on_threads(workers=2, plain=True, keys=True, capacity=1024) as run:
            begin = threading.Barrier(len(data))

            def feed(name: str, source: str, table: pa.Table, size: int, run: Any = run, begin: Any = begin) -> None:
                begin.wait()
                for batch in table.to_batches(max_chunksize=size):
                    run.push(name, None, batch)
                run.close(name, source)

            threads = [
                threading.Thread(target=feed, args=(*who, table, int(dice.integers(1, 40))))
                for who, table in data.items()
            ]
            for thread in threads:
                thread.start()
            got = run.table()
            for thread in threads:
                thread.join()
            assert run.stats().rows == 6 * 80
        assert difference(expected, got) is None, seed


def pushed(run: Any, name: str, source: str, x: list[int | None]) -> threading.Thread:
    table = pa.table({"ts": range(1, len(x) + 1), "src": [source] * len(x), "x": pa.array(x, pa.int64())})
    thread = threading.Thread(target=lambda: run.push(name, None, table))
    thread.start()
    return thread


@pytest.fixture
def run() -> Any:
    schemas = dict.fromkeys(NAMES, pa.schema([("ts", pa.int64()), ("src", pa.string()), ("x", pa.int64())]))
    query = plait.join(*streams(), on="l.x = r.x", within="30us")
    with query.on_threads(workers=1, plain=True, schemas=schemas) as made:
        pushed(made, "a", "p", [1]).join()  # the first rows of all rewrite columns in any case
        yield made


def test_columns_are_not_rewritten_while_a_source_writes_its_own(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go, in_there, original = threading.Event(), threading.Event(), push._lay_down

    def slow(*arguments: Any) -> None:
        if arguments[1] == 0 and not in_there.is_set():
            in_there.set()
            assert go.wait(60)
        original(*arguments)

    monkeypatch.setattr(push, "_lay_down", slow)
    before = run._engine.windows.encoder.signature
    one = pushed(run, "b", "p", [2, 3])
    assert in_there.wait(60)
    other = pushed(run, "b", "q", [None])
    other.join(0.2)
    assert other.is_alive()
    assert run._engine.windows.encoder.signature == before
    go.set()
    one.join()
    other.join()
    assert run._engine.windows.encoder.signature != before


def test_a_source_is_not_written_while_columns_are_rewritten(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go, in_there, laid = threading.Event(), threading.Event(), []
    pusher, lay_down = run._engine.pusher, push._lay_down
    widen = pusher._widen

    def slow() -> None:
        in_there.set()
        assert go.wait(60)
        widen()

    monkeypatch.setattr(pusher, "_widen", slow)
    monkeypatch.setattr(push, "_lay_down", lambda *arguments: laid.append(go.is_set()) or lay_down(*arguments))
    wide = pushed(run, "b", "q", [None])
    assert in_there.wait(60)
    others = [pushed(run, "b", "p", [1]), pushed(run, "a", "q", [1])]
    time.sleep(0.1)
    assert not laid
    go.set()
    for thread in (wide, *others):
        thread.join()
    assert laid == [True] * 3


def test_who_waits_to_rewrite_columns_hears_that_the_run_has_stopped(run: Any) -> None:
    """As an interrupt would leave it: a flag is up, and nobody will take it down."""
    run._engine.intakes["b"].inlets["p"].laying = True
    told: list[BaseException] = []

    def feed() -> None:
        try:
            run.push("b", None, pa.table({"ts": [1], "src": ["q"], "x": pa.array([None], pa.int64())}))
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=feed)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    run.stop()
    thread.join(60)
    assert len(told) == 1


@pytest.mark.parametrize(("options", "pauses"), [({"strategy": "scalejoin"}, False), ({"strategy": "splitjoin"}, False),
                                                 ({"strategy": "dpjoin", "layout": (2, 1)}, True)])  # fmt: skip
def test_a_window_of_one_worker_grows_while_the_others_work(
    options: dict[str, Any], pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood, still = [], Pauser.still

    def counted(self: Pauser, *, worker: bool = False) -> Any:
        stood.append(worker)
        return still(self, worker=worker)

    monkeypatch.setattr(Pauser, "still", counted)
    left, right = (plait.stream(name, unit="us") for name in NAMES)
    query = plait.join(left, right, on="l.x = r.x", within="1s")
    n = 20_000
    data = {name: pa.table({"ts": np.arange(n), "x": np.arange(n) + k}) for k, name in enumerate(NAMES)}
    with query.on_threads(**{"workers": 2, "keys": True} | options) as run:
        for at in range(0, n, 2000):
            for name, table in data.items():
                run.push(name, None, table.slice(at, 2000))
        run.drain()
        got = run.table()
        assert all(segment.block[0] > 4096 for side in run._engine.windows.segments for segment in side)
    assert any(stood) is pauses
    assert got.num_rows == n - 1
