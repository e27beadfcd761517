"""Letting all workers stand still, so that memory they share can be changed; and stopping them.

HALT is a word that every loop and every wait of a worker looks at. Invariant: between the moment `still` begins its
body and the moment it ends, no worker is inside compiled code: each has been counted in `_arrived` or has ended.
Whoever sets HALT then wakes every event that a worker may sleep on; a worker looks at HALT after it has said that it
will sleep, and before it does. So none sleeps through it.

What is changed while they stand still is changed wholly, or no worker looks at it again: if the body of `still` raises,
whatever it is, they are stopped and not let go.

An example. A push brings a value that widens a column. It sets HALT to STILL and wakes all sleepers. Worker 0 is in
its loop, sees HALT after its batch, returns to Python and stands. Worker 1 sleeps at the gate, wakes, sees HALT, and
stands. The push counts two arrivals, rewrites the columns, sets HALT to RUNNING, and both go on. A worker that has
ended meanwhile is no longer counted in `_alive`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from plait.core.machine.marks import compiling
from plait.errors import RunError
from plait.threads.life.guard import guarded
from plait.threads.life.halt import halt
from plait.threads.words import HALT, RUNNING, STILL, STOPPING


class Stopped(Exception):
    """The run is being stopped; what was asked for no longer matters."""


class Pauser:
    """Counts workers in and out; until they `begin` there are none. `describe` says what each does, for the watchdog.

    `_alive`: workers that have begun and not ended. `_arrived`: of these, how many stand. `_halted`: somebody's body
    of `still` is under way, or waits to begin. `_stopping`: for good.
    """

    def __init__(
        self, gate: np.ndarray, control: np.ndarray, describe: Callable[[], str], stall_after_s: float
    ) -> None:
        self._gate, self._control, self._describe, self._stall = gate, control, describe, stall_after_s
        self._lock, self._changed = guarded()
        self._alive = self._arrived = 0
        self._halted = self._stopping = False

    def begin(self, workers: int) -> None:
        """So many are about to start."""
        with self._lock:
            self._alive += workers

    def pause(self) -> None:
        """A worker between two steps: it stands still while others change shared memory, and ends if the run is being stopped."""
        halted = int(self._control[HALT])
        if halted == STILL:
            self.stand()
        elif halted == STOPPING:
            raise Stopped

    def stand(self) -> None:
        """A worker was told to stand still: until it may go on."""
        with self._lock:
            self._arrived += 1
            self._changed.notify_all()
            while self._halted and not self._stopping:
                self._changed.wait()
            self._arrived -= 1

    def gone(self) -> None:
        """A worker has ended."""
        with self._lock:
            self._alive -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            halt(self._gate, self._control, STOPPING)
            self._changed.notify_all()

    @contextmanager
    def still(self, *, worker: bool = False) -> Iterator[None]:
        """All workers stand still inside. `worker`: the caller is one of them.

        Only one at a time: a second caller waits, and counts as standing if it is a worker. Raises `Stopped` if the
        run is being stopped. If a worker does not come within `stall_after_s`, that is an error; time in which
        something is compiled does not count.
        """
        with self._lock:
            while self._halted and not self._stopping:
                self._arrived += worker
                self._changed.notify_all()
                self._changed.wait()
                self._arrived -= worker
            if self._stopping:
                raise Stopped
            self._halted = True
            halt(self._gate, self._control, STILL)
            since = time.monotonic()
            while self._arrived + worker < self._alive and not self._stopping:
                self._changed.wait(0.5)
                since = time.monotonic() if compiling() else since
                if time.monotonic() - since > self._stall:
                    self._halted = False
                    halt(self._gate, self._control, RUNNING)
                    self._changed.notify_all()  # those who stand go on, until this error has stopped the run
                    raise RunError(
                        f"Workers did not stand still within {self._stall:g} s: {self._describe()}",
                        why="memory they share has to grow, or a column has to be widened",
                        do="Report this, with the query",
                    )
        whole = False
        try:
            if self._stopping:
                raise Stopped
            yield
            whole = True
        finally:
            with self._lock:
                self._stopping |= not whole
                self._halted = False
                halt(self._gate, self._control, STOPPING if self._stopping else RUNNING)
                self._changed.notify_all()
