"""Pieces of bytes: the texts of some rows copied from where they lie to where they are wanted; and numbers for pieces."""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry, inlined


@entry
def copy_pieces(data: np.ndarray, starts: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """Piece k of `data`, from `starts[k]` on, becomes out[ends[k] : ends[k + 1]].

    Indices have no sign, so that the machine copies many bytes at once.
    """
    for k in range(len(starts)):
        at, to = np.uint64(starts[k]), np.uint64(ends[k])
        for i in range(np.uint64(ends[k + 1]) - to):
            out[to + i] = data[at + i]


# A hash of some bytes, eight at a time: one multiplication waits for another only once a word. Indices have no sign, or each
# access would look whether it counts from the end.
@inlined
def hashed(data, begin, size):
    h = size * np.uint64(0x9E3779B97F4A7C15)
    at = np.uint64(0)
    while at < size:
        word, shift = np.uint64(0), np.uint64(0)
        for k in range(at, min(at + np.uint64(8), size)):
            word |= np.uint64(data[begin + np.uint64(k)]) << shift
            shift += np.uint64(8)
        h = (h ^ word) * np.uint64(0xFF51AFD7ED558CCD)
        h ^= h >> np.uint64(32)
        at += np.uint64(8)
    return h


@inlined
def same_bytes(data, begin, size, kept, at):
    for k in range(size):  # noqa: SIM110 (a generator would not compile)
        if data[begin + np.uint64(k)] != kept[at + np.uint64(k)]:
            return False
    return True


@entry
def number_pieces(data, ends, there, first, table, hashes, kept, kept_ends, count, out) -> int:
    """A number for each piece of `data` from the `first` on, the same for the same bytes; gives the first that has none yet.

    Piece k is data[ends[k] : ends[k + 1]]; `there` is uint8 by piece, and one that is not there has -1. A piece that was not seen
    before gets the next number, `count[0]`, and its bytes are kept. If there is no room for it, that is where this stops.

    `table` is int64, a power of two of places, number + 1 in each, 0 where it is free; at most half of them are taken, so a
    search ends. `hashes` are by number; number n's bytes are kept[kept_ends[n] : kept_ends[n + 1]].
    """
    mask, known = np.uint64(len(table) - 1), count[0]
    for i in range(first, len(out)):
        if there[i] == 0:
            out[i] = -1
            continue
        begin, size = np.uint64(ends[i]), np.uint64(ends[i + 1] - ends[i])
        h = hashed(data, begin, size)
        at = h & mask
        while True:
            number = table[at] - 1
            if number < 0:
                to = np.uint64(kept_ends[known])
                if known == len(hashes) or to + size > np.uint64(len(kept)):
                    count[0] = known
                    return i
                for k in range(size):
                    kept[to + np.uint64(k)] = data[begin + np.uint64(k)]
                kept_ends[known + 1] = np.int64(to + size)
                hashes[known] = h
                number = known
                known += 1
                table[at] = known
                break
            if hashes[number] == h:
                own = np.uint64(kept_ends[number])
                if np.uint64(kept_ends[number + 1]) - own == size and same_bytes(data, begin, size, kept, own):
                    break
            at = (at + np.uint64(1)) & mask
        out[i] = number
    count[0] = known
    return len(out)


@entry
def enter_pieces(hashes, known, table) -> None:
    """Enter the first `known` numbers into an empty table."""
    mask = np.uint64(len(table) - 1)
    for number in range(known):
        at = hashes[number] & mask
        while table[at] != 0:
            at = (at + np.uint64(1)) & mask
        table[at] = number + 1
