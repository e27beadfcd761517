"""Windows of event time: panes that slide (`core.kernels.slides`).

Windows are [k*advance, k*advance + size) for every integer k, aligned at 0, in microseconds (design.md, section 1). A
row's ts is its window's end - 1, and rows come by (ts, key). A window closes when the frontier is at or after its end.
Windows without a tuple give no row.

Panes are as `core.kernels.panes` says: a tuple belongs to one pane, however many windows overlap. With size 30 s and
advance 3 s a tuple is added once, not ten times, and a window is merged from ten panes; and since windows follow one
another, only the pane that came and the pane that left are looked at (`core.kernels.slides`).
"""

from __future__ import annotations

import numpy as np

from plait.core.aggregate.base import CHUNK, Closed, PaneWindows
from plait.core.aggregate.closed import Slid
from plait.core.aggregate.columns import Read
from plait.core.kernels import panes, slides
from plait.errors import DataError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate, SpanWindow
from plait.query.bind import Bound

FIRST = 1024
FEW_SLOTS = 4  # known groups for each slot that is held: with more of them a window's rows are sorted, instead of all groups once
WINDOWS = 1 << 10  # that are closed at once


def span_window(bound: Bound) -> SpanWindow:
    """The window of an aggregate for what serves windows of time only: its record (`panes`) says which these are."""
    assert isinstance(bound.node, Aggregate)
    if not isinstance(bound.node.window, SpanWindow):
        raise TypeError(f"{type(bound.node.window).__name__} is no window of event time, though its record says so")
    return bound.node.window


class SpanPanes(PaneWindows):
    """Windows of event time.

    - `_state`: the words of `core.kernels.panes`, which kernels change: which panes and slots are in use, the next
      window.
    - `_pane_id`, `_pane_slot`: by pane, its number and its first slot. A pane's slots end where the next one's begin.
    - `_slot_group`: by slot, its group. `_slot_next`: the slot of the same group in a later pane.
    - `_slot_of`, `_head`, `_tail`: by group, see below; -1 for none.

    Panes come in order of time and go from the oldest on, so both panes and slots are a stretch of their arrays. When an
    array is full, the stretch is moved to its front (`_move`), and grown if it fills more than half.
    """

    def __init__(self, bound: Bound, window: SpanWindow) -> None:
        self._state = np.zeros(panes.STATE_WORDS, np.int64)
        self._state[panes.NEXT_WINDOW] = BEFORE_ALL
        self._pane_id, self._pane_slot = np.zeros(FIRST, np.int64), np.zeros(FIRST, np.int64)
        self._slot_group = np.zeros(0, np.int64)
        self._slot_next = np.zeros(0, np.int64)
        # By group: its slot in the open pane, and its first and last slot in the window that was closed last.
        self._slot_of, self._head, self._tail = (np.full(FIRST, -1, np.int64) for _ in range(3))
        self.size, self.advance = window.size_us, window.advance_us
        super().__init__(bound)
        self._dropped = 0  # slots below have been dropped from lists

    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
        self._update(0, len(ts), self._assign(ts, group), read, refs)
        return self._pass(frontier)

    def _assign(self, ts: np.ndarray, group: np.ndarray) -> np.ndarray:
        """The slot of each tuple, int64; -1 for one in a gap between windows (size below advance). `ts` ascends, and follows
        all that came before.
        """
        n = len(ts)
        self._make_room(n)
        slot = np.empty(n, np.int64)
        panes.assign(ts, group, 0, n, self.size, self.advance, self._state, self._pane_id, self._pane_slot,
                     self._slot_group, self._slot_of, slot)  # fmt: skip
        return slot

    def skip(self, frontier: int) -> None:
        """Rows of windows that end at or before the frontier are out already: they are not given again.

        Used when a run goes on from a checkpoint: panes are given again, since later windows need them, and windows that
        were given out before must not come twice.
        """
        if frontier > BEFORE_ALL + self.size:
            state = self._state
            state[panes.NEXT_WINDOW] = max(int(state[panes.NEXT_WINDOW]), (frontier - self.size) // self.advance + 1)

    def open_panes(self, ids: list[int], sizes: list[int], group: np.ndarray) -> int:
        """Panes that come whole, after all before them: how many groups each has, and which; gives the first one's slot.

        Accumulators have the slots of all groups, in this order, and are to be filled by the caller.

        `ids` are the panes' numbers, ascending, above all before them; `sizes` how many groups each has; `group` all
        their groups, one after another. A group stands at most once in a pane.
        """
        self._make_room(max(len(group), len(ids)))
        s, first = self._state, int(self._state[panes.SLOT_END])
        at, pane = first, int(s[panes.PANE_END])
        for number, size in zip(ids, sizes, strict=True):
            self._pane_id[pane], self._pane_slot[pane] = number, at
            at, pane = at + size, pane + 1
        self._slot_group[first:at] = group
        s[panes.SLOT_END], s[panes.PANE_END], s[panes.STARTED] = at, pane, 1
        return first

    def open_parts(self, ids: np.ndarray, spans: np.ndarray, base: np.ndarray, group: np.ndarray) -> np.ndarray:
        """As `open_panes`, for panes in parts, whose groups are given: see
        `core.kernels.panes.assign_parts`. Gives their slots."""
        self._make_room(max(len(group), len(ids)))
        slot = np.empty(len(group), np.int64)
        panes.assign_parts(
            ids, spans, base, group, self._state, self._pane_id, self._pane_slot, self._slot_group, self._slot_of, slot
        )
        return slot

    def close(self, frontier: int) -> list[Closed]:
        """The windows that end at or before the frontier."""
        return self._pass(frontier)

    def _pass(self, frontier: int) -> list[Closed]:
        """Rows come in stretches of at most WINDOWS windows, until no window is left that can close. Near BEFORE_ALL nothing
        is done: frontier - size would leave 64 bits there.

        At the end of input a pane that is left has a window whose end is beyond 64 bits: that is refused. Losing the
        window silently would be the alternative.
        """
        out: list[Closed] = []
        if frontier <= BEFORE_ALL + self.size:
            return out
        state = self._state
        while True:
            slid, window = self._slide(frontier)
            if slid.number:
                start = window * self.advance
                edges = [start + self.size - 1, start, start + self.size]
                out.append(Closed(self._rows(slid, slid.row_group, edges)))
            elif slid.moved:
                self._follow(slid)
            if len(slid.bounds) == 2:
                break
        if frontier == AFTER_ALL and state[panes.PANE_FIRST] < state[panes.PANE_END]:
            raise DataError(
                "A result's 'window_end' lies beyond 64 bits",
                why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
                do="Use a shorter window, or leave such tuples out",
            )
        if self.lists is not None and state[panes.SLOT_FIRST] > self._dropped:
            self.lists.drop(np.arange(self._dropped, int(state[panes.SLOT_FIRST])))
            self._dropped = int(state[panes.SLOT_FIRST])
        return out

    def _slide(self, frontier: int) -> tuple[Slid, np.ndarray]:
        """Windows that close, some of them or none, with their rows in order; and the number of each row's window.

        Rows of one window must be in the order of keys. If a good part of all groups is in the window, all groups are
        ranked once (`Groups.in_order`, kept until groups change) and walked through for each window. If the window has
        few of many groups, the kernel gives rows in any order and they are sorted here.
        """
        state = self._state
        held = int(state[panes.SLOT_END] - state[panes.SLOT_FIRST])
        room = max(CHUNK, held)
        group, window, head = (np.empty(room, np.int64) for _ in range(3))
        bounds = np.empty((WINDOWS + 2, 3), np.int64)
        ranked = self.groups.in_order() if held * FEW_SLOTS >= self.groups.number else np.zeros(0, np.int64)
        windows = slides.slide(
            frontier, self.size, self.advance, state, self._pane_id, self._pane_slot, self._slot_group, self._slot_next,
            self._head, self._tail, ranked, group, window, head, bounds,
        )  # fmt: skip
        bounds = bounds[: windows + 2]
        number = int(bounds[-1, slides.ROWS])
        group, window, head = group[:number], window[:number], head[:number]
        if number and len(ranked) == 0:
            order = np.lexsort((self.groups.ranks(group), window))
            group, head = group[order], head[order]
        shift = int(state[panes.SHIFT])
        slid = Slid(bounds, shift, self._slot_group, self._slot_next, group, head, self.groups.capacity)
        return slid, window

    def _follow(self, slid: Slid) -> None:
        """Panes came or went, and no row with them: running totals are brought up to date."""
        for accumulator in self.accumulators:
            if accumulator is not self.lists:
                accumulator.merged(slid)

    def _make_room(self, n: int) -> None:
        """Room for `n` more tuples: each may open a pane and a slot, and there may be new groups. Arrays are kept at most
        half full after a move, so a slot is moved a constant number of times on average.
        """
        s = self._state
        if self.groups.capacity > len(self._slot_of):
            for name in ("_slot_of", "_head", "_tail"):
                old = getattr(self, name)
                grown = np.full(self.groups.capacity, -1, np.int64)
                grown[: len(old)] = old
                setattr(self, name, grown)
        slots, live = int(s[panes.SLOT_END]), int(s[panes.SLOT_END] - s[panes.SLOT_FIRST])
        count, held = int(s[panes.PANE_END]), int(s[panes.PANE_END] - s[panes.PANE_FIRST])
        if slots + n > self.capacity or count + n > len(self._pane_id):
            self._move()
            if live + n > self.capacity // 2:
                while live + n > self.capacity // 2:
                    self.capacity = max(2 * self.capacity, FIRST)
                for accumulator in self.accumulators:
                    accumulator.reserve(self.capacity)
                more = np.zeros(self.capacity - len(self._slot_group), np.int64)
                self._slot_group, self._slot_next = (np.append(a, more) for a in (self._slot_group, self._slot_next))
            if held + n > len(self._pane_id) // 2:
                more = np.zeros(2 * (held + n), np.int64)
                self._pane_id, self._pane_slot = (
                    np.concatenate((a[: int(s[panes.PANE_END])], more)) for a in (self._pane_id, self._pane_slot)
                )

    def _move(self) -> None:
        """Panes and slots in use become the first ones.

        Slots get new numbers: what was s is s - first. Lists of slots through `head`, `tail` and `slot_next` have numbers
        that never change (s + SHIFT), so they need no rewriting; SHIFT grows by `first` instead. `_slot_of` has present
        numbers and is corrected, for the groups of the open pane, which are the only ones that have an entry.
        """
        s = self._state
        first, end = int(s[panes.SLOT_FIRST]), int(s[panes.SLOT_END])
        pane, last = int(s[panes.PANE_FIRST]), int(s[panes.PANE_END])
        if pane == last and last > 0:
            # The open pane is given up: the groups that had slots in it have none.
            self._slot_of[self._slot_group[int(self._pane_slot[last - 1]) : end]] = -1
            s[panes.STARTED] = 0
            first = end
        elif last > pane:
            self._slot_of[self._slot_group[int(self._pane_slot[last - 1]) : end]] -= first
        for accumulator in self.accumulators:
            accumulator.move(first, end)
        for kept in (self._slot_group, self._slot_next):
            kept[: end - first] = kept[first:end].copy()
        self._pane_id[: last - pane] = self._pane_id[pane:last].copy()
        self._pane_slot[: last - pane] = self._pane_slot[pane:last].copy() - first
        s[panes.SLOT_FIRST], s[panes.SLOT_END] = 0, end - first
        s[panes.PANE_FIRST], s[panes.PANE_END], s[panes.ADDED] = 0, last - pane, int(s[panes.ADDED]) - pane
        s[panes.SHIFT] += first
        self._dropped = 0

    def _live(self) -> np.ndarray:
        return np.arange(int(self._state[panes.SLOT_FIRST]), int(self._state[panes.SLOT_END]))

    def _held(self, groups: int) -> np.ndarray:
        held = np.zeros(groups, bool)
        held[self._slot_group[int(self._state[panes.SLOT_FIRST]) : int(self._state[panes.SLOT_END])]] = True
        return held
