"""The rules of the house that a reader of `plait.threads` may rely on, held against its text."""

from __future__ import annotations

import ast
from pathlib import Path

import plait

SRC = Path(plait.__file__).parent.parent
ROOM = SRC / "plait" / "threads"
TREES = {".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): ast.parse(p.read_text())
         for p in ROOM.rglob("*.py")}  # fmt: skip


def imported(tree: ast.Module) -> set[str]:
    """The modules of `plait.threads` that a module imports; of a package's own names, the package."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & set(TREES)


def reached(start: str) -> set[str]:
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imported(TREES[name])
    return seen


def by_text(tree: ast.Module) -> list[int]:
    """Lines where an attribute is named by a text."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [call.lineno for call in calls if call.func.id in ("getattr", "setattr", "hasattr", "delattr")]  # type: ignore[attr-defined]


def others_own(tree: ast.Module) -> list[str]:
    """Private names of what is not one's own."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    return [
        f"{ast.unparse(node)}, line {node.lineno}"
        for node in found
        if not node.attr.startswith("__") and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]


def test_every_module_lies_on_a_runs_path() -> None:
    """What stands beside the product, to be measured or explored, is in benchmarks and tests."""
    packages = {name for name in TREES if any(other.startswith(f"{name}.") for other in TREES)}
    # `Query.on_threads` begins in the one, `Query.run` in the other, or where there need be no gate in the third.
    starts = ("plait.threads.run", "plait.threads.feeds", "plait.threads.bounded.run")
    assert set(TREES) - packages - set().union(*map(reached, starts)) == set()


def test_no_attribute_is_named_by_a_text() -> None:
    assert {name: lines for name, tree in TREES.items() if (lines := by_text(tree))} == {}


def test_nobody_uses_the_private_names_of_others() -> None:
    assert {name: found for name, tree in TREES.items() if (found := others_own(tree))} == {}


def test_only_joins_know_a_join_workers_memory() -> None:
    rooms = ("aggregate", "operator", "elastic", "input", "gate", "atomics")
    inside = {name: tree for name, tree in TREES.items() if name.split(".")[2:3] and name.split(".")[2] in rooms}
    assert len(inside) > 30
    assert {name: used for name, tree in inside.items()
            if (used := {m for m in imported(tree) if m.startswith("plait.threads.join")})} == {}  # fmt: skip


def test_a_breach_would_be_seen() -> None:
    tree = ast.parse("from plait.threads.gate import words\nx = getattr(a, which)\ny = gate._names[0]\nz = self._own")
    assert imported(tree) == {"plait.threads.gate", "plait.threads.gate.words"}
    assert by_text(tree) == [2]
    assert others_own(tree) == ["gate._names, line 3"]
    assert "plait.threads.words" in reached("plait.threads.life.halt")
    assert "plait.threads.run" not in reached("plait.threads.life.halt")
