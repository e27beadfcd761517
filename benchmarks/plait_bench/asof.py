"""`plait bench asof`: an as-of join of two Parquet files beside Polars and DuckDB, on the same files, in one run.

A million trades and a million quotes of 500 symbols, both files sorted by time. For each trade the last quote of its symbol, no
older than a second. Everybody reads the files, and gives the same six columns as an Arrow table. plait's are in result order, and
it reads streams: it does not know that a file is sorted, and would say so if it were not. Polars is told that they are sorted.

- `run_vs_polars_asof`, `run_vs_duckdb_asof`: rows/s of `query.run` on the files over theirs. Contenders take turns, each
  round in another order (who follows finds the caches as the one before has left them), and medians count.
- `run_vs_pushed`: rows/s of `query.run` on the files over those of the same join pushed by hand, from tables in memory: what
  finding and reading the files costs.

`cpu_s` is the processor time of all threads: where a machine is shared it says more than the seconds.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait
from plait.errors import RunError
from plait_bench.join_peers import missing
from plait_bench.machine import machine

SYMBOLS, WITHIN_S = 500, 1
PIECE = 1 << 16
SQL = """
select l.ts, l.symbol, l.trade, l.size,
       case when r.ts >= l.ts - {within} then r.bid end as bid, case when r.ts >= l.ts - {within} then r.ask end as ask
from read_parquet('{trades}') l asof left join read_parquet('{quotes}') r on l.symbol = r.symbol and l.ts >= r.ts
"""


def tables(rows: int, seed: int = 1) -> dict[str, pa.Table]:
    """Trades and quotes in the order of their times. Of quotes each ts stands once, so that DuckDB has but one answer."""
    dice = np.random.default_rng(seed)
    symbols = np.array([f"SYM{k:03}" for k in range(SYMBOLS)])
    times = [np.cumsum(dice.integers(1, 2_000, rows)) for _ in range(2)]
    names = [pa.array(symbols[dice.integers(0, SYMBOLS, rows)]) for _ in range(2)]
    price = np.round(dice.normal(100, 5, rows), 2)
    return {
        "trades": pa.table({
            "ts": times[0], "symbol": names[0], "trade": np.arange(rows), "size": dice.integers(1, 100, rows),
        }),
        "quotes": pa.table({"ts": times[1], "symbol": names[1], "bid": price, "ask": price + 0.25}),
    }  # fmt: skip


def query() -> plait.Query:
    trades, quotes = (plait.stream(name, unit="us") for name in ("trades", "quotes"))
    found = plait.asof(trades, quotes, by="symbol", within=f"{WITHIN_S}s")
    return found.select("trade", "size", "bid", "ask", symbol="trades_symbol")  # what the others give, with ts in front


def on_files(paths: dict[str, Path]) -> pa.Table:
    return query().run({name: str(path) for name, path in paths.items()})


def pushed(data: dict[str, pa.Table]) -> pa.Table:
    """By hand: pieces of both streams by turns, while results are read."""
    with query().on_threads(schemas={name: table.schema for name, table in data.items()}, pending=1 << 20) as run:
        failed: list[BaseException] = []

        def push() -> None:
            try:
                for at in range(0, max(map(len, data.values())), PIECE):
                    for name, table in data.items():
                        run.push(name, None, table.slice(at, PIECE))
                run.drain()
            except BaseException as error:
                failed.append(error)
                run.stop()

        thread = threading.Thread(target=push, name="pushes")
        thread.start()
        try:
            found = pa.Table.from_batches(list(run.results()), run.schema)
        finally:
            thread.join()
        if failed:
            raise failed[0]
        return found


def on_polars(paths: dict[str, Path]) -> pa.Table:
    import polars as pl

    trades, quotes = (pl.scan_parquet(paths[name]).set_sorted("ts") for name in ("trades", "quotes"))
    joined = trades.join_asof(quotes, on="ts", by="symbol", tolerance=WITHIN_S * 1_000_000, check_sortedness=False)
    return joined.collect().to_arrow()


def on_duckdb(paths: dict[str, Path]) -> pa.Table:
    import duckdb

    with duckdb.connect() as base:
        made: pa.Table = base.sql(SQL.format(within=WITHIN_S * 1_000_000, **paths)).to_arrow_table()
        return made


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    rows, times = (50_000, 1) if quick else (1_000_000, 8)
    with tempfile.TemporaryDirectory(prefix="plait-asof-") as folder:
        data = tables(rows)
        paths = {name: Path(folder) / f"{name}.parquet" for name in data}
        for name, table in data.items():
            pq.write_table(table, paths[name])
        contenders: dict[str, Callable[[], pa.Table]] = {
            "run": partial(on_files, paths),
            "pushed": partial(pushed, data),
        }
        for name, peer in (("polars", on_polars), ("duckdb", on_duckdb)):
            reason = missing(name)
            if reason is None:
                contenders[name] = partial(peer, paths)
            else:
                print(f"asof: {name} is left out: {reason}", file=sys.stderr)
        made = _measured(contenders, rows, times)
    rate = {row["contender"]: row["rows_per_s"] for row in made}
    ratios = {f"run_vs_{name}_asof": rate["run"] / rate[name] for name in ("polars", "duckdb") if name in rate}
    ratios["run_vs_pushed"] = rate["run"] / rate["pushed"]
    return {"bench": "asof", "machine": about, "rows": made, "ratios": ratios}


def _measured(contenders: dict[str, Callable[[], pa.Table]], rows: int, times: int) -> list[dict[str, Any]]:
    """A row for each contender: medians of its turns, the first of which warms it and does not count."""
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    found: dict[str, pa.Table] = {}
    names = list(contenders)
    for turn in range(times + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            began, cpu = time.perf_counter(), time.process_time()
            found[name] = contenders[name]()
            spent[name].append((time.perf_counter() - began, time.process_time() - cpu))
    for name in found:
        _agree(found["run"], found[name], name)
    made = []
    for name, each in spent.items():
        seconds, cpu = (statistics.median(part) for part in zip(*each[1:], strict=True))
        made.append({
            "case": f"{rows:,} trades and {rows:,} quotes, {SYMBOLS} symbols, within {WITHIN_S} s", "contender": name,
            "seconds": seconds, "cpu_s": cpu, "rows_per_s": 2 * rows / seconds, "results": found[name].num_rows,
        })  # fmt: skip
    return made


def _agree(ours: pa.Table, theirs: pa.Table, name: str) -> None:
    """Each trade has the same quote; order is plait's alone."""
    mine, others = (table.sort_by("trade") for table in (ours, theirs))
    for column in ("trade", "size", "bid", "ask"):
        if (
            not mine.column(column)
            .combine_chunks()
            .equals(others.column(column).combine_chunks().cast(mine.column(column).type))
        ):
            raise RunError(f"{name} disagrees with plait in column {column!r}", do="Report this")
