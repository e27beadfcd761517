"""Kills, retries and replays: what is published in the end is, byte for byte, what an undisturbed run publishes.

Runs that are to be killed have a process of their own (`pipeline.py`); what they leave behind is taken up by the suite's
session, from the checkpoint. A batch has one file of each stream: 0, 1 and 2 bring rows, 3 the drain.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark import feeds, pipeline

import plait.spark
from plait.spark import run as spark_run

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("faults")]

Published = dict[str, bytes]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    feeds.write_pair(folder, 11)
    return folder


def published(folder: Path) -> Published:
    return feeds.parts(folder / "out")


def undisturbed_run(spark: Any, data: Path, folder: Path, query: str) -> Published:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    # Heartbeats that say nothing new, so that batch 0 has events too.
    heartbeats(folder, query)
    pipeline.run(spark, data, folder, query)
    tables = {n: feeds.pq.read_table(data / n) for n in pipeline.QUERIES[query].streams()}
    feeds.assert_identical(feeds.published(folder / "out"), pipeline.QUERIES[query].reference(tables))
    assert list(published(folder)) == [f"part-{batch:012d}.parquet" for batch in range(4)]
    return published(folder)


@pytest.fixture(scope="module")
def undisturbed(spark: Any, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    return undisturbed_run(spark, data, tmp_path_factory.mktemp("undisturbed"), "join")


def heartbeats(folder: Path, query: str = "join") -> None:
    for name in pipeline.QUERIES[query].streams():
        plait.spark.heartbeat(folder / "checkpoint" / "control", name, ts=0)


def start(data: Path, folder: Path, master: str, *faults: str,
          query: str = "join") -> subprocess.CompletedProcess[str]:  # fmt: skip
    """The pipeline in a process group of its own, so that a kill of the driver reaches its JVM and nothing else."""
    command = [sys.executable, pipeline.__file__, str(data), str(folder), master, query, *faults]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": str(folder / "local")}
    child = subprocess.Popen(command, start_new_session=True, text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env=environment)  # fmt: skip
    try:
        output, _ = child.communicate(timeout=280)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    return subprocess.CompletedProcess(command, child.returncode, output, None)


#: Of two executor processes; a task has four attempts there. Without the 4 it would have one only on the other.
EXECUTORS, ONE_PROCESS = "local-cluster[2,1,1024]", "local[2,4]"


def killed(
    data: Path, undisturbed: Published, folder: Path, fault: str, *survived: str, master: str = ONE_PROCESS, query: str = "join"
) -> None:  # fmt: skip
    """Start it, and see the driver go by a fault, with what was published and committed by then."""
    ended = start(data, folder, master, fault, *survived, query=query)
    assert ended.returncode == -signal.SIGKILL, ended.stdout[-3000:]
    assert all((folder / "marks" / each).exists() for each in (fault, *survived))
    batch = int(fault[-1])
    assert list(published(folder)) == list(undisturbed)[: batch + fault.startswith("publish")]
    committed = [p.name for p in (folder / "checkpoint" / "commits").iterdir() if p.name.isdigit()]
    assert sorted(committed) == [str(n) for n in range(batch)]


def go_on(spark: Any, data: Path, undisturbed: Published, folder: Path, query: str = "join") -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    pipeline.run(spark, data, folder, query)
    assert published(folder) == undisturbed


def test_everything_is_killed_once(spark: Any, data: Path, undisturbed: Published, tmp_path: Path) -> None:
    """First a task's Python worker; then one of two executor processes, and with it rows it had packed, so that that part of
    the stage runs again; then the driver, after publishing. In the next start a task raises when it has run its cell, and the
    driver is killed after the commit of state, before publishing, with the drain in the batch. The suite's session does the rest.
    """
    heartbeats(tmp_path)
    killed(data, undisturbed, tmp_path, "publish@2", "worker@0", "executor@1", master=EXECUTORS)
    counted = [runs(tmp_path, batch) for batch in range(4)]
    assert counted[0] == 2, counted
    assert counted[1] > 1, counted
    assert counted[2:] == [1, 0], counted
    killed(data, undisturbed, tmp_path, "state@3", "raise@3")
    assert runs(tmp_path, 3) == 2
    go_on(spark, data, undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults", [("publish@2", "state@3"), ("cell@1", "publish@1", "cell@2", "state@2")], ids=" ".join
)
def test_the_driver_is_killed(
    spark: Any, data: Path, undisturbed: Published, tmp_path: Path, faults: tuple[str, ...]
) -> None:
    """In a task, before state is committed; after that, before publishing, also with the drain in the batch; after publishing.

    Each start takes up what the one before has left, and the suite's own session what the last has left.
    """
    heartbeats(tmp_path)
    for fault in faults:
        killed(data, undisturbed, tmp_path, fault)
    go_on(spark, data, undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_driver_is_killed_at_any_moment(
    spark: Any, data: Path, undisturbed: Published, tmp_path: Path, seed: int
) -> None:
    """Somewhere between a plan, a part and a commit, and soon after one. Others that want the folder meanwhile are refused."""
    chance, out = random.Random(seed), tmp_path / "out"
    heartbeats(tmp_path)

    def steps() -> int:
        """How far it is: batches planned, published, committed."""
        places = (tmp_path / "checkpoint" / "offsets", tmp_path / "checkpoint" / "commits", out)
        return sum(1 for place in places if place.exists() for path in place.iterdir() if path.name[0] != ".")

    command = [sys.executable, pipeline.__file__, str(data), str(tmp_path), "local[2,4]", "join"]
    for _ in range(4):
        goal = steps() + chance.randrange(1, 4)
        child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None and steps() < goal:
            time.sleep(0.001)
        time.sleep(chance.random() / 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        assert {
            name: rows for name, rows in published(tmp_path).items() if name[0] != "."
        }.items() <= undisturbed.items()
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        if list(out.glob("part-*")):
            with pytest.raises(plait.RunError, match="holds other rows"):
                plait.spark.write_ordered(pipeline.frames(spark, data, "join"), out, checkpoint=tmp_path / "rival")
    pipeline.run(spark, data, tmp_path)
    assert published(tmp_path) == undisturbed


OTHERS = ["union", "dedup", "sessions", "forward", "nearest", "right", "full", "chain"]


@pytest.mark.again
@pytest.mark.parametrize("query", ["panes", *(pytest.param(query, marks=pytest.mark.slow) for query in OTHERS)])
def test_a_worker_is_killed(
    spark: Any, data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:  # fmt: skip
    """In the suite's own session, where a task has one attempt: the query stops, and is started again. Then a task raises."""
    from pyspark import cloudpickle

    whole = undisturbed_run(spark, data, tmp_path_factory.mktemp("undisturbed"), query)
    cloudpickle.register_pickle_by_value(pipeline)  # workers do not find the tests
    marks, faults, processor = tmp_path / "marks", ["worker@1", "raise@2"], spark_run.processor
    marks.mkdir()
    monkeypatch.setattr(spark_run, "processor", lambda plan: pipeline.Faulty(processor(plan), faults, str(marks)))
    heartbeats(tmp_path, query)
    for fault in faults:
        with pytest.raises(StreamingQueryException):
            pipeline.run(spark, data, tmp_path, query)
        assert (marks / fault).exists()
        assert list(published(tmp_path)) == list(whole)[: int(fault[-1])]
    pipeline.run(spark, data, tmp_path, query)
    if query != "chain":  # several operators run in a batch, each in its own cells
        assert [runs(tmp_path, batch) for batch in range(4)] == [1, 2, 2, 1]
    assert published(tmp_path) == whole


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("query", ["panes", "tuples", "counted", *OTHERS])
def test_the_driver_of_another_query_is_killed(
    spark: Any, data: Path, tmp_path_factory: pytest.TempPathFactory, query: str
) -> None:
    """As joins' is above; and a worker and a task besides, which the run survives."""
    whole = undisturbed_run(spark, data, tmp_path_factory.mktemp("undisturbed"), query)
    folder = tmp_path_factory.mktemp("killed")
    heartbeats(folder, query)
    killed(data, whole, folder, "cell@1", "worker@0", query=query)
    killed(data, whole, folder, "publish@1", query=query)
    killed(data, whole, folder, "state@3", "raise@2", query=query)
    go_on(spark, data, whole, folder, query)


@pytest.mark.slow
def test_tasks_fail_and_an_executor_is_lost(data: Path, undisturbed: Published, tmp_path: Path) -> None:
    """As above, and the driver lives.

    A speculative twin is not started here: Spark wants another host for it, and these executors share one. A cluster
    of two is below.
    """
    heartbeats(tmp_path)
    ended = start(data, tmp_path, EXECUTORS, "worker@0", "executor@1", "raise@3")
    assert ended.returncode == 0, ended.stdout[-3000:]
    counted = [runs(tmp_path, batch) for batch in range(4)]
    assert counted[0] == 2, counted
    assert counted[1] > 1, counted
    assert counted[2:] == [1, 2], counted
    assert published(tmp_path) == undisturbed


def runs(folder: Path, batch: int) -> int:
    """How often the cell that has the faults ran in a batch."""
    return len(list((folder / "marks").glob(f"batch {batch}, cell 1, *")))


# --- a standalone cluster ---------------------------------------------------------------------------------------


class Cluster:
    """A master and workers, each a process in a group of its own; workers of several hosts, as loopback has many."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.folder, self.home = folder, Path(pyspark.__file__).parent
        self.environment = os.environ | {
            "SPARK_HOME": str(self.home), "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable,
        }  # fmt: skip
        self.environment.pop("SPARK_LOCAL_IP", None)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"spark://127.0.0.1:{port}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._run("master", "master.Master", "--host", "127.0.0.1", "--port", str(port))

    def _run(self, name: str, what: str, *arguments: str, **more: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
            self.running[name] = subprocess.Popen(
                [*command, "--webui-port", "0"],
                env=self.environment | more,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def add(self, *hosts: str) -> None:
        """Workers of a core each; comes back when the master knows them."""
        before = self._registered()
        for host in hosts:
            self._run(host, "worker.Worker", "--host", host, "--cores", "1", "--memory", "1200m", self.address,
                      SPARK_LOCAL_IP=host)  # fmt: skip
        while self._registered() < before + len(hosts):
            assert all(process.poll() is None for process in self.running.values())
            time.sleep(0.05)

    def _registered(self) -> int:
        return (self.folder / "master.log").read_text().count("Registering worker")

    def kill(self, host: str) -> None:
        """A worker with its executors, as if the machine were gone."""
        process = self.running.pop(host)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in self.running.values():
            os.killpg(process.pid, signal.SIGTERM)
        for process in self.running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def cluster(folder: Path, *hosts: str) -> Iterator[Cluster]:
    made = Cluster(folder)
    try:
        made.add(*hosts)
        yield made
    finally:
        made.stop()


CLUSTER = ("spark.executor.memory=900m", "spark.locality.wait=0s", "spark.driver.host=127.0.0.1")


@pytest.mark.slow
def test_a_cluster_of_two_hosts_and_a_twin_of_a_task_that_hangs(
    data: Path, undisturbed: Published, tmp_path: Path
) -> None:
    """A standalone master and two workers. The first attempt at a cell never ends: its speculative twin, on the other
    host, does, from state that the other host has not served before."""
    heartbeats(tmp_path)
    speculation = {
        "": "true",
        ".interval": "100ms",
        ".multiplier": "1.1",
        ".quantile": "0.5",
        ".minTaskRuntime": "500ms",
    }
    settings = [f"spark.speculation{key}={value}" for key, value in speculation.items()]
    with cluster(tmp_path, "127.0.0.1", "127.0.0.2") as made:
        ended = start(data, tmp_path, made.address, "slow@1", *settings, *CLUSTER)
        assert ended.returncode == 0, ended.stdout[-3000:]
        hosts = {path.name for path in (tmp_path / "work").rglob("stderr")}
    assert hosts, "no executor ran"
    assert runs(tmp_path, 1) == 2
    assert published(tmp_path) == undisturbed


@pytest.mark.slow
def test_executors_are_added_and_removed_while_the_query_runs(
    data: Path, undisturbed: Published, tmp_path: Path
) -> None:
    """Two workers, and two cells. After the first batch a third worker joins them; in the second one, while a task runs,
    the machines of the first two are gone. The one that came goes on alone with both cells, and nobody starts anything."""
    heartbeats(tmp_path)
    marks = tmp_path / "marks"

    def comes(file: Path) -> None:
        while not file.exists():
            assert not run.done(), run.result().stdout[-3000:]
            time.sleep(0.05)

    with cluster(tmp_path, "127.0.0.1", "127.0.0.2") as made, ThreadPoolExecutor() as pool:
        run = pool.submit(start, data, tmp_path, made.address, "pause@0", "slow@1", *CLUSTER)
        comes(tmp_path / "out" / "part-000000000000.parquet")
        made.add("127.0.0.3")
        (marks / "go@0").write_text("")  # the driver waits at its other end
        comes(marks / "slow@1")
        made.kill("127.0.0.1")
        made.kill("127.0.0.2")
        ended = run.result()
        executors = (tmp_path / "master.log").read_text().count("Launching executor")
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert executors == 3
    assert runs(tmp_path, 1) == 2
    assert published(tmp_path) == undisturbed
