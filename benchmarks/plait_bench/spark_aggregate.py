"""`plait bench spark-aggregate`: sliding windows as a streaming query, beside Spark's own.

Readings of 243 meters through two concentrators at 1,000 a second, windows of 30 s every 3 s by meter: count, mean and
first, as in `plait bench aggregate`. How contenders are warmed and timed: `spark_runs`. Spark's own query is
`groupBy(window(...), meter)` with a watermark, its first in event time (`min_by`), and again with `first` as people write
it, which takes whichever row comes first. It never puts out the last windows: those that it does are held against plait's.

Cases: `uniform`, a million readings in 20 micro-batches; `hot key`, the same with nine in ten of one meter; `large`, four
million in 4 micro-batches of four files; `bulk`, eight million in 2 of eight, as when a query catches up. In the first a
micro-batch is nearly all fixed cost, in the last nearly none.

Spark's own windows run with plait's settings, in plait's session, which is what they are fastest with; and with Spark's
defaults for state and shuffle (200 partitions, its default state store), the session being the same otherwise: once, since
that takes seconds a micro-batch.

- `stream_vs_spark_stream`: case `uniform`, tuples/s over those of Spark's own query with plait's settings.
- `stream_vs_spark_stream_first`: the same, Spark's with `first`.
- `stream_vs_spark_defaults`: the same, Spark's with its defaults.
- `large_vs_spark_stream`, `large_vs_spark_defaults`: the first and third in the case `large`.
- `bulk_vs_spark_stream`: the first in the case `bulk`.
- `hot_key_vs_uniform`: tuples/s with nine readings in ten from one meter, over those with all meters alike.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait
from plait.errors import RunError
from plait_bench.aggregate import ADVANCE_S, METERS, RATE, SIZE_S, SOURCES
from plait_bench.machine import machine
from plait_bench.spark_runs import as_parts, default_session, in_order, race, streams, to_the_end


def readings(rows: int, *, hot: float = 0.0, seed: int = 1) -> pa.Table:
    """In order of ts, each ts once; of `hot` of them the meter is number 1."""
    dice = np.random.default_rng(seed)
    ts = 1_000_000 + np.cumsum(dice.integers(1, 2 * 1_000_000 // RATE, rows))
    meter = dice.integers(1, METERS + 1, rows, dtype=np.int32)
    meter[dice.random(rows) < hot] = 1
    return pa.table({
        "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")), "source": dice.integers(0, SOURCES, rows, dtype=np.int32),
        "meter": meter, "cons": np.round(dice.random(rows) * 3, 3),
    })  # fmt: skip


def query() -> plait.Query:
    stream = plait.stream("readings", source="source", sources=range(SOURCES))
    compute = {"n": plait.count(), "mean": plait.mean("cons"), "first": plait.first("cons")}
    return plait.aggregate(stream, size=f"{SIZE_S}s", advance=f"{ADVANCE_S}s", by="meter", compute=compute)


@dataclass(frozen=True)
class Case:
    tuples: int
    files: int
    at_once: int = 1  # files of a micro-batch
    hot: float = 0.0
    spark: tuple[str, ...] = ()  # which of Spark's own queries run besides

    @property
    def batches(self) -> int:
        return self.files // self.at_once


#: Spark's own query: whether its first is in event time, and whether it has Spark's default settings.
WINDOWS = {"spark windows": (True, False), "spark windows, first": (False, False), "spark defaults": (True, True)}

CASES = {
    "uniform": Case(1_000_000, 20, spark=("spark windows", "spark windows, first", "spark defaults")),
    "hot key": Case(1_000_000, 20, hot=0.9),
    "large": Case(4_000_000, 16, at_once=4, spark=("spark windows", "spark defaults")),
    "bulk": Case(8_000_000, 16, at_once=8, spark=("spark windows",)),
}
QUICK = {
    "uniform": Case(60_000, 3, spark=tuple(WINDOWS)),
    "hot key": Case(60_000, 3, hot=0.9),
    "large": Case(80_000, 4, at_once=2, spark=("spark windows", "spark defaults")),
    "bulk": Case(80_000, 4, at_once=4, spark=("spark windows",)),
}


def run(quick: bool = False) -> dict[str, Any]:
    import plait.spark

    about = machine()
    spark = plait.spark.session(partitions=os.cpu_count() or 2, **{"spark.driver.memory": "6g"})
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        for name, case in (QUICK if quick else CASES).items():
            rows += _case(spark, name, case, Path(place) / name)
    rate = {(row["case"], row["contender"]): row["tuples_per_s"] for row in rows}

    def over(case: str, contender: str) -> float:
        return float(rate[case, "plait"] / rate[case, contender])

    ratios = {
        "stream_vs_spark_stream": over("uniform", "spark windows"),
        "stream_vs_spark_stream_first": over("uniform", "spark windows, first"),
        "stream_vs_spark_defaults": over("uniform", "spark defaults"),
        "large_vs_spark_stream": over("large", "spark windows"),
        "large_vs_spark_defaults": over("large", "spark defaults"),
        "bulk_vs_spark_stream": over("bulk", "spark windows"),
        "hot_key_vs_uniform": rate["hot key", "plait"] / rate["uniform", "plait"],
    }
    return {"bench": "spark-aggregate", "machine": about, "rows": rows, "ratios": ratios}


def _case(spark: Any, name: str, case: Case, place: Path) -> list[dict[str, Any]]:
    table = readings(case.tuples, hot=case.hot)
    folders = {"readings": place / "in"}
    folders["readings"].mkdir(parents=True)
    size = -(-table.num_rows // case.files)
    written = [folders["readings"] / f"part-{number:05d}.parquet" for number in range(case.files)]
    for number, file in enumerate(written):
        pq.write_table(table.slice(number * size, size), file)
    in_order(written)
    contenders: dict[str, Callable[[Path], pa.Table]] = {"plait": partial(_plait, spark, folders, at_once=case.at_once)}
    plain = default_session(spark)
    for theirs in case.spark:
        in_event_time, defaults = WINDOWS[theirs]
        contenders[theirs] = partial(
            _spark, plain if defaults else spark, folders, at_once=case.at_once, in_event_time=in_event_time
        )
    times, found = race(contenders, place, files=case.batches, once_only=["spark defaults"])
    for contender, rows in found.items():
        if contender != "plait":
            _agree(found["plait"], rows, contender)
    return [
        {"case": name, "contender": contender, "tuples": table.num_rows, "micro_batches": case.batches,
         "results": found[contender].num_rows, "seconds": statistics.median(taken),
         "tuples_per_s": table.num_rows / statistics.median(taken)}
        for contender, taken in times.items()
    ]  # fmt: skip


def _plait(spark: Any, folders: dict[str, Path], place: Path, *, at_once: int) -> pa.Table:
    to_the_end(query().on_spark(streams(spark, folders, at_once=at_once)), place)
    return _published(place)


def _spark(spark: Any, folders: dict[str, Path], place: Path, *, at_once: int, in_event_time: bool) -> pa.Table:
    from pyspark.sql import functions as F

    first = F.min_by("cons", "ts") if in_event_time else F.first("cons")
    windows = (
        streams(spark, folders, at_once=at_once)["readings"]
        .withWatermark("ts", "0 seconds")
        .groupBy(F.window("ts", f"{SIZE_S} seconds", f"{ADVANCE_S} seconds"), "meter")
        .agg(F.count("*").alias("n"), F.avg("cons").alias("mean"), first.alias("first"))
        .select(F.col("window.start").alias("window_start"), "meter", "n", "mean", "first")
    )
    as_parts(windows, place)
    return _published(place)


def _published(place: Path) -> pa.Table:
    return pa.concat_tables([pq.read_table(file) for file in sorted((place / "out").glob("*.parquet"))])


def _agree(ours: pa.Table, theirs: pa.Table, name: str) -> None:
    """Every window that Spark has put out is plait's; plait has the last ones besides."""
    order = [("window_start", "ascending"), ("meter", "ascending")]
    theirs = theirs.sort_by(order)
    last = theirs.column("window_start")[-1].as_py()
    ours = ours.filter(
        pa.compute.less_equal(ours.column("window_start"), pa.scalar(last, ours.column("window_start").type))
    )
    columns = ["window_start", "meter", "n"] + (["first"] if "first" not in name else [])
    for column in columns:
        if not np.array_equal(np.asarray(ours.column(column)), np.asarray(theirs.column(column))):
            raise RunError(f"{name} disagrees with plait in column {column!r}", do="Report this")
    if not np.allclose(np.asarray(ours.column("mean")), np.asarray(theirs.column("mean")), rtol=1e-9, atol=0):
        raise RunError(f"{name} disagrees with plait in the means", do="Report this")
