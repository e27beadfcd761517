"""The inlets of an operator, one for each source, in front of its gate: who they are, their places there and in ties, and who
of them holds the frontier.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from plait.core.metrics import SourceStats
from plait.core.sources import Holding, frontier, has_ended, is_idle, stuck, told
from plait.errors import DataError, PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName
from plait.threads import words as shared
from plait.threads.ground import Ground
from plait.threads.input.intake import QUERY, Inlet, StreamIntake
from plait.threads.life.pause import Pauser
from plait.threads.parts import Encodes

#: Places in ties: an origin has input << 32 | place << SLOT_BITS | slot. Bit 31 is for slots that have no tuples.
MOST_PLACES = 1 << (31 - shared.SLOT_BITS)
SPACING = 64  # between places that follow one another
FEW = 8  # sources that have ended and are looked at for their slots, while there are others
_NOBODY = 1 << 31


def _origin(input: int, place: int, slot: int) -> int:
    return input << 32 | place << shared.SLOT_BITS | slot


def check_kind(intake: StreamIntake, name: SourceName) -> None:
    """All of a stream's sources are named by integers, or all by text."""
    for known in (next(iter(names)) for names in (intake.inlets, intake.gone) if names):  # all of one type
        if type(known) is not type(name):
            raise DataError(
                f"Stream {intake.stream.name!r}: source {name!r} beside {known!r}",
                why="the names of a stream's sources are all integers or all text",
            )


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

    A source that has ended leaves its places at the gate to the stream's next one (ESG's `announceSources` after a removal), once
    all its tuples were read: so a run may have any number of sources, one after the other. The new one goes on in the former's
    arena, where its count stood: as far as memory is concerned the two are one source, so nothing is written over that a worker
    has yet to copy.

    `_owner`: of each slot its stream and source. `_nobody`: a stream of which no source is known has a slot of its own
    that holds the frontier, so that nothing is given out before its first source has spoken. `_others`: the slot that
    stands for streams this operator does not read, in a query of queries. `_ranked`: by stream, its sources at the gate in order
    of rank. `_left`: by stream, those of them that have ended.
    """

    def __init__(self, ground: Ground, pauser: Pauser, encoder: Encodes) -> None:
        self.gate, self.intakes, self.inputs, self.arenas = ground.gate, ground.intakes, ground.inputs, ground.arenas
        self.encoder, self._pauser, self._together, self.front = encoder, pauser, ground.together, ground.front
        self._stall, self._ties = ground.options.stall_after_s, ground.ties
        self._joining = threading.Lock()
        self._encoding = threading.Lock()  # columns' types are one for all: see `columns`
        self._next_slot = 0
        self._nobody: dict[str, int] = {}  # streams of which no source is known: who holds the frontier for them
        self._owner: dict[int, tuple[str, SourceName | None]] = {}  # whose a slot is
        self._ranked: dict[str, list[Inlet]] = {name: [] for name in self.intakes}
        self._left: dict[str, deque[Inlet]] = {name: deque() for name in self.intakes}
        self._began_ns = time.monotonic_ns()
        self._others = -1
        with self._joining:
            for name, intake in self.intakes.items():
                for inlet in intake.inlets.values():
                    self._admit(intake, inlet, BEFORE_ALL)
                    self._own(intake, inlet)
                if not intake.inlets:
                    slot = self._new_slot()
                    self.gate.open(slot, told(name, None), origin=_NOBODY | slot, min_ts=BEFORE_ALL)
                    self._nobody[name], self._owner[slot] = slot, (name, None)
            if self.front is not None:
                self._others = slot = self._new_slot()
                who = "streams that other operators of the query read"
                self.gate.open(slot, who, origin=_NOBODY | slot, min_ts=BEFORE_ALL)

    # --- places at the gate ---

    def _admit(self, intake: StreamIntake, inlet: Inlet, min_ts: int) -> None:
        """Let a source in, once for each input that reads its stream: where one was that has ended, or in slots of its own."""
        name = intake.stream.name
        former = self._vacant(intake)
        slots = {input: self._new_slot() for input in self.inputs[name]} if former is None else former.slots
        if former is not None:
            self._forget(intake, former)
            inlet.added = former.added
        self._rank(name, inlet)
        for input, slot in slots.items():
            begins = self.gate.open(
                slot, told(name, inlet.name), origin=_origin(self._ties[input], inlet.place, slot), min_ts=min_ts
            )
            self._furnish(slot, input, begins)
        inlet.slots = slots

    def _new_slot(self) -> int:
        """One that no source had before."""
        slot = self._next_slot
        if slot >= self.arenas.slots:
            ended = sum(map(len, self._left.values()))
            waiting = f"; of {ended} that have ended some rows are not read, {self.gate.held()}" if ended else ""
            raise RunError(
                f"There are more than {self.arenas.slots} sources, counting a stream that is read twice twice",
                why=f"memory for them is set aside when the run begins{waiting}",
                do="Raise max_sources=, or declare the sources with sources=",
            )
        self._next_slot += 1
        return slot

    def _vacant(self, intake: StreamIntake) -> Inlet | None:
        """A source of the stream that has ended and of which all is read, so that another can have its slots; or None.

        Where there are no slots left, workers are waited for: as long as what they have to read is ready, and so never for
        another source, which this very thread may have to push.
        """
        left, name = self._left[intake.stream.name], intake.stream.name
        full = self._next_slot + len(self.inputs[name]) > self.arenas.slots
        since, seen = time.monotonic(), -1
        while left:
            for _ in range(len(left) if full else min(len(left), FEW)):
                former = left.popleft()
                if self._vacated(former):
                    return former
                left.append(former)
            if not (full and any(self._readable(each) for each in left)):
                return None
            self._together.check()
            moved = self._together.progressed()
            if moved != seen:
                since, seen = time.monotonic(), moved
            elif time.monotonic() - since > self._stall:
                return None
            time.sleep(0.0005)
        return None

    def _vacated(self, inlet: Inlet) -> bool:
        """Whether nothing of an ended source is left to read."""
        return all(self.gate.drained(slot) for slot in inlet.slots.values())

    def _readable(self, inlet: Inlet) -> bool:
        """Whether all that is left of an ended source is ready."""
        return inlet.largest < self.gate.frontier()[0]

    def _forget(self, intake: StreamIntake, former: Inlet) -> None:
        """An ended source gives its places away."""
        for slot in former.slots.values():
            self._owner.pop(slot, None)
        self._ranked[intake.stream.name].remove(former)
        intake.forget(former)
        former.slots = {}

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        """Memory for a source that is let in; one that follows another has that one's."""
        with self._encoding:
            if slot not in self.arenas.by_slot:
                self.arenas.furnish(slot, input, self.encoder)

    def _own(self, intake: StreamIntake, inlet: Inlet) -> None:
        """A source that is known may hold the frontier."""
        for slot in inlet.slots.values():
            self._owner[slot] = (intake.stream.name, inlet.name)

    def _rank(self, stream: str, new: Inlet) -> None:
        """Give a source that is about to be let in its place in ties, after its name or position: between its neighbours.

        An example: sources "a" and "c" have places 64 and 128; "b" turns up, and gets 96. If there were no number in between, all
        of the stream's would be spread anew. That changes their origins at the gate, so workers stand still meanwhile. Tuples of
        a and c that are in the gate are then compared by the new ones: a and c keep their order, and b has no tuple yet.
        """
        among = self._ranked[stream]
        at = bisect_left(among, new.rank, key=lambda each: each.rank)
        low = among[at - 1].place if at > 0 else 0
        high = among[at].place if at < len(among) else low + 2 * SPACING
        among.insert(at, new)
        new.place = (low + high) // 2
        if low < new.place < high and new.place < MOST_PLACES:
            return
        step = MOST_PLACES // (len(among) + 1)
        for k, each in enumerate(among):
            each.place = (k + 1) * step
        with self._pauser.still():  # a merge under way holds the old ones
            self.gate.rank(
                {
                    slot: _origin(self._ties[input], each.place, slot)
                    for each in among
                    for input, slot in each.slots.items()
                }
            )

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
            if name in intake.gone:
                raise has_ended(intake.stream, name)
            check_kind(intake, name)
            made = intake.made(name)
            self._admit(intake, made, max(released, self.gate.frontier()[0]))
            intake.add(made)
            self._own(intake, made)
            self._nobody_any_more(intake)
            return made

    def _nobody_any_more(self, intake: StreamIntake) -> None:
        """Nobody has to hold the frontier for a stream without sources: it has one, or has ended. Under `_joining`."""
        slot = self._nobody.pop(intake.stream.name, None)
        if slot is not None:
            self._answer(slot, self.gate.end(slot))

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
            inlet = None if source is None else intake.inlets.get(source)
            if inlet is None and source is not None:
                continue  # another one has had its place since
            spoke_ns = self._began_ns if inlet is None else inlet.spoke_ns
            busy = inlet is not None and inlet.lock.locked()  # a push that waits is no silence
            idle = not busy and is_idle(intake.stream, (now_ns - spoke_ns) // 1000)
            yield Holding(at, AtGate(intake, inlet, slot), idle)

    def told(self, frontier: int, newest: int | None,
             holder: tuple[str | None, SourceName | None]) -> tuple[list[SourceStats], int]:  # fmt: skip
        """What is known of each source, at a frontier that may be the whole query's; and how many tuples are ready and unread."""
        now, now_ns, found, unread = time.time(), time.monotonic_ns(), [], 0
        for name, intake in self.intakes.items():
            if self._is_result(name):
                continue
            for inlet in intake.inlets.values():
                waiting = len(inlet.waiting.ts)
                if inlet.steps is not None:
                    waiting += inlet.steps.ahead(frontier)
                elif slots := list(inlet.slots.values()):
                    ahead, ready = self.gate.ahead(slots[0], frontier)
                    waiting, unread = waiting + ahead, unread + ready
                found.append(_told(intake, inlet, waiting, newest, now, now_ns, holder))
            if not intake.inlets and not intake.ended:
                silent_s = (now_ns - self._began_ns) / 1e9
                found.append(SourceStats(stream=name, silent_s=silent_s, waiting=0, holds=holder == (name, None)))
        return found, unread

    def reached(self) -> int:
        """The furthest that any source has come to."""
        streams = [intake for name, intake in self.intakes.items() if not self._is_result(name)]
        known = [inlet.progress(intake.stream) for intake in streams for inlet in intake.inlets.values()]
        return max([*known, *(intake.reached for intake in streams)], default=BEFORE_ALL)

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


def _told(intake: StreamIntake, inlet: Inlet, waiting: int, newest: int | None, now: float, now_ns: int,
          holder: tuple[str | None, SourceName | None]) -> SourceStats:  # fmt: skip
    """What a source tells of itself; whoever pushes it may be in the middle of that."""
    stream, progress = intake.stream, AFTER_ALL if inlet.ended or intake.ended else inlet.progress(intake.stream)
    silent_ns = max(0, now_ns - inlet.spoke_ns)
    idle = not inlet.lock.locked() and progress < AFTER_ALL and is_idle(stream, silent_ns // 1000)
    return SourceStats(
        stream=stream.name, source=inlet.name, progress=progress,
        newest=None if inlet.largest == BEFORE_ALL else inlet.largest,
        lag_us=max(0, newest - progress) if newest is not None and BEFORE_ALL < progress < AFTER_ALL else None,
        heard_at=now - silent_ns / 1e9 if inlet.spoken else None, silent_s=silent_ns / 1e9, rows=inlet.delivered,
        waiting=waiting, late=inlet.late, behind=inlet.behind, ended=progress == AFTER_ALL, idle=idle,
        holds=holder == (stream.name, inlet.name) and not idle,
    )  # fmt: skip
