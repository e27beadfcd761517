"""A few results' rows out of the rings of their streams, by compiled code: the counterpart of `input.given`.

Of a hundred results the columns are made in some microseconds; a call of Python for each column, and what Arrow and NumPy take
around it, was twenty times that, and is what whoever waits for the results waits for. So all columns of one side, whatever their
types, are copied by one call into one piece of memory, of which they are slices; a column of text takes another for its bytes.
Of many results each column has memory of its own (`core.rows`), and may live on without the others.

That memory is the system's allocator's, in small pages: of Arrow's own one comes in pages of 2 MiB, each zeroed when it is first
written, for up to 4 ms on a virtual machine, which all rows wait for that happen to be next.

Invariant: the same columns as `Payload.take` gives, with the same bytes. tests/threads/test_taken.py holds it to that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from plait.core.kernels import takes
from plait.core.machine.marks import brief
from plait.core.rings import (
    BOOLEANS,
    KEEP_DATA,
    KEEP_ROOM,
    KEEP_SIZES,
    KEEP_VALID,
    KEEP_VALUES,
    KEEP_WHAT,
    KEEP_WIDTH,
    MOST_TEXT,
    TEXTS,
    Rings,
)
from plait.threads.atomics.native import compiled, halves, inner, ints, octets, quarters, short_ints
from plait.threads.input.payload import Payload

ALIGNED: Final = 64  # bytes: where Arrow wants a buffer to begin
FEW: Final = 1 << 8  # rows that are copied while the GIL is kept: some microseconds

# --- what is told of a column: where in the piece of memory its values begin (of text where each ends), and its flags, -1 for
# none; how many bytes of text there are, and how many NULLs
VALUES, FLAGS, BYTES, NULLS = range(4)

_POOL = pa.system_memory_pool()


def columns(payload: Payload, refs: np.ndarray) -> list[pa.Array] | None:
    """The columns of these rows, in this order, once for each time they are named; None where text is too much for one array.

    `refs`: int64, at least one. Only where every column is a ring (`Payload.all_rings`). By any thread, several at once.
    """
    rings, n, number = payload.rings(), len(refs), len(payload.names)
    buffer, told = pa.allocate_buffer(room(rings, number, n), memory_pool=_POOL), np.empty((number, 4), np.int64)
    (copy_rows if n <= FEW else copy_many)(rings.table, rings.capacity, refs, buffer.address, told)
    made = []
    for k, (values, flags, total, missing) in enumerate(told.tolist()):
        column = rings.arrays[k]
        parts = [buffer.slice(flags) if missing else None, buffer.slice(values)]
        if column.data is not None:
            if total > MOST_TEXT[rings.widths[k]]:
                return None
            parts.append(pa.allocate_buffer(total, memory_pool=_POOL))
            copy = copy_text if n <= FEW else copy_much
            copy(rings.table, k, rings.capacity, refs, buffer.address + values, parts[-1].address, total)
        made.append(pa.Array.from_buffers(column.kind, n, parts, missing))
    return made


def room(rings: Rings, number: int, n: int) -> int:
    """Bytes enough for the first `number` columns of `n` rows, each with flags, and with where text ends; whole values of any
    width from wherever a column begins, since who reads a column's memory may read all of it.
    """
    enough = (sum(rings.widths[:number]) + number) * (n + 1) + 2 * ALIGNED * number
    return enough + -enough % ALIGNED


@inner
def aligned(at: Any) -> Any:
    return (at + ALIGNED - 1) & -ALIGNED


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


@compiled
def copy_many(rings: Any, capacity: Any, refs: Any, out: Any, told: Any) -> None:
    """Every column's values of these rows, but the bytes of text, into the memory at an address, which has `room`; `told` (see
    VALUES) has a row a column.
    """
    mask, n, at = capacity - 1, len(refs), 0
    for k in range(len(told)):
        what, width, values = rings[k, KEEP_WHAT], rings[k, KEEP_WIDTH], rings[k, KEEP_VALUES]
        told[k, VALUES], told[k, FLAGS], told[k, BYTES], told[k, NULLS] = at, -1, 0, 0
        if what == TEXTS:
            sizes = ints(rings[k, KEEP_SIZES], capacity)
            if width == 8:
                told[k, BYTES] = copy_ends(sizes, mask, refs, ints(out + at, n + 1))
            else:
                told[k, BYTES] = copy_ends(sizes, mask, refs, short_ints(out + at, n + 1))
            at = aligned(at + width * (n + 1))
        elif what == BOOLEANS:
            copy_bits(octets(values, capacity), mask, refs, octets(out + at, (n + 7) >> 3))
            at = aligned(at + ((n + 7) >> 3))
        else:
            if width == 8:
                copy_words(ints(values, capacity), mask, refs, ints(out + at, n))
            elif width == 4:
                copy_words(halves(values, capacity), mask, refs, halves(out + at, n))
            elif width == 2:
                copy_words(quarters(values, capacity), mask, refs, quarters(out + at, n))
            else:
                copy_words(octets(values, capacity), mask, refs, octets(out + at, n))
            at = aligned(at + width * n)
        if rings[k, KEEP_VALID]:
            told[k, FLAGS] = at
            told[k, NULLS] = copy_bits(
                octets(rings[k, KEEP_VALID], capacity), mask, refs, octets(out + at, (n + 7) >> 3)
            )
            at = aligned(at + ((n + 7) >> 3))


@brief
def copy_rows(rings: Any, capacity: Any, refs: Any, out: Any, told: Any) -> None:
    """As `copy_many`, of so few rows that the GIL is not given away for them."""
    copy_many(rings, capacity, refs, out, told)


@compiled
def copy_much(rings: Any, k: Any, capacity: Any, refs: Any, ends: Any, out: Any, total: Any) -> None:
    """The bytes of column k of text, `total` of them, whose ends lie at an address."""
    data, begins = octets(rings[k, KEEP_DATA], rings[k, KEEP_ROOM]), ints(rings[k, KEEP_VALUES], capacity)
    places, to, n = refs & (capacity - 1), octets(out, total), len(refs) + 1
    if rings[k, KEEP_WIDTH] == 8:
        takes.take_texts(data, begins, places, ints(ends, n), to)
    else:
        takes.take_texts(data, begins, places, short_ints(ends, n), to)


@brief
def copy_text(rings: Any, k: Any, capacity: Any, refs: Any, ends: Any, out: Any, total: Any) -> None:
    """As `copy_much`, of few rows."""
    copy_much(rings, k, capacity, refs, ends, out, total)
