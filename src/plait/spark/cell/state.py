"""What a cell keeps between batches: a manifest and chunks in Spark's state store, and its live contents in the worker.

State is a manifest (small, rewritten each batch) and chunks (what came, written once, removed once). A chunk of arrived
tuples serves as pending and as window store alike: which of its tuples are pending is told by the frontier. So what is
written in a batch is in proportion to what came and what left, whatever the window holds.

The live contents (an index over the window, say) are outside the state, in the worker process, and are only a cache. They are
used if the steps they have applied are, in order and without gaps, the beginning of the manifest's live steps or all of them;
then they catch up with the steps they lack. If they have applied anything the manifest does not know (a failed attempt, a
speculative loser), or miss the step before their first, they are thrown away and built from the chunks. Each step bears the id
of its own attempt.

What is stored bears a checksum (`formats`). What is read and has another one is refused, with the cell and the number under which
it lies, and so is what the manifest names and the state has not. A damaged copy in shared memory is passed over.

What is stored, in one map of Spark's state store for each cell: the manifest under -1, chunks under 0, 1, 2 and so on, states
of an operator's buckets below -1.

Where it runs: in a cell's task, called by `cell.step`. On a retry Spark gives the state as of the batch before. Held by
tests/spark/test_cells.py (one process, no Spark), tests/spark/test_faults.py and tests/spark/test_checkpoints.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.dedup import Dedup
from plait.query.join import Asof
from plait.query.operator import Operator
from plait.query.row_by_row import Union
from plait.spark import formats
from plait.spark.cell.arrive import in_order
from plait.spark.formats import Chunk, Manifest, Step
from plait.spark.keep.recent import Recent
from plait.spark.plan.layout import Layout

if TYPE_CHECKING:
    from plait.spark.cell.cell import CellPlan, Live

# --- stores -------------------------------------------------------------------------------------------------


class Store(Protocol):
    """Where a cell's state is kept: Spark's state store, or nowhere in batch runs.

    Writes of a batch become visible to the next batch together, or not at all: that is Spark's promise, and `step` needs
    no other. It reads the manifest once and writes it once. Chunks and states are read only where the live contents are
    not up to date.
    """

    def manifest(self) -> bytes | None: ...

    def put_manifest(self, data: bytes) -> None: ...

    def chunk(self, number: int) -> bytes: ...

    def put_chunk(self, number: int, data: bytes) -> None: ...

    def drop_chunk(self, number: int) -> None: ...


def variable() -> tuple[str, Any, Any]:
    """The state variable of a cell, as `getMapState` takes it: a map from a number to bytes.

    Types are objects of Spark's: given as text, Spark asks its JVM to parse them, on every batch.
    """
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    key = StructType([StructField(formats.STATE_KEY, LongType())])
    return formats.STATE, key, StructType([StructField(formats.STATE_VALUE, BinaryType())])


class SparkStore:
    """Spark's state store for the current key: one map holds the manifest and the chunks.

    Every call is a message over a socket to the JVM, which is why a cell has few and large values and not one for each
    tuple. Spark commits what a task has written when the task has ended well; what a failed attempt wrote is never seen.
    """

    def __init__(self, state: Any) -> None:
        self._map = state

    def manifest(self) -> bytes | None:
        found = self._map.getValue((formats.MANIFEST,))
        return None if found is None else bytes(found[0])

    def put_manifest(self, data: bytes) -> None:
        self._map.updateValue((formats.MANIFEST,), (data,))

    def chunk(self, number: int) -> bytes:
        """The bytes of a chunk, or of a bucket's state. One that is not there means a broken state: nothing can be done
        about it here.
        """
        found = self._map.getValue((number,))
        if found is None:
            raise formats.damaged(
                "The state of a cell in the checkpoint", f"its manifest names number {number}, which is not there"
            )
        return bytes(found[0])

    def put_chunk(self, number: int, data: bytes) -> None:
        self._map.updateValue((number,), (data,))

    def drop_chunk(self, number: int) -> None:
        self._map.removeKey((number,))


class NoStore:
    """For the one step of a batch run (`cell.whole_cell`): nothing is there before it, and nothing is read after it."""

    def manifest(self) -> bytes | None:
        return None

    def put_manifest(self, data: bytes) -> None:
        return

    def chunk(self, number: int) -> bytes:
        raise AssertionError("a batch run has no state to read")

    def put_chunk(self, number: int, data: bytes) -> None:
        return

    def drop_chunk(self, number: int) -> None:
        return


# --- live contents, from the cache or from the chunks -------------------------------------------------------

#: Live contents of this process by (query and operator, cell). Only a cache: see above.
_CACHE: dict[tuple[str, int], Live] = {}

#: Of each, the number of this process's step that used it last. Those longest out of use stand first in both.
_USED: dict[tuple[str, int], int] = {}
_steps = 0


def found(plan: CellPlan, cell: int, store: Store, manifest: Manifest, cache_key: str | None, near: Recent) -> Live:
    """The cached contents if their steps are a run of the manifest's, caught up; else ones built from the chunks.

    This is called before the batch's rows are looked at. The cached object is taken out of the cache: a step that fails
    half way has changed it, and it must not be found again. `remember` puts it back at the end of a step that has
    succeeded.
    """
    wanted = [s.id for s in manifest.steps]
    cached = _CACHE.pop((cache_key, cell), None) if cache_key is not None else None
    if cached is not None and cached.steps == wanted:
        cached.missed = False
        return cached
    if cached is not None and cached.catches_up and cached.steps and cached.steps[-1] in wanted:
        at = wanted.index(cached.steps[-1])
        known = wanted[: at + 1]
        if cached.steps[-len(known) :] == known:
            for one in manifest.steps[at + 1 :]:
                cached.replay(dict(_chunks(plan, cell, store, [one], near)), one.frontier)
            cached.missed = True
            return cached
    contents = empty(plan.bound.bare, plan.layout, cell, index=plan.index)
    tables: dict[int, list[pa.Table]] = {}
    for input, table in _chunks(plan, cell, store, manifest.steps, near):
        tables.setdefault(input, []).append(table)
    kept = {i: in_order(pa.concat_tables(some)) for i, some in tables.items()}
    contents.begin(manifest.came, kept, manifest.frontier)
    contents.replay(kept, manifest.frontier)
    for number in manifest.states:
        what = f"The state of bucket {number}, {place(plan, cell)},"
        contents.load_state(number, store.chunk(formats.state_number(number)), what)
    contents.missed = bool(manifest.steps)
    return contents


def place(plan: CellPlan, cell: int) -> str:
    """Where a cell's state lies, in words."""
    return f"in the checkpoint's state of operator {plan.number}, cell {cell}"


def empty(bound: Bound, layout: Layout, cell: int, *, index: str) -> Live:
    """Empty contents for an operator. Modules are imported when they are wanted: a query needs one kind."""
    if isinstance(bound.node, Aggregate):
        from plait.spark.cell.aggregate import live_aggregate

        return live_aggregate(bound)
    if isinstance(bound.node, Union):
        from plait.spark.cell.union import LiveUnion

        return LiveUnion(bound)
    if isinstance(bound.node, Dedup):
        from plait.spark.cell.dedup import LiveDedup

        return LiveDedup(bound)
    if isinstance(bound.node, Operator):
        from plait.spark.cell.operator import LiveOperator

        return LiveOperator(bound, layout, cell)
    if isinstance(bound.node, Asof):
        from plait.spark.cell.asof import LiveAsof

        return LiveAsof(bound)
    from plait.spark.cell.join import LiveJoin

    return LiveJoin(bound, layout, cell, index=index)


def _chunks(plan: CellPlan, cell: int, store: Store, steps: list[Step], near: Recent) -> list[tuple[int, pa.Table]]:
    """(input, rows) of these steps' chunks, from shared memory where a worker has just written them, else from the state
    store.
    """
    chunks = []
    for one in steps:
        for chunk in one.chunks:
            data = near.get(one.id, chunk.number)
            if data is None or not formats.is_sealed(data):
                data = store.chunk(chunk.number)
            what = f"Chunk {chunk.number}, {place(plan, cell)},"
            chunks.append((chunk.input, formats.chunk_table(data, what)))
    return chunks


def remember(key: tuple[str, int], contents: Live, cells: int) -> None:
    """Cache contents, and let go of those that no step has wanted for long: of queries that ended, of cells that moved.

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


# --- what a step stores -------------------------------------------------------------------------------------


def keep(manifest: Manifest, store: Store, new: Step, input: int, table: pa.Table, near: Recent) -> None:
    """Store rows as a chunk of this step, and lay them into shared memory for sibling workers."""
    number = manifest.next_chunk
    manifest.next_chunk += 1
    data = formats.chunk_body(table)
    last = int(pc.max(table.column(formats.TS)).as_py())
    new.chunks.append(Chunk(number, input, table.num_rows, last, len(data)))
    store.put_chunk(number, data)
    near.put(new.id, number, data)


def keep_states(contents: Live, manifest: Manifest, store: Store) -> None:
    """Store the buckets that this batch has changed. Their numbers stay in the manifest, so that a restart finds all of
    them.
    """
    changed = []
    for number, data in contents.states():
        store.put_chunk(formats.state_number(number), data)
        changed.append(number)
    manifest.states = sorted({*manifest.states, *changed})


def drop_states(manifest: Manifest, store: Store) -> None:
    """At the end of input no bucket is needed any more."""
    for number in manifest.states:
        store.drop_chunk(formats.state_number(number))
    manifest.states = []


def close_step(contents: Live, manifest: Manifest, store: Store, near: Recent) -> None:
    """Let go of what no later result needs, and write the manifest, as the last thing that a step stores."""
    _expire(contents, manifest, store)
    _compact(contents, manifest, store, near)
    contents.steps = [s.id for s in manifest.steps]
    near.keep([] if manifest.drained else contents.steps)
    store.put_manifest(manifest.dump())


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
            keep(manifest, store, manifest.steps[0], input, table, near)
