"""Numbers for keys that come batch after batch, held against a dict of Python's values."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.core.key_numbers import KeyNumbers
from plait.core.values import Form

KINDS: dict[str, tuple[Form, pa.DataType, st.SearchStrategy[Any]]] = {
    "text": ("value", pa.string(), st.text(st.sampled_from("ab\0é\U0001f600"), max_size=20)),
    "large text": ("value", pa.large_string(), st.text(max_size=9)),
    "views": ("value", pa.string_view(), st.text(st.sampled_from("xy"), max_size=30)),
    "bytes": ("value", pa.binary(), st.binary(max_size=17)),
    "dictionary": ("value", pa.dictionary(pa.int8(), pa.string()), st.sampled_from(("", "a", "aa", "b"))),
    "bool": ("value", pa.bool_(), st.booleans()),
    "int": ("int", pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2)),
    "unsigned": ("int", pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 2)),
    "float": ("float", pa.float64(), st.floats() | st.sampled_from((0.0, -0.0, 1.0))),
}


def known_as(values: list[Any], known: dict[Any, int]) -> list[int]:
    """-1 for NULL and NaN; else the number of the first equal key."""
    lacking = [any(v is None or v != v for v in key) for key in values]
    return [-1 if gone else known.setdefault(key, len(known)) for key, gone in zip(values, lacking, strict=True)]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_one_column(kind: str, data: st.DataObject) -> None:
    form, type_, values = KINDS[kind]
    numbers, known = KeyNumbers([form]), {}
    for batch in data.draw(st.lists(st.lists(st.none() | values, max_size=8), max_size=4)):
        whole = pa.array([None, *batch], pa.string() if pa.types.is_dictionary(type_) else type_)
        column = (whole.dictionary_encode() if pa.types.is_dictionary(type_) else whole).slice(1)
        assert numbers.of([column], len(batch)).tolist() == known_as([(v,) for v in batch], known)


@given(data=st.data())
def test_several_columns(data: st.DataObject) -> None:
    """Number n is not the n-th key's here: columns are numbered first. Equal keys have equal numbers, and no others."""
    chosen = data.draw(st.lists(st.sampled_from(sorted(KINDS)[3:]), min_size=2, max_size=3))
    numbers, known, seen = KeyNumbers([KINDS[kind][0] for kind in chosen]), {}, {}
    for _ in range(3):
        n = data.draw(st.integers(0, 6))
        lists = [data.draw(st.lists(st.none() | KINDS[k][2], min_size=n, max_size=n)) for k in chosen]
        columns = [
            pa.array(values, pa.string() if k == "dictionary" else KINDS[k][1])
            for k, values in zip(chosen, lists, strict=True)
        ]
        found = numbers.of(columns, n).tolist()
        for number, own in zip(found, known_as(list(zip(*lists, strict=True)), known), strict=True):
            assert (number < 0) == (own < 0)
            assert seen.setdefault(number, own) == own
    assert len(set(seen.values())) == len(seen)


@pytest.mark.parametrize("of", ["text", "int"])
def test_tables_grow(of: str) -> None:
    """More keys than there is room for at first, many times over, and bytes longer than all before."""
    chance, known = random.Random(3), {}
    numbers = KeyNumbers(["value" if of == "text" else "int"])
    for _ in range(20):
        drawn = [chance.randrange(30_000) for _ in range(2_000)]
        values = [f"{n}" * (1 + n % 40) for n in drawn] if of == "text" else drawn
        assert numbers.of([pa.array(values)], len(values)).tolist() == known_as([(v,) for v in values], known)
    huge = "x" * 1_000_000
    if of == "text":
        assert numbers.of([pa.array([huge, "1", huge])], 3).tolist() == known_as([(huge,), ("1",), (huge,)], known)


def test_without_columns_all_keys_are_equal() -> None:
    assert KeyNumbers([]).of([], 3).tolist() == [0, 0, 0]
    assert KeyNumbers(["int"]).of([pa.nulls(2)], 2).tolist() == [-1, -1]
    assert KeyNumbers(["value"]).of([pa.chunked_array([], pa.string())], 0).tolist() == np.empty(0).tolist()
