"""Aggregate functions as accumulators: for every slot a row of int64, all zero where nothing was added.

Each can add a batch's tuples to the slots they have, merge slots into the rows of closed windows (a row's slots come in the order
of panes, so an order-sensitive function sees its parts in total order), and turn rows into an Arrow column. Those that
are partial states of a pane can be given out as columns (`parts`), and taken in again elsewhere (`absorb`).
"""

from __future__ import annotations

from copy import copy

import numpy as np
import pyarrow as pa

from plait.core.aggregate.closed import Pairs, Slid
from plait.core.aggregate.columns import Read


class Accumulator:
    """`slots` has a row for every slot; kernels change it in place."""

    width = 1
    #: The types of the columns that `parts` gives; None: its slots are no partial states of their own.
    part_types: tuple[pa.DataType, ...] | None = None

    def __init__(self) -> None:
        self.slots = np.zeros((0, self.width), np.int64)

    def reserve(self, capacity: int) -> None:
        grown = np.zeros((capacity, self.slots.shape[1]), np.int64)
        grown[: len(self.slots)] = self.slots
        self.slots = grown

    def move(self, first: int, end: int) -> None:
        """The slots in use are now the first ones; those after them are as new."""
        self.slots[: end - first] = self.slots[first:end].copy()
        self.slots[end - first : end] = 0

    def clear(self, slots: np.ndarray) -> None:
        self.slots[slots] = 0

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        raise NotImplementedError

    def merged(self, closed: Pairs | Slid) -> np.ndarray:
        if isinstance(closed, Slid):
            return self._slid(closed)
        into = np.zeros((closed.number, self.slots.shape[1]), np.int64)
        self._merge(closed, into)
        return into

    def _slid(self, closed: Slid) -> np.ndarray:
        return self.merged(closed.pairs)

    def _merge(self, pairs: Pairs, into: np.ndarray) -> None:
        raise NotImplementedError

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        raise NotImplementedError

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        """What these slots hold, as columns."""
        raise NotImplementedError

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        """Add partial states to the slots they have."""
        raise NotImplementedError

    def refs(self, slots: np.ndarray) -> np.ndarray | None:
        """Rows that these slots refer to; None for a function that refers to none."""
        return None

    def snapshot(self) -> Accumulator:
        """Of what `column` needs besides rows: it stays as it is now."""
        return copy(self)

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes)
