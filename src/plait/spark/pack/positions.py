"""Positions: what orders the rows of a source on Spark, as numbers where it can be, and spelled as key pieces only for those rows
of which somebody asks the key.

A kind of position is a record (`Kind`) that says all there is to know of it: how a plan finds out whether a DataFrame's rows have
it, how a task reads it, how it is told to a person. Who packs asks for no kind by its name, so another source of rows that has
positions of its own is a record here, in `_OURS`.

Where it runs: `finds` on the driver, when a query is planned; `read` in each task that packs; `told` wherever a row has
to be named to a person. A position must be the same whenever and by whichever task a row is read: it is part of the row's
key, and so of the results' order and of `_plait_key`. Changing how a kind spells its pieces changes the bytes of results.
Checkpoints have each source's last position in the old spelling, and would compare wrongly with it. Held by
tests/spark/test_kinds.py and tests/spark/test_inputs.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.errors import DataError, QueryError
from plait.order import decode, encode
from plait.query.stream import Stream
from plait.spark.plan import plans
from plait.spark.plan.layout import mix

#: Columns that `frames` adds to a DataFrame so that a tuple's position can be told.
PATH, ROW, BLOCK = "_plait_path", "_plait_row", "_plait_block"

#: What a column is called on its way to a task, with its number, where PySpark can't take its own name.
HANDED = "_plait_column_"


@dataclass(frozen=True)
class Positions:
    """A task's rows by position. Row numbers are places in the task's table."""

    by: tuple[Any, ...]  # columns that order the rows, the first one first: numbers, or key pieces as they are
    pieces: Callable[[np.ndarray], pa.Array]  # key pieces of rows by number
    words: Callable[[], np.ndarray]  # 64 bits for each row, to route it by
    runs: tuple[np.ndarray, ...] = ()  # where one of these changes, rows of another task may lie in between

    def order(self, source: np.ndarray) -> np.ndarray | None:
        """Row numbers by (source, position); None if they stand so already."""
        n = len(source)
        if not all(isinstance(column, np.ndarray) for column in self.by):
            table = {"s": pa.array(source)} | {str(k): column for k, column in enumerate(self.by)}
            made = pc.sort_indices(pa.table(table), sort_keys=[(name, "ascending") for name in table])
            return np.asarray(made)
        if _rising(self.by):
            # As a scan gives them. There are few sources: their numbers are sorted by digits.
            small = source.astype(np.uint16) if n and int(source.max()) < 1 << 16 else source
            return None if _rising((source,)) else np.argsort(small, kind="stable")
        return np.lexsort((*reversed(self.by), source))

    def repeated(self, order: np.ndarray) -> np.ndarray:
        """Of rows in this order, whether each but the first is where the one before it is."""
        same = np.ones(len(order) - 1, bool)
        for column in self.by:
            own = column[order] if isinstance(column, np.ndarray) else column.take(pa.array(order))
            if isinstance(own, np.ndarray):
                same &= own[1:] == own[:-1]
            else:
                same &= pc.equal(own.slice(1), own.slice(0, len(own) - 1)).to_numpy(zero_copy_only=False)
        return same


def _rising(columns: tuple[Any, ...]) -> bool:
    """Whether rows stand in the order of these columns already, the first one first; equal neighbours are allowed."""
    below = np.zeros(max(len(columns[0]) - 1, 0), bool)
    level = ~below
    for column in columns:
        below |= level & (column[1:] > column[:-1])
        level &= column[1:] == column[:-1]
    return bool((below | level).all())


def _spelled(pieces: pa.Array) -> Positions:
    """Positions for which only the key pieces order rows: text, decimals, whole rows."""

    def words() -> np.ndarray:
        return np.fromiter((zlib.crc32(piece) for piece in pieces.to_pylist()), np.uint64, len(pieces))

    return Positions((pieces,), lambda at: pieces.take(pa.array(at)), words)


def _ranked(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """Each text's rank by its bytes, and the key pieces by rank."""
    encoded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    pieces = [encode((value,)) for value in encoded.dictionary.to_pylist()]
    place = np.empty(len(pieces), np.int64)
    place[sorted(range(len(pieces)), key=pieces.__getitem__)] = np.arange(len(pieces))
    return place[encoded.indices.to_numpy(zero_copy_only=False)], pa.array(sorted(pieces), pa.binary())


def changes(columns: tuple[np.ndarray, ...]) -> np.ndarray:
    """Where any of these is another than in the row before; in the first row."""
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = False
    for column in columns:
        begins[1:] |= column[1:] != column[:-1]
    return begins


def unquoted(paths: pa.Array) -> pa.Array:
    """Spark gives a file's path as a URL; names are ordered, and name sources, as they are on disk."""
    encoded = pc.dictionary_encode(paths)
    plain = [unquote(path) for path in encoded.dictionary.to_pylist()]
    # Spark writes file:/x for a path with something to escape in it, and file:///x for any other.
    plain = [f"file:///{path[5:].lstrip('/')}" if path.startswith("file:/") else path for path in plain]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(plain, pa.string()))


# --- kinds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A task's rows, and what there is to know of their stream."""

    table: pa.Table
    stream: str
    seq_column: str | None
    columns: tuple[str, ...]  # of the user's, that the task reads


#: Of a DataFrame of a stream, the columns (of Spark's) to be added to it so that tasks can tell positions; None if its rows
#: have no positions of this kind.
Finds = Callable[[Stream, Any], list[Any] | None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What can order the rows of a source. All that there is to know of it, for the plan and for tasks.

    name      as plans have it
    finds     whether a DataFrame's rows have such positions (`seq="position"`); None: only the user's word makes it so
    read      a task's rows by position
    told      a key piece, decoded, for a person; None if it is of no row by this kind of position
    of_file   the file that a position lies in, by its key piece; None: positions lie in none
    columns   the user's columns that tell it, which tasks must have
    marks     columns that `finds` adds, by name
    ordered   whether rows have an order among those of their batch
    copies    a row that stands twice: why that can't be, and what to do; None: it can't come to that
    skipping  how a user skips a row that can't be read
    """

    name: str
    finds: Finds | None
    read: Callable[[Given], Positions]
    told: Callable[[Any], str | None]
    of_file: Callable[[Any], bytes | None] = lambda found: None
    columns: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    ordered: bool = True
    copies: Callable[[str | None], tuple[str, str]] | None = None
    skipping: str = "filter such rows out of the DataFrame"


def _copied(column: str | None) -> tuple[str, str]:
    """Why a row can't stand twice, and what to do."""
    return (
        "a position orders a source's tuples, and is one tuple's",
        "Take away what makes copies of rows, or let ties go by content (seq='content')",
    )


# By content: rows that are alike have one place, and their order among themselves shows nowhere.


def _by_content(given: Given) -> Positions:
    """Positions of rows that are ordered by all they hold: the piece is the whole row. 0.0 and -0.0 differ here."""
    n = given.table.num_rows
    pieces = [keys.wrapped(given.table.column(c).combine_chunks(), signed_zero=True) for c in given.columns]
    return _spelled(keys.nest(keys.join(*pieces, n=n), n=n))


CONTENT = Kind(
    name="content", finds=None, read=_by_content, ordered=False,
    told=lambda found: "a row" if isinstance(found, tuple) and isinstance(found[0], tuple) else None,
)  # fmt: skip


# By a column of the user's.


def _by_column(given: Given) -> Positions:
    """Positions by a seq column: as numbers where they are integers that fit 64 bits with a sign, else spelled."""
    name = given.seq_column
    assert name is not None
    column = given.table.column(name).combine_chunks()
    if column.null_count:
        raise DataError(f"Stream {given.stream!r}: seq column {name!r} is NULL", why="it orders the tuples")
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return _spelled(keys.wrapped(column))
    numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return Positions((numbers,), lambda at: keys.wrapped(column.take(pa.array(at))), lambda: numbers.astype(np.uint64))


def _value_told(found: Any) -> str | None:
    if not isinstance(found, tuple):
        return None
    value = found[-1].decode(errors="replace") if isinstance(found[-1], bytes) else found[-1]
    return f"seq {value!r}"


def _copied_value(column: str | None) -> tuple[str, str]:
    return (
        f"column {column!r} orders a source's tuples, and two with one value have no order",
        "Choose a column whose values do not repeat within a source, or seq='content'",
    )


COLUMN = Kind(name="column", finds=None, read=_by_column, told=_value_told, copies=_copied_value)


# By Kafka's offset.

#: Kafka's columns as Spark gives them, which tell a row's position.
KAFKA_COLUMNS = {"partition": "int", "offset": "bigint", "topic": "string"}


def _is_kafka(stream: Stream, frame: Any) -> list[Any] | None:
    """Kafka's rows have the columns of KAFKA_COLUMNS, with these very types. No column has to be added."""
    types = dict(frame.dtypes)
    if any(types.get(name) != kind for name, kind in KAFKA_COLUMNS.items()):
        return None
    if stream.source is None:
        raise QueryError(
            f"Stream {stream.name!r}: seq='position' on Kafka's rows, all of one source",
            why="offsets count within a partition, and there is no order between partitions",
            do="Say source=plait.PARTITION, or name a column whose values each stay in one partition",
        )
    return []


def _by_offset(given: Given) -> Positions:
    """Positions by (partition, topic, offset). Another partition or topic begins another run: other tasks have rows in
    between.
    """
    # The whole of a position: a source that a column names and that spans partitions has no order, and is refused
    # when a later batch brings an earlier partition's rows.
    rank, topics = _ranked(given.table.column("topic").combine_chunks())
    partition, offset = (given.table.column(c).to_numpy().astype(np.int64) for c in ("partition", "offset"))

    def pieces(at: np.ndarray) -> pa.Array:
        parts = keys.ints(partition[at]), topics.take(pa.array(rank[at])), keys.ints(offset[at])
        return keys.nest(keys.join(*parts, n=len(at)), n=len(at))

    return Positions((partition, rank, offset), pieces, lambda: offset.astype(np.uint64), (partition, rank))


def _offset_told(found: Any) -> str | None:
    if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], int)):
        return None
    return f"offset {found[2]} of topic {found[1].decode(errors='replace')!r}, partition {found[0]}"


KAFKA = Kind(
    name="kafka", finds=_is_kafka, read=_by_offset, told=_offset_told, columns=tuple(KAFKA_COLUMNS), copies=_copied
)


# By file and row: Parquet, of which Spark knows the number of every row.


def _path() -> Any:
    from pyspark.sql import functions as F

    return F.col("_metadata.file_path").alias(PATH)


def _has_rows(stream: Stream, frame: Any) -> list[Any] | None:
    """Whether Spark can tell the row's number in its file: Parquet alone, as yet."""
    from pyspark.sql import functions as F

    extra = [_path(), F.col("_metadata.row_index").cast("long").alias(ROW)]
    return extra if plans.has(frame, *extra) else None


def _by_row(given: Given) -> Positions:
    """Positions by (path, row). Paths are ranked by their bytes; only ranks are compared."""
    rank, paths = _ranked(given.table.column(PATH).combine_chunks())
    row = given.table.column(ROW).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)

    def pieces(at: np.ndarray) -> pa.Array:
        return keys.nest(keys.join(paths.take(pa.array(rank[at])), keys.ints(row[at]), n=len(at)), n=len(at))

    return Positions((rank, row), pieces, lambda: row.astype(np.uint64), (rank,))


def _in_file(length: int) -> Callable[[Any], bytes | None]:
    """Of a kind whose pieces are tuples of this length, the first of which is a path: that path."""

    def of_file(found: Any) -> bytes | None:
        placed = isinstance(found, tuple) and len(found) == length and isinstance(found[0], bytes)
        return found[0] if placed else None

    return of_file


def _row_told(found: Any) -> str | None:
    path = ROWS.of_file(found)
    return None if path is None else f"{path.decode(errors='replace')}, row {found[1]}"


ROWS = Kind(
    name="row", finds=_has_rows, read=_by_row, told=_row_told, of_file=_in_file(2), marks=(PATH, ROW), copies=_copied
)


# By file, block and place in it: files without row numbers, which a task counts as it reads them.


def _has_blocks(stream: Stream, frame: Any) -> list[Any] | None:
    """Whether Spark can tell the block that a row lies in: files of text. Nothing may stand above the files, since a filter
    would shift the numbers that tasks count.
    """
    from pyspark.sql import functions as F

    extra = [_path(), F.col("_metadata.file_block_start").cast("long").alias(BLOCK)]
    if not plans.has(frame, *extra):
        return None
    if not plans.is_scan(frame):
        raise QueryError(
            f"Stream {stream.name!r}: seq='position' on a DataFrame that changes its files' rows",
            why="CSV and JSON files have no row numbers of their own, so plait must count them as they are read",
            do="Hand over the DataFrame as spark.read or readStream gives it, or name a seq column",
        )
    return extra


def _by_block(given: Given) -> Positions:
    """Positions by (path, where the block begins, number in the block). A block begins another run: other tasks may have its
    neighbours.
    """
    rank, paths = _ranked(given.table.column(PATH).combine_chunks())
    block = given.table.column(BLOCK).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    # Rows are numbered as the scan reads them: a task reads a block in one go.
    begins = changes((rank, block))
    running = np.arange(len(rank), dtype=np.int64) - np.flatnonzero(begins)[np.cumsum(begins) - 1]

    def pieces(at: np.ndarray) -> pa.Array:
        parts = paths.take(pa.array(rank[at])), keys.ints(block[at]), keys.ints(running[at])
        return keys.nest(keys.join(*parts, n=len(at)), n=len(at))

    return Positions(
        (rank, block, running),
        pieces,
        lambda: mix(block.astype(np.uint64)) ^ running.astype(np.uint64),
        (rank, block),
    )


def _block_told(found: Any) -> str | None:
    path = BLOCKS.of_file(found)
    return None if path is None else f"{path.decode(errors='replace')}, row {found[2]} from byte {found[1]} on"


BLOCKS = Kind(
    name="block", finds=_has_blocks, read=_by_block, told=_block_told, of_file=_in_file(3), marks=(PATH, BLOCK),
    skipping="mend the file, or name a seq column and filter such rows out",
)  # fmt: skip

#: In the order in which a DataFrame is asked for them, and a key piece is looked at. A seq column may hold anything: it is last.
_OURS = (KAFKA, ROWS, BLOCKS, CONTENT, COLUMN)
_known: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Make a kind of position known to this process; tasks know those that are in `_OURS`."""
    if _known.get(kind.name, kind) != kind:
        raise QueryError(f"There is a kind of position {kind.name!r} already", do="Choose another name")
    _known[kind.name] = kind


for _each in _OURS:
    register(_each)


def kinds() -> tuple[Kind, ...]:
    return tuple(_known.values())


def kind(name: str) -> Kind:
    return _known[name]


def found_in(stream: Stream, frame: Any) -> tuple[Kind, list[Any]]:
    """The kind of position that a DataFrame's rows have, and the columns to be added to it."""
    for each in kinds():
        if each.finds is not None and (extra := each.finds(stream, frame)) is not None:
            return each, extra
    raise QueryError(
        f"Stream {stream.name!r}: seq='position', and rows of its DataFrame have no position",
        why="only files and Kafka give one; Spark promises no order for the rest",
        do="Name a seq column (plait.stream(..., seq='id')), or let ties go by content (seq='content')",
    )


def told(piece: bytes) -> str:
    """A seq's key piece for a person: the file and row, Kafka's offset, or the seq column's value."""
    (found,) = decode(piece)
    return next((words for each in kinds() if (words := each.told(found)) is not None), f"seq {found!r}")


def of_one_file(one: bytes, other: bytes) -> bool:
    """Whether two seqs' key pieces name rows of the same file."""
    (a,), (b,) = decode(one), decode(other)
    return any(each.of_file(a) is not None and each.of_file(a) == each.of_file(b) for each in kinds())
