"""Epochs under the scheduler, on the gate's own text: P1 to P6 of STRETCH (section 3), in many schedules.

All schedules with one preemption of a run whose tuples lie in the gate when it begins, and in which one thread asks for the
switch and then ends both sources; with two in the soak. Random ones where the sources are threads of their own. Each property
is a check of its own, and for each there is a planted fault that the exploration notices (`MUTANTS`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.examples import examples
from tests.explore import races
from tests.explore.schedule import Clock, Failure, Sleep, Words, explore, sample
from tests.explore.twin import Patches, Twin
from tests.threads.gate.gate_scenarios import Steps

from plait.order import AFTER_ALL
from plait.threads.gate import codes
from plait.threads.gate import epochs as words_of
from plait.threads.gate import words as gate_words

SEED = int(os.environ.get("PLAIT_SEED", "20190624"))
HALT = 0  # in the control words


class Served(NamedTuple):
    """One tuple, as a thread handed it to a share."""

    thread: int
    share: int
    ts: int
    epoch: int


class World:
    """A ring gate of two sources and one for switches; two shares; as many threads; one list of what was done."""

    def __init__(self, clock: Clock, twin: Twin, owners: list[int], find_races: bool) -> None:
        self.epochs, self.ring = twin("plait.threads.gate.epochs"), twin("plait.threads.gate.ring")
        self.calls, self.flow = twin("plait.threads.gate.calls"), twin("plait.threads.gate.flow")
        *head, total = gate_words.header(slots=3, seats=len(owners), capacity=8, pending=8, store="rings")
        gate = head + [0] * (total - len(head))
        gate_words.prepare(gate, [0, 1], len(owners))
        e = [0] * words_of.words(len(owners), 2)
        words_of.prepare(e, owners, 2)
        made: Callable[[list[int]], Any] = (
            (lambda w: races.Memory(w, clock, 6)) if find_races else (lambda w: Words(w, clock))
        )
        self.g, self.e, self.c = made(gate), made(e), made([0] * 4)
        self.state = made([0] * len(owners))  # plain: each share's own
        if find_races:
            # One machine: what a thread learns through one of them it knows of all.
            self.e.known = self.c.known = self.state.known = self.g.known
        self.owners, self.shares = owners, len(owners)
        self.kept = [[0] * 4 for _ in owners]
        self.arrays = [[[0] * 4 for _ in range(4)] for _ in owners]
        self.log: list[Served] = []
        self.switched: dict[int, int] = {}  # epoch -> ts
        self.maps = {0: owners}
        self.quiet = False

    def feed(self, slot: int, *ts: int) -> Steps:
        """Tuples of these ts; the source ends when the first switch is on its way, or, if all is quiet, when it is over."""
        for n, at in enumerate(ts):
            got = yield from self.ring["add"](self.g, slot, [at], [n], [n], 0, 1, at)
            assert got == 1
        yield Sleep(self.e, words_of.ANNOUNCED, 0)
        if self.quiet:
            yield from self._reach(self.e, self._shares(words_of.TAKEN), 1)
        yield from self.calls["end"](self.g, slot)

    def lay_in(self, slot: int, *ts: int) -> None:
        """Tuples of these ts, before the run begins."""
        for n, at in enumerate(ts):
            _run(self.ring["add"](self.g, slot, [at], [n], [n], 0, 1, at))

    def end(self) -> Steps:
        """Both sources, as `feed` ends its own."""
        for slot in (0, 1):
            yield from self.feed(slot)

    def request(self, *maps: list[int]) -> Steps:
        """Switch to these maps, one after the other."""
        for epoch, owners in enumerate(maps, 1):
            self.maps[epoch] = owners
            while not (yield from self.epochs["all_passed"](self.e, epoch - 1)):
                yield from self._reach(self.e, self._shares(words_of.PASSED), epoch - 1)
            ts, seq, ref = [0], [0], [0]
            code = codes.DRAINING
            while code == codes.DRAINING:
                code = yield from self.epochs["switch_to"](
                    self.g, self.e, [2], [words_of.SWITCH_ORIGIN], owners, epoch, ts, seq, ref
                )
                if code == codes.DRAINING:
                    tail = self._plain(self.g)[gate_words.SOURCES_AT + 2 * gate_words.SOURCE_WORDS + gate_words.TAIL]
                    read = [gate_words.read_at.py_func(self._plain(self.g), k) + 2 for k in range(self.shares)]
                    yield from self._reach(self.g, read, tail)
            if code == codes.DONE:
                return
            assert code == 0, code
            self.switched[epoch] = ts[0]

    def _shares(self, word: int) -> list[int]:
        return [self.epochs["share_at"](self._plain(self.e), share) + word for share in range(self.shares)]

    def _reach(self, memory: Any, places: list[int], least: int) -> Steps:
        """Sleep until each of these words is `least` or more."""
        for at in places:
            yield memory, at
            while (value := self._plain(memory)[at]) < least:
                yield Sleep(memory, at, value)

    def _frontier(self) -> int:
        """Of both streams, now: it only rises."""
        g = self._plain(self.g)
        return min(g[gate_words.SOURCES_AT + slot * gate_words.SOURCE_WORDS + gate_words.PROGRESS] for slot in (0, 1))

    def _looks(self, at: int) -> int:
        return int(self._plain(self.e)[at])

    @staticmethod
    def _plain(memory: Any) -> Any:
        return memory.words if isinstance(memory, races.Memory) else memory

    def thread(self, me: int) -> Steps:
        """As `threads.elastic.crew` and `threads.join.serve` do it."""
        epochs = self.epochs
        while (yield from self._ended()) < self.shares:
            if not (yield from epochs["owns_any"](self.e, me)):
                yield from epochs["park"](self.c, HALT, self.e, me, 0)
                continue
            if (yield from self._turn(me)):
                continue
            ticket = yield from epochs["prepare_at_gate"](self.g, self.e, me)
            if (yield from self._turn(me)) or not (yield from epochs["owns_any"](self.e, me)):
                yield from epochs["stay_awake"](self.g, self.e, me)
            else:
                yield from epochs["sleep_at_gate"](self.g, self.e, me, ticket, 0)
        yield from epochs["wake_threads"](self.g, self.e)

    def _ended(self) -> Steps:
        yield self.e, words_of.ENDED
        return races.load_acquire(self.e, words_of.ENDED)

    def _turn(self, me: int) -> Steps:
        worked = False
        for share in range(self.shares):
            if (yield from self.epochs["owner_of"](self.e, share)) == me:
                at = self.epochs["share_at"](self.e, share)
                yield from self.epochs["take_up"](self.e, share, 0)
                if self.e[at + words_of.FINISHED]:
                    continue
                worked = (yield from self._serve(me, share)) or worked
        # Finishing the last share ends everybody's loop.
        return worked or (yield from self._ended()) == self.shares

    def _serve(self, me: int, share: int) -> Steps:
        ts, origin, seq, ref = self.arrays[share]
        kept = self.kept[share]
        number = yield from self.epochs["take"](self.g, self.e, share, 4, ts, origin, seq, ref, kept, 0)
        if number == codes.DONE:
            yield from self.epochs["finish"](self.e, share)
            return True
        assert number >= 0, number
        passed = self.e[self.epochs["share_at"](self.e, share) + words_of.PASSED]
        for i in range(number):
            yield self.state, share, 0
            assert origin[i] != words_of.SWITCH_ORIGIN, "a switch was handed to a share as a tuple"
            assert ts[i] < self._frontier(), f"P3: a tuple at {ts[i]} before it was ready"
            self.state[share] = self.state[share] + 1  # a race here is P2 broken
            self.log.append(Served(me, share, ts[i], passed))
        if kept[words_of.SWITCHING]:
            yield from self.epochs["hand_on"](self.g, self.e, me, share, kept[words_of.SWITCHING], 0)
            return True
        return number > 0

    def check(self, expected: list[int]) -> None:
        for share in range(self.shares):
            own = [s for s in self.log if s.share == share]
            seen = [s.ts for s in own]
            # P3: both streams are merged (that each tuple is ready: see `_serve`); P1: every share sees all of them, once each.
            assert seen == sorted(seen), f"P3: share {share} saw {seen}"
            assert seen == expected, f"P1: share {share} saw {seen}"
            # P4: epochs follow one another; P2, P5: each is served by the thread of its own map and by no other.
            assert [s.epoch for s in own] == sorted(s.epoch for s in own), (
                "P4: a tuple of the old epoch after one of the new"
            )
            for s in own:
                assert self.maps[s.epoch][share] == s.thread, f"P2/P5: {s}, and the map says {self.maps[s.epoch]}"
                due = max((e for e, ts in self.switched.items() if ts <= s.ts), default=0)
                assert s.epoch == due, f"P6: {s} belongs to epoch {due}"
        for epoch in self.switched:
            assert all(self._looks(self.epochs["share_at"](self._plain(self.e), k) + words_of.PASSED) >= epoch
                       for k in range(self.shares)), "P5: a share has not met the switch"  # fmt: skip


def twin_of(patches: Patches | None = None) -> Twin:
    found = {module: list(pairs) for module, pairs in (patches or {}).items()}
    found.setdefault("plait.threads.gate.flow", []).append(("YIELDS: Final = 4", "YIELDS: Final = 0"))
    return Twin("plait.threads.gate", patches=found, steps=races)


def scenario(maps: list[list[int]], left: tuple[int, ...], right: tuple[int, ...], *, patches: Patches | None = None,
             quiet: bool = False, laid_in: bool = False) -> Any:  # fmt: skip
    """`laid_in`: the tuples are in the gate when the run begins."""
    twin = twin_of(patches)

    def begin(clock: Clock) -> tuple[list[Steps], Callable[[], None]]:
        world = World(clock, twin, maps[0], True)
        world.quiet = quiet
        threads = [world.thread(0), world.thread(1)]
        if laid_in:
            world.lay_in(0, *left)
            world.lay_in(1, *right)
            asks = world.request(*maps[1:])
            threads += [_in_a_row(asks, world.end())] if len(maps) == 2 else [asks, world.end()]
        else:
            threads += [world.feed(0, *left), world.feed(1, *right), world.request(*maps[1:])]
        return threads, lambda: world.check(sorted(left + right))

    return begin


def _in_a_row(*parts: Steps) -> Steps:
    for part in parts:
        yield from part


#: name -> maps, and what the two sources bring. Ties between sources, and a switch that may fall on one.
CASES: dict[str, tuple[list[list[int]], tuple[int, ...], tuple[int, ...]]] = {
    "provision": ([[0, 0], [0, 1]], (1, 3), (2, 3)),
    "decommission": ([[0, 1], [0, 0]], (1, 3), (3, 4)),
    "rebalance": ([[0, 1], [1, 0]], (2,), (2, 3)),
    "twice": ([[0, 0], [1, 1], [0, 1]], (1, 2), (2,)),
    "apart": ([[0, 0], [0, 1]], (1, 5), (2, 3)),
    # Nothing comes after the switch that could wake a thread in its stead.
    "quiet": ([[0, 1], [0, 0]], (1,), (2,)),
}


EXPLORED = ["provision", "quiet"]  # the others in the soak


def named(name: str, *, patches: Patches | None = None, laid_in: bool = True) -> Any:
    maps, left, right = CASES[name]
    return scenario(maps, left, right, quiet=name == "quiet", patches=patches, laid_in=laid_in)


@pytest.mark.parametrize("name", EXPLORED)
def test_properties_hold_in_every_schedule_with_one_preemption(name: str) -> None:
    without, with_one = explore(named(name), preemptions=1)
    assert without > 5
    assert with_one > 300


@pytest.mark.sampled
@pytest.mark.parametrize("name", CASES)
def test_properties_hold_in_random_schedules(name: str) -> None:
    sample(named(name, laid_in=False), seed=SEED, runs=examples(150))


@pytest.mark.slow
def test_properties_hold_in_every_schedule_with_two_preemptions() -> None:
    assert explore(named("provision"), preemptions=2)[2] > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in EXPLORED])
def test_properties_hold_in_every_other_schedule_with_one_preemption(name: str) -> None:
    assert explore(named(name), preemptions=1)[1] > 300


#: What is broken -> (module, text, what stands there instead, the case that shows it)
MUTANTS = {
    "P2: the share is given away before its epoch is noted": (
        "epochs", "    store_release(e, s + PASSED, epoch)\n"
        "    # Last: whoever acquires it may touch the share, and these words, at once.\n    store_release(e, s + OWNER, to)\n",
        "    store_release(e, s + OWNER, to)\n    store_release(e, s + PASSED, epoch)\n", "provision",
    ),
    "P2: owners are not acquired": (
        "epochs", "        if load_acquire(e, share_at(e, share) + OWNER) == thread:\n            return True\n    return False",
        "        if e.words[share_at(e, share) + OWNER] == thread:\n            return True\n    return False\n\n\n"
        "def load_acquire(e, at):\n    return e.words[at]", "provision",
    ),
    "P3: tuples are handed to a share before they are ready": (
        "ring", "end = first_at(g, ring_at(g, slot), 1, g[counts + slot], tail, frontier)", "end = tail", "apart",
    ),
    "P3: what is ready of two streams is not merged": (
        "ring", "            other = 1 if two < one else 0\n            at = second if two < one else first\n"
        "            ts[i] = min(one, two)\n            origin[i] = right_rank if two < one else left_rank\n",
        "            other, at, ts[i], origin[i] = 0, first, one, left_rank\n", "apart",
    ),
    "P4: what was read behind the switch is lost": (
        "epochs", "        a[at + AHEAD] = number - place - 1\n", "        a[at + AHEAD] = 0\n", "provision",
    ),
    "P4: what is behind the switch is served before the share is handed over": (
        "epochs", "            return place\n", "            return number\n", "provision",
    ),
    "P5: the switch can be met before its map is announced": (
        "epochs", "    e[SWITCH_TS] = ts[0]\n    store_release(e, ANNOUNCED, epoch)\n    seq[0] = epoch\n    ref[0] = epoch\n"
        "    add(g, slots[0], ts, seq, ref, 0, 1, ts[0])\n    end(g, slots[0])\n",
        "    e[SWITCH_TS] = ts[0]\n    seq[0] = epoch\n    ref[0] = epoch\n    add(g, slots[0], ts, seq, ref, 0, 1, ts[0])\n"
        "    end(g, slots[0])\n    store_release(e, ANNOUNCED, epoch)\n", "provision",
    ),
    "P6: the switch stands behind the tuples of its ts": (
        "epochs", "SWITCH_ORIGIN: Final = -1", "SWITCH_ORIGIN: Final = 2**62", "rebalance",
    ),
    "P1: a switch that was passed early is taken for a tuple": (
        "epochs", "> e[s + PASSED] or e[s + EARLY] != 0", "> e[s + PASSED]", "provision",
    ),
    "nobody hears of a switch at a frontier that stands still": (
        "epochs", "    wake_readers(g)\n    return 0\n", "    return 0\n", "quiet",
    ),
    "a thread that is parked is not woken for a share": (
        "epochs", "            wake_readers(g)\n        wake_parked(e, to)\n", "            wake_readers(g)\n", "provision",
    ),
    "a thread that sleeps at the gate is not woken for a share": (
        "epochs", "AT_GATE) != 0:\n            wake_readers(g)\n", "AT_GATE) != 0:\n            pass\n", "quiet",
    ),
    "where a thread sleeps is said too late": (
        "epochs", "    store_release(e, thread_at(e, me) + AT_GATE, 1)\n    return prepare_sleep(g, READY_EVENT)\n",
        "    return prepare_sleep(g, READY_EVENT)\n", "quiet",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_property_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, old, new, case = MUTANTS[name]
    if "SWITCH_ORIGIN" in old:
        monkeypatch.setattr(words_of, "SWITCH_ORIGIN", 2**62)
    broken = named(case, patches={f"plait.threads.gate.{module}": [(old, new)]})
    # The other properties are seen to be broken in several ways, a race among them.
    with pytest.raises(Failure, match="P3" if name.startswith("P3") else None):
        explore(broken, preemptions=1)


def test_who_was_promised_less_does_not_stand_at_the_switch() -> None:
    world = World(Clock(), twin_of(), [0, 1], False)
    for slot in (0, 1):
        _run(world.ring["add"](world.g, slot, [3], [0], [0], 0, 1, 3))
    _run(world.ring["read"](world.g, 0, 4, *([0] * 4 for _ in range(4))))  # share 0 is promised 3, share 1 nothing yet
    for share in range(2):
        world.e[world.epochs["map_at"](world.e, 1, share)] = 0
    assert _run(world.epochs["insert_switch"](world.g, world.e, [2], [-1], 1, [0], [0], [0])) == 0
    assert [_run(world.epochs["stands_at"](world.g, world.e, share)) for share in range(2)] == [1, 0]  # P6


def test_a_switch_that_comes_after_the_end_is_refused() -> None:
    world = World(Clock(), twin_of(), [0, 0], False)
    for slot in (0, 1):
        _run(world.calls["end"](world.g, slot))
    ts, seq, ref = [0], [0], [0]
    for share in range(2):
        _run(world.ring["read"](world.g, share, 4, *([0] * 4 for _ in range(4))))
    got = _run(world.epochs["insert_switch"](world.g, world.e, [2], [-1], 1, ts, seq, ref))
    assert (got, ts[0]) == (codes.DONE, AFTER_ALL)


def _run(steps: Steps) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
