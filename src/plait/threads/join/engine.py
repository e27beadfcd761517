"""What runs behind a `Run` of a join: workers with their window segments, the condition's kernels, and the rings of results.

Sources, gate, errors and the end are every engine's (`engine`, `push`). A worker's loop is compiled
(`threads.join.loop.worker`); it comes back here to have memory grown or an index built (`Windows`).

How a batch goes through: a push encodes rows and writes them into its source's arena (`input.push`), the gate orders
them, every worker copies what it needs (`worker.lay_out`), stores, compares, and writes references of pairs into its
ring. The reader of `results()` merges the rings (`loop.gather`), with `fan_in=` those of mergers, and rows are taken from the
payload (`threads.results`), by the reader or, where many wait, by builders. No Arrow row is touched between push and result.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.condition import judge
from plait.core.join.reach import Reach, reach_of
from plait.core.machine.line import address, lines
from plait.errors import PlaitError, RunError
from plait.query.bind import Bound
from plait.query.join import HOWS, Asof, Join
from plait.threads import words as shared
from plait.threads.builders import Builders
from plait.threads.elastic.manager import Epochs
from plait.threads.engine import Engine
from plait.threads.ground import Ground
from plait.threads.input.arenas import Arenas
from plait.threads.input.payload import Payload
from plait.threads.input.push import Pusher
from plait.threads.join import parting, serve
from plait.threads.join.asof_codes import AsofCodes
from plait.threads.join.asof_memory import AsofMemory, right_first
from plait.threads.join.columns import Encoder, Kernels
from plait.threads.join.loop import words as o
from plait.threads.join.loop.emitter import emit_tuples
from plait.threads.join.loop.gather import work_merger
from plait.threads.join.loop.worker import work
from plait.threads.join.memory import Emitter, Merger, Segment, Worker, plant
from plait.threads.join.strategies.plan import Plan
from plait.threads.life.pause import Pauser
from plait.threads.life.together import Together
from plait.threads.options import Options
from plait.threads.results import Gatherer

MOST_BUILDERS = 4  # threads that make rows of results: several workers find fewer than these make
BATCH = 2048  # tuples a worker takes at once, unless batch= says otherwise


class Windows:
    """The memory of a join's workers, and all that changes it while they run.

    Attributes: `segments[side][k]` is a window segment, `workers[k]` a worker's memory. Python changes either only in
    here. What one worker alone uses it changes itself, and nobody waits: a segment of ScaleJoin's or SplitJoin's is one
    worker's. A segment that several share (DP-Join's rows and columns) grows while all stand still, and so does a change of
    how columns are stored, which are everybody's; `Segment.grow` therefore looks ahead.
    """

    def __init__(self, plan: Plan, encoder: Encoder | AsofCodes, segments: tuple[list[Segment], list[Segment]],
                 workers: list[Worker], arenas: Arenas, pauser: Pauser) -> None:  # fmt: skip
        self.plan, self.encoder, self.segments, self.workers = plan, encoder, segments, workers
        self._arenas, self._pauser = arenas, pauser
        self._kernels: Kernels | None = None  # until the first rows say which ones; as-of has none

    def widen(self) -> None:
        """Columns are stored in another way than before, or for the first time.

        By the thread that pushes, under the sources' `_encoding` lock, while none writes rows. It is called for the first
        rows of all, too: until then columns have no type and there is no kernel. Everything that holds a column is
        rewritten: segments, arenas, the batch each worker is at.
        """
        self.encoder.preload()  # a kernel may have to be compiled: not while everybody waits
        with self._pauser.still():
            _, after = self.encoder.widen()
            for side in (0, 1):
                for segment in self.segments[side]:
                    segment.convert(after[side])
            self._arenas.convert(after, self.encoder)
            for worker in self.workers:
                worker.set_columns()
            if isinstance(self.encoder, Encoder) and self.encoder.first is not None and self._kernels is None:
                side, rows = self.encoder.first
                self.encoder.first = (side, rows.take(slice(0, 0)))  # not kept alive
                for worker in self.workers:
                    if worker.parted is not None:
                        parting.begin(
                            worker.parted, side, rows, self.encoder.bands()[0] if self.encoder.has_bands else None
                        )
            self._kernels = self.encoder.kernels()
            if self._kernels is not None:
                for worker in self.workers:
                    worker.set_kernels(self._kernels)

    def see_to(self, worker: Worker, answer: int) -> bool:
        """What a worker's loop has come back for; false if it has come to its end.

        By the worker's own thread. `answer` is one of `loop.words`. The loop keeps its place in PHASE, so after this
        it is called again with the same memory. `still(worker=True)` counts the caller among those that stand still; until
        it comes to stand, nobody else's `still` begins, so what it changes here alone is not changed by others.
        """
        w = worker.words
        if answer == o.HALTED:
            self._pauser.stand()
        elif answer == o.GROW_PAIRS:
            worker.grow_pairs()
        elif answer in (o.GROW_SEGMENT, o.BUILD_INDEX):
            side = int(w[o.NEED_SIDE])
            segment = self.segments[side][self.plan.seats[worker.number].segment[side]]
            change = segment.grow if answer == o.GROW_SEGMENT else segment.build
            if segment.sharers == 1:
                change(int(w[o.NEED]))  # the caller is outside of its loop: who wants all to stand still waits for it
            else:
                with self._pauser.still(worker=True):
                    change(int(w[o.NEED]))
        elif answer == o.KERNEL_FAILED:
            raise self._failed()
        else:
            return False
        return True

    def _failed(self) -> BaseException:
        """Why a kernel has failed."""
        assert isinstance(self.encoder, Encoder)
        assert self._kernels is not None
        error = self._kernels.error
        if isinstance(error, PlaitError) or not self.encoder.shape.opaque:
            assert error is not None
            return error
        told = judge.failed(self.encoder.shape, error)
        told.__cause__ = error
        return told

    def keep_latest(self, payload: Payload) -> int:
        """As-of: of the right rows all workers have passed, keep those that a later result may name; gives how many.

        `payload` is the right stream's. A right row is needed if it is in a worker's memory, or if a result that names
        it lies in a ring and was not taken. Rows after the last ts that all workers have passed are left alone. Where both sides
        are one stream, its rows are needed as left ones, too.
        """
        with self._pauser.still():
            found = []
            for worker in self.workers:
                w = worker.words
                assert worker.asof is not None
                unread = np.arange(int(w[o.OUT_HEAD]), int(w[o.EMIT_TAIL])) & int(w[o.OUT_MASK])
                for side in (0, 1) if worker.asof.one_stream else (1,):
                    found += [worker.asof.named(side), worker.out[unread, o.E_LEFT + side]]
            refs = np.unique(np.concatenate(found))
            refs = refs[refs >= 0]
            payload.keep(refs, min(int(w.words[o.LAST_TS]) for w in self.workers))
        return len(refs)

    @property
    def nbytes(self) -> int:
        kept = sum(worker.asof.nbytes for worker in self.workers if worker.asof is not None)
        return kept + sum(s.nbytes for side in self.segments for s in side)


class JoinEngine(Engine[Worker]):
    """A join or an as-of join, by any strategy.

    `made` is the plan: as many workers as it has seats. Each has a ring for its part of `unread_results`, rounded up
    to a power of two, 1,024 at least. The order of construction is the order of need: ground, encoder, segments,
    workers, pauser, epochs, sources, gatherer.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Plan, options: Options,
                 together: Together) -> None:  # fmt: skip
        query = bound.node
        assert isinstance(query, (Join, Asof))
        count, most = len(made.seats), min(options.batch or BATCH, 1 << 14)
        ground = Ground(bound, schemas, options, together, readers=count + made.emitter, most=most, events=o.EVENTS,
                        switches=options.elastic is not None,
                        ties=(1, 0) if isinstance(query, Asof) and right_first(query) else (0, 1))  # fmt: skip
        encoder = _encoder(bound, options)
        segments = _segments(query, made, encoder)
        rings = options.unread_results // (count + len(made.mergers))
        workers = _workers(query, made, encoder, segments, most, rings, ground.arenas.size)
        precision, block = options.precision(), options.precision().block(made.layout[0])
        for worker in workers:
            worker.set_precision(precision, marks=options.marks and worker.number == count - 1)
        self.mergers: list[Merger] = []
        gathered: list[Worker | Merger] = list(workers)
        for inputs in made.mergers:
            self.mergers.append(Merger([gathered[k] for k in inputs], precision, block, len(workers[0].out)))
            gathered.append(self.mergers[-1])
        pauser = ground.pauser(workers)
        epochs = None
        if options.elastic is not None:
            epochs = Epochs(ground.gate, ground.control, count, options.workers or 1, max(count, options.elastic))
        self.windows = Windows(made, encoder, segments, workers, ground.arenas, pauser)
        payloads = {name: Payload(schemas[name], sparse=isinstance(query, Asof)) for name in ground.intakes}
        pusher = Pusher(ground, pauser, payloads, encoder, widen=self.windows.widen, epochs=epochs,
                        reads=encoder.reads if isinstance(encoder, Encoder) else None)  # fmt: skip
        self.builders = Builders(min(MOST_BUILDERS, max(1, os.cpu_count() or 1)))
        left, right = ground.names
        gatherer = Gatherer(bound, (ground.intakes[left], ground.intakes[right]), (payloads[left], payloads[right]), workers,
                            [gathered[k] for k in made.roots], ground.control, ground.latency, builders=self.builders,
                            unread=options.unread_results, forget=pusher.forget, keep_latest=self.windows.keep_latest,
                            precision=precision, block=block, keys=options.keys, marks=options.marks)  # fmt: skip
        super().__init__(ground, made, workers=workers, encoder=encoder, payloads=payloads, pauser=pauser, pusher=pusher,
                         gatherer=gatherer, epochs=epochs,
                         beside=("emitter",) * made.emitter + tuple(f"merger-{k}" for k in range(len(made.mergers))))  # fmt: skip
        self._emitter = Emitter(made, workers, ground.slots, most) if made.emitter else None
        self._kept = _share_memory(made, workers, ground.slots, most)
        self._work = made.loop or work
        self._table = np.zeros((count, serve.T_FIELDS), np.int64)
        if epochs is not None:
            for worker in workers:
                worker.words[o.SLICED] = address(epochs.words)
                self._table[worker.number] = worker.tabled()

    def halt(self) -> None:
        super().halt()
        self.builders.halt()

    def stop(self) -> None:
        super().stop()
        late = self.builders.join(self.options.stall_after_s)
        if late is not None:
            raise RunError(f"{late.name} did not stop within {self.options.stall_after_s:g} s", do="Report this")

    # --- workers ---

    def _serve(self, thread: int) -> None:
        """The compiled loop, and what it asks for."""
        if self.epochs is not None:
            self._serve_shares(thread, self.epochs.words)
            return
        if thread >= len(self.workers):
            if self._emitter is not None:
                self._emit(self._emitter)
            else:
                self._merge(self.mergers[thread - len(self.workers)])
            return
        worker = self.workers[thread]
        arguments = (self.gate.words, self.control, self.arenas.table)
        while self.windows.see_to(worker, int(self._work(*worker.arguments(*arguments)))):
            pass

    def _emit(self, emitter: Emitter) -> None:
        """The Emitter's thread: it stands still when workers do."""
        while int(emit_tuples(*emitter.arguments(self.gate.words, self.control))) == o.HALTED:
            self.pauser.stand()

    def _merge(self, merger: Merger) -> None:
        """A merger's thread: it stands still when workers do."""
        while int(work_merger(*merger.arguments(self.control))) == o.HALTED:
            self.pauser.stand()

    def _serve_shares(self, thread: int, epochs: np.ndarray) -> None:
        """A thread of an elastic run: the same for the shares that are its own, whatever their numbers."""
        told = np.zeros(2, np.int64)
        while True:
            answer = int(
                serve.serve(self.gate.words, self.control, epochs, thread, self.arenas.table, self._table, told)
            )
            share = self.workers[int(told[0])]
            if not self.windows.see_to(share, answer):
                break
            if answer == o.GROW_PAIRS:
                self._table[share.number] = share.tabled()

    # --- what is going on ---

    def describe(self) -> list[str]:
        encoder = self.windows.encoder
        found = encoder.describe()
        if isinstance(encoder, AsofCodes):
            return found
        if self.windows.workers[0].parted is not None:
            tuples = " ".join(f"{int(w.words[shared.TUPLES]):,}" for w in self.workers)
            found.append(f"partitioned: {parting.told(self.windows.workers[0].parted)}; tuples by worker: {tuples}")
        return found + [f"probes into {encoder.names[side]}: {self._served(side)}" for side in (0, 1)]

    def _served(self, side: int) -> str:
        kinds = {o.SCAN: "scan", 1: "hash", 2: "grid", 3: "sorted"}
        return ", ".join(sorted({kinds[int(w.words[o.SERVED + side])] for w in self.workers}))

    def _windows_nbytes(self) -> int:
        return self.windows.nbytes

    def _loads(self) -> list[float]:
        """Nanoseconds that each share has worked, by its counters: what `rebalance()` spreads evenly."""
        counters = (shared.NS_READ, shared.NS_STORE, shared.NS_PROBE, shared.NS_EMIT)
        return [float(sum(int(w.words[c]) for c in counters)) for w in self.workers]


def _encoder(bound: Bound, options: Options) -> Encoder | AsofCodes:
    """What turns rows into typed columns: of an as-of join numbers of its `by` values, of other joins what the
    condition reads.
    """
    if isinstance(bound.node, Asof):
        return AsofCodes(bound)
    assert bound.predicate is not None
    left, right = (i.schema for i in bound.inputs)
    return Encoder(bound.predicate, left, right, index=options.index, cache_dir=options.cache_dir, plain=options.plain)


def _segments(query: Join | Asof, plan: Plan, encoder: Encoder | AsofCodes) -> tuple[list[Segment], list[Segment]]:
    reach = reach_of(query.window) if isinstance(query, Join) else None
    # How long a row is met: as far back as tuples of the other side look.
    stays_us = (0, 0) if reach is None or reach.counts else reach.back[::-1]
    noted = HOWS[query.how].whole if isinstance(query, Join) else ()

    def side_of(side: int) -> list[Segment]:
        return [
            Segment(
                side,
                len(plan.sharers(side, k)),
                encoder,
                matched=side in noted,
                parted=plan.parts is not None and reach is not None,
                stays_us=stays_us[side],
            )
            for k in range(plan.segments[side])
        ]

    return side_of(0), side_of(1)


def _workers(query: Join | Asof, plan: Plan, encoder: Encoder | AsofCodes, segments: tuple[list[Segment], list[Segment]],
             most: int, unread: int, arena_size: int) -> list[Worker]:  # fmt: skip
    reach: Reach | int
    if isinstance(query, Join):
        reach = reach_of(query.window)
    else:
        reach = -1 if query.within_us is None else query.within_us
    room = 1
    while room < max(unread, 1024):
        room *= 2
    return [
        Worker(
            k,
            plan,
            segments,
            encoder,
            reach,
            query.how,
            most=most,
            results=room,
            arena_mask=arena_size - 1,
            asof=AsofMemory(query, by_value=plan.parts is not None) if isinstance(query, Asof) else None,
        )
        for k in range(len(plan.seats))
    ]


def _share_memory(plan: Plan, workers: list[Worker], slots: int, most: int) -> list[Any]:
    """What workers of one strategy have in common beside windows; it has to be kept alive.

    Of SplitJoin the feeds of its tree; of a plan with a loop of its own the words that it asked for. Workers know
    addresses only, so the arrays are returned to be held.
    """
    kept = plant(plan, workers, slots) if plan.tree else []
    if plan.shared:
        kept.append(lines(plan.shared(len(workers), most)))
        for worker in workers:
            worker.words[o.SHARED], worker.words[o.CREW] = address(kept[-1]), len(workers)
    return kept
