"""`plait bench cores`: what more cores give, on 1, 2, 4, ... of those that this machine has, and on all but one.

All rows are of one run, contenders take turns, and medians count. With n workers a join has besides them a thread for each stream
that pushes, the one that reads, and those that make rows of results; with as many workers as there are cores they share these.
N is the most workers that leave a core.

- `band_N_workers_vs_1`, `equality_N_workers_vs_1`: tuples/s of the 200k band join over four million tuples a stream, so that
  filling the windows is a small part (of one million it is a third with fifteen workers), and of an equality of as many tuples,
  joined by values with N workers, over those with one.
- `band_skewed_vs_balanced`, `equality_skewed_vs_balanced`: tuples/s with N workers where nine tuples in ten have one value, or
  lie in one thousandth of the range, over those where they do not.
- `scan_N_workers_vs_1`, and `scan_vs_bare_kernels`: comparisons/s of a join that scans, inputs preloaded, over those of the bare
  scan kernel on as many threads, each with its part of the probes: what gate, order and results cost.
- `wiml_N_threads_vs_1`: tuples/s of WiML over 15 sources, or N if these are more, pushed by N threads, over those pushed by one.
- `wiml_N_workers_vs_1`: the same pushed by one thread, with a pool of N that update, over those where it updates itself.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait_bench import aggregate_runs, kernels
from plait_bench.band import data, query
from plait_bench.join_parted import crowded, equality
from plait_bench.join_runs import Outcome, digests, flat_out, preloaded, rounds, same
from plait_bench.machine import machine

Rows = list[dict[str, Any]]
KEYS = 40_000


def run(quick: bool = False) -> dict[str, Any]:
    about, numbers = machine(), counts(os.cpu_count() or 1)
    rows = _joins(numbers, quick) + _scans(numbers, quick) + _aggregates(numbers, quick)
    return {"bench": "cores", "machine": about, "rows": rows, "ratios": ratios(rows)}


def counts(cores: int) -> list[int]:
    """Powers of two up to the machine's cores, and all but one: there the thread that pushes has a core, too."""
    powers = {1 << k for k in range(cores.bit_length()) if 1 << k <= cores}
    return sorted(powers | ({cores - 1} if cores > 2 else set()))


def most(numbers: list[int]) -> int:
    """The most workers that leave the others a core, where there are that many: all but one."""
    return numbers[-2] if len(numbers) > 2 else numbers[-1]


def _joins(numbers: list[int], quick: bool) -> Rows:
    whole, found = data(500, 40 if quick else 8000), []
    for case, made in (("band", query()), ("equality", equality())):
        last: dict[str, Outcome] = {}
        given = {hot: crowded(whole, case, hot=hot) for hot in (False, True)}
        asked = [(n, False) for n in numbers] + [(most(numbers), True)]

        def call(n: int, hot: bool, made: Any = made, given: Any = given, last: Any = last) -> float:
            last[_name(n, hot)] = flat_out(made, given[hot], strategy="partitioned", workers=n, apart=True)
            return float(last[_name(n, hot)].seconds)

        times = rounds({_name(n, hot): partial(call, n, hot) for n, hot in asked}, 1 if quick else 3)
        for n in numbers:
            same(_name(n, False), digests(last[_name(n, False)].table), digests(last[_name(1, False)].table))
        for n, hot in asked:
            seconds = statistics.median(times[_name(n, hot)])
            found.append({
                "case": case, "contender": _name(n, hot), "workers": n, "skewed": hot, "seconds": seconds,
                "tuples_per_s": last[_name(n, hot)].tuples / seconds, "results": last[_name(n, hot)].table.num_rows,
            })  # fmt: skip
    return found


def _name(workers: int, hot: bool) -> str:
    return f"{workers} workers" + ", nine in ten alike" * hot


def _scans(numbers: list[int], quick: bool) -> Rows:
    given = data(100, 60) if quick else data(400, 800)
    narrow = partial(query, band=2)  # few results: the cores are to compare
    dice = np.random.default_rng(7)
    probes = kernels.random_rows(dice, 1024 if quick else 16_384, kernels.LEFT, kernels.DOMAIN)
    window = kernels.random_rows(dice, kernels.SCAN_WINDOW, kernels.RIGHT, kernels.DOMAIN)
    kept: dict[int, pa.Table] = {}

    def joined(n: int) -> float:
        made = preloaded(narrow, given, workers=n, index="scan", strategy="scalejoin")
        kept[n] = made.table
        return float(made.comparisons_per_s)

    def bare(n: int) -> Callable[[], float]:
        size = probes.num_rows // n
        parts = [kernels.Scan(kernels.near, window, probes.slice(k * size, size)) for k in range(n)]

        def call() -> float:
            with ThreadPoolExecutor(n) as pool:
                begin = time.perf_counter()
                list(pool.map(lambda part: part(), parts))
                return float(n * size * kernels.SCAN_WINDOW / (time.perf_counter() - begin))

        return call

    asked: dict[str, Callable[[], float]] = {f"join, {n} workers": partial(joined, n) for n in numbers}
    asked |= {f"bare kernels, {n} threads": bare(n) for n in numbers}
    speeds = rounds(asked, 1 if quick else 3)
    for n in numbers:
        same(f"{n} workers", digests(kept[n]), digests(kept[1]))
    return [
        {
            "case": "scan",
            "contender": name,
            "workers": int(name.split()[-2]),
            "comparisons_per_s": statistics.median(each),
        }
        for name, each in speeds.items()
    ]


def readings(rows: int, sources: int) -> list[pa.RecordBatch]:
    """What each of so many sources delivers: many keys, so that threads seldom meet at one."""
    dice = np.random.default_rng(3)
    ts = np.cumsum(dice.integers(1, 200, rows))
    whole = pa.record_batch({"ts": ts, "key": dice.integers(0, KEYS, rows), "value": np.round(dice.random(rows), 3)})
    by = dice.integers(0, sources, rows)
    return [whole.take(pa.array(np.flatnonzero(by == source))) for source in range(sources)]


def _aggregates(numbers: list[int], quick: bool) -> Rows:
    sources = max(15, most(numbers))  # as many for each thread with N of them
    given = readings(100_000 if quick else 4_000_000, sources)
    stream = plait.stream("readings", unit="us", sources=sources)
    compute = {"n": plait.count(), "sum": plait.sum("value")}
    made = plait.aggregate(stream, size="30s", advance="30s", by="key", compute=compute)
    kept: dict[str, pa.Table] = {}

    def call(name: str, crew: int, workers: int) -> float:
        found = aggregate_runs.on_threads(made, given, piece=4096, crew=crew, strategy="wiml", workers=workers)
        kept[name] = found.table
        return found.tuples_per_s

    asked = {f"{n} threads push": (n, 1) for n in numbers} | {f"{n} workers": (1, n) for n in numbers if n > 1}
    speeds = rounds({name: partial(call, name, *each) for name, each in asked.items()}, 1 if quick else 3)
    for name in asked:
        same(name, digests(kept[name]), digests(kept["1 threads push"]))
    return [
        {"case": "wiml", "contender": name, "workers": max(each), "tuples_per_s": statistics.median(speeds[name]),
         "results": kept[name].num_rows}
        for name, each in asked.items()
    ]  # fmt: skip


def ratios(rows: Rows) -> dict[str, float]:
    numbers = sorted({row["workers"] for row in rows})
    n = most(numbers)
    by = {(row["case"], row["contender"]): row for row in rows}
    found: dict[str, float] = {}
    for case in ("band", "equality"):
        own = by[case, _name(n, False)]["tuples_per_s"]
        found[f"{case}_{n}_workers_vs_1"] = own / by[case, _name(1, False)]["tuples_per_s"]
        found[f"{case}_skewed_vs_balanced"] = by[case, _name(n, True)]["tuples_per_s"] / own
    scan = by["scan", f"join, {n} workers"]["comparisons_per_s"]
    found[f"scan_{n}_workers_vs_1"] = scan / by["scan", "join, 1 workers"]["comparisons_per_s"]
    found["scan_vs_bare_kernels"] = scan / by["scan", f"bare kernels, {n} threads"]["comparisons_per_s"]
    one = by["wiml", "1 threads push"]["tuples_per_s"]
    found[f"wiml_{n}_threads_vs_1"] = by["wiml", f"{n} threads push"]["tuples_per_s"] / one
    if n > 1:
        found[f"wiml_{n}_workers_vs_1"] = by["wiml", f"{n} workers"]["tuples_per_s"] / one
    return found
