"""Pack: on the source's tasks, tuples become one packed row per (task, cell), with the task's punctuation.

The way of a task's rows, which is the order of this text: Spark hands it rows of a DataFrame (`Frame`), or the blocks of files
that it reads itself (`Scan`); it finds each row's source and position, and sorts by them (`_ordered`); it tells how far the
sources are (`_splits`); tuples set out for the cells (`_sent`, `ship`).

**Blocks.** Spark turns a file's columns into rows, and on their way into Python rows into columns again: about a microsecond a
row, more than everything plait does with it. So where it can, Spark is asked only for the first row of each block of BLOCK, by
file and number, and the task that is given one reads the block. Every block's first row is one row of the file, and Spark
gives it to one task, however it cuts and packs the files: so each row is read once, by a task of Spark's, and offsets, retries
and replays are Spark's as before. `plan.relations` says which files are read so.

**Order.** A task sorts its tuples by (source, seq), so its output does not depend on the order of its input; where a tuple goes
is a function of its own key. No counter of tasks or attempts, no clock, no random number has a part in it: a stage that is
retried in part sends the same bytes.

**Punctuation** (SplitJoin's idea) goes to every cell, also to those that get no tuple: for each source of the task, the
first position, the largest ts, and the first tuple that ran back too far within the task. From the punctuation of all
tasks every cell computes the same frontier, with no coordinator.

Where it runs: in tasks of Spark's sources, through `mapInArrow`, once for each task and batch, and once for each operator
that reads the stream. What goes in: the columns of `PackPlan.columns`, and columns that tell positions. What comes out:
rows (cell, body), for every cell one with punctuation and maybe tuples. A task without rows says nothing, so a batch
without rows of a stream leaves its progress as it is.

All rows of a task are in memory at once, since they have to be sorted. Nothing is stored here. Held by
tests/spark/test_cells.py (without Spark), tests/spark/test_inputs.py, tests/spark/test_scanning.py and tests/spark/test_kinds.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from plait.core import keys
from plait.core.sources import is_late, largest_before
from plait.errors import DataError, RunError
from plait.order import BEFORE_ALL
from plait.query.stream import Stream
from plait.schema import to_micros
from plait.spark import formats
from plait.spark.formats import Offence, Split
from plait.spark.pack.positions import HANDED, PATH, ROW, Given, Positions, changes, kind, told, unquoted
from plait.spark.pack.ship import Shipping, Tuples
from plait.spark.pack.source_names import naming
from plait.spark.plan import relations
from plait.spark.plan.layout import mix

#: Rows of a block: far more than a task's fixed cost, far fewer than a large file has.
BLOCK = 1 << 18


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
    slab: int | None = None  # in a batch run: so many rows a body at most, in the order of time
    where: str = "spark"

    def mapper(self) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """For `mapInArrow`."""
        return lambda batches: pack(self, batches)


def pack(plan: PackPlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The packed rows of one task.

    The steps are the order of this text.
    """
    table = _read(plan, list(batches))
    if table is not None:
        rows = _ordered(plan, table)
        splits, late = _splits(plan, rows)
        yield from _sent(plan, rows, splits, late) if plan.slab is None else _slabs(plan, rows, splits, late, plan.slab)


# --- what a task is handed, and what it reads -----------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    """One DataFrame of a stream, with the columns added that tell positions; how to read source and seq from it.

    Attributes:
        frame: The DataFrame to pack. Where tasks read files themselves, it has a row for each block of a file.
        source: The kind of its sources' names (`source_names`), and `source_name` what they are told by.
        source_rank: The declared place of its source, which decides ties between sources; 0 if there is one DataFrame.
        seq: The kind of position (`positions`).
        seq_column: The user's column that orders rows, if there is one.
    """

    frame: Any
    source: str
    source_name: Any
    source_rank: int
    seq: str
    seq_column: str | None
    scan: Scan | None = None  # tasks read the files themselves; `frame` then tells which rows

    def reads(self, stream: Stream, shipped: Sequence[str], schema: Sequence[str]) -> tuple[str, ...]:
        """The columns that tasks need: those that go along, and what tells time, source and seq. In the schema's order.

        Rows ordered by content need all columns: any of them may decide.
        """
        position, named = kind(self.seq), naming(self.source)
        if not position.ordered:
            return tuple(schema)
        by = (self.source_name,) if named.column else ()
        needed = {*shipped, stream.time, *by, self.seq_column, *position.columns}
        return tuple(column for column in schema if column in needed)

    def given(self, columns: Sequence[str]) -> Any:
        """What a task is handed: rows with no columns but these, or what to read."""
        if self.scan is not None:
            return self.frame
        marks = (*kind(self.seq).marks, *naming(self.source).marks)
        extra = dict.fromkeys(mark for mark in marks if mark in self.frame.columns)
        return self.frame.select(*(_handed(at, name) for at, name in enumerate(columns)), *extra)


def _handed(at: int, name: str) -> Any:
    """A column as it is handed to a task: PySpark's own code looks columns up by name there, and takes dots for structs."""
    from pyspark.sql import functions as F

    column = F.col(quoted(name))
    return column.alias(f"{HANDED}{at}") if "." in name or "`" in name else column


def quoted(name: str) -> str:
    """A column's name as Spark's parser takes it, whatever is in it: dots, spaces, backticks."""
    return "`" + name.replace("`", "``") + "`"


def _read(plan: PackPlan, batches: list[pa.RecordBatch]) -> pa.Table | None:
    """A task's rows, under their own names; None if it has none.

    Columns that PySpark can't hand over under their own names get these back first (`HANDED`). Where the task reads files
    itself, the rows that came only say which blocks, and are replaced by the blocks' rows.
    """
    table = pa.Table.from_batches(batches) if batches else None
    if table is None or table.num_rows == 0:
        return None
    table = table.combine_chunks()
    if PATH in table.column_names:
        table = table.set_column(table.column_names.index(PATH), PATH, unquoted(table.column(PATH).combine_chunks()))
    names = {f"{HANDED}{at}": name for at, name in enumerate(plan.columns)}
    table = table.rename_columns([names.get(name, name) for name in table.column_names])
    return table if plan.scan is None else plan.scan.read(table, plan.columns).combine_chunks()


@dataclass(frozen=True)
class Scan:
    """How a stream's tasks read its files. Pickled into the tasks.

    `read` runs in tasks, `blocks` on the driver. It is decided once, when the query is planned, whether a stream's files
    can be read so; files that come later and can't be are refused by name, and the user may restart with `read="rows"`.
    Both ways give the same positions, so the checkpoint goes on. Held by tests/spark/test_scanning.py.
    """

    stream: str
    schema: pa.Schema  # the DataFrame's
    block: int  # rows
    root: str  # the folder, as URL: folders below it may name columns

    def blocks(self, frame: Any) -> Any:
        """The first rows of the blocks of a DataFrame's files."""
        from pyspark.sql import functions as F

        path, row = F.col("_metadata.file_path").alias(PATH), F.col("_metadata.row_index").cast("long").alias(ROW)
        return frame.select(path, row).where(F.col(ROW) % self.block == 0)

    def read(self, blocks: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The rows of these blocks, each told by its path and first row, with PATH and ROW as Spark would have them.

        Blocks of one file that follow one another are read as one stretch. Columns are cast to the DataFrame's types at
        the end: a file may have large or dictionary forms of them. Files are read in the order of their paths, whatever order
        Spark hands them over in (the largest first): rows that stand by position already need no sorting.
        """
        paths = blocks.column(PATH).combine_chunks()
        first, of = blocks.column(ROW).to_numpy(), paths.indices.to_numpy()
        parts, index, row = [], [], []
        for number, path in sorted(enumerate(paths.dictionary.to_pylist()), key=lambda each: each[1].encode()):
            for begin, table in self._stretches(path, np.sort(first[of == number]), columns):
                parts.append(table)
                index.append(np.full(table.num_rows, number, np.int32))
                row.append(np.arange(begin, begin + table.num_rows))
        table = pa.concat_tables(parts).cast(pa.schema([self.schema.field(name) for name in columns]))
        named = pa.DictionaryArray.from_arrays(np.concatenate(index), paths.dictionary)
        return table.append_column(PATH, named).append_column(ROW, pa.array(np.concatenate(row)))

    def _stretches(self, path: str, first: np.ndarray, columns: Sequence[str]) -> list[tuple[int, pa.Table]]:
        """The rows of one file's blocks as stretches, each with the number of its first row."""
        try:
            with pq.ParquetFile(relations.on_disk(path), page_checksum_verification=True) as file:
                unlike = relations.named_by_folder(path, self.root) or relations.unreadable(file, self.schema, columns)
                if unlike is None:
                    runs = _runs(first, self.block, file.metadata.num_rows)
                    return [(begin, _rows(file, begin, end, columns)) for begin, end in runs]
        except (
            OSError,
            pa.ArrowException,
        ) as error:  # a codec or a cipher that Arrow does not know, a file that is broken
            if "CRC" in str(error):  # other readers may not look at it, and read other values
                why = f"a checksum of a page is not that of its bytes ({error})"
                raise DataError(
                    f"Stream {self.stream!r}: the file {path} is damaged", why=why, do="Bring it back as it was"
                ) from None
            unlike = f"can't be read: {error}"
        raise RunError(
            f"Stream {self.stream!r}: the file {path} {unlike}",
            why="plait's tasks read Parquet files themselves, and take a column as it is or not at all",
            do="Restart with on_spark(..., read='rows'): Spark reads them then, and the checkpoint goes on",
        )


def _runs(first: np.ndarray, block: int, rows: int) -> list[tuple[int, int]]:
    """Blocks as stretches of rows, those that follow one another as one."""
    cuts = np.flatnonzero(np.diff(first) != block) + 1
    return [(int(run[0]), min(int(run[-1]) + block, rows)) for run in np.split(first, cuts)]


def _rows(file: pq.ParquetFile, begin: int, end: int, columns: Sequence[str]) -> pa.Table:
    """Rows `begin` to `end` of a file. Parquet is read by row groups: those that the stretch touches, then cut."""
    sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    low, high = int(np.searchsorted(ends, begin, "right")), int(np.searchsorted(ends, end, "left"))
    # The tasks are as many as the cores: no threads besides.
    table = file.read_row_groups(list(range(low, high + 1)), columns=list(columns), use_threads=False)
    if table.num_rows != sum(
        sizes[low : high + 1]
    ):  # a page's head, which no checksum covers, can seem to be the last one's
        raise OSError(
            f"its footer tells of {sum(sizes[low : high + 1])} rows there, and its pages hold {table.num_rows}"
        )
    return table.select(list(columns)).slice(begin - int(ends[low]) + sizes[low], end - begin)


# --- by source and position -----------------------------------------------------------------------------------


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


def _positions(plan: PackPlan, table: pa.Table) -> Positions:
    """Each row's position, by the stream's kind of position."""
    return kind(plan.seq).read(Given(table, plan.stream.name, plan.seq_column, plan.columns))


def _check_repeated(plan: PackPlan, found: Positions, place: np.ndarray, begins: np.ndarray, names: list[Any],
                    codes: np.ndarray) -> None:  # fmt: skip
    """Refuse two rows with one position: they would have no order, and the second might be a copy of the first.

    Only within a task. The same position in two tasks or two batches shows in the splits (`StreamProgress.fold`).
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


# --- how far the sources are ----------------------------------------------------------------------------------


def _splits(plan: PackPlan, rows: _Rows) -> tuple[list[Split], np.ndarray | None]:
    """The task's punctuation, and which tuples are late within their split.

    Late within a split means: earlier than the task has seen before in the same source by more than the declared
    disorder. That is all that a task can tell. What lies in earlier splits and batches is added in the cells
    (`cell.arrive`).

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


# --- to the cells ---------------------------------------------------------------------------------------------


def _tuples(rows: _Rows, late: np.ndarray | None) -> Tuples:
    """A task's tuples, as they are dealt out."""
    beside = {formats.SPLIT: pa.array(rows.split)} | ({} if late is None else {formats.LATE_FLAG: pa.array(late)})
    return Tuples(rows.table, rows.place, rows.ts, rows.own_keys, rows.hashes, beside)


def _punctuation(plan: PackPlan, splits: list[Split]) -> bytes:
    """How far the task's sources are, without tuples."""
    return formats.body(formats.StreamRows(plan.stream.name, None, splits, tells=True, panes=False))


def _slabs(
    plan: PackPlan, rows: _Rows, splits: list[Split], late: np.ndarray | None, most: int
) -> Iterator[pa.RecordBatch]:
    """The same in a batch run, where a cell takes tuples in the order of time: punctuation first, by itself, and then
    stretches of so many tuples.
    """
    cells = plan.ship.layout.keys
    told = [_punctuation(plan, splits)] * len(cells)
    yield pa.record_batch([list(cells), [BEFORE_ALL] * len(cells), told], schema=formats.SLAB_ROWS)
    tuples = _tuples(rows, late)
    for number, input in enumerate(plan.inputs):
        head = formats.StreamRows(plan.stream.name, input, splits, number == 0, plan.ship.folds, slab=True)
        for cell, part in zip(cells, plan.ship.parts(input, tuples), strict=True):
            for at, slab in formats.slabs(part, most):
                yield pa.record_batch([[cell], [at], [formats.body(head, slab)]], schema=formats.SLAB_ROWS)


def _sent(plan: PackPlan, rows: _Rows, splits: list[Split], late: np.ndarray | None) -> Iterator[pa.RecordBatch]:
    """Tuples on their way to the cells, each cell's behind the punctuation.

    For a self-join a stream feeds two inputs: tuples go out twice, with the input in their keys, and punctuation counts
    once (`tells`). For a stream that is only heard there are no tuples.
    """
    tuples = _tuples(rows, late)
    cells, schema = plan.ship.layout.keys, formats.PACKED_ROWS
    if not plan.inputs:
        yield pa.record_batch([list(cells), [_punctuation(plan, splits)] * len(cells)], schema=schema)
    for number, input in enumerate(plan.inputs):
        head = formats.StreamRows(plan.stream.name, input, splits, tells=number == 0, panes=plan.ship.folds)
        for cell, body in zip(cells, formats.bodies(head, plan.ship.parts(input, tuples)), strict=True):
            yield pa.record_batch([[cell], [body]], schema=schema)
