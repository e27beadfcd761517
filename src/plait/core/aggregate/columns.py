"""Columns that an aggregate reads of its tuples, as arrays: 64 bits and a valid byte for a column of fixed width, a byte for a
condition; text and nested columns stay in Arrow.

Bits are those of the stored integer (of a time, its count; of a boolean, 0 or 1) or of the float64 that equals the
value, so one form serves sums, extremes, first and last, and keys. Under a NULL they are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.kernels import exact
from plait.core.values import one_array


def plain(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values: a dictionary's values, or the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_fixed(kind: pa.DataType) -> bool:
    """Whether a column can be laid out as 64 bits a value: integers, float32 and float64, booleans, moments, days, times of
    day and spans. Not decimals, half floats, text, or anything nested.
    """
    kind = plain(kind)
    number = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
    return number or pa.types.is_boolean(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def number_kind(kind: pa.DataType) -> int:
    """How kernels read the bits: signed, unsigned or float."""
    kind = plain(kind)
    if pa.types.is_floating(kind):
        return exact.FLOAT
    return exact.UNSIGNED if pa.types.is_uint64(kind) else exact.SIGNED


def bits_of(values: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """A column of fixed width as bits, and a byte a row that is 0 under a NULL (None: there is no NULL).

    The bits are int64 whatever the type, uint64 and float64 by the same bytes. A float32 is widened, which is exact. The
    arrays may share Arrow's memory: nobody may write to them.
    """
    values = one_array(values)
    kind = values.type
    valid = None if values.null_count == 0 else np.asarray(values.is_valid()).astype(np.uint8)
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        values = values.view(pa.int32())
    elif pa.types.is_temporal(kind):
        values = values.view(pa.int64())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    data = (values if valid is None else values.fill_null(0)).to_numpy(zero_copy_only=False)
    if data.dtype.kind == "f":
        return np.ascontiguousarray(data, np.float64).view(np.int64), valid
    return (data.view(np.int64) if data.dtype == np.uint64 else data.astype(np.int64, copy=False)), valid


def array_of(bits: np.ndarray, valid: np.ndarray | None, kind: pa.DataType) -> pa.Array:
    """The inverse of `bits_of`; `valid` is a mask of booleans. The array may share the bits: nobody changes them any more.

    A float32 is narrowed again; that is exact for what `bits_of` has made.
    """
    mask = None if valid is None or valid.all() else ~valid
    if pa.types.is_dictionary(kind):
        return array_of(bits, valid, kind.value_type).cast(kind)
    if pa.types.is_floating(kind):
        data: Any = np.ascontiguousarray(bits).view(np.float64)
        with np.errstate(over="ignore"):
            data = data.astype(np.float32) if pa.types.is_float32(kind) else data
        return pa.array(data, type=kind, mask=mask)
    if pa.types.is_uint64(kind):
        return pa.array(np.ascontiguousarray(bits).view(np.uint64), type=kind, mask=mask)
    if pa.types.is_boolean(kind):
        return pa.array(bits != 0, type=kind, mask=mask)
    if pa.types.is_temporal(kind):
        small = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        stored = pa.array(bits.astype(np.int32) if small else bits, mask=mask)
        return stored.view(kind)
    return pa.array(bits.astype(kind.to_pandas_dtype(), copy=False), type=kind, mask=mask)


_ONES = np.ones(1 << 16, np.uint8)


def ones(n: int) -> np.ndarray:
    """Nobody writes to these: most batches share one array."""
    return _ONES[:n] if n <= len(_ONES) else np.ones(n, np.uint8)


def none_null(valid: np.ndarray) -> bool:
    """Whether all are valid. The shared array of ones is known by its base, so the usual case costs nothing."""
    return valid.base is _ONES or bool(valid.all())


@dataclass(frozen=True)
class Read:
    """A batch as functions read it. `bits` by column; `masks` by number of condition, as `reads.Columns` counts them."""

    bits: dict[str, tuple[np.ndarray, np.ndarray]]
    masks: list[np.ndarray]
    ones: np.ndarray

    def __len__(self) -> int:
        return len(self.ones)
