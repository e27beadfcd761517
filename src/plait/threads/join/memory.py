"""The memory of a join's workers, as Python holds it: arrays that are kept alive, and the words that name them.

Everything here is changed only before the workers start, while they stand still (`threads.life.pause`), or by the one worker that
uses it.

Shapes: a segment's columns have CAP rows, a power of two; leaf columns twice that (`loop.segment` says why). A
worker's batch arrays have `most` columns, one a tuple. All words are int64; addresses are words too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.core.join.index import grid_shape
from plait.core.join.reach import Reach
from plait.core.kernels import chains
from plait.core.machine.line import LINE, address, lines, pages
from plait.core.metrics import Counts
from plait.order import BEFORE_ALL
from plait.query.join import HOWS
from plait.threads import words as shared
from plait.threads.join import parting
from plait.threads.join.asof_codes import AsofCodes
from plait.threads.join.asof_memory import AsofMemory
from plait.threads.join.columns import Column, Encoder, Kernels
from plait.threads.join.loop import feed, gather, grid, moves
from plait.threads.join.loop import segment as seg
from plait.threads.join.loop import words as o
from plait.threads.join.loop.gather import NEVER, STRICT, Precision
from plait.threads.join.loop.probe import BLOCK, BOXES
from plait.threads.join.strategies.plan import Parts, Plan

KINDS = {"scan": o.SCAN, "hash": seg.HASH, "grid": seg.GRID, "sorted": seg.SORTED}
KINDS_OF_JOIN = {"inner": o.INNER, "left": o.LEFT, "right": o.RIGHT, "full": o.FULL, "semi": o.SEMI, "anti": o.ANTI}
FIRST_ROWS = 4096
MERGED = 4096  # results that a merger takes at once, at most


class Segment:
    """One window segment.

    `side`: whose tuples, 0 left or 1 right. `sharers`: how many workers use it. `matched`: rows have a flag of each sharer's,
    where a join notes which have found a partner. `parted`: tuples go by values, and rows have a word (`loop.stretches`).
    `stays_us`: how long a row is met, for the guess in `_expected`. `block` is what compiled code gets; `arrays` and `columns`
    keep alive what it points to.
    """

    def __init__(
        self,
        side: int,
        sharers: int,
        encoder: Encoder | AsofCodes,
        *,
        matched: bool,
        parted: bool = False,
        stays_us: int = 0,
        rows: int = FIRST_ROWS,
    ) -> None:
        self.side, self.encoder = side, encoder
        self.block = lines(seg.words(sharers))
        self.block[seg.SHARERS] = sharers
        self.block[seg.HAS_NODE] = int(encoder.has_node)
        self.matched, self.parted, self.stays_us = matched, parted, stays_us
        self.arrays: dict[str, np.ndarray] = {}
        self.columns: dict[str, np.ndarray] = {}
        self._allocate(rows)

    @property
    def sharers(self) -> int:
        return int(self.block[seg.SHARERS])

    @property
    def first(self) -> int:
        """The first position that some sharer may still look at: rows below it need not be copied."""
        b = self.block
        return min(int(b[seg.FIRST + k * LINE]) for k in range(int(b[seg.SHARERS])))

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (*self.arrays.values(), *self.columns.values()))

    def _allocate(self, cap: int) -> None:
        b = self.block
        b[seg.CAP], b[seg.MASK] = cap, cap - 1
        self.arrays = {name: pages(cap) for name in ("ts", "id", "ref")}
        if self.encoder.has_node:
            self.arrays |= {"node": pages((cap, 4)), "usable": np.zeros(cap, np.uint8)}
        if self.matched:
            self.arrays["matched"] = np.zeros((self.sharers, cap), np.uint8)
        if self.parted:
            self.arrays["word"] = pages(cap)
        self.columns = {name: pages(2 * cap, kind) for name, kind in self.encoder.columns(self.side)}
        self._name()

    def _name(self) -> None:
        """Write the arrays' addresses into the block; after every allocation, or workers would read freed memory."""
        b, a = self.block, self.arrays
        b[seg.TS], b[seg.ID], b[seg.REF] = address(a["ts"]), address(a["id"]), address(a["ref"])
        b[seg.NODE] = address(a["node"]) if "node" in a else 0
        b[seg.USABLE] = address(a["usable"]) if "usable" in a else 0
        b[seg.MATCHED] = address(a["matched"]) if "matched" in a else 0
        b[seg.WORD] = address(a["word"]) if "word" in a else 0
        b[seg.NCOLS] = len(self.columns)
        for at, column in enumerate(self.columns.values()):
            b[seg.COLS + at], b[seg.SIZES + at] = address(column), column.itemsize

    def grow(self, rows: int) -> None:
        """Room for twice what is live and `rows` more.

        Positions stay what they are; only `position & MASK` changes. So probes under way, chains of an index and the
        sharers' FIRST words mean the same before and after. The index is built anew, since its table has the ring's
        size.
        """
        b = self.block
        first, end, old_mask = self.first, int(b[seg.END]), int(b[seg.MASK])
        cap = int(b[seg.CAP])
        while cap < max(2 * (end - first + rows), self._expected(first, end, old_mask)):
            cap *= 2
        old, old_columns = self.arrays, self.columns
        self._allocate(cap)
        pairs = [
            (old[name], self.arrays[name], 0) for name in ("ts", "id", "ref", "node", "usable", "word") if name in old
        ]
        if self.matched:
            pairs += [(*each, 0) for each in zip(old["matched"], self.arrays["matched"], strict=True)]
        pairs += [(column, self.columns[name], 1) for name, column in old_columns.items()]
        told = [(address(a), address(b), a.nbytes // len(a), twice) for a, b, twice in pairs]
        moves.move_rows(np.array(told, np.int64), first, end, old_mask + 1, cap)
        if b[seg.KIND]:
            self.build(int(b[seg.KIND]))

    def _expected(self, first: int, end: int, mask: int) -> int:
        """How many rows a time window will hold at the rate seen so far: growing once is better than doubling five times.

        Those who share it stand still meanwhile. No more than sixteen times what there is: a rate may have been a burst.
        """
        live = end - first
        if self.stays_us <= 0 or live < 2:
            return 0
        span = int(self.arrays["ts"][(end - 1) & mask]) - int(self.arrays["ts"][first & mask])
        return min(live * self.stays_us // max(span, 1) * 5 // 4, 16 * live)

    def convert(self, after: list[Column]) -> None:
        """Columns in other types, or of other number, than before. One that is new has the neutral value for all rows."""
        old = self.columns
        self.columns = {}
        for column in after:
            made = self.encoder.converted(old.get(column[0]), column, self.side)
            self.columns[column[0]] = np.ones(2 * int(self.block[seg.CAP]), column[1]) if made is None else made
        self._name()

    def build(self, kind: int) -> None:
        """Build an index over the live rows; from then on the writer keeps it up.

        `kind` is HASH, GRID or SORTED. BUILT remembers where: a grid whose boxes no longer fit is built again after
        some windows (`probe.probe_side`). A sorted index has chunks of 1,024 rows to 131,072, as the ring is long.
        """
        b, cap = self.block, int(self.block[seg.CAP])
        first, end = self.first, int(b[seg.END])
        b[seg.KIND], b[seg.BUILT] = kind, end
        if kind == seg.SORTED:
            size = 1024
            while size < cap // 32 and size < 1 << 17:
                size *= 2
            self.arrays |= {"sort_keys": np.zeros(cap), "sort_order": np.zeros(cap, np.int64)}
            self.arrays["sort_sizes"] = np.full(cap // size, -1, np.int64)
            for word, name in (
                (seg.SORT_KEYS, "sort_keys"),
                (seg.SORT_ORDER, "sort_order"),
                (seg.SORT_SIZES, "sort_sizes"),
            ):
                b[word] = address(self.arrays[name])
            b[seg.CHUNK] = size
            b[seg.COVERED] = first // size * size
        else:
            self.arrays["head"] = np.full(cap, -1, np.int64)
            b[seg.HEAD], b[seg.HEAD_MASK] = address(self.arrays["head"]), cap - 1
            if kind == seg.GRID:
                self._shape_grid(first, end, cap)
            b[seg.COVERED] = first
        seg.cover(b, end)

    def _shape_grid(self, first: int, end: int, cap: int) -> None:
        """Boxes after the live rows' spread, as `core.join.index` has them."""
        at = np.arange(first, end) & (cap - 1)
        live = self.arrays["usable"][at] != 0
        assert isinstance(self.encoder, Encoder)
        coords = np.ascontiguousarray(self.arrays["node"][at][live]).view(np.float64)[:, chains.X :]
        keyed = bool(self.encoder.shape.terms.equalities)
        inverse, masks = grid_shape(self.encoder.dimensions, keyed, coords, cap)
        self.arrays |= {"inverse": inverse, "masks": masks}
        self.block[seg.INVERSE], self.block[seg.MASKS] = address(inverse), address(masks)


class Worker:
    """The memory of one worker: `words`, the arrays of its batch, its ring of results.

    `batch`: rows B_* of `loop.words`, a column a tuple. `probes[side]`: rows P_*. `usable[side]`: whether a probe may be looked
    up in an index. `parted`: which tuples are its own, where they go by values. `pairs`: four rows, candidates and then
    results. `asof`: what an as-of join's worker keeps. `over`, `ranges`, `walk`, `tally`: scratch of the probing functions.
    `out`: the ring of results, one entry a row. `columns[side]`: the batch's leaf columns.
    """

    def __init__(self, number: int, plan: Plan, segments: tuple[list[Segment], list[Segment]], encoder: Encoder | AsofCodes,
                 reach: Reach | int, how: str, *, most: int, results: int, arena_mask: int,
                 asof: AsofMemory | None = None) -> None:  # fmt: skip
        seat = plan.seats[number]
        self.number, self.encoder, self.most, self.asof = number, encoder, most, asof
        self.words = w = lines(o.WORDS)
        self.block = np.zeros(256, np.int64)
        self.batch = pages((o.B_ROWS, most))
        self.probes = tuple(pages((o.P_ROWS, most)) for _ in range(2))
        self.usable = tuple(np.zeros(most, np.uint8) for _ in range(2))
        self.pairs = pages((4, 1 << 15))
        self.over = np.zeros(most, np.uint8)
        self.ranges = pages((most, 4), np.float64)
        self.walk = np.zeros((3, max(BLOCK * BOXES, 4096)), np.int64)
        self.tally = np.zeros(8, np.int64)
        self.out = pages((results, o.E_WORDS))
        self.columns: list[dict[str, np.ndarray]] = [{}, {}]
        self.bands = encoder.bands()
        w[o.SEAT], w[o.MOST], w[o.ARENA_MASK] = number, most, arena_mask
        w[o.HOW], w[o.HAS_NODE] = KINDS_OF_JOIN[how], int(encoder.has_node)
        w[o.BLOCK], w[o.OUT], w[o.OUT_MASK] = address(self.block), address(self.out), results - 1
        w[o.FORCED] = o.AUTO if encoder.index == "auto" else KINDS[encoder.index]
        w[o.WANTED] = KINDS[encoder.usual_index]
        w[o.DIMENSIONS], w[o.BANDS] = len(encoder.dimensions), address(self.bands)
        w[o.BAND_TERMS] = int(encoder.has_bands)
        w[o.ASOF] = 0 if asof is None else address(asof.block)
        for side in (0, 1):
            w[o.SEGMENT + side] = address(segments[side][seat.segment[side]].block)
            w[o.SHARER + side] = plan.sharers(side, seat.segment[side]).index(number)
            w[o.WRITER + side] = int(seat.writer[side])
            w[o.STORE_EVERY + side], w[o.STORE_AT + side] = seat.store_every[side], seat.store_at[side]
            w[o.PROBE_EVERY + side], w[o.PROBE_AT + side] = seat.probe_every[side], seat.probe_at[side]
            w[o.NEXT_REST + side] = 1
            w[o.NOTED + side] = int(side in HOWS[how].whole)
            w[o.ALONE + side] = len(plan.seats) // seat.probe_every[side] if side in HOWS[how].alone else 0
            w[o.LIVE_TS + side] = BEFORE_ALL
        self.samples = pages((o.SAMPLE_ROOM, o.S_WORDS))
        w[o.SAMPLES], w[o.STORES_ONLY], w[o.MARKED] = address(self.samples), int(not seat.compares), -1
        for word in (o.FRONTIER, o.LAST_TS, o.DONE_TS):
            w[word] = BEFORE_ALL
        self._set_reach(reach)
        self.set_columns()
        self.parted: np.ndarray | None = None
        if plan.parts is not None and asof is None:
            self._part(plan.parts, how, len(plan.seats))

    def _part(self, parts: Parts, how: str, crew: int) -> None:
        """Tuples go by values: which are this worker's. An owned row is alone if it says so; one of the other side tells by how
        many that is said.
        """
        self.parted = parting.block(parts, how, self.number, crew, self.encoder)
        self.words[o.PARTED] = address(self.parted)
        for side in HOWS[how].alone:
            self.words[o.ALONE + side] = 1 if side == parting.owned(how) else -1

    def set_precision(self, precision: Precision, *, marks: bool) -> None:
        """How far its results are put in order, and whether it is the one that marks; before it starts."""
        w = self.words
        if precision.triggers == NEVER:
            w[o.SORTS] = o.AS_FOUND if w[o.HOW] == o.INNER else o.BY_TRIGGER
        elif precision.triggers == STRICT:
            w[o.SORTS] = o.BY_PARTNER
        else:
            w[o.SORTS], w[o.BLOCK_ROWS] = (o.BY_BLOCK if precision.comparisons else o.BY_TRIGGER), precision.comparisons
        if marks:
            w[o.MARK_EVERY], w[o.MARK_ROWS] = max(1, precision.triggers), precision.comparisons

    def counts(self) -> Counts:
        w = self.words
        return Counts(
            comparisons=int(w[shared.COMPARISONS]), results=int(w[shared.RESULTS]), batches=int(w[shared.BATCHES])
        )

    def _set_reach(self, reach: Reach | int) -> None:
        """`reach` is a number for as-of: how old a partner may be, -1 without bound."""
        w = self.words
        if isinstance(reach, int):
            w[o.BACK] = reach
            return
        w[o.PLACES], w[o.STEP] = reach.places, reach.step
        w[o.BACK], w[o.BACK + 1] = reach.back

    def set_columns(self) -> None:
        """Columns of the batch in the encoder's present types; a batch under way keeps its values."""
        w = self.words
        for side in (0, 1):
            old, self.columns[side] = self.columns[side], {}
            columns = self.encoder.columns(side)
            w[o.NCOLS + side], w[o.ALIVE + side] = len(columns), -1
            for at, column in enumerate(columns):
                made = self.encoder.converted(old.get(column[0]), column, side)
                array = np.ones(self.most, column[1]) if made is None else made
                self.columns[side][column[0]] = array
                w[o.COLUMNS + o.MAX_COLS * side + at] = address(array)
                w[o.LEFT_SIZES + o.MAX_COLS * side + at] = array.itemsize
                if column[0] == "alive":
                    w[o.ALIVE + side] = at

    def set_kernels(self, kernels: Kernels) -> None:
        """Addresses of the condition's kernels. The `Kernels` must live as long; `engine.Windows` holds them."""
        w = self.words
        w[o.SCANS], w[o.SCANS + 1] = kernels.scans[0].address, kernels.scans[1].address
        w[o.VERIFY] = kernels.verify.address

    def progressed(self) -> int:
        """A number that changes whenever the worker does something."""
        w = self.words
        return int(w[o.RANK]) + int(w[o.EMIT_TAIL]) + int(w[shared.BATCHES])

    def grow_pairs(self) -> None:
        """Twice as many pairs; of an as-of join more room in its memory. What was there is kept.

        By the worker itself, which is outside its loop. Only `Windows.keep_latest` reads them besides, while all stand still.
        """
        if self.asof is not None:
            self.asof.grow(int(self.words[o.NEED]))
            return
        grown = np.zeros((4, 2 * self.pairs.shape[1]), np.int64)
        grown[:, : self.pairs.shape[1]] = self.pairs
        self.pairs = grown

    def tabled(self) -> list[int]:
        """The row of `threads.join.serve`'s table: where a thread that serves this memory finds it."""
        arrays = (self.words, self.batch, *self.probes, *self.usable, self.pairs, self.over, self.ranges, self.walk,
                  self.tally, self.out)  # fmt: skip
        return [*map(address, arrays), self.pairs.shape[1], self.walk.shape[1]]

    def arguments(self, gate: np.ndarray, control: np.ndarray, arena: np.ndarray) -> tuple[Any, ...]:
        """What `worker.work` takes, in its order; anew for each call, since `pairs` may have grown."""
        return (gate, control, self.words, arena, self.batch, *self.probes, *self.usable, self.pairs, self.over,
                self.ranges, self.walk, self.tally, self.out)  # fmt: skip


class Merger:
    """A merger's memory: `words` and `out` as a worker's, so that whoever gathers from it need not know which it is.

    `rings`: addresses of the words of those it gathers from; the rest is what `gather.work_merger` takes besides.
    """

    def __init__(self, inputs: list[Worker | Merger], precision: Precision, block: int, results: int) -> None:
        self.words = w = lines(o.WORDS)
        self.out = pages((results, o.E_WORDS))
        w[o.OUT], w[o.OUT_MASK] = address(self.out), results - 1
        for word in (o.FRONTIER, o.DONE_TS, o.LIVE_TS, o.LIVE_TS + 1, gather.DUE_LIVE, gather.DUE_LIVE + 1):
            w[word] = BEFORE_ALL
        self.rings = np.array([address(each.words) for each in inputs], np.int64)
        self._precision, self._block = precision, block
        self._taken, self._known = np.zeros(len(inputs), np.int64), np.zeros((gather.KNOWN, len(inputs)), np.int64)
        self._dest, self._seen = pages((o.E_WORDS, min(results, MERGED))), np.zeros(gather.SEEN, np.int64)

    def arguments(self, control: np.ndarray) -> tuple[Any, ...]:
        """What `gather.work_merger` takes, in its order."""
        return (control, self.words, self.rings, self._taken, self._known, self._precision.triggers, self._block, self._dest,
                self._seen)  # fmt: skip


class Feed:
    """A distribution tree's ring from one parent to its children.

    `data` holds ts, origin, seq and ref of `size` tuples, a power of two; `readers` children read it. With an Emitter a feed has
    one reader, and messages of more rows (`loop.grid`).
    """

    def __init__(self, readers: int, size: int, rows: int = 4) -> None:
        self.data = pages((rows, size))
        self.block = lines(feed.words(readers))
        self.block[feed.MASK], self.block[feed.READERS] = size - 1, readers
        self.block[feed.DATA] = address(self.data)
        self.block[feed.FRONTIER] = BEFORE_ALL


def plant(plan: Plan, workers: list[Worker], slots: int) -> list[Any]:
    """Connect the workers of a distribution tree; gives what has to be kept alive.

    With fan-out 2 worker 0 feeds 1 and 2, worker 1 feeds 3 and 4, and so on. A feed has room for at least eight
    batches, so a parent seldom waits for a child. READ_COUNTS has a word a slot: a child tells the gate what it has
    taken of each source (`loop.feed`).
    """
    kept: list[Any] = []
    for parent, worker in enumerate(workers):
        children = [k for k, seat in enumerate(plan.seats) if seat.parent == parent]
        if not children:
            continue
        size = 8 << max(worker.most - 1, 1).bit_length()  # a power of two
        made = Feed(len(children), size)
        kept.append(made)
        worker.words[o.FEED_OUT] = address(made.block)
        for at, child in enumerate(children):
            counts = np.zeros(max(slots, 1 << shared.SLOT_BITS), np.int64)
            kept.append(counts)
            workers[child].words[o.FEED], workers[child].words[o.FEED_SEAT] = address(made.block), at
            workers[child].words[o.READ_COUNTS] = address(counts)
    return kept


class Emitter:
    """DP-Join's Emitter as Python holds it, and what it shares with the workers of a plan: feeds, and the table of marks.

    It has the words of a worker and the gate's seat behind theirs. Row r's feed leads to its first worker, column c's likewise;
    from each worker one leads on to its right, for left tuples, and one downwards, for right ones.
    """

    def __init__(self, plan: Plan, workers: list[Worker], slots: int, most: int) -> None:
        (m, n), size = plan.layout, max(64, 2 << max(most - 1, 1).bit_length())
        self.table = np.zeros((grid.MARKS, slots + 1), np.int64)
        self.words = w = lines(o.WORDS)
        self.batch = pages((o.B_ROWS, most))
        self.workers = np.array([address(worker.words) for worker in workers], np.int64)
        w[o.SEAT], w[o.MOST], w[o.CREW], w[o.LAST_SLOT] = len(workers), most, len(workers), -1
        w[o.STORE_EVERY], w[o.STORE_EVERY + 1] = m, n
        w[o.FRONTIER] = w[o.DONE_TS] = BEFORE_ALL
        for words in (w, *(worker.words for worker in workers)):
            words[o.GRID_COUNTS], words[o.GRID_SLOTS] = address(self.table), slots
            words[o.CUT_MARK], words[o.TOLD] = -1, -1
            words[o.CUT_TS] = words[o.HEARD_TS] = words[o.HEARD_TS + 1] = BEFORE_ALL
        self._kept: list[Feed] = []
        rows = [self._feed(size) for _ in range(m)]
        columns = [self._feed(size) for _ in range(n)]
        self.feeds = np.array([*rows, *columns], np.int64)
        for k, worker in enumerate(workers):
            row, column = divmod(k, n)
            worker.words[o.GRID_IN], worker.words[o.GRID_IN + 1] = rows[row], columns[column]
            if column + 1 < n:
                worker.words[o.GRID_OUT] = rows[row] = self._feed(size)
            if row + 1 < m:
                worker.words[o.GRID_OUT + 1] = columns[column] = self._feed(size)

    def _feed(self, size: int) -> int:
        """A feed of messages with one reader: its address."""
        self._kept.append(Feed(1, size, grid.M_ROWS))
        return address(self._kept[-1].block)

    def arguments(self, gate: np.ndarray, control: np.ndarray) -> tuple[Any, ...]:
        """What `loop.emitter.emit_tuples` takes."""
        return gate, control, self.words, self.batch, self.feeds, self.workers
