"""Unions on threads: the gate puts tuples in order, and one thread gives them out as they are.

Where rows of a stream are changed one by one, that is done where they are pushed, if it can be (`on_the_way`). Else they go
through a union of one stream that nobody wrote (`core.row_by_row.Through`), and are changed as they are carried on (`dag`).

Invariant: rows are given out in the order in which the gate gives tuples, (ts, input, source, seq), each once its ts is below the
frontier. Held by tests/threads/test_row_by_row.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core import keys
from plait.core.aggregate.panes import window_record
from plait.core.machine.line import lines
from plait.core.metrics import Counts
from plait.core.row_by_row import Through, union_columns
from plait.encodings import as_array
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.row_by_row import Union
from plait.query.stream import Stream
from plait.threads import words as shared
from plait.threads.aggregate.engine import WAIT_NS, PaneRows
from plait.threads.aggregate.results import OrderedResults, Placed
from plait.threads.engine import Engine
from plait.threads.gate import codes
from plait.threads.ground import Ground
from plait.threads.input.payload import Payload
from plait.threads.input.push import Pusher, one_type
from plait.threads.life.together import Together
from plait.threads.options import Options
from plait.threads.plan import Sharing
from plait.threads.results import full_key, own_key

BATCH = 1 << 14  # tuples that are given out at once, unless batch= says otherwise


def on_the_way(bound: Bound, *, keyed: bool) -> list[bool]:
    """Of each input, whether its rows can be changed where they are pushed to this operator.

    Not if it is another operator's (its results are changed as they are carried on), nor where the operator reads one stream in
    two ways, nor where keys are asked for and are made of columns.
    """
    needs_columns = keyed and not (isinstance(bound.node, Aggregate) and window_record(bound.node).by_time)
    found = []
    for each in bound.inputs:
        if not isinstance(each.node, Stream):
            found.append(False)
            continue
        alike = all(other.steps == each.steps for other in bound.inputs if other.node == each.node)
        found.append(alike and not (each.steps and needs_columns and each.node.seq != "position"))
    return found


class Giver:
    """The one thread's memory. `passed`: how far it is; `rank`: how many tuples it has given out."""

    number = 0

    def __init__(self, most: int) -> None:
        self.words = lines(shared.WORKER_WORDS)
        self.tuples = np.zeros((4, most), np.int64)  # ts, origin, seq, ref
        self.passed, self.rank = BEFORE_ALL, 0

    def progressed(self) -> int:
        return self.rank + int(self.words[shared.BATCHES])

    def counts(self) -> Counts:
        w = self.words
        return Counts(results=int(w[shared.RESULTS]), batches=int(w[shared.BATCHES]))


class NoColumns:
    """Stands where `columns.Encoder` stands for joins: nothing of a row is read before it is given out."""

    has_node = False
    stamp = 0

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def columns(self, side: int) -> list[tuple[str, Any]]:
        return []

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> PaneRows:
        return PaneRows([], len(ts))

    def encoded(self, side: int, rows: PaneRows) -> list[np.ndarray]:
        return rows.arrays

    def fits(self, side: int, rows: PaneRows) -> bool:
        return True

    def admit(self, side: int, rows: PaneRows) -> bool:
        return False

    def forget(self, stamp: int) -> None:
        """Nothing is coded here."""


class UnionEngine(Engine[Giver]):
    """See the module. `_places`: of each input, the columns that results have after their ts."""

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Sharing, options: Options,
                 together: Together) -> None:  # fmt: skip
        assert isinstance(bound.node, Union)
        self.most = options.batch or BATCH
        ground = Ground(bound, schemas, options, together, readers=1, most=self.most)
        giver = Giver(self.most)
        pauser = ground.pauser([giver])
        payloads = {name: Payload(schemas[name]) for name in ground.intakes}
        encoder = NoColumns(tuple(ground.names))
        pusher = Pusher(ground, pauser, payloads, encoder, widen=one_type)
        self.results = OrderedResults(bound, 1, ground.latency, keys=options.keys, room=options.unread_results)
        super().__init__(ground, made, workers=[giver], encoder=encoder, payloads=payloads, pauser=pauser, pusher=pusher,
                         gatherer=self.results, epochs=None)  # fmt: skip
        self._of_input = [payloads[name] for name in ground.names]
        self._intake_of_input = [ground.intakes[name] for name in ground.names]
        self._through = isinstance(bound.node, Through)
        self._places = [union_columns(each, bound.node) for each in bound.inputs]

    def _serve(self, thread: int) -> None:
        giver = self.workers[thread]
        while self._step(giver):
            pass

    def _step(self, giver: Giver) -> bool:
        """Take a batch and give it out; False at the end. As `tuml` does: of a full batch's last ts there may be more."""
        w, began = giver.words, time.monotonic_ns()
        w[shared.WAITS] = shared.FOR_TUPLES
        n = int(self.gate.kind.read_waiting(self.gate.words, 0, self.most, *giver.tuples, WAIT_NS))
        w[shared.WAITS] = shared.NOTHING
        if n < 0 and n != codes.DONE:
            self.pauser.pause()
            if self.together.over:
                return False
            raise RunError(f"The gate answered {n} to the thread of a union", do="Report this")
        frontier = AFTER_ALL if n == codes.DONE else self.gate.frontier_of(0)
        if n == self.most:
            frontier = int(giver.tuples[0, n - 1])
        read = time.monotonic_ns()
        w[shared.NS_READ if n > 0 else shared.NS_WAIT] += read - began
        if n > 0 or frontier > giver.passed:
            rows = self._given(giver, n) if n > 0 else []
            giver.passed, giver.rank = frontier, giver.rank + max(n, 0)
            w[shared.TUPLES] += max(n, 0)
            w[shared.RESULTS] += max(n, 0)
            w[shared.BATCHES] += 1
            w[shared.NS_EMIT] += time.monotonic_ns() - read
            w[shared.WAITS] = shared.FOR_CONSUMER
            # By their numbers: rows are complete when they are there, also those of a ts of which more may come.
            until = AFTER_ALL if frontier == AFTER_ALL else giver.rank
            self.results.put(0, rows, until, frontier, self.pauser.pause)
            w[shared.WAITS] = shared.NOTHING
            for payload in self.payloads.values():
                payload.expire(frontier)
        self.pauser.pause()
        return frontier < AFTER_ALL

    def _given(self, giver: Giver, n: int) -> list[Placed]:
        """A batch of tuples as rows, in the order of the gate."""
        ts, origin, _, ref = (column[:n].copy() for column in giver.tuples)  # Arrow keeps what it is given
        sides, parts, ats = origin >> 32, [], []
        pushed = np.empty(n, np.int64)
        for side in np.unique(sides).tolist():
            at = np.flatnonzero(sides == side)
            rows = self._of_input[side].take(ref[at], extra=self.options.keys)
            pushed[at] = self._of_input[side].pushed_ns(ref[at])
            columns = [rows.column(place) for place in self._places[side]]
            if self.options.keys:
                columns.append(self._keys(side, rows, len(at)))
            fields = list(self.results.schema)[1:]
            arrays = [as_array(c, f.type) for c, f in zip(columns, fields, strict=True)]
            parts.append(pa.Table.from_arrays(arrays, schema=pa.schema(fields)))
            ats.append(at)
        table = parts[0]
        if len(parts) > 1:
            back = np.empty(n, np.int64)
            back[np.concatenate(ats)] = np.arange(n)
            table = pa.concat_tables(parts).take(pa.array(back))
        first = self.results.schema.field(0)
        whole = [pa.array(ts).cast(first.type), *(as_array(c, c.type) for c in table.columns)]
        places = np.arange(giver.rank, giver.rank + n)
        return [(pa.RecordBatch.from_arrays(whole, schema=self.results.schema), places, pushed)]

    def _keys(self, side: int, rows: pa.Table, n: int) -> pa.Array:
        intake = self._intake_of_input[side]
        if self._through:
            return own_key(intake, rows, n)
        return keys.nest(full_key(intake, side, rows, n), n=n)

    # --- what is going on ---

    def describe(self) -> list[str]:
        return []

    def _served(self, side: int) -> str:
        return "order"

    def _loads(self) -> list[float]:
        return [float(w.words[shared.NS_EMIT]) for w in self.workers]
