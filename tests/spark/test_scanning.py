"""Files that tasks read themselves: the same rows as Spark's, whatever the blocks, row groups and tasks; or Spark reads them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected, published

import plait
import plait.spark
from plait.query.identical import difference
from plait.spark.pack import pack
from plait.spark.pack.positions import PATH, ROW, unquoted
from plait.spark.plan import relations

SEED = 20261115
STREAM = plait.stream("s", unit="us", source="src", sources=[0, 1])
QUERY = plait.aggregate(
    STREAM, size="30us", advance="12us", by="k",
    compute={"n": plait.count(), "sum": plait.sum("v"), "last": plait.last("t")},
)  # fmt: skip


def table(rows: int, chance: random.Random) -> pa.Table:
    pick = [chance.choice((0.1, -3.5, 1e300, None)) for _ in range(rows)]
    return pa.table({
        "ts": pa.array(sorted(chance.randrange(rows) for _ in range(rows)), pa.int64()),
        "src": pa.array([k % 2 for k in range(rows)], pa.int32()),
        "k": pa.array([chance.randrange(5) for _ in range(rows)], pa.int32()), "v": pa.array(pick, pa.float64()),
        "t": pa.array([f"é{chance.randrange(9)}" for _ in range(rows)]),
        "unread": pa.array([b"\xff" * 9] * rows, pa.binary()),
    })  # fmt: skip


def test_blocks_are_read_whatever_the_row_groups(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for _ in range(60):
        rows, block = chance.randrange(1, 400), chance.choice((1, 3, 64, 400))
        schema = table(1, chance).schema
        files = {}
        for name in ("a", "b c"):
            files[name] = table(rows, chance)
            pq.write_table(files[name], tmp_path / f"{name}.parquet", row_group_size=chance.randrange(1, 200))
        some = [(name, r) for name in files for r in range(0, rows, block) if chance.random() < 0.7] or [("a", 0)]
        chance.shuffle(some)
        paths = unquoted(pa.array([f"{(tmp_path / f'{name}.parquet').as_uri()}" for name, _ in some]))
        given = pa.table({PATH: paths, ROW: pa.array([r for _, r in some], pa.int64())})
        got = pack.Scan("s", schema, block, f"{tmp_path.as_uri()}/").read(given, ["v", "t", "ts"])
        got = pa.table(
            {"path": got[PATH].combine_chunks().dictionary_decode()} | {n: got[n] for n in (ROW, "v", "t", "ts")}
        )
        parts = []
        for name, whole in files.items():
            at = np.array([r for r in range(rows) if (name, r // block * block) in some], np.int64)
            path = pa.array([f"file://{tmp_path / f'{name}.parquet'}"] * len(at), pa.string())
            parts.append(pa.table({"path": path, ROW: at} | {n: whole[n].take(pa.array(at)) for n in ("v", "t", "ts")}))
        by = [("path", "ascending"), (ROW, "ascending")]
        assert difference(pa.concat_tables(parts).sort_by(by), got) is None  # in order of files and rows, whatever came


def test_columns_that_spark_reads_otherwise_are_left_to_it(tmp_path: Path) -> None:
    moments = pa.array([1, 2], pa.int64()).cast(pa.timestamp("us", "UTC"))
    plain = pa.table({"t": moments, "s": ["a", "b"], "n": pa.array([1, 2], pa.int64())})
    wanted = plain.schema
    seen = {}

    def scan(name: str, given: pa.Table, schema: pa.Schema = wanted, **options: Any) -> None:
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(given, folder / "a.parquet", **options)
        seen[name] = relations.can_be_read(f"file://{folder}/", schema)

    scan("the same", plain)
    scan("wider types of text", plain.set_column(1, "s", pa.array(["a", "b"], pa.large_string()).dictionary_encode()))
    scan("another zone", plain.set_column(0, "t", moments.cast(pa.timestamp("us", "Asia/Tokyo"))))
    scan("without zone", plain.set_column(0, "t", moments.cast(pa.timestamp("us"))))
    scan("milliseconds", plain.set_column(0, "t", pa.array([1, 2]).cast(pa.timestamp("ms", "UTC"))))
    scan("96 bits", plain, use_deprecated_int96_timestamps=True)
    scan("narrower", plain.set_column(2, "n", pa.array([1, 2], pa.int32())))
    scan("a column less", plain.drop_columns(["n"]))
    scan("a name's case", plain.rename_columns(["t", "s", "N"]))
    scan("nested", pa.table({"l": [[1], [2]]}), pa.schema([("l", pa.list_(pa.int64()))]))
    scan("two cases", plain.append_column("N", plain["n"]))
    scan("an old Spark", plain.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}))
    scan("a new Spark", plain.replace_schema_metadata({"org.apache.spark.version": "3.5.1"}))
    scan("old calendar", plain.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}))
    (tmp_path / "empty").mkdir()
    assert {name for name, taken in seen.items() if taken} == {
        "the same", "wider types of text", "another zone", "a new Spark",
    }  # fmt: skip
    assert not relations.can_be_read(f"file://{tmp_path}/empty/", wanted)
    assert not relations.can_be_read("hdfs://host/x/", wanted)


def test_folders_that_name_columns_are_left_to_spark(tmp_path: Path) -> None:
    """Below the folder that is read, and wherever: one that is there from the start, and one that comes mid-run."""
    plain = pa.table({"n": pa.array([1, 2], pa.int64())})
    for name in ("in/a", "in/a/n=7/b", "x=1/in"):
        (tmp_path / name).mkdir(parents=True)
        pq.write_table(plain, tmp_path / name / "p.parquet")
    assert not relations.can_be_read(f"file://{tmp_path}/in/", plain.schema)
    assert relations.can_be_read(f"file://{tmp_path}/x=1/in/", plain.schema)
    read = pack.Scan("s", plain.schema, 8, f"file://{tmp_path}/in/")
    for name, words in (("in/a/n=7/b", "lies in a folder that names a column, 'n=7'"), ("in/none", "can't be read")):
        paths = unquoted(pa.array([(tmp_path / name / "p.parquet").as_uri()]))
        with pytest.raises(plait.RunError, match=rf"p.parquet {words}.*read='rows'"):
            read.read(pa.table({PATH: paths, ROW: pa.array([0], pa.int64())}), ["n"])


@pytest.mark.spark
def test_tasks_read_blocks_of_split_files(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files cut by Spark into several tasks, blocks across its cuts; a filter above the files has Spark read them."""
    monkeypatch.setattr(pack, "BLOCK", 64)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "10000")
    spark.conf.set("spark.sql.files.openCostInBytes", "0")
    whole = table(1_500, random.Random(SEED))
    (tmp_path / "in put").mkdir()
    for number, cut in enumerate((0, 900)):
        part = whole.slice(cut, 900 - 300 * number)
        pq.write_table(part, tmp_path / "in put" / f"p{number}.parquet", row_group_size=100, compression="none")
    frame = spark.read.parquet(str(tmp_path / "in put"))
    try:
        assert frame.rdd.getNumPartitions() > 2
        filtered = QUERY.on_spark({"s": frame.where("k < 3")})
        assert filtered._plait.stages[0].packs[0][0].scan is None
        df = QUERY.on_spark({"s": frame})
        assert df._plait.stages[0].packs[0][0].scan is not None
        assert_identical(collected(df), QUERY.reference({"s": whole}))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


@pytest.mark.slow
@pytest.mark.spark
def test_a_file_of_another_kind_stops_the_query_and_spark_reads_on(spark: Any, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    whole = table(300, random.Random(SEED))
    feeds.write_files(tmp_path / "in", whole.slice(0, 200), [])
    frame = feeds.frame(spark, tmp_path / "in", feeds.spark_schema(whole), streaming=True)
    options = {"checkpoint": tmp_path / "checkpoint"}
    df = QUERY.on_spark({"s": frame})
    plait.spark.write_ordered(df, tmp_path / "out", **options).awaitTermination()
    narrow = whole.slice(200).set_column(3, "v", whole["v"].slice(200).cast(pa.float32(), safe=False))
    feeds.write_files(tmp_path / "in", narrow, [], first=1)
    with pytest.raises(Exception, match=r"p001.parquet has column 'v' of type float.*read='rows'"):
        plait.spark.write_ordered(df, tmp_path / "out", **options).awaitTermination()
    again = QUERY.on_spark({"s": frame}, read="rows")
    plait.spark.write_ordered(again, tmp_path / "out", drain=True, **options).awaitTermination()
    given = pa.concat_tables([whole.slice(0, 200), narrow.cast(whole.schema)])
    assert_identical(published(tmp_path / "out"), QUERY.reference({"s": given}))
