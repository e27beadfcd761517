"""The same delivery on threads and on Spark: both tell the same of it, by the same names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds

import plait
import plait.spark
from plait.core.metrics import SPARK, Metrics, entries
from plait.spark.publish.watch import watching

pytestmark = pytest.mark.spark

#: Sources that nobody has declared: the second batch brings one that is behind, and rows that run back.
A = plait.stream("a", unit="us", source="from", late="drop", behind="drop")
B = plait.stream("b", unit="us")
NEAR = plait.join(A, B, on="a.ts <> b.ts", within=5)
COUNTED = plait.aggregate(NEAR, size="10us", compute={"n": plait.count()})


def passed_on(state: Any, row: Any) -> list[dict[str, Any]]:
    return [{"n": row.n}]


QUERY = plait.operator(
    COUNTED, buckets=2, route=lambda t: t.n % 2, state=list, process=passed_on, output={"n": "int64"}
)

DELIVERED = [
    {"a": ([10, 20, 15, 30, 14], "xxxxx"), "b": ([11, 12, 30], "")},  # 15 and 14 are late
    {
        "a": ([12, 40, 31, 35, 29], "yxyxy"),
        "b": ([32, 40], ""),
    },  # 12 is behind the frontier, 30; 35 and 29 are late
    {"a": ([50, 51], "xy"), "b": ([50, 52], "")},
]


def table(ts: list[int], sources: str) -> pa.Table:
    columns = {"ts": pa.array(ts, pa.int64())}
    return pa.table(columns | ({"from": pa.array(list(sources))} if sources else {}))


def on_threads() -> tuple[list[Metrics], Metrics]:
    """What it tells after each batch, and at the end."""
    told: list[Metrics] = []
    with QUERY.on_threads(index="scan", plain=True) as run:
        for batch in DELIVERED:
            for name, given in batch.items():
                run.push(name, None, table(*given))
            told.append(run.stats())
        run.drain()
        assert sum(batch.num_rows for batch in run.results()) == run.stats().results
        return told, run.stats()


def on_spark(spark: Any, folder: Path) -> tuple[list[Metrics], list[Metrics]]:
    """What it tells after each batch, by `report=`, and as Spark's listener has it."""
    for name in "ab":
        for number, batch in enumerate(DELIVERED):
            (folder / name).mkdir(exist_ok=True)
            feeds.write_file(folder / name / f"p{number:03d}.parquet", table(*batch[name]), number)
    frames = {
        name: feeds.frame(spark, folder / name, feeds.spark_schema(table(*DELIVERED[0][name])), streaming=True, files=1)
        for name in "ab"
    }
    told: list[Metrics] = []
    shown: list[Metrics] = []
    with watching(spark, lambda number, run: shown.append(run)) as watch:

        def report(batch: plait.spark.BatchReport) -> None:
            assert (batch.late, batch.behind) == (sum(batch.run.late.values()), sum(batch.run.behind.values()))
            told.append(batch.run)
            watch.report(batch)

        df = QUERY.on_spark(frames, layout=(2, 1), index="scan")
        feeds.run(df, folder, report=report, late=folder / "late")
        watch.ended.wait(10)
    return told, shown


@pytest.fixture(scope="module")
def both(spark: Any, tmp_path_factory: Any) -> tuple[Any, Any]:
    return on_threads(), on_spark(spark, tmp_path_factory.mktemp("metrics"))


def test_both_tell_the_same_of_each_batch(both: Any) -> None:
    (threads, _), (spark, _) = both
    for number, (one, other) in enumerate(zip(threads, spark[: len(threads)], strict=True)):
        for name in ("rows", "tuples", "late", "behind", "frontier", "newest", "lag_us", "holder"):
            assert vars(other)[name] == vars(one)[name], f"{name} of batch {number}"
    assert (threads[1].late, threads[1].behind) == ({"a": 4, "b": 0}, {"a": 1, "b": 0})


def test_both_tell_the_same_at_the_end(both: Any) -> None:
    (_, threads), (spark, _) = both
    for name in ("rows", "tuples", "late", "behind", "results", "calls", "comparisons", "frontier", "newest", "holder"):
        assert vars(spark[-1])[name] == vars(threads)[name], name
    assert threads.behind == {"a": 1, "b": 0}
    assert threads.results > 0


def test_each_cell_tells_its_part(both: Any) -> None:
    _, (told, _) = both
    run = told[-1]
    assert [(cell.operator, cell.cell) for cell in run.cells] == [(n, cell) for n in range(3) for cell in range(2)]
    assert [sum(vars(cell)[name] for cell in run.cells) for name in ("comparisons", "updates", "calls", "copies")] == [
        run.comparisons, run.updates, run.calls, run.copies
    ]  # fmt: skip
    assert all(0 < cell.busy_s < run.seconds for cell in run.cells)
    assert set(run.stages) == {"distribution", "keeping", "execution", "gathering"}
    assert sum(run.stages.values()) == pytest.approx(1)


#: Of a run that is taken up again: tests/spark/test_page.py.
LATER = ("restarts", "replays")


@pytest.mark.parametrize("name", [n for n, e in entries(Metrics).items() if SPARK in e.filled and n not in LATER])
def test_spark_fills_it(both: Any, name: str) -> None:
    _, (told, shown) = both
    values = [vars(run)[name] for run in (*told, *shown)]
    values = [any(v.values()) if isinstance(v, dict) else v for v in values]
    assert any(v not in (None, 0, (None, None), ()) for v in values), f"no run on Spark tells {name!r}"
