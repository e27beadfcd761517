"""A run of the reference: rows in, the frontier moved, every operator in turn, results out.

All operators share one frontier. When it moves to F, each operator in turn (inputs before users) takes its inputs' new
tuples below F in total order and then passes time up to F. After that its output below F is complete: a join's result
has its trigger's ts, an unmatched row, a winset and a timer come out once time has passed them, so nothing below F can
follow. That is why one sweep in topological order is enough, and why no operator waits for another.

What goes in are batches of streams, heartbeats and ends. What comes out are `Row`s in strict order. Nothing here asks how
rows were delivered: tests/reference/test_delivery.py tries every schedule it can think of and compares bytes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from plait import connectors
from plait import order as total_order
from plait.connectors.contract import Chunk, Feed
from plait.encodings import plain_batch, plain_schema
from plait.errors import QueryError, RunError
from plait.query.aggregate import Aggregate
from plait.query.base import Query, check_order
from plait.query.bind import Bound, bind, check_data
from plait.query.dedup import Dedup
from plait.query.join import Asof, Join
from plait.query.row_by_row import Union, rooted
from plait.query.stream import Stream
from plait.reference.aggregate import aggregate_machine
from plait.reference.dedup import DedupMachine
from plait.reference.intake import FOREVER, Intake, SourceName, StreamIntake
from plait.reference.join import AsofMachine, JoinMachine
from plait.reference.operator import OperatorMachine
from plait.reference.row_by_row import UnionMachine, row_changes
from plait.reference.rows import Row, table_of
from plait.schema import micros_of

#: Rows taken from a lane at a time: few, since a lane's rows wait here until the slowest source has caught up.
SLICE_ROWS = 512

Lanes = dict[SourceName | None, list[Iterator[Chunk]]]


class Stage:
    """One operator of the DAG with its place in it.

    `inputs` are names of streams, or stages before it; `machine` does the work, and its `out` is what came out in the
    last sweep.
    """

    def __init__(self, bound: Bound, inputs: list[str | Stage]) -> None:
        self.inputs = inputs
        self.changes = [row_changes(each) for each in bound.inputs]
        self.machine = _machine(bound.bare)

    def advance(self, frontier: int, ready: Mapping[str, list[Row]]) -> None:
        """Take what is new below the frontier, in the order of (ts, input, key), and pass time up to it.

        `ready` are the streams' rows below the frontier. A key is unique within an input, so rows themselves are never
        compared. A stream that is both inputs of a self-join is there twice, once for each.
        """
        self.machine.out = []
        arrived = []
        for number, source in enumerate(self.inputs):
            rows = ready[source] if isinstance(source, str) else source.machine.out
            arrived += [(row.ts, number, row.key, row) for row in self.changes[number](rows)]
        arrived.sort(key=lambda a: a[:3])
        for ts, number, _, row in arrived:
            self.machine.pass_time(ts)
            self.machine.take(row, number)
        self.machine.pass_time(frontier)


def _machine(bound: Bound) -> Any:
    match bound.node:
        case Join():
            return JoinMachine(bound)
        case Asof():
            return AsofMachine(bound)
        case Aggregate():
            return aggregate_machine(bound)
        case Union():
            return UnionMachine(bound)
        case Dedup():
            return DedupMachine(bound)
        case _:
            return OperatorMachine(bound)


class Run:
    """A push-style run: `push` batches, `heartbeat`, `end` sources, and `take` the results that are out.

    `close` ends every source and flushes; a run is used from one thread.

    `stages` are in an order in which inputs come before who reads them; the last one's results are the query's. `results`
    wait for `take`.
    """

    def __init__(self, query: Query, schemas: Mapping[str, pa.Schema], *, max_pending: int | None = None) -> None:
        schemas = {name: plain_schema(schema, f"Stream {name!r}") for name, schema in schemas.items()}
        query = rooted(query)
        self.bound = bind(query, schemas)
        self._changes = row_changes(self.bound)  # of what is given out
        self.intake = Intake(query.streams(), dict(schemas), max_pending)
        self.stages: list[Stage] = []
        self._built: dict[int, Stage] = {}
        self._build(self.bound)
        self.results: list[Row] = []

    def _build(self, bound: Bound) -> str | Stage:
        if isinstance(bound.node, Stream):
            return bound.node.name
        # The same query object used twice is computed once.
        stage = self._built.get(id(bound.node))
        if stage is None:
            stage = self._built[id(bound.node)] = Stage(bound, [self._build(i) for i in bound.inputs])
            self.stages.append(stage)
        return stage

    @property
    def frontier(self) -> int:
        """Up to where results are out, in the numbers that `plait.order` has for before and after all."""
        return min(max(self.intake.released, total_order.BEFORE_ALL), total_order.AFTER_ALL)

    def push(self, stream: str, batch: pa.RecordBatch, *, source: SourceName | None = None, where: str = "",
             first_row: int = 0) -> None:  # fmt: skip
        """Deliver rows of one stream; `source` where no column names it."""
        self._stream(stream).push(plain_batch(batch), source, self.intake.released, where=where, first_row=first_row)
        self._advance()

    def heartbeat(self, stream: str, ts: Any, *, source: SourceName = 0) -> None:
        """A promise that the source delivers nothing below `ts` any more."""
        known, promised = self._stream(stream).declared_source(source), micros_of(ts)
        if not total_order.BEFORE_ALL <= promised <= total_order.AFTER_ALL:
            raise RunError(
                f"A heartbeat at {promised}", why="event times lie within +-2^62 microseconds", do="Lower it"
            )
        known.heartbeat = max(known.heartbeat, promised)
        self._advance()

    def end(self, stream: str, *, source: SourceName | None = None) -> None:
        """End one source, or with None the whole stream."""
        intake = self._stream(stream)
        if source is None:
            intake.ended = True
        else:
            intake.declared_source(source).ended = True
        self._advance()

    def close(self) -> None:
        """End of input: every window closes, every result comes out."""
        for intake in self.intake.streams.values():
            intake.ended = True
        self._advance()

    def take(self) -> list[Row]:
        """The results that came out since the last call."""
        taken, self.results = self.results, []
        return taken

    def _stream(self, name: str) -> StreamIntake:
        if name not in self.intake.streams:
            raise RunError(f"The query has no stream {name!r}", why=f"it reads {', '.join(self.intake.streams)}")
        return self.intake.streams[name]

    def _advance(self) -> None:
        """Move the frontier as far as it goes, and every operator with it. If nothing became ready and the frontier
        stands, nothing is swept. A frontier may move without a row: windows close then, and timers run.
        """
        before = self.intake.released
        frontier, ready = self.intake.advance()
        if frontier == before and not any(ready.values()):
            return
        if frontier == FOREVER:
            # Whatever moved the frontier last, time first passes to the last tuple of all, so that timers which set
            # timers run as often as the data say, not as its arrival does.
            last = max(intake.largest() for intake in self.intake.streams.values())
            self._sweep(max(before, last), {name: [r for r in rows if r.ts < last] for name, rows in ready.items()})
            ready = {name: [r for r in rows if r.ts >= last] for name, rows in ready.items()}
        self._sweep(frontier, ready)

    def _sweep(self, frontier: int, ready: Mapping[str, list[Row]]) -> None:
        for stage in self.stages:
            stage.advance(frontier, ready)
        self.results += self._changes(self.stages[-1].machine.out)


def pull(run: Run, feeds: Mapping[str, Feed]) -> Iterator[list[Row]]:
    """Pull feeds through a run, always the lane that holds the frontier; yields after each step what came out.

    The lane that holds the frontier is read next, so as few rows as possible wait. A stream without lanes ends at once.
    """
    lanes: dict[str, Lanes] = {name: {} for name in feeds}
    for name, feed in feeds.items():
        intake = run.intake.streams[name]
        for lane in feed.lanes:
            if lane.source is not None and intake.stream.source_column is None:
                intake.know(lane.source)
            lanes[name].setdefault(lane.source, []).append(_sliced(lane.read()))
        if not feed.lanes:
            run.end(name)
    while (holder := run.intake.holder())[0] < FOREVER:
        _, name, source = holder
        _pull_one(run, name, source, lanes[name])
        yield run.take()
    yield run.take()


def _sliced(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    for chunk in chunks:
        for start in range(0, chunk.batch.num_rows, SLICE_ROWS):
            yield Chunk(chunk.batch.slice(start, SLICE_ROWS), chunk.where, chunk.first_row + start)


def _pull_one(run: Run, name: str, source: SourceName | None, lanes: Lanes) -> None:
    """One slice from the lane that can move the holder on; a lane that is out of rows ends its source."""
    own = source if source in lanes else None
    if own not in lanes:
        # A declared source that no lane delivers: nothing can come from it any more.
        run.end(name, source=source)
        return
    chunk = next(lanes[own][0], None)
    if chunk is not None:
        run.push(name, chunk.batch, source=own, where=chunk.where, first_row=chunk.first_row)
        return
    lanes[own].pop(0)
    if not lanes[own]:
        del lanes[own]
        if own is not None or not lanes:  # sources of an unnamed lane end one by one, if named lanes go on
            run.end(name, source=own)


@dataclass(frozen=True)
class Outcome:
    """Everything a bounded run gives: the results, also as rows, and what was dropped as late or behind, by stream.

    `rows` have the keys that `table` does not show. `late` and `behind` have a table for each stream, empty where nothing
    was dropped.
    """

    table: pa.Table
    rows: list[Row]
    late: dict[str, pa.Table]
    behind: dict[str, pa.Table]

    def keys(self) -> list[bytes]:
        return [total_order.encode(row.key) for row in self.rows]


def outcome(query: Query, feeds: Mapping[str, Feed]) -> Outcome:
    """Run to the end over bounded feeds, all of whose sources are looked up first, so that none comes by surprise."""
    check_data(query, feeds)
    run = Run(query, {name: feed.schema for name, feed in feeds.items()})
    for name, feed in feeds.items():
        _know_sources(run.intake.streams[name], feed)
    rows = [row for batch in pull(run, feeds) for row in batch]
    return Outcome(
        table=table_of(rows, run.bound.schema),
        rows=rows,
        late={name: intake.late_table() for name, intake in run.intake.streams.items()},
        behind={name: intake.behind_table() for name, intake in run.intake.streams.items()},
    )


def _know_sources(intake: StreamIntake, feed: Feed) -> None:
    """A source that is first seen late might be behind; over bounded data all of them can be known before, by reading the
    data twice.
    """
    column = intake.stream.source_column
    if column is None or intake.stream.declared() is not None:
        return
    for lane in feed.lanes:
        for chunk in lane.read():
            for name in chunk.batch.column(column).unique().to_pylist():
                if name is not None:  # a NULL is refused in its place, with its row
                    intake.know(name)


def table(query: Query, data: Any, *, order: str = "strict", keys: bool = False) -> pa.Table:
    """`Query.reference`: the complete result of bounded data, always in strict order, which satisfies every `order`.

    `order` is checked and makes no difference here. With `keys` the column `_plait_key` follows: binary, and in the order
    of its bytes.
    """
    check_order(order)
    if not isinstance(keys, bool):
        raise QueryError(f"keys={keys!r} is no truth value", do="Pass True or False")
    feeds = connectors.feeds(query, data)
    bind(query, {name: feed.schema for name, feed in feeds.items()})
    result = outcome(query, feeds)
    for name, dropped in result.late.items():
        if len(dropped):
            warnings.warn(f"stream {name!r}: {len(dropped)} late tuples dropped (late='drop')", stacklevel=3)
    if not keys:
        return result.table
    return result.table.append_column("_plait_key", pa.array(result.keys(), pa.binary()))


def batches(query: Query, data: Any, *, order: str = "strict", keys: bool = False) -> Iterator[pa.RecordBatch]:
    """`Query.batches`: the whole result in pieces."""
    yield from table(query, data, order=order, keys=keys).to_batches(max_chunksize=SLICE_ROWS)
