"""How rows reach an executor: a feed for each stream, made of lanes that can be pulled one chunk at a time.

A **lane** is a sequence of rows that can only be read in order: a table, a file, a folder read file after file. It
delivers one source, whose name it bears, or several, which a column of the rows names (`source` is None then). A lane
may bear its one source's name where a column names it too: the two agree, and a reader then knows without reading.
Lanes are independent of each other, so a reader that always pulls the lane that holds the frontier buffers least.
Rows inside a lane are in `seq` order for `seq="position"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

#: What a source is called: an integer or text.
SourceName = int | str

#: Rows in a chunk, at most, unless a caller asks for another number.
BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one lane.

    Attributes:
        batch: The rows.
        where: What they come from, for messages: a file's path, or nothing.
        first_row: The first row's number within `where`, counted from 0, for messages.

    Example:
        >>> import plait.connectors, pyarrow as pa
        >>> plait.connectors.Chunk(pa.record_batch({"ts": [1, 2]}), "a.csv", 10).first_row
        10
    """

    batch: pa.RecordBatch
    where: str = ""
    first_row: int = 0


@dataclass(frozen=True)
class Lane:
    """A sequence of rows that can only be read in order.

    Attributes:
        source: The name of the one source that it delivers. None: a column of the rows names it.
        read: Gives its chunks. It starts from the beginning each time it is called, and holds one chunk at a time.
        coded: Gives the same chunks, in which the columns of text that are named may be dictionaries, all of a column or none of
            it. None: there is no such way. Who asks for it has to heed that a value may stand in a dictionary twice.

    Example:
        >>> import plait.connectors, pyarrow as pa
        >>> chunk = plait.connectors.Chunk(pa.record_batch({"ts": [1, 2]}))
        >>> lane = plait.connectors.Lane("x", lambda: iter([chunk]))
        >>> [each.batch.num_rows for each in lane.read()]
        [2]
    """

    source: SourceName | None
    read: Callable[[], Iterator[Chunk]]
    coded: Callable[[frozenset[str]], Iterator[Chunk]] | None = None


@dataclass(frozen=True)
class Feed:
    """Everything that one stream will deliver.

    Attributes:
        schema: The columns of all lanes.
        lanes: What can be read by itself.
        rows: How many rows there are, for progress displays. None: not known.
        bytes: How many bytes there are, for progress displays. None: not known.

    Example:
        >>> import plait, plait.connectors
        >>> feed = plait.connectors.feed(plait.stream("s", unit="s"), [{"ts": [1, 2]}, {"ts": [3]}])
        >>> [lane.source for lane in feed.lanes], feed.rows
        ([0, 1], 3)
    """

    schema: pa.Schema
    lanes: tuple[Lane, ...]
    rows: int | None = None
    bytes: int | None = None
