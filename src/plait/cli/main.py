"""The command. Exit codes: 0 done, 1 `verify` found a difference, 2 bad input or usage, 3 a fault of plait's own."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

import plait
from plait.errors import PlaitError, RunError
from plait.query.bind import Bound
from plait.query.join import Join

DIFFERENT, BAD_INPUT, FAULT, INTERRUPTED = 1, 2, 3, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(plait.__version__, prog_name="plait")
def cli() -> None:
    """Deterministic windowed joins and aggregates over many streams."""


def _file(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument FILE and the option --input, which most commands have."""
    command = click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME=PATH",
        help="Read the stream NAME from this file or folder, whatever FILE says; as often as needed.",
    )(command)
    return click.argument("file", metavar="FILE")(command)


_quiet = click.option("--quiet", "-q", is_flag=True, help="Show no progress and no summary, only errors.")


@cli.command()
@_quiet
def demo(quiet: bool) -> None:
    """Run a small band join and an aggregate, and show the results.

    \b
    Example:
        plait demo
    """
    from plait.cli.demo import demo as run_demo

    run_demo(quiet=quiet, console=Console(quiet=quiet))


@cli.command(short_help="Run a query to the end of its input.")
@_file
@click.option("--engine", metavar="NAME", help="reference, threads or spark; the file's choice, or the best there is.")
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    help="Where results go: .parquet, .csv, .jsonl, or - for standard output; the file's choice, or -.",
)
@click.option(
    "--late", metavar="PATH", help="Where late rows go, as JSON, if a stream has late='drop'; the file's choice."
)
@_quiet
def run(
    file: str, inputs: tuple[str, ...], engine: str | None, output: str | None, late: str | None, quiet: bool
) -> None:
    """Run the query of FILE to the end of its input.

    FILE is TOML, or Python that defines `query`. A file of results appears whole when the run has ended, or not at all.

    \b
    Example:
        plait run examples/band_join.toml --engine reference -o near.parquet
    """
    from plait.cli import execute
    from plait.cli.job import load

    job = load(file, _pairs(inputs))
    target = output or job.output or "-"
    summary = execute.run(job, engine=engine, output=target, late=late or job.late, quiet=quiet)
    if not quiet:
        dropped = "".join(
            f", {count:,} {kind} rows dropped"
            for kind, count in (("late", summary.late), ("behind", summary.behind))
            if count
        )
        where = "standard output" if target == "-" else target
        click.echo(
            f"{summary.rows:,} rows in, {summary.results:,} results to {where}{dropped}, "
            f"{summary.seconds:.1f} s on {summary.engine}",
            err=True,
        )


@cli.command(short_help="Compare every executor there is, byte for byte.")
@_file
@_quiet
def verify(file: str, inputs: tuple[str, ...], quiet: bool) -> None:
    """Run FILE on every executor there is and compare the results byte for byte.

    The reference also runs twice with rows delivered in random pieces and turns. The exit code is 1 if anything differs.

    \b
    Example:
        plait verify examples/meters.toml
    """
    from plait.cli.job import load
    from plait.cli.verify import verify as run_verify

    fingerprint, verdicts = run_verify(load(file, _pairs(inputs)), quiet=quiet)
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


@cli.command(short_help="Say what a query computes, and how.")
@_file
def explain(file: str, inputs: tuple[str, ...]) -> None:
    """Say what the query of FILE computes, and what its results look like.

    If FILE gives no rows of a stream, pass --input; else the columns of the results are not shown.

    \b
    Example:
        plait explain examples/meters.toml
    """
    from plait.cli.execute import available
    from plait.cli.job import load
    from plait.query.bind import bind

    job = load(file, _pairs(inputs))
    click.echo(job.query.explain())
    if set(job.feeds) == set(job.query.streams()):
        bound = bind(job.query, {name: feed.schema for name, feed in job.feeds.items()})
        click.echo("result: " + ", ".join(f"{field.name} {field.type}" for field in bound.schema))
        for line in _kernels(bound):
            click.echo(line)
        if "threads" in available(job.query):
            from plait.threads.options import Options
            from plait.threads.plan import described, labelled, steps

            schemas = {name: feed.schema for name, feed in job.feeds.items()}
            made = steps(job.query, Options(schemas=schemas))
            for line in [*described([(labelled(step.query), step.plan) for step in made]), *_compiled(bound)]:
                click.echo(line)
    click.echo(f"executors: {', '.join(available(job.query))}")


def _compiled(bound: Any) -> list[str]:
    """Whether an operator's functions are compiled, and if not, why."""
    from plait.query.operator import Operator

    if not isinstance(bound.node, Operator):
        return []
    from plait.core.operator.compiled import made_for

    made, why = made_for(bound, None)
    return made.describe() if made is not None else [f"the operator's functions run in plain Python: {why}"]


@cli.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of standard output.")
@click.option("--quick", is_flag=True, help="Smaller sizes: a look, not a measurement.")
def bench(name: str | None, as_json: bool, quick: bool) -> None:
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
    result = benchmarks.load(name)(quick=quick)
    if as_json:
        click.echo(json.dumps(result))
    else:
        benchmarks.report(result)


def _kernels(bound: Bound) -> list[str]:
    """How the kernels see a join's condition: its terms, and the index they would begin with."""
    from plait.core.join.window import JoinWindow

    if not isinstance(bound.node, Join) or bound.predicate is None:
        return []
    left, right = (each.schema for each in bound.inputs)
    return [f"kernels: {line}" for line in JoinWindow(bound.predicate, left, right, bound.node.window).describe()]


def _pairs(inputs: tuple[str, ...]) -> dict[str, str]:
    """The values of --input, by stream."""
    for given in inputs:
        if "=" not in given:
            raise click.BadParameter(f"{given!r} is not NAME=PATH", param_hint="--input")
    return dict(given.split("=", 1) for given in inputs)


def main() -> None:
    """Entry point: errors on purpose are one message and exit code 2; anything else is a fault of plait's."""
    try:
        cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(BAD_INPUT)
    except PlaitError as error:
        click.echo(f"plait: {error}", err=True)
        sys.exit(BAD_INPUT)
    except (KeyboardInterrupt, click.Abort):
        click.echo("plait: interrupted; nothing was left under the final name", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output went away: what a pipe into `head` does.
        sys.stderr.close()
        sys.exit(0)
    except Exception:
        traceback.print_exc()
        click.echo("plait: this is a fault of plait's own; please report it with the lines above", err=True)
        sys.exit(FAULT)


if __name__ == "__main__":
    main()
