"""A cell's contents in memory: tuples that wait for the frontier, and what joins them once they are ready.

`advance` takes what a batch brought and gives results in result order; `replay` does the same for what the state holds,
and its results are out already. Both are told the frontier, so contents are a function of the chunks and the frontier.

Where it is: in a Python worker, in `cell._CACHE`, between the batches that this worker has of the cell. It may be thrown
away at any time. That is the invariant a change must keep: whatever later results depend on can be computed from the
chunks, the states and the frontier that the manifest has. What a class forgets in `replay` shows as a difference after a
restart; tests/spark/test_cells.py has attempts that come to nothing, and caches that are behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from plait import order
from plait.core.metrics import Counts
from plait.encodings import as_array
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.join import Asof
from plait.query.operator import Operator
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell.keyed import Keyed
from plait.spark.cell.results import Results
from plait.spark.cell.rows import in_order, numbered, rows_schema, times
from plait.spark.formats import Chunk, Step
from plait.spark.plan.layout import Layout


def live(bound: Bound, layout: Layout, cell: int, *, index: str) -> Live:
    """Empty contents for an operator. Modules are imported when they are wanted: a query needs one kind."""
    if isinstance(bound.node, Aggregate):
        from plait.spark.cell.aggregate import live_aggregate

        return live_aggregate(bound)
    if isinstance(bound.node, Operator):
        from plait.spark.cell.operator import LiveOperator

        return LiveOperator(bound, layout, cell)
    if isinstance(bound.node, Asof):
        from plait.spark.cell.asof import LiveAsof

        return LiveAsof(bound)
    from plait.spark.cell.join import LiveJoin

    return LiveJoin(bound, layout, cell, index=index)


class Live(ABC):
    """What all operators share: pending tuples of each input (or partial panes), released by the frontier.

    Attributes:
        schemas: The columns that each input's rows are kept with.
        pending: Of each input the rows at or above the frontier, in total order.
        steps: Ids of the steps that were applied, in order. `cell` compares them with the manifest's.
        released: How many rows of each input the last call has released. The manifest notes it for windows that count.
    """

    #: Whether contents that are some steps behind get on by the chunks of these; if not they are built anew.
    catches_up = True

    #: How far time has passed at the end of input.
    last_ts = order.BEFORE_ALL

    def __init__(self, bound: Bound, schemas: Sequence[pa.Schema]) -> None:
        self.bound, self.schemas = bound, tuple(schemas)
        self.pending: list[pa.Table] = [schema.empty_table() for schema in self.schemas]
        self.steps: list[str] = []  # ids of the manifest's steps that these contents are made of
        self.released = [0] * len(self.schemas)

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """What was counted where this operator's work is done."""

    @property
    def pending_rows(self) -> int:
        return sum(table.num_rows for table in self.pending)

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        """What came, as it is kept."""
        return table

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Of what came, the rows that the state must hold.

        By default all of them. A chunk that proves to be of no use goes again in the same step (`outlived`).
        """
        return table

    def states(self) -> Iterator[tuple[int, bytes]]:
        """States that no chunk tells and that this batch has changed, by number."""
        return iter(())

    def load_state(self, number: int, data: bytes) -> None:
        """A state that `states` gave in an earlier batch. Only operators have some."""
        raise NotImplementedError

    def advance(self, arrived: dict[int, pa.Table], frontier: int) -> Results | Keyed:
        """Release what lies below the frontier and process it; results in result order.

        `arrived` has an input only if rows came for it. The frontier is the one after the batch; time passes to it even
        if no row came.
        """
        ready = [self._release(input, arrived.get(input), frontier) for input in range(len(self.schemas))]
        return self._process(ready, frontier, results=True)

    def replay(self, arrived: dict[int, pa.Table], frontier: int) -> None:
        """The same without results, for rows that the state holds: they are out already."""
        ready = [self._release(input, arrived.get(input), frontier) for input in range(len(self.schemas))]
        self._process(ready, frontier, results=False)

    def _release(self, input: int, new: pa.Table | None, frontier: int) -> pa.Table:
        """The rows of one input below the frontier, in total order, which go; those at or above it wait.

        New rows are merged with those that wait only if there are both. A batch in which everything is released at once,
        as in a run over old files, sorts nothing here.
        """
        table = self.pending[input]
        if new is not None and new.num_rows:
            new = new.select(self.schemas[input].names).cast(self.schemas[input])
            waiting = table.num_rows
            table = pa.concat_tables([table, new]) if waiting else new
            table = (in_order(table) if waiting else table).combine_chunks()
        cut = int(np.searchsorted(times(table), frontier, "left"))
        self.pending[input] = table.slice(cut)
        self.released[input] = cut
        ready, node = table.slice(0, cut), self.bound.inputs[input].node
        # All tuples of one ts are released at once, and equal ones go to the same cells: they are numbered alike in each.
        return numbered(ready) if isinstance(node, Stream) and node.seq == "content" else ready

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """All rows that are still needed, if the `held` ones that the state has are many more."""
        return None

    @abstractmethod
    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results | Keyed: ...

    @abstractmethod
    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Whether no row of a chunk has a part in any result that is still to come.

        Asked of every chunk in every batch, so it must be quick: it sees the manifest's entry and not the rows.
        """


class LivePairs(Live):
    """What joins and as-of share."""

    def __init__(self, bound: Bound, *, hashes: bool = False) -> None:
        super().__init__(bound, [rows_schema(i.schema, hashes=hashes) for i in bound.inputs])
        # What results show of a row, and their time; keys go by reference.
        self.shown = tuple([*i.schema.names, formats.TS] for i in bound.inputs)
        self.nothing = Results.none(bound.schema)

    def columns(self, ts: Any, left: pa.Table, right: pa.Table | None) -> pa.Table:
        """Result columns from the rows of both sides, of which the right one may be missing or not wanted."""
        n, wanted = left.num_rows, len(self.bound.schema) - 1 - len(self.bound.inputs[0].schema)
        columns = [ts, *(left.column(i) for i in range(len(self.bound.inputs[0].schema)))]
        if wanted and right is None:
            columns += [pa.nulls(n, f.type) for f in self.bound.inputs[1].schema]
        elif wanted and right is not None:
            columns += [right.column(i) for i in range(wanted)]
        arrays = [as_array(c, f.type) for c, f in zip(columns, self.bound.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.bound.schema)
