"""Rows that accumulators name one by one: any of them may be named for ever (some group's last one).

Whoever names rows says which when there are many (`KeptRows.keep`), and the others go. Held by tests/core/aggregate/test_kept.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from plait.core.rings import CAPACITY, ring_for
from plait.core.rows import crowded
from plait.encodings import one_piece, recast
from plait.schema import takeable

FEW = 1 << 16  # dead rows that are not worth a copy of the others
SPARSE = 8  # numbers a row: where there are more, rows are found by search, else by a place for every number


class KeptRows:
    """Rows that accumulators name one by one; whoever names them calls `keep` when they are `crowded`.

    First come the rows that were kept at last, by their numbers; after them those that came since, whose numbers are in a row.

    Columns of numbers and of text are copied into memory of their own as they come (`_held`), so that taking some rows costs no
    more than those rows; the others stay in Arrow, in `_chunks`. `rows` is how many rows are held, `_needed` how many `keep`
    was told of last. With `rows` above 2 * `_needed` + FEW it is `crowded`, so the work of `keep` is paid for by the rows that
    came since. One thread uses it.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([pa.field(field.name, takeable(field.type)) for field in schema])
        self._held = {f.name: held for f in self.schema if (held := ring_for(f.type)) is not None}
        self._rest = pa.schema([f for f in self.schema if f.name not in self._held])
        self._capacity = CAPACITY
        self._chunks: list[pa.Table] = []
        self._numbers = np.empty(0, np.int64)  # of the rows that were kept
        self._places: np.ndarray | None = None  # where they are, by their numbers, from the first on
        self._since = 0  # the number of the first row that came since
        self.next = 0
        self.rows = 0
        self._needed = 0

    def append(self, rows: pa.Table) -> int:
        """Keep rows; gives the number of the first."""
        first, n = self.next, rows.num_rows
        if n == 0:
            return first
        columns = {f.name: recast(rows.column(f.name), f.type) for f in self.schema}
        self._put({name: one_piece(columns[name]) for name in self._held}, n)
        if self._rest.names:
            self._chunks.append(pa.Table.from_arrays([columns[name] for name in self._rest.names], schema=self._rest))
        self.next += n
        self.rows += n
        return first

    def _put(self, columns: Mapping[str, pa.Array], n: int) -> None:
        """So many rows behind those that are held."""
        if self.rows + n > self._capacity:
            capacity = 1 << (2 * (self.rows + n) - 1).bit_length()
            for held in self._held.values():
                held.move(0, self.rows, capacity)
            self._capacity = capacity
        places = np.arange(self.rows, self.rows + n)
        for name, held in self._held.items():
            held.put(places, columns[name], 0 if self.rows else None)

    def append_column(self, name: str, values: pa.Array) -> int:
        """Keep rows of which only one column will be asked for."""
        n = len(values)
        columns = [recast(values, f.type) if f.name == name else pa.nulls(n, f.type) for f in self.schema]
        return self.append(pa.Table.from_arrays(columns, schema=self.schema))

    @property
    def crowded(self) -> bool:
        """Whether it is time to call `keep`."""
        return crowded(self.rows, self._needed, few=FEW)

    def take(self, refs: np.ndarray, name: str) -> pa.Array:
        """One column of the rows of these numbers, in this order; text of views in its takeable type."""
        kind = self.schema.field(name).type
        if len(refs) == 0:
            return pa.array([], kind)
        if pa.types.is_null(kind):
            return pa.nulls(len(refs))
        if name in self._held:
            return self._held[name].taker()(self._at(refs))
        taken = self._joined().column(name).take(pa.array(self._at(refs)))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    def keep(self, refs: np.ndarray) -> None:
        """Only these rows are needed.

        `refs` may name a row several times, in any order. Numbers stay what they were: accumulators need not be told.
        """
        if self.rows:
            refs = self._once(refs)
            at = self._at(refs)
            columns = {name: held.taker()(at) for name, held in self._held.items()}
            if self._chunks:
                self._chunks = [self._joined().take(pa.array(at))] if len(refs) else []
            self.rows, self._capacity = 0, CAPACITY
            self._held = {name: type(held)(held.kind) for name, held in self._held.items()}
            self._put(columns, len(refs))
            self._numbers, self._since, self._places = refs, self.next, None
            if len(refs) and self.next - int(refs[0]) <= SPARSE * len(refs):
                self._places = np.zeros(self.next - int(refs[0]), np.int64)
                self._places[refs - refs[0]] = np.arange(len(refs))
        self.rows = self._needed = len(refs)

    def _once(self, refs: np.ndarray) -> np.ndarray:
        """Each of these numbers once, in order."""
        first = int(self._numbers[0]) if len(self._numbers) else self._since
        if self.next - first > SPARSE * len(refs):
            return np.unique(refs)
        named = np.zeros(self.next - first, bool)
        named[refs - first] = True
        return np.flatnonzero(named) + first

    def _at(self, refs: np.ndarray) -> np.ndarray:
        """Where the rows of these numbers are."""
        at = refs - self._since + len(self._numbers)
        old = np.flatnonzero(refs < self._since)
        if len(old):
            named = refs[old]
            at[old] = (
                np.searchsorted(self._numbers, named)
                if self._places is None
                else self._places[named - self._numbers[0]]
            )
        return at

    def _joined(self) -> pa.Table:
        """All rows; their columns may still be in pieces."""
        if len(self._chunks) > 1:
            self._chunks = [pa.concat_tables(self._chunks)]
        return self._chunks[0]
