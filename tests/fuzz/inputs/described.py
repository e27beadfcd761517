"""Doors for files that describe work, and for the command: TOML, SQL files, what Python files define, arguments."""

# Tables of values stand as they are read: many on a line.
# ruff: noqa: E501  # tables of inputs, a line each
# fmt: off

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import click
from tests.fuzz.inputs import mutate, texts
from tests.fuzz.inputs.hammer import Kind

from plait.cli import job, main
from plait.cli.exit_codes import BAD_INPUT, DIFFERENT, DONE

ROWS = "ts,x,s\n1,5,a\n2,6,b\n14,5,a\n"


@functools.cache
def _rows_here(folder: str) -> None:
    """Files with rows in the working folder, which is the child's own."""
    for name in ("a.csv", "b.csv"):
        Path(folder, name).write_text(ROWS)


JOIN: dict[str, Any] = {
    "streams": {"a": {"path": "a.csv", "unit": "s"}, "b": {"path": "b.csv", "unit": "s", "source": "s", "late": "drop", "disorder": "1s"}},
    "query": {"kind": "join", "left": "a", "right": "b", "on": "a.x = b.x", "within": "5 s", "how": "left"},
    "output": {"path": "out.csv", "late": "late.csv"}, "run": {"engine": "reference", "order": "strict", "max_pending": 100},
    "spark": {"master": "local[2]", "checkpoint": "ck", "layout": [1, 2], "cells": 2, "max_window": 10},
}  # fmt: skip
AGGREGATE: dict[str, Any] = {
    "streams": {"a": {"path": "a.csv", "unit": "s", "time": "ts", "seq": "position", "idle_after": "5 s", "behind": "drop",
                      "schema": {"ts": "int64", "x": "int64", "s": "string"}, "sources": 1}},
    "queries": {"some": {"kind": "rows", "input": "a", "where": "x > 1", "select": {"y": "x + 1", "x": "x", "s": "s"}}},
    "query": {"kind": "aggregate", "input": "some", "size": "10 s", "advance": "5 s", "by": ["s"],
              "compute": {"n": "count()", "m": "mean(y)", "t": {"function": "top", "column": "x", "k": 2, "by": "y"}, "q": "quantile(x, 0.5)"}},
}  # fmt: skip
OTHER: dict[str, Any] = {
    "streams": {"a": {"path": "a.csv", "unit": "s"}, "b": {"path": "b.csv", "unit": "s"}},
    "queries": {"u": {"kind": "union", "inputs": ["a", "b"]}, "d": {"kind": "dedup", "input": "u", "by": "x", "within": "3 s"}},
    "query": {"kind": "asof", "left": "d", "right": "b", "by": "x", "within": "5 s", "direction": "nearest", "exact": False},
}  # fmt: skip
MADE: dict[str, Any] = {
    "workload": {"name": "songs", "rows": 10, "sources": 2},
    "query": {"kind": "aggregate", "input": "comments", "session": "5 s", "compute": {"n": "count()"}},
}
TREES = (JOIN, AGGREGATE, OTHER, MADE)
LEAVES = (
    *mutate.LEAVES,
    *("a", "b", "join", "rows", "count()", "sum(x)", "x", "ts", "5 s", "-1 s", "drop", "error", "@file", "position", "content", "local[2]"),
    *("/etc/passwd", "../x", "s3a://b/x", "-", "a.csv", "nofile.csv", ["a", "b"], ["x", "s"], {"y": "x"}, "top(x, 3, y)", "custom(x)", "quantile(x, 2)"),
    *("__import__('os').system('false')", "!!python/object:os.system", "${HOME}", "band_join", "energy", "tweets", "left", "full", 1.5, [1, 2]),
)


def toml(value: Any) -> str:
    """A tree as TOML, each value on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {toml(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if value is None:
        return '"none"'
    if isinstance(value, float):
        return {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}.get(json.dumps(value), repr(value))
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_text(given: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(name)} = {toml(value)}\n" for name, value in given.items())


TEXTS = tuple(map(toml_text, TREES))
WORDS = (
    *("[", "]", "[[", "]]", "{", "}", "=", '"', "'", '"""', "#", "\n", ".", ",", "true", "inf", "nan", "1979-05-27T07:32:00Z", "07:32:00", "0xff", "1_0"),
    *("[query]\n", "[streams.a]\n", "kind", "join", "on", "a.b.c.d = 1\n", '"\\ud800"', "\\", "[" * 5_000, "x={" * 3_000, "a." * 2_000, "\r", "\0"),
)


def _toml(rng: random.Random) -> str:
    if rng.random() < 0.6:
        given = mutate.tree(rng, rng.choice(TREES), LEAVES)
        return toml_text(given) if isinstance(given, dict) else f"x = {toml(given)}"
    return mutate.text(rng, TEXTS, WORDS)


def _take_toml(given: str) -> None:
    """As `plait explain` does, and run by the reference where it is of files. Made-up rows may be as many as they say."""
    _rows_here(os.getcwd())
    file = Path("q.toml")
    file.write_bytes(given.encode("utf-8", "surrogatepass"))
    made = job.load("q.toml")
    made.query.explain()
    rows = sum(feed.rows or 3 for feed in made.feeds.values())
    if rows < 1_000:
        made.query.reference(made.feeds)  # type: ignore[arg-type]


# --- SQL files ----------------------------------------------------------------------------------------------

HEADS = ("--! [streams.a]\n--! path = 'a.csv'\n--! unit = 's'\n", "--! streams.a.path = 'a.csv'\n--! streams.a.unit = 's'\n--! [streams.b]\n--! path='b.csv'\n")
SQLS = tuple(head + text for head in HEADS for text in ("SELECT x FROM a WHERE x > 5", "SELECT count(*) AS n FROM a GROUP BY window(ts, '5 s')"))


def _sql_file(rng: random.Random) -> str:
    return mutate.text(rng, SQLS, (*texts.CLAUSES, "--!", "\n--! ", "--! [query]\n", "\r\n", "--! x = 1\n"))


def _take_sql_file(given: str) -> None:
    _rows_here(os.getcwd())
    Path("q.sql").write_bytes(given.encode("utf-8", "surrogatepass"))
    made = job.load("q.sql")
    made.query.reference(made.feeds)  # type: ignore[arg-type]


# --- what a Python file defines -----------------------------------------------------------------------------

QUERIES = (
    "plait.aggregate(plait.stream('a', unit='s'), size='10s', compute={'n': plait.count()})",
    "plait.join(plait.stream('a', unit='s'), plait.stream('b', unit='s'), on='a.x = b.x', within='5s')",
    "plait.stream('a', unit='s').where('x > 1')", "None", "3", "'x'", "plait.stream('a')", "[]", "plait", "lambda: 1", "type", "object()", "q",
)  # fmt: skip
DATA = (
    "{'a': 'a.csv', 'b': 'b.csv'}", "{'a': {'ts': [1, 2], 'x': [5, 6]}}", "lambda: {'a': 'a.csv'}", "{'a': 1}", "{'a': None}", "{1: 2}", "[]", "None",
    "{'a': {'ts': [None], 'x': ['a', 1]}}", "{'a': {'ts': [1.5]}}", "{'a': {'ts': 1}}", "{'a': []}", "{'a': [1, {}]}", "{'a': {}}", "lambda x: x",
    "{'a': {'ts': [[1]], 'x': [object()]}}", "{'a': b'a.csv'}", "{'a': pathlib.Path('a.csv')}", "{'a': ''}", "{'a': 'nofile.csv'}", "{'c': 'a.csv'}",
    "{'a': {'ts': [10**30]}}", "{'a': {'x': [1]}}", "lambda: 1 / 0", "{'a': {'ts': range(3), 'x': range(4)}}", "{'a': iter([])}", "{'a': {1: [2]}}",
)  # fmt: skip
OUTPUTS = ("'out.csv'", "'-'", "None", "3", "''", "'out'", "pathlib.Path('out.jsonl')", "b'out.csv'", "[]", "'/nofolder/x.csv'", "'s3://b/x.csv'", "object()", "'a/b\\0.csv'")


def _python(rng: random.Random) -> str:
    lines = ["import pathlib", "import plait", "", f"query = {rng.choice(QUERIES[:3] if rng.random() < 0.7 else QUERIES)}"]
    lines += [f"data = {rng.choice(DATA)}"] if rng.random() < 0.9 else []
    lines += [f"output = {rng.choice(OUTPUTS)}"] if rng.random() < 0.7 else []
    return "\n".join(lines) + "\n"


def _take_python(given: str) -> None:
    _rows_here(os.getcwd())
    Path("q.py").write_text(given)
    command(["run", "q.py", "--engine", "reference", "-q"])


# --- arguments ----------------------------------------------------------------------------------------------

COMMANDS = (
    ["run", "good.toml", "--engine", "reference", "-q"], ["run", "good.toml", "--engine", "reference", "-o", "out.jsonl", "--late", "late.csv"],
    ["explain", "good.toml"], ["explain", "good.toml", "--input", "a=b.csv"], ["--version"], ["--help"], ["run", "--help"],
    ["run", "good.toml", "--engine", "reference", "--input", "a=a.csv", "--input", "b=b.csv", "-q"], ["verify", "--help"],
)  # fmt: skip
ARGUMENTS = (
    *("-q", "-o", "--output", "--late", "--input", "--engine", "--", "-", "", "reference", "sparkk", "a=b.csv", "a", "=", "a=", "=b.csv", "c=a.csv"),
    *("good.toml", "bad.toml", "nofile.toml", "/dev/null", "/", ".", "a.csv", "out.parquet", "out.x", "/nofolder/out.csv", "file:///etc/passwd.csv"),
    *("a" * 300 + ".toml", "a" * 5_000, "\udc80.toml", "é.toml", "x\ny.toml", "--engine=", "--nooption", "-x", "explain", "runn", "bench", "calibrate", "-h"),
)


def _arguments(rng: random.Random) -> list[str]:
    given = list(rng.choice(COMMANDS))
    for _ in range(1 + int(rng.expovariate(0.7))):
        at = rng.randrange(len(given) + 1)
        match rng.randrange(5):
            case 0:
                del given[at : at + 1]
            case 1:
                given[at : at + 1] = [mutate.text(rng, ARGUMENTS)]
            case _:
                given.insert(at, rng.choice(ARGUMENTS))
    return [each.replace("\0", "") for each in given]


def _take_arguments(given: list[str]) -> None:
    _rows_here(os.getcwd())
    Path("good.toml").write_text(toml_text({**JOIN, "spark": {}}))
    Path("bad.toml").write_text("[")
    if not {"bench", "calibrate", "demo", "verify"} & set(given) or "--help" in given:
        command(given)


def command(arguments: list[str]) -> None:
    """The command in this process: it ends with an exit code that says what was wrong, and with words."""
    said, before = io.StringIO(), sys.argv
    sys.argv = ["plait", *arguments]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(_Out()):
            main.main()
        code: Any = DONE
    except SystemExit as error:
        code = error.code
    finally:
        sys.argv = before
    words = said.getvalue()
    if code not in (DONE, None, BAD_INPUT, DIFFERENT) or "Traceback" in words:
        raise AssertionError(f"exit code {code}: {words[-2_000:]}")
    if code == BAD_INPUT:
        if not words.strip():
            raise AssertionError(f"exit code {code} without words")
        raise click.UsageError("refused")


class _Out(io.StringIO):
    """Standard output that has bytes behind it, as sinks want."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = io.BytesIO()


KINDS = (
    Kind("toml", _toml, _take_toml),
    Kind("sql-files", _sql_file, _take_sql_file),
    Kind("python", _python, _take_python, (click.ClickException,)),
    Kind("arguments", _arguments, _take_arguments, (click.ClickException,)),
)
