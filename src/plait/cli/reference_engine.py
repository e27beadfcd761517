"""Jobs on the reference: lanes are pulled as the frontier asks for them, results are written as they come."""

from __future__ import annotations

import time

import pyarrow as pa

from plait import order as total_order
from plait.cli import feeds
from plait.cli.job import Job
from plait.cli.progress import Display
from plait.connectors import sinks
from plait.core.metrics import Metrics
from plait.query.base import Query
from plait.query.identical import KEY
from plait.reference.rows import table_of
from plait.reference.run import Run, pull

#: Tuples that may wait for the frontier before a run from files stops; in memory they are there anyway.
MAX_PENDING = 5_000_000


class ReferenceEngine:
    name = "reference"

    def missing(self) -> str | None:
        return None

    def refuses(self, query: Query) -> str | None:
        return None

    def run(self, job: Job, output: str, late: str | None, quiet: bool) -> Metrics:
        started = time.monotonic()
        machine, results = started_run(job.check()), 0
        schema = machine.bound.schema
        display = Display(f"{job.title} on reference", total=feeds.rows_of(job), quiet=quiet)
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
        started, machine, rows = time.monotonic(), started_run(job.check()), []
        for some in pull(machine, job.feeds):
            rows += some
            display.update(metrics_of(machine, len(rows), started))
        keys = pa.array([total_order.encode(row.key) for row in rows], pa.binary())
        return table_of(rows, machine.bound.schema).append_column(KEY, keys)


def started_run(job: Job) -> Run:
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
