"""The sources of an operator, in front of its gate: who they are, their places in ties, and who holds the frontier."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from plait.errors import DataError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName
from plait.threads import words as shared
from plait.threads.ground import Ground
from plait.threads.input.intake import QUERY, Intake, Source
from plait.threads.parts import Encodes
from plait.threads.pause import Pauser


def ended(intake: Intake) -> RunError:
    return RunError(f"Stream {intake.stream.name!r} has ended", why="rows came after its end")


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
    """All sources of all streams.

    Those that turn up while the run goes on are let in under `_joining`, and streams end under it: so a stream's end meets every
    source it has. Their memory is made under `_encoding`, under which columns are widened: so none is left with columns of
    before. Locks are taken in this order: `_joining`, `_encoding`.
    """

    def __init__(self, ground: Ground, pauser: Pauser, encoder: Encodes) -> None:
        self.gate, self.intakes, self.inputs, self.arenas = ground.gate, ground.intakes, ground.inputs, ground.arenas
        self.encoder, self._pauser, self._together, self.front = encoder, pauser, ground.together, ground.front
        self._joining = threading.Lock()
        self._encoding = threading.Lock()  # columns' types are one for all: see `columns`
        self._next_slot = 0
        self._nobody: dict[str, int] = {}  # streams of which no source is known: who holds the frontier for them
        self._owner: dict[int, tuple[str, SourceName | None]] = {}  # whose a slot is
        self._began_ns = time.monotonic_ns()
        self._others = -1
        with self._joining:
            for name, intake in self.intakes.items():
                for source in intake.sources.values():
                    self._admit(intake, source, BEFORE_ALL)
                    self._own(intake, source)
                if not intake.sources:
                    slot = self._open(f"stream {name!r}, of which no source is known", 0, BEFORE_ALL)
                    self._nobody[name], self._owner[slot] = slot, (name, None)
            self._order()
            if self.front is not None:
                self._others = self._open("streams that other operators of the query read", 0, BEFORE_ALL)

    def _open(self, name: str, input: int, min_ts: int) -> int:
        """A slot of the gate. Its place among the sources is settled by `_order`."""
        slot = self._next_slot
        if slot >= self.arenas.slots:
            raise RunError(
                f"There are more than {self.arenas.slots} sources, counting a stream that is read twice twice",
                why="memory for them is set aside when the run begins",
                do="Raise max_sources=, or declare the sources with sources=",
            )
        self._next_slot += 1
        self.gate.open(slot, name, origin=input << 32 | 1 << 31 | slot, min_ts=min_ts)
        return slot

    def _admit(self, intake: Intake, source: Source, min_ts: int) -> None:
        """Let a source in, once for each input that reads its stream."""
        name = intake.stream.name
        for input in self.inputs[name]:
            slot = self._open(f"source {source.name!r} of stream {name!r}", input, min_ts)
            self._furnish(slot, input, min_ts)
            source.slots[input] = slot

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        """Memory for a source that is let in."""
        with self._encoding:
            self.arenas.furnish(slot, input, self.encoder)

    def _own(self, intake: Intake, source: Source) -> None:
        """A source that is known may hold the frontier."""
        for slot in source.slots.values():
            self._owner[slot] = (intake.stream.name, source.name)

    def _order(self, new: Source | None = None, of: Intake | None = None) -> None:
        """Sources' ranks at the gate, after their names or positions. Changed only where a new one comes between.

        `new` is one `of` a stream that is about to be known: before it may be pushed, since ranks settle ties.
        """
        origins: dict[int, int] = {}
        for name, inputs in self.inputs.items():
            intake = self.intakes[name]
            known = [*intake.sources.values(), new] if new is not None and of is intake else intake.sources.values()
            for place, source in enumerate(sorted(known, key=lambda s: s.rank)):
                for input in inputs:
                    if input in source.slots:
                        origins[source.slots[input]] = input << 32 | place << shared.SLOT_BITS | source.slots[input]
        if not self.gate.ranked(origins):
            with self._pauser.still():  # a merge under way holds the old ones
                self.gate.rank(origins)

    def _source(self, intake: Intake, name: SourceName, released: int) -> Source:
        """The source of a name, let in if it was not known. Those who see it in `intake.sources` find it whole."""
        found = intake.sources.get(name)
        if found is not None:
            return found
        with self._joining:
            found = intake.sources.get(name)
            if found is not None:
                return found
            if intake.ended:
                raise ended(intake)
            self._check_kind(intake, name)
            made = intake.made(name)
            self._admit(intake, made, max(released, self.gate.frontier()[0]))
            self._order(made, intake)
            intake.add(made)
            self._own(intake, made)
            self._nobody_any_more(intake)
            return made

    def _nobody_any_more(self, intake: Intake) -> None:
        """Nobody has to hold the frontier for a stream without sources: it has one, or has ended. Under `_joining`."""
        slot = self._nobody.pop(intake.stream.name, None)
        if slot is not None:
            self._answer(slot, self.gate.end(slot))

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
        return self.gate.progress(slot)

    def _is_result(self, stream: str) -> bool:
        return self.intakes[stream].stream.source == QUERY

    def allow(self, frontier: int) -> None:
        """All streams of the query have come that far; what is read here must not run ahead of the others."""
        slot = self._others
        if slot >= 0:
            self._answer(slot, self.gate.end(slot) if frontier == AFTER_ALL else self.gate.heartbeat(slot, frontier))

    def _released(self) -> int:
        """Below it nothing may come any more."""
        return self.gate.frontier()[0] if self.front is None else self.front.released

    def holding(self, now_ns: int) -> list[Holding]:
        """Every source that has not ended, and whether it has been silent for `idle_after=`."""
        found = []
        furthest = {
            name: max((s.progress(i.stream.disorder_us) for s in i.sources.values()), default=BEFORE_ALL)
            for name, i in self.intakes.items()
        }
        for slot, (name, named) in list(self._owner.items()):
            at, intake = self.progress(slot), self.intakes[name]
            if at == AFTER_ALL or self._is_result(name):
                continue
            source = None if named is None else intake.sources[named]
            spoke, idle_after = self._began_ns if source is None else source.spoke_ns, intake.stream.idle_after_us
            idle = idle_after is not None and now_ns - spoke >= 1000 * idle_after
            busy = source is not None and source.lock.locked()  # a push that waits is no silence
            found.append(Holding(intake, source, slot, at, furthest[name], idle and not busy))
        return found

    def _answer(self, slot: int, code: int) -> None:
        if code < 0:
            self._together.check()
            raise self.gate.refused(slot, code)
