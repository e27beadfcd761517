"""A join's window: both sides' segments, and runs of merged tuples that enter and find their partners.

A *run* is a stretch of the totally ordered merge of both inputs. A tuple joins with earlier tuples only, so each pair
is found once, at its later tuple, the trigger. A run enters as a whole before it is probed: a tuple's range ends where
the tuples after it begin, so it never sees them. Runs longer than the window are cut, or chains would mostly hold rows
that are still to come. Then the window is purged of what can't be the partner of any later tuple.

This is a window for one thread: Spark's cells have one each, and tests hold it against the reference
(tests/core/join/test_against_reference.py). Workers on threads have memory of another kind (`threads/join`), and take
reach, the shape of grids and the text of kernels from the same places.

The order of the three steps differs from Kang's as ScaleJoin's section II gives them (compare, add, remove). Here a run
is added, then compared, then the window is purged. It comes to the same, since a tuple's range says exactly which rows it
may meet: what is purged late is outside of every range. (ScaleJoin's section III has a form that removes first, to
enforce the distance where there are no such ranges.)
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core.condition.columns import Interner
from plait.core.condition.leaves import shape as shape_of
from plait.core.join.choice import Choice, check_index, dimensions
from plait.core.join.encoded import EncodedRows, RowEncoder
from plait.core.join.index import GridIndex, HashIndex, Index, SortedIndex
from plait.core.join.match import Matcher
from plait.core.join.reach import reach_of
from plait.core.join.segment import Segment
from plait.core.kernels import pairs as pair_kernels
from plait.core.metrics import Counts
from plait.errors import RunError
from plait.order import BEFORE_ALL, TS_MIN
from plait.query.condition.predicate import Predicate
from plait.query.join import Window

_RUN_SHORTEST, _RUN_LONGEST = 4096, 1 << 16
_STEP_PAIRS = 1 << 19  # pairs found at once, about: what they are sorted in fits into caches


@dataclass(frozen=True)
class Pairs:
    """Results in result order: the trigger's position in the run, and both rows' ids.

    int64 arrays of one length. A row's id is its number in its stream, from `start_at` on. A pair's trigger is the later
    row of the two.
    """

    trigger: np.ndarray
    left: np.ndarray
    right: np.ndarray

    def __len__(self) -> int:
        return len(self.trigger)


class JoinWindow:
    """The window of a join whose condition is bound to the two schemas.

    `index` forces an index for study; `cache_dir` says where kernels are kept; `plain` runs them in Python.

    - `segments[side]`: the rows that the window keeps. `next_id[side]`: how many rows of the stream have come; all count,
      kept or not.
    - `choices[side]`, `_indexes[side]`: for probes into that side's segment.
    - `_step_rows`: how long the next stretch may be, so that one stretch makes about _STEP_PAIRS pairs.
    - `_stamps`: which ids were there when text was encoded, so that its codes can be forgotten when those rows have left.
    - `_last_ts[side]`: what the next run may not be below.
    """

    def __init__(self, predicate: Predicate, left: pa.Schema, right: pa.Schema, window: Window, *, index: str = "auto",
                 cache_dir: str | os.PathLike[str] | None = None, plain: bool = False) -> None:  # fmt: skip
        self.reach = reach_of(window)
        self.shape = shape_of(predicate, left, right)
        check_index(index, self.shape)
        self.dimensions = dimensions(self.shape)
        self.interner = Interner(self.shape.literals)
        self.encoder = RowEncoder(self.shape, self.dimensions, self.interner)
        self.matcher = Matcher(self.shape, self.interner, cache_dir=cache_dir, plain=plain)
        self.segments = (Segment(), Segment())
        self.choices = (Choice(self.shape, index), Choice(self.shape, index))  # for probes into that side
        self._indexes: tuple[dict[str, Index], dict[str, Index]] = ({}, {})
        self._step_rows = _RUN_LONGEST
        self.next_id = [0, 0]
        self._last_ts = [BEFORE_ALL, BEFORE_ALL]
        self._stamps: deque[tuple[int, int, int]] = deque()  # (stamp, next ids of both sides when it was taken)
        self.used = ["", ""]  # the index that served the last probes of each side
        self.counts = Counts()

    def start_at(self, left_id: int, right_id: int) -> None:
        """Number rows from here, as a window that is restored must; before any row has entered."""
        if any(self.next_id):
            raise RunError("Rows have entered this window already", why="their ids have been given out")
        self.next_id = [left_id, right_id]

    def expect(self, left: int, right: int) -> None:
        """So many rows of either side will come: there is room for them at once, so nothing is moved and no index built anew."""
        for segment, rows in zip(self.segments, (left, right), strict=True):
            segment.expect(rows)

    # --- entering and probing ---

    def process(
        self,
        side: np.ndarray,
        batches: tuple[pa.RecordBatch | pa.Table, pa.RecordBatch | pa.Table],
        ts: tuple[np.ndarray, np.ndarray],
        *,
        stored: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
        probe: bool = True,
    ) -> Pairs:
        """Let a run enter, and give the pairs it makes.

        `side[i]` says which input the i-th tuple of the run is of; `batches` and `ts` hold each side's rows in that
        order. `stored` marks the rows that this window keeps (all, by default): the others only probe, and count.
        With `probe` false rows only enter, as when a window is restored.

        Rows of a side must be in total order, and `side` the order of the merge; ties between the sides are told by it. A
        run costs a number of NumPy calls, however short it is, so runs should not be short.
        """
        return _joined(list(self.pieces(side, batches, ts, stored=stored, probe=probe)))

    def pieces(
        self,
        side: np.ndarray,
        batches: tuple[pa.RecordBatch | pa.Table, pa.RecordBatch | pa.Table],
        ts: tuple[np.ndarray, np.ndarray],
        *,
        stored: tuple[np.ndarray | None, np.ndarray | None] = (None, None),
        probe: bool = True,
    ) -> Iterator[Pairs]:
        """The same, piece by piece, so that a run with very many pairs need not hold them all; to be exhausted."""
        side = np.ascontiguousarray(side, dtype=np.uint8)
        self.interner.new_stamp()
        rows = tuple(self.encoder.rows(s, batches[s], self._times(s, ts[s])) for s in (0, 1))
        at, done = 0, [0, 0]
        while at < len(side):
            live = self.segments[0].live + self.segments[1].live
            part = side[at : at + min(max(live, _RUN_SHORTEST), _RUN_LONGEST, self._step_rows)]
            counts = (int(np.count_nonzero(part == 0)), int(np.count_nonzero(part == 1)))
            slices = tuple(slice(done[s], done[s] + counts[s]) for s in (0, 1))
            found = self._step(
                part, (rows[0].take(slices[0]), rows[1].take(slices[1])),
                (_part(stored[0], slices[0]), _part(stored[1], slices[1])), probe,
            )  # fmt: skip
            pairs = _in_order(found, part)
            yield Pairs(pairs.trigger + at, pairs.left, pairs.right)
            self._step_rows = int(min(max(len(part) * _STEP_PAIRS // (len(pairs) + 1), 64), _RUN_LONGEST))
            done = [done[0] + counts[0], done[1] + counts[1]]
            at += len(part)
        self._stamps.append((self.interner.stamp, self.next_id[0], self.next_id[1]))
        self._forget()

    def _times(self, side: int, ts: np.ndarray) -> np.ndarray:
        """A run's times, which must follow those before them: ranges are found by binary search."""
        ts = np.ascontiguousarray(ts, np.int64)
        if len(ts):
            if (ts[1:] < ts[:-1]).any() or ts[0] < self._last_ts[side]:
                raise RunError(
                    f"Tuples of {self.shape.predicate.names[side]} entered a window out of order",
                    why="a run must be a stretch of the total order",
                )
            self._last_ts[side] = int(ts[-1])
        return ts

    def _step(self, side: np.ndarray, rows: tuple[EncodedRows, EncodedRows], stored: tuple[np.ndarray | None, ...],
              probe: bool) -> list[_Found]:  # fmt: skip
        """Let a stretch of a run enter, find its pairs, and purge. Both sides enter before either probes: a kernel is
        chosen for the words of all rows. Pairs come in no order.
        """
        first_ids = list(self.next_id)
        ends = [segment.end for segment in self.segments]
        columns = []
        for s in (0, 1):
            ends[s] = self._enter(s, rows[s], stored[s])
        for s in (0, 1):
            columns.append(self.matcher.columns(s, rows[s]))  # after both: words may have been widened
        out = []
        if probe:
            for s in (0, 1):
                if len(rows[s]):
                    positions = np.flatnonzero(side == s)
                    lo, hi = self._ranges(s, side, positions, rows[s], stored[1 - s], ends[1 - s], first_ids[1 - s])
                    other = self.segments[1 - s]
                    for p, r in self._probe(s, rows[s], columns[s], lo, hi):
                        first = 0 if other.sparse else other.first_id
                        out.append(_Found(s, positions, p, other.ids(r) if other.sparse else r, first_ids[s], first))
        if len(side):
            last = [int(r.ts[-1]) for r in rows if len(r)]
            self._purge(max(last))
        return out

    def _enter(self, side: int, rows: EncodedRows, stored: np.ndarray | None) -> int:
        """Append rows to their segment; gives the position of the first of them.

        A row that is not stored still has an id and still counts for count windows. `admit` sees it, since it probes.
        """
        segment = self.segments[side]
        kept = rows if stored is None else rows.take(np.flatnonzero(stored))
        first_id = self.next_id[side]
        self.next_id[side] += len(rows)
        if segment.reserve(len(kept)):
            self.matcher.review(side, segment)
        self.matcher.admit(side, rows, segment)
        columns = self.matcher.columns(side, kept)
        nodes = kept.nodes()
        if nodes is not None:
            columns["node"] = nodes
        if stored is not None or segment.sparse:
            ids = first_id + (np.arange(len(rows)) if stored is None else np.flatnonzero(stored))
            if not segment.sparse:
                assert segment.end == 0, "a window keeps all rows, or says which from the start"
            columns["id"] = ids.astype(np.int64)
        elif segment.end == segment.start:
            segment.first_id = first_id - segment.end
        position = segment.end
        segment.append(kept.ts, columns)
        return position

    def _ranges(self, s: int, side: np.ndarray, positions: np.ndarray, rows: EncodedRows, stored: np.ndarray | None,
                first: int, first_id: int) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Each probe's range of the other side's window: what precedes it, as far back as the window reaches.

        `positions` are the probes' places in the stretch, `first` where this stretch's rows of the other side begin in
        its segment, `first_id` their first id. `hi` is behind the last row that precedes the probe; `lo` is where the
        window begins for it. Never lo > hi.
        """
        others = side != s
        before = np.cumsum(others)[positions]  # rows of the other side that precede the probe in this run
        if stored is None:
            hi = first + before
        else:
            kept = np.concatenate([[0], np.cumsum(stored)])
            hi = first + kept[before]
        lo = self.reach.first_row(self.segments[1 - s], s, rows.ts, first_id + before)
        return np.minimum(lo, hi).astype(np.int64), hi.astype(np.int64)

    def _probe(
        self, s: int, rows: EncodedRows, columns: dict[str, np.ndarray], lo: np.ndarray, hi: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """The pairs of one side's rows with the other side's window, in parts. Rows of pairs are positions in the other side's
        segment. A probe that is dead has an empty range, and costs nothing.
        """
        segment, choice = self.segments[1 - s], self.choices[1 - s]
        if rows.alive is not None:
            lo = np.where(rows.alive, lo, hi)
        spans = hi - lo
        probes = int(np.count_nonzero(spans))
        if probes == 0:
            return []
        kind = choice.pick(float(spans.sum()) / probes)
        self.used[s] = kind
        if kind == "scan":
            return [self._scan(s, columns, lo, hi)]
        index = self._index(1 - s, kind)
        index.sync(segment)
        wanted = ((spans > 0) & (rows.usable != 0)).astype(np.uint8)
        over = np.zeros(len(rows), np.uint8)
        parts = [
            self.matcher.verify(s, columns, segment, p, r)
            for p, r in index.probe(segment, rows, s, lo, hi, wanted, over)
        ]
        choice.observe(probes, int(over.sum()), index.steps)
        self.counts.comparisons += index.steps
        # What the index does not cover is scanned: probes that gave up, and rows not sorted yet.
        if isinstance(index, SortedIndex):
            parts.append(self._scan(s, columns, np.where(over, hi, np.minimum(np.maximum(lo, index.tail), hi)), hi))
        if over.any():
            parts.append(self._scan_some(s, columns, np.flatnonzero(over), lo, hi))
        return parts

    def _scan(
        self, s: int, columns: dict[str, np.ndarray], lo: np.ndarray, hi: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        self.counts.comparisons += int((hi - lo).sum())
        return self.matcher.scan(s, columns, lo, hi, self.segments[1 - s])

    def _scan_some(
        self, s: int, columns: dict[str, np.ndarray], some: np.ndarray, lo: np.ndarray, hi: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        picked = {name: np.ascontiguousarray(values[some]) for name, values in columns.items()}
        p, r = self._scan(s, picked, lo[some], hi[some])
        return some[p], r

    def _index(self, side: int, kind: str) -> Index:
        """The index over one side's window; only the one in use is kept."""
        kept = self._indexes[side]
        if kind not in kept:
            kept.clear()
            if kind == "hash":
                kept[kind] = HashIndex()
            elif kind == "grid":
                kept[kind] = GridIndex(self.dimensions, bool(self.shape.terms.equalities))
            else:
                kept[kind] = SortedIndex(self.dimensions)
        return kept[kind]

    # --- leaving ---

    def _purge(self, ts: int) -> None:
        """Drop what no tuple at or after `ts` can join with.

        By `Reach` with the newest ts and count: what the newest tuple does not meet, no later one does.
        """
        for s, segment in enumerate(self.segments):
            first = self.reach.first_row(segment, 1 - s, np.array([ts]), np.array([self.next_id[s]]))
            segment.expire(int(first[0]))

    def advance(self, ts: int) -> None:
        """No tuple below `ts` will come any more: purge, though nothing entered."""
        self._purge(max(ts, TS_MIN))  # no tuple lies below, and what a window is less may be beyond 64 bits
        self._forget()

    def _forget(self) -> None:
        """Give up the codes of text that no live row holds."""
        oldest = (segment.first_live_id() for segment in self.segments)
        first = [upcoming if live is None else live for upcoming, live in zip(self.next_id, oldest, strict=True)]
        while self._stamps and self._stamps[0][1] <= first[0] and self._stamps[0][2] <= first[1]:
            self._stamps.popleft()
        self.interner.forget(self._stamps[0][0] if self._stamps else self.interner.stamp + 1)

    def live_from(self, side: int) -> int:
        """The id of the oldest row that may still find a partner: payload before it can go."""
        first = self.segments[side].first_live_id()
        return self.next_id[side] if first is None else first

    @property
    def nbytes(self) -> int:
        """Memory held for the window, payload aside."""
        indexes = sum(index.nbytes for kept in self._indexes for index in kept.values())
        return sum(segment.nbytes for segment in self.segments) + indexes

    def describe(self) -> list[str]:
        """The terms, and which index serves probes into each side and why."""
        names = self.shape.predicate.names
        lines = self.shape.terms.describe() + self.matcher.signature().describe()
        return lines + [
            f"probes into {names[s]}: {self.used[1 - s] or c.kind} ({c.why})" for s, c in enumerate(self.choices)
        ]


def interleaved(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The order in which two sides' tuples of these times interleave, as the input of each: by ts, then left before right."""
    # A key begins with (ts, input): left precedes right at one ts, and within a side the order is there already.
    side = np.zeros(len(left) + len(right), np.uint8)
    side[np.arange(len(right)) + np.searchsorted(left, right, "right")] = 1
    return side


def _part(values: np.ndarray | None, at: slice) -> np.ndarray | None:
    return None if values is None else values[at]


def _joined(pieces: list[Pairs]) -> Pairs:
    if len(pieces) == 1:
        return pieces[0]
    parts = [(piece.trigger, piece.left, piece.right) for piece in pieces] or [(np.zeros(0, np.int64),) * 3]
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@dataclass(frozen=True)
class _Found:
    """Pairs of probes of one side: their numbers among these, and rows of the other side.

    `positions`: of the probes, in the stretch. Ids are `first_probe` plus the number, `first_row` plus the row.
    """

    side: int
    positions: np.ndarray
    probes: np.ndarray
    rows: np.ndarray
    first_probe: int
    first_row: int


def _in_order(parts: list[_Found], side: np.ndarray) -> Pairs:
    """Pairs of a stretch in result order; each is copied once."""
    starts = np.zeros(len(side) + 1, np.int64)
    for part in parts:
        pair_kernels.count_triggers(part.probes, part.positions, starts)
    pair_kernels.sum_up(starts)
    trigger, *ids = (np.empty(int(starts[-1]), np.int64) for _ in range(3))
    for part in parts:
        pair_kernels.place(part.probes, part.rows, part.positions, part.first_probe, part.first_row, starts, trigger,
                           ids[part.side], ids[1 - part.side])  # fmt: skip
    pair_kernels.sort_partners(side, starts, ids[0], ids[1])
    return Pairs(trigger, ids[0], ids[1])
