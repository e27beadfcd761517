"""What runs behind a `Run` once all columns are known: what engines of joins, aggregates and operators have in common.

The streams, the gate, the sources in front of it, and threads. What a worker does, with which memory, and how results come out
of it is each engine's own: `join.engine`, `aggregate.tuml`, `aggregate.wiml`, `operator.engine`. An engine is made of
parts that are whole, each from those before it: its ground, its workers, the pauser, the sources, the gatherer; `begin` then
starts its threads.

Invariant: a worker's thread ends when its loop has finished, failed or been stopped; `stop` returns when all have. What callers
do wrong is `fail`ed by `run`, which knows what a call is; the first error is kept, and stops every worker (`together`).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from plait.core.metrics import (
    Mark,
    OperatorStats,
    SourceStats,
    amount,
    shared_out,
    total,
    variation_percent,
    waiting_by_stream,
)
from plait.core.policy import PATIENCE, policy_of
from plait.errors import RunError, counted
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName
from plait.threads.elastic.manager import Change, Epochs, evened
from plait.threads.elastic.meter import Clocks, Meter
from plait.threads.elastic.policy import Watch
from plait.threads.ground import Ground, waiting
from plait.threads.input.idle import let_go
from plait.threads.input.intake import StreamIntake
from plait.threads.input.push import Pusher
from plait.threads.life.affinity import bind, cores_of
from plait.threads.life.pause import Pauser, Stopped
from plait.threads.parts import Encodes, Gathers, Seated
from plait.threads.plan import AnyPlan, labelled
from plait.threads.stats import Stats, measured, stages

TICK_ROWS = 1 << 14  # rows pushed between two looks at what can be forgotten


def dropped_rows(intakes: Mapping[str, StreamIntake]) -> tuple[dict[str, int], dict[str, int]]:
    """Of each stream, how many rows were late, and how many behind."""
    late = {name: sum(batch.num_rows for batch in intake.late) for name, intake in intakes.items()}
    return late, {name: sum(batch.num_rows for batch in intake.behind) for name, intake in intakes.items()}


def last_of(intakes: Iterable[StreamIntake]) -> int:
    """The largest ts that any source has delivered; BEFORE_ALL if none."""
    found = [max([intake.largest, *(inlet.largest for inlet in intake.inlets.values())]) for intake in intakes]
    return max(found, default=BEFORE_ALL)


def newest_of(intakes: Iterable[StreamIntake]) -> int | None:
    """The same for a user."""
    newest = last_of(intakes)
    return None if newest == BEFORE_ALL else newest


#: What a row writes to in the gate and in its source's columns, and the pages that a source's first row touches; both about.
_ROW_BYTES, _SOURCE_BYTES = 128, 1 << 16

W = TypeVar("W", bound=Seated)


class Engine(ABC, Generic[W]):
    """One operator of a run. `threads`: as many as there may be; without `elastic=` one a worker.

    Attributes: `ground` streams, gate, control words; `workers` their memory, one a seat; `encoder` what rows become;
    `payloads` whole rows by stream; `pauser` lets workers stand still; `pusher` the sources; `gatherer` where results
    come out; `epochs` of an elastic run, else None; `threads` not started before `begin`: the workers', then those that work
    `beside` them, by name.
    """

    def __init__(self, ground: Ground, plan: AnyPlan, *, workers: list[W], encoder: Encodes, payloads: Mapping[str, Any],
                 pauser: Pauser, pusher: Pusher, gatherer: Gathers, epochs: Epochs | None,
                 beside: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.ground, self.plan, self.workers = ground, plan, workers
        self.bound, self.options, self.together = ground.bound, ground.options, ground.together
        self.gate, self.control, self.arenas, self.latency = ground.gate, ground.control, ground.arenas, ground.latency
        self.intakes, self.label = ground.intakes, labelled(ground.bound.node)
        self.encoder, self.payloads, self.pauser, self.pusher = encoder, payloads, pauser, pusher
        self.gatherer, self.epochs = gatherer, epochs
        self._unlooked = 0  # rows since the last look; threads that push count it without a lock, so it is about right
        crew = len(workers) if epochs is None else epochs.threads
        self.threads = [
            threading.Thread(target=self._thread, args=(k,), name=f"plait-{plan.strategy}-{named}", daemon=True)
            for k, named in enumerate((*range(crew), *beside))
        ]
        cores = cores_of(self.options.affinity)
        self._cores = [self.together.next_core(cores) for _ in self.threads]
        self.clocks = Clocks(len(self.threads))
        self.watch: Watch | None = None  # with `policy=`, once it runs
        self.began, self.began_at = time.monotonic(), time.time()

    def begin(self) -> None:
        """Start the threads.

        `together.join` comes first: if another operator has failed meanwhile, this one is halted before its threads do
        anything.
        """
        self.together.join(self)
        self.pauser.begin(len(self.threads))
        policy = policy_of(self.options.policy)
        try:
            if policy is not None and self.epochs is not None:
                meter = Meter(self.epochs, self.clocks.cpu_ns, self._loads, PATIENCE)
                self.watch = Watch(policy, self.epochs, self.fail, meter.load)
            for thread in self.threads:
                thread.start()
        except BaseException:
            self.abandon()
            raise

    # --- threads ---

    @abstractmethod
    def _serve(self, thread: int) -> None:
        """What a thread does, until the end."""

    def _thread(self, number: int) -> None:
        """A thread's whole life. However it ends it is counted out, or `still` would wait for it for ever."""
        try:
            core = self._cores[number]
            if core is not None:
                bind(core)
            with self.clocks.running(number):
                self._serve(number)
        except Stopped:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            self.pauser.gone()

    def fail(self, error: BaseException) -> None:
        """The first error stops the run."""
        self.together.fail(error)

    def check(self) -> None:
        self.together.check()

    def abandon(self) -> None:
        """Tell all threads to end, and wait for none: nobody is there any more who would."""
        self.together.abandon()

    def halt(self) -> None:
        """Tell the threads to end: HALT for those that work or sleep, a closed gate for those that wait there, a stop
        for the policy.
        """
        self.pauser.stop()
        self.gate.close()
        if self.watch is not None:
            self.watch.stop()

    def stop(self) -> None:
        """Halt, and wait for each thread as long as `stall_after_s`.

        A thread that does not end is a fault of ours, and is told with what it waits for.
        """
        self.abandon()
        for thread in self.threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(timeout=self.options.stall_after_s)
                if thread.is_alive():
                    raise RunError(
                        f"{thread.name} did not stop within {self.options.stall_after_s:g} s: {self.waiting()}",
                        do="Report this",
                    )

    @property
    def nbytes(self) -> int:
        """What it holds, about: the gate, and for each source that was let in some columns; of both what rows have come to.

        Most room of a short run is never written, and the system has given nothing for it (`core.machine.line.pages`).
        """
        reserved = int(self.gate.words.nbytes) + self.arenas.nbytes
        return min(reserved, _SOURCE_BYTES * len(self.arenas.by_slot) + _ROW_BYTES * self.pusher.rows)

    # --- calls of Run ---

    def push(self, stream: str, source: SourceName | None, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            self.pusher.push(self.intakes[stream], source, batch)
        self._tick(sum(batch.num_rows for batch in batches))

    def bring(self, stream: str, batch: pa.RecordBatch, ts: np.ndarray, pushed_ns: np.ndarray, until: int) -> None:
        """Results of another operator, in order, none of which is still to come below `until`."""
        self.pusher.bring(self.intakes[stream], batch, ts, pushed_ns, until)
        self._tick(len(ts))

    def _tick(self, rows: int) -> None:
        """Work that has no thread of its own, done by whoever pushes: changes of epochs that are due, and now and then
        payload to let go.
        """
        if self.epochs is not None:
            self.epochs.poll()
        self._unlooked += rows
        if self._unlooked > TICK_ROWS:
            self._unlooked = 0
            self.gatherer.tick()

    def heartbeat(self, stream: str, source: SourceName, ts: int) -> None:
        self.pusher.heartbeat(self.intakes[stream], source, ts)

    def close(self, stream: str, source: SourceName | None) -> None:
        self.pusher.end(self.intakes[stream], source)

    def ended(self, stream: str, source: SourceName | None) -> str | None:
        intake = self.intakes[stream]
        if intake.ended:
            return f"Stream {stream!r}"
        return f"Stream {stream!r}: source {source!r}" if intake.has_ended(source) else None

    def let_go(self, now_ns: int) -> None:
        let_go([self.pusher], now_ns)

    def take(self, wait_ns: int, *, pushed: bool = False) -> pa.RecordBatch | bool | None:
        """A batch of results; None if there are none in time; False at the end. `pushed`: see `Gathers.pushed_ns`.

        If it raises, whoever called it has to `fail`: what was taken from the workers can't be given out a second time.
        """
        if self.epochs is not None:
            self.epochs.poll()
        with self.gatherer.lock:
            return self.gatherer.next(wait_ns, pushed=pushed)

    # --- threads that come and go ---

    def resize(self, workers: int, reason: str = "asked for") -> Change:
        return self._elastic("resize").resize(workers, reason)

    def rebalance(self, owners: Sequence[int] | None = None, reason: str = "asked for") -> Change:
        """Ask for another map: `owners[share]` is a thread. None: by what the shares have cost so far."""
        found = self._elastic("rebalance")
        return found.request(evened(self._loads(), found.owners) if owners is None else owners, reason)

    def owners(self) -> list[int]:
        """The thread of each share, as asked for last."""
        return self._elastic("owners").owners

    def hold_policy(self, held: bool) -> None:
        if self.watch is not None:
            self.watch.hold(held)

    def _elastic(self, call: str) -> Epochs:
        if self.epochs is None or self.options.elastic is None:
            raise RunError(
                f"{call} of a run whose workers are fixed",
                why="the state is in as many parts as there are workers",
                do="Say on_threads(workers=2, elastic=8): as many shares as there may be threads, at most",
            )
        return self.epochs

    @abstractmethod
    def _loads(self) -> list[float]:
        """Work done so far, by share."""

    # --- what is going on ---

    def plans(self) -> list[tuple[str, AnyPlan]]:
        """Each operator's name and how it is run: here there is but one."""
        return [(self.label, self.plan)]

    @property
    def schema(self) -> pa.Schema:
        return self.gatherer.schema

    def late(self, stream: str) -> pa.Table:
        intake = self.intakes[stream]
        return pa.Table.from_batches(intake.late, intake.schema)

    def behind(self, stream: str) -> pa.Table:
        intake = self.intakes[stream]
        return pa.Table.from_batches(intake.behind, intake.schema)

    def frontier(self) -> int:
        return self.gate.frontier()[0]

    def holder(self) -> tuple[str | None, SourceName | None]:
        """The stream and the source that hold the frontier."""
        return self.pusher.holder()[1:]

    def last_ts(self) -> int:
        return last_of(self.intakes.values())

    def progressed(self) -> int:
        return sum(worker.progressed() for worker in self.workers)

    def waiting(self) -> str:
        return waiting(self.workers)

    @abstractmethod
    def describe(self) -> list[str]:
        """How the operator's functions are computed."""

    @abstractmethod
    def _served(self, side: int) -> str:
        """By what an input's tuples are served."""

    def _windows_nbytes(self) -> int:
        return 0

    def _worker_nbytes(self, worker: W) -> int:
        """What windows of its own take; 0 where workers share them."""
        return 0

    def reset_latency(self) -> None:
        self.latency.reset()

    def phase(self) -> str:
        return self.together.phase(ended=self.gatherer.frontier == AFTER_ALL)

    def marks(self) -> tuple[Mark, ...]:
        """Its start, and changes of who serves which share."""
        changes = () if self.epochs is None else self.epochs.changes()
        words = "{0.before} to {0.after} threads, {0.moved} shares moved, {0.state}: {0.reason}"
        return (
            Mark(
                self.began_at, "started", f"{self.label}: {self.plan.strategy}, {counted(len(self.threads), 'thread')}"
            ),
            *(Mark(self.began_at + each.at_s, each.kind, words.format(each)) for each in changes),
        )

    def sources(self, frontier: int, newest: int | None,
                holder: tuple[str | None, SourceName | None]) -> tuple[list[SourceStats], int]:  # fmt: skip
        """What is known of its streams' sources, and how many tuples are ready and unread."""
        return self.pusher.told(frontier, newest, holder)

    def stats(self, *, latest: bool = False) -> Stats:
        """`latest`: latencies are those of the last results, as who looks every second wants them."""
        workers = tuple(
            shared_out([measured(w.number, w.words, w.counts(), self._worker_nbytes(w)) for w in self.workers])
        )
        push, ready = self.latency.quantiles(latest=latest)
        frontier, newest, holder = self.frontier(), newest_of(self.intakes.values()), self.holder()
        sources, unread = self.sources(frontier, newest, holder)
        rows, results = self.pusher.rows, self.gatherer.results
        late, behind = dropped_rows(self.intakes)
        memory = {"windows": self._windows_nbytes(), "payload": sum(p.nbytes for p in self.payloads.values())}
        return Stats.of(
            total(workers),
            rows=rows + amount(late) + amount(behind),
            results=results,
            late=late,
            behind=behind,
            frontier=frontier,
            newest=newest,
            holder=holder,
            pending=sum(source.waiting or 0 for source in sources),
            waiting=waiting_by_stream(sources),
            unread=unread,
            sources=tuple(sources),
            operators=(
                OperatorStats(
                    operator=0,
                    label=self.label,
                    inputs=tuple(self.ground.names),
                    frontier=self.gatherer.frontier,
                    rows=rows,
                    results=results,
                ),
            ),
            marks=self.marks(),
            latency_split_ms=self.latency.split(),
            state_bytes=sum(memory.values()),
            seconds=time.monotonic() - self.began,
            strategy=self.plan.strategy,
            workers=workers,
            balance_cv_percent=variation_percent([w.work for w in workers]),
            latency_from_push_ms=push,
            latency_from_ready_ms=ready,
            stage_latency_ms=self.latency.stages(latest=latest),
            stages=stages([worker.words for worker in self.workers], self.gatherer.ns),
            index={name: self._served(side) for side, name in enumerate(self.encoder.names)},
            memory=memory,
            changes=() if self.epochs is None else self.epochs.changes(),
            threads_busy_s=() if self.epochs is None else tuple(ns / 1e9 for ns in self.epochs.busy_ns()),
            threads_cpu_s=tuple(ns / 1e9 for ns in self.clocks.cpu_ns()),
        )
