"""Expressions of one row over batches, held against the reference's reading of the same words, at the ends of every type."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from tests.fuzz.queries import VALUES
from tests.fuzz.values import COLUMNS, stored

import plait
from plait.query.condition.expression import TIME_PARTS
from plait.query.identical import difference

S = plait.stream("s", unit="us")

#: Words beside those of the fuzzer's: every operator, of every pair of kinds.
ARITHMETIC = [f"{a} {op} {b}" for op in ("+", "-", "*", "/", "%") for a, b in itertools.product("kiuxq", repeat=2)]
PYTHON: list[tuple[str, Any]] = [
    ("//", lambda row: row.k // row.i), ("%", lambda row: row.k % row.i), ("/", lambda row: row.x / row.k),
    ("neg", lambda row: -row.q), ("abs", lambda row: abs(row.k)), ("between", lambda row: row.k.between(0, row.i)),
    ("cast", lambda row: row.x.cast("int8")), ("like", lambda row: row.s.like("a%")), ("not", lambda row: ~(row.x < 1)),
    ("is_null", lambda row: row.y.is_null()), ("moments", lambda row: row.t - row.g),
    ("greatest", lambda row: plait.maximum(row.x, row.q)),
    *((f"when {a}{b}", lambda row, a=a, b=b: plait.when(row.b, row[a]).when(row.k > 0, row[b]).otherwise(None))
      for a, b in itertools.product("kiuxqp", repeat=2)),
    *((f"coalesce {a}{b}", lambda row, a=a, b=b: plait.coalesce(row[a], row[b])) for a, b in itertools.product("swe", repeat=2)),
    ("bytes", lambda row: plait.when(row.b, row.y).otherwise(b"-")),
    *((part, lambda row, part=part: getattr(row.t, part)()) for part in TIME_PARTS),
    *((part, lambda row, part=part: getattr(row.d, part)()) for part in TIME_PARTS),
]  # fmt: skip


def rows(*, ends: bool) -> pa.Table:
    """Every value of every column beside a few of the others, and NULLs; with `ends` those near the end of its type, too."""
    made = {}
    for at, (name, (kind, small, wide)) in enumerate(COLUMNS.items()):
        values = [*small, *(wide if ends else ()), None]
        made[name] = stored(kind, [values[(n * (at + 1) + n // 7) % len(values)] for n in range(40)])
    return pa.table({"ts": pa.array(range(40), pa.int64()), **made})


def same(query: plait.Query, table: pa.Table) -> None:
    """The same rows, or the same kind of refusal."""
    found: list[Any] = []
    for run in (query.reference, query.run):
        try:
            found.append(run({"s": table}))
        except plait.PlaitError as error:
            found.append((type(error), str(error).split(" would be ")[0]))
    expected, got = found
    assert difference(expected, got) is None if isinstance(expected, pa.Table) else got == expected


@pytest.mark.parametrize("ends", [False, True], ids=["small", "ends"])
def test_values_are_the_references(ends: bool) -> None:
    table = rows(ends=ends)
    for _, given, _ in VALUES:
        same(S.select(z=given), table)
    for text in ARITHMETIC:
        same(S.select(z=text), table)
    for _, function in PYTHON:
        same(S.select(z=function), table)


def test_what_is_left_out_first_is_not_computed() -> None:
    table = pa.table({"ts": [1, 2], "k": [2**62, 1]})
    query = S.where("k < 10").select(z="k * 4")
    assert query.run({"s": table})["z"].to_pylist() == query.reference({"s": table})["z"].to_pylist() == [4]
    for run in (S.select(z="k * 4").run, S.select(z="k * 4").reference):
        with pytest.raises(
            plait.DataError, match=r"'z' would be 18446744073709551616 in the row at ts 1, which is no int64"
        ):
            run({"s": table})


@pytest.mark.parametrize(("returned", "kind", "said"), [
    (1.5, "int64", "declared int64|is no int64"), (3.0, "int64", "3.0"), ("x", "float64", "float64|double"),
    (True, "int64", "True|bool"),
])  # fmt: skip
def test_a_function_gives_what_it_says(returned: Any, kind: str, said: str) -> None:
    def function(row: Any) -> Any:
        return returned if row.k > 0 else None

    query = S.select(z=(function, kind))
    table = pa.table({"ts": [1, 2], "k": [0, 1]})
    for run in (query.run, query.reference):
        with pytest.raises(plait.DataError, match=said):
            run({"s": table})


def test_a_function_that_raises_is_told_with_its_row() -> None:
    def function(row: Any) -> Any:
        return 1 // 0 if row.k > 0 else 0

    for query in (S.select(z=(function, "int64")), S.where(function)):
        for run in (query.run, query.reference):
            with pytest.raises(plait.RunError, match=r"ZeroDivisionError.*ts 2"):
                run({"s": pa.table({"ts": [1, 2], "k": [0, 1]})})


def price(row: Any) -> int:
    return 100 if row.k > 0 else 0


def test_a_function_is_not_taken_for_a_column_of_its_name() -> None:
    """Nor is one that traces for another function with the same words; a column may be called anything."""
    table = pa.table({"ts": [1, 2], "k": [1, 2], "price": [7, 7]})
    compute = {
        "s": plait.sum((price, "int64")),
        "a": plait.sum(lambda row: row.k + 1),
        "b": plait.max(lambda row: row.k + 1),
    }
    query = plait.aggregate(S, size="9us", by={"price": "price", "odd": "k % 1"}, compute=compute)
    for run in (query.reference, query.run):
        assert run({"s": table}).select(["price", "odd", "s", "a", "b"]).to_pylist() == [
            {"price": 7, "odd": 0, "s": 200, "a": 5, "b": 3}
        ]
    assert S.select(self="k", names="k").run({"s": table}).column_names == ["ts", "self", "names"]
