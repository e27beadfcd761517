"""Pairs into Arrow batches: the workers' results in result order, with the columns and keys that the reference gives them.

In: entries of five words (ts, trigger, partner, left row, right row) in result order, from `loop.gather`. Out: one
Arrow batch of at most MOST rows, columns as the query's schema has them, `_plait_key` last if asked for. The rows are
copied out of the payload, so a batch lives on when the payload is let go of.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.core import keys
from plait.core.machine.line import address, pages
from plait.core.rows import SEQ, SOURCE, TS, Payload
from plait.encodings import as_array
from plait.errors import DataError
from plait.query.bind import Bound
from plait.query.identical import KEY
from plait.query.join import Asof, Join
from plait.threads.input.intake import QUERY, StreamIntake, content_keys
from plait.threads.join import marks as marked
from plait.threads.join.loop import gather
from plait.threads.join.loop import words as o
from plait.threads.join.loop.gather import Precision
from plait.threads.join.memory import Merger, Worker
from plait.threads.stats import Latency

MOST = 1 << 16
_FEW = 1 << 14  # rows of an as-of join's right side, passed by all workers, that are not worth a compaction


class Gatherer:
    """Takes results from the rings of workers, or of the mergers behind them. One thread at a time: `lock`.

    `rings`: from whom, in order; `block`: `Precision.block` of the plan. `_taken` and `_known`: by ring, what was taken of it
    and what its worker has said. `_seen`: what `gather` tells: least live ts of either side, rank and ts all are done with.
    `ns`: time spent making batches. `frontier` moves only when all that was ready is out.
    """

    def __init__(self, bound: Bound, intakes: tuple[StreamIntake, StreamIntake], payloads: tuple[Payload, Payload],
                 workers: list[Worker], rings: list[Worker | Merger], control: np.ndarray, latency: Latency, *,
                 forget: Callable[[int], None], keep_latest: Callable[[Payload], int], precision: Precision, block: int,
                 keys: bool, marks: bool) -> None:  # fmt: skip
        assert isinstance(bound.node, (Join, Asof))
        self.bound, self.how, self.intakes, self.payloads = bound, bound.node.how, intakes, payloads
        self.with_keys, self.with_marks, self.control, self.latency = keys, marks, control, latency
        self.asof = isinstance(bound.node, Asof)
        self._waits = isinstance(bound.node, Asof) and bound.node.waits
        self._plain = pa.schema([*bound.schema, pa.field(KEY, pa.binary())]) if keys else bound.schema
        self.schema = marked.with_marks(self._plain) if marks else self._plain
        self._kept, self._forget, self._keep_latest, self._latest = (workers, rings), forget, keep_latest, 0
        self._rings = np.array([address(w.words) for w in rings], np.int64)
        self._taken, self._known = np.zeros(len(rings), np.int64), np.zeros((3, len(rings)), np.int64)
        self._every, self._block = precision.triggers, block
        if self._every == gather.NEVER and any(
            w.words[o.ALONE + side] not in (0, 1) for w in workers for side in (0, 1)
        ):
            self._every = 1  # what several workers must say they say at one place of the order
        self._dest = pages((o.E_WORDS, MOST))
        self._seen = np.zeros(gather.SEEN, np.int64)
        self._workers = np.array([address(w.words) for w in workers], np.int64)
        self._samples = np.zeros((len(workers) * o.SAMPLE_ROOM, o.S_WORDS), np.int64)
        self._passing = np.zeros((4, 0), np.int64)  # samples that are not out yet: rank, pushed, begun, found
        self.frontier = order.BEFORE_ALL  # every result of a lower ts has been given out by `next`
        self._due = (0, order.BEFORE_ALL, order.BEFORE_ALL)  # a rank, and what was live on either side when it was done
        self.lock = threading.Lock()
        self.results = 0
        self.ns = 0
        self.pushed_ns = np.empty(0, np.int64)

    def next(self, wait_ns: int, *, pushed: bool = False) -> pa.RecordBatch | bool | None:
        """A batch of results; None if there are none in time; False at the end.

        With `pushed`, `pushed_ns` then has of each when its later tuple was pushed: of all, which takes its time, and not
        only of a sample.
        """
        number = gather.gather_waiting(
            self.control,
            self._rings,
            self._taken,
            self._known,
            self._every,
            self._block,
            MOST,
            self._dest,
            self._seen,
            wait_ns,
        )
        began = time.monotonic_ns()
        made: pa.RecordBatch | bool | None = None
        if number > 0:
            entries = self._dest[:, :number]
            made = self._made(entries)
            if pushed:
                self.pushed_ns = self._pushed(entries)
        last = int(self._dest[o.E_TRIGGER, MOST - 1])
        if number == MOST and self._every != gather.NEVER and last < o.UNMATCHED:
            # More may be there of its last trigger, or interval of these, and nothing of those before.
            self._note_stages((last >> 1) // max(1, self._every) * max(1, self._every))
        if number < MOST:
            self.frontier = int(self._seen[3])
            self._expire()
        if number == gather.ENDED:
            self._note_stages(order.AFTER_ALL)  # an interval that the end cuts short is out, too
            return False
        self.ns += time.monotonic_ns() - began
        return made

    def tick(self) -> None:
        """Let go of payload that no result can name, where nobody asks for results because there are none."""
        if self.lock.locked():
            return
        with self.lock:
            # With no room for results nothing is taken, but what can be forgotten is found.
            gather.gather(self.control, self._rings, self._taken, self._known, self._every, self._block, 0, self._dest,
                          self._seen)  # fmt: skip
            if (self._taken == self._known[gather.TAIL]).all():
                self._expire()

    def _expire(self) -> None:
        """Give up payload that no result names any more.

        What was live when workers were done up to some rank is given up once results up to that rank have been taken: with
        a punctuation interval, results of finished triggers stay in the rings until their interval is over.
        """
        rank = int(self._seen[2])
        taken = rank if self._every <= 1 or rank == order.AFTER_ALL else rank // self._every * self._every
        self._note_stages(taken)
        if taken >= self._due[0]:
            live = self._due[1:] if self._every > 1 else (int(self._seen[0]), int(self._seen[1]))
            for side in (0, 1):
                # A stream that is read twice is live as long as either side is.
                both = self.payloads[0] is self.payloads[1]
                self.payloads[side].expire(min(live) if both else live[side])
            self._due = (rank, int(self._seen[0]), int(self._seen[1]))
            stamps = [p.oldest_stamp() for p in self.payloads]
            known = [stamp for stamp in stamps if stamp is not None]
            if known:
                self._forget(min(known))
            if self.asof and self.payloads[1].rows_before(int(self._seen[3])) > 4 * max(self._latest, _FEW):
                self._latest = self._keep_latest(self.payloads[1])

    # --- columns ---

    def _made(self, entries: np.ndarray) -> pa.RecordBatch:
        """Rows of results, with the marks between them where these were asked for."""
        if not self.with_marks:
            self.results += entries.shape[1]
            return self._batch(entries)
        marks = marked.is_mark(entries)
        self.results += int((~marks).sum())
        rows = None if marks.all() else self._batch(entries[:, ~marks])
        return marked.spread(rows, entries, marks, [str(i.node.name) for i in self.bound.inputs], self.schema)

    def _batch(self, entries: np.ndarray) -> pa.RecordBatch:
        ts = entries[o.E_TS].copy()  # Arrow keeps what it is given
        alone = entries[o.E_TRIGGER] >= o.UNMATCHED
        if ((alone | self._waits) & (ts == order.AFTER_ALL)).any():
            raise DataError(
                "A result's 'ts' lies beyond 64 bits",
                why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
                do="Use a shorter window, or leave such tuples out",
            )
        there = tuple(entries[o.E_LEFT + side] != o.NO_ROW for side in (0, 1))
        rows = tuple(self._rows(side, entries[o.E_LEFT + side], there[side]) for side in (0, 1))
        fields = list(self.bound.schema)
        left = len(self.bound.inputs[0].schema)
        columns: list[Any] = [pa.array(ts)]
        for side, width in enumerate((left, len(fields) - 1 - left)):
            schema, table = self.bound.inputs[side].schema, rows[side]
            columns += [pa.nulls(len(ts), f.type) for f in schema][:width] if table is None else table.columns[:width]
        arrays = [as_array(c, f.type) for c, f in zip(columns, fields, strict=True)]
        if self.with_keys:
            arrays.append(self._keys(entries, rows))
        made = pa.RecordBatch.from_arrays(arrays, schema=self._plain)
        self._note(entries, ~(there[0] & there[1]))
        return made

    def _rows(self, side: int, refs: np.ndarray, there: np.ndarray) -> pa.Table | None:
        """The rows of one side, NULLs where there is none; None if there is no row at all.

        A row that has found no partner stands alone.
        """
        if not there.any():
            return None
        return self.payloads[side].take(refs, extra=self.with_keys, missing=None if there.all() else ~there)

    def _keys(self, entries: np.ndarray, rows: tuple[pa.Table | None, ...]) -> pa.Array:
        """Each result's key: its trigger's key, then its partner's; of an unmatched row, and of an as-of join that looks ahead,
        its moment and the row's own key.

        Bytes, equal to the reference's.
        """
        n = entries.shape[1]
        if self._waits:
            assert rows[0] is not None
            return keys.nest(keys.at_last(entries[o.E_TS]), full_key(self.intakes[0], 0, rows[0], n), n=n)
        left, right = row_keys(self.intakes, rows, n)
        by_left = pa.array(entries[o.E_TRIGGER] & 1 == 0)
        first, second = pc.if_else(by_left, left, right), pc.if_else(by_left, right, left)
        alone = entries[o.E_TRIGGER] >= o.UNMATCHED
        if alone.any():
            ts = entries[o.E_TS]
            last = pc.if_else(by_left, keys.at_last(ts, 0), keys.at_last(ts, 1))
            first, second = pc.if_else(pa.array(alone), last, first), pc.if_else(pa.array(alone), first, second)
        return keys.nest(first, second, n=n)

    def _note_stages(self, rank: int) -> None:
        """What workers have noted of single tuples: how long those took whose results, of triggers below this rank, are out.

        Before rows are let go of, since when they were pushed goes with them.
        """
        now = time.monotonic_ns()
        if number := gather.take_samples(self._workers, self._samples):
            s = self._samples[:number]
            pushed = self._pushed_ns(s[:, o.S_SIDE], s[:, o.S_REF])
            self._passing = np.hstack([self._passing, [s[:, o.S_RANK], pushed, s[:, o.S_BEGAN], s[:, o.S_FOUND]]])
            s = s[s[:, o.S_PARTNER] != o.NO_ROW]
            if len(s):
                later = self._pushed_ns(s[:, o.S_PAIR_SIDE], s[:, o.S_PAIR_REF])
                earlier = self._pushed_ns(1 - s[:, o.S_PAIR_SIDE], s[:, o.S_PARTNER])
                self.latency.note_visits(np.maximum(later, earlier), s[:, o.S_FOUND])
        gone = self._passing[0] < rank
        if gone.any():
            pushed, began, found = self._passing[1:, gone]
            self.latency.note_stages(pushed, began, found, now)
            self._passing = self._passing[:, ~gone]

    def _pushed_ns(self, sides: np.ndarray, refs: np.ndarray) -> np.ndarray:
        found = np.empty(len(refs), np.int64)
        for side in (0, 1):
            found[sides == side] = self.payloads[side].pushed_ns(refs[sides == side])
        return found

    def _note(self, entries: np.ndarray, alone: np.ndarray) -> None:
        """Latency of these results, from their trigger's push and from when it was ready; of a sample, if there are many."""
        now = time.monotonic_ns()
        step = max(1, entries.shape[1] // 32)
        some = entries[:, ::step][:, ~alone[::step]]
        if some.shape[1] == 0:
            return
        self.latency.note(some[o.E_TS], self._pushed(some), now)

    def _pushed(self, entries: np.ndarray) -> np.ndarray:
        """When each result's later tuple was pushed; of a row without a partner, the row."""
        by_right = entries[o.E_TRIGGER] & 1 == 1
        pushed = np.empty(entries.shape[1], np.int64)
        for side, which in ((0, ~by_right), (1, by_right)):
            if which.any():
                pushed[which] = self.payloads[side].pushed_ns(entries[o.E_LEFT + side, which])
        return pushed


def row_keys(
    intakes: tuple[StreamIntake, StreamIntake], rows: tuple[pa.Table | None, ...], n: int
) -> tuple[pa.Array, pa.Array]:
    """Of each result its left and its right row's key, the empty one where there is no row. A table is None if there are none."""
    nobody = pa.scalar(b"", pa.binary())
    left, right = (
        pa.repeat(nobody, n) if table is None else pc.fill_null(full_key(intakes[side], side, table, n), nobody)
        for side, table in enumerate(rows)
    )
    return left, right


def full_key(intake: StreamIntake, side: int, rows: pa.Table, n: int) -> pa.Array:
    """(ts, input, source, seq) of each row, as bytes; NULL for a row that is not there.

    Of another operator's result: (ts, input) and the result's own key, which came along with it.
    """
    if intake.stream.source == QUERY:
        at = as_array(rows.column(TS), pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        # NULL for a row that is not there, since its own key is.
        return keys.join(keys.ints(at), keys.constant(side, n), as_array(rows.column(KEY), pa.binary()), n=n)
    ts = as_array(rows.column(TS), pa.int64())
    there = ts.is_valid()
    source, seq = _pieces(intake, rows, n)
    made = keys.join(
        keys.ints(ts.fill_null(0).to_numpy(zero_copy_only=False)), keys.constant(side, n), source, seq, n=n
    )
    return pc.if_else(there, made, pa.scalar(None, pa.binary()))


def own_key(intake: StreamIntake, rows: pa.Table, n: int) -> pa.Array:
    """(source, seq) of each row, as bytes: what its key has after (ts, input). All rows are there."""
    return keys.join(*_pieces(intake, rows, n), n=n)


def _pieces(intake: StreamIntake, rows: pa.Table, n: int) -> tuple[pa.Array, pa.Array]:
    """Each row's source and seq, as parts of a key."""
    source = intake.rank_keys().take(as_array(rows.column(SOURCE), pa.int32()))
    if intake.stream.seq == "position":
        seq = keys.ints(as_array(rows.column(SEQ), pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    elif intake.by_content:
        # The tuple of the row's values, each with its place among its like.
        seq = keys.nest(pa.array(content_keys(rows.select(intake.schema.names)), pa.binary()), n=n)
        number = as_array(rows.column(SEQ), pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        seq = keys.told_apart(seq, number)
    else:
        seq = keys.wrapped(as_array(rows.column(intake.stream.seq), intake.schema.field(intake.stream.seq).type))
    return source, seq
