"""WiML: windows merged in one list, updated by the threads that push (multiway-aggregation.txt, sections 4 and 5.7).

Every source updates its own part of the windows its tuples fall into, in the thread that pushes it, and in no order between
sources; one output thread takes the winsets that all sources have written past out of the W-Hive (`hive.hive`), merges
the parts and closes windows. Tuples are never sorted, copied or handed to another thread: so functions must merge. First and last
do, by the ts and the source of their tuple; what keeps rows in total order does not, and is refused (`designs`).

The frontier is the gate's: sources speak, come, go and end there as in every design, but add no tuples to it. Invariant: a
source's cells have its tuples before it says at the hive, and then at the gate, how far it has come; so whoever sees that
frontier finds them there.

Who does what: a thread that pushes judges the rows, finds each row's cell and adds it up there, and promises at the
hive, then at the gate. Nothing waits for another source. The output thread sleeps at the gate until the frontier
moves, takes complete winsets, merges the sources' cells into panes and closes windows. So work on tuples is spread
over the threads that push, and what one thread does alone goes with panes, keys and sources.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.machine.marks import compiling
from plait.errors import RunError
from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads import words as shared
from plait.threads.aggregate.designs import Design, refuse, unmerged_in
from plait.threads.aggregate.engine import WAIT_NS, NoPayload, PaneEncoder, PaneEngine, Updater
from plait.threads.aggregate.hive import hive
from plait.threads.aggregate.hive.cells import Cells
from plait.threads.aggregate.hive.windows import HiveWindows
from plait.threads.aggregate.results import AggregateResults
from plait.threads.atomics.native import compiled
from plait.threads.gate.calls import enter_reader, leave_reader
from plait.threads.gate.flow import cancel, prepare, sleep
from plait.threads.gate.frontier import settle
from plait.threads.gate.words import READY_EVENT
from plait.threads.ground import Ground
from plait.threads.guard import guarded
from plait.threads.input.intake import Inlet, StreamIntake
from plait.threads.input.push import Pusher, one_type
from plait.threads.options import Options
from plait.threads.parts import Encodes
from plait.threads.pause import Pauser
from plait.threads.together import Together

CHUNK = 1 << 16  # tuples at once


class SourcesCells:
    """Every source's cells, by its slot: those that push add theirs, the output thread goes through all."""

    def __init__(self, intakes: Mapping[str, StreamIntake]) -> None:
        self._intakes = intakes
        self.by_slot: dict[int, Cells] = {}

    def in_order(self) -> Iterable[Cells]:
        """In the order that settles ties."""
        for intake in self._intakes.values():
            for inlet in sorted(intake.inlets.values(), key=lambda each: each.rank):
                for slot in inlet.slots.values():
                    yield self.by_slot[slot]

    @property
    def nbytes(self) -> int:
        return sum(cells.nbytes for cells in list(self.by_slot.values()))


class HivePusher(Pusher):
    """Sources in front of the W-Hive. `output` takes winsets out, and says so by `moved`.

    The difference to `Pusher`: `_furnish` makes cells instead of an arena, `_enter` updates cells instead of filling
    the gate, `_written` tells the hive before the gate hears of a promise.
    """

    def __init__(self, ground: Ground, pauser: Pauser, payloads: Mapping[str, Any], encoder: Encodes, *,
                 widen: Callable[[], None], windows: HiveWindows, cells: SourcesCells, output: Updater,
                 moved: tuple[Any, threading.Condition]) -> None:  # fmt: skip
        self._windows, self._cells, self._output = windows, cells.by_slot, output
        self._guard, self._moved = moved
        super().__init__(ground, pauser, payloads, encoder, widen=widen)

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        self._cells[slot] = cells = self._windows.cells(slot)
        with self._windows.hive.inside() as h:
            hive.admit(h, slot, cells.pane(min_ts))

    def _written(self, slot: int, progress: int) -> None:
        self._cells[slot].written(progress)

    def _enter(self, intake: StreamIntake, inlet: Inlet, rows: pa.Table | pa.RecordBatch, ts: np.ndarray, ref: np.ndarray,
               progress: int) -> None:  # fmt: skip
        """Rows of one source, in order, into its cells, a chunk at a time.

        After each chunk the source promises the ts of its last row, so that windows can be taken while a long push
        goes on.
        """
        n = len(ts)
        if n == 0:
            self._promise(inlet, progress)
            return
        (slot,) = inlet.slots.values()
        cells, ts = self._cells[slot], np.ascontiguousarray(ts)
        for first in range(0, n, CHUNK):
            last = min(first + CHUNK, n)
            self._wait_for_room(slot, cells)
            cells.take(rows if last - first == n else rows.slice(first, last - first), ts[first:last])
            inlet.added += last - first
            self._promise(inlet, progress if last == n else int(ts[last - 1]))

    def _wait_for_room(self, slot: int, cells: Cells) -> None:
        """Too many cells in panes that wait for another source are an error; in complete ones that nobody took, a wait.

        `pending` limits cells in panes that another source holds back: there waiting might be for ever, so that is an
        error, as at the gate. `capacity` limits cells in panes that are complete and not taken: there the output
        thread, or the reader of results behind it, has to catch up.
        """
        since, seen = time.monotonic(), -1
        pending, capacity = self.gate.pending, self.gate.capacity
        while cells.live() > pending:
            frontier = self.gate.frontier()[0]
            ahead = cells.ahead(frontier)
            if ahead > pending:
                raise self._stuck(f"{self.gate.name(slot)} has parts in {ahead} windows")
            if self._output.passed >= frontier or cells.live() - ahead <= capacity:
                return  # what is left belongs to the pane that the frontier lies in
            self._together.check()
            moved = self._together.progressed()
            if moved != seen or compiling():
                since, seen = time.monotonic(), moved
            elif time.monotonic() - since > self._stall:
                raise RunError(
                    f"push of {self.gate.name(slot)} waited {self._stall:g} s for the output thread; {self._together.waiting()}",
                    why=f"it has parts in {cells.live()} windows of panes that are complete and were not taken",
                    do="Read results() in another thread while you push, or raise capacity= and unread_results=",
                )
            with self._guard:
                self._moved.wait(0.02)


class HiveEngine(PaneEngine):
    """An aggregate by WiML. The only thread here is the one that takes winsets out.

    The gate has one reader, the output thread, and carries no tuples: it is there for the frontier.
    """

    def __init__(self, bound: Bound, schemas: Mapping[str, pa.Schema], made: Design, options: Options,
                 together: Together) -> None:  # fmt: skip
        assert isinstance(bound.node, Aggregate)
        reason = unmerged_in(bound.node, bound.inputs[0].schema)
        if reason is not None:
            raise refuse(reason, bound.node, made.strategy)
        # No row is kept: nobody asks where one stood.
        ground = Ground(bound, schemas, options, together, readers=1, most=1, positions=False, kind=made.gate)
        self._cells = SourcesCells(ground.intakes)
        self._windows = HiveWindows(bound, self._cells.in_order, ground.slots, shared=made.strategy == "wiml_shared")
        output = Updater(0, self._windows, 1, 1)
        (name,) = ground.intakes
        encoder, payload = PaneEncoder(self._windows.columns, name), NoPayload()
        pauser = ground.pauser([output])
        self._guard, self._moved = guarded()
        pusher = HivePusher(ground, pauser, {name: payload}, encoder, widen=one_type, windows=self._windows,
                            cells=self._cells, output=output, moved=(self._guard, self._moved))  # fmt: skip
        results = AggregateResults(bound, ground.intakes[name], payload, made.workers, ground.latency, keys=options.keys,
                                   room=options.unread_results)  # fmt: skip
        super().__init__(ground, made, updaters=[output], encoder=encoder, payload=payload, pauser=pauser, pusher=pusher,
                         results=results)  # fmt: skip
        self._frontier = np.zeros(1, np.int64)

    def _serve(self, thread: int) -> None:
        """Steps of the output thread, until the end."""
        worker = self.workers[thread]
        with worker.timed():
            while self._step(worker):
                pass

    def _step(self, worker: Updater) -> bool:
        """Wait until the frontier moves, take what is complete, hand over closed windows; False at the end.

        `_moved` wakes pushers that wait for room.
        """
        w, began = worker.words, time.monotonic_ns()
        w[shared.WAITS] = shared.FOR_TUPLES
        code = int(await_frontier(self.gate.words, worker.number, worker.passed, WAIT_NS, self._frontier))
        w[shared.WAITS] = shared.NOTHING
        if code < 0:
            return self._answered(code, "the output thread")
        frontier, read = int(self._frontier[0]), time.monotonic_ns()
        w[shared.NS_WAIT] += read - began
        if frontier > worker.passed:
            closed = self._windows.take_complete(frontier)
            done = time.monotonic_ns()
            w[shared.NS_STORE] += done - read
            w[shared.TUPLES] = self._windows.counts.updates = self.pusher.rows
            w[shared.BATCHES] += 1
            self.results.hand_over(worker, closed, 0, frontier, self.pauser.pause)
            w[shared.NS_EMIT] += time.monotonic_ns() - done
            with self._guard:
                self._moved.notify_all()
        self.pauser.pause()
        return frontier < AFTER_ALL

    def describe(self) -> list[str]:
        return [f"{line}, by every source for itself" for line in super().describe()]

    def _windows_nbytes(self) -> int:
        return super()._windows_nbytes() + self._cells.nbytes + self._windows.hive.nbytes


@compiled
def look(g: Any, reader: Any, out: Any) -> Any:
    """The frontier as this reader has settled it, into out[0]: 0, or a code."""
    code = enter_reader(g, reader)
    if code < 0:
        return code
    out[0] = settle(g, reader)
    leave_reader(g, reader, False)
    return 0


@compiled
def await_frontier(g: Any, reader: Any, known: Any, nanoseconds: Any, out: Any) -> Any:
    """As `look`, but sleep up to `nanoseconds` while the frontier is not above `known`.

    `known` is the frontier the caller has worked up to, `out` one word of its own. After `prepare` it looks once more,
    so a promise in between is not slept through.
    """
    code = look(g, reader, out)
    if code < 0 or out[0] > known:
        return code
    ticket = prepare(g, READY_EVENT)
    code = look(g, reader, out)
    if code < 0 or out[0] > known:
        cancel(g, READY_EVENT)
        return code
    sleep(g, READY_EVENT, ticket, nanoseconds)
    return look(g, reader, out)
