"""Threads that come and go: joins and aggregates give the bytes of a run that never switched, and changes are logged."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.errors import QueryError
from plait.query.identical import difference
from plait.threads.elastic.manager import balanced, spread

SEED = 20190624


def band(rows: int) -> tuple[Any, dict[str, pa.Table]]:
    dice = np.random.default_rng(SEED)

    def one(columns: str) -> pa.Table:
        return pa.table(
            {"ts": np.cumsum(dice.integers(0, 3, rows)), **{c: dice.integers(0, 100, rows) for c in columns}}
        )

    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(a, b, on=lambda l, r: (abs(l.x - r.u) <= 5) & (abs(l.y - r.v) <= 5), within=300)
    return query, {"a": one("xy"), "b": one("uv")}


def meters(rows: int) -> tuple[Any, dict[str, pa.Table]]:
    dice = np.random.default_rng(SEED)
    data = {"ts": np.cumsum(dice.integers(0, 3, rows)), "k": dice.integers(0, 30, rows), "v": dice.random(rows)}
    compute = {"n": plait.count(), "mean": plait.mean("v"), "first": plait.first("v")}
    query = plait.aggregate(plait.stream("s", unit="us"), size="100us", advance="30us", by="k", compute=compute)
    return query, {"s": pa.table(data)}


def until(true: Callable[[], bool]) -> None:
    """Wait for what has to come; pytest's own limit ends a wait for what does not."""
    while not true():
        time.sleep(0.001)


def kept(how: str) -> Callable[[int], Any]:
    """Left rows by their matches; few enough pairs for some to have none."""

    def made(rows: int) -> tuple[Any, dict[str, pa.Table]]:
        _, data = band(rows)
        a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
        return plait.join(a, b, on=lambda l, r: abs(l.x - r.u) <= 2, within=(10, 40), how=how), data

    made.__name__ = how
    return made


def latest(how: str, direction: str = "backward") -> Callable[[int], Any]:
    def made(rows: int) -> tuple[Any, dict[str, pa.Table]]:
        _, data = band(rows)
        a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
        return plait.asof(a, b, by=[("x", "u")], within=200, how=how, direction=direction), data

    made.__name__ = f"asof_{how}_{direction}"
    return made


def whole(rows: int) -> tuple[Any, dict[str, pa.Table]]:
    """One window for all keys, and so one share."""
    compute = {"n": plait.count(), "mean": plait.mean("v"), "first": plait.first("v")}
    query = plait.aggregate(plait.stream("s", unit="us"), size="100us", advance="30us", compute=compute)
    return query, meters(rows)[1]


def first(rows: int) -> tuple[Any, dict[str, pa.Table]]:
    _, data = meters(rows)
    return plait.dedup(plait.stream("s", unit="us"), by="k", within=20), data


MADE = [
    band,
    meters,
    kept("left"),
    kept("right"),
    kept("full"),
    kept("semi"),
    kept("anti"),
    latest("inner"),
    latest("left"),
    latest("inner", "forward"),
    latest("left", "nearest"),
    whole,
    first,
]


def run_through(
    query: Any, data: dict[str, pa.Table], seed: int, *, switches: int, least: int = 0, **options: Any
) -> Any:
    """Pushed in small pieces, with so many random requests spread over the run; waits until `least` of them are done."""
    dice = random.Random(seed)
    rows = len(next(iter(data.values())))
    with query.on_threads(schemas={n: t.schema for n, t in data.items()}, keys=True, **options) as run:
        failed: list[BaseException] = []

        def push() -> None:
            try:
                at, asked = 0, 0
                while at < rows:
                    size = dice.choice((1, 5, 20))
                    for name, table in data.items():
                        run.push(name, None, table.slice(at, size))
                    at += size
                    while asked < switches * at / rows:
                        asked += 1
                        if dice.random() < 0.6:
                            run.resize(dice.randint(1, options["elastic"]))
                        else:
                            run.rebalance([dice.randrange(options["elastic"]) for _ in run.owners])
                        if dice.random() < 0.9:
                            # In the gate it needs nothing more; before that it may wait for a later tuple.
                            until(lambda: (c := run.stats().changes[-1]).state != "pending" or c.event_time is None)
                run.drain()
            except BaseException as error:
                failed.append(error)
                run.stop()

        thread = threading.Thread(target=push)
        thread.start()
        table = run.table() if not failed else None
        thread.join()
        if failed:
            raise failed[0]
        return table, run.stats()


@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_no_result_is_lost_twice_or_out_of_order_across_switches(made: Any) -> None:
    query, data = made(600)
    expected = query.reference(data, keys=True)
    # Compiled first: else all is pushed, and all requests but the last are superseded, before any thread has run.
    run_through(query, {n: t.slice(0, 20) for n, t in data.items()}, SEED, switches=0, elastic=8)
    got, stats = run_through(query, data, SEED, switches=60, workers=2, elastic=8, batch=64)
    assert difference(expected, got) is None
    assert sum(c.state == "done" for c in stats.changes) >= 5
    kinds = {c.kind for c in stats.changes if c.state == "done"}
    assert kinds <= {"provision", "decommission", "rebalance"}
    assert all(c.reconfiguration_ms > 0 and c.event_time is not None for c in stats.changes if c.state == "done")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_random_switches(seed: int) -> None:
    query, data = band(60_000)
    fixed, _ = run_through(query, data, seed, switches=0, workers=2, strategy="scalejoin")
    done, round_ = 0, 0
    while done < 1000 and round_ < 10:
        got, stats = run_through(query, data, seed + round_, switches=1500, workers=2, elastic=8)
        assert difference(fixed, got) is None
        done += sum(c.state == "done" for c in stats.changes)
        round_ += 1
    assert done >= 1000


FIRST_SWITCH = """
import gc, sys
from numba.core.dispatcher import Dispatcher
from tests.threads.test_elastic import band, meters, until

def compiled():
    found = [d for d in gc.get_objects() if isinstance(d, Dispatcher)]
    return {d.py_func.__qualname__ + str(s) for d in found for s in d.signatures}

for made in (band, meters):
    query, data = made(40)
    with query.on_threads(schemas={n: t.schema for n, t in data.items()}, workers=1, elastic=3) as run:
        for name, table in data.items():
            run.push(name, None, table)
        until(lambda: min(w.tuples for w in run.stats().workers) > 0)
        before = compiled()
        run.resize(3)
        until(lambda: run.stats().changes[0].state == "done")
        print(sorted(compiled() - before))
"""


def test_nothing_is_compiled_in_the_middle_of_the_first_switch() -> None:
    # In a process of its own: here other tests have called everything there is.
    found = subprocess.run([sys.executable, "-c", FIRST_SWITCH], capture_output=True, text=True, check=False)
    assert found.stdout.split("\n") == ["[]", "[]", ""], found.stdout + found.stderr


def test_of_requests_that_wait_the_last_is_carried_out() -> None:
    query, data = band(300)
    with query.on_threads(schemas={n: t.schema for n, t in data.items()}, workers=1, elastic=4, keys=True) as run:
        for name in data:
            run.push(name, None, data[name].slice(0, 100))
        threads = [run.resize(n, f"to {n}") for n in (2, 3, 4)]
        until(lambda: run.stats().changes[0].state == "done")
        for name in data:
            run.push(name, None, data[name].slice(100, 100))
        until(lambda: run.stats().changes[-1].state == "done")
        for name in data:
            run.push(name, None, data[name].slice(200, 100))
        run.drain()
        got = run.table()
        changes = run.stats().changes
    assert [c.reason for c in changes] == ["to 2", "to 3", "to 4"]
    assert [c.number for c in threads] == [0, 1, 2]
    assert changes[-1].state == "done"
    assert {c.state for c in changes[:-1]} <= {"done", "superseded"}
    assert difference(query.reference(data, keys=True), got) is None


def test_what_can_not_be_elastic_says_so() -> None:
    query, _ = band(10)
    with pytest.raises(QueryError, match="elastic=4 with strategy='dpjoin'"):
        query.on_threads(elastic=4, strategy="dpjoin")
    left = plait.join(*query.inputs, on=lambda l, r: l.x == r.u, within=10, how="left")
    with pytest.raises(QueryError, match=r"elastic=4 with strategy='scalejoin'.*a left join has dpjoin's shares"):
        left.on_threads(elastic=4, strategy="scalejoin")
    one, _ = whole(10)
    with pytest.raises(QueryError, match="without by="):
        one.on_threads(elastic=4, strategy="tuml_mc")


def test_maps_move_as_few_shares_as_will_do() -> None:
    one = spread([0] * 8, 1)
    two = spread(one, 2)
    assert one == [0] * 8
    assert sorted(two) == [0] * 4 + [1] * 4
    three = spread(two, 3)
    assert sorted(map(three.count, range(3))) == [2, 3, 3]
    assert sum(a != b for a, b in zip(two, three, strict=True)) == 2
    assert spread(three, 3) == three
    assert set(spread(three, 1)) == {0}
    assert balanced([5.0, 1.0, 1.0, 3.0], (0, 1)) in ([0, 1, 1, 1], [0, 0, 1, 1])
