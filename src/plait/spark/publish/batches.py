"""A micro-batch as Spark hands it to the publisher, and its rows, by as few calls between Python and the JVM as can be.

PySpark's own `foreachBatch` makes a session and a DataFrame in Python for each micro-batch, and its `toArrow` asks for settings,
for the schema, which it parses from JSON, and for the call's place: 51 calls a batch, each of them a message to another process
and back. What plait's publisher needs is known when the query starts: the columns are those of `formats.OUTPUT`. So it is given
the JVM's DataFrame as it is, and asks for its rows alone.

Where it runs: on the driver, in a thread of Spark's, once a batch. Errors are PySpark's own: what fails in a task comes as the
exception of a DataFrame's action. Held by tests/spark/test_sinks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from plait.spark import formats


class Batch:
    """A micro-batch's rows, of the columns `formats.OUTPUT`. They are computed when they are asked for, each time anew."""

    def __init__(self, jvm_frame: Any, session: Any, element: Any) -> None:
        self._frame, self._session = jvm_frame, session
        self._element = element  # of a Java array, without asking for its length each time

    def rows(self) -> pa.Table:
        """All of them, in the order of Spark's tasks."""
        from pyspark.errors.exceptions.captured import unwrap_spark_exception
        from pyspark.sql.pandas.serializers import ArrowCollectSerializer
        from pyspark.util import _load_from_socket

        found, element = self._frame.collectAsArrowToPython(), self._element
        place, server = element(found, 0), element(found, 2)
        secret = None if isinstance(place, str) else element(found, 1)  # a socket of the file system has none
        try:
            with _load_from_socket((place, secret), ArrowCollectSerializer()) as stream:
                batches = list(stream)
        finally:
            with unwrap_spark_exception():
                server.getResult()  # waits for the thread that serves, and says what failed in it
        return pa.Table.from_batches(batches, formats.OUTPUT_ROWS)

    def frame(self) -> Any:
        """As an ordinary DataFrame, of the query's own session: for who computes further."""
        from pyspark.sql import DataFrame, SparkSession

        session = SparkSession(self._session.sparkContext, self._frame.sparkSession())
        return DataFrame(self._frame, session)


def each_batch(writer: Any, publish: Callable[[Batch, int], None]) -> Any:
    """`DataStreamWriter.foreachBatch`, but for what the function is given."""
    from py4j.java_gateway import java_import
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql.utils import ForeachBatchFunction

    gateway = writer._spark._sc._gateway
    java_import(gateway.jvm, "org.apache.spark.sql.execution.streaming.sources.*")
    element = gateway.jvm.java.lang.reflect.Array.get

    class Publishing(ForeachBatchFunction):
        """PySpark's own, which keeps the error for the query's exception."""

        def call(self, jdf: Any, batch_id: int) -> None:
            try:
                self.func(Batch(jdf, self.session, element), batch_id)  # type: ignore[arg-type]
            except Exception as error:
                self.error = error
                raise

    called = Publishing(writer._spark, publish)  # type: ignore[arg-type]
    gateway.jvm.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, called)
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    return writer
