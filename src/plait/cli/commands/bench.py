"""`plait bench`: the benchmarks, which are a package of their own (`plait_bench`) and no part of the product."""

from __future__ import annotations

import inspect
import json

import click

from plait.errors import QueryError, RunError


@click.command("bench")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of standard output.")
@click.option("--quick", is_flag=True, help="Smaller sizes: a look, not a measurement.")
@click.option(
    "--full", is_flag=True, help="The papers' own sizes, where a benchmark has them: it may take half an hour."
)
def command(name: str | None, as_json: bool, quick: bool, full: bool) -> None:
    """Measure plait beside its peers, on the same data, in one run.

    NAME is one of the benchmarks. Without it they are listed.

    \b
    Example:
        plait bench
    """
    try:
        import plait_bench as benchmarks
    except ModuleNotFoundError as error:
        if error.name != "plait_bench":
            raise
        raise RunError(
            "The benchmarks are not installed",
            why="they are no part of the product, nor are the peers that they measure",
            do='In a clone of plait: pip install ".[bench]" ./benchmarks (make setup does it)',
        ) from None
    if name is None:
        for known in benchmarks.names():
            click.echo(known)
        return
    measure = benchmarks.load(name)
    if quick and full:
        raise QueryError(
            "--quick with --full", why="one asks for less than usual, the other for more", do="Leave one out"
        )
    if full and "full" not in inspect.signature(measure).parameters:
        raise QueryError(
            f"--full with {name!r}", why="it has no sizes besides its own and --quick", do="Leave --full out"
        )
    result = measure(quick=quick, **({"full": True} if full else {}))
    if as_json:
        click.echo(json.dumps(result))
    else:
        benchmarks.report(result)
