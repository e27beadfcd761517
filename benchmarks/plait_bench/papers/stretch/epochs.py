"""STRETCH's figure 5 and table 2: ScaleJoin within an epoch and across epochs, and the policy.

Its columns are studies of their own: intra-epoch (rates, comparisons and latency by threads), provisioning and decommissioning
(load that steps, with the policy), and reconfiguration (how long it takes, and how even the work is). Loads are parts of what
threads can do by their processor time: work that waits counts as load too, so the policy sees the same on a machine that is busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import sqrt
from typing import Any

import numpy as np

from plait.core.metrics import variation_percent
from plait.core.policy import Calls, Load, Thresholds
from plait_bench import elastic_runs as runs
from plait_bench.band import query
from plait_bench.join_runs import Reader, warm_up
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, slope
from plait_bench.papers.sustained import replayed, steady, sustained

PART = 0.6  # of the rate that is sustained by the clock, at which latency is measured
ONE, SCALEJOIN, STRETCH = "single thread", "ScaleJoin", "STRETCH"
#: Threads at first, after a step from 70 to 120 percent of what they sustain, and after one from 70 to 30 percent.
TABLE_2 = {5: (9, 2), 9: (16, 3), 18: (31, 7), 30: (52, 12), 40: (69, 17)}
MOST = 72


def contenders(numbers: Sequence[int]) -> list[tuple[str, int, dict[str, Any]]]:
    found: list[tuple[str, int, dict[str, Any]]] = [(ONE, 1, {"strategy": "sequential", "workers": 1})]
    for n in numbers:
        found.append((SCALEJOIN, n, {"strategy": "scalejoin", "workers": n}))
        found.append((STRETCH, n, {"elastic": max(n, 2), "workers": n}))
    return found


# --- within an epoch ----------------------------------------------------------------------------------------------


def intra_epoch(scale: Scale) -> Found:
    window_s = scale.pick(0.05, 0.4)
    numbers = scale.pick((1, 4), (1, 2, 4, 8), (1, 2, 4, 8, 12, 15))
    rows = []
    for name, threads, options in contenders(numbers):
        at = partial(steady, query(window_s), window_s=window_s, seconds=window_s / 2, **options)
        made = sustained(
            lambda rate, at=at: at(rate=rate), guess=sqrt(threads * 6e9 / window_s), clock="processor", runs=scale.pick(2, 3)  # type: ignore[misc]
        )  # fmt: skip
        wall = made.at.rate * sqrt(made.at.keeps_up("wall"))
        real = replayed(query(window_s), rate=PART * wall, window_s=window_s, seconds=scale.pick(0.3, 1.0), **options)
        rows.append({
            "contender": name, "threads": threads, "window_s": window_s, "rate": 2 * made.rate,
            "comparisons_per_s": made.at.comparisons_per_s("processor"), "wall_rate": 2 * wall,
            "wall_comparisons_per_s": made.at.comparisons_per_s("wall"),
            "latency_ms": real.stats.latency_from_ready_ms.p50,
        })  # fmt: skip
    return judged_intra(rows)


def judged_intra(rows: Sequence[Row]) -> Found:
    by: dict[str, dict[int, Row]] = {}
    for row in rows:
        by.setdefault(row["contender"], {})[row["threads"]] = row
    one = by[ONE][1]["comparisons_per_s"]
    alone = {name: by[name][1]["comparisons_per_s"] / one for name in (SCALEJOIN, STRETCH)}
    grown = {name: {n: row["comparisons_per_s"] / by[name][1]["comparisons_per_s"] for n, row in by[name].items()}
             for name in (SCALEJOIN, STRETCH)}  # fmt: skip
    least = min(value / n for own in grown.values() for n, value in own.items())
    power = slope(list(by[STRETCH]), [row["rate"] for row in by[STRETCH].values()])
    apart = max(by[STRETCH][n]["latency_ms"] / by[SCALEJOIN][n]["latency_ms"] for n in by[STRETCH])
    quickest = min(by[name][1]["latency_ms"] for name in (SCALEJOIN, STRETCH))
    most = max(by[STRETCH])
    claims = [
        Claim("one thread of ScaleJoin's or STRETCH's compares as much as a single thread",
              all(0.6 < each < 1.6 for each in alone.values()),
              ", ".join(f"{name} {each:.2f} times" for name, each in alone.items())),
        Claim("comparisons grow linearly with threads, of both", least > 0.6,
              f"at worst {least:.2f} of a thread's for each thread"),
        Claim("the rate goes with the root of the threads", 0.3 < power < 0.7, f"with their power {power:.2f}"),
        Claim("STRETCH's latency is of the order of ScaleJoin's", apart < 10, f"at most {apart:.1f} times", cores=4, quick=False),
        Claim("a single thread has the lower latency", by[ONE][1]["latency_ms"] < quickest,
              f"{by[ONE][1]['latency_ms']:.2f} against {quickest:.2f} ms", cores=4, quick=False,
              instead="A single thread reads the same gate here, where the paper's has bounded buffers: there is "
                      "nothing to gain."),
    ]  # fmt: skip
    panels = [
        Panel("threads", y, [
            Line(name, list(own), [row[column] for row in own.values()]) for name, own in by.items()
        ], log_y=column == "latency_ms")
        for y, column in (("tuples a second, a core each", "rate"), ("comparisons a second, a core each", "comparisons_per_s"),
                          ("latency by the clock, ms", "latency_ms"))
    ]  # fmt: skip
    return Found(
        f"With a core each {most} threads of STRETCH's compare {grown[STRETCH][most]:.1f} times as much as one, and "
        f"sustain {by[STRETCH][most]['rate'] / by[STRETCH][1]['rate']:.1f} times its rate; ScaleJoin's "
        f"{grown[SCALEJOIN][most]:.1f} times.",
        rows, claims, panels,
        f"Windows of {rows[0]['window_s']:g} s where the paper has 5 minutes: a thread compares a hundred times as "
        f"fast. Latency is at {PART:g} of the rate that this machine sustains by the clock.",
    )  # fmt: skip


# --- across epochs ------------------------------------------------------------------------------------------------

HEAVY = 1_000  # tuples in the windows by which what a thread can compare is told
MORE_CORES = 1 << 20  # than there are: a claim that can't be judged on a machine that is taken up by others
SMALL = 32  # tuples that a thread takes at once: what it has not taken waits at the gate, where the policy sees it


@cache
def compared_per_cpu_s(rows: int = 4_000) -> float:
    """Comparisons of the costly condition in a second of one thread's processor time, windows full."""
    data, made = runs.tables(HEAVY + rows), runs.heavy(HEAVY)
    options: dict[str, Any] = {"workers": 1, "elastic": 8}
    warm_up(made, data, **options)
    with runs.started(made, data, **options) as run:
        reader = Reader(run)
        runs.pushed(run, runs.part(data, 0, HEAVY))
        runs.settled(runs.taken_by_all(run), HEAVY)
        before = run.stats()
        runs.pushed(run, runs.part(data, HEAVY, rows), 512)
        run.drain()
        reader.join()
        after = run.stats()
    spent = sum(after.threads_cpu_s) - sum(before.threads_cpu_s)
    return float((after.comparisons - before.comparisons) / spent)


def starting(scale: Scale, fewer: bool) -> int:
    """Threads at first: the paper's 5 where 9 have a core, 18 is beyond the machines at hand."""
    return 5 if scale.size == "full" and scale.cores >= 12 else 2 if fewer else 1


@cache
def stepped(scale: Scale, step: float) -> list[dict[str, Any]]:
    """The course of runs whose load goes from 70 percent to `step`, a row an interval: with the policy, and, where there is time,
    with threads that stay as they are, which is ScaleJoin."""
    workers = starting(scale, step < 0.7)
    steps = scale.pick(runs.Steps(0.4, 0.6, 2.0, 0.2), runs.Steps(2.0, 4.0, 6.0, 0.5))
    shares = 4 * max(2, workers)
    told = Thresholds()(Load(workers, shares, (min(step, 1.0),) * workers, 1.0, (max(step - 1, 0.0),) * workers))
    rows: list[dict[str, Any]] = []
    for contender, policy in ((STRETCH, Thresholds()), (SCALEJOIN, _as_they_are))[: scale.pick(1, 2)]:
        found, series = runs.stepped(
            steps, workers, (0.7, step), workers * compared_per_cpu_s(), elastic=shares, batch=SMALL, policy=policy
        )
        rows += [
            row | {"contender": contender, "phase": "before" if row["second"] <= steps.before_s else "after", "starting": workers,
                   "step_percent": 100 * step, "told": told[0] if told else workers, "changes": found["changes"]}
            for row in series
        ]  # fmt: skip
    return rows


def _as_they_are(load: Load) -> None:
    """A policy that calls for nothing."""


def judged_step(rows: Sequence[Row]) -> Found:
    by: dict[str, list[Row]] = {}
    for row in rows:
        by.setdefault(row["contender"], []).append(row)
    first, last = by[STRETCH][0], by[STRETCH][-1]
    began, told, rising = first["starting"], first["told"], first["step_percent"] > 70
    phases = {name: [row for row in by[STRETCH] if row["phase"] == name] for name in ("before", "after")}
    done = {name: sum(row["comparisons_per_s"] for row in own if row["phase"] == "after") for name, own in by.items()}
    seen = [row["called_for"] for row in phases["after"]]
    rate = {name: float(np.median([row["tuples_per_s"] for row in own])) for name, own in phases.items()}
    delay = {name: _median_ms(own[-3:]) for name, own in phases.items()}
    way = "come" if rising else "go"
    ended = phases["before"][-1]
    used = (last["cpu_s"] - ended["cpu_s"]) / (last["second"] - ended["second"])
    # If threads were not given the cores that the load takes, what waits hides it from the policy, and nothing can be told.
    fed = used > 0.6 * began * min(first["step_percent"] / 100, 1)
    moved = max(seen) > began if rising else min(seen) < began
    then = ", ".join(str(number) for number in dict.fromkeys(seen))
    claims = [
        Claim(f"threads {way} when load steps to {first['step_percent']:.0f} percent",
              moved and ended["called_for"] == began,
              f"{began} at first, {ended['called_for']} before the step, then {then}; they had {used:.2f} cores",
              cores=1 if fed else MORE_CORES),
        Claim("as many as table 2's rule says", last["threads"] == told, f"{last['threads']}, the rule has {told}",
              cores=4, quick=False),
        Claim("throughput follows the load", (rate["after"] > 1.2 * rate["before"]) == rising,
              f"{rate['before']:,.0f} t/s before, {rate['after']:,.0f} after", quick=False),
        Claim("latency does not rise for good", delay["after"] < 5 * delay["before"],
              f"{delay['before']:.1f} ms before, {delay['after']:.1f} at the end", cores=4, quick=False),
    ]  # fmt: skip
    if SCALEJOIN in by:
        claims.append(Claim(
            "more is compared than by threads that stay" if rising else "as much is compared as by threads that stay",
            done[STRETCH] > (1.0 if rising else 0.8) * done[SCALEJOIN],
            f"{done[STRETCH] / done[SCALEJOIN]:.2f} times as much after the step", cores=4, quick=False,
        ))  # fmt: skip
    panels = [
        Panel("seconds", y, [
            Line(name, [row["second"] for row in own], [row[column] for row in own]) for name, own in by.items()
        ])
        for y, column in (("threads", "threads"), ("comparisons a second", "comparisons_per_s"), ("latency, ms", "push_p50_ms"))
    ]  # fmt: skip
    return Found(
        f"When the load steps from 70 to {first['step_percent']:.0f} percent of what {began} "
        f"thread{'s' * (began > 1)} can do, the policy calls for {last['called_for']}.",
        rows, claims, panels,
        f"{began} at first where the paper shows 18; windows of seconds, not 5 minutes. The paper steps the rate; a join's load "
        "is its square, and comes to it within a window's length, so table 2's numbers are those of a load: here the load steps, "
        "and the policy is held until windows are full again. The condition costs some nanoseconds a pair, so that a thread has "
        "enough to do. ScaleJoin is the same run with a policy that changes "
        f"nothing. Changes that were done: {first['changes'] or 'none'}.",
    )  # fmt: skip


def _median_ms(rows: Sequence[Row]) -> float:
    """Of those intervals in which results came."""
    found = [row["push_p50_ms"] for row in rows if not np.isnan(row["push_p50_ms"])]
    return float(np.median(found)) if found else float("nan")


def provisioning(scale: Scale) -> Found:
    return judged_step(stepped(scale, 1.2))


def decommissioning(scale: Scale) -> Found:
    return judged_step(stepped(scale, 0.3))


# --- reconfiguration ----------------------------------------------------------------------------------------------


def imbalance_percent(threads: int, shares: int, rows: int) -> float:
    """How unevenly comparisons fall on threads, as the coefficient of variation: by what shares counted."""
    data, made = runs.tables(rows), runs.query(rows // 4)
    options: dict[str, Any] = {"workers": threads, "elastic": shares, "index": "scan"}
    with runs.started(made, data, **options) as run:
        reader = Reader(run)
        runs.pushed(run, data, 1024)
        run.drain()
        reader.join()
        owners, counts = run.owners, [worker.comparisons for worker in run.stats().workers]
    return variation_percent([int(n) for n in np.bincount(owners, counts, minlength=threads)])


def reconfiguration(scale: Scale) -> Found:
    number, window = scale.pick(8, 60), scale.pick(4_000, 10_000)
    changes = ((1, 2), (2, 4)) if scale.cores < 12 or scale.size != "full" else ((1, 2), (2, 4), (5, 9), (9, 16))
    rows: list[dict[str, Any]] = []
    for before, after in changes:
        for change in runs.switches(window, before, after, number, rate=4_000.0, gap_s=0.02, shares=max(8, after)):
            took_ms = change.reconfiguration_ms or 0.0
            rows.append({"case": "change", "threads": f"{change.before} -> {change.after}", "value": took_ms})
    shares = scale.pick(36, 144)
    for threads in scale.pick((2, 9), (2, 4, 6, 9, 16, 18)):
        uneven = imbalance_percent(threads, shares, scale.pick(3_000, 12_000))
        rows.append({"case": "imbalance", "threads": str(threads), "value": uneven})
    return judged_reconfiguration(rows)


def judged_reconfiguration(rows: Sequence[Row]) -> Found:
    times: dict[str, list[float]] = {}
    for row in rows:
        if row["case"] == "change":
            times.setdefault(row["threads"], []).append(row["value"])
    middle = {name: float(np.median(each)) for name, each in times.items()}
    most = {name: float(np.percentile(each, 90)) for name, each in times.items()}
    uneven = {row["threads"]: row["value"] for row in rows if row["case"] == "imbalance"}
    claims = [
        Claim("a reconfiguration takes less than 40 ms", max(middle.values()) < 40,
              ", ".join(f"{name}: {each:.2f} ms in the median" for name, each in middle.items())),
        Claim("nine in ten do", max(most.values()) < 40, f"the slowest tenth begins at {max(most.values()):.2f} ms",
              cores=4, quick=False),
        Claim("threads' work differs by 2 percent at most", max(uneven.values()) <= 2,
              ", ".join(f"{name}: {each:.2f} percent" for name, each in uneven.items())),
    ]  # fmt: skip
    panels = [
        Panel("threads", "reconfiguration, ms", [
            Line("median", list(middle), list(middle.values())), Line("nine in ten", list(most), list(most.values())),
            Line("at most", list(middle), [40.0] * len(middle), published=True),
        ], log_y=True),
        Panel("threads", "load imbalance, percent", [
            Line("comparisons by thread", list(uneven), list(uneven.values())),
            Line("at most", list(uneven), [2.0] * len(uneven), published=True),
        ]),
    ]  # fmt: skip
    return Found(
        f"A change of threads takes {max(middle.values()):.2f} ms in the median, with full windows; the threads' work "
        f"differs by {max(uneven.values()):.2f} percent at most.",
        rows, claims, panels,
        "Until every share is served by its new thread. Shares are a multiple of the threads; imbalance is that of "
        "comparisons, in the whole of a run.",
    )  # fmt: skip


# --- table 2 ------------------------------------------------------------------------------------------------------


def asked(starting: int, step: float) -> int:
    """Threads after a step of load, look by look as a run's policy is asked."""
    calls, threads = Calls(Thresholds()), starting
    for part in (0.7,) * 40 + (step,) * 40:
        load = part * starting / threads
        busy, waits = (min(load, 1.0),) * threads, (max(load - 1.0, 0.0),) * threads
        change = calls.look(Load(threads, MOST, busy, 0.05, waits))
        if change is not None:
            threads = change[0]
            calls.rest()
    return threads


def judged_table_2(rows: Sequence[Row]) -> Found:
    told = ", ".join(f"{row['starting']} -> {row['threads']}" for row in rows)
    claims = [
        Claim("all ten numbers of the table come out of the policy",
              all(row["threads"] == row["published"] for row in rows), told),
        Claim("a run's policy, asked look by look while load steps, comes to them and stays there",
              all(row["after_looks"] == row["published"] for row in rows),
              ", ".join(f"{row['starting']} -> {row['after_looks']}" for row in rows)),
    ]  # fmt: skip
    panels = [
        Panel("threads at first", "threads after", [
            Line(name, [row["starting"] for row in rows if row["load_percent"] == load],
                 [row[column] for row in rows if row["load_percent"] == load], published=column == "published")
            for load in (120.0, 30.0)
            for name, column in ((f"{load:.0f} percent", "after_looks"), (f"{load:.0f} percent", "published"))
        ]),
    ]  # fmt: skip
    return Found(
        "The policy with the paper's thresholds gives the paper's numbers of threads, also where it is asked look by "
        "look.", rows,
        claims, panels, "Loads are given, not measured: runs whose load steps are the studies of figure 5.",
    )  # fmt: skip


def table_2(scale: Scale) -> Found:
    """What the policy does with the paper's steps of load."""
    policy, rows = Thresholds(), []
    for starting, (more, fewer) in TABLE_2.items():
        for load, published in ((1.2, more), (0.3, fewer)):
            busy, waits = (min(load, 1.0),) * starting, (max(load - 1.0, 0.0),) * starting
            change = policy(Load(starting, MOST, busy, 1.0, waits))
            rows.append({
                "starting": starting, "load_percent": 100 * load, "threads": change[0] if change else starting,
                "after_looks": asked(starting, load), "published": published,
            })  # fmt: skip
    return judged_table_2(rows)
