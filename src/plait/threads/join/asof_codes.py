"""What as-of compares of a row: one number for its `by` values (`core.key_numbers`).

Stands where `columns.Encoder` stands for other joins; there is no condition, so there is no kernel and nothing to widen.

An example. `by` is (city, lane). A pair of values that was not seen before gets the next number, on whichever side it
comes; from then on ("Rome", 1) has its number on both sides. Workers then compare and index by one int64. Numbers are
dense, so the table of the last tuples is an array.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core.key_numbers import KeyNumbers
from plait.core.values import compared_as
from plait.query.bind import Bound
from plait.query.join import Asof, side_names
from plait.threads.join.columns import Column


@dataclass(frozen=True)
class CodedRows:
    """`code` is -1 where NULL or NaN keeps a row from equalling any other."""

    code: np.ndarray
    key: None = None
    coord: None = None

    def __len__(self) -> int:
        return len(self.code)


class AsofCodes:
    """The numbers of values are one table, which threads that push change one at a time.

    The names and methods are those of `columns.Encoder`, so that engine, memory and sources need not know which of the
    two they have. What has no meaning here (bands, kernels, widening) says so by an empty answer.
    """

    has_node = has_bands = has_equality = False
    index = usual_index = "scan"
    dimensions: tuple[()] = ()

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Asof)
        self.node = bound.node
        self.names = side_names(self.node.left, self.node.right)
        schemas = [i.schema for i in bound.inputs]
        self._numbers = KeyNumbers(
            [
                compared_as(*(schema.field(name).type for schema, name in zip(schemas, pair, strict=True)))
                for pair in self.node.by
            ]
        )
        self._numbering = threading.Lock()
        self.stamp = 0

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> CodedRows:
        with self._numbering:
            return CodedRows(self._numbers.of([batch.column(pair[side]) for pair in self.node.by], len(ts)))

    def fits(self, side: int, rows: CodedRows) -> bool:
        return True

    def admit(self, side: int, rows: CodedRows) -> bool:
        return False

    def columns(self, side: int) -> list[Column]:
        return [("code", "int64")]

    def encoded(self, side: int, rows: CodedRows) -> list[np.ndarray]:
        return [rows.code]

    def converted(self, old: np.ndarray | None, new: Column, side: int) -> np.ndarray | None:
        return old

    def bands(self) -> np.ndarray:
        return np.zeros((2, 5))

    def preload(self) -> None:
        """There is no condition."""

    def kernels(self) -> None:
        return None

    def widen(self) -> tuple[list[list[Column]], list[list[Column]]]:
        columns = [self.columns(0), self.columns(1)]
        return columns, columns

    def forget(self, stamp: int) -> None:
        """Numbers are kept as long as the table that they index."""

    def describe(self) -> list[str]:
        return ["as-of: the last right tuple of each value is kept in a table, by number"]
