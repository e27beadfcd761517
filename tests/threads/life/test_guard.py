"""A lock of plait's is free again whenever an interrupt strikes; Python's own conditions are not, and stand nowhere else."""

from __future__ import annotations

import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import plait
from plait.threads.life.guard import guarded


class Struck(BaseException):
    pass


def _held(entered: Any, lock: Any, strikes: int, until: float = float("inf")) -> int:
    """How often of so many real signals, microseconds after one another, the lock was left taken."""

    def handler(*_: object) -> None:
        raise Struck

    def used() -> None:
        while True:
            with entered:
                pass

    left, before = 0, signal.signal(signal.SIGALRM, handler)
    try:
        for strike in range(strikes):
            if time.monotonic() > until:
                break
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (20 + strike % 37))
                used()
            except Struck:
                pass
            while lock._is_owned():
                left += 1
                lock.release()
    finally:
        signal.signal(signal.SIGALRM, before)
    return left


def test_no_interrupt_leaves_the_lock_taken() -> None:
    lock, _ = guarded()
    assert _held(lock, lock, 3000) == 0


def test_the_same_strikes_leave_a_condition_of_pythons_own_taken() -> None:
    """So that the test above can fail."""
    lock = threading.RLock()
    assert _held(threading.Condition(lock), lock, 3000, time.monotonic() + 20) > 0


def test_a_lock_that_is_only_tried_is_looked_at_and_entered() -> None:
    """But for the clock's thread, which no signal reaches, and for a source's own locks, for which nobody waits."""
    home = Path(plait.__file__).parent
    tried = {path.relative_to(home).as_posix(): count for path in (home / "threads").rglob("*.py")
             if (count := path.read_text().count("acquire(blocking=False):"))}  # fmt: skip
    assert tried == {
        "threads/dag.py": 1, "threads/input/intake.py": 1, "threads/input/linger.py": 1, "threads/input/push.py": 1
    }  # fmt: skip


def test_conditions_are_made_in_one_place() -> None:
    home = Path(plait.__file__).parent
    made = {path.relative_to(home).as_posix() for path in home.rglob("*.py")
            if re.search(r"(threading\.|\b)Condition\(", path.read_text())}  # fmt: skip
    assert made == {"threads/life/guard.py"}
