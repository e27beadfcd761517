"""`plait bench spark-join`: the papers' band join as a streaming query, beside what people write by hand.

How contenders are warmed and timed: `spark_runs`.

Spark refuses the join as it stands. The workaround puts tuples into square buckets as wide as the band, sends one side's
to the nine around, and joins by bucket. Buckets five bands wide make two copies instead of nine: `wide` is the same
workaround by somebody who knows that. DuckDB runs the condition as it stands, by its range join, and by wide buckets.

`skew` is a join by a key that nine tuples in ten share, in every layout: what each cell had to do, how even that is, and how
often a tuple was copied. `many` has more results than tuples, in every order: what the driver's merge costs.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import plait
from plait.connectors import feed as given
from plait.connectors import synthetic
from plait.connectors.dump import write_folder
from plait.errors import RunError
from plait_bench.band import BAND, BUCKET, WITHIN_S, duckdb_sql
from plait_bench.machine import machine
from plait_bench.spark_runs import as_parts, in_order, race, reported, streams, to_the_end

CLASSIC, WIDE = BAND, BUCKET  # widths of the workaround's buckets


@dataclass(frozen=True)
class Case:
    """Tuples a stream, their rate in event time, and into how many files, hence micro-batches, they are cut."""

    name: str
    rate: int
    seconds: int
    files: int

    @property
    def tuples(self) -> int:
        return 2 * self.rate * self.seconds


def run(quick: bool = False) -> dict[str, Any]:
    import plait.spark

    about = machine()
    cores = os.cpu_count() or 2
    spark = plait.spark.session(partitions=cores, **{"spark.driver.memory": "6g"})
    seconds = 40 if quick else 400
    cases = [Case("stream20", 500, seconds, 20), Case("stream4", 500, seconds, 4), Case("large", 2_500, seconds, 10)]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        for case in cases:
            rows += _case(spark, case, Path(place) / case.name)
        rows += _skew(spark, Path(place) / "skew", 2_000 if quick else 20_000)
        rows += _many(spark, Path(place) / "many", 5_000 if quick else 50_000)
        rows += _empty(spark, Path(place) / "empty", 20 if quick else 60)
    return {"bench": "spark-join", "machine": about, "rows": rows, "ratios": _ratios(rows)}


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    rate = {(r["case"], r["contender"]): r["tuples_per_s"] for r in rows if r["case"] != "empty"}
    ms = {r["contender"]: r["batch_ms"] for r in rows if r["case"] == "empty"}
    return {
        "stream20_vs_spark_stream20": rate["stream20", "plait"] / rate["stream20", "spark buckets"],
        "large_vs_spark_stream_large": rate["large", "plait"] / rate["large", "spark buckets"],
        "stream4_vs_spark_batch": rate["stream4", "plait"] / rate["stream4", "spark batch buckets"],
        "empty_batch_vs_spark_count": ms["plait"] / ms["spark count"],
        "many_trigger_vs_strict": rate["many", "plait, trigger"] / rate["many", "plait"],
        "many_none_vs_strict": rate["many", "plait, none"] / rate["many", "plait"],
        "stream20_vs_spark_wide": rate["stream20", "plait"] / rate["stream20", "spark wide buckets"],
        "stream4_vs_spark_batch_wide": rate["stream4", "plait"] / rate["stream4", "spark batch wide buckets"],
    }


def _case(spark: Any, case: Case, place: Path) -> list[dict[str, Any]]:
    work = synthetic.band_join(left=case.rate, right=case.rate, seconds=case.seconds, seed=1)
    folders = {}
    for name, feed in work.feeds.items():
        folders[name] = place / name
        files = write_folder(feed, folders[name], rows_per_file=-(-case.tuples // 2 // case.files))
        in_order(files)
    contenders: dict[str, Callable[[Path], int]] = {"plait": lambda p: _plait(spark, folders, p, "auto")}
    if case.name == "stream20":
        contenders["plait, scan"] = lambda p: _plait(spark, folders, p, "scan")
    if case.name == "stream20":
        contenders["spark wide buckets"] = lambda p: _spark_stream(spark, folders, p, WIDE)
    if case.name != "stream4":
        contenders["spark buckets"] = lambda p: _spark_stream(spark, folders, p, CLASSIC)
    if case.name == "stream4":
        contenders["spark batch wide buckets"] = lambda p: _spark_batch(spark, folders, p, WIDE)
        contenders["spark batch buckets"] = lambda p: _spark_batch(spark, folders, p, CLASSIC)
    contenders["duckdb batch wide buckets"] = lambda p: _duckdb(folders, buckets=True)
    if case.name != "large":
        contenders["duckdb batch"] = lambda p: _duckdb(folders, buckets=False)
    return _race(case, contenders, place)


def _race(case: Case, contenders: dict[str, Callable[[Path], int]], place: Path) -> list[dict[str, Any]]:
    # The last case finds a warm session.
    times, found = race(contenders, place, files=case.files, warm=case.name != "large")
    _same_results(case.name, found)
    return [
        {"case": case.name, "contender": name, "tuples": case.tuples, "results": found[name],
         "seconds": round(statistics.median(taken), 2), "tuples_per_s": case.tuples / statistics.median(taken)}
        for name, taken in times.items()
    ]  # fmt: skip


def query() -> Any:
    r, s = plait.stream("stream_r"), plait.stream("stream_s")
    return plait.join(r, s, on=lambda r, s: (abs(r.x - s.a) <= BAND) & (abs(r.y - s.b) <= BAND), within=f"{WITHIN_S}s")


def _plait(spark: Any, folders: dict[str, Path], place: Path, index: str) -> int:
    return to_the_end(query().on_spark(streams(spark, folders), index=index), place)


#: Layouts of the skewed join, four cells each.
LAYOUTS: dict[str, Any] = {"hash": "hash", "linear": "linear", "square": "square", "see all": "see_all"}


def _skew(spark: Any, place: Path, tuples: int) -> list[dict[str, Any]]:
    """A key that nine tuples in ten have: by hash one cell compares them all, in other layouts all do, and tuples are copied."""
    folders = _two_streams(
        place, tuples, lambda chance: 0 if chance.random() < 0.9 else chance.randrange(1, 100), width=1_000
    )
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    skewed = plait.join(a, b, on="l.k = r.k and abs(l.x - r.x) <= 1", within=tuples // 4)

    def run(layout: Any) -> Callable[[Path], Any]:
        return lambda p: reported(skewed.on_spark(streams(spark, folders), layout=layout, cells=4), p)[-1].run

    times, found = race({name: run(layout) for name, layout in LAYOUTS.items()}, place, files=4)
    _same_results("skew", {name: told.results for name, told in found.items()})
    return [
        {"case": "skew", "contender": f"plait, {name}", "tuples": told.tuples, "results": told.results,
         "seconds": round(statistics.median(times[name]), 2), "tuples_per_s": told.tuples / statistics.median(times[name]),
         "comparisons": told.comparisons, "balance_cv_percent": round(told.balance_cv_percent, 1),
         "copies_per_tuple": told.copies / told.tuples,
         "busiest_cell_s": round(max(cell.busy_s for cell in told.cells), 2)}
        for name, told in found.items()
    ]  # fmt: skip


def _many(spark: Any, place: Path, tuples: int) -> list[dict[str, Any]]:
    """Ten results a tuple, published in every order: the driver merges them, tasks do by trigger, or nobody does."""
    folders = _two_streams(place, tuples, lambda chance: chance.randrange(100), width=10)
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    query = plait.join(a, b, on="l.k = r.k", within=500)

    def run(order: str) -> Callable[[Path], int]:
        return lambda p: to_the_end(query.on_spark(streams(spark, folders), layout="square", cells=4), p, order=order)

    names = {"plait": "strict", "plait, trigger": "trigger", "plait, none": "none"}
    times, found = race({name: run(order) for name, order in names.items()}, place, files=4)
    _same_results("many", found)
    return [
        {"case": "many", "contender": name, "tuples": 2 * tuples, "results": found[name],
         "seconds": round(statistics.median(taken), 2), "tuples_per_s": 2 * tuples / statistics.median(taken)}
        for name, taken in times.items()
    ]  # fmt: skip


def _two_streams(place: Path, tuples: int, key: Callable[[random.Random], int], *, width: int) -> dict[str, Path]:
    """A tuple each microsecond in both, with a key and an x below `width`, in four files."""
    chance, folders = random.Random(1), {}
    for name in "ab":
        stream = plait.stream(name, unit="us")
        columns = {
            "ts": list(range(tuples)), "k": [key(chance) for _ in range(tuples)],
            "x": [chance.randrange(width) for _ in range(tuples)],
        }  # fmt: skip
        folders[name] = place / name
        in_order(write_folder(given(stream, columns), folders[name], rows_per_file=-(-tuples // 4)))
    return folders


def _same_results(case: str, found: dict[str, int]) -> None:
    if len(set(found.values())) != 1:
        raise RunError(f"Contenders differ in the pairs they find in {case}: {found}")


def _bucketed(frame: Any, x: str, y: str, width: int, *, around: bool) -> Any:
    from pyspark.sql import functions as F

    def near(column: str) -> Any:
        low, own, high = (F.floor((F.col(column) + by) / width).cast("int") for by in (-BAND, 0, BAND))
        return F.explode(F.sequence(low, high)) if around else own

    return frame.withColumn(f"b{x}", near(x)).withColumn(f"b{y}", near(y))


def _buckets_join(r: Any, s: Any, width: int) -> Any:
    from pyspark.sql import functions as F

    left = _bucketed(r.withColumnRenamed("ts", "r_ts"), "x", "y", width, around=False)
    right = _bucketed(s.withColumnRenamed("ts", "s_ts"), "a", "b", width, around=True)
    window = F.expr(f"INTERVAL {WITHIN_S} SECONDS")
    on = (
        (F.col("bx") == F.col("ba")) & (F.col("by") == F.col("bb"))
        & (F.abs(F.col("x") - F.col("a")) <= BAND) & (F.abs(F.col("y") - F.col("b")) <= BAND)
        & (F.col("s_ts") >= F.col("r_ts") - window) & (F.col("s_ts") <= F.col("r_ts") + window)
    )  # fmt: skip
    return left.join(right, on)


def _spark_stream(spark: Any, folders: dict[str, Path], place: Path, width: int) -> int:
    read = streams(spark, folders)
    r, s = (read[name].withWatermark("ts", "0 seconds") for name in ("stream_r", "stream_s"))
    return as_parts(_buckets_join(r, s, width), place)


def _spark_batch(spark: Any, folders: dict[str, Path], place: Path, width: int) -> int:
    frames = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    # Written, as all streaming contenders write; in no order.
    _buckets_join(frames["stream_r"], frames["stream_s"], width).write.parquet(str(place / "out"))
    return sum(pq.read_metadata(file).num_rows for file in (place / "out").glob("*.parquet"))


def _duckdb(folders: dict[str, Path], *, buckets: bool) -> int:
    import duckdb

    r, s = (f"read_parquet('{folders[name]}/*.parquet')" for name in ("stream_r", "stream_s"))
    with duckdb.connect() as base:
        rows: Any = base.sql(duckdb_sql(r, s, buckets=buckets)).to_arrow_table()
    return len(rows)


def _empty(spark: Any, place: Path, batches: int) -> list[dict[str, Any]]:
    """What a micro-batch costs that brings one tuple a stream: bookkeeping, beside Spark's own stateful count."""
    work = synthetic.band_join(left=1, right=1, seconds=batches, seed=1)
    folders = {}
    for name, feed in work.feeds.items():
        folders[name] = place / name
        in_order(write_folder(feed, folders[name], rows_per_file=1))
    from plait.spark.publish.collect import write_ordered

    def ours() -> Any:
        df = query().on_spark(streams(spark, folders))
        trigger = {"processingTime": "0 seconds"}
        return write_ordered(df, place / "out", checkpoint=place / "plait", trigger=trigger)

    def count() -> Any:
        frame = streams(spark, folders)["stream_r"].groupBy("x").count()
        writer = frame.writeStream.outputMode("update").foreachBatch(lambda df, batch: df.toArrow())
        return writer.option("checkpointLocation", str(place / "count")).start()

    rows = []
    for name, start in (("plait", ours), ("spark count", count)):
        started = start()
        started.processAllAvailable()
        times = [p["durationMs"]["triggerExecution"] for p in started.recentProgress if p["numInputRows"] > 0]
        started.stop()
        # The first batches compile and warm up; both contenders' are left out.
        rows.append({"case": "empty", "contender": name, "batch_ms": statistics.median(times[len(times) // 2 :])})
    return rows
