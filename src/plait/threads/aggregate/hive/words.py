"""The W-Hive's memory: one int64 array, and who may touch which word of it.

Header | head | one block a source | winset nodes, a ring a source | arenas, one a source | the first node

Who writes a word, who reads it, in which order and why, is said beside it. «Release» and «acquire» are the steps of
`threads.atomics`; a plain word is its source's own, or is written before the step that makes it reachable and never again while
it is. Words with different writers lie a line apart.

A *place* names a node or a piece of an arena: slot of its source << 48 | how many (nodes, words) of that source came before it.
Places are never used twice, while the memory behind them is, so comparing places has no ABA problem; and they stay what they
are when memory grows, which happens while nobody is inside (`hive.door`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from plait.core.machine.line import LINE
from plait.threads.atomics import pure

# --- header: written once; plain reads ------------------------------------------------------------------------
SLOTS: Final = 0  # sources there may be
LEVELS: Final = 1  # of the list's towers
KEYS: Final = 2  # words of a key
ORIGIN_AT: Final = 3  # where the first node lies: before every winset, on every level, never freed

# --- head: written by the one thread that takes winsets out ----------------------------------------------------
# HEAD: place of the winset taken last, which is kept for sources that have lost their way. Release; acquired by sources.
HEAD: Final = 1 * LINE
# HEAD_PANE: its pane. Release after HEAD; acquired by whoever frees nodes: those of lower panes are free, but for pins.
HEAD_PANE: Final = 1 * LINE + 1
# PASSED: what the winsets of panes below held was copied. Release; acquired by sources, who use their arenas again.
PASSED: Final = 2 * LINE

# --- a source's block ------------------------------------------------------------------------------------------
SOURCES_AT: Final = 4 * LINE
SOURCE_WORDS: Final = 4 * LINE
# WRITTEN: the source updates no pane below. Release after its tallies have their values; acquired by the taker, who so sees
# them. LAST in a slot without a source, or whose source has ended.
WRITTEN: Final = 0
# PIN: while the source walks along the list, every node it may touch has a pane >= PIN; LAST otherwise. Release, then a
# fence, then a look at HEAD_PANE; whoever frees reads HEAD_PANE, fences, then reads the pins. One of the two sees the other.
PIN: Final = LINE
# Where the source's memory lies: changed only while nobody is inside; plain reads by all.
NODES_AT: Final = 2 * LINE
NODES_MASK: Final = 2 * LINE + 1
ARENA_AT: Final = 2 * LINE + 2
ARENA_MASK: Final = 2 * LINE + 3
# The source's own:
NODES_END: Final = 3 * LINE  # nodes ever made, from 1 on; those below NODES_FREED may be used again
NODES_FREED: Final = 3 * LINE + 1
ARENA_END: Final = 3 * LINE + 2  # words ever given out, from 1 on
ARENA_FREED: Final = 3 * LINE + 3
HANDLES: Final = 3 * LINE + 4  # LEVELS places: the source's way back into the list; NIL: none
HANDLES_PANE: Final = 3 * LINE + 8

# --- a winset's node -------------------------------------------------------------------------------------------
NODE_WORDS: Final = 8
PANE: Final = 0
PLACE: Final = 1
HEIGHT: Final = 2
# ROOT: an entry of the winset's table (`hive.table`). CAS by sources, acquired by them.
ROOT: Final = 3
# MEMBERS: place of the member linked last. CAS by sources.
MEMBERS: Final = 4
# NEXT + level: place of the next node, NIL, or UNLINKED. CAS by sources, acquired by all.
NEXT: Final = 5
MAX_LEVELS: Final = 3  # as in the paper

# --- in an arena: a window (of one key in one winset), a member (one source's part of a winset), a table ----------
W_CHAIN: Final = 0  # an entry: another window whose hash is the very same
W_HASH: Final = 1
W_NUMBER: Final = 2  # the taker's own, once it has taken the winset
W_KEY: Final = 3  # KEYS words
M_NEXT: Final = 0
M_SLOT: Final = 1
# The source's tallies in this winset, by their numbers; its last tuple's ts, and when it was pushed. All but the first are the
# source's own until it writes past the pane.
M_FIRST: Final = 2
M_END: Final = 3
M_TS: Final = 4
M_REF: Final = 5
MEMBER_WORDS: Final = 6
ROOT_BITS: Final = 8  # of the hash, that tell the entries of a winset's first table apart
FAN_BITS: Final = 4  # and those of tables below

# --- a source's own words, beside the hive: `tallies` -------------------------------------------------------------
STARTED, OPEN_HIGH, WINSET, IN_GAP, PANE_END, TALLY_END, OPEN_TALLY, TALLY_FREED, NEED, MEMBER = range(10)
OWN_WORDS: Final = 10
# NEED: what is short when `tallies.place` stops early.
NODES, ARENA, TALLIES, PANES, TABLE = range(1, 6)

# --- what `hive.gather` tells ------------------------------------------------------------------------------------
WINSETS, WINDOWS, PARTS, HELD = range(4)

# --- values ----------------------------------------------------------------------------------------------------
NIL: Final = 0
UNLINKED: Final = -1
PLACE_BITS: Final = 48
PLACE_MASK: Final = 2**48 - 1
FIRST: Final = -(2**63 - 1)  # below every pane
LAST: Final = 2**63 - 1  # above every pane


@pure
def source_at(slot: Any) -> Any:
    return SOURCES_AT + slot * SOURCE_WORDS


@pure
def node_at(h: Any, place: Any) -> Any:
    slot = place >> PLACE_BITS
    if slot == h[SLOTS]:
        return h[ORIGIN_AT]
    s = source_at(slot)
    return h[s + NODES_AT] + (place & PLACE_MASK & h[s + NODES_MASK]) * NODE_WORDS


@pure
def piece_at(h: Any, place: Any) -> Any:
    s = source_at(place >> PLACE_BITS)
    return h[s + ARENA_AT] + (place & PLACE_MASK & h[s + ARENA_MASK])


def header(*, slots: int, keys: int, nodes: int, words: int, levels: int = MAX_LEVELS) -> list[int]:
    """The words of an empty hive but for the nodes and arenas, and in its last element how many words it has in all.

    `nodes` and `words` are each source's, and powers of two.
    """
    nodes_at = SOURCES_AT + slots * SOURCE_WORDS
    arenas_at = nodes_at + slots * nodes * NODE_WORDS
    origin_at = arenas_at + slots * words
    h = [0] * nodes_at
    h[SLOTS], h[LEVELS], h[KEYS], h[ORIGIN_AT] = slots, levels, keys, origin_at
    h[HEAD], h[HEAD_PANE], h[PASSED] = slots << PLACE_BITS, FIRST, FIRST
    for slot in range(slots):
        s = SOURCES_AT + slot * SOURCE_WORDS
        h[s + WRITTEN] = h[s + PIN] = LAST
        h[s + NODES_AT], h[s + NODES_MASK] = nodes_at + slot * nodes * NODE_WORDS, nodes - 1
        h[s + ARENA_AT], h[s + ARENA_MASK] = arenas_at + slot * words, words - 1
        h[s + NODES_END] = h[s + NODES_FREED] = h[s + ARENA_END] = h[s + ARENA_FREED] = 1
    return [*h, origin_at + NODE_WORDS]


def prepare(h: Sequence[int] | np.ndarray) -> None:
    """The first node of a zeroed hive."""
    words: np.ndarray = h  # type: ignore[assignment]  # or a list, in the twin
    node = int(words[ORIGIN_AT])
    words[node + PANE], words[node + HEIGHT] = FIRST, int(words[LEVELS])
    words[node + PLACE] = int(words[SLOTS]) << PLACE_BITS
