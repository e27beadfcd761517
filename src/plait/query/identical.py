"""What «identical» means: the published rows, in publish order, as the bytes of one Arrow chunk.

How batches or files are cut is not compared. For `order="trigger"` and `"none"` what the mode leaves open is sorted
first, by `_plait_key`; that triggers come in order is still checked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order as total_order
from plait.encodings import plain_array, plain_schema, rebuilt

KEY = "_plait_key"


@dataclass(frozen=True)
class Difference:
    """The first place where two results part: a row number, or None for what concerns the whole."""

    row: int | None
    what: str
    expected: str
    got: str


def difference(expected: pa.Table, got: pa.Table, order: str = "strict") -> Difference | None:
    """The first difference between two results; None if they are identical.

    Args:
        expected: What the result should be.
        got: What it is.
        order: How exact the order is: "strict", "trigger" or "none". But for "strict" both tables have the column `_plait_key`.

    >>> difference(pa.table({"x": [1, 2]}), pa.table({"x": [1, 3]})).row
    1
    >>> difference(pa.table({"x": [1, 2]}), pa.table({"x": pa.chunked_array([[1], [2]])})) is None
    True
    """
    if not _unkeyed(expected).schema.equals(_unkeyed(got).schema):
        return Difference(None, "columns", str(_unkeyed(expected).schema), str(_unkeyed(got).schema))
    if order != "strict":
        triggers = [total_order.decode(key.as_py())[0] for key in got.column(KEY)]
        if order == "trigger" and (at := _first_descent(triggers)) is not None:
            return Difference(at, "trigger out of order", f"after {triggers[at - 1]}", str(triggers[at]))
        expected, got = (_plain(t).sort_by(KEY) for t in (expected, got))
    expected, got = _unkeyed(expected), _unkeyed(got)
    for row in range(min(len(expected), len(got))) if digest(expected) != digest(got) else ():
        if _bytes(expected.slice(row, 1)) != _bytes(got.slice(row, 1)):
            return Difference(row, "row", _shown(expected, row), _shown(got, row))
    if len(expected) != len(got):
        more = expected if len(expected) > len(got) else got
        row = min(len(expected), len(got))
        extra = _shown(more, row)
        missing = "no row"
        return Difference(row, "number of rows", *((extra, missing) if more is expected else (missing, extra)))
    return None


def _unkeyed(table: pa.Table) -> pa.Table:
    """Without the key's column: it is no part of a result, and need not be there."""
    return table.drop_columns([KEY]) if KEY in table.column_names else table


def _shown(table: pa.Table, row: int) -> str:
    """A row for a person; moments that Python has no years for as the numbers they are."""
    values = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            values[name] = column[row].as_py()
        except (OverflowError, ValueError):
            values[name] = column.slice(row, 1).to_string() if pa.types.is_nested(column.type) else _count(column[row])
    return str(values)


def _count(moment: pa.Scalar) -> int:
    return int(moment.value)


def digest(table: pa.Table) -> str:
    """A fingerprint of the rows in order, blind to how they are cut into chunks."""
    return hashlib.sha256(_bytes(table)).hexdigest()


def _bytes(table: pa.Table) -> bytes:
    """Rows as the stream of one record batch. Copied first: slices drag the bytes around them along."""
    rows = _plain(table)
    rows = pa.table([_bare(column.chunk(0)) for column in rows.columns], rows.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _plain(table: pa.Table) -> pa.Table:
    """The same values laid out in one way only (codes depend on what came first, views on what they share), which Arrow can
    also sort: it can't sort views."""
    schema = plain_schema(table.schema)
    wholes = [pa.concat_arrays(column.chunks) if column.num_chunks else None for column in table.columns]
    columns = [
        pa.array([], field.type) if whole is None else plain_array(whole)
        for whole, field in zip(wholes, schema, strict=True)
    ]
    return pa.table(columns, schema)


def _bare(array: pa.Array) -> pa.Array:
    """The same values, and nothing of what lies under a NULL, at any depth: it is no part of a result."""
    array = pc.take(array, pa.array(range(len(array)), pa.int64()))
    kind = array.type
    if not pa.types.is_nested(kind):
        return array
    if pa.types.is_struct(kind):
        children = array.flatten()  # NULL where the struct is
        return rebuilt(array, lambda _, k: _bare(children[k]))
    if pa.types.is_fixed_size_list(kind) and array.null_count:
        gone = np.repeat(np.asarray(array.is_null()), kind.list_size)
        places = pa.array(np.arange(len(gone)), mask=gone)
        return rebuilt(array, lambda child, _: _bare(child.take(places)))
    return rebuilt(array, lambda child, _: _bare(child))  # a NULL list is empty by now


def _first_descent(keys: list[Any]) -> int | None:
    """The first place where keys do not rise."""
    for at in range(1, len(keys)):
        if keys[at] < keys[at - 1]:
            return at
    return None
