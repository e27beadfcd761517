"""The W-Hive's memory as Python holds it: an array that grows while nobody is inside.

Everything inside names things by places, which do not change when memory is laid out anew; so growing is copying. Threads say
when they are inside, once a batch; who grows waits until none is, and keeps new ones out meanwhile (`door`, which has no lock).
That is the only wait there is: between two growths sources and taker never wait for one another here.

Growing copies all that is live, in one thread, while the others wait at the door; each growth is fourfold, so there are few.
`_growing`, a lock, is among those who grow alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from plait.core.machine.line import LINE, address, lines
from plait.core.machine.marks import brief
from plait.threads.aggregate.hive import door
from plait.threads.aggregate.hive import words as y

FIRST_NODES, FIRST_WORDS = 256, 1 << 16


@brief
def enter_briefly(d: Any, seat: Any, layout: Any) -> Any:
    """`door.enter`, as Python calls it: the GIL is not given away for it."""
    return door.enter(d, seat, layout)


@brief
def leave_briefly(d: Any, seat: Any) -> None:
    """`door.leave`."""
    door.leave(d, seat)


class Hive:
    """`now` is what compiled code takes, with the number of its layout: the two are replaced together, and entering says whether
    they are still those. After growth the array is another: an address or view of the old one is worth nothing.

    A seat is a source's slot, or `slots`: that of the thread that takes winsets out. `growths` and `grown_ns`: how often
    memory has grown, and how long the door was shut for it.
    """

    def __init__(self, *, slots: int, keys: int, nodes: int = FIRST_NODES, words: int = FIRST_WORDS) -> None:
        *header, total = y.header(slots=slots, keys=keys, nodes=nodes, words=words)
        first = lines(total)
        first[: len(header)] = header
        y.prepare(first)
        self.now: tuple[np.ndarray, int] = (first, 0)
        self.slots, self.keys = slots, keys
        self._door = lines(door.INSIDE + (slots + 1) * LINE)
        self._door[door.SEATS] = slots + 1
        self._growing = threading.Lock()
        self.growths = self.grown_ns = 0

    @property
    def door_at(self) -> int:
        return address(self._door)

    def called(self, call: Callable[..., int], seat: int, *arguments: Any) -> int:
        """A compiled call that enters and leaves by itself: no interrupt comes between. It answers -1 if it could not enter."""
        while True:
            words, layout = self.now
            answer = call(self._door, layout, words, seat, *arguments)
            if answer >= 0:
                return int(answer)
            door.await_open(self._door)

    @contextmanager
    def inside(self, seat: int) -> Iterator[np.ndarray]:
        """The hive's words, which do not grow while this thread is here.

        Not to be nested with `grow`: it would wait for itself.
        """
        while True:
            words, layout = self.now
            if enter_briefly(self._door, seat, layout):
                break
            door.await_open(self._door)
        try:
            yield words
        finally:
            leave_briefly(self._door, seat)

    def grow(self, slot: int, *, nodes: bool) -> None:
        """More nodes, or a larger arena, for one source; its thread calls this, from outside.

        All get as much: what one needs the others will need soon, and pages that nobody touches cost nothing.
        """
        with self._growing:
            began = time.monotonic_ns()
            words, layout = self.now
            try:
                door.shut(self._door)
                words = self._grown(slot, nodes)
            finally:  # there may be no memory for it
                self.now = (words, layout + 2)
                door.reopen(self._door, layout + 2)
            self.growths += 1
            self.grown_ns += time.monotonic_ns() - began

    def _grown(self, slot: int, nodes: bool) -> np.ndarray:
        """A copy with more room: the header, then each source's nodes, then each one's arena, at their places in the
        larger rings.

        Only what was not freed is copied.
        """
        old, slots = self.now[0], self.slots
        blocks = [y.SOURCES_AT + k * y.SOURCE_WORDS for k in range(slots)]
        needed = y.NODES_MASK if nodes else y.ARENA_MASK
        least = 4 * (int(old[blocks[slot] + needed]) + 1)
        sizes = {
            at: [max(int(old[s + at]) + 1, least if at == needed else 0) for s in blocks]
            for at in (y.NODES_MASK, y.ARENA_MASK)
        }
        header = y.SOURCES_AT + slots * y.SOURCE_WORDS
        total = header + sum(sizes[y.NODES_MASK]) * y.NODE_WORDS + sum(sizes[y.ARENA_MASK])
        new = lines(total + y.NODE_WORDS)
        new[:header] = old[:header]
        at = header
        for s, count in zip(blocks, sizes[y.NODES_MASK], strict=True):
            live = np.arange(int(old[s + y.NODES_FREED]), int(old[s + y.NODES_END]))
            here = new[at : at + count * y.NODE_WORDS].reshape(count, y.NODE_WORDS)
            there = old[int(old[s + y.NODES_AT]) :][: (int(old[s + y.NODES_MASK]) + 1) * y.NODE_WORDS]
            here[live & (count - 1)] = there.reshape(-1, y.NODE_WORDS)[live & int(old[s + y.NODES_MASK])]
            new[s + y.NODES_AT], new[s + y.NODES_MASK] = at, count - 1
            at += count * y.NODE_WORDS
        for s, count in zip(blocks, sizes[y.ARENA_MASK], strict=True):
            live = np.arange(int(old[s + y.ARENA_FREED]), int(old[s + y.ARENA_END]))
            new[at + (live & (count - 1))] = old[int(old[s + y.ARENA_AT]) + (live & int(old[s + y.ARENA_MASK]))]
            new[s + y.ARENA_AT], new[s + y.ARENA_MASK] = at, count - 1
            at += count
        origin = int(old[y.ORIGIN_AT])
        new[at : at + y.NODE_WORDS] = old[origin : origin + y.NODE_WORDS]
        new[y.ORIGIN_AT] = at
        return new

    @property
    def nbytes(self) -> int:
        return int(self.now[0].nbytes)
