"""Exact sums as bytes, as few as hold them: for sums that travel, or are kept on disk.

A sum is its lowest digit's place (two bytes, in digits of 32 bits from 2^0) and its digits up to the one that tells the
sign, lowest first, in two's complement; a sum of 0 is no byte at all. Digits that are 0 at either end are left out.

Example: 5 has digit 5 at place 0: bytes 00 00, 05 00 00 00. -1 is all ones in two's complement, and one digit tells it:
00 00, FF FF FF FF. 2^31 needs a second digit, or its first would read as negative. A partial pane on Spark has one of
these instead of a row of limbs. All integers are little-endian, on every machine.
"""

from __future__ import annotations

import numpy as np

from plait.core.kernels.exact import COUNT, LIMBS, ODD, carried
from plait.core.machine.marks import entry, inlined

_ZERO, _LOW, _SIGN = np.uint64(0), np.uint64(0xFFFFFFFF), np.uint64(0x80000000)
PLACE = 2  # bytes


@inlined
def two_complement(row, digits):
    """The sum's digits, and which of them are needed: from the first, up to, not with, the second number given."""
    carried(row, digits, 0)
    end = len(digits)
    while end > 1 and digits[end - 1] == (_LOW if digits[end - 2] & _SIGN != _ZERO else _ZERO):
        end -= 1
    first = 0
    while first < end and digits[first] == _ZERO:
        first += 1
    return first, end


@entry
def sizes(sums, out) -> None:
    """How many bytes each sum takes.

    `sums` as in `exact`; `out` is int64 by row, 0 for a sum of 0.
    """
    digits = np.zeros(sums.shape[1] - LIMBS + 2, np.uint64)
    for s in range(sums.shape[0]):
        first, end = two_complement(sums[s], digits)
        out[s] = PLACE + 4 * (end - first) if end > first else 0


@entry
def write(sums, base, offsets, out) -> None:
    """Each sum's bytes, from its offset on.

    `offsets` is int64, one more than rows; `out` is uint8, offsets[-1] bytes long.
    """
    digits = np.zeros(sums.shape[1] - LIMBS + 2, np.uint64)
    for s in range(sums.shape[0]):
        first, end = two_complement(sums[s], digits)
        if end <= first:
            continue
        at = offsets[s]
        place = base + first
        out[at], out[at + 1] = place & 0xFF, (place >> 8) & 0xFF
        at += PLACE
        for k in range(first, end):
            for byte in range(4):
                out[at + byte] = (digits[k] >> np.uint64(8 * byte)) & np.uint64(0xFF)
            at += 4


# The place of a sum's lowest digit, from two bytes, as a signed number.
@inlined
def place_of(raw, at):
    place = np.int64(raw[at]) | np.int64(raw[at + 1]) << 8
    return place - 0x10000 if place & 0x8000 else place


@entry
def range_of(offsets, raw, found) -> None:
    """The limbs that sums need, as `exact.range_of` tells it for values."""
    for s in range(len(offsets) - 1):
        if offsets[s + 1] > offsets[s]:
            place = place_of(raw, offsets[s])
            digits = (offsets[s + 1] - offsets[s] - PLACE) // 4
            found[0] = min(found[0], place)
            found[1] = max(found[1], place + digits + 1)


@entry
def add(slot, counts, odds, offsets, raw, sums, base) -> None:
    """Add sums to those of their slots, which have the limbs for it; a slot below zero is nobody's.

    Only the last digit has a sign; those before it are added as unsigned ones. `counts` and `odds` are int64 by row.
    """
    for i in range(len(slot)):
        if slot[i] < 0:
            continue
        row = sums[slot[i]]
        row[COUNT] += counts[i]
        row[ODD] |= odds[i]
        if offsets[i + 1] == offsets[i]:
            continue
        at = LIMBS + place_of(raw, offsets[i]) - base
        byte, end = offsets[i] + PLACE, offsets[i + 1]
        while byte < end:
            digit = np.int64(raw[byte]) | np.int64(raw[byte + 1]) << 8 | np.int64(raw[byte + 2]) << 16
            digit |= np.int64(raw[byte + 3]) << 24
            byte += 4
            row[at] += digit - 0x100000000 if byte == end and digit >> 31 else digit
            at += 1
