"""Collect: what cells put out, published in result order, once.

All cells of a batch have the same frontier, so a batch's results lie between the frontier before it and its own: sorted
within the batch, published batch by batch, they are in result order altogether. A batch is written under a temporary
name and renamed to its batch's number, so a replay, which brings the same rows, leaves the same bytes.

Whose a folder is, and who may publish into it, is `target`'s to say: before anything runs, and before each part.

Where it runs: `write_ordered` on the driver, `_Publisher` on the driver in a thread of Spark's, once a batch
(`foreachBatch`), or for a batch DataFrame in the caller's (`at_once`). With `distributed=True`, and with any `order=` but
"strict", tasks write the parts (`gather`). What comes in are the rows of the last operator's cells: kind, body
(`formats.OUTPUT`).

What is left behind: `part-000000000007.parquet` for batch 7 (or a folder `batch-000000000007`), under numbers that go on
across restarts and `relayout`. A batch without results leaves no part. Why not Spark's own file sink: it has no order
across files, and leaves it to a log which files count.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait import paths
from plait.connectors.files import ENDINGS
from plait.connectors.sinks import FORMS, open_sink, sync_folder
from plait.core.metrics import amount
from plait.errors import QueryError, RunError
from plait.query.base import check_order
from plait.spark import formats
from plait.spark.cell import handed
from plait.spark.cell.cell import closes
from plait.spark.cell.results import PIECE, Keyed, Results, merged, read
from plait.spark.keep.checkpoint import publishing, tie
from plait.spark.plan import settings
from plait.spark.publish.at_once import computed, laid_out
from plait.spark.publish.batches import Batch, each_batch
from plait.spark.publish.begun import told_at
from plait.spark.publish.gather import gathered
from plait.spark.publish.stats import SparkStats, Told
from plait.spark.publish.target import Owner, Target
from plait.spark.publish.tell import telling, told
from plait.watch import log, spans


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


def write_ordered(df: Any, path: str | os.PathLike[str], *, checkpoint: str | os.PathLike[str] | None = None,
                  format: str = "parquet", late: str | os.PathLike[str] | None = None, order: str = "strict",
                  distributed: bool = False, keep_key: bool = False, trigger: dict[str, Any] | None = None,
                  drain: bool = False, new_folder: bool = False,
                  report: Callable[[BatchReport], None] | None = None) -> Any:  # fmt: skip
    """Start a streaming query whose results stand in a folder, in result order, exactly once; or write a batch's, all at once.

    Of batch DataFrames it returns when everything is published: one folder, `batch-000000000000`, whose parts' names sort into
    result order, written by tasks. It is there whole or not at all. The folder of results must hold no rows before.

    Folders are local paths or `file:` URIs, made absolute at once.

    Args:
        df: What `query.on_spark(...)` returned, unchanged.
        path: The folder of results, of this checkpoint alone: one that holds other rows is refused.
        checkpoint: The folder that lets the query go on where it was. A batch has none.
        format: "parquet" or "jsonl". Of a stream there is one part a batch; the parts' names sort into result order.
        late: A folder for rows dropped as late or behind. None: a batch that drops some warns of it.
        order: Of results: "strict" (the total order); "trigger" (triggers, which are the later tuples of pairs, in total order,
            partners of one trigger together, in any order); or "none" (no order within a batch). With the last two executors
            write the parts. Sorted by `_plait_key` the rows of each are those of "strict".
        distributed: Executors write the parts of a batch, a folder a batch, instead of the driver writing one. Of batch
            DataFrames they always do.
        keep_key: Keep the column `_plait_key`.
        trigger: As `DataStreamWriter.trigger` takes it. None: `{"availableNow": True}`. Like `drain` and `new_folder`, of streams
            only.
        drain: End of input: take the rows that are there, which this call waits for, then end every source. The query that is
            returned flushes what is left, and the checkpoint refuses rows from then on.
        new_folder: `path` may be another folder than so far. It gets the parts from here on, and the old one keeps its own.
        report: Called after each batch with a `BatchReport`.

    Returns:
        Spark's `StreamingQuery`. The text of its errors ends with plait's own words. Of batch DataFrames a `BatchReport`, when
        all is published.

    Raises:
        QueryError: `df` is no result of plait's, or arguments don't go together.
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
    if plan is None:
        raise QueryError(
            "write_ordered takes the DataFrame that on_spark returned",
            why="it publishes what the cells put out",
            do="Pass it unchanged",
        )
    if format not in FORMS or not FORMS[format].parts:
        written = [name for name, form in FORMS.items() if form.parts]
        raise QueryError(f"format={format!r} is no format", do=f"Use {' or '.join(map(repr, written))}")
    check_order(order)
    if not plan.streaming:
        _check_batch({"checkpoint": checkpoint, "trigger": trigger, "drain": drain, "new_folder": new_folder})
        return _write_batch(plan, path, format, late, order, keep_key, report)
    if checkpoint is None:
        raise QueryError(
            "write_ordered of streaming DataFrames without checkpoint=",
            why="that folder lets the query go on where it was",
            do="Name one",
        )
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
    plan = plan if distributed else plan.handing_over()
    publish = _Publisher(plan, owner, targets[0], format, targets[1] if late is not None else None, keep_key, order, distributed,
                         report, first, told_at(plan, place, owner, first))  # fmt: skip

    def start() -> Any:
        writer = each_batch(plan.output().writeStream, publish).option("checkpointLocation", paths.uri(place))
        return telling(writer.trigger(**(trigger or {"availableNow": True})).start(), publish)

    if not drain:
        return start()
    start().awaitTermination()
    plan.drain()
    return start()


def _check_batch(given: dict[str, Any]) -> None:
    """Refuse what says something of streams alone."""
    for name, value in given.items():
        if value:
            raise QueryError(
                f"write_ordered of batch DataFrames with {name}={value!r}",
                why="a batch is all there, and is published at once: there is nothing to go on from, and nothing to wait for",
                do="Leave it out, or read streams with spark.readStream",
            )


def _write_batch(plan: Any, path: str | os.PathLike[str], format: str, late: str | os.PathLike[str] | None, order: str,
                 keep_key: bool, report: Callable[[BatchReport], None] | None) -> BatchReport:  # fmt: skip
    """The results of batch DataFrames: see `at_once`. All is checked before a folder is touched."""
    form = f"{format}, a folder a batch"
    targets = [Target(settings.place(plan.spark, path, "The folder of results"), "results", form)]
    if late is not None:
        aside = settings.place(plan.spark, late, "The folder of dropped rows")
        targets.append(Target(aside, "dropped rows", format, True, "The folder of dropped rows", targets[0]))
        _check_apart(None, *(target.folder for target in targets))
    owner = Owner.of_batch(plan.cell.query)
    for target in targets:
        target.check(owner)
    for target in targets:
        target.claim(owner)
    publish = _Publisher(plan, owner, targets[0], format, targets[1] if late is not None else None, keep_key, order, True,
                         report)  # fmt: skip
    try:
        return publish.all_at_once()
    except Exception as error:
        said = told(error)
        if said is None:
            raise
        raise said from error


def _check_apart(checkpoint: Path | None, target: Path, late: Path | None = None) -> None:
    """Refuse folders of which a reader of one would read the other."""
    if checkpoint is not None and target == checkpoint:
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

    def __call__(self, given: Batch, batch: int) -> None:
        """A batch's rows, which have not been computed yet.

        Asking for them runs the whole batch, and brings all results to the driver; where tasks write them, dropped rows and
        reports alone. Then dropped rows are written, and the batch is told of.

        If the process dies in between, the batch is not committed. Spark does it again with the same rows, and the same
        files are written under the same names.
        """
        number, began, ready = self.first + batch, time.monotonic(), 0.0
        if self.distributed:
            slices = 1 if closes(self.plan.cell.bound.node) else self.plan.partitions
            with self._written_by_tasks(number) as folder:
                rows = gathered(
                    given.frame(), folder, self.format, order=self.order, keep_key=self.keep_key, slices=slices
                )
                bodies = _by_kind(rows)
                ready = time.monotonic()
                results = _as_told(folder, bodies[formats.WRITTEN])
        else:
            with self._handed_over():
                bodies = _by_kind(given.rows())
                ready = time.monotonic()
                with publishing(self.owner, self.target):
                    results = self._write_one(_results(bodies), number)
        if bodies[formats.LATE]:
            self._write_late(bodies[formats.LATE], number)
        if bodies[formats.PROGRESS]:
            self._hear(bodies, began, ready)
            self._tell(BatchReport(batch, results, SparkStats()), began)

    @contextmanager
    def _handed_over(self) -> Iterator[None]:
        """What cells hand over for a batch goes with it, however it ends."""
        try:
            yield
        finally:
            if self.plan.cell.handing is not None:
                self.plan.cell.handing.clear()

    def all_at_once(self) -> BatchReport:
        """A batch run's. Dropped rows stand in their folder before results get their name: who sees these has those, too."""
        plan, slices = laid_out(self.plan)
        began, ready = time.monotonic(), 0.0
        with self._written_by_tasks(0) as folder:
            rows = computed(plan, slices, folder, self.format, order=self.order, keep_key=self.keep_key)
            bodies = _by_kind(rows)
            ready = time.monotonic()
            results = _as_told(folder, bodies[formats.WRITTEN])
            if bodies[formats.LATE]:
                self._write_late(bodies[formats.LATE], 0)
        self._hear(bodies, began, ready)
        found = BatchReport(0, results, self.told.now() or SparkStats())
        if self.report is not None:
            self.report(found)
        return found

    def _hear(self, bodies: dict[int, list[pa.Buffer]], began: float, ready: float) -> None:
        """What cells report of a batch that began and had its results then, and is published now."""
        reports = (formats.parse(body)[0] for body in bodies[formats.PROGRESS])
        self.told.batch(reports, began, ready, time.monotonic())

    def _tell(self, batch: BatchReport, began: float) -> None:
        """Whoever asks hears of a batch: the user's `report`, a log, OpenTelemetry. If nobody does, it costs nothing."""
        traced, logged = spans.tracer() is not None, self.report is None and log.LOGGER.isEnabledFor(logging.INFO)
        if self.report is None and not traced and not logged:
            return
        found = dataclasses.replace(batch, run=self.told.now() or SparkStats())
        if logged:
            log.batch_done(self.told.query, batch.batch, found.run)
        if traced:
            now = time.time()
            spans.batch(self.told.query, batch.batch, found.run, now - (time.monotonic() - began), now)
        if self.report is not None:
            self.report(found)

    def _write_one(self, cells: list[Results | Keyed], batch: int) -> int:
        """One part, written by the driver, of all cells' results in result order; gives how many they are."""
        if not cells:
            return 0
        file = self.target.folder / formats.part_name(batch, ENDINGS[self.format][0])
        schema = cells[0].columns.schema
        if self.keep_key:
            schema = schema.append(pa.field(formats.KEY, pa.binary()))
        pieces = (
            (some.table() if self.keep_key else some.columns).combine_chunks() for some in merged(cells, most=PIECE)
        )
        with open_sink(file, schema) as sink:
            for table in pieces if sum(some.rows for some in cells) <= PIECE else _ahead(pieces):
                sink.write(table)
        return int(sink.rows)

    def _write_late(self, bodies: list[pa.Buffer], batch: int) -> None:
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
                folder = self.late.folder / paths.quoted(head.stream)
                paths.folder(folder, self.late.what)
                with open_sink(
                    folder / formats.part_name(batch, ENDINGS[self.format][0], head.cell), table.schema
                ) as sink:
                    sink.write(table)

    @contextmanager
    def _written_by_tasks(self, batch: int) -> Iterator[Path]:
        """A folder a batch, for tasks to write into inside of this: then it is renamed as a whole, which publishes it.

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
            yield temporary
            with publishing(self.owner, self.target):
                if not final.exists() and any(temporary.iterdir()):
                    os.replace(temporary, final)
                    sync_folder(self.target.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # a disk that is full should not stay so for our sake


def _as_told(folder: Path, bodies: Sequence[bytes | pa.Buffer]) -> int:
    """Hold a folder against what tasks have told of their parts; gives how many rows these have.

    What an attempt that came to nothing has left beside them goes. A part that is missing means that the executors write into
    another folder than the driver sees.
    """
    told: list[formats.Written] = [formats.parse(body)[0] for body in bodies]
    named = {each.part for each in told if each.part}
    there = {entry.name for entry in os.scandir(folder)}
    for name in there - named:
        (folder / name).unlink(missing_ok=True)
    if missing := sorted(named - there):
        raise RunError(
            f"A task has written {missing[0]!r}, and it is not in {str(folder)!r}",
            why="executors write the parts, and must see the folder of results under the name that the driver gives it",
            do="Name a folder that all machines share",
        )
    return sum(each.rows for each in told)


def _ahead(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same, each made by a thread while the one before is written: neither needs Python's lock for long."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, pieces, None)
        while (piece := following.result()) is not None:
            following = thread.submit(next, pieces, None)
            yield piece


def _results(bodies: dict[int, list[pa.Buffer]]) -> list[Results | Keyed]:
    """All cells' results, which came through Spark or lie in memory that the driver can see."""
    return [
        *(read(body) for body in bodies[formats.RESULTS]),
        *(handed.taken(body) for body in bodies[formats.HANDED]),
    ]


def _by_kind(rows: pa.Table) -> dict[int, list[pa.Buffer]]:
    """What came to the driver, by what it is. Nothing is copied."""
    kinds = (formats.RESULTS, formats.LATE, formats.PROGRESS, formats.WRITTEN, formats.HANDED)
    bodies: dict[int, list[pa.Buffer]] = {kind: [] for kind in kinds}
    for kind, body in zip(rows.column("kind").to_pylist(), rows.column("body"), strict=True):
        bodies[kind].append(body.as_buffer())
    return bodies
