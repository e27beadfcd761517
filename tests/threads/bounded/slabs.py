"""Bounded runs in slabs as small as a test wants them, over feeds whose chunks are cut as it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

import plait
from plait import connectors
from plait.connectors.contract import Chunk, Feed, Lane
from plait.threads.bounded import run as bounded


def feeds_of(query: plait.Query, data: Any, size: Callable[[], int]) -> dict[str, Feed]:
    """The feeds of a query's data, in chunks of so many rows."""
    found = connectors.feeds(query, data)
    return {
        name: replace(feed, lanes=tuple(Lane(lane.source, partial(_cut, lane, size)) for lane in feed.lanes))
        for name, feed in found.items()
    }


def _cut(lane: Lane, size: Callable[[], int]) -> Iterator[Chunk]:
    for chunk in lane.read():
        at = 0
        while at < chunk.batch.num_rows:
            rows = size()
            yield Chunk(chunk.batch.slice(at, rows), chunk.where, chunk.first_row + at)
            at += rows


def goes_in_slabs(query: plait.Query, feeds: Mapping[str, Feed], options: dict[str, Any]) -> bool:
    return bounded.refusal(bounded._bound(query, feeds), options) is None


def in_slabs(query: plait.Query, feeds: Mapping[str, Feed], options: dict[str, Any], *, rows: int, few: int = 1
             ) -> pa.Table | None:  # fmt: skip
    """All results; None if the query does not go in slabs."""
    bound = bounded._bound(query, feeds)
    if bounded.refusal(bound, options) is not None:
        return None
    run = bounded.Slabs(query, bound, feeds, options, rows=rows, few=few)
    return pa.Table.from_batches(list(run.batches()), run.shown.schema)
