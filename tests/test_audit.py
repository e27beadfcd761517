"""The audit of dependencies: what it fails upon, and what it says where nobody answers."""

from __future__ import annotations

import importlib.util
import urllib.error
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def audit() -> Any:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "tools" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(audit: Any, answers: dict[str, Any]) -> tuple[int, list[str]]:
    said: list[str] = []

    def fetch(url: str) -> Any:
        answer = answers[url.split("/")[-3]]
        if isinstance(answer, Exception):
            raise answer
        return {"vulnerabilities": answer}

    return audit.audit(dict.fromkeys(answers, "1.0"), fetch, said.append), said


FOUND = {
    "id": "PYSEC-1",
    "aliases": ["CVE-1"],
    "summary": "reads what it must not",
    "fixed_in": ["1.1"],
    "withdrawn": None,
}


def test_a_known_vulnerability_fails(audit: Any) -> None:
    code, said = run(audit, {"good": [], "bad": [FOUND]})
    assert code == 1
    assert said == ["bad 1.0: PYSEC-1 = CVE-1: reads what it must not (mended in 1.1)"]


def test_one_that_is_ignored_or_withdrawn_does_not(audit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit.IGNORED, "CVE-1", "plait never calls it")
    code, said = run(audit, {"bad": [FOUND, FOUND | {"id": "PYSEC-2", "aliases": [], "withdrawn": "2026-01-01"}]})
    assert code == 0
    assert "ignored, since plait never calls it: bad 1.0" in said[0]


@pytest.mark.parametrize("error", [urllib.error.URLError("no network"), TimeoutError("late"), ValueError("no JSON")])
def test_where_nobody_answers_one_line_says_so(audit: Any, error: Exception) -> None:
    code, said = run(audit, {"a": error, "b": error})
    assert code == 0
    assert len(said) == 1
    assert said[0].startswith("PyPI could not be asked about 2 of 2 packages (")


def test_what_is_known_counts_though_some_do_not_answer(audit: Any) -> None:
    code, said = run(audit, {"a": TimeoutError("late"), "b": [FOUND]})
    assert code == 1
    assert len(said) == 2


def test_what_plait_needs_is_asked_about(audit: Any) -> None:
    found = audit.dependencies()
    assert {"pyarrow", "numba", "llvmlite", "sqlglot", "pyspark", "py4j", "click"} <= found.keys()
    assert "pytest" not in found


def test_every_dependency_has_a_range() -> None:
    import tomllib

    for file in (ROOT / "pyproject.toml", ROOT / "benchmarks" / "pyproject.toml"):
        project = tomllib.loads(file.read_text())["project"]
        extras = project.get("optional-dependencies", {}).values()
        for line in (*project["dependencies"], *(each for some in extras for each in some)):
            assert line.startswith("plait") or ("<" in line and (">=" in line or "==" in line)), line
