"""The files under a DataFrame: their folder, and whether Spark reads them in the plain way that plait's tasks know.

Plait's own reader (`scan`) must take exactly what Spark would. So it is taken only where all that decides how Spark reads
is known: Parquet's own format (not one built on it, with column mapping or deleted rows), one folder, no column from the names
of folders, and no option or setting but those listed here. Anything else is left to Spark.
"""

from __future__ import annotations

from typing import Any

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
