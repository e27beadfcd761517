"""Cells of a batch run without Spark: rows sorted by time, in slabs of any size, and little of them held at once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.dags import dags
from tests.spark.grid import Grid, at_places, batches, closed
from tests.spark.test_cells import SEEDS, cases, judge, layout_of, plain_kernels
from tests.spark.test_chains import chains
from tests.strategies import Case, Given, table

import plait
from plait.order import BEFORE_ALL
from plait.spark import formats
from plait.spark.cell import whole
from plait.spark.cell.cell import closes, whole_cell
from plait.spark.cell.results import merge, read
from plait.spark.pack.pack import PackPlan, pack

__all__ = ["plain_kernels"]

Tasks = list[tuple[PackPlan, pa.Table]]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SLAB": 3, "LEAST": 1, "MOST": 4, "STEP": 4}.items():
        monkeypatch.setattr(whole, name, value)


def run(grid: Grid, tasks: Tasks, chance: random.Random) -> None:
    """What Spark does: each operator's rows are brought to its cells, sorted, and handed over in batches of any size."""
    out: dict[int, list[tuple[Any, ...]]] = {}
    for stage in reversed(grid.stages):
        plan = stage.plan
        rows = [row for number in plan.upstreams for row in out[number]]
        for own, now in zip(grid.first[plan.number], (each for _, each in stage.packs), strict=True):
            for task, handed in tasks:
                if task is own:
                    rows += packed(replace(now, slab=chance.choice((1, 2, 5))), handed)
        chance.shuffle(rows)  # rows of one `at` come in any order
        rows.sort(key=lambda row: (row[0], row[1]))
        out[plan.number] = list(given_out(plan, rows, chance))
    found = []
    for kind, body in out[0]:
        if kind == formats.RESULTS:
            found.append(read(body))
        elif kind == formats.LATE:
            head, rest = formats.parse(body)
            grid.late[head.stream] += formats.table(rest).to_pylist()
        else:
            report = formats.parse(body)[0]
            grid.latest[report.operator, report.cell] = report
    grid.results = [merge(found).table().cast(grid.schema)] if found else []


def packed(plan: PackPlan, rows: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in pack(plan, iter(rows.to_batches())) for row in batch.to_pylist()]


def given_out(plan: Any, rows: list[tuple[Any, ...]], chance: random.Random) -> Iterator[tuple[Any, ...]]:
    if closes(plan.bound.node):  # these have all at once
        found: list[tuple[int, bytes]] = []
        for key in dict.fromkeys(row[0] for row in rows):
            own = [(cell, body) for cell, _, body in rows if cell == key]
            at_once = pa.Table.from_pylist([{"cell": cell, "body": body} for cell, body in own])
            found += [tuple(row.values()) for row in whole_cell(plan)(at_once).to_pylist()]
        done = closed(found, plan.bound, plan.onward)
        yield from ([(to, BEFORE_ALL, body) for to, body in done] if plan.onward is not None else done)
        return
    sorted_rows = [dict(zip(formats.SLAB_ROWS.names, row, strict=True)) for row in rows]
    slabs = pa.Table.from_pylist(sorted_rows, schema=formats.SLAB_ROWS)
    for batch in whole.in_turn(plan)(iter(slabs.to_batches(max_chunksize=chance.choice((1, 3, 100))))):
        yield from (tuple(row.values()) for row in batch.to_pylist())


def all_tasks(grid: Grid, case: Case) -> Tasks:
    return [task for batch in batches(grid, case) for task in batch.tasks]


@settings(max_examples=examples(120))
@given(case=cases(declared=True), seed=SEEDS)
def test_slabs_of_any_size_give_the_references_rows(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, layout_of(case, chance), chance)
    run(grid, all_tasks(grid, case), chance)
    if grid.latest:  # without any row there is no cell
        judge(grid, case)


@settings(max_examples=examples(60))
@given(case=st.one_of(chains(), dags(declared=True)), seed=SEEDS)
def test_chains(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, "auto", chance)
    run(grid, all_tasks(grid, case), chance)
    if grid.latest:  # without any row there is no cell
        judge(grid, case)


A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
LONG = {
    "join": plait.join(A, B, on="l.k = r.k", within=3),
    "left": plait.join(A, B, on="l.k = r.k", within=3, how="left"),
    "asof": plait.asof(A, B, by="k", within=3),
    "panes": plait.aggregate(A, size=6, advance=2, by="k", compute={"n": plait.count()}),
    "dedup": plait.dedup(A, by="k", within=3),
}


@pytest.mark.parametrize("name", LONG)
def test_what_is_held_does_not_grow_with_the_input(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that wait, and steps: as many at the end as in the beginning, however long the input is."""
    waits: list[int] = []
    steps: list[int] = []
    advance = whole.WholeCell._advance

    def noted(cell: Any, frontier: int) -> Any:
        yield from advance(cell, frontier)
        waits.append(cell.contents.pending_rows)
        steps.append(sum(cell.contents.released))

    monkeypatch.setattr(whole.WholeCell, "_advance", noted)
    query, n = LONG[name], 240
    rows = [(k, k % 3) for k in range(n)]
    data = {stream: table(SCHEMA, rows) for stream in query.streams()}
    given = tuple(Given(each, SCHEMA, {None: rows}, (), None, [], None) for each in query.streams().values())
    grid = Grid(Case(query, given, None), (1, 1), random.Random(1))
    tasks = [(plan, at_places(data[plan.stream.name], pa.array(range(n)))) for plan in grid.first[0]]
    run(grid, tasks, random.Random(2))
    assert grid.table.drop_columns([formats.KEY]).to_pylist() == query.reference(data).to_pylist()
    assert len(steps) > n // 10
    assert max(waits) < 20
    assert max(steps[:-1]) < 30
