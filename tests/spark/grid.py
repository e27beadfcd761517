"""The cells of a query without Spark: `pack` and `step` with dictionaries for state, and attempts that come to nothing.

A `Grid` does what Spark does between two commits of offsets: it packs each task's rows, hands every cell its bodies, and
keeps what the winning attempt wrote. Everything else an attempt did must leave no trace.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.strategies import Case, Given, interleaved, table

from plait.core.metrics import Counts
from plait.query.bind import bind
from plait.spark import formats
from plait.spark.cell import join as cell_join
from plait.spark.cell import state as cell_state
from plait.spark.cell.cell import CellPlan, step
from plait.spark.cell.end_of_input import closed, is_closing
from plait.spark.cell.results import merge, read
from plait.spark.formats import MANIFEST, CellReport, Event
from plait.spark.keep.recent import Recent
from plait.spark.keep.resettle import resettle
from plait.spark.pack.pack import Frame, PackPlan, pack
from plait.spark.pack.positions import BLOCK, PATH, ROW
from plait.spark.plan.fingerprint import fingerprint
from plait.spark.plan.layout import Layout
from plait.spark.plan.stages import layouts, stages

Bodies = list[bytes]


class Lost(Exception):
    """The attempt dies here."""


class Store:
    """A cell's state as of one commit, with the changes of one attempt; counts what it writes."""

    def __init__(self, data: dict[Any, bytes], *, die_after: int | None = None) -> None:
        self.data, self.left = dict(data), die_after
        self.written, self.dropped, self.read = 0, 0, 0

    def _touch(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Lost

    def manifest(self) -> bytes | None:
        self._touch()
        return self.data.get("manifest")

    def put_manifest(self, data: bytes) -> None:
        self._touch()
        self.data["manifest"] = data

    def chunk(self, number: int) -> bytes:
        self._touch()
        self.read += 1
        return self.data[number]

    def put_chunk(self, number: int, data: bytes) -> None:
        self._touch()
        assert number not in self.data or number < 0
        self.data[number] = data
        self.written += _rows(number, data)

    def drop_chunk(self, number: int) -> None:
        self._touch()
        self.dropped += _rows(number, self.data.pop(number))

    @property
    def chunk_rows(self) -> int:
        return sum(_rows(number, data) for number, data in self.data.items() if number != "manifest")


def _rows(number: int, data: bytes) -> int:
    """Of a chunk; states have none."""
    return formats.chunk_table(data).num_rows if number >= 0 else 0


@dataclass
class Batch:
    """One micro-batch: what each task of each pack plan reads, and control events."""

    tasks: list[tuple[PackPlan, pa.Table]]
    events: list[Event] = field(default_factory=list)

    def bodies(self, cells: Layout, packs: list[tuple[PackPlan, PackPlan]], *, events: bool) -> list[Bodies]:
        """What one operator's cells get of it: its own streams' rows, and events if it reads any.

        `packs` are pairs: as the batch names it, and as it is now that cells may have been laid out anew.
        """
        found: list[Bodies] = [[] for _ in cells.keys]
        for plan, rows in self.tasks:
            for now in (now for own, now in packs if plan is own):
                for at, body in packed(now, rows):
                    found[cells.keys.index(at)].append(body)
        for event in self.events if events else ():
            for bodies in found:
                bodies.append(formats.body(event))
        return found


def packed(plan: PackPlan, rows: pa.Table, *, batch_rows: int | None = None) -> list[tuple[int, bytes]]:
    out = pack(plan, iter(rows.to_batches(max_chunksize=batch_rows)))
    return [(row["cell"], row["body"]) for b in out for row in b.to_pylist()]


class Grid:
    """All cells of a query. `workers` are processes with an index cache each; any of them may serve any cell."""

    number = 0

    def __init__(self, case: Case, layout: str | tuple[int, int] | Layout, chance: random.Random, *, faults: bool = False,
                 workers: int = 1, max_pending: int | None = None, shared: Path | None = None) -> None:  # fmt: skip
        Grid.number += 1
        self.shared = None if shared is None else shared / str(Grid.number)  # the workers' recent chunks
        self.chance, self.faults = chance, faults
        self.heard: Callable[[str], None] = lambda fate: None  # is told of each attempt that does not count
        self.workers = [f"grid {Grid.number}, worker {n}" for n in range(workers)]
        self.case, self.max_pending = case, max_pending
        self.bound = bind(case.query, case.schemas)
        self.feeds = {each.stream.name: frames_of(each, chance) for each in case.given}
        self._lay_out(layout)
        # Batches are made of these, whatever the layout has become.
        self.first = [[plan for _, plan in stage.packs] for stage in self.stages]
        self.packs: dict[str, list[PackPlan]] = {name: [] for name in self.feeds}
        for plans in self.first:
            for plan in plans:
                self.packs[plan.stream.name].append(plan)
        self.states: list[list[dict[Any, bytes]]] = [[{} for _ in s.plan.layout.keys] for s in self.stages]
        self.schema = pa.schema([*self.bound.schema, pa.field(formats.KEY, pa.binary())])
        self.results: list[pa.Table] = []
        self.late: dict[str, list[dict[str, Any]]] = {name: [] for name in self.feeds}
        self.sent_bytes = 0  # of all bodies
        self.reports: list[CellReport] = []  # of the last batch
        self.latest: dict[tuple[int, int], CellReport] = {}  # of each cell of each operator
        self.stores: list[Store] = []

    def _lay_out(self, layout: str | tuple[int, int] | Layout) -> None:
        query = self.case.query
        cells = [layout] if isinstance(layout, Layout) else layouts(self.bound, layout, 4, 4)
        self.layout = cells[0]
        mark = fingerprint(query, self.bound, *cells)
        common = CellPlan(self.bound, (), self.layout, mark, max_pending=self.max_pending)
        self.stages = stages(self.bound, cells, self.feeds, common)

    def relayout(self, layout: str | tuple[int, int] | Layout) -> None:
        """Stop, and go on with other cells, in other processes."""
        # What closings have given out at the end of input is in no cell's state.
        self.latest = {at: report for at, report in self.latest.items() if report.cell < 0}
        self._lay_out(layout)
        Grid.number += 1
        self.workers = [f"grid {Grid.number}, worker {n}" for n in range(len(self.workers))]
        for number, stage in enumerate(self.stages):
            plan = stage.plan
            old = [{MANIFEST if n == "manifest" else n: d for n, d in cell.items()} for cell in self.states[number]]
            new = resettle(plan.bound, old, plan.layout, plan.fingerprint)
            self.states[number] = [{"manifest" if n == MANIFEST else n: d for n, d in c.items()} for c in new]

    def run(self, batch: Batch) -> pa.Table:
        """Every cell's step, committed; gives the batch's results in result order."""
        found = []
        self.reports, self.stores = [], []
        out: dict[int, list[tuple[int, bytes]]] = {}
        for stage in reversed(self.stages):  # a stage's number is below those before it
            plan = stage.plan
            packs = list(zip(self.first[plan.number], (pack for _, pack in stage.packs), strict=True))
            own = batch.bodies(plan.layout, packs, events=bool(plan.streams))
            for cell, body in [row for number in plan.upstreams for row in out[number]]:
                own[plan.layout.keys.index(cell)].append(body)
            self.sent_bytes += sum(len(body) for bodies in own for body in bodies)
            # Spark calls no cell that got nothing.
            rows = [row for cell, bodies in enumerate(own) if bodies for row in self._attempts(plan, cell, bodies)]
            out[plan.number] = closed(rows, plan.bound, plan.onward)
        for kind, body in out[0]:
            if kind == formats.RESULTS:
                found.append(read(body))
            elif kind == formats.LATE:
                head, rest = formats.parse(body)
                self.late[head.stream] += formats.table(rest).to_pylist()
            else:
                self.reports.append(formats.parse(body)[0])
                self.latest[self.reports[-1].operator, self.reports[-1].cell] = self.reports[-1]
        if len(self.stages) == 1:
            assert len({report.frontier for report in self.reports}) <= 1, "cells disagree about the frontier"
        result = merge(found).table().cast(self.schema).combine_chunks() if found else self.schema.empty_table()
        assert result.column(formats.KEY).to_pylist() == sorted(result.column(formats.KEY).to_pylist())
        self.results.append(result)
        return result

    @property
    def state(self) -> list[dict[Any, bytes]]:
        """Of the last operator's cells."""
        return self.states[0]

    def _attempts(self, plan: CellPlan, cell: int, bodies: Bodies) -> list[tuple[int, bytes]]:
        """The winning attempt's output, after and beside others that leave no trace."""
        chance, state = self.chance, self.states[plan.number]
        done = []
        for _ in range(chance.randrange(3) if self.faults else 0):
            fate = chance.choice(("dies", "loses", "other rows"))
            self.heard(fate)
            store = Store(state[cell], die_after=chance.randrange(6) if fate == "dies" else None)
            some = chance.sample(bodies, len(bodies)) if fate != "other rows" else [b for b in bodies if _is_event(b)]
            try:
                out = self._step(plan, cell, store, some)
                done += [out] if fate != "other rows" else []
            except Lost:
                pass
        store = Store(state[cell])
        out = self._step(plan, cell, store, chance.sample(bodies, len(bodies)))
        if self.faults and chance.random() < 0.3:
            # A speculative twin: both end well, and either may be the one whose state is kept.
            self.heard("twin")
            twin = Store(state[cell])
            done.append(self._step(plan, cell, twin, bodies))
            store = chance.choice((store, twin))
        for other in done:
            # Of one state there may be several pickles.
            same = [[_as_ever(*row) for row in rows if not is_closing(row[0])] for rows in (other, out)]
            assert same[0] == same[1], "another attempt at the same batch gave other bytes"
        state[cell] = store.data
        self.stores.append(store)
        return out

    def _step(self, plan: CellPlan, cell: int, store: Store, bodies: Bodies) -> list[tuple[int, bytes]]:
        near = Recent(None if self.shared is None else self.shared / f"{plan.number}-{cell}", steps=3)
        worker = f"{self.chance.choice(self.workers)} {plan.number}"
        return step(plan, cell, store, bodies, cache_key=worker, near=near)

    @property
    def table(self) -> pa.Table:
        """All results in publish order."""
        return pa.concat_tables(self.results) if self.results else self.schema.empty_table()


def _as_ever(kind: int, body: bytes) -> tuple[int, Any]:
    """A row that a cell puts out, but for how many pairs it looked at, since which index serves depends on what is
    cached, whether it was, and for how long it took; and for the size of what it stores, since rows of one ts may stand in any
    order there."""
    head = formats.parse(body)[0]
    if isinstance(head, formats.Passed):
        head = formats.parse(formats.parse(body)[1])[0]
    if isinstance(head, CellReport):
        plain = replace(head.counts, comparisons=0)
        return kind, replace(head, counts=plain, batch=Counts(), stages={}, held_bytes=0, missed=False)
    if isinstance(head, (formats.PairRows, formats.KeyedRows)):
        return kind, _bytes_of(read(body).table())
    if isinstance(head, formats.OperatorRows) and (rows := formats.rows(formats.parse(body)[1])) is not None:
        return kind, (head, _bytes_of(rows))
    return kind, body


def _bytes_of(rows: pa.Table) -> bytes:
    """These rows as a part would hold them. Arrow's own form also has what lies under NULLs, which nobody reads and may be
    anything, and of a table that is a stretch of a longer one more than its own rows."""
    out = pa.BufferOutputStream()
    pq.write_table(rows.combine_chunks(), out)
    return bytes(out.getvalue())


def _is_event(body: bytes) -> bool:
    return isinstance(formats.parse(body)[0], Event)


# --- a stream's rows as Spark's tasks would read them -------------------------------------------------------


def frames_of(each: Given, chance: random.Random) -> list[Frame]:
    """Where a stream's sources and positions come from, as `frames.frames_of` finds it for DataFrames."""
    stream = each.stream
    seq: tuple[str, str | None] = (chance.choice(("kafka", "row", "block")), None)
    if stream.seq_column is not None:
        seq = ("column", stream.seq_column)
    elif stream.seq == "content":
        seq = ("content", None)
    if each.by_column:
        return [Frame(None, "column", stream.source, 0, *seq)]
    names = list(each.sources)
    declared = stream.declared()
    ranks = (
        list(declared) if declared is not None else sorted(names, key=lambda n: n.encode() if isinstance(n, str) else n)
    )
    return [Frame(None, "constant", name, ranks.index(name), *seq) for name in names]


def positioned(each: Given, seq: str, rows: list[tuple[Any, ...]], chance: random.Random) -> pa.Table:
    """Rows in order of position, with the columns that tell it. Files are cut anywhere, some of them in blocks."""
    made = table(each.schema, rows)
    if seq == "kafka":
        return at_offsets(made, pa.array([3 * n for n in range(len(rows))], pa.int64()))
    if seq not in ("row", "block"):
        return made
    paths, numbers, blocks, file, row, block = [], [], [], 0, 0, 0
    for _ in rows:
        if row and chance.random() < 0.3:
            file, row, block = file + 1, 0, 0
        elif row and chance.random() < 0.2:
            block += 100
        paths.append(f"file:///feed/p{file:03d}")
        numbers.append(row)
        blocks.append(block)
        row += 1
    made = made.append_column(PATH, pa.array(paths, pa.string()))
    return made.append_column(ROW, pa.array(numbers, pa.int64())).append_column(BLOCK, pa.array(blocks, pa.int64()))


def at_offsets(rows: pa.Table, offsets: pa.Array) -> pa.Table:
    """Rows as they come from a partition of Kafka's."""
    rows = rows.append_column("topic", pa.array(["t"] * len(rows), pa.string()))
    return rows.append_column("partition", pa.array([0] * len(rows), pa.int32())).append_column("offset", offsets)


def at_places(rows: pa.Table, numbers: pa.Array) -> pa.Table:
    """Rows that stand at these numbers, however a position is told: offsets, rows of one file, or blocks of it."""
    rows = at_offsets(rows, numbers).append_column(PATH, pa.array(["p"] * len(rows), pa.string()))
    return rows.append_column(ROW, numbers).append_column(BLOCK, numbers)


def batches(grid: Grid, case: Case, *, longest: int = 6, events: bool = False) -> Iterator[Batch]:
    """Every stream's rows in batches of any size; a source's keep their order from batch to batch.

    With `events` sources also promise (truly) how far they have come, and end once they have; events are replayed.

    Within a batch, tasks hold what Spark gives them: ranges of positions, or files and blocks in any company, or, where a
    seq column orders a source, all of it; and rows without position in any way.
    """
    chance = grid.chance
    rest: list[tuple[Given, PackPlan, pa.Table]] = []
    sent: list[Event] = []
    for each in case.given:
        for plan in grid.packs[each.stream.name]:
            if each.by_column:
                rows = interleaved(each.sources, each.arrival)
            else:
                rows = each.sources[plan.source_name]
            rest.append((each, plan, positioned(each, plan.seq, rows, chance)))
    while any(rows.num_rows for *_, rows in rest):
        tasks = []
        for at, (each, plan, rows) in enumerate(rest):
            size = chance.choice((0, 1, 2, longest))
            if plan.seq in ("row", "block") and size:
                size = _whole_files(rows, size)
            tasks += [(plan, part) for part in split(plan, rows.slice(0, size), chance)]
            rest[at] = (each, plan, rows.slice(size))
        sent += news(rest, chance, len(sent)) if events else []
        yield Batch(chance.sample(tasks, len(tasks)), sent[-1 - chance.randrange(4) :] if sent else [])


def news(rest: list[tuple[Given, PackPlan, pa.Table]], chance: random.Random, number: int) -> list[Event]:
    """Heartbeats and ends that are true: of a source that has rows to come no more than its least ts."""
    found: list[Event] = []
    for each, plan, rows in rest:
        at = rows.column("src").to_pylist() if each.by_column else [plan.source_name] * rows.num_rows
        for source in each.sources if each.by_column else [plan.source_name]:
            if chance.random() < 0.6:
                continue
            to_come = [ts for ts, name in zip(rows.column("ts").to_pylist(), at, strict=True) if name == source]
            do, ts = ("heartbeat", min(to_come)) if to_come else ("end", None)
            found.append(Event(number + len(found), do, each.stream.name, source, ts))
    return found


def _whole_files(rows: pa.Table, size: int) -> int:
    """Spark takes files whole: the next place where one ends."""
    paths = rows.column(PATH).to_pylist()
    while size < len(paths) and paths[size] == paths[size - 1]:
        size += 1
    return size


def split(plan: PackPlan, rows: pa.Table, chance: random.Random) -> list[pa.Table]:
    """A batch's rows of one DataFrame as tasks read them."""
    if rows.num_rows == 0:
        return [rows] if chance.random() < 0.5 else []
    if plan.seq == "content":
        of_task = [chance.randrange(3) for _ in range(rows.num_rows)]
        parts = [picked(rows, (task == t for task in of_task)) for t in range(3)]
        return [shuffled(part, chance) for part in parts]
    if plan.seq == "column":
        if plan.source == "column":  # repartitioned by source: all of a source in one task
            names = rows.column(plan.source_name).to_pylist()
            tasks = {name: chance.randrange(2) for name in sorted(set(names))}
            parts = [picked(rows, (tasks[name] == t for name in names)) for t in range(2)]
            return [shuffled(part, chance) for part in parts if part.num_rows]
        return [shuffled(rows, chance)]
    if plan.seq == "kafka":
        cut = chance.randrange(rows.num_rows + 1)
        return [shuffled(part, chance) for part in (rows.slice(0, cut), rows.slice(cut)) if part.num_rows]
    places = list(zip(rows.column(PATH).to_pylist(), rows.column(BLOCK).to_pylist(), strict=True))
    tasks = {place: chance.randrange(3) for place in sorted(set(places))}
    if plan.seq == "row":
        # A file's blocks may fall to several tasks, but a task has no two of a file with another's in between.
        tasks = _no_gaps(tasks)
    parts = [picked(rows, (tasks[place] == t for place in places)) for t in range(3)]
    if plan.seq == "row":
        parts = [shuffled(part, chance) for part in parts]
    return [part for part in parts if part.num_rows]


def _no_gaps(tasks: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    used: dict[str, list[int]] = {}
    for (path, block), task in tasks.items():
        seen = used.setdefault(path, [])
        task = task if not seen or task not in seen[:-1] else seen[-1]
        seen.append(task)
        found[(path, block)] = task
    return found


def picked(rows: pa.Table, which: Iterable[bool]) -> pa.Table:
    return rows.filter(pa.array(list(which), pa.bool_()))


def shuffled(rows: pa.Table, chance: random.Random) -> pa.Table:
    order = list(range(rows.num_rows))
    chance.shuffle(order)
    return rows.take(pa.array(order, pa.int64()))


def drain(number: int = 1_000) -> Batch:
    return Batch([], [Event(number, "drain")])


def deliver(grid: Grid, steps: Iterable[Batch]) -> pa.Table:
    for batch in steps:
        grid.run(batch)
    return grid.table


@contextmanager
def plain_windows() -> Iterator[None]:
    """Cells of joins run their kernels' text by Python; what they have kept is forgotten at the end."""
    with pytest.MonkeyPatch.context() as patch:
        whole = cell_join.JoinWindow
        patch.setattr(cell_join, "JoinWindow", lambda *args, **options: whole(*args, **options, plain=True))
        yield
        cell_state._CACHE.clear()
