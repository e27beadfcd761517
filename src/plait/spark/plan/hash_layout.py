"""`layout="hash"`: tuples go to the cell that their equality terms' values name, so equal values meet and none is copied.
Tuples of an aggregate go by the values of its key, NULL and NaN among them.

Only that equal values get equal words matters here; whether a pair matches is still the condition's to say.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.core.condition.terms import terms
from plait.core.values import distinct_values
from plait.errors import QueryError
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.expression import Column
from plait.query.join import Asof, Join
from plait.query.types import column_type, is_float, is_int
from plait.spark.plan.layout import mix


@dataclass(frozen=True)
class HashColumns:
    """For each input the columns to hash, and the form in which both sides' values are compared."""

    columns: tuple[tuple[str, ...], ...]
    forms: tuple[str, ...]  # "float", "int" or "value"


def hash_columns(bound: Bound) -> HashColumns:
    """The equality terms of a query that are plain columns; refused if it has none."""
    node = bound.node
    if isinstance(node, Aggregate):
        kinds = [column_type(bound.inputs[0].schema.field(name).type) or "" for name in node.by]
        return HashColumns((node.by,), tuple(_form(kind, kind) for kind in kinds))
    left, right = (i.schema for i in bound.inputs)
    pairs: list[tuple[str, str]] = []
    if isinstance(node, Asof):
        pairs = list(node.by)
    elif isinstance(node, Join) and bound.predicate is not None and bound.predicate.expr is not None:
        for term in terms(bound.predicate.expr, (left, right)).equalities:
            if isinstance(term.left, Column) and isinstance(term.right, Column):
                pairs.append((term.left.name, term.right.name))
    if not pairs:
        raise QueryError(
            "layout='hash', and the query has no equality of two columns",
            why="tuples go by the values that must be equal",
            do="Use layout='auto' or a grid (m, n)",
        )
    forms = tuple(
        _form(column_type(left.field(a).type) or "", column_type(right.field(b).type) or "") for a, b in pairs
    )
    return HashColumns((tuple(a for a, _ in pairs), tuple(b for _, b in pairs)), forms)


_MICROS = {"day": 86_400_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}


def _form(a: str, b: str) -> str:
    if is_float(a) or is_float(b):
        return "float"
    return "int" if is_int(a) and is_int(b) else "value"


def words(plan: HashColumns, input: int, table: pa.Table) -> np.ndarray:
    """One 64-bit word a row: equal values of the columns give equal words."""
    total = np.zeros(table.num_rows, np.uint64)
    for name, form in zip(plan.columns[input], plan.forms, strict=True):
        column = table.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        total = mix(total ^ _column_words(column, form))
    return total


def _column_words(column: pa.Array, form: str) -> np.ndarray:
    found: np.ndarray
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.uint64)
    if form == "value":
        encoded = pc.dictionary_encode(column)
        codes = [_code(value) for value in encoded.dictionary.to_pylist()]
        lookup = np.array([*codes, 0], np.uint64)
        found = lookup[pc.fill_null(encoded.indices, len(codes)).to_numpy(zero_copy_only=False)]
        return found
    if pa.types.is_temporal(column.type) and not pa.types.is_time(column.type):
        return _moment_words(column, form)
    if form == "float":
        numbers = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
        numbers = numbers + 0.0
        numbers[np.isnan(numbers)] = np.nan  # of whose many forms one stands for all
        found = numbers.view(np.uint64)
        return found
    filled = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    unsigned = pa.types.is_unsigned_integer(column.type)
    found = filled.astype(np.uint64) if unsigned else filled.astype(np.int64).view(np.uint64)
    return found


def _moment_words(column: pa.Array, form: str) -> np.ndarray:
    """Moments, days and spans as microseconds, of which the far ones have more than 64 bits hold.

    As integers these wrap: equal ones still have equal words, and another that has the same word only shares a cell. As floats
    each is rounded once, from the exact number, as where a condition compares them.
    """
    kind = column.type
    unit = "day" if pa.types.is_date32(kind) else "ms" if pa.types.is_date64(kind) else kind.unit
    if form == "float" or unit == "ns":
        places, values = distinct_values(column, as_float=form == "float")  # refuses what is no whole microsecond
        made = np.array([*(0 if v is None else v for v in values), 0], np.float64 if form == "float" else np.int64)
        found: np.ndarray = (made[places] + (0.0 if form == "float" else 0)).view(np.uint64)
        return found
    stored = pc.fill_null(column.view(pa.int32() if unit == "day" else pa.int64()), 0).to_numpy(zero_copy_only=False)
    found = stored.astype(np.int64).view(np.uint64) * np.uint64(_MICROS[unit])
    return found


def _code(value: bool | str | bytes) -> int:
    if isinstance(value, bool):
        return int(value)
    return zlib.crc32(value.encode() if isinstance(value, str) else value)
