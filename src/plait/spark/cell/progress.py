"""What every cell knows of the sources, folded from punctuation: the same in all cells, so none has to be asked.

A task's split says where a source's run of positions begins and how far its time got. Splits of one source, ordered by
first position, continue what the state remembers; a tuple is late iff it lies below the largest ts before it, less the
disorder, be that within its split (the task has seen that), in an earlier split of the batch, or in an earlier batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from plait.errors import BehindError, DataError, LateError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import FILE, Stream
from plait.spark.formats import SourceState, Split, StreamState
from plait.spark.pack.positions import of_one_file, told

#: It takes so many batches at least for a source to become idle: see `clock`.
MOST = 4


def _come_to(source: SourceState, disorder_us: int) -> int:
    """The ts below which a source gives nothing any more, unless it has ended."""
    return max(BEFORE_ALL if source.largest is None else source.largest - disorder_us, source.heartbeat)


def frontier_of(streams: Iterable[StreamProgress | Upstream]) -> int:
    """The least progress of any source that holds the frontier. If only idle ones are left, what any has come to."""
    streams = list(streams)
    least = min(stream.progress()[0] for stream in streams)
    if least < AFTER_ALL or all(stream.done() for stream in streams):
        return least
    return max(stream.reached() for stream in streams)


@dataclass
class Upstream:
    """Another operator of the query, as a source: it says how far it is, and gives nothing below that any more."""

    frontier: int = BEFORE_ALL

    def progress(self) -> tuple[int, Any]:
        return self.frontier, None

    def done(self) -> bool:
        return self.frontier == AFTER_ALL

    def reached(self) -> int:
        return BEFORE_ALL if self.done() else self.frontier


class StreamProgress:
    """One stream's sources by name, and whether more of them can come."""

    def __init__(self, stream: Stream, names: tuple[Any, ...], *, open_ended: bool) -> None:
        self.stream = stream
        self.sources: dict[Any, SourceState] = {name: SourceState() for name in names}
        self.open_ended = open_ended  # sources become known at first sight
        self.ended = False
        self.silent_us = 0  # how long none of its sources has said anything

    def progress(self) -> tuple[int, Any]:
        """How far the stream has come, and the source that holds it."""
        if self.ended:
            return AFTER_ALL, None
        least, holder = AFTER_ALL, None
        for name, source in self.sources.items():
            at = AFTER_ALL if source.ended else _come_to(source, self.stream.disorder_us)
            if at < least and not source.idle:
                least, holder = at, name
        if least == AFTER_ALL and self.open_ended and not self._idle(self.silent_us):
            # All known sources have ended, and another may come: nothing is promised beyond what has been seen.
            seen = [s.largest for s in self.sources.values() if s.largest is not None]
            return max(seen, default=BEFORE_ALL), None
        return least, holder

    def _idle(self, silent_us: int) -> bool:
        return self.stream.idle_after_us is not None and silent_us >= self.stream.idle_after_us

    def tick(self, elapsed_us: int, spoke: set[Any]) -> None:
        """Time has passed in which only the sources that spoke said anything."""
        assert self.stream.idle_after_us is not None
        elapsed_us = min(elapsed_us, -(-self.stream.idle_after_us // MOST))
        self.silent_us = 0 if spoke else self.silent_us + elapsed_us
        for name, source in self.sources.items():
            source.silent_us = 0 if name in spoke else source.silent_us + elapsed_us
            source.idle = self._idle(source.silent_us)

    def done(self) -> bool:
        """Whether nothing can come any more, as opposed to being idle."""
        return self.ended or (not self.open_ended and all(s.ended for s in self.sources.values()))

    def largest(self) -> int | None:
        return max((s.largest for s in self.sources.values() if s.largest is not None), default=None)

    def reached(self) -> int:
        """The furthest any source has come."""
        disorder = self.stream.disorder_us
        return max((_come_to(source, disorder) for source in self.sources.values()), default=BEFORE_ALL)

    def fold(self, splits: list[Split], released: int) -> dict[tuple[Any, str], int]:
        """Take a batch's splits; gives for each (source, first position) the ts below which its tuples are late."""
        limits: dict[tuple[Any, str], int] = {}
        disorder = self.stream.disorder_us
        at_start = {name: source.largest for name, source in self.sources.items()}
        for split in sorted(splits, key=lambda s: (str(s.source), s.first)):
            name, first, largest, offence = split.source, split.first, split.largest, split.offence
            source = self._source(name)
            if first and source.last and first <= source.last:
                raise self.out_of_order(name, first, source.last)
            source.last = split.last
            # Rows without a position have no order among those of their batch: only earlier batches came before them.
            before = source.largest if first else at_start.get(name)
            limits[(name, first)] = BEFORE_ALL if before is None else before - disorder
            if offence is not None and self.stream.late == "error":
                largest_before = offence.largest if before is None else max(offence.largest, before)
                raise self.late(name, offence.ts, largest_before, bytes.fromhex(offence.seq))
            if (
                released > BEFORE_ALL
                and source.largest is None
                and largest < released
                and self.stream.behind == "error"
            ):
                raise self.behind(name, largest, released)
            source.largest = largest if source.largest is None else max(source.largest, largest)
            source.ended = source.ended or (split.ended and self.stream.source == FILE)
        return limits

    def _source(self, name: Any) -> SourceState:
        """The source of a split; it must not have ended."""
        if self.ended:
            raise RunError(f"Stream {self.stream.name!r} has ended", why="rows came after its end")
        source = self.know(name)
        if source.ended and self.stream.source != FILE:
            raise RunError(f"Stream {self.stream.name!r}: source {name!r} has ended", why="rows came after its end")
        return source

    def know(self, name: Any) -> SourceState:
        """The source of that name; where none are declared, first sight makes it known."""
        source = self.sources.get(name)
        if source is None:
            if not self.open_ended:
                declared = ", ".join(map(repr, self.sources))
                raise DataError(
                    f"Stream {self.stream.name!r}: source {name!r} is not declared",
                    why=f"sources= names {declared}",
                    do="Add it to sources=",
                )
            source = self.sources[name] = SourceState()
        return source

    def late(self, name: Any, ts: int, largest: int, seq: bytes) -> LateError:
        return LateError(
            f"Stream {self.stream.name!r}, source {name!r}, {told(seq)}: "
            f"ts {ts} is late, {largest - ts} us behind {largest} before it",
            why=f"the source may run back by {self.stream.disorder_us} us",
            do=f"Restart with late='drop' to skip such rows, or begin anew with disorder= of at least {largest - ts} us",
        )

    def behind(self, name: Any, ts: int, released: int) -> BehindError:
        return BehindError(
            f"Stream {self.stream.name!r}, source {name!r}: ts {ts} is behind the frontier {released}",
            why="the source was not known to hold the frontier when it moved on",
            do="Declare the sources with sources=[...], or restart with behind='drop', which gives up determinism",
        )

    def broken_promise(self, name: Any, ts: int, heartbeat: int) -> DataError:
        return DataError(
            f"Stream {self.stream.name!r}, source {name!r}: ts {ts} is below the source's heartbeat {heartbeat}",
            why="a heartbeat promises no ts below its own",
        )

    def out_of_order(self, name: Any, first: str, last: str) -> DataError:
        here, there = (told(bytes.fromhex(text)) for text in (first, last))
        if of_one_file(bytes.fromhex(first), bytes.fromhex(last)):
            return DataError(
                f"Stream {self.stream.name!r}, source {name!r}: {here} came after {there}, of the same file",
                why="a file's rows come once and in one piece: this one was read twice, written anew, or dealt out to tasks anew",
                do="Hand over each file once, as Spark reads it, or use a seq column",
            )
        return DataError(
            f"Stream {self.stream.name!r}, source {name!r}: {here} came after {there}, and sorts before it",
            why="a source's tuples are ordered by position, and those up to there have been taken",
            do="Name files so that they sort in the order they arrive, or use a seq column",
        )

    def state(self) -> StreamState:
        """What a cell stores of it."""
        return StreamState(self.ended, self.silent_us, self.sources)

    def restore(self, state: StreamState) -> None:
        self.ended, self.silent_us = state.ended, state.silent_us
        self.sources.update(state.sources)
