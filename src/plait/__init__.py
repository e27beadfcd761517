"""plait: deterministic windowed joins and aggregates over many streams.

A query is a function from one totally ordered stream to another. How sources are delivered, workers, layouts, batch
sizes, arrival times, failures and rescaling change when a result appears, never what it is or in which order.

    stream                              declare an input
    join, asof, aggregate, dedup,       describe what to compute; each gives a `Query`
    union, operator
    sql                                 all of these as one SELECT
    count, sum, mean, ... custom        what an aggregate computes
    text, minimum, maximum, when,       parts of conditions and expressions
    coalesce, concat
    query.reference(data)               run it: slow, and the definition of what is correct
    query.on_threads(...)               run it on threads of this process
    query.on_spark(data, ...)           run it on Spark (`plait.spark`)
    page(run)                           a page that shows what a run does, and why results wait

Every error is a `PlaitError` with the fact, the reason and what to do.

Example:
    >>> import plait
    >>> readings = plait.stream("readings", unit="s")
    >>> query = plait.aggregate(readings, size="10s", by="meter", compute={"mean": plait.mean("cons")})
    >>> query.reference({"readings": {"ts": [1, 2], "meter": [7, 7], "cons": [1.0, 2.0]}})["mean"].to_pylist()
    [1.5]
"""

from plait.errors import BehindError, DataError, LateError, PendingError, PlaitError, QueryError, RunError
from plait.query import (
    ALL,
    FILE,
    PARTITION,
    Query,
    Stream,
    aggregate,
    asof,
    dedup,
    join,
    operator,
    stream,
    timer,
    union,
)
from plait.query import functions as _functions
from plait.query import statistics as _statistics
from plait.query.condition.choice import coalesce, concat, when
from plait.query.condition.textual import text
from plait.query.condition.trace import maximum, minimum
from plait.query.functions import *  # noqa: F403 - the registered aggregate functions
from plait.query.select import sql
from plait.query.statistics import *  # noqa: F403
from plait.watch import page

__version__ = "0.1.0"

__all__ = [
    "ALL", "FILE", "PARTITION", "BehindError", "DataError", "LateError", "PendingError", "PlaitError", "Query",
    "QueryError", "RunError", "Stream", "aggregate", "asof", "coalesce", "concat",
    "dedup", "join", "maximum", "minimum", "operator", "page", "sql", "stream",
    "text", "timer", "union", "when",
]  # fmt: skip
__all__ += _functions.__all__ + _statistics.__all__
