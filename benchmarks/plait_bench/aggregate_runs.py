"""Runs of an aggregate on threads, as the benchmarks time them: threads that push, one that reads, and who worked how long.

The paper has a thread for each input; here there are as many as cores, each with its share of the inputs, by turns. Durations are
processor time of a thread for each tuple (its figures 8 and 10): waiting is not in them, and other load on the machine is only as
far as it takes caches away.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import plait
from plait.errors import RunError

#: Pieces that a thread may be ahead of the slowest one. Rows that wait for other sources are those, and the ones being pushed:
#: there is room for them and not for more, since memory is set aside, and a short run would measure how it is zeroed.
LEAD = 2


@dataclass(frozen=True)
class Outcome:
    """`input_ns` and `output_ns`: processor time a tuple, of the threads that push, and of those that update and give out."""

    table: pa.Table
    seconds: float
    tuples: int
    input_ns: float
    output_ns: float

    @property
    def tuples_per_s(self) -> float:
        return self.tuples / self.seconds


def on_threads(
    query: plait.Query, sources: list[pa.RecordBatch], *, piece: int, crew: int | None = None, **options: Any
) -> Outcome:
    """Sources pushed by `crew` threads (as many as cores, if not said), a piece at a time, while results are read."""
    (stream,) = query.streams()
    crew = min(crew or max(os.cpu_count() or 1, 2), len(sources))
    busy, reached = [0] * crew, [0] * crew
    failed: list[BaseException] = []
    began = time.perf_counter()
    with query.on_threads(schemas={stream: sources[0].schema}, pending=(LEAD + 2) * piece, **options) as run:

        def push(seat: int) -> None:
            try:
                since = time.thread_time_ns()
                own = range(seat, len(sources), crew)
                for at in range(0, max(sources[k].num_rows for k in own), piece):
                    reached[seat] = at
                    while at - min(reached) > LEAD * piece and not failed:
                        time.sleep(0.0002)
                    for k in own:
                        if at < sources[k].num_rows:
                            run.push(stream, k, sources[k].slice(at, piece))
                reached[seat] = max(source.num_rows for source in sources)
                for k in own:
                    run.close(stream, k)
                busy[seat] = time.thread_time_ns() - since
            except BaseException as error:
                failed.append(error)
                run.stop()

        threads = [threading.Thread(target=push, args=(seat,), name=f"bench-push-{seat}") for seat in range(crew)]
        for thread in threads:
            thread.start()
        since = time.thread_time_ns()
        try:
            batches = list(run.results())
        except RunError:
            for thread in threads:
                thread.join()
            if failed:
                raise failed[0] from None
            raise
        reading = time.thread_time_ns() - since
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        tuples = sum(source.num_rows for source in sources)
        output = run.stats().update_cpu_s * 1e9 + reading
        table = pa.Table.from_batches(batches, run.schema)
        return Outcome(table, seconds, tuples, sum(busy) / tuples, output / tuples)
