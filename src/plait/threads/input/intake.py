"""A stream's sources and what is judged before a tuple may enter: source, seq, late, behind; and the order inside a
source.

The definitions are `design.md`'s, section 1, and `plait.order`'s. A source's tuples leave here in the order of (ts,
seq): at once if it may not run back; else, or where content orders ties, once no tuple can come that would go before
them.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import encodings, order
from plait.core.kernels.runs import out_of_order
from plait.errors import BehindError, DataError, LateError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName, Stream
from plait.schema import taken

EMPTY = np.empty(0, np.int64)
NO_TIES: list[bytes] = []

#: `source` of a stream that is another operator's output: one source, ordered by push (`dag`).
QUERY: Final = "@query"


@dataclass
class Held:
    """Rows that wait in front of the gate, in the order of their coming: ts, what orders ties, where the payload is."""

    ts: np.ndarray = field(default_factory=lambda: EMPTY)
    ref: np.ndarray = field(default_factory=lambda: EMPTY)
    tie: list[bytes] | None = None  # by content
    rows: pa.Table | None = None


@dataclass
class Source:
    """One physical stream. `slots` are its places at the gate: one for each input of the join that reads the stream."""

    name: SourceName
    rank: Any
    number: int  # among the stream's sources, in order of first sight
    slots: dict[int, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)  # held by who pushes: a second thread is an error
    turn: threading.Lock = field(
        default_factory=threading.Lock
    )  # held by who moves it on: a push, or the clock, shortly
    largest: int = BEFORE_ALL
    heartbeat: int = BEFORE_ALL
    ended: bool = False
    delivered: int = 0
    last_seq: Any = None
    added: int = 0  # tuples handed to the gate
    held: Held = field(default_factory=Held)
    equals: dict[tuple[int, bytes], int] = field(
        default_factory=dict
    )  # by content: rows that wait, by ts and what they hold
    spoke_ns: int = field(default_factory=time.monotonic_ns)  # when it last did
    let_go: int = BEFORE_ALL  # promised for it while it was silent (`idle`)

    def progress(self, disorder_us: int) -> int:
        promised = max(self.heartbeat, self.let_go)
        return promised if self.largest == BEFORE_ALL else max(self.largest - disorder_us, promised)


class Intake:
    """One stream. Calls for different sources may come from different threads.

    Invariant: a source is in `sources` once it is whole, that is, let in at the gate; and `sources` is never changed but
    replaced, so that whoever goes through it, in any thread, sees it as it was at one moment.
    """

    def __init__(self, stream: Stream, schema: pa.Schema, *, positions: bool = True) -> None:
        """`positions`: whether anybody wants to know where a row stood in its source."""
        self.stream, self.schema, self.positions = stream, schema, positions
        self.sources: dict[SourceName, Source] = {}
        self.ended = False
        self.late: list[pa.RecordBatch] = []
        self.behind: list[pa.RecordBatch] = []
        self.taken = 0
        declared = stream.declared()
        for position, name in enumerate(declared or ()):
            self.add(self.made(name, position))

    def made(self, name: SourceName, position: int | None = None) -> Source:
        """A source that is not known yet."""
        rank: Any = name.encode() if isinstance(name, str) else name
        if position is not None and self.stream.source is None:
            rank = position
        return Source(name, rank, len(self.sources))

    def add(self, source: Source) -> None:
        """From here on it is known; one thread at a time (`sources.Sources`)."""
        self.sources = {**self.sources, source.name: source}

    @property
    def by_content(self) -> bool:
        return self.stream.seq == "content"

    @property
    def holds(self) -> bool:
        """Whether tuples may have to wait here for others of their source."""
        return self.stream.disorder_us > 0 or self.by_content

    # --- which source ---

    def named(self, name: SourceName | None, at: str) -> SourceName:
        """A name that may push: the declared one, 0 for a stream that has but one."""
        stream = self.stream
        if name is None:
            name = 0
        if isinstance(name, bool) or not isinstance(name, (int, str)):
            raise DataError(
                f"Stream {stream.name!r}{at}: {name!r} can't name a source", why="names are integers or text"
            )
        declared = stream.declared()
        if declared is not None and name not in declared:
            raise DataError(
                f"Stream {stream.name!r}{at}: source {name!r} is not declared",
                why=f"declared are {', '.join(map(repr, declared))}",
                do="Add it to sources=, or name one of these",
            )
        return name

    def split(self, batch: pa.RecordBatch) -> list[tuple[SourceName, np.ndarray]]:
        """For each source that a column names, the rows that are its own, in their order."""
        column = batch.column(batch.schema.get_field_index(self.stream.source_column or ""))
        if column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise DataError(
                f"Stream {self.stream.name!r}, row {row}: source column {self.stream.source!r} is NULL",
                why="every tuple comes from a source",
            )
        encoded = pc.dictionary_encode(column)  # plain, as all columns are here (`encodings`): a name stands there once
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        return [
            (name, np.flatnonzero(codes == code))
            for code, name in enumerate(encoded.dictionary.to_pylist())
            if (codes == code).any()
        ]

    # --- what may enter ---

    def judge(self, source: Source, batch: pa.RecordBatch, ts: np.ndarray, rows: np.ndarray | None, released: int, *,
              keep: bool = True) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:  # fmt: skip
        """Rows of one source, in their order: those that are neither late nor behind, with their ts and positions.

        `rows` are their numbers in the user's batch, for messages (None: all of it). The source is locked. With `keep` rows
        that are dropped are kept aside: each once, so not by who only asks whether they will be refused.
        """
        stream, n = self.stream, len(ts)
        at = (lambda k: f"row {k if rows is None else int(rows[k])}") if n else str
        if source.ended or self.ended:
            raise RunError(
                f"Stream {stream.name!r}: source {source.name!r} has ended",
                why=f"rows came after its end ({at(0)})" if n else "rows came after its end",
            )
        positions = np.arange(source.delivered + 1, source.delivered + n + 1) if self.positions else EMPTY
        self._check_seq(source, batch, at)
        if n and not out_of_order(ts, max(source.largest, source.heartbeat, released)):
            # Neither late nor behind, nor below a promise: what is usual, in one pass.
            source.delivered, source.spoke_ns = source.delivered + n, time.monotonic_ns()
            source.largest = int(ts[-1])
            return batch, ts, positions
        before = np.maximum.accumulate(np.concatenate((np.array([source.largest], np.int64), ts)))[:-1]
        bound = np.where(before == BEFORE_ALL, BEFORE_ALL, before - stream.disorder_us)
        late = ts < bound
        if late.any() and stream.late == "error":
            self._refuse_late(source, ts, before, int(np.flatnonzero(late)[0]), at)
        broken = (ts < source.heartbeat) & ~late
        if broken.any():
            k = int(np.flatnonzero(broken)[0])
            raise DataError(
                f"Stream {stream.name!r}, source {source.name!r}, {at(k)}: ts {int(ts[k])} is below the source's heartbeat "
                f"{source.heartbeat}",
                why="a heartbeat promises no ts below its own",
            )
        behind = (ts < released) & ~late
        if behind.any() and stream.behind == "error":
            k = int(np.flatnonzero(behind)[0])
            self._refuse_behind(source, int(ts[k]), released, at(k))
        source.delivered, source.spoke_ns = source.delivered + n, time.monotonic_ns()
        if n:
            source.largest = max(source.largest, int(ts[~late].max(initial=BEFORE_ALL)))
        gone = late | behind
        if not gone.any():
            return batch, ts, positions
        for kept, dropped in ((self.late, late), (self.behind, behind)):
            if keep and dropped.any():
                kept.append(taken(batch, np.flatnonzero(dropped)))
        stay = np.flatnonzero(~gone)
        return taken(batch, stay), ts[stay], positions[stay] if self.positions else EMPTY

    def _refuse_late(self, source: Source, ts: np.ndarray, before: np.ndarray, k: int, at: Any) -> None:
        back = int(before[k]) - int(ts[k])
        raise LateError(
            f"Stream {self.stream.name!r}, source {source.name!r}, {at(k)}: ts {int(ts[k])} is late, {back} us behind "
            f"{int(before[k])} before it",
            why=f"the source may run back by {self.stream.disorder_us} us",
            do=f"Raise disorder= to at least {back} us, or set late='drop'",
        )

    def _refuse_behind(self, source: Source, ts: int, released: int, at: str) -> None:
        silent = source.let_go > BEFORE_ALL
        raise BehindError(
            f"Stream {self.stream.name!r}, source {source.name!r}, {at}: ts {ts} is behind the frontier {released}, up to which "
            "results are out",
            why="the source had been silent for longer than idle_after= when it moved on"
            if silent
            else "the source was not known to hold the frontier when it moved on",
            do="Raise idle_after=, send heartbeats, or lose such tuples with behind='drop'"
            if silent
            else "Declare the sources with sources=[...], or give up determinism with behind='drop'",
        )

    def _check_seq(self, source: Source, batch: pa.RecordBatch, at: Any) -> None:
        """A seq column rises, row by row, so that the order of delivery is its order too."""
        if self.stream.seq_column is None or batch.num_rows == 0:
            return
        column = batch.column(batch.schema.get_field_index(self.stream.seq_column))
        if column.null_count:
            k = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise DataError(
                f"Stream {self.stream.name!r}, {at(k)}: seq column {self.stream.seq!r} is NULL",
                why="it orders a source's tuples",
            )
        # As stored: Python's own moments and days end long before Arrow's do.
        values = [order.key_value(value) for value in stored(column).to_pylist()]
        for k, value in enumerate(values):
            last = values[k - 1] if k else source.last_seq
            if last is not None and value <= last:
                raise DataError(
                    f"Stream {self.stream.name!r}, source {source.name!r}, {at(k)}: seq {stored(column)[k].as_py()!r} is not "
                    "above the last",
                    why="a source's rows are pushed in the order of seq, and each seq once",
                    do="Sort the source's rows by the seq column; if values repeat, choose another column",
                )
        source.last_seq = values[-1]

    # --- in which order ---

    def numbered(self, source: Source, ts: np.ndarray, tie: list[bytes]) -> np.ndarray:
        """Of rows ordered by content, the number of each among its like: what tells equal ones apart, in keys too."""
        numbers = np.zeros(len(tie), np.int64)
        for k, like in enumerate(zip(ts.tolist(), tie, strict=True)):
            numbers[k] = before = source.equals.get(like, 0)
            source.equals[like] = before + 1
        return numbers

    def release(self, source: Source, new: pa.RecordBatch | None, ts: np.ndarray, ref: np.ndarray, progress: int,
                ties: list[bytes] = NO_TIES) -> tuple[pa.Table | pa.RecordBatch, np.ndarray, np.ndarray]:  # fmt: skip
        """Rows that may enter the gate now, in order, with ts and payload's place. `ties`: the new ones' content."""
        if not self.holds:
            assert new is not None
            return new, ts, ref
        held = source.held
        tables = [t for t in (held.rows, None if new is None else pa.Table.from_batches([new])) if t is not None]
        rows = pa.concat_tables(tables) if tables else self.schema.empty_table()
        all_ts, all_ref = np.concatenate((held.ts, ts)), np.concatenate((held.ref, ref))
        if self.by_content:
            tie = (held.tie or []) + ties
            ranked = sorted(range(len(tie)), key=lambda k: (all_ts[k], tie[k]))
            by = np.array(ranked, np.int64)
            # A tuple with the very ts of the progress may still come, and go before one that is here.
            cut = int(np.searchsorted(all_ts[by], progress, "left" if progress < AFTER_ALL else "right"))
        else:
            tie = []
            by = np.argsort(all_ts, kind="stable")
            cut = int(np.searchsorted(all_ts[by], progress, "right"))
        out, rest = by[:cut], np.sort(by[cut:])
        for k in out if tie else ():
            source.equals.pop((int(all_ts[k]), tie[k]), None)  # nothing at its ts comes any more
        source.held = Held(all_ts[rest], all_ref[rest], [tie[k] for k in rest] if tie else None, taken(rows, rest))
        return taken(rows, out), all_ts[out], all_ref[out]


def content_keys(rows: pa.RecordBatch | pa.Table) -> list[bytes]:
    """What orders rows by content: the encoded key of all their values."""
    columns = [stored(column).to_pylist() for column in rows.columns]
    return [
        order.encode(tuple(order.key_value(v, signed_zero=True) for v in row)) for row in zip(*columns, strict=True)
    ]


def stored(column: Any) -> Any:
    """Moments, days and spans as the integers Arrow stores; dictionaries as their values."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return encodings.stored(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
