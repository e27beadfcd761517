"""The distribution tree (SplitJoin, section 4): ready tuples handed down from worker to worker.

Only the root reads the gate, and merges its sources once for all. Every other worker gets the same sequence from its
parent's feed, a ring that the parent writes and up to `fan-out` children read. Invariants:

- A parent writes tuples, then TAIL, then FRONTIER, each released; a child acquires FRONTIER, then TAIL. So a child
  that has taken all up to TAIL has all there is below that frontier.
- A parent passes a batch on before it works on it: a tuple is at every leaf after as many hand-offs as the tree is
  deep.
- A place is written again only when every child's HEAD, released after its copy, is past it.
- A child holds a seat at the gate too. It takes nothing there, but says what it has taken, because a source's columns
  (the arenas) may be written again only when every worker has copied them; and it stands on the tuple that it took
  last, because sources of a skip list begin from nodes that readers stand on.

An example: seven workers, fan-out 2. The root, worker 0, feeds 1 and 2; worker 1 feeds 3 and 4; worker 2 feeds 5 and
6. A tuple is at a leaf after two hand-offs. With ScaleJoin seven readers would merge the sources seven times; here one
does, and six copy four words a tuple.

A parent waits for the slowest child, once its feed is full, and so everything above it does; the watchdog then says
that it waits for a worker below it. A child that has ended reads no more, but it ends only after ENDED, when there is
nothing more to write.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import fence, fetch_add, load_acquire, store_release, wake_all
from plait.threads.atomics.native import inner, ints, pointer_at
from plait.threads.gate import codes
from plait.threads.gate.flow import stand_on, told
from plait.threads.gate.frontier import wake_sources
from plait.threads.gate.words import read_at
from plait.threads.join.loop import words as o

MASK: Final = 0
READERS: Final = 1
DATA: Final = 2  # address of int64[4, MASK + 1]: ts, origin, seq, ref
TAIL: Final = 16
FRONTIER: Final = 17
ENDED: Final = 18
HEADS: Final = 32  # one line a child


def words(readers: int) -> int:
    return HEADS + readers * LINE


@inner
def data_of(f):
    """The ring of tuples: four rows of int64, ts, origin, seq, ref."""
    return carray(pointer_at(f[DATA]), (4, f[MASK] + 1), dtype=np.int64)


@inner
def read_feed(gate, c, w, batch):
    """Take what the parent has handed down: how many, or DONE.

    `f[own]` is this child's HEAD, which nobody else writes. ENDED and FRONTIER are acquired before TAIL: what TAIL
    shows is then all that lies below.
    """
    f = ints(w[o.FEED], 1 << 12)
    own = HEADS + w[o.FEED_SEAT] * LINE
    ended = load_acquire(f, ENDED)
    frontier = load_acquire(f, FRONTIER)
    tail, head = load_acquire(f, TAIL), f[own]
    number = min(tail - head, w[o.MOST])
    if number == tail - head and frontier > w[o.FRONTIER]:
        w[o.FRONTIER] = frontier
    if number == 0:
        return codes.DONE if ended else 0
    data, mask = data_of(f), f[MASK]
    for row in range(4):
        for k in range(number):
            batch[row, k] = data[row, (head + k) & mask]
    store_release(f, own, head + number)
    counts = ints(w[o.READ_COUNTS], 1 << shared.SLOT_BITS)
    for k in range(number):
        counts[batch[o.B_ORIGIN, k] & shared.SLOT_MASK] += 1
    last = batch[o.B_ORIGIN, number - 1] & shared.SLOT_MASK
    stand_on(gate, w[o.SEAT], last, counts[last])
    at = read_at(gate, w[o.SEAT])
    for k in range(number):
        slot = batch[o.B_ORIGIN, k] & shared.SLOT_MASK
        if gate[at + slot] != counts[slot]:
            store_release(gate, at + slot, counts[slot])
    told(gate, w[o.SEAT])
    fence()
    wake_sources(gate)
    wake_feed(c)  # the parent may wait for room
    return number


@inner
def write_feed(c, w, batch):
    """Hand the batch down, as far as there is room; true when all of it is.

    FED counts how much of the batch is handed down already, so that a call that found no room goes on later.
    """
    f = ints(w[o.FEED_OUT], 1 << 12)
    data, mask = data_of(f), f[MASK]
    tail = f[TAIL]
    least = load_acquire(f, HEADS)
    for k in range(1, f[READERS]):
        least = min(least, load_acquire(f, HEADS + k * LINE))
    number = min(w[o.COUNT] - w[o.FED], mask + 1 - (tail - least))
    for row in range(4):
        for k in range(number):
            data[row, (tail + k) & mask] = batch[row, w[o.FED] + k]
    w[o.FED] += number
    store_release(f, TAIL, tail + number)
    if w[o.FED] == w[o.COUNT]:
        publish_frontier(c, w)
    elif number > 0:
        fence()
        wake_feed(c)
    return w[o.FED] == w[o.COUNT]


@inner
def publish_frontier(c, w):
    """Let the children know how far time has passed, and whether the end has come."""
    f = ints(w[o.FEED_OUT], 1 << 12)
    if w[o.FRONTIER] > f[FRONTIER] or w[o.FED] > 0:
        store_release(f, FRONTIER, w[o.FRONTIER])
        if w[o.ENDED] and w[o.FRONTIER] == AFTER_ALL:
            store_release(f, ENDED, 1)
        fence()
        wake_feed(c)
    elif w[o.ENDED] and load_acquire(f, ENDED) == 0:
        store_release(f, ENDED, 1)
        fence()
        wake_feed(c)


@inner
def wake_feed(c):
    """Wake all workers of the tree that sleep for tuples or for room: one event for all feeds, and they look again."""
    if load_acquire(c, o.FEED_SLEEPERS) > 0:
        fetch_add(c, o.FEED_EVENT, 1)
        wake_all(c, o.FEED_EVENT)
