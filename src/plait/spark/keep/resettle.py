"""The state of an operator's cells laid out for other cells: another grid, or other state partitions.

What cells hold is tuples (or partial panes), states of buckets, and what all of them know alike: frontier, progress, events.
Tuples that several cells held count once. Where a tuple goes then is the new layout's rule where it says who meets whom (by
value, by bucket); in a grid it may be any row or column, as long as it is one, so there a hash of its key tells it.

Nothing is released, closed or expired on the way: the new cells begin where the old ones stopped, with the same frontier.

Where it runs: on the driver, once for each operator of a query, in `relayout`. All of its state is in memory then, as
bytes and as tables. The new cells' manifests have one step each, with a fresh id, so no cache of a worker can take itself
for theirs. Held by tests/spark/test_relayout.py.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.metrics import Counts, total
from plait.errors import RunError
from plait.query.bind import Bound
from plait.query.operator import Operator
from plait.query.row_by_row import Union
from plait.spark import formats
from plait.spark.cell.arrive import in_order
from plait.spark.formats import MANIFEST, ROUTE, ROUTE_TYPE, Chunk, Manifest, Step, state_number
from plait.spark.pack.ranges import band_places, range_columns
from plait.spark.pack.ship import codes_of, destinations, hash_columns, places, words
from plait.spark.plan.layout import Layout, mix

#: Chunks that an input's rows are cut into: they leave one by one as time passes.
_CHUNKS = 16

State = dict[int, bytes]


def resettle(bound: Bound, cells: Sequence[Mapping[int, bytes]], layout: Layout, fingerprint: str) -> list[State]:
    """Old cells' state, by number (`cell.state`), as the new layout's cells have it.

    `fingerprint` is that of the new plan: the layout is part of it. Shape and functions are left out of the new
    manifests, since nobody here knows the functions that wrote the state; `resume.check_state` knows of that.

    The one step has released 0 rows: of a manifest's first step nobody asks for the number (`LiveJoin.outlived`).
    """
    manifests = [Manifest.load(cell[MANIFEST]) for cell in cells if MANIFEST in cell]
    if not manifests:
        return [{} for _ in layout.keys]
    shared = _shared(manifests, len(cells))
    new: list[State] = [{} for _ in layout.keys]
    steps = [Step(uuid.uuid4().hex, shared.frontier, released=[0] * len(bound.inputs)) for _ in new]
    for input in range(len(bound.inputs)):
        rows = rows_held(cells, input)
        if rows is None:
            continue
        rows = _hashed(rows, layout)
        for state, step, at in zip(new, steps, places_of(bound, input, rows, layout), strict=True):
            _keep(state, step, input, rows if at is None else rows.take(pa.array(at)))
    states: list[list[int]] = [[] for _ in new]
    for cell, manifest in zip(cells, manifests, strict=True):
        for bucket in manifest.states:
            new[bucket % layout.cells][state_number(bucket)] = cell[state_number(bucket)]
            states[bucket % layout.cells].append(bucket)
    for number, (state, step) in enumerate(zip(new, steps, strict=True)):
        state[MANIFEST] = Manifest(
            fingerprint, shared.frontier, next_chunk=len(step.chunks), drained=shared.drained,
            counts=total(m.counts for m in manifests) if number == 0 else Counts(),  # the sum is what matters
            events=shared.events, steps=[step], progress=shared.progress, upstreams=shared.upstreams,
            states=sorted(states[number]), operator=shared.operator, came=shared.came,
        ).dump()  # fmt: skip
    return new


def _shared(manifests: list[Manifest], cells: int) -> Manifest:
    """What all cells know alike.

    If they differ, or a cell has no manifest, the state is not that of a committed batch, and it is refused.
    """
    first = manifests[0]
    for other in manifests:
        same = (other.frontier, other.events, other.progress, other.upstreams, other.drained) == (
            first.frontier, first.events, first.progress, first.upstreams, first.drained
        )  # fmt: skip
        if not same or len(manifests) != cells:
            raise RunError(
                f"The cells of this checkpoint are not at one frontier: {first.frontier} and {other.frontier}",
                why="they are, whenever a batch has been committed, so its state is not whole",
                do="Start the query on it once more and let a batch end",
            )
    return first


def rows_held(cells: Sequence[Mapping[int, bytes]], input: int) -> pa.Table | None:
    """All rows of an input that any cell holds, each once, in order; None if there are none.

    Equal rows of seq="content" share a key and each counts: a cell that has one of them has all, so they are told apart
    by their number in a cell.
    """
    found = []
    for cell in cells:
        steps = Manifest.load(cell[MANIFEST]).steps if MANIFEST in cell else []
        chunks = [chunk for step in steps for chunk in step.chunks if chunk.input == input]
        if chunks:
            rows = in_order(pa.concat_tables([formats.chunk_table(cell[chunk.number]) for chunk in chunks]))
            found.append(_numbered(rows.combine_chunks()) if formats.KEY in rows.column_names else rows)
    if not found:
        return None
    rows = pa.concat_tables(found)
    if formats.KEY not in rows.column_names:
        return in_order(rows).combine_chunks()  # partial panes: each in one cell
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(n, "ascending") for n in (formats.TS, formats.KEY, _NUMBER)]))
    rows = rows.combine_chunks()
    again = _like_before(rows.column(formats.KEY)) & _like_before(rows.column(_NUMBER))
    return rows.filter(pa.array(~again)).drop_columns([_NUMBER]).combine_chunks()


_NUMBER = "_plait_number"


def _numbered(rows: pa.Table) -> pa.Table:
    """With each row's number among those of its key."""
    place = np.arange(rows.num_rows)
    begins = ~_like_before(rows.column(formats.KEY))
    number = place - np.maximum.accumulate(np.where(begins, place, 0))
    return rows.append_column(_NUMBER, pa.array(number))


def _like_before(column: pa.ChunkedArray) -> np.ndarray:
    """Whether a value equals the one before it."""
    same = np.zeros(len(column), bool)
    if len(column) > 1:
        same[1:] = pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy()
    return same


def _hashed(rows: pa.Table, layout: Layout) -> pa.Table:
    """With the hash by which cells of "see_all" tell who stores a row, and for other layouts without it.

    Any hash of its key will do: all cells get the same one.
    """
    if layout.kind != "see_all":
        return rows.drop_columns([formats.HASH]) if formats.HASH in rows.column_names else rows
    return rows if formats.HASH in rows.column_names else rows.append_column(formats.HASH, pa.array(_of_keys(rows)))


def _of_keys(rows: pa.Table) -> np.ndarray:
    keys = pc.cast(rows.column(formats.KEY), pa.binary()).to_pylist()
    return mix(np.fromiter(map(zlib.crc32, keys), np.uint64, len(keys)))


def places_of(bound: Bound, input: int, rows: pa.Table, layout: Layout) -> list[np.ndarray | None]:
    """For each new cell the rows that go there; None for all of them.

    For a grid the hash is of the whole key and not the one that `pack` would take. Any will do: what matters is that a
    row of one input goes to one line of cells, and tuples that come later are dealt out by themselves.
    """
    if isinstance(bound.node, Operator):
        codes, named = codes_of(pa.concat_arrays(rows.column(ROUTE).cast(ROUTE_TYPE).chunks))
        return list(places(codes, named, layout.cells))
    if layout.kind == "hash" and not isinstance(bound.node, Union):  # whose tuples go by their own key
        columns = hash_columns(bound)
        return destinations(layout, input, words(columns, input, rows))
    if layout.kind == "band":
        to = band_places(
            layout, range_columns(bound, layout.term, layout.wide).spans(input, rows), input, _of_keys(rows)
        )
        return [np.flatnonzero(cell) for cell in to]
    return destinations(layout, input, _of_keys(rows))


def _keep(state: State, step: Step, input: int, rows: pa.Table) -> None:
    """Rows of one input as chunks of a new cell. They are cut by time, since rows are in order, so old chunks go before
    young ones.
    """
    size = max(1, -(-rows.num_rows // _CHUNKS))
    for at in range(0, rows.num_rows, size):
        part = rows.slice(at, size)
        number = len(step.chunks)
        state[number] = formats.chunk_body(part.combine_chunks())
        last = int(pc.max(part.column(formats.TS)).as_py())
        step.chunks.append(Chunk(number, input, part.num_rows, last, len(state[number])))
