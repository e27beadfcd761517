"""A cell's results on their way: their columns, and the key of each in two parts, by reference.

A result's key is (trigger, partner), two tuples' keys, and a tuple has many results: spelled out, keys weigh more than
all columns together. So a result has two numbers, places in one list of keys, and is spelled out (`table`) only where
somebody asks for `_plait_key`.

Cells put out sorted results, and `merge` orders those of several by their keys' ranks. Most keys differ in time or
input already; only those that do not are compared byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.spark import formats
from plait.spark.cell import keyed
from plait.spark.cell.keyed import Keyed
from plait.spark.formats import FIRST, SECOND

#: Rows of one packed row at most: far from the 2 GiB that one value of Spark's can hold.
CUT = 1 << 20


@dataclass
class Results:
    columns: pa.Table
    keys: pa.Array  # of tuples, as bytes
    first: np.ndarray  # each result's trigger, as a place in `keys`
    second: np.ndarray  # its partner

    @classmethod
    def none(cls, schema: pa.Schema) -> Self:
        nothing = np.zeros(0, np.int64)
        return cls(schema.empty_table(), pa.array([], pa.binary()), nothing, nothing)

    @property
    def rows(self) -> int:
        return int(self.columns.num_rows)

    def table(self) -> pa.Table:
        """The columns, and `_plait_key` spelled out."""
        parts = (self.keys.take(pa.array(places)) for places in (self.first, self.second))
        return self.columns.append_column(pa.field(formats.KEY, pa.binary()), keys.nest(*parts, n=self.rows))

    def take(self, places: np.ndarray) -> Results:
        return Results(self.columns.take(pa.array(places)), self.keys, self.first[places], self.second[places])

    def bodies(self, cut: int = CUT) -> list[bytes]:
        """As packed rows, of `cut` results at most."""
        out = []
        for at in range(0, self.rows, cut):
            to = at + cut
            table = self.columns.slice(at, cut).append_column(FIRST, pa.array(self.first[at:to].astype(np.int32)))
            table = table.append_column(SECOND, pa.array(self.second[at:to].astype(np.int32)))
            out.append(formats.PairRows.body(table, self.keys))
        return out

    @classmethod
    def of(cls, rows: pa.Table, found: pa.Table) -> Self:
        places = [rows.column(name).to_numpy().astype(np.int64) for name in (FIRST, SECOND)]
        keys_ = found.column(formats.KEY).combine_chunks()
        return cls(rows.drop_columns([FIRST, SECOND]), _flat(keys_), *places)


def read(body: Any) -> Results | Keyed:
    """What `bodies` gave, of a join or of an aggregate."""
    head, rest = formats.parse(body)
    return Keyed.of(head, rest) if isinstance(head, formats.KeyedRows) else Results.of(*head.tables(rest))


def merge(parts: Sequence[Results | Keyed]) -> Results | Keyed:
    """All of these in result order; each is in order already, and all are of one kind."""
    parts = [part for part in parts if part.rows] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Keyed):
        return keyed.merge([part for part in parts if isinstance(part, Keyed)])
    return merge_pairs([part for part in parts if isinstance(part, Results)])


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids in order, and each one's place among them. Ids lie close together: no sorting is needed."""
    if len(ids) == 0:
        return ids, ids
    low = int(ids.min())
    named = np.zeros(int(ids.max()) - low + 1, bool)
    named[ids - low] = True
    place = np.cumsum(named) - 1
    return np.flatnonzero(named) + low, place[ids - low]


def merge_pairs(parts: list[Results]) -> Results:
    parts = [part for part in parts if part.rows] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.keys) for part in parts)])
    whole = Results(
        pa.concat_tables([part.columns for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.first + start for part, start in zip(parts, starts, strict=False)]),
        np.concatenate([part.second + start for part, start in zip(parts, starts, strict=False)]),
    )
    rank = _ranks(whole.keys)
    return whole.take(np.argsort((rank[whole.first] << np.uint64(32)) | rank[whole.second], kind="stable"))


def _ranks(found: pa.Array) -> np.ndarray:
    """Each key's rank among the different ones. The same tuple's key may come from several cells."""
    ts, input = _head(found)
    order = np.lexsort((input, ts))
    ts, input = ts[order], input[order]
    near = (ts[1:] == ts[:-1]) & (input[1:] == input[:-1])
    ordered = found.take(pa.array(order))
    same = pc.equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1)).to_numpy(zero_copy_only=False)
    # A run of keys alike in ts and input needs their bytes, unless it is one key all along.
    run = np.concatenate([[0], np.cumsum(~near)])
    unclear = np.zeros(run[-1] + 1, bool)
    unclear[run[1:][near & ~same]] = True
    at = np.flatnonzero(unclear[run])
    if len(at):
        by = pa.table({"run": run[at], "key": ordered.take(pa.array(at))})
        again = pc.sort_indices(by, sort_keys=[("run", "ascending"), ("key", "ascending")])
        order[at] = order[at][again.to_numpy()]
        ordered = found.take(pa.array(order))
        same = pc.equal(ordered.slice(1), ordered.slice(0, len(ordered) - 1)).to_numpy(zero_copy_only=False)
    rank = np.empty(len(order), np.uint64)
    rank[order] = np.concatenate([[0], np.cumsum(~same)])
    return rank


def _head(found: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Of each key, its ts and its input, as unsigned numbers that order alike; 0 for the empty key."""
    n = len(found)
    offsets = np.frombuffer(found.buffers()[1], np.int32)[found.offset : found.offset + n + 1].astype(np.int64)
    raw = np.frombuffer(found.buffers()[2] or b"", np.uint8)
    out = np.zeros((2, n), np.uint64)
    full = np.flatnonzero(offsets[1:] > offsets[:-1])
    words = np.ndarray(max(len(raw) - 7, 0), ">u8", raw, strides=(1,))  # the one that begins at each byte
    for row, skip in enumerate((1, 10)):  # a tag, then eight bytes; twice
        out[row, full] = words[offsets[full] + skip]
    return out[0], out[1]


def _flat(column: Any) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.binary())
    return column
