"""Windows that have closed: as rows made of slots, which is what functions merge from, and the rows that come out.

`Pairs` lists the slots of every row. `Slid` is for windows of time, which follow one another: see `core.kernels.slides`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from plait.core.kernels import slides


class Pairs:
    """`number` rows, each made of the slots that `targets` and `slots` pair it with, in order.

    Both arrays are int64 and of one length. Rows need not have equally many slots; those of one row stand together, in
    the order of its panes.
    """

    def __init__(self, number: int, targets: np.ndarray, slots: np.ndarray) -> None:
        self.number, self.targets, self.slots = number, targets, slots

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Slid:
    """Rows of windows one after another. Every function that keeps running totals has to follow each of these, rows or none.

    `bounds` is int64 of shape (windows + 2, BOUNDS), see `core.kernels.slides`. `shift` turns a slot's lasting number into its
    place now. `slot_group` and `slot_next` are by place; `row_group` and `row_head` by row: its group and its first slot.

    Whoever skips one of these has a wrong total for ever after: what came and went in it would never be added or taken
    away.

    `apart`: every window is one pane, so every row is one slot, and there is nothing to keep a total of.
    """

    bounds: np.ndarray
    shift: int
    slot_group: np.ndarray
    slot_next: np.ndarray
    row_group: np.ndarray
    row_head: np.ndarray
    groups: int  # there is room for
    apart: bool

    @property
    def number(self) -> int:
        return len(self.row_group)

    @property
    def windows(self) -> np.ndarray:
        """The number k of every window that closes."""
        return self.bounds[1:-1, slides.WINDOW]

    @property
    def rows(self) -> np.ndarray:
        """How many rows each of them has."""
        return np.diff(self.bounds[:-1, slides.ROWS])

    @property
    def moved(self) -> bool:
        """Whether anything came or went."""
        return bool((self.bounds[0, :2] != self.bounds[-1, :2]).any())

    @cached_property
    def pairs(self) -> Pairs:
        """The same as pairs.

        Listed once, for all functions that have no running totals. The first call of the kernel only counts, the second
        writes.
        """
        given = (self.bounds, self.shift, self.slot_next, self.row_head)
        none = np.empty(0, np.int64)
        room = int(slides.list_pairs(*given, none, none))
        targets, slots = np.empty(room, np.int64), np.empty(room, np.int64)
        slides.list_pairs(*given, targets, slots)
        return Pairs(self.number, targets, slots)

    def running(self, totals: np.ndarray, width: int) -> np.ndarray:
        """A function's running totals, of every group, as many as there may be by now."""
        if len(totals) >= self.groups and totals.shape[1] == width:
            return totals
        grown = np.zeros((self.groups, width), np.int64)
        grown[: len(totals), : totals.shape[1]] = totals
        return grown


# --- what comes out: rows, whose columns are made when they are wanted ---


@dataclass(frozen=True)
class Closed:
    """Rows of closed windows. `triggers`: of windows of tuples, the place in the batch of the tuple that closed each."""

    rows: pa.RecordBatch | Later
    triggers: np.ndarray | None = None


def same(made: pa.Array) -> pa.Array:
    """Of a column that had to be made at once."""
    return made


@dataclass(frozen=True)
class Edges:
    """The windows that rows belong to, whose rows stand together: of each its last ts, where it begins and ends, and its rows.

    All are int64. Windows of tuples have a row each.
    """

    ts: np.ndarray
    start: np.ndarray
    end: np.ndarray
    rows: np.ndarray | None = None

    @property
    def number(self) -> int:
        return len(self.ts) if self.rows is None else int(self.rows.sum())

    def by_row(self, values: np.ndarray) -> np.ndarray:
        """What each window has, for every row of it."""
        if self.rows is None:
            return values
        return np.full(self.rows[0], values[0]) if len(values) == 1 else np.repeat(values, self.rows)

    def windows_at(self, rows: np.ndarray) -> np.ndarray:
        """Which window, of these, each of these rows belongs to."""
        return rows if self.rows is None else np.searchsorted(np.cumsum(self.rows), rows, "right")


class Later:
    """Rows whose columns are made when they are wanted, by whoever wants them: rounding and Arrow take their time.

    `columns` makes those that follow the window's edges: keys, and what is computed. A thread that closes windows must not wait
    for that, so whoever reads results calls `built`. That may be another thread (`threads.aggregate.hive.windows`), if all
    functions keep numbers: merged rows and keys are copies by then. Rows of `kept` would not be.
    """

    def __init__(self, schema: pa.Schema, edges: Edges, columns: list[Callable[[], pa.Array]]) -> None:
        self.schema, self.edges, self.columns = schema, edges, columns
        self.num_rows = edges.number

    def built(self) -> pa.RecordBatch:
        spread = (self.edges.by_row(each) for each in (self.edges.ts, self.edges.start, self.edges.end))
        arrays = [
            pa.array(edge).view(f.type) for edge, f in zip(spread, self.schema, strict=False)
        ]  # counts or moments
        return pa.RecordBatch.from_arrays([*arrays, *(make() for make in self.columns)], schema=self.schema)
