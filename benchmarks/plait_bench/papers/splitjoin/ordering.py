"""Figure 19: what it costs to show how exactly results are ordered, mark by mark.

Intervals go from one comparison (strict inner ordering) to the whole sub-window (strict outer ordering, one mark a tuple); a
reader takes results and marks. `plait bench join-ordering` asks the same by the wall and compares results. By processor time
the least of some runs counts, since other work only adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from plait_bench.band import counted
from plait_bench.join_runs import warm_up
from plait_bench.join_studies import read_marked
from plait_bench.papers.study import Claim, Found, Panel, Row, Scale
from plait_bench.papers.sustained import streams
from plait_bench.papers.sweep import curves

WORKERS = 2
#: How long the streams are.
WINDOWS = 3


@cache
def measured(scale: Scale) -> list[Row]:
    rows: list[Row] = []
    for power in scale.pick((8, 13), (9, 12, 15)):
        sub_window = 2**power
        size = WORKERS * sub_window
        given, made_of, tuples = streams(WINDOWS * size), counted(size), 2 * WINDOWS * size
        for interval in intervals(power, tuples, scale.pick(1_000_000, 8_000_000)):
            options: dict[str, Any] = {"strategy": "splitjoin", "workers": WORKERS, "index": "scan", "marks": True}
            options["punctuate"] = 1 if interval == sub_window else f"{interval} comparisons"
            warm_up(made_of, given, **options)
            made = [read_marked(made_of, given, **options) for _ in range(2)]
            rows.append({
                "sub_window": sub_window, "interval": interval, "marks_a_tuple": made[0].marks / tuples,
                "tuples_per_s": tuples / min(each.busiest_s for each in made),
                "wall_tuples_per_s": tuples / min(each.seconds for each in made),
            })  # fmt: skip
    return rows


def intervals(power: int, tuples: int, most: int) -> list[int]:
    """Of a sub-window of 2^power: every second power of two, as long as there are not too many marks in all."""
    found = [2**k for k in range(power % 2, power + 1, 2)]
    return [each for each in dict.fromkeys([1, *found]) if tuples * 2**power // each <= most]


def figure_19(scale: Scale) -> Found:
    return found_19(measured(scale))


def found_19(rows: Sequence[Row]) -> Found:
    """What throughput by interval shows."""
    sizes = sorted({row["sub_window"] for row in rows})
    speed = {(row["sub_window"], row["interval"]): row["tuples_per_s"] for row in rows}
    by_size = {size: sorted(interval for each, interval in speed if each == size) for size in sizes}
    smallest, largest = sizes[0], sizes[-1]
    coarse = by_size[largest][-2]
    kept, cost = speed[largest, coarse] / speed[largest, largest], speed[smallest, smallest] / speed[smallest, 1]
    claims = [
        Claim(
            "a few marks a sub-window cost little", kept > 0.5,
            f"a mark every {coarse:,} comparisons of {largest:,}: {kept:.2f} of the throughput with one a tuple",
        ),
        Claim(
            "a mark after each comparison costs most of the throughput", cost > 3,
            f"{cost:.1f} times less than with one a tuple, sub-windows of {smallest}",
        ),
    ]  # fmt: skip
    lines = curves(rows, "sub-windows of {:,}", by="sub_window", x="interval", y="tuples_per_s", unit=1e3)
    sentence = (
        f"With sub-windows of {smallest} throughput is {speed[smallest, 1]:,.0f} t/s with a mark after each comparison and "
        f"{speed[smallest, smallest]:,.0f} with one a tuple; of {largest:,} a mark every {coarse:,} leaves {kept:.0%} of that."
    )
    departs = (
        f"{WORKERS} join cores where the paper has 28, and sub-windows of {smallest} besides its 2^12 to 2^15: of large ones a "
        "mark after each comparison is more rows than a reader takes in minutes. By processor time of the busiest thread; with "
        "many marks that is who reads."
    )
    panel = Panel("comparisons between marks", "thousand tuples/s", lines, "", True, True)
    return Found(sentence, rows, claims, [panel], departs)
