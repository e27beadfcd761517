"""`plait bench join`: joins on threads beside DuckDB and NumPy, their balance, their latency, and one result for all.

Rows and ratios, all of one run; medians count, and contenders take turns, but for DuckDB's slow range join. The studies
of the papers are benchmarks of their own (`join-workers`, `join-balance`, `join-latency`, `join-punctuation`,
`join-selectivity`, `join-peers`).

- `threads_vs_duckdb`: tuples/s of the 200k benchmark, end to end from pushed batches to result batches, over those of
  DuckDB's batch join of the same tables. DuckDB gets the condition as it stands, in the form for which it takes its range
  join; with hand-made buckets (a row beside it) it is faster.
- `run_vs_duckdb_buckets`: tuples/s of `query.run` on the same tables, which are all there, over DuckDB with buckets made by hand,
  which reads the same Arrow tables. `run_vs_duckdb_buckets_in_order`: the same where DuckDB's result is in plait's order, too.
- `scan_per_worker_vs_numpy`: comparisons/s of two workers that scan, a worker, over NumPy's broadcasting.
- `scan_2_workers_vs_1`: wall-clock, inputs preloaded, so that the cores do nothing but compare.
- `balance_cv_percent`: of comparisons by worker, the worst of ScaleJoin's three skew cases.
- `skiplist_vs_ring_...`: tuples/s of ScaleJoin, and of SplitJoin, whose root alone reads the gate, with the papers' skip list as
  the gate, over the ring; two workers, many sources. Rows beside it have the pushing thread's processor time.
- `latency_ready_p50_ms`, `latency_ready_p99_ms`: from the moment a result's later tuple is ready to the finished Arrow
  batch, two workers, pushes of 128 tuples at half of the highest rate that is sustained with such pushes, windows full;
  medians of five runs. Larger pushes sustain more, at a higher latency: rows beside it.
- `push128_us`: processor time of the pushing thread a push of 128 tuples; `push128_python_us`: what of it is Python's, compiled
  calls aside, the median of three runs in which these are clocked; `push128_vs_push2048`: tuples/s that are sustained with
  such pushes, over those with pushes of 2,048.
- `partitioned_...`: joins by values beside ScaleJoin, under skew, and what the busiest of 15 workers takes (`join_parted`).
- `many_results_...`: joins with 100 results a tuple beside DuckDB, where making rows is the work (`join_many`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from plait.cli import hop
from plait.connectors import synthetic
from plait.connectors.synthetic.workload import tables
from plait_bench import join_many, join_parted, kernels, rivals
from plait_bench import join_peers as peers
from plait_bench.band import data, query
from plait_bench.join_runs import (
    Outcome,
    Paced,
    digests,
    flat_out,
    median,
    paced,
    preloaded,
    python_ns,
    rounds,
    same,
)
from plait_bench.machine import machine

Rows = list[dict[str, Any]]

#: Every strategy, with what it needs. Rivals give the same set; the others the same sequence.
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"strategy": "sequential", "workers": 1},
    {"strategy": "scalejoin", "workers": 2},
    {"strategy": "scalejoin", "workers": 3},
    {"strategy": "partitioned", "workers": 2},
    {"strategy": "partitioned", "workers": 3},
    {"strategy": "splitjoin", "workers": 2},
    {"strategy": "splitjoin", "workers": 3},
    {"strategy": "dpjoin", "workers": 2, "layout": (2, 1)},
    {"strategy": "dpjoin", "workers": 2, "layout": (1, 2)},
    {"strategy": "dpjoin", "workers": 4, "layout": (2, 2)},
    *({"strategy": name, "workers": 2, "order": "none"} for name in rivals.NAMES),
)
SKEWS = (synthetic.scalejoin_constant, synthetic.scalejoin_fluctuating, synthetic.scalejoin_peaks)

#: Tuples a push in the study of latency. The first counts; the others show what larger pushes gain and cost.
LATENCY_PIECES = (128, 512, 2048)

#: Runs of which the fastest says what is sustained: some systems keep all four threads on one of two cores for a run or two.
TRIES = 4


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    whole = data(500, 40 if quick else 400)
    rows = strategies(quick) + _against_duckdb(whole, quick) + _scans(quick) + balance(quick, (2,))
    rows += gates(quick) + _latency(quick) + join_parted.rows(quick) + join_many.rows(quick)
    return {"bench": "join", "machine": about, "rows": rows, "ratios": _ratios(rows)}


def _ratios(rows: Rows) -> dict[str, float]:
    by = {(row["case"], row["contender"]): row for row in rows}
    threads, duckdb = by["200k", "threads, auto"], by["200k", "duckdb range join"]
    whole = by["200k", "run"]["tuples_per_s"]
    one, two = by["scan", "1 worker"], by["scan", "2 workers"]
    numpy, latency = by["scan", "NumPy broadcasting"], by["latency", f"threads, {LATENCY_PIECES[0]} tuples a push"]
    large = by["latency", f"threads, {LATENCY_PIECES[-1]} tuples a push"]
    return {
        "threads_vs_duckdb": threads["tuples_per_s"] / duckdb["tuples_per_s"],
        "run_vs_duckdb_buckets": whole / by["200k", "duckdb buckets"]["tuples_per_s"],
        "run_vs_duckdb_buckets_in_order": whole / by["200k", "duckdb buckets, in order"]["tuples_per_s"],
        "scan_per_worker_vs_numpy": two["comparisons_per_s"] / 2 / numpy["comparisons_per_s"],
        "scan_2_workers_vs_1": two["comparisons_per_s"] / one["comparisons_per_s"],
        "balance_cv_percent": max(row["balance_cv_percent"] for row in rows if row["case"] == "balance"),
        **{
            f"skiplist_vs_ring_{name}": by["gate", f"{name}, skiplist"]["tuples_per_s"]
            / by["gate", f"{name}, ring"]["tuples_per_s"]
            for name in GATED
        },
        "push128_us": latency["push_us"],
        "push128_python_us": latency["push_python_us"],
        "push128_vs_push2048": latency["sustained_tuples_per_s"] / large["sustained_tuples_per_s"],
        "latency_ready_p50_ms": latency["ready_p50_ms"],
        "latency_ready_p99_ms": latency["ready_p99_ms"],
        **join_parted.ratios(rows),
        **join_many.ratios(rows),
    }


# --- one result for all -----------------------------------------------------------------------------------------


def strategies(quick: bool) -> Rows:
    """All strategies on the same tuples, scanning: one sequence, and of the rivals the same set."""
    given, within_s = data(200, 20 if quick else 120), 5 if quick else 60
    rows: Rows = []
    expected: tuple[str, str] | None = None
    for each in STRATEGIES:
        made = [flat_out(query(within_s), given, index="scan", **each) for _ in range(2)][1]
        sequence, unordered = digests(made.table)
        rival = each.get("order") == "none"
        if expected is None:
            expected = sequence, unordered
            same("DuckDB", peers.duckdb(given, buckets=True, within_s=within_s), made.table.num_rows)
        same(f"{each}: the set", unordered, expected[1])
        if not rival:
            same(f"{each}: the sequence", sequence, expected[0])
        rows.append({
            "case": "one result", "contender": _name(each), "workers": len(made.stats.workers),
            "results": made.table.num_rows, "sequence": None if rival else sequence, "set": unordered,
            "seconds": made.seconds, "tuples_per_s": made.tuples_per_s, "comparisons_per_s": made.comparisons_per_s,
        })  # fmt: skip
    return rows


def _name(options: dict[str, Any]) -> str:
    shape = options.get("layout")
    return str(options["strategy"]) + (f" {shape[0]} x {shape[1]}" if shape else "")


# --- throughput -------------------------------------------------------------------------------------------------


def _against_duckdb(whole: dict[str, pa.Table], quick: bool) -> Rows:
    tuples, found, kept = sum(t.num_rows for t in whole.values()), {}, {}

    def threads(index: str) -> Callable[[], float]:
        def call() -> float:
            made = flat_out(query(), whole, workers=2, index=index)
            found[f"threads, {index}"], kept[index] = made.table.num_rows, made
            return made.seconds

        return call

    def run() -> float:
        begin = time.perf_counter()
        made = query().run(whole)
        spent = time.perf_counter() - begin
        found["run"] = made.num_rows
        same("query.run: the sequence", digests(made), digests(kept["auto"].table))
        return spent

    def duckdb(name: str, buckets: bool, ordered: bool = False) -> Callable[[], float]:
        def call() -> float:
            begin = time.perf_counter()
            found[name] = peers.duckdb(whole, buckets=buckets, ordered=ordered)
            return time.perf_counter() - begin

        return call

    times = rounds(
        {
            "threads, auto": threads("auto"),
            "run": run,
            "duckdb buckets": duckdb("duckdb buckets", True),
            "duckdb buckets, in order": duckdb("duckdb buckets, in order", True, ordered=True),
        },
        2 if quick else 5,
    )
    slow = "duckdb range join"
    times |= rounds({slow: duckdb(slow, False)}, 1 if quick else 3, warm=False)
    same("A contender", set(found.values()), {found["threads, auto"]})
    return [
        {"case": "200k", "contender": name, "results": found[name], "seconds": statistics.median(each),
         "tuples_per_s": tuples / statistics.median(each), "tuples": tuples}
        for name, each in times.items()
    ]  # fmt: skip


def _scans(quick: bool) -> Rows:
    given = data(100, 60) if quick else data(400, 800)
    narrow = partial(query, band=2)  # few results: building Arrow rows takes a core, and here the cores are to compare
    last: dict[str, Outcome] = {}

    def scan(workers: int) -> Callable[[], float]:
        def call() -> float:
            made = last[f"{workers} worker{'s' * (workers > 1)}"] = preloaded(
                narrow, given, workers=workers, index="scan"
            )
            return made.comparisons_per_s

        return call

    random = np.random.default_rng(7)
    window, probes = (kernels.random_rows(random, n, schema, kernels.DOMAIN)
                      for n, schema in ((kernels.SCAN_WINDOW, kernels.RIGHT), (64, kernels.LEFT)))  # fmt: skip
    arrays = [[batch.column(k).to_numpy() for k in (0, 1)] for batch in (window, probes)]
    broadcast = kernels.numpy_scan(arrays[0], arrays[1], kernels.SCAN_WINDOW)

    def numpy() -> float:
        begin = time.perf_counter()
        broadcast()
        return 64 * kernels.SCAN_WINDOW / (time.perf_counter() - begin)

    speeds = rounds({"1 worker": scan(1), "2 workers": scan(2), "NumPy broadcasting": numpy}, 1 if quick else 3)
    same("2 workers", digests(last["2 workers"].table), digests(last["1 worker"].table))
    return [
        {"case": "scan", "contender": name, "comparisons_per_s": statistics.median(values)}
        | ({"seconds": last[name].seconds, "results": last[name].table.num_rows} if name in last else {})
        for name, values in speeds.items()
    ]


# --- gates ------------------------------------------------------------------------------------------------------

GATED = ("scalejoin", "splitjoin")


def gates(quick: bool) -> Rows:
    """The same join on either gate, of streams with many sources: into the skip list they sort, rings are merged by readers."""
    work = synthetic.scalejoin_constant(seconds=6 if quick else 60)
    given, last = tables(work), {}

    def on(name: str, gate: str) -> Callable[[], float]:
        def call() -> float:
            made = flat_out(query(5, workload=work), given, workers=2, strategy=name, gate=gate)
            last[f"{name}, {gate}"] = made
            return made.seconds

        return call

    contenders = {f"{name}, {gate}": on(name, gate) for name in GATED for gate in ("ring", "skiplist")}
    times = rounds(contenders, 1 if quick else 3)
    for name, made in last.items():
        same(name, digests(made.table), digests(last["scalejoin, ring"].table))
    return [
        {"case": "gate", "contender": name, "workers": 2, "results": last[name].table.num_rows,
         "seconds": statistics.median(each), "tuples_per_s": last[name].tuples / statistics.median(each),
         "push_ns": last[name].push_ns, "distribution_share": last[name].stats.stages["distribution"]}
        for name, each in times.items()
    ]  # fmt: skip


# --- balance ----------------------------------------------------------------------------------------------------


def balance(quick: bool, workers: tuple[int, ...]) -> Rows:
    """ScaleJoin's three skew cases: many sources, each at its own rate; constant, swinging, with peaks."""
    rows: Rows = []
    for make in SKEWS:
        work = make(seconds=6 if quick else 60)
        given = tables(work)
        for number in workers:
            made = flat_out(query(workload=work), given, workers=number, strategy="scalejoin", index="scan")
            counts = [w.comparisons for w in made.stats.workers]
            rows.append({
                "case": "balance", "contender": f"{work.name}, {number} workers", "workers": number,
                "balance_cv_percent": made.stats.balance_cv_percent,
                "largest_vs_mean": max(counts) / (sum(counts) / number), "comparisons_per_s": made.comparisons_per_s,
                "tuples_per_s": made.tuples_per_s, "results": made.table.num_rows,
            })  # fmt: skip
    return rows


# --- latency ----------------------------------------------------------------------------------------------------


def latency_row(contender: str, runs: list[Paced], **more: Any) -> dict[str, Any]:
    return {
        "case": "latency", "contender": contender, "ready_p50_ms": median(runs, "p50"),
        "ready_p99_ms": median(runs, "p99"), "ready_max_ms": median(runs, "max"),
        "push_p50_ms": statistics.median(each.push.p50 for each in runs),
        "push_p99_ms": statistics.median(each.push.p99 for each in runs),
        "tuples_per_s": statistics.median(each.rate for each in runs),
        "most_behind_ms": statistics.median(each.behind_ms for each in runs), **more,
    }  # fmt: skip


def _latency(quick: bool) -> Rows:
    """At half of what is sustained with pushes of each size, once the windows are full."""
    whole = data(500, 40 if quick else 600)
    best = {
        size: max(
            (flat_out(query(), whole, size=size, workers=2) for _ in range(TRIES)), key=lambda made: made.tuples_per_s
        )
        for size in LATENCY_PIECES
    }
    sustained = {size: made.tuples_per_s for size, made in best.items()}
    python_us = [python_ns(query(), whole, size=LATENCY_PIECES[0], workers=2) / 1e3 for _ in range(1 if quick else 3)]
    bare: list[tuple[float, float]] = []
    runs: dict[int, list[Paced]] = {size: [] for size in LATENCY_PIECES}
    for _ in range(1 if quick else 5):
        hops = hop.hops_ns(4000)[400:] / 1e6  # the first ones wake a thread that is still being made
        bare.append((float(np.percentile(hops, 50)), float(np.percentile(hops, 99))))
        for size, kept in runs.items():
            kept.append(paced(query(), whole, warm=0.6, rate=sustained[size] / 2, size=size, workers=2))
    hand_offs = {
        f"ready_{name}_ms": statistics.median(each[at] for each in bare) for at, name in enumerate(("p50", "p99"))
    }
    return [
        *(
            latency_row(
                f"threads, {size} tuples a push",
                kept,
                sustained_tuples_per_s=sustained[size],
                workers=2,
                push_us=best[size].push_ns * size / 1e3,
                **({"push_python_us": statistics.median(python_us)} if size == LATENCY_PIECES[0] else {}),
            )
            for size, kept in runs.items()
        ),
        {"case": "latency", "contender": "bare hand-off between two threads"} | hand_offs,
    ]
