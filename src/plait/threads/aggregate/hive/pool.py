"""A pool of threads that update windows for those that push (`workers=` with WiML): so one thread that pushes all sources is
not all the processor that they get.

Who pushes judges a batch, as ever, and hands it on; a thread of the pool adds it to its source's tallies and promises
(`usual`), one compiled call after the other, without Python. What such a call can't take to its end Python goes on with, in the
same thread.

Invariants:

- **A source's batches are added in their order, by one thread at a time.** A source is one thread's, by its slot, and that
  thread takes batches in the order in which they were handed on (`queue`). Whoever pushes touches a source's tallies, or promises
  for it, only once all that was handed on of it is done (`settle`), and nobody else pushes that source.
- **What a batch finds is what it would have found without a pool,** but for who waits: it is judged when it is pushed, by what
  its source has brought before. That too much waits for another source is said only of a batch before which all that was
  pushed earlier is done: else what it misses may still be on its way.
- **Nobody waits in a circle.** A thread of the pool waits for the thread that takes winsets out, and for batches that were handed
  on earlier; who pushes waits for the pool; who takes winsets out, for the reader of results. The batch that was handed on first
  waits for no other.

Held by tests/threads/aggregate/test_pool.py, and `queue` under the scheduler.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from plait.core.machine.line import address, lines
from plait.core.machine.marks import brief, compiling
from plait.errors import RunError
from plait.threads.aggregate.hive import queue, usual
from plait.threads.aggregate.hive.memory import Hive
from plait.threads.atomics.native import compiled, ints
from plait.threads.ground import Ground
from plait.threads.input.short import Exported

if TYPE_CHECKING:
    from plait.threads.aggregate.hive.tallies import Tallies

ROOM: Final = 16  # batches that wait for one thread, at most

# --- a batch in a ring: Arrow's struct, rows, below which a tuple is late, what is promised besides its last ts, when it was
# pushed, the address of its source's desk; the last word is its ticket
I_BATCH, I_ROWS, I_LOW, I_FLOOR, I_PUSHED, I_DESK = range(6)
#: Why a thread returns to Python besides what `usual` says: it is to halt, its sheet is too small, a desk is to be laid.
HALTED, SMALL, STALE = -1, -2, -3


class Batch(NamedTuple):
    """What is handed on: of which source, how its time is read, what has to be held, its rows, bounds of its ts, when it came."""

    tallies: Tallies
    time: tuple[int, int, int, int]
    exported: Exported
    rows: int
    low: int
    floor: int
    last: int
    pushed_ns: int


class Pool:
    """`go_on` is `HivePusher.go_on`. By ring: `_held` the batches that are not done, or were not seen to be; the first of them is
    number `_gone` of the ring. By slot: `_until` how many batches of the ring have to be done.
    """

    def __init__(self, threads: int, ground: Ground, hive: Hive, go_on: Callable[..., None]) -> None:
        self.threads, self._hive, self._go_on = threads, hive, go_on
        self._control, self._together, self._stall = ground.control, ground.together, ground.options.stall_after_s
        self._words = lines(queue.size(threads, ROOM))
        self._words[queue.RINGS], self._words[queue.ROOM] = threads, ROOM
        self._lock, self._tickets = threading.Lock(), itertools.count(1)
        self._held: list[deque[Batch]] = [deque() for _ in range(threads)]
        self._gone, self._until = [0] * threads, dict[int, int]()

    # --- who pushes ---

    def hand_on(self, batch: Batch) -> None:
        """Waits while too many batches wait for that thread."""
        slot = batch.tallies.slot
        me = slot % self.threads
        item = np.empty(queue.ITEM_WORDS, np.int64)
        item[:6] = (
            batch.exported.struct,
            batch.rows,
            batch.low,
            batch.floor,
            batch.pushed_ns,
            address(batch.tallies.desk),
        )
        while True:
            with self._lock:
                held = self._held[me]
                number = self._gone[me] + len(held)
                item[queue.TICKET] = next(self._tickets)
                held.append(batch)  # before its thread can take it
                if offered := offer_briefly(self._words, self._control, me, item):
                    self._until[slot] = number + 1
                else:
                    held.pop()
                self._let_go(me)
            if offered:
                return
            self._await(me, number - ROOM + 1)

    def settle(self, slot: int) -> None:
        """Waits until all that was handed on of a source is done."""
        self._await(slot % self.threads, self._until.get(slot, 0))

    def _await(self, me: int, number: int) -> None:
        since, seen = time.monotonic(), -1
        while not queue.await_done(self._words, me, number):
            self._together.check()
            moved = self._together.progressed() + sum(map(self._done, range(self.threads)))
            if moved != seen or compiling():
                since, seen = time.monotonic(), moved
            elif time.monotonic() - since > self._stall:
                raise RunError(
                    f"A push waited {self._stall:g} s for the threads that update windows; {self._together.waiting()}",
                    why="batches that were pushed before are not added yet",
                    do="Read results() in another thread while you push, or raise capacity= and unread_results=",
                )

    def _done(self, me: int) -> int:
        return int(self._words[queue.ring_at(self._words, me) + queue.HEAD])

    def _let_go(self, me: int) -> None:
        """Batches that are done are held no more. Under `_lock`."""
        held, done = self._held[me], self._done(me)
        while self._gone[me] < done:
            held.popleft()
            self._gone[me] += 1

    # --- a thread of the pool ---

    def serve(self, me: int, pause: Callable[[], None]) -> None:
        """Batches, one after the other; `pause` raises at the end."""
        sheet = np.empty(0, np.int64)
        ones = np.ones(0, np.uint8)
        while True:
            words, layout = self._hive.now
            found = int(serve(self._words, self._control, me, words, layout, sheet, ones))
            if found == HALTED:
                pause()
                continue
            batch = self._first(me)
            if found == SMALL:
                ones = np.ones(2 * batch.rows, np.uint8)
                sheet = np.empty(len(ones) * batch.tallies.sheet_rows, np.int64)
            elif found == STALE:
                batch.tallies.lay_desk(batch.time)
            elif found == usual.UNUSUAL:
                raise RunError("A batch that was usual when it was pushed no longer is", do="Report this")
            else:
                ticket = int(self._words[queue.row_at(self._words, me, self._done(me)) + queue.TICKET])
                self._go_on(found, batch, sheet, self._is_first(ticket))
                queue.done(self._words, me)

    def _is_first(self, ticket: int) -> Callable[[], bool]:
        return lambda: int(queue.first_ticket(self._words)) >= ticket

    def _first(self, me: int) -> Batch:
        """The batch that this thread is at."""
        with self._lock:
            self._let_go(me)
            return self._held[me][0]


@brief
def offer_briefly(q: Any, c: Any, me: Any, item: Any) -> Any:
    """`queue.offer`, as Python calls it."""
    return queue.offer(q, c, me, item)


@compiled
def serve(q: Any, c: Any, me: Any, h: Any, layout: Any, sheet: Any, ones: Any) -> Any:
    """Batches of a ring, until Python has to see to something; then the first of the ring is the one that it is about."""
    while True:
        if not queue.awaits(q, c, me):
            return HALTED
        row = queue.row_at(q, me, q[queue.ring_at(q, me) + queue.HEAD])
        desk = ints(q[row + I_DESK], usual.DESK_WORDS)
        n = q[row + I_ROWS]
        if n * (usual.SHEET_ROWS + desk[usual.D_ROWS]) > len(sheet) or n > len(ones):
            return SMALL
        if desk[usual.D_GOOD] == 0:
            return STALE
        told = ints(desk[usual.D_TOLD], usual.TOLD_WORDS)
        told[usual.T_REF] = q[row + I_PUSHED]
        found = usual.take_usual(
            q[row + I_BATCH], n, q[row + I_LOW], q[row + I_FLOOR], h, layout, desk, sheet, ones, told
        )
        if found != usual.DONE or told[usual.T_CODE] < 0:
            return found
        queue.done(q, me)
