"""As-of: the last right tuple before each left one, by workers that share the left tuples among them (m x 1).

Every worker sees every right tuple and keeps the last of each value, in a table by the value's number
(`threads.join.asof_codes`); left tuples take turns. Invariant: when a left tuple's turn comes, the table holds, for each
value, the last right tuple that precedes it, because tuples are taken in total order, one by one.

An example. Right tuples of value a at ts 1 and 5, a left tuple of a at ts 6: the table has (5, its row) and the pair
comes out. With `within` 0 it would not: 5 is below 6 - 0. A left tuple that finds nothing is given out alone where the
join keeps all left rows, and dropped otherwise.

Every worker keeps the whole table, so memory grows with workers times values. Sharing one table would need an order
between workers at every right tuple; here they need none. The cost of a right tuple is three stores at each worker,
that of a left one a look-up at one.
"""

from __future__ import annotations

from plait.order import BEFORE_ALL
from plait.threads import words as shared
from plait.threads.atomics import load_acquire
from plait.threads.atomics.native import clock_ns, compiled, inner, ints
from plait.threads.gate import epochs
from plait.threads.join.loop import words as o
from plait.threads.join.loop.out import publish_progress, put, room
from plait.threads.join.loop.worker import read
from plait.threads.join.strategies.plan import Plan, Seat, Wish

# Rows of the table: ts and payload of the last tuple of each value, and its number in its stream plus one (0: none yet).
LAST_TS, LAST_REF, LAST_ID = range(3)


@inner
def pass_tuples(c, w, arena, batch, table, out):
    """Take the batch's tuples from where it stood: 0, or a code.

    `table` is the pairs' array: three rows by code, its width grown by GROW_PAIRS when a larger code comes. `arena`
    gives the tuple's code; a negative one equals nothing. AT says where to go on after a halt, and is moved only when
    the tuple is done.
    """
    size = w[o.ARENA_MASK] + 1
    within = w[o.BACK]
    while w[o.AT] < w[o.COUNT]:
        i = w[o.AT]
        origin, ts = batch[o.B_ORIGIN, i], batch[o.B_TS, i]
        side = origin >> 32
        number = w[o.NEXT + side]
        code = ints(arena[origin & shared.SLOT_MASK, shared.A_COLUMNS], size)[batch[o.B_SEQ, i] & w[o.ARENA_MASK]]
        if code >= table.shape[1]:
            return o.GROW_PAIRS
        if side == 1:
            if code >= 0:
                table[LAST_TS, code] = ts
                table[LAST_REF, code] = batch[o.B_REF, i]
                table[LAST_ID, code] = number + 1
        elif number % w[o.PROBE_EVERY] == w[o.PROBE_AT]:
            w[o.AT_RANK] = w[o.RANK] + i
            if room(c, w) != 0:
                return o.HALTED
            w[shared.TUPLES] += 1
            w[shared.COMPARISONS] += 1
            trigger = 2 * w[o.AT_RANK]
            # Not the age, which may be more than 63 bits hold.
            if code >= 0 and table[LAST_ID, code] > 0 and (within < 0 or table[LAST_TS, code] >= ts - within):
                put(w, out, ts, trigger, table[LAST_ID, code] - 1, batch[o.B_REF, i], table[LAST_REF, code])
            elif w[o.HOW] == o.LEFT:
                put(w, out, ts, trigger, -1, batch[o.B_REF, i], o.NO_ROW)
        w[o.NEXT + side] = number + 1
        w[o.AT] += 1
    return 0


@compiled
def work_asof(gate, c, w, arena, batch, p0, p1, u0, u1, table, over, ranges, walk, tally, out):
    """As `worker.work`, with the same arguments; the pairs' array is the table."""
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        if w[o.PHASE] == o.READING:
            if not read(gate, c, w, batch, o.PROBING):
                return o.STOPPED
            if w[o.SLICED] and w[o.PHASE] == o.READING:
                return o.SWITCH if w[o.OWN + epochs.SWITCHING] else o.IDLE
        if w[o.PHASE] == o.PROBING:
            began = clock_ns(w, o.CLOCK)
            code = pass_tuples(c, w, arena, batch, table, out)
            w[shared.NS_PROBE] += clock_ns(w, o.CLOCK) - began
            if code != 0:
                return code
            w[o.LAST_TS] = batch[o.B_TS, w[o.COUNT] - 1]
            w[o.RANK] += w[o.COUNT]
            w[o.PHASE] = o.CLOSING
        if w[o.PHASE] == o.CLOSING:
            last = w[o.LAST_TS]
            if w[o.RANK] > 0:
                publish_progress(c, w, last, last, BEFORE_ALL if w[o.BACK] < 0 else last - w[o.BACK])
            else:
                publish_progress(c, w, last, BEFORE_ALL, BEFORE_ALL)
            w[o.PHASE] = o.READING
            if w[o.ENDED]:
                return o.FINISHED
            if w[o.SLICED]:
                return o.SWITCH if w[o.OWN + epochs.SWITCHING] else o.SLICE


def plan(wish: Wish) -> Plan:
    """Seat k compares left tuples whose number is k modulo m.

    Segments are named, since plans have them, but nothing is stored there.
    """
    m = wish.workers
    seats = tuple(Seat((k, 0), (m, 1), (k, 0), (m, 1), (k, 0), (True, k == 0)) for k in range(m))
    return Plan("asof", seats, (m, 1), f"{m} x 1: left tuples by turns, right ones at every worker", loop=work_asof)
