"""A feed written out as a folder, and its lanes merged by time: what tests, demos and benchmarks start from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from plait import paths
from plait.connectors.contract import Feed, Lane
from plait.connectors.files import ENDINGS, check_format
from plait.connectors.sinks import open_sink
from plait.errors import DataError
from plait.schema import is_count


def write_folder(
    feed: Feed,
    path: str | os.PathLike[str],
    *,
    format: str = "parquet",
    rows_per_file: int = 1_000_000,
    time: str | None = None,
) -> list[Path]:
    """Write a feed's rows into files of a new or empty folder, in constant memory.

    A feed of one lane, and any feed if `time` is given, becomes `part-00000` and so on, ready to be read as one source or with a
    source column. A feed of several lanes without `time` becomes one file for each source, named by it: ready for
    `source=plait.FILE`.

    Args:
        feed: The rows.
        path: The folder. It is made if it is not there.
        format: "parquet", "csv" or "jsonl".
        rows_per_file: How many rows a part has, but for the last one.
        time: The column by which lanes are merged.

    Returns:
        The files, in order.

    Raises:
        DataError: The folder is not empty, the format does not exist, or a file can't be written.

    Example:
        >>> import plait, plait.connectors
        >>> feed = plait.connectors.feed(plait.stream("s", unit="s"), {"ts": [1, 2, 3]})
        >>> [file.name for file in plait.connectors.write_folder(feed, "rows", format="csv", rows_per_file=2)]
        ['part-00000.csv', 'part-00001.csv']
    """
    check_format(format)
    folder, ending = paths.absolute(path), ENDINGS[format][0]
    if not isinstance(feed, Feed):
        raise DataError(f"{feed!r} is no feed", do="Make one with plait.connectors.feed(stream, data)")
    if not is_count(rows_per_file):
        raise DataError(f"rows_per_file={rows_per_file!r}", why="a file has at least one row")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{str(folder)!r} is no empty folder", why="its files would mix with these", do="Name another")
    for lane in feed.lanes:
        name = Path(str(lane.source))
        if ".." in name.parts or name.is_absolute():
            raise DataError(
                f"Source {lane.source!r} can't name a file in {str(folder)!r}",
                why="its file would lie elsewhere",
                do="Rename it",
            )
    folder.mkdir(parents=True, exist_ok=True)
    if len(feed.lanes) > 1 and time is None:
        return [_write(folder / f"{lane.source}{ending}", feed.schema, _rows(lane), format) for lane in feed.lanes]
    batches = merged(feed, time) if time is not None else _rows(feed.lanes[0])
    files = []
    for number, part in enumerate(_cut(batches, rows_per_file)):
        files.append(_write(folder / f"part-{number:05}{ending}", feed.schema, part, format))
    return files or [_write(folder / f"part-00000{ending}", feed.schema, (), format)]


def _write(file: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], format: str) -> Path:
    with open_sink(file, schema, format=format) as sink:
        for batch in batches:
            sink.write(batch)
    return file


def _rows(lane: Lane) -> Iterator[pa.RecordBatch]:
    return (chunk.batch for chunk in lane.read())


def _cut(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """One iterator of batches for each `rows` rows; each must be used up before the next is asked for."""
    rest: list[pa.RecordBatch] = []

    def part() -> Iterator[pa.RecordBatch]:
        room = rows
        while room and rest:
            batch = rest.pop()
            yield batch.slice(0, room)
            if batch.num_rows > room:
                rest.append(batch.slice(room))
            room -= min(room, batch.num_rows)
            if not rest:
                rest.extend(_next(batches))

    rest.extend(_next(batches))
    while rest:
        yield part()


def _next(batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
    return next(([batch] for batch in batches if batch.num_rows), [])


# --- merging ------------------------------------------------------------------------------------------------


def merged(feed: Feed, time: str) -> Iterator[pa.RecordBatch]:
    """All rows of a feed by time; ties by lane, then as the lane has them.

    It holds one chunk of each lane.

    Args:
        feed: The rows. Each lane must be in order of time.
        time: The column of times.

    Yields:
        Arrow record batches.

    Raises:
        DataError: There is no such column.

    Example:
        >>> import plait, plait.connectors
        >>> feed = plait.connectors.feed(plait.stream("s", unit="s"), [{"ts": [1, 3]}, {"ts": [2, 3]}])
        >>> [ts for batch in plait.connectors.merged(feed, "ts") for ts in batch["ts"].to_pylist()]
        [1, 2, 3, 3]
    """
    if time not in feed.schema.names:
        raise DataError(
            f"The rows have no column {time!r} to be merged by", why=f"their columns are {', '.join(feed.schema.names)}"
        )
    readers = [_rows(lane) for lane in feed.lanes]
    held = [_Held(reader, feed.schema, time) for reader in readers]
    while any(lane.count for lane in held):
        open_ends = [lane.last for lane in held if not lane.ended]
        bound = min(open_ends) if open_ends else None
        taken = pa.concat_tables([lane.take(bound) for lane in held])
        if taken.num_rows:
            order = np.argsort(taken.column(time).cast(pa.int64()).to_numpy(), kind="stable")
            yield from taken.take(pa.array(order)).combine_chunks().to_batches()
        for lane in held:
            if bound is not None and not lane.ended and lane.last == bound:
                lane.pull()


class _Held:
    """What has been read of a lane and not been given on."""

    def __init__(self, reader: Iterator[pa.RecordBatch], schema: pa.Schema, time: str) -> None:
        self._reader, self._time = reader, time
        self._rows, self.ended, self.last = schema.empty_table(), False, -(2**63)
        self.pull()

    @property
    def count(self) -> int:
        return int(self._rows.num_rows)

    def pull(self) -> None:
        """Read the next chunk that has rows, if there is one."""
        batch = next((batch for batch in self._reader if batch.num_rows), None)
        if batch is None:
            self.ended = True
            return
        self._rows = pa.concat_tables([self._rows, pa.Table.from_batches([batch])])
        self.last = int(self._times()[-1])

    def take(self, bound: int | None) -> pa.Table:
        """The rows before `bound`; all of them if nothing bounds any more."""
        count = self.count if bound is None else int(np.searchsorted(self._times(), bound, side="left"))
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def _times(self) -> NDArray[np.int64]:
        times: NDArray[np.int64] = self._rows.column(self._time).cast(pa.int64()).to_numpy()
        return times
