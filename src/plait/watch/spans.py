"""OpenTelemetry's spans, where its API is installed: a run, its epochs on threads, its micro-batches on Spark.

Without `opentelemetry` nothing happens, and nothing is imported. Which exporter gets spans is for the process to say, as with any
library; without one the API drops them. Attributes are names, times and counts: never a value of a row.
"""

from __future__ import annotations

from typing import Any

from plait.core.held import printable
from plait.core.metrics import ENDED, FAILED, STOPPED, Mark, Metrics, amount


def tracer() -> Any | None:
    """OpenTelemetry's tracer for plait; None where its API is not installed."""
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    return trace.get_tracer("plait")


def batch(query: str, number: int, run: Metrics, began: float, done: float) -> None:
    """A micro-batch, by the seconds since 1970 at which it began and was done."""
    made = tracer()
    if made is not None:
        told = {
            "plait.query": printable(query),
            "plait.batch": number,
            "plait.results": run.results,
            "plait.rows": run.rows,
        }
        _span(made, "plait.batch", began, done, told)


class Spans:
    """The spans of one run that is looked at: one for the run, when it has come to its end, and one for each change."""

    def __init__(self, query: str) -> None:
        self._query, self._tracer = printable(query), tracer()
        self._told: set[tuple[float, str]] = set()
        self._over = False

    def look(self, run: Metrics) -> None:
        """What is new."""
        if self._tracer is None:
            return
        for mark in run.marks:
            if (mark.at, mark.kind) not in self._told:
                self._told.add((mark.at, mark.kind))
                self._mark(mark)
        phase = run.phase.partition(":")[0]
        if phase in (ENDED, FAILED, STOPPED) and not self._over and run.marks:
            self._over = True
            began = min(mark.at for mark in run.marks)
            told = {"plait.phase": run.phase, "plait.rows": run.rows, "plait.results": run.results}
            told |= {"plait.late": amount(run.late), "plait.behind": amount(run.behind)}
            _span(self._tracer, "plait.run", began, began + run.seconds, {"plait.query": self._query, **told})

    def _mark(self, mark: Mark) -> None:
        told = {"plait.query": self._query, "plait.words": printable(mark.words)}
        _span(self._tracer, f"plait.{mark.kind.replace(' ', '_')}", mark.at, mark.at, told)


def _span(made: Any, name: str, began: float, done: float, told: dict[str, Any]) -> None:
    span = made.start_span(name, start_time=int(began * 1e9), attributes=told)
    span.end(end_time=int(done * 1e9))
