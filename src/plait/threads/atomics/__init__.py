"""The steps out of which shared-memory code is made; nothing else in plait touches a shared word.

`intrinsics` is what runs, `twin` the same names in plain Python, under a scheduler that decides which thread takes the
next step. Code that uses them is one text: written as ordinary functions marked `compiled` (takes atomic steps) or
`pure` (does not), imported as it stands to run, and read by `twin.load` to be explored.

`twin` is `tests/explore/twin.py`. Everything that is shared and not one of these steps must be plain, and ordered by
one of them; the twin's race detector (`tests/explore/races.py`) looks for plain words that are not. What can't be
written with these names alone (addresses, the clock) is in `native`, and is not explored.
"""

from plait.core.machine.marks import compiled, pure, unsigned
from plait.threads.atomics.intrinsics import (
    cas,
    fence,
    fetch_add,
    load_acquire,
    pause,
    store_release,
    trailing_zeros,
)
from plait.threads.atomics.sleep import sched_yield, sleep_on, wake_all

__all__ = [
    "cas",
    "compiled",
    "fence",
    "fetch_add",
    "load_acquire",
    "pause",
    "pure",
    "sched_yield",
    "sleep_on",
    "store_release",
    "trailing_zeros",
    "unsigned",
    "wake_all",
]
