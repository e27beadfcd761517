"""Examples do what they say: those of docstrings, of commands, and the blocks of the documentation.

A method's example goes on from its class's: `run.push` is shown with the `run` that the class's example has made. Each runs in
an empty folder.
"""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest
from tests.public import Public, everything

from plait import errors

EXAMPLES = [public for public in everything() if ">>>" in public.text]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def run_example(public: Public, given: dict[str, Any]) -> None:
    """Run what stands in a docstring, with the names that are given."""
    parsed = doctest.DocTestParser().get_doctest(public.text, given, public.name, None, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(parsed, out=said.append, clear_globs=False)
    given.update(parsed.globs)
    assert not said, "".join(said)


def _run(public: Public) -> None:
    given: dict[str, Any] = {"__name__": "__main__"}
    if public.owner is not None:
        run_example(Public(public.name, public.owner), given)
    run_example(public, given)


@pytest.mark.parametrize("public", [p for p in EXAMPLES if not p.needs_spark], ids=lambda public: public.name)
def test_example(public: Public, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run(public)


@pytest.mark.spark
@pytest.mark.parametrize("public", [p for p in EXAMPLES if p.needs_spark], ids=lambda public: public.name)
def test_spark_example(public: Public, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _run(public)


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


def test_errors_are_documented_where_they_are() -> None:
    assert any(public.object is errors.LateError for public in EXAMPLES)
