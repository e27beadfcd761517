"""Dedup, right and full joins on Spark: as a batch and as a stream that is started again, chained, and laid out anew."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected, write_files

import plait
import plait.spark
from plait import QueryError

pytestmark = pytest.mark.spark

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
FIRST = plait.dedup(A, by="k", within=9, name="first")
EQUAL = "l.k = r.k and l.s <> r.s"
QUERIES = {
    "dedup": plait.dedup(A, by=["k", "s"], within=6),
    "of a full join": plait.dedup(plait.join(A, B, on=EQUAL, within=3, how="full"), by="b_k", within=4),
    "joined": plait.join(FIRST, B, on="abs(l.k - r.k) <= 1", within=(4, 9), how="right"),
    "full": plait.join(FIRST, B, on="l.k = r.k", within=(5, 1), how="full"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, pa.Table]]:
    folder, chance = tmp_path_factory.mktemp("dedup"), random.Random(17)
    tables = {}
    for name in "ab":
        rows = [(k // 3, chance.choice((None, *range(7))), chance.choice("xyz")) for k in range(240)]
        columns = zip(*rows, strict=True)
        kinds = (pa.int64(), pa.int64(), pa.string())
        tables[name] = pa.table([pa.array(c, t) for c, t in zip(columns, kinds, strict=True)], names=["ts", "k", "s"])
        write_files(folder / name, tables[name], [40, 130])
    return folder, tables


def frames(spark: Any, folder: Path, query: Any, *, streaming: bool = True) -> dict[str, Any]:
    schema = feeds.spark_schema(pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("s", pa.string())]).empty_table())
    return {n: feeds.frame(spark, folder / n, schema, streaming=streaming, files=1) for n in query.streams()}


#: What it says of the first two tests/everywhere says, too; the others are chained.
LATER = {"dedup": pytest.mark.slow, "full": pytest.mark.slow, "of a full join": pytest.mark.again}


@pytest.mark.parametrize("name", [pytest.param(n, marks=LATER.get(n, ())) for n in QUERIES])
def test_batch_and_stream_give_the_reference_s_rows(spark: Any, data: Any, tmp_path: Path, name: str) -> None:
    """The stream is stopped where its rows end and started again, then drained."""
    folder, tables = data
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    query = QUERIES[name]
    expected = query.reference({n: tables[n] for n in query.streams()})
    assert expected.num_rows > 20
    assert_identical(collected(query.on_spark(frames(spark, folder, query, streaming=False))), expected)
    feeds.run(query.on_spark(frames(spark, folder, query)), tmp_path, drain=False)
    assert_identical(feeds.run(query.on_spark(frames(spark, folder, query)), tmp_path), expected)


@pytest.mark.again
def test_a_full_join_by_hash_is_laid_out_anew(spark: Any, data: Any, tmp_path: Path) -> None:
    """Tuples go by hash. The checkpoint pins how many cells there are, and `relayout` changes it."""
    folder, tables = data
    query = plait.join(A, B, on=EQUAL, within=(5, 1), how="full")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for step, layout in enumerate(((2, 1), (3, 1))):
        df = query.on_spark(frames(spark, folder, query), layout=layout)
        assert f"{layout[0]} cells, {layout[0]}x1 (by hash)" in plait.spark.explain(df)
        if step:
            plait.spark.relayout(df, tmp_path / "0", tmp_path / "1")
        out = plait.spark.write_ordered(df, tmp_path / "out", checkpoint=tmp_path / str(step), drain=step == 1)
        out.awaitTermination()
    assert_identical(feeds.published(tmp_path / "out"), query.reference(tables))


def test_a_full_join_without_an_equality_has_one_cell(spark: Any, data: Any) -> None:
    folder, tables = data
    query = plait.join(A, B, on="l.k < r.k", within=1, how="full")
    given = frames(spark, folder, query, streaming=False)
    df = query.on_spark(given)
    assert "1 cell, 1x1: left tuples and right ones must each meet all their partners" in plait.spark.explain(df)
    assert_identical(collected(df), query.reference(tables))
    with pytest.raises(QueryError, match="4 cells for how='full', and the query has no equality of two columns"):
        query.on_spark(given, cells=4)
