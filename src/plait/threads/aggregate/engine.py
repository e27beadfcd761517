"""What the designs for aggregates have in common: an update thread's memory, what is read of a row, what a run tells of itself.

What happens to tuples is said in `aggregate.tuml` and `aggregate.wiml`, and in `aggregate.results`.

Held by tests/threads/aggregate/test_on_threads.py (every window and function, on every design, against the definition)
and tests/threads/aggregate/test_runs.py (ends, errors, memory).
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque

import numpy as np
import pyarrow as pa

from plait.core.aggregate.reads import Columns
from plait.core.aggregate.span import PaneWindows
from plait.core.machine.line import lines
from plait.core.metrics import Counts
from plait.core.rings import KEEP_WORDS, Write
from plait.errors import RunError
from plait.order import BEFORE_ALL
from plait.threads import words as shared
from plait.threads.aggregate.designs import Design
from plait.threads.aggregate.reads import reads_of
from plait.threads.aggregate.results import AggregateResults
from plait.threads.elastic.crew import Taken
from plait.threads.elastic.manager import Epochs
from plait.threads.engine import Engine
from plait.threads.ground import Ground
from plait.threads.input.payload import Payload, Pushes
from plait.threads.input.push import Pusher
from plait.threads.input.short import Reads
from plait.threads.life.pause import Pauser
from plait.threads.stats import Last, Stats

WAIT_NS = 20_000_000


class PaneRows:
    """A source's rows as they go into its arena.

    `arrays` are those of `Columns.arrays`, one a column, in the order of the layout. `key` and `coord` are None:
    aggregates look nothing up.
    """

    key = coord = None

    def __init__(self, arrays: list[np.ndarray], n: int) -> None:
        self.arrays, self._n = arrays, n

    def __len__(self) -> int:
        return self._n


class PaneEncoder:
    """Stands where `columns.Encoder` stands for joins: what an aggregate reads of a row. There is nothing to widen.

    `columns` says what the query's functions read of a row; text and other things of varying length are not in an
    arena, and are taken from the payload (`needs_rows`).
    """

    has_node = False
    stamp = 0

    def __init__(self, columns: Columns, stream: str) -> None:
        self._columns, self.names = columns, (stream,)
        self._reads = reads_of(columns)

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> PaneRows:
        return PaneRows(self._columns.arrays(batch, ts), len(ts))

    def columns(self, side: int) -> list[tuple[str, str]]:
        return self._columns.layout()

    def encoded(self, side: int, rows: PaneRows) -> list[np.ndarray]:
        return rows.arrays

    def fits(self, side: int, rows: PaneRows) -> bool:
        return True

    def admit(self, side: int, rows: PaneRows) -> bool:
        return False

    def forget(self, stamp: int) -> None:
        """Nothing is coded here."""

    def reads(self, side: int) -> Reads | None:
        """What is read of usual rows, into an arena's columns (`input.short`)."""
        return self._reads


_NO_RINGS = np.empty((0, KEEP_WORDS), np.int64)


class NoPayload:
    """For an aggregate that reads numbers only: no row is kept, but for when it was pushed.

    It still counts rows, so that references rise as they do elsewhere; nobody takes a row by one. `_live` has of each push
    the number after its last row and its last ts.
    """

    rows = nbytes = 0
    all_rings = True

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._pushes = Pushes()
        self._live: deque[tuple[int, int]] = deque()

    def append(self, batch: pa.RecordBatch, ts: np.ndarray, source: int, seq: np.ndarray, pushed_ns: int | np.ndarray,
               stamp: int) -> int:  # fmt: skip
        return self._counted(int(batch.num_rows), int(ts.max()), pushed_ns)

    def put(self, n: int, write: Write, ts: np.ndarray, pushed_ns: int, stamp: int) -> int:
        """As `append`, for rows that compiled code looks at (`input.short`): there is nothing to write."""
        with self._lock:
            if not write(_NO_RINGS, self._next, self._next, 1):
                return -1
            return self._count(n, int(ts[-1]), pushed_ns)

    def _counted(self, n: int, last_ts: int, pushed_ns: int | np.ndarray) -> int:
        with self._lock:
            return self._count(n, last_ts, pushed_ns)

    def _count(self, n: int, last_ts: int, pushed_ns: int | np.ndarray) -> int:
        """While the lock is held."""
        first = self._next
        self._next += n
        self._pushes.note(first, pushed_ns)
        self._live.append((self._next, last_ts))
        return first

    def pushed_ns(self, refs: np.ndarray) -> np.ndarray:
        with self._lock:
            return self._pushes.of(refs)

    def expire(self, ts: int) -> None:
        with self._lock:
            gone = 0
            while self._live and self._live[0][1] < ts:
                gone = self._live.popleft()[0]
            if gone:
                self._pushes.forget(gone)


class Laid:
    """A batch's columns, laid out for a thread: `wide` and `narrow` hold those of 8 bytes and of 1 byte, which `kinds` tells
    apart.
    """

    def __init__(self, columns: Columns, most: int) -> None:
        kinds = [int(kind == "int64") for _, kind in columns.layout()]
        self.kinds = np.array(kinds, np.int64)
        self.wide = np.zeros((max(sum(kinds), 1), most), np.int64)
        self.narrow = np.zeros((max(len(kinds) - sum(kinds), 1), most), np.uint8)

    def arrays(self, n: int) -> list[np.ndarray]:
        """The batch's columns in the order of the layout, cut to `n` tuples: views, good until the next batch."""
        wide, narrow = list(self.wide)[::-1], list(self.narrow)[::-1]
        return [(wide if kind else narrow).pop()[:n] for kind in self.kinds]


class Updater(Laid):
    """One update thread's memory: its windows, a batch of tuples, and its counters.

    `windows` are this thread's own, for its part of the groups. `taken.rows` is the batch: ts, origin, seq, ref. `passed` is
    the frontier it has worked up to, `rank` the number of tuples it has seen, `last` the last of them before a moment.
    """

    def __init__(self, number: int, windows: PaneWindows, most: int, crew: int) -> None:
        super().__init__(windows.columns, most)
        self.number, self.windows, self.last = number, windows, Last()
        self.windows.share(crew, number)
        self.words = lines(shared.WORKER_WORDS)
        self.taken = Taken(most)
        self.tuples = self.taken.rows  # ts, origin, seq, ref
        self.passed, self.rank = BEFORE_ALL, 0

    def progressed(self) -> int:
        return self.rank + int(self.words[shared.BATCHES])

    def counts(self) -> Counts:
        w = self.words
        return self.windows.counts + Counts(results=int(w[shared.RESULTS]), batches=int(w[shared.BATCHES]))


class PaneEngine(Engine[Updater]):
    """An engine whose workers are update threads: they hand the rows of closed windows to `results`."""

    def __init__(self, ground: Ground, made: Design, *, updaters: list[Updater], encoder: PaneEncoder,
                 payload: Payload | NoPayload, pauser: Pauser, pusher: Pusher, results: AggregateResults,
                 epochs: Epochs | None = None, beside: tuple[str, ...] = ()) -> None:  # fmt: skip
        (name,) = ground.intakes
        self.payload, self.results = payload, results
        super().__init__(ground, made, workers=updaters, encoder=encoder, payloads={name: payload}, pauser=pauser,
                         pusher=pusher, gatherer=results, epochs=epochs, beside=beside)  # fmt: skip

    def _answered(self, code: int, who: str) -> bool:
        """The gate answered a code to a thread: False if that is because the run has ended.

        A code below zero at the gate is the end of a run that was stopped, or a fault of ours.
        """
        self.pauser.pause()
        if self.together.over:
            return False
        raise RunError(f"The gate answered {code} to {who}", do="Report this")

    # --- what is going on ---

    def describe(self) -> list[str]:
        return self.workers[0].windows.describe()

    def _served(self, side: int) -> str:
        return "panes"

    def _loads(self) -> list[float]:
        return [float(w.words[shared.NS_STORE]) for w in self.workers]

    def _windows_nbytes(self) -> int:
        return sum(w.windows.nbytes for w in self.workers)

    def _worker_nbytes(self, worker: Updater) -> int:
        return int(worker.windows.nbytes)

    def stats(self, *, latest: bool = False) -> Stats:
        found = super().stats(latest=latest)
        return dataclasses.replace(found, update_cpu_s=sum(found.threads_cpu_s))
