"""Batches that tasks write, and that are published at once: cells with stretches of time, merging, and what a kill leaves."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.spark import feeds, killed_batch
from tests.spark.grid import Grid
from tests.spark.kills import killed_at
from tests.spark.test_cells import SEEDS, expected, plain_kernels
from tests.spark.test_orders import some_cells, spelled
from tests.spark.test_whole import all_tasks, packed, small
from tests.strategies import Case, Given

import plait
import plait.spark
from plait.core.join.reach import reach_of
from plait.errors import LateError, RunError
from plait.order import BEFORE_ALL
from plait.spark import formats
from plait.spark.cell import whole
from plait.spark.cell.cell import CellPlan
from plait.spark.cell.results import Keyed, merge
from plait.spark.formats import Note
from plait.spark.plan import stretches
from plait.spark.plan.stretches import Stretch, begun_at
from plait.spark.publish import at_once, collect, gather
from plait.spark.publish.target import Owner, Target

__all__ = ["plain_kernels", "small"]

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
JOIN = plait.join(A, B, on="abs(l.x - r.x) <= 1", within=(40, 25))

# --- without Spark ----------------------------------------------------------------------------------------------


STREAMS: dict[str, Any] = {"declared": True, "late": "error", "max_rows": 24}
SPANS = st.one_of(strategies.time_joins(("inner",), **STREAMS), strategies.tumbling_joins(**STREAMS))


def moments(rows: list[tuple[Any, ...]]) -> list[int]:
    found: set[int] = set()
    for _, _, body in rows:
        table = formats.rows(formats.parse(body)[1])
        found.update(() if table is None else formats.times(table).tolist())
    return sorted(found)


@settings(max_examples=examples(80))
@given(case=SPANS, seed=SEEDS)
def test_what_cells_with_stretches_of_time_give_follows_one_another(case: Case, seed: int) -> None:
    """Nobody merges anything: the first cell's results, then the second one's. A tuple goes where it may be met."""
    chance = random.Random(seed)
    one = Grid(case, (1, 1), random.Random(seed))
    assert stretches.serves(one.stages)
    times = moments([row for plan, handed in all_tasks(one, case) for row in packed(replace(plan, slab=5), handed)])
    assume(len(times) > 1)
    edges = sorted(chance.sample(range(times[0], times[-1] + 2), chance.randrange(1, 3)))
    grid = Grid(case, begun_at(edges, reach_of(case.query.window), 4), random.Random(seed))
    rows = []
    for pack, handed in all_tasks(grid, case):
        rows += packed(replace(pack, slab=chance.choice((1, 2, 5))), handed)
    chance.shuffle(rows)
    rows.sort(key=lambda row: (grid.layout.keys.index(row[0]), row[1]))
    slabs = pa.Table.from_pylist(
        [dict(zip(formats.SLAB_ROWS.names, row, strict=True)) for row in rows], schema=formats.SLAB_ROWS
    )

    def given_by(plan: CellPlan) -> list[Any]:
        given: list[Any] = []

        def give(cell: whole.WholeCell, results: Any) -> Iterator[pa.RecordBatch]:
            given.extend(results)
            yield from ()

        assert not list(whole.in_turn(plan, give)(iter(slabs.to_batches())))
        return given

    plan = grid.stages[0].plan
    tables = [some.table().cast(grid.schema) for some in given_by(plan)]
    got = pa.concat_tables([grid.schema.empty_table(), *tables])
    found = got.column(formats.KEY).to_pylist()
    assert found == sorted(found)
    assert_same(got.drop_columns([formats.KEY]), expected(case))
    spared = given_by(replace(plan, keyed=False))
    assert all(isinstance(some, Keyed) for some in spared)
    assert_same(pa.concat_tables([plan.bound.schema.empty_table(), *(some.columns for some in spared)]), expected(case))


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), slices=st.integers(1, 3), held=st.integers(1, 40), body=st.integers(1, 9))
def test_cells_are_merged_as_they_come(seed: int, slices: int, held: int, body: int) -> None:
    """However few results a task holds, however few a body has: in order, and nothing is given out before all of it is here."""
    chance = random.Random(seed)
    cells = some_cells(chance)
    cut = sorted(chance.randrange(8) for _ in range(slices - 1))
    rows: list[tuple[int, int, int, int, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_once, "HELD", held)
        patch.setattr(at_once, "CUT", body)
        for number, cell in enumerate(cells):
            steps = sorted({0, cell.rows, *(chance.randrange(cell.rows + 1) for _ in range(2))})
            pieces = [cell.part(begin, end) for begin, end in itertools.pairwise(steps)]
            given = at_once._cut(cut, tuple(range(slices)))(Told(number), iter(pieces))
            rows += [tuple(row.values()) for batch in given for row in batch.to_pylist()]
        assert [row[-2:] for row in rows if row[0] == -1] == [(formats.PROGRESS, b"told")] * 4
        found: list[bytes] = []
        for slice in range(slices):
            own = sorted((*row[:4], row[5]) for row in rows if row[0] == slice)
            for some in at_once._in_order((n, at, formats.RESULTS, pa.py_buffer(b)) for n, at, _, _, b in own):
                found += spelled(some)
    assert found == spelled(merge(cells))


class Told:
    """What is asked of a cell when its results are out."""

    def __init__(self, cell: int) -> None:
        self.cell = cell

    def for_user(self) -> list[tuple[int, bytes]]:
        return [(formats.PROGRESS, b"told")]


def test_where_to_cut() -> None:
    """Tuples of one rate: cells have as much to do each, the first a longer stretch, since its window is empty at first."""
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int32())])
    given = tuple(Given(each, schema, {None: []}, (), None, [], None) for each in (A, B))
    (stage,) = Grid(Case(JOIN, given, None), (4, 1), random.Random(1)).stages
    even = [[Stretch(0, 999, 1000)], [Stretch(0, 499, 500), Stretch(500, 999, 500)]]
    layout = stretches.laid_out(stage, even, 4, 4)
    assert layout is not None
    lengths = np.diff([0, *layout.begins[1:], 1000])
    assert lengths[0] > max(lengths[1:])
    assert max(lengths[1:]) < 1.2 * min(lengths[1:])
    assert layout.since == tuple((BEFORE_ALL, *(at - back for at in layout.begins[1:])) for back in (25, 40))
    assert stretches.laid_out(stage, [[Stretch(5, 5, 9)], [Stretch(5, 5, 9)]], 4, 4) is None, "one moment"
    assert stretches.laid_out(stage, [[], []], 4, 4) is None, "no tuple"
    short = [[Stretch(0, 20, 1000)], [Stretch(0, 20, 1000)]]
    assert stretches.laid_out(stage, short, 4, 4) is None, "all tuples would go to nearly all cells"


# --- kills ------------------------------------------------------------------------------------------------------


def publish(folder: Path) -> None:
    """A batch run, but for Spark: its tasks write their parts, one of them twice."""
    owner = Owner.of_batch("a query")
    target = Target(folder, "results", "parquet, a folder a batch")
    target.check(owner)
    target.claim(owner)
    publisher = collect._Publisher(None, owner, target, "parquet", None, False, "strict", True, None)
    cells = some_cells(random.Random(4))
    with publisher._written_by_tasks(0) as place:
        (place / ".part-00001.parquet.1234.tmp").write_text("of an attempt that was killed")
        told = [gather.written(iter([cell]), str(place), part, "parquet", False) for part, cell in enumerate(cells)]
        assert told[0] == gather.written(
            iter([cells[0].part(0, 5), cells[0].part(5, cells[0].rows)]), str(place), 0, "parquet", False
        )
        told.append(gather.written(iter(()), str(place), 4, "parquet", False))
        assert collect._as_told(place, told) == sum(cell.rows for cell in cells)


def seen(folder: Path) -> dict[str, bytes]:
    """What a reader of the folder sees."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*.parquet"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }


def test_whenever_it_is_killed_all_is_there_or_nothing(tmp_path: Path) -> None:
    publish(tmp_path / "whole")
    whole = seen(tmp_path / "whole")
    assert list(whole) == [f"batch-{0:012d}/part-{part:05d}.parquet" for part in range(4)]
    ends = []
    for step in itertools.count():
        folder = tmp_path / f"killed at {step}"
        died = killed_at(step, folder, lambda folder=folder: publish(folder))
        found = seen(folder)
        assert found in ({}, whole)
        ends.append(bool(found))
        if found:
            with pytest.raises(
                RunError, match=r"holds other rows than those of this batch run\. A batch run has written it"
            ):
                publish(folder)
        else:
            publish(folder)
        assert seen(folder) == whole
        assert [p.name for p in folder.rglob(".*") if p.name != Note.NAME] == [], (
            "nothing is left under a temporary name"
        )
        if not died:
            break
    assert ends == sorted(ends)
    assert ends.count(False) > 10


def publish_both(folder: Path, run: str = "one") -> None:
    """The same for a run that drops rows of two streams: its own, as tasks of another run might drop others."""
    query = "a query"
    owner = Owner.of_batch(query)
    results = Target(folder / "out", "results", "parquet, a folder a batch")
    late = Target(folder / "late", "dropped rows", "parquet", True, "The folder of dropped rows", results)
    for target in (results, late):
        target.check(owner)
    for target in (results, late):
        target.claim(owner)
    publisher = collect._Publisher(None, owner, results, "parquet", late, False, "strict", True, None)
    with publisher._written_by_tasks(0) as place:
        gather.written(iter(some_cells(random.Random(4))[:1]), str(place), 0, "parquet", False)
        heads = [formats.LateRows(name, cell) for name, cell in (("a", 0), ("b", 1), (f"of {run}", 2))]
        publisher._write_late([pa.py_buffer(formats.body(head, pa.table({"x": [1, 2]}))) for head in heads], 0)


def test_whenever_it_is_killed_the_next_run_publishes_and_has_its_own_dropped_rows(tmp_path: Path) -> None:
    """At each change of both folders. The next run drops rows of another stream, so that what is left of the first one shows."""
    publish_both(tmp_path / "whole", "two")
    whole = seen(tmp_path / "whole")
    assert sorted(path.split("/")[0] for path in whole) == ["late"] * 3 + ["out"]
    left, published = 0, 0
    for step in itertools.count():
        folder = tmp_path / f"killed at {step}"
        folder.mkdir()
        died = killed_at(step, folder, lambda folder=folder: publish_both(folder))
        found = seen(folder)
        left += any(path.startswith("late") for path in found)
        if any(path.startswith("out") for path in found):
            assert len(found) == 4, "who sees results sees what was dropped for them"
            with pytest.raises(RunError, match=r"holds other rows than those of this batch run"):
                publish_both(folder, "two")
            assert seen(folder) == found
            published += 1
        else:
            # The next one is killed, too, anywhere; the one after it is not.
            killed_at(step % 7, folder, lambda folder=folder: publish_both(folder))
            if not any(path.startswith("out") for path in seen(folder)):
                publish_both(folder, "two")
            assert seen(folder) == whole
        if not died:
            break
    assert left > 5
    assert 1 <= published < left


def test_dropped_rows_of_others_stay(tmp_path: Path) -> None:
    """Of a run with other results, of one that has published, of no run at all: none of them is the next run's to remove."""

    def targets(out: str, late: str) -> list[Target]:
        results = Target(tmp_path / out, "results", "parquet, a folder a batch")
        return [
            results,
            Target(tmp_path / late, "dropped rows", "parquet", True, "The folder of dropped rows", results),
        ]

    def begun(out: str, late: str) -> Owner:
        owner = Owner.of_batch("a query")
        for target in targets(out, late):
            target.check(owner)
        for target in targets(out, late):
            target.claim(owner)
        return owner

    def drops(owner: Owner, out: str, late: str) -> None:
        with targets(out, late)[1].held(owner):
            pq.write_table(pa.table({"x": [1]}), tmp_path / late / "part-0.parquet")

    drops(begun("out", "late"), "out", "late")
    with pytest.raises(RunError, match=r"holds other rows than those of this batch run. A batch run has written it"):
        begun("elsewhere", "late")
    # A run that lives loses both folders at once: it can't publish without what it has dropped.
    alive = begun("out", "late")
    drops(alive, "out", "late")
    begun("out", "late")
    assert not list((tmp_path / "late").glob("*.parquet"))
    for target in targets("out", "late"):
        with pytest.raises(RunError, match="is no longer that of this batch run"), target.held(alive):
            pass
    drops(begun("out", "late"), "out", "late")
    (tmp_path / "out" / "batch-000000000000").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "out" / "batch-000000000000" / "part-0.parquet")
    with pytest.raises(RunError, match=r"The folder of results .* holds other rows"):
        begun("out", "late")
    (tmp_path / "anybody").mkdir()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "anybody" / "mine.parquet")
    with pytest.raises(RunError, match=r"Its 'mine\.parquet' was published from no checkpoint"):
        begun("new", "anybody")


def test_of_two_runs_with_one_folder_one_publishes(tmp_path: Path) -> None:
    target, claims = Target(tmp_path / "out", "results", "parquet, a folder a batch"), []
    for _ in range(2):
        owner = Owner.of_batch("a query")
        target.check(owner)
        target.claim(owner)
        claims.append(collect._Publisher(None, owner, target, "parquet", None, False, "strict", True, None))
    with (
        pytest.raises(RunError, match=r"no longer that of this batch run\. A batch run has taken it"),
        claims[0]._written_by_tasks(0),
    ):
        pass
    with claims[1]._written_by_tasks(0) as place:
        (place / "part-00000.parquet").write_text("rows")
        with pytest.raises(RunError, match=r"has written 'part-00001\.parquet', and it is not in"):
            collect._as_told(place, [formats.body(formats.Written(3, "part-00001.parquet"))])
        (place / "part-00000.parquet").write_text("rows")
    assert list(seen(tmp_path / "out")) == [f"batch-{0:012d}/part-00000.parquet"]


# --- with Spark -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    """Two streams, in two files each; a few tuples of the first are late."""
    folder, chance, tables = tmp_path_factory.mktemp("at once"), random.Random(12), {}
    for name in "ab":
        times = sorted(chance.randrange(900) for _ in range(300))
        values = [chance.choice((None, *range(9))) for _ in times]
        tables[name] = pa.table({"ts": pa.array(times, pa.int64()), "x": pa.array(values, pa.int32())})
        feeds.write_files(folder / name, tables[name], [140])
    return folder, tables


def frames(spark: Any, folder: Path, tables: dict[str, pa.Table]) -> dict[str, Any]:
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    return {n: feeds.frame(spark, folder / n, feeds.spark_schema(tables["a"]), streaming=False) for n in "ab"}


WAYS = {
    "by range": ({"cells": 3}, "strict"),
    "merged": ({"layout": (3, 1)}, "strict"),
    "as they come": ({"layout": (3, 1)}, "none"),
}


@pytest.mark.spark
def test_a_batch_is_written_in_order(spark: Any, data: Any, tmp_path: Path) -> None:
    folder, tables = data
    expected = JOIN.reference(tables)
    for way, (options, order) in WAYS.items():
        df = JOIN.on_spark(frames(spark, folder, tables), **options)
        reports: list[Any] = []
        told = plait.spark.write_ordered(df, tmp_path / way, order=order, keep_key=True, report=reports.append)
        got = feeds.published(tmp_path / way)
        assert reports == [told]
        assert (told.results, told.run.rows, len(told.run.cells)) == (got.num_rows, 600, 3)
        assert len(seen(tmp_path / way)) == 3, "each task has written a part"
        key = got.column(formats.KEY).to_pylist()
        assert (key == sorted(key)) == (order == "strict")
        feeds.assert_identical(got.sort_by(formats.KEY), expected)
    with pytest.raises(RunError, match="holds other rows than those of this batch run"):
        plait.spark.write_ordered(JOIN.on_spark(frames(spark, folder, tables)), tmp_path / "merged")


@pytest.mark.spark
def test_other_queries_and_rows_that_are_dropped(spark: Any, data: Any, tmp_path: Path) -> None:
    """An operator of operators, rows that Spark reads, a stream of which some are late; as JSON lines, by the plan of Parquet."""
    folder, tables = data
    late = plait.stream("a", unit="us", late="drop")
    shuffled = tables["a"].take(pa.array([*range(1, 290), 0, *range(290, 300)]))
    feeds.write_files(tmp_path / "data" / "a", shuffled, [])
    given = frames(spark, folder, tables)
    given["a"] = feeds.frame(spark, tmp_path / "data" / "a", feeds.spark_schema(shuffled), streaming=False)
    query = plait.aggregate(
        plait.join(late, B, on="l.x = r.x", within=20, how="left"), size="30us", by="a_x", compute={"n": plait.count()}
    )
    with pytest.raises(LateError, match="Stream 'a'"):
        plait.spark.write_ordered(JOIN.on_spark(given), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [Note.NAME], (
        "a task has failed, and nothing is there"
    )
    df = query.on_spark(given, read="rows", cells=2)
    told = plait.spark.write_ordered(df, tmp_path / "out", late=tmp_path / "late", format="jsonl")
    assert told.late == 1
    (dropped,) = (tmp_path / "late" / "a").iterdir()
    assert json.loads(dropped.read_text()) == tables["a"].to_pylist()[0]
    rows = [
        json.loads(line) for part in sorted(tmp_path.glob("out/*/*.jsonl")) for line in part.read_text().splitlines()
    ]
    assert rows == query.reference({"a": shuffled, "b": tables["b"]}).to_pylist()


@pytest.mark.spark
@pytest.mark.again
def test_a_run_that_is_killed_when_its_dropped_rows_are_out(spark: Any, data: Any, tmp_path: Path) -> None:
    """The driver gets SIGKILL between the folder of dropped rows and that of results; the same run is then started again."""
    _, tables = data
    tables = tables | {"a": tables["a"].take(pa.array([*range(3, 290), 2, 0, 1, *range(290, 300)]))}
    folder = tmp_path / "data"
    for name, table in tables.items():
        feeds.write_files(folder / name, table, [140])
    command = [sys.executable, killed_batch.__file__, str(folder), str(tmp_path), "killed"]
    ended = subprocess.run(command, start_new_session=True, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-3000:]
    assert len([path for path in seen(tmp_path) if path.startswith("late")]) == 1
    assert not [path for path in seen(tmp_path) if path.startswith("out")]
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    told = killed_batch.run(spark, folder, tmp_path)
    with pytest.warns(UserWarning, match="late tuple"):
        expected = killed_batch.QUERY.reference(tables)
    feeds.assert_identical(feeds.published(tmp_path / "out"), expected)
    assert told.late == feeds.published(tmp_path / "late").num_rows == 3
