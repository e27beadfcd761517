"""Multi-queues, the designs that the aggregation paper starts from (sections 3 and 5.3, algorithm 2): a queue for each source,
and one reader that looks at the first tuple of every queue to find the next one.

- MQ: a lock for each queue, taken for every tuple that is enqueued, looked at or dequeued.
- MQ_LF: Michael and Scott's queue: a list with a dummy node; one CAS links a tuple to the last, one moves the tail, one the head.

Sources, progress and limits are the gate's. Invariants, and why they hold:

- A queue holds its source's tuples in their order, and PROGRESS is released after they are in; so below the frontier that the
  reader has settled every tuple there will be is in some queue, and the least of the queues' first ones is next in total order.
- A node is written again only after the reader has passed it and its successor was linked: a source has at most one node less
  than its ring, so the node before the first unread one, the dummy, stays.

The reader's work for a tuple is in proportion to the number of sources: what the gates were made to avoid. One reader only.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL
from plait.threads.atomics import cas, compiled, load_acquire, pause, pure, store_release
from plait.threads.gate.calls import enter_reader, enter_source, leave_reader, leave_source
from plait.threads.gate.codes import DONE, FULL
from plait.threads.gate.flow import FIRST_LOOK, LAST_LOOK, NO_EVENT, awaited, room, wait
from plait.threads.gate.frontier import settle
from plait.threads.gate.nodes import node_at
from plait.threads.gate.ring import in_order
from plait.threads.gate.words import (
    FREED,
    FRONTIER,
    LAST_SEQ,
    LAST_TS,
    LIMIT,
    NEXT,
    NIL,
    NODE_WORDS,
    ORIGIN,
    PLACE_BITS,
    PROGRESS,
    READY_EVENT,
    REF,
    RING,
    SEQ,
    STORE_AT,
    TAIL,
    TS,
    USED,
    read_at,
    reader_at,
    source_at,
)
from plait_bench.spinlock import lock, unlock

LOCKED: Final = 15  # of the gate's header: 1 if each queue has a lock
# LOCK: of a source's block. 0, or 1 while a thread is at the source's queue (CAS in, release out).
LOCK: Final = 2 * LINE + 2


@pure
def tuple_at(g, slot, count):
    """The node of a source's tuple number `count`; of number -1 the dummy before the first."""
    return node_at(g, (slot << PLACE_BITS) + (count & (g[RING] - 1)))


# --- sources ----------------------------------------------------------------------------------------------------


@compiled
def add(g, slot, ts, seq, ref, low, high, progress):
    """Enqueue tuples `low` to `high` of the arrays; then promise nothing below `progress`. As `ring.add`."""
    code = enter_source(g, slot)
    if code < 0:
        return code
    s = source_at(slot)
    before = load_acquire(g, s + PROGRESS)
    added = 0
    while low + added < high:
        code = room(g, slot, g[STORE_AT] + slot * g[RING] * NODE_WORDS, NODE_WORDS)
        if code < 0:
            break
        first = low + added
        tail = g[s + TAIL]
        count = min(min(code, high - first), g[RING] - 1 - (tail - g[s + FREED]))
        if count <= 0:
            g[s + LIMIT] = tail  # look again how far the reader is
            code = FULL
            break
        code = in_order(ts, seq, first, count, g[s + LAST_TS], g[s + LAST_SEQ], load_acquire(g, s + PROGRESS))
        if code < 0:
            break
        for i in range(count):
            enqueue(g, slot, tail + i, ts[first + i], seq[first + i], ref[first + i])
        added += count
        g[s + LAST_TS] = ts[first + count - 1]
        g[s + LAST_SEQ] = seq[first + count - 1]
        store_release(g, s + PROGRESS, progress if low + added == high else ts[first + count - 1])
    leave_source(g, slot, before if added > 0 else AFTER_ALL)
    return added if added > 0 or low == high else code


@compiled
def enqueue(g, slot, count, ts, seq, ref):
    s = source_at(slot)
    node = tuple_at(g, slot, count)
    if g[LOCKED] != 0:
        lock(g, s + LOCK)
    g[node + TS] = ts
    g[node + SEQ] = seq
    g[node + REF] = ref
    if g[LOCKED] != 0:
        store_release(g, s + TAIL, count + 1)
        unlock(g, s + LOCK)
        return
    store_release(g, node + NEXT, NIL)
    while not cas(g, tuple_at(g, slot, count - 1) + NEXT, NIL, node):
        pause()
    cas(g, s + TAIL, count, count + 1)


# --- the reader -------------------------------------------------------------------------------------------------


@compiled
def peek(g, slot, count):
    """The node of this source's first unread tuple, or NIL."""
    if g[LOCKED] == 0:
        return load_acquire(g, tuple_at(g, slot, count - 1) + NEXT)
    s = source_at(slot)
    lock(g, s + LOCK)
    node = tuple_at(g, slot, count) if load_acquire(g, s + TAIL) > count else NIL
    unlock(g, s + LOCK)
    return node


@compiled
def dequeue(g, reader, slot, count):
    if g[LOCKED] == 0:
        cas(g, read_at(g, reader) + slot, count, count + 1)
        return
    lock(g, source_at(slot) + LOCK)
    store_release(g, read_at(g, reader) + slot, count + 1)
    unlock(g, source_at(slot) + LOCK)


@compiled
def read(g, reader, most, ts, origin, seq, ref):
    """Dequeue the next ready tuples, up to `most`, into the arrays: how many, DONE at the end, or a code."""
    code = enter_reader(g, reader)
    if code < 0:
        return code
    row = read_at(g, reader)
    frontier = g[reader_at(g, reader) + FRONTIER]
    number = 0
    done = False
    while number < most:
        best = -1
        least = AFTER_ALL
        rank = AFTER_ALL
        found = NIL
        for slot in range(load_acquire(g, USED)):
            node = peek(g, slot, load_acquire(g, row + slot))
            if node != NIL and (g[node + TS] < least or (g[node + TS] == least and g[source_at(slot) + ORIGIN] < rank)):
                best = slot
                least = g[node + TS]
                rank = g[source_at(slot) + ORIGIN]
                found = node
        if best < 0 or least >= frontier:
            settled = settle(g, reader)
            if settled == frontier:
                done = best < 0 and frontier == AFTER_ALL
                break
            # Tuples below the new frontier may have come since: look again.
            frontier = settled
            continue
        ts[number] = least
        origin[number] = rank
        seq[number] = g[found + SEQ]
        ref[number] = g[found + REF]
        dequeue(g, reader, best, load_acquire(g, row + best))
        number += 1
    leave_reader(g, reader, number > 0)
    return DONE if done and number == 0 else number


# --- waiting ----------------------------------------------------------------------------------------------------


@compiled
def add_waiting(g, slot, ts, seq, ref, low, high, progress, nanoseconds, patient):
    """As `add`, but sleep up to `nanoseconds` where the answer would be FULL; `patient`: also where it would be STUCK."""
    code, look, event, ticket = 0, FIRST_LOOK, NO_EVENT, 0
    while look != LAST_LOOK:
        code = add(g, slot, ts, seq, ref, low, high, progress)
        look, event, ticket = wait(g, look, event, ticket, awaited(code, patient), nanoseconds)
    return code


@compiled
def read_waiting(g, reader, most, ts, origin, seq, ref, nanoseconds):
    """As `read`, but sleep up to `nanoseconds` for the sources where nothing is ready."""
    number, look, event, ticket = 0, FIRST_LOOK, NO_EVENT, 0
    known = load_acquire(g, reader_at(g, reader) + FRONTIER)
    while look != LAST_LOOK:
        number = read(g, reader, most, ts, origin, seq, ref)
        news = number != 0 or load_acquire(g, reader_at(g, reader) + FRONTIER) > known
        look, event, ticket = wait(g, look, event, ticket, NO_EVENT if news else READY_EVENT, nanoseconds)
    return number
