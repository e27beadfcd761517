"""Values as text, for the two formats that are text: CSV and JSON lines.

moments    ISO-8601 with as many digits as their unit has: `2024-01-01T00:00:00.000000Z`; with a zone always in UTC
           and with `Z`, without a zone without. Years 1 to 9999; a moment beyond them has no ISO text and is refused
bytes      base64
floats     the shortest digits that read back to the same value of their own width (0.1 for a float32 too)
NaN, inf   JSON has no such numbers and a null would be another value: the texts "NaN", "Infinity", "-Infinity", as
           Spark writes them. plait's JSON reader turns them back in float columns. CSV writes nan, inf, -inf
decimals   text in JSON
durations  the count in their own unit
lists, structs   JSON arrays and objects; CSV has none and refuses the column
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import DataError
from plait.schema import is_bytes

#: The words for floats that are no JSON numbers.
NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # years 1 to 9999
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def iso(column: pa.Array, name: str) -> pa.Array:
    """A timestamp or date column as ISO-8601 text."""
    kind = column.type
    if pa.types.is_date(kind):
        column, zone, per_second = column.cast(pa.timestamp("s")), None, 1
    else:
        zone, per_second = kind.tz, _PER_SECOND[kind.unit]
        # The stored count is UTC's whatever the zone, so no zone database is needed.
        column = column.cast(pa.int64()).cast(pa.timestamp(kind.unit))
    extent = pc.min_max(column.cast(pa.int64()))
    for edge in (extent["min"].as_py(), extent["max"].as_py()):
        if edge is not None and not _FIRST_SECOND <= edge // per_second <= _LAST_SECOND:
            raise DataError(
                f"Column {name!r} holds {edge} ({kind}), which has no ISO-8601 text",
                why="that has years 1 to 9999",
                do="Write Parquet, which keeps the number",
            )
    text = column.cast(pa.string())
    if pa.types.is_date(kind):
        return pc.utf8_slice_codeunits(text, 0, 10)
    text = pc.replace_substring(text, " ", "T")
    return text if zone is None else pc.binary_join_element_wise(text, pa.scalar("Z"), pa.scalar(""))


def to_base64(column: pa.Array) -> pa.Array:
    """Bytes as text."""
    texts = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return pa.array(texts, pa.string())


def from_base64(column: pa.Array, what: str, first_row: int) -> pa.Array:
    """Base64 text as bytes; `what` and `first_row` are for the error."""
    values: list[bytes | None] = []
    for row, text in enumerate(column.to_pylist()):
        try:
            values.append(None if text is None else base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise DataError(
                f"{what}, row {first_row + row}, is no base64: {text[:40]!r}",
                why="that is how bytes are written in CSV and JSON lines",
                do="Mend the row, or declare the column as text",
            ) from None
    return pa.array(values, pa.binary())


# --- JSON ---------------------------------------------------------------------------------------------------


def json_rows(table: pa.Table) -> Iterator[str]:
    """Each row as the text of a JSON object."""
    for batch in table.to_batches():
        columns = [json_values(column, name) for column, name in zip(batch.columns, batch.schema.names, strict=True)]
        for row in zip(*columns, strict=True):
            yield json.dumps(dict(zip(batch.schema.names, row, strict=True)), ensure_ascii=False)


def json_values(column: pa.Array, name: str) -> list[Any]:
    """The column as Python values that `json` can write without loss."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return json_values(column.dictionary_decode(), name)
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _list(iso(column, name))
    if is_bytes(kind):
        return _list(to_base64(column))
    if pa.types.is_duration(kind):
        return _list(column.cast(pa.int64()))
    if pa.types.is_decimal(kind) or pa.types.is_time(kind):
        return _list(column.cast(pa.string()))
    if _is_list(kind):
        return _lists(column, name)
    if pa.types.is_struct(kind):
        keys = [field.name for field in kind]
        rows = zip(*(json_values(child, name) for child in column.flatten()), strict=True)
        valid = _list(column.is_valid())
        return [dict(zip(keys, row, strict=True)) if there else None for there, row in zip(valid, rows, strict=True)]
    return _list(column)


def _list(column: pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values


def _floats(column: pa.Array) -> list[Any]:
    """Floats, with words for those that JSON has no numbers for."""
    if not pa.types.is_float64(column.type):
        # Through the shortest text of its own width: 0.1 in float32 would read 0.10000000149011612 as a Python float.
        wide = column.cast(pa.float32()).cast(pa.string()).to_pylist()
        values = [None if text is None else float(text) for text in wide]
    else:
        values = column.to_pylist()
    if column.null_count == len(column) or bool(np.isfinite(column.drop_null().to_numpy(zero_copy_only=False)).all()):
        return values
    return [_word(value) if value is not None and not math.isfinite(value) else value for value in values]


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _lists(column: pa.Array, name: str) -> list[Any]:
    """Lists of whatever `json_values` makes of their items."""
    flat = iter(json_values(column.flatten(), name))
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else [next(flat) for _ in range(length)] for length in lengths]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def has_json_form(kind: pa.DataType) -> bool:
    """Whether `json_values` knows the type; maps, unions and calendar intervals it does not."""
    if pa.types.is_dictionary(kind):
        return has_json_form(kind.value_type)
    if _is_list(kind):
        return has_json_form(kind.value_type)
    if pa.types.is_struct(kind):
        return all(has_json_form(field.type) for field in kind)
    return has_csv_form(kind)


def has_csv_form(kind: pa.DataType) -> bool:
    """Whether one field of text holds the value."""
    if pa.types.is_dictionary(kind):
        return has_csv_form(kind.value_type)
    return not (pa.types.is_nested(kind) or pa.types.is_union(kind) or pa.types.is_interval(kind))


def csv_column(column: pa.Array, name: str) -> pa.Array:
    """The column in a type that Arrow's CSV writer writes as this module says."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return csv_column(column.dictionary_decode(), name)
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return iso(column, name)
    if is_bytes(kind):
        return to_base64(column)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    return column.cast(pa.float32()) if pa.types.is_float16(kind) else column
