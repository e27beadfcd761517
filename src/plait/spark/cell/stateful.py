"""A cell as Spark's stateful operator: the part of it that Spark pickles.

Spark starts a Python process of its own on the driver at each start of a query, only to ask a processor for its state
variables, and the first batch waits for it. So `Cell` travels by value: to unpickle it nothing of plait is imported,
which takes three times as long as PySpark does. What it does with rows is in `task`, and its plan travels as bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from plait.spark import formats

if TYPE_CHECKING:
    from plait.spark.cell.cell import CellPlan

# As objects: Spark asks its JVM to parse a schema given as text, on every batch.
_KEY = StructType([StructField(formats.STATE_KEY, LongType())])
_VALUE = StructType([StructField(formats.STATE_VALUE, BinaryType())])
_STATE = formats.STATE


class Cell(StatefulProcessor):
    """One operator of a query, for Spark. The same object serves all of its cells: `handleInputRows` is told the key.

    Attributes:
        plan: The `CellPlan`, pickled. It stays bytes until the first rows come, in the worker (`task`).
        map: The state of the key that Spark is at: a map from a number to bytes, made in `init`.
    """

    def __init__(self, plan: bytes) -> None:
        self.plan = plan

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state. Called on the driver, which only wants to know the variables, and in every task."""
        self.map = handle.getMapState(_STATE, _KEY, _VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        """A batch's rows of one cell, as pandas frames. plait is imported here and not above: see the module."""
        from plait.spark.cell import task

        return task.rows_of_cell(self.plan, key[0], self.map, rows)

    def close(self) -> None:
        """Nothing is open."""
        return


class Importer(StatefulProcessor):
    """Stores what it is handed, and puts out nothing: `relayout` begins a checkpoint with it.

    Rows have the columns `no` and `body` (`formats.STATE_ROWS`). It stands in the same place of Spark's plan as `Cell`
    does, so that the state it leaves is found by the query that starts on the checkpoint next.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.map = handle.getMapState(_STATE, _KEY, _VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        from plait.spark.cell import task

        store = task.SparkStore(self.map)
        for frame in rows:
            for number, body in zip(frame["no"], frame["body"], strict=True):
                store.put_chunk(int(number), bytes(body))
        return iter(())

    def close(self) -> None:
        return


def processor(plan: CellPlan) -> Cell:
    """A `Cell` with its plan, ready to be pickled: this module by value, the plan with users' functions in it as bytes."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    return Cell(bytes(cloudpickle.dumps(plan)))  # type: ignore[no-untyped-call]
