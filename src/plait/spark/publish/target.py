"""Whose a folder of results is. Parts are numbered by their checkpoint's batches, so those of two checkpoints don't go together.

A checkpoint gets an identity when it is made (`plait.json`), and writes it into a folder before its first part stands there
(`.plait`, which readers pass over). From then on:

- A folder with a file in it that holds data belongs to the checkpoint that its note names, and takes parts of no other.
- The parts of a checkpoint lie in one folder: another one would lack those that are out.
- No part has a number that its checkpoint has not planned yet: such a checkpoint is an old copy.
- Each start makes a token, for the checkpoint and the note. Of two copies of a checkpoint the one that started last has the
  folder; the other finds another token there and stops.

All of that is judged before anything runs and, under a lock that dies with its process, again before each part is published.

A batch run has no checkpoint: its folder must hold no data, and the token alone says whose it is. One that was killed after it
had written dropped rows, and before it published, leaves them behind. The next run of the same two folders removes them: it
claims the folder of results first, from when on the other can't publish, and its note names those whose place it has taken
(`instead`); dropped rows of these, and of nobody else, are of no run. Killed between the two claims, it leaves that to the one
after it.

Where it runs: on the driver, at each start and before each part. What it costs a batch: a lock, and reading one small
file. On a system without `fcntl` there is no lock, and tokens alone have to do. Held by tests/spark/test_targets.py,
which plays random starts, kills, copies and removals.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from plait import paths
from plait.connectors.files import data_files
from plait.errors import DataError, RunError
from plait.spark import formats
from plait.spark.formats import Note

#: So many runs that came to nothing, one after the other, a folder remembers.
_REMEMBERED = 256


@dataclass(frozen=True)
class Owner:
    """A checkpoint at a start of it.

    Attributes:
        id: The checkpoint's identity. A copy of its folder has the same one.
        planned: From Spark's offset log: a batch is planned there before it runs.
        runs: A start that was killed between writing the card and claiming the folder leaves the folder with the token of
            the start before. So the card has both.
        before: Only for words.
    """

    checkpoint: Path | None  # None: a batch run, which has none
    id: str
    query: str
    planned: int  # the number of the last part it may have published; -1 for none
    runs: tuple[str, ...]  # tokens that the folder may have: of the starts before this one
    run: str  # this start's
    before: str  # the folder of results at the last start

    @classmethod
    def of_batch(cls, query: str) -> Self:
        """A batch run: it begins anew, and its folder has to be empty."""
        return cls(None, secrets.token_hex(16), query, -1, (), secrets.token_hex(8), "")

    @property
    def words(self) -> str:
        return "this batch run" if self.checkpoint is None else f"checkpoint {str(self.checkpoint)!r}"


@dataclass(frozen=True)
class Target:
    """A folder and what is to stand in it.

    Attributes:
        folder: It need not be there yet.
        form: The format, and whether a batch is a file or a folder. Both decide the names of parts, so they can't change
            on the way.
        new: The user's word (`new_folder=True`). The folder of dropped rows may always be another one.
        what: What it is called in messages.
    """

    folder: Path
    holds: str  # "results" or "dropped rows"
    form: str
    new: bool = False  # may be another folder than so far
    what: str = "The folder of results"
    beside: Target | None = None  # of dropped rows of a batch run: the folder of its results

    def check(self, owner: Owner) -> None:
        """Refuse a folder that is not this checkpoint's, or can't be.

        Touches nothing. Four cases: the note is ours; no note or another's, and data is there, which is refused; no data,
        and results so far are elsewhere, which is refused unless the user said so; an empty folder for a fresh
        checkpoint.
        """
        paths.may_be_folder(self.folder, self.what)
        note = _read(self.folder)
        data = next(_data(self.folder, owner.checkpoint), None)
        if note is not None and note.id == owner.id:
            return self._check_own(note, data, owner)
        if data is not None and not self._of_no_run(note):
            raise self._others(note, data, owner)
        if self.holds == "results" and owner.planned >= 0 and not self.new:
            raise RunError(
                f"The results of {owner.words} so far are not in {str(self.folder)!r}",
                why=f"it has planned batches up to {owner.planned}, and published into {owner.before!r}",
                do="Name the folder that has its parts; or pass new_folder=True to have only further ones here; or begin anew "
                "with a fresh checkpoint",
            )

    def _of_no_run(self, note: Note | None) -> bool:
        """Whether what stands here are rows that a batch run dropped which then came to nothing."""
        return note is not None and self.beside is not None and note.id in self.beside.came_to_nothing()

    def came_to_nothing(self) -> tuple[str, ...]:
        """The batch runs that had the folder and have published nothing, and never will once it is somebody else's."""
        note = _read(self.folder)
        if (
            note is None
            or note.checkpoint
            or self.holds != "results"
            or next(_data(self.folder, None), None) is not None
        ):
            return ()
        return note.id, *note.instead

    def _check_own(self, note: Note, data: str | None, owner: Owner) -> None:
        """Refuse our own folder if its form is another, if another copy of the checkpoint has it, or if it is ahead of us."""
        if data is not None and (note.holds, note.form) != (self.holds, self.form):
            raise RunError(
                f"{self.what} {str(self.folder)!r} has {note.holds} as {note.form}, "
                f"and is to have {self.holds} as {self.form}",
                why="their names would not sort into one order, and a batch done again would stand there twice",
                do="Go on as it was begun, or name another folder",
            )
        if self.holds == "results" and not self.new and note.run not in owner.runs:
            raise RunError(
                f"Another copy of {owner.words} has published into {str(self.folder)!r} since this one",
                why=f"it was last started from {note.checkpoint!r}, and its parts are not those this copy would write",
                do="Go on with that one, or begin anew with a fresh checkpoint and folder",
            )
        if (ahead := self._ahead(owner)) is not None:
            raise RunError(
                f"{self.what} {str(self.folder)!r} has {ahead!r}, and its {owner.words} has planned "
                f"batches up to {owner.planned}",
                why="the checkpoint is older than the folder: what it would publish next is there already, cut otherwise",
                do="Bring back the checkpoint that wrote it, or begin anew with a fresh checkpoint and folder",
            )

    def _ahead(self, owner: Owner) -> str | None:
        """A part that this checkpoint can't have published: it has not planned it."""
        for name in _data(self.folder, owner.checkpoint):
            batch = formats.batch_of(name if self.holds == "results" else name.rpartition("/")[2])
            if batch is not None and batch > owner.planned:
                return name
        return None

    def _others(self, note: Note | None, data: str, owner: Owner) -> RunError:
        """The refusal of a folder that holds rows of somebody else, with who that is as far as the note tells."""
        if note is None:
            whose = f"its {data!r} was published from no checkpoint"
        elif not note.checkpoint:
            whose = "a batch run has written it"
        elif note.checkpoint == str(owner.checkpoint):
            whose = "it belongs to the checkpoint that was there before"
        else:
            whose = f"it belongs to checkpoint {note.checkpoint!r}"
        return RunError(
            f"{self.what} {str(self.folder)!r} holds other rows than those of {owner.words}",
            why=f"{whose}, and old and new parts would mix",
            do="Name an empty folder"
            + (", or the checkpoint that wrote this one; to begin anew remove both" if owner.checkpoint else ""),
        )

    def claim(self, owner: Owner) -> None:
        """Take the folder for a checkpoint.

        It is checked again under the lock, since another start may have come between. Then the note gets our token, and
        temporary files of killed runs go: from here on, whoever wrote them can't publish here any more.
        """
        paths.folder(self.folder, self.what)
        with locked(self.folder):
            self.check(owner)
            if self._of_no_run(_read(self.folder)):
                _remove_data(self.folder)
            instead = () if owner.checkpoint else self.came_to_nothing()[:_REMEMBERED]
            note = Note(owner.id, owner.run, str(owner.checkpoint or ""), owner.query, self.holds, self.form, instead)
            _write(self.folder, note)
            _sweep(self.folder)

    def last_run(self, owner: Owner) -> list[str]:
        """The token of the start that has the folder, if it was one of this checkpoint."""
        note = _read(self.folder)
        return [note.run] if note is not None and note.id == owner.id else []

    @contextmanager
    def held(self, owner: Owner) -> Iterator[None]:
        """Publish inside of this: nobody else does meanwhile, and the folder is still the checkpoint's.

        A query that has lost its folder stops here, before it has written anything of the batch. The lock is held until
        the part has its final name.
        """
        with locked(self.folder):
            note = _read(self.folder)
            if note is None or (note.id, note.run) != (owner.id, owner.run):
                who = f"its {Note.NAME} is gone, with what stood there"
                if note is not None:
                    who = (f"checkpoint {note.checkpoint!r}" if note.checkpoint else "a batch run") + " has taken it"
                raise RunError(
                    f"{self.what} {str(self.folder)!r} is no longer that of {owner.words}",
                    why=f"{who} since this query started, and old and new parts would mix",
                    do="Let one query write into it; nothing of this batch was published",
                )
            yield


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone in a folder, among processes and threads; a lock goes with its holder, however that ends."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # it is not there: nothing to be alone in, and the caller will say so
        yield
        return
    try:
        with contextlib.suppress(ImportError, OSError):  # no locks here: tokens have to do
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _read(folder: Path) -> Note | None:
    """A folder's note; None if there is none. A note that can't be read is refused: whose parts stand there is not guessed."""
    file = folder / Note.NAME
    try:
        return Note.read(file.read_text(), str(file))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as error:
        raise RunError(
            f"{str(file)!r} can't be read",
            why=f"{error}; it says whose parts stand there",
            do="Name another folder",
        ) from None


def _write(folder: Path, note: Note) -> None:
    """Write the note, whole or not at all."""
    try:
        put(folder / Note.NAME, note.text())
    except OSError as error:
        raise DataError(
            f"{str(folder)!r} can't be written",
            why=str(error),
            do="Check its permissions and the disk, or write elsewhere",
        ) from None


def put(file: Path, text: str) -> None:
    """Write a small file: it is there whole, or as it was before, also after a crash.

    Written under a temporary name beside it, forced to disk, renamed. The temporary name has a random part, so two
    writers don't meet.
    """
    temporary = file.with_name(f".{file.name.lstrip('.')}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):  # on a read-only disk even that a file is not there can't be told
            temporary.unlink()
        raise


def _sweep(folder: Path) -> None:
    """Remove what killed runs have left under temporary names. Whoever wrote it no longer has the folder."""
    import shutil

    for entry in list(os.scandir(folder)):
        if formats.is_left_over(entry.name):
            with contextlib.suppress(OSError):
                shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)


def _remove_data(folder: Path) -> None:
    """Remove the data of a folder, and folders that are left empty."""
    for name in list(data_files(folder)):
        (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (folder / name).parent.rmdir()


def _data(folder: Path, checkpoint: Path | None) -> Iterator[str]:
    """Files in a folder that hold data; not those of the checkpoint, which may lie in it."""
    if checkpoint is None or folder not in checkpoint.parents:
        return iter(data_files(folder))
    return (n for n in data_files(folder) if checkpoint not in (folder / n).parents)
