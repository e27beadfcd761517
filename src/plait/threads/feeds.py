"""Bounded input on threads: one thread pulls the lanes of the feeds and pushes, whoever asks for results reads them as they come.

Two threads beside the workers, since a push waits for workers, and workers wait for whoever reads results: one thread
that did both would wait for itself. If either fails, the run is stopped, the other one ends, and the first error is
raised. So memory is bounded by what a run lets wait (`capacity`, `pending`, `unread_results`), however long the feeds are. Others
read lanes, some chunks ahead of what is pushed.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import pyarrow as pa

from plait import connectors
from plait.connectors.contract import Chunk, Feed, SourceName
from plait.order import BEFORE_ALL
from plait.query.base import Query, leaves
from plait.query.bind import bind
from plait.threads.life.guard import guarded
from plait.threads.run import Run, start

#: Rows pushed at a time: not many, since a lane's rows wait until the slowest source has caught up; nor few, since a push costs
#: as much as some hundred rows.
SLICE_ROWS = 1 << 16
#: Rows of a source that may wait for another one, unless an option says otherwise: more is an error and not a full memory.
PENDING = 1 << 20

#: Lanes that are read ahead, if there are no more, and chunks of each that are held then. With one, who reads would rest while
#: partners are found, and who finds them while the chunks of a slab are read one after another.
AHEAD_LANES, AHEAD = 8, 8

Lanes = dict[str, dict[SourceName | None, list[Iterator[Chunk]]]]


class Takes(Protocol):
    """Who takes rows: a `Run`, or what stands in front of a bounded one (`threads.bounded.intake`)."""

    def heartbeat(self, stream: str, source: SourceName, ts: Any) -> None: ...

    def push(self, stream: str, source: SourceName | None, batch: Any) -> None: ...

    def close(self, stream: str, source: SourceName | None = None) -> None: ...

    def holder(self) -> tuple[str | None, SourceName | None]: ...


def table(query: Query, data: Any, **options: Any) -> pa.Table:
    """All results of bounded data as one table; `data` is what `connectors.feeds` takes."""
    return table_of(query, connectors.feeds(query, data), **options)


def table_of(query: Query, feeds: Mapping[str, Feed], **options: Any) -> pa.Table:
    """The same of feeds."""
    with _known(query, feeds, options) as run:
        return pa.Table.from_batches(list(_told(query, feeds, run)), run.schema)


def batches(query: Query, data: Any, **options: Any) -> Iterator[pa.RecordBatch]:
    """All results of bounded data, in order, as they come."""
    yield from batches_of_feeds(query, connectors.feeds(query, data), **options)


def batches_of_feeds(query: Query, feeds: Mapping[str, Feed], **options: Any) -> Iterator[pa.RecordBatch]:
    """The same of feeds."""
    with _known(query, feeds, options) as run:
        yield from _told(query, feeds, run)


def started(query: Query, feeds: Mapping[str, Feed], **options: Any) -> Run:
    """A run with the columns of the feeds, to which nothing was pushed yet."""
    schemas = {name: feed.schema for name, feed in feeds.items()}
    return start(query, **{"schemas": schemas, "pending": PENDING, **options})


def _known(query: Query, feeds: Mapping[str, Feed], options: dict[str, Any]) -> Run:
    """A run that knows all sources that the feeds will name: so none comes by surprise, and none can be behind.

    The reference does the same. Where a column names the sources of a stream the feed is read once for that.
    """
    bind(query, {name: feed.schema for name, feed in feeds.items()})  # what can't be, before anything is read
    named = named_sources(query, feeds)
    # A stream that is read twice has its sources twice; and each has a place that is kept until a source is known.
    room = sum(1 + len(named[leaf.name] or leaf.declared() or feeds[leaf.name].lanes) for leaf in leaves(query))
    run = started(query, feeds, **{"max_sources": room, **options})
    for name, names in named.items():
        for source in names:
            run.heartbeat(name, source, BEFORE_ALL)
    return run


def _told(query: Query, feeds: Mapping[str, Feed], run: Run) -> Iterator[pa.RecordBatch]:
    """Results; rows that were dropped as late are told in a warning at the end."""
    yield from results(query, feeds, run)
    tell_late({name: run.late(name).num_rows for name in query.streams()})


def tell_late(dropped: Mapping[str, int]) -> None:
    """Warn of rows that were dropped as late, by stream."""
    for name, rows in dropped.items():
        if rows:
            warnings.warn(f"stream {name!r}: {rows} late tuples dropped (late='drop')", stacklevel=5)


def results(query: Query, feeds: Mapping[str, Feed], run: Run) -> Iterator[pa.RecordBatch]:
    """Results, while another thread pushes; its error is raised here.

    An error of the pushing thread stops the run, which ends `results()` with an error of its own; the first one is told.
    """
    failed: list[BaseException] = []

    def push() -> None:
        try:
            for _ in pulled(query, feeds, run):
                pass
        except BaseException as error:
            failed.append(error)
            run.stop()

    thread = threading.Thread(target=push, name="plait-feeds", daemon=True)
    thread.start()
    ended = False
    try:
        yield from run.results()
        ended = True
    except BaseException:
        if not failed:
            raise
    finally:
        if failed or not ended:
            run.stop()
        thread.join()
    if failed:
        raise failed[0]


def named_sources(query: Query, feeds: Mapping[str, Feed]) -> dict[str, list[SourceName]]:
    """By stream, the sources that a column of its rows names."""
    return {name: _sources(query, name, feed) for name, feed in feeds.items()}


def _sources(query: Query, name: str, feed: Feed) -> list[SourceName]:
    """The sources that a column of the rows names, in order; none where they are declared, or no column names them."""
    stream = query.streams()[name]
    column = stream.source_column
    if column is None or stream.declared() is not None:
        return []
    found: dict[SourceName, None] = {}
    for lane in feed.lanes:
        for chunk in lane.read():
            named = chunk.batch.column(chunk.batch.schema.get_field_index(column)).unique().to_pylist()
            found |= {source: None for source in named if source is not None}  # a NULL is refused in its place
    return list(found)


#: By stream columns of text that may be pushed as dictionaries.
Coded = Mapping[str, frozenset[str]]


def pulled(query: Query, feeds: Mapping[str, Feed], run: Takes, coded: Coded | None = None) -> Iterator[None]:
    """Push from the lane that holds the frontier, so that little has to wait, until all lanes are empty; a step at a time.

    All lanes' sources are made known first, by a heartbeat that promises nothing. Without it a source that no row has
    come of yet could be left behind by the others.

    Lanes of one source follow one another. A source ends when its last lane is empty; a stream whose sources a column
    names ends when all of its lanes are.

    The next chunks of a lane are read while this one is pushed, by another thread: to read a file is as much work as to push
    its rows.
    """
    several = sum(len(feed.lanes) for feed in feeds.values())
    with ThreadPoolExecutor(min(several, 2) or 1, thread_name_prefix="plait-reads") as readers:
        yield from _pull_lanes(query, feeds, run, coded or {}, readers if several <= AHEAD_LANES else None)


def _pull_lanes(
    query: Query, feeds: Mapping[str, Feed], run: Takes, coded: Coded, readers: ThreadPoolExecutor | None
) -> Iterator[None]:
    lanes: Lanes = {}
    for name, feed in feeds.items():
        lanes[name] = {}
        for lane in feed.lanes:
            if lane.source is not None and query.streams()[name].source_column is None:
                run.heartbeat(name, lane.source, BEFORE_ALL)  # known from now on
            names = coded.get(name)
            chunks = lane.coded(names) if names and lane.coded is not None else lane.read()
            lanes[name].setdefault(lane.source, []).append(_sliced(_Ahead(chunks, readers) if readers else chunks))
        if not feed.lanes:
            run.close(name)
    while True:
        held, source = run.holder()
        if held is None:
            return
        own = source if source in lanes[held] else None
        if own not in lanes[held]:
            # A declared source that no lane delivers: nothing can come from it any more.
            run.close(held, source)
            continue
        chunk = next(lanes[held][own][0], None)
        if chunk is not None:
            run.push(held, own, chunk.batch)
            yield
            continue
        lanes[held][own].pop(0)
        if not lanes[held][own]:
            del lanes[held][own]
            if own is not None or not lanes[held]:
                run.close(held, own)


class _Ahead:
    """The chunks of a lane, of which others read the next ones while one is used. Nothing is read before the first is asked for.

    One thread reads a lane at a time: who has read a chunk has the next one read as long as fewer than AHEAD wait. `_ready`: what
    was read, in order, an error in its place; None is the end. All of it is changed under `_guard`.
    """

    def __init__(self, chunks: Iterator[Chunk], readers: ThreadPoolExecutor) -> None:
        self._chunks, self._readers = chunks, readers
        self._ready: deque[Chunk | BaseException | None] = deque()
        self._guard, self._changed = guarded()
        self._reading, self._ended = False, False

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            with self._guard:
                self._read_on()
                while not self._ready:
                    self._changed.wait()
                found = self._ready.popleft()
                self._read_on()
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found

    def _read_on(self) -> None:
        if self._reading or self._ended or len(self._ready) >= AHEAD:
            return
        try:
            self._readers.submit(self._read)
            self._reading = True
        except RuntimeError:  # nobody asks for more: the readers are being let go
            self._ended = True

    def _read(self) -> None:
        found: Chunk | BaseException | None
        try:
            found = next(self._chunks, None)
        except BaseException as error:
            found = error
        with self._guard:
            self._ready.append(found)
            self._reading, self._ended = False, not isinstance(found, Chunk)
            self._read_on()
            self._changed.notify()


def _sliced(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Chunks in smaller pieces.

    A slice shares the chunk's memory. `first_row` goes on counting, for messages.
    """
    for chunk in chunks:
        for begin in range(0, chunk.batch.num_rows, SLICE_ROWS):
            yield Chunk(chunk.batch.slice(begin, SLICE_ROWS), chunk.where, chunk.first_row + begin)
