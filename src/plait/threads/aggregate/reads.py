"""What an aggregate reads of a row, as a table for compiled code (`input.given`), if that is plain columns of fixed width alone.

`core.aggregate.reads` says what becomes of rows in general, in NumPy; this is the same for usual ones, which have no NULL in what
is read. tests/threads/input/test_short_aggregates.py holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from plait.core.aggregate.columns import Read, ones, plain
from plait.core.aggregate.groups import Groups
from plait.core.aggregate.reads import Columns
from plait.threads import words as shared
from plait.threads.input import given
from plait.threads.input.short import Reads, kind_of


def reads_of(columns: Columns, rows: Mapping[str, int] | None = None) -> Reads | None:
    """What compiled code reads of usual rows: the bits of every column of fixed width.

    They go into the arena's columns, with flags that say that they are there; or with `rows`, into these rows of an array. None
    where a condition has to be asked, or a column is of a kind that compiled code does not read.
    """
    if columns.conditions:
        return None
    table: list[list[int]] = []
    for k, name in enumerate(columns.fixed):
        kind = kind_of(columns.schema.field(name).type)
        if kind is None:
            return None
        column, at = columns.schema.get_field_index(name), shared.A_COLUMNS + 2 * k
        table.append([column, kind, given.TO_BITS, at if rows is None else rows[name], 0, 0, 0])
        if rows is None:
            table.append([0, 0, given.TO_FLAGS, at + 1, 0, 0, 0])
    return Reads(np.array(table, np.int64).reshape(-1, given.READ_WORDS), np.zeros(1))


class KeyedBits:
    """Of a usual batch the bits of all columns that are read, in rows: keys first, then zeros, which say that none of them is
    NULL, then the rest. So the first rows are the keys' words as they are: of floats normalized, and then those of the column
    itself are among the rest. `at`: by column, where functions find it.
    """

    def __init__(self, columns: Columns, groups: Groups) -> None:
        by = [name for name, _ in groups.by]
        floats = {name for name, kind in groups.by if pa.types.is_floating(plain(kind))}  # read as they are, too
        others = [name for name in columns.fixed if name not in by or name in floats]
        self.keys, self.rows = len(by) + 1, len(by) + 1 + len(others)
        self.at = {name: k for k, name in enumerate(by)} | {name: self.keys + k for k, name in enumerate(others)}
        self._reads = None
        if not columns.varied and (found := reads_of(columns, self.at)) is not None:
            table = list(found.table)
            for k, name in enumerate(by):
                if name in floats:
                    row = table[columns.fixed.index(name)].copy()
                    row[given.READ_AT], row[given.READ_LIMIT] = k, 1
                    table.append(row)
            self._reads = Reads(np.array(table, np.int64).reshape(-1, given.READ_WORDS), found.limits)

    def reads(self, side: int) -> Reads | None:
        return self._reads

    def read(self, bits: np.ndarray, n: int) -> tuple[Read, np.ndarray]:
        """As functions read them, and the keys' words."""
        there = ones(n)
        return Read({name: (bits[at], there) for name, at in self.at.items()}, [], there), bits[: self.keys]
