"""Columns of some rows, by their places, into memory of their own: what results are made of. None of it needs Python's lock."""

from __future__ import annotations

import numpy as np

from plait.core.machine.marks import entry
from plait.core.machine.wide import SIXTEEN, copy_sixteen


@entry
def take_words(values: np.ndarray, places: np.ndarray, out: np.ndarray) -> None:
    """out[k] = values[places[k]], of unsigned integers of any width; `places` are int64, none below 0."""
    for k in range(np.uint64(len(places))):
        out[k] = values[np.uint64(places[k])]


@entry
def take_flags(flags: np.ndarray, places: np.ndarray, out: np.ndarray) -> int:
    """Bytes that are 0 or 1, as bits, the first the lowest; how many are 1. `out` has a byte for each eight places."""
    number = 0
    for byte in range(len(out)):
        bits = 0
        for bit in range(min(8, len(places) - 8 * byte)):
            flag = flags[places[8 * byte + bit]]
            number += flag
            bits |= flag << bit
        out[byte] = bits
    return number


@entry
def take_ends(sizes: np.ndarray, places: np.ndarray, ends: np.ndarray) -> int:
    """Where texts of these sizes end, one after another; ends[0] = 0. Gives how many bytes they have."""
    total = np.int64(0)
    ends[0] = 0
    for k in range(len(places)):
        total += sizes[places[k]]
        ends[k + 1] = total
    return total


@entry
def take_texts(data: np.ndarray, begins: np.ndarray, places: np.ndarray, ends: np.ndarray, out: np.ndarray) -> None:
    """The text at place k begins at begins[places[k]] of `data`, modulo its size, a power of two, and does not go over its end;
    it becomes out[ends[k] : ends[k + 1]].

    Sixteen bytes at once, and so some that are not its own: the next text is written over these. At the end of either array,
    where there are no such bytes, one by one.
    """
    last_from, last_to, mask = len(data) - SIXTEEN, len(out) - SIXTEEN, np.int64(len(data) - 1)
    for k in range(len(places)):
        at, to, end = begins[places[k]] & mask, np.int64(ends[k]), np.int64(ends[k + 1])
        if end <= last_to and at + end - to <= last_from:
            while to < end:
                copy_sixteen(data, at, out, to)
                at += SIXTEEN
                to += SIXTEEN
        else:
            while to < end:
                out[to] = data[at]
                at += 1
                to += 1
