"""The Emitter's loop (DP-Join, section 4.3): read the gate, send tuples to the first worker of their row or column, then a mark.

It compares nothing and keeps no window. What it sends, and what workers do with it, is `grid`'s. Invariants:

- Tuples are sent in total order; each gets its number in its stream and its rank here, once for all workers.
- After each batch, and whenever time has passed without tuples, all rows and columns get a mark. So what waits in a feed behind
  the last mark is one batch, at most, and a feed has room for two.
- It runs as workers do: it looks at HALT in every wait, returns to Python to stand still, and goes on from where it was (FED,
  SENT).

Its words are a worker's (`words`), of which it uses few: SEAT, MOST, FRONTIER, NEXT, what it read, where it is. Its cost for a
tuple is six words written into one feed, whatever the number of workers; for a batch a mark a row and a column.
"""

from __future__ import annotations

from plait.threads import words as shared
from plait.threads.atomics import fence, load_acquire, store_release
from plait.threads.atomics.native import clock_ns, compiled, inner, ints
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.gate.words import read_at
from plait.threads.join.loop import words as o
from plait.threads.join.loop.feed import wake_feed
from plait.threads.join.loop.grid import MARKS, SLICE_NS, feed_at, has_room, put_mark, put_message, show
from plait.threads.join.loop.worker import read


@inner
def send_once(w, batch, feeds):
    """Send the batch's tuples, each to its row or column, as far as there is room; true when all are.

    `feeds`: addresses, those of the rows first. STORE_EVERY has how many rows and columns there are, FED how many are sent.
    """
    while w[o.FED] < w[o.COUNT]:
        i = w[o.FED]
        side = batch[o.B_ORIGIN, i] >> 32
        number = w[o.NEXT + side]
        f = feed_at(feeds[side * w[o.STORE_EVERY] + number % w[o.STORE_EVERY + side]])
        if not has_room(f):
            return False
        put_message(f, batch[o.B_TS, i], batch[o.B_ORIGIN, i], batch[o.B_SEQ, i], batch[o.B_REF, i], number,
                    w[o.NEXT] + w[o.NEXT + 1])  # fmt: skip
        w[o.NEXT + side] = number + 1
        w[o.FED] = i + 1
    return True


@inner
def note_counts(gate, w, workers):
    """A new row of the table: what was sent of each source; false while a worker still has to tell the row that stood there."""
    mark, slots = w[o.CUT_MARK] + 1, w[o.GRID_SLOTS]
    for k in range(w[o.CREW]):
        if load_acquire(ints(workers[k], o.WORDS), o.TOLD) < mark - MARKS:
            return False
    row, at = ints(w[o.GRID_COUNTS] + 8 * (mark % MARKS) * (slots + 1), slots + 1), read_at(gate, w[o.SEAT])
    for slot in range(slots):
        row[slot] = gate[at + slot]
    row[slots] = w[o.LAST_SLOT]
    w[o.CUT_MARK] = mark
    return True


@inner
def mark_once(gate, w, feeds, workers):
    """A mark to all rows and columns; true when all have it. SENT: 0 before its row is written, then one more than have it."""
    if w[o.SENT] == 0:
        if not note_counts(gate, w, workers):
            return False
        w[o.SENT] = 1
    while w[o.SENT] <= len(feeds):
        f = feed_at(feeds[w[o.SENT] - 1])
        if not has_room(f):
            return False
        put_mark(w, f)
        w[o.SENT] += 1
    return True


@inner
def emit_step(gate, w, batch, feeds, workers):
    """The batch, then a mark: true when every first worker has both."""
    if not send_once(w, batch, feeds):
        return False
    w[o.CUT_LEFT], w[o.CUT_RANK] = w[o.NEXT], w[o.NEXT] + w[o.NEXT + 1]
    if w[o.COUNT] > 0:
        w[o.CUT_TS], w[o.LAST_SLOT] = (
            batch[o.B_TS, w[o.COUNT] - 1],
            batch[o.B_ORIGIN, w[o.COUNT] - 1] & shared.SLOT_MASK,
        )
    return mark_once(gate, w, feeds, workers)


@inner
def emit_once(gate, c, w, batch, feeds, workers):
    """As `emit_step`; what was written is shown, and whoever waits for it woken."""
    whole, shown = emit_step(gate, w, batch, feeds, workers), False
    for k in range(len(feeds)):
        shown = show(feed_at(feeds[k])) or shown
    if shown:
        fence()
        wake_feed(c)
    return whole


@inner
def emit_batch(gate, c, w, batch, feeds, workers):
    """As `emit_once`, and wait for room; false if the run is being halted."""
    began = clock_ns(w, o.CLOCK)
    while not emit_once(gate, c, w, batch, feeds, workers):
        store_release(w, shared.WAITS, shared.FOR_CHILD)
        if load_acquire(c, shared.HALT) != 0:
            return False
        ticket = prepare(c, o.FEED_EVENT)
        if not emit_once(gate, c, w, batch, feeds, workers) and load_acquire(c, shared.HALT) == 0:
            sleep(c, o.FEED_EVENT, ticket, SLICE_NS)
        else:
            cancel(c, o.FEED_EVENT)
    store_release(w, shared.WAITS, shared.NOTHING)
    w[shared.NS_READ] += clock_ns(w, o.CLOCK) - began
    return True


@compiled
def emit_tuples(gate, c, w, batch, feeds, workers):
    """Run until there is a reason to return to Python: HALTED, STOPPED or FINISHED.

    `feeds`: addresses of the first workers' feeds, those of the rows first. `workers`: addresses of all workers' words.
    """
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        if w[o.PHASE] == o.READING:
            if not read(gate, c, w, batch, o.FEEDING):
                return o.STOPPED
            w[o.SENT] = 0
        if w[o.PHASE] != o.READING:
            if not emit_batch(gate, c, w, batch, feeds, workers):
                return o.HALTED
            w[o.DONE_TS] = w[o.FRONTIER]
            w[o.PHASE] = o.READING
            if w[o.ENDED]:
                return o.FINISHED
