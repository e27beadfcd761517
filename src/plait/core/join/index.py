"""Indexes over a segment: they follow it lazily and offer candidate pairs.

An index covers the segment up to a position and catches up before it is asked; a segment whose rows moved makes it
start again. Rows that expired need no deletion, since a probe's range never reaches them.
`probe` gives (probe, row) pairs that contain every match of the probes not marked `over`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from plait.core.condition.terms import Band
from plait.core.join.encoded import LARGEST, EncodedRows
from plait.core.join.segment import Segment
from plait.core.kernels import chains
from plait.core.kernels import sorted as sorted_chunks

Pairs = tuple[np.ndarray, np.ndarray]
STEPS = 64  # a walk's budget, besides its share of the window


class Index(Protocol):
    """What offers candidates out of one segment. `sync` must be called after rows entered and before `probe`. In `probe`:
    `rows` are the probes, of side `side`; `lo`, `hi` (int64) their ranges in `segment`, which is the other side's;
    `wanted` (uint8) leaves probes out; `over` (uint8) is written. The arrays that come are lent: the next pair of arrays
    is written over them.
    """

    steps: int  # walked in the last probe, over all probes

    def sync(self, segment: Segment) -> None: ...

    def probe(
        self,
        segment: Segment,
        rows: EncodedRows,
        side: int,
        lo: np.ndarray,
        hi: np.ndarray,
        wanted: np.ndarray,
        over: np.ndarray,
    ) -> Iterator[Pairs]: ...

    @property
    def nbytes(self) -> int: ...


class _Buffers:
    """Where kernels write pairs; grown when one probe alone fills them.

    Two int64 arrays of one length: the k-th pair is (probe[k], row[k]).
    """

    def __init__(self) -> None:
        self.probe = np.empty(1 << 16, np.int64)
        self.row = np.empty(1 << 16, np.int64)

    def grow(self) -> None:
        self.probe = np.empty(2 * len(self.probe), np.int64)
        self.row = np.empty(2 * len(self.row), np.int64)


def _power(n: int) -> int:
    """The least power of two that is not below n; 1 for 0."""
    return 1 << max(0, int(n - 1).bit_length())


class _Follower:
    """What all indexes share: how they keep up with their segment.

    `covered` is the first position that is not in the index yet. `generation` is the segment's when the index was built:
    a segment that moved its rows has another, and all positions in the index are wrong then. `steps` counts rows looked
    at, for `Choice.observe`.
    """

    def __init__(self) -> None:
        self.covered = 0
        self.generation = -1
        self.steps = 0
        self.buffers = _Buffers()

    def sync(self, segment: Segment) -> None:
        """Costs in proportion to the rows that came since. Rows that expired before they were ever indexed are skipped."""
        if self.generation != segment.generation or self._outgrown(segment):
            self._build(segment)
            self.covered = segment.start
            self.generation = segment.generation
        self.covered = max(self.covered, segment.start)
        if self.covered < segment.end:
            self._insert(segment, self.covered, segment.end)
            self.covered = segment.end

    def _outgrown(self, segment: Segment) -> bool:
        return False

    def _build(self, segment: Segment) -> None:
        raise NotImplementedError

    def _insert(self, segment: Segment, first: int, last: int) -> None:
        raise NotImplementedError

    def _drive(self, n: int, call: Callable[[int, _Buffers, np.ndarray], int]) -> Iterator[Pairs]:
        """Call a kernel until every probe is done, giving out what it has found each time its buffers are full."""
        at, tally = 0, np.zeros(2, np.int64)
        while at < n:
            done = call(at, self.buffers, tally)
            found = int(tally[0])
            if found:
                yield self.buffers.probe[:found], self.buffers.row[:found]
            elif done < n:
                self.buffers.grow()
            at, tally[0] = done, 0
        self.steps = int(tally[1])


class _Chained(_Follower):
    """A table of chains through the segment's nodes.

    `head` has a slot for each row that the segment has room for, rounded up to a power of two: at most one row a slot, on
    average.
    """

    def __init__(self) -> None:
        super().__init__()
        self.head = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        return self.head.nbytes

    def _build(self, segment: Segment) -> None:
        self.head = np.full(_power(segment.capacity), -1, np.int32)
        self.mask: Any = np.uint64(len(self.head) - 1)


class HashIndex(_Chained):
    """Rows chained by equality key."""

    def _insert(self, segment: Segment, first: int, last: int) -> None:
        columns = segment.columns
        chains.insert_hash(first, last, columns["node"], columns["usable"], self.head, self.mask)

    def probe(
        self,
        segment: Segment,
        rows: EncodedRows,
        side: int,
        lo: np.ndarray,
        hi: np.ndarray,
        wanted: np.ndarray,
        over: np.ndarray,
    ) -> Iterator[Pairs]:
        n, newest = len(rows), np.empty(len(rows), np.int32)
        nodes, keys = segment.columns["node"], rows.key
        assert keys is not None

        def call(at: int, out: _Buffers, tally: np.ndarray) -> int:
            return chains.probe_hash(
                at, n, lo, hi, wanted, keys, nodes, self.head, self.mask, STEPS, newest, out.probe, out.row, over, tally
            )  # fmt: skip

        return self._drive(n, call)


_NO_KEYS = np.zeros(1, np.int64)


def _coords(segment: Segment) -> np.ndarray:
    """The nodes' fields as floats."""
    return segment.columns["node"].view(np.float64)


def ranges_of(dimensions: tuple[Band, ...], rows: EncodedRows, side: int) -> np.ndarray:
    """Where partners' coordinates must lie: two bounds a dimension, [0, 0] for a missing second one.

    float64 of shape (n, 4): from and to in the first dimension, then in the second. `side` is the probes' side.
    """
    assert rows.coord is not None, "an index on bands has coordinates"
    ranges = np.zeros((len(rows), 4))
    for at, band in enumerate(dimensions):
        values = np.ascontiguousarray(rows.coord[:, at])
        sign, limit = (1 if side == 0 else -1), LARGEST[band.kind]
        finite = sum(abs(b) for b in (band.low, band.high) if np.isfinite(b))
        chains.probe_ranges(
            len(rows), values, sign, band.low, band.high, band.eps, band.weight + finite, limit, 2 * at, ranges
        )  # fmt: skip
    return ranges


#: A range that holds one row in so many is looked for where rows lie densest.
_DENSE_PART = 16


def grid_shape(
    dimensions: tuple[Band, ...], keyed: bool, coords: np.ndarray, capacity: int
) -> tuple[np.ndarray, np.ndarray]:
    """A grid's boxes after the spread of the live rows' coordinates: boxes a unit, by dimension, and masks (`chains`).

    `coords` is float64 of shape (live rows, 2), `capacity` the segment's. Gives `inverse` (boxes a unit, two float64) and
    the five masks that `chains.insert_grid` reads.

    Example: a band of +-10 has boxes 10 wide, and a probe's range of 20 lies in three of them. If 4 million rows are
    spread over 100 units, the finest box that is worth it is 100 / (4 * 2000) wide with two dimensions, far below 10,
    and 10 stays. What is worth it is said by where rows lie densest (`dense_spread`): with a few far away, wide boxes would
    hold all the others.
    """
    bits = _power(capacity).bit_length() - 1
    inverse = np.ones(2)
    boxes = [1.0, 1.0]
    for at, band in enumerate(dimensions):
        values = coords[:, at]
        spread = _spread(values)
        finest = dense_spread(values) / (4.0 * max(1.0, float(len(values))) ** (1.0 / len(dimensions)))
        # What rounding adds to a probe's range must not make it cover many boxes.
        slop = band.eps * (2 * float(np.abs(values).max(initial=0.0)) + band.weight)
        width = max((band.high - band.low) / 2, finest, slop, 1e-300)
        if width == 1e-300:
            width = 1.0  # one point so far: any width will do
        inverse[at] = 1.0 / width
        boxes[at] = spread / width + 2
    wanted = [int(np.ceil(np.log2(c))) if c > 1 else 0 for c in boxes]
    if len(dimensions) == 1:
        first, second = bits, 0
    else:
        # Each dimension gets what it needs, and what one does not need the other may have.
        second = min(wanted[1], max(bits // 2, bits - wanted[0]))
        first = bits - second
    return inverse, np.array([2**first - 1, 2**second - 1, second, 2**bits - 1, int(keyed)], np.uint64)


def dense_spread(values: np.ndarray) -> float:
    """How far rows would spread if all lay as densely as the densest sixteenth of them does; of evenly spread ones their spread.

    Of many rows some thousands are looked at. Example: nine rows in ten lie in [0, 1], the others reach up to 1,000. The
    narrowest range that has a sixteenth of all is about 0.07 wide, so this gives about 1.1.
    """
    if len(values) < _DENSE_PART**2:
        return _spread(values)
    some = np.sort(values[:: max(1, len(values) // 4096)])
    part = len(some) // _DENSE_PART
    with np.errstate(over="ignore"):
        return min(_spread(some), _DENSE_PART * float((some[part:] - some[:-part]).min()))


def _spread(values: np.ndarray) -> float:
    return float(values.max()) - float(values.min()) if len(values) else 0.0


class GridIndex(_Chained):
    """Rows chained by the box of one or two bands, and by the equality key where there is one.

    A box is half a band wide, so that a probe visits at most three a dimension. Box numbers wrap around a table whose
    shape follows the data's spread. Where the band is much narrower than the data are dense, boxes are wider than that.

    `_at` and `_walked` are scratch of `chains.probe_grid`. `inverse` and `masks` are found when the index is built, from
    the rows that are live then. Later rows may lie elsewhere: the table wraps around, so that costs speed and no match.
    """

    def __init__(self, dimensions: tuple[Band, ...], keyed: bool) -> None:
        super().__init__()
        self.dimensions, self.keyed = dimensions, keyed
        self._at = np.empty((2, chains.BLOCK * chains.BOXES), np.int32)  # walks under way: probe and row
        self._walked = np.empty(chains.BLOCK, np.int64)

    def _build(self, segment: Segment) -> None:
        super()._build(segment)
        live = _coords(segment)[segment.start : segment.end, chains.X :]
        self.inverse, self.masks = grid_shape(self.dimensions, self.keyed, live, segment.capacity)

    def _insert(self, segment: Segment, first: int, last: int) -> None:
        nodes, usable = segment.columns["node"], segment.columns["usable"]
        chains.insert_grid(first, last, nodes, _coords(segment), usable, self.inverse, self.masks, self.head)

    def probe(
        self,
        segment: Segment,
        rows: EncodedRows,
        side: int,
        lo: np.ndarray,
        hi: np.ndarray,
        wanted: np.ndarray,
        over: np.ndarray,
    ) -> Iterator[Pairs]:
        n, ranges = len(rows), ranges_of(self.dimensions, rows, side)
        keys = rows.key if rows.key is not None and self.keyed else _NO_KEYS
        nodes, coords = segment.columns["node"], _coords(segment)

        def call(at: int, out: _Buffers, tally: np.ndarray) -> int:
            return chains.probe_grid(
                at, n, lo, hi, wanted, keys, ranges, nodes, coords, self.inverse, self.masks, self.head, STEPS,
                self._at[0], self._at[1], self._walked, out.probe, out.row, over, tally,
            )  # fmt: skip

        return self._drive(n, call)


class SortedIndex(_Follower):
    """Chunks sorted by the coordinate of one band or inequality. Rows past `tail` are not in it.

    `keys` (float64) and `order` (int32) are by position: chunk c lies at c * size, its usable rows first. `sizes[c]` is
    how many those are. Only the first of the bands is used.
    """

    def __init__(self, dimensions: tuple[Band, ...]) -> None:
        super().__init__()
        self.dimensions = dimensions[:1]
        self.keys = np.empty(0)
        self.order = np.empty(0, np.int32)
        self.size = 1024
        self.sizes = np.empty(0, np.int64)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.order.nbytes

    @property
    def tail(self) -> int:
        """The first position that is in no sorted chunk."""
        return len(self.sizes) * self.size

    def _outgrown(self, segment: Segment) -> bool:
        """Arrays are as long as the segment's: when that has grown, they are made anew."""
        return len(self.keys) < segment.capacity

    def _build(self, segment: Segment) -> None:
        # About sixteen chunks: searches grow with their number, the unsorted tail with their size.
        self.size = min(max(_power(segment.live // 16), 1024), 1 << 17)
        self.keys = np.empty(segment.capacity)
        self.order = np.empty(segment.capacity, np.int32)
        self.sizes = np.zeros(segment.start // self.size, np.int64)  # chunks that expired before they were sorted

    def sync(self, segment: Segment) -> None:
        """Each chunk is sorted once, when it is full. A chunk that expired before that is empty."""
        if self.generation != segment.generation or self._outgrown(segment):
            self._build(segment)
            self.generation = segment.generation
        sizes = self.sizes.tolist()
        while (len(sizes) + 1) * self.size <= segment.end:
            first = len(sizes) * self.size
            kept = 0
            if first + self.size > segment.start:
                begin = max(first, segment.start)
                kept = self._sort(first, begin, first + self.size, segment)
            sizes.append(kept)
        self.sizes = np.array(sizes, np.int64)

    def _sort(self, chunk: int, first: int, last: int, segment: Segment) -> int:
        usable = segment.columns["usable"]
        kept = sorted_chunks.sort_chunk(first, last, _coords(segment), usable, self.keys, self.order)
        if first != chunk and kept:  # the front of the chunk had expired: keep its run at the chunk's own start
            self.keys[chunk : chunk + kept] = self.keys[first : first + kept].copy()
            self.order[chunk : chunk + kept] = self.order[first : first + kept].copy()
        return int(kept)

    def probe(
        self,
        segment: Segment,
        rows: EncodedRows,
        side: int,
        lo: np.ndarray,
        hi: np.ndarray,
        wanted: np.ndarray,
        over: np.ndarray,
    ) -> Iterator[Pairs]:
        n, ranges = len(rows), ranges_of(self.dimensions, rows, side)
        runs = np.empty((max(1, len(self.sizes)), 2), np.int64)
        ends = np.minimum(hi, self.tail)

        def call(at: int, out: _Buffers, tally: np.ndarray) -> int:
            return sorted_chunks.probe_sorted(
                at, n, lo, ends, wanted, ranges, self.size, self.sizes, self.keys, self.order, runs, out.probe, out.row,
                over, tally,
            )  # fmt: skip

        return self._drive(n, call)
