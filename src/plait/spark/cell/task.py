"""A cell's part in a task: its state in Spark's store, and one call of `step` for each key and batch.

Where it runs: in a Python worker of an executor. Spark calls `rows_of_cell` once for each key in a batch; a key is a
cell's (`plan.layout.cell_keys`). The state that it is given holds that cell's map and no other.

All rows of a cell are collected before the first is looked at. They come in any order, and a frontier that is computed
from half of the punctuation would be wrong. What a batch costs here beside the join itself: two calls into the state
store for the manifest, one for each chunk that is written or dropped, one pandas DataFrame out.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark import TaskContext

from plait.spark import formats
from plait.spark.cell.cell import CellPlan, step
from plait.spark.keep.recent import recent

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState

_frozen = False


class SparkStore:
    """Spark's state store for the current key: one map holds the manifest and the chunks.

    Every call is a message over a socket to the JVM, which is why a cell has few and large values and not one for each
    tuple. Spark commits what a task has written when the task has ended well; what a failed attempt wrote is never seen.
    """

    def __init__(self, state: MapState) -> None:
        self._map = state

    def manifest(self) -> bytes | None:
        found = self._map.getValue((formats.MANIFEST,))
        return None if found is None else bytes(found[0])

    def put_manifest(self, data: bytes) -> None:
        self._map.updateValue((formats.MANIFEST,), (data,))

    def chunk(self, number: int) -> bytes:
        """The bytes of a chunk, or of a bucket's state. One that is not there means a broken state: nothing can be done
        about it here.
        """
        found = self._map.getValue((number,))
        assert found is not None, f"chunk {number} is in the manifest and not in the state"
        return bytes(found[0])

    def put_chunk(self, number: int, data: bytes) -> None:
        self._map.updateValue((number,), (data,))

    def drop_chunk(self, number: int) -> None:
        self._map.removeKey((number,))


def rows_of_cell(data: bytes, key: int, state: MapState, rows: Iterator[Any]) -> Iterator[Any]:
    """What the cell of this key, of the plan that `data` holds, puts out for a batch's rows.

    The query's id is asked of the task's context, so that caches of two queries in one worker don't mix. Where there is
    none (a test), nothing is cached. It is a generator: what stands behind the `yield` runs when Spark has taken the
    rows.
    """
    bodies = [bytes(body) for frame in rows for body in frame["body"]]
    context = TaskContext.get()
    query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    plan = _plan(data)
    cell = plan.layout.keys.index(key)
    run = None if query is None else f"{query}-{plan.number}"  # each operator of a query has cells of its own
    near = recent(run, cell, plan.layout.cells)
    out = step(plan, cell, SparkStore(state), bodies, cache_key=run, near=near)
    place, body = formats.columns(plan.onward is not None)
    yield pd.DataFrame({place: [p for p, _ in out], body: [b for _, b in out]})
    _freeze()


@lru_cache(maxsize=16)
def _plan(data: bytes) -> CellPlan:
    """The plan from its bytes, unpickled once for each plan and process and not in every batch."""
    plan: CellPlan = pickle.loads(data)
    return plan


def _freeze() -> None:
    """PySpark's daemon collects garbage after every task; what the first batch has built need not be walked again."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()
