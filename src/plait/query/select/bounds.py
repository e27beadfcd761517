"""The time bound of a join: which comparisons of its condition say how far apart two rows may be.

A comparison is a bound if it can be brought to the form `low <= right's clock - left's clock <= high`: sums and differences of
one clock of either side and of INTERVALs, `abs` of such a difference, `=`, `<`, `BETWEEN`. A strict `<` is one microsecond less.
With `least <= ts - value <= most` for both clocks, `right.ts - left.ts` lies between `low + right.least - left.most` and
`high + right.most - left.least`; that is the join's window. Where both clocks are exact the window says all that the
comparison says; else the comparison stays in the condition too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from plait.query.select.expressions import interval_us
from plait.query.select.relation import Clock, Relation
from plait.query.select.source import Source, identifier

#: A column as a join sees it: which side it is of, what it is called there, and what it tells of its row's ts.
Placed = tuple[int, str, Clock | None]


@dataclass(frozen=True)
class Bound:
    """`low <= right - left <= high` in microseconds, of two clocks; None is no limit."""

    node: exp.Expr
    left: str
    right: str
    low: int | None
    high: int | None


@dataclass(frozen=True)
class _Linear:
    """A sum of clocks, each with a sign, and of a number of microseconds."""

    signs: tuple[tuple[tuple[int, str], int], ...]
    us: int

    def minus(self, other: _Linear) -> _Linear:
        total = dict(self.signs)
        for key, sign in other.signs:
            total[key] = total.get(key, 0) - sign
        return _Linear(tuple((key, sign) for key, sign in total.items() if sign), self.us - other.us)


@dataclass(frozen=True)
class Reach:
    """A join's window, and the parts of its condition that it does not say."""

    before_us: int
    after_us: int
    rest: tuple[exp.Expr, ...]


class Bounds:
    """Finds bounds in the parts of a condition.

    Args:
        source: The text.
        find: Which side and clock a column of the text is.
    """

    def __init__(self, source: Source, find: Callable[[exp.Column], Placed]) -> None:
        self.source, self.find = source, find

    def read(self, node: exp.Expr) -> Bound | None:
        """The bound that a part of a condition is; None if it is none."""
        inner = node.unnest()
        match inner:
            case exp.Between() if not inner.args.get("symmetric"):
                low = self._compared(exp.GTE, inner.this, inner.args["low"])
                high = self._compared(exp.LTE, inner.this, inner.args["high"])
                return self._made(node, low, high)
            case exp.LT() | exp.LTE() | exp.GT() | exp.GTE() | exp.EQ():
                for value, limit, kind in (
                    (inner.this, inner.expression, type(inner)),
                    (inner.expression, inner.this, _TURNED[type(inner)]),
                ):
                    if isinstance(value, exp.Abs):
                        return self._around(node, kind, value.this, limit)
                return self._made(node, self._compared(type(inner), inner.this, inner.expression))
            case _:
                return None

    def _around(self, node: exp.Expr, kind: type, value: exp.Expr, limit: exp.Expr) -> Bound | None:
        """`abs(value) <= limit`, on both sides of 0."""
        if kind not in (exp.LT, exp.LTE):
            return None
        below = self._compared(kind, value, limit)
        return self._made(node, below, self._compared(_TURNED[kind], value, exp.Neg(this=limit.copy())))

    def _compared(self, kind: type, one: exp.Expr, other: exp.Expr) -> tuple[str, str, int | None, int | None] | None:
        """`one <kind> other` as left, right, low and high of a bound."""
        a, b = self._linear(one), self._linear(other)
        if a is None or b is None:
            return None
        total = a.minus(b)
        signs = {side: (name, sign) for (side, name), sign in total.signs}
        if len(total.signs) != 2 or len(signs) != 2 or signs[0][1] + signs[1][1] or abs(signs[0][1]) != 1:
            return None
        less, strict = kind in (exp.LT, exp.LTE, exp.EQ), kind in (exp.LT, exp.GT)
        more = kind in (exp.GT, exp.GTE, exp.EQ)
        positive = signs[1][1] == 1  # right - left + us <kind> 0; else left - right + us
        at = -total.us if positive else total.us
        low, high = (more, less) if positive else (less, more)
        return signs[0][0], signs[1][0], at + strict if low else None, at - strict if high else None

    def _linear(self, node: exp.Expr) -> _Linear | None:
        """A sum of clocks and spans of time; None if it is anything else."""
        match node:
            case exp.Paren():
                return self._linear(node.this)
            case exp.Interval():
                return _Linear((), interval_us(self.source, node))
            case exp.Column():
                side, name, clock = self.find(node)
                return None if clock is None else _Linear((((side, name), 1),), 0)
            case exp.Neg():
                inner = self._linear(node.this)
                return None if inner is None else _Linear((), 0).minus(inner)
            case exp.Add() | exp.Sub():
                a, b = self._linear(node.this), self._linear(node.expression)
                if a is None or b is None:
                    return None
                return a.minus(b) if isinstance(node, exp.Sub) else a.minus(_Linear((), 0).minus(b))
            case _:
                return None

    def _made(self, node: exp.Expr, *found: tuple[str, str, int | None, int | None] | None) -> Bound | None:
        """One bound of one or two comparisons of the same two clocks."""
        known = [each for each in found if each is not None]
        if len(known) != len(found) or len({each[:2] for each in known}) != 1:
            return None
        lows = [each[2] for each in known if each[2] is not None]
        highs = [each[3] for each in known if each[3] is not None]
        return Bound(node, *known[0][:2], max(lows, default=None), min(highs, default=None))


_TURNED: dict[type, type] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}


def reach(
    source: Source, bounds: list[Bound], sides: tuple[Relation, Relation], names: tuple[str, str]
) -> Reach | None:
    """The window that bounds make together; None if they leave a side open.

    Args:
        source: The text.
        bounds: At least one of them tells the least, and one the most.
        sides: The two inputs of the join.
        names: What its condition calls them.
    """
    spans = [_span(bound, sides) for bound in bounds]
    low = max((span[0] for span in spans if span[0] is not None), default=None)
    high = min((span[1] for span in spans if span[1] is not None), default=None)
    if low is None or high is None:
        return None
    if low > high:
        raise source.refuse(
            bounds[-1].node,
            "no two rows can be so far apart",
            why=f"at least {low} us and at most {high} us",
            do="Turn the bound",
        )
    before, after = max(0, -low), max(0, high)
    rest = [
        _condition(source, bound, sides, names)
        for bound, (least, most) in zip(bounds, spans, strict=True)
        if not (
            all(side.clocks[name].exact for side, name in zip(sides, (bound.left, bound.right), strict=True))
            and (least is None or -before >= least)
            and (most is None or after <= most)
        )
    ]
    return Reach(before, after, tuple(rest))


def _span(bound: Bound, sides: tuple[Relation, Relation]) -> tuple[int | None, int | None]:
    """What a bound says of `right.ts - left.ts`."""
    left, right = sides[0].clocks[bound.left], sides[1].clocks[bound.right]
    return (
        None if bound.low is None else bound.low + right.least - left.most,
        None if bound.high is None else bound.high + right.most - left.least,
    )


def _condition(source: Source, bound: Bound, sides: tuple[Relation, Relation], names: tuple[str, str]) -> exp.Expr:
    """A bound as a condition on the two columns, in whole numbers of what they count."""
    scales = []
    for side, column in zip(sides, (bound.left, bound.right), strict=True):
        scale = side.clocks[column].scale
        if scale is None:
            raise source.refuse(
                bound.node,
                f"nothing tells what the column {column!r} counts",
                why="a bound that is no window of its own stays in the condition, which compares the columns as they are",
                do="Declare the stream's columns: plait.stream(..., schema={...})",
            )
        scales.append(scale)
    whole = math.lcm(*(scale.denominator for scale in scales))
    left, right = (
        _times(exp.column(identifier(column), table=identifier(name)), scale * whole)
        for column, name, scale in zip((bound.left, bound.right), names, scales, strict=True)
    )
    apart = exp.Sub(this=right, expression=left)
    if bound.low == bound.high:  # an equality has an index of its own
        same = (right, left) if bound.low == 0 else (apart, exp.convert((bound.low or 0) * whole))
        return exp.EQ(this=same[0], expression=same[1])
    limits = [
        kind(this=apart.copy(), expression=exp.convert(limit * whole))
        for kind, limit in ((exp.GTE, bound.low), (exp.LTE, bound.high))
        if limit is not None
    ]
    return exp.and_(*limits)


def _times(column: exp.Expr, factor: Fraction) -> exp.Expr:
    return column if factor == 1 else exp.Mul(this=column, expression=exp.convert(int(factor)))
