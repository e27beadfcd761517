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

SourceName = int | str

#: Rows in a chunk, at most, unless a caller asks for another number.
BATCH_ROWS: Final = 65_536


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive rows of one lane. `where` and `first_row` (counted from 0 within `where`) are for error messages."""

    batch: pa.RecordBatch
    where: str = ""
    first_row: int = 0


@dataclass(frozen=True)
class Lane:
    """`read` starts from the beginning each time it is called, and holds one chunk at a time."""

    source: SourceName | None
    read: Callable[[], Iterator[Chunk]]


@dataclass(frozen=True)
class Feed:
    """Everything one stream will deliver. `rows` and `bytes` are totals for progress displays, where known."""

    schema: pa.Schema
    lanes: tuple[Lane, ...]
    rows: int | None = None
    bytes: int | None = None
