"""Who else could have written what runs; and no secret in any message."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import plait
from plait import paths, trust
from plait.connectors import memory
from plait.core.condition import store
from plait.core.machine.folder import own
from plait.errors import DataError, RunError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="rights to write as POSIX has them")


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(trust.VARIABLE, raising=False)


def private(path: Path) -> Path:
    path.mkdir(mode=0o700)
    path.chmod(0o700)
    return path


def test_a_folder_of_ones_own_is_not_doubted(tmp_path: Path) -> None:
    folder = private(tmp_path / "own")
    (folder / "file").write_text("x")
    (folder / "file").chmod(0o644)
    assert trust.doubt(folder) is None
    assert trust.doubt_below(folder) is None


@pytest.mark.parametrize(
    ("mode", "words"), [(0o777, "everybody may write"), (0o702, "everybody may write"), (0o1777, "everybody")]
)
def test_what_everybody_may_write_is_doubted(
    tmp_path: Path, mode: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = private(tmp_path / "shared")
    (folder / "inner").mkdir()
    (folder / "inner").chmod(mode)
    assert trust.doubt(folder) is None
    assert words in (trust.doubt_below(folder) or "")
    monkeypatch.setenv(trust.VARIABLE, f"/elsewhere{os.pathsep}{folder}")
    assert trust.doubt_below(folder) is None
    monkeypatch.setenv(trust.VARIABLE, f"{folder}x")
    assert words in (trust.doubt_below(folder) or "")


def test_a_group_with_other_members_is_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private(tmp_path / "group")
    folder.chmod(0o770)
    monkeypatch.setattr(trust, "_alone_in", lambda group: True)
    assert trust.doubt(folder) is None
    monkeypatch.setattr(trust, "_alone_in", lambda group: False)
    assert "the group" in (trust.doubt(folder) or "")


def test_a_group_that_is_not_the_users_first_one_has_others() -> None:
    assert not trust._alone_in(os.getegid() + 1)


def test_what_belongs_to_another_user_is_doubted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = private(tmp_path / "other")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    if folder.stat().st_uid != 0:  # root's is trusted
        assert "belongs to" in (trust.doubt(folder) or "")
        assert trust.doubt(folder, owner=False) is None
    (folder / "theirs").write_text("")
    found = os.stat_result((0o100600, 0, 0, 1, 4711, 0, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda self, **_: found)
    assert "belongs to user 4711" in (trust.doubt(folder / "theirs") or "")
    assert trust.doubt(folder / "theirs", owner=False) is None


def test_links_in_a_checkpoint_are_doubted(tmp_path: Path) -> None:
    folder = private(tmp_path / "linked")
    (folder / "state").symlink_to(tmp_path)
    assert "is a link" in (trust.doubt_below(folder) or "")


# --- machine code -------------------------------------------------------------------------------------------


def test_a_cache_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    assert stat.S_IMODE(own(tmp_path / "a" / "kernels").stat().st_mode) == 0o700


def test_a_kernel_that_others_could_have_written_is_not_run(tmp_path: Path) -> None:
    """A module with a right hash in a folder that everybody may write: as an attacker would lay it."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    kernel = store.kernel_text("VALUE = 'ours'\n")
    (folder / f"{kernel.name}.py").write_text(store._sealed("VALUE = 'theirs'\n"))
    folder.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="everybody may write .* would run"):
        assert store.load(kernel, folder).VALUE == "ours"
    with pytest.raises(RunError, match="Kernels can't be written"):
        store.install(kernel, folder)


CODE = """
import sys
import numpy as np
from plait.core.kernels.runs import out_of_order
print(out_of_order(np.arange(3), 0), sum(out_of_order.stats.cache_misses.values()), sum(out_of_order.stats.cache_hits.values()))
"""


def test_machine_code_that_others_could_have_written_is_compiled_anew(tmp_path: Path) -> None:
    folder = private(tmp_path / "kept")
    env = os.environ | {"PLAIT_CACHE_DIR": str(folder)}

    def told() -> str:
        return subprocess.run(
            [sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert told() == "False 1 0"
    assert told() == "False 0 1"
    (folder / "machine").chmod(0o777)
    assert told() != "False 0 1"


# --- secrets ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3a://KEY:SECRET@bucket/x", "s3a://***@bucket/x"),
        ("jdbc:postgresql://h/db?user=u&password=SECRET", "jdbc:postgresql://h/db?user=u&password=***"),
        ("jdbc:sqlserver://h;password=SECRET;encrypt=true", "jdbc:sqlserver://h;password=***;encrypt=true"),
        ('kafka.sasl.jaas.config="PlainLoginModule password=SECRET"', "kafka.sasl.jaas.config=***"),
        ("fs.s3a.secret.key=SECRET", "fs.s3a.secret.key=***"),
        ("fs.s3a.access.key=SECRET", "fs.s3a.access.key=***"),
        ("https://h/x?sig=SECRET&sv=1", "https://h/x?sig=***&sv=1"),
        ("wasbs://c@account/x", "wasbs://c@account/x"),
        ("users.password = logins.password", "users.password = logins.password"),
    ],
)
def test_no_secret_stands_in_a_message(text: str, shown: str) -> None:
    for error in (DataError(text, why=text, do=text), plait.RunError(f"it says {text}")):
        assert "SECRET" not in f"{error} {error.fact} {error.why} {error.do} {error!r}"
        assert shown in str(error)


def test_a_store_in_a_path_is_refused_without_its_keys() -> None:
    with pytest.raises(DataError, match=r"s3a://\*\*\*@bucket/x' names a store") as caught:
        paths.plain("s3a://KEY:SECRET@bucket/x")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("piece", ["a.", "a://", "?a.", ";password", "x=", "token=a", "'", "a:b@"])
def test_a_long_text_is_looked_through_at_once(piece: str) -> None:
    began = time.process_time()
    str(DataError(piece * 200_000))
    assert time.process_time() - began < 2


def test_a_long_message_is_cut_in_its_middle() -> None:
    said = str(DataError("begin " + "x" * 10**6 + " end"))
    assert len(said) < 4_500
    assert said.startswith("begin x")
    assert said.endswith("x end.")
    assert "characters left out" in said


# --- names that lead elsewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_a_source_can_not_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    from plait.connectors import write_folder

    stream = plait.stream("s", unit="s")
    feed = memory.feed(stream, {name: {"ts": [1]}, "b": {"ts": [2]}})
    with pytest.raises(DataError, match="would lie elsewhere"):
        write_folder(feed, tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["..", ".", "../x", "a/b", "/etc", "_x", ".x", "a%2Fb", "\0", "quotes"])
def test_a_streams_name_is_one_folders(name: str) -> None:
    found = Path("in") / paths.quoted(name)
    assert len(found.parts) == 2
    assert ".." not in found.parts
    assert (paths.quoted(name) == name) == (name == "quotes")
