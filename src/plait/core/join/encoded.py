"""Rows on their way into a window: leaves, liveness and index keys, computed once from the columns read.

Everything one-sided happens here, in NumPy over whole batches; what a kernel sees of a row is in these arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core.condition import bounds
from plait.core.condition.bounds import Interval
from plait.core.condition.columns import Interner, column
from plait.core.condition.evaluate import Array, as_float, both_valid, exact, truth
from plait.core.condition.leaves import Shape
from plait.core.condition.terms import Band, Equality
from plait.core.condition.texts import Texts, of_rows
from plait.core.kernels import chains
from plait.query.condition.expression import Column, Expr
from plait.query.condition.types import is_float, is_int

#: Coordinates are clipped to this, so that sums with a band's constants stay finite in the type they were made in.
LARGEST = {"float32": 1e37, "float64": 1e300}

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class EncodedRows:
    """Rows of one side. `alive` and the leaves' masks are None where all are; `usable` rows may be in an index.

    `ts` is int64, `leaves` are as `Shape.leaves` lists them for the side, `alive` a mask of booleans, `key` int64,
    `coord` float64 of shape (n, 2), `usable` uint8. `key` and `coord` are None where the condition has no equality, or no
    band.

    Fewer rows are `usable` than alive: one whose key is NaN is alive by its other parts and equals nothing, so no index
    holds it. It can't match, since the equality is a conjunct.
    """

    ts: np.ndarray
    leaves: tuple[Array, ...]
    alive: np.ndarray | None
    key: np.ndarray | None
    coord: np.ndarray | None
    usable: np.ndarray

    def nodes(self) -> np.ndarray | None:
        """Keys and coordinates as an index links them: see `core.kernels.chains`."""
        if self.key is None and self.coord is None:
            return None
        nodes = np.empty((len(self), 2 if self.coord is None else 4), np.int64)
        nodes[:, chains.KEY] = 0 if self.key is None else self.key
        if self.coord is not None:
            nodes[:, chains.X :] = self.coord.view(np.int64)
        return nodes

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, at: np.ndarray | slice) -> EncodedRows:
        """A stretch or a choice of rows; a slice shares memory."""

        def part(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[at]

        leaves = tuple(Array(leaf.kind, leaf.data[at], part(leaf.valid)) for leaf in self.leaves)
        return EncodedRows(self.ts[at], leaves, part(self.alive), part(self.key), part(self.coord), self.usable[at])


Values = Callable[[Expr], Array]


class RowEncoder:
    """Turns Arrow rows of either side into `EncodedRows`. `dimensions` are the bands an index may use, at most two."""

    def __init__(self, shape: Shape, dimensions: tuple[Band, ...], interner: Interner) -> None:
        self.shape, self.dimensions, self.interner = shape, dimensions, interner

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> EncodedRows:
        """Rows of one side, as kernels and indexes see them. `batch` has at least the columns that `Shape.reads` names,
        `ts` the rows' times, ascending. Text is given codes at the interner's present stamp. Each expression is evaluated
        once, also if it is a leaf, a key and a coordinate at the same time.
        """
        n = len(ts)
        columns: dict[Expr, Array] = {
            Column(side, name): column(batch.column(name), self.interner, name) for name in self.shape.reads(side)
        }
        known: dict[Expr, Array] = dict(columns)
        texts = Texts(of_rows(batch), known, self.interner, n)

        def value(expr: Expr) -> Array:
            if expr not in known:
                known[expr] = _spread(texts.value(expr), n)
            return known[expr]

        leaves = tuple(value(leaf.expr) for leaf in self.shape.leaves[side])
        alive = self._alive(side, n, leaves, value)
        key, with_key = self._key(side, n, value)
        coord, with_coord = self._coord(side, n, value)
        usable = both_valid(both_valid(alive, with_key), with_coord)
        marked = np.ones(n, np.uint8) if usable is None else usable.astype(np.uint8)
        if alive is not None and alive.all():
            alive = None
        return EncodedRows(ts, leaves, alive, key, coord, marked)

    def _alive(self, side: int, n: int, leaves: tuple[Array, ...], value: Values) -> np.ndarray | None:
        """Which rows can match at all, as a mask. None where nothing can make a row dead. A filter that is unknown makes
        it dead, as one that is false does.
        """
        alive = np.zeros(n, bool) if self.shape.terms.never else None
        for part in self.shape.terms.filters[side]:
            alive = both_valid(alive, truth(value(part)))
        for leaf, array in zip(self.shape.leaves[side], leaves, strict=True):
            if leaf.needed:
                alive = both_valid(alive, array.valid)
        return alive

    def _key(self, side: int, n: int, value: Values) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Equality terms as one 64-bit number: equal values give equal numbers; the converse is checked later.

        Several equalities are mixed into one word; rows that differ may share it. The second array says where a key can
        equal anything: not under NULL or NaN.
        """
        key: np.ndarray | None = None
        valid: np.ndarray | None = None
        for term in self.shape.terms.equalities:
            array = value(term.left if side == 0 else term.right)
            bits, known = _bits(array, term)
            valid = both_valid(both_valid(valid, array.valid), known)
            with np.errstate(over="ignore"):
                key = bits if key is None else (key * _MIX) ^ (key >> np.uint64(31)) ^ bits
        return (None if key is None else key.view(np.int64)), valid

    def _coord(self, side: int, n: int, value: Values) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Coordinates as float64, two a row (the second 0 if there is one dimension).

        A coordinate only chooses candidates, so it may be rounded and clipped: a probe's range is widened by as much
        (`chains.probe_ranges`). Infinities are clipped too, and still meet each other there.
        """
        if not self.dimensions:
            return None, None
        coord, valid = np.zeros((n, 2)), None
        for at, band in enumerate(self.dimensions):
            array = value(band.left if side == 0 else band.right)
            values = as_float(array, "float64")
            valid = both_valid(valid, array.valid)
            nan = np.isnan(values)
            if nan.any():
                valid = both_valid(valid, ~nan)
                values = np.where(nan, 0.0, values)
            limit = LARGEST[band.kind]
            coord[:, at] = np.clip(values, -limit, limit)
        return coord, valid


def _spread(array: Array, n: int) -> Array:
    """A constant's single row repeated: a leaf reads a column, but a filter may fold to one value."""
    if len(array.data) == n and (array.valid is None or len(array.valid) == n):
        return array
    valid = None if array.valid is None else np.broadcast_to(array.valid, n)
    return Array(array.kind, np.broadcast_to(array.data, n), valid)


def _bits(array: Array, term: Equality) -> tuple[np.ndarray, np.ndarray | None]:
    """Values as 64-bit patterns in the type the equality compares them in, and where they can be equal at all."""
    if is_float(term.kind):
        values = as_float(array, term.kind).astype(np.float64) + 0.0  # -0.0 equals 0.0
        nan = np.isnan(values)
        return values.view(np.uint64), (~nan if nan.any() else None)
    if is_int(term.kind):
        data = array.data
        if data.dtype == object:
            return np.array([int(v) & 0xFFFFFFFFFFFFFFFF for v in data], dtype=np.uint64), None
        return data.astype(np.int64 if data.dtype != np.uint64 else np.uint64).view(np.uint64), None
    return array.data.astype(np.int64).view(np.uint64), None


def leaf_interval(array: Array) -> Interval | None:
    """Where an integer leaf's values lie; None for what is no integer."""
    if not is_int(array.kind):
        return None
    return bounds.of_array(array.data if array.data.dtype == np.uint64 else exact(array.data))


def stored(array: Array, word: str) -> np.ndarray:
    """A leaf's values in the word it is stored in.

    `word` is one of `words.Signature`. A boolean becomes 0, 1 or 2 (NULL). The result is contiguous, as kernels want it.
    """
    if word == "tri":
        codes = array.data.astype(np.uint8)
        return codes if array.valid is None else np.where(array.valid, codes, np.uint8(2))
    kind = {"code": np.dtype(np.int64), "object": np.dtype(object)}.get(word) or np.dtype(word)
    return np.ascontiguousarray(array.data.astype(kind, copy=False))
