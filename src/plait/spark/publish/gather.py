"""Gather: results published by tasks, and the driver sees none of them. How exactly they are ordered is the user's choice:

    strict    the total order: a task merges what all cells have for its stretch of time
    trigger   triggers in total order, partners of one trigger together, in any order: merged by the trigger alone
    none      as the cells have it: each task writes what its own cells put out, and nothing is exchanged

On threads the same words mean the same (`on_threads(order=)`).

For the first two a batch's results are parted by time, evenly between the ends that every cell reports alike
(`formats.CellReport.span`): slice k of all cells goes to one task, which writes part k. Slices follow one another in time, so
parts in the order of their names are in order altogether. A slice that has more results than others costs time, and nothing else.

A batch is a folder (`batch-000000000007`), written under a temporary name and renamed when it is whole (`collect`). So a task
that is tried again, or has a twin, writes the same rows under the same names.

Where it runs: `cut` in the tasks of the cells, behind them; `write` in tasks behind a shuffle by slice, or, for "none", in the
tasks of the cells. What else cells put out (reports, dropped rows) passes, to the driver. Held by tests/spark/test_orders.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from plait.connectors.files import ENDINGS
from plait.connectors.sinks import open_sink
from plait.core import keys
from plait.order import AFTER_ALL, BEFORE_ALL
from plait.spark import formats
from plait.spark.cell.results import Keyed, Results, merged, read
from plait.spark.plan.layout import cell_keys

Mapper = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

#: Rows on their way to who writes them: of no slice (-1) are reports and dropped rows, which pass.
_SLICED = "slice int, cell int, kind int, body binary"


def gathered(frame: Any, folder: Path, format: str, *, order: str, keep_key: bool, slices: int) -> pa.Table:
    """Have a batch's results written into a folder. Gives the rows for the driver: kind and body, `formats.Written` among them.

    One action of Spark's: cells run once. `frame` has what they put out (`formats.OUTPUT`).
    """
    if order == "none":
        return frame.mapInArrow(_write_as_they_come(str(folder), format, keep_key), formats.OUTPUT).toArrow()
    numbers = cell_keys(slices, slices)  # such that each falls to a task of its own
    sliced = frame.mapInArrow(_cut(numbers), _SLICED).repartition(slices, "slice")
    return sliced.mapInArrow(_write_slices(str(folder), format, order, keep_key, numbers), formats.OUTPUT).toArrow()


def _cut(numbers: tuple[int, ...]) -> Mapper:
    """Each cell's results, slice by slice. A cell's own report follows its results in what its task puts out, and tells the span.

    With one slice reports need not be there: behind closings (`cell.end_of_input`) rows come in any company.
    """

    def cut(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[bytes] = []
        for batch in batches:
            rows: list[tuple[int, int, int, bytes]] = []
            for kind, body in zip(batch.column("kind").to_pylist(), batch.column("body").to_pylist(), strict=True):
                if kind == formats.RESULTS and len(numbers) == 1:
                    rows.append((numbers[0], 0, kind, body))
                elif kind == formats.RESULTS:
                    held.append(body)
                else:
                    rows.append((-1, 0, kind, body))
                if kind == formats.PROGRESS and held and (report := formats.parse(body)[0]).operator == 0:
                    for some in (read(one) for one in held):
                        parts = parted(some, edges(report.span, len(numbers)))
                        for number, part in zip(numbers, parts, strict=True):
                            rows += [(number, report.cell, formats.RESULTS, each) for each in part.bodies()]
                    held = []
            if rows:
                columns = (pa.array(column) for column in zip(*rows, strict=True))
                kinds = (pa.int32(), pa.int32(), pa.int32(), pa.binary())
                cast = [column.cast(kind) for column, kind in zip(columns, kinds, strict=True)]
                yield pa.record_batch(cast, names=["slice", "cell", "kind", "body"])
        assert not held, "results without their cell's report"

    return cut


def parted(results: Results | Keyed, edges: list[int]) -> Iterator[Results | Keyed]:
    """Results of a cell, which are in order, by the edges between slices."""
    ts = keys.ts_numbers(results.columns.column(0))
    begins = [0, *np.searchsorted(ts, edges, "left").tolist(), results.rows]
    return (results.part(begin, end) for begin, end in itertools.pairwise(begins))


def edges(span: tuple[int, int], slices: int) -> list[int]:
    """The moments at which slices but the first begin, evenly over the span. If an end of it is not known, all is one slice."""
    begin, end = span
    if begin == BEFORE_ALL or end == AFTER_ALL or end <= begin:
        return [AFTER_ALL] * (slices - 1)
    return [begin + (end - begin) * k // slices for k in range(1, slices)]


def _write_slices(folder: str, format: str, order: str, keep_key: bool, numbers: tuple[int, ...]) -> Mapper:
    """A task has all cells' rows of its slices: each becomes a part of its own, in the order that was asked for."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found: dict[int, list[tuple[int, bytes]]] = {}
        passed: list[tuple[int, bytes]] = []
        for batch in batches:
            for number, cell, kind, body in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if kind == formats.RESULTS:
                    found.setdefault(numbers.index(number), []).append((cell, body))
                else:
                    passed.append((kind, body))
        for part, rows in sorted(found.items()):
            # Stable, and a cell's bodies come in their order: a task that is tried again writes the same bytes.
            cells = [read(body) for _, body in sorted(rows, key=lambda row: row[0])]
            whole = merged(cells, by_trigger=order == "trigger")
            passed.append((formats.WRITTEN, written(whole, folder, part, format, keep_key)))
        yield _output(passed)

    return write


def _write_as_they_come(folder: str, format: str, keep_key: bool) -> Mapper:
    """A task writes its own cells' results as one part, cell by cell; its number is that of its partition."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        passed: list[tuple[int, bytes]] = []

        def results() -> Iterator[Results | Keyed]:
            for batch in batches:
                for kind, body in zip(batch.column("kind").to_pylist(), batch.column("body").to_pylist(), strict=True):
                    if kind == formats.RESULTS:
                        yield read(body)
                    else:
                        passed.append((kind, body))

        told = written(results(), folder, context.partitionId(), format, keep_key)
        yield _output([*passed, (formats.WRITTEN, told)])

    return write


def written(results: Any, folder: str, part: int, format: str, keep_key: bool) -> bytes:
    """Write results as part `part`, and tell how many they are. Without any there is no file."""
    sink = None
    try:
        for some in results:
            if some.rows == 0:
                continue
            table = (some.table() if keep_key else some.columns).combine_chunks()
            if sink is None:
                sink = open_sink(Path(folder) / f"part-{part:05d}{ENDINGS[format][0]}", table.schema)
            sink.write(table)
    except BaseException:
        if sink is not None:
            sink.abort()
        raise
    if sink is None:
        return formats.body(formats.Written(0))
    sink.commit()
    return formats.body(formats.Written(sink.rows, Path(sink.target).name))


def _output(rows: list[tuple[int, bytes]]) -> pa.RecordBatch:
    return pa.record_batch([[kind for kind, _ in rows], [body for _, body in rows]], schema=formats.OUTPUT_ROWS)
