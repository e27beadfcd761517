"""The papers' band join as the benchmarks have it: the query, its data, and how peers are asked for the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import plait
from plait.connectors import synthetic
from plait.connectors.synthetic.workload import Workload, tables

BAND, WITHIN_S, BUCKET = 10, 300, 50
LEFT, RIGHT = "stream_r", "stream_s"


def query(within_s: float = WITHIN_S, band: float = BAND, workload: Workload | None = None) -> Any:
    """R and S where x and a, and y and b, are within `band`. A workload says how its sources are named."""
    said = workload.declarations if workload is not None else {LEFT: {}, RIGHT: {}}
    r, s = (plait.stream(name, **said[name]) for name in (LEFT, RIGHT))
    return plait.join(
        r, s, on=lambda r, s: (abs(r.x - s.a) <= band) & (abs(r.y - s.b) <= band), within=f"{round(within_s * 1e6)}us"
    )


def counted(last: int, band: float = BAND) -> Any:
    """The same of two streams of one source each, over windows of the last so many tuples."""
    r, s = (plait.stream(name) for name in (LEFT, RIGHT))
    return plait.join(r, s, on=lambda r, s: (abs(r.x - s.a) <= band) & (abs(r.y - s.b) <= band), last=last)


def data(rate: int, seconds: int) -> dict[str, pa.Table]:
    """Two streams of one source each, whole; 500 t/s for 400 s are the 200k benchmark."""
    return tables(synthetic.band_join(left=rate, right=rate, seconds=seconds, seed=1))


def duckdb_sql(r: str, s: str, *, buckets: bool, within_s: int = WITHIN_S, ordered: bool = False) -> str:
    """The join in DuckDB's SQL, of two relations. As it stands, or, as people do by hand, by square buckets.

    `ordered`: by the later tuple of a pair, then by the earlier one, as plait's results are.
    """
    window = f"s.ts BETWEEN r.ts - INTERVAL {within_s} SECONDS AND r.ts + INTERVAL {within_s} SECONDS"
    band = "r.x >= s.x_low AND r.x <= s.x_high AND r.y >= s.y_low AND r.y <= s.y_high"
    # As four inequalities on columns, not abs() or BETWEEN: only then does DuckDB take its range join.
    bounds = f"a - {BAND} AS x_low, a + {BAND} AS x_high, b - {BAND} AS y_low, b + {BAND} AS y_high"
    if not buckets:
        return f"SELECT * FROM {r} r JOIN (SELECT *, {bounds} FROM {s}) s ON {band} WHERE {window}"
    own = ", ".join(f"CAST(floor({c} / {BUCKET}) AS INT) AS b{c}" for c in "xy")
    around = ", ".join(
        f"range(CAST(floor({c}_low / {BUCKET}) AS INT), CAST(floor({c}_high / {BUCKET}) AS INT) + 1) AS all_{c}"
        for c in "xy"
    )
    return (
        f"WITH r AS (SELECT *, {own} FROM {r}), "
        f"bounded AS (SELECT *, {around} FROM (SELECT *, {bounds} FROM {s})), "
        "s AS (SELECT *, unnest(all_y) AS by_ FROM (SELECT *, unnest(all_x) AS bx_ FROM bounded)) "
        f"SELECT * FROM r JOIN s ON r.bx = s.bx_ AND r.by = s.by_ WHERE {band} AND {window}"
        + (" ORDER BY greatest(r.ts, s.ts), least(r.ts, s.ts)" if ordered else "")
    )
