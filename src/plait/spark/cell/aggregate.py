"""Aggregates in a cell, in three forms of which a query has one, by its kind of window and its functions (`core.aggregate`).

panes    what is kept are partial panes, one a pane and group, made where the tuples were or here: memory and state follow
         the groups of the windows that are open, not the tuples
tuples   windows of time of which a function wants all tuples
ranked   windows of tuples; a group's tuples that are in windows still to close, and at least its last one, with its rank
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.base import Closed
from plait.core.aggregate.panes import RECORDS, window_record
from plait.core.aggregate.parts import Layout as Parts
from plait.core.aggregate.parts import PaneFold, PartPanes, layout
from plait.core.aggregate.ranks import RankedPanes
from plait.core.aggregate.reads import Columns
from plait.core.aggregate.span import SpanPanes, span_window
from plait.core.metrics import Counts
from plait.encodings import as_array
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate, SpanWindow, TupleWindow
from plait.query.bind import Bound
from plait.spark import formats
from plait.spark.cell.keyed import Keyed
from plait.spark.cell.live import Live
from plait.spark.cell.rows import crowded, rows_schema, times
from plait.spark.formats import RANK, Chunk, Step


def live_aggregate(bound: Bound) -> Live:
    assert isinstance(bound.node, Aggregate)
    return FORMS[window_record(bound.node).spark](bound)


def _live_spans(bound: Bound) -> Live:
    parts = layout(bound)
    return LiveTuples(bound, span_window(bound)) if parts is None else LivePanes(bound, span_window(bound), parts)


def needed_columns(bound: Bound) -> list[str]:
    """What an aggregate reads of its input."""
    assert isinstance(bound.node, Aggregate)
    return Columns(bound.node, bound.inputs[0].schema).needed()


class _LiveSpans(Live):
    """Windows of time: what is kept goes when the last window it is in has closed."""

    windows: SpanPanes

    def __init__(self, bound: Bound, window: SpanWindow, schema: pa.Schema) -> None:
        assert isinstance(bound.node, Aggregate)
        super().__init__(bound, [schema])
        self.window, self.by = window, bound.node.by

    @property
    def counts(self) -> Counts:
        return self.windows.counts

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Not rows all of whose windows close with this very batch: where it spans many windows, that is nearly all of them."""
        ts = times(table)
        needed = (ts >= frontier) | (self._closed_after(ts) > frontier)
        return table if needed.all() else table.filter(pa.array(needed))

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        # In a gap between windows a tuple is in none, and waits all the same until the frontier has passed it.
        return chunk.last_ts < frontier and bool(self._closed_after(chunk.last_ts) <= frontier)

    def _closed_after(self, ts: Any) -> Any:
        """Where the last window ends that a ts may be in."""
        return ts // self.window.advance_us * self.window.advance_us + self.window.size_us

    def _results(self, closed: list[Closed]) -> Keyed:
        return Keyed(pa.Table.from_batches([each.rows for each in closed], self.bound.schema), self.by)


class LivePanes(_LiveSpans):
    def __init__(self, bound: Bound, window: SpanWindow, parts: Parts) -> None:
        super().__init__(bound, window, parts.schema)
        self.parts = parts
        self.windows: PartPanes = PartPanes(bound, parts)
        self.open: list[pa.Table] = []  # complete panes of windows that are still open

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        """Tuples that came as such (some of them might have been late) are folded here; partial panes are joined."""
        return folded(self.bound, self.parts, table) if formats.KEY in table.column_names else self._combined(table)

    def _combined(self, table: pa.Table) -> pa.Table:
        return PaneFold(self.bound, self.parts).combined(table)

    def replay(self, arrived: dict[int, pa.Table], frontier: int) -> None:
        """What the state holds was joined batch by batch."""
        super().replay({input: self._combined(table) for input, table in arrived.items()}, frontier)

    def _release(self, input: int, new: pa.Table | None, frontier: int) -> pa.Table:
        """Partial panes that wait are joined with what came of the same panes: one row a pane and group, always."""
        waiting = self.pending[input]
        if waiting.num_rows and new is not None and new.num_rows:
            new = new.select(waiting.schema.names).cast(waiting.schema)
            cut = int(np.searchsorted(times(new), times(waiting)[-1], "right"))
            first = self._combined(pa.concat_tables([waiting, new.slice(0, cut)]))
            self.pending[input] = self.schemas[input].empty_table()
            new = pa.concat_tables([first, new.slice(cut)])
        return super()._release(input, new, frontier)

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        complete = ready[0]
        if not results:
            self.windows.skip(frontier)
        closed = self.windows.absorb(complete, frontier)
        kept = [t for t in (*self.open, complete) if t.num_rows and self._closed_after(int(times(t)[-1])) > frontier]
        # Tables of one pane or few: joined when there are many, so that each row is copied a few times only.
        self.open = [pa.concat_tables(kept).combine_chunks()] if len(kept) > 64 else kept
        return self._results(closed)

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        if not crowded(held, self.pending_rows + sum(table.num_rows for table in self.open)):
            return None
        return {0: pa.concat_tables([*self.open, *self.pending])}


def folded(bound: Bound, parts: Parts, table: pa.Table) -> pa.Table:
    """Tuples in total order, with their keys, as partial panes."""
    key = as_array(table.column(formats.KEY), pa.binary())
    rows = table.select(bound.inputs[0].schema.names).cast(bound.inputs[0].schema)
    return PaneFold(bound, parts).folded(rows, times(table), lambda places: key.take(pa.array(places)))


class LiveTuples(_LiveSpans):
    def __init__(self, bound: Bound, window: SpanWindow) -> None:
        schema, names = bound.inputs[0].schema, needed_columns(bound)
        super().__init__(bound, window, rows_schema(pa.schema([schema.field(name) for name in names])))
        self.windows = SpanPanes(bound, window)

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        return table.select(self.schemas[0].names)

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        if not results:
            self.windows.skip(frontier)
        return self._results(self.windows.take_rows(ready[0], times(ready[0]), frontier))


def _live_ranked(bound: Bound) -> Live:
    assert isinstance(bound.node, Aggregate)
    if not isinstance(bound.node.window, TupleWindow):
        raise TypeError(f"{type(bound.node.window).__name__} has no ranks, though its record says so")
    return LiveRanked(bound, bound.node.window)


class LiveRanked(Live):
    def __init__(self, bound: Bound, window: TupleWindow) -> None:
        schema = rows_schema(pa.schema([bound.inputs[0].schema.field(name) for name in needed_columns(bound)]))
        super().__init__(bound, [pa.schema([*schema, pa.field(RANK, pa.int64())])])
        self.windows = RankedPanes(bound, window)
        self.kept: list[pa.Table] = []
        self._alive = 0  # of the rows in `kept`, those that were needed when it was last looked

    @property
    def counts(self) -> Counts:
        return self.windows.counts

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        table = table.select(self.schemas[0].names[:-1])
        return table.append_column(RANK, pa.nulls(table.num_rows, pa.int64()))

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        rows = ready[0]
        known = np.asarray(rows.column(RANK).is_valid())
        again = rows.filter(pa.array(known))
        if again.num_rows:
            # Written anew once: they come before all others, and this is the first that is taken.
            self.windows.go_on(again, again.column(RANK).to_numpy())
        ranks = self.windows.ranks(rows)
        at = rows.schema.get_field_index(RANK)
        self.kept.append(rows.set_column(at, self.schemas[0].field(RANK), pa.array(ranks)))
        closed = self.windows.take_rows(rows, times(rows), frontier)
        if crowded(sum(table.num_rows for table in self.kept), self._alive):
            self._let_go()
        if not results or not closed:
            return Keyed(self.bound.schema.empty_table(), (), pa.array([], pa.binary()))
        triggers = np.concatenate([each.triggers for each in closed if each.triggers is not None])
        key = as_array(rows.column(formats.KEY), pa.binary()).take(pa.array(triggers))
        table = pa.Table.from_batches([each.rows for each in closed], self.bound.schema)
        return Keyed(table, (), keys.nest(key, n=len(triggers)))

    def _let_go(self) -> None:
        rows = pa.concat_tables(self.kept).combine_chunks()
        needed = self.windows.needed(rows, rows.column(RANK).to_numpy())
        self.kept = [rows.filter(pa.array(needed))]
        self._alive = self.kept[0].num_rows

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        if not crowded(held, self._alive + self.pending_rows):
            return None
        self._let_go()
        if not crowded(held, self._alive + self.pending_rows):
            return None
        return {0: pa.concat_tables([*self.kept, *self.pending])}

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """A group's last tuple may be in it, and with it how many there were: `compacted` alone lets rows go."""
        return frontier == AFTER_ALL


#: How cells keep a kind of window, by the name that its record says.
FORMS: dict[str, Callable[[Bound], Live]] = {"spans": _live_spans, "ranked": _live_ranked}

for _kind, _record in RECORDS.items():
    if _record.spark not in FORMS:
        raise ImportError(
            f"the kind of window {_kind.__name__} has no form {_record.spark!r} in plait.spark.cell.aggregate"
        )
