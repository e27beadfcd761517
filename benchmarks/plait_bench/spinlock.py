"""A lock in one word, for the baselines that the papers give locks to: the gates have none."""

from __future__ import annotations

from plait.threads.atomics import cas, compiled, pause, sched_yield, store_release


@compiled
def lock(words, at):
    tries = 0
    while not cas(words, at, 0, 1):
        tries += 1
        if tries & 63 == 0:
            sched_yield()
        pause()


@compiled
def unlock(words, at):
    store_release(words, at, 0)
