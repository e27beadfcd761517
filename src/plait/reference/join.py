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


@dataclass(slots=True)
class Undecided:
    """A left tuple of an as-of join until it is decided, and what is known of its candidates.

    `behind` is found when time has passed the tuple (`settled`), `ahead` when the first one comes.
    """

    entry: Entry
    settled: bool = False
    behind: Entry | None = None
    ahead: Entry | None = None


class AsofMachine:
    """The last right tuple at or before each left one, the first at or after it, or the closer of the two.

    Every left tuple waits until time has passed the moment at which it is decided; then all right tuples up to that moment have
    come. `known` has right tuples by the values of their `by` columns, in total order: the last one before the present ts, and
    those at it. It grows with the number of different values: nothing is forgotten, also not what is older than `within`.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Asof)
        self.node = bound.node
        left, right = (i.schema for i in bound.inputs)
        self.left_by = [(left.get_field_index(a), left.field(a).type) for a, _ in self.node.by]
        self.right_by = [(right.get_field_index(b), right.field(b).type) for _, b in self.node.by]
        self.right_nulls = (None,) * len(right)
        self.known: dict[Any, list[Entry]] = {}
        self.undecided: list[Undecided] = []
        self.out: list[Row] = []

    def take(self, row: Row, input: int) -> None:
        """A left tuple waits. A right one is known from now on, and is the first one ahead of those that have none.

        A value that no condition can read (nanoseconds that do not divide) is refused when its row comes, not when it meets
        another: so the error does not depend on the other stream.
        """
        entry = Entry(row, full_key(row, input))
        for at, kind in self.right_by if input == 1 else self.left_by:
            condition_value(row.values[at], kind)  # refused by itself, whatever it would meet
        if input == 0:
            self.undecided.append(Undecided(entry))
            return
        alike = self.known.setdefault(tuple(sort_value(row.values[at]) for at, _ in self.right_by), [])
        while len(alike) > 1 and alike[1].row.ts < row.ts:
            alike.pop(0)
        alike.append(entry)
        for each in self.undecided:
            # Right tuples at a left one's ts come after it: no right tuple from its ts on is missed.
            if each.ahead is None and self._fits(each.entry.row, row):
                each.ahead = entry

    def pass_time(self, ts: int) -> None:
        """Give out what is decided before `ts`, by the moment of the decision, then by the left tuple's key."""
        decided = []
        for each in self.undecided:
            if each.entry.row.ts < ts and not each.settled:
                each.behind, each.settled = self._last_behind(each.entry.row), True
            moment, partner = self._decision(each)
            if moment < ts:
                decided.append((moment, each.entry, partner))
        if not decided:
            return
        gone = {id(entry) for _, entry, _ in decided}
        self.undecided = [each for each in self.undecided if id(each.entry) not in gone]
        for moment, entry, partner in sorted(decided, key=lambda d: (d[0], d[1].full_key)):
            self._emit(moment, entry, partner)

    def _last_behind(self, left: Row) -> Entry | None:
        """Of the right tuples so far the last that a left one may have, None if there is none. All keys are gone through and
        compared as a condition would compare them. So int32 5 meets float64 5.0, and NULL and NaN meet nothing.
        """
        fitting = [entry for alike in self.known.values() for entry in alike if self._fits(left, entry.row)]
        return max(fitting, key=lambda entry: entry.full_key, default=None)

    def _decision(self, each: Undecided) -> tuple[int, Entry | None]:
        """When it is decided who is the partner, if no right tuple comes any more that could be it, and who that is."""
        ts = each.entry.row.ts
        if self.node.direction == "backward":
            return ts, each.behind
        assert self.node.within_us is not None
        if each.ahead is not None and (
            self.node.direction == "forward" or each.behind is None or each.ahead.row.ts - ts < ts - each.behind.row.ts
        ):
            return each.ahead.row.ts, each.ahead
        if self.node.direction == "nearest" and each.behind is not None:
            return ts + (ts - each.behind.row.ts), each.behind  # until then a right tuple ahead would have been closer
        return ts + self.node.within_us, None

    def _fits(self, left: Row, right: Row) -> bool:
        """Whether a right tuple may be a left one's partner, as far as these two can tell."""
        if right.ts == left.ts and (not self.node.exact or (self.node.one_stream and right.key == left.key)):
            return False
        if self.node.within_us is not None and abs(left.ts - right.ts) > self.node.within_us:
            return False
        return all(
            (condition_value(left.values[i], a) == condition_value(right.values[j], b)).v is True
            for (i, a), (j, b) in zip(self.left_by, self.right_by, strict=True)
        )

    def _emit(self, moment: int, left: Entry, partner: Entry | None) -> None:
        """A result, unless it has no partner and only those with one are wanted."""
        if partner is None and self.node.how == "inner":
            return
        values = self.right_nulls if partner is None else partner.row.values
        if self.node.direction == "backward":
            key = (left.full_key, () if partner is None else partner.full_key)
        else:
            key = ((moment, AFTER_INPUTS), left.full_key)
        self.out.append(Row(moment, key, (moment, *left.row.values, *values)))
