"""Jobs on threads: one thread pulls the lanes of the feeds and pushes, this one writes results as they come.

Two threads beside the workers, since a push waits for workers, and workers wait for whoever reads results: one thread
that did both would wait for itself. If either fails, the run is stopped, the other one ends, and the first error is
raised.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from plait.cli import feeds
from plait.cli.job import Job
from plait.cli.progress import Display
from plait.connectors import sinks
from plait.connectors.contract import Chunk, SourceName
from plait.core.metrics import Metrics
from plait.order import BEFORE_ALL
from plait.query.base import Query

#: Rows pushed at a time: few, since a lane's rows wait until the slowest source has caught up.
SLICE_ROWS = 4096

Lanes = dict[str, dict[SourceName | None, list[Iterator[Chunk]]]]


class ThreadsEngine:
    """The threads behind the protocol of `engine`."""

    name = "threads"

    def missing(self) -> str | None:
        return None

    def refuses(self, query: Query) -> str | None:
        """Streams with `idle_after=` are refused.

        They are for live sources. A file's rows come as fast as the disk gives them, and a pause says nothing about the
        source.
        """
        idle = [name for name, stream in query.streams().items() if stream.idle_after_us is not None]
        if not idle:
            return None
        return f"stream {idle[0]!r} has idle_after=, and on threads silence of a slow disk would lose rows of it"

    def run(self, job: Job, output: str, late: str | None, quiet: bool) -> Metrics:
        """To the end of the input, into a sink.

        The sink is inside the run: if a worker fails, the sink is aborted before the run's threads are waited for.
        Seconds are told from before the run was made, so compilation counts.
        """
        started, total = time.monotonic(), feeds.rows_of(job.check())
        with Display(f"{job.title} on threads", total=total, quiet=quiet) as display, _started(job, display) as made:
            with sinks.open_sink(output, made.schema) as sink:
                for batch in _results(job, made, display):
                    sink.write(pa.Table.from_batches([batch]))
                if late is not None:
                    feeds.write_late({name: made.late(name) for name in job.query.streams()}, late)
            told: Metrics = made.stats()
        return dataclasses.replace(told, seconds=time.monotonic() - started)

    def collect(self, job: Job, display: Display) -> pa.Table:
        """All results with their keys."""
        with _started(job.check(), display, keys=True) as made:
            return pa.Table.from_batches(list(_results(job, made, display)), made.schema).combine_chunks()


def _started(job: Job, display: Display, **options: Any) -> Any:
    """The run, with the columns of the feeds.

    `order` is the job's. `pending` is its `max_pending`, or about a million: if more rows of a source wait for another
    one, that is an error and not a full memory.
    """
    display.say("starting workers; kernels are compiled on first use")
    schemas = {name: feed.schema for name, feed in job.feeds.items()}
    return job.query.on_threads(schemas=schemas, order=job.order, pending=job.max_pending or 1 << 20, **options)


def _results(job: Job, run: Any, display: Display) -> Iterator[pa.RecordBatch]:
    """Results, while another thread pushes; its error is raised here.

    An error of the pushing thread stops the run, which ends `results()` with an error of its own; the first one is told.
    """
    failed: list[BaseException] = []

    def push() -> None:
        try:
            _pull(job, run)
        except BaseException as error:
            failed.append(error)
            run.stop()

    thread = threading.Thread(target=push, name="plait-feeds", daemon=True)
    thread.start()
    try:
        for batch in run.results():
            display.update(run.stats())
            yield batch
    except BaseException:
        if not failed:
            raise
    finally:
        run.stop() if failed else None
        thread.join()
    if failed:
        raise failed[0]


def _pull(job: Job, run: Any) -> None:
    """Push from the lane that holds the frontier, so that little has to wait, until all lanes are empty.

    All lanes' sources are made known first, by a heartbeat that promises nothing. Without it a source that no row has
    come of yet could be left behind by the others.

    Lanes of one source follow one another. A source ends when its last lane is empty; a stream whose sources a column
    names ends when all of its lanes are.
    """
    lanes: Lanes = {}
    for name, feed in job.feeds.items():
        lanes[name] = {}
        for lane in feed.lanes:
            if lane.source is not None and job.query.streams()[name].source_column is None:
                run.heartbeat(name, lane.source, BEFORE_ALL)  # known from now on
            lanes[name].setdefault(lane.source, []).append(_sliced(lane.read()))
        if not feed.lanes:
            run.close(name)
    while (holder := run.holder())[0] is not None:
        name, source = holder
        own = source if source in lanes[name] else None
        if own not in lanes[name]:
            # A declared source that no lane delivers: nothing can come from it any more.
            run.close(name, source)
            continue
        chunk = next(lanes[name][own][0], None)
        if chunk is not None:
            run.push(name, own, chunk.batch)
            continue
        lanes[name][own].pop(0)
        if not lanes[name][own]:
            del lanes[name][own]
            if own is not None or not lanes[name]:
                run.close(name, own)


def _sliced(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Chunks in smaller pieces.

    A slice shares the chunk's memory. `first_row` goes on counting, for messages.
    """
    for chunk in chunks:
        for start in range(0, chunk.batch.num_rows, SLICE_ROWS):
            yield Chunk(chunk.batch.slice(start, SLICE_ROWS), chunk.where, chunk.first_row + start)
