"""Jobs on the reference: lanes are pulled as the frontier asks for them, results are written as they come.

One thread, no state outside of the process. `pull` takes the next rows from the lane whose source holds the frontier, so
few tuples wait. `plait verify` runs the same machine with rows in random pieces and turns (`started_run`, `metrics_of`).
"""

from __future__ import annotations

import time

import pyarrow as pa

from plait import order as total_order
from plait.cli import feeds
from plait.cli.job import Job
from plait.cli.progress import Display, Show
from plait.connectors import sinks
from plait.core.metrics import Metrics
from plait.query.base import Query
from plait.query.identical import KEY
from plait.reference.rows import table_of
from plait.reference.run import Run, pull

#: Tuples that may wait for the frontier before a run from files stops; in memory they are there anyway.
MAX_PENDING = 5_000_000


class ReferenceEngine:
    """The reference behind the protocol of `engine`. It needs nothing that is not installed, and runs every query."""

    name = "reference"

    def missing(self) -> str | None:
        return None

    def refuses(self, query: Query) -> str | None:
        return None

    def run(self, job: Job, output: str, late: str | None, show: Show) -> Metrics:
        """To the end of the input, into a sink. Results are written as they come; the file appears when the block ends
        without an error.

        Late rows are written after the results, into a file of their own that appears before the results' does.
        """
        started = time.monotonic()
        machine, results = started_run(job.check()), 0
        schema = machine.bound.schema
        display = Display(f"{job.title} on reference", total=feeds.rows_of(job), show=show)
        with display, sinks.open_sink(output, schema) as sink:
            for rows in pull(machine, job.feeds):
                if rows:
                    results += len(rows)
                    sink.write(table_of(rows, schema))
                display.update(metrics_of(machine, results, started))
            if late is not None:
                intakes = machine.intake.streams.items()
                feeds.write_late({name: intake.late_table() for name, intake in intakes}, late)
        return metrics_of(machine, results, started)

    def collect(self, job: Job, display: Display) -> pa.Table:
        """All results with their keys. Keys are encoded here, since a row of the reference has its key as a tuple of
        Python's.
        """
        started, machine, rows = time.monotonic(), started_run(job.check()), []
        for some in pull(machine, job.feeds):
            rows += some
            display.update(metrics_of(machine, len(rows), started))
        keys = pa.array([total_order.encode(row.key) for row in rows], pa.binary())
        return table_of(rows, machine.bound.schema).append_column(KEY, keys)


def started_run(job: Job) -> Run:
    """A run of the reference that nothing was pushed to yet."""
    schemas = {name: feed.schema for name, feed in job.feeds.items()}
    return Run(job.query, schemas, max_pending=job.max_pending or MAX_PENDING)


def metrics_of(machine: Run, results: int, started: float) -> Metrics:
    """What the reference tells: it has no counters of its own, so that it shares none."""
    intakes = machine.intake.streams
    return Metrics(
        rows=sum(i.taken + len(i.late) + len(i.behind) for i in intakes.values()),
        results=results,
        late={name: len(intake.late) for name, intake in intakes.items()},
        behind={name: len(intake.behind) for name, intake in intakes.items()},
        frontier=machine.frontier,
        seconds=time.monotonic() - started,
    )
