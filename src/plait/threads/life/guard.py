"""Locks that an interrupt can't leave taken.

The rule: *what a caller's thread enters with `with` is a lock of C's own.* A handler of a signal raises between two
instructions, and such a lock is taken and let go inside one. `threading.Condition` is written in Python, as any class
with an `__enter__` of its own is: an interrupt that strikes in there keeps the lock for ever, and whoever waits for it,
`stop` among them, waits for ever (tests/threads/life/test_guard.py strikes both). A lock that is only to be tried is looked at
(`locked`) and then entered in the same way: `acquire(blocking=False)` before a `try` leaves the same gap.

`input.push` has a class with an `__enter__` over a source's two locks. An interrupt in there leaves them taken, and stops
the run; nobody waits for them, since the first is only tried.
"""

from __future__ import annotations

import threading
from typing import Any


def guarded() -> tuple[Any, threading.Condition]:
    """A lock to enter, and a condition over it, which is only waited for and notified inside."""
    lock = threading.RLock()
    return lock, threading.Condition(lock)
