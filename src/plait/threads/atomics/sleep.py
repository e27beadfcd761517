"""Sleeping on a word until another thread changes it, from compiled code and without the GIL.

On Linux this is the futex: the kernel compares the word with `expected` and puts the thread to sleep in one step, so
a change between the caller's check and its sleep is not lost. It looks at 32 bits, the low half on the machines
plait runs on; the words slept on are event counters, so the low half changes with every event. Elsewhere a thread
sleeps for a fraction of a millisecond at a time and looks again. Either way `sleep_on` may return for no reason:
callers look at the word again.
"""

from __future__ import annotations

import platform
import sys

import numpy as np
from numba import types

from plait.core.machine.marks import compiled, pure
from plait.threads.atomics.intrinsics import address_of, load_acquire

_NUMBERS = {"x86_64": 202, "aarch64": 98}
_FUTEX = _NUMBERS.get(platform.machine(), 0) if sys.platform == "linux" else 0
_WAIT, _WAKE = 128, 129  # FUTEX_WAIT and FUTEX_WAKE, private to the process
_ALL = 2**31 - 1
_NAP_US = 200

_long = types.int64
_syscall = types.ExternalFunction("syscall", types.intp(_long, _long, _long, _long, _long, _long, _long))
_yield = types.ExternalFunction("sched_yield", types.int32())
_clock = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64))
_MONOTONIC = 1 if sys.platform == "linux" else 6  # macOS numbers its clocks otherwise
_usleep = types.ExternalFunction("usleep", types.int32(types.uint32))


@pure
def sched_yield():
    """Let another thread have this core."""
    _yield()


@compiled
def sleep_on(words, at, expected, nanoseconds):
    """Sleep while `words[at] == expected`, but no longer than `nanoseconds`.

    `words[at]` is an event's counter (see `gate.flow.prepare`). The call is made without the GIL. A thread that is
    interrupted by a signal returns early, as it does when the word has changed already.
    """
    if load_acquire(words, at) != expected:
        return
    if _FUTEX:
        timeout = np.empty(2, np.int64)
        timeout[0] = nanoseconds // 1_000_000_000
        timeout[1] = nanoseconds % 1_000_000_000
        low = expected & 0xFFFFFFFF
        _syscall(_FUTEX, address_of(words, at), _WAIT, low, address_of(timeout, 0), 0, 0)
        # Read after the call, or the array that holds the timeout may be freed before it.
        timeout[0] = 0
    else:
        _usleep(min(_NAP_US, nanoseconds // 1000 + 1))


@compiled
def wake_all(words, at):
    """Wake every thread that sleeps on this word.

    The counter must have been raised before: a sleeper compares it. Without futexes there is nothing to do, since
    sleepers look again by themselves.
    """
    if _FUTEX:
        _syscall(_FUTEX, address_of(words, at), _WAKE, _ALL, 0, 0, 0)


@pure
def nap(microseconds):
    """Sleep for so long, whatever happens."""
    _usleep(np.uint32(microseconds))


@pure
def clock_ns(scratch, at):
    """The clock of `time.monotonic_ns`; `scratch[at]` and the word after it are overwritten."""
    _clock(_MONOTONIC, address_of(scratch, at))
    return scratch[at] * 1_000_000_000 + scratch[at + 1]
