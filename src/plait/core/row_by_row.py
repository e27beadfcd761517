"""`where` and `select` over batches: the steps of `Bound.steps`, one after the other.

A batch's rows are filtered before anything is computed of them that a later step asks for, so what a row would have become that
was left out is of no consequence. Nothing is kept from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from plait.core.condition.one_row import holds, values
from plait.encodings import as_array
from plait.query.bind import Bound, passed_on
from plait.query.row_by_row import BoundStep, Kept, Union
from plait.query.stream import Stream

PLAIT_TS = "_plait_ts"


class Through(Union):
    """A stream's rows in order, with all their columns and their own keys: a union of one that nobody wrote.

    It stands where rows can't be changed before an operator takes them in: a floor says when. Its rows have their ts in front.
    """


def through(stream: Bound) -> Bound:
    """A stream as an operator."""
    assert isinstance(stream.node, Stream)
    schema = pa.schema([pa.field(PLAIT_TS, pa.int64()), *stream.made])
    return Bound(Through(name=stream.node.name, nodes=(stream.node,)), (stream.bare,), schema, stream.time_kind)


def union_columns(input: Bound, node: Union) -> list[int]:
    """Of an input's rows, the columns that a union's have after their ts."""
    return list(range(len(input.schema))) if isinstance(node, Through) else passed_on(input)


def changed(steps: Sequence[BoundStep], rows: pa.Table, ts: np.ndarray) -> tuple[pa.Table, np.ndarray | None]:
    """Rows after these steps, and which of those that came these are; None: all of them.

    `rows` have the columns that the steps read, at least; `ts` is each one's time. Columns that no step names stay as they are,
    in front, until a step says which columns there are.
    """
    kept: np.ndarray | None = None
    for step in steps:
        if isinstance(step, Kept):
            true = holds(step.condition, rows, ts)
            if true.all():
                continue
            at = np.flatnonzero(true)
            rows, ts = rows.take(pa.array(at)), ts[at]
            kept = at if kept is None else kept[at]
        else:
            columns = [
                rows.column(given) if isinstance(given, str) else values(given.value, rows, ts, field)
                for field, given in step.columns
            ]
            arrays = [as_array(column, field.type) for column, (field, _) in zip(columns, step.columns, strict=True)]
            rows = pa.Table.from_arrays(arrays, schema=step.schema)
    return rows, kept
