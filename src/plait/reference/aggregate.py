"""Windowed aggregates: every window keeps its rows, and is folded when it closes.

A window of event time `[k*advance, k*advance + size)` closes before the first tuple at or after its end; the windows of
one interval, a winset, come out together, rows by key. A window of tuples closes with its last tuple. A session closes before
the first tuple, of whatever key, that comes at or after its end.

These are the definitions of design.md, section 1, word for word: no panes, no running sums, no kernels. A tuple is put
into every window that holds it, and a function sees all rows of a window at once. That costs a copy of a row's reference
a window, and is slow on purpose: what is fast elsewhere is held against this.

Results have the columns ts, window_start, window_end, the keys, then what is computed. A row's own key is (ts, keys ...)
for windows of time, and the closing tuple's key for windows of tuples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from plait.query.aggregate import Aggregate, SessionWindow, SpanWindow, TupleWindow, Window
from plait.query.bind import Bound
from plait.reference.folds import fold, one_form
from plait.reference.intake import sort_value
from plait.reference.join import full_key
from plait.reference.rows import Row

Group = tuple[Any, ...]


class _Grouping:
    """What all kinds of window share: a row's group, and a group's rows turned into output columns.

    `by` are places of the key columns in a row, `folds` one function of rows for each output column, `out` the results
    since whoever drives the machine last took them (`reference.run.Stage`).
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Aggregate)
        (source,) = bound.inputs
        self.by = [source.schema.get_field_index(column) for column in bound.node.by]
        self.folds = [fold(function, source.schema, name) for name, function in bound.node.compute]
        self.out: list[Row] = []

    def group(self, row: Row) -> Group:
        """A row's group. What compares equal is one group, and the order of groups is the order of these: numbers by
        size, then NaN, then NULL; text by bytes.
        """
        return tuple(sort_value(row.values[at]) for at in self.by)

    def emit(self, ts: int, key: Group, start: int, end: int, rows: list[Row]) -> None:
        """Give out a result row. `rows` are those of one window and one group, in total order, at least one. Of keys that
        are equal and look different (0.0 and -0.0) one form is given out.
        """
        group = tuple(one_form(rows[0].values[at]) for at in self.by)
        self.out.append(Row(ts, key, (ts, start, end, *group, *(f(rows) for f in self.folds))))


class SpanMachine(_Grouping):
    """`winsets` is by the start of the interval: for each group its rows so far. A winset without rows is not there, so
    empty windows give no row. Windows may begin before time 0, and end beyond any ts: Python's integers have room.
    """

    def __init__(self, bound: Bound, window: SpanWindow) -> None:
        super().__init__(bound)
        self.size, self.advance = window.size_us, window.advance_us
        self.winsets: defaultdict[int, defaultdict[Group, list[Row]]] = defaultdict(lambda: defaultdict(list))

    def pass_time(self, ts: int) -> None:
        """Close every winset whose end is not after `ts`, in order.

        `ts` is where time stands: no tuple below it will come. At the end of input it is FOREVER, and all close.
        """
        for start in sorted(start for start in self.winsets if start + self.size <= ts):
            winset, end = self.winsets.pop(start), start + self.size
            for group in sorted(winset):
                self.emit(end - 1, (end - 1, *group), start, end, winset[group])

    def take(self, row: Row, input: int) -> None:
        """Put a tuple into its windows: From the last window that begins at or before the tuple down to the first that
        has not ended. With size below advance there may be none.
        """
        last = row.ts // self.advance
        k = last
        while k * self.advance + self.size > row.ts:
            self.winsets[k * self.advance][self.group(row)].append(row)
            k -= 1


class TupleMachine(_Grouping):
    """`seen` counts a group's tuples for ever, `recent` holds the last `size` of them."""

    def __init__(self, bound: Bound, window: TupleWindow) -> None:
        super().__init__(bound)
        self.size, self.advance = window.size, window.advance
        self.seen: defaultdict[Group, int] = defaultdict(int)
        self.recent: defaultdict[Group, list[Row]] = defaultdict(list)

    def pass_time(self, ts: int) -> None:
        """Windows of tuples know no time."""
        return

    def take(self, row: Row, input: int) -> None:
        """Count a tuple, and close a window if it is the last of one. A window is the `recent` rows when their number is
        right: its first tuple's number, `start`, is a multiple of `advance`. What is not full at the end of input never
        gets here.
        """
        group = self.group(row)
        self.seen[group] += 1
        recent = self.recent[group]
        recent.append(row)
        if len(recent) > self.size:
            recent.pop(0)
        start = self.seen[group] - self.size
        if start >= 0 and start % self.advance == 0:
            self.emit(row.ts, (full_key(row, 0),), start, start + self.size, list(recent))


class SessionMachine(_Grouping):
    """`open` has the rows of each group's session that has not ended. A tuple belongs to it iff `ts < last.ts + gap`."""

    def __init__(self, bound: Bound, window: SessionWindow) -> None:
        super().__init__(bound)
        self.gap = window.gap_us
        self.open: dict[Group, list[Row]] = {}

    def pass_time(self, ts: int) -> None:
        """End every session whose end is not after `ts`: by end, then by key."""
        ended = sorted(
            (rows[-1].ts + self.gap, group) for group, rows in self.open.items() if rows[-1].ts + self.gap <= ts
        )
        for end, group in ended:
            rows = self.open.pop(group)
            self.emit(end - 1, (end - 1, *group), rows[0].ts, end, rows)

    def take(self, row: Row, input: int) -> None:
        """Time has passed up to the tuple, so what is still open goes on with it."""
        self.open.setdefault(self.group(row), []).append(row)


Machine = SpanMachine | TupleMachine | SessionMachine


def aggregate_machine(bound: Bound) -> Machine:
    """The machine for the kind of window that the aggregate has. tests/core/aggregate/test_registry.py sees that every kind
    has one.
    """
    assert isinstance(bound.node, Aggregate)
    return MACHINES[type(bound.node.window)](bound, bound.node.window)


MACHINES: dict[type[Window], Callable[[Bound, Any], Machine]] = {
    SpanWindow: SpanMachine,
    TupleWindow: TupleMachine,
    SessionWindow: SessionMachine,
}
