"""What runs behind a `Run` of an aggregate by TuML: the gate, update threads with their windows, and the rows they close.

Sources, gate, errors, pauses and the end are every engine's (`engine`, `push`); update threads are the workers
here. Invariant: every update thread sees all tuples, in total order, and hands its windows the ones of its own groups
with the frontier after them; so each window has its tuples in total order, and closes when no more can come.

An example: TuML-MC with two update threads, windows of 10 us that follow one another, grouped by a column. Both
threads read all tuples. Key a falls to thread 0, b to thread 1. Thread 0 takes tuples up to ts 12 with frontier 13:
its window [0, 10) can get no more tuples, so its row for a is handed over, with «no row of mine below 13 is still to
come». The row for b follows from thread 1. Whoever reads `results()` gets both once both threads have passed the
window's end (`aggregate.results`).

Held by tests/threads/aggregate/test_on_threads.py (every window and function, on every design, against the definition)
and tests/threads/aggregate/test_runs.py (ends, errors, memory).
"""

from __future__ import annotations

import dataclasses
import threading
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.base import Closed, Later, PaneWindows
from plait.core.aggregate.panes import pane_windows, window_record
from plait.core.aggregate.reads import Columns
from plait.core.machine.line import lines
from plait.core.metrics import Counts
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads import words as shared
from plait.threads.aggregate.designs import Design
from plait.threads.aggregate.results import AggregateResults
from plait.threads.aggregate.tuml import lay_out
from plait.threads.elastic.crew import BLOCKED, FINISHED, IDLE, WORKED, Crew, Taken, refused
from plait.threads.elastic.manager import Epochs
from plait.threads.engine import Engine
from plait.threads.gate import codes
from plait.threads.ground import Ground
from plait.threads.input.push import Pusher, one_type
from plait.threads.options import Options
from plait.threads.pause import Pauser
from plait.threads.payload import Payload
from plait.threads.results import full_key
from plait.threads.stats import Stats
from plait.threads.together import Together

WAIT_NS = 20_000_000
BATCH = 1 << 15  # tuples an update thread takes at once, unless batch= says otherwise


class PaneRows:
    """A source's rows as they go into its arena.

    `arrays` are those of `Columns.arrays`, one a column, in the order of the layout. `key` and `coord` are None:
    aggregates look nothing up.
    """

    key = coord = None

    def __init__(self, arrays: list[np.ndarray], n: int) -> None:
        self.arrays, self._n = arrays, n

    def __len__(self) -> int:
        return self._n


class PaneEncoder:
    """Stands where `columns.Encoder` stands for joins: what an aggregate reads of a row. There is nothing to widen.

    `columns` says what the query's functions read of a row; text and other things of varying length are not in an
    arena, and are taken from the payload (`needs_rows`).
    """

    has_node = False
    stamp = 0

    def __init__(self, columns: Columns, stream: str) -> None:
        self._columns, self.names = columns, (stream,)

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> PaneRows:
        return PaneRows(self._columns.arrays(batch, ts), len(ts))

    def columns(self, side: int) -> list[tuple[str, str]]:
        return self._columns.layout()

    def encoded(self, side: int, rows: PaneRows) -> list[np.ndarray]:
        return rows.arrays

    def admit(self, side: int, rows: PaneRows) -> bool:
        return False

    def forget(self, stamp: int) -> None:
        """Nothing is coded here."""


class NoPayload:
    """For an aggregate that reads numbers only: no row is kept.

    It still counts rows, so that references rise as they do elsewhere; nobody takes a row by one.
    """

    rows = nbytes = 0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0

    def append(self, batch: pa.RecordBatch, *_: Any) -> int:
        with self._lock:
            first = self._next
            self._next += int(batch.num_rows)
        return first

    def expire(self, ts: int) -> None:
        return


class Updater:
    """One update thread's memory: its windows, a batch of tuples, and its counters.

    `windows` are this thread's own, for its part of the groups. `taken.rows` is the batch: ts, origin, seq, ref.
    `wide` and `narrow` hold the batch's columns of 8 bytes and of 1 byte, which `kinds` tells apart. `passed` is the
    frontier it has worked up to, `rank` the number of tuples it has seen, `cpu_ns` its thread's processor time at the
    end.
    """

    def __init__(self, number: int, windows: PaneWindows, most: int, crew: int) -> None:
        self.number, self.windows = number, windows
        self.windows.share(crew, number)
        self.words = lines(shared.WORKER_WORDS)
        self.taken = Taken(most)
        self.tuples = self.taken.rows  # ts, origin, seq, ref
        kinds = [int(kind == "int64") for _, kind in self.windows.columns.layout()]
        self.kinds = np.array(kinds, np.int64)
        self.wide = np.zeros((max(sum(kinds), 1), most), np.int64)
        self.narrow = np.zeros((max(len(kinds) - sum(kinds), 1), most), np.uint8)
        self.passed, self.rank, self.cpu_ns = BEFORE_ALL, 0, 0

    def progressed(self) -> int:
        return self.rank + int(self.words[shared.BATCHES])

    def counts(self) -> Counts:
        w = self.words
        return self.windows.counts + Counts(results=int(w[shared.RESULTS]), batches=int(w[shared.BATCHES]))

    def arrays(self, n: int) -> list[np.ndarray]:
        """The batch's columns in the order of the layout, cut to `n` tuples: views, good until the next batch."""
        wide, narrow = list(self.wide)[::-1], list(self.narrow)[::-1]
        return [(wide if kind else narrow).pop()[:n] for kind in self.kinds]


class PaneEngine(Engine[Updater]):
    """What the designs for aggregates have in common: update threads that hand over the rows of closed windows."""

    def __init__(self, ground: Ground, made: Design, *, updaters: list[Updater], encoder: PaneEncoder,
                 payload: Payload | NoPayload, pauser: Pauser, pusher: Pusher, epochs: Epochs | None = None) -> None:  # fmt: skip
        (name,), query, options = ground.intakes, ground.bound.node, ground.options
        assert isinstance(query, Aggregate)
        self.query, self.payload, self._by_time = query, payload, window_record(query).by_time
        self.results = AggregateResults(ground.bound, made.workers, ground.latency, keys=options.keys,
                                        room=options.unread_results)  # fmt: skip
        super().__init__(ground, made, workers=updaters, encoder=encoder, payloads={name: payload}, pauser=pauser,
                         pusher=pusher, gatherer=self.results, epochs=epochs)  # fmt: skip

    def _serve(self, thread: int) -> None:
        worker = self.workers[thread]
        try:
            while self._step(worker):
                pass
        finally:
            worker.cpu_ns = time.thread_time_ns()

    @abstractmethod
    def _step(self, worker: Updater) -> bool:
        """Take what is ready, update windows, hand over what has closed; False at the end."""

    def _answered(self, code: int, who: str) -> bool:
        """The gate answered a code to a thread: False if that is because the run has ended.

        A code below zero at the gate is the end of a run that was stopped, or a fault of ours.
        """
        self.pauser.pause()
        if self.together.over:
            return False
        raise RunError(f"The gate answered {code} to {who}", do="Report this")

    def _hand_over(self, worker: Updater, closed: list[Closed], n: int, frontier: int) -> None:
        """Give the rows of closed windows to whoever reads results, and say how far this thread is.

        `n` is how many tuples the batch had: `rank` moves on by it after the places of rows were computed. Windows of
        time are placed by their ts, windows that count by the rank of the tuple that closed them. Waits in `put` while
        too many rows are unread; a share of an elastic run must not wait, and `offer`s.
        """
        out = []
        for each in closed:
            batch = each.rows
            if isinstance(batch, Later):
                places = batch.edges[0]
            elif each.triggers is None:
                places = keys.ts_numbers(batch.column(0))
            else:
                places = worker.rank + each.triggers
            if self.options.keys:
                batch = batch.built() if isinstance(batch, Later) else batch
                key = self._span_keys(batch) if each.triggers is None else self._counted_keys(worker, each.triggers)
                batch = pa.RecordBatch.from_arrays([*batch.columns, key], schema=self.results.schema)
            out.append((batch, places))
            worker.words[shared.RESULTS] += batch.num_rows
        worker.rank += n
        worker.passed = frontier
        worker.words[shared.WAITS] = shared.FOR_CONSUMER
        until = frontier if self._by_time or frontier == AFTER_ALL else worker.rank
        if self.epochs is None:
            self.results.put(worker.number, out, until, frontier, self.pauser.pause)
        else:
            self.results.offer(worker.number, out, until, frontier)
        worker.words[shared.WAITS] = shared.NOTHING
        self.payload.expire(min(w.passed for w in self.workers))

    def _span_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """(the window's last microsecond, key columns ...) as bytes."""
        return keys.window_rows(batch.column(0), (batch.column(name) for name in self.query.by))

    def _counted_keys(self, worker: Updater, triggers: np.ndarray) -> pa.Array:
        """The closing tuple's key, as a part of its own."""
        assert isinstance(self.payload, Payload)
        (intake,) = self.intakes.values()
        rows = self.payload.take(worker.tuples[3][triggers])
        return keys.nest(full_key(intake, 0, rows, len(triggers)), n=len(triggers))

    # --- what is going on ---

    def describe(self) -> list[str]:
        return self.workers[0].windows.describe()

    def _served(self, side: int) -> str:
        return "panes"

    def _loads(self) -> list[float]:
        return [float(w.words[shared.NS_STORE]) for w in self.workers]

    def _windows_nbytes(self) -> int:
        return sum(w.windows.nbytes for w in self.workers)

    def stats(self) -> Stats:
        return dataclasses.replace(super().stats(), update_cpu_s=sum(w.cpu_ns for w in self.workers) / 1e9)


class AggregateEngine(PaneEngine):
    """An aggregate by TuML, or another design whose tuples come from a gate.

    `made.workers` update threads, each a reader of the gate. Rows are kept only if a function needs values that no
    arena holds, or if keys are asked for of windows that count.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Design, options: Options,
                 together: Together) -> None:  # fmt: skip
        crew, self.most = made.workers, options.batch or BATCH
        updaters = [Updater(k, pane_windows(bound), self.most, crew) for k in range(crew)]
        windows, query = updaters[0].windows, bound.node
        assert isinstance(query, Aggregate)
        ground = Ground(bound, schemas, options, together, readers=crew, most=self.most, columns=len(updaters[0].kinds),
                        switches=options.elastic is not None, kind=made.gate)  # fmt: skip
        (name,) = ground.intakes
        encoder = PaneEncoder(windows.columns, name)
        self._rows_needed = windows.needs_rows
        kept = self._rows_needed or (options.keys and not window_record(query).by_time)
        payload = Payload(schemas[name]) if kept else NoPayload()
        pauser = ground.pauser(updaters)
        epochs = None
        if options.elastic is not None:
            # As many threads as there may be: an aggregate without by= has fewer shares than that.
            epochs = Epochs(ground.gate, ground.control, crew, options.workers or 1, max(crew, options.elastic))
        pusher = Pusher(ground, pauser, {name: payload}, encoder, widen=one_type, epochs=epochs)
        super().__init__(ground, made, updaters=updaters, encoder=encoder, payload=payload, pauser=pauser, pusher=pusher,
                         epochs=epochs)  # fmt: skip
        self._crew = None if epochs is None else Crew(ground.gate.words, ground.control, epochs.words, pauser)

    # --- update threads ---

    def _serve(self, thread: int) -> None:
        if self._crew is None:
            super()._serve(thread)
        else:
            self._crew.serve(thread, self._step_share)

    def _step(self, worker: Updater) -> bool:
        """Take a batch, update windows, hand over closed ones; False at the end.

        If the batch is full there may be more tuples below the frontier, also at the last tuple's own ts; so time has
        passed only up to that ts. A frontier that moved without tuples closes windows too.
        """
        w, seat = worker.words, worker.number
        began = time.monotonic_ns()
        ts, origin, seq, ref = worker.tuples
        w[shared.WAITS] = shared.FOR_TUPLES
        n = int(self.gate.kind.read_waiting(self.gate.words, seat, self.most, ts, origin, seq, ref, WAIT_NS))
        w[shared.WAITS] = shared.NOTHING
        if n < 0 and n != codes.DONE:
            return self._answered(n, f"update thread {seat}")
        frontier = AFTER_ALL if n == codes.DONE else self.gate.frontier_of(seat)
        if n == self.most:
            frontier = int(ts[n - 1])  # there may be more below the frontier
        n = max(n, 0)
        read = time.monotonic_ns()
        w[shared.NS_READ if n else shared.NS_WAIT] += read - began
        if n or frontier > worker.passed:
            closed = self._update(worker, n, frontier)
            done = time.monotonic_ns()
            w[shared.NS_STORE] += done - read
            self._hand_over(worker, closed, n, frontier)
            w[shared.NS_EMIT] += time.monotonic_ns() - done
        self.pauser.pause()
        return frontier < AFTER_ALL

    def _step_share(self, number: int) -> int:
        """As `_step`, of an elastic run: a batch of a share, up to the next switch; it never waits.

        A share that has too many unread rows answers BLOCKED, and its thread goes on to others.
        """
        worker = self.workers[number]
        if self.results.crowded(number):
            worker.words[shared.WAITS] = shared.FOR_CONSUMER
            return BLOCKED
        assert self.epochs is not None
        assert self._crew is not None
        began = time.monotonic_ns()
        n, frontier = worker.taken.next(self.gate, self.epochs.words, number, self.most)
        worker.words[shared.WAITS] = shared.FOR_TUPLES if n == 0 else shared.NOTHING
        if n == codes.DONE:
            n, frontier = 0, AFTER_ALL
        elif n < 0:
            refused(n, number, self.together.over)
        worked, frontier = n > 0 or frontier > worker.passed, max(frontier, worker.passed)
        if worked:
            self._hand_over(worker, self._update(worker, n, frontier), n, frontier)
            worker.words[shared.NS_STORE] += time.monotonic_ns() - began
        epoch = worker.taken.epoch
        if epoch:
            self._crew.hand_on(number, epoch)  # from here on the share is another's
        return FINISHED if frontier == AFTER_ALL else WORKED if worked or epoch else IDLE

    def _update(self, worker: Updater, n: int, frontier: int) -> list[Closed]:
        """Bring the batch's columns together, in total order, and let the windows take them; gives what has closed."""
        ts, origin, seq, ref = (column[:n] for column in worker.tuples)
        arenas = self.arenas
        lay_out(n, origin, seq, arenas.table, arenas.size - 1, worker.kinds, worker.wide, worker.narrow)
        rows = None
        if self._rows_needed:
            assert isinstance(self.payload, Payload)
            rows = self.payload.take(ref).select(list(worker.windows.columns.varied))
        closed = worker.windows.take(ts, worker.arrays(n), rows, frontier)
        w = worker.words
        w[shared.TUPLES] += n
        w[shared.BATCHES] += 1
        return closed
