"""What a condition reads of a side, as a table for compiled code (`input.given`), if it reads plain columns of numbers alone.

`core.join.encoded` says what becomes of rows in general, in NumPy; this is the same for the usual ones: no NULL, no NaN, integers
within what was seen before. tests/threads/input/test_short.py holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from plait.core.condition import native
from plait.core.condition.bounds import INT64, Interval, fits
from plait.core.condition.leaves import Shape
from plait.core.condition.terms import Band
from plait.core.condition.words import Signature
from plait.core.join.encoded import LARGEST
from plait.query.condition.expression import Column, Expr
from plait.query.condition.types import is_float, is_int
from plait.threads import words as shared
from plait.threads.input import given
from plait.threads.input.short import KINDS, Reads

_TO: Final = {
    "int32": given.TO_INT32,
    "int64": given.TO_INT64,
    "float32": given.TO_FLOAT32,
    "float64": given.TO_FLOAT64,
}


def reads_of(shape: Shape, dimensions: Sequence[Band], signature: Signature, intervals: Sequence[Interval | None],
             side: int) -> Reads | None:  # fmt: skip
    """A side's table; None where something is no plain column of numbers, or no rows have been seen.

    `intervals`: by leaf, where integers lie that the side's words are known to hold.
    """
    terms = shape.terms
    if terms.never or terms.filters[side]:
        return None
    table, limits = _Table(shape, side), []
    for k, leaf in enumerate(shape.leaves[side]):
        word, interval = signature.words[side][k], intervals[k]
        if word not in _TO or (is_int(leaf.kind) and (interval is None or not fits(interval, INT64))):
            return None
        table.add(leaf.expr, _TO[word], f"leaf{k}", interval or (0, 0))
    for part, term in enumerate(terms.equalities):
        expr = term.left if side == 0 else term.right
        if not (is_int(term.kind) or (is_float(term.kind) and table.is_float(expr))):
            return None
        table.add(expr, given.TO_KEY_MIXED if part else given.TO_KEY, shared.A_KEY)
    for at, band in enumerate(dimensions):
        limits.append(LARGEST[band.kind])
        table.add(band.left if side == 0 else band.right, given.TO_COORDINATE, shared.A_X + at, limit=at)
    names = [name for name, _ in native.columns(signature, side)] + ["alive"] * signature.alive[side]
    for name in names:
        if not name.startswith("leaf"):
            table.flags(name)
    if terms.equalities or dimensions:
        table.flags(shared.A_USABLE)
    return table.made(names, np.array(limits or [0.0]))


class _Table:
    """Rows as they are found. `plain`: all so far are columns that compiled code reads."""

    def __init__(self, shape: Shape, side: int) -> None:
        self._schema, self._side, self.plain = shape.schemas[side], side, True
        self._rows: list[list[int | str]] = []

    def _kind(self, expr: Expr) -> int | None:
        if not isinstance(expr, Column) or expr.side != self._side:
            return None
        return KINDS.get(self._schema.field(expr.name).type)

    def is_float(self, expr: Expr) -> bool:
        kind = self._kind(expr)
        return kind is not None and kind >= given.FLOAT32

    def add(self, expr: Expr, to: int, at: int | str, interval: Interval = INT64, limit: int = 0) -> None:
        kind = self._kind(expr)
        if kind is None or not isinstance(expr, Column):
            self.plain = False
            return
        column = self._schema.get_field_index(expr.name)
        self._rows.append([column, kind, to, at, *interval, limit])

    def flags(self, at: int | str) -> None:
        self._rows.append([0, 0, given.TO_FLAGS, at, 0, 0, 0])

    def made(self, names: list[str], limits: np.ndarray) -> Reads | None:
        """The table, with the places that the columns of these names have in an arena's row."""
        if not self.plain:
            return None
        for row in self._rows:
            if isinstance(at := row[given.READ_AT], str):
                row[given.READ_AT] = shared.A_COLUMNS + names.index(at)
        return Reads(np.array(self._rows, np.int64).reshape(-1, given.READ_WORDS), limits)
