"""Low-latency handshake join: two opposite flows that hurry every tuple past all workers, and keep it at one of them.

P. Roy, J. Teubner, R. Gemulla, «Low-latency handshake join», PVLDB 7(9), 2014, as SplitJoin (sections 2 and 6) and
ScaleJoin (section VI) describe it. Left tuples enter at worker 0, right ones at the last; each worker passes what comes
on to its neighbour at once, before it works on it, and compares it with what it keeps of the other stream. Homes go by
turns, HOME tuples at a time. A tuple is everywhere after as many hand-offs as there are workers: the linear chain that
SplitJoin's tree and ScaleJoin's gate do without.

Invariant: a pair is compared by the home of its earlier tuple, when the later one comes by. Where two tuples cross in
flight that must not be missed: the paper's workers monitor both flows (SplitJoin's T_ML) with words of receipt. Here a
tuple carries how many of the other stream precede it, and a worker compares it only when the other flow has brought
these; flows never wait for comparisons, so no worker waits for ever. Words of expiry, one a tuple in the paper, are left
out: timestamps say the same. Both are to its favour.
"""

from __future__ import annotations

from typing import Final

from plait.core.condition import native
from plait.core.machine.line import LINE
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.atomics import load_acquire, store_release
from plait.threads.atomics.native import compiled, inner, ints
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.probe import segment_of
from plait.threads.join.strategies.plan import Plan, Wish
from plait_bench.rivals import moves as mv

HOME: Final = 256  # tuples in a row that one worker keeps: scans need them side by side

# Own words, by side: tuples compared; the ts of the last of them; tuples that the flow has brought.
NEXT: Final = mv.REST
LAST: Final = mv.REST + 2
CAME: Final = mv.REST + 4

# Shared, a line a worker and flow: how many tuples it has passed on, and whether these are all. Released by it,
# acquired by its neighbour downstream, the end first.
PASSED: Final = 0
ENDED: Final = 1


def words(workers: int, most: int) -> int:
    return workers * 2 * LINE


@inner
def compare(w, side, count, ps, pairs, tally):
    """The next tuples of a side against this worker's part of the other window: how many were compared, or a code < 0."""
    own, s, p, first = segment_of(w, side), segment_of(w, 1 - side), ps[side], w[NEXT + side]
    times, preceding = ints(own[seg.TS], own[seg.CAP]), ints(own[seg.ID], own[seg.CAP])
    others, reach = ints(s[seg.TS], s[seg.CAP]), w[o.BACK + side]
    while True:
        low = w[o.LO + 1 - side]
        for k in range(count):
            at = (first + k) & own[seg.MASK]
            low = mv.first_at_least(others, s[seg.MASK], low, preceding[at], times[at] - reach)
            p[o.P_LO, k], p[o.P_HI, k] = low, preceding[at]
        tally[1], found = 0, low - low
        block = p[o.P_LO, 0] // HOME
        block += (w[o.SEAT] - block) % w[o.CREW]
        while block * HOME < p[o.P_HI, count - 1] and found >= 0:
            for k in range(count):
                p[o.P_FROM, k] = max(p[o.P_LO, k], block * HOME)
                p[o.P_UNTIL, k] = min(p[o.P_HI, k], (block + 1) * HOME)
            found = mv.scan(w, side, first, count, p, found, pairs, tally)
            block += w[o.CREW]
        if found >= 0:
            break
        if found == native.FAILED:
            return -o.KERNEL_FAILED
        if pairs.shape[1] < mv.MOST_PAIRS or count == 1:
            return -o.GROW_PAIRS
        count //= 2
    mv.begin(w, side, first, count, found, tally)
    return count


@inner
def compared(w):
    """The job is done."""
    side, count = w[mv.JOB_SIDE], w[mv.JOB_COUNT]
    own, s = segment_of(w, side), segment_of(w, 1 - side)
    at = (w[NEXT + side] + count - 1) & own[seg.MASK]
    ts = ints(own[seg.TS], own[seg.CAP])[at]
    reach = w[o.BACK + side]
    until = ints(own[seg.ID], own[seg.CAP])[at]
    others = ints(s[seg.TS], s[seg.CAP])
    w[o.LO + 1 - side] = mv.first_at_least(others, s[seg.MASK], w[o.LO + 1 - side], until, ts - reach)
    w[NEXT + side] += count
    w[LAST + side] = ts


@inner
def ready(w, side):
    """How many tuples of a side can be compared: the other flow has brought what precedes them."""
    own = segment_of(w, side)
    most = min(w[CAME + side] - w[NEXT + side], w[o.MOST])
    preceding, came, count = ints(own[seg.ID], own[seg.CAP]), w[CAME + 1 - side], 0
    while count < most and preceding[(w[NEXT + side] + count) & own[seg.MASK]] <= came:
        count += 1
    return count


@compiled
def work(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out):
    ps, us = (p0, p1), (u0, u1)
    me, last = w[o.SEAT], w[o.CREW] - 1
    h = ints(w[o.SHARED], 1 << 30)
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        did = False
        if w[mv.JOB]:
            if mv.give(c, w, pairs, out) != 0:
                return o.HALTED
            compared(w)
            did = True
        if (me == 0 or me == last) and w[mv.DONE] == 0:
            code = mv.take_and_store(gate, c, w, batch, ps, us, arena)
            if code < 0:
                return -code
            did = did or code > 0
        # Both flows, on to the next worker at once.
        ends = 0
        for side in range(2):
            source = me == (0 if side == 0 else last)
            before, own = 2 * LINE * (me - 1 if side == 0 else me + 1) + side * LINE, (2 * me + side) * LINE
            ended = w[mv.DONE] if source else load_acquire(h, before + ENDED)
            came = segment_of(w, side)[seg.END] if source else load_acquire(h, before + PASSED)
            if came > w[CAME + side]:
                w[CAME + side], did = came, True
                store_release(h, own + PASSED, came)
            if ended:
                store_release(h, own + ENDED, 1)
                ends += 1
        began = False
        for turn in range(2):
            side = (w[mv.TURN] + turn) & 1
            count = ready(w, side) if w[mv.JOB] == 0 else 0
            if count > 0:
                code = compare(w, side, count, ps, pairs, tally)
                if code < 0:
                    return -code
                began = True
        if began:
            w[mv.TURN] = 1 - w[mv.JOB_SIDE]
        elif 0 < me < last:
            mv.follow(gate, w)
        if did:
            for side in range(2):
                mv.hold(w, side, min(w[o.LO + side], w[NEXT + side]))
            left, right = BEFORE_ALL, BEFORE_ALL
            if w[NEXT] > 0 and w[NEXT + 1] > 0:
                left, right = min(w[LAST], w[LAST + 1] - w[o.BACK + 1]), min(w[LAST + 1], w[LAST] - w[o.BACK])
            mv.publish(c, w, left, right, False)
        if did or began:
            w[mv.IDLE] = 0
        elif ends == 2 and w[NEXT] == w[CAME] and w[NEXT + 1] == w[CAME + 1]:
            mv.publish(c, w, AFTER_ALL, AFTER_ALL, True)
            return o.FINISHED
        else:
            mv.rest(w)


def plan(wish: Wish) -> Plan:
    why = f"every tuple hurries past {wish.workers} workers in a chain, left and right ones in opposite directions"
    return mv.plan("low_latency_handshake", wish, (0, wish.workers - 1), why, work, words)
