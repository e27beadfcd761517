"""`layout="hash"`: tuples go to the cell that their equality terms' values name, so equal values meet and none is copied.
Tuples of an aggregate go by the values of its key, NULL and NaN among them.

Only that equal values get equal words matters here; whether a pair matches is still the condition's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from plait.core.condition.terms import terms
from plait.core.values import Form, compared_as, key_words
from plait.errors import QueryError
from plait.query.aggregate import Aggregate
from plait.query.bind import Bound
from plait.query.expression import Column
from plait.query.join import Asof, Join
from plait.spark.plan.layout import mix


@dataclass(frozen=True)
class HashColumns:
    """For each input the columns to hash, and the form in which both sides' values are compared."""

    columns: tuple[tuple[str, ...], ...]
    forms: tuple[Form, ...]


def hash_columns(bound: Bound) -> HashColumns:
    """The equality terms of a query that are plain columns; refused if it has none.

    For an as-of join these are `by`. For an aggregate without `by` there is no column: all words are equal, and one cell
    has all. Terms that are expressions, such as `a.x + 1 = b.y`, are not used.
    """
    node = bound.node
    if isinstance(node, Aggregate):
        kinds = [bound.inputs[0].schema.field(name).type for name in node.by]
        return HashColumns((node.by,), tuple(compared_as(kind, kind) for kind in kinds))
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
    forms = tuple(compared_as(left.field(a).type, right.field(b).type) for a, b in pairs)
    return HashColumns((tuple(a for a, _ in pairs), tuple(b for _, b in pairs)), forms)


def words(plan: HashColumns, input: int, table: pa.Table) -> np.ndarray:
    """One 64-bit word a row: equal values of the columns give equal words."""
    total = np.zeros(table.num_rows, np.uint64)
    for name, form in zip(plan.columns[input], plan.forms, strict=True):
        total = mix(total ^ key_words(table.column(name), form))
    return total
