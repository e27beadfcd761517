"""What is known of a run on Spark when it starts: its operators, what each reads, and whether an earlier start is taken up.

Where it runs: on the driver, once a start, after the checkpoint is tied to it (`keep.checkpoint`). Held by
tests/spark/test_page.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plait.core.metrics import Mark
from plait.query.stream import Stream
from plait.spark.keep.checkpoint import last_number
from plait.spark.plan.stages import inner_of
from plait.spark.publish.stats import Told
from plait.spark.publish.target import Owner


def told_at(plan: Any, checkpoint: Path, owner: Owner, first: int) -> Told:
    """What a start has to tell before its first batch. `first`: the batches that earlier checkpoints of the query had.

    A batch that was planned and not committed when the earlier start ended is done again, with the same rows.
    """
    now, node = time.time(), plan.query or plan.cell.bound.node
    name = node.name or type(node).__name__.lower()
    if not owner.runs:
        return Told(query=name, graph=graph(plan.stages), marks=(Mark(now, "started", "a new checkpoint"),))
    replays = max(0, owner.planned - first - last_number(checkpoint, "commits"))
    marks: tuple[Mark, ...] = (Mark(now, "taken up again", f"at batch {owner.planned + 1 - replays}"),)
    if replays:
        marks += (Mark(now, "replay", f"batch {owner.planned} had been planned and was not done"),)
    return Told(query=name, graph=graph(plan.stages), marks=marks, restarts=1, replays=replays)


def graph(stages: Sequence[Any]) -> tuple[tuple[int, str, tuple[str, ...]], ...]:
    """Of each operator its number, what it is, and what it reads: streams by name, operators by #number."""
    found = []
    for number, stage in enumerate(stages):
        bound = stage.plan.bound
        numbers = {id(one.node): of for one, of in zip(inner_of(bound), stage.plan.upstreams, strict=True)}
        inputs = (
            each.node.name if isinstance(each.node, Stream) else f"#{numbers[id(each.node)]}" for each in bound.inputs
        )
        found.append((number, bound.node.name or type(bound.node).__name__.lower(), tuple(dict.fromkeys(inputs))))
    return tuple(found)
