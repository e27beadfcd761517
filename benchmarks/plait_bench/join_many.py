"""What `plait bench join` shows of joins with many results: there, making rows is the work.

An equality join of two streams, 100 results a tuple, 10 million in all: every tuple meets all earlier ones of its value, as the
window is longer than the data. So DuckDB's hash join finds no pair in vain. Rows of numbers alone (7 columns a result), then wide
ones (13 columns, 3 of them text; a quarter of the results).

- `many_results_vs_duckdb`: results/s of `query.run`, over DuckDB's join of the same Arrow tables into an Arrow table, in whatever
  order its rows come. A row beside it has DuckDB's result in plait's order. Contenders take turns, and medians count.
- `many_results_pushed_vs_duckdb`: the same for batches that are pushed to `on_threads`, and read by a thread that keeps them.
- `many_results_wide_vs_duckdb`, `many_results_wide_pushed_vs_duckdb`: the same of wide rows.

Rows have processor time besides, of all threads of the process.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait_bench.join_runs import flat_out, rounds, same

Rows = list[dict[str, Any]]
Tables = dict[str, pa.Table]
EACH = 100  # results a tuple
WITHIN_S = 3600


def query() -> Any:
    left, right = plait.stream("orders"), plait.stream("offers")
    return plait.join(left, right, on="orders.k = offers.k", within=f"{WITHIN_S}s")


def data(tuples: int, *, wide: bool) -> Tables:
    """Two streams of as many tuples; a value has 2 * EACH tuples of each, so a tuple meets EACH earlier ones on the average."""
    dice, found = np.random.default_rng(11), {}
    for name in ("orders", "offers"):
        ts = np.sort(dice.integers(0, WITHIN_S * 900_000, tuples))
        columns: dict[str, Any] = {
            "ts": pa.array(ts, pa.timestamp("us", tz="UTC")),
            "k": pa.array(dice.integers(0, max(1, tuples // (2 * EACH)), tuples)),
            "price" if name == "orders" else "bid": pa.array(dice.random(tuples)),
        }
        if wide:
            columns |= _more(name, tuples, dice)
        found[name] = pa.table(columns)
    return found


def _more(name: str, tuples: int, dice: np.random.Generator) -> dict[str, Any]:
    """Further columns: of orders two of text and two of numbers, of offers one and one."""
    numbers = {"orders": ("size", "limit"), "offers": ("ask",)}[name]
    texts = {"orders": ("client", "note"), "offers": ("venue",)}[name]
    few, many = dice.integers(0, 1000, tuples), dice.integers(0, 1 << 40, tuples)
    made: dict[str, Any] = {each: pa.array(dice.random(tuples)) for each in numbers}
    for each in texts:
        values = (f"{each} no. {n:012x}" for n in many) if each == "note" else (f"{each} {n}" for n in few)
        made[each] = pa.array(list(values))
    return made


def duckdb(tables: Tables, *, ordered: bool) -> pa.Table:
    """The same columns: the later one's time, then both rows."""
    import duckdb as peer

    window = f"s.ts BETWEEN r.ts - INTERVAL {WITHIN_S} SECONDS AND r.ts + INTERVAL {WITHIN_S} SECONDS"
    asked = f"SELECT greatest(r.ts, s.ts) AS ts, r.*, s.* FROM in_r r JOIN in_s s ON r.k = s.k WHERE {window}"
    if ordered:
        asked += " ORDER BY greatest(r.ts, s.ts), least(r.ts, s.ts)"
    with peer.connect() as base:
        base.register("in_r", tables["orders"])
        base.register("in_s", tables["offers"])
        return base.sql(asked).to_arrow_table()


def rows(quick: bool) -> Rows:
    """Cases "many results" and "many results, wide"."""
    found: Rows = []
    for case, wide, tuples in (("many results", False, 52_000), ("many results, wide", True, 13_000)):
        given = data(tuples // 20 if quick else tuples, wide=wide)
        found += _compared(case, given, 1 if quick else 5)
    return found


def _compared(case: str, given: Tables, number: int) -> Rows:
    results: dict[str, int] = {}
    cpu: dict[str, list[float]] = {}
    sequence: list[pa.Table] = []

    def timed(name: str, make: Callable[[], tuple[float, pa.Table]]) -> Callable[[], float]:
        def call() -> float:
            since = time.process_time()
            seconds, table = make()
            cpu.setdefault(name, []).append(time.process_time() - since)
            results[name] = table.num_rows
            if name in ("run", "pushed"):
                sequence.append(table)
                same(f"{name}: the sequence", table.equals(sequence[0]), True)
                del sequence[1:]
            return seconds

        return call

    contenders = {
        "run": timed("run", lambda: _clocked(lambda: query().run(given))),
        "pushed": timed("pushed", lambda: _pushed(given)),
        "duckdb": timed("duckdb", lambda: _clocked(lambda: duckdb(given, ordered=False))),
    }
    times = rounds(contenders, number)
    # Not by turns with the others: it sorts gigabytes. Where it did, `run`, which came next, took 1.58 s once, and 0.64 s
    # after it was moved here; that fresh pages are the reason is a guess.
    last = "duckdb, in order"
    times |= rounds({last: timed(last, lambda: _clocked(lambda: duckdb(given, ordered=True)))}, 1 if number == 1 else 2)
    same("A contender", set(results.values()), {results["duckdb"]})
    tuples = sum(t.num_rows for t in given.values())
    return [
        {"case": case, "contender": name, "tuples": tuples, "results": results[name], "seconds": statistics.median(each),
         "cpu_s": statistics.median(cpu[name][1:]), "results_per_s": results[name] / statistics.median(each)}
        for name, each in times.items()
    ]  # fmt: skip


def _clocked(make: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    begin = time.perf_counter()
    table = make()
    return time.perf_counter() - begin, table


def _pushed(given: Tables) -> tuple[float, pa.Table]:
    made = flat_out(query(), given, workers=2)
    return made.seconds, made.table


def ratios(found: Rows) -> dict[str, float]:
    by = {(row["case"], row["contender"]): row["results_per_s"] for row in found if "results_per_s" in row}
    made = {}
    for case, said in (("many results", "many_results"), ("many results, wide", "many_results_wide")):
        made[f"{said}_vs_duckdb"] = by[case, "run"] / by[case, "duckdb"]
        made[f"{said}_pushed_vs_duckdb"] = by[case, "pushed"] / by[case, "duckdb"]
    return made
