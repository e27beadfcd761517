"""Which aggregates the W-Hive can serve, and how parts of several sources make one pane's slot.

A source's accumulators are those of panes, their rows its cells, in a ring. What each function does there is its accumulator's
(`core.aggregate.accumulators`), and whether it can is in its record (`core.aggregate.functions`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import Accumulator, Frozen
from plait.core.aggregate.functions import accumulator_of, unmerged
from plait.core.aggregate.panes import window_record
from plait.core.aggregate.reads import uses
from plait.errors import QueryError
from plait.query.aggregate import Aggregate


def check(node: Aggregate, schema: pa.Schema | None = None) -> str | None:
    """Why the W-Hive can't serve a query; None if it can. Without a schema: as far as that can be said then."""
    apart = window_record(node).by_source
    if apart is not None:
        return apart
    for name, function in node.compute:
        reason = unmerged(function, schema)
        if reason is not None:
            return f"{name} = {function.describe()} {reason}"
    return None


def refuse(reason: str, query: Aggregate, strategy: str) -> QueryError:
    other = "'tuml_sc'" + (" or 'tuml_mc'" if query.by else "")
    return QueryError(
        f"strategy={strategy!r} for this query: {reason}",
        why="with WiML every source updates windows by itself, and parts are merged when a winset is complete",
        do=f"Use {other}, where tuples come in total order, or 'auto'",
    )


def accumulators(node: Aggregate, schema: pa.Schema) -> list[Accumulator]:
    """One source's, in the order of the query's functions. `check` has let the query pass: all have one."""
    made = [accumulator_of(use) for use in uses(node, schema)]
    return [each.of_source() for each in made if each is not None]


class Absorbing:
    """Merging of cells into the slots of new panes, from `first` on, one source after the other in their order."""

    def __init__(self, into: list[Accumulator], first: int, number: int) -> None:
        self._into, self._first = into, first
        self._ts = [a.times(number) for a in into]

    def absorb(self, parts: list[Frozen], target: np.ndarray, cell: np.ndarray) -> None:
        """A source's parts: cell[k], its number, goes into slot target[k]."""
        for accumulator, part, ts in zip(self._into, parts, self._ts, strict=True):
            accumulator.absorb_cells(part, target, cell, self._first, ts)
