"""Threads that serve shares (`gate.epochs`): handing one on, waking whoever it goes to, and waiting for work.

A thread with shares sleeps on the gate's READY_EVENT; one without sleeps on FEED_EVENT, so that tuples do not wake it. Whoever hands a
share on fences after the store to OWNER and wakes both; a thread says that it will sleep, fences, and looks at its shares once
more. One of the two sees the other: no share is left without a thread.
"""

from __future__ import annotations

from plait.atomics import fence, fetch_add, load_acquire, wake_all
from plait.atomics.native import compiled_over
from plait.gate import epochs
from plait.gate.flow import cancel, prepare, sleep
from plait.gate.frontier import wake_readers
from plait.operators import layout as o

compiled = compiled_over("gate", "windows", "kernels", "predicates")

PARKED_NS = 1_000_000_000


@compiled
def hand_on(gate, c, e, me, share, epoch, now):
    """The share has met the switch: give it to the thread that the new map says, and wake that one."""
    to = epochs.hand_over(e, share, epoch, now)
    if to != me:
        wake_threads(gate, c)
    return to


@compiled
def wake_threads(gate, c):
    fence()
    wake_readers(gate)
    if load_acquire(c, o.FEED_SLEEPERS) > 0:
        fetch_add(c, o.FEED_EVENT, 1)
        wake_all(c, o.FEED_EVENT)


@compiled
def park(c, e, me):
    """Sleep while this thread has no share, unless all are to stand still."""
    ticket = prepare(c, o.FEED_EVENT)
    if epochs.owns_any(e, me) or load_acquire(c, o.HALT) != 0:
        cancel(c, o.FEED_EVENT)
    else:
        sleep(c, o.FEED_EVENT, ticket, PARKED_NS)
