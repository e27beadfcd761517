"""`plait bench elastic`: what it costs to let threads come and go (STRETCH, section 9), on ScaleJoin with full windows.

Reconfiguration time is the paper's: from the command to the moment the new map is in force, here for every share and
served by its new thread. `resize_window_10x_ratio` is the median of 1 <-> 2 with windows ten times as large over that
with the smaller ones, by the same condition, which then gives ten times the results. `resize_window_10x_same_results_ratio`
tells the two apart: narrower bands make up for the larger windows, so that as many results come out as before.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import numpy as np

from plait.errors import RunError
from plait.threads.elastic.manager import Change
from plait_bench import elastic_model as model
from plait_bench import elastic_runs as runs
from plait_bench.join_runs import Reader
from plait_bench.machine import machine

WINDOW = 10_000  # tuples a stream
NARROW = 10 / 10**0.5  # bands, of two columns, that let a tenth of the pairs through
RATE = 8_000.0  # tuples/s while changes are timed: well below what one thread can do
HEAVY_WINDOW = 1_000  # of the condition that is called pair by pair


def run(quick: bool = False, full: bool = False) -> dict[str, Any]:
    """Everything; `full` with the paper's windows and phases of figure 5, which take 25 minutes."""
    about = machine()
    number = 20 if quick else 200
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for before, after in ((1, 2), (2, 4), (4, 8)):
        found = runs.switches(WINDOW, before, after, number, rate=RATE)
        rows += _reconfiguration(f"{before} <-> {after}", WINDOW, found)
        if before < 4:
            ratios |= _quantiles(f"resize_{before}_{after}", found)
    rows += _reconfiguration("rebalancing 2 threads", WINDOW, runs.switches(WINDOW, 2, 2, number, rate=RATE))
    # Turns: a machine that is busier in one minute than in the next would decide a ratio of two single runs.
    turns = [
        [
            runs.switches(window, 1, 2, number if quick else number // 2, rate=RATE, band=band)
            for window, band in ((WINDOW, 10), (10 * WINDOW, NARROW), (10 * WINDOW, 10))
        ]
        for _ in range(1 if quick else 3)
    ]
    for place, label in ((1, "1 <-> 2, the same rate of results"), (2, "1 <-> 2, ten times the results")):
        rows += _reconfiguration(label, 10 * WINDOW, [change for turn in turns for change in turn[place]])
    for place, name in ((2, "resize_window_10x_ratio"), (1, "resize_window_10x_same_results_ratio")):
        ratios[name] = statistics.median(_median(turn[place]) / _median(turn[0]) for turn in turns)
    random = runs.random_switches(100 if quick else 1200)
    rows.append(random)
    if not random["identical to a run without switches"]:
        raise RunError("Results changed with the switches", do="Report this")
    rows += _overhead(quick)
    rows += figure_5(runs.SHORT if quick else runs.PAPERS if full else runs.SCALED)
    rows += _pure(quick)
    rows += _model(quick)
    return {"bench": "elastic", "machine": about, "rows": rows, "ratios": ratios}


def _median(changes: list[Change]) -> float:
    return statistics.median(c.reconfiguration_ms or 0.0 for c in changes)


def _quantiles(name: str, changes: list[Change]) -> dict[str, float]:
    values = [c.reconfiguration_ms or 0.0 for c in changes]
    return {f"{name}_p50_ms": float(np.percentile(values, 50)), f"{name}_p99_ms": float(np.percentile(values, 99))}


def _reconfiguration(label: str, window: int, changes: list[Change]) -> list[dict[str, Any]]:
    made = []
    for kind in sorted({c.kind for c in changes}):
        own = [c for c in changes if c.kind == kind]
        times = [c.reconfiguration_ms or 0.0 for c in own]
        made.append(
            {
                "case": "reconfiguration with full windows",
                "threads": label,
                "kind": kind,
                "window, tuples a stream": window,
                "changes": len(own),
                "p50 ms": float(np.percentile(times, 50)),
                "p99 ms": float(np.percentile(times, 99)),
                "max ms": max(times),
                "of that handing over, p50 ms": statistics.median(c.switch_ms or 0.0 for c in own),
                "shares moved": round(statistics.mean(c.moved for c in own), 1),
            }
        )
    return made


def _overhead(quick: bool) -> list[dict[str, Any]]:
    """The same threads on as many shares, and on four times as many: what elasticity costs where nothing changes."""
    found = []
    cases = (("called pair by pair", None, HEAVY_WINDOW, 10_000), ("band grid", runs.query(WINDOW), WINDOW, 20_000))
    for index, made, window, rows in cases:
        for label, options in (
            ("fixed", {"strategy": "scalejoin"}), ("2 shares", {"elastic": 2}), ("8 shares", {"elastic": 8})
        ):  # fmt: skip
            rates = [
                runs.sustained(window, rows // (4 if quick else 1), 2, made=made, **options)
                for _ in range(1 if quick else 3)
            ]
            found.append({
                "case": "what more shares than threads cost, 2 threads", "condition": index, "shares": label,
                "tuples_per_s": statistics.median(rates),
            })  # fmt: skip
    return found


def figure_5(steps: runs.Steps, numbers: tuple[int, int] = (1, 2)) -> list[dict[str, Any]]:
    """Load that steps up from 70% to 120%, and down to 30%, of what the threads sustain; `numbers` of them at first.

    A row for each, then one for each second of them.
    """
    found, seconds = [], []
    for label, workers, parts in (("70% to 120%", numbers[0], (0.7, 1.2)), ("70% to 30%", numbers[1], (0.7, 0.3))):
        compared = runs.compared_per_s(HEAVY_WINDOW, workers)
        made, series = runs.stepped(steps, workers, parts, compared)
        found.append({
            "case": f"load from {label} of what {workers} can do, with the policy", "threads at first": workers, **made,
        })  # fmt: skip
        seconds += [{"case": f"load from {label}, second by second", **each} for each in series]
    return found + seconds


def _pure(quick: bool) -> list[dict[str, Any]]:
    rows = 5_000 if quick else 10_000
    found = []
    for n in (1, 2, 4):
        found.append({
            "case": "virtual and pure shared-nothing, the same join", "threads": n,
            "virtual tuples_per_s": runs.sustained(HEAVY_WINDOW, rows, n, elastic=max(n, 2)),
            "pure tuples_per_s": runs.pure_sustained(HEAVY_WINDOW, rows, n),
        })  # fmt: skip
    for window in (WINDOW, 10 * WINDOW):
        found.append({
            "case": "reconfiguration of the pure one: state moves", "window, tuples a stream": window,
            "1 -> 2 ms": runs.pure_reconfiguration(window, 2),
        })  # fmt: skip
    return found


def _model(quick: bool) -> list[dict[str, Any]]:
    """The curves of `elastic_model` beside what is measured, for windows small enough that input and output matter."""
    window, rows = 200, 4_000 if quick else 10_000
    costs = measured_costs(window, rows)
    found = []
    for n in (1, 2, 4, 8):
        v, p = model.virtual(costs, n), model.pure(costs, n)
        found.append({
            "case": "a model after section 8, tuples/s", "threads": n,
            "virtual, model": v.tuples_per_s, "virtual, measured": runs.sustained(window, rows, n, elastic=max(n, 2)),
            "virtual bound by": v.bottleneck,
            "pure, model": p.tuples_per_s, "pure, measured": runs.pure_sustained(window, rows, n),
            "pure bound by": p.bottleneck,
        })  # fmt: skip
    return found


def measured_costs(window: int, rows: int) -> model.Costs:
    """The model's parameters on this machine, by threads' own time where the stage is one thread's."""
    one = 1 / runs.sustained(window, rows, 1, elastic=2)
    empty = 1 / runs.sustained(1, rows, 1, elastic=2)  # windows of one tuple: seeing it is all there is
    shared, copied = [_push_cost(n, rows, pure=False) for n in (1, 4)], [_push_cost(n, rows, pure=True) for n in (1, 4)]
    merged = [_merge_cost(n, rows) for n in (1, 4)]
    return model.Costs(
        d_input=shared[0],
        d_process=max(one - empty, 1e-9),
        d_output=merged[0],
        d_see=max(empty - shared[0], 1e-9),
        d_copy=max(copied[1] - copied[0], 0.0) / 3,
        d_share=max(shared[1] - shared[0], 0.0) / 3,
        d_merge_pure=max(merged[1] - merged[0], 0.0) / (3 * 2),
        d_merge_virtual=0.0,  # a compare a result and thread, in compiled code: too little to be seen beside the rest
        cores=os.cpu_count() or 1,
    )


def _push_cost(workers: int, rows: int, *, pure: bool) -> float:
    """Seconds of processor time a tuple, of who pushes, for so many readers of one gate, or so many engines."""
    data, made = runs.tables(rows), runs.heavy(1)
    first, rest = runs.part(data, 0, 500), runs.part(data, 500, rows - 500)
    if pure:
        run = runs.PureRun(made, data, workers)
        run.push(first)  # kernels are loaded
        took = run.push(rest)
        run.finish()
    else:
        with runs.started(made, data, workers=1, elastic=max(workers, 2)) as shared:
            reader = Reader(shared)
            runs.pushed(shared, first, 512)
            begin = time.thread_time()
            runs.pushed(shared, rest, 512)
            took = time.thread_time() - begin
            shared.drain()
            reader.join()
    return took / (2 * (rows - 500))


def _merge_cost(workers: int, rows: int) -> float:
    """Seconds a tuple to merge what so many engines give."""
    data, made = runs.tables(rows), runs.heavy(200)
    run = runs.PureRun(made, data, workers)
    run.push(data)
    parts = run.parts()
    began = time.thread_time()
    runs.merged(parts)
    return (time.thread_time() - began) / (2 * rows)
