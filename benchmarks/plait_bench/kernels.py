"""`plait bench kernels`: scans and indexes, one core against two, beside NumPy and C++.

Scans compare a batch of probes with a window of 131,072 tuples, all contenders on the same arrays, and must find the
same number of pairs. Indexes are measured as executors use them, Arrow batches in and ordered pairs out
(`JoinWindow.process`), on count windows that are full; so is the scan at 1M tuples, which the indexes' ratios are
taken against. Contenders take turns, round by round, and medians over the rounds are reported: a busy moment hits all.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.join.window import JoinWindow
from plait.errors import RunError
from plait.query.condition.predicate import predicate
from plait.query.join import CountWindow
from plait_bench import peer
from plait_bench.machine import machine

LEFT = pa.schema([("x", pa.int32()), ("y", pa.float32()), ("k", pa.int64())])
RIGHT = pa.schema([("a", pa.int32()), ("b", pa.float32()), ("k", pa.int64())])
DOMAIN = 10_000
SCAN_WINDOW = 131_072
#: A traced scan slower than this on one core is not vectorised, whatever registers it uses.
FLOOR_COMPARISONS_PER_S = 2e9


def near(l: Any, r: Any) -> Any:
    return (abs(l.x - r.a) <= 10) & (abs(l.y - r.b) <= 10)


def near_opaque(l: Any, r: Any) -> Any:
    if abs(l.x - r.a) > 10:
        return False
    return abs(l.y - r.b) <= 10


def same(l: Any, r: Any) -> Any:
    return l.k == r.k


def run(quick: bool = False) -> dict[str, Any]:
    about = machine()
    rows = _scans(quick) + _indexes(quick)
    return {"bench": "kernels", "machine": about, "rows": rows, "ratios": _ratios(rows)}


# --- measuring ----------------------------------------------------------------------------------------------


def _interleaved(contenders: dict[str, Callable[[], int]], rounds: int) -> dict[str, tuple[float, int]]:
    """Median seconds of each, and what it returned; every contender runs once a round, after one to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    results = {name: call() for name, call in contenders.items()}
    for _ in range(rounds):
        for name, call in contenders.items():
            begin = time.perf_counter()
            results[name] = call()
            times[name].append(time.perf_counter() - begin)
    return {name: (statistics.median(times[name]), results[name]) for name in contenders}


def _window(condition: Any, size: int, index: str = "auto") -> JoinWindow:
    bound = predicate(condition, ("left", "right"), {"l": 0, "r": 1}).bind(LEFT, RIGHT)
    return JoinWindow(bound, LEFT, RIGHT, CountWindow(size), index=index)


def random_rows(random: np.random.Generator, n: int, schema: pa.Schema, keys: int) -> pa.RecordBatch:
    values = (
        random.integers(0, DOMAIN, n).astype(np.int32),
        (random.random(n) * DOMAIN).astype(np.float32),
        random.integers(0, keys, n),
    )
    return pa.record_batch([pa.array(v) for v in values], schema=schema)


# --- scans --------------------------------------------------------------------------------------------------


class Scan:
    """A condition's own scan kernel over a window and a batch of probes."""

    def __init__(self, condition: Any, window: pa.RecordBatch, probes: pa.RecordBatch) -> None:
        self.join = _window(condition, SCAN_WINDOW)
        empty = np.zeros(0, np.int64)
        ones = np.ones(window.num_rows, np.uint8)
        rows = self.join.encoder.rows(0, probes, np.zeros(probes.num_rows, np.int64))
        self.join.process(ones, (probes.slice(0, 0), window), (empty, np.zeros(window.num_rows, np.int64)), probe=False)
        self.join.matcher.admit(0, rows, self.join.segments[0])
        self.columns = self.join.matcher.columns(0, rows)
        self.hi = np.full(probes.num_rows, window.num_rows, np.int64)
        self.lo = np.zeros_like(self.hi)

    def __call__(self) -> int:
        found, _ = self.join.matcher.scan(0, self.columns, self.lo, self.hi, self.join.segments[1])
        return len(found)


def numpy_scan(window: list[np.ndarray], probes: list[np.ndarray], block: int) -> Callable[[], int]:
    def call() -> int:
        found = 0
        for at in range(0, len(window[0]), block):
            a, b = window[0][at : at + block], window[1][at : at + block]
            hit = (np.abs(probes[0][:, None] - a) <= 10) & (np.abs(probes[1][:, None] - b) <= 10)
            found += len(np.nonzero(hit)[0])
        return found

    return call


def _two_threads(halves: list[Scan], pool: ThreadPoolExecutor) -> Callable[[], int]:
    return lambda: sum(pool.map(lambda scan: scan(), halves))


def _scans(quick: bool) -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    n, few = (1024, 64) if quick else (16_384, 64)
    window, probes = random_rows(random, SCAN_WINDOW, RIGHT, DOMAIN), random_rows(random, n, LEFT, DOMAIN)
    arrays = [[batch.column(k).to_numpy() for k in (0, 1)] for batch in (window, probes)]
    pool = ThreadPoolExecutor(2)
    halves = [Scan(near, window, probes.slice(at, n // 2)) for at in (0, n // 2)]
    traced, opaque = Scan(near, window, probes), Scan(near_opaque, window, probes)
    contenders: dict[str, Callable[[], int]] = {"scan traced": traced, "scan opaque": opaque}
    cpp = peer.compiled()
    if cpp is not None:
        contenders["scan C++"] = lambda: cpp(traced.lo, traced.hi, arrays[1], arrays[0])
    contenders["scan traced, 2 threads"] = _two_threads(halves, pool)
    small = [column[:few] for column in arrays[1]]
    # NumPy as it is usually written, and in blocks that stay in the cache, which is as fast as it gets.
    contenders["NumPy broadcasting"] = numpy_scan(arrays[0], small, SCAN_WINDOW)
    contenders["NumPy broadcasting, blocked"] = numpy_scan(arrays[0], small, 4096)
    measured = _interleaved(contenders, 5 if quick else 11)
    pool.shutdown()
    found = {name: result for name, (_, result) in measured.items()}
    numpy_found = {found.pop("NumPy broadcasting"), found.pop("NumPy broadcasting, blocked")}
    if len(set(found.values())) != 1 or len(numpy_found) != 1:
        raise RunError(f"The contenders disagree on the number of pairs: {found}, {numpy_found}")
    rows: list[dict[str, Any]] = []
    for name, (seconds, result) in measured.items():
        count = few if name.startswith("NumPy") else n
        rows.append(
            {
                "what": name, "threads": 2 if "2 threads" in name else 1, "window": SCAN_WINDOW,
                "comparisons_per_s": count * SCAN_WINDOW / seconds, "tuples_per_s": count / seconds, "pairs": result,
            }
        )  # fmt: skip
    if rows[0]["comparisons_per_s"] < FLOOR_COMPARISONS_PER_S and not quick:
        raise RunError(
            f"The traced scan makes {rows[0]['comparisons_per_s']:.3g} comparisons/s on one core",
            why=f"below {FLOOR_COMPARISONS_PER_S:.0e} its loop is not vectorised, or the machine is busy or old",
        )
    return rows


# --- indexes ------------------------------------------------------------------------------------------------


class _Steady:
    """A full count window into which batch after batch enters, half of each side."""

    def __init__(self, condition: Any, size: int, index: str, batch: int) -> None:
        self.join = _window(condition, size, index)
        self.random, self.keys, self.batch = np.random.default_rng(size), 10 * size, batch
        for at in range(0, size, 1 << 17):
            self._enter(2 * min(1 << 17, size - at), probe=False)
        self.ready = [self._inputs(batch) for _ in range(4)]
        self.turn = 0

    def _inputs(self, n: int) -> tuple[Any, Any, Any]:
        left, right = (
            random_rows(self.random, n // 2, LEFT, self.keys),
            random_rows(self.random, n // 2, RIGHT, self.keys),
        )
        return np.tile(np.array([0, 1], np.uint8), n // 2), (left, right), (np.zeros(n // 2, np.int64),) * 2

    def _enter(self, n: int, *, probe: bool) -> None:
        self.join.process(*self._inputs(n), probe=probe)

    def __call__(self) -> int:
        self.turn += 1
        return len(self.join.process(*self.ready[self.turn % len(self.ready)]))


def _indexes(quick: bool) -> list[dict[str, Any]]:
    sizes = (131_072, 1_000_000) if quick else (131_072, 1_000_000, 5_000_000)
    rows = []
    for size in sizes:
        steady = {"grid": _Steady(near, size, "grid", 16_384), "hash": _Steady(same, size, "hash", 65_536)}
        if size == 1_000_000:
            steady["scan"] = _Steady(near, size, "scan", 1024)
        contenders: dict[str, Callable[[], int]] = dict(steady)
        for name, (seconds, result) in _interleaved(contenders, 5 if quick else 11).items():
            rate = steady[name].batch / seconds
            rows.append(
                {
                    "what": f"{name} index" if name != "scan" else "scan traced, as a join", "threads": 1,
                    "window": size,
                    "comparisons_per_s": rate * size, "tuples_per_s": rate, "pairs": result,
                }
            )  # fmt: skip
        if size <= 1_000_000:
            rows += _side_by_side(size, quick, steady)
    return rows


def _side_by_side(size: int, quick: bool, first: dict[str, _Steady]) -> list[dict[str, Any]]:
    """Two threads, each with a window of its own: what two workers reach if nothing is shared."""
    second = {"grid": _Steady(near, size, "grid", 16_384), "hash": _Steady(same, size, "hash", 65_536)}
    rows = []
    with ThreadPoolExecutor(2) as pool:

        def both(name: str) -> Callable[[], int]:
            return lambda: sum(pool.map(lambda steady: steady(), (first[name], second[name])))

        for name, (seconds, result) in _interleaved({n: both(n) for n in second}, 5 if quick else 11).items():
            rate = 2 * second[name].batch / seconds
            rows.append(
                {
                    "what": f"{name} index", "threads": 2, "window": size, "comparisons_per_s": rate * size,
                    "tuples_per_s": rate, "pairs": result,
                }
            )  # fmt: skip
    return rows


# --- ratios -------------------------------------------------------------------------------------------------


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    def row(what: str, window: int, field: str, threads: int = 1) -> float | None:
        for each in rows:
            if (each["what"], each["window"], each["threads"]) == (what, window, threads):
                return float(each[field])
        return None

    def comparisons(what: str, threads: int = 1) -> float | None:
        return row(what, SCAN_WINDOW, "comparisons_per_s", threads)

    scan_1m = row("scan traced, as a join", 1_000_000, "tuples_per_s")
    pairs = {
        "scan_traced_vs_numpy": (comparisons("scan traced"), comparisons("NumPy broadcasting")),
        "scan_traced_vs_numpy_blocked": (comparisons("scan traced"), comparisons("NumPy broadcasting, blocked")),
        "scan_traced_vs_cpp": (comparisons("scan traced"), comparisons("scan C++")),
        "scan_opaque_vs_numpy": (comparisons("scan opaque"), comparisons("NumPy broadcasting")),
        "grid_1m_vs_scan": (row("grid index", 1_000_000, "tuples_per_s"), scan_1m),
        "hash_1m_vs_scan": (row("hash index", 1_000_000, "tuples_per_s"), scan_1m),
        "scan_2_threads_vs_1": (comparisons("scan traced, 2 threads", 2), comparisons("scan traced")),
    }
    return {name: round(a / b, 3) for name, (a, b) in pairs.items() if a is not None and b is not None}
