"""Aggregate functions as accumulators: for every slot a row of int64, all zero where nothing was added.

Each can add a batch's tuples to the slots they have, merge slots into the rows of closed windows (a row's slots come in the order
of panes, so an order-sensitive function sees its parts in total order), and turn rows into an Arrow column.

Two more things are asked of those that can do them. On Spark a pane is computed in parts, on several machines: a part is given
out as columns (`parts`) and taken in again elsewhere (`absorb`). On threads every source may add up its own part of a pane, in
tallies, which are slots in a ring: `ring` says in words where they are, and `merge` how compiled code merges them. Which
function has which accumulator, and what that must be able to do, is said in `core.aggregate.functions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Final

import numpy as np
import pyarrow as pa

from plait.core.aggregate.closed import Pairs, Slid
from plait.core.aggregate.columns import Read, array_of, bits_of, is_fixed, number_kind
from plait.core.kernels import exact, panes, slides
from plait.core.machine.line import address, pages
from plait.core.values import one_array
from plait.encodings import recast

# A step in words, for compiled code that updates tallies itself (`threads.aggregate.hive.usual`): which kernel; the address of
# its slots, and words a slot; the row of bits that has its column, and how these are read; of a product the other factor's; what
# else the kernel asks (squares, the sign, the last); the first limb's weight; the address of its count of additions; the number
# of its condition, or -1.
STEP_WHAT, STEP_SLOTS, STEP_WIDTH, STEP_ROW, STEP_KIND, STEP_OTHER, STEP_OTHER_KIND, STEP_HOW, STEP_BASE, STEP_ADDS = (
    range(10)
)
STEP_WHERE: Final = 10
STEP_WORDS: Final = 11
COUNTS, SUMS, PRODUCTS, EXTREMES, EDGES = range(5)  # STEP_WHAT

# A ring of a source's tallies in words, for compiled code that merges them (`threads.aggregate.hive.merging`): the address of its
# slots, how many there are, words a slot, and the first limb's weight. For complete panes they no longer change: a later growth
# makes new arrays and leaves these be. Who reads them holds the arrays (`frozen`).
RING_SLOTS, RING_SIZE, RING_WIDTH, RING_BASE = range(4)
RING_WORDS: Final = 4
# A merge in words: which kernel; the address of the slots that tallies go to, how many there are, words a slot; what else the
# kernel asks (the sign, the last); the first limb's weight; the address of `times`.
MERGE_WHAT, MERGE_SLOTS, MERGE_SIZE, MERGE_WIDTH, MERGE_HOW, MERGE_BASE, MERGE_TIMES = range(7)
MERGE_WORDS: Final = 7


class Accumulator:
    """`slots` has a row for every slot; kernels change it in place.

    A slot of zeros is an empty one: growing and clearing are filling with zeros, and no kernel has to ask whether a slot
    is new. One thread at a time uses an accumulator.
    """

    how = "compiled, a pane at a time"  # for `explain`
    width = 1
    #: The types of the columns that `parts` gives; None: its slots are no partial states of their own.
    part_types: tuple[pa.DataType, ...] | None = None
    #: Of one that keeps a value of the first or last tuple: whether it is the last, and the number of the condition that it must
    #: meet. Its part of a pane is that value, beside that tuple's key.
    edge: tuple[bool, int | None] | None = None
    #: The number of the condition (`reads.Columns`) that tuples must meet to be added; None: all are.
    condition: int | None = None

    def __init__(self) -> None:
        self.slots = np.zeros((0, self.width), np.int64)

    def seen(self, slot: np.ndarray, read: Read) -> np.ndarray:
        """The slots of tuples, -1 for those that do not meet the condition."""
        return slot if self.condition is None else np.where(read.masks[self.condition] != 0, slot, -1)

    def reserve(self, capacity: int) -> None:
        """Room for so many slots. The array is a new one, and what had the old one keeps it as it was."""
        grown = np.zeros((capacity, self.slots.shape[1]), np.int64)
        grown[: len(self.slots)] = self.slots
        self.slots = grown

    def move(self, first: int, end: int) -> None:
        """The slots in use are now the first ones; those after them are as new."""
        panes.move(first, end, self.slots)
        self.slots[end - first : end] = 0

    def clear(self, slots: np.ndarray) -> None:
        self.slots[slots] = 0

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        """Add tuples low to high, not with high. `slot[i]` is the slot of tuple i, -1 for none; `read` has the columns,
        `refs[i]` the number of its row in `KeptRows` (or a ts, for `TimedEdge`).
        """
        raise NotImplementedError

    def merged(self, closed: Pairs | Slid) -> np.ndarray:
        """One row of int64 for each row of closed windows, of the same form as a slot. Slots are not changed."""
        if isinstance(closed, Slid) and closed.apart:
            into = np.empty((closed.number, self.slots.shape[1]), np.int64)
            slides.take(closed.shift, closed.row_head, self.slots, into)
            return into
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
        """Merged rows as the output column; `name` is for messages."""
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

    # --- a source's own tallies ---

    def of_source(self) -> Accumulator:
        """As one source keeps it, in tallies of its own."""
        return self

    def singles(self) -> list[Accumulator]:
        """What is updated, one after the other: itself, or what it is made of."""
        return [self]

    def step(self, at: Mapping[str, int]) -> list[int]:
        """STEP_WORDS of one of `singles`, good as long as its slots are the array they are now. `at`: a column's row of bits."""
        raise NotImplementedError

    def _step(self, what: int, row: int = 0, kind: int = 0, *, other: int = 0, other_kind: int = 0, how: int = 0, base: int = 0,
              adds: int = 0) -> list[int]:  # fmt: skip
        where = -1 if self.condition is None else self.condition
        width = self.slots.shape[1]
        return [what, address(self.slots), width, row, kind, other, other_kind, how, base, adds, where]

    def regrow(self, capacity: int, first: int, end: int) -> None:
        """A ring of so many tallies; those from `first` to `end` are live."""
        self.slots = in_ring(self.slots, pages((capacity, self.slots.shape[1])), first, end)

    def wipe(self, low: int, high: int) -> None:
        """Tallies low to high, places in the ring, are as new."""
        panes.wipe(low, high, self.slots)

    def ring(self) -> tuple[int, int, int, int]:
        """RING_WORDS of one of `singles`: where another thread finds its tallies, as long as `slots` is held."""
        return address(self.slots), len(self.slots), self.slots.shape[1], 0

    def times(self, number: int) -> np.ndarray:
        """Room for what merging has to know of so many new slots besides what they hold: none, but for edges."""
        return np.empty(0, np.int64)

    def merge(self, rings: np.ndarray, total: int, times: np.ndarray) -> list[int]:
        """MERGE_WORDS of one of `singles`: how tallies in these rings go into its slots, `total` of them. They are good as long
        as its slots are the array they are now. `rings`: RING_WORDS of every source. `times` is what the method of this name
        gave.
        """
        raise NotImplementedError

    def _merge_words(self, what: int, *, how: int = 0, base: int = 0, times: np.ndarray | None = None) -> list[int]:
        at = 0 if times is None else address(times)
        return [what, address(self.slots), len(self.slots), self.slots.shape[1], how, base, at]


def in_ring(old: np.ndarray, new: np.ndarray, first: int, end: int) -> np.ndarray:
    """Rows first to end of a ring, in a larger one, which is given back."""
    while first < end:
        at, to = first & (len(old) - 1), first & (len(new) - 1)
        run = min(end - first, len(old) - at, len(new) - to)  # up to where either ring begins again
        new[to : to + run] = old[at : at + run]
        first += run
    return new


class Count(Accumulator):
    """One number a slot: tuples, or those for which condition number `condition` is true. NULL counts as well as anything."""

    part_types = (pa.int64(),)

    def __init__(self, condition: int | None = None) -> None:
        super().__init__()
        self.condition = condition
        self._running = np.zeros((0, 1), np.int64)

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        which = read.ones if self.condition is None else read.masks[self.condition]
        panes.count(low, high, slot, which, self.slots)

    def step(self, at: Mapping[str, int]) -> list[int]:
        return self._step(COUNTS)

    def _merge(self, pairs: Pairs, into: np.ndarray) -> None:
        panes.merge_counts(0, len(pairs), pairs.targets, pairs.slots, into, self.slots)

    def _slid(self, closed: Slid) -> np.ndarray:
        self._running = closed.running(self._running, 1)
        into = np.empty((closed.number, 1), np.int64)
        slides.counts(closed.bounds, closed.shift, closed.slot_group, closed.row_group, self.slots, self._running, into)
        return into

    @property
    def nbytes(self) -> int:
        return int(self.slots.nbytes + self._running.nbytes)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        return pa.array(np.ascontiguousarray(rows[:, 0]))  # merged rows are nobody else's

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        return [pa.array(self.slots[slots, 0])]

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        panes.add_counts(slot, parts[0].to_numpy(zero_copy_only=False), self.slots)

    def merge(self, rings: np.ndarray, total: int, times: np.ndarray) -> list[int]:
        return self._merge_words(COUNTS)


class Extreme(Accumulator):
    """The least (`sign` -1) or greatest (1) value that is not NULL. A slot holds whether there is any, and the value as an
    int64 that compares as the value does (`core.kernels.panes.ordered`); `column` turns that back. NaN is above all
    numbers, and of 0.0 and -0.0 the answer is 0.0, so that which of them came first does not show.
    """

    width = 2

    def __init__(self, column: str, kind: pa.DataType, sign: int, condition: int | None = None) -> None:
        super().__init__()
        self.column_name, self.type, self.kind, self.sign = column, kind, number_kind(kind), sign
        self.part_types, self.condition = (kind,), condition

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        panes.extreme(low, high, self.seen(slot, read), *read.bits[self.column_name], self.kind, self.sign, self.slots)

    def step(self, at: Mapping[str, int]) -> list[int]:
        return self._step(EXTREMES, at[self.column_name], self.kind, how=self.sign)

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        return [self.column(self.slots[slots], self.column_name)]

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        bits, valid = bits_of(parts[0])
        there = np.ones(len(slot), np.uint8) if valid is None else valid
        panes.extreme(0, len(slot), slot, bits, there, self.kind, self.sign, self.slots)

    def merge(self, rings: np.ndarray, total: int, times: np.ndarray) -> list[int]:
        return self._merge_words(EXTREMES, how=self.sign)

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
    """The first or last tuple's value, of those for which a condition holds; of a column in Arrow, the row's number.

    A slot holds 0 for none, 1 for a NULL, 2 for a value; and the value's bits or its row's number. NULL is a value here:
    `first` of a window that begins with NULL is NULL. `rows` is None for columns that have bits.
    """

    width = 2

    def __init__(self, column: str, kind: pa.DataType, *, last: bool, condition: int | None, rows: Any) -> None:
        super().__init__()
        self.column_name, self.type, self.last, self.condition = column, kind, last, condition
        self.edge = (last, condition)
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
        slides.edges(closed.bounds, closed.shift, closed.slot_next, closed.row_head, self.last, self.slots, into)
        return into

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        """Rows are taken from `KeptRows` only for those that hold a value, then spread over all rows, NULL in between."""
        there = rows[:, 0] == 2
        if self.rows is None:
            return array_of(rows[:, 1].copy(), there, self.type)
        if there.all():
            return recast(self.rows.take(rows[:, 1], self.column_name), self.type)
        found = self.rows.take(rows[there, 1], self.column_name)
        at = np.cumsum(there) - 1
        return (
            recast(found.take(pa.array(at, mask=~there)), self.type) if len(found) else pa.nulls(len(rows), self.type)
        )

    def refs(self, slots: np.ndarray) -> np.ndarray | None:
        if self.rows is None:
            return None
        own = self.slots[slots]
        return np.asarray(own[own[:, 0] == 2, 1])

    def of_source(self) -> Accumulator:
        return TimedEdge(self.column_name, self.type, last=self.last, condition=self.condition, rows=None)

    def times(self, number: int) -> np.ndarray:
        return np.empty(number, np.int64)

    def merge(self, rings: np.ndarray, total: int, times: np.ndarray) -> list[int]:
        """Of parts that are merged in the order of their sources the first one with the least ts is first, and the last one with
        the greatest is last.
        """
        return self._merge_words(EDGES, how=int(self.last), times=times)


class TimedEdge(Edge):
    """As `Edge`, in a source's tallies: the tuple's ts too, which is what `update` is given for references.

    Sources merge their parts without seeing each other's order. Within a source the order of arrival is that of seq;
    between two sources the ts decides, and of equal ts the order of sources, which is the order of merging.
    """

    width = 3

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        bits, valid = read.bits[self.column_name]
        which = read.ones if self.condition is None else read.masks[self.condition]
        panes.timed_edge(low, high, slot, bits, valid, which, refs, self.last, self.slots)

    def step(self, at: Mapping[str, int]) -> list[int]:
        return self._step(EDGES, at[self.column_name], how=int(self.last))


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
