"""Sources and sinks. `contract` says how rows reach an executor; the rest are ways to have them there.

    feed(stream, data)     whatever a user hands in: a path, tables in memory, or a feed
    feeds(query, data)     the same for all streams of a query
    memory, folder         the two of these that exist
    synthetic              the papers' workloads
    open_sink              results to a file that appears whole or not at all
    write_folder           a feed as a folder of files

Only the contract is loaded at once: a module is loaded when something of it is asked for.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plait.connectors.contract import BATCH_ROWS, Chunk, Feed, Lane, SourceName
from plait.errors import DataError

if TYPE_CHECKING:
    from plait.connectors.dump import merged, write_folder
    from plait.connectors.sinks import Sink, open_sink
    from plait.query.base import Query
    from plait.query.stream import Stream

_LATER = {
    "Sink": "sinks",
    "merged": "dump",
    "open_sink": "sinks",
    "write_folder": "dump",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"plait.connectors.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def feed(stream: Stream, data: Any) -> Feed:
    """The feed of a stream, from whatever a user hands in.

    Args:
        stream: The stream's declaration.
        data: A path of a folder or file, a pattern of paths such as "day-*.parquet", a feed, or tables as
            `plait.connectors.memory.feed` takes them.

    Returns:
        A `Feed`. A feed that is handed in is given back as it is.

    Raises:
        DataError: The data can't be read, or does not fit the stream.

    Example:
        >>> import plait, plait.connectors
        >>> stream = plait.stream("s", unit="s")
        >>> plait.connectors.feed(stream, {"ts": [1, 2], "x": ["a", "b"]}).schema.names
        ['ts', 'x']
    """
    from plait.query.stream import Stream

    if not isinstance(stream, Stream):
        raise DataError(f"A feed of {stream!r}, which is no stream", do="Pass what plait.stream(...) gave")
    if isinstance(data, Feed):
        return data
    if isinstance(data, (str, os.PathLike)):
        from plait.connectors import folder

        return folder.feed(stream, data)
    from plait.connectors import memory

    return memory.feed(stream, data)


def feeds(query: Query, data: Any) -> dict[str, Feed]:
    """The feeds of all streams that a query reads.

    Args:
        query: What will read them.
        data: For each stream's name what `feed` takes. For a query of one stream also that alone.

    Returns:
        A `Feed` by stream name. Rows of tables are in the order of the stream's `seq=` column, where it has one.

    Raises:
        QueryError: A stream has no data, or data is given for no stream.
        DataError: The data can't be read, or does not fit a stream.

    Example:
        >>> import plait, plait.connectors
        >>> query = plait.aggregate(plait.stream("s", unit="s"), size="1s", compute={"n": plait.count()})
        >>> plait.connectors.feeds(query, {"ts": [1, 2]})["s"].rows
        2
    """
    from plait.connectors.memory import in_seq_order, is_columns
    from plait.query.bind import check_data

    streams = query.streams()
    # A dict of tables is data by stream: a stream's name that is misspelt is no source's.
    if len(streams) == 1 and (not isinstance(data, Mapping) or (set(data) != set(streams) and is_columns(data))):
        data = dict.fromkeys(streams, data)
    if not isinstance(data, Mapping):
        raise DataError(f"data is a {type(data).__name__}", do="Pass a dict of stream names to tables or paths")
    check_data(query, data)
    found = {}
    for name, given in data.items():
        made = feed(streams[name], given)
        # Files are in the order of seq already: sorting them would hold them in memory.
        found[name] = made if isinstance(given, (str, os.PathLike)) else in_seq_order(streams[name], made)
    return found


__all__ = [
    "BATCH_ROWS", "Chunk", "Feed", "Lane", "Sink", "SourceName", "feed", "feeds", "merged", "open_sink", "write_folder",
]  # fmt: skip
