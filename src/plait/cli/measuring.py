"""What this machine takes for each step that the papers' models have a symbol for: the steps are run, in about a minute.

What is timed is processor time of the threads that do the step, not time on the wall, so that other load on the machine counts
only as far as it takes caches away. Every figure is the least of a few runs: whatever disturbs a run makes it longer. Costs that
grow with something (sources, workers) are measured at two sizes, and what lies between is a straight line.

The streams are made up and always the same. A figure belongs to a kind of step on this machine, not to a user's query: a
condition with a hundred terms, or windows of a million keys, cost more than what is measured here.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from math import log2
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.cli import hop
from plait.core.calibration import Calibration, Costs, this_machine
from plait.errors import RunError
from plait.threads.gate import Gate, RingGate, SkipListGate
from plait.threads.run import Run

#: Called with what is measured next, in words.
Tell = Callable[[str], None]

RUNS = 5
FEW, MANY = 2, 32  # sources: of two sizes
CREW = 4  # workers that results are merged from, and readers of a gate, at the larger size
PIECE = 8192  # rows a push: a call has a price of its own, which smaller pushes pay more often
ROUND = 4096  # tuples that are in a gate at once, of all sources; they go in by as many calls, however many sources there are


def measure(tell: Tell = lambda words: None, *, quick: bool = False) -> Calibration:
    """All figures, measured one after the other.

    Args:
        tell: Called with what comes next.
        quick: A tenth of the work, for tests; the figures are worth nothing.
    """
    share = 10 if quick else 1
    made: dict[str, float] = {}
    for words, step in (
        ("comparing pairs, pushing and taking tuples", _joins),
        ("merging results", _results),
        ("handing over between threads", _hops),
        ("adding to a gate and reading it", _gates),
        ("updating windows and putting parts of them together", _aggregates),
    ):
        tell(words)
        made |= step(share)
    return Calibration(
        costs=Costs(**made), machine=this_machine(), measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    )


Figures = tuple[float, ...]


def _least(cases: Mapping[Any, Callable[[], Figures]], times: int) -> dict[Any, Figures]:
    """The least of each figure of each case. Cases take turns, so that a busy moment of the machine does not hit one alone."""
    found: dict[Any, list[Figures]] = {name: [] for name in cases}
    for _ in range(times):
        for name, once in cases.items():
            found[name].append(once())
    return {name: tuple(map(min, zip(*figures, strict=True))) for name, figures in found.items()}


def _slope(few: float, many: float, steps: float) -> float:
    """What each step from the smaller to the larger size adds; nothing, where noise made the larger one cheaper."""
    return max(0.0, many - few) / steps


# --- joins: T_P (Ton, 1 / C_max), d^I, what a worker pays to take a tuple -------------------------------------------


def _stream(rows: int, seed: int) -> pa.RecordBatch:
    """A tuple every millisecond, with a value that rarely meets another stream's."""
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pydict(
        {
            "ts": np.arange(rows, dtype=np.int64) * 1000,
            "x": rng.integers(0, 1_000_000, rows),
            "y": rng.random(rows) * 1e6,
        }
    )


def _query(window: int, on: str, *, held: bool) -> plait.Query:
    """A join over windows of so many tuples. `held`: a second source of the right stream, which holds all back until it ends."""
    right = plait.stream("right_in", unit="us", sources=("data", "held") if held else None)
    return plait.join(plait.stream("left_in", unit="us"), right, on=on, within=f"{window * 1000}us")


RARE = "abs(l.x - r.x) <= 1 AND abs(l.y - r.y) <= 1"
ALWAYS = "abs(l.x - r.x) <= 2000000"


def _preloaded(window: int, rows: int, on: str, workers: int) -> tuple[float, float, int, int]:
    """A scan of which everything is at the gate before it begins, so that pushing and comparing do not overlap.

    Gives seconds of the workers, and of reading results; comparisons; results.
    """
    left, right = _stream(rows, 1), _stream(rows, 2)
    run = _query(window, on, held=True).on_threads(
        schemas={"left_in": left.schema, "right_in": right.schema}, strategy="sequential" if workers == 1 else "scalejoin",
        workers=workers, index="scan", capacity=2 * rows, pending=2 * rows,
    )  # fmt: skip
    with run:
        for at in range(0, rows, PIECE):
            run.push("left_in", None, left.slice(at, PIECE))
            run.push("right_in", "data", right.slice(at, PIECE))
        with _reading(run) as took:
            began = time.process_time()
            run.drain()
        worked = time.process_time() - began - took[0]
        stats = run.stats()
        return worked, took[0], stats.comparisons, stats.results


def _pushed(rows: int) -> Figures:
    """Seconds a tuple of the thread that pushes, once memory is in use."""
    left, right = _stream(rows, 1), _stream(rows, 2)
    run = _query(1, RARE, held=False).on_threads(
        schemas={"left_in": left.schema, "right_in": right.schema}, strategy="sequential", workers=1, index="scan",
        capacity=4 * PIECE, pending=4 * PIECE,
    )  # fmt: skip
    taken = 0.0
    with run, _reading(run):
        for at in range(0, rows, PIECE):
            began = time.thread_time()
            run.push("left_in", None, left.slice(at, PIECE))
            run.push("right_in", None, right.slice(at, PIECE))
            taken += time.thread_time() - began if at >= rows // 2 else 0.0
        run.drain()
    return (taken / rows,)  # half of both streams


@contextlib.contextmanager
def _reading(run: Run) -> Iterator[list[float]]:
    """Results are read in a thread of its own; at the end its seconds stand in what this gives."""
    took: list[float] = []
    reader = threading.Thread(target=_read, args=(run, took), name="plait-calibrate-reader")
    reader.start()
    try:
        yield took
    except BaseException:  # an interrupt, for one: a run that nobody ends would be read for ever
        run.stop()
        raise
    finally:
        reader.join()
    if len(took) != 1:
        raise RunError("The run that is measured has failed", do="Report this")


def _read(run: Run, took: list[float]) -> None:
    began = time.thread_time()
    with contextlib.suppress(RunError):  # then nothing is added, and whoever waits for the figure says so
        for _ in run.results():
            pass
        took.append(time.thread_time() - began)


def _joins(share: int) -> dict[str, float]:
    rows, narrow, wide = 40_000 // share, 1, 4000 // share
    _pushed(4 * PIECE)  # compiled
    counts = [_preloaded(window, rows, RARE, 1)[2] for window in (narrow, wide)]
    found = _least(
        {
            "narrow": lambda: _preloaded(narrow, rows, RARE, 1)[:1],
            "wide": lambda: _preloaded(wide, rows, RARE, 1)[:1],
            "push": lambda: _pushed(4 * rows),
        },
        RUNS,
    )
    (small,), (large,), (push,) = found["narrow"], found["wide"], found["push"]
    comparison = max(large - small, 1e-12) / (counts[1] - counts[0])
    see = max(small - comparison * counts[0], 1e-12) / (2 * rows)
    return {"push_s": push, "see_s": see, "comparison_s": comparison}


def _results(share: int) -> dict[str, float]:
    rows = 4000 // share

    def per_result(on: str, workers: int) -> Figures:
        worked, reading, compared, results = _preloaded(20, rows, on, workers)
        return worked / compared, reading / max(results, 1)

    cases = {
        (on, workers): functools.partial(per_result, on, workers)
        for on, workers in ((RARE, 1), (ALWAYS, 1), (ALWAYS, CREW))
    }
    for once in cases.values():
        once()  # compiled
    (idle, _), (busy, one), (_, several) = _least(cases, RUNS).values()
    # Every comparison is a result of the one, and none of the other: what is left is what finding one costs its worker.
    return {"emit_s": max(0.0, busy - idle), "result_s": one, "result_merge_s": _slope(one, several, CREW * log2(CREW))}


# --- a hop between two threads: T_CL ------------------------------------------------------------------------------


def _hops(share: int) -> dict[str, float]:
    hop.hops_ns(1)  # compiled
    return {"hop_s": _least({"hop": lambda: (float(hop.hops_ns(2000 // share).mean()) / 1e9,)}, RUNS)["hop"][0]}


# --- the gate: adding, S-Merge, what each further reader adds -----------------------------------------------------


def _through(kind: type[Gate], sources: int, readers: int, total: int) -> Figures:
    """Seconds a tuple to add it, and for one reader to get it; one thread does all by turns, so that nothing is contended for."""
    gate = kind(slots=sources, readers=readers, capacity=ROUND, pending=ROUND)
    for slot in range(sources):
        gate.open(slot, f"source {slot}", origin=slot, min_ts=0)
    columns = [np.empty(ROUND, np.int64) for _ in range(4)]
    own = ROUND // sources
    offsets = np.arange(own, dtype=np.int64) * sources
    adding = getting = 0.0
    rounds, read = max(1, total // ROUND), 0
    for turn in range(rounds):
        added = [offsets + turn * ROUND + slot for slot in range(sources)]
        began = time.thread_time()
        for slot, ts in enumerate(added):
            for low in range(0, own, ROUND // MANY):
                high = low + ROUND // MANY
                gate.kind.add_waiting(gate.words, slot, ts, ts, ts, low, high, int(ts[high - 1]), 0, True)
        middle = time.thread_time()
        for reader in range(readers):
            while (got := int(gate.kind.read_waiting(gate.words, reader, ROUND, *columns, 0))) > 0:
                read += got
        getting += time.thread_time() - middle
        adding += middle - began
    # The last tuple of every source but the first is not ready: none is promised behind it.
    if not (rounds * ROUND - sources) * readers <= read <= rounds * ROUND * readers:
        raise RunError(f"{read} tuples came through a gate that {rounds * ROUND} went into", do="Report this")
    return adding / (rounds * ROUND), getting / read


def _gates(share: int) -> dict[str, float]:
    total = 200_000 // share
    kinds: dict[str, type[Gate]] = {"ring": RingGate, "skiplist": SkipListGate}
    sizes = ((FEW, 1), (MANY, 1), (FEW, CREW))
    for kind in kinds.values():
        _through(kind, FEW, 1, ROUND)  # compiled
    found = _least(
        {(name, *size): functools.partial(_through, kinds[name], *size, total) for name in kinds for size in sizes},
        RUNS,
    )
    made: dict[str, float] = {}
    levels = log2(MANY) - log2(FEW)
    for name in kinds:
        (add_few, get_few), (add_many, get_many), (add_crew, _) = (found[(name, *size)] for size in sizes)
        made |= {
            f"{name}_add_s": add_few,
            f"{name}_add_level_s": _slope(add_few, add_many, levels),
            f"{name}_get_s": get_few,
            f"{name}_get_level_s": _slope(get_few, get_many, levels),
            f"{name}_contend_s": _slope(add_few, add_crew, CREW - 1),
        }
    return made


# --- aggregates: what input and output threads of each design take ------------------------------------------------


def _aggregated(strategy: str, sources: int, total: int) -> Figures:
    """Seconds a tuple of the thread that pushes, and of those that update and give out. The same tuples, however many sources."""
    rng, keys, panes = np.random.default_rng(1), 64, 40
    ts = np.sort(rng.integers(0, panes * 3_000_000, total))
    whole = pa.RecordBatch.from_pydict({"ts": ts, "key": rng.integers(0, keys, total), "v": rng.random(total)})
    own = [whole.take(pa.array(np.arange(k, total, sources))) for k in range(sources)]
    readings = plait.stream("readings", unit="us", sources=tuple(range(sources)))
    query = plait.aggregate(
        readings, size="30s", advance="3s", by="key", compute={"n": plait.count(), "mean": plait.mean("v")}
    )
    with query.on_threads(schemas={"readings": whole.schema}, strategy=strategy, pending=4 * PIECE) as run:
        pushing = 0.0
        with _reading(run) as took:
            for at in range(0, max(each.num_rows for each in own), PIECE):
                began = time.thread_time()
                for k, each in enumerate(own):
                    if at < each.num_rows:
                        run.push("readings", k, each.slice(at, PIECE))
                pushing += time.thread_time() - began
            run.drain()
        return pushing / total, (run.stats().update_cpu_s + took[0]) / total


def _aggregates(share: int) -> dict[str, float]:
    total = 400_000 // share
    designs = {"tuml": "tuml_sc", "wiml": "wiml"}
    for strategy in designs.values():
        _aggregated(strategy, FEW, 10_000)  # compiled
    cases = {
        (name, sources): functools.partial(_aggregated, designs[name], sources, total)
        for name in designs
        for sources in (FEW, MANY)
    }
    found = _least(cases, 2 * RUNS)
    made: dict[str, float] = {}
    for name in designs:
        for stage, small, large in zip(("input", "output"), found[name, FEW], found[name, MANY], strict=True):
            each = _slope(small, large, MANY - FEW)
            made |= {f"{name}_{stage}_s": max(small - FEW * each, 1e-12), f"{name}_{stage}_source_s": each}
    return made
