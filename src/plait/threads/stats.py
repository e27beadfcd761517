"""What a run measures of itself: work by worker, its balance, latency, and where the time went."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np

from plait.threads import words as shared
from plait.threads.elastic.manager import Change

_SAMPLES = 1 << 19
_PAST = 1 << 14


@dataclass(frozen=True)
class Quantiles:
    """Milliseconds."""

    p50: float
    p99: float
    max: float
    samples: int


@dataclass(frozen=True)
class WorkerStats:
    """`busy_s` is time spent storing, comparing and emitting; waiting is not in it."""

    worker: int
    tuples: int
    comparisons: int
    results: int
    batches: int
    busy_s: float
    tuples_per_s: float
    comparisons_per_s: float
    waiting_for: str


@dataclass(frozen=True)
class Stats:
    """`balance_cv_percent`: standard deviation of the workers' comparisons, in percent of their mean.

    `stages`: the share of the time spent on distribution (reading the gate, laying tuples out), execution (storing,
    comparing) and gathering (results into rings, merged, into Arrow), as SplitJoin reports them.
    """

    strategy: str
    seconds: float
    tuples: int
    results: int
    comparisons: int
    workers: tuple[WorkerStats, ...]
    balance_cv_percent: float
    latency_from_push_ms: Quantiles
    latency_from_ready_ms: Quantiles
    stages: dict[str, float]
    index: dict[str, str]
    late: dict[str, int]
    behind: dict[str, int]
    memory: dict[str, int]
    changes: tuple[Change, ...] = ()  # of who serves which share, each with its reason and its cost
    threads_busy_s: tuple[float, ...] = ()  # elastic runs: time that each thread has spent serving shares
    #: Processor time of the threads that update windows and give results out; aggregates only, once they have ended.
    update_cpu_s: float = 0.0


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


def measured(worker: int, w: np.ndarray) -> WorkerStats:
    """What a worker's words say of it."""
    busy_s = int(w[shared.NS_STORE] + w[shared.NS_PROBE] + w[shared.NS_EMIT] + w[shared.NS_READ]) / 1e9
    tuples, comparisons = int(w[shared.TUPLES]), int(w[shared.COMPARISONS])
    return WorkerStats(
        worker=worker,
        tuples=tuples,
        comparisons=comparisons,
        results=int(w[shared.RESULTS]),
        batches=int(w[shared.BATCHES]),
        busy_s=busy_s,
        tuples_per_s=tuples / max(busy_s, 1e-9),
        comparisons_per_s=comparisons / max(busy_s, 1e-9),
        waiting_for=waiting_for(w),
    )


def stages(workers: list[np.ndarray], gathering_ns: int) -> dict[str, float]:
    """Shares of all time spent; `gathering_ns` is what it took to take results from the workers."""
    spent = {
        "distribution": sum(int(w[shared.NS_READ]) for w in workers),
        "execution": sum(int(w[shared.NS_STORE] + w[shared.NS_PROBE]) for w in workers),
        "gathering": gathering_ns + sum(int(w[shared.NS_EMIT]) for w in workers),
    }
    total = max(sum(spent.values()), 1)
    return {name: ns / total for name, ns in spent.items()}


class Latency:
    """When tuples became ready, and how long their results took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Frontiers in order and when each was reached, the last _PAST of them: arrays, since they are searched often.
        self._frontiers, self._times = np.zeros(2 * _PAST, np.int64), np.zeros(2 * _PAST, np.int64)
        self._reached = 0
        self._push: list[np.ndarray] = []
        self._ready: list[np.ndarray] = []
        self._kept = 0

    def advanced(self, frontier: int, ns: int) -> None:
        """The frontier rose; tuples below it are ready since `ns`."""
        with self._lock:
            at = self._reached
            if at and frontier <= self._frontiers[at - 1]:
                return
            if at == 2 * _PAST:
                for kept in (self._frontiers, self._times):
                    kept[:_PAST] = kept[_PAST:]
                at = _PAST
            self._frontiers[at], self._times[at] = frontier, ns
            self._reached = at + 1

    def note(self, ts: np.ndarray, pushed_ns: np.ndarray, now: int) -> None:
        """Results whose triggers have these ts and were pushed then came out now."""
        with self._lock:
            at = np.searchsorted(self._frontiers[: self._reached], ts, "right")
            times = np.where(at < self._reached, self._times[np.minimum(at, 2 * _PAST - 1)], now)
            # A tuple can't be ready before it was pushed: what the frontier had passed already is behind.
            ready = np.maximum(times, pushed_ns)
            self._push.append((now - pushed_ns) / 1e6)
            self._ready.append((now - ready) / 1e6)
            self._kept += len(ts)
            if self._kept > _SAMPLES:
                for kept in (self._push, self._ready):
                    kept[:] = [np.concatenate(kept)[::2]]
                self._kept = len(self._push[0])

    def passed_ns(self, ts: np.ndarray) -> np.ndarray:
        """When the frontier passed each ts."""
        with self._lock:
            at = np.searchsorted(self._frontiers[: self._reached], ts, "right")
            known = self._times[np.minimum(at, 2 * _PAST - 1)]
            return np.where(at < self._reached, known, time.monotonic_ns())

    def reset(self) -> None:
        """Forget what was measured: a warm-up."""
        with self._lock:
            self._push, self._ready, self._kept = [], [], 0

    def quantiles(self) -> tuple[Quantiles, Quantiles]:
        with self._lock:
            return _quantiles(self._push), _quantiles(self._ready)


def _quantiles(parts: list[np.ndarray]) -> Quantiles:
    if not parts:
        return Quantiles(float("nan"), float("nan"), float("nan"), 0)
    values = np.concatenate(parts)
    p50, p99 = np.percentile(values, (50, 99))
    return Quantiles(float(p50), float(p99), float(values.max()), len(values))


def variation_percent(counts: list[int]) -> float:
    mean = float(np.mean(counts)) if counts else 0.0
    return 0.0 if mean == 0 else float(np.std(counts)) / mean * 100
