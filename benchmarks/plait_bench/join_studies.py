"""The papers' studies of joins on threads, at this machine's scale. Each is a benchmark of its own.

What each measures is in its docstring; which figure of the papers that answers, and which it does not, is in docs/papers.md. A
figure of theirs is a shape, not a number, to be found again. All results are checked against one another.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import plait
from plait.connectors import synthetic
from plait.connectors.synthetic.workload import tables
from plait.threads.join.marks import MARK
from plait_bench import join_peers as peers
from plait_bench import merging, rivals
from plait_bench.band import LEFT, RIGHT, counted, data, query
from plait_bench.join import Rows, balance, latency_row
from plait_bench.join_runs import digests, flat_out, paced, pieces, preloaded, rounds, same, warm_up
from plait_bench.machine import machine

PAIR = 64  # tuples in a push where latency is measured in real time


def _result(name: str, rows: Rows, ratios: dict[str, float]) -> dict[str, Any]:
    return {"bench": name, "machine": machine(), "rows": rows, "ratios": ratios}


def workers(quick: bool = False) -> dict[str, Any]:
    """c/s and t/s by workers and by window length, scanning, preloaded: the c/s of ScaleJoin's figure 5, and figure 6's rivals.

    The streams' rate in event time is the same for all, and tuples come as fast as they are taken: so t/s goes with c/s. The
    rates that a number of workers sustains, which go with the root (figure 5's t/s; SplitJoin's figure 12), are not measured
    here. The rivals run flat out, since preloading needs a second source, beside scalejoin flat out.
    """
    rate, lengths = (100, (5, 10)) if quick else (200, (60, 120, 240))
    rows: Rows = []
    for window in lengths:
        given, seen = data(rate, 2 * window), None
        plans: list[tuple[dict[str, Any], bool]] = [
            ({"strategy": "sequential" if n == 1 else name, "workers": n}, True)
            for name in ("scalejoin", "splitjoin", "dpjoin") for n in (1, 2, 4) if n > 1 or name == "scalejoin"
        ]  # fmt: skip
        plans += [({"strategy": "scalejoin", "workers": 2, "order": "none"}, False)]
        plans += [
            ({"strategy": name, "workers": n, "order": "none"}, False)
            for name in rivals.NAMES for n in (1, 2, 4)
        ]  # fmt: skip
        for options, ahead in plans:

            def make(window: int = window, **more: Any) -> Any:
                return query(window, **more)

            made = (preloaded(make, given, index="scan", **options) if ahead
                    else flat_out(make(), given, index="scan", **options))  # fmt: skip
            unordered = digests(made.table)[1]
            seen = seen or unordered
            same(f"{options}", unordered, seen)
            rows.append({
                "strategy": options["strategy"], "workers": options["workers"], "window_s": window,
                "preloaded": ahead, "comparisons_per_s": made.comparisons_per_s, "tuples_per_s": made.tuples_per_s,
                "balance_cv_percent": made.stats.balance_cv_percent, "results": made.table.num_rows, "set": unordered,
            } | {f"{stage}_percent": 100 * share for stage, share in made.stats.stages.items()})  # fmt: skip
    longest = {(r["strategy"], r["workers"]): r for r in rows if r["window_s"] == lengths[-1] and r["preloaded"]}
    one = longest["sequential", 1]["comparisons_per_s"]
    ratios = {f"{s}_{n}_workers_vs_1": r["comparisons_per_s"] / one for (s, n), r in longest.items() if n > 1}
    return _result("join-workers", rows, ratios)


def skew(quick: bool = False) -> dict[str, Any]:
    """Comparisons by worker under ScaleJoin's three skew cases (figure 8), in all; the figure has them second by second."""
    rows = balance(quick, (2, 3) if quick else (2, 3, 4, 8))
    return _result("join-balance", rows, {"balance_cv_percent": max(r["balance_cv_percent"] for r in rows)})


def latency(quick: bool = False) -> dict[str, Any]:
    """Latency by layouts of four workers, symmetric streams and asymmetric ones, in real time, scanning.

    DP-Join's figures 8 and 9 at their rates of 1,000 and 1,000 and 3,000 t/s, with windows of 60 s where they have 300 s, and one
    number of workers where they have up to 16.
    Windows are full when measuring begins, but for the handshake joins: there tuples must age, so their windows are
    short, and scalejoin's beside them.
    """
    seconds, window, repeat = (3, 2, 1) if quick else (66, 60, 3)
    pace = 20_000.0 if quick else None
    symmetric = tables(synthetic.band_join(left=1000, right=1000, seconds=seconds, seed=1))
    asymmetric = tables(synthetic.dpjoin_asymmetric(seconds=seconds))
    rows: Rows = []
    for name, given, rates in (
        ("symmetric", symmetric, (1000.0, 1000.0)),
        ("asymmetric", asymmetric, (1000.0, 3000.0)),
    ):
        plans: list[tuple[str, dict[str, Any]]] = [
            (f"dpjoin {m} x {n}", {"strategy": "dpjoin", "layout": (m, n)}) for m, n in ((4, 1), (2, 2), (1, 4))
        ]
        plans += [("dpjoin 2 x 2, emitter", {"strategy": "dpjoin", "layout": (2, 2), "emitter": True}),
                  ("dpjoin auto", {"strategy": "dpjoin", "workers": 4, "rates": rates}),
                  ("scalejoin", {"strategy": "scalejoin", "workers": 4}),
                  ("splitjoin", {"strategy": "splitjoin", "workers": 4})]  # fmt: skip
        seen = None
        for contender, options in plans:
            runs = [
                paced(
                    query(window),
                    given,
                    warm=0.5 if quick else window / seconds,
                    rate=None,
                    size=PAIR,
                    index="scan",
                    **options,
                )
                for _ in range(repeat)
            ]
            sequence = digests(runs[-1].table)[0]
            seen = seen or sequence
            same(contender, sequence, seen)
            rows.append({"streams": name, "window_s": window} | latency_row(contender, runs, workers=4))
    short = 1 if quick else 4
    given, seen = tables(synthetic.band_join(left=1000, right=1000, seconds=3 * short, seed=1)), None
    for contender in ("scalejoin", *rivals.NAMES):
        made = paced(query(short, band=100), given, warm=0.01, rate=pace, size=PAIR, index="scan", strategy=contender,
                     workers=2, order="none")  # fmt: skip
        unordered = digests(made.table)[1]
        seen = seen or unordered
        same(contender, unordered, seen)
        rows.append({"streams": "symmetric", "window_s": short} | latency_row(contender, [made], workers=2))
    by = {(r["streams"], r["window_s"], r["contender"]): r for r in rows}
    ratios = {
        f"{name}_{other}_vs_{best}": by[name, window, f"dpjoin {other}"]["ready_p50_ms"]
        / by[name, window, f"dpjoin {best}"]["ready_p50_ms"]
        for name, best, other in (("symmetric", "2 x 2", "4 x 1"), ("asymmetric", "1 x 4", "4 x 1"))
    }
    # Of two workers' windows the older half is met at once, so the median says little.
    ratios["handshake_p99_vs_window"] = by["symmetric", short, "handshake"]["push_p99_ms"] / 1e3 / short
    return _result("join-latency", rows, ratios)


def punctuation(quick: bool = False) -> dict[str, Any]:
    """Throughput by how exactly results are ordered, from result order to as they come; many results a tuple, found by hash.

    By hash a trigger's partners are found newest first, so here order costs the workers sorting, and the gatherer comparing. No
    marks are shown. SplitJoin's figure 19, which has marks, is `ordering`.
    """
    rows: Rows = []
    given, made_of = _keyed(2_000 if quick else 10_000)
    seen, repeat = None, 1 if quick else 3
    for interval in ("comparison", "10 comparisons", 1, 10, 100, 1000, None):
        options: dict[str, Any] = {"strategy": "splitjoin", "workers": 2, "punctuate": interval, "index": "hash"}
        runs = [flat_out(made_of, given, **options) for _ in range(repeat)]
        made = sorted(runs, key=lambda each: each.seconds)[repeat // 2]
        sequence, unordered = digests(made.table)
        seen = seen or unordered
        same(f"punctuate={interval}", unordered, seen)
        busy = sum(worker.busy_s for worker in made.stats.workers)
        rows.append({
            "punctuate": "never" if interval is None else str(interval), "tuples_per_s": made.tuples_per_s,
            "results": made.table.num_rows, "results_per_s": made.table.num_rows / made.seconds, "workers_busy_s": busy,
            "latency_push_p50_ms": made.stats.latency_from_push_ms.p50, "sequence": sequence, "set": unordered,
        })  # fmt: skip
    ratios = {
        "never_vs_comparison": rows[-1]["tuples_per_s"] / rows[0]["tuples_per_s"],
        "never_vs_comparison_busy": rows[-1]["workers_busy_s"] / rows[0]["workers_busy_s"],
    }
    return _result("join-punctuation", rows, ratios)


def _keyed(rows: int, keys: int = 20, last: int = 2000) -> tuple[dict[str, pa.Table], Any]:
    """Two streams of few keys, and their equality over windows that count: about `last / keys` results a tuple."""
    dice = np.random.default_rng(1)
    given = {
        name: pa.table({"ts": np.arange(rows) * 2 + at, "k": dice.integers(0, keys, rows), "v": np.arange(rows)})
        for at, name in enumerate((LEFT, RIGHT))
    }
    return given, plait.join(*(plait.stream(name, unit="us") for name in given), on="l.k = r.k", last=last)


def ordering(quick: bool = False) -> dict[str, Any]:
    """Throughput by punctuation interval, with marks: SplitJoin's figure 19, at this machine's scale.

    Windows that count, scanned; the interval goes from one comparison (strict inner ordering) to the whole sub-window (strict
    outer ordering: one mark a tuple), and a reader takes results and marks. Two workers of sub-windows of 2^8 to 2^10 where the
    paper has 28 of 2^12 to 2^15: as there, what counts is how many marks there are for a comparison.
    """
    rows: Rows = []
    for power in (6, 7) if quick else (8, 9, 10):
        sub_window, workers = 2**power, 2
        tuples = 4 * workers * sub_window
        given = {name: t.slice(0, tuples) for name, t in data(1000, -(-tuples // 1000)).items()}
        made_of = counted(workers * sub_window)
        seen = None
        for interval in (2**k for k in range(power + 1)):
            options: dict[str, Any] = {"strategy": "splitjoin", "workers": workers, "index": "scan", "marks": True}
            options["punctuate"] = 1 if interval == sub_window else f"{interval} comparisons"
            warm_up(made_of, given, **options)
            made = min(read_marked(made_of, given, **options) for _ in range(1 if quick else 2))
            seen = seen or made.rows
            same(f"a mark every {interval} comparisons", made.rows, seen)
            rows.append({
                "sub_window": sub_window, "interval": interval, "tuples_per_s": 2 * tuples / made.seconds,
                "marks": made.marks, "marks_per_tuple": made.marks / (2 * tuples), "results": len(made.rows),
            })  # fmt: skip
    speed = {(r["sub_window"], r["interval"]): r["tuples_per_s"] for r in rows}
    largest = max(size for size, _ in speed)
    ratios = {
        "outer_vs_strict_inner": speed[largest, largest] / speed[largest, 1],
        "outer_vs_every_quarter": speed[largest, largest] / speed[largest, largest // 4],
    }
    return _result("join-ordering", rows, ratios)


class Marked(NamedTuple):
    """A run to its end: seconds, processor time of the busiest of workers and reader, marks, rows in an order of their own."""

    seconds: float
    busiest_s: float
    marks: int
    rows: tuple[Any, ...]


def read_marked(made_of: Any, given: Mapping[str, pa.Table], **options: Any) -> Marked:
    """Push all and read all; marks are counted and dropped, as they may be many."""
    found: list[pa.Table] = []
    marks = 0
    with made_of.on_threads(schemas={name: t.schema for name, t in given.items()}, **options) as run:
        begin, since_s = time.perf_counter(), time.thread_time()
        pushing = threading.Thread(target=_push_all, args=(run, given))
        pushing.start()
        for batch in run.results():
            mark = batch.column(MARK)
            marks += len(mark) - mark.null_count
            if mark.null_count:
                found.append(pa.Table.from_batches([batch]).filter(mark.is_null()).drop_columns([MARK]))
        seconds, reading_s = time.perf_counter() - begin, time.thread_time() - since_s
        pushing.join()
        busiest_s = max(reading_s, *run.stats().threads_cpu_s)
    rows = pa.concat_tables(found).to_pylist() if found else []
    return Marked(seconds, busiest_s, marks, tuple(sorted(tuple(row.values()) for row in rows)))


def _push_all(run: Any, given: Mapping[str, pa.Table]) -> None:
    for name, batch in pieces(given, 1024):
        run.push(name, None, batch)
    run.drain()


def gathering(quick: bool = False) -> dict[str, Any]:
    """What trees and storing apart cost or gain: SplitJoin's figures 4 to 6, 8 and 11 as ways to run one join.

    Many results a tuple. Whoever reads gathers from all workers, or from mergers of their own threads (`fan_in`); tuples come
    down trees of several fan-outs, or (scalejoin) every worker merges the sources for itself; half of the workers store and
    half compare. On fewer cores than threads it says what the machinery itself costs, not what it gains. Besides, what merging
    alone costs (`merging`), in processor time.
    """
    given, made_of = _keyed(3_000 if quick else 20_000, keys=200)
    workers = 8
    plans: list[tuple[str, dict[str, Any]]] = [
        ("scalejoin", {"strategy": "scalejoin"}),
        ("tree, widened", {"strategy": "splitjoin"}),
        ("tree, fan-out 2", {"strategy": "splitjoin", "fan_out": 2}),
        ("tree, fan-out 1", {"strategy": "splitjoin", "fan_out": 1}),
        *((f"mergers, fan-in {n}", {"strategy": "splitjoin", "fan_in": n}) for n in (2, 4)),
        ("triggers in order", {"strategy": "splitjoin", "punctuate": 1}),
        ("triggers in order, mergers, fan-in 2", {"strategy": "splitjoin", "punctuate": 1, "fan_in": 2}),
        ("storing apart", {"strategy": "splitjoin", "split_storing": True}),
    ]
    for _, options in plans:
        warm_up(made_of, given, workers=workers, **options)
    calls: dict[str, Callable[[], float]] = {}
    last: dict[str, Any] = {}
    for name, options in plans:

        def call(name: str = name, options: dict[str, Any] = options) -> float:
            last[name] = flat_out(made_of, given, workers=workers, **options)
            return last[name].tuples_per_s  # type: ignore[no-any-return]

        calls[name] = call
    speeds = rounds(calls, 1 if quick else 3, warm=False)
    rows: Rows = []
    seen = None
    for name, _ in plans:
        unordered, stats = digests(last[name].table)[1], last[name].stats
        seen = seen or unordered
        same(name, unordered, seen)
        rows.append({
            "case": "whole", "contender": name, "workers": workers, "threads": len(stats.threads_cpu_s), "set": unordered,
            "tuples_per_s": statistics.median(speeds[name]), "cpu_s": sum(stats.threads_cpu_s),
            "results": last[name].table.num_rows,
        } | {f"{stage}_p50_ms": value.p50 for stage, value in stats.stage_latency_ms.items()})  # fmt: skip
    by = {row["contender"]: row["tuples_per_s"] for row in rows}
    ratios = {
        "mergers_2_vs_one_gatherer": by["mergers, fan-in 2"] / by["tree, widened"],
        "mergers_4_vs_one_gatherer": by["mergers, fan-in 4"] / by["tree, widened"],
        "fan_out_2_vs_widened": by["tree, fan-out 2"] / by["tree, widened"],
        "fan_out_1_vs_widened": by["tree, fan-out 1"] / by["tree, widened"],
        "scalejoin_vs_widened": by["scalejoin"] / by["tree, widened"],
        "storing_apart_vs_together": by["storing apart"] / by["tree, widened"],
    }
    alone = merging.rows(quick)
    most = max(row["workers"] for row in alone)
    exact = {row["fan_in"]: row for row in alone if row["workers"] == most and row["punctuate"] == "comparison"}
    ratios["reader_ns_mergers_2_vs_none"] = exact[2]["reader_ns"] / exact[None]["reader_ns"]
    return _result("join-gathering", rows + alone, ratios)


def stages(quick: bool = False) -> dict[str, Any]:
    """Latency by stage and number of workers, over windows of time and of tuples: SplitJoin's figures 13, 15 and 18.

    The stages are the paper's, with what tuples wait for in them: distribution, execution, gathering, all of them (processing
    latency, definition 3), and visiting latency (definition 4); medians of sampled tuples, at one rate for all. Windows are full
    when measuring begins. The paper has 4 to 32 cores and the highest rate that each number of them sustains.
    """
    rate, seconds, window = (2000, 4, 1) if quick else (2000, 24, 16)
    given = data(rate, seconds)
    rows: Rows = []
    for kind, made_of in (("time", query(window)), ("count", counted(rate * window))):
        seen = None
        for workers in (1, 2) if quick else (1, 2, 4, 8):
            made = paced(
                made_of, given, warm=window / seconds, rate=20_000.0 if quick else 2.0 * rate, size=PAIR, index="scan",
                strategy="splitjoin", workers=workers, fan_in=2,
            )  # fmt: skip
            sequence = digests(made.table)[0]
            seen = seen or sequence
            same(f"{kind}, {workers} workers", sequence, seen)
            found = made.stats.stage_latency_ms
            rows.append({
                "window": kind, "workers": workers, "tuples_per_s": made.rate, "behind_ms": made.behind_ms,
                "samples": found["processing"].samples, "sequence": sequence,
            } | {f"{name}_p50_ms": value.p50 for name, value in found.items()})  # fmt: skip
    by = {(row["window"], row["workers"]): row for row in rows}
    ratios = {
        f"{kind}_execution_2_workers_vs_1": by[kind, 2]["execution_p50_ms"] / by[kind, 1]["execution_p50_ms"]
        for kind in ("time", "count")
    }
    return _result("join-stages", rows, ratios)


def selectivity(quick: bool = False) -> dict[str, Any]:
    """Throughput by selectivity: bands from one result in 25 million comparisons to one in 625. Two workers by ScaleJoin.

    SplitJoin's figure 17 asks the same of 28 of its join cores, over windows that count.
    """
    given, rows = data(200, 20 if quick else 120), []
    for band in (1, 10, 32, 100, 200):
        seen = None
        for index in ("scan", "auto"):
            made = flat_out(query(60, band=band), given, workers=2, index=index)
            sequence = digests(made.table)[0]
            seen = seen or sequence
            same(f"index={index}", sequence, seen)
            rows.append({
                "band": band, "index": index, "results": made.table.num_rows, "tuples_per_s": made.tuples_per_s,
                "comparisons_per_result": (2 * band / 10_000) ** -2, "comparisons_per_s": made.comparisons_per_s,
                "gathering_percent": 100 * made.stats.stages["gathering"], "sequence": sequence,
            })  # fmt: skip
    scans = [r["tuples_per_s"] for r in rows if r["index"] == "scan"]
    return _result("join-selectivity", rows, {"scan_widest_vs_narrowest": scans[-1] / scans[0]})


def against(quick: bool = False) -> dict[str, Any]:
    """The 200k benchmark: 200,000 tuples a stream at 500 t/s, 300 s, beside DuckDB, Polars and a Bytewax flow."""
    given = data(500, 30 if quick else 400)
    tuples = sum(t.num_rows for t in given.values())
    contenders: dict[str, Callable[[dict[str, pa.Table]], int]] = {
        "threads, auto": lambda t: flat_out(query(), t, workers=2).table.num_rows,
        "threads, scan": lambda t: flat_out(query(), t, workers=2, index="scan").table.num_rows,
        "duckdb range join": lambda t: peers.duckdb(t, buckets=False),
        "duckdb buckets": lambda t: peers.duckdb(t, buckets=True),
        "polars join_where, filter": peers.polars,
        "plain Python, same buckets": peers.plain_python,
        "bytewax buckets": lambda t: peers.bytewax(t)(),
    }
    needs = {"duckdb range join": "duckdb", "duckdb buckets": "duckdb", "polars join_where, filter": "polars",
             "bytewax buckets": "bytewax"}  # fmt: skip
    rows: Rows = []
    expected = None
    for name, contender in contenders.items():
        reason = peers.missing(needs[name]) if name in needs else None
        if reason is not None:
            rows.append({"contender": name, "skipped": reason})
            continue
        few = {stream: t.slice(0, 2000) for stream, t in given.items()}
        contender(few)
        slow = name in ("bytewax buckets", "plain Python, same buckets", "threads, scan", "polars join_where, filter")
        times, found = [], 0
        for _ in range(1 if quick or slow else 3):
            begin = time.perf_counter()
            found = contender(given)
            times.append(time.perf_counter() - begin)
        expected = found if expected is None else expected
        same(name, found, expected)
        took = statistics.median(times)
        rows.append(
            {"contender": name, "tuples": tuples, "results": found, "seconds": took, "tuples_per_s": tuples / took}
        )
    speed = {r["contender"]: r["tuples_per_s"] for r in rows if "tuples_per_s" in r}
    ratios = {
        f"threads_vs_{name}": speed["threads, auto"] / value for name, value in speed.items() if "threads" not in name
    }
    return _result("join-peers", rows, ratios)


__all__ = ["against", "gathering", "latency", "ordering", "punctuation", "selectivity", "skew", "stages", "workers"]
