"""What runs behind a `Run` of an aggregate: the gate, update threads with their windows, and the rows they close.

Sources, gate, errors, pauses and the end are every engine's (`engine`, `push`); update threads are the workers
here. Invariant: every update thread sees all tuples, in total order, and hands its windows the ones of its own groups
with the frontier after them; so each window has its tuples in total order, and closes when no more can come.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.base import Closed, Later, PaneWindows
from plait.core.aggregate.panes import pane_windows, window_record
from plait.core.aggregate.reads import Columns
from plait.core.metrics import Counts
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads.aggregate.designs import Design
from plait.threads.aggregate.results import AggregateResults
from plait.threads.aggregate.tuml import lay_out
from plait.threads.elastic.crew import BLOCKED, FINISHED, IDLE, WORKED, Crew, Taken, refused
from plait.threads.engine import Engine
from plait.threads.gate import codes, layout
from plait.threads.input.sources import Front
from plait.threads.join.loop import layout as o
from plait.threads.memory import lines
from plait.threads.options import Options
from plait.threads.payload import Payload
from plait.threads.results import full_key
from plait.threads.stats import Stats

WAIT_NS = 20_000_000
BATCH = 1 << 15  # tuples an update thread takes at once, unless batch= says otherwise


class PaneRows:
    """A source's rows as they go into its arena."""

    key = coord = None

    def __init__(self, arrays: list[np.ndarray], n: int) -> None:
        self.arrays, self._n = arrays, n

    def __len__(self) -> int:
        return self._n


class PaneEncoder:
    """Stands where `columns.Encoder` stands for joins: what an aggregate reads of a row. There is nothing to widen."""

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
    """For an aggregate that reads numbers only: no row is kept."""

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
    """One update thread's memory: its windows, a batch of tuples, and counters laid out as a worker's."""

    def __init__(self, number: int, windows: PaneWindows, most: int, crew: int) -> None:
        self.number, self.windows = number, windows
        self.windows.share(crew, number)
        self.words = lines(o.WORDS)
        self.tuples = np.zeros((4, most), np.int64)  # ts, origin, seq, ref
        kinds = [int(kind == "int64") for _, kind in self.windows.columns.layout()]
        self.kinds = np.array(kinds, np.int64)
        self.wide = np.zeros((max(sum(kinds), 1), most), np.int64)
        self.narrow = np.zeros((max(len(kinds) - sum(kinds), 1), most), np.uint8)
        self.passed, self.rank, self.cpu_ns = BEFORE_ALL, 0, 0
        self.taken: Taken  # of an elastic run

    def counts(self) -> Counts:
        w = self.words
        return self.windows.counts + Counts(results=int(w[o.RESULTS]), batches=int(w[o.BATCHES]))

    def arrays(self, n: int) -> list[np.ndarray]:
        wide, narrow = list(self.wide)[::-1], list(self.narrow)[::-1]
        return [(wide if kind else narrow).pop()[:n] for kind in self.kinds]


class AggregateEngine(Engine[Updater]):
    """What runs, once the stream's columns are known."""

    plan: Design
    gatherer: AggregateResults

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Design, options: Options,
                 front: Front | None = None) -> None:  # fmt: skip
        super().__init__(bound, schemas, made, options, front)
        query = bound.node
        assert isinstance(query, Aggregate)
        (name,) = self.intakes
        crew, self.most = made.workers, options.batch or BATCH
        self._open_gate(crew, self.most, switches=options.elastic is not None, kind=made.gate)
        self._arena_mask = self.arena_rows - 1
        self.workers = [self._updater(k, self.slots) for k in range(crew)]
        windows = self.workers[0].windows
        self.encoder = PaneEncoder(windows.columns, name)
        self._rows_needed = windows.needs_rows and not made.merges_windows
        self._by_time = window_record(query).by_time
        kept = self._rows_needed or (options.keys and not self._by_time)
        self.payload = Payload(schemas[name]) if kept else NoPayload()
        self.payloads = {name: self.payload}
        self._connect(columns=len(self.workers[0].kinds))
        self.gatherer = AggregateResults(bound, crew, self.latency, keys=options.keys, room=options.unread_results)
        if options.elastic is None:
            self._begin(lambda number: self._serve(self.workers[number]))
            return
        memory = self._share_out(crew, options.workers or 1)
        self.crew = Crew(self.gate.words, self.control, memory, self._step_share, self._pause)
        for updater in self.workers:
            updater.taken = Taken(self.most)
            updater.tuples = updater.taken.rows
        self._begin(self._serve_crew)

    def _updater(self, number: int, slots: int) -> Updater:
        return Updater(number, pane_windows(self.bound), self.most, self.plan.workers)

    # --- update threads ---

    def _serve(self, worker: Updater) -> None:
        try:
            while self._step(worker):
                pass
        finally:
            worker.cpu_ns = time.thread_time_ns()

    def _step(self, worker: Updater) -> bool:
        """Take ready tuples, update windows, hand over what has closed; False at the end."""
        w, words, seat = worker.words, self.gate.words, worker.number
        began = time.monotonic_ns()
        ts, origin, seq, ref = worker.tuples
        w[o.WAITS] = o.FOR_TUPLES
        n = int(self.gate.kind.read_waiting(words, seat, self.most, ts, origin, seq, ref, WAIT_NS))
        w[o.WAITS] = o.NOTHING
        if n < 0 and n != codes.DONE:
            self._pause()
            if self._stopped or self.error is not None:
                return False
            raise RunError(f"The gate answered {n} to update thread {seat}", do="Report this")
        frontier = AFTER_ALL if n == codes.DONE else int(words[self.gate._reader(seat) + layout.FRONTIER])
        if n == self.most:
            frontier = int(ts[n - 1])  # there may be more below the frontier
        n = max(n, 0)
        read = time.monotonic_ns()
        w[o.NS_READ if n else o.NS_WAIT] += read - began
        if n or frontier > worker.passed:
            closed = self._update(worker, n, frontier)
            done = time.monotonic_ns()
            w[o.NS_STORE] += done - read
            self._hand_over(worker, closed, n, frontier)
            w[o.NS_EMIT] += time.monotonic_ns() - done
        self._pause()
        return frontier < AFTER_ALL

    def _step_share(self, number: int) -> int:
        """As `_step`, of an elastic run: a batch of a share, up to the next switch; it never waits."""
        worker = self.workers[number]
        if self.gatherer.crowded(number):
            worker.words[o.WAITS] = o.FOR_CONSUMER
            return BLOCKED
        assert self.epochs is not None
        began = time.monotonic_ns()
        n, frontier = worker.taken.next(self.gate.words, self.epochs.words, number, self.most)
        worker.words[o.WAITS] = o.FOR_TUPLES if n == 0 else o.NOTHING
        if n == codes.DONE:
            n, frontier = 0, AFTER_ALL
        elif n < 0:
            refused(n, number, self._stopped or self.error is not None)
        worked, frontier = n > 0 or frontier > worker.passed, max(frontier, worker.passed)
        if worked:
            self._hand_over(worker, self._update(worker, n, frontier), n, frontier)
            worker.words[o.NS_STORE] += time.monotonic_ns() - began
        epoch = worker.taken.epoch
        if epoch:
            self.crew.hand_on(number, epoch)  # from here on the share is another's
        return FINISHED if frontier == AFTER_ALL else WORKED if worked or epoch else IDLE

    def _loads(self) -> list[float]:
        return [float(w.words[o.NS_STORE]) for w in self.workers]

    def _update(self, worker: Updater, n: int, frontier: int) -> list[Closed]:
        ts, origin, seq, ref = (column[:n] for column in worker.tuples)
        lay_out(n, origin, seq, self.arena, self._arena_mask, worker.kinds, worker.wide, worker.narrow)
        rows = None
        if self._rows_needed:
            assert isinstance(self.payload, Payload)
            rows = self.payload.take(ref).select(list(worker.windows.columns.varied))
        closed = worker.windows.take(ts, worker.arrays(n), rows, frontier)
        w = worker.words
        w[o.TUPLES] += n
        w[o.BATCHES] += 1
        return closed

    def _hand_over(self, worker: Updater, closed: list[Closed], n: int, frontier: int) -> None:
        out = []
        for each in closed:
            batch = each.rows
            if isinstance(batch, Later):
                places = batch.edges[0]
            elif each.triggers is None:
                ts = batch.column(0)
                places = (ts.view(pa.int64()) if pa.types.is_temporal(ts.type) else ts).to_numpy(zero_copy_only=False)
            else:
                places = worker.rank + each.triggers
            if self.options.keys:
                batch = batch.built() if isinstance(batch, Later) else batch
                key = self._span_keys(batch) if each.triggers is None else self._counted_keys(worker, each.triggers)
                batch = pa.RecordBatch.from_arrays([*batch.columns, key], schema=self.gatherer.schema)
            out.append((batch, places))
            worker.words[o.RESULTS] += batch.num_rows
        worker.rank += n
        worker.passed = frontier
        worker.words[o.RANK] = worker.rank
        worker.words[o.WAITS] = o.FOR_CONSUMER
        until = frontier if self._by_time or frontier == AFTER_ALL else worker.rank
        if self.epochs is None:
            self.gatherer.put(worker.number, out, until, frontier, self._pause)
        else:
            self.gatherer.offer(worker.number, out, until, frontier)
        worker.words[o.WAITS] = o.NOTHING
        self.payload.expire(min(w.passed for w in self.workers))

    def _span_keys(self, batch: pa.RecordBatch) -> pa.Array:
        """(the window's last microsecond, key columns ...) as bytes."""
        assert isinstance(self.bound.node, Aggregate)
        n, ts = batch.num_rows, batch.column(0)
        numbers = (ts.view(pa.int64()) if pa.types.is_temporal(ts.type) else ts).to_numpy(zero_copy_only=False)
        columns = [keys.wrapped(batch.column(name)) for name in self.bound.node.by]
        return keys.join(keys.ints(numbers), *columns, n=n)

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

    def _windows_nbytes(self) -> int:
        return sum(w.windows.nbytes for w in self.workers)

    def stats(self) -> Stats:
        return dataclasses.replace(super().stats(), update_cpu_s=sum(w.cpu_ns for w in self.workers) / 1e9)
