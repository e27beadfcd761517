"""What `plait bench join` shows of partitioned joins: beside ScaleJoin by number of workers, under skew, and how much a worker
takes.

The 200k band join, and an equality of as many tuples: ScaleJoin and partitioned with 1, 2 and 4 workers. Then the same with
nine tuples in ten in one thousandth of the range, or of one value. Tuples per worker are counted, which needs no cores: with 15
workers one should lay out 1/15 of all, and what its neighbours' bands reach.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait_bench.band import BAND, LEFT, RIGHT, WITHIN_S, data, query
from plait_bench.join_runs import Outcome, digests, flat_out, rounds, same

Rows = list[dict[str, Any]]
WORKERS = (1, 2, 4)
MANY = 15
VALUES = 1000


def equality() -> Any:
    """As `band.query`, of tuples that have a value in common besides: hash, or a grid keyed by it where the value is hot."""
    r, s = plait.stream(LEFT), plait.stream(RIGHT)
    on = f"{LEFT}.k = {RIGHT}.k AND abs({LEFT}.x - {RIGHT}.a) <= {BAND} AND abs({LEFT}.y - {RIGHT}.b) <= {BAND}"
    return plait.join(r, s, on=on, within=f"{WITHIN_S}s")


def crowded(tables: dict[str, pa.Table], case: str, *, hot: bool) -> dict[str, pa.Table]:
    """The same tuples with a value `k`; hot: nine in ten have one value, or lie in a thousandth of the range of x."""
    dice, found = np.random.default_rng(5), {}
    for name, coordinate in ((LEFT, "x"), (RIGHT, "a")):
        table = tables[name]
        k = dice.integers(0, VALUES, table.num_rows)
        many = dice.random(table.num_rows) < 0.9
        if hot and case == "equality":
            k[many] = 7
        if hot and case == "band":
            # A wider range, so that as many tuples are near one another, of which nine tenths have a thousandth.
            x = table.column(coordinate).to_numpy().astype(np.int64)
            x[~many] = x[~many] * 1000 + 10_000_000
            at = table.schema.get_field_index(coordinate)
            table = table.set_column(at, coordinate, pa.array(x, pa.int64()))
        found[name] = table.append_column("k", pa.array(k))
    return found


def rows(quick: bool) -> Rows:
    """Cases "parted": by strategy and workers; and "parted, skew"; and "laid out", by 15 workers."""
    whole = data(500, 40 if quick else 400)
    found: Rows = []
    for case, made in (("band", query()), ("equality", equality())):
        given = {hot: crowded(whole, case, hot=hot) for hot in (False, True)}
        last: dict[str, Outcome] = {}

        def run(
            name: str, hot: bool, made: Any = made, given: Any = given, last: Any = last, **options: Any
        ) -> Callable[[], float]:
            def call() -> float:
                last[name] = flat_out(made, given[hot], **options)
                return float(last[name].seconds)

            return call

        contenders = {
            f"{case}, {name}, {n} workers": run(f"{case}, {name}, {n} workers", False, strategy=name, workers=n)
            for name in ("scalejoin", "partitioned")
            for n in WORKERS
        }
        hot = f"{case}, partitioned, 2 workers, nine in ten alike"
        contenders[hot] = run(hot, True, strategy="partitioned", workers=2)
        times = rounds(contenders, 1 if quick else 3)
        for name in contenders:
            if name != hot:
                same(name, digests(last[name].table), digests(last[f"{case}, scalejoin, 1 workers"].table))
        found += [_row("parted", name, last[name], statistics.median(each)) for name, each in times.items()]
        for alike in (False, True):
            made_of = flat_out(made, given[alike], strategy="partitioned", workers=MANY)
            name = f"{case}, {MANY} workers" + ", nine in ten alike" * alike
            found.append(_row("laid out", name, made_of, made_of.seconds))
    return found


def _row(case: str, name: str, made: Outcome, seconds: float) -> dict[str, Any]:
    tuples = [worker.tuples for worker in made.stats.workers]
    return {
        "case": case, "contender": name, "workers": len(tuples), "results": made.table.num_rows, "seconds": seconds,
        "tuples_per_s": made.tuples / seconds, "busiest_share": max(tuples) / made.tuples,
        "copies": sum(tuples) / made.tuples,
    }  # fmt: skip


def ratios(found: Rows) -> dict[str, float]:
    by = {(row["case"], row["contender"]): row for row in found}
    made: dict[str, float] = {}
    for case in ("band", "equality"):
        own, other = (by["parted", f"{case}, {name}, 4 workers"] for name in ("partitioned", "scalejoin"))
        hot, cold = (by["parted", f"{case}, partitioned, 2 workers{alike}"] for alike in (", nine in ten alike", ""))
        made[f"partitioned_vs_scalejoin_{case}_4_workers"] = own["tuples_per_s"] / other["tuples_per_s"]
        made[f"partitioned_skewed_vs_balanced_{case}"] = hot["tuples_per_s"] / cold["tuples_per_s"]
        made[f"partitioned_{case}_busiest_of_15"] = by["laid out", f"{case}, {MANY} workers"]["busiest_share"] * MANY
    return made
