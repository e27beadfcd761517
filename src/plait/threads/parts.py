"""The parts of a run as the others see them: rows encoded, workers, results gathered, and what stands behind a `Run`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from plait.core.metrics import Counts
from plait.query.stream import SourceName
from plait.threads.elastic.manager import Change
from plait.threads.stats import Stats


class Encodes(Protocol):
    """What rows become before they enter the gate, as sources and arenas see it: each engine has its own."""

    @property
    def has_node(self) -> bool: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def stamp(self) -> int: ...

    def columns(self, side: int, /) -> list[tuple[str, Any]]: ...

    def rows(self, side: int, batch: Any, ts: np.ndarray, /) -> Any:
        """A batch's rows as the operator reads them. Any thread calls it, several at once."""

    def fits(self, side: int, rows: Any, /) -> bool:
        """Whether columns can hold these rows as they are stored now. Any thread calls it, several at once."""

    def admit(self, side: int, rows: Any, /) -> bool:
        """Take note of these rows' values; true if columns have to be stored in another way than before. One thread at a
        time, while none writes rows."""

    def encoded(self, side: int, rows: Any, /) -> list[np.ndarray]: ...

    def forget(self, stamp: int, /) -> None: ...


class Converts(Protocol):
    """An encoder whose columns may have to be stored in another way than before."""

    def converted(self, old: np.ndarray | None, new: tuple[str, Any], side: int, /) -> np.ndarray | None: ...


class Seated(Protocol):
    """A worker. Its memory, `words`, begins as `threads.words` says."""

    @property
    def number(self) -> int: ...

    @property
    def words(self) -> np.ndarray: ...

    def progressed(self) -> int:
        """A number that changes whenever the worker does something."""

    def counts(self) -> Counts:
        """What it has counted so far."""


class Gathers(Protocol):
    """Where results come out, in order. `lock`: one thread at a time reads."""

    lock: threading.Lock
    schema: pa.Schema
    frontier: int  # every result of a lower ts has been given out by `next`
    results: int
    ns: int

    @property
    def pushed_ns(self) -> np.ndarray:
        """Of the rows that `next` gave last, if it was asked for: when the last tuple of each was pushed."""
        ...

    def next(self, wait_ns: int, *, pushed: bool = False) -> pa.RecordBatch | bool | None: ...

    def tick(self) -> None: ...


class Running(Protocol):
    """What stands behind a `Run`: one operator's engine, or all operators of a query of queries (`dag`)."""

    # --- its life ---
    def check(self) -> None:
        """Raise what stopped the run, if anything did."""

    def fail(self, error: BaseException, /) -> None:
        """The first error stops the run."""

    def abandon(self) -> None:
        """Tell all threads to end, and wait for none."""

    def stop(self) -> None:
        """Tell all threads to end, and wait until they have."""

    @property
    def nbytes(self) -> int: ...

    # --- input ---
    def push(self, stream: str, source: SourceName | None, batches: list[pa.RecordBatch], /) -> None: ...

    def heartbeat(self, stream: str, source: SourceName, ts: int, /) -> None: ...

    def close(self, stream: str, source: SourceName | None, /) -> None: ...

    def ended(self, stream: str, source: SourceName | None, /) -> str | None:
        """What has ended, if rows of this source would come too late: the stream, or the source."""

    def let_go(self, now_ns: int, /) -> None:
        """The clock ticks: see `input.idle`."""

    # --- output ---
    def take(self, wait_ns: int, /) -> pa.RecordBatch | bool | None:
        """A batch of results; None if there are none in time; False at the end."""

    @property
    def schema(self) -> pa.Schema: ...

    # --- threads that come and go ---
    def resize(self, workers: int, reason: str, /) -> Change: ...

    def rebalance(self, owners: Sequence[int] | None, reason: str, /) -> Change: ...

    def owners(self) -> list[int]: ...

    def hold_policy(self, held: bool, /) -> None: ...

    # --- what is going on ---
    def frontier(self) -> int: ...

    def holder(self) -> tuple[str | None, SourceName | None]: ...

    def late(self, stream: str, /) -> pa.Table:
        """Rows of a stream that were dropped as late."""

    def behind(self, stream: str, /) -> pa.Table: ...

    def plans(self) -> list[tuple[str, Any]]: ...

    def describe(self) -> list[str]: ...

    def stats(self, *, latest: bool = False) -> Stats: ...

    def phase(self) -> str:
        """How the run stands, as `core.metrics` has it."""

    def reset_latency(self) -> None: ...
