"""DataFrames as users hand them over: plait takes what Spark would, a row has a position to itself, or it is refused."""

from __future__ import annotations

import random
import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark import feeds
from tests.spark.feeds import assert_identical, collected

import plait
import plait.spark
from plait.errors import QueryError, RunError
from plait.spark.plan.frames import frames_of

pytestmark = pytest.mark.spark
SEED = 20261116
TABLE = pa.table({"ts": [1, 2, 3], "x": [1, 2, 3]})
A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")


@pytest.fixture(scope="module")
def two(spark: Any) -> Any:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("inputs") / "in"
    feeds.write_files(made, TABLE, [])
    return made


# --- what may stand above rows -----------------------------------------------------------------------------------

#: One row of each row, or none.
KEEP: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda f, F: f,
    "select": lambda f, F: f.select("ts", (F.col("x") * 2).alias("x")),
    "filter": lambda f, F: f.where("x > 1").where(F.col("ts") < 9),
    "columns": lambda f, F: (
        f.withColumn("y", F.upper(F.lit("a"))).drop("y").withColumnRenamed("x", "z").fillna(0).dropna()
    ),
    "alias": lambda f, F: f.alias("some").select("some.ts", "some.x"),
    "hint": lambda f, F: f.hint("broadcast"),
    "file name": lambda f, F: f.withColumn("of", F.input_file_name()),
}

BREAK: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "explode": (lambda f, F: f.select("ts", F.explode(F.array("x", "x")).alias("x")), "explode"),
    "explode below": (lambda f, F: f.select("ts", F.posexplode(F.array("x"))).where("col > 1").select("ts"), "explode"),
    "lateral view": (lambda f, F: f.selectExpr("ts", "inline(array(struct(x), struct(x)))"), "explode"),
    "join": (lambda f, F: f.join(f.sparkSession.range(3), F.col("id") < F.col("x")), "a join"),
    "cross join": (lambda f, F: f.crossJoin(f.sparkSession.range(2)), "a join"),
    "semi join": (lambda f, F: f.join(f.sparkSession.range(3), F.col("id") == F.col("x"), "left_semi"), "a join"),
    "union": (lambda f, F: f.union(f), "a union"),
    "union under a filter": (lambda f, F: f.unionByName(f).where("x > 0"), "a union"),
    "repartition": (lambda f, F: f.repartition(4), "repartition"),
    "repartition by": (lambda f, F: f.repartition("x"), "repartition"),
    "coalesce": (lambda f, F: f.coalesce(1), "coalesce"),
    "mapInArrow": (lambda f, F: f.mapInArrow(lambda i: i, f.schema), "mapInArrow"),
    "mapInPandas": (lambda f, F: f.mapInPandas(lambda i: i, f.schema), "mapInPandas"),
    "distinct": (lambda f, F: f.distinct(), "distinct|dropDuplicates"),
    "dropDuplicates": (lambda f, F: f.dropDuplicates(["x"]), "dropDuplicates"),
    "sample": (lambda f, F: f.sample(0.5, 3), "sample"),
    "aggregate": (lambda f, F: f.groupBy("x").agg(F.max("ts").alias("ts")), "an aggregate"),
}  # fmt: skip

#: Those that Spark has for batches only.
BREAK_BATCH: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "sort": (lambda f, F: f.orderBy("x"), "a sort"),
    "limit": (lambda f, F: f.limit(2), "limit"),
    "offset": (lambda f, F: f.offset(1), "offset"),
    "window": (lambda f, F: f.selectExpr("ts", "sum(x) over (partition by ts) as x"), "a window function"),
    "unpivot": (lambda f, F: f.unpivot("ts", "x", "name", "v"), "cube|unpivot"),
    "except": (lambda f, F: f.exceptAll(f), "a difference|an aggregate|explode|except"),
}

#: Other rows whenever they are read: whatever orders them.
CHANGE: dict[str, Callable[[Any, Any], Any]] = {
    "rand": lambda f, F: f.withColumn("x", F.rand()),
    "rand with a seed": lambda f, F: f.where(F.rand(3) < 0.5),
    "uuid": lambda f, F: f.withColumn("u", F.expr("uuid()")),
    "number": lambda f, F: f.withColumn("u", F.monotonically_increasing_id()),
    "partition": lambda f, F: f.withColumn("u", F.spark_partition_id()),
    "a function": lambda f, F: f.withColumn("x", F.udf(lambda x: x, "long").asNondeterministic()("x")),
    "inside": lambda f, F: f.select("ts", F.when(F.col("x") > F.randn(), 1).otherwise(2).alias("x")).where("x > 0"),
    "sample": lambda f, F: f.sample(0.5, 3),
}


def given(spark: Any, folder: Path, kind: str) -> tuple[plait.query.Stream, Any]:
    if kind == "kafka":
        rows = "ts long, x long, topic string, partition int, offset long"
        return plait.stream("a", unit="us", source=plait.PARTITION), spark.createDataFrame([(1, 2, "t", 0, 0)], rows)
    return A, feeds.frame(spark, folder, feeds.spark_schema(TABLE), streaming=kind == "streaming")


@pytest.mark.parametrize("kind", ["batch", "streaming", "kafka"])
def test_a_position_is_one_rows(two: Any, folder: Path, kind: str) -> None:
    from pyspark.sql import functions as F

    stream, frame = given(two, folder, kind)
    extra = [] if kind != "kafka" else ["topic", "partition", "offset"]
    for name, make in KEEP.items():
        made = make(frame, F) if not extra or name not in ("select", "alias") else frame.select("ts", "x", *extra)
        assert len(frames_of(stream, made)) == 1, name
    for name, (make, words) in (BREAK if kind == "streaming" else BREAK | BREAK_BATCH).items():
        with pytest.raises(QueryError, match=rf"Stream 'a': .*({words})") as caught:
            frames_of(stream, make(frame, F))
        assert "seq='content'" in str(caught.value) or "may be another" in str(caught.value), name


def test_rows_are_the_same_whenever_they_are_read(two: Any, folder: Path) -> None:
    from pyspark.sql import functions as F

    for kind in ("batch", "streaming"):
        _, frame = given(two, folder, kind)
        for seq in ("position", "content", "x"):
            stream = plait.stream("a", unit="us", seq=seq)
            for make in CHANGE.values():
                with pytest.raises(
                    QueryError, match=r"Stream 'a': its DataFrame .* which may be another whenever it is read"
                ):
                    frames_of(stream, make(frame, F))
    stream = plait.stream("a", unit="us", seq="content")
    _, frame = given(two, folder, "batch")
    for harmless in (frame.orderBy("ts", "x").limit(2), frame.repartition(3), frame.union(frame)):
        assert frames_of(stream, harmless)
    with pytest.warns(UserWarning, match="Stream 'a': its DataFrame asks for the current time"):
        frames_of(stream, frame.where(F.col("ts") < F.unix_timestamp()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frames_of(stream, frame)


def test_positions_that_repeat_in_the_data(two: Any, folder: Path) -> None:
    """Two copies of a row of Kafka's in a table, a folder that is handed over twice: by what is read, not by the plan."""
    stream = plait.stream("a", unit="us", source=plait.PARTITION)
    rows = two.createDataFrame(
        [(1, "t", 0, 0), (1, "t", 0, 1), (2, "t", 0, 1)], "ts long, topic string, partition int, offset long"
    )
    small = plait.aggregate(stream, size=5, compute={"n": plait.count()})
    with pytest.raises(Exception, match=r"offset 1 of topic 't', partition 0 stands twice.*is one tuple's"):
        small.on_spark({"a": rows}).collect()
    frame = feeds.frame(two, folder, feeds.spark_schema(TABLE), streaming=False)
    twice = plait.aggregate(plait.stream("a", unit="us", source="x"), size=5, compute={"n": plait.count()})
    with pytest.raises(Exception, match=r"of the same file.*Hand over each file once"):
        twice.on_spark({"a": [frame, frame]}).collect()
    with pytest.raises(QueryError, match=r"source=plait.FILE, and 2 DataFrames are given"):
        frames_of(plait.stream("a", unit="us", source=plait.FILE), [frame, frame])


# --- names -------------------------------------------------------------------------------------------------------


def test_columns_by_any_name(two: Any, tmp_path: Path) -> None:
    names = ["a.b", "c`d", "e f", "`", ".", "a", "é`.`"]
    table = pa.table({"ts": [1, 2, 3], "id.`x`": [3, 4, 5]} | {n: [k, None, k + 10] for k, n in enumerate(names)})
    feeds.write_files(tmp_path / "in", table, [2])
    frame = two.read.parquet(str(tmp_path / "in"))
    for seq in ("position", "id.`x`"):
        query = plait.join(
            plait.stream("a", unit="us", seq=seq), plait.stream("b", unit="us", seq=seq), within=1, how="left"
        )
        expected = query.reference({"a": table, "b": table})
        for read in ("auto", "rows") if seq == "position" else ("rows",):
            assert_identical(collected(query.on_spark({"a": frame, "b": frame}, read=read)), expected)
    source = plait.aggregate(
        plait.stream("a", unit="us", source="id.`x`"), size=5, by="a.b", compute={"n": plait.count()}
    )
    assert_identical(collected(source.on_spark({"a": frame}, read="rows")), source.reference({"a": table}))


def on_threads(query: Any, table: pa.Table) -> None:
    with query.on_threads(workers=1) as run:
        run.push("a", None, table)
        run.push("b", None, TABLE)


def test_names_of_plaits_own_are_refused_everywhere(two: Any) -> None:
    query = plait.join(A, B, within=1)
    for name in ("_plait_key", "_plait_ts", "_PLAIT_Key", "_plait_anything"):
        table = TABLE.append_column(name, pa.array([b"a"] * 3))
        words = rf"Stream 'a' has a column '{name}'.*_plait_key.*Drop it, or rename it"
        with pytest.raises(QueryError, match=words):
            query.reference({"a": table, "b": TABLE})
        with pytest.raises(QueryError, match=words):
            on_threads(query, table)
        with pytest.raises(QueryError, match=words):
            query.on_spark({n: two.createDataFrame(t) for n, t in (("a", table), ("b", TABLE))})
    with pytest.raises(QueryError, match="The result of an aggregate has a column '_plait_key'"):
        plait.aggregate(A, size=5, compute={"_plait_key": plait.count()}).reference({"a": TABLE})


def test_names_that_spark_can_not_tell_apart(two: Any, folder: Path) -> None:
    from pyspark.sql import functions as F

    stream = plait.stream("a", unit="us", seq="content")
    with pytest.raises(QueryError, match=r"has columns 'x' and 'X'.*caseSensitive"):
        frames_of(stream, two.createDataFrame([(1, 2, 3)], "ts long, x long, X long"))
    frame = feeds.frame(two, folder, feeds.spark_schema(TABLE), streaming=False)
    with pytest.raises(QueryError, match=r"has a column '_metadata'.*hides"):
        frames_of(
            A, frame.withColumn("_metadata", F.struct(F.lit("f").alias("file_path"), F.lit(1).alias("row_index")))
        )


def test_a_session_with_long_text_is_refused(two: Any, folder: Path) -> None:
    key = "spark.sql.execution.arrow.useLargeVarTypes"
    two.conf.set(key, "true")
    try:
        with pytest.raises(RunError, match=rf"has {key}=true.*'false'"):
            plait.join(A, B, within=1).on_spark(
                {n: feeds.frame(two, folder, feeds.spark_schema(TABLE), streaming=False) for n in "ab"}
            )
    finally:
        two.conf.unset(key)


# --- plait's own reader takes what Spark takes ---------------------------------------------------------------------


def as_spark_reads(frame: Any) -> pa.Table:
    """All rows by path and number, as Spark gives them."""
    from pyspark.sql import functions as F

    path, row = F.col("_metadata.file_path").alias("_path"), F.col("_metadata.row_index").alias("_row")
    table = frame.select("*", path, row).toArrow()
    place = [
        (unquote(p).encode(), r) for p, r in zip(table["_path"].to_pylist(), table["_row"].to_pylist(), strict=True)
    ]
    return table.take(pa.array(sorted(range(len(place)), key=place.__getitem__), pa.int64())).drop_columns(
        ["_path", "_row"]
    )


CARRY = plait.join(
    plait.stream("a", unit="us", disorder=10**9),
    plait.stream("b", unit="us"),
    on="l.ts > 1000 and r.x > 1000",
    within=0,
    how="left",
)


def check_alike(frame: Any, other: Any) -> str:
    """The same rows by both readers, as Spark's own. Gives who read them where the choice is plait's."""
    try:
        table = as_spark_reads(frame)
    except Exception:  # Spark itself can't read this folder
        return "nobody"
    expected = CARRY.reference({"a": table, "b": TABLE})
    read = CARRY.on_spark({"a": frame, "b": other}, layout=(1, 1))
    assert_identical(collected(read), expected)
    assert_identical(collected(CARRY.on_spark({"a": frame, "b": other}, layout=(1, 1), read="rows")), expected)
    packs = read._plait.stages[0].packs
    return "plait" if any(how.scan is not None for _, how in packs if how.stream.name == "a") else "spark"


def test_columns_that_folders_name(two: Any, folder: Path, tmp_path: Path) -> None:
    """In the files too, with other values there; no value at all; below a basePath."""
    values, schema = ("1", "__HIVE_DEFAULT_PARTITION__"), "ts long, k long"  # as the files have it: nothing else tells
    other = feeds.frame(two, folder, feeds.spark_schema(TABLE), streaming=False)
    for k, value in enumerate(values):
        feeds.write_file(
            make(tmp_path / "in" / f"k={value}") / f"p{k}.parquet", pa.table({"ts": [1, 2], "k": [99, 99]}), k
        )
    assert check_alike(two.read.schema(schema).parquet(str(tmp_path / "in")), other) == "spark"
    below = str(tmp_path / "in" / f"k={values[0]}")
    based = two.read.schema(schema).option("basePath", str(tmp_path / "in")).parquet(below)
    assert [frame.scan for frame in frames_of(A, based)] == [None]
    assert check_alike(two.read.parquet(below), other) == "plait"  # the folder itself names no column


def make(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


# --- random folders and plans --------------------------------------------------------------------------------------


def random_file(chance: random.Random, odd: float) -> tuple[pa.Table, dict[str, Any]]:
    """Columns ts, k, and some others: of this type or that, missing, in other letters, in another order."""
    n = chance.choice((1, 3, 9))
    payload = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000BAD))[0]
    columns = {
        "ts": pa.array([chance.randrange(50) for _ in range(n)], pa.int64()),
        "k": pa.array([chance.choice((None, 0, 5, -(2**31), 2**31 - 1)) for _ in range(n)], pa.int32()),
        "v": pa.array([chance.choice((None, 0.0, -0.0, float("nan"), payload, 1e308)) for _ in range(n)], pa.float64()),
        "t": pa.array([chance.choice((None, "", "é\x00", "long" * 9)) for _ in range(n)], pa.string()),
        "w": pa.array([chance.choice((None, -(2**60), 0, 7)) for _ in range(n)], pa.int64()).cast(
            pa.timestamp("us", "UTC")
        ),
    }
    if chance.random() < odd:
        name = chance.choice("kvtw")
        change: dict[str, Callable[[], Any]] = {
            "drop": lambda: columns.pop(name),
            "narrow": lambda: columns.update(v=columns["v"].cast(pa.float32(), safe=False)),
            "short": lambda: columns.update(k=pa.array([1] * n, pa.int16())),
            "case": lambda: columns.update({name.upper(): columns.pop(name)}),
            "both cases": lambda: columns.update({name.upper(): columns[name]}),
            "large": lambda: columns.update(t=columns["t"].cast(pa.large_string()).dictionary_encode()),
            "millis": lambda: columns.update(w=pa.array([1] * n, pa.timestamp("ms", "UTC"))),
            "extra": lambda: columns.update(more=pa.array([[1]] * n)),
        }
        change[chance.choice(list(change))]()
    names = chance.sample(list(columns), len(columns))
    options = {"row_group_size": chance.choice((1, 4, 100)), "compression": chance.choice(("none", "snappy", "zstd"))}
    if chance.random() < odd / 4:
        options["use_deprecated_int96_timestamps"] = True
    notes = (
        {chance.choice(("org.apache.spark.version", "org.apache.spark.legacyDateTime")): "2.4.8"}
        if chance.random() < 0.1
        else {}
    )
    return pa.table({name: columns[name] for name in names}).replace_schema_metadata(notes), options


def random_folder(chance: random.Random, place: Path, odd: float) -> None:
    named = chance.choice((["", "k=3"], ["k=3", "k=4"], ["z=1/t=u", "z=2/t=v"]))
    folders = named if chance.random() < odd else [""]
    for number in range(chance.randrange(1, 4)):
        table, options = random_file(chance, odd)
        pq.write_table(table, make(place / chance.choice(folders)) / f"p {number}%20.parquet", **options)


def random_frame(spark: Any, chance: random.Random, place: Path, odd: float) -> Any:
    """With or without a schema, options that change what is read, and something above it that may stand there."""
    from pyspark.sql import functions as F

    reader = spark.read
    for name, value in (("mergeSchema", "true"), ("recursiveFileLookup", "true"), ("datetimeRebaseMode", "LEGACY")):
        if chance.random() < odd / 4:
            reader = reader.option(name, value)
    if chance.random() < 1 - odd:
        reader = reader.schema("ts long, k int, v double, t string, w timestamp")
    frame = reader.parquet(str(place))
    above: list[Callable[[Any], Any]] = [
        lambda f: f.where("ts % 2 = 0"),
        lambda f: f.withColumn("ts", F.col("ts") + 1),
        lambda f: f.select("ts", *(c for c in ("v", "t") if c in f.columns)),
    ]  # fmt: skip
    return chance.choice(above)(frame) if chance.random() < odd else frame


def one_case(spark: Any, seed: int, place: Path, other: Any) -> str:
    """One random folder, read by both. Gives who took it."""
    chance = random.Random(seed)
    odd = chance.choice((0.0, 0.1, 0.4))
    random_folder(chance, place, odd)
    try:
        frame = random_frame(spark, chance, place, odd)
    except Exception:  # no schema that Spark could make of these files
        return "nobody"
    return check_alike(frame, other)


def test_random_folders_are_read_as_spark_reads_them(two: Any, folder: Path, tmp_path: Path) -> None:
    other = feeds.frame(two, folder, feeds.spark_schema(TABLE), streaming=False)
    # 119: a folder names a column that its files have too.
    read_by = [one_case(two, SEED + k, tmp_path / f"{k}", other) for k in (0, 1, 2, 119)]
    assert {"plait", "spark"} <= set(read_by)


def test_columns_that_nothing_needs_are_not_read(two: Any, tmp_path: Path) -> None:
    """By tasks that read files themselves, and by Spark: of a selection only what it is made of."""
    table = pa.table({"ts": [1, 2], "x": [1, 2], "y": [3, 4], "big": ["a" * 99, "b" * 99], "name": ["c", "d"]})
    feeds.write_files(tmp_path / "wide", table, [])
    frame = two.read.parquet(str(tmp_path / "wide"))
    queries: dict[tuple[str, ...], plait.Query] = {
        ("ts", "x", "y"): A.where("y > 1").select(twice="x * 2"),
        ("ts", "x"): plait.aggregate(A.select("x", unread="y + 1"), size="9us", compute={"m": plait.max("x")}),
        ("ts", "x", "y", "name"): plait.join(A.where("y > 1").keep("x"), A.keep("name"), within=1),
    }
    for columns, query in queries.items():
        for read in ("auto", "rows"):
            df = query.on_spark({"a": frame}, read=read)
            assert {how.columns for _, how in df._plait.stages[0].packs} == {columns}
        assert collected(df).num_rows == query.reference({"a": table}).num_rows
