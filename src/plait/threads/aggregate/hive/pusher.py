"""Sources in front of the W-Hive: a push updates its source's tallies, and then promises, at the hive and at the gate.

Any thread may push; one at a time pushes a source. What a tally is `hive.tallies` says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plait.core.machine.marks import compiling
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.aggregate.hive import hive
from plait.threads.aggregate.hive.tallies import Tallies
from plait.threads.aggregate.reads import KeyedBits
from plait.threads.ground import Ground
from plait.threads.input.intake import Inlet, Inside, StreamIntake
from plait.threads.input.push import Pusher
from plait.threads.life.pause import Pauser
from plait.threads.parts import Encodes

if TYPE_CHECKING:
    from plait.threads.aggregate.engine import Updater
    from plait.threads.aggregate.hive.windows import HiveWindows

CHUNK = 1 << 16  # tuples that are added at once, unless batch= says otherwise


class SourcesTallies:
    """Every source's tallies, by its slot: those that push add theirs, the output thread goes through all."""

    def __init__(self, intakes: Mapping[str, StreamIntake]) -> None:
        self._intakes = intakes
        self.by_slot: dict[int, Tallies] = {}

    def in_order(self) -> Iterable[Tallies]:
        """In the order that settles ties."""
        for intake in self._intakes.values():
            for inlet in sorted(intake.inlets.values(), key=lambda each: each.rank):
                for slot in inlet.slots.values():
                    yield self.by_slot[slot]

    @property
    def nbytes(self) -> int:
        return sum(tallies.nbytes for tallies in list(self.by_slot.values()))


class HivePusher(Pusher):
    """Sources in front of the W-Hive. `output` takes winsets out, and says so by `moved`.

    The difference to `Pusher`: `_furnish` makes tallies instead of an arena, `_enter` updates tallies instead of filling
    the gate, and the hive hears of a promise, or an end, before the gate does.
    """

    def __init__(self, ground: Ground, pauser: Pauser, payloads: Mapping[str, Any], encoder: Encodes, *,
                 widen: Callable[[], None], windows: HiveWindows, tallies: SourcesTallies, output: Updater,
                 moved: tuple[Any, threading.Condition]) -> None:  # fmt: skip
        self._windows, self._tallies, self._output = windows, tallies.by_slot, output
        self._guard, self._moved = moved
        self._most = ground.options.batch or CHUNK
        self._keyed = KeyedBits(windows.columns, windows.groups)
        super().__init__(ground, pauser, payloads, encoder, widen=widen, reads=self._keyed.reads)

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        self._tallies[slot] = tallies = self._windows.tallies(slot)
        with self._windows.hive.inside(slot) as h:
            hive.admit(h, slot, tallies.pane(min_ts))

    def _enter(self, intake: StreamIntake, inlet: Inlet, rows: pa.Table | pa.RecordBatch, ts: np.ndarray, ref: np.ndarray,
               progress: int) -> None:  # fmt: skip
        """Rows of one source, in order, into its tallies, a chunk at a time.

        After each chunk the source promises the ts of its last row, so that windows can be taken while a long push
        goes on.
        """
        n = len(ts)
        if n == 0:
            self._promise(inlet, progress)
            return
        (slot,) = inlet.slots.values()
        tallies, ts = self._tallies[slot], np.ascontiguousarray(ts)
        for first in range(0, n, self._most):
            last = min(first + self._most, n)
            self._wait_for_room(slot, tallies)
            tallies.take(
                rows if last - first == n else rows.slice(first, last - first), ts[first:last], ref[first:last]
            )
            inlet.added += last - first
            self._promise(inlet, progress if last == n else int(ts[last - 1]))

    def _pushed_at_once(self, intake: StreamIntake, name: Any, batch: pa.RecordBatch, pushed_ns: int) -> bool:
        """As `Pusher._pushed_at_once`: what is read of a usual batch comes out of one compiled call, and nothing is laid out."""
        inlet = intake.inlets.get(0 if name is None else name) if type(name) is not bool else None
        if inlet is None or inlet.ended or intake.ended or batch.num_rows > self._most:
            return False
        with Inside(inlet, intake.stream.name):
            (slot,) = inlet.slots.values()
            low = max(inlet.largest, inlet.heartbeat, self._bound(intake))
            found = self._short[intake.stream.name].bits(inlet, batch, low, self._keyed.rows)
            if found is None:
                return False
            ts, bits = found
            n = len(ts)
            inlet.largest, inlet.spoke_ns = int(ts[-1]), time.monotonic_ns()
            inlet.delivered += n
            inlet.taken += n
            first = self.payloads[intake.stream.name].put(n, _no_rows, inlet.largest, pushed_ns, 0)
            tallies = self._tallies[slot]
            self._wait_for_room(slot, tallies)
            tallies.update(*self._keyed.read(bits, n), ts, np.full(1, first))
            inlet.added += n
            self._promise(inlet, inlet.progress(intake.stream))
        return True

    def _promise(self, inlet: Inlet, progress: int) -> None:
        """At the hive, then at the gate: whoever sees the frontier there finds the tallies."""
        if progress == BEFORE_ALL:
            return
        began = time.monotonic_ns()
        for slot in inlet.slots.values():
            code, frontier = self._tallies[slot].promise(progress, self.gate.words, onward=self._together.onward)
            self._answer(slot, code)
            self.latency.advanced(frontier, began)

    def _end_at(self, slot: int) -> None:
        self._tallies[slot].written(AFTER_ALL)
        super()._end_at(slot)

    def _vacated(self, inlet: Inlet) -> bool:
        return all(self._tallies[slot].live() == 0 for slot in inlet.slots.values())

    def _readable(self, inlet: Inlet) -> bool:
        """Its last window's pane is complete: the output thread may take it."""
        frontier = self.gate.frontier()[0]
        tallies = [self._tallies[slot] for slot in inlet.slots.values()]
        return all(each.pane(inlet.largest) < each.pane(frontier) for each in tallies)

    def _wait_for_room(self, slot: int, tallies: Tallies) -> None:
        """Too many tallies in panes that wait for another source are an error; in complete ones that nobody took, a wait.

        `pending` limits tallies in panes that another source holds back: there waiting might be for ever, so that is an
        error, as at the gate. `capacity` limits tallies in panes that are complete and not taken: there the output
        thread, or the reader of results behind it, has to catch up.
        """
        since, seen = time.monotonic(), -1
        pending, capacity = self.gate.pending, self.gate.capacity
        while tallies.live() > pending:
            frontier = self.gate.frontier()[0]
            ahead = tallies.ahead(frontier)
            if ahead > pending:
                raise self._stuck(f"{self.gate.name(slot)} has parts in {ahead} windows")
            taken = tallies.pane(self._output.passed) >= tallies.pane(frontier)
            if taken or tallies.live() - ahead <= capacity:
                return  # what is left belongs to the pane that the frontier lies in
            self._together.check()
            moved = self._together.progressed()
            if moved != seen or compiling():
                since, seen = time.monotonic(), moved
            elif time.monotonic() - since > self._stall:
                raise RunError(
                    f"push of {self.gate.name(slot)} waited {self._stall:g} s for the output thread; {self._together.waiting()}",
                    why=f"it has parts in {tallies.live()} windows of panes that are complete and were not taken",
                    do="Read results() in another thread while you push, or raise capacity= and unread_results=",
                )
            with self._guard:
                self._moved.wait(0.02)


def _no_rows(kept: np.ndarray, first: int, capacity: int) -> bool:
    return True
