"""Whose a folder of results is: the rule of `plait.spark.publish.target`, attacked by random starts, kills, copies and removals.

Checkpoints are played here: a batch is planned (`offsets/N`, with what it will publish), published, and committed. A kill may
come between any two of these. What a folder then holds must be one checkpoint's history, whole.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from tests.spark.kills import killed_at

import plait
from plait.paths import quoted
from plait.spark.formats import Note, Pins
from plait.spark.keep.checkpoint import publishing, tie
from plait.spark.publish.target import Owner, Target


class Plan:
    """What `tie` asks of a plan."""

    cell = SimpleNamespace(query="a query")
    pickles = False

    def pinned(self, checkpoint: Path, card: Any) -> Plan:
        return self

    def announce(self) -> None:
        return

    def pins(self) -> Pins:
        return Pins("f", "a query", 1, 1, 2, "s", "")


@dataclass
class Run:
    """A started query."""

    checkpoint: Path
    target: Target
    owner: Owner

    @staticmethod
    def start(checkpoint: Path, folder: Path, **options: Any) -> Run:
        target = Target(folder, "results", options.pop("form", "parquet"), **options)
        _, owner, _ = tie(Plan(), checkpoint, [target])
        return Run(checkpoint, target, owner)

    def batch(self, stop_after: str = "commit") -> None:
        """One batch, or a part of one: "plan", "publish", "commit"."""
        offsets, commits = self.checkpoint / "offsets", self.checkpoint / "commits"
        offsets.mkdir(exist_ok=True)
        commits.mkdir(exist_ok=True)
        number = len(list(commits.iterdir()))
        planned = offsets / str(number)
        if not planned.exists():
            (self.checkpoint / ".planned").write_text(secrets.token_hex(8))
            os.replace(self.checkpoint / ".planned", planned)
        if stop_after == "plan":
            return
        with publishing(self.owner, self.target):
            part = self.target.folder / f"part-{number:012d}.parquet"
            if part.exists():
                assert part.read_text() == planned.read_text(), "a part was written over by another batch's rows"
            temporary = part.with_name(f".{part.name}.0a1b2c3d.tmp")
            temporary.write_text(planned.read_text())
            os.replace(temporary, part)
        if stop_after == "commit":
            (commits / str(number)).touch()


def history(checkpoint: Path) -> list[str]:
    return [(checkpoint / "offsets" / str(n)).read_text() for n in range(len(list((checkpoint / "offsets").glob("*"))))]


def parts(folder: Path) -> list[str]:
    names = sorted(folder.glob("part-*"))
    assert [part.name for part in names] == [f"part-{n:012d}.parquet" for n in range(len(names))], "a part is missing"
    return [part.read_text() for part in names]


def test_a_folder_takes_parts_of_its_checkpoint_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = Run.start(tmp_path / "one", out)
    first.batch()
    first.batch("publish")
    for checkpoint in ("one", "two"):
        if checkpoint == "one":
            shutil.move(tmp_path / "one", tmp_path / "away")  # the very path, made anew
        with pytest.raises(
            plait.RunError,
            match=r"holds other rows .* It belongs to (the checkpoint that was there before|checkpoint .*one')",
        ):
            Run.start(tmp_path / checkpoint, out)
        assert not (tmp_path / checkpoint).exists(), "a refused start leaves something behind"
    again = Run.start(tmp_path / "away", out)  # it may be moved
    again.batch()
    assert parts(out) == history(tmp_path / "away")


def test_the_results_of_a_checkpoint_are_in_one_folder(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "c", tmp_path / "out")
    run.batch()
    with pytest.raises(plait.RunError, match=r"so far are not in .*else'.* published into .*out'.* new_folder=True"):
        Run.start(tmp_path / "c", tmp_path / "else")
    assert not (tmp_path / "else").exists()
    shutil.move(tmp_path / "out", tmp_path / "moved")
    Run.start(tmp_path / "c", tmp_path / "moved").batch()  # with what it holds it may be moved
    assert parts(tmp_path / "moved") == history(tmp_path / "c")
    Run.start(tmp_path / "c", tmp_path / "else", new=True).batch()
    assert [part.name for part in (tmp_path / "else").glob("part*")] == ["part-000000000002.parquet"]
    with pytest.raises(plait.RunError, match="Another copy"):  # it lacks what is in the other by now
        Run.start(tmp_path / "c", tmp_path / "moved")


def test_a_checkpoint_that_is_started_again_elsewhere(tmp_path: Path) -> None:
    first = Run.start(tmp_path / "c", tmp_path / "out")
    second = Run.start(tmp_path / "c", tmp_path / "else")  # nothing is published yet, so it may be another folder
    second.batch()
    with pytest.raises(plait.RunError, match="started again since, elsewhere"):
        first.batch()
    assert parts(tmp_path / "out") == []


def test_a_folder_that_is_removed_under_a_query(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "c", tmp_path / "out")
    run.batch()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(plait.RunError, match=rf"no longer that of checkpoint.* Its {Note.NAME} is gone"):
        run.batch()
    with pytest.raises(plait.RunError, match="so far are not in"):
        Run.start(tmp_path / "c", tmp_path / "out")


def test_an_old_copy_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """By the token, if the other was started since; by its numbers, if that one only went on."""
    run = Run.start(tmp_path / "c", tmp_path / "out")
    run.batch()
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    run.batch()
    with pytest.raises(
        plait.RunError, match=r"has 'part-000000000001.parquet', and its checkpoint .* planned batches up to 0"
    ):
        Run.start(tmp_path / "copy", tmp_path / "out")
    Run.start(tmp_path / "c", tmp_path / "out")
    with pytest.raises(plait.RunError, match="Another copy of checkpoint"):
        Run.start(tmp_path / "copy", tmp_path / "out")


def test_of_two_queries_at_once_one_stops(tmp_path: Path) -> None:
    """Two checkpoints that start into an empty folder, and two copies of one."""
    one, two = (Run.start(tmp_path / name, tmp_path / "out") for name in ("one", "two"))
    two.batch()
    with pytest.raises(
        plait.RunError, match=r"is no longer that of checkpoint .*one'.* Checkpoint .*two' has taken it"
    ):
        one.batch()
    shutil.copytree(tmp_path / "two", tmp_path / "copy")
    copy = Run.start(tmp_path / "copy", tmp_path / "out")
    with pytest.raises(plait.RunError, match=r"Checkpoint .*copy' has taken it"):
        two.batch()
    copy.batch()
    assert parts(tmp_path / "out") == history(tmp_path / "copy")


@pytest.mark.parametrize(
    "foreign", ["x.parquet", "day=1/x.csv", "part-000000000000.parquet", "batch-000000000000/p.jsonl"]
)
def test_a_folder_with_other_rows_is_refused(tmp_path: Path, foreign: str) -> None:
    file = tmp_path / "out" / foreign
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(plait.RunError, match=r"published from no checkpoint, and old and new parts would mix"):
        Run.start(tmp_path / "c", tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "out"]
    file.rename(file.with_name("_notes"))
    (tmp_path / "out" / "README").touch()
    Run.start(tmp_path / "c", tmp_path / "out").batch()


def test_a_form_is_kept(tmp_path: Path) -> None:
    """A batch done again as a folder, or as text, would stand there twice."""
    Run.start(tmp_path / "c", tmp_path / "out")
    run = Run.start(tmp_path / "c", tmp_path / "out", form="jsonl")  # nothing is there yet
    run.batch("publish")
    with pytest.raises(plait.RunError, match="has results as jsonl, and is to have results as parquet"):
        Run.start(tmp_path / "c", tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "words"), [("{", "can't be read"), ("[]", "can't be read"), ('{"version": 99}', "of version 99")]
)
def test_a_note_that_is_not_understood(tmp_path: Path, text: str, words: str) -> None:
    Run.start(tmp_path / "c", tmp_path / "out").batch()
    (tmp_path / "out" / Note.NAME).write_text(text)
    with pytest.raises(plait.RunError, match=words):
        Run.start(tmp_path / "c", tmp_path / "out")


def test_what_killed_runs_left_is_swept(tmp_path: Path) -> None:
    run = Run.start(tmp_path / "c", tmp_path / "out")
    run.batch()
    left = [".part-000000000001.parquet.0a1b2c3d.tmp", ".plait.0123456789abcdef.tmp"]
    for name in (*left, ".mine.tmp"):
        (tmp_path / "out" / name).touch()
    (tmp_path / "out" / ".batch-000000000001.tmp").mkdir()
    Run.start(tmp_path / "c", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {Note.NAME, "part-000000000000.parquet", ".mine.tmp"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
@pytest.mark.parametrize("names", [".plait", "plait.json"])
def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, names: str) -> None:
    """It is told in words, and leaves a checkpoint and a folder that go on when there is room."""
    Run.start(tmp_path / "c", tmp_path / "out").batch()
    before, replace = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}, os.replace

    def refuse(source: Any, target: Any) -> None:
        if Path(target).name == names:
            raise OSError(code, os.strerror(code))
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", refuse)
        with pytest.raises(plait.PlaitError, match=rf"can't be written.*{os.strerror(code)}"):
            Run.start(tmp_path / "c", tmp_path / "out")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after.keys() == before.keys()
    Run.start(tmp_path / "c", tmp_path / "out").batch()
    assert parts(tmp_path / "out") == history(tmp_path / "c")


@pytest.mark.parametrize("fresh", [True, False])
def test_a_kill_at_any_step_of_a_start_and_of_publishing(tmp_path: Path, fresh: bool) -> None:
    """Whatever the step: the next start goes on, and the folder holds the checkpoint's history."""
    for step in itertools.count():
        place = tmp_path / str(step)
        place.mkdir()
        checkpoint, out = place / "c", place / "out"
        if not fresh:
            Run.start(checkpoint, out).batch()

        def work(checkpoint: Path = checkpoint, out: Path = out) -> None:
            run = Run.start(checkpoint, out)
            run.batch()
            run.batch()

        died = killed_at(step, place, work)
        for _ in range(2):  # twice: what the one start has mended must not stop the next
            run = Run.start(checkpoint, out)
        run.batch()
        assert parts(out) == history(checkpoint)
        assert not [path.name for path in out.iterdir() if path.name.endswith(".tmp")]
        if not died:
            break
    assert step > 12


@dataclass
class World:
    """Three folders, and checkpoints that come, go, are copied and run, several at once."""

    root: Path
    chance: random.Random
    running: list[Run] = field(default_factory=list)
    starts: int = 0
    published: int = 0

    def checkpoints(self) -> list[Path]:
        return sorted(path for path in self.root.glob("c*") if path.is_dir())

    def remove(self, checkpoint: Path) -> None:
        """With who runs on it: Spark finds its files gone."""
        self.running = [run for run in self.running if run.checkpoint != checkpoint]
        shutil.rmtree(checkpoint, ignore_errors=True)

    def step(self) -> None:
        known = self.checkpoints()
        action = self.chance.choice(["start"] * 12 + ["batch"] * 24 + ["kill"] * 5 + ["copy", "remove", "wipe"])
        if action == "start":
            fresh = self.root / f"c{self.chance.randrange(5)}"
            checkpoint = self.chance.choice([*known, fresh])
            with contextlib.suppress(plait.RunError):
                self.running.append(Run.start(checkpoint, self.root / f"out{self.chance.randrange(3)}"))
                self.starts += 1
        elif action == "batch" and self.running:
            run = self.chance.choice(self.running)
            try:
                run.batch(self.chance.choice(["plan", "publish", "commit", "commit", "commit"]))
                self.published += 1
            except plait.RunError:
                self.running.remove(run)
        elif action == "kill" and self.running:
            self.running.remove(self.chance.choice(self.running))
        elif action == "copy" and known:
            # A copy beside it, or over another one: a backup that is brought back.
            source, to = self.chance.choice(known), self.root / f"c{self.chance.randrange(5)}"
            if source != to:
                self.remove(to)
                shutil.copytree(source, to)
        elif action == "remove" and known:
            self.remove(self.chance.choice(known))
        elif action == "wipe":
            shutil.rmtree(self.root / f"out{self.chance.randrange(3)}", ignore_errors=True)


def lineages(root: Path, seen: set[tuple[str, ...]]) -> None:
    for checkpoint in root.glob("c*"):
        if (checkpoint / "offsets").exists():
            told = history(checkpoint)
            seen.update(tuple(told[:n]) for n in range(len(told) + 1))


@pytest.mark.parametrize("seed", range(5))
def test_a_folder_holds_one_history_whatever_happens(tmp_path: Path, seed: int) -> None:
    world, seen = World(tmp_path, random.Random(seed)), {()}
    for _ in range(300):
        world.step()
        lineages(tmp_path, seen)  # every history that any checkpoint ever had
        for out in tmp_path.glob("out*"):
            assert tuple(parts(out)) in seen, "parts of two histories, or not all of one"
    assert world.starts > 5
    assert world.published > 20


def test_a_stream_of_any_name_has_a_folder_of_its_own() -> None:
    names = ["a", "quotes of é", "../out", "a/b", "a%2Fb", ".hidden", "_hidden", "..", "%2E"]
    folders = [quoted(name) for name in names]
    assert folders[:2] == names[:2]
    assert [unquote(folder) for folder in folders] == names
    assert all("/" not in folder and folder[0] not in "._" for folder in folders)
