"""`plait bench aggregate`: windowed aggregates on threads beside batch engines and other streams, on the same data, in one run.

Readings of 243 meters through two concentrators at 1,000 a second, windows of 30 s every 3 s by meter: count, mean and
first. Threads stream: pushed as Arrow batches of 65,536 rows, read as Arrow batches by another thread, rows in result
order, means exact. DuckDB and Polars have the whole table: panes by one GROUP BY, windows from ten panes by another, on all
cores. Bytewax streams, with its own sliding windows; it is given a tenth of the rows, or it would take minutes.

- `threads_vs_duckdb`: tuples/s of the largest run, the fastest design, over DuckDB's; contenders take turns, medians count.
- `wiml_2_workers_vs_1`: tuples/s of the largest run by WiML, pushed by one thread, with a pool of two that update, over those
  where the thread that pushes updates.
- `wiml_vs_mq_k_oi_20`, `tuml_sc_vs_mq_k_os_20`: two of the paper's twelve queries, at 20 inputs (`aggregate_queries` has all).
  The columns `input_ns` and `output_ns` are what the paper's figures 8 and 10 are about: where a machine has too few cores to
  show a ratio, they show why.
- `tuml_sc_push128_20_sources_vs_1`, `wiml_push128_20_sources_vs_1`: processor time of a push of 128 rows where one thread pushes
  twenty sources in turn, over what it is with one source (`aggregate_pushes`, with pushes of 16 and 4,096 rows beside it).
- `tuml_t_gate_input_vs_ring`, `tuml_t_gate_output_vs_ring`: TuML-SC on the paper's T-Gate, the product's skip list, into which
  threads that push sort; over the ring, which the output thread merges. Processor time of either side, k-OS, 20 inputs.

Contenders must agree: same windows, same counts, same first values; means that are rounded sums within 1e-9.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.errors import RunError
from plait_bench import aggregate_pushes, multi_queues
from plait_bench import aggregate_queries as paper
from plait_bench.aggregate_runs import on_threads as pushed
from plait_bench.join_peers import missing
from plait_bench.machine import machine

METERS, SOURCES, RATE = 243, 2, 1_000
SIZE_S, ADVANCE_S = 30, 3
PIECE = 1 << 16
POOL = 2  # threads that update, where one pushes
#: Each ts once, so that DuckDB's arg_min has but one answer, the one that the total order gives.
SQL = f"""
with panes as (
    select meter, ts // {ADVANCE_S * 1_000_000} as pane, count(*) as n, sum(cons) as s, arg_min(cons, ts) as f
    from readings group by all
), spread as (
    select pane - o.i as k, meter, n, s, f, pane from panes, (select unnest(range({SIZE_S // ADVANCE_S})) as i) o
)
select k * {ADVANCE_S * 1_000_000} as window_start, meter, sum(n)::bigint as n, sum(s) / sum(n) as mean,
       arg_min(f, pane) as first
from spread group by all order by window_start, meter
"""


def readings(rows: int, seed: int = 1) -> list[pa.RecordBatch]:
    """What each concentrator delivers, in order of ts."""
    dice = np.random.default_rng(seed)
    gaps = dice.integers(1, 2 * 1_000_000 // RATE, rows)
    ts = np.cumsum(gaps)
    whole = pa.record_batch({
        "ts": ts, "meter": dice.integers(1, METERS + 1, rows, dtype=np.int32), "cons": np.round(dice.random(rows) * 3, 3),
    })  # fmt: skip
    by = dice.integers(0, SOURCES, rows)
    return [whole.take(pa.array(np.flatnonzero(by == source))) for source in range(SOURCES)]


def query() -> plait.Query:
    stream = plait.stream("readings", unit="us", sources=SOURCES)
    compute = {"n": plait.count(), "mean": plait.mean("cons"), "first": plait.first("cons")}
    return plait.aggregate(stream, size=f"{SIZE_S}s", advance=f"{ADVANCE_S}s", by="meter", compute=compute)


def on_threads(sources: list[pa.RecordBatch], *, crew: int = 1, **options: Any) -> pa.Table:
    """Sources pushed by `crew` threads, while results are read."""
    return pushed(query(), sources, piece=PIECE, crew=crew, **options).table


def on_duckdb(whole: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect() as base:
        base.register("readings", whole)
        made: pa.Table = base.sql(SQL).to_arrow_table()
        return made


def on_polars(whole: pa.Table) -> pa.Table:
    import polars as pl

    us, panes = ADVANCE_S * 1_000_000, SIZE_S // ADVANCE_S
    readings = pl.DataFrame(pl.from_arrow(whole)).lazy()
    parts = readings.group_by((pl.col("ts") // us).alias("pane"), "meter").agg(
        pl.len().alias("n"), pl.col("cons").sum().alias("s"), pl.col("cons").get(pl.col("ts").arg_min()).alias("f")
    )
    spread = parts.join(pl.LazyFrame({"i": range(panes)}), how="cross").with_columns(k=pl.col("pane") - pl.col("i"))
    found = spread.group_by("k", "meter").agg(
        pl.col("n").sum().cast(pl.Int64), (pl.col("s").sum() / pl.col("n").sum()).alias("mean"),
        pl.col("f").get(pl.col("pane").arg_min()).alias("first"),
    )  # fmt: skip
    rows = found.select((pl.col("k") * us).alias("window_start"), "meter", "n", "mean", "first")
    return rows.sort("window_start", "meter").collect().to_arrow()


def on_bytewax(whole: pa.Table) -> pa.Table:
    """Its sliding windows by event time; the rows come in order of time, so none is late."""
    import datetime as dt

    import bytewax.operators as op
    import bytewax.operators.windowing as win
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    start = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    ordered = whole.sort_by("ts")
    rows = list(zip(ordered["ts"].to_pylist(), ordered["meter"].to_pylist(), ordered["cons"].to_pylist(), strict=True))

    def fold(state: list[Any], row: tuple[int, int, float]) -> list[Any]:
        state[0] += 1
        state[1] += row[2]
        if state[2] is None or row[0] < state[2]:
            state[2], state[3] = row[0], row[2]
        return state

    # Its watermark runs with the wall clock too: without a long wait rows would be late for want of speed.
    clock: Any = win.EventClock(lambda row: start + dt.timedelta(microseconds=row[0]), dt.timedelta(days=1))
    windower = win.SlidingWindower(dt.timedelta(seconds=SIZE_S), dt.timedelta(seconds=ADVANCE_S), start)
    out: list[Any] = []
    flow = Dataflow("readings")
    source = op.input("in", flow, TestingSource(rows, batch_size=1024))
    keyed = op.key_on("by meter", source, lambda row: str(row[1]))
    folded = win.fold_window("fold", keyed, clock, windower, lambda: [0, 0.0, None, None], fold, lambda a, b: a)
    op.output("out", folded.down, TestingSink(out))
    run_main(flow)  # type: ignore[no-untyped-call]
    found = [(w * ADVANCE_S * 1_000_000, int(meter), s[0], s[1] / s[0], s[3]) for meter, (w, s) in out]
    names = ("window_start", "meter", "n", "mean", "first")
    table = pa.table(dict(zip(names, map(list, zip(*found, strict=True)), strict=True)))
    return table.sort_by([("window_start", "ascending"), ("meter", "ascending")])


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    rows: list[dict[str, Any]] = []
    for tuples in (200_000,) if quick else (1_000_000, 20_000_000):
        rows += _case(tuples, 1 if quick else 3)
    most = max(row["tuples"] for row in rows)  # Bytewax has fewer
    last = {row["contender"]: row["tuples_per_s"] for row in rows if row["tuples"] == most}
    best = max(rate for name, rate in last.items() if name.startswith("threads"))
    paper.warm()
    for name, designs in (
        ("K-OI", (*multi_queues.NAMES, "wiml")),
        ("K-OS", (*multi_queues.NAMES, "tuml_sc")),
        ("k-OS", ("tuml_sc", *paper.OPTIONS)),
    ):
        tuples = 20_000 if quick else paper.MANY
        rows += paper.case(name, 20, times=1 if quick else 3, tuples=tuples, designs=designs)
    ratios = {"threads_vs_duckdb": best / last["duckdb"]} if "duckdb" in last else {}
    ratios[f"wiml_{POOL}_workers_vs_1"] = last[f"threads wiml, {POOL} workers"] / last["threads wiml"]
    ratios["wiml_vs_mq_k_oi_20"] = paper.ratio(rows, "K-OI", 20, "wiml")
    ratios["tuml_sc_vs_mq_k_os_20"] = paper.ratio(rows, "K-OS", 20, "tuml_sc")
    pushed = aggregate_pushes.pushes(quick)
    rows += pushed
    ratios |= aggregate_pushes.ratios(pushed)
    ratios |= {f"tuml_t_gate_{stage}_vs_ring": moved for stage, moved in paper.shift(rows, "k-OS", 20).items()}
    return {"bench": "aggregate", "machine": about, "rows": rows, "ratios": ratios}


def _case(tuples: int, times: int) -> list[dict[str, Any]]:
    sources = readings(tuples)
    whole = pa.Table.from_batches(sources)
    designs: dict[str, dict[str, Any]] = {
        "threads wiml": {"strategy": "wiml"},
        f"threads wiml, {SOURCES} push": {"strategy": "wiml", "crew": SOURCES},
        f"threads wiml, {POOL} workers": {"strategy": "wiml", "workers": POOL},
        "threads tuml_sc": {"strategy": "tuml_sc"},
        "threads tuml_mc 2": {"strategy": "tuml_mc", "workers": 2},
        "threads tuml_sc, skip list": {"strategy": "tuml_sc", "gate": "skiplist"},
        "threads tuml_mc 2, skip list": {"strategy": "tuml_mc", "workers": 2, "gate": "skiplist"},
    }
    contenders: dict[str, Callable[[], pa.Table]] = {
        name: partial(on_threads, sources, **options) for name, options in designs.items()
    }
    for name, peer in (("duckdb", on_duckdb), ("polars", on_polars)):
        reason = missing(name)
        if reason is None:
            contenders[name] = partial(peer, whole)
        else:
            print(f"aggregate: {name} is left out: {reason}", file=sys.stderr)
    warm = readings(50_000)
    for options in designs.values():
        on_threads(warm, **options)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, pa.Table] = {}
    for _ in range(times):
        for name, contender in contenders.items():
            began = time.perf_counter()
            found[name] = contender()
            seconds[name].append(time.perf_counter() - began)
    for name in found:
        _agree(found["threads tuml_sc"], found[name], name)
    rows = [_row(name, tuples, statistics.median(seconds[name]), found[name].num_rows) for name in contenders]
    return rows + (_bytewax(tuples // 10) if tuples <= 1_000_000 else [])


def _row(name: str, tuples: int, seconds: float, results: int) -> dict[str, Any]:
    return {
        "case": f"{METERS} keys, {SIZE_S} s every {ADVANCE_S} s, count + mean + first",
        "tuples": tuples,
        "contender": name,
        "seconds": seconds,
        "tuples_per_s": tuples / seconds,
        "results": results,
    }


def _bytewax(tuples: int) -> list[dict[str, Any]]:
    reason = missing("bytewax")
    if reason is not None:
        print(f"aggregate: bytewax is left out: {reason}", file=sys.stderr)
        return []
    sources = readings(tuples)
    whole = pa.Table.from_batches(sources)
    began = time.perf_counter()
    found = on_bytewax(whole)
    seconds = time.perf_counter() - began
    _agree(on_threads(sources), found, "bytewax")
    return [_row("bytewax", tuples, seconds, found.num_rows)]


def _agree(ours: pa.Table, theirs: pa.Table, name: str) -> None:
    for column in ("window_start", "meter", "n", "first"):
        a, b = (np.asarray(table.column(column)) for table in (ours, theirs))
        if not np.array_equal(a, b):
            raise RunError(f"{name} disagrees with threads in column {column!r}", do="Report this")
    a, b = (np.asarray(table.column("mean")) for table in (ours, theirs))
    if not np.allclose(a, b, rtol=1e-9, atol=0) or (name.startswith("threads") and a.tobytes() != b.tobytes()):
        raise RunError(f"{name} disagrees with threads in the means", do="Report this")
