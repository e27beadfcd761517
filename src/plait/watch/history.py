"""What a run did over time, by looks: rates, lag and latency. Old looks are thinned out, so that a long run fits.

Invariant: all columns have one length, and `at` rises. What is None was not known then.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from plait.core.metrics import PUBLISHING, STARTING, WAITING, WORKING, Metrics, amount

#: A look's numbers: what they are called, and what they say.
COLUMNS: Final = {
    "at": "when it was looked, in seconds since 1970",
    "rows_s": "rows that came, a second",
    "results_s": "results that were given out, a second",
    "lag_s": "how far the frontier was behind the newest ts, in seconds of event time",
    "waiting": "rows that waited for the frontier",
    "waiting_ms": "half of the last results had waited for the frontier no longer than so many milliseconds",
    "working_ms": "the same until their rows were made",
    "publishing_ms": "the same until they were given out",
}
MOST: Final = 1200
#: Rates are those over so many looks: on Spark rows come batch by batch.
OVER: Final = 5


class History:
    """The looks so far. One thread adds, others take what `columns` gives, which is never changed."""

    def __init__(self) -> None:
        self._columns: dict[str, list[float | None]] = {name: [] for name in COLUMNS}
        self._before: deque[tuple[float, int, int]] = deque(maxlen=OVER)

    def add(self, at: float, run: Metrics) -> dict[str, float | None]:
        """One look more; gives it."""
        seconds, rows, results = 0.0, 0, 0
        if self._before:
            then, rows_then, results_then = self._before[0]
            seconds, rows, results = at - then, run.rows - rows_then, run.results - results_then
        if run.phase != STARTING:  # what an earlier start has counted comes with the first batch
            self._before.append((at, run.rows, run.results))
        point: dict[str, float | None] = {
            "at": round(at, 3),
            "rows_s": _rate(rows, seconds),
            "results_s": _rate(results, seconds),
            "lag_s": None if run.lag_us is None else run.lag_us / 1e6,
            "waiting": amount(run.waiting) if run.waiting else run.pending,
        }
        for name in (WAITING, WORKING, PUBLISHING):
            found = run.latency_split_ms.get(name)
            point[f"{name}_ms"] = round(found.p50, 3) if found is not None and found.samples else None
        columns = self._columns
        if len(columns["at"]) >= MOST:  # the older half with half of its looks
            columns = {name: values[: MOST // 2 : 2] + values[MOST // 2 :] for name, values in columns.items()}
        self._columns = {name: [*values, point[name]] for name, values in columns.items()}
        return point

    @property
    def columns(self) -> dict[str, list[Any]]:
        """By name, in the order of time."""
        return self._columns


def _rate(more: int, seconds: float) -> float | None:
    """None where nothing is to be compared with; a run that has begun anew has counted less than before."""
    return round(more / seconds, 1) if seconds > 0 and more >= 0 else None
