"""The thread that takes winsets out of a W-Hive: complete panes in, rows of closed windows out.

`take` is given the frontier. Every winset below it is taken, its keys are numbered and its parts merged into the panes of
`core.aggregate.panes`, from which windows are merged as in every other design; so this thread's work is in proportion to
panes, keys and sources, not to tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from plait.core.aggregate.accumulators import Accumulator, Frozen
from plait.core.aggregate.closed import Closed, Edges, Later, Pairs, Slid
from plait.core.aggregate.span import SpanPanes, span_window
from plait.core.kernels import panes
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads.aggregate.hive import hive, parts
from plait.threads.aggregate.hive import words as y
from plait.threads.aggregate.hive.memory import Hive
from plait.threads.aggregate.hive.parts import Stretches
from plait.threads.aggregate.hive.promises import FAR, last_in_pane
from plait.threads.aggregate.hive.tallies import Tallies, pane_of_promise

AT_ONCE = 1 << 16  # parts that are merged at once, or somewhat more
WINSETS = 256  # and winsets, at most

Parts = tuple[np.ndarray, np.ndarray, list[Frozen]]  # `Tallies.parts`


class HiveWindows(SpanPanes):
    """`sources` gives, in the order of their tuples in ties, every source's tallies.

    `hive` is the shared structure; the panes that `SpanPanes` keeps are this thread's own. `_stack`, `_key`, `_spans`,
    `_ids` and `_ends` are buffers of `hive.gather`.
    """

    def __init__(self, bound: Bound, sources: Callable[[], Iterable[Tallies]], slots: int, *, shared: bool) -> None:
        assert isinstance(bound.node, Aggregate)
        super().__init__(bound, span_window(bound))
        self.hive = Hive(slots=slots, keys=len(bound.node.by) + 1)
        self._bound, self._sources, self._shared = bound, sources, shared
        self._stack = np.zeros(hive.STACK, np.int64)
        self._key = np.zeros(4096 * self.hive.keys, np.int64)
        self._spans = np.zeros((WINSETS, 4, slots), np.int64)
        self._ids, self._ends = np.zeros(WINSETS, np.int64), np.zeros(WINSETS, np.int64)
        self._last: list[np.ndarray] = []
        self._rooms: dict[str, np.ndarray] = {}
        self._numbers = np.empty(0, np.int64)

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
            more = self._gather(below)
            out += self.close(frontier if not more else self._next_ts())
        if frontier < AFTER_ALL:
            begin = frontier // self.advance * self.advance  # the pane that the frontier lies in is not taken yet
            self.groups.since = begin - 1
        return out

    def last_in_pane(self, frontier: int) -> int:
        """The last ts of the pane that a frontier lies in: up to there nothing more is complete."""
        return int(last_in_pane(frontier, self.advance, self.size % self.advance))

    def last_tuples(self) -> np.ndarray:
        """Of each winset that was taken since the last call, its last tuple: ts and when it was pushed, int64[2, winsets]."""
        found, self._last = self._last, []
        return np.concatenate(found, axis=1) if found else np.empty((2, 0), np.int64)

    def _next_ts(self) -> int:
        """How far time has passed when some winsets are still to be taken.

        No pane that is still to be taken begins before the end of the last one that was.
        """
        last = int(self._pane_id[int(self._state[1]) - 1])
        rest = self.size % self.advance
        if rest == 0:
            return (last + 1) * self.advance
        return (last >> 1) * self.advance + (self.advance if last & 1 else rest)

    def _gather(self, below: int) -> bool:
        """Take winsets, up to a number of parts, and merge them into panes; false if there are no more."""
        told = np.zeros(4, np.int64)
        with self.hive.inside(self.hive.slots) as h:
            while True:
                hive.gather(
                    h, below, AT_ONCE, self._shared, self._stack, self._key, self._ids, self._ends, self._spans, told
                )  # fmt: skip
                if told[y.HELD] == y.NIL:
                    break
                self._key = np.concatenate((self._key, np.zeros_like(self._key)))
            winsets, windows, number, _ = (int(v) for v in told)
            if winsets:
                self._merge(h, self._ids[:winsets], self._ends[:winsets], windows, self._spans[:winsets])
                hive.let_go(h, int(self._ids[winsets - 1]) + 1)
        return winsets == WINSETS or number >= AT_ONCE

    def _merge(self, h: np.ndarray, ids: np.ndarray, ends: np.ndarray, windows: int, spans: np.ndarray) -> None:
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
        slot = (self._listed if self._shared else self._looked_up)(h, ids, ends, windows, spans, held, slots, where)
        opened = int(self._pane_slot[int(self._state[panes.PANE_END]) - len(ids)])
        number = int(self._state[panes.SLOT_END]) - opened
        for k, accumulator in enumerate(self.accumulators):
            self._absorb(accumulator, [own[2][k] for own in held], where, slot, opened, number)

    def _looked_up(self, h: np.ndarray, ids: np.ndarray, ends: np.ndarray, windows: int, spans: np.ndarray,
                   held: list[Parts], slots: np.ndarray, where: Stretches) -> np.ndarray:  # fmt: skip
        """The slots of tallies, where each source has tables of its own: tallies that have the same key go into the same one."""
        base = np.zeros(self.hive.slots, np.int64)
        base[slots] = where.at - where.first
        if self.groups.by:
            group = self._room("group", where.total)
            parts.groups(self.groups, [own[0] for own in held], where, group)
        else:
            group = self.groups.only(where.total)
        return self.open_parts(ids, spans, base, group, self._room("slot", where.total))

    def _listed(self, h: np.ndarray, ids: np.ndarray, ends: np.ndarray, windows: int, spans: np.ndarray,
                held: list[Parts], slots: np.ndarray, where: Stretches) -> np.ndarray:  # fmt: skip
        """The slots of tallies, where winsets have tables that the sources share: a tally knows its window."""
        words = self._key[: windows * self.hive.keys].reshape(windows, self.hive.keys).T.copy()
        group = self.groups.numbers(words) if self.groups.by else self.groups.only(windows)
        opened = self.open_panes(ids.tolist(), np.diff(ends, prepend=0).tolist(), group)
        slot = np.empty(where.total, np.int64)
        for own, low, high, at in zip(held, where.first, where.end, where.at, strict=True):
            hive.windows_of(h, own[1], low, high, slot[at : at + high - low])
        return slot + opened

    def _absorb(
        self, into: Accumulator, held: list[Frozen], where: Stretches, slot: np.ndarray, first: int, number: int
    ) -> None:
        """Merge tallies into the slots of new panes, `number` from `first` on, one source after the other in their order.

        `held`: of each source what its tallies hold; `slot`: where each part goes. Tallies that are rows of numbers are
        brought together first, so that twenty sources are merged by one call, as one source is.
        """
        ts = into.times(number)
        if len(held) == 1 or not all(isinstance(own, np.ndarray) for own in held):
            for own, low, high, at in zip(held, where.first, where.end, where.at, strict=True):
                into.absorb_tallies(own, slot[at : at + high - low], np.arange(low, high), first, ts)
            return
        width, size = held[0].shape[1], 1 << max(where.total - 1, 1).bit_length()
        rows = self._room("rows", size * width).reshape(size, width)
        parts.rows(held, where, rows)
        into.absorb_tallies(rows, slot, self._counting(where.total), first, ts)

    def _room(self, what: str, n: int) -> np.ndarray:
        """So many words for this purpose, used again: new memory costs more than what is done in it."""
        if len(self._rooms.get(what, ())) < n:
            self._rooms[what] = np.empty(2 * n, np.int64)
        return self._rooms[what][:n]

    def _counting(self, n: int) -> np.ndarray:
        """0, 1, 2, ..."""
        if len(self._numbers) < n:
            self._numbers = np.arange(2 * n)
        return self._numbers[:n]


def _last_of(spans: np.ndarray) -> np.ndarray:
    """The last tuple of each winset, of its members', which stand in the order that settles ties."""
    ts = np.where(spans[:, 1] > spans[:, 0], spans[:, 2], y.FIRST)
    which = ts.shape[1] - 1 - ts[:, ::-1].argmax(axis=1)
    every = np.arange(len(ts))
    return np.stack((ts[every, which], spans[every, 3, which]))
