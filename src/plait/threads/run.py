"""A run on threads: sources are pushed, workers join or aggregate, results are read.

    with query.on_threads(workers=2) as run:
        run.push("quotes", "feed-1", batch)          # from any thread
        for batch in run.results(): ...              # Arrow batches in result order

What threads do here: whoever calls `push` encodes rows and adds them to the gate; each worker runs the compiled loop
of `plait.threads.join.loop.worker`; whoever iterates `results` merges the workers' results and builds Arrow batches. There is
no other thread, but in a query of queries one that carries results on from each inner operator (`dag`), and with
`idle_after=` one that looks at the clock (`idle`).

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

import dataclasses
import difflib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa

from plait import order as total_order
from plait.core.machine.shield import struck
from plait.errors import QueryError, RunError
from plait.layouts import plain_schema
from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.bind import bind
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.stream import SourceName, Stream
from plait.schema import micros_of
from plait.threads.dag import Dag, begin
from plait.threads.elastic.manager import Change
from plait.threads.engine import Engine, raise_again
from plait.threads.input.idle import Clock
from plait.threads.input.push import batches_of
from plait.threads.options import Options
from plait.threads.pause import Stopped
from plait.threads.plan import described, labelled, steps
from plait.threads.stats import Stats

WORDS = {"ring": "rings, which every reader merges for itself", "skiplist": "one skip list, into which they sort"}
SLICE_S = 0.1  # how often whoever waits for results looks whether the run has stopped

#: Calls that came before all columns were known: they are collected, then carried out in their order, then all may enter.
COLLECTING, ENTERING, OPEN = range(3)


def start(query: Query, **options: Any) -> Run:
    """`Query.on_threads`."""
    known = [field.name for field in dataclasses.fields(Options)]
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise QueryError(
                f"on_threads has no option {name!r}",
                why=f"there are {', '.join(known)}",
                do=f"Did you mean {near[0]}=?" if near else "",
            )
    clear_away()
    return Run(query, Options(**options))


#: Engines that have ended. Their parts refer to one another, so they are there until Python's collector comes by, which counts
#: objects and does not see that an engine is a few of them and many megabytes.
_ENDED: weakref.WeakSet[Engine | Dag] = weakref.WeakSet()
MOST_ENDED_BYTES = 1 << 30


def clear_away() -> None:
    """Have ended engines collected once they hold too much."""
    if sum(engine.nbytes for engine in _ENDED) > MOST_ENDED_BYTES:
        gc.collect()


def supports(query: Query) -> str | None:
    """Why this executor can't run a query; None if it can."""
    if not isinstance(query, (Join, Asof, Aggregate, Operator)):
        return f"threads run joins, aggregates and operators, and this is a {type(query).__name__.lower()}"
    return next((why for node in query.inputs if isinstance(node, Query) and (why := supports(node))), None)


class Run:
    """See the module. Made by `query.on_threads(...)`; the options are those of `options.Options`."""

    def __init__(self, query: Query, options: Options) -> None:
        reason = supports(query)
        if reason is not None:
            raise QueryError(f"This query does not run on threads: {reason}", do="Use on_spark or reference")
        self.query, self.options, self._steps = query, options, steps(query, options)
        self._streams = query.streams()
        self._schemas: dict[str, pa.Schema] = {
            name: s.schema for name, s in self._streams.items() if s.schema is not None
        }
        self._schemas |= {n: plain_schema(s, f"Stream {n!r}") for n, s in (options.schemas or {}).items()}
        self._lock = threading.RLock()  # held by who collects calls, and by who carries the collected ones out
        self._early: list[Callable[[Engine | Dag], None]] = []
        self._phase = COLLECTING
        self._engine: Engine | Dag | None = None
        self._known = threading.Event()  # there is an engine, or there will be none
        self._error: BaseException | None = None  # one that came before there was an engine
        self._calls: dict[threading.Lock, str] = {}
        self._closed = False
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
        engine = begin(bind(self.query, self._schemas), self._schemas, self._steps)
        self._clock = Clock(self._streams.values(), engine.let_go, engine.fail)
        # Its threads hold the engine, and not the run: a run that nobody has any more is stopped.
        self._dropped_run = weakref.finalize(self, _abandon, engine, self._clock)
        self._dropped_run.atexit = False
        self._engine = engine
        self._known.set()
        if self._closed:  # by another thread, meanwhile
            self.stop()

    def stop(self) -> None:
        """End all threads now; nothing is flushed."""
        self._closed = True
        self._known.set()
        if self._engine is not None:
            self._dropped_run.detach()
            self._clock.stop()
            self._engine.stop()
            _ENDED.add(self._engine)

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
        if name not in self._streams:
            raise RunError(f"The query has no stream {name!r}", why=f"it reads {', '.join(self._streams)}")
        return self._streams[name]

    def _refuse_ended(self, what: str, stream: str, source: SourceName | None) -> None:
        over = None if self._engine is None else self._engine.ended(stream, source)
        if over is not None:
            raise RunError(f"{over} has ended", why=f"{what} came after its end")

    # --- input ---

    def push(self, stream: str, source: SourceName | None, batch: Any) -> None:
        """Deliver rows of one stream: Arrow, pandas, or a dict of columns. `source` is None where a column names it.

        Blocks while the workers are behind by more than `capacity`; raises if more than `pending` rows wait for another
        source.
        """
        self._check("push")
        declared = self._stream(stream)
        self._refuse_ended("rows", stream, source)
        self._do("push", self._push, declared, source, batch)

    def _push(self, stream: Stream, source: SourceName | None, batch: Any) -> None:
        name = stream.name
        if name in self._schemas:
            _, batches = batches_of(stream, self._schemas[name], batch)
            self._enter(lambda engine: engine.push(name, source, batches))
            return
        with self._lock:  # of two first batches at once, one says what the columns are
            schema, batches = batches_of(stream, self._schemas.get(name), batch)
            self._schemas.setdefault(name, schema)
            self._enter(lambda engine: engine.push(name, source, batches))

    def _enter(self, act: Callable[[Engine | Dag], None]) -> None:
        """Carry out a call, after all that came before all columns were known: a source's rows keep their order."""
        if self._phase != OPEN:
            with self._lock:
                if self._phase != OPEN:
                    self._collect(act)
                    return
        assert self._engine is not None
        act(self._engine)

    def _collect(self, act: Callable[[Engine | Dag], None]) -> None:
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
        """Promise that the source delivers nothing below `ts` any more."""
        self._check("heartbeat")
        self._stream(stream)
        self._refuse_ended("a heartbeat", stream, source)
        promised = micros_of(ts)
        if not total_order.BEFORE_ALL <= promised <= total_order.AFTER_ALL:
            raise RunError(
                f"A heartbeat at {promised}", why="event times lie within +-2^62 microseconds", do="Lower it"
            )
        self._do("heartbeat", self._enter, lambda engine: engine.heartbeat(stream, source, promised))

    def close(self, stream: str, source: SourceName | None = None) -> None:
        """End one source, or with None the whole stream: it holds nothing back any more."""
        self._check("close")
        self._stream(stream)
        self._do("close", self._enter, lambda engine: engine.close(stream, source))

    def drain(self) -> None:
        """End of input: every source ends, every window closes. `results()` then gives what is left, and ends."""
        self._check("drain")
        if self._engine is None:
            unknown = [name for name in self._streams if name not in self._schemas]
            raise RunError(
                f"drain before anything is known of {', '.join(map(repr, unknown))}",
                why="without a batch of it, its columns, and so the results', can't be known",
                do="Declare schema= with the stream, or pass schemas={...} to on_threads",
            )
        self._do("drain", self._enter, self._end_all)

    def _end_all(self, engine: Engine | Dag) -> None:
        for name in self._streams:
            engine.close(name, None)

    # --- output ---

    def results(self, *, timeout_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """Result batches as they come, until the input has ended and all are out.

        With `timeout_s`, also ends when nothing has come for so long: 0 gives what is there. One thread at a time.
        """
        patience = Patience(timeout_s)
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
                    batch = engine.take(int(patience.slice_s() * 1e9))
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

    def table(self) -> pa.Table:
        """Everything that is still to come, as one table; for a run whose input has ended."""
        batches = list(self.results())
        return pa.Table.from_batches(batches, self.schema).combine_chunks()

    @property
    def schema(self) -> pa.Schema:
        if self._engine is None:
            raise RunError("The results' columns are not known yet", do="Push a batch of each stream, or pass schemas=")
        return self._engine.schema

    # --- workers that come and go (elastic=) ---

    def resize(self, workers: int, reason: str = "asked for") -> Change:
        """Let so many threads serve the run's shares, from the first later event time on.

        Returns at once: a switch of epochs takes effect when the frontier has passed its place. `stats().changes` says
        when that was and what it cost. Of requests that wait for one under way only the last is carried out.
        """
        return self._changeable("resize").resize(workers, reason)

    def rebalance(self, owners: Sequence[int] | None = None, reason: str = "asked for") -> Change:
        """Let the same threads serve other shares: as `owners` says, a thread for each share, or by what each share has cost."""
        return self._changeable("rebalance").rebalance(owners, reason)

    @property
    def owners(self) -> list[int]:
        """The thread of each share, as asked for last: what `rebalance` takes."""
        return self._changeable("owners").owners()

    def hold_policy(self, held: bool = True) -> None:
        """Let `policy=` ask for no change until it is called with False: while windows fill, for one."""
        self._changeable("hold_policy").hold_policy(held)

    def _changeable(self, call: str) -> Engine | Dag:
        self._check(call)
        if self._engine is None:
            raise RunError(f"{call} before anything runs", do="Push a batch of each stream first, or pass schemas=")
        return self._engine

    # --- what is going on ---

    def stats(self) -> Stats:
        """What was measured so far."""
        if self._engine is None:
            raise RunError("Nothing has run yet", do="Push a batch of each stream first")
        return self._engine.stats()

    def reset_latency(self) -> None:
        """Forget the latencies measured so far: what came before was a warm-up."""
        self._changeable("reset_latency").reset_latency()

    def late(self, stream: str) -> pa.Table:
        """Rows dropped as late (late='drop')."""
        return self._dropped(stream, "late")

    def behind(self, stream: str) -> pa.Table:
        """Rows dropped as behind (behind='drop')."""
        return self._dropped(stream, "behind")

    def _dropped(self, stream: str, which: str) -> pa.Table:
        self._stream(stream)
        if self._engine is None:
            return self._schemas[stream].empty_table()
        return self._engine.dropped(stream, which)

    def explain(self) -> str:
        """The query, the strategy and why, and which index serves."""
        found = self.query.explain().split("\n")
        if self.options.gate != "auto":
            found.append(f"on threads: sources meet in {WORDS[self.options.gate]}, as asked for")
        if self._engine is None:
            return "\n".join(found + described([(labelled(step.query), step.plan) for step in self._steps]))
        return "\n".join(found + described(self._engine.plans()) + self._engine.describe())

    @property
    def frontier(self) -> int:
        return total_order.BEFORE_ALL if self._engine is None else self._engine.frontier()

    def holder(self) -> tuple[str | None, SourceName | None]:
        """The stream and the source that hold the frontier: what to push next. None: every source has ended."""
        if self._engine is None:
            unknown = [name for name in self._streams if name not in self._schemas]
            return unknown[0], None
        return self._engine.holder()


class Patience:
    """How long somebody still waits for results; None: for ever."""

    def __init__(self, timeout_s: float | None) -> None:
        self._until = None if timeout_s is None else time.monotonic() + timeout_s

    def slice_s(self) -> float:
        """So long at once at most, so that who waits hears of an error."""
        return SLICE_S if self._until is None else max(0.0, min(self._until - time.monotonic(), SLICE_S))

    def over(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until


def _abandon(engine: Engine | Dag, clock: Clock) -> None:
    """Nobody has the run any more. Called by the collector of garbage, in whatever thread: it waits for nobody."""
    clock.abandon()
    engine.abandon()
    _ENDED.add(engine)
