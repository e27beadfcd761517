"""A batch as Arrow hands it over (its C data interface), read by compiled code: looked at, kept, laid out. No GIL, no copies.

Python costs a microsecond a call, and a batch of a hundred rows used to take hundreds of calls. Here it takes one, or three:
`look` says whether the batch is of the usual kind, and changes nothing; `keep` copies whole rows into the rings of their stream
(`core.rows`); `lay` writes what the condition reads into the source's arena. `input.short` calls them, and says what is usual.

Addresses are good while Python holds the batch, the rings under their lock, the arena while its source is `laying`.

The words of Arrow's `struct ArrowArray`, as a batch exports it: a child a column, each with its own offset.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import carray

from plait.core.machine.marks import brief
from plait.core.rings import (
    BOOLEANS,
    KEEP_COLUMN,
    KEEP_DATA,
    KEEP_HEAD,
    KEEP_ROOM,
    KEEP_SIZES,
    KEEP_VALID,
    KEEP_VALUES,
    KEEP_WHAT,
    KEEP_WIDTH,
    NUMBERS,
    ROW_SOURCE,
    ROW_TS,
    TEXTS,
)
from plait.threads.atomics.native import compiled, floats, inner, ints, octets, pointer_at

OFFSET: Final = 2
BUFFERS: Final = 5
CHILDREN: Final = 6
STRUCT_WORDS: Final = 10

# --- how a column is stored: integers first, so that `kind < FLOAT32` asks whether it is one
INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, FLOAT32, FLOAT64, BOOLS = range(10)

# --- what becomes of a column that the condition reads: words of a row of `reads`
READ_COLUMN, READ_KIND, READ_TO, READ_AT, READ_LOW, READ_HIGH, READ_LIMIT = range(7)
READ_WORDS: Final = 7
# READ_TO: a leaf in a word of 32 or 64 bits, a coordinate (READ_AT: which, READ_LIMIT: it is clipped to that), the first
# part of a key or one that is mixed into it, flags that are 1 for every row (READ_AT: which column of the arena), the bits of
# any value in a word of 64 (what aggregates read; READ_LIMIT 1: as a key, equal floats have equal bits).
TO_INT32, TO_INT64, TO_FLOAT32, TO_FLOAT64, TO_COORDINATE, TO_KEY, TO_KEY_MIXED, TO_FLAGS, TO_BITS = range(9)

NAN_BITS: Final = int(np.array([np.nan]).view(np.int64)[0])
_MIX = np.uint64(0x9E3779B97F4A7C15)


@inner
def column_of(given, k):
    """The struct of a batch's k-th column."""
    return ints(ints(ints(given, STRUCT_WORDS)[CHILDREN], k + 1)[k], STRUCT_WORDS)


@inner
def first_of(given, column):
    """The place of the batch's first row in a column's buffers."""
    return ints(given, STRUCT_WORDS)[OFFSET] + column[OFFSET]


@inner
def buffer_of(column, k):
    return ints(column[BUFFERS], k + 1)[k]


@inner
def has_null(column, first, n):
    """Whether any of the rows is NULL; bits of no row are not looked at."""
    address = buffer_of(column, 0)
    if address == 0:
        return False
    bits = octets(address, (first + n + 7) >> 3)
    missing = False
    for i in range(first, first + n):
        missing |= (bits[i >> 3] >> (i & 7)) & 1 == 0
    return missing


@inner
def copied(source, first, n, to):
    """Into the first places of `to`, in its type."""
    for i in range(np.uint64(n)):
        to[i] = source[np.uint64(first) + i]


@inner
def load_ints(address, kind, first, n, to):
    """A column of integers, each as int64."""
    p, end = pointer_at(address), first + n
    if kind == INT64:
        copied(carray(p, end, dtype=np.int64), first, n, to)
    elif kind == INT32:
        copied(carray(p, end, dtype=np.int32), first, n, to)
    elif kind == INT16:
        copied(carray(p, end, dtype=np.int16), first, n, to)
    elif kind == INT8:
        copied(carray(p, end, dtype=np.int8), first, n, to)
    elif kind == UINT32:
        copied(carray(p, end, dtype=np.uint32), first, n, to)
    elif kind == UINT16:
        copied(carray(p, end, dtype=np.uint16), first, n, to)
    else:
        copied(carray(p, end, dtype=np.uint8), first, n, to)


@inner
def load_floats(address, kind, first, n, to):
    """A column of floats, each as float64, which holds every float32."""
    p, end = pointer_at(address), first + n
    if kind == FLOAT64:
        copied(carray(p, end, dtype=np.float64), first, n, to)
    else:
        copied(carray(p, end, dtype=np.float32), first, n, to)


@inner
def load_booleans(address, first, n, to):
    """A column of booleans, 0 or 1 each."""
    bits = octets(address, (first + n + 7) >> 3)
    for i in range(n):
        to[i] = (bits[(first + i) >> 3] >> ((first + i) & 7)) & 1


@inner
def load_bits(address, kind, first, n, to):
    """The bits of any column, in words of 64; of floats those of the float64."""
    if kind < FLOAT32:
        load_ints(address, kind, first, n, to)
    elif kind == BOOLS:
        load_booleans(address, first, n, to)
    else:
        load_floats(address, kind, first, n, to.view(np.float64))


@compiled
def look(given, n, time_column, time_kind, scale, limit, low, reads, words, ts):
    """Whether this is a batch of the usual kind: 1, or 0. Nothing is changed, but `ts`: the rows' microseconds.

    Usual: times ascending from `low` on, within +-`limit` counts of `scale` microseconds, none of them NULL; of the columns that
    `reads` names no value is NaN or NULL, and integers lie between READ_LOW and READ_HIGH, which the arena's words are known to
    hold; of those that are read as bits (TO_BITS) none is NULL. Whether anything else is NULL `keep` asks; under a NULL anything
    may lie. `words` is scratch, of n places.
    """
    column = column_of(given, time_column)
    first = first_of(given, column)
    if has_null(column, first, n):
        return 0
    load_ints(buffer_of(column, 1), time_kind, first, n, ts)
    unusual = (ts[0] > limit) | (ts[0] < -limit) | (ts[0] * scale < low)
    for i in range(np.uint64(n - 1)):
        after = ts[i + np.uint64(1)]
        unusual |= (after < ts[i]) | (after > limit)
    if unusual:
        return 0
    if scale != 1:
        for i in range(np.uint64(n)):
            ts[i] *= scale
    for k in range(len(reads)):
        if reads[k, READ_TO] == TO_FLAGS:
            continue
        column = column_of(given, reads[k, READ_COLUMN])
        first = first_of(given, column)
        if has_null(column, first, n):
            return 0
        if reads[k, READ_TO] == TO_BITS:
            continue
        if reads[k, READ_KIND] < FLOAT32:
            load_ints(buffer_of(column, 1), reads[k, READ_KIND], first, n, words)
            least, most = words[0], words[0]
            for i in range(np.uint64(n)):
                least, most = min(least, words[i]), max(most, words[i])
            if least < reads[k, READ_LOW] or most > reads[k, READ_HIGH]:
                return 0
        else:
            numbers = words.view(np.float64)
            load_floats(buffer_of(column, 1), reads[k, READ_KIND], first, n, numbers)
            nan = False
            for i in range(np.uint64(n)):
                nan |= numbers[i] != numbers[i]
            if nan:
                return 0
    return 1


@brief
def look_few(given, n, time_column, time_kind, scale, limit, low, reads, words, ts):
    """As `look`, of so few rows that the GIL is not given away for them."""
    return look(given, n, time_column, time_kind, scale, limit, low, reads, words, ts)


# --- whole rows ---------------------------------------------------------------------------------------------------


@inner
def in_ring(source, first, n, ring, at):
    """Rows at places `at`, `at` + 1, ... of a ring, two runs where it ends."""
    cut = min(n, len(ring) - at)
    for i in range(np.uint64(cut)):
        ring[np.uint64(at) + i] = source[np.uint64(first) + i]
    for i in range(np.uint64(n - cut)):
        ring[i] = source[np.uint64(first + cut) + i]


@inner
def constant_in_ring(value, n, ring, at):
    mask = len(ring) - 1
    for i in range(n):
        ring[(at + i) & mask] = value


@inner
def text_ends(given, kept, k, n):
    """Of a column of text: where its bytes begin in their buffer, and end."""
    column = column_of(given, kept[k, KEEP_COLUMN])
    first = first_of(given, column)
    p = pointer_at(buffer_of(column, 1))
    if kept[k, KEEP_WIDTH] == 8:
        wide = carray(p, first + n + 1, dtype=np.int64)
        return wide[first], wide[first + n]
    narrow = carray(p, first + n + 1, dtype=np.int32)
    return np.int64(narrow[first]), np.int64(narrow[first + n])


@inner
def text_at(kept, k, length, number, oldest, capacity):
    """The count at which so many bytes of text begin, in one piece (`core.rows`); -1 if there is no room for them."""
    head, size = ints(kept[k, KEEP_HEAD], 1)[0], kept[k, KEEP_ROOM]
    at = head & (size - 1)
    if at + length > size:
        head += size - at
    tail = ints(kept[k, KEEP_VALUES], capacity)[oldest & (capacity - 1)] if oldest < number else head
    return head if head + length - tail <= size else -1


@inner
def keep_text(given, kept, k, n, at, number, oldest, capacity):
    """A column of text: its bytes behind those that are there, where each begins and how many it has into two rings."""
    column = column_of(given, kept[k, KEEP_COLUMN])
    first = first_of(given, column)
    begin, end = text_ends(given, kept, k, n)
    head = text_at(kept, k, end - begin, number, oldest, capacity)
    to = head & (kept[k, KEEP_ROOM] - 1)
    data = octets(kept[k, KEEP_DATA], kept[k, KEEP_ROOM])
    if end > begin:  # a column without any bytes may have no buffer for them
        source = octets(buffer_of(column, 2), end)
        for i in range(np.uint64(end - begin)):
            data[np.uint64(to) + i] = source[np.uint64(begin) + i]
    starts, sizes = ints(kept[k, KEEP_VALUES], capacity), ints(kept[k, KEEP_SIZES], capacity)
    p, mask = pointer_at(buffer_of(column, 1)), capacity - 1
    if kept[k, KEEP_WIDTH] == 8:
        wide = carray(p, first + n + 1, dtype=np.int64)
        for i in range(n):
            starts[(at + i) & mask] = head + wide[first + i] - begin
            sizes[(at + i) & mask] = wide[first + i + 1] - wide[first + i]
    else:
        narrow = carray(p, first + n + 1, dtype=np.int32)
        for i in range(n):
            starts[(at + i) & mask] = head + narrow[first + i] - begin
            sizes[(at + i) & mask] = narrow[first + i + 1] - narrow[first + i]
    ints(kept[k, KEEP_HEAD], 1)[0] = head + end - begin


@inner
def keep_numbers(given, kept, k, n, at, capacity):
    column = column_of(given, kept[k, KEEP_COLUMN])
    first = first_of(given, column)
    source, ring = pointer_at(buffer_of(column, 1)), pointer_at(kept[k, KEEP_VALUES])
    width, end = kept[k, KEEP_WIDTH], first + n
    if width == 8:
        in_ring(carray(source, end, dtype=np.uint64), first, n, carray(ring, capacity, dtype=np.uint64), at)
    elif width == 4:
        in_ring(carray(source, end, dtype=np.uint32), first, n, carray(ring, capacity, dtype=np.uint32), at)
    elif width == 2:
        in_ring(carray(source, end, dtype=np.uint16), first, n, carray(ring, capacity, dtype=np.uint16), at)
    else:
        in_ring(carray(source, end, dtype=np.uint8), first, n, carray(ring, capacity, dtype=np.uint8), at)


@inner
def keep_booleans(given, kept, k, n, at, capacity):
    """Bits become bytes."""
    column = column_of(given, kept[k, KEEP_COLUMN])
    first = first_of(given, column)
    bits, ring = octets(buffer_of(column, 1), (first + n + 7) >> 3), octets(kept[k, KEEP_VALUES], capacity)
    for i in range(n):
        ring[(at + i) & (capacity - 1)] = (bits[(first + i) >> 3] >> ((first + i) & 7)) & 1


@compiled
def keep(given, n, kept, first, oldest, capacity, ts, source, position):
    """Whole rows into the rings, from number `first` on: 1; or 0, and nothing is changed, where a value is NULL or text has no
    room. There must be room for the rows themselves. `oldest`: the number of the oldest row that is held, `first` if none is.

    `source` and `position` are the source's number and the first row's place there.
    """
    for k in range(len(kept)):
        if kept[k, KEEP_WHAT] <= TEXTS:
            column = column_of(given, kept[k, KEEP_COLUMN])
            if has_null(column, first_of(given, column), n):
                return 0
        if kept[k, KEEP_WHAT] == TEXTS:
            begin, end = text_ends(given, kept, k, n)
            if text_at(kept, k, end - begin, first, oldest, capacity) < 0:
                return 0
    at = first & (capacity - 1)
    for k in range(len(kept)):
        what = kept[k, KEEP_WHAT]
        if what == NUMBERS:
            keep_numbers(given, kept, k, n, at, capacity)
        elif what == TEXTS:
            keep_text(given, kept, k, n, at, first, oldest, capacity)
        elif what == BOOLEANS:
            keep_booleans(given, kept, k, n, at, capacity)
        elif what == ROW_TS:
            in_ring(ts, 0, n, ints(kept[k, KEEP_VALUES], capacity), at)
        elif what == ROW_SOURCE:
            constant_in_ring(source, n, carray(pointer_at(kept[k, KEEP_VALUES]), capacity, dtype=np.int32), at)
        else:
            positions = ints(kept[k, KEEP_VALUES], capacity)
            for i in range(n):
                positions[(at + i) & (capacity - 1)] = position + i
        if kept[k, KEEP_VALID]:
            constant_in_ring(1, n, octets(kept[k, KEEP_VALID], capacity), at)
    return 1


# --- what the condition reads ---------------------------------------------------------------------------------------


@inner
def as_bits(words, kind, n):
    """Values as the bits that an equality compares: integers as they are, of floats -0.0 as 0.0."""
    if kind in (FLOAT32, FLOAT64):
        numbers = words.view(np.float64)
        for i in range(np.uint64(n)):
            numbers[i] += 0.0


@inner
def as_keys(words, kind, n):
    """As `as_bits`, and one pattern for all NaN."""
    as_bits(words, kind, n)
    if kind in (FLOAT32, FLOAT64):
        numbers = words.view(np.float64)
        for i in range(n):
            if numbers[i] != numbers[i]:
                words[i] = NAN_BITS


@inner
def as_coordinates(words, kind, n, limit):
    """In their place as float64, clipped. An integer becomes a float by one rounding."""
    numbers = words.view(np.float64)
    if kind < FLOAT32:
        for i in range(np.uint64(n)):
            numbers[i] = np.float64(words[i])
    for i in range(np.uint64(n)):
        numbers[i] = min(max(numbers[i], -limit), limit)


@compiled
def lay(given, n, reads, limits, words, arena, count, size):
    """What the condition reads of the rows, into the arena at places `count`, `count` + 1, ...; after `look` has said 1.

    `arena`: the source's row of addresses (`threads.words`), of columns of `size` places; `limits`: float64, by READ_LIMIT.
    """
    at, mask = count & (size - 1), size - 1
    for k in range(len(reads)):
        to, kind, place = reads[k, READ_TO], reads[k, READ_KIND], reads[k, READ_AT]
        if to == TO_FLAGS:
            constant_in_ring(1, n, octets(arena[place], size), at)
            continue
        column = column_of(given, reads[k, READ_COLUMN])
        first = first_of(given, column)
        numbers = words.view(np.float64)
        load_bits(buffer_of(column, 1), kind, first, n, words)
        if to == TO_INT32:
            in_ring(words, 0, n, carray(pointer_at(arena[place]), size, dtype=np.int32), at)
        elif to in (TO_INT64, TO_BITS):
            in_ring(words, 0, n, ints(arena[place], size), at)
        elif to == TO_FLOAT32:
            in_ring(numbers, 0, n, carray(pointer_at(arena[place]), size, dtype=np.float32), at)
        elif to == TO_FLOAT64:
            in_ring(numbers, 0, n, floats(arena[place], size), at)
        elif to == TO_COORDINATE:
            as_coordinates(words, kind, n, limits[reads[k, READ_LIMIT]])
            in_ring(numbers, 0, n, floats(arena[place], size), at)
        elif to == TO_KEY:
            as_bits(words, kind, n)
            in_ring(words, 0, n, ints(arena[place], size), at)
        else:
            as_bits(words, kind, n)
            keys = carray(pointer_at(arena[place]), size, dtype=np.uint64)
            for i in range(n):
                before = keys[(at + i) & mask]
                keys[(at + i) & mask] = (before * _MIX) ^ (before >> np.uint64(31)) ^ np.uint64(words[i])


@compiled
def enter(given, n, time_column, time_kind, scale, limit, low, reads, limits, words, rows, kept, first, oldest, capacity, source,
          position, arena, count, size):  # fmt: skip
    """`look`, `keep` and `lay` in one call: 1; or 0, and nothing is changed.

    `rows`: three rows of n places, for what the gate is told: times, the tuples' numbers in the source, those that they are kept
    under.
    """
    ts = rows[0]
    if look(given, n, time_column, time_kind, scale, limit, low, reads, words, ts) == 0:
        return 0
    if keep(given, n, kept, first, oldest, capacity, ts, source, position) == 0:
        return 0
    lay(given, n, reads, limits, words, arena, count, size)
    for i in range(n):
        rows[1, i] = count + i
        rows[2, i] = first + i
    return 1


@brief
def enter_few(given: Any, n: Any, time_column: Any, time_kind: Any, scale: Any, limit: Any, low: Any, reads: Any, limits: Any,
              words: Any, rows: Any, kept: Any, first: Any, oldest: Any, capacity: Any, source: Any, position: Any, arena: Any,
              count: Any, size: Any) -> int:  # fmt: skip
    """As `enter`, of so few rows that the GIL is not given away for them."""
    return enter(
        given, n, time_column, time_kind, scale, limit, low, reads, limits, words, rows, kept, first, oldest, capacity, source,
        position, arena, count, size,
    )  # fmt: skip


@inner
def bits(given, n, reads, out):
    """What is read as bits (TO_BITS), each column into row READ_AT of `out`, int64 of n places; after `look` has said 1."""
    for k in range(len(reads)):
        if reads[k, READ_TO] == TO_BITS:
            column, kind = column_of(given, reads[k, READ_COLUMN]), reads[k, READ_KIND]
            to = out[reads[k, READ_AT]]
            load_bits(buffer_of(column, 1), kind, first_of(given, column), n, to)
            if reads[k, READ_LIMIT] == 1:
                as_keys(to, kind, n)


@compiled
def look_and_read(given, n, time_column, time_kind, scale, limit, low, reads, words, ts, out):
    """`look`, and if it says 1, `bits`."""
    if look(given, n, time_column, time_kind, scale, limit, low, reads, words, ts) == 0:
        return 0
    bits(given, n, reads, out)
    return 1
