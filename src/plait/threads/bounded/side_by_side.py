"""Jobs side by side on threads, and what they give in the order of the jobs.

A job is a function that gives batches. It runs ahead of who reads by at most AHEAD batches, so memory is bounded whatever a job
gives. Jobs begin in their order, and whoever reads reads the oldest one that has not ended: so that one is always running, and
nobody waits for ever.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import pyarrow as pa

AHEAD = 16
_SLICE_S = 0.05  # how often who waits for room looks whether nobody reads any more

Job = Callable[[], Iterator[pa.RecordBatch]]


class SideBySide:
    """Threads for jobs. Leaving the `with` block ends them, whatever they are at."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="plait-bounded")
        self._open: deque[queue.Queue[Any]] = deque()
        self._stopped = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def put(self, job: Job) -> None:
        made: queue.Queue[Any] = queue.Queue(AHEAD)
        self._open.append(made)
        self._pool.submit(self._work, job, made)

    def taken(self, most: int) -> Iterator[pa.RecordBatch]:
        """What jobs give, the oldest first, until no more than `most` of them are left. The first error ends it."""
        while len(self._open) > most:
            given = self._open[0].get()
            if given is None:
                self._open.popleft()
            elif isinstance(given, BaseException):
                raise given
            else:
                yield given

    def _work(self, job: Job, made: queue.Queue[Any]) -> None:
        try:
            for batch in job():
                if not self._given(made, batch):
                    return
            self._given(made, None)
        except BaseException as error:
            self._given(made, error)

    def _given(self, made: queue.Queue[Any], what: Any) -> bool:
        """Whether there was somebody to give it to."""
        while not self._stopped.is_set():
            try:
                made.put(what, timeout=_SLICE_S)
            except queue.Full:
                continue
            return True
        return False
