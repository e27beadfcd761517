"""`plait demo`: a band join and an aggregate over made-up feeds, small enough for the slowest executor.

It uses the best executor that is here, so that the first command a user types works after any install. Seeds are fixed:
the fingerprints it prints are the same everywhere.
"""

from __future__ import annotations

import datetime as dt
import time

import click
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import plait
from plait.cli import options
from plait.cli.execute import available, collect
from plait.cli.job import Job
from plait.cli.progress import Display
from plait.connectors import synthetic
from plait.core.metrics import moment
from plait.query.base import Query
from plait.query.identical import KEY, digest

SHOWN_ROWS = 8

#: A title, what it is, the work, and the columns to show.
Part = tuple[str, str, Job, list[str]]


@click.command("demo")
@options.quiet
def command(quiet: bool) -> None:
    """Run a small band join and an aggregate, and show the results.

    \b
    Example:
        plait demo
    """
    console = Console(quiet=quiet)
    console.print(
        "[bold]plait[/bold] joins and aggregates streams: same rows, same order, however they are delivered.\n"
    )
    for title, text, job, columns in (_band_join(), _aggregate()):
        engine = available(job.query)[0]
        console.print(f"[bold]{title}[/bold] on the {engine} executor: {text}")
        console.print(job.query.explain(), style="dim", highlight=False)
        started = time.monotonic()
        with Display(title, total=_rows(job), quiet=quiet) as display:
            result = collect(engine, job, display).drop_columns([KEY])
        seconds = time.monotonic() - started
        console.print(_table(result.select(columns)))
        console.print(
            f"{_rows(job):,} tuples in, {len(result):,} results in {seconds:.1f} s; fingerprint {digest(result)[:16]} "
            "(the same on every run and machine)\n"
        )
    console.print("Next: write a query of your own (README), then `plait run`, `plait explain` and `plait verify` it.")


def _rows(job: Job) -> int:
    """How many tuples the feeds have; made-up ones always know."""
    return sum(feed.rows or 0 for feed in job.feeds.values())


def _band_join() -> Part:
    """The papers' benchmark, shortened; the bands are wider so that a small window shows some results."""
    work = synthetic.band_join(left=40, right=40, seconds=40, seed=7)
    r, s = (plait.stream(name, **declared) for name, declared in work.declarations.items())
    query = plait.join(r, s, on=lambda r, s: (abs(r.x - s.a) <= 300) & (abs(r.y - s.b) <= 300), within="5s")
    text = "readings of two sensors that are near in time and in two values"
    columns = ["ts", "stream_r_ts", "x", "y", "stream_s_ts", "a", "b"]
    return "Band join", text, Job("band join", query, work.feeds), columns


def _aggregate() -> Part:
    """The papers' energy readings: meters whose messages come through any of several concentrators."""
    work = synthetic.energy(readings_per_second=40, meters=12, seconds=120, seed=7)
    readings = plait.stream("readings", **work.declarations["readings"])
    query: Query = plait.aggregate(
        readings,
        size="30s",
        advance="10s",
        by="meter",
        compute={"n": plait.count(), "mean": plait.mean("cons"), "first": plait.first("cons")},
    )
    feeds = {"readings": work.feeds["readings"]}
    text = "per meter, over sliding windows, readings that come through several concentrators"
    columns = ["window_start", "window_end", "meter", "n", "mean", "first"]
    return "Aggregate", text, Job("aggregate", query, feeds), columns


def _table(result: pa.Table) -> Table:
    """The first rows of a result, for a terminal."""
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in result.column_names:
        numeric = pa.types.is_integer(result.schema.field(name).type) or pa.types.is_floating(
            result.schema.field(name).type
        )
        shown.add_column(name, justify="right" if numeric else "left", no_wrap=True, overflow="ellipsis")
    for row in result.slice(0, SHOWN_ROWS).to_pylist():
        shown.add_row(*(_cell(value) for value in row.values()))
    if len(result) > SHOWN_ROWS:
        shown.add_row(*("..." for _ in result.column_names))
    return shown


def _cell(value: object) -> str:
    """A value as short as it can be: two digits behind the point, times of day."""
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dt.datetime):
        return f"{moment(int(value.timestamp()) * 1_000_000)[11:]}.{value.microsecond // 1000:03d}"
    return str(value)
