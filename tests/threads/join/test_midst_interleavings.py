"""The workers' loop under the scheduler, while tuples become ready in the midst: batches of different lengths, full rings.

With all tuples there from the beginning every worker takes the same batches, and waits only for one that is behind it. Here one
takes a short batch, others what has come until then. So a worker may wait for rows that another has yet to take from the gate,
which waits for room for results that are given out when the first has passed them: a circle, unless somebody goes on. Tuples come
in stages (`loop_scenarios.Case.scenario`); a window of one row or two, and rings of one result, are full all the time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.examples import examples
from tests.explore.schedule import Failure, explore, sample
from tests.threads.join.index_scenarios import IndexedCase
from tests.threads.join.loop_scenarios import ASOF, OUT, WORKER, AsofCase, Case, Tuple

from plait.threads.join.strategies import dpjoin, scalejoin, splitjoin
from plait.threads.join.strategies.plan import Plan, Wish

Patches = dict[str, list[tuple[str, str]]]
# Keys are mixed by multiplying modulo 2**64, of which NumPy's integers warn.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def tuples(text: str) -> tuple[Tuple, ...]:
    """`l1 R5`: a left one at 1, a right one at 5."""
    return tuple(Tuple(int(word[0] == "R"), int(word[1:])) for word in text.split())


def dp(rows: int, columns: int) -> Plan:
    return dpjoin.plan(Wish(rows * columns, layout=(rows, columns)))


class Midst(NamedTuple):
    plan: Plan
    text: str
    stages: tuple[int, ...]  # `Case.scenario`
    sizes: dict[str, Any]


#: Growing at once, where a writer waits for a sharer: else it would look again 256 times.
SOON: Patches = {WORKER: [("GROW_AFTER = 256", "GROW_AFTER = 0")]}
FEW = "l1 l2 R3 l4 R5"  # the first three are ready when the run begins
#: The first worker has two left rows without a partner; the other one none.
ALONE = "l1 l5 R5 l10 l15 R15 l20 l60 R50 R61 l70"
#: Three rows that nothing meets any more, in a segment of four, then two more.
GAP = "l1 l1 l1 R5 l10 l10 R11"
MANY = "l1 l2 R3 l4 R5 R5 l6 R7 l8 l8 R8"
CASES = {
    "dpjoin, a row": Midst(dp(1, 2), FEW, (5,), {"most": 8, "room": 1, "rows": 8}),
    "dpjoin, a column": Midst(dp(2, 1), FEW, (5,), {"most": 8, "room": 1, "rows": 8}),
    "scalejoin": Midst(scalejoin.plan(Wish(2)), FEW, (5,), {"most": 8, "room": 1, "rows": 8}),
    "splitjoin": Midst(splitjoin.plan(Wish(2)), FEW, (5,), {"most": 8, "room": 1, "rows": 8, "fed": 8}),
    "dpjoin, four": Midst(dp(2, 2), MANY, (5, 8, 11), {"most": 4, "room": 1, "rows": 8}),
    "scalejoin, three": Midst(scalejoin.plan(Wish(3)), MANY, (5, 8, 11), {"most": 4, "room": 1, "rows": 8}),
    "splitjoin, three": Midst(splitjoin.plan(Wish(3, fan_out=1)), MANY, (5, 8, 11), {"most": 4, "room": 1, "rows": 8, "fed": 4}),
    "full join": Midst(dp(2, 1), ALONE, (9, 10), {"most": 16, "room": 1, "rows": 16, "back_us": 2, "how": "full"}),
    "full join, a row": Midst(dp(1, 2), ALONE, (9, 10), {"most": 16, "room": 1, "rows": 16, "back_us": 2, "how": "full"}),
    "full join, four": Midst(dp(2, 2), ALONE, (9, 10), {"most": 16, "room": 1, "rows": 16, "back_us": 2, "how": "full"}),
    "left join": Midst(dp(2, 1), ALONE, (9, 10), {"most": 16, "room": 1, "rows": 16, "back_us": 2, "how": "left"}),
    "full segment": Midst(dp(1, 2), GAP, (4, 5, 7), {"most": 8, "room": 1, "rows": 4, "back_us": 1}),
}  # fmt: skip


def case(name: str, faults: Patches | None = None) -> Case:
    plan, text, _, sizes = CASES[name]
    changed = {module: [*SOON.get(module, []), *(faults or {}).get(module, [])] for module in {*SOON, *(faults or {})}}
    return Case(plan, tuples(text), faults=changed, **sizes)


@pytest.mark.parametrize("name", CASES)
def test_random_schedules(name: str) -> None:
    made = case(name)
    sample(made.scenario(stages=CASES[name].stages), seed=16, runs=examples(120), switch=0.1)
    assert made.grown > 0 or name != "full segment", "no segment has had to grow"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dpjoin, a row", "dpjoin, a column", "scalejoin", "splitjoin"])
def test_every_schedule_without_a_preemption(name: str) -> None:
    assert explore(case(name).scenario(stages=CASES[name].stages), preemptions=0)[0] > 100


class Mutant(NamedTuple):
    changes: Patches
    case: str


EMPTY = " or (here and w[o.ALONE] | w[o.ALONE + 1] and w[o.DONE_TS] < batch[o.B_TS, to])"
TIME = "                if w[o.ALONE] | w[o.ALONE + 1] and pass_time(c, w, out, ts) != 0:\n                    return o.HALTED\n"
TOLD = "    store_release(w, o.DONE_TS, max(w[o.DONE_TS], ts))\n"
IDLE: Patches = {WORKER: [("if spins >= PATIENCE:", "if False:")]}
MUTANTS = {
    "who waits for rows does nothing meanwhile": Mutant(IDLE, "dpjoin, a row"),
    "a part is done and nobody is told": Mutant(
        {WORKER: [("                publish_part(c, w, w[o.AT_RANK], ts)\n", "")]}, "dpjoin, a row",
    ),
    "time waits for the whole batch": Mutant({WORKER: [(EMPTY, ""), (TIME, "")], OUT: [(TOLD, "")]}, "full join"),
    "a writer waits for a sharer for ever": Mutant({WORKER: [(" or spins >= GROW_AFTER:", ":")]}, "full segment"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    """Every circle shows without a preemption, among the first schedules: one worker takes what is ready and waits for room, then
    the rest becomes ready, then the other takes all.
    """
    changes, of = MUTANTS[name]
    with pytest.raises(Failure, match="Deadlock") as found:
        explore(case(of, changes).scenario(stages=CASES[of].stages), preemptions=0, most_steps=6000)
    assert found.value.preemptions == 0


# --- with an index: who waits for rows waits for what the index says of them, too -------------------------------------------

KEYED = (3, 3, 3, 3, 3)


def indexed(index: str, faults: Patches | None = None) -> IndexedCase:
    return IndexedCase(dp(1, 2), index, tuples(FEW), KEYED, most=8, room=1, rows=8, faults=faults)


@pytest.mark.parametrize("index", ["hash", "grid"])
def test_random_schedules_with_an_index(index: str) -> None:
    sample(indexed(index).scenario(stages=(5,)), seed=16, runs=examples(120), switch=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("index", ["hash", "grid"])
def test_every_schedule_with_an_index_without_a_preemption(index: str) -> None:
    assert explore(indexed(index).scenario(stages=(5,)), preemptions=0)[0] > 100


def test_the_circle_is_found_with_an_index() -> None:
    with pytest.raises(Failure, match="Deadlock") as found:
        explore(indexed("hash", IDLE).scenario(stages=(5,)), preemptions=0)
    assert found.value.preemptions == 0


# --- as-of: nobody waits for another worker but for room ------------------------------------------------------------------

LITTLE, MORE = "R1 l2 l3", "R1 l2 l3 l3 R5 l6 l9 R9"
DIRECTIONS = ("backward", "forward", "nearest")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_schedule_of_an_asof_join_without_a_preemption(direction: str) -> None:
    made = AsofCase(direction, tuples(LITTLE), within_us=2, room=1)
    assert explore(made.scenario(stages=(3,)), preemptions=0)[0] > 10
    longer = AsofCase(direction, tuples(MORE), within_us=2, room=1, most=4)
    sample(longer.scenario(stages=(5, 8)), seed=16, runs=examples(60), switch=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_schedule_of_an_asof_join_with_a_preemption(direction: str) -> None:
    assert (
        explore(AsofCase(direction, tuples(LITTLE), within_us=2, room=1).scenario(stages=(3,)), preemptions=1)[1] > 100
    )


RANK_SAID = "    store_release(w, o.OUT_TAIL, w[o.EMIT_TAIL])\n    store_release(w, o.DONE_RANK, w[o.RANK])\n"
LEAVES = "        if pass_time(c, w, a, ring, heap, out, max(w[o.FRONTIER], last)) != 0:\n"
ASOF_MUTANTS = {
    "the rank is said before its results": (OUT, RANK_SAID, "".join(reversed(RANK_SAID.splitlines(keepends=True))), "backward"),
    "time is said to have passed before its rows are out": (
        ASOF, LEAVES, "        publish_progress(c, w, last, BEFORE_ALL, BEFORE_ALL)\n" + LEAVES, "nearest",
    ),
    "time passes up to the last tuple and no further": (ASOF, "max(w[o.FRONTIER], last)) != 0", "last) != 0", "forward"),
}  # fmt: skip


@pytest.mark.parametrize("name", ASOF_MUTANTS)
def test_a_planted_fault_of_an_asof_join_is_found(name: str) -> None:
    module, old, new, direction = ASOF_MUTANTS[name]
    made = AsofCase(direction, tuples("R1 l2 l2 l3 l3"), within_us=2, room=4, most=2, faults={module: [(old, new)]})
    with pytest.raises(AssertionError, match="instead of"):
        sample(made.scenario(stages=(5,)), seed=16, runs=400, switch=0.2, most_steps=4000)
