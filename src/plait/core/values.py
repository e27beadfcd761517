"""Equal values are equal: columns of any type as numbers or words, alike on both sides of a join and in every batch.

The rule: *two values are equal if Python's are*: moments, days and spans are whole microseconds, however many bits these
need; where one side is of floats, both are; -0.0 is 0.0; NULL and NaN equal nothing. (Of groups NULL is one, and NaN is one:
`core.aggregate.groups` says which is which, with `normal_bits`.) Arrow's own casts refuse moments beyond 64 bits of
microseconds, which a second's type can hold.

    user_values     a column as Python's values: what the rule is about
    joint_numbers   numbers for two sides' keys that are there as a whole: equal keys have equal numbers, and no others do
                    (`core.key_numbers` has them for keys that come batch after batch)
    key_words       64 bits a value: equal values have equal words, and others may, so only who goes where may depend on them
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.encodings import one_piece, recast
from plait.errors import DataError
from plait.query.condition.types import column_type, is_float, is_int
from plait.schema import takeable

_MICROS = {"day": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}

# --- Python's values ----------------------------------------------------------------------------------------------


def one_array(values: Any) -> pa.Array:
    """A column in one piece, and plain."""
    values = one_piece(values)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def user_values(values: Any) -> list[Any]:
    """A column as a user's functions see it: Python's own values; moments, days and spans in microseconds.

    Python's int has no end, so seconds beyond 64 bits of microseconds are exact. Nanoseconds that are no whole
    microsecond are refused. NULL is None. A time of day stays the number that is stored, in its own unit.
    """
    values = one_array(values)
    kind = values.type
    if pa.types.is_nested(kind):
        return _user_nested(values)
    if not pa.types.is_temporal(kind) or pa.types.is_interval(kind):
        return list(values.to_pylist())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        stored = values.view(pa.int32()).to_pylist()
    else:
        stored = values.view(pa.int64()).to_pylist()
    if pa.types.is_time(kind):
        return list(stored)
    if pa.types.is_date32(kind):
        return [None if v is None else v * _MICROS["day"] for v in stored]
    unit = "ms" if pa.types.is_date64(kind) else kind.unit
    if unit != "ns":
        return [None if v is None else v * _MICROS[unit] for v in stored]
    for value in stored:
        if value is not None and value % 1_000:
            raise DataError(f"A {kind} of {value} is no whole microsecond", why="nothing is rounded silently")
    return [None if v is None else v // 1_000 for v in stored]


def _user_nested(values: pa.Array) -> list[Any]:
    """As `user_values`: moments inside structs, lists and maps are microseconds, too."""
    kind, there = values.type, values.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        names = [kind.field(k).name for k in range(kind.num_fields)]
        columns = [user_values(child) for child in values.flatten()]
        rows = zip(*columns, strict=True) if columns else [()] * len(values)
        return [dict(zip(names, row, strict=True)) if ok else None for ok, row in zip(there, rows, strict=True)]
    if pa.types.is_map(kind):
        # Nothing lies under a NULL then, nor before the first.
        values = values.take(pa.array(range(len(values)), pa.int64()))
        sizes = np.diff(values.offsets.to_numpy(zero_copy_only=False)).tolist()
        flat = list(zip(user_values(values.keys), user_values(values.items), strict=True))
    else:
        sizes = [size or 0 for size in pc.list_value_length(values).to_pylist()]
        flat = user_values(values.flatten())
    ends = np.cumsum(sizes).tolist()
    return [flat[end - n : end] if ok else None for ok, n, end in zip(there, sizes, ends, strict=True)]


# --- how two columns are compared ---------------------------------------------------------------------------------

Form = Literal["float", "int", "value"]


def compared_as(a: pa.DataType, b: pa.DataType) -> Form:
    """The form in which values of these types are compared: as floats, as exact integers, or as they are (text, booleans)."""
    kinds = [column_type(kind) or "" for kind in (a, b)]
    if any(map(is_float, kinds)):
        return "float"
    return "int" if all(map(is_int, kinds)) else "value"


# --- numbers: equal values have equal numbers, and no others do ---------------------------------------------------


def joint_numbers(pairs: Iterable[tuple[Any, Any]], left: int, right: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers for keys of both sides, of so many rows each; `pairs` are their columns. -1 where NULL or NaN keeps a key
    from equalling any.

    int64 by row, of either side. Numbers mean nothing from one call to the next.
    """
    codes = np.zeros(left + right, np.int64)
    for a, b in pairs:
        encoded = pc.dictionary_encode(joint_column(one_array(a), one_array(b)))
        part = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        # Two columns' numbers become one; renumbered each time so that they stay small.
        joint = codes * (len(encoded.dictionary) + 1) + part
        codes = np.where((codes < 0) | (part < 0), -1, np.unique(joint, return_inverse=True)[1])
    return codes[:left], codes[left:]


def joint_column(a: pa.Array, b: pa.Array) -> pa.Array:
    """Two columns as one, in a type in which equal values are equal; NaN becomes NULL, -0.0 becomes 0.0."""
    form, kinds = compared_as(a.type, b.type), [column_type(x.type) or "" for x in (a, b)]
    if any(_is_far(x) or (pa.types.is_temporal(x.type) and form == "float") for x in (a, b)):
        known: dict[Any, int] = {}
        codes = np.concatenate([key_codes(x, known, as_float=form == "float") for x in (a, b)])
        return pa.array(codes, mask=codes < 0)
    if form == "float":
        both = pa.concat_arrays([x.cast(pa.float64(), safe=False) for x in (a, b)])
        numbers = both.to_numpy(zero_copy_only=False) + 0.0
        return pa.array(numbers, from_pandas=True)
    if form == "int":
        micros = [_micros(x) for x in (a, b)]
        if "uint64" in kinds and kinds[0] != kinds[1]:
            return pa.concat_arrays([x.cast(pa.decimal128(20, 0)) for x in micros])
        return pa.concat_arrays(
            [x.cast(pa.int64()) if k != "uint64" else x for x, k in zip(micros, kinds, strict=True)]
        )
    text = pa.large_string() if kinds[0] == "text" else pa.bool_() if kinds[0] == "bool" else pa.large_binary()
    return pa.concat_arrays([x.cast(text) for x in (a, b)])


def _is_far(column: pa.Array) -> bool:
    """Whether Arrow can't say it in microseconds: moments beyond 64 bits, or nanoseconds that don't divide."""
    try:
        _micros(column)
    except pa.ArrowInvalid:
        return True
    return False


def _micros(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return column.cast(pa.timestamp("us")).view(pa.int64())
    if pa.types.is_duration(column.type):
        return column.cast(pa.duration("us")).view(pa.int64())
    return column


def key_codes(column: Any, known: dict[Any, int], *, as_float: bool) -> np.ndarray:
    """A number for each row's value, the same as `known` has for it, which learns new ones; -1 for NULL and NaN.

    `as_float`: values are compared as floats, so 1 and 1.0 are one key, and an integer beyond 2^53 is rounded.
    """
    places, values = distinct_values(column, as_float=as_float)
    codes = [-1 if v is None or v != v else known.setdefault(v, len(known)) for v in values]
    found: np.ndarray = np.array([*codes, -1], np.int64)[places]
    return found


def distinct_values(column: Any, *, as_float: bool) -> tuple[np.ndarray, list[Any]]:
    """The place of each row's value among the different ones, and these. A NULL has the place after the last."""
    column = one_array(column)
    encoded = pc.dictionary_encode(recast(column, takeable(column.type)))
    values = user_values(encoded.dictionary)
    if as_float:
        values = [None if v is None else float(v) for v in values]
    return pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False), values


# --- words: equal values have equal words, and others may ---------------------------------------------------------


def key_words(column: Any, form: Form) -> np.ndarray:
    """One 64-bit word a row: values that are equal in this form have equal words. NULL is one value here, and so is NaN.

    uint64 by row. A cell or a worker is chosen by it: both sides of a join must use the form of `compared_as`, or equal
    values would go to different places.
    """
    column = one_array(column)
    found: np.ndarray
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.uint64)
    if form == "value":
        encoded = pc.dictionary_encode(recast(column, takeable(column.type)))
        codes = [_value_word(value) for value in encoded.dictionary.to_pylist()]
        lookup = np.array([*codes, 0], np.uint64)
        found = lookup[pc.fill_null(encoded.indices, len(codes)).to_numpy(zero_copy_only=False)]
        return found
    if pa.types.is_temporal(column.type) and not pa.types.is_time(column.type):
        return _moment_words(column, form)
    if form == "float":
        numbers = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        return normal_bits(numbers).view(np.uint64)
    filled = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    unsigned = pa.types.is_unsigned_integer(column.type)
    found = filled.astype(np.uint64) if unsigned else filled.astype(np.int64).view(np.uint64)
    return found


def normal_bits(numbers: np.ndarray) -> np.ndarray:
    """The bits of floats, of which equal ones have equal bits: 0.0 stands for -0.0, one NaN for all of them.

    int64, of float64. Adding 0.0 turns -0.0 into 0.0 and changes nothing else.
    """
    values = numbers + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.int64)


def _moment_words(column: pa.Array, form: Form) -> np.ndarray:
    """Moments, days and spans as microseconds, of which the far ones have more than 64 bits hold.

    As integers these wrap: equal ones still have equal words, and another that has the same word only shares a cell. As floats
    each is rounded once, from the exact number, as where a condition compares them.
    """
    kind = column.type
    unit = "day" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
    if form == "float" or unit == "ns":
        places, values = distinct_values(column, as_float=form == "float")  # refuses what is no whole microsecond
        made = np.array([*(0 if v is None else v for v in values), 0], np.float64 if form == "float" else np.int64)
        found: np.ndarray = (made[places] + (0.0 if form == "float" else 0)).view(np.uint64)
        return found
    stored = pc.fill_null(column.view(pa.int32() if unit == "day" else pa.int64()), 0).to_numpy(zero_copy_only=False)
    found = stored.astype(np.int64).view(np.uint64) * np.uint64(_MICROS[unit])
    return found


def _value_word(value: bool | str | bytes) -> int:
    if isinstance(value, bool):
        return int(value)
    return zlib.crc32(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
