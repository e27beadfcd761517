"""A union in a cell: its part of all tuples, given out in order when the frontier has passed them.

Tuples are dealt out by a hash of their own keys, whatever their input, so cells have about as many. Results of all cells are put
in one order where they are published, by their keys. State holds what waits for the frontier, and nothing else.
"""

from __future__ import annotations

import pyarrow as pa

from plait.core import keys
from plait.core.metrics import Counts
from plait.core.row_by_row import Through, union_columns
from plait.encodings import as_array
from plait.query.bind import Bound
from plait.query.row_by_row import Union
from plait.spark import formats
from plait.spark.cell.cell import Live
from plait.spark.cell.results import Keyed
from plait.spark.formats import Chunk, Step, rows_schema, times

#: Bytes of a tuple's key that tell its ts and its input: two integers, each with its tag.
HEAD = 18


class LiveUnion(Live):
    """A union's contents of one cell: nothing but what waits."""

    def __init__(self, bound: Bound) -> None:
        assert isinstance(bound.node, Union)
        super().__init__(bound, [rows_schema(i.schema) for i in bound.inputs])
        self._through = isinstance(bound.node, Through)
        self._places = [union_columns(each, bound.node) for each in bound.inputs]
        self._counts = Counts()

    @property
    def counts(self) -> Counts:
        return self._counts

    def _process(self, ready: list[pa.Table], frontier: int, *, results: bool) -> Keyed:
        """What has become ready, in the order of its keys, which begin with ts and input."""
        schema = self.bound.schema
        if not results:
            return Keyed(schema.empty_table(), (), pa.array([], pa.binary()))
        parts, spelled = [], []
        for rows, places in zip(ready, self._places, strict=True):
            columns = [pa.array(times(rows)), *(rows.column(place) for place in places)]
            arrays = [as_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            parts.append(pa.Table.from_arrays(arrays, schema=schema))
            spelled.append(as_array(rows.column(formats.KEY), pa.binary()))
        table, own = pa.concat_tables(parts), pa.concat_arrays(spelled)
        if len(parts) > 1:
            order = keys.in_order_of((table.column(0), own))
            table, own = table.take(order), own.take(order)
        n = table.num_rows
        # Not by Arrow's binary_slice, which fails where a key is shorter than the longest.
        own = pa.array([key[HEAD:] for key in own.to_pylist()], pa.binary()) if self._through else keys.nest(own, n=n)
        return Keyed(table.combine_chunks(), (), own)

    def outlived(self, chunk: Chunk, frontier: int, steps: list[Step]) -> bool:
        """Tuples go when they are given out."""
        return chunk.last_ts < frontier
