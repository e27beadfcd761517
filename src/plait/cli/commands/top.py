"""`plait top`: what a page shows, in a terminal."""

from __future__ import annotations

import click

from plait.watch.serving import HOST, PORT

USUAL = f"http://{HOST}:{PORT}"


@click.command("top", short_help="Watch a run in the terminal: why its results wait.")
@click.argument("url", metavar="URL", default=USUAL)
@click.option("--once", is_flag=True, help="Show how it stands now, and end.")
@click.option(
    "--every", "every_s", metavar="SECONDS", type=click.FloatRange(0.2), default=1.0, help="How often; 1 without it."
)
def command(url: str, once: bool, every_s: float) -> None:
    """Watch a run in the terminal, as its page shows it.

    URL is where the page is: that of `plait run --page`, `plait.page(run)` or `plait.spark.page(query)`. Without it the usual
    place, http://127.0.0.1:4747. It ends with the run, or with Ctrl+C.

    \b
    Example:
        plait top http://127.0.0.1:4747
    """
    from plait.watch.top import watch

    watch(url, once=once, every_s=every_s)
