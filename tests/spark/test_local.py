"""The local session's short cuts: what they promise, and that each does without where it must."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

from plait.spark import daemon
from plait.spark.plan import local, settings


def test_the_launcher_takes_sparks_zips_off_the_path_and_nothing_else() -> None:
    path = os.pathsep.join(["/somewhere", "/spark/python/lib/pyspark.zip", "/spark/py4j-0.10-src.zip", "/a.zip"])
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1:])"
    out = subprocess.run(
        [local.python(), "-c", code, "one", "two words"], env=os.environ | {"PYTHONPATH": path}, capture_output=True,
        text=True, check=True,
    ).stdout  # fmt: skip
    assert out == f"/somewhere:/a.zip {sys.executable} ['one', 'two words']\n"


def test_the_launcher_keeps_the_state_variables_process_quiet_and_no_other() -> None:
    said = [
        subprocess.run([local.python(), "-c", "print(1)", word], capture_output=True, text=True, check=True).stdout
        for word in ("pyspark.sql.streaming.transform_with_state_driver_worker", "pyspark.worker")
    ]
    assert said == ["", "1\n"]


def test_without_a_compiler_the_file_system_stays_hadoops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.shutil, "which", lambda name: None)
    assert local.file_system() == {}


def test_a_compiler_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLAIT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(local.shutil, "which", lambda name: "/bin/false")
    assert local.file_system() == {}
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.spark
def test_files_get_their_permissions_without_a_process(spark: Any, tmp_path: Path) -> None:
    if not local.file_system():
        pytest.skip("no javac on this machine: Hadoop's own local file system serves")
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(f"file://{tmp_path}/some")
    system = path.getFileSystem(conf)
    assert system.getClass().getName() == "plait.LocalFiles"
    system.create(path).close()
    for mode in (0o640, 0o600, 0o755):
        system.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission(format(mode, "o")))
        assert (tmp_path / "some").stat().st_mode & 0o777 == mode


@pytest.mark.spark
def test_a_folder_is_listed_as_hadoop_lists_it(spark: Any, tmp_path: Path) -> None:
    if not local.file_system():
        pytest.skip("no javac on this machine: Hadoop's own local file system serves")
    for name in ("1", "2", "21.compact", "a b", "2:30", ".2.crc", "ünï", "3.tmp"):
        (tmp_path / name).write_text(name)
    (tmp_path / "22").mkdir()
    files, conf = spark._jvm.org.apache.hadoop.fs, spark._jsc.hadoopConfiguration()
    here = files.Path(f"file://{tmp_path}")
    ours, hadoops = here.getFileSystem(conf), files.LocalFileSystem()
    hadoops.initialize(here.toUri(), conf)
    assert ours.getClass().getName() == "plait.LocalFiles"

    def listed(system: Any, path: Any, glob: str) -> set[tuple[Any, ...]]:
        found = system.listStatus(path, files.GlobFilter(glob))
        return {
            (each.getPath().toString(), each.getLen(), each.getModificationTime(), each.isDirectory(),
             each.getPermission().toString())
            for each in found
        }  # fmt: skip

    for glob in ("*", "2*", "*.crc", "none"):
        assert listed(ours, here, glob) == listed(hadoops, here, glob)
    assert len(listed(ours, here, "2*")) == 4
    assert listed(ours, files.Path(here, "1"), "*") == listed(hadoops, files.Path(here, "1"), "*")
    for system in (ours, hadoops):
        with pytest.raises(Exception, match="FileNotFoundException"):
            system.listStatus(files.Path(here, "nowhere"), files.GlobFilter("*"))


@pytest.mark.spark
def test_the_log_of_a_file_source_does_not_grow(spark: Any, tmp_path: Path) -> None:
    """Spark lists it in every batch. What a compacted file of it repeats goes with the batches that it was kept for."""
    (tmp_path / "in").mkdir()
    for number in range(45):
        pq.write_table(pa.table({"x": [number]}), tmp_path / "in" / f"{number:03d}.parquet")
    kept, batches = "spark.sql.streaming.minBatchesToRetain", []
    spark.conf.set(kept, "5")
    try:
        for _ in range(2):  # a restart reads the log, finds all files in it, and does nothing
            frame = spark.readStream.schema("x long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
            started = writer.start()
            started.processAllAvailable()
            batches.append(len([each for each in started.recentProgress if each["numInputRows"]]))
            started.stop()
    finally:
        spark.conf.unset(kept)
    assert batches == [45, 0]
    log = [file.name for file in (tmp_path / "checkpoint" / "sources" / "0").iterdir() if not file.name.startswith(".")]
    assert len(log) <= 20, log
    assert "44" in log


def test_the_daemon_forks_only_where_no_thread_would_be_lost() -> None:
    """In a fresh process, with the environment that Spark gives it: every thread there is then knows of forks."""
    code = "from plait.spark import daemon; daemon._warm_up(); print(*daemon._threads())"
    given = os.environ | {"OMP_NUM_THREADS": "1"}
    out = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True).stdout
    assert set(out.split()) <= daemon.FORK_SAFE


@pytest.mark.spark
def test_workers_come_from_the_warm_daemon(spark: Any) -> None:
    def modules(batches: Any) -> Any:
        import sys

        import pyarrow as pa

        for _ in batches:
            yield pa.record_batch({"main": [sys.modules["__main__"].__spec__.name]})

    found = spark.range(1).mapInArrow(modules, "main string").collect()
    assert [row.main for row in found] == ["plait.spark.daemon"]


def test_the_daemon_steps_back_if_a_library_starts_a_thread() -> None:
    code = (
        "import os, threading, time\nfrom plait.spark import daemon\n"
        "daemon._warm_up = lambda: threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n"
        "os.execv = lambda path, args: (print(args[1:3]), os._exit(0))\n"
        "daemon.main()"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "['-m', 'pyspark.daemon']\n"


@pytest.mark.spark
def test_a_handed_session_is_told_once_what_would_make_it_faster(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
    monkeypatch.setattr(settings, "_warned", set())
    spark.conf.set(key, "false")
    try:
        with pytest.warns(UserWarning, match=f"{key}=true"):
            settings.check(spark, streaming=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            settings.check(spark, streaming=True)
    finally:
        spark.conf.set(key, "true")


def test_the_daemon_has_imported_what_its_workers_need() -> None:
    """In a process of its own: workers are forked from one that has everything, and import nothing of plait's themselves."""
    rooms = [f"plait.spark.cell.{room}" for room in ("join", "asof", "aggregate", "operator", "cell")]
    ask = "import sys; from plait.spark import daemon; daemon._warm_up(); print(*set(sys.argv[1:]) - set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", ask, "plait.spark.pack.pack", *rooms], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_a_processor_tells_its_state_variable_without_plait(tmp_path: Path) -> None:
    """Spark asks for it in a process of its own at each start, and the first batch waits: nothing of plait is imported there."""
    import plait
    from plait.query.bind import bind
    from plait.spark.cell.cell import CellPlan, processor
    from plait.spark.keep import relayout
    from plait.spark.plan.stages import layouts

    query = plait.aggregate(plait.stream("a", unit="us"), size="1s", compute={"n": plait.count()})
    bound = bind(query, {"a": pa.schema([("ts", pa.int64())])})
    made = processor(CellPlan(bound, (), layouts(bound, "auto", 1, 1)[0], "mark")), relayout._importer()
    (tmp_path / "made").write_bytes(cloudpickle.dumps(made))
    ask = (
        "import pickle, sys; sys.modules['plait'] = None\n"
        "class Handle:\n    getMapState = staticmethod(lambda name, key, value: (name, key.names, value.names))\n"
        "for each in pickle.load(open(sys.argv[1], 'rb')):\n    each.init(Handle); print(*each.map)"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask, str(tmp_path / "made")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "cell ['no'] ['body']\n" * 2
