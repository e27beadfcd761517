"""What the papers compare their gates with, built as well as they would want them; for `plait bench gate` only.

- Locked multi-queue (MQ of the aggregation paper, algorithm 2): a bounded queue for each source and reader, each under a
  lock; the lock is taken once a batch, not once a tuple, which is kinder than the paper.
- Lock-free multi-queue (MQ_LF): the same with Michael and Scott's queue: a linked list with a dummy node, a CAS to link, a
  CAS to swing the tail and one to take; nodes come from a ring, as one thread enqueues and one dequeues.
- Plain concurrent skip list: what T-Gate is compared with. Tuples are inserted one at a time from the front of the list, with no
  handles, and the list knows nothing of readiness: before each tuple a reader looks at every source.

In a multi-queue the next tuple is the least of the queues' first ones, found by looking at each: linear in the number of
sources, for every reader anew. A queue that is empty and whose source has not ended stops the reader.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plait.order import AFTER_ALL
from plait.threads.atomics import cas, compiled, load_acquire, pause, pure, store_release
from plait.threads.gate.calls import enter_reader, enter_source, leave_reader, leave_source, tell
from plait.threads.gate.codes import DONE
from plait.threads.gate.flow import room
from plait.threads.gate.frontier import lowest
from plait.threads.gate.nodes import climb, give, node_at, raise_towers
from plait.threads.gate.skiplist import anchor, write
from plait.threads.gate.words import (
    HANDLES,
    HANDLES_TS,
    HEAD,
    LAST_SEQ,
    LAST_TS,
    NEXT,
    NIL,
    NODE_WORDS,
    ORIGIN,
    PIN,
    PLACE,
    PLACE_BITS,
    PROGRESS,
    RING,
    SEQ,
    STORE_AT,
    TAIL,
    TS,
    reader_at,
    scratch_at,
    source_at,
)
from plait_bench.spinlock import lock, unlock

# --- multi-queues: header, then a block a (reader, source), then its columns -------------------------------------
Q_SOURCES: Final = 0
Q_SIZE: Final = 1
Q_WORDS: Final = 2
Q_FIRST: Final = 16
LOCK: Final = 0
Q_TAIL: Final = 16  # written by the source; under the lock, or released
Q_ENDED: Final = 17
Q_HEAD: Final = 32  # written by the reader; under the lock, or by CAS
Q_SEEN: Final = 48  # the reader's own: the tail it saw last, and how far it has come since it last told
Q_NEXT: Final = 49
Q_COLUMNS: Final = 64
Q_NODE: Final = 4  # ts, seq, ref, next


def queues(sources: int, readers: int, size: int) -> np.ndarray:
    """Empty multi-queues; `size` is a power of two."""
    words = Q_COLUMNS + size * Q_NODE
    q = np.zeros(Q_FIRST + sources * readers * words, dtype=np.int64)
    q[Q_SOURCES], q[Q_SIZE], q[Q_WORDS] = sources, size, words
    return q


@pure
def queue_at(q, reader, slot):
    return Q_FIRST + (reader * q[Q_SOURCES] + slot) * q[Q_WORDS]


@compiled
def put_locked(q, reader, slot, ts, seq, ref, low, high):
    """Enqueue what fits; gives how many."""
    b = queue_at(q, reader, slot)
    size = q[Q_SIZE]
    lock(q, b + LOCK)
    tail = q[b + Q_TAIL]
    number = min(high - low, size - (tail - q[b + Q_HEAD]))
    for i in range(number):
        at = b + Q_COLUMNS + ((tail + i) & (size - 1)) * Q_NODE
        q[at] = ts[low + i]
        q[at + 1] = seq[low + i]
        q[at + 2] = ref[low + i]
    q[b + Q_TAIL] = tail + number
    unlock(q, b + LOCK)
    return number


@compiled
def put_free(q, reader, slot, ts, seq, ref, low, high):
    """Michael and Scott's enqueue for each tuple; the node after the last is the one the ring gives next."""
    b = queue_at(q, reader, slot)
    size = q[Q_SIZE]
    tail = load_acquire(q, b + Q_TAIL)
    # One node is the dummy, which the head points at.
    number = min(high - low, size - 1 - (tail - load_acquire(q, b + Q_HEAD)))
    for i in range(number):
        last = b + Q_COLUMNS + ((tail + i) & (size - 1)) * Q_NODE
        node = b + Q_COLUMNS + ((tail + i + 1) & (size - 1)) * Q_NODE
        q[node] = ts[low + i]
        q[node + 1] = seq[low + i]
        q[node + 2] = ref[low + i]
        q[node + 3] = 0
        while not cas(q, last + 3, 0, node):
            pause()
        cas(q, b + Q_TAIL, tail + i, tail + i + 1)
    return number


@compiled
def finish(q, readers, slot):
    for reader in range(readers):
        store_release(q, queue_at(q, reader, slot) + Q_ENDED, 1)


@compiled
def first_locked(q, b):
    """Look at a queue again: 1 if it has a tuple, 0 if not yet, -1 if never again."""
    lock(q, b + LOCK)
    ended = load_acquire(q, b + Q_ENDED)
    seen = q[b + Q_TAIL]
    unlock(q, b + LOCK)
    q[b + Q_SEEN] = seen
    if seen > q[b + Q_NEXT]:
        return 1
    return -1 if ended else 0


@compiled
def take_locked(q, reader, most, ts, origin, seq, ref):
    """Merge what the queues hold: how many tuples, or DONE."""
    size = q[Q_SIZE]
    number = 0
    waiting = False
    best = 0
    while number < most:
        best = -1
        least = AFTER_ALL
        for slot in range(q[Q_SOURCES]):
            b = queue_at(q, reader, slot)
            found = 1 if q[b + Q_SEEN] > q[b + Q_NEXT] else first_locked(q, b)
            waiting = waiting or found == 0
            if found == 1:
                key = q[b + Q_COLUMNS + (q[b + Q_NEXT] & (size - 1)) * Q_NODE]
                if key < least:
                    least = key
                    best = slot
        if waiting or best < 0:
            break
        b = queue_at(q, reader, best)
        at = b + Q_COLUMNS + (q[b + Q_NEXT] & (size - 1)) * Q_NODE
        ts[number] = q[at]
        origin[number] = best
        seq[number] = q[at + 1]
        ref[number] = q[at + 2]
        q[b + Q_NEXT] += 1
        number += 1
    for slot in range(q[Q_SOURCES]):
        b = queue_at(q, reader, slot)
        lock(q, b + LOCK)
        q[b + Q_HEAD] = q[b + Q_NEXT]
        unlock(q, b + LOCK)
    return DONE if number == 0 and best < 0 and not waiting else number


@compiled
def take_free(q, reader, most, ts, origin, seq, ref):
    size = q[Q_SIZE]
    number = 0
    while number < most:
        best = -1
        least = AFTER_ALL
        waiting = False
        for slot in range(q[Q_SOURCES]):
            b = queue_at(q, reader, slot)
            dummy = b + Q_COLUMNS + (q[b + Q_HEAD] & (size - 1)) * Q_NODE
            ended = load_acquire(q, b + Q_ENDED)
            node = load_acquire(q, dummy + 3)
            if node == 0:
                waiting = waiting or ended == 0
            elif q[node] < least:
                least = q[node]
                best = slot
        if waiting:
            return number
        if best < 0:
            return number if number > 0 else DONE
        b = queue_at(q, reader, best)
        head = q[b + Q_HEAD]
        node = load_acquire(q, b + Q_COLUMNS + (head & (size - 1)) * Q_NODE + 3)
        ts[number] = q[node]
        origin[number] = best
        seq[number] = q[node + 1]
        ref[number] = q[node + 2]
        while not cas(q, b + Q_HEAD, head, head + 1):
            pause()
        number += 1
    return number


# --- plain skip list: the gate's nodes and memory, without handles, runs and cached frontier ---------------------


@compiled
def put_plain(g, slot, ts, seq, ref, low, high):
    """Insert one tuple at a time from the front of the list: how many, or a code."""
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
        code = write(g, slot, ts, seq, ref, low + added, 1)
        if code < 0:
            break
        tail = g[s + TAIL]
        place = (slot << PLACE_BITS) + tail
        new = node_at(g, place)
        node = anchor(g, slot)
        while True:
            node, ahead = climb(g, s, node, g[new + TS], g[s + ORIGIN], g[new + SEQ])
            g[new + NEXT] = ahead
            if cas(g, node + NEXT, ahead, new):
                break
        raise_towers(g, s, place, 1)
        g[s + HANDLES], g[s + HANDLES_TS] = place, g[new + TS]
        g[s + LAST_TS], g[s + LAST_SEQ] = g[new + TS], g[new + SEQ]
        store_release(g, s + PIN, AFTER_ALL)
        store_release(g, s + TAIL, tail + 1)
        store_release(g, s + PROGRESS, ts[low + added])
        added += 1
    leave_source(g, slot, before if added > 0 else AFTER_ALL)
    return added if added > 0 else code


@compiled
def take_plain(g, reader, most, ts, origin, seq, ref):
    """Take from the front; whether the tuple there is ready is found by looking at every source, each time."""
    code = enter_reader(g, reader)
    if code < 0:
        return code
    r = reader_at(g, reader)
    counts = scratch_at(g, reader)
    node = node_at(g, g[r + HEAD])
    number = 0
    ended = False
    while number < most:
        frontier, _ = lowest(g)
        ahead = load_acquire(g, node + NEXT)
        if ahead == NIL or g[ahead + TS] >= frontier:
            ended = ahead == NIL and frontier == AFTER_ALL
            break
        node = ahead
        give(g, node, counts, number, ts, origin, seq, ref)
        number += 1
    if number > 0:
        store_release(g, r + HEAD, g[node + PLACE])
        tell(g, reader)
    leave_reader(g, reader, number > 0)
    return DONE if number == 0 and ended else number
