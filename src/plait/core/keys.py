"""Order keys as bytes, a whole column at a time: what `order.encode` gives for one tuple, for many; and merging by them.

A key is the concatenation of its parts' encodings, so a column of keys is the element-wise join of columns of pieces. Parts of
a result that are in order each are put in one order by their keys, or, where that says the same, by the columns and times that
keys are made of: bytes are compared only where nothing else tells two keys apart.

Columns are Arrow arrays of type binary, one key a row. A piece is the encoding of one part, as `order.encode` writes it:
a tag, then bytes whose order is the part's. Why a column at a time: a call of Python's a tuple costs about a microsecond
(design.md, section 5), and these are a few array operations for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.encodings import one_piece, stored
from plait.schema import takeable

_TUPLE, _END = b"\x05", b"\x00"

_STRETCH = 1 << 15  # keys that are compared at once: a few megabytes

# --- pieces and keys ----------------------------------------------------------------------------------------------


def ints(values: np.ndarray) -> pa.Array:
    """Pieces of int64 values.

    A tag and eight bytes, most significant first, with the top bit flipped: so that bytes compare as the numbers do.
    After the tag, -1 is 7F FF .. FF and 0 is 80 00 .. 00.
    """
    n = len(values)
    out = np.empty((n, 9), np.uint8)
    out[:, 0] = 0x10
    biased = np.ascontiguousarray(values, np.int64).view(np.uint64) ^ np.uint64(1 << 63)
    out[:, 1:] = biased.astype(">u8").view(np.uint8).reshape(n, 8)
    return pa.Array.from_buffers(pa.binary(9), n, [None, pa.py_buffer(out)]).cast(pa.binary())


def constant(part: Any, n: int) -> pa.Array:
    """The same piece n times."""
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


def window_rows(ts: Any, by: Iterable[Any]) -> pa.Array:
    """Keys of rows of windows of time: (the row's ts, its key columns ...)."""
    numbers = ts_numbers(ts)
    return join(ints(numbers), *(wrapped(one_piece(column)) for column in by), n=len(numbers))


def at_last(ts: np.ndarray, input: int = 0) -> pa.Array:
    """(ts, AFTER_INPUTS + input): what stands before the keys of results that follow every other one at that ts."""
    return join(ints(ts), constant(order.AFTER_INPUTS + input, len(ts)), n=len(ts))


def told_apart(keys: pa.Array, number: np.ndarray) -> pa.Array:
    """Keys of rows that may be equal, each but the first with its number among its like: so that a key is one row's."""
    if not number.any():
        return keys
    return join(keys, pc.if_else(pa.array(number > 0), ints(number), b""), n=len(keys))


def ts_numbers(ts: Any) -> np.ndarray:
    """A column of times as microseconds."""
    whole = one_piece(ts)
    found: np.ndarray = (whole.view(pa.int64()) if pa.types.is_temporal(whole.type) else whole).to_numpy(
        zero_copy_only=False
    )
    return found


def without_input(found: pa.Array) -> pa.Array:
    """Keys of tuples as the first input has them: a tuple that comes by two inputs has the same one then.

    A key begins with a ts and an input, nine bytes each; the last byte of the second tells inputs apart.
    """
    n = len(found)
    if n == 0:
        return found
    offsets = np.frombuffer(found.buffers()[1], np.int32)[found.offset : found.offset + n + 1]
    raw = np.frombuffer(found.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]].copy()
    raw[offsets[:-1] - offsets[0] + 17] = 0
    return pa.Array.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(raw)])


# --- merging ------------------------------------------------------------------------------------------------------


def in_order_of(columns: Iterable[Any]) -> pa.Array:
    """The places of rows in the order of these columns, the first of them first; rows that are alike in all stay as they are.

    Arrow's order is the keys': text by bytes, then NaN, then NULL.
    """
    by = {str(k): _sortable(column) for k, column in enumerate(columns)}
    return pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])


def _sortable(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int8)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column if takeable(kind) == column.type else column.cast(takeable(kind))


def in_order_of_pairs(keys: pa.Array | pa.ChunkedArray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The places of results in the order of their keys (first, second), each of which is a place in `keys`.

    int64. `keys` has up to 2^32 keys: two ranks share a word of 64 bits. Equal pairs stay in the order they had.
    """
    rank = _ranks(keys)
    return np.argsort((rank[first] << np.uint64(32)) | rank[second], kind="stable")


def in_order_of_firsts(keys: pa.Array | pa.ChunkedArray, first: np.ndarray) -> np.ndarray:
    """The same by their first keys alone; results with one first key stay in the order they had."""
    return np.argsort(_ranks(keys)[first], kind="stable")


def pieces_of(found: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Keys as they lie, piece by piece. Those of a million results weigh more than their columns, so they are not joined."""
    return [piece for piece in (found.chunks if isinstance(found, pa.ChunkedArray) else [found]) if len(piece)]


def at(found: pa.Array | pa.ChunkedArray, places: np.ndarray) -> pa.ChunkedArray:
    """The keys at these places, which rise."""
    pieces = pieces_of(found)
    starts = np.cumsum([0, *map(len, pieces)])
    cuts = np.searchsorted(places, starts)
    some = [
        piece.take(pa.array(places[begin:end] - start))
        for piece, start, begin, end in zip(pieces, starts, cuts, cuts[1:], strict=False)
    ]
    return pa.chunked_array(some, pa.binary())


def _ranks(found: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Each key's rank among the different ones. Most keys differ in time or input already; only those that do not are
    compared byte by byte. The same tuple's key may be there several times.
    """
    pieces = pieces_of(found)
    if not pieces:
        return np.zeros(0, np.uint64)
    ts, input = (np.concatenate(heads) for heads in zip(*map(_heads, pieces), strict=True))
    placed = np.lexsort((input, ts))
    ts, input = ts[placed], input[placed]
    near = np.flatnonzero((ts[1:] == ts[:-1]) & (input[1:] == input[:-1]))
    same = np.zeros(len(placed) - 1, bool)
    same[near] = _alike(pieces, placed[near], placed[near + 1])
    # A run of keys alike in ts and input needs their bytes, unless it is one key all along.
    begins = np.ones(len(placed), bool)
    begins[near + 1] = False
    run = np.cumsum(begins) - 1
    unclear = np.zeros(run[-1] + 1, bool)
    unclear[run[near[~same[near]]]] = True
    rows = np.flatnonzero(unclear[run])
    if len(rows):
        placed[rows] = placed[rows][in_order_of((run[rows], found.take(pa.array(placed[rows])))).to_numpy()]
        near = near[unclear[run[near]]]
        same[near] = _alike(pieces, placed[near], placed[near + 1])
    rank = np.empty(len(placed), np.uint64)
    rank[placed] = np.concatenate([[0], np.cumsum(~same)])
    return rank


def _alike(pieces: list[pa.Array], one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether the keys at these places are the same as those at the others. A stretch at a time, which is soon forgotten."""
    starts = np.cumsum([0, *map(len, pieces)])
    of_one, of_other = (np.searchsorted(starts, places, "right") - 1 for places in (one, other))
    both = of_one * len(pieces) + of_other
    alike = np.zeros(len(one), bool)
    for each in np.unique(both).tolist():
        a, b = divmod(each, len(pieces))
        rows = np.flatnonzero(both == each)
        for begin in range(0, len(rows), _STRETCH):
            some = rows[begin : begin + _STRETCH]
            own = pieces[a].take(pa.array(one[some] - starts[a]))
            alike[some] = pc.equal(own, pieces[b].take(pa.array(other[some] - starts[b]))).to_numpy(
                zero_copy_only=False
            )
    return alike


def _heads(found: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Of each key, its ts and its input, as unsigned numbers that order alike; 0 for the empty key.

    Keys of tuples begin with a ts and an input, both integers, at fixed places: they are read without decoding anything.
    """
    n = len(found)
    offsets = np.frombuffer(found.buffers()[1], np.int32)[found.offset : found.offset + n + 1].astype(np.int64)
    raw = np.frombuffer(found.buffers()[2] or b"", np.uint8)
    out = np.zeros((2, n), np.uint64)
    full = np.flatnonzero(offsets[1:] > offsets[:-1])
    words = np.ndarray(max(len(raw) - 7, 0), ">u8", raw, strides=(1,))  # the one that begins at each byte
    for row, skip in enumerate((1, 10)):  # a tag, then eight bytes; twice
        out[row, full] = words[offsets[full] + skip]
    return out[0], out[1]
