"""A source's tallies: its own part of every window it has tuples in, until the winset is taken. `HivePusher` brings its rows.

One thread at a time is in here for a source; nothing is shared but through the hive and `parts`, which the taker reads after it
has acquired what the source wrote last. Tallies and the arena's words are used again once the taker has let go of their pane.

A tally is a row of this source's accumulators, for one key in one pane; tallies are numbered for ever, and lie in a ring.
`_kept` has each tally's key. Python is here once a batch, in three steps: find every tuple's tally (`place`, one compiled
call), clear the new ones, update (`Accumulator.update`).

A source remembers, for the pane it is at, which tally each key has: small integers in `_direct`, by value, the others in
`_table`, by hash. Both hold numbers of tallies, which only rise; one below the pane's first tally is an old one and counts as
none, so neither is ever cleared. The hive is entered only for a pane or a key that is new to the source.

An example. Pane 7 begins when TALLY_END is 10: OPEN_TALLY is 10. Key 5, a small integer, comes: direct[5] says 3, which
is below 10 and so of an older pane. It gets tally 10, direct[5] = 10. The next tuple of key 5 finds 10 and adds to it,
without touching the hive. Pane 8 begins at TALLY_END 14: direct[5] = 10 is old again.

A source's accumulators are those of panes, their rows its tallies. What each function does there is its accumulator's
(`core.aggregate.accumulators`), and whether it can is in its record (`core.aggregate.functions`).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from plait.core.aggregate.accumulators import STEP_WORDS, Accumulator, in_ring
from plait.core.aggregate.columns import Read, is_fixed, ones, plain
from plait.core.aggregate.functions import accumulator_of
from plait.core.aggregate.groups import SMALL, Groups
from plait.core.aggregate.reads import Columns, uses
from plait.core.aggregate.span import span_window
from plait.core.aggregate.sums import Sum
from plait.core.machine.line import address, pages
from plait.core.machine.marks import brief, compiling
from plait.errors import RunError
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.threads.aggregate.hive import hive, usual
from plait.threads.aggregate.hive import words as y
from plait.threads.aggregate.hive.memory import Hive
from plait.threads.aggregate.hive.place import pane_at, place_inside, reindex
from plait.threads.aggregate.hive.pool import Batch, Pool
from plait.threads.aggregate.hive.promises import FAR, promise_inside
from plait.threads.aggregate.hive.usual import use_again_inside
from plait.threads.aggregate.reads import KeyedBits
from plait.threads.gate import Gate
from plait.threads.ground import Ground
from plait.threads.input.intake import Inlet, Inside, Steps, StreamIntake
from plait.threads.input.push import Pusher
from plait.threads.input.sequence import Admitted
from plait.threads.life.pause import Pauser
from plait.threads.parts import Encodes

if TYPE_CHECKING:
    from plait.threads.aggregate.engine import Updater
    from plait.threads.aggregate.hive.windows import HiveWindows

CHUNK = 1 << 16  # tuples that are added at once, unless batch= says otherwise
FIRST_SHEET = 1 << 8  # rows
NAP_S = 0.0002
FIRST_TABLE, FIRST_PANES = 1 << 11, 256
#: Room for tallies at first: so many bytes, about, and so many tallies. Memory that nobody has touched costs nothing, and growth
#: copies all that is live; but a ring is touched all over by and by.
FIRST_BYTES, FIRST_TALLIES = 1 << 21, 1 << 16
SUM_WORDS = 12  # of an exact sum, once it has limbs for usual values


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


def _note(inlet: Inlet, last: int) -> None:
    """So many have been added up by this ts: the gate has no tuples, by which those that wait could be counted."""
    if inlet.steps is None:
        inlet.steps = Steps()
    inlet.steps.note(last, inlet.added)


class HivePusher(Pusher):
    """Sources in front of the W-Hive. `output` takes winsets out, and says so by `moved`.

    The difference to `Pusher`: `_furnish` makes tallies instead of an arena, `_enter` updates tallies instead of filling
    the gate, and the hive hears of a promise, or an end, before the gate does.
    """

    def __init__(self, ground: Ground, pauser: Pauser, payloads: Mapping[str, Any], encoder: Encodes, *,
                 widen: Callable[[], None], windows: HiveWindows, tallies: SourcesTallies, output: Updater,
                 moved: tuple[Any, threading.Condition], threads: int) -> None:  # fmt: skip
        self._windows, self._tallies, self._output = windows, tallies.by_slot, output
        self._guard, self._moved = moved
        self._most = ground.options.batch or CHUNK
        self._keyed, self._onward = KeyedBits(windows.columns, windows.groups), ground.together.onward
        self._sheets: list[np.ndarray] = []
        self.pool = None if threads == 1 else Pool(threads, ground, windows.hive, self.go_on)
        super().__init__(ground, pauser, payloads, encoder, widen=widen, reads=self._keyed.reads)

    def _furnish(self, slot: int, input: int, min_ts: int) -> None:
        self._tallies[slot] = tallies = self._windows.tallies(slot)
        tallies.shortly(self._keyed, self.gate, onward=self._onward)
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
        self._settle(slot)
        tallies, ts = self._tallies[slot], np.ascontiguousarray(ts)
        for first in range(0, n, self._most):
            last = min(first + self._most, n)
            self._wait_for_room(slot, tallies)
            tallies.take(
                rows if last - first == n else rows.slice(first, last - first), ts[first:last], ref[first:last]
            )
            inlet.added += last - first
            _note(inlet, int(ts[last - 1]))
            self._promise(inlet, progress if last == n else int(ts[last - 1]))

    def _pushed_at_once(self, intake: StreamIntake, name: Any, batch: pa.RecordBatch, pushed_ns: int) -> int:
        """As `Pusher._pushed_at_once`: what is read of a usual batch comes out of one compiled call, and nothing is laid out."""
        n: int = batch.num_rows
        inlet = intake.inlets.get(0 if name is None else name) if type(name) is not bool else None
        if inlet is None or inlet.ended or intake.ended or n > self._most:
            return 0
        with Inside(inlet, intake.stream.name):
            (slot,) = inlet.slots.values()
            tallies, way = self._tallies[slot], self._short[intake.stream.name]
            low, floor = max(inlet.largest, inlet.heartbeat, self._bound(intake)), max(inlet.heartbeat, inlet.let_go)
            exported = way.exported(batch)
            if exported is None:
                return 0
            sheet = self._sheet(n)
            if self.pool is not None:
                last = way.looked_at(exported.struct, n, low, sheet)
                self._sheets.append(sheet)
                if last is None:
                    return 0
                self._count(inlet, n, last)
                self.pool.hand_on(Batch(tallies, way.time, exported, n, low, floor, last, pushed_ns))
                return n
            found = tallies.take_usual(exported.struct, n, way.time, low, floor, pushed_ns, sheet)
            if found == usual.UNUSUAL:
                self._sheets.append(sheet)
                return 0
            told = tallies.told
            self._count(inlet, n, int(told[usual.T_LAST]))
            if found == usual.READ:
                self._wait_for_room(slot, tallies)
            if found in (usual.READ, usual.PLACED):
                tallies.finish(found, n, sheet)
            if found == usual.DONE:
                self._answer(slot, int(told[usual.T_CODE]))
                self.latency.advanced(int(told[usual.T_FRONTIER]), pushed_ns)
            else:
                self._promise(inlet, inlet.progress(intake.stream))
            self._sheets.append(sheet)
        return n

    def _count(self, inlet: Inlet, n: int, last: int) -> None:
        """So many rows of a source have entered, or are about to."""
        inlet.largest, inlet.spoke_ns = last, time.monotonic_ns()
        inlet.delivered += n
        inlet.taken += n
        inlet.added += n
        _note(inlet, last)

    def go_on(self, found: int, batch: Batch, sheet: np.ndarray, first: Callable[[], bool]) -> None:
        """What a thread of the pool does with a batch that one compiled call could not take to its end.

        `first`: whether all batches that were pushed before this one are done.
        """
        tallies, slot = batch.tallies, batch.tallies.slot
        if found == usual.READ:
            self._wait_for_room(slot, tallies, first)
        if found in (usual.READ, usual.PLACED):
            tallies.finish(found, batch.rows, sheet)
        code = int(tallies.told[usual.T_CODE])
        if found != usual.DONE:
            code, _ = tallies.promise(max(batch.last, batch.floor), self.gate.words, onward=self._onward)
        self._answer(slot, code)

    def _settle(self, slot: int) -> None:
        """What the pool still has of a source is done: now its tallies are whose who calls this."""
        if self.pool is not None:
            self.pool.settle(slot)

    def _sheet(self, n: int) -> np.ndarray:
        """Scratch for so many rows. What was given back last comes first: it lies in a cache still."""
        rows = usual.SHEET_ROWS + self._keyed.rows
        try:
            sheet = self._sheets.pop()
        except IndexError:
            sheet = np.empty(0, np.int64)
        return sheet if len(sheet) >= rows * n else np.empty(rows * max(n, FIRST_SHEET), np.int64)

    def _keep(self, intake: StreamIntake, inlet: Inlet, admitted: Admitted, pushed_ns: int | np.ndarray) -> np.ndarray:
        """No row is kept, and none has a number: all that is asked of one is when it was pushed, which stands in its place."""
        inlet.taken += len(admitted.ts)
        if isinstance(pushed_ns, np.ndarray):
            return pushed_ns
        return np.broadcast_to(np.int64(pushed_ns), len(admitted.ts))

    def _promise(self, inlet: Inlet, progress: int) -> None:
        """At the hive, then at the gate: whoever sees the frontier there finds the tallies."""
        if progress == BEFORE_ALL:
            return
        began = time.monotonic_ns()
        for slot in inlet.slots.values():
            self._settle(slot)
            code, frontier = self._tallies[slot].promise(progress, self.gate.words, onward=self._together.onward)
            self._answer(slot, code)
            self.latency.advanced(frontier, began)

    def _end_at(self, slot: int) -> None:
        self._settle(slot)
        self._tallies[slot].written(AFTER_ALL)
        super()._end_at(slot)

    def _vacated(self, inlet: Inlet) -> bool:
        return all(self._tallies[slot].live() == 0 for slot in inlet.slots.values())

    def _readable(self, inlet: Inlet) -> bool:
        """Its last window's pane is complete: the output thread may take it."""
        frontier = self.gate.frontier()[0]
        tallies = [self._tallies[slot] for slot in inlet.slots.values()]
        return all(each.pane(inlet.largest) < each.pane(frontier) for each in tallies)

    def _wait_for_room(self, slot: int, tallies: Tallies, first: Callable[[], bool] | None = None) -> None:
        """Too many tallies in panes that wait for another source are an error; in complete ones that nobody took, a wait.

        `pending` limits tallies in panes that another source holds back: there waiting might be for ever, so that is an
        error, as at the gate. `capacity` limits tallies in panes that are complete and not taken: there the output
        thread, or the reader of results behind it, has to catch up. A thread of the pool has a third reason to wait: rows of
        other sources that were pushed before these may still be on their way. With `first` it waits for them.
        """
        since, seen = time.monotonic(), -1
        pending, capacity = self.gate.pending, self.gate.capacity
        while tallies.live() > pending:
            alone = first is None or first()  # before the frontier, which is behind them then
            frontier = self.gate.frontier()[0]
            ahead = tallies.ahead(frontier)
            if ahead > pending and not alone:
                self._pauser.pause()
                time.sleep(NAP_S)
                continue
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
            if first is not None:
                self._pauser.pause()


class Parts(NamedTuple):
    """What the taker may read of a source's tallies while the source goes on adding to later ones.

    For complete panes these arrays no longer change. A later growth makes new arrays and leaves these be. `kept`: their keys;
    `window`: the places of their windows, where these are shared; `slots`: what each function keeps; `words`: where keys and
    slots lie, as `merging` reads it.
    """

    kept: np.ndarray
    window: np.ndarray
    slots: list[np.ndarray]
    words: list[int]


class Tallies:
    """One source's. `parts` are those as of its last batch.

    Attributes: `accumulators` one a function of the query; `_window` the place of each tally's window, where windows
    are shared; `_own` the words of `place`; `_panes` this source's panes that were not let go of; `_direct` and
    `_table` key to tally; `_small` whether a key is one column of fixed width, and no float.
    """

    def __init__(self, bound: Bound, hive_: Hive, slot: int, columns: Columns, groups: Groups, *, shared: bool) -> None:
        assert isinstance(bound.node, Aggregate)
        window, schema = span_window(bound), bound.inputs[0].schema
        self.size, self.advance = window.size_us, window.advance_us
        self.slot, self._hive, self._columns, self._groups = slot, hive_, columns, groups
        self.accumulators = _accumulators(bound.node, schema)
        self._singles = [single for each in self.accumulators for single in each.singles()]
        tallies = self._first_tallies(hive_.keys)
        for accumulator in self.accumulators:
            accumulator.regrow(tallies, 0, 0)
        self._shared = shared
        self._window = np.zeros(tallies if shared else 0, np.int64)
        self._kept = pages((hive_.keys, tallies))
        self.parts = self._frozen()
        self._own, self._told = np.zeros(y.OWN_WORDS, np.int64), np.zeros(2, np.int64)
        self._panes = np.zeros(
            (3, FIRST_PANES), np.int64
        )  # of each pane not let go of: number, first tally, first word
        self._direct, self._table = np.full(SMALL, -1, np.int64), np.full(FIRST_TABLE, -1, np.int64)
        kind = schema.field(bound.node.by[0]).type if bound.node.by else None
        self.told = np.zeros(usual.TOLD_WORDS, np.int64)  # by `take_usual`
        self.desk = np.zeros(usual.DESK_WORDS, np.int64)
        self._small = len(bound.node.by) == 1 and is_fixed(kind) and not pa.types.is_floating(plain(kind))

    def _first_tallies(self, keys: int) -> int:
        words = keys + sum(SUM_WORDS if isinstance(each, Sum) else each.width for each in self._singles)
        found = FIRST_TALLIES
        while found > 64 and found * words * 8 > FIRST_BYTES:
            found //= 2
        return found

    def shortly(self, keyed: KeyedBits, gate: Gate, *, onward: bool) -> None:
        """What the short way has to know of the run: what is read of a row, and the gate."""
        self._keyed, self._gate, self._onward = keyed, gate, onward
        self.sheet_rows = usual.SHEET_ROWS + keyed.rows

    def take_usual(self, struct: int, n: int, time: tuple[int, int, int, int], low: int, floor: int, pushed_ns: int,
                   sheet: np.ndarray) -> int:  # fmt: skip
        """A batch by one compiled call (`usual`): how far it came. It may not be usual: then nothing is changed."""
        if not self.desk[usual.D_GOOD]:
            self.lay_desk(time)
        told = self.told
        told[usual.T_REF] = pushed_ns
        words, layout = self._hive.now
        call = usual.take_few if n <= usual.FEW else usual.take_usual
        return int(call(struct, n, low, floor, words, layout, self.desk, sheet, ones(n), told))

    def lay_desk(self, time: tuple[int, int, int, int]) -> None:
        """Say where everything lies now; it holds until an array is replaced."""
        keyed, panes = self._keyed, self._panes
        reads = keyed.reads(0)
        assert reads is not None
        self._steps = np.array([each.step(keyed.at) for each in self._singles], np.int64).reshape(-1, STEP_WORDS)
        self.desk[:] = (
            *time, address(reads.table), len(reads.table), keyed.rows, keyed.keys, self.advance, self.size % self.advance,
            self.size < self.advance, self._small, self._shared, self._hive.door_at, address(self._gate.words), self._onward,
            self._gate.pending, self._gate.capacity, self.slot, address(self._own), address(panes), panes.shape[1],
            address(self._direct), len(self._direct), address(self._table), len(self._table), address(self._kept),
            self._kept.shape[1], address(self._window), address(self._steps), len(self._steps), address(self.told), 1,
        )  # fmt: skip

    def finish(self, found: int, n: int, sheet: np.ndarray) -> None:
        """Go on with a batch that one compiled call could not take to its end, from where it stands."""
        told, keyed = self.told, self._keyed
        room = len(sheet) // (usual.SHEET_ROWS + keyed.rows)
        ts, out = sheet[:n], sheet[2 * room : 2 * room + n]
        bits = sheet[usual.SHEET_ROWS * room :][: keyed.rows * n].reshape(keyed.rows, n)
        read, words = keyed.read(bits, n)
        high = int(told[usual.T_HIGH])
        if found == usual.PLACED:
            step, low = int(told[usual.T_STEP]), int(told[usual.T_AT])
            for each in self._singles[step:]:
                each.update(low, high, out, read, ts)
                low = 0
            if high < n:
                self._make_room(n - high)
        self.update(read, words, ts, told[usual.T_REF :][:1].copy(), high)

    def take(self, rows: pa.RecordBatch | pa.Table, ts: np.ndarray, ref: np.ndarray) -> None:
        """Tuples of this source, in its order: what is read of them, their keys, their tallies; these are updated.

        `ref`: when they were pushed. By the thread that pushes the source.
        `parts` is replaced at the end: the taker reads it after it has acquired WRITTEN.
        """
        n, columns = len(ts), self._columns
        read = columns.read(columns.arrays(rows, ts), n)
        varied = rows.select(list(columns.varied)) if columns.varied else None
        words = self._groups.key_words(read, varied, n, int(ts[-1]))
        # One moment for all where one push brought them.
        self.update(read, words, ts, np.ascontiguousarray(ref if ref.strides[0] else ref[:1]))

    def update(self, read: Read, words: np.ndarray, ts: np.ndarray, ref: np.ndarray, first: int = 0) -> None:
        """As `take`, of columns and keys as arrays, from the `first` tuple on; `ref`: a moment for each tuple, or one for all."""
        for low, high, tally in self._placed(ts, words, ref, first):
            for each in self._singles:
                each.update(low, high, tally, read, ts)
        self.parts, self.desk[usual.D_GOOD] = self._frozen(), 0

    def _placed(
        self, ts: np.ndarray, words: np.ndarray, ref: np.ndarray, low: int
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        """The tally of each tuple from `low` on, from one to before another; new tallies are clear.

        If memory runs out in the midst of a batch, what was placed is given first, then more is made, then it goes on.
        """
        n, own, flat = len(ts), self._own, words.reshape(-1)
        out = np.empty(n, np.int64)
        rest, gaps = self.size % self.advance, self.size < self.advance
        self._use_again()
        while low < n:
            before = int(own[y.TALLY_END])
            high = self._hive.called(
                place_inside, self.slot, ts, words, flat, low, n, self.advance, rest, gaps, self._small, self._shared, own,
                *self._panes, self._direct, self._table, self._kept, self._window, ref, out,
            )  # fmt: skip
            self._clear(before, int(own[y.TALLY_END]))
            yield low, high, out
            if high < n:
                self._make_room(n - high)
            low = high

    def _frozen(self) -> Parts:
        words = [address(self._kept), self._kept.shape[1]]
        for each in self._singles:
            words += each.ring()
        return Parts(self._kept, self._window, [each.slots for each in self._singles], words)

    def written(self, ts: int) -> None:
        """No tuple below `ts` comes any more."""
        self._hive.called(hive.advance_inside, self.slot, self.pane(ts))

    def promise(self, ts: int, gate: np.ndarray, *, onward: bool) -> tuple[int, int]:
        """As `written`, and then at the gate: its answer, and its frontier after it. `onward`: see `promises`."""
        out, rest = self._told, self.size % self.advance
        self._hive.called(promise_briefly, self.slot, gate, ts, self.advance, rest, onward, out)
        return int(out[0]), int(out[1])

    def pane(self, ts: int) -> int:
        """The pane of a ts that a source may promise, the first and the last included."""
        return pane_of_promise(ts, self.size, self.advance)

    def ahead(self, ts: int) -> int:
        """Tallies in panes after the one `ts` lies in."""
        own, pane = self._own, self.pane(ts)
        end = int(own[y.PANE_END])
        at = bisect_right(self._panes[0, :end], pane)
        return 0 if at == end else int(own[y.TALLY_END] - self._panes[1, at])

    def live(self) -> int:
        """Tallies in panes that the taker has not let go of."""
        self._use_again()
        return int(self._own[y.TALLY_END] - self._own[y.TALLY_FREED])

    @property
    def nbytes(self) -> int:
        own = (self._kept, self._window, self._direct, self._table, self._panes)
        return sum(a.nbytes for a in self.accumulators) + int(sum(a.nbytes for a in own))

    def _clear(self, first: int, end: int) -> None:
        """Neutral values for tallies [first, end), which may lie at both ends of the ring."""
        mask = self._kept.shape[1] - 1
        if end > first:
            low, high = first & mask, (end - 1 & mask) + 1
            spans = [(low, high)] if low < high else [(low, mask + 1), (0, high)]
            for accumulator in self.accumulators:
                for span in spans:
                    accumulator.wipe(*span)

    def _use_again(self) -> None:
        """Tallies and words of panes that the taker has let go of.

        The first look is plain and costs nothing; it may see an old PASSED, and then memory is freed a little later.
        """
        own, panes = self._own, self._panes
        if own[y.PANE_END] == 0 or panes[0, 0] >= self._hive.now[0][y.PASSED]:
            return  # a glance, which may be at old memory, where less has been let go of
        self._hive.called(use_again, self.slot, own, panes)

    def _make_room(self, n: int) -> None:
        """More of what there was too little of.

        NEED says what was short. Each kind grows alone, mostly by four: nodes and arenas are the hive's (all sources
        stop for that), the others this source's own.
        """
        own = self._own
        first, end = int(own[y.TALLY_FREED]), int(own[y.TALLY_END])
        self._use_again()
        match int(own[y.NEED]):
            case y.NODES:
                self._hive.grow(self.slot, nodes=True)
            case y.ARENA:
                self._hive.grow(self.slot, nodes=False)
            case y.PANES:
                self._panes = np.concatenate((self._panes, np.zeros_like(self._panes)), axis=1)
            case y.TALLIES:
                first = int(own[y.TALLY_FREED])
                capacity = self._kept.shape[1]
                while end - first + n > capacity // 2:
                    capacity *= 4
                for accumulator in self.accumulators:
                    accumulator.regrow(capacity, first, end)
                kept = pages((len(self._kept), capacity))
                for row, wider in zip(self._kept, kept, strict=True):
                    in_ring(row, wider, first, end)
                self._kept = kept
                if self._shared:
                    self._window = in_ring(self._window, pages(capacity), first, end)
            case _:
                opened = int(own[y.OPEN_TALLY])
                capacity = len(self._table)
                while 4 * (end - opened + n) > capacity:
                    capacity *= 4
                self._table = np.full(capacity, -1, np.int64)
                reindex(self._kept, opened, end, self._table)


@brief
def promise_briefly(
    d: Any, layout: Any, h: Any, slot: Any, g: Any, ts: Any, step: Any, rest: Any, onward: Any, out: Any
) -> Any:
    """`promises.promise_inside`, as Python calls it."""
    return promise_inside(d, layout, h, slot, g, ts, step, rest, onward, out)


@brief
def pane_briefly(ts: Any, size: Any, advance: Any) -> Any:
    """`place.pane_at`, as Python calls it."""
    return pane_at(ts, size, advance)


@brief
def use_again(d: Any, layout: Any, h: Any, slot: Any, own: Any, panes: Any) -> Any:
    """`usual.use_again_inside`, as Python calls it."""
    return use_again_inside(d, layout, h, slot, own, panes)


def _accumulators(node: Aggregate, schema: pa.Schema) -> list[Accumulator]:
    """One source's, in the order of the query's functions. `designs.unmerged_in` has let the query pass: all have one."""
    made = [accumulator_of(use) for use in uses(node, schema)]
    return [each.of_source() for each in made if each is not None]


def pane_of_promise(ts: int, size: int, advance: int) -> int:
    """The pane of a ts, of one beyond all tuples too: as far as its number fits."""
    if ts == BEFORE_ALL:
        return y.FIRST
    if ts == AFTER_ALL:
        return y.LAST
    return int(pane_briefly(min(ts, FAR), size, advance))
