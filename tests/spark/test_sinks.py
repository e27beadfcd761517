"""Where results go on Spark: folders of one checkpoint each, paths of every kind, files of any age, errors in plait's words."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds

import plait
import plait.spark
from plait.spark.formats import Note
from plait.spark.plan import settings

pytestmark = pytest.mark.spark

TABLE = pa.table({"ts": pa.array(range(60), pa.int64()), "x": pa.array(range(60), pa.int64())})


def query(size: str = "5us", **options: Any) -> Any:
    stream = plait.stream("a", unit="us", **options)
    return plait.aggregate(stream, size=size, compute={"n": plait.count()})


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sinks")
    feeds.write_files(folder, TABLE, [20, 40])
    return folder


def frame(spark: Any, folder: Path, files: int = 1, made: Any = None) -> Any:
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    read = spark.readStream.schema("ts long, x long").option("maxFilesPerTrigger", files).parquet(str(folder))
    return (made or query()).on_spark({"a": read}, layout=(1, 1))


def run(df: Any, out: Any, checkpoint: Any, **options: Any) -> None:
    plait.spark.write_ordered(df, out, checkpoint=checkpoint, **{"drain": True, **options}).awaitTermination()


def test_a_folder_belongs_to_a_checkpoint(
    spark: Any, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh checkpoint, another query, late rows' folder: refused before anything runs, and nothing is touched."""
    expected = query().reference({"a": TABLE})
    run(frame(spark, rows), tmp_path / "out", tmp_path / "c")
    feeds.assert_identical(feeds.published(tmp_path / "out"), expected)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    others = [
        (frame(spark, rows, 100), tmp_path / "out", {}),
        (frame(spark, rows, made=query("30us")), tmp_path / "out", {}),
        (frame(spark, rows, 100), tmp_path / "new", {"late": tmp_path / "out"}),
        (frame(spark, rows, 100), Path("out"), {}),
    ]
    monkeypatch.chdir(tmp_path)
    for df, out, options in others:
        with pytest.raises(plait.RunError, match="holds other rows than those of checkpoint"):
            run(df, out, tmp_path / "c2", **options)
    for options, words in (
        ({"distributed": True}, "parquet, a folder a batch"),
        ({"format": "jsonl"}, "results as jsonl"),
        ({"late": tmp_path / "out" / "late"}, "lie in one another"),
        ({"late": tmp_path}, "lie in one another"),
    ):
        with pytest.raises(plait.PlaitError, match=words):
            run(frame(spark, rows), tmp_path / "out", tmp_path / "c", **options)
    with pytest.raises(plait.RunError, match="so far are not in"):
        run(frame(spark, rows), tmp_path / "new", tmp_path / "c")
    with pytest.raises(plait.QueryError, match="both"):
        run(frame(spark, rows), tmp_path / "c", tmp_path / "c")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(plait.RunError, match="holds other rows"):
        run(frame(spark, rows, 100), tmp_path / "out", tmp_path / "c")


@pytest.mark.again
def test_folders_of_any_name_and_relative_ones_after_a_chdir(
    spark: Any, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's half of a checkpoint and plait's lie together, wherever the JVM was started; names may look like patterns."""
    here = tmp_path / "a b%20[1]{2}*?é"
    here.mkdir()
    monkeypatch.chdir(here)
    run(frame(spark, rows), "out", "c", drain=False)
    assert {"offsets", "commits", "control", "plait.json"} <= {path.name for path in (here / "c").iterdir()}
    monkeypatch.chdir(tmp_path)
    run(frame(spark, rows), (here / "out").as_uri(), (here / "c").as_uri().replace("file://", "file:"))
    feeds.assert_identical(feeds.published(here / "out"), query().reference({"a": TABLE}))
    assert sorted(path.name for path in tmp_path.iterdir()) == [here.name]


def test_stores_and_files_are_refused_before_anything_is_made(
    spark: Any, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    df = frame(spark, rows)
    good = {"out": tmp_path / "out", "checkpoint": tmp_path / "c", "late": tmp_path / "late"}
    for given, words in (("s3a://bucket/x", "names a store"), (Path("hdfs://host/x"), "names a store"),
                         ("file", "is no folder"), (tmp_path / "file" / "x", "is no folder")):  # fmt: skip
        for place in good:
            named = good | {place: given}
            with pytest.raises(plait.DataError, match=words):
                run(df, named.pop("out"), **named)
        with pytest.raises(plait.DataError, match=words):
            query().on_spark({"a": spark.readStream.schema("ts long, x long").parquet(str(rows))}, control=given)
        for old, new in ((given, tmp_path / "new"), (tmp_path / "c", given)):
            with pytest.raises(plait.PlaitError, match=f"{words}|There is no checkpoint|is there already"):
                plait.spark.relayout(df, old, new)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    hadoop = spark._jsc.hadoopConfiguration()
    hadoop.set("fs.defaultFS", "hdfs://host:9000")
    try:
        with pytest.raises(plait.DataError, match=r"this session's default is hdfs://host:9000.* Write file:/"):
            run(df, tmp_path / "out", tmp_path / "c")
    finally:
        hadoop.set("fs.defaultFS", "file:///")


@pytest.mark.again
def test_files_are_taken_however_old_they_are(spark: Any, tmp_path: Path) -> None:
    """Also where a filter stands above them, and where the reader was told otherwise; with an event as old."""
    (tmp_path / "in").mkdir()
    for number in (0, 2):
        feeds.write_file(tmp_path / "in" / f"p{number}.parquet", TABLE.slice(20 * number, 20), number)

    def df() -> Any:
        reader = spark.readStream.schema("ts long, x long").option("MAXfileage", "1s")
        return query().on_spark({"a": reader.parquet(str(tmp_path / "in")).where("x >= 0")}, layout=(1, 1))

    (tmp_path / "in" / "p2.parquet").rename(tmp_path / "p2.parquet")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    run(df(), tmp_path / "out", tmp_path / "c", drain=False)
    old = tmp_path / "in" / "p1.parquet"
    feeds.write_file(old, TABLE.slice(20, 20), 1)
    os.utime(old, (1, 1))
    (tmp_path / "p2.parquet").rename(tmp_path / "in" / "p2.parquet")
    event = tmp_path / "c" / "control" / f"{plait.spark.heartbeat(tmp_path / 'c' / 'control', 'a', ts=0):012d}.json"
    os.utime(event, (1, 1))
    run(df(), tmp_path / "out", tmp_path / "c")
    feeds.assert_identical(feeds.published(tmp_path / "out"), query().reference({"a": TABLE}))
    named = spark.readStream.schema("ts long, x long").option("fileNameOnly", "true").parquet(str(tmp_path / "in"))
    with pytest.raises(plait.QueryError, match="fileNameOnly=true"):
        query().on_spark({"a": named})


@pytest.mark.again
def test_errors_end_with_plaits_words(spark: Any, tmp_path: Path) -> None:
    """In a task of a streaming query; of a batch DataFrame. `told` gives them as the error they were."""
    (tmp_path / "in").mkdir()
    feeds.write_file(tmp_path / "in" / "p0.parquet", TABLE, 0)
    feeds.write_file(tmp_path / "in" / "p1.parquet", TABLE.slice(5, 3), 1)
    said = r"ts 5 is late, 54 us behind 59 before it\. The source may run back by 0 us\. Restart with .* at least 54 us\.\Z"
    started = plait.spark.write_ordered(frame(spark, tmp_path / "in"), tmp_path / "out", checkpoint=tmp_path / "c")
    with pytest.raises(Exception, match=said) as raised:
        started.awaitTermination()
    assert type(raised.value).__name__ == "StreamingQueryException"
    assert str(started.exception()).endswith("at least 54 us.")
    assert isinstance(plait.spark.told(raised.value), plait.LateError)
    batch = query().on_spark({"a": spark.read.schema("ts long, x long").parquet(str(tmp_path / "in"))})
    with pytest.raises(Exception, match="is late") as raised:
        batch.toArrow()
    found = plait.spark.told(raised.value)
    assert isinstance(found, plait.LateError)
    assert str(found).endswith("at least 54 us.")

    assert plait.spark.told(ValueError("no words")) is None


def test_a_batch_that_cannot_be_published_is_published_by_the_next_start(
    spark: Any, tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, and a folder that is taken away: nothing of the batch is there, and nothing is lost."""
    sync, synced = os.fsync, []

    def full(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        if "part-000000000001" in synced[-1]:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(Exception, match=r"No space left on device\. Nothing is left under that name\.\Z"):
            run(frame(spark, rows), tmp_path / "out", tmp_path / "c")
    assert list(feeds.parts(tmp_path / "out")) == ["part-000000000000.parquet"]

    def take_away(_: Any) -> None:
        (tmp_path / "out" / Note.NAME).rename(tmp_path / "note")

    with pytest.raises(Exception, match=r"Let one query write into it; nothing of this batch was published\.\Z"):
        run(frame(spark, rows), tmp_path / "out", tmp_path / "c", report=take_away)
    (tmp_path / "note").rename(tmp_path / "out" / Note.NAME)
    run(frame(spark, rows), tmp_path / "out", tmp_path / "c")
    feeds.assert_identical(feeds.published(tmp_path / "out"), query().reference({"a": TABLE}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\nplait.errors.RunError: One.\n SQLSTATE: 39000\n", "One."),
        ("plait.errors.DataError: First.\n\nThe above exception was the cause:\n\nplait.errors.RunError: f raised x\nof two"
         " lines.\n\n\tat org.apache.Spark(x)\nCaused by: plait.errors.LateError: Again.", "f raised x\nof two lines."),
        ("plait.errors.LateError: At the end.", "At the end."),
    ],
)  # fmt: skip
def test_what_was_told(text: str, said: str) -> None:
    found = plait.spark.told(Exception(text))
    assert str(found) == said


def test_a_session_with_another_python(monkeypatch: pytest.MonkeyPatch, spark: Any, tmp_path: Path, rows: Path) -> None:
    poor = tmp_path / "python3"
    for script, words in (
        ("echo 3 7", "it is Python 3.7"), ("echo {} {} plait numba", "it has no plait, numba"), ("exit 3", "it ends with"),
    ):  # fmt: skip
        poor.write_text(f"#!/bin/sh\n{script.format(*sys.version_info[:2])}\n")
        poor.chmod(0o755)
        settings._unfit.cache_clear()
        monkeypatch.setattr(spark.sparkContext, "pythonExec", str(poor))
        with pytest.raises(plait.RunError, match=f"(?i){words}.* Set PYSPARK_PYTHON to "):
            frame(spark, rows)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "none"))
    with pytest.raises(plait.RunError, match="no such program"):
        frame(spark, rows)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    frame(spark, rows)


def test_a_query_that_was_stopped_in_its_first_batch_goes_on(spark: Any, rows: Path, tmp_path: Path) -> None:
    """Spark leaves something in its log then, and by default refuses to start on it ever again."""
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    run(frame(spark, rows), out, checkpoint, drain=False)
    expected = feeds.published(out)
    for name in ("commits", "offsets", "sources", "state"):
        shutil.rmtree(checkpoint / name)
    for name in feeds.parts(out):
        (out / name).unlink()
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / ".0.left.tmp").write_text("half")
    run(frame(spark, rows), out, checkpoint, drain=False)
    assert feeds.published(out).equals(expected)
