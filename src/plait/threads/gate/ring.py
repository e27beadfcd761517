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

Held by tests/threads/gate/test_interleavings.py (small cases, schedules with few preemptions) and
tests/threads/gate/test_threads.py (real threads, tiny rings, against a NumPy sort).
"""

from __future__ import annotations

from plait.order import AFTER_ALL
from plait.threads.atomics import compiled, load_acquire, pure, store_release, unsigned
from plait.threads.gate.calls import enter_reader, enter_source, leave_reader, leave_source, tell
from plait.threads.gate.codes import DONE, LATE, UNSORTED
from plait.threads.gate.flow import FIRST_LOOK, LAST_LOOK, NO_EVENT, awaited, first_at, room, wait
from plait.threads.gate.frontier import settle
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
    STORE_AT,
    TAIL,
    USED,
    WIDTH,
    reader_at,
    scratch_at,
    source_at,
)


@pure
def ring_at(g, slot):
    """Where the ring of this source begins: ts, then seq, then ref, each RING words."""
    return g[STORE_AT] + slot * g[RING] * 3


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
    before = load_acquire(g, s + PROGRESS)
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
    leave_source(g, slot, before if added > 0 else AFTER_ALL)
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


@compiled
def read_waiting(g, reader, most, ts, origin, seq, ref, nanoseconds):
    """As `read`, but sleep up to `nanoseconds` for the sources where nothing is ready.

    Anything but «nothing ready» is an answer at once: tuples, DONE, or a code; or 0 if the frontier has moved, which may
    close what no tuple is needed for. A wake-up without tuples gives 0, so callers loop.
    """
    number, look, event, ticket = 0, FIRST_LOOK, NO_EVENT, 0
    known = load_acquire(g, reader_at(g, reader) + FRONTIER)
    while look != LAST_LOOK:
        number = read(g, reader, most, ts, origin, seq, ref)
        news = number != 0 or load_acquire(g, reader_at(g, reader) + FRONTIER) > known
        look, event, ticket = wait(g, look, event, ticket, NO_EVENT if news else READY_EVENT, nanoseconds)
    return number


# --- merging ----------------------------------------------------------------------------------------------------
# Plain arithmetic on memory that no other thread writes meanwhile.
#
# A leaf is a source with ready tuples; leaves stand in order of origin, so that on equal ts the lower leaf goes first and
# the total order is exact without comparing anything but ts. (Within a leaf the ring's order is that of (ts, seq).)
# None of the loops has a branch that depends on the data: which source comes next is as good as random, and a wrong guess
# costs more than the merge.
#
# A reader's merge lies behind its counts in its private words, WIDTH words a part:
# leaves' slots | ends of their ready prefixes | origins | next ts | losers | winners (two parts, while the tree is built)
#
# An example of the tournament. WIDTH is 4 and three leaves have next ts 1, 2, 3; the fourth place is empty, AFTER_ALL.
# Matches: leaf 0 beats 1 (node 2 keeps the loser, 1), leaf 2 beats 3 (node 3 keeps 3), leaf 0 beats 2 (node 1 keeps 2).
# Leaf 0 is the winner and is taken. Say its next ts is 4. Only the matches on its way up are replayed: at node 2 leaf 1
# (ts 2) beats it and goes on, at node 1 leaf 1 beats leaf 2 (ts 3). The next winner is leaf 1, after log2(4) = 2
# comparisons.
#
# Losers are kept, not winners: on the way up the path's own loser is then the only rival to look at, one load a level.


@pure
def merge(g, reader, done, most, ts, origin, seq, ref):
    """Fill the arrays, which hold `done` tuples, from the ready prefixes; gives how many they hold then.

    One and two leaves are the usual cases and have loops of their own; from three on a tournament is built
    (`build`), which stands until the next survey.
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


@pure
def merge_one(g, reader, leaf, done, most, ts, origin, seq, ref):
    """Copy from one leaf; gives how many tuples are in the arrays then.

    `leaf` is a place among the leaves, `done` how many tuples the arrays hold, `most` how many they may. The reader's
    count of the source moves along; it is private until `calls.tell` publishes it.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    slot = g[leaves + leaf]
    ring = ring_at(g, slot)
    size = g[RING]
    number = min(most - done, g[leaves + g[WIDTH] + leaf] - g[counts + slot])
    rank = g[leaves + 2 * g[WIDTH] + leaf]
    while number > 0:
        at = g[counts + slot] & g[RING_MASK]
        part = min(number, size - at)
        first = unsigned(ring + at)
        to = unsigned(done)
        for i in range(unsigned(part)):
            ts[to + i] = g[first + i]
            origin[to + i] = rank
            seq[to + i] = g[first + unsigned(size) + i]
            ref[to + i] = g[first + unsigned(2 * size) + i]
        g[counts + slot] += part
        done += part
        number -= part
    return done


@pure
def merge_two(g, reader, done, most, ts, origin, seq, ref):
    """Merge two leaves; gives how many tuples are in the arrays then.

    Leaf 0 has the lower origin. It goes first unless the other's ts is strictly lower, which settles ties. As many
    steps as neither side can run out in are made without looking at an end; then the bound is found again. What is
    left of one leaf is copied.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    wide = g[WIDTH]
    left, right = g[leaves], g[leaves + 1]
    left_end, right_end = g[leaves + wide], g[leaves + wide + 1]
    left_at, right_at = g[counts + left], g[counts + right]
    left_ring, right_ring = ring_at(g, left), ring_at(g, right)
    left_rank, right_rank = g[leaves + 2 * wide], g[leaves + 2 * wide + 1]
    mask, size = g[RING_MASK], g[RING]
    while True:
        # So many steps can't run past either end or the arrays.
        safe = min(most - done, min(left_end - left_at, right_end - right_at))
        if safe <= 0:
            break
        for i in range(done, done + safe):
            first = left_ring + (left_at & mask)
            second = right_ring + (right_at & mask)
            one, two = g[first], g[second]
            other = 1 if two < one else 0
            at = second if two < one else first
            ts[i] = min(one, two)
            origin[i] = right_rank if two < one else left_rank
            seq[i] = g[at + size]
            ref[i] = g[at + 2 * size]
            right_at += other
            left_at += 1 - other
        done += safe
    g[counts + left], g[counts + right] = left_at, right_at
    if done < most:
        done = merge_one(g, reader, 0 if left_at < left_end else 1, done, most, ts, origin, seq, ref)
    return done


@pure
def build(g, reader, number):
    """A tournament over the leaves: every inner node holds the loser of its match, node 0 the winner of all.

    A leaf whose ready prefix is used up, and a place without a leaf, has the key AFTER_ALL, which no tuple has.
    `winners` is scratch: it is needed only while the tree is built.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    wide = g[WIDTH]
    ends, keys, losers, winners = leaves + wide, leaves + 3 * wide, leaves + 4 * wide, leaves + 5 * wide
    for leaf in range(wide):
        key = AFTER_ALL
        if leaf < number:
            slot = g[leaves + leaf]
            if g[counts + slot] < g[ends + leaf]:
                key = g[ring_at(g, slot) + (g[counts + slot] & g[RING_MASK])]
        g[keys + leaf] = key
        g[winners + wide + leaf] = leaf
    for node in range(wide - 1, 0, -1):
        one, two = g[winners + 2 * node], g[winners + 2 * node + 1]
        second = g[keys + two] < g[keys + one]
        g[winners + node] = two if second else one
        g[losers + node] = one if second else two
    g[losers] = g[winners + 1]


@pure
def merge_many(g, reader, done, most, ts, origin, seq, ref):
    """Take the winner of the tournament, put that leaf's next tuple in its place and replay its matches.

    Ends with `done == most`, or with AFTER_ALL as the winner's key: then every ready prefix is used up. `losers[0]`
    keeps the winner for the next call.
    """
    counts = scratch_at(g, reader)
    leaves = counts + g[COLUMNS]
    wide = g[WIDTH]
    ends, ranks, keys, losers = leaves + wide, leaves + 2 * wide, leaves + 3 * wide, leaves + 4 * wide
    mask, size = g[RING_MASK], g[RING]
    winner = g[losers]
    while done < most and g[keys + winner] != AFTER_ALL:
        slot = g[leaves + winner]
        ring = ring_at(g, slot)
        count = g[counts + slot]
        at = ring + (count & mask)
        ts[done] = g[at]
        origin[done] = g[ranks + winner]
        seq[done] = g[at + size]
        ref[done] = g[at + 2 * size]
        done += 1
        count += 1
        g[counts + slot] = count
        end = g[ends + winner]
        # Where there is no next one the last is read again: the word behind it may be its source's by now.
        following = g[ring + (min(count, end - 1) & mask)]
        key = following if count < end else AFTER_ALL
        g[keys + winner] = key
        node = (winner + wide) >> 1
        while node > 0:
            loser = g[losers + node]
            rival = g[keys + loser]
            # All ones if the rival goes first, else zero: with masks instead of choices there is no branch to guess.
            beaten = -(int(rival < key) | (int(rival == key) & int(loser < winner)))
            swapped = (winner ^ loser) & beaten
            g[losers + node] = loser ^ swapped
            winner ^= swapped
            key ^= (key ^ rival) & beaten
            node >>= 1
    g[losers] = winner
    return done
