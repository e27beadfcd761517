"""What docs and docstrings refer to is there: files by path, modules by name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXTS = [
    *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md",
    *(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"),
]  # fmt: skip
#: A path with at least one folder, to a file of ours.
PATH = re.compile(r"(?<![\w/.*<:-])((?:[\w-]+/)+[\w-]+\.(?:py|md|sh|java))")
#: A file or folder by its path from the root.
FOLDER = re.compile(r"(?<![\w/.-])((?:src|tests|benchmarks|docs|examples|tools)/[\w./-]*[\w/])")
#: A module in backticks, by its name below `plait`, or something in one.
NAME = re.compile(r"`(?:plait\.)?((?:core|threads|spark|reference|connectors|query|cli)\.[a-z_]+\.[a-z_.]+)`")


def _files() -> set[str]:
    folders = ("src", "tests", "benchmarks", "docs", "examples", "tools")
    found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return {str(path.relative_to(ROOT)) for path in found if path.is_file()}


def _modules() -> set[str]:
    paths = [path.relative_to(ROOT / "src").with_suffix("") for path in (ROOT / "src" / "plait").rglob("*.py")]
    return {".".join(path.parts[1:]).removesuffix(".__init__") for path in paths}


def test_paths() -> None:
    files = _files()
    ends = {"/".join(file.split("/")[at:]) for file in files for at in range(file.count("/"))}
    missing = {(text.name, path) for text in TEXTS for path in PATH.findall(text.read_text()) if path not in ends}
    assert not missing


def test_folders() -> None:
    missing = {(t.name, path) for t in TEXTS for path in FOLDER.findall(t.read_text()) if not (ROOT / path).exists()}
    assert not missing


def test_modules() -> None:
    modules = _modules()
    options = ("spark.sql.", "spark.jars.", "spark.python.", "spark.driver.", "spark.executor.")  # Spark's own settings
    missing = set()
    for text in TEXTS:
        for name in NAME.findall(text.read_text()):
            parts = name.split(".")
            if not name.startswith(options) and not any(".".join(parts[:k]) in modules for k in (2, 3, 4)):
                missing.add((text.name, name))
    assert not missing


def test_a_missing_one_would_be_seen() -> None:
    assert FOLDER.findall("see `tests/nowhere`, or docs/gone.md.") == ["tests/nowhere", "docs/gone.md"]
    assert PATH.findall("see (`core/nowhere/gone.py`) and x.py") == ["core/nowhere/gone.py"]
    assert NAME.findall("`plait.core.nowhere.gone` `x.y`") == ["core.nowhere.gone"]
