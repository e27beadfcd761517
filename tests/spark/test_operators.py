"""Users' operators on Spark: byte for byte the reference's, through restarts, with states that are objects of this module."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected, write_files

import plait
from plait.spark import formats
from plait.spark.cell.pickled import Pickled

pytestmark = pytest.mark.spark

A = plait.stream("a", unit="us", source="src", sources=[0, 1], seq="n", disorder=2)
B = plait.stream("b", unit="us", seq="n")


class Run:
    """A state of a class of one's own: tuples seen, the last ones kept as they came."""

    def __init__(self) -> None:
        self.seen = 0
        self.last: list[Any] = []


def route(t: Any) -> Any:
    return plait.ALL if t.x == 0 else None if t.x == 1 else [t.x % 5, 2] if t.x < 4 else t.x % 5


def process(run: Run, t: Any) -> Any:
    run.seen += 1
    run.last = [*run.last, t][-3:]
    if run.seen == 1:
        yield plait.timer(t.ts + 4)
    yield {"n": run.seen, "who": t.stream, "xs": [old.x for old in run.last]}


def ring(run: Run, at: int) -> Any:
    """Periodic, and so never ends by itself."""
    yield {"n": -run.seen, "who": None, "xs": [at]}
    yield plait.timer(at + 7)


SCHEMA = "ts long, n long, src long, x long"
OUTPUT = {"n": "int64", "who": "string", "xs": pa.list_(pa.int64())}


def counted(streams: Any, **changed: Any) -> Any:
    given = {"buckets": 5, "route": route, "state": Run, "process": process, "on_timer": ring, "output": OUTPUT}
    return plait.operator(streams, **(given | changed))


def rows(chance: random.Random, count: int) -> pa.Table:
    times = sorted(chance.randrange(count) for _ in range(count))
    return pa.table({
        "ts": pa.array(times, pa.int64()),
        "n": pa.array(range(count), pa.int64()),
        "src": pa.array([0, 1, *(chance.randrange(2) for _ in range(count - 2))], pa.int64()),
        "x": pa.array([chance.randrange(9) for _ in range(count)], pa.int64()),
    })  # fmt: skip


def rows_of(count: int) -> dict[str, pa.Table]:
    chance = random.Random(20_261_115)
    return {name: rows(chance, count) for name in "ab"}


def write_rows(folder: Path, *, count: int = 90) -> dict[str, pa.Table]:
    data = rows_of(count)
    for name, table in data.items():
        write_files(folder / name, table, [count // 3, count * 2 // 3])
    return data


def frames(spark: Any, folder: Path, *, streaming: bool, names: str = "ab") -> dict[str, Any]:
    return {n: feeds.frame(spark, folder / n, SCHEMA, streaming=streaming, files=1) for n in names}


@pytest.mark.again
def test_an_operator_with_timers_in_batches_and_as_one(spark: Any, tmp_path: Path) -> None:
    """Three cells with five buckets; tuples go to all, some, one or none. A function that raises is mended, and goes on."""
    data, query = write_rows(tmp_path), counted([A, B])
    expected = query.reference(data, keys=True)
    assert expected.num_rows > 300

    def breaks(run: Run, t: Any) -> Any:
        if t.stream == "a" and t.ts > 50:
            raise ValueError("no such thing")
        yield from process(run, t)

    broken = counted([A, B], process=breaks).on_spark(frames(spark, tmp_path, streaming=True), layout=(3, 1))
    with pytest.raises(
        Exception, match=r"process of bucket ., called with stream 'a', source .*, seq .*, ts 5[1-9]"
    ) as e:
        feeds.run(broken, tmp_path, drain=False, keep_key=True)
    assert "ValueError: no such thing" in str(e.value)
    unsaid = query.on_spark(frames(spark, tmp_path, streaming=True), layout=(3, 1))
    with pytest.raises(plait.RunError, match=r"written with other functions.*functions='changed'"):
        feeds.run(unsaid, tmp_path, keep_key=True)
    df = query.on_spark(frames(spark, tmp_path, streaming=True), layout=(3, 1), functions="changed")
    got = feeds.run(df, tmp_path, keep_key=True)
    assert got.column(formats.KEY).to_pylist() == expected.column(formats.KEY).to_pylist()
    assert_identical(got, expected.drop_columns([formats.KEY]))
    whole = collected(query.on_spark(frames(spark, tmp_path, streaming=False)))
    assert whole.column(formats.KEY).to_pylist() == expected.column(formats.KEY).to_pylist()
    assert_identical(whole, expected.drop_columns([formats.KEY]))


def test_a_state_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(plait.RunError, match=r"The state of bucket 3 can't be pickled.*lock.*Keep data in it"):
        Pickled(counted([A])).body(3, threading.Lock(), [])


def test_classes_of_a_script_are_found_again_by_name() -> None:
    """As after a restart: the script has run again, and its classes are others than those of the states."""

    def script() -> Any:
        space: dict[str, Any] = {"__name__": "__main__"}
        exec("class Mine:\n    n = 0\ndef process(state, t):\n    return Mine()", space)
        return space

    one, other = script(), script()
    state = one["Mine"]()
    state.n = 7
    data = Pickled(counted([A], process=one["process"])).body(0, [state], [9, 5, 9])
    bucket, (again,), timers = Pickled(counted([A], process=other["process"])).bucket(data)
    assert (bucket, timers) == (0, [5, 9])
    assert (type(again), again.n) == (other["Mine"], 7)


def test_operators_joins_and_aggregates_chained(spark: Any, tmp_path: Path) -> None:
    """An operator over a join, an aggregate over it; timers of one that reads only `a` ring with the time of `b`."""
    data = write_rows(tmp_path, count=40)
    near = plait.join(A, B, on="l.x = r.x", within=3, name="near")
    over = counted([near], route=lambda t: t.a_x % 5, process=lambda run, t: [(t.a_x, t.stream, []), plait.timer(t.ts + 9)],
                   on_timer=lambda run, at: [(at, None, [])])  # fmt: skip
    top = plait.aggregate(over, size=10, by="who", compute={"n": plait.count(), "of": plait.sum("n")})
    assert_identical(collected(top.on_spark(frames(spark, tmp_path, streaming=False))), top.reference(data))
    ticks = plait.join(counted([A], name="ticks"), B, on="l.n > r.x", within=5)
    got = feeds.run(ticks.on_spark(frames(spark, tmp_path, streaming=True)), tmp_path)
    assert_identical(got, ticks.reference(data))
