"""Aggregate functions as accumulators: counts, extremes, the first and the last; and which function is kept how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulator import Accumulator
from plait.core.aggregate.closed import Pairs, Slid
from plait.core.aggregate.columns import Read, array_of, bits_of, is_fixed, number_kind, one_array
from plait.core.aggregate.sums import Sum, Variance
from plait.core.kernels import exact, panes, sliding
from plait.layouts import recast
from plait.query.functions import Function


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
        return (
            recast(found.take(pa.array(at, mask=~there)), self.type) if len(found) else pa.nulls(len(rows), self.type)
        )

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
