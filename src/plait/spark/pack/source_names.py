"""Which source a row is of, on Spark: the kinds of name that a source can have.

A kind is a record (`Naming`) that says all there is to know of it: how a plan finds out whether a stream names its sources so,
and how a task reads the names. Who packs asks for no kind by its name.

Where it runs: `serves`, `check` and `finds` on the driver; `names` in each task that packs. A source's name is part of a
tuple's key, so it must not depend on where a folder lies or how it was listed: files are named by their path below one
folder. Held by tests/spark/test_kinds.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import DataError, QueryError
from plait.query.stream import FILE as BY_FILE
from plait.query.stream import PARTITION as BY_PARTITION
from plait.query.stream import Stream
from plait.spark.pack.positions import KAFKA, PATH
from plait.spark.plan import plans, relations


@dataclass(frozen=True)
class Found:
    """How a DataFrame's rows name their sources."""

    by: Any  # what `Naming.names` is given: a column, a folder, or the one source's name
    extra: tuple[Any, ...] = ()  # columns of Spark's that are to be added to the DataFrame, unless they are there


@dataclass(frozen=True, kw_only=True)
class Naming:
    """One way to name sources.

    name    as plans have it
    serves  whether a stream names its sources so
    check   refuses a DataFrame that can't, before its positions are looked for
    finds   of a stream, one of its DataFrames and the name that this was given: how
    names   of a stream (by name), what was found and a task's rows: the source of each row; None: all are of the one found
    column  whether what was found is a column of the user's: tasks must have it, and Spark can part rows by it
    marks   columns that `finds` adds, by name
    ends    whether a source is a file, and ends with it
    """

    name: str
    serves: Callable[[Stream], bool]
    check: Callable[[Stream, Any], None] = lambda stream, frame: None
    finds: Callable[[Stream, Any, Any], Found]
    names: Callable[[str, Any, pa.Table], pa.Array | None]
    column: bool = False
    marks: tuple[str, ...] = ()
    ends: bool = False


def _in_folder(stream: Stream, frame: Any, name: Any) -> Found:
    """The folder that names are relative to; refused where files can't be told."""
    root = relations.root(frame)
    if root is None:
        raise QueryError(
            f"Stream {stream.name!r}: source=plait.FILE, and its DataFrame does not come straight from files",
            do="Read it with spark.read or spark.readStream and hand it over as it is",
        )
    from pyspark.sql import functions as F

    return Found(root, (F.col("_metadata.file_path").alias(PATH),))


def _below(stream: str, root: str, table: pa.Table) -> pa.Array:
    """Each row's file as a path below the folder. A file outside of it is refused: it would have no name."""
    paths = table.column(PATH).combine_chunks().dictionary_decode()
    if not pc.all(pc.starts_with(paths, root)).as_py():
        raise DataError(
            f"Stream {stream!r}: file {paths[0].as_py()!r} is not in {root!r}",
            why="source=plait.FILE names sources by the path relative to one folder",
            do="Read that folder, without wildcards or further paths",
        )
    return pc.utf8_slice_codeunits(paths, len(root))


def _check_partitions(stream: Stream, frame: Any) -> None:
    """Refuse rows without Kafka's columns, and those of several topics: partition 0 would be two sources."""
    for column in KAFKA.columns:
        if column not in frame.columns:
            raise QueryError(
                f"Stream {stream.name!r} has no column {column!r}",
                why="source=plait.PARTITION reads Kafka's partition, and its position with it",
                do="Keep Kafka's column in the select",
            )
    from py4j.protocol import Py4JError

    # Partition 0 of two topics is two sources, and a partition's number can't tell them apart.
    leaves = plans.analyzed(frame).collectLeaves()
    for at in range(leaves.size()):
        try:
            options = leaves.apply(at).extraOptions()  # a streaming relation's
            topics = str(options.get("subscribe") or "")
            several = "," in topics or options.get("subscribePattern") is not None
        except Py4JError:
            continue
        if several:
            raise QueryError(
                f"Stream {stream.name!r}: source=plait.PARTITION, and its DataFrame reads several topics ({topics})",
                why="each has a partition 0",
                do="Make a column such as concat(topic, '-', partition) and name it with source=, or read one topic",
            )


def _column(stream: str, name: str, table: pa.Table) -> pa.Array:
    """The source of each row, from a column of the user's or of Kafka's."""
    return table.column(name).combine_chunks()


FILE = Naming(
    name="file", serves=lambda stream: stream.source == BY_FILE, finds=_in_folder, names=_below, marks=(PATH,), ends=True,
)  # fmt: skip
PARTITION = Naming(
    name="partition", serves=lambda stream: stream.source == BY_PARTITION, check=_check_partitions,
    finds=lambda stream, frame, name: Found("partition"), names=_column, column=True,
)  # fmt: skip
COLUMN = Naming(
    name="column", serves=lambda stream: stream.source_column is not None,
    finds=lambda stream, frame, name: Found(stream.source_column), names=_column, column=True,
)  # fmt: skip
CONSTANT = Naming(
    name="constant", serves=lambda stream: True, finds=lambda stream, frame, name: Found(name),
    names=lambda stream, name, table: None,
)  # fmt: skip

#: In the order in which a stream is asked; the last one serves whatever comes to it.
_OURS = (FILE, PARTITION, COLUMN, CONSTANT)
_known = {each.name: each for each in _OURS}
assert len(_known) == len(_OURS), "two kinds have one name"


def namings() -> tuple[Naming, ...]:
    return _OURS


def naming(name: str) -> Naming:
    return _known[name]


def naming_of(stream: Stream) -> Naming:
    """How a stream names its sources."""
    return next(each for each in _OURS if each.serves(stream))
