"""The gates as Python objects: Arrow batches in, Arrow rows out, errors that say who and why.

Everything that happens to a tuple happens in compiled code without the GIL; here batches are cut into columns, codes
become errors, and a blocked thread sleeps in slices so that it can be interrupted and can notice a reader that has stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from plait.errors import BehindError, DataError, LateError, PendingError, QueryError, RunError
from plait.gate import calls, codes, elastic, frontier, layout, ring, skiplist
from plait.gate.contract import Lag, Origin
from plait.gate.payload import ROW_BITS, Payload, rows
from plait.gate.sorter import Sorted, Sorter
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.schema import to_micros

_SLICE_NS: Final = 20_000_000


@dataclass(frozen=True)
class Ready:
    """Ready tuples in total order. `origin` is input << 32 | position of the source."""

    ts: np.ndarray
    origin: np.ndarray
    seq: np.ndarray
    ref: np.ndarray
    _batches: dict[int, pa.RecordBatch] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.ts)

    def table(self) -> pa.Table:
        """The rows themselves, in total order; only where all inputs have one schema."""
        return rows(self._batches, self.ref)

    def by_input(self) -> dict[int, tuple[np.ndarray, pa.Table]]:
        """For each input, which of the tuples are its own, and their rows."""
        inputs = self.origin >> 32
        out = {}
        for number in np.unique(inputs).tolist():
            which = np.flatnonzero(inputs == number)
            ref = self.ref[which]
            own = {int(batch): self._batches[int(batch)] for batch in np.unique(ref >> ROW_BITS)}
            out[number] = (which, rows(own, ref))
        return out


class _Gate:
    """What both gates share. Sources and readers are numbers: a source's slot, a reader's seat."""

    _kind: ClassVar[ModuleType]
    _store: ClassVar[str]

    def __init__(
        self,
        sources: int | Sequence[Origin | tuple[int, int]],
        *,
        readers: int = 1,
        capacity: int = 65_536,
        pending: int = 65_536,
        disorder_us: int = 0,
        time: str = "ts",
        unit: str | None = "us",
        seq: str | None = None,
        late: str = "error",
        full: str = "block",
        stall_after_s: float | None = None,
        max_sources: int | None = None,
        max_readers: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        origins = [Origin(0, i) for i in range(sources)] if isinstance(sources, int) else [Origin(*o) for o in sources]
        self._slots, self._seats = max_sources or max(len(origins), 1), max_readers or readers
        _check(origins, self._slots, readers, self._seats, capacity, pending, late, full)
        self.words = layout.allocate(
            slots=self._slots, seats=self._seats, capacity=capacity, pending=pending, store=self._store
        )
        layout.prepare(self.words, [origin.rank for origin in origins], readers)
        if self._store == "nodes":
            layout.prepare_nodes(self.words)
        self.late_rows: list[tuple[int, pa.RecordBatch]] = []
        self._time, self._unit, self._seq, self._late, self._full = time, unit, seq, late, full
        self._stall_after_s, self._disorder_us = stall_after_s, disorder_us
        self._names = list(names)
        self._sorters = [Sorter(disorder_us) for _ in range(self._slots)]
        self._next_seq = [0] * self._slots
        self._source_locks = [threading.Lock() for _ in range(self._slots)]
        self._reader_locks = [threading.Lock() for _ in range(self._seats)]
        self._payload = Payload()

    # --- sources ------------------------------------------------------------------------------------------------

    def add(self, source: int, batch: pa.RecordBatch | pa.Table, *, timeout_s: float | None = None) -> int:
        """Add a batch, in the order of its rows. Gives how many rows are in: all, unless `full="refuse"`."""
        parts = batch.combine_chunks().to_batches() if isinstance(batch, pa.Table) else [batch]
        return sum(self._add_batch(source, part, timeout_s) for part in parts)

    def _add_batch(self, source: int, batch: pa.RecordBatch, timeout_s: float | None) -> int:
        ts = to_micros(batch[self._time], self._unit, stream=self.name(source), name=self._time)
        seq = None
        if self._seq is not None:
            seq = batch[self._seq].cast(pa.int64()).to_numpy(zero_copy_only=False)
        number = self._payload.keep(batch, self.readers(), len(ts))
        ref = (number << ROW_BITS) + np.arange(len(ts), dtype=np.int64)
        before = self._entered(source)
        try:
            return self._add(source, ts, seq, ref, timeout_s=timeout_s, batch=batch)
        finally:
            # Held back by the sorter counts as in: those rows will come.
            self._payload.less(number, len(ts) - (self._entered(source) - before))

    def add_words(
        self, source: int, ts: np.ndarray, *, seq: np.ndarray | None = None, ref: np.ndarray | None = None,
        timeout_s: float | None = None,
    ) -> int:  # fmt: skip
        """Add tuples whose payload the caller keeps: `ref` is any int64 that says where."""
        ts = np.ascontiguousarray(ts, dtype=np.int64)
        ref = np.zeros(len(ts), dtype=np.int64) if ref is None else np.ascontiguousarray(ref, dtype=np.int64)
        return self._add(source, ts, seq, ref, timeout_s=timeout_s)

    def add_tuple(
        self, source: int, ts: int, *, seq: int | None = None, ref: int = 0, timeout_s: float | None = None
    ) -> bool:
        """Add one tuple; false if `full="refuse"` and there is no room."""
        order = None if seq is None else np.array([seq], dtype=np.int64)
        one = np.array([ts], dtype=np.int64)
        return self._add(source, one, order, np.array([ref], dtype=np.int64), timeout_s=timeout_s) == 1

    def _add(
        self, source: int, ts: np.ndarray, seq: np.ndarray | None, ref: np.ndarray, *, timeout_s: float | None,
        batch: pa.RecordBatch | None = None,
    ) -> int:  # fmt: skip
        with self._inside(source):
            if seq is None:
                seq = np.arange(self._next_seq[source], self._next_seq[source] + len(ts), dtype=np.int64)
            sorter = self._sorters[source]
            if self._full == "refuse" and self._disorder_us == 0:
                return self._refuse(source, ts, np.ascontiguousarray(seq, dtype=np.int64), ref)
            out = sorter.sort(ts, np.ascontiguousarray(seq, dtype=np.int64), ref)
            if len(out.late):
                self._judge_late(source, ts, out, batch)
            self._next_seq[source] += len(ts)
            self._push(source, out, timeout_s)
            return len(ts) - len(out.late)

    def _refuse(self, source: int, ts: np.ndarray, seq: np.ndarray, ref: np.ndarray) -> int:
        """Add as much as there is room for, and leave the rest with the caller."""
        if not len(ts):
            return 0
        back = (ts[1:] < ts[:-1]).nonzero()[0]
        if len(back) or int(ts[0]) < self._sorters[source].progress:
            row = int(back[0]) + 1 if len(back) else 0
            largest = int(ts[row - 1]) if row else self._sorters[source].progress
            raise self._late_error(source, row, int(ts[row]), largest)
        number = self._kind.add(self.words, source, ts, seq, ref, 0, len(ts), int(ts[-1]))
        if number == codes.FULL:
            return 0
        if number < 0:
            raise self._error(source, number, 0)
        self._next_seq[source] += number
        self._sorters[source].largest = int(ts[number - 1])
        return int(number)

    def _judge_late(self, source: int, ts: np.ndarray, out: Sorted, batch: pa.RecordBatch | None) -> None:
        if self._late == "drop":
            if batch is not None:
                self.late_rows.append((source, batch.take(pa.array(out.late))))
            else:
                self.late_rows.append((source, pa.record_batch({self._time: ts[out.late]})))
            return
        row = int(out.late[0])
        raise self._late_error(source, row, int(ts[row]), int(out.before[0]))

    def _push(self, source: int, out: Sorted, timeout_s: float | None) -> None:
        """Add sorted tuples, sleeping where the readers are behind; then let the promise be known."""
        done = 0
        try:
            for done in self._push_all(source, out, timeout_s):
                pass
        except BaseException:
            self._put_back(source, out, done)
            raise
        if len(out.ts) == 0 and out.progress > BEFORE_ALL:
            self._answer(source, calls.heartbeat(self.words, source, out.progress))

    def _put_back(self, source: int, out: Sorted, done: int) -> None:
        """What did not get in: without disorder it is the caller's still; with it, it waits in front of the gate."""
        sorter = self._sorters[source]
        rest = (out.ts[done:], out.seq[done:], out.ref[done:])
        if self._disorder_us:
            held = zip(sorter.held, rest, strict=True)
            first, second, third = (np.concatenate(pair) for pair in held)
            sorter.held = (first, second, third)
        elif len(rest[0]):
            sorter.largest = int(self.words[self._source(source) + layout.LAST_TS])
            self._next_seq[source] = int(rest[1][0])

    def _push_all(self, source: int, out: Sorted, timeout_s: float | None) -> Iterator[int]:
        """Push, and say after each part how many are in."""
        done, size = 0, len(out.ts)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        watch = _Watch(self, source)
        while done < size:
            number = self._kind.add_waiting(
                self.words, source, out.ts, out.seq, out.ref, done, size, out.progress, _SLICE_NS, False
            )
            if number > 0:
                done += int(number)
                watch.reset()
                yield done
            elif number == codes.FULL:
                if deadline is not None and time.monotonic() > deadline:
                    raise self._stalled(source, done, size, timeout_s or 0.0)
                watch.look(self._stall_after_s, done, size)
            else:
                raise self._error(source, number, done, size)

    def heartbeat(self, source: int, ts: int) -> None:
        """Promise that no tuple with a ts below this will come from the source."""
        with self._inside(source):
            self._push(source, self._sorters[source].flush(ts), None)
            self._answer(source, calls.heartbeat(self.words, source, ts))

    def end(self, source: int) -> None:
        """No more tuples from this source."""
        with self._inside(source):
            self._flush(source)
            self._answer(source, calls.end(self.words, source))

    def _flush(self, source: int) -> None:
        sorter = self._sorters[source]
        if len(sorter.held[0]):
            self._push(source, sorter.flush(int(sorter.held[0].max())), None)

    # --- readers ------------------------------------------------------------------------------------------------

    def read(self, reader: int = 0, most: int = 4096, *, timeout_s: float = 0.0) -> Ready | None:
        """The next ready tuples, up to `most`; none if nothing gets ready in time; None once there will be no more."""
        lock = self._reader_locks[reader]
        if not lock.acquire(blocking=False):
            raise _inside_error(f"reader {reader}")
        try:
            columns = [np.empty(most, dtype=np.int64) for _ in range(4)]
            number = self._read(reader, most, columns, timeout_s)
            if number == codes.DONE:
                return None
            ts, origin, seq, ref = (column[:number] for column in columns)
            batches = self._payload.take(reader, ref[ref >> ROW_BITS > 0]) if len(self._payload) else {}
            return Ready(ts, origin, seq, ref, batches)
        finally:
            lock.release()

    def _read(self, reader: int, most: int, columns: list[np.ndarray], timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while True:
            left_ns = int((deadline - time.monotonic()) * 1e9)
            if left_ns > 0:
                number = self._kind.read_waiting(self.words, reader, most, *columns, min(left_ns, _SLICE_NS))
            else:
                number = self._kind.read(self.words, reader, most, *columns)
            if number > 0 or number == codes.DONE or (number == 0 and left_ns <= 0):
                return int(number)
            if number < 0:
                raise self._reader_error(reader, number)

    # --- elastic ------------------------------------------------------------------------------------------------

    def announce_sources(
        self, sources: Sequence[int], *, origins: Sequence[Origin | tuple[int, int]], min_ts: int, change: int = 0
    ) -> bool:
        """Let sources in whose tuples will have ts >= `min_ts`; false if another call was faster."""
        pairs = sorted(zip(sources, (Origin(*origin) for origin in origins), strict=True))
        slots = np.array([slot for slot, _ in pairs], dtype=np.int64)
        ranks = np.array([origin.rank for _, origin in pairs], dtype=np.int64)
        self._check_ids(slots.tolist(), self._slots, "source", "max_sources")
        code = _again(lambda: elastic.announce_sources(self.words, slots, ranks, len(slots), min_ts, change))
        if code == codes.BEHIND:
            settled = max(int(self.words[self._reader(r) + layout.FRONTIER]) for r in self.readers())
            raise BehindError(
                f"Sources {slots.tolist()} are announced from ts {min_ts}, but readers were promised up to {settled}",
                why="a tuple below a frontier that a reader has acted on would come too late for it",
                do="Announce them while a source that is already in holds the frontier at or below that ts",
            )
        if code == codes.DRAINING:
            raise RunError(
                f"Sources {slots.tolist()}: a slot still holds tuples of its former source that some reader has not read",
                do="Read on, or announce other slots",
            )
        if code == 0:
            for slot in slots.tolist():
                self._sorters[slot] = Sorter(self._disorder_us)
                self._sorters[slot].promise = min_ts
        return bool(code == 0)

    def remove_sources(self, sources: Sequence[int], *, change: int = 0) -> bool:
        """Flush sources and ignore what they still add; false if another call was faster.

        What a thread has not got into the gate yet when its source is removed, or has in order to settle its
        disorder, is ignored too: remove a source when nothing is being pushed to it.
        """
        self._check_ids(list(sources), self._slots, "source", "max_sources")
        slots = np.array(sorted(sources), dtype=np.int64)
        for slot in slots.tolist():
            if self._source_locks[slot].acquire(blocking=False):
                try:
                    if self.words[self._source(slot) + layout.STATE] == layout.LIVE:
                        self._flush(slot)
                finally:
                    self._source_locks[slot].release()
        return bool(elastic.remove_sources(self.words, slots, len(slots), change) > 0)

    def announce_readers(self, readers: Sequence[int], *, parent: int, change: int = 0) -> bool:
        """Let readers in where `parent` stands: they read on from there; false if another call was faster."""
        self._check_ids([*readers, parent], self._seats, "reader", "max_readers")
        seats = np.array(sorted(readers), dtype=np.int64)
        with self._reader_locks[parent]:
            code = _again(lambda: elastic.announce_readers(self.words, seats, len(seats), parent, change))
            if code == 0:
                self._payload.inherit(seats.tolist(), parent)
        if code in (codes.GONE, codes.CLOSED_CODE):
            raise self._reader_error(parent, code)
        return bool(code == 0)

    def remove_readers(self, readers: Sequence[int], *, change: int = 0) -> bool:
        """Let readers go; what they have not read no longer holds anybody back. False if another call was faster."""
        self._check_ids(list(readers), self._seats, "reader", "max_readers")
        seats = np.array(sorted(readers), dtype=np.int64)
        code = elastic.remove_readers(self.words, seats, len(seats), change)
        if code == codes.LAST_READER:
            raise RunError(
                f"Readers {seats.tolist()} can't all be removed: one of them is the gate's last reader",
                why="without readers nothing could leave the gate",
                do="Announce another reader first, or close the gate",
            )
        for seat in seats.tolist():
            if self.words[self._reader(seat) + layout.STATE] != layout.LIVE:
                self._payload.forget(seat)
        return bool(code > 0)

    def close(self) -> None:
        """Refuse every further call, and wake whoever sleeps. Nothing is flushed."""
        calls.close(self.words)

    # --- what is going on ---------------------------------------------------------------------------------------

    def name(self, source: int) -> str:
        return self._names[source] if source < len(self._names) else f"source {source}"

    def count(self, source: int) -> int:
        """Tuples of this slot that have entered the gate."""
        return int(self.words[self._source(source) + layout.TAIL])

    def readers(self) -> list[int]:
        """The readers that are in."""
        states = [int(self.words[self._reader(seat) + layout.STATE]) for seat in range(self._seats)]
        return [seat for seat, state in enumerate(states) if state == layout.LIVE]

    def frontier(self) -> tuple[int, int | None]:
        """The frontier, and the source that holds it (None: all have ended)."""
        value, holder = frontier.lowest(self.words)
        return int(value), None if holder < 0 else int(holder)

    def lag(self) -> list[Lag]:
        """How many ready tuples each reader has not read, the slowest first."""
        limit = self.frontier()[0]
        size = int(self.words[layout.RING])
        stride = layout.NODE_WORDS if self._store == "nodes" else 1
        store = int(self.words[layout.STORE_AT])
        lags = []
        for reader in self.readers():
            unread = 0
            for slot in range(int(self.words[layout.USED])):
                tail = int(self.words[self._source(slot) + layout.TAIL])
                done = int(self.words[int(layout.read_at(self.words, reader)) + slot])
                base = store + slot * size * (layout.NODE_WORDS if self._store == "nodes" else 3)
                places = base + (np.arange(done, tail) & (size - 1)) * stride
                unread += int(np.count_nonzero(self.words[places] < limit))
            lags.append(Lag(reader, unread))
        return sorted(lags, key=lambda lag: -lag.unread)

    # --- errors -------------------------------------------------------------------------------------------------

    def _source(self, slot: int) -> int:
        return layout.SOURCES_AT + slot * layout.SOURCE_WORDS

    def _reader(self, seat: int) -> int:
        return int(self.words[layout.READERS_AT]) + seat * layout.READER_WORDS

    def _entered(self, source: int) -> int:
        return int(self.words[self._source(source) + layout.TAIL]) + len(self._sorters[source].held[0])

    def _inside(self, source: int) -> _Inside:
        self._check_ids([source], self._slots, "source", "max_sources")
        return _Inside(self._source_locks[source], self.name(source))

    def _check_ids(self, ids: Sequence[int], limit: int, what: str, option: str) -> None:
        wrong = [number for number in ids if not 0 <= number < limit]
        if wrong or len(set(ids)) != len(ids):
            raise QueryError(
                f"{what}s {list(ids)}: they must be different numbers from 0 to {limit - 1}",
                do=f"Make the gate with a larger {option}=",
            )

    def _answer(self, source: int, code: int) -> None:
        if code < 0:
            raise self._error(source, code, 0)

    def _late_error(self, source: int, row: int, ts: int, largest: int) -> LateError:
        return LateError(
            f"{self.name(source)}, row {row} of the batch: ts {ts} after {largest}",
            why=f"the source may run back by {self._disorder_us} us, and by its heartbeats not at all",
            do="Declare more disorder, or late='drop'",
        )

    def _error(self, source: int, code: int, done: int, size: int = 0) -> Exception:
        who = self.name(source)
        if code == codes.STUCK:
            held, holder = self.frontier()
            at = "-infinity: it has not spoken" if held == BEFORE_ALL else f"ts {held}"
            return PendingError(
                f"{who} has {int(self.words[layout.PENDING])} tuples that are not ready; {done} of {size} were added. "
                f"The frontier is held by {'nobody' if holder is None else self.name(holder)}, at {at}",
                why="waiting here could be for ever, if the same thread feeds both",
                do="Push or send a heartbeat for that source, end it, or raise pending=; then push the rest",
            )
        if code == codes.GONE:
            return RunError(f"{who} has ended or was removed; what it still brings is ignored")
        if code == codes.CLOSED_CODE:
            return RunError("The gate was closed")
        if code == codes.INSIDE:
            return _inside_error(who)
        if code == codes.UNSORTED:
            return DataError(
                f"{who}: two tuples of one ts whose seq does not rise",
                why="seq is what orders the tuples of one source and ts",
            )
        return RunError(f"{who}: the gate answered {code}")

    def _reader_error(self, reader: int, code: int) -> RunError:
        if code == codes.GONE:
            return RunError(f"Reader {reader} was removed, or never announced")
        if code == codes.CLOSED_CODE:
            return RunError("The gate was closed")
        return _inside_error(f"reader {reader}")

    def _stalled(self, source: int, done: int, size: int, seconds: float) -> RunError:
        slowest = self.lag()[0]
        return RunError(
            f"{self.name(source)} waited {seconds:g} s with {done} of {size} tuples added: reader {slowest.reader} has not "
            f"read {slowest.unread} ready tuples",
            why=f"a source may have {int(self.words[layout.CAPACITY])} ready tuples unread",
            do="Let that reader read, remove it, or raise capacity=",
        )


class SkipListGate(_Gate):
    """Sources sort as they insert, once for all readers."""

    _kind, _store = skiplist, "nodes"


class RingGate(_Gate):
    """Sources only append; every reader merges for itself."""

    _kind, _store = ring, "rings"


class _Inside:
    """One thread at a time pushes a source; a second one is told so at once."""

    def __init__(self, lock: threading.Lock, who: str) -> None:
        self._lock, self._who = lock, who

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise _inside_error(self._who)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Watch:
    """Notices a reader that does not read while a source waits for it."""

    def __init__(self, gate: _Gate, source: int) -> None:
        self._gate, self._source = gate, source
        self.reset()

    def reset(self) -> None:
        self._since, self._seen = time.monotonic(), -1

    def look(self, after_s: float | None, done: int, size: int) -> None:
        if after_s is None:
            return
        slowest = self._gate.lag()[0]
        row = int(layout.read_at(self._gate.words, slowest.reader))
        seen = int(self._gate.words[row : row + self._gate._slots].sum())
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        elif time.monotonic() - self._since > after_s:
            raise self._gate._stalled(self._source, done, size, after_s)


def _again(call: Any) -> int:
    """Repeat a change while another one holds what it needs, which is never for long."""
    while (code := int(call())) == codes.INSIDE:
        time.sleep(0)
    return code


def _inside_error(who: str) -> RunError:
    return RunError(
        f"Another thread is inside a call for {who}",
        why="one thread at a time pushes a source or reads as a reader: their order would be anybody's guess",
        do="Give each thread a source or reader of its own",
    )


def _check(
    origins: list[Origin], slots: int, readers: int, seats: int, capacity: int, pending: int, late: str, full: str
) -> None:
    if len(set(origins)) != len(origins):
        raise QueryError("Two sources have one (input, position)", why="ties between them would have no order")
    if not 1 <= len(origins) <= slots or not 1 <= readers <= seats or slots >= 2**15:
        raise QueryError(
            f"{len(origins)} sources of at most {slots}, {readers} readers of at most {seats}",
            why="a gate needs at least one of each, and has fewer than 32768 sources",
        )
    if capacity < 1 or pending < 2:
        raise QueryError(
            f"capacity={capacity}, pending={pending}",
            why="a source's last tuple is unready until it brings another, so pending is at least 2, and capacity 1",
        )
    if late not in ("error", "drop") or full not in ("block", "refuse"):
        raise QueryError(f"late={late!r}, full={full!r}", do="late= is 'error' or 'drop', full= 'block' or 'refuse'")


__all__ = ["AFTER_ALL", "Ready", "RingGate", "SkipListGate"]
