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

from collections.abc import Callable

import numpy as np

from plait.atomics import cas, compiled, load_acquire, pause, pure, sched_yield, store_release
from plait.gate.calls import enter_reader, enter_source, leave_reader, leave_source
from plait.gate.codes import DONE, FULL, STUCK
from plait.gate.flow import YIELDS, cancel, prepare, room, sleep
from plait.gate.frontier import settle
from plait.gate.layout import (
    FREED,
    FRONTIER,
    LAST_SEQ,
    LAST_TS,
    LIMIT,
    LOCK,
    LOCKED,
    NEXT,
    NIL,
    NODE_WORDS,
    ORIGIN,
    PLACE_BITS,
    PROGRESS,
    READY_EVENT,
    REF,
    RING,
    ROOM_EVENT,
    SEQ,
    STORE_AT,
    TAIL,
    TS,
    USED,
    read_at,
    reader_at,
    source_at,
)
from plait.gate.nodes import node_at
from plait.gate.ring import in_order
from plait.order import AFTER_ALL


@pure
def tuple_at(g, slot, count):
    """The node of a source's tuple number `count`; of number -1 the dummy before the first."""
    return node_at(g, (slot << PLACE_BITS) + (count & (g[RING] - 1)))


@compiled
def lock(g, s):
    tries = 0
    while not cas(g, s + LOCK, 0, 1):
        tries += 1
        if tries & 63 == 0:
            sched_yield()
        pause()


# --- sources ----------------------------------------------------------------------------------------------------


@compiled
def add(g, slot, ts, seq, ref, low, high, progress):
    """Enqueue tuples `low` to `high` of the arrays; then promise nothing below `progress`. As `ring.add`."""
    code = enter_source(g, slot)
    if code < 0:
        return code
    s = source_at(slot)
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
    leave_source(g, slot, added > 0)
    return added if added > 0 or low == high else code


@compiled
def enqueue(g, slot, count, ts, seq, ref):
    s = source_at(slot)
    node = tuple_at(g, slot, count)
    if g[LOCKED] != 0:
        lock(g, s)
    g[node + TS] = ts
    g[node + SEQ] = seq
    g[node + REF] = ref
    if g[LOCKED] != 0:
        store_release(g, s + TAIL, count + 1)
        store_release(g, s + LOCK, 0)
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
    lock(g, s)
    node = tuple_at(g, slot, count) if load_acquire(g, s + TAIL) > count else NIL
    store_release(g, s + LOCK, 0)
    return node


@compiled
def dequeue(g, reader, slot, count):
    if g[LOCKED] == 0:
        cas(g, read_at(g, reader) + slot, count, count + 1)
        return
    lock(g, source_at(slot))
    store_release(g, read_at(g, reader) + slot, count + 1)
    store_release(g, source_at(slot) + LOCK, 0)


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


# --- waiting: once a batch, so Python may do it -----------------------------------------------------------------


def add_waiting(g: np.ndarray, slot: int, ts: np.ndarray, seq: np.ndarray, ref: np.ndarray, low: int, high: int,
                progress: int, nanoseconds: int, patient: bool) -> int:  # fmt: skip
    """As `add`, but sleep up to `nanoseconds` where the answer would be FULL; `patient`: also where it would be STUCK."""
    events = {FULL: ROOM_EVENT, STUCK: READY_EVENT} if patient else {FULL: ROOM_EVENT}
    return waited(g, lambda: int(add(g, slot, ts, seq, ref, low, high, progress)), events, nanoseconds)


def read_waiting(g: np.ndarray, reader: int, most: int, ts: np.ndarray, origin: np.ndarray, seq: np.ndarray,
                 ref: np.ndarray, nanoseconds: int) -> int:  # fmt: skip
    """As `read`, but sleep up to `nanoseconds` for the sources where nothing is ready."""
    return waited(g, lambda: int(read(g, reader, most, ts, origin, seq, ref)), {0: READY_EVENT}, nanoseconds)


def waited(g: np.ndarray, call: Callable[[], int], events: dict[int, int], nanoseconds: int) -> int:
    """The answer of a call that is repeated once, after a sleep, where its answer is one to wait on."""
    for _ in range(1 + YIELDS):
        code = call()
        if code not in events:
            return code
        sched_yield()
    ticket = prepare(g, events[code])
    again = call()
    if again != code:
        cancel(g, events[code])
        return again
    sleep(g, events[code], ticket, nanoseconds)
    return call()
