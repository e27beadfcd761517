"""Batches that tasks write, and that are published at once: cells with stretches of time, merging, and what a kill leaves."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests import strategies
from tests.examples import examples
from tests.reference.judge import assert_same
from tests.spark.grid import Grid
from tests.spark.test_cells import SEEDS, expected, plain_kernels
from tests.spark.test_whole import all_tasks, packed, small
from tests.strategies import Case

from plait.core.join.reach import reach_of
from plait.spark import formats
from plait.spark.cell import whole
from plait.spark.plan import ranges
from plait.spark.plan.ranges import begun_at

__all__ = ["plain_kernels", "small"]

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
    assert ranges.serves(one.stages)
    times = moments([row for plan, handed in all_tasks(one, case) for row in packed(replace(plan, slab=5), handed)])
    assume(len(times) > 1)
    edges = sorted(chance.sample(range(times[0], times[-1] + 2), chance.randrange(1, 3)))
    grid = Grid(case, begun_at(edges, reach_of(case.query.window), 4), random.Random(seed))
    given: list[list[Any]] = []
    rows = []
    for plan, handed in all_tasks(grid, case):
        rows += packed(replace(plan, slab=chance.choice((1, 2, 5))), handed)
    chance.shuffle(rows)
    rows.sort(key=lambda row: (grid.layout.keys.index(row[0]), row[1]))
    slabs = pa.Table.from_pylist(
        [dict(zip(formats.SLAB_ROWS.names, row, strict=True)) for row in rows], schema=formats.SLAB_ROWS
    )

    def give(cell: whole.WholeCell, results: Any) -> Any:
        given.append(list(results))
        yield from ()

    assert not list(whole.in_turn(grid.stages[0].plan, give)(iter(slabs.to_batches())))
    tables = [some.table().cast(grid.schema) for cell in given for some in cell]
    got = pa.concat_tables([grid.schema.empty_table(), *tables])
    found = got.column(formats.KEY).to_pylist()
    assert found == sorted(found)
    assert_same(got.drop_columns([formats.KEY]), expected(case))
