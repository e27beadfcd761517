"""Latency by layout: tuples one at a time over full windows, and the course of a run from empty windows on.

*The longest part* is, of all comparisons that a tuple asks for, the most that one worker makes. Tuples are pushed one at a time
and the workers' counters are read in between, so it does not depend on how many cores there are, nor on who else uses them.
Equation 7 has latency go with it. Latency is measured besides, from the moment a tuple is ready to the batch that has its
results.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait_bench.elastic_runs import GAP_US, LEFT, RIGHT, Tables, pushed, started
from plait_bench.join_runs import warm_up
from plait_bench.papers.dpjoin.layouts import PIECE, Shape, options_of, pairs_of, settled


def near(r: Any, s: Any) -> Any:
    """The band of the figures, by a function that costs some tens of nanoseconds a pair if one of the two asks for it.

    The paper's condition took it 2.3 ns a pair; ours is scanned at 0.07, and a hand-over between threads takes longer than that
    of a whole window. So that layouts show, tuples that are measured compare at a cost; those that fill windows do not. The root
    is written out, since a loop can't be proven to be the same in machine code.
    """
    x, y = abs(r.x - s.a), abs(r.y - s.b)
    if r.late + s.late == 0:
        return x <= 100 and y <= 100
    square = float(x * x) + float(y * y)
    root = square + 1.0
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    root = 0.5 * (root + square / root)
    return root < 1e9 and x <= 100 and y <= 100


def costly_join(within_us: int) -> Any:
    return plait.join(*(plait.stream(name, unit="us") for name in (LEFT, RIGHT)), on=near, within=within_us)


@dataclass(frozen=True)
class Singles:
    """Streams of which the last tuples are pushed one by one.

    Attributes:
        windows: Tuples in the windows of X and of Y, which have one length in time: their rates are as these.
        counted: So many tuples of each stream have their comparisons counted.
        timed: After these so many of each stream are pushed every `gap_s`, for their latency.
    """

    windows: tuple[int, int]
    counted: int
    timed: int
    gap_s: float

    @property
    def within_us(self) -> int:
        return max(self.windows) * GAP_US

    def data(self, seed: int = 1) -> Tables:
        """Windows of both; then tuples that compare at a cost, by turns of X and Y."""
        dice, alone = np.random.default_rng(seed), 2 * (self.counted + self.timed) + 2
        made = {}
        for at, (name, x, y) in enumerate(((LEFT, "x", "y"), (RIGHT, "a", "b"))):
            # Odd ts of one stream, even ts of the other: no two tuples have the same.
            full = np.sort(dice.choice(self.within_us // 2, self.windows[at], replace=False)) * 2 + at
            late = self.within_us + np.arange(at, alone, 2) * 2 + at
            ts = np.concatenate([full, late])
            made[name] = pa.table({
                "ts": ts, x: dice.integers(1, 10_001, len(ts), dtype=np.int32),
                y: (dice.random(len(ts)) * 10_000).astype(np.float32), "late": (ts >= self.within_us).astype(np.int32),
            })  # fmt: skip
        return made


def by_layout(singles: Singles, shapes: Sequence[tuple[str, Shape]], **more: Any) -> list[dict[str, Any]]:
    """The longest part and the latency of each layout, a row each. `longest`: comparisons, in the mean of all results."""
    data, made = singles.data(), costly_join(singles.within_us)
    rows = []
    for kind, shape in shapes:
        options = options_of(kind, shape, **more)
        warm_up(made, data, index="scan", **options)
        rows.append({
            "kind": kind, "rows": shape[0], "columns": shape[1], "workers": shape[0] * shape[1],
            **_one_by_one(singles, data, made, options),
        })  # fmt: skip
    return rows


def _one_by_one(singles: Singles, data: Tables, made: Any, options: dict[str, Any]) -> dict[str, Any]:
    full = {name: table.slice(0, singles.windows[at]) for at, (name, table) in enumerate(data.items())}
    late = {name: table.slice(full[name].num_rows).combine_chunks().to_batches()[0] for name, table in data.items()}
    with started(made, data, index="scan", **options) as run:
        reader = Clocked(run)
        pushed(run, full, PIECE)
        settled(run, pairs_of(full, singles.within_us))
        for name in (LEFT, RIGHT):  # what was pushed so far becomes ready
            run.push(name, None, late[name].slice(0, 1))
        rows = {name: table.num_rows + 1 for name, table in full.items()}
        settled(run, pairs_of({name: data[name].slice(0, n) for name, n in rows.items()}, singles.within_us))
        parts: dict[str, list[int]] = {LEFT: [], RIGHT: []}
        for k in range(1, singles.counted + 1):
            for name in (LEFT, RIGHT):
                before = [int(worker.comparisons) for worker in run.stats().workers]
                # By it the tuple before it in its own stream becomes ready, and is compared with the other's whole window.
                run.push(name, None, late[name].slice(k, 1))
                rows[name] += 1
                settled(run, pairs_of({each: data[each].slice(0, n) for each, n in rows.items()}, singles.within_us))
                after = [int(worker.comparisons) for worker in run.stats().workers]
                parts[name].append(max(b - a for a, b in zip(before, after, strict=True)))
        ready = _paced(run, singles, late)
        run.drain()
        times = reader.join()
        spent, compared = sum(run.stats().threads_cpu_s), run.stats().comparisons
    delays = _latencies(times, ready)
    longest = {name: statistics.mean(each) for name, each in parts.items()}
    # Of all results half are found by tuples of X, whatever the rates: λx Wy = λy Wx.
    return {
        "longest_x": longest[LEFT], "longest_y": longest[RIGHT], "longest": statistics.mean(longest.values()),
        "latency_x_ms": _median(delays[LEFT]), "latency_y_ms": _median(delays[RIGHT]),
        "latency_ms": statistics.mean(_median(each) for each in delays.values()),
        "results": sum(len(each) for each in delays.values()), "cpu_s": spent, "comparisons": compared,
    }  # fmt: skip


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def _paced(run: Any, singles: Singles, late: Mapping[str, pa.RecordBatch]) -> dict[int, float]:
    """Push the rest by turns, and tell when each tuple, by its ts, became ready: when the next of its stream was pushed."""
    ready: dict[int, float] = {}
    last: dict[str, int] = {}
    begin, turn = time.perf_counter(), 0
    for k in range(singles.counted + 1, late[LEFT].num_rows):
        for name in (LEFT, RIGHT):
            batch = late[name].slice(k, 1)
            if (wait := begin + turn * singles.gap_s - time.perf_counter()) > 0:
                time.sleep(wait)
            if name in last:
                ready[last[name]] = time.perf_counter()
            run.push(name, None, batch)
            turn, last[name] = turn + 1, batch.column("ts")[0].as_py()
    return ready


def _latencies(times: Sequence[tuple[float, pa.RecordBatch]], ready: Mapping[int, float]) -> dict[str, list[float]]:
    """Milliseconds of every result whose later tuple is known, by the stream of that tuple."""
    found: dict[str, list[float]] = {LEFT: [], RIGHT: []}
    for at, batch in times:
        both = zip(*(batch.column(f"{name}_ts").to_pylist() for name in (LEFT, RIGHT)), strict=True)
        for x, y in both:
            if (since := ready.get(max(x, y))) is not None:
                found[LEFT if x > y else RIGHT].append((at - since) * 1e3)
    return found


class Clocked:
    """Reads results in a thread of its own and keeps when each batch came."""

    def __init__(self, run: Any) -> None:
        self._run, self._times, self._error = run, list[tuple[float, pa.RecordBatch]](), list[BaseException]()
        self._thread = threading.Thread(target=self._read, name="bench-clocked", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._times.extend((time.perf_counter(), batch) for batch in self._run.results())
        except BaseException as error:
            self._error.append(error)

    def join(self) -> list[tuple[float, pa.RecordBatch]]:
        self._thread.join()
        if self._error:
            raise self._error[0]
        return self._times


# --- the course of a run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Course:
    """Streams in real time, from empty windows on: `rate` tuples a second and stream, one a push, all of them at a cost."""

    rate: float
    window_s: float
    seconds: float
    slices: int

    def data(self, seed: int = 2) -> Tables:
        """Both streams, a tuple every 1 / rate, Y's between X's."""
        dice, rows = np.random.default_rng(seed), int(self.rate * self.seconds)
        gap_us = 1e6 / self.rate
        return {
            name: pa.table({
                "ts": ((np.arange(rows) + at / 2) * gap_us).astype(np.int64), x: dice.integers(1, 10_001, rows, dtype=np.int32),
                y: (dice.random(rows) * 10_000).astype(np.float32), "late": np.ones(rows, np.int32),
            })
            for at, (name, x, y) in enumerate(((LEFT, "x", "y"), (RIGHT, "a", "b")))
        }  # fmt: skip


def course(steps: Course, kind: str, shape: Shape) -> list[dict[str, Any]]:
    """Comparisons a tuple and the latency of results by slice of time; a result belongs to the slice in which it came."""
    data, made, options = steps.data(), costly_join(int(steps.window_s * 1e6)), options_of(kind, shape)
    warm_up(made, data, index="scan", **options)
    batches = {name: table.combine_chunks().to_batches()[0] for name, table in data.items()}
    turns = [(name, batches[name].slice(k, 1)) for k in range(batches[LEFT].num_rows) for name in (LEFT, RIGHT)]
    ready: dict[int, float] = {}
    last: dict[str, int] = {}
    compared, ends = [0], [0.0]
    with started(made, data, index="scan", **options) as run:
        reader, begin = Clocked(run), time.perf_counter()
        for turn, (name, batch) in enumerate(turns, 1):
            if (wait := begin + turn / (2 * steps.rate) - time.perf_counter()) > 0:
                time.sleep(wait)
            if name in last:
                ready[last[name]] = time.perf_counter()
            last[name] = batch.column("ts")[0].as_py()
            run.push(name, None, batch)
            if turn * steps.slices // len(turns) > len(ends) - 1:
                compared.append(run.stats().comparisons)
                ends.append(time.perf_counter() - begin)
        run.drain()
        times = reader.join()
    cut: list[list[float]] = [[] for _ in range(steps.slices)]
    for at, batch in times:
        for each in _latencies([(at, batch)], ready).values():
            cut[min(int(np.searchsorted(ends[1:], at - begin)), steps.slices - 1)] += each
    own = {"kind": kind, "rows": shape[0], "columns": shape[1], "workers": shape[0] * shape[1]}
    return [
        own | {
            "second": (k + 1) * steps.seconds / steps.slices,
            "windows": (k + 1) * steps.seconds / steps.slices / steps.window_s,
            "comparisons_a_tuple": (compared[k + 1] - compared[k]) * steps.slices / len(turns),
            "latency_ms": statistics.mean(cut[k]) if cut[k] else float("nan"), "median_ms": _median(cut[k]),
            "results": len(cut[k]),
        }
        for k in range(steps.slices)
    ]  # fmt: skip
