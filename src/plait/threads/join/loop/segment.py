"""Window segments that workers share: rows at fixed places in a ring, found by their position.

A segment holds one stream's tuples, or those of them that fall to it, in total order. Its n-th row has position n,
for ever; it lies at `n & MASK` until the row CAP positions later overwrites it. So nothing ever moves, chains and
sorted chunks name rows by position, and a walk that has come to a position below its range is at its end, whatever
lies there now. Leaf columns are written twice, CAP places apart: every range of up to CAP rows is contiguous, which
is what scans need.

Invariants, and why they hold (DP-Join, section 4.4.2, «Support to replication»):

- One worker, the writer, appends. Rows, and what an index says of them, are written before END, which is released; a
  worker meets rows below the END it has acquired. A walk along a chain may come by newer ones: of these it reads the node, which
  the head's own release has passed on, and goes on to older rows.
- Each sharer publishes the first position that is still valid for it (FIRST, released after its last look at older
  rows). The writer overwrites a row only below the least of these: expired rows are not removed, they are outlived.
- COVERED is the writer's own; SWITCHED is released by any sharer. Everything else in the block is written while all workers
  stand still (`threads.life.pause`).

Held by tests/threads/join/test_loop_interleavings.py (scans) and test_index_interleavings.py (chains, boxes, sorted chunks):
every schedule with one preemption, and planted faults.

The block is an int64 array; words are named below. Addresses point to arrays that Python keeps alive.

An example with CAP 4. The row of position 5 lies at place 1, and overwrites position 1. Its leaf values are written at
1 and at 5. A scan of positions 3, 4, 5 begins at place 3 and reads 3, 4, 5 of the doubled column: the values at 4 and
5 are those of places 0 and 1. So a range is one loop, without a test for the wrap.

Cost of an index: two stores a row on the writer's side for chains; for sorted chunks a sort each time one is full.
Readers pay nothing while rows come and go, since nothing is removed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, int64, uint64

from plait.core.join.reach import NUMBER
from plait.core.kernels.chains import KEY, PREV, X, Y, box, mixed
from plait.core.machine.line import LINE
from plait.threads.atomics import load_acquire, store_release
from plait.threads.atomics.native import compiled, floats, inner, ints, octets, pointer_at

CAP: Final = 0
MASK: Final = 1
KIND: Final = 2  # of the index that stands: NONE, HASH, GRID, SORTED
SHARERS: Final = 3
NCOLS: Final = 4
TS: Final = 5  # addresses of int64 columns
ID: Final = 6  # a row's number in its stream
REF: Final = 7  # where its payload is
NODE: Final = 8  # (CAP, 4): previous row of the chain, key, two coordinates (floats)
MATCHED: Final = 9  # uint8[SHARERS, CAP]: each one's own; 0 where nobody asks
HEAD: Final = 10  # the chains' newest rows
HEAD_MASK: Final = 11
INVERSE: Final = 12  # float64[2]: boxes a unit
MASKS: Final = 13  # uint64[5]: see kernels.chains.insert_grid
COVERED: Final = 14  # rows below are in the index; the writer's
BUILT: Final = 15  # END when the index was built
SORT_KEYS: Final = 16  # float64[CAP], int64[CAP], int64[CAP / CHUNK]
SORT_ORDER: Final = 17
SORT_SIZES: Final = 18
CHUNK: Final = 19
HAS_NODE: Final = 20
USABLE: Final = 21  # uint8: may be in an index
WORD: Final = 23  # int64: by values, for which tables the row is here (`stretches`); 0: not by values
SWITCHED: Final = 22  # 1 once a hash index has given way to a grid; any sharer sets it, for good
COLS: Final = 32
SIZES: Final = 56
END: Final = 96
FIRST: Final = 112  # one line a sharer

# A row's word: two tables' bits; whether this worker says if it is alone; and, from this bit on, by how many that is said.
BITS: Final = 3
SAYS: Final = 4
BY: Final = 3

NONE: Final = 0
HASH: Final = 1
GRID: Final = 2
SORTED: Final = 3


def words(sharers: int) -> int:
    """Words of the block of a segment with so many sharers."""
    return FIRST + sharers * LINE


@inner
def nodes(address, n):
    """The rows' nodes as int64: previous row of the chain, key, and the bits of two coordinates."""
    return carray(pointer_at(address), (n, 4), dtype=np.int64)


@inner
def coords(address, n):
    """The same memory as float64, for the coordinates."""
    return carray(pointer_at(address), (n, 4), dtype=np.float64)


@inner
def first_valid(s):
    """The first position that any sharer may still look at."""
    least = load_acquire(s, FIRST)
    for k in range(1, s[SHARERS]):
        least = min(least, load_acquire(s, FIRST + k * LINE))
    return least


@inner
def first_from(s, places, lo, hi, first):
    """The first position of [lo, hi) whose row is at `first` or after it; `places`: TS or NUMBER (`core.join.reach`).

    Linear, from `lo` on: callers come with rising `first`, so over a run every row is passed once.
    """
    column, mask = ints(s[ID] if places == NUMBER else s[TS], s[CAP]), s[MASK]
    while lo < hi and column[lo & mask] < first:
        lo += 1
    return lo


@inner
def copy_column(size, source, at, n, target, first, cap):
    """Rows `at[0..n)` of one column to positions first, first + 1, ... of the other, both times."""
    mask = cap - 1
    if size == 8:
        a, b = ints(source, cap), ints(target, 2 * cap)
        for k in range(n):
            place = (first + k) & mask
            b[place] = a[at[k]]
            b[place + cap] = a[at[k]]
    elif size == 4:
        c = carray(pointer_at(source), cap, dtype=np.int32)
        d = carray(pointer_at(target), 2 * cap, dtype=np.int32)
        for k in range(n):
            place = (first + k) & mask
            d[place] = c[at[k]]
            d[place + cap] = c[at[k]]
    else:
        e, f = octets(source, cap), octets(target, 2 * cap)
        for k in range(n):
            place = (first + k) & mask
            f[place] = e[at[k]]
            f[place + cap] = e[at[k]]


@inner
def append(s, n, at, ts, ids, refs, key, x, y, usable, words_of, columns):
    """Rows `at[0..n)` of a batch enter; there must be room. The index takes them in before END says that they are there.

    `at` names the rows of the batch, by their place among its probes. `columns` are addresses of the batch's leaf columns,
    `words_of` the rows' words, where there are any. By the writer alone. `store_release` of END is last: a sharer that acquires
    END finds rows, columns and chains written.
    """
    cap, mask = s[CAP], s[MASK]
    end = s[END]
    to_ts, to_id, to_ref = ints(s[TS], cap), ints(s[ID], cap), ints(s[REF], cap)
    for k in range(n):
        place = (end + k) & mask
        to_ts[place] = ts[at[k]]
        to_id[place] = ids[at[k]]
        to_ref[place] = refs[at[k]]
    if s[HAS_NODE]:
        to_node = nodes(s[NODE], cap)
        to_usable = octets(s[USABLE], cap)
        for k in range(n):
            place = (end + k) & mask
            to_node[place, KEY] = key[at[k]]
            to_node[place, X] = x[at[k]]
            to_node[place, Y] = y[at[k]]
            to_usable[place] = usable[at[k]]
    if s[MATCHED]:
        matched = octets(s[MATCHED], s[SHARERS] * cap)
        for sharer in range(s[SHARERS]):
            for k in range(n):
                matched[sharer * cap + ((end + k) & mask)] = 0
    if s[WORD]:
        to_word = ints(s[WORD], cap)
        for k in range(n):
            to_word[(end + k) & mask] = words_of[at[k]]
        if s[MATCHED]:
            flags = octets(s[MATCHED], cap)
            for k in range(n):
                # Else another worker says whether it is alone: here it is passed in silence.
                flags[(end + k) & mask] = 0 if words_of[at[k]] & SAYS else 1
    for c in range(s[NCOLS]):
        copy_column(s[SIZES + c], columns[c], at, n, s[COLS + c], end, cap)
    if s[KIND]:
        cover(s, end + n)
    store_release(s, END, end + n)


@compiled
def cover(s, end):
    """Let the index take rows in, up to `end`.

    Rows that are not usable (`core.join.encoded`: they can't match, or have no key or coordinate) enter no chain. A
    chain's head is released after the row's PREV, so a reader that acquires the head can follow it.
    """
    cap, mask, covered = s[CAP], s[MASK], s[COVERED]
    if s[KIND] == SORTED:
        sort_chunks(s, end)
        return
    node, usable = nodes(s[NODE], cap), octets(s[USABLE], cap)
    head, head_mask = ints(s[HEAD], s[HEAD_MASK] + 1), uint64(s[HEAD_MASK])
    if s[KIND] == HASH:
        for row in range(covered, end):
            place = row & mask
            if usable[place]:
                slot = int64(mixed(node[place, KEY]) & head_mask)
                node[place, PREV] = head[slot]
                store_release(head, slot, row)
    else:
        where, inverse = coords(s[NODE], cap), floats(s[INVERSE], 2)
        masks = carray(pointer_at(s[MASKS]), 5, dtype=np.uint64)
        for row in range(covered, end):
            place = row & mask
            if usable[place]:
                x = uint64(box(where[place, X], inverse[0])) & masks[0]
                y = uint64(box(where[place, Y], inverse[1])) & masks[1]
                at = (x << masks[2]) | y
                if masks[4]:
                    at ^= mixed(node[place, KEY])
                slot = int64(at & masks[3])
                node[place, PREV] = head[slot]
                store_release(head, slot, row)
    s[COVERED] = end


@inner
def sort_by_key(keys, order, first, last):
    """Both arrays by key, ascending, in place: Shell's sort (NumPy's compiles for seconds)."""
    gap = 1
    while gap < (last - first) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, last):
            key, row = keys[i], order[i]
            j = i - gap
            while j >= first and keys[j] > key:
                keys[j + gap] = keys[j]
                order[j + gap] = order[j]
                j -= gap
            keys[j + gap] = key
            order[j + gap] = row
        gap //= 3


@inner
def sort_chunks(s, end):
    """Sort every chunk that is full. `SIZES` of a chunk is released after its rows: a prober acquires it first."""
    cap, mask, size = s[CAP], s[MASK], s[CHUNK]
    where, usable = coords(s[NODE], cap), octets(s[USABLE], cap)
    keys, order = floats(s[SORT_KEYS], cap), ints(s[SORT_ORDER], cap)
    chunks = cap // size
    sizes = ints(s[SORT_SIZES], chunks)
    while s[COVERED] + size <= end:
        first = s[COVERED]
        at = first & mask
        kept = 0
        for row in range(first, first + size):
            if usable[row & mask]:
                keys[at + kept] = where[row & mask, X]
                order[at + kept] = row
                kept += 1
        sort_by_key(keys, order, at, at + kept)
        # Which chunk it is goes along: the place is used again every CAP rows.
        store_release(sizes, (first // size) % chunks, (first // size) << 24 | kept)
        s[COVERED] = first + size
