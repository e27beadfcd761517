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
from plait.windows import hive
from plait.windows import hive_layout as y
from plait.windows.hive_cells import FAR, Cells, pane_of_promise
from plait.windows.hive_functions import Absorbing
from plait.windows.hive_memory import Hive
from plait.windows.panes import Closed, SpanPanes

AT_ONCE = 1 << 15  # parts that are merged at once, at least


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
        self._parts = np.zeros((3, 4096), np.int64)  # window, source, cell

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
        ids: list[int] = []
        sizes: list[int] = []
        windows = parts = 0
        more = False
        with self.hive.inside() as h:
            while True:
                winset = int(hive.take(h, below))
                if winset == y.NIL:
                    break
                ids.append(int(h[y.node_at(h, winset) + y.PANE]))
                before, old = windows, parts
                windows, parts = self._listed(h, winset, windows, parts)
                while windows * self.hive.keys > len(self._key) or parts > self._parts.shape[1]:
                    self._more_room(windows, parts)
                    windows, parts = self._listed(h, winset, before, old)
                sizes.append(windows - before)
                if parts >= AT_ONCE:
                    more = True
                    break
        if not ids:
            return False
        self._merge(ids, sizes, windows, parts)
        with self.hive.inside() as h:
            hive.let_go(h, ids[-1] + 1)
        return more

    def _listed(self, h: np.ndarray, winset: int, windows: int, parts: int) -> tuple[int, int]:
        found = hive.list_windows(h, winset, self._stack, windows, parts, self._key, *self._parts)
        return int(found[0]), int(found[1])

    def _more_room(self, windows: int, parts: int) -> None:
        keys = self.hive.keys
        self._key = np.concatenate((self._key, np.zeros(2 * windows * keys, np.int64)))
        self._parts = np.concatenate((self._parts, np.zeros((3, 2 * parts), np.int64)), axis=1)

    def _merge(self, ids: list[int], sizes: list[int], windows: int, parts: int) -> None:
        words = self._key[: windows * self.hive.keys].reshape(windows, self.hive.keys).T.copy()
        group = self.groups.numbers(words) if self.groups.by else self.groups.only(windows)
        first = self.open_panes(ids, sizes, group)
        window, source, cell = self._parts[:, :parts]
        sources = list(self._sources())
        order = np.zeros(self.hive.slots, np.int16)
        order[[cells.slot for cells in sources]] = np.arange(len(sources))
        rank = order[source]
        by = np.argsort(rank, kind="stable")
        cuts = np.searchsorted(rank[by], np.arange(len(sources) + 1))
        window, cell = window[by], cell[by]
        absorbing = Absorbing(self.accumulators, first, windows)
        for k, cells in enumerate(sources):
            low, high = cuts[k], cuts[k + 1]
            if low < high:
                absorbing.absorb(cells.parts, window[low:high], cell[low:high])
