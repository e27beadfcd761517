"""One side of a join's window: columns in total order, appended at the new end and expired from the old one.

Rows have positions in the arrays of their segment and ids in their stream; both grow in total order, so `ts` is
ascending and a window is one range of positions [lo, hi) per probe. `start` is the first live position. Expired rows
stay in the arrays until these are full; then the live ones move to new arrays of twice their number and the old ones
go back to the allocator. So memory is proportional to the window, and a row is copied O(1) times however long the run.
A move changes every position: `generation` tells an index that it must be built anew.
"""

from __future__ import annotations

import numpy as np

MIN_CAPACITY = 1024

_FILL = {"alive": 1, "mask": 1, "usable": 1}


class Segment:
    """Growing columns of equal length. Which there are is decided by the rows that enter.

    `columns` are by name: `ts` and `leafK`, `maskK`, `alive`, `usable`, `node`, `id` as far as they are needed. All have
    `capacity` rows, of which [start, end) are live. `id` is there only where a window keeps some rows of its stream and
    not others.
    """

    def __init__(self) -> None:
        self.columns: dict[str, np.ndarray] = {"ts": np.empty(MIN_CAPACITY, np.int64)}
        self.start = self.end = 0
        self.first_id = 0  # id of the row at position 0, unless there is a column "id"
        self.generation = 0

    @property
    def capacity(self) -> int:
        return len(self.columns["ts"])

    @property
    def live(self) -> int:
        return self.end - self.start

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    @property
    def sparse(self) -> bool:
        return "id" in self.columns

    def column(self, name: str) -> np.ndarray:
        return self.columns[name]

    def reserve(self, rows: int) -> bool:
        """Make room; true if the live rows moved."""
        if self.end + rows <= self.capacity:
            return False
        self._move(max(MIN_CAPACITY, 2 * (self.live + rows)))
        return True

    def expect(self, rows: int) -> None:
        """Room for so many rows in all; before any has come."""
        assert self.end == 0, "rows are there"
        assert len(self.columns) == 1, "rows were there"
        self.columns = {"ts": np.empty(max(MIN_CAPACITY, rows), np.int64)}

    def _move(self, size: int) -> None:
        for name, old in self.columns.items():
            new = np.empty((size, *old.shape[1:]), old.dtype)
            new[: self.live] = old[self.start : self.end]
            self.columns[name] = new
        self.first_id += self.start
        self.start, self.end = 0, self.live
        self.generation += 1

    def append(self, ts: np.ndarray, rows: dict[str, np.ndarray]) -> None:
        """Rows that follow all others; there must be room. A column not named keeps its neutral value.

        `ts` is int64 and not below what is there. A column that rows bring for the first time is added. The caller has
        made room.
        """
        first, last = self.end, self.end + len(ts)
        self.columns["ts"][first:last] = ts
        for name, values in rows.items():
            if name not in self.columns:
                self.add_column(name, values.dtype, values.shape[1:])
            self.columns[name][first:last] = values
        for name, column in self.columns.items():
            if name != "ts" and name not in rows:
                column[first:last] = _FILL[name.rstrip("0123456789")]
        self.end = last

    def add_column(self, name: str, kind: np.dtype, shape: tuple[int, ...] = ()) -> None:
        """A column that rows before it did not need: they have its neutral value."""
        column = np.empty((self.capacity, *shape), kind)
        if self.live:
            column[self.start : self.end] = _FILL[name.rstrip("0123456789")]
        self.columns[name] = column

    def retype(self, name: str, kind: np.dtype) -> None:
        """Store a column in another word; its values must fit."""
        if name in self.columns and self.columns[name].dtype != kind:
            new = np.empty(self.capacity, kind)
            new[self.start : self.end] = self.columns[name][self.start : self.end].astype(kind)
            self.columns[name] = new

    def ids(self, positions: np.ndarray) -> np.ndarray:
        """Row ids of positions."""
        if self.sparse:
            positions, first = self.columns["id"][positions], 0
        else:
            first = self.first_id
        return np.asarray(positions + first)

    def position_of_ts(self, ts: np.ndarray) -> np.ndarray:
        """The first live position whose ts is not below, for each."""
        return np.asarray(self.start + np.searchsorted(self.columns["ts"][self.start : self.end], ts, "left"))

    def position_of_id(self, ids: np.ndarray) -> np.ndarray:
        """The first live position whose id is not below, for each."""
        if self.sparse:
            return np.asarray(self.start + np.searchsorted(self.columns["id"][self.start : self.end], ids, "left"))
        return np.asarray(np.clip(ids - self.first_id, self.start, self.end))

    def first_live_id(self) -> int | None:
        if self.live == 0:
            return None
        return int(self.columns["id"][self.start]) if self.sparse else self.first_id + self.start

    def expire(self, position: int) -> None:
        """Drop rows before a position.

        Only moves `start`: costs nothing, unless nothing is left of a large segment.
        """
        self.start = min(max(self.start, position), self.end)
        if self.start == self.end and self.capacity > 4 * MIN_CAPACITY:
            self._move(MIN_CAPACITY)  # nothing is left: give the arrays back now
