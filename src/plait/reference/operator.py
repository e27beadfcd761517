"""The bucketed operator: each bucket sees its tuples in total order, alone, and its timers between them.

The operator is STRETCH's (section 4.2: state in buckets, a `process` for each tuple and bucket), with timers as
design.md, section 1 has them. tests/reference/test_operators.py runs each bucket by itself and compares.

An output's own key is (cause's key, bucket, index): the cause is the tuple, or for a timer its moment after all tuples
there. So outputs are ordered by tuple, then bucket, then the order in which the call yielded them.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable
from typing import Any

from plait.errors import DataError, PlaitError, RunError, user_raised
from plait.query.bind import Bound, label
from plait.query.operator import ALL, Operator, Timer
from plait.reference.intake import FOREVER
from plait.reference.join import AFTER_INPUTS, full_key
from plait.reference.rows import Row, View, stored


class OperatorMachine:
    """`states` are by bucket, made when a bucket is first called. `schemas` and `names` are by input: `t.stream` shows the
    name.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Operator)
        self.node = bound.node
        self.schemas = [i.schema for i in bound.inputs]
        self.names = [label(i, n) for n, i in enumerate(bound.inputs)]
        self.states: dict[int, Any] = {}
        self.timers: list[tuple[int, int]] = []  # a heap of (at, bucket), each pair once
        self.out: list[Row] = []

    def pass_time(self, ts: int) -> None:
        """Run the timers at or before `ts`, by time, then bucket. At the end of input no timer extends the run.

        An output of a timer at T has ts T - 1. A timer may set a timer: it runs in the same pass if it is due. FOREVER
        means the end of input; then the last timer that is pending now is the limit, and what is set beyond it never
        runs: else a timer that sets the next one would have no end.
        """
        limit = max((at for at, _ in self.timers), default=0) if ts == FOREVER else ts
        while self.timers and self.timers[0][0] <= limit:
            at, bucket = heapq.heappop(self.timers)
            assert self.node.on_timer is not None
            state = self._state(bucket)
            try:
                outputs = self.node.on_timer(state, at)
                self._emit(outputs, at - 1, ((at - 1, AFTER_INPUTS),), bucket, earliest_timer=at + 1)
            except PlaitError:
                raise
            except Exception as error:
                raise user_raised(
                    error, f"The operator's on_timer of bucket {bucket}", f"it was called with a timer at {at}"
                ) from error

    def take(self, row: Row, input: int) -> None:
        """One tuple. The route is asked once, then each bucket that it names is called, by number. `pass_time` up to this
        tuple's ts was called before, so timers that are due have run. A new timer must lie after the tuple's ts.
        """
        view = View(row, self.schemas[input], self.names[input])
        called = "route"
        try:
            for bucket in self._buckets(self.node.route(view)):
                state = self._state(bucket)
                called = f"process of bucket {bucket}"
                outputs = self.node.process(state, view)
                self._emit(outputs, row.ts, (full_key(row, input),), bucket, earliest_timer=row.ts + 1)
        except PlaitError:
            raise
        except Exception as error:
            raise user_raised(
                error,
                f"The operator's {called}",
                f"it was called with the tuple of {self.names[input]!r} at ts {row.ts}",
            ) from error

    def _buckets(self, routed: Any) -> list[int]:
        """The buckets that a route's answer names, in order. None: no bucket. `plait.ALL`: all. A number, or several in
        any order, each counted once.
        """
        if routed is None:
            return []
        if routed is ALL:
            return list(range(self.node.buckets))
        named = routed if isinstance(routed, Iterable) and not isinstance(routed, (str, bytes)) else [routed]
        return sorted({self._bucket(bucket, routed) for bucket in named})

    def _bucket(self, bucket: Any, routed: Any) -> int:
        """A bucket's number, checked. Whatever has `__index__` is a number (NumPy's integers are), but for bool."""
        try:
            number = -1 if isinstance(bucket, bool) else operator.index(bucket)
        except TypeError:
            number = -1
        if not 0 <= number < self.node.buckets:
            raise RunError(
                f"route returned {routed!r}, which names bucket {bucket!r}",
                why=f"there are buckets 0 to {self.node.buckets - 1}",
                do="Return a bucket, several, plait.ALL or None; take a hash modulo the number of buckets",
            )
        return number

    def _state(self, bucket: int) -> Any:
        """A bucket's state. `first_state` may take the bucket's number or nothing; an error of it is told with the
        bucket.
        """
        if bucket not in self.states:
            try:
                self.states[bucket] = self.node.first_state(bucket)
            except Exception as error:
                raise user_raised(
                    error, f"The operator's state of bucket {bucket}", "it makes what the bucket begins with"
                ) from error
        return self.states[bucket]

    def _emit(self, outputs: Iterable[Any] | None, ts: int, cause: tuple[Any, ...], bucket: int, *,
              earliest_timer: int) -> None:  # fmt: skip
        """Take in what one call gave: None, or anything that can be gone through. A generator runs while this does, so
        its effects on the state are in order. Timers are not counted in `index`.
        """
        index = 0
        for output in outputs or ():
            if isinstance(output, Timer):
                self._set_timer(output.at, bucket, earliest_timer)
                continue
            self.out.append(Row(ts, (*cause, bucket, index), (ts, *self._values(output))))
            index += 1

    def _set_timer(self, at: int, bucket: int, earliest: int) -> None:
        """Refuse a timer that can't run, or set it. A pair (at, bucket) is set once, however often it is asked for. The
        look through the heap is slow, and plain.
        """
        if self.node.on_timer is None:
            raise RunError(
                "process set a timer, and the operator has no on_timer", do="Pass on_timer= to plait.operator"
            )
        if at < earliest:
            raise RunError(
                f"A timer is set at {at}, and event time has reached {earliest - 1}",
                why="a timer runs before the first tuple at or after its time",
                do=f"Set it at {earliest} or later",
            )
        if (at, bucket) not in self.timers:
            heapq.heappush(self.timers, (at, bucket))

    def _values(self, output: Any) -> list[Any]:
        """An output row's values. A dict may leave columns out: they are NULL. A tuple or list has them all, in order."""
        schema = self.node.output
        if isinstance(output, dict):
            unknown = set(output) - set(schema.names)
            if unknown:
                raise DataError(
                    f"The operator's output names column {min(map(str, unknown))!r}",
                    why=f"declared are {', '.join(schema.names)}",
                )
            output = [output.get(name) for name in schema.names]
        if not isinstance(output, (tuple, list)) or len(output) != len(schema):
            raise DataError(
                f"The operator's output is {output!r}",
                why=f"it is declared with {len(schema)} columns: {', '.join(schema.names)}",
                do="Return or yield dicts, or tuples of that length",
            )
        return [stored(v, f.type, f"The operator's output {f.name!r}") for v, f in zip(output, schema, strict=True)]
