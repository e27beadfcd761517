"""The rate at which a join keeps up: what the papers call sustained.

A stream of r tuples a second fills a window of W seconds with r W tuples, so a higher rate is more work for every tuple: keeping
up with r tuples a second of both streams takes 2 W r² comparisons a second (ScaleJoin, section II). `steady` fills the windows
at a rate of event time, then pushes flat out and counts how many comparisons a second are made. `sustained` looks for the rate
at which these are as many as are needed.

There are two clocks. By the wall it is what this machine sustains now. By processor time it is what the busiest thread would
sustain with a core of its own: that can be said on a machine with fewer cores than threads, and on one with other work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import log2, sqrt
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors import synthetic
from plait.connectors.synthetic.workload import tables
from plait.errors import PlaitError, RunError
from plait.threads.stats import Stats
from plait_bench.join_runs import Tables, pieces

Clock = Literal["wall", "processor"]

#: Tuples that a worker takes at once. A batch is counted when it is done: of large windows a large batch is a long time.
BATCH = 2048
PUSH = 2048
LOOK_S, LOST_S = 0.002, 60.0
#: Joins of which every worker compares every tuple, with its part of the windows.
SEE_ALL = ("sequential", "scalejoin", "splitjoin")


@dataclass(frozen=True)
class Steady:
    """What was measured after the windows were full, until nothing was left of what was pushed.

    Attributes:
        rate: Tuples a second of the left stream, in event time.
        needed_per_s: Comparisons a second that it takes to keep up with that rate.
        tuples: Pushed in that time, of both streams.
        wall_s: How long it took.
        threads_s: Processor time of each thread of the run: workers, then mergers.
        ends_s: Processor time of who pushed, and of who read.
        by_worker: Comparisons of each worker.
        taken: Result rows that were read; the last may still be on their way.
        stats: Of the whole run.
    """

    rate: float
    needed_per_s: float
    tuples: int
    wall_s: float
    threads_s: tuple[float, ...]
    ends_s: tuple[float, float]
    by_worker: tuple[int, ...]
    taken: int
    stats: Stats

    @property
    def comparisons(self) -> int:
        return sum(self.by_worker)

    def seconds(self, clock: Clock) -> float:
        """How long it took; by processor time the busiest thread's."""
        return self.wall_s if clock == "wall" else max(*self.threads_s, *self.ends_s)

    def comparisons_per_s(self, clock: Clock) -> float:
        return self.comparisons / self.seconds(clock)

    def tuples_per_s(self, clock: Clock) -> float:
        return self.tuples / self.seconds(clock)

    def keeps_up(self, clock: Clock) -> float:
        """How many times as much as is needed it does. 1: this is the highest rate that is sustained."""
        return self.comparisons_per_s(clock) / self.needed_per_s


def steady(
    query: Any, *, rate: float, window_s: float, seconds: float, right: int = 1, size: int = PUSH, **options: Any
) -> Steady:
    """Fill windows of `window_s`, then push what comes in the next `seconds` of event time, flat out.

    Args:
        query: A join of the papers' two streams, over windows of `window_s` or of as many tuples as come in that time.
        rate: Tuples a second of the left stream, in event time.
        window_s: How long the windows are.
        seconds: How much event time is measured. At the highest rate that is sustained it takes as long.
        right: How many times as many tuples the right stream has.
        size: Tuples in a push.
        options: Of `on_threads`.
    """
    before, after = parts(rate, window_s, seconds, right)
    with filled(query, before, **options) as (run, reader):
        first, rows, read_s, since_s = run.stats(), reader.rows, reader.cpu_s(), time.thread_time()
        begin = time.perf_counter()
        for name, batch in pieces(after, size):
            run.push(name, None, batch)
        push_s = time.thread_time() - since_s
        wall_s = settled(run, rows_of(before) + ready_of(after)) - begin
        last, read_s, rows = run.stats(), reader.cpu_s() - read_s, reader.rows - rows
    return Steady(
        rate, 2.0 * window_s * rate * rate * right, rows_of(after), wall_s,
        tuple(b - a for a, b in zip(first.threads_cpu_s, last.threads_cpu_s, strict=True)), (push_s, read_s),
        tuple(b.comparisons - a.comparisons for a, b in zip(first.workers, last.workers, strict=True)), rows, last,
    )  # fmt: skip


@dataclass(frozen=True)
class Replayed:
    """What a run at a rate tells once the windows are full.

    Attributes:
        rate: Tuples a second of the left stream.
        behind_ms: The most that a push came late: the machine's fault, or the rate's.
        stats: Latencies since the windows were full.
    """

    rate: float
    behind_ms: float
    stats: Stats


def replayed(
    query: Any, *, rate: float, window_s: float, seconds: float, right: int = 1, every_s: float = 0.005, **options: Any
) -> Replayed:
    """Fill the windows, then replay the next `seconds` in time, both streams every `every_s`: latency at that rate."""
    before, after = parts(rate, window_s, seconds, right)
    with filled(query, before, **options) as (run, _):
        run.reset_latency()
        begin, late_s = time.perf_counter(), 0.0
        for tick in range(int(seconds / every_s)):
            due = begin + (tick + 1) * every_s  # what happened in between can be pushed when it is over
            wait = due - time.perf_counter()
            if wait > 0:
                time.sleep(wait)
            late_s = max(late_s, -wait)
            for at, (name, table) in enumerate(after.items()):
                low, high = (round(edge * every_s * rate) * (1 if at == 0 else right) for edge in (tick, tick + 1))
                run.push(name, None, table.slice(low, high - low))
        settled(run)
        stats = run.stats()
    return Replayed(rate, late_s * 1e3, stats)


def parts(
    rate: float, window_s: float, seconds: float, right: int = 1
) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """The streams at a rate: what fills the windows, and what comes in the `seconds` after that."""
    given = retimed(streams(round((window_s + seconds) * rate), right), rate)
    full = {name: round(window_s * rate) * (1 if at == 0 else right) for at, name in enumerate(given)}
    before = {name: table.slice(0, full[name]) for name, table in given.items()}
    return before, {name: table.slice(full[name]) for name, table in given.items()}


@contextmanager
def filled(query: Any, before: Tables, **options: Any) -> Iterator[tuple[Any, Taker]]:
    """A run that has taken in `before` and has nothing left to do, and who reads its results. It is stopped at the end."""
    if not options.keys() & {"layout", "emitter"}:
        options = {"strategy": "scalejoin"} | options  # the papers'; `auto` would share by values
    options = {"batch": BATCH, "index": "scan"} | options
    with query.on_threads(schemas={name: table.schema for name, table in before.items()}, **options) as run:
        reader = Taker(run)
        for name, batch in pieces(before, PUSH):
            run.push(name, None, batch)
        settled(run, ready_of(before))
        yield run, reader
        reader.stop()


def streams(rows: int, right: int = 1) -> Tables:
    """The papers' two streams: `rows` tuples of the left one in as many seconds, and `right` times as many of the other."""
    made = _streams(1 << max((rows - 1).bit_length(), 12), right)
    return {name: table.slice(0, rows * (1 if at == 0 else right)) for at, (name, table) in enumerate(made.items())}


@cache
def _streams(rows: int, right: int) -> Tables:
    return tables(synthetic.band_join(left=1, right=right, seconds=rows, seed=1))


def retimed(given: Tables, rate: float) -> dict[str, pa.Table]:
    """The same tuples `rate` times as fast."""
    found = {}
    for name, table in given.items():
        kind = table.schema.field("ts").type
        at_us = (pc.cast(table.column("ts"), pa.int64()).to_numpy() / rate).astype(np.int64)
        found[name] = table.set_column(table.schema.get_field_index("ts"), "ts", pa.array(at_us).cast(kind))
    return found


class Taker:
    """Takes results in a thread of its own until the run is stopped, and knows that thread's processor time."""

    def __init__(self, run: Any) -> None:
        self.rows = 0
        self._run = run
        self._stopped = False
        self._error: PlaitError | None = None
        self._thread = threading.Thread(target=self._take, name="bench-taker", daemon=True)
        self._thread.start()

    def _take(self) -> None:
        try:
            for batch in self._run.results():
                self.rows += batch.num_rows
        except PlaitError as error:
            if not self._stopped:  # else it is how the stop is heard of
                self._error = error

    def cpu_s(self) -> float:
        """Of a thread that runs."""
        if self._error is not None:
            raise self._error
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def stop(self) -> None:
        """End the run: what its windows still hold is of no interest."""
        self._stopped = True
        self._run.stop()
        self._thread.join()


def rows_of(given: Tables) -> int:
    return sum(table.num_rows for table in given.values())


def ready_of(given: Tables) -> int:
    """How many of these tuples are ready once all are pushed: those below the earlier of the streams' last ones."""
    times = [pc.cast(table.column("ts"), pa.int64()).to_numpy() for table in given.values()]
    frontier = min(each[-1] for each in times)
    return sum(int(np.searchsorted(each, frontier)) for each in times)


def settled(run: Any, ready: int | None = None, *, idle_s: float = 0.03, silent_s: float = 0.2) -> float:
    """Wait until workers have nothing left of what was pushed: when they last did something.

    Args:
        run: The run.
        ready: How many tuples are ready. Workers that see all tuples have then compared so many, each of them.
        idle_s: Of other joins: so long they say that they wait, and nothing happens.
        silent_s: The same of rivals, which never say so. On a busy machine a thread may have to wait for a core for long.
    """
    seen, since = -1, time.perf_counter()
    while True:
        now, at = run.stats(), time.perf_counter()
        done = now.comparisons + now.results + sum(worker.tuples for worker in now.workers)
        if done != seen:
            seen, since = done, at
        if ready is not None and now.strategy in SEE_ALL:
            if all(worker.tuples >= ready for worker in now.workers):
                return at
            if at - since > LOST_S:
                raise RunError(
                    f"Workers have compared {[w.tuples for w in now.workers]} of {ready} tuples, and go no further"
                )
        else:
            waiting = all(worker.waiting_for.startswith("waits for tuples") for worker in now.workers)
            if at - since > (idle_s if waiting else silent_s):
                return since
        time.sleep(LOOK_S)


@dataclass(frozen=True)
class Sustained:
    """The highest rate, in tuples a second of the left stream; the run nearest to it; and how many runs were made."""

    rate: float
    at: Steady
    runs: int


def sustained(
    steady_at: Callable[[float], Steady], *, guess: float, clock: Clock = "wall", runs: int = 4, within: float = 0.06
) -> Sustained:
    """The rate that is just kept up with: where as many comparisons are made as are needed.

    What is needed goes with the square of the rate. Where comparing is all the work, what is made does not depend on it, and the
    second run is the answer. Other work makes that two or three more.

    Args:
        steady_at: A run at a rate: `steady` with all its options.
        guess: The first rate to try.
        clock: By which it keeps up.
        runs: At most so many are made.
        within: A run that keeps up but for this part is near enough.
    """
    made = [steady_at(guess)]
    while len(made) < runs and abs(made[-1].keeps_up(clock) - 1) > within:
        made.append(steady_at(made[-1].rate * sqrt(made[-1].keeps_up(clock))))
    nearest = min(made, key=lambda each: abs(log2(each.keeps_up(clock))))
    return Sustained(nearest.rate * sqrt(nearest.keeps_up(clock)), nearest, len(made))
