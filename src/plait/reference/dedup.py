"""Tuples without those that repeat one: for each tuple in total order, when the last one of its key was kept."""

from __future__ import annotations

from typing import Any

from plait.query.bind import Bound
from plait.query.dedup import Dedup
from plait.query.stream import Stream
from plait.reference.intake import sort_value
from plait.reference.join import full_key
from plait.reference.rows import Row


class DedupMachine:
    """Takes tuples in total order and collects those that are kept in `out`.

    `kept` is by key: the ts of the last tuple that was kept. Nothing is forgotten, also not what is too old to matter.
    """

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Dedup)
        (source,) = bound.inputs
        self.within_us = bound.node.within_us
        self.by = [source.schema.get_field_index(column) for column in bound.node.by]
        time = source.node.time if isinstance(source.node, Stream) else "ts"
        # The result's first column is the ts, so one of that name is not shown a second time.
        self.shown = [at for at, name in enumerate(source.schema.names) if not (name == "ts" and time == "ts")]
        self.kept: dict[tuple[Any, ...], int] = {}
        self.out: list[Row] = []

    def pass_time(self, ts: int) -> None:
        """Nothing happens by time alone."""

    def take(self, row: Row, input: int) -> None:
        key = tuple(sort_value(row.values[at]) for at in self.by)
        if key in self.kept and self.kept[key] >= row.ts - self.within_us:
            return
        self.kept[key] = row.ts
        values = (row.ts, *(row.values[at] for at in self.shown))
        self.out.append(Row(row.ts, (full_key(row, input),), values))
