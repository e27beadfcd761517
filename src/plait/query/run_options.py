"""The options of `on_threads` and `on_spark`, for editors and type checkers; the executors check the values.

A test holds these against what the executors take (tests/query/test_run_options.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict

import pyarrow as pa


class ThreadsOptions(TypedDict, total=False):
    """What `Query.on_threads` takes; docs/threads.md has them with their defaults."""

    workers: int | None  # threads that compare or update; all cores, unless the query's plan says otherwise
    elastic: int | None  # shares of the state, and so threads at most: `resize` and `policy` change who serves them
    policy: bool | tuple[float, float, float] | Callable[..., Any] | None  # when threads come and go
    strategy: str  # "auto", or one of those that `explain()` names
    order: str  # of results: "strict", "trigger" (partners of one trigger in any order) or "none" (as they come)
    index: Literal["auto", "scan", "hash", "grid", "sorted"]
    layout: tuple[int, int] | str  # dpjoin: (rows, columns), "linear", "square", "rectangular"
    gate: Literal["auto", "ring", "skiplist"]  # where sources are merged: by every reader, or by themselves (ScaleGate)
    punctuate: int | str | None  # splitjoin: "comparison", every so many tuples, or None
    fan_out: int  # splitjoin: children of a worker in the distribution tree
    rates: tuple[float, float] | None  # tuples a second, left and right: for the layout
    capacity: int  # ready tuples of a source that workers have not read: beyond it `push` waits
    pending: int | None  # tuples of a source that wait for another one: beyond it `push` raises
    unread_results: int  # results that nobody has read: beyond it workers wait
    batch: int | None  # tuples that a worker takes at once, at most
    max_sources: int | None  # room for sources that turn up
    keys: bool  # add the column `_plait_key`
    schemas: (
        Mapping[str, pa.Schema] | None
    )  # columns by stream; else they are known once every stream has brought a batch
    stall_after_s: float  # when a wait without any progress becomes an error
    cache_dir: str | os.PathLike[str] | None  # of compiled conditions
    plain: bool  # conditions in Python, nothing compiled: for tests


class SparkOptions(TypedDict, total=False):
    """What `Query.on_spark` takes; docs/spark.md has them with their defaults."""

    layout: Literal["auto", "hash"] | tuple[int, int] | str  # the grid of cells; pinned by the checkpoint
    index: Literal["auto", "scan", "hash", "grid", "sorted"]
    control: str | None  # the folder of control events: heartbeats, ends of sources, drain
    max_pending: int | None  # tuples that may wait for the frontier in one cell
    late_rows: bool  # have rows dropped as late or behind in the result, marked
    read: Literal["auto", "rows"]  # "rows": Spark reads all files; "auto": tasks read local Parquet files themselves
    functions: Literal["same", "changed"]  # "changed": resume although your functions are others than the checkpoint's
