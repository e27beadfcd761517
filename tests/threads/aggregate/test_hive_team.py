"""Helpers of the thread that takes winsets out, under the scheduler: every portion is done once, whole, and seen when all are."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.explore import races
from tests.explore.schedule import Failure, explore, sample
from tests.explore.twin import Twin

from plait.core.machine.line import LINE
from plait.threads import words as shared
from plait.threads.aggregate.hive import team

PACKAGES = ("plait.threads.aggregate.hive", "plait.threads.gate")
MODULE = "plait.threads.aggregate.hive.team"
EVENT = shared.CONTROL_WORDS
#: A thread sleeps at once: what it does before that is the same step, again and again.
AT_ONCE = ("LOOKS: Final = 1 << 11", "LOOKS: Final = 0")


class TwinTeam:
    """Pieces of work whose portions write a word of their own, which is the job's number; `most` portions each."""

    def __init__(self, calls: Any, helpers: int, portions: tuple[int, ...], clock: Any, find_races: bool) -> None:
        self.calls, self.helpers, self.portions = calls, helpers, portions
        words, control = [0] * (team.TEAM_WORDS + max(portions)), [0] * (shared.CONTROL_WORDS + LINE)

        def memory(given: list[int]) -> Any:
            return races.Memory(given, clock, helpers + 1) if find_races else given

        self.q, self.c = memory(words), memory(control)
        self.done: list[tuple[int, int]] = []

    def portion(self, portion: int) -> None:
        number = int(self.q[team.JOB])
        assert portion < self.portions[number - 1]
        self.q[team.TEAM_WORDS + portion] = number
        self.done.append((number, portion))

    def take_portions(self):
        portion = yield from self.calls["claim"](self.q)
        while portion != team.NONE:
            self.portion(portion)
            yield from self.calls["done"](self.q)
            portion = yield from self.calls["claim"](self.q)

    def offer(self):
        for number, portions in enumerate(self.portions, 1):
            yield from self.calls["offer"](self.q, self.c, EVENT, number, portions)
            yield from self.take_portions()
            yield from self.calls["await_all"](self.q)
            assert [int(self.q[team.TEAM_WORDS + k]) for k in range(portions)] == [number] * portions
        yield from self.halt()

    def halt(self):
        """As `life.halt`."""
        self.calls["store_release"](self.c, shared.HALT, 1)
        yield None
        self.calls["fetch_add"](self.c, EVENT, 1)

    def help(self):
        while (yield from self.calls["awaits"](self.q, self.c, EVENT)):
            yield from self.take_portions()

    def finish(self) -> None:
        expected = [(number, k) for number, portions in enumerate(self.portions, 1) for k in range(portions)]
        assert sorted(self.done) == expected


CASES = {"one helper, two pieces": (1, (2, 2)), "two helpers": (2, (2,)), "more and fewer": (1, (3, 1))}


def scenario(case: str, *, patch: tuple[str, str] | None = None, find_races: bool = False):
    helpers, portions = CASES[case]
    patches = [AT_ONCE, *([patch] if patch else [])]
    twin = Twin(PACKAGES, patches={MODULE: patches}, steps=races if find_races else None)
    calls = twin(MODULE)

    def begin(clock):
        made = TwinTeam(calls, helpers, portions, clock, find_races)
        return [made.offer(), *(made.help() for _ in range(helpers))], made.finish

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


class Mutant(NamedTuple):
    old: str
    new: str
    case: str = "one helper, two pieces"
    find_races: bool = False


MUTANTS = {
    "taken without a look at who was first": Mutant(
        "        if cas(q, CLAIM, word, word + (1 << _BITS)):\n",
        "        store_release(q, CLAIM, word + (1 << _BITS))\n        if True:\n",
    ),
    "told before it is written": Mutant(
        "    q[JOB] = job\n    store_release(q, DONE, 0)\n    store_release(q, CLAIM, portions)\n",
        "    store_release(q, DONE, 0)\n    store_release(q, CLAIM, portions)\n    q[JOB] = job\n",
        find_races=True,
    ),
    "counted anew when it is told": Mutant(
        "    store_release(q, DONE, 0)\n    store_release(q, CLAIM, portions)\n",
        "    store_release(q, CLAIM, portions)\n    store_release(q, DONE, 0)\n",
    ),
    "not waited for": Mutant(
        "        if count == portions_of(load_acquire(q, CLAIM)):\n            return",
        "        return",
        find_races=True,
    ),
    "told that it is done before it is": Mutant("    store_release(q, DONE, 0)\n", ""),
    "asleep without a last look": Mutant(
        "        if open_portion(q) or load_acquire(c, shared.HALT) != 0:\n", "        if False:\n"
    ),
    "a portion told by a plain word": Mutant(
        "    store_release(q, CLAIM, portions)\n", "    q[CLAIM] = portions\n", find_races=True
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name):
    mutant = MUTANTS[name]
    begin = scenario(mutant.case, patch=(mutant.old, mutant.new), find_races=mutant.find_races)
    with pytest.raises(Failure):
        explore(begin, preemptions=2, most_steps=2000)
