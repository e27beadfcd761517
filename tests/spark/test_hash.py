"""`layout="hash"`: tuples go by the values that must be equal, and the result is the reference's, whatever these are."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected, write_files

import plait
from plait.spark.pack.ship import HashColumns, words

pytestmark = pytest.mark.spark

#: Keys that are equal and look different, that look equal and are not, and one that most rows have.
INTS = (None, 0, -1, 2**53, 2**53 + 1, *[7] * 12)
FLOATS = (None, math.nan, -0.0, 0.0, math.inf, -math.inf, 0.1, float(2**53), -1.0, *[7.0] * 12)
TEXTS = (None, "", "a", "á", "a\u0301", *["hot"] * 12)

QUERIES = {
    "float = int": lambda l, r: plait.join(l, r, on="l.f = r.i and l.ts <= r.ts", within=3),
    "float32 = float": lambda l, r: plait.join(l, r, on="l.g = r.f", within=(4, 0)),
    "text and int, left": lambda l, r: plait.join(l, r, on="l.t = r.t and l.i = r.i", within=(2, 5), how="left"),
    "text, right": lambda l, r: plait.join(l, r, on="l.t = r.t", within=(5, 2), how="right"),
    "text and int, full": lambda l, r: plait.join(l, r, on="l.t = r.t and l.i = r.i", within=(5, 2), how="full"),
    "float, anti": lambda l, r: plait.join(l, r, on="l.f = r.f", within=2, how="anti"),
    "as-of by float": lambda l, r: plait.asof(l, r, by="f", within=9),
    "as-of by text": lambda l, r: plait.asof(l, r, by="t"),
}


@pytest.mark.parametrize(
    ("form", "left", "right"),
    [
        ("float", pa.array([-0.0, 0.0, 7.0, math.inf]), pa.array([0.0, -0.0, 7.0, math.inf])),
        ("float", pa.array([-1.0, float(2**53)]), pa.array([-1, 2**53], pa.int64())),
        ("float", pa.array([0.5, -0.0], pa.float32()), pa.array([0.5, 0.0], pa.float64())),
        ("int", pa.array([-1, 7], pa.int8()), pa.array([-1, 7], pa.int64())),
        ("int", pa.array([2**63, 7], pa.uint64()), pa.array([2**63, 7], pa.uint64())),
        ("int", pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32()),
         pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32())),
        ("int", pa.array([-1, 2], pa.int32()).view(pa.date32()),
         pa.array([-86_400_000_000, 172_800_000_000], pa.timestamp("us"))),
        ("float", pa.array([-(2**31), 0, 3], pa.int32()).view(pa.date32()),
         pa.array([-(2.0**31) * 86_400_000_000, -0.0, 259_200e6])),
        ("value", pa.array(["a", "hot"]), pa.array(["a", "hot"]).dictionary_encode()),
    ],
)  # fmt: skip
def test_equal_values_go_to_the_same_cell(form: str, left: pa.Array, right: pa.Array) -> None:
    plan = HashColumns((("l",), ("r",)), (form,))
    ours, theirs = words(plan, 0, pa.table({"l": left})), words(plan, 1, pa.table({"r": right}))
    assert ours.tolist() == theirs.tolist()
    if form != "float":
        assert len(set(ours.tolist())) == len(left), "different values fall together"
    # NULL equals nothing and may go anywhere, but it must not stop the rest.
    some = pa.concat_arrays([left, pa.nulls(1, left.type)])
    assert words(plan, 0, pa.table({"l": some})).tolist()[:-1] == ours.tolist()


def table(chance: random.Random, count: int = 160) -> pa.Table:
    def some(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
        return pa.array([chance.choice(values) for _ in range(count)], kind)

    return pa.table({
        "ts": pa.array([k // 3 for k in range(count)], pa.int64()), "n": pa.array(range(count), pa.int64()),
        "i": some(INTS, pa.int64()), "f": some(FLOATS, pa.float64()), "g": some(FLOATS, pa.float32()),
        "t": some(TEXTS, pa.string()),
    })  # fmt: skip


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    folder, chance = tmp_path_factory.mktemp("hash"), random.Random(5)
    tables = {name: table(chance) for name in "ab"}
    for name, rows in tables.items():
        write_files(folder / name, rows, [50, 120])
    return folder, tables


#: Each query compiles a kernel of its own, so two of them are left to the soak; and two are read as streams below.
SOAK = ("float32 = float", "as-of by text", "text and int, left", "as-of by float")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SOAK else ()) for n in QUERIES])
def test_batch(spark: Any, data: Any, name: str) -> None:
    folder, tables = data
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    query = QUERIES[name](*(plait.stream(n, unit="us") for n in "ab"))
    frames = {n: spark.read.parquet(str(folder / n)) for n in "ab"}
    expected = query.reference(tables)
    assert expected.num_rows > 20
    assert_identical(collected(query.on_spark(frames, layout="hash")), expected)


LATER = (("text and int, left", 2), ("as-of by float", 1))


@pytest.mark.parametrize(
    ("name", "partitions"), [("float = int", 3), *(pytest.param(*more, marks=pytest.mark.again) for more in LATER)]
)
def test_streaming(spark: Any, data: Any, tmp_path: Path, name: str, partitions: int) -> None:
    folder, tables = data
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    query = QUERIES[name](*(plait.stream(n, unit="us") for n in "ab"))
    schema = feeds.spark_schema(tables["a"])
    frames = {n: feeds.frame(spark, folder / n, schema, streaming=True, files=2) for n in "ab"}
    assert_identical(feeds.run(query.on_spark(frames, layout="hash"), tmp_path), query.reference(tables))


def test_what_has_no_equality_is_refused(spark: Any, data: Any) -> None:
    folder, _ = data
    frames = {n: spark.read.parquet(str(folder / n)) for n in "ab"}
    a, b = (plait.stream(n, unit="us") for n in "ab")
    with pytest.raises(plait.QueryError, match="no equality of two columns"):
        plait.join(a, b, on="l.i < r.i", within=1).on_spark(frames, layout="hash")
    with pytest.raises(plait.QueryError, match="with a count window"):
        plait.join(a, b, on="l.i = r.i", last=3).on_spark(frames, layout="hash")
