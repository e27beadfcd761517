"""Peers of the join on threads: DuckDB as a batch, Polars as a batch, a Bytewax flow with hand-made buckets.

All get the streams as Arrow tables in memory and give whole result rows. Each says how many pairs it found.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from plait_bench.band import BAND, BUCKET, LEFT, RIGHT, WITHIN_S, duckdb_sql

Tables = dict[str, pa.Table]


def duckdb(tables: Tables, *, buckets: bool, within_s: int = WITHIN_S, ordered: bool = False) -> int:
    """The condition as four inequalities, by DuckDB's range join, or by hand-made buckets; all cores."""
    import duckdb

    with duckdb.connect() as base:
        base.register("in_r", tables[LEFT])
        base.register("in_s", tables[RIGHT])
        asked = duckdb_sql("in_r", "in_s", buckets=buckets, within_s=within_s, ordered=ordered)
        rows: Any = base.sql(asked).to_arrow_table()
    return len(rows)


def polars(tables: Tables, *, slices: int = 16) -> int:
    """`join_where` on one band, the rest as a filter; slices of R one by one, since the band alone has 500 times the pairs."""
    import polars as pl

    r, s = (pl.DataFrame(pl.from_arrow(tables[name])) for name in (LEFT, RIGHT))
    s = s.rename({"ts": "s_ts"}).with_columns(low=pl.col("a") - BAND, high=pl.col("a") + BAND)
    found, step = 0, -(-len(r) // slices)
    for at in range(0, len(r), step):
        part = r.slice(at, step)
        near = (pl.col("y") - pl.col("b")).abs() <= BAND
        age = (pl.col("s_ts") - pl.col("ts")).dt.total_microseconds().abs() <= WITHIN_S * 1_000_000
        joined = part.lazy().join_where(s.lazy(), pl.col("x") >= pl.col("low"), pl.col("x") <= pl.col("high"))
        found += len(joined.filter(near & age).collect())
    return found


class _Bucket:
    """One bucket's windows, in Python, as a user of Bytewax writes them: rows (ts in us, x, y, row number)."""

    def __init__(self) -> None:
        self.windows: tuple[deque[Any], deque[Any]] = (deque(), deque())

    def take(self, side: int, row: tuple[int, float, float, int]) -> list[tuple[int, int]]:
        ts, x, y, number = row
        other, found = self.windows[1 - side], []
        while other and other[0][0] < ts - WITHIN_S * 1_000_000:
            other.popleft()
        for _, a, b, partner in other:
            if abs(x - a) <= BAND and abs(y - b) <= BAND:
                found.append((number, partner) if side == 0 else (partner, number))
        self.windows[side].append(row)
        return found


def _merged(tables: Tables) -> list[tuple[int, tuple[int, float, float, int]]]:
    """Both streams as one list in order of time: (side, row)."""
    rows = []
    for side, (name, x, y) in enumerate(((LEFT, "x", "y"), (RIGHT, "a", "b"))):
        ts = pc.cast(tables[name].column("ts"), pa.int64()).to_pylist()
        columns = (ts, tables[name].column(x).to_pylist(), tables[name].column(y).to_pylist(), range(len(ts)))
        rows += [(side, row) for row in zip(*columns, strict=True)]
    rows.sort(key=lambda each: (each[1][0], each[0]))
    return rows


def bytewax(tables: Tables) -> Callable[[], int]:
    """A flow: tuples to buckets (S tuples to each that their band touches), a stateful step by bucket, results out.

    Values are Python tuples already, and a result is a pair of row numbers: less than the others do.
    """
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource, run_main

    rows = _merged(tables)

    def buckets(item: tuple[int, Any]) -> list[tuple[str, tuple[int, Any]]]:
        side, (_, x, y, _) = item
        reach = BAND * side
        return [
            (f"{i},{j}", item)
            for i in range(int((x - reach) // BUCKET), int((x + reach) // BUCKET) + 1)
            for j in range(int((y - reach) // BUCKET), int((y + reach) // BUCKET) + 1)
        ]

    def step(state: _Bucket | None, item: tuple[int, Any]) -> tuple[_Bucket, list[Any]]:
        state = state or _Bucket()
        return state, state.take(*item)

    def call() -> int:
        out: list[Any] = []
        flow = Dataflow("band_join")
        source = op.input("in", flow, TestingSource(rows, batch_size=1024))
        keyed = op.flat_map("buckets", source, buckets)
        joined = op.stateful_flat_map("join", keyed, step)
        op.output("out", joined, TestingSink(out))
        run_main(flow)  # type: ignore[no-untyped-call]
        return len(out)

    return call


def plain_python(tables: Tables) -> int:
    """The same buckets without a framework: how much of Bytewax's time is the user's own Python."""
    found = 0
    state: defaultdict[tuple[int, int], _Bucket] = defaultdict(_Bucket)
    for side, row in _merged(tables):
        reach = BAND * side
        for i in range(int((row[1] - reach) // BUCKET), int((row[1] + reach) // BUCKET) + 1):
            for j in range(int((row[2] - reach) // BUCKET), int((row[2] + reach) // BUCKET) + 1):
                found += len(state[i, j].take(side, row))
    return found


def missing(name: str) -> str | None:
    """Why a peer can't run here; None if it can."""
    if importlib.util.find_spec(name) is None:
        return f"{name} is not installed: pip install 'plait[bench]' (it has no wheel for every Python)"
    return None
