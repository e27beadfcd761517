"""Variances, deviations, covariances and correlations: from exact sums of values, squares and products, rounded once.

Over floats the differences below lose all their digits where values are large and near to each other. Here sums are exact
integers times powers of two (`core.aggregate.sums`), the differences are exact, and there is one rounding, at the end.
tests/core/aggregate/test_panes.py and test_parts.py hold this against the reference's fractions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import inf, isqrt, nan

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import PRODUCTS, Accumulator
from plait.core.aggregate.closed import Pairs, Slid
from plait.core.aggregate.columns import Read, number_kind
from plait.core.aggregate.sums import Sum
from plait.core.kernels import exact
from plait.core.machine.line import address


class Product(Sum):
    """An exact sum of the products of two columns, where neither is NULL."""

    def __init__(self, columns: Sequence[str], kinds: Sequence[pa.DataType], *, condition: int | None) -> None:
        super().__init__(columns[0], kinds[0], condition=condition)
        self.degree = 2
        self.other_name, self.other_kind = columns[1], number_kind(kinds[1])

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        (bits, valid), (other, other_valid) = read.bits[self.column_name], read.bits[self.other_name]
        slot, valid = self.seen(slot, read), valid & other_valid
        self.note_adds(high - low)
        while low < high:
            low = int(exact.add_products(
                low, high, slot, bits, self.kind, other, self.other_kind, valid, self.slots, self.base
            ))  # fmt: skip
            if low < high:
                found = np.array([1 << 40, -(1 << 40)], np.int64)
                exact.range_of_products(low, high, slot, bits, self.kind, other, self.other_kind, valid, found)
                self.cover(int(found[0]), int(found[1]))

    def step(self, at: Mapping[str, int]) -> list[int]:
        row, other = at[self.column_name], at[self.other_name]
        return self._step(PRODUCTS, row, self.kind, other=other, other_kind=self.other_kind, base=self.base,
                          adds=address(self._adds))  # fmt: skip


class Moments(Accumulator):
    """Several exact sums of the same tuples, from which one number is made.

    `slots` is not used: the accumulators are inside, and everything is done to all of them. Merged rows have the columns of
    the first, then those of the second, and so on. All sums count the same tuples, so one count travels, and the odd values of
    any of them: whichever column has one, the answer is NaN.
    """

    def __init__(self, *sums: Sum) -> None:
        self.sums = sums
        self.part_types = (*Sum.part_types, *(pa.binary() for _ in sums[1:]))

    def snapshot(self) -> Accumulator:
        made = copy(self)
        made.sums = tuple(copy(each) for each in self.sums)
        return made

    def reserve(self, capacity: int) -> None:
        for each in self.sums:
            each.reserve(capacity)

    def move(self, first: int, end: int) -> None:
        for each in self.sums:
            each.move(first, end)

    def clear(self, slots: np.ndarray) -> None:
        for each in self.sums:
            each.clear(slots)

    def update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        for each in self.sums:
            each.update(low, high, slot, read, refs)

    def parts(self, slots: np.ndarray) -> list[pa.Array]:
        rows = [each.slots[slots] for each in self.sums]
        odd = np.bitwise_or.reduce([own[:, exact.ODD] for own in rows]).astype(np.uint8)
        totals = [each.totals(own) for each, own in zip(self.sums, rows, strict=True)]
        return [pa.array(rows[0][:, exact.COUNT]), pa.array(odd), *totals]

    def absorb(self, slot: np.ndarray, parts: list[pa.Array]) -> None:
        for each, total in zip(self.sums, parts[2:], strict=True):
            each.absorb(slot, [*parts[:2], total])

    def singles(self) -> list[Accumulator]:
        return list(self.sums)

    def regrow(self, capacity: int, first: int, end: int) -> None:
        for each in self.sums:
            each.regrow(capacity, first, end)

    def wipe(self, low: int, high: int) -> None:
        for each in self.sums:
            each.wipe(low, high)

    def merged(self, closed: Pairs | Slid) -> np.ndarray:
        return np.concatenate([each.merged(closed) for each in self.sums], axis=1)

    def column(self, rows: np.ndarray, name: str) -> pa.Array:
        """None for fewer than two values, NaN if a NaN or an infinity was among them."""
        cuts = np.cumsum([each.slots.shape[1] for each in self.sums])[:-1]
        return pa.array([self._one(np.split(row, cuts)) for row in rows], pa.float64())

    def _one(self, row: Sequence[np.ndarray]) -> float | None:
        """Sums as integers: of values in units of 2^-k, of squares and products in units of 2^-2k."""
        n = int(row[0][exact.COUNT])
        if n < 2:
            return None
        if any(each[exact.ODD] for each in row):
            return nan
        k = max(0, *(-(32 * each.base) // each.degree for each in self.sums))
        totals = (
            exact.whole(own) << (32 * each.base + each.degree * k) for each, own in zip(self.sums, row, strict=True)
        )
        return self.of(n, 1 << 2 * k, *totals)

    def of(self, n: int, unit: int, *totals: int) -> float | None:
        """The number, of at least two tuples and the exact sums; those of squares and products are to be divided by `unit`."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.sums)


def nearest(above: int, below: int) -> float:
    """A quotient rounded once, to the nearest float, ties to even."""
    try:
        return above / below
    except OverflowError:
        return inf if (above > 0) == (below > 0) else -inf


def nearest_root(above: int, below: int) -> float:
    """The float nearest to the root of a quotient that is not below zero.

    The quotient is scaled by an even power of two, so that the root of its whole part has 65 bits or more. What is lost by that
    is told by one more bit, which stands for «and something»: no float, and no point half way between two, has so many digits.
    """
    if above == 0:
        return 0.0
    shift = 2 * (66 - (above.bit_length() - below.bit_length()) // 2)  # even: its half goes back to the root
    whole, rest = divmod(above << max(shift, 0), below << max(-shift, 0))
    root = isqrt(whole)
    digits = root << 1 | (rest != 0 or root * root != whole)
    half = shift // 2 + 1
    return nearest(digits << max(-half, 0), 1 << max(half, 0))


class Variance(Moments):
    """The sample's: with S the sum of n values and Q that of their squares, (n*Q - S*S) / (n*(n - 1))."""

    def __init__(self, column: str, kind: pa.DataType, condition: int | None = None) -> None:
        super().__init__(Sum(column, kind, condition=condition), Sum(column, kind, square=True, condition=condition))

    def of(self, n: int, unit: int, *totals: int) -> float | None:
        total, squares = totals
        return nearest(n * squares - total * total, n * (n - 1) * unit)


class Deviation(Variance):
    """The root of the exact variance."""

    def of(self, n: int, unit: int, *totals: int) -> float | None:
        total, squares = totals
        return nearest_root(n * squares - total * total, n * (n - 1) * unit)


class Covariance(Moments):
    """The sample's, of two columns: (n*P - S*T) / (n*(n - 1)), P being the sum of products, S and T those of the values."""

    def __init__(self, columns: Sequence[str], kinds: Sequence[pa.DataType], condition: int | None = None) -> None:
        super().__init__(*_of_two(columns, kinds, condition))

    def of(self, n: int, unit: int, *totals: int) -> float | None:
        x, y, products = totals
        return nearest(n * products - x * y, n * (n - 1) * unit)


class Correlation(Moments):
    """Pearson's: the covariance over the root of both variances. None where a column's values are all equal."""

    def __init__(self, columns: Sequence[str], kinds: Sequence[pa.DataType], condition: int | None = None) -> None:
        squares = (
            Sum(column, kind, square=True, condition=condition, beside=beside)
            for column, kind, beside in zip(columns, kinds, reversed(columns), strict=True)
        )
        super().__init__(*_of_two(columns, kinds, condition), *squares)

    def of(self, n: int, unit: int, *totals: int) -> float | None:
        x, y, products, squares_x, squares_y = totals
        both, of_x, of_y = n * products - x * y, n * squares_x - x * x, n * squares_y - y * y
        if of_x == 0 or of_y == 0:
            return None
        root = nearest_root(both * both, of_x * of_y)
        return -root if both < 0 else root


def _of_two(columns: Sequence[str], kinds: Sequence[pa.DataType], condition: int | None) -> list[Sum]:
    """Sums of the tuples in which neither column is NULL: of the first, of the second, of their products."""
    single = [
        Sum(column, kind, condition=condition, beside=beside)
        for column, kind, beside in zip(columns, kinds, reversed(columns), strict=True)
    ]
    return [*single, Product(columns, kinds, condition=condition)]
