"""Control events: the end of a source, heartbeats, drain. They are rows of a source of their own, so that they stand in
Spark's offset log and are replayed like any other row.

The source is a folder of small JSON files, read by Spark's own file source. Any number of processes and threads may write
into it at once:

- An event is whole before it has a name: it is written and forced to disk elsewhere, and the name `NUMBER.json` is then given
  to it in one step that fails where the name is taken. So no half of one is ever read, no two share a number, and a writer
  that returns has written one event, once. Whoever takes number n has seen n - 1: there are no gaps.
- Spark may list a folder while it grows, and see an event before one with a smaller number. Events don't depend on their
  order (the largest heartbeat counts, an end stays an end), so a cell applies each when it comes.
- A file that is no whole event (a disk that was full, an editor) was promised to nobody: it is told and passed over.
"""

from __future__ import annotations

import contextlib
import operator
import os
import secrets
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait import order, paths
from plait.errors import DataError, QueryError
from plait.spark import formats
from plait.spark.formats import Announced, Event, Sources
from plait.spark.plan.ages import ANY_AGE
from plait.spark.plan.layout import Layout
from plait.spark.publish.target import put

_FOLDER = "The folder of control events"


def place(folder: str | os.PathLike[str]) -> Path:
    """The folder of control events, absolute and there."""
    found = paths.absolute(folder, _FOLDER)
    paths.folder(found, _FOLDER)
    return found


def write(folder: str | os.PathLike[str], do: str, **named: Any) -> int:
    """Append an event; gives its number. Refused if the query that reads this folder could only stop at it."""
    here = place(folder)
    event = Event(-1, do, **{name: _plain(name, value) for name, value in named.items()})
    _check_ts(event, f"Control event {do!r}", "Name another ts")
    if (streams := _announced(here)) is not None:
        _check(event, streams, "")
    number = 1 + max((int(file.stem) for file in _files(here)), default=-1)
    try:
        while not _take(here, replace(event, no=number)):
            number += 1
    except OSError as error:
        raise DataError(
            f"Control event {do!r} can't be written to {str(here)!r}",
            why=str(error),
            do="No event was written",
        ) from error
    return number


def _take(here: Path, event: Event) -> bool:
    """Write an event under its number, if nobody has it."""
    temporary, final = here / f".event.{secrets.token_hex(8)}.tmp", here / formats.event_name(event.no)
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(event.text())
            file.flush()
            os.fsync(file.fileno())
        return _name(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)


def _name(temporary: Path, final: Path) -> bool:
    """Give a whole file its name; False if it is taken."""
    try:
        os.link(temporary, final)
    except FileExistsError:
        return False
    except OSError:
        return _name_without_links(temporary, final)
    return True


def _name_without_links(temporary: Path, final: Path) -> bool:
    """On file systems that have no links: who makes the mark has the number. A mark without a file is a gap, and no harm."""
    try:
        os.close(os.open(final.with_name(f".{final.stem}.taken"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    if final.exists():
        return False
    os.rename(temporary, final)
    return True


def _plain(name: str, value: Any) -> Any:
    """Numbers as Python has them: NumPy's and others count as what they are worth."""
    if value is None or isinstance(value, (str, bool)):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise QueryError(
            f"Control event: {name}={value!r} is a {type(value).__name__}",
            why="times are integers, and sources' names integers or text",
        ) from None


def _files(here: Path) -> list[Path]:
    return sorted(file for file in here.glob("*.json") if file.stem.isascii() and file.stem.isdigit())


def _announced(here: Path) -> dict[str, Sources] | None:
    """What the query that reads the folder told of its streams."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return Announced.read((here / Announced.NAME).read_text(), str(here)).streams
    return None


def announce(folder: str | os.PathLike[str], streams: dict[str, Sources]) -> None:
    """Note which streams and sources there are; refuse events that were written before and name any other."""
    here = place(folder)
    _announced(here)  # refused if it is of another version
    for file in _files(here):
        event = Event.read(file.read_text(errors="replace"), os.fspath(file))
        if event is None:
            warnings.warn(
                f"{os.fspath(file)!r} is no whole control event, and is passed over: write it again", stacklevel=4
            )
        else:
            _check(event, streams, os.fspath(file))
    try:
        put(here / Announced.NAME, Announced(streams).text())
    except OSError as error:
        raise DataError(
            f"{_FOLDER} {str(here)!r} can't be written", why=str(error), do="Check its permissions and the disk"
        ) from None


def _check_ts(event: Event, where: str, do: str) -> None:
    if event.do == "heartbeat" and (
        not isinstance(event.ts, int) or isinstance(event.ts, bool) or not order.TS_MIN <= event.ts <= order.TS_MAX
    ):
        raise QueryError(f"{where} has ts {event.ts!r}", why="a ts lies within 2^62 microseconds of 1970", do=do)


def _check(event: Event, streams: dict[str, Sources], file: str) -> None:
    if event.do == "drain":
        return
    where = f"Control event {file}" if file else f"Control event {event.do!r}"
    do = "Remove that file: the query has not read it" if file else "Name one of these"
    name, source = event.stream, event.source
    if name is None or name not in streams:
        raise QueryError(
            f"{where} names stream {name!r}", why=f"the query's streams are {', '.join(map(repr, streams))}", do=do
        )
    declared, named = streams[name].declared, streams[name].named
    if event.do == "end" and source is None:
        return
    if declared is not None and source not in declared:
        raise QueryError(
            f"{where} names source {source!r} of stream {name!r}",
            why=f"its sources are {', '.join(map(repr, declared))}",
            do=do,
        )
    if isinstance(source, bool) or not isinstance(source, str if named == "text" else int):
        raise QueryError(
            f"{where} names source {source!r} of stream {name!r}", why=f"its sources are named by {named}", do=do
        )
    _check_ts(event, where, do)


def drain(folder: str | os.PathLike[str]) -> int:
    """Write the event «end of input»: sources end, windows close, every result comes out.

    The checkpoint refuses rows from then on.

    Args:
        folder: The folder of control events: `control` in the checkpoint's, unless `on_spark(control=)` names another.

    Returns:
        The event's number.

    Raises:
        DataError: The event can't be written; then none is.

    Example:
        >>> import plait.spark
        >>> plait.spark.drain("checkpoint/control")
        0
    """
    return write(folder, "drain")


def end(folder: str | os.PathLike[str], stream: str, source: Any = None) -> int:
    """Write the event «this source has ended», or the whole stream.

    Args:
        folder: The folder of control events: `control` in the checkpoint's, unless `on_spark(control=)` names another.
        stream: The stream's name.
        source: The source's name. None: all sources of the stream.

    Returns:
        The event's number.

    Raises:
        QueryError: The query that reads the folder has no such stream or source.
        DataError: The event can't be written; then none is.

    Example:
        >>> import plait.spark
        >>> plait.spark.end("checkpoint/control", "quotes", source="y")
        0
    """
    return write(folder, "end", stream=stream, source=source)


def heartbeat(folder: str | os.PathLike[str], stream: str, ts: int, source: Any = 0) -> int:
    """Write the event «this source delivers nothing below that ts any more».

    Args:
        folder: The folder of control events: `control` in the checkpoint's, unless `on_spark(control=)` names another.
        stream: The stream's name.
        ts: Microseconds since 1970.
        source: The source's name; 0 for the only source of a stream.

    Returns:
        The event's number.

    Raises:
        QueryError: The query that reads the folder has no such stream or source, or `ts` is out of range.
        DataError: The event can't be written; then none is.

    Example:
        >>> import plait.spark
        >>> plait.spark.heartbeat("checkpoint/control", "quotes", ts=1_700_000_000_000_000, source="x")
        0
    """
    return write(folder, "heartbeat", stream=stream, source=source, ts=ts)


def events(spark: Any, folder: str) -> Any:
    """The folder's events as Spark reads them, however old a file claims to be."""
    reader = spark.readStream.format("text").option("pathGlobFilter", "[0-9]*.json").option("maxFileAge", ANY_AGE)
    return reader.load(paths.pattern(place(folder)))


def packed(events: Any, layout: Layout) -> Any:
    """Events as packed rows, one to every cell."""
    cells = layout.keys

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for line in batch.column("value").to_pylist():
                if (event := Event.read(line)) is None:
                    continue
                body = formats.body(event)
                yield pa.record_batch([list(cells), [body] * len(cells)], schema=formats.PACKED_ROWS)

    return events.mapInArrow(rows, formats.PACKED)
