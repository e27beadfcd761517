"""What Spark runs refuse: before anything runs and with nothing touched, or in mid-run with a way to go on."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from tests.spark import feeds

import plait
import plait.spark
from plait import PlaitError, QueryError, RunError
from plait.connectors.sinks import open_sink
from plait.spark.plan import settings

pytestmark = pytest.mark.spark

A, B = plait.stream("a", unit="us"), plait.stream("b", unit="us")
TABLE = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), "x": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module")
def two(spark: Any) -> Any:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    for name in "ab":
        feeds.write_files(folder / name, TABLE, [])
    return folder


def read(spark: Any, folder: Path, *, streaming: bool = True) -> dict[str, Any]:
    return {n: feeds.frame(spark, folder / n, feeds.spark_schema(TABLE), streaming=streaming, files=1) for n in "ab"}


# --- before anything runs -------------------------------------------------------------------------------------


def test_columns_are_found_before_anything_runs(two: Any, files: Path) -> None:
    given = read(two, files)
    for stream, words in (
        (plait.stream("a", time="when", unit="us"), "Stream 'a' has no column 'when', which time= names"),
        (plait.stream("a", unit="us", source="feed"), "Stream 'a' has no column 'feed', which source= names"),
        (plait.stream("a", unit="us", seq="no"), "Stream 'a' has no column 'no', which seq= names"),
        (plait.stream("a", unit="us", source="feed", seq="x"), "Stream 'a' has no column 'feed', which source= names"),
        (plait.stream("a", time="x"), "Stream 'a'"),
    ):
        with pytest.raises(QueryError, match=words):
            plait.join(stream, B, within=1).on_spark(given)
    with pytest.raises(QueryError, match="'y'"):
        plait.join(A, B, on="l.y = r.x", within=1).on_spark(given)
    text = given | {"b": two.readStream.schema("ts string, x long").parquet(str(files / "b"))}
    with pytest.raises(QueryError, match=r"Stream 'b'.*string"):
        plait.join(A, B, within=1).on_spark(text)


def test_a_condition_that_can_not_be_compiled_is_called(two: Any, files: Path) -> None:
    def matches(l: Any, r: Any) -> bool:
        return bool(os.path.basename(str(l.x)) == str(r.x))

    query = plait.join(A, B, on=matches, within=1)
    given = read(two, files, streaming=False)
    assert feeds.collected(query.on_spark(given)).num_rows == query.reference({"a": TABLE, "b": TABLE}).num_rows == 3


def test_streaming_and_batch_do_not_mix(two: Any, files: Path) -> None:
    given = read(two, files) | {"b": read(two, files, streaming=False)["b"]}
    with pytest.raises(QueryError, match="mixed: a streaming, b not"):
        plait.join(A, B, within=1).on_spark(given)


def test_data_for_every_stream_and_no_other(two: Any, files: Path) -> None:
    given = read(two, files)
    with pytest.raises(QueryError, match="No data is given for stream 'b'"):
        plait.join(A, B, within=1).on_spark({"a": given["a"]})
    with pytest.raises(QueryError, match="Data is given for 'c'"):
        plait.join(A, B, within=1).on_spark(given | {"c": given["a"]})


def test_dataframes_of_one_stream_are_alike_and_as_many_as_declared(two: Any, files: Path) -> None:
    given = read(two, files)
    other = two.readStream.schema("ts long, x int").parquet(str(files / "a"))
    with pytest.raises(QueryError, match=r"DataFrames 0 and 1 differ.*x int64.*x int32"):
        plait.join(A, B, within=1).on_spark(given | {"a": [given["a"], other]})
    with pytest.raises(QueryError, match=r"2 DataFrames are given.*declares 0, 1, 2"):
        plait.join(plait.stream("a", unit="us", sources=3), B, within=1).on_spark(given | {"a": [given["a"]] * 2})


def test_a_position_must_be_there(two: Any, files: Path) -> None:
    made = {n: two.createDataFrame(TABLE) for n in "ab"}
    with pytest.raises(QueryError, match="Stream 'a': seq='position', and rows of its DataFrame have no position"):
        plait.join(A, B, within=1).on_spark(made)
    for source, words in ((plait.FILE, "does not come straight from files"), (plait.PARTITION, "'partition'")):
        stream = plait.stream("a", unit="us", source=source, seq="content")
        with pytest.raises(QueryError, match=words):
            plait.join(stream, B, within=1).on_spark(made | {"b": read(two, files, streaming=False)["b"]})


def test_rows_of_csv_are_counted_only_as_they_are_read(two: Any, tmp_path: Path, capfd: Any) -> None:
    """And PySpark's page of stack, about columns that we only ask for, is not shown."""
    feeds.write_files(tmp_path, TABLE, [], format="csv")
    frame = feeds.frame(two, tmp_path, feeds.spark_schema(TABLE), format="csv", streaming=False)
    with pytest.raises(QueryError, match=r"changes its files' rows|have no position"):
        plait.join(A, B, within=1).on_spark({"a": frame.where("x > 1"), "b": frame})
    assert "row_index" not in capfd.readouterr().err


def test_layouts(two: Any, files: Path) -> None:
    given = read(two, files)
    with pytest.raises(QueryError, match="layout=2x2 for how='left'"):
        plait.join(A, B, within=1, how="left").on_spark(given, layout=(2, 2))
    with pytest.raises(QueryError, match="is no layout"):
        plait.join(A, B, within=1).on_spark(given, layout=(0, 2))


def test_sessions(two: Any, files: Path) -> None:
    key = "spark.sql.streaming.stateStore.providerClass"
    try:
        two.conf.set(key, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
        with pytest.raises(RunError, match=r"need RocksDB.*plait.spark.session"):
            plait.join(A, B, within=1).on_spark(read(two, files))
        assert plait.join(A, B, within=1).on_spark(read(two, files, streaming=False)).count() == 7
    finally:
        two.conf.set(key, settings.ROCKSDB)
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    remote = type("DataFrame", (), {"sparkSession": connect})()
    with pytest.raises(RunError, match="plait does not run on Spark Connect"):
        plait.join(A, B, within=1).on_spark({"a": remote, "b": remote})


# --- checkpoints ------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_checkpoint_of_another_query_is_refused_and_left_alone(two: Any, files: Path, tmp_path: Path) -> None:
    given = read(two, files)
    query = plait.join(A, B, on="l.x = r.x", within=1)
    feeds.run(query.on_spark(given, layout=(1, 2)), tmp_path, drain=False)
    before = contents(tmp_path)
    for other, layout, words in (
        (plait.join(A, B, on="l.x = r.x", within=2), (1, 2), "within"),
        (plait.join(A, B, on="l.x < r.x", within=1), (1, 2), "<"),
        (plait.join(A, B, on="l.x = r.x", last=1), (1, 2), "last 1"),
        (query, (2, 1), r"layout.*\[1, 2\].*\[2, 1\]"),
    ):
        with pytest.raises(RunError, match=f"(?s)written by another query.*{words}"):
            feeds.run(other.on_spark(given, layout=layout), tmp_path)
    two.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        with pytest.raises(RunError, match="partitions"):
            feeds.run(query.on_spark(given, layout=(1, 2)), tmp_path)
    finally:
        two.conf.set("spark.sql.shuffle.partitions", "2")
    assert contents(tmp_path) == before
    # "auto" takes what the checkpoint has, and after the drain it refuses rows.
    expected = query.reference({"a": TABLE, "b": TABLE})
    feeds.assert_identical(feeds.run(query.on_spark(given), tmp_path), expected)


def test_a_checkpoint_of_something_else_is_refused(two: Any, files: Path, tmp_path: Path) -> None:
    (tmp_path / "out.checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(RunError, match="was not written by write_ordered"):
        feeds.run(plait.join(A, B, within=1).on_spark(read(two, files)), tmp_path)
    with pytest.raises(QueryError, match="write_ordered of batch DataFrames with checkpoint="):
        feeds.run(plait.join(A, B, within=1).on_spark(read(two, files, streaming=False)), tmp_path)
    with pytest.raises(QueryError, match="format='orc' is no format"):
        feeds.run(plait.join(A, B, within=1).on_spark(read(two, files)), tmp_path, format="orc")


# --- control events ---------------------------------------------------------------------------------------------


@pytest.mark.again
def test_an_event_that_could_only_stop_the_query_is_refused_when_it_is_written(
    two: Any, files: Path, tmp_path: Path
) -> None:
    """And one that was written before there was a query, when the query starts: then its file can still be removed."""
    control = tmp_path / "out.checkpoint" / "control"
    plait.spark.heartbeat(control, "c", ts=1)
    query = plait.join(A, B, within=1)
    df = query.on_spark(read(two, files), layout=(1, 1))
    with pytest.raises(QueryError, match=r"000000000000.json names stream 'c'.*streams are 'a', 'b'.*Remove that file"):
        feeds.run(df, tmp_path)
    assert not (tmp_path / "out.checkpoint" / "plait.json").exists()
    (control / "000000000000.json").unlink()
    feeds.run(df, tmp_path, drain=False)
    before = contents(control)
    for event, words in (
        (lambda: plait.spark.end(control, "aa"), "names stream 'aa'"),
        (lambda: plait.spark.end(control, "a", source=1), "names source 1 of stream 'a'.*sources are 0"),
        (lambda: plait.spark.heartbeat(control, "a", ts=1, source="0"), "names source '0'"),
        (lambda: plait.spark.heartbeat(control, "a", ts=2**63), "has ts 9223372036854775808"),
    ):
        with pytest.raises(QueryError, match=words):
            event()
    assert contents(control) == before
    plait.spark.end(control, "b")
    feeds.assert_identical(feeds.run(df, tmp_path), query.reference({"a": TABLE, "b": TABLE}))


def test_names_of_sources_that_a_column_gives(two: Any, files: Path, tmp_path: Path) -> None:
    stream = plait.stream("a", unit="us", source="x", seq="ts")
    plait.join(stream, B, within=1).on_spark(read(two, files), control=str(tmp_path / "control"))
    plait.spark.heartbeat(tmp_path / "control", "a", ts=1, source=77)
    with pytest.raises(QueryError, match=r"source 'x' of stream 'a'.*named by integers"):
        plait.spark.heartbeat(tmp_path / "control", "a", ts=1, source="x")


# --- in mid-run -------------------------------------------------------------------------------------------------


def stopped(df: Any, folder: Path, **options: Any) -> str:
    """Why a query stopped."""
    with pytest.raises(Exception) as caught:  # Spark's own class, around ours
        feeds.run(df, folder, **options)
    return str(caught.value)


def test_a_late_row_stops_the_query_and_can_be_dropped_on_restart(two: Any, tmp_path: Path) -> None:
    left = pa.table({"ts": [1, 5, 3, 9], "x": [1, 2, 3, 4]})
    right = pa.table({"ts": [1, 4, 9], "x": [1, 2, 3]})
    feeds.write_files(tmp_path / "a", left, [2])
    feeds.write_files(tmp_path / "b", right, [1])
    given = read(two, tmp_path)
    message = stopped(plait.join(A, B, within=4).on_spark(given), tmp_path)
    assert "Stream 'a', source 0" in message
    assert "p001.parquet, row 0: ts 3 is late, 2 us behind 5" in message
    assert "late='drop'" in message
    dropping = plait.join(plait.stream("a", unit="us", late="drop"), B, within=4)
    got = feeds.run(dropping.on_spark(given), tmp_path, late=tmp_path / "late")
    with pytest.warns(UserWarning, match="1 late tuple"):
        expected = dropping.reference({"a": left, "b": right})
    feeds.assert_identical(got, expected)
    assert feeds.published(tmp_path / "late")["x"].to_pylist() == [3]


@pytest.mark.again
def test_a_row_without_time_stops_the_query_and_can_be_filtered_out_on_restart(two: Any, tmp_path: Path) -> None:
    left = pa.table({"ts": pa.array([1, 5, 6, None, 9], pa.int64()), "x": pa.array([1, 2, 3, 4, 5], pa.int64())})
    feeds.write_files(tmp_path / "a", left, [2])
    feeds.write_files(tmp_path / "b", TABLE, [])
    given = read(two, tmp_path)
    query = plait.join(A, B, within=4)
    message = stopped(query.on_spark(given), tmp_path)
    assert "Stream 'a', source 0, " in message
    assert "p001.parquet, row 1: time column 'ts' is NULL" in message
    assert "To skip it, filter such rows out of the DataFrame and restart" in message
    got = feeds.run(query.on_spark(given | {"a": given["a"].where("ts IS NOT NULL")}), tmp_path)
    kept = left.filter(pa.compute.is_valid(left["ts"]))
    feeds.assert_identical(got, query.reference({"a": kept, "b": TABLE}))


def test_a_file_that_sorts_before_one_delivered(two: Any, tmp_path: Path) -> None:
    for name in "ab":
        feeds.write_files(tmp_path / name, TABLE, [], first=5)
    query = plait.join(A, B, within=1)
    feeds.run(query.on_spark(read(two, tmp_path)), tmp_path, drain=False)
    feeds.write_file(tmp_path / "a" / "p001.parquet", TABLE, 9)
    message = stopped(query.on_spark(read(two, tmp_path)), tmp_path)
    assert "p001.parquet, row 0 came after" in message
    assert "p005.parquet, row 2, and sorts before it" in message


@pytest.mark.again
@pytest.mark.parametrize("how", ["auto", "rows"])
def test_a_page_that_changed_is_refused(two: Any, tmp_path: Path, how: str) -> None:
    """Of a file with checksums, as plait's parts have: whoever reads it, plait's tasks or Spark. Its rows would be others."""
    (tmp_path / "a").mkdir()
    x = [k * k * 7919 % (2**31 - 1) * 65537 % 2**62 for k in range(500)]
    table = pa.table({"ts": pa.array(range(500), pa.int64()), "x": pa.array(x, pa.int64())})
    with open_sink(tmp_path / "a" / "p000.parquet", table.schema) as sink:
        sink.write(table)
    file = tmp_path / "a" / "p000.parquet"
    whole = file.read_bytes()
    about = pq.read_metadata(file).row_group(0).column(1)
    end = about.data_page_offset + about.total_compressed_size
    for at in range(end - 10, about.data_page_offset, -7):  # who does not look at checksums reads other values
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with contextlib.suppress(OSError):
            if not pq.read_table(file).equals(table):
                break
    else:
        raise AssertionError("no byte gives other values")
    query = plait.aggregate(A, size=100, by=[], compute={"sum": plait.sum("x")})
    frame = feeds.frame(two, tmp_path / "a", feeds.spark_schema(table), streaming=True)
    df = query.on_spark({"a": frame}, read=how)
    with pytest.raises(StreamingQueryException, match=r"is damaged|CRC") as error:
        feeds.run(df, tmp_path)
    if how == "auto":
        assert "p000.parquet is damaged" in str(plait.spark.told(error.value))
    assert not list((tmp_path / "out").glob("part*"))


def test_rows_after_the_drain(two: Any, tmp_path: Path) -> None:
    for name in "ab":
        feeds.write_files(tmp_path / name, TABLE, [])
    query = plait.join(A, B, within=1)
    feeds.run(query.on_spark(read(two, tmp_path)), tmp_path)
    before = feeds.parts(tmp_path / "out")
    feeds.write_file(tmp_path / "a" / "p009.parquet", TABLE, 9)
    assert "drained" in stopped(query.on_spark(read(two, tmp_path)), tmp_path, drain=False)
    assert feeds.parts(tmp_path / "out") == before


def test_rows_that_break_the_declaration(two: Any) -> None:
    """In a batch run, which says the same: no event time, no name of a source, a source not declared, a seq twice."""
    good = {"a": two.createDataFrame(TABLE), "b": two.createDataFrame(TABLE)}
    right = plait.stream("b", unit="us", seq="x")
    for options, rows, words in (
        ({"seq": "x"}, {"ts": [1, None], "x": [1, 2]}, "time column 'ts' is NULL"),
        ({"seq": "x"}, {"ts": [1, 2**62 + 1], "x": [1, 2]}, "within"),
        ({"seq": "x"}, {"ts": [1, 2], "x": [1, None]}, "seq column 'x' is NULL"),
        ({"seq": "x"}, {"ts": [1, 2], "x": [7, 7]}, "seq 7 stands twice"),
        ({"source": "x", "seq": "ts"}, {"ts": [1, 2], "x": [1, None]}, "source column 'x' is NULL"),
        ({"source": "x", "sources": [1, 2], "seq": "ts"}, {"ts": [1, 2], "x": [1, 3]}, "source 3 is not declared"),
        ({"seq": "x"}, {"ts": [5, 1], "x": [1, 2]}, "ts 1 is late"),
    ):
        table = pa.table({name: pa.array(values, pa.int64()) for name, values in rows.items()})
        query = plait.join(plait.stream("a", unit="us", **options), right, within=1)
        with pytest.raises(Exception, match=words):  # Spark's own class, around ours
            query.on_spark(good | {"a": two.createDataFrame(table)}).collect()
        with pytest.raises(PlaitError):
            query.reference({"a": table, "b": TABLE})


@pytest.mark.again
def test_too_many_tuples_that_wait(two: Any, tmp_path: Path) -> None:
    for name in "ab":
        feeds.write_files(tmp_path / name, TABLE if name == "a" else TABLE.slice(0, 0), [])
    query = plait.join(A, B, within=1)
    message = stopped(query.on_spark(read(two, tmp_path), layout=(1, 1), max_pending=2), tmp_path, drain=False)
    assert "3 tuples wait for the frontier in one cell, more than max_pending=2" in message
    assert "Source 0 of stream 'b' holds it" in message


@pytest.mark.again
def test_the_path_of_a_file_may_hold_anything(two: Any, tmp_path: Path) -> None:
    """Spaces, percent signs and letters beyond ASCII, which URLs escape, in names that order tuples and name sources."""
    folder = tmp_path / "a b%20c é"
    names = ["x!.parquet", "x .parquet", "x%.parquet", "xé.parquet"]
    folder.mkdir()
    for number, name in enumerate(sorted(names, key=lambda n: n.encode())):
        feeds.write_file(folder / name, pa.table({"ts": [1, 1], "of": [f"{name} {k}" for k in range(2)]}), number)
    right = pa.table({"ts": [1], "n": [1]})
    parts = {name: feeds.pq.read_table(os.fspath(folder / name)) for name in names}
    frame = two.read.schema("ts long, of string").parquet(os.fspath(folder))
    other = plait.stream("b", unit="us", seq="n")
    in_order = pa.concat_tables([parts[n] for n in sorted(names, key=lambda n: n.encode())])
    for stream, data in (
        (plait.stream("a", unit="us", source=plait.FILE), parts),
        (plait.stream("a", unit="us", source=plait.FILE, sources=names), parts),
        (plait.stream("a", unit="us"), in_order),
    ):
        query = plait.join(stream, other, within=1)
        df = query.on_spark({"a": frame, "b": two.createDataFrame(right)})
        feeds.assert_identical(feeds.collected(df), query.reference({"a": data, "b": right}))
