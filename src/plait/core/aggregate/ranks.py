"""Windows of tuples that can be taken up again: each tuple's number in its group, its rank, decides where it belongs.

How many tuples a group has had must outlive them: so of a group all tuples are kept whose windows are still to close, and
at least the last one, with their ranks. They stand in a row, so the first one's rank is where counting goes on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core.aggregate.counted import TuplePanes


class RankedPanes(TuplePanes):
    """Spark's cells use it: what they store are tuples and ranks, not slots. A rank is a tuple's number in its group, from
    0.
    """

    def ranks(self, rows: pa.Table) -> np.ndarray:
        """The ranks that tuples will have which are to be taken next.

        int64, one a row, in the order of `rows`. Nothing is taken by this call.
        """
        group = self._known(rows)
        order = np.argsort(group, kind="stable")
        first = np.ones(len(group), bool)
        first[1:] = group[order][1:] != group[order][:-1]
        begin = np.flatnonzero(first)
        run = np.arange(len(group)) - np.repeat(begin, np.diff(np.append(begin, len(group))))
        out = np.empty(len(group), np.int64)
        out[order] = run
        return np.asarray(out + self._seen[group])

    def needed(self, rows: pa.Table, ranks: np.ndarray) -> np.ndarray:
        """Of tuples taken before, those that have to be kept.

        A mask. `rows` are tuples with their `ranks`. A tuple is needed by the next window that closes, number `window`,
        or any later one, if its rank is not below where that window begins. The last tuple of a group is needed for its
        rank alone.
        """
        seen = self._seen[self._known(rows)]
        window = np.maximum((seen - self.size) // self.advance + 1, 0)
        return np.asarray((ranks >= window * self.advance) | (ranks == seen - 1))

    def go_on(self, rows: pa.Table, ranks: np.ndarray) -> None:
        """Tuples that were kept, in order, are to be taken next: count from the first of each group."""
        group, at = np.unique(self._known(rows), return_index=True)
        self._seen[group] = ranks[at]

    def _known(self, rows: pa.Table) -> np.ndarray:
        group = self.groups.find_rows(rows)
        self._make_room(0)
        return group
