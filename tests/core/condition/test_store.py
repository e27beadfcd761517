"""Kernel modules on disk: their names, many writers at once, and other processes that have only the text."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numba import njit

from plait.core.condition import store
from plait.core.condition.leaves import shape
from plait.core.condition.words import Signature
from plait.core.join.match import kernel_text
from plait.core.machine.kept import keep
from plait.errors import RunError
from plait.query.condition.predicate import predicate

SCHEMA = pa.schema([("x", pa.int32())])
BAND = Signature((("int32",),) * 2, ((False,),) * 2, (False, False))

PROGRAM = """
import json, sys
import numba, numpy as np, pyarrow as pa
from plait.core.condition.store import KernelText, load
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
    monkeypatch.setattr(store, "taught_digest", lambda: "another lesson")
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
    assert {content.rpartition("\n# ")[0] for _, content in found} == {text}
    assert len({inode for inode, _ in found}) == 1  # nobody replaced another's file
    assert [path.suffix for path in tmp_path.iterdir()] == [".py"]  # and nothing is left over


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(RunError, match="PLAIT_CACHE_DIR"):
        store.install(store.kernel_text("x = 1"), blocked / "inside")


# --- a cache makes a run quicker or does nothing --------------------------------------------------------------


def verified(text: store.KernelText, folder: Path) -> tuple[int, int]:
    """How many of three candidates match, and how often machine code was read from disk, as a new process would."""
    store._loaded.clear()
    module = store.load(text, folder)
    left, values = np.arange(3), np.arange(3, dtype=np.int32)
    kept = module.verify(3, left, np.zeros(3, np.int64), left.copy(), values, values)
    return int(kept), sum(module.verify.stats.cache_hits.values())


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kernel that has been compiled."""
    folder = tmp_path_factory.mktemp("kernels")
    assert verified(kernel(), folder) == (2, 0)
    assert verified(kernel(), folder) == (2, 1)
    return folder


def _empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def _cut(path: Path, source: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: source.randrange(1, path.stat().st_size)])


def _flip(path: Path, source: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    path.write_bytes(data)


def _noise(path: Path, source: random.Random) -> None:
    path.write_bytes(source.randbytes(300))


def _gone(path: Path, _: random.Random) -> None:
    path.unlink()


def _folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.crossed
@pytest.mark.filterwarnings("ignore:Kernels can't be written")
@pytest.mark.parametrize("suffix", [".py", ".nbi", ".nbc"])
@pytest.mark.parametrize("damage", [_empty, _cut, _flip, _noise, _gone, _folder], ids=lambda f: f.__name__)
def test_a_file_that_cannot_be_read_is_made_anew(tmp_path: Path, warm: Path, damage: Any, suffix: str) -> None:
    text, source = kernel(), random.Random(f"{damage.__name__} {suffix}")
    shutil.copytree(warm, tmp_path, dirs_exist_ok=True)
    (path,) = [found for found in tmp_path.rglob("*" + suffix) if "verify" in found.name or suffix == ".py"]
    damage(path, source)
    assert verified(text, tmp_path)[0] == 2
    if damage is not _folder:  # which nobody can write over
        assert verified(text, tmp_path) == (2, 1), "it was not written anew"


def test_an_entry_under_anothers_name_is_not_taken_for_it(tmp_path: Path, warm: Path) -> None:
    """Two processes that begin at once may give one name to two signatures."""
    text = kernel()
    shutil.copytree(warm, tmp_path, dirs_exist_ok=True)
    module = store.load(text, tmp_path)
    file = module.verify._cache.file()
    (key,) = file._load_index()
    other = (("another signature",), *key[1:])
    file._save_index({other: file._load_index()[key]})
    assert file.load(other) is None
    assert verified(text, tmp_path) == (2, 0)


@pytest.mark.parametrize("blocked", ["a file in the way", "no more room"])
def test_where_nothing_can_be_written_kernels_are_compiled_for_this_process(
    tmp_path: Path, blocked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kernels"
    if blocked == "a file in the way":
        folder.write_text("")
    else:

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "chmod", full)
        monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._open_for_write", full)
    with pytest.warns(RuntimeWarning, match="this process alone"):
        assert verified(kernel(), folder) == (2, 0)


def test_a_function_whose_code_has_no_folder_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from numba.core import caching

    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    made = keep(njit(lambda x: x + 1))
    assert made(1) == 2


def test_functions_that_differ_in_a_constant_have_kernels_of_their_own() -> None:
    def near(limit: Any) -> Any:
        return lambda l, r: l.x > limit and r.x < 7

    def name(limit: Any) -> str:
        bound = predicate(near(limit), ("left", "right"), {}).bind(SCHEMA, SCHEMA)
        return kernel_text(shape(bound, SCHEMA, SCHEMA), BAND).name

    assert len({name(limit) for limit in (3, 4, 3.0, True, "3", (3, 4), (3, 5), sum, len)}) == 9
