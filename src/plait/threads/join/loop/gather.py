"""The workers' results as one sequence: ScaleJoin's output gate, SplitJoin's gathering by punctuation.

Each worker's ring is in result order, and each says up to which trigger it is done: a punctuation. So of what the rings begin
with the least is next, if no worker whose ring is empty can still come with less: that is what its punctuation says. One whose
ring has something can't, done or not: so a worker that waits for room, in the midst of a trigger even, is never waited for.

Precision is the caller's: STRICT compares trigger and partner; a number k > 0 takes, between two multiples of k
triggers, what each worker has, worker by worker (k = 1: triggers in order, partners as they are stored); unmatched rows, which
have no trigger, stand at their moment all the same; NEVER takes whatever is there.

One thread gathers at a time. It releases OUT_HEAD after it has copied; workers that wait for room acquire it.

An example. Ring 0 begins with a result of trigger rank 5; ring 1 is empty, and worker 1 has said DONE_RANK 5: it may
still come with a result of rank 5 whose partner comes before, so nothing is given out. When it says 6, it can't. Had
ring 1 something of rank 7, that would be enough too: its ring is in order, so nothing of rank 5 follows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray

from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import fence, fetch_add, load_acquire, sched_yield, store_release, wake_all
from plait.threads.atomics.native import clock_ns, compiled, inner, ints, pointer_at
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.join.loop import words as o

STRICT: Final = 0
NEVER: Final = -1
ENDED: Final = -1

# What is known of each worker: where its ring ends, and up to which rank and ts it is done.
TAIL, RANK, TS = range(3)
CLOCK: Final = 4  # of `seen`
SEEN: Final = 6


@inner
def entries(w):
    return carray(pointer_at(w[o.OUT]), ((w[o.OUT_MASK] + 1) * o.E_WORDS,), dtype=np.int64)


@inner
def first_is_less(a, i, b, j, precision):
    """Whether entry i of worker a's ring goes before entry j of b's, b being the worker of the higher number.

    Entries are compared by ts, trigger, partner, which are their first three words. An unmatched row's trigger is
    above all others, so it stands after the pairs of its ts.
    """
    # An unmatched row has no trigger but its moment, whatever the precision: after the results at it, before all later ones.
    alone = a[i + o.E_TRIGGER] == o.UNMATCHED or b[j + o.E_TRIGGER] == o.UNMATCHED
    if precision > 0 and not alone:
        return (a[i + o.E_TRIGGER] >> 1) // precision <= (b[j + o.E_TRIGGER] >> 1) // precision
    for word in range(3):
        if a[i + word] != b[j + word]:
            return a[i + word] < b[j + word]
    return True


@compiled
def gather(c, workers, taken, known, precision, most, dest, seen):
    """Take the next results, up to `most`: how many; ENDED if there can't be any more.

    `known` is for what each worker says, `taken` for how much of its ring is taken. `seen` receives the least ts still live on
    either side, and the rank and the ts up to which all results are out; two more words of it are for the clock.

    `workers`: addresses of their words. `dest`: int64[5, most], one column a result, filled by this call; the caller
    copies it before the next. What the workers say is read before anything is taken, and only that is gone by.
    """
    n = len(workers)
    rank, ts = AFTER_ALL, AFTER_ALL
    seen[0], seen[1] = AFTER_ALL, AFTER_ALL
    for k in range(n):
        w = ints(workers[k], o.WORDS)
        # What is live first: it may be older than the rank, never newer, or payload would go before its results.
        for side in range(2):
            seen[side] = min(seen[side], load_acquire(w, o.LIVE_TS + side))
        # Then the ts, then the rank: whoever sees a ts sees the rank of all tuples below it. The other way round an unmatched
        # row could go before a result that is due earlier.
        known[TS, k] = load_acquire(w, o.DONE_TS)
        known[RANK, k] = load_acquire(w, o.DONE_RANK)
        # The ring after them: what it has is all there is below.
        known[TAIL, k] = load_acquire(w, o.OUT_TAIL)
        taken[k] = w[o.OUT_HEAD]
        ts, rank = min(ts, known[TS, k]), min(rank, known[RANK, k])
    seen[2], seen[3] = rank, ts
    count = merge(workers, taken, known, precision, most, dest)
    for k in range(n):
        store_release(ints(workers[k], o.WORDS), o.OUT_HEAD, taken[k])
    if count > 0:
        fence()
        if load_acquire(c, o.ROOM_SLEEPERS) > 0:
            fetch_add(c, o.ROOM_EVENT, 1)
            wake_all(c, o.ROOM_EVENT)
        return count
    if ts == AFTER_ALL:
        for k in range(n):
            if taken[k] < known[TAIL, k]:
                return 0
        return ENDED
    return 0


@inner
def held_back(k, entry_ts, trigger, taken, known, precision):
    """Whether a worker whose ring is empty may still have something that goes before this entry of worker k.

    `trigger` is 2 * rank + side; `k` the worker whose entry it is. With a punctuation interval, what counts is which
    interval an entry falls into; inside one the workers of lower numbers go first.
    """
    for j in range(len(taken)):
        if j == k or taken[j] < known[TAIL, j] or known[TS, j] == AFTER_ALL:
            continue
        if trigger == o.UNMATCHED:
            if entry_ts >= known[TS, j]:
                return True
        elif precision > 0:
            mine, theirs = (trigger >> 1) // precision, known[RANK, j] // precision
            if mine > theirs or (mine == theirs and k > j):
                return True
        elif trigger >> 1 >= known[RANK, j]:
            return True
    return False


@inner
def merge(workers, taken, known, precision, most, dest):
    """The next results in order, as far as they are certain; how many.

    With one worker, or without any order, it is a copy.
    """
    n = len(workers)
    count = 0
    while count < most:
        best = -1
        for k in range(n):
            if taken[k] == known[TAIL, k]:
                continue
            if precision == NEVER:
                best = k
                break
            if best >= 0:
                v, w = ints(workers[best], o.WORDS), ints(workers[k], o.WORDS)
                mine, other = (taken[best] & v[o.OUT_MASK]) * o.E_WORDS, (taken[k] & w[o.OUT_MASK]) * o.E_WORDS
                if first_is_less(entries(v), mine, entries(w), other, precision):
                    continue
            best = k
        if best < 0:
            break
        w = ints(workers[best], o.WORDS)
        a = entries(w)
        # As long as one worker is the only one there is nothing to compare.
        alone = n == 1 or precision == NEVER
        last = known[TAIL, best] if alone else taken[best] + 1
        while taken[best] < last and count < most:
            i = (taken[best] & w[o.OUT_MASK]) * o.E_WORDS
            if not alone and held_back(best, a[i + o.E_TS], a[i + o.E_TRIGGER], taken, known, precision):
                return count
            for word in range(o.E_WORDS):
                dest[word, count] = a[i + word]
            count += 1
            taken[best] += 1
    return count


@compiled
def gather_waiting(c, workers, taken, known, precision, most, dest, seen, nanoseconds):
    """As `gather`, but sleep up to `nanoseconds` where there is nothing.

    Returns early, with 0, when all workers have passed a later ts or the run is halted: the caller then tells the next
    operator of a query how far time has come.
    """
    number = gather(c, workers, taken, known, precision, most, dest, seen)
    for _ in range(2):
        if number != 0:
            return number
        sched_yield()
        number = gather(c, workers, taken, known, precision, most, dest, seen)
    if number != 0 or nanoseconds <= 0:
        return number
    ticket = prepare(c, o.OUT_EVENT)
    number = gather(c, workers, taken, known, precision, most, dest, seen)
    if number != 0:
        cancel(c, o.OUT_EVENT)
        return number
    # Every worker that has done something wakes the gatherer, and only the last of them lets it take anything: the others
    # are no reason to go back to Python.
    until = clock_ns(seen, CLOCK) + nanoseconds
    ts = seen[3]
    while True:
        sleep(c, o.OUT_EVENT, ticket, nanoseconds)
        number = gather(c, workers, taken, known, precision, most, dest, seen)
        if number != 0 or seen[3] > ts or load_acquire(c, shared.HALT) != 0:
            return number
        nanoseconds = until - clock_ns(seen, CLOCK)
        if nanoseconds <= 0:
            return number
        ticket = prepare(c, o.OUT_EVENT)
        number = gather(c, workers, taken, known, precision, most, dest, seen)
        if number != 0 or seen[3] > ts or load_acquire(c, shared.HALT) != 0:
            cancel(c, o.OUT_EVENT)
            return number
