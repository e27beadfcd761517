"""Stretches of time for the cells of a batch run: where each begins, and what it needs of the tuples before.

A pair is its later tuple's, the trigger's. So where windows are spans of time the cells of an inner join may each have a stretch
of time instead of a line of a grid: a cell gets the tuples of its stretch, and those before it that these may meet. What it finds
follows all that the cell before it finds, and tasks can write parts that nobody has to merge (`publish.at_once`).

What it costs: tuples near a beginning go to several cells. So it is left alone where that makes more copies than MOST_COPIES and
than the grid would, since the window is long beside a cell's stretch.

Where to cut is a guess about work: of every moment how many tuples come and how many each may meet, by the least and the largest
time of each row group of Parquet files, or of a DataFrame that Spark reads. A bad guess costs time, and nothing else: the first
cell begins before all, the last one ends after all.

Where it runs: on the driver, when a batch is written. Held by tests/spark/test_at_once.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from plait.core.join.reach import Reach, reach_of
from plait.errors import DataError
from plait.order import BEFORE_ALL
from plait.query.join import HOWS, Join
from plait.schema import to_micros
from plait.spark.pack.pack import Frame, PackPlan, quoted
from plait.spark.plan.layout import Layout, cell_keys
from plait.spark.plan.stages import Stage, drops

#: Copies of a tuple, on the average, that are no reason to leave it alone.
MOST_COPIES = 2.0

#: Moments at which a stretch may begin.
STEPS = 1 << 9

#: What it takes, beside reading a tuple that probes: entering one that does not; finding partners, in all.
ENTERING, MEETING = 0.4, 3.0


@dataclass(frozen=True)
class Stretch:
    """So many tuples lie between two moments, both included."""

    first: int
    last: int
    rows: int


def serves(stages: list[Stage]) -> bool:
    """Whether cells may have stretches of time: one inner join over spans of time, of streams that drop nothing.

    With other joins a row may come alone, and whether it does depends on tuples far from where it comes out.
    """
    node = stages[0].plan.bound.node
    if len(stages) > 1 or not isinstance(node, Join) or any(drops(stream) for stream, *_ in stages[0].plan.streams):
        return False
    return not HOWS[node.how].whole and not reach_of(node.window).counts


def of_stage(stage: Stage) -> list[list[Stretch]] | None:
    """Of each input where its tuples lie; None where that can't be told, and tasks will say why."""
    found: list[list[Stretch]] = [[] for _ in stage.plan.bound.inputs]
    try:
        for frame, how in stage.packs:
            some = _of_files(frame, how) if frame.scan is not None else _of_rows(frame, how)
            if some is None:
                return None
            for input in how.inputs:
                found[input] += some
    except (OSError, DataError, pa.ArrowException):
        return None
    return found


def span(found: list[list[Stretch]]) -> tuple[int, int] | None:
    """The least and the largest time of all."""
    every = [each for some in found for each in some]
    return (min(e.first for e in every), max(e.last for e in every)) if every else None


def _of_files(frame: Frame, how: PackPlan) -> list[Stretch] | None:
    """By what each row group of the files says of itself; None if one says nothing."""
    assert frame.scan is not None
    kind, found = frame.scan.schema.field(how.stream.time).type, []
    for path in frame.frame.inputFiles():
        about = pq.read_metadata(unquote(urlsplit(path).path))
        names = about.schema.to_arrow_schema().names
        for group in (about.row_group(k) for k in range(about.num_row_groups)):
            told = group.column(names.index(how.stream.time)).statistics
            if group.num_rows == 0:
                continue
            if told is None or not told.has_min_max:
                return None
            found += _stretch(pa.array([told.min, told.max]).cast(kind), group.num_rows, how)
    return found


def _of_rows(frame: Frame, how: PackPlan) -> list[Stretch]:
    """By a look at all rows' times: Spark's."""
    from pyspark.sql import functions as F

    time = F.col(quoted(how.stream.time))
    told = frame.frame.agg(F.min(time).alias("first"), F.max(time).alias("last"), F.count(time).alias("rows")).toArrow()
    count = told.column("rows")[0].as_py()
    return (
        _stretch(pa.concat_arrays([told.column(n).combine_chunks() for n in ("first", "last")]), count, how)
        if count
        else []
    )


def _stretch(ends: pa.Array, rows: int, how: PackPlan) -> list[Stretch]:
    first, last = to_micros(ends, how.stream.unit, stream=how.stream.name, name=how.stream.time).tolist()
    return [Stretch(first, last, rows)]


def laid_out(stage: Stage, found: list[list[Stretch]], cells: int, partitions: int) -> Layout | None:
    """Cells with stretches of time; None where they do not pay, or time has no two moments."""
    node = stage.plan.bound.node
    assert isinstance(node, Join)
    whole = span(found)
    if cells < 2 or whole is None or whole[0] == whole[1]:
        return None
    reach, (low, high) = reach_of(node.window), whole
    at = np.array([low + (high + 1 - low) * k // STEPS for k in range(STEPS + 1)], np.int64)
    came = [_spread(some, at) for some in found]
    before = [_before(came[side], reach, 1 - side, at) for side in (0, 1)]
    grid, tuples = stage.plan.layout, sum(float(each.sum()) for each in came)
    begins = _cut(came, before, cells)
    copies = 1 + sum(float(before[side][k]) for side in (0, 1) for k in begins[1:]) / tuples
    usual = (came[0].sum() * grid.columns + came[1].sum() * grid.rows) / tuples
    if len(begins) < 2 or copies > max(MOST_COPIES, usual):
        return None
    why = f"parts follow one another in time, and are not merged; {copies:.1f} copies of a tuple"
    return begun_at([int(at[k]) for k in begins[1:]], reach, partitions, why)


def begun_at(edges: list[int], reach: Reach, partitions: int, why: str = "") -> Layout:
    """A cell for each stretch between these moments, before the first of them and after the last."""
    since = tuple((BEFORE_ALL, *(int(reach.first(1 - side, edge)) for edge in edges)) for side in (0, 1))
    keys = cell_keys(len(edges) + 1, partitions)
    return Layout("stretches", len(edges) + 1, 1, keys, why, begins=(BEFORE_ALL, *edges), since=since)


def _spread(some: list[Stretch], at: np.ndarray) -> np.ndarray:
    """Tuples in each step, those of a stretch taken as even over it."""
    sums = np.zeros(len(at))
    for each in some:
        share = (at - each.first).astype(np.float64) / (each.last + 1 - each.first)
        sums += each.rows * np.clip(share, 0.0, 1.0)
    return np.diff(sums)


def _before(came: np.ndarray, reach: Reach, looks_back: int, at: np.ndarray) -> np.ndarray:
    """Of each step's beginning, how many tuples of a side those of the other one may meet there."""
    sums = np.concatenate([[0.0], np.cumsum(came)])
    since = np.array([reach.first(looks_back, int(each)) for each in at[:-1]], np.float64)
    found: np.ndarray = sums[:-1] - np.interp(since, at.astype(np.float64), sums)
    return found


def _cut(came: list[np.ndarray], before: list[np.ndarray], cells: int) -> list[int]:
    """The steps at which stretches begin, such that the one with most work has as little as can be: by halving."""
    meet = came[0] * before[1] + came[1] * before[0]
    tuples = came[0] + came[1]
    work = np.cumsum(tuples + meet * (MEETING * tuples.sum() / max(float(meet.sum()), 1.0)))
    enter = ENTERING * (before[0] + before[1])

    def begun(most: float) -> list[int]:
        begins, done = [0], 0.0
        while len(begins) <= cells:
            # What a cell may do beside entering what came before it; one step at least.
            end = max(int(np.searchsorted(work, done + most - enter[begins[-1]], "right")), begins[-1] + 1)
            if end >= len(work):
                return begins
            done = float(work[end - 1])
            begins.append(end)
        return begins

    low, high = 0.0, float(work[-1]) + float(enter.max())
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if len(begun(middle)) <= cells else (middle, high)
    return begun(high)
