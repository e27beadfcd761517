"""Mergers' own source under the scheduler: all schedules with few preemptions, where these can be run, and random ones; faults.

Every run is checked to lose and repeat nothing, to be in the order that its precision asks for, to name no row that was let go
of, to leave nobody asleep, and to be free of data races on plain words.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.examples import examples
from tests.explore.schedule import Failure, explore, sample
from tests.threads.gate.test_interleavings import SEED
from tests.threads.join.merger_scenarios import GATHER, OUT, Case

from plait.threads.join.loop import gather as real

# Partners are stored round robin: with two workers even numbers lie at the first. Each may be done with a trigger long before the
# other has anything of it; the first one's second batch begins with a trigger that the second has something of already.
TWO: list[Any] = [
    [([(1, 0), (1, 2)], 2), ([(2, 0), (3, 4)], 5)],
    [([(1, 1), (2, 3)], 4), ([], 5)],
]
# One that finds nothing must not hold the others back.
QUIET: list[Any] = [[([], 3), ([(4, 0)], 5)], [([(1, 1), (2, 1), (2, 3)], 5)]]
# The second has the earlier block of trigger 2, and comes with it late.
BLOCKS: list[Any] = [[([(1, 0), (1, 2)], 2), ([(2, 4)], 5)], [([(1, 1)], 2), ([(2, 1), (2, 3)], 5)]]
# Both say several times how far they are in the midst of the triggers 4 to 7.
INTERVALS: list[Any] = [
    [([(1, 0)], 5), ([], 6), ([], 7), ([(7, 0)], 9)],
    [([(1, 1), (5, 3)], 6), ([], 7), ([(8, 1)], 9)],
]
THREE: list[Any] = [*TWO, [([(1, 5), (3, 5)], 4), ([(4, 5)], 5)]]

# The second has a row that is due at 2, and comes with it in the batch in which the first has trigger 3.
UNMATCHED: list[Any] = [[([(1, 0)], 3), ([(3, 0)], 5)], [([(1, 1)], 3), ([(2, None), (3, 1)], 5)]]
# Right rows that both compare: of three that are due at 2 only the row 1 is alone for both; of 3, only one has found no partner.
COUNTED: list[Any] = [
    [([(1, 0), (2, -1), (2, -2)], 3), ([(3, 0)], 5)],
    [([(1, 1)], 3), ([(2, -2), (2, -3), (3, 1), (3, -5)], 5)],
]

# The first has later triggers in its ring while the second may still come with what goes before them: it has nothing yet, or
# nothing any more; or a row without partner behind its pair.
ROOMY: dict[str, Any] = {"mergers": (), "room": 4, "most": 4}
HELD_BACK: tuple[list[Any], dict[str, Any]] = ([[([(1, 0), (3, 0)], 4)], [([], 2), ([(2, 1)], 4)]], ROOMY)
RUN_EMPTY: tuple[list[Any], dict[str, Any]] = ([[([(3, 0)], 4)], [([(1, 1)], 2), ([(2, 1)], 4)]], ROOMY)
BEHIND: tuple[list[Any], dict[str, Any]] = ([[([(1, 0), (3, 0)], 4)], [([(1, 1), (2, None)], 4)]], ROOMY)

CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "strict": (TWO, {}),
    "quiet": (QUIET, {}),
    "triggers": (TWO, {"every": 1, "room": 4, "most": 4}),
    "intervals": (INTERVALS, {"every": 4, "room": 4}),
    "blocks": (BLOCKS, {"every": 1, "block": 2, "room": 4}),
    "never": (TWO, {"every": real.NEVER}),
    "unmatched": (UNMATCHED, {"every": 1, "mergers": ()}),
    "unmatched, strict": (UNMATCHED, {"mergers": ()}),
    "counted": (COUNTED, {"every": 1, "mergers": (), "most": 1}),
    "counted, strict": (COUNTED, {"mergers": ()}),
    "crowded": ([[([(2, -1), (2, -2), (2, -3)], 5)], [([], 5)]], {"mergers": (), "room": 1}),
    "and a worker": (THREE, {"room": 4}),
    "a merger of a merger": ([[([(1, 0)], 2)]], {"mergers": ((0,), (1,)), "room": 4, "most": 4}),
    "two levels": ([*INTERVALS, THREE[2]], {"mergers": ((0, 1), (3, 2)), "every": 4}),
}


# Four threads that sleep have many orders without any preemption; these have few enough.
SWITCHED = [
    "a merger of a merger", "triggers", "intervals", "blocks", "unmatched", "unmatched, strict", "counted", "counted, strict",
]  # fmt: skip
#: Two workers and whoever gathers from both, or a worker, a merger and whoever reads: few enough for all with one preemption.
FEW: list[Any] = [[([(1, 0)], 2), ([(2, 0)], 3)], [([(1, 1)], 3)]]
GATHERED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "strict": (FEW, {"mergers": ()}),
    "full": (FEW, {"mergers": (), "room": 1, "most": 1}),
    "blocks": (BLOCKS, {"mergers": (), "every": 1, "block": 2, "room": 4}),
    "unmatched": (UNMATCHED, {"mergers": (), "every": 1}),
    "counted": ([[([(1, -1), (1, -3)], 2)], [([(1, -2), (1, -3)], 2)]], {"mergers": (), "room": 4, "most": 1}),
    "held back": HELD_BACK,
    "run empty": RUN_EMPTY,
    "behind a pair": BEHIND,
    "one merged": ([INTERVALS[0]], {"mergers": ((0,),), "every": 4, "room": 4}),
}
#: For faults: all schedules with one preemption are ten thousands, the first wrong one comes soon.
MERGED: dict[str, tuple[list[Any], dict[str, Any]]] = {"few": (FEW, {}), "tight": (FEW, {"room": 1, "most": 1})}


@pytest.mark.parametrize("case", SWITCHED)
def test_every_schedule_without_a_preemption(case: str) -> None:
    workers, more = CASES[case]
    assert explore(Case(workers, **more).scenario(), preemptions=0)[0] > 5


@pytest.mark.parametrize("case", GATHERED)
def test_every_schedule_of_the_gatherer_with_one_preemption(case: str) -> None:
    workers, more = GATHERED[case]
    assert explore(Case(workers, **more).scenario(), preemptions=1)[1] > 300


@pytest.mark.slow
def test_every_schedule_of_the_gatherer_with_two_preemptions() -> None:
    workers, more = GATHERED["strict"]
    assert explore(Case(workers, **more).scenario(), preemptions=2)[2] > 10_000


@pytest.mark.slow
def test_every_schedule_of_a_merger_with_one_preemption() -> None:
    assert explore(Case(FEW).scenario(), preemptions=1)[1] > 10_000


@pytest.mark.parametrize("case", CASES)
def test_random_schedules(case: str) -> None:
    workers, more = CASES[case]
    sample(Case(workers, **more).scenario(), seed=SEED, runs=examples(60))


FOUND_BY = 20140615  # the first of the seeds that find it
BY_CHANCE = "rows let go of with results in the rings"  # no small case shows it


class Mutant(NamedTuple):
    module: str
    old: str
    new: str
    case: tuple[list[Any], dict[str, Any]]
    needs: int = 0  # so many preemptions show it


MUTANTS = {
    "a trigger is done before its results are passed on": Mutant(
        GATHER, "    if number < most:\n        # All", "    if number <= most:\n        # All", CASES["strict"]
    ),
    "rows let go of with results in the rings": Mutant(
        GATHER, "        elif rank >= m[DUE_RANK]:\n            left, right = m[DUE_LIVE], m[DUE_LIVE + 1]",
        "        else:\n            left, right = seen[0], seen[1]", CASES["intervals"],
    ),
    "the ring is looked at before the rank": Mutant(
        GATHER,
        "        known[RANK, k] = load_acquire(w, o.DONE_RANK)\n"
        "        # The ring after them: what it has is all there is below.\n"
        "        known[TAIL, k] = load_acquire(w, o.OUT_TAIL)\n",
        "        known[TAIL, k] = load_acquire(w, o.OUT_TAIL)\n"
        "        known[RANK, k] = load_acquire(w, o.DONE_RANK)\n", GATHERED["strict"], 1,
    ),
    "an empty ring is not waited for": Mutant(
        GATHER, "        elif trigger >> 1 >= known[RANK, j]:\n            return True\n",
        "        elif trigger >> 1 > known[RANK, j]:\n            return True\n", CASES["strict"],
    ),
    "a block is not waited for": Mutant(
        GATHER, "        elif every > 0 and block == 0:\n", "        elif every > 0:\n", GATHERED["blocks"], 1
    ),
    "a row that is due is not waited for": Mutant(
        GATHER, " or (unmatched and entry_ts > known[TS, j])", "",
        GATHERED["unmatched"], 1,
    ),
    "one worker's word is enough": Mutant(
        GATHER, "if take_alike(rings, taken, known, a, i) == asked", "if take_alike(rings, taken, known, a, i) * 9 > asked",
        CASES["counted"],
    ),
    "nobody is told of room that rows which are no results have left": Mutant(
        GATHER, "    if moved:\n", "    if count > 0:\n", CASES["crowded"],
    ),
    "a stretch is not left": Mutant(
        GATHER, "                more = every > 0 and same_stretch(a, i, j, every, block)",
        "                more = every > 0", CASES["triggers"],
    ),
    "another ring's first trigger is passed over": Mutant(GATHER, "more = trigger < after and", "more =", CASES["strict"]),
    "of one trigger whichever ring comes first": Mutant(
        GATHER, "        if least == after:\n            best = least_partner(rings, taken, known, least)\n", "", CASES["strict"]
    ),
    "a run goes on past what an empty ring may still have": Mutant(
        GATHER, "trigger < after and trigger >> 1 < limit and", "trigger < after and", HELD_BACK, 1
    ),
    "a ring that runs empty holds nothing back": Mutant(
        GATHER, "        if at == tail and known[TS, best] != AFTER_ALL:\n", "        if False:\n", RUN_EMPTY, 1
    ),
    "a row without partner stands by its word for a trigger": Mutant(
        GATHER, "        alone = alone or o.UNMATCHED <= known[HEAD, k] < AFTER_ALL\n", "", CASES["unmatched, strict"]
    ),
    "a row without partner behind a pair": Mutant(
        GATHER, "        alone = o.UNMATCHED <= known[HEAD, best] < AFTER_ALL\n", "", BEHIND
    ),
    "a full ring is written over": Mutant(
        GATHER, "    room = m[o.OUT_MASK] + 1 - (tail - load_acquire(m, o.OUT_HEAD))", "    room = m[o.OUT_MASK] + 1",
        CASES["strict"]
    ),
    "published before it is written": Mutant(
        GATHER, "    out, mask = entries(m), m[o.OUT_MASK]\n",
        "    out, mask = entries(m), m[o.OUT_MASK]\n    store_release(m, o.OUT_TAIL, tail + max(number, 0))\n", MERGED["few"], 1,
    ),
    "asleep for the wrong event": Mutant(
        GATHER, "event, before = o.OUT_EVENT if number == 0 else o.ROOM_EVENT, number", "event, before = o.OUT_EVENT, number",
        MERGED["few"],
    ),
    "asleep without a second look": Mutant(
        GATHER, "            if number == before and load_acquire(c, shared.HALT) == 0:\n                sleep(c, event, ticket",
        "            if load_acquire(c, shared.HALT) == 0:\n                sleep(c, event, load_acquire(c, event)",
        MERGED["few"], 1,
    ),
    "nobody told of the end": Mutant(GATHER, "    if news:\n", "    if news and number != ENDED:\n", MERGED["tight"]),
    "the ring released before the rank's results": Mutant(
        OUT,
        "    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])\n    store_release(w, o.DONE_RANK, w[o.RANK])\n",
        "    store_release(w, o.DONE_RANK, w[o.RANK])\n    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])\n", GATHERED["strict"], 1,
    ),
}  # fmt: skip


def broken(name: str) -> Any:
    module, old, new, (workers, more), _ = MUTANTS[name]
    return Case(workers, **more, patches={module: [(old, new)]}).scenario()


@pytest.mark.parametrize("name", [name for name in MUTANTS if name != BY_CHANCE])
def test_a_planted_fault_is_found(name: str) -> None:
    needs = MUTANTS[name].needs
    with pytest.raises(Failure) as found:
        explore(broken(name), preemptions=needs)
    assert found.value.preemptions == needs


def test_a_planted_fault_is_found_by_random_schedules() -> None:
    with pytest.raises(AssertionError, match="let go of"):
        sample(broken(BY_CHANCE), seed=FOUND_BY, runs=1800, switch=0.3)
