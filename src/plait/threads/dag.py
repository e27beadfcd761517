"""Queries of queries: every operator an engine of its own, and a thread that carries each inner one's results on.

An inner operator's output is, for those that read it, a stream with one source, in the order in which the results come out:
`QUERY` names it, its rows have the result's key with them where a key is asked for. After each delivery follows the operator's
frontier, whether there were rows or not. Invariants:

- *Front.* No operator runs ahead of the frontier F of all streams: every gate that streams are pushed to has a source without
  tuples that stands for the other gates, and is raised to F when all of them have what lies below it, users before
  their inputs. So F is the reference's frontier (what is behind is judged against it), and every operator can come
  to F without another push.
- *Order.* An operator is handed its inputs' results only up to the least of their frontiers, a slice of all of them at a
  time. So none of them waits at the gate for results that nobody has handed over yet: it can't be crowded by that.
- *No circle.* Who carries results on waits for nobody but the workers of the operator they go to: those wait for the
  thread that carries theirs on, and so forth to whoever reads `results()`. What has to wait for a slower sibling, as
  in a diamond, waits in a list here and not at a gate. So a push waits for workers only, and never for another push;
  for this reason pushes can take turns, which keeps the gates that read the same stream alike.
- The first error of any operator or carrier stops all of them, and is raised by every later call.

An example of the order. q = join(aggregate(a), b). The aggregate reads a, the join reads the aggregate's rows and b. A
push of b up to ts 100 goes to the join's gate alone. Its gate also has a source that stands for a; until a has come to
100 that source holds the frontier there, so the join does not run ahead of F. When a is at 100, F is 100: the join's
gate is let go first, then the aggregate's, whose rows then find it open.

Held by tests/threads/test_dags.py: rows by definition and the reference's nested keys, however the query is run.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.metrics import OperatorStats, SourceStats, amount, shared_out, total, waiting_by_stream
from plait.core.row_by_row import Through, changed, through
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound, label
from plait.query.dedup import Dedup
from plait.query.identical import KEY
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import BoundStep, Union
from plait.query.stream import SourceName, Stream, stream
from plait.threads.elastic.manager import Change
from plait.threads.engine import Engine, dropped_rows, newest_of
from plait.threads.engines import engine_of
from plait.threads.input.arenas import CHUNK
from plait.threads.input.idle import let_go
from plait.threads.input.intake import QUERY
from plait.threads.life.pause import Stopped
from plait.threads.life.together import Front, Together
from plait.threads.plan import Sharing, Step, of_union
from plait.threads.stats import Stats
from plait.threads.union import on_the_way

WAIT_NS = 20_000_000
PENDING = 1 << 18  # results of one ts that an operator may have to take in before any of them is ready


#: Where an operator's results go: who takes them, under which name, and what becomes of each row on the way.
Edge = tuple["Inlet", str, tuple[BoundStep, ...]]

Carried = tuple[pa.RecordBatch, np.ndarray, np.ndarray]  # results, their ts, and when their last tuples were pushed


class Waiting:
    """Results of one inner operator that wait to be handed over, in order, and how far it is. Guarded by its `Inlet`.

    `frontier`: all results below have been appended. `_parts`: batches with their ts as int64, in order, and when the last
    tuple of each was pushed; what was handed over is cut off.
    """

    def __init__(self) -> None:
        self.frontier = BEFORE_ALL
        self._parts: deque[Carried] = deque()

    def append(self, part: Carried) -> None:
        self._parts.append(part)

    def cut(self, most: int, limit: int) -> int:
        """A ts up to which there are some rows, but not many more than `most`; `limit` if all below it are no more.

        `most` is a chunk (`input.arenas`). Rows of one ts stay together, so there may be more.
        """
        seen = 0
        for _, times, _ in self._parts:
            if seen + len(times) > most:
                found = int(times[most - seen])
                # Rows of one ts can't be told apart by it: all of them, or none.
                first = int(self._parts[0][1][0])
                return min(limit, found if found > first else found + 1)
            seen += len(times)
            if times[-1] >= limit:
                break
        return limit

    def take(self, cut: int) -> Iterator[Carried]:
        """The rows below a ts."""
        while self._parts and self._parts[0][1][0] < cut:
            batch, times, pushed = self._parts.popleft()
            end = int(np.searchsorted(times, cut))
            if end < len(times):
                self._parts.appendleft((batch.slice(end), times[end:], pushed[end:]))
            yield batch.slice(0, end), times[:end], pushed[:end]


class Inlet:
    """Where inner operators' results come in at an operator. Whoever brings some hands over what is due.

    `_reached`: what lies below has been handed over. Threads of several inner operators may bring at once; the lock is
    held while rows go into the operator's gate, so that slices do not mix.
    """

    def __init__(self, engine: Engine, names: list[str]) -> None:
        self.engine = engine
        self._waiting = {name: Waiting() for name in names}
        self._lock = threading.Lock()
        self._reached = BEFORE_ALL

    def bring(self, name: str, part: Carried | None, frontier: int) -> None:
        """A batch of results, if there is one; all below `frontier` have been brought.

        By the thread that carries `name`'s results on. The slower sibling decides how far things go: what is beyond
        waits in `Waiting`.
        """
        with self._lock:
            if part is not None and len(part[1]):
                self._waiting[name].append(part)
            self._waiting[name].frontier = frontier
            limit = min(w.frontier for w in self._waiting.values())
            while self._reached < limit:
                self._hand_over(min(w.cut(CHUNK, limit) for w in self._waiting.values()))

    def _hand_over(self, cut: int) -> None:
        for name, waiting in self._waiting.items():
            for batch, times, pushed_ns in waiting.take(cut):
                self.engine.bring(name, batch, times, pushed_ns, int(times[-1]))
            if cut == AFTER_ALL:
                self.engine.close(name, None)
            else:
                self.engine.bring(name, _NO_ROWS, _NO_TIMES, _NO_TIMES, cut)
        self._reached = cut


_NO_ROWS = pa.RecordBatch.from_arrays([], names=[])
_NO_TIMES = np.empty(0, np.int64)


class Dag:
    """All operators of a query; to a `Run` what one `Engine` is to it. `_turn` is held by whoever pushes.

    `engines` by the names that inner results have as streams ("@0", "@1" ...), inputs before users; `last` is the one
    whose results the user reads. `_readers`: by stream, the operators that read it. `_inlets`: by inner operator,
    where its results go. `_carriers`: a thread for each inner operator.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], steps: list[Step]) -> None:
        self._schemas = dict(schemas)
        self._steps = {id(step.query): step for step in steps}
        self._streams = _leaves(bound)
        self._new = (f"@{number}" for number in count() if f"@{number}" not in schemas)
        self._names = {id(step.query): name for step, name in zip(steps, self._new, strict=False)}
        self._plain = steps[0].options  # of what nobody wrote: a stream's rows that are changed on their way (`union`)
        self._keyed = any(step.options.keys for step in steps)
        self._through: dict[str, str] = {}
        self.together = Together(Front() if len(self._readers_of(bound, set())) > 1 else None, onward=True)
        self.engines: dict[str, Engine] = {}  # inputs before users
        self._inlets: dict[str, list[Edge]] = {}
        self._turn = threading.Lock()
        self._steps_out = bound.steps
        self.last = self._build(bound.bare)
        self._out = _after(bound, self.last.schema)
        self._readers = {
            name: [e for e in self.engines.values() if name in e.intakes] for name in dict.fromkeys(self._streams)
        }
        self._carriers = [
            threading.Thread(target=self._carry, args=(name,), name=f"plait-carries-{name}", daemon=True)
            for name in self._inlets
        ]

    def begin(self) -> None:
        """Start all threads.

        If a thread can't be started, those that run are told to end: the run never existed.
        """
        try:
            for engine in self.engines.values():
                engine.begin()
            for thread in self._carriers:
                thread.start()
        except BaseException:
            self.abandon()
            raise

    def _build(self, bound: Bound) -> Engine:
        """The engine of an operator, after those of its inputs.

        Recursive, from the user's query down; an operator that two others read is built once. `pending` is raised
        where results come in: all of one ts must fit in front of the gate.
        """
        name = self._names[id(bound.node)]
        if name in self.engines:
            return self.engines[name]
        step = self._steps[id(bound.node)]
        # By the name that results have here: the operator's name, and what becomes of each row.
        inner: dict[str, tuple[str, Bound]] = {}
        inputs: list[Bound] = []
        for child, direct in zip(bound.inputs, on_the_way(bound, keyed=step.options.keys), strict=True):
            if not (isinstance(child.node, Stream) and (direct or not child.steps)):
                of = self._passed_through(child) if isinstance(child.node, Stream) else self._name_of(child)
                as_ = next((n for n, (m, other) in inner.items() if m == of and other.steps == child.steps), None)
                if as_ is None:
                    as_ = of if of not in inner and not child.steps else next(self._new)
                inner[as_] = (of, child)
                child = self._as_stream(child, of, as_, label(child, len(inputs)))
            inputs.append(child)
        if inner:
            options = dataclasses.replace(step.options, pending=max(step.options.pending or 0, PENDING))
            step = dataclasses.replace(step, options=options)
        made = engine_of(_over(bound, tuple(inputs)), self._schemas, step, self.together)
        self.engines[name] = made
        inlet = Inlet(made, list(inner))
        for as_, (each, child) in inner.items():
            self._inlets.setdefault(each, []).append((inlet, as_, child.steps))
        return made

    def _name_of(self, bound: Bound) -> str:
        """An inner operator's, which is built by then."""
        self._build(bound.bare)
        return self._names[id(bound.node)]

    def _passed_through(self, bound: Bound) -> str:
        """The name of the operator that only puts a stream's rows in order, for all who read them changed."""
        assert isinstance(bound.node, Stream)
        stream = bound.node.name
        if stream not in self._through:
            found = through(bound)
            assert isinstance(found.node, Union)
            plain = dataclasses.replace(of_union(self._plain), order="strict", keys=self._keyed)
            step = Step(found.node, plain, Sharing(1, 1, "rows that are changed on their way", "union"))
            self._through[stream] = name = next(self._new)
            self.engines[name] = engine_of(found, self._schemas, step, self.together)
        return self._through[stream]

    def _readers_of(self, bound: Bound, seen: set[int | str]) -> set[int | str]:
        """Who reads streams: operators, and what puts a stream's rows in order for them.

        Where all streams go to one of them, its own frontier is that of all.
        """
        step = self._steps[id(bound.node)]
        for child, direct in zip(bound.inputs, on_the_way(bound, keyed=step.options.keys), strict=True):
            if not isinstance(child.node, Stream):
                self._readers_of(child, seen)
            else:
                seen.add(id(bound.node) if direct or not child.steps else child.node.name)
        return seen

    def _as_stream(self, bound: Bound, made: str, as_: str, called: str) -> Bound:
        """An operator's output as a stream with one source; its key comes along as a column where it is asked for."""
        own = self.engines[made].schema
        self._schemas[as_] = pa.schema([*bound.schema, own.field(KEY)] if KEY in own.names else list(bound.schema))
        plain = stream(as_, unit="us" if bound.time_kind != "zoned" else None, sources=1)
        node = dataclasses.replace(plain, source=QUERY)
        return Bound(node, (), bound.schema, bound.time_kind, called=called)

    # --- results go on ---

    def _carry(self, name: str) -> None:
        """Hand an inner operator's results to those that read them, until its end.

        Ends when the operator's frontier is AFTER_ALL and that has been told, or when the run is over. An error of
        `take` or `bring` fails the whole run.
        """
        engine = self.engines[name]
        told = BEFORE_ALL
        try:
            while told < AFTER_ALL and not self.together.over:
                batch = engine.take(WAIT_NS, pushed=True)
                if isinstance(batch, bool):
                    engine.check()
                    batch = None
                frontier = engine.gatherer.frontier
                if batch is not None or frontier > told:
                    pushed = engine.gatherer.pushed_ns
                    for inlet, as_, steps in self._inlets[name]:
                        part = None if batch is None else carried(batch, pushed, steps, engine.bound.node)
                        inlet.bring(as_, part, frontier)
                    told = frontier
        except Stopped:
            pass
        except BaseException as error:
            self.fail(error)

    # --- errors and ends ---

    def fail(self, error: BaseException) -> None:
        """The first error stops all operators."""
        self.together.fail(error)

    @property
    def nbytes(self) -> int:
        return sum(engine.nbytes for engine in self.engines.values())

    def check(self) -> None:
        self.together.check()

    def abandon(self) -> None:
        self.together.abandon()

    def stop(self) -> None:
        self.abandon()
        for engine in self.engines.values():
            engine.stop()
        for thread in self._carriers:
            if thread.ident is not None:
                thread.join()

    # --- calls of Run ---

    def push(self, name: str, source: SourceName | None, batches: list[pa.RecordBatch]) -> None:
        """Rows to every operator that reads the stream, a slice at a time, then the new frontier.

        `_turn` makes pushes, promises and ends follow one another, so that all gates get the same rows in the same
        order.
        """
        with self._turn:
            for batch in batches:
                # In slices: what is pushed is not ready before all gates have it, and a gate has room for so much.
                most = min([CHUNK, *(e.gate.pending // 2 for e in self._readers[name])])
                most = max(1, int(most if self.together.front is not None else batch.num_rows))
                for first in range(0, max(batch.num_rows, 1), most):  # an empty one makes its source known
                    part = [batch.slice(first, most)]
                    for engine in self._readers[name]:
                        engine.push(name, source, part)
                    self._announce()

    def heartbeat(self, name: str, source: SourceName, ts: int) -> None:
        with self._turn:
            for engine in self._readers[name]:
                engine.heartbeat(name, source, ts)
            self._announce()

    def close(self, name: str, source: SourceName | None) -> None:
        with self._turn:
            for engine in self._readers[name]:
                engine.close(name, source)
            self._announce()

    def ended(self, name: str, source: SourceName | None) -> str | None:
        return self._readers[name][0].ended(name, source)

    def let_go(self, now_ns: int) -> None:
        """The clock ticks: see `idle`."""
        # A push under way is no silence; it may wait for long, and the clock must not.
        if self._turn.acquire(blocking=False):
            try:
                let_go([engine.pusher for engine in self.engines.values()], now_ns)
                self._announce()
            finally:
                self._turn.release()

    def _announce(self) -> None:
        """All gates have what lies below the frontier of all streams: let it pass everywhere."""
        now = time.monotonic_ns()
        reached = self._holder()[0]
        self.last.latency.advanced(reached, now)
        if reached < AFTER_ALL:
            self.together.reached = max(self.together.reached, reached)
        if self.together.front is not None and reached > self.together.front.released:
            self.together.front.released = reached
            # Users before inputs: results must not come to a gate that holds them back.
            for engine in reversed(self.engines.values()):
                engine.pusher.allow(reached)

    def _holder(self) -> tuple[int, str | None, SourceName | None]:
        """How far all streams are, and who holds them there: the least of all operators."""
        return min((e.pusher.holder() for e in self.engines.values()), key=lambda found: found[0])

    def take(self, wait_ns: int) -> pa.RecordBatch | bool | None:
        found = self.last.take(wait_ns)
        if isinstance(found, bool) or found is None or not self._steps_out:
            return found
        rows, *_ = carried(found, _NO_TIMES, self._steps_out, self.last.bound.node)
        return rows if rows.num_rows else None

    def resize(self, workers: int, reason: str) -> Change:
        """Every operator that is elastic gets that many threads, or as many as it has shares; the last one's is returned."""
        elastic = [(engine, engine.epochs) for engine in self.engines.values() if engine.epochs is not None]
        if not elastic:
            return self.last.resize(workers, reason)
        max((epochs for _, epochs in elastic), key=lambda epochs: epochs.threads).check_size(workers)
        return [engine.resize(min(workers, epochs.threads), reason) for engine, epochs in elastic][-1]

    def rebalance(self, owners: Sequence[int] | None, reason: str) -> Change:
        if owners is not None:
            raise RunError(
                "rebalance(owners) of a query of several operators",
                why="a map of shares to threads is one operator's",
                do="Leave owners out: each operator is balanced by what its shares have cost",
            )
        elastic = [engine for engine in self.engines.values() if engine.epochs is not None]
        return [engine.rebalance(None, reason) for engine in elastic or [self.last]][-1]

    def owners(self) -> list[int]:
        raise RunError(
            "owners of a query of several operators",
            why="a map of shares to threads is one operator's",
            do="stats().changes says what has changed",
        )

    def hold_policy(self, held: bool) -> None:
        for engine in self.engines.values():
            engine.hold_policy(held)

    # --- what is going on ---

    def reset_latency(self) -> None:
        for engine in self.engines.values():
            engine.reset_latency()

    @property
    def schema(self) -> pa.Schema:
        return self._out

    def late(self, name: str) -> pa.Table:
        return self._readers[name][0].late(name)

    def behind(self, name: str) -> pa.Table:
        return self._readers[name][0].behind(name)

    def frontier(self) -> int:
        return self._holder()[0]

    def holder(self) -> tuple[str | None, SourceName | None]:
        return self._holder()[1:]

    def plans(self) -> list[tuple[str, Any]]:
        return [plan for engine in self.engines.values() for plan in engine.plans()]

    def describe(self) -> list[str]:
        return [f"{engine.label}: {line}" for engine in self.engines.values() for line in engine.describe()]

    def phase(self) -> str:
        return self.last.phase()

    def _operators(self, found: list[Stats]) -> tuple[OperatorStats, ...]:
        """What each operator tells, the last one first, which has number 0."""
        names = list(self.engines)
        numbers = {name: len(names) - 1 - at for at, name in enumerate(names)}
        read = {as_: of for of, edges in self._inlets.items() for _, as_, _ in edges}
        made = []
        for name, part in zip(names, found, strict=True):
            (own,) = part.operators
            inputs = tuple(f"#{numbers[read[each]]}" if each in read else each for each in own.inputs)
            made.append(dataclasses.replace(own, operator=numbers[name], inputs=inputs))
        return tuple(made[::-1])

    def _sources(self, newest: int | None) -> tuple[list[SourceStats], int]:
        """Of each stream as the first operator that reads it has its sources; what is ready and unread, in all gates."""
        frontier, holder = self.frontier(), self.holder()
        found: list[SourceStats] = []
        unread, shown = 0, set[str]()
        for engine in self.engines.values():
            told, more = engine.sources(frontier, newest, holder)
            unread += more
            found += [source for source in told if source.stream not in shown]
            shown |= {source.stream for source in told}
        return found, unread

    def stats(self, *, latest: bool = False) -> Stats:
        """All operators together; results and their latency are the last one's."""
        found = [(engine.label, engine.stats(latest=latest)) for engine in self.engines.values()]
        last = found[-1][1]
        operators = self._operators([part for _, part in found])
        numbers = [each.operator for each in reversed(operators)]
        workers = [
            dataclasses.replace(worker, operator=number)
            for number, (_, part) in zip(numbers, found, strict=True)
            for worker in part.workers
        ]
        first = {name: readers[0].intakes[name] for name, readers in self._readers.items()}
        late, behind = dropped_rows(first)
        memory = {name: sum(part.memory[name] for _, part in found) for name in last.memory}
        newest = newest_of(first.values())
        sources, unread = self._sources(newest)
        busy = [sum(w.busy_s for w in part.workers) for _, part in found]
        spent = max(sum(busy), 1e-9)
        return dataclasses.replace(
            last,
            strategy=", ".join(part.strategy for _, part in found),
            **vars(total(part for _, part in found))
            | {
                "rows": sum(intake.taken for intake in first.values()) + amount(late) + amount(behind),
                "results": last.results,
                "late": late,
                "behind": behind,
            },
            frontier=self.frontier(),
            newest=newest,
            pending=sum(source.waiting or 0 for source in sources),
            waiting=waiting_by_stream(sources),
            unread=unread,
            sources=tuple(sources),
            operators=operators,
            marks=tuple(sorted({mark for _, part in found for mark in part.marks}, key=lambda mark: mark.at)),
            holder=self.holder(),
            state_bytes=sum(memory.values()),
            workers=shared_out([dataclasses.replace(w, worker=number) for number, w in enumerate(workers)]),
            balance_cv_percent=max(part.balance_cv_percent for _, part in found),
            stages={
                name: sum(share * part.stages[name] for share, (_, part) in zip(busy, found, strict=True)) / spent
                for name in last.stages
            },
            changes=tuple(change for _, part in found for change in part.changes),
            threads_busy_s=tuple(busy_s for _, part in found for busy_s in part.threads_busy_s),
            threads_cpu_s=tuple(cpu_s for _, part in found for cpu_s in part.threads_cpu_s),
            update_cpu_s=sum(part.update_cpu_s for _, part in found),
            index={f"{label}: {name}": kind for label, part in found for name, kind in part.index.items()},
            memory=memory,
        )


def _after(bound: Bound, own: pa.Schema) -> pa.Schema:
    """The columns that results have once they are changed: those of the operator are its `own`, maybe with a key."""
    return pa.schema([*bound.schema, own.field(KEY)]) if bound.steps and KEY in own.names else (
        bound.schema if bound.steps else own
    )  # fmt: skip


def carried(batch: pa.RecordBatch, pushed_ns: np.ndarray, steps: Sequence[BoundStep], node: Any) -> Carried:
    """Results on their way: their rows as who reads them has them, their ts, and when their last tuples were pushed."""
    ts = keys.ts_numbers(batch.column(0))
    if isinstance(node, Through):
        batch = batch.select(range(1, batch.num_columns))
    if not steps:
        return batch, ts, pushed_ns
    names, key = batch.schema.names, None
    if KEY in names:
        key = batch.column(names.index(KEY))
        batch = batch.select([k for k, name in enumerate(names) if name != KEY])
    rows, kept = changed(steps, pa.Table.from_batches([batch]), ts)
    if kept is not None:
        ts, pushed_ns = ts[kept], pushed_ns[kept] if len(pushed_ns) else pushed_ns
        key = key if key is None else key.take(pa.array(kept))
    if key is not None:
        rows = rows.append_column(pa.field(KEY, pa.binary()), key)
    found = rows.combine_chunks().to_batches()
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=rows.schema), ts, pushed_ns


def _leaves(bound: Bound) -> list[str]:
    """The names of the streams at the leaves."""
    if isinstance(bound.node, Stream):
        return [bound.node.name]
    return [leaf for child in bound.inputs for leaf in _leaves(child)]


def _over(bound: Bound, inputs: tuple[Bound, ...]) -> Bound:
    """The same operator over streams: its columns and its condition stay what they are."""
    first, *rest = (each.node for each in inputs)
    node = bound.node
    if isinstance(node, (Aggregate, Dedup)):
        node = dataclasses.replace(node, input=first)
    elif isinstance(node, (Join, Asof)):
        node = dataclasses.replace(node, left=first, right=rest[0])
    elif isinstance(node, (Operator, Union)):
        node = dataclasses.replace(node, nodes=(first, *rest))
    return dataclasses.replace(bound, node=node, inputs=inputs)
