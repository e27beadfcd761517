"""A cell as Spark's stateful operator: its state, and one call of `step` for each key and batch.

Spark starts a Python process of its own on the driver at each start of a query, only to ask a processor for its state
variables. So what a processor imports to be unpickled is next to nothing: its plan travels as bytes, opened in the
first call that has rows.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

if TYPE_CHECKING:
    from plait.spark.cell import CellPlan

# As objects: Spark asks its JVM to parse a schema given as text, on every batch.
_KEY = StructType([StructField("no", LongType())])
_VALUE = StructType([StructField("body", BinaryType())])

#: The manifest's place among the chunks, whose numbers begin at 0.
_MANIFEST = (-1,)

_frozen = False


class SparkStore:
    """Spark's state store for the current key: one map holds the manifest and the chunks."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._map = handle.getMapState("cell", _KEY, _VALUE)

    def manifest(self) -> bytes | None:
        found = self._map.getValue(_MANIFEST)
        return None if found is None else bytes(found[0])

    def put_manifest(self, data: bytes) -> None:
        self._map.updateValue(_MANIFEST, (data,))

    def chunk(self, number: int) -> bytes:
        found = self._map.getValue((number,))
        assert found is not None, f"chunk {number} is in the manifest and not in the state"
        return bytes(found[0])

    def put_chunk(self, number: int, data: bytes) -> None:
        self._map.updateValue((number,), (data,))

    def drop_chunk(self, number: int) -> None:
        self._map.removeKey((number,))


class Cell(StatefulProcessor):
    def __init__(self, plan: bytes) -> None:
        self.plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        import pandas as pd
        from pyspark import TaskContext

        from plait.spark import wire
        from plait.spark.cell import step

        bodies = [bytes(body) for frame in rows for body in frame["body"]]
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        plan = _plan(self.plan)
        run = None if query is None else f"{query} {plan.number}"
        out = step(plan, plan.layout.keys.index(key[0]), self.store, bodies, cache_key=run)
        place, body = wire.columns(plan.onward is not None)
        yield pd.DataFrame({place: [p for p, _ in out], body: [b for _, b in out]})
        _freeze()

    def close(self) -> None:
        return


#: A state as rows: of which cell, the number of a chunk (or the manifest's), and what it holds.
STATE = "cell int, no long, body binary"


class Importer(StatefulProcessor):
    """Stores what it is handed, and puts out nothing: `relayout` begins a checkpoint with it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.store = SparkStore(handle)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            for number, body in zip(frame["no"], frame["body"], strict=True):
                self.store.put_chunk(int(number), bytes(body))
        return iter(())

    def close(self) -> None:
        return


@lru_cache(maxsize=16)
def _plan(data: bytes) -> CellPlan:
    plan: CellPlan = pickle.loads(data)
    return plan


def _freeze() -> None:
    """PySpark's daemon collects garbage after every task; what the first batch has built need not be walked again."""
    global _frozen
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


def processor(plan: CellPlan) -> Cell:
    from pyspark import cloudpickle

    return Cell(bytes(cloudpickle.dumps(plan)))  # type: ignore[no-untyped-call]
