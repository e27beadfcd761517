"""What a page that is open costs a run on threads: the same run by turns without a page and with one that is open all the time.

    .venv/bin/python tools/measure_page.py [turns]

A turn joins ROWS rows a stream by a band, pushed in batches of PUSH rows by one thread, with two workers. The page is read by
another process, as a browser does: every look. Prints the processor time of this process and the time of the clock of each
turn, the ratio of the medians, and the processor time of the page's two threads, which other work does not blur.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa

import plait

ROWS, PUSH = 8_000_000, 2_000
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + '/events'): pass"


def tables(seed: int) -> list[pa.Table]:
    chance = np.random.default_rng(seed)
    ts = np.arange(ROWS) * 10
    return [pa.table({"ts": ts, "x": chance.integers(0, 50_000_000, ROWS)}) for _ in range(2)]


def used_by_page() -> float:
    """Seconds of processors that the threads of a page have used."""
    threads = [each for each in threading.enumerate() if each.name in ("plait-looks", "plait-page")]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(each.ident or 0)) for each in threads)


def turn(left: pa.Table, right: pa.Table, *, page: bool) -> tuple[float, float, float]:
    """Seconds of the clock and of processors, and those of the page's own threads."""
    a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
    near = plait.join(a, b, on=lambda p, q: abs(p.x - q.x) <= 50, within="200ms")
    schemas = {"a": left.schema, "b": right.schema}
    with near.on_threads(workers=2, schemas=schemas) as run:
        shown = plait.page(run, port=0) if page else None
        reader = None if shown is None else subprocess.Popen([sys.executable, "-c", READER, shown.url])
        time.sleep(0.5)
        clock, cpu, own = time.perf_counter(), time.process_time(), used_by_page()

        def push() -> None:
            for begin in range(0, ROWS, PUSH):
                run.push("a", None, left.slice(begin, PUSH))
                run.push("b", None, right.slice(begin, PUSH))
            run.drain()

        thread = threading.Thread(target=push)
        thread.start()
        for _ in run.results():
            pass
        thread.join()
        spent = time.perf_counter() - clock, time.process_time() - cpu, used_by_page() - own
        if shown is not None and reader is not None:
            reader.terminate()
            reader.wait()
            shown.close()
    return spent


def main(turns: int) -> None:
    left, right = tables(1)
    turn(left, right, page=True)  # what is compiled is compiled
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for number in range(turns):
        for page in (number % 2 == 0, number % 2 == 1):
            found[page].append(turn(left, right, page=page))
            clock, cpu, own = found[page][-1]
            name = "page" if page else "none"
            sys.stdout.write(f"{name} {clock:.3f} s, {cpu:.3f} s of processors, {own * 1e3:.1f} ms by the page\n")
    for name, at in (("clock", 0), ("processors", 1)):
        without, with_page = (statistics.median(each[at] for each in found[page]) for page in (False, True))
        sys.stdout.write(f"{name}: {without:.3f} s without, {with_page:.3f} s with, ratio {with_page / without:.4f}\n")
    shares = [own / clock for clock, _, own in found[True]]
    sys.stdout.write(f"the page's own threads: {100 * statistics.median(shares):.2f}% of a core\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
