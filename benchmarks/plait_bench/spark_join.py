"""`plait bench spark-join`: the papers' band join as a streaming query, beside what people write by hand (`spark_buckets`).

How contenders are warmed and timed: `spark_runs`. DuckDB runs the condition as it stands, by its range join, and by wide
buckets.

`skew` is a join by a key that nine tuples in ten share, in every layout: what each cell had to do, how even that is, and how
often a tuple was copied. `many` has more results than tuples, in every order: what the driver's merge costs. What one
micro-batch takes after two hundred: `spark_steady`. Sizes at which the join is the work: `spark_sizes`.

What 20 million a stream (or PLAIT_BENCH_TUPLES) take of each process's memory: `spark_memory`.

`--only CASE` measures one; `size10m` and `size20m` have to be named, since they are long.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plait
from plait.connectors import feed as given
from plait.connectors import synthetic
from plait.connectors.dump import write_folder
from plait.errors import QueryError
from plait_bench import spark_memory, spark_sizes, spark_steady
from plait_bench.band import query
from plait_bench.machine import machine
from plait_bench.spark_buckets import CLASSIC, WIDE, duckdb_batch, spark_batch, spark_stream
from plait_bench.spark_runs import in_order, race, reported, same_results, streams, timed, to_the_end


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


def run(quick: bool = False, only: Sequence[str] = ()) -> dict[str, Any]:
    import plait.spark

    for name in only:
        if name not in CASES:
            raise QueryError(f"--only {name!r}: spark-join has no such case", do=f"Use one of {', '.join(CASES)}")
    about = machine()
    cores = os.cpu_count() or 2
    heap = "4g" if set(only) == {"size20m"} else "6g"
    spark = plait.spark.session(partitions=cores, **{"spark.driver.memory": heap})
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as place:
        for name, measure in CASES.items():
            if name in only or (not only and name not in ASKED_FOR):
                rows += measure(spark, Path(place) / name, quick)
                shutil.rmtree(Path(place) / name, ignore_errors=True)
    ratios = _ratios(rows) | spark_steady.ratios(rows) | spark_sizes.ratios(rows) | spark_memory.ratios(rows)
    return {"bench": "spark-join", "machine": about, "rows": rows, "ratios": ratios}


#: What is measured, by the names of `--only`.
CASES: dict[str, Callable[[Any, Path, bool], list[dict[str, Any]]]] = {
    "stream20": lambda spark, place, quick: _case(spark, Case("stream20", 500, 40 if quick else 400, 20), place),
    "stream4": lambda spark, place, quick: _case(spark, Case("stream4", 500, 40 if quick else 400, 4), place),
    "large": lambda spark, place, quick: _case(spark, Case("large", 2_500, 40 if quick else 400, 10), place),
    "skew": lambda spark, place, quick: _skew(spark, place, 2_000 if quick else 20_000),
    "many": lambda spark, place, quick: _many(spark, place, 5_000 if quick else 50_000),
    "steady": spark_steady.steady,
    "equi": spark_steady.equi,
    "hot": lambda spark, place, quick: spark_sizes.hot(spark, place, 20_000 if quick else 200_000),
    "size2m": lambda spark, place, quick: spark_sizes.sizes(spark, place, "size2m", 100_000 if quick else 2_000_000),
    "size10m": lambda spark, place, quick: spark_sizes.sizes(spark, place, "size10m", 250_000 if quick else 10_000_000),
    "size20m": lambda spark, place, quick: (
        spark_memory.size20m(spark, place, 400_000, rate=200, file=20_000) if quick
        else spark_memory.size20m(spark, place, int(os.environ.get("PLAIT_BENCH_TUPLES", "20_000_000")))
    ),
}  # fmt: skip
#: Take so long that they have to be named.
ASKED_FOR = frozenset({"size10m", "size20m"})


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    rate = {(r["case"], r["contender"]): r["tuples_per_s"] for r in rows}
    return {
        name: rate[case, one] / rate[case, other] for name, (case, one, other) in RATIOS.items() if (case, one) in rate
    }


#: Each a case, and two of its contenders.
RATIOS = {
    "stream20_vs_spark_stream20": ("stream20", "plait", "spark buckets"),
    "stream20_vs_spark_wide": ("stream20", "plait", "spark wide buckets"),
    "large_vs_spark_stream_large": ("large", "plait", "spark buckets"),
    "stream4_vs_spark_batch": ("stream4", "plait", "spark batch buckets"),
    "stream4_vs_spark_batch_wide": ("stream4", "plait", "spark batch wide buckets"),
    "many_trigger_vs_strict": ("many", "plait, trigger", "plait"),
    "many_none_vs_strict": ("many", "plait, none", "plait"),
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
        contenders["spark wide buckets"] = lambda p: spark_stream(spark, folders, p, WIDE)
    if case.name != "stream4":
        contenders["spark buckets"] = lambda p: spark_stream(spark, folders, p, CLASSIC)
    if case.name == "stream4":
        contenders["spark batch wide buckets"] = lambda p: spark_batch(spark, folders, p, WIDE)
        contenders["spark batch buckets"] = lambda p: spark_batch(spark, folders, p, CLASSIC)
    contenders["duckdb batch wide buckets"] = lambda p: duckdb_batch(folders, buckets=True)
    if case.name != "large":
        contenders["duckdb batch"] = lambda p: duckdb_batch(folders, buckets=False)
    return _race(case, contenders, place)


def _race(case: Case, contenders: dict[str, Callable[[Path], int]], place: Path) -> list[dict[str, Any]]:
    # The last case finds a warm session.
    times, found = race(contenders, place, files=case.files, warm=case.name != "large")
    same_results(case.name, found)
    return timed(case.name, case.tuples, times, found)


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
    same_results("skew", {name: told.results for name, told in found.items()})
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
    same_results("many", found)
    return timed("many", 2 * tuples, times, found)


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
