"""`query.run` and `query.batches`: data that is all there, without a gate where none is needed.

    lanes -> intake (judged, in total order) -> slabs -> jobs side by side -> batches in result order

One thread pulls the lanes and cuts slabs; others find partners and make rows. What can't go this way (`refusal` says why) goes
the way of a run that is pushed (`threads.feeds`), with the same results.

Memory: a slab ends with SLAB_ROWS rows (ASOF_ROWS of an as-of join) or SLAB_BYTES bytes; but it has at least twice the rows that
the operator keeps from slab to slab: of a join its window, of an as-of join the last row of each value. Twice as many jobs as
threads may be open, which hold their slabs, and AHEAD batches a thread are made and not read. Files are read some chunks ahead
(`threads.feeds`). How long the data are does not matter (tests/threads/bounded/test_memory.py).
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from plait import connectors
from plait.connectors.contract import Feed
from plait.core.join.reach import reach_of
from plait.core.metrics import Metrics
from plait.encodings import plain_batch, plain_schema
from plait.errors import PlaitError
from plait.order import BEFORE_ALL
from plait.query.base import Query
from plait.query.bind import Bound, bind
from plait.query.join import Asof, Join
from plait.query.row_by_row import base, rooted
from plait.query.stream import Stream
from plait.schema import is_text
from plait.threads import feeds as pushed
from plait.threads.bounded.asof import AsofSlabs
from plait.threads.bounded.intake import Intake, Rows
from plait.threads.bounded.join import FEW, JoinSlabs
from plait.threads.bounded.results import Shown
from plait.threads.bounded.side_by_side import SideBySide
from plait.threads.input.intake import StreamIntake
from plait.threads.options import Options
from plait.threads.plan import steps
from plait.threads.union import on_the_way

#: Rows of a slab, and how many bytes of input end one earlier.
SLAB_ROWS = 1 << 20
ASOF_ROWS = 1 << 18  # an as-of join keeps little from slab to slab, so short ones cost nothing
SLAB_BYTES = 1 << 28

#: Options of `on_threads` that mean something without its workers and its gate.
OWN = ("workers", "order", "keys", "index", "pending", "cache_dir", "plain")


def table(query: Query, data: Any, **options: Any) -> pa.Table:
    """All results of bounded data as one table; `data` is what `connectors.feeds` takes."""
    feeds = connectors.feeds(query, data)
    bound = _bound(query, feeds)
    if refusal(bound, options) is not None:
        return pushed.table_of(query, feeds, **options)
    run = Slabs(query, bound, feeds, options)
    return pa.Table.from_batches(list(run.batches()), run.shown.schema)


def batches(query: Query, data: Any, **options: Any) -> Iterator[pa.RecordBatch]:
    """All results of bounded data, in order, as they come."""
    feeds = connectors.feeds(query, data)
    bound = _bound(query, feeds)
    if refusal(bound, options) is not None:
        yield from pushed.batches_of_feeds(query, feeds, **options)
    else:
        yield from Slabs(query, bound, feeds, options).batches()


def _bound(query: Query, feeds: Mapping[str, Feed]) -> Bound:
    return bind(rooted(query), {name: feed.schema for name, feed in feeds.items()})


def slabs(query: Query, feeds: Mapping[str, Feed], **options: Any) -> Slabs | None:
    """A run over feeds whose sources are all known before a row is read; None if it has to be pushed."""
    bound = _bound(query, feeds)
    streams = query.streams().values()
    if refusal(bound, options) or any(s.source_column is not None and s.declared() is None for s in streams):
        return None
    return Slabs(query, bound, feeds, options)


_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Options)}


def refusal(bound: Bound, options: Mapping[str, Any]) -> str | None:
    """Why a query does not run in slabs; None if it does."""
    given = [name for name, value in options.items() if name not in OWN and value != _DEFAULTS.get(name)]
    if given:
        return f"{given[0]}= is an option of workers behind a gate"
    node = base(bound.node)
    if not isinstance(node, (Join, Asof)):
        return f"{type(node).__name__.lower()}s run as they are pushed"
    if not all(isinstance(each.node, Stream) for each in bound.inputs):
        return "an input is another operator's output"
    for each in bound.inputs:
        if isinstance(each.node, Stream) and each.node.idle_after_us is not None:
            return f"stream {each.node.name!r} has idle_after=, which goes by the clock"
    if not all(on_the_way(bound, keyed=bool(options.get("keys")))):
        return "rows of an input are changed in a way that needs an operator of its own"
    if isinstance(node, Join):
        if node.how != "inner":
            return f"how={node.how!r} has to know of each row whether it finds a partner at all"
        if reach_of(node.window).counts:
            return "a window that counts tuples has no range of event time that it overlaps by"
    return None


def described(bound: Bound) -> str:
    """How `query.run` would run it, for `explain`."""
    why = refusal(bound, {})
    if why is not None:
        return f"query.run: pushed to the threads above: {why}"
    if _asof(bound):
        return "query.run: slabs of input in total order, one pass each: the input is bounded, so no gate is needed"
    return (
        "query.run: slabs of input, cut into ranges that overlap by the window, side by side: the input is bounded, so no gate "
        "is needed"
    )


def coded(intake: StreamIntake) -> frozenset[str]:
    """Columns of text of which an as-of join may have codes: it numbers values, each entry of a dictionary once, and takes rows.

    Not those by which sources are told apart or ordered, and not where rows are changed or wait for others of their source.
    """
    stream = intake.stream
    if intake.steps or intake.reorders:
        return frozenset()
    own = {stream.time, stream.source_column, stream.seq_column}
    return frozenset(f.name for f in intake.schema if is_text(f.type) and f.name not in own)


def _asof(bound: Bound) -> bool:
    return isinstance(bound.node, Asof)


class Slabs:
    """One run, of a query that `refusal` does not refuse."""

    def __init__(self, query: Query, bound: Bound, feeds: Mapping[str, Feed], given: Mapping[str, Any], *,
                 rows: int | None = None, few: int = FEW) -> None:  # fmt: skip
        """`rows` of a slab, and tuples of a range at least: other numbers than the usual ones are for tests."""
        options = Options(**{"pending": pushed.PENDING, **given})
        steps(rooted(query), options)  # what can't be asked for is refused here
        schemas = {name: plain_schema(feed.schema, f"Stream {name!r}") for name, feed in feeds.items()}
        self._query, self._feeds, self.threads = query, feeds, options.workers or max(1, os.cpu_count() or 1)
        self.intake = Intake(bound, schemas, keys=options.keys, pending=options.pending or pushed.PENDING)
        self._names = [str(each.node.name) for each in bound.inputs]
        left, right = (self.intake.intakes[name] for name in self._names)
        self.shown = Shown(bound, (left, right), keys=options.keys)
        self.operator = self._operator(bound, options, few)
        self._rows = rows or (ASOF_ROWS if _asof(bound) else SLAB_ROWS)
        self._given, self._began = 0, time.monotonic()
        self._coded = {name: coded(each) for name, each in self.intake.intakes.items()} if _asof(bound) else {}

    def _operator(self, bound: Bound, options: Options, few: int) -> AsofSlabs | JoinSlabs:
        left, right = (self.intake.nothing(name) for name in self._names)
        empty = left, right
        if _asof(bound):
            return AsofSlabs(bound, self.shown, empty)
        return JoinSlabs(bound, self.shown, empty, ranges=self.threads, few=few, index=options.index,
                         cache_dir=options.cache_dir, plain=options.plain)  # fmt: skip

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All results. Rows that were dropped as late are told in a warning at the end."""
        yield from self.results()
        pushed.tell_late(self._dropped())

    def results(self) -> Iterator[pa.RecordBatch]:
        """The same without the warning."""
        for batch in self._results():
            self._given += batch.num_rows
            yield batch

    def late(self, stream: str) -> pa.Table:
        """Rows of a stream that were dropped as late."""
        intake = self.intake.intakes[stream]
        return pa.Table.from_batches([plain_batch(batch) for batch in intake.late], intake.schema)

    def _dropped(self) -> dict[str, int]:
        return {name: sum(batch.num_rows for batch in each.late) for name, each in self.intake.intakes.items()}

    def metrics(self) -> Metrics:
        """What can be told of it by now."""
        inlets = [inlet for intake in self.intake.intakes.values() for inlet in intake.inlets.values()]
        newest = max((inlet.largest for inlet in inlets), default=BEFORE_ALL)
        return Metrics(
            rows=sum(inlet.delivered for inlet in inlets), results=self._given, late=self._dropped(),
            behind=dict.fromkeys(self.intake.intakes, 0), frontier=self.intake.frontier,
            newest=None if newest == BEFORE_ALL else newest, seconds=time.monotonic() - self._began,
        )  # fmt: skip

    def _results(self) -> Iterator[pa.RecordBatch]:
        for name, names in pushed.named_sources(self._query, self._feeds).items():
            for source in names:
                self.intake.heartbeat(name, source, BEFORE_ALL)
        with SideBySide(self.threads) as jobs:
            try:
                for ready, frontier in self._slabs():
                    for job in self.operator.jobs((ready[self._names[0]], ready[self._names[1]]), frontier):
                        jobs.put(job)
                        yield from jobs.taken(2 * self.threads)
            except PlaitError:
                yield from jobs.taken(0)  # the results of what was in order before the row that is refused
                raise
            yield from jobs.taken(0)

    def _slabs(self) -> Iterator[tuple[dict[str, Rows], int]]:
        left = 0  # rows that the last release could not give
        for _ in pushed.pulled(self._query, self._feeds, self.intake, self._coded):
            enough = max(self._rows, 2 * self.operator.held)
            if self.intake.held >= left + enough or self.intake.held_bytes >= SLAB_BYTES:
                yield self.intake.released()
                left = self.intake.held
        yield self.intake.released()
