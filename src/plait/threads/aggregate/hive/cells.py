"""A source's cells: its own part of every window it has tuples in, until the winset is taken.

One thread at a time is in here for a source; nothing is shared but through the hive and `parts`, which the taker reads after it
has acquired what the source wrote last. Cells and the arena's words are used again once the taker has let go of their pane.

A cell is a row of this source's accumulators, for one key in one pane; cells are numbered for ever, and lie in a ring.
`_kept` has each cell's key. Python is here once a batch, in three steps: find every tuple's cell (`batch.place`),
clear the new ones, update (`Accumulator.update`).
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import Frozen, in_ring
from plait.core.aggregate.columns import is_fixed, plain
from plait.core.aggregate.groups import SMALL, Groups
from plait.core.aggregate.reads import Columns
from plait.core.aggregate.span import span_window
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads.aggregate.hive import batch as hive_batch
from plait.threads.aggregate.hive import hive
from plait.threads.aggregate.hive import words as y
from plait.threads.aggregate.hive.functions import accumulators
from plait.threads.aggregate.hive.memory import Hive

FIRST_CELLS, FIRST_PANES = 1024, 256


class Cells:
    """One source's. `parts` are, as of its last batch, its cells' keys, the places of their windows, and its accumulators.

    Attributes: `accumulators` one a function of the query; `_window` the place of each cell's window, where windows
    are shared; `_own` the words of `batch.place`; `_panes` this source's panes that were not let go of; `_direct` and
    `_table` key to cell; `_small` whether a key is one column of fixed width, and no float.
    """

    def __init__(self, bound: Bound, hive_: Hive, slot: int, columns: Columns, groups: Groups, *, shared: bool) -> None:
        assert isinstance(bound.node, Aggregate)
        window, schema = span_window(bound), bound.inputs[0].schema
        self.size, self.advance = window.size_us, window.advance_us
        self.slot, self._hive, self._columns, self._groups = slot, hive_, columns, groups
        self.accumulators = accumulators(bound.node, schema)
        for accumulator in self.accumulators:
            accumulator.regrow(FIRST_CELLS, 0, 0)
        self._shared = shared
        self._window = np.zeros(FIRST_CELLS if shared else 0, np.int64)
        self._kept = np.zeros((hive_.keys, FIRST_CELLS), np.int64)
        self.parts = self._frozen()
        self._own = np.zeros(hive_batch.OWN_WORDS, np.int64)
        self._panes = np.zeros((3, FIRST_PANES), np.int64)  # of each pane not let go of: number, first cell, first word
        self._direct, self._table = np.full(SMALL, -1, np.int64), np.full(2 * FIRST_CELLS, -1, np.int64)
        kind = schema.field(bound.node.by[0]).type if bound.node.by else None
        self._small = len(bound.node.by) == 1 and is_fixed(kind) and not pa.types.is_floating(plain(kind))

    def take(self, rows: pa.RecordBatch | pa.Table, ts: np.ndarray) -> None:
        """Tuples of this source, in its order.

        By the thread that pushes the source. If memory runs out in the midst of a batch, what was placed is updated
        first, then more is made, then it goes on. `parts` is replaced at the end: the taker reads it after it has
        acquired WRITTEN.
        """
        n, own = len(ts), self._own
        arrays = self._columns.arrays(rows, ts)
        read = self._columns.read(arrays, n)
        varied = rows.select(list(self._columns.varied)) if self._columns.varied else None
        words = self._groups.key_words(read, varied, n, int(ts[-1]))
        flat = words.reshape(-1)
        out, low = np.empty(n, np.int64), 0
        rest, gaps = self.size % self.advance, self.size < self.advance
        self._use_again()
        while True:
            before = int(own[hive_batch.CELL_END])
            with self._hive.inside() as h:
                high = int(hive_batch.place(
                    h, self.slot, ts, words, flat, low, n, self.advance, rest, gaps, self._small, self._shared, own,
                    *self._panes, self._direct, self._table, self._kept, self._window, out,
                ))  # fmt: skip
            self._clear(before, int(own[hive_batch.CELL_END]))
            for accumulator in self.accumulators:
                accumulator.update(low, high, out, read, ts)
            if high == n:
                break
            self._make_room(n - high)
            low = high
        self.parts = self._frozen()

    def _frozen(self) -> tuple[np.ndarray, np.ndarray, list[Frozen]]:
        return self._kept, self._window, [a.frozen() for a in self.accumulators]

    def written(self, ts: int) -> None:
        """No tuple below `ts` comes any more."""
        pane = self.pane(ts)
        with self._hive.inside() as h:
            hive.advance(h, self.slot, pane)

    def pane(self, ts: int) -> int:
        """The pane of a ts that a source may promise, the first and the last included."""
        return pane_of_promise(ts, self.size, self.advance)

    def ahead(self, ts: int) -> int:
        """Cells in panes after the one `ts` lies in."""
        own, pane = self._own, self.pane(ts)
        end = int(own[hive_batch.PANE_END])
        at = bisect_right(self._panes[0, :end], pane)
        return 0 if at == end else int(own[hive_batch.CELL_END] - self._panes[1, at])

    def live(self) -> int:
        """Cells in panes that the taker has not let go of."""
        self._use_again()
        return int(self._own[hive_batch.CELL_END] - self._own[hive_batch.CELL_FREED])

    @property
    def nbytes(self) -> int:
        own = (self._kept, self._window, self._direct, self._table, self._panes)
        return sum(a.nbytes for a in self.accumulators) + int(sum(a.nbytes for a in own))

    def _clear(self, first: int, end: int) -> None:
        """Neutral values for cells [first, end), which may lie at both ends of the ring."""
        mask = self._kept.shape[1] - 1
        if end > first:
            low, high = first & mask, (end - 1 & mask) + 1
            spans = [(low, high)] if low < high else [(low, mask + 1), (0, high)]
            for accumulator in self.accumulators:
                for span in spans:
                    accumulator.wipe(*span)

    def _use_again(self) -> None:
        """Cells and words of panes that the taker has let go of.

        The first look is plain and costs nothing; it may see an old PASSED, and then memory is freed a little later.
        """
        own, panes = self._own, self._panes
        end = int(own[hive_batch.PANE_END])
        if end == 0 or int(panes[0, 0]) >= int(self._hive.words[y.PASSED]):
            return  # a glance, which may be at old memory, where less has been let go of
        with self._hive.inside() as h:
            gone = bisect_right(panes[0, :end], int(hive.passed(h)) - 1)
            if gone == 0:
                return
            s = y.source_at(self.slot)
            own[hive_batch.CELL_FREED] = panes[1, gone] if gone < end else own[hive_batch.CELL_END]
            h[s + y.ARENA_FREED] = panes[2, gone] if gone < end else h[s + y.ARENA_END]
        panes[:, : end - gone] = panes[:, gone:end].copy()
        own[hive_batch.PANE_END] = end - gone

    def _make_room(self, n: int) -> None:
        """More of what there was too little of.

        NEED says what was short. Each kind grows alone, mostly by four: nodes and arenas are the hive's (all sources
        stop for that), the others this source's own.
        """
        own = self._own
        first, end = int(own[hive_batch.CELL_FREED]), int(own[hive_batch.CELL_END])
        self._use_again()
        match int(own[hive_batch.NEED]):
            case hive_batch.NODES:
                self._hive.grow(self.slot, nodes=True)
            case hive_batch.ARENA:
                self._hive.grow(self.slot, nodes=False)
            case hive_batch.PANES:
                self._panes = np.concatenate((self._panes, np.zeros_like(self._panes)), axis=1)
            case hive_batch.CELLS:
                first = int(own[hive_batch.CELL_FREED])
                capacity = self._kept.shape[1]
                while end - first + n > capacity // 2:
                    capacity *= 4
                for accumulator in self.accumulators:
                    accumulator.regrow(capacity, first, end)
                self._kept = in_ring(self._kept.T, capacity, first, end).T.copy()
                if self._shared:
                    self._window = in_ring(self._window, capacity, first, end)
            case _:
                opened = int(own[hive_batch.OPEN_CELL])
                capacity = len(self._table)
                while 4 * (end - opened + n) > capacity:
                    capacity *= 4
                self._table = np.full(capacity, -1, np.int64)
                hive_batch.reindex(self._kept, opened, end, self._table)


def pane_of_promise(ts: int, size: int, advance: int) -> int:
    """The pane of a ts, of one beyond all tuples too: as far as its number fits."""
    if ts == BEFORE_ALL:
        return y.FIRST
    if ts == AFTER_ALL:
        return y.LAST
    return int(hive_batch.pane_at(min(ts, FAR), size, advance))


FAR = 2**62 + 2**61  # promises above are taken for this: tuples are far below
