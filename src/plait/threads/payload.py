"""Whole rows of a stream, found by the number under which they came, until no result can name them any more.

Columns of numbers and of text are rings: a row's number, modulo their capacity, is its place, so that a few results cost
a few microseconds however many rows there are. The rest (lists, decimals) stays in Arrow batches, merged so that there
are few.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from plait.core.kernels.texts import copy_pieces
from plait.schema import takeable

#: Rows in a batch that is no longer merged with its neighbours.
MERGED = 1 << 16

#: Columns that travel with each row: its ts in microseconds, the number of its source, its position there.
TS, SOURCE, SEQ = "@ts", "@source", "@seq"
EXTRA = (pa.field(TS, pa.int64()), pa.field(SOURCE, pa.int32()), pa.field(SEQ, pa.int64()))

_CAPACITY = 1 << 12


class _Ring(ABC):
    """One column. `valid` is there once a NULL has been seen."""

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

    def take(self, places: np.ndarray) -> pa.Array:
        nulls = None
        if self.valid is not None and not (valid := self.valid[places]).all():
            nulls = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(self.kind, len(places), [nulls, *self._take(places)])

    def move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None:
        """Into arrays of another size: rows at the places `old` to `new`."""
        if self.valid is not None:
            self.valid = _moved(self.valid, old, new, capacity)
        self._move(old, new, capacity)

    @property
    @abstractmethod
    def capacity(self) -> int: ...

    @property
    @abstractmethod
    def nbytes(self) -> int: ...

    @abstractmethod
    def _put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None: ...

    @abstractmethod
    def _take(self, places: np.ndarray) -> list[pa.Buffer]: ...

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

    def _put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None:
        stored = column.cast(pa.uint8()) if self.boolean else column
        data = np.frombuffer(stored.buffers()[1], self.values.dtype)
        self.values[places] = data[stored.offset : stored.offset + len(stored)]

    def _take(self, places: np.ndarray) -> list[pa.Buffer]:
        found = self.values[places]
        return [pa.py_buffer(np.packbits(found, bitorder="little") if self.boolean else found)]

    def _move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None:
        self.values = _moved(self.values, old, new, capacity)


class _Texts(_Ring):
    """Text or bytes: of each row where its bytes begin, counted from the run's first, and how many they are.

    Bytes lie in one array in the order they came. When it is full, those from the oldest row's on move to another of
    twice their size, so that each is copied O(1) times.
    """

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        self.offset_type = np.dtype(np.int64 if large else np.int32)
        self.begin, self.size = np.zeros(_CAPACITY, np.int64), np.zeros(_CAPACITY, np.int64)
        self.data = np.zeros(16 * _CAPACITY, np.uint8)
        self.base = self.head = 0  # counts of the array's first byte, and of the next to come

    @property
    def capacity(self) -> int:
        return len(self.begin)

    @property
    def nbytes(self) -> int:
        return self.begin.nbytes + self.size.nbytes + self.data.nbytes

    def _put(self, places: np.ndarray, column: pa.Array, oldest: int | None) -> None:
        n = len(column)
        _, offset_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offset_buffer, self.offset_type)[column.offset : column.offset + n + 1].astype(np.int64)
        length = int(offsets[-1] - offsets[0])
        if self.head - self.base + length > len(self.data):
            tail = self.head if oldest is None else int(self.begin[oldest])
            live = self.data[tail - self.base : self.head - self.base]
            self.data = np.empty(max(16 * _CAPACITY, 2 * (len(live) + length)), np.uint8)
            self.data[: len(live)] = live
            self.base = tail
        if length:
            at = self.head - self.base
            self.data[at : at + length] = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
        self.begin[places] = self.head + offsets[:-1] - offsets[0]
        self.size[places] = np.diff(offsets)
        self.head += length

    def _take(self, places: np.ndarray) -> list[pa.Buffer]:
        ends = np.zeros(len(places) + 1, np.int64)
        np.cumsum(self.size[places], out=ends[1:])
        out = np.empty(int(ends[-1]), np.uint8)
        copy_pieces(self.data, self.begin[places] - self.base, ends, out)
        return [pa.py_buffer(ends.astype(self.offset_type)), pa.py_buffer(out)]

    def _move(self, old: np.ndarray, new: np.ndarray, capacity: int) -> None:
        self.begin, self.size = (_moved(column, old, new, capacity) for column in (self.begin, self.size))


def _moved(column: np.ndarray, old: np.ndarray, new: np.ndarray, capacity: int) -> np.ndarray:
    made = np.ones(capacity, column.dtype)
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


@dataclass(slots=True)
class _Batch:
    """Rows that came together or were merged; `rows` has the columns that are no rings."""

    first: int
    count: int
    rows: pa.RecordBatch
    last_ts: int
    stamp: int
    refs: np.ndarray | None = None  # the rows' numbers, where they do not follow one another

    def take(self, refs: np.ndarray) -> pa.RecordBatch:
        at = refs - self.first if self.refs is None else np.searchsorted(self.refs, refs)
        return self.rows.take(pa.array(at))


class Payload:
    """One stream's rows. Pushers append, the gatherer takes and expires. With `sparse`, single old rows may be kept."""

    def __init__(self, schema: pa.Schema, *, sparse: bool = False) -> None:
        self.schema = pa.schema([*schema, *EXTRA])
        kept = [pa.field(f.name, takeable(f.type)) for f in self.schema]
        found = {f.name: None if sparse else _ring(f.type) for f in kept}
        self._rings = {name: ring for name, ring in found.items() if ring is not None}
        self._rest = pa.schema([f for f in kept if f.name not in self._rings])
        self._views = {f.name: f.type for f, given in zip(kept, self.schema, strict=True) if f.type != given.type}
        self._capacity = _CAPACITY
        self._batches: deque[_Batch] = deque()
        self._lock = threading.Lock()
        self._firsts: list[int] = []  # of each push: its first row, and when it came
        self._pushed_ns: list[int] = []
        self.next_ref = 0

    @property
    def rows(self) -> int:
        with self._lock:
            return sum(b.count for b in self._batches)

    @property
    def nbytes(self) -> int:
        with self._lock:
            rest: int = sum(b.rows.nbytes for b in self._batches)
            return rest + sum(r.nbytes for r in self._rings.values())

    def append(
        self, batch: pa.RecordBatch, ts: np.ndarray, source: int, seq: np.ndarray, pushed_ns: int, stamp: int
    ) -> int:
        """Keep rows; gives the number of the first."""
        n = batch.num_rows
        extra = [pa.array(ts), pa.repeat(pa.scalar(source, pa.int32()), n), pa.array(seq)]
        columns = dict(zip(self.schema.names, [*batch.columns, *extra], strict=True))
        columns |= {name: columns[name].cast(kind) for name, kind in self._views.items()}
        rest = pa.RecordBatch.from_arrays([columns[name] for name in self._rest.names], schema=self._rest)
        with self._lock:
            first = self.next_ref
            self._reserve(n)
            places = np.arange(first, first + n) & (self._capacity - 1)
            oldest = self._batches[0].first & (self._capacity - 1) if self._batches else None
            for name, ring in self._rings.items():
                ring.put(places, columns[name], oldest)
            self.next_ref += n
            self._firsts.append(first)
            self._pushed_ns.append(pushed_ns)
            self._keep(_Batch(first, n, rest, int(ts.max()), stamp))
        return first

    def _reserve(self, rows: int) -> None:
        """Room in the rings for so many more."""
        oldest = self._batches[0].first if self._batches else self.next_ref
        if not self._rings or self.next_ref - oldest + rows <= self._capacity:
            return
        capacity = 1 << (2 * (self.next_ref - oldest + rows) - 1).bit_length()
        live = np.arange(oldest, self.next_ref)
        for ring in self._rings.values():
            ring.move(live & (self._capacity - 1), live & (capacity - 1), capacity)
        self._capacity = capacity

    def _keep(self, made: _Batch) -> None:
        # Tuple by tuple there would be a batch a row: neighbours are merged, each row a few times at most.
        while self._batches:
            last = self._batches[-1]
            if last.refs is not None or last.count + made.count > MERGED or last.count > 2 * made.count:
                break
            self._batches.pop()
            rows = made.rows
            if self._rest.names:
                rows = pa.Table.from_batches([last.rows, made.rows]).combine_chunks().to_batches()[0]
            span = max(last.last_ts, made.last_ts), min(last.stamp, made.stamp)
            made = _Batch(last.first, last.count + made.count, rows, *span)
        self._batches.append(made)

    def expire(self, ts: int) -> None:
        """Drop batches, the oldest first, all of whose rows lie below `ts`."""
        with self._lock:
            while self._batches and self._batches[0].last_ts < ts:
                self._batches.popleft()
            oldest = self._batches[0].first if self._batches else self.next_ref
            gone = bisect_right(self._firsts, oldest) - 1
            if gone > 1024 or gone > len(self._firsts) // 2:
                del self._firsts[:gone], self._pushed_ns[:gone]

    def keep(self, refs: np.ndarray, before_ts: int) -> None:
        """Of the batches, the oldest first, all of whose rows lie below a ts, only these rows (ascending) are needed."""
        assert not self._rings, "only a sparse payload keeps single rows"
        with self._lock:
            old = []
            while self._batches and self._batches[0].last_ts < before_ts:
                old.append(self._batches.popleft())
            kept, numbers = [], []
            for batch in old:
                end = batch.first + batch.count if batch.refs is None else int(batch.refs[-1]) + 1
                own = refs[np.searchsorted(refs, batch.first) : np.searchsorted(refs, end)]
                if len(own):
                    kept.append(batch.take(own))
                    numbers.append(own)
            if kept:
                rows = pa.Table.from_batches(kept).combine_chunks().to_batches()[0]
                joined = np.concatenate(numbers)
                last, stamp = max(b.last_ts for b in old), min(b.stamp for b in old)
                self._batches.appendleft(_Batch(int(joined[0]), len(joined), rows, last, stamp, joined))

    def oldest_stamp(self) -> int | None:
        with self._lock:
            return self._batches[0].stamp if self._batches else None

    def pushed_ns(self, refs: np.ndarray) -> np.ndarray:
        """When the rows of these (few) numbers were pushed."""
        with self._lock:
            found = [self._pushed_ns[bisect_right(self._firsts, ref) - 1] for ref in refs.tolist()]
        return np.array(found, np.int64)

    def take(self, refs: np.ndarray, *, extra: bool = True) -> pa.Table:
        """The rows of these numbers, in this order, once for each time they are named; `extra`: with what travels along."""
        wanted = list(self.schema) if extra else list(self.schema)[: -len(EXTRA)]
        if len(refs) == 0:
            return pa.schema(wanted).empty_table()
        with self._lock:
            places = refs & (self._capacity - 1)
            columns = {name: ring.take(places) for name, ring in self._rings.items()}
            batches = list(self._batches) if self._rest.names else []
        if batches:
            rest = _rest(batches, refs)
            columns |= dict(zip(rest.schema.names, rest.columns, strict=True))
        columns |= {name: columns[name].cast(self.schema.field(name).type) for name in self._views}
        return pa.Table.from_arrays([columns[f.name] for f in wanted], schema=pa.schema(wanted))


def _rest(batches: list[_Batch], refs: np.ndarray) -> pa.Table:
    """Rows of these numbers from the batches that hold them."""
    starts = np.array([b.first for b in batches])
    which = np.searchsorted(starts, refs, "right") - 1
    first, last = int(which.min()), int(which.max())
    if first == last:
        return pa.Table.from_batches([batches[first].take(refs)])
    # One take a batch, then one to restore the order: both in proportion to the result, not to the window.
    by = np.argsort(which, kind="stable")
    cuts = np.searchsorted(which[by], np.arange(first, last + 2))
    parts = []
    for k, (begin, end) in enumerate(pairwise(cuts)):
        if begin < end:
            parts.append(batches[first + k].take(refs[by[begin:end]]))
    back = np.empty(len(refs), np.int64)
    back[by] = np.arange(len(refs))
    return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back))
