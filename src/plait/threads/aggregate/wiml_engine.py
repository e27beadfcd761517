"""What runs behind a `Run` of an aggregate by WiML: threads that push update windows, and one thread takes them out.

Sources, judgement, frontier, errors and ends are those of the other designs; only that rows go into the W-Hive, in the
pushing thread, instead of into an arena and the gate. Invariant: a source's cells have its tuples before it says at the hive,
and then at the gate, how far it has come; so whoever sees that frontier finds them there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.machine.marks import compiling
from plait.errors import PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.threads.aggregate.engine import WAIT_NS, AggregateEngine, Updater
from plait.threads.aggregate.hive import hive
from plait.threads.aggregate.hive.cells import Cells
from plait.threads.aggregate.hive.functions import check, refuse
from plait.threads.aggregate.hive.windows import HiveWindows
from plait.threads.aggregate.wiml import await_frontier
from plait.threads.gate import layout
from plait.threads.guard import guarded
from plait.threads.input.intake import Intake, Source
from plait.threads.input.push import Pusher
from plait.threads.join.loop import layout as o

CHUNK = 1 << 16  # tuples at once


class HivePusher(Pusher):
    """Sources in front of the W-Hive."""

    def __init__(self, *arguments: Any, windows: HiveWindows, make: Callable[[int], Cells], taken: Callable[[], int],
                 moved: tuple[Any, threading.Condition], **options: Any) -> None:  # fmt: skip
        self.cells: dict[int, Cells] = {}
        self._windows, self._make, self._taken = windows, make, taken
        self._guard, self._moved = moved
        super().__init__(*arguments, **options)
        for intake in self.intakes.values():
            intake.positions = False  # no row is kept

    def in_order(self) -> Iterable[Cells]:
        """Every source's cells, in the order that settles ties."""
        for intake in self.intakes.values():
            for source in sorted(intake.sources.values(), key=lambda s: s.rank):
                for slot in source.slots.values():
                    yield self.cells[slot]

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        self.cells[slot] = cells = self._make(slot)
        with self._windows.hive.inside() as h:
            hive.admit(h, slot, cells.pane(min_ts))

    def _written(self, slot: int, progress: int) -> None:
        self.cells[slot].written(progress)

    def _enter(self, intake: Intake, source: Source, rows: pa.Table | pa.RecordBatch, ts: np.ndarray, ref: np.ndarray,
               progress: int) -> None:  # fmt: skip
        n = len(ts)
        if n == 0:
            self._promise(source, progress)
            return
        (slot,) = source.slots.values()
        cells, ts = self.cells[slot], np.ascontiguousarray(ts)
        for first in range(0, n, CHUNK):
            last = min(first + CHUNK, n)
            self._wait_for_room(slot, cells)
            cells.take(rows if last - first == n else rows.slice(first, last - first), ts[first:last])
            source.added += last - first
            self._promise(source, progress if last == n else int(ts[last - 1]))

    def _wait_for_room(self, slot: int, cells: Cells) -> None:
        """Too many cells in panes that wait for another source are an error; in complete ones that nobody took, a wait."""
        words, since, seen = self.gate.words, time.monotonic(), -1
        pending, capacity = int(words[layout.PENDING]), int(words[layout.CAPACITY])
        while cells.live() > pending:
            frontier = self.gate.frontier()[0]
            ahead = cells.ahead(frontier)
            if ahead > pending:
                raise self._too_far(slot, ahead)
            if self._taken() >= frontier or cells.live() - ahead <= capacity:
                return  # what is left belongs to the pane that the frontier lies in
            self.check()
            moved = self._progressed()
            if moved != seen or compiling():
                since, seen = time.monotonic(), moved
            elif time.monotonic() - since > self._stall:
                raise RunError(
                    f"push of {self.gate.name(slot)} waited {self._stall:g} s for the output thread; {self._waits()}",
                    why=f"it has parts in {cells.live()} windows of panes that are complete and were not taken",
                    do="Read results() in another thread while you push, or raise capacity= and unread_results=",
                )
            with self._guard:
                self._moved.wait(0.02)

    def _too_far(self, slot: int, ahead: int) -> PendingError:
        held, holder = self.gate.frontier()
        at = "it has not spoken" if held == BEFORE_ALL else f"it is at ts {held}"
        return PendingError(
            f"{self.gate.name(slot)} has parts in {ahead} windows that wait for the frontier, "
            f"which is held by {'nobody' if holder is None else self.gate.name(holder)}: {at}",
            why="waiting could be for ever, if the same thread feeds both",
            do="Push sources by turns, send heartbeats for a silent one, close it, or raise pending=",
        )


class HiveEngine(AggregateEngine):
    """An aggregate by WiML. The only thread here is the one that takes winsets out."""

    pusher: HivePusher

    def _updater(self, number: int, slots: int) -> Updater:
        assert isinstance(self.bound.node, Aggregate)
        reason = check(self.bound.node, self.bound.inputs[0].schema)
        if reason is not None:
            raise refuse(reason, self.bound.node, self.plan.strategy)
        self._moved = guarded()
        self._shared = self.plan.strategy == "wiml_shared"
        self._windows = HiveWindows(self.bound, lambda: self.pusher.in_order(), slots, shared=self._shared)
        self._frontier = np.zeros(1, np.int64)
        return Updater(number, self._windows, 1, 1)

    def _pusher(self) -> Callable[..., HivePusher]:
        windows = self._windows
        return partial(
            HivePusher,
            windows=windows,
            make=lambda slot: Cells(
                self.bound, windows.hive, slot, windows.columns, windows.groups, shared=self._shared
            ),
            taken=lambda: self.workers[0].passed,
            moved=self._moved,
        )

    def _step(self, worker: Updater) -> bool:
        w, began = worker.words, time.monotonic_ns()
        w[o.WAITS] = o.FOR_TUPLES
        code = int(await_frontier(self.gate.words, worker.number, worker.passed, WAIT_NS, self._frontier))
        w[o.WAITS] = o.NOTHING
        if code < 0:
            self._pause()
            if self._stopped or self.error is not None:
                return False
            raise RunError(f"The gate answered {code} to the output thread", do="Report this")
        frontier, read = int(self._frontier[0]), time.monotonic_ns()
        w[o.NS_WAIT] += read - began
        if frontier > worker.passed:
            closed = self._windows.take_complete(frontier)
            done = time.monotonic_ns()
            w[o.NS_STORE] += done - read
            w[o.TUPLES] = self._windows.counts.updates = self.pusher.rows
            w[o.BATCHES] += 1
            self._hand_over(worker, closed, 0, frontier)
            w[o.NS_EMIT] += time.monotonic_ns() - done
            guard, moved = self._moved
            with guard:
                moved.notify_all()
        self._pause()
        return frontier < AFTER_ALL

    def describe(self) -> list[str]:
        return [f"{line}, by every source for itself" for line in super().describe()]

    def _windows_nbytes(self) -> int:
        cells = sum(cells.nbytes for cells in list(self.pusher.cells.values()))
        return super()._windows_nbytes() + cells + self._windows.hive.nbytes
