"""The W-Hive's door: who is inside while memory must not grow. To enter takes no lock, and waits for nobody unless memory grows.

    enter(d, seat, layout)      inside, with memory of this layout; False: it is another by now, or is being made
    leave(d, seat)              what was done inside is seen by whoever grows memory next
    shut(d)                     nobody is inside, and nobody comes in before `reopen`; by one thread at a time
    reopen(d, layout)           memory has this layout, the next even one
    await_open(d)               sleep while the door is shut

Every source has a *seat*, and the thread that takes winsets out has the last one; one thread at a time sits on each. LAYOUT says
which memory there is: even, and one higher while it grows, two when it has. A thread reads memory and its number together, and
enters with this number; so one comparison says both that the door is open and that this memory is the one in use.

Invariants, and why they hold:

- **Nobody is inside while memory is copied.** Who enters sets its INSIDE, fences, then reads LAYOUT; who shuts raises LAYOUT,
  fences, then reads every INSIDE. One of the two sees the other (Dekker): either who enters sees another LAYOUT, takes its
  INSIDE back and stays outside, or who shuts sees it inside and waits until it has left.
- **Nothing written inside is lost.** `leave` releases INSIDE, `shut` acquires it: the copy has all that was written. `reopen`
  releases LAYOUT, `enter` acquires it: who comes in next sees the copy.
- **Nobody uses old memory.** Its number is old, and LAYOUT only grows.
- **No wake-up is lost.** Who shuts sleeps on an INSIDE while it is 1; who leaves clears it, fences, reads LAYOUT, and wakes if
  that is odd. By the same argument as above it is odd if somebody may sleep. Who waits at the door sleeps on LAYOUT itself, which
  `reopen` changes before it wakes.

So entering and leaving are two stores, two fences and two loads, whatever others do. What can't be without waiting is growth:
memory that moves must not be written meanwhile. It is rare, each growth being fourfold.

Held by tests/threads/aggregate/test_hive_door.py under the scheduler, with planted faults.
"""

from __future__ import annotations

from typing import Final

from plait.core.machine.line import LINE
from plait.threads.atomics import compiled, fence, load_acquire, pure, sleep_on, store_release, wake_all

SEATS: Final = 0  # how many; written once
LAYOUT: Final = LINE  # released by who grows memory; acquired by all
INSIDE: Final = 2 * LINE  # a line a seat: 1 while its thread is inside. Released by that thread, acquired by who shuts
SLICE_NS: Final = 20_000_000


@pure
def inside_at(seat):
    return INSIDE + seat * LINE


@compiled
def enter(d, seat, layout):
    store_release(d, inside_at(seat), 1)
    fence()
    if load_acquire(d, LAYOUT) == layout:
        return True
    leave(d, seat)
    return False


@compiled
def leave(d, seat):
    store_release(d, inside_at(seat), 0)
    fence()
    if load_acquire(d, LAYOUT) & 1 == 1:
        wake_all(d, inside_at(seat))


@compiled
def shut(d):
    store_release(d, LAYOUT, load_acquire(d, LAYOUT) + 1)
    fence()
    for seat in range(d[SEATS]):
        while load_acquire(d, inside_at(seat)) == 1:
            sleep_on(d, inside_at(seat), 1, SLICE_NS)


@compiled
def reopen(d, layout):
    store_release(d, LAYOUT, layout)
    wake_all(d, LAYOUT)


@compiled
def await_open(d):
    layout = load_acquire(d, LAYOUT)
    while layout & 1 == 1:
        sleep_on(d, LAYOUT, layout, SLICE_NS)
        layout = load_acquire(d, LAYOUT)
