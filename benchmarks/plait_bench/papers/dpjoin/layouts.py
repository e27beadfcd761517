"""How DP-Join's layouts are run flat out, over full windows.

*Offered bandwidth* is pairs for each second of processor time of the busiest worker: what the workers offer with a core each. It
does not depend on how many cores there are, nor on who else uses them. What they offered by the clock stands beside it.

Windows are full before anything is counted; all comparisons of the fill are waited for by their exact number.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from plait.errors import RunError
from plait_bench import rivals
from plait_bench.elastic_runs import GAP_US, LEFT, RIGHT, Tables, part, pushed, query, started, tables
from plait_bench.join_runs import Reader, warm_up
from plait_bench.papers.study import Row

#: How many of all pairs the band finds: x and a are integers, y and b are not.
HIT_RATE = (10_000 + 2 * sum(10_000 - d for d in range(1, 11))) / 1e8 * (2 * 0.001 - 0.001**2)
PIECE = 2048
PATIENCE_S = 60.0
Shape = tuple[int, int]
LINEAR, RECTANGULAR, SQUARE, HANDSHAKE = "linear", "rectangular", "square", "handshake"
KINDS = (LINEAR, RECTANGULAR, SQUARE)


def kind_of(rows: int, columns: int) -> str:
    """The paper's word for a layout. One worker counts as linear, as in its figure 6."""
    if min(rows, columns) == 1:
        return LINEAR
    return SQUARE if rows == columns else RECTANGULAR


def by_kind(rows: Sequence[Row], kind: str) -> dict[int, Row]:
    """Rows of a kind by their number of workers."""
    return {row["workers"]: row for row in sorted(rows, key=lambda row: row["workers"]) if row["kind"] == kind}


def options_of(kind: str, shape: Shape, **more: Any) -> dict[str, Any]:
    workers = shape[0] * shape[1]
    if kind == HANDSHAKE:
        assert kind in rivals.NAMES
        # Its tuples age batch by batch: of large ones nearly all meet at one worker.
        return {"strategy": kind, "workers": workers, "order": "none", "batch": PIECE // 8}
    if workers == 1:
        return {"strategy": "sequential", "workers": 1}
    return {"strategy": "dpjoin", "layout": shape, **more}


def offered(window: int, shapes: Sequence[tuple[str, Shape]], rounds: int) -> list[dict[str, Any]]:
    """What each layout offers with windows of so many tuples: a row each, the best of rounds in which they take turns.

    The best, and of the clock the median: a core that others use too only adds to the processor time of who waits for a worker.
    """
    data, made = tables(2 * window), query(window)
    for kind, shape in shapes:
        warm_up(made, data, index="scan", **options_of(kind, shape))
    found: dict[tuple[str, Shape], list[dict[str, Any]]] = {each: [] for each in shapes}
    for _ in range(rounds):
        for kind, shape in shapes:
            found[kind, shape].append(_flat_out(window, data, made, options_of(kind, shape)))
    rows = []
    for (kind, shape), runs in found.items():
        best = max(runs, key=lambda run: run["offered"])
        own = {"kind": kind, "rows": shape[0], "columns": shape[1], "workers": shape[0] * shape[1], "window": window}
        rows.append(own | best | {"wall": statistics.median(run["wall"] for run in runs)})
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
        found = reader.join()
        took, after = time.perf_counter() - began, run.stats()
    spent = max(b - a for a, b in zip(before.threads_cpu_s, after.threads_cpu_s, strict=True))
    by_worker = [b.comparisons - a.comparisons for a, b in zip(before.workers, after.workers, strict=True)]
    compared = sum(by_worker)
    # By their ts, not by counters: results of the fill may still be on their way when it has been compared.
    since_us = min(t.column("ts")[0].as_py() for t in rest.values())
    results = int(np.count_nonzero(np.asarray(found.column("ts")) >= since_us))
    span_us = statistics.mean(t.column("ts")[-1].as_py() - t.column("ts")[0].as_py() for t in rest.values())
    return {
        "window_s": window * GAP_US / 1e6, "comparisons": compared,
        "busiest_part": max(by_worker) / compared, "results": results,
        "busiest_cpu_s": spent,
        "span_s": span_us / 1e6,
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
    """Until so many comparisons were made. Of none that are known: until no more are made."""
    seen, until = -1, time.perf_counter() + PATIENCE_S
    while (now := run.stats().comparisons) < least or (not least and now != seen):
        if time.perf_counter() > until:
            raise RunError(f"{now:,} comparisons of {least:,} after {PATIENCE_S:g} s", do="Report this")
        seen = now
        time.sleep(0.002 if least else 0.02)
