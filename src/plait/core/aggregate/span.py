"""Windows over panes: what all kinds of them share, and windows of event time, whose panes slide (`core.kernels.slides`).

The way of a batch (`PaneWindows.take`): columns as arrays (`reads`), a group number for each tuple (`groups`), a slot for
each tuple (`_assign`), every function adds to its own accumulator (`accumulators`, `lists`), windows that close are merged
from slots, and merged rows become Arrow columns (`closed.Later`). Windows of tuples are in `counted`.

Windows are [k*advance, k*advance + size) for every integer k, aligned at 0, in microseconds (design.md, section 1). A
row's ts is its window's end - 1, and rows come by (ts, key). A window closes when the frontier is at or after its end.
Windows without a tuple give no row.

Panes are as `core.kernels.panes` says: a tuple belongs to one pane, however many windows overlap. With size 30 s and
advance 3 s a tuple is added once, not ten times, and a window is merged from ten panes; and since windows follow one
another, only the pane that came and the pane that left are looked at (`core.kernels.slides`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import Accumulator
from plait.core.aggregate.closed import Closed, Edges, Later, Pairs, Slid, same
from plait.core.aggregate.columns import Read
from plait.core.aggregate.functions import Use, accumulator_of, fold_of
from plait.core.aggregate.groups import Groups
from plait.core.aggregate.kept import KeptRows
from plait.core.aggregate.lists import Listed, Lists
from plait.core.aggregate.reads import Columns, uses
from plait.core.kernels import panes, slides
from plait.core.metrics import Counts
from plait.encodings import recast
from plait.errors import DataError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate, SpanWindow
from plait.query.bind import Bound
from plait.schema import taken

CHUNK = 1 << 16  # tuples at once, and pairs of a row and a slot
FIRST = 1024
FEW_SLOTS = 4  # known groups for each slot that is held: with more of them a window's rows are sorted, instead of all groups once
WINDOWS = 1 << 10  # that are closed at once


def span_window(bound: Bound) -> SpanWindow:
    """The window of an aggregate for what serves windows of time only: its record (`panes`) says which these are."""
    assert isinstance(bound.node, Aggregate)
    if not isinstance(bound.node.window, SpanWindow):
        raise TypeError(f"{type(bound.node.window).__name__} is no window of event time, though its record says so")
    return bound.node.window


class PaneWindows(ABC):
    """What windows of time and of tuples share. One thread at a time.

    A slot is one number that means the same place in every accumulator: one group of one pane. Subclasses say which slot
    a tuple has and which slots make a window; nothing here knows what a pane is.

    - `columns`: what is read of tuples, and how.
    - `kept`: rows that accumulators name by number, of columns that stay in Arrow.
    - `groups`: key columns to group numbers and back.
    - `lists`: a list of row numbers a slot, for all functions that need whole rows and have the same condition; by its number.
    - `accumulators`: all that is updated for each tuple; `lists` are among them.
    - `_results`: of each output column its name and what computes it, an accumulator or a fold over lists.
    - `_refers`: whether anything names rows of `kept`: only then are rows kept at all.
    - `capacity`: slots that the accumulators have room for.
    - `counts`: what `core.metrics` shows; `updates` counts tuples of this share.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Aggregate)
        node, (source,) = bound.node, bound.inputs
        self.schema, self._node = bound.schema, node
        self.columns = Columns(node, source.schema)
        self.kept = KeptRows(pa.schema([source.schema.field(name) for name in self.columns.varied]))
        self.groups = Groups(node, source.schema, self._held)
        self.lists: dict[int | str | None, Lists] = {}
        self.accumulators: list[Accumulator] = []
        self._results: list[tuple[str, Accumulator | Listed]] = []
        for use in uses(node, source.schema, self.kept):
            made = accumulator_of(use)
            if made is not None:
                self.accumulators.append(made)
            self._results.append((use.name, made or Listed(fold_of(use), self._lists_of(use))))
        self._refers = any(a.refs(np.zeros(0, np.int64)) is not None for a in self.accumulators)
        self.capacity = 0
        self.counts = Counts()
        self._crew, self._seat = 1, 0

    def _lists_of(self, use: Use) -> Lists:
        """The lists that a function is given: one tuple is in one list, however many functions look at it."""
        return self._lists(use.condition, use.condition)

    def _lists(self, which: int | str | None, condition: int | None) -> Lists:
        if which not in self.lists:
            self.lists[which] = Lists(condition)
            self.accumulators.append(self.lists[which])
        return self.lists[which]

    def share(self, crew: int, seat: int) -> None:
        """Take the tuples of some groups only: those that a hash of the key gives to `seat`, of `crew`.

        The hash is a function of the key alone, so every thread of the crew decides alike without talking. The rows of a
        window are then spread over the crew, and whoever collects them merges by key (`core.keys`).
        """
        self._crew, self._seat = crew, seat

    @property
    def needs_rows(self) -> bool:
        """Whether `take` has to be given the columns that stay in Arrow."""
        return bool(self.columns.varied)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.accumulators) + int(self.groups.words.nbytes)

    def take_rows(self, rows: pa.Table | pa.RecordBatch, ts: np.ndarray, frontier: int) -> list[Closed]:
        """`take` for tuples that are still in Arrow."""
        return self.take(ts, self.columns.arrays(rows, ts), rows.select(list(self.columns.varied)), frontier)

    def take(
        self, ts: np.ndarray, arrays: list[np.ndarray], rows: pa.Table | pa.RecordBatch | None, frontier: int
    ) -> list[Closed]:
        """Tuples in total order, as `Columns` lays them out, and the frontier after them.

        `ts` is int64, ascending, and not below the frontier of the call before. `arrays` are those of `Columns.arrays`,
        `rows` the columns that stay in Arrow, or None if there are none. Gives the rows of windows that closed, in result
        order. An empty batch passes time on: windows may close by the frontier alone.

        The batch is cut into chunks of CHUNK tuples, so that scratch arrays stay small. Within a batch a chunk's frontier
        is the ts of the tuple that follows: all later ones are at or after it. How the batch is cut does not show in the
        rows.
        """
        out: list[Closed] = []
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        own = None
        if self._crew > 1 and len(ts):
            own = np.flatnonzero(
                self.groups.owner(self.columns.read(arrays, len(ts)), rows, len(ts), self._crew) == self._seat
            )
            ts, arrays = ts[own], [a[own] for a in arrays]
            rows = None if rows is None else taken(rows, own)
        self.counts.updates += len(ts)
        for low in range(0, len(ts), CHUNK):
            high = min(low + CHUNK, len(ts))
            read = self.columns.read([a[low:high] for a in arrays], high - low)
            part = None if rows is None else rows.slice(low, high - low)
            group = self.groups.find(read, part, high - low)
            refs = read.ones
            if self._refers:
                assert part is not None
                first = self.kept.append(part)
                refs = np.arange(first, first + high - low)
            now = frontier if high == len(ts) else int(ts[high])
            out += self._chunk(ts[low:high], group, read, refs, now, low)
        if len(ts) == 0:
            out += self._pass(frontier)
        if self._refers and self.kept.crowded:
            self._let_go()
        if own is not None:
            out = [Closed(c.rows, None if c.triggers is None else own[c.triggers]) for c in out]
        return out

    def describe(self) -> list[str]:
        """How each function is computed, for `explain`."""
        return [
            f"{name} = {function.describe()}: {made.how}"
            for (name, made), (_, function) in zip(self._results, self._node.compute, strict=True)
        ]

    def end(self) -> list[Closed]:
        """The input has ended: every window of time closes."""
        return self._pass(AFTER_ALL)

    @abstractmethod
    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
        """What a kind of window does with one chunk: assign slots, update, close. `frontier`: no later tuple is below it.
        `at`: the place of the chunk's first tuple in the batch, for triggers.
        """

    def _pass(self, frontier: int) -> list[Closed]:
        """Close what can get no more tuples below this frontier. A kind whose windows close at a tuple has nothing to do."""
        return []

    @abstractmethod
    def _live(self) -> np.ndarray:
        """The slots in use."""

    @abstractmethod
    def _held(self, groups: int) -> np.ndarray:
        """A mask of so many groups: which of them have a slot in use, or must be known for another reason. `Groups` forgets
        the rest.
        """

    def _let_go(self) -> None:
        """Tell `kept` which rows are still named by a slot in use. It copies those and drops the others."""
        live = self._live()
        found = [refs for a in self.accumulators if (refs := a.refs(live)) is not None]
        self.kept.keep(np.concatenate(found))

    def _update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        for accumulator in self.accumulators:
            accumulator.update(low, high, slot, read, refs)

    def _rows(self, closed: Pairs | Slid, group: np.ndarray, edges: Edges) -> pa.RecordBatch | Later:
        """Rows of closed windows: ts, window_start and window_end as given, then keys, then what is computed."""
        return self._later(closed, group, edges).built()

    def _later(self, closed: Pairs | Slid, group: np.ndarray, edges: Edges) -> Later:
        """Everything that has to be taken from what goes on changing is taken now: slots are merged, keys looked up.

        `closed` says which slots make each row; `group` is the group of each row, `edges` their windows. Lists are read here
        at once, since their rows may be dropped after this call.
        """
        listed = {
            lists: lists.listed(closed.pairs if isinstance(closed, Slid) else closed) for lists in self.lists.values()
        }
        computed: list[Callable[[], pa.Array]] = []
        for name, made in self._results:
            if isinstance(made, Accumulator):
                merged = made.merged(closed)
                computed.append(partial(made.snapshot().column, merged, name))
            else:
                column = made.fold(*listed[made.lists], self.kept)
                computed.append(partial(same, recast(column, self.schema.field(name).type)))
        return Later(self.schema, edges, [*self.groups.columns_later(group), *computed])


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
        self._row_room = np.empty(
            (2, 0), np.int64
        )  # of `_slide`, used again: new memory costs more than what is done in it
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
        while state[panes.PANE_FIRST] < state[panes.PANE_END]:
            slid = self._slide(frontier)
            if slid.number:
                start = slid.windows * self.advance
                edges = Edges(start + self.size - 1, start, start + self.size, slid.rows)
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
        if self.lists and state[panes.SLOT_FIRST] > self._dropped:
            for lists in self.lists.values():
                lists.drop(np.arange(self._dropped, int(state[panes.SLOT_FIRST])))
            self._dropped = int(state[panes.SLOT_FIRST])
        return out

    def _slide(self, frontier: int) -> Slid:
        """Windows that close, some of them or none, with their rows in order. Good until the next call.

        Rows of one window must be in the order of keys. If a good part of all groups is in the window, all groups are
        ranked once (`Groups.in_order`, kept until groups change) and walked through for each window. If the window has
        few of many groups, the kernel gives rows in any order and they are sorted here.
        """
        state = self._state
        held = int(state[panes.SLOT_END] - state[panes.SLOT_FIRST])
        room = CHUNK + held + 1  # windows until there are CHUNK rows, and one more
        if room > self._row_room.shape[1]:
            self._row_room = np.empty((2, 2 * room), np.int64)
        group, head = self._row_room[:, :room]
        bounds = np.empty((WINDOWS + 2, slides.BOUNDS), np.int64)
        ranked = self.groups.in_order() if held * FEW_SLOTS >= self.groups.number else np.zeros(0, np.int64)
        windows = slides.slide(
            frontier, self.size, self.advance, state, self._pane_id, self._pane_slot, self._slot_group, self._slot_next,
            self._head, self._tail, ranked, group, head, bounds,
        )  # fmt: skip
        bounds = bounds[: windows + 2]
        number = int(bounds[-1, slides.ROWS])
        group, head = group[:number], head[:number]
        if number and len(ranked) == 0:
            order = np.lexsort(
                (self.groups.ranks(group), np.repeat(np.arange(windows), np.diff(bounds[:-1, slides.ROWS])))
            )
            group, head = group[order], head[order]
        shift = int(state[panes.SHIFT])
        return Slid(bounds, shift, self._slot_group, self._slot_next, group, head, self.groups.capacity,
                    self.size <= self.advance)  # fmt: skip

    def _follow(self, slid: Slid) -> None:
        """Panes came or went, and no row with them: running totals are brought up to date."""
        for accumulator in self.accumulators:
            if not isinstance(accumulator, Lists):
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
            panes.move(first, end, kept.reshape(-1, 1))
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
