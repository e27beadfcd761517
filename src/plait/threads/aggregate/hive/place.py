"""A source's batch into its tallies, one compiled call: what each tuple's tally is, and which of them is new.

The hive is entered (`door`) once a batch, and its shared structures once for every pane, and where windows are shared every key,
that is new to the source. Everything else here is the source's own memory. `tallies` says what a tally is.

Held by tests/threads/aggregate/test_hive_place.py under the scheduler: two sources' batches, and winsets taken out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.core.kernels.groups import mixed
from plait.core.kernels.panes import pane_of
from plait.threads.aggregate.hive.door import enter, leave
from plait.threads.aggregate.hive.table import join, window_of
from plait.threads.aggregate.hive.winsets import open_winset
from plait.threads.aggregate.hive.words import (
    ARENA,
    ARENA_END,
    IN_GAP,
    M_END,
    M_REF,
    M_TS,
    MEMBER,
    NEED,
    NIL,
    NODES,
    OPEN_HIGH,
    OPEN_TALLY,
    PANE_END,
    PANES,
    STARTED,
    TABLE,
    TALLIES,
    TALLY_END,
    TALLY_FREED,
    WINSET,
    piece_at,
    source_at,
)
from plait.threads.atomics import compiled, pure


@compiled
def place_inside(
    d: Any, layout: Any, h: Any, slot: Any, ts: Any, words: Any, flat: Any, low: Any, n: Any, advance: Any, rest: Any, gaps: Any,
    small: Any, shared: Any, own: Any, pane_id: Any, pane_tally: Any, pane_arena: Any, direct: Any, table: Any,
    kept: Any, window: Any, ref: Any, out: Any,
) -> Any:  # fmt: skip
    """`place`, once inside; -1 if the hive's memory is another by now, or grows."""
    if not enter(d, slot, layout):
        return -1
    done = place(
        h, slot, ts, words, flat, low, n, advance, rest, gaps, small, shared, own, pane_id, pane_tally, pane_arena, direct, table,
        kept, window, ref, out,
    )  # fmt: skip
    leave(d, slot)
    return done


@compiled
def place(
    h: Any, slot: Any, ts: Any, words: Any, flat: Any, low: Any, n: Any, advance: Any, rest: Any, gaps: Any,
    small: Any, shared: Any, own: Any, pane_id: Any, pane_tally: Any, pane_arena: Any, direct: Any, table: Any,
    kept: Any, window: Any, ref: Any, out: Any,
) -> Any:  # fmt: skip
    """Tuples low to n: the place of each one's tally in the ring, -1 for one that lies in no window.

    Gives the first tuple that was not done, and in NEED what there was too little of. `flat` is `words` in one row. A tally's
    key is in `kept`; where windows are `shared`, its window's place is in `window`.

    `h` the hive's words, `slot` the source's. `ts`: int64, in the source's order. `words`: int64[KEYS, n], each
    tuple's key. `low`: where to begin. `advance`, `rest`, `gaps`: the panes' grid, and whether it has gaps between
    windows. `small`: keys may be looked up in `direct`. `own`: the source's words, named in `words`. `pane_id`,
    `pane_tally`, `pane_arena`: its panes not let go of, with their first tally and first arena word. `ref`: when each
    was pushed, or one moment for all. `out`: the tally of each tuple.

    Whatever stops it early, what was done is done: the caller makes room and calls again from the tuple it gives. A
    winset that was opened before memory ran out is found again then.
    """
    mask = kept.shape[1] - 1
    table_mask = np.uint64(len(table) - 1)
    high, gap, winset = own[OPEN_HIGH], own[IN_GAP] != 0, own[WINSET]
    tallies, first = own[TALLY_END], own[OPEN_TALLY]
    started = own[STARTED] != 0
    keys = words.shape[0]
    done, last = n, low - 1  # `last`: the last tuple that is in a tally of the open pane, if it is one of these
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
                member = join(h, slot, found, tallies)
                if member == NIL:
                    own[NEED], done = ARENA, i
                    break
                if own[PANE_END] > 0:  # else the last member's memory is free already, and its end was said
                    end_member(h, own[MEMBER], tallies, ts, ref, last, low)
                own[MEMBER], last = member, low - 1
                winset, first = found, tallies
                pane = own[PANE_END]
                pane_id[pane], pane_tally[pane], pane_arena[pane] = number, tallies, before
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
            tally = direct[key]
        else:
            hash = mixed(words, i)
            at = hash & table_mask
            tally = table[at]
            while tally >= first:
                equal = True
                for k in range(keys):
                    equal = equal and kept[k, tally & mask] == words[k, i]
                if equal:
                    break
                at = (at + np.uint64(1)) & table_mask
                tally = table[at]
        if tally < first:
            if tallies - own[TALLY_FREED] > mask:
                own[NEED], done = TALLIES, i
                break
            if not near and 2 * (tallies - first + 1) > len(table):
                own[NEED], done = TABLE, i
                break
            tally = tallies
            if shared:
                if near:
                    hash = mixed(words, i)
                place_of = window_of(h, slot, winset, flat, i, words.shape[1], np.int64(hash))
                if place_of == NIL:
                    own[NEED], done = ARENA, i
                    break
                window[tally & mask] = place_of
            tallies += 1
            for k in range(keys):
                kept[k, tally & mask] = words[k, i]
            if near:
                direct[key] = tally
            else:
                table[at] = tally
        out[i] = tally & mask
        last = i
    own[STARTED], own[OPEN_HIGH], own[WINSET], own[IN_GAP] = started, high, winset, gap
    own[TALLY_END], own[OPEN_TALLY] = tallies, first
    if own[PANE_END] > 0:
        end_member(h, own[MEMBER], tallies, ts, ref, last, low)
    return done


@pure
def end_member(h: Any, place: Any, tallies: Any, ts: Any, ref: Any, last: Any, low: Any) -> None:
    """Where the source's part of a winset ends by now; tuple `last` is the last in it, unless that came before `low`."""
    member = piece_at(h, place)
    h[member + M_END] = tallies
    if last >= low:
        h[member + M_TS] = ts[last]
        h[member + M_REF] = ref[last if len(ref) > 1 else 0]


@pure
def reindex(kept: Any, first: Any, end: Any, table: Any) -> None:
    """Enter a pane's tallies into a new table."""
    mask = kept.shape[1] - 1
    table_mask = np.uint64(len(table) - 1)
    for tally in range(first, end):
        at = mixed(kept, tally & mask) & table_mask
        while table[at] >= first:
            at = (at + np.uint64(1)) & table_mask
        table[at] = tally


@pure
def pane_at(ts: Any, size: Any, advance: Any) -> Any:
    """The pane of a ts."""
    number, _, _ = pane_of(ts, advance, size % advance)
    return number
