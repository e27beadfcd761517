"""DP-Join's shared segments with an index under the scheduler: chains, boxes and sorted chunks that one writes and others walk.

Two workers share a segment: the first of a row (or column) writes rows and what the index says of them, the other one probes
meanwhile, and both say which rows they need no longer. Every schedule with one preemption gives the definition's sequence, which
is the reference's as bytes, without a data race on plain words.

Faults are planted in what is published, read and given up. Exploring finds each of them among its first 17 schedules. Chance
would not do: of 200 random schedules three of the faults show in one (`test_chance_alone_misses_a_fault`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.examples import examples
from tests.explore.schedule import Failure, explore, sample
from tests.threads.join.index_scenarios import IndexedCase
from tests.threads.join.loop_scenarios import PROBE, SEGMENT, WORKER, Mutant, Patches, Tuple

from plait.threads.join.strategies import dpjoin
from plait.threads.join.strategies.plan import Plan, Wish

# Keys are mixed by multiplying modulo 2**64, of which NumPy's integers warn.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def tuples(text: str) -> tuple[tuple[Tuple, ...], tuple[int, ...]]:
    """`l1:3 R5:4`: a left one at 1 whose value is 3, a right one at 5 whose value is 4. Tuples, and values."""
    words = [word.split(":") for word in text.split()]
    return tuple(Tuple(int(at[0] == "R"), int(at[1:])) for at, _ in words), tuple(int(value) for _, value in words)


def dp(rows: int, columns: int) -> Plan:
    return dpjoin.plan(Wish(rows * columns, layout=(rows, columns)))


class Indexed(NamedTuple):
    index: str
    text: str
    sizes: dict[str, Any]
    plan: Plan = dp(1, 2)  # the left window is both workers'; right tuples go to them by turns
    grows: bool = False


ONE = {"most": 1, "room": 16}  # tuples a batch, results a ring
#: The second right tuple is the other worker's: it walks a chain of two while the writer adds a third row that it must not meet.
AHEAD = "l1:3 l2:3 R3:4 R4:3 l5:3 R6:3"
#: Six left tuples in four rows, of which one is met: the writer is held back by the other worker, and rows lie where others lay.
ROUND = "l1:3 l2:3 R2:3 R2:3 l3:3 l4:3 l5:3 R5:3 l6:3 R6:3"
#: A window of two in four rows: the segment grows, and the writer fills what the other worker has given up.
GROWS = "l1:3 l2:3 l3:4 R3:4 l4:4 R4:5 l5:5 R5:5 R6:5"
#: The other worker probes for rows of a chunk that the writer fills meanwhile.
CHUNKS = "l1:4 R2:9 R3:9 l4:3 R5:9 R6:9"
#: Of one batch, the first worker's first probe meets the first row, its second does not.
BATCH = "l1:3 R2:3 R3:4 R5:3 l6:3 R7:3"
CASES = {
    "hash": Indexed("hash", AHEAD, {**ONE, "rows": 4}),
    "hash, built meanwhile": Indexed("hash", AHEAD, {**ONE, "rows": 4, "built": False}),
    "hash, a column": Indexed("hash", "R1:3 l2:3 l3:3 R4:3 l5:3 l6:3", {**ONE, "rows": 4}, dp(2, 1)),
    "hash, a full segment": Indexed("hash", ROUND, {**ONE, "rows": 4, "back_us": 0}),
    "hash, growing": Indexed("hash", GROWS, {**ONE, "rows": 4, "back_us": 1}, grows=True),
    "hash, a batch": Indexed("hash", BATCH, {"most": 8, "room": 16, "rows": 4, "back_us": 3, "built": False}),
    "hash, full join": Indexed(
        "hash", "l1:3 R2:4 l3:4 R4:3 l6:4", {**ONE, "rows": 4, "back_us": 2, "how": "full", "built": False},
    ),
    "grid": Indexed("grid", AHEAD, {**ONE, "rows": 4}),
    "grid, built meanwhile": Indexed("grid", AHEAD, {**ONE, "rows": 4, "built": False}),
    "grid, growing": Indexed("grid", GROWS, {**ONE, "rows": 4, "back_us": 1}, grows=True),
    "sorted": Indexed("sorted", CHUNKS, {**ONE, "rows": 4}),
    "sorted, built meanwhile": Indexed("sorted", CHUNKS, {**ONE, "rows": 4, "built": False}),
    "sorted, a full segment": Indexed("sorted", ROUND.replace("R5:3", "R5:4"), {**ONE, "rows": 4, "back_us": 0}),
    "sorted, growing": Indexed(
        "sorted", "l1:3 l2:4 l3:4 R3:6 l4:3 R4:9 l5:5 R5:7 l6:3 R6:8", {**ONE, "rows": 4, "back_us": 1}, grows=True,
    ),
    # Whoever walks first has the hash nodes make way for a grid, which the other then finds.
    "hash, then a grid": Indexed("auto", "l1:3 R2:3 R3:3 l4:3 R5:3", {**ONE, "rows": 4}),
}  # fmt: skip


def case(name: str, faults: Patches | None = None) -> IndexedCase:
    index, text, sizes, plan, _ = CASES[name]
    return IndexedCase(plan, index, *tuples(text), faults=faults, **sizes)


@pytest.mark.parametrize("name", CASES)
def test_every_schedule_with_one_preemption(name: str) -> None:
    made = case(name)
    without, with_one = explore(made.scenario(reading=False), preemptions=1)
    assert without > 1
    assert with_one > 4
    assert made.expected(), "nothing to find"
    assert (made.grown > 0) == CASES[name].grows


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_schedule_with_two_preemptions(name: str) -> None:
    assert explore(case(name).scenario(reading=False), preemptions=2)[2] > 20


@pytest.mark.slow
def test_every_schedule_with_one_preemption_and_a_reader() -> None:
    assert explore(case("hash").scenario(), preemptions=1)[1] > 30


LONG = "l1:3 R2:4 l3:3 l4:4 R4:3 R5:3 l6:3 R7:4 l8:3 l8:4 R8:3"


@pytest.mark.sampled
@pytest.mark.parametrize("index", ["hash", "grid", "sorted", "auto"])
def test_random_schedules_of_four_workers(index: str) -> None:
    """Every segment is two workers', sources are a thread, batches have up to two tuples, rings one result."""
    made = IndexedCase(dp(2, 2), index, *tuples(LONG), built=False, room=1, rows=4, back_us=3)
    sample(made.scenario(feeding=True), seed=16, runs=examples(40), switch=0.2)


LINKED = "                node[place, PREV] = head[slot]\n                store_release(head, slot, row)\n"
SHOWN = (
    "                before = head[slot]\n                store_release(head, slot, row)\n"
    "                node[place, PREV] = before\n"
)
HASHED = "                slot = int64(mixed(node[place, KEY]) & head_mask)\n"
BOXED = "                slot = int64(at & masks[3])\n"
LEAVES = "    for c in range(s[NCOLS]):\n        copy_column(s[SIZES + c], columns[c], at, n, s[COLS + c], end, cap)\n"
COVERED = "    if s[KIND]:\n        cover(s, end + n)\n"
ENDED = "    store_release(s, END, end + n)\n"
SORTED = "        sort_by_key(keys, order, at, at + kept)\n"
FIRST = "store_release(s, seg.FIRST + w[o.SHARER + side] * LINE, first"
MUTANTS = {
    "hash: the head is shown before its row is linked": Mutant(SEGMENT, HASHED + LINKED, HASHED + SHOWN, "hash", "RaceError"),
    "grid: the head is shown before its row is linked": Mutant(SEGMENT, BOXED + LINKED, BOXED + SHOWN, "grid", "RaceError"),
    "sorted: a chunk is shown before it is sorted": Mutant(
        SEGMENT, SORTED, "        store_release(sizes, (first // size) % chunks, (first // size) << 24 | kept)\n" + SORTED,
        "sorted", "RaceError",
    ),
    "rows are shown before the index has them": Mutant(SEGMENT, COVERED + ENDED, ENDED + COVERED, "hash", "instead of"),
    "rows are shown before a grid has them": Mutant(SEGMENT, COVERED + ENDED, ENDED + COVERED, "grid", "instead of"),
    "rows are shown before what is compared": Mutant(
        SEGMENT, LEAVES + COVERED + ENDED, COVERED + ENDED + LEAVES, "hash", "RaceError",
    ),
    "hash: the head is read without acquire": Mutant(
        PROBE, "row = load_acquire(head, int64(mixed(key) & head_mask))", "row = head[int64(mixed(key) & head_mask)]", "hash",
        "RaceError",
    ),
    "grid: the head is read without acquire": Mutant(
        PROBE, "load_acquire(head, int64(slot & masks[3]))", "head[int64(slot & masks[3])]", "grid", "RaceError",
    ),
    "sorted: a chunk's word is read without acquire": Mutant(
        PROBE, "word = load_acquire(sizes, chunk % chunks)", "word = sizes[chunk % chunks]", "sorted", "RaceError",
    ),
    "hash: rows behind the probe are met": Mutant(
        PROBE, "if row < high and node[place, KEY] == key:", "if node[place, KEY] == key:", "hash", "instead of", 0,
    ),
    "grid: rows behind the probe are met": Mutant(
        PROBE, "if inside & (row < hi[p]) and", "if inside and", "grid", "instead of", 0,
    ),
    "sorted: rows behind the probe are met": Mutant(
        PROBE, "if row >= low and row < high:\n                    out_probe", "if row >= low:\n                    out_probe",
        "sorted", "instead of", 0,
    ),
    "hash: a walk goes on below its range": Mutant(
        PROBE, "        while row >= low:\n            steps", "        while row >= 0:\n            steps", "hash",
        "instead of", 0,
    ),
    "sorted: the chunk that lay there before is taken for this one": Mutant(
        PROBE, "if word >> 24 != chunk:", "if word < 0:", "sorted, a full segment", "instead of", 0,
    ),
    "a row is given up one too early": Mutant(WORKER, FIRST, FIRST + " + 1", "hash, growing", "RaceError"),
    "a row of a grid is given up one too early": Mutant(
        WORKER, FIRST, FIRST + " + 1", "grid, growing", "instead of",
    ),
    "one row more than there is room for": Mutant(
        WORKER, "seg.first_valid(s) > cap:", "seg.first_valid(s) > cap + 1:", "hash, growing", "RaceError",
    ),
    "who had an index built goes on where it stopped": Mutant(
        WORKER, "        w[o.LO], w[o.LO + 1] = lo0, lo1\n", "", "hash, a batch", "instead of", 0,
    ),
    "a switch to a grid is seen by who made it alone": Mutant(
        PROBE, "    if load_acquire(s, seg.SWITCHED):\n", "    if s[seg.SWITCHED]:\n", "hash, then a grid", "RaceError",
    ),
}  # fmt: skip


def planted(name: str) -> IndexedCase:
    module, old, new, of, *_ = MUTANTS[name]
    return case(of, {module: [(old, new)]})


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_fault_is_found(name: str) -> None:
    with pytest.raises(Failure, match=MUTANTS[name].found) as found:
        explore(planted(name).scenario(reading=False), preemptions=MUTANTS[name].needs, most_steps=4000)
    assert found.value.preemptions == MUTANTS[name].needs


@pytest.mark.parametrize("name", ["rows are shown before the index has them", "a row is given up one too early"])
def test_chance_alone_misses_a_fault(name: str) -> None:
    """As many random schedules as exploring needs at most, and a few more, pass by a fault that exploring finds."""
    sample(planted(name).scenario(reading=False), seed=16, runs=24, switch=0.1, most_steps=4000)
