"""Collect: what cells put out, published in result order, once.

All cells of a batch have the same frontier, so a batch's results lie between the frontier before it and its own: sorted
within the batch, published batch by batch, they are in result order altogether. A batch is written under a temporary
name and renamed to its batch's number, so a replay, which brings the same rows, leaves the same bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait.connectors.sinks import open_sink
from plait.errors import QueryError, RunError
from plait.spark import wire
from plait.spark.keyed import Keyed
from plait.spark.results import Results, merge, read

ENDINGS = {"parquet": ".parquet", "jsonl": ".jsonl"}


@dataclass(frozen=True)
class BatchReport:
    """What one micro-batch did, for a progress display."""

    batch: int
    results: int
    frontier: int
    pending: int
    late: int  # rows dropped so far
    largest: int | None = None  # the largest ts seen so far; the frontier lags behind it


def part_name(batch: int, format: str) -> str:
    return f"part-{batch:012d}{ENDINGS[format]}"


def write_ordered(df: Any, path: str | os.PathLike[str], *, checkpoint: str | os.PathLike[str], format: str = "parquet",
                  late: str | os.PathLike[str] | None = None, distributed: bool = False, keep_key: bool = False,
                  trigger: dict[str, Any] | None = None, drain: bool = False,
                  report: Callable[[BatchReport], None] | None = None) -> Any:  # fmt: skip
    """Start a streaming query whose results stand in `path`, in result order, exactly once.

    df           what `query.on_spark(...)` returned for streaming DataFrames
    format       "parquet" or "jsonl"; one part a batch, whose names sort into result order
    late         a folder for rows dropped as late or behind
    distributed  executors write the parts of a batch (a folder a batch) instead of the driver writing one
    keep_key     keep the column `_plait_key`
    trigger      as DataStreamWriter.trigger takes it; {"availableNow": True} by default
    drain        end of input: take the rows that are there (this call waits for that), then end every source; the query
                 that is returned flushes what is left, and the checkpoint refuses rows from then on
    """
    plan = getattr(df, "_plait", None)
    if plan is None or not plan.streaming:
        raise QueryError(
            "write_ordered takes the DataFrame that on_spark returned for streaming DataFrames",
            why="it publishes what the cells put out, batch by batch",
            do="Pass it unchanged; for a batch result use df.orderBy('_plait_key')",
        )
    if format not in ENDINGS:
        raise QueryError(f"format={format!r} is no format", do="Use 'parquet' or 'jsonl'")
    plan = plan.pinned(Path(checkpoint))
    target = Path(path)
    target.mkdir(parents=True, exist_ok=True)
    first = (read_card(Path(checkpoint)) or {}).get("first", 0)
    publish = _Publisher(
        plan, target, format, None if late is None else Path(late), keep_key, distributed, report, first
    )

    def start() -> Any:
        writer = plan.raw().writeStream.foreachBatch(publish).option("checkpointLocation", os.fspath(checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    if not drain:
        return start()
    if trigger is not None and "availableNow" not in trigger:
        raise QueryError(
            f"drain=True with trigger={trigger!r}", why="draining takes what is there and ends", do="Leave trigger out"
        )
    start().awaitTermination()
    plan.drain()
    return start()


@dataclass
class _Publisher:
    plan: Any
    target: Path
    format: str
    late: Path | None
    keep_key: bool
    distributed: bool
    report: Callable[[BatchReport], None] | None
    first: int = 0  # the batches that earlier checkpoints of this query had: see `relayout`

    def __call__(self, frame: Any, batch: int) -> None:
        if not self.distributed:
            return self._publish(frame, frame.toArrow(), batch)
        frame.persist()  # several actions, and the cells must run once
        try:
            self._publish(frame, frame.where(frame.kind != wire.RESULTS).toArrow(), batch)
        finally:
            frame.unpersist()

    def _publish(self, frame: Any, rows: pa.Table, batch: int) -> None:
        bodies: dict[int, list[bytes]] = {kind: [] for kind in (wire.RESULTS, wire.LATE, wire.PROGRESS)}
        for kind, body in zip(rows.column("kind").to_pylist(), rows.column("body").to_pylist(), strict=True):
            bodies[kind].append(body)
        number = self.first + batch
        if self.distributed:
            results = self._write_distributed(frame, number)
        else:
            results = self._write_one([read(body) for body in bodies[wire.RESULTS]], number)
        if bodies[wire.LATE]:
            self._write_late(bodies[wire.LATE], number)
        if self.report is not None and bodies[wire.PROGRESS]:
            cells = [json.loads(body) for body in bodies[wire.PROGRESS]]
            self.report(
                BatchReport(
                    batch,
                    results,
                    min(c["frontier"] for c in cells),
                    sum(c["pending"] for c in cells),
                    sum(c["late"] for c in cells),
                    max((c["largest"] for c in cells if c["largest"] is not None), default=None),
                )
            )

    def _write_one(self, cells: list[Results | Keyed], batch: int) -> int:
        if not cells:
            return 0
        results = merge(cells)
        kept = results.table() if self.keep_key else results.columns
        with open_sink(self.target / part_name(batch, self.format), kept.schema) as sink:
            sink.write(kept.combine_chunks())
        return results.rows

    def _write_late(self, bodies: list[bytes], batch: int) -> None:
        """Streams differ in columns, so each has a folder of its own."""
        if self.late is None:
            count = sum(wire.table_of(body).num_rows for body in bodies)
            warnings.warn(
                f"Batch {batch} dropped {count} rows as late or behind: write_ordered(..., late=FOLDER) keeps them",
                stacklevel=2,
            )
            return
        for body in bodies:
            table = wire.table_of(body)
            stream = table.schema.metadata[b"stream"].decode()
            folder = self.late / stream
            folder.mkdir(parents=True, exist_ok=True)
            name = f"part-{batch:012d}-{table.schema.metadata[b'cell'].decode()}{ENDINGS[self.format]}"
            with open_sink(folder / name, table.schema.remove_metadata()) as sink:
                sink.write(table.replace_schema_metadata(None))

    def _write_distributed(self, frame: Any, batch: int) -> int:
        """A folder a batch, renamed as a whole; its parts sort by name into result order."""
        final = self.target / f"batch-{batch:012d}"
        if final.exists():
            return 0  # a replay: the very same rows stand there
        temporary = self.target / f".batch-{batch:012d}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        from pyspark.sql.pandas.types import from_arrow_schema

        from plait.spark.run import unpack

        results = frame.mapInArrow(unpack(self.plan.schema, wire.RESULTS), from_arrow_schema(self.plan.schema))
        ordered = results.orderBy(wire.KEY)
        counts = ordered.mapInArrow(
            _part_writer(str(temporary), self.format, self.keep_key), "part int, rows long"
        ).collect()
        total = sum(row.rows for row in counts)
        if total:
            os.replace(temporary, final)
        else:
            shutil.rmtree(temporary)
        return int(total)


def _part_writer(
    folder: str, format: str, keep_key: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part, rows, sink = context.partitionId(), 0, None
        for batch in batches:
            if batch.num_rows == 0:
                continue
            kept = batch if keep_key else batch.drop_columns([wire.KEY])
            if sink is None:
                # A retried or speculative task writes the same rows under the same name.
                sink = open_sink(Path(folder) / f"part-{part:05d}{ENDINGS[format]}", kept.schema)
            sink.write(kept)
            rows += batch.num_rows
        if sink is not None:
            sink.commit()
        yield pa.record_batch([pa.array([part], pa.int32()), pa.array([rows], pa.int64())], names=["part", "rows"])

    return write


# --- the checkpoint's card ----------------------------------------------------------------------------------

CARD = "plait.json"


def read_card(checkpoint: Path) -> dict[str, Any] | None:
    """What a checkpoint was started with; an error if something else than plait's started it."""
    card = checkpoint / CARD
    if card.exists():
        parsed: dict[str, Any] = json.loads(card.read_text())
        return parsed
    if (checkpoint / "offsets").exists():
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} was not written by write_ordered",
            why=f"it has offsets and no {CARD}",
            do="Use another checkpoint folder",
        )
    return None


def check_not_left(checkpoint: Path, card: dict[str, Any]) -> None:
    if "left" in card:
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} has been left for {card['left']!r}",
            why="relayout has moved its state there, and two queries would both publish what comes next",
            do="Use that one",
        )


def write_card(checkpoint: Path, card: dict[str, Any]) -> None:
    checkpoint.mkdir(parents=True, exist_ok=True)
    temporary = checkpoint / f".{CARD}.tmp"
    temporary.write_text(json.dumps(card, indent=1) + "\n")
    os.replace(temporary, checkpoint / CARD)
