"""A query that has stopped goes on with another layout and other state partitions: the same bytes, under the next numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, published, write_files
from tests.spark.test_operators import SCHEMA, A, B, counted, rows_of

import plait
import plait.spark
from plait import RunError

pytestmark = pytest.mark.spark


@pytest.fixture
def partitions(spark: Any) -> Iterator[Any]:
    """Sets the number of state partitions, and puts it back."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield lambda number: spark.conf.set("spark.sql.shuffle.partitions", str(number))
    spark.conf.set("spark.sql.shuffle.partitions", before)


def pair(run: Any, t: Any) -> Any:
    """Keeps whole tuples in its state."""
    run.seen += 1
    run.last = [*run.last, t][-3:]
    if run.seen == 1:
        yield plait.timer(t.ts + 4)
    yield {"n": run.seen, "who": t.stream, "xs": [old.b_x for old in run.last]}


COMPUTE = {"n": plait.count(), "mean": plait.mean("x"), "first": plait.first("x"), "kinds": plait.distinct("x")}
MOVED = {
    "panes": plait.aggregate(A, size="12us", advance="5us", by="x", compute=COMPUTE),
    "tuples": plait.aggregate(A, size="12us", advance="5us", by="x", compute=COMPUTE | {"all": plait.collect("ts")}),
    "counted": plait.aggregate(A, size=4, advance=3, by="x", compute=COMPUTE),
    "as-of": plait.asof(A, B, by="x", within="9us"),
    "as-of, nearest": plait.asof(A, B, by="x", within="9us", direction="nearest", exact=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVED)
def test_windows_and_groups_go_on_in_other_cells(spark: Any, tmp_path: Path, partitions: Any, name: str) -> None:
    """Twice: to more cells, and to fewer. What is open at each stop (windows, groups' ranks, last partners) goes on."""
    query, data = MOVED[name], rows_of(90)
    data = {stream: data[stream] for stream in query.streams()}
    for step, (layout, number) in enumerate((((2, 1), 2), ((5, 1), 3), ((1, 1), 1))):
        partitions(number)
        for stream, table in data.items():
            write_files(tmp_path / stream, table.slice(30 * step, 30), [12], first=2 * step)
        given = {n: feeds.frame(spark, tmp_path / n, SCHEMA, streaming=True) for n in data}
        df = query.on_spark(given, layout=layout)
        if step:
            plait.spark.relayout(df, tmp_path / str(step - 1), tmp_path / str(step))
        out = plait.spark.write_ordered(df, tmp_path / "out", checkpoint=tmp_path / str(step), drain=step == 2)
        out.awaitTermination()
        if step < 2:
            assert published(tmp_path / "out").num_rows > 0
    assert_identical(published(tmp_path / "out"), query.reference(data))


def test_a_join_goes_on_in_another_grid_and_an_operator_over_it_in_other_partitions(
    spark: Any, tmp_path: Path, partitions: Any
) -> None:
    """The operator's cells are in other places than its buckets' states were; windows are open, timers wait."""
    near = plait.join(A, B, on="abs(l.x - r.x) <= 1", within=9, how="left", name="near")
    query = counted([near], route=lambda t: t.a_x % 5, process=pair)
    data = rows_of(60)
    half = {name: table.slice(0, 30) for name, table in data.items()}
    for name, table in half.items():
        write_files(tmp_path / name, table, [15])

    def frame(layout: tuple[int, int]) -> Any:
        given = {n: feeds.frame(spark, tmp_path / n, SCHEMA, streaming=True) for n in data}
        return query.on_spark(given, layout=layout)

    def go(df: Any, checkpoint: str, **options: Any) -> None:
        out = plait.spark.write_ordered(df, tmp_path / "out", checkpoint=tmp_path / checkpoint, **options)
        out.awaitTermination()

    go(frame((2, 1)), "one")
    early = published(tmp_path / "out")
    assert early.num_rows > 0
    for name, table in data.items():
        write_files(tmp_path / name, table.slice(30), [], first=2)
    partitions(3)
    other = frame((3, 1))
    with pytest.raises(RunError, match="written by another query"):
        plait.spark.relayout(counted([A]).on_spark({"a": feeds.frame(spark, tmp_path / "a", SCHEMA, streaming=True)}),
                             tmp_path / "one", tmp_path / "two")  # fmt: skip
    plait.spark.relayout(other, tmp_path / "one", tmp_path / "two")
    with pytest.raises(RunError, match=r"has been left for .*two"):
        go(other, "one")
    go(other, "two", drain=True)
    parts = sorted(part.name for part in (tmp_path / "out").glob("*.parquet"))
    assert parts[0] == "part-000000000000.parquet"
    assert len(parts) == len(set(parts))
    expected = query.reference(data)
    assert expected.num_rows > early.num_rows
    assert_identical(published(tmp_path / "out"), expected)
