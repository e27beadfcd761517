"""What engines do alike with a job's feeds: how many rows there are, and where dropped ones go."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from plait.cli.job import Job
from plait.connectors import sinks
from plait.connectors.encoding import json_rows


def rows_of(job: Job) -> int | None:
    """How many rows its feeds have; None if one of them does not know."""
    counts = [feed.rows for feed in job.feeds.values()]
    return None if any(c is None for c in counts) else sum(c for c in counts if c is not None)


def write_late(tables: Mapping[str, pa.Table], path: str) -> None:
    """Late rows of all streams, one file: the stream's name and the row as JSON text, since schemas differ."""
    schema = pa.schema([("stream", pa.string()), ("row", pa.string())])
    with sinks.open_sink(path, schema) as sink:
        for name, table in tables.items():
            for line in json_rows(table):
                sink.write(pa.record_batch([[name], [line]], schema=schema))
