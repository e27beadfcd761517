"""The order of one source's tuples, before any of them meets others: by seq, in which they are pushed, or by (ts, content).

A seq column rises (`check_seq`). Where tuples may run back in time, or content orders ties, those that may still be overtaken
wait for others of their source (`in_order`); of those that are alike each has a number (`numbered`). `push` calls these, and so
does `threads.bounded`, where there is no gate. Held by tests/threads/test_content.py and tests/fuzz.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from plait import encodings, order
from plait.errors import DataError
from plait.order import AFTER_ALL
from plait.query.stream import SourceName, Stream
from plait.schema import taken
from plait.threads.input.intake import EMPTY, Inlet, StreamIntake, Waiting


class Part(NamedTuple):
    """What a batch has of one source."""

    name: SourceName
    batch: pa.RecordBatch
    ts: np.ndarray
    rows: np.ndarray | None  # their numbers in the user's batch; None: it is all of it

    def at(self, row: int) -> str:
        """A row's place in the user's batch, for messages."""
        return f"row {row if self.rows is None else int(self.rows[row])}"


class Admitted(NamedTuple):
    """Rows of one source that may enter."""

    batch: pa.RecordBatch | None  # None: there are none, and only progress is told
    ts: np.ndarray
    positions: np.ndarray  # in the source; of rows ordered by content, the number of each among its like
    ties: list[bytes]  # what orders rows of one ts, where content does


NOTHING = Admitted(None, EMPTY, EMPTY, [])


def check_seq(stream: Stream, inlet: Inlet, part: Part) -> None:
    """A seq column rises, row by row, so that the order of delivery is its order too."""
    if stream.seq_column is None or part.batch.num_rows == 0:
        return
    column = part.batch.column(part.batch.schema.get_field_index(stream.seq_column))
    if column.null_count:
        k = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise DataError(
            f"Stream {stream.name!r}, {part.at(k)}: seq column {stream.seq!r} is NULL",
            why="it orders a source's tuples",
        )
    # As stored: Python's own moments and days end long before Arrow's do.
    values = [order.key_value(value) for value in stored(column).to_pylist()]
    for k, value in enumerate(values):
        last = values[k - 1] if k else inlet.last_seq
        if last is not None and value <= last:
            raise DataError(
                f"Stream {stream.name!r}, source {inlet.name!r}, {part.at(k)}: seq "
                f"{stored(column)[k].as_py()!r} is not above the last",
                why="a source's rows are pushed in the order of seq, and each seq once",
                do="Sort the source's rows by the seq column; if values repeat, choose another column",
            )
    inlet.last_seq = values[-1]


def in_order(intake: StreamIntake, inlet: Inlet, new: Admitted, ref: np.ndarray,
             progress: int) -> tuple[pa.Table | pa.RecordBatch, np.ndarray, np.ndarray]:  # fmt: skip
    """Rows that may enter the gate now, in order, with ts and payload's place.

    An example with slack 5: rows of ts 10, 7, 12 have come, progress is 12 - 5 = 7. Those up to 7 may leave: 7.
    When 20 comes, progress is 15: 10 and 12 leave, in that order, and 20 waits.
    """
    if not intake.reorders:
        assert new.batch is not None
        return new.batch, new.ts, ref
    waiting = inlet.waiting
    came = None if new.batch is None else pa.Table.from_batches([new.batch])
    pieces = [each for each in (waiting.rows, came) if each is not None]
    rows = pa.concat_tables(pieces) if pieces else intake.entering.empty_table()
    all_ts, all_ref = np.concatenate((waiting.ts, new.ts)), np.concatenate((waiting.ref, ref))
    if intake.by_content:
        tie = (waiting.tie or []) + new.ties
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


def numbered(inlet: Inlet, ts: np.ndarray, tie: list[bytes]) -> np.ndarray:
    """Of rows ordered by content, the number of each among its like: what tells equal ones apart, in keys too."""
    numbers = np.zeros(len(tie), np.int64)
    for k, like in enumerate(zip(ts.tolist(), tie, strict=True)):
        numbers[k] = before = inlet.equals.get(like, 0)
        inlet.equals[like] = before + 1
    return numbers


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
