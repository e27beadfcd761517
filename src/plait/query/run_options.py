"""The options of `on_threads` and `on_spark`, for editors, type checkers and readers; the executors check the values.

Tests hold these against what the executors take, names and defaults alike (tests/query/test_run_options.py,
tests/test_documented.py).
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import pyarrow as pa

#: What `layout=` may be on Spark besides "auto" and (rows, columns).
LAYOUTS = ("linear", "square", "rectangular", "see_all", "hash", "band")


class ThreadsOptions(TypedDict, total=False):
    """The options of `Query.on_threads`. Apart from `order`, `punctuate`, `marks` and `keys` they never change the results.

    In a query of queries they hold for every operator that has them: `workers` is the number for each.

    Args:
        workers: Threads that compare or update. A join has all cores unless its layout says otherwise (or, on a machine that is
            calibrated, as many as gain something), an operator, a dedup and an aggregate one ("tuml_mc" two; "wiml" has a pool of
            so many threads that update windows, and without it those that push do). Default: None.
        elastic: Into how many shares the state is split, so how many threads there may be at most. `Run.resize` and `policy`
            change who serves them. Default: None.
        policy: When threads come and go by themselves, with `elastic`. True is 90, 70 and 45 percent of load; three numbers are
            other thresholds (upper, target, lower); a function is called with a `Load` and answers a number of threads or
            None. Default: None.
        strategy: Who does which part of the work: "auto"; for joins "sequential", "partitioned", "scalejoin", "splitjoin",
            "dpjoin"; for aggregates "tuml_sc", "tuml_mc", "wiml", "wiml_shared". `Run.explain` says which was chosen and why.
            Default: 'auto'.
        order: Of a join's results: "strict", "trigger" (partners of one trigger in any order) or "none" (as they come).
            Default: 'strict'.
        index: Where a join looks for partners: "auto", "scan", "hash", "grid" or "sorted". One that can't serve the condition
            is refused. Default: 'auto'.
        layout: Of dpjoin: (rows, columns), "linear", "square", "rectangular", or "auto", which goes by `rates`.
            Default: 'auto'.
        emitter: Of dpjoin: one more thread reads the sources and sends each tuple to the first worker of its row or column, from
            where it is handed on; False: every worker reads all tuples and takes its own. Default: False.
        affinity: Bind threads to cores, on Linux: True (the cores of this process, by turns) or a list of core numbers.
            Default: False.
        gate: Where sources are merged: "ring" (every reader merges for itself), "skiplist" (sources sort as they insert, the
            papers' ScaleGate), or "auto", which is the ring. With WiML only the sources' progress goes through it.
            Default: 'auto'.
        punctuate: Of splitjoin, how exactly results are ordered: "order" (as `order` says), "comparison" (strict), "10
            comparisons" (triggers in order, of each one's partners only every 10 of a sub-window), a number k (only every k
            triggers apart), or None (as results come). Default: 'order'.
        marks: Of splitjoin, have its punctuation marks among the results, as rows with `_plait_mark`: stream, side, trigger and
            how far it was compared. Default: False.
        fan_out: Of splitjoin, how many children a worker has in the distribution tree. None: up to 8, as many as keep it shallow.
            Default: None.
        fan_in: Of splitjoin, gather results by a tree of mergers, each a thread that has so many inputs at most. None: whoever
            reads gathers from all workers. Default: None.
        split_storing: Of splitjoin, let half of the workers store tuples and the other half compare them. Default: False.
        rates: Tuples a second of the left and the right stream, for dpjoin's layout and, on a machine that is calibrated, for the
            number of workers. None: they are taken as equal. Default: None.
        capacity: How many ready tuples of a source workers may not have read yet; beyond it `push` waits. With WiML: parts of
            windows that are complete and not taken. None: 32,768, or 8,192 a worker where these are more than four, so that
            one that waits for a processor holds up the others less. Default: None.
        pending: How many tuples of a source may wait for another source; beyond it `push` raises `PendingError`, and the run
            stops. None: between 8,192 and 65,536, fewer the more sources there are. Default: None.
        unread_results: How many results nobody may have read yet; beyond it workers wait. Default: 262144.
        batch: How many tuples a worker takes at once, at most; a join's never more than 16,384. With WiML: how many of a push
            are added to windows at once. None: 2,048 for joins, 16,384 for operators (4,096 whose functions run in Python),
            32,768 for aggregates, 65,536 with WiML. Default: None.
        linger: How long a push of few rows may wait for others of its source, so that they enter together: text such as "2ms", a
            timedelta, or microseconds. They enter as soon as they are 2,048. Results come later by so much, and what is wrong
            with a row is told by a later call. None: every push enters at once. Default: None.
        max_sources: Room for sources that turn up. None: the declared ones, or 8 a stream (16 if a column names them).
            Default: None.
        keys: Add the column `_plait_key`, bytes that sort as the results do. Default: False.
        schemas: Arrow schemas by stream name, for streams without `schema=`. Without any, the columns are known once every
            stream has brought a batch. Default: None.
        stall_after_s: After how many seconds without any progress a wait becomes an error, which names who waits for whom.
            Default: 60.0.
        cache_dir: Where compiled conditions and operators are kept. None: `PLAIT_CACHE_DIR`, else `~/.cache/plait/kernels`.
            Default: None.
        plain: Run conditions and operators in Python and compile none of them: for tests. Default: False.

    Example:
        >>> import plait
        >>> a, b = plait.stream("a", unit="s"), plait.stream("b", unit="s")
        >>> near = plait.join(a, b, on="a.x = b.x", within="3s")
        >>> options = {"workers": 2, "strategy": "scalejoin", "keys": True, "index": "hash"}
        >>> with near.on_threads(**options) as run:
        ...     run.push("a", None, {"ts": [1, 2], "x": [1, 5]})
        ...     run.push("b", None, {"ts": [1, 2], "x": [5, 1]})
        ...     run.drain()
        ...     run.table().column_names
        ['ts', 'a_ts', 'a_x', 'b_ts', 'b_x', '_plait_key']
        >>> with near.on_threads(strategy="splitjoin", workers=2, punctuate="2 comparisons", marks=True, fan_in=2) as run:
        ...     run.push("a", None, {"ts": [1, 2], "x": [1, 5]})
        ...     run.push("b", None, {"ts": [1, 2], "x": [5, 1]})
        ...     run.drain()
        ...     marks = run.table().column("_plait_mark").to_pylist()
        >>> [mark and (mark["stream"], mark["trigger"]) for mark in marks]  # a result is None
        [('a', 0), ('b', 1), None, ('a', 2), None, ('b', 3)]
    """

    workers: int | None
    elastic: int | None
    policy: bool | tuple[float, float, float] | Callable[..., Any] | None
    strategy: str
    order: str
    index: Literal["auto", "scan", "hash", "grid", "sorted"]
    layout: tuple[int, int] | str
    emitter: bool
    affinity: bool | Sequence[int]
    gate: Literal["auto", "ring", "skiplist"]
    punctuate: int | str | None
    marks: bool
    fan_out: int | None
    fan_in: int | None
    split_storing: bool
    rates: tuple[float, float] | None
    capacity: int | None
    pending: int | None
    unread_results: int
    batch: int | None
    linger: str | int | dt.timedelta | None
    max_sources: int | None
    keys: bool
    schemas: Mapping[str, pa.Schema] | None
    stall_after_s: float
    cache_dir: str | os.PathLike[str] | None
    plain: bool


class SparkOptions(TypedDict, total=False):
    """The options of `Query.on_spark`. They change how a query runs, and none what its results are.

    Args:
        layout: The cells of a join. DP-Join's grids: "auto" and "rectangular" (by `rates`; without these as square as the number
            of cells allows), "linear" (m x 1), "square", or (rows, columns). ScaleJoin's "see_all": every cell sees every tuple
            and stores its part. "hash": by the values that must be equal, so that no tuple is copied. "band": by ranges of a
            band's column, so that few are. A checkpoint pins it; `plait.spark.relayout` changes it, with "auto" to what suits
            the tuples that its windows hold. Default: 'auto'.
        cells: How many cells there are, where `layout` does not say it. None: one a core, and no more than there are state
            partitions. Default: None.
        rates: Tuples a second of the left and the right stream, for the layout. None: they are taken as equal. Default: None.
        index: Where a cell looks for partners: "auto", "scan", "hash", "grid" or "sorted". Default: 'auto'.
        control: The folder of control events: heartbeats, ends of sources, drain. None: `control` in the checkpoint's folder.
            Default: None.
        max_pending: How many tuples may wait for the frontier in one cell; beyond it the query stops and names the source that
            holds it. None: no limit. Default: None.
        max_window: How many rows one cell may hold, of its windows and waiting ones together (of an aggregate partial panes);
            beyond it the query stops, before its windows have them, and says which cell and which stream. The checkpoint goes on
            with another limit. None: no limit. Default: None.
        late_rows: Have rows that were dropped as late or behind in the result: `_plait_dropped` is the stream's name and
            `_plait_row` the row as JSON; both are NULL in results. Default: False.
        keys: Have the column `_plait_key` in the result, whose byte order is the result order. It may weigh more than the rest of
            a row; False spares it, for who sorts by nothing. `write_ordered` needs none. Default: True.
        read: "auto": tasks read local Parquet files themselves, column by column. "rows": Spark reads all files.
            Default: 'auto'.
        functions: "same": a checkpoint that was written with other functions of yours is refused. "changed": it goes on with
            these. Default: 'same'.

    Example:
        >>> import plait, plait.spark
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> readings = plait.stream("readings", unit="s", seq="id", late="drop")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()})
        >>> rows = spark.createDataFrame([(1, 1), (12, 2), (3, 3)], "ts long, id long")
        >>> df = query.on_spark({"readings": rows}, late_rows=True, max_pending=1000, cells=1)
        >>> [row["_plait_row"] for row in df.where("_plait_dropped = 'readings'").collect()]
        ['{"ts": 3, "id": 3}']
    """

    layout: Literal["auto", "linear", "square", "rectangular", "see_all", "hash", "band"] | tuple[int, int] | str
    cells: int | None
    rates: tuple[float, float] | None
    index: Literal["auto", "scan", "hash", "grid", "sorted"]
    control: str | None
    max_pending: int | None
    max_window: int | None
    late_rows: bool
    keys: bool
    read: Literal["auto", "rows"]
    functions: Literal["same", "changed"]
