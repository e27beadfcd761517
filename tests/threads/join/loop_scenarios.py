"""Runs of a join under the scheduler: the text of the workers' loop itself, in memory that the product lays out.

`worker.work`, or `serve.serve` where shares change hands, with all that they call: gate, feeds, segments, probe, rings; and
`gather.gather_waiting` by whoever reads. Plans are the strategies', words are those that `threads.join.memory` writes. The
condition is the one part that is not the product's: every pair of the window matches, and no column is compared. Rings of two
results and segments of few rows, so that everything is full, waits and goes round.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from tests.explore.addresses import NativeTwin, View
from tests.explore.schedule import Clock, Scenario

from plait.core.condition import native
from plait.core.join.reach import TS, Reach
from plait.core.machine.line import address, lines
from plait.threads import words as shared
from plait.threads.gate import codes, epochs
from plait.threads.gate import words as gate_words
from plait.threads.join import memory
from plait.threads.join.loop import feed
from plait.threads.join.loop import gather as real
from plait.threads.join.loop import words as o
from plait.threads.join.strategies.plan import Plan

Steps = Generator[Any, None, Any]
Patches = dict[str, list[tuple[str, str]]]
JOIN = "plait.threads.join"
LOOP, SERVE, GATHER, FEED, SEGMENT, OUT, STRETCHES, WORKER = (
    f"{JOIN}.loop", f"{JOIN}.serve", f"{JOIN}.loop.gather", f"{JOIN}.loop.feed", f"{JOIN}.loop.segment", f"{JOIN}.loop.out",
    f"{JOIN}.loop.stretches", f"{JOIN}.loop.worker",
)  # fmt: skip
#: Looking again before sleeping adds steps, and no behaviour.
QUICK: Patches = {
    WORKER: [("SPINS = 8", "SPINS = 0"), ("if spins < 63:", "if spins < 0:"), ("PATIENCE = 64", "PATIENCE = 0")],
    GATHER: [("    for _ in range(2):\n        if number != 0:", "    for _ in range(0):\n        if number != 0:"),
             ("SPINS: Final = 2", "SPINS: Final = 0")],
    SERVE: [("SPINS = 8", "SPINS = 0")],
}  # fmt: skip
SCAN = (7, 9)  # addresses of kernels, by the probes' side


class Tuple(NamedTuple):
    """A tuple of a case: its side, 0 left or 1 right, and its ts. Its number in its stream is its reference too."""

    side: int
    ts: int


class NoColumns:
    """As `columns.Encoder` of a condition that compares nothing."""

    has_node, has_equality, has_bands, index, usual_index, dimensions = False, True, False, "scan", "scan", ()

    def columns(self, side: int) -> list[Any]:
        return []

    def bands(self) -> np.ndarray:
        return np.zeros((2, 5))


def scan(space: Any, b: Any) -> int:
    """The kernel: every row of its range matches every probe."""
    lo, hi, probes, rows = (space.at(b[at]) for at in (native.LO, native.HI, native.OUT_PROBE, native.OUT_ROW))
    count = 0
    for k in range(int(b[native.N])):
        for row in range(int(lo[k]), int(hi[k])):
            if count == int(b[native.ROOM]):
                return 1
            probes[count], rows[count] = k, row
            count += 1
    space.at(b[native.STATE])[3] = count
    return 0


class Case:
    """A plan, its tuples and its sizes, from which runs start. `back_us`: the window of either side."""

    def __init__(self, plan: Plan, tuples: tuple[Tuple, ...], *, back_us: int = 4, most: int = 2, room: int = 2, rows: int = 4,
                 fed: int = 2, faults: Patches | None = None) -> None:  # fmt: skip
        """`most` tuples a batch, `room` results a ring, `rows` a segment, `fed` tuples a feed: powers of two but the first."""
        self.plan, self.tuples, self.back_us, self.most = plan, tuples, back_us, most
        self.fed = fed
        self.patches = {
            name: [*QUICK.get(name, []), *(faults or {}).get(name, [])] for name in {*QUICK, *(faults or {})}
        }
        self.twin = NativeTwin((LOOP, SERVE, f"{JOIN}.asof", "plait.threads.gate"), patches=self.patches)
        self.twin.kernels = {SCAN[0]: scan, SCAN[1]: scan}
        self.space = self.twin.space
        self._lay_out(room, rows)
        self.space.keep()

    def _lay_out(self, room: int, rows: int) -> None:
        encoder: Any = NoColumns()
        counts = self.plan.segments
        self.segments = tuple(
            [
                memory.Segment(
                    side,
                    len(self.plan.sharers(side, k)),
                    encoder,
                    matched=False,
                    parted=self.plan.parts is not None,
                    rows=rows,
                )
                for k in range(counts[side])
            ]
            for side in (0, 1)
        )
        reach = Reach(TS, (self.back_us, self.back_us), 1)
        self.workers = [
            memory.Worker(
                k, self.plan, self.segments, encoder, reach, "inner", most=self.most, results=room, arena_mask=7
            )  # type: ignore[arg-type]
            for k in range(len(self.plan.seats))
        ]
        self.kept = memory.plant(self.plan, self.workers, 2)
        for each in self.kept:
            if isinstance(each, memory.Feed):
                each.block[feed.MASK] = self.fed - 1
        for worker in self.workers:
            worker.words[o.SCANS], worker.words[o.SCANS + 1] = SCAN
        self._parted = [None if worker.parted is None else worker.parted.copy() for worker in self.workers]
        self._adopt()

    def _adopt(self) -> None:
        space = self.space
        *head, total = gate_words.header(slots=3, seats=len(self.workers), capacity=8, pending=8, store="rings")
        gate = np.array(head + [0] * (total - len(head)), np.int64)
        gate_words.prepare(gate, [0, (1 << 32) + 1], len(self.workers))
        self.gate = space.adopt(gate)
        self.control = space.adopt(lines(shared.CONTROL_WORDS + 16 * o.EVENTS))
        for segment in (*self.segments[0], *self.segments[1]):
            for array in (segment.block, *segment.arrays.values()):
                space.adopt(array)
        for each in self.kept:
            for array in (each.block, each.data) if isinstance(each, memory.Feed) else (each[:4],):
                space.adopt(array)
        self._lend_arena()
        for worker in self.workers:
            for array in (worker.words, worker.out):
                space.adopt(array)
            if worker.parted is not None:
                space.lend(worker.parted)
            for array in (worker.block, worker.samples, worker.batch, *worker.probes, *worker.usable, worker.pairs, worker.over,
                          worker.ranges, worker.walk, worker.tally):  # fmt: skip
                space.lend(array)

    def _lend_arena(self) -> None:
        """What is read of tuples that go by values: all have the same one, so that every pair matches."""
        self.keys, self.usable = np.zeros(8, np.int64), np.ones(8, np.uint8)
        self.arena = np.zeros((2, shared.A_WORDS), np.int64)
        self.arena[:, shared.A_KEY], self.arena[:, shared.A_USABLE] = address(self.keys), address(self.usable)
        for array in (self.keys, self.usable):
            self.space.lend(array)

    def view(self, array: np.ndarray) -> View:
        return self.space.adopted[address(array)]  # type: ignore[return-value]

    def scenario(self, *, feeding: bool = False, reading: bool = True) -> Scenario:
        """`feeding`: the sources are a thread; else all tuples are in the gate when the run begins, and the sources have ended.

        `reading`: whoever reads is one; else it comes when all have ended, and there must be room for all results.
        """

        def start(clock: Clock) -> tuple[list[Steps], Callable[[], None]]:
            self.space.begin(clock, len(self.workers) + feeding + reading)
            for worker, laid in zip(self.workers, self._parted, strict=True):
                if worker.parted is not None:
                    worker.parted[:] = laid
            self.taken: list[tuple[int, ...]] = []
            threads = [self.work(k) for k in range(len(self.workers))]
            if feeding:
                threads.append(self.feed())
            else:
                through(self.feed())
            if reading:
                threads.append(self.read())
            return threads, lambda: self.finish(reading)

        return start

    def feed(self) -> Steps:
        """Both sources, tuple by tuple, then their ends."""
        yield from self._tuples()
        yield from self._end()

    def _tuples(self) -> Steps:
        counts = [0, 0]
        for side, ts in self.tuples:
            number = counts[side]
            added = yield from self.twin("plait.threads.gate.ring")["add"](
                self.gate, side, [ts], [number], [number], 0, 1, ts
            )
            assert added == 1, added
            counts[side] += 1

    def _end(self) -> Steps:
        for side in (0, 1):
            assert (yield from self.twin("plait.threads.gate.calls")["end"](self.gate, side)) == 0

    def work(self, number: int) -> Steps:
        worker = self.workers[number]
        answer = yield from self.twin(WORKER)["work"](
            self.gate, self.control, self.view(worker.words), self.arena, worker.batch, *worker.probes,
            *worker.usable, worker.pairs, worker.over, worker.ranges, worker.walk, worker.tally, self.view(worker.out),
        )  # fmt: skip
        assert answer == o.FINISHED, f"worker {number} answers {answer}"

    def read(self) -> Steps:
        """Whoever reads, as `threads.results.Gatherer`."""
        rings = [address(worker.words) for worker in self.workers]
        n, most = len(rings), 2
        taken, known = np.zeros(n, np.int64), np.zeros((3, n), np.int64)
        dest, seen = np.zeros((o.E_WORDS, most), np.int64), np.zeros(real.SEEN, np.int64)
        number = 0
        while number != real.ENDED:
            number = yield from self.twin(GATHER)["gather_waiting"](
                self.control, rings, taken, known, real.STRICT, 0, most, dest, seen, 1
            )
            self.taken += [tuple(int(word) for word in dest[:, k]) for k in range(number)]

    def expected(self) -> list[tuple[int, ...]]:
        """Every pair of the window, by trigger and partner: the definition."""
        numbered: list[tuple[int, int, int]] = []  # ts, side, number, in the total order
        for side in (0, 1):
            own = [each.ts for each in self.tuples if each.side == side]
            numbered += [(ts, side, number) for number, ts in enumerate(own)]
        numbered.sort()
        found = []
        for rank, (ts, side, number) in enumerate(numbered):
            for other_ts, other_side, other in numbered[:rank]:
                if other_side != side and other_ts >= ts - self.back_us:
                    left, right = (number, other) if side == 0 else (other, number)
                    found.append((ts, 2 * rank + side, other, left, right))
        return sorted(found)

    def finish(self, reading: bool) -> None:
        """The sequence is the definition's, nobody is left asleep, and no source is held back by what was read."""
        if not reading:
            through(self.read())
        assert self.taken == self.expected(), f"{self.taken} instead of {self.expected()}"
        for event in (o.OUT_SLEEPERS, o.ROOM_SLEEPERS, o.FEED_SLEEPERS):
            assert self.control[event] == 0, "somebody is said to sleep"
        at, columns = self.gate[gate_words.READ_AT], self.gate[gate_words.COLUMNS]
        for seat in range(len(self.workers)):
            for side in (0, 1):
                read = self.gate[at + seat * columns + side]
                assert read == sum(each.side == side for each in self.tuples), f"seat {seat} has told {read}"


class Served(Case):
    """Two shares, served by turns: the threads run `serve.serve`, and a third one asks for another map and ends the sources."""

    def __init__(self, plan: Plan, tuples: tuple[Tuple, ...], maps: tuple[list[int], list[int]], *, faults: Patches | None = None
                 ) -> None:  # fmt: skip
        self.maps = maps
        super().__init__(plan, tuples, room=8, faults=faults)

    def _adopt(self) -> None:
        e = lines(epochs.words(2, 2))
        epochs.prepare(e, self.maps[0], 2)
        self.e = self.space.adopt(e)
        self._kept_e = e
        for worker in self.workers:
            worker.words[o.SLICED] = address(e)
        self.table = np.array([worker.tabled() for worker in self.workers], np.int64)
        super()._adopt()

    def work(self, number: int) -> Steps:
        answer = yield from self.twin(SERVE)["serve"](
            self.gate, self.control, self.e, number, self.arena, self.table, [0, 0]
        )
        assert answer == o.FINISHED, f"thread {number} answers {answer}"

    def feed(self) -> Steps:
        for _ in self._tuples():
            pass  # before the run
        return self._switch()

    def _switch(self) -> Steps:
        ts, seq, ref = [0], [0], [0]
        code = yield from self.twin("plait.threads.gate.epochs")["switch_to"](
            self.gate, self.e, [2], [epochs.SWITCH_ORIGIN], self.maps[1], 1, ts, seq, ref
        )
        assert code in (0, codes.DONE), code
        yield from self._end()


def through(steps: Steps) -> Any:
    """Run to the end with nobody else about."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
