"""Of processes that want the same machine code at once, one makes it; none waits for ever."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from plait.core.machine import kept

MODULE = """
import numpy as np
from plait.core.machine.marks import entry

@entry
def busy(words):
    total = 0
    for k in np.argsort(words):
        total += int(words[k] ** 2 % 7)
    return total
"""

ASK = """
import sys
import numpy as np
import busy_module
print("ready", flush=True)
sys.stdin.readline()
print(busy_module.busy(np.arange(4)), sum(busy_module.busy.stats.cache_misses.values()), flush=True)
"""


def test_of_two_processes_one_compiles(tmp_path: Path) -> None:
    (tmp_path / "busy_module.py").write_text(MODULE)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{ASK}"]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for each in both:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in both:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    told = [each.communicate(timeout=120)[0].split() for each in both]
    assert [result for result, _ in told] == ["7", "7"]
    assert sorted(misses for _, misses in told) == ["0", "1"]
    assert not list(tmp_path.rglob("*.lock"))


def entered(index: Path) -> threading.Event:
    """Told when another thread's turn has come."""
    come = threading.Event()

    def wait() -> None:
        with kept._turn(index):
            come.set()

    threading.Thread(target=wait, daemon=True).start()
    return come


def test_who_comes_second_waits_until_the_first_has_kept_it(tmp_path: Path) -> None:
    index = tmp_path / "some.nbi"
    with kept._turn(index):
        second = entered(index)
        assert not second.wait(0.3)
        index.touch()
        assert second.wait(30)


def test_who_comes_second_has_its_turn_if_the_first_fails(tmp_path: Path) -> None:
    index = tmp_path / "some.nbi"
    seconds = []

    def fail() -> None:
        with kept._turn(index):
            seconds.append(entered(index))
            assert not seconds[0].wait(0.3)
            raise ValueError("no code")

    with pytest.raises(ValueError, match="no code"):
        fail()
    assert seconds[0].wait(30)


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may have been stopped by a signal, or by a debugger."""
    monkeypatch.setattr(kept, "PATIENCE_S", 0.05)
    with kept._turn(tmp_path / "some.nbi"):
        assert entered(tmp_path / "some.nbi").wait(30)
