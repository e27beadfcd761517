"""Figure 19: what it costs to show how exactly results are ordered, mark by mark.

Intervals go from one comparison (strict inner ordering) to the whole sub-window (strict outer ordering, one mark a tuple); a
reader takes results and marks. `plait bench join-ordering` asks the same by the wall and compares results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from plait_bench.band import counted
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale
from plait_bench.papers.sustained import steady
from plait_bench.papers.sweep import column

WORKERS = 2


@cache
def measured(scale: Scale) -> list[Row]:
    rows: list[Row] = []
    for power in scale.pick((8, 9), (8, 9, 10)):
        sub_window = 2**power
        size = WORKERS * sub_window
        for interval in sorted({2**k for k in range(0, power, scale.pick(3, 1))} | {sub_window // 4, sub_window}):
            options: dict[str, Any] = {"strategy": "splitjoin", "workers": WORKERS, "marks": True}
            options["punctuate"] = 1 if interval == sub_window else f"{interval} comparisons"
            steady(counted(8), rate=8, window_s=1.0, seconds=1.0, **options)  # warm
            made = steady(counted(size), rate=size, window_s=1.0, seconds=3.0, **options)
            spent_s = max(*made.threads_s, made.ends_s[1])  # not who pushed: pushes are as small as windows
            rows.append({
                "sub_window": sub_window, "interval": interval, "tuples_per_s": made.tuples / spent_s,
                "marks_a_tuple": made.taken / made.tuples, "wall_tuples_per_s": made.tuples_per_s("wall"),
                "reading_s": made.ends_s[1], "busiest_worker_s": max(made.threads_s),
            })  # fmt: skip
    return rows


def figure_19(scale: Scale) -> Found:
    return found_19(measured(scale))


def found_19(rows: Sequence[Row]) -> Found:
    """What throughput by interval shows."""
    sizes = sorted({row["sub_window"] for row in rows})
    speed = {(row["sub_window"], row["interval"]): row["tuples_per_s"] for row in rows}
    largest = sizes[-1]
    intervals = sorted(interval for size, interval in speed if size == largest)
    # With two marks and more a tuple there are marks within a trigger, of which each worker's have to be cut.
    coarse, coarser = intervals[-2], intervals[-1]
    kept, cost = speed[largest, coarse] / speed[largest, coarser], speed[largest, coarser] / speed[largest, 1]
    claims = [
        Claim(
            "a few marks a sub-window cost next to nothing", kept > 0.6,
            f"a mark every {coarse} comparisons of {largest}: {kept:.2f} of the throughput with one a tuple",
        ),
        Claim(
            "a mark after each comparison costs most of the throughput", cost > 3,
            f"{cost:.1f} times less than with one a tuple, sub-windows of {largest}",
        ),
    ]  # fmt: skip
    lines = [
        Line(f"sub-windows of {size:,}", column(rows, "interval", sub_window=size),
             [v / 1e3 for v in column(rows, "tuples_per_s", sub_window=size)])
        for size in sizes
    ]  # fmt: skip
    sentence = (
        f"With sub-windows of {largest} throughput is {speed[largest, 1]:,.0f} t/s with a mark after each comparison, "
        f"{speed[largest, coarse]:,.0f} with one every {coarse}, {speed[largest, coarser]:,.0f} with one a tuple."
    )
    departs = (
        f"{WORKERS} join cores of sub-windows up to {largest} where the paper has 28 of 2^12 to 2^15: as there, what counts is "
        "how many marks there are for a comparison. By processor time of the busiest thread; with many marks that is who reads."
    )
    panel = Panel("comparisons between marks", "thousand tuples/s", lines, "", True, True)
    return Found(sentence, rows, claims, [panel], departs)
