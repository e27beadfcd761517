"""Rows changed one by one, and unions: what stands between two operators, and the operator that only puts in order.

A row keeps its ts and its key. Conditions and expressions are read as `reference.condition` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from plait.errors import DataError, RunError
from plait.query.bind import Bound
from plait.query.condition.predicate import Predicate
from plait.query.row_by_row import Kept, Made
from plait.query.stream import Stream
from plait.reference.condition import EMPTY, condition, value
from plait.reference.rows import Row, View, stored

_NONE = pa.schema([])
Change = Callable[[Row], Row | None]


def row_changes(bound: Bound) -> Callable[[list[Row]], list[Row]]:
    """What is done to the rows of a node on their way to who reads them."""
    schema, changes = bound.made, []
    for step in bound.steps:
        changes.append(_filter(step, schema) if isinstance(step, Kept) else _maker(step, schema))
        schema = schema if isinstance(step, Kept) else step.schema

    def changed(rows: list[Row]) -> list[Row]:
        return [row for row in (_through(changes, row) for row in rows) if row is not None]

    return changed


def _through(changes: Sequence[Change], row: Row) -> Row | None:
    found: Row | None = row
    for change in changes:
        if found is None:
            return None
        found = change(found)
    return found


def _filter(step: Kept, schema: pa.Schema) -> Change:
    true = condition(step.condition, schema, _NONE, rows=1)
    return lambda row: row if true(row, EMPTY) else None


def _maker(step: Made, schema: pa.Schema) -> Change:
    columns = [
        _copied(schema.get_field_index(given)) if isinstance(given, str) else _computed(given.value, field, schema)
        for field, given in step.columns
    ]
    return lambda row: Row(row.ts, row.key, tuple(column(row) for column in columns))


def _copied(at: int) -> Callable[[Row], Any]:
    return lambda row: row.values[at]


def _computed(given: Predicate, field: pa.Field, schema: pa.Schema) -> Callable[[Row], Any]:
    """The value of an expression as a row holds it: NULL where it is unknown, and no integer that its type has no place for."""
    if given.kind == "opaque":
        return _called(given, field, schema)
    of = value(given, schema)

    def computed(row: Row) -> Any:
        found = of(row).v
        if found is None or not pa.types.is_integer(field.type):
            return found if isinstance(found, (bool, str, bytes)) or found is None else float(found)
        number, bits = int(found), field.type.bit_width
        unsigned = str(field.type).startswith("u")
        low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= number <= high:
            raise DataError(
                f"The column {field.name!r} would be {number} in the row at ts {row.ts}, which is no {field.type}",
                why=f"{given.describe()} is computed exactly, and nothing is wrapped around or rounded silently",
                do="Cast an operand to float64, or leave such rows out with where",
            )
        return number

    return computed


def _called(given: Predicate, field: pa.Field, schema: pa.Schema) -> Callable[[Row], Any]:
    """A function that did not trace is not called on a row in which a column that it reads is NULL: that gives NULL."""
    function: Any = given.source
    at = [schema.get_field_index(name) for name in given.reads[0]]

    def called(row: Row) -> Any:
        if any(row.values[i] is None for i in at):
            return None
        try:
            found = function(View(row, schema))
        except DataError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", "column")
            raise RunError(
                f"The column {name!r} raised {type(error).__name__}: {error}",
                why=f"it was called with the tuple at ts {row.ts}",
            ) from error
        return None if found is None else stored(found, field.type, f"The column {field.name!r}")

    return called


class UnionMachine:
    """Gives out every tuple when its turn comes: by ts, then by input, then by its own key."""

    def __init__(self, bound: Bound) -> None:
        self.out: list[Row] = []
        # Where the union's columns stand in an input's rows: all but the time, which is the result's first column.
        self.places = []
        for each in bound.inputs:
            time = each.node.time if isinstance(each.node, Stream) else "ts"
            self.places.append([k for k, name in enumerate(each.schema.names) if not (name == "ts" == time)])

    def pass_time(self, ts: int) -> None:
        """Nothing waits."""

    def take(self, row: Row, input: int) -> None:
        values = (row.ts, *(row.values[k] for k in self.places[input]))
        self.out.append(Row(row.ts, ((row.ts, input, *row.key),), values))
