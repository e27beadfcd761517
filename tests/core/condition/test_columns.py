"""Arrow columns as conditions see them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core.condition.columns import Interner, column, constant_code
from plait.errors import DataError


def seen(values: Any, kind: pa.DataType) -> list[Any]:
    """A column's values, NULL as None."""
    array = column(pa.array(values, kind), Interner(), "c")
    valid = np.ones(len(array), bool) if array.valid is None else array.valid
    return [v if ok else None for v, ok in zip(array.data.tolist(), valid, strict=True)]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, -1], pa.int8(), [1, None, -1]),
        ([2**64 - 1, None], pa.uint64(), [2**64 - 1, None]),
        ([0.5, None], pa.float32(), [0.5, None]),
        ([True, None, False], pa.bool_(), [True, None, False]),
        ([1, None], pa.timestamp("s", tz="UTC"), [1_000_000, None]),
        ([1, None], pa.timestamp("ms"), [1_000, None]),
        ([3000, None], pa.timestamp("ns"), [3, None]),
        ([dt.date(1970, 1, 2), None], pa.date32(), [86_400_000_000, None]),
        ([dt.date(1970, 1, 2), None], pa.date64(), [86_400_000_000, None]),
        ([5, None], pa.duration("ms"), [5_000, None]),
        ([None, None], pa.null(), [None, None]),
        ([2**62], pa.timestamp("s"), [2**62 * 1_000_000]),  # exact beyond 64 bits
    ],
)
def test_numbers_and_moments(values: Any, kind: pa.DataType, expected: list[Any]) -> None:
    assert seen(values, kind) == expected


def test_nanoseconds_that_do_not_divide_are_refused() -> None:
    with pytest.raises(DataError, match="1001 ns is no whole microsecond"):
        seen([1000, 1001], pa.timestamp("ns"))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
    ids=str,
)
def test_text_of_every_layout_gets_the_same_codes(kind: pa.DataType) -> None:
    interner = Interner(["a"])
    plain = column(pa.array(["a", "b", None, "b"]), interner, "c")
    other = column(pa.array(["b", "a", None, "c"], pa.string()).cast(kind), interner, "c")
    assert plain.data[0] == constant_code("a") == other.data[1] < 0
    assert plain.data[1] == plain.data[3] == other.data[0] >= 0
    assert other.data[3] not in plain.data.tolist()
    assert other.valid is not None
    assert other.valid.tolist() == [True, True, False, True]


def test_a_dictionary_that_holds_a_null() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int8()), pa.array(["a", None]))
    array = column(values, Interner(), "c")
    assert array.valid is not None
    assert array.valid.tolist() == [True, False, True]


def test_text_and_bytes_do_not_meet() -> None:
    assert constant_code("a") != constant_code(b"a")


def test_an_interner_forgets_what_was_last_seen_before_a_stamp() -> None:
    interner = Interner(["constant"])
    interner.new_stamp()
    first = interner.encode(["a", "b", "constant", None]).tolist()
    second_stamp = interner.new_stamp()
    second = interner.encode(["b", "c"]).tolist()
    assert second[0] == first[1]
    interner.forget(second_stamp)
    assert len(interner) == 3  # b, c and the constant
    interner.new_stamp()
    again = interner.encode(["a", "b", "constant"]).tolist()
    assert again[0] not in first  # a code is never given to another value while anyone may hold it
    assert again[1:] == first[1:3]
