"""Results into a worker's ring, in result order; unmatched rows at the moment their last chance has passed.

Invariant: the ring's entries are in result order, because the batch is, because a trigger's partners are sorted, and
because unmatched rows whose time is up are written before the first trigger that is later than it. A worker that
finds the ring full waits for the gatherer; nobody else is held back by that until the gate is full, and then only the
pushers.

An example of a left join in which a right tuple looks back 10 us. A left row of ts 5 finds no partner. While tuples up
to ts 15 come it may still find one (a right tuple of 15 sees it). At the first tuple of ts 16, or when the frontier is
at 16, it is given out alone, with ts 15. Other rows that are due go before that tuple's own results.
"""

from __future__ import annotations

from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import fence, fetch_add, load_acquire, sleep_on, store_release, wake_all
from plait.threads.atomics.native import inner, ints, octets
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.probe import segment_of

SLICE_NS = 1_000_000_000


@inner
def wake_gatherer(c):
    """After results were published and a fence."""
    if load_acquire(c, o.OUT_SLEEPERS) > 0:
        fetch_add(c, o.OUT_EVENT, 1)
        wake_all(c, o.OUT_EVENT)


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
    store_release(w, o.DONE_RANK, w[o.RANK] + (0 if w[o.PHASE] == o.CLOSING else w[o.AT]))
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
        if (how == o.LEFT or how == o.ANTI) and pass_time(c, w, out, ts) != 0:
            return o.HALTED
        if w[o.EMITTED] < starts[i]:
            side = batch[o.B_ORIGIN, i] >> 32
            s = segment_of(w, 1 - side)
            cap, mask = s[seg.CAP], s[seg.MASK]
            ids, refs = ints(s[seg.ID], cap), ints(s[seg.REF], cap)
            trigger, own = 2 * (w[o.RANK] + i) + side, batch[o.B_REF, i]
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
