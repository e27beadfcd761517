"""Sources and sinks. `contract` says how rows reach an executor; the rest are ways to have them there.

    feed(stream, data)     whatever a user hands in: a path, tables in memory, or a feed
    memory, folder         the two of these that exist
    synthetic              the papers' workloads
    open_sink              results to a file that appears whole or not at all
    write_folder           a feed as a folder of files

Only the contract is loaded at once: a module is loaded when something of it is asked for.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from plait.connectors.contract import BATCH_ROWS, Chunk, Feed, Lane, SourceName
from plait.errors import DataError

if TYPE_CHECKING:
    from plait.connectors.dump import merged, write_folder
    from plait.connectors.sinks import Sink, open_sink
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
        data: A path of a folder or file, a feed, or tables as `plait.connectors.memory.feed` takes them.

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


__all__ = [
    "BATCH_ROWS", "Chunk", "Feed", "Lane", "Sink", "SourceName", "feed", "merged", "open_sink", "write_folder",
]  # fmt: skip
