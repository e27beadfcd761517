"""A batch's way into the hive (`hive.place`) under the scheduler: two sources place batches, one thread takes winsets out.

The text that runs is `place` itself, with the door, the list of winsets and, where windows are shared, their tables. What a
source does after it, updating its tallies, is a plain addition here. At the end every tuple must have been taken once, in the
winset of its pane and under its key, and every winset's last tuple must be its members' last.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.explore.schedule import Failure, explore, sample
from tests.explore.twin import Twin

from plait.core.machine.line import LINE
from plait.threads.aggregate.hive import door
from plait.threads.aggregate.hive import words as y

PACKAGE = "plait.threads.aggregate.hive"
MODULE = f"{PACKAGE}.place"
ADVANCE = 10
#: The twin's own: in plain Python, and a hash that fits 64 bits with a sign.
PLAIN = [
    ("from plait.core.kernels.groups import mixed\n", "from tests.threads.aggregate.test_hive_place import mixed\n"),
    ("from plait.core.kernels.panes import pane_of\n", "from tests.threads.aggregate.test_hive_place import pane_of\n"),
]


def mixed(words, i):
    return np.uint64(int(words[0, i]) * 7)


def pane_of(ts, advance, rest):
    pane = int(ts) // advance
    return pane, pane * advance, (pane + 1) * advance


class Source:
    """One source's own memory, as `Tallies` has it: room for everything, so that nothing grows."""

    def __init__(self, keys: int = 16) -> None:
        self.own = np.zeros(y.OWN_WORDS, np.int64)
        self.panes = np.zeros((3, 8), np.int64)
        self.direct, self.table = np.full(4, -1, np.int64), np.full(32, -1, np.int64)
        self.kept, self.window = np.zeros((2, keys), np.int64), np.zeros(keys, np.int64)
        self.sums = [0] * keys


class TwinPlace:
    """A hive, its door, and sources that place batches of (ts, key): the value of each tuple is 1."""

    def __init__(self, twin: Twin, shared: bool) -> None:
        self.place, self.hive, self.words = twin(MODULE), twin(f"{PACKAGE}.hive"), twin(f"{PACKAGE}.words")
        *header, total = y.header(slots=2, keys=2, nodes=8, words=1024)
        self.h = header + [0] * (total - len(header))
        y.prepare(self.h)
        for slot in (0, 1):
            self.h[y.SOURCES_AT + slot * y.SOURCE_WORDS + y.WRITTEN] = 0
        self.d = [0] * (door.INSIDE + 3 * LINE)
        self.d[door.SEATS] = 3
        self.shared, self.sources = shared, (Source(), Source())
        self.pushed: Counter[tuple[int, int]] = Counter()
        self.lasts: dict[int, tuple[int, int, int]] = {}
        self.taken: list[tuple[int, dict[int, int], tuple[int, int, int]]] = []

    def batch(self, slot: int, *tuples: tuple[int, int], ref: int = 0, until: int = y.LAST):
        """Place a batch, then say that panes below `until` are written."""
        source, n = self.sources[slot], len(tuples)
        ts, keys = np.array([t for t, _ in tuples]), np.array([k for _, k in tuples])
        words, out = np.stack((keys, np.zeros(n, np.int64))), np.empty(n, np.int64)
        for at, key in tuples:
            pane = at // ADVANCE
            self.pushed[pane, key] += 1
            self.lasts[pane] = max(self.lasts.get(pane, (0, 0, 0)), (at, slot, ref))
        done = yield from self.place["place_inside"](
            self.d, 0, self.h, slot, ts, words, words.reshape(-1), 0, n, ADVANCE, 0, False, True, self.shared, source.own,
            *source.panes, source.direct, source.table, source.kept, source.window, np.array([ref]), out,
        )  # fmt: skip
        assert done == n
        for tally in out.tolist():
            source.sums[tally] += 1
        yield from self.hive["advance"](self.h, slot, until)

    def take(self):
        """The first complete winset, if there is one: its sums by key, and its last tuple."""
        winset = yield from self.hive["take"](self.h, y.LAST)
        if winset == y.NIL:
            return False
        pane = self.h[self.words["node_at"](self.h, winset) + y.PANE]
        first, end, ts, ref = ([0, 0] for _ in range(4))
        self.hive["list_members"](self.h, winset, first, end, ts, ref)
        windows = None
        if self.shared:
            key = [0] * 64
            number = self.hive["list_windows"](self.h, winset, [0] * 1024, 0, key)
            windows = [key[2 * k] for k in range(number)]
            assert len(set(windows)) == number, "a key has two windows"
        sums: Counter[int] = Counter()
        for slot, source in enumerate(self.sources):
            for tally in range(first[slot], end[slot]):
                sums[int(source.kept[0, tally])] += source.sums[tally]
                if windows is not None:
                    at = self.words["piece_at"](self.h, int(source.window[tally]))
                    assert windows[self.h[at + y.W_NUMBER]] == source.kept[0, tally]
        last = max(((int(ts[k]), k, int(ref[k])) for k in (0, 1) if end[k] > first[k]), default=(0, 0, 0))
        self.taken.append((pane, dict(sums), last))
        return True

    def takes(self, times: int):
        for _ in range(times):
            yield from self.take()

    def finish(self) -> None:
        for slot in (0, 1):
            _through(self.hive["advance"](self.h, slot, y.LAST))
        while _through(self.take()):
            pass
        panes = [pane for pane, _, _ in self.taken]
        assert panes == sorted(set(panes))
        assert {(pane, key): n for pane, sums, _ in self.taken for key, n in sums.items()} == dict(self.pushed)
        assert {pane: last for pane, _, last in self.taken} == self.lasts


def _through(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def in_a_row(*calls):
    for call in calls:
        yield from call


def same_panes(p: TwinPlace):
    # Both bring the same panes and keys; 9 is no small key, and is found by its hash.
    return [p.batch(0, (1, 1), (2, 9), (12, 1), ref=5), p.batch(1, (3, 9), (11, 1), (12, 9), ref=6), p.takes(2)]


def batch_after_batch(p: TwinPlace):
    # A pane that goes on in the next batch: its tallies and its last tuple are those of both.
    return [
        in_a_row(
            p.batch(0, (1, 1), (2, 2), ref=5, until=0), p.batch(0, (3, 1), (14, 2), ref=7, until=1),
            p.batch(0, (15, 2), ref=8, until=1), p.batch(0, (25, 2), ref=9),
        ),
        p.batch(1, (4, 2), ref=6),
        p.takes(2),
    ]  # fmt: skip


CASES = {"same_panes": same_panes, "batch_after_batch": batch_after_batch}


def scenario(case: str, shared: bool, patches: tuple[tuple[str, str], ...] = ()):
    twin = Twin(PACKAGE, patches={MODULE: [*PLAIN, *patches]})

    def begin(clock):
        made = TwinPlace(twin, shared)
        return CASES[case](made), made.finish

    return begin


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("case", CASES)
def test_every_schedule_with_one_preemption(case, shared):
    assert sum(explore(scenario(case, shared), preemptions=1)) > 100


@pytest.mark.sampled
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("case", CASES)
def test_random_schedules(case, shared):
    sample(scenario(case, shared), seed=3, runs=60, switch=0.35)


class Mutant(NamedTuple):
    old: str
    new: str
    case: str = "same_panes"
    shared: bool = False


END = "end_member(h, own[MEMBER], tallies, ts, ref, last, low)\n"
MUTANTS = {
    "a pane's end not said when the next one begins": Mutant(
        f"                    {END}", "                    pass\n"
    ),
    "nor when the batch ends": Mutant(f"    if own[PANE_END] > 0:\n        {END}    return done", "    return done"),
    "a tally of the pane before taken for this one's": Mutant("winset, first = found, tallies", "winset = found"),
    "the last tuple of the batch taken for the pane's": Mutant("= ts[last]", "= ts[-1]"),
    "a last tuple that forgets the batch before": Mutant(
        "    if last >= low:\n", "    if True:\n", "batch_after_batch"
    ),
    "windows of another winset": Mutant(
        "window_of(h, slot, winset,", "window_of(h, slot, own[WINSET] or winset,", "batch_after_batch", shared=True
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name):
    mutant = MUTANTS[name]
    with pytest.raises(Failure) as found:
        explore(scenario(mutant.case, mutant.shared, ((mutant.old, mutant.new),)), preemptions=1, most_steps=4000)
    assert isinstance(found.value.cause, (AssertionError, IndexError)), found.value
