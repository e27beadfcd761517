"""From a user's batch to the gate: time, source, judgement, payload, order in the source, columns, and then the tuples.

A batch is cut into parts, one for each source that it has rows of (`push`). Each part is judged (`StreamIntake.admit`), its
rows are kept (`_keep`), it waits for others of its source if it must (`StreamIntake.release`), and what leaves there enters
the gate (`_enter`).

The order matters. A row's payload is kept and its columns are in its source's arena before the gate has its tuple;
after that any worker may read it. An arena has room for what the gate can hold of the source, for what a worker has
taken and not copied yet, and for one chunk that waits in front: so the place that a chunk is written to is nobody's.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from plait.connectors import memory as tables
from plait.core.machine.marks import compiling
from plait.core.sources import has_ended, judge_next, may_be_behind, told
from plait.errors import DataError, PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName, Stream
from plait.schema import taken, to_micros
from plait.threads.elastic.manager import Epochs
from plait.threads.gate import codes
from plait.threads.gate.gates import inside
from plait.threads.ground import Ground
from plait.threads.input.arenas import CHUNK
from plait.threads.input.inlets import AtGate, Inlets
from plait.threads.input.intake import EMPTY, NO_TIES, Inlet, StreamIntake, content_keys
from plait.threads.parts import Encodes
from plait.threads.pause import Pauser

SLICE_NS = 20_000_000


def batches_of(stream: Stream, schema: pa.Schema | None, data: Any) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Arrow batches out of whatever was pushed, in the stream's schema, or the one it now turns out to have."""
    if isinstance(data, pa.RecordBatch) and schema is not None and data.schema.equals(schema):
        return schema, [data]
    declared = stream if stream.schema is not None or schema is None else _declared(stream, schema)
    if isinstance(data, Mapping) and data and all(isinstance(v, (pa.Table, pa.RecordBatch)) for v in data.values()):
        raise DataError(f"Stream {stream.name!r}: several tables in one push", do="Push each with its source")
    one = _declared(declared, declared.schema, source=None)
    feed = tables.feed(one, data)
    return feed.schema, [chunk.batch for lane in feed.lanes for chunk in lane.read()]


def _declared(stream: Stream, schema: pa.Schema | None, source: Any = ...) -> Stream:
    """The stream as one whose sources nobody names, so that one table is one table; with a schema to hold data against."""
    changes: dict[str, Any] = {"schema": schema}
    if source is None:
        changes |= {"source": None, "sources": None}
    return dataclasses.replace(stream, **changes)


class Part(NamedTuple):
    """What a batch has of one source."""

    name: SourceName
    batch: pa.RecordBatch
    ts: np.ndarray
    rows: np.ndarray | None  # their numbers in the user's batch; None: it is all of it


def one_type() -> None:
    """Columns have one type for good: there is nothing to widen."""


class Pusher(Inlets):
    """What comes of the sources. Any thread may push; one at a time pushes a source.

    `payloads` by stream; `rows` how many were taken in; `_armed` whether `widen` has been called once. Locks of a
    push, in this order: the inlet's `lock` and `turn`, then `_encoding` for each chunk.
    """

    def __init__(self, ground: Ground, pauser: Pauser, payloads: Mapping[str, Any], encoder: Encodes, *,
                 widen: Callable[[], None], epochs: Epochs | None = None) -> None:  # fmt: skip
        """`widen` changes how columns are stored; `epochs`: of an elastic run, whose switches go through the gate, too."""
        self.payloads, self.latency, self.epochs = payloads, ground.latency, epochs
        self._widen, self._stall = widen, ground.options.stall_after_s
        self._armed = False
        self.rows = 0
        super().__init__(ground, pauser, encoder)

    def _written(self, slot: int, progress: int) -> None:
        """A source is about to promise that nothing below comes any more."""

    def promise_for(self, silent: AtGate, ts: int) -> None:
        """A silent source does not hold the frontier below `ts`; unless it has begun to speak by now.

        The clock never waits for a push, nor is it taken for one: who pushes while the clock is here waits until it has gone.
        """
        intake, inlet, slot = silent.intake, silent.inlet, silent.slot
        lock = self._joining if inlet is None else inlet.turn
        if not lock.acquire(blocking=False):
            return
        try:
            if inlet is None:
                if self._nobody.get(intake.stream.name) == slot:
                    self._answer(slot, self.gate.heartbeat(slot, ts))
            elif not inlet.ended:
                inlet.let_go = max(inlet.let_go, ts)
                self._advance(intake, inlet)
        finally:
            lock.release()

    # --- pushing ---

    def push(self, intake: StreamIntake, name: SourceName | None, batch: pa.RecordBatch) -> None:
        """A batch of one stream, in its schema; `name` is the source, None where the stream has one or a column names
        it.

        Sources are taken one after the other. A row that is refused stops the run (`run`), so nobody sees what a half
        of its batch would give.
        """
        stream = intake.stream
        pushed_ns = time.monotonic_ns()
        ts = to_micros(
            batch.column(batch.schema.get_field_index(stream.time)), stream.unit, stream=stream.name, name=stream.time
        )
        if intake.ended:
            raise has_ended(stream)
        if stream.source_column is None:
            parts = [Part(intake.named(name), batch, ts, None)]
        else:
            parts = []
            for own, rows in intake.split(batch):
                part, times = (batch, ts) if len(rows) == len(ts) else (taken(batch, rows), ts[rows])
                parts.append(Part(intake.named(own, f"row {int(rows[0])}"), part, times, rows))
        # All sources of a batch are there before the first one's rows are: else these could leave the others behind.
        self._let_in(intake, [part for part in parts if part.name not in intake.inlets])
        for part in parts:
            self._push(intake, part, pushed_ns)

    def _let_in(self, intake: StreamIntake, new: list[Part]) -> None:
        """Make sources known that were not. Their rows are judged before: once let in, they would hold the frontier.

        A source whose first rows are behind, where that is an error, must not be left at the gate without rows.
        """
        released = self._bound(intake)
        for name, _, ts, rows in new:
            _, found = judge_next(intake.stream, ts, BEFORE_ALL, BEFORE_ALL, released)
            if found is not None and found.offence is not None and found.offence.kind == "behind":
                raise intake.refusal(name, found.offence, rows, idle=False)
        for part in new:
            self._inlet(intake, part.name, released)

    def _bound(self, intake: StreamIntake) -> int:
        """What a tuple that comes now is behind, if it lies below."""
        return self._released() if may_be_behind(intake.stream) else BEFORE_ALL

    def _push(self, intake: StreamIntake, part: Part, pushed_ns: int) -> None:
        stream, inlet = intake.stream, intake.inlets[part.name]
        with _Inside(inlet, stream.name):
            batch, ts, positions = intake.admit(inlet, part.batch, part.ts, part.rows, self._bound(intake))
            if not len(ts):
                self._advance(intake, inlet)
                return
            ties = content_keys(batch) if intake.by_content else NO_TIES
            if intake.by_content and intake.positions:
                positions = intake.numbered(inlet, ts, ties)
            refs = self._keep(intake, inlet, batch, ts, positions, pushed_ns)
            progress = inlet.progress(stream)
            out, out_ts, out_ref = intake.release(inlet, batch, ts, refs, progress, ties)
            self._enter(intake, inlet, out, out_ts, out_ref, progress)

    def _keep(self, intake: StreamIntake, inlet: Inlet, batch: pa.RecordBatch, ts: np.ndarray, positions: np.ndarray,
              pushed_ns: int) -> np.ndarray:  # fmt: skip
        """Keep whole rows; gives the numbers under which they are found."""
        with self._encoding:
            stamp = self.encoder.stamp + 1
        first = self.payloads[intake.stream.name].append(batch, ts, inlet.number, positions, pushed_ns, stamp)
        self.rows += len(ts)
        intake.taken += len(ts)
        return np.arange(first, first + len(ts)) if intake.positions else np.broadcast_to(np.int64(first), len(ts))

    def bring(self, intake: StreamIntake, batch: pa.RecordBatch, ts: np.ndarray, until: int) -> None:
        """Results of another operator: in order, and by construction neither late nor behind. `until`: its frontier."""
        inlet = intake.inlets[0]
        with _Inside(inlet, intake.stream.name):
            if len(ts) == 0:
                self._promise(inlet, until)
                return
            positions = np.arange(inlet.delivered + 1, inlet.delivered + len(ts) + 1)
            inlet.delivered += len(ts)
            refs = self._keep(intake, inlet, batch, ts, positions, time.monotonic_ns())
            self._enter(intake, inlet, batch, ts, refs, until)

    def _advance(self, intake: StreamIntake, inlet: Inlet, progress: int | None = None) -> None:
        """Progress without rows: a heartbeat, an end, or a batch of which nothing was left."""
        if progress is None:
            progress = inlet.progress(intake.stream)
        if intake.reorders:
            self._enter(intake, inlet, *intake.release(inlet, None, EMPTY, EMPTY, progress), progress)
            return
        self._promise(inlet, progress)

    def _promise(self, inlet: Inlet, progress: int) -> None:
        """Promise at each of a source's places: `_written` first (the W-Hive hears of it), then the gate.

        The latency clock is told when the frontier began to move.
        """
        if progress == BEFORE_ALL:
            return
        began = time.monotonic_ns()
        for slot in inlet.slots.values():
            self._written(slot, progress)
            self._answer(slot, self.gate.heartbeat(slot, progress))
        self.latency.advanced(self.gate.frontier()[0], began)

    def _enter(self, intake: StreamIntake, inlet: Inlet, rows: pa.Table | pa.RecordBatch, ts: np.ndarray, ref: np.ndarray,
               progress: int) -> None:  # fmt: skip
        """Rows of one source, in order, through the arena into the gate, a chunk at a time."""
        n = len(ts)
        if n == 0:
            self._promise(inlet, progress)
            return
        seq = np.arange(inlet.added, inlet.added + n)
        ts = np.ascontiguousarray(ts)
        for first in range(0, n, CHUNK):
            last = min(first + CHUNK, n)
            whole = first == 0 and last == n
            part = rows if whole else rows.slice(first, last - first)
            self._write(intake, inlet, part, ts[first:last])
            now = progress if last == n else int(ts[last - 1])
            for slot in inlet.slots.values():
                self._add(slot, ts, seq, ref, first, last, now, result=self._is_result(intake.stream.name))
            inlet.added += last - first

    def _write(self, intake: StreamIntake, inlet: Inlet, rows: pa.Table | pa.RecordBatch, ts: np.ndarray) -> None:
        with self._encoding:
            for input, slot in inlet.slots.items():
                made: Any = self.encoder.rows(input, rows, ts)
                if self.encoder.admit(input, made) or not self._armed:
                    self._widen()
                    self._armed = True  # the kernels are there: nothing was probed before the first rows
                self.arenas.by_slot[slot].write(inlet.added, made, self.encoder.encoded(input, made))

    def forget(self, stamp: int) -> None:
        """Text that only rows pushed before `stamp` hold has no code any more."""
        if not self._encoding.locked():
            with self._encoding:
                self.encoder.forget(stamp)

    def _add(self, slot: int, ts: np.ndarray, seq: np.ndarray, ref: np.ndarray, first: int, last: int, progress: int, *,
             result: bool) -> None:  # fmt: skip
        """`result`: another operator's, so nobody is told that the run stalls: whoever pushes streams will be.

        FULL: workers or the reader of results are behind; wait, and fail only if nothing at all has moved for
        `stall_after_s`. STUCK: another source holds the frontier; waiting would be for ever if this very thread feeds
        it, so that is an error, but for a query of queries (`patient`) and for a switch that is being inserted.
        """
        gate, done, patience = self.gate, first, 3
        since, seen = time.monotonic(), -1
        while done < last:
            began = time.monotonic_ns()
            # Tuples that only wait for other operators will be ready without another push: wait for that.
            patient = not result and self.front is not None and gate.frontier()[0] < self.front.released
            number = int(gate.kind.add_waiting(gate.words, slot, ts, seq, ref, done, last, progress, SLICE_NS, patient))
            if number > 0:
                done += number
                self.latency.advanced(gate.frontier()[0], began)
                since = time.monotonic()
            elif number == codes.FULL or (number == codes.STUCK and patient):
                self._together.check()
                moved = self._together.progressed()
                if moved != seen or result or compiling():
                    since, seen = time.monotonic(), moved
                elif time.monotonic() - since > self._stall:
                    raise RunError(
                        f"push of {gate.name(slot)} waited {self._stall:g} s for the workers; {self._together.waiting()}",
                        why=f"a source may have {gate.capacity} ready tuples that a worker has not read",
                        do="Read results() in another thread while you push, or raise capacity= and unread_results=",
                    )
            elif number == codes.STUCK:
                if patience > 0 and self.epochs is not None:
                    # A switch that is being inserted holds the frontier for a moment.
                    patience -= 1
                    with self.epochs.lock:
                        continue
                tuples = f"{gate.name(slot)} has {gate.pending} tuples"
                raise self._crowded(slot) if result else self._stuck(tuples)
            else:
                self._answer(slot, number)

    def _crowded(self, slot: int) -> PendingError:
        return PendingError(
            f"{self.gate.name(slot)} has more than {self.gate.pending} results of one ts",
            why="results of one ts have to be there before any of them is ready for the next operator",
            do="Raise pending=",
        )

    # --- promises and ends ---

    def heartbeat(self, intake: StreamIntake, name: SourceName, ts: int) -> None:
        inlet = self._inlet(intake, intake.named(name), self._released())
        with _Inside(inlet, intake.stream.name):
            if inlet.ended or intake.ended:
                raise has_ended(intake.stream, name, came="a heartbeat")
            inlet.heartbeat, inlet.spoke_ns = max(inlet.heartbeat, ts), time.monotonic_ns()
            self._advance(intake, inlet)

    def end(self, intake: StreamIntake, name: SourceName | None) -> None:
        """End one source, or with None all of the stream's, those to come included."""
        if name is not None:
            self._end(intake, self._inlet(intake, intake.named(name), self._released()))
            return
        with self._joining:
            intake.ended = True  # so no source comes that the end would not meet
        for inlet in intake.inlets.values():
            self._end(intake, inlet)
        with self._joining:
            self._nobody_any_more(intake)
        self.latency.advanced(self.gate.frontier()[0], time.monotonic_ns())

    def _end(self, intake: StreamIntake, inlet: Inlet) -> None:
        with _Inside(inlet, intake.stream.name):
            if inlet.ended:
                return
            inlet.ended = True
            if intake.reorders:
                rows = intake.release(inlet, None, EMPTY, EMPTY, AFTER_ALL)
                if len(rows[1]):
                    self._enter(intake, inlet, *rows, int(rows[1][-1]))
            began = time.monotonic_ns()
            for slot in inlet.slots.values():
                self._written(slot, AFTER_ALL)
                self._answer(slot, self.gate.end(slot))
            self.latency.advanced(self.gate.frontier()[0], began)


class _Inside:
    """One thread at a time pushes a source; a second one is told so at once.

    The clock may be there for a moment: it is waited for.
    """

    def __init__(self, inlet: Inlet, stream: str) -> None:
        self._inlet, self._who = inlet, told(stream, inlet.name)

    def __enter__(self) -> None:
        if not self._inlet.lock.acquire(blocking=False):
            raise inside(self._who)
        self._inlet.turn.acquire()

    def __exit__(self, *_: object) -> None:
        self._inlet.turn.release()
        self._inlet.lock.release()
