"""How tuples set out for an operator's cells: which cell each goes to, and in which form.

A tuple of a stream and one that another operator's cell puts out go the same way. For aggregates whose functions allow it
they go as partial panes: a key that most tuples have is then a row a pane and task, and no cell has more to do than another.

Where it runs: `shipping` on the driver, `parts` in a task that packs or in a cell that sends results on. It must be a
function of the tuples alone: no clock, no task number. A retried task has to send the same tuples to the same cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.spark import formats
from plait.spark.pack.route import routed_parts
from plait.spark.plan.hash_layout import HashColumns, hash_columns, words
from plait.spark.plan.layout import Layout


@dataclass(frozen=True)
class Shipping:
    """How one input's tuples get to an operator's cells. Pickled into the tasks."""

    bound: Bound  # the operator they go to
    layout: Layout
    by_value: HashColumns | None  # for the layout "hash"
    columns: tuple[str, ...]  # those that go along
    folds: bool  # as partial panes
    whole: bool  # tuples may have to be left out in the cells, and shown

    def parts(self, input: int, tuples: Tuples) -> list[pa.Table]:
        """For each cell what goes there.

        A table for each cell, in the order of the layout's keys; some may be empty. Tuples have the columns that the
        operator reads, their ts, their key, and what `beside` adds. The key is spelled here, since this is where the
        input's number is known.
        """
        if self.folds:
            table = _folded(self, input, tuples)
            hashes = None
        else:
            n = len(tuples.ts)
            table = tuples.table(self.columns).append_column(formats.TS, pa.array(tuples.ts))
            key = keys.join(keys.ints(tuples.ts), keys.constant(input, n), tuples.own_keys(None), n=n)
            table = table.append_column(formats.KEY, key)
            for name, column in tuples.beside.items():
                table = table.append_column(name, column)
            hashes = tuples.hashes()
            if isinstance(self.bound.node, Operator):
                return routed_parts(self.bound, input, table, tuples.ts, hashes, self.layout.cells, whole=self.whole)
            if self.layout.kind == "see_all":
                table = table.append_column(formats.HASH, pa.array(hashes))
        if self.by_value is not None:
            hashes = words(self.by_value, input, table)
        assert hashes is not None
        places = self.layout.destinations(input, hashes)
        return [(table if at is None else table.take(pa.array(at))).combine_chunks() for at in places]


@dataclass(frozen=True)
class Tuples:
    """Rows by (source, seq) or in total order. What stands in a tuple's key after (ts, input) is its own key."""

    rows: pa.Table
    place: np.ndarray | None  # where each stands in `rows`; None: there they are in this order
    ts: np.ndarray
    own_keys: Callable[[np.ndarray | None], pa.Array]  # of rows by number; None: of all
    hashes: Callable[[], np.ndarray]  # a word of each tuple's own key
    beside: dict[str, pa.Array]  # further columns, for the cell

    def table(self, columns: Sequence[str], order: np.ndarray | None = None) -> pa.Table:
        """These columns, of all tuples, in another order if one is given. Rows move once, and not if they stand so already."""
        at = self.place if order is None else order if self.place is None else self.place[order]
        rows = self.rows.select(list(columns))
        # Without columns a table still has a number of rows, but not after `take`.
        return rows if at is None or not columns or (at[1:] > at[:-1]).all() else rows.take(pa.array(at))


def shipping(bound: Bound, input: int, layout: Layout, *, whole: bool) -> Shipping:
    """To an operator's cells. `whole`: rows may have to be left out there, and shown, so they must come as they are."""
    columns, folds = tuple(bound.inputs[input].schema.names), False
    if isinstance(bound.node, Aggregate):
        from plait.core.aggregate.parts import layout as parts
        from plait.spark.cell.aggregate import needed_columns

        folds = not whole and parts(bound) is not None
        columns = columns if whole else tuple(needed_columns(bound))
    return Shipping(bound, layout, hash_columns(bound) if layout.kind == "hash" else None, columns, folds, whole)


def _folded(plan: Shipping, input: int, tuples: Tuples) -> pa.Table:
    """Tuples as partial panes: a row for each pane and group of this task.

    `own` spells the keys of those tuples that a pane refers to (its first, its last), and of no others.
    """
    from plait.core.aggregate.parts import PaneFold
    from plait.core.aggregate.parts import layout as parts

    found = parts(plan.bound)
    assert found is not None
    schema = pa.schema([plan.bound.inputs[input].schema.field(name) for name in plan.columns])
    # Stable: rows come by source and seq, so by ts they are in total order.
    order = np.argsort(tuples.ts, kind="stable")
    ts = tuples.ts[order]
    rows = tuples.table(schema.names, order).cast(schema)

    def own(places: np.ndarray) -> pa.Array:
        n = len(places)
        return keys.join(keys.ints(ts[places]), keys.constant(input, n), tuples.own_keys(order[places]), n=n)

    return PaneFold(plan.bound, found).folded(rows, ts, own)
