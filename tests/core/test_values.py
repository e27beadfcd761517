"""Keys at the ends of their types: equal values are equal on every executor, however many bits a moment needs."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import plait
from plait.core.key_numbers import KeyNumbers
from plait.core.values import compared_as, joint_column, joint_numbers, key_words, user_values
from plait.query.identical import difference
from plait.spark.pack.ship import HashColumns, words

END = 2**63
DAY_MS = 86_400_000


def stored(kind: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int32() if pa.types.is_date32(kind) else pa.int64()).view(kind)


SECONDS = (1 - END, END - 1, 0, 86_400, 2**53, 2**53 + 1, None)
COLUMNS = {
    "int64": pa.array([-END, END - 1, 2**53, 2**53 + 1, 0, 86_400_000_000, None], pa.int64()),
    "uint64": pa.array([2**64 - 1, END - 1, 2**53, 2**53 + 1, 0, 86_400_000_000, None], pa.uint64()),
    "double": pa.array([-float(END), float(END), 2.0**53, -0.0, float(2**53 + 2) * 1e6, 86_400e6, float("nan")], pa.float64()),
    "date32": stored(pa.date32(), -(2**31), 2**31 - 1, 0, 1, 2, 3, None),
    "date64": stored(pa.date64(), *(DAY_MS * k for k in (1 - END // DAY_MS, END // DAY_MS, 0, 1, 2, 7)), None),
    "ts_s": stored(pa.timestamp("s"), *SECONDS),
    "ts_ms": stored(pa.timestamp("ms"), *SECONDS[:3], 86_400_000, 2**53, 2**53 + 1, None),
    "ts_us": stored(pa.timestamp("us"), *SECONDS[:3], 86_400_000_000, 2**53, 2**53 + 1, None),
    "ts_ns": stored(pa.timestamp("ns"), *(1_000 * k for k in (1 - END // 1_000, END // 1_000, 0, 86_400 * 10**6, 2, 3)), None),
    "span_s": stored(pa.duration("s"), *SECONDS),
    "span_us": stored(pa.duration("us"), *SECONDS[:3], 86_400_000_000, 2**53, 2**53 + 1, None),
}  # fmt: skip
PAIRS = list(itertools.product(COLUMNS, COLUMNS))


def equal(a: pa.Array, b: pa.Array) -> np.ndarray:
    """By Python's own values: which of `a` equals which of `b`."""
    as_float = any(pa.types.is_floating(x.type) for x in (a, b))
    left, right = ([v if v is None or not as_float else float(v) for v in user_values(x)] for x in (a, b))
    return np.array([[x is not None and x == y for y in right] for x in left])


@pytest.mark.parametrize("left", COLUMNS)
def test_asof_on_threads_gives_the_references_rows(left: str) -> None:
    query = plait.asof(plait.stream("a", unit="us"), plait.stream("b", unit="us"), by="k")
    for right in COLUMNS:
        data = {
            "a": pa.table({"ts": range(100, 107), "k": COLUMNS[left]}),
            "b": pa.table({"ts": range(7), "k": COLUMNS[right], "v": range(7)}),
        }
        with query.on_threads(schemas={n: t.schema for n, t in data.items()}, keys=True) as run:
            for name, table in data.items():
                run.push(name, None, table)
            run.drain()
            assert difference(query.reference(data, keys=True), run.table()) is None, right


def test_asof_on_spark_finds_equal_keys() -> None:
    for a, b in ((COLUMNS[x], COLUMNS[y]) for x, y in PAIRS):
        joint: Any = joint_column(a, b).to_pylist()
        left, right = joint[: len(a)], joint[len(a) :]
        found = np.array([[x is not None and x == x and x == y for y in right] for x in left])
        assert (found == equal(a, b)).all(), (a.type, b.type)


def test_equal_keys_go_to_one_cell_on_spark() -> None:
    for a, b in ((COLUMNS[x], COLUMNS[y]) for x, y in PAIRS):
        plan = HashColumns((("k",), ("k",)), (compared_as(a.type, b.type),))
        left, right = (words(plan, n, pa.table({"k": x})) for n, x in enumerate((a, b)))
        assert (left[:, None] == right[None, :])[equal(a, b)].all(), (a.type, b.type)


@pytest.mark.parametrize("left", COLUMNS)
def test_numbers_are_equal_where_values_are_and_nowhere_else(left: str) -> None:
    """As threads give them, batch by batch, and as Spark does, both sides at once; a second column may tell keys apart."""
    for right in COLUMNS:
        a, b = COLUMNS[left], COLUMNS[right]
        known = KeyNumbers([compared_as(a.type, b.type)])
        parts = [known.of([part], len(part)) for part in (a.slice(0, 3), b, a.slice(3))]
        whole = np.concatenate([parts[0], parts[2]])
        assert ((whole[:, None] == parts[1][None, :]) & (whole[:, None] >= 0) == equal(a, b)).all(), right
        other = pa.array([0, 1, 0, 1, 0, 1, 0])
        both = equal(a, b) & equal(other, other)
        numbers = joint_numbers([(a, b), (other, other)], len(a), len(b))
        assert ((numbers[0][:, None] == numbers[1][None, :]) & (numbers[0][:, None] >= 0) == both).all(), right
        known = KeyNumbers([compared_as(a.type, b.type), "int"])
        found = [known.of([column, other], len(column)) for column in (a, b)]
        assert ((found[0][:, None] == found[1][None, :]) & (found[0][:, None] >= 0) == both).all(), right


def test_text_of_any_layout_has_the_words_of_the_same_text() -> None:
    texts = ["a", "", None, "é" * 20, "a"]
    plain = key_words(pa.array(texts), "value")
    assert plain[0] == plain[4] != plain[3]
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert (
            key_words(pa.chunked_array([pa.array(texts[:2], kind), pa.array(texts[2:], kind)]), "value") == plain
        ).all()
