"""Jobs on local Spark: feeds laid out as Parquet folders, streamed in micro-batches, drained, read back in order."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait import errors
from plait.cli.job import Job, Summary
from plait.cli.progress import Display
from plait.connectors import sinks
from plait.connectors.contract import Feed, Lane
from plait.connectors.dump import write_folder
from plait.query.base import Query
from plait.query.join import Asof, Join
from plait.query.stream import FILE, Stream

BATCHES = 10


def supports(query: Query) -> bool:
    """What the Spark executor runs so far: joins of streams."""
    return isinstance(query, (Join, Asof)) and all(isinstance(i, Stream) for i in query.inputs)


def run(job: Job, output: str, late: str | None, quiet: bool) -> Summary:
    started = time.monotonic()
    display = Display(f"{job.title} on spark", total=_total(job), quiet=quiet)
    with display, _streamed(job, display) as done, sinks.open_sink(output, done.schema) as sink:
        results = 0
        for part in done.parts():
            sink.write(part)
            results += part.num_rows
        if late is not None:
            done.write_late(late)
        rows, dropped = done.rows, done.late
    return Summary("spark", rows, results, dropped, 0, time.monotonic() - started)


def collect(job: Job, display: Display) -> pa.Table:
    """The whole result in memory, with its keys."""
    with _streamed(job, display, keep_key=True) as done:
        return pa.concat_tables([done.schema.empty_table(), *done.parts()]).combine_chunks()


@dataclasses.dataclass
class _Done:
    """A run that has ended: where its parts are, in order, and what it counted."""

    folder: Path
    schema: pa.Schema
    rows: int
    late: int

    def parts(self) -> Iterator[pa.Table]:
        for file in sorted((self.folder / "out").glob("part-*.parquet")):
            yield pq.read_table(file).cast(self.schema)

    def write_late(self, path: str) -> None:
        from plait.cli.execute import write_late

        found = {f.name: pq.read_table(f) for f in sorted((self.folder / "late").glob("*"))}
        write_late(found, path)


@contextmanager
def _streamed(job: Job, display: Display, *, keep_key: bool = False) -> Iterator[_Done]:
    import plait.spark
    from plait.query.bind import bind
    from plait.query.identical import KEY

    job.check()
    display.say("starting Spark; kernels are compiled on first use")
    with _noise_aside():
        spark = plait.spark.session()
    bound = bind(job.query, {name: feed.schema for name, feed in job.feeds.items()})
    schema = pa.schema([*bound.schema, pa.field(KEY, pa.binary())]) if keep_key else bound.schema
    with tempfile.TemporaryDirectory(prefix="plait-") as place:
        folder = Path(place)
        streams = job.query.streams()
        data = {name: _frames(spark, streams[name], feed, folder / "in" / name) for name, feed in job.feeds.items()}
        df = job.query.on_spark(data)
        seen = _Seen(display)
        for drain in (False, True):
            query = plait.spark.write_ordered(
                df, folder / "out", checkpoint=folder / "checkpoint", late=folder / "late", keep_key=keep_key,
                drain=drain, report=seen.report,
            )  # fmt: skip
            seen.watch(query)
        yield _Done(folder, schema, seen.rows, seen.late)


@contextmanager
def _noise_aside() -> Iterator[None]:
    """The JVM and its workers keep the stderr they are born with: give them a file, and keep ours for the user."""
    ours = os.dup(2)
    with open(os.path.join(tempfile.gettempdir(), f"plait-spark-{os.getpid()}.log"), "ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _told(error: Exception) -> Exception:
    """What plait said in a task, out of the many lines Spark wraps it in."""
    found = re.search(r"^plait\.errors\.(\w+): (.*)$", str(error), re.MULTILINE)
    if found is None:
        return error
    kind = getattr(errors, found[1], errors.RunError)
    told: Exception = kind(found[2])
    return told


class _Seen:
    """Counts of a running query, gathered from its batches' reports and from Spark's progress."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.rows = self.before = self.results = self.late = 0
        self.last: Any = None

    def report(self, batch: Any) -> None:
        self.results += batch.results
        self.late, self.last = batch.late, batch

    def watch(self, query: Any) -> None:
        while True:
            try:
                ended = query.awaitTermination(0.2)
            except Exception as error:
                raise _told(error) from None
            progress = query.recentProgress
            rows = self.before + sum(p["numInputRows"] for p in progress)
            self.rows = rows
            if self.last is not None:
                state = progress[-1]["stateOperators"] if progress else []
                used = sum(s["memoryUsedBytes"] for s in state) / 1e6
                note = f"batch {self.last.batch}, {self.last.pending:,} waiting, state {used:.0f} MB"
                self.display.update(self.rows, self.results, self.last.frontier, note)
            if ended:
                self.before = self.rows
                return


def _frames(spark: Any, stream: Stream, feed: Feed, folder: Path) -> Any:
    """A stream as streaming DataFrames: one, or one for each lane where nothing in the rows tells sources apart."""
    if stream.source == FILE:
        return _frame(spark, feed, write_folder(feed, folder), folder)
    if len(feed.lanes) > 1 and stream.source_column is None:
        return {
            lane.source: _frame(spark, feed, _part_files(feed, (lane,), folder / str(n), None), folder / str(n))
            for n, lane in enumerate(feed.lanes)
        }
    return _frame(spark, feed, _part_files(feed, feed.lanes, folder, stream.time), folder)


def _part_files(feed: Feed, lanes: tuple[Lane, ...], folder: Path, time: str | None) -> list[Path]:
    rows = max(1_000, (feed.rows or BATCHES * 100_000) // BATCHES + 1)
    return write_folder(
        Feed(feed.schema, lanes, feed.rows), folder, rows_per_file=rows, time=time if len(lanes) > 1 else None
    )


def _frame(spark: Any, feed: Feed, files: list[Path], folder: Path) -> Any:
    from plait.spark.frames import spark_schema

    for number, file in enumerate(files):
        # Spark takes files by age, and plait by name: make the two agree.
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    reader = spark.readStream.schema(spark_schema(feed.schema)).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def _total(job: Job) -> int | None:
    counts = [feed.rows for feed in job.feeds.values()]
    return None if any(c is None for c in counts) else sum(c for c in counts if c is not None)
