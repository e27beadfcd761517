"""Jobs on Spark: feeds laid out as Parquet folders, run as one batch or streamed in micro-batches, read back in order.

Without a checkpoint there is nothing to go on from: the rows, which are all there, are a batch DataFrame, whose tasks write the
results (`publish.at_once`). With a checkpoint folder they are streamed, and drained; all of that stands in the folder, and a run
that was stopped or killed is taken up where it was:

    in/           the rows, as they were when the run began; those of a run that goes on are compared with them
    checkpoint/   Spark's own, and plait's card
    out/, late/   results and late rows published so far
    plait-run     a mark, which is locked while a run uses the folder

A job has feeds, of any kind, and Spark reads files. So rows are written as Parquet first, in about BATCHES files a stream
(where files name their sources, a file for each), one of which Spark takes in each micro-batch. Then the query is
published over what is there, and again with `drain=True`, which flushes what waits. `verify` compares a run in micro-batches,
whatever the file says. Held by tests/cli/test_spark_runs.py.
"""

from __future__ import annotations

import dataclasses
import filecmp
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from plait import errors, java, paths
from plait.cli import feeds
from plait.cli.job import Job
from plait.cli.progress import Display, Show
from plait.connectors import sinks
from plait.connectors.contract import Feed, Lane
from plait.connectors.dump import write_folder
from plait.core.metrics import Metrics
from plait.query.base import Query
from plait.query.stream import FILE, Stream

BATCHES = 10

#: A checkpoint folder that plait run made.
MARK = "plait-run"


class SparkEngine:
    """Spark behind the protocol of `engine`. It is imported when a job is run, and asked for by way of `java.missing` before
    that.
    """

    name = "spark"

    def missing(self) -> str | None:
        return java.missing()

    def refuses(self, query: Query) -> str | None:
        return None

    def run(self, job: Job, output: str, late: str | None, show: Show) -> Metrics:
        """To the end of the input, then the parts into one sink, in order.

        Results of a run that was taken up again are those of all its starts: the parts that stand in the folder.
        """
        started, results = time.monotonic(), 0
        display = Display(f"{job.title} on spark", total=feeds.rows_of(job), show=show)
        running = _at_once if job.checkpoint is None else _streamed
        with display, running(job, display) as done, sinks.open_sink(output, done.schema) as sink:
            for part in done.parts():
                sink.write(part)
                results += part.num_rows
            if late is not None:
                done.write_late(late)
            told = done.run
        return dataclasses.replace(told, results=results, seconds=time.monotonic() - started)

    def collect(self, job: Job, display: Display) -> pa.Table:
        """All results with their keys, from a folder of its own: a checkpoint of the job is left alone."""
        with _streamed(job, display, keep_key=True) as done:
            return pa.concat_tables([done.schema.empty_table(), *done.parts()]).combine_chunks()


@dataclasses.dataclass
class _Done:
    """A run that has ended: where its parts are, in order, and what it counted.

    Attributes:
        folder: Where `out/` and `late/` lie. It may be gone once the block that gave it has ended.
        schema: The results' columns, with the key if it was kept.
        run: What the last published batch reported, with the number of rows that were laid out.
    """

    folder: Path
    schema: pa.Schema
    run: Metrics

    def parts(self) -> Iterator[pa.Table]:
        """The results, part by part, in order."""
        for file in sorted((self.folder / "out").rglob("part-*.parquet")):  # a batch's lie in a folder
            yield pq.read_table(file, partitioning=None, page_checksum_verification=True).cast(self.schema)

    def write_late(self, path: str) -> None:
        """Late rows of all streams into one file."""
        folders = (place for place in sorted((self.folder / "late").glob("*")) if place.is_dir())
        found = {unquote(place.name): pq.read_table(place) for place in folders}
        feeds.write_late(found, path)


@contextmanager
def _at_once(job: Job, display: Display) -> Iterator[_Done]:
    """Run the query over all rows as a batch, whose tasks write the parts. Nothing is told until it has ended."""
    import plait.spark

    spark, schema = _session(job, display)
    with _place(job, True) as folder:
        laid = _lay_out(job, folder)
        display.say("all rows at once")
        streams = job.query.streams()
        data = {
            name: _frames(spark, streams[name], feed, folder / "in" / paths.quoted(name), False)
            for name, feed in job.feeds.items()
        }
        with warnings.catch_warnings():  # late rows stand in a folder, and are counted
            warnings.simplefilter("ignore", UserWarning)
            df = job.query.on_spark(data, max_window=job.max_window, layout=job.layout, cells=job.cells)
        try:
            told = plait.spark.write_ordered(df, folder / "out", late=folder / "late", order=job.order)
        except Exception as error:
            raise plait.spark.told(error) or error from None
        yield _Done(folder, schema, dataclasses.replace(told.run, rows=laid))


@contextmanager
def _streamed(job: Job, display: Display, *, keep_key: bool = False) -> Iterator[_Done]:
    """Run the query to the end of its input: what is there first, then the drain.

    Spark's own output (its JVM writes to stderr from its start) goes into a log in the folder for temporary files, so
    that progress stays readable. After each of the two queries it waits a moment for the listener, whose events come
    late.
    """
    import plait.spark
    from plait.query.identical import KEY
    from plait.spark.publish.watch import watching

    spark, schema = _session(job, display)
    schema = schema.append(pa.field(KEY, pa.binary())) if keep_key else schema
    with _place(job, keep_key) as folder:
        streams = job.query.streams()
        laid = _lay_out(job, folder)
        data = {
            name: _frames(spark, streams[name], feed, folder / "in" / paths.quoted(name), True)
            for name, feed in job.feeds.items()
        }
        df = job.query.on_spark(
            data, max_pending=job.max_pending, max_window=job.max_window, layout=job.layout, cells=job.cells
        )
        seen = _Seen(display)
        with watching(spark, seen.batch) as watch:

            def report(batch: plait.spark.BatchReport) -> None:
                watch.report(batch)
                seen.last = batch.run
                display.follow(lambda: batch.run)

            for drain in (False, True):
                query = plait.spark.write_ordered(
                    df, folder / "out", checkpoint=folder / "checkpoint", late=folder / "late", keep_key=keep_key,
                    drain=drain, report=report,
                )  # fmt: skip
                seen.wait(query)
                watch.ended.wait(5)
        # What was laid out, whether or not an older checkpoint had counted it.
        yield _Done(folder, schema, dataclasses.replace(seen.last, rows=laid, state_bytes=seen.committed.state_bytes))


def _session(job: Job, display: Display) -> tuple[Any, pa.Schema]:
    """Spark, and the results' columns; what can be refused before Spark is asked is refused."""
    import plait.spark
    from plait.query.bind import bind
    from plait.query.row_by_row import rooted
    from plait.spark.plan.settings import is_running

    job.check()
    display.say(f"{'on' if is_running() else 'starting'} Spark; kernels are compiled on first use")
    with _noise_aside():
        spark = plait.spark.session(master=job.master or "local[*]")
    return spark, bind(rooted(job.query), {name: feed.schema for name, feed in job.feeds.items()}).schema


@contextmanager
def _place(job: Job, keep_key: bool) -> Iterator[Path]:
    """Where a run has its rows, its checkpoint and its parts: the job's own folder, or one that goes with the run."""
    if job.checkpoint is None or keep_key:  # a comparison begins anew each time
        with tempfile.TemporaryDirectory(prefix="plait-") as place:
            yield _readable(Path(place))
        return
    folder = _readable(paths.absolute(job.checkpoint, "The checkpoint"))
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).exists())):
        raise errors.RunError(
            f"{job.title}: {job.checkpoint!r} is no checkpoint of plait run",
            why="it is not empty, and was not made by it",
            do="Name another folder in [spark] checkpoint",
        )
    paths.folder(folder, "The checkpoint")
    with _alone(job, folder):
        yield folder


@contextmanager
def _alone(job: Job, folder: Path) -> Iterator[None]:
    """The only run in its folder: two would lay out rows and publish parts over one another's. The lock dies with its process."""
    with open(folder / MARK, "a") as mark:
        try:
            import fcntl

            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.RunError(
                f"{job.title}: another run is using {job.checkpoint!r}",
                why="two runs would write over one another's rows and parts",
                do="Wait for it to end, or name another folder in [spark] checkpoint",
            ) from None
        except (ImportError, OSError):
            pass  # no locks here
        yield


def _readable(folder: Path) -> Path:
    """Refuse a folder that Spark's readers take for a pattern: they would find no rows in it, and say nothing."""
    if any(letter in str(folder) for letter in "[]{}*?\\"):
        raise errors.DataError(
            f"The rows of a run can't lie in {str(folder)!r}",
            why="Spark takes a path with one of []{}*?\\ in it for a pattern, and would find none",
            do="Name another folder in [spark] checkpoint, or with TMPDIR",
        )
    return folder


def _lay_out(job: Job, folder: Path) -> int:
    """Write the feeds' rows where Spark reads them; gives their number. A run that goes on must have the same.

    Rows are always written anew and then compared, byte for byte, with those of the first start. So a run that goes on
    costs writing all rows once more, and can't go on with others.
    """
    final, fresh = folder / "in", folder / "in.new"
    shutil.rmtree(fresh, ignore_errors=True)
    streams = job.query.streams()
    for name, feed in job.feeds.items():
        _write_feed(streams[name], feed, fresh / paths.quoted(name))
    if not final.exists():
        os.replace(fresh, final)
    elif (differs := _difference(final, fresh)) is not None:
        raise errors.RunError(
            f"{job.title}: the rows are not those that {job.checkpoint!r} was started with ({differs} differs)",
            why="a run that is taken up again must read the same rows",
            do="Name another folder in [spark] checkpoint, or remove that one",
        )
    shutil.rmtree(fresh, ignore_errors=True)
    return sum(pq.read_metadata(file).num_rows for file in final.rglob("*.parquet"))


def _difference(one: Path, other: Path) -> str | None:
    """The first file that two layouts of rows do not have in common, byte for byte."""
    files = [{str(file.relative_to(root)) for file in root.rglob("*.parquet")} for root in (one, other)]
    for name in sorted(files[0] | files[1]):
        if name not in files[0] & files[1] or not filecmp.cmp(one / name, other / name, shallow=False):
            return name
    return None


@contextmanager
def _noise_aside() -> Iterator[None]:
    """The JVM and its workers keep the stderr they are born with: give them a file, and keep ours for the user."""
    ours = os.dup(2)
    # A name that nobody can know before, and a file that nobody else can read.
    log, _ = tempfile.mkstemp(prefix=f"plait-spark-{os.getpid()}-", suffix=".log")
    os.dup2(log, 2)
    os.close(log)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


class _Seen:
    """What a running query has told: `committed` by the last batch that Spark has committed, `last` by the last one published.

    Only Spark knows the size of the state, and tells it with the first.
    """

    def __init__(self, display: Display) -> None:
        self.display = display
        self.committed = self.last = Metrics()

    def batch(self, number: int, run: Metrics) -> None:
        """One micro-batch is done."""
        self.committed = run
        self.display.batch(number, run)

    def wait(self, query: Any) -> None:
        """Wait for the query's end; its error is plait's own where plait said something.

        Spark's error has pages of stack around plait's words; `told` finds them.
        """
        import plait.spark

        try:
            query.awaitTermination()
        except Exception as error:
            raise plait.spark.told(error) or error from None


def _by_lane(stream: Stream, feed: Feed) -> bool:
    """Whether nothing in the rows tells the sources of a feed apart: then each lane is a DataFrame of its own."""
    return len(feed.lanes) > 1 and stream.source != FILE and stream.source_column is None


def _write_feed(stream: Stream, feed: Feed, folder: Path) -> None:
    """A stream's rows as files: one for each source that files name, a folder for each lane, or parts merged by time."""
    if stream.source == FILE:
        write_folder(feed, folder)
    elif _by_lane(stream, feed):
        for number, lane in enumerate(feed.lanes):
            _part_files(feed, (lane,), folder / str(number), None)
    else:
        _part_files(feed, feed.lanes, folder, stream.time)


def _frames(spark: Any, stream: Stream, feed: Feed, folder: Path, streaming: bool) -> Any:
    """A stream as DataFrames: one, or one for each lane where nothing in the rows tells sources apart."""
    if _by_lane(stream, feed):
        return {lane.source: _frame(spark, feed, folder / str(n), streaming) for n, lane in enumerate(feed.lanes)}
    return _frame(spark, feed, folder, streaming)


def _part_files(feed: Feed, lanes: tuple[Lane, ...], folder: Path, time: str | None) -> list[Path]:
    """Parts of such a size that there are about `BATCHES` micro-batches."""
    rows = max(1_000, (feed.rows or BATCHES * 100_000) // BATCHES + 1)
    return write_folder(
        Feed(feed.schema, lanes, feed.rows), folder, rows_per_file=rows, time=time if len(lanes) > 1 else None
    )


def _frame(spark: Any, feed: Feed, folder: Path, streaming: bool) -> Any:
    """A folder as a DataFrame; of a stream one that takes a file each micro-batch."""
    from plait.spark.plan.frames import spark_schema

    if not streaming:
        return spark.read.schema(spark_schema(feed.schema)).parquet(paths.uri(folder))
    for number, file in enumerate(
        sorted(folder.rglob("*.parquet"), key=lambda file: os.fsencode(file.relative_to(folder)))
    ):
        # Spark takes files by age, and plait by name: make the two agree.
        os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
    reader = spark.readStream.schema(spark_schema(feed.schema)).option("maxFilesPerTrigger", 1)
    return reader.parquet(paths.uri(folder))
