"""What `plait calibrate` keeps: read back as it was, and for nothing where it is damaged, old, or another machine's."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path

import pytest

from plait.core import calibration
from plait.core.calibration import Calibration, Costs, duration, kept
from plait.errors import RunError

COSTS = Costs(**{each.name: 1e-9 * (1 + place) for place, each in enumerate(fields(Costs))})


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "folder" / "mine.json"
    monkeypatch.setenv(calibration.VARIABLE, str(made))
    return made


def written(**other: object) -> Calibration:
    made = Calibration(costs=COSTS, machine=calibration.this_machine(), measured="2026-11-16T16:00:00Z")
    path = calibration.keep(made)
    if other:
        path.write_text(json.dumps(json.loads(path.read_text()) | other))
        calibration._read.cache_clear()
    return made


def test_it_is_read_back_as_it_was(path: Path) -> None:
    made = written()
    assert kept() == made
    assert [each.name for each in path.parent.iterdir()] == ["mine.json"]
    assert kept() is kept()


def test_none_is_kept_before_and_after(path: Path) -> None:
    assert kept() is None
    written()
    calibration.forget()
    assert kept() is None
    calibration.forget()


@pytest.mark.parametrize(
    "other",
    [
        {"version": calibration.VERSION + 1},
        {"machine": "another, 64 cores"},
        {"costs": {}},
        {"costs": {"comparison_s": 1}},
        {"costs": vars(COSTS) | {"comparison_s": -1.0}},
        {"costs": vars(COSTS) | {"comparison_s": "fast"}},
        {"costs": vars(COSTS) | {"comparison_s": 0}},
        {"costs": vars(COSTS) | {"unknown_s": 1.0}},
    ],
    ids=lambda other: str(other)[:40],
)
def test_another_version_machine_or_figure_is_none(path: Path, other: dict[str, object]) -> None:
    written(**other)
    assert kept() is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 1}', "\x00\xff"])
def test_a_damaged_file_is_none(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_bytes(text.encode("latin-1"))
    assert kept() is None
    assert written() == kept()


def test_what_is_kept_again_counts(path: Path) -> None:
    written()
    assert kept() is not None
    later = Calibration(costs=COSTS, machine=calibration.this_machine(), measured="2027-01-01T00:00:00Z")
    calibration.keep(later)
    assert kept() == later


def test_it_is_in_the_cache_folder_a_file_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(calibration.VARIABLE)
    monkeypatch.setenv("PLAIT_CACHE_DIR", str(tmp_path))
    one = calibration.place()
    monkeypatch.setattr(calibration, "this_machine", lambda: "another")
    assert one is not None
    assert one.parent == tmp_path
    assert calibration.place() != one


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(calibration.VARIABLE, "")
    assert kept() is None
    with pytest.raises(RunError, match="PLAIT_CALIBRATION is empty"):
        written()


@pytest.mark.skipif(os.name != "posix", reason="folders of POSIX")
def test_a_folder_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(calibration.VARIABLE, str(tmp_path / "file" / "mine.json"))
    assert kept() is None
    with pytest.raises(RunError, match="can't be written"):
        written()


def test_every_figure_has_words_and_a_symbol() -> None:
    told = COSTS.described()
    assert len(told) == len(fields(Costs))
    assert all(words and symbol for words, symbol, _ in told)
    assert COSTS.c_max == pytest.approx(1 / COSTS.comparison_s)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ns"), (2.134e-9, "2.13 ns"), (6.2e-6, "6.2 us"), (0.25, "250 ms"), (9.996e-7, "1 us"), (3, "3 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
