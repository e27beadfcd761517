"""docs/papers.md, the map from the papers to the code: its names exist, and nothing that the papers number is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import plait_bench
from plait.cli.main import cli

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "papers.md").read_text()
HEAD = "| in the paper | code | test | command | here |"
NAME = re.compile(r"`([^`]+)`")
COMMANDS = cli.list_commands(click.Context(cli))
#: Items of issue 16, by which what is missing is to come.
ITEMS = range(1, 12)
MISSING = re.compile(r"\b[Ii]tems? (\d+)(?: and (\d+))?")

#: What each paper numbers: how many of each kind.
NUMBERED = {
    "ScaleJoin": {"algorithm": 2, "figure": 8},
    "SplitJoin": {"algorithm": 5, "equation": 6, "figure": 19},
    "DP-Join": {"equation": 9, "figure": 9, "table": 1},
    "STRETCH": {"algorithm": 8, "figure": 5, "table": 2},
    "Multiway aggregation": {"algorithm": 6, "figure": 34, "table": 2},
}


class Row(NamedTuple):
    what: str
    code: str
    test: str
    command: str
    here: str


def maps(text: str) -> dict[str, list[Row]]:
    """The rows of each paper's table."""
    found: dict[str, list[Row]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        rows = part[part.index(HEAD) :].splitlines()[2:]
        cells = [re.split(r" ?\| ?", line.strip("|").strip()) for line in rows if line.startswith("|")]
        found[part.split("\n", 1)[0]] = [Row(*(cell.strip() for cell in row), *[""] * (5 - len(row))) for row in cells]
    return found


MAPS = maps(TEXT)
ROWS = [pytest.param(row, id=f"{paper}: {row.what[:40]}") for paper, rows in MAPS.items() for row in rows]


@cache
def names_of(path: Path) -> frozenset[str]:
    """What a module defines or imports at its top, and what its classes define, as `Class.name`. Nothing is imported for that."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        found |= defined(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in defined(inner)}
    return frozenset(found)


def defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return set()


def module_file(parts: list[str]) -> Path | None:
    base = ROOT / "benchmarks" if parts[0] == "plait_bench" else ROOT / "src" / "plait"
    for path in (base.joinpath(*parts).with_suffix(".py"), base.joinpath(*parts, "__init__.py")):
        if path.is_file():
            return path
    return None


def code_exists(name: str) -> bool:
    """A module by its dotted name, or a name in one, or in a class of it; or a file by its path."""
    if "/" in name:
        return (ROOT / name).is_file()
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        path = module_file(parts[:cut])
        if path is not None:
            return cut == len(parts) or ".".join(parts[cut:]) in names_of(path)
    return False


def test_exists(name: str) -> bool:
    file, _, function = name.partition("::")
    path = ROOT / file
    return path.is_file() and path.name.startswith("test_") and (not function or function in names_of(path))


test_exists.__test__ = False  # type: ignore[attr-defined]  # a question, not a test


def command_exists(name: str) -> bool:
    program, command, *rest = name.split()
    if program != "plait" or command not in COMMANDS:
        return False
    return rest[0] in plait_bench.names() if command == "bench" else not rest


def wrong(row: Row) -> list[str]:
    """What is wrong with a row, a line each."""
    found = [f"there is no {name}" for name in NAME.findall(row.code) if not code_exists(name)]
    found += [f"there is no test {name}" for name in NAME.findall(row.test) if not test_exists(name)]
    found += [f"there is no command {name}" for name in NAME.findall(row.command) if not command_exists(name)]
    items = [int(item) for pair in MISSING.findall(row.here) for item in pair if item]
    found += [f"issue 16 has no item {item}" for item in items if item not in ITEMS]
    if (row.code == "missing" or "missing" in row.here) and not items:
        found.append("what is missing has no item that will bring it")
    if row.code != "missing" and not NAME.findall(row.code):
        found.append("neither code nor «missing»")
    if row.code == "missing" and row.command:
        found.append("missing, and yet there is a command")
    return found


def numbers(what: str, kind: str) -> set[int]:
    """The numbers that a row's first cell names: «figure 5», «figures 9, 11 and 12», «figures 13 to 17»."""
    found: set[int] = set()
    for text in re.findall(rf"\b{kind}s? (\d+(?:(?:, | and | to )\d+)*)(?![.\d])", what):
        ends = [int(number) for number in re.findall(r"\d+", text)]
        found |= set(range(ends[0], ends[1] + 1)) if " to " in text else set(ends)
    return found


@pytest.mark.parametrize("row", ROWS)
def test_every_name_exists(row: Row) -> None:
    assert wrong(row) == []


@pytest.mark.parametrize("paper", NUMBERED)
def test_nothing_that_is_numbered_is_left_out(paper: str) -> None:
    for kind, most in NUMBERED[paper].items():
        assert set().union(*(numbers(row.what, kind) for row in MAPS[paper])) == set(range(1, most + 1)), kind


def test_every_study_answers_something() -> None:
    """What was written for the papers is in the map; what stands beside peers need not be."""
    named = {
        name.removeprefix("plait bench ")
        for rows in MAPS.values()
        for row in rows
        for name in NAME.findall(row.command)
    }
    assert {*plait_bench.names()} - named == {"join-peers", "asof", "cores"}


def test_every_strategy_and_design_says_where_it_departs() -> None:
    """docs/threads.md says so of them."""
    threads = ROOT / "src" / "plait" / "threads"
    joins = [
        threads / "join" / "strategies" / f"{name}.py" for name in ("sequential", "scalejoin", "splitjoin", "dpjoin")
    ]
    aggregates = [threads / "aggregate" / name for name in ("tuml.py", "wiml.py", "hive/hive.py")]
    for path in [*joins, *aggregates, threads / "operator" / "engine.py"]:
        assert "Where this departs from" in (ast.get_docstring(ast.parse(path.read_text())) or ""), path


def test_a_wrong_row_would_be_seen() -> None:
    good = Row(
        "figure 1", "`threads.run.Run.push`, `models.stretch.TABLE_1`, `threads.gate`", "`tests/test_papers.py`",
        "`plait bench join`", "Missing: item 3",
    )  # fmt: skip
    assert wrong(good) == []
    assert wrong(good._replace(code="`threads.run.Run.gone`")) == ["there is no threads.run.Run.gone"]
    assert wrong(good._replace(code="`threads.nowhere`, `examples/gone.py`")) == [
        "there is no threads.nowhere", "there is no examples/gone.py"
    ]  # fmt: skip
    assert wrong(good._replace(test="`tests/test_papers.py::test_gone`")) == [
        "there is no test tests/test_papers.py::test_gone"
    ]
    assert wrong(good._replace(command="`plait bench gone`, `plait gone`")) == [
        "there is no command plait bench gone", "there is no command plait gone"
    ]  # fmt: skip
    assert wrong(good._replace(here="missing: item 12")) == ["issue 16 has no item 12"]
    assert wrong(good._replace(here="missing")) == ["what is missing has no item that will bring it"]
    assert wrong(good._replace(code="")) == ["neither code nor «missing»"]
    assert wrong(good._replace(code="missing")) == ["missing, and yet there is a command"]
    assert numbers("figures 9, 11 and 12, equation 2", "figure") == {9, 11, 12}
    assert numbers("figures 13 to 17", "figure") == set(range(13, 18))
    assert numbers("theorems 5.1 and 6.2, algorithm 1", "theorem") == set()
