"""A stream's sources and what is found out before a tuple may enter: its source, its seq, whether it is late or behind; and
the order inside a source.

What late and behind are is `core/sources.py`'s to say. A source's tuples leave here in the order of (ts, seq): at once if it
may not run back; else, or where content orders ties, once no tuple can come that would go before them.
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
from plait.core.sources import Offence, come_to, has_ended, judge_next, not_declared, refusal, slack_us
from plait.errors import DataError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.stream import SourceName, Stream
from plait.schema import taken

EMPTY = np.empty(0, np.int64)
NO_TIES: list[bytes] = []

#: `source` of a stream that is another operator's output: one source, ordered by push (`dag`).
QUERY: Final = "@query"


@dataclass
class Waiting:
    """Rows that wait for others of their source, in the order of their coming: ts, what orders ties, where the payload is."""

    ts: np.ndarray = field(default_factory=lambda: EMPTY)
    ref: np.ndarray = field(default_factory=lambda: EMPTY)
    tie: list[bytes] | None = None  # by content
    rows: pa.Table | None = None


@dataclass
class Inlet:
    """The way in of one source. `slots` are its places at the gate: one for each input of the join that reads the stream."""

    name: SourceName
    rank: Any
    number: int  # among the stream's sources, in order of first sight
    slots: dict[int, int] = field(default_factory=dict)
    #: Held by who pushes: a second thread is an error.
    lock: threading.Lock = field(default_factory=threading.Lock)
    #: Held by who moves it on: a push, or the clock, shortly.
    turn: threading.Lock = field(default_factory=threading.Lock)
    largest: int = BEFORE_ALL  # ts delivered
    heartbeat: int = BEFORE_ALL
    ended: bool = False
    delivered: int = 0  # tuples, those that were dropped among them
    last_seq: Any = None
    added: int = 0  # tuples handed to the gate
    waiting: Waiting = field(default_factory=Waiting)
    #: By content: rows that wait, by ts and what they hold.
    equals: dict[tuple[int, bytes], int] = field(default_factory=dict)
    spoke_ns: int = field(default_factory=time.monotonic_ns)  # when it last did
    let_go: int = BEFORE_ALL  # promised for it while it was silent (`idle`)

    def progress(self, stream: Stream) -> int:
        """How far it has come, or is promised for."""
        return max(come_to(stream, self.largest, self.heartbeat), self.let_go)


class StreamIntake:
    """One stream. Calls for different sources may come from different threads.

    Invariant: a source is in `inlets` once it is whole, that is, let in at the gate; and `inlets` is never changed but
    replaced, so that whoever goes through it, in any thread, sees it as it was at one moment.
    """

    def __init__(self, stream: Stream, schema: pa.Schema, *, positions: bool = True) -> None:
        """`positions`: whether anybody wants to know where a row stood in its source."""
        self.stream, self.schema, self.positions = stream, schema, positions
        self.inlets: dict[SourceName, Inlet] = {}
        self.ended = False
        self.late: list[pa.RecordBatch] = []
        self.behind: list[pa.RecordBatch] = []
        self.taken = 0
        declared = stream.declared()
        for position, name in enumerate(declared or ()):
            self.add(self.made(name, position))

    def made(self, name: SourceName, position: int | None = None) -> Inlet:
        """For a source that is not known yet."""
        rank: Any = name.encode() if isinstance(name, str) else name
        if position is not None and self.stream.source is None:
            rank = position
        return Inlet(name, rank, len(self.inlets))

    def add(self, inlet: Inlet) -> None:
        """From here on the source is known; one thread at a time (`inlets.Inlets`)."""
        self.inlets = {**self.inlets, inlet.name: inlet}

    @property
    def by_content(self) -> bool:
        return self.stream.seq == "content"

    @property
    def reorders(self) -> bool:
        """Whether tuples may have to wait here for others of their source."""
        return slack_us(self.stream) > 0 or self.by_content

    # --- which source ---

    def named(self, name: SourceName | None, at: str = "") -> SourceName:
        """A name that may push: the declared one, 0 for a stream that has but one. `at`: the row that has it, in words."""
        stream = self.stream
        if name is None:
            name = 0
        if isinstance(name, bool) or not isinstance(name, (int, str)):
            raise DataError(
                f"Stream {stream.name!r}{f', {at}' if at else ''}: {name!r} can't name a source",
                why="names are integers or text",
            )
        declared = stream.declared()
        if declared is not None and name not in declared:
            raise not_declared(stream, name, declared, at)
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

    def admit(self, inlet: Inlet, batch: pa.RecordBatch, ts: np.ndarray, rows: np.ndarray | None,
              released: int) -> tuple[pa.RecordBatch, np.ndarray, np.ndarray]:  # fmt: skip
        """The next rows of one source: those that are neither late nor behind, with their ts and positions.

        `rows` are their numbers in the user's batch, for messages (None: all of it). The source is locked. Rows that are
        dropped are kept aside.
        """
        stream, n = self.stream, len(ts)
        if inlet.ended or self.ended:
            raise has_ended(stream, inlet.name, at=_row(rows, 0) if n else "")
        self._check_seq(inlet, batch, rows)
        largest, found = judge_next(stream, ts, inlet.largest, inlet.heartbeat, released)
        if found is not None and found.offence is not None:
            raise self.refusal(inlet.name, found.offence, rows, idle=inlet.let_go > BEFORE_ALL)
        positions = np.arange(inlet.delivered + 1, inlet.delivered + n + 1) if self.positions else EMPTY
        inlet.largest, inlet.delivered, inlet.spoke_ns = largest, inlet.delivered + n, time.monotonic_ns()
        if found is None:
            return batch, ts, positions
        for kept, dropped in ((self.late, found.late), (self.behind, found.behind)):
            if dropped.any():
                kept.append(taken(batch, np.flatnonzero(dropped)))
        stay = np.flatnonzero(~(found.late | found.behind))
        return taken(batch, stay), ts[stay], positions[stay] if self.positions else EMPTY

    def refusal(self, name: SourceName, offence: Offence, rows: np.ndarray | None, *, idle: bool) -> DataError:
        """The error for a row that may not enter."""
        return refusal(self.stream, name, _row(rows, offence.row), offence, idle=idle)

    def _check_seq(self, inlet: Inlet, batch: pa.RecordBatch, rows: np.ndarray | None) -> None:
        """A seq column rises, row by row, so that the order of delivery is its order too."""
        if self.stream.seq_column is None or batch.num_rows == 0:
            return
        column = batch.column(batch.schema.get_field_index(self.stream.seq_column))
        if column.null_count:
            k = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise DataError(
                f"Stream {self.stream.name!r}, {_row(rows, k)}: seq column {self.stream.seq!r} is NULL",
                why="it orders a source's tuples",
            )
        # As stored: Python's own moments and days end long before Arrow's do.
        values = [order.key_value(value) for value in stored(column).to_pylist()]
        for k, value in enumerate(values):
            last = values[k - 1] if k else inlet.last_seq
            if last is not None and value <= last:
                raise DataError(
                    f"Stream {self.stream.name!r}, source {inlet.name!r}, {_row(rows, k)}: seq "
                    f"{stored(column)[k].as_py()!r} is not above the last",
                    why="a source's rows are pushed in the order of seq, and each seq once",
                    do="Sort the source's rows by the seq column; if values repeat, choose another column",
                )
        inlet.last_seq = values[-1]

    # --- in which order ---

    def numbered(self, inlet: Inlet, ts: np.ndarray, tie: list[bytes]) -> np.ndarray:
        """Of rows ordered by content, the number of each among its like: what tells equal ones apart, in keys too."""
        numbers = np.zeros(len(tie), np.int64)
        for k, like in enumerate(zip(ts.tolist(), tie, strict=True)):
            numbers[k] = before = inlet.equals.get(like, 0)
            inlet.equals[like] = before + 1
        return numbers

    def release(self, inlet: Inlet, new: pa.RecordBatch | None, ts: np.ndarray, ref: np.ndarray, progress: int,
                ties: list[bytes] = NO_TIES) -> tuple[pa.Table | pa.RecordBatch, np.ndarray, np.ndarray]:  # fmt: skip
        """Rows that may enter the gate now, in order, with ts and payload's place. `ties`: the new ones' content.

        An example with slack 5: rows of ts 10, 7, 12 have come, progress is 12 - 5 = 7. Those up to 7 may leave: 7.
        When 20 comes, progress is 15: 10 and 12 leave, in that order, and 20 waits.
        """
        if not self.reorders:
            assert new is not None
            return new, ts, ref
        waiting = inlet.waiting
        tables = [t for t in (waiting.rows, None if new is None else pa.Table.from_batches([new])) if t is not None]
        rows = pa.concat_tables(tables) if tables else self.schema.empty_table()
        all_ts, all_ref = np.concatenate((waiting.ts, ts)), np.concatenate((waiting.ref, ref))
        if self.by_content:
            tie = (waiting.tie or []) + ties
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
            inlet.equals.pop((int(all_ts[k]), tie[k]), None)  # nothing at its ts comes any more
        inlet.waiting = Waiting(all_ts[rest], all_ref[rest], [tie[k] for k in rest] if tie else None, taken(rows, rest))
        return taken(rows, out), all_ts[out], all_ref[out]


def _row(rows: np.ndarray | None, k: int) -> str:
    """A row's place in the user's batch."""
    return f"row {k if rows is None else int(rows[k])}"


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
