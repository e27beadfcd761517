"""`plait run` on Spark: a line a micro-batch, and a checkpoint that lets a run go on after it was stopped."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from plait.cli import spark_engine
from plait.cli.job import Job
from plait.cli.main import cli
from plait.core.metrics import Metrics
from plait.errors import DataError, RunError
from plait.paths import quoted
from plait.spark.formats import Note

pytestmark = pytest.mark.spark

JOB = """
[workload]
name = "band_join"
left = 40
right = 40
seconds = 45
seed = 7

[query]
kind = "join"
left = "stream_r"
right = "stream_s"
on = "abs(l.x - r.a) <= 300 and abs(l.y - r.b) <= 300"
within = "1s"

[output]
path = "near.parquet"

[run]
engine = "spark"

[spark]
master = "local[2]"
checkpoint = "near-checkpoint"
layout = "band"
cells = 3
"""

LINE = re.compile(
    r"near.toml on spark: \d+ s, batch (\d+): ([\d,]+) rows in, ([\d,]+) results, frontier (\S.*?)"
    r"( \([\d,.]+ s behind the newest\))?, ([\d,]+) buffered, state [\d,.]+ MB"
)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def stop_after_a_batch(self: Any, query: Any) -> None:
    for _ in range(2_000):
        if self.committed.rows:
            break
        time.sleep(0.05)
    query.stop()
    raise KeyboardInterrupt


@pytest.mark.again
def test_a_run_that_was_stopped_goes_on_where_it_was(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    file = tmp_path / "near.toml"
    file.write_text(JOB)
    with monkeypatch.context() as patch:
        patch.setattr(spark_engine._Seen, "wait", stop_after_a_batch)
        stopped = invoke("run", str(file))
    assert stopped.exit_code != 0
    assert LINE.search(stopped.stderr), stopped.stderr
    assert not (tmp_path / "near.parquet").exists()
    parts = {path.name: path.read_bytes() for path in (tmp_path / "near-checkpoint" / "out").glob("*.parquet")}
    assert 1 <= len(parts) < 5
    done = invoke("run", str(file))
    assert done.exit_code == 0, done.output
    batches = LINE.findall(done.stderr)
    # The batch in which it was stopped may have been published, and is done again.
    assert int(batches[0][0]) >= max(1, len(parts) - 1), "it began anew"
    assert batches[-1][3] == "end of input"
    assert "3,600 rows in" in done.stderr.splitlines()[-1]
    assert all((tmp_path / "near-checkpoint" / "out" / name).read_bytes() == data for name, data in parts.items())
    assert invoke("run", str(file), "--engine", "reference", "-o", str(tmp_path / "judge.parquet")).exit_code == 0
    assert pq.read_table(tmp_path / "near.parquet").equals(pq.read_table(tmp_path / "judge.parquet"))
    # Other rows than it was started with, and a folder of somebody else's.
    file.write_text(JOB.replace("seed = 7", "seed = 8"))
    with pytest.raises(RunError, match=r"the rows are not those that .* was started with \(stream_r"):
        invoke("run", str(file))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("dear diary")
    file.write_text(JOB.replace("near-checkpoint", "mine"))
    with pytest.raises(RunError, match="is no checkpoint of plait run"):
        invoke("run", str(file))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


LATE = """
[streams.a]
path = "left.csv"
unit = "us"
late = "drop"

[streams.b]
path = "right.csv"
unit = "us"

[query]
kind = "join"
left = "a"
right = "b"
on = "l.x = r.x"
within = "5us"

[output]
path = "out.parquet"
late = "late.jsonl"
"""


@pytest.mark.again
def test_a_run_without_a_checkpoint_is_a_batch(spark: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Its tasks write the results; rows that are dropped are found and counted as on other engines."""
    monkeypatch.setattr(spark_engine, "_streamed", None)
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    near = tmp_path / "near.toml"
    near.write_text(JOB.replace('checkpoint = "near-checkpoint"\n', ""))
    late = tmp_path / "late.toml"
    late.write_text(LATE)
    (tmp_path / "left.csv").write_text("ts,x\n1,1\n5,2\n3,1\n9,1\n8,2\n12,1\n")
    (tmp_path / "right.csv").write_text("ts,x\n1,1\n4,2\n6,1\n10,2\n11,1\n")
    told = {}
    for engine in ("spark", "reference"):
        folder = tmp_path / engine
        folder.mkdir()
        for file in (near, late):
            done = invoke("run", str(file), "--engine", engine, "-o", str(folder / f"{file.stem}.parquet"),
                          *(("--late", str(folder / "late.jsonl")) if file == late else ()))  # fmt: skip
            assert done.exit_code == 0, done.output
            line = done.stderr.splitlines()[-1]
            told[engine, file.stem] = re.sub(r" to \S+(?=,)|, [\d.]+ s on \w+", "", line)
            if engine == "spark":
                assert "all rows at once" in done.stderr
                assert "UserWarning" not in done.stderr
    for name in ("near", "late"):
        assert told["spark", name] == told["reference", name]
        tables = [pq.read_table(tmp_path / engine / f"{name}.parquet") for engine in ("spark", "reference")]
        assert tables[0].equals(tables[1])
        assert tables[0].num_rows > 3
    assert "2 late rows dropped" in told["spark", "late"]
    assert (tmp_path / "spark" / "late.jsonl").read_text() == (tmp_path / "reference" / "late.jsonl").read_text()


def test_late_rows_are_found_beside_the_note(tmp_path: Path) -> None:
    """The folder of dropped rows says whose it is, and has a folder a stream, whatever that is called."""
    for name in ("a", "b/c"):
        folder = tmp_path / "late" / quoted(name)
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), folder / "part-000000000000-0.parquet")
    (tmp_path / "late" / Note.NAME).write_text("{}")
    spark_engine._Done(tmp_path, pa.schema([]), Metrics()).write_late(str(tmp_path / "late.parquet"))
    assert pq.read_table(tmp_path / "late.parquet")["stream"].to_pylist() == ["a", "b/c"]


def test_a_checkpoint_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    job = Job("near.toml", None, {}, checkpoint=str(tmp_path / "c"))  # type: ignore[arg-type]
    with spark_engine._place(job, False) as folder:
        assert folder == tmp_path / "c"
        with pytest.raises(RunError, match="another run is using"), spark_engine._place(job, False):
            pass
    with spark_engine._place(job, False):
        pass
    for name, words in (("c[1]", "for a pattern"), ("s3a://b/c", "names a store"), ("plain/below", "is no folder")):
        (tmp_path / "plain").touch()
        given = name if ":" in name else str(tmp_path / name)
        odd = Job("near.toml", None, {}, checkpoint=given)  # type: ignore[arg-type]
        with pytest.raises(DataError, match=words), spark_engine._place(odd, False):
            pass
