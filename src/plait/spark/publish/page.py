"""The page of a query on Spark, and what is looked at for it: what cells told after the last batch, and what Spark knows of it.

Of a query that `write_ordered` has started the publisher knows all (`stats.Told`). Of one with a sink of the user's own Spark's
progress is all there is: the counts of `observedMetrics`, where rows may be dropped, and rows, state and times of batches.

Where it runs: on the driver, in the thread that looks (`watch.sampling`), once a second. Held by tests/spark/test_page.py.
"""

from __future__ import annotations

import json
import time
from typing import Any

from plait.core.held import SILENT_S, OnSpark
from plait.core.metrics import ENDED, FAILED, RUNNING, STARTING, STOPPED, WORKING, Counts, Metrics, Quantiles, entries
from plait.errors import QueryError
from plait.order import AFTER_ALL
from plait.spark.publish.aside import METRIC
from plait.spark.publish.stats import SparkStats
from plait.spark.publish.tell import told
from plait.watch.serving import HOST, Page
from plait.watch.watched import Watched


def page(query: Any, *, host: str = HOST, port: int | None = None, title: str | None = None,
         hosts: tuple[str, ...] = ()) -> Page:  # fmt: skip
    """Serve a page that shows what a query on Spark is doing, and why its results wait.

    It needs `pip install "plait[page]"`, on the driver. The page can change nothing. Whoever reaches the port may read it: names
    of streams and sources, times and counts, never a value of a row. Of a query with a sink of your own it has what Spark's
    progress tells.

    Args:
        query: What `write_ordered` returned, or another started `StreamingQuery` of a DataFrame that `on_spark` gave.
        host: The address to serve on. Another than a loopback one lets others in.
        port: The port; 0 for any that is free. None: 4747, or the next one that is free.
        title: What the page calls the query. None: its name.
        hosts: Names by which browsers and scrapers may ask for it, besides `host`, this machine's name and numeric addresses.

    Returns:
        A `Page`: `page.url` is where it is. Close it, or use it in a `with` block.

    Raises:
        RunError: What it needs is not installed, or the port is taken.
        QueryError: `query` is no started query of Spark's.

    Example:
        >>> import plait, plait.connectors, plait.spark
        >>> spark = plait.spark.session(master="local[2]", partitions=2)
        >>> readings = plait.stream("readings", unit="s")
        >>> (file,) = plait.connectors.write_folder(plait.connectors.feed(readings, {"ts": [1, 2, 15]}), "readings")
        >>> query = plait.aggregate(readings, size="10s", compute={"n": plait.count()})
        >>> df = query.on_spark({"readings": spark.readStream.schema("ts long").parquet(str(file.parent))})
        >>> running = plait.spark.write_ordered(df, "out", checkpoint="checkpoint", drain=True)
        >>> with plait.spark.page(running, port=0) as page:
        ...     running.awaitTermination()
    """
    if not (hasattr(query, "lastProgress") and hasattr(query, "runId")):
        raise QueryError(
            f"page of a {type(query).__name__}",
            why="it is no started query of Spark's",
            do="Pass what write_ordered, or writeStream...start(), returned",
        )
    return Page(watched(query, title), host=host, port=port, hosts=hosts)


def watched(query: Any, title: str | None = None) -> Watched:
    """A started query as it is looked at."""
    publisher = getattr(query, "_plait", None)
    looking = _Looking(query, publisher)
    control = None if publisher is None else publisher.plan.control_dir
    if publisher is not None:
        title = title or publisher.told.query
    return Watched(
        looking.tell, title or query.name or str(query.id), "spark", None if control is None else OnSpark(control),
        looking.silent_after_s,
    )  # fmt: skip


class _Looking:
    """What is known of a query at any time. `_seconds`: how long its last batches took."""

    def __init__(self, query: Any, publisher: Any) -> None:
        self._query, self._publisher, self._began = query, publisher, time.monotonic()
        self._batch_s = 0.0

    def silent_after_s(self) -> float:
        """Where a batch takes long, a source that has said nothing in three of them is silent."""
        return max(SILENT_S, 3 * self._batch_s)

    def tell(self) -> Metrics:
        """What the publisher knows, or Spark; with how the query stands."""
        phase, progress = self._phase(), self._progress()
        self._batch_s = progress.get("durationMs", {}).get("triggerExecution", 0) / 1e3
        state = sum(each.get("memoryUsedBytes", 0) for each in progress.get("stateOperators", ())) or None
        run = None if self._publisher is None else self._publisher.told.now()
        if run is None and self._publisher is not None:
            marks = self._publisher.told.marks
            return SparkStats(phase=STARTING if phase == RUNNING else phase, marks=marks, state_bytes=state)
        if run is None:
            run = _of_progress(progress, time.monotonic() - self._began)
        if phase == ENDED and run.frontier < AFTER_ALL:
            phase = STOPPED  # by somebody, or since it was to take what was there
        run.state_bytes, run.phase = state, phase
        return run

    def _phase(self) -> str:
        try:
            if self._query.isActive:
                return RUNNING
            error = self._query.exception()
        except Exception as gone:  # the session has ended, and the JVM with it
            return f"{FAILED}: {type(gone).__name__}"
        if error is None:
            return ENDED
        return f"{FAILED}: {type(told(error) or error).__name__}"

    def _progress(self) -> dict[str, Any]:
        """Spark's, as JSON has it: of the last batch."""
        try:
            last = self._query.lastProgress
        except Exception:  # the session has ended; `_phase` says so
            return {}
        return {} if last is None else json.loads(last.json)


def _of_progress(progress: dict[str, Any], seconds: float) -> SparkStats:
    """What Spark tells of a query whose sink is the user's own."""
    observed = progress.get("observedMetrics", {}).get(METRIC) or {}
    counts = Counts()
    for name, entry in entries(Counts).items():
        if isinstance(observed.get(name), int) and not entry.by_stream:
            setattr(counts, name, observed[name])
        elif isinstance(observed.get(name), int):
            setattr(counts, name, {"": observed[name]})  # over all streams
    batch_ms = float(progress.get("durationMs", {}).get("triggerExecution", 0))
    latency = {WORKING: Quantiles(batch_ms, batch_ms, batch_ms, 1)} if progress else {}
    held = sum(each.get("numRowsTotal", 0) for each in progress.get("stateOperators", ()))
    return SparkStats.of(counts, seconds=seconds, latency_split_ms=latency, held=held)
