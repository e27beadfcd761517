"""A user's operator in a cell: some of its buckets, each of which sees its tuples in total order, alone.

A bucket's state is whatever the user's functions have made of it, so it can't be built anew from tuples. It is stored,
pickled, when a batch has touched it, and the objects in memory are only a cache: they are used in a batch whose manifest has
the very step that made them, and are out of reach while functions change them, so those of an attempt that fails are gone
with it. What waits for the frontier is stored as tuples.

Where it runs: in a cell's task. `route` has been called by the task that packed the tuple (`pack.ship`), `process` and
`on_timer` are called here, for one bucket at a time. Results are keyed by (the tuple or timer that caused it, bucket,
number within the call).

What is stored: under `formats.state_number(bucket)` the pickled state and the timers of each bucket that was ever
touched; under chunk numbers the tuples that wait. A batch writes the buckets it has touched whose bytes have changed, so
a state that is large and changes in every batch is written whole each time.

A retried batch starts from the stored states, so functions may be called twice for a tuple, and the effect on the state
counts once. What functions do outside of the state (write a file, call a service) may happen twice. Held by
tests/spark/test_operators.py.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import plait
from plait.core import keys
from plait.core.metrics import Counts
from plait.core.operator.buckets import NONE, SEVERAL, PlainBuckets, Rows, RowView, pairs, routed
from plait.encodings import as_array
from plait.errors import PlaitError, RunError
from plait.order import AFTER_ALL, decode, encode
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell.cell import Live
from plait.spark.cell.pickled import Pickled
from plait.spark.cell.results import Keyed
from plait.spark.formats import ROUTE, ROUTE_TYPE, Chunk, Step, rows_schema, times
from plait.spark.pack.positions import told
from plait.spark.pack.ship import AGAIN, codes_of, stream_name
from plait.spark.plan.layout import Layout

#: Where plait itself is, so that the user's line is told and not one of these.
_OWN = str(Path(plait.__file__).parent)


class LiveOperator(Live):
    """An operator's buckets of one cell.

    Attributes:
        catches_up: False. Tuples that were processed are not in the state, so contents that are a step behind can't be
            brought up to date: they are loaded anew.
        buckets: States and timers as Python objects; it calls the user's functions.
        pickled: How states become bytes and back.
        cell, cells: Bucket b is this cell's if b modulo `cells` is `cell`.
        _written: Of each bucket a digest of the bytes that the store has. A bucket that was touched and not changed is
            not written.
    """

    catches_up = False

    def __init__(self, bound: Bound, layout: Layout, cell: int) -> None:
        assert isinstance(bound.node, Operator)
        super().__init__(
            bound, [pa.schema([*rows_schema(i.schema), pa.field(ROUTE, ROUTE_TYPE)]) for i in bound.inputs]
        )
        self.node, self.cell, self.cells = bound.node, cell, layout.cells
        self.buckets, self.pickled = PlainBuckets(bound.node), Pickled(bound.node)
        self._written: dict[int, bytes] = {}  # digests of what the state store has

    @property
    def counts(self) -> Counts:
        return self.buckets.counts

    def prepared(self, input: int, table: pa.Table) -> pa.Table:
        """What no bucket sees was here to be shown, had it been dropped."""
        table = table.select(self.schemas[input].names)
        codes, _ = codes_of(as_array(table.column(ROUTE), ROUTE_TYPE))
        return table if (codes != NONE).all() else table.filter(pa.array(codes != NONE))

    def waiting(self, table: pa.Table, frontier: int) -> pa.Table:
        """Only tuples at or above the frontier: the others are processed now, and their effect is in the states."""
        return table.slice(int(np.searchsorted(times(table), frontier, "left")))

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """A tuple is needed until it has been processed."""
        return chunk.last_ts < frontier

    # --- states ---

    def states(self) -> Iterator[tuple[int, bytes]]:
        """Buckets that have changed since the last call, pickled."""
        for bucket, (state, timers) in self.buckets.stored(sorted(self.buckets.touched)).items():
            data = self.pickled.body(bucket, state, timers)
            digest = hashlib.blake2b(data, digest_size=16).digest()
            if self._written.get(bucket) != digest:
                self._written[bucket] = digest
                yield bucket, data
        self.buckets.touched.clear()

    def load_state(self, number: int, data: bytes, what: str) -> None:
        """A stored bucket, after a restart or in another worker. It counts as written."""
        self.buckets.restore(*self.pickled.bucket(data, what))
        self._written[number] = hashlib.blake2b(data, digest_size=16).digest()

    def forget(self) -> None:
        """After the end of input."""
        self.buckets = PlainBuckets(self.node)

    # --- tuples ---

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        """Tuples and timers up to the frontier, in the order of time; a timer that is due at or before a tuple's ts runs
        before it.

        At the end of input, time passes to the last moment of the data and no further. The timers after that are run by
        the closings (`end_of_input`), since their rule needs to know all cells. An error of a user's function is told
        with the tuple it was called with.
        """
        if not results:
            return self._results(pa.array([], pa.binary()))  # the states have what these have done
        batch = _Batch(self.bound, ready)
        try:
            which, buckets = self._pairs(batch)
            self.buckets.take(batch.ts, 0, which, buckets, batch.view)
            self.buckets.pass_time(self.last_ts if frontier == AFTER_ALL else frontier)
            return self._results(batch.key)
        except Exception as error:
            raise placed(error, *self.buckets.calling, batch.place) from error

    def _pairs(self, batch: _Batch) -> tuple[np.ndarray, np.ndarray]:
        """(tuple, bucket) for the buckets of this cell, in total order.

        A tuple whose `route` has raised when it was packed came to every cell. It is routed again here, and raises here.
        """
        codes, named = codes_of(batch.route)
        for k in np.flatnonzero(codes == AGAIN).tolist():
            self.buckets.calling = ("route", k, -1)
            codes[k], several = routed(self.node.route(batch.view(k)), self.node.buckets)
            named[k] = list(several or ())
        assert not (codes == SEVERAL).any() or len(named) == len(codes)
        return pairs(codes, lambda i: tuple(named[i] or ()), self.cell, self.cells, self.node.buckets)

    def _results(self, key: pa.Array) -> Keyed:
        return results_of(self.bound, self.buckets, key)


def results_of(bound: Bound, buckets: PlainBuckets, key: pa.Array) -> Keyed:
    """What has come out, in result order. Causes are places in `key`.

    A result of a timer that was due at t has the ts t - 1, and no tuple: its key begins with (ts, a mark that sorts after
    all inputs), so it stands behind all that tuples of that ts have caused. Used by cells and by closings alike.
    """
    out, columns = buckets.taken_out()
    n = len(out.ts)
    ts, cause = np.array(out.ts, np.int64), np.array(out.cause, np.int64)
    timed = cause < 0
    causes = keys.at_last(ts)
    if not timed.all():
        causes = pc.if_else(pa.array(timed), causes, key.take(pa.array(np.maximum(cause, 0))))
    numbers = [keys.ints(np.array(each, np.int64)) for each in (out.bucket, out.index)]
    arrays = [pa.array(ts).cast(bound.schema.field(0).type), *columns]
    rows = pa.Table.from_arrays(arrays, schema=bound.schema)
    return Keyed(rows, (), keys.join(keys.nest(causes, n=n), *numbers, n=n))


class _Batch:
    """Tuples of all inputs, ready to be taken, in total order.

    Attributes:
        ts, input, own: Of each tuple its time, its input, and its row in that input's table.
        key: Keys, in the same order. A result refers to its cause by its place here.
        route: The buckets that `route` named, as they travelled.
        rows: Each input's rows as functions see them.
    """

    def __init__(self, bound: Bound, ready: list[pa.Table]) -> None:
        self.bound = bound
        # Each input's are in order, and a key begins with (ts, input): a stable sort by these is the total order.
        ts = np.concatenate([times(table) for table in ready])
        input = np.concatenate([np.full(table.num_rows, n) for n, table in enumerate(ready)])
        own = np.concatenate([np.arange(table.num_rows) for table in ready])
        order = np.lexsort((input, ts))
        self.ts, self.input, self.own = ts[order], input[order].tolist(), own[order].tolist()
        self.key = pa.concat_arrays([as_array(t.column(formats.KEY), pa.binary()) for t in ready]).take(pa.array(order))
        self.route = pa.concat_arrays([as_array(t.column(ROUTE), ROUTE_TYPE) for t in ready]).take(pa.array(order))
        self.rows = [
            Rows(table.select(i.schema.names), times(table), stream_name(bound, n))
            for n, (table, i) in enumerate(zip(ready, bound.inputs, strict=True))
        ]

    def view(self, at: int) -> RowView:
        """A tuple as `process` gets it."""
        rows: Rows = self.rows[self.input[at]]
        return rows.view(self.own[at])

    def place(self, at: int) -> str:
        """A tuple, for a person."""
        ts, input, *own = decode(self.key[at].as_py())
        node = self.bound.inputs[input].node
        if not isinstance(node, Stream):
            return f"a tuple of {stream_name(self.bound, input)!r}, ts {ts}"
        source = own[0].decode(errors="replace") if isinstance(own[0], bytes) else own[0]
        if (declared := node.declared()) is not None and node.source_column is None and isinstance(source, int):
            source = declared[source] if source < len(declared) else source
        return f"stream {node.name!r}, source {source!r}, {told(encode((own[1],)))}, ts {ts}"


def placed(error: Exception, function: str, at: int, bucket: int, place: Callable[[int], str]) -> PlaitError:
    """An error of a user's function with its name and what it was called with.

    The line that is told is the user's: frames inside of plait are left out. plait's own errors keep their kind and get
    the same beginning.
    """
    where = "" if at < 0 and function != "on_timer" else f"a timer at {at}" if function == "on_timer" else place(at)
    called = f"{function} of bucket {bucket}" if bucket >= 0 else function
    called += f", called with {where}" if where else ""
    if isinstance(error, PlaitError):
        return type(error)(f"{called}: {error.fact}", why=error.why, do=error.do)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_OWN)]
    last = f" in line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
    return RunError(
        f"{called}: {type(error).__name__}: {error}",
        why=f"it was raised{last}",
        do="Mend the function and restart with on_spark(..., functions='changed'): the batch that failed is done again",
    )
