"""The ring gate: each source appends to its own columns, readers merge what is ready.

Invariants, and why they hold:

- A source's tuples are in its ring before its progress says so: columns are written plainly, then TAIL, then PROGRESS, each
  released. A reader acquires PROGRESS, then TAIL, so below its frontier it finds every tuple there will ever be; between
  two moves of the frontier the ready prefixes do not change, and the merge runs on private words only.
- A tuple is overwritten only after every reader has published that it has read it.

Sources share no word that they write, whence the speed; the price is that every reader merges for itself, where the skip
list has sorted once for all of them.

Memory: a source's ring is three columns of RING words, int64: ts (microseconds), seq, ref (the number under which the
payload is kept). The n-th tuple of a source lies at place `n & RING_MASK` of each. TAIL counts tuples ever added and
never wraps, so «how many» is a plain difference.

An example. Two sources, A of the lower origin. A has added ts 1, 4, 4 and promised 5; B has added 2, 4 and promised 4.
The frontier is 4, so 1 and 2 are ready: a reader gets A1, B2. When B promises 5, the rest is ready: A4, A4, B4. Both
of A's come first because A's origin is lower, whoever was faster.

Cost: a source pays one copy, two released stores and a fence a batch, whatever the number of sources. A reader pays
log2(sources) comparisons a tuple. With many readers the same merge is done many times; then `skiplist` may be the
cheaper gate.

Held by tests/threads/gate/test_interleavings.py (all short schedules) and tests/threads/gate/test_threads.py (real
threads, tiny rings, against a NumPy sort).
"""

from __future__ import annotations

from plait.order import AFTER_ALL
from plait.threads.atomics import compiled, load_acquire, pure, store_release, unsigned
from plait.threads.gate.calls import enter_reader, enter_source, leave_reader, leave_source, tell
from plait.threads.gate.codes import DONE, LATE, UNSORTED
from plait.threads.gate.flow import FIRST_LOOK, LAST_LOOK, NO_EVENT, awaited, first_at, room, wait
from plait.threads.gate.frontier import settle
from plait.threads.gate.merge import build, merge_many, merge_one, merge_two, ring_at
from plait.threads.gate.words import (
    BUILT,
    COLUMNS,
    FRONTIER,
    LAST_SEQ,
    LAST_TS,
    LEAVES,
    ORIGIN,
    PROGRESS,
    READY_EVENT,
    RING,
    RING_MASK,
    TAIL,
    USED,
    WIDTH,
    reader_at,
    scratch_at,
    source_at,
)

# --- sources ----------------------------------------------------------------------------------------------------


@compiled
def add(g, slot, ts, seq, ref, low, high, progress):
    """Add tuples `low` to `high` of the arrays, in order of (ts, seq); then promise nothing below `progress`.

    Gives how many were added, fewer than asked where a limit was reached, or a code if there are none.

    By the thread that pushes the source. `ts`, `seq` and `ref` are the caller's int64 arrays; they are copied, so the
    caller may use them again. The rows of one call may enter in several steps, as room is found; after each step the
    source promises the ts of its last tuple, and only after the last step `progress`. A reader may therefore see a
    part of the rows, but never a later one before an earlier one.

    `progress` must not be below the last ts. If a limit stops the call half way, the caller calls again with the rest:
    what is in stays in. A tuple below what the source has promised is LATE, and nothing of that step enters.
    """
    code = enter_source(g, slot)
    if code < 0:
        return code
    s = source_at(slot)
    added = 0
    while low + added < high:
        code = room(g, slot, ring_at(g, slot), 1)
        if code < 0:
            break
        first = low + added
        count = min(code, high - first)
        code = in_order(ts, seq, first, count, g[s + LAST_TS], g[s + LAST_SEQ], load_acquire(g, s + PROGRESS))
        if code < 0:
            break
        append(g, slot, ts, seq, ref, first, count)
        added += count
        g[s + LAST_TS] = ts[first + count - 1]
        g[s + LAST_SEQ] = seq[first + count - 1]
        store_release(g, s + TAIL, g[s + TAIL] + count)
        store_release(g, s + PROGRESS, progress if low + added == high else ts[first + count - 1])
    leave_source(g, slot, added > 0)
    return added if added > 0 or low == high else code


@pure
def in_order(ts, seq, low, count, last_ts, last_seq, promised):
    """0, or the code of what breaks the source's order; one pass without branches, since nothing usually does.

    `low` and `count` name the tuples; `last_ts` and `last_seq` are the source's last one. `promised` is its PROGRESS.
    The loop combines two flags instead of leaving early: it then has no branch on the data.
    """
    if ts[low] < promised or ts[low] < last_ts:
        return LATE
    if ts[low] == last_ts and seq[low] <= last_seq:
        return UNSORTED
    if count == 1:
        return 0
    back = False
    tied = False
    first = unsigned(low + 1)
    before = unsigned(low)
    for i in range(unsigned(count - 1)):
        back |= ts[first + i] < ts[before + i]
        tied |= (ts[first + i] == ts[before + i]) & (seq[first + i] <= seq[before + i])
    if back:
        return LATE
    return UNSORTED if tied else 0


@pure
def append(g, slot, ts, seq, ref, low, count):
    """Copy into the ring, in two parts where it wraps round; nobody else reads there yet."""
    size = g[RING]
    at = g[source_at(slot) + TAIL] & g[RING_MASK]
    to = ring_at(g, slot)
    if count == 1:  # tuple by tuple, six loops would cost ten times as much as the tuple
        g[to + at] = ts[low]
        g[to + size + at] = seq[low]
        g[to + 2 * size + at] = ref[low]
        return
    part = min(count, size - at)
    copy(g, to + at, ts, low, part)
    copy(g, to, ts, low + part, count - part)
    to += size
    copy(g, to + at, seq, low, part)
    copy(g, to, seq, low + part, count - part)
    to += size
    copy(g, to + at, ref, low, part)
    copy(g, to, ref, low + part, count - part)


@pure
def copy(g, to, column, low, count):
    """`count` words of `column` from `low` on, to `g[to]` and what follows.

    An unsigned index lets LLVM vectorise the loop.
    """
    first = unsigned(to)
    at = unsigned(low)
    for i in range(unsigned(count)):
        g[first + i] = column[at + i]


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

    By the reader's thread alone (its seat's BUSY word is held meanwhile). The arrays are the caller's, int64, of at
    least `most` places. `origin` receives the source's rank, input << 32 | position: the tuple's input and its slot
    can be read off it.

    First what the last survey found ready is merged. Only when that is used up is the frontier settled anew. So a
    reader that is behind does not touch the sources' progress words at all. DONE comes only when the frontier is
    AFTER_ALL and nothing was read: a reader that gets its last tuples hears of the end with its next call.
    """
    code = enter_reader(g, reader)
    if code < 0:
        return code
    r = reader_at(g, reader)
    if g[r + LEAVES] < 0:
        survey(g, reader)  # announced since: its parent's leaves are not its own
    number = most - most  # not a literal: Numba would compile the merges once more for it
    number = merge(g, reader, number, most, ts, origin, seq, ref)
    done = False
    while number < most:
        frontier = g[r + FRONTIER]
        if settle(g, reader) == frontier:
            done = frontier == AFTER_ALL
            break
        survey(g, reader)
        number = merge(g, reader, number, most, ts, origin, seq, ref)
    if number > 0:
        tell(g, reader)
    leave_reader(g, reader, number > 0)
    return DONE if done and number == 0 else number


@compiled
def survey(g, reader):
    """Find the leaves, in order of origin, and the ends of their ready prefixes, for the frontier just settled.

    Leaves are kept sorted by insertion as they are found. That is quadratic in the number of sources, but it runs once
    for each move of the frontier, and not once a tuple. A source without ready tuples is no leaf. BUILT = 0 tells
    `merge` that a tournament over the old leaves is worth nothing any more.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    ends = leaves + g[WIDTH]
    ranks = ends + g[WIDTH]
    frontier = g[reader_at(g, reader) + FRONTIER]
    number = 0
    for slot in range(load_acquire(g, USED)):
        tail = load_acquire(g, source_at(slot) + TAIL)
        end = first_at(g, ring_at(g, slot), 1, g[counts + slot], tail, frontier)
        if end > g[counts + slot]:
            rank = g[source_at(slot) + ORIGIN]
            place = number
            while place > 0 and g[ranks + place - 1] > rank:
                g[leaves + place] = g[leaves + place - 1]
                g[ends + place] = g[ends + place - 1]
                g[ranks + place] = g[ranks + place - 1]
                place -= 1
            g[leaves + place] = slot
            g[ends + place] = end
            g[ranks + place] = rank
            number += 1
    g[reader_at(g, reader) + LEAVES] = number
    g[reader_at(g, reader) + BUILT] = 0


@pure
def merge(g, reader, done, most, ts, origin, seq, ref):
    """Fill the arrays, which hold `done` tuples, from the ready prefixes; gives how many they hold then.

    One and two leaves are the usual cases and have loops of their own; from three on a tournament is built
    (`merge.build`), which stands until the next survey.
    """
    r = reader_at(g, reader)
    number = g[r + LEAVES]
    if number == 0:
        return done
    if number == 1:
        return merge_one(g, reader, number - 1, done, most, ts, origin, seq, ref)
    if number == 2:
        return merge_two(g, reader, done, most, ts, origin, seq, ref)
    if g[r + BUILT] == 0:
        build(g, reader, number)
        g[r + BUILT] = 1
    return merge_many(g, reader, done, most, ts, origin, seq, ref)


@compiled
def read_waiting(g, reader, most, ts, origin, seq, ref, nanoseconds):
    """As `read`, but sleep up to `nanoseconds` for the sources where nothing is ready.

    Anything but «nothing ready» is an answer at once: tuples, DONE, or a code. A wake-up without tuples gives 0, so
    callers loop.
    """
    number, look, event, ticket = 0, FIRST_LOOK, NO_EVENT, 0
    while look != LAST_LOOK:
        number = read(g, reader, most, ts, origin, seq, ref)
        look, event, ticket = wait(g, look, event, ticket, READY_EVENT if number == 0 else NO_EVENT, nanoseconds)
    return number
