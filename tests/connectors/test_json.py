import datetime as dt
import gzip
import json
import math

import pyarrow as pa
import pytest

from plait.connectors import json_file
from plait.connectors.folder import feed
from plait.query.stream import stream

S = stream("q")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(json_file, "BLOCK_BYTES", 64)


def put(folder, text, name="a.jsonl"):
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def test_types_are_inferred_and_times_keep_their_zone(tmp_path, pull):
    put(
        tmp_path,
        '{"ts":"2024-01-01T00:00:00.5Z","local":"2024-01-01T00:00:00","day":"2024-01-01","x":1,"y":1,"s":"24","n":null}\n'
        '{"ts":"2024-01-01T02:00:00+02:00","local":"2024-01-01 00:00:00.25","day":"2024-01-02",'
        '"x":2,"y":2.5,"s":"b","l":[1]}\n',
    )  # fmt: skip
    rows = pull(feed(S, tmp_path))
    assert rows.schema == pa.schema(
        {
            "ts": pa.timestamp("us", tz="UTC"),
            "local": pa.timestamp("us"),
            "day": pa.date32(),
            "x": pa.int64(),
            "y": pa.float64(),
            "s": pa.string(),
            "n": pa.string(),
            "l": pa.list_(pa.int64()),
        }
    )
    assert rows["ts"].to_pylist()[1] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert rows["l"].to_pylist() == [None, [1]]


def test_any_block_size_gives_the_same_rows(tmp_path, pull, monkeypatch):
    lines = [json.dumps({"ts": i, "t": "é" * (i % 50), "v": i / 7}) for i in range(500)]
    put(tmp_path, "\n".join(lines))  # no newline at the end
    expected = pull(feed(S, tmp_path))
    assert expected.num_rows == 500
    declared = stream("q", schema=expected.schema)
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(json_file, "BLOCK_BYTES", size)
        assert pull(feed(declared, tmp_path, batch_rows=100)).equals(expected)


def test_a_missing_field_is_null_and_blank_lines_are_no_rows(tmp_path, pull):
    put(tmp_path, '{"ts":1,"x":1}\r\n\r\n{"ts":2}\r\n  \n{"x":3,"ts":null}\n')
    assert pull(feed(S, tmp_path)).to_pydict() == {"ts": [1, 2, None], "x": [1, None, 3]}


def test_an_empty_file_has_no_rows(tmp_path, pull, refusal):
    put(tmp_path, "", "a.jsonl")
    put(tmp_path, '{"ts":1}\n', "b.ndjson")
    put(tmp_path, gzip.compress(b'{"ts":2}\n'), "c.json.gz")
    assert pull(feed(S, tmp_path)).to_pydict() == {"ts": [1, 2]}
    assert pull(feed(stream("q", schema={"ts": "int64"}), tmp_path / "a.jsonl")).num_rows == 0
    assert "No file of stream 'q' has a row" in refusal(feed, S, tmp_path / "a.jsonl")


def test_words_for_floats_are_numbers_in_float_columns_only(tmp_path, pull, small_blocks):
    put(
        tmp_path,
        '{"x":1.5,"s":"NaN"}\n{"x":"NaN","s":"a"}\n{"x":"-Infinity","s":"b"}\n{"x":"Infinity"}\n{"x":null}\n' * 20,
    )
    declared = stream("q", schema={"x": "float32", "s": "string"})
    rows = pull(feed(declared, tmp_path)).to_pydict()
    assert rows["s"][:5] == ["NaN", "a", "b", None, None]
    assert rows["x"][0] == 1.5
    assert math.isnan(rows["x"][1])
    assert rows["x"][2:5] == [-math.inf, math.inf, None]


def test_words_for_floats_do_not_hinder_inference(tmp_path, pull):
    put(tmp_path, '{"x":1.5}\n{"x":"NaN"}\n')
    rows = pull(feed(S, tmp_path))
    assert rows.schema.field("x").type == pa.float64()
    assert math.isnan(rows["x"].to_pylist()[1])


def test_a_declared_schema_passes_over_other_fields(tmp_path, pull):
    put(tmp_path, '{"a":{"b":1},"ts":"2024-01-01T00:00:00Z","k":"AAEC","d":1.50}\n')
    schema = pa.schema([("k", pa.binary()), ("ts", pa.timestamp("us", tz="UTC")), ("d", pa.decimal128(9, 2))])
    rows = pull(feed(stream("q", schema=schema), tmp_path))
    assert rows.schema == schema
    assert rows["k"].to_pylist() == [b"\x00\x01\x02"]
    assert str(rows["d"].to_pylist()[0]) == "1.50"


# --- refusals -----------------------------------------------------------------------------------------------


def test_a_row_that_does_not_fit_is_named_with_row_and_line(tmp_path, refusal, small_blocks):
    put(tmp_path, "".join(f'{{"ts":{i}}}\n' for i in range(300)) + '\n{"ts":"soon"}\n' + '{"ts":1}\n' * 50)
    message = refusal(list, feed(S, tmp_path).lanes[0].read())
    assert message == (
        f'JSON-lines file \'{tmp_path}/a.jsonl\', row 300 (line 302) can\'t be read: {{"ts":"soon"}}. '
        "Column(/ts) changed from number to string; 'a.jsonl' has these columns. "
        "Mend the line, or declare the columns and their types with schema=."
    )


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('{"ts":', "Invalid value"),
        ("hello", "Invalid value"),
        ('{"ts":1}{"ts":2}', "each line holds exactly one object"),
        ('{"ts":1.5}', "couldn't parse:1.5"),
        ('{"ts":true}', "changed from number to boolean"),
        ('{"ts":1,"other":2}', "unexpected field"),
        ('{"ts":1,"ts":2}', "specified twice"),
        ('{"ts":99999999999999999999}', "couldn't parse"),
        ('["NaN"]', "is a JSON array"),
        ('{"ts":"NaN"}', "changed from number to string"),
    ],
)
def test_lines_that_are_no_rows(tmp_path, line, part, refusal):
    put(tmp_path, '{"ts":1}\n', "a.jsonl")
    put(tmp_path, f'{{"ts":1}}\n{{"ts":2}}\n{line}\n{{"ts":4}}\n', "b.jsonl")
    message = refusal(list, feed(S, tmp_path).lanes[0].read())
    assert f"'{tmp_path}/b.jsonl', " in message
    assert "line 3" in message
    assert part.lower() in message.lower()


def test_an_object_over_two_lines_is_refused_wherever_blocks_end(tmp_path, refusal, monkeypatch):
    put(tmp_path, '{"ts":1}\n{"ts":\n2}\n{"ts":3}\n')
    declared = stream("q", schema={"ts": "int64"})
    for size in (5, 12, 1000):
        monkeypatch.setattr(json_file, "BLOCK_BYTES", size)
        assert "row 1 (line 2) can't be read" in refusal(list, feed(declared, tmp_path).lanes[0].read())


@pytest.mark.parametrize(
    ("kind", "value", "part"),
    [
        ("timestamp", '"2024-01-01T00:00:00"', "expected a zone offset"),
        ("timestamp_ntz", '"2024-01-01T00:00:00Z"', "expected no zone offset"),
        ("timestamp", "1704067200", "changed from string to number"),
        ("date", '"soon"', "soon"),
        ("text", "5", "changed from string to number"),
    ],
)
def test_values_that_are_not_of_their_type(tmp_path, kind, value, part, refusal):
    put(tmp_path, f'{{"v":null}}\n{{"v":{value}}}\n')
    message = refusal(list, feed(stream("q", schema={"v": kind}), tmp_path).lanes[0].read())
    assert "row 1 (line 2) can't be read" in message
    assert part in message


def test_an_array_and_an_endless_line(tmp_path, refusal, monkeypatch):
    put(tmp_path, '[{"ts":1},{"ts":2}]\n', "a.json")
    message = refusal(feed, S, tmp_path)
    assert f"File '{tmp_path}/a.json', line 1, is a JSON array" in message
    assert "jq -c" in message
    monkeypatch.setattr(json_file, "BLOCK_BYTES", 64)
    monkeypatch.setattr(json_file, "MAX_LINE_BYTES", 256)
    put(tmp_path, '{"ts":1}\n{"t":"' + "x" * 400 + '"}\n', "a.json")
    lane = feed(stream("q", schema={"ts": "int64"}), tmp_path).lanes[0]
    assert "line 2 is longer than 256 bytes" in refusal(list, lane.read())


def test_bytes_base64_and_gzip_that_are_broken(tmp_path, refusal):
    put(tmp_path, b'{"t":"a"}\n{"t":"\xff"}\n')
    message = refusal(list, feed(stream("q", schema={"t": "text"}), tmp_path).lanes[0].read())
    assert "row 1 (line 2) can't be read" in message
    assert "utf-8" in message
    put(tmp_path, '{"k":"AAEC"}\n{"k":"!!"}\n')
    lane = feed(stream("q", schema={"k": "binary"}), tmp_path).lanes[0]
    assert f"JSON-lines file '{tmp_path}/a.jsonl': column 'k', row 1, is no base64: '!!'" in refusal(list, lane.read())
    (tmp_path / "a.jsonl").unlink()
    whole = gzip.compress(b'{"ts":1}\n' * 100_000)
    put(tmp_path, whole[: len(whole) // 2], "a.jsonl.gz")
    lane = feed(stream("q", schema={"ts": "int64"}), tmp_path).lanes[0]
    assert f"JSON-lines file '{tmp_path}/a.jsonl.gz' can't be read" in refusal(list, lane.read())
