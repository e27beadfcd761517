"""A cell's contents in memory: tuples that wait for the frontier, and what joins them once they are ready.

`advance` takes what a batch brought and gives results in result order; `replay` does the same for what the state holds,
and its results are out already. Both are told the frontier, so contents are a function of the chunks and the frontier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.core import keys
from plait.core.join.payload import Payload
from plait.core.join.window import JoinWindow, Pairs
from plait.errors import DataError
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.join import Asof, Join, TimeWindow, TumblingWindow
from plait.query.operator import Operator
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell.keyed import Keyed
from plait.spark.cell.results import Results, distinct, merge_pairs
from plait.spark.formats import Chunk, Step
from plait.spark.plan.layout import Layout

#: Dead rows that are not worth a rewrite.
_SLACK = 256


def live(bound: Bound, layout: Layout, cell: int, *, index: str) -> Live:
    if isinstance(bound.node, Aggregate):
        from plait.spark.cell.aggregate import live_aggregate

        return live_aggregate(bound)
    if isinstance(bound.node, Operator):
        from plait.spark.cell.operator import LiveOperator

        return LiveOperator(bound, layout, cell)
    from plait.spark.cell.asof import LiveAsof

    return LiveAsof(bound) if isinstance(bound.node, Asof) else LiveJoin(bound, layout, cell, index=index)


class Live(ABC):
    """What all operators share: pending tuples of each input (or partial panes), released by the frontier."""

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
    def pending_rows(self) -> int:
        return sum(table.num_rows for table in self.pending)

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        """What came, as it is kept."""
        return table

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Of what came, the rows that the state must hold."""
        return table

    def states(self) -> Iterator[tuple[int, bytes]]:
        """States that no chunk tells and that this batch has changed, by number."""
        return iter(())

    def load_state(self, number: int, data: bytes) -> None:
        raise NotImplementedError

    def advance(self, arrived: dict[int, pa.Table], frontier: int) -> Results | Keyed:
        """Release what lies below the frontier and process it; results in result order."""
        ready = [self._release(input, arrived.get(input), frontier) for input in range(len(self.schemas))]
        return self._process(ready, frontier, results=True)

    def replay(self, arrived: dict[int, pa.Table], frontier: int) -> None:
        ready = [self._release(input, arrived.get(input), frontier) for input in range(len(self.schemas))]
        self._process(ready, frontier, results=False)

    def _release(self, input: int, new: pa.Table | None, frontier: int) -> pa.Table:
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
        """Whether no row of a chunk has a part in any result that is still to come."""


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
        arrays = [_as(c, f.type) for c, f in zip(columns, self.bound.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.bound.schema)


class LiveJoin(LivePairs):
    def __init__(self, bound: Bound, layout: Layout, cell: int, *, index: str = "auto") -> None:
        assert isinstance(bound.node, Join)
        assert bound.predicate is not None
        super().__init__(bound, hashes=layout.kind == "see_all")
        self.how, self.layout, self.cell = bound.node.how, layout, cell
        left, right = (i.schema for i in bound.inputs)
        self.window = JoinWindow(bound.predicate, left, right, bound.node.window, index=index)
        self.payload = tuple(Payload(schema) for schema in self.schemas)
        # For left, semi and anti: of left rows that may still match, by id from `first` on, ts and whether they have.
        self.first, self.left_ts, self.matched = 0, np.zeros(0, np.int64), np.zeros(0, bool)

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results:
        side = interleaved(ready)
        stored: Any = (None, None)
        if self.layout.kind == "see_all":
            stored = tuple(self.layout.stored(self.cell, t.column(formats.HASH).to_numpy()) for t in ready)
        for input in (0, 1):
            self.payload[input].append(ready[input])
        ts = (times(ready[0]), times(ready[1]))
        # A replay looks for pairs only where it must know again which left rows have matched.
        probe = results or self.how != "inner"
        pairs = self.window.process(side, (ready[0], ready[1]), ts, stored=stored, probe=probe)
        parts = []
        if self.how != "inner":
            fresh = self._match(pairs, ts[0])
            if self.how == "semi":
                pairs = fresh
        if results and self.how != "anti":
            parts.append(self._pairs(side, pairs))
        if self.how in ("left", "anti"):
            parts.append(self._unmatched(frontier))
        self._trim(frontier)
        return merge_pairs(parts) if results and parts else self.nothing

    def _match(self, pairs: Pairs, new_ts: np.ndarray) -> Pairs:
        """Note which left rows have found a partner; gives each one's first pair, if it had none before."""
        self.left_ts = np.concatenate([self.left_ts, new_ts])
        self.matched = np.concatenate([self.matched, np.zeros(len(new_ts), bool)])
        ids, at = np.unique(pairs.left, return_index=True)
        at = np.sort(at[~self.matched[ids - self.first]])
        self.matched[ids - self.first] = True
        return Pairs(pairs.trigger[at], pairs.left[at], pairs.right[at])

    def _pairs(self, side: np.ndarray, pairs: Pairs) -> Results:
        if len(pairs) == 0:
            return self.nothing
        left, right = (self.payload[i].take(ids, self.shown[i]) for i, ids in enumerate((pairs.left, pairs.right)))
        (lefts, of_left), (rights, of_right) = distinct(pairs.left), distinct(pairs.right)
        by_left = side[pairs.trigger] == 0
        of_right += len(lefts)
        return Results(
            self.columns(pc.max_element_wise(left.column(formats.TS), right.column(formats.TS)), left, right),
            pa.concat_arrays([self._keys(0, lefts), self._keys(1, rights)]),
            np.where(by_left, of_left, of_right),
            np.where(by_left, of_right, of_left),
        )

    def _keys(self, input: int, ids: np.ndarray) -> pa.Array:
        return _as(self.payload[input].take(ids, [formats.KEY]).column(0), pa.binary())

    def _unmatched(self, frontier: int) -> Results:
        """Left rows that no partner can reach any more, at the ts of their last chance."""
        window = self.window.window
        assert isinstance(window, TimeWindow)
        # Python's integers: ts + after may lie beyond the last ts, the frontier at the end of all.
        past = int(np.searchsorted(self.left_ts, max(frontier - window.after_us, order.BEFORE_ALL), "left"))
        if frontier == order.AFTER_ALL:
            past = len(self.left_ts)
        alone = np.flatnonzero(~self.matched[:past])
        if len(alone) and int(self.left_ts[alone[-1]]) + window.after_us > order.AFTER_ALL:
            raise DataError(
                f"A result's ts, {int(self.left_ts[alone[-1]])} + {window.after_us}, lies beyond 64 bits",
                why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
                do="Use a shorter window, or leave such tuples out",
            )
        ids, ts = self.first + alone, self.left_ts[alone] + window.after_us
        rows = self.payload[0].take(ids, self.shown[0])
        own = self._keys(0, ids)
        self.first += past
        self.left_ts, self.matched = self.left_ts[past:], self.matched[past:]
        n = len(ts)
        if n == 0:
            return self.nothing
        last = keys.join(keys.ints(ts), keys.constant(order.AFTER_INPUTS, n), n=n)
        place = np.arange(n)
        return Results(self.columns(pa.array(ts), rows, None), pa.concat_arrays([last, own]), place, n + place)

    def _trim(self, frontier: int) -> None:
        if frontier > order.BEFORE_ALL:
            self.window.advance(min(frontier, order.TS_MAX + 1))
        for input in (0, 1):
            self.payload[input].expire(self.window.live_from(input))
        if self.how == "semi":
            gone = self.window.live_from(0) - self.first
            self.first, self.left_ts, self.matched = self.first + gone, self.left_ts[gone:], self.matched[gone:]

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        input, max_ts = chunk.input, chunk.last_ts
        window = self.window.window
        if max_ts >= frontier:
            return False
        if isinstance(window, TimeWindow):
            reach = window.after_us if input == 0 else window.before_us
            if input == 1 and self.how != "inner":
                reach += (
                    window.after_us
                )  # a left row that still waits must be seen to have matched, after a restart too
            return max_ts < frontier - reach
        if isinstance(window, TumblingWindow):
            return frontier == order.AFTER_ALL or max_ts < frontier // window.size_us * window.size_us
        # Of the tuples released after the frontier had passed the chunk, all follow it.
        later = sum(s.released[input] for s, before in zip(steps[1:], steps, strict=False) if before.frontier > max_ts)
        return bool(later >= window.count)


def crowded(held: int, alive: int) -> bool:
    """Whether so many of the rows held are dead that writing the others anew is worth it: it takes as many dead ones."""
    return held > 2 * alive + _SLACK


def rows_schema(schema: pa.Schema, *, hashes: bool = False) -> pa.Schema:
    """Columns of tuples as cells keep them."""
    extra = [pa.field(formats.TS, pa.int64()), pa.field(formats.KEY, pa.binary())]
    return pa.schema([*schema, *extra, *([pa.field(formats.HASH, pa.uint64())] if hashes else [])])


def numbered(ready: pa.Table) -> pa.Table:
    """Tuples in order, of which some may have one key: equal rows, ordered by content. Each but the first has its number
    among them in its key, so that a key is one tuple's."""
    if formats.KEY not in ready.column_names or ready.num_rows < 2:
        return ready
    own = _as(ready.column(formats.KEY), pa.binary())
    same = np.zeros(len(own), bool)
    same[1:] = pc.equal(own.slice(1), own.slice(0, len(own) - 1)).to_numpy(zero_copy_only=False)
    if not same.any():
        return ready
    at = np.arange(len(own))
    number = at - np.maximum.accumulate(np.where(same, 0, at))
    made = keys.join(own, pc.if_else(pa.array(same), keys.ints(number), b""), n=len(own))
    return ready.set_column(ready.column_names.index(formats.KEY), pa.field(formats.KEY, pa.binary()), made)


def in_order(table: pa.Table) -> pa.Table:
    """Tuples in total order; partial panes, which have no key, by time."""
    if _is_in_order(table):
        return table.combine_chunks()
    by = [(name, "ascending") for name in (formats.TS, formats.KEY) if name in table.column_names]
    return table.take(pc.sort_indices(table, sort_keys=by))


def _is_in_order(table: pa.Table) -> bool:
    """Whether rows stand in order already, as those of one source mostly do."""
    ts = times(table)
    if (ts[1:] < ts[:-1]).any():
        return False
    ties = np.flatnonzero(ts[1:] == ts[:-1])
    if formats.KEY not in table.column_names or len(ties) == 0:
        return True
    keys = (table.column(formats.KEY).take(pa.array(ties + after)) for after in (0, 1))
    return bool(pc.all(pc.less(*keys)).as_py())


def times(table: pa.Table) -> np.ndarray:
    found: np.ndarray = table.column(formats.TS).to_numpy()
    return found


def interleaved(ready: list[pa.Table]) -> np.ndarray:
    """The order in which two sides' tuples interleave, as the input of each: by ts, then left before right."""
    # A key begins with (ts, input): left precedes right at one ts, and within a side the order is there already.
    left, right = (times(table) for table in ready)
    side = np.zeros(len(left) + len(right), np.uint8)
    side[np.arange(len(right)) + np.searchsorted(left, right, "right")] = 1
    return side


def _as(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column if column.type == kind else column.cast(kind)
