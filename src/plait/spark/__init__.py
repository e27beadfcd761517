"""Executor 2: `source -> pack -> shuffle by cell -> cell -> collect`, an ordinary Structured Streaming pipeline.

    session                      a Spark session with plait's settings
    query.on_spark(...)          DataFrames in, a DataFrame out (`run`)
    explain                      how it is laid out, and why
    write_ordered, BatchReport   publish a streaming result in order, exactly once
    heartbeat, end, drain        control events, which a running query reads
    relayout                     a stopped query's state for another layout
    scaling, Scaled              more executors, or fewer, by the load
    page                         a page that shows what a query does, and why its results wait
    told                         plait's own words in an error of Spark's

docs/spark.md says what a stream's declaration asks of its DataFrames, and what holds after a failure.
"""

from plait.spark.keep.control import drain, end, heartbeat
from plait.spark.keep.relayout import relayout
from plait.spark.plan.settings import session
from plait.spark.publish.collect import BatchReport, write_ordered
from plait.spark.publish.page import page
from plait.spark.publish.scaling import Scaled, scaling
from plait.spark.publish.tell import told
from plait.spark.run import explain

__all__ = [
    "BatchReport", "Scaled", "drain", "end", "explain", "heartbeat", "page", "relayout", "scaling", "session", "told",
    "write_ordered",
]  # fmt: skip
