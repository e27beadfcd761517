"""Epochs (STRETCH, sections 3 and 6): who serves which share of an operator's state, and the switch from one map to the next.

A *share* is the paper's bucket: state that one thread at a time works on, with a reader of the gate of its own. A *map* says which
thread serves each share; an *epoch* is the stretch of event time for which one map holds. A switch is a tuple: it goes through the
gate, by a source of its own that lives only for it, and stands behind all other tuples of its ts (SWITCH_ORIGIN is above every
other origin). So it lies between two different timestamps, at one place of the one total order (P6), and every share meets it there.

Invariants, and why they hold:

- Only the thread whose number is in a share's OWNER touches the share, its reader included (P2): OWNER is written by the owner
  alone, as the last thing it does with the share, and released; the next owner acquires it. Nothing is copied.
- The first tuple of the new epoch is processed after the last one of the old (P4): the share changes hands at the switch, with its
  read position, and what is behind the switch is read, or is kept for, the next owner.
- A reconfiguration happens whole (P5): the map of epoch e is written before the switch can be read, and is not changed until every
  share has passed it; a second switch enters only then. There are two rows of maps, so the row for e + 1 is one that all have passed.
- No thread waits for another: where the paper lets all threads meet at a barrier, here each share is handed over when its own owner
  comes to the switch. A thread may serve one share in the old epoch and another in the new one; no share is in both.
- The switch takes effect at the least ts that no reader has been promised more than: `announce_sources` sees to that, whoever reads
  meanwhile. Until the switch's source ends, a few steps later, it holds the frontier there.

Not promised: when shares come to the switch (as soon as they have processed what is before it, once the frontier has passed it).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plait.atomics import compiled, load_acquire, pure, store_release
from plait.gate.calls import end
from plait.gate.codes import BEHIND, DONE, INSIDE
from plait.gate.elastic import announce_sources
from plait.gate.layout import FREE, FRONTIER, SEATS, STATE, reader_at
from plait.gate.ring import add
from plait.order import AFTER_ALL, BEFORE_ALL

LINE: Final = 16

#: Origin of switch tuples: an input above all others, so that a switch follows every tuple of its ts.
SWITCH_ORIGIN: Final = 2**62

# ANNOUNCED: the last epoch of which the switch is in the gate, or about to be. Released by the one that inserts it before the tuple
# enters; acquired by owners after they have read, so that who has read a switch knows of it.
ANNOUNCED: Final = 0
SHARES: Final = 1  # how many, and how many threads; written before threads start
THREADS: Final = 2
MAPS_AT: Final = LINE  # two rows of SHARES words, a row of whole lines: plain, ordered by ANNOUNCED and PASSED

# --- a share's line ---------------------------------------------------------------------------------------------
OWNER: Final = 0  # the thread that may touch it; released by that thread, at a switch; acquired by all
PASSED: Final = 1  # the last epoch whose switch it has met. Released by its owner before OWNER; acquired by who asks for the next
# Plain, the owner's: what a change has cost.
PASSED_NS: Final = 2  # when it met that switch
TAKEN: Final = 3  # the last epoch in which it was served, and since when
TAKEN_NS: Final = 4

# --- a thread's line: plain, its own; Python reads whenever it likes (a sum that is a little old) -----------------
BUSY_NS: Final = 0
TURNS: Final = 1  # how often it has served a share


@pure
def row_words(e):
    return -(-e[SHARES] // LINE) * LINE


@pure
def map_at(e, epoch, share):
    return MAPS_AT + (epoch & 1) * row_words(e) + share


@pure
def share_at(e, share):
    return MAPS_AT + 2 * row_words(e) + share * LINE


@pure
def thread_at(e, thread):
    return share_at(e, e[SHARES]) + thread * LINE


@compiled
def owner_of(e, share):
    return load_acquire(e, share_at(e, share) + OWNER)


@compiled
def owns_any(e, thread):
    for share in range(e[SHARES]):
        if load_acquire(e, share_at(e, share) + OWNER) == thread:
            return True
    return False


@pure
def find_switch(origin, low, high):
    """The place of the first switch among tuples that were read, or `high`."""
    for i in range(low, high):
        if origin[i] == SWITCH_ORIGIN:
            return i
    return high


@compiled
def expects(e, share):
    """Whether a switch is in the gate that this share has not met. By its owner, after a read."""
    return load_acquire(e, ANNOUNCED) > e[share_at(e, share) + PASSED]


@compiled
def hand_over(e, share, epoch, now):
    """By its owner, when all before the switch is done: the share is the next owner's from here on; gives who that is."""
    s = share_at(e, share)
    to = e[map_at(e, epoch, share)]
    e[s + PASSED_NS] = now
    store_release(e, s + PASSED, epoch)
    # Last: whoever acquires it may touch the share, and these words, at once.
    store_release(e, s + OWNER, to)
    return to


@compiled
def take_up(e, share, now):
    """By its owner, before it serves the share: note when the epoch began for it."""
    s = share_at(e, share)
    if e[s + TAKEN] != e[s + PASSED]:
        e[s + TAKEN_NS] = now
        store_release(e, s + TAKEN, e[s + PASSED])


@compiled
def all_passed(e, epoch):
    for share in range(e[SHARES]):
        if load_acquire(e, share_at(e, share) + PASSED) < epoch:
            return False
    return True


@compiled
def all_taken(e, epoch):
    """Whether every share has been served in this epoch, or a later one."""
    for share in range(e[SHARES]):
        if load_acquire(e, share_at(e, share) + TAKEN) < epoch:
            return False
    return True


@compiled
def promised(g):
    """The largest frontier that a reader has settled."""
    most = BEFORE_ALL + 1
    for reader in range(g[SEATS]):
        r = reader_at(g, reader)
        if load_acquire(g, r + STATE) != FREE:
            most = max(most, load_acquire(g, r + FRONTIER))
    return most


@compiled
def insert_switch(g, e, slots, origins, epoch, ts, seq, ref):
    """Put the switch to `epoch` into the gate, by the source in `slots`; its map is written, and all have passed the last one.

    0, and ts[0] says when it takes effect; DONE if there is nothing left to switch for; or another code, and nothing has changed.
    """
    while True:
        ts[0] = promised(g)
        if ts[0] == AFTER_ALL:
            return DONE
        code = announce_sources(g, slots, origins, 1, ts[0], 0)
        if code == 0:
            break
        if code != BEHIND and code != INSIDE:
            return code
    # The new source holds the frontier: nobody can read past it before its tuple is in.
    store_release(e, ANNOUNCED, epoch)
    seq[0] = epoch
    ref[0] = epoch
    add(g, slots[0], ts, seq, ref, 0, 1, ts[0])
    end(g, slots[0])
    return 0


def words(shares: int, threads: int) -> int:
    return LINE * (1 + 2 * -(-shares // LINE) + shares + threads)


def prepare(e: np.ndarray | list[int], owners: list[int], threads: int) -> None:
    """Fill zeroed words in: epoch 0 and its map."""
    e[SHARES], e[THREADS] = len(owners), threads
    first = MAPS_AT + 2 * (-(-len(owners) // LINE) * LINE)
    for share, owner in enumerate(owners):
        e[MAPS_AT + share] = owner
        e[first + share * LINE + OWNER] = owner
