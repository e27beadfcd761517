"""Entering and leaving a call for a source or a reader; promises, ends, closing.

Invariant: one thread at a time is inside a call for a source or reader, because BUSY is taken by CAS; and a removal
takes effect even if it comes while a thread is inside. The remover sets STATE, fences and tries to take BUSY; a thread on its way
out releases BUSY, fences and looks at STATE. Whoever comes second sees the other, and does what is left to do with BUSY
in its hands, so it is done once and never to the slot's next occupant.

A call costs one CAS on the way in, and one release store and one fence on the way out. BUSY is not a lock that one
waits for: a second thread is answered INSIDE at once, since two threads that push one source have no order between
them.
"""

from __future__ import annotations

from plait.order import AFTER_ALL
from plait.threads.atomics import cas, compiled, fence, fetch_add, load_acquire, store_release
from plait.threads.gate.codes import CLOSED_CODE, GONE, INSIDE
from plait.threads.gate.frontier import wake_if_moved, wake_readers, wake_sources
from plait.threads.gate.words import (
    BUSY,
    CLOSED,
    ENDED,
    FREE,
    LIVE,
    PROGRESS,
    READERS_VERSION,
    REMOVED,
    STATE,
    USED,
    read_at,
    reader_at,
    scratch_at,
    source_at,
)


@compiled
def enter_source(g, slot):
    """Begin a call for this source: 0, or a code."""
    s = source_at(slot)
    if not cas(g, s + BUSY, 0, 1):
        # Whoever removes it may hold BUSY for a moment: that is no second thread of the source.
        return INSIDE if load_acquire(g, s + STATE) == LIVE else GONE
    code = 0
    if load_acquire(g, s + STATE) != LIVE:
        code = GONE
    elif load_acquire(g, CLOSED) != 0:
        code = CLOSED_CODE
    if code < 0:
        leave_source(g, slot, AFTER_ALL)
    return code


@compiled
def leave_source(g, slot, before):
    """End a call: wake readers if the frontier may have moved. If the source was removed meanwhile, let go for it.

    `before` is what the source had promised before a call that promised more; AFTER_ALL after one that did not.

    The loop is for removal. If a remover sets STATE after the look at it, it finds BUSY free and does the rest itself;
    if before, this thread sees REMOVED, takes BUSY again, and lets go of the frontier. It repeats only if it has just
    done that.
    """
    s = source_at(slot)
    while True:
        store_release(g, s + BUSY, 0)
        # One for two: between the promise and the look at who sleeps, and between BUSY and the look at STATE.
        fence()
        # Not without a promise: a source that waits for the frontier would wake itself by looking again.
        if before < AFTER_ALL:
            wake_if_moved(g, slot, before)
            wake_sources(g)  # memory that was pinned by this one
        if load_acquire(g, s + STATE) != REMOVED or load_acquire(g, s + PROGRESS) == AFTER_ALL:
            return
        if not cas(g, s + BUSY, 0, 1):
            return  # whoever holds it now comes by here
        before = load_acquire(g, s + PROGRESS)
        if load_acquire(g, s + STATE) == REMOVED:
            store_release(g, s + PROGRESS, AFTER_ALL)


@compiled
def enter_reader(g, reader):
    """Begin a call for this reader: 0, or a code. As `enter_source`."""
    r = reader_at(g, reader)
    if not cas(g, r + BUSY, 0, 1):
        return INSIDE if load_acquire(g, r + STATE) == LIVE else GONE
    code = 0
    if load_acquire(g, r + STATE) != LIVE:
        code = GONE
    elif load_acquire(g, CLOSED) != 0:
        code = CLOSED_CODE
    if code < 0:
        leave_reader(g, reader, False)
    return code


@compiled
def leave_reader(g, reader, took):
    """End a call: wake sources if something was read. If the reader was removed meanwhile, let go of its place."""
    r = reader_at(g, reader)
    while True:
        store_release(g, r + BUSY, 0)
        fence()
        if took:
            wake_sources(g)
        if load_acquire(g, r + STATE) != REMOVED:
            return
        if not cas(g, r + BUSY, 0, 1):
            return
        if load_acquire(g, r + STATE) == REMOVED:
            store_release(g, r + STATE, FREE)
            fetch_add(g, READERS_VERSION, 1)
        took = True


@compiled
def tell(g, reader):
    """Publish what the reader has counted of each source: before it leaves, for flow control to see.

    A row of words a reader, a word a slot, so that no two readers write one line. Only what has changed is stored: a
    source that idles keeps its word in its own cache.
    """
    row = read_at(g, reader)
    counts = scratch_at(g, reader)
    for slot in range(load_acquire(g, USED)):
        if g[row + slot] != g[counts + slot]:
            store_release(g, row + slot, g[counts + slot])


@compiled
def heartbeat(g, slot, ts):
    """Promise that no tuple below `ts` will come. A promise that says less than the last changes nothing.

    `ts` in microseconds. Readers are woken if it moved the frontier.
    """
    code = enter_source(g, slot)
    if code < 0:
        return code
    before = load_acquire(g, source_at(slot) + PROGRESS)
    if ts > before:
        store_release(g, source_at(slot) + PROGRESS, ts)
        leave_source(g, slot, before)
    else:
        leave_source(g, slot, AFTER_ALL)
    return 0


@compiled
def end(g, slot):
    """No more tuples: the source lets go of the frontier for good.

    Tuples that are in stay in, and will be read. The slot can be announced anew once every reader has read them
    (`elastic.claim_source`).
    """
    code = enter_source(g, slot)
    if code < 0:
        return code
    before = load_acquire(g, source_at(slot) + PROGRESS)
    # If a remover was faster the source leaves as a removed one, which comes to the same.
    cas(g, source_at(slot) + STATE, LIVE, ENDED)
    store_release(g, source_at(slot) + PROGRESS, AFTER_ALL)
    leave_source(g, slot, before)
    return 0


@compiled
def close(g):
    """Refuse every further call; who sleeps is woken to hear it.

    For a run that stops, whatever is in the gate: a call that is inside goes on to its end, the next one is refused.
    """
    store_release(g, CLOSED, 1)
    fence()
    wake_readers(g)
    wake_sources(g)
