"""Examples do what they say: those of docstrings, of commands, and the blocks of the documentation.

A method's example goes on from its class's: `run.push` is shown with the query that the class's example has made. Each runs in
an empty folder.
"""

from __future__ import annotations

import doctest
import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from tests.public import Public, everything

import plait
from plait import encodings, order, paths, schema
from plait.cli.main import cli
from plait.connectors import feed, write_folder
from plait.core.metrics import Metrics
from plait.query import identical
from plait.query.condition import expression, regular, sql, types
from plait.watch import top
from plait.watch.snapshot import snapshot
from plait.watch.watched import Watched

ROOT = Path(__file__).parent.parent
EXAMPLES = [public for public in everything() if ">>>" in public.text]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS | doctest.FAIL_FAST


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# --- docstrings ---


def run_example(public: Public, given: dict[str, Any]) -> None:
    """Run what stands in a docstring, with the names that are given."""
    parsed = doctest.DocTestParser().get_doctest(public.text, given, public.name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(parsed, out=said.append, clear_globs=False)
    given.update(parsed.globs)
    assert not said, "".join(said)


def run_with_owner(public: Public) -> None:
    given: dict[str, Any] = {"__name__": "__main__"}
    if public.owner is not None:
        run_example(Public(public.name, public.owner), given)
    run_example(public, given)


@pytest.mark.parametrize("public", [p for p in EXAMPLES if not p.needs_spark], ids=lambda public: public.name)
def test_example(public: Public) -> None:
    run_with_owner(public)


@pytest.mark.spark
@pytest.mark.parametrize("public", [p for p in EXAMPLES if p.needs_spark], ids=lambda public: public.name)
def test_spark_example(public: Public, spark: Any) -> None:
    run_with_owner(public)


def _wrong() -> int:
    """A wrong one.

    Example:
        >>> 1 + 1
        3
    """
    return 0


def test_a_wrong_example_would_be_seen() -> None:
    with pytest.raises(AssertionError, match=r"Expected:\n +3\n *Got:\n +2"):
        run_example(Public("wrong", _wrong), {})


#: Modules whose other docstrings have examples too. None of them loads Numba or Spark.
MODULES = [plait, plait.errors, order, schema, encodings, paths, expression, types, sql, regular, identical]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples_inside(module: Any) -> None:
    known = {public.text for public in EXAMPLES}
    found = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    own = [test for test in found if inspect.cleandoc(test.docstring or "") not in known]
    said: list[str] = []
    for test in own:
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert own
    assert not said, "".join(said)


# --- commands ---

#: Those that run on every executor, or on the best.
ON_SPARK = ("demo", "verify")


COMMANDS = click.Context(cli)


def run_command(name: str, folder: Path) -> None:
    (folder / "examples").symlink_to(ROOT / "examples")
    command = cli.get_command(COMMANDS, name)
    assert command is not None
    text = inspect.getdoc(command.callback) or ""
    for line in re.findall(r"^    (plait .*)$", text.partition("Example:")[2], re.MULTILINE):
        done = CliRunner().invoke(cli, shlex.split(line)[1:], catch_exceptions=False)
        assert done.exit_code == 0, f"{line}: {done.output}"


@pytest.mark.parametrize("name", [name for name in cli.list_commands(COMMANDS) if name not in ON_SPARK])
def test_command(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = snapshot(Watched(Metrics, "an example", "threads"), Metrics(phase="ended"), 1.0)
    monkeypatch.setattr(top, "asked", lambda url: {"http://127.0.0.1:4747": ended}[url])  # no page is here now
    run_command(name, tmp_path)


@pytest.mark.spark
@pytest.mark.slow  # and tests/cli runs both commands anyway
@pytest.mark.parametrize("name", ON_SPARK)
def test_spark_command(name: str, tmp_path: Path) -> None:
    run_command(name, tmp_path)


# --- blocks of the documentation ---

ROWS = {"ts": [1, 2, 3], "x": [1, 2, 3], "y": [1, 2, 3], "a": [1, 2, 3], "b": [1, 2, 3]}
QUOTES = pa.table(ROWS | {"ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "feed": ["x", "y", "x"]})
TRADES = pa.table(ROWS | {"ts": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "venue": ["lse", "nyse", "lse"]})
PRICES = QUOTES.append_column("price", pa.array([1.0, 2.0, 3.0]))
CLICKS = plait.stream("clicks", unit="s", schema={"ts": "int64", "n": "int64"})


def streamed(spark: Any, name: str, table: pa.Table) -> Any:
    """The rows as a streaming DataFrame."""
    if not Path(name).exists():
        write_folder(feed(plait.stream(name), table), name)
    folder = str(Path(name).absolute())
    return spark.readStream.schema(spark.read.parquet(folder).schema).parquet(folder)


def counted() -> plait.Query:
    def process(state: Any, t: Any) -> Any:
        state[0] = state.get(0, 0) + t.n
        yield {"total": state[0]}

    return plait.operator(CLICKS, buckets=8, route=lambda t: 0, state=dict, process=process, output={"total": "int64"})


def joined() -> plait.Query:
    return plait.join(plait.stream("quotes", unit="s"), plait.stream("trades", unit="s"), within="1s")


def in_readme(spark: Any) -> dict[str, Any]:
    frames = {"quotes_df": streamed(spark, "quotes", QUOTES), "trades_df": streamed(spark, "trades", TRADES)}
    return {"quotes_table": QUOTES, "trades_table": TRADES} | frames


def in_spark(spark: Any) -> dict[str, Any]:
    return {"quotes_df": streamed(spark, "quotes", PRICES), "trades_df": streamed(spark, "trades", PRICES)}


def in_spark_batch(spark: Any) -> dict[str, Any]:
    for name in ("quotes", "trades"):
        write_folder(feed(plait.stream(name), PRICES), name)
    quotes, trades = (spark.read.parquet(str(Path(name).absolute())) for name in ("quotes", "trades"))
    near = plait.join(plait.stream("quotes"), plait.stream("trades"), within="1s")
    return {"plait": plait, "near": near, "quotes_batch": quotes, "trades_batch": trades}


def in_spark_aggregates(spark: Any) -> dict[str, Any]:
    rows = {"ts": QUOTES["ts"], "concentrator": [0, 1, 2], "meter": [7, 7, 8], "cons": [0.1, 0.2, 0.3]}
    return {"plait": plait, "readings_df": streamed(spark, "readings", pa.table(rows))}


#: By file and number, the names that a block of Python is given; the functions are called with a session if it needs one.
GIVEN: dict[tuple[str, int], Callable[..., dict[str, Any]]] = {
    ("README.md", 0): in_readme,
    ("elastic.md", 0): lambda: {"query": counted(), "batch": {"ts": [1], "n": [1]}},
    ("elastic.md", 1): lambda: {"query": counted()},
    ("gate.md", 0): lambda: {"__name__": "gate.md"},
    ("operations.md", 0): lambda: {"__name__": "operations.md"},
    ("models.md", 0): lambda: {"__name__": "models.md"},
    ("spark.md", 0): in_spark,
    ("sql.md", 0): lambda: {"__name__": "sql.md"},
    ("spark.md", 3): in_spark_batch,
    ("spark.md", 4): in_spark_aggregates,
    ("threads.md", 0): lambda: {"query": joined(), "batch": {"ts": [1, 2, 3]}},
    ("threads.md", 1): lambda: {"query": joined(), "batch": {"ts": [1, 2, 3]}},
    ("threads.md", 2): lambda: {"__name__": "threads.md"},
    ("threads.md", 3): lambda: {"__name__": "threads.md"},
}
#: Blocks that are not run, and why.
LEFT_OUT = {
    ("operations.md", 1): "leaves a handler of logs behind; tests/watch/test_told.py does the same, and takes it away",
    ("spark.md", 1): "needs a Kafka broker",
    ("spark.md", 2): "one line for each of several events; the docstrings' examples write them",
    ("spark.md", 5): "runs until somebody stops it; the docstring of scaling does the same",
    ("spark.md", 6): "goes on from a query that has stopped; the docstring of relayout does the same",
    **{("spark-refuses.md", at): "tests/spark/test_spark_refuses.py runs the page" for at in range(11)},
}


def blocks(language: str) -> dict[tuple[str, int], str]:
    found = {}
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        texts = re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
        found.update({(path.name, number): text for number, text in enumerate(texts)})
    return found


PYTHON = blocks("python")
NEED_SPARK = [block for block in GIVEN if inspect.signature(GIVEN[block]).parameters]


def run_block(block: tuple[str, int], given: dict[str, Any]) -> None:
    exec(compile(PYTHON[block], f"{block[0]}, block {block[1]}", "exec"), given)


def test_every_block_is_run_or_named() -> None:
    assert set(PYTHON) == GIVEN.keys() | LEFT_OUT.keys()


@pytest.mark.parametrize("block", [b for b in GIVEN if b not in NEED_SPARK], ids=str)
def test_block(block: tuple[str, int]) -> None:
    run_block(block, GIVEN[block]())


@pytest.mark.spark
@pytest.mark.parametrize("block", NEED_SPARK, ids=str)
def test_spark_block(block: tuple[str, int], spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        run_block(block, GIVEN[block](spark))
        for query in spark.streams.active:
            query.awaitTermination()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


def test_toml_of_the_readme() -> None:
    """The file of the section on the command, with its two streams."""
    write_folder(feed(plait.stream("quotes"), QUOTES), "quotes")
    (trades,) = write_folder(feed(plait.stream("trades"), TRADES), "csv", format="csv")
    trades.rename("trades.csv")
    Path("near.toml").write_text(blocks("toml")["README.md", 0])
    done = CliRunner().invoke(cli, ["run", "near.toml", "--engine", "reference"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert Path("near.parquet").exists()
