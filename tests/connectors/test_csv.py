import datetime as dt
import gzip

import pyarrow as pa
import pytest

from plait.connectors import csv_file
from plait.connectors.folder import feed
from plait.query.stream import stream

S = stream("q")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 256 bytes, so that little data spans many."""
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", 256)


def put(folder, text, name="a.csv"):
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def test_types_are_inferred_and_times_have_microseconds(tmp_path, pull):
    put(
        tmp_path,
        "ts,local,whole,real,text,flag,day,nothing\n"
        "2024-01-01T00:00:00Z,2024-01-01T00:00:00,1,1.5,a,true,2024-01-01,\n"
        "2024-01-01T02:00:00.123456+02:00,2024-01-01 00:00:00.5,2,NaN,b,false,2024-01-02,\n",
    )
    rows = pull(feed(S, tmp_path))
    assert rows.schema == pa.schema(
        {
            "ts": pa.timestamp("us", tz="UTC"),
            "local": pa.timestamp("us"),
            "whole": pa.int64(),
            "real": pa.float64(),
            "text": pa.string(),
            "flag": pa.bool_(),
            "day": pa.date32(),
            "nothing": pa.string(),
        }
    )
    assert rows["ts"].to_pylist()[1] == dt.datetime(2024, 1, 1, 0, 0, 0, 123456, dt.UTC)
    assert rows["local"].to_pylist()[1] == dt.datetime.fromisoformat("2024-01-01T00:00:00.5")
    assert rows["real"].null_count == 0  # NaN is a number


def test_an_empty_field_is_null_except_in_text(tmp_path, pull):
    put(tmp_path, 'ts,x,t\n1,,\n2,NaN,""\n')
    rows = pull(feed(S, tmp_path))
    assert rows["x"].null_count == 1
    assert rows["t"].to_pylist() == ["", ""]


def test_null_values_hold_in_text_too_unless_quoted(tmp_path, pull):
    put(tmp_path, 'ts,x,t\n1,NA,NA\n2,1,"NA"\n3,,\n')
    schema = {"ts": "int64", "x": "int32", "t": "string"}
    rows = pull(feed(stream("q", schema=schema), tmp_path, null_values=["", "NA"]))
    assert rows["x"].to_pylist() == [None, 1, None]
    assert rows["t"].to_pylist() == [None, "NA", None]


def test_quotes_newlines_bom_delimiter_and_gzip(tmp_path, pull):
    text = '\ufeffts;t\r\n1;"a;b ""c""\nd"\r\n\r\n2;e\r\n'
    put(tmp_path, gzip.compress(text.encode()), "a.csv.gz")
    rows = pull(feed(S, tmp_path, delimiter=";"))
    assert rows.to_pydict() == {"ts": [1, 2], "t": ['a;b "c"\nd', "e"]}


def test_a_declared_schema_reads_its_columns_in_its_order(tmp_path, pull):
    put(tmp_path, "junk,x,ts,key\n??,1,2024-01-01T00:00:00Z,AAEC\n")
    schema = {"ts": "timestamp", "x": "float32", "key": "binary"}
    rows = pull(feed(stream("q", schema=schema), tmp_path))
    assert rows.schema.names == ["ts", "x", "key"]
    assert rows["key"].to_pylist() == [b"\x00\x01\x02"]
    assert rows["x"].type == pa.float32()


def test_quoted_newlines_at_the_edge_of_a_block(tmp_path, pull, small_blocks):
    texts = [f"line {i}\nand {'x' * (i % 60)}" for i in range(200)]
    put(tmp_path, "ts,t\n" + "".join(f'{i},"{t}"\n' for i, t in enumerate(texts)))
    rows = pull(feed(S, tmp_path, batch_rows=3))
    assert rows["t"].to_pylist() == texts


def test_batches_are_no_larger_than_asked_for(tmp_path):
    put(tmp_path, "ts\n" + "".join(f"{i}\n" for i in range(1000)))
    sizes = [c.batch.num_rows for c in feed(S, tmp_path, batch_rows=300).lanes[0].read()]
    assert sizes == [300, 300, 300, 100]


def test_the_first_file_with_rows_gives_the_types(tmp_path, pull):
    put(tmp_path, "ts,x", "a.csv")
    put(tmp_path, "ts,x\n", "b.csv")
    put(tmp_path, "x,ts\n1.5,1\n", "c.csv")
    rows = pull(feed(S, tmp_path))
    assert rows.to_pydict() == {"x": [1.5], "ts": [1]}


# --- refusals -----------------------------------------------------------------------------------------------


def test_a_later_row_that_does_not_fit_is_named_with_row_and_line(tmp_path, refusal, small_blocks):
    put(tmp_path, "ts,t,x\n" + '0,"two\nlines",1\n' + "".join(f"{i},a,{i}\n" for i in range(1, 500)) + "\n500,a,no\n")
    lane = feed(S, tmp_path).lanes[0]
    assert refusal(list, lane.read()) == (
        f"CSV file '{tmp_path}/a.csv', row 500 (line 504): column 'x' is no int64: invalid value 'no'. "
        "'a.csv' has it so (as its first rows show it). Mend the row, or declare the column's type with schema=."
    )


def test_a_later_file_that_does_not_fit_is_named(tmp_path, refusal):
    put(tmp_path, "ts,x\n1,2\n", "a.csv")
    put(tmp_path, "ts,x\n1,2\n2,2.5\n", "b.csv")
    message = refusal(list, feed(S, tmp_path).lanes[0].read())
    assert f"'{tmp_path}/b.csv', row 1 (line 3): column 'x' is no int64: invalid value '2.5'" in message
    assert "'a.csv' has it so" in message
    declared = stream("q", schema={"x": "int64"})
    message = refusal(list, feed(declared, tmp_path).lanes[0].read())
    assert "row 1 (line 3): column 'x' is no int64: invalid value '2.5'. schema= declares it so." in message.replace(
        "Schema=", "schema="
    )


@pytest.mark.parametrize(
    ("kind", "value", "part"),
    [
        ("timestamp", "2024-01-01T00:00:00", "expected a zone offset in '2024-01-01T00:00:00'"),
        ("timestamp_ntz", "2024-01-01T00:00:00Z", "expected no zone offset in '2024-01-01T00:00:00Z'"),
        ("timestamp", "2024-01-01T00:00:00.123456789Z", "invalid value '2024-01-01T00:00:00.123456789Z'"),
        ("bool", "yes", "is no bool: invalid value 'yes'"),
        ("int8", "300", "is no int8"),
    ],
)
def test_values_that_are_not_of_their_type(tmp_path, kind, value, part, refusal):
    put(tmp_path, f"ts,v\n1,{value}\n")
    declared = stream("q", schema={"ts": "int64", "v": kind})
    message = refusal(list, feed(declared, tmp_path).lanes[0].read())
    assert "row 0 (line 2): column 'v' is no" in message
    assert part in message


def test_a_row_with_another_number_of_fields(tmp_path, refusal):
    put(tmp_path, "ts,x\n1,2\n3\n")
    message = refusal(feed, S, tmp_path)
    assert f"CSV file '{tmp_path}/a.csv', row 1 (line 3): expected 2 columns, got 1: 3." in message


def test_columns_that_differ(tmp_path, refusal):
    put(tmp_path, "ts,x\n1,2\n", "a.csv")
    put(tmp_path, "ts,y\n1,2\n", "b.csv")
    lane = feed(S, tmp_path).lanes[0]
    assert f"CSV file '{tmp_path}/b.csv' has no column 'x' (int64), which 'a.csv' has" in refusal(list, lane.read())
    put(tmp_path, "ts,x,y\n1,2,3\n", "b.csv")
    assert "b.csv' has a column 'y', which is not among those that 'a.csv' has" in refusal(list, lane.read())
    put(tmp_path, "ts,ts\n1,2\n", "a.csv")
    assert f"CSV file '{tmp_path}/a.csv' has two columns called 'ts'" in refusal(feed, S, tmp_path)


def test_no_header(tmp_path, refusal):
    put(tmp_path, "")
    assert f"CSV file '{tmp_path}/a.csv' has no header line (0 bytes)" in refusal(feed, S, tmp_path)
    put(tmp_path, "\n\n")
    assert "has no header line." in refusal(feed, S, tmp_path)


def test_no_rows_anywhere(tmp_path, refusal, pull):
    put(tmp_path, "ts,x\n")
    message = refusal(feed, S, tmp_path)
    assert f"No file of stream 'q' has a row (the first is '{tmp_path}/a.csv')" in message
    assert "Declare the columns with schema=" in message
    assert pull(feed(stream("q", schema={"ts": "int64"}), tmp_path)).num_rows == 0


def test_bytes_that_are_not_utf8(tmp_path, refusal):
    put(tmp_path, b"ts,t\n1,\xff\xfe\n")
    assert f"CSV file '{tmp_path}/a.csv': column 't' holds bytes that are not UTF-8" in refusal(feed, S, tmp_path)
    declared = stream("q", schema={"t": "string"})
    message = refusal(list, feed(declared, tmp_path).lanes[0].read())
    assert "row 0" in message
    assert "column 't' is no string: invalid UTF8 data" in message
    put(tmp_path, b"\xff\xfe,t\n1,2\n")
    assert "has no readable header" in refusal(feed, S, tmp_path)


def test_an_open_quote(tmp_path, refusal, small_blocks):
    put(tmp_path, 'ts,t\n1,"' + "x" * 2000 + "\n")
    assert "has a row of more than 256 bytes. Most often a quote is opened and never closed" in refusal(
        feed, S, tmp_path
    )


def test_broken_gzip_and_base64_and_nested_types(tmp_path, refusal):
    whole = gzip.compress(b"ts\n" + b"1\n" * 100_000)
    put(tmp_path, whole[: len(whole) // 2], "a.csv.gz")
    declared = stream("q", schema={"ts": "int64"})
    assert "a.csv.gz' can't be read" in refusal(list, feed(declared, tmp_path).lanes[0].read())
    (tmp_path / "a.csv.gz").unlink()
    put(tmp_path, "k\nAAEC\n!!\n")
    lane = feed(stream("q", schema={"k": "binary"}), tmp_path).lanes[0]
    assert f"{tmp_path}/a.csv: column 'k', row 1, is no base64: '!!'" in refusal(list, lane.read())
    lane = feed(stream("q", schema=pa.schema([("k", pa.list_(pa.int8()))])), tmp_path).lanes[0]
    assert f"CSV file '{tmp_path}/a.csv' can't hold what schema= declares" in refusal(list, lane.read())
