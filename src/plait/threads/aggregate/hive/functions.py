"""Aggregate functions in cells: what each source adds up by itself, and how parts of several sources make one pane's slot.

A source's accumulators are those of panes, their rows its cells, in a ring. `frozen` gives what the taker may read of one: arrays
that, for complete panes, no longer change; a later growth makes new arrays and leaves these be. `absorb` merges cells into
slots. First and last have the ts of their tuple in the cell too: of parts that are merged in the order of their sources the
first one with the least ts is first, and the last one with the greatest is last.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulator import Accumulator
from plait.core.aggregate.columns import Read, is_fixed
from plait.core.aggregate.functions import Count, Edge, Extreme, compiled
from plait.core.aggregate.sums import Sum, Variance
from plait.core.kernels import exact, panes
from plait.errors import QueryError
from plait.query.aggregate import Aggregate, SpanWindow
from plait.query.functions import Function


class TimedEdge(Edge):
    """As `Edge`, and the tuple's ts, which is what `update` is given for references."""

    width = 3

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        bits, valid = read.bits[self.column_name]
        which = read.ones if self.condition is None else read.masks[self.condition]
        panes.timed_edge(low, high, slot, bits, valid, which, refs, self.last, self.slots)


def check(node: Aggregate, schema: pa.Schema | None = None) -> str | None:
    """Why the W-Hive can't serve a query; None if it can. Without a schema: as far as that can be said then."""
    if not isinstance(node.window, SpanWindow):
        return "windows of tuples close at a tuple of the total order, which no source sees by itself"
    for name, function in node.compute:
        reason = _unmerged(function, schema)
        if reason is not None:
            return f"{name} = {function.describe()} {reason}"
    return None


def _unmerged(function: Function, schema: pa.Schema | None) -> str | None:
    if function.kind in ("collect", "distinct", "custom"):
        return "keeps its window's rows in total order, and sources' parts have none between them"
    if function.kind in ("min", "max", "first", "last", "first_where") and schema is not None:
        kind = schema.field(function.columns[0]).type
        if not is_fixed(kind):
            return f"is of a column of type {kind}, and a source's part of a window holds numbers only"
    return None


def refuse(reason: str, query: Aggregate, strategy: str) -> QueryError:
    other = "'tuml_sc'" + (" or 'tuml_mc'" if query.by else "")
    return QueryError(
        f"strategy={strategy!r} for this query: {reason}",
        why="with WiML every source updates windows by itself, and parts are merged when a winset is complete",
        do=f"Use {other}, where tuples come in total order, or 'auto'",
    )


def accumulators(node: Aggregate, schema: pa.Schema) -> list[Accumulator]:
    """One source's, in the order of the query's functions."""
    made: list[Accumulator] = []
    condition = 0
    for _, function in node.compute:
        own = None
        if function.where is not None:
            own, condition = condition, condition + 1
        found = compiled(function, schema, own, None)
        assert found is not None
        if isinstance(found, Edge):
            kind = schema.field(function.columns[0]).type
            found = TimedEdge(function.columns[0], kind, last=found.last, condition=own, rows=None)
        made.append(found)
    return made


def regrow(accumulator: Accumulator, capacity: int, first: int, end: int) -> None:
    """A ring of so many cells; those from `first` to `end` are live."""
    if isinstance(accumulator, Variance):
        regrow(accumulator.values, capacity, first, end)
        regrow(accumulator.squares, capacity, first, end)
        return
    accumulator.slots = in_ring(accumulator.slots, capacity, first, end)


def in_ring(old: np.ndarray, capacity: int, first: int, end: int) -> np.ndarray:
    """Rows first to end of a ring, in a larger one."""
    new = np.zeros((capacity, *old.shape[1:]), np.int64)
    live = np.arange(first, end)
    if len(live):
        new[live & (capacity - 1)] = old[live & (len(old) - 1)]
    return new


def clear(accumulator: Accumulator, low: int, high: int) -> None:
    """Cells low to high, places in the ring, are as new."""
    if isinstance(accumulator, Variance):
        clear(accumulator.values, low, high)
        clear(accumulator.squares, low, high)
        return
    accumulator.slots[low:high] = 0


Frozen = Any


def frozen(accumulator: Accumulator) -> Frozen:
    if isinstance(accumulator, Variance):
        return (accumulator.values.slots, accumulator.values.base, accumulator.squares.slots, accumulator.squares.base)
    if isinstance(accumulator, Sum):
        return (accumulator.slots, accumulator.base)
    return accumulator.slots


class Absorbing:
    """Merging of cells into the slots of new panes, from `first` on, one source after the other in their order."""

    def __init__(self, into: list[Accumulator], first: int, number: int) -> None:
        self._into, self._first = into, first
        self._ts = [np.empty(number if isinstance(a, Edge) else 0, np.int64) for a in into]

    def absorb(self, parts: list[Frozen], target: np.ndarray, cell: np.ndarray) -> None:
        """A source's parts: cell[k], its number, goes into slot target[k]."""
        for accumulator, part, ts in zip(self._into, parts, self._ts, strict=True):
            if isinstance(accumulator, Variance):
                _add(accumulator.values, part[0], part[1], target, cell)
                _add(accumulator.squares, part[2], part[3], target, cell)
            elif isinstance(accumulator, Sum):
                _add(accumulator, part[0], part[1], target, cell)
            elif isinstance(accumulator, Edge):
                at = cell & (len(part) - 1)
                panes.merge_timed_edge(
                    len(cell), target, at, self._first, accumulator.last, accumulator.slots, part, ts
                )
            elif isinstance(accumulator, Extreme):
                at = cell & (len(part) - 1)
                panes.merge_extreme(0, len(cell), target, at, accumulator.sign, accumulator.slots, part)
            else:
                assert isinstance(accumulator, Count)
                panes.merge_counts(0, len(cell), target, cell & (len(part) - 1), accumulator.slots, part)


def _add(into: Sum, slots: np.ndarray, base: int, target: np.ndarray, cell: np.ndarray) -> None:
    limbs = slots.shape[1] - exact.LIMBS
    if limbs:
        into.cover(base, base + limbs)
    into.note_adds(len(cell))
    exact.merge_at(len(cell), target, cell & (len(slots) - 1), into.slots, slots, base - into.base if limbs else 0)
