"""Progress for people: a live line on a terminal, plain lines elsewhere, nothing for short or quiet runs. On stderr.

What it shows is `core.metrics.progress`: the same words for every executor. Standard output is for results alone, so a
pipe gets no progress. Without a terminal the first line comes after a second, then one every five; on Spark one a micro-batch.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from plait.core import metrics
from plait.core.metrics import Metrics

FIRST_LINE_S = 1.0
LINE_EVERY_S = 5.0


class Display:
    """`update` is called as often as one likes; it decides by itself when there is something to show.

    Use it in a `with` block: leaving it takes the live line away.

    Attributes:
        total: How many rows there are to come, for the bar; None if that is not known.
        live: Rich's display, on a terminal and unless quiet; else None.
        shown: When a line was last written. It equals `started` as long as none was.
    """

    def __init__(self, title: str, *, total: int | None = None, quiet: bool = False) -> None:
        self.title, self.total, self.quiet = title, total, quiet
        self.console = Console(stderr=True)
        self.live: Progress | None = None
        self.task: TaskID | None = None
        self.started = self.shown = time.monotonic()

    def __enter__(self) -> Self:
        if not self.quiet and self.console.is_terminal:
            bar = [BarColumn(bar_width=10), TextColumn("{task.percentage:>3.0f}%")] if self.total else []
            self.live = Progress(
                SpinnerColumn(), TextColumn("{task.description}"), *bar, TimeElapsedColumn(),
                # On a narrow terminal it goes over several lines, whole.
                TextColumn("{task.fields[note]}", table_column=Column(ratio=1)), console=self.console, transient=True,
            )  # fmt: skip
            self.live.start()
            self.task = self.live.add_task(self.title, total=self.total, note="")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, what: str) -> None:
        """What is going on before there are rows to count."""
        if self.live is not None and self.task is not None:
            self.live.update(self.task, note=what)
        elif not self.quiet:
            print(f"{self.title}: {what}", file=sys.stderr, flush=True)

    def batch(self, number: int, run: Metrics) -> None:
        """A micro-batch is done: a line each, or the live one."""
        self._show(f"batch {number}: {metrics.progress(run)}", run)

    def update(self, run: Metrics) -> None:
        """Tell how far the run is: a live line, or now and then a line of text."""
        now = time.monotonic()
        due = LINE_EVERY_S if self.shown > self.started else FIRST_LINE_S
        if self.live is None and (self.quiet or now - self.shown < due):
            return
        share = f" ({100 * run.rows / self.total:.0f}%)" if self.total and self.live is None else ""
        self._show(metrics.progress(run) + share, run)

    def _show(self, note: str, run: Metrics) -> None:
        """The live line, or a line of text."""
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=run.rows, note=note)
        elif not self.quiet:
            self.shown = time.monotonic()
            print(f"{self.title}: {self.shown - self.started:.0f} s, {note}", file=sys.stderr, flush=True)
