"""The sources of an operator, in front of its gate: who they are, their places in ties, and who holds the frontier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from plait.errors import DataError, RunError
from plait.gate import RingGate, calls, layout, messages
from plait.operators import layout as o
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName
from plait.threads.intake import QUERY, Intake, Source
from plait.threads.memory import Arena
from plait.threads.parts import Encodes


@dataclass
class Front:
    """How far all streams of a query of queries have come: what lies below is at the gates of all operators that read it.

    One thread at a time raises it (`dag`). An operator whose gate is not that far only waits for other operators.
    """

    released: int = BEFORE_ALL


@dataclass(frozen=True)
class Holding:
    """A source (None: a stream of which none is known) that may hold the frontier: how far it is, how far it came by itself."""

    intake: Intake
    source: Source | None
    slot: int
    progress: int
    reached: int
    idle: bool


class Sources:
    """All sources of all streams. Those that turn up while the run goes on are let in under `_joining`."""

    def __init__(self, gate: RingGate, intakes: dict[str, Intake], inputs: dict[str, tuple[int, ...]], encoder: Encodes,
                 arena: np.ndarray, arena_rows: int, *, rank: Callable[[dict[int, int]], None],
                 check: Callable[[], None], front: Front | None) -> None:  # fmt: skip
        self.gate, self.intakes, self.inputs, self.encoder = gate, intakes, inputs, encoder
        self.arena, self.arena_rows, self.check, self._rank = arena, arena_rows, check, rank
        self._joining = threading.Lock()
        self._next_slot = 0
        self._nobody: dict[str, int] = {}  # streams of which no source is known: who holds the frontier for them
        self.arenas: dict[int, Arena] = {}
        self._owner: dict[int, tuple[str, SourceName | None]] = {}  # whose a slot is
        self._began_ns = time.monotonic_ns()
        self.front, self._others = front, -1
        with self._joining:
            for name, intake in intakes.items():
                for source in intake.sources.values():
                    self._admit(intake, source, BEFORE_ALL)
                if not intake.sources:
                    slot = self._open(f"stream {name!r}, of which no source is known", 0, BEFORE_ALL)
                    self._nobody[name], self._owner[slot] = slot, (name, None)
            if front is not None:
                self._others = self._open("streams that other operators of the query read", 0, BEFORE_ALL)

    def _open(self, name: str, input: int, min_ts: int) -> int:
        """A slot of the gate. Its place among the sources is settled by `_order`."""
        slot = self._next_slot
        if slot >= len(self.arena):
            raise RunError(
                f"There are more than {len(self.arena)} sources, counting a stream that is read twice twice",
                why="memory for them is set aside when the run begins",
                do="Raise max_sources=, or declare the sources with sources=",
            )
        self._next_slot += 1
        self.gate._names[slot : slot + 1] = [name]
        if slot == 0:
            return slot  # the gate was made with it
        if not self.gate.announce_sources([slot], origins=[(input, (1 << 31) | slot)], min_ts=min_ts):
            raise RunError(f"The gate did not let {name} in", do="Report this")
        return slot

    def _admit(self, intake: Intake, source: Source, min_ts: int) -> None:
        """Let a source in, once for each input that reads its stream."""
        name = intake.stream.name
        for input in self.inputs[name]:
            slot = self._open(f"source {source.name!r} of stream {name!r}", input, min_ts)
            self._furnish(slot, input, min_ts)
            source.slots[input] = slot
            self._owner[slot] = (name, source.name)
        self._order()

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        """Memory for a source that is let in."""
        arena = self.arenas[slot] = Arena(self.arena_rows, input, self.encoder)
        arena.name_in(self.arena[slot])

    def _order(self) -> None:
        """Sources' ranks at the gate, after their names or positions. Changed only where a new one comes between."""
        origins: dict[int, int] = {}
        for name, inputs in self.inputs.items():
            ordered = sorted(self.intakes[name].sources.values(), key=lambda s: s.rank)
            for place, source in enumerate(ordered):
                for input in inputs:
                    if input in source.slots:
                        origins[source.slots[input]] = input << 32 | place << o.SLOT_BITS | source.slots[input]
        self._rank(origins)

    def _source(self, intake: Intake, name: SourceName, released: int) -> Source:
        source = intake.sources.get(name)
        if source is not None:
            return source
        with self._joining:
            if name not in intake.sources:
                self._check_kind(intake, name)
                source = intake.know(name)
                self._admit(intake, source, max(released, self.gate.frontier()[0]))
                nobody = self._nobody.pop(intake.stream.name, None)
                if nobody is not None:
                    calls.end(self.gate.words, nobody)
            return intake.sources[name]

    @staticmethod
    def _check_kind(intake: Intake, name: SourceName) -> None:
        for known in intake.sources:
            if type(known) is not type(name):
                raise DataError(
                    f"Stream {intake.stream.name!r}: source {name!r} beside {known!r}",
                    why="the names of a stream's sources are all integers or all text",
                )

    def holder(self) -> tuple[int, str | None, SourceName | None]:
        """How far the streams have come that are read here, and the stream and source that hold them there."""
        least: tuple[int, str | None, SourceName | None] = (AFTER_ALL, None, None)
        for slot, (name, source) in list(self._owner.items()):
            at = self.progress(slot)
            if at < least[0] and not self._is_result(name):
                least = (at, name, source)
        return least

    def progress(self, slot: int) -> int:
        return int(self.gate.words[layout.SOURCES_AT + slot * layout.SOURCE_WORDS + layout.PROGRESS])

    def _is_result(self, stream: str) -> bool:
        return self.intakes[stream].stream.source == QUERY

    def allow(self, frontier: int) -> None:
        """All streams of the query have come that far; what is read here must not run ahead of the others."""
        words, slot = self.gate.words, self._others
        if slot >= 0:
            self._answer(
                slot, calls.end(words, slot) if frontier == AFTER_ALL else calls.heartbeat(words, slot, frontier)
            )

    def _released(self) -> int:
        """Below it nothing may come any more."""
        return self.gate.frontier()[0] if self.front is None else self.front.released

    def holding(self, now_ns: int) -> list[Holding]:
        """Every source that has not ended, and whether it has been silent for `idle_after=`."""
        found = []
        for slot, (name, named) in list(self._owner.items()):
            at, intake = self.progress(slot), self.intakes[name]
            if at == AFTER_ALL or self._is_result(name):
                continue
            source = None if named is None else intake.sources[named]
            spoke, idle_after = self._began_ns if source is None else source.spoke_ns, intake.stream.idle_after_us
            idle = idle_after is not None and now_ns - spoke >= 1000 * idle_after
            busy = source is not None and source.lock.locked()  # a push that waits is no silence
            reached = max((s.progress(intake.stream.disorder_us) for s in intake.sources.values()), default=BEFORE_ALL)
            found.append(Holding(intake, source, slot, at, reached, idle and not busy))
        return found

    def _answer(self, slot: int, code: int) -> None:
        if code < 0:
            self.check()
            raise messages.of_source(self.gate, slot, code)
