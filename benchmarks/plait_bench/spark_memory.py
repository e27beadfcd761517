"""Of `plait bench spark-join --only size20m`: 20 million tuples a stream through windows of 2 million, and each process's memory.

Two streams of 10,000 tuples a second in event time, joined by two bands within 200 s: every tuple meets 2 million earlier ones of
the other stream, and one comparison in 3.8 million gives a result, 20 million in all. A micro-batch is one file of each stream,
400,000 tuples a stream; files are made one by one, so nobody ever has a stream in memory. Cells go by ranges of a band's column,
tasks write the results in result order (`distributed=True`), and `max_window` allows a cell twice its part of both windows.

Resident memory (VmRSS) of the driver's JVM, the driver's Python and each Python worker below the JVM is looked at ten times a
second. In local mode the driver's JVM is the executor's, too. Workers are forked from one process, so what they share with it is
counted in each of them. A row tells of a tenth of the run: the most that was seen in it, and the state at its end. That memory is
bounded shows in a late tenth having no more than the one in which the windows had filled: `size20m_..._last_vs_filled`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait_bench.spark_runs import in_order, streams

RATE, WITHIN_S, FILE, SIDE = 10_000, 200, 400_000, 40_000
STEPS = 10


def size20m(spark: Any, place: Path, tuples: int, *, rate: int = RATE, file: int = FILE) -> list[dict[str, Any]]:
    """So many tuples a stream; the windows are those of `rate`."""
    import plait.spark

    began = time.perf_counter()
    folders = {name: _written(place / name, seed, tuples, rate, file) for seed, name in enumerate("ab")}
    made_s = time.perf_counter() - began
    a, b = (plait.stream(name, unit="us") for name in "ab")
    near = plait.join(a, b, on="abs(l.x - r.x) <= 10 and abs(l.y - r.y) <= 10", within=f"{WITHIN_S}s")
    most = 2 * (2 * rate * WITHIN_S // 2 + 2 * file)
    df = near.on_spark(streams(spark, folders), layout="band", max_window=most)
    told: list[Any] = []
    with _watching() as seen:

        def report(batch: Any) -> None:
            told.append((time.perf_counter(), batch))
            seen.phase = len(told)

        begin = time.perf_counter()
        for drain in (False, True):
            plait.spark.write_ordered(
                df, place / "out", checkpoint=place / "checkpoint", distributed=True, report=report, drain=drain
            ).awaitTermination()
    made = {
        "case": "size20m", "contender": "data made", "tuples": 2 * tuples, "seconds": round(made_s, 1),
        "tuples_per_s": 2 * tuples / made_s,
    }  # fmt: skip
    return [*_rows("size20m", begin, told, seen.most), made]


def _written(folder: Path, seed: int, tuples: int, rate: int, file: int) -> Path:
    """A stream in files of so many tuples, made one by one."""
    folder.mkdir(parents=True)
    files = []
    for number, begin in enumerate(range(0, tuples, file)):
        dice, count = np.random.default_rng((seed, number)), min(file, tuples - begin)
        table = pa.table({
            "ts": 1_000_000_000 + np.arange(begin, begin + count) * (1_000_000 // rate),
            "x": dice.integers(0, SIDE, count, dtype=np.int32), "y": dice.random(count, dtype=np.float32) * SIDE,
        })  # fmt: skip
        files.append(folder / f"part-{number:05d}.parquet")
        pq.write_table(table, files[-1])
    in_order(files)
    return folder


# --- memory ---------------------------------------------------------------------------------------------------


class _Seen:
    """Of each phase the most that each process had, in bytes, by kind and number of process."""

    def __init__(self) -> None:
        self.phase = 0
        self.most: dict[int, dict[str, int]] = {}
        self.over = threading.Event()

    def look(self) -> None:
        """Until it is over, ten times a second."""
        while not self.over.wait(0.1):
            now = resident(os.getpid())
            most = self.most.setdefault(self.phase, {})
            workers = [size for who, size in now.items() if who.startswith("worker")]
            for who, size in (
                ("jvm", now.get("jvm", 0)), ("python", now["python"]), ("worker", max(workers, default=0)),
                ("workers", sum(workers)), ("shared memory", _shared()),
            ):  # fmt: skip
                most[who] = max(most.get(who, 0), size)


@contextlib.contextmanager
def _watching() -> Iterator[_Seen]:
    seen = _Seen()
    thread = threading.Thread(target=seen.look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.over.set()
        thread.join()


def resident(driver: int) -> dict[str, int]:
    """Bytes of resident memory: of the driver's Python, of the JVM that it started, and of each Python worker below that."""
    children: dict[int, list[int]] = {}
    about: dict[int, tuple[str, int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):  # a process may end meanwhile
            status = dict(
                line.split(":\t", 1) for line in Path(entry.path, "status").read_text().splitlines() if ":\t" in line
            )
            children.setdefault(int(status["PPid"]), []).append(int(entry.name))
            about[int(entry.name)] = status["Name"], int(status.get("VmRSS", "0 kB").split()[0]) * 1024
    found = {"python": about[driver][1]}

    def below(process: int, in_jvm: bool) -> None:
        for child in children.get(process, []):
            name, size = about[child]
            if name == "java":
                found["jvm"] = found.get("jvm", 0) + size
            elif in_jvm and name.startswith("python"):
                found[f"worker {child}"] = size
            below(child, in_jvm or name == "java")

    below(driver, False)
    return found


def _shared() -> int:
    """What plait has in shared memory (`spark.keep.recent`)."""
    total = 0
    for root, _, names in os.walk(f"/dev/shm/plait-{os.getuid()}"):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


# --- what it comes to -----------------------------------------------------------------------------------------


def _rows(case: str, begin: float, told: list[Any], most: dict[int, dict[str, int]]) -> list[dict[str, Any]]:
    """A row for each tenth of the batches, and one for the whole run."""
    rows, edges = [], [len(told) * k // STEPS for k in range(STEPS + 1)]
    results = np.cumsum([batch.results for _, batch in told])
    for number, (first, end) in enumerate(itertools.pairwise(edges), 1):
        if first == end:
            continue
        at, batch = told[end - 1]
        # What is seen while batch k is worked on has phase k.
        rows.append(_row(case, f"tenth {number}", begin, at, batch, int(results[end - 1]), most, range(first, end)))
    at, batch = told[-1]
    whole = _row(case, "plait stream", begin, at, batch, int(results[-1]), most, range(len(told) + 1))
    fullest = max((batch for _, batch in told), key=lambda batch: batch.run.held)
    whole |= _state(fullest)
    return [*rows, whole]


def _row(case: str, name: str, begin: float, at: float, batch: Any, results: int, most: dict[int, dict[str, int]],
         phases: range) -> dict[str, Any]:  # fmt: skip
    seen = [most[phase] for phase in phases if phase in most]
    peak = {who: max((each.get(who, 0) for each in seen), default=0) for who in KINDS}
    return {
        "case": case, "contender": name, "tuples": batch.run.tuples, "results": results, "seconds": round(at - begin, 1),
        "tuples_per_s": batch.run.tuples / (at - begin), "copies_per_tuple": round(batch.run.copies_per_tuple, 3),
        "bytes_per_tuple": round(batch.run.bytes_per_tuple, 1), **_state(batch),
        **{f"{who.replace(' ', '_')}_mb": round(size / 1e6) for who, size in peak.items()},
    }  # fmt: skip


KINDS = ("jvm", "python", "worker", "workers", "shared memory")


def _state(batch: Any) -> dict[str, Any]:
    cells = batch.run.cells
    return {
        "held_rows": batch.run.held, "held_mb": round(sum(cell.held_bytes for cell in cells) / 1e6, 1),
        "fullest_cell_rows": max(cell.held for cell in cells),
    }  # fmt: skip


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The last full tenth's memory over that of the tenth in which windows had filled; the very last one drains."""
    tenths = [row for row in rows if row["case"] == "size20m" and row["contender"].startswith("tenth")]
    if len(tenths) < 4:
        return {}
    filled, last = tenths[2], tenths[-2]
    found = {
        f"size20m_{who}_last_vs_filled": last[f"{who}_mb"] / max(filled[f"{who}_mb"], 1)
        for who in ("jvm", "python", "worker")
    }
    return found | {"size20m_state_last_vs_filled": last["held_rows"] / max(filled["held_rows"], 1)}
