"""WiML: windows merged in one list, updated by the threads that push (multiway-aggregation.txt, sections 4 and 5.7).

Every source updates its own part of the windows its tuples fall into, in the thread that pushes it, and in no order between
sources; one output thread takes the winsets that all sources have written past out of the W-Hive (`hive.hive`), merges
the parts and closes windows. Tuples are never sorted, copied or handed to another thread: so functions must merge. First and last
do, by the ts and the source of their tuple; what keeps rows in total order does not, and is refused (`designs`).

The frontier is the gate's: sources speak, come, go and end there as in every design, but add no tuples to it. Invariant: a
source's tallies have its tuples before it says at the hive, and then at the gate, how far it has come; so whoever sees that
frontier finds them there.

Where this departs from the paper: a source has a tally of its own for each key and pane, and tallies are merged when their
winset is taken, so `first` and `last` are served too, which the paper leaves to TuML. Threads that push return to Python once
a batch; where they enter the hive they take no lock, but wait while its memory grows (`hive.door`).

Who does what: a thread that pushes judges the rows, finds each row's tally and adds it up there, and promises at the
hive, then at the gate. Nothing waits for another source. The output thread sleeps at the gate until the frontier
moves, takes complete winsets, merges the sources' tallies into panes and closes windows. So work on tuples is spread
over the threads that push, and what one thread does alone goes with panes, keys and sources.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from plait.order import AFTER_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads import words as shared
from plait.threads.aggregate.designs import Design, refuse, unmerged_in
from plait.threads.aggregate.engine import WAIT_NS, NoPayload, PaneEncoder, PaneEngine, Updater
from plait.threads.aggregate.hive.parts import Team
from plait.threads.aggregate.hive.promises import await_frontier
from plait.threads.aggregate.hive.tallies import HivePusher, SourcesTallies
from plait.threads.aggregate.hive.windows import HiveWindows
from plait.threads.aggregate.results import AggregateResults
from plait.threads.ground import Ground
from plait.threads.input.push import one_type
from plait.threads.life.guard import guarded
from plait.threads.life.together import Together
from plait.threads.options import Options

#: Threads that help the output thread: one for so many cores, up to a number.
CORES_A_HELPER, MOST_HELPERS = 4, 4


def helpers() -> int:
    return min((os.cpu_count() or 1) // CORES_A_HELPER, MOST_HELPERS)


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
        ground = Ground(
            bound, schemas, options, together, readers=1, most=1, positions=False, kind=made.gate, events=made.pool + 1
        )
        self._tallies = SourcesTallies(ground.intakes)
        self._team = Team(helpers(), ground.control, made.pool)
        self._windows = HiveWindows(
            bound, self._tallies.in_order, ground.slots, self._team, shared=made.strategy == "wiml_shared"
        )
        output = Updater(0, self._windows, 1, 1)
        (name,) = ground.intakes
        encoder, payload = PaneEncoder(self._windows.columns, name), NoPayload()
        pauser = ground.pauser([output])
        self._guard, self._moved = guarded()
        pusher = HivePusher(ground, pauser, {name: payload}, encoder, widen=one_type, windows=self._windows,
                            tallies=self._tallies, output=output, moved=(self._guard, self._moved),
                            threads=made.workers)  # fmt: skip
        results = AggregateResults(bound, ground.intakes[name], payload, 1, ground.latency, keys=options.keys,
                                   room=options.unread_results)  # fmt: skip
        super().__init__(ground, made, updaters=[output], encoder=encoder, payload=payload, pauser=pauser, pusher=pusher,
                         results=results, beside=(*(f"update-{k}" for k in range(made.pool)),
                                          *(f"merge-{k}" for k in range(self._team.helpers))))  # fmt: skip
        self._pool = pusher.pool
        self._frontier = np.zeros(1, np.int64)

    def _serve(self, thread: int) -> None:
        """Steps of the output thread, until the end; or batches, of a thread of the pool; or portions, of one that helps."""
        pool = 0 if self._pool is None else self._pool.threads
        if thread > pool:
            self._team.serve(self.pauser.pause)
        if self._pool is not None and thread > 0:
            self._pool.serve(thread - 1, self.pauser.pause)
            return
        worker = self.workers[thread]
        while self._step(worker):
            pass

    def _step(self, worker: Updater) -> bool:
        """Wait until the frontier moves, take what is complete, hand over closed windows; False at the end.

        Panes are complete when the frontier has passed their end, so this is what it waits for; only where another operator is to
        hear of every step of the frontier (`onward`), for every step. `_moved` wakes pushers that wait for room.
        """
        w, began = worker.words, time.monotonic_ns()
        w[shared.WAITS] = shared.FOR_TUPLES
        known = worker.passed if self.together.onward else self._windows.last_in_pane(worker.passed)
        code = int(await_frontier(self.gate.words, self.control, worker.number, known, WAIT_NS, self._frontier))
        w[shared.WAITS] = shared.NOTHING
        if code < 0:
            return self._answered(code, "the output thread")
        frontier, read = int(self._frontier[0]), time.monotonic_ns()
        w[shared.NS_WAIT] += read - began
        if frontier > known:
            if self._pool is not None:
                self.latency.advanced(frontier, read)  # its threads have no time to say so
            closed = self._windows.take_complete(frontier)
            ts, pushed_ns = self._windows.last_tuples()
            worker.last.took(ts, lambda at: pushed_ns[at])
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
        by = (
            "by every source for itself"
            if self._pool is None
            else f"by {self._pool.threads} threads, a source by one of them"
        )
        return [f"{line}, {by}" for line in super().describe()]

    def _windows_nbytes(self) -> int:
        return super()._windows_nbytes() + self._tallies.nbytes + self._windows.hive.nbytes
