"""WiML with a pool of threads that update: the same rows as without, what it refuses, and what it says when too much waits."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.errors import DataError, PendingError, PlaitError, QueryError
from plait.query.identical import difference
from plait.threads.aggregate import wiml
from plait.threads.aggregate.hive import memory, pool, tallies

SOURCES, ROWS = 5, 900


def data(seed: int, *, nulls: bool = True) -> pa.RecordBatch:
    dice = np.random.default_rng(seed)
    return pa.record_batch({
        "ts": np.cumsum(dice.integers(0, 3, ROWS)),
        "k": dice.integers(-9, 200, ROWS),
        "v": pa.array(dice.normal(size=ROWS) * 2.0 ** dice.integers(-30, 30, ROWS), mask=dice.random(ROWS) < 0.002 * nulls),
    })  # fmt: skip


def query(sources: int | None = SOURCES, **said: object) -> plait.Aggregate:
    stream = plait.stream("a", unit="us", sources=sources, **said)
    compute = {"n": plait.count(), "mean": plait.mean("v"), "first": plait.first("v"), "most": plait.max("v")}
    return plait.aggregate(stream, size="300us", advance="70us", by="k", compute=compute)


def pushed(run: object, sources: list[pa.RecordBatch], own: range, seed: int) -> None:
    """Pieces of any size, sources in any order, now and then a heartbeat or an end."""
    dice, at = np.random.default_rng(seed), dict.fromkeys(own, 0)
    while at:
        k = int(dice.choice(list(at)))
        n = int(dice.integers(1, 90))
        run.push("a", k, sources[k].slice(at[k], n))
        at[k] += n
        if at[k] >= ROWS:
            run.close("a", k)
            del at[k]
        elif dice.random() < 0.1:
            run.heartbeat("a", k, int(sources[k]["ts"][at[k] - 1].as_py()))


@pytest.mark.parametrize(("strategy", "workers", "crew"), [("wiml", 2, 1), ("wiml", 3, 2), ("wiml_shared", 7, 1)])
def test_rows_are_those_of_the_reference(
    strategy: str, workers: int, crew: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little memory, so that threads of the pool come back to Python; some batches have NULL, which are long ones."""
    for name, least in (("FIRST_TALLIES", 64), ("FIRST_TABLE", 16), ("FIRST_PANES", 2)):
        monkeypatch.setattr(tallies, name, least)
    monkeypatch.setattr(memory.Hive.__init__, "__kwdefaults__", {"nodes": 2, "words": 64})
    handed: list[int] = []
    hand_on = pool.Pool.hand_on
    monkeypatch.setattr(pool.Pool, "hand_on", lambda self, batch: (handed.append(batch.rows), hand_on(self, batch))[1])
    sources = [data(seed) for seed in range(SOURCES)]
    wanted = query().reference({"a": {k: pa.table(source) for k, source in enumerate(sources)}})
    with query().on_threads(strategy=strategy, workers=workers, schemas={"a": sources[0].schema}, pending=9_999) as run:
        threads = [
            threading.Thread(target=pushed, args=(run, sources, range(seat, SOURCES, crew), seat))
            for seat in range(crew)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.drain()
        assert difference(wanted, run.table()) is None
        assert run.stats().rows == SOURCES * ROWS
        assert len(run.stats().threads_cpu_s) == workers + 1 + wiml.helpers()
    assert sum(handed) > SOURCES * ROWS // 2


def test_rows_of_another_source_may_be_on_their_way() -> None:
    """Sources are pushed in turn, each with nearly as many tallies as may wait: none is refused because another's are late."""
    sources = [data(seed, nulls=False) for seed in range(SOURCES)]
    wanted = query().reference({"a": {k: pa.table(source) for k, source in enumerate(sources)}})
    for _ in range(3):
        with query().on_threads(strategy="wiml", workers=3, schemas={"a": sources[0].schema}, pending=120) as run:
            for first in range(0, ROWS, 60):
                for k, source in enumerate(sources):
                    run.push("a", k, source.slice(first, 60))
            run.drain()
            assert difference(wanted, run.table()) is None


def test_what_waits_too_long_stops_the_run() -> None:
    """Source 1 says nothing. The call that brings too much may be done by then: a later one says so."""
    source = data(0, nulls=False)
    with query().on_threads(strategy="wiml", workers=2, schemas={"a": source.schema}, pending=20) as run:
        with pytest.raises(PendingError, match="source 1"):
            pushed(run, [source], range(1), 0)
        with pytest.raises(PlaitError):
            run.push("a", 1, source)


def test_a_late_row_is_refused_by_the_push_that_brings_it() -> None:
    source = data(0, nulls=False)
    with query(late="error").on_threads(strategy="wiml", workers=2, schemas={"a": source.schema}) as run:
        run.push("a", 0, source.slice(500))
        with pytest.raises(DataError, match="is late"):
            run.push("a", 0, source.slice(0, 10))


@pytest.mark.parametrize(
    ("made", "options", "match"),
    [
        (query(None), {}, "may be behind"),
        (query(idle_after="1s"), {}, "may be behind"),
        (query(), {"elastic": 2}, "TuML-MC"),
    ],
)
def test_what_a_pool_can_not_do_is_refused(made: plait.Aggregate, options: dict[str, int], match: str) -> None:
    with pytest.raises(QueryError, match=match):
        made.on_threads(strategy="wiml", workers=2, **options)


def test_explain_tells_of_the_pool() -> None:
    with query().on_threads(strategy="wiml", workers=3, schemas={"a": data(0).schema}) as run:
        told = run.explain()
    assert "wiml, 3 workers: as asked for; 3 threads update windows for all that push" in told
    assert "by 3 threads, a source by one of them" in told
