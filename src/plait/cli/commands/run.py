"""`plait run`: a query to the end of its input, into a file or standard output."""

from __future__ import annotations

import click

from plait.cli import options
from plait.core import metrics
from plait.core.metrics import Metrics


class WithPage(click.Command):
    """A command whose `--page` may stand without a value: what follows it is FILE, and no place."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Click's own, for the arguments with `--page=` where there was `--page`."""
        return super().parse_args(ctx, ["--page=" if each == "--page" else each for each in args])


@click.command("run", cls=WithPage, short_help="Run a query to the end of its input.")
@options.file
@click.option("--engine", metavar="NAME", help="reference, threads or spark; the file's choice, or the best there is.")
@click.option(
    "--output",
    "-o",
    metavar="PATH",
    help="Where results go: .parquet, .csv, .jsonl, or - for standard output; the file's choice, or -.",
)
@click.option(
    "--late",
    metavar="PATH",
    help="File for late rows, each as JSON text, if a stream has late='drop'; the file's choice.",
)
@click.option(
    "--page",
    metavar="[=[HOST:]PORT]",
    help="Serve a page that shows what the run does, while it does: on 127.0.0.1:4747, or the next port that is free.",
)
@click.option("--log-json", is_flag=True, help="Progress as lines of JSON on stderr, one a record.")
@options.quiet
def command(
    file: str, inputs: tuple[str, ...], engine: str | None, output: str | None, late: str | None, page: str | None,
    log_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Run the query of FILE to the end of its input.

    FILE is TOML, SQL with its streams in TOML beside it or in its first lines, or Python that defines `query`. A file of results
    appears whole when the run has ended, or not at all.

    \b
    Example:
        plait run examples/band_join.toml --engine reference -o near.parquet
    """
    from plait.cli import execute
    from plait.cli.job import load
    from plait.cli.progress import Show

    job = load(file, options.pairs(inputs))
    target = output or job.output or "-"
    made = execute.choose(engine or job.engine, job.query)
    run = execute.run(job, made, output=target, late=late or job.late, show=Show(quiet, page, log_json))
    if not quiet and not log_json:
        click.echo(last_line(run, target, made), err=True)


def last_line(run: Metrics, target: str, engine: str) -> str:
    """What a run did, in one line."""
    where = "standard output" if target == "-" else target
    told = [f"{run.rows:,} rows in", f"{run.results:,} results to {where}", *metrics.summary(run)]
    return f"{', '.join(told)}, {run.seconds:.1f} s on {engine}"
