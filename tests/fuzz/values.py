"""Values and arrays by type: small ones that tie, the ends of every type, and the many ways Arrow has to hold them.

A column's name says its type, everywhere in this package: a condition's text then means the same kernels in every case.
"""

from __future__ import annotations

import decimal
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa

INT64 = (-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1, 2**53, 2**53 + 1, -(2**62), 2**62)

#: Name -> type, values that tie, values at the ends. Moments, days and spans are written as the numbers Arrow stores.
COLUMNS: dict[str, tuple[pa.DataType, tuple[Any, ...], tuple[Any, ...]]] = {
    "k": (pa.int64(), (0, 1, 2, -1), INT64),
    "j": (pa.int64(), (0, 1, 3, -2), INT64),
    "i": (pa.int32(), (0, 1, 2, -1), (-(2**31), 2**31 - 1, 2**31 - 2)),
    "p": (pa.int8(), (0, 1, 2, -1), (-128, 127, 126)),
    "u": (pa.uint64(), (0, 1, 2, 3), (2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1)),
    "o": (pa.uint8(), (0, 1, 2), (255, 254)),
    "x": (pa.float64(), (0.0, 0.5, 1.0, -0.0, 1.25), (math.nan, math.inf, -math.inf, 1.7976931348623157e308, 5e-324,
          -5e-324, 2.0**53, 2.0**63, -(2.0**63), 1e17, 0.1, 1e-300)),
    "q": (pa.float32(), (0.0, 0.5, 1.0, -0.0, 1.25), (math.nan, math.inf, -math.inf, 3.4028234663852886e38,
          1.401298464324817e-45, 16777216.0, float(np.float32(0.1)))),
    "b": (pa.bool_(), (True, False), (True, False)),
    "s": (pa.string(), ("a", "b", "", "B"), ("é", "a\x00", "\U0001f9f6", "a" * 13, "a" * 12 + "b", "%")),
    "w": (pa.string_view(), ("a", "b", "", "B"), ("é", "a\x00", "a" * 13, "a" * 12 + "b")),
    "e": (pa.dictionary(pa.int8(), pa.string()), ("a", "b", "", "B"), ("é", "a\x00", "a" * 13)),
    "y": (pa.binary(), (b"a", b"b", b""), (b"\x00", b"\xff", b"a" * 13)),
    "t": (pa.timestamp("us", "UTC"), (0, 1, 2, 3), (-(2**62), 2**62, 2**63 - 1, -(2**63))),
    "d": (pa.date32(), (0, 1, 2), (-(2**31), 2**31 - 1)),
    "g": (pa.duration("us"), (0, 1, 2, -1), (-(2**62), 2**62, 2**63 - 1, -(2**63))),
    "m": (pa.decimal128(10, 2), (decimal.Decimal("0.00"), decimal.Decimal("0.50")),
          (decimal.Decimal("99999999.99"), decimal.Decimal("-99999999.99"))),
}  # fmt: skip

#: Moods of a column: nothing special; NULLs (and NaN) among it; all of it; mostly the ends.
MOODS = ("plain", "plain", "nulls", "nulls", "mixed", "mixed", "ends")


def stored(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """An array of these values; temporal ones are given as numbers, since Python's own can't hold them all."""
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.array(values, pa.int64()).view(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def column(chance: random.Random, name: str, count: int, mood: str, *, wide: bool = True) -> pa.Array:
    """Values of a column; without `wide` no integer is near the ends of 64 bits."""
    kind, small, ends = COLUMNS[name]
    if not wide:
        ends = tuple(v for v in ends if not isinstance(v, int) or abs(v) < 2**40) or small
    choices: tuple[Any, ...] = {
        "plain": small, "nulls": (*small, None), "mixed": (*small, *small, None, *ends), "ends": (*ends, small[1], None),
    }[mood]  # fmt: skip
    return stored(kind, [chance.choice(choices) for _ in range(count)])


# --- the same values, held otherwise ------------------------------------------------------------------------


def disguised(chance: random.Random, rows: pa.Table, keep: frozenset[str]) -> pa.Table:
    """The same rows: arrays cut from longer ones, in chunks, as dictionaries, as views. `keep` names columns of which
    the type must stay."""
    columns = []
    for field, given in zip(rows.schema, rows.columns, strict=True):
        array = given.combine_chunks()
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if field.name not in keep and chance.random() < 0.4:
            array = _otherwise(chance, array)
        if chance.random() < 0.5:
            array = _sliced(chance, array)
        columns.append(array)
    found = pa.table(columns, names=rows.column_names)
    if len(found) > 1 and chance.random() < 0.4:
        cut = chance.randrange(len(found) + 1)
        found = pa.concat_tables([found.slice(0, cut), found.slice(cut)])
    return found


def _otherwise(chance: random.Random, array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return array.dictionary_decode() if chance.random() < 0.5 else dictionary(chance, array.dictionary_decode())
    text = pa.types.is_string(kind) or pa.types.is_string_view(kind)
    if text and chance.random() < 0.5:
        return array.cast(chance.choice((pa.large_string(), pa.string_view(), pa.string())))
    return dictionary(chance, array)


def dictionary(chance: random.Random, array: pa.Array) -> pa.Array:
    """As a dictionary in which values may stand twice, stand unused, or be NULL."""
    values = array.unique() if not pa.types.is_string_view(array.type) else array.cast(pa.string()).unique()
    entries = (
        values.to_pylist() if not pa.types.is_temporal(values.type) else values.view(_number(values.type)).to_pylist()
    )
    wanted = (
        array.cast(values.type).view(_number(values.type)).to_pylist()
        if pa.types.is_temporal(values.type)
        else array.to_pylist()
    )
    entries = [*entries, *entries[: chance.randrange(3)]]
    chance.shuffle(entries)
    places: dict[Any, list[int]] = {}
    for at, value in enumerate(entries):
        places.setdefault(_bits(value), []).append(at)
    codes = [
        None if value is None and chance.random() < 0.5 else chance.choice(places[_bits(value)]) for value in wanted
    ]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), stored(values.type, entries))


def _number(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _bits(value: Any) -> Any:
    """-0.0 is not 0.0 here."""
    return value.hex() if isinstance(value, float) else (type(value).__name__, value)


def _sliced(chance: random.Random, array: pa.Array) -> pa.Array:
    """The middle of a longer array, whose other rows hold something else."""
    if len(array) == 0:
        return array
    before, after = chance.randrange(1, 9), chance.randrange(3)
    if pa.types.is_dictionary(array.type):  # Arrow can't put together dictionaries that hold NULL
        codes = pa.concat_arrays([array.indices.slice(0, 1)] * before + [array.indices])
        return pa.DictionaryArray.from_arrays(codes, array.dictionary).slice(before)
    around = [array.slice(0, 1)] * before + [array] + [array.slice(len(array) - 1)] * after
    return pa.concat_arrays(around).slice(before, len(array))
