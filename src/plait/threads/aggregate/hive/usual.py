"""A usual batch into its source's tallies, and the promise after it: one compiled call, outside of Python's lock.

The steps are those of `tallies`, one after the other: the batch is looked at and read (`input.given`), each tuple's tally is
found (`place`), new tallies are cleared, every function is updated (`core.kernels`), the source says how far it is (`promises`).
What needs Python (memory is short, a sum needs more limbs, the hive's memory grows, too much waits) ends the call where it
stands, and says where: `Tallies.finish` goes on from there. So this call decides nothing that the steps do not decide.

A source's *desk* is where the call finds everything: addresses, sizes and what never changes, a word each. It is good as long
as the arrays are those it was made of (`Tallies`). A *sheet* is scratch: a tuple's ts, its tally, and rows of bits, keys first.

Held by tests/threads/input/test_short_aggregates.py and tests/threads/aggregate/test_usual.py, against the steps in Python.
"""

from __future__ import annotations

from typing import Any, Final

from plait.core.aggregate.accumulators import (
    COUNTS,
    EDGES,
    EXTREMES,
    PRODUCTS,
    STEP_ADDS,
    STEP_BASE,
    STEP_HOW,
    STEP_KIND,
    STEP_OTHER,
    STEP_OTHER_KIND,
    STEP_ROW,
    STEP_SLOTS,
    STEP_WHAT,
    STEP_WIDTH,
    STEP_WORDS,
    SUMS,
)
from plait.core.kernels import exact, panes
from plait.core.machine.marks import brief
from plait.order import BEFORE_ALL
from plait.threads.aggregate.hive import hive
from plait.threads.aggregate.hive import words as y
from plait.threads.aggregate.hive.door import enter, leave
from plait.threads.aggregate.hive.place import place_inside
from plait.threads.aggregate.hive.promises import pane_until, promise_inside
from plait.threads.atomics.native import compiled, inner, ints
from plait.threads.gate.frontier import lowest
from plait.threads.input import given

# --- a desk: what is the stream's and the run's; a source's place; where its memory is
(
    D_TIME, D_TIME_KIND, D_TIME_SCALE, D_TIME_LIMIT, D_READS, D_READ, D_ROWS, D_KEYS, D_ADVANCE, D_REST, D_GAPS, D_SMALL,
    D_SHARED, D_DOOR, D_GATE, D_ONWARD, D_PENDING, D_CAPACITY, D_SLOT, D_OWN, D_PANES, D_PANE, D_DIRECT, D_DIRECTS,
    D_TABLE, D_TABLES, D_KEPT, D_TALLIES, D_WINDOW, D_STEPS, D_STEP, D_TOLD, D_GOOD,
) = range(33)  # fmt: skip
DESK_WORDS: Final = 33

# --- what a call tells: what became of the batch, and where it stands
T_HIGH, T_STEP, T_AT, T_CODE, T_FRONTIER, T_LAST, T_REF = range(7)
TOLD_WORDS: Final = 7
#: Not a usual batch, and nothing is changed. All is done. Read, and no tuple placed. Placed up to T_HIGH, and of these tuples
#: step T_STEP has added those before T_AT, the steps before it all, those after it none. All is added, and not promised.
UNUSUAL, DONE, READ, PLACED, ADDED = range(5)

SHEET_ROWS: Final = 3  # a ts, a column's values while they are looked at, a tally; then bits
_ANY: Final = 1 << 40  # words: more than any array has
FEW: Final = 1 << 6  # rows that are taken in some microseconds: the GIL is kept for them


@compiled
def take_usual(batch, n, low, floor, h, layout, desk, sheet, ones, told):
    """A batch of one source: how far it came. `floor`: what is promised besides its last ts.

    `batch`: address of Arrow's struct. `low`: tuples below are late or behind. `h`, `layout`: the hive's memory, and its number.
    `sheet`: int64 of (SHEET_ROWS + rows of bits) * room. `told[T_REF]` is when it was pushed.
    """
    room = len(sheet) // (SHEET_ROWS + desk[D_ROWS])
    keys, rows = desk[D_KEYS], desk[D_ROWS]
    ts, out = sheet[:n], sheet[2 * room : 2 * room + n]
    flat = sheet[SHEET_ROWS * room : SHEET_ROWS * room + rows * n]
    bits = flat.reshape((rows, n))
    for i in range(n):
        bits[keys - 1, i] = 0  # no key is NULL
    reads = ints(desk[D_READS], desk[D_READ] * given.READ_WORDS).reshape((desk[D_READ], given.READ_WORDS))
    if not given.look_and_read(
        batch, n, desk[D_TIME], desk[D_TIME_KIND], desk[D_TIME_SCALE], desk[D_TIME_LIMIT], low, reads, sheet[room : room + n],
        ts, bits,
    ):  # fmt: skip
        return UNUSUAL
    told[T_LAST] = ts[n - 1]
    told[T_HIGH] = 0
    d, own = ints(desk[D_DOOR], _ANY), ints(desk[D_OWN], y.OWN_WORDS)
    pane = ints(desk[D_PANES], 3 * desk[D_PANE]).reshape((3, desk[D_PANE]))
    if not freed(d, layout, h, desk[D_SLOT], own, pane) or not has_room(desk, own, pane):
        return READ
    size = desk[D_TALLIES]
    kept = ints(desk[D_KEPT], keys * size).reshape((keys, size))
    direct, table = ints(desk[D_DIRECT], desk[D_DIRECTS]), ints(desk[D_TABLE], desk[D_TABLES])
    window = ints(desk[D_WINDOW], size if desk[D_SHARED] != 0 else 0)
    before = own[y.TALLY_END]
    high = place_inside(
        d, layout, h, desk[D_SLOT], ts, bits[:keys], flat[: keys * n], 0, n, desk[D_ADVANCE], desk[D_REST], desk[D_GAPS] != 0,
        desk[D_SMALL] != 0, desk[D_SHARED] != 0, own, pane[0], pane[1], pane[2], direct, table, kept, window,
        told[T_REF : T_REF + 1], out,
    )  # fmt: skip
    if high < 0:
        return READ
    told[T_HIGH] = high
    steps = ints(desk[D_STEPS], desk[D_STEP] * STEP_WORDS).reshape((desk[D_STEP], STEP_WORDS))
    wipe(steps, before, own[y.TALLY_END], size)
    for k in range(len(steps)):
        at = added(steps[k], high, out, bits, ones, ts, size)
        if at < high:
            told[T_STEP], told[T_AT] = k, at
            return PLACED
    if high < n:
        told[T_STEP], told[T_AT] = len(steps), high
        return PLACED
    if promise_inside(
        d, layout, h, desk[D_SLOT], ints(desk[D_GATE], _ANY), max(ts[n - 1], floor), desk[D_ADVANCE], desk[D_REST],
        desk[D_ONWARD] != 0, told[T_CODE : T_CODE + 2],
    ) < 0:  # fmt: skip
        return ADDED
    return DONE


@brief
def take_few(batch, n, low, floor, h, layout, desk, sheet, ones, told):
    """As `take_usual`, of so few rows that the GIL is not given away for them."""
    return take_usual(batch, n, low, floor, h, layout, desk, sheet, ones, told)


@inner
def freed(d, layout, h, slot, own, pane):
    """Panes that the taker has let go of are forgotten; false if the hive's memory is another by now, or grows."""
    if own[y.PANE_END] == 0 or pane[0, 0] >= h[y.PASSED]:
        return True  # a glance: see `Tallies._use_again`
    return use_again_inside(d, layout, h, slot, own, pane) == 0


@compiled
def use_again_inside(d: Any, layout: Any, h: Any, slot: Any, own: Any, panes: Any) -> Any:
    """A source's panes below what the taker has let go of are forgotten, and their tallies and words of the arena are free.

    -1 if the hive's memory is another by now, or grows. `panes`: of each one its number, first tally and first word.
    """
    if not enter(d, slot, layout):
        return -1
    end, below = own[y.PANE_END], hive.passed(h)
    gone = 0
    while gone < end and panes[0, gone] < below:
        gone += 1
    if gone > 0:
        own[y.TALLY_FREED] = panes[1, gone] if gone < end else own[y.TALLY_END]
        s = y.source_at(slot)
        h[s + y.ARENA_FREED] = panes[2, gone] if gone < end else h[s + y.ARENA_END]
        for pane in range(gone, end):
            for word in range(3):
                panes[word, pane - gone] = panes[word, pane]
        own[y.PANE_END] = end - gone
    leave(d, slot)
    return 0


@inner
def has_room(desk, own, pane):
    """Whether a source may have more tallies than it has, without a look at who takes them (`HivePusher._wait_for_room`)."""
    live = own[y.TALLY_END] - own[y.TALLY_FREED]
    if live <= desk[D_PENDING]:
        return True
    frontier, _ = lowest(ints(desk[D_GATE], _ANY))
    last = y.FIRST if frontier == BEFORE_ALL else pane_until(frontier, desk[D_ADVANCE], desk[D_REST])
    at = own[y.PANE_END]
    while at > 0 and pane[0, at - 1] > last:
        at -= 1
    ahead = own[y.TALLY_END] - pane[1, at] if at < own[y.PANE_END] else 0
    return ahead <= desk[D_PENDING] and live - ahead <= desk[D_CAPACITY]


@inner
def slots_of(step, size):
    """A step's slots: int64 of `size` tallies, a row each."""
    return ints(step[STEP_SLOTS], size * step[STEP_WIDTH]).reshape((size, step[STEP_WIDTH]))


@inner
def wipe(steps, first, end, size):
    """Neutral values for tallies [first, end), which may lie at both ends of the ring."""
    if first == end:
        return
    low, high = first & (size - 1), ((end - 1) & (size - 1)) + 1
    for k in range(len(steps)):
        slots = slots_of(steps[k], size)
        if low < high:
            panes.wipe(low, high, slots)
        else:
            panes.wipe(low, size, slots)
            panes.wipe(0, high, slots)


@inner
def added(step, high, out, bits, ones, ts, size):
    """Tuples 0 to `high` into the tallies that `out` says; gives the first that was not added, which is `high` if all were."""
    slots, what, row = slots_of(step, size), step[STEP_WHAT], step[STEP_ROW]
    if what == COUNTS:
        panes.count(0, high, out, ones, slots)
    elif what == EXTREMES:
        panes.extreme(0, high, out, bits[row], ones, step[STEP_KIND], step[STEP_HOW], slots)
    elif what == EDGES:
        panes.timed_edge(0, high, out, bits[row], ones, ones, ts, step[STEP_HOW] != 0, slots)
    else:
        adds = ints(step[STEP_ADDS], 1)
        if adds[0] + high > exact.CARRY_AFTER:
            return 0
        adds[0] += high
        base, kind = step[STEP_BASE], step[STEP_KIND]
        if what == SUMS:
            return exact.add(0, high, out, bits[row], ones, kind, step[STEP_HOW] != 0, slots, base)
        if what == PRODUCTS:
            other = bits[step[STEP_OTHER]]
            return exact.add_products(0, high, out, bits[row], kind, other, step[STEP_OTHER_KIND], ones, slots, base)
    return high
