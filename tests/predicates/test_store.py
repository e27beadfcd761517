"""Kernel modules on disk: their names, many writers at once, and other processes that have only the text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from plait.errors import RunError
from plait.predicates import store
from plait.predicates.leaves import shape
from plait.predicates.words import Signature
from plait.query.predicate import predicate
from plait.windows.segments_match import kernel_text

SCHEMA = pa.schema([("x", pa.int32())])
BAND = Signature((("int32",),) * 2, ((False,),) * 2, (False, False))

PROGRAM = """
import json, sys
import numba, numpy as np, pyarrow as pa
from plait.predicates.store import KernelText, load
name, text, folder = json.loads(sys.stdin.read())
ints, longs, out = np.arange(64, dtype=np.int32), np.zeros(4, np.int64), np.empty(4096, np.int64)
module = load(KernelText(name, text), folder)
state = np.array([-1, 0, 0, 0])
module.scan_0(4, longs, longs + 64, ints, ints, state, out, out.copy())
module.scan_1(4, longs, longs + 64, ints, ints, np.array([-1, 0, 0, 0]), out, out.copy())
module.verify(4, longs.copy(), longs.copy(), longs.copy(), ints, ints)
hits = [sum(f.stats.cache_hits.values()) for f in (module.scan_0, module.scan_1, module.verify)]
print(json.dumps({"hits": hits, "pairs": int(state[3])}))
"""


def kernel(width: int = 1) -> store.KernelText:
    bound = predicate(lambda l, r: abs(l.x - r.x) <= width, ("left", "right"), {}).bind(SCHEMA, SCHEMA)
    return kernel_text(shape(bound, SCHEMA, SCHEMA), BAND)


def elsewhere(text: store.KernelText, folder: Path) -> dict[str, object]:
    """Load and call a kernel in a process that was given nothing but the text."""
    sent = json.dumps([text.name, text.text, str(folder)])
    run = subprocess.run([sys.executable, "-c", PROGRAM], input=sent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def test_another_process_needs_only_the_text_and_is_warm_the_second_time(tmp_path: Path) -> None:
    text = kernel()
    first = elsewhere(text, tmp_path)
    assert first["hits"] == [0, 0, 0]
    assert first["pairs"] == 2 + 3 + 3 + 3
    second = elsewhere(text, tmp_path)
    assert second["hits"] == [1, 1, 1]
    assert second["pairs"] == first["pairs"]


def test_the_name_follows_everything_a_module_is_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {kernel(1).name, kernel(2).name}
    assert len(names) == 2
    assert kernel(1).name in names
    monkeypatch.setattr(store, "_versions", lambda: "another Numba")
    names.add(kernel(1).name)
    monkeypatch.setattr(store, "generator_digest", lambda: "another generator")
    names.add(kernel(1).name)
    assert len(names) == 4


def test_an_opaque_functions_name_does_not_depend_on_how_marshal_spells_it() -> None:
    def near(l: object, r: object) -> bool:
        return l.x > 3 and r.x < 7  # type: ignore[attr-defined]

    def name() -> str:
        bound = predicate(near, ("left", "right"), {}).bind(SCHEMA, SCHEMA)
        return kernel_text(shape(bound, SCHEMA, SCHEMA), BAND).name

    first, kept = name(), [near.__code__.co_consts, near.__code__.co_names]  # more references: marshal writes otherwise
    assert name() == first
    del kept


def _install(arguments: tuple[str, str]) -> tuple[int, str]:
    text, folder = arguments
    path = store.install(store.kernel_text(text), folder)
    return os.stat(path).st_ino, path.read_text()


def test_many_processes_install_one_module_at_once(tmp_path: Path) -> None:
    text = "x = 1\n" + "# filler\n" * 20_000
    with ProcessPoolExecutor(4) as pool:
        found = list(pool.map(_install, [(text, str(tmp_path))] * 32))
    assert {content for _, content in found} == {text}
    assert len({inode for inode, _ in found}) == 1  # nobody replaced another's file
    assert [path.suffix for path in tmp_path.iterdir()] == [".py"]  # and nothing is left over


def test_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIT_CACHE_DIR", str(tmp_path / "from environment"))
    assert store.cache_folder() == tmp_path / "from environment"
    assert store.cache_folder(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("PLAIT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert store.cache_folder() == tmp_path / "home" / "plait" / "kernels"


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunError, match="PLAIT_CACHE_DIR"):
        store.install(store.kernel_text("x = 1"), blocked / "inside")
