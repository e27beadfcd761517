"""What runs behind a `Run` of a join: workers with their window segments, the condition's kernels, and the rings of results.

Sources, gate, errors and the end are every engine's (`engine`, `push`). A worker's loop is compiled
(`threads.join.loop.worker`); it comes back here to have memory grown or an index built, and all workers stand still meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.condition import judge
from plait.core.join.reach import Reach, reach_of
from plait.errors import PlaitError
from plait.query.bind import Bound
from plait.query.join import Asof, Join
from plait.threads.elastic import serve
from plait.threads.engine import Engine
from plait.threads.input.sources import Front
from plait.threads.join.asof import LAST_ID, LAST_REF
from plait.threads.join.asof_codes import AsofCodes
from plait.threads.join.columns import Encoder
from plait.threads.join.loop import layout as o
from plait.threads.join.loop.worker import work
from plait.threads.join.strategies.plan import Plan
from plait.threads.memory import Segment, Worker, address, lines, plant
from plait.threads.options import Options
from plait.threads.payload import Payload
from plait.threads.results import Gatherer

BATCH = 2048  # tuples a worker takes at once, unless batch= says otherwise


class JoinEngine(Engine[Worker]):
    """A join or an as-of join, by any strategy."""

    plan: Plan
    encoder: Encoder | AsofCodes
    gatherer: Gatherer

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Plan, options: Options,
                 front: Front | None = None) -> None:  # fmt: skip
        super().__init__(bound, schemas, made, options, front)
        assert isinstance(bound.node, (Join, Asof))
        self.payloads = {name: Payload(schemas[name], sparse=isinstance(bound.node, Asof)) for name in self.intakes}
        self.encoder = _encoder(bound, options)
        count, most = len(made.seats), min(options.batch or BATCH, 1 << 14)
        self._open_gate(count, most, switches=options.elastic is not None)
        self.segments = self._make_segments(bound.node)
        self.workers = self._make_workers(bound.node, most)
        self._kept = self._share_memory(most)
        self.work = made.loop or work
        self.kernels: Any = None  # until the first rows say which ones
        self._connect()
        left, right = self.names
        both = self.intakes[left], self.intakes[right]
        paid = self.payloads[left], self.payloads[right]
        self.gatherer = Gatherer(bound, both, paid, self.workers, self.control, self.latency,
                                 forget=self.pusher.forget, keep_latest=self._keep_latest, precision=options.precision(),
                                 keys=options.keys)  # fmt: skip
        if options.elastic is None:
            self._begin(lambda number: self._serve(self.workers[number]))
            return
        memory = self._share_out(count, options.workers or 1)
        self._table = np.zeros((count, serve.T_FIELDS), np.int64)
        for worker in self.workers:
            worker.words[o.SLICED], worker.words[o.ASOF] = address(memory), int(isinstance(bound.node, Asof))
            self._table[worker.number] = worker.tabled()
        self._begin(self._serve_shares)

    # --- memory ---

    def _make_segments(self, query: Join | Asof) -> tuple[list[Segment], list[Segment]]:
        reach = reach_of(query.window) if isinstance(query, Join) else None
        # How long a row is met: as far back as tuples of the other side look.
        stays_us = (0, 0) if reach is None or reach.counts else reach.back[::-1]
        matched = isinstance(query, Join) and query.how != "inner"

        def side_of(side: int) -> list[Segment]:
            return [
                Segment(side, len(self.plan.sharers(side, k)), self.encoder, matched=matched and side == 0,
                        stays_us=stays_us[side])
                for k in range(self.plan.segments[side])
            ]  # fmt: skip

        return side_of(0), side_of(1)

    def _make_workers(self, query: Join | Asof, most: int) -> list[Worker]:
        reach: Reach | int
        if isinstance(query, Join):
            reach = reach_of(query.window)
        else:
            reach = -1 if query.within_us is None else query.within_us
        count, room = len(self.plan.seats), 1
        while room < max(self.options.unread_results // count, 1024):
            room *= 2
        return [
            Worker(k, self.plan, self.segments, self.encoder, reach, query.how, most=most, results=room,
                   arena_mask=self.arena_rows - 1)
            for k in range(count)
        ]  # fmt: skip

    def _share_memory(self, most: int) -> list[Any]:
        """What workers of one strategy have in common beside windows; it has to be kept alive."""
        kept = plant(self.plan, self.workers, self.slots) if self.plan.tree else []
        if self.plan.shared:
            count = len(self.workers)
            kept.append(lines(self.plan.shared(count, most)))
            for worker in self.workers:
                worker.words[o.SHARED], worker.words[o.CREW] = address(kept[-1]), count
        return kept

    def _windows_nbytes(self) -> int:
        return sum(s.nbytes for side in self.segments for s in side)

    # --- workers ---

    def _serve(self, worker: Worker) -> None:
        """A worker's thread: the compiled loop, and what it asks for."""
        while self._go_on(worker, int(self.work(*worker.arguments(self.gate.words, self.control, self.arena)))):
            pass

    def _serve_shares(self, thread: int) -> None:
        """A thread of an elastic run: as `_serve`, for the shares that are its own, whatever their numbers."""
        assert self.epochs is not None
        told = np.zeros(2, np.int64)
        while True:
            answer = int(
                serve.serve(self.gate.words, self.control, self.epochs.words, thread, self.arena, self._table, told)
            )
            share = self.workers[int(told[0])]
            if not self._go_on(share, answer):
                break
            if answer == o.GROW_PAIRS:
                self._table[share.number] = share.tabled()

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
            if isinstance(error, PlaitError) or not self.encoder.shape.opaque:
                assert error is not None
                raise error
            raise judge.failed(self.encoder.shape, error) from error
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
                arena.convert(after[arena.side], self.encoder)
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

    # --- what is going on ---

    def describe(self) -> list[str]:
        found = self.encoder.describe()
        if isinstance(self.encoder, AsofCodes):
            return found
        return found + [f"probes into {self.encoder.names[side]}: {self._served(side)}" for side in (0, 1)]

    def _served(self, side: int) -> str:
        kinds = {o.SCAN: "scan", 1: "hash", 2: "grid", 3: "sorted"}
        return ", ".join(sorted({kinds[int(w.words[o.SERVED + side])] for w in self.workers}))

    def _loads(self) -> list[float]:
        counters = (o.NS_READ, o.NS_STORE, o.NS_PROBE, o.NS_EMIT)
        return [float(sum(int(w.words[c]) for c in counters)) for w in self.workers]


def _encoder(bound: Bound, options: Options) -> Encoder | AsofCodes:
    if isinstance(bound.node, Asof):
        return AsofCodes(bound)
    assert bound.predicate is not None
    left, right = (i.schema for i in bound.inputs)
    return Encoder(bound.predicate, left, right, index=options.index, cache_dir=options.cache_dir, plain=options.plain)
