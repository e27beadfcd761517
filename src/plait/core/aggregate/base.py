"""What windows of time and of tuples share: columns, groups, functions, and how rows are made of closed windows.

The way of a batch: columns as arrays (`reads`), a group number for each tuple (`groups`), a slot for each tuple (`span`
or `counted`), every function adds to its own accumulator (`accumulators`, `lists`), windows that close are merged from
slots, and merged rows become Arrow columns (`Later`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import Accumulator
from plait.core.aggregate.closed import Pairs, Slid
from plait.core.aggregate.columns import Read
from plait.core.aggregate.functions import accumulator_of, fold_of
from plait.core.aggregate.groups import Groups
from plait.core.aggregate.lists import Fold, Lists
from plait.core.aggregate.reads import Columns, uses
from plait.core.metrics import Counts
from plait.core.rows import KeptRows
from plait.encodings import recast
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.schema import taken

CHUNK = 1 << 16  # tuples at once, and pairs of a row and a slot


@dataclass(frozen=True)
class Closed:
    """Rows of closed windows. `triggers`: of windows of tuples, the place in the batch of the tuple that closed each."""

    rows: pa.RecordBatch | Later
    triggers: np.ndarray | None = None


class PaneWindows:
    """What windows of time and of tuples share. One thread at a time.

    A slot is one number that means the same place in every accumulator: one group of one pane. Subclasses say which slot
    a tuple has and which slots make a window; nothing here knows what a pane is.

    - `columns`: what is read of tuples, and how.
    - `kept`: rows that accumulators name by number, of columns that stay in Arrow.
    - `groups`: key columns to group numbers and back.
    - `lists`: one list of row numbers a slot, for all functions that need whole rows; None if there is none.
    - `accumulators`: all that is updated for each tuple; `lists` is among them.
    - `_results`: of each output column its name and what computes it, an accumulator or a fold over lists.
    - `_refers`: whether anything names rows of `kept`: only then are rows kept at all.
    - `capacity`: slots that the accumulators have room for.
    - `counts`: what `core.metrics` shows; `updates` counts tuples of this share.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Aggregate)
        node, (source,) = bound.node, bound.inputs
        self.schema, self._node = bound.schema, node
        self.columns = Columns(node, source.schema)
        self.kept = KeptRows(pa.schema([source.schema.field(name) for name in self.columns.varied]))
        self.groups = Groups(node, source.schema, self._held)
        self.lists: Lists | None = None
        self.accumulators: list[Accumulator] = []
        self._results: list[tuple[str, Accumulator | Fold]] = []
        for use in uses(node, source.schema, self.kept):
            made = accumulator_of(use)
            if made is None and self.lists is None:
                self.lists = Lists()
                self.accumulators.append(self.lists)
            if made is not None:
                self.accumulators.append(made)
            self._results.append((use.name, made or fold_of(use)))
        self._refers = any(a.refs(np.zeros(0, np.int64)) is not None for a in self.accumulators)
        self.capacity = 0
        self.counts = Counts()
        self._crew, self._seat = 1, 0

    def share(self, crew: int, seat: int) -> None:
        """Take the tuples of some groups only: those that a hash of the key gives to `seat`, of `crew`.

        The hash is a function of the key alone, so every thread of the crew decides alike without talking. The rows of a
        window are then spread over the crew, and whoever collects them merges by key (`core.keys`).
        """
        self._crew, self._seat = crew, seat

    @property
    def needs_rows(self) -> bool:
        """Whether `take` has to be given the columns that stay in Arrow."""
        return bool(self.columns.varied)

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.accumulators) + int(self.groups.words.nbytes)

    def take_rows(self, rows: pa.Table | pa.RecordBatch, ts: np.ndarray, frontier: int) -> list[Closed]:
        """`take` for tuples that are still in Arrow."""
        return self.take(ts, self.columns.arrays(rows, ts), rows.select(list(self.columns.varied)), frontier)

    def take(
        self, ts: np.ndarray, arrays: list[np.ndarray], rows: pa.Table | pa.RecordBatch | None, frontier: int
    ) -> list[Closed]:
        """Tuples in total order, as `Columns` lays them out, and the frontier after them.

        `ts` is int64, ascending, and not below the frontier of the call before. `arrays` are those of `Columns.arrays`,
        `rows` the columns that stay in Arrow, or None if there are none. Gives the rows of windows that closed, in result
        order. An empty batch passes time on: windows may close by the frontier alone.

        The batch is cut into chunks of CHUNK tuples, so that scratch arrays stay small. Within a batch a chunk's frontier
        is the ts of the tuple that follows: all later ones are at or after it. How the batch is cut does not show in the
        rows.
        """
        out: list[Closed] = []
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        own = None
        if self._crew > 1 and len(ts):
            own = np.flatnonzero(
                self.groups.owner(self.columns.read(arrays, len(ts)), rows, len(ts), self._crew) == self._seat
            )
            ts, arrays = ts[own], [a[own] for a in arrays]
            rows = None if rows is None else taken(rows, own)
        self.counts.updates += len(ts)
        for low in range(0, len(ts), CHUNK):
            high = min(low + CHUNK, len(ts))
            read = self.columns.read([a[low:high] for a in arrays], high - low)
            part = None if rows is None else rows.slice(low, high - low)
            group = self.groups.find(read, part, high - low)
            refs = read.ones
            if self._refers:
                assert part is not None
                first = self.kept.append(part)
                refs = np.arange(first, first + high - low)
            now = frontier if high == len(ts) else int(ts[high])
            out += self._chunk(ts[low:high], group, read, refs, now, low)
        if len(ts) == 0:
            out += self._pass(frontier)
        if self._refers and self.kept.crowded:
            self._let_go()
        if own is not None:
            out = [Closed(c.rows, None if c.triggers is None else own[c.triggers]) for c in out]
        return out

    def describe(self) -> list[str]:
        """How each function is computed, for `explain`."""
        return [
            f"{name} = {function.describe()}: {made.how}"
            for (name, made), (_, function) in zip(self._results, self._node.compute, strict=True)
        ]

    def end(self) -> list[Closed]:
        """The input has ended: every window of time closes."""
        return self._pass(AFTER_ALL)

    def _chunk(
        self, ts: np.ndarray, group: np.ndarray, read: Read, refs: np.ndarray, frontier: int, at: int
    ) -> list[Closed]:
        """What a kind of window does with one chunk: assign slots, update, close. `frontier`: no later tuple is below it.
        `at`: the place of the chunk's first tuple in the batch, for triggers.
        """
        raise NotImplementedError

    def _pass(self, frontier: int) -> list[Closed]:
        """Close what can get no more tuples below this frontier. A kind whose windows close at a tuple has nothing to do."""
        return []

    def _live(self) -> np.ndarray:
        """The slots in use."""
        raise NotImplementedError

    def _held(self, groups: int) -> np.ndarray:
        """A mask of so many groups: which of them have a slot in use, or must be known for another reason. `Groups` forgets
        the rest.
        """
        raise NotImplementedError

    def _let_go(self) -> None:
        """Tell `kept` which rows are still named by a slot in use. It copies those and drops the others."""
        live = self._live()
        found = [refs for a in self.accumulators if (refs := a.refs(live)) is not None]
        self.kept.keep(np.concatenate(found))

    def _update(self, low: int, high: int, slot: np.ndarray, read: Read, refs: np.ndarray) -> None:
        for accumulator in self.accumulators:
            accumulator.update(low, high, slot, read, refs)

    def _rows(self, closed: Pairs | Slid, group: np.ndarray, edges: list[np.ndarray]) -> pa.RecordBatch | Later:
        """Rows of closed windows: ts, window_start and window_end as given, then keys, then what is computed."""
        return self._later(closed, group, edges).built()

    def _later(self, closed: Pairs | Slid, group: np.ndarray, edges: list[np.ndarray]) -> Later:
        """Everything that has to be taken from what goes on changing is taken now: slots are merged, keys looked up.

        `closed` says which slots make each row; `group` is the group of each row, `edges` are the columns ts,
        window_start and window_end, int64. Lists are read here at once, since their rows may be dropped after this call.
        """
        listed = None
        if self.lists is not None:
            listed = self.lists.listed(closed.pairs if isinstance(closed, Slid) else closed)
        computed: list[Callable[[], pa.Array]] = []
        for name, made in self._results:
            if isinstance(made, Accumulator):
                merged = made.merged(closed)
                computed.append(partial(made.snapshot().column, merged, name))
            else:
                assert listed is not None
                computed.append(partial(_same, recast(made(*listed, self.kept), self.schema.field(name).type)))
        return Later(self.schema, edges, self.groups.columns(group), computed)


class Later:
    """Rows whose columns are made when they are wanted, by whoever wants them: rounding and Arrow take their time.

    `edges` and `keys` are as they will be; `computed` makes the other columns. A thread that closes windows must not wait
    for that, so whoever reads results calls `built`. That may be another thread (`threads.aggregate.hive.windows`), if all
    functions keep numbers: merged rows and keys are copies by then. Rows of `kept` would not be.
    """

    def __init__(self, schema: pa.Schema, edges: list[np.ndarray], keys: list[pa.Array],
                 computed: list[Callable[[], pa.Array]]) -> None:  # fmt: skip
        self.schema, self.edges, self.keys, self.computed = schema, edges, keys, computed
        self.num_rows = len(edges[0])

    def built(self) -> pa.RecordBatch:
        arrays = [pa.array(edge).cast(f.type) for edge, f in zip(self.edges, self.schema, strict=False)]
        return pa.RecordBatch.from_arrays(
            [*arrays, *self.keys, *(make() for make in self.computed)], schema=self.schema
        )


def _same(made: pa.Array) -> pa.Array:
    return made
