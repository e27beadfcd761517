"""The W-Hive: winsets to which many sources add at once, and from which one thread takes those that are complete
(multiway-aggregation.txt, sections 4 and 5.6, algorithm 5).

    open_winset(h, slot, pane)          `winsets`: find or make the winset of a pane
    join(h, slot, winset, tally)         `hive.table`: tallies of this source, from this one on, are in it
    window_of(h, slot, winset, key)     find or make the window of a key in it
    advance(h, slot, pane)              this source updates no pane below any more: the paper's `written`
    take(h, below)                      the first winset, if every source has written past it (`getNextWinSet`)
    gather(h, below, ...)               take some, and copy out of them what the taker wants to know
    let_go(h, pane)                     the taker has copied what it took from panes below: their memory may be used again

Invariants, and why they hold:

- **A winset is taken once, in the order of panes, and complete.** The taker reads every WRITTEN first and the list after it: a
  source links a winset and notes its tallies before it writes past the pane, so what lies below the least WRITTEN is in the list
  when the taker looks, with all its tallies. (The other way round it could see a later winset, then a source that has just
  added an earlier one and gone on, and skip that.)
- **What a tally holds is seen by the taker.** A source updates its tallies plainly, then releases WRITTEN; the taker acquires it.
- **No memory is used again under anybody's feet.** A source enters only tables of panes it has not written past, and these
  are not taken before it does; the taker lets go after it has copied. Nodes of the list: see `winsets`.

These calls are lock-free: a CAS fails only because another thread's has succeeded. Around them, once a batch, a thread says that
it is inside (`hive.door`), by a store and a fence: memory must not grow under it. Where this departs from the paper besides: a
window is not one accumulator that threads update in turn, but a tally for each source, merged when the winset is taken. So
updating needs no atomic step at all; any function that merges is served, first and last too (by the ts and the source of their
tuple); and the shared structures are entered once for each pane, source and key, not once a tuple. Where functions merge, a
winset is that of a *pane* (`core.kernels.panes`), and windows are merged from panes as in every other design.

Not promised: that memory suffices. `open_winset`, `join` and `window_of` answer that it does not, and are called again once it
has grown.

An example. Sources A and B, pane 7 is open. A opens the winset of 7, joins it with its tallies from 0 on, and makes
three tallies, one a key. Then A's tuples go on to pane 8: it opens that winset, notes that its tallies of 7 end at 3, and
writes WRITTEN = 8. The taker finds the least WRITTEN at B's 7 and takes nothing. B adds its two tallies to the same
winset of 7 and writes 8. Now the taker moves HEAD to the node of 7, reads its two members (A: tallies 0 to 3, B: 0 to
2), merges five tallies by key, and lets go: A and B may use these tallies again.

Held by tests/threads/aggregate/test_hive_interleavings.py under the scheduler;
tests/threads/aggregate/test_hive_mutants.py plants faults in this text and sees them noticed.
"""

from __future__ import annotations

from plait.threads.aggregate.hive.door import enter, leave
from plait.threads.aggregate.hive.table import STACK, join, list_members, list_windows, window_of
from plait.threads.aggregate.hive.winsets import open_winset
from plait.threads.aggregate.hive.words import (
    HEAD,
    HEAD_PANE,
    HELD,
    KEYS,
    LAST,
    NEXT,
    NIL,
    PANE,
    PARTS,
    PASSED,
    SLOTS,
    W_NUMBER,
    WINDOWS,
    WINSETS,
    WRITTEN,
    node_at,
    piece_at,
    source_at,
)
from plait.threads.atomics import compiled, load_acquire, store_release

__all__ = [
    "STACK",
    "admit",
    "advance",
    "advance_inside",
    "gather",
    "join",
    "let_go",
    "open_winset",
    "passed",
    "take",
    "window_of",
    "windows_of",
    "written_by_all",
]


@compiled
def advance(h, slot, pane):
    """This source's updates of panes below are done. A promise that says less than the last changes nothing."""
    if pane > h[source_at(slot) + WRITTEN]:
        store_release(h, source_at(slot) + WRITTEN, pane)


@compiled
def advance_inside(d, layout, h, slot, pane):
    """`advance`, once inside; -1 if the hive's memory is another by now, or grows."""
    if not enter(d, slot, layout):
        return -1
    advance(h, slot, pane)
    leave(d, slot)
    return 0


@compiled
def admit(h, slot, pane):
    """A source takes this slot, which has none: it updates no pane below."""
    store_release(h, source_at(slot) + WRITTEN, pane)


@compiled
def written_by_all(h):
    """No pane below will be updated any more, by any source."""
    least = LAST
    for slot in range(h[SLOTS]):
        least = min(least, load_acquire(h, source_at(slot) + WRITTEN))
    return least


@compiled
def take(h, below):
    """The place of the first winset not taken yet, if it is complete and its pane below `below`; else NIL. One thread only.

    `below` is a pane, from the frontier. HEAD first, then HEAD_PANE: nodes below HEAD_PANE are freed, and a source may
    start at HEAD.
    """
    least = min(below, written_by_all(h))
    ahead = load_acquire(h, node_at(h, h[HEAD]) + NEXT)
    if ahead == NIL:
        return NIL
    pane = h[node_at(h, ahead) + PANE]
    if pane >= least:
        return NIL
    store_release(h, HEAD, ahead)
    store_release(h, HEAD_PANE, pane)
    return ahead


@compiled
def gather(h, below, most, shared, stack, key, ids, ends, spans, told):
    """Take complete winsets, until they have `most` parts or an array is full, and copy what they hold out of the hive.

    Of each: its pane, by slot the source's tallies (see `list_members`), and where windows are `shared` their keys, and how many
    there are up to its end. A winset whose keys find no room in `key` is HELD, and comes first next time.

    `told` is both input and answer, so that a call that found no room for keys can be repeated with a larger `key` and
    goes on where it stopped. `ids`: each winset's pane. `ends`: windows up to its end. `spans`: int64[winsets, 4,
    slots], first tally and end, the last tuple's ts and when it was pushed.
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
        list_members(h, winset, first, end, spans[winsets, 2], spans[winsets, 3])
        for slot in range(len(first)):
            parts += end[slot] - first[slot]
        ids[winsets] = h[node_at(h, winset) + PANE]
        ends[winsets] = windows
        winsets += 1
    told[WINSETS], told[WINDOWS], told[PARTS] = winsets, windows, parts


@compiled
def windows_of(h, window, first, end, out):
    """The numbers that the taker gave the windows of a source's tallies, one after the other."""
    mask = len(window) - 1
    for tally in range(first, end):
        out[tally - first] = h[piece_at(h, window[tally & mask]) + W_NUMBER]


@compiled
def let_go(h, pane):
    """The winsets of panes below have been copied."""
    store_release(h, PASSED, pane)


@compiled
def passed(h):
    """What the taker let go of last: memory that served panes below is its source's again."""
    return load_acquire(h, PASSED)
