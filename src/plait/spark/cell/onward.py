"""From one operator's cells to the next one's: results set out like a stream's tuples, with how far this operator is.

Every cell tells every cell of the next operator its frontier, also when it has no result for it: it is the punctuation of
a chain. What a cell has to tell the user (rows dropped, its state) travels along, through one cell of each operator.

Where it runs: at the end of `cell.step`, in an inner operator's task. The rows it gives have the same form as packed
ones, so Spark shuffles them straight to the next operator's cells within the same micro-batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.row_by_row import PLAIT_TS
from plait.encodings import one_piece
from plait.order import BEFORE_ALL
from plait.spark import formats
from plait.spark.cell.results import Keyed, Results
from plait.spark.pack.ship import Shipping, Tuples
from plait.spark.plan.layout import mix


@dataclass(frozen=True)
class Onward:
    """Where an operator's results go.

    Attributes:
        number: Under which the next operator knows this one.
        inputs: Of the next operator, those that read it.
        ship: How rows are dealt out to its cells: the same rules as for tuples of streams.
    """

    number: int  # of the operator whose results these are
    inputs: tuple[int, ...]  # of the next one: two where it joins them with themselves
    ship: Shipping

    def bodies(
        self, results: Results | Keyed, frontier: int, for_user: list[tuple[int, bytes]]
    ) -> list[tuple[int, bytes]]:
        """Packed rows for the next operator: (cell, body).

        One for each cell, with or without rows, since each must hear the frontier. A result's own key stands in the place
        of a stream's (source, seq): the next operator puts (ts, input) in front. What is for the user goes to the next
        operator's first cell.
        """
        out: list[tuple[int, bytes]] = []
        for input, parts in self._parts(results):
            head = formats.OperatorRows(self.number, input, frontier)
            out += zip(self.ship.layout.keys, formats.bodies(head, parts), strict=True)
        return out + self.passed(for_user)

    def slabs(self, results: Results | Keyed, most: int) -> list[tuple[int, int, bytes]]:
        """The same in a batch run: (cell, least ts, body), of at most so many rows. All ends at once, so no frontier is told."""
        return [
            (cell, at, formats.body(formats.OperatorRows(self.number, input, BEFORE_ALL), slab))
            for input, parts in self._parts(results)
            for cell, part in zip(self.ship.layout.keys, parts, strict=True)
            for at, slab in formats.slabs(part, most)
        ]

    def passed(self, for_user: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """What is for the user, on its way through the next operator's first cell."""
        first = self.ship.layout.keys[0]
        return [(first, formats.body(formats.Passed(kind), body)) for kind, body in for_user]

    def _parts(self, results: Results | Keyed) -> Iterator[tuple[int, list[pa.Table]]]:
        """Of each input of the next operator's, what goes to each of its cells."""
        table = results.table()
        key = one_piece(table.column(formats.KEY))
        ts = keys.ts_numbers(table.column(0))
        rows = table.drop_columns([formats.KEY])
        if PLAIT_TS in rows.column_names:  # a stream's rows, which have their ts besides
            rows = rows.drop_columns([PLAIT_TS])
        tuples = Tuples(
            rows, None, ts, lambda at: key if at is None else key.take(pa.array(at)),
            lambda: mix(np.fromiter((zlib.crc32(k) for k in key.to_pylist()), np.uint64, len(key))), {},
        )  # fmt: skip
        for input in self.inputs:
            yield input, self.ship.parts(input, tuples)
