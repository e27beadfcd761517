"""`plait run` on files: what comes out, what a user reads when something is wrong, and that nothing half-done stays."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait.cli.main import main

QUERY = """
[streams.quotes]
path = "quotes"
unit = "us"

[streams.trades]
path = "trades.csv"
unit = "us"
{extra}

[query]
kind = "join"
left = "quotes"
right = "trades"
on = "abs(quotes.x - trades.a) <= 1"
within = "3us"

[run]
engine = "reference"

[output]
path = "near.parquet"
"""

QUOTES = "ts,x\n1,1\n2,2\n4,3\n9,4\n"
TRADES = "ts,a\n1,1\n3,2\n5,3\n9,9\n"


def lay_out(folder: Path, *, query: str = QUERY, extra: str = "", quotes: str = QUOTES, trades: str = TRADES) -> Path:
    (folder / "quotes").mkdir()
    (folder / "quotes" / "part-0.csv").write_text(quotes)
    (folder / "trades.csv").write_text(trades)
    file = folder / "near.toml"
    file.write_text(query.replace("{extra}", extra))
    return file


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def process(*arguments: str | Path) -> Done:
    """The command as a shell starts it."""
    given = [sys.executable, "-m", "plait.cli.main", *map(str, arguments)]
    ended = subprocess.run(given, capture_output=True, text=True, timeout=120)
    return Done(ended.returncode, ended.stdout, ended.stderr)


def command(*arguments: str | Path) -> Done:
    """The same entry point in this process: starting one takes a second, in which nothing is tested."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["plait", *map(str, arguments)])
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
    return Done(code, *(each.buffer.getvalue().decode() for each in (out, errors)))  # type: ignore[attr-defined]


def leftovers(folder: Path) -> list[str]:
    """Every file that was not laid out by the test."""
    given = {"near.toml", "part-0.csv", "trades.csv", "near.py", "bad.parquet"}
    return sorted(f.name for f in folder.rglob("*") if f.is_file() and f.name not in given and f.suffix != ".pyc")


def test_run_writes_what_the_reference_says(tmp_path: Path) -> None:
    done = process("run", lay_out(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "8 rows in, 7 results to" in done.stderr
    assert done.stdout == ""
    quotes, trades = plait.stream("quotes", unit="us"), plait.stream("trades", unit="us")
    expected = plait.join(quotes, trades, on="abs(quotes.x - trades.a) <= 1", within=3).reference(
        {
            "quotes": {"ts": [1, 2, 4, 9], "x": [1, 2, 3, 4]},
            "trades": {"ts": [1, 3, 5, 9], "a": [1, 2, 3, 9]},
        }
    )
    assert pq.read_table(tmp_path / "near.parquet").equals(expected)
    assert leftovers(tmp_path) == ["near.parquet"]


def test_without_an_output_rows_go_to_standard_output_as_json_lines(tmp_path: Path) -> None:
    file = lay_out(tmp_path, query=QUERY.split("[output]")[0])
    done = process("run", file, "--quiet")
    assert done.returncode == 0
    assert done.stderr == ""
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0] == {"ts": 1, "quotes_ts": 1, "x": 1, "trades_ts": 1, "a": 1}


def test_input_option_replaces_a_streams_rows(tmp_path: Path) -> None:
    file = lay_out(tmp_path)
    pq.write_table(pa.table({"ts": [5], "a": [3]}), tmp_path / "other.parquet")
    done = command("run", file, "--input", f"trades={tmp_path / 'other.parquet'}", "-o", "-", "--quiet")
    assert [json.loads(line)["x"] for line in done.stdout.splitlines()] == [2, 3]


BAD = {
    "a source that runs back": ({"trades": "ts,a\n5,1\n4,2\n"}, ["'trades'", "row 1", "ts 4 is late", "disorder="]),
    "a null time": ({"trades": "ts,a\n1,1\n,2\n"}, ["'trades'", "trades.csv", "row 1", "NULL"]),
    "a missing column": ({"trades": "ts,b\n1,1\n"}, ["'a'", "not there", "trades.ts, trades.b"]),
    "a missing time column": ({"trades": "at,a\n1,1\n"}, ["'trades'", "no column 'ts'", "at, a"]),
    "a column of another type": ({"trades": "ts,a\n1,red\n"}, ["text", "quotes.x", "trades.a"]),
    "a later row of another type": ({"trades": "ts,a\n1,1\n" * 1 + "2,red\n"}, ["trades"]),
    "a time that is no whole number": ({"trades": "ts,a\n1.5,1\n"}, ["'trades'", "'ts'", "double"]),
    "a typo in a key": ({"extra": 'disordr = "1s"'}, ["streams.trades.disordr", "Did you mean 'disorder'?"]),
    "a typo in TOML": ({"extra": "late = "}, ["near.toml", "not TOML", "line 9"]),
    "a bad duration": ({"extra": 'disorder = "1 parsec"'}, ["[streams.trades]", "'1 parsec'", "'parsec'"]),
    "an undeclared unit": ({"query": QUERY.replace('unit = "us"', "", 1)}, ["'quotes'", "int64", "unit="]),
    "no such folder": ({"query": QUERY.replace('"quotes"', '"quots"', 1)}, ["quots"]),
    "an unknown stream": ({"query": QUERY.replace('right = "trades"', 'right = "trade"')}, ["query.right", "'trade'"]),
    "an unknown kind": ({"query": QUERY.replace('"join"', '"zip"')}, ["query.kind", "'zip'", "join, asof, aggregate"]),
    "bad SQL": ({"query": QUERY.replace("<= 1", "<=")}, ["[query]", "not SQL"]),
    "a key that [spark] has not": ({"query": QUERY + '[spark]\nmasters = "local"\n'}, ["spark.masters", "'master'"]),
    "a layout that is none": (
        {"query": QUERY + '[spark]\nlayout = "round"\n'},
        ["spark.layout", "'round'", "'band' or [m, n]"],
    ),
    "a grid of one number": ({"query": QUERY + "[spark]\nlayout = [2]\n"}, ["spark.layout", "is [2]"]),
    "a window of no rows": (
        {"query": QUERY + "[spark]\nmax_window = -1\n"},
        ["spark.max_window", "is -1", "at least 1"],
    ),
    "no cells": ({"query": QUERY + "[spark]\ncells = 0\n"}, ["spark.cells", "is 0", "at least 1"]),
    "a master that is no text": ({"query": QUERY + "[spark]\nmaster = 2\n"}, ["spark.master", "is 2", "as text"]),
    "an unknown engine": ({"query": QUERY.replace('"reference"', '"abacus"')}, ["run.engine", "'abacus'"]),
    "an engine that does not run it": (
        {"query": QUERY.replace('"reference"', '"threads"'), "extra": 'idle_after = "1s"'},
        ["no engine 'threads' for this query", "'trades' has idle_after=", "reference"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_message_exit_2_and_nothing_left(tmp_path: Path, case: str) -> None:
    given, words = BAD[case]
    started = process if case == "a source that runs back" else command
    done = started("run", lay_out(tmp_path, **given))
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("plait: ")
    for word in words:
        assert word in done.stderr, f"{word!r} is not in: {done.stderr}"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(
    ("option", "name", "word"),
    [("-o", "near.xls", "can't be told"), ("-o", "nowhere/near.csv", "Create it"), ("--late", "late.xls", "told from")],
)
def test_a_target_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, option: str, name: str, word: str
) -> None:
    done = command("run", lay_out(tmp_path), "--engine", "threads", option, str(tmp_path / name))
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert word in done.stderr


def test_an_empty_folder_names_it(tmp_path: Path) -> None:
    file = lay_out(tmp_path)
    (tmp_path / "quotes" / "part-0.csv").unlink()
    done = command("run", file)
    assert done.returncode == 2
    assert "quotes" in done.stderr
    assert ".csv" in done.stderr
    assert leftovers(tmp_path) == []


def test_a_truncated_parquet_file_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    file = lay_out(tmp_path)
    bad = tmp_path / "quotes" / "bad.parquet"
    (tmp_path / "quotes" / "part-0.csv").unlink()
    pq.write_table(pa.table({"ts": list(range(1000)), "x": list(range(1000))}), bad)
    bad.write_bytes(bad.read_bytes()[:-40])
    done = command("run", file)
    assert done.returncode == 2
    assert "bad.parquet" in done.stderr
    assert leftovers(tmp_path) == []


def test_what_stood_under_the_final_name_survives_a_failed_run(tmp_path: Path) -> None:
    file = lay_out(tmp_path, trades="ts,a\n5,1\n4,2\n")
    (tmp_path / "near.parquet").write_text("yesterday's")
    assert command("run", file).returncode == 2
    assert (tmp_path / "near.parquet").read_text() == "yesterday's"
    assert leftovers(tmp_path) == ["near.parquet"]


def test_late_rows_are_counted_and_kept_aside(tmp_path: Path) -> None:
    file = lay_out(tmp_path, extra='late = "drop"', trades="ts,a\n5,1\n4,2\n6,3\n")
    done = command("run", file, "--late", tmp_path / "late.jsonl")
    assert done.returncode == 0
    assert "1 late rows dropped" in done.stderr
    (line,) = (tmp_path / "late.jsonl").read_text().splitlines()
    assert json.loads(line) == {"stream": "trades", "row": '{"ts": 4, "a": 2}'}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "none.toml"], ["There is no file 'none.toml'"]),
        (["run"], ["Missing argument"]),
        (["frobnicate"], ["No such command"]),
        (["run", __file__ + "x", "--input", "a"], ["NAME=PATH"]),
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str], words: list[str]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", ["near.py", "`query` is nothing"]),
        ("import plait\nquery = 3\n", ["`query` is a int"]),
        ("import plait\n1 / 0\n", ["near.py, line 2", "ZeroDivisionError"]),
        ("def (:\n", ["near.py, line 1", "SyntaxError"]),
        ("import plait\nquery = plait.aggregate(plait.stream('s'), size='1s', compute={'n': plait.count()})\n",
         ["'s' has no data", "--input s=PATH"]),
        ("import plait\ns = plait.stream('s')\nquery = plait.join(s, s, within='1s')\ndata = {'t': 1}",
         ["`data` names 't'", "reads s"]),
    ],
)  # fmt: skip
def test_python_files_that_are_wrong(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "near.py"
    file.write_text(text)
    done = command("run", file)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr
    assert done.stderr.count("\n") == 1


def slow_query(folder: Path) -> Path:
    """A Python file whose feed never ends, so that the run can be interrupted in the middle."""
    file = folder / "near.py"
    file.write_text(
        """
import itertools, time
import pyarrow as pa
import plait
from plait.connectors.contract import Chunk, Feed, Lane

schema = pa.schema([("ts", pa.int64()), ("x", pa.int64())])

def read():
    for n in itertools.count():
        time.sleep(0.01)
        yield Chunk(pa.record_batch([[n], [n]], schema=schema))

query = plait.aggregate(plait.stream("s", unit="us"), size="1us", compute={"n": plait.count()})
data = {"s": Feed(schema, (Lane(None, read),))}
"""
    )
    return file


def test_interrupt_is_exit_130_and_leaves_nothing(tmp_path: Path) -> None:
    arguments = ["run", slow_query(tmp_path), "--engine", "reference", "-o", tmp_path / "out.csv"]
    running = subprocess.Popen(
        [sys.executable, "-m", "plait.cli.main", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background jobs ignore SIGINT, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while not any(f.name.endswith(".tmp") for f in tmp_path.iterdir()):
        assert running.poll() is None
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert "interrupted" in errors
    assert leftovers(tmp_path) == []


MEMORY_PROBE = """
import resource, sys
from plait.cli import execute
from plait.cli.job import load

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

before = peak_mb()
summary = execute.run(load(sys.argv[1]), "reference", output=sys.argv[2], late=None, quiet=True)
print(summary.rows, summary.results, round(peak_mb() - before))
"""


@pytest.mark.again
def test_a_csv_folder_streams_through_the_reference_in_constant_memory(tmp_path: Path) -> None:
    """Rows of text of 60 MB for each stream; held as rows they would be more than that."""
    pad, rows_each = "z" * 800, 75_000
    for stream, column, cycle in (("quotes", "x", 50), ("trades", "a", 49)):
        (tmp_path / stream).mkdir()
        for part in range(5):
            with (tmp_path / stream / f"part-{part}.csv").open("w") as out:
                out.write(f"ts,{column},{stream}_note\n")
                out.writelines(f"{n * 10},{n % cycle},{pad}\n" for n in range(part * 15_000, (part + 1) * 15_000))
    file = tmp_path / "near.toml"
    file.write_text(QUERY.replace("{extra}", "").replace("trades.csv", "trades"))
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_PROBE, file, tmp_path / "near.parquet"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    rows, results, grown_mb = map(int, done.stdout.split())
    near = sum(abs(n % 50 - n % 49) <= 1 for n in range(rows_each))
    assert (rows, results) == (2 * rows_each, near)
    # A block of CSV, its Arrow form and a slice of rows for each of two lanes, and a row group of the results (12 MB);
    # 120 MB of text went through.
    assert grown_mb < 100


AGGREGATE = """
[streams.s]
path = "s.csv"
unit = "us"

[query]
kind = "aggregate"
input = "s"
session = "5us"
by = "k"

[query.compute]
p = "quantile(x, 0.9)"
c = "corr(x, y)"
t = "top(x, 2, y)"
m = { function = "sum", column = "x", where = "y > 1" }
q = { function = "quantile", column = "x", q = 0.5, interpolate = true }
"""


def test_a_file_can_say_sessions_and_every_argument_of_a_function(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("ts,k,x,y\n1,1,3,1\n2,1,4,2\n9,1,5,3\n")
    (tmp_path / "s.toml").write_text(AGGREGATE)
    compute = {
        "p": plait.quantile("x", 0.9), "c": plait.corr("x", "y"), "t": plait.top("x", 2, "y"),
        "m": plait.sum("x", where="y > 1"), "q": plait.quantile("x", 0.5, interpolate=True),
    }  # fmt: skip
    query = plait.aggregate(plait.stream("s", unit="us"), session="5us", by="k", compute=compute)
    done = command("run", tmp_path / "s.toml", "--engine", "threads", "--output", tmp_path / "o.parquet")
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == query.run(tmp_path / "s.csv").to_pylist()


ROWS_AND_UNION = """
[streams.a]
unit = "us"
path = "a.csv"

[streams.b]
unit = "us"
path = "b.csv"

[queries.some]
kind = "rows"
input = "a"
where = "k > 1"
select = { k = "k", twice = "k * 2" }

[queries.other]
kind = "rows"
input = "b"
rename = { k = "n", twice = "m" }

[queries.both]
kind = "union"
inputs = ["some", "other"]

[query]
kind = "rows"
input = "both"
drop = "twice"
"""


def test_a_file_can_change_rows_and_unite_them(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(ROWS_AND_UNION)
    (tmp_path / "a.csv").write_text("ts,k\n1,1\n3,5\n4,7\n")
    (tmp_path / "b.csv").write_text("ts,n,m\n2,2,0\n3,9,0\n")
    done = command("run", tmp_path / "q.toml", "--engine", "threads", "--output", tmp_path / "o.parquet")
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == [
        {"ts": 2, "k": 2}, {"ts": 3, "k": 5}, {"ts": 3, "k": 9}, {"ts": 4, "k": 7}
    ]  # fmt: skip
    wrongs = (("inputs", "= 3", "is 3"), ("where", '= "k >"', "is not SQL"), ("rename", "= 3", "names no columns"))
    for key, wrong, said in (*wrongs, ("drop", '= "no"', "no column 'no'"), ("select", "= []", "names no column")):
        lines = [key + wrong if line.startswith(f"{key} =") else line for line in ROWS_AND_UNION.splitlines()]
        (tmp_path / "w.toml").write_text("\n".join(lines))
        done = command("run", tmp_path / "w.toml", "--engine", "threads")
        assert (done.returncode, said in done.stderr) == (2, True), (key, done.stderr)
    (tmp_path / "w.toml").write_text(ROWS_AND_UNION.replace('drop = "twice"', ""))
    assert "Nothing is done to the rows" in command("run", tmp_path / "w.toml", "--engine", "threads").stderr


OUTER = """
[streams.a]
path = "a.csv"
unit = "us"

[streams.b]
path = "b.csv"
unit = "us"

[queries.first]
kind = "dedup"
input = "a"
by = ["k"]
within = "2us"

[query]
kind = "join"
left = "first"
right = "b"
on = "l.k = r.k"
within = ["3us", "1us"]
how = "full"
"""


@pytest.mark.parametrize("engine", ["reference", "threads"])
def test_a_file_can_say_dedup_and_a_full_join(tmp_path: Path, engine: str) -> None:
    (tmp_path / "a.csv").write_text("ts,k\n1,1\n2,1\n4,1\n6,2\n")
    (tmp_path / "b.csv").write_text("ts,k\n1,2\n5,1\n9,3\n")
    (tmp_path / "o.toml").write_text(OUTER)
    first = plait.dedup(plait.stream("a", unit="us"), by="k", within=2, name="first")
    query = plait.join(first, plait.stream("b", unit="us"), on="l.k = r.k", within=(3, 1), how="full")
    done = command("run", tmp_path / "o.toml", "--engine", engine, "--output", tmp_path / "o.parquet")
    assert done.returncode == 0, done.stderr
    expected = query.reference({name: tmp_path / f"{name}.csv" for name in "ab"})
    assert pq.read_table(tmp_path / "o.parquet").to_pylist() == expected.to_pylist()
    assert [row["ts"] for row in expected.to_pylist()] == [2, 4, 5, 7, 12]
    told = command("explain", tmp_path / "o.toml").stdout
    assert "full join, right from 3 us before to 1 us after left" in told
    assert "dedup 'first' by k: the first within 2 us" in told


def test_a_dedup_in_a_file_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,k\n1,1\n")
    (tmp_path / "o.toml").write_text(
        OUTER.split("[query]")[0].replace("[queries.first]", "[query]").replace('within = "2us"', "")
    )
    done = command("run", tmp_path / "o.toml")
    assert done.returncode != 0
    assert "dedup with within=None" in done.stderr


ASOF = """
[streams.trades]
path = "trades.csv"
unit = "us"

[streams.quotes]
path = "quotes.csv"
unit = "us"

[query]
kind = "asof"
left = "trades"
right = "quotes"
by = "k"
within = "3us"
exact = false
direction = "nearest"
"""


def test_a_file_can_say_every_argument_of_as_of(tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text("ts,k\n4,1\n6,1\n")
    (tmp_path / "quotes.csv").write_text("ts,k,bid\n3,1,7\n4,1,8\n9,2,9\n")
    (tmp_path / "q.toml").write_text(ASOF)
    done = command("run", tmp_path / "q.toml", "-o", "-", "--quiet", "--engine", "threads")
    assert [(row["ts"], row["bid"]) for row in map(json.loads, done.stdout.splitlines())] == [(5, 7), (8, 8)]


@pytest.mark.spark
def test_as_of_from_a_file_is_verified_on_every_executor(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text("ts,k\n4,1\n6,1\n")
    (tmp_path / "quotes.csv").write_text("ts,k,bid\n3,1,7\n4,1,8\n9,2,9\n")
    (tmp_path / "q.toml").write_text(ASOF)
    verified = command("verify", tmp_path / "q.toml")
    assert verified.returncode == 0, verified.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('direction = "nearest"', 'direction = "nearst"', ["direction='nearst'", "Did you mean 'nearest'?"]),
        ("exact = false", "exakt = false", ["query.exakt", "Did you mean 'exact'?"]),
        ('within = "3us"', "", ["direction='nearest' without within="]),
    ],
)
def test_wrong_words_for_as_of(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    for name in ("trades", "quotes"):
        (tmp_path / f"{name}.csv").write_text("ts,k\n1,1\n")
    (tmp_path / "q.toml").write_text(ASOF.replace(old, new))
    done = command("run", tmp_path / "q.toml", "-o", "-", "--quiet")
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


CHOICES = '''
[streams.bids]
unit = "us"
path = "bids.csv"

[streams.asks]
unit = "us"
path = "asks.csv"

[queries.sized]
kind = "rows"
input = "bids"
where = "CASE WHEN price IS NULL THEN false ELSE price > 0 END"

[queries.sized.select]
item = "lower(item)"
price = "price"
size = "CASE WHEN price >= 10 THEN 'large' ELSE concat('small ', substring(item, 1, 1)) END"

[queries.near]
kind = "join"
left = "sized"
right = "asks"
on = """
sized.item = lower(trim(asks.item))
AND abs(CASE WHEN sized.price > 9 THEN sized.price - 5 ELSE sized.price END - asks.price) <= 2
"""
within = 9

[query]
kind = "aggregate"
input = "near"
size = "10us"
by = "size"

[query.compute]
total = { function = "sum", column = "if(size = 'large', sized_price, 0)" }
items = { function = "collect", column = "split_part(sized_item, '-', 1)" }
'''


def test_choices_and_functions_of_text(tmp_path: Path) -> None:
    (tmp_path / "q.toml").write_text(CHOICES)
    (tmp_path / "bids.csv").write_text("ts,item,price\n1,Hat-1,12\n2,CAP-2,3\n3,cap,\n4,HAT-1,5\n")
    (tmp_path / "asks.csv").write_text("ts,item,price\n1, hat-1,7\n3,Cap-2 ,4\n")
    done = command("run", tmp_path / "q.toml", "--engine", "threads", "--output", tmp_path / "o.parquet")
    assert done.returncode == 0, done.stderr
    assert pq.read_table(tmp_path / "o.parquet").select(["size", "total", "items"]).to_pylist() == [
        {"size": "large", "total": 12, "items": ["hat"]},
        {"size": "small C", "total": 0, "items": ["cap"]},
        {"size": "small H", "total": 0, "items": ["hat"]},
    ]
    wrong = CHOICES.replace("lower(item)", "lower(price)")
    (tmp_path / "w.toml").write_text(wrong)
    assert (
        "The column 'item' holds `lower` of int64" in command("run", tmp_path / "w.toml", "--engine", "threads").stderr
    )
