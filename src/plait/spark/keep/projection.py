"""What a query would be sent and hold on so many executors, by what was counted and by the arithmetic of its layouts.

    counted     tuples of each input, packed rows, bytes, rows held: of a run on Spark (its checkpoint), or of the first rows of a
                file that were taken in this process (`counting`)
    projected   of each layout that the condition allows, a cell for each executor: copies a tuple, bytes shuffled a tuple, what
                comes to the busiest executor and what its state has; and where the layout stops scaling, in words

**The arithmetic.** Of L left and R right tuples a grid m x n sends L n + R m copies, L/m + R/n to each cell; "see_all" L + R to
every cell, of which it stores one in C; by value and by ranges a tuple goes where its value says. So for those the rows that are
held are dealt out anew, by the rule itself (`resettle.places_of`), and the hottest value, or range, is looked for. Bytes are
those of rows, in proportion to copies, and what each packed row has besides them: its head, with how far its task's sources are,
and the columns' names and types. Packed rows are in proportion to cells.

A cell of a grid, or of "see_all", is taken to have the mean: tuples go there by a hash of their own key; so is one of buckets, of
which any are taken to be as likely as others. What is projected by
value and by range is right for the rows that were looked at.

Where it runs: on the driver, or in the command, when somebody asks. Nothing depends on it. Held by tests/spark/test_projection.py
and, against counts of 1, 2 and 4 executors, by tests/spark/test_executors.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.errors import QueryError, counted
from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.bind import Bound, label
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import Union
from plait.spark import formats
from plait.spark.formats import Manifest, Split, StreamRows
from plait.spark.keep.counting import Counted
from plait.spark.keep.observed import weights
from plait.spark.keep.resettle import places_of, rows_held
from plait.spark.pack.ranges import bands, range_columns
from plait.spark.pack.ship import equal_columns, hash_columns, words
from plait.spark.plan.layout import Layout, choose

#: Below so many rows held nothing is said of values, and cells are taken to be even.
_FEW = 64


@dataclass(frozen=True)
class Projected:
    """A layout on so many executors, with a cell each.

    Attributes:
        copies, bytes: A tuple.
        busiest: Of all tuples, how many come to the executor that gets most.
        held, held_bytes: Rows and bytes of state of the one that has most, with windows as full as they were.
        stops: Where it stops scaling, in words.
    """

    layout: Layout
    copies: float
    bytes: float
    busiest: float
    held: float
    held_bytes: float
    stops: str


@dataclass(frozen=True)
class _Seen:
    """What was counted of an operator, by its inputs, without copies."""

    of: Counted
    tuples: tuple[float, ...]
    rows: tuple[pa.Table | None, ...]  # that are held, each once
    buckets: float  # of an operator: to how many a tuple goes
    packed: float  # packed rows of one cell
    fixed: float  # bytes that each has besides its rows
    each: float  # bytes of a row, without the hash of "see_all"
    chunks: float  # that a cell's state has
    chunk: float  # bytes that each has besides its rows
    stored: float  # bytes of a row in the state

    @property
    def total(self) -> float:
        return sum(self.tuples)

    @property
    def columns(self) -> set[str]:
        """Of the rows held."""
        return {name for table in self.rows if table is not None for name in table.column_names}

    @property
    def held(self) -> tuple[int, ...]:
        return tuple(0 if table is None else table.num_rows for table in self.rows)


def projected(found: Counted, executors: int) -> list[Projected]:
    """Every layout that the operator may have; the one that it has by itself comes first. None if no tuple has come."""
    seen = _seen(found)
    if not seen.total:
        return []
    return [_of_layout(seen, layout) for layout in _allowed(found.bound, executors, found.layout)]


def _allowed(bound: Bound, cells: int, had: Layout) -> Iterator[Layout]:
    """The layouts of so many cells that the condition allows, each kind once. Of ranges those that the counted run had."""
    node, kinds = bound.node, set()
    assert isinstance(node, Query)
    pairs = isinstance(node, (Join, Asof))
    for wanted in ("auto", *(("rectangular", "hash", "band", "see_all") if pairs else ())):
        if (wanted == "hash" and not equal_columns(bound)) or (wanted == "band" and not bands(bound)):
            continue
        try:
            made = choose(node, wanted, cells, cells, cells=cells, equal=pairs and bool(equal_columns(bound)))
        except QueryError:
            continue
        if made.kind not in kinds:
            kinds.add(made.kind)
            yield had if made.kind == "band" == had.kind and had.cells == cells else made


# --- what was counted -----------------------------------------------------------------------------------------


def _seen(found: Counted) -> _Seen:
    counts, layout = found.counts, found.layout
    inputs = range(len(found.bound.inputs))
    rows = tuple(rows_held(found.cells, input) for input in inputs)
    came = [counts.copies_by_input.get(str(input), 0) for input in inputs]
    buckets = _buckets_each(found)
    tuples = tuple(
        n / _copied(found.bound, layout, input, rows, buckets) for input, n in zip(inputs, came, strict=True)
    )
    head, chunk = _fixed(rows)
    fixed = head + chunk
    each = max(counts.shuffled_bytes - counts.packed * fixed, 0) / max(counts.copies, 1) - _hash_bytes(layout)
    chunks = [
        c for cell in found.cells if formats.MANIFEST in cell for c in Manifest.load(cell[formats.MANIFEST]).chunks
    ]
    sized = [c for c in chunks if c.size]
    stored = max(sum(c.size for c in sized) - len(sized) * chunk, 0) / max(sum(c.rows for c in sized), 1)
    stored -= _hash_bytes(layout)
    return _Seen(
        found,
        tuples,
        rows,
        buckets,
        counts.packed / layout.cells,
        fixed,
        each,
        len(chunks) / layout.cells,
        chunk,
        stored,
    )


def _hash_bytes(layout: Layout) -> int:
    """What a row has besides, in the layout "see_all": a hash of its own key."""
    return 8 if layout.kind == "see_all" else 0


def _fixed(rows: Sequence[pa.Table | None]) -> tuple[float, float]:
    """Bytes of a packed row besides its rows: of its head, with one split, and of columns."""
    split = Split(0, "0" * 64, "0" * 64, 1 << 50, ended=False, least=1 << 50, least_seq="0" * 64, rows=1 << 16)
    head = len(formats.body(StreamRows("a stream", 0, [split], tells=True, panes=False)))
    tables = [_columns(table) for table in rows if table is not None]
    return head, sum(tables) / len(tables) if tables else 0


def _columns(table: pa.Table) -> float:
    """What a packed table takes besides its rows: twice as many of them do not take twice as much."""
    few = min(_FEW, table.num_rows // 2)
    if few == 0:
        return len(formats.chunk_body(table.combine_chunks()))
    once, twice = (
        len(formats.chunk_body(table.take(np.linspace(0, table.num_rows - 1, n).astype(np.int64))))
        for n in (few, 2 * few)
    )
    return max(2 * once - twice, 0)


# --- what follows ---------------------------------------------------------------------------------------------


def _copied(bound: Bound, layout: Layout, input: int, rows: Sequence[pa.Table | None], buckets: float) -> float:
    """To how many cells a tuple of an input goes. `buckets`: to how many of these, if it is an operator's."""
    if layout.kind == "grid":
        return layout.columns if input == 0 else layout.rows
    if layout.kind == "see_all":
        return layout.cells
    if layout.kind == "band" and input != layout.owned and (table := rows[input]) is not None:
        return float(_dealt(bound, rows, layout, input).sum() / table.num_rows)
    return _cells_of(buckets, bound.node.buckets, layout.cells) if isinstance(bound.node, Operator) else 1.0


def _buckets_each(found: Counted) -> float:
    """To how many buckets a tuple of an operator goes, on average: the more, the fewer copies for a call. 1 where none has come.

    Tuples that wait have been sent and not called for, so a number that is nearly whole is taken as whole.
    """
    node, counts = found.bound.node, found.counts
    if not isinstance(node, Operator) or not counts.copies or not counts.calls:
        return 1.0
    low, high = 1.0, float(node.buckets)
    for _ in range(40):
        middle = (low + high) / 2
        more = _cells_of(middle, node.buckets, found.layout.cells) / middle > counts.copies / counts.calls
        low, high = (middle, high) if more else (low, middle)
    return float(round(low)) if abs(low - round(low)) < 0.01 * low else low


def _cells_of(each: float, buckets: int, cells: int) -> float:
    """In how many cells lie so many of the buckets, if any of them are as likely as any others."""
    return sum(_for_cell(each, buckets, len(range(cell, buckets, cells))) for cell in range(cells))


def _for_cell(each: float, buckets: int, own: int) -> float:
    """How likely one of so many of the buckets is one of a cell's own."""
    whole = math.floor(each)
    if whole < each:
        part = each - whole
        return (1 - part) * _for_cell(whole, buckets, own) + part * _for_cell(whole + 1, buckets, own)
    return 1 - math.comb(buckets - own, whole) / math.comb(buckets, whole)


def _dealt(bound: Bound, rows: Sequence[pa.Table | None], layout: Layout, input: int) -> np.ndarray:
    """How many of the rows held go to each cell."""
    table = rows[input]
    if table is None:
        return np.zeros(layout.cells)
    to = places_of(bound, input, table, layout)
    return np.array([table.num_rows if at is None else len(at) for at in to], float)


def _of_layout(seen: _Seen, layout: Layout) -> Projected:
    bound, held = seen.of.bound, seen.held
    copied = [_copied(bound, layout, input, seen.rows, seen.buckets) for input in range(len(held))]
    copies = sum(n * times for n, times in zip(seen.tuples, copied, strict=True))
    each = seen.each + _hash_bytes(layout)
    sent = copies * each + seen.packed * layout.cells * seen.fixed
    if layout.kind in ("grid", "see_all", "buckets"):
        share = [times / layout.cells for times in copied]  # of an input, what comes to a cell
        if isinstance(bound.node, Operator):  # the first cell has most buckets
            most = len(range(0, bound.node.buckets, layout.cells))
            share = [_for_cell(seen.buckets, bound.node.buckets, most)] * len(held)
        busiest = sum(n * part for n, part in zip(seen.tuples, share, strict=True))
        kept = [1 / layout.cells] * len(held) if layout.kind == "see_all" else share
        state = sum(n * part for n, part in zip(held, kept, strict=True))
    else:
        dealt = [_dealt(bound, seen.rows, layout, input) for input in range(len(held))]
        state = float(np.sum(dealt, axis=0).max())
        # Of each input as many as came, dealt out as those are that are held.
        came = [n * own / max(rows, 1) for n, own, rows in zip(seen.tuples, dealt, held, strict=True)]
        busiest = float(np.sum(came, axis=0).max()) if sum(held) >= _FEW else copies / layout.cells
    return Projected(
        layout, copies / seen.total, sent / seen.total, busiest / seen.total, state,
        state * (seen.stored + _hash_bytes(layout)) + seen.chunks * seen.chunk,
        " ".join((_stops(seen, layout, copied), _told_of_heads(seen, layout, copied))).strip(),
    )  # fmt: skip


# --- where it stops -------------------------------------------------------------------------------------------


def _stops(seen: _Seen, layout: Layout, copied: Sequence[float]) -> str:
    """Why more executors help less and less, or not at all, in plain words."""
    bound = seen.of.bound
    if layout.kind == "see_all":
        return (
            "Every executor gets every tuple, however many there are: comparisons and state are shared, what comes in is not. It "
            "stops where one executor can no longer take in all of both streams."
        )
    if layout.kind == "grid" and layout.cells > 1 and 1 in (layout.rows, layout.columns) and _one_line(bound):
        whole = 1 if layout.columns == 1 else 0
        return (
            f"Every executor gets all tuples of {label(bound.inputs[whole], whole)}, {seen.tuples[whole] / seen.total:.0%} of "
            "all, however many there are: no more executors help once one of them is busy with these."
        )
    if layout.kind == "grid":
        said = (
            "Copies grow with the square root of the executors: with four times as many, twice as much is sent in all, and half "
            "as much comes to each. It never stops at once, and pays less each time."
        )
        if max(layout.rows, layout.columns) > 2 * min(layout.rows, layout.columns):
            side = math.isqrt(layout.cells)
            said += f" {layout.cells} make no square: {side * side} executors ({side}x{side}) would copy less."
        return said
    if isinstance(bound.node, Operator):
        return (
            f"A bucket is in one cell: more than {bound.node.buckets} executors, one for each bucket, have nothing to do, and "
            "before that it stops at the hottest bucket. Buckets are taken to be even here, and their states are not counted."
        )
    return _by_value(seen, layout)


def _one_line(bound: Bound) -> bool:
    """Whether a grid has one row, or one column, whatever the number of its cells."""
    assert isinstance(bound.node, Query)
    return 1 in (choose(bound.node, "auto", 4, 4, cells=4).rows, choose(bound.node, "auto", 4, 4, cells=4).columns)


def _by_value(seen: _Seen, layout: Layout) -> str:
    what = "range" if layout.kind == "band" else "key" if len(seen.rows) == 1 else "value"
    none = f"No tuple is copied: it stops at its hottest {what}, which is in one cell."
    if sum(seen.held) < _FEW:
        return f"{none} Too few rows are held to tell how hot that is."
    share = _hottest(seen, layout)
    most = _many(1 / share)
    if isinstance(seen.of.bound.node, Aggregate) and formats.KEY not in seen.columns:
        return (
            "A key's tuples are folded, on the task that reads them, into a row for each pane: a hot key is like any other, and "
            f"no row is copied. It stops at the number of keys: more than {_many(len(_shares(seen)))} have none of their own."
        )
    if layout.kind == "band":
        return (
            f"Copies do not grow. The hottest range has {share:.1%} of the tuples: beyond about {most} its cell is the busiest, "
            "until plait.spark.relayout splits it; from then on the tuples that reach it are copied to each of its cells."
        )
    return f"{none} The hottest {what} has {share:.1%} of the rows: more than about {most} do not help, and it is never split."


def _hottest(seen: _Seen, layout: Layout) -> float:
    """The part of all tuples that the hottest value, or range, has."""
    bound = seen.of.bound
    if layout.kind == "band":
        columns = range_columns(bound, layout.term, layout.wide)
        spans = [None if table is None else columns.spans(input, table) for input, table in enumerate(seen.rows)]
        _, owns, others = weights(spans[layout.owned], spans[1 - layout.owned])
        return float((owns + others).max() / (owns + others).sum())
    return float(_shares(seen).max())


def _shares(seen: _Seen) -> np.ndarray:
    """Of each value by which tuples are dealt out the part of all rows held that has it."""
    bound = seen.of.bound
    if isinstance(bound.node, Union):  # by each tuple's own key
        return np.full(sum(seen.held), 1 / sum(seen.held))
    columns = hash_columns(bound)
    found = [words(columns, input, table) for input, table in enumerate(seen.rows) if table is not None]
    _, count = np.unique(np.concatenate(found), return_counts=True)
    shares: np.ndarray = count / count.sum()
    return shares


def _told_of_heads(seen: _Seen, layout: Layout, copied: Sequence[float]) -> str:
    """From how many executors on packed rows weigh more than the tuples in them: each task has one for every cell."""
    each = seen.each + _hash_bytes(layout)
    heads = seen.packed * seen.fixed  # of one cell
    if heads <= 0 or layout.kind == "see_all":  # whose tuples grow with the cells, as heads do
        return ""
    copies = sum(n * times for n, times in zip(seen.tuples, copied, strict=True))
    power = 0.5 if layout.kind == "grid" and not _one_line(seen.of.bound) else 0.0
    if layout.kind == "grid" and power == 0.0:
        return ""
    # copies(N) each = N heads, with copies(N) = copies (N / cells) ** power
    most = (copies * each / layout.cells**power / heads) ** (1 / (1 - power))
    return (
        f"With micro-batches of this size half of what is sent, from about {_many(most)} on, says only how far sources are: "
        "larger micro-batches move that."
    )


def _many(number: float) -> str:
    """So many executors, in words."""
    found = max(1, round(number))
    return "1 executor" if found == 1 else f"{found:,} executors"


# --- in words -------------------------------------------------------------------------------------------------


def lines(found: Sequence[Counted], executors: int, where: str) -> list[str]:
    """What `plait explain --executors` says: a line for each layout of each operator, and one for where it stops."""
    out = [f"on {counted(executors, 'executor')} of one core, a cell each, by what was counted of {where}:"]
    for number, each in enumerate(found):
        name = "" if len(found) == 1 else f" (operator {number})"
        made = projected(each, executors)
        if not made:
            out.append(f"  nothing has come to the cells{name}: there is nothing to go by")
        for one in made:
            out.append(
                f"  {_AS[one.layout.kind]}{name}, {one.layout.rows}x{one.layout.columns}: {one.copies:.2f} copies and "
                f"{one.bytes:,.0f} bytes shuffled a tuple; to the busiest executor come {one.busiest:.1%} of all tuples, and it "
                f"holds {one.held:,.0f} rows, {_size(one.held_bytes)}"
            )
            out.append(f"    {one.stops}")
    return out


def _size(count: float) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


_AS = {"grid": "a grid", "hash": "by hash", "band": "by band", "see_all": "all see all", "buckets": "by bucket"}
