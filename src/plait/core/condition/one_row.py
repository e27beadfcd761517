"""Expressions of one row over whole batches: where a condition is true, and the column that an expression makes.

A traced expression and SQL text are evaluated over columns by `evaluate`. A function that did not trace is called row by row,
with Python's own values; not on a row in which a column that it reads is NULL, which then is not true, or gives NULL. Held by
tests/core/condition/test_one_row.py against the reference's reading of the same words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from plait.connectors.values import first_changed
from plait.core.condition import bounds
from plait.core.condition.columns import Interner, column
from plait.core.condition.evaluate import truth
from plait.core.condition.judge import GivenRow
from plait.core.condition.texts import Texts, of_rows
from plait.core.values import user_values
from plait.encodings import plain_type
from plait.errors import DataError, RunError
from plait.query.condition.expression import Column, Expr, Literal, walk
from plait.query.condition.predicate import Predicate


def holds(predicate: Predicate, rows: pa.RecordBatch | pa.Table, ts: np.ndarray) -> np.ndarray:
    """Where a condition on one row is true.

    A boolean array, one a row. Unknown (NULL, or a comparison with NaN) counts as not true.
    """
    n = len(ts)
    if predicate.expr is None:
        return np.array([bool(found) for found in _called(predicate, rows, ts, "condition")], bool)
    return np.broadcast_to(truth(_over(predicate, rows).value(predicate.expr)), n)


def values(predicate: Predicate, rows: pa.RecordBatch | pa.Table, ts: np.ndarray, field: pa.Field) -> pa.Array:
    """The column that an expression makes: NULL where it is unknown.

    An integer that its type can't hold stops the run: it is exact, or is told.
    """
    n, kind, expr = len(ts), field.type, predicate.expr
    if expr is None:
        return _typed(_called(predicate, rows, ts, "column"), field)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _over(predicate, rows).text(expr).cast(kind)
    found = _over(predicate, rows).value(expr)
    data, valid = np.broadcast_to(found.data, n), found.valid
    mask = None if valid is None else ~np.broadcast_to(valid, n)
    if pa.types.is_integer(kind):
        data = _fitting(data, kind, mask, ts, field, predicate)
    return pa.array(data.astype(kind.to_pandas_dtype(), copy=False), type=kind, mask=mask)


def _over(predicate: Predicate, rows: pa.RecordBatch | pa.Table) -> Texts:
    """An expression over a batch. Codes of text mean nothing outside."""
    assert predicate.expr is not None
    literals = [node.value for node in walk(predicate.expr) if isinstance(node, Literal)]
    interner = Interner({value for value in literals if isinstance(value, (str, bytes))})
    known: dict[Expr, Any] = {Column(0, c): column(rows.column(c), interner, c) for c in predicate.reads[0]}
    return Texts(of_rows(rows), known, interner, rows.num_rows)


def _fitting(data: np.ndarray, kind: pa.DataType, mask: np.ndarray | None, ts: np.ndarray, field: pa.Field,
             predicate: Predicate) -> np.ndarray:  # fmt: skip
    """Integers that the type holds; what lies under a NULL is not looked at."""
    low, high = bounds.WORDS[str(kind)]
    if len(data) and not bounds.fits(bounds.of_array(data), (low, high)):
        outside = (data < low) | (data > high)
        outside = outside.astype(bool) if mask is None else outside.astype(bool) & ~mask
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            raise overflow(field, int(data[at]), int(ts[at]), predicate)
        data = np.where((data < low) | (data > high), 0, data)
    return data


def overflow(field: pa.Field, value: int, ts: int, predicate: Predicate) -> DataError:
    """The error for an integer that a column can't hold."""
    return DataError(
        f"The column {field.name!r} would be {value} in the row at ts {ts}, which is no {field.type}",
        why=f"{predicate.describe()} is computed exactly, and nothing is wrapped around or rounded silently",
        do="Cast an operand to float64, or leave such rows out with where",
    )


def _typed(given: list[Any], field: pa.Field) -> pa.Array:
    """What a user's function returned, as the type that was declared: as it is, or refused."""
    kind = plain_type(field.type)
    try:
        made = pa.array(given, type=kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise DataError(
            f"The column {field.name!r} is declared {kind}, and its function returns something else", why=str(error)
        ) from error
    changed = first_changed(given, made, kind)
    if changed is not None:
        raise DataError(
            f"The column {field.name!r} is declared {kind}, and its function returns {given[changed[0]]!r}",
            why=f"it would become {changed[1]!r}, and nothing is converted silently",
        )
    return made


def _called(predicate: Predicate, rows: pa.RecordBatch | pa.Table, ts: np.ndarray, what: str) -> list[Any]:
    """What a user's function returns for each row; None where it is not called."""
    function: Callable[[Any], Any] = predicate.source  # type: ignore[assignment]  # an opaque one is no text
    reads = set(predicate.reads[0])
    # A column in nanoseconds may be none of microseconds: one that nobody asks for must not stop the run.
    seen = [f.name for f in rows.schema if f.name in reads or getattr(plain_type(f.type), "unit", None) != "ns"]
    columns = {name: user_values(rows.column(name)) for name in seen}
    out: list[Any] = [None] * len(ts)
    for k in range(len(ts)):
        row = {name: found[k] for name, found in columns.items()}
        if any(row[name] is None for name in reads):
            continue
        try:
            found = function(GivenRow(row))
            out[k] = bool(found) if what == "condition" else found
        except DataError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", what)
            raise RunError(
                f"The {what} {name!r} raised {type(error).__name__}: {error}",
                why=f"it was called with the tuple at ts {int(ts[k])}",
            ) from error
    return out
