"""Windows of so many tuples of a group."""

from __future__ import annotations

import numpy as np

from plait.core.aggregate.base import CHUNK, Closed, PaneWindows
from plait.core.aggregate.closed import Pairs
from plait.core.aggregate.columns import Read
from plait.core.kernels import panes
from plait.query.aggregate import TupleWindow
from plait.query.bind import Bound

FIRST = 1024


class TuplePanes(PaneWindows):
    """Windows of a group's tuples. A group is never forgotten: how many tuples it had decides where its windows lie."""

    def __init__(self, bound: Bound, window: TupleWindow) -> None:
        self.size, self.advance = window.size, window.advance
        super().__init__(bound)
        self._seen, self._head, self._tail = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pane, self._next = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._free, self._left = np.zeros(0, np.int64), 0

    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
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
                    [ts[by], start, start + self.size],
                )  # fmt: skip
                out.append(Closed(rows, by + at))
            if self.lists is not None:
                self.lists.drop(dropped[:gone])
            self._free[self._left : self._left + gone] = dropped[:gone]
            self._left += gone
            low = high
        return out

    def _make_room(self, n: int) -> None:
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
        used = np.ones(self.capacity, bool)
        used[self._free[: self._left]] = False
        return np.flatnonzero(used)

    def _held(self, groups: int) -> np.ndarray:
        held = np.zeros(groups, bool)
        held[: len(self._seen)] = self._seen > 0
        return held
