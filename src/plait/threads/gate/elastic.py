"""Announcing and removing sources and readers while the gate runs (ESG, section 7).

ESG inserts a dummy tuple for a new source and a flush tuple for one that leaves, because its readers learn from
nodes what is ready. Here they learn it from PROGRESS words, so the dummy is `PROGRESS = min_ts` and the flush
`PROGRESS = AFTER_ALL`; neither is ever read as a tuple.

Invariants, and why they hold:

- Of concurrent calls that name the same id, one takes effect: ids are claimed with BUSY, in ascending order and all or
  none. Two callers can't each hold what the other lacks, so one of them gets all of its own. Of calls with one `change`
  number, and of later ones with that or a lower number, one takes effect: CAS on CHANGES.
- A new source starts at or above every frontier a reader has settled: announcers publish PROGRESS, raise the version,
  fence and read every FRONTIER; readers publish FRONTIER, fence and read the version. Whoever comes second sees the
  other: the reader counts the new source, or the announcer takes it back and answers BEHIND.
- A new reader starts exactly where its parent stands: the parent's BUSY is held meanwhile, and memory is only freed
  against the rows of readers that were there through one READERS_VERSION.

An example. Reader R has settled frontier 10. Source S is announced with min_ts 8: `admit` publishes PROGRESS 8, raises
the version, fences, reads FRONTIER 10 > 8, takes the 8 back and answers BEHIND. `gates.Gate.open` asks again with 10.
Had the announcer read FRONTIER before R stored its 10, R would find the version changed at its second look, compute
the minimum again, and come to 8: then S is in.
"""

from __future__ import annotations

from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.atomics import cas, compiled, fence, fetch_add, load_acquire, store_release
from plait.threads.gate.calls import enter_reader, leave_reader, leave_source
from plait.threads.gate.codes import BEHIND, DRAINING, INSIDE, LAST_READER, NOT_TAKEN
from plait.threads.gate.frontier import wake_readers
from plait.threads.gate.words import (
    ANNOUNCE_READERS,
    ANNOUNCE_SOURCES,
    BUSY,
    CHANGES,
    CLAIMED,
    COLUMNS,
    FREE,
    FRONTIER,
    HANDLES,
    HEAD,
    HOLDER,
    LAST_SEQ,
    LAST_TS,
    LEAVES,
    LIMIT,
    LIVE,
    MAX_LEVELS,
    NO_PLACE,
    ORIGIN,
    PROGRESS,
    READERS_LIVE,
    READERS_VERSION,
    REMOVE_READERS,
    REMOVE_SOURCES,
    REMOVED,
    SEATS,
    SOURCES_VERSION,
    STATE,
    TAIL,
    USED,
    read_at,
    reader_at,
    scratch_at,
    source_at,
)


@compiled
def wins(g, kind, change):
    """Whether this call is the one that takes effect for its `change` number (0: unnumbered, always)."""
    if change == 0:
        return True
    while True:
        last = load_acquire(g, CHANGES + kind)
        if last >= change:
            return False
        if cas(g, CHANGES + kind, last, change):
            return True


# --- sources ----------------------------------------------------------------------------------------------------


@compiled
def announce_sources(g, slots, origins, count, min_ts, change):
    """Let `slots` (ascending) in; their tuples will have ts >= `min_ts`.

    0, or a code: then nothing has changed. INSIDE means that another call holds one of them for a moment: try again.

    `slots` and `origins` are int64 arrays of `count` entries. `change` is a number of the caller's; 0 means none.
    STATE becomes LIVE after BUSY is let go of: until then nobody can be inside the new source, and a remover finds
    nothing to remove.
    """
    code = 0
    held = 0
    while held < count and code == 0:
        code = claim_source(g, slots[held])
        if code == 0:
            held += 1
    if code == 0 and not wins(g, ANNOUNCE_SOURCES, change):
        code = NOT_TAKEN
    if code == 0:
        code = admit(g, slots, origins, count, min_ts)
    for i in range(held):
        leave_source(g, slots[i], min_ts if code == BEHIND else AFTER_ALL)
        if code == 0:
            store_release(g, source_at(slots[i]) + STATE, LIVE)
    return code


@compiled
def claim_source(g, slot):
    """Take BUSY of a slot that has no source and no tuple that some reader has yet to read: 0, or a code.

    DRAINING is temporary: the slot's former source has ended, but some reader has yet to read its last tuple, or it
    has not let go of the frontier.
    """
    s = source_at(slot)
    if load_acquire(g, s + STATE) == LIVE:
        return NOT_TAKEN
    if not cas(g, s + BUSY, 0, 1):
        return INSIDE
    state = load_acquire(g, s + STATE)
    code = 0
    if state == LIVE:
        code = NOT_TAKEN
    elif state == CLAIMED:
        code = INSIDE  # its announcer is about to say that it is live: until then nobody could remove it
    elif load_acquire(g, s + PROGRESS) != AFTER_ALL or not drained(g, slot):
        code = DRAINING
    if code < 0:
        leave_source(g, slot, AFTER_ALL)
    return code


@compiled
def drained(g, slot):
    """Whether every reader has read this slot's last tuple."""
    tail = load_acquire(g, source_at(slot) + TAIL)
    while True:
        version = load_acquire(g, READERS_VERSION)
        done = True
        for reader in range(g[SEATS]):
            if load_acquire(g, reader_at(g, reader) + STATE) != FREE:
                done = done and load_acquire(g, read_at(g, reader) + slot) == tail
        if load_acquire(g, READERS_VERSION) == version:
            return done


@compiled
def admit(g, slots, origins, count, min_ts):
    """With the slots' BUSY in hand: let them in, unless a reader has been promised more than `min_ts`.

    LAST_TS and LIMIT belong to the former source and are reset; TAIL is not: counts, and with them places, go on for
    ever.
    """
    for i in range(count):
        s = source_at(slots[i])
        store_release(g, s + ORIGIN, origins[i])
        g[s + LAST_TS] = BEFORE_ALL
        g[s + LAST_SEQ] = 0
        g[s + LIMIT] = 0
        for level in range(MAX_LEVELS):
            g[s + HANDLES + level] = NO_PLACE
        store_release(g, s + PROGRESS, min_ts)
        raise_used(g, slots[i] + 1)
    # From here on, whoever settles a frontier counts the new sources; who did before is seen below.
    fetch_add(g, SOURCES_VERSION, 1)
    fence()
    for reader in range(g[SEATS]):
        r = reader_at(g, reader)
        if load_acquire(g, r + STATE) != FREE and load_acquire(g, r + FRONTIER) > min_ts:
            for i in range(count):
                store_release(g, source_at(slots[i]) + PROGRESS, AFTER_ALL)
            return BEHIND
    for i in range(count):
        store_release(g, source_at(slots[i]) + STATE, CLAIMED)
    return 0


@compiled
def raise_used(g, used):
    """Slots below `used` have to be looked at from now on; USED never falls.

    CAS, since announcers of different slots may be here at once.
    """
    while True:
        old = load_acquire(g, USED)
        if old >= used or cas(g, USED, old, used):
            return


@compiled
def remove_sources(g, slots, count, change):
    """Flush these sources and ignore what they still add: how many this call removed, or NOT_TAKEN."""
    if not wins(g, REMOVE_SOURCES, change):
        return NOT_TAKEN
    taken = 0
    for i in range(count):
        s = source_at(slots[i])
        if cas(g, s + STATE, LIVE, REMOVED):
            taken += 1
            # As if leaving a call: lets go of the frontier now, or leaves it to whoever is inside.
            fence()
            if cas(g, s + BUSY, 0, 1):
                leave_source(g, slots[i], AFTER_ALL)
    return taken if taken > 0 else NOT_TAKEN


# --- readers ----------------------------------------------------------------------------------------------------


@compiled
def announce_readers(g, readers, count, parent, change):
    """Let `readers` (ascending) in where `parent` stands: their first tuple is the one it reads next.

    0, or a code: then nothing has changed. INSIDE means that another call holds one of them for a moment: try again.
    """
    code = enter_reader(g, parent)
    if code < 0:
        return code
    held = 0
    while held < count and code == 0:
        r = reader_at(g, readers[held])
        if load_acquire(g, r + STATE) != FREE:
            code = NOT_TAKEN
        elif not cas(g, r + BUSY, 0, 1):
            code = INSIDE
        else:
            held += 1
            if load_acquire(g, r + STATE) != FREE:
                code = NOT_TAKEN
    if code == 0 and not wins(g, ANNOUNCE_READERS, change):
        code = NOT_TAKEN
    if code == 0:
        seat(g, readers, count, parent)
    for i in range(held):
        leave_reader(g, readers[i], False)
        if code == 0:
            store_release(g, reader_at(g, readers[i]) + STATE, LIVE)
    leave_reader(g, parent, False)
    return code


@compiled
def seat(g, readers, count, parent):
    """With every BUSY in hand: copy the parent's position, then let the readers in.

    Rows are copied by acquired loads and released stores: a source that frees memory may read the new reader's row at
    once. The private counts are copied too, since a ring reader merges by them. LEAVES = -1: the parent's merge is not
    the new reader's.
    """
    p = reader_at(g, parent)
    for i in range(count):
        r = reader_at(g, readers[i])
        for column in range(g[COLUMNS]):
            left = load_acquire(g, read_at(g, parent) + column)
            store_release(g, read_at(g, readers[i]) + column, left)
            g[scratch_at(g, readers[i]) + column] = left
        store_release(g, r + FRONTIER, load_acquire(g, p + FRONTIER))
        store_release(g, r + HEAD, load_acquire(g, p + HEAD))
        g[r + HOLDER] = -1
        g[r + LEAVES] = -1
        store_release(g, r + STATE, CLAIMED)
    fetch_add(g, READERS_LIVE, count)
    # Before the parent can move on: whoever frees memory by its later position sees that the readers have changed.
    fetch_add(g, READERS_VERSION, 1)


@compiled
def remove_readers(g, readers, count, change):
    """Let these readers go: how many this call removed, or a code. The last one has to stay."""
    if not wins(g, REMOVE_READERS, change):
        return NOT_TAKEN
    taken = 0
    for i in range(count):
        code = remove_reader(g, readers[i])
        if code == LAST_READER:
            return code
        taken += code
    # One that sleeps is woken to hear it.
    fence()
    wake_readers(g)
    return taken if taken > 0 else NOT_TAKEN


@compiled
def remove_reader(g, reader):
    """Let one reader go: 1, 0 if it was not live, or LAST_READER.

    READERS_LIVE is taken from first, so that of two calls that remove the last two readers one is refused. If a thread
    is inside a call of the reader, that thread frees the seat when it leaves.
    """
    r = reader_at(g, reader)
    if load_acquire(g, r + STATE) != LIVE:
        return 0
    while True:
        live = load_acquire(g, READERS_LIVE)
        if live <= 1:
            return LAST_READER
        if cas(g, READERS_LIVE, live, live - 1):
            break
    if not cas(g, r + STATE, LIVE, REMOVED):
        fetch_add(g, READERS_LIVE, 1)
        return 0
    fence()
    if cas(g, r + BUSY, 0, 1):
        leave_reader(g, reader, False)
    return 1
