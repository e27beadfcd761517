import contextlib
import datetime as dt
import decimal
import io
import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.connectors import files, folder, sinks
from plait.connectors.folder import feed
from plait.connectors.sinks import ROW_GROUP_ROWS, open_sink
from plait.errors import DataError, RunError
from plait.query.stream import stream

UTC = pa.timestamp("us", tz="UTC")
MOMENT = 1_704_067_200_000_001
FLAT = pa.table(
    {
        "ts": pa.array([MOMENT, None], UTC),
        "local": pa.array([MOMENT, 0], pa.timestamp("us")),
        "day": pa.array([dt.date(2024, 2, 29), None]),
        "i": pa.array([2**63 - 1, None]),
        "f": pa.array([0.1, math.nan], pa.float32()),
        "g": pa.array([math.inf, -math.inf]),
        "s": pa.array(['say "é",\nthen', ""]),
        "n": pa.array([None, ""]),
        "b": pa.array([True, None]),
        "k": pa.array([b"\x00\xff", None]),
    }
)
NESTED = FLAT.append_column("l", pa.array([["a", None], None])).append_column(
    "o", pa.array([{"t": dt.datetime.fromisoformat("2024-01-01"), "x": [math.nan]}, None])
)
ENDINGS = ["parquet", "csv", "jsonl"]


def write(path, table, *, rows=None, **options):
    with open_sink(path, table.schema, **options) as sink:
        for batch in table.to_batches(max_chunksize=rows):
            sink.write(batch)
    return path


def read(path, schema, **options):
    given = feed(stream("q", schema=schema), path, **options)
    return pa.Table.from_batches([c.batch for lane in given.lanes for c in lane.read()], schema)


def same(a, b):
    """Equal with NaN = NaN, to the bit but for NaN's."""
    return repr(a.to_pydict()) == repr(b.to_pydict()) and a.schema == b.schema


# --- what is written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [*ENDINGS, "json", "ndjson"])
def test_what_is_written_reads_back_the_same(tmp_path, ending):
    path = write(tmp_path / f"out.{ending}", FLAT)
    assert same(read(path, FLAT.schema, null_values=[""]), FLAT)
    assert os.listdir(tmp_path) == [f"out.{ending}"]


def test_nested_values_read_back_from_parquet(tmp_path):
    assert same(read(write(tmp_path / "out.parquet", NESTED), NESTED.schema), NESTED)


def test_json_lines_as_text(tmp_path):
    first, second = write(tmp_path / "o.jsonl", NESTED).read_text().splitlines()
    assert json.loads(first) == {
        "ts": "2024-01-01T00:00:00.000001Z",
        "local": "2024-01-01T00:00:00.000001",
        "day": "2024-02-29",
        "i": 2**63 - 1,
        "f": 0.1,
        "g": "Infinity",
        "s": 'say "é",\nthen',
        "n": None,
        "b": True,
        "k": "AP8=",
        "l": ["a", None],
        "o": {"t": "2024-01-01T00:00:00.000000", "x": ["NaN"]},
    }
    row = json.loads(second)
    assert (row["f"], row["g"], row["l"], row["o"], row["s"]) == ("NaN", "-Infinity", None, None, "")
    assert "é" in first  # text is not escaped


def test_csv_as_text(tmp_path):
    header, *rows = write(tmp_path / "o.csv", FLAT.drop(["s"])).read_text().splitlines()
    assert header == '"ts","local","day","i","f","g","n","b","k"'
    assert rows[0] == (
        '"2024-01-01T00:00:00.000001Z","2024-01-01T00:00:00.000001","2024-02-29",9223372036854775807,0.1,inf,,true,"AP8="'
    )
    assert rows[1] == ',"1970-01-01T00:00:00.000000",,,nan,-inf,"",,'


def test_other_types_in_json(tmp_path):
    table = pa.table(
        {
            "zone": pa.array([MOMENT], pa.timestamp("us", tz="Europe/Paris")),
            "ns": pa.array([1], pa.timestamp("ns")),
            "dec": pa.array([decimal.Decimal("1.50")]),
            "time": pa.array([dt.time(1, 2, 3)]),
            "span": pa.array([5], pa.duration("us")),
            "half": pa.array([0.5], pa.float16()),
            "dict": pa.array(["a"]).dictionary_encode(),
            "fixed": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
            "bytes": pa.array([b"ab"], pa.binary(2)),
        }
    )
    assert json.loads(write(tmp_path / "o.jsonl", table).read_text()) == {
        "zone": "2024-01-01T00:00:00.000001Z",
        "ns": "1970-01-01T00:00:00.000000001",
        "dec": "1.50",
        "time": "01:02:03.000000",
        "span": 5,
        "half": 0.5,
        "dict": "a",
        "fixed": [1, 2],
        "bytes": "YWI=",
    }
    flat = table.drop(["fixed"])
    assert write(tmp_path / "o.csv", flat).read_text().splitlines()[1].startswith('"2024-01-01T00:00:00.000001Z",')


@pytest.mark.parametrize("ending", ENDINGS)
def test_how_rows_are_cut_leaves_no_trace(tmp_path, ending):
    count = ROW_GROUP_ROWS + 5 if ending == "parquet" else 1000
    table = pa.table({"ts": range(count), "t": [f"{i % 77}" for i in range(count)]})
    written = [write(tmp_path / f"{rows}.{ending}", table, rows=rows).read_bytes() for rows in (97, 400, None)]
    assert written[0] == written[1] == written[2]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_result_without_rows_is_a_file(tmp_path, ending):
    path = write(tmp_path / f"o.{ending}", FLAT.slice(0, 0))
    assert same(read(path, FLAT.schema), FLAT.slice(0, 0))


def test_row_groups_have_a_fixed_size(tmp_path):
    table = pa.table({"ts": range(2 * ROW_GROUP_ROWS + 5)})
    metadata = pq.read_metadata(write(tmp_path / "o.parquet", table, rows=1000))
    assert [metadata.row_group(g).num_rows for g in range(metadata.num_row_groups)] == [
        ROW_GROUP_ROWS,
        ROW_GROUP_ROWS,
        5,
    ]


def test_a_byte_of_a_page_that_changed_is_noticed(tmp_path):
    """Each of the pages' bytes: most give other values to a reader that does not look at checksums."""
    table = pa.table(
        {"ts": range(200), "x": [k * 7919 % 211 for k in range(200)], "s": [f"n{k % 7}" for k in range(200)]}
    )
    file = write(tmp_path / "o.parquet", table)
    data = file.read_bytes()
    pages = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    other = noticed = 0
    for at in range(4, pages, 3):
        changed = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        file.write_bytes(changed)
        try:
            assert same(read(file, table.schema), table)  # of a page's head some bytes say nothing that is read
        except DataError as error:
            noticed += "is damaged at or after row" in str(error) or "can't be read as Parquet" in str(error)
        with contextlib.suppress(OSError, pa.ArrowException):
            other += not same(pq.read_table(pa.BufferReader(changed)), table)
    assert noticed > 100
    assert other > 100, "they would have been read as other values"


def test_the_umask_decides_who_may_read(tmp_path):
    mask = os.umask(0o027)
    try:
        path = write(tmp_path / "o.csv", FLAT.drop(["s"]))
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


# --- whole or not at all ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("before", [None, b"old"])
def test_an_exception_in_the_middle_leaves_nothing(tmp_path, ending, before):
    target = tmp_path / f"o.{ending}"
    if before:
        target.write_bytes(before)

    def fail():
        with open_sink(target, FLAT.schema) as sink:
            sink.write(FLAT)
            assert len(os.listdir(tmp_path)) == (2 if before else 1)
            assert not target.exists() or target.read_bytes() == before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert os.listdir(tmp_path) == ([target.name] if before else [])
    assert not before or target.read_bytes() == before


def test_the_name_appears_only_on_commit_and_unfinished_files_are_passed_over(tmp_path):
    sink = open_sink(tmp_path / "b.csv", pa.schema([("ts", pa.int64())]))
    (tmp_path / "a.csv").write_text("ts\n1\n")
    assert len(os.listdir(tmp_path)) == 2
    assert read(tmp_path, pa.schema([("ts", pa.int64())])).num_rows == 1
    sink.write(pa.table({"ts": [7]}))
    sink.commit()
    assert read(tmp_path, pa.schema([("ts", pa.int64())]))["ts"].to_pylist() == [1, 7]
    assert sink.rows == 1


def test_a_killed_process_leaves_nothing_under_the_name(tmp_path):
    code = (
        "import os, sys, pyarrow as pa\n"
        "from plait.connectors.sinks import open_sink\n"
        "s = open_sink(sys.argv[1], pa.schema([('a', pa.int64())]))\n"
        "s.write(pa.table({'a': list(range(100000))}))\n"
        "os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "o.jsonl"], check=False).returncode == 9
    assert [name for name in os.listdir(tmp_path) if not name.startswith(".")] == []


def test_a_failure_at_the_end_leaves_nothing(tmp_path, monkeypatch, refusal):
    def full(*_):
        raise OSError(28, "No space left on device")

    sink = open_sink(tmp_path / "o.jsonl", FLAT.schema)
    sink.write(FLAT)
    monkeypatch.setattr(os, "fsync", full)
    message = refusal(sink.commit)
    assert f"'{tmp_path}/o.jsonl' can't be written. [Errno 28] No space left on device." in message
    assert os.listdir(tmp_path) == []


def test_a_sink_has_one_end(tmp_path):
    sink = open_sink(tmp_path / "o.jsonl", FLAT.schema)
    sink.commit()
    sink.abort()  # harmless
    assert (tmp_path / "o.jsonl").exists()
    with pytest.raises(RunError, match="write on a sink that is committed"):
        sink.write(FLAT)
    other = open_sink(tmp_path / "p.jsonl", FLAT.schema)
    other.abort()
    with pytest.raises(RunError, match="commit on a sink that is aborted"):
        other.commit()
    assert os.listdir(tmp_path) == ["o.jsonl"]


# --- refusals -----------------------------------------------------------------------------------------------


def test_targets_that_can_not_be(tmp_path, refusal, monkeypatch):
    schema = FLAT.schema
    assert f"'{tmp_path}' is a folder" in refusal(open_sink, tmp_path, schema, format="csv")
    assert f"There is no folder '{tmp_path}/no' to write 'o.csv' in" in refusal(
        open_sink, tmp_path / "no/o.csv", schema
    )
    assert "'/dev/null' is no ordinary file" in refusal(open_sink, "/dev/null", schema, format="csv")
    assert "can't be told from its name" in refusal(open_sink, tmp_path / "o.txt", schema)
    assert "can't be told from its name" in refusal(open_sink, tmp_path / "o.csv.gz", schema)
    assert "format='xml' is no format" in refusal(open_sink, tmp_path / "o", schema, format="xml")
    assert "The path is 5. A path is text" in refusal(open_sink, 5, schema)
    assert "schema=5 says no columns" in refusal(open_sink, tmp_path / "o.csv", 5)
    sink = open_sink(tmp_path / "o.csv", schema)
    assert "is given 5. Pass an Arrow record batch or table" in refusal(sink.write, 5)
    sink.abort()

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    message = refusal(open_sink, tmp_path / "o.csv", schema)
    assert f"'{tmp_path}/o.csv' can't be written. The folder takes no new file (Permission denied)." in message
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_columns_that_can_not_be(tmp_path, refusal):
    message = refusal(open_sink, tmp_path / "o.csv", NESTED.schema)
    assert message.startswith(f"Column 'l' ({NESTED.schema.field('l').type}) can't be written to '{tmp_path}/o.csv'.")
    assert "Write Parquet or JSON lines" in message
    odd = pa.schema([("m", pa.map_(pa.string(), pa.int8()))])
    assert "Column 'm' (map<string, int8>) can't be written" in refusal(open_sink, tmp_path / "o.jsonl", odd)
    interval = pa.schema([("i", pa.month_day_nano_interval())])
    assert "can't hold these columns" in refusal(open_sink, tmp_path / "o.parquet", interval)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("ts", [2**62, -(2**62), 253_402_300_800_000_000, -62_135_596_800_000_001])
def test_a_moment_without_iso_text(tmp_path, ending, ts, refusal):
    table = pa.table({"ts": pa.array([0, ts], UTC)})
    message = refusal(write, tmp_path / f"o.{ending}", table)
    assert f"Column 'ts' holds {ts} (timestamp[us, tz=UTC]), which has no ISO-8601 text" in message
    assert os.listdir(tmp_path) == []
    assert read(write(tmp_path / "o.parquet", table), table.schema).equals(table)


def test_rows_of_another_schema(tmp_path, refusal):
    sink = open_sink(tmp_path / "o.csv", pa.schema([("a", pa.int64())]))
    message = refusal(sink.write, pa.table({"b": [1.5]}))
    assert "is given rows of another schema. It was opened for (a: int64) and is given (b: double)" in message
    sink.abort()


# --- standard output ----------------------------------------------------------------------------------------


def test_a_dash_is_standard_output(monkeypatch, refusal):
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    table = pa.table({"a": [1, 2]})
    write("-", table)
    write("-", table, format="csv")
    assert out.buffer.getvalue() == b'{"a":1}\n{"a":2}\n"a"\n1\n2\n'
    assert not out.closed
    assert "Parquet can't go to standard output" in refusal(open_sink, "-", table.schema, format="parquet")


def test_a_closed_pipe_is_not_dressed_up(monkeypatch):
    class Closed(io.RawIOBase):
        def write(self, _):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", type("Out", (), {"buffer": Closed()})())
    sink = open_sink("-", pa.schema([("a", pa.int64())]))
    with pytest.raises(BrokenPipeError):
        sink.write(pa.table({"a": [1]}))


def test_errors_are_data_errors(tmp_path):
    with pytest.raises(DataError):
        open_sink(tmp_path, FLAT.schema, format="csv")


# --- formats --------------------------------------------------------------------------------------------------


class Lines:
    """A toy: each row as Python shows it."""

    def __init__(self, schema: pa.Schema, out: Any) -> None:
        self.out = out

    def write(self, batch: pa.RecordBatch) -> None:
        self.out.writelines(f"{row}\n".encode() for row in batch.to_pylist())

    def finish(self) -> None: ...

    def close(self) -> None: ...


def test_a_new_format_is_an_entry_and_its_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = sinks.Form(title="Toy lines", encoder=Lines, holds=pa.types.is_integer)
    monkeypatch.setitem(sinks.FORMS, "toy", toy)  # type: ignore[arg-type]
    monkeypatch.setitem(files.ENDINGS, "toy", (".toy",))
    rows = pa.table({"x": [1, 2]})
    with sinks.open_sink(tmp_path / "out.toy", rows.schema) as sink:
        sink.write(rows)
    assert (tmp_path / "out.toy").read_text() == "{'x': 1}\n{'x': 2}\n"
    assert list(files.data_files(tmp_path)) == ["out.toy"], "who publishes into this folder sees that it holds data"
    with pytest.raises(DataError, match=r"Toy has no form for such values\. Write Parquet or JSON lines or CSV"):
        sinks.open_sink(tmp_path / "text.toy", pa.schema([("s", pa.string())]))
    with pytest.raises(DataError, match="Plait writes toy files and does not read them"):
        folder.feed(stream("a"), tmp_path)


def test_every_format_is_whole() -> None:
    assert sinks.missing(sinks.FORMS, files.ENDINGS) == []
    assert folder.missing(folder.READERS, files.ENDINGS, files.WRITE_ONLY) == []


def test_what_a_format_lacks_is_named() -> None:
    csv = sinks.FORMS["csv"]
    assert sinks.missing({"csv": csv, "toy": csv}, {"csv": (".csv",), "toy": ()}) == [
        "the format 'toy' has no ending in plait.connectors.files"
    ]
    assert sinks.missing({"csv": csv}, {"csv": (".csv",), "toy": (".toy",)}) == [
        "files of format 'toy' have no form to be written in"
    ]
    assert folder.missing({}, ["toy"], []) == [
        "files of format 'toy' have no reader, and are not WRITE_ONLY in plait.connectors.files"
    ]
    assert folder.missing({}, ["toy"], ["toy"]) == []
