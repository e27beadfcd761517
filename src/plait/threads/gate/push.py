"""The sources' side of a gate: batches are cut into columns, judged, sorted and pushed.

A thread that is held back sleeps in slices, so that it can be interrupted and can notice a reader that has stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from plait.errors import QueryError
from plait.order import BEFORE_ALL
from plait.schema import to_micros
from plait.threads.gate import calls, codes, frontier, layout, messages
from plait.threads.gate.contract import Lag
from plait.threads.gate.payload import ROW_BITS, Payload
from plait.threads.gate.sorter import Sorted, Sorter

SLICE_NS: Final = 20_000_000


class Sources:
    """The memory, and what pushes into it."""

    kind: ClassVar[ModuleType]
    store: ClassVar[str]

    def __init__(
        self,
        words: np.ndarray,
        *,
        disorder_us: int,
        time: str,
        unit: str | None,
        seq: str | None,
        late: str,
        full: str,
        stall_after_s: float | None,
        names: list[str],
    ) -> None:
        self.words = words
        self.slots, self.seats = int(words[layout.SLOTS]), int(words[layout.SEATS])
        self.disorder_us = disorder_us
        self.late_rows: list[tuple[int, pa.RecordBatch]] = []
        self._time, self._unit, self._seq, self._late, self._full = time, unit, seq, late, full
        self._stall_after_s, self._names = stall_after_s, names
        self._sorters = [Sorter(disorder_us) for _ in range(self.slots)]
        self._next_seq = [0] * self.slots
        self._source_locks = [threading.Lock() for _ in range(self.slots)]
        self._payload = Payload()

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
            if self._full == "refuse" and self.disorder_us == 0:
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
            raise messages.late(self, source, row, int(ts[row]), largest)
        number = self.kind.add(self.words, source, ts, seq, ref, 0, len(ts), int(ts[-1]))
        if number == codes.FULL:
            return 0
        if number < 0:
            raise messages.of_source(self, source, number)
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
        raise messages.late(self, source, row, int(ts[row]), int(out.before[0]))

    def _push(self, source: int, out: Sorted, timeout_s: float | None) -> None:
        """Add sorted tuples, sleeping where the readers are behind; then let the promise be known."""
        before = self.count(source)
        try:
            self._push_all(source, out, timeout_s)
        except BaseException:
            self._put_back(source, out, self.count(source) - before)
            raise
        if len(out.ts) == 0 and out.progress > BEFORE_ALL:
            self._answer(source, calls.heartbeat(self.words, source, out.progress))

    def _put_back(self, source: int, out: Sorted, done: int) -> None:
        """What did not get in: without disorder it is the caller's still; with it, it waits in front of the gate."""
        sorter = self._sorters[source]
        rest = (out.ts[done:], out.seq[done:], out.ref[done:])
        if self.disorder_us:
            held = zip(sorter.held, rest, strict=True)
            first, second, third = (np.concatenate(pair) for pair in held)
            sorter.held = (first, second, third)
        elif len(rest[0]):
            sorter.largest = int(self.words[self._source(source) + layout.LAST_TS])
            self._next_seq[source] = int(rest[1][0])

    def _push_all(self, source: int, out: Sorted, timeout_s: float | None) -> None:
        done, size = 0, len(out.ts)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        watch = _Watch(self, source)
        while done < size:
            number = self.kind.add_waiting(
                self.words, source, out.ts, out.seq, out.ref, done, size, out.progress, SLICE_NS, False
            )
            if number > 0:
                done += int(number)
                watch.reset()
            elif number == codes.FULL:
                if deadline is not None and time.monotonic() > deadline:
                    raise messages.stalled(self, source, done, size, timeout_s or 0.0)
                watch.look(self._stall_after_s, done, size)
            else:
                raise messages.of_source(self, source, number, done, size)

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

    # --- what is going on ---------------------------------------------------------------------------------------

    def name(self, source: int) -> str:
        return self._names[source] if source < len(self._names) else f"source {source}"

    def count(self, source: int) -> int:
        """Tuples of this slot that have entered the gate."""
        return int(self.words[self._source(source) + layout.TAIL])

    def readers(self) -> list[int]:
        """The readers that are in."""
        states = [int(self.words[self._reader(seat) + layout.STATE]) for seat in range(self.seats)]
        return [seat for seat, state in enumerate(states) if state == layout.LIVE]

    def frontier(self) -> tuple[int, int | None]:
        """The frontier, and the source that holds it (None: all have ended)."""
        value, holder = frontier.lowest(self.words)
        return int(value), None if holder < 0 else int(holder)

    def lag(self) -> list[Lag]:
        """How many ready tuples each reader has not read, the slowest first."""
        limit = self.frontier()[0]
        size = int(self.words[layout.RING])
        stride = layout.NODE_WORDS if self.store == "nodes" else 1
        store = int(self.words[layout.STORE_AT])
        lags = []
        for reader in self.readers():
            unread = 0
            for slot in range(int(self.words[layout.USED])):
                tail = int(self.words[self._source(slot) + layout.TAIL])
                done = int(self.words[int(layout.read_at(self.words, reader)) + slot])
                base = store + slot * size * (layout.NODE_WORDS if self.store == "nodes" else 3)
                places = base + (np.arange(done, tail) & (size - 1)) * stride
                unread += int(np.count_nonzero(self.words[places] < limit))
            lags.append(Lag(reader, unread))
        return sorted(lags, key=lambda lag: -lag.unread)

    def _source(self, slot: int) -> int:
        return layout.SOURCES_AT + slot * layout.SOURCE_WORDS

    def _reader(self, seat: int) -> int:
        return int(self.words[layout.READERS_AT]) + seat * layout.READER_WORDS

    def _entered(self, source: int) -> int:
        return int(self.words[self._source(source) + layout.TAIL]) + len(self._sorters[source].held[0])

    def _inside(self, source: int) -> _Inside:
        self._check_ids([source], self.slots, "source", "max_sources")
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
            raise messages.of_source(self, source, code)


class _Inside:
    """One thread at a time pushes a source; a second one is told so at once."""

    def __init__(self, lock: threading.Lock, who: str) -> None:
        self._lock, self._who = lock, who

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise messages.inside(self._who)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Watch:
    """Notices a reader that does not read while a source waits for it."""

    def __init__(self, gate: Sources, source: int) -> None:
        self._gate, self._source = gate, source
        self.reset()

    def reset(self) -> None:
        self._since, self._seen = time.monotonic(), -1

    def look(self, after_s: float | None, done: int, size: int) -> None:
        if after_s is None:
            return
        slowest = self._gate.lag()[0]
        row = int(layout.read_at(self._gate.words, slowest.reader))
        seen = int(self._gate.words[row : row + self._gate.slots].sum())
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        elif time.monotonic() - self._since > after_s:
            raise messages.stalled(self._gate, self._source, done, size, after_s)
