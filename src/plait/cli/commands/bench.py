"""`plait bench`: the benchmarks, which are a package of their own (`plait_bench`) and no part of the product."""

from __future__ import annotations

import inspect
import json
from typing import Any

import click

from plait.cli import exit_codes
from plait.errors import QueryError, RunError

#: Why a benchmark does not take an option.
WITHOUT = {
    "full": "it has no sizes besides its own and --quick",
    "only": "it is one study",
    "out": "it writes no file",
    "resume": "it keeps nothing",
}


@click.command("bench")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of standard output.")
@click.option("--quick", is_flag=True, help="Smaller sizes: a look, not a measurement.")
@click.option(
    "--full", is_flag=True, help="The papers' own sizes, where a benchmark has them: it may take half an hour."
)
@click.option(
    "--only",
    multiple=True,
    metavar="STUDY",
    help="Of papers: a study (scalejoin-5) or a paper; of spark-join: a case. Repeatable.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False), help="Of papers: where the report goes. Its data lie beside it."
)
@click.option("--resume", is_flag=True, help="Of papers: do not measure again what the report's data have already.")
def command(name: str | None, as_json: bool, **options: Any) -> None:
    """Measure plait beside its peers, on the same data, in one run.

    NAME is one of the benchmarks. Without it they are listed. `papers` is all figures of the papers, as a page; it ends with
    1 where a shape that a paper claims does not hold.

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
    given = {option: value for option, value in options.items() if value}
    if options["quick"] and options["full"]:
        raise QueryError(
            "--quick with --full", why="one asks for less than usual, the other for more", do="Leave one out"
        )
    for option in given:
        if option not in inspect.signature(measure).parameters:
            raise QueryError(f"--{option} with {name!r}", why=WITHOUT[option], do=f"Leave --{option} out")
    result = measure(**given)
    if as_json:
        click.echo(json.dumps(result))
    else:
        benchmarks.report(result)
    if result.get("failed"):
        raise SystemExit(exit_codes.DIFFERENT)
