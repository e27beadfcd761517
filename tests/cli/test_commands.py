"""The commands on the examples, and `verify` when an executor is wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from plait.cli import commands, execute, spark_engine
from plait.cli.job import Job
from plait.cli.main import cli, main
from plait.cli.progress import Display
from plait.cli.reference_engine import ReferenceEngine
from plait.core.metrics import Metrics, moment
from plait.errors import QueryError
from plait.query.base import EXECUTORS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.*"))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "has_executor", lambda name: name == "reference")


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.name)
def test_every_example_verifies(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    done = invoke("verify", str(file))
    assert done.exit_code == 0, done.output
    assert "DIFFERENT" not in done.output
    assert "identical, fingerprint" in done.output


def verified_on_spark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On threads it is verified above, by the other process of the suite."""
    monkeypatch.setattr(execute, "has_executor", lambda name: name != "threads")
    monkeypatch.setattr(spark_engine, "BATCHES", 3)
    done = invoke("verify", str(file))
    assert done.exit_code == 0, done.output
    assert re.search(r"^spark .* identical$", done.output, re.MULTILINE), done.output


#: The way of the command is one for all kinds of query, each of which tests/everywhere runs on Spark. So one example; the others
#: take as long each, and are verified in the soak.
QUICK = ("meters.toml",)


@pytest.mark.again
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("file", [f for f in EXAMPLES if f.name in QUICK], ids=lambda f: f.name)
def test_an_example_verifies_on_spark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified_on_spark(file, monkeypatch)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("file", [f for f in EXAMPLES if f.name not in QUICK], ids=lambda f: f.name)
def test_every_other_example_verifies_on_spark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified_on_spark(file, monkeypatch)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.name)
def test_every_example_explains_itself(file: Path) -> None:
    done = invoke("explain", str(file))
    assert done.exit_code == 0
    assert "stream " in done.output
    assert "result: ts " in done.output


def test_explain_names_the_terms_and_the_index() -> None:
    done = invoke("explain", str(next(f for f in EXAMPLES if f.name == "band_join.toml")))
    assert "kernels: band: -500 <= stream_r.x - stream_s.a <= 500" in done.output
    assert "kernels: probes into stream_s: grid" in done.output


def test_explain_projects_what_executors_would_be_sent(tmp_path: Path) -> None:
    """By the first rows of the file, which cells take in this process: Spark is not started."""
    file = next(f for f in EXAMPLES if f.name == "band_join.toml")
    done = invoke("explain", str(file), "--executors", "4")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    begin = lines.index(
        "on 4 executors of one core, a cell each, by what was counted of band_join.toml, its first 100,000 rows a stream at most:"
    )
    assert [line.strip().partition(",")[0] for line in lines[begin + 1 :: 2]] == ["a grid", "by band", "all see all"]
    assert " 2x2: 2.00 copies and " in lines[begin + 1]
    assert "to the busiest executor come 50.0% of all tuples" in lines[begin + 1]
    assert lines[begin + 2].strip().startswith("Copies grow with the square root of the executors")
    refused = invoke("explain", str(file), "--executors", "0")
    assert refused.exit_code != 0
    bare = tmp_path / "bare.toml"
    bare.write_text(
        '[streams.a]\n[streams.b]\n[query]\nkind = "join"\nleft = "a"\nright = "b"\non = "l.x = r.x"\nwithin = "1s"\n'
    )
    with pytest.raises(QueryError, match="stream 'a' has no data"):
        invoke("explain", str(bare), "--executors", "4")


def test_explain_needs_no_data(tmp_path: Path) -> None:
    file = tmp_path / "q.py"
    file.write_text("import plait\ns = plait.stream('s')\nquery = plait.join(s, s, on='l.x < r.x', last=3)\n")
    done = invoke("explain", str(file))
    assert done.exit_code == 0
    assert "last 3 tuples, on (left.x < right.x)" in done.output


def pretend(monkeypatch: pytest.MonkeyPatch, spoil) -> None:
    """Install a wrong executor: the reference's result, spoiled."""

    class Spoiled(ReferenceEngine):
        name = "threads"

        def collect(self, job: Job, display: Display) -> pa.Table:
            return spoil(execute.collect("reference", job, display))

    monkeypatch.setitem(execute.ENGINES, "threads", Spoiled())
    monkeypatch.setattr(execute, "has_executor", lambda name: name != "spark")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda t: t.slice(1), ["at row 0 (row)"]),
        (lambda t: t.slice(0, len(t) - 1), ["(number of rows)", "got       no row"]),
        (lambda t: pa.concat_tables([t, t.slice(0, 1)]), ["(number of rows)", "expected  no row"]),
        (lambda t: pa.concat_tables([t.slice(1, 1), t.slice(0, 1), t.slice(2)]), ["at row 0 (row)"]),
        (lambda t: t.rename_columns([c.upper() for c in t.column_names]), ["(columns)"]),
    ],
)
def test_verify_shows_the_first_difference_and_exits_1(monkeypatch: pytest.MonkeyPatch, spoil, words) -> None:
    pretend(monkeypatch, spoil)
    done = invoke("verify", str(next(f for f in EXAMPLES if f.name == "last_quote.py")))
    assert done.exit_code == 1
    assert "threads" in done.output
    assert "DIFFERENT" in done.output
    assert all(word in done.output for word in words), done.output


def test_verify_in_trigger_order_takes_partners_in_any_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two partners of one trigger change places: strict says no, trigger and none say yes; triggers may not move."""
    file = tmp_path / "q.toml"
    text = """
[streams.a]
path = "a.csv"
unit = "us"
[streams.b]
path = "b.csv"
unit = "us"
[query]
kind = "join"
left = "a"
right = "b"
within = "10us"
[run]
order = "ORDER"
"""
    (tmp_path / "a.csv").write_text("ts,x\n1,1\n2,2\n3,3\n")
    (tmp_path / "b.csv").write_text("ts,y\n4,1\n5,2\n")

    def swapped(first: int, second: int):
        def spoil(table: pa.Table) -> pa.Table:
            rows = list(range(len(table)))
            rows[first], rows[second] = rows[second], rows[first]
            return table.take(rows)

        return spoil

    for swap, allowed in (((0, 1), {"trigger", "none"}), ((0, 3), {"none"})):
        pretend(monkeypatch, swapped(*swap))
        for order in ("strict", "trigger", "none"):
            file.write_text(text.replace("ORDER", order))
            done = invoke("verify", str(file))
            assert done.exit_code == (0 if order in allowed else 1), (swap, order, done.output)


def test_demo_shows_both_results_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.java.missing", lambda: "no Java here")
    done = invoke("demo")
    assert done.exit_code == 0
    assert "Band join" in done.output
    assert "Aggregate" in done.output
    assert "fingerprint ce7e6600ed745c0b" in done.output  # seeded: the same on every machine


def test_a_fault_of_our_own_is_exit_3_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("plait.cli.job.load", lambda *a: 1 / 0)
    monkeypatch.setattr(sys, "argv", ["plait", "explain", "x.toml"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 3
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_progress_is_plain_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("plait.cli.progress.time.monotonic", lambda: now[0])
    with Display("work", total=10) as display:
        for rows in range(11):
            display.update(Metrics(rows=rows, results=rows // 2, frontier=0))
            now[0] += 0.9
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "work: 2 s, 2 rows in, 1 results, frontier 0 s (20%)"
    assert len(lines) == 2


def test_quiet_progress_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    monkeypatch.setattr("plait.cli.progress.time.monotonic", lambda: now[0])
    with Display("work", quiet=True) as display:
        now[0] += 60
        display.update(Metrics(rows=1, results=1, frontier=0))
    assert capsys.readouterr().err == ""


def test_moments_are_readable() -> None:
    assert moment(-(2**63)) == "start"
    assert moment(2**63 - 1) == "end of input"
    assert moment(1_704_067_200_000_000) == "2024-01-01 00:00:00"
    assert moment(1_500_000) == "1.5 s"
    assert moment(2**61) == f"{2**61} us"


def test_without_the_benchmarks_bench_says_where_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "plait_bench", None)
    monkeypatch.setattr(sys, "argv", ["plait", "bench"])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 2
    assert 'pip install ".[bench]" ./benchmarks' in capsys.readouterr().err


# --- what can be added ----------------------------------------------------------------------------------------


TOY = '''
import click

@click.command("toy")
def command() -> None:
    """Say a word."""
    click.echo("a word")
'''


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder whose modules are commands too."""
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plait.cli.commands.toy")]:
        del sys.modules[name]


def test_a_new_command_is_one_module(beside: Path) -> None:
    (beside / "toy.py").write_text(TOY)
    assert invoke("toy").output == "a word\n"
    assert "toy        Say a word." in invoke("--help").output


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("", "the command 'toy' has no `command`"),
        (TOY.replace('"toy"', '"play"'), "the command 'toy' calls itself 'play'"),
        (TOY.replace("Say a word.", ""), "the command 'toy' has no help"),
    ],
)
def test_what_a_command_lacks_is_named(beside: Path, text: str, lacks: str) -> None:
    (beside / "toy.py").write_text(text)
    with pytest.raises(ImportError, match=lacks):
        invoke("--help")


def test_every_command_is_whole() -> None:
    context = click.Context(cli)
    names = cli.list_commands(context)
    assert names == ["bench", "calibrate", "demo", "explain", "run", "top", "verify"]
    for name in names:
        assert cli.get_command(context, name) is not None


def test_every_executor_has_an_engine() -> None:
    assert set(execute.ENGINES) == set(EXECUTORS)
    for name, engine in execute.ENGINES.items():
        assert engine.name == name
