"""Which files count, in which order, under which names; and what a folder can't be."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.connectors import feed as any_feed
from plait.connectors.folder import feed
from plait.query.stream import FILE, PARTITION, stream

S = stream("q")


def put(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"ts,file\n1,{name}\n")


def files_of(given):
    return [value.as_py() for lane in given.lanes for chunk in lane.read() for value in chunk.batch["file"]]


def test_files_are_read_by_the_bytes_of_their_relative_path(tmp_path):
    put(tmp_path, "b.csv", "a.csv", "B.csv", "a/z.csv", "a-1.csv", "é.csv", "z.csv", "a/b/c.csv")
    expected = ["B.csv", "a-1.csv", "a.csv", "a/b/c.csv", "a/z.csv", "b.csv", "z.csv", "é.csv"]
    given = feed(S, tmp_path)
    assert [lane.source for lane in given.lanes] == [0]
    assert files_of(given) == expected == sorted(expected, key=str.encode)
    assert given.bytes == sum(p.stat().st_size for p in tmp_path.rglob("*.csv"))


def test_notes_and_unfinished_files_are_passed_over(tmp_path):
    put(tmp_path, "a.csv", "_SUCCESS", "_b.csv", ".c.csv", "d.csv.tmp", ".a.csv.crc", "e.crc", "_spark_metadata/0.csv")
    put(tmp_path, ".hidden/x.csv", "readme.md", "a.csv.bak")
    assert files_of(feed(S, tmp_path)) == ["a.csv"]


def test_with_source_file_each_file_is_a_source(tmp_path):
    put(tmp_path, "b.csv", "sub/a.csv")
    given = feed(stream("q", source=FILE), tmp_path)
    assert [lane.source for lane in given.lanes] == ["b.csv", "sub/a.csv"]
    assert files_of(given) == ["b.csv", "sub/a.csv"]
    assert [c.where for lane in given.lanes for c in lane.read()] == [str(tmp_path / n) for n in ("b.csv", "sub/a.csv")]


def test_a_single_file_is_named_by_its_name(tmp_path):
    put(tmp_path, "b.csv")
    assert [lane.source for lane in feed(stream("q", source=FILE), tmp_path / "b.csv").lanes] == ["b.csv"]
    assert [lane.source for lane in feed(stream("q", source="file"), tmp_path / "b.csv").lanes] == [None]
    assert [lane.source for lane in feed(stream("q", sources=["one"]), tmp_path / "b.csv").lanes] == ["one"]


def test_a_given_format_makes_every_visible_file_data(tmp_path):
    put(tmp_path, "a.txt", "b")
    assert files_of(feed(S, tmp_path, format="csv")) == ["a.txt", "b"]
    assert files_of(feed(S, tmp_path / "b", format="csv")) == ["b"]


def test_links_are_followed_and_circles_are_not(tmp_path):
    put(tmp_path / "data", "a.csv")
    put(tmp_path / "elsewhere", "b.csv")
    os.symlink(tmp_path / "elsewhere", tmp_path / "data" / "link")
    os.symlink(tmp_path / "data", tmp_path / "data" / "circle")
    assert files_of(feed(S, tmp_path / "data")) == ["a.csv", "b.csv"]


def test_missing(tmp_path, refusal):
    message = refusal(feed, S, tmp_path / "nowhere")
    assert message.startswith(f"There is no file or folder '{tmp_path}/nowhere'.")
    assert f"Relative paths start at '{os.getcwd()}'" in refusal(feed, S, "nowhere-at-all")


def test_empty_folder(tmp_path, refusal):
    message = refusal(feed, S, tmp_path)
    assert message.startswith(f"Folder '{tmp_path}' holds no data file.")
    for ending in (".parquet", ".csv", ".jsonl", ".ndjson", ".json"):
        assert ending in message
    put(tmp_path, "readme.md", "_x.csv")
    assert "holds no data file (1 with other endings)" in refusal(feed, S, tmp_path)


def test_mixed_formats(tmp_path, refusal):
    put(tmp_path, "a.csv", "b.jsonl")
    message = refusal(feed, S, tmp_path)
    assert "mixes formats: 'a.csv' is csv and 'b.jsonl' is jsonl" in message
    assert "folders of their own" in message


def test_unknown_ending_and_format(tmp_path, refusal):
    put(tmp_path, "a.txt")
    assert "can't be told from its name" in refusal(feed, S, tmp_path / "a.txt")
    assert "format='orc' is no format. Use one of 'parquet', 'csv', 'jsonl'" in refusal(feed, S, tmp_path, format="orc")


def test_a_dangling_link(tmp_path, refusal):
    os.symlink(tmp_path / "gone.csv", tmp_path / "a.csv")
    assert f"File '{tmp_path}/a.csv' can't be read" in refusal(feed, S, tmp_path)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"source": FILE, "sources": ["a.csv"]}, "a file for source 'b.csv', which is not declared"),
        (
            {"source": FILE, "sources": ["a.csv", "b.csv", "c.csv"]},
            "declares source 'c.csv', and no file is given for it",
        ),
        ({"sources": 2}, "declares 2 sources, and"),
        ({"source": PARTITION}, "takes its sources from Kafka's partitions"),
    ],
)
def test_sources_that_a_folder_does_not_have(tmp_path, options, part, refusal):
    put(tmp_path, "a.csv", "b.csv")
    assert part in refusal(feed, stream("q", **options), tmp_path)


def test_batch_rows(tmp_path, refusal):
    put(tmp_path, "a.csv")
    assert "batch_rows=0. A chunk has at least one row" in refusal(feed, S, tmp_path, batch_rows=0)
    assert "batch_rows='x'. A chunk has at least one row" in refusal(feed, S, tmp_path, batch_rows="x")
    assert "A feed of 's', which is no stream. Pass what plait.stream" in refusal(any_feed, "s", {"ts": [1]})


# --- Parquet ------------------------------------------------------------------------------------------------


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)


def test_parquet_in_chunks_with_known_rows(tmp_path, pull):
    parquet(tmp_path / "a.parquet", ts=range(100), x=[0.5] * 100)
    parquet(tmp_path / "b.parquet", x=[1.5] * 50, ts=range(100, 150))  # another order of columns
    given = feed(S, tmp_path, batch_rows=32)
    assert given.rows == 150
    assert [c.batch.num_rows for c in given.lanes[0].read()] == [32, 32, 32, 4, 32, 18]
    assert pull(given)["ts"].to_pylist() == list(range(150))


def test_a_declared_schema_reads_only_its_columns(tmp_path, pull):
    parquet(tmp_path / "a.parquet", ts=[1], x=[0.5], text=pa.array(["a"]).dictionary_encode())
    declared = stream("q", schema={"text": "string", "ts": "int64"})
    assert pull(feed(declared, tmp_path)).equals(pa.table({"text": ["a"], "ts": [1]}))


def test_truncated_parquet_is_named_before_anything_is_read(tmp_path, refusal):
    parquet(tmp_path / "a.parquet", ts=range(1000))
    parquet(tmp_path / "b.parquet", ts=range(1000))
    whole = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    message = refusal(feed, S, tmp_path)
    assert message.startswith(
        f"File '{tmp_path}/b.parquet' can't be read as Parquet. It is truncated or something else"
    )
    (tmp_path / "b.parquet").write_bytes(b"")
    assert f"Parquet file '{tmp_path}/b.parquet' is empty (0 bytes)" in refusal(feed, S, tmp_path)


def test_parquet_damaged_in_the_middle(tmp_path, refusal):
    pq.write_table(pa.table({"ts": range(100_000)}), tmp_path / "a.parquet", row_group_size=50_000)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    middle = len(data) // 2
    data[middle : middle + 4000] = b"\xff" * 4000
    (tmp_path / "a.parquet").write_bytes(data)
    lane = feed(S, tmp_path).lanes[0]
    assert f"Parquet file '{tmp_path}/a.parquet' is damaged at or after row " in refusal(list, lane.read())


def test_parquet_files_that_differ(tmp_path, refusal):
    parquet(tmp_path / "a.parquet", ts=[1], x=[0.5])
    parquet(tmp_path / "b.parquet", ts=[1])
    assert f"'{tmp_path}/b.parquet' has no column 'x' (double), which 'a.parquet' has" in refusal(feed, S, tmp_path)
    parquet(tmp_path / "b.parquet", ts=[1], x=[1])
    assert f"'{tmp_path}/b.parquet': column 'x' is int64, and 'a.parquet' has it as double" in refusal(
        feed, S, tmp_path
    )
    parquet(tmp_path / "b.parquet", ts=[1], x=[0.5], y=[1])
    assert "b.parquet' has a column 'y', which is not among those that 'a.parquet' has" in refusal(feed, S, tmp_path)
