"""From a user's batch to the gate: time, source, judgement, payload, order in the source, columns, and then the tuples.

A batch is cut into parts, one for each source that it has rows of (`push`). Then come the steps of `_push`, in this order: a
part is judged (`judged`; what late and behind are is `core/sources.py`'s to say), its rows are kept whole (`_keep`), it
waits for others of its source if it must (`in_order`), and what leaves there enters the gate (`_enter`): its columns are
written into the source's arena (`_write`), its tuples added (`_add`).

A source's tuples enter in the order of (ts, seq): at once if it may not run back; else, or where content orders ties, once
no tuple can come that would go before them (`sequence`).

The order matters. A row's payload is kept and its columns are in its source's arena before the gate has its tuple;
after that any worker may read it. Sources are pushed side by side, and no lock is common to all of them: how columns are
stored is changed under `_encoding`, and while it is, nobody writes columns (`_laid`, `_store_otherwise`). An arena has room
for what the gate can hold of the source, for what a worker has taken and not copied yet, and for one chunk that waits in
front: so the place that a chunk is written to is nobody's.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors import memory as tables
from plait.core.machine.marks import compiling
from plait.core.row_by_row import changed
from plait.core.sources import Offence, has_ended, judge_next, may_be_behind, refusal
from plait.errors import DataError, PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName, Stream
from plait.schema import taken, to_micros
from plait.threads.elastic.manager import Epochs
from plait.threads.gate import codes
from plait.threads.ground import Ground
from plait.threads.input.arenas import CHUNK, Arena
from plait.threads.input.inlets import AtGate, Inlets
from plait.threads.input.intake import EMPTY, Inlet, Inside, StreamIntake
from plait.threads.input.sequence import NOTHING, Admitted, Part, check_seq, content_keys, in_order, numbered
from plait.threads.input.short import ReadsOf, short_way
from plait.threads.life.pause import Pauser
from plait.threads.parts import Encodes

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


def one_type() -> None:
    """Columns have one type for good: there is nothing to widen."""


class Pusher(Inlets):
    """What comes of the sources. Any thread may push; one at a time pushes a source.

    `payloads` by stream; `_armed`: `widen` has been called once; `_rewriting`: columns are being stored in another way.
    Locks of a push, in this order: the inlet's `lock` and `turn`, and `_encoding` for a chunk that does not fit.

    `_rewriting` and the inlets' `laying` are Dekker's two flags: each side raises its own before it looks at the other's. So
    either who writes a source's columns sees that they are being rewritten, and gives way; or who rewrites them sees that
    they are being written, and waits. A flag that an interrupt leaves raised stops nobody: it stops the run, and who waits
    looks at that.
    """

    def __init__(self, ground: Ground, pauser: Pauser, payloads: Mapping[str, Any], encoder: Encodes, *,
                 widen: Callable[[], None], reads: ReadsOf | None = None, epochs: Epochs | None = None) -> None:  # fmt: skip
        """`widen` changes how columns are stored; `reads`: what compiled code can take of usual batches (`short`);
        `epochs`: of an elastic run, whose switches go through the gate, too."""
        self.payloads, self.latency, self.epochs = payloads, ground.latency, epochs
        self._widen = widen
        self._armed = self._rewriting = False
        super().__init__(ground, pauser, encoder)
        ways = {
            name: short_way(intake, payloads[name], reads, encoder, ground.arenas, ground.inputs[name])
            for name, intake in self.intakes.items()
            if reads is not None
        }
        self._short = {name: way for name, way in ways.items() if way is not None}

    @property
    def rows(self) -> int:
        """How many were taken in."""
        return sum(intake.taken for intake in self.intakes.values())

    # --- pushing: the way of a batch, step by step ---

    def push(self, intake: StreamIntake, name: SourceName | None, batch: pa.RecordBatch) -> None:
        """A batch of one stream, in its schema; `name` is the source, None where the stream has one or a column names
        it.

        Sources are taken one after the other. A row that is refused stops the run (`run`), so nobody sees what a half
        of its batch would give.
        """
        pushed_ns, done = time.monotonic_ns(), 0
        if intake.stream.name in self._short:
            done = self._pushed_at_once(intake, name, batch, pushed_ns)
            if done == batch.num_rows > 0:
                return
        parts = parts_of(intake, name, batch, done)
        # All sources of a batch are there before the first one's rows are: else these could leave the others behind.
        self._let_in(intake, [part for part in parts if part.name not in intake.inlets])
        for part in parts:
            self._push(intake, part, pushed_ns)

    def _pushed_at_once(self, intake: StreamIntake, name: Any, batch: pa.RecordBatch, pushed_ns: int) -> int:
        """A batch of a source that is known, by the short way, as far as it is usual: how many rows. Nothing is changed of the
        others. Many rows go a chunk at a time.
        """
        inlet, done, n = (
            intake.inlets.get(0 if name is None else name) if type(name) is not bool else None,
            0,
            batch.num_rows,
        )
        if inlet is None or inlet.ended or intake.ended:
            return 0
        with Inside(inlet, intake.stream.name):
            while done < n:
                chunk = batch if n <= CHUNK else batch.slice(done, CHUNK)
                if not self._entered_at_once(intake, inlet, chunk, pushed_ns):
                    break
                done += chunk.num_rows
        return done

    def _entered_at_once(self, intake: StreamIntake, inlet: Inlet, chunk: pa.RecordBatch, pushed_ns: int) -> bool:
        """At most a chunk of rows by the short way; false, and nothing is changed, if they are not usual."""
        (slot,) = inlet.slots.values()
        low = max(inlet.largest, inlet.heartbeat, self._bound(intake))
        inlet.laying = True  # as in `_laid`
        try:
            if self._rewriting or not self._armed:
                return False
            entered = self._short[intake.stream.name].enter(inlet, slot, chunk, low, pushed_ns)
        finally:
            inlet.laying = False
        if entered is None:
            return False
        ts, seq, refs = entered
        n = len(ts)
        inlet.largest, inlet.spoke_ns = int(ts[-1]), time.monotonic_ns()
        inlet.delivered += n
        inlet.taken += n
        self._add(slot, ts, seq, refs, 0, n, inlet.progress(intake.stream), result=False)
        inlet.added += n
        return True

    def _push(self, intake: StreamIntake, part: Part, pushed_ns: int) -> None:
        """What happens to one source's rows. One thread at a time is in here for a source."""
        inlet = intake.inlets.get(part.name)
        if inlet is None:
            raise has_ended(
                intake.stream, part.name, at=part.at(0) if len(part.ts) else ""
            )  # by another thread, meanwhile
        with Inside(inlet, intake.stream.name):
            admitted = judged(intake, inlet, part, self._bound(intake))
            if not len(admitted.ts):
                self._advance(intake, inlet)
                return
            refs = self._keep(intake, inlet, admitted, pushed_ns)
            progress = inlet.progress(intake.stream)
            self._enter(intake, inlet, *in_order(intake, inlet, admitted, refs, progress), progress)

    def _let_in(self, intake: StreamIntake, new: list[Part]) -> None:
        """Make sources known that were not. Their rows are judged before: once let in, they would hold the frontier.

        A source whose first rows are behind, where that is an error, must not be left at the gate without rows.
        """
        released = self._bound(intake)
        for part in new:
            _, found = judge_next(intake.stream, part.ts, BEFORE_ALL, BEFORE_ALL, released)
            if found is not None and found.offence is not None and found.offence.kind == "behind":
                raise _refused(intake, part, found.offence, idle=False)
        for part in new:
            self._inlet(intake, part.name, released)

    def _bound(self, intake: StreamIntake) -> int:
        """What a tuple that comes now is behind, if it lies below."""
        return self._released() if may_be_behind(intake.stream) else BEFORE_ALL

    def _keep(self, intake: StreamIntake, inlet: Inlet, admitted: Admitted, pushed_ns: int | np.ndarray) -> np.ndarray:
        """Keep whole rows; gives the numbers under which they are found."""
        batch, ts, positions, _ = admitted
        stamp = self.encoder.stamp + 1
        first = self.payloads[intake.stream.name].append(batch, ts, inlet.number, positions, pushed_ns, stamp)
        inlet.taken += len(ts)
        if intake.positions or not isinstance(pushed_ns, int):
            return np.arange(first, first + len(ts))
        return np.broadcast_to(np.int64(first), len(ts))  # when it was pushed is all that is asked of a row

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
        """What the operator reads of these rows, as columns, into the arena of each of the source's places."""
        for input, slot in inlet.slots.items():
            made: Any = self.encoder.rows(input, rows, ts)
            while not self._laid(inlet, input, slot, made):
                self._store_otherwise(input, made)

    def _laid(self, inlet: Inlet, input: int, slot: int, made: Any) -> bool:
        """Write a chunk's columns; false if they are being rewritten, or have to be, to hold it."""
        inlet.laying = True
        try:
            if self._rewriting or not self._armed or not self.encoder.fits(input, made):
                return False
            _lay_down(self.arenas.by_slot[slot], inlet.added, made, self.encoder.encoded(input, made))
            return True
        finally:
            inlet.laying = False

    def _store_otherwise(self, input: int, made: Any) -> None:
        """Have columns stored so that they hold a chunk, while nobody writes any."""
        with self._encoding:
            self._rewriting = True
            try:
                while any(inlet.laying for intake in self.intakes.values() for inlet in intake.inlets.values()):
                    self._together.check()
                    time.sleep(20e-6)
                if self.encoder.admit(input, made) or not self._armed:
                    self._widen()
                    self._armed = True  # the kernels are there: nothing was probed before the first rows
            finally:
                self._rewriting = False

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

    def bring(
        self, intake: StreamIntake, batch: pa.RecordBatch, ts: np.ndarray, pushed_ns: np.ndarray, until: int
    ) -> None:
        """Results of another operator: in order, and by construction neither late nor behind.

        `pushed_ns`: when the last tuple that each is made of was pushed to a stream; `until`: the operator's frontier.
        """
        inlet = intake.inlets[0]
        with Inside(inlet, intake.stream.name):
            if len(ts) == 0:
                self._promise(inlet, until)
                return
            positions = np.arange(inlet.delivered + 1, inlet.delivered + len(ts) + 1)
            inlet.delivered += len(ts)
            refs = self._keep(intake, inlet, Admitted(batch, ts, positions, []), pushed_ns)
            self._enter(intake, inlet, batch, ts, refs, until)

    def forget(self, stamp: int) -> None:
        """Text that only rows pushed before `stamp` hold has no code any more. Not while columns are rewritten: that may
        take long, and the next call will do."""
        if not self._encoding.locked():
            with self._encoding:
                self.encoder.forget(stamp)

    # --- promises and ends ---

    def _advance(self, intake: StreamIntake, inlet: Inlet, progress: int | None = None) -> None:
        """Progress without rows: a heartbeat, an end, or a batch of which nothing was left."""
        if progress is None:
            progress = inlet.progress(intake.stream)
        if intake.reorders:
            self._enter(intake, inlet, *in_order(intake, inlet, NOTHING, EMPTY, progress), progress)
            return
        self._promise(inlet, progress)

    def _promise(self, inlet: Inlet, progress: int) -> None:
        """Promise at each of a source's places that nothing below comes any more.

        The latency clock is told when the frontier began to move.
        """
        if progress == BEFORE_ALL:
            return
        began = time.monotonic_ns()
        for slot in inlet.slots.values():
            self._answer(slot, self.gate.heartbeat(slot, progress))
        self.latency.advanced(self.gate.frontier()[0], began)

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

    def heartbeat(self, intake: StreamIntake, name: SourceName, ts: int) -> None:
        inlet = self._inlet(intake, intake.named(name), self._released())
        with Inside(inlet, intake.stream.name):
            if inlet.ended or intake.ended:
                raise has_ended(intake.stream, name, came="a heartbeat")
            inlet.heartbeat, inlet.spoke_ns = max(inlet.heartbeat, ts), time.monotonic_ns()
            self._advance(intake, inlet)

    def end(self, intake: StreamIntake, name: SourceName | None) -> None:
        """End one source, or with None all of the stream's, those to come included."""
        if name is not None:
            if not intake.has_ended(intake.named(name)):
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
        with Inside(inlet, intake.stream.name):
            if inlet.ended:
                return
            inlet.ended = True
            if intake.reorders:
                rows = in_order(intake, inlet, NOTHING, EMPTY, AFTER_ALL)
                if len(rows[1]):
                    self._enter(intake, inlet, *rows, int(rows[1][-1]))
            began = time.monotonic_ns()
            for slot in inlet.slots.values():
                self._end_at(slot)
            self._left[intake.stream.name].append(inlet)
            self.latency.advanced(self.gate.frontier()[0], began)

    def _end_at(self, slot: int) -> None:
        """One of a source's places ends."""
        self._answer(slot, self.gate.end(slot))


# --- what happens to rows before they enter: the same where there is no gate (`threads.bounded`) ---


def parts_of(intake: StreamIntake, name: SourceName | None, whole: pa.RecordBatch, done: int = 0) -> list[Part]:
    """The batch by source, each with its times in microseconds; without its first rows, if these are `done` already."""
    stream, batch = intake.stream, whole.slice(done) if done else whole
    ts = to_micros(
        batch.column(batch.schema.get_field_index(stream.time)), stream.unit, stream=stream.name, name=stream.time
    )
    if intake.ended:
        raise has_ended(stream)
    if stream.source_column is None:
        return [Part(intake.named(name), batch, ts, np.arange(done, whole.num_rows) if done else None)]
    parts = []
    for own, rows in _by_source(stream, batch):
        part, times = (batch, ts) if len(rows) == len(ts) else (taken(batch, rows), ts[rows])
        parts.append(Part(intake.named(own, f"row {int(rows[0])}"), part, times, rows))
    return parts


def judged(intake: StreamIntake, inlet: Inlet, part: Part, released: int) -> Admitted:
    """The next rows of one source: those that are neither late nor behind. Rows that are dropped are kept aside.

    `released`: below it a tuple is behind.
    """
    stream, batch, ts, n = intake.stream, part.batch, part.ts, len(part.ts)
    if inlet.ended or intake.ended:
        raise has_ended(stream, inlet.name, at=part.at(0) if n else "")
    check_seq(stream, inlet, part)
    largest, found = judge_next(stream, ts, inlet.largest, inlet.heartbeat, released)
    if found is not None and found.offence is not None:
        raise _refused(intake, part, found.offence, idle=inlet.let_go > BEFORE_ALL)
    positions = np.arange(inlet.delivered + 1, inlet.delivered + n + 1) if intake.positions else EMPTY
    inlet.largest, inlet.delivered, inlet.spoke_ns = largest, inlet.delivered + n, time.monotonic_ns()
    if found is not None:
        inlet.late, inlet.behind = inlet.late + int(found.late.sum()), inlet.behind + int(found.behind.sum())
        for kept, dropped in ((intake.late, found.late), (intake.behind, found.behind)):
            if dropped.any():
                kept.append(taken(batch, np.flatnonzero(dropped)))
        stay = np.flatnonzero(~(found.late | found.behind))
        batch, ts, positions = taken(batch, stay), ts[stay], positions[stay] if intake.positions else EMPTY
    if not intake.by_content:
        return _changed(intake, Admitted(batch, ts, positions, []))
    ties = content_keys(batch)
    positions = numbered(inlet, ts, ties) if intake.positions else EMPTY
    return _changed(intake, Admitted(batch, ts, positions, ties))


def _changed(intake: StreamIntake, given: Admitted) -> Admitted:
    """Rows after what is done to each of them before the operator reads it; where they stood is judged by now."""
    if not intake.steps or given.batch is None or not len(given.ts):
        return given
    rows, kept = changed(intake.steps, pa.Table.from_batches([given.batch]), given.ts)
    _, ts, positions, ties = given
    if kept is not None:
        ts, positions = ts[kept], positions[kept] if len(positions) else positions
        ties = [ties[k] for k in kept] if ties else ties
    batches = rows.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=intake.entering)
    return Admitted(batch, ts, positions, ties)


def _by_source(stream: Stream, batch: pa.RecordBatch) -> list[tuple[SourceName, np.ndarray]]:
    """For each source that a column names, the rows that are its own, in their order."""
    column = batch.column(batch.schema.get_field_index(stream.source_column or ""))
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise DataError(
            f"Stream {stream.name!r}, row {row}: source column {stream.source!r} is NULL",
            why="every tuple comes from a source",
        )
    encoded = pc.dictionary_encode(column)  # plain, as all columns are here (`encodings`): a name stands there once
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    return [
        (name, np.flatnonzero(codes == code))
        for code, name in enumerate(encoded.dictionary.to_pylist())
        if (codes == code).any()
    ]


def _refused(intake: StreamIntake, part: Part, offence: Offence, *, idle: bool) -> DataError:
    """The error for a row that may not enter."""
    return refusal(intake.stream, part.name, part.at(offence.row), offence, idle=idle)


def _lay_down(arena: Arena, count: int, rows: Any, columns: list[np.ndarray]) -> None:
    """Rows at places `count`, `count` + 1, ... of a source's arena; the gate must have let go of what was there.

    By the pushing thread, before the tuples are added at the gate; the gate's release store makes the columns visible to
    workers.
    """
    arena.written = True
    n, first = len(rows), count & (arena.size - 1)
    cut = min(n, arena.size - first)
    pieces = list(zip(arena.columns.values(), columns, strict=True))
    if arena.fixed:
        if rows.key is not None:
            pieces.append((arena.fixed[0], rows.key))
        if rows.coord is not None:
            pieces += [(arena.fixed[1 + d], rows.coord[:, d].view(np.int64)) for d in (0, 1)]
        pieces.append((arena.usable, rows.usable))
    for target, source in pieces:
        target[first : first + cut] = source[:cut]
        target[: n - cut] = source[cut:]
