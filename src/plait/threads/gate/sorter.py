"""Disorder, settled before the gate: a source's tuples enter in order of (ts, seq).

A source may run back by its disorder D. Each batch is judged tuple by tuple (late iff ts < m - D, m being the largest
ts before it in this source), put among the tuples held back, and what can't be overtaken any more, ts <= m - D, goes on in
order: whatever comes later has ts >= m - D and a greater seq. Everything that can become ready lies below m - D, so holding
the rest back delays nothing; and both gates may rely on sorted sources, as the papers' do. Nothing here is shared: a sorter
belongs to the thread that pushes its source.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from plait.order import BEFORE_ALL

Column = np.ndarray


class Sorted(NamedTuple):
    """What may enter the gate now, the promise that goes with it, and the rows of the batch that are late."""

    ts: Column
    seq: Column
    ref: Column
    progress: int
    late: Column
    before: Column  # for each late row, the largest ts before it


class Sorter:
    def __init__(self, disorder_us: int) -> None:
        self.disorder_us = disorder_us
        self.largest = BEFORE_ALL
        self.promise = BEFORE_ALL  # by heartbeat: not lowered by the disorder
        empty = np.empty(0, dtype=np.int64)
        self.held: tuple[Column, Column, Column] = (empty, empty, empty)

    @property
    def progress(self) -> int:
        """No tuple below this will come."""
        if self.largest == BEFORE_ALL:
            return self.promise
        return max(self.promise, self.largest - self.disorder_us)

    def sort(self, ts: Column, seq: Column, ref: Column) -> Sorted:
        """Take a batch in. Late rows are left out and reported; the caller decides what becomes of them."""
        before = np.maximum.accumulate(np.concatenate((np.array([self.largest], dtype=np.int64), ts)))[:-1]
        # A source that has not spoken has no bound, and the smallest int64 can't be lowered.
        bound = np.where(before == BEFORE_ALL, BEFORE_ALL, before - self.disorder_us)
        late = (ts < np.maximum(bound, self.promise)).nonzero()[0]
        if len(late):
            kept = np.ones(len(ts), dtype=bool)
            kept[late] = False
            ts, seq, ref = ts[kept], seq[kept], ref[kept]
        before = before[late]
        if len(ts):
            self.largest = max(self.largest, int(ts.max()))
        if self.disorder_us == 0:
            return Sorted(ts, seq, ref, self.progress, late, before)
        columns = [np.concatenate(pair) for pair in zip(self.held, (ts, seq, ref), strict=True)]
        return self._release(columns, self.progress)._replace(late=late, before=before)

    def flush(self, progress: int) -> Sorted:
        """At a heartbeat or the end: release what is below the promise too."""
        self.promise = max(self.promise, progress)
        return self._release(list(self.held), self.progress)

    def _release(self, columns: list[Column], progress: int) -> Sorted:
        ts, seq, _ = columns
        order = np.lexsort((seq, ts))
        cut = int(np.searchsorted(ts[order], progress, side="right"))
        out, rest = order[:cut], np.sort(order[cut:])
        self.held = (columns[0][rest], columns[1][rest], columns[2][rest])
        none = np.empty(0, dtype=np.int64)
        return Sorted(columns[0][out], columns[1][out], columns[2][out], progress, none, none)
