"""Batches on their way from who pushes to the threads that update (`pool`): a ring for each of these threads.

    offer(q, c, me, item)        a batch at the end; false if there is no room
    awaits(q, c, me)             its thread sleeps until there is a batch, or until it is to halt
    done(q, me)                  its thread has done the first batch
    await_done(q, me, number)    who pushes sleeps until so many batches of this ring are done, for a while
    first_ticket(q)              the oldest batch that is not done, of all rings

A batch is a row of words, the last of which is its *ticket*: batches are numbered over all rings in the order in which they were
pushed. Those who push take turns (a lock of Python's); each ring has one thread that takes.

Invariants, and why they hold:

- **A batch is done once, and a ring's in their order.** Only its thread raises HEAD, by one a batch.
- **What is taken is whole.** A row is written before TAIL is released, and read after it was acquired; a row is written again
  only after HEAD, acquired, says that its batch is done.
- **What is done is seen.** HEAD is released after a batch's tallies were changed, and acquired by who pushes next for that
  source: what it then does itself comes after.
- **No wake-up is lost.** Who sleeps says so, fences, and looks once more; who changes what is waited for fences, then looks at
  who sleeps. One of the two sees the other. (Who pushes looks again after SLICE_NS anyway.)
- **`first_ticket` is never above the oldest batch's ticket.** HEAD is looked at again after a row: if it has not moved, the row
  was that batch's.

Held by tests/threads/aggregate/test_hive_queue.py under the scheduler, with planted faults.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.atomics import compiled, fence, fetch_add, load_acquire, pure, sleep_on, store_release, wake_all
from plait.threads.gate.flow import cancel, prepare, sleep

RINGS: Final = 0  # how many; written once
ROOM: Final = 1  # batches a ring; written once
RINGS_AT: Final = LINE
# --- a ring: a line each for TAIL (released by who pushes) and HEAD (released by its thread), beside it who sleeps on HEAD
TAIL: Final = 0
HEAD: Final = LINE
SLEEPERS: Final = LINE + 1  # changed by fetch_add, acquired by the ring's thread
ROWS: Final = 2 * LINE
ITEM_WORDS: Final = 8
TICKET: Final = ITEM_WORDS - 1
SLICE_NS: Final = 20_000_000


@pure
def ring_at(q, me):
    return RINGS_AT + me * (ROWS + q[ROOM] * ITEM_WORDS)


@pure
def row_at(q, me, number):
    return ring_at(q, me) + ROWS + number % q[ROOM] * ITEM_WORDS


@pure
def event_of(me):
    """What a ring's thread sleeps on, among the control words: so `halt` wakes it."""
    return shared.CONTROL_WORDS + me * LINE


def size(rings: int, room: int) -> int:
    return RINGS_AT + rings * (ROWS + room * ITEM_WORDS)


@compiled
def offer(q, c, me, item):
    """A batch, as words; false if there is no room. One thread at a time."""
    at = ring_at(q, me)
    tail = load_acquire(q, at + TAIL)
    if tail - load_acquire(q, at + HEAD) >= q[ROOM]:
        return False
    row = row_at(q, me, tail)
    for k in range(TICKET):
        q[row + k] = item[k]
    store_release(q, row + TICKET, item[TICKET])  # who asks for the first one looks at it whenever he likes
    store_release(q, at + TAIL, tail + 1)
    fence()
    event = event_of(me)
    if load_acquire(c, event + 1) > 0:
        fetch_add(c, event, 1)
        wake_all(c, event)
    return True


@compiled
def awaits(q, c, me):
    """True once there is a batch, false if the thread is to halt; it sleeps meanwhile."""
    at, event = ring_at(q, me), event_of(me)
    while True:
        if load_acquire(c, shared.HALT) != 0:
            return False
        if load_acquire(q, at + TAIL) > q[at + HEAD]:
            return True
        ticket = prepare(c, event)
        if load_acquire(q, at + TAIL) > q[at + HEAD] or load_acquire(c, shared.HALT) != 0:
            cancel(c, event)
        else:
            sleep(c, event, ticket, SLICE_NS)


@compiled
def done(q, me):
    at = ring_at(q, me)
    store_release(q, at + HEAD, q[at + HEAD] + 1)
    fence()
    if load_acquire(q, at + SLEEPERS) > 0:
        wake_all(q, at + HEAD)


@compiled
def await_done(q, me, number):
    """Whether so many batches of the ring are done; it sleeps up to SLICE_NS before it says no."""
    at = ring_at(q, me)
    head = load_acquire(q, at + HEAD)
    if head >= number:
        return True
    fetch_add(q, at + SLEEPERS, 1)
    fence()
    sleep_on(q, at + HEAD, head, SLICE_NS)  # not if it has moved since
    fetch_add(q, at + SLEEPERS, -1)
    return load_acquire(q, at + HEAD) >= number


@compiled
def first_ticket(q):
    """AFTER_ALL if all are done."""
    first = AFTER_ALL
    for me in range(q[RINGS]):
        at = ring_at(q, me)
        head = load_acquire(q, at + HEAD)
        while load_acquire(q, at + TAIL) > head:
            ticket = load_acquire(q, row_at(q, me, head) + TICKET)
            now = load_acquire(q, at + HEAD)
            if now == head:
                first = min(first, ticket)
                break
            head = now
    return first
