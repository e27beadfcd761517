"""How tuples set out for an operator's cells: in which form, and which cell each goes to.

A tuple of a stream and one that another operator's cell puts out go the same way. For aggregates whose functions allow it
they go as partial panes: a key that most tuples have is then a row a pane and task, and no cell has more to do than another.

Which cells a tuple goes to is its layout's rule (`plan.layout` has the kinds):

    grid, see_all   by a hash of its own key: to one line of cells, or to all of them
    hash            by the values that must be equal, so equal values meet and none is copied. Only that equal values get equal
                    words matters; whether a pair matches is still the condition's to say. Tuples of an aggregate or a
                    dedup go by the values of its key, NULL and NaN among them
    band            by the range that a band's coordinate lies in, or those that its band reaches (`ranges`)
    stretches       by time: to the cell whose stretch of time it lies in, and to those whose tuples may meet it. Batch runs alone
    buckets         by what `route` says, which is called here, once a tuple. Bucket b lives in cell b modulo the number of cells.
                    A tuple goes to the cells of its buckets and says which these are; one that names none goes nowhere, unless
                    it may have to be shown as dropped: then one cell has it for that alone. A `route` that raises does so again
                    in the cells, when the tuple's turn comes: a tuple that is late is then dropped and not refused, and the
                    error has the tuple's place

Where it runs: `shipping` on the driver, `parts` in a task that packs or in a cell that sends results on; `codes_of` in an
operator's cells. It must be a function of the tuples alone, `route` too: no clock, no task number. A retried task has to send
the same tuples to the same cells. Held by tests/spark/test_cells.py, tests/spark/test_hash.py and
tests/spark/test_operators.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core import keys
from plait.core.condition.terms import terms
from plait.core.operator.buckets import EVERY, NONE, SEVERAL, Rows, routed
from plait.core.row_by_row import changed
from plait.core.values import Form, compared_as, key_words
from plait.errors import QueryError
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound, label
from plait.query.condition.expression import Column
from plait.query.dedup import Dedup
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import BoundStep, Union
from plait.spark import formats
from plait.spark.formats import ROUTE, ROUTE_TYPE, UNCLEAR
from plait.spark.pack.ranges import RangeColumns, band_places, range_columns
from plait.spark.plan.layout import Layout, mix

#: What a route comes to, besides the codes of `core.operator.buckets`: it has raised.
AGAIN = -4


@dataclass(frozen=True)
class Shipping:
    """How one input's tuples get to an operator's cells. Pickled into the tasks."""

    bound: Bound  # the operator they go to
    layout: Layout
    by_value: HashColumns | None  # for the layout "hash"
    columns: tuple[str, ...]  # those that go along
    folds: bool  # as partial panes
    whole: bool  # tuples may have to be left out in the cells, and shown
    by_range: RangeColumns | None = None  # for the layout "band"

    def columns_of(self, input: int) -> tuple[str, ...]:
        """Those of one of the inputs: where they read a stream in two ways, they have different ones."""
        return self.columns if isinstance(self.bound.node, Aggregate) else tuple(self.bound.inputs[input].schema.names)

    def parts(self, input: int, tuples: Tuples) -> list[pa.Table]:
        """For each cell what goes there.

        A table for each cell, in the order of the layout's keys; some may be empty. Tuples have the columns that the
        operator reads, their ts, their key, and what `beside` adds. The key is spelled here, since this is where the
        input's number is known.
        """
        steps = self.bound.inputs[input].steps
        if steps:
            tuples = tuples.changed(steps)
        table = _folded(self, input, tuples) if self.folds else _keyed(self, input, tuples)
        if isinstance(self.bound.node, Operator):
            return routed_parts(
                self.bound, input, table, tuples.ts, tuples.hashes(), self.layout.cells, whole=self.whole
            )
        if self.by_range is not None:
            return banded_parts(self.by_range, self.layout, input, table, tuples.hashes(), whole=self.whole)
        if self.layout.kind == "stretches":
            return [part.combine_chunks() for part in in_stretch(self.layout, input, tuples.ts, table)]
        hashes = tuples.hashes() if self.by_value is None else words(self.by_value, input, table)
        if self.layout.kind == "see_all":
            table = table.append_column(formats.HASH, pa.array(hashes))
        places = destinations(self.layout, input, hashes)
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

    def changed(self, steps: Sequence[BoundStep]) -> Tuples:
        """The same after what is done to each row; their keys, and what they are dealt out by, are what they were."""
        rows = self.rows if self.place is None else self.rows.take(pa.array(self.place))
        found, kept = changed(steps, rows, self.ts)
        if kept is None:
            return replace(self, rows=found, place=None)
        beside = {name: column.take(pa.array(kept)) for name, column in self.beside.items()}
        return Tuples(
            found, None, self.ts[kept], lambda at: self.own_keys(kept if at is None else kept[at]),
            lambda: self.hashes()[kept], beside,
        )  # fmt: skip

    def table(self, columns: Sequence[str], order: np.ndarray | None = None) -> pa.Table:
        """These columns, of all tuples, in another order if one is given. Rows move once, and not if they stand so already."""
        at = self.place if order is None else order if self.place is None else self.place[order]
        rows = self.rows.select(list(columns))
        # Without columns a table still has a number of rows, but not after `take`.
        return rows if at is None or not columns or (at[1:] > at[:-1]).all() else rows.take(pa.array(at))


def shipping(bound: Bound, input: int, layout: Layout, *, whole: bool) -> Shipping:
    """To an operator's cells. `whole`: rows may have to be left out there, and shown, so they must come as they are."""
    columns, folds = tuple(bound.inputs[input].schema.names), False
    by_value = None
    if layout.kind == "hash" and not isinstance(bound.node, Union):
        by_value = hash_columns(bound)
    if isinstance(bound.node, Aggregate):
        from plait.core.aggregate.parts import layout as parts
        from plait.spark.cell.aggregate import needed_columns

        folds = not whole and parts(bound) is not None
        columns = columns if whole else tuple(needed_columns(bound))
    by_range = range_columns(bound, layout.term, layout.wide) if layout.kind == "band" else None
    return Shipping(bound, layout, by_value, columns, folds, whole, by_range)


# --- in which form ------------------------------------------------------------------------------------------


def _keyed(plan: Shipping, input: int, tuples: Tuples) -> pa.Table:
    """Tuples with their ts and key, and what else is for the cell."""
    n = len(tuples.ts)
    table = tuples.table(plan.columns_of(input)).append_column(formats.TS, pa.array(tuples.ts))
    key = keys.join(keys.ints(tuples.ts), keys.constant(input, n), tuples.own_keys(None), n=n)
    table = table.append_column(formats.KEY, key)
    for name, column in tuples.beside.items():
        table = table.append_column(name, column)
    return table


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


# --- to which cell ------------------------------------------------------------------------------------------


def destinations(layout: Layout, input: int, hashes: np.ndarray) -> list[np.ndarray | None]:
    """For each cell, the positions of the tuples that go there; None: all of them.

    `hashes` are words of the tuples' own keys, or for "hash" of the values that must be equal.
    """
    if layout.kind == "see_all":
        return [None] * layout.cells
    lines = layout.rows if input == 0 or layout.kind == "hash" else layout.columns
    if lines == 1:
        return [None] * layout.cells
    line = (hashes % np.uint64(lines)).astype(np.int64)
    of_line = [np.flatnonzero(line == k) for k in range(lines)]
    return [
        of_line[c // layout.columns if input == 0 or layout.kind == "hash" else c % layout.columns]
        for c in range(layout.cells)
    ]


def banded_parts(by_range: RangeColumns, layout: Layout, input: int, table: pa.Table, hashes: np.ndarray, *,
                 whole: bool) -> list[pa.Table]:  # fmt: skip
    """`table` parted among the cells of ranges. `whole`: of the cells that get a tuple the first one owns it."""
    to = band_places(layout, by_range.spans(input, table), input, hashes)
    owner = to.argmax(0)
    parts = []
    for cell, own in enumerate(to):
        at = np.flatnonzero(own)
        part = table if len(at) == table.num_rows else table.take(pa.array(at))
        if whole:
            part = part.append_column(formats.OWN, pa.array(owner[at] == cell))
        parts.append(part.combine_chunks())
    return parts


def in_stretch(layout: Layout, input: int, ts: np.ndarray, table: pa.Table) -> Iterator[pa.Table]:
    """What goes to each cell where these have stretches of time: to its own, and to those whose tuples may meet it.

    Most tuples stand in the order of time already: then nothing moves.
    """
    for since, end in zip(layout.since[input], (*layout.begins[1:], AFTER_ALL), strict=True):
        at = np.flatnonzero((ts >= since) & (ts < end))
        if len(at) == 0 or at[-1] - at[0] + 1 == len(at):
            yield table.slice(at[0] if len(at) else 0, len(at))
        else:
            yield table.take(pa.array(at))


@dataclass(frozen=True)
class HashColumns:
    """For each input the columns to hash, and the form in which both sides' values are compared."""

    columns: tuple[tuple[str, ...], ...]
    forms: tuple[Form, ...]


def hash_columns(bound: Bound) -> HashColumns:
    """The equality terms of a query that are plain columns; refused if it has none.

    For an as-of join these are `by`. For an aggregate without `by` there is no column: all words are equal, and one cell
    has all. Terms that are expressions, such as `a.x + 1 = b.y`, are not used.
    """
    node = bound.node
    if isinstance(node, (Aggregate, Dedup)):
        kinds = [bound.inputs[0].schema.field(name).type for name in node.by]
        return HashColumns((node.by,), tuple(compared_as(kind, kind) for kind in kinds))
    left, right = (i.schema for i in bound.inputs)
    pairs = equal_columns(bound)
    if not pairs:
        raise QueryError(
            "layout='hash', and the query has no equality of two columns",
            why="tuples go by the values that must be equal",
            do="Use layout='auto' or a grid (m, n)",
        )
    forms = tuple(compared_as(left.field(a).type, right.field(b).type) for a, b in pairs)
    return HashColumns((tuple(a for a, _ in pairs), tuple(b for _, b in pairs)), forms)


def equal_columns(bound: Bound) -> list[tuple[str, str]]:
    """Of a join or an as-of join, the pairs of a left and a right column that must be equal."""
    node = bound.node
    if isinstance(node, Asof):
        return list(node.by)
    pairs: list[tuple[str, str]] = []
    if isinstance(node, Join) and bound.predicate is not None and bound.predicate.expr is not None:
        left, right = (i.schema for i in bound.inputs)
        for term in terms(bound.predicate.expr, (left, right)).equalities:
            if isinstance(term.left, Column) and isinstance(term.right, Column):
                pairs.append((term.left.name, term.right.name))
    return pairs


def words(plan: HashColumns, input: int, table: pa.Table) -> np.ndarray:
    """One 64-bit word a row: equal values of the columns give equal words."""
    total = np.zeros(table.num_rows, np.uint64)
    for name, form in zip(plan.columns[input], plan.forms, strict=True):
        total = mix(total ^ key_words(table.column(name), form))
    return total


def routed_parts(bound: Bound, input: int, table: pa.Table, ts: np.ndarray, hashes: np.ndarray, cells: int, *,
                 whole: bool) -> list[pa.Table]:  # fmt: skip
    """`table` parted among an operator's cells. `whole`: each tuple is in one cell at least, and one owns it.

    The buckets travel along in the column ROUTE, so a cell need not call `route` again.
    """
    codes, named = routes(bound, input, table, ts)
    table = table.append_column(ROUTE, pa.array(named, ROUTE_TYPE))
    to = places(codes, named, cells)
    if not whole:
        return [table.take(pa.array(at)).combine_chunks() for at in to]
    owner = (hashes % np.uint64(cells)).astype(np.int64)
    parts = []
    for cell, at in enumerate(to):
        at = np.union1d(at, np.flatnonzero(owner == cell))
        part = table.take(pa.array(at)).append_column(formats.OWN, pa.array(owner[at] == cell))
        parts.append(part.combine_chunks())
    return parts


def routes(bound: Bound, input: int, rows: pa.Table, ts: np.ndarray) -> tuple[np.ndarray, list[list[int] | None]]:
    """Of each tuple the bucket or a code, and the buckets as they travel.

    One call of the user's function for each tuple, in Python. This is what an operator costs on the way in.
    """
    node = bound.node
    assert isinstance(node, Operator)
    schema = bound.inputs[input].schema
    views = Rows(rows.select(schema.names).cast(schema), ts, stream_name(bound, input))
    codes, named = np.empty(len(ts), np.int64), []
    for k in range(len(ts)):
        try:
            code, several = routed(node.route(views.view(k)), node.buckets)
        except Exception:  # whatever it is, it is told where the tuple's turn comes: its cells call the function again
            code, several = AGAIN, None
        codes[k] = code
        travels = {EVERY: None, NONE: [], SEVERAL: list(several or ()), AGAIN: [UNCLEAR]}
        named.append([code] if code >= 0 else travels[code])
    return codes, named


def places(codes: np.ndarray, named: list[list[int] | None], cells: int) -> list[np.ndarray]:
    """For each cell, the tuples that go there.

    A tuple for several buckets of one cell goes there once.
    """
    to = np.zeros((cells, len(codes)), bool)
    one = np.flatnonzero(codes >= 0)
    to[codes[one] % cells, one] = True
    to[:, (codes == EVERY) | (codes == AGAIN)] = True
    for k in np.flatnonzero(codes == SEVERAL).tolist():
        to[[bucket % cells for bucket in named[k] or ()], k] = True
    return [np.flatnonzero(row) for row in to]


def stream_name(bound: Bound, input: int) -> str:
    """What `t.stream` says."""
    return label(bound.inputs[input], input)


def codes_of(column: Any) -> tuple[np.ndarray, list[list[int] | None]]:
    """The codes again, from what has travelled."""
    if len(column) == 0:
        return np.zeros(0, np.int64), []
    sizes = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    named = column.to_pylist()
    codes = np.where(sizes < 0, EVERY, np.where(sizes == 0, NONE, SEVERAL)).astype(np.int64)
    for k in np.flatnonzero(sizes == 1).tolist():
        codes[k] = AGAIN if named[k][0] == UNCLEAR else named[k][0]
    return codes, named
