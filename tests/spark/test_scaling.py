"""A policy over micro-batches: the thresholds of threads, and on a standalone cluster executors that really come and go."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds, scaled
from tests.spark.test_faults import CLUSTER, cluster

import plait.spark
from plait.core.policy import PATIENCE, Calls, Thresholds
from plait.errors import QueryError
from plait.spark.publish.scaling import LOOKS, Scaled, Scaling


class Machines:
    """Executors that are there as soon as they are asked for."""

    def __init__(self, number: int, *, changeable: bool = True) -> None:
        self.number, self.changeable = number, changeable

    def count(self) -> int:
        return self.number

    def change(self, wanted: int) -> None:
        self.number = wanted


class Query:
    """Micro-batches that take so long, one every second or as soon as the last has ended; `behind` rows wait in its source."""

    def __init__(self, watched: Scaling, name: str = "q") -> None:
        self.watched, self.name, self.now = watched, name, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def batches(self, count: int, seconds: float, *, rows: int = 100, behind: Any = None) -> None:
        for k in range(count):
            source = SimpleNamespace(metrics=None, endOffset="{}")
            if behind is not None:
                mean = str(behind[k] / 2)
                source = SimpleNamespace(metrics={"avgOffsetsBehindLatest": mean}, endOffset='{"t": {"0": 9, "1": 7}}')
            told = SimpleNamespace(
                id=self.name, timestamp=self.now.isoformat().replace("+00:00", "Z"), numInputRows=rows, sources=[source],
                durationMs={"triggerExecution": round(1000 * seconds)},
            )  # fmt: skip
            self.watched.onQueryProgress(SimpleNamespace(progress=told))
            self.now += dt.timedelta(seconds=max(1.0, seconds))


def watched(number: int, **options: Any) -> tuple[Scaling, Machines]:
    machines = Machines(number, **options)
    return Scaling(machines, Calls(Thresholds()), 10, None), machines


#: Looks until the first change: one batch to have a load at all, PATIENCE of rest, PATIENCE that call.
FIRST = 1 + 2 * PATIENCE


@pytest.mark.parametrize(
    ("executors", "seconds", "wanted", "reason"),
    [
        (4, 0.95, 6, "load 95% above 90%"),
        (4, 3.0, 6, "load 100% above 90%"),  # batch after batch: it can't keep up
        (9, 0.30, 3, "load 30% below 45%"),
        (5, 0.30, 2, "load 30% below 45%"),
        (1, 0.10, None, ""),
        (4, 0.60, None, ""),
        (10, 1.0, None, ""),  # there are no more
    ],
)
def test_the_thresholds_are_those_of_threads(executors: int, seconds: float, wanted: int | None, reason: str) -> None:
    scaled, machines = watched(executors)
    Query(scaled).batches(FIRST, seconds)
    assert scaled.changes == ([] if wanted is None else [Scaled(executors, wanted, reason, made=True)])
    assert machines.number == (wanted or executors)


def test_a_change_takes_looks_in_a_row_and_is_proposed_where_it_can_not_be_made() -> None:
    scaled, machines = watched(2, changeable=False)
    query = Query(scaled)
    query.batches(FIRST - 2, 0.95)
    query.batches(2, 0.6)  # the first of these tells of the last one at 95 percent, the second is calm
    query.batches(PATIENCE, 0.95)
    assert scaled.changes == []
    query.batches(1, 0.95)
    assert scaled.changes == [Scaled(2, 3, "load 95% above 90%", made=False)]
    assert machines.number == 2


def test_nothing_more_is_asked_for_while_executors_start_and_none_that_never_come_are_waited_for_long() -> None:
    scaled, machines = watched(2)
    machines.change = lambda wanted: None  # type: ignore[method-assign]  # nobody has room
    query = Query(scaled)
    query.batches(FIRST + LOOKS + 2 * PATIENCE - 1, 0.95)
    assert [change.wanted for change in scaled.changes] == [3]
    query.batches(1, 0.95)
    assert [change.wanted for change in scaled.changes] == [3, 3]


def test_rows_that_pile_up_are_load_above_all_there_is() -> None:
    """100 rows are done a batch, and 150 come: 150 percent of 2 executors is the work of 4.3 at 70 percent."""
    scaled, _ = watched(2)
    Query(scaled).batches(FIRST, 1.0, behind=range(0, 50 * FIRST, 50))
    assert scaled.changes == [Scaled(2, 5, "load 150% above 90%", made=True)]


def test_queries_of_a_session_share_its_executors() -> None:
    scaled, _ = watched(2)
    one, other = Query(scaled, "one"), Query(scaled, "other")
    for _ in range(1 + PATIENCE):  # two looks each, after the first
        one.batches(1, 0.5)
        other.batches(1, 0.5)
    assert [change.wanted for change in scaled.changes] == [3]


def test_a_query_that_is_idle_lets_executors_go() -> None:
    scaled, machines = watched(4)
    query = Query(scaled)
    query.batches(2, 0.6)
    for _ in range(FIRST):
        scaled.onQueryIdle(SimpleNamespace(id="q"))
    assert machines.number == 1
    scaled.onQueryTerminated(SimpleNamespace(id="q"))
    scaled.onQueryIdle(SimpleNamespace(id="q"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"most": 0}, "most=0 is no number of executors"),
        ({"most": 2, "policy": None}, "policy=None is no policy"),
        ({"most": 2, "policy": (1, 2)}, "is no policy"),
        ({"most": 2, "policy": (40, 70, 90)}, "upper"),
    ],
)
def test_what_is_refused(options: Any, words: str) -> None:
    with pytest.raises(QueryError, match=words), plait.spark.scaling(None, **options):
        pass


# --- a standalone cluster ---------------------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_executors_come_with_load_and_go_when_there_is_none(spark: Any, tmp_path: Path) -> None:
    """Two workers, and one executor to begin with. Files lie there to be caught up with: a second one is asked for, and comes.
    When all are done, and nothing happens any more, one goes. What is published is what a run in one process publishes."""
    chance = random.Random(3)
    for name in "ab":
        times = sorted(chance.randrange(400) for _ in range(400))
        rows = pa.table(
            {"ts": pa.array(times, pa.int64()), "x": pa.array([chance.randrange(9) for _ in times], pa.int32())}
        )
        feeds.write_files(tmp_path / name, rows, range(32, 400, 32))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    df = scaled.frames(spark, tmp_path)
    plait.spark.write_ordered(
        df, tmp_path / "alone", checkpoint=tmp_path / "alone.checkpoint", drain=True
    ).awaitTermination()
    with cluster(tmp_path, "127.0.0.1", "127.0.0.2") as made:
        command = [sys.executable, scaled.__file__, str(tmp_path), made.address, *CLUSTER]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(tmp_path / "local")}
        child = subprocess.Popen(command, start_new_session=True, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, env=environment)  # fmt: skip
        try:
            output, _ = child.communicate(timeout=800)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, output[-3000:]
    told = json.loads(output.splitlines()[-1])
    assert told["counts"] == [1, 2, 1]
    assert [change[:2] for change in told["changes"]] == [[1, 2], [2, 1]]
    assert "above 90%" in told["changes"][0][2]
    assert "below 45%" in told["changes"][1][2]
    assert feeds.parts(tmp_path / "out") == feeds.parts(tmp_path / "alone")
