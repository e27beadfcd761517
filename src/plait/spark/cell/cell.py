"""A cell: folds progress, releases what is ready, has its operator work on it, and keeps the rest.

The way of a batch (a batch run: `whole`), from above: Spark calls `rows_of_cell` with a cell's packed rows; `step`
has them taken apart and judged (`arrive`), stores what must be stored (`state`), and hands the tables to the live contents;
`Live.advance` releases the tuples below the frontier, and the operator's own `_process` (`join`, `asof`, `aggregate`,
`operator`) makes results of them (`results`), which `step` puts out.

**The invariant of live contents**: whatever later results depend on can be computed from the chunks, the states and the
frontier that the manifest has. Contents may be thrown away at any time. What a class forgets in `replay` shows as a difference
after a restart; tests/spark/test_cells.py has attempts that come to nothing, and caches that are behind.

Where it runs: in a Python worker of an executor, in a task of Spark's stateful operator, once for each cell that a batch has
rows for. Punctuation goes to every cell, so that is every cell of an operator as soon as one of its streams brings a row.

What goes in: packed bodies (`formats`), in any order, and the state. What comes out: (kind, body) rows for the user, or
(cell, body) rows for the next operator. On a retry Spark gives the same rows and the state as of the batch before, so the same
rows come out. All cells of a committed batch have the same frontier, because each computes it from the same punctuation;
`relayout` relies on that. Held by tests/spark/test_cells.py (one process, no Spark), tests/spark/test_faults.py and
tests/spark/test_checkpoints.py.
"""

from __future__ import annotations

import gc
import pickle
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait import order
from plait.core import keys
from plait.core import rows as core_rows
from plait.core.metrics import Counts, total
from plait.encodings import as_array
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell import state
from plait.spark.cell.arrive import Arrived, Known, StreamProgress, Upstream, arrive, held, in_order
from plait.spark.cell.handed import Handing
from plait.spark.cell.limits import check_pending, check_stored
from plait.spark.cell.onward import Onward
from plait.spark.cell.results import Keyed, Results
from plait.spark.cell.telling import reported, told
from plait.spark.formats import Chunk, Manifest, Step, rows_schema, times
from plait.spark.keep.recent import NONE, Recent, recent
from plait.spark.plan.layout import Layout
from plait.spark.plan.resume import check_state

#: Dead rows that are not worth a rewrite.
SLACK = 256

_frozen = False


@dataclass(frozen=True)
class CellPlan:
    """Everything a cell must know, pickled into the tasks.

    The driver makes one for each operator (`plan.stages`). It is the same in every cell of the operator: which cell it
    is, a task learns from the key of its rows. `fingerprint` and `shape` are compared with those in the state before
    anything is computed.
    """

    bound: Bound
    streams: tuple[tuple[Stream, tuple[Any, ...], bool], ...]  # stream, sources known at the start, open-ended
    layout: Layout
    fingerprint: str
    query: str = ""  # in words
    index: str = "auto"
    max_pending: int | None = None
    max_window: int | None = None
    number: int = 0  # of this operator in its query
    upstreams: tuple[int, ...] = ()  # operators whose results come in
    onward: Onward | None = None  # where results go, unless they are the query's
    elsewhere: frozenset[str] = frozenset()  # streams whose dropped rows another operator shows
    shape: str = ""  # the fingerprint but for users' functions
    functions: str = ""  # those of users' operators, which the fingerprint leaves out
    loose: tuple[str, ...] = ()  # what users' functions depend on and nobody can compare
    keyed: bool = True  # somebody asks for the keys of its results
    changed: bool = False  # the user's word that functions may be others than those of the checkpoint
    handing: Handing | None = None  # where results are laid for the driver, if they are many and it is near

    @property
    def counts(self) -> frozenset[str]:
        """The streams whose rows and dropped rows this operator counts and shows. A stream that two operators read is
        counted by one.
        """
        return frozenset(stream.name for stream, *_ in self.streams) - self.elsewhere


def closes(query: Any) -> bool:
    """Whether an operator has closings: timers may be pending at its end of input (`end_of_input`)."""
    return isinstance(query, Operator) and query.on_timer is not None


# --- what Spark calls ---------------------------------------------------------------------------------------


def processor(plan: CellPlan) -> Any:
    """Spark's stateful operator for an operator of the query: it calls `rows_of_cell` for each cell that a batch has rows for.

    Spark starts a Python process of its own on the driver at each start of a query, only to ask for the state variables, and
    the first batch waits for it. So the class is made inside of this function, and travels by value: to unpickle it nothing
    of plait is imported, which takes three times as long as PySpark does. The plan travels as bytes, with users' functions.
    """
    from pyspark import cloudpickle
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    stored = state.variable()

    class Cell(StatefulProcessor):
        """One object serves all cells of the operator: `handleInputRows` is told the key."""

        def __init__(self, plan: bytes) -> None:
            self.plan = plan

        def init(self, handle: Any) -> None:
            """Declare the state. Called on the driver, which only wants to know the variables, and in every task."""
            self.map = handle.getMapState(*stored)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            """A batch's rows of one cell, as pandas frames. plait is imported here and not above: see `processor`."""
            from plait.spark.cell.cell import rows_of_cell

            return rows_of_cell(self.plan, key[0], self.map, rows)

        def close(self) -> None:
            """Nothing is open."""
            return

    return Cell(bytes(cloudpickle.dumps(plan)))  # type: ignore[no-untyped-call]


def rows_of_cell(data: bytes, key: int, stored: Any, rows: Iterator[Any]) -> Iterator[Any]:
    """What the cell of this key, of the plan that `data` holds, puts out for a batch's rows. `stored`: its state, in Spark.

    All rows of a cell are collected before the first is looked at. They come in any order, and a frontier that is computed
    from half of the punctuation would be wrong. What a batch costs here beside the operator itself: two calls into the state
    store for the manifest, one for each chunk that is written or dropped, one pandas DataFrame out.

    The query's id is asked of the task's context, so that caches of two queries in one worker don't mix. Where there is
    none (a test), nothing is cached. It is a generator: what stands behind the `yield` runs when Spark has taken the
    rows.
    """
    import pandas as pd
    from pyspark import TaskContext

    bodies = [bytes(body) for frame in rows for body in frame["body"]]
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    plan = _plan(data)
    cell = plan.layout.keys.index(key)
    run = None if query is None else f"{query}-{plan.number}"  # each operator of a query has cells of its own
    near = recent(run, cell, plan.layout.cells)
    out = step(plan, cell, state.SparkStore(stored), bodies, cache_key=run, near=near)
    place, body = formats.columns(plan.onward is not None)
    yield pd.DataFrame({place: [p for p, _ in out], body: [b for _, b in out]})
    _freeze()


@lru_cache(maxsize=16)
def _plan(data: bytes) -> CellPlan:
    """The plan from its bytes, unpickled once for each plan and process and not in every batch."""
    plan: CellPlan = pickle.loads(data)
    return plan


def _freeze() -> None:
    """PySpark's daemon collects garbage after every task; what the first batch has built need not be walked again."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def whole_cell(plan: CellPlan) -> Callable[[pa.Table], pa.Table]:
    """For `applyInArrow`, in a batch run of an operator with timers: a cell's whole input in, what its one step puts out.

    Nothing is stored. Other operators take their rows in the order of time (`whole`).
    """

    def whole(table: pa.Table) -> pa.Table:
        cell = plan.layout.keys.index(table.column("cell")[0].as_py())
        out = step(plan, cell, state.NoStore(), table.column("body").to_pylist(), end=True)
        names = formats.columns(plan.onward is not None)
        arrays = [pa.array([place for place, _ in out], pa.int32()), pa.array([body for _, body in out], pa.binary())]
        return pa.Table.from_arrays(arrays, names=names)

    return whole


# --- a batch ------------------------------------------------------------------------------------------------


def step(plan: CellPlan, cell: int, store: state.Store, bodies: Iterable[bytes], *, cache_key: str | None = None,
         near: Recent = NONE, end: bool = False) -> list[tuple[int, bytes]]:  # fmt: skip
    """Process one batch; gives (kind, body) rows. Acts only after the last of its input.

    The order matters in these places:

    - The manifest's fingerprint is checked before any chunk or state is read.
    - Counts of the contents are noted before the batch, since a replay has counted work that was counted in an earlier
      batch.
    - Chunks are written before the contents take what came. If a user's function raises then, Spark drops the writes with
      the attempt.
    - The manifest is written last, and the live contents are cached last. A step that raises leaves neither.

    `end`: the input is complete, as in a batch run. All sources end with this call. The frontier never falls: tuples of a
    source that turns up below it are judged behind, and do not pull it back.

    At the end of input (`ends`, once) states are dropped, and an operator with timers sends what is pending to its
    closings. A batch after that brings nothing but reports; rows are refused in `arrive`.
    """
    clock = _Clock()
    manifest = _manifest(plan, cell, store)
    check_stored(plan, cell, manifest, {})
    contents = state.found(plan, cell, store, manifest, cache_key, near)
    clock.tick("keeping")
    before = contents.counts.copy()  # what was counted again to come here was counted before
    known = known_of(plan, manifest)
    arrived = arrive(known, plan.layout, cell, bodies, counts=plan.counts)
    if end:
        known.end()
    frontier = max(manifest.frontier, held(known.holders())[0])
    span = _span(manifest.frontier, frontier, arrived, known)
    new = Step(uuid.uuid4().hex, frontier)
    tables = {input: contents.prepared(input, table) for input, table in arrived.tables.items() if table.num_rows}
    clock.tick("distribution")
    waiting = {input: contents.waiting(table, frontier) for input, table in tables.items()}
    check_stored(plan, cell, manifest, {input: table.num_rows for input, table in waiting.items()})
    for input, table in waiting.items():
        if table.num_rows:
            state.keep(manifest, store, new, input, table, near)
    clock.tick("keeping")
    contents.last_ts = known.last_ts()
    results = contents.advance(tables, frontier)
    if plan.onward is None and plan.bound.steps:
        results = results.changed(plan.bound.steps)
    clock.tick("execution")
    new.released = list(contents.released)
    manifest.came = contents.came
    check_pending(plan, contents, known, frontier)
    ends = frontier == AFTER_ALL and not manifest.drained
    if frontier < AFTER_ALL:
        state.keep_states(contents, manifest, store)
    elif ends:
        state.drop_states(manifest, store)
    given = results.rows if plan.onward is None else 0
    done = Counts(batches=1, results=given, made=results.rows)
    batch = total((arrived.counts, contents.counts.since(before), done))
    manifest.counts += batch
    _note(manifest, known, new)
    state.close_step(contents, manifest, store, near)
    if cache_key is not None:
        state.remember((cache_key, cell), contents, plan.layout.cells)
    clock.tick("keeping")
    rows_out = [] if plan.onward is not None else _out(plan, results)
    clock.tick("gathering")
    report = reported(
        plan, cell, known, contents, manifest.frontier, counts=manifest.counts, batch=batch, span=span, stages=clock.spent,
        held=manifest.held, held_bytes=sum(chunk.size for chunk in manifest.chunks), by_source=arrived.by_source,
        missed=contents.missed,
    )  # fmt: skip
    for_user = [*told(cell, arrived.late, report), *arrived.passed]
    last = []
    if ends and closes(plan.bound.node):
        from plait.spark.cell.end_of_input import rows_of

        last = rows_of(contents)
    if plan.onward is not None:
        return plan.onward.bodies(results, frontier, for_user) + last
    return [*rows_out, *for_user, *last]


def _out(plan: CellPlan, results: Results | Keyed) -> list[tuple[int, bytes]]:
    """Results on their way to the driver."""
    if plan.handing is not None:
        return plan.handing.rows(results)
    return [(formats.RESULTS, body) for body in results.bodies()]


class _Clock:
    """Where a step's time goes, in nanoseconds by stage. It is told, and decides nothing."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}
        self._at = time.perf_counter_ns()

    def tick(self, stage: str) -> None:
        """What has passed since the last tick belongs to this stage."""
        now = time.perf_counter_ns()
        self.spent[stage] = self.spent.get(stage, 0) + now - self._at
        self._at = now


def _span(before: int, frontier: int, arrived: Arrived, known: Known) -> tuple[int, int]:
    """Where this batch's results lie in time, as far as is known: the same in all cells, since it follows from punctuation.

    By it tasks that publish part results among them (`publish.gather`). Results may lie outside: only the parting is uneven then.
    """
    if before == BEFORE_ALL and arrived.least is not None:
        before = arrived.least
    newest = known.newest()
    return before, frontier if frontier < AFTER_ALL or newest is None else max(before, newest + 1)


def _manifest(plan: CellPlan, cell: int, store: state.Store) -> Manifest:
    """The cell's manifest, refused if another query wrote it; a new one at the first batch."""
    data = store.manifest()
    if data is None:
        manifest = Manifest(plan.fingerprint, operator=plan.number)
    else:
        manifest = Manifest.load(data, f"The manifest, {state.place(plan, cell)},")
    own = (plan.fingerprint, plan.shape, plan.functions)
    check_state((manifest.fingerprint, manifest.shape, manifest.functions), own, changed=plan.changed)
    manifest.fingerprint, manifest.shape, manifest.functions = own
    return manifest


def known_of(plan: CellPlan, manifest: Manifest) -> Known:
    """The sources as the state has them."""
    upstreams = {number: Upstream(manifest.upstreams.get(number, BEFORE_ALL)) for number in plan.upstreams}
    found = {}
    for stream, known, open_ended in plan.streams:
        found[stream.name] = StreamProgress(stream, known, open_ended=open_ended)
        if stream.name in manifest.progress:
            found[stream.name].restore(manifest.progress[stream.name])
    return Known(found, upstreams, manifest.frontier, manifest.drained, manifest.events)


def _note(manifest: Manifest, known: Known, new: Step) -> None:
    """What this batch has made of the sources, and its step."""
    manifest.steps.append(new)
    manifest.frontier = new.frontier
    manifest.drained = manifest.drained or new.frontier == AFTER_ALL
    manifest.events = known.events
    manifest.progress = {name: p.state() for name, p in known.streams.items()}
    manifest.upstreams = {number: u.frontier for number, u in known.upstreams.items()}


# --- what waits, and what has become ready -------------------------------------------------------------------


class Live(ABC):
    """What all operators share: pending tuples of each input (or partial panes), released by the frontier.

    Attributes:
        schemas: The columns that each input's rows are kept with.
        pending: Of each input the rows at or above the frontier, in total order.
        steps: Ids of the steps that were applied, in order. `state` compares them with the manifest's.
        released: How many rows of each input the last call has released. The manifest notes it for windows that count.
    """

    #: Whether contents that are some steps behind get on by the chunks of these; if not they are built anew.
    catches_up = True

    #: Whether this step did not find them in memory, as of the batch before.
    missed = False

    #: How far time has passed at the end of input.
    last_ts = order.BEFORE_ALL

    def __init__(self, bound: Bound, schemas: Sequence[pa.Schema]) -> None:
        self.bound, self.schemas = bound, tuple(schemas)
        self.pending: list[pa.Table] = [schema.empty_table() for schema in self.schemas]
        self.steps: list[str] = []  # ids of the manifest's steps that these contents are made of
        self.released = [0] * len(self.schemas)

    @property
    @abstractmethod
    def counts(self) -> Counts:
        """What was counted where this operator's work is done."""

    @property
    def came(self) -> list[int]:
        """How many rows of each input were released so far, if later results depend on it: see `Manifest.came`."""
        return []

    def begin(self, came: list[int], kept: dict[int, pa.Table], frontier: int) -> None:
        """Before a replay of the rows that the state has kept: so many came in all. By default that does not matter."""
        return

    @property
    def pending_rows(self) -> int:
        return sum(table.num_rows for table in self.pending)

    @property
    def rows_held(self) -> dict[int, int]:
        """How many rows of each input are in memory, in windows and waiting. By default those that wait."""
        return {input: table.num_rows for input, table in enumerate(self.pending)}

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        """What came, as it is kept."""
        return table

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Of what came, the rows that the state must hold.

        By default all of them. A chunk that proves to be of no use goes again in the same step (`outlived`).
        """
        return table

    def states(self) -> Iterator[tuple[int, bytes]]:
        """States that no chunk tells and that this batch has changed, by number."""
        return iter(())

    def load_state(self, number: int, data: bytes, what: str) -> None:
        """A state that `states` gave in an earlier batch. Only operators have some."""
        raise NotImplementedError

    def advance(self, arrived: dict[int, pa.Table], frontier: int) -> Results | Keyed:
        """Release what lies below the frontier and process it; results in result order.

        `arrived` has an input only if rows came for it. The frontier is the one after the batch; time passes to it even
        if no row came.
        """
        ready = [self._release(input, arrived.get(input), frontier) for input in range(len(self.schemas))]
        return self._process(ready, frontier, results=True)

    def replay(self, arrived: dict[int, pa.Table], frontier: int) -> None:
        """The same without results, for rows that the state holds: they are out already."""
        ready = [self._release(input, arrived.get(input), frontier) for input in range(len(self.schemas))]
        self._process(ready, frontier, results=False)

    def _release(self, input: int, new: pa.Table | None, frontier: int) -> pa.Table:
        """The rows of one input below the frontier, in total order, which go; those at or above it wait.

        New rows are merged with those that wait only if there are both. A batch in which everything is released at once,
        as in a run over old files, sorts nothing here.
        """
        table = self.pending[input]
        if new is not None and new.num_rows:
            new = new.select(self.schemas[input].names).cast(self.schemas[input])
            waiting = table.num_rows
            table = pa.concat_tables([table, new]) if waiting else new
            table = (in_order(table) if waiting else table).combine_chunks()
        cut = int(np.searchsorted(times(table), frontier, "left"))
        self.pending[input] = table.slice(cut)
        self.released[input] = cut
        ready, node = table.slice(0, cut), self.bound.inputs[input].node
        # All tuples of one ts are released at once, and equal ones go to the same cells: they are numbered alike in each.
        return numbered(ready) if isinstance(node, Stream) and node.seq == "content" else ready

    def compacted(self, held: int) -> dict[int, pa.Table] | None:
        """All rows that are still needed, if the `held` ones that the state has are many more."""
        return None

    @abstractmethod
    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Results | Keyed:
        """The operator's own work on what has become ready, a table for each input; results in result order.

        `results=False`: a replay, of which nobody reads results; what later ones depend on must be as after the first time.
        """

    @abstractmethod
    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Whether no row of a chunk has a part in any result that is still to come.

        Asked of every chunk in every batch, so it must be quick: it sees the manifest's entry and not the rows.
        """


def numbered(ready: pa.Table) -> pa.Table:
    """Tuples in order, of which some may have one key: equal rows, ordered by content. Each but the first has its number
    among them in its key, so that a key is one tuple's.

    This is done when they are released, not when they come. Equal rows may come in different batches, and what they are
    numbered by must not depend on that; those of one ts are all released together.
    """
    if formats.KEY not in ready.column_names or ready.num_rows < 2:
        return ready
    own = as_array(ready.column(formats.KEY), pa.binary())
    same = np.zeros(len(own), bool)
    same[1:] = pc.equal(own.slice(1), own.slice(0, len(own) - 1)).to_numpy(zero_copy_only=False)
    if not same.any():
        return ready
    at = np.arange(len(own))
    made = keys.told_apart(own, at - np.maximum.accumulate(np.where(same, 0, at)))
    return ready.set_column(ready.column_names.index(formats.KEY), pa.field(formats.KEY, pa.binary()), made)


def crowded(held: int, alive: int) -> bool:
    """Whether so many of the rows held are dead that writing the others anew is worth it."""
    return core_rows.crowded(held, alive, few=SLACK)


class LivePairs(Live):
    """What joins and as-of share."""

    def __init__(self, bound: Bound, *, hashes: bool = False) -> None:
        super().__init__(bound, [rows_schema(i.schema, hashes=hashes) for i in bound.inputs])
        # What results show of a row, and their time; keys go by reference.
        self.shown = tuple([*i.schema.names, formats.TS] for i in bound.inputs)
        self.nothing = Results.none(bound.schema)

    def columns(self, ts: Any, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        """Result columns from the rows of both sides, of which one may be missing, and the right one not wanted."""
        width = len(self.bound.inputs[0].schema)
        columns = [ts]
        for side, (rows, wanted) in enumerate(((left, width), (right, len(self.bound.schema) - 1 - width))):
            if rows is None:
                columns += [pa.nulls(len(ts), f.type) for f in self.bound.inputs[side].schema][:wanted]
            else:
                columns += [rows.column(i) for i in range(wanted)]
        arrays = [as_array(c, f.type) for c, f in zip(columns, self.bound.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.bound.schema)
