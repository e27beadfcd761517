"""What a cell tells beside results: rows that were dropped, and how it stands (`formats.CellReport`).

Where it runs: in a cell's task, at the end of a step, or of a cell in a batch run. What is told goes through the cells of the
operators behind it to the driver (`publish.stats`). It decides nothing, but for the span of a batch's results, by which tasks
that publish part these among them. Held by tests/spark/test_metrics.py and tests/spark/test_executors.py.
"""

from __future__ import annotations

import os
import socket
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.order import AFTER_ALL
from plait.query.stream import Stream
from plait.spark import formats
from plait.spark.cell.arrive import BySource, Known, held, owns

if TYPE_CHECKING:
    from plait.spark.cell.cell import CellPlan, Live


def reported(plan: CellPlan, cell: int, known: Known, contents: Live, frontier: int, by_source: BySource,
             **more: Any) -> formats.CellReport:  # fmt: skip
    """How a cell stands; `more` as the report has it."""
    return formats.CellReport(
        plan.number, cell, frontier, contents.pending_rows, known.newest(), _holder(known, frontier), executor=executor(),
        waiting=_waiting(plan, cell, contents), sources=_sources(plan, cell, known, by_source), **more,
    )  # fmt: skip


def _waiting(plan: CellPlan, cell: int, contents: Live) -> dict[str, int]:
    """By stream, what waits here of tuples that this cell is the one to count."""
    found: dict[str, int] = {}
    for input, (each, table) in enumerate(zip(plan.bound.inputs, contents.pending, strict=True)):
        if isinstance(each.node, Stream) and each.node.name in plan.counts and owns(plan.layout, cell, input):
            found[each.node.name] = max(found.get(each.node.name, 0), table.num_rows)  # of a self-join the same ones
    return found


def _sources(plan: CellPlan, cell: int, known: Known, by_source: BySource) -> list[formats.SourceReport]:
    """What this batch has brought of each source, and how far it is.

    Every cell knows the same of them, so the first one tells; others only what they have dropped. Of sources that have ended, as
    each file of a folder may be one, only those that this batch has brought something of are told.
    """
    found = []
    for name in sorted(plan.counts & known.streams.keys()):
        stream = known.streams[name]
        for source, its in stream.sources.items():
            rows, late, behind = by_source.get((name, source), (0, 0, 0))
            ended = its.ended or stream.ended
            if late or behind or (cell == 0 and (rows or not ended)):
                progress = AFTER_ALL if ended else stream.come_to(its)
                found.append(
                    formats.SourceReport(name, source, progress, its.largest, rows, late, behind, its.idle, ended)
                )
    return found


def told(cell: int, late: dict[str, pa.Table], report: formats.CellReport) -> list[tuple[int, bytes]]:
    """The rows that were dropped, and what the cell reports."""
    dropped = ((formats.LateRows(name, cell), table) for name, table in late.items() if table.num_rows)
    return [
        *((formats.LATE, formats.body(head, table)) for head, table in dropped),
        (formats.PROGRESS, formats.body(report)),
    ]


@lru_cache(maxsize=1)
def executor() -> str:
    """The executor whose worker this is: its machine, and what tells it from others there.

    Spark has no name for it in its Python workers, but folders for temporary files that each executor makes anew.
    """
    own = os.environ.get("SPARK_LOCAL_DIRS", "")
    return f"{socket.gethostname()}/{zlib.crc32(own.encode()):08x}" if own else socket.gethostname()


def _holder(known: Known, frontier: int) -> tuple[str | None, Any]:
    """The stream and the source that hold the frontier, as far as this operator knows: it may be one before it."""
    _, holder = held(known.holders())
    return (None, None) if frontier == AFTER_ALL or holder is None or holder.who is None else holder.who
