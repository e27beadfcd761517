"""Arrow columns as a condition sees them: numbers, booleans, microseconds, and codes for text and bytes.

Text only meets text, and only by equality, so each distinct value gets a number, its *code*. Equal codes mean equal
values, by construction and not by hash. An interner forgets the values that no live row holds: every encoded batch has
a stamp, and `forget(stamp)` drops what was last seen before it. The constants of the condition are never forgotten:
their codes are negative and a function of the value alone, so that kernels can hold them.
"""

from __future__ import annotations

import decimal
import hashlib
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.condition import bounds
from plait.core.condition.evaluate import Array
from plait.errors import DataError
from plait.query.condition.types import column_type


def constant_code(value: str | bytes) -> int:
    """The code of a constant: 62 bits of its hash, below zero.

    The same in every process and on every machine, so it can stand in the text of a kernel. Text and bytes never share
    one: a letter goes before each. `Interner` asserts that no two constants of a condition have one code.
    """
    raw = b"t" + value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b"b" + value
    return -1 - int.from_bytes(hashlib.sha256(raw).digest()[:8], "big") // 4


class Interner:
    """Codes for text, bytes and integers beyond 64 bits, the same for equal values as long as any live row holds them.

    `_codes` is value -> code, `_values` the way back. Codes of rows are 0, 1, 2 ..., never used again. `_seen` and
    `_batches` say when a value was last there; memory follows the values that live rows hold
    (tests/core/join/test_memory.py). One thread uses it.
    """

    def __init__(self, constants: Iterable[str | bytes] = ()) -> None:
        self._codes: dict[Any, int] = {value: constant_code(value) for value in constants}
        self._values: dict[int, Any] = {code: value for value, code in self._codes.items()}
        assert len(self._values) == len(self._codes), "two constants with one hash"
        self._next = 0
        self._seen: dict[int, int] = {}  # code -> the last stamp it was seen at
        self._batches: deque[tuple[int, list[Any]]] = deque()  # (stamp, values seen then)
        self.stamp = 0

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, value: str | bytes) -> int:
        return self._codes[value]

    def value(self, code: int) -> Any:
        """The value of a code that a live row holds. Text and bytes are new objects each time, as rows' values are."""
        found = self._values[code]
        if isinstance(found, str):
            return found.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
        return (found + b"\0")[:-1] if isinstance(found, bytes) else found

    def new_stamp(self) -> int:
        self.stamp += 1
        return self.stamp

    def encode(self, values: list[Any]) -> np.ndarray:
        """Codes of distinct values, seen at the current stamp; None gets 0 and is masked elsewhere.

        `values` must be distinct, and are kept until they are forgotten: a batch's dictionary, not its rows. int64 comes
        back, one a value.
        """
        codes, seen, out = self._codes, self._seen, np.zeros(len(values), np.int64)
        for at, value in enumerate(values):
            if value is None:
                continue
            code = codes.get(value)
            if code is None:
                code = self._next
                self._next += 1
                codes[value], self._values[code] = code, value
            if code >= 0:
                seen[code] = self.stamp
            out[at] = code
        self._batches.append((self.stamp, values))
        return out

    def forget(self, stamp: int) -> None:
        """Drop every value last seen before `stamp`.

        The caller names the oldest stamp whose rows are still in a window. A value that was seen again later has a later
        stamp in `_seen` and stays; each batch is looked at once, so this costs a constant time a value.
        """
        while self._batches and self._batches[0][0] < stamp:
            at, values = self._batches.popleft()
            for value in values:
                code = self._codes.get(value) if value is not None else None
                if code is not None and self._seen.get(code) == at:
                    del self._seen[code], self._codes[value], self._values[code]


def column(values: pa.Array | pa.ChunkedArray, interner: Interner, name: str) -> Array:
    """One Arrow column as an array the evaluator can use.

    Of text and bytes the codes; of moments, days and spans microseconds; of the rest Arrow's own numbers, in their type,
    maybe without a copy. NULL's place holds 0 or False, and `valid` says where. `name` is for messages.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    kind = column_type(values.type)
    assert kind is not None, name
    if kind == "null":
        return Array("null", np.zeros(len(values), np.int64), np.zeros(len(values), bool))
    if pa.types.is_dictionary(values.type) and values.dictionary.null_count:
        values = values.dictionary_decode()  # a valid index may point at a NULL
    valid = None if values.null_count == 0 else np.asarray(values.is_valid())
    if kind in ("text", "bytes"):
        return Array(kind, _codes(values, interner), valid)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_temporal(values.type):
        return Array(kind, _micros(values, name), valid)
    if valid is not None:
        values = values.fill_null(False if kind == "bool" else 0)
    return Array(kind, values.to_numpy(zero_copy_only=False), valid)


def _codes(values: Any, interner: Interner) -> np.ndarray:
    if not pa.types.is_dictionary(values.type):
        if pa.types.is_string_view(values.type) or pa.types.is_binary_view(values.type):
            wide = pa.large_string() if pa.types.is_string_view(values.type) else pa.large_binary()
            values = values.cast(wide)
        values = pc.dictionary_encode(values)
    if len(values) == 0:
        return np.zeros(0, np.int64)
    codes = interner.encode(values.dictionary.to_pylist())
    indices = values.indices.fill_null(0).to_numpy(zero_copy_only=False)
    out: np.ndarray = codes[indices] if len(codes) else np.zeros(len(values), np.int64)
    return out


def counted(values: pa.Array, name: str) -> pa.Array:
    """Moments, days and spans in microseconds, NULL kept: int64, or decimals where one of them is beyond 64 bits."""
    micros = _micros(values, name)
    if micros.dtype != object:
        return pa.array(micros, mask=np.asarray(values.is_null()) if values.null_count else None)
    there = values.is_valid().to_pylist()
    exact = [decimal.Decimal(count) if ok else None for ok, count in zip(there, micros.tolist(), strict=True)]
    return pa.array(exact, BEYOND)


#: Holds the microseconds of any moment: fewer than 2^63 days.
BEYOND = pa.decimal128(38, 0)
_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1, "day": 86_400_000_000}


def _micros(values: pa.Array, name: str) -> np.ndarray:
    """Moments, days and spans in microseconds: int64 where they all fit, Python's integers otherwise.

    Seconds in 64 bits reach further than microseconds in 64 bits: what does not fit comes as an array of dtype object.
    Nanoseconds that are no whole microsecond are refused with their row, since rounding would make unequal moments equal.
    """
    kind = values.type
    if pa.types.is_date32(kind):
        unit, counted = "day", values.cast(pa.int32()).cast(pa.int64())
    else:
        unit, counted = "ms" if pa.types.is_date64(kind) else kind.unit, values.view(pa.int64())
    counts = counted.fill_null(0).to_numpy(zero_copy_only=False)
    if unit == "ns":
        micros, rest = np.divmod(counts, 1_000)
        if rest.any():
            row = int(np.flatnonzero(rest)[0])
            raise DataError(
                f"Column {name!r}, row {row}: {counts[row]} ns is no whole microsecond",
                why="conditions count time in microseconds, and nothing is rounded silently",
                do="Round the column before it enters the query",
            )
        return np.asarray(micros)
    scale = _PER_UNIT[unit]
    low, high = bounds.of_array(counts)
    if not bounds.fits((low * scale, high * scale), bounds.INT64):
        return np.asarray(counts.astype(object) * scale)
    return np.asarray(counts * scale)
