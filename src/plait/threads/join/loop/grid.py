"""DP-Join's Emitter (section 4.3): a tuple is sent to the first worker of its row or column, and handed on from worker to worker.

One thread, the Emitter, reads the gate. A left tuple goes to the first worker of its row, a right one to the first of its column,
by turns. That worker writes the segment that the row or column shares; then it tells its neighbour (4.4.2: the segment is
modified first, the others are notified). So each worker has two feeds, one for each side, and hears of its own tuples only.

What is handed on is a message of six words: a tuple, by reference, or a mark. A tuple's message has its number in its stream and
its rank, its place among all tuples. A mark is a fact about the run: all tuples of lower rank have been sent, and all tuples
below its frontier have a lower rank. Invariants:

- A worker takes messages of both feeds by rank, up to the lower of the ranks that the feeds have come to. So it meets tuples in
  total order, though it sees few of them: what the law asks, and the paper's workers, who take tuples as they come, do not have.
- After each batch a worker hands on its tuples and one mark. A mark of the Emitter goes to all rows and columns after every
  batch that it reads. So no worker waits for one that has nothing for it.
- The worker that has come least far waits for nobody: all before it have said more than it knows, a feed has room for what
  it hands on in one batch, and everybody who shares its segments has outlived as much as it has itself. There is no circle
  (tests/threads/join/test_emitter_interleavings.py).
- A source's columns (the arenas) are read by the workers. So a worker holds a seat at the gate, and says how much of each source
  was sent before the last mark it took: as the Emitter noted it, in a table with a row a mark. A row is written again when
  every worker has told it (TOLD).

An example: 2 x 2, left tuples L0 L1, right tuple R0, in the order L0 R0 L1. The Emitter sends L0 to worker 0 (row 0), R0 to
worker 0 (column 0), L1 to worker 2 (row 1). Worker 0 stores both, compares R0 with L0, tells worker 1 of L0 and worker 2 of R0.
Worker 2 has L1 with rank 2 and waits until worker 0 has said that all right tuples below rank 2 are handed on: then it compares
L1 with R0. «Everyone reads all» would have four workers look at three tuples each, twelve looks; here there are five.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray

from plait.core.machine.line import LINE
from plait.threads import words as shared
from plait.threads.atomics import fence, load_acquire, store_release
from plait.threads.atomics.native import inner, ints, pointer_at
from plait.threads.gate.flow import cancel, prepare, sleep, stand_on, told
from plait.threads.gate.frontier import wake_sources
from plait.threads.gate.words import read_at
from plait.threads.join.loop import words as o
from plait.threads.join.loop.feed import DATA, HEADS, MASK, TAIL, wake_feed

# Of a feed's block, beside what `feed` has: the writer's own, on the line of TAIL.
PUT: Final = 19  # messages written; TAIL says how many of them may be read
HEARD: Final = 20  # the reader's HEAD, as it was seen last

#: Rows of a feed's ring. Of a mark: the frontier, MARK or END, its row of the table, the last ts, left tuples so far, rank.
M_TS, M_ORIGIN, M_SEQ, M_REF, M_NUMBER, M_RANK = range(6)
M_ROWS: Final = 6
MARK: Final = -1
END: Final = -2  # the last one

#: Marks that the Emitter may be ahead of the slowest worker.
MARKS: Final = 256

SLICE_NS = 1_000_000_000


@inner
def messages_of(f):
    return carray(pointer_at(f[DATA]), (M_ROWS, f[MASK] + 1), dtype=np.int64)


@inner
def feed_at(address):
    return ints(address, HEADS + LINE)


@inner
def has_room(f):
    """Whether a message can be written; the reader's HEAD is looked at only where it seems not."""
    if f[PUT] - f[HEARD] <= f[MASK]:
        return True
    f[HEARD] = load_acquire(f, HEADS)
    return f[PUT] - f[HEARD] <= f[MASK]


@inner
def put_message(f, ts, origin, seq, ref, number, rank):
    """Write a message; there must be room. `show` lets it be read."""
    data, at = messages_of(f), f[PUT] & f[MASK]
    data[M_TS, at] = ts
    data[M_ORIGIN, at] = origin
    data[M_SEQ, at] = seq
    data[M_REF, at] = ref
    data[M_NUMBER, at] = number
    data[M_RANK, at] = rank
    f[PUT] += 1


@inner
def show(f):
    """Let the reader see what was written; true if that is more than before."""
    if f[PUT] == f[TAIL]:
        return False
    store_release(f, TAIL, f[PUT])
    return True


@inner
def put_mark(w, f):
    """What this worker, or the Emitter, knows: how far it has come. The last one is an END."""
    origin = END if w[o.ENDED] else MARK
    put_message(f, w[o.FRONTIER], origin, w[o.CUT_MARK], w[o.CUT_TS], w[o.CUT_LEFT], w[o.CUT_RANK])


@inner
def own_only(w):
    """Whether the batch has this worker's tuples only: each has its rank beside it, and CUT_RANK and CUT_TS say where it ends."""
    return w[o.GRID_IN] != 0 or w[o.PARTED] != 0


@inner
def rank_at(w, batch, i):
    """The rank of the tuple at a position of the batch: its own words say so, or it is counted from the batch's first."""
    return batch[o.B_RANK, i] if own_only(w) else w[o.RANK] + i


# --- a worker takes and hands on ------------------------------------------------------------------------------------


@inner
def survey(w, side, f, head, tail):
    """Note how far a feed has come: below which rank nothing more comes through it, how many left tuples and which ts that is."""
    if tail == head:
        return
    data, at = messages_of(f), (tail - 1) & f[MASK]
    origin, number, rank = data[M_ORIGIN, at], data[M_NUMBER, at], data[M_RANK, at]
    if origin < 0:
        w[o.HEARD_RANK + side], w[o.HEARD_LEFT + side], w[o.HEARD_TS + side] = rank, number, data[M_REF, at]
    else:
        w[o.HEARD_RANK + side], w[o.HEARD_TS + side] = rank + 1, data[M_TS, at]
        w[o.HEARD_LEFT + side] = number + 1 if side == 0 else rank - number


@inner
def place_of(f, head, tail):
    """Where the next message stands among all: a mark before the tuple of its rank, after all lower ones."""
    if head == tail:
        return np.int64(1) << 62
    data, at = messages_of(f), head & f[MASK]
    return 2 * data[M_RANK, at] + (0 if data[M_ORIGIN, at] < 0 else 1)


@inner
def read_grid(c, w, batch):
    """Take what both neighbours have handed on: how many messages. COUNT says how many tuples are among them.

    CUT_RANK is where the batch ends: this worker has all of its tuples of a lower rank, and none of a higher one.
    """
    left, right = feed_at(w[o.GRID_IN]), feed_at(w[o.GRID_IN + 1])
    tail0, tail1 = load_acquire(left, TAIL), load_acquire(right, TAIL)
    head0, head1 = left[HEADS], right[HEADS]
    if tail0 == head0 and tail1 == head1:
        return 0
    survey(w, 0, left, head0, tail0)
    survey(w, 1, right, head1, tail1)
    lower = 0 if w[o.HEARD_RANK] <= w[o.HEARD_RANK + 1] else 1
    until = 2 * w[o.HEARD_RANK + lower] + 1  # marks of that rank are taken, its tuple is not
    number, taken = 0, 0
    place0, place1 = place_of(left, head0, tail0), place_of(right, head1, tail1)
    while min(place0, place1) < until and number < w[o.MOST]:
        side = 0 if place0 <= place1 else 1
        if side == 0:
            f, at = left, head0 & left[MASK]
            head0 += 1
        else:
            f, at = right, head1 & right[MASK]
            head1 += 1
        data = messages_of(f)
        taken += 1
        if data[M_ORIGIN, at] < 0:
            hear_mark(w, side, data, at)
        else:
            batch[o.B_TS, number] = data[M_TS, at]
            batch[o.B_ORIGIN, number] = data[M_ORIGIN, at]
            batch[o.B_SEQ, number] = data[M_SEQ, at]
            batch[o.B_REF, number] = data[M_REF, at]
            batch[o.B_NUMBER, number] = data[M_NUMBER, at]
            batch[o.B_RANK, number] = data[M_RANK, at]
            cut_at(w, data[M_RANK, at] + 1, data[M_NUMBER, at] + 1 if side == 0 else data[M_RANK, at] - data[M_NUMBER, at],
                   data[M_TS, at])  # fmt: skip
            number += 1
        if side == 0:
            place0 = place_of(left, head0, tail0)
        else:
            place1 = place_of(right, head1, tail1)
    if taken == 0:
        return 0  # and nobody is woken: this worker itself may be about to sleep
    if min(place0, place1) >= until:
        cut_at(w, w[o.HEARD_RANK + lower], w[o.HEARD_LEFT + lower], w[o.HEARD_TS + lower])
    w[o.COUNT] = number
    w[o.ENDED] = 1 if w[o.HEARD_END] and w[o.HEARD_END + 1] else 0
    store_release(left, HEADS, head0)
    store_release(right, HEADS, head1)
    fence()
    wake_feed(c)  # who hands on to this worker may wait for room
    return taken


@inner
def cut_at(w, rank, left, ts):
    if rank >= w[o.CUT_RANK]:
        w[o.CUT_RANK], w[o.CUT_LEFT] = rank, left
        w[o.CUT_TS] = max(w[o.CUT_TS], ts)


@inner
def hear_mark(w, side, data, at):
    """A mark: all of lower rank is here. Marks of both feeds tell of the same run, so the later one counts."""
    w[o.FRONTIER] = max(w[o.FRONTIER], data[M_TS, at])
    w[o.CUT_MARK] = max(w[o.CUT_MARK], data[M_SEQ, at])
    cut_at(w, data[M_RANK, at], data[M_NUMBER, at], data[M_REF, at])
    if data[M_ORIGIN, at] == END:
        w[o.HEARD_END + side] = 1


@inner
def rows_below(w, side, number):
    """How many of a stream's first `number` tuples its segment here holds."""
    every = w[o.STORE_EVERY + side]
    return (number + every - 1 - w[o.STORE_AT + side]) // every


@inner
def arrange_grid(w, batch, ps):
    """As `worker.arrange`, of a batch that has this worker's tuples only: each is compared, and stored in its segment."""
    for side in range(2):
        w[o.PROBES + side] = 0
    for i in range(w[o.COUNT]):
        origin, number = batch[o.B_ORIGIN, i], batch[o.B_NUMBER, i]
        side = origin >> 32
        p, k = ps[side], w[o.PROBES + side]
        preceding = batch[o.B_RANK, i] - number
        w[o.PROBES + side] = k + 1
        batch[o.B_PROBE, i] = k
        p[o.P_TS, k] = batch[o.B_TS, i]
        p[o.P_REF, k] = batch[o.B_REF, i]
        p[o.P_ID, k] = number
        p[o.P_BATCH, k] = i
        p[o.P_HI, k] = rows_below(w, 1 - side, preceding)
        p[o.P_PRECEDING, k] = preceding
        p[o.P_SLOT, k] = origin & shared.SLOT_MASK
        p[o.P_PLACE, k] = batch[o.B_SEQ, i] & w[o.ARENA_MASK]
        p[o.P_POSITION, k] = rows_below(w, side, number)
        batch[o.B_ENDS + side, i], batch[o.B_ENDS + 1 - side, i] = p[o.P_POSITION, k], p[o.P_HI, k]
        p[o.P_STORE, k] = k
    w[o.NEXT], w[o.NEXT + 1] = w[o.CUT_LEFT], w[o.CUT_RANK] - w[o.CUT_LEFT]
    for side in range(2):
        w[o.STORES + side] = w[o.PROBES + side]
        w[o.ENDS + side] = rows_below(w, side, w[o.NEXT + side])
        w[o.SENT + side] = 0


@inner
def tell_gate(gate, c, w):
    """The batch's columns are copied: of each source, what was sent before the last mark is no longer needed here."""
    mark = w[o.CUT_MARK]
    if mark <= w[o.TOLD]:
        return
    slots = w[o.GRID_SLOTS]
    row = ints(w[o.GRID_COUNTS] + 8 * (mark % MARKS) * (slots + 1), slots + 1)
    if row[slots] >= 0:
        stand_on(gate, w[o.SEAT], row[slots], row[row[slots]])
    at = read_at(gate, w[o.SEAT])
    for slot in range(slots):
        if gate[at + slot] != row[slot]:
            store_release(gate, at + slot, row[slot])
    told(gate, w[o.SEAT])
    store_release(w, o.TOLD, mark)
    fence()
    wake_sources(gate)
    wake_feed(c)  # the Emitter may wait for a row of the table


@inner
def hand_on_once(c, w, batch):
    """Tell the neighbours of the batch's tuples, then of how far that is; true when both know all. SENT: how much they know.

    To the right go the left side's tuples, down the right side's. SENT is COUNT + 1 when the mark is written, too.
    """
    whole, shown = True, False
    for side in range(2):
        if w[o.GRID_OUT + side]:
            f = feed_at(w[o.GRID_OUT + side])
            while w[o.SENT + side] < w[o.COUNT] and has_room(f):
                i = w[o.SENT + side]
                if batch[o.B_ORIGIN, i] >> 32 == side:
                    put_message(f, batch[o.B_TS, i], batch[o.B_ORIGIN, i], batch[o.B_SEQ, i], batch[o.B_REF, i],
                                batch[o.B_NUMBER, i], batch[o.B_RANK, i])  # fmt: skip
                w[o.SENT + side] = i + 1
            if w[o.SENT + side] == w[o.COUNT] and has_room(f):
                put_mark(w, f)
                w[o.SENT + side] += 1
            shown = show(f) or shown
            whole = whole and w[o.SENT + side] > w[o.COUNT]
    if shown:
        fence()
        wake_feed(c)
    return whole


@inner
def hand_on(c, w, batch):
    """As `hand_on_once`, and wait for room; false if the workers are to stand still first."""
    if w[o.GRID_OUT] == 0 and w[o.GRID_OUT + 1] == 0:
        return True
    while not hand_on_once(c, w, batch):
        store_release(w, shared.WAITS, shared.FOR_CHILD)
        if load_acquire(c, shared.HALT) != 0:
            return False
        ticket = prepare(c, o.FEED_EVENT)
        if not hand_on_once(c, w, batch) and load_acquire(c, shared.HALT) == 0:
            sleep(c, o.FEED_EVENT, ticket, SLICE_NS)
        else:
            cancel(c, o.FEED_EVENT)
    store_release(w, shared.WAITS, shared.NOTHING)
    return True
