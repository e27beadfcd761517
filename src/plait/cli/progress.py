"""Progress for people: a live line on a terminal, plain lines elsewhere, nothing for short or quiet runs. On stderr."""

from __future__ import annotations

import datetime as dt
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

FIRST_LINE_S = 1.0
LINE_EVERY_S = 5.0


def moment(ts: int) -> str:
    """An event time for a person: ISO where it is a plausible date, else the count of microseconds."""
    if abs(ts) >= 2**62:
        return "start" if ts < 0 else "end of input"
    try:
        when = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=ts)
    except OverflowError:
        return f"{ts} us"
    return f"{when:%Y-%m-%d %H:%M:%S}" if when.year > 1970 else f"{ts / 1e6:g} s"


class Display:
    """`update` is called as often as one likes; it decides by itself when there is something to show."""

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

    def batch(self, number: int, rows: int, results: int, frontier: int, *, lag_us: int | None, buffered: int,
              state_bytes: int) -> None:  # fmt: skip
        """One micro-batch is done: a line each, or the live one. `rows` and `results` are totals."""
        lag = "" if lag_us is None else f" ({lag_us / 1e6:,.1f} s behind the newest)"
        note = (
            f"batch {number}: {rows:,} rows in, {results:,} results, frontier {moment(frontier)}{lag}, "
            f"{buffered:,} buffered, state {state_bytes / 1e6:,.1f} MB"
        )
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=rows, note=note)
        elif not self.quiet:
            print(f"{self.title}: {time.monotonic() - self.started:.0f} s, {note}", file=sys.stderr, flush=True)

    def update(self, rows: int, results: int, frontier: int, extra: str = "") -> None:
        """Tell how far the run is: a live line, or now and then a line of text.

        Args:
            rows: Rows that have come in so far.
            results: Results so far.
            frontier: The event time below which everything is known, in microseconds.
            extra: What else to say.
        """
        note = f"{rows:,} rows in, {results:,} results, frontier {moment(frontier)}" + (f", {extra}" if extra else "")
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=rows, note=note)
            return
        now = time.monotonic()
        due = LINE_EVERY_S if self.shown > self.started else FIRST_LINE_S
        if not self.quiet and now - self.shown >= due:
            self.shown = now
            share = f" ({100 * rows / self.total:.0f}%)" if self.total else ""
            print(f"{self.title}: {now - self.started:.0f} s, {note}{share}", file=sys.stderr, flush=True)
