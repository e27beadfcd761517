"""Names, durations, time columns and Arrow types: how values enter from outside.

Inside plait an event time is an int64 count of microseconds (UTC where the column has a zone). `to_micros` is the one
way in, and it refuses what it can't represent: a null, a NaN, a nanosecond that does not divide, a ts beyond +-2^62.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa

from plait.encodings import plain_schema, plain_type
from plait.errors import DataError, QueryError
from plait.order import TS_MAX

_UNITS_US: Final[dict[str, Fraction]] = {
    unit: Fraction(size)
    for units, size in (
        (("us", "µs", "microsecond", "microseconds"), 1),
        (("ms", "millisecond", "milliseconds"), 1_000),
        (("s", "sec", "secs", "second", "seconds"), 1_000_000),
        (("m", "min", "mins", "minute", "minutes"), 60_000_000),
        (("h", "hr", "hrs", "hour", "hours"), 3_600_000_000),
        (("d", "day", "days"), 86_400_000_000),
        (("w", "week", "weeks"), 604_800_000_000),
    )
    for unit in units
} | {"ns": Fraction(1, 1000), "nanosecond": Fraction(1, 1000), "nanoseconds": Fraction(1, 1000)}

_PIECE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zµ]+)\s*")
_FORMS = "Write text such as '5 minutes', '1h 30min' or '250ms', a timedelta, or whole microseconds as an int"


def duration_us(value: Any, name: str, *, zero: bool = True, forms: str = _FORMS) -> int:
    """A duration in microseconds.

    Args:
        value: Text such as "1h 30min", a timedelta, or whole microseconds.
        name: The option, for messages.
        zero: Whether nothing is a duration, too.
        forms: What the option takes, for messages, where an int means something else.

    Raises:
        QueryError: It is no duration, negative, no whole microsecond, or longer than 2^62 of them.

    >>> duration_us("1h 30min", "within"), duration_us(dt.timedelta(milliseconds=5), "within"), duration_us(7, "within")
    (5400000000, 5000, 7)
    """
    if isinstance(value, (bool, np.timedelta64)) or not isinstance(value, (int, str, dt.timedelta, np.integer)):
        raise QueryError(f"{name}={value!r} is not a duration", do=forms)
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
        if micros * dt.timedelta(microseconds=1) != value:  # pandas counts nanoseconds
            raise _not_whole(value, name)
    elif isinstance(value, str):
        micros = _parse_duration(value, name, forms)
    else:
        micros = int(value)
    if micros < 0:
        raise QueryError(f"{name}={value!r} is negative", why="a duration is a length of time", do=forms)
    if micros == 0 and not zero:
        raise QueryError(f"{name}={value!r} is zero", why="it must be at least one microsecond", do=forms)
    if micros > TS_MAX:
        raise QueryError(
            f"{name}={value!r} is longer than 2^62 microseconds",
            why="event times lie within +-2^62 microseconds",
            do="Pass a shorter one",
        )
    return micros


def _parse_duration(text: str, name: str, forms: str) -> int:
    """Numbers with units, added up; fractions are exact until the sum is known."""
    total, at = Fraction(0), 0
    if len(text) > 200:
        raise QueryError(f"{name}={text!r} is not a duration", why="no duration is so long a text", do=forms)
    while (piece := _PIECE.match(text, at)) is not None:
        number, unit = piece.groups()
        if unit not in _UNITS_US:
            raise QueryError(f"{name}={text!r} is not a duration", why=f"{unit!r} is no unit of time", do=forms)
        total += Fraction(number) * _UNITS_US[unit]
        at = piece.end()
    if at == 0 or at != len(text):
        raise QueryError(f"{name}={text!r} is not a duration", do=forms)
    if total.denominator != 1:
        raise _not_whole(text, name)
    return int(total)


def _not_whole(value: object, name: str) -> QueryError:
    """The error for a duration between two microseconds."""
    return QueryError(
        f"{name}={value!r} is not a whole number of microseconds",
        why="time is counted in microseconds, and nothing is rounded silently",
        do="Round it yourself",
    )


def duration_text(micros: int) -> str:
    """A duration for a person to read: the largest unit that divides it.

    >>> duration_text(90_000_000), duration_text(3_600_000_000), duration_text(1)
    ('90 s', '1 h', '1 us')
    """
    for unit, size in (
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1_000),
    ):
        if micros and micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros} us"


# --- time columns -------------------------------------------------------------------------------------------

#: What `unit=` may say: the size of one count, in nanoseconds.
TIME_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "day": 86_400_000_000_000,
}


def check_time_type(kind: pa.DataType, unit: str | None, *, stream: str, column: str) -> None:
    """Refuse a time column whose type, with `unit`, does not fix a moment."""
    what = f"Stream {stream!r}: time column {column!r} is {kind}"
    if pa.types.is_timestamp(kind):
        if kind.tz is None and unit is None:
            raise QueryError(
                what,
                why="a timestamp without a zone names no moment by itself",
                do=f"Say how to count it with unit={kind.unit!r} (the stored number is taken as it is, as UTC)",
            )
        if unit is not None and unit != kind.unit:
            raise QueryError(
                f"{what}, and unit={unit!r}",
                why=f"its own unit is {kind.unit!r}",
                do="Leave unit= out" if kind.tz else f"Say unit={kind.unit!r}",
            )
    elif pa.types.is_date(kind):
        if unit != "day":
            raise QueryError(what, why="a date names no moment by itself", do="Say unit='day' (midnight, UTC)")
    elif pa.types.is_integer(kind):
        if unit is None:
            raise QueryError(
                what,
                why="a number is no moment by itself",
                do=f"Say what it counts, with unit= one of {', '.join(map(repr, TIME_UNITS))}",
            )
    else:
        raise QueryError(what, why="event time is a timestamp, a date or an integer", do="Cast or convert the column")


def to_micros(column: pa.Array | pa.ChunkedArray, unit: str | None, *, stream: str, name: str, first_row: int = 0,
              where: str = "") -> np.ndarray:  # fmt: skip
    """A time column as int64 microseconds.

    Args:
        column: Timestamps, dates or integers, of which none may be NULL.
        unit: What an integer counts; see `check_time_type`.
        stream: The stream's name, for messages.
        name: The column's name, for messages.
        first_row: The number of the column's first row within `where`, for messages.
        where: The file or the like, for messages.

    Raises:
        QueryError: The column's type, with `unit`, fixes no moment.
        DataError: A value is NULL, no whole microsecond, or beyond +-2^62 of them.

    >>> to_micros(pa.array([1, 2]), "ms", stream="s", name="ts")
    array([1000, 2000])
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    kind = column.type
    check_time_type(kind, unit, stream=stream, column=name)

    def refuse(row: int, fact: str, why: str) -> DataError:
        place = f"{where}, row {first_row + row}" if where else f"row {first_row + row}"
        return DataError(f"Stream {stream!r}, {place}: time column {name!r} {fact}", why=why)

    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise refuse(row, "is NULL", "every tuple needs an event time")
    if pa.types.is_date(kind):
        days = pa.types.is_date32(kind)
        counts = column.cast(pa.int32() if days else pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64)
        size_ns = TIME_UNITS["day" if days else "ms"]
    else:
        counts = _stored(column) if kind.bit_width == 64 else column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        size_ns = TIME_UNITS[kind.unit if pa.types.is_timestamp(kind) else unit or "us"]
        if pa.types.is_uint64(kind) and len(counts) and int(counts.min()) < 0:
            row = int(np.argmax(counts < 0))
            raise refuse(row, f"is {column[row].as_py()}", "event times lie within +-2^62 microseconds")
    return _scale(counts, size_ns, refuse)


def _stored(column: pa.Array) -> np.ndarray:
    """Numbers of 64 bits as they are stored, none of them NULL: no copy, and no call into Arrow's kernels, which take longer."""
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return np.empty(0, np.int64)
    return np.frombuffer(data, np.int64, len(column), 8 * column.offset)


def _scale(counts: np.ndarray, size_ns: int, refuse: Any) -> np.ndarray:
    """Counts of so many nanoseconds as microseconds: exactly, or refused with the first row that does not divide or fit."""
    if size_ns < 1_000:
        micros, rest = np.divmod(counts, 1_000 // size_ns)
        if rest.any():
            row = int(np.flatnonzero(rest)[0])
            raise refuse(row, f"is {counts[row]} ns", "it is no whole microsecond, and nothing is rounded silently")
    else:
        scale = size_ns // 1_000
        limit = TS_MAX // scale
        if len(counts) and (int(counts.max()) > limit or int(counts.min()) < -limit):
            row = int(np.flatnonzero((counts > limit) | (counts < -limit))[0])
            raise refuse(row, f"is {counts[row]}", "event times lie within +-2^62 microseconds")
        micros = counts if scale == 1 else counts * scale
    return micros


def time_kind(kind: pa.DataType) -> str:
    """`zoned`, `naive` or `count`: what a query's own `ts` looks like is decided by its inputs' kinds."""
    if pa.types.is_timestamp(kind):
        return "naive" if kind.tz is None else "zoned"
    return "count"


def joint_time_type(kinds: list[str]) -> pa.DataType:
    """The type of a result's `ts`: timestamps stay timestamps if all inputs agree, else counts of microseconds.

    >>> joint_time_type(["zoned", "zoned"]), joint_time_type(["zoned", "count"])
    (TimestampType(timestamp[us, tz=UTC]), DataType(int64))
    """
    if set(kinds) == {"zoned"}:
        return pa.timestamp("us", tz="UTC")
    if set(kinds) == {"naive"}:
        return pa.timestamp("us")
    return pa.int64()


Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def takeable(kind: pa.DataType) -> pa.DataType:
    """The type in which rows of a column can be taken: Arrow takes none of views of text."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def taken(rows: Rows, places: np.ndarray | pa.Array) -> Rows:
    """Rows by their places, views of text among their columns or not. A NULL in the place of a place gives a row of NULLs."""
    schema, at = rows.schema, places if isinstance(places, pa.Array) else pa.array(places)
    kept = pa.schema([pa.field(field.name, takeable(field.type)) for field in schema])
    return rows.take(at) if kept.types == schema.types else rows.cast(kept).take(at).cast(schema)


# --- types and names ----------------------------------------------------------------------------------------

_TYPE_WORDS: Final = {
    "bool": pa.bool_(), "boolean": pa.bool_(),
    "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "uint8": pa.uint8(), "uint16": pa.uint16(), "uint32": pa.uint32(), "uint64": pa.uint64(),
    "float32": pa.float32(), "float64": pa.float64(), "float": pa.float32(), "double": pa.float64(),
    "int": pa.int32(), "bigint": pa.int64(),
    "string": pa.string(), "text": pa.string(), "binary": pa.binary(), "bytes": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(value: Any, name: str) -> pa.DataType:
    """An Arrow type, given as such or by its usual word; in its plain layout (`encodings`).

    Args:
        value: A pyarrow type, or a word of `_TYPE_WORDS` in any case.
        name: The option, for messages.

    >>> arrow_type("bigint", "type"), arrow_type(pa.dictionary(pa.int8(), pa.string()), "type")
    (DataType(int64), DataType(string))
    """
    if isinstance(value, pa.DataType):
        return plain_type(value, f"{name}=")
    if isinstance(value, str) and value.lower() in _TYPE_WORDS:
        return _TYPE_WORDS[value.lower()]
    raise QueryError(f"{name}={value!r} is no type", do=f"Use a pyarrow type or one of {', '.join(_TYPE_WORDS)}")


def arrow_schema(value: Any, name: str) -> pa.Schema:
    """A pyarrow schema, or a mapping of column names to types; in plain layouts (`encodings`).

    >>> arrow_schema({"ts": "timestamp", "x": "double"}, "schema").names
    ['ts', 'x']
    """
    if isinstance(value, pa.Schema):
        for column in value.names:
            if value.names.count(column) > 1:
                raise QueryError(f"{name}= has two columns called {column!r}", do="Rename one")
        return plain_schema(value, f"{name}=")
    if isinstance(value, dict) and value and all(isinstance(column, str) and column for column in value):
        return pa.schema([(column, arrow_type(kind, f"{name}[{column!r}]")) for column, kind in value.items()])
    raise QueryError(f"{name}={value!r} is no schema", do="Pass a pyarrow schema or a dict of column names to types")


def listed(value: Any) -> tuple[Any, ...]:
    """Several things in order, or one alone. Not a set: it has another order in every process.

    >>> listed("ab"), listed(["a", "b"])
    (('ab',), ('a', 'b'))
    """
    several = isinstance(value, Iterable) and not isinstance(value, (str, set, frozenset))
    return tuple(value) if several else (value,)


def micros_of(value: Any) -> int:
    """A moment given by a user (heartbeats, timers): whole microseconds, or a datetime with a zone.

    >>> micros_of(dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC))
    1000000
    """
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        return int(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None and not getattr(value, "nanosecond", 0):
        return int((value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1))
    raise QueryError(f"{value!r} is no moment", do="Pass whole microseconds as an int, or a datetime with a zone")


def tuple_count(value: Any, said: str) -> int:
    """A number of tuples that a window or a function is given. `said` is how messages write what was given.

    Raises:
        QueryError: It is no whole number of at least 1, or more than 2^62.

    >>> tuple_count(3, "last=3")
    3
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise QueryError(f"{said} is no number of tuples", do="Pass a whole number of at least 1")
    if value > 1 << 62:
        raise QueryError(
            f"{said} is more than 2^62 tuples", why="tuples are counted in 64 bits", do="Pass a smaller number"
        )
    return value


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1; a truth value is none.

    >>> is_count(3), is_count(0), is_count(True), is_count("3")
    (True, False, False, False)
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))
    return whole and bool(value >= 1)  # type: ignore[operator]  # mypy does not carry what `whole` says


def is_number(value: object) -> bool:
    """Whether a value is a number; a truth value is none."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, (bool, np.timedelta64))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, however it is laid out."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a column of this type holds bytes, however they are laid out."""
    large = pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(pa.types.is_binary(kind) or large or pa.types.is_fixed_size_binary(kind))


__all__ = [
    "TIME_UNITS", "arrow_schema", "arrow_type", "check_time_type", "duration_text", "duration_us", "is_bytes", "is_count",
    "is_number", "is_text",
    "joint_time_type", "listed", "micros_of", "time_kind", "to_micros",
]  # fmt: skip
