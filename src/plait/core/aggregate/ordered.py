"""Functions of values in their order: quantiles, the most frequent value, what goes with an extreme.

They keep all rows of a window (`lists`) and are computed when it closes, for all windows of a batch at once. Values are compared
by `order_of`: equal numbers for values that count as one, in the order of values. So the rest is sorting numbers, in which a
row's place in its window decides between equals: that is the total order.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, isfinite, nan
from typing import Any

import numpy as np
import pyarrow as pa

from plait import order
from plait.core.aggregate.columns import is_fixed
from plait.core.aggregate.kept import KeptRows
from plait.core.aggregate.lists import Batched, Fold
from plait.core.values import one_array
from plait.encodings import stored

_NO_ROW = -1


def order_of(values: pa.Array) -> np.ndarray:
    """A number for each value, int64: equal ones for values that count as one, less for what comes before; -1 for NULL.

    Numbers by size, -0.0 as 0.0, NaN after all; text by its bytes.
    """
    there = np.asarray(values.is_valid())
    out = np.full(len(values), -1, np.int64)
    if is_fixed(values.type):
        out[there] = np.unique(_numbers(values)[there], return_inverse=True)[1]
        return out
    keys = [order.key_value(value) for value in stored(values).to_pylist()]
    known = {
        key: at for at, key in enumerate(sorted({key for key, is_there in zip(keys, there, strict=True) if is_there}))
    }
    out[there] = [known[key] for key, is_there in zip(keys, there, strict=True) if is_there]
    return out


def _numbers(values: pa.Array) -> np.ndarray:
    """Values of fixed width as numbers of their own size, whatever stands under NULL."""
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_temporal(kind):
        narrow = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        values = values.view(pa.int32() if narrow else pa.int64())
    numbers: np.ndarray = values.fill_null(0).to_numpy(zero_copy_only=False)
    return numbers + numbers.dtype.type(0) if numbers.dtype.kind == "f" else numbers


def _windows(offsets: np.ndarray) -> np.ndarray:
    """The window of each row of the lists."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def _sorted(window: np.ndarray, *by: np.ndarray) -> np.ndarray:
    """Places in order of windows, then of `by`, then of the total order: `lexsort` leaves equals where they are."""
    return np.lexsort((*reversed(by), window))


def _taken(values: pa.Array, at: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Values by place, NULL for none; of a float the one form of those that count as one."""
    found = values.take(pa.array(at, mask=at == _NO_ROW)) if len(values) else pa.nulls(len(at), values.type)
    if pa.types.is_floating(found.type):
        numbers = found.to_numpy(zero_copy_only=False) + found.type.to_pandas_dtype()(0)
        numbers[np.isnan(numbers)] = nan
        found = pa.array(numbers, found.type, mask=~np.asarray(found.is_valid()))
    return found.cast(kind) if pa.types.is_dictionary(kind) else found


def _firsts(window: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Of windows in order: where each begins, and how many rows it has."""
    sizes = np.bincount(window, minlength=number)
    return np.cumsum(sizes) - sizes, sizes


# --- quantiles --------------------------------------------------------------------------------------------------


def quantile(column: str, kind: pa.DataType, part: Fraction, *, interpolate: bool) -> Fold:
    """The least value with at least `part * n` at or below it; or, between two values, the one at `part * (n - 1)`."""

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        values, number = one_array(rows.take(refs, column)), len(offsets) - 1
        ranks = order_of(values)
        there = np.flatnonzero(ranks >= 0)
        window = _windows(offsets)[there]
        by_size = there[_sorted(window, ranks[there])]
        begin, sizes = _firsts(window, number)
        if interpolate:
            return pa.array(_between(values, by_size, begin, sizes, part), pa.float64())
        needed = np.array([max(ceil(part * int(n)), 1) if n else 0 for n in sizes], np.int64)
        at = np.full(number, _NO_ROW)
        at[sizes > 0] = by_size[(begin + needed - 1)[sizes > 0]]
        return _taken(values, at, kind)

    return Batched(folded)


def _between(
    values: pa.Array, by_size: np.ndarray, begin: np.ndarray, sizes: np.ndarray, part: Fraction
) -> list[float | None]:
    """Of each window the value on the line between two neighbours. Only these two are turned into Python's numbers."""
    places = [part * (int(n) - 1) for n in sizes]
    ends = np.array([[floor(p), ceil(p)] if n else [0, 0] for p, n in zip(places, sizes, strict=True)], np.int64)
    some = sizes > 0
    low, high = (values.take(pa.array(by_size[(begin + ends[:, k])[some]])).to_pylist() for k in (0, 1))
    found = iter(zip(low, high, [place for place, is_some in zip(places, some, strict=True) if is_some], strict=True))
    return [_on_line(*next(found)) if is_some else None for is_some in some]


def _on_line(low: Any, high: Any, place: Fraction) -> float:
    """Exact, rounded once. With an infinity at one end the line is there everywhere but at its other end."""
    along = place - floor(place)
    if along == 0 or low == high:
        return low + 0.0 if isinstance(low, float) else float(low)
    if isfinite(low) and isfinite(high):
        return float(Fraction(low) + along * (Fraction(high) - Fraction(low)))
    odd = [value for value in (low, high) if not isfinite(value)]
    return float(odd[0]) if all(value == odd[0] for value in odd) else nan


# --- the most frequent ------------------------------------------------------------------------------------------


def mode(column: str, kind: pa.DataType) -> Fold:
    """The most frequent value; of several the one that is seen first."""

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        values, number = one_array(rows.take(refs, column)), len(offsets) - 1
        codes = order_of(values)
        there = np.flatnonzero(codes >= 0)
        window, codes = _windows(offsets)[there], codes[there]
        pairs, first, times = np.unique(np.stack((window, codes)), axis=1, return_index=True, return_counts=True)
        best = np.lexsort((first, -times, pairs[0]))
        at, begin = np.full(number, _NO_ROW), np.ones(len(best), bool)
        begin[1:] = pairs[0][best][1:] != pairs[0][best][:-1]
        at[pairs[0][best][begin]] = there[first[best][begin]]
        return _taken(values, at, kind)

    return Batched(folded)


# --- what goes with an extreme ----------------------------------------------------------------------------------


def _ranked(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows, by: str, *, largest: bool) -> Any:
    """Places of rows whose `by` is not NULL, by window, then the best first; with each window's begin and number of them."""
    ranks = order_of(one_array(rows.take(refs, by)))
    there = np.flatnonzero(ranks >= 0)
    window = _windows(offsets)[there]
    own = -ranks[there] if largest else ranks[there]
    return (there[_sorted(window, own)], *_firsts(window, len(offsets) - 1))


def arg(columns: Sequence[str], kind: pa.DataType, *, largest: bool) -> Fold:
    """The value of the row whose `by` is the least, or the greatest; of several the first."""
    column, by = columns

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        best, begin, sizes = _ranked(offsets, refs, rows, by, largest=largest)
        at = np.full(len(sizes), _NO_ROW)
        at[sizes > 0] = best[begin[sizes > 0]]
        values = one_array(rows.take(refs, column))
        found = values.take(pa.array(at, mask=at == _NO_ROW)) if len(values) else pa.nulls(len(at), values.type)
        return found.cast(kind) if pa.types.is_dictionary(kind) else found

    return Batched(folded)


def top(columns: Sequence[str], number: int) -> Fold:
    """A list of the values of so many rows, those whose `by` is greatest."""
    column, by = columns

    def folded(offsets: np.ndarray, refs: np.ndarray, rows: KeptRows) -> pa.Array:
        best, begin, sizes = _ranked(offsets, refs, rows, by, largest=True)
        kept = np.minimum(sizes, number)
        ends = np.concatenate(([0], np.cumsum(kept)))
        at = np.repeat(begin - ends[:-1], kept) + np.arange(ends[-1])
        values = one_array(rows.take(refs, column)).take(pa.array(best[at]))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)

    return Batched(folded)
