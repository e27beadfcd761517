"""What as-of compares of a row: one number for its `by` values. Equal numbers mean equal values, by construction.

Stands where `columns.Encoder` stands for other joins; there is no condition, so there is no kernel and nothing to widen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.values import key_codes
from plait.query.bind import Bound
from plait.query.join import Asof, side_names
from plait.query.types import column_type, is_float
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
    """Used by one thread at a time."""

    has_node = has_bands = False
    index = usual_index = "scan"
    dimensions: tuple[()] = ()

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Asof)
        self.node = bound.node
        self.names = side_names(self.node.left, self.node.right)
        schemas = [i.schema for i in bound.inputs]
        self.by = [[(pair[side], schemas[side].field(pair[side]).type) for pair in self.node.by] for side in (0, 1)]
        self._as_float = [
            any(is_float(column_type(schemas[side].field(pair[side]).type) or "") for side in (0, 1))
            for pair in self.node.by
        ]
        self._values: list[dict[Any, int]] = [{} for _ in self.node.by]
        self._tuples: dict[tuple[int, ...], int] = {}
        self.stamp = 0

    def rows(self, side: int, batch: pa.RecordBatch | pa.Table, ts: np.ndarray) -> CodedRows:
        n = len(ts)
        if not self.by[side]:
            return CodedRows(np.zeros(n, np.int64))
        parts = [self._codes(at, batch.column(name)) for at, (name, _) in enumerate(self.by[side])]
        if len(parts) == 1:
            return CodedRows(parts[0])
        joint = np.stack(parts, axis=1)
        different, back = np.unique(joint, axis=0, return_inverse=True)
        codes = np.array([self._tuple(tuple(row)) for row in different.tolist()], np.int64)
        return CodedRows(codes[back.reshape(-1)] if n else np.zeros(0, np.int64))

    def _tuple(self, row: tuple[int, ...]) -> int:
        return -1 if -1 in row else self._tuples.setdefault(row, len(self._tuples))

    def _codes(self, at: int, column: Any) -> np.ndarray:
        return key_codes(column, self._values[at], as_float=self._as_float[at])

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
