"""`max_window`: a cell never holds more rows; the query stops before, and goes on from there with another limit."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.spark import feeds
from tests.spark.grid import Grid, batches
from tests.spark.test_cells import SEEDS, drain, expected, plain_kernels
from tests.strategies import Case

import plait
import plait.spark
from plait.errors import RunError
from plait.spark import formats
from plait.spark.formats import MANIFEST, Manifest
from plait.spark.publish import collect

__all__ = ["plain_kernels"]

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
WORDS = re.compile(r"Cell \d+( of operator \d+)? would hold (\d+) rows, more than max_window=(\d+): \d+ of ")
STREAMS: dict[str, Any] = {"declared": True, "max_rows": 30}
JOINS = st.one_of(strategies.time_joins(("inner", "left"), **STREAMS), strategies.asof_joins(**STREAMS))


def limited(grid: Grid, most: int | None) -> None:
    """From the next batch on."""
    grid.stages = [replace(stage, plan=replace(stage.plan, max_window=most)) for stage in grid.stages]


def held(grid: Grid) -> int:
    """What the fullest cell's state has."""
    manifests = [cell.get("manifest", cell.get(MANIFEST)) for cells in grid.states for cell in cells]
    return max((Manifest.load(data).held for data in manifests if data is not None), default=0)


@settings(max_examples=examples(60))
@given(case=JOINS, seed=SEEDS, most=st.integers(1, 25))
def test_a_cell_holds_no_more_and_the_state_stays_as_it_was(case: Case, seed: int, most: int) -> None:
    """A batch that would be too much raises and changes no state; the same batch without a limit then goes on to the end."""
    grid = Grid(case, (2, 1), random.Random(seed), workers=2)
    stopped = False
    for batch in [*batches(grid, case), drain()]:
        if not stopped:
            limited(grid, most)
            before = [dict(cell) for cells in grid.states for cell in cells]
            results, late = list(grid.results), {name: list(rows) for name, rows in grid.late.items()}
            said = ""
            try:
                grid.run(batch)
            except RunError as error:
                said = str(error)
            if not said:
                assert held(grid) <= most
                continue
            found = WORDS.match(said)
            assert found is not None, said
            assert int(found[2]) > most == int(found[3])
            stopped = True
            # Cells of a batch are committed together, or none is.
            for cells in grid.states:
                cells[:] = [before.pop(0) for _ in cells]
            grid.results, grid.late = results, late
            limited(grid, None)
        grid.run(batch)
    event("stopped" if stopped else "went through")
    assert_same(grid.table.drop_columns([formats.KEY]), expected(case))


def rows(n: int) -> pa.Table:
    return pa.table({"ts": pa.array(range(n), pa.int64()), "x": pa.array([k % 5 for k in range(n)], pa.int32())})


def two_streams(spark: Any, folder: Path, *, streaming: bool) -> dict[str, Any]:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for name in "ab":
        if not (folder / name).exists():
            feeds.write_files(folder / name, rows(400), [100, 200, 300])
    return {
        name: feeds.frame(spark, folder / name, feeds.spark_schema(rows(1)), streaming=streaming, files=1)
        for name in "ab"
    }


@pytest.mark.spark
@pytest.mark.again
def test_on_spark_it_stops_and_a_restart_with_a_larger_limit_goes_on(spark: Any, tmp_path: Path) -> None:
    """A window of 150 a stream: two cells of a grid m x 1 have all right rows, and half of the left ones."""
    query = plait.join(A, B, on="l.x = r.x", within=150)
    given = two_streams(spark, tmp_path, streaming=True)
    with pytest.raises(Exception, match="would hold") as caught:
        feeds.run(query.on_spark(given, layout=(2, 1), max_window=400), tmp_path)
    said = plait.spark.told(caught.value)
    assert isinstance(said, RunError)
    assert re.search(r"Cell \d would hold 4\d\d rows, more than max_window=400: \d+ of 'a', 300 of 'b'\.", str(said))
    assert "most are of 'b'; 1" in str(said)
    assert "2 cells (2x1)" in str(said)
    assert "Move to more cells (plait.spark.relayout)" in str(said)
    done = feeds.parts(tmp_path / "out")
    assert len(done) == 2
    with pytest.raises(Exception, match="would hold"):  # what the checkpoint has is more already
        feeds.run(query.on_spark(given, layout=(2, 1), max_window=100), tmp_path)
    got = feeds.run(query.on_spark(given, layout=(2, 1), max_window=600), tmp_path)
    assert done.items() <= feeds.parts(tmp_path / "out").items()
    feeds.assert_identical(got, query.reference({name: rows(400) for name in "ab"}))


@pytest.mark.spark
def test_a_batch_has_the_limit_too(spark: Any, tmp_path: Path) -> None:
    given = two_streams(spark, tmp_path, streaming=False)
    near = plait.join(A, B, on="l.x = r.x", within=150)
    asof = plait.asof(A, B, by="x", within=300)
    for query in (near, asof):
        with pytest.raises(RunError, match="would hold 800 rows, more than max_window=799: 400 of 'a', 400 of 'b'"):
            plait.spark.write_ordered(query.on_spark(given, layout=(1, 1), max_window=799), tmp_path / "out")
        told = plait.spark.write_ordered(
            query.on_spark(given, layout=(1, 1), max_window=800), tmp_path / type(query).__name__
        )
        assert told.results == query.reference({name: rows(400) for name in "ab"}).num_rows


@pytest.mark.spark
@pytest.mark.again
@pytest.mark.parametrize("order", ["strict", "trigger", "none"])
def test_where_tasks_publish_the_driver_fetches_no_result(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """What comes to the driver is counted: reports, and what tasks tell of their parts, however many results there are."""
    fetched: list[pa.Table] = []
    by_kind = collect._by_kind

    def counted(table: pa.Table) -> Any:
        fetched.append(table)
        return by_kind(table)

    monkeypatch.setattr(collect, "_by_kind", counted)
    query = plait.join(A, B, on="l.x = r.x", within=150)
    given = two_streams(spark, tmp_path, streaming=True)
    got = feeds.run(query.on_spark(given, layout=(2, 1)), tmp_path, distributed=True, order=order, keep_key=True)
    feeds.assert_identical(got.sort_by(formats.KEY), query.reference({name: rows(400) for name in "ab"}))
    kinds = {kind for table in fetched for kind in table.column("kind").to_pylist()}
    assert kinds == {formats.PROGRESS, formats.WRITTEN}
    results = sum(
        formats.parse(body)[0].rows
        for table in fetched
        for kind, body in zip(table["kind"].to_pylist(), table["body"].to_pylist(), strict=True)
        if kind == formats.WRITTEN
    )
    assert results == got.num_rows > 10_000
    for table in fetched:
        assert table.num_rows <= 2 + 2 + 1, "a report a cell, a word a part, and a report that tasks passed"
        assert table.nbytes < 10_000, "two reports, and what two tasks have written"
