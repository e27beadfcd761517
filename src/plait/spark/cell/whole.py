"""A cell in a batch run: all of its input is there, and it is taken in the order of time, a slab at a time.

Nothing is stored and nothing is published by batches. Tasks that pack cut their tuples into slabs (`formats.slabs`), Spark
brings each cell's rows to one task, sorts them by the least ts that each has (`at`), spilling to disk where they are many, and
the task reads them one after the other. Punctuation stands before all of them, so the sources are judged before the first tuple
is looked at. **The invariant**: when the next row has `at`, every tuple below that has come. So `at` serves as a frontier:
what lies below it is released, and its results are out, before more is read. In memory are the window, some slabs, and the
results of one step, however long the input is; but rows that are dropped, which are told at the end, all of them.

A cell may have a stretch of time (`plan.stretches`): tuples before it only enter the window, as where a state is replayed, and
give no result. From there on it works as any other.

Where it runs: in a task of Spark's behind a shuffle by cell, through `mapInArrow`; cells of one partition one after the other.
What comes out is the caller's to say (`Giving`): result rows as the user has them, packed rows for the next operator, (kind,
body) where rows were dropped and have to be told, or a file that the task writes itself (`publish.at_once`). Operators with
timers end in another way (`end_of_input`): they have `cell.whole_cell`. Held by tests/spark/test_whole.py, and by every batch of
tests/spark and tests/everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import pyarrow as pa

from plait.core.metrics import Counts, total
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.spark import formats
from plait.spark.cell import state
from plait.spark.cell.arrive import Arriving, sorted_out
from plait.spark.cell.cell import CellPlan, known_of
from plait.spark.cell.join import LiveJoin
from plait.spark.cell.limits import check_held
from plait.spark.cell.results import Keyed, Results, shown
from plait.spark.cell.telling import reported, told
from plait.spark.formats import Manifest

#: Tuples of a packed body; and of one step, which grows and shrinks between these so that it makes some STEP results.
SLAB = 1 << 15
LEAST, MOST, STEP = 1 << 12, 1 << 18, 1 << 19

#: A cell's key, the least ts of the rows in a body, and the body.
Row = tuple[int, int, Any]

Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: What is made of a cell's results: they come as they become ready, and what the cell tells beside them when they are out.
Giving = Callable[["WholeCell", Iterator[Results | Keyed]], Iterator[pa.RecordBatch]]


def in_turn(plan: CellPlan, giving: Giving | None = None) -> Mapper:
    """For `mapInArrow` over rows sorted by cell and `at`. `giving`: what is made of each cell's results; None: packed rows."""
    give = giving or (_output if plan.onward is None else _onward)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for key, packed in groupby(_rows(batches), key=lambda row: row[0]):
            cell = WholeCell(plan, plan.layout.keys.index(key))
            yield from give(cell, cell.results(packed))

    return run


def as_rows(schema: pa.Schema) -> Giving:
    """Results as rows with these columns, and nothing else."""

    def give(cell: WholeCell, results: Iterator[Results | Keyed]) -> Iterator[pa.RecordBatch]:
        for out in results:
            yield from shown(out, schema).to_batches()

    return give


def _onward(cell: WholeCell, results: Iterator[Results | Keyed]) -> Iterator[pa.RecordBatch]:
    """To the next operator's cells; what is for the user goes along, when all results are out."""
    assert cell.plan.onward is not None
    for out in results:
        yield from record(cell.plan.onward.slabs(out, SLAB), formats.SLAB_ROWS)
    passed = cell.plan.onward.passed(cell.for_user())
    yield from record([(to, BEFORE_ALL, body) for to, body in passed], formats.SLAB_ROWS)


def _output(cell: WholeCell, results: Iterator[Results | Keyed]) -> Iterator[pa.RecordBatch]:
    """For the user: results, then what is told beside them."""
    for out in results:
        yield from record([(formats.RESULTS, body) for body in out.bodies()], formats.OUTPUT_ROWS)
    yield from record(cell.for_user(), formats.OUTPUT_ROWS)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        bodies = batch.column(2)
        keys, at = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        for place in range(batch.num_rows):
            yield keys[place], at[place], bodies[place].as_buffer()


def record(rows: list[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as one batch; none if there are none."""
    if rows:
        yield pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=schema)


class WholeCell:
    """One cell from its first row to its last.

    Attributes:
        begin: Where its stretch of time begins, until time has passed there: what comes before only enters. BEFORE_ALL: there is
            no such stretch, or it has begun.
        given: Results so far, if they are the query's; and `made`, whosever they are.
    """

    def __init__(self, plan: CellPlan, cell: int) -> None:
        self.plan, self.cell = plan, cell
        self.known = known_of(plan, Manifest(plan.fingerprint, operator=plan.number))
        self.contents = state.empty(plan.bound.bare, plan.layout, cell, index=plan.index)
        if not plan.keyed:
            assert isinstance(self.contents, LiveJoin)
            self.contents.spare_keys()
        self.arriving = Arriving(self.known, plan.layout, cell, plan.counts)
        self.passed: list[tuple[int, bytes]] = []  # for the user, from the operators before this one
        self.given = self.made = 0
        self.begin = plan.layout.begins[cell] if plan.layout.begins else BEFORE_ALL
        self._step = SLAB

    def results(self, rows: Iterator[Row]) -> Iterator[Results | Keyed]:
        """Results in result order, as they become ready."""
        taken = 0
        for frontier, body in self._with_next(rows):
            taken += self.arriving.take(sorted_out([body]))
            if taken >= self._step and frontier < AFTER_ALL:
                yield from self._advance(frontier)
                taken = 0
        yield from self._advance(AFTER_ALL)

    def _with_next(self, rows: Iterator[Row]) -> Iterator[tuple[int, Any]]:
        """Punctuation is heard; then each body with the `at` of the next one, by which time may pass to there."""
        first = next(rows, None)
        heard = []
        while first is not None and first[1] == BEFORE_ALL:
            heard.append(first[2])
            first = next(rows, None)
        found = sorted_out(heard)
        self.arriving.hear(found)
        self.arriving.take(found)  # what comes before its time only waits
        self.passed += found.passed
        self.known.end()
        self.contents.last_ts = self.known.last_ts()
        while first is not None:
            second = next(rows, None)
            yield AFTER_ALL if second is None else second[1], first[2]
            first = second

    def _advance(self, frontier: int) -> Iterator[Results | Keyed]:
        """Time passes to the frontier. The next step has as many tuples as make about STEP results."""
        contents = self.contents
        tables = {i: contents.prepared(i, table) for i, table in self.arriving.ready().items() if table.num_rows}
        if self.plan.max_window is not None:
            rows = {i: own + (tables[i].num_rows if i in tables else 0) for i, own in contents.rows_held.items()}
            check_held(self.plan, self.cell, rows, sum(table.num_rows for table in tables.values()))
        if self.begin > BEFORE_ALL:
            contents.replay(tables, min(frontier, self.begin))
            if frontier <= self.begin:
                return
            self.begin, tables = BEFORE_ALL, {}
        out = contents.advance(tables, frontier)
        if self.plan.onward is None and self.plan.bound.steps:
            out = out.changed(self.plan.bound.steps)
        if out.rows < STEP // 2:
            self._step = min(MOST, self._step * 2)
        elif out.rows > STEP:
            self._step = max(LEAST, self._step // 2)
        self.made += out.rows
        self.given += out.rows if self.plan.onward is None else 0
        if out.rows:
            yield out

    def for_user(self) -> list[tuple[int, bytes]]:
        """What is told beside results at the end: rows dropped, this cell's report, what came from operators before."""
        done = Counts(batches=1, results=self.given, made=self.made)
        counts = total((self.arriving.counted(), self.contents.counts, done))
        report = reported(self.plan, self.cell, self.known, self.contents, AFTER_ALL, counts=counts, batch=counts,
                          by_source=self.arriving.by_source)  # fmt: skip
        return [*told(self.cell, self.arriving.dropped(), report), *self.passed]
