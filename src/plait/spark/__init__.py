"""Executor 2: `source -> pack -> shuffle by cell -> cell -> collect`, an ordinary Structured Streaming pipeline."""

from plait.spark.collect import BatchReport, write_ordered
from plait.spark.control import drain, end, heartbeat
from plait.spark.relayout import relayout
from plait.spark.settings import session
from plait.spark.telling import told

__all__ = ["BatchReport", "drain", "end", "heartbeat", "relayout", "session", "told", "write_ordered"]
