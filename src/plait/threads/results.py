"""Pairs into Arrow batches: the workers' results in result order, with the columns and keys that the reference gives them.

In: entries of five words (ts, trigger, partner, left row, right row) in result order, from `loop.gather`. Out: one
Arrow batch of at most MOST rows, columns as the query's schema has them, `_plait_key` last if asked for. The rows are
copied out of the payload, so a batch lives on when the payload is let go of.

Whoever reads gathers. If it finds many results it hands them to `builders`, threads that make batches side by side, and gathers
on, a few batches ahead: so while it is at one batch the next ones are made. A few results it turns into rows itself, at once.
Batches are given out in the order in which they were gathered, whoever made them, and an error of making one comes in its place.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.core import keys
from plait.core.machine.line import address, pages
from plait.core.rings import SEQ, SOURCE, TS
from plait.encodings import as_array
from plait.errors import DataError
from plait.query.bind import Bound
from plait.query.identical import KEY
from plait.query.join import Asof, Join
from plait.threads import taken
from plait.threads.builders import Builders, Job
from plait.threads.input.intake import QUERY, StreamIntake
from plait.threads.input.payload import Payload
from plait.threads.input.sequence import content_keys
from plait.threads.join import marks as marked
from plait.threads.join.loop import gather
from plait.threads.join.loop import words as o
from plait.threads.join.loop.gather import Precision
from plait.threads.join.memory import Merger, Worker
from plait.threads.stats import Latency

MOST = 1 << 16
FEW = 1 << 13  # results that whoever reads makes rows of itself: sooner than another thread would begin
_NONE = np.empty(0, np.int64)
_NO_ROOM = np.zeros((o.E_WORDS, 1), np.int64)
_NOTED = 64  # times that samples were taken, before it is found how long their tuples took
_FEW = 1 << 14  # rows of an as-of join's right side, passed by all workers, that are not worth a compaction


class Built(NamedTuple):
    """A batch, and what is noted of it when it is given out.

    `rows`: how many results it has, marks aside. `sample`: of some of them ts, and when their later tuples were pushed;
    `pushed_ns`: the latter of all, if that was asked for. `ns`: how long it took.
    """

    batch: pa.RecordBatch
    rows: int
    sample: tuple[np.ndarray, np.ndarray]
    pushed_ns: np.ndarray
    ns: int


class Said(NamedTuple):
    """What the workers had said when results were gathered, all that was certain then or a part of it.

    `live`: by side, no row with a lower ts is in a result that was in no ring by then. `rank` and `ts`: all workers are done with
    what is lower. `most`: some worker is done up to this rank. `whole`: rings were empty afterwards, or all workers as far: then
    no result is left that names a row that is not live. Else a worker that is ahead may have one in its ring.
    """

    live: tuple[int, int]
    rank: int
    ts: int
    most: int
    whole: bool


@dataclass
class Ahead:
    """Results that were taken from the workers and not given out yet. `rank`: all of lower triggers are out when these are.

    `said`: what the workers had said, if all that was certain then is out with these; else None.
    """

    job: Job[Built]
    dest: np.ndarray
    rank: int | None
    said: Said | None


class Gatherer:
    """Takes results from the rings of workers, or of the mergers behind them. One thread at a time: `lock`.

    Where many wait, several batches are gathered at once, and made by `builders` side by side; `_ahead` has them in order. They
    are counted, their latencies noted and rows let go of when they are given out: until then their rows are held.

    `rings`: from whom, in order; `block`: `Precision.block` of the plan; `unread`: as many results may be gathered ahead.
    `_taken` and `_known`: by ring, what was taken of it and what its worker has said. `_seen`: what `gather` tells (`_said`):
    least live ts of either side, rank and ts all are done with. `ns`: time spent making batches, by all who do. `frontier`
    moves only when all that was ready is out.
    """

    def __init__(self, bound: Bound, intakes: tuple[StreamIntake, StreamIntake], payloads: tuple[Payload, Payload],
                 workers: list[Worker], rings: list[Worker | Merger], control: np.ndarray, latency: Latency, *,
                 builders: Builders, unread: int, forget: Callable[[int], None], keep_latest: Callable[[Payload], int],
                 precision: Precision, block: int, keys: bool, marks: bool) -> None:  # fmt: skip
        assert isinstance(bound.node, (Join, Asof))
        self.bound, self.how, self.intakes, self.payloads = bound, bound.node.how, intakes, payloads
        self.with_keys, self.with_marks, self.control, self.latency = keys, marks, control, latency
        self.asof = isinstance(bound.node, Asof)
        # A result is a pair of rows, all of whose columns compiled code can copy as they are.
        self._pairs = (
            not self.asof
            and self.how == "inner"
            and not keys
            and all(
                payload.all_rings and payload.names == each.schema.names
                for payload, each in zip(payloads, bound.inputs, strict=True)
            )
        )
        self._waits = isinstance(bound.node, Asof) and bound.node.waits
        self._plain = pa.schema([*bound.schema, pa.field(KEY, pa.binary())]) if keys else bound.schema
        self.schema = marked.with_marks(self._plain) if marks else self._plain
        self._kept, self._forget, self._keep_latest, self._latest = (workers, rings), forget, keep_latest, 0
        self._rings = np.array([address(w.words) for w in rings], np.int64)
        self._taken, self._known = np.zeros(len(rings), np.int64), np.zeros((gather.KNOWN, len(rings)), np.int64)
        self._every, self._block = precision.triggers, block
        if self._every == gather.NEVER and any(
            w.words[o.ALONE + side] not in (0, 1) for w in workers for side in (0, 1)
        ):
            self._every = 1  # what several workers must say they say at one place of the order
        self._builders, self._most_ahead = builders, min(2 * builders.most, unread // MOST)
        self._ahead: deque[Ahead] = deque()
        self._spare = [pages((o.E_WORDS, MOST))]
        self._seen = np.zeros(gather.SEEN, np.int64)
        self._workers = np.array([address(w.words) for w in workers], np.int64)
        self._samples = np.zeros((len(workers) * o.SAMPLE_ROOM, o.S_WORDS), np.int64)
        self._noted: list[tuple[np.ndarray, int, int, int]] = []  # as `_note_stages` found it
        self._passing = np.empty((4, 0), np.int64)  # samples that are not out yet: rank, pushed, begun, found
        self.frontier = order.BEFORE_ALL  # every result of a lower ts has been given out by `next`
        self._said = Said((order.BEFORE_ALL, order.BEFORE_ALL), 0, order.BEFORE_ALL, 0, False)  # at last
        self._due = (0, self._said.live)  # a rank that some worker was done with, and what was live on either side
        self.lock = threading.Lock()
        self.results = 0
        self.ns = 0
        self.pushed_ns = np.empty(0, np.int64)

    def next(self, wait_ns: int, *, pushed: bool = False) -> pa.RecordBatch | bool | None:
        """A batch of results; None if there are none in time; False at the end.

        With `pushed`, `pushed_ns` then has of each when its later tuple was pushed: of all, which takes its time, and not
        only of a sample.
        """
        more = bool(self._ahead)
        if not self._ahead:
            number = self._gather(wait_ns)
            if number <= 0:
                self.frontier = self._said.ts
                self._expire(self._said)
                if number == gather.ENDED:
                    self._note_stages(order.AFTER_ALL)  # an interval that the end cuts short is out, too
                self._find_stages()
                return False if number == gather.ENDED else None
            self._begin(number, pushed)
            more = number == MOST
        while more and len(self._ahead) < self._most_ahead:
            number = self._gather(-1)
            more = number > 0
            if more:
                self._begin(number, pushed)
            else:
                self._ahead[-1].said = self._said  # all that is certain is there by then
        return self._given()

    def tick(self) -> None:
        """Let go of payload that no result can name, where nobody asks for results because there are none."""
        if self.lock.locked():
            return
        with self.lock:
            if not all(each.job.over for each in self._ahead):
                return  # rows of these are taken yet
            # With no room for results nothing is taken, but what can be forgotten is found.
            gather.gather(
                self.control, self._rings, self._taken, self._known, self._every, self._block, 0, _NO_ROOM, self._seen
            )
            self._hear()
            if (self._taken == self._known[gather.TAIL]).all():
                self._expire(self._said)

    # --- results are gathered, made and given out ---

    def _gather(self, wait_ns: int) -> int:
        """Take results from the rings into `_spare[-1]`: how many, or ENDED. Below 0 it yields to nobody."""
        if not self._spare:
            self._spare.append(pages((o.E_WORDS, MOST)))
        known = (
            self.control,
            self._rings,
            self._taken,
            self._known,
            self._every,
            self._block,
            MOST,
            self._spare[-1],
            self._seen,
        )
        number = int(gather.gather(*known) if wait_ns < 0 else gather.gather_waiting(*known, wait_ns))
        self._hear()
        return number

    def _hear(self) -> None:
        """What workers have said, after something was gathered."""
        left, right, rank, ts, _, _, most, settled = self._seen.tolist()
        self._said = Said((left, right), rank, ts, most, settled == 1)

    def _begin(self, number: int, pushed: bool) -> None:
        """Have rows made of what was gathered: by another thread, or at once, if they are few and nobody waits before them."""
        dest, rank = self._spare.pop(), None
        last = int(dest[o.E_TRIGGER, number - 1])
        if number == MOST and self._every != gather.NEVER and last < o.UNMATCHED:
            # More may be there of its last trigger, or interval of these, and nothing of those before.
            rank = (last >> 1) // max(1, self._every) * max(1, self._every)
        make = partial(self._built, dest[:, :number], pushed)
        if self._most_ahead > 1 and (number > FEW or self._ahead):
            job = self._builders.do(make)
        else:
            job = Job(make)
            job.do()
        self._ahead.append(Ahead(job, dest, rank, self._said if number < MOST else None))

    def _given(self) -> pa.RecordBatch:
        """The next batch. What is true once it is out is noted, and rows that no result names any more are let go of.

        If it raises, whoever called it has to stop the run.
        """
        made = self._ahead[0].job.result(self._builders.halted)
        ahead = self._ahead.popleft()
        self._spare.append(ahead.dest)
        self.results += made.rows
        self.ns += made.ns
        self.pushed_ns = made.pushed_ns
        if len(made.sample[0]):
            self.latency.note(*made.sample, time.monotonic_ns())
        if ahead.rank is not None:
            self._note_stages(ahead.rank)
            if ahead.rank >= self._due[0]:
                self._let_go(self._due[1])
                self._due = (self._said.most, self._said.live)
        if ahead.said is not None:
            self.frontier = ahead.said.ts
            self._expire(ahead.said)
        return made.batch

    def _expire(self, said: Said) -> None:
        """Give up payload that no result names any more, once all is out that was certain when workers had said this.

        What was live when workers were done up to some rank is given up once results up to that rank have been taken. A worker
        that is ahead of others has results of later ranks in its ring, and with a punctuation interval those of finished triggers
        stay there until their interval is over.
        """
        taken = (
            said.rank if self._every <= 1 or said.rank == order.AFTER_ALL else said.rank // self._every * self._every
        )
        self._note_stages(taken)
        at_once = self._every <= 1 and said.whole
        if not at_once and taken < self._due[0]:
            return
        self._let_go(said.live if at_once else self._due[1])
        self._due = (said.most, said.live)
        if self.asof and self.payloads[1].rows_before(said.ts) > 4 * max(self._latest, _FEW):
            for each in self._ahead:
                each.job.wait(self._builders.halted)  # its rows are in no worker's memory, and in no ring
            self._latest = self._keep_latest(self.payloads[1])

    def _let_go(self, live: tuple[int, int]) -> None:
        """Of rows below these ts, of either side, and of the codes of their text."""
        # A stream that is read twice is live as long as either side is.
        ends = (min(live),) * 2 if self.payloads[0] is self.payloads[1] else live
        if not any(payload.lets_go(ts) for payload, ts in zip(self.payloads, ends, strict=True)):
            return
        self._find_stages()
        for payload, ts in zip(self.payloads, ends, strict=True):
            payload.expire(ts)
        stamps = [p.oldest_stamp() for p in self.payloads]
        known = [stamp for stamp in stamps if stamp is not None]
        if known:
            self._forget(min(known))

    # --- columns: by any thread, several at once ---

    def _built(self, entries: np.ndarray, pushed: bool) -> Built:
        """Rows of results, with the marks between them where these were asked for."""
        began = time.monotonic_ns()
        marks = marked.is_mark(entries) if self.with_marks else None
        if marks is None or not marks.any():
            rows, sample = self._batch(entries), self._sample(entries)
            count = entries.shape[1]
        else:
            own = entries[:, ~marks]
            count = own.shape[1]
            rows, sample = (self._batch(own), self._sample(own)) if count else (None, (_NONE, _NONE))
        if self.with_marks:
            if marks is None:
                marks = np.zeros(entries.shape[1], bool)
            names = [str(i.node.name) for i in self.bound.inputs]
            rows = marked.spread(rows, entries, marks, names, self.schema)
        assert rows is not None
        when = self._pushed(entries) if pushed else _NONE
        return Built(rows, count, sample, when, time.monotonic_ns() - began)

    def _batch(self, entries: np.ndarray) -> pa.RecordBatch:
        if self._pairs and entries.shape[1] <= FEW:
            sides = [taken.columns(self.payloads[side], entries[o.E_LEFT + side]) for side in (0, 1)]
            if sides[0] is not None and sides[1] is not None:
                ts = pa.array(entries[o.E_TS].copy()).view(self._plain.field(0).type)
                return pa.RecordBatch.from_arrays([ts, *sides[0], *sides[1]], schema=self._plain)
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
        return pa.RecordBatch.from_arrays(arrays, schema=self._plain)

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
        """Take what workers have noted of single tuples, and note that all results of triggers below this rank are out now."""
        number = int(gather.take_samples(self._workers, self._samples))
        self._noted.append((self._samples[:number].copy(), rank, time.monotonic_ns(), self.latency.resets))
        if len(self._noted) >= _NOTED:
            self._find_stages()

    def _find_stages(self) -> None:
        """How long those tuples took whose results are out: of many batches at once, since rows' readers wait for it.

        Before rows are let go of, since when they were pushed goes with them.
        """
        if not self._noted:
            return
        taken, ranks, moments, resets = zip(*self._noted, strict=True)
        self._noted.clear()
        rows = np.concatenate(taken)
        came = np.repeat(np.arange(len(taken)), [len(each) for each in taken])
        if resets[0] != self.latency.resets:  # those from before that are a warm-up
            counts = np.array(resets)[came] == self.latency.resets
            rows, came, self._passing = rows[counts], came[counts], self._passing[:, :0]
        pushed = self._pushed_at(rows[:, o.S_SIDE], rows[:, o.S_REF])
        pair = rows[rows[:, o.S_PARTNER] != o.NO_ROW]
        if len(pair):
            later = self._pushed_at(pair[:, o.S_PAIR_SIDE], pair[:, o.S_PAIR_REF])
            earlier = self._pushed_at(1 - pair[:, o.S_PAIR_SIDE], pair[:, o.S_PARTNER])
            self.latency.note_visits(np.maximum(later, earlier), pair[:, o.S_FOUND])
        fresh = np.stack([rows[:, o.S_RANK], pushed, rows[:, o.S_BEGAN], rows[:, o.S_FOUND]])
        passing = np.concatenate([self._passing, fresh], axis=1)
        came = np.concatenate([np.zeros(self._passing.shape[1], np.int64), came])
        # Out with the first call that says so, if the worker had noted it by then; else with that which took it.
        at = np.maximum(np.searchsorted(np.maximum.accumulate(ranks), passing[0], "right"), came)
        out = at < len(ranks)
        if out.any():
            pushed, began, found = passing[1:, out]
            self.latency.note_stages(pushed, began, found, np.array(moments)[at[out]])
        self._passing = passing[:, ~out]

    def _sample(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of some of these results, if there are many: the ts, and when their later tuples were pushed; of pairs only."""
        some = entries[:, :: max(1, entries.shape[1] // 32)].copy()  # what was gathered is written over
        if self.asof or self.how != "inner":
            some = some[:, (some[o.E_LEFT] != o.NO_ROW) & (some[o.E_RIGHT] != o.NO_ROW)]
        return (some[o.E_TS], self._pushed(some)) if some.shape[1] else (_NONE, _NONE)

    def _pushed(self, entries: np.ndarray) -> np.ndarray:
        """When each result's later tuple was pushed; of a row without a partner, the row."""
        sides = entries[o.E_TRIGGER] & 1
        return self._pushed_at(sides, np.where(sides == 0, entries[o.E_LEFT], entries[o.E_RIGHT]))

    def _pushed_at(self, sides: np.ndarray, refs: np.ndarray) -> np.ndarray:
        """When these rows of these sides were pushed."""
        pushed = np.empty(len(refs), np.int64)
        for side in (0, 1):
            if (which := np.flatnonzero(sides == side)).size:
                pushed[which] = self.payloads[side].pushed_ns(refs[which])
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
