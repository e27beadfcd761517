"""`plait calibrate`: what is measured is shown in words with units, kept, shown again, and deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from plait.cli import measuring
from plait.cli.main import cli
from plait.core import calibration
from plait.core.calibration import Calibration, Costs, duration
from plait.errors import RunError

COSTS = Costs(**{each.name: 1e-9 * (1 + place) for place, each in enumerate(fields(Costs))})


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *arguments], catch_exceptions=False, env={"COLUMNS": "200"})


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the test's own, and figures that need no measuring."""

    def measure(tell: Callable[[str], None], *, quick: bool) -> Calibration:
        tell("nothing")
        return Calibration(costs=COSTS, machine=calibration.this_machine(), measured="2026-11-16T16:00:00Z")

    monkeypatch.setenv(calibration.VARIABLE, str(tmp_path / "mine.json"))
    monkeypatch.setattr(measuring, "measure", measure)
    return tmp_path / "mine.json"


def test_what_is_measured_is_shown_and_kept(path: Path) -> None:
    done = invoke()
    assert done.exit_code == 0
    for words, symbol, seconds in COSTS.described():
        assert words in done.stdout
        assert symbol in done.stdout
        assert duration(seconds) in done.stdout
    assert "1,000,000,000" in done.stdout  # C_max
    assert str(path) in done.stderr.replace("\n", "")
    assert "measuring: nothing" in done.stderr
    found = calibration.kept()
    assert found is not None
    assert found.costs == COSTS


def test_what_is_kept_is_shown_again() -> None:
    with pytest.raises(RunError, match="No calibration is kept for this machine"):
        invoke("--show")
    first = invoke()
    assert invoke("--show").stdout == first.stdout


def test_as_json() -> None:
    made = json.loads(invoke("--json").stdout)
    assert made["costs"] == vars(COSTS)
    assert json.loads(invoke("--show", "--json").stdout) == made


def test_a_quick_look_is_not_kept(path: Path) -> None:
    assert "comparing one pair" in invoke("--quick").stdout
    assert not path.exists()


def test_it_can_be_forgotten(path: Path) -> None:
    invoke("--quiet")
    assert path.exists()
    assert invoke("--forget").output == ""
    assert not path.exists()
    assert invoke("--forget").exit_code == 0


def test_quiet_says_nothing() -> None:
    assert invoke("--quiet").output == ""
