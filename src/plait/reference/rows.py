"""Rows as the reference holds them, and the ways between Arrow and rows.

A row's `values` stand in the order of its schema. Moments, days and spans are kept as the integers Arrow stores, since
Python's own types can't hold all of them; a user's functions see them as microseconds (`seen`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from plait.connectors.values import first_changed
from plait.encodings import rebuilt
from plait.errors import DataError
from plait.reference.values import Value

Key = tuple[Any, ...]

_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(slots=True)
class Row:
    """A tuple of a stream or of a query's output; `key` is its own part of the order, without (ts, input).

    For a stream's tuple `key` is (source's rank, seq); for a result it is the nested key of its operator. `ts` is in
    microseconds.
    """

    ts: int
    key: Key
    values: tuple[Any, ...]
    #: The columns a condition has read, as it sees them: a row meets many others.
    read: dict[str, Value] = field(default_factory=dict, compare=False, repr=False)


def _storage(kind: pa.DataType) -> pa.DataType | None:
    """The type with integers where moments, days and spans are, at any depth; None if there are none.

    Arrow's own storage: int32 for days and times of day of 32 bits, int64 for the rest. Intervals of months have no such
    number.
    """
    if pa.types.is_nested(kind):
        inner = [_storage(child) for child in _children(kind)]
        return None if not any(inner) else _nested(kind, [i or c for i, c in zip(inner, _children(kind), strict=True)])
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_temporal(kind) and not pa.types.is_interval(kind) else None


def _children(kind: pa.DataType) -> list[pa.DataType]:
    if pa.types.is_struct(kind):
        return [kind.field(k).type for k in range(kind.num_fields)]
    return [kind.key_type, kind.item_type] if pa.types.is_map(kind) else [kind.value_type]


def _nested(kind: pa.DataType, inner: list[pa.DataType]) -> pa.DataType:
    """A type like this one, with other types inside."""
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(k).with_type(child) for k, child in enumerate(inner)])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(inner[0]), kind.item_field.with_type(inner[1]), kind.keys_sorted)
    value = kind.value_field.with_type(inner[0])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return pa.large_list(value) if pa.types.is_large_list(kind) else pa.list_(value)


def _retyped(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same stored numbers under another type."""
    if array.type == kind:
        return array
    if not pa.types.is_nested(kind):
        return array.view(kind)
    wanted = _children(kind)
    return rebuilt(array, lambda child, k: _retyped(child, wanted[k]))


def values_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """A batch as Python tuples.

    One tuple a row, in the order of the schema. A batch without columns still has rows.
    """
    if batch.num_columns == 0:
        return [()] * batch.num_rows
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        storage = _storage(column.type)
        columns.append((column if storage is None else _retyped(column, storage)).to_pylist())
    return list(zip(*columns, strict=True))


def array_of(values: Sequence[Any], kind: pa.DataType, name: str = "") -> pa.Array:
    """The inverse of `values_of` for one column.

    A window's end may lie beyond 64 bits where a ts is near the end of time: that is told as what it is.
    """
    if pa.types.is_dictionary(kind):
        return array_of(values, kind.value_type, name).cast(kind)
    storage = _storage(kind)
    try:
        array = pa.array(values, type=kind if storage is None else storage)
    except OverflowError as error:
        raise DataError(
            f"A result's {name!r} lies beyond 64 bits",
            why="a ts this near to the end of time, and a window this long, have a sum that can't be counted",
            do="Use a shorter window, or leave such tuples out",
        ) from error
    return array if storage is None else _retyped(array, kind)


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows as one Arrow chunk per column."""
    columns: Any = zip(*(row.values for row in rows), strict=True) if rows else [()] * len(schema)
    return pa.Table.from_arrays(
        [array_of(c, f.type, f.name) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def stored(value: Any, kind: pa.DataType, what: str) -> Any:
    """A value that a user's function returned, as a row holds it; refuses what is not of the declared type.

    What a user's function gives must be of the declared type as it is: 1.5 is no int64, and 300 no int8.
    """
    try:
        scalar = pa.scalar(value, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError) as error:
        raise DataError(f"{what} is {value!r}, which is no {kind}", why=str(error)) from error
    changed = first_changed([value], pa.array([value], kind), kind)
    if changed is not None:
        why = f"it would become {changed[1]!r}, and nothing is converted silently"
        raise DataError(f"{what} is {value!r}, which is no {kind}", why=why)
    if pa.types.is_nested(kind) and _storage(kind) is not None:
        return values_of(pa.record_batch([pa.array([value], kind)], names=["x"]))[0][0]
    return scalar.value if _storage(kind) is not None else scalar.as_py()


def seen(value: Any, kind: pa.DataType) -> Any:
    """A stored value as a user's function sees it: Python's own int, float, bool, str; time in microseconds.

    In microseconds, exact. A time of day stays as it is stored.
    """
    if value is None or _storage(kind) is None or pa.types.is_time(kind):
        return value
    if pa.types.is_struct(kind):
        return {kind.field(k).name: seen(item, kind.field(k).type) for k, item in enumerate(value.values())}
    if pa.types.is_map(kind):
        return [(seen(key, kind.key_type), seen(item, kind.item_type)) for key, item in value]
    if pa.types.is_nested(kind):
        return [seen(item, kind.value_type) for item in value]
    if pa.types.is_date32(kind):
        return value * 86_400_000_000
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    micros, rest = divmod(value * _NS[unit], 1_000)
    if rest:
        raise DataError(f"A {kind} of {value} is no whole microsecond", why="nothing is rounded silently")
    return micros


def condition_value(value: Any, kind: pa.DataType) -> Value:
    """A stored value as a condition sees it.

    Floats become NumPy's of their width, so that arithmetic rounds as the other executors' does; integers stay Python's,
    so that they are exact.
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_floating(kind):
        width = np.float32 if pa.types.is_float32(kind) else np.float64
        return Value(np.dtype(width).name, None if value is None else width(value))
    if pa.types.is_boolean(kind):
        return Value("bool", value)
    if pa.types.is_integer(kind):
        return Value(str(kind), value)
    if _storage(kind) is not None:
        return Value("int64", seen(value, kind))
    if pa.types.is_null(kind):
        return Value("null", None)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return Value("text" if text else "bytes", value)


class View:
    """A row for a user's function: `t.column`, `t["column"]`; with a `stream`, for operators, `t.ts` and `t.stream`."""

    # Mangled names: a column may be called anything else.
    __slots__ = ("__row", "__schema", "__stream")

    def __init__(self, row: Row, schema: pa.Schema, stream: str | None = None) -> None:
        self.__row, self.__schema, self.__stream = row, schema, stream

    def __getitem__(self, name: str) -> Any:
        at = self.__schema.get_field_index(name)
        if at < 0:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.__schema.names)}")
        kind = self.__schema.field(at).type
        return seen(self.__row.values[at], kind.value_type if pa.types.is_dictionary(kind) else kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__stream is not None and name in ("stream", "ts"):
            return self.__stream if name == "stream" else self.__row.ts
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None
