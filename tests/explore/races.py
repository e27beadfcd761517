"""Memory that notices data races: plain words touched by two threads with no release and acquire between them.

The twin takes one step at a time, so by itself it can't see that an order is too weak. This memory can see half of it:
it keeps for each thread what that thread knows of the others (vector clocks, as FastTrack and ThreadSanitizer do), passes
this on only through release stores, read-modify-writes and the acquire loads that read them, and raises when a plain
access does not know of the other thread's access to the same word. If no schedule raises, plain words behave as if
everything were sequentially consistent; what remains to be argued in words are the fences between atomic steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.explore.schedule import Clock


class RaceError(AssertionError):
    """Two threads touched a plain word, one of them writing, and neither knew of the other."""


class Memory:
    """Indexed like a list of ints by plain code; atomic steps go through the methods below."""

    def __init__(self, words: Iterable[int], clock: Clock, threads: int) -> None:
        self.words = list(words)
        self.clock = clock
        count = len(self.words)
        self.base = clock.places(count)
        self.changes = 0  # how many stores have changed a word
        self.known = [[0] * threads for _ in range(threads)]
        for thread in range(threads):
            self.known[thread][thread] = 1
        # Per word: (thread, time) of the last plain write and the last atomic one, times of plain reads by thread.
        self.wrote: list[tuple[int, int] | None] = [None] * count
        self.stored: list[tuple[int, int] | None] = [None] * count
        self.looked: list[dict[int, int] | None] = [None] * count
        self.passed: list[list[int] | None] = [None] * count

    def _require(self, at: int, access: tuple[int, int] | None, what: str) -> None:
        thread = self.clock.thread
        if access is not None and access[0] != thread and self.known[thread][access[0]] < access[1]:
            raise RaceError(f"word {at}: thread {thread} {what} thread {access[0]}, without knowing of it")

    def __getitem__(self, at: int) -> int:
        thread = self.clock.thread
        if thread >= 0:
            # Most words are one thread's own: that is seen without a call.
            wrote, stored, looked = self.wrote[at], self.stored[at], self.looked[at]
            if wrote is not None and wrote[0] != thread:
                self._require(at, wrote, "reads what was written by")
            if stored is not None and stored[0] != thread:
                self._require(at, stored, "reads plainly what was stored by")
            if looked is None:
                looked = self.looked[at] = {}
            looked[thread] = self.known[thread][thread]
        return self.words[at]

    def __setitem__(self, at: int, value: int) -> None:
        thread = self.clock.thread
        if thread >= 0:
            self._require(at, self.wrote[at], "writes over")
            self._require(at, self.stored[at], "writes over an atomic store by")
            for reader, time in (self.looked[at] or {}).items():
                self._require(at, (reader, time), "writes over what is read by")
            self.wrote[at], self.looked[at] = (thread, self.known[thread][thread]), None
        self.changes += self.words[at] != value
        self.words[at] = value

    def __len__(self) -> int:
        return len(self.words)

    def acquire(self, at: int) -> int:
        thread = self.clock.thread
        if thread >= 0:
            self._require(at, self.wrote[at], "acquires what was written plainly by")
            passed = self.passed[at]
            if passed is not None:
                self.known[thread] = list(map(max, self.known[thread], passed))
        return self.words[at]

    def release(self, at: int, value: int, *, joined: bool = False) -> None:
        """`joined`: the store of a read-modify-write, which also passes on what earlier stores had passed."""
        thread = self.clock.thread
        if thread >= 0:
            self._require(at, self.wrote[at], "stores over what was written plainly by")
            for reader, time in (self.looked[at] or {}).items():
                self._require(at, (reader, time), "stores over what is read plainly by")
            known, passed = self.known[thread], self.passed[at]
            self.passed[at] = list(map(max, known, passed)) if joined and passed else list(known)
            self.stored[at] = (thread, known[thread])
            known[thread] += 1
        self.changes += self.words[at] != value
        self.words[at] = value


def load_acquire(words: Any, at: int) -> int:
    return words.acquire(at) if isinstance(words, Memory) else int(words[at])


def store_release(words: Any, at: int, value: int) -> None:
    if isinstance(words, Memory):
        words.release(at, value)
    else:
        words[at] = value


def cas(words: Any, at: int, expected: int, value: int) -> bool:
    if load_acquire(words, at) != expected:
        return False
    if isinstance(words, Memory):
        words.release(at, value, joined=True)
    else:
        words[at] = value
    return True


def fetch_add(words: Any, at: int, value: int) -> int:
    old = load_acquire(words, at)
    if isinstance(words, Memory):
        words.release(at, old + value, joined=True)
    else:
        words[at] = old + value
    return old
