"""Jobs side by side on threads, and what they give in the order of the jobs.

A job finds results, piece by piece, and gives *makers*: functions that make a batch each, or None. Finding is one thread's at a
time; makers of all jobs are anybody's, the oldest one first. So where one job has most of the results, all threads make rows of
them. Whoever reads gets batches in the order of jobs and makers.

Bounded: no more than AHEAD batches a thread are made and not read, and no job goes on finding while as many of its makers wait as
there are threads. Nobody waits for ever: what is read next may always be made, and its job may go on if it has no makers left.

An example with two threads. Both find, the first job's pieces and the second's. The first job has given 8 makers: both make
batches of these, then one of them goes on finding for the first job, and the other makes batches of the second.

Held by tests/threads/bounded/test_side_by_side.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

import pyarrow as pa

from plait.threads.life.guard import guarded

AHEAD = 16

Make = Callable[[], pa.RecordBatch | None]
Job = Callable[[], Iterator[Make]]


class _Slot:
    """A batch's place among the results: `made` says that there is one, or None, or an error."""

    def __init__(self, make: Make) -> None:
        self.make: Make | None = make
        self.made = False
        self.batch: pa.RecordBatch | None = None
        self.error: BaseException | None = None

    def fill(self) -> None:
        assert self.make is not None
        try:
            self.batch = self.make()
        except BaseException as error:
            self.error = error
        self.make = None  # what it holds on to can go


class _Opened:
    """A job. `slots` are in order, and the first `begun` of them are being made, or made; `ended`: there will be no others.

    `given`: how many makers it has given so far.
    """

    def __init__(self, job: Job) -> None:
        self.job, self.slots, self.begun = job, deque[_Slot](), 0
        self.finder: Iterator[Make] | None = None
        self.finding = self.ended = False
        self.given = 0

    def find(self) -> tuple[list[_Slot], bool]:
        """The next batch to be made, if there is one, and whether the job has come to its end. An error comes as the last one."""
        try:
            if self.finder is None:
                self.finder = self.job()
            return [_Slot(next(self.finder))], False
        except StopIteration:
            return [], True
        except BaseException as error:
            return [_Slot(_raising(error))], True


def _raising(error: BaseException) -> Make:
    def make() -> None:
        raise error

    return make


class SideBySide:
    """Threads for jobs. Leaving the `with` block ends them, whatever they are at.

    Under `_guard`: the jobs, and `_ahead`, how many batches are being made, or made and not read.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._guard, self._changed = guarded()
        self._jobs: deque[_Opened] = deque()
        self._threads: list[threading.Thread] = []
        self._ahead = 0
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._guard:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def put(self, job: Job) -> None:
        with self._guard:
            self._jobs.append(_Opened(job))
            self._changed.notify_all()
        self._one_more()

    def _one_more(self) -> None:
        """Another thread, if there may be one: for each job that comes, and for those that have more than one batch."""
        with self._guard:
            if self._stopped or len(self._threads) == self._most:
                return
            thread = threading.Thread(target=self._work, name=f"plait-bounded-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def taken(self, most: int) -> Iterator[pa.RecordBatch]:
        """What jobs give, the oldest first, until no more than `most` of them are left. The first error ends it."""
        while True:
            with self._guard:
                while not self._readable(most):
                    self._changed.wait()
                if len(self._jobs) <= most:
                    return
                slot = self._jobs[0].slots.popleft()
                self._jobs[0].begun -= 1
                self._ahead -= 1
                self._changed.notify_all()
            if slot.error is not None:
                raise slot.error
            if slot.batch is not None:
                yield slot.batch

    def _readable(self, most: int) -> bool:
        """Whether the next batch is made, or there is none; jobs that have come to their end are left behind."""
        while len(self._jobs) > most:
            first = self._jobs[0]
            if first.slots:
                return first.slots[0].made
            if not first.ended:
                return False
            self._jobs.popleft()
        return True

    # --- the threads ---

    def _work(self) -> None:
        while True:
            with self._guard:
                while (task := self._next()) is None and not self._stopped:
                    self._changed.wait()
                if self._stopped or task is None:
                    return
            if isinstance(task, _Slot):
                task.fill()
                with self._guard:
                    task.made = True
                    self._changed.notify_all()
            else:
                found, ended = task.find()
                with self._guard:
                    task.slots.extend(found)
                    task.finding, task.ended = False, ended
                    task.given += len(found)
                    self._changed.notify_all()
                if task.given > 1 and not ended:
                    self._one_more()

    def _next(self) -> _Slot | _Opened | None:
        """What to do next: a batch to make, a job to go on with; None: there is nothing, or no room."""
        for job in self._jobs:
            if job.begun < len(job.slots):
                if self._ahead >= AHEAD * self._most and not (job is self._jobs[0] and job.begun == 0):
                    break
                slot = job.slots[job.begun]
                job.begun += 1
                self._ahead += 1
                return slot
        for job in self._jobs:
            if not job.finding and not job.ended and len(job.slots) - job.begun < self._most:
                job.finding = True
                return job
        return None
