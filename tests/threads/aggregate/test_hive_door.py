"""The W-Hive's door under the scheduler: nobody is inside while memory is copied, whatever the schedule.

Memory here is an area of words for every layout, a word a seat. Threads that enter add to their word of the area that the layout
they came in with names; who grows copies that area to the next one. At the end the last area must have every addition. All
schedules with three preemptions are run, none left out; `races` sees that what is written inside is ordered by the
door's own words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.explore import races
from tests.explore.schedule import Failure, explore, sample
from tests.explore.twin import Twin

from plait.core.machine.line import LINE
from plait.threads.aggregate.hive import door

PACKAGE, MODULE = "plait.threads.aggregate.hive", "plait.threads.aggregate.hive.door"
AREAS = 4


class TwinDoor:
    """A door with so many seats, and the areas behind it; `now` is the layout that is in use, as `Hive.now` has it."""

    def __init__(self, calls: Any, seats: int, clock: Any, find_races: bool) -> None:
        self.calls, self.seats = calls, seats
        self.areas_at = door.INSIDE + seats * LINE
        words = [0] * (self.areas_at + AREAS * seats)
        words[door.SEATS] = seats
        self.words = words
        self.d: Any = races.Memory(words, clock, seats + 1) if find_races else words
        self.now, self.added = 0, [0] * seats

    def at(self, layout: int, seat: int) -> int:
        return self.areas_at + layout // 2 * self.seats + seat

    def come_in(self, seat: int, times: int = 1):
        for _ in range(times):
            while True:
                layout = self.now
                if (yield from self.calls["enter"](self.d, seat, layout)):
                    break
                yield from self.calls["await_open"](self.d)
            value = self.d[self.at(layout, seat)]
            yield
            self.d[self.at(layout, seat)] = value + 1
            self.added[seat] += 1
            yield from self.calls["leave"](self.d, seat)

    def grow(self, times: int = 1):
        for _ in range(times):
            layout = self.now
            yield from self.calls["shut"](self.d)
            for seat in range(self.seats):
                self.d[self.at(layout + 2, seat)] = self.d[self.at(layout, seat)]
                yield
            self.now = layout + 2
            yield from self.calls["reopen"](self.d, layout + 2)

    def finish(self) -> None:
        words = self.d.words if isinstance(self.d, races.Memory) else self.d
        assert [words[self.at(self.now, seat)] for seat in range(self.seats)] == self.added
        assert words[door.LAYOUT] == self.now
        assert not any(words[door.INSIDE + seat * LINE] for seat in range(self.seats))


def one(made: TwinDoor):
    return [made.come_in(0, 2), made.grow()]


def two(made: TwinDoor):
    return [made.come_in(0), made.come_in(1), made.grow()]


def twice(made: TwinDoor):
    return [made.come_in(0, 2), made.grow(2)]


CASES = {"one": (one, 1), "two": (two, 2), "twice": (twice, 1)}


def scenario(case: str, *, patch: tuple[str, str] | None = None, find_races: bool = False):
    threads, seats = CASES[case]
    twin = Twin(PACKAGE, patches={MODULE: [patch]} if patch else {}, steps=races if find_races else None)
    calls = twin(MODULE)

    def begin(clock):
        made = TwinDoor(calls, seats, clock, find_races)
        return threads(made), made.finish

    return begin


@pytest.mark.crossed
@pytest.mark.parametrize("find_races", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_every_schedule_with_three_preemptions(case, find_races):
    assert sum(explore(scenario(case, find_races=find_races), preemptions=3)) > 100


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_random_schedules(case):
    sample(scenario(case, find_races=True), seed=1, runs=100, switch=0.4)


class Mutant(NamedTuple):
    old: str
    new: str
    case: str = "one"
    find_races: bool = False


MUTANTS = {
    "a look at the layout before one is seen inside": Mutant(
        "    store_release(d, inside_at(seat), 1)\n    fence()\n    if load_acquire(d, LAYOUT) == layout:\n        return True\n",
        "    if load_acquire(d, LAYOUT) == layout:\n        store_release(d, inside_at(seat), 1)\n        return True\n",
    ),
    "inside, whatever the layout": Mutant(
        "    if load_acquire(d, LAYOUT) == layout:", "    if load_acquire(d, LAYOUT) >= 0:"
    ),
    "an open door taken for the same memory": Mutant(
        "    if load_acquire(d, LAYOUT) == layout:", "    if load_acquire(d, LAYOUT) & 1 == 0:"
    ),
    "who shuts does not wait": Mutant("        while load_acquire(d, inside_at(seat)) == 1:", "        while False:"),
    "one seat not looked at": Mutant("    for seat in range(d[SEATS]):", "    for seat in range(d[SEATS] - 1):", "two"),
    "the seats looked at before the door is shut": Mutant(
        "    store_release(d, LAYOUT, load_acquire(d, LAYOUT) + 1)\n    fence()\n    for seat in range(d[SEATS]):\n"
        "        while load_acquire(d, inside_at(seat)) == 1:\n            sleep_on(d, inside_at(seat), 1, SLICE_NS)\n",
        "    for seat in range(d[SEATS]):\n        while load_acquire(d, inside_at(seat)) == 1:\n"
        "            sleep_on(d, inside_at(seat), 1, SLICE_NS)\n    store_release(d, LAYOUT, load_acquire(d, LAYOUT) + 1)\n",
    ),
    "kept out, and still seen inside": Mutant("    leave(d, seat)\n    return False", "    return False"),
    "opened again under the old number": Mutant(
        "    store_release(d, LAYOUT, layout)\n", "    store_release(d, LAYOUT, layout - 2)\n"
    ),
    "left by a plain word": Mutant(
        "    store_release(d, inside_at(seat), 0)\n", "    d[inside_at(seat)] = 0\n", find_races=True
    ),
    "shut without a look that acquires": Mutant(
        "        while load_acquire(d, inside_at(seat)) == 1:",
        "        while d[inside_at(seat)] == 1:",
        find_races=True,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name):
    mutant = MUTANTS[name]
    begin = scenario(mutant.case, patch=(mutant.old, mutant.new), find_races=mutant.find_races)
    with pytest.raises(Failure) as found:
        explore(begin, preemptions=2, most_steps=2000)
    assert isinstance(found.value.cause, AssertionError), found.value
