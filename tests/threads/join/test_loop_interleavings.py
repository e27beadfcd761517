"""The workers' loop under the scheduler, as it is compiled: all schedules with one preemption; and planted faults.

Every run is checked to give the definition's sequence, to leave nobody asleep, to have told the gate of all tuples, and to be
free of data races on plain words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import examples
from tests.explore.schedule import Failure, explore, sample
from tests.threads.join.loop_scenarios import FEED, GATHER, OUT, SEGMENT, STRETCHES, WORKER, Case, Mutant, Tuple

from plait.threads.join.strategies import dpjoin, partitioned, scalejoin, splitjoin
from plait.threads.join.strategies.plan import Parts, Wish

# Keys are mixed by multiplying modulo 2**64, of which NumPy's integers warn.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def tuples(sides: str) -> tuple[Tuple, ...]:
    """Left ones are small letters, right ones capitals; a microsecond apart, or at once where = stands between them."""
    found: list[Tuple] = []
    for before, side in zip(" " + sides, sides, strict=False):
        if side != "=":
            found.append(Tuple(int(side.isupper()), (found[-1].ts if found else 0) + (before != "=")))
    return tuple(found)


SCALEJOIN = scalejoin.plan(Wish(2))
SPLITJOIN = splitjoin.plan(Wish(2))
DPJOIN = dpjoin.plan(Wish(2, layout=(1, 2)))  # both workers share the left window's one segment
# A table drawn by chance at every tuple: one value, that is one worker's, then hot and everybody's, and so on.
PARTITIONED = replace(partitioned.plan(Wish(2, line="hash")), parts=Parts("hash", restless=(1, 1)))
PLANS = {"scalejoin": SCALEJOIN, "splitjoin": SPLITJOIN, "dpjoin": DPJOIN, "partitioned": PARTITIONED}

# Cases of few steps: name -> (plan, tuples, sizes). Whoever reads is a thread in those of `READ`.
CASES: dict[str, tuple[Any, str, dict[str, int]]] = {
    "scalejoin": (SCALEJOIN, "llR", {}),  # both workers have a partner of the trigger
    # Rings of one result: the worker that stores two of the trigger's partners waits for whoever reads.
    "full ring": (SCALEJOIN, "lllR", {"most": 4, "room": 1}),
    "splitjoin": (SPLITJOIN, "lRl", {"fed": 4, "room": 8}),
    "partitioned": (PARTITIONED, "lRRllR", {"back_us": 2, "room": 8, "rows": 8}),
    "dpjoin": (DPJOIN, "lRR", {"room": 8}),
    # A feed of one tuple: the parent waits for the child.
    "full feed": (SPLITJOIN, "lRl", {"fed": 1, "room": 8}),
    # Four rows of the shared segment, five left tuples, batches of one: the writer waits for the other sharer.
    "full segment": (DPJOIN, "lllll=R", {"rows": 4, "back_us": 0, "most": 1, "room": 8}),
}
READ = {"scalejoin", "full ring", "partitioned"}


def scenario(name: str, faults: dict[str, list[tuple[str, str]]] | None = None, *, reading: bool = False) -> Any:
    plan, sides, sizes = CASES[name]
    return Case(plan, tuples(sides), faults=faults, **sizes).scenario(reading=reading or name in READ)


#: With one preemption it has as many schedules as all others together.
LONGEST = "partitioned"


def test_every_schedule_of_the_longest_without_a_preemption() -> None:
    assert explore(scenario(LONGEST), preemptions=0)[0] > 1


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n == LONGEST else ()) for n in CASES])
def test_every_schedule_with_one_preemption(name: str) -> None:
    without, with_one = explore(scenario(name), preemptions=1)
    assert without > 1
    assert with_one > 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["splitjoin", "dpjoin"])
def test_every_schedule_with_one_preemption_and_a_reader(name: str) -> None:
    assert explore(scenario(name, reading=True), preemptions=1)[1] > 30


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in READ])
def test_every_schedule_with_two_preemptions(name: str) -> None:
    assert explore(scenario(name), preemptions=2)[2] > 5


@pytest.mark.sampled
@pytest.mark.parametrize("plan", PLANS)
def test_random_schedules(plan: str) -> None:
    """With sources that are a thread, and more tuples."""
    case = Case(PLANS[plan], tuples("lRRllRl"), most=2)
    sample(case.scenario(feeding=True), seed=16, runs=examples(40), switch=0.3)


TAIL = "    store_release(f, TAIL, tail + number)\n"
TOLD = "    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])\n    store_release(w, o.DONE_RANK, w[o.RANK])\n"
MUTANTS = {
    "stretches: the old table is forgotten": Mutant(
        STRETCHES, "    elif out_of_reach(w, q, ts):", "    else:", "partitioned", "instead of", 0,
    ),
    "stretches: turns are counted differently": Mutant(
        STRETCHES, "return number % q[t + COLS] == worker % q[t + COLS]",
        "return number % q[t + COLS] != worker % q[t + COLS] or q[ME] == 0", "partitioned", "instead of", 0,
    ),
    "stretches: a pair is given out by whoever finds it": Mutant(
        OUT, "return w[o.PARTED] == 0 or (p[o.P_HOLDS, k]", "return w[o.PARTED] == 0 or True or (p[o.P_HOLDS, k]", "partitioned",
        "instead of", 0,
    ),
    "feed: tuples shown before they are written": Mutant(
        FEED, "    for row in range(4):\n        for k in range(number):\n            data[row, (tail",
        TAIL + "    for row in range(4):\n        for k in range(number):\n            data[row, (tail", "splitjoin", "RaceError",
    ),
    "feed: a place written before it was read": Mutant(
        FEED, "mask + 1 - (tail - least))", "mask + 2 - (tail - least))", "full feed", "instead of", 0,
    ),
    "feed: what is handed down wakes nobody": Mutant(
        FEED, "            store_release(f, ENDED, 1)\n        fence()\n        wake_feed(c)\n    elif",
        "            store_release(f, ENDED, 1)\n        fence()\n    elif", "splitjoin", "Deadlock", 0,
    ),
    "feed: room wakes nobody": Mutant(
        FEED, "    wake_feed(c)  # the parent may wait for room\n", "    pass\n", "full feed", "Deadlock", 0,
    ),
    "feed: the end is seen before the tuples": Mutant(
        FEED, "    ended = load_acquire(f, ENDED)\n    frontier = load_acquire(f, FRONTIER)\n"
        "    tail, head = load_acquire(f, TAIL), f[own]\n",
        "    tail, head = load_acquire(f, TAIL), f[own]\n    frontier = load_acquire(f, FRONTIER)\n"
        "    ended = load_acquire(f, ENDED)\n", "splitjoin", "has told",
    ),
    "feed: the parent sleeps without a second look": Mutant(
        WORKER, "        if not write_feed(c, w, batch) and load_acquire(c, shared.HALT) == 0:\n"
        "            sleep(c, o.FEED_EVENT, ticket, SLICE_NS)\n",
        "        if load_acquire(c, shared.HALT) == 0:\n            sleep(c, o.FEED_EVENT, ticket, SLICE_NS)\n",
        "full feed", "Deadlock",
    ),
    "loop: rows are met before they are stored": Mutant(
        WORKER, "if left >= w[o.ENDS] and right >= w[o.ENDS + 1]:", "if left + 1 >= w[o.ENDS] and right + 1 >= w[o.ENDS + 1]:",
        "dpjoin", "RaceError",
    ),
    "segment: rows shown before they are written": Mutant(
        SEGMENT, "    to_ts, to_id, to_ref =", "    store_release(s, END, end + n)\n    to_ts, to_id, to_ref =",
        "dpjoin", "RaceError",
    ),
    "segment: outlived by one of two": Mutant(
        SEGMENT, "least = min(least, load_acquire(s, FIRST + k * LINE))", "least = max(least, load_acquire(s, FIRST + k * LINE))",
        "full segment", "RaceError",
    ),
    "ring: the rank said before its results": Mutant(
        OUT, TOLD, "".join(reversed(TOLD.splitlines(keepends=True))), "scalejoin", "instead of",
    ),
    "ring: full, and nobody is told": Mutant(
        OUT, "    store_release(w, o.OUT_TAIL, tail)\n", "", "full ring", "Deadlock", 0,
    ),
    "gatherer: the ring looked at before the rank": Mutant(
        GATHER,
        "        known[RANK, k] = load_acquire(w, o.DONE_RANK)\n"
        "        # The ring after them: what it has is all there is below.\n"
        "        known[TAIL, k] = load_acquire(w, o.OUT_TAIL)\n",
        "        known[TAIL, k] = load_acquire(w, o.OUT_TAIL)\n"
        "        known[RANK, k] = load_acquire(w, o.DONE_RANK)\n", "scalejoin", "instead of",
    ),
    "gatherer: an empty ring is not waited for": Mutant(
        GATHER, "        elif trigger >> 1 >= known[RANK, j]:\n            return True\n",
        "        elif trigger >> 1 > known[RANK, j]:\n            return True\n", "scalejoin", "instead of",
    ),
    "gatherer: room wakes nobody": Mutant(
        GATHER, "            fetch_add(c, o.ROOM_EVENT, 1)\n", "            pass\n", "full ring", "Deadlock", 0,
    ),
    "gatherer: asleep without a second look": Mutant(
        GATHER, "        sleep(c, o.OUT_EVENT, ticket, nanoseconds)\n        number = gather",
        "        sleep(c, o.OUT_EVENT, load_acquire(c, o.OUT_EVENT), nanoseconds)\n        number = gather",
        "scalejoin", "Deadlock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    module, old, new, case, words, needs = MUTANTS[name]
    with pytest.raises(Failure, match=words) as found:
        explore(scenario(case, {module: [(old, new)]}), preemptions=needs, most_steps=4000)
    assert found.value.preemptions == needs
