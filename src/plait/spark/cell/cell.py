"""A cell: folds progress, releases what is ready, joins it against its window, keeps the rest.

State is a manifest (small, rewritten each batch) and chunks (what came, written once, removed once). A chunk of arrived
tuples serves as pending and as window store alike: which of its tuples are pending is told by the frontier. So what is
written in a batch is in proportion to what came and what left, whatever the window holds.

The index over the window lives outside the state, in the worker process, and is only a cache. It is used if the steps
it has applied are, in order and without gaps, the beginning of the manifest's live steps or all of them; then it
catches up with the steps it lacks. If it has applied anything the manifest does not know (a failed attempt, a
speculative loser), or misses the step before its first, it is thrown away and built from the chunks. Each step bears
the id of its own attempt.

Where it runs: `step` is called in a task of Spark's stateful operator, once for each cell that a batch has rows for.
Punctuation goes to every cell, so that is every cell of an operator as soon as one of its streams brings a row. In a
batch run it is called once for each cell, with `end=True` and a store that is thrown away.

What goes in: packed bodies (`formats`), in any order, and the state. What comes out: (kind, body) rows for the user, or
(cell, body) rows for the next operator. What is stored, in one map of Spark's state store for each cell: the manifest
under -1, chunks under 0, 1, 2 and so on, states of an operator's buckets below -1.

On a retry Spark gives the same rows and the state as of the batch before, so the same rows come out. All cells of a
committed batch have the same frontier, because each computes it from the same punctuation; `relayout` relies on that.
Held by tests/spark/test_cells.py (one process, no Spark), tests/spark/test_faults.py and tests/spark/test_checkpoints.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from plait.core.metrics import Counts, total
from plait.core.sources import told, too_many_wait
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.bind import Bound
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell import end_of_input
from plait.spark.cell.arrive import Known, arrive
from plait.spark.cell.live import Live, live
from plait.spark.cell.onward import Onward
from plait.spark.cell.progress import StreamProgress, Upstream, held
from plait.spark.cell.rows import in_order
from plait.spark.formats import Chunk, Manifest, Step
from plait.spark.keep.recent import NONE, Recent
from plait.spark.plan.layout import Layout
from plait.spark.plan.resume import check_state


class Store(Protocol):
    """Where a cell's state is kept: Spark's state store, or a dict in batch runs and tests.

    Writes of a batch become visible to the next batch together, or not at all: that is Spark's promise, and `step` needs
    no other. It reads the manifest once and writes it once. Chunks and states are read only where the live contents are
    not up to date.
    """

    def manifest(self) -> bytes | None: ...

    def put_manifest(self, data: bytes) -> None: ...

    def chunk(self, number: int) -> bytes: ...

    def put_chunk(self, number: int, data: bytes) -> None: ...

    def drop_chunk(self, number: int) -> None: ...


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
    number: int = 0  # of this operator in its query
    upstreams: tuple[int, ...] = ()  # operators whose results come in
    onward: Onward | None = None  # where results go, unless they are the query's
    elsewhere: frozenset[str] = frozenset()  # streams whose dropped rows another operator shows
    shape: str = ""  # the fingerprint but for users' functions
    functions: str = ""  # those of users' operators, which the fingerprint leaves out
    loose: tuple[str, ...] = ()  # what users' functions depend on and nobody can compare
    changed: bool = False  # the user's word that functions may be others than those of the checkpoint

    @property
    def counts(self) -> frozenset[str]:
        """The streams whose rows and dropped rows this operator counts and shows. A stream that two operators read is
        counted by one.
        """
        return frozenset(stream.name for stream, *_ in self.streams) - self.elsewhere


#: Live indexes of this process by (query and operator, cell). Only a cache: see above.
_CACHE: dict[tuple[str, int], Live] = {}

#: Of each, the number of this process's step that used it last. Those longest out of use stand first in both.
_USED: dict[tuple[str, int], int] = {}
_steps = 0


def _remember(key: tuple[str, int], contents: Live, cells: int) -> None:
    """Cache an index, and let go of those that no step has wanted for long: of queries that ended, of cells that moved.

    How long is "long" counts in steps of this process: 256, and 16 for each cell of the query, so that in a worker that
    sees many cells by turns each of them stays. No clock is asked.
    """
    global _steps
    _steps += 1
    _CACHE.pop(key, None)
    _USED.pop(key, None)
    _CACHE[key], _USED[key] = contents, _steps
    for other in [k for k, used in _USED.items() if _steps - used > 256 + 16 * cells]:
        _CACHE.pop(other, None)
        del _USED[other]


def step(plan: CellPlan, cell: int, store: Store, bodies: Iterable[bytes], *, cache_key: str | None = None,
         near: Recent = NONE, end: bool = False) -> list[tuple[int, bytes]]:  # fmt: skip
    """Process one batch; gives (kind, body) rows. Acts only after the last of its input.

    The order matters in these places:

    - The manifest's fingerprint is checked before any chunk or state is read.
    - Counts of the contents are noted before the batch, since a replay has counted work that was counted in an earlier
      batch.
    - Chunks are written before the contents take what came. If a user's function raises then, Spark drops the writes with
      the attempt.
    - The manifest is written last, and the live index is cached last. A step that raises leaves neither.

    `end`: the input is complete, as in a batch run. All sources end with this call. The frontier never falls: tuples of a
    source that turns up below it are judged behind, and do not pull it back.

    At the end of input (`ends`, once) states are dropped, and an operator with timers sends what is pending to its
    closings. A batch after that brings nothing but reports; rows are refused in `arrive`.
    """
    data = store.manifest()
    manifest = Manifest(plan.fingerprint, operator=plan.number) if data is None else Manifest.load(data)
    own = (plan.fingerprint, plan.shape, plan.functions)
    check_state((manifest.fingerprint, manifest.shape, manifest.functions), own, changed=plan.changed)
    manifest.fingerprint, manifest.shape, manifest.functions = own
    contents = _contents(plan, cell, store, manifest, cache_key, near)
    before = contents.counts.copy()  # what was counted again to come here was counted before
    known = _known(plan, manifest)
    arrived = arrive(known, plan.layout, cell, bodies, counts=plan.counts)
    if end:
        for stream in known.streams.values():
            stream.ended = True
        for upstream in known.upstreams.values():  # one without any row has had no cell that could say so
            upstream.frontier = AFTER_ALL
    frontier = max(manifest.frontier, held(known.holders())[0])
    new = Step(uuid.uuid4().hex, frontier)
    tables = {input: contents.prepared(input, table) for input, table in arrived.tables.items() if table.num_rows}
    for input, table in tables.items():
        if (waiting := contents.waiting(table, frontier)).num_rows:
            _keep(manifest, store, new, input, waiting, near)
    contents.last_ts = known.last_ts()
    results = contents.advance(tables, frontier)
    done = Counts(batches=1, results=results.rows if plan.onward is None else 0)
    new.released = list(contents.released)
    _check_pending(plan, contents, known, frontier)
    ends = frontier == AFTER_ALL and not manifest.drained
    if frontier < AFTER_ALL:
        _keep_states(contents, manifest, store)
    elif ends:
        _drop_states(manifest, store)
    manifest.steps.append(new)
    manifest.frontier = frontier
    manifest.drained = manifest.drained or frontier == AFTER_ALL
    manifest.events = known.events
    manifest.progress = {name: p.state() for name, p in known.streams.items()}
    manifest.upstreams = {number: u.frontier for number, u in known.upstreams.items()}
    manifest.counts += total((arrived.counts, contents.counts.since(before), done))
    _expire(contents, manifest, store)
    _compact(contents, manifest, store, near)
    contents.steps = [s.id for s in manifest.steps]
    near.keep([] if manifest.drained else contents.steps)
    store.put_manifest(manifest.dump())
    if cache_key is not None:
        _remember((cache_key, cell), contents, plan.layout.cells)
    newest = max((at for p in known.streams.values() if (at := p.largest()) is not None), default=None)
    pending, holder = contents.pending_rows, _holder(known, frontier)
    report = formats.CellReport(plan.number, cell, frontier, pending, newest, holder, manifest.counts)
    dropped = ((formats.LateRows(name, cell), table) for name, table in arrived.late.items() if table.num_rows)
    for_user = [(formats.LATE, formats.body(head, table)) for head, table in dropped]
    for_user += [(formats.PROGRESS, formats.body(report)), *arrived.passed]
    last = end_of_input.rows_of(contents) if ends and end_of_input.closes(plan.bound.node) else []
    if plan.onward is not None:
        return plan.onward.bodies(results, frontier, for_user) + last
    return [*((formats.RESULTS, body) for body in results.bodies()), *for_user, *last]


def _known(plan: CellPlan, manifest: Manifest) -> Known:
    """The sources as the state has them."""
    upstreams = {number: Upstream(manifest.upstreams.get(number, BEFORE_ALL)) for number in plan.upstreams}
    found = {}
    for stream, known, open_ended in plan.streams:
        found[stream.name] = StreamProgress(stream, known, open_ended=open_ended)
        if stream.name in manifest.progress:
            found[stream.name].restore(manifest.progress[stream.name])
    return Known(found, upstreams, manifest.frontier, manifest.drained, manifest.events)


def _keep(manifest: Manifest, store: Store, new: Step, input: int, table: pa.Table, near: Recent) -> None:
    """Store rows as a chunk of this step, and lay them into shared memory for sibling workers."""
    number = manifest.next_chunk
    manifest.next_chunk += 1
    new.chunks.append(Chunk(number, input, table.num_rows, int(pc.max(table.column(formats.TS)).as_py())))
    data = formats.chunk_body(table)
    store.put_chunk(number, data)
    near.put(new.id, number, data)


def _keep_states(contents: Live, manifest: Manifest, store: Store) -> None:
    """Store the buckets that this batch has changed. Their numbers stay in the manifest, so that a restart finds all of
    them.
    """
    changed = []
    for number, data in contents.states():
        store.put_chunk(formats.state_number(number), data)
        changed.append(number)
    manifest.states = sorted({*manifest.states, *changed})


def _drop_states(manifest: Manifest, store: Store) -> None:
    """At the end of input no bucket is needed any more."""
    for number in manifest.states:
        store.drop_chunk(formats.state_number(number))
    manifest.states = []


def _expire(contents: Live, manifest: Manifest, store: Store) -> None:
    """Drop chunks none of whose tuples can find a partner any more, and the oldest steps once they have no chunk.

    A step without chunks stays in the manifest as long as an older one has some: a cache compares the whole run of ids,
    and windows that count add up what each step has released. The last step always stays, since its id tells a cache
    whether it is up to date.
    """
    for one in manifest.steps:
        gone = [chunk for chunk in one.chunks if contents.outlived(chunk, manifest.frontier, manifest.steps)]
        for chunk in gone:
            store.drop_chunk(chunk.number)
        one.chunks = [chunk for chunk in one.chunks if chunk not in gone]
    while len(manifest.steps) > 1 and not manifest.steps[0].chunks:
        manifest.steps.pop(0)


def _compact(contents: Live, manifest: Manifest, store: Store, near: Recent) -> None:
    """Where most rows held are dead, write those alive as one step. It takes as many dead ones, so it costs no more.

    Earlier steps are gone from the manifest: a cache that is behind them finds no step of its own, and is built anew.
    """
    held = sum(chunk.rows for one in manifest.steps for chunk in one.chunks)
    alive = contents.compacted(held)
    if alive is None:
        return
    last = manifest.steps[-1]
    for one in manifest.steps:
        for chunk in one.chunks:
            store.drop_chunk(chunk.number)
    manifest.steps = [Step(last.id, last.frontier, released=last.released)]
    for input, table in alive.items():
        if table.num_rows:
            _keep(manifest, store, manifest.steps[0], input, table, near)


def _contents(plan: CellPlan, cell: int, store: Store, manifest: Manifest, cache_key: str | None,
              near: Recent) -> Live:  # fmt: skip
    """The cached index if its steps are a run of the manifest's, caught up; else one built from the chunks.

    This is called before the batch's rows are looked at. The cached object is taken out of the cache: a step that fails
    half way has changed it, and it must not be found again. `_remember` puts it back at the end of a step that has
    succeeded.
    """
    wanted = [s.id for s in manifest.steps]
    cached = _CACHE.pop((cache_key, cell), None) if cache_key is not None else None
    if cached is not None and cached.steps == wanted:
        return cached
    if cached is not None and cached.catches_up and cached.steps and cached.steps[-1] in wanted:
        at = wanted.index(cached.steps[-1])
        known = wanted[: at + 1]
        if cached.steps[-len(known) :] == known:
            for one in manifest.steps[at + 1 :]:
                cached.replay(dict(_chunks(store, [one], near)), one.frontier)
            return cached
    contents = live(plan.bound, plan.layout, cell, index=plan.index)
    tables: dict[int, list[pa.Table]] = {}
    for input, table in _chunks(store, manifest.steps, near):
        tables.setdefault(input, []).append(table)
    contents.replay({i: in_order(pa.concat_tables(some)) for i, some in tables.items()}, manifest.frontier)
    for number in manifest.states:
        contents.load_state(number, store.chunk(formats.state_number(number)))
    return contents


def _chunks(store: Store, steps: list[Step], near: Recent) -> list[tuple[int, pa.Table]]:
    """(input, rows) of these steps' chunks, from shared memory where a worker has just written them, else from the state
    store.
    """
    found = []
    for one in steps:
        for chunk in one.chunks:
            data = near.get(one.id, chunk.number)
            found.append((chunk.input, formats.chunk_table(store.chunk(chunk.number) if data is None else data)))
    return found


def _holder(known: Known, frontier: int) -> tuple[str | None, Any]:
    """The stream and the source that hold the frontier, as far as this operator knows: it may be one before it."""
    _, holder = held(known.holders())
    return (None, None) if frontier == AFTER_ALL or holder is None or holder.who is None else holder.who


def _check_pending(plan: CellPlan, contents: Live, known: Known, frontier: int) -> None:
    """Stop a query in which too much waits (`max_pending=`), and say which source everything waits for.

    Without it a source that has fallen silent would fill the state store with the rows of all others, and nothing would
    say why.
    """
    if plan.max_pending is None or contents.pending_rows <= plan.max_pending:
        return
    _, holder = held(known.holders())
    who = "nobody" if holder is None else "an operator before it"
    if holder is not None and holder.who is not None:
        stream, source = holder.who
        who = told(stream, source, known=bool(known.streams[stream].sources))
    waiting = f"{contents.pending_rows} tuples wait for the frontier in one cell"
    raise too_many_wait(waiting, plan.max_pending, who, frontier)
