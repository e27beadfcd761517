"""Chained tables: a hash of the equality key, a grid over one or two bands, or both at once.

`head[slot]` is the newest row of a slot. A row's *node* holds the next older row of its slot, its key and its
coordinates, side by side, so that a step of a walk costs one cache line. Walks go newest first and end at the first row
below the probe's range: expired rows need no deletion. Rows whose keys can't match (`usable` 0) are in no chain.

A table offers candidates. Every row in a probe's range whose keys agree is in one of the slots the probe visits,
because slots are a function of the same box numbers and the same key; rows that share a slot by accident are told
apart by their keys, as far as these go. What remains is judged by the whole condition. Candidates come in no order.

A walk has a budget. Where chains are long, a scan is faster; a probe that spends its budget gives back what it emitted,
marks itself `over`, and is scanned.
"""

from __future__ import annotations

import numpy as np
from numba import float64, int32, int64, uint64

from plait.core.machine.marks import entry, inlined

# A node's fields. The coordinates are floats in the same bytes: kernels are given both views.
PREV, KEY, X, Y = 0, 1, 2, 3
BLOCK = 64  # probes walked together
BOXES = 25  # boxes of one probe, at most

_MIX = np.uint64(0x9E3779B97F4A7C15)


@inlined
def mixed(key: np.int64) -> np.uint64:
    """Spread a key's bits over a word that a power-of-two table can be cut from."""
    x = uint64(key) * _MIX
    x ^= x >> uint64(32)
    x *= _MIX
    return x ^ (x >> uint64(29))


def mixed_array(keys: np.ndarray) -> np.ndarray:
    """`mixed` of an array of int64, without compiling anything."""
    x = keys.astype(np.uint64) * _MIX
    x ^= x >> np.uint64(32)
    x *= _MIX
    found: np.ndarray = x ^ (x >> np.uint64(29))
    return found


@entry
def insert_hash(first: int, last: int, nodes: np.ndarray, usable: np.ndarray, head: np.ndarray, mask: int) -> None:
    """Chain rows [first, last) by their key.

    `nodes` is int64 of shape (capacity, 2 or 4), see above; `usable` is uint8 by row; `head` is int32, a power of two of
    entries, -1 for an empty slot; `mask` is len(head) - 1. Costs one cache miss a row.
    """
    for row in range(first, last):
        if usable[row]:
            slot = mixed(nodes[row, KEY]) & mask
            nodes[row, PREV] = head[slot]
            head[slot] = int32(row)


@entry
def probe_hash(
    begin: int,
    n: int,
    lo: np.ndarray,
    hi: np.ndarray,
    wanted: np.ndarray,
    keys: np.ndarray,
    nodes: np.ndarray,
    head: np.ndarray,
    mask: int,
    budget: int,
    newest: np.ndarray,
    out_probe: np.ndarray,
    out_row: np.ndarray,
    over: np.ndarray,
    tally: np.ndarray,
) -> int:
    """Pairs of equal keys. Gives the probe it stopped before (n: all are done).

    `tally` receives the pairs emitted and the steps walked. The first pass only loads heads: these loads don't wait for
    one another, as those of a walk do.

    `lo[p]` and `hi[p]` are the range of rows that probe p may meet, `wanted[p]` 0 leaves it out, `keys[p]` is its key:
    all by probe, int64 but `wanted`, uint8. `newest` is int32 scratch, one a probe. Found pairs go to `out_probe` and
    `out_row` (int64, of one length), from tally[0] on. `over[p]` becomes 1 for a probe that spent `budget` and 1/128 of
    its range: none of its pairs is out.

    If the output is full in the middle of a probe, that probe's pairs are taken back and its number is given, to go on
    from.
    """
    for p in range(begin, n):
        newest[p] = head[mixed(keys[p]) & mask]
    count, steps = tally[0], tally[1]
    room = len(out_probe)
    for p in range(begin, n):
        if not wanted[p]:
            continue
        low, high, key = lo[p], hi[p], keys[p]
        limit = steps + budget + (high - low) // 128
        start = count
        row = int64(newest[p])
        while row >= low:
            steps += 1
            if steps > limit:
                over[p] = 1
                count = start
                break
            if row < high and nodes[row, KEY] == key:
                if count == room:
                    tally[0], tally[1] = start, steps
                    return p
                out_probe[count] = p
                out_row[count] = row
                count += 1
            row = nodes[row, PREV]
    tally[0], tally[1] = count, steps
    return n


@inlined
def box(value: float, inverse: float) -> int:
    """The number of the box a coordinate lies in; far-off coordinates share the outermost boxes."""
    at = min(max(np.floor(value * inverse), -4.0e18), 4.0e18)
    return int64(at)  # type: ignore[no-any-return]  # Numba's types are untyped as functions


@entry
def insert_grid(
    first: int,
    last: int,
    nodes: np.ndarray,
    coords: np.ndarray,
    usable: np.ndarray,
    inverse: np.ndarray,
    masks: np.ndarray,
    head: np.ndarray,
) -> None:
    """Chain rows by their box, and by their key if there is one.

    `masks`: of the first dimension, of the second, bits of the second, of the table, and 1 if there are keys.

    `coords` is the same memory as `nodes`, seen as float64. `inverse` is float64, boxes a unit by dimension; of a missing
    second dimension all rows have coordinate 0.

    The slot is made of the low bits of both box numbers, so a grid has no borders: far boxes share slots with near ones,
    and the coordinates tell them apart. Example: masks 3 and 3, 2 bits. Box (5, 2) has slot 01 10, as box (1, 2) has.
    """
    for row in range(first, last):
        if usable[row]:
            x = uint64(box(coords[row, X], inverse[0])) & masks[0]
            y = uint64(box(coords[row, Y], inverse[1])) & masks[1]
            slot = (x << masks[2]) | y
            if masks[4]:
                slot ^= mixed(nodes[row, KEY])
            slot &= masks[3]
            nodes[row, PREV] = head[slot]
            head[slot] = int32(row)


@inlined
def open_walks(
    first: int,
    last: int,
    wanted: np.ndarray,
    keys: np.ndarray,
    ranges: np.ndarray,
    inverse: np.ndarray,
    masks: np.ndarray,
    head: np.ndarray,
    at_probe: np.ndarray,
    at_row: np.ndarray,
    over: np.ndarray,
) -> int:
    """The newest row of every box the probes [first, last) visit; gives their number.

    A probe whose range covers more than BOXES boxes marks itself `over`: it would be cheaper to scan. `at_probe` and
    `at_row` have room for BLOCK * BOXES walks. An empty box is a walk too, of row -1, which ends at its first step.
    """
    walks = 0
    for p in range(first, last):
        if not wanted[p]:
            continue
        cx0, cx1 = box(ranges[p, 0], inverse[0]), box(ranges[p, 1], inverse[0])
        cy0, cy1 = box(ranges[p, 2], inverse[1]), box(ranges[p, 3], inverse[1])
        # In a table that wraps around, a range longer than the table would visit slots twice.
        cx1 = min(cx1, cx0 + int64(masks[0]))
        cy1 = min(cy1, cy0 + int64(masks[1]))
        if (cx1 - cx0 + 1) > BOXES or (cx1 - cx0 + 1) * (cy1 - cy0 + 1) > BOXES:
            over[p] = 1
            continue
        spread = uint64(0)
        if masks[4]:
            spread = mixed(keys[p])
        for cx in range(cx0, cx1 + 1):
            for cy in range(cy0, cy1 + 1):
                slot = (((uint64(cx) & masks[0]) << masks[2]) | (uint64(cy) & masks[1])) ^ spread
                at_probe[walks] = p
                at_row[walks] = head[slot & masks[3]]
                walks += 1
    return walks


@entry
def probe_grid(
    begin: int,
    n: int,
    lo: np.ndarray,
    hi: np.ndarray,
    wanted: np.ndarray,
    keys: np.ndarray,
    ranges: np.ndarray,
    nodes: np.ndarray,
    coords: np.ndarray,
    inverse: np.ndarray,
    masks: np.ndarray,
    head: np.ndarray,
    budget: int,
    at_probe: np.ndarray,
    at_row: np.ndarray,
    walked: np.ndarray,
    out_probe: np.ndarray,
    out_row: np.ndarray,
    over: np.ndarray,
    tally: np.ndarray,
) -> int:
    """Rows whose coordinates lie in a probe's `ranges` (x from, x to, y from, y to) and whose key is equal.

    A block of probes walks all its boxes side by side, one step of every walk at a time: steps of different walks don't
    wait for one another, so many cache misses are under way at once. Gives the probe it stopped before.

    `ranges` is float64 of shape (n, 4). `at_probe`, `at_row` (int32, BLOCK * BOXES) and `walked` (int64, BLOCK) are
    scratch. Other arguments are those of `probe_hash` and `insert_grid`.

    Each step writes the pair first and counts it only if it fits: there is no branch that the processor could guess
    wrong. So there must be room for one pair a walk before each round. If a probe of the block spent its budget, its
    pairs are taken out of the block's pairs at the end.
    """
    count, steps = tally[0], tally[1]
    room = len(out_probe)
    keyed = masks[4] != uint64(0)
    for first in range(begin, n, BLOCK):
        last = min(first + BLOCK, n)
        for p in range(first, last):
            walked[p - first] = budget + (hi[p] - lo[p]) // 128
        start = count
        walks = open_walks(first, last, wanted, keys, ranges, inverse, masks, head, at_probe, at_row, over)
        spent = False
        while walks > 0:
            if count + walks > room:
                tally[0], tally[1] = start, steps
                return first
            steps += walks
            still = 0
            for w in range(walks):
                p, row = at_probe[w], int64(at_row[w])
                if row < lo[p]:
                    continue
                x, y = coords[row, X], coords[row, Y]
                inside = (x >= ranges[p, 0]) & (x <= ranges[p, 1]) & (y >= ranges[p, 2]) & (y <= ranges[p, 3])
                out_probe[count] = p
                out_row[count] = row
                if inside & (row < hi[p]) and (not keyed or nodes[row, KEY] == keys[p]):
                    count += 1
                walked[p - first] -= 1
                if walked[p - first] < 0:
                    over[p] = 1
                    spent = True
                    continue
                at_probe[still] = p
                at_row[still] = int32(nodes[row, PREV])
                still += 1
            walks = still
        if spent:
            kept = start
            for k in range(start, count):
                if not over[out_probe[k]]:
                    out_probe[kept] = out_probe[k]
                    out_row[kept] = out_row[k]
                    kept += 1
            count = kept
    tally[0], tally[1] = count, steps
    return n


@inlined
def reached(
    v: float, sign: int, low: float, high: float, eps: float, weight: float, largest: float
) -> tuple[float, float]:
    """Where a partner's coordinate lies at least and at most: see `probe_ranges`."""
    slop = eps * (2.0 * abs(v) + weight)
    if sign > 0:  # the probe is the left one: low <= v - u <= high
        u0, u1 = v - high, v - low
    else:
        u0, u1 = v + low, v + high
    # Coordinates are clipped to +-largest: a range that lies beyond must still reach the rows at the edge.
    return min(u0 - slop, largest), max(u1 + slop, -largest)


@entry
def probe_ranges(
    n: int,
    values: np.ndarray,
    sign: int,
    low: float,
    high: float,
    eps: float,
    weight: float,
    largest: float,
    at: int,
    ranges: np.ndarray,
) -> None:
    """Where a partner's coordinate must lie for a band: widened by what rounding may have moved it.

    `values` are the probes' coordinates, `sign` 1 if the probe is the left row of the band low <= left - right <= high,
    and -1 if it is the right one. Columns `at` and `at + 1` of `ranges` are written.

    The condition is computed in floats, and its difference may be rounded up or down. `slop` is an upper bound of that,
    so no match lies outside of the range; what lies inside and does not match is judged later.
    tests/core/join/test_indexes.py has the cases where a match lies on the very edge.
    """
    for p in range(n):
        ranges[p, at], ranges[p, at + 1] = reached(float64(values[p]), sign, low, high, eps, weight, largest)
