"""The inlets of an operator, one for each source, in front of its gate: who they are, their places in ties, and who of them
holds the frontier.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from plait.core.sources import Holding, frontier, has_ended, is_idle, stuck, told
from plait.errors import DataError, PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName
from plait.threads import words as shared
from plait.threads.ground import Ground
from plait.threads.input.intake import QUERY, Inlet, StreamIntake
from plait.threads.parts import Encodes
from plait.threads.pause import Pauser


@dataclass(frozen=True, slots=True)
class AtGate:
    """A place at the gate that may hold the frontier: a source's, or with None a stream's of which no source is known."""

    intake: StreamIntake
    inlet: Inlet | None
    slot: int


class Inlets:
    """Those of all sources of all streams.

    Those that turn up while the run goes on are let in under `_joining`, and streams end under it: so a stream's end meets every
    source it has. Their memory is made under `_encoding`, under which columns are widened: so none is left with columns of
    before. Locks are taken in this order: `_joining`, `_encoding`. Rows are pushed under neither.

    `_owner`: of each slot its stream and source. `_nobody`: a stream of which no source is known has a slot of its own
    that holds the frontier, so that nothing is given out before its first source has spoken. `_others`: the slot that
    stands for streams this operator does not read, in a query of queries.
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
                for inlet in intake.inlets.values():
                    self._admit(intake, inlet, BEFORE_ALL)
                    self._own(intake, inlet)
                if not intake.inlets:
                    slot, _ = self._open(told(name, None), 0, BEFORE_ALL)
                    self._nobody[name], self._owner[slot] = slot, (name, None)
            self._order()
            if self.front is not None:
                self._others, _ = self._open("streams that other operators of the query read", 0, BEFORE_ALL)

    def _open(self, name: str, input: int, min_ts: int) -> tuple[int, int]:
        """A slot of the gate, and the ts that its tuples begin at. Its place among the sources is settled by `_order`.

        Slots are given out once, in order, and never used again. The origin here is provisional: it has bit 31 set,
        above all ranks, until `_order` settles it.
        """
        slot = self._next_slot
        if slot >= self.arenas.slots:
            raise RunError(
                f"There are more than {self.arenas.slots} sources, counting a stream that is read twice twice",
                why="memory for them is set aside when the run begins",
                do="Raise max_sources=, or declare the sources with sources=",
            )
        self._next_slot += 1
        return slot, self.gate.open(slot, name, origin=input << 32 | 1 << 31 | slot, min_ts=min_ts)

    def _admit(self, intake: StreamIntake, inlet: Inlet, min_ts: int) -> None:
        """Let a source in, once for each input that reads its stream."""
        name = intake.stream.name
        for input in self.inputs[name]:
            slot, begins = self._open(told(name, inlet.name), input, min_ts)
            self._furnish(slot, input, begins)
            inlet.slots[input] = slot

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        """Memory for a source that is let in."""
        with self._encoding:
            self.arenas.furnish(slot, input, self.encoder)

    def _own(self, intake: StreamIntake, inlet: Inlet) -> None:
        """A source that is known may hold the frontier."""
        for slot in inlet.slots.values():
            self._owner[slot] = (intake.stream.name, inlet.name)

    def _order(self, new: Inlet | None = None, of: StreamIntake | None = None) -> None:
        """Sources' ranks at the gate, after their names or positions. Changed only where a new one comes between.

        `new` is one `of` a stream that is about to be known: before it may be pushed, since ranks settle ties.

        An origin is input << 32 | place among the stream's sources << 12 | slot. An example: sources "a" and "c" have
        places 0 and 1; "b" turns up, and c's place becomes 2. Its origin changes, so workers stand still meanwhile.
        Tuples of c that are in the gate are then compared by the new rank: a and c keep their order, and b has no
        tuple yet.
        """
        origins: dict[int, int] = {}
        for name, inputs in self.inputs.items():
            intake = self.intakes[name]
            known = [*intake.inlets.values(), new] if new is not None and of is intake else intake.inlets.values()
            for place, inlet in enumerate(sorted(known, key=lambda each: each.rank)):
                for input in inputs:
                    if input in inlet.slots:
                        origins[inlet.slots[input]] = input << 32 | place << shared.SLOT_BITS | inlet.slots[input]
        if not self.gate.ranked(origins):
            with self._pauser.still():  # a merge under way holds the old ones
                self.gate.rank(origins)

    def _inlet(self, intake: StreamIntake, name: SourceName, released: int) -> Inlet:
        """That of a source, which is let in if it was not known. Those who see it in `intake.inlets` find it whole.

        Looked up without a lock first: `intake.inlets` is replaced, never changed. The new source begins at the
        frontier, or at what the query has released if that is more.
        """
        found = intake.inlets.get(name)
        if found is not None:
            return found
        with self._joining:
            found = intake.inlets.get(name)
            if found is not None:
                return found
            if intake.ended:
                raise has_ended(intake.stream)
            self._check_kind(intake, name)
            made = intake.made(name)
            self._admit(intake, made, max(released, self.gate.frontier()[0]))
            self._order(made, intake)
            intake.add(made)
            self._own(intake, made)
            self._nobody_any_more(intake)
            return made

    def _nobody_any_more(self, intake: StreamIntake) -> None:
        """Nobody has to hold the frontier for a stream without sources: it has one, or has ended. Under `_joining`."""
        slot = self._nobody.pop(intake.stream.name, None)
        if slot is not None:
            self._answer(slot, self.gate.end(slot))

    @staticmethod
    def _check_kind(intake: StreamIntake, name: SourceName) -> None:
        for known in intake.inlets:
            if type(known) is not type(name):
                raise DataError(
                    f"Stream {intake.stream.name!r}: source {name!r} beside {known!r}",
                    why="the names of a stream's sources are all integers or all text",
                )

    # --- who holds the frontier ---

    def holder(self) -> tuple[int, str | None, SourceName | None]:
        """How far the streams have come that are read here, and the stream and source that hold them there."""
        at, found = frontier(self._holding(), AFTER_ALL)
        return (at, None, None) if found is None else (at, *found.who)

    def _holding(self) -> Iterator[Holding[tuple[str, SourceName | None]]]:
        """Every place at the gate. What is promised for idle sources stands there."""
        for slot, owner in list(self._owner.items()):
            if not self._is_result(owner[0]) and (at := self.progress(slot)) < AFTER_ALL:
                yield Holding(at, owner)

    def holding(self, now_ns: int) -> Iterator[Holding[AtGate]]:
        """The same for the clock: which of them are idle by now."""
        for slot, (name, source) in list(self._owner.items()):
            intake = self.intakes[name]
            if self._is_result(name) or (at := self.progress(slot)) == AFTER_ALL:
                continue
            inlet = None if source is None else intake.inlets[source]
            spoke_ns = self._began_ns if inlet is None else inlet.spoke_ns
            busy = inlet is not None and inlet.lock.locked()  # a push that waits is no silence
            idle = not busy and is_idle(intake.stream, (now_ns - spoke_ns) // 1000)
            yield Holding(at, AtGate(intake, inlet, slot), idle)

    def reached(self) -> int:
        """The furthest that any source has come to."""
        streams = [intake for name, intake in self.intakes.items() if not self._is_result(name)]
        return max((inlet.progress(i.stream) for i in streams for inlet in i.inlets.values()), default=BEFORE_ALL)

    def _stuck(self, waiting: str) -> PendingError:
        """So much waits for the frontier that no more may."""
        held, stream, source = self.holder()
        who = "nobody" if stream is None else told(stream, source)
        if self.front is not None and self.front.released < held:
            held, who = self.front.released, "a stream that another operator of the query reads"
        return stuck(waiting, who, held)

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

    def _answer(self, slot: int, code: int) -> None:
        if code < 0:
            self._together.check()
            raise self.gate.refused(slot, code)
