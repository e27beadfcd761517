"""A run on threads: sources are pushed, workers join or aggregate, results are read.

    with query.on_threads(workers=2) as run:
        run.push("quotes", "feed-1", batch)          # from any thread
        for batch in run.results(): ...              # Arrow batches in result order

What threads do here: whoever calls `push` encodes rows and adds them to the gate; each worker runs the compiled loop
of `plait.operators.worker`; whoever iterates `results` merges the workers' results and builds Arrow batches. There is
no other thread, but in a query of queries one that carries results on from each inner operator (`dag`), and with
`idle_after=` one that looks at the clock (`idle`).

Life cycle: `push` until `close(stream, source)` or `drain()` ends the input; `results()` ends when every result is out.
Leaving the `with` block stops the workers, drained or not. The first error anywhere stops the run, and every later call
raises it.
"""

from __future__ import annotations

import dataclasses
import difflib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pyarrow as pa

from plait import order as total_order
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
from plait.threads.engine import Engine
from plait.threads.epochs import Change
from plait.threads.idle import Clock
from plait.threads.options import Options
from plait.threads.pausing import Stopped
from plait.threads.planning import described, labelled, steps
from plait.threads.pushing import batches_of
from plait.threads.stats import Stats


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
    return Run(query, Options(**options))


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
        self._lock = threading.RLock()
        self._early: list[tuple[Any, ...]] = []  # calls before all schemas are known
        self._engine: Engine | Dag | None = None
        self._closed = False
        self._began = time.monotonic()
        if len(self._schemas) == len(self._streams):
            self._begin()

    # --- life cycle ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        self.stop()

    def _begin(self) -> None:
        self._engine = engine = begin(bind(self.query, self._schemas), self._schemas, self._steps)
        self._clock = Clock(self._streams.values(), engine.let_go, engine.fail)

    def stop(self) -> None:
        """End all threads now; nothing is flushed."""
        self._closed = True
        if self._engine is not None:
            self._clock.stop()
            self._engine.stop()

    def _check(self, doing: str) -> None:
        if self._engine is not None:
            self._engine.check()
        if self._closed:
            raise RunError(f"{doing} after the run was stopped", do="Call on_threads again for a new run")

    def _stream(self, name: str) -> Stream:
        if name not in self._streams:
            raise RunError(f"The query has no stream {name!r}", why=f"it reads {', '.join(self._streams)}")
        return self._streams[name]

    # --- input ---

    def push(self, stream: str, source: SourceName | None, batch: Any) -> None:
        """Deliver rows of one stream: Arrow, pandas, or a dict of columns. `source` is None where a column names it.

        Blocks while the workers are behind by more than `capacity`; raises if more than `pending` rows wait for another
        source.
        """
        self._check("push")
        declared = self._stream(stream)
        schema, batches = batches_of(declared, self._schemas.get(stream), batch)
        if self._engine is None:
            with self._lock:
                if self._engine is None:
                    self._schemas[stream] = schema
                    self._early.append(("push", stream, source, batches))
                    if len(self._schemas) == len(self._streams):
                        self._begin()
                        for call, *arguments in self._early:
                            self._engine_do(call, *arguments)
                        self._early.clear()
                    return
        self._engine_do("push", stream, source, batches)

    def _engine_do(self, call: str, *arguments: Any) -> None:
        engine = self._engine
        assert engine is not None
        try:
            getattr(engine, call)(*arguments)
        except Stopped:
            engine.check()
            raise RunError(f"{call}: the run was stopped meanwhile") from None

    def heartbeat(self, stream: str, source: SourceName, ts: Any) -> None:
        """Promise that the source delivers nothing below `ts` any more."""
        self._check("heartbeat")
        self._stream(stream)
        promised = micros_of(ts)
        if not total_order.BEFORE_ALL <= promised <= total_order.AFTER_ALL:
            raise RunError(
                f"A heartbeat at {promised}", why="event times lie within +-2^62 microseconds", do="Lower it"
            )
        self._later("heartbeat", stream, source, promised)

    def close(self, stream: str, source: SourceName | None = None) -> None:
        """End one source, or with None the whole stream: it holds nothing back any more."""
        self._check("close")
        self._stream(stream)
        self._later("close", stream, source)

    def _later(self, call: str, *arguments: Any) -> None:
        with self._lock:
            if self._engine is None:
                self._early.append((call, *arguments))
                return
        self._engine_do(call, *arguments)

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
        for name in self._streams:
            self._engine_do("close", name, None)

    # --- output ---

    def results(self, *, timeout_s: float | None = None) -> Iterator[pa.RecordBatch]:
        """Result batches as they come, until the input has ended and all are out.

        With `timeout_s`, also ends when nothing has come for so long: 0 gives what is there. One thread at a time.
        """
        while self._engine is None:
            self._check("results")
            if timeout_s is not None:
                return
            time.sleep(0.001)
        yield from self._engine.results(timeout_s)

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
