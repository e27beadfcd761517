"""Layouts say nothing about values: any type under codes (doubles and NULLs among them), in runs, in views, cut, comes in as its
plain values, and sources and keys are told apart by these alone, on the reference and on threads."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import plait
from plait.encodings import plain_array, plain_type
from plait.errors import QueryError
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


_UNION = pa.dense_union([pa.field("a", pa.int8())])


@pytest.mark.parametrize("kind", [_UNION, pa.list_(_UNION), pa.struct([("a", pa.int8()), ("a", pa.int8())])])
def test_what_has_no_plain_layout_is_refused(kind: pa.DataType) -> None:
    with pytest.raises(QueryError, match="Cast it before it comes in"):
        plain_type(kind)


def inside(inner: pa.Array, how: str) -> pa.Array:
    """A column inside others, some of them NULL, cut."""
    n = len(inner)
    gone = pa.array([k % 4 == 1 for k in range(n // 2)])
    ends = pa.array(range(0, n + 1, 2))
    if how == "struct":
        return pa.StructArray.from_arrays(
            [inner, pa.nulls(n)], ["a", "b"], mask=pa.array([k % 4 == 1 for k in range(n)])
        ).slice(1)
    if how == "map":
        names = pa.array(map(str, range(n)), pa.string_view())
        return pa.MapArray.from_arrays(ends.cast(pa.int32()), names, inner).slice(2)
    if how == "fixed":
        return pa.FixedSizeListArray.from_arrays(inner, 2, mask=gone).slice(1)
    make, kind = (pa.LargeListArray, pa.int64()) if how == "large" else (pa.ListArray, pa.int32())
    return make.from_arrays(ends.cast(kind), inner, mask=gone).slice(1, 3)


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("codes", ["plain", "codes", "runs"])
@pytest.mark.parametrize("how", ["struct", "list", "large", "fixed", "map"])
def test_layouts_inside_others_go_too(name: str, codes: str, how: str) -> None:
    kind, values = VALUES[name]
    own = (
        pa.array([*values, None] * 4, kind) if codes == "plain" else laid_out(kind, values * 3, codes, random.Random(2))
    )
    given = inside(own.slice(0, len(own) // 2 * 2), how)
    found = plain_array(given)
    found.validate(full=True)
    assert found.type == plain_type(given.type)
    assert found.to_pylist() == given.to_pylist()


@pytest.mark.parametrize("how", ["struct", "fixed", "list"])
def test_what_lies_under_a_null_is_not_compared(how: str) -> None:
    gone = pa.array([False, False, True, True, *[False] * 4] if how == "struct" else [False, True, False, False])

    def laid(values: pa.Array) -> pa.Array:
        if how == "struct":
            return pa.StructArray.from_arrays([values], ["a"], mask=gone)
        if how == "fixed":
            return pa.FixedSizeListArray.from_arrays(values, 2, mask=gone)
        return pa.ListArray.from_arrays(pa.array([0, 2, 4, 6, 8], pa.int32()), values, mask=gone)

    a, b = laid(pa.array(range(8))), laid(pa.array([0, 1, 90, 91, 4, 5, 6, 7]))
    deep = [pa.ListArray.from_arrays(pa.array([0, len(x)], pa.int32()), x) for x in (a, b)]
    for left, right in ((a, b), deep):
        assert difference(pa.table({"x": left}), pa.table({"x": right})) is None
    other = laid(pa.array([0, 70, 2, 3, 4, 5, 6, 7]))
    found = difference(pa.table({"x": a}), pa.table({"x": other}))
    assert found is not None
    assert found.row == (1 if how == "struct" else 0)


def test_lists_of_nothing_are_compared_whole() -> None:
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 5], pa.int32()), pa.nulls(5))
    other = pa.ListArray.from_arrays(pa.array([0, 3, 5], pa.int32()), pa.nulls(5))
    assert difference(pa.table({"x": lists}), pa.table({"x": lists})) is None
    assert difference(pa.table({"x": lists}), pa.table({"x": other})) is not None


@pytest.mark.parametrize(
    "declared", [pa.dictionary(pa.int32(), pa.string()), pa.string_view(), pa.large_string(), pa.string()]
)
@pytest.mark.parametrize("given", ["plain", "large", "view", "codes", "runs"])
def test_a_declared_layout_says_nothing_either(declared: pa.DataType, given: str) -> None:
    """Any layout may be declared and any given: the result has the declared type's plain one, on both executors."""
    values = pa.array(["a", None, "a"])
    rows = {
        "plain": values, "large": values.cast(pa.large_string()), "view": values.cast(pa.string_view()),
        "codes": values.dictionary_encode(), "runs": pc.run_end_encode(values),
    }  # fmt: skip
    table = pa.table({"ts": pa.array([1, 2, 3]), "x": rows[given]})
    stream = plait.stream("s", unit="us", schema={"ts": "int64", "x": declared})
    query = plait.aggregate(stream, size="10us", by="x", compute={"c": plait.collect("x")})
    expected = query.reference({"s": table})
    with query.on_threads() as run:
        run.push("s", None, table)
        run.drain()
        got = run.table()
    assert expected.schema.field("x").type == plain_type(declared)
    assert difference(expected, got) is None
    assert got.column("c").to_pylist() == [["a", "a"], [None]]


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
