"""Flow control: how many tuples a source may add now, and sleeping until that changes.

Invariants, and why they hold:

- Memory is used again only when no thread can reach it: every reader has read the tuple and none stands on its node,
  and no source inside `add` is pinned at or below its ts. Positions are read first, then, after a fence, the pins; a
  source pins first, fences, then looks at positions. One of the two sees the other.
- Ready and unread tuples hold a source back, and only they: if a source waits, some reader has something to read, so
  waiting ends unless a reader has stopped. Unready ones wait for other sources, possibly for ones that the waiting
  thread itself feeds; there the answer is STUCK, never a wait.
- Both limits are per source, so nobody counts on behalf of others and no counter is shared.

Where a source's tuples are, by count: everything below FREED may be overwritten; from FREED on the memory is in use;
below `read` every reader has read; from `read` to `ready` tuples are ready and unread (at most CAPACITY of them); from
`ready` to TAIL they are unready (at most PENDING). The ring has room for both limits, so memory is short only where a
reader or a pin holds old nodes.
"""

from __future__ import annotations

from typing import Final

from plait.order import AFTER_ALL
from plait.threads.atomics import compiled, fence, fetch_add, load_acquire, pure, sched_yield, sleep_on, store_release
from plait.threads.gate.codes import FULL, STUCK
from plait.threads.gate.frontier import lowest
from plait.threads.gate.words import (
    CAPACITY,
    FREE,
    FREED,
    HEAD,
    LEVELS,
    LIMIT,
    PENDING,
    PIN,
    PLACE_BITS,
    PLACE_MASK,
    READERS_VERSION,
    READY_EVENT,
    RING,
    RING_MASK,
    ROOM_EVENT,
    SEATS,
    STATE,
    TAIL,
    TELLING,
    USED,
    read_at,
    reader_at,
    source_at,
)


@compiled
def stand_on(g, reader, slot, count):
    """A reader that was given its tuples by another stands where it would if it had read them: on tuple `count` - 1 of the slot.

    Called before its counts are released. A seat that stayed on the list's first node would vouch for that node for ever, while
    what it links to is used again: a source that begins there would link its tuple where nobody passes. A ring has no nodes.
    """
    if g[LEVELS] > 0:
        store_release(g, reader_at(g, reader) + TELLING, 1)
        store_release(g, reader_at(g, reader) + HEAD, (slot << PLACE_BITS) + count - 1)


@compiled
def told(g, reader):
    """After `stand_on`, when the counts are released too."""
    if g[LEVELS] > 0:
        store_release(g, reader_at(g, reader) + TELLING, 0)


@compiled
def positions(g, slot):
    """What all readers have read of this source, and below which count none stands on or before a tuple.

    Gives two counts. `read`: every reader has read that many tuples of the slot. `left` is the same or lower: a
    skip-list reader stands on the node it has read last, and follows its links with the next call, so that node must
    stay.
    """
    while True:
        version = load_acquire(g, READERS_VERSION)
        read = AFTER_ALL
        left = AFTER_ALL
        for reader in range(g[SEATS]):
            r = reader_at(g, reader)
            if load_acquire(g, r + STATE) != FREE:
                count = load_acquire(g, read_at(g, reader) + slot)
                read = min(read, count)
                left = min(left, count)
                head = load_acquire(g, r + HEAD)
                if head >> PLACE_BITS == slot:
                    left = min(left, head & PLACE_MASK)
        # A reader announced meanwhile may stand before what its parent, counted here, has read since.
        if load_acquire(g, READERS_VERSION) == version:
            return read, left


@compiled
def free(g, slot, base, stride, left):
    """Let the memory of tuples below `left` be used again, but for those a source inside `add` may touch.

    By the source's own thread, so FREED needs no atomic step. A pin names a ts, not a count: tuples are in ts order,
    so `first_at` turns it into one.
    """
    s = source_at(slot)
    freed = g[s + FREED]
    fence()
    for other in range(load_acquire(g, USED)):
        pinned = load_acquire(g, source_at(other) + PIN)
        left = first_at(g, base, stride, freed, left, pinned)
    g[s + FREED] = left
    return left


@pure
def first_at(g, base, stride, low, high, ts):
    """The first of this source's tuples from `low` to `high` whose ts is not below `ts`; they are in ts order.

    `base` is where the ts of the tuple with count 0 lies, `stride` the words from one tuple to the next: 1 in a ring,
    NODE_WORDS in a list. The last tuple is looked at before the search: usually all of them are below.
    """
    mask = g[RING_MASK]
    if low >= high or g[base + ((high - 1) & mask) * stride] < ts:
        return high
    while low < high:
        middle = (low + high) >> 1
        if g[base + (middle & mask) * stride] < ts:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def room(g, slot, base, stride):
    """How many tuples this source may add now, or FULL or STUCK. The caller is inside a call for the source.

    `base` and `stride` say where the ts of its tuples lie.

    LIMIT remembers the last answer: until TAIL has come up to it no other thread's word is read. So what a source pays
    for flow control is one look at all readers for many batches. The price is that a limit is computed from positions
    that are a little old; they only ever rise, so the answer is safe, just cautious.
    """
    s = source_at(slot)
    tail = g[s + TAIL]
    if g[s + LIMIT] > tail:
        return g[s + LIMIT] - tail
    read, left = positions(g, slot)
    left = free(g, slot, base, stride, left)
    frontier, _ = lowest(g)
    ready = first_at(g, base, stride, read, tail, frontier)
    held_back = g[CAPACITY] - (ready - read)
    unready = g[PENDING] - (tail - ready)
    memory = g[RING] - (tail - left)
    if held_back <= 0 or memory <= 0:
        return FULL
    if unready <= 0:
        return STUCK
    number = min(held_back, min(unready, memory))
    g[s + LIMIT] = tail + number
    return number


# --- sleeping ---------------------------------------------------------------------------------------------------
# ticket = prepare(...); look at the condition once more; sleep(...) if it still does not hold, or else cancel(...).


@compiled
def prepare(g, event):
    """Say that this thread is about to sleep. `event + 1` counts the sleepers.

    `event` is the index of an event's counter; the count of those who sleep on it lies in the next word. The ticket is
    the counter's value before the last look at the condition. If someone raises it in between, `sleep_on` finds
    another value and returns at once.
    """
    fetch_add(g, event + 1, 1)
    ticket = load_acquire(g, event)
    # Before the caller looks again: else its look may come before the count is seen.
    fence()
    return ticket


@compiled
def sleep(g, event, ticket, nanoseconds):
    """Sleep on the event until its counter is no longer `ticket`, or for so many nanoseconds; then this thread counts
    as a sleeper no more.

    It may wake for no reason, so the caller looks at its condition again.
    """
    sleep_on(g, event, ticket, nanoseconds)
    fetch_add(g, event + 1, -1)


@compiled
def cancel(g, event):
    """This thread does not sleep after all: what it waited for was there at the last look.

    Every `prepare` is followed by exactly one `sleep` or `cancel`; a count that stays too high costs wake-ups that
    nobody needs, one that is too low loses some.
    """
    fetch_add(g, event + 1, -1)


# --- waiting in a call ------------------------------------------------------------------------------------------
# Each gate has these lines for itself, since compiled code can't be handed a function without losing its cache:
#
# look, event, ticket = FIRST_LOOK, NO_EVENT, 0
# while look != LAST_LOOK:
#     code = the call, which does not wait
#     look, event, ticket = wait(g, look, event, ticket, the event that this code waits for, nanoseconds)

#: How often a thread lets others have its core and looks again before it sleeps: waking costs some microseconds.
YIELDS: Final = 4

FIRST_LOOK: Final = 0
LAST_LOOK: Final = -1  # what the call answered then is its answer

NO_EVENT: Final = 0  # no event's word


@pure
def awaited(code, patient):
    """The event that may change what `add` has answered, or NO_EVENT. `patient`: a source waits where it is STUCK, too."""
    if code == FULL:
        return ROOM_EVENT
    return READY_EVENT if patient and code == STUCK else NO_EVENT


@compiled
def wait(g, look, event, ticket, now, nanoseconds):
    """After look number `look`, which has to wait for the event `now`: what the next look is to know, or LAST_LOOK.

    A few looks with the core given up in between; then the thread says that it is about to sleep on `event`, looks once
    more, sleeps up to `nanoseconds`, and looks for the last time.
    """
    if look <= YIELDS:
        if now == NO_EVENT:
            return LAST_LOOK, now, ticket
        if look == YIELDS:
            return look + 1, now, prepare(g, now)
        sched_yield()
        return look + 1, now, ticket
    if look > YIELDS + 1:
        return LAST_LOOK, now, ticket
    if now != event:
        # Also where it is held back for the other reason now: that is another event.
        cancel(g, event)
        return LAST_LOOK, now, ticket
    sleep(g, event, ticket, nanoseconds)
    return look + 1, now, ticket
