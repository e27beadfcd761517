"""`plait calibrate`: what this machine takes for each step that the papers' models name, measured, shown and kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from plait.cli import options
from plait.errors import RunError

if TYPE_CHECKING:
    from plait.core.calibration import Calibration


@click.command("calibrate", short_help="Measure what this machine takes for each step; `auto` goes by it.")
@click.option("--show", is_flag=True, help="Measure nothing; print what is kept.")
@click.option("--forget", is_flag=True, help="Measure nothing; delete what is kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--quick", is_flag=True, help="A tenth of the work: a look. Nothing is kept.")
@options.quiet
def command(show: bool, forget: bool, as_json: bool, quick: bool, quiet: bool) -> None:
    """Measure what this machine takes for each step of a join and an aggregate, and keep it for `auto`.

    It takes about a minute, in which the machine should have nothing else to do. What is measured is kept in the user's cache
    folder, for this machine. From then on runs on threads choose by the papers' models where these can tell (docs/models.md),
    and `plait explain` says so. Results never depend on it.

    \b
    Example:
        plait calibrate --quick
    """
    from plait.core import calibration

    if forget:
        calibration.forget()
        return
    if show:
        found = calibration.kept()
        if found is None:
            raise RunError(
                f"No calibration is kept for this machine ({calibration.this_machine()})",
                why="it was not measured, or the file is damaged, of another version or of another machine",
                do="Run `plait calibrate`",
            )
    else:
        from plait.cli.measuring import measure

        progress = Console(stderr=True, quiet=quiet)
        found = measure(lambda words: progress.print(f"measuring: {words}", style="dim"), quick=quick)
    if as_json:
        click.echo(json.dumps(asdict(found)))
    elif not quiet or show:
        Console().print(_table(found))
    if not show and not quick:
        path = calibration.keep(found)
        if not quiet:
            click.echo(f"kept in {path}", err=True)


def _table(found: Calibration) -> Table:
    from plait.core.calibration import duration

    shown = Table(
        box=None, header_style="bold", pad_edge=False, title=f"{found.machine}, {found.measured}", title_justify="left"
    )
    shown.add_column("what")
    shown.add_column("takes", justify="right", no_wrap=True)
    shown.add_column("symbol in the papers", style="dim")
    for words, symbol, seconds in found.costs.described():
        shown.add_row(words, duration(seconds), symbol)
    shown.add_row("comparisons a second of one worker", f"{found.costs.c_max:,.0f}", "C_max")
    return shown
