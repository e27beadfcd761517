"""What merging alone costs: rings that are full, one gatherer or a tree of mergers, and no rows made of what comes out.

In processor time of one thread, mergers one after the other: what each level costs, whatever else the machine does.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from plait.core.machine.line import LINE, address, lines
from plait.order import AFTER_ALL
from plait.threads.join.loop import gather
from plait.threads.join.loop import words as o
from plait.threads.join.loop.gather import Precision
from plait.threads.join.memory import Merger
from plait.threads.join.strategies.plan import Wish
from plait.threads.join.strategies.splitjoin import plan
from plait.threads.words import CONTROL_WORDS

PRECISIONS = {"comparison": Precision(0), "1": Precision(1), "16": Precision(16), "never": Precision(-1)}


class Ring:
    """A worker that has ended: of each trigger it has one result."""

    def __init__(self, worker: int, results: int) -> None:
        self.words = w = lines(o.WORDS)
        self.out = np.zeros((results, o.E_WORDS), np.int64)
        self.out[:, o.E_TS] = np.arange(results)
        self.out[:, o.E_TRIGGER], self.out[:, o.E_PARTNER] = 2 * np.arange(results), worker
        w[o.OUT], w[o.OUT_MASK] = address(self.out), results - 1
        w[o.OUT_TAIL], w[o.DONE_RANK] = results, results
        w[o.DONE_TS], w[o.LIVE_TS], w[o.LIVE_TS + 1] = AFTER_ALL, AFTER_ALL, AFTER_ALL


def merging(workers: int, precision: Precision, fan_in: int | None, results: int) -> tuple[float, float]:
    """Nanoseconds a result: of whoever reads, and of all mergers together."""
    control = lines(CONTROL_WORDS + LINE * o.EVENTS)
    made = plan(Wish(workers, fan_in=fan_in))
    gathered: list[Any] = [Ring(k, results) for k in range(workers)]
    spent = 0.0
    for inputs in made.mergers:
        # Room for more than there is: nobody takes anything before it is all there.
        room = 2 << (sum(len(gathered[k].out) for k in inputs) - 1).bit_length()
        merger = Merger([gathered[k] for k in inputs], precision, 0, room)
        begin = time.thread_time()
        gather.work_merger(*merger.arguments(control))
        spent += time.thread_time() - begin
        gathered.append(merger)
    rings = np.array([address(gathered[k].words) for k in made.roots])
    taken, known = np.zeros(len(rings), np.int64), np.zeros((3, len(rings)), np.int64)
    dest, seen = np.zeros((o.E_WORDS, 1 << 16), np.int64), np.zeros(gather.SEEN, np.int64)
    begin, number = time.thread_time(), 0
    while number != gather.ENDED:
        number = gather.gather(control, rings, taken, known, precision.triggers, 0, dest.shape[1], dest, seen)
    read = time.thread_time() - begin
    return read / (workers * results) * 1e9, spent / (workers * results) * 1e9


def rows(quick: bool) -> list[dict[str, Any]]:
    found = []
    for name, precision in PRECISIONS.items():
        for workers in (2, 4) if quick else (2, 4, 8, 16):
            for fan_in in (None, 2, 4):
                if fan_in is not None and fan_in >= workers:
                    continue
                best = min(
                    merging(workers, precision, fan_in, 1 << (8 if quick else 14)) for _ in range(1 if quick else 3)
                )
                found.append({
                    "case": "merging alone", "punctuate": name, "workers": workers, "fan_in": fan_in, "reader_ns": best[0],
                    "mergers_ns": best[1],
                })  # fmt: skip
    return found
