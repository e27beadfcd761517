"""Strategy and layout from what is known: the number of workers, the kind of join, the streams' rates.

DP-Join (section 5.3): a left tuple is compared by the n workers of its row, each with a 1/n of the right window, so
its latency goes with (right rate x window) / n; a right tuple's with (left rate x window) / m. With m * n fixed, the
larger of the two is least where the parts of both windows that one worker holds are equal: m / n = left rate / right
rate.

An example. 8 workers, rates 1000 and 4000. Shapes are 1x8, 2x4, 4x2, 8x1. The larger of right / n and left / m is 1000
for 1x8 (500 and 1000), 1000 for 2x4 (1000 and 500), 2000 for 4x2, 4000 for 8x1. Of the two that are equal 2x4 is the
squarer, and is taken.
"""

from __future__ import annotations

from typing import Any

from plait.errors import QueryError
from plait.threads.join.strategies.plan import Two, Wish


def strategy(wish: Wish) -> tuple[str, str]:
    """The strategy for `auto`, and why."""
    if wish.layout != "auto":
        return "dpjoin", "a layout was asked for"
    if wish.workers == 1:
        return "sequential", "there is one worker"
    if wish.kind != "inner":
        return "dpjoin", f"a {wish.kind} join needs all partners of a left row at one worker, which layout m x 1 gives"
    return (
        "scalejoin",
        f"{wish.workers} workers, an inner join: every worker gets the same share whatever the rates and values",
    )


def workers_for(layout: Any) -> int | None:
    """How many workers a layout that was asked for has."""
    if isinstance(layout, (tuple, list)) and len(layout) == 2 and all(isinstance(x, int) for x in layout):
        return int(layout[0] * layout[1])
    return None


def layout(wish: Wish) -> tuple[Two, str]:
    """m rows for the left stream, n columns for the right one."""
    asked, workers = wish.layout, wish.workers
    if isinstance(asked, (tuple, list)):
        if len(asked) != 2 or any(isinstance(x, bool) or not isinstance(x, int) or x < 1 for x in asked):
            raise _no_layout(asked)
        m, n = int(asked[0]), int(asked[1])
        if m * n != workers:
            raise QueryError(
                f"layout={asked!r} has {m * n} workers, and workers={workers}",
                do="Make them agree, or leave workers= out",
            )
        why = f"{m} x {n}, as asked"
    elif asked == "linear":
        m, n, why = workers, 1, f"{workers} x 1, linear"
    elif asked == "square":
        m = round(workers**0.5)
        if m * m != workers:
            raise QueryError(
                f"layout='square' with {workers} workers",
                why="that is no square number",
                do="Use 'auto', or 4, 9, 16 workers",
            )
        n, why = m, f"{m} x {m}, square"
    elif asked in ("auto", "rectangular"):
        m, n, why = _by_rates(wish)
    else:
        raise _no_layout(asked)
    if wish.kind != "inner" and n != 1:
        if asked == "auto":
            return (workers, 1), f"{workers} x 1: all partners of a left row at one worker, as a {wish.kind} join needs"
        raise QueryError(
            f"layout={asked!r} for a {wish.kind} join",
            why="all partners of a left row have to be found by one worker",
            do=f"Use layout=({workers}, 1)",
        )
    return (m, n), why


def _by_rates(wish: Wish) -> tuple[int, int, str]:
    workers = wish.workers
    left, right = wish.rates or (1.0, 1.0)
    if wish.kind != "inner":
        return workers, 1, f"{workers} x 1"
    shapes = [(m, workers // m) for m in range(1, workers + 1) if workers % m == 0]
    # The slower of the two kinds of tuples decides; of equals, the squarer shape has the shorter hand-off.
    m, n = min(shapes, key=lambda s: (max(right / s[1], left / s[0]), abs(s[0] - s[1])))
    known = f"rates {left:g} and {right:g} tuples/s" if wish.rates else "rates unknown, taken as equal"
    return m, n, f"{m} x {n}: {known}, so a worker's parts of both windows are as equal as {workers} workers allow"


def _no_layout(asked: object) -> QueryError:
    return QueryError(
        f"layout={asked!r} is no layout",
        do="Pass (rows, columns), 'linear', 'square', 'rectangular' or 'auto'",
    )
