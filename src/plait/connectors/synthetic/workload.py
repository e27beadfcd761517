"""A workload: ready-made feeds with the declarations that fit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from plait.connectors.contract import Feed
from plait.connectors.dump import merged
from plait.connectors.synthetic.blocks import TS, Make, Source
from plait.connectors.synthetic.rates import Rate, row_counts
from plait.errors import QueryError
from plait.schema import is_count


@dataclass(frozen=True)
class Workload:
    """Ready-made feeds, with the declarations that fit them.

    Attributes:
        name: The workload's name.
        feeds: The feed of each stream.
        declarations: For each stream the options for `plait.stream`.

    Example:
        >>> import plait
        >>> from plait.connectors import synthetic
        >>> work = synthetic.energy(seconds=1)
        >>> plait.stream("readings", **work.declarations["readings"]).sources
        ('dc0', 'dc1', 'dc2', 'dc3')
    """

    name: str
    feeds: Mapping[str, Feed]
    declarations: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Part:
    """One stream of a workload: a name and a rate for each source, and what its rows hold besides `ts`."""

    stream: str
    sources: Sequence[str]
    rates: Sequence[Rate]
    columns: Sequence[tuple[str, pa.DataType]]
    make: Make
    #: The column that names the source, or None: a stream with one source and no such column.
    source_column: str | None


def build(
    name: str, parts: Sequence[Part], *, seconds: int | None, rows: int | None, seed: int, batch_rows: int
) -> Workload:
    """The feeds of all parts over one span of time: `seconds`, or until they have `rows` rows in all."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise QueryError(f"seed={seed!r}", why="a seed is a whole number, not negative")
    if not is_count(batch_rows):
        raise QueryError(f"batch_rows={batch_rows!r}", why="a batch has at least one row")
    for option, value in (("rows", rows), ("seconds", seconds)):
        if isinstance(value, int) and value > LONGEST:
            raise QueryError(
                f"{option}={value!r}", why=f"a workload has {LONGEST:,} at most", do="Pass a smaller number"
            )
    counts = iter(row_counts([rate for part in parts for rate in part.rates], seconds, rows))
    feeds: dict[str, Feed] = {}
    declarations: dict[str, Mapping[str, Any]] = {}
    for part in parts:
        named = part.source_column is not None
        columns = [("ts", TS), *part.columns, *([(part.source_column, pa.string())] if named else [])]
        schema = pa.schema(columns)
        sources = [
            Source(part.stream, source, rate, next(counts), seed, schema, part.make, named)
            for source, rate in zip(part.sources, part.rates, strict=True)
        ]
        lanes = tuple(source.lane(batch_rows) for source in sources)
        feeds[part.stream] = Feed(schema, lanes, sum(source.rows for source in sources))
        naming = {"source": part.source_column, "sources": tuple(part.sources)} if named else {}
        declarations[part.stream] = {"time": "ts", **naming}
    return Workload(name, feeds, declarations)


#: Songs, tags or meters of a workload, at most, and sources: there is something in memory for each.
MOST: Final = 1 << 20
MOST_SOURCES: Final = 1 << 12
#: Rows and seconds, at most: beyond it times would leave their range.
LONGEST: Final = 1 << 48


def check_count(option: str, value: object) -> None:
    """Refuse what is no number of sources or the like."""
    if not is_count(value):
        raise QueryError(f"{option}={value!r}", why="it is a whole number, and there is at least one")
    most = MOST_SOURCES if option in ("sources", "concentrators") else MOST
    if value > most:  # type: ignore[operator]  # it is a number by now
        raise QueryError(f"{option}={value!r}", why=f"there are {most:,} at most", do="Pass a smaller number")


def source_names(prefix: str, count: int) -> list[str]:
    """`dc0`, `dc1`, ...: padded, so that their order as text is their position."""
    width = len(str(count - 1))
    return [f"{prefix}{at:0{width}}" for at in range(count)]


def tables(workload: Workload) -> dict[str, pa.Table]:
    """The whole workload in memory.

    Args:
        workload: A workload that is small enough.

    Returns:
        An Arrow table for each stream, its sources merged by time.

    Example:
        >>> from plait.connectors import synthetic
        >>> {name: table.num_rows for name, table in synthetic.tables(synthetic.energy(seconds=2)).items()}
        {'readings': 2000, 'alarms': 20}
    """
    return {name: pa.Table.from_batches(merged(feed, "ts"), feed.schema) for name, feed in workload.feeds.items()}
