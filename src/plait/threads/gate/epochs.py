"""Epochs (STRETCH, sections 3 and 6): who serves which share of an operator's state, and the switch from one map to the next.

A *share* is the paper's bucket: state that one thread at a time works on, with a reader of the gate of its own. A *map*
says which thread serves each share; an *epoch* is the stretch of event time for which one map holds. A switch is a
tuple: it goes through the gate, by a source of its own that lives only for it, and stands before all other tuples of
its ts (SWITCH_ORIGIN is below every other origin). So it lies between two different timestamps, at one place of the one
total order (P6), and every share meets it there.

Invariants, and why they hold:

- Only the thread whose number is in a share's OWNER touches the share, its reader included (P2): OWNER is written by
  the owner alone, as the last thing it does with the share, and released; the next owner acquires it. Nothing is
  copied.
- The first tuple of the new epoch is processed after the last one of the old (P4): the share changes hands at the
  switch, with its read position, and what was read behind the switch is kept for the next owner.
- A reconfiguration happens whole (P5): the map of epoch e is written before the switch can be met, and is not changed
  until every share has passed it; a second switch enters only then. There are two rows of maps, so the row for e + 1 is
  one that all have passed.
- No thread waits for another: where the paper lets all threads meet at a barrier, here each share is handed over when
  its own owner comes to the switch. A thread may serve one share in the old epoch and another in the new one; no share
  is in both.
- The switch takes effect at the least ts that no reader has been promised more than: `announce_sources` sees to that,
  whoever reads meanwhile. Until the switch's source ends, a few steps later, it holds the frontier there.
- Who has read all that is below the switch's ts, and was promised no more, stands at its place, and need not wait for a
  later tuple to make the switch itself readable: it has nothing before it any more. The tuple is dropped when it comes
  (EARLY).

- Nobody sleeps through a share that it is given: who hands one on stores OWNER, fences, and looks where the next owner
  sleeps; a thread says where (PARKED, AT_GATE), fences, and looks at OWNER once more. One of the two sees the other.
  Only that thread is woken: with as many parked as there may be threads, waking all of them for each share would
  take longer than the switch.

Not promised: when shares come to the switch (as soon as they have processed what is before it).

An example. Two shares, both served by thread 0; the new map gives share 1 to thread 1. The largest frontier that a
reader has settled is 10, so the switch enters with ts 10, and stands before all other tuples of ts 10. Share 1's
reader takes tuples of ts 8, 9, then the switch, then 10. `take` gives two tuples, says SWITCHING = 1, and leaves the
third in the arrays as AHEAD. Thread 0 does the work of 8 and 9, and hands on: PASSED = 1, then OWNER = 1. Thread 1
acquires OWNER, finds the windows, the read position and the tuple of ts 10 as thread 0 has left them, and goes on.
Share 0 meets the same switch in its own time; its owner stays the same.

Where things are: `manager` decides on maps and inserts switches; `join.serve` and `elastic.crew` are the threads'
loops. Held by tests/threads/gate/test_epochs.py under the scheduler, and by tests/threads/test_elastic.py: results are
byte for byte those of a run that never switched.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.atomics import compiled, fence, fetch_add, load_acquire, pure, store_release, wake_all
from plait.threads.gate.calls import end
from plait.threads.gate.codes import BEHIND, DONE, INSIDE
from plait.threads.gate.either import add, read
from plait.threads.gate.elastic import announce_sources
from plait.threads.gate.flow import cancel, sleep
from plait.threads.gate.flow import prepare as prepare_sleep
from plait.threads.gate.frontier import wake_readers
from plait.threads.gate.words import FREE, FRONTIER, READY_EVENT, SEATS, STATE, reader_at

#: Origin of switch tuples: below all others, so that a switch stands before every tuple of its ts.
SWITCH_ORIGIN: Final = -1

# ANNOUNCED: the last epoch of which the switch is in the gate, or about to be. Released by the one that inserts it
# before the tuple enters; acquired by owners after they have read, so that who has read a switch knows of it.
ANNOUNCED: Final = 0
SHARES: Final = 1  # how many, and how many threads; written before threads start
THREADS: Final = 2
ENDED: Final = 3  # shares that have come to the end of the input (fetch_add by their owners; acquired by threads)
SWITCH_TS: Final = 4  # of the last switch; plain, written before ANNOUNCED, when all have passed the one before
MAPS_AT: Final = LINE  # two rows of SHARES words, a row of whole lines: plain, ordered by ANNOUNCED and PASSED

# --- a share's line ---------------------------------------------------------------------------------------------
OWNER: Final = 0  # the thread that may touch it; released by that thread, at a switch; acquired by all
PASSED: Final = (
    1  # the last epoch whose switch it has met. Released by its owner before OWNER; acquired by who asks for the next
)
# Plain, the owner's: what a change has cost.
PASSED_NS: Final = 2  # when it met that switch
TAKEN: Final = 3  # the last epoch in which it was served, and since when
TAKEN_NS: Final = 4
EARLY: Final = 6  # the epoch whose switch it has passed while the tuple itself is still to come; 0: none
FINISHED: Final = 5  # whether it has come to the end of the input

# --- what a share's owner keeps of a read: four plain words of the share's, wherever they lie --------------------
AHEAD: Final = 0  # tuples in the arrays that lie behind a switch, and where they begin
AHEAD_FROM: Final = 1
ALL: Final = 2  # whether the read that gave them gave all that was ready
SWITCHING: Final = 3  # the epoch whose switch follows what was given last; 0: none

# --- a thread's line: plain, its own; Python reads whenever it likes (a sum that is a little old) -----------------
BUSY_NS: Final = 0
TURNS: Final = 1  # how often it has served a share
SCRATCH: Final = 2  # two words, for the clock
# Not plain:
PARKED: Final = 4  # slept on while it has no share; the sleepers, one at most, beside it
AT_GATE: Final = 6  # 1 while it sleeps for tuples, or is about to: released by it, acquired by who gives it a share


@pure
def row_words(e):
    """Words of one row of the map: whole lines, so that the two rows share none."""
    return -(-e[SHARES] // LINE) * LINE


@pure
def map_at(e, epoch, share):
    """Where the map of an epoch says which thread serves a share. Epochs take turns in two rows."""
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
    """Whether any share is this thread's. If not it has nothing to do at the gate, and parks."""
    for share in range(e[SHARES]):  # noqa: SIM110  (a generator has no place in compiled code)
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
    """Whether a switch tuple is in the gate that this share has not read. By its owner, after a read."""
    s = share_at(e, share)
    return load_acquire(e, ANNOUNCED) > e[s + PASSED] or e[s + EARLY] != 0


@compiled
def nears(e, share):
    """By its owner: whether a switch lies before this share, which is to be handed on, or kept, when it comes there."""
    return load_acquire(e, ANNOUNCED) > e[share_at(e, share) + PASSED]


@compiled
def met(e, share, epoch):
    """By its owner, which has read a switch tuple: the epoch it switches to, or 0 if the share has passed it before."""
    s = share_at(e, share)
    if epoch > e[s + PASSED]:
        return epoch
    e[s + EARLY] = 0
    return 0


@compiled
def stands_at(g, e, share):
    """By its owner, which has nothing to read: the epoch at whose switch the share stands, or 0."""
    s = share_at(e, share)
    epoch = load_acquire(e, ANNOUNCED)
    if epoch > e[s + PASSED] and g[reader_at(g, share) + FRONTIER] == e[SWITCH_TS]:
        e[s + EARLY] = epoch
        return epoch
    return 0


@compiled
def take(g, e, share, most, ts, origin, seq, ref, a, at):
    """By its owner: the share's next tuples, up to the next switch, into the arrays; as `ring.read` answers.

    `a[at]` and the words after it are the share's, as above; what was read behind a switch stays in the arrays for the
    next call.

    `ts`, `origin`, `seq` and `ref` are the share's own arrays of `most` words, which travel with it from owner to
    owner; so does `a`. Gives the number of tuples before the switch, which may be 0. AHEAD > 0 afterwards means that
    the next call reads nothing from the gate, but moves these tuples to the front.
    """
    while True:
        number = a[at + AHEAD]
        if number > 0:
            move_down(number, a[at + AHEAD_FROM], ts, origin, seq, ref)
        else:
            number = read(g, share, most, ts, origin, seq, ref)
            a[at + ALL] = 1 if number < most else 0
        a[at + AHEAD] = 0
        a[at + SWITCHING] = 0
        if number < 0:
            return number
        if number == 0:
            a[at + SWITCHING] = stands_at(g, e, share)
            return number
        if not expects(e, share):
            return number
        place = find_switch(origin, 0, number)
        if place == number:
            return number
        a[at + SWITCHING] = met(e, share, seq[place])
        a[at + AHEAD] = number - place - 1
        a[at + AHEAD_FROM] = place + 1
        # One that was passed before, with nothing in front of it, is as if it were not there.
        if place > 0 or a[at + SWITCHING] != 0:
            return place


@pure
def move_down(number, first, ts, origin, seq, ref):
    """Tuples `first`, `first + 1` ...

    of the arrays to their beginning. Ascending, so that overlapping ranges are moved rightly.
    """
    for i in range(number):
        ts[i] = ts[first + i]
        origin[i] = origin[first + i]
        seq[i] = seq[first + i]
        ref[i] = ref[first + i]


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
def hand_on(g, e, me, share, epoch, now):
    """`hand_over`, and wake the thread that the share goes to: asleep for tuples at the gate, or parked.

    `me` is the caller's number, `now` the clock in nanoseconds. If the next owner sleeps at the gate every reader
    there is woken: the event is one for all. A parked one is woken alone.
    """
    to = hand_over(e, share, epoch, now)
    if to != me:
        fence()
        if load_acquire(e, thread_at(e, to) + AT_GATE) != 0:
            wake_readers(g)
        wake_parked(e, to)
    return to


@compiled
def wake_parked(e, thread):
    """After the store that it is to see, and a fence."""
    t = thread_at(e, thread)
    if load_acquire(e, t + PARKED + 1) > 0:
        fetch_add(e, t + PARKED, 1)
        wake_all(e, t + PARKED)


@compiled
def wake_threads(g, e):
    """All of them: the run has ended, or is to stand still."""
    fence()
    wake_readers(g)
    for thread in range(e[THREADS]):
        wake_parked(e, thread)


@compiled
def park(c, halt, e, me, nanoseconds):
    """Sleep while this thread has no share, unless c[halt] says that all are to stand still."""
    at = thread_at(e, me) + PARKED
    ticket = prepare_sleep(e, at)
    if owns_any(e, me) or load_acquire(c, halt) != 0 or load_acquire(e, ENDED) == e[SHARES]:
        cancel(e, at)
    else:
        sleep(e, at, ticket, nanoseconds)


@compiled
def prepare_at_gate(g, e, me):
    """As `flow.prepare` for tuples, by a thread that may be given a share meanwhile; then `sleep_at_gate` or `stay_awake`."""
    store_release(e, thread_at(e, me) + AT_GATE, 1)
    return prepare_sleep(g, READY_EVENT)


@compiled
def sleep_at_gate(g, e, me, ticket, nanoseconds):
    sleep(g, READY_EVENT, ticket, nanoseconds)
    store_release(e, thread_at(e, me) + AT_GATE, 0)


@compiled
def stay_awake(g, e, me):
    cancel(g, READY_EVENT)
    store_release(e, thread_at(e, me) + AT_GATE, 0)


@compiled
def take_up(e, share, now):
    """By its owner, before it serves the share: note when the epoch began for it."""
    s = share_at(e, share)
    if e[s + TAKEN] != e[s + PASSED]:
        e[s + TAKEN_NS] = now
        store_release(e, s + TAKEN, e[s + PASSED])


@compiled
def finish(e, share):
    """By its owner: the share has come to the end of the input."""
    e[share_at(e, share) + FINISHED] = 1
    fetch_add(e, ENDED, 1)


@compiled
def all_passed(e, epoch):
    """Whether every share has met the switch to this epoch: then the map before it is nobody's, and the next switch
    may enter.
    """
    return all_reached(e, PASSED, epoch)


@compiled
def all_taken(e, epoch):
    """Whether every share has been served in this epoch, or a later one."""
    return all_reached(e, TAKEN, epoch)


@compiled
def all_reached(e, word, epoch):
    for share in range(e[SHARES]):  # noqa: SIM110  (a generator has no place in compiled code)
        if load_acquire(e, share_at(e, share) + word) < epoch:
            return False
    return True


@compiled
def promised(g):
    """The largest frontier that a reader has settled.

    A switch at a lower ts would be refused as BEHIND; one at a higher ts would only take effect later.
    """
    most = BEFORE_ALL + 1
    for reader in range(g[SEATS]):
        r = reader_at(g, reader)
        if load_acquire(g, r + STATE) != FREE:
            most = max(most, load_acquire(g, r + FRONTIER))
    return most


@compiled
def insert_switch(g, e, slots, origins, epoch, ts, seq, ref):
    """Put the switch to `epoch` into the gate, by the source in `slots`; its map is written, and all have passed the last one.

    0, and ts[0] says when it takes effect; DONE if there is nothing left to switch for; or another code, and nothing
    has changed.
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
    e[SWITCH_TS] = ts[0]
    store_release(e, ANNOUNCED, epoch)
    seq[0] = epoch
    ref[0] = epoch
    add(g, slots[0], ts, seq, ref, 0, 1, ts[0])
    end(g, slots[0])
    # A share that has read all up to there stands at the switch, though the frontier has not moved.
    wake_readers(g)
    return 0


@compiled
def switch_to(g, e, slots, origins, owners, epoch, ts, seq, ref):
    """Write the map of `epoch` and put its switch into the gate, when all have passed the last one; as `insert_switch` answers.

    One call, so that a thread of Python's gives the GIL away once, and with the switch in the gate: whoever takes it
    meanwhile, a reader of results for one, may keep it for long.
    """
    for share in range(e[SHARES]):
        e[map_at(e, epoch, share)] = owners[share]
    return insert_switch(g, e, slots, origins, epoch, ts, seq, ref)


def words(shares: int, threads: int) -> int:
    """How many words the epochs of so many shares and threads take: a line of header, two rows of maps, a line a
    share, a line a thread.
    """
    return LINE * (1 + 2 * -(-shares // LINE) + shares + threads)


def prepare(e: np.ndarray | list[int], owners: list[int], threads: int) -> None:
    """Fill zeroed words in: epoch 0 and its map.

    `owners[share]` is a thread's number. Before any thread starts, so plain stores will do.
    """
    e[SHARES], e[THREADS] = len(owners), threads
    first = MAPS_AT + 2 * (-(-len(owners) // LINE) * LINE)
    for share, owner in enumerate(owners):
        e[MAPS_AT + share] = owner
        e[first + share * LINE + OWNER] = owner
