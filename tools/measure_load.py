"""A run on threads at a rate that it holds for long: whether it falls behind, what memory it takes, what an open page costs.

    PYTHONPATH=benchmarks .venv/bin/python tools/measure_load.py [minutes] [share] [seconds a part]

The 200k band join, fed as fast as it takes it for 15 seconds, then at a share of that rate. One thread pushes both streams, whose
data come round again and again with later times; another one reads. A part has the page open, read by another process as a
browser does, the next one has not, and so on. Prints for each: tuples a second, how far the last push was behind its time at
most, latency from the push, memory of the process, processor time; at the end the median of processor time with a page over that
without.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa

import plait
from plait_bench.band import data, query
from plait_bench.join_runs import pieces

READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + '/events'): pass"
PIECE, FLAT_OUT_S, EVENT_S = 2048, 15, 1000


class Feed:
    """The streams' pieces, for ever: round after round, each as much later as one round lasts."""

    def __init__(self) -> None:
        given = data(500, EVENT_S)
        self.schemas = {name: table.schema for name, table in given.items()}
        self._pieces, self._next = pieces(given, PIECE), 0
        self.tuples = 0

    def push(self, run: Any) -> None:
        """The next piece."""
        rounds, at = divmod(self._next, len(self._pieces))
        name, batch = self._pieces[at]
        index = batch.schema.get_field_index("ts")
        kind = batch.schema.field(index).type
        later = np.asarray(batch.column(index).cast(pa.int64())) + rounds * EVENT_S * 1_000_000
        run.push(name, None, batch.set_column(index, "ts", pa.array(later).cast(kind)))
        self._next, self.tuples = self._next + 1, self.tuples + batch.num_rows


class Read(threading.Thread):
    """Reads results and drops them."""

    def __init__(self, run: Any) -> None:
        super().__init__(daemon=True)
        self._run, self.results = run, 0

    def run(self) -> None:
        for batch in self._run.results():
            self.results += batch.num_rows


def resident() -> float:
    """Megabytes of memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def part(feed: Feed, run: Any, rate: float, seconds: float, *, page: bool) -> float:
    """So long at this rate; gives processor seconds a second."""
    shown = plait.page(run, port=0) if page else None
    reader = None if shown is None else subprocess.Popen([sys.executable, "-c", READER, shown.url])
    run.reset_latency()
    begin, cpu, sent, behind = time.perf_counter(), time.process_time(), 0, 0.0
    while (now := time.perf_counter()) - begin < seconds:
        due = begin + sent / rate
        if now < due:
            time.sleep(due - now)
        behind = max(behind, time.perf_counter() - due)
        feed.push(run)
        sent += PIECE
    spent, used = time.perf_counter() - begin, time.process_time() - cpu
    if shown is not None and reader is not None:
        reader.terminate()
        reader.wait()
        shown.close()
    latency = run.stats().latency_from_push_ms
    sys.stdout.write(
        f"{'page' if page else 'none'}: {sent / spent:,.0f} tuples/s, a push {1e3 * behind:.1f} ms behind at most, latency p50 "
        f"{latency.p50:.2f} and p99 {latency.p99:.2f} ms, {resident():.0f} MB, {used / spent:.3f} processors\n"
    )
    sys.stdout.flush()
    return used / spent


def main(minutes: float, share: float, seconds: float) -> None:
    feed = Feed()
    with query().on_threads(schemas=feed.schemas) as run:
        reads = Read(run)
        reads.start()
        begin = time.perf_counter()
        while time.perf_counter() - begin < FLAT_OUT_S:
            if time.perf_counter() - begin < FLAT_OUT_S / 3:
                feed.tuples = 0  # windows fill
                since = time.perf_counter()
            feed.push(run)
        most = feed.tuples / (time.perf_counter() - since)
        sys.stdout.write(f"flat out: {most:,.0f} tuples/s; then {share:.0%} of it\n")
        found: dict[bool, list[float]] = {False: [], True: []}
        for number in range(round(60 * minutes / seconds)):
            page = number % 2 == 1
            found[page].append(part(feed, run, share * most, seconds, page=page))
        run.drain()
        reads.join()
    sys.stdout.write(f"{feed.tuples:,} tuples, {reads.results:,} results\n")
    if found[True]:
        ratio = statistics.median(found[True]) / statistics.median(found[False])
        sys.stdout.write(f"processor time with a page over without: {ratio:.4f}\n")


if __name__ == "__main__":
    given = [float(each) for each in sys.argv[1:]]
    main(*(given + [10, 0.7, 30][len(given) :]))
