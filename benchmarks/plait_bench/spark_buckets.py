"""The papers' band join as people write it by hand, since Spark refuses it as it stands.

Tuples are put into square buckets as wide as the band, one side's are sent to the nine around, and the join is by bucket.
Buckets five bands wide make two copies instead of nine: `WIDE` is the same by somebody who knows that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plait_bench.band import BAND, BUCKET, WITHIN_S, duckdb_sql
from plait_bench.spark_runs import as_parts, rows_in, streams

CLASSIC, WIDE = BAND, BUCKET  # widths of the workaround's buckets


def spark_stream(spark: Any, folders: dict[str, Path], place: Path, width: int) -> int:
    read = streams(spark, folders)
    r, s = (read[name].withWatermark("ts", "0 seconds") for name in ("stream_r", "stream_s"))
    return as_parts(buckets_join(r, s, width), place)


def spark_batch(spark: Any, folders: dict[str, Path], place: Path, width: int) -> int:
    frames = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    # Written, as all streaming contenders write; in no order.
    buckets_join(frames["stream_r"], frames["stream_s"], width).write.parquet(str(place / "out"))
    return rows_in(place / "out")


def duckdb_batch(folders: dict[str, Path], *, buckets: bool) -> int:
    import duckdb

    r, s = (f"read_parquet('{folders[name]}/*.parquet')" for name in ("stream_r", "stream_s"))
    with duckdb.connect() as base:
        rows: Any = base.sql(duckdb_sql(r, s, buckets=buckets)).to_arrow_table()
    return len(rows)


def _bucketed(frame: Any, x: str, y: str, width: int, *, around: bool) -> Any:
    from pyspark.sql import functions as F

    def near(column: str) -> Any:
        low, own, high = (F.floor((F.col(column) + by) / width).cast("int") for by in (-BAND, 0, BAND))
        return F.explode(F.sequence(low, high)) if around else own

    return frame.withColumn(f"b{x}", near(x)).withColumn(f"b{y}", near(y))


def buckets_join(r: Any, s: Any, width: int) -> Any:
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
