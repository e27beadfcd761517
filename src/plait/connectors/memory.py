"""Tables in memory as a feed: Arrow, pandas, anything with Arrow's C stream, and dicts of columns.

One table is one source, or the sources that a column of it names. Where no column does, several tables are several
sources: a list gives them by position, a dict by name. A list of *record batches* is one table cut in pieces.
Chunks are slices of the tables: nothing is copied.

pandas has one mark for "missing" and "not a number" in float columns; like pandas itself, it is read as NULL here.
NumPy arrays and lists keep NaN and NULL apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.connectors.contract import BATCH_ROWS, Chunk, Feed, Lane, SourceName
from plait.connectors.fit import Wanted, check_fit, fit, plain
from plait.connectors.values import check_frame, checked_frame
from plait.connectors.values import column as column_of
from plait.errors import DataError

if TYPE_CHECKING:
    from plait.query.stream import Stream

_KINDS = "Pass an Arrow table or record batches, a pandas DataFrame, or a dict of columns"


def feed(stream: Stream, data: Any) -> Feed:
    """The rows of tables in memory as one stream.

    Args:
        stream: The stream's declaration.
        data: An Arrow table, a record batch or a list of them, a pandas or Polars DataFrame, or a dict of columns. For a stream
            whose sources no column names also a list of these (sources 0, 1, ...) or a dict by source. Names are held against
            the stream's `sources=` where declared, and take its order. A feed is given back as it is.

    Returns:
        A `Feed` with a lane for each table. Its chunks are slices of the tables.

    Raises:
        DataError: The data is no table, has another type than declared, or names other sources than declared.

    Example:
        >>> import plait
        >>> from plait.connectors import memory
        >>> stream = plait.stream("s", unit="s", sources=["x", "y"])
        >>> feed = memory.feed(stream, {"y": {"ts": [3]}, "x": {"ts": [1, 2]}})
        >>> [lane.source for lane in feed.lanes]
        ['x', 'y']
    """
    if isinstance(data, Feed):
        return data  # already made, by whichever connector
    tables = _sources(stream, data)
    if stream.schema is not None:
        wanted = Wanted(stream.schema, "schema= declares", exact=False)
    else:
        first, table = next(iter(tables.items()))
        wanted = Wanted(plain(table.schema), f"source {first!r} has", exact=True)
    lanes = []
    for source, table in tables.items():
        where = "" if len(tables) == 1 else f"source {source!r}"
        check_fit(table.schema, wanted, f"Stream {stream.name!r}, {where}".rstrip(", "))
        lanes.append(_lane(source, table, wanted.schema, where))
    rows, size = (sum(sizes) for sizes in zip(*((t.num_rows, t.nbytes) for t in tables.values()), strict=True))
    return Feed(wanted.schema, tuple(lanes), rows, size)


def _lane(source: SourceName | None, table: pa.Table, schema: pa.Schema, where: str) -> Lane:
    """A lane over slices of a table."""

    def read() -> Iterator[Chunk]:
        row = 0
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            yield Chunk(fit(batch, schema, where, row), where, row)
            row += batch.num_rows

    return Lane(source, read)


def in_seq_order(stream: Stream, given: Feed) -> Feed:
    """Rows of a table have no order of their own where a column says what it is: they are sorted by it, when they are read.

    Not before: whether the column can order anything is told when the query meets its columns.
    """
    if stream.seq_column is None:
        return given

    def read(lane: Lane) -> Iterator[Chunk]:
        rows = pa.Table.from_batches([chunk.batch for chunk in lane.read()], given.schema)
        return (Chunk(batch) for batch in rows.sort_by(stream.seq).to_batches())

    return replace(given, lanes=tuple(Lane(each.source, partial(read, each)) for each in given.lanes))


# --- which tables, under which names ------------------------------------------------------------------------


def _sources(stream: Stream, data: Any) -> dict[SourceName | None, pa.Table]:
    """Which tables there are, under which source's name."""
    declared = stream.declared()
    by_name = isinstance(data, Mapping) and bool(data) and all(_is_table(value) for value in data.values())
    pieces = isinstance(data, (list, tuple)) and all(isinstance(item, pa.RecordBatch) for item in data)
    by_position = isinstance(data, (list, tuple)) and not pieces
    if (column := stream.source_column) is not None:
        if by_name or by_position:
            raise DataError(
                f"Stream {stream.name!r} is given several tables, and its sources are named by column {column!r}",
                why="a source in two tables would have no order of its own",
                do="Pass one table with the rows of all sources, or declare the stream without source=",
            )
        return {None: _table(stream, data, "")}
    if by_name:
        return _named(stream, data, declared)
    if stream.source == "@file" or (stream.source == "@partition" and not by_position):
        raise DataError(
            f"Stream {stream.name!r} takes its sources' names from {stream.source}, and a bare table has none",
            do="Pass a dict of source name -> table",
        )
    items: Sequence[Any] = data if by_position else [data]
    names: Sequence[SourceName] = range(len(items)) if declared is None else declared
    if len(names) != len(items):
        sources, given = _count(len(names), "source"), _count(len(items), "table")
        raise DataError(
            f"Stream {stream.name!r} declares {sources} and is given {given}",
            why="each table is one source when no column names the source",
            do="Pass one table a source: a list by position, or a dict of source name -> table",
        )
    several = len(items) > 1
    return {
        name: _table(stream, item, f"source {name!r}" if several else "")
        for name, item in zip(names, items, strict=True)
    }


def _named(
    stream: Stream, data: Mapping[Any, Any], declared: tuple[SourceName, ...] | None
) -> dict[SourceName | None, pa.Table]:
    """Tables by source, in the declared order or by their names."""
    for name in data:
        if isinstance(name, bool) or not isinstance(name, (int, str)) or type(name) is not type(next(iter(data))):
            raise DataError(
                f"Stream {stream.name!r}: {name!r} can't name a source here",
                why="the names of a stream's sources are all integers or all text",
            )
    if declared is None:
        # Not the dict's own order: how it was put together must not decide ties. Text sorts by its UTF-8 bytes.
        declared = tuple(sorted(data, key=lambda name: name.encode() if isinstance(name, str) else name))
    check_names(stream, list(data), declared, "table")
    return {name: _table(stream, data[name], f"source {name!r}") for name in declared}


def check_names(stream: Stream, given: Sequence[SourceName], declared: tuple[SourceName, ...], what: str) -> None:
    """Refuse a table or file for a source that is not declared, and a declared source without one."""
    listed = ", ".join(map(repr, declared))
    for name in given:
        if name not in declared:
            raise DataError(
                f"Stream {stream.name!r} is given a {what} for source {name!r}, which is not declared",
                why=f"its sources= are {listed}",
                do="Add the name to sources=, or leave the data out",
            )
    for name in declared:
        if name not in given:
            raise DataError(
                f"Stream {stream.name!r} declares source {name!r}, and no {what} is given for it",
                why=f"there is one for {', '.join(map(repr, given))}",
                do="Pass an empty one if the source has nothing to say",
            )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# --- one table ----------------------------------------------------------------------------------------------


def _is_frame(data: Any) -> bool:
    """pandas by its module's name, so that it need not be imported; others by Arrow's C stream and their columns."""
    pandas = type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")
    return pandas or (hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"))


def is_columns(data: Mapping[Any, Any]) -> bool:
    """Whether a dict is one of columns: none of its values is a table, a feed or a path."""
    return bool(data) and not any(_is_table(v) or isinstance(v, (Feed, str, os.PathLike)) for v in data.values())


def _is_table(value: Any) -> bool:
    if isinstance(value, (pa.Table, pa.RecordBatch, Mapping)) or _is_frame(value):
        return True
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(v, pa.RecordBatch) for v in value)


def _table(stream: Stream, data: Any, where: str) -> pa.Table:
    """One table of whatever kind, as Arrow's."""
    what = f"Stream {stream.name!r}, {where}" if where else f"Stream {stream.name!r}"
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, (list, tuple)) and all(isinstance(item, pa.RecordBatch) for item in data):
        return _joined(stream, data, what)
    if isinstance(data, Mapping) and data:
        return _columns(stream, data, what)
    if _is_frame(data):
        try:
            if type(data).__module__.partition(".")[0] == "pandas":
                check_frame(data, what)
                return checked_frame(pa.Table.from_pandas(data, preserve_index=False), data, what)
            return pa.table(data)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{what}: the DataFrame has no Arrow form", why=str(error), do="Convert the column named"
            ) from None
    if isinstance(data, (pa.RecordBatchReader, Iterator)):
        raise DataError(
            f"{what} is given a {type(data).__name__}",
            why="it can be read only once, and a feed is read from the beginning each time",
            do="Pass its read_all(), or list(...) of its batches",
        )
    raise DataError(f"{what} is given {_short(data)}, which is no table", do=_KINDS)


def _joined(stream: Stream, batches: Sequence[pa.RecordBatch], what: str) -> pa.Table:
    """Record batches as one table; they must have the same columns."""
    if not batches:
        if stream.schema is None:
            raise DataError(
                f"{what} is given an empty list", why="its columns can't be known", do="Declare schema=, or " + _KINDS
            )
        return stream.schema.empty_table()
    wanted = Wanted(plain(batches[0].schema), "batch 0 has", exact=True)
    for number, batch in enumerate(batches):
        check_fit(batch.schema, wanted, f"{what}, batch {number}")
    return pa.Table.from_batches([fit(batch, wanted.schema, what, 0) for batch in batches])


def _columns(stream: Stream, data: Mapping[Any, Any], what: str) -> pa.Table:
    """A dict of columns. A declared type is asked for when the column is made, and nothing changes on the way (`values`)."""
    declared = {} if stream.schema is None else {field.name: field.type for field in stream.schema}
    columns: dict[str, Any] = {}
    for name, values in data.items():
        if not isinstance(name, str) or any("\ud800" <= each <= "\udfff" for each in name):
            raise DataError(f"{what}: {name!r} can't name a column", do="Pass text as the columns' names")
        if _is_table(values):
            raise DataError(
                f"{what}: {name!r} is a table, and others in the same dict are columns",
                do="Pass a dict of columns, or a dict of source name -> table",
            )
        columns[name] = _column(values, declared.get(name), f"{what}: column {name!r}")
    lengths = {name: len(column) for name, column in columns.items()}
    longest, shortest = max(lengths, key=lengths.__getitem__), min(lengths, key=lengths.__getitem__)
    if lengths[longest] != lengths[shortest]:
        rows = _count(lengths[longest], "row")
        raise DataError(
            f"{what}: column {longest!r} has {rows} and {shortest!r} has {lengths[shortest]}",
            why="the columns of a table are equally long",
        )
    return pa.table(columns)


def _column(values: Any, kind: pa.DataType | None, what: str) -> Any:
    """A column of a dict, as Arrow's."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values  # Arrow data says what it is: `check_fit` judges it
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise DataError(
            f"{what} is {_short(values)}, which is no column",
            why="a column is a list or an array, one value a row",
            do="For rows given as dicts, pass pyarrow.Table.from_pylist(rows)",
        )
    return column_of(values, kind, what)


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
