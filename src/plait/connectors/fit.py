"""Do these columns fit that schema? The one place where data from outside is held against what is expected.

Columns are found by name and put in the schema's order. A type has to be the very one, except that values are the same
however they are laid out (`encodings`), and text is text and bytes are bytes (`large_string` or `string`): which of those a
writer chose says nothing about the values. Nothing else is converted: a silent cast would hide a broken feed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from plait.encodings import plain_array, plain_schema, plain_type
from plait.errors import DataError
from plait.schema import is_text

_DECLARE: Final = "Make them agree, or declare the columns you want with schema= if only some are needed"


@dataclass(frozen=True)
class Wanted:
    """The columns a stream's data must have. `by` says in errors who wants them: "schema= declares", "'a.csv' has".

    `exact` refuses columns beside them: without a declared schema nobody has said that those may be left out.
    """

    schema: pa.Schema
    by: str
    exact: bool


def plain(schema: pa.Schema) -> pa.Schema:
    """Without metadata, with every column nullable and in its plain layout: how a writer labelled and packed its file is no
    part of the data."""
    return pa.schema([pa.field(field.name, field.type) for field in plain_schema(schema)])


def check_unique(schema: pa.Schema, what: str) -> None:
    """Refuse two columns of one name: a column is found by its name."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise DataError(f"{what} has two columns called {name!r}", why="columns are found by name", do="Rename one")
        seen.add(name)


def check_fit(given: pa.Schema, wanted: Wanted, what: str) -> None:
    """Refuse a schema that lacks a wanted column, or has it in another type; `what` is the data at fault."""
    check_unique(given, what)
    for field in wanted.schema:
        if field.name not in given.names:
            raise DataError(
                f"{what} has no column {field.name!r} ({field.type}), which {wanted.by}",
                why=f"its columns are {', '.join(given.names)}",
                do=_DECLARE,
            )
        kind = given.field(field.name).type
        if not same_kind(kind, field.type):
            raise DataError(
                f"{what}: column {field.name!r} is {kind}, and {wanted.by} it as {field.type}",
                why="a stream has one type a column, and nothing is converted silently",
                do="Convert the column where the data is made, or declare its type with schema=",
            )
    for name in given.names if wanted.exact else ():
        if name not in wanted.schema.names:
            raise DataError(
                f"{what} has a column {name!r}, which is not among those that {wanted.by}",
                why="a stream has the same columns throughout",
                do=_DECLARE,
            )


def same_kind(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Types of the same values: equal in their plain layouts, or two layouts of text, or two of bytes."""
    if given == wanted:
        return True
    values = [plain_type(kind) for kind in (given, wanted)]
    return values[0] == values[1] or all(map(is_text, values)) or all(map(_is_bytes, values))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def fit(batch: pa.RecordBatch, schema: pa.Schema, where: str, first_row: int) -> pa.RecordBatch:
    """The batch in exactly this schema; its columns have passed `check_fit`. Free where nothing has to change."""
    columns = []
    for field in schema:
        column = batch.column(batch.schema.get_field_index(field.name))
        if column.type != field.type:
            column = plain_array(column)
        if column.type != field.type:
            column = column.cast(field.type)
        if column.null_count and not field.nullable:
            row = first_row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"{where or 'The data'}, row {row}: column {field.name!r} is NULL",
                why="its schema= says that it never is",
                do="Mend the row, or make the column nullable",
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
