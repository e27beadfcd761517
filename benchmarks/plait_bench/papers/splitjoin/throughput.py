"""Figures 12, 16 and 17: throughput over windows of time beside low-latency handshake join, over windows that count, and by
selectivity.

Over windows of time a higher rate makes larger windows, so what is sought is a rate (`sustained`). A window that counts is as
large at any rate: what is taken in flat out, once it is full, is what is sustained.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median
from typing import Any

from plait_bench.band import counted, query
from plait_bench.papers.scalejoin.scaling import CLOCK, SECONDS
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, rising, slope
from plait_bench.papers.sustained import Clock, Steady, steady
from plait_bench.papers.sweep import GUESS_PER_S, apart, column, curves, options_of, sweep, windows_of, workers_of

SPLIT, RIVAL = "splitjoin", "low_latency_handshake"
WORDS = {SPLIT: "SplitJoin", RIVAL: "low-latency handshake join"}
#: Bands, of which one comparison in (10,000 / 2 band)² gives a result.
BANDS = (1, 10, 32, 100)


def figure_12(scale: Scale) -> Found:
    windows, workers = windows_of(scale), workers_of(scale)
    rows = [*sweep(scale, SPLIT, windows, workers), *sweep(scale, RIVAL, windows[-1:], workers)]
    if scale.size != "quick":
        rows += sweep(scale, RIVAL, windows[:-1], workers, wall=False)
    return found_12(rows, scale.cores)


def found_12(rows: Sequence[Row], cores: int) -> Found:
    """What the rates of both joins show."""
    judged = apart(rows, cores)
    windows = sorted({row["window_s"] for row in rows})
    threads = sorted({row["workers"] for row in judged})
    longest = {name: column(judged, "tuples_per_s", strategy=name, window_s=windows[-1]) for name in (SPLIT, RIVAL)}
    ahead = {n: a / b - 1 for n, a, b in zip(threads, longest[SPLIT], longest[RIVAL], strict=True)}
    pairs = {(row["workers"], row["window_s"]): row["tuples_per_s"] for row in judged if row["strategy"] == SPLIT}
    both = [
        pairs[row["workers"], row["window_s"]] / row["tuples_per_s"] - 1
        for row in judged if row["strategy"] == RIVAL and row["workers"] > 1
    ]  # fmt: skip
    claims = [
        Claim(
            f"{WORDS[name]} scales with the join cores", rising(values, 0.05) and slope(threads, values) > 0.2,
            ", ".join(f"{n}: {value:,.0f} t/s" for n, value in zip(threads, values, strict=True)),
        )
        for name, values in longest.items()
    ]  # fmt: skip
    shown = ", ".join(f"{n}: {part:+.0%}" for n, part in ahead.items())
    says = "SplitJoin sustains more than low-latency handshake join (up to 60 % more)"
    claims.append(Claim(says, median(both) > 0, f"{shown}; {median(both):+.0%} in the median of all windows"))
    lines = [
        line
        for name in (SPLIT, RIVAL)
        for line in curves(
            [row for row in rows if row["strategy"] == name], WORDS[name] + ", {:g} s", by="window_s", x="workers",
            y="tuples_per_s", unit=1e3,
        )
    ]  # fmt: skip
    most = threads[-1]
    sentence = (
        f"With {most} join cores SplitJoin sustains {longest[SPLIT][-1]:,.0f} t/s of each stream over {windows[-1]:g} s, "
        f"{ahead[most]:+.0%} beside low-latency handshake join."
    )
    panels = [
        Panel("join cores", "thousand tuples/s of each stream", lines, "here"),
        Panel("join cores", "tuples/s", [Line("15 minutes", [28], [4400], published=True)], "in the paper"),
    ]
    return Found(sentence, rows, claims, panels, SECONDS + CLOCK)


# --- windows that count -------------------------------------------------------------------------------------------


def full(made_of: Any, size: int, workers: int, core_s: float, **options: Any) -> Steady:
    """Flat out over windows of `size` tuples that are full, for about so much of each worker's time."""
    seconds = max(core_s * GUESS_PER_S * workers / (2 * size * size), 0.02)
    return steady(made_of, rate=size, window_s=1.0, seconds=seconds, **options_of(SPLIT, workers), **options)


def taken_in(made: Steady, size: int, clock: Clock) -> float:
    """Tuples a second, each of which met `size` others. By comparisons, which are counted with the time that they took: what was
    pushed last may not have been compared yet when a busy machine lets nothing happen for a while."""
    return made.comparisons_per_s(clock) / size


@cache
def by_size(scale: Scale) -> list[Row]:
    """Tuples a second by the window's size and the join cores; of the largest also over time, with as many tuples in it."""
    powers: tuple[int, ...] = scale.pick((14, 15), (15, 16, 17))
    rows: list[Row] = []
    core_s = scale.pick(0.1, 0.5)
    for workers in workers_of(scale):
        full(counted(100), 100, workers, 0.001)  # warm
        for power in powers:
            kinds = {"count": counted(2**power)} | ({"time": query(1.0)} if power == powers[-1] else {})
            for kind, made_of in kinds.items():
                made = [full(made_of, 2**power, workers, core_s) for _ in range(scale.pick(1, 2))]
                rows.append({
                    "window": kind, "size": 2**power, "workers": workers,
                    "tuples_per_s": median(taken_in(each, 2**power, "processor") for each in made),
                    "wall_tuples_per_s": median(taken_in(each, 2**power, "wall") for each in made), "runs": len(made),
                })  # fmt: skip
    return rows


def figure_16(scale: Scale) -> Found:
    return found_16(by_size(scale), scale.cores)


def found_16(rows: Sequence[Row], cores: int) -> Found:
    """What throughput by size and join cores shows."""
    judged = apart([row for row in rows if row["window"] == "count"], cores)
    sizes, threads = sorted({row["size"] for row in judged}), sorted({row["workers"] for row in judged})
    by_sizes = median(slope(sizes, column(judged, "tuples_per_s", workers=n)) for n in threads)
    by_threads = median(slope(threads, column(judged, "tuples_per_s", size=size)) for size in sizes)
    over_time = {row["workers"]: row["tuples_per_s"] for row in rows if row["window"] == "time"}
    gain = median(column(judged, "tuples_per_s", workers=n, size=sizes[-1])[0] / over_time[n] for n in threads)
    claims = [
        Claim("a window twice as large takes in fewer tuples", by_sizes < -0.6, f"exponent {by_sizes:.2f}"),
        Claim("more join cores take in more", by_threads > 0.6, f"exponent {by_threads:.2f}"),
        Claim(
            "windows that count take in about a fifth more than windows of time", gain > 1.1, f"{gain - 1:+.0%}",
            instead="There a tuple's time is asked of the system as it comes and is stored with it. Here tuples bring their "
            f"time, and either kind keeps it: {gain:.2f} times as many tuples, with as many in the window.",
        ),
    ]  # fmt: skip
    largest = column(judged, "tuples_per_s", size=sizes[-1])
    lines = curves(judged, "{:,} tuples", by="size", x="workers", y="tuples_per_s", unit=1e3)
    sentence = (
        f"Over the last {sizes[-1]:,} tuples {threads[0]} join cores take in {largest[0]:,.0f} t/s and {threads[-1]} "
        f"{largest[-1]:,.0f}; with the size that goes down with an exponent of {by_sizes:.2f}."
    )
    panels = [
        Panel("join cores", "thousand tuples/s", lines, "here", False, True),
        Panel("join cores", "tuples/s", [Line("2^21 tuples", [28], [5200], published=True),
                                         Line("15 minutes", [28], [4400], published=True)], "in the paper"),
    ]  # fmt: skip
    return Found(sentence, rows, claims, panels, f"Windows are smaller than the paper's, of up to 2^21 tuples. {CLOCK}")


# --- selectivity --------------------------------------------------------------------------------------------------


@cache
def by_selectivity(scale: Scale) -> list[Row]:
    rows: list[Row] = []
    workers = scale.pick(2, 2, min(8, max(scale.cores // 2, 2)))
    for power in scale.pick((12, 13), (12, 13, 14, 15)):
        size = workers * 2**power
        for band in BANDS:
            full(counted(100, band), 100, workers, 0.001)  # warm
            made = [full(counted(size, band), size, workers, scale.pick(0.05, 0.2)) for _ in range(scale.pick(1, 3))]
            rows.append({
                "workers": workers, "sub_window": 2**power, "band": band, "selectivity": (2 * band / 10_000) ** 2,
                "tuples_per_s": median(taken_in(each, size, "processor") for each in made),
            })  # fmt: skip
    return rows


def figure_17(scale: Scale) -> Found:
    return found_17(by_selectivity(scale))


def found_17(rows: Sequence[Row]) -> Found:
    """What throughput by selectivity shows."""
    sizes, bands = sorted({row["sub_window"] for row in rows}), sorted({row["band"] for row in rows})
    speed = {(row["sub_window"], row["band"]): row["tuples_per_s"] for row in rows}
    usual = min(speed[size, 10] / speed[size, 1] for size in sizes)
    last = {size: speed[size, 10] / speed[size, bands[-1]] for size in sizes}
    more = (bands[-1] / 10) ** 2
    claims = [
        Claim(
            "to the benchmark's one result in 250,000 comparisons throughput hardly changes", usual > 0.7,
            f"{usual:.2f} of that with one in 25 million, at the least",
        ),
        Claim(
            "beyond that it falls far less than results grow", max(last.values()) < more / 3,
            f"{more:.0f} times as many results, {max(last.values()):.1f} times less throughput at the most",
        ),
    ]  # fmt: skip
    lines = curves(rows, "sub-windows of {:,}", by="sub_window", x="selectivity", y="tuples_per_s", unit=1e3)
    sentence = (
        f"From one result in 25 million comparisons to one in 250,000 throughput goes to {usual:.0%} at the least; with "
        f"{more:.0f} times as many results it is {max(last.values()):.1f} times less at the most."
    )
    departs = (
        f"{rows[0]['workers']} join cores where the paper has 28. Selectivity is set by the band's width. {CLOCK} A worker that "
        "finds many results leaves the loop that compares eight or sixteen at a time."
    )
    return Found(
        sentence, rows, claims, [Panel("results a comparison", "thousand tuples/s", lines, "", True, True)], departs
    )
