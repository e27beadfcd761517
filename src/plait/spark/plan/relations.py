"""The files under a DataFrame: their folder, and whether plait's tasks can read them as Spark would.

Plait's own reader (`pack.Scan`) must take exactly what Spark would. So it is taken only where all that decides how Spark reads
is known: Parquet's own format (not one built on it, with column mapping or deleted rows), one folder on a local disk, no column
from the names of folders, and no option or setting but those listed here. Anything else is left to Spark.

A column is taken as it is or not at all: only types that mean the same to Spark and to Arrow, flat ones, without the
calendars of old files, whose name no other column of the file has in other letters, and no column that Spark takes from the
names of folders (`x=1/`): there it reads the folder's value, whatever the file has. Files that are there when the query is
built decide whether this way is taken; one that comes later and is of another kind stops the query, which goes on with
read="rows".

Where it runs: on the driver, in `on_spark`; `unreadable` also in tasks, for each file. Held by tests/spark/test_scanning.py and
tests/spark/test_inputs.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait.spark.plan import plans

_PARQUET = "org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat"

#: Lists of files that are no more than lists.
_INDEXES = frozenset({"InMemoryFileIndex", "MetadataLogFileIndex"})

#: Options that say which files are read and when, in small letters. What is in them is read as ever.
_HARMLESS = frozenset({
    "path", "paths", "maxfilespertrigger", "maxbytespertrigger", "maxcachedfiles", "discardcachedinputratio", "latestfirst",
    "maxfileage", "filenameonly", "cleansource", "sourcearchivedir", "pathglobfilter", "modifiedbefore", "modifiedafter",
    "recursivefilelookup", "header", "inferschema",
})  # fmt: skip

#: Settings of the session that change how Parquet is read, and the value under which it is plain.
_PLAIN = {
    "spark.sql.parquet.mergeSchema": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}


#: Files of a folder that are looked at before this way is taken.
LOOKED_AT = 64

#: What Spark notes in a file whose dates or times are of the calendar before 1582, and the first version that does not.
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITTEN_BY, _NEW_CALENDAR = b"org.apache.spark.version", b"3.0.0"

_LOCAL = "file://"


def is_plain_parquet(frame: Any) -> bool:
    """Whether a DataFrame is a folder of Parquet files and nothing else has a say in how they are read.

    A wrong yes would give other rows than Spark does, so every doubt is a no: an unknown option, a setting that is not
    plain, another kind of relation, a Spark with other insides. A no only costs speed.
    """
    from py4j.protocol import Py4JError

    if not plans.is_scan(frame):
        return False
    leaf, spark = plans.analyzed(frame), frame.sparkSession
    try:
        if str(leaf.getClass().getSimpleName()) == "LogicalRelation":
            relation = leaf.relation()
            format, location = str(relation.fileFormat().getClass().getName()), relation.location()
            plain = str(location.getClass().getSimpleName()) in _INDEXES and location.rootPaths().size() == 1
            plain = plain and relation.partitionSchema().isEmpty()
            options = relation.options()
        else:
            format, plain = (
                str(leaf.dataSource().providingClass().getName()),
                leaf.dataSource().partitionColumns().isEmpty(),
            )
            options = leaf.dataSource().options()
        keys = options.keys().toSeq()
        named = {str(keys.apply(at)).lower() for at in range(keys.size())}
    except Py4JError:  # no relation of files
        return False
    settings = (str(spark.conf.get(name, wanted)).lower() == wanted.lower() for name, wanted in _PLAIN.items())
    return format == _PARQUET and bool(plain) and named <= _HARMLESS and all(settings)


def root(frame: Any) -> str | None:
    """The folder that a DataFrame's files lie in, as the prefix of `_metadata.file_path`.

    None where there are several relations, or one without a folder. Names of sources and the reader of files both go by
    it.
    """
    from py4j.protocol import Py4JError

    leaves = plans.analyzed(frame).collectLeaves()
    if leaves.size() != 1:
        return None
    leaf = leaves.apply(0)
    name = str(leaf.getClass().getSimpleName())
    try:
        if name == "LogicalRelation":
            found = leaf.relation().location().rootPaths().apply(0).toString()
        elif name == "StreamingRelation":
            path = leaf.dataSource().options().get("path").get()
            hadoop = frame.sparkSession._jvm.org.apache.hadoop.fs.Path(path)
            conf = frame.sparkSession._jsc.hadoopConfiguration()
            found = hadoop.getFileSystem(conf).makeQualified(hadoop).toString()
        else:
            return None
    except Py4JError:  # a relation that has no folder
        return None
    # Spark writes file:///x in _metadata and file:/x here.
    folder = str(found).rstrip("/") + "/"
    return folder if folder.startswith("file:///") else folder.replace("file:/", "file:///", 1)


def can_be_read(root: str, schema: pa.Schema) -> bool:
    """Whether tasks can read the files below `root`, as URL, that are there now.

    Looks at the first files of the folder, 64 at most. An empty folder can't be judged, so there Spark reads.
    """
    if not root.startswith(_LOCAL):
        return False
    try:
        found = list(islice((f for f in Path(on_disk(root)).rglob("*.parquet") if f.is_file()), LOOKED_AT))
        for name in found:
            with pq.ParquetFile(name) as file:
                url = _LOCAL + str(name)
                if named_by_folder(url, root) or unreadable(file, schema, schema.names) is not None:
                    return False
    except (OSError, pa.ArrowException):  # what is wrong with it is Spark's to say
        return False
    return bool(found)


def on_disk(path: str) -> str:
    """A file's path, of its URL."""
    return path.removeprefix(_LOCAL)


def named_by_folder(path: str, root: str) -> str | None:
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
