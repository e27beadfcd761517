"""What «identical» means: the published rows, in publish order, as the bytes of one Arrow chunk.

How batches or files are cut is not compared. For `order="trigger"` and `"none"` what the mode leaves open is sorted
first, by `_plait_key`; that triggers come in order is still checked.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from plait import order as total_order

KEY = "_plait_key"


@dataclass(frozen=True)
class Difference:
    """The first place where two results part: a row number, or None for what concerns the whole."""

    row: int | None
    what: str
    expected: str
    got: str


def difference(expected: pa.Table, got: pa.Table, order: str = "strict") -> Difference | None:
    """None if identical, else the first difference. Both tables carry `_plait_key` unless `order` is strict."""
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
    return table.drop_columns([KEY]) if KEY in table.column_names else table


def _shown(table: pa.Table, row: int) -> str:
    """A row for a person; moments that Python has no years for as the numbers they are."""
    values = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            values[name] = column[row].as_py()
        except (OverflowError, ValueError):
            values[name] = column.slice(row, 1).cast(pa.int64())[0].as_py()
    return str(values)


def digest(table: pa.Table) -> str:
    """A fingerprint of the rows in order, blind to how they are cut into chunks."""
    return hashlib.sha256(_bytes(table)).hexdigest()


def _bytes(table: pa.Table) -> bytes:
    """Rows as the stream of one record batch. Copied first: slices drag the bytes around them along."""
    rows = _plain(table)
    rows = pa.table([_whole(column) for column in rows.columns], rows.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in rows.combine_chunks().to_batches():
            writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _plain(table: pa.Table) -> pa.Table:
    """The same values in types that hold them in one way only, which Arrow can also sort: it can't sort views."""
    schema = pa.schema([field.with_type(_unpacked(field.type)) for field in table.schema], table.schema.metadata)
    return pa.table([column.cast(kind) for column, kind in zip(table.columns, schema.types, strict=True)], schema)


def _unpacked(kind: pa.DataType) -> pa.DataType:
    """The type that holds the same values in one way only: codes depend on what came first, views on what they share."""
    if pa.types.is_dictionary(kind):
        return _unpacked(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_unpacked(kind.value_type)))
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array whose buffers hold just these rows, whatever sat under its nulls."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return pc.take(array, pa.array(range(len(array)), pa.int64()))


def _first_descent(keys: list[Any]) -> int | None:
    for at in range(1, len(keys)):
        if keys[at] < keys[at - 1]:
            return at
    return None
