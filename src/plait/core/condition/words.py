"""Which machine word every integer of a pair's condition is computed in, and whether the data allow it.

A leaf is stored in a word of its own: `int32` where its type is narrow and its values fit, else `int64`, `uint64` or,
in the last resort, `object`. A node is as wide as its widest operand: int32 arithmetic stays in int32, which doubles
the lanes of a vector. `choose` proves that no node leaves its word; failing that it tries 64 bits throughout, and
failing that the pair is judged by `evaluate` on Python's integers.

Example: l.x and r.a are int16 columns with values below 1000. They are stored in int32, and l.x - r.a is computed in
int32. If r.a is an int64 column, the difference is computed in int64. If both are, and reach from -2^62 to 2^62, the
difference may leave 64 bits, and Python judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from plait.core.condition import bounds, opaque
from plait.core.condition.bounds import Interval
from plait.core.condition.leaves import Leaf, Shape
from plait.core.condition.terms import constant, sides_of
from plait.query.condition.expression import COMPARISON, Binary, Case, Cast, Expr, Unary, children
from plait.query.condition.types import infer, is_float, is_int

_NARROW = ("int8", "int16", "int32", "uint8", "uint16")


@dataclass(frozen=True)
class Signature:
    """Everything a kernel's text depends on besides the condition.

    `words` says how each leaf is stored: `int32 int64 uint64 float32 float64 tri code`, where `tri` is 0, 1 or 2 for
    NULL. `nullable` marks leaves that come with a mask, `alive` sides that do. `wide`: all integers in 64 bits.

    `in_python`: no machine word is proven wide enough, or a function not proven to be the same compiled, so Python judges.
    It is a part of the signature, so that whoever compares two signatures sees that a kernel must not be used any more
    though every column is stored as before. `why` is for `explain`.

    `object` is a word too: integers that neither int64 nor uint64 holds. There is no kernel for it.
    """

    words: tuple[tuple[str, ...], tuple[str, ...]]
    nullable: tuple[tuple[bool, ...], tuple[bool, ...]]
    alive: tuple[bool, bool]
    wide: bool = False
    in_python: bool = False
    why: str = field(default="", compare=False)

    def describe(self) -> list[str]:
        """For `explain`: whether Python judges, and why."""
        return [f"pairs are judged by Python: {self.why}"] if self.in_python else []


def storage(leaf: Leaf) -> str:
    """The narrowest word a leaf of this type is stored in; its values may ask for a wider one."""
    if leaf.kind == "bool":
        return "tri"
    if leaf.kind in ("text", "bytes"):
        return "code"
    if is_float(leaf.kind):
        return "float32" if leaf.kind == "float32" else "float64"
    if leaf.kind == "uint64":
        return "uint64"
    return "int32" if leaf.kind in _NARROW else "int64"


def widened(word: str, interval: Interval) -> str:
    """The word that holds a leaf's values as well as what it held before."""
    if word not in bounds.WORDS:
        return word
    for wider in (word, "int64", "uint64"):
        if bounds.fits(interval, bounds.WORDS[wider]):
            return wider
    return "object"


Intervals = tuple[tuple[Interval | None, ...], tuple[Interval | None, ...]]


def choose(shape: Shape, signature: Signature, intervals: Intervals) -> Signature:
    """How pairs are judged exactly: by a kernel whose every integer is proven to fit its word, or by Python.

    Called when words, masks or intervals have changed, not for each batch. `intervals` are by side and leaf, None for
    what is no integer or was not seen yet. What was proven once is kept: each range of a bounded run asks again.
    """
    if shape.spelled is None:
        return _chosen(shape, signature, intervals)
    asked = (shape.spelled, signature, intervals)
    found = _proven.get(asked)
    if found is None:
        if len(_proven) > _MOST_PROVEN:
            _proven.clear()
        found = _proven[asked] = _chosen(shape, signature, intervals)
    return found


#: What `choose` has found, by all that it depends on.
_proven: dict[Any, Signature] = {}
_MOST_PROVEN = 4096


def _chosen(shape: Shape, signature: Signature, intervals: Intervals) -> Signature:
    if shape.opaque:
        why = opaque.why_python(shape, intervals)
        return replace(signature, in_python=bool(why), why=why)
    if shape.joins_text:
        return replace(signature, in_python=True, why="text of both rows is put together")
    if not any(word == "object" for side in signature.words for word in side):
        for wide in (False, True):
            candidate = replace(signature, wide=wide)
            widths = Widths(shape, candidate, intervals)
            if all(widths.holds(part) for part in shape.terms.pair):
                return candidate
    return replace(signature, in_python=True, why="integers beyond 64 bits are in the windows")


class Widths:
    """The word and the interval of every integer node of a pair's condition."""

    def __init__(self, shape: Shape, signature: Signature, intervals: Intervals | None = None) -> None:
        self.shape, self.signature, self.intervals = shape, signature, intervals

    def holds(self, part: Expr) -> bool:
        """Whether every node of a conjunct that a kernel computes fits its word."""
        return all(self._node_holds(node) for node in self._nodes(part))

    def _nodes(self, expr: Expr) -> list[Expr]:
        """The nodes a kernel computes: leaves and constants are values already."""
        if expr in self.shape.leaf_of or not sides_of(expr):
            return []
        return [expr] + [n for child in children(expr) for n in self._nodes(child)]

    def _node_holds(self, node: Expr) -> bool:
        kind = infer(node, self.shape.schemas)
        if is_int(kind) and not bounds.fits(self.interval(node), bounds.WORDS[self.word(node)]):
            return False
        # Operands are brought to the node's word first: an unsigned one may not fit it. Comparisons take any mix,
        # but for a constant beyond 64 bits.
        for child in children(node):
            child_kind = infer(child, self.shape.schemas)
            if not is_int(child_kind):
                continue
            if isinstance(node, Binary) and node.op in COMPARISON:
                words = [bounds.INT64, bounds.WORDS["uint64"]]
                if not any(bounds.fits(self.interval(child), word) for word in words):
                    return False
            elif is_int(kind) and not bounds.fits(self.interval(child), bounds.INT64):
                return False
        return True

    def word(self, expr: Expr) -> str:
        """int32, int64 or uint64 (leaves and constants only)."""
        place = self.shape.leaf_of.get(expr)
        if place is not None:
            return self.signature.words[place[0]][place[1]]
        if not sides_of(expr):
            return _constant_word(self.interval(expr))
        if self.signature.wide:
            return "int64"
        match expr:
            case Cast(_, to):
                return "int32" if to in _NARROW else "int64"
            case _:
                kinds = [(c, infer(c, self.shape.schemas)) for c in children(expr)]
                narrow = all(self.word(c) == "int32" for c, kind in kinds if is_int(kind))
                return "int32" if narrow else "int64"

    def interval(self, expr: Expr) -> Interval:
        """Of a leaf what was seen; nothing seen yet is (0, 0). Of a node by `bounds`, from its operands."""
        place = self.shape.leaf_of.get(expr)
        if place is not None:
            found = self.intervals[place[0]][place[1]] if self.intervals else None
            return found or (0, 0)
        if not sides_of(expr):
            return bounds.of_array(constant(expr).data)
        match expr:
            case Cast(arg, to):
                kind = infer(arg, self.shape.schemas)
                inner = (0, 1) if kind == "bool" else self.interval(arg) if is_int(kind) else None
                return bounds.cast(inner, to)
            case Case():
                values = [v for v in expr.values if is_int(infer(v, self.shape.schemas))]
                return reduce(bounds.joined, [self.interval(v) for v in values])
            case Unary(op, arg):
                return bounds.unary(op, self.interval(arg))
            case Binary(op, a, b):
                return bounds.binary(op, self.interval(a), self.interval(b))
        raise AssertionError(expr)


def _constant_word(interval: Interval) -> str:
    if bounds.fits(interval, bounds.INT32):
        return "int32"
    return "int64" if bounds.fits(interval, bounds.INT64) else "uint64"
