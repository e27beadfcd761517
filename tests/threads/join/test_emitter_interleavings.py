"""The Emitter, its feeds and the segments that workers share, under the interleaving scheduler: the very text that is compiled.

What is explored is `loop.grid`, `loop.emitter` and `loop.segment` as they stand. The probe is replaced by a look at every row
below P_HI, and a batch is one tuple, so that few steps make many messages. Feeds have room for two messages, the table of counts
two rows: everything is full, waits and goes round. Plain words are watched for races (`tests.explore.races`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest
from tests.examples import examples
from tests.explore.addresses import NativeTwin, View, address
from tests.explore.schedule import Clock, Sleep, Thread, explore, sample

from plait.core.machine.line import LINE
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.threads.gate import words as gate_words
from plait.threads.join.loop import feed, grid
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o

LOOP = "plait.threads.join.loop"
GRID, EMITTER, SEGMENT = f"{LOOP}.grid", f"{LOOP}.emitter", f"{LOOP}.segment"
GATE = ("plait.threads.gate.flow", "plait.threads.gate.frontier", "plait.threads.gate.words")
MODULES = (GRID, EMITTER, SEGMENT, f"{LOOP}.feed", *GATE)
SMALL = {GRID: [("MARKS: Final = 256", "MARKS: Final = 2")]}
Patches = dict[str, list[tuple[str, str]]]


class Scene:
    """One run of m x n workers over tuples that come in the order of `sides` (0 left, 1 right)."""

    def __init__(
        self, found: NativeTwin, clock: Clock, layout: tuple[int, int], sides: tuple[int, ...], room: int
    ) -> None:
        self.twin, self.sides, (self.m, self.n) = found, sides, layout
        found.space = space = type(found.space)()
        crew, self.pairs = self.m * self.n, list[tuple[int, int]]()
        *head, total = gate_words.header(slots=1, seats=crew + 1, capacity=1, pending=1, store="ring")
        self.gate, self.control = space.words(total), space.words(o.FEED_SLEEPERS + 16)
        for at, word in enumerate(head):
            self.gate[at] = word
        self.words = [space.words(o.WORDS) for _ in range(crew + 1)]
        table = space.words(2 * 2)
        self.segments = [[self._segment(space, len(sides)) for _ in range(count)] for count in (self.m, self.n)]
        for k, w in enumerate(self.words):
            w[o.SEAT], w[o.MOST], w[o.GRID_COUNTS], w[o.GRID_SLOTS] = k, 1, address(table), 1
            w[o.CUT_MARK] = w[o.TOLD] = w[o.LAST_SLOT] = -1
            w[o.STORE_EVERY], w[o.STORE_EVERY + 1] = self.m, self.n
            for word in (o.CUT_TS, o.HEARD_TS, o.HEARD_TS + 1, o.FRONTIER):
                w[word] = BEFORE_ALL
        self.words[crew][o.CREW] = crew
        rows, columns = ([self._feed(space, room) for _ in range(count)] for count in (self.m, self.n))
        self.feeds = [*rows, *columns]
        for k, w in enumerate(self.words[:crew]):
            row, column = divmod(k, self.n)
            w[o.STORE_AT], w[o.STORE_AT + 1] = row, column
            w[o.GRID_IN], w[o.GRID_IN + 1] = rows[row], columns[column]
            if column + 1 < self.n:
                w[o.GRID_OUT] = rows[row] = self._feed(space, room)
            if row + 1 < self.m:
                w[o.GRID_OUT + 1] = columns[column] = self._feed(space, room)
        space.made(clock, crew + 1)

    @staticmethod
    def _feed(space: Any, room: int) -> int:
        block, data = space.words(feed.words(1)), space.words(grid.M_ROWS * room)
        block[feed.MASK], block[feed.READERS], block[feed.DATA] = room - 1, 1, address(data)
        return address(block)

    @staticmethod
    def _segment(space: Any, rows: int) -> View:
        block, cap = space.words(seg.words(1)), 8
        block[seg.CAP], block[seg.MASK] = cap, cap - 1
        for word in (seg.TS, seg.ID, seg.REF):
            block[word] = address(space.words(cap))
        assert rows <= cap
        return block  # type: ignore[no-any-return]

    def emitter(self) -> Thread:
        """`emit_tuples`, with tuples that come from here instead of from the gate."""
        w, send = self.words[-1], self.twin(EMITTER)["emit_batch"]
        batch, workers = np.zeros((o.B_ROWS, 1), np.int64), [address(words) for words in self.words[:-1]]
        at = self.gate[gate_words.READ_AT] + w[o.SEAT] * self.gate[gate_words.COLUMNS]
        for ts, side in enumerate(self.sides):
            batch[o.B_TS, 0], batch[o.B_ORIGIN, 0], batch[o.B_SEQ, 0] = ts, side << 32, ts
            w[o.COUNT], w[o.FED], w[o.SENT], w[o.FRONTIER] = 1, 0, 0, ts
            self.gate[at] = ts + 1
            assert (yield from send(self.gate, self.control, w, batch, self.feeds, workers))
        w[o.SENT], w[o.FRONTIER], w[o.ENDED] = 0, AFTER_ALL, 1
        assert (yield from send(self.gate, self.control, w, batch, self.feeds, workers))

    def worker(self, k: int) -> Thread:
        """The phases of `worker.work`, as far as memory is shared: read, tell the gate, store, hand on, look at rows."""
        found, w, c = self.twin(GRID), self.words[k], self.control
        flow = self.twin("plait.threads.gate.flow")
        batch, ps = np.zeros((o.B_ROWS, 1), np.int64), [np.zeros((o.P_ROWS, 1), np.int64) for _ in range(2)]
        last = -1
        while not w[o.ENDED]:
            number = yield from found["read_grid"](c, w, batch)
            if number == 0:
                ticket = yield from flow["prepare"](c, o.FEED_EVENT)
                number = yield from found["read_grid"](c, w, batch)
                if number == 0:
                    yield from flow["sleep"](c, o.FEED_EVENT, ticket, 1)
                    continue
                yield from flow["cancel"](c, o.FEED_EVENT)
            yield from found["arrange_grid"](w, batch, ps)
            yield from found["tell_gate"](self.gate, c, w)
            yield from self._store(k, ps)
            assert (yield from found["hand_on"](c, w, batch))
            for i in range(w[o.COUNT]):
                assert batch[o.B_RANK, i] > last, "tuples out of order"
                last = batch[o.B_RANK, i]
                yield from self._look(k, int(batch[o.B_ORIGIN, i]) >> 32, ps)
        assert last < w[o.CUT_RANK] == len(self.sides), "it has not heard of all"

    def _store(self, k: int, ps: list[np.ndarray]) -> Generator[Any, None, None]:
        row, column = divmod(k, self.n)
        for side, writes in enumerate((column == 0, row == 0)):
            p, count = ps[side], self.words[k][o.STORES + side]
            if writes and count:
                yield from self.twin(SEGMENT)["append"](
                    self.segments[side][(row, column)[side]], count, p[o.P_STORE], p[o.P_TS], p[o.P_ID], p[o.P_REF],
                    p[o.P_KEY], p[o.P_X], p[o.P_Y], (), (), (),
                )  # fmt: skip

    def _look(self, k: int, side: int, ps: list[np.ndarray]) -> Generator[Any, None, None]:
        """All rows of the other side's segment that precede the tuple: they are there already, whoever wrote them."""
        other = self.segments[1 - side][divmod(k, self.n)[1 - side]]
        end = yield from self._acquired(other, seg.END)
        assert end >= ps[side][o.P_HI, 0], "it was told of a tuple before it was stored"
        ids = View(self.twin.space, other[seg.ID] // 8)
        for at in range(int(ps[side][o.P_HI, 0])):
            pair = (int(ps[side][o.P_ID, 0]), ids[at])
            self.pairs.append(pair if side == 0 else pair[::-1])

    def _acquired(self, words: View, at: int) -> Generator[Any, None, int]:
        yield
        return self.twin.steps["load_acquire"](words, at)  # type: ignore[no-any-return]

    def finish(self) -> None:
        lefts, rights = self.sides.count(0), self.sides.count(1)
        assert sorted(self.pairs) == [(l, r) for l in range(lefts) for r in range(rights)], "pairs lost, or found twice"
        at, columns = self.gate[gate_words.READ_AT], self.gate[gate_words.COLUMNS]
        assert [self.gate[at + k * columns] for k in range(len(self.words))] == [len(self.sides)] * len(self.words)


def scenario(layout: tuple[int, int], sides: tuple[int, ...], *, room: int = 2, faults: Patches | None = None
             ) -> Callable[[Clock], tuple[list[Thread], Callable[[], None]]]:  # fmt: skip
    changed = {name: [*SMALL.get(name, []), *(faults or {}).get(name, [])] for name in {*SMALL, *(faults or {})}}
    found = NativeTwin(MODULES, patches=changed)

    def start(clock: Clock) -> tuple[list[Thread], Callable[[], None]]:
        scene = Scene(found, clock, layout, sides, room)
        return [*(scene.worker(k) for k in range(layout[0] * layout[1])), scene.emitter()], scene.finish

    return start


def test_every_schedule_with_one_preemption() -> None:
    """Of one worker."""
    without, with_one = explore(scenario((1, 1), (0, 1)), preemptions=1)
    assert without > 1
    assert with_one > 50


@pytest.mark.slow
@pytest.mark.parametrize("layout", [(1, 2), (2, 1)])
def test_every_schedule_of_two_workers_without_a_preemption(layout: tuple[int, int]) -> None:
    assert explore(scenario(layout, (0, 1)), preemptions=0)[0] > 5


@pytest.mark.parametrize("layout", [(2, 1), (1, 2), (2, 2), (3, 1), (2, 3)])
def test_random_schedules(layout: tuple[int, int]) -> None:
    sample(scenario(layout, (0, 1, 0, 0, 1, 1)), seed=16, runs=examples(100), switch=0.3)


def test_one_stream_is_silent() -> None:
    sample(scenario((1, 2), (0,) * 6), seed=1, runs=examples(100), switch=0.3)
    sample(scenario((2, 2), (1,) * 6), seed=1, runs=examples(60), switch=0.3)


def test_a_feed_needs_room_for_a_batch_and_its_mark() -> None:
    """Why `memory.Emitter` gives it room for two batches: with less, all wait for one another in a circle."""
    with pytest.raises(AssertionError, match="Deadlock"):
        sample(scenario((1, 1), (0, 1, 1, 0), room=1), seed=1, runs=40, switch=0.3)


MESSAGE = "    data, at = messages_of(f), f[PUT] & f[MASK]\n    data[M_TS"
SHOWN = "    if shown:\n        fence()\n        wake_feed(c)"
LOWER = "lower = 0 if w[o.HEARD_RANK] <= w[o.HEARD_RANK + 1] else 1"
MIXED = (0, 1, 1, 0)
TWO = (0, 1)
#: A fault, the layout and the tuples' sides with which schedules with one preemption at most find it, and what they find.
FAULTS: dict[str, tuple[str, str, str, tuple[int, int], tuple[int, ...], str]] = {
    "a message is shown before it is written": (
        GRID, MESSAGE, MESSAGE.replace("    data[M_TS", "    store_release(f, TAIL, f[PUT] + 1)\n    data[M_TS"),
        (1, 1), MIXED, "Deadlock|RaceError",
    ),
    "a place is used again before it was read": (
        GRID, "return f[PUT] - f[HEARD] <= f[MASK]", "return f[PUT] - f[HEARD] <= f[MASK] + 1", (1, 1), MIXED, "before it was",
    ),
    "what is shown wakes nobody": (GRID, SHOWN, SHOWN.replace("wake_feed(c)", "pass"), (1, 2), MIXED, "Deadlock"),
    "room wakes nobody": (GRID, "    wake_feed(c)  # who hands on", "    pass  # who hands on", (1, 2), (0,) * 6, "Deadlock"),
    "the bound is that of the feed ahead": (GRID, LOWER, LOWER.replace("<=", ">="), (2, 1), TWO, "before it was stored"),
    "a row of the table is written too early": (EMITTER, "< mark - MARKS:", "< mark - 2 * MARKS:", (1, 2), TWO, "RaceError"),
    "one row more is met than was told of": (
        GRID, "rows_below(w, 1 - side, preceding)", "rows_below(w, 1 - side, preceding + 1)", (1, 1), MIXED, "before it was",
    ),
    "a mark is no end": (GRID, "if data[M_ORIGIN, at] == END:", "if data[M_ORIGIN, at] < 0:", (1, 1), MIXED, "not heard of all"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    module, text, other, layout, sides, words = FAULTS[fault]
    with pytest.raises(AssertionError, match=words):
        explore(scenario(layout, sides, faults={module: [(text, other)]}), preemptions=1, most_steps=4000)


# --- a segment that is written by one and read by others, where nobody is told: its words alone ---------------------------

ROWS = 5


def sharing(faults: Patches | None = None) -> Callable[[Clock], tuple[list[Thread], Callable[[], None]]]:
    """One writer, two sharers, room for two rows. Who waits sleeps on the word that it waits for, where workers look again."""
    found = NativeTwin((SEGMENT,), patches=faults)

    def start(clock: Clock) -> tuple[list[Thread], Callable[[], None]]:
        found.space = space = type(found.space)()
        block = space.words(seg.words(2))
        block[seg.CAP], block[seg.MASK], block[seg.SHARERS] = 2, 1, 2
        for word in (seg.TS, seg.ID, seg.REF):
            block[word] = address(space.words(2))
        ids = View(space, block[seg.ID] // 8)
        space.made(clock, 3)
        load, store = found.steps["load_acquire"], found.steps["store_release"]

        def writer() -> Thread:
            one = np.zeros(1, np.int64)
            for row in range(ROWS):
                while row + 1 - (yield from found(SEGMENT)["first_valid"](block)) > 2:
                    for sharer in range(2):
                        at = seg.FIRST + sharer * LINE
                        yield block, at
                        first = load(block, at)
                        if row + 1 - first > 2:
                            yield Sleep(block, at, first)
                number = np.full(1, row)
                yield from found(SEGMENT)["append"](block, 1, one, number, number, number, one, one, one, (), (), ())

        def sharer(own: int) -> Thread:
            first = 0
            while first < ROWS:
                yield block, seg.END
                end = load(block, seg.END)
                if end == first:
                    yield Sleep(block, seg.END, end)
                for row in range(first, end):
                    assert ids[row & 1] == row, "another row stands there"
                first = end
                yield block, seg.FIRST + own * LINE, first
                store(block, seg.FIRST + own * LINE, first)

        return [writer(), sharer(0), sharer(1)], lambda: None

    return start


def test_a_segment_that_is_shared() -> None:
    assert explore(sharing(), preemptions=1)[1] > 50
    sample(sharing(), seed=1, runs=150, switch=0.3)


@pytest.mark.parametrize("text", [
    ("    to_ts, to_id, to_ref =", "    store_release(s, END, end + n)\n    to_ts, to_id, to_ref ="),
    ("least = min(least, load_acquire(s, FIRST + k * LINE))", "least = max(least, load_acquire(s, FIRST + k * LINE))"),
], ids=["shown before it is written", "outlived by one of two"])  # fmt: skip
def test_a_fault_of_a_shared_segment_is_found(text: tuple[str, str]) -> None:
    with pytest.raises(AssertionError, match=r"RaceError|another row"):
        explore(sharing({SEGMENT: [text]}), preemptions=1)
