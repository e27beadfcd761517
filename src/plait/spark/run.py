"""`query.on_spark`: DataFrames in, a DataFrame out; streaming or batch, the same rows."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from plait.errors import QueryError, RunError
from plait.predicates import check_compiles
from plait.query.base import Query
from plait.query.bind import Bound, bind, check_data
from plait.query.explain import explain
from plait.query.join import Asof, Join
from plait.query.stream import FILE, Stream
from plait.spark import aside, collect, control, frames, settings, wire
from plait.spark.cell import CellPlan, step
from plait.spark.hashing import hash_columns
from plait.spark.layout import Layout, choose
from plait.spark.pack import PackPlan
from plait.spark.results import Results


def dataframe(query: Query, data: Mapping[str, Any], *, layout: str | tuple[int, int] = "auto", index: str = "auto",
              control: str | None = None, max_pending: int | None = None, late_rows: bool = False) -> Any:  # fmt: skip
    """Run a query on Spark.

    data     stream name -> DataFrame (or a list or dict of them: several sources), all streaming or all batch
    layout   "auto", or (m, n): the grid of cells; pinned by the checkpoint once a query has started
    index    "auto", or one to force, for study
    control  the folder of the control source: see `plait.spark.control`
    late_rows  have rows dropped as late or behind in the result, marked: for a batch, or a sink of your own
    """
    made = plan(query, data, layout=layout, index=index, control_dir=control, max_pending=max_pending)
    if made.streaming and control is not None:
        made.announce()
    return made.results(late_rows=late_rows)


@dataclass(frozen=True)
class Plan:
    """A query tied to DataFrames: `raw` has what cells put out, packed; `results()` unpacks the results."""

    spark: Any
    cell: CellPlan
    packed: Any
    streaming: bool
    control_dir: str | None
    again: Callable[..., Plan]  # the same plan with another layout or control folder; what they share is made once
    wanted: str | tuple[int, int]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.cell.bound.schema, pa.field(wire.KEY, pa.binary())])

    def raw(self) -> Any:
        if self.streaming:
            from plait.spark.stateful import processor

            return self.packed.groupBy("cell").transformWithStateInPandas(
                statefulProcessor=processor(self.cell),
                outputStructType=wire.OUTPUT,
                outputMode="append",
                timeMode="None",
            )
        return self.packed.groupBy("cell").applyInArrow(_whole_cell(self.cell), wire.OUTPUT)

    def pinned(self, checkpoint: Path) -> Plan:
        """This plan as a checkpoint has it: its layout if ours is "auto", its control folder; refused if it is another's."""
        card = collect.read_card(checkpoint)
        control_dir = self.control_dir or str(checkpoint / "control")
        wanted: Any = tuple(card["layout"]) if card is not None and self.wanted == "auto" else self.wanted
        plan = self.again(layout=wanted, control_dir=control_dir)
        cells = plan.cell.layout
        own = {
            "fingerprint": plan.cell.fingerprint,
            "query": plan.cell.query,
            "layout": [cells.rows, cells.columns],
            "partitions": int(self.spark.conf.get("spark.sql.shuffle.partitions")),
        }
        if card is None:
            plan.announce()
            collect.write_card(checkpoint, own)
        elif card["fingerprint"] != own["fingerprint"]:
            differs = next(
                (k for k in ("query", "layout", "partitions") if card[k] != own[k]), "its condition or columns"
            )
            raise RunError(
                f"The checkpoint {str(checkpoint)!r} was written by another query: it differs in {differs}",
                why=f"it has {card.get(differs, card['fingerprint'])!r} and this one {own.get(differs, own['fingerprint'])!r}",
                do="Use another checkpoint folder, or the query it was started with",
            )
        else:
            plan.announce()
        return plan

    def announce(self) -> None:
        """Tell the control folder which streams and sources there are, so that it refuses events of any other."""
        assert self.control_dir is not None
        inputs = {i.node.name: i.schema for i in self.cell.bound.inputs if isinstance(i.node, Stream)}
        told = {}
        for stream, names, open_ended in self.cell.streams:
            text = stream.source == FILE or any(isinstance(name, str) for name in names)
            if stream.source_column is not None:
                text = text or not pa.types.is_integer(inputs[stream.name].field(stream.source_column).type)
            told[stream.name] = {
                "sources": None if open_ended else list(names),
                "named": "text" if text else "integers",
            }
        control.announce(self.control_dir, told)

    def drain(self) -> None:
        assert self.control_dir is not None
        control.drain(self.control_dir)

    def results(self, *, late_rows: bool = False) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        raw = self.raw()
        if late_rows:
            schema = pa.schema([*self.schema, *aside.COLUMNS])
            result = raw.mapInArrow(aside.unpack_both(self.schema), from_arrow_schema(schema))
        else:
            if dropping := [s.name for s, *_ in self.cell.streams if "drop" in (s.late, s.behind)]:
                raw = aside.counted(raw, dropping, self.streaming)
            result = raw.mapInArrow(unpack(self.schema, wire.RESULTS), from_arrow_schema(self.schema))
        result._plait = self
        return result


def plan(query: Query, data: Mapping[str, Any], *, layout: str | tuple[int, int], index: str, control_dir: str | None,
         max_pending: int | None) -> Plan:  # fmt: skip
    if not isinstance(query, (Join, Asof)) or any(isinstance(i, Query) for i in query.inputs):
        raise RunError(
            "Spark runs joins of streams so far, not aggregates, operators or queries of queries",
            do="Use the reference executor",
        )
    check_data(query, data)
    streams = query.streams()
    spark = _first(data[next(iter(streams))]).sparkSession
    settings.check(spark, streaming=False)
    # Before any DataFrame is derived from these: Spark has its own words for a column that is not there.
    bound = bind(query, {name: frames.arrow_schema(_first(data[name])) for name in streams})
    if bound.predicate is not None and bound.predicate.kind == "opaque":
        check_compiles(bound.predicate, *(i.schema for i in bound.inputs))  # here, not in a task
    given = {name: frames.frames_of(stream, data[name]) for name, stream in streams.items()}
    streaming = _all_streaming(given)
    settings.check(spark, streaming=streaming)
    known = tuple(_known(stream, given[name], streaming) for name, stream in streams.items())

    @functools.cache
    def rows_packed(cells: Layout) -> Any:
        plans = [(f.frame, _pack_plan(s, f, bound, cells)) for name, s in streams.items() for f in given[name]]
        parts = [frame.mapInArrow(how.mapper(), wire.PACKED) for frame, how in plans]
        return functools.reduce(lambda a, b: a.unionAll(b), parts)

    def laid_out(layout: str | tuple[int, int], control_dir: str | None) -> Plan:
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        cells = choose(query, layout, partitions, spark.sparkContext.defaultParallelism)
        packed = rows_packed(cells)
        if streaming and control_dir is not None:
            packed = packed.unionAll(control.events(spark, control_dir, cells))
        if streaming and (ticks := _ticks(spark, streams.values(), cells)) is not None:
            packed = packed.unionAll(ticks)
        cell = CellPlan(bound, known, cells, fingerprint(query, bound, cells), explain(query), index, max_pending)
        return Plan(spark, cell, packed, streaming, control_dir, laid_out, layout)

    return laid_out(layout, control_dir)


def _ticks(spark: Any, streams: Iterable[Stream], cells: Layout) -> Any | None:
    from plait.spark import clock

    return clock.ticks(spark, list(streams), cells)


def _first(data: Any) -> Any:
    return (
        next(iter(data.values())) if isinstance(data, Mapping) else data[0] if isinstance(data, (list, tuple)) else data
    )


def _all_streaming(given: Mapping[str, list[frames.Frame]]) -> bool:
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


def _pack_plan(stream: Stream, frame: frames.Frame, bound: Bound, cells: Layout) -> PackPlan:
    inputs = tuple(n for n, i in enumerate(bound.inputs) if i.node == stream)
    schema = next(i.schema for i in bound.inputs if i.node == stream)
    return PackPlan(
        stream=stream.name, inputs=inputs, columns=tuple(schema.names), time=stream.time, unit=stream.unit,
        disorder_us=stream.disorder_us, late=stream.late, source=frame.source, source_name=frame.source_name,
        source_rank=frame.source_rank, seq=frame.seq, seq_column=frame.seq_column, layout=cells,
        by_value=hash_columns(bound) if cells.kind == "hash" else None,
    )  # fmt: skip


def _known(stream: Stream, found: list[frames.Frame], streaming: bool) -> tuple[Stream, tuple[Any, ...], bool]:
    if stream.source is None:
        return stream, tuple(f.source_name for f in found), False
    declared = stream.declared()
    return stream, declared or (), declared is None


def fingerprint(query: Query, bound: Bound, cells: Layout) -> str:
    """What a checkpoint means: streams, schemas, condition, window, layout; not versions, `late=` or sinks."""
    streams = [
        [s.name, s.time, s.unit, s.source, s.sources if not isinstance(s.sources, tuple) else list(s.sources), s.seq,
         s.disorder_us]
        for s in query.streams().values()
    ]  # fmt: skip
    condition = bound.predicate.describe() if bound.predicate is not None else ""
    if bound.predicate is not None and bound.predicate.kind == "opaque":
        condition += _function_text(bound.predicate.source)
    schemas = [str(i.schema) for i in bound.inputs]
    parts = [explain(query).split("\n")[0], streams, schemas, condition, cells.describe(), list(cells.keys)]
    if any(s.idle_after_us is not None for s in query.streams().values()):
        parts.append("clock")  # one more source in the offset log
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _function_text(function: Any, seen: tuple[Any, ...] = ()) -> str:
    """An opaque condition's meaning: its text, and the values it takes from outside of it."""
    code = getattr(function, "__code__", None)
    if code is None or function in seen:
        return getattr(function, "__qualname__", type(function).__qualname__)
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        text = repr((code.co_code.hex(), [c for c in code.co_consts if not inspect.iscode(c)]))
    outside = inspect.getclosurevars(function)
    taken: dict[str, Any] = dict(outside.globals) | dict(outside.nonlocals)
    taken |= {f"default {n}": v for n, v in enumerate(function.__defaults__ or ())} | (function.__kwdefaults__ or {})
    return text + "".join(f"\n{name} = {_value_text(taken[name], (*seen, function))}" for name in sorted(taken))


def _value_text(value: Any, seen: tuple[Any, ...]) -> str:
    """Text that is the same in every process: no addresses, and sets in one order."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value_text(v, seen) for v in value)}]"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(_value_text(v, seen) for v in value))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_value_text(k, seen)}: {_value_text(v, seen)}' for k, v in value.items())}}}"
    if inspect.ismodule(value):
        return value.__name__
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.shape} {hashlib.sha256(value.tobytes()).hexdigest()}"
    inner = getattr(value, "py_func", value)  # what Numba has compiled
    return _function_text(inner, seen) if inspect.isfunction(inner) else type(value).__qualname__


class _Dict:
    """A store for one step: batch runs have no state."""

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
    def whole(table: pa.Table) -> pa.Table:
        cell = plan.layout.keys.index(table.column("cell")[0].as_py())
        out = step(plan, cell, _Dict(), table.column("body").to_pylist(), end=True)
        return pa.table(
            {"kind": pa.array([k for k, _ in out], pa.int32()), "body": pa.array([b for _, b in out], pa.binary())}
        )

    return whole


def unpack(schema: pa.Schema, kind: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def unpacked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for found, body in zip(batch.column("kind").to_pylist(), batch.column("body"), strict=True):
                if found == kind:
                    yield from Results.of(body.as_buffer()).table().cast(schema).to_batches()

    return unpacked


__all__ = ["Asof", "Plan", "dataframe", "fingerprint", "plan", "unpack"]
