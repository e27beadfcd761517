"""Expressions over arrays, exactly: one value a row, with NULLs beside it.

This is how one-sided parts of a condition are computed as rows enter a window, and how pairs are judged in the rare
case that integers leave 64 bits. Integers are exact: an operation runs in int64 if the interval of its result fits, and
on Python's integers otherwise. Floats keep their width under NumPy 2 promotion. A NULL's slot holds 0, so that it
moves no minimum or maximum; nothing may read it as a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from plait.core.condition import bounds, moments
from plait.query.condition.expression import (
    COMPARISON,
    LOGIC,
    TIME_PARTS,
    Binary,
    Case,
    Cast,
    Column,
    Concat,
    Expr,
    Literal,
    Text,
    Unary,
)
from plait.query.condition.types import is_float, is_int, joint, promote

Mask = np.ndarray


@dataclass(frozen=True)
class Array:
    """`kind` is a type's name as in `query.condition.types`; text and bytes are int64 codes. `valid` None: no NULL at all.

    `data` has one entry a row, or one for all rows (a constant), which NumPy spreads. Integers are int64, or the column's
    own type, or Python's own (dtype object) where 64 bits do not hold them. `valid` is a mask of booleans. Arrays are
    never written to.
    """

    kind: str
    data: np.ndarray
    valid: Mask | None = None

    def __len__(self) -> int:
        return len(self.data)


Lookup = Callable[[Expr], Array | None]


def evaluate(expr: Expr, lookup: Lookup, codes: Callable[[str | bytes], int]) -> Array:
    """The value of every row. `lookup` gives the parts that are already known, at least every column.

    `codes` gives the code of a text constant. The result has the expression's type (`query.condition.types.infer` says the same);
    where it is a boolean it is three-valued: `valid` is false where it is unknown. Costs a few passes a node over the
    rows. Every operator between every two types is held against the reference in
    tests/core/condition/test_every_operator.py.
    """
    known = lookup(expr)
    if known is not None:
        return known
    match expr:
        case Literal(value):
            return _literal(value, codes)
        case Cast(arg, to):
            return _cast(evaluate(arg, lookup, codes), to)
        case Unary(op, arg) if op in TIME_PARTS:
            return _part(op, evaluate(arg, lookup, codes))
        case Unary(op, arg):
            return _unary(op, evaluate(arg, lookup, codes))
        case Case(branches, otherwise):
            chosen = [(truth(evaluate(c, lookup, codes)), evaluate(v, lookup, codes)) for c, v in branches]
            return _case(chosen, evaluate(otherwise, lookup, codes))
        case Binary(op, left, right):
            a, b = evaluate(left, lookup, codes), evaluate(right, lookup, codes)
            if op in LOGIC:
                return _logic(op, a, b)
            if op in COMPARISON:
                return _compare(op, a, b)
            return _arithmetic(op, a, b)
        case Column(side, name):
            raise AssertionError(f"column {side}.{name} was not given")
        case Text() | Concat():
            raise AssertionError(f"{expr} is computed from its column (`texts`), and was not given")


def _literal(value: Any, codes: Callable[[str | bytes], int]) -> Array:
    match value:
        case None:
            return Array("null", np.zeros(1, np.int64), np.zeros(1, bool))
        case bool():
            return Array("bool", np.array([value]))
        case int():
            return Array("weakint", _narrowed(np.array([value], dtype=object)))
        case float():
            return Array("weakfloat", np.array([value]))
        case _:
            return Array("text" if isinstance(value, str) else "bytes", np.array([codes(value)]))


def truth(array: Array) -> Mask:
    """Where a boolean is true, not false and not unknown."""
    return _is(array, True)


def _is(array: Array, value: bool) -> Mask:
    """Where a boolean is known to be `value`. A column of type null is never known."""
    if array.kind == "null":
        return np.zeros(len(array), bool)
    data: Mask = array.data if value else ~array.data
    return data if array.valid is None else np.asarray(data & array.valid)


def both_valid(a: Mask | None, b: Mask | None) -> Mask | None:
    """Where both are there; None again if neither has a NULL."""
    if a is None or b is None:
        return b if a is None else a
    return np.asarray(a & b)


def _boolean(true: Mask, false: Mask) -> Array:
    """From «is it true» and «is it false», which never hold both, to a three-valued array."""
    known = true | false
    return Array("bool", true, None if known.all() else known)


def _logic(op: str, a: Array, b: Array) -> Array:
    """Three-valued logic. and: true if both are, false if one is. or: the other way round. Else unknown. So `NULL and
    False` is False.
    """
    if op == "and":
        return _boolean(_is(a, True) & _is(b, True), _is(a, False) | _is(b, False))
    return _boolean(_is(a, True) | _is(b, True), _is(a, False) & _is(b, False))


def _unary(op: str, a: Array) -> Array:
    """`op` is is_null, not, neg or abs. -x and abs(x) of the least int64 leave 64 bits, so the interval is asked first,
    as for every operation on integers.
    """
    if op == "is_null":
        return Array("bool", np.zeros(len(a), bool) if a.valid is None else ~a.valid)
    if op == "not":
        return _boolean(_is(a, False), _is(a, True))
    if a.kind == "null":
        return a
    if is_float(a.kind):
        return Array(a.kind, -a.data if op == "neg" else np.abs(a.data), a.valid)
    data = exact(a.data)
    if not bounds.fits(bounds.unary(op, bounds.of_array(data)), bounds.INT64):
        data = data.astype(object)
    return Array(a.kind, _narrowed(-data if op == "neg" else abs(data)), a.valid)


def _case(branches: list[tuple[Mask, Array]], otherwise: Array) -> Array:
    """Of every row the value of its first branch that is taken. All branches are computed: none of them can fail.

    Each value is brought to the common type first; an integer that becomes a float is rounded once.
    """
    kind = joint([*(value.kind for _, value in branches), otherwise.kind])
    assert kind is not None  # types were checked when the query was bound
    data, there = _brought(otherwise, kind)
    for true, value in reversed(branches):
        own, valid = _brought(value, kind)
        data, there = np.where(true, own, data), np.where(true, valid, there)
    data = _narrowed(data) if is_int(kind) else data
    return cleared(Array(kind, data, None if there.all() else there))


def _brought(array: Array, kind: str) -> tuple[np.ndarray, Mask]:
    """Values in the type of a choice, and where they are not NULL."""
    valid = np.ones(1, bool) if array.valid is None else array.valid
    if array.kind == "null":
        return np.zeros(1, {"bool": np.bool_, "float32": np.float32}.get(kind, np.int64)), valid
    if is_float(kind):
        return as_float(array, kind), valid
    return (exact(array.data) if is_int(kind) else array.data), valid


def _part(op: str, a: Array) -> Array:
    """A part of moments: a year, an hour ..."""
    if a.kind == "null":
        return Array("int64", np.zeros(len(a), np.int64), a.valid)
    return cleared(Array("int64", _narrowed(moments.part(op, exact(a.data))), a.valid))


# --- integers -----------------------------------------------------------------------------------------------


def exact(data: np.ndarray) -> np.ndarray:
    """Integers as int64 where they all fit, as Python's otherwise."""
    if data.dtype == object or data.dtype == np.int64:
        return data
    if data.dtype == np.uint64 and bounds.of_array(data)[1] > bounds.INT64[1]:
        return data.astype(object)
    return data.astype(np.int64)


def _narrowed(data: np.ndarray) -> np.ndarray:
    if data.dtype == object and bounds.fits(bounds.of_array(data), bounds.INT64):
        return data.astype(np.int64)
    return data


def _same_words(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if object in (x.dtype, y.dtype):
        return x.astype(object), y.astype(object)
    return x, y


def _truncated(a: int, b: int) -> int:
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "sqlmod": lambda x, y: np.frompyfunc(_truncated, 2, 1)(x, y) if x.dtype == object else np.fmod(x, y),
}


def _integers(op: str, kind: str, a: Array, b: Array) -> Array:
    """Exact arithmetic of integers: add, sub, mul, floordiv, mod, sqlmod. A zero divisor gives NULL; the division itself
    is then done by 1, so that nothing warns or raises. The operation runs in int64 only if the interval of the operands'
    minima and maxima proves that no result can leave it.
    """
    x, y = _same_words(exact(a.data), exact(b.data))
    valid = both_valid(a.valid, b.valid)
    if op in ("floordiv", "mod", "sqlmod"):
        zero = y == 0
        if zero.any():
            valid = both_valid(valid, ~zero.astype(bool))
            y = np.where(zero, 1, y)
    if x.dtype != object:
        result = bounds.binary(op, bounds.of_array(x), bounds.of_array(y))
        if not bounds.fits(result, bounds.INT64):
            x, y = x.astype(object), y.astype(object)
    return cleared(Array(kind, _narrowed(_EXACT[op](x, y)), valid))


def cleared(array: Array) -> Array:
    """The same values with 0 in the place of every NULL."""
    if array.valid is None:
        return array
    shape = np.broadcast_shapes(array.data.shape, array.valid.shape)
    data, valid = np.broadcast_to(array.data, shape), np.broadcast_to(array.valid, shape)
    if valid.all():
        return Array(array.kind, data)
    return Array(array.kind, np.where(valid, data, np.zeros(1, data.dtype)), valid)


# --- floats and promotion -----------------------------------------------------------------------------------


def as_float(array: Array, kind: str) -> np.ndarray:
    """A number's values in a float type: each exact value rounded once.

    An int64 becomes a float64 by one rounding to nearest; to float32 it goes directly too, not by way of float64.
    """
    word = np.float32 if kind == "float32" else np.float64
    if array.data.dtype == object:
        with np.errstate(over="ignore"):
            return np.array([_rounded(value, word) for value in array.data], dtype=np.float64).astype(word)
    with np.errstate(over="ignore"):
        return array.data.astype(word)


def _rounded(value: int, word: type) -> float:
    """An exact integer as a float, to be narrowed to `word`. Example for why it takes care: 2^60 + 2^36 + 1 lies just
    above the middle between two float32, and rounds up. As a float64 it loses the 1, is exactly the middle then, and
    would round to even, down.
    """
    extra = value.bit_length() - 53
    if word is np.float32 and extra > 0:
        # Two roundings are not one: drop the low bits first, and keep whether there were any.
        value = (value >> extra | bool(value & ((1 << extra) - 1))) << extra
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _arithmetic(op: str, a: Array, b: Array) -> Array:
    """An operation on two numbers. Kinds are promoted as NumPy 2 does, except that integers among themselves stay exact
    integers. `/` of integers is a float. SQL's division and modulo by zero are NULL, Python's on floats follow IEEE (inf,
    NaN).
    """
    kind = promote(a.kind, b.kind)
    if kind == "null":
        return Array("null", *_all_null(a, b))
    if op in ("div", "sqldiv") and is_int(kind):
        kind = "weakfloat" if kind == "weakint" else "float64"
    if op in ("least", "greatest"):
        return _pick(op, kind, a, b)
    if is_int(kind):
        return _integers(op, kind, a, b)
    x, y, valid = as_float(a, kind), as_float(b, kind), both_valid(a.valid, b.valid)
    if op in ("sqldiv", "sqlmod") and (y == 0).any():
        valid = both_valid(valid, y != 0)
    with np.errstate(all="ignore"):
        return cleared(Array(kind, _FLOAT[op](x, y), valid))


def _all_null(a: Array, b: Array) -> tuple[np.ndarray, Mask]:
    n = max(len(a), len(b)) if len(a) and len(b) else 0
    return np.zeros(n, np.int64), np.zeros(n, bool)


_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqldiv": np.divide,
    "floordiv": np.floor_divide, "mod": np.mod, "sqlmod": np.fmod,
}  # fmt: skip


def _pick(op: str, kind: str, a: Array, b: Array) -> Array:
    """least and greatest: a NULL gives way, NaN lies above every number.

    Of a tie, which only shows between 0.0 and -0.0, `least` is the left operand and `greatest` the right one.
    """
    if is_int(kind):
        x, y = _same_words(exact(a.data), exact(b.data))
        second = y < x if op == "least" else y >= x
    else:
        x, y = as_float(a, kind), as_float(b, kind)
        second = (y < x) | (np.isnan(x) & ~np.isnan(y)) if op == "least" else (y >= x) | np.isnan(y)
    second = second.astype(bool)
    if a.valid is None and b.valid is None:
        return Array(kind, np.where(second, y, x))
    va = np.ones(1, bool) if a.valid is None else a.valid
    vb = np.ones(1, bool) if b.valid is None else b.valid
    return cleared(Array(kind, np.where((second & vb) | ~va, y, x), va | vb))


# --- comparisons and casts ----------------------------------------------------------------------------------

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def _compare(op: str, a: Array, b: Array) -> Array:
    if "null" in (a.kind, b.kind):
        data, valid = _all_null(a, b)
        return Array("bool", data.astype(bool), valid)
    return _compare_known(op, a, b)


def _compare_known(op: str, a: Array, b: Array) -> Array:
    """A comparison of two columns that have a type. Integers compare exactly, whatever their signs and widths. If one
    side is a float, both are rounded to the common type first, and NaN makes the answer unknown.
    """
    valid = both_valid(a.valid, b.valid)
    if not (is_int(a.kind) or is_float(a.kind)):
        x, y = a.data, b.data
    elif is_int(a.kind) and is_int(b.kind):
        x, y = _same_words(exact(a.data), exact(b.data))
    else:
        kind = promote(a.kind, b.kind)
        x, y = as_float(a, kind), as_float(b, kind)
        for side in (x, y):
            if np.isnan(side).any():
                valid = both_valid(valid, ~np.isnan(side))
    return cleared(Array("bool", _COMPARE[op](x, y).astype(bool), valid))


def _cast(a: Array, to: str) -> Array:
    """Values in another type. What does not fit the target becomes NULL, never a wrapped number. Floats are truncated
    towards zero first. A boolean counts 0 or 1.
    """
    if a.kind == "null":
        word = {"bool": np.bool_}.get(to) or np.dtype(to)
        return Array(to, np.zeros(len(a), word), a.valid)
    if to == "bool":
        return _cast_to_bool(a)
    if is_float(to):
        return Array(to, as_float(a, to), a.valid)
    low, high = bounds.WORDS[to]
    if is_float(a.kind):
        with np.errstate(all="ignore"):
            whole = np.trunc(a.data.astype(np.float64))
            inside = (whole >= float(low)) & (whole < float(high + 1))  # high + 1 is a power of two: exact
        values = np.where(inside, whole, 0.0).astype(np.dtype(to))
    else:
        data = exact(a.data)
        inside = ((data >= low) & (data <= high)).astype(bool) if to != "uint64" or data.dtype == object else data >= 0
        values = np.where(inside, data, 0).astype(np.dtype(to))
    return cleared(Array(to, values, a.valid if inside.all() else both_valid(a.valid, inside)))


def _cast_to_bool(a: Array) -> Array:
    valid = a.valid
    if is_float(a.kind) and np.isnan(a.data).any():
        valid = both_valid(valid, ~np.isnan(a.data))
    return cleared(Array("bool", (a.data != 0).astype(bool), valid))
