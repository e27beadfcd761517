"""Of `plait bench spark-join`: what one micro-batch takes when the query has been running for a while.

`steady`: micro-batches of one tuple a stream, beside Spark's own stateful count; and of 10,000 tuples a stream of the band
join, beside the workaround by wide buckets. Two hundred come first and are not counted: the JVM's compilers, Spark's caches and
the state are then as they are in production.

`equi`: a join by an equal key, which Spark has one of its own for, with as many results as tuples. 1,000 rows a micro-batch
(500 a stream) after two hundred, 100,000 after forty, a million after three: by then what is measured is the work.

A micro-batch's time is Spark's own `triggerExecution`. Contenders get the same files and settings; their results reach the
driver and are written as a part, but for the count, whose rows are only fetched. The median counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait
from plait.connectors import synthetic
from plait.connectors.dump import write_folder
from plait.errors import RunError
from plait_bench import band
from plait_bench.spark_buckets import WIDE, buckets_join
from plait_bench.spark_runs import in_order, rows_in, streams, writing_parts

#: Progress of how many micro-batches Spark keeps: all of a run's.
KEPT = "spark.sql.streaming.numRecentProgressUpdates"
#: A tuple of each stream a millisecond: Spark's watermarks count no finer.
MS = 1_000


@dataclass(frozen=True)
class Pace:
    """Rows of both streams a micro-batch, how many micro-batches come first, and how many count."""

    name: str
    rows: int
    before: int
    counted: int

    @property
    def batches(self) -> int:
        return self.before + self.counted


def steady(spark: Any, place: Path, quick: bool) -> list[dict[str, Any]]:
    before, counted = (8, 4) if quick else (200, 60)
    empty, some = Pace("steady_empty", 2, before, counted), Pace("steady20k", 20_000, before, counted)
    files = {pace: _band_files(place / pace.name, pace) for pace in (empty, some)}
    return _measured(
        spark, empty, place / empty.name,
        {"plait": partial(_ours, spark, band.query(), files[empty]),
         "spark count": partial(_counting, spark, files[empty])},
    ) + _measured(
        spark, some, place / some.name,
        {"plait": partial(_ours, spark, band.query(), files[some]),
         "spark wide buckets": partial(_wide, spark, files[some])},
    )  # fmt: skip


def equi(spark: Any, place: Path, quick: bool) -> list[dict[str, Any]]:
    paces = [Pace("equi_1k", 1_000, 200, 60), Pace("equi_100k", 100_000, 40, 12), Pace("equi_1m", 1_000_000, 3, 4)]
    if quick:
        paces = [Pace("equi_1k", 1_000, 8, 4), Pace("equi_100k", 20_000, 2, 2), Pace("equi_1m", 100_000, 1, 2)]
    rows = []
    for pace in paces:
        folders, within_ms = _key_files(place / pace.name, pace), pace.rows // 4
        contenders = {
            "plait": partial(_ours, spark, _by_key(within_ms), folders),
            "spark": partial(_sparks_own, spark, folders, within_ms),
        }
        rows += _measured(spark, pace, place / pace.name, contenders)
    return rows


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Spark's time over plait's, so that more is better; of the empty one plait's over Spark's: what it costs more."""
    ms = {(row["case"], row["contender"]): row["batch_ms"] for row in rows if "batch_ms" in row}
    found = {}
    if ("steady_empty", "plait") in ms:
        found["steady_empty_vs_spark_count"] = ms["steady_empty", "plait"] / ms["steady_empty", "spark count"]
        found["steady20k_vs_spark_wide"] = ms["steady20k", "spark wide buckets"] / ms["steady20k", "plait"]
    for case in ("equi_1k", "equi_100k", "equi_1m"):
        if (case, "plait") in ms:
            found[f"{case}_vs_spark"] = ms[case, "spark"] / ms[case, "plait"]
    return found


def _measured(
    spark: Any, pace: Pace, place: Path, contenders: Mapping[str, Callable[[Path], Any]]
) -> list[dict[str, Any]]:
    """Each contender in turn, from an empty checkpoint.

    The results that it has put out by then are told, not compared: who holds some back until time has passed has fewer.
    """
    rows = []
    spark.conf.set(KEPT, str(2 * pace.batches + 10))
    for name, start in contenders.items():
        started = start(place / name)
        started.processAllAvailable()
        progress = [p for p in started.recentProgress if p["numInputRows"] > 0]
        started.stop()
        if len(progress) != pace.batches:
            raise RunError(f"{pace.name}, {name}: {len(progress)} micro-batches", why=f"{pace.batches} were cut")
        times = [p["durationMs"]["triggerExecution"] for p in progress[pace.before :]]
        rows.append({
            "case": pace.name, "contender": name, "rows": pace.rows, "batch_ms": statistics.median(times),
            "tuples_per_s": pace.rows / statistics.median(times) * 1e3, "slowest_ms": max(times),
            "results": rows_in(place / name / "out"),
        })  # fmt: skip
    return rows


def _band_files(place: Path, pace: Pace) -> dict[str, Path]:
    """So many tuples a stream a file, 500 of them a second, so that the window holds 150,000 of each once it is full."""
    own = pace.rows // 2
    rate = 1 if own == 1 else 500
    work = synthetic.band_join(left=rate, right=rate, seconds=own * pace.batches // rate, seed=1)
    folders = {name: place / name for name in work.feeds}
    for name, feed in work.feeds.items():
        in_order(write_folder(feed, folders[name], rows_per_file=own))
    return folders


def _key_files(place: Path, pace: Pace) -> dict[str, Path]:
    """A tuple a millisecond, with one of so many keys that a tuple meets one other within half a file's time."""
    dice, own, folders = np.random.default_rng(1), pace.rows // 2, {}
    for name in ("a", "b"):
        folders[name] = place / name
        folders[name].mkdir(parents=True)
        files = []
        for number in range(pace.batches):
            ts = 1_000_000 + (np.arange(own) + number * own) * MS
            rows = {
                "ts": pa.array(ts).cast(pa.timestamp("us", "UTC")), "k": dice.integers(0, own, own, dtype=np.int64),
                "x": dice.random(own),
            }  # fmt: skip
            files.append(folders[name] / f"part-{number:05d}.parquet")
            pq.write_table(pa.table(rows), files[-1])
        in_order(files)
    return folders


def _by_key(within_ms: int) -> Any:
    return plait.join(plait.stream("a"), plait.stream("b"), on="l.k = r.k", within=within_ms * MS)


def _ours(spark: Any, query: Any, folders: dict[str, Path], place: Path) -> Any:
    from plait.spark.publish.collect import write_ordered

    df = query.on_spark(streams(spark, folders))
    return write_ordered(df, place / "out", checkpoint=place / "checkpoint", trigger={"processingTime": "0 seconds"})


def _wide(spark: Any, folders: dict[str, Path], place: Path) -> Any:
    r, s = _marked(spark, folders)
    return writing_parts(buckets_join(r, s, WIDE), place)


def _sparks_own(spark: Any, folders: dict[str, Path], within_ms: int, place: Path) -> Any:
    from pyspark.sql import functions as F

    left, right = (
        frame.select(*(F.col(column).alias(f"{side}_{column}") for column in ("ts", "k", "x")))
        for side, frame in zip("ab", _marked(spark, folders), strict=True)
    )
    window = F.expr(f"INTERVAL {within_ms} MILLISECONDS")
    near = (F.col("b_ts") >= F.col("a_ts") - window) & (F.col("b_ts") <= F.col("a_ts") + window)
    return writing_parts(left.join(right, (F.col("a_k") == F.col("b_k")) & near), place)


def _marked(spark: Any, folders: dict[str, Path]) -> list[Any]:
    """The streams with the watermark by which Spark lets state go."""
    return [frame.withWatermark("ts", "0 seconds") for frame in streams(spark, folders).values()]


def _counting(spark: Any, folders: dict[str, Path], place: Path) -> Any:
    frame = streams(spark, folders)["stream_r"].groupBy("x").count()
    writer = frame.writeStream.outputMode("update").foreachBatch(lambda df, batch: df.toArrow())
    return writer.option("checkpointLocation", str(place / "checkpoint")).start()
