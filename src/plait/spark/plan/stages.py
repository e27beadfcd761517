"""A query's operators as stages of one Spark query: each packs what it reads, and its cells' results go to the next one.

Operators are numbered as they are met, from the last one on; one that is used in two places has two numbers and runs twice,
which gives the same rows. Of a stream that several operators read, the first shows the rows that are dropped.

All operators of a query share one time: a timer rings because of a stream that its operator does not read, too. So an
operator with timers hears of all streams how far they are.

Where it runs: on the driver, before anything is read. What comes out, a `Stage` an operator, says how its tuples are packed and
what its cells have to know; `run.Plan` makes Spark's plan of it. Held by tests/spark/test_chains.py and
tests/spark/test_operators.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from plait.core.row_by_row import through
from plait.query.base import Query
from plait.query.bind import Bound
from plait.query.row_by_row import reads
from plait.query.stream import Stream
from plait.spark.cell.cell import CellPlan, closes
from plait.spark.cell.onward import Onward
from plait.spark.pack.pack import Frame, PackPlan
from plait.spark.pack.ship import Shipping, equal_columns, shipping
from plait.spark.plan.layout import Layout, choose


def layouts(bound: Bound, wanted: str | tuple[int, int] | Layout, partitions: int, parallelism: int, *, cells: int | None = None,
            rates: tuple[float, float] | None = None) -> list[Layout]:  # fmt: skip
    """Each operator's cells, in the order of their numbers: the last one's as asked for, and as many for the others."""
    assert isinstance(bound.node, Query)
    equal = bool(equal_columns(bound))
    found = [choose(bound.node, wanted, partitions, parallelism, cells=cells, rates=rates, equal=equal)]
    for inner in inner_of(bound):
        found += layouts(inner, "auto", partitions, found[0].cells)
    return found


def operators(bound: Bound) -> list[Bound]:
    """The operators, in the order of their numbers."""
    return [bound, *(operator for inner in inner_of(bound) for operator in operators(inner))]


def inner_of(bound: Bound) -> list[Bound]:
    """The queries that an operator reads, each once."""
    found: dict[int, Bound] = {}
    for input in bound.inputs:
        if isinstance(input.node, Query):
            found.setdefault(id(input.node), input)
    return list(found.values())


def own_streams(bound: Bound) -> list[Stream]:
    """The streams that an operator reads itself, each once."""
    return list(dict.fromkeys(input.node for input in bound.inputs if isinstance(input.node, Stream)))


def pack_plan(stream: Stream, frame: Frame, bound: Bound, cells: Layout) -> PackPlan:
    """How a stream's DataFrame is packed for an operator that reads it. `whole`: rows may be dropped, and must then be shown
    as they are.
    """
    inputs = tuple(n for n, i in enumerate(bound.inputs) if i.node == stream)
    ship = shipping(bound, inputs[0], cells, whole=drops(stream))
    given, needed = bound.inputs[inputs[0]].made, set[str]()
    for input in inputs:
        needed |= set(reads(bound.inputs[input].steps, ship.columns_of(input), given))
    return _pack_plan(stream, frame, inputs, frame.reads(stream, tuple(needed), given.names), ship)


def drops(stream: Stream) -> bool:
    """Whether rows may be dropped in the cells, and must then be shown as they are."""
    return "drop" in (stream.late, stream.behind)


def lowered(bound: Bound) -> Bound:
    """The query as Spark runs it: rows that may have to be shown as dropped are not changed before they are judged.

    So where something is done to each of them, an operator of its own puts them in order first, and they are changed on their
    way from it (`core.row_by_row.Through`).
    """
    inputs: list[Bound] = []
    for child in bound.inputs:
        if isinstance(child.node, Stream) and child.steps and drops(child.node):
            alike = [
                made
                for made, given in zip(inputs, bound.inputs, strict=False)
                if given.node == child.node and made.steps
            ]
            node = alike[0].bare if alike else through(child)
            child = replace(node, schema=child.schema, steps=child.steps, own=node.schema)
        elif not isinstance(child.node, Stream):
            child = lowered(child)
        inputs.append(child)
    return replace(bound, inputs=tuple(inputs))


def heard_plan(stream: Stream, frame: Frame, bound: Bound, cells: Layout, columns: tuple[str, ...]) -> PackPlan:
    """Of a stream that an operator does not read, only how far it is."""
    ship = Shipping(bound, cells, None, (), folds=False, whole=False)
    return _pack_plan(stream, frame, (), frame.reads(stream, (), columns), ship)


def _pack_plan(stream: Stream, frame: Frame, inputs: tuple[int, ...], columns: tuple[str, ...],
               ship: Shipping) -> PackPlan:  # fmt: skip
    return PackPlan(
        stream=stream, inputs=inputs, columns=columns, source=frame.source, source_name=frame.source_name,
        source_rank=frame.source_rank, seq=frame.seq, seq_column=frame.seq_column, ship=ship, scan=frame.scan,
    )  # fmt: skip


def known(stream: Stream, found: list[Frame]) -> tuple[Stream, tuple[Any, ...], bool]:
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
    packs: list[tuple[Frame, PackPlan]]


def stages(bound: Bound, cells: list[Layout], given: Mapping[str, list[Frame]], common: CellPlan) -> list[Stage]:
    """All operators of a query, in the order of their numbers. `common` is what their cells' plans share.

    An inner operator gets its number when it is met, before its own inputs do; so the numbers are a fact of the query. A
    stream's dropped rows are shown by the first operator that reads it (`elsewhere` for the others).
    """
    made: list[Stage | None] = []
    shown: set[str] = set()
    columns = {i.node: tuple(i.made.names) for o in operators(bound) for i in o.inputs if isinstance(i.node, Stream)}

    def add(bound: Bound, onward: Onward | None) -> int:
        number, streams = len(made), own_streams(bound)
        made.append(None)
        heard = [stream for stream in columns if stream not in streams] if closes(bound.node) else []
        layout, elsewhere = cells[number], shown.union(stream.name for stream in heard)
        shown.update(stream.name for stream in streams)
        upstreams = []
        for inner in inner_of(bound):
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
