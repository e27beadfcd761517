"""The skip-list gate: ScaleGate (ScaleJoin, algorithm 2) and T-Gate (algorithm 4) in bounded memory.

As in the papers, sources insert into one sorted list and readers walk along its lowest level, each from the last node it
read. What is different, and why:

- `written` is a word of promise, PROGRESS, instead of a node: heartbeats, ends and announced sources then need no node, and
  ready is exactly ts < frontier. (The papers' readers stop before each source's last node: with ties that would let
  tuples of ts = frontier through or not, by who came first.) Finding that nothing new is ready costs one load.
- Nodes are not garbage collected. Each source has its own ring of nodes: the list is freed from its beginning, and a
  source's tuples stand in it in the order in which they were added, so each ring is freed in order and no allocator is shared.
- A source's handles do not keep nodes alive, or one that idles ahead of the others would stop the gate for want of
  memory. They are checked when the source comes back, and while it is inside `add` it is pinned. If its
  handles are gone, it starts from the node some reader stands on, which is always below what it may insert.

An example of handles. A source has added up to ts 90 and then idles while readers go on. They pass ts 90, and the node
its handle names may be freed. When the source comes back, `pin` says which ts it wants kept, fences, and asks whether
any reader still has the handle's tuple to read. None has: the handle is dropped, and the source starts from a node
that some reader stands on (`anchor`). Places are never used twice, so the new tuple in that memory can't be taken for
the old one.
"""

from __future__ import annotations

from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.atomics import compiled, fence, load_acquire, store_release
from plait.threads.gate.calls import enter_reader, enter_source, leave_reader, leave_source, tell
from plait.threads.gate.codes import DONE, LATE, UNSORTED
from plait.threads.gate.flow import FIRST_LOOK, LAST_LOOK, NO_EVENT, awaited, room, wait
from plait.threads.gate.frontier import settle
from plait.threads.gate.nodes import give, height, link, node_at, remember, tallest
from plait.threads.gate.words import (
    FREE,
    FRONTIER,
    HANDLES,
    HANDLES_TS,
    HEAD,
    LAST_SEQ,
    LAST_TS,
    LEVELS,
    NEXT,
    NIL,
    NO_PLACE,
    NODE_WORDS,
    PIN,
    PLACE,
    PLACE_BITS,
    PLACE_MASK,
    PROGRESS,
    READERS_VERSION,
    READY_EVENT,
    REF,
    RING,
    SEATS,
    SEQ,
    STATE,
    STORE_AT,
    TAIL,
    TELLING,
    TS,
    UNLINKED,
    read_at,
    reader_at,
    scratch_at,
    source_at,
)

# --- sources ----------------------------------------------------------------------------------------------------


@compiled
def add(g, slot, ts, seq, ref, low, high, progress):
    """Add tuples `low` to `high` of the arrays, in order of (ts, seq); then promise nothing below `progress`.

    Gives how many were added, fewer than asked where a limit was reached, or a code if there are none.

    Arguments and answers are those of `ring.add`; `either` relies on that. The three steps of each part: nodes are
    written where nobody can reach them, linked, then promised. Readers stop at the frontier, so a node that is linked
    and not promised is passed by sources alone.
    """
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
        count = min(code, high - low - added)
        code = write(g, slot, ts, seq, ref, low + added, count)
        if code < 0:
            break
        insert(g, slot, count)
        added += count
        store_release(g, s + PROGRESS, progress if low + added == high else ts[low + added - 1])
    leave_source(g, slot, before if added > 0 else AFTER_ALL)
    return added if added > 0 or low == high else code


@compiled
def write(g, slot, ts, seq, ref, low, count):
    """Write the nodes, which nobody else can see yet: 0, or a code if a tuple breaks its source's order.

    TS, PLACE, SEQ and REF of a node are plain words: the CAS that links the node releases them. NEXT of level 0 is
    written by `link`; the levels above begin as UNLINKED.
    """
    s = source_at(slot)
    last_ts = g[s + LAST_TS]
    last_seq = g[s + LAST_SEQ]
    promised = load_acquire(g, s + PROGRESS)
    tail = g[s + TAIL]
    for i in range(low, low + count):
        if ts[i] < last_ts or ts[i] < promised:
            return LATE
        if ts[i] == last_ts and seq[i] <= last_seq:
            return UNSORTED
        place = (slot << PLACE_BITS) + tail + i - low
        node = node_at(g, place)
        g[node + TS] = ts[i]
        g[node + PLACE] = place
        g[node + SEQ] = seq[i]
        g[node + REF] = ref[i]
        for level in range(1, height(g, place)):
            g[node + NEXT + level] = UNLINKED
        last_ts = ts[i]
        last_seq = seq[i]
    return 0


@compiled
def insert(g, slot, count):
    """Link the `count` nodes after TAIL.

    LAST_TS and LAST_SEQ are taken from the last node; PIN goes back to AFTER_ALL when the source follows no link any
    more.
    """
    s = source_at(slot)
    tail = g[s + TAIL]
    first = (slot << PLACE_BITS) + tail
    start = pin(g, slot, tallest(g, tail, count))
    last = link(g, s, start, first, count)
    g[s + HANDLES] = g[last + PLACE]
    g[s + HANDLES_TS] = g[last + TS]
    g[s + LAST_TS] = g[last + TS]
    g[s + LAST_SEQ] = g[last + SEQ]
    store_release(g, s + PIN, AFTER_ALL)
    store_release(g, s + TAIL, tail + count)


@compiled
def pin(g, slot, levels):
    """Find a node to start from, with handles up to `levels`, and keep it and all after it from being freed.

    Gives a node index. `levels`: the greatest height among the tuples to be linked; a handle is needed on each of
    these levels. Handles are tried from the top, because the higher one is older: once one is kept, all below it are.
    """
    s = source_at(slot)
    level = g[LEVELS] - 1
    while level >= 0:
        # A higher level's handle is the older one: if it is kept, the lower ones are.
        place = g[s + HANDLES + level]
        if place != NO_PLACE:
            store_release(g, s + PIN, g[s + HANDLES_TS + level])
            # The pin must be seen before positions are read: see `flow.free`.
            fence()
            if kept(g, place):
                break
            g[s + HANDLES + level] = NO_PLACE
        level -= 1
    if level + 1 >= levels:
        return node_at(g, g[s + HANDLES])
    return anchor(g, slot)


@compiled
def anchor(g, slot):
    """Start from the node some reader stands on: what it has read is ready, so it is below what may be inserted."""
    s = source_at(slot)
    for level in range(g[LEVELS]):
        g[s + HANDLES + level] = NO_PLACE
    store_release(g, s + PIN, BEFORE_ALL)
    fence()
    while True:
        for reader in range(g[SEATS]):
            r = reader_at(g, reader)
            if load_acquire(g, r + STATE) != FREE:
                place = load_acquire(g, r + HEAD)
                # If not, the reader has moved on meanwhile: the system makes progress, and there is a next one.
                if kept(g, place):
                    node = node_at(g, place)
                    store_release(g, s + PIN, g[node + TS])
                    remember(g, s, node)
                    return node


@compiled
def kept(g, place):
    """Whether some reader has yet to read this tuple, or stands on it: then neither it nor any after it was freed.

    `place` is that of a node the source has remembered. A reader that has not read it, or stands on it, keeps it and
    all that follows. Of one that is telling what it has read this row may be behind another by which memory was freed: it
    vouches for the node it stands on alone. The loop repeats only if the set of readers has changed meanwhile.
    """
    slot = place >> PLACE_BITS
    while True:
        version = load_acquire(g, READERS_VERSION)
        found = False
        for reader in range(g[SEATS]):
            r = reader_at(g, reader)
            if load_acquire(g, r + STATE) != FREE:
                telling = load_acquire(g, r + TELLING) != 0
                unread = load_acquire(g, read_at(g, reader) + slot) <= place & PLACE_MASK
                found = found or (unread and not telling) or load_acquire(g, r + HEAD) == place
        if load_acquire(g, READERS_VERSION) == version:
            return found


@compiled
def add_waiting(g, slot, ts, seq, ref, low, high, progress, nanoseconds, patient):
    """As `add`, but sleep up to `nanoseconds` where the answer would be FULL.

    `patient`: also where it would be STUCK. Only for a thread that feeds this source alone: the source that holds the
    frontier must be another thread's.
    """
    code, look, event, ticket = 0, FIRST_LOOK, NO_EVENT, 0
    while look != LAST_LOOK:
        code = add(g, slot, ts, seq, ref, low, high, progress)
        look, event, ticket = wait(g, look, event, ticket, awaited(code, patient), nanoseconds)
    return code


# --- readers ----------------------------------------------------------------------------------------------------


@compiled
def read(g, reader, most, ts, origin, seq, ref):
    """Copy the next ready tuples, up to `most`, into the arrays: how many, DONE at the end, or a code.

    HEAD is stored before the counts (`tell`), so that a source that sees the new count also sees that the reader
    stands elsewhere. A reader follows level 0 only: one acquired load and some plain ones a tuple.
    """
    code = enter_reader(g, reader)
    if code < 0:
        return code
    r = reader_at(g, reader)
    counts = scratch_at(g, reader)
    node = node_at(g, g[r + HEAD])
    frontier = g[r + FRONTIER]
    done = False
    number = 0
    while number < most:
        ahead = load_acquire(g, node + NEXT)
        if ahead == NIL or g[ahead + TS] >= frontier:
            settled = settle(g, reader)
            if settled == frontier:
                done = ahead == NIL and frontier == AFTER_ALL
                break
            # Tuples below the new frontier may have been linked since: look again.
            frontier = settled
            continue
        node = ahead
        give(g, node, counts, number, ts, origin, seq, ref)
        number += 1
    if number > 0:
        store_release(g, r + TELLING, 1)
        store_release(g, r + HEAD, g[node + PLACE])
        tell(g, reader)
        store_release(g, r + TELLING, 0)
    leave_reader(g, reader, number > 0)
    if number == 0 and done:
        return DONE
    return number


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
