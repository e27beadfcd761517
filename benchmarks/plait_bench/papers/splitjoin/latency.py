"""Figures 13, 15 and 18: visiting latency beside low-latency handshake join, and latency by stage over both kinds of windows.

Tuples are replayed in time at four fifths of the highest rate by the wall that so many join cores sustain, windows full. Stages
are the paper's, with what tuples wait for in them (figure 14): distribution, execution, gathering; all of them are the
processing latency (definition 3), and of pairs there is the visiting latency (definition 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import log2
from statistics import median
from typing import Any

from plait.threads.join.strategies import splitjoin
from plait.threads.join.strategies.plan import Wish
from plait_bench.band import counted, query
from plait_bench.papers.splitjoin.throughput import RIVAL, SPLIT, by_size
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, slope
from plait_bench.papers.sustained import Replayed, replayed
from plait_bench.papers.sweep import PART, column, curves, options_of, to_replay, windows_of
from plait_bench.rivals import low_latency_handshake

STAGES = ("distribution", "execution", "gathering", "processing", "visiting")
#: Of 28 join cores over 15 minutes, ms: SplitJoin's, and low-latency handshake join's.
PAPER_VISITING_MS = {SPLIT: 8.1, RIVAL: 26.0}
DEPARTS = (
    "A push is 5 ms of each stream; a tuple waits for the other stream's, so distribution is at least a part of that. Rates are "
    "four fifths of the highest by the wall. Results come through mergers with a fan-in of two, as in the paper."
)


def row_of(kind: str, strategy: str, workers: int, size: float, made: Replayed) -> dict[str, Any]:
    stages = {f"{name}_ms": value.p50 for name, value in made.stats.stage_latency_ms.items() if value.samples}
    return {
        "window": kind, "strategy": strategy, "workers": workers, "size": size, "tuples_per_s": made.rate,
        "push_ms": made.stats.latency_from_push_ms.p50, "most_behind_ms": made.behind_ms,
    } | stages  # fmt: skip


@cache
def over_time(scale: Scale, strategy: str) -> list[Row]:
    """SplitJoin's latencies over all windows, the rival's over the longest."""
    windows = windows_of(scale) if strategy == SPLIT else windows_of(scale)[-1:]
    rows: list[Row] = []
    for row in to_replay(scale, strategy, windows):
        own = {"strategy": SPLIT, "fan_in": 2} if strategy == SPLIT else {}
        options = options_of(strategy, row["workers"]) | own
        made = replayed(
            query(row["window_s"]), rate=row["replay_per_s"], window_s=row["window_s"],
            seconds=scale.pick(0.4, 2.0, 1.0), **options,
        )  # fmt: skip
        rows.append(row_of("time", strategy, row["workers"], row["window_s"], made))
    return rows


@cache
def over_count(scale: Scale) -> list[Row]:
    sizes = by_size(scale)
    size = max(row["size"] for row in sizes)
    rows: list[Row] = []
    for row in sizes:
        if row["window"] == "count" and (row["size"] == size or scale.size != "quick"):
            rate = PART * row["wall_tuples_per_s"] / 2  # of each stream
            made = replayed(
                counted(row["size"]), rate=rate, window_s=row["size"] / rate, seconds=scale.pick(0.4, 2.0, 1.0), strategy=SPLIT,
                workers=row["workers"], fan_in=2,
            )  # fmt: skip
            rows.append(row_of("count", SPLIT, row["workers"], row["size"], made))
    return rows


def hand_offs(workers: Sequence[int] = (2, 4, 8, 16, 28, 32)) -> dict[str, dict[int, int]]:
    """How often a tuple is handed on until the last join core has it, by the plans of both joins."""
    tree = {n: _depth([seat.parent for seat in splitjoin.plan(Wish(n, fan_out=2)).seats]) for n in workers}
    chain = {n: len(low_latency_handshake.plan(Wish(n)).seats) - 1 for n in workers}
    return {SPLIT: tree, RIVAL: chain}


def _depth(parents: Sequence[int | None]) -> int:
    depths: list[int] = []
    for parent in parents:  # who hands on comes before whom it hands to
        depths.append(0 if parent is None else depths[parent] + 1)
    return max(depths)


def figure_13(scale: Scale) -> Found:
    return found_13([*over_time(scale, SPLIT), *over_time(scale, RIVAL)], hand_offs())


def found_13(rows: Sequence[Row], handed: Mapping[str, Mapping[int, int]]) -> Found:
    """What visiting latencies of both joins show, and how often each hands a tuple on."""
    windows = sorted({row["size"] for row in rows})
    split = {row["workers"]: row for row in rows if row["strategy"] == SPLIT and row["size"] == windows[-1]}
    rival = {row["workers"]: row for row in rows if row["strategy"] == RIVAL}
    ratios = {n: rival[n]["push_ms"] / split[n]["push_ms"] for n in split}
    threads = sorted(ratios)
    most = threads[-1]
    shown = ", ".join(f"{n}: {ratios[n]:.2g} times" for n in threads)
    grown = {
        name: slope(threads, [by[n]["push_ms"] for n in threads]) for name, by in (("split", split), ("rival", rival))
    }
    claims = [
        Claim(
            "with many join cores low-latency handshake join's is higher (3.3 times with 28)", ratios[most] > 1.2, shown,
            cores=8, quick=False,
        ),
        Claim(
            "SplitJoin's grows more slowly with the join cores", grown["split"] < grown["rival"],
            f"exponents {grown['split']:.2f} and {grown['rival']:.2f}", cores=8, quick=False,
        ),
        _of_hand_offs(handed),
    ]  # fmt: skip
    lines = curves(
        [row for row in rows if row["strategy"] == SPLIT], "SplitJoin, {:g} s", by="size", x="workers", y="visiting_ms"
    )
    both = [Line(f"{name}, {windows[-1]:g} s", threads, [by[n]["push_ms"] for n in threads])
            for name, by in (("SplitJoin", split), ("low-latency handshake", rival))]  # fmt: skip
    panels = [
        Panel("join cores", "visiting latency, ms", lines, "until two tuples are compared"),
        Panel("join cores", "latency, ms", both, "until their result is out"),
        Panel("join cores", "visiting latency, ms", [
            Line(name, [28], [ms], published=True) for name, ms in PAPER_VISITING_MS.items()
        ], "in the paper"),
        Panel("join cores", "hand-offs until the last has a tuple", [
            Line(name, list(by), list(by.values())) for name, by in handed.items()
        ], "by the plans, a tree of fan-out 2"),
    ]  # fmt: skip
    sentence = (
        f"With {most} join cores SplitJoin compares two tuples after {split[most]['visiting_ms']:.2g} ms; until their result is "
        f"out low-latency handshake join takes {ratios[most]:.2g} times as long as SplitJoin."
    )
    departs = (
        "The rebuilt rival does not tell when two tuples were compared: both joins are held against each other by when a result "
        "is out, from the push of its later tuple, SplitJoin's in result order and the rival's as they come. Each runs at its "
        "own rate. " + DEPARTS
    )
    return Found(sentence, rows, claims, panels, departs)


def _of_hand_offs(handed: Mapping[str, Mapping[int, int]]) -> Claim:
    """Equations 2 and 6: what makes the latencies grow, as log k and as k."""
    tree, chain = handed[SPLIT], handed[RIVAL]
    holds = all(hops <= log2(n) + 1 for n, hops in tree.items()) and all(hops >= n / 2 for n, hops in chain.items())
    return Claim(
        "a tuple is handed on as often as the logarithm of the join cores in SplitJoin, as their number in the rival", holds,
        ", ".join(f"{n}: {tree[n]} and {chain[n]}" for n in tree),
    )  # fmt: skip


def figure_15(scale: Scale) -> Found:
    return found_stages(over_time(scale, SPLIT))


def figure_18(scale: Scale) -> Found:
    return found_stages(over_count(scale), over_time(scale, SPLIT))


def found_stages(rows: Sequence[Row], beside: Sequence[Row] = ()) -> Found:
    """What latencies by stage show; `beside`: those over windows of time, which the paper's windows that count have less of."""
    sizes, threads = sorted({row["size"] for row in rows}), sorted({row["workers"] for row in rows})
    by = {stage: {n: median(column(rows, f"{stage}_ms", workers=n)) for n in threads} for stage in STAGES}
    shown = {stage: ", ".join(f"{n}: {ms:.2g} ms" for n, ms in values.items()) for stage, values in by.items()}
    exponent = {stage: slope(threads, list(values.values())) for stage, values in by.items()}
    claims = [
        Claim(
            "execution takes less with more join cores", exponent["execution"] < -0.25,
            f"{shown['execution']}; exponent {exponent['execution']:.2f}", cores=4, quick=False,
        ),
        Claim(
            "distribution takes less with more join cores", exponent["distribution"] < -0.1,
            f"{shown['distribution']}; exponent {exponent['distribution']:.2f}", cores=4, quick=False,
            instead="There tuples pile up before few join cores. Here a tuple waits for the other stream's push, which comes "
            f"every 5 ms: {shown['distribution']}",
        ),
        Claim(
            "gathering takes longest", all(by["gathering"][n] >= by["execution"][n] for n in threads), shown["gathering"],
            cores=4, quick=False,
            instead="There mergers wait for a mark of each input. Here a worker says after each batch how far it is, a word and "
            f"no tuple: gathering took {shown['gathering']}, execution {shown['execution']}",
        ),
    ]  # fmt: skip
    if beside:
        claims.append(_of_counting(rows, beside, threads[-1]))
    panels = [
        Panel("join cores", "median latency, ms", [
            Line(stage, column(rows, "workers", size=size), column(rows, f"{stage}_ms", size=size)) for stage in STAGES
        ], f"{size:,} tuples" if rows[0]["window"] == "count" else f"{size:g} s", False, True)
        for size in sizes
    ]  # fmt: skip
    most = threads[-1]
    sentence = (
        f"With {most} join cores a tuple waits {by['distribution'][most]:.2g} ms, is compared in {by['execution'][most]:.2g} ms "
        f"and its results are out {by['gathering'][most]:.2g} ms later."
    )
    return Found(sentence, rows, claims, panels, DEPARTS)


def _of_counting(rows: Sequence[Row], beside: Sequence[Row], workers: int) -> Claim:
    count, over = (median(column(each, "visiting_ms", workers=workers)) for each in (rows, beside))
    return Claim(
        "visiting takes less over windows that count (2.5 times, with 28 join cores)", count < 0.8 * over,
        f"{count:.2g} and {over:.2g} ms with {workers}", cores=4, quick=False,
        instead="There a window of time costs a system call a tuple. Here tuples bring their time; either kind takes "
        f"{count:.2g} and {over:.2g} ms, which are mostly the wait for a push",
    )  # fmt: skip
