"""What to compute: frozen descriptions, validated when they are built. No threads, no Numba, no Spark.

stream      an input: its event time, its sources, what it promises
join        pairs over a window, and as-of       aggregate   windows of time or of tuples, per key
functions   what an aggregate computes           operator    a user's own functions over state in buckets
row_by_row  where, select, union                 row_calls   the calls of streams and queries for them
dedup       the first of tuples with one key
base        what every query is, and how it is run

condition/  conditions and expressions, read     select/     `plait.sql`: a SELECT becomes a query
bind        a query meets its streams' columns   explain     a query in words
identical   when two results are the same        arguments   keywords that a call does not have
"""

from plait.query.aggregate import Aggregate, aggregate
from plait.query.base import Query
from plait.query.bind import Bound, bind
from plait.query.dedup import Dedup, dedup
from plait.query.join import Asof, Join, asof, join
from plait.query.operator import ALL, Operator, Timer, operator, timer
from plait.query.row_by_row import RowByRow, Union, union
from plait.query.stream import FILE, PARTITION, Stream, stream

__all__ = [
    "ALL", "FILE", "PARTITION", "Aggregate", "Asof", "Bound", "Dedup", "Join", "Operator", "Query", "RowByRow", "Stream",
    "Timer", "Union", "aggregate", "asof", "bind", "dedup", "join", "operator", "stream", "timer", "union",
]  # fmt: skip
