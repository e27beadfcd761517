"""The cells of an operator: how many, and by which rule tuples are dealt out to them (`pack.ship` deals them out).

grid       m x n cells; a left tuple goes to one row of them, a right one to one column, so each pair meets in exactly
           one cell (DP-Join). m x 1 serves `left`, `semi`, `anti` and as-of: there a left tuple meets all its partners. 1 x n
           serves `right`, where a right one does.
hash       cells in a line; tuples go by the values that must be equal, and none is copied. Aggregates and dedups have this
           one, by their key; and `full`, where left and right tuples must meet all their partners. Without such values it has
           one cell.
band       cells in a line; a band's column is cut into ranges. Tuples of one side are *owned*: each goes to its range's cell. One
           of the other side goes to the cells of all ranges that its band reaches, mostly one. So a pair meets in its owned
           tuple's cell, and in no other. A range that is hot has several cells: owned tuples are spread over these, and all
           others that reach it go to each of them. (In rows and columns a pair might meet twice, at an edge between ranges.)
buckets    cells in a line; a tuple goes to those of the buckets that `route` names.
stretches  cells in a line, in a batch run alone: each has a stretch of time, and of the tuples before it those that its own
           may meet. What cells give follows one another in time, so nobody has to merge it (`plan.stretches` says where).
see_all    every cell sees every tuple and stores one in C of them (ScaleJoin), so all have the same share of the work whatever
           the rates and values. Windows that count need it, since each tuple's rank counts; for others it can be chosen.

Cell keys are chosen so that they spread evenly over the state's partitions: Spark puts key k into partition
pmod(murmur3(k), P), which is inverted here by trying small keys.

Where it runs: `choose` on the driver, `stored` in tasks. A checkpoint pins its layout: which cell has a tuple is in the state.
`relayout` changes it. Rows and columns are not tied to cores: more cells than cores run by turns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from plait.core.join.reach import reach_of
from plait.errors import QueryError, RunError, counted
from plait.models import dpjoin
from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.dedup import Dedup
from plait.query.join import HOWS, Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import Union
from plait.query.run_options import LAYOUTS

#: Cells of an operator, at most: each is a task's work.
MOST_CELLS = 1 << 16


@dataclass(frozen=True)
class Layout:
    """The cells of one operator. Pickled into the tasks.

    Attributes:
        kind: How tuples are dealt out, see the module.
        rows, columns: Of the grid. Cell c stands in row c // columns. Other kinds have one column, unless asked
            otherwise. By ranges: one column if left tuples are owned, one row if right ones are.
        keys: Of each cell the number by which Spark groups rows.
        term: Of "band", which of the condition's bands (`terms.Terms.bands`).
        wide: Of "band", how many bands wide a range is: the wider, the fewer tuples are copied; the narrower, the more ranges.
        placed: Of "band", ranges that have cells of their own choice, by number: hot ones, and those that had to make room.
    """

    kind: str  # "grid", "hash", "band", "buckets", "see_all" or "stretches"
    rows: int
    columns: int
    keys: tuple[int, ...]  # the cells' keys, row by row
    why: str = field(default="", compare=False)  # in words, for `explain`
    term: int = 0
    wide: int = 8
    placed: tuple[tuple[int, tuple[int, ...]], ...] = ()
    # Of "stretches": where each cell's own stretch of time begins, the first one's BEFORE_ALL; by input, the first ts that a cell
    # needs of it.
    begins: tuple[int, ...] = ()
    since: tuple[tuple[int, ...], ...] = ()

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    def describe(self) -> str:
        note = {"see_all": " (store one, see all)", "hash": " (by hash)", "buckets": " (of buckets)",
                "stretches": " (stretches of time)"}.get(self.kind, "")  # fmt: skip
        if self.kind == "band":
            split = sum(len(cells) > 1 for _, cells in self.placed)
            note = f" (by band, {counted(split, 'hot range')} split)" if split else " (by band)"
        return f"{self.rows}x{self.columns}{note}"

    @property
    def meaning(self) -> str:
        """All that says where a tuple goes, as text. It is in fingerprints: of layouts that there are it never changes."""
        return f"{self.describe()} {self.term} {self.wide} {self.placed}" if self.kind == "band" else self.describe()

    @property
    def owned(self) -> int:
        """Of "band", the side whose tuples go to one cell."""
        return 0 if self.columns == 1 else 1

    def told(self) -> dict[str, Any]:
        """What `again` makes it of, for a checkpoint's card."""
        placed = [[range, list(cells)] for range, cells in self.placed]
        return {"kind": self.kind, "rows": self.rows, "columns": self.columns, "why": self.why, "term": self.term,
                "wide": self.wide, "placed": placed}  # fmt: skip

    @staticmethod
    def again(told: Mapping[str, Any], partitions: int) -> Layout:
        """A layout that a card tells, over so many state partitions."""
        try:
            placed = tuple((range, tuple(cells)) for range, cells in told["placed"])
            kind, why, rows, columns, term, wide = (
                told[name] for name in ("kind", "why", "rows", "columns", "term", "wide")
            )
            if not (
                isinstance(kind, str)
                and isinstance(why, str)
                and all(type(n) is int for n in (rows, columns, term, wide))
            ):
                raise TypeError("a field is of another type")
            if not (0 < rows <= MOST_CELLS and 0 < columns <= MOST_CELLS // rows):
                raise ValueError(f"{rows} x {columns} cells")
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                "The layout in the checkpoint's card can't be read",
                why=f"{type(error).__name__}: {error}",
                do="Bring the card back as it was, or begin anew with another checkpoint",
            ) from None
        return Layout(kind, rows, columns, cell_keys(rows * columns, partitions), why, term, wide, placed)

    def stored(self, cell: int, hashes: np.ndarray) -> np.ndarray:
        """Which of all tuples a cell of `see_all` stores."""
        own: np.ndarray = (hashes % np.uint64(self.cells)).astype(np.int64) == cell
        return own


def mix(words: np.ndarray) -> np.ndarray:
    """splitmix64: spreads consecutive numbers evenly."""
    with np.errstate(over="ignore"):
        z = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def choose(query: Query, wanted: str | tuple[int, int] | Layout, partitions: int, parallelism: int, *, cells: int | None = None,
           rates: tuple[float, float] | None = None, equal: bool = False) -> Layout:  # fmt: skip
    """The layout of a query: as asked for, or as the streams' rates want it, which are taken as equal where nobody has told them.

    `cells`: how many; None is one a core, and no more than there are state partitions. `equal`: the condition has an equality of
    two columns. A layout that is known already, from a checkpoint or from what was seen, is taken as it is.
    """
    if isinstance(wanted, Layout):
        return replace(wanted, keys=cell_keys(wanted.cells, partitions))
    if isinstance(query, (Aggregate, Dedup, Operator, Union)):
        return _in_a_line(query, wanted, partitions, parallelism, cells)
    assert isinstance(query, (Join, Asof))
    counts = isinstance(query, Join) and reach_of(query.window).counts
    whole = HOWS[query.how].whole if isinstance(query, Join) else (0,)
    usual = max(1, min(parallelism, partitions))
    if wanted == "band":
        return _by_band(query, partitions, cells or usual, rates, counts=counts, whole=whole)
    if len(whole) == 2 and wanted not in ("hash", "see_all"):
        return _both_whole(query, wanted, partitions, usual, cells, equal=equal)
    if wanted in ("hash", "see_all") or (counts and wanted == "auto"):
        _check_alone(query, str(wanted), counts=counts, whole=whole)
        kind, rows, columns = "see_all" if counts else str(wanted), cells or usual, 1
        why = _WHY[kind]
    else:
        kind = "see_all" if counts else "grid"
        rows, columns, why = _shape(query, wanted, cells, usual, rates, whole=whole)
    return Layout(kind, rows, columns, cell_keys(rows * columns, partitions), why)


def _by_band(query: Join | Asof, partitions: int, cells: int, rates: tuple[float, float] | None, *, counts: bool,
             whole: tuple[int, ...]) -> Layout:  # fmt: skip
    """Cells by ranges of a band's column.

    Owned are tuples of the side whose partners must all come to one cell; if neither has to, of the side with more of them,
    since an owned one is not copied.
    """
    why = None
    if isinstance(query, Asof):
        why = "its partner is the last one in time, wherever it lies, and no band says where that is", "an as-of join"
    elif counts:
        why = "a cell must see every tuple of a stream to count the last N", "a count window"
    elif len(whole) == 2:
        why = (
            "left tuples and right ones must each meet all their partners in one cell, and one of a side is in several",
            "how='full'",
        )
    if why is not None:
        raise QueryError(f"layout='band' with {why[1]}", why=why[0], do="Use layout='auto'")
    right = whole == (1,) or (not whole and rates is not None and rates[1] > rates[0])
    rows, columns = (1, cells) if right else (cells, 1)
    return Layout("band", rows, columns, cell_keys(cells, partitions), _WHY["band"])


_WHY = {
    "band": "tuples go by ranges of the band's column, and few are copied",
    "see_all": "every cell sees every tuple and stores its part",
    "hash": "tuples go by the values that must be equal, and none is copied",
    "buckets": "tuples go to the cells of their buckets",
}


def _both_whole(query: Join | Asof, wanted: str | tuple[int, int], partitions: int, usual: int, cells: int | None, *,
                equal: bool) -> Layout:  # fmt: skip
    """The cells of a join that must know of both sides' tuples whether they have found a partner.

    Of a grid that is asked for the number of cells counts: tuples go by the values that must be equal. Without any there is one
    cell.
    """
    if wanted in ("square", "rectangular"):
        raise QueryError(
            f"layout={wanted!r} for how={query.how!r}",
            why="left tuples and right ones must each meet all their partners in one cell: they go by the values that must be "
            "equal, and there are no rows and columns",
            do="Use 'auto', or cells= for their number",
        )
    if wanted not in ("auto", "linear"):
        rows, columns = _numbers(wanted)
        _check_agrees(wanted, rows * columns, cells)
        cells = rows * columns
    if equal:
        found = cells or usual
        return Layout(
            "hash", found, 1, cell_keys(found, partitions), f"{_WHY['hash']}: all partners of a tuple meet it there"
        )
    if (cells or 1) > 1:
        raise QueryError(
            f"{counted(cells or 1, 'cell')} for how={query.how!r}, and the query has no equality of two columns",
            why="left tuples and right ones must each meet all their partners in one cell, and nothing says in which",
            do="Use layout='auto', which has one cell; or join on an equality of two columns, too, such as l.k = r.k",
        )
    why = "left tuples and right ones must each meet all their partners in one cell, and no equality of columns says in which"
    return Layout("grid", 1, 1, cell_keys(1, partitions), why)


def _in_a_line(
    query: Query, wanted: str | tuple[int, int], partitions: int, parallelism: int, cells: int | None
) -> Layout:
    """An aggregate's, a dedup's or an operator's cells: by key, or by bucket. Of a grid that is asked for the number of cells
    counts.
    """
    kind = "buckets" if isinstance(query, Operator) else "hash"
    if wanted not in ("auto", "hash"):
        if isinstance(wanted, str) and wanted in LAYOUTS:
            raise QueryError(
                f"layout={wanted!r} for what is no join",
                why="a grid is how two streams meet; here tuples go by key, or by bucket",
                do="Use 'auto', or cells= for their number",
            )
        rows, columns = _numbers(wanted)
        _check_agrees(wanted, rows * columns, cells)
        cells = rows * columns
    most = query.buckets if isinstance(query, Operator) else parallelism
    found = cells or max(1, min(parallelism, partitions, most))
    why = "each tuple goes to one cell" if isinstance(query, Union) else _WHY[kind]
    return Layout(kind, found, 1, cell_keys(found, partitions), why)


def _check_alone(query: Join | Asof, wanted: str, *, counts: bool, whole: tuple[int, ...]) -> None:
    """Refuse "hash" and "see_all" where they can't serve."""
    if wanted == "hash" and counts:
        raise QueryError(
            "layout='hash' with a count window",
            why="a cell must see every tuple of a stream to count the last N",
            do="Use layout='auto'",
        )
    if wanted == "see_all" and whole:
        raise QueryError(
            f"layout='see_all' for how={query.how!r}"
            if isinstance(query, Join)
            else "layout='see_all' for an as-of join",
            why=f"{_whose(whole)} tuple must meet all its partners in one cell, and each cell stores a part of them",
            do="Use layout='linear' or 'auto'",
        )


def _shape(query: Join | Asof, wanted: str | tuple[int, int], cells: int | None, usual: int, rates: tuple[float, float] | None, *,
           whole: tuple[int, ...]) -> tuple[int, int, str]:  # fmt: skip
    """Rows and columns of a grid, and why. The names are DP-Join's, and mean what they do on threads."""
    why = "as asked"
    line = (1, cells or usual) if whole == (1,) else (cells or usual, 1)
    if wanted not in ("auto", "linear", "square", "rectangular"):
        rows, columns = _numbers(wanted)
        _check_agrees(wanted, rows * columns, cells)
    elif wanted == "linear" or (wanted == "auto" and whole):
        rows, columns = line
        why = f"linear: all partners of {_whose(whole)} tuple meet it in one cell" if whole else "linear"
    elif wanted == "square":
        side = math.isqrt(cells or usual)
        if cells is not None and side * side != cells:
            raise QueryError(
                f"layout='square' with {cells} cells",
                why="that is no square number",
                do="Use 'auto', or 4, 9, 16 cells",
            )
        rows, columns, why = side, side, "square"
    else:
        # The slower of the two kinds of tuples decides; of equals, the squarer shape has the fewer copies.
        left, right = map(float, rates or (1, 1))
        rows, columns = dpjoin.best_layout(cells or usual, left, right)
        known = f"rates {left:g} and {right:g} tuples/s" if rates else "rates unknown, taken as equal"
        why = f"{known}, so a cell's parts of both windows are as equal as {cells or usual} cells allow"
    if whole and (rows if whole == (1,) else columns) != 1:
        line = (1, rows * columns) if whole == (1,) else (rows * columns, 1)
        raise QueryError(
            f"layout={rows}x{columns} for how={query.how!r}",
            why=f"{_whose(whole)} tuple must meet all its partners in one cell",
            do=f"Use layout={line} or 'auto'",
        )
    return rows, columns, why


def _whose(whole: tuple[int, ...]) -> str:
    """A tuple of which side must meet all its partners in one cell."""
    return " and ".join(("a left", "a right")[side] for side in whole)


def _check_agrees(wanted: object, has: int, cells: int | None) -> None:
    if cells is not None and cells != has:
        raise QueryError(
            f"layout={wanted!r} has {has} cells, and cells={cells}", do="Make them agree, or leave cells= out"
        )


def _numbers(wanted: object) -> tuple[int, int]:
    if isinstance(wanted, (tuple, list)) and len(wanted) == 2 and all(type(v) is int and v > 0 for v in wanted):
        return wanted[0], wanted[1]
    raise QueryError(
        f"layout={wanted!r} is no layout",
        do="Use 'auto', 'linear', 'square', 'rectangular', 'see_all', 'hash', 'band' or (m, n), the rows and columns",
    )


def cell_keys(cells: int, partitions: int) -> tuple[int, ...]:
    """One key for each cell, cell c in state partition c modulo their number.

    Without it several cells might share a partition and others have none, and a batch takes as long as its slowest task.
    """
    found: list[int] = []
    key = 0
    for cell in range(cells):
        while murmur3(key) % partitions != cell % partitions:
            key += 1
        found.append(key)
        key += 1
    return tuple(found)


def murmur3(value: int, seed: int = 42) -> int:
    """Spark's hash of one int, as a signed 32-bit number; Python's % is Spark's pmod."""

    def rotate(x: int, by: int) -> int:
        return ((x << by) | (x >> (32 - by))) & 0xFFFFFFFF

    k = rotate(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    h = (rotate(seed ^ k, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h
