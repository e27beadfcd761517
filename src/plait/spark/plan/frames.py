"""DataFrames as plait reads them: which one is which source, and where a tuple's position can be told.

Where it runs: on the driver, in `on_spark`, before anything is read. What goes in: what the user gave for each stream,
one DataFrame, a list or a dict. What comes out: a `Frame` for each, with the columns added that tell positions and
sources; Spark computes nothing yet.

Everything that could give rows another order, another position or none is refused here: see `plans`. Held by
tests/spark/test_inputs.py and tests/spark/test_bad_input.py.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from plait.errors import QueryError
from plait.query.stream import FILE, Stream
from plait.spark.pack import pack, source_names
from plait.spark.pack.pack import Frame, Scan, quoted
from plait.spark.pack.positions import COLUMN, CONTENT, ROWS, found_in
from plait.spark.plan import plans, relations


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
    """The DataFrames given for a stream, each with its way to tell source and seq. `by_rows`: Spark reads all files.

    Names of sources are those of the dict, or of `sources=`, or 0, 1, 2 and so on for a list. Their order in ties is the
    declared one, else by name: the order in which a dict was put together must not show.
    """
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
    """Whether Spark tells columns apart by small and capital letters."""
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def _by_bytes(name: Any) -> Any:
    """Text sorts by its UTF-8 bytes, as keys do."""
    return name.encode() if isinstance(name, str) else name


def _check_alike(stream: Stream, names: list[Any], given: Sequence[Any]) -> None:
    """Refuse DataFrames of one stream whose columns differ in name, type or order."""
    first = arrow_schema(given[0])
    for name, frame in zip(names[1:], given[1:], strict=True):
        if not (schema := arrow_schema(frame)).equals(first):
            raise QueryError(
                f"Stream {stream.name!r}: DataFrames {names[0]!r} and {name!r} differ in their columns",
                why=f"one has {_columns(first)}, the other {_columns(schema)}",
                do="Select and cast the same columns in the same order",
            )


def _columns(schema: pa.Schema) -> str:
    """Columns in words."""
    return ", ".join(f"{f.name} {f.type}" for f in schema)


def _frame(stream: Stream, frame: Any, name: Any, rank: int, by_rows: bool) -> Frame:
    """One DataFrame with all that tasks need to tell source and position.

    With a seq column a source's rows must all come to one task, or no task could tell which tuple came before which: rows
    are parted by the source's column, or one DataFrame is one task. This costs a shuffle, or parallelism. Positions cost
    neither.
    """
    from pyspark.sql import functions as F

    columns = [F.col(quoted(c)) for c in frame.columns]
    extra: list[Any] = []
    naming = source_names.naming_of(stream)
    naming.check(stream, frame)
    kind = COLUMN if stream.seq_column is not None else CONTENT
    if stream.seq == "position":
        kind, extra = found_in(stream, frame)
    found = naming.finds(stream, frame, name)
    extra = extra or list(found.extra)
    if kind is ROWS and not by_rows and (scan := _scan(stream, frame)) is not None:
        return Frame(scan.blocks(frame), naming.name, found.by, rank, kind.name, stream.seq_column, scan)
    selected = frame.select(*columns, *extra) if extra else frame
    if stream.seq_column is not None:
        # Splits of one source must not interleave in seq, or no task can tell what came before: one task a source.
        selected = selected.repartition(F.col(quoted(found.by))) if naming.column else selected.coalesce(1)
    return Frame(selected, naming.name, found.by, rank, kind.name, stream.seq_column)


def _scan(stream: Stream, frame: Any) -> Scan | None:
    """How tasks read the files themselves; None where Spark has to: see `relations`."""
    if not relations.is_plain_parquet(frame):
        return None
    root, schema = relations.root(frame), arrow_schema(frame)
    if root is None or not relations.can_be_read(root, schema):
        return None
    return Scan(stream.name, schema, pack.BLOCK, root)


def check_given(stream: str, data: Any) -> None:
    """Refuse what is no DataFrame, and no list or dict of some."""
    several = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else [data]
    if not several:
        raise QueryError(f"Stream {stream!r} is given no DataFrame", do="Pass one, or one for each source")
    for frame in several:
        if not hasattr(frame, "sparkSession"):
            raise QueryError(
                f"Stream {stream!r} is given {reprlib.repr(frame)}, which is no DataFrame of Spark's",
                do="Read it with spark.read or spark.readStream, or make it with spark.createDataFrame",
            )


def first_of(data: Any) -> Any:
    """One of the DataFrames given for a stream."""
    return (
        next(iter(data.values())) if isinstance(data, Mapping) else data[0] if isinstance(data, (list, tuple)) else data
    )


def all_streaming(given: Mapping[str, list[Frame]]) -> bool:
    """Whether the DataFrames are streams; refused if some are and some are not."""
    kinds = {name: {f.frame.isStreaming for f in found} for name, found in given.items()}
    if len(set().union(*kinds.values())) > 1:
        live = [n for n, k in kinds.items() if True in k]
        still = [n for n, k in kinds.items() if False in k]
        raise QueryError(
            f"Streaming and batch DataFrames are mixed: {', '.join(live)} streaming, {', '.join(still)} not",
            why="a batch is complete and a stream is not, so no one frontier serves both",
            do="Read all of them with spark.readStream, or all with spark.read",
        )
    return next(iter(kinds.values())) == {True}
