"""The W-Hive's memory as Python holds it: an array that grows while nobody is inside.

Everything inside names things by places, which do not change when memory is laid out anew; so growing is copying. Threads say
when they are inside (`inside`), once a batch; who grows waits until none is, and keeps new ones out meanwhile. That is the
only wait there is: between two growths sources and taker never wait for one another here.

Cost: entering and leaving take a lock each, for a batch and not for a tuple. Growing copies all that is live, in one
thread, while the others wait at the door; each growth is fourfold, so there are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from plait.core.machine.line import lines
from plait.threads.aggregate.hive import words as y
from plait.threads.guard import guarded

FIRST_NODES, FIRST_WORDS = 256, 1 << 16


class Hive:
    """`words` is what compiled code takes; read it anew each time one is inside.

    `_inside` counts threads between entering and leaving; `_growing` shuts the door. After growth `words` is another
    array: an address or view of the old one is worth nothing.
    """

    def __init__(self, *, slots: int, keys: int, nodes: int = FIRST_NODES, words: int = FIRST_WORDS) -> None:
        *header, total = y.header(slots=slots, keys=keys, nodes=nodes, words=words)
        self.words = lines(total)
        self.words[: len(header)] = header
        y.prepare(self.words)
        self.slots, self.keys = slots, keys
        self._guard, self._changed = guarded()
        self._inside, self._growing = 0, False

    @contextmanager
    def inside(self) -> Iterator[np.ndarray]:
        """The hive's words, which do not grow while this thread is here.

        Not to be nested with `grow`: it would wait for itself.
        """
        with self._guard:
            while self._growing:
                self._changed.wait()
            self._inside += 1
        try:
            yield self.words
        finally:
            with self._guard:
                self._inside -= 1
                if self._growing:
                    self._changed.notify_all()

    def grow(self, slot: int, *, nodes: bool) -> None:
        """More nodes, or a larger arena, for one source; its thread calls this, from outside.

        All get as much: what one needs the others will need soon, and pages that nobody touches cost nothing.
        """
        with self._guard:
            while self._growing:
                self._changed.wait()
            self._growing = True
            try:
                while self._inside:
                    self._changed.wait()
                self.words = self._grown(slot, nodes)
            finally:  # there may be no memory for it
                self._growing = False
                self._changed.notify_all()

    def _grown(self, slot: int, nodes: bool) -> np.ndarray:
        """A copy with more room: the header, then each source's nodes, then each one's arena, at their places in the
        larger rings.

        Only what was not freed is copied.
        """
        old, slots = self.words, self.slots
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
        return int(self.words.nbytes)
