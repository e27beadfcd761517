"""The loop that every worker runs, whatever the strategy: read, store, probe, emit. One compiled function, no GIL.

A strategy is words in the worker's memory (`words`): which tuples it stores, which it compares, in which segments,
who writes these. Invariants:

- Every worker takes the same sequence of ready tuples from the gate (or from its parent in a distribution tree), so
  that all number tuples, and every segment's rows, alike, and need to tell one another nothing about it.
- A batch is stored before the worker waits for anybody. So whoever waits for rows waits for a worker that is behind
  it in the sequence, and the one that is furthest behind waits for no rows. It may wait for room for its results; these are
  given out when every worker is done with the tuples before them, all of whose rows are stored: whoever waits for rows goes on
  with the tuples that have theirs, and says so. Whoever waits for a sharer to give rows up has the segment grown instead, if that
  takes long: the sharer may be in the midst of a longer batch, and wait for it. So there is no circle
  (tests/threads/join/test_midst_interleavings.py, test_full_rings.py).
- It returns to Python only to have memory grown or an index built, to stand still while that is done for another,
  because a kernel failed, or at the end. PHASE and the words beside it say where it was, so it goes on from there.
- What it has done is published after each batch: results, then DONE_RANK and DONE_TS, then the first valid positions.

The condition's kernels are called through addresses, once a batch and side. They are the only code made for the
query: this loop is compiled once, and kept by Numba's cache for every query there is.

An example: two workers by ScaleJoin, left tuples L0 L1 L2, right tuples R0 R1, in the order L0 R0 L1 L2 R1. Both
workers see all five. Worker 0 stores L0 L2 R0, worker 1 stores L1 R1. Worker 0 compares R0 with L0, L1 with R0, L2
with R0, R1 with L0 and L2; worker 1 compares R1 with L1. Each pair is compared once: where its earlier tuple is
stored.

The phases of a batch: READING (tuples from the gate or the parent), FEEDING (hand them to the children, number them,
copy their columns), STORING, HANDING_ON (with an Emitter: tell the neighbours), MEETING (wait for the writers of shared
segments), PROBING and EMITTING (in parts, if a batch has more pairs than the buffers, or not all rows are there yet), CLOSING
(unmatched rows whose time has passed, expiry, publication).

Arguments that most functions here take: `gate` the gate's words, `c` the control words, `w` the worker's words,
`arena` the table of the sources' columns, `batch` the batch arrays, `p` a side's probes, `ps` and `us` both sides'
probes and flags.
"""

from __future__ import annotations

import numpy as np
from numba import carray

from plait.core.condition import native
from plait.core.join.reach import NUMBER, first_met_compiled
from plait.core.machine.line import LINE
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.atomics import load_acquire, sched_yield, store_release
from plait.threads.atomics.native import clock_ns, compiled, inner, ints, nap, octets, pointer_at
from plait.threads.gate import codes, either, epochs
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.gate.words import FRONTIER as GATE_FRONTIER
from plait.threads.gate.words import READY_EVENT, reader_at
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.feed import publish_frontier, read_feed, write_feed
from plait.threads.join.loop.grid import arrange_grid, hand_on, own_only, rank_at, read_grid, tell_gate
from plait.threads.join.loop.out import emit, note_sample, pass_time, publish_part, publish_progress
from plait.threads.join.loop.probe import in_order, probe_side, segment_of
from plait.threads.join.loop.stretches import arrange_parted

SPINS = 8  # looks at the gate before a worker sleeps
PATIENCE = 64  # turns that a worker waits for all rows of its batch, before it makes do with those that are there
GROW_AFTER = 256  # turns that a writer waits for a sharer to give rows up, some 20 ms
SLICE_NS = 1_000_000_000


@inner
def take(gate, c, w, batch):
    """The next ready tuples: how many, 0 if there were none or the workers are to stand still, or a code.

    Yields SPINS times, then sleeps for a second at most: on the gate's event, or on the feeds' for a worker below the
    root. After `prepare` the tuples and HALT are looked at once more, so neither can be missed. Time that passed without
    tuples is news, too: what it lets out must not wait for the next promise.
    """
    if w[o.SLICED]:
        return take_slice(gate, w, batch)
    known = w[o.FRONTIER]
    number = take_once(gate, c, w, batch)
    for _ in range(SPINS):
        if number != 0 or w[o.FRONTIER] > known:
            return number
        sched_yield()
        number = take_once(gate, c, w, batch)
    if number != 0 or w[o.FRONTIER] > known:
        return number
    store_release(w, shared.WAITS, shared.FOR_TUPLES)
    if w[o.FEED] or w[o.GRID_IN]:
        ticket = prepare(c, o.FEED_EVENT)
        number = take_once(gate, c, w, batch)
        if number != 0 or w[o.FRONTIER] > known or load_acquire(c, shared.HALT) != 0:
            cancel(c, o.FEED_EVENT)
        else:
            sleep(c, o.FEED_EVENT, ticket, SLICE_NS)
    else:
        ticket = prepare(gate, READY_EVENT)
        number = take_once(gate, c, w, batch)
        if number != 0 or w[o.FRONTIER] > known or load_acquire(c, shared.HALT) != 0:
            cancel(gate, READY_EVENT)
        else:
            sleep(gate, READY_EVENT, ticket, SLICE_NS)
    store_release(w, shared.WAITS, shared.NOTHING)
    return number


@inner
def take_once(gate, c, w, batch):
    """The next ready tuples without waiting: how many, 0, or a code.

    FRONTIER moves only when all that was ready is here; else tuples below the reader's frontier are still to come.
    """
    if w[o.FEED]:
        return read_feed(gate, c, w, batch)
    if w[o.GRID_IN]:
        return read_grid(c, w, batch)
    number = either.read(gate, w[o.SEAT], w[o.MOST], batch[o.B_TS], batch[o.B_ORIGIN], batch[o.B_SEQ], batch[o.B_REF])
    if number < w[o.MOST]:
        # All that was ready is here: time has passed up to the reader's frontier.
        w[o.FRONTIER] = max(w[o.FRONTIER], gate[reader_at(gate, w[o.SEAT]) + GATE_FRONTIER])
    return number


@inner
def take_slice(gate, w, batch):
    """As `take_once`, but up to the next switch of epochs: what was read behind it is kept for whoever serves this next."""
    number = epochs.take(
        gate, ints(w[o.SLICED], 1 << 40), w[o.SEAT], w[o.MOST], batch[o.B_TS], batch[o.B_ORIGIN], batch[o.B_SEQ],
        batch[o.B_REF], w, o.OWN,
    )  # fmt: skip
    if number >= 0 and w[o.OWN + epochs.ALL] and w[o.OWN + epochs.AHEAD] == 0:
        w[o.FRONTIER] = max(w[o.FRONTIER], gate[reader_at(gate, w[o.SEAT]) + GATE_FRONTIER])
    return number


@inner
def feed(c, w, batch):
    """Hand the batch down to the children; false if the workers are to stand still first."""
    while not write_feed(c, w, batch):
        store_release(w, shared.WAITS, shared.FOR_CHILD)
        if load_acquire(c, shared.HALT) != 0:
            return False
        ticket = prepare(c, o.FEED_EVENT)
        if not write_feed(c, w, batch) and load_acquire(c, shared.HALT) == 0:
            sleep(c, o.FEED_EVENT, ticket, SLICE_NS)
        else:
            cancel(c, o.FEED_EVENT)
    store_release(w, shared.WAITS, shared.NOTHING)
    return True


@inner
def arrange(w, batch, n, ps):
    """Number the batch's tuples, and find those that this worker compares and those that it stores.

    Plain arithmetic: a tuple's number in its stream is NEXT of its side; `turn` and `own` are that number modulo
    PROBE_EVERY and STORE_EVERY, counted instead of divided. P_HI is where the other side's segment ends for this
    tuple: rows that follow it in the order are not met. P_PRECEDING counts the other stream's tuples before it, for
    windows that count.
    """
    for side in range(2):
        w[o.PROBES + side] = 0
        w[o.STORES + side] = 0
    for i in range(n):
        origin = batch[o.B_ORIGIN, i]
        side = origin >> 32
        p = ps[side]
        batch[o.B_ENDS, i], batch[o.B_ENDS + 1, i] = w[o.ENDS], w[o.ENDS + 1]
        number = w[o.NEXT + side]
        w[o.NEXT + side] = number + 1
        turn = w[o.PROBE_TURN + side]
        w[o.PROBE_TURN + side] = turn + 1 if turn + 1 < w[o.PROBE_EVERY + side] else 0
        own = w[o.STORE_TURN + side]
        w[o.STORE_TURN + side] = own + 1 if own + 1 < w[o.STORE_EVERY + side] else 0
        batch[o.B_PROBE, i] = -1
        if turn == w[o.PROBE_AT + side]:
            k = w[o.PROBES + side]
            w[o.PROBES + side] = k + 1
            batch[o.B_PROBE, i] = k
            p[o.P_TS, k] = batch[o.B_TS, i]
            p[o.P_REF, k] = batch[o.B_REF, i]
            p[o.P_ID, k] = number
            p[o.P_BATCH, k] = i
            p[o.P_HI, k] = w[o.ENDS + 1 - side]
            p[o.P_PRECEDING, k] = w[o.NEXT + 1 - side]
            p[o.P_SLOT, k] = origin & shared.SLOT_MASK
            p[o.P_PLACE, k] = batch[o.B_SEQ, i] & w[o.ARENA_MASK]
            p[o.P_POSITION, k] = w[o.ENDS + side]
            if own == w[o.STORE_AT + side]:
                p[o.P_STORE, w[o.STORES + side]] = k
                w[o.STORES + side] += 1
        if own == w[o.STORE_AT + side]:
            w[o.ENDS + side] += 1


@inner
def lay_out(w, side, p, usable, arena):
    """Copy what the condition and the index need of this side's probes from their sources' arenas, column by column.

    An arena has room for the source's tuples in the gate, for a batch that a worker has taken, and for a chunk in
    front: so what is copied here has not been overwritten (`input.push`). Columns are of 8, 4 or 1 bytes.
    """
    n, size = w[o.PROBES + side], w[o.ARENA_MASK] + 1
    slots, places = p[o.P_SLOT], p[o.P_PLACE]
    if w[o.HAS_NODE]:
        for f in range(3):
            for k in range(n):
                p[o.P_KEY + f, k] = ints(arena[slots[k], shared.A_KEY + f], size)[places[k]]
        for k in range(n):
            usable[k] = octets(arena[slots[k], shared.A_USABLE], size)[places[k]]
    for c in range(w[o.NCOLS + side]):
        width = w[o.LEFT_SIZES + o.MAX_COLS * side + c]
        target = w[o.COLUMNS + o.MAX_COLS * side + c]
        at = shared.A_COLUMNS + c
        if width == 8:
            a = ints(target, w[o.MOST])
            for k in range(n):
                a[k] = ints(arena[slots[k], at], size)[places[k]]
        elif width == 4:
            b = carray(pointer_at(target), w[o.MOST], dtype=np.int32)
            for k in range(n):
                b[k] = carray(pointer_at(arena[slots[k], at]), size, dtype=np.int32)[places[k]]
        else:
            d = octets(target, w[o.MOST])
            for k in range(n):
                d[k] = octets(arena[slots[k], at], size)[places[k]]


@inner
def pass_a_while(c, w, whom, spins):
    """One turn of waiting for another worker, told to the watchdog; false if the run is being halted.

    Yields 63 times, then naps for 30 microseconds a turn. No event is slept on: what is waited for is another worker's
    current batch.
    """
    store_release(w, shared.WAITS, whom)
    if load_acquire(c, shared.HALT) != 0:
        return False
    if spins < 63:
        sched_yield()
    else:
        nap(30)
    return True


@inner
def store(c, w, side, p, usable):
    """Append this side's rows, if this worker writes the segment: 0, or a code.

    The writer needs END + n - least FIRST <= CAP. If it is this worker's own live rows that fill the segment, it has
    to grow; if another sharer is behind, that one will soon be through, and waiting is cheaper than growing. But not for ever: it
    gives rows up after its batch, and that may be longer than this worker's last one. Then it waits for what is stored here, or
    for room for results that are given out when this worker has come so far.
    """
    n = w[o.STORES + side]
    if n == 0 or w[o.WRITER + side] == 0:
        return 0
    s = segment_of(w, side)
    cap, spins = s[seg.CAP], 0
    while s[seg.END] + n - seg.first_valid(s) > cap:
        # Grow if this worker itself needs most of it; else some other sharer is behind, and will be through soon.
        own = load_acquire(s, seg.FIRST + w[o.SHARER + side] * LINE)
        if s[seg.SHARERS] == 1 or 2 * (s[seg.END] + n - own) > cap or spins >= GROW_AFTER:
            w[o.NEED_SIDE] = side
            w[o.NEED] = n
            return o.GROW_SEGMENT
        if not pass_a_while(c, w, shared.FOR_SHARER, spins):
            return o.HALTED
        spins += 1
    store_release(w, shared.WAITS, shared.NOTHING)
    columns = w[o.COLUMNS + o.MAX_COLS * side : o.COLUMNS + o.MAX_COLS * side + o.MAX_COLS]
    seg.append(
        s,
        n,
        p[o.P_STORE],
        p[o.P_TS],
        p[o.P_ID],
        p[o.P_REF],
        p[o.P_KEY],
        p[o.P_X],
        p[o.P_Y],
        usable,
        p[o.P_WORD],
        columns,
    )
    w[o.STORES + side] = 0
    return 0


@inner
def meet(c, w, batch):
    """Wait until the segments' writers have stored what the batch may meet from FROM on: 0, or HALTED. TO is how far that goes.

    Only DP-Join's shared segments make anybody wait here. ENDS is what the segment will hold after this batch: every
    worker counts that alike, so no message is needed.

    Who has waited for long goes on with the tuples whose rows are there. The writer may be waiting for room in its ring: what it
    has there is given out only when this worker is done with the tuples that it belongs to; of rows without a partner, when this
    worker has passed their moment. So there is a part without tuples, too: time passes to the next one's.
    """
    spins = 0
    while True:
        left, right = load_acquire(segment_of(w, 0), seg.END), load_acquire(segment_of(w, 1), seg.END)
        if left >= w[o.ENDS] and right >= w[o.ENDS + 1]:
            w[o.TO], w[o.MET], w[o.MET + 1] = w[o.COUNT], w[o.ENDS], w[o.ENDS + 1]
            break
        if spins >= PATIENCE:
            to = w[o.FROM]
            here = batch[o.B_ENDS, to] <= left and batch[o.B_ENDS + 1, to] <= right
            while to + 1 < w[o.COUNT] and batch[o.B_ENDS, to + 1] <= left and batch[o.B_ENDS + 1, to + 1] <= right:
                to += 1
            if to > w[o.FROM] or (here and w[o.ALONE] | w[o.ALONE + 1] and w[o.DONE_TS] < batch[o.B_TS, to]):
                w[o.TO], w[o.MET], w[o.MET + 1] = to, batch[o.B_ENDS, to], batch[o.B_ENDS + 1, to]
                break
        if not pass_a_while(c, w, shared.FOR_WRITER, spins):
            return o.HALTED
        spins += 1
    store_release(w, shared.WAITS, shared.NOTHING)
    return 0


@inner
def probe(w, batch, ps, us, pairs, over, ranges, walk, tally):
    """Find the pairs of batch positions FROM to TO, in order as far as SORTS asks for it: 0, or a code.

    Both sides' probes write into one pair of buffers, the left side's first; `split` is where the right side's begin.
    If the buffers are full, LO is set back and the part is tried again: larger buffers up to 2**20 pairs, then half
    the part.
    """
    while True:
        tally[1], tally[2], tally[3] = 0, w[o.PROBES], w[o.PROBES + 1]
        lo0, lo1 = w[o.LO], w[o.LO + 1]
        found, split, tuples = tally[1], tally[1], 0  # not a literal 0, see `work`
        for side in range(2):
            if found >= 0 and w[o.STORES_ONLY] == 0:
                p, first = ps[side], w[o.DONE_PROBES + side]
                last = first
                while last < w[o.PROBES + side] and p[o.P_BATCH, last] < w[o.TO]:
                    last += 1
                tally[2 + side] = last
                split = found
                found = probe_side(w, side, p, us[side], first, last, found, pairs, over, ranges, walk, tally)
                tuples += last - first
        if found >= 0:
            break
        w[o.LO], w[o.LO + 1] = lo0, lo1
        if found == native.FAILED:
            return o.KERNEL_FAILED
        if found == -o.BUILD_INDEX:
            return o.BUILD_INDEX
        # Too many pairs for the buffers: larger ones, up to a point; then a shorter part of the batch.
        if pairs.shape[1] < 1 << 20 or w[o.TO] - w[o.FROM] == 1:
            return o.GROW_PAIRS
        w[o.TO] = w[o.FROM] + (w[o.TO] - w[o.FROM]) // 2
    w[o.DONE_PROBES], w[o.DONE_PROBES + 1] = tally[2], tally[3]
    w[shared.COMPARISONS] += tally[1]
    w[shared.TUPLES] += tuples
    if w[o.SORTS] != o.AS_FOUND:
        in_order(w, batch, w[o.FROM], w[o.TO], ps, found, split, pairs, walk[0])
    w[o.PAIRS], w[o.SPLIT] = found, split
    w[o.EMITTED] = 0
    w[o.AT] = w[o.FROM]
    return 0


@inner
def first_live(w, side, last_ts):
    """The first place of this side's stream that a tuple after the batch can meet."""
    at = w[o.NEXT + side] if w[o.PLACES] == NUMBER else last_ts
    return first_met_compiled(w[o.BACK + 1 - side], w[o.STEP], at)


@inner
def expire(w, last_ts):
    """Find what no tuple at or after `last_ts` can meet, and publish where the rest begins.

    FIRST is released: the writer may now overwrite rows below. Rows that are results without a partner, too, stay until they
    are decided, even if nothing can meet them any more.
    """
    for side in range(2):
        s = segment_of(w, side)
        lo = seg.first_from(s, w[o.PLACES], w[o.LO + side], w[o.ENDS + side], first_live(w, side, last_ts))
        w[o.LO + side] = lo
        first = min(lo, w[o.UNDECIDED + side]) if w[o.ALONE + side] else lo
        store_release(s, seg.FIRST + w[o.SHARER + side] * LINE, first)


@inner
def live_ts(w, side, last_ts):
    """No row of this side with a lower ts can be in a result whose trigger follows this batch.

    Of a window that counts: its first live row here, which `expire` has found, or what comes after the batch.
    """
    if w[o.PLACES] != NUMBER:
        return first_live(w, side, last_ts)
    if w[o.LO + side] == w[o.ENDS + side]:
        return last_ts
    s = segment_of(w, side)
    return ints(s[seg.TS], s[seg.CAP])[w[o.LO + side] & s[seg.MASK]]


@inner
def publish(c, w, last_ts):
    """Publish how far this worker is. Before its first tuple nothing is known to be dead."""
    left, right = BEFORE_ALL, BEFORE_ALL
    if w[o.RANK] > 0:
        left, right = live_ts(w, 0, last_ts), live_ts(w, 1, last_ts)
    publish_progress(c, w, last_ts, left, right)


@inner
def read(gate, c, w, batch, then):
    """The next tuples, and on to the phase `then`; or to CLOSING, if time has passed without any. False: stopped.

    `then` is FEEDING for joins, PROBING for as-of. With no tuples the frontier may still have moved; then the batch is
    empty and CLOSING alone is done.
    """
    began = clock_ns(w, o.CLOCK)
    number = take(gate, c, w, batch)
    got = clock_ns(w, o.CLOCK)
    if number < 0 and number != codes.DONE:
        return False
    if number == codes.DONE:
        w[o.FRONTIER] = AFTER_ALL
        w[o.ENDED] = 1
        w[o.PHASE] = o.CLOSING
    elif number == 0:
        w[shared.NS_WAIT] += got - began
        # Time may have passed all the same: a heartbeat, or the end of a source.
        if w[o.FRONTIER] > w[o.DONE_TS]:
            w[o.PHASE] = o.CLOSING
    else:
        if w[o.GRID_IN] == 0:  # else these were messages, and COUNT says how many tuples
            w[o.COUNT] = number
        w[o.FED], w[o.AT] = 0, 0
        w[shared.BATCHES] += 1
        w[shared.NS_READ] += got - began
        w[o.PHASE] = then
    return True


@compiled
def work(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out):
    """Run until there is a reason to return to Python: one of the answers of `words`.

    `p0`, `p1` and `u0`, `u1`: probes and flags of left and right. `pairs`, `over`, `ranges`, `walk`, `tally`: scratch
    (`memory.Worker`). `out`: the ring of results. HALT is looked at once a batch, and in every wait.
    """
    # By side, and looped over: called with a literal 0 and 1, Numba would compile everything below twice.
    ps, us = (p0, p1), (u0, u1)
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        if w[o.PHASE] == o.READING:
            if not read(gate, c, w, batch, o.FEEDING):
                return o.STOPPED
            if w[o.SLICED] and w[o.PHASE] == o.READING:
                return o.SWITCH if w[o.OWN + epochs.SWITCHING] else o.IDLE
        if w[o.PHASE] == o.FEEDING:
            began = clock_ns(w, o.CLOCK)
            if w[o.FEED_OUT] and not feed(c, w, batch):
                return o.HALTED
            if w[o.GRID_IN]:
                arrange_grid(w, batch, ps)
            elif w[o.PARTED]:
                arrange_parted(w, batch, w[o.COUNT], ps, arena)
            else:
                arrange(w, batch, w[o.COUNT], ps)
            for side in range(2):
                lay_out(w, side, ps[side], us[side], arena)
            if w[o.GRID_IN]:
                tell_gate(gate, c, w)
            w[o.FROM], w[o.TO] = 0, w[o.COUNT]
            w[o.DONE_PROBES], w[o.DONE_PROBES + 1] = 0, 0
            w[o.PHASE] = o.STORING
            w[o.STORED_NS] = clock_ns(w, o.CLOCK)
            w[shared.NS_READ] += w[o.STORED_NS] - began
        if w[o.PHASE] == o.STORING:
            began = clock_ns(w, o.CLOCK)
            code = 0
            for side in range(2):
                if code == 0:
                    code = store(c, w, side, ps[side], us[side])
            w[shared.NS_STORE] += clock_ns(w, o.CLOCK) - began
            if code != 0:
                return code
            w[o.PHASE] = o.HANDING_ON if w[o.GRID_IN] else o.MEETING
        if w[o.PHASE] == o.HANDING_ON:
            began = clock_ns(w, o.CLOCK)
            if not hand_on(c, w, batch):
                return o.HALTED
            w[shared.NS_READ] += clock_ns(w, o.CLOCK) - began
            w[o.PHASE] = o.MEETING
        if w[o.PHASE] == o.MEETING:
            began = clock_ns(w, o.CLOCK)
            code = meet(c, w, batch)
            w[shared.NS_BLOCKED] += clock_ns(w, o.CLOCK) - began
            if code != 0:
                return code
            w[o.PHASE] = o.PROBING
        if w[o.PHASE] == o.PROBING or w[o.PHASE] == o.EMITTING:
            if w[o.PHASE] == o.PROBING:
                began = clock_ns(w, o.CLOCK)
                code = probe(w, batch, ps, us, pairs, over, ranges, walk, tally)
                now = clock_ns(w, o.CLOCK)
                w[shared.NS_PROBE] += now - began
                if code != 0:
                    return code
                if w[o.STORES_ONLY] == 0:
                    note_sample(w, batch, ps, pairs, now)
                w[o.PHASE] = o.EMITTING
            began = clock_ns(w, o.CLOCK)
            code = emit(c, w, batch, ps, pairs, out)
            w[shared.NS_EMIT] += clock_ns(w, o.CLOCK) - began
            if code != 0:
                return code
            if w[o.TO] == w[o.COUNT]:
                w[o.LAST_TS] = w[o.CUT_TS] if own_only(w) else batch[o.B_TS, w[o.COUNT] - 1]
                w[o.RANK] = w[o.CUT_RANK] if own_only(w) else w[o.RANK] + w[o.COUNT]
                w[o.PHASE] = o.CLOSING
            else:
                # A part: too many pairs for the buffers, or rows of others that were not there. The next may have to wait.
                ts, w[o.AT_RANK] = batch[o.B_TS, w[o.TO]], rank_at(w, batch, w[o.TO])
                if w[o.ALONE] | w[o.ALONE + 1] and pass_time(c, w, out, ts) != 0:
                    return o.HALTED
                w[o.FROM] = w[o.TO]
                publish_part(c, w, w[o.AT_RANK], ts)
                w[o.PHASE] = o.MEETING
        if w[o.PHASE] == o.CLOSING:
            if w[o.ALONE] or w[o.ALONE + 1]:
                code = pass_time(c, w, out, max(w[o.FRONTIER], w[o.LAST_TS]))
                if code != 0:
                    return code
            if w[o.RANK] > 0:
                expire(w, w[o.LAST_TS])
            publish(c, w, w[o.LAST_TS])
            w[o.PHASE] = o.READING
            if w[o.FEED_OUT]:
                publish_frontier(c, w)
            if w[o.ENDED]:
                return o.FINISHED
            if w[o.SLICED]:
                return o.SWITCH if w[o.OWN + epochs.SWITCHING] else o.SLICE
