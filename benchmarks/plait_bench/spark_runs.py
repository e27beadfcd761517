"""What benchmarks on Spark share: one session, the same Parquet files and the same trigger for all, taking turns.

Streaming contenders take one file of each stream a micro-batch and are timed from the start of the query until everything
is out, plait's drain included. The JVM's compilers are busy for some forty micro-batches, so each contender runs untimed
until it has had them, or has run for fifteen seconds; what is quick is then timed three times, and its median counts.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq

from plait.errors import RunError

WARM_BATCHES, WARM_S, QUICK_S = 40, 15.0, 12.0

T = TypeVar("T")


def in_order(files: list[Path]) -> None:
    """Spark takes files by age: give each, in this order, a second of its own."""
    for number, file in enumerate(files):
        os.utime(file, (1_000_000_000 + number,) * 2)


def race(contenders: Mapping[str, Callable[[Path], T]], place: Path, *, files: int, warm: bool = True,
         once_only: Collection[str] = ()) -> tuple[dict[str, list[float]], dict[str, T]]:  # fmt: skip
    """Seconds of each contender's runs, and what its last one gave.

    `once_only` are those that take seconds a micro-batch, warm or not, and run code that the others have warmed: once.
    """
    found: dict[str, T] = {}
    times: dict[str, list[float]] = {name: [] for name in contenders}

    def once(name: str, label: str) -> float:
        # A folder of its own each time: Spark's state store goes on writing to one for a while after a query's end.
        begin = time.perf_counter()
        found[name] = contenders[name](place / f"{name}, {label}")
        return time.perf_counter() - begin

    slow: set[str] = set(once_only)
    for name in contenders:
        batches, spent = 0, 0.0
        while warm and name not in once_only and batches < WARM_BATCHES and spent < WARM_S:
            took = once(name, f"warm-up {batches}")
            batches, spent = batches + files, spent + took
            if took > QUICK_S:
                slow.add(name)
    for turn in range(3):
        for name in contenders:
            if turn == 0 or (name not in slow and times[name][0] <= QUICK_S):
                times[name].append(once(name, f"timed {turn}"))
    return times, found


def same_results(case: str, found: Mapping[str, int]) -> None:
    """Refuse to compare contenders that do not find as many results."""
    if len(set(found.values())) != 1:
        raise RunError(f"Contenders differ in the pairs they find in {case}: {found}")


#: Spark's defaults for what plait's session sets, as far as a query of Spark's own has any use of it.
DEFAULTS = {
    "spark.sql.shuffle.partitions": "200",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
}


def default_session(spark: Any) -> Any:
    """The same session with Spark's defaults for shuffles, state and checkpoints."""
    plain = spark.newSession()
    for name, value in DEFAULTS.items():
        plain.conf.set(name, value)
    return plain


def streams(spark: Any, folders: dict[str, Path], *, at_once: int = 1) -> dict[str, Any]:
    """Each folder's files as a stream, so many of them a micro-batch."""
    return {
        name: spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        .option("maxFilesPerTrigger", at_once)
        .parquet(str(folder))
        for name, folder in folders.items()
    }


def to_the_end(df: Any, place: Path, *, order: str = "strict") -> int:
    """Publish what `on_spark` gave, drained; gives the number of results."""
    return sum(batch.results for batch in reported(df, place, order=order))


def reported(df: Any, place: Path, *, order: str = "strict") -> list[Any]:
    """The same; gives what each batch reported."""
    from plait.spark.keep.control import drain
    from plait.spark.publish.collect import write_ordered

    told: list[Any] = []
    started = write_ordered(
        df, place / "out", checkpoint=place / "checkpoint", trigger={"processingTime": "0 seconds"}, order=order,
        report=told.append,
    )  # fmt: skip
    started.processAllAvailable()
    drain(place / "checkpoint" / "control")
    started.processAllAvailable()
    started.stop()
    return told


def as_parts(frame: Any, place: Path) -> int:
    """Run a query of Spark's own as plait runs its; gives the number of its rows."""
    started = writing_parts(frame, place)
    started.processAllAvailable()
    started.stop()
    return rows_in(place / "out")


def writing_parts(frame: Any, place: Path) -> Any:
    """The same, started: rows reach the driver and are written, a part a batch."""

    def sink(batch_frame: Any, batch: int) -> None:
        rows = batch_frame.toArrow()
        if rows.num_rows:
            (place / "out").mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, place / "out" / f"part-{batch:012d}.parquet")

    return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(place / "checkpoint")).start()


def rows_in(folder: Path) -> int:
    """The rows of a folder's Parquet files."""
    return sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))


def timed(case: str, tuples: int, times: Mapping[str, list[float]], found: Mapping[str, int]) -> list[dict[str, Any]]:
    """A row for each contender of a race: of its runs the median counts."""
    return [
        {"case": case, "contender": name, "tuples": tuples, "results": found[name],
         "seconds": round(statistics.median(taken), 2), "tuples_per_s": tuples / statistics.median(taken)}
        for name, taken in times.items()
    ]  # fmt: skip
