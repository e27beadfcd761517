"""What a cell may hold: tuples that wait (`max_pending=`), and rows of its windows (`max_window=`). Beyond it the query stops.

A query that stops has committed nothing of the batch: the checkpoint stands as of the batch before, and a restart with another
limit goes on from there. `max_window` is looked at before memory is taken: of what the state has, before contents are built from
it; and of what has come, before any of it enters a window and its index. So a cell never has more rows in its window and index
than it allows. It counts rows as the state does: each until its chunk is let go of, those that wait among them.

Neither is pinned by a checkpoint, and neither changes a result. Where it runs: in a cell's task, called by `cell.step`, and in a
batch run by `whole`. Held by tests/spark/test_limits.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from plait.core import sources
from plait.errors import RunError, counted
from plait.query.bind import Bound, label
from plait.spark.cell.arrive import Known, held
from plait.spark.formats import Manifest

if TYPE_CHECKING:
    from plait.spark.cell.cell import CellPlan, Live


def check_pending(plan: CellPlan, contents: Live, known: Known, frontier: int) -> None:
    """Stop a query in which too much waits (`max_pending=`), and say which source everything waits for.

    Without it a source that has fallen silent would fill the state store with the rows of all others, and nothing would
    say why.
    """
    if plan.max_pending is None or contents.pending_rows <= plan.max_pending:
        return
    _, holder = held(known.holders())
    who = "nobody" if holder is None else "an operator before it"
    if holder is not None and holder.who is not None:
        stream, source = holder.who
        who = sources.told(stream, source, known=bool(known.streams[stream].sources))
    waiting = f"{contents.pending_rows} tuples wait for the frontier in one cell"
    raise sources.too_many_wait(waiting, plan.max_pending, who, frontier)


def check_stored(plan: CellPlan, cell: int, manifest: Manifest, come: Mapping[int, int]) -> None:
    """Stop a query in which a cell's state would have more rows than `max_window=`. `come`: those of each input that come now."""
    if plan.max_window is None or manifest.held + sum(come.values()) <= plan.max_window:
        return
    rows = dict(come)
    for chunk in manifest.chunks:
        rows[chunk.input] = rows.get(chunk.input, 0) + chunk.rows
    check_held(plan, cell, rows, sum(come.values()))


def check_held(plan: CellPlan, cell: int, rows: Mapping[int, int], come: int) -> None:
    """The same where the rows of each input are known, of which so many have just come."""
    count = sum(rows.values())
    if plan.max_window is None or count <= plan.max_window:
        return
    names = {input: _name(plan.bound, input) for input in sorted(rows)}
    most = max(rows, key=lambda input: (rows[input], -input))
    operator = f" of operator {plan.number}" if plan.number else ""
    each = ", ".join(f"{rows[input]:,} of {name}" for input, name in names.items())
    raise RunError(
        f"Cell {cell}{operator} would hold {count:,} rows, more than max_window={plan.max_window}: {each}",
        why=f"a row is held for as long as a later one may need it, and most are of {names[most]}; {come:,} of them have come "
        f"just now, and rows are dealt out to {counted(plan.layout.cells, 'cell')} ({plan.layout.describe()})",
        do="Move to more cells (plait.spark.relayout), use a shorter window or smaller batches, or raise max_window: a "
        "checkpoint goes on from the batch before",
    )


def _name(bound: Bound, input: int) -> str:
    """An input in words. Both of a self-join have one name: they are told apart."""
    name = repr(label(bound.inputs[input], input))
    alike = [n for n, each in enumerate(bound.inputs) if label(each, n) == label(bound.inputs[input], input)]
    return f"{name} as input {input}" if len(alike) > 1 else name
