"""A task's rows by position: what orders the rows of a source, as numbers where it can be, and spelled as key pieces only
for those rows of which somebody asks the key.
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
from plait.errors import DataError
from plait.order import decode, encode
from plait.spark.plan.layout import mix

#: Columns that `frames` adds to a DataFrame so that a tuple's position can be told.
PATH, ROW, BLOCK = "_plait_path", "_plait_row", "_plait_block"

#: What a column is called on its way to a task, with its number, where PySpark can't take its own name.
HANDED = "_plait_column_"


@dataclass(frozen=True)
class Positions:
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
    below = np.zeros(max(len(columns[0]) - 1, 0), bool)
    level = ~below
    for column in columns:
        below |= level & (column[1:] > column[:-1])
        level &= column[1:] == column[:-1]
    return bool((below | level).all())


def positions(
    kind: str, table: pa.Table, *, stream: str, seq_column: str | None, columns: tuple[str, ...]
) -> Positions:
    """Of a task's rows; `kind` is a pack plan's `seq`."""
    n = table.num_rows
    if kind == "content":
        pieces = [keys.wrapped(table.column(c).combine_chunks(), signed_zero=True) for c in columns]
        return _spelled(keys.nest(keys.join(*pieces, n=n), n=n))
    if kind == "column":
        assert seq_column is not None
        return _of_column(table.column(seq_column).combine_chunks(), stream, seq_column)
    if kind == "kafka":
        # The whole of a position: a source that a column names and that spans partitions has no order, and is refused
        # when a later batch brings an earlier partition's rows.
        rank, topics = _ranked(table.column("topic").combine_chunks())
        partition, offset = (table.column(c).to_numpy().astype(np.int64) for c in ("partition", "offset"))

        def of_kafka(at: np.ndarray) -> pa.Array:
            parts = keys.ints(partition[at]), topics.take(pa.array(rank[at])), keys.ints(offset[at])
            return keys.nest(keys.join(*parts, n=len(at)), n=len(at))

        return Positions((partition, rank, offset), of_kafka, lambda: offset.astype(np.uint64), (partition, rank))
    rank, paths = _ranked(table.column(PATH).combine_chunks())
    if kind == "row":
        row = table.column(ROW).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)

        def of_row(at: np.ndarray) -> pa.Array:
            return keys.nest(keys.join(paths.take(pa.array(rank[at])), keys.ints(row[at]), n=len(at)), n=len(at))

        return Positions((rank, row), of_row, lambda: row.astype(np.uint64), (rank,))
    block = table.column(BLOCK).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    # Rows are numbered as the scan reads them: a task reads a block in one go.
    begins = changes((rank, block))
    running = np.arange(n, dtype=np.int64) - np.flatnonzero(begins)[np.cumsum(begins) - 1]

    def of_block(at: np.ndarray) -> pa.Array:
        parts = paths.take(pa.array(rank[at])), keys.ints(block[at]), keys.ints(running[at])
        return keys.nest(keys.join(*parts, n=len(at)), n=len(at))

    return Positions(
        (rank, block, running),
        of_block,
        lambda: mix(block.astype(np.uint64)) ^ running.astype(np.uint64),
        (rank, block),
    )


def _of_column(column: pa.Array, stream: str, name: str) -> Positions:
    if column.null_count:
        raise DataError(f"Stream {stream!r}: seq column {name!r} is NULL", why="it orders the tuples")
    if not pa.types.is_integer(column.type) or pa.types.is_uint64(column.type):
        return _spelled(keys.wrapped(column))
    numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)

    def pieces(at: np.ndarray) -> pa.Array:
        return keys.wrapped(column.take(pa.array(at)))

    return Positions((numbers,), pieces, lambda: numbers.astype(np.uint64))


def _spelled(pieces: pa.Array) -> Positions:
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


def told(piece: bytes) -> str:
    """A seq's key piece for a person: the file and row, Kafka's offset, or the seq column's value."""
    (found,) = decode(piece)
    if len(found) == 3 and isinstance(found[0], int):
        return f"offset {found[2]} of topic {found[1].decode(errors='replace')!r}, partition {found[0]}"
    if isinstance(found[0], bytes):
        path = found[0].decode(errors="replace")
        return f"{path}, row {found[1]}" if len(found) == 2 else f"{path}, row {found[2]} from byte {found[1]} on"
    if isinstance(found[0], tuple):
        return "a row"  # ties by content: its place is its content
    value = found[-1].decode(errors="replace") if isinstance(found[-1], bytes) else found[-1]
    return f"seq {value!r}"


def of_one_file(one: bytes, other: bytes) -> bool:
    """Whether two seqs' key pieces name rows of the same file."""
    (a,), (b,) = decode(one), decode(other)
    return isinstance(a[0], bytes) and len(a) == len(b) and a[0] == b[0]
