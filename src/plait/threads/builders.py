"""Threads that make rows of results beside who reads them.

A job is a function; `Builders.do` hands it to whichever thread is free, and `Job.result` waits for what it gives. Threads begin
with the first job, so a run that has few results has none of them.

Invariants, and why they hold:

- *A job that was handed over is done*, unless the run has been halted: threads take jobs from one queue, in their order, and
  end only at a None, which `halt` puts behind all jobs that were there. Who waits for a job of a run that was halted is told
  `Stopped`.
- *Who waits may be interrupted.* It waits for a lock of C's own, which only the thread that does the job lets go of
  (`life.guard`).
- *Threads hold no run.* They have the queue, and a job while they do it: a run that nobody has any more is stopped as ever.

Held by tests/threads/test_builders.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from plait.threads.life.pause import Stopped

SLICE_S = 0.05  # how often who waits looks whether the run was halted

T = TypeVar("T")


class Job(Generic[T]):
    """Something to be done. `over`: it is, whether it went well or not."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()
        self.over = False

    def do(self) -> None:
        assert self._make is not None
        try:
            self._made.append(self._make())
        except BaseException as error:
            self._error = error
        self._make = None  # what it holds on to can go
        self.over = True
        self._done.release()

    def wait(self, halted: Callable[[], bool]) -> None:
        """Until it is done. One thread at a time waits. Raises `Stopped` if the run was halted meanwhile."""
        while not self.over and not self._done.acquire(timeout=SLICE_S):
            if halted():
                raise Stopped

    def result(self, halted: Callable[[], bool]) -> T:
        """What it has given. Raises what it has raised."""
        self.wait(halted)
        if self._error is not None:
            raise self._error
        return self._made[0]


class Builders:
    """At most `threads` of them. One thread at a time hands jobs over; any may halt them."""

    def __init__(self, threads: int) -> None:
        self.most = threads
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[Job[object] | None] = SimpleQueue()
        self._halted = False

    def do(self, make: Callable[[], T]) -> Job[T]:
        """Have it done."""
        job = Job(make)
        if len(self._threads) < self.most and not self._halted:
            thread = threading.Thread(
                target=_work, args=(self._jobs,), name=f"plait-builds-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)  # type: ignore[arg-type]  # whatever it gives
        return job

    def halted(self) -> bool:
        return self._halted

    def halt(self) -> None:
        """Let them end after the jobs that they have. It waits for none, and may be called by the collector of garbage."""
        self._halted = True
        for _ in range(self.most):
            self._jobs.put(None)

    def join(self, seconds: float) -> threading.Thread | None:
        """Wait for their end, after `halt`; gives one that does not end in time."""
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(timeout=seconds)
                if thread.is_alive():
                    return thread
        return None


def _work(jobs: SimpleQueue[Job[object] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.do()
        del job  # nor keep what it gave until the next one comes
