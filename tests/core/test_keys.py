"""Order keys a column at a time: as one tuple's are encoded, and rows merged as their keys' bytes sort."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.core import keys
from plait.order import AFTER_INPUTS, encode, key_value

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "numbers": (pa.int32(), [3, -1, 0, None, 2**31 - 1]),
    "unsigned": (pa.uint64(), [3, 0, None, 2**64 - 1]),
    "floats": (pa.float64(), [1.5, math.nan, None, -math.inf, 0.0, math.inf]),
    "text": (pa.string(), ["b", "", "é", None, "ab", "a\0b", "a"]),
    "bytes": (pa.large_binary(), [b"\xff", b"", b"\0", None]),
    "booleans": (pa.bool_(), [True, None, False]),
    "days": (pa.date32(), [3, None, -1]),
    "nothing": (pa.null(), [None]),
    "views": (pa.string_view(), ["b", None, "a" * 40]),
}


def drawn(seed: int, n: int, kind: pa.DataType, pool: list[Any]) -> pa.Array:
    chance = random.Random(seed)
    return pa.array([chance.choice(pool) for _ in range(n)], kind)


@pytest.mark.parametrize("second", ["numbers", "text"])
@pytest.mark.parametrize("first", COLUMNS)
def test_rows_are_merged_as_the_bytes_of_their_keys_sort(first: str, second: str) -> None:
    n = 60
    ts = drawn(1, n, pa.timestamp("us"), [5, -2, 7])
    columns = [drawn(2, n, *COLUMNS[first]), drawn(3, n, *COLUMNS[second])]
    made = keys.window_rows(ts, columns).to_pylist()
    assert made == [
        encode((t, *(key_value(v.as_py() if k != 0 or first != "days" else v.value) for k, v in enumerate(row))))
        for t, *row in zip(ts.cast(pa.int64()).to_pylist(), *columns, strict=True)
    ]
    expected = sorted(range(n), key=lambda at: (made[at], at))
    assert keys.in_order_of([ts, *columns]).to_pylist() == expected
    cut = [pa.chunked_array([column.slice(0, 20), column.slice(20)]) for column in columns]
    assert keys.in_order_of([keys.ts_numbers(ts), *cut]).to_pylist() == expected


@pytest.mark.parametrize("seed", range(8))
def test_pairs_are_merged_as_the_bytes_of_their_keys_sort(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of few moments, so that many are alike in ts and input; some several times, one that is empty; whole or in pieces."""
    monkeypatch.setattr(keys, "_STRETCH", 3)
    chance = random.Random(seed)
    different = [
        encode((chance.randrange(2), chance.randrange(2), chance.choice(("b", "é", "")), chance.randrange(-2, 2)))
        for _ in range(12)
    ]
    found = [chance.choice(different) for _ in range(30)] + [b""]
    sliced = pa.array([b"before", *found], pa.binary()).slice(1)
    first, second = (np.array([chance.randrange(len(found)) for _ in range(200)]) for _ in range(2))
    order = keys.in_order_of_pairs(sliced, first, second).tolist()
    assert order == sorted(range(200), key=lambda k: (found[first[k]], found[second[k]], k))
    chunks = pa.chunked_array([sliced.slice(0, 9), sliced.slice(9, 0), sliced.slice(9, 5), sliced.slice(14)])
    assert keys.in_order_of_pairs(chunks, first, second).tolist() == order
    named = np.array(sorted(chance.sample(range(len(found)), 12)))
    assert keys.at(chunks, named).to_pylist() == keys.at(sliced, named).to_pylist() == [found[k] for k in named]
    nested = keys.nest(sliced.take(pa.array(first)), sliced.take(pa.array(second)), n=200).to_pylist()
    assert [nested[k] for k in order] == sorted(nested)


def test_equal_rows_are_told_apart_by_their_numbers() -> None:
    own = pa.array([encode(("a",)), encode(("a",)), encode(("b",))], pa.binary())
    told = keys.told_apart(own, np.array([0, 1, 0])).to_pylist()
    assert told == [encode(("a",)), encode(("a", 1)), encode(("b",))]
    assert told == sorted(told)
    assert keys.told_apart(own, np.zeros(3, np.int64)) is own


def test_what_comes_at_last_follows_every_input() -> None:
    (made,) = keys.at_last(np.array([7])).to_pylist()
    assert made == encode((7, AFTER_INPUTS))
    assert encode((7, 2**20, "z")) < made < encode((8, 0))
