"""The sources of a bounded run: what comes is judged as a push is, waits for the frontier, and is released in total order.

It stands where a `Run` stands for who pulls the feeds (`threads.feeds.pulled`), so lanes are pulled in the same order, and the
first row that is refused is the same one, told in the same words. Behind it there is no gate: tuples wait in the batches that
they came in, and all that lie below the frontier are released at once, as a slab.

Invariant: a slab holds every tuple below the frontier that was not in one before, in the order (ts, source, seq) of its stream.
So slabs one after another are the stream. Held by tests/threads/bounded/test_intake.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.sources import Holding, frontier, stuck, told
from plait.encodings import plain_batch, plain_schema
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import Bound
from plait.query.stream import SourceName
from plait.schema import taken
from plait.threads.ground import inputs_of
from plait.threads.input.inlets import check_kind
from plait.threads.input.intake import Inlet, StreamIntake
from plait.threads.input.payload import EXTRA
from plait.threads.input.push import batches_of, judged, parts_of
from plait.threads.input.sequence import NOTHING, Part, in_order

#: Text of one column in one piece may have so many bytes; beyond it columns get wider offsets.
_NARROW = 1 << 30


@dataclass(frozen=True)
class Rows:
    """Tuples of one stream in total order: their columns, and their times as int64. With keys those of `EXTRA` come last."""

    table: pa.Table
    ts: np.ndarray

    def __len__(self) -> int:
        return len(self.ts)

    def at(self, places: np.ndarray) -> Rows:
        # Of columns in pieces Arrow would copy all, for nothing.
        table = taken(self.table, places) if len(places) else self.table.schema.empty_table()
        return Rows(table, self.ts[places])

    def since(self, place: int) -> Rows:
        """Those from a place on, in memory of their own: what was before them can go."""
        return self.at(np.arange(place, len(self)))


def joined(parts: list[Rows]) -> Rows:
    """Rows one after another, each column in one piece."""
    found = one_after_another(parts)
    return Rows(in_pieces_of_one(found.table), found.ts)


def one_after_another(parts: list[Rows]) -> Rows:
    """The same with columns in the pieces in which they are. Text is under codes in all of them, or in none."""
    parts = [part for part in parts if len(part)] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    tables = [part.table for part in parts]
    if any(table.schema.types != tables[0].schema.types for table in tables):
        tables = [
            pa.Table.from_batches(map(plain_batch, table.to_batches()), plain_schema(table.schema)) for table in tables
        ]
    return Rows(pa.concat_tables(tables), np.concatenate([part.ts for part in parts]))


def in_pieces_of_one(table: pa.Table) -> pa.Table:
    """Columns without chunks. Text that would be too long for its offsets gets wider ones: results are made in the right type."""
    if all(column.num_chunks == 1 for column in table.columns):
        return table
    if table.nbytes > _NARROW:
        table = table.cast(pa.schema([field.with_type(_wide(field.type)) for field in table.schema]))
    return table.combine_chunks()


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else kind


class _Lined:
    """Of one source what may be released, in order, in the pieces in which it came: batch, ts, positions."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[Any, np.ndarray, np.ndarray]] = deque()
        self.rows = 0

    def add(self, rows: pa.RecordBatch | pa.Table, ts: np.ndarray, positions: np.ndarray) -> None:
        if len(ts):
            self.pieces.append((rows, ts, positions))
            self.rows += len(ts)

    def below(self, ts: int) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        """Take those that lie below; of a piece that does so in part, the part."""
        while self.pieces and self.pieces[0][1][0] < ts:
            rows, times, positions = self.pieces.popleft()
            cut = len(times) if times[-1] < ts else int(np.searchsorted(times, ts, "left"))
            if cut < len(times):
                self.pieces.appendleft((rows.slice(cut), times[cut:], positions[cut:]))
                rows, times, positions = rows.slice(0, cut), times[:cut], positions[:cut]
            self.rows -= cut
            yield rows, times, positions

    def unready(self, ts: int) -> int:
        """How many do not lie below."""
        return sum(int(len(times) - np.searchsorted(times, ts, "left")) for _, times, _ in reversed(self.pieces))


class Intake:
    """All sources of one query. One thread calls it; its calls have the names and meanings of `Run`'s.

    Attributes:
        intakes: By stream, its sources.
        held: How many rows are here and were not released.
        held_bytes: How many bytes came since the last release.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], *, keys: bool, pending: int) -> None:
        given = {str(each.node.name): each for each in bound.inputs}
        self.intakes = {
            name: StreamIntake(
                stream, given[name].made if given[name].steps else schemas[name], positions=keys, steps=given[name].steps
            )
            for name, stream in inputs_of(bound).items()
        }  # fmt: skip
        self.keys, self._pending = keys, pending
        self._lined: dict[Inlet, _Lined] = {}
        # Who may hold the frontier, in the order in which they would come to a gate: of two at one ts the first one does.
        self._owners: list[tuple[StreamIntake, Inlet | None]] = []
        for intake in self.intakes.values():
            self._owners += [(intake, inlet) for inlet in intake.inlets.values()] or [(intake, None)]
        self.held = self.held_bytes = 0

    # --- who there is, and how far ---

    def heartbeat(self, stream: str, source: SourceName, ts: int) -> None:
        """A source is known from now on. `ts` promises nothing: all that bounded runs say is BEFORE_ALL."""
        assert ts == BEFORE_ALL
        intake = self.intakes[stream]
        self._inlet(intake, intake.named(source))

    def _inlet(self, intake: StreamIntake, name: SourceName) -> Inlet:
        found = intake.inlets.get(name)
        if found is None:
            check_kind(intake, name)
            found = intake.made(name)
            intake.add(found)
            self._owners.append((intake, found))
        return found

    def holder(self) -> tuple[str | None, SourceName | None]:
        """The stream and the source that hold the frontier; None and None at the end of all."""
        _, found = frontier(self._holding(), AFTER_ALL)
        return (None, None) if found is None else found.who

    @property
    def frontier(self) -> int:
        return frontier(self._holding(), AFTER_ALL)[0]

    def _holding(self) -> Iterator[Holding[tuple[str, SourceName | None]]]:
        for intake, inlet in self._owners:
            name = intake.stream.name
            if inlet is None:
                if not intake.ended and not intake.inlets:
                    yield Holding(BEFORE_ALL, (name, None))
            elif not inlet.ended:
                yield Holding(inlet.progress(intake.stream), (name, inlet.name))

    # --- rows and ends ---

    def push(self, stream: str, source: SourceName | None, batch: pa.RecordBatch) -> None:
        """The next rows of a lane."""
        intake = self.intakes[stream]
        coded = any(pa.types.is_dictionary(kind) for kind in batch.schema.types)  # as was asked for: see `run.coded`
        for each in [batch] if coded else batches_of(intake.stream, intake.schema, batch)[1]:
            parts = parts_of(intake, source, each)
            for part in parts:
                self._inlet(intake, part.name)
            for part in parts:
                self._push(intake, part)
            self.held_bytes += each.nbytes

    def _push(self, intake: StreamIntake, part: Part) -> None:
        inlet = intake.inlets[part.name]
        admitted = judged(intake, inlet, part, BEFORE_ALL)  # every source holds the frontier, so none is behind it
        lined = self._lined.setdefault(inlet, _Lined())
        if intake.reorders or len(admitted.ts):
            came = admitted if len(admitted.ts) else NOTHING
            places = came.positions if self.keys else np.zeros(len(came.ts), np.int64)
            lined.add(*in_order(intake, inlet, came, places, inlet.progress(intake.stream)))
        self.held += len(admitted.ts)
        if lined.rows > self._pending:
            self._check_pending(intake, inlet, lined)

    def _check_pending(self, intake: StreamIntake, inlet: Inlet, lined: _Lined) -> None:
        """No more than `pending` tuples of a source wait for others, as at a gate."""
        at, holder = frontier(self._holding(), AFTER_ALL)
        if lined.unready(at) > self._pending:
            who = "nobody" if holder is None else told(*holder.who)
            raise stuck(f"{told(intake.stream.name, inlet.name)} has {self._pending} tuples", who, at)

    def close(self, stream: str, source: SourceName | None = None) -> None:
        """End one source, or with None all of the stream's."""
        intake = self.intakes[stream]
        if source is None:
            intake.ended = True
            ending = list(intake.inlets.values())
        else:
            ending = [self._inlet(intake, intake.named(source))]
        for inlet in ending:
            if not inlet.ended:
                inlet.ended = True
                if intake.reorders:
                    none = np.zeros(0, np.int64)
                    self._lined.setdefault(inlet, _Lined()).add(*in_order(intake, inlet, NOTHING, none, AFTER_ALL))

    # --- what is ready ---

    def released(self) -> tuple[dict[str, Rows], int]:
        """By stream what lies below the frontier and was not released before; and the frontier."""
        below = self.frontier
        found = {name: self._of_stream(intake, below) for name, intake in self.intakes.items()}
        self.held -= sum(map(len, found.values()))
        self.held_bytes = 0
        return found, below

    def _of_stream(self, intake: StreamIntake, below: int) -> Rows:
        """Sources one after another by rank, then by ts: a sort that leaves equal ones as they are makes the order whole."""
        tables: list[pa.Table] = []
        times: list[np.ndarray] = []
        came = 0
        for inlet in sorted(intake.inlets.values(), key=lambda each: each.rank):
            before = len(times)
            lined = self._lined.get(inlet)
            for rows, ts, positions in lined.below(below) if lined is not None else ():
                tables.append(self._with_extra(inlet, rows, ts, positions))
                times.append(ts)
            came += len(times) > before
        if not tables:
            return self.nothing(intake.stream.name)
        found = one_after_another([Rows(table, ts) for table, ts in zip(tables, times, strict=True)])
        return joined([found]).at(np.argsort(found.ts, kind="stable")) if came > 1 else found

    def nothing(self, stream: str) -> Rows:
        """No rows of a stream."""
        return Rows(self._schema(self.intakes[stream]).empty_table(), np.zeros(0, np.int64))

    def _schema(self, intake: StreamIntake) -> pa.Schema:
        return pa.schema([*intake.entering, *EXTRA]) if self.keys else intake.entering

    def _with_extra(self, inlet: Inlet, rows: Any, ts: np.ndarray, positions: np.ndarray) -> pa.Table:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        if self.keys:
            own = pa.repeat(pa.scalar(inlet.number, pa.int32()), len(ts))
            for field, column in zip(EXTRA, (pa.array(ts), own, pa.array(positions)), strict=True):
                table = table.append_column(field, column)
        return table
