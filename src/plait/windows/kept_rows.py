"""Rows that accumulators refer to by number, until none does.

Numbers rise and are never used again. `keep` lets go of every row that is not named; whoever refers to rows calls it when
`crowded` says that most of them are probably not needed any more: so what is held stays within a constant factor of what is
referred to, and each row is copied a constant number of times on the average.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.schema import takeable

FEW = 1 << 16
SPARSE = 8  # numbers a row: where there are more, rows are found by search, else by a place for every number


class KeptRows:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = pa.schema([pa.field(field.name, takeable(field.type)) for field in schema])
        self._chunks: list[tuple[int, np.ndarray | None, pa.Table]] = []  # first number, numbers (None: in a row), rows
        self._places: np.ndarray | None = None  # of the numbers of the only chunk, from its first on
        self.next = 0
        self.rows = 0
        self._needed = 0

    def append(self, rows: pa.Table) -> int:
        """Keep rows; gives the number of the first."""
        first = self.next
        self._chunks.append((first, None, rows.select(self.schema.names).cast(self.schema)))
        self.next += rows.num_rows
        self.rows += rows.num_rows
        return first

    def append_column(self, name: str, values: pa.Array) -> int:
        """Keep rows of which only one column will be asked for."""
        n = len(values)
        columns = [values.cast(f.type) if f.name == name else pa.nulls(n, f.type) for f in self.schema]
        return self.append(pa.Table.from_arrays(columns, schema=self.schema))

    @property
    def crowded(self) -> bool:
        return self.rows > 2 * self._needed + FEW

    def take(self, refs: np.ndarray, name: str) -> pa.Array:
        """One column of the rows of these numbers, in this order; text of views in its takeable type."""
        kind = self.schema.field(name).type
        if len(refs) == 0:
            return pa.array([], kind)
        self._join()
        taken = self._chunks[0][2].column(name).take(pa.array(self._at(refs)))
        return taken.combine_chunks() if taken.num_chunks != 1 else taken.chunk(0)

    def keep(self, refs: np.ndarray) -> None:
        """Only these rows are needed."""
        if self._chunks:
            self._join()
            refs = self._once(refs)
            rows = self._chunks[0][2].take(pa.array(self._at(refs)))
            self._chunks, self._places = ([(int(refs[0]), refs, rows)] if len(refs) else []), None
        self.rows = self._needed = len(refs)

    def _once(self, refs: np.ndarray) -> np.ndarray:
        """Each of these numbers once, in order."""
        first = self._chunks[0][0]
        if self.next - first > SPARSE * len(refs):
            return np.unique(refs)
        named = np.zeros(self.next - first, bool)
        named[refs - first] = True
        return np.flatnonzero(named) + first

    def _at(self, refs: np.ndarray) -> np.ndarray:
        """Where the rows of these numbers are in the only chunk."""
        first, numbers, _ = self._chunks[0]
        if numbers is None:
            return refs - first
        if self.next - first > SPARSE * len(numbers):
            return np.searchsorted(numbers, refs)
        if self._places is None:
            self._places = np.zeros(self.next - first, np.int64)
            self._places[numbers - first] = np.arange(len(numbers))
        return np.asarray(self._places[refs - first])

    def _join(self) -> None:
        """One chunk of all; a chunk's columns may still be in pieces."""
        if len(self._chunks) == 1:
            return
        rows = pa.concat_tables([r for _, _, r in self._chunks])
        numbers = None
        if any(n is not None for _, n, _ in self._chunks):
            numbers = np.concatenate([np.arange(f, f + r.num_rows) if n is None else n for f, n, r in self._chunks])
        self._chunks, self._places = [(self._chunks[0][0], numbers, rows)], None
