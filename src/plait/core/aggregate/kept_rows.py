"""Rows that accumulators refer to by number, until none does.

Numbers rise and are never used again. `keep` lets go of every row that is not named; whoever refers to rows calls it when
`crowded` says that most of them are probably not needed any more: so what is held stays within a constant factor of what is
referred to, and each row is copied a constant number of times on the average.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.encodings import recast
from plait.schema import takeable

FEW = 1 << 16
SPARSE = 8  # numbers a row: where there are more, rows are found by search, else by a place for every number


class KeptRows:
    """First the rows that were kept at last, by their numbers; after them those that came since, whose numbers are in a row."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([pa.field(field.name, takeable(field.type)) for field in schema])
        self._chunks: list[pa.Table] = []
        self._numbers = np.empty(0, np.int64)  # of the rows that were kept
        self._places: np.ndarray | None = None  # where they are, by their numbers, from the first on
        self._since = 0  # the number of the first row that came since
        self.next = 0
        self.rows = 0
        self._needed = 0

    def append(self, rows: pa.Table) -> int:
        """Keep rows; gives the number of the first."""
        first = self.next
        columns = [recast(rows.column(field.name), field.type) for field in self.schema]
        self._chunks.append(pa.Table.from_arrays(columns, schema=self.schema))
        self.next += rows.num_rows
        self.rows += rows.num_rows
        return first

    def append_column(self, name: str, values: pa.Array) -> int:
        """Keep rows of which only one column will be asked for."""
        n = len(values)
        columns = [recast(values, f.type) if f.name == name else pa.nulls(n, f.type) for f in self.schema]
        return self.append(pa.Table.from_arrays(columns, schema=self.schema))

    @property
    def crowded(self) -> bool:
        return self.rows > 2 * self._needed + FEW

    def take(self, refs: np.ndarray, name: str) -> pa.Array:
        """One column of the rows of these numbers, in this order; text of views in its takeable type."""
        kind = self.schema.field(name).type
        if len(refs) == 0:
            return pa.array([], kind)
        if pa.types.is_null(kind):
            return pa.nulls(len(refs))
        taken = self._joined().column(name).take(pa.array(self._at(refs)))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    def keep(self, refs: np.ndarray) -> None:
        """Only these rows are needed."""
        if self._chunks:
            refs = self._once(refs)
            self._chunks = [self._joined().take(pa.array(self._at(refs)))] if len(refs) else []
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
