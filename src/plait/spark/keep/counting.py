"""A query's cells run in this process, over the first rows of its feeds: what they would be sent and would hold, without Spark.

What `plait explain --executors` counts. Nothing here is a model: rows are cut into files as `plait run` cuts them, packed by what
packs them in tasks, and taken by the cells' own steps, one micro-batch after the other. What cells have counted, and the state
that they leave, is what a run on Spark would have of the same batches; paths of files, which are in keys, are as long as those of
most folders. The input does not end: windows are as full as in mid-run.

Where it runs: in the process that asks, without a JVM; `pyspark` is imported by modules on the way, and not used. Held by
tests/spark/test_projection.py, and against real executors by tests/spark/test_executors.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors.contract import Feed, Lane
from plait.core.metrics import Counts, total
from plait.query.base import Query
from plait.query.bind import Bound, bind
from plait.query.row_by_row import rooted
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell.cell import CellPlan, step
from plait.spark.cell.end_of_input import is_closing
from plait.spark.pack.pack import Frame, PackPlan, pack
from plait.spark.pack.positions import COLUMN, CONTENT, PATH, ROW, ROWS
from plait.spark.plan.fingerprint import fingerprint
from plait.spark.plan.layout import Layout
from plait.spark.plan.stages import Stage, layouts, lowered, stages

#: Micro-batches that `plait run` makes of a feed, about; and the fewest rows of a file.
BATCHES, LEAST = 10, 1_000
#: So many rows of a stream are looked at, unless a caller asks for another number.
ROWS_LOOKED_AT = 100_000


@dataclass(frozen=True)
class Counted:
    """What the cells of one operator have counted, and what they hold.

    Attributes:
        bound, layout: The operator, and how its cells were laid out.
        counts: Of all cells, added up.
        cells: What each stores, by number, as Spark's state would have it.
        own: Of each cell its own counts.
    """

    bound: Bound
    layout: Layout
    counts: Counts
    cells: list[dict[int, bytes]]
    own: list[Counts]


def counted(query: Query, feeds: Mapping[str, Feed], *, rows: int = ROWS_LOOKED_AT, layout: str | tuple[int, int] = "auto",
            cells: int = 1) -> list[Counted]:  # fmt: skip
    """Each operator's counts, in the order of their numbers: of at most so many rows a stream, from the beginning."""
    query = rooted(query)
    bound = lowered(bind(query, {name: feed.schema for name, feed in feeds.items()}))
    grids = layouts(bound, layout, cells, cells, cells=cells)
    given: dict[str, list[Frame]] = {}
    files: dict[int, list[pa.Table]] = {}  # of each frame
    for name, stream in query.streams().items():
        found = [(_frame(stream, lane), lane) for lane in _lanes(stream, feeds[name])]
        given[name] = [frame for frame, _ in found]
        for frame, lane in found:
            files[id(frame)] = _files(stream, lane, feeds[name], rows // len(found), frame)
    common = CellPlan(bound, (), grids[0], fingerprint(query, bound, *grids))
    made = stages(bound, grids, given, common)
    stores = {stage.plan.number: [_Memory() for _ in stage.plan.layout.keys] for stage in made}
    for number in range(max((len(tables) for tables in files.values()), default=0)):
        bodies: dict[int, dict[int, list[bytes]]] = {stage.plan.number: {} for stage in made}
        for stage in reversed(made):  # a stage's number is below those before it
            here = bodies[stage.plan.number]
            for frame, plan in stage.packs:
                _packed(plan, files[id(frame)][number : number + 1], here)
            _batch(stage.plan, here, stores[stage.plan.number], _following(made, bodies, stage.plan))
    return [
        of_cells(stage.plan.bound, stage.plan.layout, [s.data for s in stores[stage.plan.number]]) for stage in made
    ]


def _packed(plan: PackPlan, tables: list[pa.Table], here: dict[int, list[bytes]]) -> None:
    """A micro-batch's file of one DataFrame, if there is one, as a task packs it: bodies by cell."""
    for table in tables:
        for packed in pack(plan, iter(table.combine_chunks().to_batches())):
            for cell, body in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                here.setdefault(cell, []).append(body)


def _batch(plan: CellPlan, here: dict[int, list[bytes]], stores: list[_Memory], onward: dict[int, list[bytes]]) -> None:
    """An operator's cells take what has come. What they give goes to the next operator's cells, or nowhere."""
    for key, bodies in sorted(here.items()):
        cell = plan.layout.keys.index(key)
        out = step(plan, cell, stores[cell], bodies)
        for to, body in out if plan.onward is not None else ():
            if not is_closing(to):
                onward.setdefault(to, []).append(body)


def _following(made: list[Stage], bodies: dict[int, dict[int, list[bytes]]], plan: CellPlan) -> dict[int, list[bytes]]:
    """Where an operator's results go."""
    return next((bodies[each.plan.number] for each in made if plan.number in each.plan.upstreams), {})


# --- feeds, as Spark's tasks would read them ------------------------------------------------------------------


def _lanes(stream: Stream, feed: Feed) -> list[Lane | None]:
    """A DataFrame for each lane where nothing in the rows tells sources apart; None: one for all lanes together."""
    return list(feed.lanes) if stream.source_column is None else [None]


def _frame(stream: Stream, lane: Lane | None) -> Frame:
    """How a task reads source and position. A source that is named by its file is one of a lane's name here."""
    seq = ROWS if stream.seq == "position" else CONTENT if stream.seq == "content" else COLUMN
    if lane is None:
        return Frame(None, "column", stream.source_column, 0, seq.name, stream.seq_column)
    declared = stream.declared()
    rank = declared.index(lane.source) if declared is not None and lane.source in declared else 0
    return Frame(None, "constant", lane.source, rank, seq.name, stream.seq_column)


def _files(stream: Stream, lane: Lane | None, feed: Feed, most: int, frame: Frame) -> list[pa.Table]:
    """The first rows as files, cut as `plait run` cuts them; with the columns that tell where a row stands."""
    lanes = feed.lanes if lane is None else (lane,)
    table = pa.concat_tables(
        [feed.schema.empty_table(), *(_first(each, most // len(lanes), feed.schema) for each in lanes)]
    )
    if len(lanes) > 1:  # parts are merged by time
        table = table.take(pc.sort_indices(table, sort_keys=[(stream.time, "ascending")]))
    size = max(LEAST, (feed.rows or BATCHES * 100_000) // len(feed.lanes if lane else (1,)) // BATCHES + 1)
    files = []
    for number, begin in enumerate(range(0, table.num_rows, size)):
        file = table.slice(begin, size)
        if frame.seq == ROWS.name:
            path = f"file:///data/of/{stream.name}/part-{number:05d}.parquet"
            file = file.append_column(PATH, pa.array([path] * file.num_rows, pa.string()))
            file = file.append_column(ROW, pa.array(np.arange(file.num_rows)))
        files.append(file)
    return files


def _first(lane: Lane, most: int, schema: pa.Schema) -> pa.Table:
    """The first rows of a lane."""
    found, rows = [], 0
    for chunk in lane.read():
        found.append(chunk.batch.slice(0, most - rows))
        rows += found[-1].num_rows
        if rows >= most:
            break
    return pa.Table.from_batches(found, schema)


def of_cells(bound: Bound, layout: Layout, cells: list[dict[int, bytes]]) -> Counted:
    """What an operator's cells have counted, by what they store."""
    own = [
        formats.Manifest.load(cell[formats.MANIFEST]).counts if formats.MANIFEST in cell else Counts() for cell in cells
    ]
    return Counted(bound, layout, total(own), cells, own)


class _Memory:
    """A cell's state."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}

    def manifest(self) -> bytes | None:
        return self.data.get(formats.MANIFEST)

    def put_manifest(self, data: bytes) -> None:
        self.data[formats.MANIFEST] = data

    def chunk(self, number: int) -> bytes:
        return self.data[number]

    def put_chunk(self, number: int, data: bytes) -> None:
        self.data[number] = data

    def drop_chunk(self, number: int) -> None:
        self.data.pop(number, None)
