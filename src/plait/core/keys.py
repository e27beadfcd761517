"""Order keys as bytes, a whole column at a time: what `order.encode` gives for one tuple, for many.

A key is the concatenation of its parts' encodings, so a column of keys is the element-wise join of columns of pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.encodings import stored

_TUPLE, _END = b"\x05", b"\x00"


def ints(values: np.ndarray) -> pa.Array:
    """Pieces of int64 values."""
    n = len(values)
    out = np.empty((n, 9), np.uint8)
    out[:, 0] = 0x10
    biased = np.ascontiguousarray(values, np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    out[:, 1:] = biased.astype(">u8").view(np.uint8).reshape(n, 8)
    return pa.Array.from_buffers(pa.binary(9), n, [None, pa.py_buffer(out)]).cast(pa.binary())


def constant(part: Any, n: int) -> pa.Array:
    return pa.repeat(pa.scalar(order.encode((part,)), pa.binary()), n)


def by_value(column: pa.Array) -> pa.Array:
    """Pieces of text or integers of which few differ: each different one is encoded once."""
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    pieces = [order.encode((value,)) for value in encoded.dictionary.to_pylist()]
    return pa.array(pieces, pa.binary()).take(encoded.indices)


def wrapped(column: pa.Array, *, signed_zero: bool = False) -> pa.Array:
    """Pieces of `key_value(v)`: integers by arithmetic, the rest value by value."""
    column = stored(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
    if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type) and column.null_count == 0:
        head, tail = order.encode(((0,),))[:-1], _END
        return join(head, ints(column.cast(pa.int64()).to_numpy(zero_copy_only=False)), tail, n=len(column))
    pieces = [order.encode((order.key_value(v, signed_zero=signed_zero),)) for v in column.to_pylist()]
    return pa.array(pieces, pa.binary())


def join(*parts: pa.Array | bytes, n: int) -> pa.Array:
    """Element-wise concatenation; bytes stand for a constant column."""
    arrays = [pa.repeat(pa.scalar(p, pa.binary()), n) if isinstance(p, bytes) else p for p in parts]
    return pc.binary_join_element_wise(*arrays, pa.scalar(b"", pa.binary()))


def nest(*keys: pa.Array, n: int) -> pa.Array:
    """A key whose parts are keys: a join's (trigger, partner)."""
    parts: list[pa.Array | bytes] = []
    for key in keys:
        parts += [_TUPLE, key, _END]
    return join(*parts, n=n)
