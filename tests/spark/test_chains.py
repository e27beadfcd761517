"""Aggregates and chains of operators without Spark, as `test_cells` has it for joins; and what aggregates keep as state."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import examples
from tests.reference.dags import dags, operator_over_join
from tests.reference.judge import on_reference
from tests.reference.programs import PROGRAMS
from tests.spark.grid import Batch, Grid, at_places, batches, deliver, drain
from tests.spark.test_cells import SEEDS, judge, plain_kernels
from tests.strategies import Case, Given, distinct

import plait
from plait import LateError
from plait.query.aggregate import RESERVED
from plait.query.bind import bind
from plait.query.condition.types import column_type
from plait.spark.cell import cell

__all__ = ["plain_kernels"]  # a fixture that holds for all of this module

INSIDE = {"declared": True, "max_rows": 6}


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """An aggregate or a dedup of a join, an aggregate or a dedup, or such a query joined with itself, and its reference."""
    case = draw(
        st.one_of(
            strategies.time_joins(**INSIDE),
            strategies.span_aggregates(functions=["n", "first_x", "last_s"], **INSIDE),
            strategies.dedups(**INSIDE),
        )
    )
    inner = case.query.named("inner")
    schema = bind(inner, case.schemas).schema
    columns = [f.name for f in schema if f.name not in RESERVED and column_type(f.type) not in (None, "null")]
    column = draw(st.sampled_from(columns))
    kind = draw(st.sampled_from(("panes", "tuples", "count", "inner", "left", "right", "full", "dedup")))
    query: Any
    if kind in ("inner", "left", "right", "full"):
        within = (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
        query = plait.join(inner, inner, on=f"l.{column} = r.{column}", within=within, how=kind)
    elif kind == "dedup":
        query = plait.dedup(inner, by=column, within=draw(st.integers(0, 3)))
    else:
        compute = {"rows": plait.count(), "first": plait.first(column), "last": plait.last(column)}
        if kind == "tuples":
            compute["all"] = plait.collect(column)
        size: Any = draw(st.integers(1, 6))
        advance: Any = draw(st.integers(1, 6))
        if kind != "count":
            size, advance = f"{size}us", f"{advance}us"
        by = draw(st.sampled_from(((), (column,), tuple(dict.fromkeys((columns[0], column))))))
        query = plait.aggregate(inner, size=size, advance=advance, by=by, compute=compute)
    made = Case(query, case.given, None)
    return Case(query, case.given, on_reference(made))


def operator_in_join(draw: Any, a: Given, b: Given, c: Given) -> tuple[Any, Any]:
    """The operator reads one of the streams, and its periodic timer goes on for as long as any of them."""
    program = draw(st.sampled_from([program for program in PROGRAMS if program.on_timer is not None]))
    query = plait.join(program.query([a.stream]).named("o"), b.stream, within=draw(st.integers(0, 2)))
    return query, on_reference(Case(query, distinct(a, b), None))


@settings(max_examples=examples(20))
@given(case=dags(shapes=(operator_over_join, operator_in_join), declared=True), seed=SEEDS)
def test_operators_in_chains_in_any_schedule_and_layout(case: Case, seed: int) -> None:
    """Timers hear of streams that their operator does not read; cells are laid out anew in mid-run."""
    chance = random.Random(seed)
    grid = Grid(case, (2, 1), chance, faults=True, workers=2)
    for batch in [*batches(grid, case, longest=3), drain()]:
        if chance.random() < 0.3:
            grid.relayout((chance.randrange(1, 4), 1))
        grid.run(batch)
    judge(grid, case)


@st.composite
def unions(draw: Any) -> Case:
    a, b = draw(strategies.pairs_of_streams(declared=True, late="error"))
    query = plait.union(a.stream.select("k", "x"), b.stream.select("k", "x"))
    made = Case(query, distinct(a, b), None)
    return Case(query, made.given, on_reference(made))


@settings(max_examples=examples(40))
@given(case=unions(), seed=SEEDS)
def test_a_union_laid_out_anew_in_mid_run_changes_nothing(case: Case, seed: int) -> None:
    """Rows that wait go to other cells by their own key: there is no column by which they would go."""
    chance = random.Random(seed)
    grid = Grid(case, (2, 1), chance, faults=True, workers=2)
    for batch in [*batches(grid, case, longest=3), drain()]:
        if chance.random() < 0.5:
            grid.relayout((chance.randrange(1, 4), 1))
        grid.run(batch)
    judge(grid, case)


@settings(max_examples=examples(40))
@given(case=chains(), seed=SEEDS)
def test_chains_under_any_schedule_with_attempts_that_come_to_nothing(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    cells = chance.choice((1, 2, 3))
    layout = (1, cells) if getattr(case.query, "how", "inner") == "right" else (cells, 1)
    grid = Grid(case, layout, chance, faults=True, workers=2)
    deliver(grid, [*batches(grid, case, events=True), drain()])
    judge(grid, case)


@settings(max_examples=examples(60))
@given(
    case=st.one_of(
        strategies.span_aggregates(declared=True),
        strategies.count_aggregates(declared=True),
        strategies.dedups(declared=True),
    ),
    seed=SEEDS,
)
def test_aggregates_and_dedups_with_attempts_that_come_to_nothing(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    grid = Grid(case, (chance.choice((1, 2, 3)), 1), chance, faults=True, workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cell, "SLACK", chance.choice((0, 256)))  # rows are few: without slack they are written anew
        deliver(grid, [*batches(grid, case, longest=3, events=True), drain()])
    judge(grid, case)


# --- state ------------------------------------------------------------------------------------------------------

S = plait.stream("s", unit="us")
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
COMPUTE = {"n": plait.count(), "sum": plait.sum("k"), "first": plait.first("k")}


def grid_of(query: Any, cells: int = 2) -> Grid:
    case = Case(query, (strategies.Given(S, SCHEMA, {0: []}, (), None, [], strategies.table(SCHEMA, [])),), None)
    return Grid(case, (cells, 1), random.Random(0))


def tasks(grid: Grid, number: int, rows: list[tuple[int, int]]) -> Iterator[Any]:
    (plan,) = grid.packs["s"]
    numbers = pa.array(range(number, number + len(rows)), pa.int64())
    yield plan, at_places(strategies.table(SCHEMA, rows), numbers)


WINDOWS: dict[str, tuple[dict[str, Any], int]] = {
    # What may be held: of 5 open panes (and some that wait to be joined) 7 groups; tuples of 50 us; of each group its last.
    "panes": ({"size": "50us", "advance": "10us", "compute": COMPUTE}, 400),
    "tuples": ({"size": "50us", "advance": "10us", "compute": {"all": plait.collect("k")}}, 700),
    "ranked": ({"size": 10, "advance": 3, "compute": COMPUTE}, 900),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_state_follows_the_open_windows(window: str) -> None:
    """Ten tuples of a group a microsecond: partial panes hold a row for a hundred, and nothing grows with the stream."""
    options, most = WINDOWS[window]
    grid = grid_of(plait.aggregate(S, by="k", **options))
    held, manifests, written = [], [], 0
    for at in range(120):
        rows = [(at + n // 70, n % 7) for n in range(70)]
        grid.run(Batch(list(tasks(grid, at * 70, rows))))
        written += sum(store.written for store in grid.stores)
        held.append(sum(store.chunk_rows for store in grid.stores))
        manifests.append(max(len(state["manifest"]) for state in grid.state))
    assert max(held[60:]) <= most * (5 if window == "tuples" else 1)
    assert max(held[90:]) <= 1.2 * max(held[30:90])
    assert max(manifests[90:]) <= 1.2 * max(manifests[30:90])  # it grows until rows are written anew
    # A row of partial panes for ten tuples; what is written anew was paid for by what was let go.
    assert written <= {"panes": 120 * 7 * 2, "tuples": 120 * 70, "ranked": 2 * 120 * 70}[window] + 600


def test_groups_that_are_not_seen_again_are_let_go_of() -> None:
    grid = grid_of(plait.aggregate(S, by="k", size="10us", compute=COMPUTE))
    held = []
    for at in range(120):
        grid.run(Batch(list(tasks(grid, at * 50, [(at, at * 50 + n) for n in range(50)]))))
        held.append(sum(store.chunk_rows for store in grid.stores))
    assert max(held[60:]) <= max(held[:60]) <= 50 * 21


def test_a_hot_key_is_one_row_a_pane_before_it_is_shuffled() -> None:
    grid = grid_of(plait.aggregate(S, by="k", size="30us", advance="10us", compute=COMPUTE))
    grid.run(Batch(list(tasks(grid, 0, [(n // 100, 1 if n % 10 else n) for n in range(4000)]))))
    assert sum(store.written for store in grid.stores) <= 4 + 400


@pytest.mark.parametrize("late", ["error", "drop"])
def test_late_rows_of_an_earlier_batch_are_found_in_partial_panes_too(late: str) -> None:
    """The least ts of a split is all there is to judge them by; where rows are dropped, tuples travel."""
    stream = plait.stream("s", unit="us", late=late, disorder=2)
    query = plait.aggregate(stream, by="k", size="10us", compute=COMPUTE)
    given_ = (strategies.Given(stream, SCHEMA, {0: []}, (), None, [], strategies.table(SCHEMA, [])),)
    grid = Grid(Case(query, given_, None), (2, 1), random.Random(0))
    grid.run(Batch(list(tasks(grid, 0, [(1, 1), (20, 2), (18, 1)]))))
    late_rows = Batch(list(tasks(grid, 3, [(19, 1), (17, 3), (30, 1)])))
    if late == "error":
        with pytest.raises(LateError, match="ts 17 is late, 3 us behind 20"):
            grid.run(late_rows)
        return
    grid.run(late_rows)
    grid.run(drain())
    assert grid.late["s"] == [{"ts": 17, "k": 3}]
    with pytest.warns(UserWarning, match="1 late"):
        expected = query.reference({"s": pa.table({"ts": [1, 20, 18, 19, 17, 30], "k": [1, 2, 1, 1, 3, 1]})})
    assert grid.table.drop_columns(["_plait_key"]).equals(expected)


def test_a_late_tuple_that_no_cell_gets_is_late() -> None:
    """Splits tell it, in every cell: `route` sends the tuple nowhere, and the reference refuses it all the same."""
    query = plait.operator(
        S, buckets=2, route=lambda t: None if t.k == 3 else t.k, state=list, process=lambda state, t: [t.k],
        output={"k": "int64"},
    )  # fmt: skip
    grid = grid_of(query)
    grid.run(Batch(list(tasks(grid, 0, [(20, 1)]))))
    with pytest.raises(LateError, match="ts 5 is late, 15 us behind 20"):
        grid.run(Batch(list(tasks(grid, 1, [(5, 3)]))))
    with pytest.raises(LateError, match="ts 5 is late"):
        query.reference({"s": pa.table({"ts": [20, 5], "k": [1, 3]})})
