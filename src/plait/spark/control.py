"""Control events: the end of a source, heartbeats, drain. They are rows of a source of their own, so that they stand in
Spark's offset log and are replayed like any other row.

The source is a folder of small JSON files, read by Spark's own file source. An event is written under a temporary name
and renamed, so no half of one is ever read. Events are numbered; a cell applies each once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from plait import order
from plait.errors import QueryError
from plait.spark import wire
from plait.spark.layout import Layout


def write(folder: str | os.PathLike[str], **event: Any) -> int:
    """Append an event; gives its number. Refused if the query that reads this folder could only stop at it."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    if (place / CARD).exists():
        _check(event, json.loads((place / CARD).read_text()), "")
    number = 1 + max((int(f.stem) for f in place.glob("*.json")), default=-1)
    temporary = place / f".{number}.tmp"
    temporary.write_text(json.dumps({"no": number, **event}) + "\n")
    # A link fails where the name is taken: two writers never share a number.
    try:
        os.link(temporary, place / f"{number:012d}.json")
    except FileExistsError:
        time.sleep(0.001)
        return write(folder, **event)
    finally:
        temporary.unlink(missing_ok=True)
    return number


#: What the query that reads the folder told of its streams.
CARD = "streams.card"


def announce(folder: str | os.PathLike[str], streams: dict[str, Any]) -> None:
    """Note which streams and sources there are; refuse events that were written before and name any other."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for file in sorted(place.glob("*.json")):
        _check(json.loads(file.read_text()), streams, os.fspath(file))
    temporary = place / f".{CARD}.{os.getpid()}"
    temporary.write_text(json.dumps(streams) + "\n")
    os.replace(temporary, place / CARD)


def _check(event: dict[str, Any], streams: dict[str, Any], file: str) -> None:
    if event["do"] == "drain":
        return
    where = f"Control event {file}" if file else f"Control event {event['do']!r}"
    do = "Remove that file: the query has not read it" if file else "Name one of these"
    name, source = event["stream"], event.get("source")
    if name not in streams:
        raise QueryError(
            f"{where} names stream {name!r}", why=f"the query's streams are {', '.join(map(repr, streams))}", do=do
        )
    declared, named = streams[name]["sources"], streams[name]["named"]
    if event["do"] == "end" and source is None:
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
    if event["do"] == "heartbeat" and not order.TS_MIN <= event["ts"] <= order.TS_MAX:
        raise QueryError(f"{where} has ts {event['ts']}", why="a ts lies within 2^62 microseconds of 1970", do=do)


def drain(folder: str | os.PathLike[str]) -> int:
    """End of input: sources end, windows close, every result comes out; the checkpoint then refuses rows."""
    return write(folder, do="drain")


def end(folder: str | os.PathLike[str], stream: str, source: Any = None) -> int:
    """End one source, or a whole stream."""
    return write(folder, do="end", stream=stream, source=source)


def heartbeat(folder: str | os.PathLike[str], stream: str, ts: int, source: Any = 0) -> int:
    """A promise that the source delivers nothing below `ts` any more."""
    return write(folder, do="heartbeat", stream=stream, source=source, ts=ts)


def events(spark: Any, folder: str) -> Any:
    """The folder's events as Spark reads them."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    return spark.readStream.format("text").option("pathGlobFilter", "*.json").load(str(Path(folder).absolute()))


def packed(events: Any, layout: Layout) -> Any:
    """Events as packed rows, one to every cell."""
    cells = layout.keys

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([("cell", pa.int32()), ("body", pa.binary())])
        for batch in batches:
            for line in batch.column("value").to_pylist():
                body = wire.body({"event": json.loads(line)})
                yield pa.record_batch([list(cells), [body] * len(cells)], schema=schema)

    return events.mapInArrow(rows, wire.PACKED)
