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
from plait.spark import formats
from plait.spark.cell.arrive import Known, held

if TYPE_CHECKING:
    from plait.spark.cell.cell import CellPlan, Live


def reported(plan: CellPlan, cell: int, known: Known, contents: Live, frontier: int, **more: Any) -> formats.CellReport:
    """How a cell stands; `more` as the report has it."""
    return formats.CellReport(
        plan.number, cell, frontier, contents.pending_rows, known.newest(), _holder(known, frontier), executor=executor(),
        **more,
    )  # fmt: skip


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
