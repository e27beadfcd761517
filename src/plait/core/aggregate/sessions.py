"""Sessions: a group's tuples of which each comes less than a gap after the one before it.

A session is one slot: a tuple updates it, nothing is merged, and it ends when its group has been silent for the gap (design.md,
section 1). `window_start` is its first tuple's ts, `window_end` its last one's plus the gap, and it is given out when the
frontier is at or after that. Rows come by (end, key). What is held are sessions that are not out yet.

A group may have several of these: one that is open, and others that have ended and wait for the frontier. Held against the
reference in tests/core/aggregate/test_sessions.py.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core.aggregate.closed import Closed, Edges, Pairs
from plait.core.aggregate.columns import Read
from plait.core.aggregate.span import FIRST, PaneWindows
from plait.core.kernels import panes
from plait.errors import DataError
from plait.order import AFTER_ALL
from plait.query.aggregate import SessionWindow
from plait.query.bind import Bound

_MOST = np.iinfo(np.int64).max


class SessionPanes(PaneWindows):
    """Sessions of groups.

    Attributes, arrays of int64. By group: `_open`, the slot of its session that may go on, -1 for none. By slot: `_group`,
    `_first` and `_last`, the ts of its first and last tuple. `_free[:_left]` are slots that nobody uses, as a stack;
    `_used` says of each slot whether it is in use. `_due` is a time before which no session ends: sessions are not looked at
    before.
    """

    def __init__(self, bound: Bound, window: SessionWindow) -> None:
        self.gap = window.gap_us
        self._open = np.full(FIRST, -1, np.int64)
        self._group, self._first, self._last = (np.zeros(0, np.int64) for _ in range(3))
        self._free, self._left, self._used = np.zeros(0, np.int64), 0, np.zeros(0, bool)
        self._due = _MOST
        super().__init__(bound)

    @property
    def oldest(self) -> int:
        """The ts at which the oldest session began that is not out yet: nothing before it is needed any more."""
        return int(self._first[self._used].min(initial=AFTER_ALL))

    def holds(self, rows: pa.Table, ts: np.ndarray) -> np.ndarray:
        """A mask of rows that were taken before: whether their sessions are not out yet.

        A group's sessions that are held follow those that are out: a row is in one of them if it does not lie before the first.
        """
        group = self.groups.find_rows(rows)
        first = np.full(max(self.groups.capacity, len(self._open)), AFTER_ALL, np.int64)
        used = np.flatnonzero(self._used)
        np.minimum.at(first, self._group[used], self._first[used])
        return np.asarray(ts >= first[group])

    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
        n = len(ts)
        self._make_room(n)
        slot, fresh = np.empty(n, np.int64), np.empty(n, np.int64)
        new = int(panes.assign_sessions(
            ts, group, np.uint64(self.gap), self._open, self._group, self._first, self._last, self._free, self._left, slot,
            fresh,
        ))  # fmt: skip
        self._left -= new
        self._used[fresh[:new]] = True
        for accumulator in self.accumulators:
            accumulator.clear(fresh[:new])
        self._update(0, n, slot, read, refs)
        self._due = min(self._due, _end(int(ts[0]), self.gap))
        return self._pass(frontier)

    def _pass(self, frontier: int) -> list[Closed]:
        """Sessions that end at or before the frontier. Those that have ended are found by looking at all that are held, which is
        done only once the earliest of them may have.
        """
        if frontier < self._due:
            return []
        used = np.flatnonzero(self._used)
        last = self._last[used]
        beyond = last > _MOST - self.gap
        if frontier == AFTER_ALL and beyond.any():
            raise DataError(
                "A result's 'window_end' lies beyond 64 bits",
                why="a ts this near to the end of time, and a gap this long, have a sum that can't be counted",
                do="Use a shorter gap, or leave such tuples out",
            )
        end = np.where(beyond, _MOST, last + np.where(beyond, 0, self.gap))
        ended = (end <= frontier) & ~beyond
        self._due = int(end[~ended].min(initial=_MOST))
        slots, end = used[ended], end[ended]
        if not len(slots):
            return []
        order = np.lexsort((self.groups.ranks(self._group[slots]), end))
        slots, end = slots[order], end[order]
        group = self._group[slots]
        number = len(slots)
        rows = self._rows(Pairs(number, np.arange(number), slots), group, Edges(end - 1, self._first[slots], end))
        self._give_back(slots, group)
        return [Closed(rows)]

    def _give_back(self, slots: np.ndarray, group: np.ndarray) -> None:
        """Slots of sessions that are out."""
        own = self._open[group] == slots
        self._open[group[own]] = -1
        for lists in self.lists.values():
            lists.drop(slots)
        self._used[slots] = False
        self._free[self._left : self._left + len(slots)] = slots
        self._left += len(slots)

    def _make_room(self, n: int) -> None:
        """An entry for every group that may have a number, and `n` free slots: each tuple may begin a session."""
        groups = self.groups.capacity
        if groups > len(self._open):
            self._open = np.concatenate((self._open, np.full(groups - len(self._open), -1, np.int64)))
        if self._left >= n:
            return
        old, self.capacity = self.capacity, max(2 * self.capacity, FIRST)
        while self._left + self.capacity - old < n:
            self.capacity *= 2
        more = self.capacity - old
        for accumulator in self.accumulators:
            accumulator.reserve(self.capacity)
        self._group, self._first, self._last = (
            np.concatenate((a, np.zeros(more, np.int64))) for a in (self._group, self._first, self._last)
        )
        self._used = np.concatenate((self._used, np.zeros(more, bool)))
        free = np.zeros(self.capacity, np.int64)
        free[: self._left] = self._free[: self._left]
        free[self._left : self._left + more] = np.arange(old, self.capacity)
        self._free, self._left = free, self._left + more

    def _live(self) -> np.ndarray:
        return np.flatnonzero(self._used)

    def _held(self, groups: int) -> np.ndarray:
        held = np.zeros(groups, bool)
        held[self._group[self._used]] = True
        return held


def _end(ts: int, gap: int) -> int:
    return min(ts + gap, int(_MOST))
