"""`plait run query.sql`: streams in TOML beside it or in its first lines, and messages with the place in the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.test_files import command

SELECT = """
SELECT x, a - x AS apart
FROM quotes q JOIN trades t
  ON abs(q.x - t.a) <= 1
 AND abs(q.ts - t.ts) <= INTERVAL 3 MICROSECONDS
"""
STREAMS = """[streams.quotes]
path = "quotes.csv"
unit = "us"
[streams.trades]
path = "trades.csv"
unit = "us"
[streams.unused]
path = "nowhere/"
[run]
engine = "reference"
"""
HEAD = "".join(f"--! {line}\n" for line in STREAMS.splitlines())
EXPECTED = [(1, 1, 0), (2, 2, -1), (3, 1, 1), (3, 2, 0), (4, 3, -1), (5, 2, 1), (5, 3, 0)]


def lay_out(folder: Path, *, head: str = "", beside: str | None = STREAMS, select: str = SELECT) -> Path:
    (folder / "quotes.csv").write_text("ts,x\n1,1\n2,2\n4,3\n9,4\n")
    (folder / "trades.csv").write_text("ts,a\n1,1\n3,2\n5,3\n9,9\n")
    if beside is not None:
        (folder / "near.toml").write_text(beside)
    file = folder / "near.sql"
    file.write_text(head + select)
    return file


def rows(output: str) -> list[tuple[int, ...]]:
    return [tuple(json.loads(line).values()) for line in output.splitlines()]


@pytest.mark.parametrize(("head", "beside"), [("", STREAMS), (HEAD, None)], ids=["beside it", "in its first lines"])
def test_streams_are_told_in_toml(tmp_path: Path, head: str, beside: str | None) -> None:
    file = lay_out(tmp_path, head=head, beside=beside)
    done = command("run", file, "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout) == EXPECTED
    assert rows(command("run", file, "-q", "--engine", "threads").stdout) == EXPECTED


def test_explain_has_columns_that_only_the_rows_tell(tmp_path: Path) -> None:
    done = command("explain", lay_out(tmp_path))
    assert done.stdout.startswith(
        "select x, apart = (a - x)\n  inner join, within 3 us, on (abs((quotes.x - trades.a)) <= 1)"
    )
    assert "result: ts int64, x int64, apart int64" in done.stdout


def test_an_input_tells_columns_too(tmp_path: Path) -> None:
    file = lay_out(tmp_path, beside=STREAMS.replace('path = "trades.csv"\n', ""))
    file.write_text(SELECT.replace("x, a - x AS apart", "q.ts AS quoted, t.* EXCEPT (ts)"))
    done = command("run", file, "-q", "--input", f"trades={tmp_path / 'trades.csv'}")
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout)[0] == (1, 1, 1)
    unknown = command("run", file, "-q")
    assert (unknown.returncode, "nothing tells which columns * stands for" in unknown.stderr) == (2, True)
    file.write_text(SELECT)
    assert "near.sql: stream 'trades' has no data. Give it a path in the file" in command("run", file).stderr


def test_a_query_of_the_toml_can_be_named(tmp_path: Path) -> None:
    queries = '[queries.counts]\nkind = "aggregate"\ninput = "quotes"\nsize = "4us"\ncompute = { n = "count()" }\n'
    file = lay_out(tmp_path, beside=STREAMS + queries, select="SELECT n FROM counts WHERE n > 1")
    assert rows(command("run", file, "-q").stdout) == [(3, 2)]


def test_an_error_has_the_file_and_the_line_with_its_head(tmp_path: Path) -> None:
    file = lay_out(tmp_path, head=HEAD, beside=None, select="SELECT x\nFROM quotes\nORDER BY x")
    done = command("run", file)
    assert done.returncode == 2
    assert (
        f"plait: {file}: SQL, line {HEAD.count(chr(10)) + 3}, column 1, `«ORDER BY» x`: ORDER BY is refused."
        in done.stderr
    )


@pytest.mark.parametrize(
    ("head", "beside", "told"),
    [
        ("", None, "does not tell what its streams are. Write [streams.NAME] into near.toml beside it"),
        (
            HEAD,
            STREAMS,
            "tells of its streams in its first lines, and so does near.toml. One of them would be passed over",
        ),
        ("--! [streams.quotes\n", None, "near.sql is not TOML"),
        ("", STREAMS + "[query]\nkind = 'join'\n", "near.toml: query is no key here"),
    ],
    ids=["nowhere", "twice", "no TOML", "with a query"],
)
def test_what_is_refused(tmp_path: Path, head: str, beside: str | None, told: str) -> None:
    done = command("run", lay_out(tmp_path, head=head, beside=beside))
    assert done.returncode == 2
    assert told in done.stderr


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "near.txt").write_text(SELECT)
    assert "is neither a .toml, a .sql nor a .py file" in command("run", tmp_path / "near.txt").stderr
