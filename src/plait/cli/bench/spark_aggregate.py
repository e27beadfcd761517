"""`plait bench spark-aggregate`: sliding windows as a streaming query, beside Spark's own.

Readings of 243 meters through two concentrators at 1,000 a second, windows of 30 s every 3 s by meter: count, mean and
first, as in `plait bench aggregate`. How contenders are warmed and timed: `spark_runs`. Spark's own query is
`groupBy(window(...), meter)` with a watermark, its first in event time (`min_by`), and again with `first` as people write
it, which takes whichever row comes first. It never puts out the last windows: those that it does are held against plait's.

- `stream_vs_spark_stream`: tuples/s over those of Spark's own query.
- `hot_key_vs_uniform`: tuples/s with nine readings in ten from one meter, over those with all meters alike.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait
from plait.cli.bench.aggregate import ADVANCE_S, METERS, RATE, SIZE_S, SOURCES
from plait.cli.bench.machine import machine
from plait.cli.bench.spark_runs import as_parts, in_order, race, streams, to_the_end
from plait.errors import RunError


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


def run(quick: bool = False) -> dict[str, Any]:
    import plait.spark

    about = machine()
    spark = plait.spark.session(partitions=os.cpu_count() or 2, **{"spark.driver.memory": "6g"})
    tuples, files = (60_000, 3) if quick else (1_000_000, 20)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        for name, hot in (("uniform", 0.0), ("hot key", 0.9)):
            rows += _case(spark, name, readings(tuples, hot=hot), Path(place) / name, files)
    rate = {(row["case"], row["contender"]): row["tuples_per_s"] for row in rows}
    ratios = {
        "stream_vs_spark_stream": rate["uniform", "plait"] / rate["uniform", "spark windows"],
        "stream_vs_spark_stream_first": rate["uniform", "plait"] / rate["uniform", "spark windows, first"],
        "hot_key_vs_uniform": rate["hot key", "plait"] / rate["uniform", "plait"],
    }
    return {"bench": "spark-aggregate", "machine": about, "rows": rows, "ratios": ratios}


def _case(spark: Any, name: str, table: pa.Table, place: Path, files: int) -> list[dict[str, Any]]:
    folders = {"readings": place / "in"}
    folders["readings"].mkdir(parents=True)
    size = -(-table.num_rows // files)
    written = [folders["readings"] / f"part-{number:05d}.parquet" for number in range(files)]
    for number, file in enumerate(written):
        pq.write_table(table.slice(number * size, size), file)
    in_order(written)
    contenders: dict[str, Callable[[Path], pa.Table]] = {"plait": lambda p: _plait(spark, folders, p)}
    if name == "uniform":
        contenders["spark windows"] = lambda p: _spark(spark, folders, p, in_event_time=True)
        contenders["spark windows, first"] = lambda p: _spark(spark, folders, p, in_event_time=False)
    times, found = race(contenders, place, files=files)
    for contender, theirs in found.items():
        if contender != "plait":
            _agree(found["plait"], theirs, contender)
    return [
        {"case": name, "contender": contender, "tuples": table.num_rows, "results": found[contender].num_rows,
         "seconds": statistics.median(taken), "tuples_per_s": table.num_rows / statistics.median(taken)}
        for contender, taken in times.items()
    ]  # fmt: skip


def _plait(spark: Any, folders: dict[str, Path], place: Path) -> pa.Table:
    to_the_end(query().on_spark(streams(spark, folders)), place)
    return _published(place)


def _spark(spark: Any, folders: dict[str, Path], place: Path, *, in_event_time: bool) -> pa.Table:
    from pyspark.sql import functions as F

    first = F.min_by("cons", "ts") if in_event_time else F.first("cons")
    windows = (
        streams(spark, folders)["readings"]
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
