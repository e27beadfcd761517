"""Windows of so many tuples of a group.

A window of `size` tuples that advances by `advance` is, for each group, the tuples numbered k*advance up to, not with,
k*advance + size, for every k >= 0 (design.md, section 1: count windows). Numbers are counted in each group by itself, in
total order, from 0. The first window of a group closes at its tuple number size - 1; a window that is not filled when the
input ends gives no row. So time plays no part here, and the frontier is not asked.

Example: size 3, advance 2. Tuples 0 1 2 make window 0, tuples 2 3 4 window 1. The panes are 0, 1, 2, 3 ... of one tuple
each here (the rest of 3 divided by 2 is 1, so panes alternate between 1 tuple and 2 - 1 = 1 tuple). Tuple 2 updates one
slot, and both windows are merged from it.

A row is ordered by the tuple that closed its window. Its ts is that tuple's ts, `window_start` and `window_end` are
numbers of tuples. Held against the reference in tests/core/aggregate/test_panes.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core.aggregate.closed import Closed, Edges, Pairs
from plait.core.aggregate.columns import Read
from plait.core.aggregate.span import CHUNK, PaneWindows
from plait.core.kernels import panes
from plait.query.aggregate import TupleWindow
from plait.query.bind import Bound

FIRST = 1024


class TuplePanes(PaneWindows):
    """Windows of a group's tuples. A group is never forgotten: how many tuples it had decides where its windows lie.

    Attributes, all of int64. By group: `_seen`, how many tuples it has had; `_head` and `_tail`, the first and last slot
    of its panes that open windows still need, -1 if there are none. By slot: `_pane`, the number of its pane within its
    group; `_next`, the group's following slot, -1 at the end. `_free[:_left]` are the slots that nobody uses, as a stack.

    Slots are used again as soon as no window needs them, so memory follows the panes of open windows. `_seen` is all that
    stays of a group for ever: `_held` says that every group with a tuple is held.
    """

    def __init__(self, bound: Bound, window: TupleWindow) -> None:
        self.size, self.advance = window.size, window.advance
        super().__init__(bound)
        self._seen, self._head, self._tail = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pane, self._next = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._free, self._left = np.zeros(0, np.int64), 0

    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
        """Assign slots, update the accumulators, and make the rows of windows that close, of at most CHUNK tuples.

        `group` is the group of each tuple. `at` is the place of the first of them in the batch, so that triggers are
        places in the batch. `frontier` is not used: windows of tuples close at a tuple.

        The kernel stops where an array is full (slots, rows, or pairs of a row and a slot), tells how far it came, and is
        called again for the rest. Accumulators are updated before rows are merged: a window that closes at tuple i has
        tuple i in it. Later tuples of the same stretch can't get in: a window ends where a pane ends, so they update other
        slots. Slots are given back after the rows were made, never before.
        """
        n, low, out = len(ts), 0, []
        slot = np.empty(n, np.int64)
        most = 2 * (self.size // self.advance) + 4
        told = np.zeros(6, np.int64)
        while low < n:
            self._make_room(n - low)
            room = max(CHUNK, 4 * most)
            fresh, dropped = np.empty(n, np.int64), np.empty(self.capacity, np.int64)
            row_group, window, trigger = (np.empty(n, np.int64) for _ in range(3))
            targets, slots = np.empty(room, np.int64), np.empty(room, np.int64)
            panes.assign_counted(
                group, low, n, self.size, self.advance, self._seen, self._head, self._tail, self._pane, self._next,
                self._free, self._left, slot, fresh, row_group, window, trigger, targets, slots, dropped, told,
            )  # fmt: skip
            high, self._left, new, number, pairs, gone = (int(v) for v in told)
            for accumulator in self.accumulators:
                accumulator.clear(fresh[:new])
            self._update(low, high, slot, read, refs)
            if number:
                by = trigger[:number]
                start = window[:number] * self.advance
                rows = self._rows(
                    Pairs(number, targets[:pairs], slots[:pairs]), row_group[:number],
                    Edges(ts[by], start, start + self.size),
                )  # fmt: skip
                out.append(Closed(rows, by + at))
            for lists in self.lists.values():
                lists.drop(dropped[:gone])
            self._free[self._left : self._left + gone] = dropped[:gone]
            self._left += gone
            low = high
        return out

    def _make_room(self, n: int) -> None:
        """Have an entry for every group that may have a number, and at least `n` free slots: each tuple may need a new one.

        Everything is doubled, so a slot is copied a constant number of times. Old slots keep their numbers.
        """
        groups = self.groups.capacity
        if groups > len(self._seen):
            more = groups - len(self._seen)
            self._seen = np.concatenate((self._seen, np.zeros(more, np.int64)))
            self._head, self._tail = (
                np.concatenate((a, np.full(more, -1, np.int64))) for a in (self._head, self._tail)
            )
        if self._left < n:
            old, self.capacity = self.capacity, max(2 * self.capacity, FIRST)
            while self._left + self.capacity - old < n:
                self.capacity *= 2
            more = self.capacity - old
            for accumulator in self.accumulators:
                accumulator.reserve(self.capacity)
            self._pane, self._next = (np.concatenate((a, np.zeros(more, np.int64))) for a in (self._pane, self._next))
            free = np.zeros(self.capacity, np.int64)
            free[: self._left] = self._free[: self._left]
            free[self._left : self._left + more] = np.arange(old, self.capacity)
            self._free, self._left = free, self._left + more

    def _live(self) -> np.ndarray:
        """Every slot that is not free."""
        used = np.ones(self.capacity, bool)
        used[self._free[: self._left]] = False
        return np.flatnonzero(used)

    def _held(self, groups: int) -> np.ndarray:
        """A mask over groups: those that have had a tuple. They are never forgotten, see the class."""
        held = np.zeros(groups, bool)
        held[: len(self._seen)] = self._seen > 0
        return held


class RankedPanes(TuplePanes):
    """Windows of tuples that can be taken up again: each tuple's number in its group, its rank, decides where it belongs.

    Spark's cells use it: what they store are tuples and ranks, not slots. A rank is counted from 0. How many tuples a group
    has had must outlive them: so of a group all tuples are kept whose windows are still to close, and at least the last one, with
    their ranks. They stand in a row, so the first one's rank is where counting goes on.
    """

    def ranks(self, rows: pa.Table) -> np.ndarray:
        """The ranks that tuples will have which are to be taken next.

        int64, one a row, in the order of `rows`. Nothing is taken by this call.
        """
        group = self._known(rows)
        order = np.argsort(group, kind="stable")
        first = np.ones(len(group), bool)
        first[1:] = group[order][1:] != group[order][:-1]
        begin = np.flatnonzero(first)
        run = np.arange(len(group)) - np.repeat(begin, np.diff(np.append(begin, len(group))))
        out = np.empty(len(group), np.int64)
        out[order] = run
        return np.asarray(out + self._seen[group])

    def needed(self, rows: pa.Table, ranks: np.ndarray) -> np.ndarray:
        """Of tuples taken before, those that have to be kept.

        A mask. `rows` are tuples with their `ranks`. A tuple is needed by the next window that closes, number `window`,
        or any later one, if its rank is not below where that window begins. The last tuple of a group is needed for its
        rank alone.
        """
        seen = self._seen[self._known(rows)]
        window = np.maximum((seen - self.size) // self.advance + 1, 0)
        return np.asarray((ranks >= window * self.advance) | (ranks == seen - 1))

    def go_on(self, rows: pa.Table, ranks: np.ndarray) -> None:
        """Tuples that were kept, in order, are to be taken next: count from the first of each group."""
        group, at = np.unique(self._known(rows), return_index=True)
        self._seen[group] = ranks[at]

    def _known(self, rows: pa.Table) -> np.ndarray:
        group = self.groups.find_rows(rows)
        self._make_room(0)
        return group
