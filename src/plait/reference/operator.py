"""The bucketed operator: each bucket sees its tuples in total order, alone, and its timers between them."""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable
from typing import Any

from plait.errors import DataError, PlaitError, RunError, user_raised
from plait.query.bind import Bound
from plait.query.operator import ALL, Operator, Timer
from plait.reference.intake import FOREVER
from plait.reference.join import AFTER_INPUTS, full_key
from plait.reference.rows import Row, View, stored


class OperatorMachine:
    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Operator)
        self.node = bound.node
        self.schemas = [i.schema for i in bound.inputs]
        self.names = [i.node.name or f"input {n}" for n, i in enumerate(bound.inputs)]
        self.states: dict[int, Any] = {}
        self.timers: list[tuple[int, int]] = []  # a heap of (at, bucket), each pair once
        self.out: list[Row] = []

    def pass_time(self, ts: int) -> None:
        """Run the timers at or before `ts`, by time, then bucket. At the end of input no timer extends the run."""
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
        if routed is None:
            return []
        if routed is ALL:
            return list(range(self.node.buckets))
        named = routed if isinstance(routed, Iterable) and not isinstance(routed, (str, bytes)) else [routed]
        return sorted({self._bucket(bucket, routed) for bucket in named})

    def _bucket(self, bucket: Any, routed: Any) -> int:
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
        index = 0
        for output in outputs or ():
            if isinstance(output, Timer):
                self._set_timer(output.at, bucket, earliest_timer)
                continue
            self.out.append(Row(ts, (*cause, bucket, index), (ts, *self._values(output))))
            index += 1

    def _set_timer(self, at: int, bucket: int, earliest: int) -> None:
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
