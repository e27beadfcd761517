"""The gate as one would write it if nothing ran at the same time: what every gate is judged by.

A state holds all tuples ever added, each source's promise and each reader's count; a call is a function from a state to the
next. Where the gates have a choice (a read may give fewer tuples than are ready, because the frontier moved after it
looked; a limit may answer FULL or STUCK) any of the permitted answers is accepted.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.explore.linearize import Call

from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.gate import codes

#: (ts, origin, seq)
Key = tuple[int, int, int]


class Source(NamedTuple):
    slot: int
    origin: int
    progress: int
    live: bool


class Reader(NamedTuple):
    reader: int
    count: int  # tuples read so far, of the one sequence that all readers see
    live: bool


class State(NamedTuple):
    tuples: tuple[Key, ...]  # in total order
    sources: tuple[Source, ...]
    readers: tuple[Reader, ...]
    changes: tuple[tuple[str, int], ...] = ()  # the last numbered change of each kind

    @property
    def frontier(self) -> int:
        return min((source.progress for source in self.sources if source.live), default=AFTER_ALL)

    def source(self, slot: int) -> Source | None:
        return next((source for source in self.sources if source.slot == slot), None)

    def reader(self, number: int) -> Reader | None:
        return next((reader for reader in self.readers if reader.reader == number), None)

    def with_source(self, source: Source) -> State:
        rest = tuple(other for other in self.sources if other.slot != source.slot)
        return self._replace(sources=tuple(sorted((*rest, source))))

    def with_reader(self, reader: Reader) -> State:
        rest = tuple(other for other in self.readers if other.reader != reader.reader)
        return self._replace(readers=tuple(sorted((*rest, reader))))


def start(origins: list[int], readers: int) -> State:
    """Declared sources that have not spoken hold the frontier at -infinity."""
    sources = tuple(Source(slot, origin, BEFORE_ALL, True) for slot, origin in enumerate(origins))
    return State((), sources, tuple(Reader(number, 0, True) for number in range(readers)))


def apply(state: State, call: Call) -> State | None:
    """The state after this call, or None if a gate may not answer it so."""
    if call.answered == codes.INSIDE:  # another call about the same source or reader was under way
        return state
    return _CALLS[call.name](state, call)


def _numbered(state: State, call: Call) -> State | None:
    """The state with this call's `change` used up, or None if it is too late for it; 0 is no number."""
    change = call.asked[-1]
    last = dict(state.changes).get(call.name, 0)
    if change == 0:
        return state
    if change <= last:
        return None
    return state._replace(changes=tuple(sorted({**dict(state.changes), call.name: change}.items())))


def _add(state: State, call: Call) -> State | None:
    slot, keys, progress = call.asked  # keys: ((ts, seq), ...)
    source = state.source(slot)
    if source is None or not source.live:
        return state if call.answered == codes.GONE else None
    if call.answered in (codes.FULL, codes.STUCK):
        return state
    if call.answered != len(keys) and not 0 < call.answered < len(keys):
        return None
    taken = keys[: call.answered]
    tuples = tuple(sorted(state.tuples + tuple((ts, source.origin, seq) for ts, seq in taken)))
    promise = progress if len(taken) == len(keys) else taken[-1][0]
    return state._replace(tuples=tuples).with_source(source._replace(progress=max(source.progress, promise)))


def _heartbeat(state: State, call: Call) -> State | None:
    slot, ts = call.asked
    source = state.source(slot)
    if source is None or not source.live:
        return state if call.answered == codes.GONE else None
    return state.with_source(source._replace(progress=max(source.progress, ts))) if call.answered == 0 else None


def _end(state: State, call: Call) -> State | None:
    (slot,) = call.asked
    source = state.source(slot)
    if source is None or not source.live:
        return state if call.answered == codes.GONE else None
    return state.with_source(source._replace(live=False)) if call.answered == 0 else None


def _read(state: State, call: Call) -> State | None:
    number, _most = call.asked
    reader = state.reader(number)
    if reader is None or not reader.live:
        return state if call.answered == codes.GONE else None
    if call.answered == codes.DONE:
        ended = state.frontier == AFTER_ALL and reader.count == len(state.tuples)
        return state if ended else None
    got = call.answered
    if not isinstance(got, tuple):
        return None
    expected = state.tuples[reader.count : reader.count + len(got)]
    if expected != got or any(ts >= state.frontier for ts, _, _ in got):
        return None
    return state.with_reader(reader._replace(count=reader.count + len(got)))


def _announce_sources(state: State, call: Call) -> State | None:
    slots, origins, min_ts, _ = call.asked
    taken = [state.source(slot) for slot in slots]
    fresh = _numbered(state, call)
    if call.answered in (codes.NOT_TAKEN, codes.DRAINING):
        return state if fresh is None or any(source is not None for source in taken) else None
    if call.answered == codes.BEHIND:
        return fresh if min_ts < state.frontier else None
    if fresh is None or any(source is not None and source.live for source in taken):
        return None
    state = fresh
    for reader in state.readers:
        if reader.live and reader.count and state.tuples[reader.count - 1][0] >= min_ts:
            return None
    for slot, origin in zip(slots, origins, strict=True):
        state = state.with_source(Source(slot, origin, min_ts, True))
    return state


def _remove_sources(state: State, call: Call) -> State | None:
    slots, _ = call.asked
    fresh = _numbered(state, call)
    if fresh is None:
        return state if call.answered == codes.NOT_TAKEN else None
    state, taken = fresh, 0
    for slot in slots:
        source = state.source(slot)
        if source is not None and source.live:
            state, taken = state.with_source(source._replace(live=False)), taken + 1
    return state if call.answered == (taken or codes.NOT_TAKEN) else None


def _announce_readers(state: State, call: Call) -> State | None:
    readers, parent, _ = call.asked
    old = state.reader(parent)
    fresh = _numbered(state, call)
    if old is None or not old.live:
        return state if call.answered == codes.GONE else None
    present = [state.reader(number) for number in readers]
    if call.answered == codes.NOT_TAKEN:
        return state if fresh is None or any(reader is not None for reader in present) else None
    if fresh is None or any(reader is not None and reader.live for reader in present):
        return None
    state = fresh
    for number in readers:
        state = state.with_reader(Reader(number, old.count, True))
    return state


def _remove_readers(state: State, call: Call) -> State | None:
    readers, _ = call.asked
    fresh = _numbered(state, call)
    if fresh is None:
        return state if call.answered == codes.NOT_TAKEN else None
    if call.answered == codes.LAST_READER:
        return fresh
    state, taken = fresh, 0
    for number in readers:
        reader = state.reader(number)
        if reader is not None and reader.live:
            state, taken = state.with_reader(reader._replace(live=False)), taken + 1
    if not any(reader.live for reader in state.readers):
        return None  # the last one has to stay
    return state if call.answered == (taken or codes.NOT_TAKEN) else None


_CALLS = {
    "add": _add,
    "heartbeat": _heartbeat,
    "end": _end,
    "read": _read,
    "announce_sources": _announce_sources,
    "remove_sources": _remove_sources,
    "announce_readers": _announce_readers,
    "remove_readers": _remove_readers,
}
