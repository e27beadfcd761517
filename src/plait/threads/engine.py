"""What runs behind a `Run` once all columns are known: what engines of joins, aggregates and operators have in common.

The gate, the sources in front of it, threads, and the first error. What a worker does, with which memory, and how results
come out of it is each engine's own: `joining`, `aggregating`, `hiving`, `operating`.

Invariant: the first error that `fail` is told is kept, stops every worker, and is raised by every later call. A worker's thread
ends when its loop has finished, failed or been stopped; `stop` returns when all have. What callers do wrong is `fail`ed by
`run`, which knows what a call is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from plait.core.metrics import amount, total
from plait.errors import PlaitError, RunError
from plait.order import BEFORE_ALL
from plait.query.bind import Bound
from plait.query.stream import SourceName, Stream
from plait.threads.elastic.resize import Resizing
from plait.threads.gate import GATES, layout
from plait.threads.input.idle import let_go
from plait.threads.input.intake import QUERY, Intake
from plait.threads.input.push import CHUNK, Pusher
from plait.threads.input.sources import Front
from plait.threads.join.loop import layout as o
from plait.threads.memory import lines
from plait.threads.options import Options
from plait.threads.parts import Encodes, Gathers, Seated
from plait.threads.pause import Pauser, Stopped
from plait.threads.plan import labelled
from plait.threads.stats import Latency, Stats, measured, stages, variation_percent, waiting_for

TICK_ROWS = 1 << 14  # rows pushed between two looks at what can be forgotten


def inputs_of(bound: Bound) -> dict[str, Stream]:
    """The streams an operator reads, each once; other operators' results are streams here too, see `dag`."""
    return {str(i.node.name): i.node for i in bound.inputs if isinstance(i.node, Stream)}


def raise_again(error: BaseException) -> NoReturn:
    """The error that stopped a run, for another call of its."""
    if isinstance(error, PlaitError):
        raise type(error)(error.fact, why=error.why, do=error.do) from error
    said = f": {error}" if str(error) else ""
    raise RunError(
        f"The run stopped: {type(error).__name__}{said}",
        why="a call was left half done" if not isinstance(error, Exception) else "",
        do="Call on_threads again for a new run",
    ) from error


def dropped_rows(intakes: Mapping[str, Intake]) -> tuple[dict[str, int], dict[str, int]]:
    """Of each stream, how many rows were late, and how many behind."""
    late = {name: sum(batch.num_rows for batch in intake.late) for name, intake in intakes.items()}
    return late, {name: sum(batch.num_rows for batch in intake.behind) for name, intake in intakes.items()}


def newest_of(intakes: Iterable[Intake]) -> int | None:
    """The largest ts that any source has delivered."""
    newest = max((s.largest for intake in intakes for s in intake.sources.values()), default=BEFORE_ALL)
    return None if newest == BEFORE_ALL else newest


W = TypeVar("W", bound=Seated)


class Engine(Resizing, Generic[W]):
    """An engine makes, in this order: what is here, its gate (`_open_gate`), its workers, encoder and payloads, the sources
    (`_connect`), its gatherer; then it begins (`_begin`)."""

    workers: list[W]
    encoder: Encodes
    payloads: Mapping[str, Any]
    gatherer: Gathers
    #: Called with the first error: other operators of the same run have to stop as well.
    spread: Callable[[BaseException], None] = staticmethod(lambda error: None)

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Any, options: Options,
                 front: Front | None) -> None:  # fmt: skip
        self.plan, self.options, self.bound = made, options, bound
        streams = inputs_of(bound)
        self.names = [str(i.node.name) for i in bound.inputs]  # of the streams, by input
        self.inputs = {name: tuple(k for k, n in enumerate(self.names) if n == name) for name in streams}
        self.intakes = {name: Intake(stream, schemas[name]) for name, stream in streams.items()}
        self.slots = self._slots(streams, options.max_sources) + (front is not None)
        self._front = front
        self.control = lines(o.CONTROL_WORDS)
        self.latency = Latency()
        self.error: BaseException | None = None
        self._failing = threading.Lock()
        self._stopped = self._started = False
        self._ticked = 0
        self.threads: list[threading.Thread] = []
        self.began = time.monotonic()

    def _slots(self, streams: Mapping[str, Stream], most: int | None) -> int:
        """Room for so many sources; `most` is what the user says of those that are pushed."""
        if most is not None:
            return most + sum(len(self.inputs[name]) for name, stream in streams.items() if stream.source == QUERY)
        slots = 1
        for name, stream in streams.items():
            declared = stream.declared()
            # A stream that has but one source, as most do, still may turn out to have more.
            known = len(declared) if declared is not None else (16 if stream.source is not None else 8)
            slots += known * len(self.inputs[name]) + 1
        return slots

    def _open_gate(self, readers: int, most: int, *, switches: bool, kind: Any = None) -> None:
        """The gate, for workers that take `most` tuples at once; `switches`: epochs will need a source of their own."""
        options = self.options
        kind = kind or GATES[options.gate]
        pending = options.pending or min(max((1 << 21) // self.slots, 1 << 13), 1 << 16)
        self.gate = kind([(0, 0)], readers=readers, capacity=options.capacity, pending=max(pending, 2),
                         max_sources=self.slots + switches, names=[""])  # fmt: skip
        self.arena_rows = 1
        while self.arena_rows < int(self.gate.words[layout.RING]) + most + CHUNK:
            self.arena_rows *= 2

    def _connect(self, columns: int = 0) -> None:
        """The sources, in front of the gate; what they write of a row has so many columns."""
        self.arena = np.zeros((self.slots, max(o.A_WORDS, o.A_COLUMNS + columns)), np.int64)
        stall = self.options.stall_after_s
        # In an elastic run as many as there may be; an aggregate without by= has fewer shares than that.
        self.crew_size = max(len(self.workers), self.options.elastic or 0)
        self.pauser = Pauser(self.gate.words, self.control, self.crew_size, self.waiting, stall)
        self.pusher = self._pusher()(
            self.gate, self.intakes, self.inputs, self.payloads, self.encoder, self.arena, self.arena_rows, self.latency,
            widen=self._widen, rank=self._rank, check=self.check, waits=self.waiting, progressed=self.progressed,
            stall_after_s=stall, front=self._front,
        )  # fmt: skip

    def _pusher(self) -> Callable[..., Pusher]:
        return Pusher

    def _begin(self, serve: Callable[[int], None]) -> None:
        """Everything is there: the threads, by their numbers, which without `elastic=` are the workers'."""
        name = f"plait-{self.plan.strategy}"
        self.threads = [
            threading.Thread(target=self._thread, args=(serve, k), name=f"{name}-{k}", daemon=True)
            for k in range(self.crew_size)
        ]
        self._started = True
        try:
            for thread in self.threads:
                thread.start()
        except BaseException:
            self.abandon()
            raise

    # --- workers ---

    def _thread(self, serve: Callable[[int], None], number: int) -> None:
        try:
            serve(number)
        except Stopped:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            self.pauser.gone()

    def _widen(self) -> None:
        """Columns have one type for good."""

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
        with self._failing:
            first = self.error is None and not self._stopped
            if first:
                self.error = error
        if first:
            self.spread(error)
        self.pauser.stop()
        self.gate.close()

    def abandon(self) -> None:
        """Tell all threads to end, and wait for none: nobody is there any more who would."""
        self._stopped = True
        self.pauser.stop()
        self.gate.close()
        if self.watch is not None:
            self.watch.stop()

    def stop(self) -> None:
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
        """What it holds, about: the gate, and for each source that was let in some columns."""
        return int(self.gate.words.nbytes) + 40 * self.arena_rows * len(self.pusher.arenas)

    def check(self) -> None:
        if self.error is not None:
            raise_again(self.error)
        if self._stopped:
            raise RunError("The run was stopped", do="Call on_threads again for a new run")

    # --- calls of Run ---

    def push(self, stream: str, source: SourceName | None, batches: list[pa.RecordBatch]) -> None:
        for batch in batches:
            self.pusher.push(self.intakes[stream], source, batch)
        self._tick()

    def bring(self, stream: str, batch: pa.RecordBatch, ts: np.ndarray, until: int) -> None:
        """Results of another operator, in order, none of which is still to come below `until`."""
        self.pusher.bring(self.intakes[stream], batch, ts, until)
        self._tick()

    def _tick(self) -> None:
        if self.epochs is not None:
            self.epochs.poll()
        if self.pusher.rows - self._ticked > TICK_ROWS:
            self._ticked = self.pusher.rows
            self.gatherer.tick()

    def heartbeat(self, stream: str, source: SourceName, ts: int) -> None:
        self.pusher.heartbeat(self.intakes[stream], source, ts)

    def close(self, stream: str, source: SourceName | None) -> None:
        self.pusher.end(self.intakes[stream], source)

    def ended(self, stream: str, source: SourceName | None) -> str | None:
        """What has ended, if rows of this source would come too late: the stream, or the source."""
        intake = self.intakes[stream]
        found = None if source is None else intake.sources.get(source)
        if intake.ended:
            return f"Stream {stream!r}"
        return f"Stream {stream!r}: source {source!r}" if found is not None and found.ended else None

    def let_go(self, now_ns: int) -> None:
        """The clock ticks: see `idle`."""
        let_go([self.pusher], now_ns)

    def take(self, wait_ns: int) -> pa.RecordBatch | bool | None:
        """A batch of results; None if there are none in time; False at the end.

        If it raises, whoever called it has to `fail`: what was taken from the workers can't be given out a second time.
        """
        if self.epochs is not None:
            self.epochs.poll()
        with self.gatherer.lock:
            return self.gatherer.next(wait_ns)

    # --- what is going on ---

    def plans(self) -> list[tuple[str, Any]]:
        """Each operator's name and how it is run: here there is but one."""
        return [(labelled(self.bound.node), self.plan)]

    @property
    def schema(self) -> pa.Schema:
        return self.gatherer.schema

    def dropped(self, stream: str, which: str) -> pa.Table:
        """Rows of a stream that were `late` or `behind`."""
        intake = self.intakes[stream]
        return pa.Table.from_batches(getattr(intake, which), intake.schema)

    def frontier(self) -> int:
        return self.gate.frontier()[0]

    def holder(self) -> tuple[str | None, SourceName | None]:
        """The stream and the source that hold the frontier."""
        return self.pusher.holder()[1:]

    def progressed(self) -> int:
        """A number that changes whenever any worker does something."""
        return sum(int(w.words[o.RANK]) + int(w.words[o.EMIT_TAIL]) + int(w.words[o.BATCHES]) for w in self.workers)

    def waiting(self) -> str:
        """Who waits for whom."""
        return "; ".join(f"worker {w.number} {waiting_for(w.words)}" for w in self.workers)

    def describe(self) -> list[str]:
        """How the operator's functions are computed."""
        raise NotImplementedError

    def _served(self, side: int) -> str:
        """By what an input's tuples are served."""
        raise NotImplementedError

    def _windows_nbytes(self) -> int:
        return 0

    def reset_latency(self) -> None:
        self.latency.reset()

    def stats(self) -> Stats:
        workers = tuple(measured(worker.number, worker.words, worker.counts()) for worker in self.workers)
        push, ready = self.latency.quantiles()
        late, behind = dropped_rows(self.intakes)
        memory = {"windows": self._windows_nbytes(), "payload": sum(p.nbytes for p in self.payloads.values())}
        return Stats.of(
            total(workers),
            rows=self.pusher.rows + amount(late) + amount(behind),
            results=self.gatherer.results,
            late=late,
            behind=behind,
            frontier=self.frontier(),
            newest=newest_of(self.intakes.values()),
            holder=self.holder(),
            state_bytes=sum(memory.values()),
            seconds=time.monotonic() - self.began,
            strategy=self.plan.strategy,
            workers=workers,
            balance_cv_percent=variation_percent([w.work for w in workers]),
            latency_from_push_ms=push,
            latency_from_ready_ms=ready,
            stages=stages([worker.words for worker in self.workers], self.gatherer.ns),
            index={name: self._served(side) for side, name in enumerate(self.encoder.names)},
            memory=memory,
            changes=() if self.epochs is None else self.epochs.changes(),
            threads_busy_s=() if self.epochs is None else tuple(ns / 1e9 for ns in self.epochs.busy_ns()),
        )
