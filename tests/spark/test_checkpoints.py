"""Checkpoints that earlier versions wrote: resumed to the byte, or refused by name with nothing touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds
from tests.spark.checkpoints import archive
from tests.spark.checkpoints.make import HERE, archive_of, frames
from tests.spark.checkpoints.queries import FIXED, QUERIES, rows

import plait
import plait.spark
from plait.spark import formats

ARCHIVES = {path.name.removesuffix(".tar.xz"): path for path in sorted(HERE.glob("*.tar.xz"))}


def files(folder: Path) -> dict[str, str]:
    """Every file's hash, and the folders."""
    found = {}
    for path in sorted(folder.rglob("*")):
        found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return found


def resumed(spark: Any, folder: Path, name: str) -> None:
    query = QUERIES[name]
    # What the functions of these queries are is told by their code, which another version of Python may have otherwise.
    df = query.on_spark(frames(spark, folder, query), functions="changed")
    where = folder / archive.CHECKPOINT
    out = plait.spark.write_ordered(df, folder / archive.RESULTS, checkpoint=where, keep_key=True, drain=True)
    out.awaitTermination()


def test_each_kind_of_query_has_a_checkpoint_of_this_version() -> None:
    missing = [name for name in QUERIES if not archive_of(name).exists()]
    assert not missing, "python -m tests.spark.checkpoints.make makes them"
    assert sum(path.stat().st_size for path in ARCHIVES.values()) < 1_000_000


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_a_checkpoint_is_resumed_or_refused(spark: Any, tmp_path: Path, name: str) -> None:
    kind, version = name.split(".v")
    with archive.placed(tmp_path, FIXED.get(kind)) as folder:
        archive.unpack(ARCHIVES[name], folder)
        if version not in map(str, formats.READ):
            before = files(tmp_path)
            words = "has no version" if version == "none" else f"is of version {version}"
            with pytest.raises(plait.RunError, match=rf"{words}\. This plait reads versions 1 and 2"):
                resumed(spark, folder, kind)
            assert files(tmp_path) == before
            return
        assert feeds.published(folder / archive.RESULTS).num_rows > 0, "it has given something before the stop"
        before = feeds.parts(folder / archive.RESULTS)
        for stream in QUERIES[kind].streams():
            for file in sorted((folder / archive.REST / stream).iterdir()):
                shutil.move(file, folder / stream / file.name)
        resumed(spark, folder, kind)
        expected = QUERIES[kind].reference({s: rows()[s] for s in QUERIES[kind].streams()}, keys=True)
        got = feeds.published(folder / archive.RESULTS)
        after = feeds.parts(folder / archive.RESULTS)
        assert {part: after[part] for part in before} == before, "what was out is as it was"
    assert len(after) > len(before), "and something came after the stop"
    if kind not in FIXED:  # keys by position have the files' paths in them, which the reference does not know
        assert got.column(formats.KEY).to_pylist() == expected.column(formats.KEY).to_pylist()
    feeds.assert_identical(got, expected.drop_columns([formats.KEY]))


def written_by(folder: Path, version: int | None) -> Path:
    """The card of a checkpoint, as another version would have it."""
    file = folder / archive.CHECKPOINT / formats.Card.NAME
    card = json.loads(file.read_text())
    del card["version"]
    file.write_text(json.dumps(card if version is None else {"version": version, **card}))
    return file


@pytest.mark.spark
@pytest.mark.parametrize(
    ("version", "words"), [(None, "has no version"), (0, "is of version 0"), (99, "is of version 99")]
)
def test_a_checkpoint_of_another_version_is_refused_and_left_alone(
    spark: Any, tmp_path: Path, version: int | None, words: str
) -> None:
    archive.unpack(archive_of("time-join"), tmp_path)
    written_by(tmp_path, version)
    before = files(tmp_path)
    told = rf"The checkpoint '{tmp_path / archive.CHECKPOINT}' {words}\. This plait reads versions 1 and 2 .*"
    with pytest.raises(plait.RunError, match=told + "Go on with the plait that wrote it, or begin anew"):
        resumed(spark, tmp_path, "time-join")
    assert files(tmp_path) == before
    query = QUERIES["time-join"]
    df = query.on_spark(frames(spark, tmp_path, query), layout=(1, 1))
    with pytest.raises(plait.RunError, match=told):
        plait.spark.relayout(df, tmp_path / archive.CHECKPOINT, tmp_path / "new")
    assert files(tmp_path) == before


@pytest.mark.spark
def test_a_log_of_files_that_is_gone_is_refused(spark: Any, tmp_path: Path) -> None:
    """Of a stream that the last batch read nothing of: Spark begins its log anew, under the number of a batch that is done,
    and never reads the file that came since. Without the refusal the results lack its rows, and nobody is told."""
    query = plait.union(plait.stream("a", unit="us"), plait.stream("b", unit="us"))
    data = {name: pa.table({"ts": pa.array(range(first, 90, 2), pa.int64())}) for first, name in enumerate("ab")}

    def take() -> pa.Table:
        frames = {n: feeds.frame(spark, tmp_path / n, feeds.spark_schema(data[n]), streaming=True) for n in "ab"}
        return feeds.run(query.on_spark(frames, layout=(1, 1)), tmp_path, drain=False)

    for name in "ab":
        feeds.write_files(tmp_path / name, data[name].slice(0, 10), [])
    take()
    feeds.write_files(tmp_path / "a", data["a"].slice(10), [], first=1)
    take()
    where = tmp_path / "out.checkpoint"
    (log,) = (file for file in (where / "sources").glob("*/0") if "/b/p000" in file.read_text())
    kept = log.read_bytes()
    for file in (log, log.with_name(".0.crc")):
        file.unlink()
    feeds.write_files(tmp_path / "b", data["b"].slice(10), [], first=1)
    before = files(tmp_path)
    with pytest.raises(plait.RunError, match=r"out.checkpoint' is damaged\. A file of '.*sources' is gone"):
        take()
    assert files(tmp_path) == before
    log.write_bytes(kept)
    plait.spark.drain(where / "control")
    feeds.assert_identical(take(), query.reference(data))


@pytest.mark.spark
@pytest.mark.skipif(os.name != "posix", reason="rights to write as POSIX has them")
def test_states_of_functions_are_refused_where_others_may_have_written_them(spark: Any, tmp_path: Path) -> None:
    """They are pickles: nothing is read where anybody else may have put one."""
    archive.unpack(archive_of("operator"), tmp_path)
    where = tmp_path / archive.CHECKPOINT
    (state,) = [path for path in sorted(where.rglob("*")) if path.is_file() and "state" in path.parts][:1]
    for changed, mode, words in ((state, 0o666, "everybody may write to"), (where, 0o777, "everybody may write to")):
        right = changed.stat().st_mode
        changed.chmod(mode)
        before = files(tmp_path)
        with pytest.raises(plait.RunError, match=f"may have been written by others: {words}.*chmod -R go-w") as caught:
            resumed(spark, tmp_path, "operator")
        assert os.fspath(changed) in str(caught.value)
        query = QUERIES["operator"]
        df = query.on_spark(frames(spark, tmp_path, query), layout=(1, 1), functions="changed")
        with pytest.raises(plait.RunError, match="may have been written by others"):
            plait.spark.relayout(df, where, tmp_path / "new")
        assert files(tmp_path) == before
        changed.chmod(right)
    # Nothing of another query is run, whoever wrote it.
    archive.unpack(archive_of("time-join"), tmp_path / "rows")
    (tmp_path / "rows" / archive.CHECKPOINT).chmod(0o777)
    resumed(spark, tmp_path / "rows", "time-join")


def test_an_archive_goes_where_it_is_unpacked(tmp_path: Path) -> None:
    archive.unpack(archive_of("as-of"), tmp_path)
    card = json.loads((tmp_path / archive.CHECKPOINT / formats.Card.NAME).read_text())
    assert card["target"] == os.fspath(tmp_path / archive.RESULTS)
    assert (tmp_path / archive.CHECKPOINT / "sources" / "0" / "0").read_text().count(f"{tmp_path}/a/p000.parquet") == 1
