"""Machine code of plait's own functions is one folder a user: another clone finds it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import plait
from plait.core.machine.folder import cache_folder

ASK = """
import numpy as np
import plait
from plait.core.kernels.runs import out_of_order
print(plait.__file__, out_of_order(np.arange(3), 0), sum(out_of_order.stats.cache_misses.values()))
"""


def asked(clone: Path, folder: Path) -> list[str]:
    env = os.environ | {"PYTHONPATH": str(clone), "PLAIT_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_second_clone_compiles_nothing(tmp_path: Path) -> None:
    for clone in ("first", "second"):
        there = tmp_path / clone / "plait"
        shutil.copytree(Path(plait.__file__).parent, there, ignore=shutil.ignore_patterns("__pycache__"))
    for clone, compiled in (("first", "1"), ("second", "0"), ("first", "0")):
        assert asked(tmp_path / clone, tmp_path / "kept") == [
            str(tmp_path / clone / "plait" / "__init__.py"), "False", compiled
        ]  # fmt: skip
    assert not list((tmp_path / "first").rglob("*.nbi")), "it was kept beside the source"


def test_machine_code_of_older_stamps_is_forgotten_after_a_while(tmp_path: Path) -> None:
    made = tmp_path / "kept" / "machine"
    made.mkdir(parents=True)
    name = f"plait.core.kernels.runs.out_of_order.py{sys.version_info[0]}{sys.version_info[1]}"
    files = {age: made / f"{name}-{age}.1.nbc" for age in ("old", "new")}
    other = made / "plait.core.kernels.runs.other.py311-old.nbi"
    for file in (*files.values(), other):
        file.write_text("")
    for file in (files["old"], other):
        os.utime(file, (0, 0))
    asked(Path(plait.__file__).parent.parent, tmp_path / "kept")
    assert not files["old"].exists()
    assert files["new"].exists()
    assert other.exists(), "it is another function's"


def test_where_the_folder_cannot_be_made_it_is_compiled_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "in the way").write_text("")
    for _ in range(2):
        assert asked(Path(plait.__file__).parent.parent, tmp_path / "in the way" / "kept")[1:] == ["False", "1"]


def test_a_home_that_cannot_be_written_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAIT_CACHE_DIR", raising=False)
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder().name.startswith("plait-kernels-")


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE_DIR", str(tmp_path / "from environment"))
    assert cache_folder() == tmp_path / "from environment"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("PLAIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / "plait" / "kernels"
