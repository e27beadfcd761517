"""A condition as a conjunction of terms: what an index can use, and what is left.

A term is a conjunct of the condition, so a pair matches only if every term is true. That gives an index its freedom: it
may offer a pair too many, since every candidate is judged by the whole condition, and must never miss one. Bounds here
are therefore real numbers without rounding; `slop` says by how much rounding may have moved a difference.

    equality    f(l) == g(r)
    band        lo <= f(l) - g(r) <= hi      abs(f - g) <= c, BETWEEN, two inequalities over the same f and g
    inequality  one of the two bounds is infinite
    filter      reads one side only
    rest        everything else

Example: `abs(l.x - r.a) <= 10 and l.k == r.k and l.x > 0 and l.y * r.b > 3` has a band -10 <= l.x - r.a <= 10, an
equality, a filter on the left side, and a rest. tests/core/condition/test_terms.py has every spelling of a band.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from plait.core.condition.columns import Interner
from plait.core.condition.evaluate import Array, as_float, truth
from plait.core.condition.texts import Texts
from plait.query.condition.expression import (
    Binary,
    Case,
    Cast,
    Concat,
    Expr,
    Literal,
    Text,
    Unary,
    columns,
    rebuilt,
    text,
    walk,
)
from plait.query.condition.types import Sides, infer, is_number, promote

_FLIPPED: Final = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_LARGEST: Final = {"float32": 1e30, "float64": 1e290}  # beyond, sums with constants may overflow the type


@dataclass(frozen=True)
class Equality:
    """`kind` is the type in which the two are compared."""

    left: Expr
    right: Expr
    kind: str


@dataclass(frozen=True)
class Band:
    """`low <= left - right <= high`; `weight` sums the sizes of the constants in it, `eps` is the unit of rounding.

    `weight` and `eps` bound how far rounding may have moved the difference: by eps * (sizes of the operands + weight).
    `kind` is float32 if any step is computed in it. Either bound may be infinite.
    """

    left: Expr
    right: Expr
    low: float
    high: float
    eps: float
    weight: float
    kind: str

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True)
class Terms:
    """`conjuncts` are the whole condition; `pair` those that need both rows, in the order of the condition.

    `filters` are by side. `never`: a conjunct without columns is not true, so no pair ever matches. Every conjunct that
    reads both sides is in `pair`, and also in one of `equalities`, `bands`, `inequalities` or `rest`.
    """

    filters: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    pair: tuple[Expr, ...]
    equalities: tuple[Equality, ...] = ()
    bands: tuple[Band, ...] = ()
    inequalities: tuple[Band, ...] = ()
    rest: tuple[Expr, ...] = ()
    never: bool = False
    names: tuple[str, str] = field(default=("left", "right"), compare=False)

    def describe(self) -> list[str]:
        """One line a term, for `explain`."""
        lines = [f"equality: {text(e.left, self.names)} = {text(e.right, self.names)}" for e in self.equalities]
        for word, found in (("band", self.bands), ("inequality", self.inequalities)):
            for b in found:
                low = "" if b.low == -math.inf else f"{b.low:g} <= "
                high = "" if b.high == math.inf else f" <= {b.high:g}"
                lines.append(f"{word}: {low}{text(b.left, self.names)} - {text(b.right, self.names)}{high}")
        for side, kept in enumerate(self.filters):
            lines += [f"filter on {self.names[side]}: {text(e, self.names)}" for e in kept]
        return lines + [f"rest: {text(e, self.names)}" for e in self.rest]


def conjuncts(expr: Expr) -> list[Expr]:
    """The parts that must all be true. A negation moves inwards: a comparison and its flip are unknown together.

    `not (a or b)` is `not a` and `not b`, also in three-valued logic. `not (a and b)` is no conjunction and stays whole.
    """
    match expr:
        case Binary("and", a, b):
            return conjuncts(a) + conjuncts(b)
        case Unary("not", Binary("or", a, b)):
            return conjuncts(Unary("not", a)) + conjuncts(Unary("not", b))
        case Unary("not", Unary("not", a)):
            return conjuncts(a)
        case Unary("not", Binary(op, a, b)) if op in _FLIPPED:
            return [Binary(_FLIPPED[op], a, b)]
        case _:
            return [expr]


def sides_of(expr: Expr) -> frozenset[int]:
    """The sides that an expression reads: 0 for left, 1 for right; empty for a constant."""
    return frozenset(c.side for c in columns(expr) if c.side is not None)


def terms(expr: Expr, schemas: Sides, names: tuple[str, str] = ("left", "right")) -> Terms:
    """Sort the conjuncts of a resolved condition."""
    filters: tuple[list[Expr], list[Expr]] = ([], [])
    pair, equalities, rest, ranges, never = [], [], [], _Ranges(schemas), False
    for part in conjuncts(expr):
        sides = sides_of(part)
        if not sides:
            never = never or not _constant_truth(part)
        elif len(sides) == 1:
            filters[min(sides)].append(part)
        else:
            pair.append(part)
            equality = _equality(part, schemas)
            if equality is not None:
                equalities.append(equality)
            elif not ranges.take(part):
                rest.append(part)
    bands, inequalities = ranges.found()
    one_sided = (tuple(filters[0]), tuple(filters[1]))
    return Terms(one_sided, tuple(pair), tuple(equalities), bands, inequalities, tuple(rest), never, names)


def shares_line(expr: Expr | None) -> str | None:
    """What both rows of a pair have in common, by a condition whose columns may not be known yet: "hash" where it has an
    equality, "range" where it has a band, None where neither is seen. Types may still forbid it: `terms` has the last word.
    """
    ranges = _Untyped(())  # type: ignore[arg-type]
    for part in conjuncts(expr) if expr is not None else ():
        match part:
            case Binary("eq", a, b) if {sides_of(a), sides_of(b)} == {frozenset({0}), frozenset({1})}:
                return "hash"
            case _ if len(sides_of(part)) == 2:
                ranges.take(part)
    return "range" if ranges.found()[0] else None


def constant(expr: Expr) -> Array:
    """The value of an expression that reads no column, as an array of one row."""
    return _of_constants(expr).value(expr)


def folded(expr: Expr) -> Expr:
    """The same with every function of text that reads no column computed. So what is left of text can be told by a code."""
    made = rebuilt(expr, folded)
    if not isinstance(made, (Text, Concat, Case)) or sides_of(made):
        return made
    if isinstance(made, Case) and not any(
        isinstance(v, Literal) and isinstance(v.value, (str, bytes)) for v in made.values
    ):
        return made
    found = Literal(_of_constants(made).text(made)[0].as_py())
    return Cast(found, "int64") if isinstance(found.value, int) and not isinstance(found.value, bool) else found


def _of_constants(expr: Expr) -> Texts:
    values = (node.value for node in walk(expr) if isinstance(node, Literal))
    return Texts(lambda _: None, {}, Interner({each for each in values if isinstance(each, (str, bytes))}), 1)


def _constant_truth(expr: Expr) -> bool:
    return bool(truth(constant(expr))[0])


def _constant_number(expr: Expr) -> float:
    value = constant(expr)
    if not is_number(value.kind) or not (value.valid is None or value.valid[0]):
        return math.inf
    return float(as_float(value, "float64")[0])


def _equality(part: Expr, schemas: Sides) -> Equality | None:
    match part:
        case Binary("eq", a, b) if sides_of(a) == {0} and sides_of(b) == {1}:
            left, right = a, b
        case Binary("eq", a, b) if sides_of(a) == {1} and sides_of(b) == {0}:
            left, right = b, a
        case _:
            return None
    kinds = infer(left, schemas), infer(right, schemas)
    if "null" in kinds:
        return None
    return Equality(left, right, promote(*kinds) if is_number(kinds[0]) else kinds[0])


# --- differences --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Difference:
    """sign * (left - right) + offset, with the constants' total size in `weight`."""

    left: Expr
    right: Expr
    sign: int
    offset: float
    weight: float


def _difference(expr: Expr) -> _Difference | None:
    """An expression as a signed difference of one part of each side, or None if it is none."""
    parts: list[tuple[int, Expr]] = []
    offset, weight = _collect(expr, 1, parts)
    if len(parts) != 2 or not math.isfinite(weight):
        return None
    (s0, e0), (s1, e1) = sorted(parts, key=lambda p: min(sides_of(p[1])))
    if sides_of(e0) != {0} or sides_of(e1) != {1} or s0 == s1:
        return None
    return _Difference(e0, e1, s0, offset, weight)


def _collect(expr: Expr, sign: int, parts: list[tuple[int, Expr]]) -> tuple[float, float]:
    """Take a sum apart. Walks down sums, differences and signs, and gives the constants' sum and the sum of their sizes.
    What is left goes to `parts` with its sign. A part that reads both sides has an infinite weight, which spoils the
    difference.
    """
    if not sides_of(expr):
        number = _constant_number(expr)
        return sign * number, abs(number)  # what is no number has an infinite weight, and spoils the difference
    match expr:
        case Binary("add" | "sub" as op, a, b) if _linear(expr):
            o1, w1 = _collect(a, sign, parts)
            o2, w2 = _collect(b, sign if op == "add" else -sign, parts)
            return o1 + o2, w1 + w2
        case Unary("neg", a):
            return _collect(a, -sign, parts)
        case _:
            parts.append((sign, expr))
            return 0.0, (0.0 if len(sides_of(expr)) == 1 else math.inf)


def _linear(expr: Binary) -> bool:
    """Whether to look inside a sum: it reads both sides, or adds a constant; `l.x + l.y` stays whole."""
    return len(sides_of(expr)) == 2 or not sides_of(expr.left) or not sides_of(expr.right)


class _Ranges:
    """Bounds on differences, gathered over all conjuncts: two of them over the same parts make a band."""

    def __init__(self, schemas: Sides) -> None:
        self.schemas = schemas
        self.bands: dict[tuple[Expr, Expr], Band] = {}

    def take(self, part: Expr) -> bool:
        match part:
            case Binary("lt" | "le" | "gt" | "ge" | "eq" as op, a, b):
                for x, bound, flip in ((a, b, False), (b, a, True)):
                    if isinstance(x, Unary) and x.op == "abs" and not sides_of(bound):
                        return self._absolute(x.arg, bound, op, flip, part)
                return self._compare(a, b, op)
            case _:
                return False

    def _absolute(self, inner: Expr, bound: Expr, op: str, flip: bool, part: Expr) -> bool:
        """abs(d) <= c"""
        upper = op in (("gt", "ge", "eq") if flip else ("lt", "le", "eq"))
        size = _constant_number(bound)
        found = _difference(inner)
        if not upper or found is None or not math.isfinite(size):
            return False
        return self._add(found, -size, size, abs(size), part)

    def _compare(self, a: Expr, b: Expr, op: str) -> bool:
        """a <op> b, read as a - b <op> 0."""
        part = Binary(op, a, b)
        found = _difference(Binary("sub", a, b))
        if found is None:
            return False
        low = 0.0 if op in ("gt", "ge", "eq") else -math.inf
        high = 0.0 if op in ("lt", "le", "eq") else math.inf
        return self._add(found, low, high, 0.0, part)

    def _add(self, d: _Difference, low: float, high: float, weight: float, part: Expr) -> bool:
        """Take in a bound on a difference. The bounds move by the difference's own constants: l.x + 3 <= r.a is l.x - r.a
        <= -3. A second bound over the same parts narrows the first. Constants so large that a sum may overflow make no
        band: then it is judged pair by pair.
        """
        kind = self._kind(part)
        total = d.weight + weight
        if kind is None or not total < _LARGEST.get(kind, math.inf):
            return False
        low, high = low - d.offset, high - d.offset
        if d.sign < 0:
            low, high = -high, -low
        eps = 2.0**-21 if kind == "float32" else 2.0**-49
        old = self.bands.get((d.left, d.right))
        if old is not None:
            low, high = max(low, old.low), min(high, old.high)
            eps, total = max(eps, old.eps), max(total, old.weight)
            kind = "float32" if "float32" in (kind, old.kind) else kind
        self.bands[d.left, d.right] = Band(d.left, d.right, low, high, eps, total, kind)
        return True

    def _kind(self, part: Expr) -> str | None:
        """float32 if any step of the comparison is rounded to it, else float64; None if it compares no numbers.

        The unit of rounding is 2^-24 for float32 and 2^-53 for float64; `_add` takes 8 and 16 of them, for several steps.
        """
        kinds = {infer(node, self.schemas) for node in _arithmetic_nodes(part)}
        if not all(is_number(kind) for kind in kinds):
            return None
        return "float32" if "float32" in kinds else "float64"

    def found(self) -> tuple[tuple[Band, ...], tuple[Band, ...]]:
        every = tuple(self.bands.values())
        # Narrow bands first: they are the ones worth an index.
        banded = sorted((b for b in every if b.bounded), key=lambda b: b.high - b.low)
        return tuple(banded), tuple(b for b in every if not b.bounded)


class _Untyped(_Ranges):
    """Of a condition whose types are not known: taken for numbers."""

    def _kind(self, part: Expr) -> str | None:
        return "float64"


def _arithmetic_nodes(part: Expr) -> list[Expr]:
    """The nodes between a comparison and the one-sided parts it subtracts."""
    match part:
        case Binary("add" | "sub" | "lt" | "le" | "gt" | "ge" | "eq" as op, a, b):
            below = _arithmetic_nodes(a) + _arithmetic_nodes(b)
            return below + ([part] if op in ("add", "sub") else [])
        case Unary("neg" | "abs", a):
            return [part, *_arithmetic_nodes(a)]
        case _:
            return [part]
