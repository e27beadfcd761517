"""Progress, the frontier, and who holds it.

Invariant: a reader gives out a tuple only if its ts is below that reader's FRONTIER word, and at the moment
that word was last settled, every source that was then live had promised no tuple below it. Why it holds: progress
only rises while a source lives, so a minimum taken one word at a time is never above the true minimum at its end; and a
source that is announced meanwhile is either seen by the second look at SOURCES_VERSION, or sees the reader's FRONTIER
and steps back (`elastic.announce_sources`).

Progress and frontier are microseconds; BEFORE_ALL stands for «has not spoken», AFTER_ALL for «has ended». Ready means
ts < frontier, strictly: a source at progress 7 may still bring a tuple of ts 7, and it may belong before one that
another source has brought.

An example of why the second look is needed. Two sources stand at 10. A reader computes the minimum: 10. Before it
stores that, a third source is announced at 5, and its announcer finds every FRONTIER at less than 5. Without the
second look the reader would now give out tuples up to 10, and the new source's tuple of ts 6 would come after them.
With it, the reader sees the changed version, and computes 5.
"""

from __future__ import annotations

from plait.order import AFTER_ALL
from plait.threads.atomics import compiled, fence, fetch_add, load_acquire, store_release, wake_all
from plait.threads.gate.words import (
    FRONTIER,
    HOLDER,
    PROGRESS,
    READY_EVENT,
    READY_SLEEPERS,
    ROOM_EVENT,
    ROOM_SLEEPERS,
    SOURCES_VERSION,
    USED,
    reader_at,
    source_at,
)


@compiled
def lowest(g):
    """The frontier now, and the slot that holds it (-1 when every source has ended).

    A loop over all slots that were ever used: one acquired word each, a line apart. Callers that only want to know
    whether anything has changed should use `settle`, which usually needs one load.
    """
    frontier = AFTER_ALL
    holder = -1
    # States are not looked at: a source that is being removed may still be inside `add`, and holds the frontier until
    # it has left; a slot without a source has AFTER_ALL here.
    for slot in range(load_acquire(g, USED)):
        progress = load_acquire(g, source_at(slot) + PROGRESS)
        if progress < frontier:
            frontier = progress
            holder = slot
    return frontier, holder


@compiled
def settle(g, reader):
    """Move the reader's frontier up as far as it goes; gives it.

    By the thread that is inside a call for the reader. FRONTIER never falls. HOLDER is the slot that was lowest last
    time; -1 means unknown, and forces a full look.
    """
    r = reader_at(g, reader)
    old = g[r + FRONTIER]
    holder = g[r + HOLDER]
    # It can't have moved if the source that held it has not: the usual case, for the price of one load.
    if holder >= 0 and load_acquire(g, source_at(holder) + PROGRESS) == old:
        return old
    while True:
        version = load_acquire(g, SOURCES_VERSION)
        frontier, holder = lowest(g)
        if frontier < old:
            # Only while an announcement that will be refused stands: what was settled stays settled.
            frontier = old
        store_release(g, r + FRONTIER, frontier)
        # The store must be seen before the version is read again: an announcer does the mirror image.
        fence()
        if load_acquire(g, SOURCES_VERSION) == version:
            g[r + HOLDER] = holder
            return frontier


@compiled
def wake_readers(g):
    """After a promise was published and a fence: wake whoever sleeps for it."""
    # Without the fence the look at who sleeps may come before the store it follows, and a reader that goes to sleep
    # in between is never woken.
    if load_acquire(g, READY_SLEEPERS) > 0:
        fetch_add(g, READY_EVENT, 1)
        wake_all(g, READY_EVENT)


@compiled
def wake_if_moved(g, slot, before):
    """After this source's promise was published and a fence: wake readers, if it may have moved the frontier.

    `before` is what the source had promised until then. Another source that stands there or lower holds the frontier where it
    was: who sleeps has nothing to look at, and that source wakes when it moves. Of two that move at once, each publishes, fences
    and looks: one of them at least sees the other's promise, and wakes. So a round of pushes of many sources wakes once.
    """
    if load_acquire(g, READY_SLEEPERS) == 0:
        return
    for other in range(load_acquire(g, USED)):
        if other != slot and load_acquire(g, source_at(other) + PROGRESS) <= before:
            return
    wake_readers(g)


@compiled
def wake_sources(g):
    """After what was read was published and a fence: wake whoever sleeps for room."""
    if load_acquire(g, ROOM_SLEEPERS) > 0:
        fetch_add(g, ROOM_EVENT, 1)
        wake_all(g, ROOM_EVENT)
