"""`plait explain`: what a query computes, and how it would be run."""

from __future__ import annotations

import click

from plait.cli import options
from plait.cli.job import Job
from plait.errors import RunError
from plait.query.base import has_executor
from plait.query.bind import Bound
from plait.query.join import Join


@click.command("explain", short_help="Say what a query computes, and how.")
@options.file
@click.option(
    "--executors",
    type=click.IntRange(min=1),
    metavar="N",
    help="Say, too, what N executors of Spark would be sent and hold, by the first rows of FILE, and where that stops to pay.",
)
def command(file: str, inputs: tuple[str, ...], executors: int | None) -> None:
    """Say what the query of FILE computes, and what its results look like.

    Without rows for every stream, in FILE or by --input, the columns of the results are not shown.

    \b
    Example:
        plait explain examples/meters.toml
        plait explain examples/band_join.toml --executors 8
    """
    from plait.cli.execute import available
    from plait.cli.job import load
    from plait.query.bind import bind
    from plait.query.row_by_row import rooted

    job = load(file, options.pairs(inputs))
    click.echo(job.query.explain())
    if set(job.feeds) == set(job.query.streams()):
        query = rooted(job.query)
        bound = bind(query, {name: feed.schema for name, feed in job.feeds.items()})
        click.echo("result: " + ", ".join(f"{field.name} {field.type}" for field in bound.schema))
        for line in _kernels(bound):
            click.echo(line)
        if "threads" in available(job.query):
            from plait.threads.bounded import run as bounded
            from plait.threads.options import Options
            from plait.threads.plan import described, labelled, steps

            schemas = {name: feed.schema for name, feed in job.feeds.items()}
            made = steps(query, Options(schemas=schemas))
            plans = [(labelled(step.query), step.plan) for step in made]
            for line in [*described(plans), *_compiled(bound), bounded.described(bound)]:
                click.echo(line)
    click.echo(f"executors: {', '.join(available(job.query))}")
    if executors is not None:
        for line in _on_executors(job, executors):
            click.echo(line)


def _on_executors(job: Job, executors: int) -> list[str]:
    """What so many executors of Spark would be sent and hold: cells take the first rows in this process."""
    if not has_executor("spark"):
        raise RunError(
            "Spark is not installed", why="the cells that are counted are its", do="pip install 'plait[spark]'"
        )
    from plait.spark.keep.counting import ROWS_LOOKED_AT, counted
    from plait.spark.keep.projection import lines

    job.check()
    return lines(
        counted(job.query, job.feeds), executors, f"{job.title}, its first {ROWS_LOOKED_AT:,} rows a stream at most"
    )


def _kernels(bound: Bound) -> list[str]:
    """How the kernels see a join's condition: its terms, and the index they would begin with."""
    from plait.core.join.window import JoinWindow

    if not isinstance(bound.node, Join) or bound.predicate is None:
        return []
    left, right = (each.schema for each in bound.inputs)
    return [f"kernels: {line}" for line in JoinWindow(bound.predicate, left, right, bound.node.window).describe()]


def _compiled(bound: Bound) -> list[str]:
    """Whether an operator's functions are compiled, and if not, why."""
    from plait.query.operator import Operator

    if not isinstance(bound.node, Operator):
        return []
    from plait.core.operator.compiled import made_for

    made, why = made_for(bound, None)
    return made.describe() if made is not None else [f"the operator's functions run in plain Python: {why}"]
