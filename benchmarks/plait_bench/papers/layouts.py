"""How DP-Join's figures run its layouts: bandwidth flat out, and latency tuple by tuple, over full windows.

Two numbers do not depend on how many cores there are, nor on who else uses them, and the claims rest on them:

- *Offered bandwidth*: pairs for each second of processor time of the busiest worker. It is what the workers offer with a core
  each. What they offered on this machine stands beside it.
- *The longest part*: of all comparisons that a tuple asks for, the most that one worker makes. Tuples are pushed one at a time
  and the workers' counters are read in between. Equation 7 has latency go with it.

Windows are full before anything is counted; all comparisons of the fill are waited for by their exact number.
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
from plait.errors import RunError
from plait_bench import rivals
from plait_bench.elastic_runs import GAP_US, LEFT, RIGHT, Tables, part, pushed, query, started, tables
from plait_bench.join_runs import Reader, warm_up

#: How many of all pairs the band finds: x and a are integers, y and b are not.
HIT_RATE = (10_000 + 2 * sum(10_000 - d for d in range(1, 11))) / 1e8 * (2 * 0.001 - 0.001**2)
PIECE = 2048
PATIENCE_S = 60.0
Shape = tuple[int, int]
LINEAR, RECTANGULAR, SQUARE, HANDSHAKE = "linear", "rectangular", "square", "handshake"


def kind_of(rows: int, columns: int) -> str:
    """The paper's word for a layout. One worker counts as linear, as in its figure 6."""
    if min(rows, columns) == 1:
        return LINEAR
    return SQUARE if rows == columns else RECTANGULAR


def options_of(kind: str, shape: Shape, **more: Any) -> dict[str, Any]:
    workers = shape[0] * shape[1]
    if kind == HANDSHAKE:
        assert kind in rivals.NAMES
        # Its tuples age batch by batch: with large ones most of them meet in the middle of the chain, and one worker compares all.
        return {"strategy": kind, "workers": workers, "order": "none", "batch": PIECE // 8}
    if workers == 1:
        return {"strategy": "sequential", "workers": 1}
    return {"strategy": "dpjoin", "layout": shape, **more}


# --- flat out -----------------------------------------------------------------------------------------------------


def offered(window: int, shapes: Sequence[tuple[str, Shape]], rounds: int) -> list[dict[str, Any]]:
    """What each layout offers with windows of so many tuples: a row each, medians of rounds in which they take turns."""
    data, made = tables(2 * window), query(window)
    for kind, shape in shapes:
        warm_up(made, data, index="scan", **options_of(kind, shape))
    found: dict[tuple[str, Shape], list[dict[str, Any]]] = {each: [] for each in shapes}
    for _ in range(rounds):
        for kind, shape in shapes:
            found[kind, shape].append(_flat_out(window, data, made, options_of(kind, shape)))
    rows = []
    for (kind, shape), runs in found.items():
        middle = sorted(runs, key=lambda run: run["offered"])[(len(runs) - 1) // 2]
        own = {"kind": kind, "rows": shape[0], "columns": shape[1], "workers": shape[0] * shape[1], "window": window}
        rows.append(own | middle | {"wall": statistics.median(run["wall"] for run in runs)})
    return rows


def _flat_out(window: int, data: Tables, made: Any, options: dict[str, Any]) -> dict[str, Any]:
    fill, rest, size = part(data, 0, window), part(data, window, window), options.get("batch", PIECE)
    with started(made, data, index="scan", **options) as run:
        reader = Reader(run)
        pushed(run, fill, size)
        settled(run, pairs_of(fill, window * GAP_US) if options["strategy"] != HANDSHAKE else 0)
        before, began = run.stats(), time.perf_counter()
        pushed(run, rest, size)
        run.drain()
        reader.join()
        took, after = time.perf_counter() - began, run.stats()
    spent = max(b - a for a, b in zip(before.threads_cpu_s, after.threads_cpu_s, strict=True))
    by_worker = [b.comparisons - a.comparisons for a, b in zip(before.workers, after.workers, strict=True)]
    compared = sum(by_worker)
    span_us = statistics.mean(t.column("ts")[-1].as_py() - t.column("ts")[0].as_py() for t in rest.values())
    return {
        "window_s": window * GAP_US / 1e6, "comparisons": compared, "busiest_part": max(by_worker) / compared, "results": after.results - before.results, "busiest_cpu_s": spent, "span_s": span_us / 1e6,
        "comparisons_per_cpu_s": compared / spent, "offered": HIT_RATE * compared / spent, "wall": HIT_RATE * compared / took,
    }  # fmt: skip


def pairs_of(data: Mapping[str, pa.Table], within_us: int) -> int:
    """Comparisons of what is ready: pairs of both streams within the window, their ts below either stream's last."""
    left, right = (np.asarray(data[name].column("ts")) for name in (LEFT, RIGHT))
    frontier = min(left[-1], right[-1])
    left, right = left[left < frontier], right[right < frontier]
    ends = np.searchsorted(right, left + within_us, "right") - np.searchsorted(right, left - within_us, "left")
    return int(ends.sum())


def settled(run: Any, least: int) -> None:
    """Until so many comparisons were made, and no more are."""
    seen, until = -1, time.perf_counter() + PATIENCE_S
    while (now := run.stats().comparisons) < least or now != seen:
        if time.perf_counter() > until:
            raise RunError(f"{now:,} comparisons of {least:,} after {PATIENCE_S:g} s", do="Report this")
        seen = now
        time.sleep(0.02)


# --- tuple by tuple -----------------------------------------------------------------------------------------------


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
        settled(run, pairs_of({name: data[name].slice(0, n.num_rows + 1) for name, n in full.items()}, singles.within_us))
        parts: dict[str, list[int]] = {LEFT: [], RIGHT: []}
        for k in range(1, singles.counted + 1):
            for name in (LEFT, RIGHT):
                # By it the tuple before it in its own stream becomes ready, and is compared with the other's whole window.
                parts[name].append(_longest_part(run, name, late[name].slice(k, 1)))
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


def _longest_part(run: Any, name: str, batch: pa.RecordBatch) -> int:
    before = [worker.comparisons for worker in run.stats().workers]
    run.push(name, None, batch)
    settled(run, sum(before) + 1)
    return max(worker.comparisons - was for worker, was in zip(run.stats().workers, before, strict=True))


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
            "second": (k + 1) * steps.seconds / steps.slices, "windows": (k + 1) * steps.seconds / steps.slices / steps.window_s,
            "comparisons_a_tuple": (compared[k + 1] - compared[k]) * steps.slices / len(turns),
            "latency_ms": statistics.mean(cut[k]) if cut[k] else float("nan"), "median_ms": _median(cut[k]), "results": len(cut[k]),
        }
        for k in range(steps.slices)
    ]  # fmt: skip
