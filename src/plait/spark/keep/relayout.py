"""Another layout, or another number of state partitions, for a query that has stopped: its state exported and imported.

    old checkpoint   the state as of the last committed batch, read by Spark's own reader of state
    resettling       laid out for the new cells, here on the driver
    new checkpoint   a query of one batch, whose cells only store what they are handed, makes it: Spark writes its own state.
                     Then that batch's offsets are replaced by the old ones, so that the next batch goes on behind them.

The old checkpoint is marked as left once the new one is whole: two queries would both publish what comes next.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from plait import paths
from plait.errors import QueryError, RunError
from plait.spark import formats
from plait.spark.cell import state
from plait.spark.keep.checkpoint import check_not_left, check_owned, last_number, read_card, write_card
from plait.spark.keep.observed import suited
from plait.spark.keep.resettle import resettle
from plait.spark.plan import settings

#: The number of a checkpoint's first own batch: see `_import`.
_SEED = 0


def relayout(df: Any, checkpoint: str | os.PathLike[str], to: str | os.PathLike[str]) -> str:
    """Move a stopped query's state into a new checkpoint, for another layout or another number of state partitions.

    The new checkpoint has `df`'s layout and this session's state partitions. All of the state passes through the driver. With
    `layout="auto"` a join's layout is chosen by what its windows hold: the one whose busiest cell has the fewest tuples, of a
    grid, by hash and by ranges of a band, as far as the condition has these. With "band", too, ranges that are hot get several
    cells.

    Args:
        df: What `query.on_spark(..., layout=...)` returned, for the query that the checkpoint was written by.
        checkpoint: Of the stopped query, as given to `write_ordered`. It is left as it is, and refused from then on.
        to: The new one. `write_ordered(df, path, checkpoint=to)` goes on from it, with the same `path`.

    Returns:
        The layout of the new checkpoint and why it is this one, in a line.

    Raises:
        QueryError: `df` is no streaming result of plait's.
        RunError: There is no such checkpoint, another query wrote it, its last batch is not committed, or `to` is there already.

    Example:
        >>> import plait, plait.connectors, plait.spark
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> readings = plait.stream("readings", unit="s")
        >>> (file,) = plait.connectors.write_folder(plait.connectors.feed(readings, {"ts": [1, 2], "meter": [7, 8]}), "rows")
        >>> query = plait.aggregate(readings, size="10s", by="meter", compute={"n": plait.count()})
        >>> given = {"readings": spark.readStream.schema("ts long, meter long").parquet(str(file.parent))}
        >>> df = query.on_spark(given, layout=(1, 1))
        >>> plait.spark.write_ordered(df, "out", checkpoint="checkpoint").awaitTermination()
        >>> df = query.on_spark(given, layout=(2, 1))
        >>> plait.spark.relayout(df, "checkpoint", "checkpoint-2")
        '2x1 (by hash): tuples go by the values that must be equal, and none is copied'
    """
    plan = getattr(df, "_plait", None)
    if plan is None or not plan.streaming:
        raise QueryError(
            "relayout takes the DataFrame that on_spark returned for streaming DataFrames",
            why="it tells the query and the layout to move to",
        )
    old, new = (settings.place(plan.spark, path, "The checkpoint") for path in (checkpoint, to))
    paths.may_be_folder(new.parent, "The folder of the new checkpoint")
    check_owned(plan, old)
    card = read_card(old)
    if card is None:
        raise RunError(f"There is no checkpoint at {str(old)!r}", do="Name the folder that write_ordered was given")
    check_not_left(old, card)
    if os.path.lexists(new):
        raise RunError(
            f"{str(new)!r} is there already", why="the new checkpoint is made from nothing", do="Name another"
        )
    plan.check_wrote(card.pins, old)  # refused if another query wrote it
    last = _last_committed(old)
    try:
        # Events written so far are in the cells; those that come are numbered from there.
        if (old / "control").is_dir():
            shutil.copytree(old / "control", new / "control")
        states = exported(plan.spark, old)
        wanted = _found(plan, states)
        moved = plan.again(layout=wanted, control_dir=plan.control_dir or str(new / "control"))
        tables = _laid_out(moved, states)
        _import(moved, tables, new)
        _take_over_offsets(old, new, last, moved.pins().partitions)
        # The same identity: it goes on with the same folder of results.
        write_card(new, replace(card, pins=moved.pins(), first=card.first + last - _SEED))
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    write_card(old, replace(card, left=os.fspath(new)))
    layout = moved.cell.layout
    return f"{layout.describe()}: {layout.why}"


def _found(plan: Any, states: Mapping[int, list[dict[int, bytes]]]) -> Any:
    """The layout for what the last operator's cells hold, where it was left open: "auto", or by which ranges."""
    if plan.wanted not in ("auto", "band"):
        return plan.wanted
    cell, only = plan.cell, None if plan.wanted == "auto" else "band"
    found = suited(cell.bound, states.get(0, []), cell.layout, plan.partitions, only=only)
    return plan.wanted if found is cell.layout else found


def _last_committed(old: Path) -> int:
    planned, done = (last_number(old, kind) for kind in ("offsets", "commits"))
    if done < 0:
        raise RunError(f"{str(old)!r} has no committed batch", why="there is no state to move", do="Start anew")
    if planned != done:
        raise RunError(
            f"Batch {planned} of {str(old)!r} is begun and not committed",
            why="a part of it may be published, and it has to come out as it was planned",
            do="Start the query on that checkpoint once more, let the batch end, and stop it",
        )
    return done


def exported(spark: Any, old: Path) -> dict[int, list[dict[int, bytes]]]:
    """Each operator's cells, by its number: what they store.

    Spark's reader of state gives the last committed batch. Which operator of the query a stateful operator of Spark's is,
    its cells' manifests tell, not Spark's numbers: those depend on the plan.
    """
    found: dict[int, list[dict[int, bytes]]] = {}
    names = spark.read.format("state-metadata").load(paths.uri(old)).select("operatorId").distinct().collect()
    for (operator,) in names:
        reader = spark.read.format("statestore").option("operatorId", operator).option("stateVarName", formats.STATE)
        wanted = ("key.cell", f"user_map_key.{formats.STATE_KEY}", f"user_map_value.{formats.STATE_VALUE}")
        rows = reader.load(paths.uri(old)).selectExpr(*wanted).toArrow()
        cells: dict[int, dict[int, bytes]] = {}
        for cell, number, body in zip(*(c.to_pylist() for c in rows.columns), strict=True):
            cells.setdefault(cell, {})[number] = body
        if cells:
            manifest = formats.Manifest.load(next(iter(cells.values()))[formats.MANIFEST])
            found[manifest.operator] = list(cells.values())
    return found


def _laid_out(plan: Any, old: Mapping[int, list[dict[int, bytes]]]) -> list[pa.Table]:
    """Each operator's new state as rows: cell, number, body."""
    tables = []
    for made in (stage.plan for stage in plan.stages):
        new = resettle(made.bound, old.get(made.number, []), made.layout, made.fingerprint)
        rows = [(key, n, data) for key, cell in zip(made.layout.keys, new, strict=True) for n, data in cell.items()]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        schema = pa.schema([("cell", pa.int32()), ("no", pa.int64()), ("body", pa.binary())])
        tables.append(pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema))
    return tables


def _import(plan: Any, states: list[pa.Table], new: Path) -> None:
    """One batch that stores the states: the same operators of Spark's in the same places, with nothing else in them."""
    folder = new / "import"
    for number, table in enumerate(states):
        (folder / str(number)).mkdir(parents=True)
        pq.write_table(table, folder / str(number) / "state.parquet")
    writer = (
        _importing(plan, folder).writeStream.foreachBatch(lambda frame, batch: frame.count()).trigger(availableNow=True)
    )
    writer.option("checkpointLocation", paths.uri(new)).start().awaitTermination()
    done = [f.name for f in (new / "commits").glob("*") if f.name.isdigit()]
    assert done == [str(_SEED)], f"the import took batches {done}"
    shutil.rmtree(folder)


def _importing(plan: Any, folder: Path, number: int = 0) -> Any:
    """The same operators of Spark's in the same places of its plan, whose cells only store what they are handed.

    So the state that they leave is found by the query that starts on the checkpoint next.
    """
    read = plan.spark.readStream.schema(formats.STATE_ROWS).parquet(paths.pattern(folder / str(number)))
    upstreams = plan.stages[number].plan.upstreams
    rows = functools.reduce(lambda a, b: a.unionAll(b), (read, *(_importing(plan, folder, n) for n in upstreams)))
    return rows.groupBy("cell").transformWithStateInPandas(
        statefulProcessor=_importer(), outputStructType=formats.STATE_ROWS, outputMode="append", timeMode="None"
    )


def _importer() -> Any:
    """What stores rows with the columns `no` and `body` (`formats.STATE_ROWS`), and puts out nothing.

    A class made in a function travels by value, as that of `cell.processor` does.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    stored = state.variable()

    class Importer(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.map = handle.getMapState(*stored)

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
            from plait.spark.cell.state import SparkStore

            store = SparkStore(self.map)
            for frame in rows:
                for number, body in zip(frame["no"], frame["body"], strict=True):
                    store.put_chunk(int(number), bytes(body))
            return iter(())

        def close(self) -> None:
            return

    return Importer()


def _take_over_offsets(old: Path, new: Path, last: int, partitions: int) -> None:
    """Let the next batch begin where the old query stopped. Of an offset log's file, lines: version, settings, sources."""
    version, settings, *sources = (old / "offsets" / str(last)).read_text().split("\n")
    known = json.loads(settings)
    known["conf"]["spark.sql.shuffle.partitions"] = str(partitions)
    for folder in ("offsets", "sources"):
        shutil.rmtree(new / folder, ignore_errors=True)
    (new / "offsets").mkdir()
    (new / "offsets" / str(_SEED)).write_text("\n".join([version, json.dumps(known), *sources]))
    if (old / "sources").is_dir():
        shutil.copytree(old / "sources", new / "sources")
