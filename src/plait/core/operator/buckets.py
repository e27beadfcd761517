"""The buckets of a user's operator that one share holds, and the user's functions over them, in plain Python.

`take` is given tuples of these buckets in total order, `pass_time` how far time has passed. Each bucket sees its own
tuples in total order, and a timer after every tuple with a lower ts and before any other: timers that are due run
before a tuple is taken, by (time, bucket), and what other shares do can't be seen. Outputs are in result order: by (ts,
tuples before timers, rank, bucket, index).

*The end of input.* Time is never told that it has passed to the end of all, since a timer that sets the next one would then
have no end. It passes to the last tuple of all; then each share says what it has pending (`last_timer`), and time passes once
more, to the last of what all of them have said (`end_of_timers`). So a timer that is set then runs only if it is not later
than the last one pending anywhere: what comes out is a fact of the data, and it is finite.

The state is whatever the user's `state()` made; it stays where it is when the share changes hands.

The operator is STRETCH's (section 4.2): state in buckets, `process` called for a tuple and each bucket that its route
names, a bucket never by two threads at once (Theorem 5.1). Routes and timers are as in design.md, section 1.
"""

from __future__ import annotations

import copy
import heapq
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.aggregate.lists import checked
from plait.core.metrics import Counts
from plait.core.values import user_values
from plait.errors import DataError, RunError
from plait.order import AFTER_ALL
from plait.query.operator import ALL, Operator, Timer

#: What a route comes to, besides the number of one bucket.
EVERY, NONE, SEVERAL = -1, -2, -3


class Rows:
    """Rows of one input as a user's functions see them; a column is turned into Python's values when first read.

    `columns` are Python's values by name, made already; a row that was pickled has only these. `ts` are microseconds.
    """

    def __init__(self, table: pa.Table | pa.RecordBatch, ts: Sequence[int] | np.ndarray, stream: str,
                 columns: dict[str, list[Any]] | None = None) -> None:  # fmt: skip
        self._table, self._stream = table, stream
        self._ts = ts.tolist() if isinstance(ts, np.ndarray) else ts
        self._columns = {} if columns is None else columns

    @property
    def names(self) -> list[str]:
        return list(self._table.schema.names or self._columns)

    def column(self, name: str) -> list[Any]:
        found = self._columns.get(name)
        if found is None:
            at = self._table.schema.get_field_index(name)
            if at < 0:
                raise KeyError(f"no column {name!r}; there are {', '.join(self.names)}")
            found = self._columns[name] = user_values(self._table.column(at))
        return found

    def view(self, at: int) -> RowView:
        return RowView(self, at, self._ts[at], self._stream)


class RowView:
    """A tuple for a user's function: `t.column`, `t["column"]`, `t.ts`, `t.stream`."""

    # Mangled names: a column may be called anything else.
    __slots__ = ("__at", "__rows", "stream", "ts")

    def __init__(self, rows: Rows, at: int, ts: int, stream: str) -> None:
        self.__rows, self.__at, self.ts, self.stream = rows, at, ts, stream

    def __getitem__(self, name: str) -> Any:
        return self.__rows.column(name)[self.__at]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self.__rows.column(name)[self.__at]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __reduce__(self) -> tuple[Any, ...]:
        """Kept in a state that is pickled: the row alone, without those it came with."""
        return row_alone, (self.__rows.names, [self[name] for name in self.__rows.names], self.ts, self.stream)


def row_alone(names: list[str], values: list[Any], ts: int, stream: str) -> RowView:
    """A row without those it came with."""
    return Rows(pa.table({}), [ts], stream, {name: [value] for name, value in zip(names, values, strict=True)}).view(0)


def routed(answer: Any, buckets: int) -> tuple[int, tuple[int, ...] | None]:
    """What `route` returned: a bucket's number or one of the codes above; and which, where it named several.

    A set of buckets is sorted, and one of one bucket is that bucket. A bool is no bucket's number, though Python counts
    it as 0 or 1.
    """
    if answer is None:
        return NONE, None
    if answer is ALL:
        return EVERY, None
    if not isinstance(answer, Iterable) or isinstance(answer, (str, bytes)):
        return _bucket(answer, answer, buckets), None
    found = tuple(sorted({_bucket(bucket, answer, buckets) for bucket in answer}))
    if len(found) == 1:
        return found[0], None
    return (SEVERAL, found) if found else (NONE, None)


def _bucket(bucket: Any, answer: Any, buckets: int) -> int:
    try:
        number = -1 if isinstance(bucket, bool) else operator.index(bucket)
    except TypeError:
        number = -1
    if 0 <= number < buckets:
        return number
    raise RunError(
        f"route returned {answer!r}, which names bucket {bucket!r}",
        why=f"there are buckets 0 to {buckets - 1}",
        do="Return a bucket, several, plait.ALL or None; take a hash modulo the number of buckets",
    )


def pairs(codes: np.ndarray, several: Callable[[int], tuple[int, ...]], share: int, shares: int,
          buckets: int) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(tuple, bucket) for the buckets of a share, which are those whose number is `share` modulo `shares`; in order.

    `codes` is int64 by tuple, as `routed` gives them; `several(i)` the buckets of tuple i where the code says SEVERAL.
    Two int64 arrays come: places in the batch, ascending, and buckets, ascending for one tuple.
    """
    one = np.flatnonzero((codes >= 0) & (codes % shares == share))
    rest = np.flatnonzero((codes == EVERY) | (codes == SEVERAL))
    if not len(rest):
        return one, codes[one]
    own = np.arange(share, buckets, shares)
    which, found = [one], [codes[one]]
    for i in rest.tolist():
        mine = own if codes[i] == EVERY else np.array([b for b in several(i) if b % shares == share], np.int64)
        which.append(np.full(len(mine), i))
        found.append(mine)
    places, numbers = np.concatenate(which), np.concatenate(found)
    by = np.argsort(places, kind="stable")
    return places[by], numbers[by]


@dataclass
class Outputs:
    """Rows that came out: places (ts, rank or AFTER_ALL for a timer's, bucket), index within its cause, values by column.

    Six lists of one length, in the order in which rows came out.
    """

    ts: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    bucket: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)  # the tuple's place in the batch, -1 for a timer
    values: list[list[Any]] = field(default_factory=list)


def nothing() -> None:
    """What happens between two timers, unless somebody wants to be asked."""


class PlainBuckets:
    """The user's functions as they are.

    `_states` are by bucket, made when a tuple or timer first wants one. `_ran` is the timer that ran last: a timer that
    was set twice for one moment stands in the heap twice, side by side, and runs once.
    """

    compiled = False

    def __init__(self, node: Operator, between: Callable[[], None] = nothing) -> None:
        """`between` is called before each timer: it raises where the run has been stopped."""
        self.node, self._between = node, between
        self._states: dict[int, Any] = {}
        self._timers: list[tuple[int, int]] = []  # a heap of (at, bucket); one that stands there twice runs once
        self._ran: tuple[int, int] | None = None
        self.out = Outputs()
        self._kinds = [(f.name, f.type) for f in node.output]
        self._nested = [n for n, f in enumerate(node.output) if pa.types.is_nested(f.type)]
        self.counts = Counts()
        #: The function that runs: its name, the tuple's place in the batch or the timer's time, and the bucket.
        self.calling = ("process", -1, -1)
        self.touched: set[int] = set()  # buckets whose state may have changed; who stores them clears it

    def take(self, ts: np.ndarray, first_rank: int, which: np.ndarray, buckets: np.ndarray,
             view: Callable[[int], RowView]) -> None:  # fmt: skip
        """Tuples `which` of a batch, each to the bucket beside it; `view` gives a tuple by its place in the batch.

        `which` are places in the batch, ascending; `buckets` the bucket of each. A tuple that goes to several buckets is
        there several times. A tuple's rank is first_rank + its place: where it stands in total order.
        """
        process, last, row = self.node.process, -1, None
        for i, bucket in zip(which.tolist(), buckets.tolist(), strict=True):
            now = int(ts[i])
            if self._timers and self._timers[0][0] <= now:
                self.pass_time(now)
            if i != last or row is None:
                last, row = i, view(i)
            self.calling = ("process", i, bucket)
            self._emit(process(self._state(bucket), row), now, first_rank + i, bucket, i, earliest=now + 1)
        self.counts.calls += len(which)

    def pass_time(self, ts: int, most: int | None = None) -> bool:
        """Run the timers at or before `ts`, by time, then bucket, but no more than `most`. Says whether all of them have run."""
        check_passed(ts)
        while self._timers and self._timers[0][0] <= ts:
            if most is not None:
                if most == 0:
                    return False
                most -= 1
            self._between()
            due = heapq.heappop(self._timers)
            if due == self._ran:
                continue
            self._ran = due
            at, bucket = due
            assert self.node.on_timer is not None
            self.calling = ("on_timer", at, bucket)
            self._emit(self.node.on_timer(self._state(bucket), at), at - 1, AFTER_ALL, bucket, -1, earliest=at + 1)
        return True

    def next_timer(self) -> int | None:
        return self._timers[0][0] if self._timers else None

    def last_timer(self) -> int | None:
        return max((at for at, _ in self._timers), default=None)

    def stored(self, buckets: Iterable[int]) -> dict[int, tuple[Any, list[int]]]:
        """Of these buckets the state, as it is, and the times of pending timers.

        For Spark's cells, which store them at the end of a batch. The state is not copied: it is to be stored before the
        next tuple.
        """
        found: dict[int, tuple[Any, list[int]]] = {b: (self._states[b], []) for b in buckets}
        for at, bucket in self._timers:
            if bucket in found:
                found[bucket][1].append(at)
        return found

    def restore(self, bucket: int, state: Any, timers: Iterable[int]) -> None:
        self._states[bucket] = state
        for at in timers:
            heapq.heappush(self._timers, (at, bucket))

    def taken_timers(self) -> list[tuple[int, int]]:
        """The pending timers, (at, bucket), for somebody else to run."""
        taken, self._timers = self._timers, []
        return taken

    def plain(self) -> PlainBuckets:
        return self

    def waiting(self) -> set[int]:
        """Buckets with a timer pending."""
        return {bucket for _, bucket in self._timers}

    def _state(self, bucket: int) -> Any:
        self.touched.add(bucket)
        if bucket not in self._states:
            before, self.calling = self.calling, ("state", -1, bucket)
            self._states[bucket] = self.node.first_state(bucket)
            self.calling = before
        return self._states[bucket]

    def _emit(self, outputs: Iterable[Any] | None, ts: int, rank: int, bucket: int, cause: int, *,
              earliest: int) -> None:  # fmt: skip
        """Take in what one call gave. Rows of one call are numbered from 0, timers not counted. What the call yields is
        taken one by one, so a generator's error comes after the rows before it; the run stops there in any case.
        """
        index, out = 0, self.out
        for output in outputs or ():
            if isinstance(output, Timer):
                check_timer(self.node, output.at, earliest)
                heapq.heappush(self._timers, (output.at, bucket))
                continue
            out.values.append(self._values(output))
            out.ts.append(ts)
            out.rank.append(rank)
            out.bucket.append(bucket)
            out.index.append(index)
            out.cause.append(cause)
            index += 1

    def _values(self, output: Any) -> list[Any]:
        """An output row's values, in the order of the declared columns. A dict may leave columns out, which are NULL
        then; a tuple or list must have them all. Other names are refused.
        """
        names = self.node.output.names
        if isinstance(output, dict):
            unknown = set(output) - set(names)
            if unknown:
                raise DataError(
                    f"The operator's output names column {min(map(str, unknown))!r}",
                    why=f"declared are {', '.join(names)}",
                )
            output = [output.get(name) for name in names]
        if not isinstance(output, (tuple, list)) or len(output) != len(names):
            raise DataError(
                f"The operator's output is {output!r}",
                why=f"it is declared with {len(names)} columns: {', '.join(names)}",
                do="Return or yield dicts, or tuples of that length",
            )
        values = list(output)
        for n in self._nested:
            values[n] = copy.deepcopy(values[n])  # a list of the state's may change before it is read
        return values

    def taken_out(self) -> tuple[Outputs, list[pa.Array]]:
        """What came out since the last call, and its columns."""
        out, self.out = self.out, Outputs()
        columns = list(zip(*out.values, strict=True)) if out.values else [()] * len(self._kinds)
        return out, [
            checked(list(column), kind, f"The operator's output {name!r}")
            for column, (name, kind) in zip(columns, self._kinds, strict=True)
        ]


def end_of_timers(pending: Iterable[int | None]) -> int | None:
    """How far time passes at the end of input, if any timer is pending: see the module. `pending` is what each share has said."""
    return max((at for at in pending if at is not None), default=None)


def check_passed(ts: int) -> None:
    """Time passes to a moment of the data's, never to the end of all: see the module."""
    if ts == AFTER_ALL:
        raise RunError(
            "An operator's time has passed to the end of all", why="timers could set timers for ever", do="Report this"
        )


def check_timer(node: Operator, at: int, earliest: int) -> None:
    """Refuse a timer that can't run. `earliest` is one microsecond after the tuple's or the timer's own moment: a timer
    can't be due already.
    """
    if node.on_timer is None:
        raise RunError("process set a timer, and the operator has no on_timer", do="Pass on_timer= to plait.operator")
    if at < earliest:
        raise RunError(
            f"A timer is set at {at}, and event time has reached {earliest - 1}",
            why="a timer runs before the first tuple at or after its time",
            do=f"Set it at {earliest} or later",
        )
