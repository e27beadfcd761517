"""What the threads and shares of a run have to do: processor time, and what waits.

The rule: nothing is added to what a thread does with a tuple, a batch or a turn. A thread's processor time is kept by the
system, and read from outside through the thread's clock (`Clocks`); what waits is read off the gate, whose sources and
readers count tuples anyway (`Meter`).

*Load* is STRETCH's: what comes, as a part of what the threads could do at most (section 9.3). What a thread has used of a
processor is its work; the time that it wanted the GIL, or a core, is none. What came and was not done is load as well, or a
load above 100 percent would look like one of 100: tuples that wait now and did not before, times what such a tuple has cost.
A backlog that shrinks adds nothing: working it off is work. Where sources are held back because the gate is full nobody knows
what would come, and the load is what the threads do.

An example. A thread has used 48 of 50 ms, for 960 tuples: 50 us each. In that time 1,160 came, so 200 more wait than before:
10 ms. Its load is (48 + 10) / 50, 116 percent.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from plait.core.policy import Load
from plait.threads.elastic.manager import Epochs

FADE = 0.95  # a look: half of a tuple's cost is what was seen in the last 0.7 s


class Clocks:
    """Processor time of an engine's threads, from when each began; who asks need not be one of them.

    `_clock`: of threads that run, as the system names it. `_ended`: of threads that have ended, what they had used by then.
    """

    def __init__(self, threads: int) -> None:
        self._clock: list[int | None] = [None] * threads
        self._ended = [0] * threads

    @contextmanager
    def running(self, thread: int) -> Iterator[None]:
        """Around all that a thread does, by itself: only it knows that the system has it still."""
        if sys.platform == "linux":
            self._clock[thread] = time.pthread_getcpuclockid(threading.get_ident())
        try:
            yield
        finally:
            self._ended[thread] = time.thread_time_ns()
            self._clock[thread] = None

    def cpu_ns(self) -> list[int]:
        """By thread. Where threads have no clocks that others can read (off Linux), 0 until a thread has ended."""
        return [self._of(thread) for thread in range(len(self._clock))]

    def _of(self, thread: int) -> int:
        clock = self._clock[thread]
        if clock is None:
            return self._ended[thread]
        try:
            return time.clock_gettime_ns(clock)
        except OSError:  # it has ended since the line above, and has written down what it had used
            return self._ended[thread]


@dataclass(frozen=True)
class _Seen:
    """What counters said at one moment. `cpu` by thread, ns; `spent` by share, ns; `came` tuples; `read` by share, tuples.

    `work`: of each share, processor ns since the look before.
    """

    at_ns: int
    cpu: np.ndarray
    spent: np.ndarray
    came: int
    read: np.ndarray
    work: np.ndarray


class Meter:
    """Tells the load of the last `looks` looks: over less than that, what is pushed in pieces would seem to come in jumps.

    `cpu_ns` gives threads' processor time, `spent` what shares' own counters say: by these a thread's time is divided among its
    shares. `_work` and `_read`: of each share, processor ns and tuples, what was long ago counting less; their quotient is a
    tuple's cost. A batch is read at once and worked on for a while, so that over a few looks the quotient would be chance.
    """

    def __init__(self, epochs: Epochs, cpu_ns: Callable[[], Sequence[int]], spent: Callable[[], Sequence[float]],
                 looks: int) -> None:  # fmt: skip
        self._epochs, self._cpu_ns, self._spent = epochs, cpu_ns, spent
        self._work, self._read = np.zeros(epochs.shares), np.zeros(epochs.shares)
        self._past: deque[_Seen] = deque(maxlen=looks + 1)
        self._past.append(self._seen(epochs.owners))

    def _seen(self, owners: list[int]) -> _Seen:
        cpu = np.array(self._cpu_ns() if sys.platform == "linux" else self._epochs.busy_ns(), float)
        spent = np.array(self._spent(), float)
        came, read = self._epochs.tuples()
        work = np.zeros(len(spent))
        if self._past:
            used, by_share = cpu - self._past[-1].cpu, spent - self._past[-1].spent
            by_owner = np.bincount(owners, by_share, minlength=len(used))[owners]
            np.divide(used[owners] * by_share, by_owner, out=work, where=by_owner > 0)
        return _Seen(time.monotonic_ns(), cpu, spent, came, read, work)

    def load(self) -> Load:
        """One look."""
        owners = self._epochs.owners
        now = self._seen(owners)
        self._work = FADE * self._work + now.work
        self._read = FADE * self._read + (now.read - self._past[-1].read)
        self._past.append(now)
        then, threads = self._past[0], sorted(set(owners))
        ns = max(now.at_ns - then.at_ns, 1)
        cost = np.divide(self._work, self._read, out=np.zeros(len(owners)), where=self._read > 0)
        came = now.came - then.came
        waits = np.bincount(owners, cost * (came - (now.read - then.read)))
        shares = cost * came if came > 0 else sum(each.work for each in list(self._past)[1:])
        return Load(
            len(threads),
            self._epochs.shares,
            tuple(min(1.0, float(now.cpu[t] - then.cpu[t]) / ns) for t in threads),
            ns / 1e9,
            tuple(max(0.0, float(waits[t]) / ns) for t in threads),
            tuple(float(each) / ns for each in np.asarray(shares)),
            tuple(owners),
        )
