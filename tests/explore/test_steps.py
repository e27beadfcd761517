"""The compiled steps: real threads, real contention."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tests.explore import twin

import plait.threads.atomics as atomics
from plait.threads.atomics import (
    cas,
    compiled,
    fence,
    fetch_add,
    load_acquire,
    pause,
    sched_yield,
    sleep_on,
    store_release,
    trailing_zeros,
    wake_all,
)


@compiled
def add_by_cas(words, times):
    for _ in range(times):
        while True:
            old = load_acquire(words, 0)
            if cas(words, 0, old, old + 1):
                break
            pause()


@compiled
def add_by_fetch(words, times):
    for _ in range(times):
        fetch_add(words, 0, 1)


@compiled
def write_pairs(words, times):
    for i in range(1, times + 1):
        words[8] = i * 3
        store_release(words, 0, i)
        while load_acquire(words, 16) != i:
            sched_yield()


@compiled
def read_pairs(words, times):
    for i in range(1, times + 1):
        while load_acquire(words, 0) != i:
            sched_yield()
        if words[8] != i * 3:
            return i
        store_release(words, 16, i)
    return 0


@compiled
def enter_and_look(words, me, other, times, both):
    """Dekker: of two threads that each say they are in and then look, one at least sees the other."""
    for i in range(1, times + 1):
        store_release(words, me, i)
        fence()
        both[i] = load_acquire(words, other)


def in_threads(*jobs):
    threads = [threading.Thread(target=job[0], args=job[1:]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("work", [add_by_cas, add_by_fetch])
def test_no_increment_is_lost(work):
    words = np.zeros(8, dtype=np.int64)
    work(words, 0)
    in_threads(*[(work, words, 200_000)] * 4)
    assert words[0] == 800_000


def test_what_was_written_before_a_release_is_there_after_the_acquire():
    words, wrong = np.zeros(32, dtype=np.int64), []
    in_threads((write_pairs, words, 3000), (lambda: wrong.append(read_pairs(words, 3000)),))
    assert wrong == [0]


def test_a_fence_keeps_a_load_behind_a_store():
    words = np.zeros(64, dtype=np.int64)
    seen = np.zeros((2, 100_001), dtype=np.int64)
    in_threads((enter_and_look, words, 0, 32, 100_000, seen[0]), (enter_and_look, words, 32, 0, 100_000, seen[1]))
    # In round i thread 0 saw j < i of the other: then the other, in round j + 1, must see at least i.
    for one, two in ((seen[0], seen[1]), (seen[1], seen[0])):
        rounds = np.arange(1, 100_000)
        later = one[1:100_000] + 1
        inside = later <= 100_000
        assert (two[later[inside]] >= rounds[inside]).all()


def test_cas_says_whether_it_took_effect():
    words = np.array([5], dtype=np.int64)
    assert not swap(words, 4, 9)
    assert words[0] == 5
    assert swap(words, 5, 9)
    assert words[0] == 9


@compiled
def swap(words, old, new):
    return cas(words, 0, old, new)


def test_a_sleeper_wakes_when_the_word_changes_and_not_later():
    words = np.zeros(8, dtype=np.int64)
    sleep_on(words, 0, 1, 10**9)  # the word is not 1: no sleep
    start = time.monotonic()
    sleep_on(words, 0, 0, 20_000_000)
    assert time.monotonic() - start < 5

    def change():
        time.sleep(0.05)
        words[0] = 1
        wake_all(words, 0)

    thread = threading.Thread(target=change)
    start = time.monotonic()
    thread.start()
    while words[0] == 0:
        sleep_on(words, 0, 0, 20 * 10**9)
    thread.join()
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(("value", "zeros"), [(1, 0), (8, 3), (0, 64), (1 << 48, 48), (-8, 3), (12, 2)])
def test_trailing_zeros_in_both_worlds(value, zeros):
    assert count_zeros(value) == zeros == twin.trailing_zeros(value)


@compiled
def count_zeros(value):
    return trailing_zeros(value)


def test_the_twin_has_the_same_names():
    assert set(atomics.__all__) <= set(dir(twin))


def test_compiled_code_comes_from_the_cache():
    text = "from plait.threads.gate import calls; import numpy as np; calls.close(np.zeros(200, np.int64));" \
        "print(sum(calls.close.stats.cache_hits.values()))"  # fmt: skip
    runs = [subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True) for _ in range(2)]
    assert runs[1].stdout.strip() == "1"
