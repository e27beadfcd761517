"""Tuples as cells hold them: Arrow tables in total order, with each one's ts and key.

A table has the columns of the stream (for aggregates those that are read), then TS, then KEY, for "see_all" also HASH.
Partial panes have TS and no KEY. Everything that cells do relies on the order: release is a search by time, and results
come out sorted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.core import rows as core_rows
from plait.encodings import as_array
from plait.spark import formats

#: Dead rows that are not worth a rewrite.
SLACK = 256


def crowded(held: int, alive: int) -> bool:
    """Whether so many of the rows held are dead that writing the others anew is worth it."""
    return core_rows.crowded(held, alive, few=SLACK)


def rows_schema(schema: pa.Schema, *, hashes: bool = False) -> pa.Schema:
    """Columns of tuples as cells keep them."""
    extra = [pa.field(formats.TS, pa.int64()), pa.field(formats.KEY, pa.binary())]
    return pa.schema([*schema, *extra, *([pa.field(formats.HASH, pa.uint64())] if hashes else [])])


def numbered(ready: pa.Table) -> pa.Table:
    """Tuples in order, of which some may have one key: equal rows, ordered by content. Each but the first has its number
    among them in its key, so that a key is one tuple's.

    This is done when they are released, not when they come. Equal rows may come in different batches, and what they are
    numbered by must not depend on that; those of one ts are all released together.
    """
    if formats.KEY not in ready.column_names or ready.num_rows < 2:
        return ready
    own = as_array(ready.column(formats.KEY), pa.binary())
    same = np.zeros(len(own), bool)
    same[1:] = pc.equal(own.slice(1), own.slice(0, len(own) - 1)).to_numpy(zero_copy_only=False)
    if not same.any():
        return ready
    at = np.arange(len(own))
    made = keys.told_apart(own, at - np.maximum.accumulate(np.where(same, 0, at)))
    return ready.set_column(ready.column_names.index(formats.KEY), pa.field(formats.KEY, pa.binary()), made)


def in_order(table: pa.Table) -> pa.Table:
    """Tuples in total order; partial panes, which have no key, by time.

    The check costs one pass over the times, and saves a sort by byte strings.
    """
    if _is_in_order(table):
        return table.combine_chunks()
    by = (table.column(name) for name in (formats.TS, formats.KEY) if name in table.column_names)
    return table.take(keys.in_order_of(by))


def _is_in_order(table: pa.Table) -> bool:
    """Whether rows stand in order already, as those of one source mostly do."""
    ts = times(table)
    if (ts[1:] < ts[:-1]).any():
        return False
    ties = np.flatnonzero(ts[1:] == ts[:-1])
    if formats.KEY not in table.column_names or len(ties) == 0:
        return True
    own, next_one = (table.column(formats.KEY).take(pa.array(ties + after)) for after in (0, 1))
    return bool(pc.all(pc.less(own, next_one)).as_py())


def times(table: pa.Table) -> np.ndarray:
    """The event times, without a copy."""
    found: np.ndarray = table.column(formats.TS).to_numpy()
    return found


def interleaved(ready: list[pa.Table]) -> np.ndarray:
    """The order in which two sides' tuples interleave, as the input of each: by ts, then left before right."""
    # A key begins with (ts, input): left precedes right at one ts, and within a side the order is there already.
    left, right = (times(table) for table in ready)
    side = np.zeros(len(left) + len(right), np.uint8)
    side[np.arange(len(right)) + np.searchsorted(left, right, "right")] = 1
    return side
