"""Strategy, workers and layout from what is known: cores, the kind of join, the streams' rates, this machine's costs.

**Layout.** A left tuple is compared by the n workers of its row, each with a 1/n of the right window, so its latency goes with
(right rate x window) / n; a right tuple's with (left rate x window) / m (DP-Join, equation 7). With m * n fixed, the larger of
the two is least where the parts of both windows that one worker holds are equal: m / n = left rate / right rate. That criterion
is plait's (`plait.models.dpjoin.best_layout`): the paper's mean (equation 8) is the same for m x n and n x m, and its section
5.3.2 leaves it to intuition.

An example. 8 workers, rates 1000 and 4000. Shapes are 1x8, 2x4, 4x2, 8x1. The larger of right / n and left / m is 1000
for 1x8 (500 and 1000), 1000 for 2x4 (1000 and 500), 2000 for 4x2, 4000 for 8x1. Of the two that are equal 2x4 is the
squarer, and is taken.

**Workers.** Where nobody has said how many, there is one a core; or, if this machine is calibrated (`core.calibration`) and it is
known how many tuples a window has, as many as gain something by STRETCH's model (`crew`).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from plait.core.calibration import Calibration, Costs, duration
from plait.core.join.reach import reach_of
from plait.errors import QueryError, counted
from plait.models import dpjoin, stretch
from plait.query.join import HOWS, Window
from plait.threads.join.strategies.plan import Two, Wish

#: More workers have to let so many times more through to be worth their threads.
WORTH = 1.1

#: How many times dearer than the calibration's, two bands over numbers, a user's condition may be.
DEAR = 20


def strategy(wish: Wish) -> tuple[str, str]:
    """The strategy for `auto`, and why."""
    if wish.layout != "auto":
        return "dpjoin", "a layout was asked for"
    if wish.emitter:
        return "dpjoin", "an Emitter was asked for"
    if wish.workers == 1:
        return "sequential", "there is one worker"
    if wish.line is not None:
        found = {"hash": "an equality", "range": "a band"}[wish.line]
        return (
            "partitioned",
            f"{wish.workers} workers, and the condition has {found}, so that a worker need not see every tuple",
        )
    if whole(wish.kind) == (0, 1):
        return (
            "dpjoin",
            f"a {wish.kind} join needs all workers that compare a row to hold it, as those of a row or column do",
        )
    if wish.kind != "inner":
        side, line = ("right", "1 x n") if whole(wish.kind) == (1,) else ("left", "m x 1")
        return (
            "dpjoin",
            f"a {wish.kind} join needs all partners of a {side} row at one worker, which layout {line} gives",
        )
    return (
        "scalejoin",
        f"{wish.workers} workers, an inner join: every worker gets the same share whatever the rates and values",
    )


def whole(kind: str) -> tuple[int, ...]:
    """The sides of whose rows it must be known whether they have found any partner; of an as-of join none that matters here."""
    return HOWS[kind].whole if kind in HOWS else (0,)


def through_gate(costs: Costs, gate: str, sources: int, readers: int) -> str:
    """What a tuple takes at a gate, in words: of the thread that adds it, and of every reader.

    An example: "12 ns to add and 2 x 13 ns to get".
    """
    of = {"ring": (costs.ring_add_s, costs.ring_add_level_s, costs.ring_get_s, costs.ring_get_level_s),
          "skiplist": (costs.skiplist_add_s, costs.skiplist_add_level_s, costs.skiplist_get_s,
                       costs.skiplist_get_level_s)}  # fmt: skip
    add, add_level, get, get_level = of[gate]
    levels = math.log2(max(sources, 2)) - 1  # the figures are of two sources, and of what each doubling adds
    times = f"{readers} x " if readers > 1 else ""
    return f"{duration(add + levels * add_level)} to add and {times}{duration(get + levels * get_level)} to get"


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
        (m, n) = _line(wish)
        why = f"{m} x {n}, linear"
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
    if len(whole(wish.kind)) == 1 and (m, n) != (line := _line(wish)):
        side = "right" if whole(wish.kind) == (1,) else "left"
        raise QueryError(
            f"layout={asked!r} for a {wish.kind} join",
            why=f"all partners of a {side} row have to be found by one worker",
            do=f"Use layout={line}",
        )
    return (m, n), why


def _line(wish: Wish) -> Two:
    """The layout in which one worker meets all partners of a row, of the side that a join asks this for."""
    return (1, wish.workers) if whole(wish.kind) == (1,) else (wish.workers, 1)


def _by_rates(wish: Wish) -> tuple[int, int, str]:
    workers = wish.workers
    left, right = map(float, wish.rates or (1, 1))
    if len(whole(wish.kind)) == 1:
        m, n = _line(wish)
        side = "right" if whole(wish.kind) == (1,) else "left"
        return m, n, f"{m} x {n}: all partners of a {side} row at one worker, as a {wish.kind} join needs"
    # The slower of the two kinds of tuples decides; of equals, the squarer shape has the shorter hand-off.
    m, n = dpjoin.best_layout(workers, left, right)
    known = f"rates {left:g} and {right:g} tuples/s" if wish.rates else "rates unknown, taken as equal"
    why = f"{m} x {n}: {known}, so a worker's parts of both windows are as equal as {workers} workers allow"
    return m, n, why + _latency(wish, m, n)


def _latency(wish: Wish, m: int, n: int) -> str:
    """What DP-Join's equations 7 and 8 make of a layout, in words; nothing where this machine or the windows are not known."""
    if wish.costs is None or wish.meets is None:
        return ""
    left, right = wish.rates or (1.0, 1.0)
    of_left = left / (left + right)
    mean = of_left * dpjoin.stream_latency(wish.meets[0], wish.costs.comparison_s, n) + (
        1 - of_left
    ) * dpjoin.stream_latency(wish.meets[1], wish.costs.comparison_s, m)
    return (
        f"; a partner is found after {duration(mean)} in the mean (DP-Join's equation 8, a comparison at "
        f"{duration(wish.costs.comparison_s)})"
    )


def meets(window: Window, rates: tuple[float, float] | None) -> tuple[float, float] | None:
    """How many tuples of the other stream a left tuple looks back at, and a right one; None where that is not known.

    A window that counts says so itself; of one that measures time it takes the streams' rates. Of a tumbling window a tuple meets
    half, in the mean.
    """
    reach = reach_of(window)
    left, right = (back + (reach.step / 2 if reach.step > 1 else 0) for back in reach.back)
    if reach.counts:
        return left, right
    if rates is None:
        return None
    return rates[1] * left / 1e6, rates[0] * right / 1e6


def crew(
    cores: int, sources: int, rates: tuple[float, float] | None, met: tuple[float, float], found: Calibration
) -> tuple[int, str]:
    """How many workers an inner join has where nobody has said, and why: STRETCH's model with this machine's costs.

    Processing is taking a tuple, which every worker does, and comparing it, which they share; input is pushing, by a thread a
    source; output is making rows of results. Two things are not known. How many results there will be: none are taken, and as
    many as one reader can make rows of while tuples come in, if there are so many pairs. And what the condition costs: as much as
    the one that was measured, and `DEAR` times that. For each of these four cases the model says what every number of workers
    lets through, beside the best; the number whose worst case is best is taken, the fewest of those within `WORTH` of it. An
    index compares less than a scan does: then there may be more workers than needed.
    """
    costs = found.costs
    left, right = rates or (1.0, 1.0)
    compared = (left * met[0] + right * met[1]) / (left + right)
    inputs = max(1, min(sources, cores))
    push = costs.push_s / inputs
    cases: list[list[float]] = []  # a case's tuples a second with 1, 2 ... workers
    for results, dear in itertools.product((0.0, min(compared, push / costs.result_s)), (1, DEAR)):
        parts = stretch.Costs(
            input_s=push, process_s=max(compared * dear * costs.comparison_s + results * costs.emit_s, 1e-12),
            output_s=results * costs.result_s, contend_s=costs.ring_contend_s,
            merge_virtual_s=results * costs.result_merge_s, see_s=costs.see_s,
        )  # fmt: skip
        cases.append([stretch.stages("virtual", parts, n).on_cores(n, cores, inputs) for n in range(1, cores + 1)])
    worst = [min(case[n] / max(case) for case in cases) for n in range(cores)]
    workers = 1 + next(n for n, share in enumerate(worst) if share * WORTH >= max(worst))
    why = (
        f"{counted(workers, 'worker')} of {cores} by STRETCH's model: a tuple meets {compared:,.0f} others at "
        f"{duration(costs.comparison_s)} to {duration(DEAR * costs.comparison_s)} each, is taken in {duration(costs.see_s)} "
        f"and pushed in {duration(costs.push_s)} ({found.told})"
    )
    return workers, why + _optimal(rates, met, costs)


def _optimal(rates: tuple[float, float] | None, met: tuple[float, float], costs: Costs) -> str:
    """DP-Join's N_opt in words, where rates are known: what they take, however much faster tuples could be pushed."""
    if rates is None or max(met) == 0:
        return ""
    window_s = (met[0] / rates[1] + met[1] / rates[0]) / 2
    least = dpjoin.optimal_workers(float(rates[0]), float(rates[1]), window_s, costs.comparison_s)
    return f"; {rates[0]:g} and {rates[1]:g} tuples/s take {counted(least, 'worker')} (DP-Join's N_opt)"


def _no_layout(asked: object) -> QueryError:
    return QueryError(
        f"layout={asked!r} is no layout",
        do="Pass (rows, columns), 'linear', 'square', 'rectangular' or 'auto'",
    )
