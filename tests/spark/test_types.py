"""Columns of many types, at their ends, NULL among them, on Spark: collected, counted, as keys, and seen by functions."""

from __future__ import annotations

import decimal
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.feeds import collected
from tests.type_matrix import told

import plait
from plait.query.identical import difference

pytestmark = pytest.mark.spark

#: Types that Spark has, with values at their ends. Those of times are the numbers that are stored.
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int8(), [-128, 127, 0]), "l": (pa.int64(), [2**63 - 1, -(2**63), 5]),
    "f": (pa.float32(), [1.5, float("nan"), -0.0, 0.0, float("inf")]), "d": (pa.float64(), [0.1, float("nan"), -0.0, 0.0]),
    "t": (pa.string(), ["a", "", "é"]), "b": (pa.binary(), [b"a", b"\0", b""]), "z": (pa.bool_(), [True, False]),
    "n": (pa.decimal128(38, 2), [decimal.Decimal("1.50"), decimal.Decimal(10) ** 35]),
    "day": (pa.date32(), [0, -1, 2**31 - 1, -(2**31)]), "at": (pa.timestamp("us", "UTC"), [0, 2**62, -(2**62), 7]),
    "local": (pa.timestamp("us"), [0, 2**62, 1]), "lists": (pa.list_(pa.timestamp("us", "UTC")), [[1, None], [], [2**62]]),
    "struct": (pa.struct([("d", pa.date32()), ("s", pa.string())]), [{"d": 2**31 - 1, "s": "x"}, {"d": None, "s": "y"}]),
    "map": (pa.map_(pa.string(), pa.timestamp("us", "UTC")), [[("a", 5), ("b", None)], []]),
}  # fmt: skip


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    dice = random.Random(14)

    def table(rows: int) -> pa.Table:
        columns = {
            name: pa.array([None if dice.random() < 0.2 else dice.choice(values) for _ in range(rows)], kind)
            for name, (kind, values) in TYPES.items()
        }
        return pa.table({"ts": pa.array(sorted(dice.randrange(30) for _ in range(rows)), pa.int64()), **columns})

    return {"s": table(24), "u": table(24)}


def _process(state: Any, t: Any) -> Iterator[tuple[str]]:
    yield (";".join(told(t[name]) for name in TYPES),)


S, U = plait.stream("s", unit="us"), plait.stream("u", unit="us")
#: Maps and lists are no values to count.
COMPUTE = {
    **{f"c_{name}": plait.collect(name) for name in TYPES},
    **{f"f_{name}": plait.first(name) for name in TYPES},
    **{f"n_{name}": plait.distinct(name) for name in ("i", "l", "f", "d", "t", "b", "z", "n", "day", "at", "local")},
    "own": plait.custom(["struct", "lists"], init=str, add=lambda s, a, b: f"{s}{told(a)}{told(b)}", type="string"),
}
QUERIES = {
    "windows": plait.aggregate(S, size="12us", advance="6us", compute=COMPUTE),
    "by": plait.aggregate(S, size="20us", by=["day", "d", "at"], compute={"n": plait.count(), "t": plait.max("t")}),
    "as-of": plait.asof(S, U, by="day"),
    "as-of, two kinds of time": plait.asof(S, U, by=[("day", "local")]),
    "operator": plait.operator(
        S, buckets=2, route=lambda t: t.ts % 2, state=dict, process=_process, output={"o": "string"}
    ),
}


@pytest.mark.parametrize("name", QUERIES)
def test_types_at_their_ends(name: str, tables: dict[str, pa.Table], spark: Any, tmp_path: Path) -> None:
    query = QUERIES[name]
    given = {stream: tables[stream] for stream in query.streams()}
    frames = {}
    for stream, table in given.items():
        pq.write_table(table, tmp_path / f"{stream}.parquet")
        frames[stream] = spark.read.parquet(str(tmp_path / f"{stream}.parquet"))
    expected = query.reference(given, keys=True)
    assert expected.num_rows
    got = collected(query.on_spark(frames))
    assert (
        difference(expected, pa.table([got.column(field.name) for field in expected.schema], expected.schema)) is None
    )
