"""The thread that takes winsets out of a W-Hive: complete panes in, rows of closed windows out.

`take` is given the frontier. Every winset below it is taken, its keys are numbered and its parts merged into the panes of
`core.aggregate.panes`, from which windows are merged as in every other design; so this thread's work is in proportion to
panes, keys and sources, not to tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from plait.core.aggregate.accumulators import Accumulator
from plait.core.aggregate.closed import Closed, Edges, Later, Pairs, Slid
from plait.core.aggregate.span import SpanPanes, span_window
from plait.core.kernels import panes
from plait.core.machine.marks import brief
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads.aggregate.hive import hive, parts
from plait.threads.aggregate.hive import words as y
from plait.threads.aggregate.hive.memory import Hive
from plait.threads.aggregate.hive.parts import Stretches, Team
from plait.threads.aggregate.hive.promises import FAR, last_in_pane
from plait.threads.aggregate.hive.tallies import Parts, Tallies, pane_of_promise

AT_ONCE = 1 << 16  # parts that are merged at once, or somewhat more
WINSETS = 256  # and winsets, at most
LARGE = 1 << 10  # parts of a pane that is worth to have its slots in order
NOBODY = np.empty(0, np.int64)


class HiveWindows(SpanPanes):
    """`sources` gives, in the order of their tuples in ties, every source's tallies.

    `hive` is the shared structure; the panes that `SpanPanes` keeps are this thread's own. `_stack`, `_key`, `_spans`,
    `_ids` and `_ends` are buffers of `hive.gather`.
    """

    def __init__(
        self, bound: Bound, sources: Callable[[], Iterable[Tallies]], slots: int, team: Team, *, shared: bool
    ) -> None:
        assert isinstance(bound.node, Aggregate)
        super().__init__(bound, span_window(bound))
        self.hive = Hive(slots=slots, keys=len(bound.node.by) + 1)
        self._bound, self._sources, self._team, self._shared = bound, sources, team, shared
        self._stack = np.zeros(hive.STACK, np.int64)
        self._key = np.zeros(4096 * self.hive.keys, np.int64)
        self._spans = np.zeros((WINSETS, 4, slots), np.int64)
        self._ids, self._ends = np.zeros(WINSETS, np.int64), np.zeros(WINSETS, np.int64)
        self._last: list[np.ndarray] = []
        self._taken = BEFORE_ALL  # the pane that was taken last
        self._rooms: dict[str, np.ndarray] = {}
        self._singles = [single for each in self.accumulators for single in each.singles()]

    def tallies(self, slot: int) -> Tallies:
        """A new source's part of the windows."""
        return Tallies(self._bound, self.hive, slot, self.columns, self.groups, shared=self._shared)

    def _rows(self, closed: Pairs | Slid, group: np.ndarray, edges: Edges) -> Later:
        return self._later(closed, group, edges)  # the thread that reads results has time for the rest

    def take_complete(self, frontier: int) -> list[Closed]:
        """Every winset that no tuple at or after the frontier can reach, and the windows that are closed then.

        `frontier` in microseconds. Winsets are taken some at a time, and windows closed in between, so that a frontier
        that jumps does not fill the panes with all of them at once.
        """
        frontier = frontier if frontier == AFTER_ALL else min(frontier, FAR)
        below = pane_of_promise(frontier, self.size, self.advance)
        out: list[Closed] = []
        more = True
        while more:
            more = self._gather(below, frontier, out)
            out += self.close(frontier if not more else self._next_ts())
        if frontier < AFTER_ALL:
            begin = frontier // self.advance * self.advance  # the pane that the frontier lies in is not taken yet
            self.groups.since = begin - 1
        return out

    def last_in_pane(self, frontier: int) -> int:
        """The last ts of the pane that a frontier lies in: up to there nothing more is complete."""
        return int(last_briefly(frontier, self.advance, self.size % self.advance))

    def last_tuples(self) -> np.ndarray:
        """Of each winset that was taken since the last call, its last tuple: ts and when it was pushed, int64[2, winsets]."""
        found, self._last = self._last, []
        return np.concatenate(found, axis=1) if found else np.empty((2, 0), np.int64)

    def _next_ts(self) -> int:
        """How far time has passed when some winsets are still to be taken.

        No pane that is still to be taken begins before the end of the last one that was.
        """
        last = self._taken
        rest = self.size % self.advance
        if rest == 0:
            return (last + 1) * self.advance
        return (last >> 1) * self.advance + (self.advance if last & 1 else rest)

    def _gather(self, below: int, frontier: int, out: list[Closed]) -> bool:
        """Take winsets, up to a number of parts, and merge them into panes; false if there are no more. Rows of a large pane
        that is a window go to `out` at once.
        """
        told = np.zeros(4, np.int64)
        with self.hive.inside(self.hive.slots) as h:
            gather = hive.gather if self._shared else gather_briefly
            while True:
                gather(
                    h, below, AT_ONCE, self._shared, self._stack, self._key, self._ids, self._ends, self._spans, told
                )  # fmt: skip
                if told[y.HELD] == y.NIL:
                    break
                self._key = np.concatenate((self._key, np.zeros_like(self._key)))
            winsets, windows, number, _ = (int(v) for v in told)
            if winsets:
                self._taken = int(self._ids[winsets - 1])
                self._merge(h, self._ids[:winsets], self._ends[:winsets], windows, self._spans[:winsets], frontier, out)
                let_go_briefly(h, int(self._ids[winsets - 1]) + 1)
        return winsets == WINSETS or number >= AT_ONCE

    def _merge(self, h: np.ndarray, ids: np.ndarray, ends: np.ndarray, windows: int, spans: np.ndarray, frontier: int,
               out: list[Closed]) -> None:  # fmt: skip
        """`spans`: of each winset, by slot, the first of a source's tallies and the one after the last.

        Sources are absorbed in the order that settles ties, which is what first and last rely on.
        """
        # A source's tallies in winsets that follow one another follow one another too.
        first, end = np.where(spans[:, 1] > spans[:, 0], spans[:, 0], y.LAST).min(axis=0), spans[:, 1].max(axis=0)
        every = list(self._sources())
        self._last.append(_last_of(spans[:, :, np.array([source.slot for source in every])]))
        found = [source for source in every if first[source.slot] < end[source.slot]]
        held = [source.parts for source in found]  # as addresses are taken of them, they are held until all is merged
        slots = np.array([source.slot for source in found], np.int64)
        where = parts.stretches(first[slots], end[slots])
        together = parts.Together(held, where, self._team, self._room)
        if self._shared:
            self._merge_listed(together, h, ids, ends, windows, held, where)
        else:
            base = np.zeros(self.hive.slots, np.int64)
            base[slots] = where.at - where.first
            large = bool(self.groups.by) and len(ids) == 1 and where.total >= max(self.groups.number, LARGE)
            if large and (k := self._window_of(int(ids[0]), frontier)) is not None:
                out.append(self._merge_window(together, k, ids, spans, base, where.total))
            else:
                self._merge_parts(together, ids, spans, base, where.total, large=large)

    def _window_of(self, pane: int, frontier: int) -> int | None:
        """The window that closes with this pane, if it is this pane alone."""
        k = pane if self.size == self.advance else pane >> 1
        last = k * self.advance + self.size  # in Python's integers: it may lie beyond 64 bits, which `close` refuses
        return k if self.size <= self.advance and last <= frontier else None

    def _merge_parts(self, together: parts.Together, ids: np.ndarray, spans: np.ndarray, base: np.ndarray, total: int, *,
                     large: bool) -> None:  # fmt: skip
        """Where each source has tables of its own: tallies that have the same key in a pane go into the same slot. Of a `large`
        pane slots are in the order of keys.

        A pane has a slot for a group at most, however many parts there are. If there are groups that are not known, they are
        added and all is begun anew.
        """
        group, slot = self._room("group", total), self._room("slot", total)
        keyed = bool(self.groups.by)
        missed = np.zeros((1, len(base)), np.int64)
        while True:
            if not keyed:
                group[:] = self.groups.only(total)
            ranked = self.groups.in_order() if large else NOBODY
            most = min(total, len(ids) * self.groups.number)
            self._make_room(max(most + 1, len(ids)))  # `assign_ranked` writes one more
            if keyed:
                missed = together.look_in(self.groups, group, self._slot_of if large else None)
            together.go_into(self._singles, slot, most)
            if together.merge_parts(
                ids, spans, base, ranked, self._state, self._pane_id, self._pane_slot, self._slot_group, self._slot_of, group,
                slot, missed,
            ):  # fmt: skip
                return
            together.add(self.groups, missed[0], group)

    def _merge_window(self, together: parts.Together, k: int, ids: np.ndarray, spans: np.ndarray, base: np.ndarray,
                      total: int) -> Closed:  # fmt: skip
        """As `_merge_parts`, of a large pane that is a window by itself: parts are merged into the window's rows, and no slot
        is used.

        Rows are in the order of keys, as slots of large panes are.
        """
        group, slot = self._room("group", total), self._room("slot", total)
        while True:
            ranked = self.groups.in_order()
            most = min(total, self.groups.number)
            self._make_room(0)  # by group
            state, pane = np.zeros(panes.STATE_WORDS, np.int64), np.zeros((2, 1), np.int64)
            row_group = np.empty(most + 1, np.int64)
            missed = together.look_in(self.groups, group, self._slot_of)
            rows = together.go_into(self._singles, slot, most, apart=True)
            if together.merge_parts(
                ids, spans, base, ranked, state, *pane, row_group, self._slot_of, group, slot, missed
            ):
                break
            together.add(self.groups, missed[0], group)
        number, start = int(state[panes.SLOT_END]), np.array([k * self.advance])
        edges = Edges(start + self.size - 1, start, start + self.size, np.array([number]))
        return Closed(self._later_of([each[:number] for each in rows], row_group[:number], edges))

    def _later_of(self, rows: list[np.ndarray], group: np.ndarray, edges: Edges) -> Later:
        """As `_later`, of merged rows: of every single function, in their order."""
        rest, computed = iter(rows), []
        for name, made in self._results:
            assert isinstance(made, Accumulator)  # others have no tallies
            own = [next(rest) for _ in made.singles()]
            merged = own[0] if len(own) == 1 else np.concatenate(own, axis=1)
            computed.append(partial(made.snapshot().column, merged, name))
        return Later(self.schema, edges, [*self.groups.columns_later(group), *computed])

    def _merge_listed(self, together: parts.Together, h: np.ndarray, ids: np.ndarray, ends: np.ndarray, windows: int,
                      held: list[Parts], where: Stretches) -> None:  # fmt: skip
        """Where winsets have tables that the sources share: a tally knows its window."""
        words = self._key[: windows * self.hive.keys].reshape(windows, self.hive.keys).T.copy()
        group = self.groups.numbers(words) if self.groups.by else self.groups.only(windows)
        opened = self.open_panes(ids.tolist(), np.diff(ends, prepend=0).tolist(), group)
        slot = np.empty(where.total, np.int64)
        for own, low, high, at in zip(held, where.first, where.end, where.at, strict=True):
            hive.windows_of(h, own.window, low, high, slot[at : at + high - low])
        slot += opened
        together.go_into(self._singles, slot, windows)
        together.merge(opened, windows)

    def _room(self, what: str, n: int) -> np.ndarray:
        """So many words for this purpose, used again: new memory costs more than what is done in it."""
        if len(self._rooms.get(what, ())) < n:
            self._rooms[what] = np.empty(2 * n, np.int64)
        return self._rooms[what][:n]


# What is called often and takes a few microseconds: the GIL is not given away for it.
@brief
def gather_briefly(
    h: Any, below: Any, most: Any, shared: Any, stack: Any, key: Any, ids: Any, ends: Any, spans: Any, told: Any
) -> None:
    """`hive.gather`, of winsets whose sources have tables of their own."""
    hive.gather(h, below, most, shared, stack, key, ids, ends, spans, told)


@brief
def let_go_briefly(h: Any, pane: Any) -> None:
    """`hive.let_go`."""
    hive.let_go(h, pane)


@brief
def last_briefly(ts: Any, step: Any, rest: Any) -> Any:
    """`promises.last_in_pane`."""
    return last_in_pane(ts, step, rest)


def _last_of(spans: np.ndarray) -> np.ndarray:
    """The last tuple of each winset, of its members', which stand in the order that settles ties."""
    ts = np.where(spans[:, 1] > spans[:, 0], spans[:, 2], y.FIRST)
    which = ts.shape[1] - 1 - ts[:, ::-1].argmax(axis=1)
    every = np.arange(len(ts))
    return np.stack((ts[every, which], spans[every, 3, which]))
