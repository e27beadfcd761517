"""How far a source has come, said at the hive and then at the gate; and how the thread that takes winsets out waits for it.

    promise_inside(d, layout, h, slot, g, ts, ...)    this source updates nothing below `ts` any more
    await_frontier(g, c, reader, known, ...)          sleep while the frontier is not above `known`

Nothing becomes complete while the frontier stays in its pane. So a promise wakes the taker only if the frontier may have passed
the end of a pane by it: of twenty sources that are pushed in turn one in twenty promises does, and of those only where a pane
ends. Every wake-up costs who pushes a call of the system, and a taker in Python the lock that all of them need.

Invariant: **if the frontier has passed the end of the pane that `known` lies in, the taker does not sleep on.** The source that
held it there comes to stand in a later pane by one promise. It publishes, fences, and looks: if no other source is in that
pane, or an earlier one, it wakes. Of two that leave the pane at once each publishes before it looks, so one of them at least
sees that nobody is left. The taker says that it will sleep, and then looks once more. Where another operator is to hear of
every step (`onward`), a pane is a single ts.

Held by tests/threads/aggregate/test_hive_promises.py under the scheduler, with planted faults.
"""

from __future__ import annotations

from typing import Final

from plait.core.kernels.panes import pane_of
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.aggregate.hive.door import enter, leave
from plait.threads.aggregate.hive.hive import advance
from plait.threads.aggregate.hive.words import LAST
from plait.threads.atomics import compiled, load_acquire, pure, store_release
from plait.threads.gate.calls import enter_reader, enter_source, leave_reader, leave_source
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.gate.frontier import lowest, settle
from plait.threads.gate.words import PROGRESS, READY_EVENT, source_at

FAR: Final = 2**62 + 2**61  # promises above are taken for this: tuples are far below


@compiled
def promise_inside(d, layout, h, slot, g, ts, step, rest, onward, out):
    """`hive.advance`, once inside, then `promise`: its answer into out[0], the frontier after it into out[1].

    -1 if the hive's memory is another by now, or grows. `step` and `rest`: the panes' grid (`core.kernels.panes`).
    """
    if not enter(d, slot, layout):
        return -1
    advance(h, slot, pane_until(ts, step, rest))
    leave(d, slot)
    out[0] = promise(g, slot, ts, step, rest, onward)
    out[1], _ = lowest(g)
    return 0


@compiled
def promise(g, slot, ts, step, rest, onward):
    """As `gate.calls.heartbeat`, but readers are woken only if the frontier may have passed the end of a pane."""
    code = enter_source(g, slot)
    if code < 0:
        return code
    before = load_acquire(g, source_at(slot) + PROGRESS)
    if ts > before:
        store_release(g, source_at(slot) + PROGRESS, ts)
        before = before if onward else last_in_pane(before, step, rest)
    leave_source(g, slot, before if ts > before else AFTER_ALL)
    return 0


@pure
def last_in_pane(ts, step, rest):
    """The last ts of the pane that a promise lies in; of one that has no end, the promise itself."""
    if ts == BEFORE_ALL or ts >= FAR:
        return ts
    _, _, end = pane_of(ts, step, rest)
    return end - 1


@pure
def pane_until(ts, step, rest):
    """The pane of a promise, below which nothing comes any more."""
    if ts == AFTER_ALL:
        return LAST
    number, _, _ = pane_of(min(ts, FAR), step, rest)
    return number


@compiled
def look(g, reader, out):
    """The frontier as this reader has settled it, into out[0]: 0, or a code."""
    code = enter_reader(g, reader)
    if code < 0:
        return code
    out[0] = settle(g, reader)
    leave_reader(g, reader, False)
    return 0


@compiled
def await_frontier(g, c, reader, known, slice_ns, out):
    """As `look`, but sleep while the frontier is not above `known`, up to `slice_ns` at a time; HALT ends it, too.

    `c` are the run's control words, `out` one word of the caller's own. Woken for nothing, it sleeps on without Python. After
    `prepare` it looks once more, at the frontier and at HALT, so neither is slept through.
    """
    while True:
        ticket = prepare(g, READY_EVENT)
        code = look(g, reader, out)
        if code < 0 or out[0] > known or load_acquire(c, shared.HALT) != 0:
            cancel(g, READY_EVENT)
            return code
        sleep(g, READY_EVENT, ticket, slice_ns)
