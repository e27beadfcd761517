"""Threads that help the one that takes winsets out: a piece of work is cut into portions, which any of them may take.

    offer(q, c, event, job, portions)   a piece of work, by the thread that takes winsets out: one at a time
    claim(q)                            a portion that nobody else has, or NONE
    done(q)                             a portion that was claimed is done
    await_all(q)                        whoever offered waits until all portions are done
    awaits(q, c, event)                 a helper sleeps until there may be a portion, or until it is to halt

CLAIM says in one word how many portions there are, and how many of them were claimed. A claim is one CAS of that word.

Invariants, and why they hold:

- **A portion is done once.** A CAS that takes it raises the count of those that were claimed. It succeeds only on the word as it
  is now; so who looked at it long ago, at another piece of work, takes nothing, or a portion of this one.
- **What is claimed is whole.** JOB, and all that it leads to, is written before CLAIM is released, and read by who has acquired
  it. It is written anew only when all portions are done, and then nobody is in it: who claims no portion reads nothing but CLAIM.
- **What helpers did is seen.** Each raises DONE after its portion; whoever offered acquires it.
- **No wake-up is lost.** A helper says that it will sleep, and looks once more; who offers releases CLAIM, fences, and looks at
  who sleeps. Who waits for the last portion sleeps on DONE itself, and who does the last one wakes it.
- **Nobody has to come.** Whoever offered takes portions, too, and does all of them if helpers halt, sleep or are not there. It
  waits only for portions that are being done.

Held by tests/threads/aggregate/test_hive_team.py under the scheduler, with planted faults.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE
from plait.threads import words as shared
from plait.threads.atomics import (
    cas,
    compiled,
    fence,
    fetch_add,
    load_acquire,
    pause,
    pure,
    sleep_on,
    store_release,
    wake_all,
)
from plait.threads.gate.flow import cancel, prepare, sleep

CLAIM: Final = 0  # portions claimed << 20 | portions. CAS by all, released by who offers
DONE: Final = LINE  # portions done of this piece: fetch_add by who did one; set to 0 by who offers, when nobody works
JOB: Final = 2 * LINE  # what the piece is about: a word of whoever offers. Plain, written before CLAIM is released
TEAM_WORDS: Final = 3 * LINE
NONE: Final = -1
SLICE_NS: Final = 1_000_000_000
LOOKS: Final = 1 << 11  # before a thread sleeps: some tens of microseconds, in which the next piece of work may come
_BITS: Final = 20
_MASK: Final = (1 << _BITS) - 1


@pure
def portions_of(word):
    return word & _MASK


@pure
def claimed_of(word):
    return word >> _BITS


@compiled
def offer(q, c, event, job, portions):
    """A piece of work, for all who come; `event` is where helpers sleep, among the control words."""
    q[JOB] = job
    store_release(q, DONE, 0)
    store_release(q, CLAIM, portions)
    fence()
    if load_acquire(c, event + 1) > 0:
        fetch_add(c, event, 1)
        wake_all(c, event)


@compiled
def claim(q):
    while True:
        word = load_acquire(q, CLAIM)
        portion = claimed_of(word)
        if portion >= portions_of(word):
            return NONE
        if cas(q, CLAIM, word, word + (1 << _BITS)):
            return portion


@compiled
def done(q):
    if fetch_add(q, DONE, 1) + 1 == portions_of(load_acquire(q, CLAIM)):
        wake_all(q, DONE)


@compiled
def await_all(q):
    looks = 0
    while True:
        count = load_acquire(q, DONE)
        if count == portions_of(load_acquire(q, CLAIM)):
            return
        looks += 1
        if looks < LOOKS:
            pause()
        else:
            sleep_on(q, DONE, count, SLICE_NS)


@compiled
def open_portion(q):
    """Whether there is a portion that nobody has."""
    word = load_acquire(q, CLAIM)
    return claimed_of(word) < portions_of(word)


@compiled
def awaits(q, c, event):
    """True once there may be a portion, false if the helper is to halt; it sleeps meanwhile."""
    looks = 0
    while True:
        if load_acquire(c, shared.HALT) != 0:
            return False
        if open_portion(q):
            return True
        looks += 1
        if looks < LOOKS:
            pause()
            continue
        ticket = prepare(c, event)
        if open_portion(q) or load_acquire(c, shared.HALT) != 0:
            cancel(c, event)
        else:
            sleep(c, event, ticket, SLICE_NS)
