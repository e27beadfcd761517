"""Pack: on the source's tasks, tuples become one packed row per (task, cell), with the task's punctuation.

A task sorts its tuples by (source, seq), so its output does not depend on the order of its input; where a tuple goes is
a function of its own key. No counter of tasks or attempts, no clock, no random number has a part in it: a stage that is
retried in part sends the same bytes.

Punctuation (SplitJoin's idea) goes to every cell, also to those that get no tuple: for each source of the task, the
first position, the largest ts, and the first tuple that ran back too far within the task. From the punctuation of all
tasks every cell computes the same frontier, with no coordinator.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import DataError
from plait.operators import keys
from plait.order import decode
from plait.schema import to_micros
from plait.spark import wire
from plait.spark.layout import mix
from plait.spark.shipping import Shipping, Tuples

#: Columns that `source.py` adds to a DataFrame so that a tuple's position can be told.
PATH, ROW, BLOCK = "_plait_path", "_plait_row", "_plait_block"


@dataclass(frozen=True)
class PackPlan:
    """How one DataFrame of a stream becomes packed rows. Pickled into the tasks."""

    stream: str
    inputs: tuple[
        int, ...
    ]  # the operator's inputs that this stream feeds: two for a self-join, none if it is only heard
    columns: tuple[str, ...]
    time: str
    unit: str | None
    disorder_us: int
    late: str
    source: str  # "column", "file" or "constant"
    source_name: Any  # the column, the folder's root, or the name itself
    source_rank: int  # for "constant": the declared position
    seq: str  # "row" (path and row), "block" (path, block, running), "offset", "kafka", "column", "content"
    seq_column: str | None
    ship: Shipping
    where: str = "spark"

    def mapper(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        return lambda batches: pack(self, batches)


def pack(plan: PackPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else None  # type: ignore[assignment]
    if table is None or table.num_rows == 0:
        return
    table = table.combine_chunks()
    if PATH in table.column_names:
        table = table.set_column(table.column_names.index(PATH), PATH, _unquoted(table.column(PATH).combine_chunks()))
    rows = _ordered(plan, table)
    splits, late = _splits(plan, rows)
    beside = {wire.SPLIT: pa.array(rows.split)} | ({} if late is None else {wire.LATE_FLAG: pa.array(late)})
    tuples = Tuples(rows.table, rows.ts, rows.own_keys, lambda: rows.hashes, beside)
    schema = pa.schema([("cell", pa.int32()), ("body", pa.binary())])
    if not plan.inputs:
        body = wire.body({"stream": plan.stream, "splits": splits, "panes": False})
        yield pa.record_batch([list(cells := plan.ship.layout.keys), [body] * len(cells)], schema=schema)
    for number, input in enumerate(plan.inputs):
        header = {"stream": plan.stream, "input": input, "splits": splits if number == 0 else [], "split_of": splits}
        header["panes"] = plan.ship.folds
        for cell, part in zip(plan.ship.layout.keys, plan.ship.parts(input, tuples), strict=True):
            body = wire.body(header, part if part.num_rows else None)
            yield pa.record_batch([[cell], [body]], schema=schema)


@dataclass
class _Rows:
    """A task's tuples by (source, seq): event times, own keys, and the splits they fall into.

    A split is a run of one source's positions with no other task's in between. Tasks take files in any company, so a
    file (of files without row numbers a block) is a split of its own.
    """

    table: pa.Table
    ts: np.ndarray
    own_key: pa.Array
    hashes: np.ndarray
    split: np.ndarray  # each tuple's split
    names: list[Any]  # each split's source
    seq: pa.Array

    def own_keys(self, places: np.ndarray | None) -> pa.Array:
        return self.own_key if places is None else self.own_key.take(pa.array(places))


def _times(plan: PackPlan, table: pa.Table) -> np.ndarray:
    column = table.column(plan.time)

    def micros(first: int, rows: int) -> np.ndarray:
        return to_micros(column.slice(first, rows), plan.unit, stream=plan.stream, name=plan.time, where=plan.where)

    try:
        return micros(0, table.num_rows)
    except DataError:
        # Which row of the task's is at fault says nothing to a person: find it, and tell its place in its source.
        good, bad = 0, table.num_rows
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                micros(good, middle - good)
                good = middle
            except DataError:
                bad = middle
        try:
            micros(good, 1)
        except DataError as error:
            raise _placed(plan, table, good, error) from None
        raise


def _placed(plan: PackPlan, table: pa.Table, row: int, error: DataError) -> DataError:
    names, codes, _ = _source(plan, table, table.num_rows)
    place = position(_seq(plan, table, table.num_rows)[0][row].as_py())
    mend = "mend the file, or name a seq column and filter such rows out"
    return DataError(
        f"Stream {plan.stream!r}, source {names[codes[row]]!r}, {place}: {error.fact.partition(': ')[2]}",
        why=error.why,
        do=f"To skip it, {mend if plan.seq == 'block' else 'filter such rows out of the DataFrame'} and restart",
    )


def _ordered(plan: PackPlan, table: pa.Table) -> _Rows:
    ts = _times(plan, table)
    n = len(ts)
    names, codes, rank = _source(plan, table, n)
    seq, words = _seq(plan, table, n)
    order = pc.sort_indices(
        pa.table({"s": pa.array(codes), "q": seq}), sort_keys=[("s", "ascending"), ("q", "ascending")]
    )
    own = keys.join(rank.take(pa.array(codes)), seq, n=n)
    at = order.to_numpy()
    salt = np.array([zlib.crc32(str(name).encode()) for name in names], np.uint64)[codes]
    hashes = mix(words ^ (salt << np.uint64(32)))
    table, codes, seq = table.take(order), codes[at], seq.take(order)
    begins = np.ones(n, bool)
    begins[1:] = codes[1:] != codes[:-1]
    if plan.seq in ("row", "block"):
        begins |= _file_begins(table, blocks=plan.seq == "block")
    if plan.seq == "kafka":
        begins |= _partition_begins(table)
    if plan.seq == "column":
        _check_repeated(plan, seq, begins, [names[code] for code in codes])
    split = (np.cumsum(begins) - 1).astype(np.int32)
    return _Rows(table, ts[at], own.take(order), hashes[at], split, [names[code] for code in codes[begins]], seq)


def _file_begins(table: pa.Table, *, blocks: bool) -> np.ndarray:
    """Where rows of another file, or block, begin."""
    begins = np.ones(table.num_rows, bool)
    path = pc.dictionary_encode(table.column(PATH).combine_chunks()).indices.to_numpy()
    begins[1:] = path[1:] != path[:-1]
    if blocks:
        block = table.column(BLOCK).to_numpy()
        begins[1:] |= block[1:] != block[:-1]
    return begins


def _partition_begins(table: pa.Table) -> np.ndarray:
    """Where rows of another Kafka partition begin."""
    begins = np.ones(table.num_rows, bool)
    for name in ("partition", "topic"):
        of = pc.dictionary_encode(table.column(name).combine_chunks()).indices.to_numpy()
        differs = of[1:] != of[:-1]
        begins[1:] = differs if name == "partition" else begins[1:] | differs
    return begins


def _check_repeated(plan: PackPlan, seq: pa.Array, begins: np.ndarray, names: list[Any]) -> None:
    same = pc.equal(seq.slice(1), seq.slice(0, len(seq) - 1)).to_numpy(zero_copy_only=False)
    at = np.flatnonzero(same & ~begins[1:])
    if len(at):
        raise DataError(
            f"Stream {plan.stream!r}, source {names[at[0]]!r}: {position(seq[int(at[0])].as_py())} stands twice",
            why=f"column {plan.seq_column!r} orders a source's tuples, and two with one value have no order",
            do="Choose a column whose values do not repeat within a source, or seq='content'",
        )


def position(piece: bytes) -> str:
    """A seq's key piece for a person: the file and row, the offset, or the seq column's value."""
    (found,) = decode(piece)
    if not isinstance(found, tuple):
        return f"offset {found}"
    if len(found) == 3 and isinstance(found[0], int):
        return f"offset {found[2]} of topic {found[1].decode(errors='replace')!r}, partition {found[0]}"
    if isinstance(found[0], bytes):
        path = found[0].decode(errors="replace")
        return f"{path}, row {found[1]}" if len(found) == 2 else f"{path}, row {found[2]} from byte {found[1]} on"
    if isinstance(found[0], tuple):
        return "a row"  # ties by content: its place is its content
    value = found[-1].decode(errors="replace") if isinstance(found[-1], bytes) else found[-1]
    return f"seq {value!r}"


def _unquoted(paths: pa.Array) -> pa.Array:
    """Spark gives a file's path as a URL; names are ordered, and name sources, as they are on disk."""
    encoded = pc.dictionary_encode(paths)
    plain = [unquote(path) for path in encoded.dictionary.to_pylist()]
    # Spark writes file:/x for a path with something to escape in it, and file:///x for any other.
    plain = [f"file:///{path[5:].lstrip('/')}" if path.startswith("file:/") else path for path in plain]
    return pa.array(plain, pa.string()).take(encoded.indices)


def _source(plan: PackPlan, table: pa.Table, n: int) -> tuple[list[Any], np.ndarray, pa.Array]:
    """Names of the task's sources in order, each row's number among them, and the names' key pieces."""
    if plan.source == "constant":
        return [plan.source_name], np.zeros(n, np.int64), keys.constant(plan.source_rank, 1)
    column = table.column(PATH if plan.source == "file" else plan.source_name).combine_chunks()
    if plan.source == "file":
        if not pc.all(pc.starts_with(column, plan.source_name)).as_py():
            raise DataError(
                f"Stream {plan.stream!r}: file {column[0].as_py()!r} is not in {plan.source_name!r}",
                why="source=plait.FILE names sources by the path relative to one folder",
                do="Read that folder, without wildcards or further paths",
            )
        column = pc.utf8_slice_codeunits(column, len(plan.source_name))
    if column.null_count:
        raise DataError(
            f"Stream {plan.stream!r}: source column {plan.source_name!r} is NULL", why="a source needs a name"
        )
    encoded = pc.dictionary_encode(column)
    raw = encoded.dictionary.to_pylist()
    sorted_at = sorted(range(len(raw)), key=lambda i: raw[i].encode() if isinstance(raw[i], str) else raw[i])
    place = np.empty(len(raw), np.int64)
    place[sorted_at] = np.arange(len(raw))
    names = [raw[i] for i in sorted_at]
    pieces = pa.array([keys.constant(name, 1)[0].as_py() for name in names], pa.binary())
    return names, place[encoded.indices.to_numpy()], pieces


def _seq(plan: PackPlan, table: pa.Table, n: int) -> tuple[pa.Array, np.ndarray]:
    """Key pieces of each tuple's seq, and a 64-bit word to route it by."""
    if plan.seq == "content":
        pieces = [keys.wrapped(table.column(c).combine_chunks(), signed_zero=True) for c in plan.columns]
        seq = keys.nest(keys.join(*pieces, n=n), n=n)
        return seq, _words(seq)
    if plan.seq in ("column", "offset"):
        column = table.column(plan.seq_column).combine_chunks()
        if column.null_count:
            raise DataError(
                f"Stream {plan.stream!r}: seq column {plan.seq_column!r} is NULL", why="it orders the tuples"
            )
        if pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type):
            numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
            piece = keys.ints(numbers) if plan.seq == "offset" else keys.wrapped(column)
            return piece, numbers.astype(np.uint64)
        seq = keys.wrapped(column)
        return seq, _words(seq)
    if plan.seq == "kafka":
        # The whole of a position: a source that a column names and that spans partitions has no order, and is refused
        # when a later batch brings an earlier partition's rows.
        topic = keys.by_value(table.column("topic").combine_chunks())
        partition, offset = (table.column(c).to_numpy().astype(np.int64) for c in ("partition", "offset"))
        seq = keys.nest(keys.join(keys.ints(partition), topic, keys.ints(offset), n=n), n=n)
        return seq, offset.astype(np.uint64)
    path = keys.by_value(table.column(PATH).combine_chunks())
    if plan.seq == "row":
        numbers = table.column(ROW).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
        return keys.nest(keys.join(path, keys.ints(numbers), n=n), n=n), numbers.astype(np.uint64)
    block = table.column(BLOCK).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    # Rows are numbered as the scan reads them: a task reads a block in one go.
    begins = _file_begins(table, blocks=True)
    running = np.arange(n, dtype=np.int64) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    seq = keys.nest(keys.join(path, keys.ints(block), keys.ints(running), n=n), n=n)
    return seq, mix(block.astype(np.uint64)) ^ running.astype(np.uint64)


def _words(pieces: pa.Array) -> np.ndarray:
    return np.fromiter((zlib.crc32(piece) for piece in pieces.to_pylist()), np.uint64, len(pieces))


def _splits(plan: PackPlan, rows: _Rows) -> tuple[list[list[Any]], np.ndarray | None]:
    """For each split [source, first seq, last seq, max ts, rows, ended, offence, least]; which are late within theirs.

    `least` is the ts and the seq of a tuple that has the least ts: all there is to judge partial panes by.
    """
    splits, late = [], None
    starts = np.searchsorted(rows.split, np.arange(len(rows.names) + 1))
    for number, name in enumerate(rows.names):
        begin, end = int(starts[number]), int(starts[number + 1])
        ts = rows.ts[begin:end]
        offence = None
        if plan.seq != "content":
            largest_before = np.maximum.accumulate(ts)[:-1]
            wrong = np.flatnonzero(ts[1:] < largest_before - plan.disorder_us) + 1
            if len(wrong):
                late = np.zeros(len(rows.ts), bool) if late is None else late
                late[begin + wrong] = True
                where = rows.seq[begin + int(wrong[0])].as_py().hex()
                offence = [int(ts[wrong[0]]), int(largest_before[wrong[0] - 1]), where]
        kept = ts if late is None else ts[~late[begin:end]]
        first, last = (rows.seq[at].as_py().hex() for at in (begin, end - 1))
        ordered = [first, last] if plan.seq != "content" else ["", ""]
        least = int(ts.argmin())
        least_at = [int(ts[least]), rows.seq[begin + least].as_py().hex()]
        splits.append([name, *ordered, int(kept.max()), end - begin, plan.source == "file", offence, least_at])
    return splits, late
