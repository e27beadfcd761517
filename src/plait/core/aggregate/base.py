"""What comes out when windows close: rows, whose columns are made when they are wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Closed:
    """Rows of closed windows. `triggers`: of windows of tuples, the place in the batch of the tuple that closed each."""

    rows: pa.RecordBatch | Later
    triggers: np.ndarray | None = None


class Later:
    """Rows whose columns are made when they are wanted, by whoever wants them: rounding and Arrow take their time.

    `edges` and `keys` are as they will be; `computed` makes the other columns. A thread that closes windows must not wait
    for that, so whoever reads results calls `built`. That may be another thread (`threads.aggregate.hive.windows`), if all
    functions keep numbers: merged rows and keys are copies by then. Rows of `kept` would not be.
    """

    def __init__(self, schema: pa.Schema, edges: list[np.ndarray], keys: list[pa.Array],
                 computed: list[Callable[[], pa.Array]]) -> None:  # fmt: skip
        self.schema, self.edges, self.keys, self.computed = schema, edges, keys, computed
        self.num_rows = len(edges[0])

    def built(self) -> pa.RecordBatch:
        arrays = [pa.array(edge).cast(f.type) for edge, f in zip(self.edges, self.schema, strict=False)]
        return pa.RecordBatch.from_arrays(
            [*arrays, *self.keys, *(make() for make in self.computed)], schema=self.schema
        )
