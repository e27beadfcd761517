"""One rule for every path: this machine's files, by name or `file:`, absolute at once; a store is refused by name."""

from __future__ import annotations

import doctest
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import plait
from plait import paths
from plait.cli.job import load
from plait.connectors import dump, folder, memory, sinks

TABLE = pa.table({"ts": pa.array([1, 2], pa.int64()), "x": [1, 2]})
STORES = ("s3a://bucket/x.parquet", "hdfs://host:9000/x.parquet", "hdfs:/x.parquet", "dbfs:/mnt/x.parquet", "S3://b/x.parquet",
          "abfss://c@a.dfs.core.windows.net/x.parquet", "viewfs:///x.parquet", "file://otherhost/x.parquet")  # fmt: skip


def test_the_examples_of_the_module() -> None:
    assert doctest.testmod(paths).failed == 0


def test_a_file_uri_names_the_file_it_names() -> None:
    """Any name: written as Python and RFC 8089 write it, and with one slash; unescaped where nothing has to be."""
    chance = random.Random(14)
    letters = "ab %#?&+é漢[]{}*:;'\"\\~"
    for _ in range(300):
        name = "/" + "/".join("".join(chance.choices(letters, k=chance.randint(1, 6))) + "z" for _ in range(2))
        uri = Path(name).as_uri()
        for form in (uri, uri.replace("file://", "file:", 1), uri.replace("file://", "FILE://localhost", 1)):
            assert paths.plain(form) == name, form
        if "%" not in name:
            assert paths.plain(f"file://{name}") == name
        assert paths.plain(name) == name
        assert paths.plain(Path(name)) == name


@pytest.mark.parametrize("given", [*STORES, *(Path(s) for s in STORES if not s.startswith("file"))], ids=str)
def test_a_store_is_refused_wherever_a_path_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    stream = plait.stream("a", unit="us")
    feed = memory.feed(stream, TABLE)
    scheme = str(given).split(":", 1)[0]
    takers: list[Any] = [
        lambda: folder.feed(stream, given),
        lambda: sinks.open_sink(given, TABLE.schema),
        lambda: sinks.check_path(given),
        lambda: dump.write_folder(feed, given),
        lambda: load(str(given)),
    ]
    for take in takers:
        with pytest.raises(plait.DataError, match=f"{scheme}:|host 'otherhost'"):
            take()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("table", "key"), [("streams.a", "path"), ("output", "path"), ("output", "late"), ("spark", "checkpoint")]
)
def test_a_store_is_refused_in_a_toml_file_with_its_place(tmp_path: Path, table: str, key: str) -> None:
    tables = {
        "streams.a": 'unit = "us"\n', "output": "", "spark": "",
        "query": 'kind = "aggregate"\ninput = "a"\nsize = "5us"\ncompute = { n = "count()" }\n',
    }  # fmt: skip
    tables[table] += f'{key} = "s3a://bucket/x"\n'
    file = tmp_path / "job.toml"
    file.write_text("".join(f"[{name}]\n{text}\n" for name, text in tables.items()))
    with pytest.raises(plait.DataError, match=rf"job\.toml, \[{table}\.{key}\]: .*'s3a://bucket/x' names a store"):
        load(str(file))


def test_file_uris_and_names_with_colons_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stream = plait.stream("a", unit="us")
    for given in (Path(tmp_path / "a b%20c.parquet").as_uri(), "12:30.parquet", "./s3a:x.parquet", "day:1.parquet"):
        with sinks.open_sink(given, TABLE.schema) as sink:
            sink.write(TABLE)
        assert folder.feed(stream, given).rows == 2
    names = {"a b%20c.parquet", "12:30.parquet", "s3a:x.parquet", "day:1.parquet"}
    assert {file.name for file in tmp_path.iterdir()} == names


def test_a_relative_path_means_one_file_whatever_the_working_folder_becomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    sink = sinks.open_sink("out.parquet", TABLE.schema)
    os.chdir("elsewhere")
    sink.write(TABLE)
    sink.commit()
    os.chdir("..")
    feed = folder.feed(plait.stream("a", unit="us"), "out.parquet")
    os.chdir("elsewhere")
    assert sum(chunk.batch.num_rows for lane in feed.lanes for chunk in lane.read()) == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_where_a_file_stands_no_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "not there")
    for name, words in (
        ("file", "is a file"),
        ("file/below/it", "is a file"),
        ("nowhere", "a link that leads nowhere"),
    ):
        with pytest.raises(plait.DataError, match=words):
            paths.folder(tmp_path / name, "The folder of results")


@pytest.mark.parametrize("given", ["", "a\0b", "file:x", "file:", "file:///a%00b"])
def test_what_names_nothing_is_refused(given: str) -> None:
    with pytest.raises(plait.DataError, match="The path"):
        paths.absolute(given)
