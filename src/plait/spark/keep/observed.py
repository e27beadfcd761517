"""Which layout suits a join by what its windows hold: looked at in `relayout`, where all of it passes through the driver.

What is counted is tuples by cell, copies among them, of every layout that may serve: dealt out by the very rules by which
`resettle` does it. The one whose busiest cell has the fewest is taken. The usual layout is left only for one that has a tenth
fewer, since what is seen is one moment's.

Ranges that are hot get several cells, and those of middling size are put where there is least (`placed`), such that the busiest
cell has as few tuples as can be. **No cell has more than twice the mean** of what was seen; the many small ranges have their
usual cells, which are even by chance. Where there are fewer ranges than would fill the cells, narrower ones are tried.

Where it runs: on the driver, once for a `relayout` with layout="auto" or "band". Nothing here is remembered: what was found is
in the new checkpoint's card, and every start takes it from there. Held by tests/spark/test_band.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from plait.core.join.reach import reach_of
from plait.errors import QueryError
from plait.query.bind import Bound, label
from plait.query.condition.expression import text
from plait.query.join import Asof, Join
from plait.spark.keep.resettle import places_of, rows_held
from plait.spark.pack.ranges import Spans, bands, range_columns, usual_cell
from plait.spark.pack.ship import equal_columns
from plait.spark.plan.layout import Layout, choose

#: A grid stays unless another layout's busiest cell has so much less.
_WORTH = 0.9
#: A range is looked at by itself if it has more than this part of a cell's mean. Usual cells are kept if none has more than EVEN
#: times the mean.
_HEAVY, _EVEN = 1 / 8, 1.4
#: So many tuples a cell have to be there, or they say too little.
_LEAST = 16
#: How often the distance to what the busiest cell must have is halved.
_HALVINGS = 12
_AS = {"grid": "in a grid", "hash": "by hash", "band": "by band", "see_all": "if all see all"}
#: Ranges that are tried: so many bands wide.
_WIDTHS = (8, 3, 1)


def suited(
    bound: Bound, cells: Sequence[Mapping[int, bytes]], usual: Layout, partitions: int, *, only: str | None
) -> Layout:
    """The layout for what a join's cells hold, of as many cells as `usual` has, which is the one where nothing has been seen.

    `only`: "band" where that was asked for; None: whichever suits. What is no join, and a join that holds hardly any tuple, has
    `usual`.
    """
    node = bound.node
    if not isinstance(node, (Join, Asof)) or (isinstance(node, Join) and reach_of(node.window).counts):
        return usual
    rows = [rows_held(cells, input) for input in (0, 1)]
    counts = tuple(0.0 if table is None else float(table.num_rows) for table in rows)
    if sum(counts) < _LEAST * usual.cells:
        return usual
    tried = [] if only == "band" else [usual]
    if only is None and usual.kind != "hash" and equal_columns(bound):
        tried.append(choose(node, "hash", partitions, usual.cells, cells=usual.cells))
    tried += _by_bands(bound, rows, usual.cells, partitions, (counts[0], counts[1]))
    if tried == [usual]:
        return usual
    held = [_held(bound, rows, layout) for layout in tried]
    best = min(range(len(tried)), key=lambda k: (held[k].max(), k))
    if only is None and held[best].max() > _WORTH * held[0].max():
        best = 0
    return _told(bound, tried, held, best, int(sum(counts)))


def _by_bands(bound: Bound, rows: list[pa.Table | None], cells: int, partitions: int,
              counts: tuple[float, float]) -> list[Layout]:  # fmt: skip
    """By each of the condition's bands, with ranges placed by what there is of them."""
    assert isinstance(bound.node, (Join, Asof))
    found = bands(bound)
    try:
        made = choose(bound.node, "band", partitions, cells, cells=cells, rates=counts)
    except QueryError:
        return []
    tried = []
    for term, wide in itertools.product(range(len(found)), _WIDTHS):
        columns = range_columns(bound, term, wide)
        own = [None if table is None else columns.spans(side, table) for side, table in enumerate(rows)]
        tried.append(replace(made, term=term, wide=wide, placed=placed(own[made.owned], own[1 - made.owned], cells)))
    return tried


def _held(bound: Bound, rows: list[pa.Table | None], layout: Layout) -> np.ndarray:
    """How many tuples each cell would have."""
    held = np.zeros(layout.cells, np.int64)
    for input, table in enumerate(rows):
        if table is not None:
            to = places_of(bound, input, table, layout)
            held += [table.num_rows if at is None else len(at) for at in to]
    return held


def _told(bound: Bound, tried: list[Layout], held: list[np.ndarray], best: int, seen: int) -> Layout:
    """The layout that was taken, with the reason in words."""
    layout, by = tried[best], ""
    if layout.kind == "band":
        band = bands(bound)[layout.term]
        names = (label(bound.inputs[0], 0), label(bound.inputs[1], 1))
        by = f" by {text(band.left, names)} and {text(band.right, names)}"
    words = [f"of {seen:,} tuples seen, the busiest cell has {held[best].max():,}{by}"]
    others: dict[str, int] = {}  # of ranges by each band, and of each width, those that do best
    for other, count in zip(tried, held, strict=True):
        if other.kind != layout.kind:
            others[other.kind] = min(int(count.max()), others.get(other.kind, int(count.max())))
    words += [f"{count:,} {_AS[kind]}" for kind, count in others.items()]
    return replace(layout, why=", ".join(words))


# --- hot ranges -------------------------------------------------------------------------------------------------


def placed(owned: Spans | None, other: Spans | None, cells: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Cells of their own choice for ranges that would make one cell busier than others; none where usual cells are even.

    The heaviest come first. Each gets the least loaded cells, as many as it takes for none to have more than the busiest must:
    over these its owned tuples are spread, but the others go to each, so more cells than needed would only copy. What the
    busiest must have is found by halving.
    """
    numbers, owns, others = weights(owned, other)
    at, whole = usual_cell(numbers, cells), owns + others
    usual = np.bincount(at, whole, cells)
    if cells == 1 or usual.max() <= _EVEN * usual.mean():
        return ()
    heavy = whole > _HEAVY * usual.mean()
    light = np.bincount(at[~heavy], whole[~heavy], cells).astype(float)
    order = np.flatnonzero(heavy)[np.lexsort((numbers[heavy], -whole[heavy]))].tolist()
    found: list[list[int]] | None = None
    few, many = 0.0, float(usual.max())
    for _ in range(_HALVINGS):
        most = (few + many) / 2
        fits = _filled(light.copy(), [(owns[k], others[k]) for k in order], most)
        few, many, found = (most, many, found) if fits is None else (few, most, fits)
    if found is None:
        return ()
    return tuple(sorted((int(numbers[k]), tuple(own)) for k, own in zip(order, found, strict=True)))


def _filled(load: np.ndarray, ranges: list[tuple[float, float]], most: float) -> list[list[int]] | None:
    """Cells for each range, such that none has more than `most`; None if there are none.

    A range has owned tuples and others; cells, filled from the least loaded on, have `load` of something else already.
    """
    found = []
    for own, other in ranges:
        free = np.argsort(load, kind="stable")
        added = own / np.arange(1, len(load) + 1) + other
        fits = np.flatnonzero(load[free] + added <= most)
        if not len(fits):
            return None
        taken = free[: fits[0] + 1]
        load[taken] += added[fits[0]]
        found.append(sorted(taken.tolist()))
    return found


def weights(owned: Spans | None, other: Spans | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ranges that there is anything of, and how many owned tuples and how many others each has."""
    own = np.zeros(0, np.int64) if owned is None else owned.own[owned.usable]
    reach = np.zeros(0, np.int64)
    if other is not None:
        first, wide = other.first[other.usable], (other.last - other.first)[other.usable]
        few = np.minimum(wide, 3)  # what reaches more is rare, and goes nearly everywhere
        reach = np.concatenate([first[few >= k] + k for k in range(4)])
    numbers = np.unique(np.concatenate([own, reach]))
    counted = [
        np.bincount(np.searchsorted(numbers, each), minlength=len(numbers)).astype(float) for each in (own, reach)
    ]
    return numbers, counted[0], counted[1]
