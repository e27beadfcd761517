"""Which tuples are this worker's, where tuples go by their value: a line, cut into stretches, and one table after the other.

Every tuple has a place on a line: a mixed equality key, or a band's coordinate, or the key and, within its stretch, the
coordinate (of a condition with both, where one value has so many tuples that it has to be cut). One side of the join is *owned*:
its tuple lies at one point. The other side's tuple reaches from one point to another: the very same point for an equality, all
that its band allows for a range. A *table* gives every worker a stretch of the line. Invariants, and why they hold:

- An owned tuple is one worker's: stretches do not overlap. A tuple of the other side is every worker's whose stretch it
  reaches. So a pair that matches is found at one worker, the owner of its owned tuple, whichever of the two comes later.
- A point that many tuples share (a *hot* one) is everybody's: there tuples take turns by their numbers, in rows and columns as
  DP-Join's do. A table may have all of the line so: that is what a run by ranges begins with, when it has seen nothing.
- All workers begin with one table (`join.parting`), and every later one is a function of the sequence of tuples, and of nothing
  else. All read the same sequence, so all come to the same table at the same place of it, without a word to one another:
  whatever threads serve them, and whenever they run.

From one table to the next. At a place R of the sequence a new table is decided on. From there on a tuple is stored by both: at
the workers of the old table, and at those of the new. Pairs are given out by the old one, until at a place V no tuple can meet
a row from before R any more. From V on every row that can be met lies where the new table has it: it takes over. What a row is
stored for stands in its two bits (a table's bit is its place, 0 or 1), and a pair is a result where both its rows have the bit
of the table that holds for its later tuple. Where it matters whether a row has found any partner, one window more passes before
V: the rows from a place S on, at which no tuple meets rows from before R, have met all their partners at the new table's
worker, too. So of a row before S the old table's worker says whether it is alone, of all others the new one's.

An example with two workers and a band of 1. The table has worker 0 below 10, worker 1 from 10 on; left tuples are owned. Left
x = 9 is worker 0's. Right x = 9.5 reaches from 8.5 to 10.5, and is both's; right x = 12 is worker 1's alone.

Cost. Of another's tuple a worker reads the place on the line, and compares it with its own stretch: nothing is copied. One
tuple in eight is noted; of the last `KEPT` of these a table is made, every 65,536 tuples, if it would do with less than four
fifths of the busiest worker's tuples, and that by more than chance.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import float64, int64, uint64

from plait.core.join.reach import NUMBER, first_met_compiled
from plait.core.kernels.chains import mixed, reached
from plait.threads import words as shared
from plait.threads.atomics.native import floats, inner, ints, octets
from plait.threads.join.loop import words as o
from plait.threads.join.loop.segment import BITS, BY, SAYS, sort_by_key

# --- the block of one worker. Set before it starts ----------------------------------------------------------------
LINE: Final = 0  # NOWHERE, HASHED, RANGED or KEYED
OWNED: Final = 1  # the side whose tuples are at one point
CREW: Final = 2
ME: Final = 3
# 0, or it is noted which rows have found a partner, and a table takes a window more to come: LAST or FIRST.
WHOLE: Final = 4
COUNTED: Final = 5  # 1 if rows of the other side come out alone, too: then it is counted who has them
SPARSE: Final = 6  # so many bits of a tuple's number, mixed, are 0 if it is noted
LOOK_EVERY: Final = 7  # tuples from one look at the tables to the next
DECIDE_EVERY: Final = 8  # tuples from one decision to the next, at least
RESTLESS: Final = 9  # 0, or a seed: every decision is for another table, drawn by chance; for tests
GRID_ROWS: Final = 10  # rows and columns in which tuples at a hot point take turns
GRID_COLS: Final = 11
# --- its own, and the same at every worker at the same place of the sequence ---------------------------------------
NOW: Final = 16  # the table that pairs are given out by, 0 or 1
STAGE: Final = 17  # SETTLED, STORING (between R and S, or V), MEETING (between S and V)
NEXT_LOOK: Final = 18  # ranks
DECIDE_AT: Final = 19
SINCE_TS: Final = 20  # the place that has to be out of reach: a ts; and by side the next number
SINCE: Final = 21
CHANGES: Final = 23  # tables that took over; the rank of the last
CHANGED_AT: Final = 24
NOTED: Final = 25  # tuples noted so far
# At the last decision: noted tuples of the busiest worker, all of them, and what the busiest would have by the other table.
BUSIEST: Final = 26
OF: Final = 27
INSTEAD: Final = 28
MADE: Final = 29  # tables that were made
TABLES: Final = 32

NOWHERE, HASHED, RANGED, KEYED = range(4)
WITHIN_BITS: Final = 30  # KEYED: of a place's 52 bits those that say where in its key's stretch it lies
SETTLED, STORING, MEETING = range(3)
LAST, FIRST = 1, 2  # of WHOLE: rows without a partner are results; or rows are, once, with their first one

# --- a table; floats where it says so ------------------------------------------------------------------------------
KIND: Final = 0  # BY_TURNS, or CUT
ROWS: Final = 1
COLS: Final = 2
HOT: Final = 3  # how many points are hot
HOTS: Final = 4  # their places: floats
MOST_HOT: Final = 8
FROM: Final = 12  # CREW + 1 floats: worker k's stretch begins at the k-th and ends before the next one

BY_TURNS, CUT = range(2)

# --- what is noted of a tuple: places (floats), its number and side; and scratch to sort -----------------------------
KEPT: Final = 2048
N_AT, N_FROM, N_TO, N_NUMBER, N_SIDE, N_SORTED, N_WHICH = range(7)
N_ROWS: Final = 7
LEAST: Final = 128  # fewer say too little to cut by
FIRST_DECISION: Final = 4096

_MIX = np.uint64(0x9E3779B97F4A7C15)
INFINITE: Final = float("inf")


def table_words(crew: int) -> int:
    return FROM + crew + 1


def words(crew: int) -> int:
    """Words of a worker's block: the header, two tables, what is noted, and a count for each worker."""
    return TABLES + 2 * table_words(crew) + N_ROWS * KEPT + crew


@inner
def table_at(q, which):
    """Where a table begins in the block."""
    return TABLES + which * (FROM + q[CREW] + 1)


@inner
def note_at(q, row):
    """Where a row of what is noted begins."""
    return TABLES + 2 * (FROM + q[CREW] + 1) + row * KEPT


@inner
def count_at(q):
    """Where the counts of `busiest` begin."""
    return note_at(q, N_ROWS)


# --- whose a tuple is ----------------------------------------------------------------------------------------------


@inner
def is_by_turns(q, f, t, low, high):
    """Whether what reaches from `low` to `high` is shared by turns by the table at t: all is, or it reaches a hot point."""
    turns = q[t + KIND] == BY_TURNS
    if not turns:
        for k in range(q[t + HOT]):
            turns = turns or (low <= f[t + HOTS + k] and f[t + HOTS + k] <= high)
    return turns


@inner
def belongs(q, f, t, worker, side, number, low, high):
    """Whether a tuple that reaches from `low` to `high` is this worker's by the table at t. Its number is that in its stream.

    Where it reaches a hot point it is that point's: of the other side every worker's in its column then, so columns are one where
    a tuple may reach a stretch besides.
    """
    if is_by_turns(q, f, t, low, high):
        if worker >= q[t + ROWS] * q[t + COLS]:
            return False
        if side == q[OWNED]:
            return number % q[t + ROWS] == worker // q[t + COLS]
        return number % q[t + COLS] == worker % q[t + COLS]
    return high >= f[t + FROM + worker] and low < f[t + FROM + worker + 1]


@inner
def holders(q, f, t, side, low, high):
    """How many workers have a tuple by the table at t; where rows take turns alone, columns are one."""
    if side == q[OWNED]:
        return 1
    count = 0
    for worker in range(q[CREW]):
        if belongs(q, f, t, worker, side, 0, low, high):
            count += 1
    return count


@inner
def word_of(q, f, side, number, usable, low, high):
    """A tuple's word at this worker; without a bit it is none of its own.

    One that can match nothing is somebody's, by turns, who says that it is alone.
    """
    if not usable:
        return (BITS | SAYS | 1 << BY) if number % q[CREW] == q[ME] else 0
    now = q[NOW]
    word = (1 << now) if belongs(q, f, table_at(q, now), q[ME], side, number, low, high) else 0
    if q[STAGE] != SETTLED and belongs(q, f, table_at(q, 1 - now), q[ME], side, number, low, high):
        word |= 1 << (1 - now)
    if word != 0 and q[WHOLE]:
        says = 1 - now if q[STAGE] == MEETING else now
        if word >> says & 1 or q[WHOLE] == FIRST:
            word |= SAYS
            if q[COUNTED]:
                word |= holders(q, f, table_at(q, says), side, low, high) << BY
            else:
                word |= 1 << BY
    return word


# --- where tuples lie on the line ----------------------------------------------------------------------------------


@inner
def hashed(key):
    """A key's place: 52 bits, which a float holds exactly."""
    return float64(int64(mixed(key) >> uint64(12)))


@inner
def begins(key):
    """Where a key's stretch begins on the line of keys and, within them, coordinates."""
    return float64(int64(mixed(key) >> uint64(12 + WITHIN_BITS))) * float64(1 << WITHIN_BITS)


@inner
def within(x):
    """How far into its key's stretch a coordinate lies: ascending with it, so that what a band reaches is one stretch.

    The bits of a float ascend with it, those of a negative one once they are turned over; the highest count, so that
    coordinates from one power of two to the next have a quarter of a million places. -0.0 lies where 0.0 does.
    """
    bits = np.float64(x + 0.0).view(np.int64)
    ascending = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))
    return float64((ascending >> (64 - WITHIN_BITS)) + (1 << (WITHIN_BITS - 1)))


@inner
def arrange_parted(w, batch, n, ps, arena):
    """As `worker.arrange`, by values: number the batch's tuples, and keep those that are this worker's, which it stores and
    compares. The batch then has these only, each with its rank; COUNT says how many, CUT_RANK and CUT_TS where it ends.

    All workers go through all tuples here, so this is what more workers can't share: of another's tuple nothing is read but the
    place on the line, and nothing is written.
    """
    q = ints(w[o.PARTED], 1 << 40)
    f = floats(w[o.PARTED], 1 << 40)
    w[o.CUT_RANK], w[o.CUT_TS] = w[o.RANK] + n, batch[o.B_TS, n - 1]
    for side in range(2):
        w[o.PROBES + side] = 0
        w[o.STORES + side] = 0
    w[o.COUNT] = 0
    begin = 0
    while begin < n:
        if w[o.RANK] + begin >= q[NEXT_LOOK]:
            look(w, q, f, w[o.RANK] + begin, batch[o.B_TS, begin])
        end = min(n, q[NEXT_LOOK] - w[o.RANK])
        arrange_span(w, q, f, batch, begin, end, ps, arena)
        begin = end


@inner
def arrange_span(w, q, f, batch, begin, end, ps, arena):
    """Batch positions between two looks at the tables: one table, or two, hold for all of them.

    Where tables cut the line, most tuples are another's, and a comparison of their place with this worker's own stretch, or both
    of them, says so (`elsewhere`); only the others are looked at in full. What the loop needs for that is in locals: through
    memory that it also writes, it would be read again for every tuple. Which side is next is as good as random, so an owned
    tuple's reach is computed, too, and not taken: a wrong guess would cost more.
    """
    size, mask, line, sparse = w[o.ARENA_MASK] + 1, w[o.ARENA_MASK], q[LINE], uint64(64 - q[SPARSE])
    all_noted, owned, sign, band = q[SPARSE] == 0, q[OWNED], 1 if q[OWNED] == 1 else -1, floats(w[o.BANDS], 16)
    band_low, band_high, eps, weight, largest = band[0], band[1], band[2], band[3], band[4]
    t = table_at(q, q[NOW])
    also = t if q[STAGE] == SETTLED else table_at(q, 1 - q[NOW])
    by_cut = q[t + KIND] == CUT and q[also + KIND] == CUT
    hots, first_hot = q[t + HOT], t + HOTS
    more_hots, more_hot = 0 if also == t else q[also + HOT], also + HOTS
    own_from, own_to = f[t + FROM + q[ME]], f[t + FROM + q[ME] + 1]
    also_from, also_to = f[also + FROM + q[ME]], f[also + FROM + q[ME] + 1]
    for i in range(begin, end):
        origin = batch[o.B_ORIGIN, i]
        side, slot, place = origin >> 32, origin & shared.SLOT_MASK, batch[o.B_SEQ, i] & mask
        number = w[o.NEXT + side]
        w[o.NEXT + side] = number + 1
        usable, low, high = True, 0.0, 0.0
        if line != NOWHERE:
            usable = octets(arena[slot, shared.A_USABLE], size)[place] != 0
            if line == HASHED:
                low = hashed(ints(arena[slot, shared.A_KEY], size)[place])
                high = low
            else:
                x = floats(arena[slot, shared.A_X], size)[place]
                least, most = reached(x, sign, band_low, band_high, eps, weight, largest)
                low, high = x if side == owned else least, x if side == owned else most
                if line == KEYED:
                    start = begins(ints(arena[slot, shared.A_KEY], size)[place])
                    low, high = start + within(low), start + within(high)
            if usable and (all_noted or uint64(number) * _MIX >> sparse == uint64(0)):
                note(q, f, side, number, low, high)
            if by_cut and usable:
                elsewhere = ((high < own_from) | (low >= own_to)) & ((high < also_from) | (low >= also_to))
                for k in range(hots):
                    hot = f[first_hot + k]
                    elsewhere &= (low > hot) | (hot > high)
                for k in range(more_hots):
                    hot = f[more_hot + k]
                    elsewhere &= (low > hot) | (hot > high)
                if elsewhere:
                    continue
        word = word_of(q, f, side, number, usable, low, high)
        if word & BITS != 0:
            keep_own(w, q, batch, i, ps, number, word)


@inner
def keep_own(w, q, batch, i, ps, number, word):
    """The tuple at position i of the gate's batch is this worker's: it moves to where the last of its own ends."""
    at, origin = w[o.COUNT], batch[o.B_ORIGIN, i]
    side = origin >> 32
    place = batch[o.B_SEQ, i] & w[o.ARENA_MASK]
    p = ps[side]
    k = w[o.PROBES + side]
    w[o.COUNT] = at + 1
    w[o.PROBES + side] = k + 1
    batch[o.B_TS, at] = batch[o.B_TS, i]
    batch[o.B_ORIGIN, at] = origin
    batch[o.B_REF, at] = batch[o.B_REF, i]
    batch[o.B_RANK, at] = w[o.RANK] + i
    batch[o.B_ENDS, at], batch[o.B_ENDS + 1, at] = w[o.ENDS], w[o.ENDS + 1]
    batch[o.B_PROBE, at] = k
    p[o.P_TS, k] = batch[o.B_TS, at]
    p[o.P_REF, k] = batch[o.B_REF, at]
    p[o.P_ID, k] = number
    p[o.P_BATCH, k] = at
    p[o.P_HI, k] = w[o.ENDS + 1 - side]
    p[o.P_PRECEDING, k] = w[o.NEXT + 1 - side]
    p[o.P_SLOT, k] = origin & shared.SLOT_MASK
    p[o.P_PLACE, k] = place
    p[o.P_POSITION, k] = w[o.ENDS + side]
    p[o.P_WORD, k] = word
    p[o.P_HOLDS, k] = word & (1 << q[NOW])
    p[o.P_STORE, w[o.STORES + side]] = k
    w[o.STORES + side] += 1
    w[o.ENDS + side] += 1


# --- from one table to the next ------------------------------------------------------------------------------------


@inner
def look(w, q, f, rank, ts):
    """Between two tuples, at places of the sequence that all workers share: decide on a table, or let the next one take over.

    `rank` and `ts` are those of the tuple that comes next.
    """
    q[NEXT_LOOK] = rank - rank % q[LOOK_EVERY] + q[LOOK_EVERY]
    if q[STAGE] == SETTLED:
        if rank >= q[DECIDE_AT]:
            q[DECIDE_AT] = rank + min(q[DECIDE_EVERY], max(3 * rank, 1))
            if decide(q, f):
                q[STAGE] = STORING
                remember_place(w, q, ts)
    elif out_of_reach(w, q, ts):
        if q[STAGE] == STORING and q[WHOLE]:
            q[STAGE] = MEETING
            remember_place(w, q, ts)
        else:
            q[NOW] = 1 - q[NOW]
            q[STAGE] = SETTLED
            q[CHANGES] += 1
            q[CHANGED_AT] = rank


@inner
def remember_place(w, q, ts):
    q[SINCE_TS] = ts
    q[SINCE], q[SINCE + 1] = w[o.NEXT], w[o.NEXT + 1]


@inner
def out_of_reach(w, q, ts):
    """Whether no tuple from here on meets a row from before the place that was remembered."""
    for side in range(2):
        if w[o.PLACES] == NUMBER:
            first = first_met_compiled(w[o.BACK + side], w[o.STEP], w[o.NEXT + 1 - side])
            if first < q[SINCE + 1 - side]:
                return False
        elif first_met_compiled(w[o.BACK + side], w[o.STEP], ts) <= q[SINCE_TS]:
            return False
    return True


@inner
def note(q, f, side, number, low, high):
    """One of the tuples that the next table is made of."""
    at = q[NOTED] % KEPT
    q[NOTED] += 1
    f[note_at(q, N_AT) + at] = low + 0.5 * (high - low)
    f[note_at(q, N_FROM) + at] = low
    f[note_at(q, N_TO) + at] = high
    q[note_at(q, N_NUMBER) + at] = number
    q[note_at(q, N_SIDE) + at] = side


@inner
def decide(q, f):
    """Make the next table of what is noted; whether it is to take over."""
    n = min(q[NOTED], KEPT)
    t = table_at(q, 1 - q[NOW])
    if q[LINE] == NOWHERE or n < (LEAST if q[RESTLESS] == 0 else 1):
        return False
    q[MADE] += 1
    sort_noted(q, f, n)
    if q[RESTLESS]:
        draw(q, f, t, n)
        return True
    cut(q, f, t, n)
    q[BUSIEST], q[INSTEAD], q[OF] = busiest(q, f, table_at(q, q[NOW]), n), busiest(q, f, t, n), n
    # What the busiest of many has above the mean is chance, too, and the new table, made of these very tuples, has none of that.
    return 5 * q[INSTEAD] < 4 * (q[BUSIEST] - 3 * int64(np.sqrt(q[BUSIEST])))


@inner
def sort_noted(q, f, n):
    """The places of what is noted, ascending, in N_SORTED; beside each in N_WHICH which one it is."""
    keys, which = note_at(q, N_SORTED), note_at(q, N_WHICH)
    for k in range(n):
        f[keys + k] = f[note_at(q, N_AT) + k]
        q[which + k] = k
    sort_by_key(f[keys : keys + n], q[which : which + n], 0, n)


@inner
def cut(q, f, t, n):
    """A table of what is noted, sorted: hot points are everybody's, and of the rest each worker has as much.

    A point is hot if more lies there than one worker's part of all. By ranges, and by keys with ranges within them, only owned
    tuples are counted: those of the other side lie nowhere, they reach.
    """
    crew, keys, which, sides = q[CREW], note_at(q, N_SORTED), note_at(q, N_WHICH), note_at(q, N_SIDE)
    q[t + KIND], q[t + HOT] = CUT, 0
    q[t + ROWS], q[t + COLS] = q[GRID_ROWS], q[GRID_COLS]
    if q[LINE] != HASHED:
        q[t + ROWS], q[t + COLS] = crew, 1
    begin, rest = 0, 0
    while begin < n:
        end, owned = begin, 0
        while end < n and f[keys + end] == f[keys + begin]:
            if q[LINE] == HASHED or q[sides + q[which + end]] == q[OWNED]:
                owned += 1
            end += 1
        if owned * crew > n and q[t + HOT] < MOST_HOT:
            f[t + HOTS + q[t + HOT]] = f[keys + begin]
            q[t + HOT] += 1
        else:
            for k in range(begin, end):
                f[keys + rest] = f[keys + k]
                rest += 1
        begin = end
    f[t + FROM] = -INFINITE
    for worker in range(1, crew):
        f[t + FROM + worker] = f[keys + worker * rest // crew] if rest > 0 else INFINITE
    f[t + FROM + crew] = INFINITE


@inner
def busiest(q, f, t, n):
    """How many of what is noted the worker with most of them has by the table at t.

    Workers whose stretches a tuple reaches lie side by side: the first is found by halving.
    """
    crew, counts, starts = q[CREW], count_at(q), t + FROM
    for worker in range(crew):
        q[counts + worker] = 0
    for k in range(n):
        low, high = f[note_at(q, N_FROM) + k], f[note_at(q, N_TO) + k]
        if is_by_turns(q, f, t, low, high):
            side, number = q[note_at(q, N_SIDE) + k], q[note_at(q, N_NUMBER) + k]
            rows, cols = q[t + ROWS], q[t + COLS]
            if side == q[OWNED]:
                for col in range(cols):
                    q[counts + number % rows * cols + col] += 1
            else:
                for row in range(rows):
                    q[counts + row * cols + number % cols] += 1
        else:
            worker, last = 0, crew - 1
            while worker < last:
                middle = (worker + last) >> 1
                if f[starts + middle + 1] > low:
                    last = middle
                else:
                    worker = middle + 1
            while worker < crew and f[starts + worker] <= high:
                q[counts + worker] += 1
                worker += 1
    most = 0
    for worker in range(crew):
        most = max(most, q[counts + worker])
    return most


@inner
def draw(q, f, t, n):
    """A table by chance, for tests: any stretches, some of them empty, any points hot, or all by turns."""
    crew, keys = q[CREW], note_at(q, N_SORTED)
    chance = mixed(q[RESTLESS] + 1000003 * q[MADE])
    cut(q, f, t, n)
    if chance & uint64(3) == uint64(0):
        q[t + KIND], q[t + ROWS], q[t + COLS] = BY_TURNS, q[GRID_ROWS], q[GRID_COLS]
        return
    sort_noted(q, f, n)
    q[t + HOT] = int64((chance >> uint64(2)) % uint64(4))
    for k in range(q[t + HOT]):
        f[t + HOTS + k] = f[keys + int64(mixed(q[MADE] * 8 + k) % uint64(n))]
    for worker in range(1, crew):
        step = int64(mixed(q[RESTLESS] + q[MADE] * 64 + worker) % uint64(n))
        f[t + FROM + worker] = max(f[t + FROM + worker - 1], f[keys + min(n - 1, step * worker // crew)])
