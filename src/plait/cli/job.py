"""A file that describes work: the query, where its rows come from, and where its results go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plait import paths
from plait.connectors.contract import Feed
from plait.errors import DataError, QueryError
from plait.query.base import Query


@dataclass(frozen=True)
class Job:
    """What `plait run`, `verify` and `explain` work on: a file that was read.

    Attributes:
        title: The file's name, for messages and displays.
        query: What to compute.
        feeds: The rows of each stream. A file that is only explained may lack some.
        output: Where results go, if the file says so.
        late: Where late rows go, if the file says so.
        engine: The executor, if the file says so.
        order: How exact the order of results has to be.
        max_pending: How many tuples may wait for the frontier.
        master: Where Spark runs.
        checkpoint: The folder in which a run on Spark keeps what it needs to be taken up again.
        layout: How its join is laid out on Spark.
        cells: How many cells it has there; None: one a core.
        max_window: How many rows one of these cells may hold; None: no limit.
    """

    title: str
    query: Query
    feeds: Mapping[str, Feed]
    output: str | None = None
    late: str | None = None
    engine: str | None = None
    order: str = "strict"
    max_pending: int | None = None
    master: str | None = None  # Spark's
    checkpoint: str | None = None  # a folder in which a run on Spark keeps what it needs to be taken up again
    layout: str | tuple[int, int] = "auto"
    cells: int | None = None
    max_window: int | None = None

    def check(self) -> Job:
        """The job, refused if a stream has no data."""
        missing = [name for name in self.query.streams() if name not in self.feeds]
        if missing:
            raise QueryError(
                f"{self.title}: stream {missing[0]!r} has no data",
                do=f"Give it a path in the file, or pass --input {missing[0]}=PATH",
            )
        return self


def load(path: str, inputs: Mapping[str, str] | None = None) -> Job:
    """Read a file that describes work.

    Args:
        path: A .toml file, a .sql file with its streams in a .toml file beside it or in its first lines, or a .py file that
            defines `query`.
        inputs: Files or folders by stream name, which replace what the file says of that stream's rows.

    Raises:
        DataError: There is no such file, or it is of no such kind.
        QueryError: It describes no query, or `inputs` names a stream that the query does not read.
    """
    from plait.cli import python_file, sql_file, toml_file
    from plait.connectors import folder

    file = Path(paths.plain(path))
    if not os.path.isfile(file):  # also where no file can have such a name
        raise DataError(
            f"There is no file {path!r}", do="Pass a .toml or .sql file, or a .py file that defines `query`"
        )
    if file.suffix == ".toml":
        job = toml_file.load(file)
    elif file.suffix == ".py":
        job = python_file.load(file)
    elif file.suffix == ".sql":
        job = sql_file.load(file, inputs or {})
    else:
        raise DataError(f"{path!r} is neither a .toml, a .sql nor a .py file", do="See examples/ for one of each")
    streams = job.query.streams()
    feeds = dict(job.feeds)
    for name, given in (inputs or {}).items():
        if name not in streams:
            raise QueryError(
                f"--input {name}={given}: the query has no such stream", why=f"it reads {', '.join(streams)}"
            )
        feeds[name] = folder.feed(streams[name], given)
    return replace(job, feeds=feeds)
