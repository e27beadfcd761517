"""The total order: what a key is, and keys as sortable bytes. When a tuple is late, ready or behind: `core/sources.py`.

A tuple's key is ``(ts, input, source, seq)``. A query's output is a stream with one source whose key is the
result's own, so keys nest: the next operator puts ``(ts, input)`` in front of it. Comparison is that of Python
tuples, lexicographic and recursive; two keys that meet in one position have one shape there, because everything
up to ``input`` has already told them apart. No worker, partition or batch number is part of any key.

    tuple of a stream   (ts, input, source, seq)
    join result         (trigger's key, partner's key)
    unmatched row       ((ts, AFTER_INPUTS + input), its key)    follows every result at that ts, left ones first
    as-of result        (left row's key, partner's key or ())
    as-of, not backward ((ts, AFTER_INPUTS), left row's key)     by the moment of its decision, then by the left row
    aggregate row       (window's last microsecond, key columns ...)
    count-window row    (closing tuple's key)
    dedup's row         (its tuple's key)
    operator output     (cause's key, bucket, index of emission)
    timer's output      ((T - 1, AFTER_INPUTS), bucket, index)   follows every tuple's output at that ts

This module is the executors' form of the definitions; `reference/` says them again in its own words, and the
tests hold one against the other.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import struct
from typing import Any, Final

from plait.errors import DataError

TS_MIN: Final = -(2**62)
TS_MAX: Final = 2**62
BEFORE_ALL: Final = -(2**63)  # progress of a declared source that has not spoken
AFTER_ALL: Final = 2**63 - 1  # progress of a source that has ended

#: Stands where `input` stands in a key, above every input: sorts after all tuples of its ts. A join's unmatched rows add their
#: input to it: at one ts they come by input, though their own keys begin with other times.
AFTER_INPUTS: Final = 2**31 - 1

Key = tuple[Any, ...]


# --- values inside keys -------------------------------------------------------------------------------------


def key_value(value: Any, *, signed_zero: bool = False) -> Key:
    """A column's value as part of a key: numbers by size with -0.0 = 0.0, then NaN, then NULL; text by bytes.

    With `signed_zero`, for rows ordered by content, -0.0 precedes 0.0.
    """
    if value is None:
        return (2,)
    if isinstance(value, float):
        if math.isnan(value):
            return (1,)
        return (0, value + 0.0, int(math.copysign(1, value))) if signed_zero else (0, value + 0.0)
    if isinstance(value, str):
        return (0, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, (bool, int, bytes)):
        return (0, int(value) if isinstance(value, bool) else value)
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return (0, tuple(key_value(item, signed_zero=signed_zero) for item in value))
    number = _number(value)
    if number is not None:
        return (0, number)
    raise DataError(
        f"A value of Python type {type(value).__name__} stands where a key is made",
        why="only numbers, text, bytes, times, lists and structs of these have an order here",
        do="Cast the column before it enters the query",
    )


def _number(value: Any) -> int | None:
    """A decimal, moment, day, hour or span as a number that orders it among those of its column."""
    match value:
        case decimal.Decimal():
            digits = value.as_tuple()
            return int(value.scaleb(-int(digits.exponent)))
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case dt.datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
            return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        case dt.date():
            return value.toordinal()
        case dt.time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return None


# --- keys as bytes ------------------------------------------------------------------------------------------
# One tag a value, chosen so that bytes compare as the values do. 0x00 ends a tuple, so a prefix sorts first.

_END, _TUPLE, _NEG_BIG, _INT, _POS_BIG, _FLOAT, _BYTES = 0x00, 0x05, 0x0F, 0x10, 0x12, 0x20, 0x30
_INT_BIAS = 2**63


def encode(key: Key) -> bytes:
    """The key as bytes whose order is the key's order (`_plait_key` of every Spark result).

    >>> encode((1, b"a")) < encode((1, b"b")) < encode((2,))
    True
    """
    out = bytearray()
    for part in key:
        _encode(part, out)
    return bytes(out)


def _encode(value: Any, out: bytearray) -> None:
    if isinstance(value, tuple):
        out.append(_TUPLE)
        for part in value:
            _encode(part, out)
        out.append(_END)
    elif isinstance(value, int):
        _encode_int(value, out)
    elif isinstance(value, float):
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
        flipped = bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 1 << 63
        out.append(_FLOAT)
        out += struct.pack(">Q", flipped)
    elif isinstance(value, (bytes, str)):
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        out.append(_BYTES)
        # A zero byte inside is escaped by 0xFF, above every tag, so that the end marker still sorts first.
        out += raw.replace(b"\x00", b"\x00\xff")
        out.append(_END)
    else:
        raise TypeError(f"no key holds a {type(value).__name__}")


def _encode_int(value: int, out: bytearray) -> None:
    if -_INT_BIAS <= value < _INT_BIAS:
        out.append(_INT)
        out += (value + _INT_BIAS).to_bytes(8, "big")
        return
    size = (abs(value).bit_length() + 7) // 8
    if size > 255:
        raise DataError(
            f"An integer of {size} bytes stands in a key",
            why="a key holds integers of up to 255 bytes",
            do="Cast the column before it enters the query",
        )
    if value > 0:
        out += bytes((_POS_BIG, size)) + value.to_bytes(size, "big")
    else:
        out += bytes((_NEG_BIG, 255 - size)) + (256**size - 1 + value).to_bytes(size, "big")


def decode(encoded: bytes) -> Key:
    """The key that `encode` was given; text comes back as its bytes.

    Raises:
        DataError: The bytes are no key: cut off, or changed.

    >>> decode(encode((5, 0, (b"x", 1.5))))
    (5, 0, (b'x', 1.5))
    """
    parts, at = [], 0
    try:
        while at < len(encoded):
            part, at = _decode(encoded, at)
            parts.append(part)
    except (IndexError, struct.error, RecursionError):
        raise no_key(encoded) from None
    if at != len(encoded):
        raise no_key(encoded)
    return tuple(parts)


def no_key(encoded: bytes) -> DataError:
    """The refusal of bytes that are no key."""
    shown = encoded[:40].hex() + ("..." if len(encoded) > 40 else "")
    return DataError(f"{shown} ({len(encoded)} bytes) is no key", why="it is cut off, or not as encode wrote it")


def _decode(data: bytes, at: int) -> tuple[Any, int]:
    tag, at = data[at], at + 1
    if tag == _TUPLE:
        parts = []
        while data[at] != _END:
            part, at = _decode(data, at)
            parts.append(part)
        return tuple(parts), at + 1
    if tag == _INT:
        return int.from_bytes(data[at : at + 8], "big") - _INT_BIAS, at + 8
    if tag == _FLOAT:
        (flipped,) = struct.unpack(">Q", data[at : at + 8])
        bits = flipped & ~(1 << 63) if flipped >> 63 else flipped ^ 0xFFFFFFFFFFFFFFFF
        return struct.unpack(">d", struct.pack(">Q", bits))[0], at + 8
    if tag == _BYTES:
        end = at
        while data[end] != _END or data[end + 1 : end + 2] == b"\xff":
            end += 2 if data[end] == _END else 1
        return data[at:end].replace(b"\x00\xff", b"\x00"), end + 1
    if tag not in (_POS_BIG, _NEG_BIG):
        raise IndexError(tag)
    size = data[at] if tag == _POS_BIG else 255 - data[at]
    raw = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (raw if tag == _POS_BIG else raw + 1 - 256**size), at + 1 + size
