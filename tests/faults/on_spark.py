"""Spark in this process: tasks that fail in every way, files of a checkpoint that are damaged or gone, checkpoints copied back.

The pipelines are those of `tests.spark.pipeline`: two streams of three files each, one file of each a micro-batch. One
session serves all faults; a task has four attempts there.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from tests.faults.cells import changed
from tests.faults.record import Record
from tests.spark import feeds, pipeline

import plait.spark
from plait.errors import PlaitError
from plait.spark import run as spark_run
from plait.spark.keep.checkpoint import read_card

QUERIES = ("join", "panes", "tuples", "counted", "dedup", "sessions", "nearest", "right", "union")

#: A task has so many attempts, and so many of them may fail.
ATTEMPTS = 4


@functools.cache
def session() -> Any:
    import tests.conftest  # its words to JVMs that live for minutes

    assert tests.conftest.QUICK_JAVA
    folder = tempfile.mkdtemp(prefix="faults-spark-")
    made = plait.spark.session(master=f"local[2,{ATTEMPTS}]", partitions=2, **{
        "spark.driver.memory": "1g", "spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.local.dir": folder,
    })  # fmt: skip
    made.sparkContext.setLogLevel("OFF")  # it is told what fails, by exceptions
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(made.stop)
    return made


@contextlib.contextmanager
def folder_of(what: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"faults-{what}-") as place:
        yield Path(place)


# --- tasks -----------------------------------------------------------------------------------------------------


class Failing(StatefulProcessor):
    """A cell's processor that fails as often as its schedule says: {(batch, cell): what befalls its attempts, in order}."""

    def __init__(self, whole: Any, schedule: dict[tuple[int, int], list[str]], marks: str) -> None:
        self.whole, self.schedule, self.marks = whole, schedule, marks

    def init(self, handle: Any) -> None:
        self.whole.init(handle)

    def close(self) -> None:
        self.whole.close()

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        from pyspark import TaskContext

        batch = int(TaskContext.get().getLocalProperty("streaming.sql.batchId"))
        cell = pickle.loads(self.whole.plan).layout.keys.index(key[0])
        fault = self.next_one(batch, cell)
        if fault == "worker killed before":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raises before":
            raise OSError("a task fails")
        if fault == "worker stopped and resumed":
            subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -CONT {os.getpid()}"])
            os.kill(os.getpid(), signal.SIGSTOP)
        out = list(self.whole.handleInputRows(key, rows, timerValues))
        if fault == "worker killed after":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raises after":
            raise OSError("a task fails")
        for number, each in enumerate(out):
            if fault == "raises in midst" and number == len(out) - 1:
                raise OSError("a task fails")
            yield each

    def next_one(self, batch: int, cell: int) -> str | None:
        """What is to befall this attempt; each once, told by a mark."""
        for number, fault in enumerate(self.schedule.get((batch, cell), ())):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{self.marks}/{batch}-{cell}-{number}-{fault}", os.O_CREAT | os.O_EXCL))
                return fault
        return None


FATES = ("worker killed before", "worker killed after", "raises before", "raises after", "raises in midst",
         "worker stopped and resumed")  # fmt: skip


def tasks(record: Record) -> None:
    """Python workers killed, stopped and resumed, and tasks that raise: each is done again, in the same query."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the tests
    spark, number, kinds = session(), 0, [f"Spark: {fate}" for fate in FATES]
    while record.goes_on(*kinds):
        chance = random.Random(f"{record.seed}:tasks:{number}")
        query = chance.choice(QUERIES)
        with folder_of("data") as data, folder_of("whole") as whole:
            feeds.write_pair(data, f"{record.seed}:{number}")
            pipeline.run(spark, data, whole, query)
            expected = feeds.parts(whole / "out")
            for turn in range(3):
                if record.goes_on(*kinds):
                    _failing_tasks(
                        record, spark, data, query, expected, chance, f"scenario {number}, turn {turn}, {query}"
                    )
        number += 1


def _failing_tasks(record: Record, spark: Any, data: Path, query: str, expected: dict[str, bytes], chance: random.Random,
                   words: str) -> None:  # fmt: skip
    schedule = {
        (batch, cell): [chance.choice(FATES) for _ in range(chance.randrange(ATTEMPTS))]
        for batch in range(4) for cell in range(2) if chance.random() < 0.7
    }  # fmt: skip
    with folder_of("tasks") as folder, pytest.MonkeyPatch.context() as patch:
        marks, processor = folder / "marks", spark_run.processor
        marks.mkdir()
        patch.setattr(spark_run, "processor", lambda plan: Failing(processor(plan), schedule, str(marks)))
        outcome = "same"
        try:
            pipeline.run(spark, data, folder, query)
        except (
            StreamingQueryException
        ) as error:  # both cells of a batch may lie in one task, which fails too often then
            words += f": {str(error)[:300]}"
            patch.undo()
            pipeline.run(spark, data, folder, query)
        if feeds.parts(folder / "out") != expected:
            outcome = "differs"
        for mark in marks.iterdir():
            record.tell(f"Spark: {mark.name.split('-', 3)[3]}", outcome, f"{words}, {schedule}")


# --- files of a checkpoint --------------------------------------------------------------------------------------

#: What a checkpoint's files are, by the first part of their path.
CLASSES = ("offsets", "commits", "sources", "state", "metadata", "plait.json", "control")


class Stopped:
    """A query that was stopped after two batches, its checkpoint and results so far, and what it gives when it goes on."""

    def __init__(self, spark: Any, place: Path, query: str, seed: str) -> None:
        self.spark, self.query, self.data, self.kept = spark, query, place / "data", place / "kept"
        feeds.write_pair(self.data, seed)
        rest = place / "rest"
        for name in "ab":
            (rest / name).mkdir(parents=True)
            shutil.move(self.data / name / "p002.parquet", rest / name)
        for name in pipeline.QUERIES[
            query
        ].streams():  # they say nothing new, and are files that a batch done again reads again
            plait.spark.heartbeat(self.kept / "checkpoint" / "control", name, ts=0)
        self.start(self.kept, drain=False)
        for name in "ab":
            shutil.move(rest / name / "p002.parquet", self.data / name)
        plait.spark.drain(self.kept / "checkpoint" / "control")
        whole = place / "whole"
        shutil.copytree(self.kept, whole)
        self.start(whole, drain=False)
        self.expected, self.table = feeds.parts(whole / "out"), feeds.published(whole / "out")
        assert len(self.expected) == 3, list(self.expected)

    def start(self, folder: Path, *, drain: bool = False) -> None:
        streams = pipeline.QUERIES[self.query].streams()
        read = self.spark.readStream.schema("ts long, x int, of string").option("maxFilesPerTrigger", "1")
        layout = pipeline.LAYOUTS.get(self.query, pipeline.LAYOUT)
        df = pipeline.QUERIES[self.query].on_spark(
            {n: read.parquet(str(self.data / n)) for n in streams}, layout=layout
        )
        plait.spark.write_ordered(df, folder / "out", checkpoint=folder / "checkpoint", drain=drain).awaitTermination()

    def beginning(self, folder: Path) -> str | None:
        """None if all that stands there is, part by part, what the undisturbed run has."""
        found = feeds.parts(folder / "out")
        other = [name for name, data in found.items() if name[0] != "." and self.expected.get(name) != data]
        return f"parts {other} have other bytes" if other else None


def checkpoint_files(record: Record) -> None:
    """One file of the checkpoint is damaged, torn or gone while the query is stopped; then it goes on. With the checksums that
    Hadoop keeps beside Spark's files, and without them, as some tools copy a folder."""
    spark, number = session(), 0
    kinds = [f"checkpoint: {each}, {how} .crc" for each in CLASSES for how in ("with", "without")]
    while record.goes_on(*kinds):
        chance = random.Random(f"{record.seed}:files:{number}")
        query = chance.choice(QUERIES)
        with folder_of("stopped") as place:
            made = Stopped(spark, place, query, f"{record.seed}:{number}")
            for turn in range(12):
                if record.goes_on(*kinds):
                    kind, outcome, words = _damaged(made, place / "again", chance)
                    record.tell(kind, outcome, f"scenario {number}, turn {turn}, {query}: {words}")
        number += 1


def _damaged(made: Stopped, folder: Path, chance: random.Random) -> tuple[str, str, str]:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made.kept, folder)
    checkpoint = folder / "checkpoint"
    if chance.random() < 0.4:  # as if it had been killed after it had published, before the commit
        last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()
    how = chance.choice(("with", "without"))
    if how == "without":
        for file in list(checkpoint.rglob("*.crc")):
            file.unlink()
    files: dict[str, list[Path]] = {}
    for file in sorted(checkpoint.rglob("*")):
        if file.is_file() and file.stat().st_size and not file.name.endswith(".crc"):
            files.setdefault(file.relative_to(checkpoint).parts[0], []).append(file)
    which = chance.choice(sorted(files))
    file = chance.choice(files[which])
    fate = "gone" if chance.random() < 0.15 else "changed"
    if fate == "gone":
        file.unlink()
    else:
        data, fate = changed(file.read_bytes(), chance)
        file.write_bytes(data)
    kind = f"checkpoint: {which}, {how} .crc"
    words = f"{file.relative_to(checkpoint)}, {fate}"
    try:
        made.start(folder)
    except (PlaitError, StreamingQueryException) as error:
        other = made.beginning(folder)
        return kind, "refused" if other is None else "differs", f"{words}: {other} {_short(error)}"
    except Exception as error:
        other = made.beginning(folder)
        java = "py4j" in type(error).__module__ or "pyspark" in type(error).__module__
        return (
            kind,
            "refused" if other is None and java else "differs",
            f"{words}: {other} {type(error)} {_short(error)}",
        )
    if which == "control" and feeds.parts(folder / "out") != made.expected:
        # An event that is gone, or seems torn, was never written: results wait for another one, and none is wrong.
        plait.spark.drain(checkpoint / "control")
        made.start(folder)
        return (
            kind,
            "same" if feeds.published(folder / "out").equals(made.table) else "differs",
            f"{words}, and drained again",
        )
    found = feeds.parts(folder / "out")
    missing = sorted(made.expected.keys() - found.keys())
    return (
        kind,
        "same" if found == made.expected else "differs",
        f"{words}: {made.beginning(folder)}, missing {missing}",
    )


def _short(error: BaseException) -> str:
    said = plait.spark.told(error)
    return f"{type(error).__name__}: {str(said or error)[:400]}"


# --- a checkpoint that is copied back ---------------------------------------------------------------------------


def copied_back(record: Record) -> None:
    """A copy of the checkpoint, taken between two starts or while the query runs, takes its place after it has gone on. It is
    refused with nothing touched, or it gives what the undisturbed run gives; after a refusal the newest checkpoint goes on."""
    kind, spark, number = "Spark: an older checkpoint copied back", session(), 0
    while record.goes_on(kind):
        chance = random.Random(f"{record.seed}:copies:{number}")
        query = chance.choice(QUERIES)
        with folder_of("data") as data, folder_of("whole") as whole, folder_of("copies") as folder:
            feeds.write_pair(data, f"{record.seed}:{number}")
            pipeline.run(spark, data, whole, query)
            expected = feeds.published(whole / "out")
            for turn in range(3):
                if record.goes_on(kind):
                    outcome, words = _copied_back(spark, data, folder / str(turn), query, expected, chance)
                    record.tell(kind, outcome, f"scenario {number}, turn {turn}, {query}: {words}")
        number += 1


def _copied_back(
    spark: Any, data: Path, folder: Path, query: str, expected: pa.Table, chance: random.Random
) -> tuple[str, str]:
    copies = []
    now, out = folder / "checkpoint", folder / "out"
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for start in range(chance.choice((1, 2))):
        df = pipeline.frames(spark, data, query)
        trigger = {"processingTime": "0 seconds"}
        live = plait.spark.write_ordered(df, out, checkpoint=now, trigger=trigger)
        for _ in range(2):
            time.sleep(chance.random() * 1.5)
            copies.append(folder / f"copy {len(copies)}")
            with contextlib.suppress(
                shutil.Error, OSError
            ):  # files that go while it is copied: what else can a backup do
                shutil.copytree(now, copies[-1])
        if start == 0 and chance.random() < 0.7:
            live.processAllAvailable()
        live.stop()
    back = chance.choice(copies)
    there = feeds.parts(out)
    shutil.move(now, folder / "newest")
    shutil.copytree(back, now)
    words = f"{back.name} of {len(copies)}, {len(there)} parts there"
    try:
        card = read_card(now)
        pipeline.run(spark, data, folder, query)
    except PlaitError as error:
        if feeds.parts(out) != there:
            return "differs", f"{words}: refused, and parts have changed: {error}"
        shutil.rmtree(now)
        shutil.move(folder / "newest", now)
        pipeline.run(spark, data, folder, query)
        same = feeds.published(out).equals(expected)
        return ("refused" if same else "differs"), f"{words}: the newest goes on otherwise: {error}"
    except StreamingQueryException as error:  # half of a copy: Spark finds no state of that version
        parts = feeds.parts(out)
        same = all(parts.get(name) == data for name, data in there.items())
        return ("refused" if same else "differs"), f"{words}, card {card}: {_short(error)}"
    return ("same" if feeds.published(out).equals(expected) else "differs"), words
