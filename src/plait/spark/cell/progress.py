"""What every cell knows of the sources, folded from punctuation: the same in all cells, so none has to be asked.

A task's split says where a source's run of positions begins and how far its time got. Splits of one source, ordered by
first position, continue what the state remembers: so the largest ts before a tuple is in its split (the task has seen that),
in an earlier split of the batch, or in an earlier batch. What follows from it is `core/sources.py`'s to say.

Where it runs: in every cell, once a batch, with the same splits, so with the same outcome. What it keeps between batches
is in the cell's manifest (`formats.StreamState`). A retry begins from the manifest of the batch before and comes to the
same.

Batches cut a source's rows anywhere, tasks take any files, and neither may show. What makes that so is the order of
splits by first position: it is the order in which one reader would have read the source. Held by
tests/spark/test_bad_input.py, tests/spark/test_idle.py and tests/spark/test_inputs.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.core.sources import Holding, Offence, come_to, frontier, has_ended, is_idle, judge, not_declared, refusal
from plait.errors import DataError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import FILE, Stream
from plait.spark.formats import SourceState, Split, StreamState
from plait.spark.pack.positions import of_one_file, told

#: It takes so many batches at least for a source to become idle: see `clock`.
MOST = 4


#: A stream and its source; None: an operator before this one.
Who = tuple[str, Any] | None


@dataclass
class Upstream:
    """Another operator of the query, as a source: it says how far it is, and gives nothing below that any more.

    It is never idle and never late: the operator before has waited for its own sources already.
    """

    frontier: int = BEFORE_ALL

    def holding(self) -> list[Holding[Who]]:
        """Itself, or nobody once it has ended."""
        return [] if self.frontier == AFTER_ALL else [Holding(self.frontier, None)]

    def reached(self) -> int:
        """How far it has come. At its end that is no moment of the data, so it says nothing then."""
        return BEFORE_ALL if self.frontier == AFTER_ALL else self.frontier


def held(streams: Iterable[StreamProgress | Upstream]) -> tuple[int, Holding[Who] | None]:
    """The frontier of an operator that reads these, and who holds it.

    Streams and operators before count alike: the least of all that may hold it. If all are idle, the frontier is the
    furthest that any of them has come. If all have ended, it is AFTER_ALL: everything is ready.
    """
    streams = list(streams)
    holding = [each for stream in streams for each in stream.holding()]
    return frontier(holding, max((stream.reached() for stream in streams), default=BEFORE_ALL))


class StreamProgress:
    """One stream's sources by name, and whether more of them can come.

    Attributes:
        stream: The declaration, which has the rules: disorder, late, behind, idle_after.
        sources: What is known of each source. A declared one is here from the start and holds the frontier until it
            speaks.
        open_ended: No sources are declared. Then the stream itself holds the frontier until the first one has spoken.
        ended: The user has said so (`end`, `drain`). Rows that come after that are refused.
    """

    def __init__(self, stream: Stream, names: tuple[Any, ...], *, open_ended: bool) -> None:
        self.stream = stream
        self.sources: dict[Any, SourceState] = {name: SourceState() for name in names}
        self.open_ended = open_ended  # sources become known at first sight
        self.ended = False
        self.silent_us = 0  # how long none of its sources has said anything

    def holding(self) -> list[Holding[Who]]:
        """Those that may hold the frontier."""
        if self.ended:
            return []
        name = self.stream.name
        found: list[Holding[Who]] = [
            Holding(self._come_to(source), (name, own), source.idle)
            for own, source in self.sources.items()
            if not source.ended
        ]
        if self.open_ended and all(each.idle for each in found):
            # None that is known holds it, and another may come: nothing is promised beyond what has been seen.
            seen = self.largest()
            found.append(
                Holding(BEFORE_ALL if seen is None else seen, (name, None), is_idle(self.stream, self.silent_us))
            )
        return found

    def _come_to(self, source: SourceState) -> int:
        return come_to(self.stream, BEFORE_ALL if source.largest is None else source.largest, source.heartbeat)

    def tick(self, elapsed_us: int, spoke: set[Any]) -> None:
        """Time has passed in which only the sources that spoke said anything.

        A batch counts for a quarter of `idle_after=` at most (see `clock`).
        """
        assert self.stream.idle_after_us is not None
        elapsed_us = min(elapsed_us, -(-self.stream.idle_after_us // MOST))
        self.silent_us = 0 if spoke else self.silent_us + elapsed_us
        for name, source in self.sources.items():
            source.silent_us = 0 if name in spoke else source.silent_us + elapsed_us
            source.idle = is_idle(self.stream, source.silent_us)

    def largest(self) -> int | None:
        """The largest ts of any source; None before the first row."""
        return max((s.largest for s in self.sources.values() if s.largest is not None), default=None)

    def reached(self) -> int:
        """The furthest any source has come."""
        return max((self._come_to(source) for source in self.sources.values()), default=BEFORE_ALL)

    def fold(self, splits: list[Split], released: int) -> dict[tuple[Any, str], int]:
        """Take a batch's splits; gives for each (source, first position) the largest ts before it in its source.

        Splits tell enough to refuse a batch, in every cell alike, unless late tuples are dropped: then which tuples are
        left to be behind is known only where the tuples are (`arrive`).

        Refused here are: a position that is not above the last one of its source (the file was read twice, or files do
        not sort in the order they arrived), a source that has ended or is not declared, a late tuple where
        `late="error"`, and in `_judge` one that is behind. Late is told with the tuple's position, which its task has
        put into the split.

        A file that names its source ends it, so a folder with many files does not wait for those that are read.
        """
        found: dict[tuple[Any, str], int] = {}
        splits = sorted(splits, key=lambda s: (str(s.source), s.first))
        at_start = {name: source.largest for name, source in self.sources.items()}
        for split in splits:
            name, first = split.source, split.first
            source = self._source(name)
            if first and source.last and first <= source.last:
                raise self.out_of_order(name, first, source.last)
            source.last = split.last
            # Rows without a position have no order among those of their batch: only earlier batches came before them.
            before = source.largest if first else at_start.get(name)
            found[(name, first)] = BEFORE_ALL if before is None else before
            if split.offence is not None and self.stream.late == "error":
                late = split.offence
                limit = late.largest if before is None else max(late.largest, before)
                raise self.refusal(name, Offence("late", 0, late.ts, limit), late.seq)
            source.largest = split.largest if source.largest is None else max(source.largest, split.largest)
            source.ended = source.ended or split.ended
        self._judge(splits, found, released)
        return found

    def _judge(self, splits: list[Split], before: dict[tuple[Any, str], int], released: int) -> None:
        """Refuse what splits show to be refused: by a tuple of each that is not late within it, the least if none is."""
        least = self.stream.late == "error"
        ts = np.array([split.least if least else split.largest for split in splits], np.int64)
        judged = judge(self.stream, ts, np.array([before[(s.source, s.first)] for s in splits], np.int64),
                       self.heartbeats(splits), released)  # fmt: skip
        if judged.offence is not None:
            split = splits[judged.offence.row]
            raise self.refusal(split.source, judged.offence, split.least_seq if least else "")

    def heartbeats(self, splits: list[Split]) -> np.ndarray:
        """Of each split's source."""
        return np.array([self.sources[split.source].heartbeat for split in splits], np.int64)

    def refusal(self, name: Any, offence: Offence, seq: str) -> DataError:
        """The error for a tuple of a source, by its seq's key piece as hexadecimal."""
        at = told(bytes.fromhex(seq)) if offence.kind == "late" else ""
        return refusal(self.stream, name, at, offence, idle=self.sources[name].idle, resumes=True)

    def _source(self, name: Any) -> SourceState:
        """The source of a split; it must not have ended."""
        if self.ended:
            raise has_ended(self.stream)
        source = self.know(name)
        if source.ended and self.stream.source != FILE:
            raise has_ended(self.stream, name)
        return source

    def know(self, name: Any) -> SourceState:
        """The source of that name; where none are declared, first sight makes it known."""
        source = self.sources.get(name)
        if source is None:
            if not self.open_ended:
                raise not_declared(self.stream, name, self.sources)
            source = self.sources[name] = SourceState()
        return source

    def out_of_order(self, name: Any, first: str, last: str) -> DataError:
        """The refusal of positions that go back. Which words it has depends on whether both lie in one file."""
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
        """Take up what a cell has stored. Declared sources that the state does not know stay as they are: not heard of yet."""
        self.ended, self.silent_us = state.ended, state.silent_us
        self.sources.update(state.sources)
