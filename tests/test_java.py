"""The one line that is said when Spark has no Java to run on."""

import subprocess
import sys
from pathlib import Path

import pytest

from plait import java


def fake_java(folder: Path, version: str, *, exit_code: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {exit_code}\n")
    script.chmod(0o755)


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with a shell and nothing else: no Java, and no package manager but the ones a test adds."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "17", "21-ea", "25.0.1"])
def test_new_enough(bin_folder: Path, version: str) -> None:
    fake_java(bin_folder, version)
    assert java.missing() is None


def test_no_java(bin_folder: Path) -> None:
    (bin_folder / "apt-get").symlink_to("/bin/sh")
    assert java.missing() == (
        "Spark needs Java 17 or newer, and there is none in PATH. Install it: apt-get install openjdk-17-jre-headless"
    )


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11), ("16", 16)])
def test_too_old(bin_folder: Path, version: str, major: int) -> None:
    fake_java(bin_folder, version)
    (bin_folder / "dnf").symlink_to("/bin/sh")
    assert java.missing() == (
        f"Spark needs Java 17 or newer, and the Java in PATH is version {major}. "
        "Install it: dnf install java-17-openjdk-headless"
    )


def test_a_stub_that_fails_is_no_java(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bin_folder, "17.0.15", exit_code=1)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert java.missing() == (
        "Spark needs Java 17 or newer, and there is none in PATH. Install it: brew install openjdk@17"
    )


def test_java_home_is_the_only_place_looked_at(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(bin_folder, "17.0.15")
    home = bin_folder.parent / "jdk"
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.missing() == (
        f"Spark needs Java 17 or newer, and there is none in JAVA_HOME={home}. "
        "Install it: see https://adoptium.net, then unset JAVA_HOME or point it there"
    )
    fake_java(home / "bin", "21.0.1")
    assert java.missing() is None


def test_run_as_a_script_it_prints_the_line_and_succeeds(bin_folder: Path) -> None:
    run = subprocess.run([sys.executable, "-I", java.__file__], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (0, "")
    assert run.stderr.startswith("Spark needs Java 17 or newer, and there is none in PATH. Install it: ")
    assert run.stderr.count("\n") == 1
