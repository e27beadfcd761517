"""How `plait bench join` and its studies run a join on threads: flat out, preloaded, or at a given pace."""

from __future__ import annotations

import hashlib
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors.synthetic.workload import Workload
from plait.core.metrics import Quantiles
from plait.errors import RunError
from plait.threads.gate import gates, ring
from plait.threads.input import given
from plait.threads.stats import Stats
from plait_bench.band import LEFT, RIGHT

PIECE = 8192

Tables = Mapping[str, pa.Table]


@dataclass(frozen=True)
class Outcome:
    """`seconds`: from the first push to the last result batch. `push_ns`: processor time a tuple of the thread that pushes."""

    seconds: float
    tuples: int
    table: pa.Table
    stats: Stats
    push_ns: float = 0.0

    @property
    def tuples_per_s(self) -> float:
        return self.tuples / self.seconds

    @property
    def comparisons_per_s(self) -> float:
        return self.stats.comparisons / self.seconds


def digests(table: pa.Table) -> tuple[str, str]:
    """Of the rows as a sequence, and as a set."""
    import pandas as pd

    rows = pd.util.hash_pandas_object(table.to_pandas(), index=False).to_numpy()
    return tuple(hashlib.sha256(each.tobytes()).hexdigest()[:12] for each in (rows, np.sort(rows)))  # type: ignore[return-value]


def pieces(tables: Tables, size: int = PIECE) -> list[tuple[str, pa.RecordBatch]]:
    """Batches of both streams in order of their first ts, so that neither waits long for the other."""
    found = []
    for name, table in tables.items():
        for batch in table.combine_chunks().to_batches(max_chunksize=size):
            found.append((pc.cast(batch.column("ts"), pa.int64())[0].as_py(), name, batch))
    found.sort(key=lambda each: (each[0], each[1]))
    return [(name, batch) for _, name, batch in found]


class Reader:
    """Reads results in a thread of its own, as a user would."""

    def __init__(self, run: Any) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.error: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._read, name="bench-reader", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self.batches.extend(self._run.results())
        except BaseException as error:
            self.error = error

    def join(self) -> pa.Table:
        self._thread.join()
        if self.error is not None:
            raise self.error
        return pa.Table.from_batches(self.batches, self._run.schema)


def warm_up(query: Any, tables: Tables, **options: Any) -> None:
    """A few rows, untimed: the condition's kernels and the strategy's loop may have to be compiled."""
    with query.on_threads(schemas={name: t.schema for name, t in tables.items()}, **options) as run:
        for name, table in tables.items():
            run.push(name, None, table.slice(0, 50))
        run.drain()
        run.table()


#: Pieces that a stream's thread may be ahead of the others'.
LEAD = 4


class _Ways:
    """Threads that push, one a stream. `done`: pieces that each has pushed; nobody gets further ahead than LEAD."""

    def __init__(self, run: Any, batches: list[tuple[str, pa.RecordBatch]]) -> None:
        self._run, self._moved = run, threading.Condition()
        self._error: list[BaseException] = []
        self.pushing_ns = 0
        self._own: dict[str, list[tuple[int, pa.RecordBatch]]] = {}
        for at, (name, batch) in enumerate(batches):
            self._own.setdefault(name, []).append((at, batch))
        self._at = dict.fromkeys(self._own, -1)  # the piece that each is at, among all in order of time
        self._threads = [threading.Thread(target=self._push, args=(name,), daemon=True) for name in self._own]
        for thread in self._threads:
            thread.start()

    def _push(self, name: str) -> None:
        try:
            for at, batch in self._own[name]:
                with self._moved:
                    self._at[name] = at
                    self._moved.notify_all()
                    while at > min(self._at.values()) + LEAD:
                        self._moved.wait()
                self._run.push(name, None, batch)
        except BaseException as error:
            self._error.append(error)
        with self._moved:
            self._at[name] = 1 << 62
            self._moved.notify_all()
            self.pushing_ns += time.thread_time_ns()

    def join(self) -> int:
        """Wait for all; gives their processor time."""
        for thread in self._threads:
            thread.join()
        if self._error:
            raise self._error[0]
        return self.pushing_ns


def flat_out(query: Any, tables: Tables, *, size: int = PIECE, apart: bool = False, **options: Any) -> Outcome:
    """Pushed as fast as the run takes it. Setting up, the schemas known, is not timed; everything else is.

    `apart`: each stream by a thread of its own, as feeds come.
    """
    warm_up(query, tables, **options)
    batches = pieces(tables, size)
    with query.on_threads(schemas={name: t.schema for name, t in tables.items()}, **options) as run:
        reader = Reader(run)
        begin, since = time.perf_counter(), time.thread_time_ns()
        if apart:
            pushing = _Ways(run, batches).join()
        else:
            for name, batch in batches:
                run.push(name, None, batch)
            pushing = time.thread_time_ns() - since
        run.drain()
        table = reader.join()
        seconds = time.perf_counter() - begin
        stats = run.stats()
    tuples = sum(t.num_rows for t in tables.values())
    return Outcome(seconds, tuples, table, stats, pushing / tuples)


#: What a usual push calls that is compiled, by name: (module, function).
COMPILED = (
    (given, "enter_few"),
    (given, "look"),
    (given, "keep"),
    (given, "lay"),
    (ring, "add_waiting"),
    (gates, "_lowest"),
)


def python_ns(query: Any, tables: Tables, *, size: int, **options: Any) -> float:
    """As `flat_out`, and of the pushing thread's processor time a push what is not spent in compiled calls.

    These are clocked, and what the clock takes counts as Python; handing over their arguments counts as theirs.
    """
    spent = 0

    def clocked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal spent
            since = time.thread_time_ns()
            found = function(*arguments)
            spent += time.thread_time_ns() - since
            return found

        return call

    warm_up(query, tables, **options)
    with ExitStack() as patches:
        for module, name in COMPILED:
            patches.enter_context(mock.patch.object(module, name, clocked(getattr(module, name))))
        batches = pieces(tables, size)
        with query.on_threads(schemas={name: t.schema for name, t in tables.items()}, **options) as run:
            reader = Reader(run)
            since = time.thread_time_ns()
            for name, batch in batches:
                run.push(name, None, batch)
            pushing = time.thread_time_ns() - since
            run.drain()
            reader.join()
    return (pushing - spent) / len(batches)


def preloaded(query_of: Callable[..., Any], tables: Tables, **options: Any) -> Outcome:
    """Everything is at the gate, encoded, before any of it is ready: a second source of S holds it back until it ends.

    What is timed is the workers' part and reading the results.
    """
    warm_up(query_of(), tables, **options)
    rows = max(t.num_rows for t in tables.values())
    held = Workload("held", {}, {LEFT: {}, RIGHT: {"sources": ("data", "gate")}})
    options |= {"capacity": 2 * rows, "pending": 2 * rows}
    with query_of(workload=held).on_threads(schemas={n: t.schema for n, t in tables.items()}, **options) as run:
        reader = Reader(run)
        for name, batch in pieces(tables):
            run.push(name, "data" if name == RIGHT else None, batch)
        run.close(LEFT)
        run.close(RIGHT, "data")
        begin = time.perf_counter()
        run.drain()
        table = reader.join()
        seconds = time.perf_counter() - begin
        stats = run.stats()
    return Outcome(seconds, sum(t.num_rows for t in tables.values()), table, stats)


@dataclass(frozen=True)
class Paced:
    ready: Quantiles
    push: Quantiles
    rate: float
    behind_ms: float
    stats: Stats
    table: pa.Table


def paced(query: Any, tables: Tables, *, warm: float, rate: float | None, size: int, **options: Any) -> Paced:
    """The first part (`warm`, a share) fills the windows flat out; then latency is measured at `rate` tuples/s.

    A rate of None replays event time. `behind_ms` is the most that a push came late: the machine's fault, or the rate's.
    """
    warm_up(query, tables, **options)
    tick = {name: int(t.num_rows * warm) for name, t in tables.items()}
    begin_at = {name: t.slice(tick[name]) for name, t in tables.items()}
    measured = pieces(begin_at, size)
    total = sum(batch.num_rows for _, batch in measured)
    with query.on_threads(schemas={name: t.schema for name, t in tables.items()}, **options) as run:
        reader = Reader(run)
        for name, batch in pieces({name: t.slice(0, tick[name]) for name, t in tables.items()}):
            run.push(name, None, batch)
        _settle(run)
        run.reset_latency()
        begin, sent, late = time.perf_counter(), 0, 0.0
        first_us = pc.cast(measured[0][1].column("ts"), pa.int64())[0].as_py()
        for name, batch in measured:
            if rate is None:
                # A batch can be pushed when its last tuple has happened.
                due = begin + (pc.cast(batch.column("ts"), pa.int64())[-1].as_py() - first_us) / 1e6
            else:
                due = begin + sent / rate
            now = time.perf_counter()
            if now < due:
                time.sleep(due - now)
            else:
                late = max(late, now - due)
            run.push(name, None, batch)
            sent += batch.num_rows
        seconds = time.perf_counter() - begin
        stats = run.stats()
        run.drain()
        table = reader.join()
    return Paced(stats.latency_from_ready_ms, stats.latency_from_push_ms, total / seconds, late * 1e3, stats, table)


def _settle(run: Any) -> None:
    """Wait until the workers have nothing left of what was pushed."""
    seen = -1
    while True:
        now = run.stats()
        if now.comparisons + now.results == seen:
            return
        seen = now.comparisons + now.results
        time.sleep(0.05)


def rounds(contenders: Mapping[str, Callable[[], float]], number: int, warm: bool = True) -> dict[str, list[float]]:
    """What each measures, round by round: contenders take turns, so that a busy moment hits all."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for at in range(number + warm):
        for name, call in contenders.items():
            value = call()
            if at >= warm:
                found[name].append(value)
    return found


def same(name: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise RunError(f"{name} gives {found}, the others {expected}")


def median(paced_runs: list[Paced], which: str) -> float:
    return float(statistics.median(getattr(each.ready, which) for each in paced_runs))
