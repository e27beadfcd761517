"""Aggregate functions as accumulators: for every slot a row of int64, all zero where nothing was added.

Each can add a batch's tuples to the slots they have, merge slots into the rows of closed windows (a row's slots come in the order
of panes, so an order-sensitive function sees its parts in total order), and turn rows into an Arrow column. Those that
are partial states of a pane can be given out as columns (`parts`), and taken in again elsewhere (`absorb`).
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa

from plait.errors import DataError
from plait.kernels import exact, exact_bytes, panes, sliding
from plait.query.functions import Function
from plait.windows.closing import Pairs, Slid
from plait.windows.pane_columns import Read, array_of, bits_of, is_fixed, number_kind, one_array


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


class Count(Accumulator):
    part_types = (pa.int64(),)

    def __init__(self, condition: int | None = None) -> None:
        super().__init__()
        self.condition = condition
        self._running = np.zeros((0, 1), np.int64)

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        panes.count(low, high, slot, read.ones if self.condition is None else read.masks[self.condition], self.slots)

    def _merge(self, pairs: Pairs, into: np.ndarray) -> None:
        panes.merge_counts(0, len(pairs), pairs.targets, pairs.slots, into, self.slots)

    def _slid(self, closed: Slid) -> np.ndarray:
        self._running = closed.running(self._running, 1)
        into = np.empty((closed.number, 1), np.int64)
        sliding.counts(
            closed.bounds, closed.shift, closed.slot_group, closed.row_group, self.slots, self._running, into
        )
        return into

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes + self._running.nbytes)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        return pa.array(rows[:, 0].copy())

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        return [pa.array(self.slots[slots, 0])]

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        panes.add_counts(slot, parts[0].to_numpy(zero_copy_only=False), self.slots)


class Sum(Accumulator):
    """An exact sum, or mean, of a column."""

    width = exact.LIMBS
    part_types = (pa.int64(), pa.uint8(), pa.binary())  # how many, which odd ones, and the sum: see `exact_bytes`
    CARRY_AFTER = 1 << 28

    def __init__(self, column: str, kind: pa.DataType, *, mean: bool = False, square: bool = False) -> None:
        super().__init__()
        self.column_name, self.kind, self.mean, self.square = column, number_kind(kind), mean, square
        self.base, self._adds = 0, 0
        self._running = np.zeros((0, self.width), np.int64)  # of groups: see `kernels.sliding`

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        bits, valid = read.bits[self.column_name]
        self.note_adds(high - low)
        while low < high:
            low = int(exact.add(low, high, slot, bits, valid, self.kind, self.square, self.slots, self.base))
            if low < high:
                found = np.array([1 << 40, -(1 << 40)], np.int64)
                exact.range_of(low, high, slot, bits, valid, self.kind, self.square, found)
                self.cover(int(found[0]), int(found[1]))

    def note_adds(self, number: int) -> None:
        """So many values are about to be added: limbs must not have taken more than they can hold."""
        self._adds += number
        if self._adds > self.CARRY_AFTER:
            self.slots = self.slots.copy()  # another thread may be reading (`hive_functions.frozen`)
            exact.carry(0, len(self.slots), self.slots)
            exact.carry(0, len(self._running), self._running)
            self._adds = number

    def cover(self, low: int, high: int) -> None:
        """Have limbs of the weights from `low` to `high`, in limbs from 2^0, at least."""
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
        width = self.slots.shape[1]
        self._running = closed.running(self._running, width)
        into = np.empty((closed.number, width), np.int64)
        sliding.sums(
            closed.bounds, closed.shift, closed.slot_group, closed.slot_next, closed.row_group, closed.row_head,
            self.slots, self._running, into,
        )  # fmt: skip
        return into

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes + self._running.nbytes)

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
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

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
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


class Variance(Accumulator):
    """The sample's: from the exact sums of values and of squares, on Python's integers, rounded once."""

    part_types = (*Sum.part_types, pa.binary())

    def __init__(self, column: str, kind: pa.DataType) -> None:
        self.values, self.squares = Sum(column, kind), Sum(column, kind, square=True)

    def snapshot(self) -> Accumulator:
        made = copy(self)
        made.values, made.squares = copy(self.values), copy(self.squares)
        return made

    def reserve(self, capacity: int) -> None:
        self.values.reserve(capacity)
        self.squares.reserve(capacity)

    def move(self, first: int, end: int) -> None:
        self.values.move(first, end)
        self.squares.move(first, end)

    def clear(self, slots: np.ndarray) -> None:
        self.values.clear(slots)
        self.squares.clear(slots)

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        self.values.update(low, high, slot, read, refs)
        self.squares.update(low, high, slot, read, refs)

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        return [*self.values.parts(slots), self.squares.totals(self.squares.slots[slots])]

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        self.values.absorb(slot, parts[:3])
        self.squares.absorb(slot, [*parts[:2], parts[3]])

    def merged(self, closed: Pairs | Slid) -> np.ndarray:
        return np.concatenate((self.values.merged(closed), self.squares.merged(closed)), axis=1)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        cut = self.values.slots.shape[1]
        return pa.array([self._one(row[:cut], row[cut:]) for row in rows], pa.float64())

    def _one(self, values: np.ndarray, squares: np.ndarray) -> float | None:
        n = int(values[exact.COUNT])
        if n < 2:
            return None
        if values[exact.ODD]:
            return float("nan")
        power = min(64 * self.values.base, 32 * self.squares.base, 0)
        total, square = exact.whole(values), exact.whole(squares)
        above = n * (square << (32 * self.squares.base - power)) - (total * total << (64 * self.values.base - power))
        try:
            return above / (n * (n - 1) << -power)
        except OverflowError:
            return float("inf")

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.squares.nbytes


class Extreme(Accumulator):
    width = 2

    def __init__(self, column: str, kind: pa.DataType, sign: int) -> None:
        super().__init__()
        self.column_name, self.type, self.kind, self.sign = column, kind, number_kind(kind), sign
        self.part_types = (kind,)

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        panes.extreme(low, high, slot, *read.bits[self.column_name], self.kind, self.sign, self.slots)

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        return [self.column(self.slots[slots], self.column_name)]

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        bits, valid = bits_of(parts[0])
        there = np.ones(len(slot), np.uint8) if valid is None else valid
        panes.extreme(0, len(slot), slot, bits, there, self.kind, self.sign, self.slots)

    def _merge(self, pairs: Pairs, into: np.ndarray) -> None:
        panes.merge_extreme(0, len(pairs), pairs.targets, pairs.slots, self.sign, into, self.slots)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        bits = rows[:, 1].copy()
        if self.kind == exact.FLOAT:
            nan = bits == np.int64(0x7FFFFFFFFFFFFFFF)
            bits ^= (bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF)
            bits[nan] = np.array([np.nan]).view(np.int64)[0]
        elif self.kind == exact.UNSIGNED:
            bits ^= np.int64(-0x8000000000000000)
        return array_of(bits, rows[:, 0] != 0, self.type)


class Edge(Accumulator):
    """The first or last tuple's value, of those for which a condition holds; of a column in Arrow, the row's number."""

    width = 2

    def __init__(self, column: str, kind: pa.DataType, *, last: bool, condition: int | None, rows: Any) -> None:
        super().__init__()
        self.column_name, self.type, self.last, self.condition = column, kind, last, condition
        self.rows = None if is_fixed(kind) else rows

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        bits, valid = read.bits[self.column_name] if self.rows is None else (refs, read.ones)
        which = read.ones if self.condition is None else read.masks[self.condition]
        panes.edge(low, high, slot, bits, valid, which, self.last, self.slots)

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        """A pane's own first or last, of each slot at most one: the value, and its key, NULL where there is none."""
        values, key = parts
        which = np.asarray(key.is_valid()).astype(np.uint8)
        valid = None
        if self.rows is None:
            bits, valid = bits_of(values)
        else:
            first = self.rows.append_column(self.column_name, one_array(values))
            bits = np.arange(first, first + len(slot))
        there = np.ones(len(slot), np.uint8) if valid is None else valid
        panes.edge(0, len(slot), slot, bits, there, which, self.last, self.slots)

    def _merge(self, pairs: Pairs, into: np.ndarray) -> None:
        panes.merge_edge(0, len(pairs), pairs.targets, pairs.slots, self.last, into, self.slots)

    def _slid(self, closed: Slid) -> np.ndarray:
        into = np.empty((closed.number, self.width), np.int64)
        sliding.edges(closed.bounds, closed.shift, closed.slot_next, closed.row_head, self.last, self.slots, into)
        return into

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        there = rows[:, 0] == 2
        if self.rows is None:
            return array_of(rows[:, 1].copy(), there, self.type)
        found = self.rows.take(rows[there, 1], self.column_name)
        at = np.cumsum(there) - 1
        return found.take(pa.array(at, mask=~there)).cast(self.type) if len(found) else pa.nulls(len(rows), self.type)

    def refs(self, slots: np.ndarray) -> np.ndarray | None:
        if self.rows is None:
            return None
        own = self.slots[slots]
        return np.asarray(own[own[:, 0] == 2, 1])


class Place(Accumulator):
    """Where the first or last tuple is for which a condition holds: its row number."""

    width = 2

    def __init__(self, *, last: bool, condition: int | None) -> None:
        super().__init__()
        self.last, self.condition = last, condition

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        which = read.ones if self.condition is None else read.masks[self.condition]
        panes.edge(low, high, slot, refs, read.ones, which, self.last, self.slots)

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """Row numbers, -1 where there is none."""
        own = self.slots[slots]
        return np.where(own[:, 0] == 2, own[:, 1], -1)


def compiled(function: Function, schema: pa.Schema, condition: int | None, rows: Any) -> Accumulator | None:
    """The accumulator of a function that keeps numbers (or one row) a slot; None for one that keeps all its rows."""
    if function.kind in ("count", "count_where"):
        return Count(condition)
    if function.kind == "custom":
        return None
    name = function.columns[0]
    kind = schema.field(name).type
    match function.kind:
        case "sum":
            return Sum(name, kind)
        case "mean":
            return Sum(name, kind, mean=True)
        case "var":
            return Variance(name, kind)
        case "min" | "max" if is_fixed(kind):
            return Extreme(name, kind, 1 if function.kind == "max" else -1)
        case "first" | "last" | "first_where":
            return Edge(name, kind, last=function.kind == "last", condition=condition, rows=rows)
    return None
