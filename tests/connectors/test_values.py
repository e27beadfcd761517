"""A value comes in as it is, or is refused: every pair of a value and a type, in every way that a column can be given.

What is the same value is said here once more, in a table, and not by the code under test."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import plait
from plait.connectors import feed
from plait.errors import DataError

UTC = dt.UTC
NOON, DAY = dt.datetime(2020, 1, 1, 12), dt.date(2020, 1, 1)  # noqa: DTZ001 (without a zone, on purpose)

#: Columns, and which values each of them can hold; every other pair is refused.
KINDS: dict[str, pa.DataType] = {
    "bool": pa.bool_(), "int8": pa.int8(), "int64": pa.int64(), "uint64": pa.uint64(), "float32": pa.float32(),
    "float64": pa.float64(), "decimal": pa.decimal128(12, 3), "string": pa.string(), "large_string": pa.large_string(),
    "binary": pa.binary(), "date32": pa.date32(), "second": pa.timestamp("s"), "moment": pa.timestamp("us"),
    "zoned": pa.timestamp("us", "UTC"), "span": pa.duration("s"), "time": pa.time32("s"), "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
}  # fmt: skip
NUMBERS = {"int8", "int64", "uint64", "float32", "float64", "decimal"}
COUNTS = {"date32", "second", "moment", "zoned", "span", "time"}
TEXT = {"string", "large_string"}
VALUES: list[tuple[Any, set[str]]] = [
    (True, {"bool"}),
    (np.bool_(True), {"bool"}),
    (0, NUMBERS | COUNTS),
    (7, NUMBERS | COUNTS),
    (300, NUMBERS - {"int8"} | COUNTS),
    (-1, NUMBERS - {"uint64"} | COUNTS),
    (np.int64(7), NUMBERS | COUNTS),
    (2**24 + 1, {"int64", "uint64", "float64", "decimal"} | COUNTS),
    (2**53 + 1, {"int64", "uint64"} | COUNTS - {"date32", "time"}),
    (1.5, {"float32", "float64"}),
    (3.0, {"float32", "float64"}),
    (-0.0, {"float32", "float64"}),
    (0.1, {"float32", "float64"}),
    (math.inf, {"float32", "float64"}),
    (math.nan, {"float32", "float64"}),
    (1e300, {"float64"}),
    (np.float64(1.5), {"float32", "float64"}),
    (np.float32(0.1), {"float32", "float64"}),
    (decimal.Decimal("1.5"), {"decimal"}),
    (decimal.Decimal("1.2345"), set()),
    (decimal.Decimal(7), {"decimal"}),
    ("7", TEXT),
    ("", TEXT),
    (b"7", {"binary"}),
    (bytearray(b"7"), {"binary"}),
    (NOON, {"second", "moment"}),
    (NOON.replace(microsecond=5), {"moment"}),
    (NOON.replace(tzinfo=UTC), {"zoned"}),
    (DAY, {"date32"}),
    (pd.Timestamp(1, unit="ns"), set()),
    (dt.timedelta(seconds=5), {"span"}),
    (dt.timedelta(microseconds=5), set()),
    (dt.time(1, 2, 3), {"time"}),
    (dt.time(1, 2, 3, 4), set()),
    (dt.time(1, tzinfo=UTC), set()),
    ([1, 2], {"list"}),
    ((1, 2), {"list"}),
    ([1.5], set()),
    ([True], set()),
    ({1}, set()),
    ({"a": 1}, {"struct"}),
    ({"a": 1, "b": "x"}, {"struct"}),
    ({"a": 1.5}, set()),
    ({"a": 1, "z": 2}, set()),
    ([], {"list"}),
    ({}, {"struct"}),
    (1j, set()),
    (object(), set()),
]


def brought(stream: Any, data: Any) -> pa.Array:
    lane = feed(stream, data).lanes[0]
    return pa.Table.from_batches([chunk.batch for chunk in lane.read()])["x"].combine_chunks()


def same(value: Any, back: Any, name: str) -> bool:
    if name in COUNTS and isinstance(value, int):
        return True  # the count itself is compared below
    if name == "float32":
        return np.float32(value).tobytes() == np.float32(back).tobytes() or math.isnan(value)
    if isinstance(value, float) and math.isnan(value):
        return math.isnan(back)
    if isinstance(value, dict):
        return all(back[k] == value.get(k) for k in back)
    return bool((list(value) if isinstance(value, tuple) else value) == back)


@pytest.mark.parametrize("name", KINDS)
def test_every_value_in_every_column(name: str) -> None:
    """Beside a NULL, in a declared column of lists, of objects of NumPy's, and of pandas' (which have one mark for no value)."""
    stream = plait.stream("s", unit="us", schema={"ts": pa.int64(), "x": KINDS[name]})
    for value, fits in VALUES:
        objects = np.empty(2, object)
        objects[0] = value
        for given in ([value, None], objects):
            if name not in fits:
                with pytest.raises(DataError):
                    brought(stream, {"ts": [1, 2], "x": given})
                continue
            found = brought(stream, {"ts": [1, 2], "x": given})
            assert found.type == KINDS[name]
            if name in COUNTS and isinstance(value, (int, np.integer)):
                assert found.view(pa.int32() if found.type.bit_width == 32 else pa.int64()).to_pylist() == [value, None]
            else:
                assert found[1].as_py() is None
                assert same(value, found[0].as_py(), name), (value, found)


@pytest.mark.parametrize("seed", range(40))
def test_values_of_different_kinds_have_no_common_type_in_which_one_changes(seed: int) -> None:
    """Where no type is declared, Arrow chooses one for all: none of the values may be another there."""
    dice = random.Random(seed)
    for _ in range(20):
        values = [dice.choice(VALUES)[0] for _ in range(dice.randint(1, 3))]
        for given in ({"ts": [1] * len(values), "x": values}, _frame(values)):
            try:
                found = brought(plait.stream("s", unit="us"), given)
            except DataError:
                continue
            frame = isinstance(given, pd.DataFrame)
            for value, back in zip(values, found.to_pylist(), strict=True):
                assert _kept(value, back, frame), (values, found)


def _frame(values: list[Any]) -> pd.DataFrame:
    column = pd.Series([None] * len(values), dtype=object)
    for k, value in enumerate(values):
        column[k] = value
    return pd.DataFrame({"ts": [1] * len(values), "x": column})


def _kept(value: Any, back: Any, frame: bool) -> bool:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return back is None if frame else math.isnan(back)
    if isinstance(value, dict):
        return all(_kept(value.get(k), back[k], frame) for k in back) and set(value) <= set(back)
    if isinstance(value, (list, tuple)):
        return all(_kept(a, b, frame) for a, b in zip(value, back, strict=True))
    kinds = (bool, str, (bytes, bytearray), dt.datetime)
    alike = all(isinstance(value, kind) == isinstance(back, kind) for kind in kinds)
    return alike and bool(value == back) and (getattr(value, "nanosecond", 0) == 0)


#: NumPy's columns, and those of KINDS that they may come to.
ARRAYS: list[tuple[np.ndarray, set[str]]] = [
    (np.array([1.5, 2.0]), {"float64", "float32"}),
    (np.array([0.1]), {"float64"}),
    (np.array([3.0]), {"float32", "float64"}),
    (np.array([7]), NUMBERS - {"decimal"} | COUNTS),
    (np.array([2**53 + 1]), {"int64", "uint64"} | COUNTS - {"date32", "time"}),
    (np.array([2**53]), {"int64", "uint64", "float32", "float64"} | COUNTS - {"date32", "time"}),
    (np.array([True]), {"bool"}),
    (np.array([-1]), NUMBERS - {"uint64", "decimal"} | COUNTS),
    (np.array([2**64 - 1], np.uint64), {"uint64"}),
    (np.array(["a"]), TEXT),
    (np.array([b"a"]), {"binary"}),
    (np.array([1], "M8[us]"), {"moment"}),
    (np.array([10**6], "M8[us]"), {"moment", "second"}),
    (np.array([1], "M8[D]"), {"date32"}),
    (np.array([1], "m8[us]"), set()),
    (np.array([10**6], "m8[us]"), {"span"}),
    (np.array([0.1], np.float32), {"float32", "float64"}),
    (np.array([math.nan]), {"float32", "float64"}),
]


@pytest.mark.parametrize("name", KINDS)
def test_every_array_in_every_column(name: str) -> None:
    stream = plait.stream("s", unit="us", schema={"ts": pa.int64(), "x": KINDS[name]})
    for array, fits in ARRAYS:
        given = {"ts": [1] * len(array), "x": array}
        if name not in fits:
            with pytest.raises(DataError):
                brought(stream, given)
        elif array.dtype.kind in "mM" or name in COUNTS:
            assert brought(stream, given).type == KINDS[name]
        else:
            assert np.array_equal(
                np.array(brought(stream, given).to_pylist()), array, equal_nan=array.dtype.kind == "f"
            )


@pytest.mark.parametrize("later", [[1.5, None], [3.0, 4.0], [True, False], np.array([1.5, 2.0]), ["1", "2"], [2, None]])
def test_a_later_push_is_held_to_the_columns_of_the_first(later: Any) -> None:
    query = plait.aggregate(plait.stream("s", unit="us"), size="1s", compute={"all": plait.collect("x")})
    with query.on_threads(workers=1) as run:
        run.push("s", None, {"ts": [1], "x": [1]})
        if isinstance(later, list) and later == [2, None]:
            run.push("s", None, {"ts": [2, 3], "x": later})
            run.drain()
            assert run.table()["all"].to_pylist() == [[1, 2, None]]
            return
        for _ in range(2):  # what was refused stops the run
            with pytest.raises(DataError, match=r"converted silently|does not fit"):
                run.push("s", None, {"ts": [2, 3], "x": later})
        with pytest.raises(DataError, match=r"converted silently|does not fit"):
            run.drain()


@pytest.mark.parametrize("value", [1.5, 3.0, True, "3", 2**70])
def test_what_a_function_gives_out_is_held_to_the_same_rule(value: Any) -> None:
    stream = plait.stream("s", unit="us")
    given = {"buckets": 1, "route": lambda t: 0, "state": dict, "process": lambda state, t: [(value,)]}
    query = plait.operator(stream, output={"x": "int64"}, **given)
    with pytest.raises(DataError, match="which is no int64"):
        query.reference({"s": {"ts": [1]}})
    with query.on_threads() as run:
        run.push("s", None, {"ts": [1]})
        run.drain()
        with pytest.raises(DataError, match="which is no int64"):
            list(run.results())


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_bytes_are_base64_in_files_whatever_their_layout(tmp_path: Any, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.write_text("ts,x\n1,YWI=\n" if ending == "csv" else '{"ts": 1, "x": "YWI="}\n')
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)):
        stream = plait.stream("s", unit="us", schema={"ts": pa.int64(), "x": kind})
        assert brought(stream, path).to_pylist() == [b"ab"]
