"""Collect: what cells put out, published in result order, once.

All cells of a batch have the same frontier, so a batch's results lie between the frontier before it and its own: sorted
within the batch, published batch by batch, they are in result order altogether. A batch is written under a temporary
name and renamed to its batch's number, so a replay, which brings the same rows, leaves the same bytes.

Whose a folder is, and who may publish into it, is `target`'s to say: before anything runs, and before each part.

Where it runs: `write_ordered` on the driver, `_Publisher` on the driver in a thread of Spark's, once a batch
(`foreachBatch`). With `distributed=True`, and with any `order=` but "strict", tasks write the parts (`gather`). What comes
in are the rows of the last operator's cells: kind, body (`formats.OUTPUT`).

What is left behind: `part-000000000007.parquet` for batch 7 (or a folder `batch-000000000007`), under numbers that go on
across restarts and `relayout`. A batch without results leaves no part. Why not Spark's own file sink: it has no order
across files, and leaves it to a log which files count.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait import paths
from plait.connectors.files import ENDINGS
from plait.connectors.sinks import FORMS, open_sink, sync_folder
from plait.core.metrics import amount
from plait.errors import QueryError
from plait.query.base import check_order
from plait.spark import formats
from plait.spark.cell.cell import closes
from plait.spark.cell.results import Keyed, Results, merge, read
from plait.spark.keep.checkpoint import publishing, tie
from plait.spark.plan import settings
from plait.spark.publish.gather import gathered
from plait.spark.publish.stats import SparkStats, Told
from plait.spark.publish.target import Owner, Target
from plait.spark.publish.tell import telling


@dataclass(frozen=True)
class BatchReport:
    """What one micro-batch did, for a progress display, and all that the query has told since its checkpoint began.

    `write_ordered(report=...)` is called with one.

    Attributes:
        batch: The batch's number, as Spark counts it.
        results: How many results it published.
        run: `frontier`, `late`, `behind` and all else that `docs/metrics.md` lists, `cells` with what each cell had to do among
            it. What Spark alone knows, `state_bytes`, is in its own progress.

    Example:
        >>> from plait.spark import BatchReport
        >>> from plait.spark.publish.stats import CellStats, SparkStats
        >>> report = BatchReport(batch=3, results=10, run=SparkStats(rows=12, cells=(CellStats(cell=0, comparisons=40),)))
        >>> report.run.rows, report.run.cells[0].comparisons
        (12, 40)
    """

    batch: int
    results: int
    run: SparkStats

    @property
    def frontier(self) -> int:
        """The event time below which every result is out, in microseconds."""
        return self.run.frontier

    @property
    def pending(self) -> int:
        """Tuples that wait for the frontier."""
        return self.run.pending or 0

    @property
    def late(self) -> int:
        """Rows dropped as late so far, of all streams."""
        return int(amount(self.run.late))

    @property
    def behind(self) -> int:
        """Rows dropped as behind so far, of all streams."""
        return int(amount(self.run.behind))

    @property
    def largest(self) -> int | None:
        """The largest ts seen so far; the frontier lags behind it."""
        return self.run.newest


def quoted(stream: str) -> str:
    """A stream's name as that of a folder: what would lead elsewhere, or be passed over by readers, is escaped as in a URI."""
    return re.sub(r"[/%\0]|^[._]", lambda found: f"%{ord(found[0]):02X}", stream)


def write_ordered(df: Any, path: str | os.PathLike[str], *, checkpoint: str | os.PathLike[str], format: str = "parquet",
                  late: str | os.PathLike[str] | None = None, order: str = "strict", distributed: bool = False,
                  keep_key: bool = False, trigger: dict[str, Any] | None = None, drain: bool = False,
                  new_folder: bool = False, report: Callable[[BatchReport], None] | None = None) -> Any:  # fmt: skip
    """Start a streaming query whose results stand in a folder, in result order, exactly once.

    Folders are local paths or `file:` URIs, made absolute at once.

    Args:
        df: What `query.on_spark(...)` returned for streaming DataFrames, unchanged.
        path: The folder of results, of this checkpoint alone: one that holds other rows is refused.
        checkpoint: The folder that lets the query go on where it was.
        format: "parquet" or "jsonl". There is one part a batch; the parts' names sort into result order.
        late: A folder for rows dropped as late or behind. None: a batch that drops some warns of it.
        order: Of results: "strict" (the total order); "trigger" (triggers, which are the later tuples of pairs, in total order,
            partners of one trigger together, in any order); or "none" (no order within a batch). With the last two executors
            write the parts. Sorted by `_plait_key` the rows of each are those of "strict".
        distributed: Executors write the parts of a batch, a folder a batch, instead of the driver writing one.
        keep_key: Keep the column `_plait_key`.
        trigger: As `DataStreamWriter.trigger` takes it. None: `{"availableNow": True}`.
        drain: End of input: take the rows that are there, which this call waits for, then end every source. The query that is
            returned flushes what is left, and the checkpoint refuses rows from then on.
        new_folder: `path` may be another folder than so far. It gets the parts from here on, and the old one keeps its own.
        report: Called after each batch with a `BatchReport`.

    Returns:
        Spark's `StreamingQuery`. The text of its errors ends with plait's own words.

    Raises:
        QueryError: `df` is no streaming result of plait's, or arguments don't go together.
        RunError: The folder or the checkpoint is another's.
        DataError: A path is no local folder, or can't be written.

    Example:
        >>> import plait, plait.connectors, plait.spark, pyarrow.parquet
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> readings = plait.stream("readings", unit="s")
        >>> (file,) = plait.connectors.write_folder(plait.connectors.feed(readings, {"ts": [1, 2, 15]}), "readings")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()})
        >>> df = query.on_spark({"readings": spark.readStream.schema("ts long").parquet(str(file.parent))})
        >>> plait.spark.write_ordered(df, "out", checkpoint="checkpoint", drain=True).awaitTermination()
        >>> pyarrow.parquet.read_table("out")["n"].to_pylist()
        [2, 1]
    """
    plan = getattr(df, "_plait", None)
    if plan is None or not plan.streaming:
        raise QueryError(
            "write_ordered takes the DataFrame that on_spark returned for streaming DataFrames",
            why="it publishes what the cells put out, batch by batch",
            do="Pass it unchanged; for a batch result use df.orderBy('_plait_key')",
        )
    if format not in FORMS or not FORMS[format].parts:
        written = [name for name, form in FORMS.items() if form.parts]
        raise QueryError(f"format={format!r} is no format", do=f"Use {' or '.join(map(repr, written))}")
    check_order(order)
    if drain and trigger is not None and "availableNow" not in trigger:
        raise QueryError(
            f"drain=True with trigger={trigger!r}", why="draining takes what is there and ends", do="Leave trigger out"
        )
    place = settings.place(plan.spark, checkpoint, "The checkpoint")
    distributed = distributed or order != "strict"
    form = f"{format}, a folder a batch" if distributed else format
    form += f", order {order}" if order != "strict" else ""
    targets = [Target(settings.place(plan.spark, path, "The folder of results"), "results", form, new_folder)]
    if late is not None:
        aside = settings.place(plan.spark, late, "The folder of dropped rows")
        targets.append(Target(aside, "dropped rows", format, True, "The folder of dropped rows"))
    _check_apart(place, *(target.folder for target in targets))
    plan, owner, first = tie(plan, place, targets)
    publish = _Publisher(plan, owner, targets[0], format, targets[1] if late is not None else None, keep_key, order, distributed,
                         report, first)  # fmt: skip

    def start() -> Any:
        writer = plan.output().writeStream.foreachBatch(publish).option("checkpointLocation", paths.uri(place))
        return telling(writer.trigger(**(trigger or {"availableNow": True})).start())

    if not drain:
        return start()
    start().awaitTermination()
    plan.drain()
    return start()


def _check_apart(checkpoint: Path, target: Path, late: Path | None = None) -> None:
    """Refuse folders of which a reader of one would read the other."""
    if target == checkpoint:
        raise QueryError(f"The checkpoint and the folder of results are both {str(target)!r}", do="Name two folders")
    if late is not None and (late == target or late in target.parents or target in late.parents):
        raise QueryError(
            f"The folder of dropped rows {str(late)!r} and that of results {str(target)!r} lie in one another",
            why="who reads the one would read the other's rows",
            do="Name two folders side by side",
        )


@dataclass
class _Publisher:
    """What Spark calls with each batch.

    Attributes:
        plan: The `run.Plan`, for the schema of results.
        owner: The checkpoint at this start. Before each part it must still be the owner (`keep.checkpoint.publishing`).
        target, late: The folders of results and of dropped rows.
        keep_key: Leave `_plait_key` in the parts.
        order, distributed: How exactly results are ordered, and whether tasks write them (`gather`) or the driver.
        told: What cells have reported.
        began: When this start began, for the seconds that reports tell.
    """

    plan: Any
    owner: Owner
    target: Target
    format: str
    late: Target | None
    keep_key: bool
    order: str
    distributed: bool
    report: Callable[[BatchReport], None] | None
    first: int = 0  # the batches that earlier checkpoints of this query had: see `relayout`
    told: Told = field(default_factory=Told)
    began: float = field(default_factory=time.monotonic)

    def __call__(self, frame: Any, batch: int) -> None:
        """A batch's rows, as a DataFrame that has not been computed yet.

        `toArrow` runs the whole batch, and brings all results to the driver; where tasks write them, dropped rows and reports
        alone. Then dropped rows are written, and the batch is told of.

        If the process dies in between, the batch is not committed. Spark does it again with the same rows, and the same
        files are written under the same names.
        """
        number = self.first + batch
        if self.distributed:
            bodies = _by_kind(self._write_distributed(frame, number))
            results = sum(formats.parse(body)[0].rows for body in bodies[formats.WRITTEN])
        else:
            bodies = _by_kind(frame.toArrow())
            with publishing(self.owner, self.target):
                results = self._write_one([read(body) for body in bodies[formats.RESULTS]], number)
        if bodies[formats.LATE]:
            self._write_late(bodies[formats.LATE], number)
        if self.report is not None and bodies[formats.PROGRESS]:
            for body in bodies[formats.PROGRESS]:
                self.told.hear(formats.parse(body)[0])
            self.report(BatchReport(batch, results, self.told.stats(time.monotonic() - self.began)))

    def _write_one(self, cells: list[Results | Keyed], batch: int) -> int:
        """One part, written by the driver, of all cells' results in result order; gives how many they are."""
        if not cells:
            return 0
        results = merge(cells)
        kept = results.table() if self.keep_key else results.columns
        with open_sink(self.target.folder / formats.part_name(batch, ENDINGS[self.format][0]), kept.schema) as sink:
            sink.write(kept.combine_chunks())
        return results.rows

    def _write_late(self, bodies: list[bytes], batch: int) -> None:
        """Streams differ in columns, so each has a folder of its own."""
        late: list[tuple[formats.LateRows, pa.Buffer]] = [formats.parse(body) for body in bodies]
        tables = [(head, formats.table(rest)) for head, rest in late]
        if self.late is None:
            count = sum(table.num_rows for _, table in tables)
            warnings.warn(
                f"Batch {batch} dropped {count} rows as late or behind: write_ordered(..., late=FOLDER) keeps them",
                stacklevel=2,
            )
            return
        with publishing(self.owner, self.late):
            for head, table in tables:
                folder = self.late.folder / quoted(head.stream)
                paths.folder(folder, self.late.what)
                with open_sink(
                    folder / formats.part_name(batch, ENDINGS[self.format][0], head.cell), table.schema
                ) as sink:
                    sink.write(table)

    def _write_distributed(self, frame: Any, batch: int) -> pa.Table:
        """A folder a batch, renamed as a whole when tasks have written its parts. Gives the rows that came to the driver.

        Whether the folder is still ours is asked before anything is written, and again when the batch gets its name. A batch
        that stands there already was published before Spark had committed it: the cells run again, for their state, and
        what tasks write goes away.
        """
        final = self.target.folder / formats.batch_name(batch)
        temporary = self.target.folder / f".{formats.batch_name(batch)}.tmp"
        with publishing(self.owner, self.target):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        try:
            slices = 1 if closes(self.plan.cell.bound.node) else self.plan.partitions
            rows = gathered(frame, temporary, self.format, order=self.order, keep_key=self.keep_key, slices=slices)
            with publishing(self.owner, self.target):
                if not final.exists() and any(temporary.iterdir()):
                    os.replace(temporary, final)
                    sync_folder(self.target.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # a disk that is full should not stay so for our sake
        return rows


def _by_kind(rows: pa.Table) -> dict[int, list[bytes]]:
    """What came to the driver, by what it is."""
    kinds = (formats.RESULTS, formats.LATE, formats.PROGRESS, formats.WRITTEN)
    bodies: dict[int, list[bytes]] = {kind: [] for kind in kinds}
    for kind, body in zip(rows.column("kind").to_pylist(), rows.column("body").to_pylist(), strict=True):
        bodies[kind].append(body)
    return bodies
