"""`query.on_spark`: DataFrames in, a DataFrame out; streaming or batch, the same rows.

The way of a call: what can be refused is refused (`plan`), DataFrames are tied to streams (`plan.frames`), each operator
becomes a stage with its cells (`plan.stages`), and the DataFrame of results carries its `Plan` along, by which `write_ordered`
and `relayout` know it again. Nothing runs before an action of the user's.

The way of the rows, as Spark's own plan has it (`Plan.output`), for each operator: every DataFrame of its streams is packed by
the tasks that read it (`pack.pack`), Spark shuffles packed rows by cell, together with what operators before it, control events
and ticks bring, and calls each cell with its rows (`cell.cell`). What the last operator's cells put out is published
(`publish.collect`) or unpacked (`cell.results`).

Spark numbers stateful operators by their place in this plan. So the shape of the plan must not depend on anything that may
change between two starts of one query. Held by tests/spark/test_chains.py and tests/spark/test_operators.py.
"""

from __future__ import annotations

import functools
import os
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait.core.join.choice import KINDS
from plait.errors import QueryError, RunError, counted
from plait.order import BEFORE_ALL
from plait.query import explain as words
from plait.query.base import Query, check_rates
from plait.query.bind import bind, check_data
from plait.query.join import HOWS, Join
from plait.query.operator import Operator
from plait.query.row_by_row import rooted
from plait.query.stream import FILE, Stream
from plait.spark import formats
from plait.spark.cell.cell import CellPlan, closes, processor, whole_cell
from plait.spark.cell.end_of_input import closing_stage
from plait.spark.cell.handed import handing
from plait.spark.cell.pickled import carry
from plait.spark.cell.results import unpack
from plait.spark.cell.whole import SLAB, Giving, as_rows, in_turn
from plait.spark.formats import Card, Pins, Sources
from plait.spark.keep import clock, control
from plait.spark.keep.checkpoint import check_not_left, read_card
from plait.spark.plan import ages, frames, resume, settings
from plait.spark.plan.fingerprint import beside, fingerprint, users_functions
from plait.spark.plan.layout import MOST_CELLS, Layout
from plait.spark.plan.stages import Stage, layouts, lowered, operators, stages
from plait.spark.publish import aside


def dataframe(query: Query, data: Mapping[str, Any], *, layout: str | tuple[int, int] = "auto", cells: int | None = None,
              rates: tuple[float, float] | None = None, index: str = "auto", control: str | None = None,
              max_pending: int | None = None, max_window: int | None = None, late_rows: bool = False, keys: bool = True,
              read: str = "auto", functions: str = "same") -> Any:  # fmt: skip
    """`Query.on_spark`. `plait.query.run_options.SparkOptions` says what each option means."""
    made = plan(query, data, layout=layout, cells=cells, rates=rates, index=index, control_dir=control,
                max_pending=max_pending, max_window=max_window, read=read, functions=functions)  # fmt: skip
    if made.streaming and made.control_dir is not None:
        made.announce()
    return made.results(late_rows=late_rows, keys=keys)


def plan(query: Query, data: Mapping[str, Any], *, layout: str | tuple[int, int], index: str, control_dir: str | None,
         max_pending: int | None, max_window: int | None = None, cells: int | None = None,
         rates: tuple[float, float] | None = None, read: str = "auto", functions: str = "same") -> Plan:  # fmt: skip
    """Tie a query to DataFrames. Everything that can be refused before a row is read is refused here."""
    numbers = {"max_pending": (max_pending, "tuples"), "max_window": (max_window, "rows"), "cells": (cells, "cells")}
    _check_options(index, numbers, read, functions)
    check_rates(rates)
    if control_dir is not None:
        control_dir = str(control.place(control_dir))
    if not isinstance(data, Mapping):
        raise QueryError(
            f"on_spark is given {reprlib.repr(data)} as its data", do="Pass a dict of stream names to DataFrames"
        )
    query = rooted(query)
    check_data(query, data)
    streams = query.streams()
    for name in streams:
        frames.check_given(name, data[name])
    spark = frames.first_of(data[next(iter(streams))]).sparkSession
    settings.check(spark, streaming=False)
    settings.check_arrow(spark)
    # Before any DataFrame is derived from these: Spark has its own words for a column that is not there.
    bound = lowered(bind(query, {name: frames.arrow_schema(frames.first_of(data[name])) for name in streams}))
    for operator in operators(bound):
        carry(users_functions(operator))
    data = {name: ages.any_age(name, data[name]) for name in streams}
    given = {name: frames.frames_of(stream, data[name], by_rows=read == "rows") for name, stream in streams.items()}
    streaming = frames.all_streaming(given)
    settings.check(spark, streaming=streaming)
    packs: dict[Any, Any] = {}
    pins = beside(bound)

    def laid_out(layout: str | tuple[int, int] | Layout, control_dir: str | None, cells: int | None = cells) -> Plan:
        partitions = int(spark.conf.get("spark.sql.shuffle.partitions"))
        if isinstance(layout, Layout):  # of a query of one operator
            grids = [layout]
        else:
            grids = layouts(bound, layout, partitions, spark.sparkContext.defaultParallelism, cells=cells, rates=rates)
        common = CellPlan(
            bound, (), grids[0], fingerprint(query, bound, *grids), words.explain(query), index, max_pending,
            max_window, shape=fingerprint(query, bound, *grids, functions=False), changed=functions == "changed", **pins,
        )  # fmt: skip
        events = control.events(spark, control_dir) if streaming and control_dir is not None else None
        ticks = clock.ticks(spark, streams.values()) if streaming else None
        made = stages(bound, grids, given, common)
        return Plan(spark, made, streaming, events, ticks, partitions, packs, control_dir, laid_out, layout, cells,
                    query)  # fmt: skip

    return laid_out(layout, control_dir)


def _check_options(index: str, numbers: Mapping[str, tuple[Any, str]], read: str, functions: str) -> None:
    """Refuse options that mean nothing, before a session is needed."""
    if not isinstance(functions, str) or functions not in ("same", "changed"):
        raise QueryError(f"functions={functions!r} says nothing of them", do="Use 'same' or 'changed'")
    if not isinstance(read, str) or read not in ("auto", "rows"):
        raise QueryError(f"read={read!r} is no way to read", do="Use 'auto' or 'rows'")
    if not isinstance(index, str) or index not in KINDS:
        raise QueryError(f"index={index!r} is not known", do=f"Use one of {', '.join(map(repr, KINDS))}")
    for name, (value, what) in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise QueryError(f"{name}={value!r} is no number of {what}", do="Pass a whole number, at least 1")
        if name == "cells" and value is not None and value > MOST_CELLS:
            raise QueryError(
                f"cells={value!r} is more than {MOST_CELLS:,}",
                why="each is a task's work in every batch",
                do="Pass a smaller number",
            )


@dataclass(frozen=True)
class Plan:
    """A query tied to DataFrames, and the plan of Spark's that this makes.

    Attributes:
        spark: The session.
        stages: The operators in the order of their numbers; stage 0 gives the query's results.
        streaming: Whether the DataFrames are streams.
        partitions: Of Spark's shuffles, and so of the state. A checkpoint has them for good; `relayout` changes them.
        packs: Shared with other plans of the same call of `on_spark`, which differ in layout or in the control folder.
        control_dir: The folder of control events; None until a checkpoint says where it is.
        again: The same plan with another layout, control folder or number of cells. What the two share is made once.
        wanted: The layout that was asked for, or one that was found, and `cells` the number of cells; None is one a core.
    """

    spark: Any
    stages: list[Stage]
    streaming: bool
    events: Any | None  # control events, as Spark reads them
    ticks: Any | None  # seconds
    partitions: int
    packs: dict[Any, Any]  # streams' rows, packed: made once for all plans with the same cells
    control_dir: str | None
    again: Callable[..., Plan]
    wanted: str | tuple[int, int] | Layout
    cells: int | None = None
    query: Query | None = None  # as it was asked for, in words of its own

    def output(self, number: int = 0) -> Any:
        """What a stage's cells put out: packed rows for the next one's cells, or, of stage 0, for the user: results, dropped
        rows and progress, a row each (`formats`). `write_ordered` publishes this; `results` unpacks it for users who publish
        by themselves.

        Streaming: Spark calls the cell's processor for each key that has rows. `timeMode="None"`: plait's timers are its
        own. Batch: `whole`; a cell of an operator with timers has one step, with all rows and the end of input.
        """
        plan = self.stages[number].plan
        if not self.streaming and not closes(plan.bound.node):
            return self.whole(number, formats.OUTPUT if plan.onward is None else formats.SLABS)
        packed = self.packed(number)
        schema = formats.OUTPUT if plan.onward is None else formats.PACKED
        if self.streaming:
            out = packed.groupBy("cell").transformWithStateInPandas(
                statefulProcessor=processor(plan), outputStructType=schema, outputMode="append", timeMode="None"
            )
        else:
            out = packed.groupBy("cell").applyInArrow(whole_cell(plan), schema)
        if closes(plan.bound.node):
            out = closing_stage(out, plan.bound, plan.onward, self.partitions, schema)
        if not self.streaming and plan.onward is not None:
            out = out.selectExpr("cell", f"{BEFORE_ALL}L as at", "body")  # all at once, before its time
        return out

    def whole(self, number: int, schema: Any, giving: Giving | None = None) -> Any:
        """The cells of a stage in a batch run: each takes its rows in the order of time (`cell.whole`). Sorting is Spark's.

        The number of partitions is said, so that Spark leaves them as they are: rows of few bytes may be much work.
        """
        packed = self.packed(number).repartition(self.partitions, "cell").sortWithinPartitions("cell", "at")
        return packed.mapInArrow(in_turn(self.stages[number].plan, giving), schema)

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
            if not self.streaming:
                how = replace(how, slab=SLAB)
            form = formats.PACKED if self.streaming else formats.SLABS
            self.packs[key] = frame.given(how.columns).mapInArrow(how.mapper(), form)
        return self.packs[key]

    def results(self, *, late_rows: bool = False, keys: bool = True) -> Any:
        """The results as a DataFrame.

        Args:
            late_rows: Have rows that were dropped in it, too, in two columns of their own.
            keys: Have `_plait_key` in it. It may be longer than the rest of a row.
        """
        from pyspark.sql.pandas.types import from_arrow_schema

        own = self.schema if keys else self.cell.bound.schema
        dropping = [s.name for s, *_ in self.streams.values() if "drop" in (s.late, s.behind)]
        if late_rows:
            schema = pa.schema([*own, *aside.COLUMNS])
            result = self.output().mapInArrow(aside.unpack_both(own), from_arrow_schema(schema))
        elif dropping:
            raw = aside.counted(self.output(), dropping, self.streaming)
            result = raw.mapInArrow(unpack(own), from_arrow_schema(own))
        elif self.streaming or closes(self.cell.bound.node):
            result = self.output().mapInArrow(unpack(own), from_arrow_schema(own))
        else:  # cells give rows themselves: nothing else has to be told
            plan = self if keys else self.without_keys()
            result = plan.whole(0, from_arrow_schema(own), as_rows(own))
        result._plait = self
        return result

    def without_keys(self) -> Plan:
        """The same for who asks for no keys, and merges nothing: a join then makes none, which costs half as much as pairs do.

        What is done to results goes by their keys, and rows that come alone are merged by them.
        """
        cell = self.cell
        if not isinstance(cell.bound.node, Join) or HOWS[cell.bound.node.how].whole or cell.bound.steps:
            return self
        return replace(self, stages=[replace(self.stages[0], plan=replace(cell, keyed=False)), *self.stages[1:]])

    def handing_over(self) -> Plan:
        """The same for who publishes on the driver: cells lay many results into memory that it can see, where there is such."""
        found = None if closes(self.cell.bound.node) else handing(self.spark)
        return replace(self, stages=[replace(self.stages[0], plan=replace(self.cell, handing=found)), *self.stages[1:]])

    @property
    def cell(self) -> CellPlan:
        """The last operator's."""
        return self.stages[0].plan

    @property
    def schema(self) -> pa.Schema:
        """The results' columns, the key included."""
        return pa.schema([*self.cell.bound.schema, pa.field(formats.KEY, pa.binary())])

    @property
    def streams(self) -> dict[str, tuple[Stream, tuple[Any, ...], bool]]:
        """The query's streams by name, with the sources known at the start, and whether there may be more."""
        return {known[0].name: known for stage in self.stages for known in stage.plan.streams}

    def pinned(self, checkpoint: Path, card: Card | None) -> Plan:
        """This plan as a checkpoint has it: its layout if ours is "auto", its control folder; refused if it is another's."""
        if card is not None:
            check_not_left(checkpoint, card)
        control_dir = self.control_dir or str(checkpoint / "control")
        wanted, cells = self.wanted, self.cells
        found = None if card is None else self._pinned_layout(card.pins)
        if card is not None and found is not None and wanted in ("auto", found.kind):
            wanted = found
        elif card is not None and wanted == "auto":
            wanted = (card.pins.rows, card.pins.columns)
        elif card is not None and isinstance(wanted, str):
            cells = cells or card.pins.rows * card.pins.columns  # however many cores there are by now
        plan = self.again(layout=wanted, control_dir=control_dir, cells=cells)
        if card is not None:
            resume.check_pins(card.pins, plan.pins(), str(checkpoint), changed=plan.cell.changed)
        return plan

    @property
    def _in_full(self) -> bool:
        """Whether rows and columns don't say what the layout is: it goes by ranges, or was chosen by what was seen."""
        return self.cell.layout.kind == "band" or isinstance(self.wanted, Layout)

    def _pinned_layout(self, pins: Pins) -> Layout | None:
        """The layout of a checkpoint that tells it in full."""
        return None if pins.layout is None else Layout.again(pins.layout, self.partitions)

    @property
    def pickles(self) -> bool:
        """Whether cells store states of users' functions: these are pickles."""
        return any(isinstance(stage.plan.bound.node, Operator) for stage in self.stages)

    def pins(self) -> Pins:
        """What a checkpoint pins.

        Made into the checkpoint's card at each start, so a start with `functions="changed"` pins the new functions.
        """
        cell = self.cell
        return Pins(
            cell.fingerprint, cell.query, cell.layout.rows, cell.layout.columns, self.partitions, cell.shape,
            cell.functions, cell.loose, cell.layout.told() if self._in_full else None,
        )  # fmt: skip

    def check_wrote(self, pins: Pins, checkpoint: Path) -> None:
        """Refuse a checkpoint that another query has written, whatever its layout."""
        rows, columns = pins.rows, pins.columns
        bound = self.cell.bound
        assert isinstance(bound.node, Query)
        told = None if pins.layout is None else Layout.again(pins.layout, pins.partitions)
        tried: list[Any] = [(rows, columns), "hash", "see_all"] if told is None else [told]
        for wanted in tried:
            try:
                grids = layouts(bound, wanted, pins.partitions, rows * columns, cells=rows * columns)
            except QueryError:
                continue
            if fingerprint(self.query or bound.node, bound, *grids) == pins.fingerprint:
                return
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} was written by another query",
            why=f"it has {pins.query!r} and this one is {self.cell.query!r}, or their conditions or columns differ",
            do="Use the query it was started with: only its layout may be another",
        )

    def explain(self) -> str:
        """See `plait.spark.explain`."""
        lines = self.cell.query.split("\n")
        for stage in self.stages:
            node = stage.plan.bound.node
            assert isinstance(node, Query)
            label = "" if len(self.stages) == 1 else f"{words.explain(node).splitlines()[0]}: "
            layout = stage.plan.layout
            lines.append(f"on Spark: {label}{counted(layout.cells, 'cell')}, {layout.describe()}: {layout.why}")
        return "\n".join(lines)

    def announce(self) -> None:
        """Tell the control folder which streams and sources there are, so that it refuses events of any other."""
        assert self.control_dir is not None
        every = [i for operator in operators(self.cell.bound) for i in operator.inputs]
        inputs = {i.node.name: i.made for i in every if isinstance(i.node, Stream)}
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


def explain(df: Any, checkpoint: str | os.PathLike[str] | None = None, *, executors: int | None = None) -> str:
    """The query, and how it is laid out on Spark.

    Args:
        df: What `query.on_spark(...)` returned, unchanged. Nothing runs for it.
        checkpoint: Lay it out as this one has it, where `layout="auto"`. None: as a new one would.
        executors: Say, too, what so many of one core would be sent and hold, in each layout that the query may have, and where
            each stops scaling: projected from what the query's cells have counted by the checkpoint's last batch, and hold.

    Returns:
        Lines of text: those of `query.explain()`, then for each operator its cells, their layout and why it is this one.

    Raises:
        QueryError: `df` is no result of `on_spark`; or `executors` without a checkpoint.
        RunError: Another query wrote the checkpoint, or it is none.

    Example:
        >>> import plait, plait.spark
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> a, b = (plait.stream(name, unit="s", seq="id") for name in "ab")
        >>> rows = spark.createDataFrame([(1, 1)], "ts long, id long")
        >>> df = plait.join(a, b, within="5s").on_spark({"a": rows, "b": rows}, cells=15, rates=(1000, 3000))
        >>> print(plait.spark.explain(df).splitlines()[-1])
        on Spark: 15 cells, 3x5: rates 1000 and 3000 tuples/s, so a cell's parts of both windows are as equal as 15 cells allow
    """
    plan = getattr(df, "_plait", None)
    if not isinstance(plan, Plan):
        raise QueryError("explain takes the DataFrame that on_spark returned", do="Pass it unchanged")
    if checkpoint is not None:
        place = settings.place(plan.spark, checkpoint, "The checkpoint")
        if (card := read_card(place)) is None:
            raise RunError(
                f"There is no checkpoint at {str(place)!r}", do="Name the folder that write_ordered was given"
            )
        plan = plan.pinned(place, card)
    if executors is None:
        return plan.explain()
    if checkpoint is None:
        raise QueryError(
            "explain with executors= and without a checkpoint",
            why="what so many executors have to do is projected from what a run has counted",
            do="Name the checkpoint of a query that has run for a while",
        )
    from plait.spark.keep.counting import of_cells
    from plait.spark.keep.projection import lines
    from plait.spark.keep.relayout import exported

    states = exported(plan.spark, place)
    found = [of_cells(each.plan.bound, each.plan.layout, states.get(each.plan.number, [])) for each in plan.stages]
    return "\n".join([plan.explain(), *lines(found, executors, f"the query of {str(place)!r}")])


__all__ = ["Plan", "dataframe", "explain", "plan"]
