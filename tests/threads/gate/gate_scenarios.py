"""Small gates under the scheduler: what each thread does, and what must be true of every run."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from tests.explore import naive_gate, races
from tests.explore.linearize import Call, require
from tests.explore.schedule import Clock, Scenario, Sleep, Words
from tests.explore.twin import Patches, Twin

from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.gate import codes
from plait.threads.gate import words as gate_words

Steps = Generator[Any, None, Any]
KINDS = ("skiplist", "ring")
ROOM = 16  # most tuples a test reads at once


class TwinGate:
    """One gate of the twin, with a history of its calls."""

    def __init__(self, case: Case, clock: Clock) -> None:
        self.case, self.clock = case, clock
        words = list(case.memory)
        self.g: Any = races.Memory(words, clock, case.threads) if case.races else Words(words, clock)
        self.history: list[Call] = []

    def _call(self, name: str, asked: tuple[Any, ...], work: Steps) -> Steps:
        yield  # it begins when its thread's turn comes
        began = self.clock.now
        answered = yield from work
        self.history.append(Call(name, asked, answered, began, self.clock.now))
        return answered

    def add(self, slot: int, *keys: tuple[int, int], progress: int | None = None, wait: bool = False) -> Steps:
        ts, seq = [ts for ts, _ in keys], [seq for _, seq in keys]
        promise = progress if progress is not None else ts[-1]
        asked = (slot, keys, promise)
        arguments = (self.g, slot, ts, seq, [-s for s in seq], 0, len(keys), promise)
        work = self.case.gate["add_waiting"](*arguments, 0, True) if wait else self.case.gate["add"](*arguments)
        return (yield from self._call("add", asked, work))

    def add_all(self, slot: int, *keys: tuple[int, int]) -> Steps:
        """Feed a source that is held back until all is in; a run in which that never ends is an endless one."""
        left = keys
        while left:
            taken = yield from self.add(slot, *left, wait=True)
            if taken > 0:
                left = left[taken:]
            elif taken not in (codes.FULL, codes.STUCK):
                raise AssertionError(f"add answered {taken}")

    def heartbeat(self, slot: int, ts: int) -> Steps:
        return (yield from self._call("heartbeat", (slot, ts), self.case.calls["heartbeat"](self.g, slot, ts)))

    def end(self, slot: int) -> Steps:
        return (yield from self._call("end", (slot,), self.case.calls["end"](self.g, slot)))

    def read(self, reader: int, most: int = ROOM, *, wait: bool = False) -> Steps:
        return (yield from self._call("read", (reader, most), self._read(reader, most, wait)))

    def _read(self, reader: int, most: int, wait: bool) -> Steps:
        columns = [[0] * most for _ in range(4)]
        name, extra = ("read_waiting", (0,)) if wait else ("read", ())
        number = yield from self.case.gate[name](self.g, reader, most, *columns, *extra)
        if number < 0:
            return number
        ts, origin, seq, ref = (column[:number] for column in columns)
        assert ref == [-s for s in seq], "a payload went astray"
        return tuple(zip(ts, origin, seq, strict=True))

    def read_all(self, reader: int, most: int = ROOM) -> Steps:
        """Read until the end, sleeping where nothing is ready."""
        while (yield from self.read(reader, most, wait=True)) != codes.DONE:
            pass

    def until_read(self, reader: int, number: int) -> Steps:
        """Read so many tuples, sleeping where nothing is ready."""
        while number > 0:
            number -= len((yield from self.read(reader, wait=True)))

    def until(self, reader: int, state: int) -> Steps:
        """Sleep until this reader has been announced, or removed."""
        words = self.g.words if self.case.races else self.g
        at = words[gate_words.READERS_AT] + reader * gate_words.READER_WORDS + gate_words.STATE
        yield self.g, at
        while words[at] != state:
            yield Sleep(self.g, at, words[at])

    def until_changed(self, times: int) -> Steps:
        """Sleep until the set of readers has changed so many times."""
        words = self.g.words if self.case.races else self.g
        yield self.g, gate_words.READERS_VERSION
        while words[gate_words.READERS_VERSION] < times:
            yield Sleep(self.g, gate_words.READERS_VERSION, words[gate_words.READERS_VERSION])

    def announce_sources(self, slots: list[int], origins: list[int], min_ts: int, change: int = 0) -> Steps:
        work = self.case.elastic["announce_sources"](self.g, slots, origins, len(slots), min_ts, change)
        return (yield from self._call("announce_sources", (tuple(slots), tuple(origins), min_ts, change), work))

    def remove_sources(self, slots: list[int], change: int = 0) -> Steps:
        work = self.case.elastic["remove_sources"](self.g, slots, len(slots), change)
        return (yield from self._call("remove_sources", (tuple(slots), change), work))

    def announce_readers(self, readers: list[int], parent: int, change: int = 0) -> Steps:
        work = self.case.elastic["announce_readers"](self.g, readers, len(readers), parent, change)
        return (yield from self._call("announce_readers", (tuple(readers), parent, change), work))

    def remove_readers(self, readers: list[int], change: int = 0) -> Steps:
        work = self.case.elastic["remove_readers"](self.g, readers, len(readers), change)
        return (yield from self._call("remove_readers", (tuple(readers), change), work))


class Case:
    """A gate of one kind and size, from which runs start."""

    def __init__(
        self,
        kind: str,
        *,
        origins: list[int],
        readers: int = 1,
        slots: int = 0,
        seats: int = 0,
        capacity: int = 8,
        pending: int = 8,
        levels: int | None = None,
        ring: int | None = None,
        walk: int | None = None,
        patches: Patches | None = None,
        find_races: bool = False,
    ) -> None:
        patches = {module: list(pairs) for module, pairs in (patches or {}).items()}
        # Looking again before sleeping adds steps, and no behaviour.
        patches.setdefault("plait.threads.gate.flow", []).append(("YIELDS: Final = 4", "YIELDS: Final = 0"))
        if walk is not None:
            patches.setdefault("plait.threads.gate.nodes", []).append(("WALK: Final = 8", f"WALK: Final = {walk}"))
        twin = Twin(("plait.threads.gate", "plait_bench"), patches=patches, steps=races if find_races else None)
        self.gate = twin("plait_bench.multi_queues.queues" if kind == "queues" else f"plait.threads.gate.{kind}")
        self.calls, self.elastic = twin("plait.threads.gate.calls"), twin("plait.threads.gate.elastic")
        self.races, self.threads = find_races, 8
        self.origins, self.readers = origins, readers
        store = "rings" if kind == "ring" else "nodes"
        *words, total = gate_words.header(
            slots=slots or len(origins), seats=seats or readers, capacity=capacity, pending=pending, store=store
        )
        if levels is not None:
            words[gate_words.LEVELS] = levels
        if ring is not None:
            # Less memory than the limits ask for: then it is what holds sources back, and is used again at once.
            words[gate_words.RING], words[gate_words.RING_MASK] = ring, ring - 1
            words[gate_words.RING_LOG] = ring.bit_length() - 1
        self.memory = words + [0] * (total - len(words))
        gate_words.prepare(self.memory, origins, readers)
        if store == "nodes":
            gate_words.prepare_nodes(self.memory)

    def scenario(
        self, threads: Callable[[TwinGate], list[Steps]], *, check: Callable[[TwinGate], None] | None = None
    ) -> Scenario:
        """Runs of these threads; afterwards all sources end, every reader reads to the end, and the history is judged."""

        def begin(clock: Clock) -> tuple[list[Steps], Callable[[], None]]:
            gate = TwinGate(self, clock)

            def finish() -> None:
                self.drain(gate)
                if check is not None:
                    check(gate)
                require(naive_gate.start(self.origins, self.readers), naive_gate.apply, gate.history)
                no_false_empty(self, gate.history)

            return threads(gate), finish

        return begin

    def drain(self, gate: TwinGate) -> None:
        g = gate.g.words if self.races else gate.g
        for slot in range(g[gate_words.SLOTS]):
            if g[gate_words.SOURCES_AT + slot * gate_words.SOURCE_WORDS + gate_words.STATE] == gate_words.LIVE:
                exhaust(gate, gate.end(slot))
        for reader in range(g[gate_words.SEATS]):
            if g[g[gate_words.READERS_AT] + reader * gate_words.READER_WORDS + gate_words.STATE] == gate_words.LIVE:
                for _ in range(100):
                    gate.clock.now += 1
                    if exhaust(gate, gate.read(reader)) == codes.DONE:
                        break
                else:
                    raise AssertionError(f"reader {reader} does not come to the end")


def exhaust(gate: TwinGate, steps: Steps) -> Any:
    """Run one call to its end with nobody else about."""
    gate.clock.now += 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            gate.clock.now += 1
            return end.value


def no_false_empty(case: Case, history: list[Call]) -> None:
    """A read may give less than is ready when it ends, but not nothing if something was ready when it began."""
    counts: dict[int, int] = {}
    for call in sorted(history, key=lambda call: call.ended):
        if call.name == "announce_readers" and call.answered == 0:
            counts.update({reader: counts.get(call.asked[1], 0) for reader in call.asked[0]})
        if call.name != "read" or not isinstance(call.answered, tuple):
            continue
        reader = call.asked[0]
        if not call.answered and counts.get(reader, 0) < _surely_ready(case, history, call.began):
            raise AssertionError(f"{call} gave nothing, though a tuple was ready before it began")
        counts[reader] = counts.get(reader, 0) + len(call.answered)


def _surely_ready(case: Case, history: list[Call], now: int) -> int:
    """How many tuples were ready at this moment, whatever calls then running had done already."""
    if any("announce" in call.name for call in history):
        return 0
    progress = dict.fromkeys(range(len(case.origins)), BEFORE_ALL)
    tuples: list[tuple[int, int, int]] = []
    for call in history:
        if call.ended >= now:
            continue
        if call.name == "add" and call.answered > 0:
            slot, keys, promise = call.asked
            taken = keys[: call.answered]
            tuples += [(ts, slot, seq) for ts, seq in taken]
            progress[slot] = max(progress[slot], promise if len(taken) == len(keys) else taken[-1][0])
        elif call.name == "heartbeat":
            progress[call.asked[0]] = max(progress[call.asked[0]], call.asked[1])
        elif call.name == "end":
            progress[call.asked[0]] = AFTER_ALL
    frontier = min(progress.values())
    return sum(ts < frontier for ts, _, _ in tuples)
