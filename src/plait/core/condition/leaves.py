"""What each row contributes to a pair: its leaves, whether it can match at all, and its keys.

A *leaf* is a largest part of the condition that reads one side only (`l.x`, `r.a + 10`, `r.kind % 3 == 0`). Leaves are
computed once a row, as it enters; kernels only combine leaves, so nothing one-sided is ever computed per pair.
A row is *alive* if its filters are true and no leaf is NULL that every match needs. Rows that are not alive match
nothing: indexes leave them out, scans mask them. (They still hold their place in count windows.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from plait.core.condition.terms import Terms, folded, sides_of, terms
from plait.query.condition.expression import Binary, Case, Column, Concat, Expr, Literal, Text, Unary, children, walk
from plait.query.condition.predicate import Predicate
from plait.query.condition.types import Sides, column_type, infer


@dataclass(frozen=True)
class Leaf:
    """`needed`: a pair can't match if it is NULL, so `alive` covers its NULLs and kernels need no mask for it.

    `expr` reads side `side` alone, `kind` is its type's name as in `query.condition.types`.
    """

    side: int
    expr: Expr
    kind: str
    needed: bool


@dataclass(frozen=True)
class Shape:
    """A bound condition taken apart. For an opaque function the leaves are the columns it reads.

    `schemas` are those of the left and the right rows; `leaves[side]` in the order in which kernels get them. Everything
    that depends on the condition and not on the data is here; `words.Signature` has what depends on the data.
    """

    predicate: Predicate
    schemas: Sides
    terms: Terms
    leaves: tuple[tuple[Leaf, ...], tuple[Leaf, ...]]

    @cached_property
    def opaque(self) -> bool:
        return self.predicate.expr is None

    @cached_property
    def spelled(self) -> tuple[str, pa.Schema, pa.Schema] | None:
        """What a tree's kernels are made from, besides a signature: equal ones have equal kernels. None for a function.

        By its spelling: as values 1, 1.0 and true are equal, and as constants of a condition they are not.
        """
        return None if self.predicate.expr is None else (repr(self.predicate.expr), *self.schemas)

    @cached_property
    def leaf_of(self) -> dict[Expr, tuple[int, int]]:
        """Where an expression's values are: (side, position among that side's leaves)."""
        return {leaf.expr: (side, k) for side in (0, 1) for k, leaf in enumerate(self.leaves[side])}

    def reads(self, side: int) -> tuple[str, ...]:
        """The columns that filters, leaves and keys of one side are computed from."""
        return tuple(dict.fromkeys(self.predicate.reads[side]))

    @cached_property
    def literals(self) -> tuple[str | bytes, ...]:
        """Text and bytes constants, whose codes kernels know."""
        if self.predicate.expr is None:
            from plait.core.condition.opaque import constants

            return constants(self)
        nodes = walk(self.predicate.expr)
        found = (n.value for n in nodes if isinstance(n, Literal) and isinstance(n.value, (str, bytes)))
        return tuple(dict.fromkeys(found))

    @cached_property
    def joins_text(self) -> bool:
        """Whether text is computed of both rows of a pair, which no kernel can."""
        nodes = (node for part in self.terms.pair for node in walk(part))
        return any(isinstance(node, (Text, Concat)) and len(sides_of(node)) == 2 for node in nodes)


def shape(predicate: Predicate, left: pa.Schema, right: pa.Schema) -> Shape:
    """Take a condition apart; it must have been bound to these schemas.

    The same expression in two places is one leaf. It is needed if any of its places needs it.
    """
    schemas = (left, right)
    if predicate.expr is None:
        return _opaque_shape(predicate, schemas)
    predicate = replace(predicate, expr=folded(predicate.expr))
    assert predicate.expr is not None
    found = terms(predicate.expr, schemas, predicate.names[:2])
    every: dict[Expr, bool] = {}
    for part in found.pair:
        for expr, needed in _leaves(part):
            every[expr] = every.get(expr, False) or needed
    leaves: tuple[list[Leaf], list[Leaf]] = ([], [])
    for expr, needed in every.items():
        (side,) = sides_of(expr)
        leaves[side].append(Leaf(side, expr, infer(expr, schemas), needed))
    return Shape(predicate, schemas, found, (tuple(leaves[0]), tuple(leaves[1])))


def _opaque_shape(predicate: Predicate, schemas: Sides) -> Shape:
    leaves: tuple[list[Leaf], list[Leaf]] = ([], [])
    for side in (0, 1):
        for name in predicate.reads[side]:
            kind = column_type(schemas[side].field(name).type)
            assert kind is not None  # bind has refused such columns
            leaves[side].append(Leaf(side, Column(side, name), kind, True))
    return Shape(predicate, schemas, Terms(((), ()), ()), (tuple(leaves[0]), tuple(leaves[1])))


#: What a part of a condition must be for a pair to match: true, or at least not NULL; or it may be anything.
TRUE, KNOWN, ANYTHING = "true", "known", "anything"


def _leaves(expr: Expr, must: str = TRUE) -> list[tuple[Expr, bool]]:
    """The leaves below a part that reads both sides, and whether a pair can only match if they are not NULL.

    A conjunction is true only if both its parts are; but it is known, namely false, as soon as one of them is false, whatever the
    other one is. So what stands below a conjunction is needed only where that must be true.
    """
    if len(sides_of(expr)) == 1:
        return [(expr, must != ANYTHING)]
    match expr:
        case Binary("and", _, _):
            below = TRUE if must == TRUE else ANYTHING
        case Binary("or" | "least" | "greatest", _, _) | Unary("not" | "is_null", _) | Case():
            below = ANYTHING
        case _:
            below = KNOWN if must != ANYTHING else ANYTHING
    return [found for child in children(expr) for found in _leaves(child, below)]
