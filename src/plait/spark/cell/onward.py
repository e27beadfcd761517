"""From one operator's cells to the next one's: results set out like a stream's tuples, with how far this operator is.

Every cell tells every cell of the next operator its frontier, also when it has no result for it: it is the punctuation of
a chain. What a cell has to tell the user (rows dropped, its state) travels along, through one cell of each operator.

Where it runs: at the end of `cell.step`, in an inner operator's task. The rows it gives have the same form as packed
ones, so Spark shuffles them straight to the next operator's cells within the same micro-batch.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.row_by_row import PLAIT_TS
from plait.encodings import one_piece
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
        cells = self.ship.layout.keys
        out: list[tuple[int, bytes]] = []
        for input in self.inputs:
            head = formats.OperatorRows(self.number, input, frontier)
            out += zip(cells, formats.bodies(head, self.ship.parts(input, tuples)), strict=True)
        return out + [(cells[0], formats.body(formats.Passed(kind), body)) for kind, body in for_user]
