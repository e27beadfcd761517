"""A run on threads: sources are pushed, workers join or aggregate, results are read.

    with query.on_threads(workers=2) as run:
        run.push("quotes", "feed-1", batch)          # from any thread
        for batch in run.results(): ...              # Arrow batches in result order

What threads do here: whoever calls `push` encodes rows and adds them to the gate; each worker runs the compiled loop
of `plait.threads.join.loop.worker`; whoever iterates `results` merges the workers' results and makes Arrow batches of them, or,
where many of a join wait, has others make them (`builders`). There is no other thread, but in a query of queries one that
carries results on from each inner operator (`dag`), with `fan_in=` the mergers', and with `idle_after=` one that looks at the
clock (`idle`). Several readers of the results share what one of them takes (`readers`).

Life cycle: `push` until `close(stream, source)` or `drain()` ends the input; `results()` ends when every result is out.
Leaving the `with` block stops the workers, drained or not; so does dropping the run.

What an error leaves behind. A call is refused whole, and changes nothing, if it names a stream that the query does not read,
if it comes after the end of its stream or source, or if an argument is out of range. Any other error inside `push`,
`heartbeat`, `close`, `drain` or `results`, of plait's, of a user's function, or an interrupt, stops the run: from then on
every call raises it, and those that wait are told. What `results()` had given out until then is the beginning of the answer.

How that is kept: a call that changes the run is in `_calls` from before its first step to after its last, under a lock of its
own that the interpreter lets go of however the call ends. One that is there and holds its lock no more was left half done.
"""

from __future__ import annotations

import operator
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa

from plait import order as total_order
from plait.core.machine.shield import struck
from plait.core.metrics import FAILED, STARTING, STOPPED, Metrics
from plait.encodings import plain_schema
from plait.errors import DataError, QueryError, RunError
from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.bind import bind
from plait.query.dedup import Dedup
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import RowByRow, Union, rooted
from plait.query.stream import SourceName, Stream
from plait.schema import is_number, micros_of
from plait.threads.dag import Dag
from plait.threads.elastic.manager import Change
from plait.threads.engine import Engine
from plait.threads.engines import engine_of
from plait.threads.input.push import batches_of
from plait.threads.life.affinity import described as bound_to
from plait.threads.life.end import Begun, begun, clear_away
from plait.threads.life.pause import Stopped
from plait.threads.life.together import Together, raise_again
from plait.threads.options import Options
from plait.threads.parts import Running
from plait.threads.plan import described, gate_described, labelled, steps
from plait.threads.readers import Held, Outlet, Patience, Place, Reader
from plait.threads.stats import Stats
from plait.threads.union import on_the_way

#: Calls that came before all columns were known: they are collected, then carried out in their order, then all may enter.
COLLECTING, ENTERING, OPEN = range(3)


def start(query: Query, **options: Any) -> Run:
    """`Query.on_threads`, which has checked the options by name."""
    clear_away()
    return Run(query, Options(**options))


def supports(query: Query) -> str | None:
    """Why this executor can't run a query; None if it can."""
    if not isinstance(query, (Join, Asof, Aggregate, Dedup, Operator, RowByRow, Union)):
        return f"threads run joins, aggregates and operators, and this is a {type(query).__name__.lower()}"
    return next((why for node in query.inputs if isinstance(node, Query) and (why := supports(node))), None)


class Run:
    """A run of a query on threads of this process. It is made by `query.on_threads(...)`.

    Use it in a `with` block: leaving it ends all threads, drained or not. `push`, `heartbeat` and `close` may be called from any
    thread, one thread at a time for a source. The module says what an error leaves behind. The examples of its methods go on from
    this one.

    Attributes:
        query: The query that runs.
        options: The options it was given, checked.

    Example:
        >>> import plait, pyarrow as pa
        >>> quotes = plait.stream("quotes", unit="s", schema={"ts": "int64", "price": "int64"})
        >>> trades = plait.stream("trades", unit="s", schema={"ts": "int64", "price": "int64"})
        >>> near = plait.join(quotes, trades, on="quotes.price = trades.price", within="5s")
        >>> with near.on_threads(workers=1) as run:
        ...     run.push("quotes", None, {"ts": [1, 9], "price": [10, 20]})
        ...     run.push("trades", None, {"ts": [3], "price": [10]})
        ...     run.drain()
        ...     for batch in run.results():
        ...         print(batch.to_pylist())
        [{'ts': 3000000, 'quotes_ts': 1, 'quotes_price': 10, 'trades_ts': 3, 'trades_price': 10}]
    """

    def __init__(self, query: Query, options: Options) -> None:
        reason = supports(query)
        if reason is not None:
            raise QueryError(f"This query does not run on threads: {reason}", do="Use on_spark or reference")
        self.query, self.options, self._root = query, options, rooted(query)
        self._steps = steps(self._root, options)
        self._streams = query.streams()
        self._schemas: dict[str, pa.Schema] = {
            name: s.schema for name, s in self._streams.items() if s.schema is not None
        }
        for name, schema in (options.schemas or {}).items():
            if name not in self._streams:
                raise QueryError(
                    f"schemas= has columns of {name!r}, and the query has no such stream",
                    why=f"it reads {', '.join(self._streams)}",
                    do="Leave it out, or correct the name",
                )
            self._schemas[name] = plain_schema(schema, f"Stream {name!r}")
        self._lock = threading.RLock()  # held by who collects calls, and by who carries the collected ones out
        self._early: list[Callable[[Running], None]] = []
        self._phase = COLLECTING
        self._begun: Begun | None = None
        self._known = threading.Event()  # there is an engine, or there will be none
        self._error: BaseException | None = None  # one that came before there was an engine
        self._calls: dict[threading.Lock, str] = {}
        self._closed = False
        self._taking = threading.Lock()  # held by who takes a batch while nobody has asked for a `reader`
        self._outlet: Outlet | None = None  # once somebody has
        self._asked = False  # whether `results` was called
        self._began = time.monotonic()
        if len(self._schemas) == len(self._streams):
            self._begin()
            self._phase = OPEN

    # --- life cycle ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.stop()

    def _begin(self) -> None:
        """What runs is made and started, once the columns of all streams are known: an engine, or a `Dag` of several."""
        bound, (step, *more) = bind(self._root, self._schemas), self._steps
        alone = not more and not bound.steps and all(on_the_way(bound, keyed=step.options.keys))
        engine: Engine | Dag = (
            engine_of(bound, self._schemas, step, Together()) if alone else Dag(bound, self._schemas, self._steps)
        )
        engine.begin()
        self._begun = begun(self, engine, self._streams.values(), self.options.linger_us)
        self._known.set()
        if self._closed:  # by another thread, meanwhile
            self.stop()

    def stop(self) -> None:
        """End all threads now. Nothing is flushed, and results that were not read are lost.

        Leaving the `with` block does this. A second call does nothing.

        Example:
            >>> run = near.on_threads(workers=1)
            >>> run.stop()
        """
        self._closed = True
        self._known.set()
        if self._begun is not None:
            self._begun.stop()

    @property
    def _engine(self) -> Running | None:
        """What runs, once all columns are known."""
        return None if self._begun is None else self._begun.engine

    def _check(self, doing: str) -> None:
        """Raise what stopped the run, if anything did."""
        if self._calls and self._broken():
            self._fail(RunError("A call was interrupted", why="it was left half done"))
        if self._engine is not None:
            self._engine.check()
        if self._error is not None:
            raise_again(self._error)
        if self._closed:
            raise RunError(f"{doing} after the run was stopped", do="Call on_threads again for a new run")

    def _broken(self) -> bool:
        """Whether a call was left without coming to its end: one that has come there is taken out before it is unlocked, so
        what is unlocked, and then still there, never will. (Each call has a lock of its own.)"""
        return any(not call.locked() and call in self._calls for call in tuple(self._calls))

    def _fail(self, error: BaseException) -> None:
        """The first error stops the run."""
        if self._engine is not None:
            self._engine.fail(error)
        elif self._error is None:
            self._error = error
        self._known.set()

    def _do(self, doing: str, act: Callable[..., None], *arguments: Any) -> None:
        """Carry out a call that changes the run: wholly, or the run stops."""
        call = threading.Lock()
        with call:
            self._calls[call] = doing
            try:
                act(*arguments)
            except Stopped:
                self._check(doing)
                raise RunError(f"{doing}: the run was stopped meanwhile") from None
            except BaseException as error:
                self._fail(found := struck(error))
                if found is error:
                    raise
                raise found from None
            del self._calls[call]

    def _stream(self, name: str) -> Stream:
        if not isinstance(name, str) or name not in self._streams:
            raise RunError(f"The query has no stream {name!r}", why=f"it reads {', '.join(self._streams)}")
        return self._streams[name]

    def _refuse_ended(self, what: str, stream: str, source: SourceName | None) -> None:
        if not isinstance(source, Hashable):
            raise DataError(f"Stream {stream!r}: {source!r} can't name a source", why="names are integers or text")
        over = None if self._engine is None else self._engine.ended(stream, source)
        if over is not None:
            raise RunError(f"{over} has ended", why=f"{what} came after its end")

    # --- input ---

    def push(self, stream: str, source: SourceName | None, batch: Any) -> None:
        """Deliver rows of one stream.

        It waits while the workers are behind by more than `capacity`.

        Args:
            stream: The stream's name.
            source: The source's name. None where a column names it, or where the stream has one source.
            batch: An Arrow table or record batch, a pandas or Polars DataFrame, or a dict of columns.

        Raises:
            RunError: The query has no such stream, or the stream, the source or the run has ended.
            DataError: The rows don't fit the stream; the run stops. `LateError` and `BehindError` are of this kind.
            PendingError: More than `pending` rows wait for another source; the run stops.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("quotes", None, pa.table({"ts": [1, 9], "price": [10, 20]}))
            ...     run.stats().tuples
            2
        """
        self._check("push")
        declared = self._stream(stream)
        self._refuse_ended("rows", stream, source)
        self._do("push", self._push, declared, source, batch)

    def _push(self, stream: Stream, source: SourceName | None, batch: Any) -> None:
        name = stream.name
        if name in self._schemas:
            _, batches = batches_of(stream, self._schemas[name], batch)
            self._enter(lambda engine: self._deliver(engine, stream, source, batches))
            return
        with self._lock:  # of two first batches at once, one says what the columns are
            schema, batches = batches_of(stream, self._schemas.get(name), batch)
            self._schemas.setdefault(name, schema)
            self._enter(lambda engine: self._deliver(engine, stream, source, batches))

    def _deliver(
        self, engine: Running, stream: Stream, source: SourceName | None, batches: list[pa.RecordBatch]
    ) -> None:
        """To the engine; or to where small pushes wait for others (`linger=`)."""
        if self._begun is None or self._begun.lingering is None:
            engine.push(stream.name, source, batches)
            return
        alone = source is not None or stream.source_column is None
        self._begun.lingering.push(stream.name, source, batches, alone=alone)

    def _entered(self, stream: str | None = None) -> None:
        """What was pushed of a stream, or of all, enters before what is said of it next."""
        if self._begun is not None and self._begun.lingering is not None:
            self._begun.lingering.enter_all(stream)

    def _enter(self, act: Callable[[Running], None]) -> None:
        """Carry out a call, after all that came before all columns were known: a source's rows keep their order."""
        if self._phase != OPEN:
            with self._lock:
                if self._phase != OPEN:
                    self._collect(act)
                    return
        assert self._engine is not None
        act(self._engine)

    def _collect(self, act: Callable[[Running], None]) -> None:
        if self._phase == ENTERING:  # and the lock is free: who carried them out did not come to the end
            self._check("push")
            raise Stopped
        self._early.append(act)
        if len(self._schemas) < len(self._streams):
            return
        self._phase = ENTERING
        self._begin()
        assert self._engine is not None
        for each in self._early:
            each(self._engine)
        self._early.clear()
        self._phase = OPEN

    def heartbeat(self, stream: str, source: SourceName, ts: Any) -> None:
        """Promise that a source delivers nothing below a ts any more.

        A tuple of the source that comes later and lies below it is late.

        Args:
            stream: The stream's name.
            source: The source's name; None or 0 for the only source of a stream.
            ts: Microseconds, or a datetime with a zone. It is not lowered by the stream's disorder.

        Raises:
            RunError: The query has no such stream, the source has ended, or the ts is out of range.
            QueryError: `ts` is no moment.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("quotes", None, {"ts": [1], "price": [10]})
            ...     run.push("trades", None, {"ts": [3], "price": [10]})
            ...     run.heartbeat("quotes", 0, 60_000_000)
            ...     run.heartbeat("trades", 0, 60_000_000)
            ...     len(next(run.results()))
            1
        """
        self._check("heartbeat")
        self._stream(stream)
        self._refuse_ended("a heartbeat", stream, source)
        promised = micros_of(ts)
        if not total_order.BEFORE_ALL <= promised <= total_order.AFTER_ALL:
            raise RunError(
                f"A heartbeat at {promised}", why="event times lie within +-2^62 microseconds", do="Lower it"
            )
        self._do("heartbeat", self._enter, lambda engine: self._promise(engine, stream, source, promised))

    def _promise(self, engine: Running, stream: str, source: SourceName, ts: int) -> None:
        self._entered(stream)
        engine.heartbeat(stream, source, ts)

    def close(self, stream: str, source: SourceName | None = None) -> None:
        """End one source, or a whole stream: it holds nothing back any more.

        Args:
            stream: The stream's name.
            source: The source's name. None: all sources of the stream.

        Raises:
            RunError: The query has no such stream, or the run has ended.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("quotes", None, {"ts": [1], "price": [10]})
            ...     run.close("quotes")
            ...     run.holder()
            ('trades', None)
        """
        self._check("close")
        self._stream(stream)
        self._do("close", self._enter, lambda engine: self._close(engine, stream, source))

    def _close(self, engine: Running, stream: str, source: SourceName | None) -> None:
        self._entered(stream)
        engine.close(stream, source)

    def drain(self) -> None:
        """End of input: every source ends and every window closes. `results()` then gives what is left, and ends.

        Raises:
            RunError: The columns of a stream are not known yet, or the run has ended.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.drain()
            ...     run.table().num_rows
            0
        """
        self._check("drain")
        if self._engine is None:
            unknown = [name for name in self._streams if name not in self._schemas]
            raise RunError(
                f"drain before anything is known of {', '.join(map(repr, unknown))}",
                why="without a batch of it, its columns, and so the results', can't be known",
                do="Declare schema= with the stream, or pass schemas={...} to on_threads",
            )
        self._do("drain", self._enter, self._end_all)

    def _end_all(self, engine: Running) -> None:
        self._entered()
        for name in self._streams:
            engine.close(name, None)

    # --- output ---

    def results(self, *, timeout_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """Result batches as they come, until the input has ended and all are out.

        One thread at a time reads them; `reader` gives others that see all of them, too. A second call goes on where the first
        one stopped.

        Args:
            timeout_s: End also when nothing has come for so many seconds. 0 gives what is there. None waits for ever.

        Yields:
            Arrow record batches in result order.

        Raises:
            PlaitError: Whatever has stopped the run.
            RunError: The run was stopped.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("quotes", None, {"ts": [1], "price": [10]})
            ...     list(run.results(timeout_s=0))
            []
        """
        self._asked = True
        if self._outlet is not None:
            self._outlet.own()
        return self._read(None, timeout_s)

    def reader(self, parent: Reader | None = None) -> Reader:
        """Another reader of the results: it sees every batch from where it begins, in the order that all readers see.

        `results()` is a reader as well, from its first call on. The slowest reader holds the others back once `unread_results`
        rows wait for it: read each in a thread of its own.

        Args:
            parent: Begin with the batch that this reader reads next. None: with the first one that no reader has taken; so
                readers that are made before any result is read see all of them.

        Returns:
            A `Reader`: iterate it, or call its `results` or `table`; `close` it if it is to hold back nobody.

        Raises:
            RunError: The run was stopped, or the parent was closed or is another run's.
            PlaitError: Whatever has stopped the run.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     one, two = run.reader(), run.reader()
            ...     run.push("quotes", None, {"ts": [1], "price": [10]})
            ...     run.push("trades", None, {"ts": [3], "price": [10]})
            ...     run.drain()
            ...     one.table().num_rows, two.table().num_rows
            (1, 1)
        """
        self._check("reader")
        if self._outlet is None:
            with self._taking:  # a batch that is being taken is `results`' own, and the reader begins behind it
                if self._outlet is None:
                    made = Outlet(self.options.unread_results)
                    if self._asked:
                        made.own()
                    self._outlet = made
        outlet = self._outlet
        if parent is not None and not (isinstance(parent, Reader) and parent.place.outlet is outlet):
            raise RunError(
                f"reader(parent={parent!r})",
                why="it is no reader of this run",
                do="Pass what reader() of this run gave, or leave it out",
            )
        return Reader(outlet.join(None if parent is None else parent.place), self._read, lambda: self.schema)

    def _read(self, place: Place | None, timeout_s: float | None) -> Iterator[pa.RecordBatch]:
        """What a reader gets, batch by batch. No place: that of `results`."""
        if timeout_s is not None and not is_number(timeout_s):
            raise QueryError(
                f"timeout_s={timeout_s!r} is no number of seconds", do="Pass one, or None to wait for ever"
            )
        patience, held = Patience(timeout_s), Held(self.options)
        while True:
            self._check("results")
            call = threading.Lock()
            engine = self._engine
            if engine is None:
                if patience.over():
                    return
                self._known.wait(patience.slice_s())
                continue
            with call:
                self._calls[call] = "results"
                try:
                    batch = self._take(engine, place, held, int(patience.slice_s() * 1e9))
                except Stopped:
                    self._check("results")
                    raise RunError("results: the run was stopped meanwhile") from None
                except BaseException as error:
                    self._fail(found := struck(error))
                    if found is error:
                        raise
                    raise found from None
                if isinstance(batch, pa.RecordBatch):
                    # On one line, and no call between the two: an interrupt comes before both, and stops the run, or after.
                    del self._calls[call]; yield batch  # fmt: skip  # noqa: E702
                    patience = Patience(timeout_s)
                    continue
                del self._calls[call]
            if batch is False:
                self._check("results")
                return
            if patience.over():
                return

    def _take(self, engine: Running, place: Place | None, held: Held, wait_ns: int) -> pa.RecordBatch | bool | None:
        """A reader's next batch: of a run that has but the one reader of `results`, the engine's."""
        if self._outlet is None:
            with self._taking:
                if self._outlet is None:
                    return engine.take(wait_ns)
        if place is None:
            place = self._outlet.own()
        batch = self._outlet.next(place, engine.take, wait_ns)
        if batch is None:
            held.look(self._outlet, place)
        return batch

    def table(self) -> pa.Table:
        """Everything that is still to come, as one table.

        It waits until the input has ended: call `drain` first, or in another thread.

        Returns:
            An Arrow table in result order.

        Raises:
            PlaitError: Whatever has stopped the run.

        Example:
            >>> with near.on_threads(workers=1, keys=True) as run:
            ...     run.push("quotes", None, {"ts": [1], "price": [10]})
            ...     run.push("trades", None, {"ts": [3], "price": [10]})
            ...     run.drain()
            ...     run.table().column_names[-1]
            '_plait_key'
        """
        batches = list(self.results())
        return pa.Table.from_batches(batches, self.schema).combine_chunks()

    @property
    def schema(self) -> pa.Schema:
        """The results' columns. Raises `RunError` while they are not known."""
        if self._engine is None:
            raise RunError("The results' columns are not known yet", do="Push a batch of each stream, or pass schemas=")
        return self._engine.schema

    # --- workers that come and go (elastic=) ---

    def resize(self, workers: int, reason: str = "asked for") -> Change:
        """Let so many threads serve the shares of an elastic run, from the first later event time on.

        It returns at once. A switch takes effect when the frontier has passed its place; `stats().changes` says when that was and
        what it cost. Of requests that wait for one under way only the last is carried out.

        Args:
            workers: How many threads, from 1 to `elastic`.
            reason: What the log of changes says.

        Returns:
            The request as it stands now, a `Change`.

        Raises:
            RunError: The run is not elastic, the number is out of range, or nothing runs yet.

        Example:
            >>> with near.on_threads(workers=1, elastic=2) as run:
            ...     change = run.resize(2)
            >>> change.kind, change.before, change.after
            ('provision', 1, 2)
        """
        return self._changeable("resize").resize(workers, reason)

    def rebalance(self, owners: Sequence[int] | None = None, reason: str = "asked for") -> Change:
        """Let the same threads serve other shares of an elastic run.

        Args:
            owners: The thread of each share. None: by what each share has cost so far.
            reason: What the log of changes says.

        Returns:
            The request as it stands now, a `Change`.

        Raises:
            RunError: The run is not elastic, `owners` names other threads or shares than there are, or nothing runs yet.

        Example:
            >>> with near.on_threads(workers=2, elastic=2) as run:
            ...     run.rebalance([1, 0]).moved
            2
        """
        engine = self._changeable("rebalance")
        try:
            wanted = None if owners is None else [operator.index(owner) for owner in owners]
        except TypeError:
            raise RunError(
                f"rebalance({owners!r})",
                why="it is no map of shares to threads",
                do="Pass a thread's number for each share",
            ) from None
        return engine.rebalance(wanted, reason)

    @property
    def owners(self) -> list[int]:
        """The thread of each share, as asked for last: what `rebalance` takes. Raises `RunError` if the run is not elastic."""
        return self._changeable("owners").owners()

    def hold_policy(self, held: bool = True) -> None:
        """Let `policy=` ask for no change, for example while windows fill.

        Args:
            held: True: it asks for nothing. False: it asks again.

        Raises:
            RunError: Nothing runs yet, or the run has ended.

        Example:
            >>> with near.on_threads(elastic=2, policy=True) as run:
            ...     run.hold_policy()
            ...     run.hold_policy(False)
        """
        self._changeable("hold_policy").hold_policy(held)

    def _changeable(self, call: str) -> Running:
        self._check(call)
        if self._engine is None:
            raise RunError(f"{call} before anything runs", do="Push a batch of each stream first, or pass schemas=")
        return self._engine

    # --- what is going on ---

    def stats(self) -> Stats:
        """What was measured so far.

        Returns:
            A `Stats`: tuples, results, comparisons, work by worker, latency, rows dropped, memory, changes.

        Raises:
            RunError: Nothing has run yet.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("quotes", None, {"ts": [1], "price": [10]})
            ...     run.push("trades", None, {"ts": [3], "price": [10]})
            ...     run.drain()
            ...     _ = run.table()
            ...     run.stats().results
            1
        """
        if self._engine is None:
            raise RunError("Nothing has run yet", do="Push a batch of each stream first")
        return self._engine.stats()

    def watched(self) -> Metrics:
        """What a page shows: `stats()`, at any time, with the latencies of the last results and how the run stands.

        It never raises for what has stopped the run.

        Returns:
            A `Stats`; before anything runs a `Metrics` that says what is waited for.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.watched().phase
            'running'
            >>> run.watched().phase
            'stopped'
        """
        engine, error = self._engine, self._error
        if engine is None:
            unknown = [name for name in self._streams if name not in self._schemas]
            phase = f"{FAILED}: {type(error).__name__}" if error is not None else STOPPED if self._closed else STARTING
            seconds = time.monotonic() - self._began
            return Metrics(phase=phase, holder=(unknown[0] if unknown else None, None), seconds=seconds)
        found = engine.stats(latest=True)
        found.phase = engine.phase()
        return found

    def reset_latency(self) -> None:
        """Forget the latencies measured so far: what came before was a warm-up.

        Raises:
            RunError: Nothing runs yet, or the run has ended.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.reset_latency()
            ...     run.stats().latency_from_push_ms.samples
            0
        """
        self._changeable("reset_latency").reset_latency()

    def late(self, stream: str) -> pa.Table:
        """The rows of a stream that were dropped as late so far (`late="drop"`).

        Args:
            stream: The stream's name.

        Returns:
            An Arrow table with the stream's columns.

        Raises:
            RunError: The query has no such stream, or its columns are not known yet.

        Example:
            >>> readings = plait.stream("readings", unit="s", late="drop")
            >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
            ...     run.push("readings", None, {"ts": [5, 3]})
            ...     run.late("readings").to_pylist()
            [{'ts': 3}]
        """
        engine = self._reading(stream)
        return self._schemas[stream].empty_table() if engine is None else engine.late(stream)

    def behind(self, stream: str) -> pa.Table:
        """The rows of a stream that were dropped as behind so far (`behind="drop"`).

        Args:
            stream: The stream's name.

        Returns:
            An Arrow table with the stream's columns.

        Raises:
            RunError: The query has no such stream, or its columns are not known yet.

        Example:
            >>> readings = plait.stream("readings", unit="s", source="feed", behind="drop")
            >>> with plait.aggregate(readings, size="10s", compute={"n": plait.count()}).on_threads() as run:
            ...     run.push("readings", None, {"ts": [5, 40], "feed": ["x", "x"]})
            ...     run.push("readings", None, {"ts": [3], "feed": ["y"]})
            ...     run.behind("readings").to_pylist()
            [{'ts': 3, 'feed': 'y'}]
        """
        engine = self._reading(stream)
        return self._schemas[stream].empty_table() if engine is None else engine.behind(stream)

    def _reading(self, stream: str) -> Running | None:
        """What reads a stream, if its columns are known to all; they are to this stream."""
        self._stream(stream)
        if self._engine is None and stream not in self._schemas:
            raise RunError(
                f"The columns of stream {stream!r} are not known yet", do="Push a batch of it, or pass schemas="
            )
        return self._engine

    def explain(self) -> str:
        """The query, the strategy and the gate and why they were chosen, and what serves.

        Returns:
            Lines of text. Once rows have come they also say which index serves, and what is compiled.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     print(run.explain())
            inner join, within 5 s, on (quotes.price = trades.price)
            ...
            on threads: sequential, 1 worker...
        """
        found = self.query.explain().split("\n")
        found += bound_to(self.options.affinity)
        plans = [(labelled(step.query), step.plan) for step in self._steps]
        if self._engine is not None:
            plans = self._engine.plans()
        found += described(plans) + gate_described(self.query, self.options.gate, [made for _, made in plans])
        return "\n".join(found + (self._engine.describe() if self._engine is not None else []))

    @property
    def frontier(self) -> int:
        """The event time below which every tuple is known, in microseconds; -2^63 before all sources have spoken."""
        return total_order.BEFORE_ALL if self._engine is None else self._engine.frontier()

    def holder(self) -> tuple[str | None, SourceName | None]:
        """Who holds the frontier: what to push next.

        Returns:
            The stream and the source. The source is None if the stream has not shown one. Both are None if every source has
            ended.

        Example:
            >>> with near.on_threads(workers=1) as run:
            ...     run.push("trades", None, {"ts": [3], "price": [10]})
            ...     run.holder()
            ('quotes', None)
        """
        if self._engine is None:
            unknown = [name for name in self._streams if name not in self._schemas]
            return unknown[0], None
        return self._engine.holder()
