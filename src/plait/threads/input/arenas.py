"""What workers read of a source's rows: its columns, in the order in which its tuples entered the gate.

A new source's arena is written before the gate gives out a tuple of it; after that its columns are only replaced while the
workers stand still. Here is their memory; who pushes a source writes it (`push`), workers read it by address.

A row of the table: addresses of the key, two coordinates, the flags of usable rows, then the columns
(`threads.words`). The n-th tuple of a source lies at `n & (size - 1)` of each column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.core.machine.line import address, pages
from plait.threads import words as shared
from plait.threads.parts import Converts, Encodes

CHUNK = 8192  # rows that are written at once, in front of the gate


class Arenas:
    """All sources'. `table` has a row a source, of addresses: what compiled code takes. `size`, a power of two, is each one's."""

    def __init__(self, slots: int, size: int, columns: int = 0) -> None:
        self.table = np.zeros((slots, max(shared.A_WORDS, shared.A_COLUMNS + columns)), np.int64)
        self.slots, self.size = slots, size
        self.by_slot: dict[int, Arena] = {}

    def furnish(self, slot: int, side: int, encoder: Encodes) -> None:
        """Memory for a source that is let in."""
        arena = self.by_slot[slot] = Arena(self.size, side, encoder)
        arena.name_in(self.table[slot])

    def convert(self, after: list[list[tuple[str, Any]]], encoder: Converts) -> None:
        """Columns of other types than before, by side; while the workers stand still."""
        for slot, arena in self.by_slot.items():
            arena.convert(after[arena.side], encoder)
            arena.name_in(self.table[slot])

    @property
    def nbytes(self) -> int:
        """About: of each source that was let in, some columns."""
        return 40 * self.size * len(self.by_slot)


class Arena:
    """One source's. `written`: whether rows have come; until then its memory is the system's promise, and costs nothing."""

    def __init__(self, size: int, side: int, encoder: Encodes) -> None:
        self.side, self.size, self.written = side, size, False
        self.fixed = [pages(size) for _ in range(3)] if encoder.has_node else []
        self.usable = np.empty(size, np.uint8)
        self.columns = {name: pages(size, kind) for name, kind in encoder.columns(side)}

    def name_in(self, row: np.ndarray) -> None:
        for at, array in enumerate(self.fixed):
            row[shared.A_KEY + at] = address(array)
        row[shared.A_USABLE] = address(self.usable)
        for at, column in enumerate(self.columns.values()):
            row[shared.A_COLUMNS + at] = address(column)

    def convert(self, after: list[tuple[str, Any]], encoder: Converts) -> None:
        if not self.written:
            self.columns = {name: pages(self.size, kind) for name, kind in after}
            return
        old, self.columns = self.columns, {}
        for column in after:
            made = encoder.converted(old.get(column[0]), column, self.side)
            self.columns[column[0]] = np.ones(self.size, column[1]) if made is None else made
