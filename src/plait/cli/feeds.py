"""What engines do alike with a job's feeds: how many rows there are, and where dropped ones go.

Used by all three engines. On Spark the file of late rows has those that were behind too; elsewhere it has late ones only.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from plait.cli.job import Job
from plait.connectors import sinks
from plait.connectors.encoding import json_rows


def rows_of(job: Job) -> int | None:
    """How many rows its feeds have; None if one of them does not know.

    For the bar of the display only. Nothing depends on it.
    """
    counts = [feed.rows for feed in job.feeds.values()]
    return None if any(c is None for c in counts) else sum(c for c in counts if c is not None)


def write_late(tables: Mapping[str, pa.Table], path: str) -> None:
    """Late rows of all streams, one file: the stream's name and the row as JSON text, since schemas differ.

    A stream without late rows leaves no row. The file is there even if nobody was late, so that a script finds it.
    """
    schema = pa.schema([("stream", pa.string()), ("row", pa.string())])
    with sinks.open_sink(path, schema) as sink:
        for name, table in tables.items():
            for line in json_rows(table):
                sink.write(pa.record_batch([[name], [line]], schema=schema))
