"""Of `plait bench spark-join`: sizes at which the join is the work, streaming and batch, and a band that most tuples share.

`size2m` and `size10m`: so many tuples a stream at 2,500 a second, windows of 750,000; ten micro-batches.
`hot`: 200,000 tuples a stream of which nine in ten lie in one hundredth of the values, beside the same without: a cell by value
would have them all.

Batch contenders write their rows by Spark's tasks: plait in result order, Spark in none. Of 10 million a stream the streaming
workaround is left out: it is the slowest with 2 million already.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import plait
from plait.connectors import synthetic
from plait.connectors.dump import write_folder
from plait_bench import band
from plait_bench.spark_buckets import WIDE, duckdb_batch, spark_batch, spark_stream
from plait_bench.spark_runs import in_order, race, same_results, streams, timed, to_the_end

BATCHES = 10


def sizes(spark: Any, place: Path, name: str, tuples: int) -> list[dict[str, Any]]:
    """The band join of so many tuples a stream."""
    rate = 2_500
    work = synthetic.band_join(left=rate, right=rate, seconds=tuples // rate, seed=1)
    folders = {stream: place / stream for stream in work.feeds}
    for stream, feed in work.feeds.items():
        in_order(write_folder(feed, folders[stream], rows_per_file=-(-tuples // BATCHES)))
    contenders: dict[str, Callable[[Path], int]] = {
        "plait stream": lambda p: to_the_end(band.query().on_spark(streams(spark, folders)), p),
        "plait batch": lambda p: plait_batch(spark, band.query(), folders, p),
        "spark batch wide buckets": lambda p: spark_batch(spark, folders, p, WIDE),
        "duckdb batch wide buckets": lambda p: duckdb_batch(folders, buckets=True),
    }
    slow = ["spark wide buckets"] if name == "size2m" else []
    if slow:
        contenders["spark wide buckets"] = lambda p: spark_stream(spark, folders, p, WIDE)
    times, found = race(contenders, place, files=BATCHES, warm=tuples <= 2_000_000, once_only=slow)
    same_results(name, found)
    return timed(name, 2 * tuples, times, found)


def hot(spark: Any, place: Path, tuples: int) -> list[dict[str, Any]]:
    """A band that nine tuples in ten are near, beside one that none is nearer than another."""
    contenders: dict[str, Callable[[Path], int]] = {}
    for name, share in (("uniform", 0.0), ("hot", 0.9)):
        folders = _near(place / name, tuples, share)
        contenders[f"plait, {name}"] = partial(_stream, spark, folders)
    times, found = race(contenders, place, files=BATCHES)
    return timed("hot", 2 * tuples, times, found)


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    rate = {(row["case"], row["contender"]): row["tuples_per_s"] for row in rows}
    found: dict[str, float] = {}
    for case in ("size2m", "size10m"):
        if (case, "plait stream") not in rate:
            continue
        stream, batch = rate[case, "plait stream"], rate[case, "plait batch"]
        by_hand = rate[case, "spark batch wide buckets"]
        if (case, "spark wide buckets") in rate:
            found[f"{case}_stream_vs_spark_wide"] = stream / rate[case, "spark wide buckets"]
        found[f"{case}_stream_vs_spark_batch_wide"] = stream / by_hand
        found[f"{case}_batch_vs_spark_batch_wide"] = batch / by_hand
        found[f"{case}_stream_vs_duckdb_batch"] = stream / rate[case, "duckdb batch wide buckets"]
    if ("hot", "plait, hot") in rate:
        found["hot_band_vs_uniform"] = rate["hot", "plait, hot"] / rate["hot", "plait, uniform"]
    return found


def plait_batch(spark: Any, query: Any, folders: dict[str, Path], place: Path) -> int:
    """The results of batch DataFrames, written by tasks, in result order."""
    from plait.spark.publish.collect import write_ordered

    frames = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    told = write_ordered(query.on_spark(frames), place / "out")
    return int(told.results)


def _stream(spark: Any, folders: dict[str, Path], place: Path) -> int:
    return to_the_end(_narrow().on_spark(streams(spark, folders)), place)


def _narrow() -> Any:
    a, b = plait.stream("a"), plait.stream("b")
    return plait.join(a, b, on="abs(l.x - r.x) <= 10 and abs(l.y - r.y) <= 10", within="60s")


def _near(place: Path, tuples: int, share: float) -> dict[str, Path]:
    """Two streams of 500 tuples a second; of so many of them `x` is in one hundredth of its range."""
    folders = {}
    for seed, name in enumerate(("a", "b")):
        dice = np.random.default_rng(seed)
        x = np.where(dice.random(tuples) < share, dice.integers(0, 10_000, tuples), dice.integers(0, 1_000_000, tuples))
        table = pa.table({
            "ts": pa.array(1_000_000 + np.arange(tuples) * 2_000).cast(pa.timestamp("us", "UTC")),
            "x": x.astype(np.float64), "y": dice.integers(0, 10_000, tuples).astype(np.float64),
        })  # fmt: skip
        folders[name] = place / name
        folders[name].mkdir(parents=True)
        step = -(-tuples // BATCHES)
        files = [folders[name] / f"part-{number:05d}.parquet" for number in range(BATCHES)]
        for number, file in enumerate(files):
            pq.write_table(table.slice(number * step, step), file)
        in_order(files)
    return folders
