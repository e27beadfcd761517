"""Whole rows of a stream that is pushed, kept until no result can name them: with source, position, and when each push came."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from plait.core.rings import SEQ, SOURCE, TS, Rings, Write
from plait.core.rows import NumberedRows

#: Rows in a batch that is no longer merged with its neighbours.
MERGED = 1 << 16

#: Columns that travel with each row.
EXTRA = (pa.field(TS, pa.int64()), pa.field(SOURCE, pa.int32()), pa.field(SEQ, pa.int64()))


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
    name. tests/threads/input/test_payload.py holds it.

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
