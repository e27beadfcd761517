"""What every engine looks at of its parts, whichever engine it is: rows encoded, workers, results gathered."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from plait.core.metrics import Counts


class Encodes(Protocol):
    """What rows become before they enter the gate, as sources and arenas see it: each engine has its own."""

    @property
    def has_node(self) -> bool: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def stamp(self) -> int: ...

    def columns(self, side: int, /) -> list[tuple[str, Any]]: ...

    def rows(self, side: int, batch: Any, ts: np.ndarray, /) -> Any: ...

    def admit(self, side: int, rows: Any, /) -> bool:
        """Take note of these rows' values; true if columns have to be stored in another way than before."""

    def encoded(self, side: int, rows: Any, /) -> list[np.ndarray]: ...

    def forget(self, stamp: int, /) -> None: ...


class Seated(Protocol):
    """What an engine looks at of a worker's memory: `words` are laid out as `threads.join.loop.layout` says."""

    number: int
    words: np.ndarray

    def counts(self) -> Counts:
        """What it has counted so far."""


class Gathers(Protocol):
    """Where results come out, in order. `lock`: one thread at a time reads."""

    lock: threading.Lock
    schema: pa.Schema
    frontier: int  # every result of a lower ts has been given out by `next`
    results: int
    ns: int

    def next(self, wait_ns: int) -> pa.RecordBatch | bool | None: ...

    def tick(self) -> None: ...
