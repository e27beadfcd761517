import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from plait.connectors import feed as any_feed
from plait.connectors.memory import feed
from plait.query.stream import stream

S = stream("q")
TABLE = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), "x": pa.array([1.5, None, 2.5])})

OTHER = TABLE.rename_columns(["ts", "y"])
WIDER = TABLE.append_column("y", [[1, 2, 3]])


def names(given):
    return [lane.source for lane in given.lanes]


# --- kinds of tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_batches(max_chunksize=1),
        tuple(TABLE.to_batches(max_chunksize=2)),
        {"ts": [1, 2, 3], "x": [1.5, None, 2.5]},
        {"ts": np.array([1, 2, 3]), "x": pa.array([1.5, None, 2.5])},
        {"ts": TABLE.column("ts"), "x": (1.5, None, 2.5)},
        pd.DataFrame({"ts": [1, 2, 3], "x": [1.5, None, 2.5]}),
        pl.DataFrame({"ts": [1, 2, 3], "x": [1.5, None, 2.5]}),
    ],
    ids=["table", "batch", "batches", "tuple", "lists", "arrays", "mixed", "pandas", "polars"],
)
def test_one_table_is_one_source_however_it_is_given(data, pull):
    given = feed(S, data)
    assert names(given) == [0]
    assert given.rows == 3
    assert pull(given).equals(TABLE)
    assert pull(given).equals(TABLE)  # a lane starts again each time


def test_how_a_table_is_labelled_is_no_part_of_its_schema():
    labelled = TABLE.replace_schema_metadata({"pandas": "x"}).cast(
        pa.schema([pa.field("ts", pa.int64(), nullable=False, metadata={"id": "1"}), ("x", pa.float64())])
    )
    given = feed(S, labelled).schema
    assert given.equals(TABLE.schema, check_metadata=True)


def test_nan_stays_nan_in_arrays_and_is_missing_in_pandas(pull):
    nan = float("nan")
    assert pull(feed(S, {"ts": [1], "x": np.array([nan])}))["x"].null_count == 0
    assert pull(feed(S, {"ts": [1], "x": [nan]}))["x"].null_count == 0
    assert pull(feed(S, pd.DataFrame({"ts": [1], "x": [nan]})))["x"].null_count == 1


def test_pandas_index_is_left_out():
    assert feed(S, pd.DataFrame({"ts": [1]}, index=[7])).schema.names == ["ts"]


def test_large_tables_come_in_slices_that_share_their_memory():
    values = np.arange(200_000)
    given = feed(S, pa.table({"ts": values}))
    chunks = list(given.lanes[0].read())
    assert [c.batch.num_rows for c in chunks] == [65_536, 65_536, 65_536, 3_392]
    assert [c.first_row for c in chunks] == [0, 65_536, 131_072, 196_608]
    first = chunks[1].batch.column(0).buffers()[1].address
    assert first == values.ctypes.data  # the same buffer, at another offset


def test_a_path_or_a_feed_is_told_from_a_table(tmp_path, pull):
    (tmp_path / "a.csv").write_text("ts\n1\n")
    made = any_feed(S, str(tmp_path))
    assert pull(made).to_pydict() == {"ts": [1]}
    assert any_feed(S, made) is made
    assert feed(S, made) is made
    assert any_feed(S, TABLE).rows == 3


# --- several sources ----------------------------------------------------------------------------------------


def test_a_list_of_tables_is_sources_by_position(pull):
    given = feed(S, [TABLE, {"ts": [4], "x": [0.5]}])
    assert names(given) == [0, 1]
    assert pull(given)["ts"].to_pylist() == [1, 2, 3, 4]
    assert [c.where for lane in given.lanes for c in lane.read()] == ["source 0", "source 1"]


def test_declared_names_go_to_tables_by_position():
    assert names(feed(stream("q", sources=["b", "a"]), [TABLE, TABLE])) == ["b", "a"]
    assert names(feed(stream("q", sources=["only"]), TABLE)) == ["only"]


def test_a_dict_of_tables_is_sources_by_name_in_declared_order_or_else_by_bytes():
    tables = {"z": TABLE, "é": TABLE, "a": TABLE.to_batches(max_chunksize=1)}
    assert names(feed(S, tables)) == ["a", "z", "é"]
    assert names(feed(stream("q", sources=["é", "a", "z"]), tables)) == ["é", "a", "z"]
    assert names(feed(S, {10: TABLE, 9: TABLE})) == [9, 10]
    assert names(feed(S, {"a": {"ts": [1]}, "b": {"ts": [2]}})) == ["a", "b"]


def test_files_and_partitions_can_be_named_in_memory():
    assert names(feed(stream("q", source="@file"), {"a.csv": TABLE})) == ["a.csv"]
    assert names(feed(stream("q", source="@partition"), [TABLE, TABLE])) == [0, 1]


def test_a_source_column_makes_one_lane_without_a_name():
    assert names(feed(stream("q", source="x"), TABLE)) == [None]
    assert names(feed(stream("q", source="x"), TABLE.to_batches(max_chunksize=1))) == [None]


# --- a declared schema --------------------------------------------------------------------------------------


def test_a_declared_schema_selects_orders_and_types(pull):
    declared = stream("q", schema={"x": "float32", "ts": "int64"})
    rows = pull(feed(declared, {"ts": [1], "x": [0.1], "other": ["-"]}))
    assert rows.schema.equals(declared.schema)
    assert rows["x"].to_pylist() == [np.float32(0.1)]
    assert feed(declared, []).rows == 0


def test_text_is_text_in_any_layout(pull):
    declared = stream("q", schema={"ts": "int64", "s": "string"})
    for column in (pa.array(["a", None], pa.large_string()), pa.array(["a", None]).dictionary_encode()):
        assert pull(feed(declared, pa.table({"ts": [1, 2], "s": column})))["s"].to_pylist() == ["a", None]
    both = {"a": pa.table({"s": pa.array(["x"], pa.large_string())}), "b": pa.table({"s": ["y"]})}
    assert pull(feed(S, both))["s"].to_pylist() == ["x", "y"]


def test_a_column_that_may_not_be_null(refusal):
    declared = stream("q", schema=pa.schema([("ts", pa.int64()), pa.field("x", pa.float64(), nullable=False)]))
    given = feed(declared, TABLE)
    assert "row 1: column 'x' is NULL. Its schema= says" in refusal(list, given.lanes[0].read())


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (5, ["Stream 'q' is given int 5, which is no table", "dict of columns"]),
        ({}, ["is given dict {}, which is no table"]),
        ([], ["is given an empty list", "Declare schema="]),
        (iter([TABLE]), ["is given a list_iterator", "read only once"]),
        (TABLE.to_reader(), ["is given a RecordBatchReader", "read_all()"]),
        ({"ts": 5}, ["column 'ts' is int 5, which is no column", "from_pylist"]),
        ({"ts": "abc"}, ["column 'ts' is str 'abc', which is no column"]),
        ([{"ts": 1}, {"ts": 2}], ["source 0: column 'ts' is int 1, which is no column"]),
        ({1: [1]}, ["1 can't name a column"]),
        ({"ts": [1, 2], "x": [1]}, ["column 'ts' has 2 rows and 'x' has 1"]),
        ({"ts": [1], "x": TABLE}, ["'x' is a table, and others in the same dict are columns"]),
        ({"ts": [1, "a"]}, ["column 'ts' has no Arrow type"]),
        (pd.DataFrame({"x": [1, "a"]}), ["the DataFrame has no Arrow form"]),
        ({"a": TABLE, 1: TABLE}, ["1 can't name a source here"]),
        ([TABLE, OTHER], ["source 1 has no column 'x' (double), which source 0 has", "ts, y"]),
        ([TABLE, WIDER], ["source 1 has a column 'y', which is not among those that source 0 has"]),
        ([TABLE, {"ts": [1.0], "x": [1.0]}], ["source 1: column 'ts' is double, and source 0 has it as int64"]),
        (pa.table([[1], [2]], names=["ts", "ts"]), ["Stream 'q' has two columns called 'ts'"]),
        ([*TABLE.to_batches(), *OTHER.to_batches()], ["batch 1 has no column 'x' (double), which batch 0 has"]),
    ],
    ids=lambda value: None if isinstance(value, list) else type(value).__name__,
)  # fmt: skip
def test_refusals(data, parts, refusal):
    message = refusal(feed, S, data)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("options", "data", "part"),
    [
        ({"sources": 2}, TABLE, "declares 2 sources and is given 1 table."),
        ({"sources": ["a", "b"]}, [TABLE] * 3, "declares 2 sources and is given 3 tables."),
        ({"sources": ["a", "b"]}, {"a": TABLE, "c": TABLE}, "a table for source 'c', which is not declared"),
        ({"sources": ["a", "b"]}, {"a": TABLE}, "declares source 'b', and no table is given for it"),
        (
            {"sources": 2},
            {"a": TABLE, "b": TABLE},
            "a table for source 'a', which is not declared. Its sources= are 0, 1",
        ),
        ({"source": "x"}, [TABLE, TABLE], "given several tables, and its sources are named by column 'x'"),
        ({"source": "@file"}, TABLE, "takes its sources' names from @file, and a bare table has none"),
        ({"schema": {"ts": "int64", "z": "int8"}}, TABLE, "has no column 'z' (int8), which schema= declares"),
        ({"schema": {"ts": "int32"}}, TABLE, "column 'ts' is int64, and schema= declares it as int32"),
        ({"schema": {"ts": "int8"}}, {"ts": [500]}, "column 'ts' does not fit its declared type int8"),
    ],
)
def test_refusals_of_what_is_declared_otherwise(options, data, part, refusal):
    assert part in refusal(feed, stream("q", **options), data)


def test_a_time_keeps_its_zone(pull):
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert pull(feed(S, {"ts": [moment]})).schema.field("ts").type == pa.timestamp("us", tz="UTC")
