"""What a run on threads tells besides what any run does (`core.metrics`): work by worker, and latency."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from plait.core.machine.line import pages
from plait.core.metrics import (
    BYTES,
    MILLISECONDS,
    NAME,
    PER_SECOND,
    PUBLISHING,
    RECORDS,
    SECONDS,
    THREADS,
    TUPLES,
    WAITING,
    WORKING,
    Counts,
    Metrics,
    PartStats,
    Quantiles,
    metric,
    missing,
)  # fmt: skip
from plait.threads import words as shared
from plait.threads.elastic.manager import Change

_SAMPLES = 1 << 19
_TOLD = 64  # times that results were noted, before it is found since when they were ready
_PAST = 1 << 14
_NONE = np.empty(0, np.int64)
_PARTS = 1 << 10
_LATEST = 1 << 12  # results that tell where time goes now

VISITING = "visiting"
#: What `Stats.stage_latency_ms` is told of: the three stages of a join, all of them, and of pairs.
STAGES = ("distribution", "execution", "gathering", "processing", VISITING)


@dataclass(kw_only=True)
class WorkerStats(PartStats):
    """What one worker tells. Of a run's counts it has those of its own work: rows are judged before workers see them.

    Its fields are in docs/metrics.md.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
        ...     run.push("readings", None, {"ts": [1, 2, 40]})
        ...     run.drain()
        ...     rows = run.table().num_rows
        ...     [worker.worker for worker in run.stats().workers]
        [0]
    """

    worker: int = metric(NAME, "its number, from 0 on", filled=(THREADS,))
    tuples: int = metric(
        TUPLES, "tuples that this worker has compared, added up or handed to buckets", filled=(THREADS,)
    )
    tuples_per_s: float = metric(PER_SECOND, "its tuples, for each second that it was busy", filled=(THREADS,))
    comparisons_per_s: float = metric(
        PER_SECOND, "its comparisons, for each second that it was busy", filled=(THREADS,)
    )
    waiting_for: str = metric(NAME, "what it waits for now, in words", filled=(THREADS,))


@dataclass(kw_only=True)
class Stats(Metrics):
    """What a run on threads tells: what any run does (`core.metrics`), and what threads alone can say of themselves.

    Its fields are in docs/metrics.md. `Run.stats` gives one.

    Example:
        >>> import plait
        >>> readings = plait.stream("readings", unit="s")
        >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
        ...     run.push("readings", None, {"ts": [1, 2, 40]})
        ...     run.drain()
        ...     rows = run.table().num_rows
        ...     run.stats().rows, run.stats().results
        (3, 2)
    """

    strategy: str = metric(
        NAME, "how the work is shared among workers; of several operators each one's", filled=(THREADS,)
    )
    workers: tuple[WorkerStats, ...] = metric(RECORDS, "what each worker tells: see below", filled=(THREADS,))
    latency_from_push_ms: Quantiles = metric(
        MILLISECONDS,
        "from the push of the last tuple that a result is made of to the finished batch that has the result: a join result's "
        "later tuple, the last tuple of a row's window (of whatever key), the tuple that an operator's row was yielded for, the "
        "last one before a timer; in queries of queries that of a stream which the chain of results begins with",
        filled=(THREADS,),
    )
    latency_from_ready_ms: Quantiles = metric(
        MILLISECONDS, "the same from the moment that the frontier had passed the result's ts", filled=(THREADS,)
    )
    stage_latency_ms: dict[str, Quantiles] = metric(
        MILLISECONDS,
        "of sampled tuples of a join, with all that they waited for: distribution (from push until a worker began to store "
        "it), execution (stored, compared, its partners found), gathering (until all its results were given out), processing "
        "(the three together), and of sampled pairs visiting (from the push of both to when they were found)",
        filled=(THREADS,),
    )
    index: dict[str, str] = metric(NAME, "by what each input's tuples are found again", filled=(THREADS,))
    memory: dict[str, int] = metric(BYTES, "`state_bytes` by what takes it: windows, payload", filled=(THREADS,))
    changes: tuple[Change, ...] = metric(
        RECORDS,
        "changes of who serves which share, each with its reason and its cost; elastic runs",
        filled=(THREADS,),
        default=(),
    )
    threads_busy_s: tuple[float, ...] = metric(
        SECONDS, "time that each thread has spent serving shares; elastic runs", filled=(THREADS,), default=()
    )
    threads_cpu_s: tuple[float, ...] = metric(
        SECONDS, "processor time that each thread has used since it began: waiting for the GIL or for a core is not in it",
        filled=(THREADS,), default=(),
    )  # fmt: skip
    update_cpu_s: float = metric(
        SECONDS, "processor time of threads that update windows and give results out; aggregates",
        filled=(THREADS,), default=0.0,
    )  # fmt: skip

    @property
    def parts(self) -> tuple[PartStats, ...]:
        """The workers, as what any executor's parts are."""
        return self.workers


for _kind in (WorkerStats, Stats):
    for _line in missing(_kind):
        raise ImportError(f"{_line}: see plait.threads.stats")


_WAITING = {
    shared.NOTHING: "is working",
    shared.FOR_TUPLES: "waits for tuples to become ready",
    shared.FOR_CONSUMER: "waits for results() to be read",
    shared.FOR_WRITER: "waits for the worker that writes a window segment it shares",
    shared.FOR_SHARER: "waits for a worker that shares its window segment and is behind",
    shared.FOR_CHILD: "waits for a worker below it in the distribution tree",
}


def waiting_for(words: np.ndarray) -> str:
    return _WAITING[int(words[shared.WAITS])]


def measured(worker: int, w: np.ndarray, counts: Counts, held_bytes: int = 0) -> WorkerStats:
    """What a worker tells: by its words, and by what it has counted."""
    busy_s = int(w[shared.NS_STORE] + w[shared.NS_PROBE] + w[shared.NS_EMIT] + w[shared.NS_READ]) / 1e9
    tuples = int(w[shared.TUPLES])
    return WorkerStats(
        **vars(counts),
        worker=worker,
        tuples=tuples,
        busy_s=busy_s,
        held_bytes=held_bytes,
        tuples_per_s=tuples / max(busy_s, 1e-9),
        comparisons_per_s=counts.comparisons / max(busy_s, 1e-9),
        waiting_for=waiting_for(w),
    )


def stages(workers: list[np.ndarray], gathering_ns: int) -> dict[str, float]:
    """Shares of all time spent; `gathering_ns` is what it took to take results from the workers.

    `workers` are their words; times are nanoseconds there. NS_WAIT and NS_BLOCKED belong to no stage.
    """
    spent = {
        "distribution": sum(int(w[shared.NS_READ]) for w in workers),
        "execution": sum(int(w[shared.NS_STORE] + w[shared.NS_PROBE]) for w in workers),
        "gathering": gathering_ns + sum(int(w[shared.NS_EMIT]) for w in workers),
    }
    total = max(sum(spent.values()), 1)
    return {name: ns / total for name, ns in spent.items()}


class Latency:
    """When tuples became ready, and how long their results took.

    `_frontiers` and `_times`: the frontier stood at [k] since [k], in nanoseconds of `time.monotonic_ns`, ascending.
    `_push` and `_ready`: measured milliseconds, in parts; when there are more than _SAMPLES, every second one is
    dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Frontiers in order and when each was reached, the last _PAST of them: arrays, since they are searched often.
        self._frontiers, self._times = pages(2 * _PAST), pages(2 * _PAST)
        self._reached = 0
        self._told: list[tuple[np.ndarray, np.ndarray, int]] = []  # as `note` was told
        self._push: list[np.ndarray] = []
        self._ready: list[np.ndarray] = []
        self._kept = 0
        self.resets = 0  # how often what was measured was forgotten
        self._stages: dict[str, list[np.ndarray]] = {name: [] for name in STAGES}

    def advanced(self, frontier: int, ns: int) -> None:
        """The frontier rose; tuples below it are ready since `ns`."""
        with self._lock:
            at = self._reached
            if at and frontier <= self._frontiers[at - 1]:
                return
            if at == 2 * _PAST:
                self._find()
                for kept in (self._frontiers, self._times):
                    kept[:_PAST] = kept[_PAST:]
                at = _PAST
            self._frontiers[at], self._times[at] = frontier, ns
            self._reached = at + 1

    def note(self, ts: np.ndarray, pushed_ns: np.ndarray, now: int) -> None:
        """Results whose triggers have these ts and were pushed then came out now.

        Arrays of equal length: ts in microseconds, `pushed_ns` of the last tuple each is made of. A ts that no frontier has
        passed yet counts as ready now.
        """
        with self._lock:
            self._told.append((ts.copy(), pushed_ns.copy(), now))  # they may be parts of a batch, which would be held
            if len(self._told) >= _TOLD:
                self._find()

    def _find(self) -> None:
        """Since when the results that were noted had been ready: of many at once, since who gives results out waits for it."""
        if not self._told:
            return
        all_ts, all_pushed, moments = zip(*self._told, strict=True)
        self._told.clear()
        now = np.repeat(np.array(moments), [len(ts) for ts in all_ts])
        ts, pushed_ns = np.concatenate(all_ts), np.concatenate(all_pushed)
        at = np.searchsorted(self._frontiers[: self._reached], ts, "right")
        # The frontier may have passed since.
        times = np.where(at < self._reached, np.minimum(self._times[np.minimum(at, 2 * _PAST - 1)], now), now)
        # A tuple can't be ready before it was pushed: what the frontier had passed already is behind.
        ready = np.maximum(times, pushed_ns)
        self._push.append((now - pushed_ns) / 1e6)
        self._ready.append((now - ready) / 1e6)
        self._kept += len(ts)
        if self._kept > _SAMPLES:
            for kept in (self._push, self._ready):
                kept[:] = [np.concatenate(kept)[::2]]
            self._kept = len(self._push[0])

    def note_stages(self, pushed: np.ndarray, began: np.ndarray, found: np.ndarray, out: np.ndarray) -> None:
        """Tuples that were pushed, begun with by a worker, through there, and out with all their results, then.

        Nanoseconds, arrays of equal length. SplitJoin's definition 3, and the stages of its figure 14.
        """
        spent = (began - pushed, found - began, out - found, out - pushed)
        self._keep(dict(zip(STAGES, spent, strict=False)))

    def note_visits(self, pushed: np.ndarray, found: np.ndarray) -> None:
        """Pairs of which the tuple that was pushed last came then were found then: SplitJoin's definition 4."""
        self._keep({VISITING: found - pushed})

    def _keep(self, measured: dict[str, np.ndarray]) -> None:
        with self._lock:
            for name, ns in measured.items():
                parts = self._stages[name]
                parts.append(ns / 1e6)
                if len(parts) > _PARTS:
                    joined = np.concatenate(parts)
                    parts[:] = [joined[:: 1 + (len(joined) > _SAMPLES)]]

    def stages(self, *, latest: bool = False) -> dict[str, Quantiles]:
        with self._lock:
            return {name: _quantiles(_last(parts) if latest else parts) for name, parts in self._stages.items()}

    def reset(self) -> None:
        """Forget what was measured: a warm-up."""
        with self._lock:
            self.resets += 1
            self._told, self._push, self._ready, self._kept = [], [], [], 0
            self._stages = {name: [] for name in STAGES}

    def quantiles(self, *, latest: bool = False) -> tuple[Quantiles, Quantiles]:
        """From the push, and from when it was ready. `latest`: of the last results, which costs whoever looks often little."""
        with self._lock:
            self._find()
            push, ready = (_last(self._push), _last(self._ready)) if latest else (self._push, self._ready)
            return _quantiles(push), _quantiles(ready)

    def split(self) -> dict[str, Quantiles]:
        """Where the time of the last results went: waiting for the frontier, working, publishing where it is measured."""
        with self._lock:
            self._find()
            push, ready = _last(self._push), _last(self._ready)
            out = _last(self._stages["gathering"])
        waited = [a - b for a, b in zip(push, ready, strict=True)]
        found = {WAITING: _quantiles(waited), WORKING: _quantiles(ready)}
        if out:
            found[PUBLISHING] = _quantiles(out)
        return {name: each for name, each in found.items() if each.samples}


class Last:
    """Of a worker's tuples the last one before a moment, and when it was pushed: what the latency of rows is measured from that
    no single tuple has caused. Such a row, of a window of time or of a timer, has its ts one below the moment that it closes at.

    `took` is told tuples in total order; some may be left out, but not the last before any moment that rows close at. Rows are
    asked for before the next tuples are told, and those told before lie below all of their moments: of these the very last
    is enough.
    """

    def __init__(self) -> None:
        self._ts = _NONE
        self._when: Callable[[np.ndarray], np.ndarray] = lambda at: at
        self._before = time.monotonic_ns()  # when the last tuple of those told before was pushed

    def took(self, ts: np.ndarray, when: Callable[[np.ndarray], np.ndarray]) -> None:
        """Tuples of these ts, ascending; `when` gives when those at some places among them were pushed."""
        self._ts, self._when = ts, when

    def pushed_ns(self, ts: np.ndarray) -> np.ndarray:
        """For rows of these ts, ascending."""
        if len(ts) == 0:
            return _NONE
        steps = np.append(0, np.flatnonzero(ts[1:] != ts[:-1]) + 1)  # rows of one window have one ts
        at = np.searchsorted(self._ts, ts[steps], "right") - 1
        found, known = np.full(len(steps), self._before), at >= 0
        if known.any():
            found[known] = self._when(at[known])
        return np.repeat(found, np.diff(steps, append=len(ts)))

    def moved_on(self) -> None:
        """Rows have been asked for; what was told may be let go of."""
        if len(self._ts):
            self._before = int(self._when(np.array([len(self._ts) - 1]))[0])
        self._ts = _NONE


def _last(parts: list[np.ndarray]) -> list[np.ndarray]:
    """The parts that have the last values, about `_LATEST` of them."""
    found: list[np.ndarray] = []
    left = _LATEST
    for part in reversed(parts):
        if left <= 0:
            break
        found.append(part[-left:])
        left -= len(part)
    return found[::-1]


def _quantiles(parts: list[np.ndarray]) -> Quantiles:
    if not parts:
        return Quantiles(float("nan"), float("nan"), float("nan"), 0)
    values = np.concatenate(parts)
    p50, p99 = np.percentile(values, (50, 99))
    return Quantiles(float(p50), float(p99), float(values.max()), len(values))
