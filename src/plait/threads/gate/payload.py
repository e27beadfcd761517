"""Payload stays in Arrow: the gate carries one word a tuple, batch number << 32 | row.

A batch is kept until every reader has taken all of its rows, counted per reader. A reader that is announced owes what its
parent still owes; one that is removed owes nothing. The caller holds the reader's lock around a read and `take`, and
the parent's around an announcement and `inherit`, so that counts and positions agree.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import numpy as np
import pyarrow as pa

ROW_BITS: Final = 32
ROW_MASK: Final = 2**32 - 1


class Payload:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._batches: dict[int, pa.RecordBatch] = {}
        self._owed: dict[int, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def keep(self, batch: pa.RecordBatch, readers: list[int], rows: int) -> int:
        """Keep a batch of which each reader will take `rows` rows; gives its number."""
        with self._lock:
            self._number += 1
            self._batches[self._number] = batch
            self._owed[self._number] = dict.fromkeys(readers, rows)
            return self._number

    def less(self, number: int, rows: int) -> None:
        """So many rows of this batch never entered the gate."""
        if rows:
            with self._lock:
                for reader in list(self._owed.get(number, ())):
                    self._pay(number, reader, rows)

    def take(self, reader: int, ref: np.ndarray) -> dict[int, pa.RecordBatch]:
        """The batches these references point into, and one reader's debt lessened by them."""
        numbers, counts = np.unique(ref >> ROW_BITS, return_counts=True)
        with self._lock:
            known = [pair for pair in zip(numbers.tolist(), counts.tolist(), strict=True) if pair[0] in self._batches]
            found = {number: self._batches[number] for number, _ in known}
            for number, count in known:
                self._pay(number, reader, count)
            return found

    def _pay(self, number: int, reader: int, rows: int) -> None:
        owed = self._owed[number]
        owed[reader] -= rows
        if owed[reader] <= 0:
            del owed[reader]
        if not owed:
            del self._owed[number], self._batches[number]

    def inherit(self, readers: list[int], parent: int) -> None:
        with self._lock:
            for owed in self._owed.values():
                if parent in owed:
                    owed.update(dict.fromkeys(readers, owed[parent]))

    def forget(self, reader: int) -> None:
        with self._lock:
            for number, owed in list(self._owed.items()):
                owed.pop(reader, None)
                if not owed:
                    del self._owed[number], self._batches[number]


def rows(batches: dict[int, pa.RecordBatch], ref: np.ndarray) -> pa.Table:
    """The rows these references point at, in their order; all batches must have one schema."""
    numbers = sorted(batches)
    starts = np.cumsum([0, *(batches[number].num_rows for number in numbers)])
    which = np.searchsorted(np.array(numbers, dtype=np.int64), ref >> ROW_BITS)
    table: Any = pa.Table.from_batches([batches[number] for number in numbers])
    return table.take(pa.array(starts[which] + (ref & ROW_MASK)))
