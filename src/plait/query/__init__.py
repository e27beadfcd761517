"""What to compute: frozen descriptions, validated when they are built. No threads, no Numba, no Spark."""

from plait.query.aggregate import Aggregate, aggregate
from plait.query.base import Query
from plait.query.bind import Bound, bind
from plait.query.join import Asof, Join, asof, join
from plait.query.operator import ALL, Operator, Timer, operator, timer
from plait.query.stream import FILE, PARTITION, Stream, stream

__all__ = [
    "ALL", "FILE", "PARTITION", "Aggregate", "Asof", "Bound", "Join", "Operator", "Query", "Stream", "Timer",
    "aggregate", "asof", "bind", "join", "operator", "stream", "timer",
]  # fmt: skip
