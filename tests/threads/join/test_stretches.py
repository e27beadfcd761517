"""Whose a tuple is, by values: the text of `loop.stretches` in plain Python, worker by worker, held against what it promises.

Every worker takes one random sequence, cut into batches of its own, with tables that change by chance. Then, over all pairs by
the definition: a pair is given out by one worker; a row's owner, by the table that says so, meets all its partners. Planted
faults are found.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.examples import examples
from tests.explore.addresses import NativeTwin
from tests.threads.join.loop_scenarios import LOOP, STRETCHES, NoColumns, Patches, through

from plait.core.join.reach import NUMBER, TS, Reach
from plait.core.machine.line import address
from plait.query.join import HOWS
from plait.threads import words as shared
from plait.threads.join import memory, parting
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import stretches
from plait.threads.join.loop import words as o
from plait.threads.join.strategies import partitioned
from plait.threads.join.strategies.plan import Parts, Plan, Wish

ROOM = 256
BAND = (-1.0, 2.0)  # left - right

WINDOWS = {"time": Reach(TS, (6, 3), 1), "tumbling": Reach(TS, (0, 0), 8), "count": Reach(NUMBER, (5, 5), 1),
           "tumbling count": Reach(NUMBER, (1, 1), 6)}  # fmt: skip


class Tuple(NamedTuple):
    side: int
    number: int
    ts: int
    value: int | None


class Encoder(NoColumns):
    has_node = has_equality = has_bands = True

    def bands(self) -> np.ndarray:
        made = np.zeros((2, 5))
        made[0] = (*BAND, 0.0, 0.0, 1e300)
        return made


def sequence(chance: random.Random, length: int) -> list[Tuple]:
    found, counts, ts = [], [0, 0], 0
    for _ in range(length):
        ts += chance.choice((0, 0, 1, 1, 2))
        side = int(chance.random() < 0.5)
        value = chance.choice((None, 5, 5, 5, *range(12)))
        found.append(Tuple(side, counts[side], ts, value))
        counts[side] += 1
    return found


class Words(NamedTuple):
    """What a worker says of a tuple: its word, and the bit of the table that holds for its results."""

    word: int
    holds: int


def taken(tuples: list[Tuple], plan: Plan, how: str, reach: Reach, chance: random.Random, faults: Patches
          ) -> list[list[Words]]:  # fmt: skip
    """By worker, by tuple: no bits where it is not the worker's."""
    twin = NativeTwin((LOOP, "plait.threads.gate"), patches=faults)
    keyed = plan.parts is not None and plan.parts.line == "keyed"
    arena = np.zeros((2, shared.A_WORDS), np.int64)
    kept: list[np.ndarray] = []
    for side in (0, 1):
        own = [each.value for each in tuples if each.side == side]
        keys, x, usable = np.zeros(ROOM, np.int64), np.zeros(ROOM), np.zeros(ROOM, np.uint8)
        for at, value in enumerate(own):
            usable[at], keys[at], x[at] = value is not None, value or 0, value or 0
            if keyed:
                keys[at], x[at] = (value or 0) // 4, (value or 0) - 6.0
        kept += [keys, x, usable]
        arena[side, [shared.A_KEY, shared.A_X, shared.A_USABLE]] = [address(array) for array in (keys, x, usable)]
    encoder: Any = Encoder()
    segments = tuple(
        [memory.Segment(side, 1, encoder, matched=False, parted=True, rows=2) for _ in plan.seats] for side in (0, 1)
    )
    found = []
    for k in range(len(plan.seats)):
        worker = memory.Worker(
            k, plan, segments, encoder, reach, how, most=ROOM, results=2, arena_mask=ROOM - 1  # type: ignore[arg-type]
        )  # fmt: skip
        assert worker.parted is not None
        for array in (*kept, worker.parted, worker.bands.reshape(-1)):
            twin.space.lend(array)
        found.append(list(_words(twin, worker, tuples, arena, chance)))
    return found


def _words(twin: NativeTwin, worker: memory.Worker, tuples: list[Tuple], arena: np.ndarray, chance: random.Random
           ) -> Iterator[Words]:  # fmt: skip
    w, batch = worker.words, worker.batch
    at = 0
    while at < len(tuples):
        part = tuples[at : at + chance.choice((1, 3, 20))]
        for i, each in enumerate(part):
            batch[o.B_TS, i], batch[o.B_ORIGIN, i] = each.ts, each.side << 32 | each.side
            batch[o.B_SEQ, i] = each.number
        with np.errstate(over="ignore"):
            through(twin(STRETCHES)["arrange_parted"](w, batch, len(part), worker.probes, arena))
        own = {}
        for i in range(int(w[o.COUNT])):
            at_part, k = int(batch[o.B_RANK, i] - w[o.RANK]), batch[o.B_PROBE, i]
            each, p = part[at_part], worker.probes[part[at_part].side]
            assert (p[o.P_ID, k], p[o.P_TS, k], batch[o.B_TS, i]) == (each.number, each.ts, each.ts)
            own[at_part] = Words(int(p[o.P_WORD, k]), int(p[o.P_HOLDS, k]))
        for i in range(len(part)):
            yield own.get(i, Words(0, 0))
        assert (w[o.CUT_RANK], w[o.CUT_TS]) == (w[o.RANK] + len(part), part[-1].ts)
        w[o.RANK] += len(part)
        at += len(part)


def pairs(tuples: list[Tuple], line: str, reach: Reach) -> list[tuple[int, int]]:
    """Places of all pairs that match, the later tuple's first, in result order."""
    found, preceding = [], [0, 0]
    for b, later in enumerate(tuples):
        first = reach.first(later.side, preceding[1 - later.side] if reach.places == NUMBER else later.ts)
        for a, each in enumerate(tuples[:b]):
            if each.side == later.side or each.value is None or later.value is None:
                continue
            left, right = (later, each) if later.side == 0 else (each, later)
            near = left.value == right.value
            if line != "hash":
                near = (line == "range" or left.value // 4 == right.value // 4) and BAND[
                    0
                ] <= left.value - right.value <= BAND[1]  # type: ignore[operator]
            if near and (each.number if reach.places == NUMBER else each.ts) >= first:
                found.append((b, a))
        preceding[later.side] += 1
    return found


def check(tuples: list[Tuple], line: str, how: str, reach: Reach, words: list[list[Words]]) -> None:
    own = parting.owned(how)
    met: dict[int, list[tuple[int, set[int]]]] = {at: [] for at in range(len(tuples))}
    for b, a in pairs(tuples, line, reach):
        given = [k for k, each in enumerate(words) if each[b].holds & each[a].word & seg.BITS]
        assert len(given) == 1, f"the pair {tuples[b]}, {tuples[a]} is given out {len(given)} times"
        there = {k for k, each in enumerate(words) if each[b].word & seg.BITS and each[a].word & seg.BITS}
        for at in (a, b):
            if how == "semi" and tuples[at].side == own:
                assert all(given[0] in before for _, before in met[at]), "a first match is not the first"
            met[at].append((given[0], there))
    for at, each in enumerate(tuples):
        if each.side not in HOWS[how].alone:
            continue
        says = {k for k, own_words in enumerate(words) if own_words[at].word & seg.SAYS}
        counted = {words[k][at].word >> seg.BY for k in says}
        assert counted == {len(says)}, f"{each} is said to be alone by {len(says)} workers, not {counted}"
        assert all(says & there for _, there in met[at]), f"who says whether {each} is alone misses a partner"


def sample(line: str, how: str, window: str, seed: int, faults: Patches | None = None) -> None:
    chance = random.Random(f"{line} {how} {window} {seed}")
    workers = chance.choice((2, 3, 4, 5))
    made = partitioned.plan(Wish(workers, how, line="hash" if line == "keyed" else line))
    restless = Parts(line, restless=(1 + seed, chance.choice((1, 4, 12))))
    plan = Plan("restless", made.seats, made.layout, "", parts=restless)
    tuples = sequence(chance, 70)
    check(tuples, line, how, WINDOWS[window], taken(tuples, plan, how, WINDOWS[window], chance, faults or {}))


CASES = [("inner", window) for window in WINDOWS] + [(how, "time") for how in HOWS if how != "inner"]


@pytest.mark.crossed
@pytest.mark.sampled
@pytest.mark.parametrize("line", ["hash", "range", "keyed"])
@pytest.mark.parametrize(("how", "window"), CASES)
def test_a_pair_is_found_at_one_worker_and_a_row_by_whoever_says_that_it_is_alone(
    line: str, how: str, window: str
) -> None:
    for seed in range(examples(24)):
        sample(line, how, window, seed)


class Mutant(NamedTuple):
    old: str
    new: str
    found: str
    line: str = "range"
    how: str = "inner"
    window: str = "time"


MUTANTS = {
    "a tuple goes to one neighbour only": Mutant(
        "return high >= f[t + FROM + worker] and low <", "return low >= f[t + FROM + worker] and low <", "given out 0 times",
    ),
    "a tuple goes to the wrong neighbour": Mutant(
        "and low < f[t + FROM + worker + 1]", "and low < f[t + FROM + worker]", "given out 0 times",
    ),
    "within a key a band reaches one place short": Mutant(
        "start + within(low), start + within(high)", "start + within(low), start + within(high) - 1.0", "given out 0 times",
        "keyed",
    ),
    "coordinates below zero descend": Mutant(
        "ascending = bits ^ ((bits >> 63) & np.int64(0x7FFFFFFFFFFFFFFF))", "ascending = bits", "given out 0 times", "keyed",
    ),
    "a key's stretch reaches into the next one": Mutant(
        "low, high = start + within(low), start + within(high)", "low, high = within(low), start + within(high)",
        "given out", "keyed",
    ),
    "a band reaches one unit short": Mutant("= band[0], band[1],", "= band[0], band[1] - 1.0,", "given out 0 times"),
    "a band reaches one unit short on the other side": Mutant(
        "= band[0], band[1],", "= band[0] + 1.0, band[1],", "given out 0 times",
    ),
    "the old table is forgotten": Mutant("    elif out_of_reach(w, q, ts):", "    else:", "given out 0 times"),
    "the old table is forgotten a moment too soon": Mutant(
        "w[o.STEP], ts) <= q[SINCE_TS]:", "w[o.STEP], ts) < q[SINCE_TS]:", "given out 0 times",
    ),
    "the old table is forgotten a tuple too soon": Mutant(
        "if first < q[SINCE + 1 - side]:", "if first + 1 < q[SINCE + 1 - side]:", "given out 0 times", window="count",
    ),
    "the old table is forgotten for one stream": Mutant(
        "            if first < q[SINCE + 1 - side]:\n                return False",
        "            return first >= q[SINCE + 1 - side]", "given out 0 times", window="count",
    ),
    "the new table is not stored for": Mutant(
        "if q[STAGE] != SETTLED and belongs(", "if q[STAGE] == MEETING and belongs(", "given out 0 times",
    ),
    "turns are counted differently": Mutant(
        "return number % q[t + ROWS] == worker // q[t + COLS]",
        "return (number + (q[ME] == 0)) % q[t + ROWS] == worker // q[t + COLS]",
        "given out", "hash",
    ),
    "tables change where a worker's batch begins": Mutant(
        "end = min(n, q[NEXT_LOOK] - w[o.RANK])", "end = n", "given out",
    ),
    "a table is made of a worker's own tuples": Mutant(
        "            if usable and (all_noted", "            if usable and number % q[CREW] == q[ME] and (all_noted",
        "given out",
    ),
    "a tuple that reaches just to a worker's stretch is another's": Mutant(
        "(high < own_from)", "(high <= own_from)", "given out 0 times",
    ),
    "a hot point is its stretch's own": Mutant(
        "f[first_hot + k]\n                    elsewhere &= (low > hot)",
        "f[first_hot + k]\n                    elsewhere &= (low >= hot)", "given out 0 times", "hash",
    ),
    "of two tables only one is asked": Mutant(
        "also = t if q[STAGE] == SETTLED else table_at(q, 1 - q[NOW])", "also = t", "given out 0 times",
    ),
    "a hot point of the other table is its stretch's own": Mutant(
        "more_hots, more_hot = 0 if also == t else q[also + HOT], also + HOTS", "more_hots, more_hot = 0, also + HOTS",
        "given out 0 times", "hash",
    ),
    "the stretch of the other table is not looked at": Mutant(
        " & ((high < also_from) | (low >= also_to))", "", "given out 0 times",
    ),
    "what is by turns in the other table is cut": Mutant(
        "q[t + KIND] == CUT and q[also + KIND] == CUT", "q[t + KIND] == CUT", "given out 0 times",
    ),
    "a tuple by turns is cut": Mutant(
        "by_cut = q[t + KIND] == CUT and q[also + KIND] == CUT", "by_cut = True", "given out 0 times",
    ),
    "an owned tuple reaches as far as the other side's": Mutant("x if side == owned else least", "least", "given out"),
    "who is to say it has not met all": Mutant(
        "if q[STAGE] == STORING and q[WHOLE]:", "if q[STAGE] == STORING and False:", "misses a partner", how="left",
    ),
    "a first match is taken for the first too soon": Mutant(
        "if q[STAGE] == STORING and q[WHOLE]:", "if q[STAGE] == STORING and False:", "not the first", how="semi",
    ),
    "the old table says what only the new one knows": Mutant(
        "says = 1 - now if q[STAGE] == MEETING else now", "says = now", "misses a partner", how="anti",
    ),
    "it is counted by the wrong table": Mutant(
        "holders(q, f, table_at(q, says), side", "holders(q, f, table_at(q, 1 - says), side", "is said to be alone", how="full",
    ),
    "what can match nothing is nobody's": Mutant(
        "if number % q[CREW] == q[ME] else 0", "if number % q[CREW] == q[CREW] else 0", "is said to be alone", how="left",
    ),
}  # fmt: skip


def deciding(rounds: list[list[float]], faults: Patches | None = None) -> list[bool]:
    """Whether a worker of fifteen takes a new table after each round of noted places."""
    made = partitioned.plan(Wish(15, "inner", line="hash"))
    encoder: Any = Encoder()
    segments = tuple(
        [memory.Segment(side, 1, encoder, matched=False, parted=True, rows=2) for _ in made.seats] for side in (0, 1)
    )
    worker = memory.Worker(
        3, made, segments, encoder, WINDOWS["time"], "inner", most=ROOM, results=2, arena_mask=ROOM - 1  # type: ignore[arg-type]
    )  # fmt: skip
    assert worker.parted is not None
    words, found = worker.parted, []
    steps = NativeTwin((LOOP, "plait.threads.gate"), patches=faults or {})(STRETCHES)
    for places in rounds:
        for number, place in enumerate(places):
            through(steps["note"](words, words.view(np.float64), number & 1, number, place, place))
        found.append(bool(through(steps["decide"](words, words.view(np.float64)))))
        words[stretches.NOW] ^= found[-1]
    return found


def test_chance_alone_changes_no_table() -> None:
    chance = random.Random(2)
    even = [[chance.random() for _ in range(stretches.KEPT)] for _ in range(16)]
    crowded = [[chance.random() ** 3 for _ in range(stretches.KEPT)] for _ in range(3)]
    assert deciding(even + crowded) == [True] + 15 * [False] + [True, False, False]
    by_any_gain = {STRETCHES: [("(q[BUSIEST] - 3 * int64(np.sqrt(q[BUSIEST])))", "q[BUSIEST]")]}
    assert sum(deciding(even, by_any_gain)) > 2


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_faults_are_found(name: str) -> None:
    mutant = MUTANTS[name]
    faults = {STRETCHES: [(mutant.old, mutant.new)]}

    def search() -> None:
        for seed in range(60):
            sample(mutant.line, mutant.how, mutant.window, seed, faults)

    with pytest.raises(AssertionError, match=mutant.found):
        search()
