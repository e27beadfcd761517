"""As-of: for each left tuple one right tuple, by workers that share values, or left tuples, among them.

With `by=` a value is one worker's, by its number modulo the workers: its right tuples are kept there, and its left tuples
answered. Values that are no worker's own it passes over. Without (and with `strategy="dpjoin"`) left tuples take turns (m x 1),
and every worker keeps the last right tuple of each value. It is kept in a table by the value's number
(`threads.join.asof_codes`). Invariant: when a left tuple's turn comes, the table holds, for each value, the last right tuple
that precedes it, because tuples are taken in total order, one by one. Whether one of the same ts precedes it is said by the
gate's order, which may put the right input first (`asof_memory.right_first`).

Backward, a left tuple is answered in its turn. An example: right tuples of value a at ts 1 and 5, a left tuple of a at ts 6:
the table has (5, its row) and the pair comes out. With `within` 0 it would not: 5 is below 6 - 0. A left tuple that finds nothing
is given out alone where the join keeps all left rows, and dropped otherwise.

Forward and nearest, a left tuple waits, and has a moment at which it is decided: when `within` is over, or when no right
tuple ahead could be closer than the one behind any more. A right tuple that comes before decides all that wait for its
value, at its own ts. Those whose moment has passed are given out by moment, then in the order of their coming: a heap has
them in that order. An example, nearest, `within` 10: a right tuple at ts 7, a left one at 9 waits until 11. A right tuple at
10 is closer: decided at 10. One at 11 would be as near: the one behind stays, and the result's ts is 11.

By values a line of the table is one worker's. By turns every worker keeps the whole table, so memory grows with workers times
values, and a right tuple costs a line of it at each. A left one is a look-up at one worker. One that waits costs a place in the
heap and in the list of its value.
"""

from __future__ import annotations

from typing import Final

from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.atomics import load_acquire
from plait.threads.atomics.native import clock_ns, compiled, inner, ints
from plait.threads.gate import epochs
from plait.threads.join import asof_memory as m
from plait.threads.join.loop import words as o
from plait.threads.join.loop.out import publish_progress, put, room
from plait.threads.join.loop.worker import read
from plait.threads.join.strategies.plan import Parts, Plan, Seat, Wish

OTHERS: Final = -2  # instead of a line: the tuple is another worker's

# --- right tuples: the last of each value ---------------------------------------------------------------------------


@inner
def remember(a, table, code, ts, ref, number):
    """A right tuple is the last of its value. What was it stays as the other one, where that may be asked for."""
    at = code * m.T_WORDS
    if a[m.KEEPS_OTHER] and (a[m.EXACT] or ts > table[at + m.T_TS]):
        table[at + m.T_OTHER] = table[at + m.T_TS]
        table[at + m.T_OTHER_REF] = table[at + m.T_REF]
        table[at + m.T_OTHER_ID] = table[at + m.T_ID]
    table[at + m.T_TS] = ts
    table[at + m.T_REF] = ref
    table[at + m.T_ID] = number + 1


@inner
def behind(a, table, code, ts, ref, within):
    """Where the right tuple behind a left one stands in the table, -1 if there is none.

    It is the last one of the value, unless that is the left tuple itself, or of its ts and not wanted.
    """
    at = code * m.T_WORDS
    if a[m.KEEPS_OTHER]:
        unwanted = table[at + m.T_REF] == ref if a[m.EXACT] else table[at + m.T_TS] == ts
        if unwanted:
            at += m.T_OTHER
    # Not the age, which may be more than 63 bits hold.
    if table[at + m.T_ID] == 0 or (within >= 0 and table[at + m.T_TS] < ts - within):
        return -1
    return at


# --- left tuples that wait: a heap by (moment, place) ---------------------------------------------------------------


@inner
def sooner(ring, mask, p, q):
    """Whether the left tuple of place p is given out before that of place q."""
    mine, other = ring[(p & mask) * m.R_WORDS + m.R_DUE], ring[(q & mask) * m.R_WORDS + m.R_DUE]
    return mine < other or (mine == other and p < q)


@inner
def rise(ring, mask, heap, at, p):
    """Put place p into the heap at `at` or above, as its moment asks for."""
    while at > 0:
        above = (at - 1) // 2
        q = heap[above]
        if not sooner(ring, mask, p, q):
            break
        heap[at] = q
        ring[(q & mask) * m.R_WORDS + m.R_PLACE] = at
        at = above
    heap[at] = p
    ring[(p & mask) * m.R_WORDS + m.R_PLACE] = at


@inner
def sink(ring, mask, heap, count, p):
    """Put place p into the heap of so many at the top or below; the top is free."""
    at = 0
    while 2 * at + 1 < count:
        below = 2 * at + 1
        if below + 1 < count and sooner(ring, mask, heap[below + 1], heap[below]):
            below += 1
        q = heap[below]
        if not sooner(ring, mask, q, p):
            break
        heap[at] = q
        ring[(q & mask) * m.R_WORDS + m.R_PLACE] = at
        at = below
    heap[at] = p
    ring[(p & mask) * m.R_WORDS + m.R_PLACE] = at


@inner
def moment(ts, later):
    """`ts + later`, AFTER_ALL where 64 bits can't hold it: who makes the row refuses it."""
    return AFTER_ALL if ts > AFTER_ALL - 1 - later else ts + later


@inner
def wait(a, table, ring, heap, code, ts, ref, number, within):
    """A left tuple begins to wait; there must be room. A code below 0 equals nothing: it waits for the end of `within`."""
    mask, p = a[m.MASK], a[m.TAIL]
    at = (p & mask) * m.R_WORDS
    ring[at + m.R_TS] = ts
    ring[at + m.R_REF] = ref
    ring[at + m.R_ID] = number
    ring[at + m.R_DUE] = moment(ts, within)
    ring[at + m.R_RIGHT] = o.NO_ROW
    if code >= 0:
        if a[m.DIRECTION] == m.NEAREST:
            found = behind(a, table, code, ts, ref, within)
            if found >= 0:
                ring[at + m.R_DUE] = moment(ts, ts - table[found + m.T_TS])
                ring[at + m.R_RIGHT] = table[found + m.T_REF]
        ring[at + m.R_PREV] = table[code * m.T_WORDS + m.T_LIST]
        table[code * m.T_WORDS + m.T_LIST] = p + 1
    a[m.TAIL] = p + 1
    rise(ring, mask, heap, a[m.HEAPED], p)
    a[m.HEAPED] += 1


@inner
def decide(a, table, ring, heap, code, ts, ref):
    """A right tuple decides all that wait for its value, and the list is empty after it. How many it was held against.

    Who has one behind that is as near stays with that. In a stream joined with itself a tuple does not decide itself: it stays
    in the list, alone.
    """
    mask, met, left = a[m.MASK], 0, 0
    head = code * m.T_WORDS + m.T_LIST
    p = table[head] - 1
    while p >= a[m.HEAD]:
        at = (p & mask) * m.R_WORDS
        before = ring[at + m.R_PREV] - 1
        if ring[at + m.R_PLACE] != m.OUT:
            met += 1
            if a[m.ONE_STREAM] and ring[at + m.R_REF] == ref:
                left = p + 1
                ring[at + m.R_PREV] = 0
            elif ring[at + m.R_RIGHT] == o.NO_ROW or ts < ring[at + m.R_DUE]:
                ring[at + m.R_DUE] = ts
                ring[at + m.R_RIGHT] = ref
                rise(ring, mask, heap, ring[at + m.R_PLACE], p)
        p = before
    table[head] = left
    return met


@inner
def pass_time(c, w, a, ring, heap, out, ts):
    """Give out left tuples that are decided before `ts`: 0, or HALTED."""
    mask = a[m.MASK]
    while a[m.HEAPED] > 0:
        p = heap[0]
        at = (p & mask) * m.R_WORDS
        if ts != AFTER_ALL and ring[at + m.R_DUE] >= ts:
            return 0
        if ring[at + m.R_RIGHT] != o.NO_ROW or w[o.HOW] == o.LEFT:
            if room(c, w) != 0:
                return o.HALTED
            put(w, out, ring[at + m.R_DUE], o.UNMATCHED, ring[at + m.R_ID], ring[at + m.R_REF], ring[at + m.R_RIGHT])
        ring[at + m.R_PLACE] = m.OUT
        a[m.HEAPED] -= 1
        if a[m.HEAPED] > 0:
            sink(ring, mask, heap, a[m.HEAPED], heap[a[m.HEAPED]])
        while a[m.HEAD] < a[m.TAIL] and ring[(a[m.HEAD] & mask) * m.R_WORDS + m.R_PLACE] == m.OUT:
            a[m.HEAD] += 1
    return 0


# --- the loop -------------------------------------------------------------------------------------------------------


@inner
def line_of(w, a, arena, origin, seq, side, number):
    """A tuple's line in the table; -1 if its value equals nothing, OTHERS if another worker sees to it.

    By values worker k has the values k, k + n, k + 2 n ... in its lines 0, 1, 2 ... A left tuple whose value equals nothing is
    some worker's all the same, by turns: it may come out alone.
    """
    every, at = w[o.PROBE_EVERY], w[o.PROBE_AT]
    code = ints(arena[origin & shared.SLOT_MASK, shared.A_COLUMNS], w[o.ARENA_MASK] + 1)[seq & w[o.ARENA_MASK]]
    if a[m.BY_VALUE] and code >= 0:
        return code // every if code % every == at else OTHERS
    if side == 0 and number % every != at:
        return OTHERS
    return code


@inner
def pass_tuples(c, w, a, arena, batch, out):
    """Take the batch's tuples from where it stood, looking back: 0, or a code.

    AT says where to go on after a halt, and is moved only when
    the tuple is done.
    """
    within, flip = w[o.BACK], a[m.RIGHT_FIRST]
    table = ints(a[m.TABLE], a[m.CODES] * m.T_WORDS)
    while w[o.AT] < w[o.COUNT]:
        i = w[o.AT]
        origin, ts = batch[o.B_ORIGIN, i], batch[o.B_TS, i]
        side = (origin >> 32) ^ flip
        number = w[o.NEXT + side]
        code = line_of(w, a, arena, origin, batch[o.B_SEQ, i], side, number)
        if code >= a[m.CODES]:
            w[o.NEED] = code
            return o.GROW_PAIRS
        if side == 1:
            if code >= 0:
                remember(a, table, code, ts, batch[o.B_REF, i], number)
        elif code != OTHERS:
            w[o.AT_RANK] = w[o.RANK] + i
            if room(c, w) != 0:
                return o.HALTED
            w[shared.TUPLES] += 1
            w[shared.COMPARISONS] += 1
            trigger, ref = 2 * w[o.AT_RANK], batch[o.B_REF, i]
            found = behind(a, table, code, ts, ref, within) if code >= 0 else -1
            if found >= 0:
                put(w, out, ts, trigger, table[found + m.T_ID] - 1, ref, table[found + m.T_REF])
            elif w[o.HOW] == o.LEFT:
                put(w, out, ts, trigger, -1, ref, o.NO_ROW)
        w[o.NEXT + side] = number + 1
        w[o.AT] += 1
    return 0


@inner
def pass_waiting(c, w, a, arena, batch, out):
    """The same, looking ahead: before a tuple is taken, time passes to it."""
    within, flip = w[o.BACK], a[m.RIGHT_FIRST]
    table, waiting = ints(a[m.TABLE], a[m.CODES] * m.T_WORDS), a[m.MASK] + 1
    ring, heap = ints(a[m.RING], waiting * m.R_WORDS), ints(a[m.HEAP], waiting)
    while w[o.AT] < w[o.COUNT]:
        i = w[o.AT]
        origin, ts, ref = batch[o.B_ORIGIN, i], batch[o.B_TS, i], batch[o.B_REF, i]
        side = (origin >> 32) ^ flip
        number = w[o.NEXT + side]
        code = line_of(w, a, arena, origin, batch[o.B_SEQ, i], side, number)
        w[o.AT_RANK] = w[o.RANK] + i
        if pass_time(c, w, a, ring, heap, out, ts) != 0:
            return o.HALTED
        if code >= a[m.CODES]:
            w[o.NEED] = code
            return o.GROW_PAIRS
        if side == 1:
            if code >= 0:
                w[shared.COMPARISONS] += decide(a, table, ring, heap, code, ts, ref)
                remember(a, table, code, ts, ref, number)
        elif code != OTHERS:
            if a[m.TAIL] - a[m.HEAD] == waiting:
                w[o.NEED] = -1
                return o.GROW_PAIRS
            w[shared.TUPLES] += 1
            w[shared.COMPARISONS] += 1
            wait(a, table, ring, heap, code, ts, ref, number, within)
        w[o.NEXT + side] = number + 1
        w[o.AT] += 1
    return 0


@inner
def earlier(ts, by):
    """`ts - by`, BEFORE_ALL where 64 bits can't hold it."""
    return BEFORE_ALL if ts < BEFORE_ALL + by else ts - by


@inner
def close(c, w, a, out):
    """What time has decided since the last tuple is given out, and how far this worker is becomes known: 0, or HALTED.

    Rows are live as long as a result from the last ts on may name them: also one of another worker, which waits in that one's
    ring until this one has come so far. Such a left row is at most `within` older than its result, and one that lies behind it
    as much again; one that lies ahead is as old as the result.
    """
    last, within = w[o.LAST_TS], w[o.BACK]
    left, right = last, last
    if a[m.DIRECTION] == m.BACKWARD:
        right = BEFORE_ALL if within < 0 else earlier(last, within)
    else:
        waiting = a[m.MASK] + 1
        ring, heap = ints(a[m.RING], waiting * m.R_WORDS), ints(a[m.HEAP], waiting)
        if pass_time(c, w, a, ring, heap, out, max(w[o.FRONTIER], last)) != 0:
            return o.HALTED
        left = earlier(last, within)
        if a[m.DIRECTION] == m.NEAREST:
            right = earlier(left, within)
    if w[o.RANK] == 0:
        left, right = BEFORE_ALL, BEFORE_ALL  # before the first tuple nothing is known to be dead
    publish_progress(c, w, last, left, right)
    return 0


@compiled
def work_asof(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out):
    """As `worker.work`, with the same arguments; what it keeps lies in its own memory (`asof_memory`)."""
    a = ints(w[o.ASOF], m.BLOCK_WORDS)
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        if w[o.PHASE] == o.READING:
            if not read(gate, c, w, batch, o.PROBING):
                return o.STOPPED
            if w[o.SLICED] and w[o.PHASE] == o.READING:
                return o.SWITCH if w[o.OWN + epochs.SWITCHING] else o.IDLE
        if w[o.PHASE] == o.PROBING:
            began = clock_ns(w, o.CLOCK)
            if a[m.DIRECTION] == m.BACKWARD:
                code = pass_tuples(c, w, a, arena, batch, out)
            else:
                code = pass_waiting(c, w, a, arena, batch, out)
            w[shared.NS_PROBE] += clock_ns(w, o.CLOCK) - began
            if code != 0:
                return code
            w[o.LAST_TS] = batch[o.B_TS, w[o.COUNT] - 1]
            w[o.RANK] += w[o.COUNT]
            w[o.PHASE] = o.CLOSING
        if w[o.PHASE] == o.CLOSING:
            if close(c, w, a, out) != 0:
                return o.HALTED
            w[o.PHASE] = o.READING
            if w[o.ENDED]:
                return o.FINISHED
            if w[o.SLICED]:
                return o.SWITCH if w[o.OWN + epochs.SWITCHING] else o.SLICE


def plan(wish: Wish) -> Plan:
    """By turns seat k compares left tuples whose number is k modulo m; by values all whose value's number is.

    Segments are named, since plans have them, but nothing is stored there.
    """
    workers = wish.workers
    seats = tuple(Seat((k, 0), (workers, 1), (k, 0), (workers, 1), (k, 0), (True, k == 0)) for k in range(workers))
    if wish.line is not None and workers > 1:
        why = f"{workers} workers by values: each keeps the right tuples of its own, and answers their left ones"
        return Plan("partitioned", seats, (workers, workers), why, parts=Parts("hash"), loop=work_asof)
    why = f"{workers} x 1: left tuples by turns, right ones at every worker"
    return Plan("asof", seats, (workers, 1), why, loop=work_asof)
