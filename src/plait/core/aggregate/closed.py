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

    `bounds` is int64 of shape (windows + 2, 3), see `core.kernels.slides`. `shift` turns a slot's lasting number into its
    place now. `slot_group` and `slot_next` are by place; `row_group` and `row_head` by row: its group and its first slot.

    Whoever skips one of these has a wrong total for ever after: what came and went in it would never be added or taken
    away.
    """

    bounds: np.ndarray
    shift: int
    slot_group: np.ndarray
    slot_next: np.ndarray
    row_group: np.ndarray
    row_head: np.ndarray
    groups: int  # there is room for

    @property
    def number(self) -> int:
        return len(self.row_group)

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


class Later:
    """Rows whose columns are made when they are wanted, by whoever wants them: rounding and Arrow take their time.

    `edges` and `keys` are as they will be; `computed` makes the other columns. A thread that closes windows must not wait
    for that, so whoever reads results calls `built`. That may be another thread (`threads.aggregate.hive.windows`), if all
    functions keep numbers: merged rows and keys are copies by then. Rows of `kept` would not be.
    """

    def __init__(self, schema: pa.Schema, edges: list[np.ndarray], keys: list[pa.Array],
                 computed: list[Callable[[], pa.Array]]) -> None:  # fmt: skip
        self.schema, self.edges, self.keys, self.computed = schema, edges, keys, computed
        self.num_rows = len(edges[0])

    def built(self) -> pa.RecordBatch:
        arrays = [pa.array(edge).cast(f.type) for edge, f in zip(self.edges, self.schema, strict=False)]
        return pa.RecordBatch.from_arrays(
            [*arrays, *self.keys, *(make() for make in self.computed)], schema=self.schema
        )
