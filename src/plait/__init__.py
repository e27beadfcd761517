"""plait: deterministic windowed joins and aggregates over many streams.

A query is a function from one totally ordered stream to another. How sources are delivered, workers, layouts, batch
sizes, arrival times, failures and rescaling change when a result appears, never what it is or in which order.
"""

from plait.errors import BehindError, DataError, LateError, PendingError, PlaitError, QueryError, RunError
from plait.query import ALL, FILE, PARTITION, Query, Stream, aggregate, asof, join, operator, stream, timer
from plait.query import functions as _functions
from plait.query.functions import *  # noqa: F403 - the registered aggregate functions
from plait.query.textual import text
from plait.query.trace import maximum, minimum

__version__ = "0.1.0"

__all__ = [
    "ALL", "FILE", "PARTITION", "BehindError", "DataError", "LateError", "PendingError", "PlaitError", "Query",
    "QueryError", "RunError", "Stream", "aggregate", "asof", "join", "maximum", "minimum", "operator", "stream", "text",
    "timer",
]  # fmt: skip
__all__ += _functions.__all__
