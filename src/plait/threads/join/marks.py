"""Punctuation marks among results, for a reader who asks to see them (`marks=True`): SplitJoin's stars (section 5, figure 9).

A mark is a row of its own in the sequence of results, at the place where it holds. Its `_plait_mark` says what it is of, and is
NULL in a result; its `ts` is its trigger's, and all other columns of it are NULL. The struct has four fields:

    stream     the trigger's stream: the flag that the paper's Combiner gives a star
    side       "left" or "right", which tells the two inputs of a stream that is joined with itself apart
    trigger    the trigger's place among the tuples of both streams in total order, from 0 on
    compared   NULL: the trigger is done. Else it was compared with the tuples of the other stream that were numbered below this,
               from 0 on, as far as its window has them

What a mark promises: all results of earlier triggers stand above it, and of its own trigger all whose partner is numbered below
`compared`, or all; results of later triggers stand below it. Which marks there are is decided by the tuples, the precision and
the number of sub-windows, and by nothing else: one after every k triggers (with `punctuate=k`; else after each), whether it has
results or not, and with comparisons counted, one after every j of each sub-window, where all of them have so many.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.query.identical import KEY
from plait.threads.join.loop import words as o

MARK = "_plait_mark"
MARK_TYPE = pa.struct(
    [("stream", pa.string()), ("side", pa.string()), ("trigger", pa.int64()), ("compared", pa.int64())]
)


def with_marks(schema: pa.Schema) -> pa.Schema:
    """The same columns and the marks', behind all but the key."""
    at = schema.names.index(KEY) if KEY in schema.names else len(schema)
    return schema.insert(at, pa.field(MARK, MARK_TYPE))


def is_mark(entries: np.ndarray) -> np.ndarray:
    """Which entries of the rings (a column each) are marks: those without any row."""
    found: np.ndarray = (entries[o.E_LEFT] == o.NO_ROW) & (entries[o.E_RIGHT] == o.NO_ROW)
    return found


def spread(
    rows: pa.RecordBatch | None, entries: np.ndarray, marks: np.ndarray, streams: list[str], schema: pa.Schema
) -> pa.RecordBatch:
    """Results with marks between them: `rows` are those of the entries that are no marks, None if all are."""
    at = pa.array(np.cumsum(~marks) - 1, mask=marks)
    side = entries[o.E_TRIGGER] & 1
    whole = entries[o.E_PARTNER] == o.WHOLE
    columns = {
        "ts": pa.array(entries[o.E_TS].copy()),  # the entries are overwritten by the next ones
        MARK: pa.StructArray.from_arrays(
            [
                pa.array(streams).take(pa.array(side)),
                pa.array(["left", "right"]).take(pa.array(side)),
                pa.array(entries[o.E_TRIGGER] >> 1),
                pa.array(entries[o.E_PARTNER] + 1, mask=whole),
            ],
            fields=list(MARK_TYPE),
            mask=pa.array(~marks),
        ),
    }
    arrays = []
    for field in schema:
        if field.name in columns:
            arrays.append(columns[field.name].cast(field.type))
        else:
            arrays.append(pa.nulls(len(marks), field.type) if rows is None else rows.column(field.name).take(at))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
