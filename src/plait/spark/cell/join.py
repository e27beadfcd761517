"""A join in a cell: both sides' windows (`core.join.window`), and left rows until it is known whether they match."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.core import keys
from plait.core.join.window import JoinWindow, Pairs
from plait.core.metrics import Counts
from plait.core.rows import NumberedRows
from plait.encodings import as_array
from plait.errors import DataError
from plait.query.bind import Bound
from plait.query.join import Join
from plait.spark import formats
from plait.spark.cell.live import LivePairs
from plait.spark.cell.results import Results, distinct, merge_pairs
from plait.spark.cell.rows import interleaved, times
from plait.spark.formats import Chunk, Step
from plait.spark.plan.layout import Layout


class LiveJoin(LivePairs):
    def __init__(self, bound: Bound, layout: Layout, cell: int, *, index: str = "auto") -> None:
        assert isinstance(bound.node, Join)
        assert bound.predicate is not None
        super().__init__(bound, hashes=layout.kind == "see_all")
        self.how, self.layout, self.cell = bound.node.how, layout, cell
        left, right = (i.schema for i in bound.inputs)
        self.window = JoinWindow(bound.predicate, left, right, bound.node.window, index=index)
        self.rows = tuple(NumberedRows(schema) for schema in self.schemas)
        # For left, semi and anti: of left rows that may still match, by id from `first` on, ts and whether they have.
        self.first, self.left_ts, self.matched = 0, np.zeros(0, np.int64), np.zeros(0, bool)

    @property
    def counts(self) -> Counts:
        return self.window.counts

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results:
        side = interleaved(ready)
        stored: Any = (None, None)
        if self.layout.kind == "see_all":
            stored = tuple(self.layout.stored(self.cell, t.column(formats.HASH).to_numpy()) for t in ready)
        for input in (0, 1):
            self.rows[input].append(ready[input])
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
        left, right = (self.rows[i].take(ids, self.shown[i]) for i, ids in enumerate((pairs.left, pairs.right)))
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
        return as_array(self.rows[input].take(ids, [formats.KEY]).column(0), pa.binary())

    def _unmatched(self, frontier: int) -> Results:
        """Left rows that no partner can reach any more, at the ts of their last chance."""
        after = self.window.reach.back[1]  # so far back does a right tuple look
        # Python's integers: ts + after may lie beyond the last ts, the frontier at the end of all.
        past = int(np.searchsorted(self.left_ts, max(frontier - after, order.BEFORE_ALL), "left"))
        if frontier == order.AFTER_ALL:
            past = len(self.left_ts)
        alone = np.flatnonzero(~self.matched[:past])
        if len(alone) and int(self.left_ts[alone[-1]]) + after > order.AFTER_ALL:
            raise DataError(
                f"A result's ts, {int(self.left_ts[alone[-1]])} + {after}, lies beyond 64 bits",
                why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
                do="Use a shorter window, or leave such tuples out",
            )
        ids, ts = self.first + alone, self.left_ts[alone] + after
        rows = self.rows[0].take(ids, self.shown[0])
        own = self._keys(0, ids)
        self.first += past
        self.left_ts, self.matched = self.left_ts[past:], self.matched[past:]
        n = len(ts)
        if n == 0:
            return self.nothing
        last = keys.at_last(ts)
        place = np.arange(n)
        return Results(self.columns(pa.array(ts), rows, None), pa.concat_arrays([last, own]), place, n + place)

    def _trim(self, frontier: int) -> None:
        if frontier > order.BEFORE_ALL:
            self.window.advance(min(frontier, order.TS_MAX + 1))
        for input in (0, 1):
            self.rows[input].expire(self.window.live_from(input))
        if self.how == "semi":
            gone = self.window.live_from(0) - self.first
            self.first, self.left_ts, self.matched = self.first + gone, self.left_ts[gone:], self.matched[gone:]

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        input, max_ts, reach = chunk.input, chunk.last_ts, self.window.reach
        if max_ts >= frontier:
            return False
        if reach.counts:
            # Of the tuples released after the frontier had passed the chunk, all follow it: the first of them is number 0 here.
            passed = zip(steps[1:], steps, strict=False)
            later = sum(step.released[input] for step, before in passed if before.frontier > max_ts)
            return bool(reach.first(1 - input, later) >= 0)
        since = frontier
        if input == 1 and self.how != "inner":
            # A left row that still waits must be seen to have matched, after a restart too.
            since = reach.first(1, frontier)
        return frontier == order.AFTER_ALL or bool(max_ts < reach.first(1 - input, since))
