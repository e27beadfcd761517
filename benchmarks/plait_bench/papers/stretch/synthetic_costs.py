"""An operator with given costs, virtual and pure: how STRETCH's figure 4a is run.

Costs are busy work in machine code: so many steps of one loop, told once by the thread's own processor time. An input thread
pushes and works, n processing threads see every tuple and work an n-th of its cost each, an output thread takes results in order
and works. Virtual is one run with a bucket for each thread. Pure is n runs that share nothing: the input thread pushes to all of
them, and the output thread takes from them in turn. What pushing and taking cost is a part of the given costs, as creating and
forwarding a tuple is of the paper's d^I: busy work is what is left of them. A few tuples are under way at a time and no more, as
with a bounded queue.

What a stage takes for a tuple is told by processor time, so the slowest stage is known on a machine with fewer cores than
threads too.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait.models import stretch as model
from plait.threads.atomics import compiled
from plait_bench.elastic_runs import in_threads

STREAM = "tuples"
UNDER_WAY = 8


@compiled
def spin(steps, value):  # type: ignore[no-untyped-def]
    """The loop of `work`, for threads that are not plait's."""
    for _ in range(steps):
        value = value * 0.999999 + 1e-6
    return value


def work(state: Any, t: Any) -> Any:
    """So many steps; one bucket, by turns, gives the tuple on."""
    value = state[4]
    for _ in range(int(state[1])):
        value = value * 0.999999 + 1e-6
    state[4] = value
    if int(state[0]) % int(state[2]) == int(state[3]):
        yield (t.number,)
    state[0] += 1.0


def everywhere(t: Any) -> Any:
    return plait.ALL


@cache
def steps_per_s() -> float:
    """Of one thread, by its processor time: the median of a few looks."""
    spin(10, 1.0)
    found = []
    for _ in range(5):
        begin = time.thread_time()
        spin(2_000_000, 1.0)
        found.append(2_000_000 / (time.thread_time() - begin))
    return statistics.median(found)


def operator(buckets: int, steps: int, *, of: int, first: int = 0) -> Any:
    """`of` buckets in all, of which this operator has `buckets`, from `first` on.

    A bucket's state: tuples seen, steps a tuple, buckets in all, its own number, and what the steps work on.
    """

    def state(number: int) -> np.ndarray:
        return np.array([0.0, steps, of, first + number, 1.0])

    return plait.operator([plait.stream(STREAM, unit="us")], buckets=buckets, route=everywhere, state=state, process=work,
                          output={"number": "int64"})  # fmt: skip


def measured(kind: model.Kind, threads: int, costs: model.Costs, tuples: int) -> dict[str, Any]:
    """What each stage takes for a tuple with n processing threads, in seconds of processor time; and how fast it went."""
    given, per_s = model.stages(kind, costs, threads), steps_per_s()
    steps = round(given.process_s * per_s)
    schema = pa.schema({"ts": pa.int64(), "number": pa.int64()})
    if kind == "virtual":
        plans = [
            (operator(threads, steps, of=threads), {"workers": threads} | ({"elastic": threads} if threads > 1 else {}))
        ]
    else:
        plans = [(operator(1, steps, of=threads, first=k), {"workers": 1}) for k in range(threads)]
    with ExitStack() as stack:
        runs = [stack.enter_context(made.on_threads(schemas={STREAM: schema}, **options)) for made, options in plans]
        free, pushed, out = threading.Semaphore(UNDER_WAY), [0.0] * tuples, [0.0] * tuples
        spent: dict[str, float] = {}
        warm = spent_by(runs)
        begin = time.perf_counter()
        in_threads([
            partial(_push, runs, tuples, given.input_s, schema, free, pushed, spent),
            partial(_take, runs, tuples, given.output_s, free, out, spent),
        ])  # fmt: skip
        took = time.perf_counter() - begin
        busiest = max(after - before for before, after in zip(warm, spent_by(runs), strict=True))
    each = {"input": spent["input"] / tuples, "processing": busiest / tuples, "output": spent["output"] / tuples}
    return {
        "kind": kind, "threads": threads, **{f"{stage}_ms": 1e3 * value for stage, value in each.items()},
        "model_ms": 1e3 / given.tuples_per_s, "measured_ms": 1e3 * max(each.values()),
        "slowest": max(each, key=lambda stage: each[stage]), "wall_tuples_per_s": tuples / took,
        "latency_ms": 1e3 * statistics.median(b - a for a, b in zip(pushed, out, strict=True)),
    }  # fmt: skip


def spent_by(runs: list[Any]) -> list[float]:
    """Processor time of all processing threads."""
    return [cpu_s for run in runs for cpu_s in run.stats().threads_cpu_s]


def work_until(begin_s: float, cost_s: float) -> None:
    """Busy work until this thread has used so much processor time since `begin_s`; none where it has already."""
    if (left_s := begin_s + cost_s - time.thread_time()) > 0:
        spin(round(left_s * steps_per_s()), 1.0)


def _push(runs: list[Any], tuples: int, cost_s: float, schema: pa.Schema, free: threading.Semaphore, pushed: list[float],
          spent: dict[str, float]) -> None:  # fmt: skip
    for k in range(tuples):
        free.acquire()
        begin_s, pushed[k] = time.thread_time(), time.perf_counter()
        batch = pa.record_batch([[k], [k]], schema=schema)
        for run in runs:
            run.push(STREAM, None, batch)
        work_until(begin_s, cost_s)
    for run in runs:
        run.close(STREAM)
    spent["input"] = time.thread_time()


def _take(runs: list[Any], tuples: int, cost_s: float, free: threading.Semaphore, out: list[float],
          spent: dict[str, float]) -> None:  # fmt: skip
    """Tuple k comes from bucket k mod n: of several runs from the next in turn."""
    rows = [_rows(run) for run in runs]
    for k in range(tuples):
        begin_s = time.thread_time()
        number = next(rows[k % len(rows)])
        work_until(begin_s, cost_s)
        out[number] = time.perf_counter()
        free.release()
    spent["output"] = time.thread_time()


def _rows(run: Any) -> Iterator[int]:
    for batch in run.results():
        yield from batch.column("number").to_pylist()


def warm_up() -> None:
    """Both kinds once, tiny: their machine code is loaded."""
    for kind in ("virtual", "pure"):
        measured(kind, 2, model.Costs(input_s=1e-6, process_s=1e-5, output_s=1e-6), 4)
