"""A source's batch into the W-Hive: the cell of every tuple, in one compiled call.

A source remembers, for the pane it is at, which cell each key has: small integers in `direct`, by value, the others in `table`,
by hash. Both hold numbers of cells, which only rise; one below the pane's first cell is an old one and counts as none, so
neither is ever cleared. The hive is entered only for a pane or a key that is new to the source. Cells are runs of a ring.

An example. Pane 7 begins when CELL_END is 10: OPEN_CELL is 10. Key 5, a small integer, comes: direct[5] says 3, which
is below 10 and so of an older pane. It gets cell 10, direct[5] = 10. The next tuple of key 5 finds 10 and adds to it,
without touching the hive. Pane 8 begins at CELL_END 14: direct[5] = 10 is old again.
"""

from __future__ import annotations

import numpy as np

from plait.core.kernels.groups import mixed
from plait.core.kernels.panes import pane_of
from plait.threads.aggregate.hive.hive import join, list_members, list_windows, open_winset, take, window_of
from plait.threads.aggregate.hive.words import (
    ARENA_END,
    KEYS,
    M_END,
    NIL,
    PANE,
    W_NUMBER,
    node_at,
    piece_at,
    source_at,
)
from plait.threads.atomics.native import compiled

# A source's own words.
STARTED, OPEN_HIGH, WINSET, IN_GAP, PANE_END, CELL_END, OPEN_CELL, CELL_FREED, NEED, MEMBER = range(10)
OWN_WORDS = 10
# What is short when `place` stops early.
NODES, ARENA, CELLS, PANES, TABLE = range(1, 6)


@compiled
def place(
    h, slot, ts, words, flat, low, n, advance, rest, gaps, small, shared, own, pane_id, pane_cell, pane_arena, direct, table,
    kept, window, out,
) -> int:  # fmt: skip
    """Tuples low to n: the place of each one's cell in the ring, -1 for one that lies in no window.

    Gives the first tuple that was not done, and in NEED what there was too little of. `flat` is `words` in one row. A cell's
    key is in `kept`; where windows are `shared`, its window's place is in `window`.

    `h` the hive's words, `slot` the source's. `ts`: int64, in the source's order. `words`: int64[KEYS, n], each
    tuple's key. `low`: where to begin. `advance`, `rest`, `gaps`: the panes' grid, and whether it has gaps between
    windows. `small`: keys may be looked up in `direct`. `own`: the source's words, named above. `pane_id`,
    `pane_cell`, `pane_arena`: its panes not let go of, with their first cell and first arena word. `out`: the cell of
    each tuple.

    Whatever stops it early, what was done is done: the caller makes room and calls again from the tuple it gives. A
    winset that was opened before memory ran out is found again then.
    """
    mask = kept.shape[1] - 1
    table_mask = np.uint64(len(table) - 1)
    high, gap, winset = own[OPEN_HIGH], own[IN_GAP] != 0, own[WINSET]
    cells, first = own[CELL_END], own[OPEN_CELL]
    started = own[STARTED] != 0
    keys = words.shape[0]
    done = n
    for i in range(low, n):
        if not started or ts[i] >= high:
            number, _, end = pane_of(ts[i], advance, rest)
            gap = gaps and number & 1 == 1
            if not gap:
                if own[PANE_END] == len(pane_id):
                    own[NEED], done = PANES, i
                    break
                before = h[source_at(slot) + ARENA_END]
                found = open_winset(h, slot, number)
                if found == NIL:
                    own[NEED], done = NODES, i
                    break
                member = join(h, slot, found, cells)
                if member == NIL:
                    own[NEED], done = ARENA, i
                    break
                if own[PANE_END] > 0:  # else the last member's memory is free already, and its end was said
                    h[piece_at(h, own[MEMBER]) + M_END] = cells
                own[MEMBER] = member
                winset, first = found, cells
                pane_id[own[PANE_END]], pane_cell[own[PANE_END]], pane_arena[own[PANE_END]] = number, cells, before
                own[PANE_END] += 1
            high, started = end, True
        if gap:
            out[i] = -1
            continue
        key = words[0, i]
        near = small and key >= 0 and key < len(direct) and words[1, i] == 0
        at = np.uint64(0)
        hash = np.uint64(0)
        if near:
            cell = direct[key]
        else:
            hash = mixed(words, i)
            at = hash & table_mask
            cell = table[at]
            while cell >= first:
                equal = True
                for k in range(keys):
                    equal = equal and kept[k, cell & mask] == words[k, i]
                if equal:
                    break
                at = (at + np.uint64(1)) & table_mask
                cell = table[at]
        if cell < first:
            if cells - own[CELL_FREED] > mask:
                own[NEED], done = CELLS, i
                break
            if not near and 2 * (cells - first + 1) > len(table):
                own[NEED], done = TABLE, i
                break
            cell = cells
            if shared:
                if near:
                    hash = mixed(words, i)
                place_of = window_of(h, slot, winset, flat, i, words.shape[1], np.int64(hash))
                if place_of == NIL:
                    own[NEED], done = ARENA, i
                    break
                window[cell & mask] = place_of
            cells += 1
            for k in range(keys):
                kept[k, cell & mask] = words[k, i]
            if near:
                direct[key] = cell
            else:
                table[at] = cell
        out[i] = cell & mask
    own[STARTED], own[OPEN_HIGH], own[WINSET], own[IN_GAP] = started, high, winset, gap
    own[CELL_END], own[OPEN_CELL] = cells, first
    if own[PANE_END] > 0:
        h[piece_at(h, own[MEMBER]) + M_END] = cells
    return done


# What `gather` tells.
WINSETS, WINDOWS, PARTS, HELD = range(4)


@compiled
def gather(h, below, most, shared, stack, key, ids, ends, spans, told) -> None:
    """Take complete winsets, until they have `most` parts or an array is full, and copy what they hold out of the hive.

    Of each: its pane, by slot the source's cells (see `list_members`), and where windows are `shared` their keys, and how many
    there are up to its end. A winset whose keys find no room in `key` is HELD, and comes first next time.

    `told` is both input and answer, so that a call that found no room for keys can be repeated with a larger `key` and
    goes on where it stopped. `ids`: each winset's pane. `ends`: windows up to its end. `spans`: int64[winsets, 2,
    slots], first cell and end.
    """
    winsets = told[WINSETS]
    windows = told[WINDOWS]
    parts = told[PARTS]
    while winsets < len(ids) and parts < most:
        winset = told[HELD] if told[HELD] != NIL else take(h, below)
        told[HELD] = NIL
        if winset == NIL:
            break
        if shared:
            after = list_windows(h, winset, stack, windows, key)
            if after * h[KEYS] > len(key):
                told[HELD] = winset
                break
            windows = after
        first, end = spans[winsets, 0], spans[winsets, 1]
        list_members(h, winset, first, end)
        for slot in range(len(first)):
            parts += end[slot] - first[slot]
        ids[winsets] = h[node_at(h, winset) + PANE]
        ends[winsets] = windows
        winsets += 1
    told[WINSETS], told[WINDOWS], told[PARTS] = winsets, windows, parts


@compiled
def windows_of(h, window, first, end, out) -> None:
    """The numbers that the taker gave the windows of a source's cells, one after the other."""
    mask = len(window) - 1
    for cell in range(first, end):
        out[cell - first] = h[piece_at(h, window[cell & mask]) + W_NUMBER]


@compiled
def keys_of(kept, first, end, at, out) -> None:
    """The keys of a source's cells, into out[:, at:]."""
    mask = kept.shape[1] - 1
    for k in range(kept.shape[0]):
        for cell in range(first, end):
            out[k, at + cell - first] = kept[k, cell & mask]


@compiled
def reindex(kept, first, end, table) -> None:
    """Enter a pane's cells into a new table."""
    mask = kept.shape[1] - 1
    table_mask = np.uint64(len(table) - 1)
    for cell in range(first, end):
        at = mixed(kept, cell & mask) & table_mask
        while table[at] >= first:
            at = (at + np.uint64(1)) & table_mask
        table[at] = cell


@compiled
def pane_at(ts, size, advance):
    """The pane of a ts."""
    number, _, _ = pane_of(ts, advance, size % advance)
    return number
