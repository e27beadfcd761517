"""Handshake join: the streams flow past each other through a chain of workers, and tuples are compared where they meet.

J. Teubner, R. Mueller, «How soccer players would do stream joins», SIGMOD 2011, as DP-Join (section 4.2), SplitJoin
(section 2) and ScaleJoin (section VI) describe it. Left tuples enter at worker 0 and go right, right ones at the last
worker and go left; with n workers, each holds a tuple for an n-th of its time in the window. So a pair meets when both
ways together are the chain's length: for tuples that come together, half a window after they came. That latency is the
design's, and why the papers left it behind.

Invariant (each pair meets once): when a worker tells its neighbour anything, all left tuples it holds have met all right
ones it holds. A left tuple that was sent on is held until the neighbour says that it has it. What a neighbour sends left
says so first, then which right tuples come: a right tuple that left before the left one arrived comes in a message before
that word, and meets it here; one that left after has met it there. So of two tuples that cross, each pair is compared on
exactly one side. A left tuple leaves at the last worker when its time is over by what that worker has read from the gate,
so every right tuple of its window has entered before it left, and has crossed it; and the other way round.

The word travels only leftwards, since one direction is enough. Tuples age by event time; at the end of input all age at
once, and meet. Whether a pair lies in the window is checked by their timestamps, whenever they meet.
"""

from __future__ import annotations

from typing import Final

from plait.core.condition import native
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.atomics import load_acquire, store_release
from plait.threads.atomics.native import compiled, inner, ints
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.probe import segment_of
from plait.threads.join.strategies.plan import Plan, Wish
from plait_bench.rivals import moves as mv

# Own words: left tuples [FIRST_L, END_L) are held, those below SENT_L were sent on; right tuples [FIRST_R, END_R).
FIRST_L: Final = mv.REST
SENT_L: Final = mv.REST + 1
END_L: Final = mv.REST + 2
FIRST_R: Final = mv.REST + 3
END_R: Final = mv.REST + 4
COMING_R: Final = mv.REST + 5  # right tuples below were sent here
SAID: Final = mv.REST + 6  # left tuples below are known to have arrived
LIVE: Final = mv.REST + 8  # by side: no tuple held here has a lower ts

# Shared: 4 lines a worker, then its messages to the left, (left tuples that have arrived, right tuples sent) each.
SENT: Final = 0  # released by the worker, acquired by its right neighbour
SENT_END: Final = 1
TAIL: Final = 16  # released by the worker, acquired by its left neighbour
TAIL_END: Final = 17
HEAD: Final = 32  # of those messages; released by the left neighbour
CLOCK: Final = 48  # of worker 0: how far time has passed
WORDS: Final = 64
MESSAGES: Final = 256


def words(workers: int, most: int) -> int:
    return workers * (WORDS + 2 * MESSAGES)


@inner
def compare(w, side, first, count, p, low, high, pairs, tally):
    """New tuples of a side against the tuples [low, high) of the other: how many were compared, or a code < 0."""
    own, s = segment_of(w, side), segment_of(w, 1 - side)
    times, others = ints(own[seg.TS], own[seg.CAP]), ints(s[seg.TS], s[seg.CAP])
    back, ahead = w[o.BACK + side], w[o.BACK + 1 - side]
    while True:
        for k in range(count):
            ts = times[(first + k) & own[seg.MASK]]
            p[o.P_FROM, k] = mv.first_at_least(others, s[seg.MASK], low, high, ts - back)
            p[o.P_UNTIL, k] = mv.first_at_least(others, s[seg.MASK], low, high, ts + ahead + 1)
        tally[1] = 0
        found = mv.scan(w, side, first, count, p, 0, pairs, tally)
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
def aged(w, side, low, high, now, share, of, leaving):
    """Tuples [low, here) of a side have spent `share` of `of` parts of their time in the window; `leaving`: more than that."""
    s = segment_of(w, side)
    if now == AFTER_ALL:
        return high
    if now == BEFORE_ALL:  # what lies below it can't be counted
        return low
    reach = w[o.BACK + 1 - side]
    bound = now - reach if leaving else now - reach // of * share + 1
    return mv.first_at_least(ints(s[seg.TS], s[seg.CAP]), s[seg.MASK], low, high, bound)


@inner
def arrived(w, side):
    """A job is done: its tuples have arrived here."""
    end = END_L if side == 0 else END_R
    if w[end] == 0:
        s = segment_of(w, side)
        w[LIVE + side] = ints(s[seg.TS], s[seg.CAP])[0]
    w[end] += w[mv.JOB_COUNT]


@inner
def pass_on(w, h, me, last, now):
    """Send on, or let go, what has been here for long enough; whether there was any."""
    base, moved = me * WORDS, False
    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])  # results first: who has a tuple's last word has its results
    until = aged(w, 0, w[SENT_L], w[END_L], now, me + 1, last + 1, me == last)
    if until > w[SENT_L]:
        w[SENT_L], moved = until, True
        if me == last:
            w[FIRST_L] = until
        store_release(h, base + SENT, until)
    until = aged(w, 1, w[FIRST_R], w[END_R], now, last + 1 - me, last + 1, me == 0)
    if me == 0:
        if until > w[FIRST_R]:
            w[FIRST_R], moved = until, True
    elif until > w[FIRST_R] or w[SAID] < w[END_L]:
        tail = h[base + TAIL]
        if tail - load_acquire(h, base + HEAD) < MESSAGES:
            at = (last + 1) * WORDS + (me * MESSAGES + tail % MESSAGES) * 2
            h[at], h[at + 1] = w[END_L], until
            w[SAID], w[FIRST_R], moved = w[END_L], until, True
            store_release(h, base + TAIL, tail + 1)
    return moved


@inner
def hear(w, h, me, last):
    """The next message of the right neighbour, once the right tuples of the one before have arrived."""
    if me == last or w[COMING_R] > w[END_R]:
        return False
    base = (me + 1) * WORDS
    head = h[base + HEAD]
    if head == load_acquire(h, base + TAIL):
        return False
    at = (last + 1) * WORDS + ((me + 1) * MESSAGES + head % MESSAGES) * 2
    w[FIRST_L], w[COMING_R] = h[at], h[at + 1]
    store_release(h, base + HEAD, head + 1)
    return True


@inner
def tell(c, w):
    """Publish which rows are still needed here."""
    for side in range(2):
        first, end = (w[FIRST_L], w[END_L]) if side == 0 else (w[FIRST_R], w[END_R])
        if first < end:
            s = segment_of(w, side)
            w[LIVE + side] = ints(s[seg.TS], s[seg.CAP])[first & s[seg.MASK]]
        mv.hold(w, side, first)
    known = w[END_L] > 0, w[END_R] > 0
    mv.publish(c, w, w[LIVE] if known[0] else BEFORE_ALL, w[LIVE + 1] if known[1] else BEFORE_ALL, False)


@compiled
def work(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out):
    ps, us = (p0, p1), (u0, u1)
    me, last = w[o.SEAT], w[o.CREW] - 1
    h, base = ints(w[o.SHARED], 1 << 30), me * WORDS
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        did = False
        if w[mv.JOB]:
            if mv.give(c, w, pairs, out) != 0:
                return o.HALTED
            arrived(w, w[mv.JOB_SIDE])
            did = True
        # Left tuples that came: those of the gate, or of the left neighbour. Ends are looked at before what they end.
        left_over = w[mv.DONE] if me == 0 else load_acquire(h, base - WORDS + SENT_END)
        coming = segment_of(w, 0)[seg.END] if me == 0 else load_acquire(h, base - WORDS + SENT)
        right_over = w[mv.DONE] if me == last else load_acquire(h, base + WORDS + TAIL_END)
        if me == last:
            w[COMING_R] = segment_of(w, 1)[seg.END]
        if hear(w, h, me, last):
            did = True
        pending = (w[END_L] < coming, w[END_R] < w[COMING_R])
        if pending[0] or pending[1]:
            code = 0
            if pending[0] and (w[mv.TURN] == 0 or not pending[1]):
                count = min(coming - w[END_L], w[o.MOST])
                code = compare(w, 0, w[END_L], count, ps[0], w[FIRST_R], w[END_R], pairs, tally)
            else:
                count = min(w[COMING_R] - w[END_R], w[o.MOST])
                code = compare(w, 1, w[END_R], count, ps[1], w[FIRST_L], w[END_L], pairs, tally)
            if code < 0:
                return -code
            w[mv.TURN] = 1 - w[mv.JOB_SIDE]
            continue
        # Everything that came has met what is here: so what is over may go.
        if me == 0 or me == last:
            now = AFTER_ALL if w[mv.DONE] else max(w[o.LAST_TS], w[o.FRONTIER])
            if me == 0:
                store_release(h, CLOCK, now)
        else:
            now = load_acquire(h, CLOCK) if load_acquire(h, SENT) > 0 or load_acquire(h, SENT_END) else BEFORE_ALL
        if pass_on(w, h, me, last, now):
            did = True
        queue_empty = me == last or h[base + WORDS + HEAD] == load_acquire(h, base + WORDS + TAIL)
        if left_over and w[SENT_L] == w[END_L]:
            store_release(h, base + SENT_END, 1)
        if right_over and queue_empty and w[FIRST_R] == w[END_R]:
            store_release(h, base + TAIL_END, 1)
        if (me == 0 or me == last) and w[mv.DONE] == 0:
            code = mv.take_and_store(gate, c, w, batch, ps, us, arena)
            if code < 0:
                return -code
            did = did or code > 0
        if 0 < me < last:
            mv.follow(gate, w)
        if did:
            tell(c, w)
            w[mv.IDLE] = 0
        elif (
            left_over and right_over and queue_empty and w[FIRST_L] == w[END_L] and w[FIRST_R] == w[END_R]
            and (me == 0 or w[SAID] == w[END_L])
        ):  # fmt: skip
            mv.publish(c, w, AFTER_ALL, AFTER_ALL, True)
            return o.FINISHED
        else:
            mv.rest(w)


def plan(wish: Wish) -> Plan:
    why = f"left tuples flow right and right ones left through a chain of {wish.workers}"
    return mv.plan("handshake", wish, (0, wish.workers - 1), why, work, words)
