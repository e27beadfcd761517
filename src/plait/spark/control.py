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

from plait.spark import wire
from plait.spark.layout import Layout


def write(folder: str | os.PathLike[str], **event: Any) -> int:
    """Append an event; gives its number."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
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


def drain(folder: str | os.PathLike[str]) -> int:
    """End of input: sources end, windows close, every result comes out; the checkpoint then refuses rows."""
    return write(folder, do="drain")


def end(folder: str | os.PathLike[str], stream: str, source: Any = None) -> int:
    """End one source, or a whole stream."""
    return write(folder, do="end", stream=stream, source=source)


def heartbeat(folder: str | os.PathLike[str], stream: str, ts: int, source: Any = 0) -> int:
    """A promise that the source delivers nothing below `ts` any more."""
    return write(folder, do="heartbeat", stream=stream, source=source, ts=ts)


def events(spark: Any, folder: str, layout: Layout) -> Any:
    """The folder's events as packed rows, one to every cell."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    frame = spark.readStream.format("text").option("pathGlobFilter", "*.json").load(str(Path(folder).absolute()))
    cells = layout.keys

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([("cell", pa.int32()), ("body", pa.binary())])
        for batch in batches:
            for line in batch.column("value").to_pylist():
                body = wire.body({"event": json.loads(line)})
                yield pa.record_batch([list(cells), [body] * len(cells)], schema=schema)

    return frame.mapInArrow(packed, wire.PACKED)
