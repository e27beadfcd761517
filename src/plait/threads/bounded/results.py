"""Rows of both sides into Arrow batches: columns, keys and what is done to each result, as everywhere on threads.

In: places in the rows of either side, in result order. Out: batches of at most MOST rows. Any number of threads make batches
at the same time: nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.encodings import as_array, one_piece
from plait.query.bind import Bound
from plait.query.identical import KEY
from plait.query.join import Asof
from plait.query.row_by_row import reads
from plait.schema import is_text, taken
from plait.threads.bounded.intake import Rows
from plait.threads.dag import carried
from plait.threads.input.intake import EMPTY, StreamIntake
from plait.threads.results import row_keys

MOST = 1 << 16
_SHORT = 1 << 13


class Shown:
    """How results of one operator look. `intakes` are those of its left and its right stream."""

    def __init__(self, bound: Bound, intakes: tuple[StreamIntake, StreamIntake], *, keys: bool) -> None:
        self._bound, self._intakes, self._keys = bound, intakes, keys
        self._waits = isinstance(bound.node, Asof) and bound.node.waits
        own = [pa.field(KEY, pa.binary())] if keys else []
        self.schema = pa.schema([*bound.schema, *own])
        # Columns that no step reads are not made. Keys are made of rows as they came, so with keys all of them are.
        fields = list(bound.made)
        read = set(range(len(fields)))
        if bound.steps and not keys:
            names = reads(bound.steps, bound.schema.names, bound.made)
            read = {0, *(at for at, field in enumerate(fields) if field.name in names)}
        lefts = len(bound.inputs[0].schema)
        self._lefts = [at for at in range(lefts) if 1 + at in read]
        self._rights = [at for at in range(len(bound.inputs[1].schema)) if 1 + lefts + at in read]
        self._plain = pa.schema([*(field for at, field in enumerate(fields) if at in read), *own])
        # Of right columns that are to be made, those that equal a left one that is made, too: by place, which that is.
        alike = {} if keys else _alike(bound)
        self._alike = {at: self._lefts.index(alike[at]) for at in self._rights if alike.get(at) in self._lefts}
        self._taken = [at for at in self._rights if at not in self._alike]

    def batches(self, ts: np.ndarray | None, sides: tuple[Rows, Rows], places: tuple[np.ndarray | slice, np.ndarray],
                by_left: np.ndarray | None = None) -> Iterator[pa.RecordBatch]:  # fmt: skip
        """Results of these rows. `ts` is each one's time; None: the later one's of its two rows. A right place of -1 is no row.

        `by_left`: whether the left row is the trigger; None: it always is. A slice stands for places one after another.
        """
        at, n = places[0], len(places[1])
        for first, last in pairwise(_cuts(n, sides[0].table, at.start) if isinstance(at, slice) else _even(n)):
            part = slice(first, last)
            left = slice(at.start + part.start, at.start + part.stop) if isinstance(at, slice) else at[part]
            missing = places[1][part] < 0
            rows = self._left(sides[0], left), self._right(sides[1], places[1][part], missing)
            times = np.maximum(sides[0].ts[left], sides[1].ts[places[1][part]]) if ts is None else ts[part]
            made = self._batch(times, rows, missing, None if by_left is None else by_left[part])
            if made.num_rows:
                yield made

    def _left(self, rows: Rows, places: np.ndarray | slice) -> pa.Table:
        table = rows.table if self._keys else rows.table.select(self._lefts)
        if isinstance(places, slice):
            return table.slice(places.start, places.stop - places.start)
        return taken(table, places)

    def _right(self, rows: Rows, places: np.ndarray, missing: np.ndarray) -> pa.Table | None:
        """None if there is no row at all. Columns whose values are the left row's are not taken."""
        if missing.all():
            return None
        table = rows.table if self._keys else rows.table.select(self._taken)
        return taken(table, places) if not missing.any() else taken_or_null(table, places, missing)

    def _batch(
        self, ts: np.ndarray, rows: tuple[pa.Table, pa.Table | None], missing: np.ndarray, by_left: np.ndarray | None
    ) -> pa.RecordBatch:
        lefts, fields = len(self._lefts), list(self._plain)
        arrays: list[Any] = [
            _plain(c, f.type) for c, f in zip([pa.array(ts), *rows[0].columns[:lefts]], fields, strict=False)
        ]
        found = iter(() if rows[1] is None else rows[1].columns)
        for at, field in zip(self._rights, fields[1 + lefts :], strict=False):
            if rows[1] is None:
                arrays.append(pa.nulls(len(ts), field.type))
            elif at in self._alike:
                arrays.append(_where(arrays[1 + self._alike[at]], ~missing))
            else:
                arrays.append(_plain(next(found), field.type))
        if self._keys:
            arrays.append(self._key(ts, rows, by_left))
        made = pa.RecordBatch.from_arrays(arrays, schema=self._plain)
        return carried(made, EMPTY, self._bound.steps, self._bound.node)[0] if self._bound.steps else made

    def _key(self, ts: np.ndarray, rows: tuple[pa.Table, pa.Table | None], by_left: np.ndarray | None) -> pa.Array:
        """The trigger's key, then its partner's; of an as-of join that looks ahead its moment, and the left row's own."""
        n = len(ts)
        left, right = row_keys(self._intakes, rows, n)
        if self._waits:
            return keys.nest(keys.at_last(ts), left, n=n)
        if by_left is None:
            return keys.nest(left, right, n=n)
        trigger = pa.array(by_left)
        return keys.nest(pc.if_else(trigger, left, right), pc.if_else(trigger, right, left), n=n)


def _alike(bound: Bound) -> dict[int, int]:
    """Columns of text of an as-of join's right rows that equal the left row's: by place, the left column's.

    Text is equal if its bytes are, so the left column's may stand for them. Of numbers this does not hold: -0.0 equals 0.0.
    """
    if not isinstance(bound.node, Asof):
        return {}
    left, right = (each.schema for each in bound.inputs)
    pairs = [(left.get_field_index(a), right.get_field_index(b)) for a, b in bound.node.by]
    return {b: a for a, b in pairs if is_text(left.field(a).type) and left.field(a).type == right.field(b).type}


def _where(column: pa.Array, there: np.ndarray) -> pa.Array:
    """The same column with NULLs where nothing is there. Its text is shared, not copied, if it begins where its memory does."""
    if there.all():
        return column
    if column.offset:
        return pc.if_else(pa.array(there), column, pa.scalar(None, column.type))
    bitmap = pa.py_buffer(np.packbits(there, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [bitmap, *column.buffers()[1:]], int((~there).sum()))


def _even(n: int) -> list[int]:
    return [*range(0, n, MOST), n]


def _cuts(n: int, table: pa.Table, first: int) -> list[int]:
    """Where batches of rows that follow one another begin and end: where the pieces of their columns do, if these are not short.

    Then nothing is copied. `first` is the place of the first row.
    """
    sizes = [len(chunk) for chunk in table.column(0).chunks] if table.num_columns else []
    if not sizes or len(table) < _SHORT * len(sizes):
        return _even(n)
    ends = np.cumsum(sizes) - first
    return sorted({*_even(n), *(int(end) for end in ends if 0 < end < n)})


def _plain(column: Any, kind: pa.DataType) -> pa.Array:
    """A column in one piece, as this type; what is under codes by taking entries, which is quicker than Arrow's cast."""
    found = one_piece(column)
    return as_array(found.dictionary.take(found.indices) if pa.types.is_dictionary(found.type) else found, kind)


def taken_or_null(table: pa.Table, places: np.ndarray, missing: np.ndarray) -> pa.Table:
    """Rows by their places, NULLs where they are missing. Numbers go by NumPy: it takes half of Arrow's time where there are
    NULLs, and all columns of them share one bitmap.
    """
    bitmap = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        values = one_piece(column)
        coded = pa.types.is_dictionary(field.type)
        plain = values.indices if coded else values
        if plain.null_count or not (pa.types.is_primitive(plain.type) and plain.type.bit_width in (8, 16, 32, 64)):
            columns.append(taken(pa.table({"": values}), pa.array(places, mask=missing)).column(0))
            continue
        width = plain.type.bit_width // 8
        data = np.frombuffer(plain.buffers()[1], f"u{width}")[plain.offset : plain.offset + len(plain)]
        there = pa.py_buffer(data.take(places, mode="clip"))  # under a NULL anything may lie
        found = pa.Array.from_buffers(plain.type, len(places), [bitmap, there], int(missing.sum()))
        columns.append(pa.DictionaryArray.from_arrays(found, values.dictionary) if coded else found)
    return pa.Table.from_arrays(columns, schema=pa.schema([f.with_nullable(True) for f in table.schema]))
