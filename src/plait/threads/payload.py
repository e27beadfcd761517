"""A pushed stream's rows (`core.rows`), with what travels along with each, and when each push came.

Pushers append, whoever makes results takes rows and lets them go by their ts: workers say which ts no later result can name.

Held by tests/threads/test_payload.py.
"""

from __future__ import annotations

import threading
from bisect import bisect_right

import numpy as np
import pyarrow as pa

from plait.core.rows import NumberedRows

#: Rows in a batch that is no longer merged with its neighbours.
MERGED = 1 << 16

#: Columns that travel with each row: its ts in microseconds, the number of its source, its position there.
TS, SOURCE, SEQ = "@ts", "@source", "@seq"
EXTRA = (pa.field(TS, pa.int64()), pa.field(SOURCE, pa.int32()), pa.field(SEQ, pa.int64()))


class Payload:
    """One stream's rows. With `sparse`, single old rows may be kept.

    `_rows` keeps the columns and numbers rows from 0 on; a number is what tuples carry as `ref`. `_firsts` and
    `_pushed_ns` say when each push came, for latencies.
    """

    def __init__(self, schema: pa.Schema, *, sparse: bool = False) -> None:
        self._names = schema.names
        self._rows = NumberedRows(pa.schema([*schema, *EXTRA]), rings=not sparse, merged=MERGED)
        self._lock = threading.Lock()
        self._firsts: list[int] = []  # of each push: its first row, and when it came
        self._pushed_ns: list[int] = []

    @property
    def rows(self) -> int:
        return self._rows.rows

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def append(
        self, batch: pa.RecordBatch, ts: np.ndarray, source: int, seq: np.ndarray, pushed_ns: int, stamp: int
    ) -> int:
        """Keep rows; gives the number of the first.

        `ts` and `seq`: int64, one a row; `source`: the inlet's number; `stamp`: of the encoder, so that codes of text
        are kept as long as rows that hold it. Any thread may append. Columns of numbers and text are copied into
        rings, unless `sparse`; the others are kept as they came (`core.rows`).
        """
        n = batch.num_rows
        extra = [pa.array(ts), pa.repeat(pa.scalar(source, pa.int32()), n), pa.array(seq)]
        with self._lock:
            first = self._rows.add([*batch.columns, *extra], n, last_ts=int(ts.max()), stamp=stamp)
            self._firsts.append(first)
            self._pushed_ns.append(pushed_ns)
        return first

    def expire(self, ts: int) -> None:
        """Let go of what is before `ts`, as far as rows came in one go with later ones."""
        self._rows.expire_before(ts)
        with self._lock:
            gone = bisect_right(self._firsts, self._rows.oldest) - 1
            if gone > 1024 or gone > len(self._firsts) // 2:
                del self._firsts[:gone], self._pushed_ns[:gone]

    def keep(self, refs: np.ndarray, before_ts: int) -> None:
        """Of what is before a ts, only these rows (ascending) are needed."""
        self._rows.keep(refs, before_ts)

    def oldest_stamp(self) -> int | None:
        return self._rows.oldest_stamp()

    def pushed_ns(self, refs: np.ndarray) -> np.ndarray:
        """When the rows of these (few) numbers were pushed."""
        with self._lock:
            found = [self._pushed_ns[bisect_right(self._firsts, ref) - 1] for ref in refs.tolist()]
        return np.array(found, np.int64)

    def take(self, refs: np.ndarray, *, extra: bool = True) -> pa.Table:
        """The rows of these numbers, in this order, once for each time they are named; `extra`: with what travels along.

        A copy, good after the rows were let go of. Rows that were let go of already can't be asked for: workers say
        what is live before it goes.
        """
        return self._rows.take(refs, None if extra else self._names)
