"""Tuples that move from worker to worker by their position in a window that all workers share.

Each stream's window is one ring segment (`threads.join.loop.segment`). The worker at which the stream enters writes it; the
n-th tuple of the stream has position n for ever, so what workers tell one another are positions, and no tuple is copied.
The systems rebuilt here copied tuples between cores, so this is to their favour. A row's ID is not its number, which
is its position, but how many tuples of the other stream precede it in total order.

What a worker compares is a *job*: tuples at consecutive positions of one side, each with a range of the other window.
A job is done in two steps, each of which can be left for Python and taken up again: `scan` finds pairs, `give` writes
them to the worker's ring. What follows from a job (tuples have arrived, a task is done) is said after both.
"""

from __future__ import annotations

from typing import Final

from plait.core.condition import native
from plait.core.machine.line import LINE
from plait.errors import QueryError
from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import fence, load_acquire, sched_yield, store_release
from plait.threads.atomics.native import address_of, call_at, inner, ints, nap, octets
from plait.threads.gate import codes
from plait.threads.gate.frontier import wake_sources
from plait.threads.gate.words import SLOTS, read_at
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.out import put, room, wake_gatherer
from plait.threads.join.loop.probe import segment_of
from plait.threads.join.loop.worker import arrange, lay_out, take_once
from plait.threads.join.strategies.plan import Plan, Seat, Wish

# The job under way: is there one, its side, where its tuples begin, how many they are.
JOB: Final = o.OWN
JOB_SIDE: Final = o.OWN + 1
JOB_FIRST: Final = o.OWN + 2
JOB_COUNT: Final = o.OWN + 3
IDLE: Final = o.OWN + 4  # looks in vain, one after the other
TURN: Final = o.OWN + 5  # the side whose turn is next
DONE: Final = o.OWN + 6  # the gate has ended, says a worker at which a stream enters
REST: Final = o.OWN + 8  # from here on: each strategy's own

NAP_US: Final = 50
MOST_PAIRS: Final = 1 << 20


def seats(wish: Wish, writers: tuple[int, int]) -> tuple[Seat, ...]:
    """Workers that share one segment a stream; `writers` are those at which the streams enter."""
    whole = ((0, 0), (1, 1), (0, 0), (1, 1), (0, 0))
    return tuple(Seat(*whole, (k == writers[0], k == writers[1])) for k in range(wish.workers))


def plan(name: str, wish: Wish, writers: tuple[int, int], why: str, loop: object, words: object) -> Plan:
    if wish.kind != "inner":
        raise QueryError(f"strategy={name!r} for a {wish.kind} join", why="rivals serve inner joins, for comparison",
                         do="Use another strategy, or leave strategy= out")  # fmt: skip
    return Plan(name, seats(wish, writers), (wish.workers, 1), why, loop=loop, shared=words)


@inner
def rest(w):
    """Nothing to do: look again soon, then less often."""
    w[IDLE] += 1
    if w[IDLE] < 64:
        sched_yield()
    else:
        nap(NAP_US)


# --- entering ---------------------------------------------------------------------------------------------------


@inner
def enter(w, batch, ps, us, arena):
    """Number the batch's tuples, and lay out those of the streams that enter here. The arenas are not needed after."""
    arrange(w, batch, w[o.COUNT], ps)
    for side in range(2):
        if w[o.WRITER + side]:
            lay_out(w, side, ps[side], us[side], arena)
            for k in range(w[o.PROBES + side]):
                ps[side][o.P_ID, k] = ps[side][o.P_HI, k]


@inner
def keep(w, ps, us):
    """Append what enters here to the windows: 0, or GROW_SEGMENT. It never waits: who holds old rows may wait for new ones."""
    for side in range(2):
        n = w[o.STORES + side]
        if n == 0 or w[o.WRITER + side] == 0:
            continue
        s, p = segment_of(w, side), ps[side]
        if s[seg.END] + n - seg.first_valid(s) > s[seg.CAP]:
            w[o.NEED_SIDE], w[o.NEED] = side, n
            return o.GROW_SEGMENT
        columns = w[o.COLUMNS + 24 * side : o.COLUMNS + 24 * side + 24]
        seg.append(
            s, n, p[o.P_STORE], p[o.P_TS], p[o.P_ID], p[o.P_REF], p[o.P_KEY], p[o.P_X], p[o.P_Y], us[side], p[o.P_WORD],
            columns,
        )  # fmt: skip
        w[o.STORES + side] = 0
    return 0


@inner
def take_in(w, number, batch, ps, us, arena):
    """What the gate gave, to be stored next, or the word that it has ended; false if the run is being stopped."""
    if number == codes.DONE:
        w[DONE] = 1
    elif number < 0:
        return False
    elif number > 0:
        w[o.COUNT] = number
        enter(w, batch, ps, us, arena)
        w[o.PHASE] = o.STORING
    return True


@inner
def store(w, batch, ps, us):
    """Store what was taken in: 0, or a code to leave with and come back."""
    code = keep(w, ps, us)
    if code == 0:
        w[o.LAST_TS] = batch[o.B_TS, w[o.COUNT] - 1]
        w[o.RANK] += w[o.COUNT]
        w[o.PHASE] = o.READING
    return code


@inner
def take_and_store(gate, c, w, batch, ps, us, arena):
    """One look at the gate: 1 if tuples came, 0 if not, or the negative of a code to leave with."""
    if w[o.PHASE] == o.READING and not take_in(w, take_once(gate, c, w, batch), batch, ps, us, arena):
        return -o.STOPPED
    if w[o.PHASE] != o.STORING:
        return 0
    code = store(w, batch, ps, us)
    return 1 if code == 0 else -code


@inner
def follow(gate, w):
    """A worker that takes nothing from the gate says there that it has read what worker 0 has.

    It says so when it is through with what came to it: so a worker that is behind holds the pushers back.
    """
    first, own, more = read_at(gate, 0), read_at(gate, w[o.SEAT]), False
    for slot in range(gate[SLOTS]):
        count = load_acquire(gate, first + slot)
        if gate[own + slot] != count:
            store_release(gate, own + slot, count)
            more = True
    if more:
        fence()
        wake_sources(gate)


# --- jobs -------------------------------------------------------------------------------------------------------


@inner
def first_at_least(times, mask, low, high, ts):
    """The first position in [low, high) whose ts is not below `ts`; `high` if there is none."""
    while low < high:
        middle = (low + high) >> 1
        if times[middle & mask] < ts:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def scan(w, side, first, n, p, found, pairs, tally):
    """Compare tuples [first, first + n) of a side with rows P_FROM to P_UNTIL of the other window.

    Gives how many pairs there are then, -1 for want of room, or FAILED. Counts comparisons in `tally[1]`.
    """
    own, s = segment_of(w, side), segment_of(w, 1 - side)
    alive, total, least = w[o.ALIVE + side], 0, s[seg.END]
    living = octets(own[seg.COLS + max(alive, 0)], 2 * own[seg.CAP])
    for k in range(n):
        if alive >= 0 and living[(first + k) & own[seg.MASK]] == 0:
            p[o.P_UNTIL, k] = p[o.P_FROM, k]
        if p[o.P_FROM, k] < p[o.P_UNTIL, k]:
            least = min(least, p[o.P_FROM, k])
            total += p[o.P_UNTIL, k] - p[o.P_FROM, k]
    if total == 0:
        return found
    # Columns are written twice, so that from `least` on every range is in one piece.
    shift = (least & s[seg.MASK]) - least
    for k in range(n):
        if p[o.P_FROM, k] >= p[o.P_UNTIL, k]:
            p[o.P_FROM, k], p[o.P_UNTIL, k] = least, least
        p[o.P_FROM, k] += shift
        p[o.P_UNTIL, k] += shift
    b, at = ints(w[o.BLOCK], 128), native.COLUMNS
    for c_side in range(2):
        t = segment_of(w, c_side)
        for column in range(w[o.NCOLS + c_side]):
            if column != w[o.ALIVE + c_side]:
                b[at] = t[seg.COLS + column]
                if c_side == side:
                    b[at] += (first & t[seg.MASK]) * t[seg.SIZES + column]
                at += 1
    if w[o.ALIVE + 1 - side] >= 0:
        b[at] = s[seg.COLS + w[o.ALIVE + 1 - side]]
    b[native.LENGTH_L + side] = own[seg.CAP]
    b[native.LENGTH_L + 1 - side] = 2 * s[seg.CAP]
    state = tally[4:8]
    state[0], state[1], state[2], state[3] = -1, 0, 0, 0
    b[native.N] = n
    b[native.LO], b[native.HI] = address_of(p[o.P_FROM], 0), address_of(p[o.P_UNTIL], 0)
    b[native.STATE] = address_of(state, 0)
    b[native.OUT_PROBE], b[native.OUT_ROW] = address_of(pairs[0], found), address_of(pairs[1], found)
    b[native.ROOM] = pairs.shape[1] - found
    code = call_at(w[o.SCANS + side], w[o.BLOCK])
    if code < 0:
        return native.FAILED
    if code != 0:
        return -1
    tally[1] += total
    for k in range(found, found + state[3]):
        pairs[1, k] -= shift
    return found + state[3]


@inner
def begin(w, side, first, n, found, tally):
    """The pairs of a job were found: it is under way until they are given out."""
    w[JOB], w[JOB_SIDE], w[JOB_FIRST], w[JOB_COUNT] = 1, side, first, n
    w[o.PAIRS], w[o.EMITTED] = found, 0
    w[shared.COMPARISONS] += tally[1]
    w[shared.TUPLES] += n
    w[shared.BATCHES] += 1


@inner
def give(c, w, pairs, out):
    """Give out the job's pairs, from where it stood: 0, or HALTED. The trigger has the later ts; of equals, the right one."""
    side, first = w[JOB_SIDE], w[JOB_FIRST]
    a, b = segment_of(w, side), segment_of(w, 1 - side)
    own_ts, own_ref = ints(a[seg.TS], a[seg.CAP]), ints(a[seg.REF], a[seg.CAP])
    other_ts, other_ref = ints(b[seg.TS], b[seg.CAP]), ints(b[seg.REF], b[seg.CAP])
    while w[o.EMITTED] < w[o.PAIRS]:
        if room(c, w) != 0:
            return o.HALTED
        k = w[o.EMITTED]
        i, j = (first + pairs[0, k]) & a[seg.MASK], pairs[1, k] & b[seg.MASK]
        ts, mine, theirs = max(own_ts[i], other_ts[j]), own_ref[i], other_ref[j]
        if side == 0:
            put(w, out, ts, int(other_ts[j] >= own_ts[i]), pairs[1, k], mine, theirs)
        else:
            put(w, out, ts, int(own_ts[i] >= other_ts[j]), pairs[1, k], theirs, mine)
        w[o.EMITTED] += 1
    w[JOB] = 0
    return 0


@inner
def hold(w, side, first):
    """Rows of a window below `first` are of no more use to this worker."""
    store_release(segment_of(w, side), seg.FIRST + w[o.SHARER + side] * LINE, first)


@inner
def publish(c, w, left, right, ended):
    """Results, then whether they are all, then which rows no later result can hold: those with a ts below these."""
    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])
    if ended:
        store_release(w, o.DONE_TS, AFTER_ALL)
    store_release(w, o.DONE_RANK, w[o.RANK])
    store_release(w, o.LIVE_TS, left)
    store_release(w, o.LIVE_TS + 1, right)
    fence()
    wake_gatherer(c)
