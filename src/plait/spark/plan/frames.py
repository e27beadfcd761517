"""DataFrames as plait reads them: which one is which source, and where a tuple's position can be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.stream import FILE, PARTITION, Stream
from plait.spark.pack import scan as scanning
from plait.spark.pack.positions import BLOCK, HANDED, PATH, ROW
from plait.spark.plan import plans, relations


@dataclass(frozen=True)
class Frame:
    """One DataFrame of a stream, with the columns added that tell positions; how to read source and seq from it."""

    frame: Any
    source: str
    source_name: Any
    source_rank: int
    seq: str
    seq_column: str | None
    scan: scanning.Scan | None = None  # tasks read the files themselves; `frame` then tells which rows

    def reads(self, stream: Stream, shipped: Sequence[str], schema: Sequence[str]) -> tuple[str, ...]:
        """The columns that tasks need: those that go along, and what tells time, source and seq. In the schema's order."""
        if self.seq == "content":
            return tuple(schema)
        needed = {*shipped, stream.time, *([self.source_name] if self.source == "column" else []), self.seq_column}
        return tuple(name for name in schema if name in needed or (self.seq == "kafka" and name in KAFKA))

    def given(self, columns: Sequence[str]) -> Any:
        """What a task is handed: rows with no columns but these, or what to read."""
        if self.scan is not None:
            return self.frame
        extra = [name for name in (PATH, ROW, BLOCK) if name in self.frame.columns]
        return self.frame.select(*(_handed(at, name) for at, name in enumerate(columns)), *extra)


def _handed(at: int, name: str) -> Any:
    """A column as it is handed to a task: PySpark's own code looks columns up by name there, and takes dots for structs."""
    from pyspark.sql import functions as F

    column = F.col(quoted(name))
    return column.alias(f"{HANDED}{at}") if "." in name or "`" in name else column


def quoted(name: str) -> str:
    """A column's name as Spark's parser takes it, whatever is in it: dots, spaces, backticks."""
    return "`" + name.replace("`", "``") + "`"


def arrow_schema(frame: Any) -> pa.Schema:
    """A DataFrame's columns as Arrow types; a timestamp is UTC whatever the session's zone."""
    from pyspark.sql.pandas.types import to_arrow_type

    fields = []
    for field in frame.schema.fields:
        kind = to_arrow_type(field.dataType, timezone="UTC")
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            kind = pa.timestamp("us", tz="UTC")
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def spark_schema(schema: pa.Schema) -> Any:
    """The inverse, as DataFrameReader.schema takes it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def frames_of(stream: Stream, data: Any, *, by_rows: bool = False) -> list[Frame]:
    """The DataFrames given for a stream, each with its way to tell source and seq. `by_rows`: Spark reads all files."""
    given = data if isinstance(data, (list, tuple)) else list(data.values()) if isinstance(data, Mapping) else [data]
    names: list[Any] = list(data) if isinstance(data, Mapping) else list(range(len(given)))
    declared = stream.declared()
    if declared is not None and stream.source is None:
        if (isinstance(data, Mapping) and set(names) != set(declared)) or len(names) != len(declared):
            raise QueryError(
                f"Stream {stream.name!r}: {len(names)} DataFrames are given ({', '.join(map(repr, names))})",
                why=f"sources= declares {', '.join(map(repr, declared))}",
            )
        if not isinstance(data, Mapping):
            names = list(declared)
    _check_alike(stream, names, given)
    for frame in given:
        _check_names(stream, frame)
        plans.check_repeatable(stream, frame)
        if stream.seq == "position":
            plans.check_positions(stream, frame)
    if stream.source == FILE and len(given) > 1:
        raise QueryError(
            f"Stream {stream.name!r}: source=plait.FILE, and {len(given)} DataFrames are given",
            why="a source is named by its file's path relative to one folder, and files of two folders may have one name",
            do="Put the folders under one, and read that",
        )
    # Not a dict's own order: how it was put together must not decide ties. Text sorts by its UTF-8 bytes.
    ranked = declared if declared is not None and stream.source is None else sorted(names, key=_by_bytes)
    return [_frame(stream, frame, name, ranked.index(name), by_rows) for name, frame in zip(names, given, strict=True)]


def _check_names(stream: Stream, frame: Any) -> None:
    """Refuse columns that Spark can't tell apart, or that hide the one that tells positions."""
    folded = [name if _case_matters(frame) else name.lower() for name in frame.columns]
    for at, name in enumerate(folded):
        if name in folded[:at]:
            one, other = frame.columns[folded.index(name)], frame.columns[at]
            raise QueryError(
                f"Stream {stream.name!r}: its DataFrame has columns {one!r} and {other!r}",
                why="to Spark they have one name, since spark.sql.caseSensitive is false",
                do="Rename one",
            )
    if "_metadata" in folded and (stream.seq == "position" or stream.source == FILE):
        raise QueryError(
            f"Stream {stream.name!r}: its DataFrame has a column '_metadata'",
            why="it hides the one of that name by which Spark tells a row's file and number",
            do="Rename it, or drop it",
        )


def _case_matters(frame: Any) -> bool:
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def _by_bytes(name: Any) -> Any:
    return name.encode() if isinstance(name, str) else name


def _check_alike(stream: Stream, names: list[Any], given: Sequence[Any]) -> None:
    first = arrow_schema(given[0])
    for name, frame in zip(names[1:], given[1:], strict=True):
        if not (schema := arrow_schema(frame)).equals(first):
            raise QueryError(
                f"Stream {stream.name!r}: DataFrames {names[0]!r} and {name!r} differ in their columns",
                why=f"one has {_columns(first)}, the other {_columns(schema)}",
                do="Select and cast the same columns in the same order",
            )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def _frame(stream: Stream, frame: Any, name: Any, rank: int, by_rows: bool) -> Frame:
    from pyspark.sql import functions as F

    columns = [F.col(quoted(c)) for c in frame.columns]
    extra: list[Any] = []
    seq: str = "content"
    seq_column: str | None = None
    if stream.source == PARTITION:
        for column in KAFKA:
            _need(stream, frame, column, "source=plait.PARTITION reads Kafka's partition, and its position with it")
        _check_one_topic(stream, frame)
    if stream.seq_column is not None:
        seq, seq_column = "column", stream.seq_column
    elif stream.seq == "position":
        seq, seq_column, extra = _position(stream, frame, F)
    source, source_name = "constant", name
    if stream.source == FILE:
        root = relations.root(frame)
        if root is None:
            raise QueryError(
                f"Stream {stream.name!r}: source=plait.FILE, and its DataFrame does not come straight from files",
                do="Read it with spark.read or spark.readStream and hand it over as it is",
            )
        source, source_name = "file", root
        if not extra:
            extra = [F.col("_metadata.file_path").alias(PATH)]
    elif stream.source == PARTITION:
        source, source_name = "column", "partition"
    elif stream.source_column is not None:
        source, source_name = "column", stream.source_column
    if seq == "row" and not by_rows and (scan := _scan(stream, frame)) is not None:
        return Frame(scan.blocks(frame), source, source_name, rank, seq, seq_column, scan)
    selected = frame.select(*columns, *extra) if extra else frame
    if stream.seq_column is not None:
        # Splits of one source must not interleave in seq, or no task can tell what came before: one task a source.
        selected = selected.repartition(F.col(quoted(source_name))) if source == "column" else selected.coalesce(1)
    return Frame(selected, source, source_name, rank, seq, seq_column)


#: Kafka's columns as Spark gives them, which tell a row's position.
KAFKA = {"partition": "int", "offset": "bigint", "topic": "string"}


def _is_kafka(frame: Any) -> bool:
    types = dict(frame.dtypes)
    return all(types.get(name) == kind for name, kind in KAFKA.items())


def _check_one_topic(stream: Stream, frame: Any) -> None:
    """Partition 0 of two topics is two sources, and a partition's number can't tell them apart."""
    from py4j.protocol import Py4JError

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


def _need(stream: Stream, frame: Any, column: str, why: str) -> None:
    if column not in frame.columns:
        raise QueryError(
            f"Stream {stream.name!r} has no column {column!r}", why=why, do="Keep Kafka's column in the select"
        )


def _position(stream: Stream, frame: Any, F: Any) -> tuple[str, str | None, list[Any]]:
    """`seq="position"`: Kafka's offset, or the file and the row in it; anything else has no position."""
    if _is_kafka(frame):
        if stream.source is None:
            raise QueryError(
                f"Stream {stream.name!r}: seq='position' on Kafka's rows, all of one source",
                why="offsets count within a partition, and there is no order between partitions",
                do="Say source=plait.PARTITION, or name a column whose values each stay in one partition",
            )
        return "kafka", None, []
    path = F.col("_metadata.file_path").alias(PATH)
    row = F.col("_metadata.row_index").cast("long").alias(ROW)
    block = F.col("_metadata.file_block_start").cast("long").alias(BLOCK)
    if _has(frame, path, row):
        return "row", None, [path, row]
    if not _has(frame, path, block):
        raise QueryError(
            f"Stream {stream.name!r}: seq='position', and rows of its DataFrame have no position",
            why="only files and Kafka give one; Spark promises no order for the rest",
            do="Name a seq column (plait.stream(..., seq='id')), or let ties go by content (seq='content')",
        )
    if not plans.is_scan(frame):
        raise QueryError(
            f"Stream {stream.name!r}: seq='position' on a DataFrame that changes its files' rows",
            why="CSV and JSON files have no row numbers of their own, so plait must count them as they are read",
            do="Hand over the DataFrame as spark.read or readStream gives it, or name a seq column",
        )
    return "block", None, [path, block]


def _has(frame: Any, *columns: Any) -> bool:
    """Whether a DataFrame can tell these. PySpark logs a column that is not there with a page of stack; we only ask."""
    from pyspark.errors import AnalysisException
    from pyspark.logger import PySparkLogger

    log = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    before, log.disabled = log.disabled, True
    try:
        frame.select(*columns)
    except AnalysisException:
        return False
    finally:
        log.disabled = before
    return True


def _scan(stream: Stream, frame: Any) -> scanning.Scan | None:
    """How tasks read the files themselves; None where Spark has to: see `relations` and `scan`."""
    if not relations.is_plain_parquet(frame):
        return None
    return scanning.scan(stream.name, relations.root(frame), arrow_schema(frame))
