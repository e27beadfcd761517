"""A query's operators as stages of one Spark query: each packs what it reads, and its cells' results go to the next one.

Operators are numbered as they are met, from the last one on; one that is used in two places has two numbers and runs twice,
which gives the same rows. Of a stream that several operators read, the first shows the rows that are dropped.

All operators of a query share one time: a timer rings because of a stream that its operator does not read, too. So an
operator with timers hears of all streams how far they are.

Where it runs: on the driver. What comes out is one plan of Spark's for the whole query: for each operator a union of its
packed streams, of the operators before it, of control events and of ticks, grouped by cell. Spark numbers stateful
operators by their place in this plan. So the shape of the plan must not depend on anything that may change between two
starts of one query. Held by tests/spark/test_chains.py and tests/spark/test_operators.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from plait.query.base import Query
from plait.query.bind import Bound
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell.cell import CellPlan, step
from plait.spark.cell.end_of_input import closes, closing_stage
from plait.spark.cell.onward import Onward
from plait.spark.keep import clock, control
from plait.spark.pack.pack import PackPlan
from plait.spark.plan import frames
from plait.spark.plan.layout import Layout, choose
from plait.spark.plan.ship import Shipping, shipping


def layouts(bound: Bound, wanted: str | tuple[int, int], partitions: int, parallelism: int) -> list[Layout]:
    """Each operator's cells, in the order of their numbers: the last one's as asked for, and as many for the others."""
    assert isinstance(bound.node, Query)
    found = [choose(bound.node, wanted, partitions, parallelism)]
    for inner in _inner(bound):
        found += layouts(inner, "auto", partitions, found[0].cells)
    return found


def operators(bound: Bound) -> list[Bound]:
    """The operators, in the order of their numbers."""
    return [bound, *(operator for inner in _inner(bound) for operator in operators(inner))]


def _inner(bound: Bound) -> list[Bound]:
    """The queries that an operator reads, each once."""
    found: dict[int, Bound] = {}
    for input in bound.inputs:
        if isinstance(input.node, Query):
            found.setdefault(id(input.node), input)
    return list(found.values())


def own_streams(bound: Bound) -> list[Stream]:
    """The streams that an operator reads itself, each once."""
    return list(dict.fromkeys(input.node for input in bound.inputs if isinstance(input.node, Stream)))


def pack_plan(stream: Stream, frame: frames.Frame, bound: Bound, cells: Layout) -> PackPlan:
    """How a stream's DataFrame is packed for an operator that reads it. `whole`: rows may be dropped, and must then be shown
    as they are.
    """
    inputs = tuple(n for n, i in enumerate(bound.inputs) if i.node == stream)
    whole = "drop" in (stream.late, stream.behind)
    ship = shipping(bound, inputs[0], cells, whole=whole)
    return _pack_plan(
        stream, frame, inputs, frame.reads(stream, ship.columns, bound.inputs[inputs[0]].schema.names), ship
    )


def heard_plan(stream: Stream, frame: frames.Frame, bound: Bound, cells: Layout, columns: tuple[str, ...]) -> PackPlan:
    """Of a stream that an operator does not read, only how far it is."""
    ship = Shipping(bound, cells, None, (), folds=False, whole=False)
    return _pack_plan(stream, frame, (), frame.reads(stream, (), columns), ship)


def _pack_plan(stream: Stream, frame: frames.Frame, inputs: tuple[int, ...], columns: tuple[str, ...],
               ship: Shipping) -> PackPlan:  # fmt: skip
    return PackPlan(
        stream=stream, inputs=inputs, columns=columns, source=frame.source, source_name=frame.source_name,
        source_rank=frame.source_rank, seq=frame.seq, seq_column=frame.seq_column, ship=ship, scan=frame.scan,
    )  # fmt: skip


def known(stream: Stream, found: list[frames.Frame]) -> tuple[Stream, tuple[Any, ...], bool]:
    """What a cell knows of a stream's sources before the first row: (stream, names, whether more may turn up)."""
    if stream.source is None:
        return stream, tuple(f.source_name for f in found), False
    declared = stream.declared()
    return stream, declared or (), declared is None


@dataclass(frozen=True)
class Stage:
    """One operator: its cells' plan, and how each DataFrame of its streams is packed.

    Attributes:
        plan: Pickled into the tasks of the operator's cells.
        packs: A frame and its plan, for each DataFrame of each stream that it reads or hears.
    """

    plan: CellPlan
    packs: list[tuple[frames.Frame, PackPlan]]


def stages(bound: Bound, cells: list[Layout], given: Mapping[str, list[frames.Frame]], common: CellPlan) -> list[Stage]:
    """All operators of a query, in the order of their numbers. `common` is what their cells' plans share.

    An inner operator gets its number when it is met, before its own inputs do; so the numbers are a fact of the query. A
    stream's dropped rows are shown by the first operator that reads it (`elsewhere` for the others).
    """
    made: list[Stage | None] = []
    shown: set[str] = set()
    columns = {i.node: tuple(i.schema.names) for o in operators(bound) for i in o.inputs if isinstance(i.node, Stream)}

    def add(bound: Bound, onward: Onward | None) -> int:
        number, streams = len(made), own_streams(bound)
        made.append(None)
        heard = [stream for stream in columns if stream not in streams] if closes(bound.node) else []
        layout, elsewhere = cells[number], shown.union(stream.name for stream in heard)
        shown.update(stream.name for stream in streams)
        upstreams = []
        for inner in _inner(bound):
            inputs = tuple(n for n, i in enumerate(bound.inputs) if i.node is inner.node)
            to_here = Onward(len(made), inputs, shipping(bound, inputs[0], layout, whole=False))
            upstreams.append(add(inner, to_here))
        plan = replace(
            common, bound=bound, layout=layout, number=number, upstreams=tuple(upstreams), onward=onward,
            streams=tuple(known(stream, given[stream.name]) for stream in (*streams, *heard)),
            elsewhere=frozenset(elsewhere),
        )  # fmt: skip
        packs = [(f, pack_plan(stream, f, bound, layout)) for stream in streams for f in given[stream.name]]
        packs += [
            (f, heard_plan(stream, f, bound, layout, columns[stream])) for stream in heard for f in given[stream.name]
        ]
        made[number] = Stage(plan, packs)
        return number

    add(bound, None)
    return [stage for stage in made if stage is not None]


@dataclass(frozen=True)
class Pipeline:
    """The stages as DataFrames.

    Attributes:
        stages: In the order of their numbers; stage 0 gives the query's results.
        partitions: Of Spark's shuffles, and so of the state. A checkpoint has them for good; `relayout` changes them.
        packs: Shared with other plans of the same call of `on_spark`, which differ in layout or in the control folder.
    """

    stages: list[Stage]
    streaming: bool
    events: Any | None  # control events, as Spark reads them
    ticks: Any | None  # seconds
    partitions: int
    packs: dict[Any, Any]  # streams' rows, packed: made once for all plans with the same cells

    def packed(self, number: int = 0) -> Any:
        """The packed rows that a stage's cells get.

        Control events and ticks go only to operators that read or hear a stream: the others learn time from the operators
        before them.
        """
        stage = self.stages[number]
        plan, streams = stage.plan, [stream for stream, *_ in stage.plan.streams]
        parts = [self._rows(number, place) for place in range(len(stage.packs))]
        parts += [self.output(before) for before in plan.upstreams]
        if streams and self.events is not None:
            parts.append(control.packed(self.events, plan.layout))
        if self.ticks is not None and any(stream.idle_after_us is not None for stream in streams):
            parts.append(clock.packed(self.ticks, plan.layout))
        return functools.reduce(lambda a, b: a.unionAll(b), parts)

    def _rows(self, number: int, place: int) -> Any:
        """What one DataFrame of a stage's streams brings.

        Made once, since Spark would analyse the plan anew for each.
        """
        key = (number, place, self.stages[number].plan.layout)
        if key not in self.packs:
            frame, how = self.stages[number].packs[place]
            self.packs[key] = frame.given(how.columns).mapInArrow(how.mapper(), formats.PACKED)
        return self.packs[key]

    def output(self, number: int = 0) -> Any:
        """What a stage's cells put out: packed rows for the next one's cells, or, of stage 0, for the user.

        Streaming: Spark calls the cell's processor for each key that has rows. `timeMode="None"`: plait's timers are its
        own. Batch: the same step, once for each cell, with all rows and the end of input.
        """
        plan, packed = self.stages[number].plan, self.packed(number)
        schema = formats.OUTPUT if plan.onward is None else formats.PACKED
        if self.streaming:
            from plait.spark.cell.stateful import processor

            out = packed.groupBy("cell").transformWithStateInPandas(
                statefulProcessor=processor(plan), outputStructType=schema, outputMode="append", timeMode="None"
            )
        else:
            out = packed.groupBy("cell").applyInArrow(_whole_cell(plan), schema)
        return closing_stage(out, plan.bound, plan.onward, self.partitions, schema) if closes(plan.bound.node) else out

    def importing(self, read: Callable[[int], Any], number: int = 0) -> Any:
        """The same operators of Spark's in the same places, whose cells only store what they are handed (`relayout`)."""
        from plait.spark.cell.stateful import Importer

        parts = [read(number), *(self.importing(read, upstream) for upstream in self.stages[number].plan.upstreams)]
        rows = functools.reduce(lambda a, b: a.unionAll(b), parts)
        return rows.groupBy("cell").transformWithStateInPandas(
            statefulProcessor=Importer(), outputStructType=formats.STATE_ROWS, outputMode="append", timeMode="None"
        )


class _Dict:
    """A store for one step: batch runs have no state.

    Nothing is put into it that would be read again: there is one step.
    """

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.chunks: dict[int, bytes] = {}

    def manifest(self) -> bytes | None:
        return self.data

    def put_manifest(self, data: bytes) -> None:
        self.data = data

    def chunk(self, number: int) -> bytes:
        return self.chunks[number]

    def put_chunk(self, number: int, data: bytes) -> None:
        return

    def drop_chunk(self, number: int) -> None:
        return


def _whole_cell(plan: CellPlan) -> Callable[[pa.Table], pa.Table]:
    """For `applyInArrow`: a cell's whole input in, what its one step puts out."""

    def whole(table: pa.Table) -> pa.Table:
        cell = plan.layout.keys.index(table.column("cell")[0].as_py())
        out = step(plan, cell, _Dict(), table.column("body").to_pylist(), end=True)
        names = formats.columns(plan.onward is not None)
        arrays = [pa.array([place for place, _ in out], pa.int32()), pa.array([body for _, body in out], pa.binary())]
        return pa.Table.from_arrays(arrays, names=names)

    return whole
