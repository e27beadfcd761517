"""Columns that a user hands over as Python's or NumPy's own values: made into Arrow's, and nothing changes on the way.

The rule. *A value comes in as it is, or is refused.* Where the column has a type already, declared or that of earlier rows:

- Python's values may have another type only if the value is the same one: an int in a column of floats or decimals that has
  that very number, a decimal with more digits behind the point. An int in a column of times is its count. A float in a
  narrower column of floats is rounded to it, as a literal is (Python has but one width), yet never to infinity.
- NumPy and pandas say what a column's type is: numbers may come in another type if all of them are the same numbers there.
- A float is never an integer, not even 3.0; a truth value no number; text no bytes; a moment with a zone none without one, and
  no day. A dict has no key that its column lacks. A set has no order, and is no list.

Where Arrow finds a type itself, a column of values of different kinds is held to the same rule.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from plait.encodings import plain_type
from plait.errors import DataError
from plait.schema import is_bytes, is_text

_MEND = "Mend the values, or declare the type with schema="
_FAILURES = (pa.ArrowException, TypeError, ValueError, OverflowError, NotImplementedError)

#: Columns of these alone become what they are, if no other type is asked for.
_UNIFORM = ({int}, {float}, {str}, {bool}, {bytes}, {dt.date}, {dt.timedelta}, {decimal.Decimal}, set[type]())


def column(values: Any, kind: pa.DataType | None, what: str) -> pa.Array | pa.ChunkedArray:
    """A column of the type `kind`, or of its own; `what` begins the errors."""
    typed = _typed(values)
    try:
        if typed:
            if str(getattr(values, "dtype", "")) == "object":  # a Series of pandas
                check_moments(values.tolist(), what)
            return _as(_own(values), kind, what)
        values = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if kind is None:
            check_moments(values, what)
        else:
            values = [value.item() if isinstance(value, (np.number, np.bool_)) else value for value in values]
        made = pa.array(values, type=kind)
    except _FAILURES as error:
        raise _refused(kind, what, str(error)) from None
    _check(values, made, kind, what)
    return made


def check_moments(values: Any, what: str) -> None:
    """Refuse NumPy's moments among NumPy's numbers, however deep: where Arrow is to find a type for both it ends the process."""
    kinds: set[type] = set()
    below, seen = [values], {id(values)}
    while below:
        found: list[Any] = []
        for each in below:
            inner = each.values() if isinstance(each, Mapping) else each
            kinds |= (types := set(map(type, inner)))
            if types <= _LEAVES:
                continue
            for value in inner:
                if isinstance(value, (list, tuple, set, frozenset, Mapping)) and id(value) not in seen:
                    seen.add(id(value))
                    found.append(value)
        below = found
    if np.datetime64 in kinds and any(issubclass(kind, np.generic) and kind is not np.datetime64 for kind in kinds):
        raise _refused(None, what, "NumPy's moments stand among NumPy's numbers")


#: Types of values that hold no others.
_LEAVES = frozenset({int, float, str, bool, bytes, type(None), np.float64, np.int64, dt.datetime, dt.date})


def check_frame(frame: Any, what: str) -> None:
    """The same of a DataFrame's columns of Python's objects."""
    for name in frame.columns:
        if frame[name].dtype == object:
            check_moments(frame[name].tolist(), f"{what}: column {name!r}")


def checked_frame(table: pa.Table, frame: Any, what: str) -> pa.Table:
    """A pandas DataFrame's table. Its columns of Python's objects have no type of their own."""
    for name in table.column_names:
        if name in frame.columns and frame[name].dtype == object:
            missing, values = frame[name].isna().tolist(), frame[name].tolist()
            given = [None if gone else value for gone, value in zip(missing, values, strict=True)]
            _check(given, table.column(name), None, f"{what}: column {name!r}")
    return table


def _refused(kind: pa.DataType | None, what: str, why: str) -> DataError:
    as_kind = "has no Arrow type" if kind is None else f"does not fit its declared type {kind}"
    return DataError(f"{what} {as_kind}", why=why, do=_MEND)


# --- columns that say what their type is ------------------------------------------------------------------------


def _typed(values: Any) -> bool:
    """Whether a column says itself what its type is: NumPy's, pandas', Arrow's."""
    if isinstance(values, np.ndarray):
        return bool(values.dtype != object)
    pandas = type(values).__module__.partition(".")[0] == "pandas"
    return pandas or hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__")


def _own(values: Any) -> pa.Array:
    """Such a column as Arrow has it."""
    if hasattr(values, "__arrow_c_stream__") and not hasattr(values, "__arrow_c_array__"):
        made: pa.Array = pa.chunked_array(values).combine_chunks()
        return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
    return pa.array(values)


def _as(own: pa.Array, kind: pa.DataType | None, what: str) -> pa.Array:
    """The column in that type, if it has the same values there. What is not about numbers `fit` judges."""
    if kind is None or own.type == kind or pa.types.is_null(own.type):
        return own if kind is None or own.type == kind else own.cast(kind)
    if pa.types.is_integer(own.type) and pa.types.is_temporal(kind):
        return own.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    if _number(own.type) and _number(kind) and not (pa.types.is_floating(own.type) and pa.types.is_integer(kind)):
        made = own.cast(kind, safe=False)
        if _same_numbers(own, made):
            return made
        raise _refused(
            kind, what, f"its {own.type} has numbers that are none of {kind}, and nothing is converted silently"
        )
    same_time = (
        pa.types.is_timestamp(kind) and pa.types.is_timestamp(own.type) and (kind.tz is None) == (own.type.tz is None)
    )
    if same_time or (pa.types.is_duration(kind) and pa.types.is_duration(own.type)):
        return own.cast(kind)  # refuses what it would round
    return own


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _same_numbers(own: pa.Array, made: pa.Array) -> bool:
    """Compared in Python where an integer meets a float: it does so exactly."""
    a, b = own.drop_null(), made.drop_null()
    if pa.types.is_floating(own.type):
        x, y = (c.cast(pa.float64()).to_numpy(zero_copy_only=False) for c in (a, b))
        return bool(np.array_equal(x, y, equal_nan=True))
    if pa.types.is_integer(made.type):
        return bool(b.cast(a.type, safe=False).equals(a)) and _same_signs(a, b)
    return all(map(lambda x, y: x == y, a.to_pylist(), b.to_pylist()))


def _same_signs(a: pa.Array, b: pa.Array) -> bool:
    x, y = (c.to_numpy(zero_copy_only=False) for c in (a, b))
    return bool(np.array_equal(x < 0, y < 0))


# --- Python's values --------------------------------------------------------------------------------------------


def _surely(values: Sequence[Any], kind: pa.DataType | None) -> bool:
    """Whether the types alone say that no value can have changed: what is usual, without a look at each."""
    kinds = {type(value) for value in values} - {type(None)}
    if kind is None:
        return kinds in _UNIFORM
    if kinds == {int}:
        return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind))
    if kinds == {float}:
        return bool(pa.types.is_float64(kind))
    if kinds == {str}:
        return is_text(kind)
    return not kinds or (kinds == {bool} and pa.types.is_boolean(kind)) or (kinds == {bytes} and is_bytes(kind))


def _check(values: Sequence[Any], made: Any, kind: pa.DataType | None, what: str) -> None:
    """Refuse the first value that has changed."""
    try:
        found = first_changed(values, made, kind)
    except _FAILURES as error:
        raise _refused(kind, what, str(error)) from None
    if found is not None:
        row, stored = found
        shown = repr(values[row]) if len(repr(values[row])) <= 40 else repr(values[row])[:37] + "..."
        raise DataError(
            f"{what}, row {row}: {shown} would become {stored!r}",
            why=f"the column is {made.type}, and nothing is converted silently",
            do="Convert the values where the data is made, or declare the column's type with schema=",
        )


def first_changed(values: Sequence[Any], made: Any, kind: pa.DataType | None) -> tuple[int, Any] | None:
    """The first value that is another one in the column made of them, and what it is there. `kind`: the type asked for."""
    if _surely(values, kind):
        return None
    plain = plain_type(made.type)
    for row, (value, stored) in enumerate(zip(values, made.to_pylist(), strict=True)):
        count = pa.types.is_temporal(plain) and isinstance(value, int)
        if not unchanged(value, stored, plain) or (
            count and kind is None
        ):  # without a type, nobody has said what it counts
            return row, stored
    return None


def unchanged(value: Any, stored: Any, kind: pa.DataType) -> bool:
    """Whether what a column of this type has stored is the value that was given: the rule above."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    if value is None or stored is None:
        return value is None and stored is None
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(pa.array([value]).cast(kind)[0].as_py() == stored)
    if isinstance(value, bool) or isinstance(stored, bool):
        return value is stored
    if isinstance(value, (float, int, decimal.Decimal)):
        return _same_number(value, stored, kind)
    if isinstance(value, (dt.datetime, dt.date, dt.time, dt.timedelta)):
        return _same_time(value, stored)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return isinstance(stored, bytes) and bytes(value) == stored
    return _same_nested(value, stored, kind)


def _same_number(value: Any, stored: Any, kind: pa.DataType) -> bool:
    """Whether a stored number, or count of a time, is the one that was given."""
    if pa.types.is_temporal(kind):
        return isinstance(value, int)
    if isinstance(value, decimal.Decimal):
        return isinstance(stored, decimal.Decimal) and value == stored
    if isinstance(value, int):
        return isinstance(stored, (int, float, decimal.Decimal)) and value == stored
    if not isinstance(stored, float):
        return False
    narrow = pa.types.is_floating(kind) and not pa.types.is_float64(kind)
    return value == stored or (math.isnan(value) and math.isnan(stored)) or (narrow and math.isfinite(stored))


def _same_time(value: Any, stored: Any) -> bool:
    """Whether a stored moment, day, hour or span is the one that was given, zone and nanoseconds included."""
    if isinstance(value, dt.timedelta) or isinstance(stored, dt.timedelta):
        return isinstance(value, dt.timedelta) and value == stored and _nanos(value) == _nanos(stored)
    for kind in (dt.datetime, dt.time, dt.date):  # a datetime is a date, too
        if isinstance(value, kind) or isinstance(stored, kind):
            zones = [getattr(each, "tzinfo", None) is None for each in (value, stored)]
            return (
                isinstance(value, kind) and zones[0] == zones[1] and value == stored and _nanos(value) == _nanos(stored)
            )
    return False


def _nanos(value: Any) -> int:
    """pandas' times have nanoseconds."""
    return int(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))


def _same_nested(value: Any, stored: Any, kind: pa.DataType) -> bool:
    """Whether a stored struct, map, list or text is the one that was given."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        inner = {kind.field(k).name: kind.field(k).type for k in range(kind.num_fields)}
        return set(value) <= set(inner) and all(unchanged(value.get(n), stored[n], k) for n, k in inner.items())
    if pa.types.is_map(kind):
        pairs = list(value.items()) if isinstance(value, Mapping) else list(value)
        return len(pairs) == len(stored) and all(
            unchanged(a, c, kind.key_type) and unchanged(b, d, kind.item_type)
            for (a, b), (c, d) in zip(pairs, stored, strict=True)
        )
    if pa.types.is_nested(kind):
        if not isinstance(value, (list, tuple)) or len(value) != len(stored):
            return False
        if pa.types.is_struct(kind):
            return False
        return all(unchanged(a, b, kind.value_type) for a, b in zip(value, stored, strict=True))
    if isinstance(value, str) or isinstance(stored, str):
        return isinstance(value, str) and isinstance(stored, str) and value == stored
    return bool(value == stored)
