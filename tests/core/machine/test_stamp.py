"""Machine code is compiled again where something that it is made from has changed, and nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from plait.core.machine.shield import njit
from plait.core.machine.stamp import stamp_of

# What all edits compile is found out at once.
pytestmark = pytest.mark.xdist_group("stamp")

PACKAGE = {
    "low.py": '''
        """Constants and a kernel."""
        from plait.threads.atomics import compiled
        STEP = 3
        OTHER = 5
        LATER = 7

        @compiled
        def low(x):
            """One step."""
            return x + STEP
    ''',
    "high.py": '''
        """Calls the kernel of another file, and takes a constant from there."""
        from plait.threads.atomics import compiled
        import low as low_file
        from low import OTHER, low

        @compiled
        def high(x):
            return low(x) * 2

        @compiled
        def alone(x):
            return x * OTHER

        @compiled
        def through(x):
            return x + low_file.LATER

        @compiled
        def looping(x):
            return x if x < 2 else looping(x - 1) + 1
    ''',
    "plain.py": '"""No compiled code."""\nWORD = 1\n',
}
#: Imports plait once; then, for each folder, a child of it has its own modules from there, and tells what it compiled.
RUN = """
import json, os, sys
import plait.threads.atomics
for folder in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        sys.path.insert(0, folder)
        import high, low, plain
        made = {"low": low.low, "high": high.high, "alone": high.alone, "looping": high.looping, "through": high.through}
        values = {name: f(4) for name, f in made.items()}
        missed = sorted(name for name, f in made.items() if sum(f.stats.cache_misses.values()))
        print(json.dumps([values, missed]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""

EDITS = {
    "a docstring of a function": ("low.py", "One step.", "One single step.", []),
    "a line more at the top": ("low.py", '"""Constants and a kernel."""', '"""Constants\n\nand a kernel."""', []),
    "a comment": ("high.py", "return x * OTHER", "return x * OTHER  # so many times", []),
    "a file without compiled code": ("plain.py", "WORD = 1", "WORD = 2", []),
    "a kernel": ("low.py", "return x + STEP", "return x - STEP", ["high", "low"]),
    "a constant": ("low.py", "STEP = 3", "STEP = 4", ["high", "low"]),
    "a constant that another file takes": ("low.py", "OTHER = 5", "OTHER = 6", ["alone"]),
    "a constant that is read from its file's name": ("low.py", "LATER = 7", "LATER = 8", ["through"]),
    "a function that calls itself": ("high.py", "looping(x - 1) + 1", "looping(x - 1) + 2", ["looping"]),
}


def _run(*folders: Path) -> list[tuple[dict[str, int], list[str]]]:
    """What each folder's functions give, and which were compiled, one folder after the other."""
    # No bytecode: an edit within a second that keeps the length would not be seen.
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", RUN, *map(str, folders)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, int], list[str]]]:
    """What is compiled again, by edit: each of a copy of the package, with its cache."""
    folder = tmp_path_factory.mktemp("package")
    for name, text in PACKAGE.items():
        (folder / name).write_text("\n".join(line[8:] if line[:8].isspace() else line for line in text.split("\n")))
    assert [compiled for _, compiled in _run(folder, folder)] == [["alone", "high", "looping", "low", "through"], []]
    copies = []
    for number, (file, old, new, _) in enumerate(EDITS.values()):
        copies.append(tmp_path_factory.mktemp("copy") / str(number))
        shutil.copytree(folder, copies[-1])
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (copies[-1] / file).write_text(text.replace(old, new))
    return dict(zip(EDITS, _run(*copies), strict=True))


@pytest.mark.parametrize("edit", EDITS)
def test_what_an_edit_compiles_again(edited: dict[str, tuple[dict[str, int], list[str]]], edit: str) -> None:
    values, compiled = edited[edit]
    assert compiled == EDITS[edit][3]
    if edit == "a constant":
        assert values["high"] == 16


def test_one_function_compiled_in_two_ways_has_two_stamps() -> None:
    def twice(x: int) -> int:
        return x + x

    ways = [njit(nogil=True)(twice), njit(nogil=False)(twice)]

    def calls(way: Any) -> Any:
        return njit(nogil=True)(lambda x: way(x) + 1)

    assert len({stamp_of(way) for way in ways}) == 2
    assert len({stamp_of(calls(way)) for way in ways}) == 2


STAMPS = """
import json, sys
import plait.threads.dag, plait.threads.run, plait.spark.cell.cell
from numba.core.dispatcher import Dispatcher
from plait.core.machine.stamp import stamp_of
found = {id(v): v for n, m in list(sys.modules.items()) if n.startswith("plait") for v in vars(m).values()}
found = [v for v in found.values() if isinstance(v, Dispatcher)]
print(json.dumps({f"{v.py_func.__module__}.{v.py_func.__qualname__}": stamp_of(v) for v in found}))
"""


def test_an_edit_of_plait_changes_the_stamps_of_what_reaches_it(tmp_path: Path) -> None:
    """Without compiling: every compiled function of plait, before and after an edit in a copy of it."""
    import plait

    copy = tmp_path / "plait"
    shutil.copytree(Path(plait.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))

    def stamps() -> dict[str, str]:
        env = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([sys.executable, "-c", STAMPS], env=env, capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(done.stdout)
        return found

    before = stamps()
    assert len(before) >= 300
    (copy / "errors.py").write_text((copy / "errors.py").read_text() + "\nMORE = 1\n")
    file = copy / "threads" / "gate" / "frontier.py"
    text = file.read_text()
    assert text.count("return frontier\n") == 1, "the line to edit has moved"
    file.write_text(text.replace("return frontier\n", "return frontier + 0\n"))
    after = stamps()
    changed = {name for name in before if after[name] != before[name]}
    assert "plait.threads.gate.frontier.settle" in changed
    assert any(name.startswith("plait.threads.join.loop.worker.") for name in changed)
    assert not any(name.startswith("plait.core.kernels.") for name in changed)
