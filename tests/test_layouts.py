"""Layouts say nothing about values: any type under codes (doubles and NULLs among them), in runs, in views, cut, comes in as its
plain values, and sources and keys are told apart by these alone, on the reference and on threads."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait.errors import QueryError
from plait.layouts import plain_array, plain_type
from plait.query.identical import difference

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [5, 7, -(2**63)]), "text": (pa.string(), ["a", "", "é"]), "view": (pa.string_view(), ["a", "b" * 20]),
    "bytes": (pa.binary_view(), [b"a", b"\0"]), "float": (pa.float32(), [0.5, -1.0]), "time": (pa.timestamp("ns"), [1, 2]),
    "list": (pa.list_(pa.int64()), [[1, None], []]), "view of lists": (pa.list_view(pa.int8()), [[1], []]),
    "struct": (pa.struct([("a", pa.string_view())]), [{"a": "x"}]), "nothing": (pa.null(), [None]),
}  # fmt: skip


def laid_out(kind: pa.DataType, values: list[Any], how: str, dice: random.Random) -> pa.Array:
    """The values under codes or in runs, cut from the middle of an array."""
    own = pa.array([*values, None], kind)
    if how == "runs":
        ends = pa.array(range(2, 2 * len(own) + 2, 2), pa.int32())
        return pa.RunEndEncodedArray.from_arrays(ends, own).slice(1, 2 * len(own) - 2)
    words = pa.concat_arrays([own, own])
    codes = pa.array([dice.choice([None, *range(len(words))]) for _ in range(20)], pa.int8())
    return pa.DictionaryArray.from_arrays(codes, words).slice(2, 15)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("how", ["codes", "runs"])
def test_the_values_stay_and_the_layout_goes(name: str, how: str) -> None:
    kind, values = VALUES[name]
    given = laid_out(kind, values, how, random.Random(1))
    found = plain_array(given)
    found.validate(full=True)
    assert found.type == plain_type(kind) == plain_type(given.type)
    assert found.to_pylist() == given.to_pylist()


@pytest.mark.parametrize(
    "kind", [pa.dense_union([pa.field("a", pa.int8())]), pa.list_(pa.run_end_encoded(pa.int32(), pa.int8()))]
)
def test_what_has_no_plain_layout_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(QueryError, match="Cast it before it comes in"):
        plain_type(kind)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("role", ["source", "by"])
def test_sources_and_keys_are_values_and_not_codes(role: str, seed: int) -> None:
    """Every batch has a dictionary of its own, in which values stand twice and NULL stands, too."""
    dice = random.Random(seed)
    kind, values = dice.choice([(pa.string(), ["a", "b"]), (pa.int64(), [0, 1]), (pa.string_view(), ["a", "b"])])
    nulls = [None] if role == "by" or dice.random() < 0.3 else []
    batches = []
    for start in (0, 5, 10):
        words = pa.array([*values, *values, *nulls], kind)
        codes = pa.array([dice.randrange(len(words)) for _ in range(5)], pa.int8())
        x = pa.DictionaryArray.from_arrays(codes, words)
        batches.append(
            pa.record_batch({"ts": pa.array([start // 5 * 3] * 5), "n": pa.array(range(start, start + 5)), "x": x})
        )
    compute = {"c": plait.collect("n")}
    stream = plait.stream("s", unit="us", source="x" if role == "source" else None)
    query = plait.aggregate(stream, size="10us", by=() if role == "source" else "x", compute=compute)

    def on_threads() -> pa.Table:
        with query.on_threads(schemas={"s": batches[0].schema}, keys=True) as run:
            for batch in batches:
                run.push("s", None, batch)
            run.drain()
            return run.table()

    found: list[Any] = []
    for run in (lambda: query.reference({"s": batches}, keys=True), on_threads):
        try:
            found.append(run())
        except plait.PlaitError as error:
            found.append(str(error))
    if any(isinstance(each, str) for each in found):
        assert all("source column 'x' is NULL" in each for each in found), found
    else:
        assert difference(*found) is None
        assert found[0].schema.equals(found[1].schema)
