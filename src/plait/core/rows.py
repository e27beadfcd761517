"""Rows kept until nothing names them: each has a number, by which results name it.

Numbers rise as rows come and are never used again. Rows are named for a while after they came, the oldest the shortest (a
window's rows, those of a pushed stream): they go from the oldest on, below a number or below a ts. Rows any of which may be
named for ever (some group's last one) are in `core/aggregate/kept.py`.

Either way what is held stays within a constant factor of what can be named (`crowded`), and a row is copied a constant number of
times. How columns lie in memory is in `core/rings.py`.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from plait.core.rings import CAPACITY, KEEP_COLUMN, KEEP_WHAT, KEEP_WIDTH, WITH_ROWS, Rings, Write, ring_for
from plait.order import AFTER_ALL
from plait.schema import takeable

_MERGED_NUMBERS = (
    1 << 13
)  # as `merged`, where nothing but numbers is merged: rows go as a whole, and dead ones take room
_RUN = 64  # rows that follow one another and are worth to be copied as a run


def crowded(held: int, needed: int, *, few: int) -> bool:
    """Whether so many of the rows held are dead that copying the others is worth it: as many as these, and `few` more."""
    return held > 2 * needed + few


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


class NumberedRows:
    """Rows in Arrow batches, untouched until they are taken; some threads may append while others take and let go.

    rings   columns of numbers and of text lie in rings instead: a row's number, modulo their capacity, is its place, so that
            taking a few rows costs a few microseconds however many there are. Only whole stretches of rows can go then
    apart   columns that stay in batches all the same: a ring of text takes twice the bytes or more, and moves when it grows
    merged  neighbouring batches are merged up to so many rows: tuple by tuple there would be a batch a row. A merged batch
            goes as a whole
    given   where each column lies in a batch that compiled code reads (`put`); None: where the schema has it

    `next` only grows. Taking a row that has been let go is the caller's error, and is not seen: in a ring another row may
    stand in its place. tests/core/test_rows.py holds it against a plain list.
    """

    def __init__(
        self, schema: pa.Schema, *, rings: bool = False, apart: Collection[str] = (), merged: int = 0,
        given: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.schema = schema
        self._given = given or {name: k for k, name in enumerate(schema.names)}
        kept = [pa.field(f.name, takeable(f.type)) for f in schema]
        found = {f.name: ring_for(f.type) if rings and f.name not in apart else None for f in kept}
        self._rings = {name: ring for name, ring in found.items() if ring is not None}
        self._rest = pa.schema([f for f in kept if f.name not in self._rings])
        self._no_rest = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self._rest], schema=self._rest)
        self._views = {f.name: f.type for f, given in zip(kept, schema, strict=True) if f.type != given.type}
        self._capacity, self._merged = CAPACITY, merged
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
        """The columns as they are now, for compiled code that takes rows; only where every column is a ring.

        Without the lock where words are there: whoever puts rows has it while they are written, and who takes some need not wait
        for that. Words are taken back before a row is put where they do not say; so they are good for all rows that were whole
        when they were read here.
        """
        known = self._in_words
        if known is not None:
            return known
        with self._lock:
            return self._rings_in_words()

    def _rings_in_words(self) -> Rings:
        """As compiled code reads and writes them; it holds until Python changes one."""
        if self._in_words is None:
            table = np.array([ring.in_words() for ring in self._rings.values()], np.int64)
            for row, name in zip(table, self._rings, strict=True):
                row[KEEP_COLUMN] = self._given[name]
                row[KEEP_WHAT] = WITH_ROWS.get(name, row[KEEP_WHAT])
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
        # Twice what there was, at least. Not more: a ring is written from end to end, and who pushes waits for each new page.
        capacity = 1 << (self.next - oldest + rows - 1).bit_length()
        for ring in self._rings.values():
            ring.move(oldest, self.next, capacity)
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
        """Whether `expire_before` would let any go. A glance, without the lock: what is being merged now may be missed, until the
        next one."""
        try:
            return self._batches[0].last_ts < ts
        except IndexError:
            return False

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
