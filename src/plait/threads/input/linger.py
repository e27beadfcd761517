"""Small pushes that wait for others of their source, for a stated time at most: `on_threads(linger=)`.

A push of few rows costs as much as its way into the run, some 25 microseconds, whatever it has. Where rows come one by one that
is all there is to their cost; so they may wait, and enter together.

Invariants, and why they hold:

- A source's rows enter in the order in which they were pushed. Each push puts its batches behind those that wait, under `_lock`;
  whoever enters them has the source's `turn` from before it takes all of them until they are in.
- Rows wait for `wait_s` at most, and then for room as any push does: the thread here enters what has waited so long. Who pushes
  enters them itself once they are ENOUGH, so it is held back where workers are behind, and what waits is bounded.
- What is said of a source after its rows (a heartbeat, its end) enters after them: `enter_all` comes first.

What waits has not entered: it is in no count and no frontier yet, and what is wrong with it is told by a later call. A run that
is stopped loses it, as it loses all that was not read. Held by tests/threads/input/test_linger.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from plait.core.sources import told
from plait.query.stream import SourceName
from plait.threads.gate.gates import inside
from plait.threads.life.pause import Stopped
from plait.threads.parts import Running

ENOUGH = 2048  # rows that enter at once: of so many a push costs less than what its rows do

Key = tuple[str, SourceName | None]


@dataclass
class _Waiting:
    """What one source has pushed and has not entered. `source`: as it was named first; `pushing`: by whoever pushes it now;
    `since`: of the oldest batch.
    """

    source: SourceName | None = None
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    since: float = 0.0
    pushing: threading.Lock = field(default_factory=threading.Lock)
    turn: threading.Lock = field(default_factory=threading.Lock)


class Lingering:
    """The pushes of one run. Its thread begins with the first push, and holds the engine, not the run."""

    def __init__(self, engine: Running, wait_us: int) -> None:
        self._engine, self._wait_s = engine, wait_us / 1e6
        self._lock = threading.Lock()
        self._waiting: dict[Key, _Waiting] = {}
        self._some = threading.Event()  # that wait, since the thread looked
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def push(self, stream: str, source: SourceName | None, batches: list[pa.RecordBatch], *, alone: bool) -> None:
        """Put batches behind those that wait, and enter them all if they are enough.

        `alone`: they are one source's, which one thread at a time pushes. A stream's only source has two names, None and 0.
        """
        key = (stream, 0 if alone and source is None else source)
        with self._lock:
            waiting = self._waiting.setdefault(key, _Waiting(source))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="plait-linger", daemon=True)
                self._thread.start()
        if alone and not waiting.pushing.acquire(blocking=False):
            raise inside(told(*key))
        try:
            with self._lock:
                if not waiting.batches:
                    waiting.since = time.monotonic()
                waiting.batches += batches
                waiting.rows += sum(batch.num_rows for batch in batches)
            if waiting.rows >= ENOUGH:
                self._enter(stream, waiting)
            else:
                self._some.set()
        finally:
            if alone:
                waiting.pushing.release()

    def enter_all(self, stream: str | None = None) -> None:
        """Enter what waits, of one stream or of all, the oldest first."""
        with self._lock:
            found = [(key, each) for key, each in self._waiting.items() if stream is None or key[0] == stream]
        self._enter_each(found)

    def _enter_each(self, found: Iterable[tuple[Key, _Waiting]]) -> None:
        for key, waiting in sorted(found, key=lambda each: each[1].since):
            self._enter(key[0], waiting)

    def _enter(self, stream: str, waiting: _Waiting) -> None:
        with waiting.turn:
            with self._lock:
                batches, waiting.batches, waiting.rows = waiting.batches, [], 0
            if batches:
                whole = batches if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()
                self._engine.push(stream, waiting.source, whole)

    # --- its thread ---

    def _run(self) -> None:
        """Sleeps while nothing waits; else until the oldest has waited long enough."""
        while not self._over.is_set():
            self._some.wait()
            self._some.clear()
            with self._lock:
                since = [each.since for each in self._waiting.values() if each.batches]
            if not since:
                continue
            if self._over.wait(max(0.0, min(since) + self._wait_s - time.monotonic())):
                return
            try:
                with self._lock:
                    due = time.monotonic() - self._wait_s
                    found = [(key, each) for key, each in self._waiting.items() if each.batches and each.since <= due]
                    left = any(each.batches and each.since > due for each in self._waiting.values())
                self._enter_each(found)
            except Stopped:
                return
            except BaseException as error:
                self._engine.fail(error)
                return
            if left:
                self._some.set()

    def abandon(self) -> None:
        """Let the thread end. What waits is lost."""
        self._over.set()
        self._some.set()

    def stop(self) -> None:
        """The same, and wait until it has; after the engine was stopped, so that it waits for nothing."""
        self.abandon()
        if self._thread is None or self._thread is threading.current_thread():
            return
        if self._thread.ident is not None:  # an interrupt may have struck before it was started
            self._thread.join()
