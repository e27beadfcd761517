"""One batch against the windows: which rows each probe may meet, and candidates judged by the condition's kernels.

A batch is stored before it is probed, and a probe's range ends where the rows that follow it in total order begin, so
it meets exactly what precedes it. Ranges begin at the first row that the window still holds for it; since probes come
in total order, so do the beginnings, and the search for them is one walk along the segment for the whole run:
DP-Join's single scan, in which the opposite window's expired tuples are found by the probe that no longer meets them.

Which way a side's probes go (`probe_side`): `ranges_of` finds what they may meet, `pick` decides between scan and index, the
index gives candidates, `verify` lets the condition judge them, `scan` does the rest (rows no index covers, probes that
gave up), and `in_order` sorts the pairs. An index only narrows: the condition's kernel judges every pair that comes out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import carray, int64, uint64

from plait.core.condition import native
from plait.core.join.choice import CHAIN_LONG, REST_LONGEST, SCAN_BELOW
from plait.core.join.reach import NUMBER, first_met_compiled
from plait.core.kernels.chains import KEY, PREV, X, Y, box, mixed, probe_ranges
from plait.core.kernels.sorted import lower, upper
from plait.threads.atomics import load_acquire, store_release
from plait.threads.atomics.native import address_of, call_at, floats, inner, ints, octets, pointer_at
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o

STEPS: Final = 64  # a walk's budget, besides its share of the window
BLOCK: Final = 64  # probes walked together
BOXES: Final = 25  # boxes of one probe, at most
SEGMENT_WORDS = 1 << 12  # of a segment's block, at most: the array's length is not checked

_AUTO, _SCAN, _HASH, _GRID, _SORTED = o.AUTO, o.SCAN, seg.HASH, seg.GRID, seg.SORTED


@inner
def segment_of(w, side):
    """The block of the segment this worker uses of a side. Its length is not known here, nor checked."""
    return ints(w[o.SEGMENT + side], SEGMENT_WORDS)


@inner
def ranges_of(w, side, p, first, last):
    """Where the partners of this side's probes lie, as positions; moves LO of the other side's segment up.

    Gives the sum of all ranges' lengths and the number of probes that have any. A probe that can't match (a NULL in
    what it compares) gets an empty range.
    """
    other = 1 - side
    s = segment_of(w, other)
    lo = w[o.LO + other]
    alive = w[o.ALIVE + side]
    living = octets(w[o.COLUMNS + o.MAX_COLS * side + max(alive, 0)], w[o.MOST])
    places, back, step = w[o.PLACES], w[o.BACK + side], w[o.STEP]
    at = p[o.P_PRECEDING if places == NUMBER else o.P_TS]
    for k in range(first, last):
        lo = seg.first_from(s, places, lo, p[o.P_HI, k], first_met_compiled(back, step, at[k]))
        p[o.P_LO, k] = lo
    w[o.LO + other] = lo
    total, probes = 0, 0
    silent = w[o.PARTED] != 0 and (w[o.NOTED] | w[o.NOTED + 1]) == 0  # it is only stored here, for a table to come
    for k in range(first, last):
        if alive >= 0 and living[k] == 0:
            p[o.P_LO, k] = p[o.P_HI, k]
        if silent and p[o.P_HOLDS, k] == 0:
            p[o.P_LO, k] = p[o.P_HI, k]
        span = p[o.P_HI, k] - p[o.P_LO, k]
        total += span
        probes += 1 if span > 0 else 0
    return total, probes


@inner
def pick(w, s, other, total, probes):
    """Which index serves the next probes into the window of side `other`; see `core.join.choice`.

    `total` rows in the ranges of `probes` probes. Where a probe meets fewer than SCAN_BELOW rows on the average they
    are scanned: too few for an index. REST counts down while an index that has failed is left alone.
    """
    if w[o.FORCED] != _AUTO:
        return w[o.FORCED]
    if w[o.WANTED] == _SCAN or total < SCAN_BELOW * probes:
        return _SCAN
    if w[o.REST + other] > 0:
        w[o.REST + other] -= 1
        return _SCAN
    if load_acquire(s, seg.SWITCHED):
        return _GRID
    return w[o.WANTED]


@inner
def observe(w, s, other, kind, probes, over, steps):
    """What the last probes cost on the index: where many gave up, it rests for a growing number of batches.

    `over` probes of `probes` gave up, after `steps` steps. REST doubles up to REST_LONGEST as long as that goes on. A
    hash index with long chains gives way to a grid for good, where the condition has bands.
    """
    if w[o.FORCED] != _AUTO:
        return
    if kind == _HASH and w[o.BAND_TERMS] > 0 and load_acquire(s, seg.SWITCHED) == 0 and steps > CHAIN_LONG * probes:
        store_release(s, seg.SWITCHED, 1)
        return
    if 4 * over > probes:
        w[o.REST + other] = w[o.NEXT_REST + other]
        w[o.NEXT_REST + other] = min(2 * w[o.NEXT_REST + other], REST_LONGEST)
    else:
        w[o.NEXT_REST + other] = 1


@inner
def fill_block(w, s, side, first):
    """Columns of probes from `first` on, and of the window, as a kernel's block has them: left, right, alive."""
    b = ints(w[o.BLOCK], 128)
    at = native.COLUMNS
    for c_side in range(2):
        for c in range(w[o.NCOLS + c_side]):
            if c == w[o.ALIVE + c_side]:
                continue
            size = w[o.LEFT_SIZES + o.MAX_COLS * c_side + c]
            if c_side == side:
                b[at] = w[o.COLUMNS + o.MAX_COLS * side + c] + first * size
            else:
                b[at] = s[seg.COLS + c]
            at += 1
    alive = w[o.ALIVE + 1 - side]
    if alive >= 0:
        b[at] = s[seg.COLS + alive]
    b[native.LENGTH_L + side] = w[o.MOST]
    b[native.LENGTH_L + 1 - side] = 2 * s[seg.CAP]
    return b


@inner
def scan(w, s, side, p, first, last, base, found, pairs, state):
    """All matches of probes [first, last) in their ranges FROM, UNTIL; gives how many pairs there are then, or a code < 0.

    The kernel is called once for all probes. It indexes by place in the doubled columns: `shift` turns positions into
    places, from the run's first position `base` on, and back.
    """
    n = last - first
    shift = (base & s[seg.MASK]) - base
    for k in range(first, last):
        p[o.P_FROM, k] += shift
        p[o.P_UNTIL, k] += shift
    b = fill_block(w, s, side, first)
    b[native.N] = n
    b[native.LO] = address_of(p[o.P_FROM], first)
    b[native.HI] = address_of(p[o.P_UNTIL], first)
    state[0], state[1], state[2], state[3] = -1, 0, 0, 0
    b[native.STATE] = address_of(state, 0)
    b[native.OUT_PROBE] = address_of(pairs[0], found)
    b[native.OUT_ROW] = address_of(pairs[1], found)
    b[native.ROOM] = pairs.shape[1] - found
    code = call_at(w[o.SCANS + side], w[o.BLOCK])
    if code < 0:
        return native.FAILED
    if code != 0:
        return -1
    count = state[3]
    for k in range(found, found + count):
        pairs[0, k] += first
        pairs[1, k] -= shift
    return found + count


@inner
def verify(w, s, side, begin, count, pairs):
    """Of the candidates [begin, count) those that match; gives how many pairs there are then."""
    if count == begin:
        return count
    mask = s[seg.MASK]
    n = count - begin
    b = fill_block(w, s, side, side - side)
    # The position travels along in the third array: kernels index by place.
    for k in range(begin, count):
        pairs[2, k] = pairs[1, k]
        pairs[1, k] &= mask
    b[native.N] = n
    b[native.LO + side] = address_of(pairs[0], begin)
    b[native.LO + 1 - side] = address_of(pairs[1], begin)
    b[native.STATE] = address_of(pairs[2], begin)
    kept = call_at(w[o.VERIFY], w[o.BLOCK])
    if kept < 0:
        return native.FAILED
    for k in range(begin, begin + kept):
        pairs[1, k] = pairs[2, k]
    return begin + kept


@inner
def bands(w, side, p, first, last, ranges):
    """Where a partner's coordinates must lie, for each probe.

    Into ranges[k]: least and greatest x, then y. A dimension that is not there has 0 to 0, which is where every row
    has it.
    """
    band = floats(w[o.BANDS], 16)
    for k in range(first, last):
        ranges[k, 2] = 0.0
        ranges[k, 3] = 0.0
    for d in range(w[o.DIMENSIONS]):
        values = floats(address_of(p[o.P_X + d], 0), w[o.MOST])
        sign = 1 if side == 0 else -1
        at = 5 * d
        probe_ranges(
            last, values, sign, band[at], band[at + 1], band[at + 2], band[at + 3], band[at + 4], 2 * d, ranges
        )


@inner
def probe_side(w, side, p, usable, first, last, found, pairs, over, ranges, walk, tally):
    """Pairs of one side's probes [first, last); gives how many there are then, -1 for want of room, or another code.

    `tally`: steps walked, comparisons, and, on BUILD_INDEX, nothing else has been done.
    """
    if first == last:
        return found
    other = 1 - side
    s = segment_of(w, other)
    total, probes = ranges_of(w, side, p, first, last)
    if probes == 0:
        return found
    kind = pick(w, s, other, total, probes)
    # A grid whose boxes no longer fit the data is made anew, at most once every few windows.
    stale = kind == _GRID and w[o.NEXT_REST + other] > 4 and s[seg.END] - s[seg.BUILT] > 4 * s[seg.CAP]
    if kind != _SCAN and (s[seg.KIND] != kind or stale):
        w[o.NEED_SIDE] = other
        w[o.NEED] = kind
        return -o.BUILD_INDEX
    w[o.SERVED + other] = kind
    state = tally[4:8]
    if kind == _SCAN:
        for k in range(first, last):
            p[o.P_FROM, k] = p[o.P_LO, k]
            p[o.P_UNTIL, k] = p[o.P_HI, k]
        count = scan(w, s, side, p, first, last, p[o.P_LO, first], found, pairs, state)
        if count >= 0:
            tally[1] += total
        return count
    for k in range(first, last):
        over[k] = 0
    tally[0] = 0
    lo, hi, keys = p[o.P_LO], p[o.P_HI], p[o.P_KEY]
    if kind != _HASH:
        bands(w, side, p, first, last, ranges)
    if kind == _HASH:
        count = probe_hash(s, first, last, lo, hi, usable, keys, over, found, pairs[0], pairs[1], tally)
    elif kind == _GRID:
        count = probe_grid(s, first, last, lo, hi, usable, keys, ranges, over, found, pairs[0], pairs[1], walk, tally)
    else:
        count = probe_sorted(
            s, first, last, lo, hi, usable, ranges, over, p[o.P_TAIL], found, pairs[0], pairs[1], walk, tally
        )
    if count < 0:
        return -1
    steps = tally[0]
    count = verify(w, s, side, found, count, pairs)
    if count < 0:
        return count
    given_up, rest = 0, 0
    for k in range(first, last):
        given_up += over[k]
        # What the index does not cover is scanned: probes that gave up, and rows not sorted yet.
        p[o.P_FROM, k] = p[o.P_LO, k] if over[k] else p[o.P_HI, k]
        if kind == _SORTED:
            p[o.P_FROM, k] = p[o.P_TAIL, k]
        p[o.P_UNTIL, k] = p[o.P_HI, k]
        rest += p[o.P_UNTIL, k] - p[o.P_FROM, k]
    if rest > 0:
        count = scan(w, s, side, p, first, last, p[o.P_LO, first], count, pairs, state)
        if count < 0:
            return count
    tally[1] += steps + rest
    observe(w, s, other, kind, probes, given_up, steps)
    return count


# --- probing ----------------------------------------------------------------------------------------------------
# Each gives the number of candidates in `out_probe` and `out_row` (positions), or -1 where these are too short. Probes
# whose walk would cost more than a scan are marked in `over`, and have no candidates. `tally[0]` counts steps.


@inner
def probe_hash(s, begin, n, lo, hi, wanted, keys, over, found, out_probe, out_row, tally):
    """Candidates of probes [begin, n) by equal key: walk the key's chain from its newest row down to `lo`.

    Rows at `hi` or above follow the probe in the order and are skipped. `found` is how many candidates there are
    already.
    """
    cap, mask = s[seg.CAP], s[seg.MASK]
    node = seg.nodes(s[seg.NODE], cap)
    head, head_mask = ints(s[seg.HEAD], s[seg.HEAD_MASK] + 1), uint64(s[seg.HEAD_MASK])
    count, steps, room = found, tally[0], len(out_probe)
    for p in range(begin, n):
        if not wanted[p] or lo[p] >= hi[p]:
            continue
        low, high, key = lo[p], hi[p], keys[p]
        limit = steps + STEPS + (high - low) // 128
        start = count
        row = load_acquire(head, int64(mixed(key) & head_mask))
        while row >= low:
            steps += 1
            if steps > limit:
                over[p] = 1
                count = start
                break
            place = row & mask
            if row < high and node[place, KEY] == key:
                if count == room:
                    return -1
                out_probe[count] = p
                out_row[count] = row
                count += 1
            row = node[place, PREV]
    tally[0] = steps
    return count


@inner
def open_walks(s, first, last, lo, hi, wanted, keys, ranges, at_probe, at_row, over):
    """The chains that probes [first, last) have to walk in a grid: for each box that a probe's ranges touch, its
    newest row.

    A probe that touches more than BOXES boxes is given up: a scan is cheaper. Gives how many walks there are.
    """
    inverse = floats(s[seg.INVERSE], 2)
    masks = carray(pointer_at(s[seg.MASKS]), 5, dtype=np.uint64)
    head = ints(s[seg.HEAD], s[seg.HEAD_MASK] + 1)
    walks = 0
    for p in range(first, last):
        if not wanted[p] or lo[p] >= hi[p]:
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
                at_row[walks] = load_acquire(head, int64(slot & masks[3]))
                walks += 1
    return walks


@inner
def probe_grid(s, begin, n, lo, hi, wanted, keys, ranges, over, found, out_probe, out_row, walk, tally):
    """As `core.kernels.chains.probe_grid`: a block of probes walks its boxes side by side, so that cache misses overlap.

    A walk that has used its budget marks its probe in `over`; then all candidates of that probe are dropped, or the
    scan that follows would find them twice.
    """
    cap, mask = s[seg.CAP], s[seg.MASK]
    node, where = seg.nodes(s[seg.NODE], cap), seg.coords(s[seg.NODE], cap)
    masks = carray(pointer_at(s[seg.MASKS]), 5, dtype=np.uint64)
    keyed = masks[4] != uint64(0)
    at_probe, at_row, walked = walk[0], walk[1], walk[2]
    count, steps, room = found, tally[0], len(out_probe)
    for first in range(begin, n, BLOCK):
        last = min(first + BLOCK, n)
        for p in range(first, last):
            walked[p - first] = STEPS + (hi[p] - lo[p]) // 128
        start = count
        walks = open_walks(s, first, last, lo, hi, wanted, keys, ranges, at_probe, at_row, over)
        spent = False
        while walks > 0:
            if count + walks > room:
                return -1
            steps += walks
            still = 0
            for w in range(walks):
                p, row = at_probe[w], at_row[w]
                if row < lo[p]:
                    continue
                place = row & mask
                x, y = where[place, X], where[place, Y]
                inside = (x >= ranges[p, 0]) & (x <= ranges[p, 1]) & (y >= ranges[p, 2]) & (y <= ranges[p, 3])
                out_probe[count] = p
                out_row[count] = row
                if inside & (row < hi[p]) and (not keyed or node[place, KEY] == keys[p]):
                    count += 1
                walked[p - first] -= 1
                if walked[p - first] < 0:
                    over[p] = 1
                    spent = True
                    continue
                at_probe[still] = p
                at_row[still] = node[place, PREV]
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
    tally[0] = steps
    return count


@inner
def probe_sorted(s, begin, n, lo, hi, wanted, ranges, over, tail, found, out_probe, out_row, runs, tally):
    """Rows of sorted chunks. `tail[p]` becomes the position from which rows are in none: the caller scans these.

    A chunk's word in seg.SORT_SIZES names the chunk: if another number stands there the chunk is not sorted yet. `runs` is
    scratch: where the matching rows of each chunk begin and end.
    """
    cap, mask, size = s[seg.CAP], s[seg.MASK], s[seg.CHUNK]
    chunks = cap // size
    keys, order, sizes = floats(s[seg.SORT_KEYS], cap), ints(s[seg.SORT_ORDER], cap), ints(s[seg.SORT_SIZES], chunks)
    count, steps, room = found, tally[0], len(out_probe)
    for p in range(begin, n):
        tail[p] = lo[p]
        if lo[p] >= hi[p]:
            continue
        if not wanted[p]:
            tail[p] = hi[p]
            continue
        low, high = lo[p], hi[p]
        total, chunk = 0, low // size
        while chunk * size < high:
            word = load_acquire(sizes, chunk % chunks)
            if word >> 24 != chunk:
                break
            first = (chunk * size) & mask
            last = first + (word & 0xFFFFFF)
            begins = lower(keys, first, last, ranges[p, 0])
            ends = upper(keys, begins, last, ranges[p, 1])
            at = chunk % chunks
            runs[0, at] = begins
            runs[1, at] = ends
            total += ends - begins
            chunk += 1
        tail[p] = min(max(chunk * size, low), high)
        steps += total
        if total > STEPS + (high - low) // 64:
            over[p] = 1
            tail[p] = low
            continue
        if count + total > room:
            return -1
        for c in range(low // size, chunk):
            for at in range(runs[0, c % chunks], runs[1, c % chunks]):
                row = order[at]
                if row >= low and row < high:
                    out_probe[count] = p
                    out_row[count] = row
                    count += 1
    tally[0] = steps
    return count


@inner
def in_order(w, batch, begin, end, ps, found, split, pairs, scratch):
    """Pairs of both sides, those of the left one first (`split` of them), put into result order, as far as SORTS asks for it.

    By the trigger's place in the batch (counting sort), then by the partner's position: rows 2 and 3 of `pairs` become
    batch position and partner's position. B_STARTS of position i is where its pairs end. BY_TRIGGER leaves a trigger's
    partners as they were found, BY_BLOCK puts them in order of blocks of BLOCK_ROWS rows (SplitJoin's relaxed inner order).

    An example. Batch positions 0 (left) and 1 (right); the left side's probes found rows 7 and 3 for position 0, the
    right side's row 2 for position 1. Counts are 2 and 1, so position 0's pairs go to places 0 and 1, position 1's to
    place 2. Each group is then sorted: 3, 7 | 2. That is result order: by trigger, then by partner.
    """
    starts = batch[o.B_STARTS]
    for i in range(begin, end):
        starts[i] = 0
    for k in range(found):
        pairs[0, k] = ps[0 if k < split else 1][o.P_BATCH, pairs[0, k]]
        starts[pairs[0, k]] += 1
    total = 0
    for i in range(begin, end):
        count = starts[i]
        starts[i] = total
        total += count
    for k in range(found):
        i = pairs[0, k]
        pairs[2, starts[i]] = i
        pairs[3, starts[i]] = pairs[1, k]
        starts[i] += 1
    if w[o.SORTS] == o.BY_TRIGGER:
        return
    first = begin - begin  # not a literal, for which Numba would compile everything once more
    for i in range(begin, end):
        last = starts[i]
        if last - first > 1:
            if w[o.SORTS] == o.BY_BLOCK:
                sort_blocks(pairs[3], first, last, w[o.BLOCK_ROWS], pairs[1], scratch)
            else:
                sort_rows(pairs[3], first, last)
        first = last


@inner
def sort_blocks(rows, first, last, size, spare, counts):
    """In order of blocks of `size` rows, in place; rows of a block in any order. `spare` is as long as `rows`.

    Most are in order already. Few blocks are counted; many are not worth it, and rows in order are in order of blocks too.
    """
    low, high, sorted_already = rows[first] // size, rows[first] // size, True
    before = low
    for i in range(first + 1, last):
        block = rows[i] // size
        if block < before:
            sorted_already = False
        low, high, before = min(low, block), max(high, block), block
    if sorted_already:
        return
    blocks = high - low + 1
    if blocks > 2 * (last - first) or blocks > len(counts):
        sort_rows(rows, first, last)
        return
    for b in range(blocks):
        counts[b] = 0
    for i in range(first, last):
        spare[i] = rows[i]
        counts[rows[i] // size - low] += 1
    total = first
    for b in range(blocks):
        number = counts[b]
        counts[b] = total
        total += number
    for i in range(first, last):
        b = spare[i] // size - low
        rows[counts[b]] = spare[i]
        counts[b] += 1


@inner
def sort_rows(rows, first, last):
    """Ascending, in place. Most are in order already, or nearly: then the first look, or the last gap, is all there is. Or they
    are in reverse order, as a walk along a chain finds them: then they are turned round.
    """
    i = first + 1
    while i < last and rows[i - 1] <= rows[i]:
        i += 1
    if i >= last:
        return
    i = first + 1
    while i < last and rows[i - 1] >= rows[i]:
        i += 1
    if i >= last:
        j = last - 1
        while first < j:
            rows[first], rows[j] = rows[j], rows[first]
            first += 1
            j -= 1
        return
    gap = 1
    while gap < (last - first) // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for k in range(first + gap, last):
            row = rows[k]
            j = k - gap
            while j >= first and rows[j] > row:
                rows[j + gap] = rows[j]
                j -= gap
            rows[j + gap] = row
        gap //= 3
