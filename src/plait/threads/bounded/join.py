"""Joins over slabs: event time is cut into ranges that overlap by the window and run side by side.

A range is a stretch of the merged order. Its tuples are triggers; what they may meet begins `reach` before its first one. So a
range has a window of its own (`core.join.window`): rows before it enter, and find nothing; its own enter, and find partners.
A pair is found in the range of its later tuple and in no other. Ranges one after another give the results of the slab in result
order.

An example: within 10, triggers at 0 to 99 in two ranges. The second begins at 50; rows of 40 to 49 enter its window first. The
pair (45, 52) is its, (39, 48) is the first one's.

Between two slabs the rows are kept that tuples at the frontier may meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.join.reach import reach_of
from plait.core.join.window import JoinWindow, interleaved
from plait.order import AFTER_ALL
from plait.query.bind import Bound
from plait.query.join import Join
from plait.threads.bounded.intake import Rows, joined
from plait.threads.bounded.results import Shown
from plait.threads.bounded.side_by_side import Job, Make

#: Tuples of a range, at least: below it a window of its own is not worth its making.
FEW = 1 << 14
STRIDE = 64  # of so many tuples the work of one is estimated
WARM = 0.5  # what a row costs that enters a window and finds nothing, against 2 that a tuple costs on average


class JoinSlabs:
    """An inner join's slabs over windows of time. `kept`: rows of either side that later tuples may meet."""

    def __init__(self, bound: Bound, shown: Shown, empty: tuple[Rows, Rows], *, ranges: int, few: int = FEW,
                 **options: Any) -> None:  # fmt: skip
        """`ranges`: into how many a slab is cut at most; `options` are those of `JoinWindow`."""
        assert isinstance(bound.node, Join)
        assert bound.predicate is not None
        self._node, self._shown, self.kept = bound.node, shown, empty
        self._reach = reach_of(bound.node.window)
        self._ranges, self._few = ranges, few
        left, right = (i.schema for i in bound.inputs)
        self._window = partial(JoinWindow, bound.predicate, left, right, bound.node.window, **options)

    @property
    def held(self) -> int:
        """Rows that are kept from slab to slab."""
        return len(self.kept[0]) + len(self.kept[1])

    def jobs(self, ready: tuple[Rows, Rows], frontier: int) -> Iterator[Job]:
        """What finds and makes the results of a slab, in order: a job a range."""
        if not any(map(len, ready)):
            return
        old = tuple(map(len, self.kept))
        sides = tuple(joined([kept, rows]) for kept, rows in zip(self.kept, ready, strict=True))
        order = interleaved(ready[0].ts, ready[1].ts)
        cuts = _cuts(len(order), self._met(order, sides, old), self._ranges, self._few)
        left, right = (rows.since(self._first(s, sides, frontier)) for s, rows in enumerate(sides))
        self.kept = left, right
        # Of each tuple of the slab, how many of either side come before it.
        rights = np.concatenate([[0], np.cumsum(order, dtype=np.int64)])
        for first, last in pairwise(cuts):
            begin = old[0] + first - int(rights[first]), old[1] + int(rights[first])
            yield partial(self._range, sides, order[first:last], begin)

    def _first(self, side: int, sides: tuple[Rows, ...], ts: int) -> int:
        """The place of the first row of a side that tuples of the other one at or after `ts` may meet."""
        if ts == AFTER_ALL:
            return len(sides[side])
        return int(np.searchsorted(sides[side].ts, self._reach.first(1 - side, ts), "left"))

    def _met(self, order: np.ndarray, sides: tuple[Rows, ...], old: tuple[int, ...]) -> np.ndarray:
        """Of every STRIDE-th tuple of a slab how many rows of the other side it may meet."""
        at = np.arange(0, len(order), STRIDE)
        rights = np.cumsum(np.add.reduceat(order, at, dtype=np.int64)) - np.add.reduceat(order, at, dtype=np.int64)
        met = np.zeros(len(at))
        for side, before in ((0, at - rights), (1, rights)):
            here = order[at] == side
            ts = sides[side].ts[old[side] + before[here]]
            first = np.searchsorted(sides[1 - side].ts, self._reach.first(side, ts), "left")
            met[here] = old[1 - side] + (at - before)[here] - first
        return met

    def _range(self, sides: tuple[Rows, ...], order: np.ndarray, begin: tuple[int, int]) -> Iterator[Make]:
        """The results of one range, whose rows begin at these places of both sides."""
        rights = int(np.count_nonzero(order))
        end = begin[0] + len(order) - rights, begin[1] + rights
        starts = [int(rows.ts[b]) for rows, b, e in zip(sides, begin, end, strict=True) if b < e]
        warm = [min(self._first(side, sides, min(starts)), begin[side]) for side in (0, 1)]
        window = self._window()
        window.start_at(*warm)  # so that a row's id is its place
        window.expect(end[0] - warm[0], end[1] - warm[1])
        before = [(rows, w, b) for rows, w, b in zip(sides, warm, begin, strict=True)]
        window.process(interleaved(*_times(before)), _tables(before), _times(before), probe=False)
        own = [(rows, b, e) for rows, b, e in zip(sides, begin, end, strict=True)]
        for pairs in window.pieces(order, _tables(own), _times(own)):
            by_left = order[pairs.trigger] == 0
            yield from self._shown.makers(None, (sides[0], sides[1]), (pairs.left, pairs.right), by_left)


Parts = list[tuple[Rows, int, int]]


def _tables(parts: Parts) -> tuple[pa.Table, pa.Table]:
    left, right = (rows.table.slice(first, last - first) for rows, first, last in parts)
    return left, right


def _times(parts: Parts) -> tuple[np.ndarray, np.ndarray]:
    left, right = (rows.ts[first:last] for rows, first, last in parts)
    return left, right


def _cuts(rows: int, met: np.ndarray, ranges: int, few: int) -> list[int]:
    """Where ranges of about the same work begin, and where the last one ends. `met` has a number for each STRIDE rows.

    A tuple costs one for itself, and its share of what it may meet; a row that only enters costs WARM. Which rows enter before a
    range follows from where it begins, and so does how much is left for its own: a few rounds find both.
    """
    ranges = max(1, min(ranges, rows // few))
    done = np.cumsum(1 + met / max(1.0, float(met.mean())))
    warm, inner = np.zeros(ranges), np.zeros(0, np.int64)
    for _ in range(4):
        own = np.maximum((done[-1] + warm.sum()) / ranges - warm, done[-1] / (16 * ranges))
        inner = np.minimum(np.searchsorted(done, np.cumsum(own)[:-1] * (done[-1] / own.sum())), len(met) - 1)
        warm[1:] = WARM * 2 * met[inner] / STRIDE
    return sorted({0, rows, *(int(at) * STRIDE for at in inner)})
