"""The gate's memory: one int64 array, so that a worker's compiled loop needs nothing but it.

Header | events | one block a source | one block a reader | positions read, a row a reader | store (nodes or rings)

Who writes which word, who reads it, in which order and why, is said beside the word. «Release» and «acquire» are the
steps of `threads.atomics`; a plain word is touched only by the thread that holds its block's BUSY word, or is written before
the release store that makes it reachable and never again while it is. Words with different writers lie 128 bytes
apart (processors fetch lines in pairs), so that no thread slows another by writing near what it reads.

A tuple is known inside by its `place`: slot of its source << 48 | how many tuples of that slot came before it. Places are
never used twice, while the memory behind them (count modulo the ring's size) is: comparing places has no ABA problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from plait.core.machine.line import LINE, lines
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.atomics import pure

# --- header: written once, before any thread starts; plain reads ---------------------------------------------
SLOTS: Final = 0  # how many sources fit
SEATS: Final = 1  # how many readers fit
RING: Final = 2  # tuples a source can have in the gate; a power of two
RING_LOG: Final = 3
RING_MASK: Final = 4
CAPACITY: Final = 5  # ready and unread tuples a source may have before it is held back
PENDING: Final = 6  # unready tuples a source may have before STUCK is answered
LEVELS: Final = 7  # of the skip list's towers; 0: this is a ring gate
READERS_AT: Final = 8
READ_AT: Final = 9  # rows of positions read
COLUMNS: Final = 10  # words a row
STORE_AT: Final = 11
SCRATCH_AT: Final = 12  # per reader, private
SCRATCH: Final = 13  # words a reader
WIDTH: Final = 14  # SLOTS, rounded up to a power of two
# The header's last word is nobody's: gates that stand beside the product may use it.

# --- events: one word a line ---------------------------------------------------------------------------------
# SOURCES_VERSION, READERS_VERSION: raised (fetch_add) by every change to the set of sources or readers, after the
# change is visible. A thread that reads several members' words reads the version before and after: equal means
# that it saw one set, and no member of another.
SOURCES_VERSION: Final = 1 * LINE
READERS_VERSION: Final = 2 * LINE
# READERS_LIVE: how many; taken from (CAS) before a reader is removed, so that two calls can't remove the last two.
READERS_LIVE: Final = 2 * LINE + 1
# USED: slots 0..USED-1 have been announced at some time. Raised (CAS) by announcers before the version; acquired by all.
USED: Final = 1 * LINE + 1
# READY_EVENT / ROOM_EVENT: counters slept on; raised by whoever makes tuples ready / makes room, if the matching SLEEPERS
# is not 0. SLEEPERS is raised before the sleeper's last look at the condition, with a fence between; the other
# side publishes, fences, then reads SLEEPERS. One of the two sees the other: no wake-up is lost.
READY_EVENT: Final = 3 * LINE
READY_SLEEPERS: Final = 3 * LINE + 1
ROOM_EVENT: Final = 4 * LINE
ROOM_SLEEPERS: Final = 4 * LINE + 1
# CLOSED: 0, then 1 for ever; release by `close`, acquire at the start of every call.
CLOSED: Final = 5 * LINE
# CHANGES + kind: the last numbered change that took effect (CAS: one caller a number wins).
CHANGES: Final = 6 * LINE
ANNOUNCE_SOURCES: Final = 0
REMOVE_SOURCES: Final = 1
ANNOUNCE_READERS: Final = 2
REMOVE_READERS: Final = 3

# --- a source's block ----------------------------------------------------------------------------------------
SOURCES_AT: Final = 8 * LINE
SOURCE_WORDS: Final = 4 * LINE
# PROGRESS: no tuple below it will come. Release by the source after its tuples are in the store (so whoever acquires
# it finds them there); by an announcer before STATE; by a remover once the source can't be inside a call. AFTER_ALL in
# a slot without a source, so that the frontier is the minimum of these words and of nothing else.
PROGRESS: Final = 0
# TAIL: tuples ever added. Release by the source before PROGRESS; acquired by ring readers after PROGRESS.
TAIL: Final = 1
# STATE: LIVE -> ENDED or REMOVED by CAS; every other change by whoever holds BUSY (release); acquired by all.
# A source: FREE, CLAIMED, LIVE, then ENDED or REMOVED, then CLAIMED again; a reader: FREE, CLAIMED, LIVE, REMOVED, FREE.
# CLAIMED -> LIVE by the announcer alone, after it has let go of BUSY: nobody else changes a CLAIMED.
STATE: Final = LINE
# ORIGIN: input << 32 | position, the rank between tuples of one ts. Release by an announcer before LIVE, when the slot has
# no unread tuple in the gate: needed only for tuples that are published later, so a plain read will do.
ORIGIN: Final = LINE + 1
# BUSY: 0, or 1 while a thread is inside a call for this source (CAS in, release out).
BUSY: Final = 2 * LINE
# PIN: skip list only. While the source is inside `add`, every node it may touch has ts >= PIN; AFTER_ALL otherwise.
# Release, then a fence, then a look at where readers are: see `skiplist.pin`.
PIN: Final = 2 * LINE + 1
# Private to the holder of BUSY (each holder acquires what the last one released with it):
FREED: Final = 3 * LINE  # tuples whose memory may be used again
LIMIT: Final = 3 * LINE + 1  # TAIL may come up to here without another look at the limits
LAST_TS: Final = 3 * LINE + 2
LAST_SEQ: Final = 3 * LINE + 3
HANDLES: Final = 3 * LINE + 4  # LEVELS places: the source's way back into the list
HANDLES_TS: Final = 3 * LINE + 8  # and their ts

# --- a reader's block ----------------------------------------------------------------------------------------
READER_WORDS: Final = 4 * LINE
# FRONTIER: everything below may already have been given out by this reader. Release by the reader, then a fence, then
# a second look at SOURCES_VERSION, before it is used; acquired by announcers of sources after their own fence.
FRONTIER: Final = 0
# HEAD: place of the last node read, skip list only (in a ring gate it never moves). Release by the reader before
# the rows below; acquired by sources.
HEAD: Final = 1
# TELLING: skip list only. 1 while HEAD and the rows below are being brought up to date, which are many words: meanwhile a row may
# tell of a tuple, and another not yet of an earlier one. Release by the reader, around them; acquired by sources that check a
# handle, before the row.
TELLING: Final = 2
# STATE and BUSY as for sources, at the same offsets.
# Private to the holder of BUSY:
HOLDER: Final = 3 * LINE  # the slot that held the frontier when it was last computed
LEAVES: Final = 3 * LINE + 1  # ring: how many sources the merge has; then whether its tree stands
BUILT: Final = 3 * LINE + 2
# --- positions read: READ_AT + reader * COLUMNS + slot -------------------------------------------------------
# Tuples of the slot that this reader has read. Release by the reader, after HEAD; acquired by the slot's source (to use
# the memory again, but for the node at HEAD, on which the reader stands) and by sources that check a handle. Whoever
# needs both reads this first: HEAD is then at least as new.

# --- a node of the skip list ---------------------------------------------------------------------------------
# Plain words, written by the source before the CAS that links the node at level 0; not changed until the node is
# freed, which no thread that can reach it allows.
NODE_WORDS: Final = 8
TS: Final = 0
PLACE: Final = 1
SEQ: Final = 2
REF: Final = 3
# NEXT + level: index of the next node's first word, NIL, or UNLINKED. CAS by sources, acquired by all. Level 0 holds
# every node; the levels above are shortcuts, and may lack one.
NEXT: Final = 4
MAX_LEVELS: Final = 4
NIL: Final = 0
UNLINKED: Final = -1

# --- values --------------------------------------------------------------------------------------------------
FREE: Final = 0
LIVE: Final = 1
ENDED: Final = 2
REMOVED: Final = 3  # a reader that may still be inside its last call: what it stands on is kept for it
CLAIMED: Final = 4  # announced, but its announcer is not out of the way yet
NO_PLACE: Final = -1
PLACE_BITS: Final = 48
PLACE_MASK: Final = 2**48 - 1


@pure
def source_at(slot):
    return SOURCES_AT + slot * SOURCE_WORDS


@pure
def reader_at(g, reader):
    return g[READERS_AT] + reader * READER_WORDS


@pure
def read_at(g, reader):
    return g[READ_AT] + reader * g[COLUMNS]


@pure
def scratch_at(g, reader):
    """A reader's private words: what it has read of each slot and not published yet, then the ring's merge."""
    return g[SCRATCH_AT] + reader * g[SCRATCH]


def _whole_lines(words: int) -> int:
    return -(-words // LINE) * LINE


def ring_size(capacity: int, pending: int) -> int:
    """Room for both limits and for the one node that a skip-list reader stands on."""
    size = 4
    while size < capacity + pending + 1:
        size *= 2
    return size


def levels_for(size: int) -> int:
    """Towers no higher than the ring has use for: level l holds every 8**l-th tuple of a source."""
    levels = 1
    while levels < MAX_LEVELS and 8**levels < size:
        levels += 1
    return levels


def header(*, slots: int, seats: int, capacity: int, pending: int, store: str) -> list[int]:
    """The header of a gate, and in its last element how many words the whole gate has."""
    size = ring_size(capacity, pending)
    columns = _whole_lines(slots + 1)  # one more for the skip list's first node, which belongs to no source
    leaves = 1
    while leaves < slots:
        leaves *= 2
    scratch = _whole_lines(columns + 7 * leaves)
    readers_at = SOURCES_AT + slots * SOURCE_WORDS
    read_rows = readers_at + seats * READER_WORDS
    scratch_rows = read_rows + seats * columns
    store_at = scratch_rows + seats * scratch
    total = store_at + (slots * size + 1) * NODE_WORDS if store == "nodes" else store_at + slots * size * 3
    words = [0] * LINE
    words[SLOTS], words[SEATS], words[RING] = slots, seats, size
    words[RING_LOG], words[RING_MASK] = size.bit_length() - 1, size - 1
    words[CAPACITY], words[PENDING], words[LEVELS] = capacity, pending, levels_for(size) if store == "nodes" else 0
    words[READERS_AT], words[READ_AT], words[COLUMNS] = readers_at, read_rows, columns
    words[STORE_AT], words[SCRATCH_AT], words[SCRATCH] = store_at, scratch_rows, scratch
    words[WIDTH] = leaves
    return [*words, total]


def prepare(words: Sequence[int] | np.ndarray, origins: Sequence[int], readers: int) -> None:
    """Fill a zeroed gate in: the declared sources, silent (they hold the frontier at -infinity), and the readers."""
    g: np.ndarray = words  # type: ignore[assignment]  # or a list, in the twin
    slots = int(g[SLOTS])
    g[USED], g[READERS_LIVE] = len(origins), readers
    for slot in range(slots):
        block = SOURCES_AT + slot * SOURCE_WORDS
        g[block + PIN] = AFTER_ALL
        g[block + PROGRESS] = AFTER_ALL
        g[block + LAST_TS] = BEFORE_ALL
        for level in range(MAX_LEVELS):
            g[block + HANDLES + level] = slots << PLACE_BITS
            g[block + HANDLES_TS + level] = BEFORE_ALL
        if slot < len(origins):
            g[block + STATE], g[block + ORIGIN] = LIVE, origins[slot]
            g[block + PROGRESS] = BEFORE_ALL
    for reader in range(int(g[SEATS])):
        block = int(g[READERS_AT]) + reader * READER_WORDS
        g[block + FRONTIER] = BEFORE_ALL
        g[block + HEAD] = slots << PLACE_BITS
        g[block + HOLDER] = -1
        g[int(g[READ_AT]) + reader * int(g[COLUMNS]) + slots] = 1  # the list's first node counts as read
        g[int(g[SCRATCH_AT]) + reader * int(g[SCRATCH]) + slots] = 1
        if reader < readers:
            g[block + STATE] = LIVE


def prepare_nodes(words: Sequence[int] | np.ndarray) -> None:
    """The skip list's first node: before every key, on every level, never freed."""
    g: np.ndarray = words  # type: ignore[assignment]  # or a list, in the twin
    node = int(g[STORE_AT]) + int(g[SLOTS]) * int(g[RING]) * NODE_WORDS
    g[node + TS] = BEFORE_ALL
    g[node + PLACE] = int(g[SLOTS]) << PLACE_BITS


def allocate(*, slots: int, seats: int, capacity: int, pending: int, store: str) -> np.ndarray:
    """Zeroed memory for a gate; pages are taken from the system when first written."""
    *words, total = header(slots=slots, seats=seats, capacity=capacity, pending=pending, store=store)
    memory = lines(total)
    memory[: len(words)] = words
    return memory
