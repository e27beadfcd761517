"""Sorted chunks: for an inequality, or a band, whose matches are few.

A chunk is a fixed number of consecutive rows, sorted by coordinate once it is full; `order` holds its rows in that
order. In each chunk the matches of a probe are one run, found by two binary searches, so it is known what a probe would
cost before it is paid: where its runs are long, a scan is faster, and the probe marks itself `over`.
Rows of the last, unfilled chunk are not here: the caller scans them. Candidates come by probe, in no order.
"""

from __future__ import annotations

import numpy as np
from numba import int64

from plait.core.kernels.chains import X
from plait.core.machine.marks import entry, inlined


@entry
def sort_chunk(
    first: int, last: int, coords: np.ndarray, usable: np.ndarray, keys: np.ndarray, order: np.ndarray
) -> int:
    """Sort rows [first, last) into `keys` and `order`; gives how many can match at all (they come first).

    `coords` is float64 by row, of which column X is used; `usable` uint8 by row. `keys` (float64) and `order` (int32) are
    by position, and only [first, last) of them is written. A stable sort: equal coordinates stay in the order of rows.
    """
    kept = 0
    for row in range(first, last):
        if usable[row]:
            keys[first + kept] = coords[row, X]
            order[first + kept] = row
            kept += 1
    by = np.argsort(keys[first : first + kept], kind="mergesort")
    sorted_keys = keys[first : first + kept][by]
    sorted_rows = order[first : first + kept][by]
    keys[first : first + kept] = sorted_keys
    order[first : first + kept] = sorted_rows
    return kept


@inlined
def lower(keys: np.ndarray, first: int, last: int, value: float) -> int:
    """The first position whose key is not below the value."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] < value:
            first = middle + 1
        else:
            last = middle
    return first


@inlined
def upper(keys: np.ndarray, first: int, last: int, value: float) -> int:
    """The first position whose key is above the value."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] <= value:
            first = middle + 1
        else:
            last = middle
    return first


@entry
def probe_sorted(
    begin: int,
    n: int,
    lo: np.ndarray,
    hi: np.ndarray,
    wanted: np.ndarray,
    ranges: np.ndarray,
    size: int,
    sizes: np.ndarray,
    keys: np.ndarray,
    order: np.ndarray,
    runs: np.ndarray,
    out_probe: np.ndarray,
    out_row: np.ndarray,
    over: np.ndarray,
    tally: np.ndarray,
) -> int:
    """Rows of full chunks whose coordinate lies in a probe's range. As `probe_hash` in all else.

    `sizes[c]` is the number of usable rows of chunk c; `runs` is scratch, two numbers a chunk.

    `ranges` is float64, of which columns 0 and 1 are the range. `size` is the rows of a chunk; chunk c lies at c * size.
    The cost of a probe is known before it is paid: two binary searches a chunk. It gives up if more rows would come than
    64 and 1/64 of its range.
    """
    count, steps = tally[0], tally[1]
    room = len(out_probe)
    for p in range(begin, n):
        if not wanted[p]:
            continue
        low, high, v0, v1 = lo[p], hi[p], ranges[p, 0], ranges[p, 1]
        first_chunk = low // size
        last_chunk = min((high + size - 1) // size, int64(len(sizes)))
        total = 0
        for c in range(first_chunk, last_chunk):
            end = c * size + sizes[c]
            runs[c, 0] = lower(keys, c * size, end, v0)
            runs[c, 1] = upper(keys, runs[c, 0], end, v1)
            total += runs[c, 1] - runs[c, 0]
        steps += total
        if total > 64 + (high - low) // 64:
            over[p] = 1
            continue
        if count + total > room:
            tally[0], tally[1] = count, steps
            return p
        for c in range(first_chunk, last_chunk):
            for at in range(runs[c, 0], runs[c, 1]):
                row = order[at]
                if row >= low and row < high:
                    out_probe[count] = p
                    out_row[count] = row
                    count += 1
    tally[0], tally[1] = count, steps
    return n
