"""plait: deterministic windowed joins and aggregates over many streams.

A query is a function from one totally ordered stream to another. How sources are delivered, workers, layouts, batch
sizes, arrival times, failures and rescaling change when a result appears, never what it is or in which order.
"""

from plait.errors import BehindError, DataError, LateError, PendingError, PlaitError, QueryError, RunError
from plait.query import ALL, FILE, PARTITION, Query, Stream, aggregate, asof, join, operator, stream, timer
from plait.query.functions import (
    collect,
    count,
    count_where,
    custom,
    distinct,
    first,
    first_where,
    last,
    max,
    mean,
    min,
    sum,
    var,
)
from plait.query.textual import text
from plait.query.trace import maximum, minimum

__version__ = "0.1.0"

__all__ = [
    "ALL", "FILE", "PARTITION", "BehindError", "DataError", "LateError", "PendingError", "PlaitError", "Query",
    "QueryError", "RunError", "Stream", "aggregate", "asof", "collect", "count", "count_where", "custom", "distinct",
    "first", "first_where", "join", "last", "max", "maximum", "mean", "min", "minimum", "operator", "stream", "sum",
    "text", "timer", "var",
]  # fmt: skip
