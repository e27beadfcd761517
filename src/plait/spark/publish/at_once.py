"""A batch DataFrame's results, written by tasks and published at once: `write_ordered` of what is no stream.

Tasks write Parquet (or JSON lines) themselves, so no row passes the JVM or the driver. Which task writes what is one of three:

    by stretch  cells have stretches of time (`plan.stretches`): each gives what follows all of the one before it, as a part
    one cell    the same: its results are in order already
    merged      cells by value, each with results of all times. They are cut by time, evenly; slice k of all cells goes to one
                task, which merges it as it comes, and writes part k. `order="none"`: no one merges, a part is a cell's

**The promise.** Everything is in the folder, or nothing. Parts are written into a folder with a temporary name, which readers
pass over. The driver compares it with what tasks have told (`formats.Written`), removes what attempts that came to nothing have
left, and renames it. That is the one step that publishes. A task that is tried again, or has a twin, writes the same bytes
under the same name: its rows follow from the input, and how they are cut leaves no trace in a file (`connectors.sinks`).

A folder is one run's. Each claims it by a token, under a lock, and asks for it again before it publishes: of two runs that have
one folder the one that began last publishes, the other one raises. A folder with rows in it is refused.

Where it runs: `write` on the driver, in the thread that called `write_ordered`; `_written` and `_cut` in the tasks of the cells,
`_merged` behind a shuffle by slice. Held by tests/spark/test_at_once.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait.core import keys
from plait.order import AFTER_ALL
from plait.spark import formats
from plait.spark.cell.cell import closes
from plait.spark.cell.results import CUT, Keyed, Results, merged, read
from plait.spark.cell.whole import Giving, Mapper, WholeCell, record
from plait.spark.plan import stretches
from plait.spark.plan.layout import cell_keys
from plait.spark.publish.gather import edges, gathered, parted, written

#: Results that a merging task has in memory before it looks which of them are complete.
HELD = 1 << 19


def laid_out(plan: Any) -> tuple[Any, list[int]]:
    """The plan as it is to be written; and where cells have no stretches of time, when slices but the first begin.

    A layout that was asked for stays.
    """
    stage, cells = plan.stages[0], plan.cell.layout.cells
    found = [stretches.of_stage(each) for each in plan.stages] if cells > 1 else []
    if plan.wanted == "auto" and found and found[0] is not None and stretches.serves(plan.stages):
        layout = stretches.laid_out(stage, found[0], cells, plan.partitions)
        if layout is not None:
            return plan.again(layout=layout, control_dir=None), []
    spans = [ends for some in found if some is not None and (ends := stretches.span(some)) is not None]
    if not spans:
        return plan, []
    whole = min(begin for begin, _ in spans), max(end for _, end in spans) + 1
    return plan, edges(whole, plan.partitions)


def computed(plan: Any, slices: list[int], folder: Path, format: str, *, order: str, keep_key: bool) -> pa.Table:
    """Have the results written into a folder. Gives the rows for the driver: kind and body, `formats.Written` among them.

    One action of Spark's. `slices` are the moments that `laid_out` gave.
    """
    if closes(plan.cell.bound.node):  # whose results come at the end, in any company
        return gathered(plan.output(), folder, format, order=order, keep_key=keep_key, slices=1)
    place = str(folder)
    if plan.cell.layout.cells == 1 or plan.cell.layout.kind == "stretches" or order == "none":
        plan = plan if keep_key else plan.without_keys()
        return plan.whole(0, formats.OUTPUT, _written(place, format, keep_key)).toArrow()
    numbers = cell_keys(len(slices) + 1, len(slices) + 1)  # such that each falls to a task of its own
    cut = plan.whole(0, formats.MERGING, _cut(slices, numbers)).repartition(len(numbers), "slice")
    ordered = cut.sortWithinPartitions("slice", "at", "cell", "no")
    return ordered.mapInArrow(_merged(place, format, keep_key, numbers), formats.OUTPUT).toArrow()


def _written(folder: str, format: str, keep_key: bool) -> Giving:
    """A cell's results become its part, as they become ready."""

    def give(cell: WholeCell, results: Iterator[Results | Keyed]) -> Iterator[pa.RecordBatch]:
        told = written(results, folder, cell.cell, format, keep_key)
        yield from record([(formats.WRITTEN, told), *cell.for_user()], formats.OUTPUT_ROWS)

    return give


def _cut(slices: list[int], numbers: tuple[int, ...]) -> Giving:
    """A cell's results by slice, with the least ts of each body; then what the cell tells."""

    def give(cell: WholeCell, results: Iterator[Results | Keyed]) -> Iterator[pa.RecordBatch]:
        count = itertools.count()
        for some in results:
            rows = []
            for number, part in zip(numbers, parted(some, slices), strict=True):
                at = keys.ts_numbers(part.columns.column(0))[::CUT].tolist()
                bodies = zip(at, part.bodies(CUT), strict=True)
                rows += [(number, ts, cell.cell, next(count), formats.RESULTS, body) for ts, body in bodies]
            yield from record(rows, formats.MERGING_ROWS)
        told = [(-1, AFTER_ALL, cell.cell, next(count), kind, body) for kind, body in cell.for_user()]
        yield from record(told, formats.MERGING_ROWS)

    return give


def _merged(folder: str, format: str, keep_key: bool, numbers: tuple[int, ...]) -> Mapper:
    """A task has all cells' results of its slices, sorted by their least ts: each slice becomes a part."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in groupby(_rows(batches), key=lambda row: row[0]):
            if number == -1:
                yield from record([(kind, body.to_pybytes()) for _, _, kind, body in rows], formats.OUTPUT_ROWS)
            else:
                told = written(_in_order(rows), folder, numbers.index(number), format, keep_key)
                yield from record([(formats.WRITTEN, told)], formats.OUTPUT_ROWS)

    return write


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, int, Any]]:
    for batch in batches:
        numbers, at, kinds = (batch.column(name).to_pylist() for name in ("slice", "at", "kind"))
        bodies = batch.column("body")
        for place in range(batch.num_rows):
            yield numbers[place], at[place], kinds[place], bodies[place].as_buffer()


def _in_order(rows: Iterator[tuple[int, int, int, Any]]) -> Iterator[Results | Keyed]:
    """Cells' results of one slice as one sequence. When the next body has its least ts, all results below that are here.

    Looked at each time that twice as many are held as were left the last time: so results of one ts are not looked at again and
    again.
    """
    held: list[Results | Keyed] = []
    count, most = 0, HELD
    following = next(rows, None)
    while following is not None:
        held.append(read(following[3]))
        count += held[-1].rows
        following = next(rows, None)
        if following is not None and count >= most:
            cut = [tuple(parted(some, [following[1]])) for some in held]
            yield from merged([below for below, _ in cut])
            held = [above for _, above in cut if above.rows]
            count = sum(some.rows for some in held)
            most = max(HELD, 2 * count)
    if held:
        yield from merged(held)
