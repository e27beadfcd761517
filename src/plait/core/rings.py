"""Columns as rings: a row's place is its number modulo their capacity, so that taking some rows costs no more than those rows.

Python puts rows, and moves rings that are full; compiled code may write rows itself, and take them, by words that say where all
of it lies (KEEP_WORDS). Who takes rows meanwhile sees the arrays as they were (`Ring.taker`). Held by tests/core/test_rows.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from plait.core.kernels import takes
from plait.core.machine.line import address, pages
from plait.errors import DataError

CAPACITY = 1 << 12  # rows of a ring, at first
#: Bytes of text that an array can count, by the bytes of its offsets.
MOST_TEXT = {4: 2**31 - 1, 8: 2**63 - 1}

# A ring in words, for compiled code that writes rows itself (`NumberedRows.put`): what it is, which of the columns, bytes a value
# or an offset; addresses of values (of text: where it begins), of flags for what is no NULL (0: no NULL was seen), of sizes and
# bytes of text; how many bytes there is room for, a power of two, and the address of the count of the next byte (`_Texts`).
KEEP_WHAT, KEEP_COLUMN, KEEP_WIDTH, KEEP_VALUES, KEEP_VALID, KEEP_SIZES, KEEP_DATA, KEEP_ROOM, KEEP_HEAD = range(9)
KEEP_WORDS: Final = 9
# What it is: a column of numbers, booleans or text; or what goes with a row and is no column of its own.
NUMBERS, BOOLEANS, TEXTS, ROW_TS, ROW_SOURCE, ROW_POSITION = range(6)

#: Columns that travel with each row: its ts in microseconds, the number of its source, its position there.
TS, SOURCE, SEQ = "@ts", "@source", "@seq"
WITH_ROWS = {TS: ROW_TS, SOURCE: ROW_SOURCE, SEQ: ROW_POSITION}

#: Gives a column of the rows at some places.
Take = Callable[[np.ndarray], pa.Array]

#: Writes rows into rings: they in words, the number of the first row, that of the oldest row held (the first's if there is none),
#: how many places each ring has. False: it has not.
Write = Callable[[np.ndarray, int, int, int], bool]


class RingArrays(NamedTuple):
    """What a column lies in. Of text `values` are where its bytes begin, counted from the run's first: in `data` that is modulo
    its size, a power of two.
    """

    kind: pa.DataType
    valid: np.ndarray | None
    values: np.ndarray
    sizes: np.ndarray | None = None
    data: np.ndarray | None = None


class Rings(NamedTuple):
    """Columns for compiled code that takes rows: `table` has a row of KEEP_WORDS each, with the addresses of `arrays`.

    Whoever has this holds the arrays: rows that are not let go of stay in them as they are, whatever others put (`taker`). A
    row's place is its number modulo `capacity`. `widths`: bytes a value, or an offset of text.
    """

    table: np.ndarray
    capacity: int
    arrays: list[RingArrays]
    widths: list[int]


class Ring(ABC):
    """One column. `valid` is there once a NULL has been seen.

    A row's place in it is its number modulo `capacity`, a power of two. Places are int64 arrays. Under a NULL anything
    may lie.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.valid: np.ndarray | None = None

    def put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None:
        """Rows at these places; `oldest` is the place of the oldest row that is still needed."""
        if column.null_count:
            if self.valid is None:
                self.valid = np.ones(self.capacity, bool)
            self.valid[places] = column.is_valid().to_numpy(zero_copy_only=False)
        elif self.valid is not None:
            self.valid[places] = True
        self._put(places, column, oldest)

    def taker(self) -> Take:
        """What gives a new Arrow array, of the rows at some places, in their order.

        It goes by the ring's arrays as they are now, so it may be called while others put rows and move them: as long as its rows
        are held, nobody writes at their places, and arrays that were replaced stay as they are.
        """
        valid, data = self.valid, self._taker()

        def take(places: np.ndarray) -> pa.Array:
            n, nulls, missing = len(places), None, 0
            if valid is not None:
                nulls, bits = _room((n + 7) // 8, np.uint8)
                missing = n - takes.take_flags(valid.view(np.uint8), places, bits)
            return pa.Array.from_buffers(self.kind, n, [nulls if missing else None, *data(places)], missing)

        return take

    def move(self, first: int, end: int, capacity: int) -> None:
        """Into arrays of another size: the rows of numbers `first` to `end`."""
        if self.valid is not None:
            # Rows that come say of themselves whether they are NULL.
            self.valid = _moved(self.valid, first, end, capacity)
        self._move(first, end, capacity)

    def in_words(self) -> list[int]:
        """For compiled code, KEEP_WHAT and KEEP_WIDTH on; it holds until rows are put or moved by Python."""
        what, width, values, *text = self._in_words()
        return [what, 0, width, values, 0 if self.valid is None else address(self.valid), *text]

    @abstractmethod
    def arrays(self) -> RingArrays:
        """What it lies in now."""

    @property
    @abstractmethod
    def capacity(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def _in_words(self) -> list[int]: ...

    @abstractmethod
    def _put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None: ...

    @abstractmethod
    def _taker(self) -> Callable[[np.ndarray], list[pa.Buffer]]: ...

    @abstractmethod
    def _move(self, first: int, end: int, capacity: int) -> None: ...


class _Numbers(Ring):
    """Values of fixed width, and booleans, a byte each."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self.boolean = pa.types.is_boolean(kind)
        self.values = np.zeros(CAPACITY, "u1" if self.boolean else f"u{kind.bit_width // 8}")

    @property
    def capacity(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def arrays(self) -> RingArrays:
        return RingArrays(self.kind, self.valid, self.values)

    def _in_words(self) -> list[int]:
        return [BOOLEANS if self.boolean else NUMBERS, self.values.itemsize, address(self.values), 0, 0, 0, 0]

    def _put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None:
        stored = column.cast(pa.uint8()) if self.boolean else column
        data = np.frombuffer(stored.buffers()[1], self.values.dtype)
        self.values[places] = data[stored.offset : stored.offset + len(stored)]

    def _taker(self) -> Callable[[np.ndarray], list[pa.Buffer]]:
        values, boolean = self.values, self.boolean

        def take(places: np.ndarray) -> list[pa.Buffer]:
            buffer, out = _room((len(places) + 7) // 8 if boolean else len(places), values.dtype)
            if boolean:
                takes.take_flags(values, places, out)
            else:
                takes.take_words(values, places, out)
            return [buffer]

        return take

    def _move(self, first: int, end: int, capacity: int) -> None:
        self.values = _moved(self.values, first, end, capacity)


class _Texts(Ring):
    """Text or bytes: of each row where its bytes begin, counted from the run's first, and how many they are.

    Bytes lie in a ring, too, at their count modulo its size, in the order they came; those that came together lie in one piece,
    which begins anew at the ring's first place if it would go over its end. So nothing is moved while rows come and go. Where
    there is no room for what has come, all that is held moves to a ring of twice the size at least: another one, since who takes
    rows reads the old one meanwhile.

    An example: of 64 places 50 to 60 hold what is oldest, and the next byte is number 120, at place 56 of the second round.
    Ten bytes come: they would go over the end, so they begin at number 128, and the rows from 50 on must have gone by then.
    """

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        self.offset_type = np.dtype(np.int64 if large else np.int32)
        self.begin, self.size = np.zeros(CAPACITY, np.int64), np.zeros(CAPACITY, np.int64)
        self.data = np.empty(16 * CAPACITY, np.uint8)
        self.head = np.zeros(1, np.int64)  # the count of the next byte

    @property
    def capacity(self) -> int:
        return len(self.begin)

    @property
    def nbytes(self) -> int:
        return self.begin.nbytes + self.size.nbytes + self.data.nbytes

    def arrays(self) -> RingArrays:
        return RingArrays(self.kind, self.valid, self.begin, self.size, self.data)

    def _in_words(self) -> list[int]:
        texts = [address(self.size), address(self.data), len(self.data), address(self.head)]
        return [TEXTS, self.offset_type.itemsize, address(self.begin), *texts]

    def _put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None:
        n, head = len(column), int(self.head[0])
        _, offset_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offset_buffer, self.offset_type)[column.offset : column.offset + n + 1].astype(np.int64)
        length = int(offsets[-1] - offsets[0])
        first = self._in_one_piece(length)
        tail = first if oldest is None else int(self.begin[oldest])
        if first + length - tail > len(self.data):
            self._grow(tail, head, 1 << (max(head - tail, 0) + 2 * length - 1).bit_length())
            first = self._in_one_piece(length)
        if length:
            at = first & (len(self.data) - 1)
            self.data[at : at + length] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
        self.begin[places] = first + offsets[:-1] - offsets[0]
        self.size[places] = np.diff(offsets)
        self.head[0] = first + length

    def _in_one_piece(self, length: int) -> int:
        """The count at which so many bytes begin."""
        head, size = int(self.head[0]), len(self.data)
        at = head & (size - 1)
        return head if at + length <= size else head + size - at

    def _grow(self, tail: int, head: int, size: int) -> None:
        """What lies from `tail` to `head` into a ring of so many places. A piece that did not go over the old one's end does not
        go over the new one's, which is a multiple of it.
        """
        old, self.data = self.data, pages(size, np.uint8)  # who takes rows has the old one
        while tail < head:
            n = min(head, (tail | (len(old) - 1)) + 1) - tail  # up to the old one's end
            at, to = tail & (len(old) - 1), tail & (size - 1)
            self.data[to : to + n] = old[at : at + n]
            tail += n

    def _taker(self) -> Callable[[np.ndarray], list[pa.Buffer]]:
        begins, sizes, data, offset_type = self.begin, self.size, self.data, self.offset_type

        def take(places: np.ndarray) -> list[pa.Buffer]:
            offsets, ends = _room(len(places) + 1, offset_type)
            total = takes.take_ends(sizes, places, ends)
            if total > (most := MOST_TEXT[offset_type.itemsize]):
                raise DataError(
                    f"{total} bytes of text in one batch of rows",
                    why=f"Arrow's {self.kind} counts them up to {most}",
                    do="Give the column the type large_string (or large_binary)",
                )
            buffer, out = _room(total, np.dtype(np.uint8))
            takes.take_texts(data, begins, places, ends, out)
            return [offsets, buffer]

        return take

    def _move(self, first: int, end: int, capacity: int) -> None:
        self.begin, self.size = (_moved(column, first, end, capacity) for column in (self.begin, self.size))


def _room(n: int, kind: Any) -> tuple[pa.Buffer, np.ndarray]:
    """Room for `n` values, as an Arrow buffer and as an array.

    Of Arrow's allocator, which keeps what was given back to it: of NumPy's, large pieces are new pages of the system each time,
    and cost three times as much as what is written into them.
    """
    buffer = pa.allocate_buffer(n * np.dtype(kind).itemsize)
    return buffer, np.frombuffer(buffer, kind)


def _moved(column: np.ndarray, first: int, end: int, capacity: int) -> np.ndarray:
    """The rows of numbers `first` to `end` in an array of another size. What lies at the rest is written before it is read.

    Run by run: row by row, a window that grew to 150,000 rows cost who pushed a tenth of a second.
    """
    made = np.empty(capacity, column.dtype)
    while first < end:
        at, to = first & (len(column) - 1), first & (capacity - 1)
        n = min(end - first, len(column) - at, capacity - to)
        made[to : to + n] = column[at : at + n]
        first += n
    return made


def ring_for(kind: pa.DataType) -> Ring | None:
    """A ring for a column's type, if there is one."""
    if pa.types.is_boolean(kind) or (pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64)):
        return _Numbers(kind)
    if any(is_(kind) for is_ in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string,
                                 pa.types.is_large_binary)):  # fmt: skip
        return _Texts(kind)
    return None
