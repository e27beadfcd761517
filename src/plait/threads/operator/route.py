"""What an operator needs of a row before it enters the gate: which buckets see it. `route` is called once, by who pushes it.

Stands where `columns.Encoder` stands for joins. A row's route lies in its source's arena: the number of its bucket or
one of the codes of `core.operator.buckets`; where it names several buckets, these lie beside it. After that come the
columns of numbers that compiled functions read (`core.operator.compiled`), if there are such.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.operator.buckets import Rows, routed
from plait.core.operator.compiled import Made
from plait.errors import PlaitError, user_raised
from plait.query.bind import Bound, label
from plait.query.operator import Operator

SEVERAL = "several"


class RoutedRows:
    """A source's rows as they go into its arena."""

    key = coord = None

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays[0])


class Router:
    """Which buckets see a row, and the numbers that compiled functions read of it.

    `has_node` and `stamp` are what sources and arenas ask every encoder for: no index here, and nothing that has
    codes.
    """

    has_node = False
    stamp = 0

    def __init__(self, bound: Bound, made: Made | None, go_plain: Callable[[str], None]) -> None:
        """`made`: the compiled functions, if there are; `go_plain` gives them up when rows come that they can't read."""
        assert isinstance(bound.node, Operator)
        self.node, self.made, self._go_plain, self._plain = bound.node, made, go_plain, made is None
        self.names = tuple(label(i, n) for n, i in enumerate(bound.inputs))
        self._one = threading.Lock()  # the user's function is called by one thread at a time, as it would be in a loop

    def columns(self, side: int) -> list[tuple[str, Any]]:
        """Of each row: its route, the compiled functions' columns, and the buckets where there are several (None
        otherwise).
        """
        numbers = [] if self.made is None else self.made.layout()
        return [("route", "int64"), *numbers, (SEVERAL, object)]

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> RoutedRows:
        with self._one:
            return self._routed(side, batch, ts)

    def _routed(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> RoutedRows:
        """Route a batch: by machine code where the route is compiled, else by calling the user's function for each
        row.

        Rows that compiled functions can't read (`made.unreadable`) end the use of machine code for the rest of the
        run, before they enter; the columns then hold zeros, which nobody reads.
        """
        n, made = len(ts), self.made
        if made is not None and not self._plain and (why := made.unreadable(side, batch)):
            self._go_plain(why)
            self._plain = True
        numbers = (
            []
            if made is None
            else [np.zeros(n, np.int64)] * made.width
            if self._plain
            else made.arrays(side, batch, ts)
        )
        several = np.full(n, None, object)
        codes = None if made is None or self._plain else made.routes(side, numbers, ts)
        if codes is None:
            codes = np.empty(n, np.int64)
            rows, route, buckets = Rows(batch, ts, self.names[side]), self.node.route, self.node.buckets
            for k in range(n):
                try:
                    codes[k], several[k] = routed(route(rows.view(k)), buckets)
                except PlaitError:
                    raise
                except Exception as error:
                    why = f"it was called with the tuple of {self.names[side]!r} at ts {int(ts[k])}"
                    raise user_raised(error, "The operator's route", why) from error
        return RoutedRows([codes, *numbers, several])

    def encoded(self, side: int, rows: RoutedRows) -> list[np.ndarray]:
        return rows.arrays

    def fits(self, side: int, rows: RoutedRows) -> bool:
        return True

    def admit(self, side: int, rows: RoutedRows) -> bool:
        return False

    def forget(self, stamp: int) -> None:
        """Nothing is coded here."""
