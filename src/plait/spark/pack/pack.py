"""Pack: on the source's tasks, tuples become one packed row per (task, cell), with the task's punctuation.

A task sorts its tuples by (source, seq), so its output does not depend on the order of its input; where a tuple goes is
a function of its own key. No counter of tasks or attempts, no clock, no random number has a part in it: a stage that is
retried in part sends the same bytes.

Punctuation (SplitJoin's idea) goes to every cell, also to those that get no tuple: for each source of the task, the
first position, the largest ts, and the first tuple that ran back too far within the task. From the punctuation of all
tasks every cell computes the same frontier, with no coordinator.

Where it runs: in tasks of Spark's sources, through `mapInArrow`, once for each task and batch, and once for each operator
that reads the stream. What goes in: the columns of `PackPlan.columns`, and columns that tell positions. What comes out:
rows (cell, body), for every cell one with punctuation and maybe tuples. A task without rows says nothing, so a batch
without rows of a stream leaves its progress as it is.

All rows of a task are in memory at once, since they have to be sorted. Nothing is stored here. Held by
tests/spark/test_cells.py (without Spark), tests/spark/test_inputs.py and tests/spark/test_kinds.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.core.sources import is_late, largest_before
from plait.errors import DataError
from plait.order import BEFORE_ALL
from plait.query.stream import Stream
from plait.schema import to_micros
from plait.spark import formats
from plait.spark.formats import Offence, Split
from plait.spark.pack.positions import HANDED, PATH, Given, Positions, changes, kind, told, unquoted
from plait.spark.pack.scan import Scan
from plait.spark.pack.source_names import naming
from plait.spark.plan.layout import mix
from plait.spark.plan.ship import Shipping, Tuples


@dataclass(frozen=True)
class PackPlan:
    """How one DataFrame of a stream becomes packed rows. Pickled into the tasks.

    Kinds of names and of positions go by name, not as objects: a task looks them up in its own registries
    (`source_names`, `positions`).
    """

    stream: Stream
    inputs: tuple[int, ...]  # the operator's inputs it feeds: two for a self-join, none if it is only heard
    columns: tuple[str, ...]  # that a task reads
    source: str  # the kind of its sources' names, by name
    source_name: Any  # what they are told by
    source_rank: int  # if there is one source: the declared position
    seq: str  # the kind of position, by name
    seq_column: str | None
    ship: Shipping
    scan: Scan | None = None  # the task reads the files itself: it is given which rows
    where: str = "spark"

    def mapper(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """For `mapInArrow`."""
        return lambda batches: pack(self, batches)


def pack(plan: PackPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The packed rows of one task.

    Columns that PySpark can't hand over under their own names get these back first (`HANDED`). Where the task reads files
    itself, the rows that came only say which blocks, and are replaced by the blocks' rows (`scan`).

    For a self-join a stream feeds two inputs: tuples go out twice, with the input in their keys, and punctuation counts
    once (`tells`). For a stream that is only heard there are no tuples.
    """
    table = pa.Table.from_batches(list(batches)) if (batches := list(batches)) else None  # type: ignore[assignment]
    if table is None or table.num_rows == 0:
        return
    table = table.combine_chunks()
    if PATH in table.column_names:
        table = table.set_column(table.column_names.index(PATH), PATH, unquoted(table.column(PATH).combine_chunks()))
    names = {f"{HANDED}{at}": name for at, name in enumerate(plan.columns)}
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    if plan.scan is not None:
        table = plan.scan.read(table, plan.columns).combine_chunks()
    rows = _ordered(plan, table)
    splits, late = _splits(plan, rows)
    beside = {formats.SPLIT: pa.array(rows.split)} | ({} if late is None else {formats.LATE_FLAG: pa.array(late)})
    tuples = Tuples(rows.table, rows.place, rows.ts, rows.own_keys, rows.hashes, beside)
    cells, schema = plan.ship.layout.keys, formats.PACKED_ROWS
    if not plan.inputs:
        body = formats.body(formats.StreamRows(plan.stream.name, None, splits, tells=True, panes=False))
        yield pa.record_batch([list(cells), [body] * len(cells)], schema=schema)
    for number, input in enumerate(plan.inputs):
        head = formats.StreamRows(plan.stream.name, input, splits, tells=number == 0, panes=plan.ship.folds)
        for cell, body in zip(cells, formats.bodies(head, plan.ship.parts(input, tuples)), strict=True):
            yield pa.record_batch([[cell], [body]], schema=schema)


@dataclass
class _Rows:
    """A task's tuples by (source, seq): event times, positions, and the splits they fall into. The table is as it came.

    A split is a run of one source's positions with no other task's in between. Tasks take files in any company, so a
    file (of files without row numbers a block) is a split of its own.

    Attributes:
        table: Columns as the task got them, in that order: rows move once, when they are parted among cells.
        ts, split, source: In the order of (source, seq).
        place: From that order to the table's.
    """

    table: pa.Table
    ts: np.ndarray
    split: np.ndarray  # each tuple's split
    split_source: np.ndarray  # each split's source, as a place in `names`
    source: np.ndarray  # each tuple's
    names: list[Any]
    ranks: pa.Array  # the names' key pieces
    positions: Positions
    place: np.ndarray  # where each tuple stands in the table

    def seq(self, at: int) -> bytes:
        """The key piece of one tuple's seq."""
        piece: bytes = self.positions.pieces(self.place[at : at + 1])[0].as_py()
        return piece

    def own_keys(self, places: np.ndarray | None) -> pa.Array:
        """(source, seq) of tuples as bytes; `places`: of these only. A partial pane needs the keys of few tuples."""
        at, source = (self.place, self.source) if places is None else (self.place[places], self.source[places])
        return keys.join(self.ranks.take(pa.array(source)), self.positions.pieces(at), n=len(at))

    def hashes(self) -> np.ndarray:
        """A word of each tuple's source and position, by which a grid deals it out. It depends on nothing else, so a retry
        is the same.
        """
        salt = np.array([zlib.crc32(str(name).encode()) for name in self.names], np.uint64)[self.source]
        return mix(self.positions.words()[self.place] ^ (salt << np.uint64(32)))


def _times(plan: PackPlan, table: pa.Table) -> np.ndarray:
    """Event times in microseconds. A value that is no time, or out of range, is told with its file and row.

    To find the row costs a search by halves, and only a batch that fails pays for it.
    """
    stream, column = plan.stream, table.column(plan.stream.time)

    def micros(first: int, rows: int) -> np.ndarray:
        return to_micros(column.slice(first, rows), stream.unit, stream=stream.name, name=stream.time, where=plan.where)

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
    """The same error with the row's source and position, and how to skip it."""
    names, codes, _ = _source(plan, table, table.num_rows)
    place = told(_positions(plan, table).pieces(np.array([row]))[0].as_py())
    return DataError(
        f"Stream {plan.stream.name!r}, source {names[codes[row]]!r}, {place}: {error.fact.partition(': ')[2]}",
        why=error.why,
        do=f"To skip it, {kind(plan.seq).skipping} and restart",
    )


def _ordered(plan: PackPlan, table: pa.Table) -> _Rows:
    """The task's rows by (source, seq), cut into splits."""
    ts = _times(plan, table)
    names, codes, ranks = _source(plan, table, len(ts))
    at = _positions(plan, table)
    order = at.order(codes)
    place = np.arange(len(ts)) if order is None else order
    if order is not None:
        ts, codes = ts[order], codes[order]
    begins = changes((codes, *(column[place] for column in at.runs)))
    if plan.scan is None:  # which reads each row once
        _check_repeated(plan, at, place, begins, names, codes)
    split = (np.cumsum(begins) - 1).astype(np.int32)
    return _Rows(table, ts, split, codes[begins], codes, names, ranks, at, place)


def _positions(plan: PackPlan, table: pa.Table) -> Positions:
    """Each row's position, by the stream's kind of position."""
    return kind(plan.seq).read(Given(table, plan.stream.name, plan.seq_column, plan.columns))


def _check_repeated(plan: PackPlan, found: Positions, place: np.ndarray, begins: np.ndarray, names: list[Any],
                    codes: np.ndarray) -> None:  # fmt: skip
    """Refuse two rows with one position: they would have no order, and the second might be a copy of the first.

    Only within a task. The same position in two tasks or two batches shows in the splits (`progress.fold`).
    """
    copies = kind(plan.seq).copies
    if copies is None:
        return
    at = np.flatnonzero(found.repeated(place) & ~begins[1:])
    if len(at):
        piece = found.pieces(place[at[:1]])[0].as_py()
        why, do = copies(plan.seq_column)
        fact = f"Stream {plan.stream.name!r}, source {names[codes[at[0]]]!r}: {told(piece)} stands twice"
        raise DataError(fact, why=why, do=do)


def _source(plan: PackPlan, table: pa.Table, n: int) -> tuple[list[Any], np.ndarray, pa.Array]:
    """Names of the task's sources in order, each row's number among them, and the names' key pieces.

    Names are sorted by value, text by its bytes, so that their numbers order as the names do. A key has the name itself,
    or for a stream of one DataFrame for each source the declared place.
    """
    column = naming(plan.source).names(plan.stream.name, plan.source_name, table)
    if column is None:
        return [plan.source_name], np.zeros(n, np.int64), keys.constant(plan.source_rank, 1)
    if column.null_count:
        raise DataError(
            f"Stream {plan.stream.name!r}: source column {plan.source_name!r} is NULL", why="a source needs a name"
        )
    encoded = pc.dictionary_encode(column)
    raw = encoded.dictionary.to_pylist()
    sorted_at = sorted(range(len(raw)), key=lambda i: raw[i].encode() if isinstance(raw[i], str) else raw[i])
    place = np.empty(len(raw), np.int64)
    place[sorted_at] = np.arange(len(raw))
    names = [raw[i] for i in sorted_at]
    pieces = pa.array([keys.constant(name, 1)[0].as_py() for name in names], pa.binary())
    return names, place[encoded.indices.to_numpy()], pieces


def _splits(plan: PackPlan, rows: _Rows) -> tuple[list[Split], np.ndarray | None]:
    """The task's punctuation, and which tuples are late within their split.

    Late within a split means: earlier than the task has seen before in the same source by more than the declared
    disorder. That is all that a task can tell. What lies in earlier splits and batches is added in the cells
    (`progress`).

    Where rows have no order among those of their batch (`seq="content"`), none is late within a split.
    """
    splits, late, ordered = [], None, kind(plan.seq).ordered
    starts = np.searchsorted(rows.split, np.arange(len(rows.split_source) + 1))
    for number, source in enumerate(rows.split_source):
        begin, end = int(starts[number]), int(starts[number + 1])
        ts = rows.ts[begin:end]
        offence = None
        if ordered:
            before = largest_before(ts, BEFORE_ALL)
            wrong = is_late(plan.stream, ts, before)
            if wrong.any():
                late = np.zeros(len(rows.ts), bool) if late is None else late
                late[begin:end] = wrong
                at = int(wrong.argmax())
                offence = Offence(int(ts[at]), int(before[at]), rows.seq(begin + at).hex())
        kept = ts if late is None else ts[~late[begin:end]]
        first, last = (rows.seq(at).hex() if ordered else "" for at in (begin, end - 1))
        least = int(ts.argmin())
        splits.append(
            Split(rows.names[source], first, last, int(kept.max()), naming(plan.source).ends, int(ts[least]),
                  rows.seq(begin + least).hex(), offence, end - begin)
        )  # fmt: skip
    return splits, late
