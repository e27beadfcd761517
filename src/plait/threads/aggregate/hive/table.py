"""A winset's table of windows: a hash trie to which sources add, and from which nothing is removed before the winset is.

The paper takes Michael's table, whose buckets are as many as one says beforehand, keys being known in advance. Here they are not:
an *entry* is NIL, a window, or a table of entries told apart by the next bits of the hash: eight in the first table, which keeps
walks short, and four in those below. Invariants:

- An entry changes only from NIL to a window and from a window to a table that holds it, each by one CAS. So a window once
  reachable stays so, and a search that ends at NIL or at another key has looked at the one place where its window can be.
- Of two sources that bring a key at once, one links its window; the other's CAS fails, it looks again and finds the first one's.
- Where two keys have one and the same hash, windows hang on a chain below the last table: an entry in the window itself.
- A window that is there already is only read. Which tally of whose belongs to it, each source notes for itself, beside its
  tallies; what it adds to the winset is one *member*, by CAS: which of its tallies are this winset's. So no line is written
  by two sources but where a window or a table is new.

Memory comes from the source's arena, and goes back with the pane; what a lost race leaves unused goes back with it too.

An example. A winset's table is empty; key a (hash ...21) comes: ROOT becomes a's window. Key b (hash ...34) comes:
ROOT holds another key, so a table that holds a's window is made, ROOT is changed to it by CAS, and the search goes on
there: the entry of b's low bits is NIL, and b's window goes there. An entry is a place shifted left by one; the lowest
bit says «table».
"""

from __future__ import annotations

from plait.threads.aggregate.hive.words import (
    ARENA_END,
    ARENA_FREED,
    ARENA_MASK,
    FAN_BITS,
    KEYS,
    M_END,
    M_FIRST,
    M_NEXT,
    M_REF,
    M_SLOT,
    M_TS,
    MEMBER_WORDS,
    MEMBERS,
    NIL,
    PLACE_BITS,
    ROOT,
    ROOT_BITS,
    W_CHAIN,
    W_HASH,
    W_KEY,
    W_NUMBER,
    node_at,
    piece_at,
    source_at,
)
from plait.threads.atomics import cas, compiled, load_acquire, pure


@pure
def allot(h, slot, size):
    """So many words of the source's arena, in one piece; NIL if there are not.

    The source's own words, so plain. A piece never wraps round: if it would, the rest of the ring is skipped.
    """
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
    """Whether a window is of the key whose words are words[at], words[at + stride] ...

    `stride` is the distance between two words of one key: keys lie column by column in the batch.
    """
    if h[window + W_HASH] != hash:
        return False
    for k in range(h[KEYS]):  # noqa: SIM110 (a generator would not compile)
        if h[window + W_KEY + k] != words[at + k * stride]:
            return False
    return True


@pure
def new_window(h, slot, words, at, stride, hash):
    """A window of this key that nobody sees yet: its place, or NIL."""
    place = allot(h, slot, W_KEY + h[KEYS])
    if place != NIL:
        window = piece_at(h, place)
        h[window + W_CHAIN] = NIL
        h[window + W_HASH] = hash
        h[window + W_NUMBER] = 0
        for k in range(h[KEYS]):
            h[window + W_KEY + k] = words[at + k * stride]
    return place


@pure
def bits_at(shift):
    """How many bits of the hash a table tells apart, of those from `shift` on."""
    return ROOT_BITS if shift == 0 else FAN_BITS


@pure
def new_table(h, slot, entry, hash, shift):
    """A table that holds one entry, a window of this hash."""
    fan = 1 << bits_at(shift)
    place = allot(h, slot, fan)
    if place != NIL:
        table = piece_at(h, place)
        for k in range(fan):
            h[table + k] = NIL
        h[table + ((hash >> shift) & (fan - 1))] = entry
    return place


@compiled
def window_of(h, slot, winset, words, at, stride, hash):
    """The place of a key's window, which is made if it is not there; NIL if there is no memory for it.

    A failed CAS is not looked at: the loop reads the entry again and finds what the other has put there. A window that
    was made for a race that is lost is kept in `made` and used at the next NIL.
    """
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
            bits = bits_at(shift)
            entry_at = piece_at(h, entry >> 1) + ((hash >> shift) & ((1 << bits) - 1))
            shift += bits
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
def join(h, slot, winset, tally):
    """This source's tallies from `tally` on are the winset's: the place of its member, or NIL if there is no memory for it."""
    place = allot(h, slot, MEMBER_WORDS)
    if place == NIL:
        return NIL
    member = piece_at(h, place)
    h[member + M_SLOT] = slot
    h[member + M_FIRST] = tally
    h[member + M_END] = tally
    members = node_at(h, winset) + MEMBERS
    while True:
        last = load_acquire(h, members)
        h[member + M_NEXT] = last
        if cas(h, members, last, place):
            return place


@pure
def list_windows(h, winset, stack, windows, key):
    """Number a complete winset's windows, from `windows` on, and copy their keys; gives how many there are then.

    What does not fit is numbered and not copied. Plain reads: whoever took the winset has acquired what every source wrote last,
    and no source comes back to it.

    `stack` is the taker's scratch of STACK words. W_NUMBER receives the window's number, by which a source's tallies
    find it later (`hive.windows_of`).
    """
    keys = h[KEYS]
    depth = 1
    root = h[node_at(h, winset) + ROOT]
    stack[0] = root
    room = len(key) // keys
    while depth > 0:
        depth -= 1
        entry = stack[depth]
        if entry == NIL:
            continue
        at = piece_at(h, entry >> 1)
        if entry & 1 == 1:
            for k in range(1 << bits_at(0 if entry == root else 1)):
                if h[at + k] != NIL:
                    stack[depth] = h[at + k]
                    depth += 1
            continue
        if windows < room:
            for k in range(keys):
                key[windows * keys + k] = h[at + W_KEY + k]
        h[at + W_NUMBER] = windows
        windows += 1
        if h[at + W_CHAIN] != NIL:
            stack[depth] = h[at + W_CHAIN]
            depth += 1
    return windows


@pure
def list_members(h, winset, first, end, ts, ref):
    """By slot: which tallies a source has in a complete winset, from first[slot] to end[slot]; none where it is no member.

    Of those that are, `ts` and `ref` get what the last tuple is: its ts, and when it was pushed.
    """
    for slot in range(len(first)):
        first[slot] = 0
        end[slot] = 0
    member = h[node_at(h, winset) + MEMBERS]
    while member != NIL:
        at = piece_at(h, member)
        first[h[at + M_SLOT]] = h[at + M_FIRST]
        end[h[at + M_SLOT]] = h[at + M_END]
        ts[h[at + M_SLOT]] = h[at + M_TS]
        ref[h[at + M_SLOT]] = h[at + M_REF]
        member = h[at + M_NEXT]


#: Words of `list_windows`' stack: every level of the trie leaves as many entries behind as a table has, less one.
STACK = (1 << ROOT_BITS) + (1 << FAN_BITS) * (64 // FAN_BITS + 1)
