"""Which files of a folder count, in what order, and what format they are in.

As Spark does, names that start with `_` or `.` are passed over (and here those that end in `.tmp` or `.crc` too): that
is where writers keep their notes and what they have not finished. Files come in the order of their path relative to
the folder, by the bytes of its UTF-8 with `/` between parts: an order that no file system, locale or clock decides.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plait import paths
from plait.errors import DataError

#: Endings by format, the one that is written first. What writes a format is in `sinks`, what reads it in `folder`.
ENDINGS: Final = {"parquet": (".parquet",), "csv": (".csv",), "jsonl": (".jsonl", ".ndjson", ".json")}

#: Formats whose files may be compressed: they end in `.gz` besides.
GZIPPED: Final = frozenset({"csv", "jsonl"})

#: Formats that plait writes and does not read.
WRITE_ONLY: Final[frozenset[str]] = frozenset()

_ALL_ENDINGS: Final = ", ".join(e for some in ENDINGS.values() for e in some) + " (the text formats also with .gz)"


@dataclass(frozen=True)
class DataFile:
    """`name` is the path relative to the folder: the source's name where files name their sources."""

    path: str
    name: str
    size: int


def check_format(format: str | None) -> None:
    """Refuse a `format=` that does not exist."""
    if format is not None and format not in ENDINGS:
        raise DataError(f"format={format!r} is no format", do=f"Use one of {', '.join(map(repr, ENDINGS))}")


def either(names: Sequence[str]) -> str:
    """Names in a sentence: a, b or c."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def format_of(name: str) -> str | None:
    """The format a file's name claims, if any."""
    lower = name.lower()
    plain = lower.removesuffix(".gz")
    for format, endings in ENDINGS.items():
        if (plain if format in GZIPPED else lower).endswith(endings):
            return format
    return None


def find(path: str | os.PathLike[str], format: str | None) -> tuple[list[DataFile], str]:
    """The files under `path` (a folder, one file, or a pattern of files) in order, and their one format."""
    check_format(format)
    root = paths.absolute(path)  # files are opened later, when the working folder may be another
    try:
        os.stat(root)
    except FileNotFoundError:
        pass
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise DataError(f"{os.fspath(path)!r} can't be read", why=str(error), do="Check the path") from None
    if root.is_dir():
        return _in_folder(root, format)
    if not root.exists() and glob.has_magic(str(root)):
        return _matching(root, format)
    if not root.exists():
        raise DataError(
            f"There is no file or folder {os.fspath(path)!r}",
            why=f"relative paths start at {os.getcwd()!r}" if not os.path.isabs(paths.plain(path)) else "",
            do="Check the path",
        )
    found = format or format_of(root.name)
    if found is None:
        raise DataError(
            f"The format of {os.fspath(path)!r} can't be told from its name",
            why=f"these endings are known: {_ALL_ENDINGS}",
            do=f"Say format={either([repr(name) for name in ENDINGS])}",
        )
    return [_data_file(root, root.name)], found


def _matching(pattern: Path, format: str | None) -> tuple[list[DataFile], str]:
    """The files that a pattern matches, named and ordered by their paths below its last folder that is no pattern."""
    root = Path(*itertools.takewhile(lambda part: not glob.has_magic(part), pattern.parts))
    names = [
        str(Path(found).relative_to(root)) for found in glob.glob(str(pattern), recursive=True) if os.path.isfile(found)
    ]
    if not names:
        raise DataError(f"No file matches {str(pattern)!r}", do="Check the pattern")
    return _of_one_format(root, sorted(names, key=os.fsencode), format, f"Pattern {str(pattern)!r}")


def _in_folder(root: Path, format: str | None) -> tuple[list[DataFile], str]:
    """The data files of a folder."""
    return _of_one_format(root, sorted(_walk(root), key=os.fsencode), format, f"Folder {str(root)!r}")


def _of_one_format(root: Path, names: Sequence[str], format: str | None, what: str) -> tuple[list[DataFile], str]:
    """Those of the files that hold data, which must be of one format."""
    files: dict[str, list[DataFile]] = {}
    others = 0
    for name in names:
        # With a format given every visible file is data, whatever its ending, as with Spark's readers.
        kind = format or format_of(name)
        if kind is None:
            others += 1
            continue
        files.setdefault(kind, []).append(_data_file(root / name, name))
    if not files:
        raise DataError(
            f"{what} holds no data file" + (f" ({others} with other endings)" if others else ""),
            why=f"files count if they end in {_ALL_ENDINGS} and do not start with '_' or '.'",
            do="Check the path, or say format= to read files with other endings",
        )
    if len(files) > 1:
        (one, first), (two, second) = list(files.items())[:2]
        raise DataError(
            f"{what} mixes formats: {first[0].name!r} is {one} and {second[0].name!r} is {two}",
            why="a stream's files are of one format",
            do="Put them into folders of their own",
        )
    ((kind, found),) = files.items()
    return found, kind


def data_files(folder: Path) -> Iterator[str]:
    """Names of the files under a folder that hold data by their ending, in no order; none where there is no folder."""
    return (name for name in _walk(folder) if format_of(name) is not None) if folder.is_dir() else iter(())


def _data_file(path: Path, name: str) -> DataFile:
    try:
        return DataFile(str(path), name, path.stat().st_size)
    except OSError as error:
        raise DataError(f"File {str(path)!r} can't be read", why=str(error), do="Remove it, or mend the link") from None


def _walk(root: Path) -> Iterator[str]:
    """Relative names with `/`, following links to folders but no link back to a folder it is in."""
    pending: list[tuple[str, tuple[str, ...]]] = [("", (os.path.realpath(root),))]
    while pending:
        prefix, above = pending.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                if entry.name.startswith((".", "_")) or entry.name.endswith((".tmp", ".crc")):
                    continue
                name = f"{prefix}{entry.name}"
                if not entry.is_dir():
                    yield name
                elif (real := os.path.realpath(entry.path)) not in above:
                    pending.append((f"{name}/", (*above, real)))
