"""`query.on_spark`: DataFrames in, a DataFrame out; streaming or batch, the same rows.

The way of a call: what can be refused is refused (`plan`), DataFrames are tied to streams (`plan.frames`), each operator
becomes a stage with its cells (`plan.stages`), and the DataFrame of results carries its `Plan` along, by which `write_ordered`
and `relayout` know it again. Nothing runs before an action of the user's.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait.core.join.choice import KINDS
from plait.errors import QueryError, RunError
from plait.query.aggregate import Aggregate
from plait.query.base import Query
from plait.query.bind import Bound, bind, check_data
from plait.query.explain import explain
from plait.query.operator import Operator
from plait.query.predicate import Predicate
from plait.query.stream import FILE, Stream
from plait.spark import formats
from plait.spark.cell.cell import CellPlan
from plait.spark.cell.pickled import carry
from plait.spark.cell.results import read
from plait.spark.formats import Card, Pins, Sources
from plait.spark.keep import clock, control
from plait.spark.keep.checkpoint import check_not_left
from plait.spark.plan import ages, frames, function_text, pin, resume, settings
from plait.spark.plan.layout import Layout
from plait.spark.plan.stages import Pipeline, layouts, operators, stages
from plait.spark.publish import aside


def dataframe(query: Query, data: Mapping[str, Any], *, layout: str | tuple[int, int] = "auto", index: str = "auto",
              control: str | None = None, max_pending: int | None = None, late_rows: bool = False,
              read: str = "auto", functions: str = "same") -> Any:  # fmt: skip
    """`Query.on_spark`. `plait.query.run_options.SparkOptions` says what each option means."""
    made = plan(query, data, layout=layout, index=index, control_dir=control, max_pending=max_pending, read=read,
                functions=functions)  # fmt: skip
    if made.streaming and made.control_dir is not None:
        made.announce()
    return made.results(late_rows=late_rows)


@dataclass(frozen=True)
class Plan:
    """A query tied to DataFrames.

    Attributes:
        spark: The session.
        pipeline: The stages, the last operator's first, and how their rows travel.
        streaming: Whether the DataFrames are streams.
        control_dir: The folder of control events; None until a checkpoint says where it is.
        again: The same plan with another layout or control folder. What the two share is made once.
        wanted: The layout that was asked for.
    """

    spark: Any
    pipeline: Pipeline
    streaming: bool
    control_dir: str | None
    again: Callable[..., Plan]  # the same plan with another layout or control folder; what they share is made once
    wanted: str | tuple[int, int]

    @property
    def cell(self) -> CellPlan:
        """The last operator's."""
        return self.pipeline.stages[0].plan

    @property
    def schema(self) -> pa.Schema:
        """The results' columns, the key included."""
        return pa.schema([*self.cell.bound.schema, pa.field(formats.KEY, pa.binary())])

    def raw(self) -> Any:
        """What cells put out, packed: results, dropped rows and progress, a row each (`formats`).

        `write_ordered` publishes this; `results` unpacks it for users who publish by themselves.
        """
        return self.pipeline.output()

    @property
    def streams(self) -> dict[str, tuple[Stream, tuple[Any, ...], bool]]:
        """The query's streams by name, with the sources known at the start, and whether there may be more."""
        return {known[0].name: known for stage in self.pipeline.stages for known in stage.plan.streams}

    def pinned(self, checkpoint: Path, card: Card | None) -> Plan:
        """This plan as a checkpoint has it: its layout if ours is "auto", its control folder; refused if it is another's."""
        if card is not None:
            check_not_left(checkpoint, card)
        control_dir = self.control_dir or str(checkpoint / "control")
        wanted: Any = (card.pins.rows, card.pins.columns) if card is not None and self.wanted == "auto" else self.wanted
        plan = self.again(layout=wanted, control_dir=control_dir)
        if card is not None:
            resume.check_pins(card.pins, plan.pins(), str(checkpoint), changed=plan.cell.changed)
        return plan

    def pins(self) -> Pins:
        """What a checkpoint pins.

        Made into the checkpoint's card at each start, so a start with `functions="changed"` pins the new functions.
        """
        cell = self.cell
        return Pins(
            cell.fingerprint, cell.query, cell.layout.rows, cell.layout.columns, self.pipeline.partitions, cell.shape,
            cell.functions, cell.loose,
        )  # fmt: skip

    def check_wrote(self, pins: Pins, checkpoint: Path) -> None:
        """Refuse a checkpoint that another query has written, whatever its layout."""
        rows, columns = pins.rows, pins.columns
        bound = self.cell.bound
        assert isinstance(bound.node, Query)
        for wanted in ((rows, columns), "hash"):
            try:
                cells = layouts(bound, wanted, pins.partitions, rows * columns)
            except QueryError:
                continue
            if fingerprint(bound.node, bound, *cells) == pins.fingerprint:
                return
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} was written by another query",
            why=f"it has {pins.query!r} and this one is {self.cell.query!r}, or their conditions or columns differ",
            do="Use the query it was started with: only its layout may be another",
        )

    def announce(self) -> None:
        """Tell the control folder which streams and sources there are, so that it refuses events of any other."""
        assert self.control_dir is not None
        every = [i for operator in operators(self.cell.bound) for i in operator.inputs]
        inputs = {i.node.name: i.schema for i in every if isinstance(i.node, Stream)}
        told = {}
        for stream, names, open_ended in self.streams.values():
            text = stream.source == FILE or any(isinstance(name, str) for name in names)
            if stream.source_column is not None:
                text = text or not pa.types.is_integer(inputs[stream.name].field(stream.source_column).type)
            told[stream.name] = Sources(None if open_ended else list(names), "text" if text else "integers")
        control.announce(self.control_dir, told)

    def drain(self) -> None:
        """Write the end of input into the control folder."""
        assert self.control_dir is not None
        control.drain(self.control_dir)

    def results(self, *, late_rows: bool = False) -> Any:
        """The results as a DataFrame.

        Args:
            late_rows: Have rows that were dropped in it, too, in two columns of their own.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        raw = self.raw()
        if late_rows:
            schema = pa.schema([*self.schema, *aside.COLUMNS])
            result = raw.mapInArrow(aside.unpack_both(self.schema), from_arrow_schema(schema))
        else:
            if dropping := [s.name for s, *_ in self.streams.values() if "drop" in (s.late, s.behind)]:
                raw = aside.counted(raw, dropping, self.streaming)
            result = raw.mapInArrow(unpack(self.schema, formats.RESULTS), from_arrow_schema(self.schema))
        result._plait = self
        return result


def plan(query: Query, data: Mapping[str, Any], *, layout: str | tuple[int, int], index: str, control_dir: str | None,
         max_pending: int | None, read: str = "auto", functions: str = "same") -> Plan:  # fmt: skip
    """Tie a query to DataFrames. Everything that can be refused before a row is read is refused here."""
    _check_options(index, max_pending, read, functions)
    if control_dir is not None:
        control_dir = str(control.place(control_dir))
    if not isinstance(data, Mapping):
        raise QueryError(
            f"on_spark is given {reprlib.repr(data)} as its data", do="Pass a dict of stream names to DataFrames"
        )
    check_data(query, data)
    streams = query.streams()
    for name in streams:
        _check_frames(name, data[name])
    spark = _first(data[next(iter(streams))]).sparkSession
    settings.check(spark, streaming=False)
    _check_arrow(spark)
    # Before any DataFrame is derived from these: Spark has its own words for a column that is not there.
    bound = bind(query, {name: frames.arrow_schema(_first(data[name])) for name in streams})
    for operator in operators(bound):
        carry(_functions(operator))
    data = {name: ages.any_age(name, data[name]) for name in streams}
    given = {name: frames.frames_of(stream, data[name], by_rows=read == "rows") for name, stream in streams.items()}
    streaming = _all_streaming(given)
    settings.check(spark, streaming=streaming)
    packs: dict[Any, Any] = {}
    pins = _pins(bound)

    def laid_out(layout: str | tuple[int, int], control_dir: str | None) -> Plan:
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        cells = layouts(bound, layout, partitions, spark.sparkContext.defaultParallelism)
        common = CellPlan(
            bound, (), cells[0], fingerprint(query, bound, *cells), explain(query), index, max_pending,
            shape=fingerprint(query, bound, *cells, functions=False), changed=functions == "changed", **pins,
        )  # fmt: skip
        events = control.events(spark, control_dir) if streaming and control_dir is not None else None
        ticks = clock.ticks(spark, streams.values()) if streaming else None
        pipeline = Pipeline(stages(bound, cells, given, common), streaming, events, ticks, partitions, packs)
        return Plan(spark, pipeline, streaming, control_dir, laid_out, layout)

    return laid_out(layout, control_dir)


def _check_options(index: str, max_pending: int | None, read: str, functions: str) -> None:
    """Refuse options that mean nothing, before a session is needed."""
    if functions not in ("same", "changed"):
        raise QueryError(f"functions={functions!r} says nothing of them", do="Use 'same' or 'changed'")
    if read not in ("auto", "rows"):
        raise QueryError(f"read={read!r} is no way to read", do="Use 'auto' or 'rows'")
    if index not in KINDS:
        raise QueryError(f"index={index!r} is not known", do=f"Use one of {', '.join(map(repr, KINDS))}")
    if max_pending is not None and (
        isinstance(max_pending, bool) or not isinstance(max_pending, int) or max_pending < 1
    ):
        raise QueryError(f"max_pending={max_pending!r} is no number of tuples", do="Pass a whole number, at least 1")


def _check_frames(stream: str, data: Any) -> None:
    """Refuse what is no DataFrame, and no list or dict of some."""
    several = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, (list, tuple)) else [data]
    if not several:
        raise QueryError(f"Stream {stream!r} is given no DataFrame", do="Pass one, or one for each source")
    for frame in several:
        if not hasattr(frame, "sparkSession"):
            raise QueryError(
                f"Stream {stream!r} is given {reprlib.repr(frame)}, which is no DataFrame of Spark's",
                do="Read it with spark.read or spark.readStream, or make it with spark.createDataFrame",
            )


def _check_arrow(spark: Any) -> None:
    """Refuse a session in which Spark takes no columns with 32-bit lengths: plait's tasks have no others."""
    key = "spark.sql.execution.arrow.useLargeVarTypes"
    if str(spark.conf.get(key, "false")).lower() == "true":
        raise RunError(
            f"This Spark session has {key}=true",
            why="with it Spark takes nothing from Python but text and bytes with 64-bit lengths, and plait's tasks use 32 bits",
            do=f"Say spark.conf.set({key!r}, 'false'), or use a session without it (spark.newSession())",
        )


def _first(data: Any) -> Any:
    """One of the DataFrames given for a stream."""
    return (
        next(iter(data.values())) if isinstance(data, Mapping) else data[0] if isinstance(data, (list, tuple)) else data
    )


def _all_streaming(given: Mapping[str, list[frames.Frame]]) -> bool:
    """Whether the DataFrames are streams; refused if some are and some are not."""
    kinds = {name: {f.frame.isStreaming for f in found} for name, found in given.items()}
    if len(set().union(*kinds.values())) > 1:
        live = [n for n, k in kinds.items() if True in k]
        still = [n for n, k in kinds.items() if False in k]
        raise QueryError(
            f"Streaming and batch DataFrames are mixed: {', '.join(live)} streaming, {', '.join(still)} not",
            why="a batch is complete and a stream is not, so no one frontier serves both",
            do="Read all of them with spark.readStream, or all with spark.read",
        )
    return next(iter(kinds.values())) == {True}


def fingerprint(query: Query, bound: Bound, cells: Layout, *inner: Layout, functions: bool = True) -> str:
    """What a checkpoint means: streams, schemas, condition, window, layout; not versions, `late=` or sinks.

    `functions=False`: without what is in users' functions, by which a checkpoint is known again when those have changed.

    Words of the query as `explain` has them, without the lines of streams; what streams mean by `Stream.meaning`, which
    leaves out `late=` and its like. Old checkpoints are known by it, so its text is never changed without need.
    """
    streams = [stream.meaning() for stream in query.streams().values()]
    words = [line for line in explain(query).split("\n") if not line.lstrip().startswith("stream ")]
    # A user's operator by its buckets, not by the name of its function: see `_meaning`.
    words = [line.rpartition(":")[0] if line.lstrip().startswith("operator") else line for line in words]
    condition = "".join(_meaning(operator, functions=functions) for operator in operators(bound))
    schemas = [str(i.schema) for operator in operators(bound) for i in operator.inputs]
    parts = ["\n".join(words), streams, schemas, condition, cells.describe(), list(cells.keys)]
    parts += [[layout.describe(), list(layout.keys)] for layout in inner]
    if any(s.idle_after_us is not None for s in query.streams().values()):
        parts.append("clock")  # one more source in the offset log
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _meaning(operator: Bound, *, functions: bool) -> str:
    """An operator's conditions, and users' functions, as text.

    Not those of a user's own operator, which a cell's state pins by itself: one that raises at a tuple is mended, and goes
    on from the same checkpoint with the user's word (`functions="changed"`).
    """
    if isinstance(operator.node, Operator):
        return f"{operator.node.output} {operator.node.on_timer is not None}"
    text = "" if operator.predicate is None else _condition_text(operator.predicate, functions=functions)
    for _, function in operator.node.compute if isinstance(operator.node, Aggregate) else ():
        if function.where is not None:
            text += _condition_text(function.where, functions=functions)
        if function.custom is not None and functions:
            custom = function.custom
            text += function_text.meaning([custom.init, custom.add, custom.merge, custom.result])
    return text


def _condition_text(predicate: Predicate, *, functions: bool) -> str:
    """A condition in words, and of an opaque function what is in it."""
    own = function_text.meaning([predicate.source]) if functions and predicate.kind == "opaque" else ""
    return predicate.describe() + own


def _pins(bound: Bound) -> dict[str, Any]:
    """What stands beside the fingerprint: the functions of users' operators, and what of any function can't be pinned.

    `loose` is told for all functions, also those in the fingerprint: a start on an old checkpoint is refused because of
    them.
    """
    every = operators(bound)
    own = [f for operator in every if isinstance(operator.node, Operator) for f in _functions(operator)]
    conditions = [p for o in every for p in _conditions(o) if p.kind == "opaque"]
    loose = pin.pinned([*(p.source for p in conditions), *(f for o in every for f in _functions(o))]).loose
    return {"functions": pin.pinned(own).digest if own else "", "loose": tuple(dict.fromkeys(loose))}


def _conditions(operator: Bound) -> list[Predicate]:
    """All conditions of an operator: a join's own, and those of its functions."""
    where = [f.where for _, f in operator.node.compute] if isinstance(operator.node, Aggregate) else []
    return [p for p in (operator.predicate, *where) if p is not None]


def _functions(operator: Bound) -> list[Any]:
    """Users' functions that run in tasks as they are."""
    node = operator.node
    if isinstance(node, Operator):
        return [f for f in (node.route, node.state, node.process, node.on_timer) if f is not None]
    customs = [f.custom for _, f in node.compute if f.custom is not None] if isinstance(node, Aggregate) else []
    return [f for c in customs for f in (c.init, c.add, c.merge, c.result) if f is not None]


def unpack(schema: pa.Schema, kind: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that gives the rows of packed bodies of one kind, and passes over all others.

    In tasks, behind the cells. Keys are spelled out here, a row each.
    """

    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for found, body in zip(batch.column("kind").to_pylist(), batch.column("body"), strict=True):
                if found == kind:
                    yield from read(body.as_buffer()).table().cast(schema).to_batches()

    return unpacked


__all__ = ["Plan", "dataframe", "fingerprint", "plan", "unpack"]
