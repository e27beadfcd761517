"""Results that cells lay into shared memory for the driver: the same results, whichever way they went, and no file is left."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.spark import feeds
from tests.spark.test_orders import some_cells

import plait
import plait.spark
from plait.errors import RunError
from plait.spark import formats
from plait.spark.cell import handed
from plait.spark.cell.handed import Handing, taken
from plait.spark.cell.results import Keyed, Results, read
from plait.spark.keep import recent
from plait.spark.publish import collect

# --- without Spark ----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def room() -> Iterator[None]:
    """However full the disk of the tests is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent, "has_room", lambda *_: True)
        yield


def several(seed: int) -> list[Results | Keyed]:
    """Of a join, of windows of time, and of what has a key a row; with names, NULLs, and slices of longer columns."""
    chance = random.Random(seed)
    n = chance.randrange(1, 30)
    table = pa.table({
        "ts": pa.array(range(n + 3), pa.int64()), "name": pa.array([None, *(f"n{k}" for k in range(n + 2))]),
        "x": pa.array([chance.random() for _ in range(n + 3)]),
    }).slice(2, n)  # fmt: skip
    keys = pa.array([bytes([k]) for k in range(n)], pa.binary())
    return [*some_cells(chance), Keyed(table, ("name",)), Keyed(table, (), keys)]


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32))
def test_what_is_taken_is_what_was_laid(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("laid")
    for results in several(seed):
        rows = Handing(str(folder), 0).rows(results)
        assert [kind for kind, _ in rows] == [formats.HANDED if results.rows else formats.RESULTS] * len(rows)
        if results.rows:
            ((_, body),) = rows
            assert taken(body).table().equals(results.table())
            assert taken(body).columns.equals(read(results.bodies()[0]).columns)


@pytest.mark.parametrize("without", ["folder", "room", "many"])
def test_without_a_folder_or_room_or_many_results_they_go_through_spark(
    without: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone" if without == "folder" else tmp_path
    if without == "room":
        monkeypatch.setattr(recent, "has_room", lambda *_: False)
    (results, *_) = some_cells(random.Random(1))
    rows = Handing(str(folder), 1 << 20 if without == "many" else 0).rows(results)
    assert [(kind, read(body).table()) for kind, body in rows] == [(formats.RESULTS, results.table())]
    assert list(tmp_path.iterdir()) == []


def test_what_is_mapped_outlives_its_file(tmp_path: Path) -> None:
    handing = Handing(str(tmp_path), 0)
    (results, *_) = some_cells(random.Random(2))
    ((_, body),) = handing.rows(results)
    (tmp_path / "of an attempt that failed").touch()
    found = taken(body)
    handing.clear()
    assert list(tmp_path.iterdir()) == []
    assert found.table().equals(results.table())
    with pytest.raises(RunError, match="nothing of this batch was published"):
        taken(body)


def test_a_drivers_folder_goes_with_its_process_and_not_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A query may have been idle for long: its tasks must not find the folder gone, or lose a file in it."""
    monkeypatch.setattr(recent, "MEMORY", tmp_path)
    recent.place(0).parent.mkdir(mode=0o700)
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    ours, dead = (recent.place(process) / f"{recent.HANDED}1" for process in (os.getpid(), done.pid))
    for folder in (ours, dead):
        folder.mkdir(parents=True)
        os.utime(folder, (time.time() - 3600,) * 2)
    recent.sweep()
    assert ours.exists()
    assert not dead.parent.exists()


# --- on Spark ---------------------------------------------------------------------------------------------------

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
QUERIES = {
    "join": plait.join(A, B, on="abs(l.x - r.x) <= 1", within=40, how="left"),
    "aggregate": plait.aggregate(A, size=9, advance=2, by="x", compute={"n": plait.count()}),
    "chain": plait.aggregate(
        plait.join(A, B, on="abs(l.x - r.x) <= 1", within=40).select(x="a_x"),
        size=9,
        by="x",
        compute={"n": plait.count()},
    ),
}


@pytest.mark.parametrize("query", QUERIES)
def test_published_rows_are_the_references(
    query: str, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed, "LEAST", 0)
    monkeypatch.setattr(collect, "PIECE", 7)  # so that a thread makes pieces while others are written
    mapped: list[Any] = []
    monkeypatch.setattr(handed, "taken", lambda body: mapped.append(taken(body)) or mapped[-1])
    data = {}
    for number, stream in enumerate(QUERIES[query].streams()):
        data[stream] = pa.table({
            "ts": pa.array(range(number, 300, 2), pa.int64()), "x": pa.array([k % 7 for k in range(number, 300, 2)]),
        })  # fmt: skip
        (tmp_path / stream).mkdir()
        for k in range(3):
            feeds.write_file(tmp_path / stream / f"p{k}.parquet", data[stream].slice(50 * k, 50), k)
    read_stream = spark.readStream.schema("ts long, x long").option("maxFilesPerTrigger", "1")
    df = QUERIES[query].on_spark({name: read_stream.parquet(str(tmp_path / name)) for name in data})
    assert len(feeds.run(df, tmp_path)) > 0
    assert mapped or not recent.MEMORY.exists()
    feeds.assert_identical(feeds.published(tmp_path / "out"), QUERIES[query].reference(data))
    left = [f for f in recent.place(os.getpid()).rglob("*") if f.is_file()]
    assert left == []
