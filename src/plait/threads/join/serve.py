"""Threads that serve shares of an elastic join (`threads.gate.epochs`): the whole turn is compiled.

A thread with shares sleeps at the gate, for tuples; one without is parked, where tuples do not wake it and `halt` does.

Why a thread with several shares must never wait inside one: what it waits for may be the work of another share that is
its own. So a share answers SLICE, IDLE, SWITCH or HALTED, and the thread goes on to the next. That is also why elastic
joins have no shared segments (`plan._elastic_join`).
"""

from __future__ import annotations

import numpy as np
from numba import carray

from plait.threads import words as shared
from plait.threads.atomics import load_acquire, sched_yield
from plait.threads.atomics.native import clock_ns, compiled, inner, ints, nap, octets, pointer_at
from plait.threads.gate import epochs
from plait.threads.join.asof import work_asof
from plait.threads.join.loop import words as o
from plait.threads.join.loop.worker import work

PARKED_NS = 1_000_000_000


# A row of the table of shares: addresses, and the widths of what grows. Written by Python before the threads start, and
# by the share's owner when it has grown something.
(
    T_WORDS,
    T_BATCH,
    T_P0,
    T_P1,
    T_U0,
    T_U1,
    T_PAIRS,
    T_OVER,
    T_RANGES,
    T_WALK,
    T_TALLY,
    T_OUT,
    T_PAIRS_WIDE,
    T_WALK_WIDE,
) = range(14)
T_FIELDS = 14

SPINS = 8  # turns before a thread sleeps
NAP_US = 50
SLEEP_NS = 1_000_000_000


@inner
def serve_share(gate, c, arena, t):
    """One batch of the share whose memory a row of the table names.

    `t` is the share's row of the table, of addresses; from it the arguments of `work` are made anew each time, since a
    share may have grown or changed hands. `arena` is the sources' table, the same for all.
    """
    w = ints(t[T_WORDS], o.WORDS)
    most, room = w[o.MOST], w[o.OUT_MASK] + 1
    batch = carray(pointer_at(t[T_BATCH]), (o.B_ROWS, most), dtype=np.int64)
    p0 = carray(pointer_at(t[T_P0]), (o.P_ROWS, most), dtype=np.int64)
    p1 = carray(pointer_at(t[T_P1]), (o.P_ROWS, most), dtype=np.int64)
    u0, u1 = octets(t[T_U0], most), octets(t[T_U1], most)
    pairs = carray(pointer_at(t[T_PAIRS]), (4, t[T_PAIRS_WIDE]), dtype=np.int64)
    over = octets(t[T_OVER], most)
    ranges = carray(pointer_at(t[T_RANGES]), (most, 4), dtype=np.float64)
    walk = carray(pointer_at(t[T_WALK]), (3, t[T_WALK_WIDE]), dtype=np.int64)
    tally = ints(t[T_TALLY], 8)
    out = carray(pointer_at(t[T_OUT]), (room, o.E_WORDS), dtype=np.int64)
    if w[o.ASOF]:
        return work_asof(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out)
    return work(gate, c, w, arena, batch, p0, p1, u0, u1, pairs, over, ranges, walk, tally, out)


@inner
def turn(gate, c, e, me, arena, table, told):
    """Serve each share that is this thread's, once: SLICE if one of them had work, IDLE if none, or what Python has to see to.

    told[0] is the share that has to be seen to; told[1] whether one waits for its results to be read.

    Shares are visited by their numbers. One that nears a switch is served until it is there, so that whoever gets it
    begins soon; other shares wait that long. BUSY_NS and TURNS are the thread's own words, which the policy reads.
    """
    answer = o.IDLE
    line = epochs.thread_at(e, me)
    told[1] = 0
    for share in range(e[epochs.SHARES]):
        if epochs.owner_of(e, share) != me:
            continue
        s = epochs.share_at(e, share)
        began = clock_ns(e, line + epochs.SCRATCH)
        epochs.take_up(e, share, began)
        if e[s + epochs.FINISHED] != 0:
            continue
        code = serve_share(gate, c, arena, table[share])
        # Not after all others had a turn: whoever it goes to wakes up, and begins, meanwhile.
        while code == o.SLICE and epochs.nears(e, share):
            code = serve_share(gate, c, arena, table[share])
            if code == o.IDLE:
                code = o.SLICE  # there was work before
                break
        if code == o.SLICE or code == o.SWITCH:
            answer = o.SLICE
            now = clock_ns(e, line + epochs.SCRATCH)
            e[line + epochs.BUSY_NS] += now - began
            e[line + epochs.TURNS] += 1
            if code == o.SWITCH:
                w = ints(table[share, T_WORDS], o.WORDS)
                epoch = w[o.OWN + epochs.SWITCHING]
                w[o.OWN + epochs.SWITCHING] = 0
                epochs.hand_on(gate, e, me, share, epoch, now)
        elif code == o.HALTED:
            if load_acquire(c, shared.HALT) != 0:
                return o.HALTED
            told[1] = 1
        elif code == o.FINISHED:
            epochs.finish(e, share)
            answer = o.SLICE
        elif code != o.IDLE:
            told[0] = share
            return code
    return answer


@compiled
def serve(gate, c, e, me, arena, table, told):
    """A thread of an elastic join: serve its shares until there is a reason to return to Python, one of `work`'s answers.

    `me` is the thread's number, `e` the epochs' words, `c` the control words, `told` two words for `turn`. Ends with
    FINISHED when every share has come to the end of the input, whoever served it.
    """
    spins = 0
    while True:
        halt = load_acquire(c, shared.HALT)
        if halt != 0:
            return o.HALTED if halt == 1 else o.STOPPED
        if load_acquire(e, epochs.ENDED) == e[epochs.SHARES]:
            epochs.wake_threads(gate, e)
            return o.FINISHED
        if not epochs.owns_any(e, me):
            epochs.park(c, shared.HALT, e, me, PARKED_NS)
            continue
        code = turn(gate, c, e, me, arena, table, told)
        if code != o.IDLE and code != o.SLICE:
            return code
        if code == o.SLICE:
            spins = 0
        elif told[1]:
            nap(NAP_US)
        elif spins < SPINS:
            spins += 1
            sched_yield()
        else:
            ticket = epochs.prepare_at_gate(gate, e, me)
            code = turn(gate, c, e, me, arena, table, told)
            idle = code == o.IDLE and not told[1] and load_acquire(c, shared.HALT) == 0 and epochs.owns_any(e, me)
            # Whoever ends the last share wakes those that sleep by then, and no others.
            if idle and load_acquire(e, epochs.ENDED) < e[epochs.SHARES]:
                epochs.sleep_at_gate(gate, e, me, ticket, SLEEP_NS)
            else:
                epochs.stay_awake(gate, e, me)
            if code != o.IDLE and code != o.SLICE:
                return code
