"""Run a job on an executor, with progress, into a sink that holds either everything or nothing.

Each executor has two ways to be run here: `run` writes files and tells what it did, `collect` gives the whole result with its
keys, for comparisons. `_ENGINES` has both of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from plait import java
from plait import order as total_order
from plait.cli import spark_engine, threads_engine
from plait.cli.job import Job, Summary
from plait.cli.progress import Display
from plait.connectors import sinks
from plait.connectors.encoding import json_rows
from plait.errors import RunError
from plait.query.base import EXECUTORS, Query, has_executor
from plait.query.identical import KEY
from plait.reference.rows import table_of
from plait.reference.run import Run, pull

#: Tuples that may wait for the frontier before a run from files stops; in memory they are there anyway.
MAX_PENDING = 5_000_000


def available(query: Query | None = None) -> list[str]:
    """The executors that are here (and run this query), the best one first."""
    here: list[str] = [name for name in ("spark", "threads", "reference") if name in _ENGINES and has_executor(name)]
    if "spark" in here and (java.missing() is not None or not (query is None or spark_engine.supports(query))):
        here.remove("spark")
    if "threads" in here and not (query is None or threads_engine.supports(query)):
        here.remove("threads")
    return here


def choose(wanted: str | None, query: Query) -> str:
    """The engine that was asked for, or the best there is.

    Raises:
        RunError: It is not here, or does not run this query; the message says which do.
    """
    here = available(query)
    if wanted is None:
        return here[0]
    if wanted not in EXECUTORS or wanted not in here:
        line = java.missing() if wanted == "spark" else threads_engine.refused(query) if wanted == "threads" else None
        raise RunError(
            f"There is no engine {wanted!r} for this query here", why=line or "", do=f"Use one of: {', '.join(here)}"
        )
    return wanted


def run(job: Job, *, engine: str | None, output: str, late: str | None, quiet: bool) -> Summary:
    """Run into files. Nothing stands under the final names unless the run came to its end.

    Args:
        job: What to run.
        engine: The executor's name; None: the job's choice, or the best there is.
        output: Where results go; `-` is standard output.
        late: Where late rows go, or None.
        quiet: Show no progress.

    Returns:
        What the run did.
    """
    name = choose(engine or job.engine, job.query)
    for target in (output, late):
        if target is not None:
            sinks.check_path(target)
    return _ENGINES[name][0](job, output, late, quiet)


def _run_reference(job: Job, output: str, late: str | None, quiet: bool) -> Summary:
    """Pull the feeds through the reference, and write results as they come."""
    started = time.monotonic()
    feeds = job.check().feeds
    machine = Run(job.query, {n: f.schema for n, f in feeds.items()}, max_pending=job.max_pending or MAX_PENDING)
    schema, results = machine.bound.schema, 0
    display = Display(f"{job.title} on reference", total=_total(job), quiet=quiet)
    with display, sinks.open_sink(output, schema) as sink:
        for rows in pull(machine, feeds):
            if rows:
                results += len(rows)
                sink.write(table_of(rows, schema))
            display.update(_rows_in(machine), results, machine.frontier)
        if late is not None:
            write_late({name: intake.late_table() for name, intake in machine.intake.streams.items()}, late)
    intakes = machine.intake.streams.values()
    return Summary(
        engine="reference",
        rows=_rows_in(machine),
        results=results,
        late=sum(len(i.late) for i in intakes),
        behind=sum(len(i.behind) for i in intakes),
        seconds=time.monotonic() - started,
    )


def collect(engine: str, job: Job, display: Display) -> pa.Table:
    """The whole result, in memory, with its keys."""
    return _ENGINES[engine][1](job, display)


def _collect_reference(job: Job, display: Display) -> pa.Table:
    """The whole result of the reference, with its keys."""
    feeds = job.check().feeds
    machine = Run(job.query, {n: f.schema for n, f in feeds.items()}, max_pending=job.max_pending or MAX_PENDING)
    rows = []
    for some in pull(machine, feeds):
        rows += some
        display.update(_rows_in(machine), len(rows), machine.frontier)
    keys = pa.array([total_order.encode(row.key) for row in rows], pa.binary())
    return table_of(rows, machine.bound.schema).append_column(KEY, keys)


_ENGINES: dict[str, tuple[Callable[[Job, str, str | None, bool], Summary], Callable[[Job, Display], pa.Table]]] = {
    "reference": (_run_reference, _collect_reference),
    "spark": (spark_engine.run, spark_engine.collect),
    "threads": (threads_engine.run, threads_engine.collect),
}


def write_late(tables: Mapping[str, pa.Table], path: str) -> None:
    """Late rows of all streams, one file: the stream's name and the row as JSON text, since schemas differ."""
    schema = pa.schema([("stream", pa.string()), ("row", pa.string())])
    with sinks.open_sink(path, schema) as sink:
        for name, table in tables.items():
            for line in json_rows(table):
                sink.write(pa.record_batch([[name], [line]], schema=schema))


def _total(job: Job) -> int | None:
    """How many rows there are, if all feeds know."""
    counts = [feed.rows for feed in job.feeds.values()]
    return None if any(c is None for c in counts) else sum(c for c in counts if c is not None)


def _rows_in(machine: Run) -> int:
    """How many rows have come in so far, those that were dropped included."""
    return sum(i.taken + len(i.late) + len(i.behind) for i in machine.intake.streams.values())
