"""Panes: which accumulators a tuple updates, which of them make a window, and the accumulators themselves.

Windows `[k*advance, k*advance + size)` begin and end at known places; between two of these no window begins or ends, and
all tuples there share their windows: that stretch is a *pane* (the paired windows of Krishnamurthy et al.). With
`rest = size % advance`, pane 2q is `[q*advance, q*advance + rest)` and pane 2q+1 what is left up to `(q+1)*advance`; so
a window is at most two panes an advance, however odd its size: window k is the panes from 2k up to, not with,
`2*(k + size // advance) + 1`. Where size < advance the odd panes lie in no window. For rest 0 pane q is a whole advance
(not twice q: with an advance of 1 us that would not fit into 64 bits), and window k the panes from k up to
`k + size // advance`.

A *slot* is a place for one group of one pane in every accumulator. Kernels run a function at a time over a batch: slots
are found first, then every function updates its own accumulator, then closed windows are merged from slots (`slides`).
Order within a batch is the total order, and slots of one window are listed in the order of their panes: so first and last
merge as well.

Windows of tuples are the same with a tuple's number in its group in place of its ts.
"""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import brief, entry, inlined

# State of windows of time. Panes and slots are runs of their arrays: [FIRST, END); the newest pane is the open one. ADDED and
# SHIFT: see `core.kernels.slides`.
PANE_FIRST, PANE_END, SLOT_FIRST, SLOT_END, OPEN_LOW, OPEN_HIGH, NEXT_WINDOW, STARTED, ADDED, SHIFT = range(10)
STATE_WORDS = 10


@inlined
def pane_of(ts, advance, rest):
    """The pane of a ts, where it begins and where it ends.

    All in microseconds, or in tuples. `rest` is size % advance. Python's // rounds down, so times before 0 have their
    panes too: with advance 10 and rest 0, ts -1 lies in pane -1, which is [-10, 0).
    """
    q = ts // advance
    low = q * advance
    if rest == 0:
        return q, low, low + advance
    if ts - low < rest:
        return 2 * q, low, low + rest
    return 2 * q + 1, low + rest, low + advance


@entry
def assign(ts, group, low, high, size, advance, state, pane_id, pane_slot, slot_group, slot_of, slot) -> None:
    """The slot of each tuple in windows of time; -1 for one that lies in no window. Every array has room for all that may come.

    `slot_of` holds the open pane's slot of each group, -1 for none.

    `ts` (int64) ascends; `group` and `slot` are int64 by tuple; `state`, `pane_id`, `pane_slot` and `slot_group` are
    changed. A ts at or after the open pane's end opens the next pane that has a tuple: panes without tuples don't exist.
    Costs a comparison and two look-ups a tuple.
    """
    rest = size % advance
    gaps = size < advance
    for i in range(low, high):
        if state[STARTED] == 0 or ts[i] >= state[OPEN_HIGH]:
            for s in range(pane_slot[state[PANE_END] - 1] if state[PANE_END] > 0 else 0, state[SLOT_END]):
                slot_of[slot_group[s]] = -1
            number, begin, end = pane_of(ts[i], advance, rest)
            state[STARTED] = 1
            state[OPEN_LOW], state[OPEN_HIGH] = begin, end
            pane_id[state[PANE_END]] = number
            pane_slot[state[PANE_END]] = state[SLOT_END]
            state[PANE_END] += 1
        if gaps and pane_id[state[PANE_END] - 1] & 1 == 1:
            slot[i] = -1
            continue
        s = slot_of[group[i]]
        if s < 0:
            s = state[SLOT_END]
            state[SLOT_END] += 1
            slot_of[group[i]] = s
            slot_group[s] = group[i]
        slot[i] = s


@entry
def assign_parts(ids, spans, base, group, state, pane_id, pane_slot, slot_group, slot_of, slot) -> None:
    """Panes that come whole, after all before them, in parts: the slot of each part, whose group is given.

    Part number `base[s] + c` is tally c of source s; of pane number ids[w] source s has the tallies from spans[w, 0, s]
    up to, not with, spans[w, 1, s]. `slot_of` is -1 for every group, before and after.
    """
    for w in range(len(ids)):
        first = state[SLOT_END]
        pane_id[state[PANE_END]] = ids[w]
        pane_slot[state[PANE_END]] = first
        state[PANE_END] += 1
        for source in range(spans.shape[2]):
            for part in range(base[source] + spans[w, 0, source], base[source] + spans[w, 1, source]):
                s = slot_of[group[part]]
                if s < 0:
                    s = state[SLOT_END]
                    state[SLOT_END] += 1
                    slot_of[group[part]] = s
                    slot_group[s] = group[part]
                slot[part] = s
        for s in range(first, state[SLOT_END]):
            slot_of[slot_group[s]] = -1
    state[STARTED] = 1


@entry
def assign_ranked(number, ranked, state, pane_id, pane_slot, slot_group, slot_of) -> None:
    """One pane that comes whole, after all before it: a slot for every group of which `slot_of` is not -1, in the order of
    `ranked`, which are all groups in that of their keys. `slot_of` has the slots then.
    """
    s = state[SLOT_END]
    pane_id[state[PANE_END]] = number
    pane_slot[state[PANE_END]] = s
    state[PANE_END] += 1
    for group in ranked:
        slot_group[s] = group  # written for every group, and kept for those that are in it
        if slot_of[group] >= 0:
            slot_of[group] = s
            s += 1
    state[SLOT_END] = s
    state[STARTED] = 1


@entry
def assign_sessions(ts, group, gap, open_, slot_group, first, last, free, left, slot, fresh) -> int:
    """The slot of each tuple, in order: that of its group's session if it comes less than `gap` after the last of it, or a new.

    `open_` is by group: the slot of its session that may go on, -1 for none; `slot_group`, `first` and `last` are by slot.
    `free` is a stack of `left` slots, of which there are as many as tuples. Gives how many were taken, which `fresh` lists.
    All are int64, but for `gap`: it is uint64, and so is the distance of two times, which may need 64 bits.
    """
    new = left - left
    for i in range(len(ts)):
        g = group[i]
        s = open_[g]
        if s < 0 or np.uint64(ts[i]) - np.uint64(last[s]) >= gap:
            s = free[left - 1 - new]
            fresh[new] = s
            new += 1
            open_[g] = s
            slot_group[s] = g
            first[s] = ts[i]
        last[s] = ts[i]
        slot[i] = s
    return new


@entry
def assign_counted(group, low, high, size, advance, seen, head, tail, slot_pane, slot_next, free, left, slot, fresh, row_group,
                   row_window, row_trigger, targets, slots, dropped, told) -> None:  # fmt: skip
    """As `assign`, for windows of tuples, and with the windows that close on the way; ends early where room runs out.

    A group's slots are a list from `head` to `tail` by `slot_next`. `told` gets: the first tuple not done, free slots left, slots
    taken into use (listed in `fresh`), rows, pairs, and slots that are in no window any more (listed in `dropped`).

    `seen`, `head`, `tail` are by group; `slot_pane`, `slot_next` by slot; `free` is a stack of `left` slots. Of windows
    that close: `row_group`, `row_window` (its number k) and `row_trigger` (the tuple) by row; `targets` and `slots` pair
    rows with the slots that make them, in order of panes. All are int64.

    A window closes when its last tuple has been counted: seen - size is then where it began. Slots of panes before the
    next window's begin are dropped. The dropped slots go back to `free` only after the call: rows are still to be merged
    from them.
    """
    rest = size % advance
    split = 1 if rest > 0 else 0
    over = size // advance
    gaps = size < advance
    number, pairs, new, gone = left - left, left - left, left - left, left - left
    most = 2 * over + 4
    i = low
    while i < high and left > 0 and number < len(row_group) and pairs + most <= len(targets):
        g = group[i]
        pane, _, _ = pane_of(seen[g], advance, rest)
        if gaps and pane & 1 == 1:
            slot[i] = -1
        else:
            s = tail[g]
            if s < 0 or slot_pane[s] != pane:
                left -= 1
                s = free[left]
                fresh[new] = s
                new += 1
                slot_pane[s] = pane
                slot_next[s] = -1
                if tail[g] < 0:
                    head[g] = s
                else:
                    slot_next[tail[g]] = s
                tail[g] = s
            slot[i] = s
        seen[g] += 1
        start = seen[g] - size
        if start >= 0 and start % advance == 0:
            k = start // advance
            row_group[number] = g
            row_window[number] = k
            row_trigger[number] = i
            s = head[g]
            while s >= 0:
                targets[pairs] = number
                slots[pairs] = s
                pairs += 1
                s = slot_next[s]
            number += 1
            while head[g] >= 0 and slot_pane[head[g]] < (k + 1) << split:
                dropped[gone] = head[g]
                gone += 1
                head[g] = slot_next[head[g]]
            if head[g] < 0:
                tail[g] = -1
        i += 1
    told[0], told[1], told[2], told[3], told[4], told[5] = i, left, new, number, pairs, gone


# --- accumulators: rows of int64, all zero where nothing was added ------------------------------------------------


@entry
def move(first, end, rows) -> None:
    """Rows first to end become the first ones."""
    for s in range(first, end):
        for k in range(rows.shape[1]):
            rows[s - first, k] = rows[s, k]


@brief
def wipe(low, high, slots) -> None:
    """Rows low to high are as new. NumPy would give the GIL away for it, and have to wait until it is free again."""
    for s in range(low, high):
        for k in range(slots.shape[1]):
            slots[s, k] = 0


@entry
def count(low, high, slot, which, counts) -> None:
    """Count tuples for which `which` is not 0."""
    for i in range(low, high):
        if slot[i] >= 0 and which[i] != 0:
            counts[slot[i], 0] += 1


# Counts of partial panes: numbers[i] to slot[i].
@entry
def add_counts(slot, numbers, counts) -> None:
    for i in range(len(slot)):
        if slot[i] >= 0:
            counts[slot[i], 0] += numbers[i]


# Counts of slots added up into rows: pair i adds slot[i] to target[i].
@entry
def merge_counts(low, high, target, slot, into, counts) -> None:
    for i in range(low, high):
        into[target[i], 0] += counts[slot[i], 0]


@inlined
def ordered(bits, kind):
    """A value as an int64 that compares as it does: floats (kind 2) with NaN above all, and without a zero's sign.

    Kinds are those of `exact`: 0 signed, 1 unsigned, 2 float. Negative floats have their lower bits flipped, so that
    larger magnitudes come first; unsigned numbers have their top bit flipped.
    """
    if kind == 2:
        if bits & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000:
            return np.int64(0x7FFFFFFFFFFFFFFF)
        if bits & 0x7FFFFFFFFFFFFFFF == 0:
            return np.int64(0)
        return bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
    if kind == 1:
        return bits ^ np.int64(-0x8000000000000000)
    return bits


@entry
def extreme(low, high, slot, bits, valid, kind, sign, best) -> None:
    """The largest (sign 1) or smallest (-1) value, in the form of `ordered`, and whether there is any.

    `best` is int64 of two columns: whether there is any, and the value. A tie changes nothing, and can't be seen.
    """
    for i in range(low, high):
        s = slot[i]
        if s >= 0 and valid[i] != 0:
            value = ordered(bits[i], kind)
            if best[s, 0] == 0 or (value > best[s, 1] if sign > 0 else value < best[s, 1]):
                best[s, 0] = 1
                best[s, 1] = value


# As `extreme`, of slots into rows.
@entry
def merge_extreme(low, high, target, slot, sign, into, best) -> None:
    for i in range(low, high):
        t, s = target[i], slot[i]
        if best[s, 0] != 0 and (into[t, 0] == 0 or (best[s, 1] > into[t, 1] if sign > 0 else best[s, 1] < into[t, 1])):
            into[t, 0] = 1
            into[t, 1] = best[s, 1]


@entry
def edge(low, high, slot, bits, valid, which, last, kept) -> None:
    """The first (or last) tuple for which `which` is not 0: 0 none, 1 a NULL, 2 a value; and the value.

    `kept` is int64 of two columns. Tuples come in total order, so the first to be seen is the first, and each later one
    is the last.
    """
    for i in range(low, high):
        s = slot[i]
        if s >= 0 and which[i] != 0 and (last or kept[s, 0] == 0):
            kept[s, 0] = 2 if valid[i] != 0 else 1
            kept[s, 1] = bits[i]


# As `edge`, of slots into rows: pairs of a row come in the order of panes, which is the order of time.
@entry
def merge_edge(low, high, target, slot, last, into, kept) -> None:
    for i in range(low, high):
        t, s = target[i], slot[i]
        if kept[s, 0] != 0 and (last or into[t, 0] == 0):
            into[t, 0] = kept[s, 0]
            into[t, 1] = kept[s, 1]


@entry
def timed_edge(low, high, slot, bits, valid, which, ts, last, kept) -> None:
    """As `edge`, and the tuple's ts.

    `kept` is int64 of three columns; the third is the ts.
    """
    for i in range(low, high):
        s = slot[i]
        if s >= 0 and which[i] != 0 and (last or kept[s, 0] == 0):
            kept[s, 0] = 2 if valid[i] != 0 else 1
            kept[s, 1] = bits[i]
            kept[s, 2] = ts[i]


# --- tallies of one source into slots: `tally` are their numbers, and they lie in a ring whose length is a power of two. By
# whoever owns the slots: `threads.aggregate.hive.merging` calls these.


@entry
def merge_count_tallies(number, target, tally, into, ring) -> None:
    """Counts."""
    mask = len(ring) - 1
    for i in range(number):
        into[target[i], 0] += ring[tally[i] & mask, 0]


@entry
def merge_extreme_tallies(number, target, tally, sign, into, ring) -> None:
    """As `merge_extreme`."""
    mask = len(ring) - 1
    for i in range(number):
        t, s = target[i], tally[i] & mask
        if ring[s, 0] != 0 and (into[t, 0] == 0 or (ring[s, 1] > into[t, 1] if sign > 0 else ring[s, 1] < into[t, 1])):
            into[t, 0] = 1
            into[t, 1] = ring[s, 1]


@entry
def merge_timed_edge(number, target, tally, first, last, into, kept, best) -> None:
    """Parts of one source after those of sources before it; `best` has the ts of what targets, from `first` on, hold so far.

    `into` is int64 of two columns, by slot; `best` is int64 by new slot. Sources are merged in their order, so of equal
    ts the first source's tuple is first (strictly below replaces) and the last source's is last (not below replaces).
    """
    mask = len(kept) - 1
    for i in range(number):
        t, s = target[i], tally[i] & mask
        w = t - first
        if kept[s, 0] != 0 and (into[t, 0] == 0 or (kept[s, 2] >= best[w] if last else kept[s, 2] < best[w])):
            into[t, 0] = kept[s, 0]
            into[t, 1] = kept[s, 1]
            best[w] = kept[s, 2]


@entry
def chain(low, high, slot, refs, free, left, node_ref, node_next, chains) -> int:
    """Keep tuples' references in a list for each slot: how many, first node, last node. Gives the free nodes left.

    `refs` is int64 by tuple, what the node will hold. `free` must have a node for every tuple.
    """
    for i in range(low, high):
        s = slot[i]
        if s >= 0:
            left -= 1
            node = free[left]
            node_ref[node] = refs[i]
            node_next[node] = -1
            if chains[s, 0] == 0:
                chains[s, 1] = node
            else:
                node_next[chains[s, 2]] = node
            chains[s, 2] = node
            chains[s, 0] += 1
    return left


@entry
def list_chains(pairs, target, slot, node_ref, node_next, chains, offsets, out) -> None:
    """The references of each row, slot after slot; `offsets` are where each row's begin, and are moved on.

    `out` is int64, as long as all lists together. Pair i appends the list of slot[i] to what row target[i] has.
    """
    for i in range(pairs):
        t, node = target[i], chains[slot[i], 1]
        for _ in range(chains[slot[i], 0]):
            out[offsets[t]] = node_ref[node]
            offsets[t] += 1
            node = node_next[node]


@entry
def unchain(number, slots, node_next, chains, free, left) -> int:
    """Give the nodes of slots back; gives the free nodes there are then."""
    for i in range(number):
        s = slots[i]
        node = chains[s, 1]
        for _ in range(chains[s, 0]):
            free[left] = node
            left += 1
            node = node_next[node]
        chains[s, 0] = 0
    return left
