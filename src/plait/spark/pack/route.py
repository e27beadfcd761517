"""Tuples on their way to an operator's buckets: `route` is called where they are packed, once each.

Bucket b lives in cell b modulo the number of cells. A tuple goes to the cells of its buckets and says which these are; one
that names none goes nowhere, unless it may have to be shown as dropped: then one cell has it for that alone.

A `route` that raises does so again in the cells, when the tuple's turn comes: a tuple that is late is then dropped and not
refused, and the error has the tuple's place.

Where it runs: `routed_parts` in tasks that pack, and in cells that send results on to an operator; `codes_of` in the
operator's cells. `route` must depend on the tuple alone: it is called again when a task is retried. Held by
tests/spark/test_operators.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.operator.buckets import EVERY, NONE, SEVERAL, Rows, routed
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.spark import formats
from plait.spark.formats import ROUTE, ROUTE_TYPE, UNCLEAR

#: Codes besides those of `core.operator.buckets`.
AGAIN = -4


def stream_name(bound: Bound, input: int) -> str:
    """What `t.stream` says."""
    return bound.inputs[input].node.name or f"input {input}"


def routes(bound: Bound, input: int, rows: pa.Table, ts: np.ndarray) -> tuple[np.ndarray, list[list[int] | None]]:
    """Of each tuple the bucket or a code, and the buckets as they travel.

    One call of the user's function for each tuple, in Python. This is what an operator costs on the way in.
    """
    node = bound.node
    assert isinstance(node, Operator)
    schema = bound.inputs[input].schema
    views = Rows(rows.select(schema.names).cast(schema), ts, stream_name(bound, input))
    codes, named = np.empty(len(ts), np.int64), []
    for k in range(len(ts)):
        try:
            code, several = routed(node.route(views.view(k)), node.buckets)
        except Exception:
            code, several = AGAIN, None
        codes[k] = code
        travels = {EVERY: None, NONE: [], SEVERAL: list(several or ()), AGAIN: [UNCLEAR]}
        named.append([code] if code >= 0 else travels[code])
    return codes, named


def places(codes: np.ndarray, named: list[list[int] | None], cells: int) -> list[np.ndarray]:
    """For each cell, the tuples that go there.

    A tuple for several buckets of one cell goes there once.
    """
    to = np.zeros((cells, len(codes)), bool)
    one = np.flatnonzero(codes >= 0)
    to[codes[one] % cells, one] = True
    to[:, (codes == EVERY) | (codes == AGAIN)] = True
    for k in np.flatnonzero(codes == SEVERAL).tolist():
        to[[bucket % cells for bucket in named[k] or ()], k] = True
    return [np.flatnonzero(row) for row in to]


def routed_parts(bound: Bound, input: int, table: pa.Table, ts: np.ndarray, hashes: np.ndarray, cells: int, *,
                 whole: bool) -> list[pa.Table]:  # fmt: skip
    """`table` parted among an operator's cells. `whole`: each tuple is in one cell at least, and one owns it.

    The buckets travel along in the column ROUTE, so a cell need not call `route` again.
    """
    codes, named = routes(bound, input, table, ts)
    table = table.append_column(ROUTE, pa.array(named, ROUTE_TYPE))
    to = places(codes, named, cells)
    if not whole:
        return [table.take(pa.array(at)).combine_chunks() for at in to]
    owner = (hashes % np.uint64(cells)).astype(np.int64)
    parts = []
    for cell, at in enumerate(to):
        at = np.union1d(at, np.flatnonzero(owner == cell))
        part = table.take(pa.array(at)).append_column(formats.OWN, pa.array(owner[at] == cell))
        parts.append(part.combine_chunks())
    return parts


def codes_of(column: Any) -> tuple[np.ndarray, list[list[int] | None]]:
    """The codes again, from what has travelled."""
    if len(column) == 0:
        return np.zeros(0, np.int64), []
    sizes = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    named = column.to_pylist()
    codes = np.where(sizes < 0, EVERY, np.where(sizes == 0, NONE, SEVERAL)).astype(np.int64)
    for k in np.flatnonzero(sizes == 1).tolist():
        codes[k] = AGAIN if named[k][0] == UNCLEAR else named[k][0]
    return codes, named
