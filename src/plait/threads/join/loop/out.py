"""The rings of results: each worker puts its pairs into its own, and one thread makes one sequence of all of them.

The workers' side. The ring's entries are in result order, because the batch is, because a trigger's partners are sorted,
and because unmatched rows whose time is up are written before the first trigger that is later than it. A worker that
finds the ring full waits for the gatherer; nobody else is held back by that until the gate is full, and then only the
pushers. After each batch it says how far it is (`publish_progress`).

An example of a left join in which a right tuple looks back 10 us. A left row of ts 5 finds no partner. While tuples up
to ts 15 come it may still find one (a right tuple of 15 sees it). At the first tuple of ts 16, or when the frontier is
at 16, it is given out alone, with ts 15. Other rows that are due go before that tuple's own results.

The gatherer's side: ScaleJoin's output gate, SplitJoin's gathering by punctuation. Each worker says up to which trigger
it is done: a punctuation. So of what the rings begin with the least is next, if no worker whose ring is empty can still
come with less: that is what its punctuation says. One whose ring has something can't, done or not: so a worker that
waits for room, in the midst of a trigger even, is never waited for.

Precision is the caller's: STRICT compares trigger and partner; a number k > 0 takes, between two multiples of k
triggers, what each worker has, worker by worker (k = 1: triggers in order, partners as they are stored); unmatched rows,
which have no trigger, stand at their moment all the same; NEVER takes whatever is there.

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
from plait.threads.atomics import fence, fetch_add, load_acquire, sched_yield, sleep_on, store_release, wake_all
from plait.threads.atomics.native import clock_ns, compiled, inner, ints, octets, pointer_at
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.grid import rank_at
from plait.threads.join.loop.probe import segment_of

SLICE_NS = 1_000_000_000

STRICT: Final = 0
NEVER: Final = -1
ENDED: Final = -1

# What is known of each worker: where its ring ends, and up to which rank and ts it is done.
TAIL, RANK, TS = range(3)
CLOCK: Final = 4  # of `seen`
SEEN: Final = 6

# --- workers put ------------------------------------------------------------------------------------------------


@inner
def emit(c, w, batch, p0, pairs, out):
    """The results of batch positions FROM to TO, from where it stood: 0, or HALTED.

    An inner join puts every pair. A left join puts every pair and marks the left row. A semi join puts a left row's
    first pair only, an anti join none.
    """
    how = w[o.HOW]
    starts = batch[o.B_STARTS]
    while w[o.AT] < w[o.TO]:
        i = w[o.AT]
        ts = batch[o.B_TS, i]
        w[o.AT_RANK] = rank_at(w, batch, i)
        if (how == o.LEFT or how == o.ANTI) and pass_time(c, w, out, ts) != 0:
            return o.HALTED
        if w[o.EMITTED] < starts[i]:
            side = batch[o.B_ORIGIN, i] >> 32
            s = segment_of(w, 1 - side)
            cap, mask = s[seg.CAP], s[seg.MASK]
            ids, refs = ints(s[seg.ID], cap), ints(s[seg.REF], cap)
            trigger, own = 2 * w[o.AT_RANK] + side, batch[o.B_REF, i]
            while w[o.EMITTED] < starts[i]:
                if room(c, w) != 0:
                    return o.HALTED
                at = pairs[3, w[o.EMITTED]] & mask
                left, right = (own, refs[at]) if side == 0 else (refs[at], own)
                if how == o.INNER or first_match(w, how, side, i, at, batch, p0):
                    put(w, out, ts, trigger, ids[at], left, right)
                w[o.EMITTED] += 1
        w[o.AT] += 1
    return 0


@inner
def first_match(w, how, side, i, partner, batch, p0):
    """Note that the pair's left row has matched; whether the pair is a result."""
    s = segment_of(w, 0)
    matched = octets(s[seg.MATCHED], s[seg.CAP])
    at = partner if side == 1 else p0[o.P_POSITION, batch[o.B_PROBE, i]] & s[seg.MASK]
    before = matched[at]
    matched[at] = 1
    return how == o.LEFT or (how == o.SEMI and before == 0)


@inner
def pass_time(c, w, out, ts):
    """Give out left rows that no tuple at or after `ts` can be the partner of: 0, or HALTED.

    UNDECIDED moves over left rows in the order of their coming; a row that has matched is passed in silence. Only the
    worker that has all partners of a row may do this, which is why these joins are m x 1.
    """
    s = segment_of(w, 0)
    cap, mask = s[seg.CAP], s[seg.MASK]
    times, ids, refs, matched = (
        ints(s[seg.TS], cap),
        ints(s[seg.ID], cap),
        ints(s[seg.REF], cap),
        octets(s[seg.MATCHED], cap),
    )
    after = w[o.BACK + 1]  # so far back does a right tuple look
    while w[o.UNDECIDED] < s[seg.END]:
        at = w[o.UNDECIDED] & mask
        # Not ts of the row + after, which may be more than 63 bits hold.
        if ts != AFTER_ALL and times[at] >= ts - after:
            return 0
        if not matched[at]:
            if room(c, w) != 0:
                return o.HALTED
            due = AFTER_ALL if times[at] > AFTER_ALL - 1 - after else times[at] + after
            put(w, out, due, o.UNMATCHED, ids[at], refs[at], o.NO_ROW)
        w[o.UNDECIDED] += 1
    return 0


@inner
def put(w, out, ts, trigger, partner, left, right):
    """One entry at the ring's end; there must be room.

    EMIT_TAIL is private until `room` or `publish_progress` releases it as OUT_TAIL.
    """
    at = w[o.EMIT_TAIL] & w[o.OUT_MASK]
    out[at, o.E_TS] = ts
    out[at, o.E_TRIGGER] = trigger
    out[at, o.E_PARTNER] = partner
    out[at, o.E_LEFT] = left
    out[at, o.E_RIGHT] = right
    w[o.EMIT_TAIL] += 1
    w[shared.RESULTS] += 1


@inner
def room(c, w):
    """Wait until the ring has room: 0, or HALTED. The results so far are made known first.

    A thread that serves others' memory as well does not wait: what is read first may be theirs.

    The ring is full when TAIL - HEAD is its size. OUT_HEAD is the gatherer's word. What has been written is published
    before the wait, so that the gatherer has something to take.
    """
    tail = w[o.EMIT_TAIL]
    if tail - load_acquire(w, o.OUT_HEAD) <= w[o.OUT_MASK]:
        return 0
    store_release(w, o.OUT_TAIL, tail)
    # Or nobody could take what a batch has filled the ring with: triggers are given out only when they are done. When a batch
    # is closed its tuples are counted in RANK.
    store_release(w, o.DONE_RANK, w[o.RANK] if w[o.PHASE] == o.CLOSING else w[o.AT_RANK])
    fence()
    wake_gatherer(c)
    store_release(w, shared.WAITS, shared.FOR_CONSUMER)
    if w[o.SLICED]:
        return o.HALTED
    code = 0
    while tail - load_acquire(w, o.OUT_HEAD) > w[o.OUT_MASK]:
        if load_acquire(c, shared.HALT) != 0:
            code = o.HALTED
            break
        fetch_add(c, o.ROOM_SLEEPERS, 1)
        ticket = load_acquire(c, o.ROOM_EVENT)
        fence()  # the count must be seen before this looks again: the gatherer does the mirror image
        if tail - load_acquire(w, o.OUT_HEAD) > w[o.OUT_MASK] and load_acquire(c, shared.HALT) == 0:
            sleep_on(c, o.ROOM_EVENT, ticket, SLICE_NS)
        fetch_add(c, o.ROOM_SLEEPERS, -1)
    store_release(w, shared.WAITS, shared.NOTHING)
    return code


@inner
def publish_progress(c, w, last_ts, left, right):
    """Make known how far this worker is. Results first, then what says that there are no more.

    `left` and `right`: no row with a lower ts can be in a result that is still to come.
    """
    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])
    store_release(w, o.DONE_RANK, w[o.RANK])
    store_release(w, o.DONE_TS, max(w[o.FRONTIER], last_ts))
    # Last: who sees it sees the results of rows that it gives up, too, and takes them first.
    store_release(w, o.LIVE_TS, left)
    store_release(w, o.LIVE_TS + 1, right)
    fence()
    # Others' results may have waited for this worker, so the gatherer is woken even if there are none of its own.
    wake_gatherer(c)


@inner
def wake_gatherer(c):
    """After results were published and a fence."""
    if load_acquire(c, o.OUT_SLEEPERS) > 0:
        fetch_add(c, o.OUT_EVENT, 1)
        wake_all(c, o.OUT_EVENT)


# --- one thread gathers ----------------------------------------------------------------------------------------


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
def entries(w):
    return carray(pointer_at(w[o.OUT]), ((w[o.OUT_MASK] + 1) * o.E_WORDS,), dtype=np.int64)
