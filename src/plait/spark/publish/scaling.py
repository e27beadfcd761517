"""More executors, or fewer, by the load of the queries that run: STRETCH's thresholds (`core.policy`), over micro-batches.

**Load.** A query's load is the part of the time that it works: of the time from the beginning of one micro-batch to that of the
next, how much the first has taken (`triggerExecution`). A query that has to catch up begins one as soon as the last has ended,
and has 100 percent. Where its source tells how many rows wait (Kafka does), and these become more, what has come beyond what was
done counts besides: then load is above 100 percent. Queries of one session share its executors, so their loads are added up. As
in the paper, it is taken that half as many executors would have twice the load each. What a micro-batch costs the driver does
not get less by more of them.

**Changes.** Each is told as a `Scaled`. On a standalone cluster (`spark://...`) it is made: Spark is asked for so many executors,
or those that came last are let go. Cells are Spark's tasks and lie in its state store, so they run wherever there is room, from
the next micro-batch on, and no byte of what is published changes. On other masters it is a proposal, for who runs the cluster.

Where it runs: on the driver, in the thread in which Spark tells of micro-batches, after they are committed. Held by
tests/spark/test_scaling.py.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from plait.core.policy import Calls, Load, policy_of
from plait.errors import QueryError

#: So many looks are waited for executors that were asked for.
LOOKS = 20


@dataclass(frozen=True)
class Scaled:
    """A change of the number of executors that the policy has called for.

    Attributes:
        executors: How many there were.
        wanted: How many there are to be.
        reason: The policy's own words.
        made: Whether it was asked of Spark. If not, it is a proposal.

    Example:
        >>> from plait.spark import Scaled
        >>> Scaled(executors=2, wanted=3, reason="load 100% above 90%", made=True).wanted
        3
    """

    executors: int
    wanted: int
    reason: str
    made: bool


class Executors:
    """Those of a session: how many there are, and whether Spark can be asked for others.

    In a local session the driver is the only one.
    """

    def __init__(self, spark: Any) -> None:
        self._context = spark.sparkContext
        self.changeable = str(self._context.master).startswith("spark://")

    def count(self) -> int:
        """How many there are now. The driver, which Spark counts with them, is left out."""
        return max(1, len(self._context._jsc.sc().statusTracker().getExecutorInfos()) - 1)

    def change(self, wanted: int) -> None:
        """Ask for so many. Those that came last go first: they have served least."""
        backend, jvm = self._context._jsc.sc(), self._context._jvm
        found = backend.getExecutorIds()
        ids = sorted((found.apply(k) for k in range(found.size())), key=int)
        for name in ids[wanted:]:
            backend.killExecutor(name)
        # After that, because a kill takes one off what was asked for before.
        backend.requestTotalExecutors(wanted, 0, jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap()))


@dataclass
class _Seen:
    """The last micro-batch of a query: when it began, how long it took, its rows, and how many waited behind it."""

    began: dt.datetime
    seconds: float
    rows: int
    behind: int | None
    load: float = 0.0  # that of the one before
    extra: float = 0.0  # what had come and was not done


class Scaling(StreamingQueryListener):
    """Looks at each micro-batch, and changes executors, or proposes it. `scaling` makes one.

    Attributes:
        changes: What has been called for so far, in order.
    """

    def __init__(self, executors: Any, calls: Calls, most: int, on_change: Callable[[Scaled], None] | None) -> None:
        self._executors, self._calls, self._most, self._on_change = executors, calls, most, on_change
        self._queries: dict[str, _Seen] = {}
        self._awaited: tuple[int, int] | None = (
            None  # executors that were asked for, and looks that still wait for them
        )
        self.changes: list[Scaled] = []

    def onQueryStarted(self, event: Any) -> None:
        return

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        now = _Seen(
            dt.datetime.fromisoformat(progress.timestamp), progress.durationMs.get("triggerExecution", 0) / 1e3,
            progress.numInputRows, _behind(progress.sources),
        )  # fmt: skip
        before = self._queries.get(str(progress.id))
        self._queries[str(progress.id)] = now
        if before is None:
            return
        passed = max((now.began - before.began).total_seconds(), before.seconds, 1e-3)
        now.load = before.seconds / passed
        if before.behind is not None and now.behind is not None and before.rows:
            now.extra = max(0, now.behind - before.behind) / before.rows * now.load
        self._look(passed)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing came for a while. Spark says so every ten seconds."""
        if (before := self._queries.get(str(event.id))) is not None:
            before.load = before.extra = 0.0
            self._look(10.0)

    def onQueryTerminated(self, event: Any) -> None:
        self._queries.pop(str(event.id), None)

    def _look(self, seconds: float) -> None:
        executors = self._executors.count()
        if self._awaited is not None:
            wanted, looks = self._awaited
            # An executor takes seconds to start. One that never comes, since nobody has room for it, is given up.
            self._awaited = (wanted, looks - 1) if executors != wanted and looks > 1 else None
            return
        busy, extra = (sum(vars(seen)[name] for seen in self._queries.values()) for name in ("load", "extra"))
        load = Load(executors, self._most, (min(busy, 1.0),) * executors, seconds,
                    backlog=(extra + max(0.0, busy - 1.0),) * executors)  # fmt: skip
        change = self._calls.look(load)
        if change is None:
            return
        wanted, reason = change
        if self._executors.changeable:
            self._executors.change(wanted)
            self._awaited = wanted, LOOKS
        self._calls.rest()
        self.changes.append(Scaled(executors, wanted, reason, self._executors.changeable))
        if self._on_change is not None:
            self._on_change(self.changes[-1])


def _behind(sources: Any) -> int | None:
    """Rows that wait in the sources behind what was taken, where they tell: Kafka says how many in the mean of its partitions."""
    found = None
    for source in sources:
        mean = (source.metrics or {}).get("avgOffsetsBehindLatest")
        if mean is not None:
            partitions = sum(len(of_topic) for of_topic in json.loads(source.endOffset).values())
            found = (found or 0) + round(float(mean) * partitions)
    return found


@contextmanager
def scaling(
    spark: Any, *, most: int, policy: Any = True, on_change: Callable[[Scaled], None] | None = None
) -> Iterator[Scaling]:
    """Have a policy watch the load of the session's streaming queries, and change executors, for as long as the block runs.

    On a standalone cluster changes are made. Elsewhere they are proposed, to `on_change` and in `changes`.

    Args:
        spark: The session.
        most: How many executors there may be at most.
        policy: True is 90, 70 and 45 percent of load; three numbers are other thresholds (upper, target, lower); a function is
            called with a `Load`, whose `workers` are executors, and answers a number of executors or None.
        on_change: Called with each `Scaled`, in the thread in which Spark tells of micro-batches.

    Returns:
        A context manager that gives the `Scaling`; its `changes` are a list of `Scaled`.

    Raises:
        QueryError: `most` is no number of executors, or `policy` is none.

    Example:
        >>> import plait.spark
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> with plait.spark.scaling(spark, most=8, policy=(90, 70, 45)) as watched:
        ...     pass  # start queries here, and wait for them
        >>> watched.changes
        []
    """
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise QueryError(f"most={most!r} is no number of executors", do="Pass a whole number, at least 1")
    found = policy_of(policy)
    if found is None:
        raise QueryError(
            "policy=None is no policy", do="Pass True, three thresholds (upper, target, lower), or a function"
        )
    made = Scaling(Executors(spark), Calls(found), most, on_change)
    spark.streams.addListener(made)
    try:
        yield made
    finally:
        spark.streams.removeListener(made)
