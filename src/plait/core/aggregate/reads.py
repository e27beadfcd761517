"""Which columns an aggregate reads of its tuples, or a dedup of its keys, and an aggregate's conditions on one row.

Columns that functions add up or compare are laid out as arrays (`core.aggregate.columns`); those whose rows a function keeps
stay in Arrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from plait.core.aggregate.columns import Read, bits_of, is_fixed, ones
from plait.core.aggregate.functions import Use, keeps_rows
from plait.core.condition.one_row import holds
from plait.query.aggregate import Aggregate
from plait.query.condition.predicate import Predicate
from plait.query.dedup import Dedup

_NONE = pa.schema([])


def uses(node: Aggregate, schema: pa.Schema, rows: Any = None) -> list[Use]:
    """The functions of an aggregate, with the numbers of their conditions. `rows`: see `Use`."""
    out, condition = [], 0
    for name, function in node.compute:
        own = None
        if function.where is not None:
            own, condition = condition, condition + 1
        out.append(Use(function, schema, own, rows, name))
    return out


class Columns:
    """Which columns an aggregate reads, and how. `varied` are those that stay in Arrow.

    `fixed` are the columns laid out as arrays, in the order of the arrays; `conditions` the conditions of functions,
    bound to the schema, in the order of the functions that have one. A column may be in both `fixed` and `varied`: a key
    that is also collected is read as bits and kept as a row.
    """

    def __init__(self, node: Aggregate | Dedup, schema: pa.Schema) -> None:
        self.schema = schema
        fixed: dict[str, None] = {}
        varied: dict[str, None] = {}
        self.conditions: list[Predicate] = []
        for name in node.by:
            (fixed if is_fixed(schema.field(name).type) else varied)[name] = None
        for _, function in node.compute if isinstance(node, Aggregate) else ():
            rows = keeps_rows(function)
            for name in function.columns:
                (varied if rows or not is_fixed(schema.field(name).type) else fixed)[name] = None
            if function.where is not None:
                self.conditions.append(function.where.bind(schema, _NONE))
        self.fixed, self.varied = tuple(fixed), tuple(varied)

    def needed(self) -> list[str]:
        """All that conditions and functions may look at, in the schema's order; one that was not traced, at any."""
        seen = {*self.fixed, *self.varied}
        for condition in self.conditions:
            seen |= set(self.schema.names if condition.expr is None else condition.reads[0])
        return [name for name in self.schema.names if name in seen]

    def layout(self) -> list[tuple[str, str]]:
        """The arrays of a batch, as `arrays` gives them: name and type.

        int64 bits and uint8 validity for each fixed column, then one uint8 for each condition: the layout of a source's
        arena on threads, where these arrays travel instead of Arrow.
        """
        found = [part for name in self.fixed for part in ((name, "int64"), (f"{name}?", "uint8"))]
        return found + [(f"where {k}", "uint8") for k in range(len(self.conditions))]

    def arrays(self, rows: pa.RecordBatch | pa.Table, ts: np.ndarray) -> list[np.ndarray]:
        """What `layout` names, of one batch. A condition is evaluated here, once a tuple, before the tuple is put in any
        order: it depends on the row alone.
        """
        n, out = len(ts), []
        for name in self.fixed:
            bits, valid = bits_of(rows.column(name))
            out += [bits, ones(n) if valid is None else valid]
        return out + [holds(condition, rows, ts).astype(np.uint8) for condition in self.conditions]

    def read(self, arrays: list[np.ndarray], n: int) -> Read:
        """The arrays as functions read them; `n` is their length, which there may be no array to tell."""
        bits = {name: (arrays[2 * k], arrays[2 * k + 1]) for k, name in enumerate(self.fixed)}
        return Read(bits, arrays[2 * len(self.fixed) :], ones(n))
