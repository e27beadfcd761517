"""Rows kept until nothing names them: each has a number, by which results and accumulators name it.

Numbers rise as rows come and are never used again. There are two ways to let rows go, by who names them:

    NumberedRows   rows are named for a while after they came, the oldest the shortest (a window's rows, those of a pushed
                   stream): they go from the oldest on, below a number or below a ts
    Payload        the same for a stream that is pushed: source, position and time of coming are kept along
    KeptRows       any row may be named for ever (some group's last one): whoever names rows says which, and the others go

Either way what is held stays within a constant factor of what can be named, and a row is copied a constant number of times.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from plait.core.kernels import takes
from plait.core.machine.line import address, pages
from plait.encodings import one_piece, recast
from plait.errors import DataError
from plait.order import AFTER_ALL
from plait.schema import takeable

_CAPACITY = 1 << 12  # rows of a ring, at first
#: Bytes of text that an array can count, by the bytes of its offsets.
MOST_TEXT = {4: 2**31 - 1, 8: 2**63 - 1}
_MERGED_NUMBERS = (
    1 << 13
)  # as `merged`, where nothing but numbers is merged: rows go as a whole, and dead ones take room
_RUN = 64  # rows that follow one another and are worth to be copied as a run


def crowded(held: int, needed: int, *, few: int) -> bool:
    """Whether so many of the rows held are dead that copying the others is worth it: as many as these, and `few` more."""
    return held > 2 * needed + few


# --- columns as rings ---------------------------------------------------------------------------------------------

# A ring in words, for compiled code that writes rows itself (`NumberedRows.put`): what it is, which of the columns, bytes a value
# or an offset; addresses of values (of text: where it begins), of flags for what is no NULL (0: no NULL was seen), of sizes and
# bytes of text; how many bytes there is room for, a power of two, and the address of the count of the next byte (`_Texts`).
KEEP_WHAT, KEEP_COLUMN, KEEP_WIDTH, KEEP_VALUES, KEEP_VALID, KEEP_SIZES, KEEP_DATA, KEEP_ROOM, KEEP_HEAD = range(9)
KEEP_WORDS: Final = 9
# What it is: a column of numbers, booleans or text; or what goes with a row and is no column of its own (`Payload`).
NUMBERS, BOOLEANS, TEXTS, ROW_TS, ROW_SOURCE, ROW_POSITION = range(6)


#: Gives a column of the rows at some places.
Take = Callable[[np.ndarray], pa.Array]


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


class _Ring(ABC):
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

    def move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None:
        """Into arrays of another size: rows at the places `old` to `new`."""
        if self.valid is not None:
            self.valid = _moved(
                self.valid, old, new, capacity
            )  # rows that come say of themselves whether they are NULL
        self._move(old, new, capacity)

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
    def _move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None: ...


class _Numbers(_Ring):
    """Values of fixed width, and booleans, a byte each."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self.boolean = pa.types.is_boolean(kind)
        self.values = np.zeros(_CAPACITY, "u1" if self.boolean else f"u{kind.bit_width // 8}")

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

    def _move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None:
        self.values = _moved(self.values, old, new, capacity)


class _Texts(_Ring):
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
        self.begin, self.size = np.zeros(_CAPACITY, np.int64), np.zeros(_CAPACITY, np.int64)
        self.data = np.empty(16 * _CAPACITY, np.uint8)
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

    def _move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None:
        self.begin, self.size = (_moved(column, old, new, capacity) for column in (self.begin, self.size))


def _room(n: int, kind: Any) -> tuple[pa.Buffer, np.ndarray]:
    """Room for `n` values, as an Arrow buffer and as an array.

    Of Arrow's allocator, which keeps what was given back to it: of NumPy's, large pieces are new pages of the system each time,
    and cost three times as much as what is written into them.
    """
    buffer = pa.allocate_buffer(n * np.dtype(kind).itemsize)
    return buffer, np.frombuffer(buffer, kind)


def _moved(column: np.ndarray, old: np.ndarray, new: np.ndarray, capacity: int) -> np.ndarray:
    """What lies at the places `old`, at `new` ones of another array. What lies at the rest is written before it is read."""
    made = np.empty(capacity, column.dtype)
    made[new] = column[old]
    return made


def _ring(kind: pa.DataType) -> _Ring | None:
    """A ring for a column's type, if there is one."""
    if pa.types.is_boolean(kind) or (pa.types.is_primitive(kind) and kind.bit_width in (8, 16, 32, 64)):
        return _Numbers(kind)
    if any(is_(kind) for is_ in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string,
                                 pa.types.is_large_binary)):  # fmt: skip
        return _Texts(kind)
    return None


# --- rows that go from the oldest on ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Batch:
    """Rows that came together or were merged; `rows` has the columns that are no rings.

    `first` and `count` are of its numbers; `last_ts` is not below any of its rows' ts; `stamp` is the least of those that
    its rows came with.
    """

    first: int
    count: int
    rows: pa.RecordBatch
    last_ts: int
    stamp: int
    numbers: np.ndarray | None = None  # the rows' numbers, where they do not follow one another

    @property
    def end(self) -> int:
        """Above all of its numbers."""
        return self.first + self.count if self.numbers is None else int(self.numbers[-1]) + 1

    def take(self, numbers: np.ndarray, names: list[str], missing: np.ndarray | None = None) -> pa.RecordBatch:
        at = numbers - self.first if self.numbers is None else np.searchsorted(self.numbers, numbers)
        rows, n = self.rows.select(names), len(at)
        if missing is None and n >= _RUN and at[-1] - at[0] == n - 1 and (np.diff(at) == 1).all():
            return _copied(rows.slice(int(at[0]), n))
        return rows.take(_spread(at, missing))


#: Writes rows into rings: they in words, the number of the first row, that of the oldest row held (the first's if there is none),
#: how many places each ring has. False: it has not.
Write = Callable[[np.ndarray, int, int, int], bool]


class NumberedRows:
    """Rows in Arrow batches, untouched until they are taken; some threads may append while others take and let go.

    rings   columns of numbers and of text lie in rings instead: a row's number, modulo their capacity, is its place, so that
            taking a few rows costs a few microseconds however many there are. Only whole stretches of rows can go then
    merged  neighbouring batches are merged up to so many rows: tuple by tuple there would be a batch a row. A merged batch
            goes as a whole
    given   where each column lies in a batch that compiled code reads (`put`); None: where the schema has it

    `next` only grows. Taking a row that has been let go is the caller's error, and is not seen: in a ring another row may
    stand in its place. tests/core/test_rows.py holds it against a plain list.
    """

    def __init__(
        self, schema: pa.Schema, *, rings: bool = False, merged: int = 0, given: Mapping[str, int] | None = None
    ) -> None:
        self.schema = schema
        self._given = given or {name: k for k, name in enumerate(schema.names)}
        kept = [pa.field(f.name, takeable(f.type)) for f in schema]
        found = {f.name: _ring(f.type) if rings else None for f in kept}
        self._rings = {name: ring for name, ring in found.items() if ring is not None}
        self._rest = pa.schema([f for f in kept if f.name not in self._rings])
        self._no_rest = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._rest], schema=self._rest)
        self._views = {f.name: f.type for f, given in zip(kept, schema, strict=True) if f.type != given.type}
        self._capacity, self._merged = _CAPACITY, merged
        if not self._rest.names:
            self._merged = min(merged, _MERGED_NUMBERS)
        self._batches: deque[_Batch] = deque()
        self._lock = threading.Lock()
        self._in_words: Rings | None = None  # until Python changes one
        self.next = 0  # the number of the next row

    def start_at(self, number: int) -> None:
        """Number rows from here, as those that are restored must be; before any row has come."""
        assert not self._batches
        self.next = number

    @property
    def rows(self) -> int:
        with self._lock:
            return sum(b.count for b in self._batches)

    @property
    def nbytes(self) -> int:
        with self._lock:
            rest: int = sum(b.rows.nbytes for b in self._batches)
            return rest + sum(r.nbytes for r in self._rings.values())

    def rows_before(self, ts: int) -> int:
        """How many rows lie in batches that end before a ts."""
        with self._lock:
            return sum(b.count for b in self._batches if b.last_ts < ts)

    @property
    def oldest(self) -> int:
        """The least number of the rows that are held; the next one's, if none are."""
        with self._lock:
            return self._oldest

    @property
    def _oldest(self) -> int:
        return self._batches[0].first if self._batches else self.next

    def oldest_stamp(self) -> int | None:
        with self._lock:
            return self._batches[0].stamp if self._batches else None

    def append(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Keep rows that go by their numbers (`expire`)."""
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
            if batch.num_rows:
                self.add(batch.columns, batch.num_rows)

    def add(self, columns: Sequence[pa.Array], n: int, *, last_ts: int = AFTER_ALL, stamp: int = 0) -> int:
        """Keep `n` rows, of which these are the columns; gives the number of the first.

        None of them is after `last_ts`; `stamp` says what has to be remembered as long as they are held (`oldest_stamp`).
        """
        named = dict(zip(self.schema.names, columns, strict=True))
        named |= {name: named[name].cast(kind) for name, kind in self._views.items()}
        rest = pa.RecordBatch.from_arrays([named[name] for name in self._rest.names], schema=self._rest)
        with self._lock:
            first = self.next
            self._reserve(n)
            places = np.arange(first, first + n) & (self._capacity - 1)
            self._in_words = None
            oldest = self._oldest & (self._capacity - 1) if self._batches else None
            for name, ring in self._rings.items():
                ring.put(places, named[name], oldest)
            self.next += n
            self._keep(_Batch(first, n, rest, last_ts, stamp))
        return first

    def put(self, n: int, write: Write, *, ts: np.ndarray, stamp: int) -> int:
        """Keep `n` rows that `write` copies into the rings itself; gives the number of the first, or -1 if it declines.

        Only where every column is a ring (`all_rings`). `ts`: theirs, ascending, once `write` is through.
        """
        with self._lock:
            first = self.next
            self._reserve(n)
            if not write(self._rings_in_words().table, first, self._oldest, self._capacity):
                return -1
            self.next += n
            self._keep(_Batch(first, n, self._no_rest, int(ts[-1]), stamp))
        return first

    def rings(self) -> Rings:
        """The columns as they are now, for compiled code that takes rows; only where every column is a ring."""
        with self._lock:
            return self._rings_in_words()

    def _rings_in_words(self) -> Rings:
        """As compiled code reads and writes them; it holds until Python changes one."""
        if self._in_words is None:
            table = np.array([ring.in_words() for ring in self._rings.values()], np.int64)
            for row, name in zip(table, self._rings, strict=True):
                row[KEEP_COLUMN] = self._given[name]
                row[KEEP_WHAT] = _WITH_ROWS.get(name, row[KEEP_WHAT])
            arrays = [ring.arrays() for ring in self._rings.values()]
            self._in_words = Rings(table, self._capacity, arrays, table[:, KEEP_WIDTH].tolist())
        return self._in_words

    @property
    def all_rings(self) -> bool:
        return len(self._rings) == len(self.schema) and not self._views

    def _reserve(self, rows: int) -> None:
        """Room in the rings for so many more."""
        oldest = self._oldest
        if not self._rings or self.next - oldest + rows <= self._capacity:
            return
        capacity = 1 << (2 * (self.next - oldest + rows) - 1).bit_length()
        live = np.arange(oldest, self.next)
        for ring in self._rings.values():
            ring.move(live & (self._capacity - 1), live & (capacity - 1), capacity)
        self._capacity, self._in_words = capacity, None

    def _keep(self, made: _Batch) -> None:
        # Each row is merged a few times at most.
        while self._batches:
            last = self._batches[-1]
            if last.numbers is not None or last.count + made.count > self._merged or last.count > 2 * made.count:
                break
            self._batches.pop()
            rows = made.rows
            if self._rest.names:
                rows = _one_batch([last.rows, made.rows])
            span = max(last.last_ts, made.last_ts), min(last.stamp, made.stamp)
            made = _Batch(last.first, last.count + made.count, rows, *span)
        self._batches.append(made)

    def expire(self, number: int) -> None:
        """Let go of batches, the oldest first, all of whose rows have lower numbers."""
        with self._lock:
            while self._batches and self._batches[0].end <= number:
                self._batches.popleft()

    def expire_before(self, ts: int) -> None:
        """Let go of batches, the oldest first, all of whose rows lie below `ts`."""
        with self._lock:
            while self._batches and self._batches[0].last_ts < ts:
                self._batches.popleft()

    def rows_go(self, ts: int) -> bool:
        """Whether `expire_before` would let any go."""
        with self._lock:
            return bool(self._batches) and self._batches[0].last_ts < ts

    def keep(self, numbers: np.ndarray, before_ts: int) -> None:
        """Of the batches, the oldest first, all of whose rows lie below a ts, only these rows (ascending) are needed."""
        assert not self._rings, "rows in rings go from the oldest on"
        with self._lock:
            old = []
            while self._batches and self._batches[0].last_ts < before_ts:
                old.append(self._batches.popleft())
            kept, named = [], []
            for batch in old:
                own = numbers[np.searchsorted(numbers, batch.first) : np.searchsorted(numbers, batch.end)]
                if len(own):
                    kept.append(batch.take(own, self._rest.names))
                    named.append(own)
            if kept:
                joined = np.concatenate(named)
                span = max(b.last_ts for b in old), min(b.stamp for b in old)
                self._batches.appendleft(_Batch(int(joined[0]), len(joined), _one_batch(kept), *span, joined))

    def take(
        self, numbers: np.ndarray, names: list[str] | None = None, *, missing: np.ndarray | None = None
    ) -> pa.Table:
        """The rows of these numbers, in this order, once for each time they are named; of them these columns, or all.

        Where `missing` is true there is no row, and the number has no meaning: NULLs. There must be one row at least.

        An Arrow table of the given schema: text that came as views is a view again. The lock is held only to see what there
        is, so several threads take at once, while others append: batches are never changed, only replaced, and of rings see
        `taker`.
        """
        wanted = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        if len(numbers) == 0:
            return wanted.empty_table()
        rest = [name for name in wanted.names if name not in self._rings]
        there = numbers if missing is None else numbers[~missing]
        with self._lock:
            mask = self._capacity - 1
            rings = {name: self._rings[name].taker() for name in wanted.names if name in self._rings}
            batches = list(self._batches) if rest else []
        places = there & mask
        columns = {name: take(places) for name, take in rings.items()}
        if missing is not None and columns:
            spread = pa.array(np.cumsum(~missing) - 1, mask=missing)
            columns = {name: column.take(spread) for name, column in columns.items()}
        if rest:
            found = _taken(batches, there, rest, missing)
            columns |= dict(zip(rest, found.columns, strict=True))
        for name in self._views.keys() & columns.keys():
            columns[name] = columns[name].cast(self.schema.field(name).type)
        return pa.Table.from_arrays([columns[name] for name in wanted.names], schema=wanted)


def _copied(rows: pa.RecordBatch) -> pa.RecordBatch:
    """A run of rows, copied as a whole: Arrow copies what it joins, and slices of one column lie side by side."""
    half = rows.num_rows // 2
    columns = [pa.concat_arrays([column.slice(0, half), column.slice(half)]) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _one_batch(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _taken(batches: list[_Batch], numbers: np.ndarray, names: list[str], missing: np.ndarray | None) -> pa.Table:
    """Rows of these numbers from the batches that hold them; with NULLs between them, where rows are `missing`."""
    starts = [batch.first for batch in batches]
    first, last = bisect_right(starts, int(numbers.min())) - 1, bisect_right(starts, int(numbers.max())) - 1
    if first == last:
        return pa.Table.from_batches([batches[first].take(numbers, names, missing)])
    # One take a batch, then one to restore the order: both in proportion to the result, not to what is held.
    which = np.searchsorted(np.array(starts), numbers, "right") - 1
    by = np.argsort(which, kind="stable")
    cuts = np.searchsorted(which[by], np.arange(first, last + 2))
    parts = []
    for k, (begin, end) in enumerate(pairwise(cuts)):
        if begin < end:
            parts.append(batches[first + k].take(numbers[by[begin:end]], names))
    found = pa.Table.from_batches(parts)
    if missing is None and (which[1:] >= which[:-1]).all():
        return found  # the batches' order is the rows'
    back = np.empty(len(numbers), np.int64)
    back[by] = np.arange(len(numbers))
    return found.combine_chunks().take(_spread(back, missing))


def _spread(places: np.ndarray, missing: np.ndarray | None) -> pa.Array:
    """Places of rows for a take, with NULLs between them where rows are missing."""
    if missing is None:
        return pa.array(places)
    whole = np.zeros(len(missing), np.int64)
    whole[~missing] = places
    return pa.array(whole, mask=missing)


# --- rows of a stream that is pushed ------------------------------------------------------------------------------

#: Rows in a batch that is no longer merged with its neighbours.
MERGED = 1 << 16

#: Columns that travel with each row: its ts in microseconds, the number of its source, its position there.
TS, SOURCE, SEQ = "@ts", "@source", "@seq"
EXTRA = (pa.field(TS, pa.int64()), pa.field(SOURCE, pa.int32()), pa.field(SEQ, pa.int64()))
_WITH_ROWS = {TS: ROW_TS, SOURCE: ROW_SOURCE, SEQ: ROW_POSITION}


class Pushes:
    """When rows were pushed, by their numbers: what latencies are measured from. Whoever keeps rows has one, and a lock for it.

    A step is the number of its first row and a moment, in nanoseconds of `time.monotonic_ns`; it lasts up to the next one.
    Another operator's results come with the moment of each: rows of one moment that follow one another are one step.
    """

    def __init__(self) -> None:
        self._steps = np.empty(
            (2, 256), np.int64
        )  # number of the first row, moment; those from `_begin` to `_end` count
        self._begin = self._end = 0

    def note(self, first: int, moments: int | np.ndarray) -> None:
        """Rows from number `first` on were pushed at one moment, or each at its own."""
        if isinstance(moments, int):
            if self._end == self._steps.shape[1]:
                self._make_room(1)
            self._steps[0, self._end], self._steps[1, self._end] = first, moments
            self._end += 1
            return
        steps = np.flatnonzero(np.diff(moments, prepend=moments[0] - 1))
        if self._end + len(steps) > self._steps.shape[1]:
            self._make_room(len(steps))
        end = self._end + len(steps)
        self._steps[0, self._end : end], self._steps[1, self._end : end] = first + steps, moments[steps]
        self._end = end

    def _make_room(self, steps: int) -> None:
        """For so many more. Steps that were forgotten go, so that each is copied a constant number of times."""
        held = self._end - self._begin
        old, self._steps = self._steps, np.empty((2, max(256, 2 * (held + steps))), np.int64)
        self._steps[:, :held] = old[:, self._begin : self._end]
        self._begin, self._end = 0, held

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The moments of these rows."""
        made: np.ndarray = self._steps[1, self._begin : self._end][self._firsts.searchsorted(numbers, "right") - 1]
        return made

    @property
    def _firsts(self) -> np.ndarray:
        return self._steps[0, self._begin : self._end]

    def forget(self, before: int) -> None:
        """Rows of lower numbers will not be asked for. Some are told all the same: a sample may come late."""
        gone = int(self._firsts.searchsorted(before, "right")) - 1
        if gone > 1024 or gone > (self._end - self._begin) // 2:
            self._begin += gone


class Payload:
    """A pushed stream's rows, with what travels along with each, and when each push came.

    With `sparse`, single old rows may be kept.

    Pushers append; whoever makes results takes rows, and lets them go by their ts: workers say which ts no later result can
    name. tests/core/test_payload.py holds it.

    `_rows` keeps the columns and numbers rows from 0 on; a number is what tuples carry as `ref`. `_pushes` says when each
    push came: under a lock of its own, since who asks for that must not wait until rows are copied. With `only` these columns
    are kept, and nothing travels along.
    """

    def __init__(self, schema: pa.Schema, *, sparse: bool = False, only: Sequence[str] | None = None) -> None:
        self._names, self._only = schema.names if only is None else list(only), only is not None
        fields = [schema.field(name) for name in self._names]
        self._rows = NumberedRows(
            pa.schema(fields if self._only else [*fields, *EXTRA]), rings=not sparse, merged=MERGED,
            given={name: schema.get_field_index(name) for name in self._names} if self._only else None,
        )  # fmt: skip
        self._lock, self._told = threading.Lock(), threading.Lock()
        self._pushes = Pushes()

    @property
    def rows(self) -> int:
        return self._rows.rows

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def rows_before(self, ts: int) -> int:
        """How many rows lie in batches that end before a ts: of these only some may be needed (`keep`)."""
        return self._rows.rows_before(ts)

    def append(
        self,
        batch: pa.RecordBatch,
        ts: np.ndarray,
        source: int,
        seq: np.ndarray,
        pushed_ns: int | np.ndarray,
        stamp: int,
    ) -> int:
        """Keep rows; gives the number of the first.

        `ts` and `seq`: int64, one a row; `source`: the inlet's number; `pushed_ns`: when all were pushed, or each; `stamp`:
        of the encoder, so that codes of text are kept as long as rows that hold it. Any thread may append. Columns of
        numbers and text are copied into rings, unless `sparse`; the others are kept as they came.
        """
        n, columns = batch.num_rows, [batch.column(name) for name in self._names]
        if not self._only:
            columns += [pa.array(ts), pa.repeat(pa.scalar(source, pa.int32()), n), pa.array(seq)]
        with self._lock:
            first = self._rows.add(columns, n, last_ts=int(ts.max()), stamp=stamp)
            with self._told:
                self._pushes.note(first, pushed_ns)
        return first

    def put(self, n: int, write: Write, ts: np.ndarray, pushed_ns: int, stamp: int) -> int:
        """As `append`, for compiled code that writes the rows itself (`NumberedRows.put`); gives -1 if it declines."""
        with self._lock:
            first = self._rows.put(n, write, ts=ts, stamp=stamp)
            if first >= 0:
                with self._told:
                    self._pushes.note(first, pushed_ns)
        return first

    @property
    def all_rings(self) -> bool:
        """Whether compiled code can write all that is kept of a row."""
        return self._rows.all_rings

    @property
    def names(self) -> list[str]:
        """The columns that are kept, without what travels along."""
        return self._names

    def rings(self) -> Rings:
        """The columns as compiled code takes rows of them, in the order of `names`; what travels along follows."""
        return self._rows.rings()

    def expire(self, ts: int) -> None:
        """Let go of what is before `ts`, as far as rows came in one go with later ones."""
        self._rows.expire_before(ts)
        oldest = self._rows.oldest
        with self._told:
            self._pushes.forget(oldest)

    def lets_go(self, ts: int) -> bool:
        """Whether `expire` would let anything go."""
        return self._rows.rows_go(ts)

    def keep(self, refs: np.ndarray, before_ts: int) -> None:
        """Of what is before a ts, only these rows (ascending) are needed."""
        self._rows.keep(refs, before_ts)

    def oldest_stamp(self) -> int | None:
        return self._rows.oldest_stamp()

    def pushed_ns(self, refs: np.ndarray) -> np.ndarray:
        """When the rows of these numbers were pushed."""
        with self._told:
            return self._pushes.of(refs)

    def take(self, refs: np.ndarray, *, extra: bool = True, missing: np.ndarray | None = None) -> pa.Table:
        """The rows of these numbers, in this order, once for each time they are named; `extra`: with what travels along.

        Where `missing` is true there is no row, but NULLs; there must be one row at least.

        A copy, good after the rows were let go of. Rows that were let go of already can't be asked for: workers say
        what is live before it goes.
        """
        return self._rows.take(refs, None if extra else self._names, missing=missing)


# --- rows that are named one by one -------------------------------------------------------------------------------

FEW = 1 << 16  # dead rows that are not worth a copy of the others
SPARSE = 8  # numbers a row: where there are more, rows are found by search, else by a place for every number


class KeptRows:
    """Rows that accumulators name one by one; whoever names them calls `keep` when they are `crowded`.

    First come the rows that were kept at last, by their numbers; after them those that came since, whose numbers are in a row.

    Columns of numbers and of text are copied into memory of their own as they come (`_held`), so that taking some rows costs no
    more than those rows; the others stay in Arrow, in `_chunks`. `rows` is how many rows are held, `_needed` how many `keep`
    was told of last. With `rows` above 2 * `_needed` + FEW it is `crowded`, so the work of `keep` is paid for by the rows that
    came since. One thread uses it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([pa.field(field.name, takeable(field.type)) for field in schema])
        self._held = {f.name: held for f in self.schema if (held := _ring(f.type)) is not None}
        self._rest = pa.schema([f for f in self.schema if f.name not in self._held])
        self._capacity = _CAPACITY
        self._chunks: list[pa.Table] = []
        self._numbers = np.empty(0, np.int64)  # of the rows that were kept
        self._places: np.ndarray | None = None  # where they are, by their numbers, from the first on
        self._since = 0  # the number of the first row that came since
        self.next = 0
        self.rows = 0
        self._needed = 0

    def append(self, rows: pa.Table) -> int:
        """Keep rows; gives the number of the first."""
        first, n = self.next, rows.num_rows
        if n == 0:
            return first
        columns = {f.name: recast(rows.column(f.name), f.type) for f in self.schema}
        self._put({name: one_piece(columns[name]) for name in self._held}, n)
        if self._rest.names:
            self._chunks.append(pa.Table.from_arrays([columns[name] for name in self._rest.names], schema=self._rest))
        self.next += n
        self.rows += n
        return first

    def _put(self, columns: Mapping[str, pa.Array], n: int) -> None:
        """So many rows behind those that are held."""
        if self.rows + n > self._capacity:
            capacity = 1 << (2 * (self.rows + n) - 1).bit_length()
            live = np.arange(self.rows)
            for held in self._held.values():
                held.move(live, live, capacity)
            self._capacity = capacity
        places = np.arange(self.rows, self.rows + n)
        for name, held in self._held.items():
            held.put(places, columns[name], 0 if self.rows else None)

    def append_column(self, name: str, values: pa.Array) -> int:
        """Keep rows of which only one column will be asked for."""
        n = len(values)
        columns = [recast(values, f.type) if f.name == name else pa.nulls(n, f.type) for f in self.schema]
        return self.append(pa.Table.from_arrays(columns, schema=self.schema))

    @property
    def crowded(self) -> bool:
        """Whether it is time to call `keep`."""
        return crowded(self.rows, self._needed, few=FEW)

    def take(self, refs: np.ndarray, name: str) -> pa.Array:
        """One column of the rows of these numbers, in this order; text of views in its takeable type."""
        kind = self.schema.field(name).type
        if len(refs) == 0:
            return pa.array([], kind)
        if pa.types.is_null(kind):
            return pa.nulls(len(refs))
        if name in self._held:
            return self._held[name].taker()(self._at(refs))
        taken = self._joined().column(name).take(pa.array(self._at(refs)))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    def keep(self, refs: np.ndarray) -> None:
        """Only these rows are needed.

        `refs` may name a row several times, in any order. Numbers stay what they were: accumulators need not be told.
        """
        if self.rows:
            refs = self._once(refs)
            at = self._at(refs)
            columns = {name: held.taker()(at) for name, held in self._held.items()}
            if self._chunks:
                self._chunks = [self._joined().take(pa.array(at))] if len(refs) else []
            self.rows, self._capacity = 0, _CAPACITY
            self._held = {name: type(held)(held.kind) for name, held in self._held.items()}
            self._put(columns, len(refs))
            self._numbers, self._since, self._places = refs, self.next, None
            if len(refs) and self.next - int(refs[0]) <= SPARSE * len(refs):
                self._places = np.zeros(self.next - int(refs[0]), np.int64)
                self._places[refs - refs[0]] = np.arange(len(refs))
        self.rows = self._needed = len(refs)

    def _once(self, refs: np.ndarray) -> np.ndarray:
        """Each of these numbers once, in order."""
        first = int(self._numbers[0]) if len(self._numbers) else self._since
        if self.next - first > SPARSE * len(refs):
            return np.unique(refs)
        named = np.zeros(self.next - first, bool)
        named[refs - first] = True
        return np.flatnonzero(named) + first

    def _at(self, refs: np.ndarray) -> np.ndarray:
        """Where the rows of these numbers are."""
        at = refs - self._since + len(self._numbers)
        old = np.flatnonzero(refs < self._since)
        if len(old):
            named = refs[old]
            at[old] = (
                np.searchsorted(self._numbers, named)
                if self._places is None
                else self._places[named - self._numbers[0]]
            )
        return at

    def _joined(self) -> pa.Table:
        """All rows; their columns may still be in pieces."""
        if len(self._chunks) > 1:
            self._chunks = [pa.concat_tables(self._chunks)]
        return self._chunks[0]
