"""Payload of a window's rows: whole Arrow batches, untouched until results are built.

Batches are kept in the order of their rows' ids and dropped as soon as the last of their rows has left the window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from itertools import pairwise

import numpy as np
import pyarrow as pa


class Payload:
    """One side's rows, found by id."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._batches: deque[tuple[int, pa.RecordBatch]] = deque()  # (id of the first row, rows)
        self.next_id = 0

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for _, batch in self._batches)

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for _, batch in self._batches)

    def append(self, rows: pa.RecordBatch | pa.Table) -> None:
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            if batch.num_rows:
                self._batches.append((self.next_id, batch))
                self.next_id += batch.num_rows

    def expire(self, first_live_id: int) -> None:
        while self._batches and self._batches[0][0] + self._batches[0][1].num_rows <= first_live_id:
            self._batches.popleft()

    def take(self, ids: np.ndarray, columns: list[str] | None = None) -> pa.Table:
        """The rows of these ids, in this order, once for each time they are named; of them these columns, or all."""
        starts = [start for start, _ in self._batches]
        names = self.schema.names if columns is None else columns
        if len(ids) == 0:
            return self.schema.empty_table().select(names)
        first, last = bisect_right(starts, int(ids.min())) - 1, bisect_right(starts, int(ids.max())) - 1
        if first == last:
            start, batch = self._batches[first]
            return pa.Table.from_batches([batch.select(names).take(pa.array(ids - start))])
        which = np.searchsorted(np.array(starts), ids, "right") - 1
        # One take a batch, then one to restore the order: both in proportion to the result, not to the window.
        by = np.argsort(which, kind="stable")
        cuts = np.searchsorted(which[by], np.arange(first, last + 2))
        parts = []
        for k, (begin, end) in enumerate(pairwise(cuts)):
            if begin < end:
                start, batch = self._batches[first + k]
                parts.append(batch.select(names).take(pa.array(ids[by[begin:end]] - start)))
        back = np.empty(len(ids), np.int64)
        back[by] = np.arange(len(ids))
        return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back))
