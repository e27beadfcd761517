"""A cell's results on their way: their columns, and what tells the key of each.

A result of a join has the key (trigger, partner), two tuples' keys, and a tuple has many results: spelled out, keys weigh
more than all columns together. So such a result has two numbers, places in one list of keys (`Results`). Of a window of
time the columns themselves are the key, (ts, key columns): two windows of one key never end at one ts. Windows of tuples
and users' operators have a key a row (`Keyed`). Keys are spelled out (`table`) only where somebody asks for `_plait_key`.

Cells put out sorted results, and `merge` orders those of several by their keys (`core.keys`).

Where it runs: made in a cell's task, taken apart in the driver (`collect`), in a task that unpacks rows for the user
(`unpack`), or spelled out where they go to the next operator (`onward`). On the way they are bodies, of CUT results
at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.row_by_row import changed
from plait.encodings import one_piece
from plait.query.row_by_row import BoundStep
from plait.spark import formats
from plait.spark.formats import FIRST, SECOND

#: Rows of one packed row at most: far from the 2 GiB that one value of Spark's can hold.
CUT = 1 << 20

#: Rows that are merged at once where they are written: as many as a group of rows in a Parquet file has.
PIECE = 1 << 17


@dataclass
class Results:
    """Results of a join, in result order.

    Attributes:
        columns: What the user sees, without the key.
        keys: Keys of tuples, each once. Results refer to them by place. They may be in pieces: they weigh more than the columns.
        first, second: Of each result the place of its trigger's key and of its partner's.
    """

    columns: pa.Table
    keys: pa.Array | pa.ChunkedArray  # of tuples, as bytes
    first: np.ndarray  # each result's trigger, as a place in `keys`
    second: np.ndarray  # its partner

    @classmethod
    def none(cls, schema: pa.Schema) -> Self:
        """No results, with the right columns: a cell that has none still has a schema."""
        nothing = np.zeros(0, np.int64)
        return cls(schema.empty_table(), pa.array([], pa.binary()), nothing, nothing)

    @property
    def rows(self) -> int:
        return int(self.columns.num_rows)

    def table(self) -> pa.Table:
        """The columns, and `_plait_key` spelled out."""
        named, at = distinct(np.concatenate([self.first, self.second]))
        own = one_piece(keys.at(self.keys, named))
        parts = (own.take(pa.array(places)) for places in (at[: self.rows], at[self.rows :]))
        return self.columns.append_column(pa.field(formats.KEY, pa.binary()), keys.nest(*parts, n=self.rows))

    def part(self, begin: int, end: int) -> Results:
        """A stretch of the results, with the keys that they name and no others."""
        n = end - begin
        named, at = distinct(np.concatenate([self.first[begin:end], self.second[begin:end]]))
        return Results(self.columns.slice(begin, n), keys.at(self.keys, named), at[:n], at[n:])

    def changed(self, steps: Sequence[BoundStep]) -> Results:
        """The results after what is done to each; their keys are what they were."""
        columns, kept = changed(steps, self.columns, keys.ts_numbers(self.columns.column(0)))
        if kept is None:
            return Results(columns, self.keys, self.first, self.second)
        return Results(columns, self.keys, self.first[kept], self.second[kept])

    def take(self, places: np.ndarray) -> Results:
        """Some of the results, in this order. The list of keys stays whole."""
        return Results(self.columns.take(pa.array(places)), self.keys, self.first[places], self.second[places])

    def bodies(self, cut: int = CUT) -> list[bytes]:
        """As packed rows, of `cut` results at most.

        Each has the whole list of keys, so cutting costs space where there are many results; it happens above a million
        results only.
        """
        return [formats.PairRows.body(self._placed(at, cut), self.keys) for at in range(0, self.rows, cut)]

    def lay(self, out: pa.NativeFile) -> None:
        """As one body, into a file that is mapped (`handed`)."""
        formats.PairRows.lay(out, self._placed(0, self.rows), self.keys)

    def _placed(self, at: int, n: int) -> pa.Table:
        """Some of the columns, and beside them the places of keys."""
        table = self.columns.slice(at, n).append_column(FIRST, pa.array(self.first[at : at + n].astype(np.int32)))
        return table.append_column(SECOND, pa.array(self.second[at : at + n].astype(np.int32)))

    @classmethod
    def of(cls, rows: pa.Table, found: pa.Table) -> Self:
        """From the two tables of a body: the rows with their places, and the keys."""
        places = [rows.column(name).to_numpy() for name in (FIRST, SECOND)]
        return cls(rows.drop_columns([FIRST, SECOND]), found.column(formats.KEY), *places)


@dataclass
class Keyed:
    """Results in result order.

    Attributes:
        columns: What the user sees. The first column is the result's ts.
        by: Of windows of time the key columns; empty for others.
        key: The key of each row as bytes, where columns do not tell it: windows of tuples, users' operators.
    """

    columns: pa.Table
    by: tuple[str, ...]  # of windows of time: the key is (ts, these columns)
    key: pa.Array | None = None  # of windows of tuples: the closing tuple's, as a part of its own

    @property
    def rows(self) -> int:
        return int(self.columns.num_rows)

    def part(self, begin: int, end: int) -> Keyed:
        """A stretch of the results."""
        key = None if self.key is None else self.key.slice(begin, end - begin)
        return Keyed(self.columns.slice(begin, end - begin), self.by, key)

    def changed(self, steps: Sequence[BoundStep]) -> Keyed:
        """The results after what is done to each. Their keys, which columns tell before that, are spelled out."""
        key = self.spelled()
        columns, kept = changed(steps, self.columns, keys.ts_numbers(self.columns.column(0)))
        return Keyed(columns, (), key if kept is None else key.take(pa.array(kept)))

    def take(self, places: np.ndarray) -> Keyed:
        """Some of the results, in this order."""
        at = pa.array(places)
        return Keyed(self.columns.take(at), self.by, None if self.key is None else self.key.take(at))

    def spelled(self) -> pa.Array:
        """`_plait_key` of each row."""
        if self.key is not None:
            return self.key
        return keys.window_rows(self.columns.column(0), (self.columns.column(name) for name in self.by))

    def table(self) -> pa.Table:
        """The columns, and `_plait_key` spelled out."""
        return self.columns.append_column(pa.field(formats.KEY, pa.binary()), self.spelled())

    def bodies(self, cut: int = CUT) -> list[bytes]:
        """As packed rows, of `cut` results at most."""
        head, whole = self._whole()
        parts = (whole.slice(at, cut).replace_schema_metadata(None) for at in range(0, self.rows, cut))
        return list(formats.bodies(head, parts))

    def lay(self, out: pa.NativeFile) -> None:
        """As one body, into a file that is mapped (`handed`)."""
        head, whole = self._whole()
        head.lay(out, whole.replace_schema_metadata(None))

    def _whole(self) -> tuple[formats.KeyedRows, pa.Table]:
        """All that travels."""
        whole = self.columns if self.key is None else self.table()
        return formats.KeyedRows(list(self.by), self.key is not None), whole

    @classmethod
    def of(cls, head: formats.KeyedRows, rest: pa.Buffer) -> Keyed:
        """From a body's head and what follows it."""
        rows = formats.table(rest)
        if not head.spelled:
            return cls(rows, tuple(head.by))
        return cls(rows.drop_columns([formats.KEY]), tuple(head.by), one_piece(rows.column(formats.KEY)))


def read(body: Any) -> Results | Keyed:
    """What `bodies` gave, of a join or of an aggregate."""
    head, rest = formats.parse(body)
    return Keyed.of(head, rest) if isinstance(head, formats.KeyedRows) else Results.of(*head.tables(rest))


def unpack(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gives the rows of results, and passes over what else cells put out.

    In tasks, behind the cells. Keys are spelled out here, a row each, where the schema has them.
    """

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for kind, body in zip(batch.column("kind").to_pylist(), batch.column("body"), strict=True):
                if kind == formats.RESULTS:
                    yield from shown(read(body.as_buffer()), schema).to_batches()

    return unpacked


def shown(results: Results | Keyed, schema: pa.Schema) -> pa.Table:
    """Results with these columns; keys are spelled out only where they are among them."""
    return (results.table() if formats.KEY in schema.names else results.columns).cast(schema)


def merge(parts: Sequence[Results | Keyed], *, by_trigger: bool = False) -> Results | Keyed:
    """All of these in result order; each is in order already, and all are of one kind.

    Parts without rows have no say, but if all are empty the first is given, for its schema. `by_trigger`: pairs are ordered by
    their triggers alone, partners of one trigger are as the parts have them, one part after the other.
    """
    (whole,) = merged(parts, by_trigger=by_trigger, most=None)
    return whole


def merged(
    parts: Sequence[Results | Keyed], *, by_trigger: bool = False, most: int | None = PIECE
) -> Iterator[Results | Keyed]:
    """The same in pieces of at most so many rows, one at least: for who writes them.

    Memory of a piece is used again for the next one. Where there are a million results, memory that nobody has used so far costs
    twice as much processor time as what is done in it.
    """
    parts = [part for part in parts if part.rows] or parts[:1]
    if len(parts) == 1:
        yield parts[0]
        return
    whole, order = _ordered(parts, by_trigger=by_trigger)
    for begin in range(0, len(order), most or len(order)):
        yield whole.take(order[begin : begin + (most or len(order))])


def _ordered(parts: Sequence[Results | Keyed], *, by_trigger: bool) -> tuple[Results | Keyed, np.ndarray]:
    """Parts one after the other, and the places of their rows in result order: of pairs by both keys (`core.keys`), of others by
    ts and key columns, or by ts and key. Cells have different groups, so no two rows are equal in all of these.
    """
    if isinstance(parts[0], Keyed):
        whole = _all_keyed([part for part in parts if isinstance(part, Keyed)])
        by = (0, *whole.by) if whole.key is None else (0,)
        columns = [whole.columns.column(name) for name in by] + ([] if whole.key is None else [whole.key])
        return whole, keys.in_order_of(columns).to_numpy()
    pairs = _together([part for part in parts if isinstance(part, Results)])
    if by_trigger:
        return pairs, keys.in_order_of_firsts(pairs.keys, pairs.first)
    return pairs, keys.in_order_of_pairs(pairs.keys, pairs.first, pairs.second)


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids in order, and each one's place among them. Ids lie close together: no sorting is needed."""
    if len(ids) == 0:
        return ids, ids
    low = int(ids.min())
    named = np.zeros(int(ids.max()) - low + 1, bool)
    named[ids - low] = True
    place = np.cumsum(named) - 1
    return np.flatnonzero(named) + low, place[ids - low]


def _together(parts: list[Results]) -> Results:
    """One part after the other. Places are shifted, since each part has a list of keys of its own."""
    starts = np.cumsum([0, *(len(part.keys) for part in parts)])
    return Results(
        pa.concat_tables([part.columns for part in parts]),
        pa.chunked_array([piece for part in parts for piece in keys.pieces_of(part.keys)], pa.binary()),
        np.concatenate([part.first + start for part, start in zip(parts, starts, strict=False)]),
        np.concatenate([part.second + start for part, start in zip(parts, starts, strict=False)]),
    )


def _all_keyed(parts: list[Keyed]) -> Keyed:
    """One part after the other."""
    key = None if parts[0].key is None else pa.concat_arrays([part.spelled() for part in parts])
    return Keyed(pa.concat_tables([part.columns for part in parts]), parts[0].by, key)
