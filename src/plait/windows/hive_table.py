"""A winset's table of windows: a hash trie to which sources add, and from which nothing is removed before the winset is.

The paper takes Michael's table, whose buckets are as many as one says beforehand, keys being known in advance. Here they are not:
an *entry* is NIL, a window, or a table of sixteen entries told apart by the next four bits of the hash. Invariants:

- An entry changes only from NIL to a window and from a window to a table that holds it, each by one CAS. So a window once
  reachable stays so, and a search that ends at NIL or at another key has looked at the one place where its window can be.
- Of two sources that bring a key at once, one links its window; the other's CAS fails, it looks again and finds the first one's.
- Where two keys have one and the same hash, windows hang on a chain below the last table: an entry in the window itself.
- A window's parts are a list to which each source pushes its own cell once, by CAS. What a cell holds is its source's alone.

Memory comes from the source's arena, and goes back with the pane; what a lost race leaves unused goes back with it too.
"""

from __future__ import annotations

from plait.atomics import cas, compiled, load_acquire, pure
from plait.windows.hive_layout import (
    ARENA_END,
    ARENA_FREED,
    ARENA_MASK,
    FAN,
    FAN_BITS,
    KEYS,
    NIL,
    P_CELL,
    P_NEXT,
    PART_WORDS,
    PLACE_BITS,
    PLACE_MASK,
    ROOT,
    W_CHAIN,
    W_HASH,
    W_KEY,
    W_PARTS,
    node_at,
    piece_at,
    source_at,
)


@pure
def allot(h, slot, size):
    """So many words of the source's arena, in one piece; NIL if there are not."""
    s = source_at(slot)
    mask = h[s + ARENA_MASK]
    first = h[s + ARENA_END]
    if (first & mask) + size > mask + 1:
        first += mask + 1 - (first & mask)
    if first + size - h[s + ARENA_FREED] > mask + 1:
        return NIL
    h[s + ARENA_END] = first + size
    return (slot << PLACE_BITS) + first


@pure
def same_key(h, window, words, at, stride, hash):
    """Whether a window is of the key whose words are words[at], words[at + stride] ..."""
    if h[window + W_HASH] != hash:
        return False
    for k in range(h[KEYS]):  # noqa: SIM110 (a generator would not compile)
        if h[window + W_KEY + k] != words[at + k * stride]:
            return False
    return True


@pure
def new_window(h, slot, words, at, stride, hash):
    place = allot(h, slot, W_KEY + h[KEYS])
    if place != NIL:
        window = piece_at(h, place)
        h[window + W_CHAIN] = NIL
        h[window + W_HASH] = hash
        h[window + W_PARTS] = NIL
        for k in range(h[KEYS]):
            h[window + W_KEY + k] = words[at + k * stride]
    return place


@pure
def new_table(h, slot, entry, hash, shift):
    """A table that holds one entry, a window of this hash."""
    place = allot(h, slot, FAN)
    if place != NIL:
        table = piece_at(h, place)
        for k in range(FAN):
            h[table + k] = NIL
        h[table + ((hash >> shift) & (FAN - 1))] = entry
    return place


@compiled
def window_of(h, slot, winset, words, at, stride, hash):
    """The place of a key's window, which is made if it is not there; NIL if there is no memory for it."""
    entry_at = node_at(h, winset) + ROOT
    shift = 0
    made = NIL
    while True:
        entry = load_acquire(h, entry_at)
        if entry == NIL:
            if made == NIL:
                made = new_window(h, slot, words, at, stride, hash)
            if made == NIL or cas(h, entry_at, NIL, made << 1):
                return made
        elif entry & 1 == 1:
            entry_at = piece_at(h, entry >> 1) + ((hash >> shift) & (FAN - 1))
            shift += FAN_BITS
        else:
            other = piece_at(h, entry >> 1)
            if same_key(h, other, words, at, stride, hash):
                return entry >> 1
            if h[other + W_HASH] == hash:
                entry_at = other + W_CHAIN
            else:
                table = new_table(h, slot, entry, h[other + W_HASH], shift)
                if table == NIL:
                    return NIL
                cas(h, entry_at, entry, table << 1 | 1)


@compiled
def put(h, slot, winset, words, at, stride, hash, cell):
    """Make a cell of this source a part of a key's window; false if there is no memory for it (then nothing is done)."""
    window = window_of(h, slot, winset, words, at, stride, hash)
    if window == NIL:
        return False
    place = allot(h, slot, PART_WORDS)
    if place == NIL:
        return False
    part = piece_at(h, place)
    h[part + P_CELL] = (slot << PLACE_BITS) + cell
    parts = piece_at(h, window) + W_PARTS
    while True:
        last = load_acquire(h, parts)
        h[part + P_NEXT] = last
        if cas(h, parts, last, place):
            return True


@pure
def list_windows(h, winset, stack, windows, parts, key, part_window, part_source, part_cell):
    """Copy a complete winset out: its windows' keys from `windows` on, their parts from `parts` on.

    Gives how many there are then of each; what does not fit is counted and not copied. Plain reads: whoever took the winset
    has acquired what every source wrote last, and no source comes back to it. `stack` has a word for each level and entry.
    """
    keys = h[KEYS]
    depth = 1
    stack[0] = h[node_at(h, winset) + ROOT]
    room, part_room = len(key) // keys, len(part_cell)
    while depth > 0:
        depth -= 1
        entry = stack[depth]
        if entry == NIL:
            continue
        at = piece_at(h, entry >> 1)
        if entry & 1 == 1:
            for k in range(FAN):
                if h[at + k] != NIL:
                    stack[depth] = h[at + k]
                    depth += 1
            continue
        if windows < room:
            for k in range(keys):
                key[windows * keys + k] = h[at + W_KEY + k]
        part = h[at + W_PARTS]
        while part != NIL:
            piece = piece_at(h, part)
            if parts < part_room:
                part_window[parts] = windows
                part_source[parts] = h[piece + P_CELL] >> PLACE_BITS
                part_cell[parts] = h[piece + P_CELL] & PLACE_MASK
            parts += 1
            part = h[piece + P_NEXT]
        windows += 1
        if h[at + W_CHAIN] != NIL:
            stack[depth] = h[at + W_CHAIN]
            depth += 1
    return windows, parts


#: Words of `list_windows`' stack: every level of the trie leaves up to fifteen entries behind.
STACK = FAN * (64 // FAN_BITS + 2)
