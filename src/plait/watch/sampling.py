"""The thread that looks at a run, once a second, and keeps what it has seen for whoever asks.

Everybody who looks is served from one look: ten open pages and a scraper cost the run what one does. The thread is the only one
that asks the run; others read `latest`, which is replaced and never changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from plait.core.metrics import ENDED, FAILED, RUNNING, Mark, Metrics
from plait.watch.history import History
from plait.watch.snapshot import snapshot
from plait.watch.watched import Watched

EVERY_S = 1.0


@dataclass(frozen=True)
class Look:
    """One look: its number, what the run told, as JSON has it, and its place in the history."""

    number: int
    run: Metrics
    shown: dict[str, Any] = field(default_factory=dict)
    point: dict[str, float | None] = field(default_factory=dict)


class Sampling:
    """See the module. `on_look` is called with each, in the thread that looks."""

    def __init__(self, watched: Watched, *, every_s: float = EVERY_S,
                 on_look: Callable[[Look], None] | None = None) -> None:  # fmt: skip
        self.watched, self.history = watched, History()
        self._every_s, self._on_look = every_s, on_look
        self._over = threading.Event()
        self._marks: tuple[Mark, ...] = ()
        self.latest = Look(-1, Metrics())
        self.look()
        self._thread = threading.Thread(target=self._run, name="plait-looks", daemon=True)
        self._thread.start()

    def look(self) -> Look:
        """Look now. One that comes to nothing leaves the last one."""
        run, at = copy(self.watched.tell()), time.time()
        run.marks = (*run.marks, *self._seen(run, at))
        found = Look(self.latest.number + 1, run, snapshot(self.watched, run, at), self.history.add(at, run))
        self.latest = found
        if self._on_look is not None:
            self._on_look(found)
        return found

    def _seen(self, run: Metrics, at: float) -> tuple[Mark, ...]:
        """Ends and failures, marked when they are seen first."""
        phase, before = run.phase.partition(":")[0], self.latest.run.phase.partition(":")[0]
        if phase != before and phase in (ENDED, FAILED) and before == RUNNING and self.latest.number >= 0:
            self._marks = (*self._marks, Mark(at, phase, run.phase))
        return self._marks

    def _run(self) -> None:
        told = False
        while not self._over.wait(self._every_s):
            try:
                self.look()
            except Exception as error:  # a run in the middle of its end: the next look sees what came of it
                if not told:  # its kind alone: its words may hold a value
                    logging.getLogger("plait").warning(
                        "The page could not look at the run (%s), and shows the look before", type(error).__name__
                    )
                told = True
            else:
                told = False

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
