"""Recent chunks in shared memory: what one worker process wrote to the state, its siblings need not read from there.

Spark hands a task to any of an executor's Python workers, so the index of a cell is often a batch or two behind, in a
process that did not have the cell last. It catches up with chunks, and from the state store each takes tens of
milliseconds. This is a cache and nothing more:

- A chunk's name holds the id of the step that wrote it, and each attempt of a step has an id of its own. The manifest,
  which is in the state, says which steps count; a chunk that is not here is read from the state.
- A file is complete when it has its name, and is never written again.
- At most STEPS steps of a cell are kept, and files are left out that would fill more than half of the memory file system.
- A folder belongs to a daemon of Spark's, the parent of its workers. It goes when the daemon ends; if that was killed,
  the next one removes it. Within it, a query's goes when it is drained, or has not been used for a while.

Where it runs: in Python workers. `put` for every chunk that a step stores, `get` where an index catches up, `keep` once a
step. Nothing is wrong if any of these fails: the state has the same bytes. Held by tests/spark/test_recent.py.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Final

import pyarrow as pa

MEMORY: Final = Path("/dev/shm")

#: Steps of a cell that are kept at least; with many cells more, as a worker sees one of them less often.
STEPS: Final = 8

#: What the names of folders begin with in which cells lay results for a driver (`cell.handed`): they go with its process alone.
HANDED: Final = "results-"

_UNUSED_S: Final = 600
_swept: float | None = None


class Recent:
    """One cell's recent chunks; without a folder, none.

    Attributes:
        folder: `/dev/shm/plait-UID/DAEMON/QUERY-OPERATOR-CELL`.
        steps: How many steps are kept.
    """

    def __init__(self, folder: Path | None, steps: int = STEPS) -> None:
        self.folder, self.steps = folder, steps

    def put(self, step: str, number: int, data: bytes) -> None:
        """Lay a chunk there, if there is room. It gets its name when it is whole, so a reader never sees half of it."""
        if self.folder is None:
            return
        temporary = self.folder / f".{os.getpid()}.tmp"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not has_room(self.folder, len(data)):
                return
            temporary.write_bytes(data)
            os.replace(temporary, self._file(step, number))
        except OSError:  # no space, or the folder went meanwhile: the state has it
            with contextlib.suppress(OSError):
                temporary.unlink()

    def get(self, step: str, number: int) -> pa.Buffer | None:
        """A chunk, mapped and not copied; None if it is not here. It stays readable if the file is removed meanwhile."""
        if self.folder is None:
            return None
        try:
            return pa.memory_map(os.fspath(self._file(step, number))).read_buffer()
        except OSError:
            return None

    def keep(self, steps: list[str]) -> None:
        """Let go of all but the last of these steps: of what is out of the window, and of attempts that failed."""
        if self.folder is None:
            return
        kept = set(steps[-self.steps :])
        with contextlib.suppress(OSError):
            for file in os.scandir(self.folder):
                if file.name.partition("-")[0] not in kept:
                    with contextlib.suppress(OSError):
                        os.unlink(file.path)
            if not kept:
                self.folder.rmdir()

    def _file(self, step: str, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{step}-{number}"


def has_room(folder: Path, size: int) -> bool:
    """Whether half of the memory is free with so much more in it."""
    space = os.statvfs(folder)
    return (space.f_bavail * space.f_frsize - size) * 2 >= space.f_blocks * space.f_frsize


NONE: Final = Recent(None)


def recent(query: str | None, cell: int, cells: int) -> Recent:
    """Of a cell of a running query, in a worker that a daemon forked.

    A worker's parent is the daemon that forked it, so all workers of an executor on this machine share one folder. Now
    and then, at most once a minute, what others have left is swept. No query id (no Spark) or no memory file system that
    is private: nothing is kept.
    """
    global _swept
    own = place(os.getppid())
    if query is None or not is_private(own.parent):
        return NONE
    if _swept is None or time.monotonic() - _swept > _UNUSED_S / 10:
        _swept = time.monotonic()
        sweep()
    return Recent(own / f"{query}-{cell}", max(STEPS, 4 * cells))


def is_private(folder: Path) -> bool:
    """Make sure of a folder that nobody else can read or write: all may make one in this file system.

    Anyone on the machine may make a folder of this name first. One that is not ours, or that others can write, is not
    used.
    """
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError:  # no such file system here
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def place(daemon: int) -> Path:
    """The folder of a daemon, by its process number."""
    return MEMORY / f"plait-{os.getuid()}" / str(daemon)


def sweep() -> None:
    """Remove what daemons left that are no more, and queries of those that are, when not used for a while."""
    with contextlib.suppress(OSError):
        for daemon in place(0).parent.iterdir():
            if daemon.name.isdigit() and not _lives(int(daemon.name)):
                shutil.rmtree(daemon, ignore_errors=True)
                continue
            for cell in daemon.iterdir():
                if not cell.name.startswith(HANDED) and time.time() - cell.stat().st_mtime > _UNUSED_S:
                    shutil.rmtree(cell, ignore_errors=True)


def _lives(process: int) -> bool:
    """Whether there is a process of this number. One that we may not signal is alive, too."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
