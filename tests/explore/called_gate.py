"""A compiled gate that tests call from Python: columns in, codes and columns out, and no error but what a test asserts.

A run has no such front: its sources are judged and sorted by `plait.threads.input`, its readers are compiled loops.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from plait.threads.gate import calls, codes, elastic, frontier, ring, skiplist
from plait.threads.gate import words as gate_words

KINDS = {"skiplist": (skiplist, "nodes"), "ring": (ring, "rings")}
SLICE_NS = 20_000_000


def rank(origin: tuple[int, int]) -> int:
    """A source's place in ties: its input, then its position among that input's sources."""
    return origin[0] << 32 | origin[1]


class Ready(NamedTuple):
    """What a read gives, in total order."""

    ts: np.ndarray
    origin: np.ndarray
    seq: np.ndarray

    def rows(self) -> list[tuple[int, int, int]]:
        return list(zip(*(column.tolist() for column in self), strict=True))


class CalledGate:
    def __init__(self, kind: str, sources: int | Sequence[tuple[int, int]], *, readers: int = 1, capacity: int = 65_536,
                 pending: int = 65_536, max_sources: int = 0, max_readers: int = 0) -> None:  # fmt: skip
        origins = [(0, i) for i in range(sources)] if isinstance(sources, int) else list(sources)
        self.calls, store = KINDS[kind]
        self.words = gate_words.allocate(
            slots=max_sources or len(origins),
            seats=max_readers or readers,
            capacity=capacity,
            pending=pending,
            store=store,
        )
        gate_words.prepare(self.words, [rank(origin) for origin in origins], readers)
        if store == "nodes":
            gate_words.prepare_nodes(self.words)
        self._next_seq = [0] * int(self.words[gate_words.SLOTS])

    # --- sources ---

    def offer(self, source: int, ts: Sequence[int], seq: Sequence[int] | None = None) -> int:
        """Add what there is room for, in order; the last ts is the promise. How many, or a code."""
        columns = self._columns(source, ts, seq)
        number = int(self.calls.add(self.words, source, *columns, 0, len(ts), int(ts[-1])))
        self._next_seq[source] += max(number, 0)
        return number

    def add(self, source: int, ts: Sequence[int], *, patient: bool = False) -> int:
        """Add all, sleeping while readers are behind: how many, or the code that ended it."""
        columns, done = self._columns(source, ts, None), 0
        while done < len(ts):
            number = int(self.calls.add_waiting(
                self.words, source, *columns, done, len(ts), int(ts[-1]), SLICE_NS, patient
            ))  # fmt: skip
            if number < 0 and number != codes.FULL:
                return number
            done += max(number, 0)
            self._next_seq[source] += max(number, 0)
        return done

    def _columns(self, source: int, ts: Sequence[int], seq: Sequence[int] | None) -> tuple[np.ndarray, ...]:
        first = self._next_seq[source]
        order = np.arange(first, first + len(ts)) if seq is None else np.array(seq, np.int64)
        return np.array(ts, np.int64), order, np.zeros(len(ts), np.int64)

    def heartbeat(self, source: int, ts: int) -> int:
        return int(calls.heartbeat(self.words, source, ts))

    def end(self, source: int) -> int:
        return int(calls.end(self.words, source))

    def frontier(self) -> tuple[int, int]:
        value, holder = frontier.lowest(self.words)
        return int(value), int(holder)

    # --- readers ---

    def read(self, reader: int = 0, most: int = 4096, *, timeout_s: float = 0.0) -> Ready | int | None:
        """The next ready tuples; none if nothing gets ready in time; None once there will be no more; or a code."""
        columns = [np.empty(most, np.int64) for _ in range(4)]
        deadline = time.monotonic() + timeout_s
        while True:
            left_ns = min(int((deadline - time.monotonic()) * 1e9), SLICE_NS)
            if left_ns > 0:
                number = int(self.calls.read_waiting(self.words, reader, most, *columns, left_ns))
            else:
                number = int(self.calls.read(self.words, reader, most, *columns))
            if number == codes.DONE:
                return None
            if number < 0:
                return number
            if number > 0 or left_ns <= 0:
                return Ready(*(column[:number] for column in columns[:3]))

    # --- elastic ---

    def announce_sources(
        self, sources: Sequence[int], origins: Sequence[tuple[int, int]], min_ts: int, change: int = 0
    ) -> int:
        pairs = sorted(zip(sources, map(rank, origins), strict=True))
        slots, ranks = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
        while (
            code := int(elastic.announce_sources(self.words, slots, ranks, len(slots), min_ts, change))
        ) == codes.INSIDE:
            time.sleep(0)
        return code

    def remove_sources(self, sources: Sequence[int], change: int = 0) -> int:
        slots = np.array(sorted(sources), np.int64)
        return int(elastic.remove_sources(self.words, slots, len(slots), change))

    def announce_readers(self, readers: Sequence[int], parent: int, change: int = 0) -> int:
        seats = np.array(sorted(readers), np.int64)
        while (code := int(elastic.announce_readers(self.words, seats, len(seats), parent, change))) == codes.INSIDE:
            time.sleep(0)
        return code

    def remove_readers(self, readers: Sequence[int], change: int = 0) -> int:
        seats = np.array(sorted(readers), np.int64)
        return int(elastic.remove_readers(self.words, seats, len(seats), change))

    def close(self) -> None:
        calls.close(self.words)
