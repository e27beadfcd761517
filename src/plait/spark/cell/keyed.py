"""An aggregate's results on their way: rows in result order. Of windows of time the columns themselves are the key.

What goes in: rows of closed windows, or what a user's operator has put out. For windows of time the key is not sent,
because (ts, key columns) says the same: two windows of one key never end at one ts. It is spelled where somebody asks for
`_plait_key`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from plait.core import keys
from plait.encodings import one_piece
from plait.spark import formats


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

    def spelled(self) -> pa.Array:
        """`_plait_key` of each row."""
        if self.key is not None:
            return self.key
        return keys.window_rows(self.columns.column(0), (self.columns.column(name) for name in self.by))

    def table(self) -> pa.Table:
        """The columns, and `_plait_key` spelled out."""
        return self.columns.append_column(pa.field(formats.KEY, pa.binary()), self.spelled())

    def bodies(self, cut: int = 1 << 20) -> list[bytes]:
        """As packed rows, of `cut` results at most."""
        whole = self.columns if self.key is None else self.table()
        head = formats.KeyedRows(list(self.by), self.key is not None)
        parts = (whole.slice(at, cut).replace_schema_metadata(None) for at in range(0, self.rows, cut))
        return list(formats.bodies(head, parts))

    @classmethod
    def of(cls, head: formats.KeyedRows, rest: pa.Buffer) -> Keyed:
        """From a body's head and what follows it."""
        rows = formats.table(rest)
        if not head.spelled:
            return cls(rows, tuple(head.by))
        return cls(rows.drop_columns([formats.KEY]), tuple(head.by), one_piece(rows.column(formats.KEY)))


def merge(parts: list[Keyed]) -> Keyed:
    """All of these in result order; each is in order already.

    By ts and key columns, or by ts and key. Cells have different groups, so no two rows are equal in all of these.
    """
    if len(parts) == 1:
        return parts[0]
    columns = pa.concat_tables([part.columns for part in parts])
    key = None
    if parts[0].key is not None:
        key = pa.concat_arrays([part.key for part in parts])
        order = keys.in_order_of((columns.column(0), key))
    else:
        order = keys.in_order_of(columns.column(name) for name in (0, *parts[0].by))
    return Keyed(columns.take(order).combine_chunks(), parts[0].by, None if key is None else key.take(order))
