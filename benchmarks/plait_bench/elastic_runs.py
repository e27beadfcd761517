"""How `plait bench elastic` runs its join: switches under load, load that changes, and the pure shared-nothing rival.

The rival gives each worker an engine of its own, and a thread that pushes to it: every tuple is copied to all of them (their own
arenas, windows and rows), each stores its share, and results are merged by their keys. To reconfigure it, the windows are
taken out, turned into bytes, and put into new engines.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.query.bind import bind
from plait.query.identical import KEY
from plait.threads.elastic.manager import DONE, Change
from plait.threads.join.engine import JoinEngine
from plait.threads.join.strategies.plan import Plan, Seat
from plait.threads.life.pause import Stopped
from plait.threads.life.together import Together
from plait.threads.options import Options
from plait_bench.join_runs import Reader, digests, pieces, warm_up

GAP_US = 1000  # between two tuples of a stream, on the average
LEFT, RIGHT = "stream_r", "stream_s"
FINE = 4  # tuples a push, where time is measured in fractions of a millisecond

Tables = dict[str, pa.Table]


def tables(rows: int, seed: int = 1) -> Tables:
    """The papers' band benchmark, a tuple a millisecond and stream."""
    dice = np.random.default_rng(seed)

    def one(x: str, y: str) -> pa.Table:
        ts = np.cumsum(dice.integers(1, 2 * GAP_US, rows))
        return pa.table({
            "ts": ts, x: dice.integers(1, 10_001, rows, dtype=np.int32), y: (dice.random(rows) * 10_000).astype(np.float32),
        })  # fmt: skip

    return {LEFT: one("x", "y"), RIGHT: one("a", "b")}


def query(window_tuples: int, band: float = 10) -> Any:
    left, right = (plait.stream(name, unit="us") for name in (LEFT, RIGHT))
    return plait.join(
        left, right, on=lambda r, s: (abs(r.x - s.a) <= band) & (abs(r.y - s.b) <= band), within=window_tuples * GAP_US
    )


def near(r: Any, s: Any) -> Any:
    """The band condition, and a square root by hand: some tens of nanoseconds a pair, which is what a costly condition takes.

    Written out: a loop can't be proven to be the same in machine code, and Python would judge pairs, one thread at a time.
    """
    x, y = abs(r.x - s.a), abs(r.y - s.b)
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
    return x <= 10 and y <= 10 and root < 1e9


def heavy(window_tuples: int) -> Any:
    """The same results by a function that is called pair by pair: work enough for a thread, with windows that fill at once."""
    left, right = (plait.stream(name, unit="us") for name in (LEFT, RIGHT))
    return plait.join(left, right, on=near, within=window_tuples * GAP_US)


def part(data: Tables, first: int, rows: int) -> Tables:
    return {name: table.slice(first, rows) for name, table in data.items()}


def started(made: Any, data: Tables, **options: Any) -> Any:
    """A run. STRETCH's and ScaleJoin's studies are of ScaleJoin, where nothing else is said: `auto` would share by values."""
    if not options.keys() & {"layout", "emitter"}:
        options = {"strategy": "scalejoin"} | options
    return made.on_threads(schemas={name: t.schema for name, t in data.items()}, **options)


def pushed(run: Any, data: Tables, size: int = 8192) -> None:
    for name, batch in pieces(data, size):
        run.push(name, None, batch)


def settled(taken: Callable[[], int], least: int) -> None:
    """Until at least so many tuples were taken, and no more are: the last few are not ready."""
    seen = -1
    while (now := taken()) < least or now != seen:
        seen = now
        time.sleep(0.02)


def taken_by_all(run: Any) -> Callable[[], int]:
    return lambda: min(w.tuples for w in run.stats().workers)


def switches(window_tuples: int, before: int, after: int, number: int, *, rate: float, gap_s: float = 0.008,
             shares: int = 8, index: str = "auto", band: float = 10) -> list[Change]:  # fmt: skip
    """What `number` changes cost with full windows, under a steady load; `before` and `after` equal: rebalancing."""
    rows = int(rate * gap_s * number) + 2000
    data, made = tables(window_tuples + rows), query(window_tuples, band)
    options: dict[str, Any] = {"elastic": shares, "workers": before, "index": index}
    warm_up(made, data, **options)
    rest = pieces(part(data, window_tuples, rows), FINE)
    with started(made, data, **options) as run:
        reader = Reader(run)
        pushed(run, part(data, 0, window_tuples))
        settled(taken_by_all(run), window_tuples)
        begin, sent, asked, to = time.perf_counter(), 0, 0, after
        for name, batch in rest:
            due = begin + sent / rate
            if (now := time.perf_counter()) < due:
                time.sleep(due - now)
            run.push(name, None, batch)
            sent += batch.num_rows
            if asked < number and sent >= (asked + 1) * rate * gap_s:
                if before == after:
                    run.rebalance([(owner + 1) % before for owner in run.owners])
                else:
                    run.resize(to)
                    to = before if to == after else after
                asked += 1
        run.drain()
        reader.join()
        return [change for change in run.stats().changes if change.state == DONE]


def random_switches(number: int, seed: int = 7) -> dict[str, Any]:
    """So many random switches under load, results beside those of a run that never switched."""
    dice = np.random.default_rng(seed)
    rows = number * 120
    data, made = tables(rows, seed), query(2_000, band=300)
    with started(made, data, workers=2, strategy="scalejoin") as run:
        reader = Reader(run)
        pushed(run, data)
        run.drain()
        expected = digests(reader.join())[0]
    done = 0
    with started(made, data, workers=2, elastic=8) as run:
        reader = Reader(run)
        for name, batch in pieces(data, 40):
            run.push(name, None, batch)
            if dice.random() < 0.3:
                if dice.random() < 0.5:
                    run.resize(int(dice.integers(1, 9)))
                else:
                    run.rebalance(dice.integers(0, 8, 8).tolist())
        run.drain()
        table = reader.join()
        found = run.stats().changes
        done = sum(change.state == DONE for change in found)
    return {
        "case": "random switches under load",
        "asked": len(found),
        "done": done,
        "results": table.num_rows,
        "identical to a run without switches": digests(table)[0] == expected,
    }


def sustained(window_tuples: int, rows: int, workers: int, *, made: Any = None, **options: Any) -> float:
    """Tuples a second with full windows, flat out."""
    fill = max(window_tuples, 200)
    data, made = tables(fill + rows), made or heavy(window_tuples)
    warm_up(made, data, workers=workers, **options)
    with started(made, data, workers=workers, **options) as run:
        reader = Reader(run)
        pushed(run, part(data, 0, fill))
        settled(taken_by_all(run), fill)
        begin = time.perf_counter()
        pushed(run, part(data, fill, rows), 512)
        run.drain()
        reader.join()
        return 2 * rows / (time.perf_counter() - begin)


def compared_per_s(window_tuples: int, workers: int, rows: int = 5_000) -> float:
    """Comparisons a second that so many threads can do of the costly condition: each tuple meets a window of the other stream."""
    return sustained(window_tuples, rows, workers, elastic=8) * window_tuples


@dataclass(frozen=True)
class Steps:
    """STRETCH's figure 5: windows fill at a part of what the threads can do, then the rate changes. Seconds of real time.

    `row_s`: how much of it a row of the course stands for.
    """

    window_s: float
    before_s: float
    after_s: float
    row_s: float = 1.0


#: The paper's: windows of 5 minutes, a change after 6.
PAPERS = Steps(300.0, 360.0, 360.0)
SCALED = Steps(2.0, 2.4, 4.0)
SHORT = Steps(0.5, 0.6, 1.0)
PUSH_S = 0.01


def highest_rate(comparisons_per_s: float, window_s: float) -> float:
    """Tuples a second of both streams that so many comparisons allow: each meets half a window of them (ScaleJoin's root law)."""
    return math.sqrt(2 * comparisons_per_s / window_s)


def stepped(steps: Steps, workers: int, parts: tuple[float, float], comparisons_per_s: float,
            **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:  # fmt: skip
    """Streams in real time, with one load until windows are full and on, then with another; the policy answers.

    A join's load goes with the square of its rate: 70 percent of the highest rate are 49 of the load, and 30 are 9. So rates go
    with the roots of `parts`. And it does not step with the rate, but changes for as long as a window: the policy is held
    meanwhile, or it would answer to loads on the way, one after the other.

    Args:
        steps: How long windows are, and the phases.
        workers: Threads at first.
        parts: Of the most that `workers` can compare, before and after: their load.
        comparisons_per_s: What they can compare, flat out.
        **options: Those of `on_threads`.

    Returns:
        What was found before and after, and a row for each second, or as `steps` say.
    """
    most = highest_rate(comparisons_per_s, steps.window_s)
    rates, spans = tuple(math.sqrt(part) * most for part in parts), (steps.before_s, steps.after_s)
    data = real_time(rates, spans)
    made = plait.join(
        *(plait.stream(name, unit="us") for name in (LEFT, RIGHT)), on=near, within=int(steps.window_s * 1e6)
    )
    options = {"elastic": 8, "policy": True, "workers": workers, **options}
    warm_up(made, data, **options)
    cuts = {
        name: np.searchsorted(np.asarray(table.column("ts")), np.arange(0, sum(spans), PUSH_S) * 1e6)
        for name, table in data.items()
    }
    found: dict[str, Any] = {"window s": steps.window_s, "highest rate, by the root law": round(most)}
    series: list[dict[str, Any]] = []
    with started(made, data, **options) as run:
        reader = Reader(run)
        run.hold_policy()  # while windows fill
        begin, seen, second = time.perf_counter(), (0, 0.0, 0), 0.0
        pushes = len(cuts[LEFT]) - 1
        turn, full = round(steps.before_s / PUSH_S), round(steps.window_s / PUSH_S)
        for k in range(pushes):
            if (wait := begin + (k + 1) * PUSH_S - time.perf_counter()) > 0:
                time.sleep(wait)
            for name, table in data.items():
                low, high = int(cuts[name][k]), int(cuts[name][k + 1])
                if high > low:
                    run.push(name, None, table.slice(low, high - low).combine_chunks().to_batches()[0])
            at = (k + 1) * PUSH_S
            if k == turn:
                run.hold_policy()
            elif k + 1 in (full, turn + full):
                run.hold_policy(False)
            last = k + 1 in (turn, pushes)
            if last or at - second >= steps.row_s - PUSH_S / 2:
                stats = run.stats()
                sent = stats.rows
                series.append({
                    "second": round(at, 2), "tuples_per_s": (sent - seen[0]) / (at - second),
                    "comparisons_per_s": (stats.comparisons - seen[2]) / (at - second), "threads": len(set(run.owners)),
                    # A change is done when its threads have come to it: on a busy machine later than it is called for.
                    "called_for": stats.changes[-1].after if stats.changes else workers,
                    "cpu_s": sum(stats.threads_cpu_s),
                    "push_p50_ms": stats.latency_from_push_ms.p50, "late_s": time.perf_counter() - begin - at,
                })  # fmt: skip
                seen, second = (sent, at, stats.comparisons), at
                run.reset_latency()
            if last:
                label = "before" if k + 1 == turn else "after"
                found |= {
                    f"rate {label}": round(rates[label == "after"]),
                    f"threads {label}": len(set(run.owners)),
                    f"p50 ms {label}": series[-1]["push_p50_ms"],
                }
        changes = [c for c in run.stats().changes if c.state == DONE]
        busy = [seconds for seconds in run.stats().threads_busy_s if seconds]
        run.drain()
        reader.join()
    found["changes"] = "; ".join(
        f"{c.before} -> {c.after} ({c.reason}, {c.reconfiguration_ms:.2f} ms)" for c in changes
    )
    found["busy by thread"] = ", ".join(f"{b / sum(busy):.0%}" for b in busy)
    return found, series


def real_time(rates: tuple[float, ...], spans: tuple[float, float], seed: int = 3) -> Tables:
    """Both streams, half of a rate each, a phase after the other; ts is when a tuple is due, in microseconds."""
    dice = np.random.default_rng(seed)
    made = {}
    for name, x, y in ((LEFT, "x", "y"), (RIGHT, "a", "b")):
        parts, begin = [], 0.0
        for rate, span in zip(rates, spans, strict=True):
            parts.append(np.sort(dice.uniform(begin, begin + span, max(int(rate * span / 2), 2))))
            begin += span
        ts = (np.concatenate(parts) * 1e6).astype(np.int64)
        made[name] = pa.table({
            "ts": ts, x: dice.integers(1, 10_001, len(ts), dtype=np.int32), y: (dice.random(len(ts)) * 10_000).astype(np.float32),
        })  # fmt: skip
    return made


# --- pure shared-nothing -----------------------------------------------------------------------------------------


class PureRun:
    """n engines, each with one seat of ScaleJoin's plan and a copy of every tuple; results merged by key."""

    def __init__(self, made: Any, data: Tables, workers: int) -> None:
        self.engines = []
        for k in range(workers):
            seat = Seat((0, 0), (workers, workers), (k, k), (1, 1), (0, 0), (True, True))
            plan = Plan("pure", (seat,), (1, 1), "one of several that share nothing")
            schemas = {name: t.schema for name, t in data.items()}
            self.engines.append(JoinEngine(bind(made, schemas), schemas, plan, Options(keys=True), Together()))
            self.engines[-1].begin()
        self.readers = [Reader(_Results(engine)) for engine in self.engines]

    def push(self, data: Tables, size: int = 512) -> float:
        """Every engine is pushed all tuples by a thread of its own; gives their processor time together, in seconds."""
        return in_threads([partial(_push_all, engine, pieces(data, size)) for engine in self.engines])

    def taken(self) -> int:
        return min(int(engine.stats().workers[0].tuples) for engine in self.engines)

    def parts(self) -> list[pa.Table]:
        """What each gives, to the end of the input."""
        for engine in self.engines:
            for name in (LEFT, RIGHT):
                engine.close(name, None)
        return [reader.join() for reader in self.readers]

    def finish(self) -> pa.Table:
        return merged(self.parts())

    def stop(self) -> None:
        for engine in self.engines:
            with contextlib.suppress(Stopped):
                engine.stop()


def _push_all(engine: Any, batches: list[tuple[str, pa.RecordBatch]]) -> None:
    for name, batch in batches:
        engine.push(name, None, [batch])


def in_threads(calls: list[Callable[[], None]]) -> float:
    """Make all calls at once, each in a thread; gives the processor time that they took together. The first error is raised."""
    spent, failed = [0.0] * len(calls), []

    def make(k: int) -> None:
        try:
            calls[k]()
        except BaseException as error:
            failed.append(error)
        spent[k] = time.thread_time()

    threads = [threading.Thread(target=make, args=(k,), name=f"bench-push-{k}") for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return sum(spent)


def merged(parts: list[pa.Table]) -> pa.Table:
    """In result order: the keys' bytes have it."""
    return pa.concat_tables(parts).sort_by(KEY)


class _Results:
    def __init__(self, engine: JoinEngine) -> None:
        self._engine = engine

    def results(self) -> Iterator[pa.RecordBatch]:
        while (batch := self._engine.take(100_000_000)) is not False:
            self._engine.check()
            if isinstance(batch, pa.RecordBatch):
                yield batch

    @property
    def schema(self) -> pa.Schema:
        return self._engine.schema


def _ready(data: Tables) -> int:
    """How many tuples lie below the last ts of either stream."""
    frontier = min(table.column("ts")[-1].as_py() for table in data.values())
    return sum(int(np.count_nonzero(np.asarray(table.column("ts")) < frontier)) for table in data.values())


def pure_sustained(window_tuples: int, rows: int, workers: int) -> float:
    data, made = tables(window_tuples + rows), heavy(window_tuples)
    run = PureRun(made, data, workers)
    try:
        run.push(part(data, 0, window_tuples), 8192)
        settled(run.taken, window_tuples)
        begin = time.perf_counter()
        run.push(part(data, window_tuples, rows))
        run.finish()
        return 2 * rows / (time.perf_counter() - begin)
    finally:
        run.stop()


def pure_reconfiguration(window_tuples: int, after: int) -> float:
    """Milliseconds to move full windows into `after` new engines: rows to bytes and back, and into their segments."""
    data, made = tables(window_tuples), query(window_tuples)
    warm = PureRun(made, part(data, 0, 50), after)
    warm.push(part(data, 0, 50))
    warm.finish()
    begin = time.perf_counter()
    moved = {}
    for name, table in data.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        moved[name] = pa.ipc.open_stream(sink.getvalue()).read_all()
    run = PureRun(made, moved, after)
    run.push(moved, 8192)
    ready = _ready(moved)
    while run.taken() < ready:
        time.sleep(0.0005)
    took = (time.perf_counter() - begin) * 1e3
    run.stop()
    return took
