"""Two threads that wake each other and say nothing else: what a hop between threads takes, and the floor under any latency."""

from __future__ import annotations

import threading

import numpy as np

from plait.core.machine.marks import compiled
from plait.threads.atomics.intrinsics import fence, fetch_add, load_acquire, store_release
from plait.threads.atomics.sleep import clock_ns, sleep_on, wake_all

CALLS, ANSWERS, CLOCK, WORDS = 0, 16, 32, 48  # words on cache lines of their own
A_SECOND = 1_000_000_000


def hops_ns(count: int) -> np.ndarray:
    """How long each of so many hops took, half of there and back. Time on the wall, since waking is waiting."""
    words, out = np.zeros(WORDS, np.int64), np.zeros(count, np.int64)
    other = threading.Thread(target=answer, args=(words, count), name="plait-hop", daemon=True)
    other.start()
    call(words, count, out)
    other.join()
    return out / 2


@compiled
def answer(words, count):
    """Wait for each call, and answer it."""
    for k in range(count):
        while load_acquire(words, CALLS) <= k:
            sleep_on(words, CALLS, k, A_SECOND)
        store_release(words, ANSWERS, k + 1)
        fence()
        wake_all(words, ANSWERS)


@compiled
def call(words, count, out):
    """Call so many times, each time until the answer is there; `out` has how long that took, ns."""
    for k in range(count):
        began = clock_ns(words, CLOCK)
        fetch_add(words, CALLS, 1)
        wake_all(words, CALLS)
        while load_acquire(words, ANSWERS) <= k:
            sleep_on(words, ANSWERS, k, A_SECOND)
        out[k] = clock_ns(words, CLOCK) - began
