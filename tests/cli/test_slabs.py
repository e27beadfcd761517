"""`plait run` of files: without a gate where `query.run` needs none, with the same rows; `plait explain` says which way."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from plait.cli.main import cli

JOB = """
import plait
a, b = plait.stream("a", unit="us"{a}), plait.stream("b", unit="us")
query = {query}
data = {{"a": "a.parquet", "b": "b.parquet"}}
output = "out.parquet"
"""
ASOF = 'plait.asof(a, b, by="k", within=3)'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"ts": [1, 4, 3, 9], "k": ["x", "y", "x", "x"]}), "a.parquet")
    pq.write_table(pa.table({"ts": [1, 2, 8], "k": ["x", "y", "x"], "v": [1, 2, 3]}), "b.parquet")
    return tmp_path


def command(*words: str) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_it_runs_in_slabs_and_tells_of_late_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.threads.feeds.started", lambda *_, **__: pytest.fail("a run was started"))
    (folder / "job.py").write_text(JOB.format(a=', late="drop"', query=ASOF))
    command("run", "job.py", "--engine", "threads", "--late", "late.parquet")
    assert pq.read_table("out.parquet")["v"].to_pylist() == [1, 2, 3]
    assert pq.read_table("late.parquet").num_rows == 1


def test_what_needs_a_gate_has_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column names sources that nobody has declared: who knows them has read all rows."""
    monkeypatch.setattr("plait.threads.bounded.run.Slabs", lambda *_, **__: pytest.fail("it went in slabs"))
    (folder / "job.py").write_text(JOB.format(a=', late="drop", source="k"', query=ASOF))
    command("run", "job.py", "--engine", "threads")
    assert pq.read_table("out.parquet").num_rows == 4


@pytest.mark.parametrize(("query", "words"), [
    (ASOF, "query.run: slabs of input in total order, one pass each"),
    ('plait.join(a, b, on="a.k = b.k", within=3)', "query.run: slabs of input, cut into ranges that overlap by the window"),
    ("plait.join(a, b, last=3)", "query.run: pushed to the threads above: a window that counts tuples"),
])  # fmt: skip
def test_explain_says_which_way(folder: Path, query: str, words: str) -> None:
    (folder / "job.py").write_text(JOB.format(a="", query=query))
    assert words in command("explain", "job.py")
