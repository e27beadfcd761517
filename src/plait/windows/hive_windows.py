"""The thread that takes winsets out of a W-Hive: complete panes in, rows of closed windows out.

`take` is given the frontier. Every winset below it is taken, its keys are numbered and its parts merged into the panes of
`windows.panes`, from which windows are merged as in every other design; so this thread's work is in proportion to
panes, keys and sources, not to tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate, SpanWindow
from plait.query.bind import Bound
from plait.windows import hive, hive_batch
from plait.windows import hive_layout as y
from plait.windows.hive_cells import FAR, Cells, pane_of_promise
from plait.windows.hive_functions import Absorbing
from plait.windows.hive_memory import Hive
from plait.windows.pane_functions import Pairs
from plait.windows.panes import Closed, Later, SpanPanes

AT_ONCE = 1 << 15  # parts that are merged at once, or somewhat more
WINSETS = 256  # and winsets, at most


class HiveWindows(SpanPanes):
    """`sources` gives, in the order of their tuples in ties, every source's cells."""

    def __init__(self, bound: Bound, sources: Callable[[], Iterable[Cells]], slots: int) -> None:
        assert isinstance(bound.node, Aggregate)
        assert isinstance(bound.node.window, SpanWindow)
        super().__init__(bound, bound.node.window)
        self.hive = Hive(slots=slots, keys=len(bound.node.by) + 1)
        self._sources = sources
        self._stack = np.zeros(hive.STACK, np.int64)
        self._key = np.zeros(4096 * self.hive.keys, np.int64)
        self._spans = np.zeros((WINSETS, 2, slots), np.int64)
        self._ids, self._ends = np.zeros(WINSETS, np.int64), np.zeros(WINSETS, np.int64)

    def _rows(self, pairs: Pairs, group: np.ndarray, edges: list[np.ndarray], order: np.ndarray | None) -> Later:
        return self._later(pairs, group, edges, order)  # the thread that reads results has time for the rest

    def take_complete(self, frontier: int) -> list[Closed]:
        """Every winset that no tuple at or after the frontier can reach, and the windows that are closed then."""
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

    def _next_ts(self) -> int:
        """No pane that is still to be taken begins before the end of the last one that was."""
        last = int(self._pane_id[int(self._state[1]) - 1])
        rest = self.size % self.advance
        if rest == 0:
            return (last + 1) * self.advance
        return (last >> 1) * self.advance + (self.advance if last & 1 else rest)

    def _gather(self, below: int) -> bool:
        """Take winsets, up to a number of parts, and merge them into panes; false if there are no more."""
        told = np.zeros(4, np.int64)
        with self.hive.inside() as h:
            while True:
                hive_batch.gather(
                    h, below, AT_ONCE, self._stack, self._key, self._ids, self._ends, self._spans, told
                )  # fmt: skip
                if told[hive_batch.HELD] == y.NIL:
                    break
                self._key = np.concatenate((self._key, np.zeros_like(self._key)))
            winsets, windows, parts, _ = (int(v) for v in told)
            if winsets:
                sizes = np.diff(self._ends[:winsets], prepend=0)
                self._merge(h, self._ids[:winsets].tolist(), sizes.tolist(), windows, self._spans[:winsets])
                hive.let_go(h, int(self._ids[winsets - 1]) + 1)
        return winsets == WINSETS or parts >= AT_ONCE

    def _merge(self, h: np.ndarray, ids: list[int], sizes: list[int], windows: int, cells: np.ndarray) -> None:
        """`cells`: of each winset, by slot, the first of a source's cells and the one after the last."""
        words = self._key[: windows * self.hive.keys].reshape(windows, self.hive.keys).T.copy()
        group = self.groups.numbers(words) if self.groups.by else self.groups.only(windows)
        absorbing = Absorbing(self.accumulators, self.open_panes(ids, sizes, group), windows)
        for source in self._sources():
            # A source's cells in winsets that follow one another follow one another too.
            spans = cells[:, :, source.slot]
            spans = spans[spans[:, 1] > spans[:, 0]]
            if not len(spans):
                continue
            first, end = int(spans[0, 0]), int(spans[-1, 1])
            window_at, parts = source.parts
            window = np.empty(end - first, np.int64)
            hive_batch.windows_of(h, window_at, first, end, window)
            absorbing.absorb(parts, window, np.arange(first, end))
