"""Jobs on threads: rows are pulled and pushed as `threads.feeds` does it, this thread writes results as they come.

What needs no gate goes in slabs (`threads.bounded`), as with `query.run`. `verify` compares executors, and always pushes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.cli import feeds
from plait.cli.job import Job
from plait.cli.progress import Display, Show
from plait.connectors import sinks
from plait.core.metrics import Metrics
from plait.query.base import Query

if TYPE_CHECKING:
    from plait.threads.bounded.run import Slabs
    from plait.threads.run import Run


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

    def run(self, job: Job, output: str, late: str | None, show: Show) -> Metrics:
        """To the end of the input, into a sink.

        The sink is inside the run: if a worker fails, the sink is aborted before the run's threads are waited for.
        Seconds are told from before the run was made, so compilation counts.
        """
        started, total = time.monotonic(), feeds.rows_of(job.check())
        if (slabs := _slabs(job)) is not None:
            return _run_slabs(slabs, job, output, late, Display(f"{job.title} on threads", total=total, show=show))
        with Display(f"{job.title} on threads", total=total, show=show) as display, _started(job, display) as made:
            display.follow(made.watched)
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


def _slabs(job: Job) -> Slabs | None:
    """The run, if its input needs no gate: files are all there."""
    from plait.threads.bounded import run

    pending = {"pending": job.max_pending} if job.max_pending else {}
    return run.slabs(job.query, job.feeds, order=job.order, **pending)


def _run_slabs(made: Slabs, job: Job, output: str, late: str | None, display: Display) -> Metrics:
    """To the end of the input, into a sink."""
    with display, sinks.open_sink(output, made.shown.schema) as sink:
        display.follow(made.metrics)
        for batch in made.results():
            sink.write(pa.Table.from_batches([batch]))
            display.update(made.metrics())
        if late is not None:
            feeds.write_late({name: made.late(name) for name in job.query.streams()}, late)
    return made.metrics()


def _started(job: Job, display: Display, **options: Any) -> Run:
    """The run. `order` is the job's, and so is `pending`, its `max_pending`."""
    from plait.threads import feeds

    display.say("starting workers; kernels are compiled on first use")
    if job.max_pending:
        options["pending"] = job.max_pending
    return feeds.started(job.query, job.feeds, order=job.order, **options)


def _results(job: Job, run: Run, display: Display) -> Iterator[pa.RecordBatch]:
    from plait.threads import feeds

    for batch in feeds.results(job.query, job.feeds, run):
        display.update(run.stats())
        yield batch
