"""What the operators of one run have in common, made before any of them: the first error, how far all streams are, who works.

Invariant: the first error that `fail` is told is kept, halts every operator that has joined or will, and is raised by every
later call of the run. Operators join when they are whole, before their threads start.

Who calls `fail`: a worker's thread, a carrier, the policy's thread, the clock, and `run` for an error of a call. They
may do so at once; the lock lets one be the first. An operator that joins after the error is halted before its threads
start. Held by tests/threads/test_life.py and tests/threads/test_broken_calls.py (an interrupt at every point of every
call).
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass
from typing import NoReturn, Protocol

from plait.core.metrics import ENDED, FAILED, RUNNING, STOPPED
from plait.errors import PlaitError, RunError
from plait.order import BEFORE_ALL
from plait.threads.life.pause import Stopped


@dataclass
class Front:
    """How far all streams of a query of queries have come: what lies below is at the gates of all operators that read it.

    One thread at a time raises it (`dag`). An operator whose gate is not that far only waits for other operators.
    """

    released: int = BEFORE_ALL


class Member(Protocol):
    """An operator of the run."""

    @property
    def label(self) -> str: ...

    def halt(self) -> None:
        """Tell its threads to end, and wait for none."""

    def progressed(self) -> int:
        """A number that changes whenever any of its workers does something."""

    def waiting(self) -> str:
        """Who waits for whom."""

    def last_ts(self) -> int:
        """The last tuple of the streams that it reads."""


class Together:
    """See the module. `front` is there where streams go to several operators; `onward`: results go to other operators, which
    wait for every step of the frontier."""

    def __init__(self, front: Front | None = None, *, onward: bool = False) -> None:
        self.front, self.onward = front, onward
        self.error: BaseException | None = None
        self.stopped = False
        self.reached = BEFORE_ALL  # the last frontier of all streams before the end of input, where `dag` sees to that
        self._lock = threading.Lock()
        self._members: tuple[Member, ...] = ()
        self._bound = itertools.count()

    def join(self, member: Member) -> None:
        """An operator that is whole, and about to start its threads."""
        with self._lock:
            self._members = (*self._members, member)
        if self.over:
            member.halt()

    def next_core(self, cores: tuple[int, ...]) -> int | None:
        """The core for one more thread of the run, by turns over all operators; None where threads are not bound."""
        return cores[next(self._bound) % len(cores)] if cores else None

    # --- errors and ends ---

    def fail(self, error: BaseException) -> None:
        """The first error stops all operators."""
        with self._lock:
            if self.error is None and not self.stopped:
                self.error = error
        self._halt()

    def abandon(self) -> None:
        """Tell all threads to end, and wait for none: nobody is there any more who would."""
        self.stopped = True
        self._halt()

    def _halt(self) -> None:
        for member in self._members:
            member.halt()

    @property
    def over(self) -> bool:
        return self.stopped or self.error is not None

    def unless_over(self) -> None:
        """For a thread of the run: it ends with the run."""
        if self.over:
            raise Stopped

    def check(self) -> None:
        """For a call of the run: raise what has ended it."""
        if self.error is not None:
            raise_again(self.error)
        if self.stopped:
            raise RunError("The run was stopped", do="Call on_threads again for a new run")

    # --- what is going on ---

    def phase(self, *, ended: bool) -> str:
        """How the run stands; `ended`: every result has been given out. A run that ended and was left is no stopped one."""
        if self.error is not None:
            return f"{FAILED}: {type(self.error).__name__}"
        return ENDED if ended else STOPPED if self.stopped else RUNNING

    def progressed(self) -> int:
        return sum(member.progressed() for member in self._members)

    def waiting(self) -> str:
        members = self._members
        if len(members) == 1:
            return members[0].waiting()
        return "; ".join(f"{member.label}: {member.waiting()}" for member in members)

    def last_ts(self) -> int:
        """How far time has passed when all streams have ended: to the last tuple of any, or a promise beyond it."""
        return max([self.reached, *(member.last_ts() for member in self._members)])


def raise_again(error: BaseException) -> NoReturn:
    """The error that stopped a run, for another call of its."""
    if isinstance(error, PlaitError):
        raise type(error)(error.fact, why=error.why, do=error.do) from error
    said = f": {error}" if str(error) else ""
    raise RunError(
        f"The run stopped: {type(error).__name__}{said}",
        why="a call was left half done" if not isinstance(error, Exception) else "",
        do="Call on_threads again for a new run",
    ) from error
