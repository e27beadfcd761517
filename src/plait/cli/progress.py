"""Progress for people: a live line on a terminal, plain lines elsewhere, nothing for short or quiet runs. On stderr.

What it shows is `core.metrics.progress`: the same words for every executor, and where results are held back the sentence of
`core.held`. Standard output is for results alone, so a pipe gets no progress. Without a terminal the first line comes after a
second, then one every five; on Spark one a micro-batch. With `--log-json` lines are JSON (`watch.log`), and with `--page` the run
has a page while it is displayed (`watch.serving`).
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from plait.core import held, metrics
from plait.core.metrics import Metrics
from plait.errors import QueryError
from plait.watch import log
from plait.watch.serving import HOST, Page
from plait.watch.watched import Watched

FIRST_LINE_S = 1.0
LINE_EVERY_S = 5.0


@dataclass(frozen=True)
class Show:
    """What is shown of a run, and where.

    Attributes:
        quiet: Nothing but errors.
        page: Where a page is served: "PORT", "HOST:PORT", or "" for the usual place. None: nowhere.
        log_json: Lines on stderr are JSON.
    """

    quiet: bool = False
    page: str | None = None
    log_json: bool = False

    def place(self) -> tuple[str, int | None]:
        """The host and the port of the page; no port is the usual one, or the next that is free."""
        host, colon, port = (self.page or "").rpartition(":")
        if not colon and not port.isdigit():
            host, port = port, ""
        if (port and not port.isdigit()) or (port and int(port) > 65535):
            raise QueryError(f"--page={self.page} is no place", do="Write --page, --page=PORT or --page=HOST:PORT")
        return host.strip("[]") or HOST, int(port) if port else None


class Display:
    """`update` is called as often as one likes; it decides by itself when there is something to show.

    Use it in a `with` block: leaving it takes the live line away.

    Attributes:
        total: How many rows there are to come, for the bar; None if that is not known.
        live: Rich's display, on a terminal and unless quiet; else None.
        shown: When a line was last written. It equals `started` as long as none was.
    """

    def __init__(self, title: str, *, total: int | None = None, quiet: bool = False, show: Show | None = None) -> None:
        self.show = show or Show(quiet)
        self.title, self.total, self.quiet = title, total, self.show.quiet
        self.page: Page | None = None
        self._log: logging.Handler | None = None
        self._tell: Callable[[], Metrics] | None = None
        self._last = Metrics(phase=metrics.STARTING)
        self.console = Console(stderr=True)
        self.live: Progress | None = None
        self.task: TaskID | None = None
        self.started = self.shown = time.monotonic()

    def follow(self, tell: Callable[[], Metrics]) -> None:
        """Who looks at the run asks this: it knows more, and at any time, than what `update` is given now and then."""
        self._tell = tell

    def told(self) -> Metrics:
        """What the run tells now."""
        return self._last if self._tell is None else self._tell()

    def _open(self) -> None:
        """The page and the log, where they are asked for."""
        if self.show.log_json:
            self._log = log.to_json_lines(sys.stderr)
        if self.show.page is not None:
            host, port = self.show.place()
            name, _, executor = self.title.rpartition(" on ")
            self.page = Page(Watched(self.told, name, executor, held.InFile()), host=host, port=port)
            if self.show.log_json:
                log.LOGGER.info("page", extra={"query": self.title, "url": self.page.url})
            elif not self.quiet:
                print(f"plait: page at {self.page.url} (plait top {self.page.url})", file=sys.stderr, flush=True)

    def _close(self) -> None:
        if self.page is not None:
            self.page.sampling.look()  # how it ended, for who has the page open
            self.page.close()
        if self._log is not None:
            log.LOGGER.removeHandler(self._log)

    def __enter__(self) -> Self:
        self._open()
        if not self.quiet and not self.show.log_json and self.console.is_terminal:
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
        if self.show.log_json and error is not None:
            log.LOGGER.error("failed", extra={"query": self.title, "kind": "failed", "error": type(error).__name__})
        self._last = copy(self.told())
        self._last.phase, self._tell = metrics.ENDED if kind is None else f"{metrics.FAILED}: {kind.__name__}", None
        self._close()

    def say(self, what: str) -> None:
        """What is going on before there are rows to count."""
        if self.live is not None and self.task is not None:
            self.live.update(self.task, note=what)
        elif self.show.log_json:
            log.LOGGER.info(what, extra={"query": self.title})
        elif not self.quiet:
            print(f"{self.title}: {what}", file=sys.stderr, flush=True)

    def batch(self, number: int, run: Metrics) -> None:
        """A micro-batch is done: a line each, or the live one."""
        self._last = run
        if self.show.log_json:
            log.batch_done(self.title, number, run)
            return
        self._show(f"batch {number}: {metrics.progress(run)}", run)

    def update(self, run: Metrics) -> None:
        """Tell how far the run is: a live line, or now and then a line of text."""
        now, self._last = time.monotonic(), run
        due = LINE_EVERY_S if self.shown > self.started else FIRST_LINE_S
        if self.live is None and (self.quiet or now - self.shown < due):
            return
        share = f" ({100 * run.rows / self.total:.0f}%)" if self.total and self.live is None else ""
        self._show(metrics.progress(run) + share, run)

    def _show(self, note: str, run: Metrics) -> None:
        """The live line, or a line of text."""
        why = held.reason(run)
        note += f"; {why.words}" if why.kind == held.HELD else ""
        if self.live is not None and self.task is not None:
            self.live.update(self.task, completed=run.rows, note=note)
        elif self.show.log_json:
            self.shown = time.monotonic()
            log.LOGGER.info("progress", extra={"query": self.title, "kind": "progress", **log.fields(run)})
        elif not self.quiet:
            self.shown = time.monotonic()
            print(f"{self.title}: {self.shown - self.started:.0f} s, {note}", file=sys.stderr, flush=True)
