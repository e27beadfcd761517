"""The cells of an operator: how many, and by which rule tuples are dealt out to them (`pack.ship` deals them out).

grid       m x n cells; a left tuple goes to one row of them, a right one to one column, so each pair meets in exactly
           one cell (DP-Join). m x 1 serves `left`, `semi`, `anti` and as-of: there a left tuple meets all its partners.
hash       cells in a line; tuples go by the values that must be equal, and none is copied. Aggregates have this one, by
           their key.
buckets    cells in a line; a tuple goes to those of the buckets that `route` names.
see_all    every cell sees every tuple and stores one in C of them (ScaleJoin): windows that count need each tuple's rank.

Cell keys are chosen so that they spread evenly over the state's partitions: Spark puts key k into partition
pmod(murmur3(k), P), which is inverted here by trying small keys.

Where it runs: `choose` on the driver, `stored` in tasks. A checkpoint pins its layout: which cell has a tuple is in the state.
`relayout` changes it. Rows and columns are not tied to cores: more cells than cores run by turns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plait.core.join.reach import reach_of
from plait.errors import QueryError
from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.join import Asof, Join
from plait.query.operator import Operator


@dataclass(frozen=True)
class Layout:
    """The cells of one operator. Pickled into the tasks.

    Attributes:
        kind: How tuples are dealt out, see the module.
        rows, columns: Of the grid. Cell c stands in row c // columns. Other kinds have one column, unless asked
            otherwise.
        keys: Of each cell the number by which Spark groups rows.
    """

    kind: str  # "grid", "hash", "buckets" or "see_all"
    rows: int
    columns: int
    keys: tuple[int, ...]  # the cells' keys, row by row

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    def describe(self) -> str:
        note = {"see_all": " (store one, see all)", "hash": " (by hash)", "buckets": " (of buckets)"}.get(self.kind, "")
        return f"{self.rows}x{self.columns}{note}"

    def stored(self, cell: int, hashes: np.ndarray) -> np.ndarray:
        """Which of all tuples a cell of `see_all` stores."""
        own: np.ndarray = (hashes % np.uint64(self.cells)).astype(np.int64) == cell
        return own


def mix(words: np.ndarray) -> np.ndarray:
    """splitmix64: spreads consecutive numbers evenly."""
    with np.errstate(over="ignore"):
        z = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def choose(query: Query, wanted: str | tuple[int, int], partitions: int, parallelism: int) -> Layout:
    """The layout of a query: as asked for, or as square as the number of cores allows."""
    kind = "see_all" if isinstance(query, Join) and reach_of(query.window).counts else "grid"
    one_column = isinstance(query, Asof) or (isinstance(query, Join) and query.how != "inner")
    if isinstance(query, (Aggregate, Operator)):
        most = query.buckets if isinstance(query, Operator) else parallelism
        cells = max(1, min(parallelism, partitions, most))
        if wanted not in ("auto", "hash"):
            rows, columns = _numbers(wanted)
            cells = rows * columns
        return Layout("buckets" if isinstance(query, Operator) else "hash", cells, 1, cell_keys(cells, partitions))
    if wanted == "hash":
        if kind == "see_all":
            raise QueryError(
                "layout='hash' with a count window",
                why="a cell must see every tuple of a stream to count the last N",
                do="Use layout='auto'",
            )
        cells = max(1, min(parallelism, partitions))
        return Layout("hash", cells, 1, cell_keys(cells, partitions))
    if wanted == "auto":
        cells = max(1, min(parallelism, partitions))
        rows, columns = (cells, 1) if one_column or kind == "see_all" else _near_square(cells)
    else:
        rows, columns = _numbers(wanted)
    if one_column and columns != 1:
        raise QueryError(
            f"layout={rows}x{columns} for how={query.how!r}",  # type: ignore[attr-defined]
            why="a left tuple must meet all its partners in one cell",
            do=f"Use layout=({rows * columns}, 1) or 'auto'",
        )
    return Layout(kind, rows, columns, cell_keys(rows * columns, partitions))


def _numbers(wanted: object) -> tuple[int, int]:
    if isinstance(wanted, (tuple, list)) and len(wanted) == 2 and all(type(v) is int and v > 0 for v in wanted):
        return wanted[0], wanted[1]
    raise QueryError(f"layout={wanted!r} is no layout", do="Use 'auto', 'hash' or (m, n), the rows and columns")


def _near_square(cells: int) -> tuple[int, int]:
    rows = max(k for k in range(1, int(cells**0.5) + 1) if cells % k == 0)
    return rows, cells // rows


def cell_keys(cells: int, partitions: int) -> tuple[int, ...]:
    """One key for each cell, cell c in state partition c modulo their number.

    Without it several cells might share a partition and others have none, and a batch takes as long as its slowest task.
    """
    found: list[int] = []
    key = 0
    for cell in range(cells):
        while murmur3(key) % partitions != cell % partitions:
            key += 1
        found.append(key)
        key += 1
    return tuple(found)


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's hash of one int, as a signed 32-bit number; Python's % is Spark's pmod."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    k = rotate(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotate(seed ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
