"""Windowed joins by Kang's three steps: for each tuple in total order, purge, probe the other window, insert.

A result's trigger is the tuple being processed, its partner stands in a window; windows are kept in total order, so
results come out by trigger, then partner. What must appear at a moment rather than with a tuple (an unmatched row)
is emitted by `pass_time`, which runs before the first tuple at or after that moment.

Kang's procedure is in ScaleJoin, section II. There tuples are removed last; here first, the form that section III names:
so that every pair in the window lies within the distance. Each pair is found once, at its later tuple. The cost of a
tuple is the other window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from plait.query.bind import Bound
from plait.query.join import Asof, CountWindow, Join, TimeWindow, TumblingCountWindow, TumblingWindow, Window
from plait.reference.condition import condition
from plait.reference.intake import sort_value
from plait.reference.rows import Row, condition_value

#: Above every input number: what it heads sorts after all tuples of its ts. An unmatched row of input i has this and i.
AFTER_INPUTS = 2**31 - 1

#: Of each kind of join the inputs whose rows appear though they have found no partner.
UNMATCHED = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1), "semi": (), "anti": (0,)}


@dataclass(slots=True)
class Entry:
    """A tuple in a window: its full key, and whether it has matched.

    `full_key` is (ts, input, source, seq) for a tuple of a stream, or (ts, input, nested key) for a result of another
    operator.
    """

    row: Row
    full_key: tuple[Any, ...]
    matched: bool = False


def full_key(row: Row, input: int) -> tuple[Any, ...]:
    """What orders a tuple among all tuples that one operator reads."""
    return (row.ts, input, *row.key)


class JoinMachine:
    """Takes tuples in total order and collects results in result order in `out`.

    `windows[input]` are in total order, the oldest first. `undecided[input]` are rows in total order that may still
    find a partner, of inputs whose unmatched rows appear; matched ones leave it when their time is up, without a row.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Join)
        assert bound.predicate is not None
        left, right = bound.inputs
        self.how = bound.node.how
        self.window = bound.node.window
        self.matches = condition(bound.predicate, left.schema, right.schema)
        self.windows: tuple[deque[Entry], deque[Entry]] = (deque(), deque())
        self.undecided: tuple[deque[Entry], deque[Entry]] = (deque(), deque())
        self.nulls = ((None,) * len(left.schema), (None,) * len(right.schema))
        self.out: list[Row] = []

    def pass_time(self, ts: int) -> None:
        """Everything that happens before the first tuple at or after `ts`: rows whose last chance is past.

        A left row waits until no right tuple within `after` can come: until time is past ts + after. A right row waits for
        left ones until time is past ts + before. Its result has that ts, and follows all other results at it; at one ts left
        rows come first, then right ones, each in total order. At the end of input all that wait come out.
        """
        while due := self._next_due():
            moment, input = due
            if moment >= ts:
                return
            entry = self.undecided[input].popleft()
            if not entry.matched:
                self._emit_unmatched(entry, input, moment)

    def _next_due(self) -> tuple[int, int] | None:
        """Of the rows that wait, when the first one's time is up, and its input."""
        if not any(self.undecided):
            return None
        assert isinstance(self.window, TimeWindow)
        waits = (self.window.after_us, self.window.before_us)
        return min((queue[0].row.ts + waits[input], input) for input, queue in enumerate(self.undecided) if queue)

    def take(self, row: Row, input: int) -> None:
        """One tuple of either input. Three steps: purge, compare, insert. For `semi` and `anti` all partners are looked
        at too. A count window is cut after the insert: it then holds the last N tuples of its stream, this one among
        them. A tumbling count window is emptied by the first tuple of the next one.
        """
        new = Entry(row, full_key(row, input))
        purge(self.windows, self.window, row.ts)
        for old in self.windows[1 - input]:
            left, right = (new, old) if input == 0 else (old, new)
            if self._in_window(left.row, right.row) and self.matches(left.row, right.row):
                self._match(left, right, new, old)
        own = self.windows[input]
        if isinstance(self.window, TumblingCountWindow) and len(own) == self.window.count:
            own.clear()
        own.append(new)
        if isinstance(self.window, CountWindow) and len(own) > self.window.count:
            own.popleft()
        if input in UNMATCHED[self.how]:
            self.undecided[input].append(new)

    def _in_window(self, left: Row, right: Row) -> bool:
        """Whether two rows lie within the window. Asked for every pair, though the windows were purged: a purge drops
        only what no later tuple can meet.
        """
        match self.window:
            case TimeWindow(before, after):
                return -before <= right.ts - left.ts <= after
            case TumblingWindow(size):
                return left.ts // size == right.ts // size
            case CountWindow() | TumblingCountWindow():
                return True  # its deque holds exactly the last N, or those since the window began
            case _:
                raise TypeError(f"{type(self.window).__name__} is no kind of window that the reference knows")

    def _match(self, left: Entry, right: Entry, trigger: Entry, partner: Entry) -> None:
        """A pair that matches. A result has the values of both rows, the left one's first, whichever came first; of a semi
        join the left one's. Its ts is the trigger's.
        """
        first = not left.matched
        left.matched = right.matched = True
        key = (trigger.full_key, partner.full_key)
        if self.how in ("inner", "left", "right", "full"):
            self.out.append(Row(trigger.row.ts, key, (trigger.row.ts, *left.row.values, *right.row.values)))
        elif self.how == "semi" and first:
            self.out.append(Row(trigger.row.ts, key, (trigger.row.ts, *left.row.values)))

    def _emit_unmatched(self, entry: Entry, input: int, ts: int) -> None:
        """A row alone, with NULLs in the place of its partner; an anti join has no place for one."""
        values = entry.row.values
        if self.how != "anti":
            values = (*values, *self.nulls[1]) if input == 0 else (*self.nulls[0], *values)
        self.out.append(Row(ts, ((ts, AFTER_INPUTS + input), entry.full_key), (ts, *values)))


def purge(windows: tuple[deque[Entry], deque[Entry]], window: Window, ts: int) -> None:
    """Drop what no tuple at or after `ts` can match. Count windows are cut when a tuple is inserted.

    A left row at ts l can meet right rows up to l + after; a right row at r can meet left rows up to r + before. So a
    left row goes when ts - l > after, a right one when ts - r > before.
    """
    left, right = windows
    match window:
        case TimeWindow(before, after):
            while left and ts - left[0].row.ts > after:
                left.popleft()
            while right and ts - right[0].row.ts > before:
                right.popleft()
        case TumblingWindow(size):
            for side in windows:
                while side and side[0].row.ts // size < ts // size:
                    side.popleft()


class AsofMachine:
    """The last right tuple before each left one. Of right rows with the same `by` values only the last can be it.

    `latest` is by the values of the right `by` columns, and grows with the number of different ones: nothing is
    forgotten, also not what is older than `within`.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Asof)
        self.node = bound.node
        left, right = (i.schema for i in bound.inputs)
        self.left_by = [(left.get_field_index(a), left.field(a).type) for a, _ in self.node.by]
        self.right_by = [(right.get_field_index(b), right.field(b).type) for _, b in self.node.by]
        self.right_nulls = (None,) * len(right)
        self.latest: dict[Any, Entry] = {}
        self.out: list[Row] = []

    def pass_time(self, ts: int) -> None:
        return

    def take(self, row: Row, input: int) -> None:
        """A right tuple becomes the latest of its key; a left one looks for its partner. A value that no condition can
        read (nanoseconds that do not divide) is refused when its row comes, not when it meets another: so the error does
        not depend on the other stream.
        """
        entry = Entry(row, full_key(row, input))
        for at, kind in self.right_by if input == 1 else self.left_by:
            condition_value(row.values[at], kind)  # refused by itself, whatever it would meet
        if input == 1:
            self.latest[tuple(sort_value(row.values[at]) for at, _ in self.right_by)] = entry
            return
        partner = self._last_before(row)
        if partner is not None:
            key, values = (entry.full_key, partner.full_key), partner.row.values
        elif self.node.how == "left":
            key, values = (entry.full_key, ()), self.right_nulls
        else:
            return
        self.out.append(Row(row.ts, key, (row.ts, *row.values, *values)))

    def _last_before(self, left: Row) -> Entry | None:
        """The partner of a left tuple, None if it has none. All keys are gone through and compared as a condition would
        compare them. So int32 5 meets float64 5.0, and NULL and NaN meet nothing.
        """
        fitting = [entry for entry in self.latest.values() if self._fits(left, entry.row)]
        return max(fitting, key=lambda entry: entry.full_key, default=None)

    def _fits(self, left: Row, right: Row) -> bool:
        if self.node.within_us is not None and left.ts - right.ts > self.node.within_us:
            return False
        return all(
            (condition_value(left.values[i], a) == condition_value(right.values[j], b)).v is True
            for (i, a), (j, b) in zip(self.left_by, self.right_by, strict=True)
        )
