"""Windowed aggregates over tuples in total order: panes in, rows of closed windows out.

`take` is given a batch of tuples, each after all before it in total order, and the frontier: no later tuple lies below it. It
gives the rows of every window that can get no more tuples, in result order. A tuple updates one pane (`kernels.panes`), and a
window is merged from its panes when it closes. How the sequence is cut into batches does not show in the rows.

What is held are the panes of windows still open, with the groups that have tuples in them: not the tuples, but for functions that
need them (`pane_lists`) and for text that is some pane's first or last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from plait.errors import DataError
from plait.kernels import panes, sliding
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate, SpanWindow, TupleWindow
from plait.query.bind import Bound
from plait.schema import taken
from plait.windows.closing import Pairs, Slid
from plait.windows.kept_rows import KeptRows
from plait.windows.pane_columns import Columns, Read
from plait.windows.pane_functions import Accumulator, compiled
from plait.windows.pane_groups import Groups
from plait.windows.pane_lists import CustomFold, Fold, Lists, fold

FIRST = 1024
FEW_SLOTS = 4  # known groups for each slot that is held: with more of them a window's rows are sorted, instead of all groups once
WINDOWS = 1 << 10  # that are closed at once
CHUNK = 1 << 16  # tuples at once, and pairs of a row and a slot


@dataclass(frozen=True)
class Closed:
    """Rows of closed windows. `triggers`: of windows of tuples, the place in the batch of the tuple that closed each."""

    rows: pa.RecordBatch | Later
    triggers: np.ndarray | None = None


class PaneWindows:
    """What windows of time and of tuples share. One thread at a time."""

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Aggregate)
        node, (source,) = bound.node, bound.inputs
        self.schema, self._node = bound.schema, node
        self.columns = Columns(node, source.schema)
        self.kept = KeptRows(pa.schema([source.schema.field(name) for name in self.columns.varied]))
        self.groups = Groups(node, source.schema, self._held)
        self.lists: Lists | None = None
        self.accumulators: list[Accumulator] = []
        self._results: list[tuple[str, Accumulator | Fold]] = []
        condition = 0
        for name, function in node.compute:
            own = None
            if function.where is not None:
                own, condition = condition, condition + 1
            made = compiled(function, source.schema, own, self.kept)
            if made is None and self.lists is None:
                self.lists = Lists()
                self.accumulators.append(self.lists)
            if made is not None:
                self.accumulators.append(made)
            self._results.append((name, made or fold(function, source.schema, name)))
        self._refers = any(a.refs(np.zeros(0, np.int64)) is not None for a in self.accumulators)
        self.capacity = 0
        self.updates = 0  # tuples that were its own
        self._crew, self._seat = 1, 0

    def share(self, crew: int, seat: int) -> None:
        """Take the tuples of some groups only: those that a hash of the key gives to `seat`, of `crew`."""
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
        """Tuples in total order, as `Columns` lays them out, and the frontier after them."""
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
        self.updates += len(ts)
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
        lines = []
        for (name, made), (_, function) in zip(self._results, self._node.compute, strict=True):
            if isinstance(made, Accumulator):
                how = "compiled, a pane at a time"
            elif isinstance(made, CustomFold):
                how = "compiled" if made.compiled is not None else f"in plain Python ({made.why})"
                how += ", over a window's rows when it closes"
            else:
                how = "over a window's rows when it closes, in batches"
            lines.append(f"{name} = {function.describe()}: {how}")
        return lines

    def end(self) -> list[Closed]:
        """The input has ended: every window of time closes."""
        return self._pass(AFTER_ALL)

    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
        raise NotImplementedError

    def _pass(self, frontier: int) -> list[Closed]:
        return []

    def _live(self) -> np.ndarray:
        """The slots in use."""
        raise NotImplementedError

    def _held(self, groups: int) -> np.ndarray:
        raise NotImplementedError

    def _let_go(self) -> None:
        live = self._live()
        found = [refs for a in self.accumulators if (refs := a.refs(live)) is not None]
        self.kept.keep(np.concatenate(found))

    def _update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        for accumulator in self.accumulators:
            accumulator.update(low, high, slot, read, refs)

    def _rows(self, closed: Pairs | Slid, group: np.ndarray, edges: list[np.ndarray]) -> pa.RecordBatch | Later:
        """Rows of closed windows: ts, window_start and window_end as given, then keys, then what is computed."""
        return self._later(closed, group, edges).built()

    def _later(self, closed: Pairs | Slid, group: np.ndarray, edges: list[np.ndarray]) -> Later:
        """Everything that has to be taken from what goes on changing is taken now: slots are merged, keys looked up."""
        listed = None
        if self.lists is not None:
            listed = self.lists.listed(closed.pairs if isinstance(closed, Slid) else closed)
        computed: list[Callable[[], pa.Array]] = []
        for name, made in self._results:
            if isinstance(made, Accumulator):
                merged = made.merged(closed)
                computed.append(partial(made.snapshot().column, merged, name))
            else:
                assert listed is not None
                computed.append(partial(_same, made(*listed, self.kept).cast(self.schema.field(name).type)))
        return Later(self.schema, edges, self.groups.columns(group), computed)


class Later:
    """Rows whose columns are made when they are wanted, by whoever wants them: rounding and Arrow take their time."""

    def __init__(self, schema: pa.Schema, edges: list[np.ndarray], keys: list[pa.Array],
                 computed: list[Callable[[], pa.Array]]) -> None:  # fmt: skip
        self.schema, self.edges, self.keys, self.computed = schema, edges, keys, computed
        self.num_rows = len(edges[0])

    def built(self) -> pa.RecordBatch:
        arrays = [pa.array(edge).cast(f.type) for edge, f in zip(self.edges, self.schema, strict=False)]
        return pa.RecordBatch.from_arrays(
            [*arrays, *self.keys, *(make() for make in self.computed)], schema=self.schema
        )


def _same(made: pa.Array) -> pa.Array:
    return made


class SpanPanes(PaneWindows):
    """Windows of event time."""

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
        n = len(ts)
        self._make_room(n)
        slot = np.empty(n, np.int64)
        panes.assign(ts, group, 0, n, self.size, self.advance, self._state, self._pane_id, self._pane_slot,
                     self._slot_group, self._slot_of, slot)  # fmt: skip
        return slot

    def skip(self, frontier: int) -> None:
        """Rows of windows that end at or before the frontier are out already: they are not given again."""
        if frontier > BEFORE_ALL + self.size:
            state = self._state
            state[panes.NEXT_WINDOW] = max(int(state[panes.NEXT_WINDOW]), (frontier - self.size) // self.advance + 1)

    def open_panes(self, ids: list[int], sizes: list[int], group: np.ndarray) -> int:
        """Panes that come whole, after all before them: how many groups each has, and which; gives the first one's slot.

        Accumulators have the slots of all groups, in this order, and are to be filled by the caller.
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
        """As `open_panes`, for panes in parts, whose groups are given: see `kernels.panes.assign_parts`. Gives their slots."""
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
        """Windows that close, some of them or none, with their rows in order; and the number of each row's window."""
        state = self._state
        held = int(state[panes.SLOT_END] - state[panes.SLOT_FIRST])
        room = max(CHUNK, held)
        group, window, head = (np.empty(room, np.int64) for _ in range(3))
        bounds = np.empty((WINDOWS + 2, 3), np.int64)
        ranked = self.groups.in_order() if held * FEW_SLOTS >= self.groups.number else np.zeros(0, np.int64)
        windows = sliding.slide(
            frontier, self.size, self.advance, state, self._pane_id, self._pane_slot, self._slot_group, self._slot_next,
            self._head, self._tail, ranked, group, window, head, bounds,
        )  # fmt: skip
        bounds = bounds[: windows + 2]
        number = int(bounds[-1, sliding.ROWS])
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
        """Panes and slots in use become the first ones."""
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


def pane_windows(bound: Bound) -> SpanPanes | TuplePanes:
    assert isinstance(bound.node, Aggregate)
    window = bound.node.window
    return SpanPanes(bound, window) if isinstance(window, SpanWindow) else TuplePanes(bound, window)
