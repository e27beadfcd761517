"""What is looked at: a run of any executor, by a function that says what it tells now."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plait.core.held import SILENT_S, Calls, OnThreads, Reason, reason
from plait.core.metrics import ENDED, Metrics
from plait.errors import QueryError


@dataclass(frozen=True)
class Watched:
    """A run as it is looked at.

    Attributes:
        tell: What the run tells now; from any thread, at any time, and without an error for whatever has become of the run.
        title: What it is called.
        executor: Where it runs.
        calls: How one speaks for a source there; None: nobody can.
        silent_after_s: From when on a source counts as silent: where batches take long, not before some of them.
    """

    tell: Callable[[], Metrics]
    title: str
    executor: str
    calls: Calls | None = None
    silent_after_s: Callable[[], float] = lambda: SILENT_S

    def reason(self, run: Metrics) -> Reason:
        """Why its results wait."""
        return reason(run, self.calls, silent_after_s=self.silent_after_s())


def of_threads(run: Any, title: str | None = None) -> Watched:
    """A `Run`. It is not kept alive by being looked at: a run that nobody has any more stops."""
    if not callable(getattr(run, "watched", None)):
        raise QueryError(
            f"page of a {type(run).__name__}",
            why="it is no run on threads",
            do="Pass what query.on_threads(...) gave; for a query on Spark there is plait.spark.page(query)",
        )
    found = weakref.ref(run)
    last: list[Metrics] = [Metrics()]

    def tell() -> Metrics:
        alive = found()
        if alive is None:
            last[0].phase = ENDED if last[0].phase == ENDED else "stopped"
        else:
            last[0] = alive.watched()
        return last[0]

    name = getattr(run.query, "name", None) or type(run.query).__name__.lower()
    return Watched(tell, title or name, "threads", OnThreads())
