"""What a hand-off between two threads costs with nothing to say: the floor under any latency measured beside it."""

from __future__ import annotations

import threading

import numpy as np

from plait.threads.atomics import compiled, fence, fetch_add, load_acquire, sleep_on, store_release, wake_all
from plait.threads.atomics.sleep import clock_ns


@compiled
def _answer(words, count):
    """Wait for each call, and answer it."""
    for k in range(count):
        while load_acquire(words, 0) <= k:
            sleep_on(words, 0, k, 1_000_000_000)
        store_release(words, 16, k + 1)
        fence()
        wake_all(words, 16)


@compiled
def _call(words, count, out):
    for k in range(count):
        began = clock_ns(words, 32)
        fetch_add(words, 0, 1)
        wake_all(words, 0)
        while load_acquire(words, 16) <= k:
            sleep_on(words, 16, k, 1_000_000_000)
        out[k] = clock_ns(words, 32) - began


def hand_off(count: int = 4000) -> tuple[float, float]:
    """Two threads that wake each other through a futex, with nothing to say: p50 and p99 of one way, in ms."""
    words, out = np.zeros(48, np.int64), np.zeros(count, np.int64)
    other = threading.Thread(target=_answer, args=(words, count), daemon=True)
    other.start()
    _call(words, count, out)
    other.join()
    p50, p99 = np.percentile(out[count // 10 :] / 2e6, (50, 99))
    return float(p50), float(p99)
