"""A join in a cell: both sides' windows (`core.join.window`), and rows until it is known whether they match.

Where it runs: in the task of a cell, once a batch (`cell.step` calls `advance`), and again when the contents are built
anew from stored chunks (`replay`). Nothing here is stored as such. The state has the tuples; both windows, their indexes
and the marks of rows that have matched follow from the tuples and the frontier, so they are computed again after a
restart.

What goes in: tuples of both inputs that lie below the frontier, each side in total order. What comes out: pairs in result
order, of some joins also rows without a partner (`query.join.How`). A join's cells need not talk to one another: tuples
are dealt out so that any pair is found in exactly one cell (`plan.layout`), and, where it matters whether a row has found any
partner, so that all of them come to its one cell.

What it costs: each released tuple is compared with the candidates that an index or a scan of the other side's window
gives (`core.join`). Held by tests/spark/test_joins.py and tests/spark/test_cells.py, which compare with the reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.core import keys
from plait.core.join.window import JoinWindow, Pairs, interleaved
from plait.core.metrics import Counts
from plait.core.rows import NumberedRows
from plait.encodings import as_array
from plait.errors import DataError
from plait.query.bind import Bound
from plait.query.join import HOWS, Join
from plait.spark import formats
from plait.spark.cell.cell import LivePairs
from plait.spark.cell.results import Keyed, Results, distinct, merge
from plait.spark.formats import Chunk, Step, times
from plait.spark.plan.layout import Layout


class LiveJoin(LivePairs):
    """A join's contents of one cell.

    Attributes:
        how: What its kind of join gives out.
        window: Both sides' tuples that a later tuple can still meet, with their indexes. It numbers the tuples of a side: from 0
            on, or, where windows begin at every n-th tuple, by their number in the stream (`begin`).
        rows: Of each side the whole rows, by the window's numbers: results show columns that the condition does not read.
            They lie in rings, all but keys: results are taken from anywhere in the window by one compiled pass a column.
        keyed: Whether anybody asks for its results' keys; else they are in order, and have none.
        noted: Of each side that this is asked of, which of the rows that may still find a partner have found one.
    """

    def __init__(self, bound: Bound, layout: Layout, cell: int, *, index: str = "auto") -> None:
        assert isinstance(bound.node, Join)
        assert bound.predicate is not None
        super().__init__(bound, hashes=layout.kind == "see_all")
        self.how, self.layout, self.cell = HOWS[bound.node.how], layout, cell
        left, right = (i.schema for i in bound.inputs)
        self.window = JoinWindow(bound.predicate, left, right, bound.node.window, index=index)
        self.rows = tuple(NumberedRows(schema, rings=True, apart=[formats.KEY]) for schema in self.schemas)
        self.keyed = True
        self.noted = {side: Noted() for side in self.how.whole}
        self.numbers = self.window.reach.counts and self.window.reach.step > 1
        # What it would catch up by may lack chunks that were outlived: rows that came would not be counted.
        self.catches_up = not self.numbers

    def spare_keys(self) -> None:
        """Make results without keys, and keep rows without them. Before any row has come."""
        self.keyed = False
        without = (schema.remove(schema.get_field_index(formats.KEY)) for schema in self.schemas)
        self.rows = tuple(NumberedRows(schema, rings=True) for schema in without)

    @property
    def counts(self) -> Counts:
        return self.window.counts

    @property
    def rows_held(self) -> dict[int, int]:
        alive = (self.window.next_id[side] - self.window.live_from(side) for side in (0, 1))
        return {
            side: waiting.num_rows + own for side, (waiting, own) in enumerate(zip(self.pending, alive, strict=True))
        }

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Of what came, the rows that the state must hold.

        With "see_all" another cell stores what this one does not. Unless the window counts it, such a tuple is of no use once it
        has been compared, and it is, in this step, if it lies below the frontier. So each tuple of a window is stored once.
        """
        if self.layout.kind != "see_all" or self.window.reach.counts:
            return table
        own = self.layout.stored(self.cell, table.column(formats.HASH).to_numpy())
        return table.filter(pa.array(own | (times(table) >= frontier)))

    @property
    def came(self) -> list[int]:
        return list(self.window.next_id) if self.numbers else []

    def begin(self, came: list[int], kept: dict[int, pa.Table], frontier: int) -> None:
        """Number the rows that are replayed so that the last one has the number it had.

        Rows that are no longer kept may lie between those that are. But the last n of a stream are there (`outlived`), and those
        before them are met by nobody, whatever their number is.
        """
        if came:
            released = [int(np.searchsorted(times(kept[i]), frontier, "left")) if i in kept else 0 for i in (0, 1)]
            first = [number - gone for number, gone in zip(came, released, strict=True)]
            self.window.start_at(*first)
            for rows, number in zip(self.rows, first, strict=True):
                rows.start_at(number)

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results | Keyed:
        """Join what has become ready; `ready` has a table for each input.

        The window gets all tuples of both sides in one call, in the order in which they interleave. So a tuple meets only
        tuples before it, though both sides come in one batch. With the layout "see_all" every cell sees every tuple,
        and stores its part of them only.
        """
        ts = (times(ready[0]), times(ready[1]))
        side = interleaved(*ts)
        stored: Any = (None, None)
        if self.layout.kind == "see_all":
            stored = tuple(self.layout.stored(self.cell, t.column(formats.HASH).to_numpy()) for t in ready)
        for input in (0, 1):
            self.rows[input].append(ready[input] if self.keyed else ready[input].drop_columns([formats.KEY]))
        # A replay looks for pairs only where it must know again which rows have matched.
        probe = results or bool(self.noted)
        pairs = self.window.process(side, (ready[0], ready[1]), ts, stored=stored, probe=probe)
        parts: list[Results | Keyed] = []
        firsts = {s: noted.note(ts[s], (pairs.left, pairs.right)[s]) for s, noted in self.noted.items()}
        if self.how.pairs == "first":
            at = firsts[0]
            pairs = Pairs(pairs.trigger[at], pairs.left[at], pairs.right[at])
        if results and self.how.pairs != "none":
            parts.append(self._pairs(side, pairs))
        for input in self.how.alone:
            parts.append(self._unmatched(input, frontier))
        self._trim(frontier)
        return merge(parts) if results and parts else self.nothing

    def _pairs(self, side: np.ndarray, pairs: Pairs) -> Results | Keyed:
        """Pairs as results. The trigger is the later tuple of a pair, and its key comes first in the result's key.

        Keys are listed once for each tuple, not once for each pair: `distinct` gives the tuples that occur and each
        pair's place among them. The result's ts is the later one of the two.
        """
        if len(pairs) == 0:
            return self.nothing
        left, right = (self.rows[i].take(ids, self.shown[i]) for i, ids in enumerate((pairs.left, pairs.right)))
        ts = pc.max_element_wise(left.column(formats.TS), right.column(formats.TS))
        if not self.keyed:
            return Keyed(self.columns(ts, left, right), ())
        (lefts, of_left), (rights, of_right) = distinct(pairs.left), distinct(pairs.right)
        by_left = side[pairs.trigger] == 0
        of_right += len(lefts)
        return Results(
            self.columns(ts, left, right),
            pa.chunked_array([self._keys(0, lefts), self._keys(1, rights)]),
            np.where(by_left, of_left, of_right),
            np.where(by_left, of_right, of_left),
        )

    def _keys(self, input: int, ids: np.ndarray) -> pa.Array:
        """The keys of rows by their numbers, as bytes."""
        return as_array(self.rows[input].take(ids, [formats.KEY]).column(0), pa.binary())

    def _unmatched(self, input: int, frontier: int) -> Results:
        """Rows of one side that no partner can reach any more, at the ts of their last chance.

        That is, of a left row, `ts + after`: a right tuple may come so much later and still meet the row. Of a right row it is
        `ts + before`. Such a result has no trigger. Its key begins with (its ts, a mark that sorts after all tuples, and the
        left side's before the right one's), so it stands behind all pairs of that moment.

        At the end of input (frontier AFTER_ALL) all rows that are left come out, in this very batch.
        """
        noted = self.noted[input]
        back = self.window.reach.back[1 - input]  # so far back do tuples of the other side look
        past = noted.below(frontier, back)
        alone = np.flatnonzero(~noted.matched[:past])
        if len(alone) and int(noted.ts[alone[-1]]) + back > order.AFTER_ALL:
            raise DataError(
                f"A result's ts, {int(noted.ts[alone[-1]])} + {back}, lies beyond 64 bits",
                why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
                do="Use a shorter window, or leave such tuples out",
            )
        ids, ts = noted.first + alone, noted.ts[alone] + back
        noted.forget(past)
        n = len(ts)
        if n == 0:
            return self.nothing
        rows = self.rows[input].take(ids, self.shown[input])
        shown = self.columns(pa.array(ts), *((rows, None) if input == 0 else (None, rows)))
        place = np.arange(n)
        return Results(shown, pa.concat_arrays([keys.at_last(ts, input), self._keys(input, ids)]), place, n + place)

    def _trim(self, frontier: int) -> None:
        """Let go of rows that no later tuple can meet.

        The frontier may be AFTER_ALL, which is no ts that the window can compute with: it is taken as the moment after
        the last one. Marks of rows that never come alone go with the rows. Others have gone in `_unmatched`.
        """
        if frontier > order.BEFORE_ALL:
            self.window.advance(min(frontier, order.TS_MAX + 1))
        for input in (0, 1):
            self.rows[input].expire(self.window.live_from(input))
        for side, noted in self.noted.items():
            if side not in self.how.alone:
                noted.forget(self.window.live_from(side) - noted.first)

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Whether no row of a chunk can be in a result that is still to come.

        True too early would lose pairs after a restart. True too late only holds state longer. A chunk that has a tuple
        at or above the frontier is never let go, since that tuple is pending.

        For a window that counts tuples, time says nothing: a row lives until enough later tuples of its own stream have
        been released. The manifest tells how many each step has released, so this needs no look at the rows.
        """
        input, max_ts, reach = chunk.input, chunk.last_ts, self.window.reach
        if max_ts >= frontier:
            return False
        if reach.counts:
            # Of the tuples released after the frontier had passed the chunk, all follow it.
            passed = zip(steps[1:], steps, strict=False)
            later = sum(step.released[input] for step, before in passed if before.frontier > max_ts)
            return later >= reach.longest
        since = frontier
        if 1 - input in self.noted:
            # A row of the other side that still waits must be seen to have matched, after a restart too.
            since = reach.first(input, frontier)
        return frontier == order.AFTER_ALL or bool(max_ts < reach.first(1 - input, since))


class Noted:
    """Of one side's rows that may still find a partner, whether they have.

    `first` is the number of the first of them; those before it are decided. `ts` rise, so a search finds those whose time is
    over.
    """

    def __init__(self) -> None:
        self.first, self.ts, self.matched = 0, np.zeros(0, np.int64), np.zeros(0, bool)

    def note(self, new_ts: np.ndarray, matched: np.ndarray) -> np.ndarray:
        """Rows that came, and then the numbers of rows in pairs; gives the places of pairs that are a row's first."""
        self.ts = np.concatenate([self.ts, new_ts])
        self.matched = np.concatenate([self.matched, np.zeros(len(new_ts), bool)])
        ids, at = np.unique(matched, return_index=True)
        firsts = np.sort(at[~self.matched[ids - self.first]])
        self.matched[ids - self.first] = True
        return firsts

    def below(self, frontier: int, back: int) -> int:
        """How many have no partner to wait for once all tuples below the frontier have come."""
        if frontier == order.AFTER_ALL:
            return len(self.ts)
        # Python's integers: ts + back may lie beyond the last ts, the frontier at the end of all.
        return int(np.searchsorted(self.ts, max(frontier - back, order.BEFORE_ALL), "left"))

    def forget(self, number: int) -> None:
        """The first few, which are decided."""
        self.first += number
        self.ts, self.matched = self.ts[number:], self.matched[number:]
