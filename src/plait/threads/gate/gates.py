"""The gate of a run as Python holds it: its memory, its sources' names, and errors that say who and why.

Everything that happens to a tuple happens in compiled code without the GIL; that code is given `words`. Here sources are let
in and named, and answers below zero become errors. A source is a slot, a reader a seat: both are numbers.

Memory: `words` is one array, allocated here, alive as long as the `Gate`. It never grows: `capacity` and `pending` are
the user's options, slots and readers are known when the run begins. Untouched pages cost nothing.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar, Protocol

import numpy as np

from plait.core.machine.marks import brief
from plait.errors import DataError, QueryError, RunError
from plait.order import BEFORE_ALL
from plait.threads.gate import calls, codes, elastic, frontier, ring, skiplist
from plait.threads.gate import words as g
from plait.threads.words import SLOT_BITS

#: A source's slot is a part of its place among the sources.
MOST_SLOTS = 2**SLOT_BITS


@brief
def _lowest(g: np.ndarray) -> tuple[int, int]:
    """Asked after each push: a load for each source, for which the GIL is not given away."""
    found: tuple[int, int] = frontier.lowest(g)
    return found


class WaitingCalls(Protocol):
    """The calls of a gate's module that Python makes: they sleep where compiled loops would look again.

    `gate.kind.add_waiting(gate.words, slot, ...)` adds tuples, `gate.kind.read_waiting(gate.words, seat, ...)` takes them:
    see `ring`. No method here stands between a tuple and these.
    """

    @property
    def add_waiting(self) -> Any: ...

    @property
    def read_waiting(self) -> Any: ...


class Gate:
    """What all gates share. It begins with one source, slot 0, that has not spoken: without any it would be at its end.

    `kind` is the module that tuples go through: `ring` or `skiplist`.

    `slots` sources and `readers` fit. `ring` is how many tuples one source can have inside. All calls but `rank` may
    come from any thread, at any time; compiled code refuses what must not overlap.
    """

    kind: ClassVar[WaitingCalls]
    store: ClassVar[str]

    def __init__(self, *, slots: int, readers: int, capacity: int, pending: int) -> None:
        if slots > MOST_SLOTS:
            raise QueryError(
                f"Room for {slots} sources",
                why=f"a run has {MOST_SLOTS} at most, counting a stream that is read twice twice",
                do="Lower max_sources=, or put sources together before they are pushed: a column can name them",
            )
        self.words = g.allocate(slots=slots, seats=readers, capacity=capacity, pending=pending, store=self.store)
        g.prepare(self.words, [0], readers)
        if self.store == "nodes":
            g.prepare_nodes(self.words)
        self.slots, self.seats, self.capacity, self.pending = slots, readers, capacity, pending
        self.ring = int(self.words[g.RING])  # tuples a source can have in the gate
        self._names = [""] * slots

    # --- sources ---

    def open(self, slot: int, name: str, *, origin: int, min_ts: int) -> int:
        """Let a source in; the first one is in already. A slot whose source has ended, and is `drained`, can have another.

        Gives the ts that its tuples begin at: `min_ts`, or more where a worker was promised more meanwhile.

        By one thread at a time (`input.inlets`). `origin` settles ties between sources of one ts. BEHIND is answered
        while readers move on; then the source begins at the furthest frontier, which is read again each time.
        """
        first, self._names[slot] = not self._names[slot], name
        if slot == 0 and first:
            self.words[self._origin_at(0)] = origin
            return min_ts
        one, rank = np.array([slot], np.int64), np.array([origin], np.int64)
        while (code := int(elastic.announce_sources(self.words, one, rank, 1, min_ts, 0))) < 0:
            if code == codes.BEHIND:
                min_ts = max(self.frontier_of(seat) for seat in range(self.seats))
            elif code == codes.INSIDE:
                time.sleep(0)  # another change holds what this one needs, which is never for long
            else:
                raise RunError(f"The gate did not let {name} in: it answered {code}", do="Report this")
        return min_ts

    def heartbeat(self, slot: int, ts: int) -> int:
        """Promise that no tuple below `ts` will come from a source: 0, or a code."""
        return int(calls.heartbeat(self.words, slot, ts))

    def end(self, slot: int) -> int:
        """No more tuples from a source: 0, or a code."""
        return int(calls.end(self.words, slot))

    def name(self, slot: int) -> str:
        return self._names[slot]

    def progress(self, slot: int) -> int:
        """No tuple of this source below it will come."""
        return int(self.words[g.SOURCES_AT + slot * g.SOURCE_WORDS + g.PROGRESS])

    def drained(self, slot: int) -> bool:
        """Whether every reader has read the slot's last tuple; of a source that has ended that holds for good."""
        return bool(elastic.drained(self.words, slot))

    def rank(self, origins: dict[int, int]) -> None:
        """Give sources their places in ties; while no reader is inside, since a merge under way holds the old ones.

        `input.inlets` calls it inside `pause.Pauser.still`. LEAVES = -1 makes each reader survey its leaves anew: they
        stand in the old order.
        """
        for slot, origin in origins.items():
            self.words[self._origin_at(slot)] = origin
        for seat in range(self.seats):
            self.words[self._reader_at(seat) + g.LEAVES] = -1

    def refused(self, slot: int, code: int) -> Exception:
        """The error for a code that a call for a source answered."""
        who = self.name(slot)
        if code == codes.GONE:
            return RunError(f"{who} has ended or was removed; what it still brings is ignored")
        if code == codes.CLOSED_CODE:
            return RunError("The gate was closed")
        if code == codes.INSIDE:
            return inside(who)
        if code == codes.UNSORTED:
            return DataError(
                f"{who}: two tuples of one ts whose seq does not rise",
                why="seq is what orders the tuples of one source and ts",
            )
        return RunError(f"{who}: the gate answered {code}")

    # --- readers ---

    def frontier_of(self, seat: int) -> int:
        """The frontier as this reader has settled it: what lies below, and only that, may be given out to it."""
        return int(self.words[self._reader_at(seat) + g.FRONTIER])

    def tuples(self, slots: int) -> tuple[int, np.ndarray]:
        """Tuples that sources in the first `slots` slots have ever added, and how many of them each reader has read.

        Readers' first, so that none seems to have read what has not come. A sum that is a little old, as all counters.
        """
        columns, at = int(self.words[g.COLUMNS]), int(self.words[g.READ_AT])
        rows = self.words[at : at + self.seats * columns].reshape(self.seats, columns)
        read = rows[:, :slots].sum(axis=1)
        added = self.words[g.SOURCES_AT + g.TAIL : g.SOURCES_AT + slots * g.SOURCE_WORDS : g.SOURCE_WORDS]
        return int(added.sum()), read

    # --- what is going on: looked at from outside, without stopping anybody; so all of it is a little old ---

    def ahead(self, slot: int, ts: int) -> tuple[int, int]:
        """Of a source's tuples in the gate, how many do not lie below a ts, and how many below it some reader has not read.

        Those that a reader has read are not looked at: their memory may have other tuples by now.
        """
        words, ring = self.words, self.ring
        tail = int(words[g.SOURCES_AT + slot * g.SOURCE_WORDS + g.TAIL])
        at, columns = int(words[g.READ_AT]) + slot, int(words[g.COLUMNS])
        read = min(int(words[at + seat * columns]) for seat in range(self.seats)) if self.seats else tail
        step, first = (g.NODE_WORDS, g.TS) if self.store == "nodes" else (1, 0)
        begins = int(words[g.STORE_AT]) + slot * ring * (g.NODE_WORDS if self.store == "nodes" else 3) + first
        low, high = max(read, tail - ring), tail
        while low < high:
            middle = (low + high) // 2
            if int(words[begins + (middle & ring - 1) * step]) < ts:
                low = middle + 1
            else:
                high = middle
        return tail - low, max(0, low - read)

    # --- all of it ---

    def frontier(self) -> tuple[int, int | None]:
        """The frontier now, and the source that holds it (None: all have ended)."""
        value, holder = _lowest(self.words)
        return int(value), None if holder < 0 else int(holder)

    def held(self) -> str:
        """Who holds the frontier, and where, for an error."""
        at, holder = self.frontier()
        where = "it has not spoken" if at == BEFORE_ALL else f"it is at ts {at}"
        return f"{'nobody' if holder is None else self.name(holder)}: {where}"

    def close(self) -> None:
        """Refuse every further call, and wake whoever sleeps. Nothing is flushed."""
        calls.close(self.words)

    def _origin_at(self, slot: int) -> int:
        return g.SOURCES_AT + slot * g.SOURCE_WORDS + g.ORIGIN

    def _reader_at(self, seat: int) -> int:
        return int(self.words[g.READERS_AT]) + seat * g.READER_WORDS


class SkipListGate(Gate):
    """Sources sort as they insert, once for all readers."""

    kind: ClassVar[WaitingCalls] = skiplist
    store: ClassVar[str] = "nodes"


class RingGate(Gate):
    """Sources only append; every reader merges for itself."""

    kind: ClassVar[WaitingCalls] = ring
    store: ClassVar[str] = "rings"


def inside(who: str) -> RunError:
    """One thread at a time pushes a source: a second one is told so."""
    return RunError(
        f"Another thread is inside a call for {who}",
        why="one thread at a time pushes a source or reads as a reader: their order would be anybody's guess",
        do="Give each thread a source or reader of its own",
    )
