"""The layout "band": a line of numbers cut into ranges, which range a value lies in, and which cells a tuple goes to.

A band `low <= f(l) - g(r) <= high` has a coordinate of each tuple, f or g. Where a coordinate lies tells its range, and a range
has a cell. An owned tuple goes to the cell of its range, a tuple of the other side to the cells of all ranges between the least
and the largest coordinate that a partner may have. These two are widened by what rounding may have moved the difference
(`chains.reached`), as an index in the cell widens them, and a range's number never falls as the coordinate rises. So a
partner's range is always between them, and **a pair that matches meets in its owned tuple's cell**. Rows whose coordinate is
NULL or NaN match nothing; they go to one cell, where they are counted, or come out alone.

Ranges are eight times as wide as a band (`Layout.wide`), so a tuple reaches more than one of them one time in eight. Far from 0
rounding widens more than the band itself does: there ranges are as wide as floats are far apart, some hundreds of times. That
is also how a band of width 0 is cut.

The cell of range `id` is `(id + mix(id // C)) % C`: C ranges in a row have all C cells, each row in another turn, so that neither
near values nor every C-th fall together. Nothing has to be seen of the data for it. Ranges that were seen to be hot have cells of
their own choice (`Layout.placed`, made by `keep.observed`).

Where it runs: in the tasks that pack, in cells that send results on, and on the driver in `relayout`. It is a function of the
tuple and the layout alone: a retried task sends the same tuples to the same cells. Held by tests/spark/test_band.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from plait.core.condition.columns import Interner
from plait.core.condition.leaves import Shape
from plait.core.condition.leaves import shape as shape_of
from plait.core.condition.terms import Band, Terms
from plait.core.join.encoded import RowEncoder
from plait.core.join.index import ranges_of
from plait.errors import QueryError
from plait.query.bind import Bound
from plait.query.condition.expression import Binary, columns
from plait.query.join import Join
from plait.spark.formats import times
from plait.spark.plan.layout import Layout, mix

#: How many times as wide as what rounding may move a difference.
_SLOPS = 32


@dataclass(frozen=True)
class RangeColumns:
    """One band of a condition, and what its coordinates are computed from. Pickled into the tasks."""

    band: Band
    shape: Shape  # of the band alone
    wide: int  # how many bands a range is

    def spans(self, input: int, table: pa.Table) -> Spans:
        """Of each row of an input its own range, and those in which a partner may lie."""
        encoder = RowEncoder(self.shape, (self.band,), Interner(self.shape.literals))
        rows = encoder.rows(input, table, times(table))
        assert rows.coord is not None
        reach = ranges_of((self.band,), rows, input)
        cut = _Cut(self.band, self.wide)
        first = cut.numbers(reach[:, 0])
        return Spans(
            cut.numbers(rows.coord[:, 0]), first, np.maximum(first, cut.numbers(reach[:, 1])), rows.usable != 0
        )


@dataclass(frozen=True)
class Spans:
    """Of each row its own range, the first and the last range in which a partner may lie, and whether there may be any.

    int64 and bool arrays of one length. `last` is not below `first`; of rows that can't have a partner numbers say nothing.
    """

    own: np.ndarray
    first: np.ndarray
    last: np.ndarray
    usable: np.ndarray


def range_columns(bound: Bound, term: int, wide: int) -> RangeColumns:
    """A band of a query's condition; refused if it has none."""
    found = bands(bound)
    if not found:
        raise QueryError(
            "layout='band', and the condition has no band",
            why="tuples go by ranges of two columns whose difference is bounded from both sides, as in abs(l.x - r.x) <= 10",
            do="Use layout='auto' or a grid (m, n)",
        )
    node, band = bound.node, found[term]
    assert isinstance(node, Join)
    assert bound.predicate is not None
    both = Binary("sub", band.left, band.right)
    left, right = (tuple(dict.fromkeys(c.name for c in columns(each))) for each in (band.left, band.right))
    predicate = replace(bound.predicate, expr=both, reads=(left, right))
    return RangeColumns(
        band, Shape(predicate, tuple(i.schema for i in bound.inputs), Terms(((), ()), ()), ((), ())), wide
    )


def bands(bound: Bound) -> tuple[Band, ...]:
    """The bands of a join's condition, the narrowest first; none where it can't be taken apart."""
    if not isinstance(bound.node, Join) or bound.predicate is None or bound.predicate.expr is None:
        return ()
    left, right = (i.schema for i in bound.inputs)
    return shape_of(bound.predicate, left, right).terms.bands


class _Cut:
    """A line cut into ranges: of `step` up to `edge`, beyond which they are as wide as rounding asks for, growing with the value.

    Beyond the edge a range's number is that of the value's bits without the last few, which rise with the value. Numbers go on
    from `last`, that of the edge; below 0 they are mirrored. At the edge both kinds of ranges are about as wide.
    """

    def __init__(self, band: Band, wide: int) -> None:
        weight = band.weight + abs(band.low) + abs(band.high)
        step = max(wide * (band.high - band.low), wide * 2 * band.eps * weight, 0.0)
        self.step = step or 1.0
        self.edge = step / (_SLOPS * band.eps)
        self.last = int(np.floor(self.edge / self.step))
        # A float has 52 bits behind its first one.
        self.drop = np.int64(52 + round(np.log2(_SLOPS * band.eps)))

    def numbers(self, values: np.ndarray) -> np.ndarray:
        """The range of each value, which must be finite. The larger value never has the smaller number."""
        size = np.abs(values)
        beyond = size > self.edge
        near = np.floor(np.where(beyond, 0.0, values) / self.step).astype(np.int64)
        if not beyond.any():
            return near
        bits = size.view(np.int64) if size.flags.c_contiguous else np.ascontiguousarray(size).view(np.int64)
        far = self.last + 2 + ((bits - np.float64(self.edge).view(np.int64)) >> self.drop)
        return np.where(beyond, np.where(values < 0, -far, far), near)


# --- to which cells -----------------------------------------------------------------------------------------


def usual_cell(numbers: np.ndarray, cells: int) -> np.ndarray:
    """The cell of ranges that have no place of their own choice."""
    turn = (mix(numbers // cells) % np.uint64(cells)).astype(np.int64)
    return (numbers + turn) % cells


def band_places(layout: Layout, spans: Spans, input: int, hashes: np.ndarray) -> np.ndarray:
    """Which tuples of an input go to which cells: a mask with a row for each cell. Each tuple goes to one at least.

    `hashes`: a word of each tuple, by which owned ones are spread over the cells of a hot range, and by which those go that
    match nothing.
    """
    cells, n = layout.cells, len(hashes)
    to = np.zeros((cells, n), bool)
    if input == layout.owned:
        at = usual_cell(spans.own, cells)
        for number, chosen in layout.placed:
            hot = np.flatnonzero(spans.own == number)
            at[hot] = np.array(chosen)[(hashes[hot] % np.uint64(len(chosen))).astype(np.int64)]
        to[np.where(spans.usable, at, (hashes % np.uint64(cells)).astype(np.int64)), np.arange(n)] = True
        return to
    to[(hashes % np.uint64(cells)).astype(np.int64)[~spans.usable], np.flatnonzero(~spans.usable)] = True
    many = spans.usable & (spans.last - spans.first >= cells)
    to[:, many] = True
    rest = np.flatnonzero(spans.usable & ~many)
    numbers, last = spans.first[rest], spans.last[rest]
    chosen_of = dict(layout.placed)
    places = np.array(sorted(chosen_of), np.int64)
    while len(rest):
        own = np.isin(numbers, places)
        to[usual_cell(numbers[~own], cells), rest[~own]] = True
        for number in np.unique(numbers[own]).tolist():
            to[np.ix_(chosen_of[number], rest[numbers == number])] = True
        more = numbers < last
        rest, numbers, last = rest[more], numbers[more] + 1, last[more]
    return to
