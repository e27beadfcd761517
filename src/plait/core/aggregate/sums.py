"""Exact sums and means of a column, as accumulators (`core.kernels.exact`). What is made of several sums is in `moments`.

What goes in are 64-bit patterns of numbers with a byte each that says whether they are there (`core.aggregate.columns`).
What comes out is a column of int64 (sums of integers) or float64 (the rest), NULL where no value was added. Nothing is
rounded on the way: slots hold integers of as many bits as the values need, so the order of additions, the panes, the
workers and the machines can't change a bit of the result. The one rounding is at the end.
tests/core/aggregate/test_exact.py holds this against fractions.

Why not add floats: (1e16 + 1.0) - 1e16 is 0.0 in floats, and 1.0 + (1e16 - 1e16) is 1.0. Two runs that merge the same
panes in another order would differ.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import RING_BASE, RING_WIDTH, SUMS, Accumulator
from plait.core.aggregate.closed import Pairs, Slid
from plait.core.aggregate.columns import Read, number_kind
from plait.core.kernels import exact, exact_bytes, slides
from plait.core.machine.line import address
from plait.errors import DataError


class Sum(Accumulator):
    """An exact sum, or mean, of a column.

    Attributes: `slots` is an array of int64, a row a slot: COUNT, ODD, then limbs (`core.kernels.exact`). All slots have
    limbs of the same weights; `base` is the weight of the first one, in steps of 32 bits from 2^0, and may be negative. A
    new accumulator has no limbs at all; `cover` makes those that values ask for. `_adds` counts additions since limbs
    were last carried. `_running` has a total for each group, for windows that slide.

    `mean` divides by the count when a row is made. `square` adds squares of values (`core.aggregate.moments` needs them).
    `beside` is a column that must not be NULL either. `degree` is how many values are multiplied in what is added.
    """

    width = exact.LIMBS
    part_types = (pa.int64(), pa.uint8(), pa.binary())  # how many, which odd ones, and the sum: see `exact_bytes`
    CARRY_AFTER = exact.CARRY_AFTER

    def __init__(
        self, column: str, kind: pa.DataType, *, mean: bool = False, square: bool = False, condition: int | None = None,
        beside: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.column_name, self.kind, self.mean, self.square = column, number_kind(kind), mean, square
        self.condition, self.beside, self.degree = condition, beside, 2 if square else 1
        self.base, self._adds = 0, np.zeros(1, np.int64)
        self._running = np.zeros((0, self.width), np.int64)  # of groups: see `core.kernels.slides`

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        """Add the values of tuples low to high, not with high, to their slots. NULL is skipped; a slot of -1 is nobody's.

        The kernel stops at the first value that is too large or too small for the limbs there are. Then the range of what
        is left is found, limbs are added on either side, and it goes on. With usual data this happens a few times in a
        run.
        """
        bits, valid = read.bits[self.column_name]
        slot = self.seen(slot, read)
        if self.beside is not None:
            valid = valid & read.bits[self.beside][1]
        self.note_adds(high - low)
        while low < high:
            low = int(exact.add(low, high, slot, bits, valid, self.kind, self.square, self.slots, self.base))
            if low < high:
                found = np.array([1 << 40, -(1 << 40)], np.int64)
                exact.range_of(low, high, slot, bits, valid, self.kind, self.square, found)
                self.cover(int(found[0]), int(found[1]))

    def step(self, at: Mapping[str, int]) -> list[int]:
        return self._step(
            SUMS, at[self.column_name], self.kind, how=int(self.square), base=self.base, adds=address(self._adds)
        )

    def note_adds(self, number: int) -> None:
        """So many values are about to be added: limbs must not have taken more than they can hold.

        A limb holds 32 bits and has 31 bits of room. An addition of a value, or of a square, adds less than 2^35 to a
        limb. After CARRY_AFTER additions what is above 32 bits is moved on, in all slots and totals at once, which costs
        one pass over them.
        """
        self._adds[0] += number
        if self._adds[0] > self.CARRY_AFTER:
            self.slots = self.slots.copy()  # another thread may be reading (`frozen`)
            exact.carry(0, len(self.slots), self.slots)
            exact.carry(0, len(self._running), self._running)
            self._adds[0] = number

    def cover(self, low: int, high: int) -> None:
        """Have limbs of the weights from `low` to `high`, in limbs from 2^0, at least.

        `low` is the first, `high` the one after the last. Limbs that are there already stay. Slots, running totals and
        `base` change together: a total is of the same limbs as the slots that are taken away from it.
        """
        limbs = self.slots.shape[1] - exact.LIMBS
        if limbs:
            low, high = min(low, self.base), max(high, self.base + limbs)
            if high - low == limbs:
                return
        at = exact.LIMBS + self.base - low if limbs else exact.LIMBS

        def grown(rows: np.ndarray) -> np.ndarray:
            made = np.zeros((len(rows), exact.LIMBS + high - low), np.int64)
            made[:, : exact.LIMBS] = rows[:, : exact.LIMBS]
            # The topmost limb may be negative, or hold more than 32 bits: it goes on into those above it.
            made[:, at : at + limbs] = rows[:, exact.LIMBS :]
            return made

        self.slots, self._running, self.base = grown(self.slots), grown(self._running), low

    def _merge(self, pairs: Pairs, into: np.ndarray) -> None:
        exact.merge(0, len(pairs), pairs.targets, pairs.slots, into, self.slots)

    def _slid(self, closed: Slid) -> np.ndarray:
        """Sums of rows of sliding windows: running totals of groups are brought from window to window by what came and what
        left. They are exact, so taking away leaves nothing behind. (With floats it would: this is why sums are integers.)
        """
        width = self.slots.shape[1]
        self._running = closed.running(self._running, width)
        into = np.empty((closed.number, width), np.int64)
        slides.sums(
            closed.bounds, closed.shift, closed.slot_group, closed.slot_next, closed.row_group, closed.row_head,
            self.slots, self._running, into,
        )  # fmt: skip
        return into

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes + self._running.nbytes)

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        """A partial pane's three columns: the count, which odd values there were (a byte), and the sum as bytes. See
        `exact_bytes`.
        """
        rows = self.slots[slots]
        return [pa.array(rows[:, exact.COUNT]), pa.array(rows[:, exact.ODD].astype(np.uint8)), self.totals(rows)]

    def totals(self, rows: np.ndarray) -> pa.Array:
        """Sums as bytes."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        exact_bytes.sizes(rows, offsets[1:])
        np.cumsum(offsets, out=offsets)
        raw = np.zeros(int(offsets[-1]), np.uint8)
        exact_bytes.write(rows, self.base, offsets, raw)
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(raw)]
        return pa.Array.from_buffers(pa.binary(), len(rows), buffers)

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        """Add partial panes: row k of the columns to slot[k]. The limbs that they need are made first, then all are added in
        one kernel call. An empty text of bytes is a sum of 0, and asks for no limbs.
        """
        counts, odds = (part.to_numpy(zero_copy_only=False).astype(np.int64) for part in parts[:2])
        total = parts[2]
        _, at, data = total.buffers()
        offsets = np.frombuffer(at, np.int32)[total.offset : total.offset + len(total) + 1].astype(np.int64)
        raw = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
        self.note_adds(len(slot))
        found = np.array([1 << 40, -(1 << 40)], np.int64)
        exact_bytes.range_of(offsets, raw, found)
        if found[0] < found[1]:
            self.cover(int(found[0]), int(found[1]))
        exact_bytes.add(slot, counts, odds, offsets, raw, self.slots, self.base)

    def ring(self) -> tuple[int, int, int, int]:
        """Slots and their base together: a later `cover` makes a new array, and this one stays as it was."""
        at, size, width, _ = super().ring()
        return at, size, width, self.base

    def merge(self, rings: np.ndarray, total: int, times: np.ndarray) -> list[int]:
        """As `Accumulator.merge`. A source's tallies may have other limbs than these slots, which are made to have them all."""
        limbs = rings[:, RING_WIDTH] - exact.LIMBS
        if limbs.any():
            low = rings[limbs > 0, RING_BASE]
            self.cover(int(low.min()), int((low + limbs[limbs > 0]).max()))
        self.note_adds(total)
        return self._merge_words(SUMS, base=self.base)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        """Merged rows as the output column. A sum of integers that does not fit 64 bits is refused with its value, not
        wrapped. Where an infinity or NaN was added, the result is the one that IEEE's rules give: NaN, or +inf with -inf,
        gives NaN.
        """
        none = rows[:, exact.COUNT] == 0
        if self.kind != exact.FLOAT and not self.mean:
            out = np.zeros(len(rows), np.int64)
            bad = int(exact.integers(rows, out))
            if bad >= 0:
                raise DataError(
                    f"The sum in column {name!r} is {exact.whole(rows[bad])}, beyond 64 bits",
                    why="integer sums are exact or an error",
                    do="Cast the column to float64 to accept rounding",
                )
            return pa.array(out, mask=none)
        floats = np.empty(len(rows))
        exact.rounded(rows, self.base, self.mean, floats)
        return pa.array(floats, mask=none)
