"""`plait explain`: what a query computes, and how it would be run."""

from __future__ import annotations

import click

from plait.cli import options
from plait.query.bind import Bound
from plait.query.join import Join


@click.command("explain", short_help="Say what a query computes, and how.")
@options.file
def command(file: str, inputs: tuple[str, ...]) -> None:
    """Say what the query of FILE computes, and what its results look like.

    Without rows for every stream, in FILE or by --input, the columns of the results are not shown.

    \b
    Example:
        plait explain examples/meters.toml
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
