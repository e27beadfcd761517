"""A dedup in a cell: of each key, when the last tuple that was kept came (`core.dedup`).

Where it runs: in a cell's task, once a batch. All tuples of a key are in one cell, by a hash of the key columns.

Whether a tuple is kept depends on the one kept before it, and that on the one before: a part of a key's tuples does not tell
it. So tuples that were judged stay in the state with all that came after them, and nothing goes by its age alone. Now and then
what matters is written anew (`compacted`): of each key the last tuple that was kept, marked as such (the column KEPT), if it is
young enough to drop another, and what waits for the frontier. It takes as many rows that don't matter, so state follows the
keys of one span. After a restart the marked rows are remembered as kept, and those after them are judged again, as they were
before.

Held by tests/spark/test_cells.py and tests/spark/test_dedup.py, which compare with the definition and the reference.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.dedup import LastKept
from plait.core.metrics import Counts
from plait.encodings import as_array
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import Bound, passed_on
from plait.query.dedup import Dedup
from plait.spark import formats
from plait.spark.cell.cell import Live, crowded
from plait.spark.cell.results import Keyed
from plait.spark.formats import KEPT, Chunk, Step, rows_schema, times


class LiveDedup(Live):
    """A dedup's contents of one cell.

    Attributes:
        last: When the last tuple of each key was kept.
        kept: Tuples that were kept, marked, of which some no longer matter.
    """

    def __init__(self, bound: Bound) -> None:
        node, (source,) = bound.node, bound.inputs
        assert isinstance(node, Dedup)
        super().__init__(bound, [pa.schema([*rows_schema(source.schema), pa.field(KEPT, pa.bool_())])])
        self.last, self._shown = LastKept(node, source.schema), passed_on(source)
        self.kept: list[pa.Table] = []
        self._alive = 0  # of the rows in `kept`, those that mattered when it was last looked
        self._frontier = BEFORE_ALL

    @property
    def counts(self) -> Counts:
        return self.last.counts

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        table = table.select(self.schemas[0].names[:-1])
        return table.append_column(KEPT, pa.nulls(table.num_rows, pa.bool_()))

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        """Judge what has become ready; give those that are kept.

        Marked rows come only in a replay after rows were written anew, and then first: they lay below the frontier then.
        """
        rows, self._frontier = ready[0], frontier
        marked = rows.num_rows - rows.column(KEPT).null_count
        again, rows = rows.slice(0, marked), rows.slice(marked)
        self.last.remember(times(again), again)
        at = np.flatnonzero(self.last.judged_rows(times(rows), rows))
        found = rows.take(pa.array(at))
        mark = pa.array(np.ones(len(at), bool))
        self.kept += [again, found.set_column(len(self.schemas[0]) - 1, self.schemas[0].field(KEPT), mark)]
        if crowded(sum(table.num_rows for table in self.kept), self._alive):
            self._let_go()
        return self._results(found if results else found.slice(0, 0))

    def _results(self, rows: pa.Table) -> Keyed:
        columns = [pa.array(times(rows)), *(rows.column(at) for at in self._shown)]
        arrays = [as_array(column, field.type) for column, field in zip(columns, self.bound.schema, strict=True)]
        own = as_array(rows.column(formats.KEY), pa.binary())
        return Keyed(pa.Table.from_arrays(arrays, schema=self.bound.schema), (), keys.nest(own, n=len(own)))

    def _let_go(self) -> None:
        """Drop rows of `kept` that are not the last of their key, or are too old to drop another."""
        rows = pa.concat_tables(self.kept).combine_chunks()
        ts = times(rows)
        # Of one key two that are kept never have one ts.
        needed = (ts == self.last.last_of(rows)) & (ts >= max(self._frontier - self.last.within_us, BEFORE_ALL))
        self.kept = [rows.filter(pa.array(needed))]
        self._alive = self.kept[0].num_rows

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """The rows that matter, written anew, if most of those held do not."""
        if not crowded(held, self._alive + self.pending_rows):
            return None
        if self.kept:
            self._let_go()
        if not crowded(held, self._alive + self.pending_rows):
            return None
        return {0: pa.concat_tables([*self.kept, *self.pending])}

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Tuples that came after it were judged by what it has: `compacted` alone lets rows go."""
        return frontier == AFTER_ALL
