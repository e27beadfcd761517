"""Sources' tallies merged into panes: compiled, and shared with helpers if there are any (`team`).

It is one call without Python (`whole`), in pieces of work one after the other. A *part* is one source's tally of one key in one
pane.

FIND    the group of every part. A portion is a stretch of parts. What is not known is marked, and counted by source; then the
        call ends, and whoever owns the groups adds them. Where one large pane comes, groups that are in it are marked in
        `slot_of`. Then groups get slots: of one large pane in the order of their keys, so that what follows goes along memory,
        else as parts come.
SLOT    of one large pane: the slot of every part. A portion is a stretch of parts.
MERGE   parts go into the slots that they have, every function's. A portion is a stretch of slots: it passes over all parts, and
        takes those whose slot is its own.

Invariant: **no word is written by two threads**, but for marks, which all are alike. A portion of FIND or SLOT writes its own
stretch of parts, one of MERGE its own slots. So what a slot gets, and in which order, does not depend on who does what, nor on
how many there are: parts are merged in the order of their sources, which `first` and `last` rely on. Everything else is read
only. Tallies of complete panes do not change any more, and the taker makes no room, for groups or slots, while portions are
being done.

A *job* is the piece of work in words: addresses and sizes. They are good while the taker holds the arrays, which it does until
all is done. A source's row of its table says where its keys lie, then where each function's tallies do (RING_WORDS).

Held by tests/threads/aggregate/test_merging.py.
"""

from __future__ import annotations

from typing import Final

from plait.core.aggregate.accumulators import (
    COUNTS,
    EDGES,
    EXTREMES,
    MERGE_BASE,
    MERGE_HOW,
    MERGE_SIZE,
    MERGE_SLOTS,
    MERGE_TIMES,
    MERGE_WHAT,
    MERGE_WIDTH,
    MERGE_WORDS,
    RING_BASE,
    RING_SIZE,
    RING_SLOTS,
    RING_WIDTH,
    RING_WORDS,
)
from plait.core.kernels import exact, groups, panes
from plait.core.kernels.panes import SLOT_END
from plait.threads.aggregate.hive import team
from plait.threads.atomics import store_release
from plait.threads.atomics.native import address_of, compiled, inner, ints

# --- a job. What both kinds have: sources, functions, words a source's row of the table has, and that table
(
    J_KIND, J_PORTIONS, J_SOURCES, J_FUNCTIONS, J_TABLE, J_PARTS, J_GROUP, J_KEYS, J_HASH, J_HASHES, J_KEPT, J_KEPTS, J_DIRECT,
    J_DIRECTS, J_MISSED, J_SLOT, J_FIRST, J_SLOTS, J_STEPS, J_ROOM, J_MARKS, J_MARK, J_FIND, J_MERGE,
) = range(24)  # fmt: skip
JOB_WORDS: Final = 24
FIND, SLOT, MERGE = range(3)

# --- a source's row of the table: its tallies from FIRST to before END are the parts from AT on; its keys; then RING_WORDS a
# function
P_FIRST, P_END, P_AT, P_KEYS, P_SIZE, P_RINGS = range(6)

BLOCK: Final = 512  # parts that are brought together at once: they stay in the nearest cache


@compiled
def whole(
    q, c, event, job, ids, spans, base, ranked, state, pane_id, pane_slot, slot_group, slot_of, group, slot, missed
):
    """Parts of panes that come whole, after all before them, into new slots; or how many of their groups are not known.

    `missed`: int64[portions, sources], whose first row says then how many these are of each source, and nothing else is changed.
    `ranked`: groups in the order of their keys, if one large pane is to have its slots in that order. The rest: see
    `core.kernels.panes.assign_parts`. There is room for all slots that may come. Groups that are there already: J_FIND is 0.
    """
    if job[J_FIND] > 0:
        work(q, c, event, job, FIND, job[J_FIND])
        total = total_of(missed)
        if total > 0:
            if len(ranked) > 0:
                unmark(group, slot_of)
            return total
    first = state[SLOT_END]
    if len(ranked) > 0:
        panes.assign_ranked(ids[0], ranked, state, pane_id, pane_slot, slot_group, slot_of)
        work(q, c, event, job, SLOT, job[J_FIND])
        for s in range(first, state[SLOT_END]):
            slot_of[slot_group[s]] = -1
    else:
        panes.assign_parts(ids, spans, base, group, state, pane_id, pane_slot, slot_group, slot_of, slot)
    job[J_FIRST], job[J_SLOTS] = first, state[SLOT_END] - first
    work(q, c, event, job, MERGE, job[J_MERGE])
    return 0


@compiled
def merge_all(q, c, event, job, first, slots):
    """Parts into slots that they have been given."""
    job[J_FIRST], job[J_SLOTS] = first, slots
    work(q, c, event, job, MERGE, job[J_MERGE])


@inner
def total_of(missed):
    """All of them; the first row says of each source how many."""
    total = 0
    for source in range(missed.shape[1]):
        for portion in range(1, len(missed)):
            missed[0, source] += missed[portion, source]
        total += missed[0, source]
    return total


@inner
def unmark(group, slot_of):
    for part in range(len(group)):
        if group[part] >= 0:
            slot_of[group[part]] = -1


@compiled
def work(q, c, event, job, kind, portions):
    """All of a piece of work, by this thread and those who help."""
    job[J_KIND], job[J_PORTIONS] = kind, portions
    if portions == 1:
        perform(job, 0)
        return
    team.offer(q, c, event, address_of(job, 0), portions)
    take_portions(q)
    team.await_all(q)


@compiled
def serve(q, c, event):
    """A helper: portions of one job after the other, until it is to halt."""
    while team.awaits(q, c, event):
        take_portions(q)


@compiled
def take_portions(q):
    portion = team.claim(q)
    while portion != team.NONE:
        perform(ints(q[team.JOB], JOB_WORDS), portion)
        team.done(q)
        portion = team.claim(q)


@compiled
def perform(job, portion):
    if job[J_KIND] == FIND:
        find(job, portion)
    elif job[J_KIND] == SLOT:
        slots_of(job, portion)
    else:
        merge(job, portion)


@inner
def table_of(job):
    width = P_RINGS + job[J_FUNCTIONS] * RING_WORDS
    return ints(job[J_TABLE], job[J_SOURCES] * width).reshape((job[J_SOURCES], width))


@inner
def find(job, portion):
    """The groups of a stretch of parts; `missed` of this portion says of every source how many are not known."""
    low = job[J_PARTS] * portion // job[J_PORTIONS]
    high = job[J_PARTS] * (portion + 1) // job[J_PORTIONS]
    table, keys = table_of(job), job[J_KEYS]
    out, hashes = ints(job[J_GROUP], job[J_PARTS]), ints(job[J_HASH], job[J_HASHES])
    kept, direct = (
        ints(job[J_KEPT], keys * job[J_KEPTS]).reshape((keys, job[J_KEPTS])),
        ints(job[J_DIRECT], job[J_DIRECTS]),
    )
    missed = ints(job[J_MISSED], job[J_PORTIONS] * job[J_SOURCES])
    for source in range(job[J_SOURCES]):
        row, count = table[source], 0
        size, ahead = row[P_SIZE], row[P_FIRST] - row[P_AT]
        words = ints(row[P_KEYS], keys * size).reshape((keys, size))
        tally, end = max(row[P_FIRST], low + ahead), min(row[P_END], high + ahead)
        while tally < end:  # two runs, where it goes over the end of the ring
            place = tally & (size - 1)
            until = min(size, place + end - tally)
            count += groups.known(words, place, until, tally - ahead, hashes, kept, direct, out)
            tally += until - place
        missed[portion * job[J_SOURCES] + source] = count
    if job[J_MARK] != 0:
        marks = ints(job[J_MARKS], job[J_KEPTS])
        for part in range(low, high):
            if out[part] >= 0:
                store_release(marks, out[part], 0)  # others may write the same


@inner
def slots_of(job, portion):
    """The slots of a stretch of parts."""
    low = job[J_PARTS] * portion // job[J_PORTIONS]
    high = job[J_PARTS] * (portion + 1) // job[J_PORTIONS]
    group, slot, by_group = ints(job[J_GROUP], high), ints(job[J_SLOT], high), ints(job[J_MARKS], job[J_KEPTS])
    for part in range(low, high):
        slot[part] = by_group[group[part]]


@inner
def merge(job, portion):
    """All parts whose slots are this portion's."""
    low = job[J_FIRST] + job[J_SLOTS] * portion // job[J_PORTIONS]
    high = job[J_FIRST] + job[J_SLOTS] * (portion + 1) // job[J_PORTIONS]
    table, slot = table_of(job), ints(job[J_SLOT], job[J_PARTS])
    steps = ints(job[J_STEPS], job[J_FUNCTIONS] * MERGE_WORDS).reshape((job[J_FUNCTIONS], MERGE_WORDS))
    room = ints(job[J_ROOM] + 8 * portion * 2 * BLOCK, 2 * BLOCK)
    target, place = room[:BLOCK], room[BLOCK:]
    for source in range(job[J_SOURCES]):
        row = table[source]
        ahead = row[P_FIRST] - row[P_AT]
        part, end = row[P_AT], row[P_END] - ahead
        while part < end:
            until, found = min(end, part + BLOCK), 0
            for k in range(
                part, until
            ):  # written for every part, and kept for those that are its own: no branch to guess
                target[found] = slot[k]
                place[found] = k + ahead
                found += slot[k] >= low and slot[k] < high
            for function in range(len(steps)):
                ring = row[P_RINGS + function * RING_WORDS : P_RINGS + (function + 1) * RING_WORDS]
                merge_tallies(steps[function], ring, target, place, found, job[J_FIRST])
            part = until


@inner
def merge_tallies(step, ring, target, tally, n, first):
    """Tallies of one source into the slots that one function has for them. Slots from `first` on are new."""
    size, what = ring[RING_SIZE], step[MERGE_WHAT]
    own = ints(ring[RING_SLOTS], size * ring[RING_WIDTH]).reshape((size, ring[RING_WIDTH]))
    into = ints(step[MERGE_SLOTS], step[MERGE_SIZE] * step[MERGE_WIDTH]).reshape((step[MERGE_SIZE], step[MERGE_WIDTH]))
    if what == COUNTS:
        panes.merge_count_tallies(n, target, tally, into, own)
    elif what == EXTREMES:
        panes.merge_extreme_tallies(n, target, tally, step[MERGE_HOW], into, own)
    elif what == EDGES:
        times = ints(step[MERGE_TIMES], step[MERGE_SIZE])
        panes.merge_timed_edge(n, target, tally, first, step[MERGE_HOW] != 0, into, own, times)
    else:
        exact.merge_tallies(n, target, tally, into, own, ring[RING_BASE] - step[MERGE_BASE])
