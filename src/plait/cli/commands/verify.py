"""Run a job on every executor there is, and on the reference under other deliveries, and compare byte for byte."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click
import pyarrow as pa

from plait import order as total_order
from plait.cli import options
from plait.cli.execute import available, collect
from plait.cli.exit_codes import DIFFERENT
from plait.cli.job import Job
from plait.cli.progress import Display
from plait.cli.reference_engine import metrics_of, started_run
from plait.connectors.contract import Chunk
from plait.query.identical import KEY, Difference, difference, digest
from plait.reference.rows import table_of


@click.command("verify", short_help="Compare every executor there is, byte for byte.")
@options.file
@options.quiet
def command(file: str, inputs: tuple[str, ...], quiet: bool) -> None:
    """Run FILE on every executor there is and compare the results byte for byte.

    The reference also runs twice with rows delivered in random pieces and turns. The exit code is 1 if anything differs.

    \b
    Example:
        plait verify examples/meters.toml
    """
    from plait.cli.job import load

    fingerprint, verdicts = verify(load(file, options.pairs(inputs)), quiet=quiet)
    width = max(len(v.contender) for v in verdicts)
    for verdict in verdicts:
        state = "DIFFERENT" if verdict.difference else "identical" if verdict.contender != "reference" else "expected"
        if not quiet or verdict.difference:
            click.echo(f"{verdict.contender:{width}}  {verdict.rows:>10,} rows  {state}")
        if verdict.difference is not None:
            at = "" if verdict.difference.row is None else f" at row {verdict.difference.row}"
            click.echo(f"  first difference{at} ({verdict.difference.what})")
            click.echo(f"    expected  {verdict.difference.expected}\n    got       {verdict.difference.got}")
    if any(v.difference for v in verdicts):
        sys.exit(DIFFERENT)
    if not quiet:
        click.echo(f"identical, fingerprint {fingerprint[:16]}")


@dataclass(frozen=True)
class Verdict:
    """One contender held against the reference."""

    contender: str
    rows: int
    difference: Difference | None


def verify(job: Job, *, quiet: bool, seeds: tuple[int, ...] = (1, 2)) -> tuple[str, list[Verdict]]:
    """Run a job on every executor and under other deliveries, and compare.

    Args:
        job: What to run.
        quiet: Show no progress.
        seeds: Of the random deliveries to the reference.

    Returns:
        The reference's fingerprint, and a verdict for each contender.

    The reference is compared strictly under other deliveries. An executor is compared as the job's `order` asks: with
    "none", rows are compared as a set with repetition. Spark runs in a folder of its own, so nothing is left behind.
    """
    job.check()
    with Display(f"{job.title} on reference", quiet=quiet) as display:
        expected = collect("reference", job, display)
    verdicts = [Verdict("reference", len(expected), None)]
    for seed in seeds:
        with Display(f"{job.title}, delivery {seed}", quiet=quiet) as display:
            got = _delivered_at_random(job, seed, display)
        verdicts.append(Verdict(f"reference, random delivery (seed {seed})", len(got), difference(expected, got)))
    for engine in available(job.query):
        if engine != "reference":
            with Display(f"{job.title} on {engine}", quiet=quiet) as display:
                got = collect(engine, job, display)
            verdicts.append(Verdict(engine, len(got), difference(expected, got, job.order)))
    return digest(expected.drop_columns([KEY])), verdicts


def _delivered_at_random(job: Job, seed: int, display: Display) -> pa.Table:
    """Lanes pulled in random turns, their rows cut at random: what the law says can't show."""
    dice, started = random.Random(seed), time.monotonic()
    run = started_run(job)
    lanes = []
    for name, feed in job.feeds.items():
        intake = run.intake.streams[name]
        for lane in feed.lanes:
            if lane.source is not None and intake.stream.source_column is None:
                intake.know(lane.source)
            lanes.append((name, lane.source, _cut(lane.read(), dice)))
    rows = []
    while lanes:
        at = dice.randrange(len(lanes))
        name, source, chunks = lanes[at]
        chunk = next(chunks, None)
        if chunk is None:
            del lanes[at]
            if source is not None:
                run.end(name, source=source)
            elif name not in [lane[0] for lane in lanes]:
                run.end(name)
        else:
            run.push(name, chunk.batch, source=source, where=chunk.where, first_row=chunk.first_row)
        rows += run.take()
        display.update(metrics_of(run, len(rows), started))
    run.close()
    rows += run.take()
    keys = pa.array([total_order.encode(row.key) for row in rows], pa.binary())
    return table_of(rows, run.bound.schema).append_column(KEY, keys)


def _cut(chunks: Iterator[Chunk], dice: random.Random) -> Iterator[Chunk]:
    """The same rows in pieces of random sizes."""
    for chunk in chunks:
        at = 0
        while at < chunk.batch.num_rows:
            size = dice.choice((1, 7, 100, 5000))
            yield Chunk(chunk.batch.slice(at, size), chunk.where, chunk.first_row + at)
            at += size
