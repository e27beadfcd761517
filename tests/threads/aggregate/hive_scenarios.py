"""Small W-Hives under the scheduler: what each thread does, and what must be true of every run.

A source adds (key, value) pairs to panes through its own tallies, as `hive.tallies` does: a tally for each pane and key, its
value a plain word; then it says that it has written past a pane. The taker takes winsets, copies them and lets go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tests.explore import races
from tests.explore.linearize import Call, require
from tests.explore.schedule import Clock, Scenario, Sleep, Words
from tests.explore.twin import Patches, Twin

from plait.threads.aggregate.hive import words as y

Steps = Generator[Any, None, Any]
TALLIES = 16  # a source's, in tests: words behind the hive's own


class TwinHive:
    """One hive of the twin, with a history of its calls."""

    def __init__(self, case: Case, clock: Clock) -> None:
        self.case, self.clock = case, clock
        words = list(case.memory)
        self.h: Any = races.Memory(words, clock, case.threads) if case.races else Words(words, clock)
        self.history: list[Call] = []
        self.tallies = [0] * case.slots
        self.marks: list[list[tuple[int, int, int]]] = [[] for _ in range(case.slots)]  # pane, first tally, first word
        self.freed = [0] * case.slots
        self.inside, self.left = [False] * case.slots, 0  # who is at the list, and how often somebody has left it

    def _call(self, name: str, asked: tuple[Any, ...], work: Steps) -> Steps:
        yield  # it begins when its thread's turn comes
        began = self.clock.now
        answered = yield from work
        self.history.append(Call(name, asked, answered, began, self.clock.now))
        return answered

    def update(self, slot: int, pane: int, *pairs: tuple[int, int]) -> Steps:
        """Add values to keys of a pane. Asked again, from the beginning, where memory is short: another thread must move on."""
        return (yield from self._call("update", (slot, pane, pairs), self._update(slot, pane, pairs)))

    def _update(self, slot: int, pane: int, pairs: tuple[tuple[int, int], ...]) -> Steps:
        h, s = self.h, y.SOURCES_AT + slot * y.SOURCE_WORDS
        hive = self.case.hive
        first_word = h[s + y.ARENA_END]
        while True:
            left, self.inside[slot] = self.left, True
            winset = yield from hive["open_winset"](h, slot, pane)
            self.inside[slot], self.left = False, self.left + 1
            if winset != y.NIL:
                break
            yield from self._use_again(slot, left + 1)
        while (member := (yield from hive["join"](h, slot, winset, self.tallies[slot]))) == y.NIL:
            yield from self._use_again(slot, self.left)
        self.marks[slot].append((pane, self.tallies[slot], first_word))
        mine: dict[int, int] = {}
        for key, value in pairs:
            if key not in mine:
                tally = self.tallies[slot]
                while tally - self.freed[slot] >= TALLIES:
                    yield from self._use_again(slot, self.left)
                h[self._tally_at(slot, tally)] = 0
                key_hash = self.case.hash(key)
                while (window := (yield from hive["window_of"](h, slot, winset, [key], 0, 1, key_hash))) == y.NIL:
                    yield from self._use_again(slot, self.left)
                h[self._tally_at(slot, tally) + 1] = window
                self.tallies[slot] += 1
                mine[key] = tally
            h[self._tally_at(slot, mine[key])] += value
        h[self.case.words["piece_at"](h, member) + y.M_END] = self.tallies[slot]

    def _tally_at(self, slot: int, tally: int) -> int:
        """A tally: its value, and the place of its window."""
        return self.case.tallies_at + 2 * (slot * TALLIES + tally % TALLIES)

    def _use_again(self, slot: int, left: int) -> Steps:
        """What `Tallies._use_again` does; if there is nothing, sleep until others let go of more (the real one grows)."""
        raw = self.h.words if self.case.races else self.h
        yield  # what it looks at besides words is anybody's
        # Whoever is at the list now may be what keeps nodes from being freed; one that sleeps here is not.
        busy = [k for k in range(self.case.slots) if self.inside[k]]
        changing = Several(lambda: (raw[y.PASSED], raw[y.HEAD_PANE], *(self.inside[k] for k in busy)))
        seen = changing[0]
        passed = yield from self.case.hive["passed"](self.h)
        marks, gone = self.marks[slot], 0
        while gone < len(marks) and marks[gone][0] < passed:
            gone += 1
        if gone == 0:
            yield
            if changing[0] == seen and self.left == left:
                yield Sleep(changing, 0, seen)
            return
        s = y.SOURCES_AT + slot * y.SOURCE_WORDS
        left = marks[gone:]
        self.freed[slot] = left[0][1] if left else self.tallies[slot]
        self.h[s + y.ARENA_FREED] = left[0][2] if left else self.h[s + y.ARENA_END]
        self.marks[slot] = left

    def advance(self, slot: int, pane: int) -> Steps:
        return (yield from self._call("advance", (slot, pane), self.case.hive["advance"](self.h, slot, pane)))

    def take(self) -> Steps:
        """The next winset's pane and sums by key, or None; its memory is let go of."""
        return (yield from self._call("take", (), self._take()))

    def _take(self) -> Steps:
        h, hive = self.h, self.case.hive
        winset = yield from hive["take"](h, y.LAST)
        if winset == y.NIL:
            return None
        pane = h[self.case.words["node_at"](h, winset) + y.PANE]
        stack, key = [0] * 1024, [0] * 64
        windows = hive["list_windows"](h, winset, stack, 0, key)
        assert len(set(key[:windows])) == windows, f"a key has two windows: {key[:windows]}"
        sums = dict.fromkeys(key[:windows], 0)
        first, end = [0] * self.case.slots, [0] * self.case.slots
        hive["list_members"](h, winset, first, end, [0] * self.case.slots, [0] * self.case.slots)
        for slot in range(self.case.slots):
            for tally in range(first[slot], end[slot]):
                at = self._tally_at(slot, tally)
                number = h[self.case.words["piece_at"](h, h[at + 1]) + y.W_NUMBER]
                sums[key[number]] += h[at]
        yield from hive["let_go"](h, pane + 1)
        return pane, tuple(sorted(sums.items()))

    def take_until(self, panes: int) -> Steps:
        """Take until so many winsets have come; sleeps where there is none."""
        written = [y.SOURCES_AT + slot * y.SOURCE_WORDS + y.WRITTEN for slot in range(self.case.slots)]
        raw = self.h.words if self.case.races else self.h
        changing = Several(lambda: tuple(raw[at] for at in written))
        while panes:
            yield
            seen = changing[0]
            if (yield from self.take()) is None:
                if changing[0] == seen:
                    yield Sleep(changing, 0, seen)
            else:
                panes -= 1


class Several:
    """Something that changes, to be slept on."""

    def __init__(self, look: Callable[[], tuple[Any, ...]]) -> None:
        self._look = look

    def __getitem__(self, _: int) -> tuple[Any, ...]:
        return self._look()


class Case:
    """A hive of one size, from which runs start. Sources may write from pane 0 on."""

    def __init__(self, *, slots: int = 2, nodes: int = 8, words: int = 256, levels: int = y.MAX_LEVELS, walk: int | None = None,
                 hashes: Callable[[int], int] = lambda key: key, patches: Patches | None = None,
                 find_races: bool = False) -> None:  # fmt: skip
        changed = {module: list(pairs) for module, pairs in (patches or {}).items()}
        if walk is not None:
            changed.setdefault("plait.threads.aggregate.hive.winsets", []).append(
                ("WALK: Final = 4", f"WALK: Final = {walk}")
            )
        twin = Twin("plait.threads.aggregate.hive", patches=changed, steps=races if find_races else None)
        self.hive, self.words = twin("plait.threads.aggregate.hive.hive"), twin("plait.threads.aggregate.hive.words")
        self.races, self.threads, self.slots, self.hash = find_races, 8, slots, hashes
        *header, total = y.header(slots=slots, keys=1, nodes=nodes, words=words, levels=levels)
        self.memory = header + [0] * (total - len(header) + 2 * slots * TALLIES)
        self.tallies_at = total
        y.prepare(self.memory)
        for slot in range(slots):
            self.memory[y.SOURCES_AT + slot * y.SOURCE_WORDS + y.WRITTEN] = 0

    def scenario(self, threads: Callable[[TwinHive], list[Steps]]) -> Scenario:
        """Runs of these threads; then all sources end, the rest is taken, and the history is judged."""

        def begin(clock: Clock) -> tuple[list[Steps], Callable[[], None]]:
            hive = TwinHive(self, clock)

            def finish() -> None:
                for slot in range(self.slots):
                    exhaust(hive, hive.advance(slot, y.LAST))
                for _ in range(100):
                    if exhaust(hive, hive.take()) is None:
                        break
                else:
                    raise AssertionError("taking does not come to an end")
                require(START * self.slots, apply, hive.history)

            return threads(hive), finish

        return begin


def exhaust(hive: TwinHive, steps: Steps) -> Any:
    """Run one call to its end with nobody else about."""
    hive.clock.now += 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hive.clock.now += 1
            return end.value


# --- the sequential hive that judges: what each source wrote past, and the sums of panes not taken --------------

START: tuple[Any, ...] = ((0, ()),)  # a source: WRITTEN, and its updates (pane, key, value)


def apply(state: tuple[Any, ...], call: Call) -> tuple[Any, ...] | None:
    if call.name == "update":
        slot, pane, pairs = call.asked
        written, updates = state[slot]
        return _with(state, slot, (written, (*updates, *((pane, key, value) for key, value in pairs))))
    if call.name == "advance":
        slot, pane = call.asked
        written, updates = state[slot]
        return _with(state, slot, (max(written, pane), updates))
    least = min(written for written, _ in state)
    everything = [update for _, updates in state for update in updates]
    ready = sorted({pane for pane, _, _ in everything if pane < least})
    if not ready:
        return state if call.answered is None else None
    sums: dict[int, int] = {}
    for pane, key, value in everything:
        if pane == ready[0]:
            sums[key] = sums.get(key, 0) + value
    if call.answered != (ready[0], tuple(sorted(sums.items()))):
        return None
    return tuple((written, tuple(u for u in updates if u[0] != ready[0])) for written, updates in state)


def _with(state: tuple[Any, ...], slot: int, source: Any) -> tuple[Any, ...]:
    return (*state[:slot], source, *state[slot + 1 :])
