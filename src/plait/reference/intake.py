"""Where tuples wait until they are ready: sources, progress, the frontier; late and behind judged.

The definitions, in the order they are used here:

- A source's tuples are numbered by `seq`. A tuple is late iff its ts is below the largest ts before it in its own
  source, less the disorder: a fact of the data.
- A source's progress is its largest ts less the disorder, or its heartbeat if that is more; -infinity before it has
  spoken, +infinity once it has ended. A stream of which no source is known yet holds back like a silent source.
- The frontier is the minimum over all sources of all streams. What lies strictly below it is ready.
- A tuple below the released frontier can only come from a source that was not holding it: it is behind.

A tuple's key here is (source's rank, seq); with (ts, input) before it, that is the total order of design.md, section 1.
It says the same as `core/sources.py` in other words, one tuple at a time, and shares nothing with it;
tests/reference/test_delivery.py holds the two together.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from plait.errors import BehindError, DataError, LateError, PendingError, RunError
from plait.query.stream import Stream
from plait.reference.rows import Row, table_of, values_of
from plait.schema import to_micros

# Python's integers have room outside of every ts and every sum of a ts and a window.
NEVER = -(2**65)
FOREVER = 2**65

SourceName = int | str


@dataclass
class Source:
    """One physical stream. `rank` is what the total order has in the place of the source.

    `largest` is the largest ts so far, of tuples that were taken or behind; None before the first. `heartbeat` is the
    largest promise. `delivered` counts its rows, late ones too: a row's position does not depend on what is dropped.
    `last_seq` is the seq before, where a column gives it.
    """

    name: SourceName
    rank: Any
    largest: int | None = None
    heartbeat: int = NEVER
    ended: bool = False
    delivered: int = 0
    last_seq: Any = None

    def progress(self, disorder_us: int) -> int:
        """No later tuple of the source is below it, unless it is late."""
        if self.ended:
            return FOREVER
        spoken = NEVER if self.largest is None else self.largest - disorder_us
        return max(spoken, self.heartbeat)


@dataclass
class StreamIntake:
    """One stream's sources and its tuples that are not ready yet.

    `pending` is a heap of (ts, key, number, row): the number tells apart what else is alike, and rows are never compared.
    `late` and `behind` are what was dropped. `taken` counts rows that were let in. `equals` is for streams ordered by
    content, see `_numbered`.
    """

    stream: Stream
    schema: pa.Schema
    sources: dict[SourceName, Source] = field(default_factory=dict)
    ended: bool = False
    pending: list[tuple[int, tuple[Any, ...], int, Row]] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    behind: list[Row] = field(default_factory=list)
    taken: int = 0
    equals: dict[tuple[int, tuple[Any, ...]], int] = field(
        default_factory=dict
    )  # by content: rows that wait, by (ts, key)

    def __post_init__(self) -> None:
        for position, name in enumerate(self.stream.declared() or ()):
            self.know(name, position)

    def know(self, name: SourceName, position: int | None = None) -> Source:
        """The source of that name. Sources are ordered by declared position, or by name where a column or nothing names them.

        Text names are ranked by their bytes, numbers by size. A declared position counts where no column names the
        source.
        """
        source = self.sources.get(name)
        if source is None:
            rank: Any = name.encode() if isinstance(name, str) else name
            if position is not None and self.stream.source is None:
                rank = position
            source = self.sources[name] = Source(name, rank)
        return source

    def progress(self) -> tuple[int, SourceName | None]:
        """How far the stream has come, and which source holds it there.

        The least of its sources. A stream of which no source is known holds everything back: it might deliver anything.
        """
        if self.ended:
            return FOREVER, None
        if not self.sources:
            return NEVER, None
        disorder = self.stream.disorder_us
        holder = min(self.sources.values(), key=lambda s: s.progress(disorder))
        return holder.progress(disorder), holder.name

    def push(self, batch: pa.RecordBatch, source: SourceName | None, released: int, *, where: str = "",
             first_row: int = 0) -> None:  # fmt: skip
        """Take a batch, row by row. `source` names the lane's one source, or is None if a column does.

        Rows are judged one after another, so those before a refused one have been taken. `released` is the frontier up to
        which results are out. `where` and `first_row` are for messages: the file, and the number of the batch's first row
        in it.
        """
        if self.ended:
            raise RunError(f"Stream {self.stream.name!r} has ended", why="rows came after its end")
        if not batch.schema.equals(self.schema):
            raise DataError(
                f"Stream {self.stream.name!r}: a batch has columns {batch.schema.names} of another schema",
                why=f"the run began with {self.schema.names}",
            )
        stream = self.stream
        times = to_micros(batch.column(stream.time), stream.unit, stream=stream.name, name=stream.time,
                          first_row=first_row, where=where).tolist()  # fmt: skip
        rows = values_of(batch)
        source_at = None if stream.source_column is None else self.schema.get_field_index(stream.source_column)
        for number, (ts, values) in enumerate(zip(times, rows, strict=True)):
            at = f"{where}, row {first_row + number}" if where else f"row {first_row + number}"
            name = source if source_at is None else values[source_at]
            self._take(ts, values, name, released, at)

    def _take(self, ts: int, values: tuple[Any, ...], name: SourceName | None, released: int, at: str) -> None:
        """Take one tuple, drop it, or refuse it. Late is judged first, then the promise, then behind: a tuple that is
        late is nothing else. A late tuple does not move the source on.
        """
        stream = self.stream
        source = self._source(name, at)
        row = Row(ts, (source.rank, self._seq(source, values, at)), values)
        place = f"Stream {stream.name!r}, source {source.name!r}, {at}"
        if source.largest is not None and ts < source.largest - stream.disorder_us:
            if stream.late == "drop":
                self.late.append(row)
                return
            raise LateError(
                f"{place}: ts {ts} is late, {source.largest - ts} us behind {source.largest} before it",
                why=f"the source may run back by {stream.disorder_us} us",
                do=f"Raise disorder= to at least {source.largest - ts} us, or set late='drop'",
            )
        if ts < source.heartbeat:
            raise DataError(
                f"{place}: ts {ts} is below the source's heartbeat {source.heartbeat}",
                why="a heartbeat promises no ts below its own",
            )
        if ts < released:
            if stream.behind == "drop":
                # It is not taken, yet what follows it in its source may be late because of it.
                source.largest = ts if source.largest is None else max(source.largest, ts)
                self.behind.append(row)
                return
            raise BehindError(
                f"{place}: ts {ts} is behind the frontier {released}, up to which results are out",
                why="the source was not known to hold the frontier when it moved on",
                do="Declare the sources with sources=[...], or give up determinism with behind='drop'",
            )
        source.largest = ts if source.largest is None else max(source.largest, ts)
        self.taken += 1
        if stream.seq == "content":
            row = self._numbered(row)
        heapq.heappush(self.pending, (ts, row.key, self.taken, row))

    def _numbered(self, row: Row) -> Row:
        """Rows that content can't tell apart are told apart by their number among their like: a key is one row's.

        The first of equal rows keeps its key; the next ones get 1, 2, ... behind it. As they are equal, it does not
        matter which is which.
        """
        before = self.equals.get((row.ts, row.key), 0)
        self.equals[row.ts, row.key] = before + 1
        return dataclasses.replace(row, key=(*row.key, before)) if before else row

    def declared_source(self, name: SourceName) -> Source:
        """A source that a heartbeat or an end names."""
        declared = self.stream.declared()
        if declared is not None and name not in declared:
            raise DataError(
                f"Stream {self.stream.name!r}: source {name!r} is not declared",
                why=f"declared are {', '.join(map(repr, declared))}",
                do="Name one of these",
            )
        return self.know(name)

    def _source(self, name: SourceName | None, at: str) -> Source:
        """The source of a tuple. A stream without a source column and without named lanes has one source, 0."""
        stream = self.stream
        if name is None and stream.source_column is None:
            name = 0
        if name is None:
            raise DataError(
                f"Stream {stream.name!r}, {at}: source column {stream.source!r} is NULL",
                why="every tuple comes from a source",
            )
        declared = stream.declared()
        if name not in self.sources and declared is not None:
            raise DataError(
                f"Stream {stream.name!r}, {at}: source {name!r} is not declared",
                why=f"declared are {', '.join(map(repr, declared))}",
                do="Add it to sources=",
            )
        source = self.know(name)
        if source.ended:
            raise RunError(f"Stream {stream.name!r}: source {name!r} has ended", why=f"rows came after its end ({at})")
        return source

    def _seq(self, source: Source, values: tuple[Any, ...], at: str) -> Any:
        """A tuple's seq. `position`: 1, 2, 3 ... as rows are delivered. `content`: the row itself. A column: its value,
        which must rise; the reference does not sort what it is pushed.
        """
        source.delivered += 1
        if self.stream.seq == "position":
            return source.delivered
        if self.stream.seq == "content":
            return tuple(sort_value(v, signed_zero=True) for v in values)
        value = values[self.schema.get_field_index(self.stream.seq)]
        if value is None:
            raise DataError(
                f"Stream {self.stream.name!r}, {at}: seq column {self.stream.seq!r} is NULL",
                why="it orders a source's tuples",
            )
        seq = sort_value(value)
        if source.last_seq is not None and seq <= source.last_seq:
            raise DataError(
                f"Stream {self.stream.name!r}, source {source.name!r}, {at}: seq {value!r} is not above the last",
                why="the reference reads a source's rows in the order of seq, and each seq once",
                do="Sort the source's rows by the seq column; if values repeat, choose another column",
            )
        source.last_seq = seq
        return seq

    def largest(self) -> int:
        """The largest ts that any of its sources has delivered."""
        return max((s.largest for s in self.sources.values() if s.largest is not None), default=NEVER)

    def release(self, frontier: int) -> Iterator[Row]:
        """Every pending row below the frontier, in the order of (ts, source, seq).

        A row that is yielded is gone. Rows at the frontier wait: another source may still give one of that ts.
        """
        while self.pending and self.pending[0][0] < frontier:
            row = heapq.heappop(self.pending)[3]
            self.equals.pop((row.ts, row.key), None)  # nothing at its ts comes any more
            yield row

    def late_table(self) -> pa.Table:
        return table_of(self.late, self.schema)

    def behind_table(self) -> pa.Table:
        return table_of(self.behind, self.schema)


def sort_value(value: Any, *, signed_zero: bool = False) -> tuple[Any, ...]:
    """A value that compares with its like: numbers by size (-0.0 = 0.0), then NaN, then NULL; text by bytes.

    With `signed_zero`, for rows ordered by content, -0.0 precedes 0.0: the two can be told apart.

    A tuple whose first number is 0 for a value, 1 for NaN, 2 for NULL, so that any two of a column compare. Structs
    compare by their fields in order, lists by their items, decimals by their digits, moments as numbers.
    """
    if value is None:
        return (2,)
    if isinstance(value, float):
        if value != value:
            return (1,)
        return (0, value + 0.0, int(math.copysign(1, value))) if signed_zero else (0, value + 0.0)
    if isinstance(value, str):
        return (0, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return (0, tuple(sort_value(v, signed_zero=signed_zero) for v in value))
    if isinstance(value, decimal.Decimal):
        # All values of a column have the same number of decimals.
        return (0, int(value.scaleb(-value.as_tuple().exponent)))  # type: ignore[operator]  # Arrow's decimals are finite
    if isinstance(value, (dt.datetime, dt.date, dt.time, dt.timedelta)):
        return (0, time_number(value))
    return (0, int(value) if isinstance(value, bool) else value)


def time_number(value: Any) -> int:
    """A moment, day, hour or span inside a nested value, as a number that orders it."""
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(microseconds=1)
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, dt.datetime):
        naive = value.replace(tzinfo=None) - (value.utcoffset() or dt.timedelta())
        return (naive - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001 (both are UTC by now)
    return int(value.toordinal())


class Intake:
    """All streams of a run. `advance` moves the released frontier and hands out what became ready.

    `released` never falls: a frontier that falls back (a source that turns up late) does not take results back.
    """

    def __init__(self, streams: dict[str, Stream], schemas: dict[str, pa.Schema], max_pending: int | None) -> None:
        self.streams = {name: StreamIntake(stream, schemas[name]) for name, stream in streams.items()}
        self.released = NEVER
        self.max_pending = max_pending

    def holder(self) -> tuple[int, str, SourceName | None]:
        """The frontier, and the stream and source that hold it.

        Of several that stand equally far back, the first stream and the first source.
        """
        progress = {name: intake.progress() for name, intake in self.streams.items()}
        name = min(progress, key=lambda n: progress[n][0])
        return progress[name][0], name, progress[name][1]

    def advance(self) -> tuple[int, dict[str, list[Row]]]:
        """Gives the released frontier and, for each stream, the rows below it in order. With `max_pending`, too many rows
        that wait are an error that names who holds them: waiting for ever would be the alternative.
        """
        frontier, stream, source = self.holder()
        self.released = max(self.released, frontier)
        ready = {name: list(intake.release(self.released)) for name, intake in self.streams.items()}
        waiting = sum(len(intake.pending) for intake in self.streams.values())
        if self.max_pending is not None and waiting > self.max_pending:
            who = f"source {source!r} of stream {stream!r}" if source is not None else f"stream {stream!r}"
            raise PendingError(
                f"{waiting} tuples wait for the frontier, more than max_pending={self.max_pending}",
                why=f"{who} holds it at {'no ts yet' if frontier == NEVER else f'ts {frontier}'}",
                do="Feed or end that source, send it heartbeats, or raise max_pending",
            )
        return self.released, ready
