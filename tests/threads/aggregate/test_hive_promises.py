"""How sources' promises wake the thread that takes winsets out (`hive.promises`), under the scheduler.

Two sources promise, some promises within a pane and some past its end; the taker sleeps until the frontier has passed the end
of the pane it knows, pane after pane, until both have ended. A wake-up that is lost leaves it asleep for ever, which the
scheduler tells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.explore.schedule import Failure, explore, sample
from tests.explore.twin import Twin

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads import words as shared
from plait.threads.aggregate.hive import door
from plait.threads.aggregate.hive import words as y
from plait.threads.gate import words as gate_words

PACKAGES = ("plait.threads.aggregate.hive", "plait.threads.gate")
MODULE = "plait.threads.aggregate.hive.promises"
STEP = 10
PLAIN = [
    (
        "from plait.core.kernels.panes import pane_of\n",
        "from tests.threads.aggregate.test_hive_place import pane_of\n",
    ),
]


class TwinSources:
    """A hive and a gate with two sources, and one reader: the taker. `seen` are the frontiers that it has worked up to."""

    def __init__(self, twin: Twin, onward: bool) -> None:
        self.calls, self.gate_calls = twin(MODULE), twin("plait.threads.gate.calls")
        *header, total = y.header(slots=2, keys=2, nodes=8, words=64)
        self.h = header + [0] * (total - len(header))
        y.prepare(self.h)
        for slot in (0, 1):
            self.h[y.SOURCES_AT + slot * y.SOURCE_WORDS + y.WRITTEN] = y.FIRST
        *words, total = gate_words.header(slots=2, seats=1, capacity=4, pending=4, store="rings")
        self.g = words + [0] * (total - len(words))
        gate_words.prepare(self.g, [0, 1], 1)
        self.d = [0] * (door.INSIDE + 3 * LINE)
        self.d[door.SEATS] = 3
        self.c = [0] * shared.CONTROL_WORDS
        self.onward, self.seen, self.halted = onward, [], False

    def promises(self, slot: int, *times: int, end: bool = True):
        for ts in times:
            out = [0, 0]
            done = yield from self.calls["promise_inside"](
                self.d, 0, self.h, slot, self.g, ts, STEP, 0, self.onward, out
            )
            assert (done, out[0]) == (0, 0)
        if end:
            yield from self.gate_calls["end"](self.g, slot)

    def takes(self, until: int = AFTER_ALL):
        """Wait for the frontier, again and again, as the output thread does."""
        passed = BEFORE_ALL
        while passed < until:
            known = passed if self.onward else self.calls["last_in_pane"](passed, STEP, 0)
            out = [0]
            code = yield from self.calls["await_frontier"](self.g, self.c, 0, known, 0, out)
            assert code == 0
            if self.c[shared.HALT]:
                self.halted = True
                return
            assert out[0] > known
            passed = out[0]
            self.seen.append(passed)

    def halt(self):
        """As `life.halt`, which wakes all."""
        yield
        self.c[shared.HALT] = shared.STOPPING
        yield
        self.g[gate_words.READY_EVENT] += 1

    def finish(self) -> None:
        assert self.halted or self.seen[-1] in (3, 4, 5, STEP, AFTER_ALL)
        panes = [ts // STEP for ts in self.seen]
        if not self.onward and not self.halted:
            assert panes == sorted(set(panes)), "it was woken within a pane"


def turns(s: TwinSources):
    # Steps within a pane, to its end exactly, and past it; each source is the last to leave a pane once.
    return [s.promises(0, 3, 10, 12), s.promises(1, 5, 9, 20), s.takes()]


def together(s: TwinSources):
    # Both leave the same pane at once.
    return [s.promises(0, 10), s.promises(1, 10), s.takes()]


def exactly(s: TwinSources):
    # A pane is complete when the frontier stands at its end, and nobody says more.
    return [s.promises(0, 3, 10, end=False), s.promises(1, 5, 10, end=False), s.takes(10)]


def steps(s: TwinSources):
    # Where another operator waits for every step, those within a pane count.
    return [s.promises(0, 3, 5, end=False), s.promises(1, 4, 6, end=False), s.takes(5 if s.onward else 3)]


def stopped(s: TwinSources):
    # Nobody ends: only HALT lets the taker go.
    return [s.promises(0, 3, end=False), s.takes(), s.halt()]


CASES = {"turns": turns, "together": together, "exactly": exactly, "steps": steps, "stopped": stopped}


def scenario(case: str, onward: bool = False, patches: tuple[tuple[str, str], ...] = ()):
    twin = Twin(PACKAGES, patches={MODULE: [*PLAIN, *patches]})

    def begin(clock: Any):
        made = TwinSources(twin, onward)
        return CASES[case](made), made.finish

    return begin


@pytest.mark.crossed
@pytest.mark.parametrize("onward", [False, True], ids=["panes", "onward"])
@pytest.mark.parametrize("case", CASES)
def test_every_schedule_with_one_preemption(case, onward):
    assert sum(explore(scenario(case, onward), preemptions=1, most_steps=4000)) > 10


@pytest.mark.sampled
@pytest.mark.parametrize("case", CASES)
def test_random_schedules(case):
    sample(scenario(case), seed=5, runs=100, switch=0.35, most_steps=4000)


class Mutant(NamedTuple):
    old: str
    new: str
    case: str = "turns"
    onward: bool = False


AT_HIVE = "advance(h, slot, pane_until(ts, step, rest))\n"
AT_GATE = "out[0] = promise(g, slot, ts, step, rest, onward)\n"
MUTANTS = {
    "a source at a pane's end taken for one in it": Mutant("    return end - 1\n", "    return end\n", "exactly"),
    "nobody woken": Mutant("leave_source(g, slot, before if ts > before else AFTER_ALL)", "leave_source(g, slot, AFTER_ALL)",
                           "exactly"),
    "a pane's end where every step matters": Mutant(
        "before = before if onward else last_in_pane(before, step, rest)", "before = last_in_pane(before, step, rest)",
        "steps", onward=True,
    ),
    "asleep without a second look": Mutant(
        "        ticket = prepare(g, READY_EVENT)\n        code = look(g, reader, out)\n",
        "        code = look(g, reader, out)\n        ticket = prepare(g, READY_EVENT)\n", "together",
    ),
    "HALT slept through": Mutant(" or load_acquire(c, shared.HALT) != 0:", ":", "stopped"),
    "the gate told before the hive": Mutant(
        f"    {AT_HIVE}    leave(d, slot)\n    {AT_GATE}", f"    {AT_GATE}    {AT_HIVE}    leave(d, slot)\n",
        "written",
    ),
}  # fmt: skip


def written(s: TwinSources):
    # What the taker sees at the gate is written at the hive: it could take the winsets below.
    def checked():
        for seen in s.takes():
            yield seen
            if s.seen and s.seen[-1] < AFTER_ALL:
                pane = s.seen[-1] // STEP
                assert all(s.h[y.SOURCES_AT + k * y.SOURCE_WORDS + y.WRITTEN] >= pane for k in (0, 1))

    return [s.promises(0, 12, 25, end=False), s.promises(1, 14, 30, end=False), checked(), s.halt()]


CASES["written"] = written


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name):
    mutant = MUTANTS[name]
    with pytest.raises(Failure):
        explore(scenario(mutant.case, mutant.onward, ((mutant.old, mutant.new),)), preemptions=1, most_steps=4000)
