"""Paths as users write them: one rule for every place that takes one.

A path names a file or folder that this machine sees as its own: `out`, `/data/out`, `file:/data/out`, `file:///data/out`. It
is made absolute once, where it is taken, so that a later change of the working folder, or another process with another one
(Spark's JVM), can't give it a second meaning. What names a store (`s3a://`, `hdfs://`, `dbfs:/` ...) is refused: taken as a name
it would make a folder called `s3a:` here, and rows that nobody finds.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

from plait.errors import DataError

#: A scheme and what follows it. `Path` makes one slash of two. One letter is a drive, and no scheme.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
#: Characters of a path, at most: what Linux takes.
LONGEST = 4096
_FILE = re.compile(r"file:", re.IGNORECASE)


def plain(path: str | os.PathLike[str], what: str = "The path") -> str:
    """The path without `file:`, as it was written otherwise; refused by name if it is a store's.

    >>> plain("file:///data/a%20b")
    '/data/a b'
    >>> plain("out")
    'out'
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise DataError(f"{what} is {path!r}", why="a path is text or a pathlib.Path", do="Pass one")
    text = os.fsdecode(path)
    if not text or "\0" in text or not _encodable(text):
        raise DataError(f"{what} is {text!r}", why="that names no file and no folder")
    if len(text) > LONGEST:
        raise DataError(f"{what} {text!r} has {len(text)} characters", why=f"no path has more than {LONGEST}")
    if _FILE.match(text):
        return _from_uri(text, what)
    if (found := _URI.match(text)) is not None:
        raise DataError(
            f"{what} {text!r} names a store ({found[1]}:)",
            why="plait reads and writes files of this machine; taken as a name it would be a folder called "
            f"{found[1] + ':'!r} in the working folder",
            do=f"Name a folder that is mounted here; './{text}' if it is one that is called so",
        )
    return text


def absolute(path: str | os.PathLike[str], what: str = "The path", *, under: Path | None = None) -> Path:
    """The same, absolute: against `under`, or the folder that this process is in now.

    >>> absolute("file:/data/out")
    PosixPath('/data/out')
    """
    text = plain(path, what)
    return (under.absolute() / text) if under is not None else Path(text).absolute()


def uri(path: Path) -> str:
    """An absolute path as Hadoop takes it, whatever file system is its default one. It unescapes nothing."""
    return f"file:{path}"


def pattern(path: Path) -> str:
    """The same for Spark's readers, which take paths for patterns: of this one folder, whatever it is called.

    >>> pattern(Path("/data/run[1]"))
    'file:/data/run\\\\[1\\\\]'
    """
    return uri(Path(re.sub(r"([][{}*?\\])", r"\\\1", str(path))))


def quoted(name: str) -> str:
    """A stream's name as that of a folder: what would lead elsewhere, or be passed over by readers, is escaped as in a URI.

    >>> quoted("../x"), quoted("quotes")
    ('%2E.%2Fx', 'quotes')
    """
    return re.sub(r"[/%\0]|^[._]", lambda found: f"%{ord(found[0]):02X}", name)


def may_be_folder(path: Path, what: str) -> None:
    """Refuse a path where a folder can't be, since a file is there."""
    taken = next(place for place in (path, *path.parents) if os.path.lexists(place))
    if not os.path.isdir(taken):
        kind = "a file" if taken.exists() else "a link that leads nowhere"
        raise DataError(
            f"{what} {str(path)!r} is no folder", why=f"{str(taken)!r} is {kind}", do="Name a folder, or remove that"
        )


def folder(path: Path, what: str) -> None:
    """Make a folder, and those it lies in; refused in words where there is a file, or no right to."""
    may_be_folder(path, what)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{what} {str(path)!r} can't be made", why=str(error), do="Check its permissions, or name another"
        ) from None


def _encodable(text: str) -> bool:
    """Whether the file system can have a name: text may hold halves of characters that stand for no byte."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _from_uri(text: str, what: str) -> str:
    """The path of a `file:` URI, its escapes undone."""
    rest = text[len("file:") :]
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host.lower() not in ("", "localhost"):
            raise DataError(
                f"{what} {text!r} is on the host {host!r}",
                why="between file:// and the next / stands a host, and plait reads and writes files of this one",
                do=f"Write file:///{host}/{rest} if that is a folder",
            )
        rest = slash + rest
    if not rest.startswith("/"):
        raise DataError(f"{what} {text!r} is no absolute path", why="a file: URI has one", do="Write file:///...")
    decoded = os.fsdecode(unquote_to_bytes(os.fsencode(rest)))
    if "\0" in decoded:
        raise DataError(f"{what} {text!r} has a NUL in it", why="no file is called so")
    return decoded
