"""CellJoin: one coordinator keeps both windows, and cuts one of them anew for every tuple.

B. Gedik, R. Bordawekar, P. S. Yu, «CellJoin: a parallel stream join operator for the Cell processor», VLDB Journal 2009,
as DP-Join (section 4.1) and SplitJoin (section 2) describe it. For each tuple the coordinator (i) cuts the other window
into as many parts as there are workers, (ii, iii) hands each its part and the tuple, (iv) inserts the tuple into its own
window, (v) removes what has expired. Workers know nothing of windows. Parts are handed over as positions, which DP-Join
names as the way to lessen (ii) in shared memory; here worker 0 coordinates and compares besides, where the Cell had a
processor for that.

Invariant: a tuple's cuts go from the first row that its window holds to the last one that precedes it, and part k lies
between cuts k and k + 1: the parts are disjoint, and together they are all that it must meet. A task is written before
TAIL is released, and its place is written again only when every worker's HEAD is past it.
"""

from __future__ import annotations

from typing import Final

from plait.core.condition import native
from plait.core.machine.line import LINE
from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import fence, load_acquire, store_release
from plait.threads.atomics.native import compiled, inner, ints
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.feed import wake_feed
from plait.threads.join.loop.probe import ranges_of, segment_of
from plait.threads.join.loop.worker import SLICE_NS, take, take_once
from plait.threads.join.strategies.plan import Plan, Wish
from plait_bench.rivals import moves as mv

# Shared words. The coordinator releases TAILS (by side), then what holds once these tasks are done; workers acquire
# the other way round.
TAILS: Final = 0
EXPIRED: Final = 16  # by side: rows below are met by no later task
LAST: Final = 18
ANY: Final = 19
ENDED: Final = 20
HEADS: Final = 32  # a line a worker: tasks done, by side


def tasks(most: int) -> int:
    return 4 << max(most - 1, 1).bit_length()


def words(workers: int, most: int) -> int:
    return HEADS + workers * LINE + 2 * tasks(most) * (workers + 1)


@inner
def ring_size(w):
    size = w[o.MOST] - w[o.MOST] + 4
    while size < 4 * w[o.MOST]:
        size *= 2
    return size


@inner
def has_room(w, h, size):
    for worker in range(w[o.CREW]):
        for side in range(2):
            if h[TAILS + side] + w[o.MOST] - load_acquire(h, HEADS + worker * LINE + side) > size:
                return False
    return True


@inner
def cut(c, w, h, size, ps):
    """Actions i to iii and v, for a batch that is in the windows."""
    n = w[o.CREW]
    for side in range(2):
        p = ps[side]
        ranges_of(w, side, p, 0, w[o.PROBES + side])
        for k in range(w[o.PROBES + side]):
            at = HEADS + n * LINE + (side * size + (p[o.P_POSITION, k] & (size - 1))) * (n + 1)
            lo, rows = p[o.P_LO, k], p[o.P_HI, k] - p[o.P_LO, k]
            for j in range(n + 1):
                h[at + j] = lo + rows * j // n
    for side in range(2):
        s = segment_of(w, side)
        bound = w[o.LAST_TS] - w[o.BACK + 1 - side]
        times = ints(s[seg.TS], s[seg.CAP])
        w[o.LO + side] = mv.first_at_least(times, s[seg.MASK], w[o.LO + side], w[o.ENDS + side], bound)
    for side in range(2):
        store_release(h, TAILS + side, w[o.ENDS + side])
    for side in range(2):
        store_release(h, EXPIRED + side, w[o.LO + side])
    store_release(h, LAST, w[o.LAST_TS])
    store_release(h, ANY, 1)
    fence()
    wake_feed(c)


@inner
def serve(c, w, h, size, ps, pairs, tally, out):
    """This worker's part of the tasks that there are: 1 if there were any, 0 if none, or a code < 0."""
    n, did = w[o.CREW], 0
    own = HEADS + w[o.SEAT] * LINE
    for side in range(2):
        while w[mv.JOB] == 0:
            count = min(load_acquire(h, TAILS + side) - h[own + side], w[o.MOST])
            if count == 0:
                break
            found = -1
            while found < 0:
                for k in range(count):
                    at = HEADS + n * LINE + (side * size + ((h[own + side] + k) & (size - 1))) * (n + 1) + w[o.SEAT]
                    ps[side][o.P_FROM, k], ps[side][o.P_UNTIL, k] = h[at], h[at + 1]
                tally[1] = 0
                found = mv.scan(w, side, h[own + side], count, ps[side], 0, pairs, tally)
                if found == native.FAILED:
                    return -o.KERNEL_FAILED
                if found < 0:
                    if pairs.shape[1] < mv.MOST_PAIRS or count == 1:
                        return -o.GROW_PAIRS
                    count //= 2
            mv.begin(w, side, h[own + side], count, found, tally)
            did = 1
            if mv.give(c, w, pairs, out) != 0:
                return -o.HALTED
            store_release(h, own + side, h[own + side] + count)
    return did


@inner
def wait(c, w, h):
    """A worker without tasks."""
    own = HEADS + w[o.SEAT] * LINE
    store_release(w, shared.WAITS, shared.FOR_TUPLES)
    ticket = prepare(c, o.FEED_EVENT)
    more = h[own] < load_acquire(h, TAILS) or h[own + 1] < load_acquire(h, TAILS + 1)
    if more or load_acquire(h, ENDED) != 0 or load_acquire(c, shared.HALT) != 0:
        cancel(c, o.FEED_EVENT)
    else:
        sleep(c, o.FEED_EVENT, ticket, SLICE_NS)
    store_release(w, shared.WAITS, shared.NOTHING)


@compiled
def work(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out):
    ps, us = (p0, p1), (u0, u1)
    h, size = ints(w[o.SHARED], 1 << 30), ring_size(w)
    own = HEADS + w[o.SEAT] * LINE
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        if w[mv.JOB]:
            side, count = w[mv.JOB_SIDE], w[mv.JOB_COUNT]
            if mv.give(c, w, pairs, out) != 0:
                return o.HALTED
            store_release(h, own + side, h[own + side] + count)
        did = 0
        if w[o.SEAT] == 0 and w[mv.DONE] == 0:
            if w[o.PHASE] == o.READING and has_room(w, h, size):
                busy = h[own] < h[TAILS] or h[own + 1] < h[TAILS + 1]
                number = take_once(gate, c, w, batch) if busy else take(gate, c, w, batch)
                if not mv.take_in(w, number, batch, ps, us, arena):
                    return o.STOPPED
                if w[mv.DONE]:
                    store_release(h, ENDED, 1)
                    fence()
                    wake_feed(c)
            if w[o.PHASE] == o.STORING:
                code = mv.store(w, batch, ps, us)
                if code != 0:
                    return code
                cut(c, w, h, size, ps)
                did = 1
        ended, some, last = load_acquire(h, ENDED), load_acquire(h, ANY), load_acquire(h, LAST)
        expired = (load_acquire(h, EXPIRED), load_acquire(h, EXPIRED + 1))
        code = serve(c, w, h, size, ps, pairs, tally, out)
        if code < 0:
            return -code
        if code > 0 or did:
            # All tasks up to those times are done.
            for side in range(2):
                mv.hold(w, side, min(expired[side], h[own + side]))
            if some:
                mv.publish(c, w, last - w[o.BACK + 1], last - w[o.BACK], False)
            if w[o.SEAT] != 0:
                mv.follow(gate, w)
            w[mv.IDLE] = 0
        elif ended:
            mv.publish(c, w, AFTER_ALL, AFTER_ALL, True)
            return o.FINISHED
        elif w[o.SEAT] != 0:
            mv.follow(gate, w)
            wait(c, w, h)
        elif w[o.PHASE] != o.READING or not has_room(w, h, size):
            mv.rest(w)  # for workers that are behind


def plan(wish: Wish) -> Plan:
    why = f"worker 0 cuts the other window into {wish.workers} parts for every tuple"
    return mv.plan("celljoin", wish, (0, 0), why, work, words)
