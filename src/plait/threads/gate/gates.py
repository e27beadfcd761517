"""The gates as Python objects: Arrow batches in, Arrow rows out, errors that say who and why.

Everything that happens to a tuple happens in compiled code without the GIL; here and in `push` batches are cut into
columns and codes become errors.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from plait.errors import BehindError, QueryError, RunError
from plait.threads.gate import calls, codes, elastic, layout, messages, queues, ring, skiplist
from plait.threads.gate.contract import Origin
from plait.threads.gate.payload import ROW_BITS, rows
from plait.threads.gate.push import SLICE_NS, Sources
from plait.threads.gate.sorter import Sorter


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


class _Gate(Sources):
    """What both gates share. Sources and readers are numbers: a source's slot, a reader's seat."""

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
        slots, seats = max_sources or max(len(origins), 1), max_readers or readers
        _check(origins, slots, readers, seats, capacity, pending, late, full)
        words = layout.allocate(slots=slots, seats=seats, capacity=capacity, pending=pending, store=self.store)
        layout.prepare(words, [origin.rank for origin in origins], readers)
        if self.store == "nodes":
            layout.prepare_nodes(words)
        super().__init__(
            words, disorder_us=disorder_us, time=time, unit=unit, seq=seq, late=late, full=full,
            stall_after_s=stall_after_s, names=list(names),
        )  # fmt: skip
        self._reader_locks = [threading.Lock() for _ in range(seats)]

    # --- readers ------------------------------------------------------------------------------------------------

    def read(self, reader: int = 0, most: int = 4096, *, timeout_s: float = 0.0) -> Ready | None:
        """The next ready tuples, up to `most`; none if nothing gets ready in time; None once there will be no more."""
        lock = self._reader_locks[reader]
        if not lock.acquire(blocking=False):
            raise messages.inside(f"reader {reader}")
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
                number = self.kind.read_waiting(self.words, reader, most, *columns, min(left_ns, SLICE_NS))
            else:
                number = self.kind.read(self.words, reader, most, *columns)
            if number > 0 or number == codes.DONE or (number == 0 and left_ns <= 0):
                return int(number)
            if number < 0:
                raise messages.of_reader(reader, number)

    # --- elastic ------------------------------------------------------------------------------------------------

    def announce_sources(
        self, sources: Sequence[int], *, origins: Sequence[Origin | tuple[int, int]], min_ts: int, change: int = 0
    ) -> bool:
        """Let sources in whose tuples will have ts >= `min_ts`; false if another call was faster."""
        pairs = sorted(zip(sources, (Origin(*origin) for origin in origins), strict=True))
        slots = np.array([slot for slot, _ in pairs], dtype=np.int64)
        ranks = np.array([origin.rank for _, origin in pairs], dtype=np.int64)
        self._check_ids(slots.tolist(), self.slots, "source", "max_sources")
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
                self._sorters[slot] = Sorter(self.disorder_us)
                self._sorters[slot].promise = min_ts
        return bool(code == 0)

    def remove_sources(self, sources: Sequence[int], *, change: int = 0) -> bool:
        """Flush sources and ignore what they still add; false if another call was faster.

        What a thread has not got into the gate yet when its source is removed, or has in order to settle its
        disorder, is ignored too: remove a source when nothing is being pushed to it.
        """
        self._check_ids(list(sources), self.slots, "source", "max_sources")
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
        self._check_ids([*readers, parent], self.seats, "reader", "max_readers")
        seats = np.array(sorted(readers), dtype=np.int64)
        with self._reader_locks[parent]:
            code = _again(lambda: elastic.announce_readers(self.words, seats, len(seats), parent, change))
            if code == 0:
                self._payload.inherit(seats.tolist(), parent)
        if code in (codes.GONE, codes.CLOSED_CODE):
            raise messages.of_reader(parent, code)
        return bool(code == 0)

    def remove_readers(self, readers: Sequence[int], *, change: int = 0) -> bool:
        """Let readers go; what they have not read no longer holds anybody back. False if another call was faster."""
        self._check_ids(list(readers), self.seats, "reader", "max_readers")
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


class SkipListGate(_Gate):
    """Sources sort as they insert, once for all readers."""

    kind, store = skiplist, "nodes"


class RingGate(_Gate):
    """Sources only append; every reader merges for itself."""

    kind, store = ring, "rings"


class QueueGate(_Gate):
    """A queue for each source under a lock, and one reader that looks at all of them: MQ of the aggregation paper."""

    kind, store = queues, "nodes"
    locked = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.seats > 1:
            raise QueryError(f"A multi-queue with {self.seats} readers", why="a tuple is dequeued once")
        self.words[layout.LOCKED] = int(self.locked)


class LockFreeQueueGate(QueueGate):
    """The same with lock-free queues: MQ_LF."""

    locked = False


def _again(call: Callable[[], int]) -> int:
    """Repeat a change while another one holds what it needs, which is never for long."""
    while (code := int(call())) == codes.INSIDE:
        time.sleep(0)
    return code


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


__all__ = ["LockFreeQueueGate", "QueueGate", "Ready", "RingGate", "SkipListGate"]
