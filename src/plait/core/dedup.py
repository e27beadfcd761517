"""Tuples without those that repeat one: of each key, when the last tuple that was kept came.

What goes in: runs of tuples in total order, with their keys. What comes out: which of them are kept. A tuple is dropped if the
last kept one of its key has ts >= its own ts - within.

State is one ts a key. A key whose ts lies further back than the span can't drop anything any more. So it need not be
remembered, and a number that it had may be another key's: what is left there is too old to matter. When numbers run out
(`aggregate.groups`) such keys are forgotten, so memory follows the keys of one span.

A tuple costs one look-up and one comparison, compiled. Held by tests/core/test_dedup.py, against a plain loop.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core.aggregate.columns import Read
from plait.core.aggregate.groups import FIRST, Groups
from plait.core.kernels.dedup import NONE, keep_first
from plait.core.metrics import Counts
from plait.order import BEFORE_ALL
from plait.query.dedup import Dedup


class LastKept:
    """Of each key the ts of the last tuple that was kept.

    `groups` gives keys numbers. `_last` is by number, NONE where none was kept. `_now` is the ts of the run's first tuple: none
    that is still to come lies before it.
    """

    def __init__(self, node: Dedup, schema: pa.Schema) -> None:
        self.within_us = node.within_us
        self.groups = Groups(node, schema, self._held)
        self._last = np.full(FIRST, NONE, np.int64)
        self._now = BEFORE_ALL
        self.counts = Counts()

    def judged(self, ts: np.ndarray, read: Read, rows: pa.Table | None) -> np.ndarray:
        """Which tuples of a run are kept: a mask. `read` has their keys as arrays, `rows` those that stay in Arrow."""
        if len(ts) == 0:
            return np.zeros(0, bool)
        self._begin(int(ts[0]))
        return self._kept(ts, self.groups.find(read, rows, len(ts)))

    def judged_rows(self, ts: np.ndarray, rows: pa.Table) -> np.ndarray:
        """The same of rows that are a table."""
        if len(ts) == 0:
            return np.zeros(0, bool)
        self._begin(int(ts[0]))
        return self._kept(ts, self.groups.find_rows(rows))

    def remember(self, ts: np.ndarray, rows: pa.Table) -> None:
        """Rows that are known to have been kept, the last one of each key."""
        if len(ts):
            self._begin(int(ts[0]))
            groups = self.groups.find_rows(rows)
            self._make_room()
            self._last[groups] = ts

    def last_of(self, rows: pa.Table) -> np.ndarray:
        """Of each row, when the last one of its key was kept."""
        groups = self.groups.find_rows(rows)
        self._make_room()
        found: np.ndarray = self._last[groups]
        return found

    @property
    def nbytes(self) -> int:
        return int(self._last.nbytes + self.groups.words.nbytes)

    def _begin(self, ts: int) -> None:
        self._now = self.groups.since = ts

    def _kept(self, ts: np.ndarray, groups: np.ndarray) -> np.ndarray:
        self._make_room()
        out = np.empty(len(ts), np.bool_)
        keep_first(np.ascontiguousarray(ts), groups, np.uint64(self.within_us), self._last, out)
        self.counts.comparisons += len(ts)
        return out

    def _make_room(self) -> None:
        """A place for every number that there may be."""
        more = self.groups.capacity - len(self._last)
        if more > 0:
            self._last = np.concatenate((self._last, np.full(more, NONE, np.int64)))

    def _held(self, groups: int) -> np.ndarray:
        """Which keys may still drop a tuple that is to come."""
        held = np.zeros(groups, bool)
        known = self._last[:groups]
        held[: len(known)] = (known != NONE) & (known >= max(self._now - self.within_us, BEFORE_ALL + 1))
        return held
