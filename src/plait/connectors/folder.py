"""A folder of Parquet, CSV or JSON-lines files (or one file) as a feed, streamed in constant memory.

The folder is one source, read file after file in the order of `files`; or a column of the rows names the sources; or,
with `source=plait.FILE`, every file is a source of its own, named by its path relative to the folder, and ends with it.

Columns and types are those of the stream's `schema=`; other columns are then passed over. Without it they are taken
from the first file (for CSV and JSON lines: from the first block of the first file that has rows) and pinned, and a
file or row that does not fit is an error that names it. Rows are counted from 0, lines from 1.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from plait.connectors import csv_file, json_file, parquet_file
from plait.connectors.contract import BATCH_ROWS, Chunk, Feed, Lane, SourceName
from plait.connectors.csv_file import CsvOptions
from plait.connectors.files import ENDINGS, WRITE_ONLY, DataFile, find
from plait.connectors.fit import Wanted, check_fit, check_unique, plain
from plait.connectors.memory import check_names
from plait.errors import DataError
from plait.schema import is_count

if TYPE_CHECKING:
    from plait.query.stream import Stream


def feed(
    stream: Stream,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    batch_rows: int = BATCH_ROWS,
    delimiter: str = ",",
    null_values: Sequence[str] | None = None,
) -> Feed:
    r"""The files under a path as one stream.

    Args:
        stream: The stream's declaration.
        path: A folder, read recursively, one file, or a pattern of files such as "day-*.parquet".
        format: "parquet", "csv" or "jsonl"; then every visible file is data. None: told from the files' endings.
        batch_rows: Rows in a chunk, at most.
        delimiter: What separates CSV fields.
        null_values: CSV texts that mean NULL in every column, text too. None: an empty field, except in text columns.

    Returns:
        A `Feed`, which holds one block of a file at a time. With `source=plait.FILE` it has a lane for each file.

    Raises:
        DataError: There is no data file, a file is broken or does not fit, or formats are mixed.

    Example:
        >>> import pathlib, plait
        >>> from plait.connectors import folder
        >>> _ = pathlib.Path("a.csv").write_text("ts;x\n1;2.5\n2;-\n")
        >>> feed = folder.feed(plait.stream("s", unit="s"), "a.csv", delimiter=";", null_values=["-"])
        >>> next(feed.lanes[0].read()).batch.to_pylist()
        [{'ts': 1, 'x': 2.5}, {'ts': 2, 'x': None}]
    """
    if not is_count(batch_rows):
        raise DataError(f"batch_rows={batch_rows!r}", why="a chunk has at least one row")
    files, kind = find(path, format)
    if kind not in READERS:
        raise DataError(f"{files[0].path!r} is {kind}", why=f"plait writes {kind} files and does not read them")
    options = CsvOptions(delimiter, null_values)
    wanted, rows = _wanted(stream, files, kind, options)
    lanes = tuple(
        Lane(
            source,
            partial(_read, group, kind, wanted, batch_rows, options),
            partial(_read_coded, group, wanted.schema, batch_rows) if kind == "parquet" else None,
        )
        for source, group in _grouped(stream, path, files)
    )
    return Feed(wanted.schema, lanes, rows, sum(file.size for file in files))


def _grouped(
    stream: Stream, path: str | os.PathLike[str], files: list[DataFile]
) -> list[tuple[SourceName | None, list[DataFile]]]:
    """Which files each lane reads."""
    declared = stream.declared()
    if stream.source == "@file":
        if declared is not None:
            check_names(stream, [file.name for file in files], declared, "file")
        return [(file.name, [file]) for file in files]
    if stream.source == "@partition":
        raise DataError(
            f"Stream {stream.name!r} takes its sources from Kafka's partitions, and {os.fspath(path)!r} has none",
            do="Declare source=plait.FILE or a column",
        )
    if stream.source is not None:
        return [(None, files)]
    if declared is not None and len(declared) != 1:
        raise DataError(
            f"Stream {stream.name!r} declares {len(declared)} sources, and {os.fspath(path)!r} is one",
            why="neither a column nor the file names the source",
            do="Declare source=plait.FILE or the column that names it",
        )
    return [(0 if declared is None else declared[0], files)]


def _wanted(stream: Stream, files: list[DataFile], kind: str, options: CsvOptions) -> tuple[Wanted, int | None]:
    """What every file has to hold, and how many rows there are, where that is known without reading them."""
    declared = None
    if stream.schema is not None:
        check_unique(stream.schema, f"The schema= of stream {stream.name!r}")
        declared = Wanted(stream.schema, "schema= declares", exact=False)
    infer = READERS[kind].infer
    if infer is None:
        return _from_footers(files, declared)
    if declared is not None:
        return declared, None
    for file in files:
        schema = infer(file, options)
        if schema is not None:
            return Wanted(schema, f"{file.name!r} has", exact=True), None
    raise DataError(
        f"No file of stream {stream.name!r} has a row (the first is {files[0].path!r})",
        why=f"the types of its columns can't be known from {kind} without rows",
        do="Declare the columns with schema=",
    )


def _from_footers(files: list[DataFile], wanted: Wanted | None) -> tuple[Wanted, int]:
    """What the first footer has, or what is declared; every other footer is held against it."""
    rows = 0
    for file in files:
        schema, here = parquet_file.footer(file)
        if wanted is None:
            wanted = Wanted(plain(schema), f"{file.name!r} has", exact=True)
        check_fit(schema, wanted, f"Parquet file {file.path!r}")
        rows += here
    assert wanted is not None  # `find` gives at least one file
    return wanted, rows


def _read(files: list[DataFile], kind: str, wanted: Wanted, batch_rows: int, options: CsvOptions) -> Iterator[Chunk]:
    """The rows of files, one after another."""
    for file in files:
        yield from READERS[kind].read(file, wanted, batch_rows, options)


def _read_coded(files: list[DataFile], schema: pa.Schema, batch_rows: int, names: frozenset[str]) -> Iterator[Chunk]:
    """The same of Parquet files, with those of these columns as dictionaries that are so in all files."""
    for file in files:
        names &= parquet_file.under_codes(file)
    for file in files:
        yield from parquet_file.read(file, schema, batch_rows, names)


@dataclass(frozen=True)
class Reader:
    """How files of a format are read. `infer` gives a file's columns, where rows must tell them; None: its footer does."""

    read: Callable[[DataFile, Wanted, int, CsvOptions], Iterator[Chunk]]
    infer: Callable[[DataFile, CsvOptions], pa.Schema | None] | None


READERS: Final[Mapping[str, Reader]] = {
    "parquet": Reader(lambda file, wanted, rows, _: parquet_file.read(file, wanted.schema, rows), None),
    "csv": Reader(csv_file.read, csv_file.infer),
    "jsonl": Reader(
        lambda file, wanted, rows, _: json_file.read(file, wanted, rows), lambda file, _: json_file.infer(file)
    ),
}


def missing(readers: Mapping[str, Reader], endings: Iterable[str], write_only: Collection[str]) -> list[str]:
    """What is missing, a line each, if these are the formats that are read, and those whose endings are known."""
    unread = [name for name in endings if name not in readers and name not in write_only]
    return [
        f"files of format {name!r} have no reader, and are not WRITE_ONLY in plait.connectors.files" for name in unread
    ]


for _line in missing(READERS, ENDINGS, WRITE_ONLY):
    raise ImportError(f"{_line}: see plait.connectors.folder")
