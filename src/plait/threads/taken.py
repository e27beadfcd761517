"""A few results' rows out of the rings of their streams, by compiled code: the counterpart of `input.given`.

Of a hundred results the columns are made in some microseconds; a call of Python for each column, and what Arrow and NumPy take
around it, was twenty times that, and is what whoever waits for the results waits for. So all columns of one side, whatever their
types, are copied by one call into one piece of memory, of which they are slices; a column of text takes another for its bytes.
Of many results each column has memory of its own (`core.rows`), and may live on without the others.

Invariant: the same columns as `Payload.take` gives, with the same bytes. tests/threads/test_taken.py holds it to that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from plait.core.kernels import takes
from plait.core.machine.marks import brief
from plait.core.rows import (
    BOOLEANS,
    KEEP_SIZES,
    KEEP_VALID,
    KEEP_VALUES,
    KEEP_WHAT,
    KEEP_WIDTH,
    MOST_TEXT,
    TEXTS,
    Payload,
    RingArrays,
    Rings,
)
from plait.threads.atomics.native import halves, inner, ints, octets, quarters

ALIGNED: Final = 64  # bytes: where Arrow wants a buffer to begin

# --- where a column's parts begin in the piece of memory: its values (of text where each ends), and its flags, -1 for none
AT_VALUES, AT_FLAGS = range(2)


def columns(payload: Payload, refs: np.ndarray) -> list[pa.Array] | None:
    """The columns of these rows, in this order, once for each time they are named; None where text is too much for one array.

    `refs`: int64, at least one. Only where every column is a ring (`Payload.all_rings`). By any thread, several at once.
    """
    rings, n, number = payload.rings(), len(refs), len(payload.names)
    begins, size = layout(rings, number, n)
    buffer, told = pa.allocate_buffer(size), np.empty((number, 2), np.int64)
    copy_rows(rings.table, rings.capacity, refs, begins, np.frombuffer(buffer, np.uint8), told)
    made = []
    for column, (values_at, flags_at), (total, missing) in zip(
        rings.arrays, begins.tolist(), told.tolist(), strict=False
    ):
        parts = [buffer.slice(flags_at) if missing else None, buffer.slice(values_at)]
        if column.data is not None:
            text = _text(column, refs & (rings.capacity - 1), parts[1], total)
            if text is None:
                return None
            parts.append(text)
        made.append(pa.Array.from_buffers(column.kind, n, parts, missing))
    return made


def _text(column: RingArrays, places: np.ndarray, ends: pa.Buffer, total: int) -> pa.Buffer | None:
    """The bytes of text, whose ends are known; None if there are more than these can count."""
    width = 8 if pa.types.is_large_string(column.kind) or pa.types.is_large_binary(column.kind) else 4
    if total > MOST_TEXT[width]:
        return None
    buffer = pa.allocate_buffer(total)
    counted = np.frombuffer(ends, f"i{width}", len(places) + 1)
    take_texts_briefly(column.data, column.values, places, counted, np.frombuffer(buffer, np.uint8))
    return buffer


def layout(rings: Rings, number: int, n: int) -> tuple[np.ndarray, int]:
    """Where the first `number` columns' parts of `n` rows begin in one piece of memory (AT_VALUES, AT_FLAGS), and its size."""
    begins, at = np.full((number, 2), -1, np.int64), 0
    for k, (column, (what, width)) in enumerate(
        zip(rings.arrays[:number], rings.table[:number, [KEEP_WHAT, KEEP_WIDTH]].tolist(), strict=True)
    ):
        begins[k, AT_VALUES] = at
        size = (n + 7) // 8 if what == BOOLEANS else width * (n + (what == TEXTS))
        at += -(-size // ALIGNED) * ALIGNED
        if column.valid is not None:
            begins[k, AT_FLAGS] = at
            at += -(-n // (8 * ALIGNED)) * ALIGNED
    return begins, at


@inner
def copy_words(values: Any, mask: Any, refs: Any, out: Any) -> None:
    for i in range(np.uint64(len(refs))):
        out[i] = values[np.uint64(refs[i] & mask)]


@inner
def copy_bits(flags: Any, mask: Any, refs: Any, out: Any) -> Any:
    """Bytes that are 0 or 1 as bits, the first the lowest; gives how many are 0."""
    zeros = 0
    for byte in range((len(refs) + 7) >> 3):
        bits = 0
        for bit in range(min(8, len(refs) - 8 * byte)):
            flag = flags[refs[8 * byte + bit] & mask]
            zeros += 1 - flag
            bits |= flag << bit
        out[byte] = bits
    return zeros


@inner
def copy_ends(sizes: Any, mask: Any, refs: Any, out: Any) -> Any:
    """Where texts end, one after another, behind a 0; gives how many bytes they have."""
    total = np.int64(0)
    out[0] = 0
    for i in range(len(refs)):
        total += sizes[refs[i] & mask]
        out[i + 1] = total
    return total


@brief
def copy_rows(rings: Any, capacity: Any, refs: Any, begins: Any, out: Any, told: Any) -> None:
    """Every column's values of these rows, but the bytes of text: `begins` says where in `out`; of each `told` has how many bytes
    of text there are, and how many NULLs.
    """
    mask, n = capacity - 1, len(refs)
    for k in range(len(begins)):
        what, width, values = rings[k, KEEP_WHAT], rings[k, KEEP_WIDTH], rings[k, KEEP_VALUES]
        to = out[begins[k, AT_VALUES] :]
        told[k, 0], told[k, 1] = 0, 0
        if what == TEXTS:
            sizes = ints(rings[k, KEEP_SIZES], capacity)
            if width == 8:
                told[k, 0] = copy_ends(sizes, mask, refs, to[: 8 * (n + 1)].view(np.int64))
            else:
                told[k, 0] = copy_ends(sizes, mask, refs, to[: 4 * (n + 1)].view(np.int32))
        elif what == BOOLEANS:
            copy_bits(octets(values, capacity), mask, refs, to)
        elif width == 8:
            copy_words(ints(values, capacity), mask, refs, to[: 8 * n].view(np.int64))
        elif width == 4:
            copy_words(halves(values, capacity), mask, refs, to[: 4 * n].view(np.uint32))
        elif width == 2:
            copy_words(quarters(values, capacity), mask, refs, to[: 2 * n].view(np.uint16))
        else:
            copy_words(octets(values, capacity), mask, refs, to)
        if begins[k, AT_FLAGS] >= 0:
            told[k, 1] = copy_bits(octets(rings[k, KEEP_VALID], capacity), mask, refs, out[begins[k, AT_FLAGS] :])


@brief
def take_texts_briefly(data: Any, begins: Any, places: Any, ends: Any, out: Any) -> None:
    """`takes.take_texts`, of so few rows that the GIL is not given away for them."""
    takes.take_texts(data, begins, places, ends, out)
