"""The end of input for an operator with timers: those that are still pending run, by one rule for all buckets.

A timer that is set then runs only if it is not later than the last one pending anywhere (`core.operator.buckets` has the rule),
and a cell knows its own buckets only. So at the end cells tell one another: each sends what it has pending, with the states,
to a closing of its own, and how late its last timer is to all of them. A closing is no operator of Spark's with state, only
one more shuffle behind the cells; before the end nothing but results comes through it.

Where it runs: `rows_of` in a cell's task, in the batch that reaches the end; `close` in a task behind the shuffle, in
every batch, where it passes results on. What a retry brings is the same, since rows for a closing go to the partition
that their place tells.

Only operators with `on_timer` have it. For others the plan has no such shuffle. Held by tests/spark/test_operators.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from plait.core.metrics import Counts
from plait.core.operator.buckets import PlainBuckets, end_of_timers
from plait.order import AFTER_ALL
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.spark import formats
from plait.spark.cell.cell import Live
from plait.spark.cell.onward import Onward
from plait.spark.cell.operator import LiveOperator, placed, results_of
from plait.spark.cell.pickled import Pickled


def is_closing(place: int) -> bool:
    """Rows for closings have a place below zero."""
    return place < 0


def rows_of(contents: Live) -> list[tuple[int, bytes]]:
    """What a cell sends to the closings at the end of input.

    For each cell's closing the ts of this cell's last timer, and to its own closing the buckets that have timers. A cell
    without any pending timer sends nothing.
    """
    assert isinstance(contents, LiveOperator)
    last = contents.buckets.last_timer()
    if last is None:
        return []
    try:
        return _told(contents, last)
    finally:
        contents.forget()  # from here on the timers are the closings'


def _told(contents: LiveOperator, last: int) -> list[tuple[int, bytes]]:
    """Places of closings are -1, -2 and so on, by cell: below zero, so that they are never a cell's key or a kind of row."""
    told = formats.body(formats.LastTimer(last))
    rows = [(-1 - cell, told) for cell in range(contents.cells)]
    for bucket, (state, timers) in contents.buckets.stored(sorted(contents.buckets.waiting())).items():
        rows.append((-1 - contents.cell, contents.pickled.body(bucket, state, timers)))
    return rows


@dataclass
class Closing:
    """One cell's.

    Attributes:
        place: Which cell's, as a number below zero.
        last: The latest of all cells' last timers. Time passes to it and no further.
        buckets: Stored forms of the cell's buckets that have timers.
    """

    bound: Bound
    onward: Onward | None
    place: int
    last: int | None = None
    buckets: list[bytes] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        """A row for it. Rows come in any order: the latest ts is the same in each."""
        head, _ = formats.parse(body)
        if isinstance(head, formats.LastTimer):
            self.last = end_of_timers((self.last, head.ts))
        else:
            self.buckets.append(body)

    def rows(self) -> list[tuple[int, bytes]]:
        """Run the timers, and give what comes out: results and a report, or packed rows for the next operator.

        The states are not stored again. After the end of input nobody asks for them.
        """
        assert self.last is not None
        assert isinstance(self.bound.node, Operator)
        buckets, pickled = PlainBuckets(self.bound.node), Pickled(self.bound.node)
        for body in self.buckets:
            buckets.restore(*pickled.bucket(body))
        try:
            buckets.pass_time(self.last)
            results = results_of(self.bound.bare, buckets, pa.array([], pa.binary()))
        except Exception as error:
            raise placed(error, *buckets.calling, str) from error
        if self.onward is not None:
            return self.onward.bodies(results, AFTER_ALL, [])
        results = results.changed(self.bound.steps) if self.bound.steps else results
        report = formats.CellReport(0, self.place, AFTER_ALL, counts=Counts(results=results.rows, made=results.rows))
        return [*((formats.RESULTS, body) for body in results.bodies()), (formats.PROGRESS, formats.body(report))]


def closed(rows: list[tuple[int, bytes]], bound: Bound, onward: Onward | None) -> list[tuple[int, bytes]]:
    """Rows of some cells' closings, all of each; gives what comes out, and what was not for a closing."""
    found: dict[int, Closing] = {}
    out = []
    for place, body in rows:
        if is_closing(place):
            found.setdefault(place, Closing(bound, onward, place)).take(body)
        else:
            out.append((place, body))
    for place in sorted(found, reverse=True):
        out += found[place].rows()
    return out


def closing_stage(raw: Any, bound: Bound, onward: Onward | None, partitions: int, schema: str) -> Any:
    """The shuffle behind an operator's cells, and what is done there.

    In every batch this shuffle costs all results one more trip; it can't be left out until the end is known, because a
    plan of Spark's is the same for all batches.
    """
    from pyspark.sql import functions as F

    name, body = formats.columns(onward is not None)
    # Results only pass: anywhere, but a row that is sent again goes where it went before.
    where = F.when(F.col(name) < 0, F.col(name)).otherwise(F.length(body))
    return raw.repartition(partitions, where).mapInArrow(_mapper(bound, onward), schema)


def _mapper(bound: Bound, onward: Onward | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: batches without rows for a closing pass as they are, the others are held until all of them are here."""
    names = formats.columns(onward is not None)
    schema = pa.schema([(names[0], pa.int32()), (names[1], pa.binary())])

    def close(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last: list[tuple[int, bytes]] = []
        for batch in batches:
            places = batch.column(0).to_pylist()
            if not any(map(is_closing, places)):
                yield batch
                continue
            last += zip(places, batch.column(1).to_pylist(), strict=True)
        out = closed(last, bound, onward)
        if out:
            yield pa.record_batch([[p for p, _ in out], [b for _, b in out]], schema=schema)

    return close
