"""A stopped query as one small file: its checkpoint, its results so far, and its input, read and unread.

Spark notes the files it has read by their absolute paths, and plait where a checkpoint and its results are. In an archive a mark
stands for the folder that all of it was made in, and it is replaced by the new one when it is unpacked, where plait's own
files get the checksum of what they say then. Hadoop's checksums
(`.name.crc`) are left out: they would be those of the other text, and a file without one is read without it.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from plait.spark import formats

#: The folders of an archive.
CHECKPOINT, RESULTS, REST = "checkpoint", "out", "rest"

_MARK = b"/a-mark-for-the-folder-of-this-checkpoint"


@contextmanager
def placed(folder: Path, fixed: str | None) -> Iterator[Path]:
    """A folder under a name that is always the same, for as long as the block runs; alone among processes."""
    if fixed is None:
        yield folder
        return
    import fcntl

    with open(f"{fixed}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(fixed).unlink(missing_ok=True)
        os.symlink(folder, fixed)
        try:
            yield Path(fixed)
        finally:
            os.unlink(fixed)


def _has_paths(name: str) -> bool:
    """Whether a file is text with paths in it."""
    return "/_metadata/" in name or name.startswith(
        (f"{CHECKPOINT}/sources/", f"{CHECKPOINT}/plait.json", f"{RESULTS}/.plait")
    )


def _sealed(data: bytes) -> bytes:
    """A file of plait's with the checksum of what it says now; any other as it is."""
    try:
        found = json.loads(data)
    except ValueError:
        return data
    if not isinstance(found, dict) or "check" not in found:
        return data
    del found["check"]
    return json.dumps(found | {"check": formats._fields_check(found)}).encode()


def pack(folder: Path, archive: Path, *, moves: bool = True) -> None:
    """`moves`: it may be unpacked in any folder."""
    temporary = archive.with_name(f".{archive.name}.tmp")
    with tarfile.open(temporary, "w:xz", preset=9) as out:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = file.relative_to(folder).as_posix()
            if file.name.endswith(".crc"):
                continue
            data = file.read_bytes()
            if moves and _has_paths(name):
                data = data.replace(str(folder).encode(), _MARK)
            assert not moves or str(folder).encode() not in data, f"{name} has a path in it"
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), int(file.stat().st_mtime)
            out.addfile(info, io.BytesIO(data))
    os.replace(temporary, archive)


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as found:
        for info in found:
            data = found.extractfile(info)
            assert data is not None
            text = data.read()
            target = folder / info.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_sealed(text.replace(_MARK, str(folder).encode())) if _has_paths(info.name) else text)
            os.utime(target, (info.mtime, info.mtime))
