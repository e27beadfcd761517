"""What a push into an aggregate costs who pushes: processor time of that thread, by rows a push and by sources.

One thread pushes, from one source or from twenty in turn, while another reads. The first half of the pushes is not measured:
memory that is used for the first time has to be zeroed by the system, and twenty sources have more of it. Count and mean of
243 keys, windows of 30 s every 3 s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import plait

ROWS = ((4096, 1 << 20), (128, 1 << 19), (16, 1 << 18))  # rows a push, and in all
SOURCES = (1, 20)
DESIGNS = ("tuml_sc", "wiml")
KEYS, SPAN_US, ROOM = 243, 300_000_000, 8192


def pushes(quick: bool = False, designs: Sequence[str] = DESIGNS) -> list[dict[str, Any]]:
    """A row for each design, size of a push and number of sources: the least of some runs, since other load only adds to it."""
    rows = []
    for size, total in ROWS:
        for design in designs:
            for sources in SOURCES:
                runs = [once(design, sources, size, total >> 4 if quick else total) for _ in range(1 if quick else 3)]
                push_us, process_us = min(runs)
                rows.append({
                    "case": f"pushes of {size} rows, {KEYS} keys, 30 s every 3 s, count + mean", "design": design,
                    "inputs": sources, "rows_a_push": size, "push_us": push_us, "process_us": process_us,
                })  # fmt: skip
    return rows


def ratios(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What a push of 128 rows costs with twenty sources, over what it costs with one."""
    spent = {(row["design"], row["inputs"]): row["push_us"] for row in rows if row.get("rows_a_push") == 128}
    few, many = SOURCES
    return {
        f"{name}_push128_{many}_sources_vs_{few}": spent[name, many] / spent[name, few]
        for name, sources in spent
        if sources == few
    }


def once(design: str, sources: int, size: int, total: int) -> tuple[float, float]:
    """Microseconds a push of the second half: of the thread that pushes, and of the whole process."""
    dice, count = np.random.default_rng(1), total // size
    batch = pa.record_batch({
        "ts": np.sort(dice.integers(0, SPAN_US, count * size)),
        "meter": dice.integers(1, KEYS + 1, count * size, dtype=np.int32),
        "cons": dice.random(count * size),
    })  # fmt: skip
    stream = plait.stream("readings", unit="us", sources=sources)
    compute = {"n": plait.count(), "mean": plait.mean("cons")}
    query = plait.aggregate(stream, size="30s", advance="3s", by="meter", compute=compute)
    half = count // 2
    with query.on_threads(strategy=design, schemas={"readings": batch.schema}, pending=ROOM, capacity=ROOM) as run:
        reader = threading.Thread(target=lambda: [None for _ in run.results()])
        reader.start()
        for k in range(count):
            if k == half:
                own, whole = time.thread_time(), time.process_time()
            run.push("readings", k % sources, batch.slice(k * size, size))
        own, whole = time.thread_time() - own, time.process_time() - whole
        run.drain()
        reader.join()
    return 1e6 * own / (count - half), 1e6 * whole / (count - half)
