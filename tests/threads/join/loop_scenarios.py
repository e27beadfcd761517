"""Runs of a join under the scheduler: the text of the workers' loop itself, in memory that the product lays out.

`worker.work`, or `serve.serve` where shares change hands, with all that they call: gate, feeds, segments, probe, rings; and
`gather.gather_waiting` by whoever reads. Plans are the strategies', words are those that `threads.join.memory` writes. The
condition is the one part that is not the product's: every pair of the window matches, and no column is compared
(`index_scenarios` has conditions, with an index). Rings of two results and segments of few rows, so that everything is full,
waits and goes round.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
from tests.explore.addresses import NativeTwin, View, cas, fetch_add, load_acquire
from tests.explore.schedule import Clock, Scenario, Sleep

import plait
from plait.core.condition import native
from plait.core.join.reach import TS, Reach
from plait.core.machine.line import LINE, address, lines
from plait.query.join import HOWS
from plait.threads import words as shared
from plait.threads.gate import codes, epochs
from plait.threads.gate import words as gate_words
from plait.threads.join import asof, asof_memory, memory
from plait.threads.join.loop import feed
from plait.threads.join.loop import gather as real
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.strategies.plan import Plan, Wish

Steps = Generator[Any, None, Any]
Patches = dict[str, list[tuple[str, str]]]
JOIN = "plait.threads.join"
LOOP, SERVE, GATHER, FEED, SEGMENT, OUT, STRETCHES, PROBE, WORKER, ASOF = (
    f"{JOIN}.loop", f"{JOIN}.serve", f"{JOIN}.loop.gather", f"{JOIN}.loop.feed", f"{JOIN}.loop.segment", f"{JOIN}.loop.out",
    f"{JOIN}.loop.stretches", f"{JOIN}.loop.probe", f"{JOIN}.loop.worker", f"{JOIN}.asof",
)  # fmt: skip
#: Looking again before sleeping adds steps, and no behaviour.
QUICK: Patches = {
    WORKER: [("SPINS = 8", "SPINS = 0"), ("if spins < 63:", "if spins < 0:"), ("PATIENCE = 64", "PATIENCE = 0")],
    GATHER: [("    for _ in range(2):\n        if number != 0:", "    for _ in range(0):\n        if number != 0:"),
             ("SPINS: Final = 2", "SPINS: Final = 0")],
    SERVE: [("SPINS = 8", "SPINS = 0")],
}  # fmt: skip
GROWS = 8  # times the rows that a segment begins with
HALTED, ARRIVED = range(2)  # as `Pauser` counts
SCAN, VERIFY = (7, 9), 11  # addresses of kernels, scans by the probes' side


class Mutant(NamedTuple):
    """A fault that is planted into a module's text, and the case whose exploration finds it."""

    module: str
    old: str
    new: str
    case: str
    found: str  # what the exploration says
    needs: int = 1  # so many preemptions show it


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
                 fed: int = 2, how: str = "inner", faults: Patches | None = None) -> None:  # fmt: skip
        """`most` tuples a batch, `room` results a ring, `rows` a segment, `fed` tuples a feed: powers of two but the first."""
        self.plan, self.tuples, self.back_us, self.most, self.how = plan, tuples, back_us, most, how
        self.fed, self.rows, self.grown = fed, rows, 0
        self.arena = np.zeros((2, 1), np.int64)
        self.patches = {
            name: [*QUICK.get(name, []), *(faults or {}).get(name, [])] for name in {*QUICK, *(faults or {})}
        }
        self.twin = NativeTwin((LOOP, SERVE, ASOF, "plait.threads.gate"), patches=self.patches)
        self.twin.kernels = {SCAN[0]: scan, SCAN[1]: scan}
        self.space = self.twin.space
        self._lay_out(room, rows)
        self.space.keep()

    def _lay_out(self, room: int, rows: int) -> None:
        encoder = self._encoder()
        counts = self.plan.segments
        self.segments = tuple(
            [
                memory.Segment(
                    side,
                    len(self.plan.sharers(side, k)),
                    encoder,
                    matched=self.how != "inner",
                    parted=self.plan.parts is not None,
                    rows=GROWS * rows,
                )
                for k in range(counts[side])
            ]
            for side in (0, 1)
        )
        self.workers = [self._worker(k, encoder, room) for k in range(len(self.plan.seats))]
        self.kept = memory.plant(self.plan, self.workers, 2)
        for each in self.kept:
            if isinstance(each, memory.Feed):
                each.block[feed.MASK] = self.fed - 1
        for segment in (*self.segments[0], *self.segments[1]):
            segment.block[seg.CAP], segment.block[seg.MASK] = rows, rows - 1  # the rest is for when it grows
        for worker in self.workers:
            worker.words[o.SCANS], worker.words[o.SCANS + 1], worker.words[o.VERIFY] = *SCAN, VERIFY
        self._parted = [None if worker.parted is None else worker.parted.copy() for worker in self.workers]
        self._adopt()

    def _encoder(self) -> Any:
        return NoColumns()

    def _worker(self, number: int, encoder: Any, room: int) -> memory.Worker:
        reach = Reach(TS, (self.back_us, self.back_us), 1)
        return memory.Worker(number, self.plan, self.segments, encoder, reach, self.how, most=self.most, results=room,
                             arena_mask=7)  # type: ignore[arg-type]  # fmt: skip

    def _adopt(self) -> None:
        space = self.space
        *head, total = gate_words.header(slots=3, seats=len(self.workers), capacity=8, pending=8, store="rings")
        gate = np.array(head + [0] * (total - len(head)), np.int64)
        gate_words.prepare(gate, [0, (1 << 32) + 1], len(self.workers))
        self.gate = space.adopt(gate)
        self.still = space.adopt(np.zeros(2, np.int64))
        self.control = space.adopt(lines(shared.CONTROL_WORDS + 16 * o.EVENTS))
        for segment in (*self.segments[0], *self.segments[1]):
            for array in (segment.block, *segment.arrays.values(), *segment.columns.values()):
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
                          worker.ranges, worker.walk, worker.tally, worker.bands.reshape(-1), *worker.columns[0].values(),
                          *worker.columns[1].values()):  # fmt: skip
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

    def scenario(self, *, feeding: bool = False, stages: tuple[int, ...] = (), reading: bool = True) -> Scenario:
        """`feeding`: the sources are a thread; else all tuples are in the gate when the run begins, and the sources have ended.

        `stages`: so many tuples are in the gate when the run begins, up to so many are added by a thread, and so on; the last one
        adds the rest and ends the sources. So tuples become ready in the midst of a run, and workers take batches of different
        lengths. A thread a stage: it ends with it, and then anybody may go on without a preemption. `reading`: whoever reads is
        a thread; else it comes when all have ended, and there must be room for all results.
        """

        def start(clock: Clock) -> tuple[list[Steps], Callable[[], None]]:
            self.space.begin(clock, len(self.workers) + feeding + len(stages) + reading)
            for worker, laid in zip(self.workers, self._parted, strict=True):
                if worker.parted is not None:
                    worker.parted[:] = laid
            self.taken: list[tuple[int, ...]] = []
            self._begin()
            threads = [self.work(k) for k in range(len(self.workers))]
            if feeding:
                threads.append(self.feed())
            elif stages:
                through(self._tuples(0, stages[0]))
                stage = [0]
                threads += [self._stage(stage, k, stages) for k in range(len(stages))]
            else:
                through(self.feed())
            if reading:
                threads.append(self.read())
            return threads, lambda: self.finish(reading)

        return start

    def _begin(self) -> None:
        """What was lent and is no scratch is as it was laid out."""

    def feed(self) -> Steps:
        """Both sources, tuple by tuple, then their ends."""
        yield from self._tuples()
        yield from self._end()

    def _stage(self, stage: list[int], k: int, stages: tuple[int, ...]) -> Steps:
        while stage[0] < k:
            yield Sleep(stage, 0, stage[0])
        yield from self._tuples(stages[k], stages[k + 1] if k + 1 < len(stages) else len(self.tuples))
        if k + 1 == len(stages):
            yield from self._end()
        stage[0] = k + 1

    def _tuples(self, first: int = 0, last: int | None = None) -> Steps:
        counts = [sum(each.side == side for each in self.tuples[:first]) for side in (0, 1)]
        for side, ts in self.tuples[first:last]:
            number = counts[side]
            added = yield from self.twin("plait.threads.gate.ring")["add"](
                self.gate, side, [ts], [number], [number], 0, 1, ts
            )
            assert added == 1, added
            counts[side] += 1

    def _end(self) -> Steps:
        for side in (0, 1):
            assert (yield from self.twin("plait.threads.gate.calls")["end"](self.gate, side)) == 0

    def loop(self) -> Callable[..., Steps]:
        return self.twin(WORKER)["work"]  # type: ignore[no-any-return]

    def work(self, number: int) -> Steps:
        """A worker's thread: its loop, and what Python does when that comes back (`engine.Windows.see_to`)."""
        worker, answer = self.workers[number], 0
        while answer != o.FINISHED:
            answer = yield from self.loop()(
                self.gate, self.control, self.view(worker.words), self.arena, worker.batch, *worker.probes,
                *worker.usable, worker.pairs, worker.over, worker.ranges, worker.walk, worker.tally, self.view(worker.out),
            )  # fmt: skip
            if answer == o.HALTED:
                yield from self._stand()
            elif answer == o.GROW_SEGMENT:
                yield from self._change(number, self._widen)
            elif answer == o.BUILD_INDEX:
                yield from self._change(number, self._build)
            else:
                assert answer == o.FINISHED, f"worker {number} answers {answer}"
        yield from self._add(self.still, ARRIVED, 1)  # who has ended stands still for good

    # --- standing still, as `threads.life.pause` has it under a lock -----------------------------------------------------

    def _add(self, words: View, at: int, value: int) -> Steps:
        yield words, at, value
        fetch_add(words, at, value)

    def _see(self, words: View, at: int) -> Steps:
        yield words, at
        return load_acquire(words, at)

    def _stand(self) -> Steps:
        """Until it may go on. Who leaves looks once more: another change may have begun that counts it among those that stand."""
        halted = 1
        while halted != 0:
            yield from self._add(self.still, ARRIVED, 1)
            while (halted := (yield from self._see(self.still, HALTED))) != 0:
                yield Sleep(self.still, HALTED, halted)
            yield from self._add(self.still, ARRIVED, -1)
            halted = yield from self._see(self.still, HALTED)

    def _change(self, number: int, change: Callable[[memory.Segment, int], None]) -> Steps:
        """All others stand still while a segment of the worker's is changed. Who comes second stands until it is its turn."""
        still, w = self.still, self.view(self.workers[number].words)
        while True:
            yield still, HALTED, 0
            if cas(still, HALTED, 0, 1):
                break
            yield from self._stand()
        yield from self._add(self.control, shared.HALT, 1)
        for words, event in (
            (self.control, o.FEED_EVENT),
            (self.control, o.ROOM_EVENT),
            (self.gate, gate_words.READY_EVENT),
        ):
            yield from self._add(words, event, 1)
        while True:
            arrived = yield from self._see(still, ARRIVED)
            if arrived + 1 >= len(self.workers):
                break
            if (yield from self._see(still, ARRIVED)) == arrived:
                yield Sleep(still, ARRIVED, arrived)
        side = w[o.NEED_SIDE]
        change(self.segments[side][self.plan.seats[number].segment[side]], w[o.NEED])
        yield from self._add(self.control, shared.HALT, -1)
        yield from self._add(still, HALTED, -1)

    def _build(self, segment: memory.Segment, kind: int) -> None:
        raise AssertionError("a scan asks for an index")

    def _widen(self, segment: memory.Segment, _: int) -> None:
        """Twice the rows: memory for eight times as many is there. Positions stay, so rows move to `position & MASK`."""
        block = self.view(segment.block)
        old, self.grown = block[seg.CAP], self.grown + 1
        assert 2 * old <= GROWS * self.rows, "a segment that grows without end"
        first = min(block[seg.FIRST + k * LINE] for k in range(block[seg.SHARERS]))
        for name in ("ts", "id", "ref"):
            column = self.view(segment.arrays[name])
            moved = {row: column[row & (old - 1)] for row in range(first, block[seg.END])}
            for row, value in moved.items():
                column[row & (2 * old - 1)] = value
        if segment.matched:
            flags = self.view(segment.arrays["matched"])
            kept = {
                (k, row): flags[k * old + (row & (old - 1))]
                for k in range(block[seg.SHARERS])
                for row in range(first, block[seg.END])
            }
            for (k, row), value in kept.items():
                flags[2 * k * old + (row & (2 * old - 1))] = value
        block[seg.CAP], block[seg.MASK] = 2 * old, 2 * old - 1

    def read(self) -> Steps:
        """Whoever reads, as `threads.results.Gatherer`."""
        rings = [address(worker.words) for worker in self.workers]
        n, most = len(rings), 2
        taken, known = np.zeros(n, np.int64), np.zeros((real.KNOWN, n), np.int64)
        dest, seen = np.zeros((o.E_WORDS, most), np.int64), np.zeros(real.SEEN, np.int64)
        number = 0
        while number != real.ENDED:
            number = yield from self.twin(GATHER)["gather_waiting"](
                self.control, rings, taken, known, real.STRICT, 0, most, dest, seen, 1
            )
            self.taken += [tuple(int(word) for word in dest[:, k]) for k in range(number)]

    def expected(self) -> list[tuple[int, ...]]:
        """Every pair of the window, by trigger and partner, and rows without one when their time is over: the definition."""
        numbered: list[tuple[int, int, int]] = []  # ts, side, number, in the total order
        for side in (0, 1):
            own = [each.ts for each in self.tuples if each.side == side]
            numbered += [(ts, side, number) for number, ts in enumerate(own)]
        numbered.sort()
        found = []
        for rank, (ts, side, number) in enumerate(numbered):
            for other_ts, other_side, other in numbered[:rank]:
                left, right = (number, other) if side == 0 else (other, number)
                if other_side != side and other_ts >= ts - self.back_us and self.matches(left, right):
                    found.append((ts, 2 * rank + side, other, left, right))
        for whole in HOWS[self.how].alone:
            matched = {entry[o.E_LEFT + whole] for entry in found}
            for ts, side, number in numbered:
                if side == whole and number not in matched:
                    rows = (number, o.NO_ROW) if side == 0 else (o.NO_ROW, number)
                    found.append((ts + self.back_us, o.UNMATCHED + side, number, *rows))
        return sorted(found)

    def matches(self, left: int, right: int) -> bool:
        """What the condition says of a pair."""
        return True

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


class AsofCase(Case):
    """An as-of join of one value that keeps all left rows, by workers that take turns; the right stream is the gate's first.

    `exact` where the join looks back: then the gate has right tuples before left ones of their ts, as here.
    """

    def __init__(self, direction: str, tuples: tuple[Tuple, ...], *, workers: int = 2, within_us: int = 4, most: int = 2,
                 room: int = 2, faults: Patches | None = None) -> None:  # fmt: skip
        a, b = plait.stream("a", unit="us"), plait.stream("b", unit="us")
        self.node = plait.asof(a, b, within=within_us, direction=direction, exact=direction != "forward")
        self.codes = np.zeros(8, np.int64)
        turned = tuple(Tuple(1 - each.side, each.ts) for each in tuples)
        super().__init__(
            asof.plan(Wish(workers)), turned, back_us=within_us, most=most, room=room, how="left", faults=faults
        )

    def _worker(self, number: int, encoder: Any, room: int) -> memory.Worker:
        kept = asof_memory.AsofMemory(self.node)
        assert kept.block[asof_memory.RIGHT_FIRST]
        return memory.Worker(number, self.plan, self.segments, encoder, self.back_us, "left", most=self.most, results=room,
                             arena_mask=7, asof=kept)  # fmt: skip

    def _adopt(self) -> None:
        super()._adopt()
        self.arena = np.zeros((2, shared.A_COLUMNS + 1), np.int64)
        self.arena[:, shared.A_COLUMNS] = address(self.codes)
        self.space.lend(self.codes)
        for worker in self.workers:
            assert worker.asof is not None
            for array in (
                worker.asof.block,
                worker.asof.table.reshape(-1),
                worker.asof.ring.reshape(-1),
                worker.asof.heap,
            ):
                self.space.lend(array)

    def _begin(self) -> None:
        for worker in self.workers:
            assert worker.asof is not None
            worker.asof.block[[asof_memory.HEAD, asof_memory.TAIL, asof_memory.HEAPED]] = 0
            for array in (worker.asof.table, worker.asof.ring, worker.asof.heap):
                array[:8] = 0

    def loop(self) -> Callable[..., Steps]:
        return self.twin(ASOF)["work_asof"]  # type: ignore[no-any-return]

    def expected(self) -> list[tuple[int, ...]]:
        """The definition: of each left tuple its partner, and when that is decided."""
        right, left = ([each.ts for each in self.tuples if each.side == side] for side in (0, 1))
        order = sorted([(ts, 0, n) for n, ts in enumerate(right)] + [(ts, 1, n) for n, ts in enumerate(left)])
        found = []
        for n, ts in enumerate(left):
            before = [(at, k) for k, at in enumerate(right) if ts - self.back_us <= at <= ts]
            after = [(at, k) for k, at in enumerate(right) if ts < at <= ts + self.back_us]
            behind, ahead = (before[-1] if before else None), (after[0] if after else None)
            if self.node.direction == "backward":
                rank = order.index((ts, 1, n))
                found.append((ts, 2 * rank, behind[1] if behind else -1, n, behind[1] if behind else o.NO_ROW))
                continue
            due, partner = ts + self.back_us, o.NO_ROW
            if self.node.direction == "nearest" and behind and not (ahead and ahead[0] - ts < ts - behind[0]):
                due, partner = 2 * ts - behind[0], behind[1]
            elif ahead:
                due, partner = ahead
            found.append((due, o.UNMATCHED, n, n, partner))
        return sorted(found)


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
