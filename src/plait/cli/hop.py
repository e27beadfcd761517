"""Two threads that wake each other and say nothing else: what a hop between threads takes (`cli.measuring`)."""

from __future__ import annotations

from plait.core.machine.marks import compiled
from plait.threads.atomics.intrinsics import fence, fetch_add, load_acquire, store_release
from plait.threads.atomics.sleep import sleep_on, wake_all

CALLS, ANSWERS = 0, 16  # words on cache lines of their own
A_SECOND = 1_000_000_000


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
def call(words, count):
    """Call so many times, each time until the answer is there."""
    for k in range(count):
        fetch_add(words, CALLS, 1)
        wake_all(words, CALLS)
        while load_acquire(words, ANSWERS) <= k:
            sleep_on(words, ANSWERS, k, A_SECOND)
