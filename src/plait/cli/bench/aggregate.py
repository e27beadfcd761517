"""`plait bench aggregate`: windowed aggregates on threads beside DuckDB's batch panes, on the same data and in one run.

Readings of 243 meters through two concentrators at 1,000 a second, windows of 30 s every 3 s by meter: count, mean and
first. Threads stream: pushed as Arrow batches of 16,384 rows by one thread, read as Arrow batches by another, rows in result
order, means exact. DuckDB has the whole table: panes by one GROUP BY, windows from ten panes by another, on all cores.

- `threads_vs_duckdb`: tuples/s of the largest run, over DuckDB's; contenders take turns, medians count.

Contenders must agree: same windows, same counts, same first values; DuckDB's means, which are rounded sums, within 1e-9.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.cli.bench.machine import machine
from plait.errors import RunError

METERS, SOURCES, RATE = 243, 2, 1_000
SIZE_S, ADVANCE_S = 30, 3
PIECE = 1 << 14
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


def on_threads(sources: list[pa.RecordBatch], **options: Any) -> pa.Table:
    """Every source by turns, a piece at a time, while results are read."""
    failed: list[BaseException] = []
    with query().on_threads(schemas={"readings": sources[0].schema}, **options) as run:

        def push() -> None:
            try:
                for at in range(0, max(source.num_rows for source in sources), PIECE):
                    for name, source in enumerate(sources):
                        if at < source.num_rows:
                            run.push("readings", name, source.slice(at, PIECE))
                run.drain()
            except BaseException as error:
                failed.append(error)
                run.stop()

        thread = threading.Thread(target=push, name="bench-push")
        thread.start()
        batches = list(run.results())
        thread.join()
        if failed:
            raise failed[0]
        return pa.Table.from_batches(batches, run.schema)


def on_duckdb(whole: pa.Table) -> pa.Table:
    import duckdb

    with duckdb.connect() as base:
        base.register("readings", whole)
        made: pa.Table = base.sql(SQL).to_arrow_table()
        return made


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    rows: list[dict[str, Any]] = []
    for tuples in (200_000,) if quick else (1_000_000, 20_000_000):
        rows += _case(tuples, 1 if quick else 3)
    last = {row["contender"]: row["tuples_per_s"] for row in rows if row["tuples"] == rows[-1]["tuples"]}
    best = max(rate for name, rate in last.items() if name != "duckdb")
    return {
        "bench": "aggregate",
        "machine": about,
        "rows": rows,
        "ratios": {"threads_vs_duckdb": best / last["duckdb"]},
    }


def _case(tuples: int, times: int) -> list[dict[str, Any]]:
    sources = readings(tuples)
    whole = pa.Table.from_batches(sources)
    contenders: dict[str, Callable[[], pa.Table]] = {
        "threads tuml_sc": lambda: on_threads(sources, strategy="tuml_sc"),
        "threads tuml_mc 2": lambda: on_threads(sources, strategy="tuml_mc", workers=2),
        "duckdb": lambda: on_duckdb(whole),
    }
    warm = readings(50_000)
    on_threads(warm, strategy="tuml_sc")
    on_threads(warm, strategy="tuml_mc", workers=2)
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    found: dict[str, pa.Table] = {}
    for _ in range(times):
        for name, contender in contenders.items():
            began = time.perf_counter()
            found[name] = contender()
            seconds[name].append(time.perf_counter() - began)
    for name in found:
        _agree(found["threads tuml_sc"], found[name], name)
    return [
        {
            "case": f"{METERS} keys, {SIZE_S} s every {ADVANCE_S} s, count + mean + first",
            "tuples": tuples,
            "contender": name,
            "seconds": statistics.median(seconds[name]),
            "tuples_per_s": tuples / statistics.median(seconds[name]),
            "results": found[name].num_rows,
        }
        for name in contenders
    ]


def _agree(ours: pa.Table, theirs: pa.Table, name: str) -> None:
    for column in ("window_start", "meter", "n", "first"):
        a, b = (np.asarray(table.column(column)) for table in (ours, theirs))
        if not np.array_equal(a, b):
            raise RunError(f"{name} disagrees with threads in column {column!r}", do="Report this")
    a, b = (np.asarray(table.column("mean")) for table in (ours, theirs))
    if not np.allclose(a, b, rtol=1e-9, atol=0) or (name != "duckdb" and a.tobytes() != b.tobytes()):
        raise RunError(f"{name} disagrees with threads in the means", do="Report this")
