"""Of `plait bench spark-join`: sizes at which the join is the work, streaming and batch, and a band that most tuples share.

`size2m` and `size10m`: so many tuples a stream at 2,500 a second, windows of 750,000; ten micro-batches.
`hot`: 200,000 tuples a stream of which nine in ten lie in one hundredth of the values, or in one range of the layout "band",
beside the same without; by band and in a grid. Of the one range also by the layout that `relayout` finds for what the windows of
a first run hold. Each row tells how often a tuple was sent, how many bytes that were, and what the busiest cell had.

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
from plait_bench.spark_runs import in_order, race, reported, same_results, streams, timed, to_the_end

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
    contenders: dict[str, Callable[[Path], Any]] = {}
    for name, share, width in (("uniform", 0.0, 0), ("hot", 0.9, 10_000), ("one range", 0.9, ONE_RANGE)):
        folders = _near(place / name, tuples, share, width)
        for layout in ("grid", "band"):
            wanted = "rectangular" if layout == "grid" else layout
            contenders[f"plait, {name}, {layout}"] = partial(_stream, spark, folders, layout=wanted)
    seen = _seen(spark, folders, place / "seen")
    contenders["plait, one range, band as seen"] = partial(_stream, spark, folders, layout=seen)
    times, found = race(contenders, place, files=BATCHES)
    for name in ("uniform", "hot", "one range"):
        same_results("hot", {who: run.results for who, run in found.items() if who.startswith(f"plait, {name},")})
    rows = timed("hot", 2 * tuples, times, {who: run.results for who, run in found.items()})
    return [row | _cells(found[row["contender"]]) for row in rows]


#: How wide a range of the layout "band" is, for a band of +-10.
ONE_RANGE = 160


def _cells(run: Any) -> dict[str, Any]:
    """What cells were sent, and the busiest of them."""
    held = [cell.copies for cell in run.cells]
    return {
        "copies_per_tuple": round(run.copies_per_tuple, 3), "bytes_per_tuple": round(run.bytes_per_tuple, 1),
        "busiest_vs_mean": round(max(held) * len(held) / sum(held), 2),
    }  # fmt: skip


def _seen(spark: Any, folders: dict[str, Path], place: Path) -> Any:
    """The layout by band that `relayout` finds for what the windows hold after a run without end of input."""
    import plait.spark
    from plait.spark.keep.checkpoint import read_card
    from plait.spark.plan.layout import Layout

    df = _narrow().on_spark(streams(spark, folders), layout="band")
    plait.spark.write_ordered(df, place / "out", checkpoint=place / "old").awaitTermination()
    plait.spark.relayout(df, place / "old", place / "new")
    card = read_card(place / "new")
    assert card is not None
    assert card.pins.layout is not None
    return Layout.again(card.pins.layout, card.pins.partitions)


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
    if ("hot", "plait, hot, band") in rate:
        uniform, hot = rate["hot", "plait, uniform, band"], rate["hot", "plait, hot, band"]
        found["hot_band_vs_uniform"] = rate["hot", "plait, one range, band as seen"] / uniform
        found["hot_hundredth_vs_uniform"] = hot / uniform
        found["uniform_band_vs_grid"] = uniform / rate["hot", "plait, uniform, grid"]
        found["hot_band_vs_grid"] = (
            rate["hot", "plait, one range, band as seen"] / rate["hot", "plait, one range, grid"]
        )
    return found


def plait_batch(spark: Any, query: Any, folders: dict[str, Path], place: Path) -> int:
    """The results of batch DataFrames, written by tasks, in result order."""
    from plait.spark.publish.collect import write_ordered

    frames = {name: spark.read.parquet(str(folder)) for name, folder in folders.items()}
    told = write_ordered(query.on_spark(frames), place / "out")
    return int(told.results)


def _stream(spark: Any, folders: dict[str, Path], place: Path, *, layout: Any) -> Any:
    return reported(_narrow().on_spark(streams(spark, folders), layout=layout), place)[-1].run


def _narrow() -> Any:
    a, b = plait.stream("a"), plait.stream("b")
    return plait.join(a, b, on="abs(l.x - r.x) <= 10 and abs(l.y - r.y) <= 10", within="60s")


def _near(place: Path, tuples: int, share: float, width: int) -> dict[str, Path]:
    """Two streams of 500 tuples a second; of so many of them `x` is below `width`, of a million."""
    folders = {}
    for seed, name in enumerate(("a", "b")):
        dice = np.random.default_rng(seed)
        x = np.where(
            dice.random(tuples) < share, dice.integers(0, max(width, 1), tuples), dice.integers(0, 1_000_000, tuples)
        )
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
