"""Whole rows of a stream, found by the number under which they came, until no result can name them any more."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

#: Rows in a batch that is no longer merged with its neighbours.
MERGED = 1 << 16

#: Columns that travel with each row: its ts in microseconds, the number of its source, its position there.
TS, SOURCE, SEQ = "@ts", "@source", "@seq"
EXTRA = (pa.field(TS, pa.int64()), pa.field(SOURCE, pa.int32()), pa.field(SEQ, pa.int64()))


@dataclass(slots=True)
class _Batch:
    first: int
    rows: pa.RecordBatch
    last_ts: int
    stamp: int
    refs: np.ndarray | None = None  # the rows' numbers, where they do not follow one another

    def take(self, refs: np.ndarray) -> pa.RecordBatch:
        at = refs - self.first if self.refs is None else np.searchsorted(self.refs, refs)
        return self.rows.take(pa.array(at))


class Payload:
    """One stream's rows. Pushers append, the gatherer takes and expires."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([*schema, *EXTRA])
        self._batches: deque[_Batch] = deque()
        self._lock = threading.Lock()
        self._firsts: list[int] = []  # of each push: its first row, and when it came
        self._pushed_ns: list[int] = []
        self.next_ref = 0

    @property
    def rows(self) -> int:
        with self._lock:
            return sum(b.rows.num_rows for b in self._batches)

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(b.rows.nbytes for b in self._batches)

    def append(
        self, batch: pa.RecordBatch, ts: np.ndarray, source: int, seq: np.ndarray, pushed_ns: int, stamp: int
    ) -> int:
        """Keep rows; gives the number of the first."""
        n = batch.num_rows
        extra = [pa.array(ts), pa.repeat(pa.scalar(source, pa.int32()), n), pa.array(seq)]
        rows = pa.RecordBatch.from_arrays([*batch.columns, *extra], schema=self.schema)
        with self._lock:
            first = self.next_ref
            self.next_ref += n
            self._firsts.append(first)
            self._pushed_ns.append(pushed_ns)
            made = _Batch(first, rows, int(ts.max()), stamp)
            # Tuple by tuple there would be a batch a row: neighbours are merged, each row a few times at most.
            while self._batches:
                last = self._batches[-1]
                if (
                    last.refs is not None
                    or last.rows.num_rows + made.rows.num_rows > MERGED
                    or last.rows.num_rows > 2 * made.rows.num_rows
                ):
                    break
                self._batches.pop()
                merged = pa.Table.from_batches([last.rows, made.rows]).combine_chunks().to_batches()[0]
                made = _Batch(last.first, merged, max(last.last_ts, made.last_ts), min(last.stamp, made.stamp))
            self._batches.append(made)
        return first

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
        with self._lock:
            old = []
            while self._batches and self._batches[0].last_ts < before_ts:
                old.append(self._batches.popleft())
            kept, numbers = [], []
            for batch in old:
                end = batch.first + batch.rows.num_rows if batch.refs is None else int(batch.refs[-1]) + 1
                own = refs[np.searchsorted(refs, batch.first) : np.searchsorted(refs, end)]
                if len(own):
                    kept.append(batch.take(own))
                    numbers.append(own)
            if kept:
                rows = pa.Table.from_batches(kept).combine_chunks().to_batches()[0]
                joined = np.concatenate(numbers)
                last, stamp = max(b.last_ts for b in old), min(b.stamp for b in old)
                self._batches.appendleft(_Batch(int(joined[0]), rows, last, stamp, joined))

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
        wanted = self.schema.names if extra else self.schema.names[: -len(EXTRA)]
        if len(refs) == 0:
            return self.schema.empty_table().select(wanted)
        with self._lock:
            batches = list(self._batches)
        starts = [b.first for b in batches]
        first, last = bisect_right(starts, int(refs.min())) - 1, bisect_right(starts, int(refs.max())) - 1
        if first == last:
            return pa.Table.from_batches([batches[first].take(refs)]).select(wanted)
        if batches[first].refs is None:
            # They follow one another without a gap, so that a number says where a row is among all of them.
            rows = pa.Table.from_batches([b.rows for b in batches[first : last + 1]]).select(wanted)
            return rows.take(pa.array(refs - starts[first]))
        which = np.searchsorted(np.array(starts), refs, "right") - 1
        # One take a batch, then one to restore the order: both in proportion to the result, not to the window.
        by = np.argsort(which, kind="stable")
        cuts = np.searchsorted(which[by], np.arange(first, last + 2))
        parts = []
        for k, (begin, end) in enumerate(pairwise(cuts)):
            if begin < end:
                parts.append(batches[first + k].take(refs[by[begin:end]]))
        back = np.empty(len(refs), np.int64)
        back[by] = np.arange(len(refs))
        return pa.Table.from_batches(parts).combine_chunks().take(pa.array(back)).select(wanted)
