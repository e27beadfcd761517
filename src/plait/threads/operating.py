"""What runs behind a `Run` of a user's operator: the gate, shares of its buckets, and the threads that serve them.

Sources, gate, errors, pauses and the end are those of joins (`engine`, `pushing`). Invariant: a share sees all tuples
in total order, and hands its buckets those that are routed to them; one thread at a time serves it (`gate.epochs`). So
each bucket sees its tuples in total order, alone, whoever serves it.

At the end of input time passes to the last tuple of all; then the timers run that are pending anywhere, and those that
they set if they are not later than the last of these. For that each share says what it has pending before any of them
goes on.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.gate import RingGate, codes, layout
from plait.operators import keys
from plait.operators import layout as o
from plait.operators.buckets import PlainBuckets, Rows, RowView, pairs
from plait.operators.compiled_buckets import made_for
from plait.operators.tuml import lay_out
from plait.order import AFTER_ALL, AFTER_INPUTS, BEFORE_ALL
from plait.query.bind import bind
from plait.query.operator import Operator
from plait.threads.aggregate_results import OrderedResults
from plait.threads.crew import BLOCKED, FINISHED, IDLE, WORKED, Crew, Taken, refused
from plait.threads.engine import Engine
from plait.threads.intake import Intake
from plait.threads.memory import lines
from plait.threads.options import Options, Sharing
from plait.threads.pausing import Pauser
from plait.threads.payload import Payload
from plait.threads.pushing import CHUNK, Pusher
from plait.threads.results import full_key
from plait.threads.routing import SEVERAL, Router
from plait.threads.stats import Latency, Stats, variation_percent

BATCH = 1 << 12  # tuples a thread takes of a share at once, unless batch= says otherwise


class Share:
    """One share's memory: its buckets, tuples taken for it, and counters laid out as a worker's."""

    def __init__(self, number: int, buckets: Any, most: int) -> None:
        self.number, self.buckets = number, buckets
        self.words = lines(o.WORDS)
        self.taken = Taken(most)
        kinds = 1 + (0 if not buckets.compiled else buckets.width)
        self.kinds = np.ones(kinds, np.int64)
        self.wide, self.narrow = np.zeros((kinds, most), np.int64), np.zeros((1, 1), np.uint8)
        self.passed, self.rank = BEFORE_ALL, 0
        self.ending = False  # it has said what is pending
        self.pending: int | None = None


class OperatorEngine(Engine):
    """What runs, once all streams' columns are known."""

    def __init__(self, query: Operator, schemas: Mapping[str, pa.Schema], made: Sharing, options: Options) -> None:
        self.sharing, self.options = made, options
        self.bound = bound = bind(query, schemas)
        streams = query.streams()
        names = [node.name for node in query.inputs]
        inputs = {name: tuple(k for k, n in enumerate(names) if n == name) for name in streams}
        self.intakes = {name: Intake(streams[name], schemas[name]) for name in streams}
        self.payloads = {name: Payload(schemas[name]) for name in streams}
        self._of_input = [self.payloads[str(name)] for name in names]
        self._intake_of_input = [self.intakes[str(name)] for name in names]
        shares = made.shares
        slots = options.max_sources or self._slots(streams, inputs)
        pending = options.pending or min(max((1 << 21) // slots, 1 << 13), 1 << 16)
        self.gate = RingGate([(0, 0)], readers=shares, capacity=options.capacity, pending=max(pending, 2),
                             max_sources=slots + 1, names=[""])  # fmt: skip
        self.control = lines(o.CONTROL_WORDS)
        self.most = options.batch or BATCH
        arena_rows = 1
        while arena_rows < int(self.gate.words[layout.RING]) + self.most + CHUNK:
            arena_rows *= 2
        self._arena_mask = arena_rows - 1
        self.compiled, self.why_plain = (None, "plain=True") if options.plain else made_for(bound, options.cache_dir)
        self.encoder = Router(bound, self.compiled, self._go_plain)  # type: ignore[assignment]
        made_shares = [
            Share(k, PlainBuckets(query) if self.compiled is None else self.compiled.buckets(k, shares), self.most)
            for k in range(shares)
        ]
        self.workers = made_shares  # type: ignore[assignment]
        width = 2 + (0 if self.compiled is None else len(self.compiled.layout()))
        self.arena = np.zeros((slots, max(o.A_WORDS, o.A_COLUMNS + width)), np.int64)
        self.latency = Latency()
        self.error: BaseException | None = None
        self._stopped = False
        self.began = time.monotonic()
        self.pauser = Pauser(self.gate.words, self.control, shares, self.waiting, options.stall_after_s)
        self._started, self._ticked = False, 0
        self._reached = BEFORE_ALL  # the last frontier before the end of input
        self.pusher = Pusher(
            self.gate, self.intakes, inputs, self.payloads, self.encoder, self.arena, arena_rows, self.latency,
            widen=self._widen, rank=self._rank, check=self.check, waits=self.waiting, progressed=self._progressed,
            stall_after_s=options.stall_after_s,
        )  # fmt: skip
        memory = self._share_out(shares, made.workers)
        self.results_ = OrderedResults(bound, shares, self.latency, keys=options.keys, room=options.unread_results)
        self.gatherer = self.results_  # type: ignore[assignment]
        self.crew = Crew(self.gate.words, self.control, memory, self._step, self._pause)
        self.memory_ = memory
        self.threads = [
            threading.Thread(target=self._serve_crew, args=(share,), name=f"plait-operator-{k}", daemon=True)
            for k, share in enumerate(self.workers)
        ]
        self._started = True
        for thread in self.threads:
            thread.start()

    def _widen(self) -> None:
        """Columns have one type for good."""

    def _go_plain(self, why: str) -> None:
        """From compiled functions to plain Python, which goes on with the same states."""
        with self.pauser.still():
            for share in self.workers:
                share.buckets = share.buckets.plain()  # type: ignore[attr-defined]
            self.compiled, self.why_plain = None, why

    # --- calls of Run ---

    def push(self, *arguments: Any) -> None:
        super().push(*arguments)
        self._note_frontier()

    def heartbeat(self, *arguments: Any) -> None:
        super().heartbeat(*arguments)
        self._note_frontier()

    def close(self, *arguments: Any) -> None:
        super().close(*arguments)
        self._note_frontier()

    def _note_frontier(self) -> None:
        frontier = self.gate.frontier()[0]
        if frontier < AFTER_ALL:
            self._reached = max(self._reached, frontier)

    # --- threads ---

    def _step(self, number: int) -> int:
        """Take ready tuples of a share, hand them to their buckets, and what comes out to the reader of results."""
        share: Share = self.workers[number]  # type: ignore[assignment]
        w = share.words
        if self.results_.crowded(number):
            w[o.WAITS] = o.FOR_CONSUMER
            return BLOCKED
        began = time.monotonic_ns()
        n, frontier = share.taken.next(self.gate.words, self.memory_, number, self.most)
        w[o.WAITS] = o.FOR_TUPLES if n == 0 else o.NOTHING
        if n == codes.DONE:
            return self._end(share)
        if n < 0:
            refused(n, number, self._stopped or self.error is not None)
        worked = n > 0 or frontier > share.passed
        if worked:
            read = time.monotonic_ns()
            w[o.NS_READ] += read - began
            self._update(share, n, frontier)
            w[o.NS_STORE] += time.monotonic_ns() - read
        epoch = share.taken.epoch
        if epoch:
            self.crew.hand_on(number, epoch)  # from here on the share is another's
        return WORKED if worked or epoch else IDLE

    def _update(self, share: Share, n: int, frontier: int) -> None:
        ts, origin, seq, ref = (column[:n] for column in share.taken.rows)
        lay_out(n, origin, seq, self.arena, self._arena_mask, share.kinds, share.wide, share.narrow)
        which, buckets = pairs(
            share.wide[0, :n],
            lambda i: self._several(int(origin[i]), int(seq[i])),
            share.number,
            self.sharing.shares,
            self.bound.node.buckets,  # type: ignore[union-attr]
        )
        if len(which):
            if not share.buckets.compiled:
                share.buckets.take(ts, share.rank, which, buckets, self._views(ts, origin, ref, np.unique(which)))
            else:
                share.buckets.take(ts, origin >> 32, share.rank, which, buckets, share.wide[1:, :n])
        share.buckets.pass_time(frontier)
        w = share.words
        w[o.TUPLES] += n
        w[o.BATCHES] += 1
        w[o.COMPARISONS] = share.buckets.calls
        rows = self._rows(share, origin, ref)
        share.rank += n
        share.passed = max(share.passed, frontier)
        w[o.RANK] = share.rank
        self.results_.offer(share.number, rows, share.passed)
        least = min(s.passed for s in self.workers)  # type: ignore[attr-defined]
        for payload in self.payloads.values():
            payload.expire(least)

    def _several(self, origin: int, seq: int) -> tuple[int, ...]:
        found: tuple[int, ...] = self.pusher.arenas[origin & o.SLOT_MASK].columns[SEVERAL][seq & self._arena_mask]
        return found

    def _views(self, ts: np.ndarray, origin: np.ndarray, ref: np.ndarray, own: np.ndarray) -> Any:
        """A tuple by its place in the batch, for those in `own`."""
        by_input: dict[int, tuple[Rows, dict[int, int]]] = {}
        of = origin[own] >> 32
        for side in np.unique(of).tolist():
            places = own[of == side]
            table = self._of_input[side].take(ref[places], extra=False)
            rows = Rows(table, ts[places], self.encoder.names[side])
            by_input[side] = (rows, {place: k for k, place in enumerate(places.tolist())})

        def view(i: int) -> RowView:
            rows, at = by_input[int(origin[i]) >> 32]
            return rows.view(at[i])

        return view

    def _rows(self, share: Share, origin: np.ndarray, ref: np.ndarray) -> list[tuple[pa.RecordBatch, np.ndarray]]:
        """What has come out, as rows with their places."""
        out, columns = share.buckets.taken_out()
        if not len(out.ts):
            return []
        share.words[o.RESULTS] += len(out.ts)
        places = np.array([out.ts, out.rank, out.bucket], np.int64)
        arrays = [pa.array(places[0]).cast(self.bound.schema.field(0).type), *columns]
        if self.options.keys:
            arrays.append(self._keys(out, places, origin, ref))
        return [(pa.RecordBatch.from_arrays(arrays, schema=self.results_.schema), places)]

    def _keys(self, out: Any, places: np.ndarray, origin: np.ndarray, ref: np.ndarray) -> pa.Array:
        """((the tuple's key), bucket, index), or ((ts, AFTER_INPUTS), bucket, index) for a timer's."""
        cause = np.array(out.cause, np.int64)
        causes = np.full(len(cause), None, object)
        timed = cause < 0
        if timed.any():
            m = int(timed.sum())
            causes[timed] = keys.join(keys.ints(places[0][timed]), keys.constant(AFTER_INPUTS, m), n=m).to_pylist()
        sides = np.where(timed, -1, (origin[cause] if len(origin) else cause) >> 32)
        for side in np.unique(sides[~timed]).tolist():
            at = np.flatnonzero(sides == side)
            rows = self._of_input[side].take(ref[cause[at]])
            causes[at] = full_key(self._intake_of_input[side], side, rows, len(at)).to_pylist()
        n = len(cause)
        nested = keys.nest(pa.array(causes.tolist(), pa.binary()), n=n)
        return keys.join(nested, keys.ints(places[2]), keys.ints(np.array(out.index, np.int64)), n=n)

    def _end(self, share: Share) -> int:
        """The input has ended: see the module."""
        empty = np.empty(0, np.int64)
        if not share.ending:
            known = [s.largest for intake in self.intakes.values() for s in list(intake.sources.values())]
            share.buckets.pass_time(max([self._reached, *known]))
            self.results_.offer(share.number, self._rows(share, empty, empty), share.passed)
            share.pending = share.buckets.last_timer()
            share.ending = True
            return WORKED
        shares: list[Share] = self.workers  # type: ignore[assignment]
        if not all(s.ending for s in shares):
            return BLOCKED
        due = [s.pending for s in shares if s.pending is not None]
        if due:
            share.buckets.pass_time(max(due))
        self.results_.offer(share.number, self._rows(share, empty, empty), AFTER_ALL)
        return FINISHED

    # --- what is going on ---

    def describe(self) -> list[str]:
        if self.compiled is None:
            return [f"the operator's functions run in plain Python: {self.why_plain}"]
        return self.compiled.describe()

    def _served(self, side: int) -> str:
        return "buckets"

    def _loads(self) -> list[float]:
        return [float(w.words[o.NS_STORE] + w.words[o.NS_READ]) for w in self.workers]

    def stats(self) -> Stats:
        self.plan, self.segments = self.sharing, ([], [])  # type: ignore[assignment]
        made = super().stats()
        return dataclasses.replace(made, balance_cv_percent=variation_percent([w.comparisons for w in made.workers]))
