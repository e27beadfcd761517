"""The rings of results, the workers' side: each worker puts its pairs into its own. `loop.gather` makes one sequence of them.

The ring's entries are in result order as far as the precision asks for it (`words.SORTS`): because the batch is, because a
trigger's partners are sorted, and because unmatched rows whose time is up are written before the first trigger that is
later than it. What nobody asked for is not done: with triggers in order partners stay as they were found, and without any
order pairs go into the ring as the probes found them. A worker that finds the ring full waits for the gatherer; nobody else
is held back by that until the gate is full, and then only the pushers. After each batch it says how far it is
(`publish_progress`): SplitJoin's punctuation (section 5). Where a reader wants to see marks, one worker, the last in the
order of gathering, puts them into its ring as entries (`put_mark`).

Rows without a partner. Whoever compares a row notes whether it has matched, in flags of its own (`first_match`). Where one worker
meets all partners of a row it alone decides. In a full join several compare a row, each with a part of the other window: each
puts the row into its ring if it has found nothing, at the same place of the order, and who gathers counts whether all have.

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
from plait.threads.join.loop.grid import rank_at
from plait.threads.join.loop.probe import segment_of

SLICE_NS = 1_000_000_000


@inner
def emit(c, w, batch, ps, pairs, out):
    """The results of batch positions FROM to TO, from where it stood: 0, or HALTED.

    An inner join puts every pair. A left, right or full join puts every pair, and notes that its rows have matched. A semi
    join puts a left row's first pair only, an anti join none.
    """
    if w[o.SORTS] == o.AS_FOUND:
        return emit_found(c, w, batch, ps, pairs, out)
    noted, waits = w[o.NOTED] | w[o.NOTED + 1], w[o.ALONE] | w[o.ALONE + 1]
    plain = noted == 0 and w[o.MARK_ROWS] == 0
    starts = batch[o.B_STARTS]
    while w[o.AT] < w[o.TO]:
        i = w[o.AT]
        ts = batch[o.B_TS, i]
        w[o.AT_RANK] = rank_at(w, batch, i)
        if waits and pass_time(c, w, out, ts) != 0:
            return o.HALTED
        side = batch[o.B_ORIGIN, i] >> 32
        trigger = 2 * w[o.AT_RANK] + side
        if w[o.EMITTED] < starts[i]:
            s = segment_of(w, 1 - side)
            cap, mask = s[seg.CAP], s[seg.MASK]
            ids, refs = ints(s[seg.ID], cap), ints(s[seg.REF], cap)
            own = batch[o.B_REF, i]
            while w[o.EMITTED] < starts[i]:
                if plain:
                    if room(c, w) != 0:
                        return o.HALTED
                    put_run(w, s, ps[side], batch[o.B_PROBE, i], ts, trigger, own, pairs[3], starts[i], ids, refs, out)
                    continue
                place = pairs[3, w[o.EMITTED]]
                if w[o.MARK_ROWS] and mark_up_to(c, w, batch, ps[side], i, ts, trigger, place, out) != 0:
                    return o.HALTED
                if room(c, w) != 0:
                    return o.HALTED
                at = place & mask
                left, right = (own, refs[at]) if side == 0 else (refs[at], own)
                first = noted == 0 or first_match(w, side, i, at, batch, ps)
                if first and holds(w, s, ps[side], batch[o.B_PROBE, i], at):
                    put(w, out, ts, trigger, ids[at], left, right)
                w[o.EMITTED] += 1
        if w[o.MARK_EVERY] and mark_trigger(c, w, batch, ps[side], i, ts, trigger, out) != 0:
            return o.HALTED
        w[o.AT] += 1
    return 0


@inner
def emit_found(c, w, batch, ps, pairs, out):
    """All pairs of the part as the probes found them, the left side's first: 0, or HALTED. Of inner joins only.

    AT stays where it was until all are out: no trigger of the part is done before.
    """
    if w[o.AT] < w[o.TO]:
        w[o.AT_RANK] = rank_at(w, batch, w[o.AT])
    for side in range(2):
        p, end = ps[side], w[o.SPLIT] if side == 0 else w[o.PAIRS]
        s = segment_of(w, 1 - side)
        cap, mask = s[seg.CAP], s[seg.MASK]
        ids, refs = ints(s[seg.ID], cap), ints(s[seg.REF], cap)
        while w[o.EMITTED] < end:
            if room(c, w) != 0:
                return o.HALTED
            k, at = pairs[0, w[o.EMITTED]], pairs[1, w[o.EMITTED]] & mask
            own = p[o.P_REF, k]
            left, right = (own, refs[at]) if side == 0 else (refs[at], own)
            if holds(w, s, p, k, at):
                put(w, out, p[o.P_TS, k], 2 * rank_at(w, batch, p[o.P_BATCH, k]) + side, ids[at], left, right)
            w[o.EMITTED] += 1
    w[o.AT] = w[o.TO]
    return 0


@inner
def holds(w, s, p, k, at):
    """Whether the pair of probe k and the row at this place of segment s is this worker's to give out: by values, if both are
    here for the table that holds for the probe (`stretches`).
    """
    return w[o.PARTED] == 0 or (p[o.P_HOLDS, k] & ints(s[seg.WORD], s[seg.CAP])[at]) != 0


@inner
def mark_up_to(c, w, batch, p, i, ts, trigger, place, out):
    """Put the marks of batch position i that stand before the row at this place of the sub-window: 0, or HALTED.

    One after each MARK_ROWS rows, counted from the stream's first tuple, so that all workers' sub-windows are cut where this
    one's is. MARKED is the next of them, -1 where the trigger has not begun. An example: three workers, a mark every two
    comparisons. The last one's sub-window holds the stream's tuples 2, 5, 8, 11: after 5, with which all workers together
    have compared tuples 0 to 5, stands a mark, and after 11 the next.
    """
    k, rows = batch[o.B_PROBE, i], w[o.MARK_ROWS]
    if w[o.MARKED] < 0:
        w[o.MARKED] = p[o.P_LO, k] // rows
    while w[o.MARKED] < place // rows:
        if room(c, w) != 0:
            return o.HALTED
        w[o.MARKED] += 1
        put_mark(w, out, ts, trigger, w[o.MARKED] * rows * w[o.STORE_EVERY + 1 - (trigger & 1)] - 1)
    return 0


@inner
def mark_trigger(c, w, batch, p, i, ts, trigger, out):
    """Put the marks that stand behind the results of batch position i: 0, or HALTED.

    Those of the comparisons that are left, then the trigger's own, if MARK_EVERY triggers are over.
    """
    if w[o.MARK_ROWS] and mark_up_to(c, w, batch, p, i, ts, trigger, p[o.P_HI, batch[o.B_PROBE, i]], out) != 0:
        return o.HALTED
    if ((trigger >> 1) + 1) % w[o.MARK_EVERY] == 0:
        if room(c, w) != 0:
            return o.HALTED
        put_mark(w, out, ts, trigger, o.WHOLE)
    w[o.MARKED] = -1
    return 0


@inner
def first_match(w, side, i, partner, batch, ps):
    """Note that the rows of a pair have matched, on the sides that are asked for; whether the pair is a result.

    The trigger is of `side`, and has the place that it was given in its own segment; `partner` is the other one's place.
    """
    before = 0
    for s in range(2):
        if w[o.NOTED + s]:
            matched = flags_of(w, s)
            at = partner if side != s else ps[side][o.P_POSITION, batch[o.B_PROBE, i]] & segment_of(w, s)[seg.MASK]
            if s == 0:
                before = matched[at]
            matched[at] = 1
    return w[o.HOW] != o.ANTI and (w[o.HOW] != o.SEMI or before == 0)


@inner
def flags_of(w, side):
    """Which rows of a side have matched, as this worker has found: its own part of the segment's flags."""
    s = segment_of(w, side)
    return octets(s[seg.MATCHED] + w[o.SHARER + side] * s[seg.CAP], s[seg.CAP])


@inner
def pass_time(c, w, out, ts):
    """Give out rows that no tuple at or after `ts` can be the partner of: 0, or HALTED.

    By the moment that they are due at, left ones first. UNDECIDED moves over a side's rows in the order of their coming; a row
    that has matched is passed in silence.
    """
    while True:
        side = next_due(w, ts)
        if side < 0:
            return 0
        s = segment_of(w, side)
        cap, at = s[seg.CAP], w[o.UNDECIDED + side] & s[seg.MASK]
        if not flags_of(w, side)[at]:
            if room(c, w) != 0:
                return o.HALTED
            ref = ints(s[seg.REF], cap)[at]
            none = o.NO_ROW
            if w[o.ALONE + side] < 0:
                none = -(ints(s[seg.WORD], cap)[at] >> seg.BY)
            left, right = (ref, none) if side == 0 else (none, ref)
            moment = due(ints(s[seg.TS], cap)[at], w[o.BACK + 1 - side])
            put(w, out, moment, o.UNMATCHED + side, ints(s[seg.ID], cap)[at], left, right)
        w[o.UNDECIDED + side] += 1


@inner
def next_due(w, ts):
    """The side of the next row whose time is up before `ts`; -1 if there is none. A row waits as long as tuples of the other
    side look back.
    """
    found, least = -1, AFTER_ALL
    for side in range(2):
        if w[o.ALONE + side] and w[o.UNDECIDED + side] < w[o.MET + side]:
            s = segment_of(w, side)
            time, back = ints(s[seg.TS], s[seg.CAP])[w[o.UNDECIDED + side] & s[seg.MASK]], w[o.BACK + 1 - side]
            # Not ts of the row + back, which may be more than 63 bits hold.
            if ts == AFTER_ALL or time < ts - back:
                moment = due(time, back)
                if found < 0 or moment < least:
                    found, least = side, moment
    return found


@inner
def due(time, back):
    """The last moment at which a partner can come; AFTER_ALL where 63 bits do not hold it."""
    return AFTER_ALL if time > AFTER_ALL - 1 - back else time + back


@inner
def put_run(w, s, p, k, ts, trigger, own, places, end, ids, refs, out):
    """The pairs of one trigger, from EMITTED up to `end`, or as many as there is room for: of an inner join, without marks.

    As `put` for each, with nothing read or written twice: many results of a tuple are what takes a worker's time. `k` is the
    trigger's number among the probes `p`, `places` those of its partners in segment s.
    """
    first, tail, ring, mask = w[o.EMITTED], w[o.EMIT_TAIL], w[o.OUT_MASK], s[seg.MASK]
    last = min(end, first + ring + 1 - (tail - load_acquire(w, o.OUT_HEAD)))
    side, to = trigger & 1, tail
    for j in range(first, last):
        at = places[j] & mask
        if holds(w, s, p, k, at):
            entry = to & ring
            out[entry, o.E_TS] = ts
            out[entry, o.E_TRIGGER] = trigger
            out[entry, o.E_PARTNER] = ids[at]
            out[entry, o.E_LEFT + side] = own
            out[entry, o.E_RIGHT - side] = refs[at]
            to += 1
    w[o.EMITTED] = last
    w[o.EMIT_TAIL] = to
    w[shared.RESULTS] += to - tail


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
def put_mark(w, out, ts, trigger, partner):
    """One mark at the ring's end; there must be room.

    It stands where a result of this trigger and partner would, behind it; it has no rows, by which it is known.
    """
    put(w, out, ts, trigger, partner, o.NO_ROW, o.NO_ROW)
    w[shared.RESULTS] -= 1


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
def publish_part(c, w, rank, ts):
    """Make known that a part of the batch is done: the tuples below this rank, and all moments before `ts`, the next tuple's.
    What is live waits for the whole.
    """
    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])
    store_release(w, o.DONE_RANK, rank)
    store_release(w, o.DONE_TS, max(w[o.DONE_TS], ts))
    fence()
    wake_gatherer(c)


@inner
def wake_gatherer(c):
    """After results were published and a fence."""
    if load_acquire(c, o.OUT_SLEEPERS) > 0:
        fetch_add(c, o.OUT_EVENT, 1)
        wake_all(c, o.OUT_EVENT)


# --- how long tuples took -----------------------------------------------------------------------------------------------


@inner
def note_sample(w, batch, ps, pairs, now):
    """Note one tuple of the part that was just probed, and one of the pairs found; nothing where there is no room.

    Which tuple goes by the batch's rank, so that it is the first of its batch as often as the last.
    """
    tail = w[o.SAMPLE_TAIL]
    if w[o.FROM] == w[o.TO] or tail - load_acquire(w, o.SAMPLE_HEAD) >= o.SAMPLE_ROOM:
        return
    rows = ints(w[o.SAMPLES], o.SAMPLE_ROOM * o.S_WORDS)
    at = (tail & (o.SAMPLE_ROOM - 1)) * o.S_WORDS
    i = w[o.FROM] + w[o.RANK] * 7919 % (w[o.TO] - w[o.FROM])
    rows[at + o.S_RANK] = rank_at(w, batch, i)
    rows[at + o.S_SIDE] = batch[o.B_ORIGIN, i] >> 32
    rows[at + o.S_REF] = batch[o.B_REF, i]
    rows[at + o.S_BEGAN] = w[o.STORED_NS]
    rows[at + o.S_FOUND] = now
    rows[at + o.S_PARTNER] = o.NO_ROW
    if w[o.PAIRS] > 0:
        k = w[o.PAIRS] // 2
        if w[o.SORTS] == o.AS_FOUND:
            side = 0 if k < w[o.SPLIT] else 1
            own, place = ps[side][o.P_REF, pairs[0, k]], pairs[1, k]
        else:
            side = batch[o.B_ORIGIN, pairs[2, k]] >> 32
            own, place = batch[o.B_REF, pairs[2, k]], pairs[3, k]
        s = segment_of(w, 1 - side)
        rows[at + o.S_PAIR_SIDE] = side
        rows[at + o.S_PAIR_REF] = own
        rows[at + o.S_PARTNER] = ints(s[seg.REF], s[seg.CAP])[place & s[seg.MASK]]
    store_release(w, o.SAMPLE_TAIL, tail + 1)
