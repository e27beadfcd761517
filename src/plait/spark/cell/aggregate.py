"""Aggregates in a cell, in four forms of which a query has one, by its kind of window and its functions (`core.aggregate`).

panes    what is kept are partial panes, one a pane and group, made where the tuples were or here: memory and state follow
         the groups of the windows that are open, not the tuples
tuples   windows of time of which a function wants all tuples
ranked   windows of tuples; a group's tuples that are in windows still to close, and at least its last one, with its rank
sessions tuples of sessions that have not ended

Where it runs: in a cell's task. All tuples of a group are in one cell, by a hash of the key columns, so a window is
closed by one cell alone. Rows out are sorted by (ts, key columns), or by the closing tuple for windows of tuples.

The form "panes" is why an aggregate over many tuples is cheap on Spark: the source's tasks fold their tuples into one row
a pane and group (`pack.ship`), and only these are shuffled, stored and merged. It is chosen where every function of the
query has a partial form (`core.aggregate.parts`). Where tuples may have to be dropped and shown (`late="drop"`,
`behind="drop"`), they come as they are and are folded in the cell, after they have been judged.

After a restart windows are computed again from what the state holds. `skip` keeps those from coming out that were
published before. Held by tests/spark/test_aggregates.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.closed import Closed
from plait.core.aggregate.counted import RankedPanes
from plait.core.aggregate.panes import RECORDS, window_record
from plait.core.aggregate.parts import Layout as Parts
from plait.core.aggregate.parts import PaneFold, PartPanes, layout
from plait.core.aggregate.reads import Columns
from plait.core.aggregate.sessions import SessionPanes
from plait.core.aggregate.span import SpanPanes, span_window
from plait.core.metrics import Counts
from plait.encodings import as_array
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate, SessionWindow, SpanWindow, TupleWindow
from plait.query.bind import Bound
from plait.spark import formats
from plait.spark.cell.cell import Live, crowded
from plait.spark.cell.results import Keyed
from plait.spark.formats import RANK, Chunk, Step, rows_schema, times


def live_aggregate(bound: Bound) -> Live:
    """The contents of a cell for this query, in the form that its kind of window has."""
    assert isinstance(bound.node, Aggregate)
    return FORMS[window_record(bound.node).spark](bound)


def _live_spans(bound: Bound) -> Live:
    """For windows of time: partial panes where all functions have them, else tuples."""
    parts = layout(bound)
    return LiveTuples(bound, span_window(bound)) if parts is None else LivePanes(bound, span_window(bound), parts)


def needed_columns(bound: Bound) -> list[str]:
    """What an aggregate reads of its input."""
    assert isinstance(bound.node, Aggregate)
    return Columns(bound.node, bound.inputs[0].schema).needed()


class _LiveSpans(Live):
    """Windows of time: what is kept goes when the last window it is in has closed.

    Attributes:
        windows: The panes and accumulators that compute rows. Rebuilt from the state after a restart, never stored
            themselves.
        window: Its size and advance, in microseconds.
        by: The key columns, which are part of a result's key.
    """

    windows: SpanPanes

    def __init__(self, bound: Bound, window: SpanWindow, schema: pa.Schema) -> None:
        assert isinstance(bound.node, Aggregate)
        super().__init__(bound, [schema])
        self.window, self.by = window, bound.node.by

    @property
    def counts(self) -> Counts:
        return self.windows.counts

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Not rows all of whose windows close with this very batch: where it spans many windows, that is nearly all of them.

        This is what keeps a large batch from being written to the state and removed again at once. A row must be stored
        if it is pending, or if one of its windows is still open after the batch.
        """
        ts = times(table)
        needed = (ts >= frontier) | (self._closed_after(ts) > frontier)
        return table if needed.all() else table.filter(pa.array(needed))

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Whether all windows that any row of a chunk is in are closed and out."""
        # In a gap between windows a tuple is in none, and waits all the same until the frontier has passed it.
        return chunk.last_ts < frontier and bool(self._closed_after(chunk.last_ts) <= frontier)

    def _closed_after(self, ts: Any) -> Any:
        """Where the last window ends that a ts may be in."""
        return ts // self.window.advance_us * self.window.advance_us + self.window.size_us

    def _results(self, closed: list[Closed]) -> Keyed:
        """Rows of closed windows with what their keys are made of. No window closed: no rows, with the right columns."""
        return Keyed(pa.Table.from_batches([each.rows for each in closed], self.bound.schema), self.by)


class LivePanes(_LiveSpans):
    """The form "panes". A row is a pane of one group, with a partial result for each function.

    Attributes:
        parts: Which columns such rows have.
        windows: Merges panes into windows.
        open: Complete panes, that is below the frontier, that belong to windows which are still open. They are here only
            so that `compacted` can write them anew.
    """

    def __init__(self, bound: Bound, window: SpanWindow, parts: Parts) -> None:
        super().__init__(bound, window, parts.schema)
        self.parts = parts
        self.windows: PartPanes = PartPanes(bound, parts)
        self.open: list[pa.Table] = []  # complete panes of windows that are still open

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        """Tuples that came as such (some of them might have been late) are folded here; partial panes are joined."""
        return folded(self.bound, self.parts, table) if formats.KEY in table.column_names else self._combined(table)

    def _combined(self, table: pa.Table) -> pa.Table:
        """One row a pane and group, of rows that may have several, from several tasks."""
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
        """Merge complete panes into windows and close those that the frontier has passed.

        A replay first says which windows are out already. Then the same panes give the same open windows again, and no
        closed ones.
        """
        complete = ready[0]
        if not results:
            self.windows.skip(frontier)
        closed = self.windows.absorb(complete, frontier)
        kept = [t for t in (*self.open, complete) if t.num_rows and self._closed_after(int(times(t)[-1])) > frontier]
        # Tables of one pane or few: joined when there are many, so that each row is copied a few times only.
        self.open = [pa.concat_tables(kept).combine_chunks()] if len(kept) > 64 else kept
        return self._results(closed)

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """Panes of open windows and pending ones, written anew if most of the rows held are of closed windows."""
        if not crowded(held, self.pending_rows + sum(table.num_rows for table in self.open)):
            return None
        return {0: pa.concat_tables([*self.open, *self.pending])}


def folded(bound: Bound, parts: Parts, table: pa.Table) -> pa.Table:
    """Tuples in total order, with their keys, as partial panes."""
    key = as_array(table.column(formats.KEY), pa.binary())
    rows = table.select(bound.inputs[0].schema.names).cast(bound.inputs[0].schema)
    return PaneFold(bound, parts).folded(rows, times(table), lambda places: key.take(pa.array(places)))


class LiveTuples(_LiveSpans):
    """The form "tuples": some function has no partial form (a custom one, say), so a window needs all its tuples.

    Of a tuple only the columns are kept that the functions or the key read, with its ts and key.
    """

    def __init__(self, bound: Bound, window: SpanWindow) -> None:
        schema, names = bound.inputs[0].schema, needed_columns(bound)
        super().__init__(bound, window, rows_schema(pa.schema([schema.field(name) for name in names])))
        self.windows = SpanPanes(bound, window)

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        return table.select(self.schemas[0].names)

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        """Tuples into windows, in total order: functions such as `first` depend on it."""
        if not results:
            self.windows.skip(frontier)
        return self._results(self.windows.take_rows(ready[0], times(ready[0]), frontier))


def _live_ranked(bound: Bound) -> Live:
    """For windows of tuples."""
    assert isinstance(bound.node, Aggregate)
    if not isinstance(bound.node.window, TupleWindow):
        raise TypeError(f"{type(bound.node.window).__name__} has no ranks, though its record says so")
    return LiveRanked(bound, bound.node.window)


class LiveRanked(Live):
    """The form "ranked". A window of tuples closes at a tuple, so a tuple's number in its group decides which windows it is
    in.

    That number can't be found again from the tuples that are left, since earlier ones are gone. So it is stored with each
    row that is written anew (the column RANK). Rows as they came have no number yet: NULL.

    Attributes:
        windows: Computes the windows and knows the next number of each group.
        kept: Rows with their numbers that a window still to close needs, and at least the last row of each group.
    """

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
        """Number the tuples that have become ready, take them into windows, and give the rows of those that closed.

        Rows with a number come only in a replay after rows were written anew, and then first: the numbering goes on
        behind them.
        """
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
        """Drop rows of `kept` that no window needs any more."""
        rows = pa.concat_tables(self.kept).combine_chunks()
        needed = self.windows.needed(rows, rows.column(RANK).to_numpy())
        self.kept = [rows.filter(pa.array(needed))]
        self._alive = self.kept[0].num_rows

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """The rows needed, written anew with their numbers, if most of those held are not needed.

        The count of needed rows is from the last look and may be too large. So it is counted again before anything is
        written.
        """
        if not crowded(held, self._alive + self.pending_rows):
            return None
        self._let_go()
        if not crowded(held, self._alive + self.pending_rows):
            return None
        return {0: pa.concat_tables([*self.kept, *self.pending])}

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """A group's last tuple may be in it, and with it how many there were: `compacted` alone lets rows go."""
        return frontier == AFTER_ALL


def _live_sessions(bound: Bound) -> Live:
    assert isinstance(bound.node, Aggregate)
    if not isinstance(bound.node.window, SessionWindow):
        raise TypeError(f"{type(bound.node.window).__name__} is no session, though its record says so")
    return LiveSessions(bound, bound.node.window)


class LiveSessions(Live):
    """The form "sessions". A tuple is needed as long as its session has not ended: then it goes, and its session is out.

    Attributes:
        windows: Computes sessions, and knows where the oldest begins that is not out.
        kept: Rows that were taken into sessions, of which some may have ended by now.
        by: The key columns, which are part of a result's key.
    """

    def __init__(self, bound: Bound, window: SessionWindow) -> None:
        assert isinstance(bound.node, Aggregate)
        schema = rows_schema(pa.schema([bound.inputs[0].schema.field(name) for name in needed_columns(bound)]))
        super().__init__(bound, [schema])
        self.windows, self.by = SessionPanes(bound, window), bound.node.by
        self.kept: list[pa.Table] = []
        self._alive = 0  # of the rows in `kept`, those that were needed when it was last looked

    @property
    def counts(self) -> Counts:
        return self.windows.counts

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        return table.select(self.schemas[0].names)

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        """Tuples into sessions. What a replay ends was out before: its frontier is the one up to which all was given."""
        rows = ready[0]
        closed = self.windows.take_rows(rows, times(rows), frontier)
        if rows.num_rows:
            self.kept.append(rows)
        if crowded(sum(table.num_rows for table in self.kept), self._alive):
            self._let_go()
        given = [each.rows for each in closed] if results else []
        return Keyed(pa.Table.from_batches(given, self.bound.schema), self.by)

    def _let_go(self) -> None:
        """Drop rows of `kept` whose sessions are out."""
        rows = pa.concat_tables(self.kept).combine_chunks()
        self.kept = [rows.filter(pa.array(self.windows.holds(rows, times(rows))))]
        self._alive = self.kept[0].num_rows

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """The rows needed, written anew, if most of those held are of sessions that are out."""
        if not crowded(held, self._alive + self.pending_rows):
            return None
        if self.kept:
            self._let_go()
        if not crowded(held, self._alive + self.pending_rows):
            return None
        return {0: pa.concat_tables([*self.kept, *self.pending])}

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Whether all of its rows lie before any session that is not out yet. One may go on for long: `compacted` lets rows of
        others go that lie after its beginning.
        """
        return chunk.last_ts < frontier and chunk.last_ts < self.windows.oldest


#: How cells keep a kind of window, by the name that its record says.
FORMS: dict[str, Callable[[Bound], Live]] = {"spans": _live_spans, "ranked": _live_ranked, "sessions": _live_sessions}

for _kind, _record in RECORDS.items():
    if _record.spark not in FORMS:
        raise ImportError(
            f"the kind of window {_kind.__name__} has no form {_record.spark!r} in plait.spark.cell.aggregate"
        )
