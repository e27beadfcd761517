"""A cell as Spark's stateful operator: its state variables, and one call of `step` for each key and batch."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from plait.spark.cell import CellPlan, step

_frozen = False


class SparkStore:
    """Spark's state store for the current key: a value for the manifest, a map for the chunks."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", "body binary")
        self._chunks = handle.getMapState("chunks", "no long", "body binary")

    def manifest(self) -> bytes | None:
        found = self._manifest.get()
        return None if found is None else bytes(found[0])

    def put_manifest(self, data: bytes) -> None:
        self._manifest.update((data,))

    def chunk(self, number: int) -> bytes:
        found = self._chunks.getValue((number,))
        assert found is not None, f"chunk {number} is in the manifest and not in the state"
        return bytes(found[0])

    def put_chunk(self, number: int, data: bytes) -> None:
        self._chunks.updateValue((number,), (data,))

    def drop_chunk(self, number: int) -> None:
        self._chunks.removeKey((number,))


class Cell(StatefulProcessor):
    def __init__(self, plan: CellPlan) -> None:
        self.plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd
        from pyspark import TaskContext

        bodies = [bytes(body) for frame in rows for body in frame["body"]]
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        out = step(self.plan, self.plan.layout.keys.index(key[0]), self.store, bodies, cache_key=query)
        yield pd.DataFrame({"kind": [k for k, _ in out], "body": [b for _, b in out]})
        _freeze()

    def close(self) -> None:
        return


def _freeze() -> None:
    """PySpark's daemon collects garbage after every task: 52 ms in a process that holds Numba, pandas and pyarrow."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def processor(plan: CellPlan) -> Cell:
    return Cell(plan)
