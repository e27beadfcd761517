"""The rings between who pushes and the threads that update, under the scheduler: nothing is lost, done twice or overtaken."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.explore import races
from tests.explore.schedule import Failure, explore, sample
from tests.explore.twin import Twin

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL
from plait.threads import words as shared
from plait.threads.aggregate.hive import queue

PACKAGES = ("plait.threads.aggregate.hive", "plait.threads.gate")
MODULE = "plait.threads.aggregate.hive.queue"


class TwinQueue:
    """Rings of one batch, so that all wait for room; a thread that pushes by turns, one a ring that takes."""

    def __init__(self, calls: Any, rings: int, batches: int, clock: Any, find_races: bool) -> None:
        self.calls, self.rings, self.batches = calls, rings, batches
        words, control = [0] * queue.size(rings, 1), [0] * (shared.CONTROL_WORDS + rings * LINE)
        words[queue.RINGS], words[queue.ROOM] = rings, 1
        self.words = words
        self.q: Any = races.Memory(words, clock, rings + 1) if find_races else words
        self.c: Any = races.Memory(control, clock, rings + 1) if find_races else control
        self.taken: list[list[tuple[int, ...]]] = [[] for _ in range(rings)]
        self.handed = 0

    def item(self, number: int) -> list[int]:
        return [*(10 * number + k for k in range(queue.TICKET)), number]

    def push(self):
        for number in range(1, self.batches + 1):
            me = number % self.rings
            while not (yield from self.calls["offer"](self.q, self.c, me, self.item(number))):
                yield from self.calls["await_done"](self.q, me, (number - 1) // self.rings)
            self.handed = number
        for me in range(self.rings):
            count = sum(number % self.rings == me for number in range(1, self.batches + 1))
            while not (yield from self.calls["await_done"](self.q, me, count)):
                pass
            assert len(self.taken[me]) == count

    def take(self, me: int):
        mine = [number for number in range(1, self.batches + 1) if number % self.rings == me]
        for number in mine:
            assert (yield from self.calls["awaits"](self.q, self.c, me))
            at = self.calls["row_at"](self.q, me, len(self.taken[me]))
            row = tuple(self.q[at + k] for k in range(queue.ITEM_WORDS))
            assert list(row) == self.item(number)
            first = yield from self.calls["first_ticket"](self.q)
            assert first <= number
            self.taken[me].append(row)
            yield from self.calls["done"](self.q, me)

    def finish(self) -> None:
        assert sum(map(len, self.taken)) == self.batches


CASES = {"one": (1, 2), "two": (2, 2)}


def scenario(case: str, *, patch: tuple[str, str] | None = None, find_races: bool = False):
    rings, batches = CASES[case]
    twin = Twin(PACKAGES, patches={MODULE: [patch]} if patch else {}, steps=races if find_races else None)
    calls = twin(MODULE)

    def begin(clock):
        made = TwinQueue(calls, rings, batches, clock, find_races)
        return [made.push(), *(made.take(me) for me in range(rings))], made.finish

    return begin


@pytest.mark.crossed
@pytest.mark.parametrize("find_races", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_every_schedule_with_two_preemptions(case, find_races):
    assert sum(explore(scenario(case, find_races=find_races), preemptions=2)) > 50


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_random_schedules(case):
    sample(scenario(case, find_races=True), seed=1, runs=100, switch=0.4)


def test_an_empty_queue_has_no_first_batch():
    words = np.array([2, 1] + [0] * (queue.size(2, 1) - 2), np.int64)
    assert queue.first_ticket(words) == AFTER_ALL


class Mutant(NamedTuple):
    old: str
    new: str
    case: str = "one"
    find_races: bool = False


MUTANTS = {
    "told before it is written": Mutant(
        "    row = row_at(q, me, tail)\n", "    row = row_at(q, me, tail)\n    store_release(q, at + TAIL, tail + 1)\n"
    ),
    "written over what is not done": Mutant(
        "    if tail - load_acquire(q, at + HEAD) >= q[ROOM]:", "    if tail - load_acquire(q, at + HEAD) > q[ROOM]:"
    ),
    "asleep without a last look": Mutant(
        "        if load_acquire(q, at + TAIL) > q[at + HEAD] or load_acquire(c, shared.HALT) != 0:\n            cancel",
        "        if False:\n            cancel",
    ),
    "nobody woken for a batch": Mutant("    if load_acquire(c, event + 1) > 0:", "    if False:"),
    "a batch told by a plain word": Mutant(
        "    store_release(q, at + TAIL, tail + 1)\n", "    q[at + TAIL] = tail + 1\n", find_races=True
    ),
    "the first of one ring only": Mutant("    for me in range(q[RINGS]):", "    for me in range(0):"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name):
    mutant = MUTANTS[name]
    begin = scenario(mutant.case, patch=(mutant.old, mutant.new), find_races=mutant.find_races)
    with pytest.raises(Failure):
        explore(begin, preemptions=2, most_steps=2000)
