"""Runs of an aggregate on threads, as the benchmarks time them: threads that push, one that reads, and who worked how long.

The paper has a thread for each input; here too where there are cores for them, else as many as cores, each with its share of
the inputs, by turns. What is pushed is cut by event time, so that all inputs' k-th pieces span the same moments. A run may
have a warm-up, whose pieces are pushed before anything is measured, and a rate, at which the rest is injected; without one it
comes flat out. Durations are processor time of a thread for each tuple (the paper's figures 8 and 10): waiting is not in
them, and other load on the machine is only as far as it takes caches away. Latency is `stats()`'s, from the push.
"""

from __future__ import annotations

import math
import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.core.metrics import Quantiles
from plait.errors import PlaitError

#: Pieces that a thread may be ahead of the slowest one. Rows that wait for other sources are those, and the ones being pushed:
#: there is room for them and not for more, since memory is set aside, and a short run would measure how it is zeroed.
LEAD = 2


@dataclass(frozen=True)
class Outcome:
    """What was measured, from the end of the warm-up on.

    `tuples` were pushed then, in `seconds`, to the last result. `input_ns` and `output_ns`: processor time a tuple, of the
    threads that push, and of those that update and give out; of the latter `updater_ns` is the busiest one that updates, and
    `reader_ns` the one that reads results. `late_s`: how far the last piece was behind its rate when it was pushed, and
    `late_p50_ms` the median of all pieces; 0 without a rate. `table` is all of the run's results, `results` how many; the
    table is empty if they were not to be kept.
    """

    table: pa.Table
    results: int
    seconds: float
    tuples: int
    input_ns: float
    output_ns: float
    updater_ns: float
    reader_ns: float
    push_ms: Quantiles
    ready_ms: Quantiles
    late_s: float
    late_p50_ms: float

    @property
    def tuples_per_s(self) -> float:
        return self.tuples / self.seconds


def cut(sources: list[pa.RecordBatch], piece: int) -> list[list[pa.RecordBatch]]:
    """Every source in as many pieces as give it `piece` rows each on the average, by event time: [piece][source]."""
    times = [np.asarray(source.column(0)).astype(np.int64) for source in sources]
    pieces = math.ceil(max(map(len, times)) / piece)
    first, last = min(int(ts[0]) for ts in times), max(int(ts[-1]) for ts in times)
    edges = np.linspace(first, last + 1, pieces + 1)[1:-1]
    places = [[0, *np.searchsorted(ts, edges).tolist(), len(ts)] for ts in times]
    return [
        [source.slice(at[k], at[k + 1] - at[k]) for source, at in zip(sources, places, strict=True)] for k in range(pieces)
    ]  # fmt: skip


def pushing_threads(inputs: int) -> int:
    """A thread an input, where there are cores for them."""
    return min(max(os.cpu_count() or 1, 2), inputs)


def on_threads(
    query: plait.Query,
    sources: list[pa.RecordBatch],
    *,
    piece: int,
    crew: int | None = None,
    warm: float = 0.0,
    rate: float | None = None,
    keep: bool = True,
    **options: Any,
) -> Outcome:
    """Push all sources, `piece` rows at a time, while results are read.

    Args:
        query: The aggregate, of one stream whose sources are numbers.
        sources: What each of them delivers.
        piece: Rows a push, about.
        crew: Threads that push. None: a thread a source, as far as there are cores.
        warm: Part of the pieces that are pushed before anything is measured, at most all but one.
        rate: Tuples a second of all sources together, from then on. None: flat out.
        keep: Keep the results, as `table`. Without it a batch is dropped once it was read, as who reads a stream does: else
            every run takes a hundred megabytes of new memory, and measures how the system zeroes them.
        **options: Those of `on_threads`.

    Returns:
        What was measured.

    Raises:
        PlaitError: The run failed, or a push did.
    """
    (stream,) = query.streams()
    pieces = cut(sources, piece)
    begin_at = min(int(warm * len(pieces)), len(pieces) - 1)
    rows = [sum(each.num_rows for each in parts) for parts in pieces]
    before = np.cumsum([0, *rows[begin_at:]])  # measured rows before each measured piece
    made = _Pushing(sources, pieces, begin_at, before, rate, crew or pushing_threads(len(sources)))
    pending = (LEAD + 2) * max(each.num_rows for parts in pieces for each in parts)
    with query.on_threads(schemas={stream: sources[0].schema}, pending=max(pending, 1), **options) as run:
        made.start(run, stream)
        try:
            batches, results = _read(run, keep)
        except PlaitError:
            made.join()
            raise
        made.join()
        seconds = time.perf_counter() - made.began
        stats, tuples = run.stats(), int(before[-1])
        updaters = [1e9 * (now - then) for now, then in zip(stats.threads_cpu_s, made.updated_s, strict=True)]
        reader = time.thread_time_ns() - made.read_ns
        table = pa.Table.from_batches(batches, run.schema)
    return Outcome(
        table, results, seconds, tuples, sum(made.busy) / tuples, (sum(updaters) + reader) / tuples, max(updaters) / tuples,
        reader / tuples, stats.latency_from_push_ms, stats.latency_from_ready_ms, max(late[-1] for late in made.late),
        1e3 * float(np.median(np.concatenate(made.late))),
    )  # fmt: skip


def _read(run: Any, keep: bool) -> tuple[list[pa.RecordBatch], int]:
    batches, results = [], 0
    for batch in run.results():
        results += batch.num_rows
        if keep:
            batches.append(batch)
    return batches, results


class _Pushing:
    """The threads that push. They meet at the end of the warm-up, where measuring begins."""

    def __init__(self, sources: list[pa.RecordBatch], pieces: list[list[pa.RecordBatch]], begin_at: int, before: np.ndarray,
                 rate: float | None, crew: int) -> None:  # fmt: skip
        self._sources, self._pieces, self._begin_at, self._before, self._rate = sources, pieces, begin_at, before, rate
        self._crew = min(crew, len(sources))
        self.busy, self._reached = [0] * self._crew, [0] * self._crew
        self.late: list[list[float]] = [[0.0] for _ in range(self._crew)]
        self._failed: list[BaseException] = []
        self._barrier = threading.Barrier(self._crew, action=self._begin)
        self.began, self.read_ns = time.perf_counter(), 0
        self.updated_s: tuple[float, ...] = ()

    def start(self, run: Any, stream: str) -> None:
        self._run, self._stream, self._reader = run, stream, threading.current_thread()
        self._threads = [
            threading.Thread(target=self._push, args=(seat,), name=f"bench-push-{seat}") for seat in range(self._crew)
        ]
        if self._begin_at == 0:
            self._begin()  # with the run's own beginning in it
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _begin(self) -> None:
        """What comes from here on is measured."""
        self._run.reset_latency()
        self.updated_s = self._run.stats().threads_cpu_s
        assert self._reader.ident is not None
        self.read_ns = time.clock_gettime_ns(time.pthread_getcpuclockid(self._reader.ident))
        self.began = time.perf_counter()

    def _push(self, seat: int) -> None:
        run, own = self._run, range(seat, len(self._sources), self._crew)
        try:
            since = time.thread_time_ns()
            for k, parts in enumerate(self._pieces):
                if k == self._begin_at > 0:
                    self._barrier.wait()
                    since = time.thread_time_ns()
                self._reached[seat] = k
                while k - min(self._reached) > LEAD and not self._failed:
                    time.sleep(0.0002)
                if self._rate is not None and k >= self._begin_at:
                    due = self.began + self._before[k - self._begin_at] / self._rate
                    self.late[seat].append(max(time.perf_counter() - due, 0.0))
                    time.sleep(max(due - time.perf_counter(), 0.0))
                for source in own:
                    if parts[source].num_rows:
                        run.push(self._stream, source, parts[source])
            self._reached[seat] = len(self._pieces)
            for source in own:
                run.close(self._stream, source)
            self.busy[seat] = time.thread_time_ns() - since
        except BaseException as error:
            self._failed.append(error)
            self._barrier.abort()
            run.stop()
