"""TuML: tuples merged into one list by a gate, then update threads (multiway-aggregation.txt, sections 4 and 5.4).

- *TuML-SC* (single consumer): one thread reads the ready tuples in total order, updates the windows and gives out results.
- *TuML-MC* (many): every update thread reads all ready tuples and keeps those of the groups that are its own, by a hash of the
  key; a winset is given out when all of them have passed its end. Each group's tuples are seen by one thread, in total order,
  so order-sensitive functions are served as well. Windows are each thread's own: nothing is shared but the gate.

What a tuple's functions read lies in its source's arena (`threads.input.push`); `lay_out` brings a batch's columns together, in
total order.

Invariant: every update thread sees all tuples, in total order, and hands its windows the ones of its own groups with the
frontier after them; so each window has its tuples in total order, and closes when no more can come.

Where this departs from the paper: the gate is the ring unless `gate="skiplist"` asks for T-Gate, so readers merge, not
sources. TuML-MC has no W-Hive: windows are each update thread's own, and are merged where results are ordered
(`aggregate.results`); no thread contends for one. A tuple updates one pane, not every window that it is in
(`core.aggregate.panes`). An update thread returns to Python once a batch.

An example: TuML-MC with two update threads, windows of 10 us that follow one another, grouped by a column. Both
threads read all tuples. Key a falls to thread 0, b to thread 1. Thread 0 takes tuples up to ts 12 with frontier 13:
its window [0, 10) can get no more tuples, so its row for a is handed over, with «no row of mine below 13 is still to
come». The row for b follows from thread 1. Whoever reads `results()` gets both once both threads have passed the
window's end (`aggregate.results`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from plait.core.aggregate.closed import Closed
from plait.core.aggregate.panes import pane_windows, window_record
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads import words as shared
from plait.threads.aggregate.designs import Design
from plait.threads.aggregate.engine import WAIT_NS, NoPayload, PaneEncoder, PaneEngine, Updater
from plait.threads.aggregate.results import AggregateResults
from plait.threads.atomics.native import compiled, ints, octets
from plait.threads.elastic.crew import BLOCKED, FINISHED, IDLE, WORKED, Crew, refused
from plait.threads.elastic.manager import Epochs
from plait.threads.gate import codes
from plait.threads.ground import Ground
from plait.threads.input.payload import Payload
from plait.threads.input.push import Pusher, one_type
from plait.threads.life.together import Together
from plait.threads.options import Options

BATCH = 1 << 15  # tuples an update thread takes at once, unless batch= says otherwise


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
        payload: Payload | NoPayload = NoPayload()
        if options.keys and not window_record(query).by_time:
            payload = Payload(schemas[name])
        elif self._rows_needed:
            payload = Payload(bound.inputs[0].schema, only=windows.columns.varied)
        pauser = ground.pauser(updaters)
        epochs = None
        if options.elastic is not None:
            # As many threads as there may be: an aggregate without by= has fewer shares than that.
            epochs = Epochs(ground.gate, ground.control, crew, options.workers or 1, max(crew, options.elastic))
        pusher = Pusher(ground, pauser, {name: payload}, encoder, widen=one_type, reads=encoder.reads, epochs=epochs)
        results = AggregateResults(bound, ground.intakes[name], payload, crew, ground.latency, keys=options.keys,
                                   room=options.unread_results)  # fmt: skip
        super().__init__(ground, made, updaters=updaters, encoder=encoder, payload=payload, pauser=pauser, pusher=pusher,
                         results=results, epochs=epochs)  # fmt: skip
        self._crew = None if epochs is None else Crew(ground.gate.words, ground.control, epochs.words, pauser)

    # --- update threads ---

    def _serve(self, thread: int) -> None:
        """Steps of one update thread, until the end; of an elastic run, of the shares that are its own."""
        if self._crew is not None:
            self._crew.serve(thread, self._step_share)
            return
        worker = self.workers[thread]
        while self._step(worker):
            pass

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
            self.results.hand_over(worker, closed, n, frontier, self.pauser.pause)
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
            self.results.hand_over(worker, self._update(worker, n, frontier), n, frontier, None)
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
            rows = self.payload.take(ref, extra=False).select(list(worker.windows.columns.varied))
        closed = worker.windows.take(ts, worker.arrays(n), rows, frontier)
        worker.last.took(ts, lambda at: self.payload.pushed_ns(ref[at]))
        w = worker.words
        w[shared.TUPLES] += n
        w[shared.BATCHES] += 1
        return closed


@compiled
def lay_out(n: Any, origin: Any, seq: Any, arena: Any, mask: Any, kinds: Any, wide: Any, narrow: Any) -> None:
    """Copy columns out of the sources' arenas: of 8 bytes (kinds[c] 1) into rows of `wide`, of 1 byte into `narrow`.

    `n` tuples; `origin` and `seq` say where each one's columns lie: arena of the slot, place `seq & mask`. `arena` is
    the table of addresses, a row a slot. `wide` is int64[columns, most], `narrow` uint8; both are the caller's own
    memory. Column by column, so that the inner loop touches one array of each source.
    """
    w, b = 0, 0
    for c in range(len(kinds)):
        at = shared.A_COLUMNS + c
        if kinds[c] == 1:
            for k in range(n):
                wide[w, k] = ints(arena[origin[k] & shared.SLOT_MASK, at], mask + 1)[seq[k] & mask]
            w += 1
        else:
            for k in range(n):
                narrow[b, k] = octets(arena[origin[k] & shared.SLOT_MASK, at], mask + 1)[seq[k] & mask]
            b += 1
