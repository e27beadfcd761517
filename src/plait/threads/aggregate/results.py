"""Rows of closed windows, from the update threads to whoever reads `results()`, in result order.

`AggregateResults.hand_over` gives rows their places and keys, `put` queues them, `next` gives them out.

Each update thread hands over its rows in order, and says how far it is: no later row of its own comes before that. Rows
that lie below what all of them have said are complete. With one thread nothing has to be merged.

An example with two threads. Thread 0 has put rows of ts 10 and 20 and said 25; thread 1 has put one of ts 10 and said
15. All have passed 15, so both rows of ts 10 are given out, in the order of their keys. The row of 20 waits: thread 1
may still bring one before it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.closed import Closed, Edges, Later
from plait.core.aggregate.panes import window_record
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.identical import KEY
from plait.schema import taken
from plait.threads import words as shared
from plait.threads.input.intake import StreamIntake
from plait.threads.input.payload import Payload
from plait.threads.life.guard import guarded
from plait.threads.results import full_key
from plait.threads.stats import Latency

if TYPE_CHECKING:
    from plait.threads.aggregate.engine import NoPayload, Updater

NOTED = 32  # rows of a batch whose latency is noted, about
#: Rows, their places, and when each one's last tuple was pushed; of a `Later` both by window: `_by_row` spreads them.
Placed = tuple[Any, np.ndarray, np.ndarray]


class OrderedResults:
    """`lock` is for readers, one at a time; what threads share is under `_guard`.

    Rows come with their places, int64 in ascending order: one array, or several of which the first decides what is
    complete. Rows that are alike in all of them are one thread's, or in the order of the columns `_by`.

    With each row comes when the last tuple that it is made of was pushed, in nanoseconds: `pushed_ns` has those of the rows
    that `next` gave last (for rows of windows it is made when it is asked for), for latencies, and for an operator that takes
    them in (`dag`).

    By seat: `_rows` a queue of (batch, places, pushed), `_unread` how many rows are in it, `_until` how far its thread is in
    the measure of places, `_passed` the same as a ts. For windows of time the two are alike; for windows that count,
    places are ranks.
    """

    _by: tuple[str, ...] = ()

    def __init__(self, bound: Bound, crew: int, latency: Latency, *, keys: bool, room: int) -> None:
        self.schema = pa.schema([*bound.schema, pa.field(KEY, pa.binary())]) if keys else bound.schema
        self._latency, self._room = latency, max(room // crew, 1)
        self.lock = threading.Lock()
        self._guard, self._changed = guarded()
        self._rows: list[deque[Placed]] = [deque() for _ in range(crew)]
        self._unread = [0] * crew
        self._until = [BEFORE_ALL] * crew
        self._passed = [BEFORE_ALL] * crew
        self.frontier = BEFORE_ALL  # every row of a lower ts has been given out by `next`
        self.results, self.ns = 0, 0
        self._pushed: tuple[np.ndarray, Edges | None] = (np.empty(0, np.int64), None)

    @property
    def pushed_ns(self) -> np.ndarray:
        pushed, edges = self._pushed
        return pushed if edges is None else edges.by_row(pushed)

    def put(self, seat: int, rows: list[Placed], until: int, frontier: int,
            pause: Callable[[], None]) -> None:  # fmt: skip
        """Rows with what orders them (of windows of time their ts, else the rank of the closing tuple), and progress: in
        that measure, and as the ts below which this thread has no more rows.

        Waits while too much is unread; `pause` is called meanwhile, and raises to end the wait.

        The wait ends when a reader has taken enough, or when `pause` raises. At the end, AFTER_ALL, nobody waits: the
        thread is done.
        """
        self.offer(seat, rows, until, frontier)
        while until < AFTER_ALL:
            with self._guard:
                if self._unread[seat] <= self._room:
                    return
                self._changed.wait(0.02)
            pause()

    def offer(self, seat: int, rows: list[Placed], until: int, frontier: int) -> None:
        """As `put`, without the wait: for a thread that has other shares to serve meanwhile."""
        with self._guard:
            self._rows[seat].extend(rows)
            self._unread[seat] += sum(batch.num_rows for batch, *_ in rows)
            self._until[seat], self._passed[seat] = until, frontier
            self._changed.notify_all()

    def crowded(self, seat: int) -> bool:
        """Whether too much of a share is unread for it to go on.

        The share that is furthest behind goes on if there is nothing to read: the others' rows may wait for it alone.

        Without that exception a run could stand still, with rows in every queue and none that is complete.
        """
        if self._unread[seat] <= self._room:
            return False
        with self._guard:
            least = min(self._until)
            waiting = any(queue and np.atleast_2d(queue[0][1])[0, 0] < least for queue in self._rows)
            return waiting or self._until[seat] > least

    def next(self, wait_ns: int, *, pushed: bool = False) -> pa.RecordBatch | bool | None:
        """A batch of rows; None if there is none in time; False at the end. `pushed` or not, `pushed_ns` is of these rows then.

        One reader at a time (`lock`). Merging and building of Arrow columns happen outside `_guard`, so that threads
        can put rows meanwhile. It returns None before its time is up when the frontier has moved: an operator behind
        this one may be waiting for that alone.
        """
        deadline = time.monotonic_ns() + wait_ns
        with self._guard:
            while True:
                until = min(self._until)
                parts = self._complete(until)
                if parts:
                    self._changed.notify_all()
                    break
                passed, self.frontier = self.frontier, min(self._passed)
                if until == AFTER_ALL:
                    return False
                if self.frontier > passed:
                    return None  # at once: another operator may wait to hear it
                left = deadline - time.monotonic_ns()
                if left <= 0:
                    return None
                self._changed.wait(left / 1e9)
        began = time.monotonic_ns()
        if len(parts) == 1:
            rows, _, when = parts[0]
            made, edges = (rows.built(), rows.edges) if isinstance(rows, Later) else (rows, None)
        else:
            made, when = self._merged(parts)
            edges = None
        self._pushed = (when, edges)
        self.results += made.num_rows
        self._note(made)
        self.ns += time.monotonic_ns() - began
        return made

    def tick(self) -> None:
        """There is nothing to let go of."""

    def _complete(self, until: int) -> list[Placed]:
        """Take the rows below `until`: with one thread a batch at a time, since they are in order already."""
        out = []
        for seat, queue in enumerate(self._rows):
            while queue:
                batch, places, pushed = queue[0]
                order = np.atleast_2d(places)[0]
                if until != AFTER_ALL and order[0] >= until:
                    break
                if until != AFTER_ALL and order[-1] >= until:
                    batch, places, pushed = _by_row(queue[0])
                    cut = int(np.searchsorted(np.atleast_2d(places)[0], until))
                    self._unread[seat] -= cut
                    out.append((batch.slice(0, cut), places[..., :cut], pushed[:cut]))
                    queue[0] = (batch.slice(cut), places[..., cut:], pushed[cut:])
                    break
                self._unread[seat] -= batch.num_rows
                out.append(queue.popleft())
                if len(self._rows) == 1:
                    return out
        return out

    def _merged(self, parts: list[Placed]) -> tuple[pa.RecordBatch, np.ndarray]:
        """Several threads' rows, each in order, as one sequence, with when they were pushed."""
        parts = [_by_row(part) for part in parts]
        table = pa.Table.from_batches([batch for batch, *_ in parts]).combine_chunks()
        places = np.concatenate([np.atleast_2d(places) for _, places, _ in parts], axis=1)
        order = keys.in_order_of((*places, *(table.column(name) for name in self._by))).to_numpy()
        made: pa.RecordBatch = taken(table, order).combine_chunks().to_batches()[0]
        return made, np.concatenate([pushed for *_, pushed in parts])[order]

    def _note(self, batch: pa.RecordBatch) -> None:
        """From the push, and from when the frontier passed a row's ts, to now; of a sample."""
        rows, (pushed, edges) = np.arange(0, batch.num_rows, max(1, batch.num_rows // NOTED)), self._pushed
        noted = pushed[rows if edges is None else edges.windows_at(rows)]
        self._latency.note(keys.ts_numbers(batch.column(0).take(pa.array(rows))), noted, time.monotonic_ns())


class AggregateResults(OrderedResults):
    """Rows of one window's end are ordered by their keys. `payload` and `intake` are those of the stream that is read."""

    def __init__(self, bound: Bound, intake: StreamIntake, payload: Payload | NoPayload, crew: int, latency: Latency, *,
                 keys: bool, room: int) -> None:  # fmt: skip
        assert isinstance(bound.node, Aggregate)
        super().__init__(bound, crew, latency, keys=keys, room=room)
        self._query, self._intake, self._payload, self._keyed = bound.node, intake, payload, keys
        self._by_time = window_record(bound.node).by_time
        if self._by_time:
            self._by = bound.node.by

    def hand_over(
        self, worker: Updater, closed: list[Closed], n: int, frontier: int, pause: Callable[[], None] | None
    ) -> None:
        """Rows of closed windows, by the thread that closed them, and how far it is.

        `n` is how many tuples its batch had: `rank` moves on by it after the places of rows were computed. Waits in
        `put` while too many rows are unread; a share of an elastic run must not wait, and has no `pause`.
        """
        rows = [self._placed(worker, each) for each in closed]
        worker.words[shared.RESULTS] += sum(batch.num_rows for batch, *_ in rows)
        worker.last.moved_on()
        worker.rank += n
        worker.passed = frontier
        worker.words[shared.WAITS] = shared.FOR_CONSUMER
        until = frontier if self._by_time or frontier == AFTER_ALL else worker.rank
        if pause is not None:
            self.put(worker.number, rows, until, frontier, pause)
        else:
            self.offer(worker.number, rows, until, frontier)
        worker.words[shared.WAITS] = shared.NOTHING
        self._payload.expire(min(self._passed))

    def _placed(self, worker: Updater, each: Closed) -> Placed:
        """Rows with their places, and with their keys where these are asked for.

        Windows of time are placed by their ts, windows that count by the rank of the tuple that closed them. The latency
        of either is from the push of the window's last tuple, of whatever key.
        """
        batch = each.rows
        if isinstance(batch, Later):
            places = batch.edges.ts
            pushed = worker.last.pushed_ns(places)
            if self._keyed:
                batch, places, pushed = _by_row((batch, places, pushed))
        elif each.triggers is None:
            places = keys.ts_numbers(batch.column(0))
            pushed = worker.last.pushed_ns(places)
        else:
            places = worker.rank + each.triggers
            pushed = self._payload.pushed_ns(worker.tuples[3][each.triggers])
        if self._keyed:
            key = self._span_keys(batch) if each.triggers is None else self._counted_keys(worker, each.triggers)
            batch = pa.RecordBatch.from_arrays([*batch.columns, key], schema=self.schema)
        return batch, places, pushed

    def _span_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """(the window's last microsecond, key columns ...) as bytes."""
        return keys.window_rows(batch.column(0), (batch.column(name) for name in self._query.by))

    def _counted_keys(self, worker: Updater, triggers: np.ndarray) -> pa.Array:
        """The closing tuple's key, as a part of its own."""
        assert isinstance(self._payload, Payload)
        rows = self._payload.take(worker.tuples[3][triggers])
        return keys.nest(full_key(self._intake, 0, rows, len(triggers)), n=len(triggers))


def _by_row(placed: Placed) -> Placed:
    """Of a `Later` the batch is made, and what windows have is spread over their rows."""
    rows, places, pushed = placed
    if not isinstance(rows, Later):
        return placed
    return rows.built(), rows.edges.by_row(places), rows.edges.by_row(pushed)
