"""Tuples a second through a gate: sources x readers x batch size, beside what the papers compare with.

Each source is a thread that pushes its share in batches, each reader a thread that reads to the end; the clock runs from the
first thread's start to the last one's end, and every reader's count and checksum are compared with what was sent. All loops
are compiled and hold no lock of Python's. Every contender runs once before it is timed, and the timed runs of all contenders
take turns, so that a busy moment hits all of them. Figures are medians.

Ratios: `ring_vs_skiplist`, `skiplist_mtuples_per_s`, `ring_mtuples_per_s` (2 sources, 1 reader, batch 1024),
`skiplist_8_vs_2_sources` (1 reader, batch 1024).
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from plait.errors import RunError
from plait.threads.atomics import compiled, pure, sched_yield, unsigned
from plait.threads.gate import words as gate_words
from plait.threads.gate.calls import end
from plait.threads.gate.codes import DONE, FULL, STUCK
from plait.threads.gate.ring import add_waiting as ring_add
from plait.threads.gate.ring import read_waiting as ring_read
from plait.threads.gate.skiplist import add_waiting as list_add
from plait.threads.gate.skiplist import read_waiting as list_read
from plait_bench.gate_rivals import finish, put_free, put_locked, put_plain, queues, take_free, take_locked, take_plain
from plait_bench.machine import machine

SOURCES: Final = (2, 8, 32)
READERS: Final = (1, 2)
BATCHES: Final = (1, 64, 1024, 8192)
LIMIT: Final = 8_191  # capacity and pending: with the reader's own node that makes rings of 16,384
READ: Final = 4096
NAP_NS: Final = 1_000_000

# --- the loops: one pair a contender, since compiled code can't be handed a function without losing its cache --------


@compiled
def feed_skiplist(g, slot, readers, ts, seq, batch):
    low = 0
    while low < len(ts):
        high = min(len(ts), low + batch)
        number = list_add(g, slot, ts, seq, seq, low, high, ts[high - 1], NAP_NS, True)
        if number > 0:
            low += number
        elif number != FULL and number != STUCK:
            return number
    return end(g, slot)


@compiled
def feed_ring(g, slot, readers, ts, seq, batch):
    low = 0
    while low < len(ts):
        high = min(len(ts), low + batch)
        number = ring_add(g, slot, ts, seq, seq, low, high, ts[high - 1], NAP_NS, True)
        if number > 0:
            low += number
        elif number != FULL and number != STUCK:
            return number
    return end(g, slot)


@compiled
def feed_plain(g, slot, readers, ts, seq, batch):
    low = 0
    while low < len(ts):
        number = put_plain(g, slot, ts, seq, seq, low, min(len(ts), low + batch))
        if number > 0:
            low += number
        else:
            sched_yield()
    return end(g, slot)


@compiled
def feed_locked(q, slot, readers, ts, seq, batch):
    low = 0
    while low < len(ts):
        high = min(len(ts), low + batch)
        for reader in range(readers):
            done = low
            while done < high:
                number = put_locked(q, reader, slot, ts, seq, seq, done, high)
                done += number
                if number == 0:
                    sched_yield()
        low = high
    finish(q, readers, slot)
    return 0


@compiled
def feed_free(q, slot, readers, ts, seq, batch):
    low = 0
    while low < len(ts):
        high = min(len(ts), low + batch)
        for reader in range(readers):
            done = low
            while done < high:
                number = put_free(q, reader, slot, ts, seq, seq, done, high)
                done += number
                if number == 0:
                    sched_yield()
        low = high
    finish(q, readers, slot)
    return 0


@pure
def checksum(ts, origin, number, before):
    """Each tuple times its place in the whole sequence, so that order counts; wraps round."""
    total = unsigned(0)
    for i in range(unsigned(number)):
        total += (unsigned(before + 1) + i) * (unsigned(ts[i]) * unsigned(64) + unsigned(origin[i]))
    return total


@compiled
def drain_skiplist(g, reader, ts, origin, seq, ref):
    count = 0
    total = unsigned(0)
    while True:
        number = list_read(g, reader, READ, ts, origin, seq, ref, NAP_NS)
        if number < 0:
            return count if number == DONE else number, total
        total += checksum(ts, origin, number, count)
        count += number


@compiled
def drain_ring(g, reader, ts, origin, seq, ref):
    count = 0
    total = unsigned(0)
    while True:
        number = ring_read(g, reader, READ, ts, origin, seq, ref, NAP_NS)
        if number < 0:
            return count if number == DONE else number, total
        total += checksum(ts, origin, number, count)
        count += number


@compiled
def drain_plain(g, reader, ts, origin, seq, ref):
    count = 0
    total = unsigned(0)
    while True:
        number = take_plain(g, reader, READ, ts, origin, seq, ref)
        if number < 0:
            return count if number == DONE else number, total
        total += checksum(ts, origin, number, count)
        count += number
        if number == 0:
            sched_yield()


@compiled
def drain_locked(q, reader, ts, origin, seq, ref):
    count = 0
    total = unsigned(0)
    while True:
        number = take_locked(q, reader, READ, ts, origin, seq, ref)
        if number < 0:
            return count if number == DONE else number, total
        total += checksum(ts, origin, number, count)
        count += number
        if number == 0:
            sched_yield()


@compiled
def drain_free(q, reader, ts, origin, seq, ref):
    count = 0
    total = unsigned(0)
    while True:
        number = take_free(q, reader, READ, ts, origin, seq, ref)
        if number < 0:
            return count if number == DONE else number, total
        total += checksum(ts, origin, number, count)
        count += number
        if number == 0:
            sched_yield()


class Contender(NamedTuple):
    name: str
    make: Callable[[int, int], np.ndarray]
    feed: Any
    drain: Any
    why: str
    share: int = 1  # of the tuples, one in so many: a slow contender needs fewer for the same time


def _gate(store: str) -> Callable[[int, int], np.ndarray]:
    def make(sources: int, readers: int) -> np.ndarray:
        words = gate_words.allocate(slots=sources, seats=readers, capacity=LIMIT, pending=LIMIT, store=store)
        gate_words.prepare(words, list(range(sources)), readers)
        if store == "nodes":
            gate_words.prepare_nodes(words)
        return words

    return make


def _queues(sources: int, readers: int) -> np.ndarray:
    return queues(sources, readers, LIMIT + 1)


CONTENDERS: Final = (
    Contender("skiplist", _gate("nodes"), feed_skiplist, drain_skiplist,
              "sorted once, on insertion, for all readers; a CAS and a few cache lines a tuple"),
    Contender("ring", _gate("rings"), feed_ring, drain_ring,
              "sources copy columns and share no written word; each reader merges, log(sources) a tuple"),
    Contender("locked multi-queue", _queues, feed_locked, drain_locked,
              "one lock a batch; a copy for each reader; a look at every source for each tuple"),
    Contender("lock-free multi-queue", _queues, feed_free, drain_free,
              "two CAS a tuple to enqueue, one to take; a look at every source for each tuple"),
    Contender("plain skip list", _gate("nodes"), feed_plain, drain_plain,
              "searches from the front for each tuple; asks every source before each tuple", 20),
)  # fmt: skip


def run(quick: bool = False) -> dict[str, Any]:
    """Measure. `quick` takes the few combinations that the ratios need, with fewer tuples and runs."""
    grid = [(2, 1, 64), (2, 1, 1024), (8, 1, 1024)] if quick else [
        (sources, readers, batch) for sources in SOURCES for readers in READERS for batch in BATCHES
    ]  # fmt: skip
    rows = []
    for sources, readers, batch in grid:
        total = _size(sources, batch, quick)
        rows += _measure(sources, readers, batch, total, runs=3 if quick else 5)
    return {"bench": "gate", "machine": machine(), "rows": rows, "ratios": _ratios(rows)}


def _size(sources: int, batch: int, quick: bool) -> int:
    total = {1: 120_000, 64: 1_000_000}.get(batch, 4_000_000)
    return total // (4 if sources > 8 else 1) // (4 if quick else 1)


def columns_of(sources: int, total: int) -> list[np.ndarray]:
    """Sources of one rate, whose tuples lie between one another's; about one ts in three is shared."""
    rng = np.random.default_rng(sources)
    return [np.cumsum(rng.integers(0, 2 * sources + 1, total // sources)).astype(np.int64) for _ in range(sources)]


def _measure(sources: int, readers: int, batch: int, total: int, *, runs: int) -> list[dict[str, Any]]:
    columns = columns_of(sources, total)
    number = total // sources
    few = [column[: 4 * batch + 1] for column in columns]
    speeds: dict[str, list[float]] = {contender.name: [] for contender in CONTENDERS}
    for contender in CONTENDERS:
        passed(contender, few, readers, batch, expected(few))
    parts = {share: [column[: number // share] for column in columns] for share in {c.share for c in CONTENDERS}}
    answers = {share: expected(part) for share, part in parts.items()}
    for _ in range(runs):
        for contender in CONTENDERS:
            part, answer = parts[contender.share], answers[contender.share]
            speeds[contender.name].append(passed(contender, part, readers, batch, answer).tuples_per_s)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    return [
        {
            "contender": contender.name,
            "sources": sources,
            "readers": readers,
            "batch": batch,
            "tuples_per_s": medians[contender.name],
            "best": medians[contender.name] == max(medians.values()),
            "slowest": min(speeds[contender.name]),
            "fastest": max(speeds[contender.name]),
            "why": contender.why,
        }
        for contender in CONTENDERS
    ]


def expected(columns: list[np.ndarray]) -> tuple[int, int]:
    """Count and checksum of the sorted whole."""
    ts = np.concatenate(columns)
    origin = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    order = np.lexsort((origin, ts))
    places = np.arange(1, len(ts) + 1, dtype=np.uint64)
    return len(ts), int((places * (ts[order] * 64 + origin[order]).astype(np.uint64)).sum())


class Passed(NamedTuple):
    """One run: how long it took, and the processor time of each thread."""

    tuples: int
    wall_s: float
    sources_s: tuple[float, ...]
    readers_s: tuple[float, ...]

    @property
    def tuples_per_s(self) -> float:
        """Each counted once however many readers read it."""
        return self.tuples / self.wall_s


def passed(
    contender: Contender, columns: list[np.ndarray], readers: int, batch: int, answer: tuple[int, int]
) -> Passed:
    """Run all sources and readers once; every reader has to have the answer (`expected`)."""
    words, seq = contender.make(len(columns), readers), np.arange(max(map(len, columns)), dtype=np.int64)
    counts = [(0, 0)] * readers
    spent_s = [0.0] * (len(columns) + readers)

    def push(slot: int) -> None:
        column = columns[slot]
        contender.feed(words, slot, readers, column, seq[: len(column)], batch)
        spent_s[slot] = time.thread_time()

    def pull(reader: int) -> None:
        number, total = contender.drain(words, reader, *(np.empty(READ, dtype=np.int64) for _ in range(4)))
        counts[reader] = int(number), int(total)
        spent_s[len(columns) + reader] = time.thread_time()

    threads = [threading.Thread(target=push, args=(slot,)) for slot in range(len(columns))]
    threads += [threading.Thread(target=pull, args=(reader,)) for reader in range(readers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - start
    if counts != [answer] * readers:
        raise RunError(f"{contender.name}: readers have {counts} where the sorted whole has {answer} (count, checksum)")
    return Passed(answer[0], elapsed, tuple(spent_s[: len(columns)]), tuple(spent_s[len(columns) :]))


def _ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    speed = {
        (row["contender"], row["sources"]): row["tuples_per_s"]
        for row in rows
        if row["readers"] == 1 and row["batch"] == 1024
    }
    return {
        "ring_vs_skiplist": speed["ring", 2] / speed["skiplist", 2],
        "skiplist_mtuples_per_s": speed["skiplist", 2] / 1e6,
        "ring_mtuples_per_s": speed["ring", 2] / 1e6,
        "skiplist_8_vs_2_sources": speed["skiplist", 8] / speed["skiplist", 2],
    }
