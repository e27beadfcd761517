"""Parquet files on a local disk, read by the tasks themselves, a column at a time.

Spark turns a file's columns into rows, and on their way into Python rows into columns again: about a microsecond a row,
more than everything plait does with it. So where it can, Spark is asked only for the first row of each block of BLOCK, by
file and number, and the task that is given one reads the block. Every block's first row is one row of the file, and Spark
gives it to one task, however it cuts and packs the files: so each row is read once, by a task of Spark's, and offsets,
retries and replays are Spark's as before.

A column is taken as it is or not at all: only types that mean the same to Spark and to Arrow, flat ones, without the
calendars of old files, whose name no other column of the file has in other letters, and no column that Spark takes from the
names of folders (`x=1/`): there it reads the folder's value, whatever the file has. `relations` says which DataFrames come
here at all. Files that are there when the query is built decide whether this way is taken; one that comes later and is of
another kind stops the query, which goes on with read="rows".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait.errors import RunError
from plait.spark.pack.positions import PATH, ROW

#: Rows of a block: far more than a task's fixed cost, far fewer than a large file has.
BLOCK = 1 << 18

#: Files of a folder that are looked at before this way is taken.
LOOKED_AT = 64

#: What Spark notes in a file whose dates or times are of the calendar before 1582, and the first version that does not.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITTEN_BY, _NEW_CALENDAR = b"org.apache.spark.version", b"3.0.0"

_LOCAL = "file://"


@dataclass(frozen=True)
class Scan:
    """How a stream's tasks read its files. Pickled into the tasks.

    `read` runs in tasks, `blocks` on the driver. It is decided once, when the query is planned, whether a stream's files
    can be read so; files that come later and can't be are refused by name, and the user may restart with `read="rows"`.
    Both ways give the same positions, so the checkpoint goes on. Held by tests/spark/test_scanning.py.
    """

    stream: str
    schema: pa.Schema  # the DataFrame's
    block: int  # rows
    root: str  # the folder, as URL: folders below it may name columns

    def blocks(self, frame: Any) -> Any:
        """The first rows of the blocks of a DataFrame's files."""
        from pyspark.sql import functions as F

        path, row = F.col("_metadata.file_path").alias(PATH), F.col("_metadata.row_index").cast("long").alias(ROW)
        return frame.select(path, row).where(F.col(ROW) % self.block == 0)

    def read(self, blocks: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows of these blocks, each told by its path and first row, with PATH and ROW as Spark would have them.

        Blocks of one file that follow one another are read as one stretch. Columns are cast to the DataFrame's types at
        the end: a file may have large or dictionary forms of them.
        """
        paths = blocks.column(PATH).combine_chunks()
        first, of = blocks.column(ROW).to_numpy(), paths.indices.to_numpy()
        parts, index, row = [], [], []
        for number, path in enumerate(paths.dictionary.to_pylist()):
            for begin, table in self._stretches(path, np.sort(first[of == number]), columns):
                parts.append(table)
                index.append(np.full(table.num_rows, number, np.int32))
                row.append(np.arange(begin, begin + table.num_rows))
        table = pa.concat_tables(parts).cast(pa.schema([self.schema.field(name) for name in columns]))
        named = pa.DictionaryArray.from_arrays(np.concatenate(index), paths.dictionary)
        return table.append_column(PATH, named).append_column(ROW, pa.array(np.concatenate(row)))

    def _stretches(self, path: str, first: np.ndarray, columns: Sequence[str]) -> list[tuple[int, pa.Table]]:
        """The rows of one file's blocks as stretches, each with the number of its first row."""
        try:
            with pq.ParquetFile(_on_disk(path)) as file:
                unlike = _named_by_folder(path, self.root) or unreadable(file, self.schema, columns)
                if unlike is None:
                    runs = _runs(first, self.block, file.metadata.num_rows)
                    return [(begin, _rows(file, begin, end, columns)) for begin, end in runs]
        except (
            OSError,
            pa.ArrowException,
        ) as error:  # a codec or a cipher that Arrow does not know, a file that is broken
            unlike = f"can't be read: {error}"
        raise RunError(
            f"Stream {self.stream!r}: the file {path} {unlike}",
            why="plait's tasks read Parquet files themselves, and take a column as it is or not at all",
            do="Restart with on_spark(..., read='rows'): Spark reads them then, and the checkpoint goes on",
        )


def _runs(first: np.ndarray, block: int, rows: int) -> list[tuple[int, int]]:
    """Blocks as stretches of rows, those that follow one another as one."""
    cuts = np.flatnonzero(np.diff(first) != block) + 1
    return [(int(run[0]), min(int(run[-1]) + block, rows)) for run in np.split(first, cuts)]


def _rows(file: pq.ParquetFile, begin: int, end: int, columns: Sequence[str]) -> pa.Table:
    """Rows `begin` to `end` of a file. Parquet is read by row groups: those that the stretch touches, then cut."""
    sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    low, high = int(np.searchsorted(ends, begin, "right")), int(np.searchsorted(ends, end, "left"))
    # The tasks are as many as the cores: no threads besides.
    table = file.read_row_groups(list(range(low, high + 1)), columns=list(columns), use_threads=False)
    return table.select(list(columns)).slice(begin - int(ends[low]) + sizes[low], end - begin)


def _on_disk(path: str) -> str:
    return path.removeprefix(_LOCAL)


def scan(stream: str, root: str | None, schema: pa.Schema) -> Scan | None:
    """A way to read the files below `root`, as URL; None where Spark has to.

    Looks at the first files of the folder, 64 at most. An empty folder can't be judged, so there Spark reads.
    """
    if root is None or not root.startswith(_LOCAL):
        return None
    try:
        found = list(islice((f for f in Path(_on_disk(root)).rglob("*.parquet") if f.is_file()), LOOKED_AT))
        for name in found:
            with pq.ParquetFile(name) as file:
                url = _LOCAL + str(name)
                if _named_by_folder(url, root) or unreadable(file, schema, schema.names) is not None:
                    return None
    except (OSError, pa.ArrowException):  # what is wrong with it is Spark's to say
        return None
    return Scan(stream, schema, BLOCK, root) if found else None


def _named_by_folder(path: str, root: str) -> str | None:
    """Whether Spark may take columns from the folders between, which are then not the file's."""
    folders = path.removeprefix(root).split("/")[:-1]
    naming = next((folder for folder in folders if "=" in folder), None)
    return None if naming is None else f"lies in a folder that names a column, {naming!r}"


def unreadable(file: pq.ParquetFile, schema: pa.Schema, columns: Sequence[str]) -> str | None:
    """What stands against reading these columns of a file, in words."""
    notes = file.metadata.metadata or {}
    if any(key in notes for key in _OLD_CALENDAR) or notes.get(_WRITTEN_BY, _NEW_CALENDAR) < _NEW_CALENDAR:
        return "has dates of the calendar before 1582"
    own = file.schema_arrow
    folded = [name.lower() for name in own.names]
    physical = {file.schema.column(k).path: file.schema.column(k).physical_type for k in range(len(file.schema))}
    for name in columns:
        if own.names.count(name) != 1:
            return f"has no column {name!r}"
        if folded.count(name.lower()) != 1:
            return f"has two columns that are called {name!r} but for small and capital letters"
        if physical.get(name) == "INT96" or not _alike(own.field(name).type, schema.field(name).type):
            return f"has column {name!r} of type {own.field(name).type}, and the DataFrame of {schema.field(name).type}"
    return None


def _alike(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Spark and Arrow read the same values from a column of type `there` that Spark has as `wanted`."""
    if pa.types.is_nested(wanted) and not pa.types.is_dictionary(wanted):
        return False
    if pa.types.is_dictionary(there):
        there = there.value_type
    if pa.types.is_large_string(there):
        there = pa.string()
    elif pa.types.is_large_binary(there):
        there = pa.binary()
    elif pa.types.is_timestamp(there) and there.tz is not None:
        there = pa.timestamp(there.unit, "UTC")
    return bool(there == wanted)
