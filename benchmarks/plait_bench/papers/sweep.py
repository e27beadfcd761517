"""Rates that joins sustain, by strategy, number of workers and window length: what several figures are drawn from.

A sweep is measured by processor time (see `sustained`), so that its shape can be told on few cores and beside other work; where
there are cores enough, by the wall too. Guesses come from what a worker did before, so most points take one or two runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import Any

from plait.core.metrics import variation_percent
from plait_bench import rivals
from plait_bench.band import query
from plait_bench.papers.study import Line, Row, Scale
from plait_bench.papers.sustained import Clock, Steady, Sustained, steady, sustained

#: Comparisons a second of one worker, to begin with: what a core of a few years ago does.
GUESS_PER_S = 13e9
#: Of the highest rate, where latency is measured: at the very highest a queue grows whenever the machine does something else.
PART = 0.8


def options_of(strategy: str, workers: int) -> dict[str, Any]:
    """Of `on_threads`. Rivals give results as they come; alone a worker is neither ScaleJoin's nor SplitJoin's."""
    if strategy in rivals.NAMES:
        return {"strategy": strategy, "workers": workers, "order": "none"}
    return {"strategy": strategy if workers > 1 else "sequential", "workers": workers}


def workers_of(scale: Scale) -> tuple[int, ...]:
    """From 1 to twice the cores; with many cores to one less than there are, as somebody has to push."""
    return scale.pick((1, 2), (1, 2, 4), tuple(n for n in (1, 2, 4, 8, 15) if n < max(scale.cores, 5)))


def windows_of(scale: Scale) -> tuple[float, ...]:
    """In the papers' proportions of 5, 10 and 15 minutes, in seconds; shorter where many workers sustain more."""
    return scale.pick((0.1, 0.2, 0.3), (1.0, 2.0, 3.0), (0.5, 1.0, 1.5))


def sweep(
    scale: Scale,
    strategy: str,
    windows: tuple[float, ...],
    workers: tuple[int, ...],
    *,
    wall: bool = True,
    seconds: float | None = None,
) -> list[Row]:
    """The highest rates, a row for each window and number of workers. It is measured once.

    Args:
        scale: How much may be done. A quick run measures nothing by the wall.
        strategy: The join's, or a rival's.
        windows: Their lengths in seconds.
        workers: Their numbers.
        wall: Whether the highest rates by the wall are sought too.
        seconds: How much event time of each is measured.
    """
    return _sweep(
        scale, strategy, windows, workers, wall and scale.size != "quick", seconds or scale.pick(0.12, 0.5)
    )  # fmt: skip


@cache  # by what it is given, not by how: `sweep` gives it all of it in one order
def _sweep(
    scale: Scale, strategy: str, windows: tuple[float, ...], workers: tuple[int, ...], wall: bool, seconds: float
) -> list[Row]:
    rows: list[Row] = []
    a_worker = (
        GUESS_PER_S  # then what one did with fewer beside it: some rivals' do a tenth, and a rate too high takes long
    )
    for number in workers:
        steady(query(windows[0]), rate=2000, window_s=0.1, seconds=0.1, **options_of(strategy, number))  # warm
        for window_s in windows:
            found = _highest(strategy, number, window_s, seconds, a_worker, "processor")
            a_worker = found.at.comparisons_per_s("processor") / number
            row = _row(strategy, number, window_s, found)
            if wall:
                real = _highest(strategy, number, window_s, seconds, a_worker, "wall")
                row |= {
                    "wall_tuples_per_s": real.rate, "wall_comparisons_per_s": real.at.comparisons_per_s("wall"),
                }  # fmt: skip
            rows.append(row)
    return rows


def _highest(strategy: str, workers: int, window_s: float, seconds: float, a_worker: float, clock: Clock) -> Sustained:
    made_of = query(window_s)

    def steady_at(rate: float) -> Steady:
        return steady(made_of, rate=rate, window_s=window_s, seconds=seconds, **options_of(strategy, workers))

    guess = sqrt(workers * a_worker / (2 * window_s))
    return sustained(steady_at, guess=guess, clock=clock, runs=3)


def _row(strategy: str, workers: int, window_s: float, found: Sustained) -> dict[str, Any]:
    at = found.at
    return {
        "strategy": strategy, "workers": workers, "window_s": window_s, "tuples_per_s": found.rate,
        "comparisons_per_s": at.comparisons_per_s("processor"), "keeps_up": at.keeps_up("processor"),
        "balance_cv_percent": variation_percent(list(at.by_worker)), "runs": found.runs, "pushing_s": at.ends_s[0],
        "reading_s": at.ends_s[1], "busiest_worker_s": max(at.threads_s), "took_s": at.wall_s,
    }  # fmt: skip


def to_replay(scale: Scale, strategy: str, windows: tuple[float, ...]) -> list[Row]:
    """A sweep's rows with the rate at which latency is measured: a part of the highest by the wall.

    A quick run has none by the wall; it takes a part of the highest by processor time, over the longest window.
    """
    rows = sweep(scale, strategy, windows, workers_of(scale))
    if scale.size == "quick":
        return [
            {**row, "replay_per_s": PART * row["tuples_per_s"] / 4} for row in rows if row["window_s"] == windows[-1]
        ]
    return [{**row, "replay_per_s": PART * row["wall_tuples_per_s"]} for row in rows]


def column(rows: Sequence[Row], name: str, **where: Any) -> list[Any]:
    """The values of a column in the rows that have these values and that column."""
    return [row[name] for row in rows if name in row and all(row[key] == value for key, value in where.items())]


def curves(rows: Sequence[Row], words: str, *, by: str, x: str, y: str, unit: float = 1.0) -> list[Line]:
    """A line for each value of the column `by`, named by it."""
    return [
        Line(
            words.format(each), column(rows, x, **{by: each}), [value / unit for value in column(rows, y, **{by: each})]
        )
        for each in sorted(set(column(rows, by)))
    ]


def apart(rows: Sequence[Row], cores: int) -> list[Row]:
    """Rows whose workers each have a core that no other one slows down: of many cores, half are another's second thread.

    With few cores workers take turns on them, which processor time is not slowed down by.
    """
    return [row for row in rows if cores < 8 or row["workers"] <= cores // 2]
