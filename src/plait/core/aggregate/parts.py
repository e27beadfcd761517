"""Partial panes: what some of a pane's tuples come to, one row a group, as an Arrow table that can travel and be kept.

Whoever has tuples folds them (`PaneFold.folded`); partial panes of the same pane and group, wherever they were made, are
joined into one (`combined`), as often as one likes; complete panes make windows (`PartPanes.absorb`). Nothing of it shows
in the rows of windows: counts and sums are exact, and a first or last tuple is told by its key in the total order.

A row's time is its pane's last microsecond: it lies below the frontier exactly when no more of its pane can come.

This is how Spark's tasks save work: a task sends one row a pane and group instead of every tuple. Columns are, in order:
`_plait_ts` (int64, the pane's last microsecond), the key columns, then what each function keeps (`Layout`). Held against
the reference, with tuples dealt out at random, in tests/core/aggregate/test_parts.py.

Example: tuples at 1 s and 2 s in one task and at 2.5 s in another, with `size="3s"`. Each task gives a row of ts 2999999
us; the counts 2 and 1 make 3 wherever the rows meet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.aggregate.accumulators import Accumulator, Place
from plait.core.aggregate.closed import Closed
from plait.core.aggregate.functions import Use, accumulator_of, value_part
from plait.core.aggregate.lists import Listed, Lists
from plait.core.aggregate.panes import window_record
from plait.core.aggregate.reads import uses
from plait.core.aggregate.span import CHUNK, SpanPanes, span_window
from plait.core.aggregate.values import Values, spread
from plait.core.kernels import panes
from plait.core.values import one_array
from plait.encodings import recast
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound

TS = "_plait_ts"

Keys = Callable[[np.ndarray], pa.Array]


@dataclass(frozen=True)
class Layout:
    """The columns of partial panes: the pane's time, the group's columns, then each function's own.

    `numbers` are functions with the names of their parts; `edges` those that keep the value of a first or last tuple: the
    function, its column of values, and the edge that it is the value of; `keys` names each edge's column of keys; `values` are
    functions that keep lists of values (`values`), with their column and how its lists are made.
    """

    schema: pa.Schema
    numbers: tuple[tuple[int, tuple[str, ...]], ...]
    edges: tuple[tuple[int, str, int], ...]
    keys: tuple[tuple[str, bool, int | None], ...]  # column, whether it is the last, number of the condition
    values: tuple[tuple[int, str, Values], ...]


def layout(bound: Bound) -> Layout | None:
    """How an aggregate's partial panes look; None where it can't be made of them: a function wants all its tuples.

    Three forms: numbers that merge (`Accumulator.part_types`), the value of a first or last tuple beside that tuple's
    key, and lists of values that are compared (`values`). Two functions that look for the same edge under the same
    condition share one column of keys. A function without any of them, such as `collect`, makes the answer None, and
    tuples travel instead.
    """
    assert isinstance(bound.node, Aggregate)
    node, schema = bound.node, bound.inputs[0].schema
    if not window_record(node).partial:
        return None
    fields = [pa.field(TS, pa.int64()), *(schema.field(name) for name in node.by)]
    numbers: list[tuple[int, tuple[str, ...]]] = []
    edges: list[tuple[int, str, int]] = []
    keys: list[tuple[str, bool, int | None]] = []
    values: list[tuple[int, str, Values]] = []
    for number, use in enumerate(uses(node, schema)):
        made, part = accumulator_of(use), value_part(use.function)
        if made is not None and made.edge is not None:
            known = [(last, condition) for _, last, condition in keys]
            if made.edge not in known:
                keys.append((f"_plait_edge {len(keys)}", *made.edge))
                fields.append(pa.field(keys[-1][0], pa.binary()))
                known.append(made.edge)
            edges.append((number, f"_plait_part {number}", known.index(made.edge)))
            fields.append(pa.field(edges[-1][1], use.type))
        elif made is not None and made.part_types is not None:
            names = tuple(f"_plait_part {number} {k}" for k in range(len(made.part_types)))
            fields += [pa.field(name, kind) for name, kind in zip(names, made.part_types, strict=True)]
            numbers.append((number, names))
        elif made is None and part is not None and (kind := part.type(use.type)) is not None:
            values.append((number, f"_plait_part {number}", part))
            fields.append(pa.field(values[-1][1], kind))
        else:
            return None
    return Layout(pa.schema(fields), tuple(numbers), tuple(edges), tuple(keys), tuple(values))


class PartPanes(SpanPanes):
    """Windows made of partial panes: complete ones, in order of time, one a pane and group.

    What it is given must be complete: of a pane and group there is one row, and it comes once. Rows are in order of time.
    """

    def __init__(self, bound: Bound, parts: Layout) -> None:
        assert isinstance(bound.node, Aggregate)
        super().__init__(bound, span_window(bound))
        self.layout = parts
        self.by = bound.node.by

    def _lists_of(self, use: Use) -> Lists:
        """Each function has lists of its own: its part of a pane may hold each value once, another's of the same column all."""
        return self._lists(use.name, use.condition)

    def absorb(self, table: pa.Table, frontier: int) -> list[Closed]:
        """Take partial panes in, and give the rows of windows that end at or before the frontier."""
        self.counts.updates += table.num_rows
        for low in range(0, table.num_rows, CHUNK):
            part = table.slice(low, CHUNK)
            slot = self._slots_of(part)
            for number, names in self.layout.numbers:
                self._accumulator(number).absorb(slot, [one_array(part.column(name)) for name in names])
            for number, name, edge in self.layout.edges:
                columns = [part.column(name), part.column(self.layout.keys[edge][0])]
                self._accumulator(number).absorb(slot, [one_array(column) for column in columns])
            for number, name, _ in self.layout.values:
                self._list(number, *spread(slot, part.column(name)))
        out = self._pass(frontier)
        if self._refers and self.kept.crowded:
            self._let_go()
        return out

    def _list(self, number: int, slot: np.ndarray, values: pa.Array) -> None:
        """Values as rows of their column alone: the functions that read the lists pass over NULL.

        A pane's list becomes rows of its column alone, all other columns NULL; so `lists` computes from it what it
        computes from tuples.
        """
        made = self._results[number][1]
        assert isinstance(made, Listed)
        first = self.kept.append_column(self._node.compute[number][1].columns[0], values)
        made.lists.extend(0, len(slot), slot, np.arange(first, first + len(slot)))

    def _accumulator(self, number: int) -> Accumulator:
        made = self._results[number][1]
        assert isinstance(made, Accumulator)
        return made

    def _slots_of(self, table: pa.Table) -> np.ndarray:
        return self._assign(table.column(TS).to_numpy(), self.groups.find_rows(table))


class PaneFold(PartPanes):
    """Tuples, or partial panes, to partial panes. Good for one table: it keeps all it is given.

    `numbers` are accumulators that are updated; `places` find the row numbers of first and last tuples, one for each
    edge. The accumulators that hold values of edges are not updated: values are looked up by row number when the table is
    made.
    """

    def __init__(self, bound: Bound, parts: Layout) -> None:
        super().__init__(bound, parts)
        self.numbers = [self._accumulator(number) for number, _ in parts.numbers]
        self.places = [Place(last=last, condition=condition) for _, last, condition in parts.keys]
        self.accumulators = [*self.numbers, *self.places]
        self._refers = False

    def folded(self, rows: pa.Table, ts: np.ndarray, keys: Keys) -> pa.Table:
        """Partial panes of tuples, which are in total order; `keys` gives the keys of rows by number.

        `rows` has the columns that the aggregate reads, `ts` is int64 and ascends. `keys` is called once for each edge,
        with the numbers of the rows that are an edge of some pane, and gives their order keys as bytes: few, however many
        tuples there are.
        """
        arrays, varied = self.columns.arrays(rows, ts), rows.select(list(self.columns.varied))
        slots: list[np.ndarray] = []
        for low in range(0, len(ts), CHUNK):
            high = min(low + CHUNK, len(ts))
            read = self.columns.read([a[low:high] for a in arrays], high - low)
            group = self.groups.find(read, varied.slice(low, high - low), high - low)
            slot = self._assign(ts[low:high], group)
            self._update(0, high - low, slot, read, np.arange(low, high))
            slots.append(slot)
        live = self._live()
        found = [place.rows(live) for place in self.places]
        node = self._node
        picked = {
            name: _taken(one_array(rows.column(node.compute[number][1].columns[0])), found[edge])
            for number, name, edge in self.layout.edges
        }
        for (name, _, _), at in zip(self.layout.keys, found, strict=True):
            known = np.flatnonzero(at >= 0)
            place = np.full(len(at), -1)
            place[known] = np.arange(len(known))
            picked[name] = _taken(keys(at[known]), place)
        whole = self.columns.read(arrays, len(ts))
        for number, name, part in self.layout.values:
            made = self._results[number][1]
            assert isinstance(made, Listed)
            slot = made.lists.seen(_joined(slots), whole)
            picked[name] = part.lists(slot, rows.column(node.compute[number][1].columns[0]), len(live))
        return self._table(live, picked)

    def combined(self, table: pa.Table) -> pa.Table:
        """Partial panes of which each pane and group has one, in order of time.

        In: partial panes of any number of tasks, in any order. Out: each pane and group once, in order of time. Combining
        again changes nothing. Of edges, the least key is the first tuple and the greatest the last, whoever made the
        part.
        """
        ts = table.column(TS).to_numpy()
        if (ts[1:] < ts[:-1]).any():
            table = table.take(pc.sort_indices(table.column(TS)))
        table = table.combine_chunks()
        slots = []
        for low in range(0, table.num_rows, CHUNK):
            part = table.slice(low, CHUNK)
            slot = self._slots_of(part)
            slots.append(slot)
            for accumulator, (_, names) in zip(self.numbers, self.layout.numbers, strict=True):
                accumulator.absorb(slot, [one_array(part.column(name)) for name in names])
        slot = _joined(slots)
        live = self._live()
        picked = {}
        at = [_edge(slot, live, one_array(table.column(name)), last=last) for name, last, _ in self.layout.keys]
        for (name, _, _), rows in zip(self.layout.keys, at, strict=True):
            picked[name] = _taken(one_array(table.column(name)), rows)
        for _, name, edge in self.layout.edges:
            picked[name] = _taken(one_array(table.column(name)), at[edge])
        for _, name, own in self.layout.values:
            picked[name] = own.lists(*spread(slot, table.column(name)), len(live))
        return self._table(live, picked)

    def _table(self, live: np.ndarray, picked: dict[str, pa.Array]) -> pa.Table:
        """The slots as partial panes."""
        columns = dict(picked)
        columns[TS] = pa.array(self._last_us())
        columns |= dict(zip(self.by, self.groups.columns(self._slot_group[live]), strict=True))
        for accumulator, (_, names) in zip(self.numbers, self.layout.numbers, strict=True):
            columns |= dict(zip(names, accumulator.parts(live), strict=True))
        arrays = [recast(columns[field.name], field.type) for field in self.layout.schema]
        return pa.Table.from_arrays(arrays, schema=self.layout.schema)

    def _last_us(self) -> np.ndarray:
        """The last microsecond of each slot's pane.

        The inverse of `core.kernels.panes.pane_of`: pane 2q ends at q*advance + rest, pane 2q + 1 at (q + 1)*advance.
        """
        s = self._state
        first, last = int(s[panes.PANE_FIRST]), int(s[panes.PANE_END])
        id_ = self._pane_id[first:last]
        rest = self.size % self.advance
        if rest == 0:
            end = (id_ + 1) * self.advance
        else:
            end = np.where(id_ & 1 == 0, (id_ >> 1) * self.advance + rest, ((id_ >> 1) + 1) * self.advance)
        held = np.diff(np.append(self._pane_slot[first:last], int(s[panes.SLOT_END])))
        return np.repeat(end - 1, held)

    def _pass(self, frontier: int) -> list[Closed]:
        raise AssertionError("windows are not its business")


def _joined(slots: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(slots) if slots else np.zeros(0, np.int64)


def _taken(column: pa.Array, rows: np.ndarray) -> pa.Array:
    """Values by row number; NULL for -1."""
    return column.take(pa.array(rows, mask=rows < 0)) if len(column) else pa.nulls(len(rows), column.type)


def _edge(slot: np.ndarray, live: np.ndarray, key: pa.Array, *, last: bool) -> np.ndarray:
    """For each slot the row with the least (or greatest) key, -1 where no row has one.

    `slot` is the slot of each row of `key`, `live` the slots that are asked for, ascending. A NULL key means that the
    part has no such tuple.
    """
    out = np.full(int(live[-1]) + 1 if len(live) else 0, -1)
    at = np.flatnonzero(np.asarray(key.is_valid()))
    own = slot[at]
    if len(own) and int(np.bincount(own).max()) > 1:
        # Keys are compared only where a slot has several.
        order = pc.sort_indices(
            pa.table({"s": own, "k": key.take(pa.array(at))}), sort_keys=[("s", "ascending"), ("k", "ascending")]
        ).to_numpy()
        at, own = at[order], own[order]
        differs = own[1:] != own[:-1]
        edge = np.append(differs, True) if last else np.append(True, differs)
        at, own = at[edge], own[edge]
    out[own] = at
    return np.asarray(out[live])
