"""Chunks that workers share in memory: read instead of the state, and no more than a cache; what is left is removed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.spark.keep import recent
from plait.spark.keep.recent import Recent


@pytest.fixture(autouse=True)
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    free_of(monkeypatch, 2_000)


def free_of(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((1, 1, 2_000, 0, free, 0, 0, 0, 0, 255)))


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(recent, "MEMORY", tmp_path)
    monkeypatch.setattr(recent, "_swept", None)
    return tmp_path


def test_what_is_put_is_got_until_its_step_is_let_go(tmp_path: Path) -> None:
    near = Recent(tmp_path / "query-0", steps=2)
    for number, step in enumerate("abc"):
        near.put(step, number, step.encode())
    assert [bytes(near.get(step, number)) for number, step in enumerate("abc")] == [b"a", b"b", b"c"]
    assert near.get("a", 1) is None, "a chunk belongs to its step"
    near.keep(["a", "b", "c"])
    assert near.get("a", 0) is None
    assert near.get("b", 1) is not None
    mapped = near.get("c", 2)
    near.keep(["c"])
    assert [file.name for file in near.folder.iterdir()] == ["c-2"]  # type: ignore[union-attr]
    near.keep([])
    assert bytes(mapped) == b"c", "what is mapped outlives its file"
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_nothing_is_kept() -> None:
    recent.NONE.put("a", 0, b"a")
    assert recent.NONE.get("a", 0) is None
    recent.NONE.keep(["a"])


def test_half_of_the_memory_is_left_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = Recent(tmp_path / "query-0")
    free_of(monkeypatch, 1_050)
    near.put("a", 0, b"x" * 50)
    near.put("a", 1, b"x" * 51)
    assert near.get("a", 0) is not None
    assert near.get("a", 1) is None


def test_a_full_disk_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    near = Recent(tmp_path / "file" / "query-0")
    near.put("a", 0, b"x")
    assert near.get("a", 0) is None
    near.keep(["a"])


def test_what_dead_daemons_and_ended_queries_left_is_removed(memory: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    own, dead = recent.place(os.getppid()), recent.place(done.pid)
    for folder in (own / "ended-0", own / "running-0", dead / "any-0"):
        folder.mkdir(parents=True)
    own.parent.chmod(0o700)
    long_ago = time.time() - 3600
    os.utime(own / "ended-0", (long_ago, long_ago))
    near = recent.recent("running", 0, 2)
    assert near.folder == own / "running-0"
    assert sorted(f.relative_to(own.parent).as_posix() for f in own.parent.rglob("*-*")) == [f"{own.name}/running-0"]
    assert not dead.exists()


def test_a_folder_that_others_can_read_is_not_used(memory: Path) -> None:
    assert recent.recent("q", 0, 1).folder is not None
    assert (memory / f"plait-{os.getuid()}").stat().st_mode & 0o077 == 0
    (memory / f"plait-{os.getuid()}").chmod(0o755)
    assert recent.recent("q", 0, 1) is recent.NONE
    (memory / f"plait-{os.getuid()}").rmdir()
    (memory / f"plait-{os.getuid()}").symlink_to(memory)
    assert recent.recent("q", 0, 1) is recent.NONE
