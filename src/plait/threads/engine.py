"""What runs behind a `Run` once all columns are known: the gate, the workers and their memory, and the first error.

Invariant: the first error, wherever it happens, is kept, stops every worker, and is raised by every later call. A
worker's thread ends when its loop has finished, failed or been stopped; `stop` returns when all have.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.errors import PlaitError, RunError
from plait.gate import RingGate, layout
from plait.operators import layout as o
from plait.operators import serving
from plait.operators.asof import LAST_ID, LAST_REF
from plait.operators.plan import Plan
from plait.operators.worker import work
from plait.query.bind import bind
from plait.query.join import Asof, Join, TimeWindow
from plait.query.stream import SourceName, Stream
from plait.threads.asof_codes import AsofCodes
from plait.threads.columns import Encoder, opaque_place
from plait.threads.intake import Intake
from plait.threads.memory import Segment, Worker, address, lines, plant
from plait.threads.options import Options
from plait.threads.pausing import Pauser, Stopped
from plait.threads.payload import Payload
from plait.threads.pushing import CHUNK, Pusher
from plait.threads.resizing import Resizing
from plait.threads.results import Gatherer
from plait.threads.stats import Latency, Stats, WorkerStats, variation_percent

SLICE_NS = 100_000_000
BATCH = 2048  # tuples a worker takes at once, unless batch= says otherwise
TICK_ROWS = 1 << 14  # rows pushed between two looks at what can be forgotten


class Engine(Resizing):
    """What runs, once all schemas are known."""

    def __init__(self, query: Join | Asof, schemas: Mapping[str, pa.Schema], made: Plan, options: Options) -> None:
        self.plan, self.options = made, options
        self.bound = bound = bind(query, schemas)
        streams = query.streams()
        names = [node.name for node in query.inputs]
        assert names[0] is not None
        self.intakes = {name: Intake(stream, schemas[name]) for name, stream in streams.items()}
        self.payloads = {name: Payload(schemas[name], sparse=isinstance(query, Asof)) for name in streams}
        inputs = {name: tuple(k for k, n in enumerate(names) if n == name) for name in streams}
        self.encoder: Encoder | AsofCodes
        if isinstance(query, Asof):
            self.encoder = AsofCodes(bound)
        else:
            assert bound.predicate is not None
            left, right = (i.schema for i in bound.inputs)
            self.encoder = Encoder(bound.predicate, left, right, index=options.index, cache_dir=options.cache_dir,
                                   plain=options.plain)  # fmt: skip
        count = len(made.seats)
        slots = options.max_sources or self._slots(streams, inputs)
        pending = options.pending or min(max((1 << 21) // slots, 1 << 13), 1 << 16)
        self.gate = RingGate([(0, 0)], readers=count, capacity=options.capacity, pending=max(pending, 2),
                             max_sources=slots + (options.elastic is not None), names=[""])  # fmt: skip
        self.control = lines(o.CONTROL_WORDS)
        most = min(options.batch or BATCH, 1 << 14)
        arena_rows = 1
        while arena_rows < int(self.gate.words[layout.RING]) + most + CHUNK:
            arena_rows *= 2
        self.arena = np.zeros((slots, o.A_WORDS), np.int64)
        window = query.window if isinstance(query, Join) else (-1 if query.within_us is None else query.within_us)
        self.work = made.loop or work
        matched = isinstance(query, Join) and query.how != "inner"
        reach = (window.after_us, window.before_us) if isinstance(window, TimeWindow) else (0, 0)
        self.segments = tuple(
            [
                Segment(
                    side, len(made.sharers(side, k)), self.encoder, matched=matched and side == 0, reach_us=reach[side]
                )
                for k in range(made.segments[side])
            ]
            for side in (0, 1)
        )
        room = 1
        while room < max(options.unread_results // count, 1024):
            room *= 2
        self.workers = [
            Worker(k, made, self.segments, self.encoder, window, query.how, most=most, results=room,  # type: ignore[arg-type]
                   arena_mask=arena_rows - 1)
            for k in range(count)
        ]  # fmt: skip
        self._kept = plant(made, self.workers, slots) if made.tree else []
        if made.shared:
            self._kept.append(lines(made.shared(count, most)))
            for worker in self.workers:
                worker.words[o.SHARED], worker.words[o.CREW] = address(self._kept[-1]), count
        self.latency = Latency()
        self.error: BaseException | None = None
        self._stopped = False
        self.began = time.monotonic()
        self.pauser = Pauser(self.gate.words, self.control, count, self.waiting, options.stall_after_s)
        self._started, self._ticked = False, 0
        self.pusher = Pusher(
            self.gate, self.intakes, inputs, self.payloads, self.encoder, self.arena, arena_rows, self.latency, widen=self._widen,
            rank=self._rank, check=self.check, waits=self.waiting, progressed=self._progressed,
            stall_after_s=options.stall_after_s,
        )  # fmt: skip
        both = (self.intakes[str(names[0])], self.intakes[str(names[1])])
        paid = (self.payloads[str(names[0])], self.payloads[str(names[1])])
        self.gatherer = Gatherer(bound, both, paid, self.workers, self.control, self.latency, forget=self.pusher.forget,
                                 keep_latest=self._keep_latest, precision=options.precision(), keys=options.keys)  # fmt: skip
        self.kernels: Any = None  # until the first rows say which ones
        serve: Any = self._serve
        if options.elastic is not None:
            serve, memory = self._serve_shares, self._share_out(count, options.workers or 1)
            self._table = np.zeros((count, serving.T_FIELDS), np.int64)
            for worker in self.workers:
                worker.words[o.SLICED] = address(memory)
                self._table[worker.number] = worker.tabled()
        self.threads = [
            threading.Thread(target=serve, args=(worker,), name=f"plait-{made.strategy}-{worker.number}", daemon=True)
            for worker in self.workers
        ]
        self._started = True
        for thread in self.threads:
            thread.start()

    @staticmethod
    def _slots(streams: Mapping[str, Stream], inputs: Mapping[str, tuple[int, ...]]) -> int:
        slots = 1
        for name, stream in streams.items():
            declared = stream.declared()
            # A stream that has but one source, as most do, still may turn out to have more.
            known = len(declared) if declared is not None else (16 if stream.source is not None else 8)
            slots += known * len(inputs[name]) + 1
        return slots

    # --- workers ---

    def _serve(self, worker: Worker) -> None:
        """A worker's thread: the compiled loop, and what it asks for."""
        try:
            while self._go_on(worker, int(self.work(*worker.arguments(self.gate.words, self.control, self.arena)))):
                pass
        except Stopped:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            self.pauser.gone()

    def _serve_shares(self, thread: Worker) -> None:
        """A thread of an elastic run: as `_serve`, for the shares that are its own, whatever their numbers."""
        assert self.epochs is not None
        told = np.zeros(2, np.int64)
        try:
            while True:
                answer = int(
                    serving.serve(
                        self.gate.words, self.control, self.epochs.words, thread.number, self.arena, self._table, told
                    )
                )
                share = self.workers[int(told[0])]
                if not self._go_on(share, answer):
                    break
                if answer == o.GROW_PAIRS:
                    self._table[share.number] = share.tabled()
        except Stopped:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            self.pauser.gone()

    def _go_on(self, worker: Worker, answer: int) -> bool:
        w = worker.words
        if answer == o.HALTED:
            self.pauser.stand()
        elif answer == o.GROW_PAIRS:
            worker.grow_pairs()
        elif answer in (o.GROW_SEGMENT, o.BUILD_INDEX):
            side = int(w[o.NEED_SIDE])
            segment = self.segments[side][self.plan.seats[worker.number].segment[side]]
            with self.pauser.still(worker=True):
                if answer == o.GROW_SEGMENT:
                    segment.grow(int(w[o.NEED]))
                else:
                    segment.build(int(w[o.NEED]))
        elif answer == o.KERNEL_FAILED:
            assert isinstance(self.encoder, Encoder)
            error = getattr(self.kernels, "error", None)
            said = "an error" if error is None else f"{type(error).__name__}: {error},"
            raise RunError(
                f"The condition {opaque_place(self.encoder.shape)} raised {said} on a pair of rows",
                why="a pair whose condition fails has no answer, so the run stops",
                do="Make the function return False, or True, for such a pair; on_reference shows which one it is",
            )
        else:
            return False
        return True

    def _widen(self) -> None:
        self.encoder.preload()  # a kernel may have to be compiled: not while everybody waits
        with self.pauser.still():
            _, after = self.encoder.widen()
            for side in (0, 1):
                for segment in self.segments[side]:
                    segment.convert(after[side])
            for slot, arena in self.pusher.arenas.items():
                arena.convert(after[arena.side])
                arena.name_in(self.arena[slot])
            for worker in self.workers:
                worker.set_columns()
            self._set_kernels()

    def _keep_latest(self, payload: Payload) -> int:
        """As-of: of the right rows all workers have passed, keep those that are the last of their value; gives how many."""
        with self.pauser.still():
            found = []
            for worker in self.workers:
                w = worker.words
                found.append(worker.pairs[LAST_REF][worker.pairs[LAST_ID] > 0])
                unread = np.arange(int(w[o.OUT_HEAD]), int(w[o.EMIT_TAIL])) & int(w[o.OUT_MASK])
                found.append(worker.out[unread, o.E_RIGHT])
            refs = np.unique(np.concatenate(found))
            refs = refs[refs >= 0]
            payload.keep(refs, min(int(w.words[o.LAST_TS]) for w in self.workers))
        return len(refs)

    def _set_kernels(self) -> None:
        self.kernels = self.encoder.kernels()
        for worker in self.workers if self.kernels is not None else ():
            worker.set_kernels(self.kernels)

    def _rank(self, origins: dict[int, int]) -> None:
        """Give sources their places in ties; while workers stand still, since a merge under way holds the old ones."""
        words = self.gate.words
        place = {slot: layout.SOURCES_AT + slot * layout.SOURCE_WORDS + layout.ORIGIN for slot in origins}
        if all(int(words[place[slot]]) == origin for slot, origin in origins.items()):
            return
        if not self._started:
            self._set_origins(origins, place)
            return
        with self.pauser.still():
            self._set_origins(origins, place)

    def _set_origins(self, origins: dict[int, int], place: dict[int, int]) -> None:
        for slot, origin in origins.items():
            self.gate.words[place[slot]] = origin
        for seat in range(len(self.workers)):
            self.gate.words[self.gate._reader(seat) + layout.LEAVES] = -1

    def fail(self, error: BaseException) -> None:
        """The first error stops the run."""
        if self.error is None and not self._stopped:
            self.error = error
        self.pauser.stop()
        self.gate.close()

    def stop(self) -> None:
        self._stopped = True
        if self.watch is not None:
            self.watch.stop()
        self.pauser.stop()
        self.gate.close()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(timeout=self.options.stall_after_s)
                if thread.is_alive():
                    raise RunError(
                        f"{thread.name} did not stop within {self.options.stall_after_s:g} s: {self.waiting()}",
                        do="Report this",
                    )

    def check(self) -> None:
        if self.error is not None:
            if isinstance(self.error, PlaitError):
                raise type(self.error)(self.error.fact, why=self.error.why, do=self.error.do) from self.error
            raise RunError(f"The run stopped: {type(self.error).__name__}: {self.error}") from self.error
        if self._stopped:
            raise RunError("The run was stopped", do="Call on_threads again for a new run")

    # --- calls of Run ---

    def push(self, stream: str, source: SourceName | None, batches: list[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                self.pusher.push(self.intakes[stream], source, batch)
        except PlaitError as error:
            if not isinstance(error, RunError):
                self.fail(error)  # part of the batch may be in: what would follow is not what was meant
            raise
        if self.epochs is not None:
            self.epochs.poll()
        if self.pusher.rows - self._ticked > TICK_ROWS:
            self._ticked = self.pusher.rows
            self.gatherer.tick()

    def heartbeat(self, stream: str, source: SourceName, ts: int) -> None:
        self.pusher.heartbeat(self.intakes[stream], source, ts)

    def close(self, stream: str, source: SourceName | None) -> None:
        self.pusher.end(self.intakes[stream], source)

    def results(self, timeout_s: float | None) -> Iterator[pa.RecordBatch]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.check()
            if self.epochs is not None:
                self.epochs.poll()
            wait = SLICE_NS if deadline is None else int(max(0.0, min(deadline - time.monotonic(), 0.1)) * 1e9)
            if not self.gatherer.lock.acquire(timeout=10):
                raise RunError(
                    "Another thread reads results()", why="results have one order", do="Read them in one thread"
                )
            try:
                batch = self.gatherer.next(wait)
            except Exception as error:
                self.fail(error)  # what it had taken can't be given out a second time
                raise
            finally:
                self.gatherer.lock.release()
            if batch is False:
                self.check()
                return
            if batch is not None:
                yield batch
                deadline = None if timeout_s is None else time.monotonic() + timeout_s
            elif deadline is not None and time.monotonic() >= deadline:
                return

    # --- what is going on ---

    def _progressed(self) -> int:
        """A number that changes whenever any worker does something."""
        return sum(int(w.words[o.RANK]) + int(w.words[o.EMIT_TAIL]) + int(w.words[o.BATCHES]) for w in self.workers)

    def waiting(self) -> str:
        """Who waits for whom."""
        return "; ".join(f"worker {w.number} {_WAITING[int(w.words[o.WAITS])]}" for w in self.workers)

    def describe(self) -> list[str]:
        names = self.encoder.names
        found = self.encoder.describe()
        if isinstance(self.encoder, AsofCodes):
            return found
        return found + [f"probes into {names[side]}: {self._served(side)}" for side in (0, 1)]

    def _loads(self) -> list[float]:
        counters = (o.NS_READ, o.NS_STORE, o.NS_PROBE, o.NS_EMIT)
        return [float(sum(int(w.words[c]) for c in counters)) for w in self.workers]

    def _served(self, side: int) -> str:
        kinds = {o.SCAN: "scan", 1: "hash", 2: "grid", 3: "sorted"}
        return ", ".join(sorted({kinds[int(w.words[o.SERVED + side])] for w in self.workers}))

    def stats(self) -> Stats:
        found, distribution, execution, gathered = [], 0, 0, self.gatherer.ns
        seconds = time.monotonic() - self.began
        for worker in self.workers:
            w = worker.words
            busy = int(w[o.NS_STORE] + w[o.NS_PROBE] + w[o.NS_EMIT] + w[o.NS_READ])
            execution += int(w[o.NS_STORE] + w[o.NS_PROBE])
            distribution += int(w[o.NS_READ])
            gathered += int(w[o.NS_EMIT])
            active = max(busy / 1e9, 1e-9)
            found.append(
                WorkerStats(
                    worker=worker.number,
                    tuples=int(w[o.TUPLES]),
                    comparisons=int(w[o.COMPARISONS]),
                    results=int(w[o.RESULTS]),
                    batches=int(w[o.BATCHES]),
                    busy_s=busy / 1e9,
                    tuples_per_s=int(w[o.TUPLES]) / active,
                    comparisons_per_s=int(w[o.COMPARISONS]) / active,
                    waiting_for=_WAITING[int(w[o.WAITS])],
                )
            )
        total = max(distribution + execution + gathered, 1)
        push, ready = self.latency.quantiles()
        names = self.encoder.names
        return Stats(
            strategy=self.plan.strategy,
            seconds=seconds,
            tuples=self.pusher.rows,
            results=self.gatherer.results,
            comparisons=sum(w.comparisons for w in found),
            workers=tuple(found),
            balance_cv_percent=variation_percent([w.comparisons for w in found]),
            latency_from_push_ms=push,
            latency_from_ready_ms=ready,
            stages={
                "distribution": distribution / total,
                "execution": execution / total,
                "gathering": gathered / total,
            },
            index={name: self._served(side) for side, name in enumerate(names)},
            late={name: sum(b.num_rows for b in i.late) for name, i in self.intakes.items()},
            behind={name: sum(b.num_rows for b in i.behind) for name, i in self.intakes.items()},
            changes=() if self.epochs is None else self.epochs.changes(),
            memory={
                "windows": sum(s.nbytes for side in self.segments for s in side),
                "payload": sum(p.nbytes for p in self.payloads.values()),
            },
        )


_WAITING = {
    o.NOTHING: "is working",
    o.FOR_TUPLES: "waits for tuples to become ready",
    o.FOR_CONSUMER: "waits for results() to be read",
    o.FOR_WRITER: "waits for the worker that writes a window segment it shares",
    o.FOR_SHARER: "waits for a worker that shares its window segment and is behind",
    o.FOR_CHILD: "waits for a worker below it in the distribution tree",
}
