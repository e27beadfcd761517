"""Executor 2: `source -> pack -> shuffle by cell -> cell -> collect`, an ordinary Structured Streaming pipeline."""

from plait.spark.keep.control import drain, end, heartbeat
from plait.spark.keep.relayout import relayout
from plait.spark.plan.settings import session
from plait.spark.publish.collect import BatchReport, write_ordered
from plait.spark.publish.tell import told

__all__ = ["BatchReport", "drain", "end", "heartbeat", "relayout", "session", "told", "write_ordered"]
